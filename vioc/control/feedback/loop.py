"""`ClosedLoop`: plant, law, observer and actuator bounds in one simulation, with seeded noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from vioc.checks import as_count
from vioc.control.feedback.measurement import root
from vioc.control.linear.weights import input_weight, state_weight
from vioc.control.problem.limits import input_bounds
from vioc.control.regulators.law import as_law
from vioc.control.regulators.sampling import Noise, PerfectObserver, Sampler
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import AsTrajectory
from vioc.runs.steps import check_steps, steps_within
from vioc.runs.trajectory import Trajectory


@dataclass(frozen=True)
class LoopRun(AsTrajectory):
    """A simulation of a closed loop.

    Attributes
    ----------
    trajectory : Trajectory
        What the plant did; its `u` is what was applied. With process noise it is no rollout.
    estimates : (N, nx), or more columns of an observer whose map has more states
        What the observer believes at each sample; not a number between its samples.
    covariances : (N, ndx, ndx) or None
        Of the estimates' errors, as the observer believes.
    measurements : (N, ny)
        Without columns if there is no observer; not a number where none was made.
    commands : (N, nu)
        What the law asked for.
    saturated : (N, nu), bool
        Where that was beyond a bound.
    belief, memory : object
        What observer and law end with: counts of their failures, the verdicts of `NonlinearMPC`.
    measured : tuple of str
        Names of the columns of `measurements`.
    """

    trajectory: Trajectory
    estimates: np.ndarray
    covariances: np.ndarray | None
    measurements: np.ndarray
    commands: np.ndarray
    saturated: np.ndarray
    belief: Any = field(default=None, repr=False)
    memory: Any = field(default=None, repr=False)
    measured: tuple[str, ...] = ()

    @property
    def errors(self) -> np.ndarray:
        """difference(truth, estimate) at each sample (N, ndx), of the plant's states."""
        f = self.trajectory.map
        return f.difference(self.trajectory.x[:-1], self.estimates[:, : f.nx])

    def __repr__(self) -> str:
        share = f"{100 * self.saturated.mean():.3g} % of commands clipped"
        counts = getattr(self.memory, "counts", {})
        ended = "".join(f", {status}: {n}" for status, n in counts.items() if status != "converged")
        return f"LoopRun({len(self)} steps, {self.measurements.shape[1]} measured quantities, {share}{ended})"


