"""Impact laws with restitution and friction that never add kinetic energy.

M is the mass matrix, N has the gradients of the gaps, and e the coefficients of restitution. With the momenta
b before the impact and masks of the closed contacts,

    M v0 = b + P0         constraints, and closed contacts outside the impact, act
    M vc = M v0 + Pc      0 <= N vc perp gamma_c >= 0, friction by vc                        compression
    M ve = M v0 + Pe      0 <= N ve + e min(N v0, 0) perp gamma_e >= 0, friction by ve      Newton
    M ve = M vc + N' e gamma_c + Pe,  0 <= N ve perp gamma_e >= 0,                           Poisson
                          |tau_e| <= mu (e gamma_c + gamma_e)
    v+ = v0 + r (vc + s (ve - vc) - v0) with the largest s, then r <= 1 for which T(v+) <= T(v0)

The velocity before the impact is v0, not M^-1 b, since b lacks half of the impulses P0 of constraints and of
resting contacts (`Impact._stages`). With the velocity M^-1 b, bodies still move into these contacts. The
kinetic energy T(v0) does not contain the energy of that motion and is therefore the bound of T(v+).
docs/maths/contact_gradients.md, "Restitution".
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.sparse_lu import Saddle, SparseLU, scalars
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.contact.compiled_contact import CoreLayout, TapeCore
from vioc.dynamics.contact.cones import Variables
from vioc.dynamics.contact.interior import End, EndProblem, InteriorPoint
from vioc.dynamics.contact.tape import Tape, in_units
from vioc.dynamics.integrators.contact.contact_step import condensed
from vioc.dynamics.integrators.contact.touching import NOWHERE

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI

# Smoothings over the mass, m^2/s^2, of impacts without and with friction. The next one is tried for the
# impacts that the ones before do not solve.
SHARP, RUBBED = (1e-14, 1e-12), (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5)
AWAY = 1e3  # m/s or rad/s, added to the gap velocity of open contacts
STAGES = 3
STOP, SOLVED = 1e-11, 1e-9  # scaled residuals: end of the iterations, largest accepted one


class Struck(NamedTuple):
    """Momenta after N impacts, impulses in these impacts, and errors of the solver.

    Attributes
    ----------
    momenta : (N, nd)
    multipliers : (N, nm)
    solution : tuple
        Arguments of `Impact.derivatives`.
    errors : (N,)
        Scaled residuals.
    """

    momenta: np.ndarray
    multipliers: np.ndarray
    solution: tuple
    errors: np.ndarray

    @property
    def solved(self) -> np.ndarray:
        return self.errors <= SOLVED


class ImpactPieces:
    """CasADi functions that evaluate the equations of one stage of an impact.
    An impact is computed in three stages: the motion just before the impact, the compression and the
    restitution. Sparse matrices are passed from one function to another as columns of their nonzero entries.

    The unknowns are velocities V, impulses lambda of the constraints and contact variables y. Given are the
    mass matrix M, the Jacobians J of contacts and Dh of constraints, the friction coefficients mu, the
    momenta b, and for each contact an offset of its gap velocity and a preload, a given normal impulse.
    `held` computes the matrices, which do not depend on V. `leave` computes the residual b - M V plus the
    preloads, and the velocities of constraints and contacts. `fresh` computes the initial y. `rest` adds the
    impulses of lambda and y to this residual, with the result `left`, and returns the other residuals of the
    contact laws.

    Attributes
    ----------
    held : (q, parameters) -> M, J, Dh, mu
    leave : (V, M, J, Dh, b, offset, preload) -> balance, Dh V, gaps, slips
    fresh : (gaps, slips, mu, preload, speed, goal) -> y
    rest : (balance, J, Dh, mu, preload, lambda, y, gaps, slips, goal) -> left, mismatch, products, impulses
    newton : (M, J, Dh, mu, preload, Dh V, left, y, gaps, slips, goal) -> matrix, right-hand side
    solve : the same -> dV, dlambda, dy
    expand : the same and dV -> dy
    """

    def __init__(self, f: ContactVI):
        touches, nd, count, nm = f.touches.all, f.nd, len(f.touches.all), len(f.system.constraints)
        goal, speed, dV, residual = (
            ca.SX.sym(n, k) for n, k in (("goal", 2), ("speed", 1), ("dV", nd), ("left", nd))
        )
        preload = ca.SX.sym("preload", count)
        cones = [t.cone.preloaded(preload[i]) for i, t in enumerate(touches)]
        self.variables = Variables(cones)
        offsets = self.variables.parts.tolist()
        V, lam, y = ca.SX.sym("V", nd), ca.SX.sym("lambda", nm), ca.SX.sym("y", offsets[-1])
        q, theta, b = ca.SX.sym("q", f.nq), f.symbols.parameters, ca.SX.sym("b", nd)
        mass, slopes, Dh_q = mechanics(f, q, theta)
        matrices = mass, ca.vertcat(*slopes), Dh_q
        entries = [ca.vertcat(ca.SX(0, 1), *ca.SX(m).nonzeros()) for m in matrices]
        numbers = [ca.SX.sym("entries", e.numel()) for e in entries]
        M, whole, Dh = (ca.SX(ca.SX(m).sparsity(), g) for m, g in zip(matrices, numbers, strict=True))
        J = f.touches.rows(whole)
        mu, offset = ca.SX.sym("mu", count), ca.SX.sym("offset", count)
        gaps, h = ca.SX.sym("gaps", count), ca.SX.sym("h", nm)
        sizes = [j.shape[0] - 1 for j in J]
        slips = ca.SX.sym("slips", sum(sizes))
        parts = ca.vertsplit(slips, np.cumsum([0, *sizes]).tolist())
        speeds = [ca.vertcat(gaps[i], part(s, 0)) for i, s in enumerate(parts)]
        each = list(zip(cones, ca.vertsplit(y, offsets), speeds, J, ca.vertsplit(mu), strict=True))

        def function(name: str, args: list, *outputs: Any) -> ca.Function:
            return ca.Function(name, args, [ca.densify(ca.SX(o)) for o in outputs])

        stack = ca.vertcat
        self.held = function("held", [q, theta], *entries, f.touches.friction(theta))
        loaded = sum((j[0, :].T * preload[i] for i, j in enumerate(J)), b - M @ V)
        leave = (
            loaded,
            Dh @ V,
            stack(*(j[0, :] @ V for j in J)) + offset,
            stack(ca.SX(0, 1), *(j[1:, :] @ V for j in J)),
        )
        self.leave = function("leave", [V, *numbers, b, offset, preload], *leave)
        starts = (cone.begin(w, speed, goal[0], m) for cone, _, w, _, m in each)
        self.fresh = function("fresh", [gaps, slips, mu, preload, speed, goal], stack(*starts))
        push = sum((j.T @ cone.impulse(z) for cone, z, _, j, _ in each), -Dh.T @ lam)
        columns = [
            (cone.mismatch(z, w, m, goal[1]), cone.products(z), cone.multipliers(z))
            for cone, z, w, _, m in each
        ]
        outputs = [residual + push, *(stack(*column) for column in zip(*columns, strict=True))]
        self.rest = function(
            "rest", [residual, *numbers[1:], mu, preload, lam, y, gaps, slips, goal], *outputs
        )

        touch_terms = [condensed(cone, z, w, j, j[0, :], m, goal) for cone, z, w, j, m in each]
        D, right = (
            sum((c.matrix for c in touch_terms), M),
            sum((c.right for c in touch_terms), residual),
        )
        args = [*numbers, mu, preload, h, residual, y, gaps, slips, goal]
        self.newton = function(
            "newton", args, ca.blockcat([[D, Dh.T], [Dh, ca.SX(nm, nm)]]), stack(right, -h)
        )
        self.expand = function("expand", [*args, dV], stack(*(c.expand(dV) for c in touch_terms)))
        saddle = Saddle(SparseLU(scalars(D)), scalars(Dh), scalars(-Dh))
        solution = (
            stack(ca.SX(0, 1), *map(ca.SX, c)) for c in saddle.solve(ca.vertsplit(right), ca.vertsplit(-h))
        )
        change, multipliers = solution
        self.solve = function(
            "solve", args, change, multipliers, stack(*(c.expand(change) for c in touch_terms))
        )


class ImpactEnd(End):
    """Equations of one stage of an impact, for the interior-point solver in numpy.
    An impact is computed in three stages: the motion just before the impact, the compression and the
    restitution.
    """

    def __init__(self, p: ImpactPieces):
        self.variables, self.rows = p.variables, p.leave.nnz_out(1)
        V, lam, y = (
            ca.SX.sym(n, k)
            for n, k in (("V", p.leave.nnz_in(0)), ("lambda", self.rows), ("y", p.fresh.nnz_out(0)))
        )
        args = [ca.SX.sym("given", p.leave.nnz_in(i)) for i in range(1, p.leave.n_in())]
        goal, speed, dV, mu = (
            ca.SX.sym(n, k)
            for n, k in (("goal", 2), ("speed", 1), ("dV", V.numel()), ("mu", p.held.nnz_out(3)))
        )
        M, J, Dh, _, _, preload = args
        balance, h, gaps, slips = p.leave(V, *args)
        residual, mismatch, products, impulses = p.rest(
            balance, J, Dh, mu, preload, lam, y, gaps, slips, goal
        )
        system = M, J, Dh, mu, preload, h, residual, y, gaps, slips, goal

        def function(name: str, more: list, outputs: Any) -> Evaluator:
            return Evaluator(ca.Function(name, [V, lam, y, *args, mu, *more], outputs))

        self.newton = function("newton", [goal], p.newton(*system))
        self.expand = function("expand", [goal, dV], [p.expand(*system, dV)])
        self.residuals = function("residuals", [goal], [residual, h, mismatch, products])
        self.begin = function("begin", [speed, goal], [p.fresh(gaps, slips, mu, preload, speed, goal)])
        self.multipliers = function("multipliers", [], [ca.substitute(impulses, goal, ca.SX.zeros(2))])
        self.gaps = function("gaps", [], [gaps])


class ImpactTape(Tape):
    """List of instructions that evaluate the equations of one stage of an impact.
    The compiled solver executes the instructions. An impact is computed in three stages: the motion just
    before the impact, the compression and the restitution. The solver computes the velocities after a stage
    from the configuration and the momenta before the stage.

    The instructions lead from [q, b, offset, preload, guess] to [V, 0]: configuration, momenta, offsets of
    the gap velocities, given normal impulses and the initial guess of V.
    """

    def __init__(self, f: ContactVI, p: ImpactPieces):
        self._f, self._p = f, p
        super().__init__()

    def _write(self) -> None:
        f, p, count = self._f, self._p, len(self._f.touches.all)
        sizes = [f.nq, f.nd, count, count, f.nd]
        lengths = dict(carry=sum(sizes), u=0, t=1, dt=1, theta=len(f.parameters), V=f.nd)
        lengths |= dict(multipliers=p.leave.nnz_out(1), y=p.fresh.nnz_out(0), kappa=2, speed=1, work=0)
        self.places = {name: self.column(length) for name, length in lengths.items()}
        carry, theta, V, lam, y, kappa, speed = (
            self.places[n] for n in ("carry", "theta", "V", "multipliers", "y", "kappa", "speed")
        )
        q, b, offset, preload, guess = self.split(carry, sizes)
        put = self.places.__setitem__
        put("guess", guess)
        put("extent", self.call(in_units(f.nd, f.lagrangian.natural_sizes[: f.nd]), [guess])[0])
        M, J, Dh, mu = self.call(p.held, [q, theta])
        self.begin("leave")
        balance, h, gaps, slips = self.call(p.leave, [V, M, J, Dh, b, offset, preload])
        put("values", h)
        put("gaps", gaps)
        self.begin("begin")
        put("fresh", self.call(p.fresh, [gaps, slips, mu, preload, speed, kappa])[0])
        self.begin("rest")
        blocks = self.call(p.rest, [balance, J, Dh, mu, preload, lam, y, gaps, slips, kappa])
        for name, block in zip(("left", "mismatch", "products", "impulses"), blocks, strict=True):
            put(name, block)
        self.begin("solve")
        system = [M, J, Dh, mu, preload, h, blocks[0], y, gaps, slips, kappa]
        for name, block in zip(("dV", "found", "dy"), self.call(p.solve, system), strict=True):
            put(name, block)
        self.begin("after")
        put("after", self.stack([V, self.constant(np.zeros(f.nq + f.nd + 2 * count))]))


def mechanics(f: ContactVI, q: Any, theta: Any) -> tuple[Any, list[Any], Any]:
    """Return the mass matrix, and the Jacobians of contacts and constraints.
    They are expressions of the configuration q and the parameters theta. There is one Jacobian of gap and
    slip for each contact. All Jacobians have one column for each dynamic variable.
    """
    lag, nd = f.lagrangian, f.nd
    g = lag.graph
    M = ca.Function("M", [g.q_vector, g.parameters], [lag.M])(q, theta)[:nd, :nd]
    J = [row[:, :nd] for row in f.touches.rows(f.touches.held(q, theta, NOWHERE))]
    return M, J, f.constraint(q, theta)[1][:, :nd]


class Impact:
    """Solver of impacts of a map whose contacts have restitution.

    Parameters
    ----------
    f : ContactVI
    restitution : SX (n,)
        Coefficients of restitution of all contacts, as expressions of the map's parameters.
    """

    def __init__(self, f: ContactVI, restitution: ca.SX):
        self._f, self._restitution = f, restitution
        rubs = any(t.cone.friction for t in f.touches.all)
        self._levels = [level * f.mass for level in (RUBBED if rubs else SHARP)]

    @cached_property
    def _pieces(self) -> ImpactPieces:
        return ImpactPieces(self._f)

    @cached_property
    def _end(self) -> tuple[ImpactEnd, Evaluator]:
        """Equations of an impact for the interior-point solver, and an evaluator.
        The evaluator computes the mass matrix and the Jacobians of contacts and constraints, which are
        arguments of the equations.
        """
        return ImpactEnd(self._pieces), Evaluator(self._pieces.held)

    @cached_property
    def _core(self) -> TapeCore:
        f, nd = self._f, self._f.nd
        size = f.nq + 2 * nd + 2 * len(f.touches.all)
        layout = CoreLayout(
            nx=size,
            nv=nd,
            nu=0,
            rows=self._pieces.leave.nnz_out(1),
            scales=f.lagrangian.mass_scale,
            natural=f.touches.natural(self._pieces.leave.nnz_out(1)),
            mass=f.mass,
            stop=STOP,
            wrap=np.zeros(size),
            lasting=False,
        )
        tapes = [ImpactTape(f, self._pieces)]
        return TapeCore(tapes, self._pieces.variables, layout, f"impacts of {f.system.name}")

    @cached_property
    def _numbers(self) -> Evaluator:
        """Evaluator of the mass matrix, the gap gradients and the coefficients of restitution."""
        f = self._f
        q, theta = ca.SX.sym("q", f.nq), f.symbols.parameters
        M, J, _ = mechanics(f, q, theta)
        N = ca.vertcat(*(j[0, :] for j in J))
        outputs = [ca.densify(ca.SX(o)) for o in (M, N, self._restitution)]
        return Evaluator(ca.Function("numbers", [q, theta], outputs))

    def struck(self, q, b, others, closed, bouncing, tight, theta) -> Struck:
        """Return momenta and impulses of N impacts.
        The configurations are q (N, nq), the momenta before the impacts b (N, nd). Each mask (N, n) selects
        contacts: `closed` selects all closed contacts, `others` selects the closed contacts that do not take
        part in the impact, `bouncing` selects the contacts with restitution in this impact, and `tight`
        selects contacts that keep each other closed, such as the two sides of a slot.
        """
        args = q, b, others, closed, bouncing, tight
        z, errors = self._stages(self._levels[0], *args, theta=theta)
        kappa = np.full(len(q), self._levels[0])
        for level in self._levels[1:]:
            rows = np.flatnonzero(~(errors <= SOLVED))
            if len(rows):
                some = (a[rows] for a in args)
                z[rows], errors[rows] = self._stages(level, *some, theta=theta)
                kappa[rows] = level
        solution = *args, kappa[:, None], theta, z
        momenta, multipliers = (a[..., 0] for a in self._results(*solution))
        return Struck(momenta, multipliers, solution, errors)

    def _stages(
        self, kappa: float, q, b, others, closed, bouncing, tight, *, theta
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve the three stages of N impacts.
        The stages are the motion before the impact, compression and restitution. The results are the unknowns
        and the largest solver error of each impact. The argument kappa is the barrier parameter, q has the
        configurations, b the momenta before the impacts, and theta the parameters. The masks select closed
        contacts: those without part in the impact (`others`), all (`closed`), those with restitution in this
        impact (`bouncing`), and those that keep each other closed (`tight`).

        Each stage is an inelastic impact at the configuration q. For each contact, it has an offset, which is
        added to the gap rate, and a preload, which is a given normal impulse. The stages compute

        1. v0, the velocity before the impact, from the momentum b. Constraints and `others` act. This stage
           is necessary because b lacks half of their impulses in a step. If a body is at rest, b contains
           half of the weight's impulse in a step, and the velocity M^-1 b points into the ground.
        2. vc, the velocity after compression, from M v0. All closed contacts act.
        3. ve, the velocity after restitution. By Newton's law it begins with M v0, with the offset
           e min(N v0, 0). By Poisson's law it begins with M vc, with a preload of e times the normal impulses
           of compression. N has the gap gradients, and e the coefficients of restitution.

        In every stage, `AWAY` is added to the offsets of contacts that do not act. A play, the square root of
        the smoothing, is added to the offsets of tight contacts.
        """
        M, N, e = self._numbers(q, theta)
        e, none, nd = e[..., 0] * bouncing, np.zeros_like(bouncing), self._f.nd

        def times(A: np.ndarray, v: np.ndarray) -> np.ndarray:
            return (A @ v[..., None])[..., 0]

        stages: list[np.ndarray] = []
        errors = np.zeros(len(q))

        def solve(b: np.ndarray, offset: np.ndarray, preload: np.ndarray, guess: np.ndarray) -> np.ndarray:
            unknowns, error = self._solved(kappa, q, b, offset, preload, guess, theta)
            stages.append(unknowns)
            np.maximum(errors, error, out=errors)  # keeps NaN
            return unknowns[:, :nd]

        play = tight * np.sqrt(kappa / self._f.mass)
        first = solve(b, AWAY * (1 - others) + play, none, np.linalg.solve(M, b[..., None])[..., 0])
        Mv, closed_away = times(M, first), AWAY * (1 - closed) + play
        second = solve(Mv, closed_away, none, first)
        if self._f.impacts == "newton":
            solve(Mv, closed_away + e * np.minimum(times(N, first), 0.0), none, first)
        else:
            pressed = stages[1][:, nd + self._pieces.leave.nnz_out(1) + self._places]
            solve(times(M, second), closed_away, e * pressed, second)
        return np.hstack(stages), errors

    def _solved(self, kappa: float, q, b, offset, preload, guess, theta) -> tuple[np.ndarray, np.ndarray]:
        """Solve one stage of each of N impacts; return the unknowns and solver errors.
        The stage starts at configurations q with momenta b. For each contact, `offset` is added to the gap
        velocity, and `preload` is a prescribed normal impulse. The first guess of the velocities is `guess`,
        the barrier parameter of the contacts is kappa.
        """
        f, n = self._f, len(q)
        if f.backend.compiles(lambda: self._core):
            carry = np.hstack([q, b, offset, preload, guess])
            args = theta, carry, np.empty((n, 0)), np.zeros(n), np.ones(n), SOLVED
            states, multipliers, _, errors, _ = self._core.rollout(*args, floor=kappa)
            return np.hstack([states[:, : f.nd], multipliers]), errors[:n]
        end, matrices = self._end
        scales, natural = f.lagrangian.mass_scale, f.touches.natural(self._pieces.leave.nnz_out(1))
        solver = InteriorPoint(f.ends, scales, natural, f.mass, kappa, STOP, polish=True)
        M, J, Dh, mu = (a[..., 0] for a in matrices(q, theta))
        rows = []
        with np.errstate(all="ignore"):
            for i in range(n):
                data = M[i], J[i], Dh[i], b[i], offset[i], preload[i], mu[i]
                problem = EndProblem(end, data, guess[i], 1.0, natural.extent(guess[i]))
                rows.append(solver.solve_end(problem, lasting=False))
        return np.stack([s.unknowns for s in rows]), np.array([s.error for s in rows])

    def derivatives(self, solution: tuple) -> np.ndarray:
        """Return the derivatives of the momenta after N impacts and of the impulses.
        They are derivatives with respect to configurations, momenta before the impacts, and parameters. The
        method `struck`, which computes the impacts, returns the argument as the field `solution` of its
        result.
        """
        G_y, G_z, X_y, X_z = self._slopes(*solution)
        scale = 1 / np.abs(G_z).max(axis=2, keepdims=True)
        return X_y - X_z @ np.linalg.solve(scale * G_z, scale * G_y)

    @cached_property
    def _places(self) -> np.ndarray:
        """Indices of all normal impulses in the vector of contact multipliers."""
        sizes = [len(t.multipliers) for t in self._f.touches.all]
        return np.cumsum([0, *sizes[:-1]])

    @cached_property
    def _symbols(self) -> tuple[list[Any], Any, Any]:
        """CasADi symbols of an impact's arguments, with its residual and its results as expressions."""
        f, kappa, law = self._f, ca.SX.sym("kappa"), self._f.impacts
        touches, nd, nm, n = f.touches.all, f.nd, len(f.system.constraints), len(f.touches.all)
        q, b, theta = ca.SX.sym("q", f.nq), ca.SX.sym("b", nd), f.symbols.parameters
        masks = others, closed, bouncing, tight = [
            ca.SX.sym(name, n) for name in ("others", "closed", "bouncing", "tight")
        ]
        size = nd + len(f.multiplier_names)
        z = ca.SX.sym("z", STAGES * size)
        M, J, Dh = mechanics(f, q, theta)
        mu, e = ca.vertsplit(f.touches.friction(theta)), self._restitution * bouncing
        Vs, lams, ps = [], [], []
        for block in ca.vertsplit(z, size):
            Vs.append(part(block, 0, nd))
            lams.append(part(block, nd, nd + nm))
            ps.append(part(block, nd + nm))
        play = tight * ca.sqrt(kappa / f.mass)
        none, none_n = AWAY * (1 - closed) + play, ca.SX.zeros(n)
        N = ca.vertcat(*(j[0, :] for j in J))
        gammas = ps[1][self._places.tolist()]
        last = (
            (M @ Vs[0], none + e * ca.fmin(N @ Vs[0], 0), none_n)
            if law == "newton"
            else (M @ Vs[1], none, e * gammas)
        )
        stages = [(b, AWAY * (1 - others) + play, none_n), (M @ Vs[0], none, none_n), last]
        G, ends = [], []
        for V, lam, p, (before, offset, preload) in zip(Vs, lams, ps, stages, strict=True):
            residual, laws, place, total = before - M @ V - Dh.T @ lam, [], 0, []
            for i, (touch, j, m) in enumerate(zip(touches, J, mu, strict=True)):
                block = part(p, place, place + len(touch.multipliers))
                w = ca.vertcat(j[0, :] @ V + offset[i], j[1:, :] @ V)
                place += len(touch.multipliers)
                loaded = ca.vertcat(block[0] + preload[i], part(block, 1))
                residual = residual + j.T @ loaded[: j.shape[0]]
                law_rows = touch.cone.law(loaded, w, kappa, m)
                laws.append(ca.vertcat(w[0] * block[0] - kappa, part(law_rows, 1)))
                total.append(loaded)
            G += [residual, Dh @ V, *laws]
            ends.append(ca.vertcat(lam, *total))
        d = Vs[2] - Vs[1]
        slack = 0.5 * (ca.dot(Vs[0], M @ Vs[0]) - ca.dot(Vs[1], M @ Vs[1]))
        half, a = 0.5 * ca.dot(d, M @ d), ca.dot(Vs[1], M @ d)
        root = 2 * slack / (a + ca.sqrt(ca.fmax(a * a + 4 * half * slack, 0) + 1e-300))
        # Where no contact closes, the smoothing may add energy in compression. Then slack is negative and the
        # root may be outside of [0, 1]; r keeps T(v+) <= T(v0)
        s = ca.if_else(half + a <= slack * (1 + 1e-12), 1.0, ca.fmin(ca.fmax(root, 0), 1))
        change = ends[2] - ends[1] if law == "newton" else ends[2]
        slips = np.array([name.endswith(".slip") for name in f.multiplier_names])
        change = ends[1] + s * change
        # if no contact closes, all impulses come from the smoothing; r prevents that they add energy
        way = Vs[1] + s * d - Vs[0]
        gained, square = ca.dot(Vs[0], M @ way), ca.dot(way, M @ way)
        r = ca.if_else(square + 2 * gained <= 0, 1.0, ca.fmax(-2 * gained, 0) / (square + 1e-300))
        impulses = [ends[2][i] if slip else ends[0][i] + r * change[i] for i, slip in enumerate(slips)]
        X = ca.vertcat(M @ (Vs[0] + r * way), *impulses)
        return [q, b, *masks, kappa, theta, z], ca.vertcat(*G), X

    @cached_property
    def _results(self) -> Evaluator:
        args, _, X = self._symbols
        return Evaluator(ca.Function("struck", args, [X[: self._f.nd], X[self._f.nd :]]))

    @cached_property
    def _slopes(self) -> Evaluator:
        args, G, X = self._symbols
        y = ca.vertcat(args[0], args[1], args[-2])
        outputs = [ca.densify(ca.jacobian(r, v)) for r in (G, X) for v in (y, args[-1])]
        return Evaluator(ca.Function("slopes", args, outputs))
