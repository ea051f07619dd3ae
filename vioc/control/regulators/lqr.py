"""Discrete-time linear-quadratic regulators.

They stabilize equilibria, trajectories and periodic motions. See [S] (36), (37).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vioc.checks import as_count, as_names, check_array, few, plain, without_noise
from vioc.control.linear.about import about_of, states_at_rest
from vioc.control.linear.linear_system import LinearSystem, check_closed, linear_system
from vioc.control.linear.manifold import tangent_basis
from vioc.control.linear.weights import error_weights, input_weight
from vioc.control.regulators.law import ONE_STEP, StateLaw
from vioc.control.regulators.riccati import periodic_riccati, riccati
from vioc.control.regulators.steady import SETTLES, steady_gain
from vioc.drawing import plots
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap
from vioc.runs.steps import SAME, check_clock, check_steps
from vioc.runs.trajectory import Trajectory

PERIODIC = "periodic"


@dataclass(frozen=True)
class SteadyRegulator:
    """Linear-quadratic regulator about an equilibrium: u = u_d - K difference(x_d, x).
    x_d and u_d are the state and input of the equilibrium.

    ``K, P, poles = regulator`` unpacks it as python-control's ``dlqr``.

    Attributes
    ----------
    map : OneStepMap
    x, u : (nx,), (nu,)
        The equilibrium.
    K, P : (nu, ndx), (ndx, ndx)
        Gain and cost-to-go.
    Q, R : (ndx, ndx), (nu, nu)
    poles : (ndx,), complex
        Eigenvalues of A - B K, all inside the unit circle; without those of disregarded modes.
    disregarded : tuple of str
        Quantities that may end anywhere; Q, S and P do not penalize them.
    S : (ndx, nu) or None
        Cross weight of state and input, if any.
    manifold : bool
        As in `dlqr`.
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
    S: np.ndarray | None = field(default=None, repr=False)
    manifold: bool = False

    def rollout(self, x0: Any, steps: int) -> Trajectory:
        """Simulate the closed loop from x0 (nx,); `u` of the result is the applied input.

        Raises
        ------
        StepError
            If a step does not exist.
        """
        steps = as_count(steps, "steps")
        X, U, K = (np.tile(a, (steps, *(1,) * a.ndim)) for a in (self.x, self.u, self.K))
        return self.map.track(x0, X, U, K)

    def as_law(self) -> StateLaw:
        """Return the feedback law, which the class `ClosedLoop` simulates with a plant."""
        return StateLaw(self.map, self.x[None], self.u[None], self.K[None], "holds")

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.K, self.P, self.poles))

    def plot(self, *, ax: Any = None) -> Any:
        """Plot the closed loop's poles and the unit circle; return the axes."""
        return plots().plot_poles(self, ax=ax)

    def __repr__(self) -> str:
        pairs = states_at_rest(self.map, without_noise(self.x))
        values = (f"{n} = {plain(v)}" for n, v in pairs)
        x = few(values, what="states")
        return (
            f"SteadyRegulator(about {x}; largest pole {np.abs(self.poles).max():.6g}; "
            + f"disregards {', '.join(self.disregarded)}; " * bool(self.disregarded)
            + f"K: {self.K.shape[0]} x {self.K.shape[1]})"
        )


