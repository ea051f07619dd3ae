"""Discrete linear-quadratic regulators about trajectories and equilibria, [S] (36), (37)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vioc.checks import as_names, few, plain
from vioc.control.about import about_of, check_trajectory
from vioc.control.riccati import riccati
from vioc.control.steady import steady_gain
from vioc.control.weights import error_names, error_weights, input_weight
from vioc.drawing import plots
from vioc.maps.protocol import OneStepMap
from vioc.maps.steps import check_steps
from vioc.maps.trajectory import Trajectory

FIXED_POINT = 1e-8  # how far an equilibrium may move in a step, relative to 1 + |x|


@dataclass(frozen=True)
class SteadyRegulator:
    """Feedback that holds an equilibrium: u = u_d - K difference(x_d, x).

    Attributes
    ----------
    map : OneStepMap
    x, u : (nx,), (nu,)
        The equilibrium.
    K, P : (nu, ndx), (ndx, ndx)
        Gain and cost-to-go.
    Q, R : (ndx, ndx), (nu, nu)
    poles : (ndx,), complex
        Eigenvalues of A - B K, all inside the unit circle; without those of what is disregarded.
    disregarded : tuple of str
        What may end anywhere; Q and P do not weigh it.
    """

    map: OneStepMap = field(repr=False)
    x: np.ndarray
    u: np.ndarray
    K: np.ndarray
    P: np.ndarray = field(repr=False)
    Q: np.ndarray = field(repr=False)
    R: np.ndarray = field(repr=False)
    poles: np.ndarray = field(repr=False)
    disregarded: tuple[str, ...] = ()

    def rollout(self, x0: Any, steps: int) -> Trajectory:
        """Closed loop from x0 (nx,) for `steps` steps; `u` of the result is what was applied.

        Raises
        ------
        StepError
            Where the map has no next state.
        """
        if steps < 1:
            raise ValueError(f"steps: expected at least 1, got {steps}")
        X, U, K = (np.tile(a, (steps, *(1,) * a.ndim)) for a in (self.x, self.u, self.K))
        return self.map.track(x0, X, U, K)

    def plot(self, *, ax: Any = None) -> Any:
        """Plot the closed loop's poles in the unit circle; returns the axes."""
        return plots().plot_poles(self, ax=ax)

    def __repr__(self) -> str:
        values = (f"{n} = {plain(v)}" for n, v in zip(self.map.state_names, self.x, strict=True))
        x = few(values, what="states")
        return (
            f"SteadyRegulator(about {x}; largest pole {np.abs(self.poles).max():.6g}; "
            + f"disregards {', '.join(self.disregarded)}; " * bool(self.disregarded)
            + f"K: {self.K.shape[0]} x {self.K.shape[1]})"
        )


