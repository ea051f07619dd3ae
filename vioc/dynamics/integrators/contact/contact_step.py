"""Equations of a step with contact in generalized coordinates.

    p_k + D1 L_d + F- - Dh(q_k)' lambda + N(q_k)' gamma + T(q_k)' tau = 0,    q_k+1 = q_k + dt V
    h(q_k+1) = 0,    0 <= phi(q_k+1)/dt perp gamma >= 0,    tau dissipates most with |tau| <= mu gamma
    p_k+1 = D2 L_d + F+

docs/maths/contact.md, "In generalized coordinates".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.sparse_lu import Saddle, SparseLU, scalars
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.contact.cones import Cone, Variables
from vioc.dynamics.contact.interior import ContactStep, End, EndProblem, InteriorPoint, Step
from vioc.dynamics.contact.look import Look
from vioc.dynamics.contact.tape import Tape, in_units
from vioc.dynamics.integrators.contact.branch import suspect
from vioc.dynamics.integrators.contact.touching import NOWHERE

if TYPE_CHECKING:
    from vioc.dynamics.integrators.chord import ChordParts
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI


class CoordinateBalance(NamedTuple):
    """Terms of the equations of a step with contact, without the unknown impulses.
    The unknown impulses are those of constraints and contacts. The terms are evaluated at a mean velocity of
    the step.

    Attributes
    ----------
    parts : ChordParts
    q1 : (nq,)
    rates : (nq,)
        Mean rates over the step.
    h, gaps : columns
        Constraints at the end of the step; gaps there, divided by dt.
    Dh0 : (nm, nq)
        Jacobian of h at the start.
    Dh1, slopes : matrices
        Jacobians of h and of the gaps at the end, by the dynamic variables.
    J : list of (rows, nd)
        Derivatives of gap and slip of each contact at the start.
    speeds : list of columns
        (phi(q_k+1)/dt, slip) of each contact; the slip alone for dry friction without a gap.
    """

    parts: ChordParts
    q1: Any
    rates: Any
    h: Any
    gaps: Any
    Dh0: Any
    Dh1: Any
    slopes: Any
    J: list[Any]
    speeds: list[Any]


def balance(
    f: ContactVI, x: Any, u: Any, V: Any, t: Any, dt: Any, theta: Any, places: Any = NOWHERE
) -> CoordinateBalance:
    """Return the equations of a step with contact, without the unknown impulses.
    The unknown impulses are those of constraints and contacts. The terms of the equations are expressions,
    evaluated at state x and mean velocity V of the step.
    """
    nq, nd, nf = f.nq, f.nd, len(f.system.inputs)
    q0, p, rho, forces = part(x, 0, nq), part(x, nq, nq + nd), part(u, nf), part(u, 0, nf)
    q1 = ca.vertcat(part(q0, 0, nd) + dt * V, rho)
    rates = ca.vertcat(V, (rho - part(q0, nd)) / dt)
    parts = f.rule.parts(q0, q1, p, forces, t, dt, theta)
    h1, Dh1 = f.constraint(q1, theta)
    Dh0 = f.constraint(q0, theta)[1]
    phi, slopes = f.touches.gaps(q1, theta, places)
    J = f.touches.rows(f.touches.held(q0, theta, places))
    each = zip(f.touches.all, ca.vertsplit(phi / dt), J, strict=True)
    speeds = [ca.vertcat(*[a] * t.lead, own[t.lead :, :] @ rates) for t, a, own in each]
    jacobians = [own[:, :nd] for own in J]
    return CoordinateBalance(
        parts, q1, rates, h1, phi / dt, Dh0, Dh1[:, :nd], slopes[:, :nd], jacobians, speeds
    )


class CondensedTouch(NamedTuple):
    """Terms that a contact adds to the Newton system of a step.
    The variables of the contact have been eliminated from the system. The terms `matrix` and `right` are
    added to the matrix and to the right-hand side. The function `expand` computes the change of the contact's
    variables from the change dV of the velocities.
    """

    matrix: Any
    right: Any
    expand: Callable[[Any], Any]


def condensed(cone: Cone, y: Any, w: Any, J: Any, H: Any, mu: Any, goal: Any) -> CondensedTouch:
    """Eliminate a contact's variables y from the Newton system of a step.
    The result contains the terms that the contact then adds to the system. The argument `cone` has the
    contact's equations, w are its gap velocity and slip velocities, and mu is its friction coefficient. J is
    the Jacobian of gap and slip at the start of the step, and H the gradient of the gap at its end. `goal`
    has the barrier parameter and the argument `lag` of `Cone.mismatch`.

    In a Newton step, the contact impulse changes by c - S dw. The change dw = K dV of the gap and slip
    velocities follows from the change dV of the mean velocity. K is J with its first row replaced by H;
    without a gap K is J. Maths: docs/maths/contact.md.
    """
    dw, zeros = ca.SX.sym("dw", w.numel()), ca.SX.zeros(w.numel())
    direction = cone.direction(y, w, dw, goal[0], mu, goal[1])
    change, K = ca.jacobian(cone.impulse(y), y) @ direction, ca.vertcat(H, J[1:, :]) if cone.gap else J
    S = -ca.substitute(ca.jacobian(change, dw), dw, zeros)
    c = ca.substitute(change, dw, zeros)
    return CondensedTouch(J.T @ (S @ K), J.T @ c, lambda dV: ca.substitute(direction, dw, ca.densify(K @ dV)))


class Pieces:
    """CasADi functions that evaluate the equations of a step with contact.
    All solvers of such steps use these functions.

    The unknowns are the mean velocity V, the constraint impulses lambda and the contact variables y. Outputs
    of some functions are inputs of others. Matrices are passed as columns of their nonzero entries. `held`
    computes the quantities that do not depend on V. `leave` computes the equations at V without the unknown
    impulses; its output `off` has the constraint values h as displacements in natural units. `rest` adds the
    impulses of lambda and y to the momentum balance, with the result `left`, and returns the other residuals
    of the contact laws. `work` returns the energies and the certificate by which a root is accepted.

    Attributes
    ----------
    velocity : (x, parameters) -> initial guess of V
    held : (x, u, t, dt, parameters, places) -> J, Dh0, mu
    matrix : (V, x, u, t, dt, parameters, places) -> M, -dt (D2 D1 L_d + D2 F-)
    leave : (V, x, u, t, dt, parameters, places, J) -> balance, impulse of L and F, rates, h, off, gaps,
        slips, slopes
    fresh : (gaps, slips, mu, speed, goal) -> y
    rest : (balance, J, Dh0, mu, lambda, y, gaps, slips, goal) -> left, mismatch, products, impulses
    work : (M, J, Dh0, lambda, y, rates, V, balance, x, u, t, dt, parameters) -> kinetic energy
        that the impulses add, twice the kinetic energy, and 0 or infinity (`branch.suspect`)
    newton : (M, J, Dh0, mu, slopes, h, left, y, gaps, slips, goal, dt) -> matrix, right-hand side
    solve : the same -> dV, dlambda, dy
    expand : the same and dV -> dy
    after : (V, impulse, lambda, y, x, u, dt, J, Dh0) -> x_k+1
    """

    def __init__(self, f: ContactVI):
        touches, nd, nm = f.touches.all, f.nd, f.nm
        self.variables = Variables([t.cone for t in touches])
        offsets = self.variables.parts.tolist()
        x, u, theta = f.symbols.x, f.symbols.u, f.symbols.parameters
        t, dt, goal, speed = (
            ca.SX.sym(n, size) for n, size in (("t", 1), ("dt", 1), ("goal", 2), ("speed", 1))
        )
        V, lam, y = ca.SX.sym("V", nd), ca.SX.sym("lambda", nm), ca.SX.sym("y", offsets[-1])
        places = f.touches.places
        terms = balance(f, x, u, V, t, dt, theta, places)
        slope = f.rule.slope(part(x, 0, f.nq), terms.q1, part(u, 0, len(f.system.inputs)), t, dt, theta)
        full = f.touches.held(part(x, 0, f.nq), theta, places)
        matrices = full, terms.Dh0, ca.vertcat(terms.slopes, terms.Dh1), ca.sparsify(-dt * slope)
        entries = [ca.vertcat(ca.SX(0, 1), *m.nonzeros()) for m in matrices]
        numbers = [ca.SX.sym("entries", e.numel()) for e in entries]
        J, Dh0, slopes, M = (ca.SX(m.sparsity(), g) for m, g in zip(matrices, numbers, strict=True))
        mu, residual = ca.SX.sym("mu", len(touches)), ca.SX.sym("left", nd)
        h, gaps = ca.SX.sym("h", nm), ca.SX.sym("gaps", len(touches))
        rows = f.touches.rows(J)
        slips = ca.SX.sym("slips", sum(touch.slip.numel() for touch in touches))

        # the values of each contact
        cones, mus = [touch.cone for touch in touches], ca.vertsplit(mu)
        ys = ca.vertsplit(y, offsets)
        begins = np.cumsum([0, *(touch.slip.numel() for touch in touches)])
        cuts = zip(touches, pairwise(begins.tolist()), strict=True)
        speeds = [ca.vertcat(*[gaps[i]] * t.lead, slips[a:b]) for i, (t, (a, b)) in enumerate(cuts)]
        Js = [row[:, :nd] for row in rows]
        each = list(zip(cones, ys, speeds, Js, mus, strict=True))
        push = sum((J.T @ cone.impulse(z) for cone, z, _, J, _ in each), -Dh0[:, :nd].T @ lam)

        state = [x, u, t, dt, theta, places]
        environment = [V, *state]
        loads = ca.vertcat(*f.touches.loads(theta, dt))
        self.velocity = f.velocity_of_state
        self.held = _function("held", state, [entries[0], entries[1], loads])
        self.matrix = _function("matrix", environment, [entries[3]])
        slip_rows = (row[touch.lead :, :] for touch, row in zip(touches, rows, strict=True))
        slipping = ca.vertcat(ca.SX(0, f.nq), *slip_rows)
        slopes_of_h = terms.Dh1 @ ca.diag(f.lagrangian.natural_sizes[:nd])
        sizes = ca.sqrt(ca.sum2(slopes_of_h**2))
        displacements = terms.h / ca.if_else(
            sizes > 0, sizes, 1
        )  # as displacements in natural units, for any h
        outputs = [
            terms.parts.balance,
            terms.parts.impulse,
            terms.rates,
            terms.h,
            displacements,
            terms.gaps,
            slipping @ terms.rates,
            entries[2],
        ]
        self.leave = _function("leave", [*environment, numbers[0]], outputs)
        fresh = (cone.begin(w, speed, goal[0], m) for cone, _, w, _, m in each)
        self.fresh = _function("fresh", [gaps, slips, mu, speed, goal], [ca.vertcat(*fresh)])
        columns = [
            (cone.mismatch(z, w, m, goal[1]), cone.products(z), cone.multipliers(z))
            for cone, z, w, _, m in each
        ]
        args = [residual, numbers[0], numbers[1], mu, lam, y, gaps, slips, goal]
        outputs = [residual + push, *(ca.vertcat(*column) for column in zip(*columns, strict=True))]
        self.rest = _function("rest", args, outputs)

        rates = ca.SX.sym("rates", f.nq)
        brought = sum(
            (ca.dot(cone.impulse(z), row @ rates) for (cone, z, *_), row in zip(each, rows, strict=True)),
            -ca.dot(lam, Dh0 @ rates),
        )
        left_over = suspect(f, x, u, V, residual, t, dt, theta)
        energies = ca.vertcat(brought, ca.dot(rates[:nd], M @ rates[:nd]), left_over)
        args = [numbers[3], numbers[0], numbers[1], lam, y, rates, V, residual, x, u, t, dt, theta]
        self.work = _function("work", args, [energies])

        touch_terms = [
            condensed(cone, z, w, J, slopes[i, :], m, goal) for i, (cone, z, w, J, m) in enumerate(each)
        ]
        D, right = (
            sum((c.matrix for c in touch_terms), M),
            sum((c.right for c in touch_terms), residual),
        )
        Dh1, b = slopes[len(touches) :, :], -h / dt
        args = [numbers[3], numbers[0], numbers[1], mu, numbers[2], h, residual, y, gaps, slips, goal, dt]
        whole = ca.vertcat(ca.horzcat(D, Dh0[:, :nd].T), ca.horzcat(Dh1, ca.SX(nm, nm)))
        self.newton = _function("newton", args, [whole, ca.vertcat(right, b)])
        dV = ca.SX.sym("dV", nd)
        self.expand = _function("expand", [*args, dV], [ca.vertcat(*(c.expand(dV) for c in touch_terms))])
        self._system = args, D, Dh0[:, :nd], Dh1, right, b, touch_terms
        impulse = ca.SX.sym("impulse", nd)
        momentum = part(x, f.nq, f.nq + nd) + impulse + push
        after = ca.vertcat(terms.q1, momentum, part(terms.rates, nd))
        self.after = _function("after", [V, impulse, lam, y, x, u, dt, numbers[0], numbers[1]], [after])

    @cached_property
    def solve(self) -> ca.Function:
        args, D, Dh0, Dh1, right, b, touch_terms = self._system
        saddle = Saddle(SparseLU(scalars(D)), scalars(Dh1), scalars(-Dh0))
        solution = saddle.solve(ca.vertsplit(right), ca.vertsplit(b))
        dV, lam = (ca.vertcat(ca.SX(0, 1), *map(ca.SX, column)) for column in solution)
        return _function("solve", args, [dV, lam, ca.vertcat(*(c.expand(dV) for c in touch_terms))])


def _function(name: str, args: list[ca.SX], outputs: list[Any]) -> ca.Function:
    return ca.Function(name, args, [ca.densify(ca.SX(o)) for o in outputs])


class CoordinateEnd(End):
    """Residuals and Newton directions of a step with contact, in numpy.
    The unknowns are mean velocities, constraint impulses and the variables of the contacts.
    """

    def __init__(self, f: ContactVI):
        p = f.pieces
        self.rows, self.variables = f.nm, p.variables
        sizes = {"V": f.nd, "lambda": self.rows, "y": int(p.variables.parts[-1])}
        V, lam, y = (ca.SX.sym(name, size) for name, size in sizes.items())
        x, u, theta = f.symbols.x, f.symbols.u, f.symbols.parameters
        t, dt, speed, goal = (
            ca.SX.sym(n, size) for n, size in (("t", 1), ("dt", 1), ("speed", 1), ("goal", 2))
        )
        dV, state = ca.SX.sym("dV", f.nd), [x, u, t, dt, theta, f.touches.places]
        J, Dh0, mu = p.held(*state)
        balance, impulse, rates, h, displacements, gaps, slips, slopes = p.leave(V, *state, J)
        residual, mismatch, products, impulses = p.rest(balance, J, Dh0, mu, lam, y, gaps, slips, goal)
        system = p.matrix(V, *state), J, Dh0, mu, slopes, h, residual, y, gaps, slips, goal, dt
        point = [V, lam, y, *state]

        def function(name: str, more: list, build: Callable[[], Sequence[Any]]) -> Evaluator:
            return Evaluator(lambda: ca.Function(name, [*point, *more], [*build()]))

        self.newton = function("newton", [goal], lambda: p.newton(*system))
        self.expand = function("expand", [goal, dV], lambda: [p.expand(*system, dV)])
        self.residuals = function("residuals", [goal], lambda: [residual, displacements, mismatch, products])
        self.begin = function("begin", [speed, goal], lambda: [p.fresh(gaps, slips, mu, speed, goal)])
        self.multipliers = function(
            "multipliers", [], lambda: [ca.substitute(impulses, goal, ca.SX.zeros(2))]
        )
        self.gaps = function("gaps", [], lambda: [gaps])
        self.work = function(
            "work", [], lambda: [p.work(p.matrix(V, *state), J, Dh0, lam, y, rates, V, balance, *state[:-1])]
        )
        self.after = function("after", [], lambda: [p.after(V, impulse, lam, y, x, u, dt, J, Dh0)])


class OneEnd(ContactStep):
    """Equations of steps with contact, in which all contact impulses act at the start of the step.
    A step therefore has a single momentum balance.
    """

    def __init__(self, f: ContactVI):
        self._f = f

    @cached_property
    def end(self) -> CoordinateEnd:
        return CoordinateEnd(self._f)

    def problem(self, x, u, t: float, dt: float, theta, V: np.ndarray, places=None) -> EndProblem:
        nowhere = self._f.touches.polytopes.nowhere
        args = x, u, np.array([t]), np.array([dt]), theta, nowhere if places is None else places
        return EndProblem(self.end, args, V, dt, self._f.touches.natural(self._f.nm).extent(x[: self._f.nd]))

    def solve(
        self, solver: InteriorPoint, x, u, t: float, dt: float, theta, guess: np.ndarray | None = None
    ) -> Step:
        f = self._f
        V = f.velocities(x) if guess is None else guess
        V = np.where(np.isfinite(V), V, 0.0)  # not finite if the coordinates are singular

        def solve(places: np.ndarray) -> Step:
            problem = self.problem(x, u, t, dt, theta, V, places)
            solution = solver.solve_end(problem)
            x_next = self.end.after(solution.V, solution.lam, solution.y, *problem.given)[0][:, 0]
            return Step((solution,), x_next, solution.multipliers, places)

        if not f.features.pairs:
            return solve(f.touches.polytopes.nowhere)
        look = Look(partial(f.seen, dt=dt, theta=theta), f.features.sizes, x)
        return look.solved(solve, solver.tolerance)


class FlatTape(Tape):
    """List of instructions that evaluate the equations of a step with contact.
    The compiled solver executes the instructions. They call CasADi functions of the whole mechanism, not of
    single bodies.
    """

    def __init__(self, f: ContactVI):
        self._f = f
        super().__init__()

    def _write(self) -> None:
        f, p = self._f, self._f.pieces
        lengths = dict(carry=f.nx, u=f.nu, t=1, dt=1, theta=len(f.parameters))
        lengths |= dict(
            places=f.touches.polytopes.numbers,
            V=f.nd,
            multipliers=f.nm,
            y=int(p.variables.parts[-1]),
            kappa=2,
            speed=1,
        )
        self.places = {name: self.column(length) for name, length in lengths.items()}
        x, u, t, dt, theta, places, V, lam, y, kappa, speed = self.places.values()
        state, put = [x, u, t, dt, theta, places], self.places.__setitem__
        put("guess", self.call(p.velocity, [x, theta])[0])
        put("extent", self.call(in_units(f.nx, f.lagrangian.natural_sizes[: f.nd]), [x])[0])

        J, Dh0, mu = self.call(p.held, state)
        self.begin("matrix")
        (M,) = self.call(p.matrix, [V, *state])
        self.begin("leave")
        balance, impulse, rates, h, displacements, gaps, slips, slopes = self.call(p.leave, [V, *state, J])
        put("values", displacements)
        put("gaps", gaps)
        self.begin("begin")
        put("fresh", self.call(p.fresh, [gaps, slips, mu, speed, kappa])[0])
        self.begin("rest")
        blocks = self.call(p.rest, [balance, J, Dh0, mu, lam, y, gaps, slips, kappa])
        for name, block in zip(("left", "mismatch", "products", "impulses"), blocks, strict=True):
            put(name, block)
        self.begin("solve")
        system = [M, J, Dh0, mu, slopes, h, blocks[0], y, gaps, slips, kappa, dt]
        for name, block in zip(("dV", "found", "dy"), self.call(p.solve, system), strict=True):
            put(name, block)
        self.begin("work")
        put("work", self.call(p.work, [M, J, Dh0, lam, y, rates, V, balance, *state[:-1]])[0])
        self.begin("after")
        put("after", self.call(p.after, [V, impulse, lam, y, x, u, dt, J, Dh0])[0])
