"""Linearization of a one-step map about an equilibrium or along a trajectory.

Its coordinates are errors of the full state, or coordinates of the constraint manifold's tangent space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vioc.checks import as_floats, as_names, check_array
from vioc.control.linear.about import about_of, check_timeless, check_trajectory
from vioc.control.linear.manifold import has_manifold, restrict, tangent_bases, tangent_basis
from vioc.control.linear.weights import named_jacobians
from vioc.maps.derivatives import Linearization
from vioc.maps.protocol import OneStepMap
from vioc.names import in_order, quantity_name
from vioc.runs.trajectory import Trajectory

FIXED_POINT = 1e-8  # largest change of an equilibrium by a step, relative to 1 + |x|
CLOSED = 1e-8  # largest distance of a periodic trajectory's end from its start, relative to 1 + |x|
# Changes of the step length that reveal rounding; several, since some last digits may agree by chance
NEARBY = (1e-6, -2.3e-6, 3.7e-6, -5.9e-6, 7.1e-6, -8.3e-6, 1.3e-5, -1.7e-5)
FEW = 3  # changes used along a trajectory, which has many steps
SMOOTH = 0.1  # largest relative change of a derivative that is not rounding


@dataclass(frozen=True)
class LinearSystem:
    """Linearization z_{k+1} = A_k z_k + B_k v_k of a map about a point or trajectory.
    The vector z = T_k' dx has the coordinates of a small change dx of the state in the basis T_k, and v_k is
    a change of the input.

    Attributes
    ----------
    map : OneStepMap
    A, B : (N, r, r), (N, r, nu); N = 1 about an equilibrium
    T : (N+1, ndx, r)
        Orthonormal bases; the identity in the full state.
    x, u : (N+1, nx), (N, nu)
    steady : bool
        True about an equilibrium.
    manifold : bool
    """

    map: OneStepMap
    A: np.ndarray
    B: np.ndarray
    T: np.ndarray
    x: np.ndarray
    u: np.ndarray
    steady: bool
    manifold: bool

    @property
    def names(self) -> tuple[str, ...]:
        return self.map.space.error_names

    def output_matrices(self, outputs: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return the output matrices C_k of the linear system, and the outputs' names.
        The outputs at sample k are y = C_k z, for coordinates z (r,) of the system. Each matrix is (p, r).

        `outputs` are quantities or errors of the state, or a matrix (p, ndx).
        """
        if isinstance(outputs, str) or (
            isinstance(outputs, Sequence) and outputs and isinstance(outputs[0], str)
        ):
            names = tuple(
                quantity_name(self.map, n, "outputs", self.names) for n in as_names(outputs, "outputs")
            )
            C = output_jacobians(self.map, names, self.x)
            self._check_seen(C[0], names)
            return C @ self.T, names
        C = as_floats(outputs, "outputs (names of quantities, or a matrix)")
        if C.ndim != 2 or C.shape[1] != self.map.ndx:
            raise ValueError(
                f"outputs: expected names of quantities, or a matrix (p, {self.map.ndx}), got shape {C.shape}"
            )
        C = check_array(C, C.shape, "outputs")
        return C @ self.T, tuple(f"output {i}" for i in range(len(C)))

    def _check_seen(self, C: np.ndarray, names: Sequence[str]) -> None:
        """Raise ValueError if an output depends on state entries that the system omits.
        The coordinates of the linear system omit changes of the state on which no step depends, such as those
        of rates of prescribed variables. C is the Jacobian of the outputs with respect to the state.

        In these coordinates, the effect of such entries on the output would be zero.
        """
        if not self.manifold:
            return
        idle = tangent_basis(self.map, self.x[0], idle=True)[:, self.T.shape[2] :]
        for name, row in zip(names, C, strict=True):
            if np.abs(row @ idle).max(initial=0.0) > 1e-9 * np.abs(row).max(initial=0.0):
                raise ValueError(
                    f"outputs: {name!r} depends on what no step reads (rates of prescribed configurations), "
                    "which coordinates of the constraint manifold leave out; pass manifold=False"
                )


def linear_system(
    f: OneStepMap,
    about: Any,
    manifold: bool | None = None,
    *,
    idle: bool = False,
    ranks: bool = False,
    closed: bool = False,
) -> LinearSystem:
    """Linearize a map about an equilibrium or along a trajectory.

    About an equilibrium, elements of A and B that are rounding are set to zero (to 1 on the diagonal of A);
    see `without_rounding`.

    Parameters
    ----------
    f : OneStepMap
    about : Trajectory or a result that has one, or an equilibrium: (x, u), or an object with `x` and `u`
    manifold : bool, optional
        True for coordinates of the reduced tangent space, False for the full state; default: True if the map
        has constraints and a single such space (`one_manifold`).
    idle : bool
        On the manifold, keep idle directions; see `tangent_basis`.
    ranks : bool
        Remove rounding along a trajectory too, for rank decisions.
    closed : bool
        True if the trajectory continues with its first step.

    Raises
    ------
    ValueError
        Not an equilibrium, a state of a map that depends on time, another map's trajectory, wrong shapes.
    """
    manifold = has_manifold(f) if manifold is None else manifold
    about = about_of(f, about)
    if isinstance(about, Trajectory):
        f = check_trajectory(f, about)
        derivatives = f.derivatives
        models = [derivatives.linearize_motion(about, closed=closed)]
        if ranks:
            models += [derivatives.linearize_motion(_stretched(about, 1 + change)) for change in NEARBY[:FEW]]
        identity = np.broadcast_to(np.eye(f.ndx), (len(about) + 1, f.ndx, f.ndx))
        T = tangent_bases(f, about, idle=idle) if manifold else identity
        x, u, steady = about.x, about.u, False
    else:
        state, u_d = equilibrium_point(f, about)
        lengths = f.dt * (1 + np.array([0.0, *NEARBY]))
        models = [f.derivatives.linearize(f.steps_at(state[None], u_d[None], dt=float(h))) for h in lengths]
        basis = tangent_basis(f, state, idle=idle) if manifold else np.eye(f.ndx)
        T, x, u, steady = np.stack([basis, basis]), np.stack([state, state]), u_d[None], True
    A, B = without_rounding(models) if len(models) > 1 else models[0]
    if manifold:
        A, B = restrict(A, B, T)
    return LinearSystem(f, A, B, T, x, u, steady, manifold)