@dataclass(frozen=True)
class Regulator:
    """Feedback that follows a trajectory, [S] (37): u_k = u_d[k] - K_k difference(x_d[k], x_k).

    Attributes
    ----------
    map : OneStepMap
    reference : Trajectory
        x_d, u_d over N steps.
    K, P : (N, nu, ndx), (N+1, ndx, ndx)
        Gains and cost-to-go.
    Q, R, Qf : (ndx, ndx), (nu, nu), (ndx, ndx)
        Q is (N+1, ndx, ndx) where it weighs quantities that are no errors by name.
    end : SteadyRegulator or None
        What takes over after N steps; see `hold`.

    Raises
    ------
    ValueError
        Of the reference's equal steps, or of `end`, that are not the map's.
    """

    map: OneStepMap
    reference: Trajectory
    K: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    Qf: np.ndarray
    end: SteadyRegulator | None = None

    def __post_init__(self) -> None:
        h = self.reference.step_lengths
        if self.equal_steps:
            check_steps(h[0], self.map.dt, "reference", "the regulator's map")
        if self.end is not None:
            check_steps(self.end.map.dt, self.map.dt, "end", "the regulator's map")

    @property
    def equal_steps(self) -> bool:
        """Whether all steps of the reference are of one length, as a closed loop's are."""
        h = self.reference.step_lengths
        return bool((h == h[0]).all())

    def rollout(self, x0: Any, steps: int | None = None) -> Trajectory:
        """Closed loop from x0 (nx,), over the horizon or `steps` steps.

        Past the horizon the end of the reference is held, see `hold`, at the map's own step. Steps of the
        reference that are not equal are taken as they are.

        Raises
        ------
        ValueError
            If `steps` goes past the horizon and the reference does not end in an equilibrium.
        StepError
            Where the map has no next state.
        """
        n = len(self.reference)
        steps = n if steps is None else int(steps)
        if steps < 1:
            raise ValueError(f"steps: expected at least 1, got {steps}")
        X, U, K = self.reference.x[:n][:steps], self.reference.u[:steps], self.K[:steps]
        h = self.reference.step_lengths[:steps]
        if steps > n:
            end = (self if self.end else self.hold()).end
            assert end is not None
            more = [np.tile(a, (steps - n, *(1,) * a.ndim)) for a in (end.x, end.u, end.K)]
            X, U, K = (np.concatenate(pair) for pair in zip((X, U, K), more, strict=True))
            h = np.concatenate([h, np.full(steps - n, self.map.dt)])
        return self.map.track(x0, X, U, K, k0=self.reference.k0, dt=h)

    def hold(self, x: Any = None, u: Any = None, *, disregard: str | Iterable[str] = ()) -> Regulator:
        """The same regulator that after its horizon holds an equilibrium with a steady-state gain.

        Parameters
        ----------
        x : (nx,) or a report of an equilibrium, optional
            Default: the last state of the reference.
        u : (nu,), optional
            Default: that of the report; else solved for, from the last input of the reference.
        disregard : names
            As in `dlqr`.

        Raises
        ------
        ValueError
            If (x, u) is not an equilibrium.
        OptimizationError
            If it cannot be stabilized.
        """
        u = getattr(x, "u", None) if u is None else u
        x = self.reference.x[-1] if x is None else self.map.check_state(x)
        if u is None:
            u = _holding_input(self.map, x, self.reference.u[-1])
        try:
            Q = self.Q if self.Q.ndim == 2 else self.Q[-1]
            end = dlqr_steady(self.map, x, u, Q, self.R, disregard=disregard)
        except ValueError as error:
            raise ValueError(
                f"cannot hold the end of the reference: {error}; give the equilibrium to hold, "
                "regulator.hold(x, u)"
            ) from None
        return replace(self, end=end)

    def plot(self, *names: str, ax: Any = None) -> Any:
        """Plot the gains of named states (all without names) over time; returns the axes."""
        return plots().plot_gains(self, *names, ax=ax)

    def __repr__(self) -> str:
        end = "an equilibrium" if self.end else "nothing"
        return (
            f"Regulator({len(self.K)} gains {self.K.shape[1]} x {self.K.shape[2]} about {self.reference!r}; "
            f"then holds {end})"
        )


def dlqr(
    f: OneStepMap,
    about: Any,
    Q: Any,
    R: Any,
    Qf: Any = None,
    *,
    on_manifold: bool = False,
    disregard: str | Iterable[str] = (),
) -> Regulator | SteadyRegulator:
    """The linear-quadratic regulator about a trajectory, [S] (36), or an equilibrium.

    It minimizes the sum of z'Qz + v'Rv, plus z_N' Qf z_N, for the deviations z = difference(x_d, x),
    v = u - u_d under the exact linearization of the map.

    Parameters
    ----------
    f : OneStepMap
    about : Trajectory, or an equilibrium
        A trajectory of the map or what has one; (x, u), or an object with `x` (nx,) and `u` (nu,). A
        trajectory's steps are the regulator's: where they are equal, its map is ``f.with_dt`` of them.
    Q, Qf : float, (ndx,), (ndx, ndx) or dict of str to float
        Weights >= 0 on the state's error; Qf is Q unless given. In a dict, names of the error's entries
        (states, or the map's ``error_names`` where it has fewer errors than states) and of any quantity
        of the state, such as ``v.NAME``, which weighs as J'QJ with J its derivative by the error.
    R : float, (nu,), (nu, nu) or dict of str to float
        Weights > 0 on the input, by input name in a dict.
    on_manifold : bool
        As `vioc.control.feedback.regulator`, which has cross weights too: weigh and feed back only what
        constraints let move.
    disregard : names, optional
        About an equilibrium: errors or quantities of the state that may end anywhere, since no input moves
        them and they do not settle, such as the place of a foot that stands (the error without it names
        them). Feedback then does not see the motion of the whole with them, nor weighs it.

    Returns
    -------
    Regulator, or for an equilibrium SteadyRegulator

    Raises
    ------
    ValueError
        Shapes, names, weights that are not (semi-)definite, not an equilibrium.
    OptimizationError
        If an equilibrium cannot be stabilized.
    """
    if on_manifold:
        from vioc.control.feedback.tracking import regulator  # it imports this module

        return regulator(f, about, Q, R, Qf, on_manifold=True, disregard=disregard)
    about = about_of(f, about)
    if not isinstance(about, Trajectory):
        x, u = about
        if Qf is not None:
            raise ValueError("Qf: an equilibrium is held without end; give Qf with a trajectory")
        return dlqr_steady(f, x, u, Q, R, disregard=disregard)
    refuse_disregard(disregard)
    f = check_trajectory(f, about)
    Q, Qf = state_costs(f, Q, Qf, about.x)
    R = input_weight(f, R, "R", definite=True)
    A, B = f.linearize_trajectory(about)
    K, P = riccati(A, B, along(Q), R, Qf)
    return Regulator(f, about, K, P, Q, R, Qf)


