"""Steps with restitution, which are divided at the exact times of their impacts.

A step consists of flights (motions without impact) and impacts. The equations of a flight contain a bouncing
contact only while the contact is closed. Derivatives differentiate the flights, the impacts and the times of
the impacts (saltation matrix). docs/maths/contact_gradients.md, "Restitution".
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.compile.programs import Program
from vioc.dynamics.contact.rollouts import StepByStep
from vioc.dynamics.contact.touch import refuse_polytopes
from vioc.dynamics.description.component import Inequality
from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.contact.impacts import Impact, Struck
from vioc.dynamics.integrators.contact.resting import CLOSED, ContactSteps
from vioc.dynamics.integrators.contact.touching import NOWHERE
from vioc.dynamics.integrators.midpoint import MidpointVI
from vioc.errors import ModelError, StepError
from vioc.maps.derivatives import Linearization, MapDerivatives, SecondOrder, Steps

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI

MOST = 1000  # largest number of impacts in a step
FIRST, MOST_AHEAD = 2, 256  # number of steps tried at once after an impact, and the largest number
LOOKS = np.linspace(0.0, 1.0, 17)[1:]  # fractions of a flight at which a cubic interpolant tests the gaps
SHARE = 0.6  # closing speed of a contact at rest, as a fraction of the speed that forces add in a step


@dataclass(frozen=True)
class Flight:
    """Motion without impact within a step; it ends where a contact closes or at the step's end.
    The field `touch` is the index of the contact that closes, or None.
    """

    map: Any
    steps: Steps
    kept: np.ndarray
    touch: int | None


Record = Flight | Struck


def bounces(system: System) -> list[int]:
    """Return the indices of contacts and joint limits with restitution."""
    return [i for i, item in enumerate(system.inequalities) if _bounces(item)]


def _bounces(item: Inequality) -> bool:
    return isinstance(item.restitution, Parameter) or bool(item.restitution)


class Bounces(ContactSteps):
    """Solver of steps whose contacts have restitution, which also computes their derivatives.

    Parameters
    ----------
    f : ContactVI

    Raises
    ------
    ModelError
        If the system has kinematic variables, dry friction or polytopes, if alpha is not 0.5, or if forcing
        is not symmetric.
    """

    smooth = False

    def __init__(self, f: ContactVI):
        if f.nk or f.alpha != 0.5 or f.forcing != "symmetric":
            what = "kinematic variables" if f.nk else "alpha = 0.5 and symmetric forcing only"
            raise ModelError(
                f"{f.system.name}: restitution "
                + ("does not go with " if f.nk else "goes with ")
                + f"{what}; set restitution to 0, or use motors in their place"
            )
        rubs = [t.name for t in f.touches.all if not t.cone.gap]
        if rubs:
            raise ModelError(
                f"{f.system.name}: restitution goes without dry friction ({rubs[0]}); set restitution to 0"
            )
        refuse_polytopes(f.system, "restitution goes without")
        g = f.lagrangian.graph
        super().__init__(f)
        self._owners = np.array([i for i, c in enumerate(f.system.inequalities) for _ in c.meetings(g)])
        bouncing = bounces(f.system)
        self.bouncing = np.isin(self._owners, bouncing)
        numbers = [g.number(c.restitution) for c in f.system.inequalities]
        coefficients = ca.vertcat(*(ca.SX(numbers[i]) for i in self._owners))
        restitution = ca.Function("e", [g.parameters], [coefficients])
        self.impact = Impact(f, restitution(f.symbols.parameters))
        self._maps: dict[Any, Any] = {}

        q, theta = ca.SX.sym("q", f.nq), f.symbols.parameters
        phi, slope = f.touches.gaps(q, theta, NOWHERE)
        outputs = [ca.densify(ca.SX(o)) for o in (phi, slope, ca.jacobian(phi, theta))]
        self._gaps = Evaluator(ca.Function("gaps", [q, theta], outputs))

    # -- flights --------------------------------------------------------------------------------------

    def without(self, f: ContactVI, resting: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return the one-step map without the contacts that may bounce in a step.
        A contact with restitution may bounce unless it is at rest; the mask `resting` (n,) selects the
        contacts at rest. The second result has, for each multiplier of the returned map, its index among the
        multipliers of f, the map with all contacts.
        """
        included = ~self.bouncing | np.isin(self._owners, self._owners[resting])
        owners = tuple(sorted(set(self._owners[included].tolist())))
        key = owners, f.smoothing
        if key not in self._maps:
            s = f.system
            names = [s.inequality_names[i] for i in owners]
            items = [_still(s.inequalities[i], name) for i, name in zip(owners, names, strict=True)]
            parts = (*s.frames, *s.potentials, *s.kinetic, *s.forces, *s.constraints, *items)
            options: dict[str, Any] = dict(tolerance=f.tolerance, wrap=f.wrap, backend=f.backend.name)
            system = System(*parts, name=s.name)
            plain = type(f)(system, f.dt, smoothing=f.smoothing, **options) if items else None
            self._maps[key] = plain or MidpointVI(system, f.dt, **options)
        reduced = self._maps[key]
        values = {name: f.parameters[name] for name in reduced.parameters}
        own_names = set(reduced.multiplier_names)
        indices = np.array([i for i, n in enumerate(f.multiplier_names) if n in own_names], int)
        return (reduced.trying(**values) if values else reduced), indices

    def step(self, f: ContactVI, x: np.ndarray, u: np.ndarray, t: float, h: float) -> list[Record]:
        """Return the impacts of one step and the motions between these impacts, in order of time.
        The step has length h and starts at time t in state x.
        """
        records: list[Record] = []
        resting, remaining = self._held(f, x[None], u[None], t, h)[0], h
        for _ in range(MOST):
            hits = self._closing(f, x, resting)
            if hits.any():
                impact = self._hit(f, x, hits)
                records.append(impact)
                x = np.concatenate([x[: f.nq], impact.momenta[0]])
                gap, speed = self._now(f, x)
                resting = self.bouncing & (gap <= CLOSED) & (np.abs(speed) <= f.slow)
                continue
            try:
                flown, touch = self._flight(f, x, u, t, remaining, resting)
            except StepError as error:
                if error.length is not None:
                    error.length += h - remaining  # length from the start of the step, not of the flight
                raise
            records.append(flown)
            x = flown.steps.x1[0]
            if touch is None:
                return records
            tau = float(flown.steps.h[0])
            t, remaining = t + tau, remaining - tau
            if remaining <= 1e-15 * h:
                return records
            if -self._now(f, x)[1][touch] <= f.slow:
                resting = resting | (np.arange(len(resting)) == touch)
        raise StepError(
            f"a step of {h:g} s has more than {MOST} impacts: use a smaller dt, or more than slow={f.slow:g}",
            0,
            np.inf,
            "no convergence",
        )

    def _now(self, f: ContactVI, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gaps of all contacts in states x, and the rates of the gaps.

        The rates are computed from the velocities M^-1 p or, with constraints, from the part of these
        velocities that is tangent to the constraints. The momentum of a body at rest on a contact lacks half
        of the contact's impulse in a step. Its gap therefore seems to close; the method `_held` allows for
        that.
        """
        M, N = self.normals(np.ascontiguousarray(x[..., : f.nq]), f.theta)
        phi = self._gaps(np.ascontiguousarray(x[..., : f.nq]), f.theta)[0][..., 0]
        if len(f.system.constraints):
            v = f.velocities(x)[..., None]
        else:
            v = np.linalg.solve(M, x[..., f.nq :, None])
        return phi, (N @ v)[..., 0]

    def closing(self, f: ContactVI, x: np.ndarray) -> np.ndarray:
        """Return the rates of the gaps of all contacts in states x, in m/s or rad/s."""
        return self._now(f, x)[1]

    def _closing(self, f: ContactVI, x: np.ndarray, resting: np.ndarray) -> np.ndarray:
        gap, speed = self._now(f, x)
        return self.bouncing & ~resting & (gap <= CLOSED) & (speed < -f.slow)

    def _hit(self, f: ContactVI, x: np.ndarray, hits: np.ndarray) -> Struck:
        """Return the momenta after an impact in state x, and the impulses in this impact.
        The mask `hits` (n,) selects the contacts whose bodies collide.
        """
        closed = self._now(f, x)[0] <= CLOSED
        opens = self.openable(f, x, closed)  # contacts that keep each other closed do not bounce
        masks = closed & ~hits, closed, hits & opens, closed & ~opens
        others, shut, bouncing, tight = (m.astype(float)[None] for m in masks)
        before = x[None, : f.nq], x[None, f.nq :]
        impact = self.impact.struck(*before, others, shut, bouncing, tight, f.theta)
        if impact.solved.all():
            return impact
        names, error = (
            ", ".join(t.name for t, on in zip(f.touches.all, hits, strict=True) if on),
            impact.errors[0],
        )
        raise StepError(
            f"an impact of {names} was not solved: residual {error:.2g}", 0, error, "no convergence"
        )

    def _held(self, f: ContactVI, X: np.ndarray, U: np.ndarray, t: float, h: float) -> np.ndarray:
        """Return a mask of the contacts with restitution at rest when each step starts.
        The steps start in the states X, have the inputs U and the length h, and the first begins at time t.

        In a body at rest on a contact, the contact impulse cancels the impulse of the other forces. The
        momentum contains half of the impulse of these forces in a step, but lacks half of the contact's. The
        contact then seems to close at half of the speed that the forces add in the step. It counts as at rest
        if its closing speed is at most the fraction `SHARE` of that added speed, plus `slow`.
        """
        gap, speed = self._now(f, X)
        resting = self.bouncing & (gap <= CLOSED) & (speed <= f.slow)
        if resting.any():
            free, _ = self.without(f, np.zeros(resting.shape[1], bool))
            x1 = free.steps_at(X, U, dt=h, t=t + h * np.arange(len(X))).x1
            gained = np.maximum(speed - self._now(f, x1)[1], 0.0)
            resting &= -speed <= f.slow + SHARE * gained
        return resting

    def flights(
        self, f: ContactVI, x: np.ndarray, U: np.ndarray, t: float, h: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return states and multipliers of steps before the first possible impact.
        The steps start in state x at time t, have the length h and the inputs U, one row for each step. The
        results end before the first step in which there may be an impact.
        """
        resting = self._held(f, x[None], U[:1], t, h)[0]
        free, indices = self.without(f, resting)
        nothing = np.empty((0, f.nx)), np.empty((0, len(f.multiplier_names)))
        if (self.bouncing & self._closing(f, x, resting)).any():
            return nothing
        try:
            with warnings.catch_warnings():  # the trial may penetrate the ground
                warnings.simplefilter("ignore")
                run = free.run(x, U, 0, np.full(len(U), h), t=t + h * np.arange(len(U)))
        except StepError as error:
            if error.trajectory is None or not len(error.trajectory.u):
                return nothing
            run = error.trajectory
        X, candidates = run.x, self.bouncing & ~resting
        gap, speed = self._now(f, X)
        lowest = np.minimum(_cubic(gap[:-1], speed[:-1], gap[1:], speed[1:], h).min(axis=0), gap[1:])
        clear = (lowest[:, candidates] > 0).all(axis=1)
        count = len(clear) if clear.all() else int(np.argmin(clear))
        closed = ((gap <= CLOSED) & self.bouncing)[:count]
        if closed.any():
            rests = (self._held(f, X[:count], run.u[:count], t, h) == resting).all(axis=1)
            rests &= ~(closed & ~resting & (speed[:count] < -f.slow)).any(axis=1)
            count = count if rests.all() else int(np.argmin(rests))
        multipliers = np.zeros((count, len(f.multiplier_names)))
        multipliers[:, indices] = run.multipliers[:count]
        return X[1 : count + 1], multipliers

    def _flight(self, f, x, u, t: float, remaining: float, resting: np.ndarray) -> tuple[Flight, int | None]:
        from scipy.optimize import brentq  # late: a map without restitution needs no scipy

        free, indices = self.without(f, resting)
        candidates = np.flatnonzero(self.bouncing & ~resting)

        def fly(tau: float) -> Steps:
            return free.steps_at(x[None], u[None], dt=tau, t=np.full(1, t))

        def gap(i: int, tau: float) -> float:
            after = fly(tau).x1[0] if tau > 0 else x
            return float(self._gaps(after[: f.nq], f.theta)[0][i, 0])

        end, touch = remaining, None
        steps = fly(end)
        for _ in range(len(candidates) + 1):
            before, after = self._now(f, x), self._now(f, steps.x1[0])
            cubic = _cubic(*before, *after, end)
            closings = []
            for i in map(int, candidates):
                if i == touch:
                    continue
                closed = np.flatnonzero(cubic[:, i] < 0)
                high = end * LOOKS[closed[0]] if len(closed) else end
                if gap(i, high) >= 0:
                    high = end
                if (after[0][i] if high == end else -1.0) < -1e-13:
                    low = self._time_when_open(i, gap, high, before[0][i])
                    closings.append((brentq(lambda tau, i=i: gap(i, tau), low, high, xtol=1e-16), i))
            if not closings:
                break
            end, touch = min(closings)
            steps = fly(end)
        return Flight(free, steps, indices, touch), touch

    @staticmethod
    def _time_when_open(i: int, gap: Any, high: float, start: float) -> float:
        """Return a time from 0 to `high` at which the gap of contact i is positive.
        The function `gap` computes the gap from the contact and the time; `start` is the gap at time 0. If
        the contact is closed at time 0, as after a bounce, the method searches for a later time.
        """
        if start > CLOSED:
            return 0.0
        low = high
        for _ in range(60):
            low /= 2
            if gap(i, low) > 0:
                return low
        return 0.0

    # -- methods of ContactSteps ------------------------------------------------------------------------

    def program(self, f: ContactVI) -> Program:
        return BounceProgram(f, self)

    def rescued(
        self, f: ContactVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float
    ) -> tuple[np.ndarray, np.ndarray]:
        f.driver.check_starts(x[None], k)
        try:
            records = self.step(f, x, u, t, dt)
        except StepError as error:
            text = f"step {k} (t = {t:.6g} s, dt = {dt:g} s) with impacts: {error}"
            raise error.saying(text, k) from None
        total = np.zeros(len(f.multiplier_names))
        for record in records:
            if isinstance(record, Flight):
                x = record.steps.x1[0]
                indices, multipliers = record.kept, record.steps.multipliers[0]
                total = np.where(f.additive, total, 0.0)  # slips are speeds: keep those of the last flight
                total[indices] += multipliers
            else:
                x = np.concatenate([x[: f.nq], record.momenta[0]])
                total = total + np.where(f.additive, record.multipliers[0], 0.0)
        return x, total

    def residual(self, f: ContactVI) -> None:
        return None

    def derivatives(self, f: ContactVI) -> MapDerivatives:
        def second(steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
            raise NotImplementedError(
                f"{f.system.name}: steps with restitution have first derivatives only; use methods of "
                'first order, such as optimize(direction="gauss-newton"), or restitution=0'
            )

        def timed() -> MapDerivatives:
            return MapDerivatives(f, lambda steps: self._first(f, steps, 0), second, timed)

        return MapDerivatives(f, lambda steps: self._first(f, steps, 2), second, timed)

    def _first(self, f: ContactVI, steps: Steps, without: int) -> Linearization:
        """Return the first derivatives of steps as a `Linearization`.
        They are derivatives with respect to state, input, parameters, step length and time. If `without` is
        2, the last two columns of the Jacobians, those for step length and time, are omitted; if it is 0, no
        column is omitted.
        """
        rows = [
            self._derivatives(f, self.step(f, x, u, float(t), float(h)))
            for x, u, t, h in zip(steps.x0, steps.u, steps.t, steps.h, strict=True)
        ]
        states, impulses = (np.stack(a) for a in zip(*rows, strict=True))
        cut = states.shape[2] - without
        return Linearization.of(states[..., :cut], impulses[..., :cut], f.nu)

    def _derivatives(self, f: ContactVI, records: list[Record]) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of the end state and the multipliers of one step.
        The argument `records` contains the impacts of the step and the motions between them; their
        derivatives are combined by the chain rule. The derivatives are those with respect to state, input,
        parameters, step length and time.
        """
        nx, nu, names = f.nx, f.nu, list(f.parameters)
        ns = nx + nu + len(names) + 2
        whole = np.eye(ns)
        D, U, d_theta = whole[:nx], whole[nx : nx + nu], whole[nx + nu : -2]
        d_remaining, d_start = whole[-2], whole[-1]
        adds = f.additive[:, None]
        total = np.zeros((len(adds), ns))
        for record in records:
            if isinstance(record, Struck):
                J = self.impact.derivatives(record.solution)[0] @ np.vstack([D, d_theta])
                D = np.vstack([D[: f.nq], J[: f.nd]])
                total += np.where(adds, J[f.nd :], 0.0)
                continue
            lin = record.map.derivatives.timed.first(record.steps).rows(0)
            indices = [names.index(n) for n in record.map.parameters]
            # first with the length of the flight fixed, then with its dependence on the event time
            fixed = [
                a @ D + b @ U + p[:, :-2] @ d_theta[indices] + np.outer(p[:, -1], d_start)
                for a, b, p in ((lin.A, lin.B, lin.P), (lin.C, lin.D, lin.E))
            ]
            rates = lin.P[:, -2], lin.E[:, -2]
            length = d_remaining
            if record.touch is not None:
                _, slope, other = (a[record.touch] for a in self._gaps(record.steps.x1[0, : f.nq], f.theta))
                closing = slope @ rates[0][: f.nq]
                length = -(slope @ fixed[0][: f.nq] + other @ d_theta) / closing
            D = fixed[0] + np.outer(rates[0], length)
            impulses = np.zeros_like(total)
            impulses[record.kept] = fixed[1] + np.outer(rates[1], length)
            total = np.where(adds, total + impulses, impulses)
            d_remaining, d_start = d_remaining - length, d_start + length
        return D, total


def _cubic(gap, speed, gap1, speed1, h: float) -> np.ndarray:
    """Return the gaps of contacts at several times, by cubic interpolation.
    The times belong to a motion with the duration h. The polynomials interpolate the gaps and their rates at
    the start and at the end of this motion.
    """
    s = LOOKS.reshape(-1, *[1] * gap.ndim)
    start = (1 + 2 * s) * (1 - s) ** 2 * gap + s * (1 - s) ** 2 * h * speed
    return start + s * s * (3 - 2 * s) * gap1 - s * s * (1 - s) * h * speed1


def _still(item: Any, name: str) -> Any:
    """Return a copy of a contact or joint limit, named `name`, without restitution."""
    return replace(item, name=name, restitution=0.0) if _bounces(item) else replace(item, name=name)


class BounceProgram(StepByStep):
    """Object that computes rollouts of a map whose contacts have restitution.
    A rollout ends before the first step in which there may be an impact.
    """

    def __init__(self, f: ContactVI, bounces: Bounces):
        super().__init__(f)
        self._bounces = bounces

    def rollout(self, x, U, tracked, t, h, theta, tolerance):
        f, k, ahead = self._f, 0, FIRST
        rows: list[tuple] = []
        while k < len(U):
            if tracked:
                inputs = self.applied(U[k], x, tracked, k)[None]
            else:
                inputs = U[k : k + (ahead if (h[k : k + ahead] == h[k]).all() else 1)]
            try:
                X, impulses = self._bounces.flights(f, x, inputs, float(t[k]), float(h[k]))
            except StepError:
                break
            rows += [(*row, [0.0], u) for *row, u in zip(X, impulses, inputs, strict=False)]
            if len(X) < len(inputs):
                break  # `Bounces.rescued` solves a step with a possible impact
            k, x, ahead = k + len(X), X[-1], min(2 * ahead, MOST_AHEAD)
        return self.rows(rows), 0.0 if len(rows) == len(U) else np.inf


class Impacts(NamedTuple):
    """Impacts of contacts with restitution within the steps of a trajectory, in order of time.

    Attributes
    ----------
    k : (m,) int
        Index of the step of each impact.
    t : (m,)
        Time of each impact, s.
    x : (m, nx)
        State after each impact.
    """

    k: np.ndarray
    t: np.ndarray
    x: np.ndarray


def impacts_along(f: ContactVI, steps: Steps) -> Impacts:
    """Return the impacts within given steps of a map with restitution.
    Each step is computed again.
    """
    impacts: list[tuple[int, float, np.ndarray]] = []
    for row, (x, u, t, h) in enumerate(zip(steps.x0, steps.u, steps.t, steps.h, strict=True)):
        time = float(t)
        for record in f.contact.step(f, x, u, time, float(h)):
            if isinstance(record, Flight):
                x, time = record.steps.x1[0], float(record.steps.t[0] + record.steps.h[0])
            else:
                x = np.concatenate([x[: f.nq], record.momenta[0]])
                impacts.append((row, time, x))
    k, times, states = zip(*impacts, strict=True) if impacts else ((), (), ())
    return Impacts(np.array(k, int), np.array(times, float), np.reshape(states, (len(impacts), f.nx)))
