"""Equilibria f(x, u) = x of a map, and their stability by linearization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_names, as_positive, as_value, without_noise
from vioc.compile.evaluate import Evaluator
from vioc.control.analysis.modes import Modes, modes
from vioc.control.control_problem import by_equations
from vioc.control.costs.cost import Cost
from vioc.control.linear.about import states_at_rest
from vioc.control.linear.circle import natural_units
from vioc.control.linear.manifold import constraint_expressions
from vioc.control.linear.tangent import error_jacobian
from vioc.control.problem.sizes import Sizes
from vioc.control.problem.status import Status
from vioc.errors import ConstraintError, ModelError, OptimizationError, StepError
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_quantity, meaning, quantity_name
from vioc.runs.given import input_of, point_of

RANK = 1e-10  # relative singular values below this are directions that the equations leave free
REACHES, STARTS = (0.3, 0.7, 1.5, 3.0), 6  # distances from the guess, rad or m, and starts within each
SHOWN = 12  # states, and inputs, of a printed equilibrium
SLOWEST = 10_000  # typical time in steps, without gravity
ROUNDING = 16 * np.finfo(float).eps  # relative rounding errors of a step
EFFORT = 1e-6  # weight of squared inputs (N or N m) relative to squared metres and radians
DAMPING = 1e-6  # first damping over the largest squared singular value; factors 10 up, 100 down

Equations = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Equilibrium:
    """Equilibrium of a map: state and input with f(x, u) = x.
    The function `dlqr` accepts it and returns a linear-quadratic regulator about it.

    Attributes
    ----------
    map : OneStepMap
    x, u : (nx,), (nu,)
    multipliers : (nm,)
        Constraint impulses of the step.
    moved : float
        Largest change of the state by a step, relative to the typical sizes of its components.
    iterations : int
    start : int
        0 if the search from the guess succeeded; else the number of the successful start near the guess.
    """

    map: OneStepMap = field(repr=False)
    x: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray
    moved: float
    iterations: int
    start: int = 0

    @cached_property
    def modes(self) -> Modes:
        """Modes (eigenvalues and shapes) of the linearization at the equilibrium.

        They are on the constraint manifold if there are constraints. ``print(eq.modes)`` shows a table.
        Raises ValueError for a map that depends on time.
        """
        return modes(self.map, (self.x, self.u))

    @property
    def verdict(self) -> str:
        """Stability of the equilibrium as a word, from eigenvalues of its linearization.

        It is asymptotically stable, unstable, or marginal (undecided). It is undecided for maps that depend
        on time.
        """
        if self.map.depends_on_time:
            return "undecided, as the map depends on time"
        return self.modes.stability

    def __getitem__(self, name: str) -> float:
        """Return the value of a named quantity at the equilibrium.
        A quantity that belongs to a step, such as a multiplier, is evaluated in a step from the equilibrium.
        """
        return float(self.map.rollout(self.x, self.u, steps=1, warn=False)[name][0])

    def __repr__(self) -> str:
        f = self.map
        pairs = states_at_rest(f, self.x)
        if f.ndx != f.nx:  # print coordinates, and attitudes without coordinates, rather than poses of bodies
            turns = f.space.quaternions
            turns = turns if 2 * (len(f.mechanism.coordinates) + 3 * len(turns)) == f.ndx else ()
            run = f.rollout(self.x, self.u, steps=1, warn=False)
            names = (*f.mechanism.coordinates, *(n for i in turns for n in f.state_names[i : i + 4]))
            pairs = [(n, float(run[n][0])) for n in names]
        shown = _shown(pairs) + _shown([*zip(_inputs(f), self.u, strict=True)])
        verdict = self.verdict
        if not f.depends_on_time:
            verdict += f", largest eigenvalue {self.modes.spectral_radius:.6g}"
        return f"Equilibrium({', '.join(shown)}; {verdict})"


def _shown(pairs: list[tuple[str, float]]) -> list[str]:
    """Return the texts "name = value" of at most `SHOWN` pairs.
    The last text is the number of omitted pairs, if there are any.
    """
    plain = zip((n for n, _ in pairs), without_noise([v for _, v in pairs]), strict=True)
    more = [f"{len(pairs) - SHOWN} more"] if len(pairs) > SHOWN else []
    return [f"{n} = {v:.6g}" for n, v in [*plain][:SHOWN]] + more


def equilibrium(
    f: OneStepMap,
    hold: Mapping[str, float] | None = None,
    *,
    guess: Any = None,
    fixed: str | Iterable[str] = (),
    free: str | Iterable[str] | None = None,
    tolerance: float = 1e-10,
    max_iterations: int = 300,
    **named: float,
) -> Equilibrium:
    """Find an equilibrium f(x, u) = x near a guess, with some quantities fixed.

    Parameters
    ----------
    f : OneStepMap
    hold : dict of str to float, and **named
        Fixed values of states, inputs and quantities of the state by name:
        ``equilibrium(f, theta=0.0)``, ``equilibrium(f, {"hand:z": 0.4})``. The input of a joint that has
        its name is ``u.NAME``: ``shoulder`` is the joint, ``u.shoulder`` its torque.
    guess : (nx,), (x, u), a report of an equilibrium or dict of str to float, optional
        First iterate; zero where not given (inputs: `OneStepMap.rest_input`). A dict has arguments of
        ``f.state``, and inputs; with constraints it must satisfy them if the map requires so.
    fixed : names
        States, inputs and quantities that keep their value in the guess.
    free : names, optional
        The only states and inputs that may change; by default all that are not fixed. If errors are
        not differences of states (ndx != nx), this concerns only inputs. States and inputs not named keep the
        guess's value exactly: ``free=["u.shoulder", "u.elbow"]`` asks for the torques that hold a pose.
    tolerance : float
        Largest change of the equilibrium by a step, and largest error of constraints and fixed quantities,
        relative to 1 + |x|. Units are typical sizes of length, mass and time. The time is that of a fall by
        the mechanism's length; without gravity it is that of 10,000 steps.
    max_iterations : int
        Largest number of iterations.

    Returns
    -------
    Equilibrium

    Raises
    ------
    ModelError
        Unknown names.
    OptimizationError
        If none is found; reports the change by a step at the result of the search from the guess.

    Notes
    -----
    Ranks are decided in SI units; if this fails (for very small or large mechanisms), in natural units. If
    the search from the guess fails, it is repeated from other guesses at increasing distance, always the same
    ones (`Equilibrium.start`). The equilibrium found may then be far from the guess. If several equilibria
    satisfy the conditions (a cart may stand anywhere), each Gauss-Newton step is the shortest one. For a map
    with contact, the guess need not have contact. An equilibrium is first sought with a large smoothing of
    contact, so that contact forces act over gaps (`_settled`); its coordinates are as near the guess as
    possible.
    """
    tolerance = as_positive(tolerance, "tolerance")
    x, u, entries, targets = _start(f, {**(hold or {}), **named}, guess, fixed, free)
    if f.mechanism.relaxed() is not None:
        x, u = _settled(f, x, u, entries, targets)
    fixed_names = {*entries, *targets}
    goals = _rows(f, [f.quantity(name) - value for name, value in targets.items()], tuple(targets))
    equations, extra = _equations(f, goals)
    constraints, sizes = _rows(f, constraint_expressions(f)), _sizes(f, x, u, targets)
    names = (*f.space.error_names, *_inputs(f))
    change = [i for i in range(f.ndx + f.nu + extra) if i >= len(names) or names[i] not in entries]

    def move(w: np.ndarray, step: np.ndarray) -> np.ndarray:
        return np.concatenate([f.retract(w[: f.nx], step[: f.ndx]), w[f.nx :] + step[f.ndx :]])

    refusal: OptimizationError | None = None
    starts = ((i, s, n) for i, s in enumerate(chain([x], _around(f, x, entries))) for n in (False, True))
    for number, start, natural in starts:
        try:
            w = np.concatenate([start, u, np.zeros(extra)])
            units = _units(f, start, u, extra) if natural else np.ones(f.ndx + f.nu + extra)
            if extra and f.mechanism.relaxed() is not None:  # contact laws are steep: those of the step
                w[-extra:] = f.rollout(start, u, steps=1, warn=False).multipliers[0]
            elif extra:  # multipliers with the least residual: they give h its second derivatives
                r, J = equations(w)
                w[-extra:] = -np.linalg.lstsq(J[:, -extra:], r, rcond=None)[0]
            w, count = _solve(equations, move, w, change, units, max_iterations)
            state, input = w[: f.nx].copy(), w[f.nx : f.nx + f.nu].copy()
            run = f.rollout(state, input, steps=1, warn=False)
        except (StepError, ConstraintError, np.linalg.LinAlgError) as error:
            refusal = refusal or OptimizationError(f"no equilibrium found: {error}; give another guess")
            continue
        drift = np.abs(f.difference(state, run.x[1]))
        violation, misfit = (np.abs(rows(state)[0]) for rows in (constraints, goals))
        close = tolerance * (1 + np.abs(state / sizes.of_states).max())
        moved = float((drift / sizes.states).max(initial=0.0))
        relative = misfit / [sizes.of(name) for name in targets]
        errors = np.array([*_relative(constraints, state, sizes), *relative])
        if (errors <= close).all() and (moved <= close or _rounded(f, state, input, drift, sizes)):
            return Equilibrium(f, state, input, run.multipliers[0], moved, count, number)
        off = float(violation[errors[: len(violation)] > close].max(initial=0.0))
        misfits = {n: y for n, y, e in zip(targets, misfit, relative, strict=True) if not e <= close}
        refusal = refusal or OptimizationError(_refusal(f, drift, off, misfits, fixed_names))
    assert refusal is not None
    raise refusal


def _sizes(f: OneStepMap, x: np.ndarray, u: np.ndarray, targets: Mapping[str, float]) -> Sizes:
    """Return typical sizes of states and inputs.
    The typical time is that of a fall by the mechanism's length or, without gravity, of `SLOWEST` steps.
    """
    sizes = Sizes(f, x[None], u[None], SLOWEST * f.dt, targets)
    length = sizes.of_unit("m")
    if not (sizes.gravity and length):
        return sizes
    return Sizes(
        f, x[None], u[None], float(np.sqrt(length / sizes.gravity)), targets
    )  # may exceed these steps


def _relative(equations: Equations, x: np.ndarray, sizes: Sizes) -> np.ndarray:
    """Return the errors of equations at a state x, in units of their typical sizes.
    The typical size of an equation is its change if all errors of the state change by their typical sizes.
    """
    y, J = equations(x)
    reach = (np.abs(J) * sizes.states).sum(axis=1)
    return np.abs(y) / np.where(reach > 0, reach, 1.0)


def _rounded(f: OneStepMap, x: np.ndarray, u: np.ndarray, drift: np.ndarray, sizes: Sizes) -> bool:
    """Return whether changes of the state by a step are rounding errors.
    With stiff springs they are large: a step multiplies rounding errors of the state by A.
    """
    size = sizes.states * (1 + np.abs(x / sizes.of_states).max())
    return bool((drift <= ROUNDING * (np.abs(f.linearize(x, u).A) @ size)).all())


def _settled(
    f: OneStepMap, x: np.ndarray, u: np.ndarray, entries: set[str], targets: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return an equilibrium (x, u) near a guess, for a mechanism with contact.
    Return the guess x, u if no equilibrium is found.

    The equilibrium is the solution of an optimal control problem: a periodic motion of one step with
    coordinates near the guess. The smoothing of contact decreases during the search.
    """
    names = f.mechanism.coordinates
    expressions = [f.quantity(name) for name in names]
    change = ca.vertcat(*expressions) - ca.DM(_rows(f, expressions)(x)[0])
    cost = Cost(f, ca.sumsqr(change) + EFFORT * ca.sumsqr(f.symbols.u - ca.DM(u)))
    given = {n: float(v) for n, v in zip(f.state_names, x, strict=True) if n in entries} | dict(targets)
    bounds = {n: (float(v), float(v)) for n, v in zip(_inputs(f), u, strict=True) if n in entries}
    guess = np.stack([x, x]), u[None]
    best = by_equations(f, cost, guess, steps=1, periodic=True, initial=given, bounds=bounds)
    if best is None or best.status is not Status.CONVERGED:
        return x, u
    return best.x[0].copy(), best.u[0].copy()