def without_rounding(linearizations: Sequence[Linearization]) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrices A and B of a linearization, with rounding errors set to 0.
    The argument `linearizations` contains this linearization, and others for slightly different step lengths.
    The shapes of the results are (N, n, n) and (N, n, m).

    A derivative is a rounding error if it differs strongly between these linearizations: a true derivative
    changes only in proportion to the step length. If a state's row of A - I and B is noise at all N steps,
    the state is conserved (a momentum that no force changes). If a state's column of A - I is noise, nothing
    depends on the state. Magnitudes alone cannot distinguish noise from weak couplings. Rank decisions scale
    each state by its motion, so they would count noise as motion.
    """
    n = linearizations[0].A.shape[1]
    A, *others = (lin.A - np.eye(n) for lin in linearizations)
    by_state = _is_rounding(A, others)
    by_input = _is_rounding(linearizations[0].B, [lin.B for lin in linearizations[1:]])
    kept = np.logical_not(by_state.all(axis=1) & by_input.all(axis=1))
    A = np.where(kept[:, None] & ~by_state.all(axis=0), A, 0.0) + np.eye(n)
    return A, np.where(kept[:, None], linearizations[0].B, 0.0)


def _is_rounding(first: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """Return a mask (n, m) of derivatives that are 0 or rounding noise at all N steps.
    The derivatives `first` are (N, n, m); `others` has the same derivatives for slightly different step
    lengths.
    """
    size = np.abs(first).max(axis=0)
    change = np.max([np.abs(other - first).max(axis=0) for other in others], axis=0)
    return np.asarray((change > SMOOTH * size) | (size == 0))


def _stretched(run: Trajectory, factor: float) -> Trajectory:
    """Return a trajectory whose time steps are longer by `factor`.
    Its states and inputs are unchanged.
    """
    return replace(run, t=run.t[0] + (run.t - run.t[0]) * factor)


def equilibrium_point(f: OneStepMap, about: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return (x, u) if it is an equilibrium at all times, else raise ValueError."""
    check_timeless(f, "about a state", "a trajectory, or the map whose turn it is then")
    x, u = about
    drift = np.abs(f.difference(x, f.step(x, u)))
    if not drift.max() <= FIXED_POINT * (1 + np.abs(x).max()):
        worst = int(np.argmax(drift))
        raise ValueError(
            f"(x, u) is not an equilibrium: one step moves {f.space.error_names[worst]} by "
            f"{drift[worst]:.3g}; give a trajectory, f.rollout(x, u, steps=...), or solve for an equilibrium "
            "first"
        )
    return x, u


def check_closed(f: OneStepMap, run: Trajectory) -> float:
    """Check that a trajectory is periodic; return how much its ends differ.
    This is the largest difference between entries of the first and the last state, divided by 1 plus the
    largest magnitude in the first state. Raises ValueError if it is too large.
    """
    gap = np.abs(f.difference(run.x[0], run.x[-1]))
    relative_gap = gap.max() / (1 + np.abs(run.x[0]).max())
    if not relative_gap <= CLOSED:
        worst = int(np.argmax(gap))
        raise ValueError(
            f"the trajectory is not periodic: {f.space.error_names[worst]} ends {gap[worst]:.3g} from its "
            "start"
        )
    return float(relative_gap)


def output_jacobians(f: OneStepMap, names: Sequence[str], X: np.ndarray) -> np.ndarray:
    """Return Jacobians of named outputs with respect to the state, at the states X.

    The states X are (N, nx); the derivatives are (N, p, ndx).
    """
    return named_jacobians(f, names, X, "outputs", "give the matrix C instead")


def sizes(value: Any, names: Sequence[str], what: str, prefix: str = "") -> np.ndarray:
    """Return checked magnitudes or standard deviations (n,) of named quantities.
    The argument `value` is one number for all quantities, an array, or a dict by name. Quantities that the
    dict does not contain have the value 1.
    """
    value = in_order(value, names, what, 1.0, prefix=prefix)
    array = check_array(
        np.broadcast_to(value, (len(names),)) if np.ndim(value) == 0 else value, (len(names),), what, names
    )
    if not (array > 0).all():
        worst = int(np.argmin(array))
        raise ValueError(f"{what}: expected sizes > 0, got {array[worst]:g} for {names[worst]!r}")
    return array
