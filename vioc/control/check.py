"""Exact derivatives against finite differences, for any map or cost, a user's own included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vioc.control.costs import Cost
from vioc.control.projection import adjoint
from vioc.dynamics.integrators.base import OneStepMap
from vioc.dynamics.trajectory import Trajectory

STEPS = 10.0 ** -np.arange(1.0, 6.25, 0.25)


class DerivativeCheck(NamedTuple):
    """One derivative along a random direction.

    Attributes
    ----------
    name : str
    exact, approximate : float
        The derivative as given, and its best central difference.
    error : float
        |approximate - exact| / max(1, |exact|).
    slope : float
        Of log error over log step before rounding sets in: 2 if the derivative is right, 0 if it is
        wrong; nan where the difference is exact at every step (a polynomial of low degree).
    """

    name: str
    exact: float
    approximate: float
    error: float
    slope: float

    def __str__(self) -> str:
        return (
            f"{self.name:<24}  exact {self.exact:>16.9g}  approximate {self.approximate:>16.9g}  "
            f"error {self.error:>8.1e}  slope {self.slope:>5.2f}"
        )


def check_derivatives(
    target: OneStepMap | Cost, x: Any, u: Any = None, *, k: int = 0, seed: int = 0
) -> list[DerivativeCheck]:
    """First and second derivatives of a map at a point, or of a cost along a trajectory.

    Parameters
    ----------
    target : OneStepMap or Cost
    x : (nx,) or Trajectory
        A map's state, or the trajectory at which a cost is checked. The cost is then a function of x_0
        and the inputs by way of its trajectory's own map, so that map's derivatives count too.
    u : (nu,), optional
        A map's input.
    k : int
        A map's time index.
    seed : int
        Of the random direction, and of the random weights on the outputs of a map.

    Returns
    -------
    list of DerivativeCheck
        The first and the second derivative; of a map also those of its multipliers. Print its items.
    """
    rng = np.random.default_rng(seed)
    if isinstance(target, Cost):
        if not isinstance(x, Trajectory):
            raise TypeError(f"a cost is checked along a Trajectory, got {type(x).__name__}")
        return _check_cost(target, x, rng)
    x = target.check_state(x)
    return _check_map(target, x, target.check_input(u, x), k, rng)


def _check_map(
    f: OneStepMap, x: np.ndarray, u: np.ndarray, k: int, rng: np.random.Generator
) -> list[DerivativeCheck]:
    dx, du = rng.standard_normal(f.ndx), rng.standard_normal(f.nu)
    z, zeta = rng.standard_normal(f.ndx), rng.standard_normal(len(f.multiplier_names))
    lin = f.linearize(x, u, k)
    base = f.step(x, u, k)

    def moved(s: float) -> Trajectory:
        return f.rollout(f.retract(x, s * dx), (u + s * du)[None], k0=k)

    def next_state(s: float) -> float:
        return float(z @ f.difference(base, moved(s).x[1]))

    def multipliers(s: float) -> float:
        return float(zeta @ moved(s).multipliers[0])

    def curvature(z: np.ndarray, zeta: np.ndarray) -> float:
        H = f.second_order(x, u, z, k, zeta=zeta)
        return float(dx @ H.xx @ dx + 2 * dx @ H.xu @ du + du @ H.uu @ du)

    first, second = float(z @ (lin.A @ dx + lin.B @ du)), curvature(z, 0 * zeta)
    checks = _compare("next state", next_state, first, second)
    if len(zeta):
        first, second = float(zeta @ (lin.C @ dx + lin.D @ du)), curvature(0 * z, zeta)
        checks += _compare("multipliers", multipliers, first, second)
    return checks


def _check_cost(cost: Cost, run: Trajectory, rng: np.random.Generator) -> list[DerivativeCheck]:
    f, lengths = run.map, np.diff(run.t)
    du = rng.standard_normal(run.u.shape)
    dx = np.empty((len(run) + 1, f.ndx))
    dx[0] = rng.standard_normal(f.ndx)
    lin = f.linearize_trajectory(run)
    for k in range(len(run)):
        dx[k + 1] = lin.A[k] @ dx[k] + lin.B[k] @ du[k]
    scale = max(1.0, float(np.abs(dx).max()))  # unstable motions: keep the last state near
    dx, du = dx / scale, du / scale

    def value(s: float) -> float:
        return cost.value(f.rollout(f.retract(run.x[0], s * dx[0]), run.u + s * du, k0=run.k0, dt=lengths))

    e = cost.expand(run, lin)
    first = float(np.vdot(e.lx, dx) + np.vdot(e.lu, du))
    z = adjoint(lin, np.zeros((len(run), f.nu, f.ndx)), e.lx, e.lu)
    H = f.second_order_trajectory(run, z[1:], e.zeta)
    xx = e.lxx.copy()
    xx[:-1] += H.xx
    second = float(
        np.einsum("ka,kab,kb", dx, xx, dx)
        + 2 * np.einsum("ka,kab,kb", dx[:-1], e.lxu + H.xu, du)
        + np.einsum("ka,kab,kb", du, e.luu + H.uu, du)
    )
    return _compare("cost", value, first, second)


def _compare(name: str, phi: Callable[[float], float], first: float, second: float) -> list[DerivativeCheck]:
    center = phi(0.0)
    ahead, behind = (np.array([phi(sign * s) for s in STEPS]) for sign in (1.0, -1.0))
    return [
        _check(f"{name}, first", first, (ahead - behind) / (2 * STEPS)),
        _check(f"{name}, second", second, (ahead - 2 * center + behind) / STEPS**2),
    ]


def _check(name: str, exact: float, differences: np.ndarray) -> DerivativeCheck:
    errors = np.abs(differences - exact) / max(1.0, abs(exact))
    best = int(np.argmin(errors))
    slope = float("nan")
    if errors[0] > 1e-10:
        used = slice(0, max(best, 2) + 1)
        falling = errors[used] > 0
        slope = float(np.polyfit(np.log(STEPS[used][falling]), np.log(errors[used][falling]), 1)[0])
    return DerivativeCheck(name, exact, float(differences[best]), float(errors[best]), slope)