def _around(f: OneStepMap, x: np.ndarray, entries: set[str]) -> Iterator[np.ndarray]:
    """Yield alternative guesses for an equilibrium, at increasing distance from x."""
    names = f.mechanism.coordinates
    free = np.array([n not in entries for n in names])
    rng = np.random.default_rng(0)
    for reach in np.repeat(REACHES, STARTS) if free.any() else ():
        change = free * rng.uniform(-reach, reach, len(names))
        try:
            yield f.mechanism.moved(x, change, [n for n in names if n in entries])
        except ModelError:  # loops cannot be closed there
            continue


def _start(f, hold, guess, fixed, free) -> tuple[np.ndarray, np.ndarray, set[str], dict[str, float]]:
    """Return the initial guess of an equilibrium search, and the fixed quantities.
    The results are the guess x, u, the names of fixed states and inputs, and a dict with the values of all
    other fixed quantities.
    """
    # if errors are not differences of states, a fixed state is treated as a fixed quantity
    states = f.state_names if f.ndx == f.nx else ()
    names = (*states, *_inputs(f))
    hold = by_quantity(f, hold, "hold")
    if isinstance(guess, tuple):
        x, u = f.check_state(guess[0], "guess"), input_of(f, guess[1])
    elif guess is None or isinstance(guess, Mapping):
        guess = by_quantity(f, guess or {}, "guess")
        x, u = _state(f, guess, hold), None
    else:
        x, u = point_of(f, guess)
    values = {**(guess if isinstance(guess, Mapping) else {}), **hold}
    if not np.isfinite([as_value(v, n) for n, v in values.items()]).all():
        raise ValueError(f"expected finite values, got {values}")
    x = x.copy()
    for i in f.space.quaternions:
        if not x[i : i + 4].any():  # the attitude is not given
            x[i] = 1.0
    for i, name in enumerate(states):
        x[i] = values.get(name, x[i])
    u = (f.rest_input(x) if u is None else u).copy()
    for i, name in enumerate(_inputs(f)):
        u[i] = values.get(name, u[i])
    fixed = tuple(quantity_name(f, n, "fixed") for n in as_names(fixed, "fixed"))
    entries = {n for n in (*hold, *fixed) if n in names}
    if free is not None:
        entries |= set(names) - {meaning(name, names, "free") for name in as_names(free, "free")}
    targets = {n: hold[n] for n in hold if n not in names}
    others = [n for n in fixed if n not in names and n not in targets]
    for name in (*targets, *others):
        if ca.depends_on(f.quantity(name), ca.vertcat(f.symbols.u, f.symbols.multipliers, f.symbols.dt)):
            raise ValueError(f"{name!r} belongs to a step; hold inputs and quantities of the state")
    targets |= dict(zip(others, _rows(f, [f.quantity(n) for n in others])(x)[0], strict=True))
    return x, u, entries, targets


