"""Closed loop of plant, law, observer and actuator limits, with seeded noise."""

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
    """Result of a simulation of a closed loop.

    Attributes
    ----------
    trajectory : Trajectory
        Motion of the plant; its `u` is the applied input. With process noise it is not a rollout.
    estimates : (N, nx), or more columns of an observer whose map has more states
        Estimates of the observer at each sample; NaN between its samples.
    covariances : (N, ndx, ndx) or None
        Covariances of the estimates' errors, as the observer computes them.
    measurements : (N, ny)
        Without columns if there is no observer; NaN where nothing was measured.
    commands : (N, nu)
        Outputs of the law.
    saturated : (N, nu), bool
        True where a command was beyond a bound.
    belief, memory : object
        Final states of observer and law, with counts of their failures and the verdicts of `NonlinearMPC`.
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
        """Estimated minus true states of the plant (N, ndx), as errors of the state."""
        f = self.trajectory.map
        return f.difference(self.trajectory.x[:-1], self.estimates[:, : f.nx])

    def __repr__(self) -> str:
        share = f"{100 * self.saturated.mean():.3g} % of commands clipped"
        counts = getattr(self.memory, "counts", {})
        extra = "".join(f", {status}: {n}" for status, n in counts.items() if status != "converged")
        return f"LoopRun({len(self)} steps, {self.measurements.shape[1]} measured quantities, {share}{extra})"


@dataclass(frozen=True)
class ClosedLoop:
    """Closed loop of a plant, a feedback law, an observer and actuator limits.

    At sample k: measure y_k = g(x_k) + v_k, correct the estimate, evaluate the law for u_k, clip it, predict
    the estimate with the clipped input; the plant steps under u_k + noise and is disturbed.

    Attributes
    ----------
    plant : OneStepMap
        The simulated map. Law and observer may be designed on another map with the same states and step:
        other parameters, another integrator. A `DelayedMap` is a plant whose input acts late; a law
        designed without the delay then gets the mechanism's states only. An observer may have more
        states, such as disturbances (`ExtendedMap`), of which a law gets as many as its own map has.
    law : Law, Regulator, SteadyRegulator
    observer : KalmanFilter, ExtendedKalmanFilter, MovingHorizon, ConfigurationObserver, or None
        With None the law receives the true state.
    bounds : dict of str to (lower, upper), or None
        Limits of the actuators by input: as in `vioc.control.optimize`, but constant.
    W : float, (ndx,), (ndx, ndx) or dict of str to float
        Covariance of the disturbance that is added to x[k+1] as an error.
    W_u : float, (nu,), (nu, nu) or dict of str to float
        Covariance of the noise of the applied input.
    hold : bool
        Let law and observer have longer steps than the plant: the observer's is an integer multiple of the
        plant's, and the law's of the observer's. Each runs at its own samples; commands are constant between.

    Raises
    ------
    TypeError, ValueError
        A law or an observer of another mechanism or for another step length, or an object that is neither;
        wrong bounds, covariances or names.
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
            raise TypeError(
                f"plant: expected a map, got {type(f).__name__}{'; give its .map' * hasattr(f, 'map')}"
            )
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
        """Return the sampling periods of law and observer, in time steps of the plant."""
        f, law, observer = self.plant, as_law(self.law), self.observer
        of_law = steps_within(getattr(law, "map", f).dt, f.dt, "law", "the plant", self.hold)
        if observer is None:
            return of_law, 1
        model, sensors = getattr(observer, "map", f), getattr(observer.measurement, "map", f)
        of_observer = steps_within(model.dt, f.dt, "observer", "the plant", self.hold)
        steps_within(sensors.dt, f.dt, "the observer's measurement", "the plant", self.hold)
        check_steps(sensors.dt, model.dt, "the observer's measurement", "the observer")
        if of_law % of_observer:
            raise ValueError(
                f"law: it is asked every {of_law} steps of the plant, and the observer makes an estimate "
                f"every {of_observer}; make the law's step a whole multiple of the observer's"
            )
        return of_law, of_observer

    def _actuators(self) -> tuple[np.ndarray, np.ndarray]:
        return input_bounds(self.plant, self.bounds)

    def _noise(self) -> tuple[np.ndarray, np.ndarray]:
        """Return square roots of the covariances of disturbance and input noise."""
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
        """Simulate the closed loop from the initial state x0 (nx,).

        Parameters
        ----------
        estimate : (nx,), optional
            Estimate before the first measurement; default x0. Additional states of the observer
            have the values of its map (``ExtendedMap.join``) unless they are given.
        covariance : (ndx, ndx), optional
            Covariance of the estimate's error, for an extended filter; default its P0.
        noise : seed, Generator or None
            None simulates without noise. The same seed gives the same run to the bit.
        k0 : int
            First sample.

        Returns
        -------
        LoopRun

        Raises
        ------
        ValueError
            Wrong sizes; a law that returns values that are not finite.
        StepError
            If a step of the plant, or of the observer's prediction, does not exist; `trajectory` of the error
            is the plant's motion until then.
        """
        f, law = self.plant, as_law(self.law)
        steps = as_count(steps, "steps")
        x = f.check_state(x0, "initial state")
        observer: Any = PerfectObserver() if self.observer is None else self.observer
        model: Any = getattr(observer, "map", f)
        every = self._rates()
        if k0 % every[0]:
            raise ValueError(f"k0: the law is asked every {every[0]} steps, got {k0}; begin at one of them")
        begin = x if estimate is None else estimate
        if model.nx > f.nx and np.shape(begin) == (f.nx,):
            begin = model.join(begin)
        belief = observer.start(model.check_state(begin, "estimate"), covariance)
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
        """Return the plant's trajectory in a simulation of the loop without noise."""
        return self.simulate(x0, steps, estimate=estimate, k0=k0).trajectory

    @property
    def map(self) -> OneStepMap:
        """Discrete-time map of the plant."""
        return self.plant

    @property
    def x(self) -> np.ndarray | None:
        """Constant state (nx,) of the plant to which the law finally regulates, or None."""
        x, f = getattr(as_law(self.law), "x", None), self.plant
        return x if x is None or len(x) == f.nx else f.join(x) if len(x) < f.nx else x[: f.nx]  # type: ignore[attr-defined]

    @cached_property
    def _sensors(self) -> Any:
        """Measurement model of the observer as a function of the plant's state.
        The value is None without an observer.
        """
        measurement = self.observer and self.observer.measurement
        return measurement and measurement.on(self.plant)

    def _drawn(self, noise: Any, steps: int, k0: int, every: int) -> Noise | None:
        """Return random noise of measurements, inputs and states for all samples."""
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
        measured, applied, disturbances = np.split(normals, [ny, ny + f.nu], axis=1)
        measured = self._sensors.noise(measured) if ny else measured
        return Noise(measured, applied @ jitter.T, disturbances @ push.T)
