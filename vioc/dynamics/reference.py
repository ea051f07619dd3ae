"""Accurate solutions of the continuous equations of motion by scipy's integrators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.checks import as_floats
from vioc.dynamics.consistency import check_constraints
from vioc.dynamics.continuous import Continuous
from vioc.dynamics.description.system import System
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.lagrangian import Lagrangian
from vioc.names import INPUTS, by_name, in_order
from vioc.runs.signals import sample


@dataclass(frozen=True)
class ReferenceSolution:
    """Accurate solution of the equations of motion at given times.

    Attributes
    ----------
    system : System
    t : (N,)
    q, v : (N, nq)
    evaluations : int
        Number of evaluations of the accelerations.

    Notes
    -----
    ``solution["theta"]`` and ``solution["v.theta"]`` are columns by name.
    """

    system: System
    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    evaluations: int

    def __getitem__(self, name: str) -> np.ndarray:
        rate = name.startswith("v.")
        return (self.v if rate else self.q)[:, self.system.variable_index(name[2:] if rate else name)]


def reference_solution(
    system: System | Lagrangian,
    q0: Any,
    v0: Any,
    t: Any,
    u: Any = None,
    *,
    kinematic: Mapping[str, Any] | None = None,
    method: str | type = "DOP853",
    rtol: float = 1e-12,
    atol: float = 1e-12,
    **parameters: float,
) -> ReferenceSolution:
    """Integrate the continuous equations of motion accurately by ``solve_ivp``.

    The equations are [T] (29), with constraints (36).

    Parameters
    ----------
    system : System or Lagrangian
    q0, v0 : array (nq,) or dict by name
        At ``t[0]``; must satisfy the constraints. Values of variables in `kinematic` are replaced.
    t : (N,)
        Increasing times, s, at which the solution is returned.
    u : optional
        Inputs: a constant array (nf,); an array (N-1, nf), each row constant from one time to the next
        (the integrator is restarted there, so that the jumps cost no accuracy); a dict of signals by
        input name, numbers or functions of time; or a function of time with values (nf,).
    kinematic : dict by name
        Motion of kinematic variables: numbers (at rest), or twice differentiable splines with a
        ``derivative()`` such as `scipy.interpolate.CubicSpline`. Missing ones keep their values in `q0`.
    method, rtol, atol
        Arguments of ``solve_ivp``.
    **parameters : float
        Values of declared parameters.

    Returns
    -------
    ReferenceSolution

    Raises
    ------
    ConstraintError
        If h(q0) or Dh(q0) v0 is not zero.
    RuntimeError
        If the integrator fails; the message names the time.

    Notes
    -----
    Constraints act on the accelerations, so that their drift is determined by the tolerances.
    """
    from scipy.integrate import solve_ivp  # imported here because it is slow

    dynamics = Continuous(system, **parameters)
    lag, description = dynamics.lagrangian, dynamics.system
    nq, nd = lag.nq, lag.nd
    t = as_floats(t, "t")
    if t.ndim != 1 or len(t) < 2 or not (np.diff(t) > 0).all():
        raise ValueError(f"t: expected at least two increasing times, got {t!r:.80}")
    q = as_configuration(description, q0, "q0").copy()
    v = as_configuration(description, v0, "v0").copy()
    motion = _motion(description.kinematic, kinematic or {}, q[nd:])
    q[nd:], v[nd:], _ = motion(t[0])
    check_constraints(lag, q, v, dynamics.parameters)
    constant, force = _force(description.inputs, u, len(t) - 1)
    accelerations = dynamics.forward  # checks that nothing is singular at the start
    accelerations(q, v, force(0, t[0]), t=t[0])
    solve = dynamics.dynamic_accelerations
    count = 0

    def rates(segment: int):
        def fun(time: float, y: np.ndarray) -> np.ndarray:
            nonlocal count
            count += 1
            position, rate, second = motion(time)
            full_q, full_v = np.concatenate([y[:nd], position]), np.concatenate([y[nd:], rate])
            return np.concatenate([y[nd:], solve(full_q, full_v, force(segment, time), time, second)])

        return fun

    Y = np.empty((len(t), 2 * nd))
    Y[0] = np.concatenate([q[:nd], v[:nd]])
    # inputs that jump: one call of the integrator from jump to jump
    pieces = [(k, t[k : k + 2]) for k in range(len(t) - 1)] if constant else [(0, t)]
    options = dict(method=method, rtol=rtol, atol=atol)
    for k, times in pieces:
        piece = solve_ivp(rates(k), (times[0], times[-1]), Y[k], t_eval=times, **options)
        if not piece.success or not np.isfinite(piece.y).all():
            reached = piece.t[-1] if len(piece.t) else times[0]
            name = getattr(method, "__name__", method)
            raise RuntimeError(
                f"{description.name}: {name} stopped after t = {reached:g} s: {piece.message} The motion may "
                "pass a singular configuration, or need a looser rtol"
            )
        Y[k : k + len(times)] = piece.y.T
    Q, V = np.empty((len(t), nq)), np.empty((len(t), nq))
    Q[:, :nd], V[:, :nd] = Y[:, :nd], Y[:, nd:]
    for i, time in enumerate(t):
        Q[i, nd:], V[i, nd:], _ = motion(time)
    return ReferenceSolution(description, t, Q, V, count)


def _motion(names: tuple[str, ...], motions: Mapping[str, Any], start: np.ndarray):
    """Return a function from time to positions, velocities and accelerations of the kinematic variables.

    Its values are position, velocity, acceleration (nk,).
    """
    motions = by_name(motions, names, "kinematic variable")
    paths: list[Any] = []
    for name, rest in zip(names, start, strict=True):
        path = motions.get(name, float(rest))
        if callable(path):
            if not hasattr(path, "derivative"):
                raise ValueError(
                    f"kinematic variable {name!r}: expected a number or a spline with derivative(), such as "
                    f"scipy.interpolate.CubicSpline, got {path!r}"
                )
            rate = path.derivative()
            paths.append((path, rate, rate.derivative()))
        else:
            paths.append(float(path))

    def motion(t: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = [(p, 0.0, 0.0) if isinstance(p, float) else [float(g(t)) for g in p] for p in paths]
        values = np.array(rows).reshape(len(names), 3)
        return values[:, 0], values[:, 1], values[:, 2]

    return motion


def _force(names: tuple[str, ...], u: Any, intervals: int):
    """Return a flag, and a function that returns the inputs of the mechanism at a given time.
    The flag is True if the inputs are constant in each time interval and may jump between two intervals.

    The function is (interval, t) -> (nf,).
    """
    if isinstance(u, Mapping):
        items = in_order(u, names, "input", prefix=INPUTS)
        return False, lambda _, t: np.array([sample(i, np.array([t]), "input")[0] for i in items])
    if callable(u):
        return False, lambda _, t: as_floats(u(t), "u").reshape(len(names))
    array = np.zeros(len(names)) if u is None else as_floats(u, "u")
    if array.shape == (len(names),):
        return False, lambda *_: array
    if array.shape == (intervals, len(names)):
        return True, lambda k, _: array[k]
    raise ValueError(
        f"u: expected shape ({len(names)},) or ({intervals}, {len(names)}), a dict by name or a function of "
        f"time, got {array.shape}"
    )
