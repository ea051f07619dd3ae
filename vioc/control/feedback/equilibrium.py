"""Equilibria and steady inputs: f(x, u) = x, and what the linearization says of their stability."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_names, near_misses
from vioc.control.analysis.modes import Modes, modes
from vioc.control.weights import INPUTS
from vioc.dynamics.evaluate import Evaluator
from vioc.dynamics.integrators.base import OneStepMap
from vioc.errors import ModelError, OptimizationError, StepError

ON_CIRCLE = 1e-7  # rounding moves a double eigenvalue, as of a cart that may stand anywhere, by 1e-8
RANK = 1e-10  # relative singular values below this are directions that the equations leave free
DAMPING = 1e-6  # where it begins, relative to the largest singular value squared; grows by 10, shrinks by 100

Equations = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Equilibrium:
    """A state and input with f(x, u) = x; `dlqr` takes it as it is.

    Attributes
    ----------
    map : OneStepMap
    x, u : (nx,), (nu,)
    multipliers : (nm,)
        Constraint impulses of the step that stays.
    moved : float
        Largest |difference(x, f(x, u))|.
    modes : Modes
        Of the linearization, on the constraint manifold where there are constraints; print them.
    iterations : int
    """

    map: OneStepMap = field(repr=False)
    x: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray
    moved: float
    modes: Modes = field(repr=False)
    iterations: int

    @property
    def verdict(self) -> str:
        """By the linearization: asymptotically stable, unstable, or neutral, which it leaves undecided."""
        size = self.modes.spectral_radius
        if size > 1 + ON_CIRCLE:
            return "unstable"
        return "neutral" if size > 1 - ON_CIRCLE else "asymptotically stable"

    def __getitem__(self, name: str) -> float:
        """Any quantity that the map names, at the equilibrium or in the step that stays there."""
        return float(self.map.rollout(self.x, self.u, steps=1, warn=False)[name][0])

    def __repr__(self) -> str:
        f = self.map
        pairs = [*zip(f.state_names, self.x, strict=True), *zip(f.input_names, self.u, strict=True)]
        shown = ", ".join(f"{n} = {v:.6g}" for n, v in pairs[:12]) + ", ..." * (len(pairs) > 12)
        return f"Equilibrium({shown}; {self.verdict}, largest eigenvalue {self.modes.spectral_radius:.6g})"


def equilibrium(
    f: OneStepMap,
    hold: Mapping[str, float] | None = None,
    *,
    guess: Any = None,
    fixed: str | Iterable[str] = (),
    free: str | Iterable[str] | None = None,
    tolerance: float = 1e-10,
    iterations: int = 100,
    **named: float,
) -> Equilibrium:
    """An equilibrium f(x, u) = x near a guess, with some states and inputs held.

    Parameters
    ----------
    f : OneStepMap
    hold : dict of str to float, and **named
        States and inputs by name and the values that they keep: ``equilibrium(f, theta=0.0)``.
    guess : (nx,), (x, u) or dict of str to float, optional
        Where to look; zero where nothing is said (inputs: `OneStepMap.rest_input`).
    fixed : names
        States and inputs that keep the guess's value.
    free : names, optional
        The only ones that may change; by default all that are not held.
    tolerance : float
        How far a step may move the answer, relative to 1 + |x|.
    iterations : int
        At most so many.

    Returns
    -------
    Equilibrium

    Raises
    ------
    ModelError
        Unknown names.
    OptimizationError
        If there is none near the guess with what is held; says what a step still moves.

    Notes
    -----
    Where several answers remain (a cart may stand anywhere) each Gauss-Newton step is the shortest one.
    """
    w, known = _start(f, {**(hold or {}), **named}, guess, fixed, free)
    equations, size = _equations(f)
    names = (*f.state_names, *f.input_names)
    w = np.concatenate([w, np.zeros(size - len(w))])
    change = [i for i in range(size) if i >= len(names) or names[i] not in known]
    try:
        w, count = _solve(equations, w, change, iterations)
        x, u = w[: f.nx].copy(), w[f.nx : f.nx + f.nu].copy()
        run = f.rollout(x, u, steps=1, warn=False)
    except (StepError, np.linalg.LinAlgError) as error:
        raise OptimizationError(f"no equilibrium found: {error}; give another guess") from None
    moved = np.abs(f.difference(x, run.x[1]))
    away = np.abs(_constraint_values(f)(w[None])[0]).max(initial=0.0)
    if not max(moved.max(), away) <= tolerance * (1 + np.abs(x).max()):
        raise OptimizationError(_refusal(f, moved, away, known))
    return Equilibrium(f, x, u, run.multipliers[0], float(moved.max()), modes(f, (x, u)), count)


def _start(f, hold, guess, fixed, free) -> tuple[np.ndarray, set[str]]:
    """(x, u) to start from, and the names that are held."""
    names = (*f.state_names, *f.input_names)

    def plain(name: str) -> str:
        bare = name.removeprefix(INPUTS)
        if name not in names and bare not in f.input_names:
            raise ModelError(f"unknown state or input {name!r}; {near_misses(name, names)}")
        return name if name in names else bare

    hold = {plain(n): v for n, v in hold.items()}
    if isinstance(guess, Mapping):
        guess = {plain(n): v for n, v in guess.items()}
        x = f.state({n: v for n, v in guess.items() if n in f.state_names})
        u = None
    elif isinstance(guess, tuple):
        x, u = f.check_state(guess[0], "guess"), f.check_input(guess[1])
    else:
        x, u = np.zeros(f.nx) if guess is None else f.check_state(guess, "guess").copy(), None
    values = {**(guess if isinstance(guess, Mapping) else {}), **hold}
    for name, value in values.items():
        if name in f.state_names:
            x[f.state_names.index(name)] = value
    u = f.rest_input(x) if u is None else u
    for name, value in values.items():
        if name in f.input_names:
            u = u.copy()
            u[f.input_names.index(name)] = value
    if not np.isfinite([*x, *u]).all():
        raise ValueError(f"expected finite values, got {values}")
    held = set(hold) | set(map(plain, as_names(fixed)))
    if free is not None:
        held |= set(names) - set(map(plain, as_names(free)))
    if f.ndx != f.nx and held & set(f.state_names):
        raise ValueError("states cannot be held by name where the map's errors are not its states")
    return np.concatenate([x, u]), held


def _equations(f: OneStepMap) -> tuple[Equations, int]:
    """Equations and their Jacobian by w = (x, u[, multipliers]), and the size of w."""
    constraints, nw = _constraint_values(f), f.nx + f.nu
    theta = np.array(list(f.parameters.values()), float)
    residual = f.residual
    if residual is None or f.ndx != f.nx:

        def explicit(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            x, u = w[: f.nx], w[f.nx :]
            r = f.difference(x, f.step(x, u))
            A, B = f.linearize(x, u)
            h, h_w = constraints(w[None])
            return np.concatenate([r, h]), np.vstack([np.hstack([A - np.eye(f.nx), B]), h_w])

        if f.ndx != f.nx:
            raise ValueError("equilibria are found for maps whose errors are their states (ndx == nx)")
        return explicit, nw

    nm = len(f.multiplier_names)
    w = ca.SX.sym("w", nw + nm)
    x, u, lam = w[: f.nx], w[f.nx : nw], w[nw:]
    rows = residual(x, u, x, lam, 0.0, f.dt, theta)
    both = Evaluator(ca.Function("equilibrium", [w], [rows, ca.jacobian(rows, w)]))

    def implicit(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r, J = both(w)
        return r[:, 0], J

    return implicit, nw + nm


def _constraint_values(f: OneStepMap) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """h(x) and its Jacobian by (x, u); maps of velocities keep their rate only, so it must be asked for."""
    expressions = []
    for name in f.multiplier_names:
        try:
            expressions.append(f.quantity(f"h.{name}"))
        except ModelError:
            continue
    s = f.symbols
    h = ca.vertcat(ca.SX(0, 1), *expressions)
    function = ca.Function("h", [s.x, s.parameters], [h, ca.jacobian(h, s.x)])
    theta = np.array(list(f.parameters.values()), float)
    numbers = Evaluator(function)

    def values(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not expressions:
            return np.zeros(0), np.zeros((0, f.nx + f.nu))
        h, J = numbers(np.ascontiguousarray(w[0, : f.nx]), theta)
        return h[:, 0], np.hstack([J, np.zeros((len(J), f.nu))])

    return values


def _solve(equations: Equations, w: np.ndarray, change: list[int], limit: int) -> tuple[np.ndarray, int]:
    """Levenberg-Marquardt whose undamped step is the shortest Gauss-Newton step; w and iterations."""
    r, J = equations(w)
    damping = 0.0
    for count in range(1, limit + 1):
        U, size, V = np.linalg.svd(J[:, change], full_matrices=False)
        top = size.max(initial=0.0)
        keep = size > RANK * top
        along = U.T[keep] @ r
        while True:
            length = size[keep] / (size[keep] ** 2 + damping * top**2)
            step = np.zeros(len(w))
            step[change] = -(V[keep].T @ (length * along))
            try:
                new, slope = equations(w + step)
            except StepError:
                new, slope = np.full_like(r, np.nan), J
            small = np.abs(step).max() <= 1e-14 * (1 + np.abs(w).max())
            lower = np.linalg.norm(new) < np.linalg.norm(r)  # false where it is not a number
            if lower or small or damping > 1e12:
                break
            damping = max(10 * damping, DAMPING)
        if lower:
            w, r, J = w + step, new, slope
            damping = damping / 100 if damping > DAMPING else 0.0
        if small or not lower:
            return w, count
    return w, limit


def _refusal(f: OneStepMap, moved: np.ndarray, away: float, held: set[str]) -> str:
    order = np.argsort(-moved)[:3]
    labels = f.state_names if f.ndx == f.nx else [f"error {i}" for i in range(f.ndx)]
    worst = ", ".join(f"{labels[i]} by {moved[i]:.3g}" for i in order if moved[i] > 0)
    kept = f" with {', '.join(sorted(held))} held" if held else ""
    off = f"; constraints are off by {away:.3g}" if away > 1e-8 else ""
    return (
        f"no equilibrium near the guess{kept}: the best found moves {worst or 'nothing'} in a step{off}. "
        "Free an input that can hold it, or give another guess"
    )