def _inputs(f: OneStepMap) -> tuple[str, ...]:
    return tuple(INPUTS + name for name in f.input_names)


def _state(f: OneStepMap, guess: Mapping[str, float], hold: Mapping[str, float]) -> np.ndarray:
    """Return the state (nx,) with the values of `guess` and `hold` by name.
    A value in `hold` replaces that in `guess`. If no such state exists, e.g. because of constraints, the
    values of `hold` are ignored.
    """
    guess, hold = ({n: v for n, v in d.items() if n not in _inputs(f)} for d in (guess, hold))
    try:
        return f.state({**guess, **hold})
    except ValueError:  # quantities are fixed, or the guess would violate the constraints
        return f.state(guess)


def _rows(f: OneStepMap, expressions: list[ca.SX], names: tuple[str, ...] = ()) -> Equations:
    """Return a function that evaluates expressions and their Jacobian at a state.
    The Jacobian is with respect to the error of the state.

    With names, angles in `wrap` are taken the short way round.
    """
    y = ca.densify(ca.vertcat(ca.SX(0, 1), *expressions))
    turns = np.array([n in f.wrap for n in names] or [False] * y.numel(), float)
    jacobian = ca.densify(error_jacobian(f, y)) if expressions else ca.SX(0, f.ndx)
    numbers = Evaluator(ca.Function("rows", [f.symbols.x, f.symbols.parameters], [y, jacobian]))
    theta = f.theta

    def values(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not expressions:
            return np.zeros(0), np.zeros((0, f.ndx))
        y, J = numbers(np.ascontiguousarray(x), theta)
        return y[:, 0] - 2 * np.pi * turns * np.round(y[:, 0] / (2 * np.pi)), J

    return values


def _equations(f: OneStepMap, targets: Equations) -> tuple[Equations, int]:
    """Return a function that computes residuals, which are zero at an equilibrium.
    The number of constraint multipliers among its variables is returned, too.

    The function maps w = (x, u[, multipliers]) to the residuals and their Jacobian with respect to the error
    of w.
    """
    nx = f.nx
    theta = f.theta
    residual = f.residual
    if residual is None:
        constraints = _rows(f, constraint_expressions(f))

        def explicit(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            x, u = w[:nx], w[nx:]
            A, B = f.linearize(x, u)
            states = [constraints(x), targets(x)]
            r = np.concatenate([f.difference(x, f.step(x, u)), *(y for y, _ in states)])
            J = np.zeros((len(r), f.ndx + f.nu))
            J[: f.ndx] = np.hstack([A - np.eye(f.ndx), B])
            J[f.ndx :, : f.ndx] = np.vstack([y_e for _, y_e in states])
            return r, J

        return explicit, 0

    s = f.symbols
    rows = residual(s.x, s.u, s.x, s.multipliers, 0.0, f.dt, theta)
    arguments = [ca.vertcat(s.x, s.u, s.multipliers), s.parameters]
    slope = error_jacobian(f, rows, s.u, s.multipliers)
    both = Evaluator(ca.Function("equilibrium", arguments, [rows, slope]))

    def implicit(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r, J = both(w, theta)
        y, y_e = targets(w[:nx])
        more = np.hstack([y_e, np.zeros((len(y), J.shape[1] - f.ndx))])
        return np.concatenate([r[:, 0], y]), np.vstack([J, more])

    return implicit, len(f.multiplier_names)


def _units(f: OneStepMap, x: np.ndarray, u: np.ndarray, extra: int) -> np.ndarray:
    """Return typical magnitudes of state errors, inputs and `extra` multipliers.
    The search for an equilibrium is scaled by them, since momenta in SI units may be far from 1.
    """
    lin = f.linearize(x, u)
    errors = natural_units(lin.A)
    inputs = 1 / _lengths(lin.B / errors[:, None], 0)
    return np.concatenate([errors, inputs, _lengths(lin.C * errors, 1) if extra else []])


def _lengths(M: np.ndarray, axis: int) -> np.ndarray:
    """Return the norms of a matrix's rows (axis 1) or columns (axis 0).
    Zero norms are replaced by 1.
    """
    norms = np.linalg.norm(M, axis=axis)
    return np.where(norms > 0, norms, 1.0)


def _solve(
    equations: Equations,
    move: Callable[[np.ndarray, np.ndarray], np.ndarray],
    w: np.ndarray,
    change: list[int],
    units: np.ndarray,
    limit: int,
) -> tuple[np.ndarray, int]:
    """Solve equations for the variables w by the Levenberg-Marquardt method.
    Only components of w with the indices `change` may change; ``move(w, step)`` adds a step to w.

    Returns w and the number of iterations. The undamped step is the shortest Gauss-Newton step, with norms in
    `units` of w.
    """
    r, J = equations(w)
    units = units[change]
    rows = np.ones(len(r)) if (units == 1).all() else _lengths(J[:, change] * units, 1)
    damping = 0.0
    for count in range(1, limit + 1):
        U, size, V = np.linalg.svd(J[:, change] * units / rows[:, None])
        top = size.max(initial=0.0)
        rank = int((size > RANK * top).sum())
        along, size = U.T[:rank] @ (r / rows), size[:rank]
        free = np.linalg.qr(units[:, None] * V[rank:].T)[0]
        while True:
            length = size / (size**2 + damping * top**2)
            step = np.zeros(J.shape[1])
            short = -units * (V[:rank].T @ (length * along))
            step[change] = short - free @ (free.T @ short)
            try:
                new, slope = equations(move(w, step))
            except (StepError, ConstraintError):  # no step, or bodies penetrate each other
                new, slope = np.full_like(r, np.nan), J
            small = np.abs(step).max() <= 1e-14 * (1 + np.abs(w).max())
            lower = np.linalg.norm(new / rows) < np.linalg.norm(r / rows)  # false for NaN
            if lower or small or damping > 1e12:
                break
            damping = max(10 * damping, DAMPING)
        if lower:
            w, r, J = move(w, step), new, slope
            damping = damping / 100 if damping > DAMPING else 0.0
        if small or not lower:
            return w, count
    return w, limit


def _refusal(
    f: OneStepMap, drift: np.ndarray, violation: float, misfits: Mapping[str, float], fixed: set[str]
) -> str:
    order = np.argsort(-drift)[:3]
    labels = f.space.error_names
    worst = ", ".join(f"{labels[i]} by {drift[i]:.3g}" for i in order if drift[i] > 0)
    kept = f" with {', '.join(sorted(fixed))} fixed" if fixed else ""
    text = f"; constraints are off by {violation:.3g}" if violation > 0 else ""
    text += "".join(f"; {n} is off by {y:.3g}" for n, y in misfits.items())
    return (
        f"no equilibrium near the guess{kept}: the best found moves {worst or 'nothing'} in a step{text}. "
        "Free an input that can hold it, or give another guess"
    )
