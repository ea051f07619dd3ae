"""`ClosedLoop`: plant, law, observer and actuator bounds in one simulation, with seeded noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.checks import check_array
from vioc.control.feedback.configurations import PerfectObserver
from vioc.control.feedback.measurement import root
from vioc.control.linear.weights import input_weight, state_weight
from vioc.control.problem.limits import input_bounds
from vioc.control.regulators.law import as_law
from vioc.errors import StepError
from vioc.maps.given import AsTrajectory
from vioc.maps.protocol import OneStepMap
from vioc.maps.steps import check_steps
from vioc.maps.trajectory import Trajectory


@dataclass(frozen=True)
class LoopRun(AsTrajectory):
    """A simulation of a closed loop.

    Attributes
    ----------
    trajectory : Trajectory
        What the plant did; its `u` is what was applied. With process noise it is no rollout.
    estimates : (N, nx)
        The state that the law was given at each sample.
    covariances : (N, ndx, ndx) or None
        Of the estimates' errors, as the observer believes.
    measurements : (N, ny)
        Without columns if there is no observer.
    commands : (N, nu)
        What the law asked for.
    saturated : (N, nu), bool
        Where that was beyond a bound.
    memory : Any
        What the law remembers at the end, such as the verdicts of `NonlinearMPC`.
    """

    trajectory: Trajectory
    estimates: np.ndarray
    covariances: np.ndarray | None
    measurements: np.ndarray
    commands: np.ndarray
    saturated: np.ndarray
    memory: Any = None

    @property
    def errors(self) -> np.ndarray:
        """difference(truth, estimate) at each sample (N, ndx)."""
        return self.trajectory.map.difference(self.trajectory.x[:-1], self.estimates)

    def __repr__(self) -> str:
        share = f"{100 * self.saturated.mean():.3g} % of commands clipped"
        return f"LoopRun({len(self)} steps, {self.measurements.shape[1]} measured quantities, {share})"


@dataclass(frozen=True)
class ClosedLoop:
    """Plant, law, observer and actuator bounds.

    At sample k: measure y_k = g(x_k) + v_k, correct the estimate, ask the law for u_k, clip it, predict the
    estimate under what is applied; the plant steps under u_k + noise and is disturbed.

    Attributes
    ----------
    plant : OneStepMap
        What is simulated. Law and observer may be designed on another map with the same states and step:
        other parameters, another integrator. A `DelayedMap` is a plant whose input acts one step late; a law
        designed without the delay is then given the mechanism's states only.
    law : Law, Regulator, SteadyRegulator
    observer : KalmanFilter, ExtendedKalmanFilter, ConfigurationObserver, or None
        None gives the law the state itself.
    lower, upper : float, (nu,), dict of str to float, or None
        What the actuators can do; names as ``NAME`` or ``u.NAME``.
    W : float, (ndx,), (ndx, ndx) or dict of str to float
        Covariance of the disturbance that is added to x[k+1] as an error.
    W_u : float, (nu,), (nu, nu) or dict of str to float
        Covariance of the noise of the applied input.

    Raises
    ------
    TypeError, ValueError
        A law or an observer that is none, is of another mechanism or for another step, bounds, covariances,
        names.
    """

    plant: OneStepMap = field(repr=False)
    law: Any
    observer: Any = None
    lower: Any = None
    upper: Any = None
    W: Any = 0.0
    W_u: Any = 0.0

    def __post_init__(self) -> None:
        f = self.plant
        if not isinstance(f, OneStepMap):
            raise TypeError(f"plant: expected a map, got {type(f).__name__}")
        law_map = getattr(as_law(self.law), "map", f)
        n = law_map.nx
        if law_map.input_names != f.input_names or law_map.state_names != f.state_names[:n]:
            raise ValueError(
                f"law: it is of a map with the states {', '.join(law_map.state_names)} and the inputs "
                f"{', '.join(law_map.input_names)}, the plant has {', '.join(f.state_names)} and "
                f"{', '.join(f.input_names)}"
            )
        missing = [n for n in ("measurement", "start", "correct", "predict") if not hasattr(self.observer, n)]
        if self.observer is not None and missing:
            raise TypeError(
                f"observer: expected a KalmanFilter, an ExtendedKalmanFilter or a ConfigurationObserver, got "
                f"{type(self.observer).__name__} without {missing[0]!r}"
            )
        measured = getattr(self.observer, "map", f)
        if measured.nx != f.nx:
            raise ValueError(f"the observer is of a map with {measured.nx} states, the plant has {f.nx}")
        sensors = getattr(getattr(self.observer, "measurement", None), "map", measured)
        for g, what in ((law_map, "law"), (measured, "observer"), (sensors, "the observer's measurement")):
            check_steps(g.dt, f.dt, what, "the plant")
        self._actuators()
        self._noise()

    def _actuators(self) -> tuple[np.ndarray, np.ndarray]:
        return input_bounds(self.plant, self.lower, self.upper)

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
            What the observer believes before the first measurement; default x0.
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
        if steps < 1:
            raise ValueError(f"steps: expected at least 1, got {steps}")
        x = f.check_state(x0, "initial state")
        rng = None if noise is None else np.random.default_rng(noise)
        push, jitter = self._noise()
        low, high = self._actuators()
        observer: Any = PerfectObserver() if self.observer is None else self.observer
        measure = observer.measurement
        given = getattr(getattr(law, "map", None), "nx", f.nx)
        belief = observer.start(x if estimate is None else f.check_state(estimate, "estimate"), covariance)
        memory = law.start()
        rows: list[tuple] = []
        states = [x]
        for k in range(k0, k0 + steps):
            y = x if measure is None else measure.sample(x, rng)
            belief = observer.correct(k, belief, y)
            command, memory = law.apply(k, belief.x[:given], memory)
            command = check_array(command, (f.nu,), f"command at sample {k}", f.input_names)
            applied = np.clip(command, low, high)
            real = applied if rng is None else applied + jitter @ rng.standard_normal(f.nu)
            try:
                step = f.rollout(x, real[None], k0=k, warn=False)
            except StepError as error:
                error.trajectory = _run(f, k0, states, rows)
                raise
            rows.append(
                (belief.x, belief.P, y[: 0 if measure is None else None], command, applied, real, step)
            )
            belief = observer.predict(k, belief, applied)
            x = step.x[1] if rng is None else f.retract(step.x[1], push @ rng.standard_normal(f.ndx))
            states.append(x)
        estimates, P, y, commands, applied, *_ = zip(*rows, strict=True)
        return LoopRun(
            _run(f, k0, states, rows),
            np.array(estimates),
            None if P[0] is None else np.array(P),
            np.array(y),
            np.array(commands),
            np.array(commands) != np.array(applied),
            memory,
        )


def _run(f: OneStepMap, k0: int, states: list[np.ndarray], rows: list[tuple]) -> Trajectory:
    """The plant's trajectory through the states; rows end with the input and the rollout of each step."""
    t = (k0 + np.arange(len(states))) * f.dt
    u, steps = np.zeros((len(rows), f.nu)), [row[-1] for row in rows]
    u[:] = [row[-2] for row in rows] or 0.0
    multipliers = np.concatenate([np.zeros((0, len(f.multiplier_names))), *(s.multipliers for s in steps)])
    splits = {k: split for k, step in enumerate(steps) for split in step.splits.values()}
    return Trajectory(f, t, np.array(states), u, multipliers, k0=k0, splits=splits)
