"""Experiment design: motions within limits that best determine given parameters.

Maths: docs/maths/identification.md, whose equations are numbered (ID).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import casadi as ca
import numpy as np

from vioc.checks import as_positive
from vioc.compile.evaluate import Evaluator
from vioc.control.control_problem import Problem
from vioc.control.costs.cost import Cost
from vioc.control.feedback.measurement import Measurement
from vioc.control.linear.manifold import has_manifold, tangent_basis
from vioc.control.linear.tangent import error_jacobian
from vioc.control.problem.status import Status
from vioc.errors import ModelError, StepError
from vioc.identification.parameter_coordinates import ParameterCoordinates
from vioc.identification.verdict import UnidentifiableDirection, identifiability
from vioc.maps.derivatives import Steps
from vioc.maps.protocol import OneStepMap
from vioc.names import quantity_name
from vioc.progress import Progress
from vioc.runs.given import trajectory_of
from vioc.runs.trajectory import Trajectory

POWERS = {"D": 0, "A": 1, "E": 8}  # exponents p of (ID-17)
REACH = 0.2  # root mean square of the first shift, in units of ranges
GROWS, SHRINKS, LEAST = 2.0, 0.25, 1e-6  # factors of the shift after success and failure; smallest shift
SHARE = 1e-3  # least gain of a step over the gain predicted by the slope
FREE = 1e-12  # relative information added to each component of the initial state, against rounding


@dataclass(frozen=True)
class Judged:
    """Value of an experiment's design criterion, and the Fisher information.
    The Fisher information describes how precisely measurements of one motion determine the parameters.
    Equations (ID-16) and (ID-17) define both.

    Attributes
    ----------
    value : float
        Value of the criterion: half of it is the logarithm of a mean relative deviation.
    information : (n, n)
        Information on the parameters, in their units, without prior knowledge.
    x, u : (N+1, ndx), (N, nu), or None
        Derivatives of the criterion by the states and inputs of the motion.
    """

    value: float
    information: np.ndarray
    x: np.ndarray | None = None
    u: np.ndarray | None = None


class Criterion:
    """Design criterion as a function of the experiment's trajectory, with gradient.

    See (ID-16) to (ID-20).

    Parameters
    ----------
    f : OneStepMap
        Map with the assumed parameter values.
    unknowns : ParameterCoordinates
    sensors : Measurement
    power : int
        Exponent p of (ID-17).
    known : bool
        True if the initial state is known, and not estimated with the parameters.
    """

    def __init__(
        self, f: OneStepMap, unknowns: ParameterCoordinates, sensors: Measurement, power: int, known: bool
    ):
        self.map, self.unknowns, self.power, self.known = f, unknowns, power, known
        names, s = list(f.parameters), f.symbols
        self.E = np.zeros((len(names), len(unknowns.names)))  # relative changes -> parameters
        for j, n in enumerate(unknowns.names):
            self.E[names.index(n), j] = unknowns.scale[j]
        jacobian = ca.densify(error_jacobian(f, sensors.expression, s.parameters))
        M = ca.SX.sym("M", *jacobian.shape)
        slope = ca.densify(error_jacobian(f, ca.dot(M, jacobian)))
        self._outputs = Evaluator(ca.Function("outputs", [s.x, s.parameters], [jacobian]))
        self._slope = Evaluator(ca.Function("slope", [s.x, s.parameters, ca.vec(M)], [slope]))
        sensors.check_noisy("design")
        self.sensors = sensors

    def _weights(self, run: Trajectory) -> np.ndarray:
        """Return the inverse covariances (N+1, ny, ny) of measurements at all samples.

        Rows and columns of quantities that are not measured at a sample are 0.
        """
        V, weights = self.sensors.V, np.zeros((len(run) + 1, *self.sensors.V.shape))
        for k in range(len(weights)):
            seen = np.flatnonzero(self.sensors.present(run.k0 + k))
            weights[k][np.ix_(seen, seen)] = np.linalg.inv(V[np.ix_(seen, seen)])
        return weights

    def __call__(self, run: Trajectory, slope: bool = True) -> Judged:
        """Return Fisher information and design criterion of a trajectory.
        With `slope`, the gradient of the criterion is included.
        """
        f, E, ndx = self.map, self.E, self.map.ndx
        steps = Steps.along(run)
        lin = f.derivatives.linearize(steps)
        T = tangent_basis(f, run.x[0]) if has_manifold(f) else np.eye(ndx)
        T = T[:, :0] if self.known else T
        r, n, N = T.shape[1], E.shape[1], len(run)
        S = np.zeros((N + 1, ndx, r + n))
        S[0, :, :r] = T
        P = lin.P @ E
        for k in range(N):
            np.matmul(lin.A[k], S[k], out=S[k + 1])
            S[k + 1, :, r:] += P[k]
        jacobians = self._outputs(run.x, f.theta)[0]
        C = jacobians[:, :, :ndx]
        D = C @ S
        D[:, :, r:] += jacobians[:, :, ndx:] @ E
        weighted = self._weights(run) @ D
        H = np.einsum("kia,kib->ab", D, weighted)
        K = np.eye(r + n)[r:]
        if r:
            size = np.sqrt(H[:r, :r].diagonal())
            size[size == 0] = 1.0  # scaled by component, as momenta may have small or large units
            start = H[:r, :r] / np.outer(size, size) + FREE * np.eye(r)
            K[:, :r] = -np.linalg.solve(start, H[:r, r:] / size[:, None]).T / size
        relative = K @ H @ K.T
        relative = (relative + relative.T) / 2
        sizes, W = np.linalg.eigh(relative)
        variances = 1 / (1 + np.maximum(sizes, 0.0))
        p = self.power
        total = float((variances**p).sum())
        value = float(np.log(variances).mean()) if p == 0 else float(np.log(total) / p)
        scale = self.unknowns.scale
        information = relative / np.outer(scale, scale)
        if not slope:
            return Judged(value, information)
        G = K.T @ ((W * -(variances ** (p + 1))) @ W.T / total) @ K
        outer = 2 * weighted @ G  # by D, (N+1, ny, r+n)
        adjoint = np.swapaxes(C, 1, 2) @ outer
        for k in range(N - 1, -1, -1):
            adjoint[k] += lin.A[k].T @ adjoint[k + 1]
        M = np.concatenate([outer @ np.swapaxes(S, 1, 2), outer[:, :, r:] @ E.T], axis=2)
        x = self._slope(run.x, f.theta, np.swapaxes(M, 1, 2).reshape(N + 1, -1))[0][:, 0]
        # (ID-20): directions (S, 0, E) of each output of a step, weighted by its adjoint
        toward = np.zeros((N, ndx, ndx + f.nu + len(E)))
        toward[:, :, :ndx] = adjoint[1:] @ np.swapaxes(S[:-1], 1, 2)
        toward[:, :, ndx + f.nu :] = adjoint[1:, :, r:] @ E.T
        second = f.derivatives.tensor(steps)[0].matrix
        steep = np.einsum("kiab,kib->ka", second, toward)
        x = x.copy()
        x[:-1] += steep[:, :ndx]
        return Judged(value, information, x, steep[:, ndx : ndx + f.nu])


@dataclass(frozen=True, repr=False)
class Design:
    """Result of an experiment design: a motion and the expected uncertainties.

    Attributes
    ----------
    trajectory : Trajectory
        Motion whose initial state and inputs are the experiment.
    values : dict of str to float
        Assumed values of the parameters.
    information, before : (n, n)
        Fisher information on the parameters from this motion, and from the guess. Initial states are
        estimated too, unless known.
    costs : list of float
        Values of the criterion, first that of the guess, then those after every step.
    converged : bool
    verdict : str
    """

    trajectory: Trajectory
    values: dict[str, float]
    information: np.ndarray
    before: np.ndarray
    scale: np.ndarray = field(repr=False)
    costs: list[float]
    converged: bool
    verdict: str

    @property
    def std(self) -> dict[str, float]:
        """Predicted standard deviations of parameters, by name; infinite if undetermined."""
        return self._deviations(self.information)

    @property
    def std_before(self) -> dict[str, float]:
        """Standard deviations of the parameters, by name, before the design.
        They are predicted for measurements of the initially guessed motion.
        """
        return self._deviations(self.before)

    @property
    def unidentifiable(self) -> list[UnidentifiableDirection]:
        """Combinations of parameters that measurements of the motion do not determine."""
        return identifiability(self.information, list(self.values), self.scale).directions

    @property
    def condition(self) -> tuple[float, float]:
        """Condition numbers of the Fisher information before and after the design."""
        S = np.outer(self.scale, self.scale)
        return float(np.linalg.cond(self.before * S)), float(np.linalg.cond(self.information * S))

    def _deviations(self, information: np.ndarray) -> dict[str, float]:
        covariance = identifiability(information, list(self.values), self.scale).covariance
        return dict(zip(self.values, map(float, np.sqrt(np.diag(covariance))), strict=True))

    def __repr__(self) -> str:
        rows = [f"Design({len(self.trajectory)} steps, {len(self.costs) - 1} taken: {self.verdict})"]
        rows.append(f"  {'parameter':<20}{'value':>12}{'std before':>14}{'std':>14}")
        for name, value in self.values.items():
            rows.append(f"  {name:<20}{value:12.5g}{self.std_before[name]:14.3g}{self.std[name]:14.3g}")
        a, b = self.condition
        return "\n".join([*rows, f"  condition of the information {a:.3g} -> {b:.3g}"])


def design(
    f: OneStepMap,
    parameters: str | Sequence[str],
    guess: Any,
    noise: Mapping[str, float] | Measurement,
    *,
    criterion: Literal["D", "A", "E"] = "D",
    bounds: Mapping[str, Any] | None = None,
    known: bool = False,
    max_iterations: int = 300,
    tolerance: float = 1e-2,
    **options: Any,
) -> Design:
    """Optimize a motion so that measurements of it best determine given parameters.

    Each step moves the guess along the criterion's exact gradient, and solves for the nearest motion within
    the limits (docs/maths/identification.md, (ID-21)). It ends at a local optimum.

    Parameters
    ----------
    f : OneStepMap
        Map with the assumed parameter values.
    parameters : names
        Parameters of the map.
    guess : Trajectory or result
        A motion of the map; its initial state is fixed unless `initial` frees it. A guess at rest has no
        gradient: give one that moves.
    noise : dict of str to float, or Measurement
        Variances of measurements at every sample, by name; a `Measurement` has its rates (`every`).
    criterion : {"D", "A", "E"}
        Minimize the determinant (D), the trace (A) or the largest eigenvalue (E, smoothed with p = 8) of the
        covariance of relative errors. The parameters' magnitudes are their prior deviations.
    bounds : dict, optional
        Bounds of states, velocities, inputs and other quantities, as in `vioc.control.optimize`.
    known : bool
        True if the initial state is exact, False if it is estimated with the parameters.
    max_iterations : int
        Largest number of steps; 0 evaluates only the guess.
    tolerance : float
        The search ends if two successive steps each reduce the mean relative variance by less than this
        fraction.
    **options
        ``constraints``, ``final``, ``initial``, ``periodic`` as in `vioc.control.optimize`.

    Returns
    -------
    Design

    Raises
    ------
    ModelError
        Unknown names; delays and biases, which are not parameters of the map.
    NotImplementedError
        For a map whose errors are not its states.
    """
    if criterion not in POWERS:
        raise ValueError(f"criterion: expected one of {', '.join(POWERS)}, got {criterion!r}")
    tolerance = as_positive(tolerance, "tolerance")
    if f.ndx != f.nx:
        raise NotImplementedError(
            f"design: errors of {type(f).__name__} are no states; use joints with angles"
        )
    run = trajectory_of(guess)
    if not isinstance(run, Trajectory):
        raise TypeError(f"guess: expected a trajectory, such as f.rollout(x0, U), got {type(guess).__name__}")
    sensors = noise.on(f) if isinstance(noise, Measurement) else Measurement(f, noise)
    unknowns = ParameterCoordinates(f, parameters, {}, sensors.names)
    odd = [*unknowns.delays, *unknowns.biases]
    if odd:
        raise ModelError(f"parameters: {odd[0]!r} is not the map's; design is for parameters of the map")
    judge = Criterion(f, unknowns, sensors, POWERS[criterion], known)
    now = judge(run, slope=max_iterations > 0)
    before, costs = now.information, [now.value]
    verdict, converged = "the guess", max_iterations == 0
    if max_iterations:
        cost, scale_x, scale_u = _nearness(f, run, bounds or {})
        problem = Problem(f, cost, len(run), bounds=bounds, dt=run.step_lengths, k0=run.k0, **options)
        inside = _nearest(problem, run, run.x, run.u)
        if inside is None:
            raise ValueError(
                "guess: no motion within the limits is found near it; loosen them, or give another"
            )
        run, now = inside, judge(inside)
        costs, shift, still = [now.value], 0.0, 0
        verdict = f"not finished in {max_iterations} steps; raise max_iterations="
        with Progress("design", max_iterations, 1) as progress:
            for _ in range(max_iterations):
                progress.advance()
                assert now.x is not None and now.u is not None
                dx, du = -now.x * scale_x**2, -now.u * scale_u**2
                means = [np.mean((d / s) ** 2) for d, s in ((dx, scale_x), (du, scale_u)) if d.size]
                length = float(np.sqrt(sum(means)))
                shift = shift or REACH / max(length, 1e-300)
                while shift * length > LEAST:
                    there = _nearest(problem, run, run.x + shift * dx, run.u + shift * du)
                    if there is not None:
                        slope = float(np.sum(now.x * (there.x - run.x)) + np.sum(now.u * (there.u - run.u)))
                        gain = now.value - judge(there, slope=False).value
                        if gain > SHARE * abs(slope):
                            break
                    shift *= SHRINKS
                else:
                    converged, verdict = True, "no shift along the gradient improves the criterion"
                    break
                run, now, shift = there, judge(there), GROWS * shift
                costs.append(now.value)
                still = still + 1 if gain < tolerance else 0
                if still == 2:
                    converged, verdict = True, "converged"
                    break
    values = {n: f.parameters[n] for n in unknowns.names}
    return Design(run, values, now.information, before, unknowns.scale, costs, converged, verdict)


def _nearness(
    f: OneStepMap, run: Trajectory, bounds: Mapping[str, Any]
) -> tuple[Cost, np.ndarray, np.ndarray]:
    """Return a cost that measures the distance of a motion from the trajectory `run`.
    The cost is the squared distance, in units of the scales of states and inputs. The scales are half the
    ranges in `bounds`, or half the trajectory's ranges where there are no bounds. They are returned, too.
    """
    limits = {quantity_name(f, n, "bounds"): b for n, b in bounds.items()}

    def ranges(names: Sequence[str], values: np.ndarray, prefix: str = "") -> np.ndarray:
        half_ranges = np.ptp(values, axis=0) / 2
        for i, n in enumerate(names):
            b = limits.get(prefix + n)
            low, high = b if isinstance(b, (tuple, list)) else (None if b is None else np.negative(b), b)
            if low is not None and high is not None:
                width = float(np.max(np.subtract(high, low))) / 2
                half_ranges[i] = width if np.isfinite(width) else half_ranges[i]
        return np.where(half_ranges > 0, half_ranges, 1.0)

    sx, su = ranges(f.state_names, run.x), ranges(f.input_names, run.u, "u.")
    x, u = ca.SX.sym("x_near", f.nx), ca.SX.sym("u_near", f.nu)
    distance = ca.sumsqr((f.symbols.x - x) / sx) / 2
    running = distance + ca.sumsqr((f.symbols.u - u) / su) / 2
    cost = Cost(f, running, distance, references=[(x, run.x), (u, run.u)], per_time=False)
    return cost, sx, su


def _nearest(problem: Problem, run: Trajectory, X: np.ndarray, U: np.ndarray) -> Trajectory | None:
    """Return the motion within the limits that is nearest to a given curve.
    The curve has states X and inputs U. Return None if no motion is found.
    """
    try:
        result = problem.with_cost(problem.cost.with_references(X, U)).solve(
            run.x[0], run, raise_on_failure=False, max_iterations=59
        )
    except StepError:
        return None
    return result.trajectory if result.status is Status.CONVERGED else None