@dataclass(frozen=True)
class ClosedLoop:
    """Plant, law, observer and actuator bounds.

    At sample k: measure y_k = g(x_k) + v_k, correct the estimate, ask the law for u_k, clip it, predict the
    estimate under what is applied; the plant steps under u_k + noise and is disturbed.

    Attributes
    ----------
    plant : OneStepMap
        What is simulated. Law and observer may be designed on another map with the same states and step:
        other parameters, another integrator. A `DelayedMap` is a plant whose input acts late; a law
        designed without the delay is then given the mechanism's states only. An observer may know more
        states, such as disturbances (`ExtendedMap`), of which a law takes as many as its own map has.
    law : Law, Regulator, SteadyRegulator
    observer : KalmanFilter, ExtendedKalmanFilter, MovingHorizon, ConfigurationObserver, or None
        None gives the law the state itself.
    bounds : dict of str to (lower, upper), or None
        What the actuators can do, of inputs: as in `vioc.control.optimize`, of numbers.
    W : float, (ndx,), (ndx, ndx) or dict of str to float
        Covariance of the disturbance that is added to x[k+1] as an error.
    W_u : float, (nu,), (nu, nu) or dict of str to float
        Covariance of the noise of the applied input.
    hold : bool
        Let law and observer have steps of their own, whole multiples of the plant's, and those of the law of
        the observer's: each runs at its samples, and what the law asks for is held between.

    Raises
    ------
    TypeError, ValueError
        A law or an observer that is none, is of another mechanism or for another step, bounds, covariances,
        names.
    """

    plant: OneStepMap = field(repr=False)
    law: Any
    observer: Any = None
    bounds: Mapping[str, Any] | None = None
    W: Any = 0.0
    W_u: Any = 0.0
    hold: bool = False

    def __post_init__(self) -> None:
        f = self.plant
        if not isinstance(f, OneStepMap):
            raise TypeError(f"plant: expected a map, got {type(f).__name__}")
        law_map = getattr(as_law(self.law), "map", f)
        missing = [n for n in ("measurement", "start", "correct", "predict") if not hasattr(self.observer, n)]
        if self.observer is not None and missing:
            raise TypeError(
                f"observer: expected a KalmanFilter, an ExtendedKalmanFilter or a ConfigurationObserver, got "
                f"{type(self.observer).__name__} without {missing[0]!r}"
            )
        measured = getattr(self.observer, "map", f)
        known, n = measured.state_names, law_map.nx
        if measured.nx < f.nx or (measured.nx > f.nx and known[: f.nx] != f.state_names):
            raise ValueError(f"the observer is of a map with {measured.nx} states, the plant has {f.nx}")
        known = f.state_names + known[f.nx :]
        if law_map.input_names != f.input_names or law_map.state_names != known[:n]:
            raise ValueError(
                f"law: it is of a map with the states {', '.join(law_map.state_names)} and the inputs "
                f"{', '.join(law_map.input_names)}, the plant has {', '.join(f.state_names)} and "
                f"{', '.join(f.input_names)}"
            )
        if not isinstance(self.hold, bool):
            raise ValueError(f"hold: expected True or False, got {self.hold!r}; the steps tell how long")
        self._rates()
        self._actuators()
        self._noise()

    def _rates(self) -> tuple[int, int]:
        """Of how many steps of the plant a step of the law, and one of the observer, is."""
        f, law, observer = self.plant, as_law(self.law), self.observer
        of_law = steps_within(getattr(law, "map", f).dt, f.dt, "law", "the plant", self.hold)
        if observer is None:
            return of_law, 1
        seen, sensors = getattr(observer, "map", f), getattr(observer.measurement, "map", f)
        of_observer = steps_within(seen.dt, f.dt, "observer", "the plant", self.hold)
        steps_within(sensors.dt, f.dt, "the observer's measurement", "the plant", self.hold)
        check_steps(sensors.dt, seen.dt, "the observer's measurement", "the observer")
        if of_law % of_observer:
            raise ValueError(
                f"law: it is asked every {of_law} steps of the plant, and the observer makes an estimate "
                f"every {of_observer}; make the law's step a whole multiple of the observer's"
            )
        return of_law, of_observer

    def _actuators(self) -> tuple[np.ndarray, np.ndarray]:
        return input_bounds(self.plant, self.bounds)

    def _noise(self) -> tuple[np.ndarray, np.ndarray]:
        """Roots of the covariances of disturbance and input noise."""
        f = self.plant
        return root(state_weight(f, self.W, "W")), root(input_weight(f, self.W_u, "W_u"))

    def simulate(
        self,
        x0: Any,
        steps: int,
        *,
        estimate: Any = None,
        covariance: Any = None,
        noise: int | np.random.Generator | None = None,
        k0: int = 0,
    ) -> LoopRun:
        """Simulate `steps` steps from x0 (nx,).

        Parameters
        ----------
        estimate : (nx,), optional
            What the observer believes before the first measurement; default x0. More states that the
            observer knows are what its map has for them (``ExtendedMap.join``) unless they are given.
        covariance : (ndx, ndx), optional
            Of its error, for an extended filter; default its P0.
        noise : seed, Generator or None
            None simulates without any noise. The same seed gives the same run, to the bit.
        k0 : int
            First sample.

        Returns
        -------
        LoopRun

        Raises
        ------
        ValueError
            Sizes; a law that asks for what is not finite.
        StepError
            Where the plant has no next state; its `trajectory` is the plant's until then.
        """
        f, law = self.plant, as_law(self.law)
        steps = as_count(steps, "steps")
        x = f.check_state(x0, "initial state")
        observer: Any = PerfectObserver() if self.observer is None else self.observer
        seen: Any = getattr(observer, "map", f)
        every = self._rates()
        if k0 % every[0]:
            raise ValueError(f"k0: the law is asked every {every[0]} steps, got {k0}; begin at one of them")
        begin = x if estimate is None else estimate
        if seen.nx > f.nx and np.shape(begin) == (f.nx,):
            begin = seen.join(begin)
        belief = observer.start(seen.check_state(begin, "estimate"), covariance)
        loop = Sampler(f, law, observer, self._sensors, *self._actuators(), every)
        s = loop.run(x, belief, steps, k0, self._drawn(noise, steps, k0, every[1]))
        return LoopRun(
            loop.trajectory(s),
            s.estimates,
            None if not steps or s.covariances[0] is None else np.array(s.covariances),
            s.measurements,
            s.commands,
            s.commands != s.applied,
            s.belief,
            s.memory,
            () if self._sensors is None else self._sensors.names,
        )

    def rollout(self, x0: Any, steps: int, *, estimate: Any = None, k0: int = 0) -> Trajectory:
        """The plant's trajectory in `simulate`, without noise."""
        return self.simulate(x0, steps, estimate=estimate, k0=k0).trajectory

    @property
    def map(self) -> OneStepMap:
        """The plant."""
        return self.plant

    @property
    def x(self) -> np.ndarray | None:
        """The plant's state (nx,) that the law holds in the end, if it does."""
        x, f = getattr(as_law(self.law), "x", None), self.plant
        return x if x is None or len(x) == f.nx else f.join(x) if len(x) < f.nx else x[: f.nx]  # type: ignore[attr-defined]

    @cached_property
    def _sensors(self) -> Any:
        """The observer's measurement, on the plant, for it is the plant that sensors see."""
        measurement = self.observer and self.observer.measurement
        return measurement and measurement.on(self.plant)

    def _drawn(self, noise: Any, steps: int, k0: int, every: int) -> Noise | None:
        """Sample by sample: of measurements where one is made, then of inputs, then of states."""
        if noise is None:
            return None
        f, rng, ny = self.plant, np.random.default_rng(noise), 0
        if self._sensors is not None:
            ny = len(self._sensors.names)
        normals, (push, jitter) = np.zeros((steps, ny + f.nu + f.ndx)), self._noise()
        if every == 1 or not ny:
            rng.standard_normal(out=normals)
        else:
            for k, row in enumerate(normals, k0):
                rng.standard_normal(out=row[ny if k % every else 0 :])
        measured, applied, moved = np.split(normals, [ny, ny + f.nu], axis=1)
        measured = self._sensors.noise(measured) if ny else measured
        return Noise(measured, applied @ jitter.T, moved @ push.T)
