"""Continuation of one step from length 0 to its full length, as a CasADi function.

Continuation is used for steps whose root the chord iteration does not certify. The solution of a step is the
root on the branch that begins, at length 0, with the velocities of the state. The continuation follows this
branch: it solves the step for increasing fractions of its length, and extrapolates the last roots to the
guess of the next root. A fraction is accepted only if the iteration that solves it certifies its root;
otherwise half of the increase is tried. The function `newton.follow` solves the steps that are not solved
here. Maths: docs/maths/midpoint.md, "Which root is the step".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.branch_equations import BranchRoot
from vioc.dynamics.integrators.newton import SHORTEST, TURN

SHARES = 100  # largest number of shares that are tried for one step
# Growth of the share, relative to the share reached, below which a kernel leaves a step with constraints to
# `newton.follow`, which begins anew and passes singular positions of the constraints
PATIENCE = 2.0**-4


class Context(NamedTuple):
    """Arguments of a step as CasADi symbols."""

    x: ca.MX
    u: ca.MX
    t: ca.MX
    dt: ca.MX
    theta: ca.MX


class Mean(NamedTuple):
    """Mean velocity w (nd,) over a step that is shortened to the fraction `share` of its length."""

    w: ca.MX
    share: ca.MX


class Root(NamedTuple):
    """Solution of the equations of a shortened step.
    The step is shortened to a fraction of its length. The field `w` is the mean velocity over the shortened
    step.
    """

    w: ca.MX
    x_next: ca.MX
    multipliers: ca.MX
    error: ca.MX


def with_continuation(
    kernel: ca.Function,
    begin: Callable[[Context], tuple[ca.MX, ca.MX]],
    solve: Callable[[Context, ca.MX, Mean, ca.MX], Root],
    turning: list[bool],
    tolerance: float,
    shortest: float = SHORTEST,
) -> ca.Function:
    """Return a CasADi function that solves a step, by continuation if necessary.
    The function is (x, u, t, dt, parameters) -> (x_next, multipliers, error). It first calls `kernel`, which
    solves the step directly and tests whether the root is on the branch of roots that starts at the state x.
    If this test fails, the function increases the step length from 0 to dt: `begin` computes the velocities
    at length 0, and `solve` computes the root at each fraction of the length.

    If the branch cannot be followed to its end, the error is 2 minus the largest fraction that was reached.
    The next state is then the mean velocity at this fraction, padded with NaN (`left_by` reads both).

    Parameters
    ----------
    kernel : ca.Function
        Function that solves the whole step at once; its error is infinite if its root is not certified.
    begin : context -> (w, change), each (nd,)
        Velocities w at length 0, and a guess of the mean velocity over the whole step minus w.
    solve : context, guess of w, mean velocity of the last root, share -> Root
        Root at the fraction `share` of the length. Its error is infinite unless the contraction of the
        corrections, the signs of pivots and the angles from the last root certify it.
    turning : (nd,)
        Mask of the variables that are angles.
    tolerance : float
        Error up to which a step is solved.
    shortest : float
        Smallest relative increase of the fraction; if only smaller increases succeed, the branch has ended.
    """
    args = Context(*kernel.mx_in())
    continued = _continued(kernel, begin, solve, turning, tolerance, shortest)
    whole = [ca.MX.sym("whole", kernel.sparsity_out(i)) for i in range(3)]
    direct = ca.Function("kept", [*whole, *args], whole)
    continued_step = ca.Function("left", [*whole, *args], continued.call(args))
    choice = ca.Function.if_else("continued_where_left", direct, continued_step)
    outputs = kernel.call(args)
    # after a failed step a rollout continues with NaN, from which there is no branch to follow
    behind_failure = ca.logic_not(args.x[-1] < ca.inf)
    accepted = ca.logic_or(outputs[2] <= tolerance, behind_failure)
    return ca.Function("step", list(args), choice.call([accepted, *outputs, *args]))


def left_by(f: Any, x: np.ndarray, u: np.ndarray, t: float, dt: float) -> BranchRoot | None:
    """Return the last root that a failed continuation of a step reached.
    The result is None if this root is at length 0, or if the continuation did not fail.
    """
    reached, error = f.driver.attempt(x, u, t, dt)
    return BranchRoot(reached[: f.nd], np.zeros(0), np.inf, 2.0 - error) if 1.0 < error < 2.0 else None


def _continued(kernel, begin, solve, turning, tolerance, shortest) -> ca.Function:
    """Return a CasADi function that solves a step by continuation in its length.
    The continuation starts at length 0, at which `begin` computes the velocities. The function `solve`
    computes the solution at a fraction of the length, which is accepted if its error is at most `tolerance`.
    The mask `turning` selects the variables that are angles. The continuation fails if the fraction cannot
    grow, relatively, by `shortest`. The returned function has the arguments of `kernel`, which solves a step
    directly.

    The function is a loop over z = (w, w before, share, share before, stride): the mean velocities at the
    last two roots, their fractions of the step length, and the next increase of the fraction.
    """
    args = Context(*kernel.mx_in())
    nd, angles = len(turning), [i for i, turns in enumerate(turning) if turns]
    z = ca.MX.sym("z", 2 * nd + 3)
    w, before, (last, second, stride) = part(z, 0, nd), part(z, nd, 2 * nd), ca.vertsplit(part(z, 2 * nd))
    turn = ca.mmax(ca.fabs(args.dt * w[angles])) if angles else 0.0
    share = ca.fmin(1.0, last + ca.fmin(stride, TURN / ca.fmax(turn, TURN)))
    guess = w + (w - before) * ((share - last) / (last - second))
    root = solve(args, guess, Mean(w, last), share)

    good, half = root.error <= tolerance, (share - last) / 2  # a comparison with NaN is false
    forward = ca.vertcat(root.w, w, share, last, 2 * stride)
    shorter = ca.vertcat(w, before, last, second, half)
    arrived = ca.logic_and(good, share == 1.0)
    ended = ca.logic_and(ca.logic_not(good), half < shortest * ca.fmax(last, shortest))
    change = ca.if_else(ca.logic_or(arrived, ended), 0.0, z - ca.if_else(good, forward, shorter))
    error = ca.if_else(arrived, root.error, 2 - last)
    nothing = np.full(root.x_next.numel() - nd, np.nan)
    reached = ca.if_else(arrived, root.x_next, ca.vertcat(w, nothing))
    trial = ca.Function("share", [z, *args], [change, reached, root.multipliers, error])

    # The root finder is the loop. With the identity as Jacobian of `trial`, an iteration is z <- z - change.
    # The loop ends where nothing changes: after the whole step, or where the branch cannot be followed.
    eye = ca.Function("identity", [z, *args], [ca.MX.eye(z.numel()), *trial.call([z, *args])])
    least = SHORTEST**3  # of a change of the stride; at the loop's end nothing changes
    options = {"jacobian_function": eye, "max_iter": SHARES, "error_on_fail": False}
    loop = ca.rootfinder("shares", "fast_newton", trial, {**options, "abstol": least, "abstolStep": least})
    start, slope = begin(args)
    start_state = ca.vertcat(start, start - slope, 0.0, -1.0, 0.5)
    return ca.Function("continued", list(args), loop.call([start_state, *args])[1:])
