"""Result of an identification: estimates, their uncertainty and identifiability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np
from scipy.special import gammaincinv, ndtri  # scipy.stats takes longer to import than all of vioc

from vioc.control.feedback.measurement import Measurement
from vioc.drawing import plots
from vioc.errors import OptimizationError
from vioc.identification.begin import beginning
from vioc.identification.fit import Fit, fit
from vioc.identification.inertias import consistent, flat
from vioc.identification.parameter_coordinates import DELAY, ParameterCoordinates
from vioc.identification.records import Record, SimulationGrid, as_records
from vioc.identification.segments import Segments
from vioc.identification.verdict import UnidentifiableDirection, identifiability
from vioc.maps.protocol import OneStepMap

SEGMENTS = 20  # number of segments of a validation record
FELT = 0.5  # smallest change by halving the step that is reported, in standard deviations
ROUNDING = 1e-8  # ratio of noise to measured values that is rounding: no sensor is so precise
CORRELATED = 0.2  # correlation of successive residuals above which intervals are too short


@dataclass(frozen=True, repr=False)
class Fitted:
    """Measured record and its prediction by the identified map, to compare them.

    Attributes
    ----------
    record : Record
    names : tuple of str
        Measured quantities.
    measured, predicted : (K, ny)
    states : (N+1, nx)
        Predicted states at `t`.
    t : (N+1,)
    std : (ny,)
        Standard deviations of the noise.
    errors : (K, ny)
        Predicted - measured, in [-pi, pi] for angles; NaN where nothing was measured.
    units : dict of str to str
    """

    record: Record
    names: tuple[str, ...]
    measured: np.ndarray
    predicted: np.ndarray
    states: np.ndarray
    t: np.ndarray
    std: np.ndarray
    errors: np.ndarray = field(repr=False)
    units: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        share, white, lines = self.share, self.whiteness, []
        for (n, rms), s in zip(self.rms.items(), self.std, strict=True):
            unit = self.units.get(n, "")
            beside = f"{rms / s:.2f} of the noise, {100 * share[n]:.6g} % explained"
            lines.append(f"{n} rms {rms:.3g} {unit}".rstrip() + f" ({beside}, correlation {white[n]:+.2f})")
        return f"Fitted({self.record.name}, {len(self.measured)} samples: {'; '.join(lines)})"

    @property
    def rms(self) -> dict[str, float]:
        """Root mean square of the prediction errors, by the measured quantity's name."""
        return {n: float(np.sqrt(np.nanmean(e**2))) for n, e in zip(self.names, self.errors.T, strict=True)}

    @property
    def whiteness(self) -> dict[str, float]:
        """Correlation of successive prediction errors; near 0 for white noise.
        The keys are the names of the measured quantities.
        """
        correlations = {}
        for n, e in zip(self.names, self.errors.T, strict=True):
            pairs = np.stack([e[:-1], e[1:]])[:, np.isfinite(e[:-1]) & np.isfinite(e[1:])]
            power = float(np.nanmean(e**2))
            correlations[n] = float(np.mean(pairs[0] * pairs[1]) / power) if pairs.size and power > 0 else 0.0
        return correlations

    @property
    def share(self) -> dict[str, float]:
        """Fraction of the measurements' variance that the prediction explains.
        The keys are the names of the measured quantities.
        """
        spread = np.nanvar(self.measured, axis=0)
        errors = np.nanmean(self.errors**2, axis=0)
        return {
            n: float(1 - e / v) if v > 0 else np.nan
            for n, e, v in zip(self.names, errors, spread, strict=True)
        }

    def plot(self, ax: Any = None) -> Any:
        """Plot measured and predicted values and their difference; return the axes."""
        return plots().plot_fitted(self, ax=ax)


