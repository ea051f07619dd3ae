"""First guess of the configuration at a step's end, from the state and input at its start.

With v from the Legendre transform and a from the continuous equations of motion at (q_k, v),

    q_k + dt v + dt^2 / 2 a,

which differs from the step's root by O(dt^3). Maths: docs/maths/midpoint.md, "The solver".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.articulated import ArticulatedInverse
from vioc.dynamics.algebra.sparse_lu import Saddle, scalars
from vioc.dynamics.algebra.vectors import part

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap
    from vioc.dynamics.lagrangian import Lagrangian

SAME, FLOOR = 1e-9, 1e-4  # relative second difference of a linear term; least size of a term
STIFF = 0.1  # rad that accelerations may move an angle farther than velocities do, without stiff springs
FAR = 1.0  # rad: sines and cosines of an angle have the Lipschitz constant 1


def motion(f: MechanicalMap) -> ca.Function:
    """Return the CasADi function that computes the motion at the start of a step.
    The function is (x, u, t, dt, parameters) -> velocities (nd,) and accelerations (nd,) of the dynamic
    variables, multipliers (nm,) of the constraints, and pivots (nd,) of the mass matrix. Kinematic variables
    move at their mean rate over the step. Velocities and accelerations fulfil the constraints, whose forces
    on the dynamic variables are -Dh' times the multipliers, with the constraint Jacobian Dh. Recursions over
    the tree invert the mass matrix in O(n). The function is built once for a map and its copies.
    """
    if "motion" not in f.built:
        f.built["motion"] = _motion(f)
    return f.built["motion"]


def _motion(f: MechanicalMap) -> ca.Function:
    lag, g, nd, nq = f.lagrangian, f.lagrangian.graph, f.nd, f.nq
    q, v, nf = g.q_vector, g.v_vector, len(f.system.inputs)
    links = lag.first.links
    inverse = ArticulatedInverse.of_masses(links, [link.pose for link in links], nd, [0.0] * nd)
    Dh = lag.Dh
    J = scalars(Dh[:, :nd])
    saddle = Saddle(inverse, J, [[vec.minus(0.0, e) for e in row] for row in J])

    def solution(a: ca.SX, b: ca.SX) -> tuple[ca.SX, ca.SX]:
        x, y = saddle.solve(ca.vertsplit(a), ca.vertsplit(b))
        return vec.column(x), vec.column(y)

    p, v_k = ca.SX.sym("p", nd), part(v, nd)
    carried = p - lag.M[:nd, nd:] @ v_k if nq > nd else p
    v_d, _ = solution(carried, -(Dh[:, nd:] @ v_k) if nq > nd else ca.SX.zeros(Dh.shape[0]))
    bias = (ca.jtimes(lag.L_v, q, v) - lag.L_q - lag.F)[:nd]
    a, y = solution(-bias, -ca.jtimes(Dh @ v, q, v) if Dh.shape[0] else ca.SX(0, 1))
    of_velocity = ca.Function("velocity", [q, p, v_k, g.parameters], [v_d, inverse.pivots])
    of_acceleration = lag.function("acceleration", [a, y])

    x, u, t, dt, theta = (
        ca.SX.sym("x", f.nx), ca.SX.sym("u", f.nu), ca.SX.sym("t"), ca.SX.sym("dt"), f.symbols.parameters
    )  # fmt: skip
    q0, rates = part(x, 0, nq), (part(u, nf) - part(x, nd, nq)) / dt
    speeds, pivots = of_velocity(q0, part(x, nq, nq + nd), rates, theta)
    accelerations, multipliers = of_acceleration(q0, ca.vertcat(speeds, rates), part(u, 0, nf), t, theta)
    outputs = [speeds, accelerations, multipliers, pivots]
    return ca.Function("motion", [x, u, t, dt, theta], outputs, {"cse": True})


def far(reach: Any, turning: Iterable[bool]) -> Any:
    """Return infinity if an angle may turn by more than 1 rad in a step, else 0.
    The argument `reach` has upper bounds of the displacements of the variables in the step; `turning` is the
    mask of those variables that are angles.

    The sines and cosines of angles, and so the step's Newton matrix, change by no more than the angles do. If
    no angle turns by a sixth of a turn, tests of the matrix at the guess are valid on the whole path to the
    guess.
    """
    angles = [i for i, turns in enumerate(turning) if turns]
    if not angles:
        return 0.0
    return ca.if_else(ca.mmax(ca.fabs(reach[angles])) <= FAR, 0.0, ca.inf)


def bending_variables(lag: Lagrangian) -> np.ndarray:
    """Return a mask (nd,) of the variables with nonlinear terms.
    These are the dynamic variables on which the momenta, forces or constraints depend nonlinearly.

    They are detected by second differences at random states and parameters. Examples of variables without
    nonlinear terms are the angle of a wheel about its axis of symmetry, the heading of a vehicle on a plane,
    and an angle on which only a spring acts.
    """
    g, nd, n = lag.graph, lag.nd, 3 * lag.nd
    terms = ca.densify(ca.vertcat(lag.L_v, lag.L_q + lag.F, lag.h))
    function = ca.Function("terms", lag.state_args, [terms]).map(n)
    rng, theta = np.random.default_rng(0), np.array(list(lag.system.parameters.values()), float)
    bends = np.zeros(nd)
    for _ in range(2):
        q, v = rng.uniform(0.3, 1.2, lag.nq), rng.uniform(-1.0, 1.0, lag.nq)
        u, parameters = rng.uniform(-1.0, 1.0, g.u_vector.numel()), theta * rng.uniform(0.8, 1.25, len(theta))
        Q, displacement = np.tile(q, (3, nd, 1)), rng.uniform(0.5, 1.5, nd)
        Q[0, np.arange(nd), np.arange(nd)] -= displacement
        Q[2, np.arange(nd), np.arange(nd)] += displacement
        args = (np.tile(a[:, None], (1, n)) for a in (v, u, np.zeros(1), parameters))
        with np.errstate(all="ignore"):
            lower, middle, upper = np.split(np.array(function(Q.reshape(n, -1).T, *args)), 3, axis=1)
            size = np.abs(lower) + np.abs(middle) + np.abs(upper)
            size += FLOOR * np.abs(middle).max(initial=0.0)
            bend = np.where(size > 0, np.abs(lower - 2 * middle + upper) / size, 0.0)
        bends = np.maximum(bends, np.where(np.isfinite(bend), bend, np.inf).max(axis=0, initial=0.0))
    return bends > SAME


def predicted(f: MechanicalMap, stiff: bool = False) -> ca.Function:
    """Return a CasADi function that guesses the configuration at the end of a step.
    The guess extrapolates the motion by the velocities and accelerations at the start. The arguments and
    results are (x, u, t, dt, parameters) -> guess (nd,) for the dynamic variables, a number: infinity if an
    angle may turn by more than 1 rad in the step, else 0, and the pivots (nd,) of the mass matrix at the
    start.

    With `stiff` the system may have stiff springs. Springs are stiff for a step if accelerations move an
    angle farther than velocities do, by more than `STIFF`. The guess then omits the accelerations, and the
    step's Newton matrix, which contains the springs, corrects it. The solver also tests the roots of these
    steps by the function `far`.
    """
    args = x, _, _, dt, _ = motion(f).sx_in()
    v, a, _, pivots = motion(f)(*args)
    by_v, by_a = dt * v, dt**2 / 2 * a
    suspect = far(by_v if stiff else ca.fabs(by_v) + ca.fabs(by_a), f.turning)
    if stiff and (angles := [i for i, turns in enumerate(f.turning) if turns]):
        by_speed, by_force = ca.mmax(ca.fabs(by_v[angles])), ca.mmax(ca.fabs(by_a[angles]))
        soft = ca.logic_and(by_force <= by_speed + STIFF, by_speed + by_force <= FAR)
        by_a = ca.if_else(soft, by_a, 0.0)
    return ca.Function("predicted", list(args), [part(x, 0, f.nd) + by_v + by_a, suspect, pivots])