def refuse_disregard(disregard: Any) -> None:
    """ValueError where something is disregarded along a trajectory, which has an end."""
    if as_names(disregard):
        raise ValueError(
            "disregard: along a trajectory nothing has to settle; give it with an equilibrium, or to hold()"
        )


def state_costs(f: OneStepMap, Q: Any, Qf: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q (ndx, ndx) or (N+1, ndx, ndx) at states X (N+1, nx), and Qf (ndx, ndx), by default the last Q."""
    if f.nu == 0:
        raise ValueError("a regulator needs at least one input, the map has none")
    Q = error_weights(f, Q, "Q", X)
    if Qf is None:
        return Q, Q if Q.ndim == 2 else Q[-1]
    return Q, error_weights(f, Qf, "Qf", X[-1:]).reshape(f.ndx, f.ndx)


def along(Q: np.ndarray) -> np.ndarray:
    """Q of the steps: all samples but the last, where it is given for each."""
    return Q if Q.ndim == 2 else Q[:-1]


def dlqr_steady(
    f: OneStepMap,
    x: Any,
    u: Any,
    Q: Any,
    R: Any,
    *,
    disregard: str | Iterable[str] = (),
    tolerance: float = FIXED_POINT,
) -> SteadyRegulator:
    """The infinite-horizon regulator about an equilibrium f(x, u) = x.

    Parameters
    ----------
    f : OneStepMap
    x, u : (nx,), (nu,)
        `u` None is zero.
    Q, R, disregard
        As in `dlqr`.
    tolerance : float
        How far (x, u) may move in a step, relative to 1 + |x|.

    Raises
    ------
    ValueError
        If (x, u) is not an equilibrium, or a weight is wrong.
    OptimizationError
        If the Riccati equation has no stabilizing solution; names the modes that cannot be moved.
    """
    x = f.check_state(x)
    u = f.check_input(u, x)
    Q = state_costs(f, Q, None, x[None])[1]
    R = input_weight(f, R, "R", definite=True)
    moved = np.abs(f.difference(x, f.step(x, u)))
    if not moved.max() <= tolerance * (1 + np.abs(x).max()):
        worst = int(np.argmax(moved))
        raise ValueError(
            f"(x, u) is not an equilibrium: one step moves {error_names(f)[worst]} by {moved[worst]:.3g}"
        )
    S = np.zeros((f.ndx, f.nu))
    A, B = f.linearize(x, u)
    found = steady_gain(f, x, A, B, Q, R, S, disregard=disregard)
    return SteadyRegulator(f, x, u, found.K, found.P, found.Q, R, found.poles, found.disregarded)


def _holding_input(f: OneStepMap, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The input that moves the map least at x: Gauss-Newton on difference(x, f(x, u))."""
    for _ in range(20):
        change = np.linalg.lstsq(f.linearize(x, u).B, f.difference(x, f.step(x, u)), rcond=None)[0]
        u = u - change
        if np.abs(change).max() <= 1e-12 * (1 + np.abs(u).max()):
            break
    return u