@dataclass(frozen=True, repr=False)
class Identification:
    """Result of an identification: estimated parameters and their uncertainty.

    Attributes
    ----------
    map : OneStepMap
        Map with the estimated parameters.
    values : dict of str to float
        Identified parameters, delays (``delay.INPUT``, s) and biases (``bias.QUANTITY``).
    covariance : (n, n)
        In the order of `values`; infinite variances for parameters that are not identifiable.
    halving : dict of str to float
        Change of each value by halving the step, to first order. The discretization error of a second-order
        integrator is 4/3 of that; intervals do not include it.
    unidentifiable : list of UnidentifiableDirection
        Combinations of parameters that are not identifiable.
    given : tuple of str
        Parameters which, if known, make the others identifiable.
    inputs : list of dict of str to (k,)
        Values of unknown inputs at their knots, for each record.
    fits : list of Fitted
    noise : dict of str to float
        Standard deviations of the noise, by which residuals were divided.
    told : bool
        True if the noise was given, False if it was estimated from the residuals.
    freedom : int
        Number of observations minus number of unknowns.
    costs : list of float
        Half the sum of squares in every iteration.
    converged : bool
    verdict : str
    method : str
    seconds : float
    sensors : Measurement
    dt : float
        Longest step, s.
    whole : dict of str to tuple of str
        Names of the parameters of bodies whose ten inertial parameters are all estimated.
    """

    map: OneStepMap
    values: dict[str, float]
    covariance: np.ndarray
    halving: dict[str, float]
    unidentifiable: list[UnidentifiableDirection]
    given: tuple[str, ...]
    inputs: list[dict[str, np.ndarray]]
    fits: list[Fitted]
    noise: dict[str, float]
    told: bool
    freedom: int
    costs: list[float]
    converged: bool
    verdict: str
    method: str
    seconds: float
    sensors: Measurement = field(repr=False)
    dt: float = 0.0
    whole: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of(
        segments: Segments,
        search: Fit,
        information: tuple[np.ndarray, np.ndarray],
        finer: np.ndarray,
        costs: list[float],
        given: bool,
        method: str,
        seconds: float,
    ) -> Identification:
        """Return the identification result that follows from a Gauss-Newton search."""
        unknowns, trial, prediction = segments.unknowns, search.trial, search.prediction
        theta = unknowns.evaluate(trial.z)[0]
        analysis = identifiability(information[0], unknowns.names, _scales(unknowns, theta), information[1])
        values = dict(zip(unknowns.names, map(float, theta), strict=True))
        inputs: list[dict[str, np.ndarray]] = []
        c, first = trial.c, 0
        for _ in segments.grids:
            inputs.append({})
            for name, k in segments.unknown_inputs.items():
                inputs[-1][name] = c[first : first + k].copy()
                first += k
        assert prediction.J is not None and prediction.E is not None
        freedom = segments.count - (prediction.J.shape[1] - prediction.E.shape[0])
        noise = dict(zip(segments.sensors.names, map(float, segments.std), strict=True))
        result = segments.map_at(trial.z)
        step = float(max(g.lengths.max() for g in segments.grids))
        return Identification(
            map=result,
            values=values,
            covariance=analysis.covariance,
            halving=dict(zip(unknowns.names, map(float, finer), strict=True)),
            unidentifiable=analysis.directions,
            given=analysis.given,
            inputs=inputs,
            fits=_fits(segments, prediction),
            noise=noise,
            told=given,
            freedom=freedom,
            costs=costs,
            converged=search.converged,
            verdict=search.verdict,
            method=method,
            seconds=seconds,
            sensors=segments.sensors,
            dt=step,
            whole=dict(unknowns.bodies),
        )

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    @property
    def std(self) -> dict[str, float]:
        """Standard deviations of the estimates, by name; infinite for unidentifiable ones."""
        return {n: float(s) for n, s in zip(self.values, np.sqrt(np.diag(self.covariance)), strict=True)}

    def interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Return confidence intervals of the parameters, by name.
        They are valid if the prediction errors are white noise with the standard deviations of the sensors.
        """
        k = float(ndtri(0.5 + level / 2))
        return {n: (v - k * self.std[n], v + k * self.std[n]) for n, v in self.values.items()}

    @property
    def bodies(self) -> dict[str, bool]:
        """Flags by body name, True if the body's inertia is physically possible."""
        return {n: consistent(numbers) for n, numbers in self._inertias().items()}

    def _inertias(self) -> dict[str, np.ndarray]:
        f = self.map
        if not f.mechanism.inertias():
            return {}
        every = ca.Function("bodies", [f.symbols.parameters], list(f.mechanism.inertias().values()))(f.theta)
        every = every if isinstance(every, (tuple, list)) else (every,)
        return {n: np.array(v).ravel() for n, v in zip(f.mechanism.inertias(), every, strict=True)}

    @property
    def doubts(self) -> list[str]:
        """Reasons why confidence intervals may be too short, or estimates wrong, as texts.
        The list is empty if there are no such reasons.
        """
        reasons = [] if self.converged else [f"the search has not converged: {self.verdict}"]
        if self._exact:
            reasons.append(
                "records are exact to rounding, which sets the intervals; give noise= for those of a sensor"
            )
            return reasons + self._strange()
        if self.told and self.freedom > 0:
            chi = 2 * self.costs[-1]
            low, high = 2 * gammaincinv(self.freedom / 2, [1e-4, 1 - 1e-4])  # quantiles of chi squared
            if not low <= chi <= high:
                reasons.append(
                    f"residuals are {np.sqrt(chi / self.freedom):.2f} times the given noise: the model lacks "
                    "something, or the variances are wrong"
                )
        for fitted in self.fits:
            for n, r in fitted.whiteness.items():
                if abs(r) > CORRELATED:
                    reasons.append(
                        f"{fitted.record.name}: residuals of {n} are correlated ({r:+.2f} from sample to "
                        "sample): intervals are too short"
                    )
        shifts = {n: abs(self.halving[n]) / s for n, s in self.std.items() if np.isfinite(s) and s > 0}
        worst = max(shifts, key=shifts.__getitem__, default="")
        if worst and shifts[worst] > FELT:
            reasons.append(
                f"half the step changes {worst} by {shifts[worst]:.1f} deviations: steps are too long for "
                "these intervals; lower dt="
            )
        return reasons + self._strange()

    @property
    def _exact(self) -> bool:
        """Flag, True if the estimated noise is so small that it is only rounding errors."""
        if self.told:
            return False
        largest = np.max([np.nanmax(np.abs(f.measured), axis=0) for f in self.fits], axis=0)
        return bool(np.all(list(self.noise.values()) <= ROUNDING * np.maximum(largest, 1.0)))

    def _strange(self) -> list[str]:
        """Return warnings about bodies whose inertia is degenerate or impossible."""
        texts = []
        for n, numbers in self._inertias().items():
            if flat(numbers) and any(np.isfinite(self.std[p]) for p in self.whole.get(n, ())):
                texts.append(f"{n} has a degenerate inertia: its intervals are not valid")
        return texts + [f"the inertia of {n} is not physical" for n, fine in self.bodies.items() if not fine]

    def validate(self, records: Record | Sequence[Any] | Any) -> list[Fitted]:
        """Return predictions of further records, which were not used in the fit.

        Only their initial states are fitted.

        Raises
        ------
        OptimizationError
            If no initial state is found.
        """
        records = as_records(records, self.sensors.names)
        f = self.map
        others = [n for n in self.values if n not in f.parameters]
        unknowns = ParameterCoordinates(f, others, {}, self.sensors.names, self.values, fixed=True)
        delays = [n[len(DELAY) :] for n in unknowns.delays]
        grids = [SimulationGrid(r, f, self.dt, delays) for r in records]
        steps = max(len(g.lengths) for g in grids) // SEGMENTS + 1
        segments = Segments(f, self.sensors, grids, unknowns, {}, steps)
        search = fit(segments, beginning(segments), 60, 1e-3)
        if not search.converged:
            raise OptimizationError(f"validate: no start fits the record: {search.verdict}")
        return _fits(segments, search.prediction)

    def plot(self, ax: Any = None) -> Any:
        """Plot the first record, its prediction and the residuals; return the axes."""
        return self.fits[0].plot(ax=ax)

    def __str__(self) -> str:
        lines = [f"{'':24}{'value':>14}{'deviation':>12}{'relative':>10}"]
        for n, v in self.values.items():
            s = self.std[n]
            deviation = (
                f"{s:12.2g}{100 * s / abs(v) if v else np.inf:9.2g}%"
                if np.isfinite(s)
                else f"{'infinite':>12}"
            )
            lines.append(f"{n:24}{v:14.7g}{deviation}")
        for d in self.unidentifiable:
            lines.append(f"not identifiable: {d}")
        if self.given:
            lines.append(f"identifiable if known: {', '.join(self.given)}")
        noise = ", ".join(f"{n} {s:.2g}" for n, s in self.noise.items())
        lines.append(f"noise {'given' if self.told else 'found'}: {noise}")
        lines += [f"doubt: {d}" for d in self.doubts]
        ended = "" if self.verdict == "converged" else f" ({self.verdict})"
        ends = f"{'converged' if self.converged else 'not converged'}{ended}"
        lines.append(f"{ends}, {len(self.costs) - 1} iterations, {self.seconds:.2f} s")
        return "\n".join(lines)

    __repr__ = __str__


def _scales(unknowns: ParameterCoordinates, theta: np.ndarray) -> np.ndarray:
    """Return the scale of each parameter, which defines its relative error.

    They are the magnitudes of estimated values. Complete inertias, delays, biases and values of 0 have the
    scales of `unknowns`.
    """
    whole = {n for numbers in unknowns.bodies.values() for n in numbers}
    has_scale = np.array(
        [
            n not in whole and t != 0 and n in unknowns.parameters
            for n, t in zip(unknowns.names, theta, strict=True)
        ]
    )
    return np.where(has_scale, np.maximum(np.abs(theta), 1e-3 * unknowns.scale), unknowns.scale)


def _fits(segments: Segments, prediction: Any) -> list[Fitted]:
    fits, first = [], 0
    for grid, y, g, x in zip(segments.grids, segments.y, prediction.outputs, prediction.states, strict=True):
        errors, good = np.full(y.shape, np.nan), np.isfinite(y)
        errors[good] = prediction.residuals[first : first + good.sum()]
        first += int(good.sum())
        names, std = segments.sensors.names, segments.std
        units = {n: segments.map.unit(n) for n in names}
        fits.append(Fitted(grid.record, names, y, g, x, grid.ends, std, errors * std, units))
    return fits