@dataclass(frozen=True)
class Regulator:
    """Time-varying linear-quadratic regulator about a trajectory.

        u_k = u_d[k] - K_k difference(x_d[k], x_k)    [S] (37)

    ``K, P, poles = regulator`` unpacks it, as a regulator about an equilibrium.

    Attributes
    ----------
    map : OneStepMap
    reference : Trajectory
        x_d, u_d over N steps.
    K, P : (N, nu, ndx), (N+1, ndx, ndx)
        Gains and cost-to-go.
    Q, R, Qf : (ndx, ndx), (nu, nu), (ndx, ndx)
        Q is (N+1, ndx, ndx) if it penalizes quantities by name that are not errors of the state.
    end : SteadyRegulator or None
        Regulator after N steps; see `hold`.
    periodic : bool
        True if the reference is repeated: P[N] = P[0].
    S : (ndx, nu) or None
        Cross weight of state and input, if any.
    manifold : bool
        As in `dlqr`.

    Raises
    ------
    ValueError
        If the equal steps of the reference, or those of `end`, are not the map's.
    """

    map: OneStepMap
    reference: Trajectory
    K: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    Qf: np.ndarray
    end: SteadyRegulator | None = None
    periodic: bool = False
    S: np.ndarray | None = None
    manifold: bool = False

    def __post_init__(self) -> None:
        h = self.reference.step_lengths
        if self.equal_steps:
            check_steps(h[0], self.map.dt, "reference", "the regulator's map")
        if self.end is not None:
            check_steps(self.end.map.dt, self.map.dt, "end", "the regulator's map")

    @property
    def equal_steps(self) -> bool:
        """True if all steps of the reference trajectory have the same length.
        Simulation with the class `ClosedLoop` requires this.
        """
        h = self.reference.step_lengths
        return bool((h == h[0]).all())

    @property
    def poles(self) -> np.ndarray:
        """Eigenvalues of the closed loop's transition matrix over the whole reference.

        They are complex, (ndx,); for a periodic motion they are its Floquet multipliers.
        """
        A, B = self.map.linearize_trajectory(self.reference)
        return np.linalg.eigvals(_transition(A, B, self.K))

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.K, self.P, self.poles))

    def rollout(self, x0: Any, steps: int | None = None) -> Trajectory:
        """Simulate the closed loop from x0 (nx,), over the horizon or `steps` steps.

        After the horizon a periodic motion is repeated; any other reference is held at its end, see `hold`,
        with the map's own step length. Unequal steps of the reference keep their lengths.

        Raises
        ------
        ValueError
            If `steps` exceeds the horizon and the reference does not end in an equilibrium.
        StepError
            If a step does not exist.
        """
        n = len(self.reference)
        steps = n if steps is None else as_count(steps, "steps")
        rows = np.arange(steps) % n if self.periodic else slice(min(steps, n))
        X, U, K = self.reference.x[:n][rows], self.reference.u[rows], self.K[rows]
        h = self.reference.step_lengths[rows]
        if steps > n and not self.periodic:
            end = (self if self.end else self.hold()).end
            assert end is not None
            extension = [np.tile(a, (steps - n, *(1,) * a.ndim)) for a in (end.x, end.u, end.K)]
            X, U, K = (np.concatenate(pair) for pair in zip((X, U, K), extension, strict=True))
            h = np.concatenate([h, np.full(steps - n, self.map.dt)])
        times = self.map.times(h, self.reference.k0)[:-1]
        delay = self.reference.t[0] - times[:1]  # a section of a run of unequal steps keeps its start time
        t = times + delay if (np.abs(delay) > SAME * h[:1]).any() else None
        return self.map.track(x0, X, U, K, k0=self.reference.k0, dt=h, t=t)

    def hold(self, x: Any = None, u: Any = None, *, disregard: str | Iterable[str] = ()) -> Regulator:
        """Return this regulator, continued by a steady regulator at the reference's end.

        The steady regulator has the same weights, and is on the constraint manifold if this regulator is.

        Parameters
        ----------
        x : (nx,) or a report of an equilibrium, optional
            Default: the last state of the reference.
        u : (nu,), optional
            Default: the input of the report; without a report, the input that keeps x, found by iteration
            from the last input of the reference.
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
            u = holding_input(self.map, x, self.reference.u[-1])
        try:
            Q = self.Q if self.Q.ndim == 2 else self.Q[-1]
            end = dlqr(self.map, (x, u), Q, self.R, S=self.S, manifold=self.manifold, disregard=disregard)
        except ValueError as error:
            raise ValueError(
                f"cannot hold the end of the reference: {error}; give the equilibrium to hold, "
                "regulator.hold(x, u)"
            ) from None
        assert isinstance(end, SteadyRegulator)
        return replace(self, end=end, periodic=False)

    def as_law(self) -> StateLaw:
        """Return the feedback law, which the class `ClosedLoop` simulates with a plant.

        Raises ValueError for unequal steps, since a law counts samples, and for a section of a run of unequal
        steps if the map depends on time.
        """
        run, end = self.reference, self.end
        check_steps(run.step_lengths, self.map.dt, "reference", "a law", ONE_STEP)
        check_clock(run, "reference")
        X, U, K = run.x[:-1], run.u, self.K
        if end is None:
            return StateLaw(self.map, X, U, K, "repeats" if self.periodic else "ends", run.k0)
        pairs = ((X, end.x), (U, end.u), (K, end.K))
        X, U, K = (np.concatenate([rows, last[None]]) for rows, last in pairs)
        return StateLaw(self.map, X, U, K, "holds", run.k0)

    def plot(self, *names: str, ax: Any = None) -> Any:
        """Plot the gains of named states over time, and return the axes.
        Without names, the gains of all states are plotted.
        """
        return plots().plot_gains(self, *names, ax=ax)

    def __repr__(self) -> str:
        ending = "then holds " + ("an equilibrium" if self.end else "nothing")
        return (
            f"Regulator({len(self.K)} gains {self.K.shape[1]} x {self.K.shape[2]} about {self.reference!r}; "
            f"{'again and again' if self.periodic else ending})"
        )


def dlqr(
    f: OneStepMap,
    about: Any,
    Q: Any,
    R: Any,
    Qf: Any = None,
    *,
    S: Any = None,
    manifold: bool = False,
    disregard: str | Iterable[str] = (),
) -> Regulator | SteadyRegulator:
    """Return the linear-quadratic regulator about an equilibrium or a trajectory.

    The trajectory may be periodic. The regulator minimizes the sum of z'Qz + v'Rv + 2 z'Sv, plus z_N' Qf z_N,
    for the deviations z = difference(x_d, x), v = u - u_d under the exact linearization of the map, [S] (36).
    The horizon is infinite about an equilibrium and a periodic motion.

    Parameters
    ----------
    f : OneStepMap
    about : Trajectory, or an equilibrium
        A trajectory of the map, or an object with one; (x, u), or an object with `x` (nx,) and `u` (nu,). The
        regulator has the trajectory's steps: if they are equal, its map is ``f.with_dt`` of them.
    Q, Qf : float, (ndx,), (ndx, ndx) or dict of str to float
        Weights >= 0 on the state's error; Qf is Q unless given. A dict may name components of the error
        (states, or the map's ``space.error_names`` if it has fewer errors than states) and any quantity
        of the state, such as ``v.NAME``, whose weight is J'QJ with its derivative J by the error.
        Qf "periodic": the trajectory closes and is repeated.
    R : float, (nu,), (nu, nu) or dict of str to float
        Weights > 0 on the input, by input name in a dict.
    S : (ndx, nu), optional
        Cross weight.
    manifold : bool
        True to penalize and feed back only errors that the constraints allow, without momenta that the next
        constraint impulse cancels. The gains are K_red T' and P is T P_red T', with gains and cost-to-go of
        the reduced system in coordinates T'z. T are the `tangent_bases` with idle directions. The weight of
        an idle direction acts on the input that determines it: a weight on ``v.NAME`` is one on the change of
        ``rho.NAME``. The `poles` of an equilibrium are the r poles of the reduced loop; the pole 0 of an idle
        direction is omitted, unless S feeds it back.
    disregard : names, optional
        About an equilibrium: errors or quantities of the state that may end anywhere, since no input moves
        them and they do not settle, such as the position of a standing foot (the error without this argument
        names them). The feedback neither measures nor penalizes the motion of the mechanism with them.

    Returns
    -------
    Regulator, or for an equilibrium SteadyRegulator
        Both unpack: ``K, P, poles = dlqr(...)``.

    Raises
    ------
    ValueError
        Wrong shapes or names, weights that are not (semi-)definite, not an equilibrium, a motion that is not
        periodic; about a state a map whose steps depend on time.
    OptimizationError
        If an equilibrium or a periodic motion cannot be stabilized. The message names the modes that inputs
        do not move or Q does not penalize, or hardly so.
    """
    about = about_of(f, about)
    motion = isinstance(about, Trajectory)
    if motion and as_names(disregard, "disregard"):
        raise ValueError(
            "disregard: along a trajectory nothing has to settle; give it with an equilibrium, or to hold()"
        )
    if not motion and Qf is not None:
        raise ValueError("Qf: an equilibrium is held without end; give Qf with a trajectory")
    if f.nu == 0:
        raise ValueError("a regulator needs at least one input, the map has none")
    R = input_weight(f, R, "R", definite=True)
    S = np.zeros((f.ndx, f.nu)) if S is None else check_array(S, (f.ndx, f.nu), "S", f.input_names)
    Q = error_weights(f, Q, "Q", about.x if motion else about[0][None])
    system = linear_system(f, about, manifold, idle=True, closed=isinstance(Qf, str))
    if motion:
        return _along(system, about, Q, R, S, Qf)
    return _steady(system, Q.reshape(f.ndx, f.ndx), R, S, disregard)


def end_weight(f: OneStepMap, Q: np.ndarray, Qf: Any, X: np.ndarray) -> np.ndarray:
    """Return the final weight Qf of a regulator; by default it equals the last Q.

    It is (ndx, ndx), at the last of the states X (N+1, nx).
    """
    if Qf is None:
        return Q if Q.ndim == 2 else Q[-1]
    return error_weights(f, Qf, "Qf", X[-1:]).reshape(f.ndx, f.ndx)


def along(Q: np.ndarray) -> np.ndarray:
    """Return the weights of the states of a trajectory without the final weight.
    A constant weight is returned unchanged.
    """
    return Q if Q.ndim == 2 else Q[:-1]


def _along(system: LinearSystem, run: Trajectory, Q: np.ndarray, R: np.ndarray, S: Any, Qf: Any) -> Regulator:
    f, T, Tt = system.map, system.T, np.swapaxes(system.T, 1, 2)
    periodic = isinstance(Qf, str)
    if periodic and Qf != PERIODIC:
        raise ValueError(f'Qf: expected weights or "{PERIODIC}", got {Qf!r}')
    Qf = end_weight(f, Q, None if periodic else Qf, system.x)
    weights = along(Q), S, Qf
    if system.manifold:
        weights = Tt[:-1] @ weights[0] @ T[:-1], Tt[:-1] @ S, Tt[-1] @ Qf @ T[-1]
    q, s, last = weights
    A, B = system.A, system.B
    if periodic:
        check_closed(f, run)
        turn = Tt[0] @ T[-1]  # both bases span the same space
        A = np.concatenate([A[:-1], (turn @ A[-1])[None]])
        B = np.concatenate([B[:-1], (turn @ B[-1])[None]])
        last = periodic_riccati(A, B, q, R, s)
    K, P = riccati(A, B, q, R, last, s)
    if periodic:
        largest = np.abs(np.linalg.eigvals(_transition(A, B, K))).max()
        if not largest < SETTLES:
            raise OptimizationError(
                f"no stabilizing regulator of this periodic motion (a Floquet multiplier is {largest:.6g}): "
                "penalize every mode that does not settle in Q, or add an input on it; see floquet()"
            )
        T = np.concatenate([T[:-1], T[:1]])
    if system.manifold:
        K, P = K @ Tt[:-1], T @ P @ np.swapaxes(T, 1, 2)
    Qf = P[-1] if periodic else Qf
    return Regulator(f, run, K, P, Q, R, Qf, periodic=periodic, S=S, manifold=system.manifold)


def _transition(A: np.ndarray, B: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Return the closed loop's transition matrix, the product of all A - B K."""
    product = np.eye(A.shape[-1])
    for a, b, k in zip(A, B, K, strict=True):
        product = a @ product - b @ (k @ product)
    return product


def _steady(system: LinearSystem, Q: np.ndarray, R: np.ndarray, S: Any, disregard: Any) -> SteadyRegulator:
    f, x, T = system.map, system.x[0], system.T[0]
    counted = slice(None)
    if system.manifold:
        r = tangent_basis(f, x).shape[1]
        counted = slice(None) if (S.T @ T[:, r:]).any() else slice(r)  # idle directions have the pole 0
    weights = (Q, R, S) if not system.manifold else (T.T @ Q @ T, R, T.T @ S)
    gain = steady_gain(
        f, x, system.u[0], system.A[0], system.B[0], *weights, T=T, disregard=disregard, counted=counted
    )
    K, P = gain.K @ T.T, T @ gain.P @ T.T
    if gain.disregarded:
        Q, S = T @ gain.Q @ T.T, T @ gain.S
    return SteadyRegulator(f, x, system.u[0], K, P, Q, R, gain.poles, gain.disregarded, S, system.manifold)


def holding_input(f: OneStepMap, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the input for which the state changes least in one step from x.

    It is found by Gauss-Newton iteration on difference(x, f(x, u)) from the input u.
    """
    for _ in range(20):
        change = np.linalg.lstsq(f.linearize(x, u).B, f.difference(x, f.step(x, u)), rcond=None)[0]
        u = u - change
        if np.abs(change).max() <= 1e-12 * (1 + np.abs(u).max()):
            break
    return u
