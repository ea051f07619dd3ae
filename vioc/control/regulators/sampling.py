"""Simulation of a plant under a feedback law and an observer, sample by sample.

If law and observer have symbolic formulas, many samples run in one call of a CasADi function

    (x, x^, memory), numbers of the sample -> (x, x^, memory) of the next sample, and the records

made of the kernels of the plant and of the observer's map (`OneStepMap.kernel`), the sensors, and the
formulas of law and observer. The plant's `backend` evaluates it, in compiled C or CasADi's virtual machine. A
step that this function does not solve is computed by the maps themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.compile.programs import CHUNK, Program
from vioc.control.regulators.formulas import (
    Estimate,
    LawFormula,
    Measured,
    ObserverFormula,
    clipped,
    formula_of,
)
from vioc.errors import StepError
from vioc.maps.protocol import Kernel, OneStepMap
from vioc.maps.space import TURN
from vioc.runs.trajectory import Trajectory

SOLVED = 0.5  # threshold of the function's output that is 0 if the steps are solved, 1 if not
LARGE = 100_000  # approximate operations of derivatives above which compiling takes too long
AGAIN = 16  # samples computed in one call after a sample that was computed separately


class PerfectObserver:
    """Observer that returns the exact state.
    It is used in closed loops that have no other observer.
    """

    def start(self, x: np.ndarray, P: Any = None) -> Estimate:
        return Estimate(x)

    def correct(self, k: int, estimate: Estimate, y: np.ndarray) -> Estimate:
        return Estimate(y)

    def predict(self, k: int, estimate: Estimate, u: np.ndarray) -> Estimate:
        return estimate


@dataclass
class LoopSamples:
    """Recorded signals of a closed-loop simulation that is in progress.

    Samples before `done` are complete; rows are those of `LoopRun`.

    Attributes
    ----------
    x : (N+1, nx)
    estimates, measurements, commands, applied, inputs, multipliers : (N, ...)
        `applied` is within bounds, `inputs` include noise.
    covariances : list of N arrays, or of None
    belief, memory : object
        States of observer and law before sample `done`.
    """

    k0: int
    x: np.ndarray
    estimates: np.ndarray
    measurements: np.ndarray
    commands: np.ndarray
    applied: np.ndarray
    inputs: np.ndarray
    multipliers: np.ndarray
    covariances: list
    belief: Any
    memory: Any
    done: int = 0


class Noise(NamedTuple):
    """Noise of a simulation, added to measurements, inputs and states at each sample.

    Noise of the states is an error of the state.
    """

    measured: np.ndarray
    applied: np.ndarray
    moved: np.ndarray


@dataclass(frozen=True)
class Sampler:
    """Simulator of a closed loop that consists of a plant, a law and an observer.

    Attributes
    ----------
    plant, law, observer
        As in `ClosedLoop`; the observer may be a `PerfectObserver`.
    measure : Measurement or None
        Measurement of the plant.
    low, high : (nu,)
        Bounds of the inputs.
    every : (int, int)
        Sampling periods of the law and of the observer, in steps of the plant.
    """

    plant: OneStepMap
    law: Any
    observer: Any
    measure: Any
    low: np.ndarray
    high: np.ndarray
    every: tuple[int, int] = (1, 1)

    @property
    def model(self) -> OneStepMap:
        """Map that the observer uses as its model; the plant if there is no observer."""
        return getattr(self.observer, "map", self.plant)

    def run(
        self, x: np.ndarray, belief: Any, steps: int, k0: int = 0, noise: Noise | None = None
    ) -> LoopSamples:
        """Simulate the closed loop for `steps` samples from the plant's state x.
        The argument `belief` is the observer's first estimate.

        Errors of law, observer and steps are raised. A StepError of the plant or of the observer's prediction
        has the plant's trajectory until then.
        """
        f, ny = self.plant, 0 if self.measure is None else len(self.measure.names)
        sizes = (len(belief.x), ny, *[f.nu] * 3, len(f.multiplier_names))
        states = np.concatenate([x[None], np.empty((steps, f.nx))])
        y, v, w, a, b, c = (np.empty((steps, size)) for size in sizes)
        s = LoopSamples(k0, states, y, v, w, a, b, c, [None] * steps, belief, self.law.start())
        together = self._formulas is not None and (noise is None or f.ndx == f.nx)
        size = CHUNK
        while s.done < steps:
            last = min(s.done + size * self.every[1], steps)
            if together:
                self._together(s, noise, last - s.done)
            size = min(2 * size, CHUNK) if s.done == last else AGAIN
            if s.done < last:
                self._one(s, noise)
        return s

    def trajectory(self, s: LoopSamples) -> Trajectory:
        """Return the plant's trajectory of the samples simulated so far."""
        n = s.done
        t = (s.k0 + np.arange(n + 1)) * self.plant.dt
        X, U, impulses = s.x[: n + 1], s.inputs[:n], s.multipliers[:n]
        return Trajectory(self.plant, t, X, U, impulses, k0=s.k0)

    # -- one sample -------------------------------------------------------------------------------

    def _one(self, s: LoopSamples, noise: Noise | None) -> None:
        f, i, (of_law, of_observer) = self.plant, s.done, self.every
        k, x = s.k0 + i, s.x[i]
        sample, between = divmod(k, of_observer)
        belief = s.belief
        y = np.full(s.measurements.shape[1], np.nan)
        if not between:
            y = x if self.measure is None else self.measure.sampled(x, noise and noise.measured[i], sample)
            belief = self.observer.correct(sample, belief, y)
        command = s.commands[i - 1] if k % of_law else None
        memory = s.memory
        if command is None:
            command, memory = self.law.apply(k // of_law, belief.x[: self._given], memory)
            command = check_array(command, (f.nu,), f"command at sample {k}", f.input_names)
        applied = np.clip(command, self.low, self.high)
        real = applied if noise is None else applied + noise.applied[i]
        try:
            step = f.rollout(x, real[None], k0=k, warn=False)
        except StepError as error:
            error.trajectory = self.trajectory(s)
            raise
        s.estimates[i] = np.nan if between else belief.x
        s.covariances[i] = belief.P if belief.P is None or not between else np.full_like(belief.P, np.nan)
        s.measurements[i] = y[: s.measurements.shape[1]]
        s.commands[i], s.applied[i], s.inputs[i], s.multipliers[i] = (
            command,
            applied,
            real,
            step.multipliers[0],
        )
        s.x[i + 1] = step.x[1] if noise is None else f.retract(step.x[1], noise.moved[i])
        s.done = i + 1
        if between == of_observer - 1:
            try:
                belief = self.observer.predict(sample, belief, applied)
            except StepError as error:
                failed = error.saying(f"prediction of the estimate behind step {k}: {error}", k)
                failed.trajectory = self.trajectory(s)
                raise failed from error
        s.belief, s.memory = belief, memory

    @property
    def _given(self) -> int:
        """Number of entries of the estimate that are passed to the feedback law.
        They are the first entries, which are the state of the law's map.
        """
        return getattr(self.law, "map", self.plant).nx

    # -- many samples -----------------------------------------------------------------------------

    @cached_property
    def _formulas(self) -> tuple[LawFormula, ObserverFormula | None] | None:
        """Symbolic formulas of law and observer.
        The value is None if the closed loop has no symbolic form.
        """
        law, observer = formula_of(self.law), None
        if not isinstance(self.observer, PerfectObserver):
            observer = formula_of(self.observer)
            if observer is None or self.model.ndx != self.model.nx or not self.measure.always:
                return None
            if observer.linearizes and _slopes(self.model) is None:
                return None
        maps = self.plant, self.model
        if law is None or any(f.kernel is None for f in maps):
            return None
        return law, observer

    def _together(self, s: LoopSamples, noise: Noise | None, count: int) -> None:
        """Simulate up to `count` samples in one call of a program.
        The program is built from the formulas of the plant, the feedback law and the observer.

        The first sample is `s.done`. The simulation ends before a step that the function does not solve. It
        begins and ends at samples of the observer.
        """
        assert self._formulas is not None
        (law, observer), f, g, i = self._formulas, self.plant, self.model, s.done
        (of_law, of_observer), k = self.every, s.k0 + i
        first, count = k // of_observer, count - count % of_observer
        if k % of_observer or not count or (observer and not observer.holds(first, s.belief)):
            return
        estimate = (np.zeros(0), np.zeros(0)) if observer is None else (s.belief.x, observer.stored(s.belief))
        command = s.commands[i - 1] if i else np.zeros(f.nu)  # not used at a first sample
        carry = s.x[i], *estimate, law.stored(s.memory), command
        samples = k + np.arange(count)
        seen_at = samples // of_observer
        rows = [_repeated(law.rows, samples // of_law)]
        rows += [np.zeros(0) if observer is None else _repeated(observer.rows, seen_at)]
        sizes = s.measurements.shape[1], f.nu, f.nx
        added = [np.zeros(n) for n in sizes] if noise is None else [a[i : i + count] for a in noise]
        times = np.stack([samples * f.dt, seen_at * g.dt, (seen_at - 1) * g.dt], axis=1)
        rows += [*added, self.low, self.high, times, np.array([f.dt, g.dt])]
        between = samples % of_observer
        rows += [np.stack([samples % of_law == 0, between == 0, between == of_observer - 1], axis=1) * 1.0]
        program = self._program([a.size for a in carry], [a.shape[-1] for a in rows[:2]])
        start = np.concatenate(carry)
        values, _, _ = program.accumulate(start, [*rows, f.theta, g.theta], count, len(start), SOLVED, count)
        after, impulses, _, *kept, memories = values
        done = len(after) - len(after) % of_observer
        if not done:
            return
        to, seen = slice(i, i + done), np.flatnonzero(between[:done] == 0)
        s.x[i + 1 : i + 1 + done], s.multipliers[to] = after[:done, : f.nx], impulses[:done]
        places = s.estimates, s.measurements, s.commands, s.applied, s.inputs
        for place, block in zip(places, kept, strict=True):
            place[to] = block[:done]
        unseen = np.flatnonzero(between[:done]) + i
        s.estimates[unseen] = s.measurements[unseen] = np.nan
        _, z, memory, of_law_kept, _ = np.split(after[done - 1], np.cumsum([a.size for a in carry])[:-1])
        s.memory = law.restored(of_law_kept.copy())
        if observer is None:
            s.belief = Estimate(s.estimates[i + done - 1])
        else:
            s.belief = observer.restored(first + len(seen), z.copy(), memory.copy())
            covariances = observer.covariances(first, memories[seen])
            if covariances is not None:
                s.covariances[to] = [np.full_like(covariances[0], np.nan)] * done
                for j, P in zip(seen + i, covariances, strict=True):
                    s.covariances[j] = P
        s.done += done

    def _program(self, carries: list[int], numbers: list[int]) -> Program:
        """Return the program that simulates one sample of the closed loop.
        The argument `carries` has the sizes of the vectors that are passed from sample to sample. The
        argument `numbers` has the sizes of the data of law and observer, such as gains.

        The plant's map stores it, and closed loops with equal formulas share it.
        """
        assert self._formulas is not None
        law, observer = self._formulas
        f, g = _kernel(self.plant).function, _kernel(self.model).function
        sensors = self.measure and (self.measure.key, self.observer.measurement.key)
        rates = self.every == (1, 1), sensors
        key = "loop", law.key, observer and observer.key, rates, id(f), id(g), *carries, *numbers
        programs = _built(self.plant)
        if key not in programs:
            program = self.plant.backend.prepare(self._function(carries, numbers))
            programs[key] = program, f, g, self.law  # kept alive, as the key has their addresses
        return programs[key][0]

    def _function(self, carries: list[int], numbers: list[int]) -> ca.Function:
        """Return the CasADi function that simulates one sample of the closed loop.

        Its inputs are the vector of the states of plant, observer and law and of the last command; numbers of
        law and observer; noise; bounds; times and step lengths of plant and observer; three flags (0 or 1)
        that tell if the law computes a command, the observer measures, and the observer predicts; and
        parameters of both maps. Its outputs are the same vector at the next sample; multipliers; 0 if all
        steps are solved; the estimate; the measurement y; the command; the applied input; the input with
        noise; and the observer's memory after the measurement.
        """
        assert self._formulas is not None
        (law, observer), f, g = self._formulas, self.plant, self.model
        plant, model, sym = _kernel(f), _kernel(g), ca.MX.sym
        ny = 0 if self.measure is None else len(self.measure.names)
        carry, (of_law, of_observer) = sym("carry", sum(carries)), (sym("numbers", n) for n in numbers)
        noise = [sym("noise", n) for n in (ny, f.nu, f.nx)]
        low, high, times, lengths, when = (sym("a", n) for n in (f.nu, f.nu, 3, 2, 3))
        (t, t_seen, t_before), (dt, dt_seen) = ca.vertsplit(times), ca.vertsplit(lengths)
        commands, measures, predicts = ca.vertsplit(when)
        theta, theta_seen = sym("theta", len(f.parameters)), sym("theta", len(g.parameters))
        x, z, kept, memory, before = ca.vertsplit(carry, [0, *np.cumsum(carries).tolist()])
        y, estimate, z_next = ca.MX(0, 1), x, ca.MX(0, 1)

        def at_samples(condition: ca.MX, now: ca.MX, otherwise: ca.MX) -> ca.MX:
            return now if self.every == (1, 1) else ca.if_else(condition, now, otherwise)

        if observer is not None:
            y = self.measure.formula(x, theta)[0] + noise[0]
            q = self.measure.resolution
            for i in map(int, np.flatnonzero(q > 0)):
                y[i] -= q[i] * ca.remainder(y[i] / q[i], 1.0)
            expected, C = self.observer.measurement.formula(z, theta_seen)
            e = y - expected
            wrapped = self.observer.measurement.wrapped  # not the plant's: the observer judges what it sees
            e -= TURN * ca.DM(wrapped) * ca.floor(e / TURN + 0.5)
            measured = Measured(y, e, C, t_before, dt_seen, theta_seen)
            estimate, after = observer.expression(z, kept, measured, of_observer)
            estimate, kept = at_samples(measures, estimate, z), at_samples(measures, after, kept)
        remembered = kept
        command, of_law_kept = _called(law.expression, estimate[: self._given], memory, of_law)
        command, memory = at_samples(commands, command, before), at_samples(commands, of_law_kept, memory)
        (applied,) = _called(lambda *a: [clipped(*a)], command, low, high)
        real = applied + noise[1]
        x_next, multipliers, error = plant.function(x, real, t, dt, theta)
        solved = error <= plant.tolerance  # false for NaN
        if observer is not None:
            step = estimate, applied, t_seen, dt_seen, theta_seen
            z_next, impulses = estimate, ca.MX(0, 1)
            if observer.predicts:
                z_next, impulses, error = model.function(*step)
                solved *= at_samples(predicts, error <= model.tolerance, ca.MX(1))

            def linearized() -> tuple[ca.MX, ca.MX]:
                slopes = _slopes(g)
                assert slopes is not None
                return tuple(slopes(*step[:2], z_next, impulses, *step[2:]))

            after = observer.ahead(kept, applied, linearized, of_observer)
            z_next, kept = at_samples(predicts, z_next, estimate), at_samples(predicts, after, kept)
        ahead = ca.vertcat(x_next + noise[2], z_next, kept, memory, command)
        arguments = [carry, of_law, of_observer, *noise, low, high, times, lengths, when, theta, theta_seen]
        outputs = [ahead, multipliers, 1 - solved, estimate, y, command, applied, real, remembered]
        return ca.Function("loop", arguments, outputs)


def _repeated(rows: Callable[[int, int], np.ndarray], samples: np.ndarray) -> np.ndarray:
    """Return gains, or other data of a law or observer, at the samples (n,).
    The function `rows` returns the data of consecutive samples. The result has a row for each entry of
    `samples`, in which a sample may be repeated. Constant data are returned as one vector (m,).
    """
    first, count = int(samples[0]), int(samples[-1] - samples[0]) + 1
    numbers = rows(first, count)
    return numbers[samples - first] if numbers.ndim == 2 and count < len(samples) else numbers


def _called(expression: Callable[..., Any], *given: ca.MX) -> list[ca.MX]:
    symbols = [ca.SX.sym("a", a.numel()) for a in given]
    outputs = [ca.densify(ca.SX(o)) for o in expression(*symbols)]
    return ca.Function("formula", symbols, outputs, {"cse": True}).call(list(given))


def _slopes(f: OneStepMap) -> ca.Function | None:
    """Return a CasADi function of the linearization A, B of a map's step.
    Return None if the map has no equations of its steps or the function would be too large.

    The function differentiates the map's step equations or its explicit formula. Its arguments are (x, u,
    x_next, multipliers, t, dt, parameters).
    """
    source = f.explicit if f.residual is None else f.residual
    nm = len(f.multiplier_names)
    if source is None or source.n_instructions() * (2 * f.nx + f.nu + nm) > LARGE:
        return None
    sym = ca.SX.sym if source.is_a("SXFunction") else ca.MX.sym
    sizes = f.nx, f.nu, f.nx, nm, 1, 1, len(f.parameters)
    args = [sym("a", n) for n in sizes]
    x, u, x_next, impulses, *rest = args
    if f.residual is None:
        slopes = [ca.jacobian(source.call([x, u, *rest])[0], z) for z in (x, u)]
        return ca.Function("slopes", args, [ca.densify(s) for s in slopes])
    rows = source.call([x, u, x_next, impulses, *rest])[0]
    jacobians = [ca.densify(ca.jacobian(rows, ca.vertcat(*z))) for z in ([x_next, impulses], [x], [u])]
    given = [ca.MX.sym("a", n) for n in sizes]
    J, J_x, J_u = ca.Function("by", args, jacobians, {"cse": True} if sym is ca.SX.sym else {}).call(given)
    gradient = -ca.solve(J, ca.horzcat(J_x, J_u))[: f.nx, :]
    return ca.Function("slopes", given, [gradient[:, : f.nx], gradient[:, f.nx :]])


def _built(f: Any) -> dict[Any, Any]:
    """Return the dict of the functions and programs that have been built for a map.
    A map without such a dict, which contains another map as `inner`, uses the dict of that map.
    """
    while not hasattr(f, "built") and hasattr(f, "inner"):
        f = f.inner
    cache: dict[Any, Any] = getattr(f, "built", {})
    return cache


def _kernel(f: OneStepMap) -> Kernel:
    assert f.kernel is not None
    return f.kernel
