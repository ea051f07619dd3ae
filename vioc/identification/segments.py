"""Residuals of an identification by multiple shooting.
They are residuals of the measurements, and defects between the segments of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import casadi as ca
import numpy as np
from scipy import sparse

from vioc.compile.evaluate import Evaluator
from vioc.control.feedback.measurement import Measurement
from vioc.control.linear.manifold import has_manifold, tangent_basis
from vioc.control.linear.tangent import error_jacobian
from vioc.errors import ConstraintError, ModelError, StepError
from vioc.identification.parameter_coordinates import DELAY, ParameterCoordinates
from vioc.identification.records import SimulationGrid
from vioc.maps.derivatives import Steps
from vioc.maps.made.extended import BIAS
from vioc.maps.protocol import OneStepMap
from vioc.maps.space import short_way


class Segment(NamedTuple):
    """Part of a record, from step `first` up to step `last`, exclusive.
    Its initial state is an unknown of the identification, unless the record gives it.
    """

    record: int
    first: int
    last: int


@dataclass(frozen=True)
class Trial:
    """Values of all unknowns of an identification, with which motions are predicted.
    The unknowns are the parameters, the unknown inputs and the initial states of segments.

    Attributes
    ----------
    z : (nz,)
        Coordinates of the parameters.
    c : (nc,)
        Values of unknown inputs at their knots, ordered by record.
    nodes : (M, nx)
        Initial states of the segments.
    """

    z: np.ndarray
    c: np.ndarray
    nodes: np.ndarray


@dataclass
class Prediction:
    """Predicted measurements and residuals of all records in an identification.
    They are computed for given values of the unknowns: parameters, unknown inputs and initial states of
    segments.

    Attributes
    ----------
    residuals : (m,)
        (predicted - measured) / standard deviation of all measurements: (ID-2).
    gaps : (g,)
        Defects: ends of segments minus initial states of the next ones, in the coordinates of `bases`:
        (ID-4).
    J, E : sparse (m, n), (g, n)
        Derivatives of residuals and defects by (z, c, initial states in the coordinates of `bases`).
    bases : list of (ndx, r)
    outputs : list of (K, ny)
        Predicted measurements of each record.
    states : list of (N+1, nx)
    ends : list of (nx,)
        Final states of the segments.
    """

    residuals: np.ndarray
    gaps: np.ndarray
    outputs: list[np.ndarray]
    states: list[np.ndarray]
    ends: list[np.ndarray]
    J: sparse.csr_matrix | None = None
    E: sparse.csr_matrix | None = None
    bases: list[np.ndarray] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """Half the sum of squared residuals, which the identification minimizes."""
        return 0.5 * float(self.residuals @ self.residuals)


class Segments:
    """Records divided into segments, whose initial states are unknowns.
    If a record gives its initial state, that state is not an unknown.

    Parameters
    ----------
    f : OneStepMap
    sensors : Measurement
    grids : sequence of SimulationGrid
    unknowns : ParameterCoordinates
    unknown_inputs : dict of str to int
        Unrecorded inputs and their numbers of knots.
    steps : int or None
        Number of steps of a segment; None means one segment for each record.

    Attributes
    ----------
    plainly : bool
        True to take derivatives by the parameters, not by their coordinates: derivatives by coordinates may
        vanish at the end of a search (a flat body).
    """

    plainly = False

    def __init__(
        self,
        f: OneStepMap,
        sensors: Measurement,
        grids: Sequence[SimulationGrid],
        unknowns: ParameterCoordinates,
        unknown_inputs: Mapping[str, int],
        steps: int | None,
    ):
        self.map, self.sensors, self.grids, self.unknowns = f, sensors, list(grids), unknowns
        self.unknown_inputs = dict(unknown_inputs)
        self.pieces = [
            Segment(r, a, min(a + (steps or len(g.lengths)), len(g.lengths)))
            for r, g in enumerate(grids)
            for a in range(0, len(g.lengths), steps or len(g.lengths))
        ]
        self.hats = [{n: g.hats(k) for n, k in self.unknown_inputs.items()} for g in grids]
        self.per_record = sum(self.unknown_inputs.values())
        self.nz, self.nc = len(unknowns), self.per_record * len(grids)
        self.y = [self._measured(g) for g in grids]
        sensors.check_noisy("identify")
        self.std = np.sqrt(np.diag(sensors.V))
        s = f.symbols
        g = sensors.expression
        slope = error_jacobian(f, g, s.parameters)
        self._outputs = Evaluator(ca.Function("y", [s.x, s.parameters], [g, ca.densify(slope)]))
        names = list(f.parameters)
        self._parameter_columns = [(names.index(n), unknowns.names.index(n)) for n in unknowns.parameters]
        self._biases = [
            (sensors.names.index(n[len(BIAS) :]), unknowns.names.index(n)) for n in unknowns.biases
        ]
        self._delays = [unknowns.names.index(DELAY + n) for n in (d[len(DELAY) :] for d in unknowns.delays)]

    def _measured(self, grid: SimulationGrid) -> np.ndarray:
        none = np.full(len(grid.record), np.nan)
        return np.stack([grid.record.measured.get(n, none) for n in self.sensors.names], axis=1)

    @property
    def count(self) -> int:
        """Number of residuals, one for each measured value."""
        return int(sum(np.isfinite(y).sum() for y in self.y))

    def map_at(self, z: np.ndarray) -> OneStepMap:
        """Return the map with the parameter values theta(z) at the coordinates z.

        Raises `StepError` if a parameter is not finite or a body is not physical.
        """
        values = self.unknowns.evaluate(z)[0]
        if not np.isfinite(values).all():
            raise StepError("a step is too long for the parameters", 0, float("nan"), "not finite")
        try:
            return self.map.trying(**self.unknowns.of(values))
        except ModelError as error:
            message = f"a step is too long for the parameters: {error}"
            raise StepError(message, 0, float("nan"), "not finite") from None

    def slopes(self, z: np.ndarray) -> np.ndarray:
        """Return the Jacobian (n, nz) of parameters with respect to their coordinates."""
        return np.eye(len(self.unknowns)) if self.plainly else self.unknowns.evaluate(z)[1]

    def inputs(self, trial: Trial, record: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs of a record in all steps, and their derivatives.
        The derivatives are with respect to the unknowns of the identification.

        Shapes (N, nu), (N, nu, nz + nc); the unknowns are (z, c).
        """
        grid = self.grids[record]
        theta, J = self.unknowns.evaluate(trial.z)[0], self.slopes(trial.z)
        U, by_delays = grid.inputs(theta[self._delays])
        D = np.zeros((*U.shape, self.nz + self.nc))
        if self._delays:
            D[:, :, : self.nz] = by_delays @ J[self._delays]
        column = self.nz + record * self.per_record
        for name, hats in self.hats[record].items():
            i, some = self.map.input_names.index(name), slice(column, column + hats.shape[1])
            U[:, i] = hats @ trial.c[some.start - self.nz : some.stop - self.nz]
            D[:, i, some] = hats
            column = some.stop
        return U, D

    def moved(self, trial: Trial, step: np.ndarray, bases: Sequence[np.ndarray]) -> Trial:
        """Return the values of the unknowns after a Gauss-Newton step.
        The new initial states satisfy the constraints of the map.
        """
        z, c = trial.z + step[: self.nz], trial.c + step[self.nz : self.nz + self.nc]
        nodes, column, f = trial.nodes.copy(), self.nz + self.nc, self.map_at(z)
        for j, T in enumerate(bases):
            nodes[j] = f.retract(nodes[j], T @ step[column : column + T.shape[1]])
            if T.shape[1] and f.multiplier_names:
                nodes[j] = f.mechanism.moved(nodes[j], np.zeros(len(f.mechanism.coordinates)))
            column += T.shape[1]
        return Trial(z, c, nodes)

    def predict(self, trial: Trial, derivatives: bool = True) -> Prediction:
        """Return the predicted measurements for given values of the unknowns.
        Raises `StepError` if a step of the simulation cannot be solved.
        """
        f = self.map_at(trial.z)
        drives = [self.inputs(trial, r) for r in range(len(self.grids))]
        runs = []
        for (r, a, b), start in zip(self.pieces, trial.nodes, strict=True):
            U = np.ascontiguousarray(drives[r][0][a:b])
            runs.append(self.grids[r].run(f, start, U, a))
        states = []
        for r in range(len(self.grids)):
            parts = [run.x[:-1] for run, p in zip(runs, self.pieces, strict=True) if p.record == r]
            last = [run.x[-1:] for run, p in zip(runs, self.pieces, strict=True) if p.record == r][-1]
            states.append(np.concatenate([*parts, last]))
        theta = self.unknowns.evaluate(trial.z)[0]
        bias = np.zeros(len(self.sensors.names))
        for i, j in self._biases:
            bias[i] = theta[j]
        outputs, slopes, errors = [], [], []
        for grid, x, y in zip(self.grids, states, self.y, strict=True):
            g, slope = self._outputs(x[grid.sample_indices], f.theta)
            outputs.append(g[..., 0] + bias)
            slopes.append(slope)
            d = outputs[-1] - y
            errors.append(np.where(self.sensors.wrapped, short_way(d), d) / self.std)
        residuals = np.concatenate([e[np.isfinite(e)] for e in errors])
        bases = self._bases(f, trial) if derivatives or len(self.pieces) > len(self.grids) else []
        ends = [run.x[-1] for run in runs]
        gaps = self._gaps(f, trial, ends, bases)
        prediction = Prediction(residuals, gaps, outputs, states, ends, bases=bases)
        if derivatives:
            lin = f.derivatives.linearize(Steps.joined([Steps.along(run) for run in runs]))
            prediction.J, prediction.E = self._jacobians(trial, lin, [d for _, d in drives], slopes, bases)
        return prediction

    def _bases(self, f: OneStepMap, trial: Trial) -> list[np.ndarray]:
        """Return a basis of the possible changes of each segment's initial state.
        The basis is empty if the initial state is known.
        """
        bases = []
        for (r, a, _), x in zip(self.pieces, trial.nodes, strict=True):
            fixed = a == 0 and self.grids[r].record.known
            T = tangent_basis(f, x) if has_manifold(f) else np.eye(f.ndx)
            bases.append(T[:, :0] if fixed else T)
        return bases

    def _joints(self) -> list[int]:
        """Return the indices of those segments that continue the preceding segment."""
        return [j for j in range(1, len(self.pieces)) if self.pieces[j].first > 0]

    def _gaps(
        self, f: OneStepMap, trial: Trial, ends: Sequence[np.ndarray], bases: Sequence[np.ndarray]
    ) -> np.ndarray:
        gaps = [bases[j].T @ f.difference(trial.nodes[j], ends[j - 1]) for j in self._joints()]
        return np.concatenate(gaps) if gaps else np.zeros(0)

    def seamless(self, trial: Trial, prediction: Prediction) -> Trial:
        """Remove jumps between segments in directions that do not affect the motion.
        A jump is the difference between the end state of a segment and the initial state of the next segment.
        Momenta along the gradients of constraints are such directions.

        Return trial values with the same motions, but with initial states that do not differ from the end of
        the previous segment in these directions. Otherwise the differences would become defects, because the
        bases of the possible changes rotate with the initial states.
        """
        if not has_manifold(self.map):
            return trial
        nodes, f = trial.nodes.copy(), self.map_at(trial.z)
        for j in self._joints():
            d, T = f.difference(nodes[j], prediction.ends[j - 1]), prediction.bases[j]
            try:
                start = f.retract(nodes[j], d - T @ (T.T @ d))
                nodes[j] = f.mechanism.moved(start, np.zeros(len(f.mechanism.coordinates)))
            except ConstraintError:  # too far apart; a later trial will be closer
                continue
        return Trial(trial.z, trial.c, nodes)

    def spread(self, prediction: Prediction) -> np.ndarray | None:
        """Return the mean square of each entry of the vector of defects between segments.
        For each component of the state, the squares are averaged over all boundaries between segments. Return
        None if all defects are zero.
        """
        joints = self._joints()
        if not joints or not prediction.gaps.any():
            return None
        ends = np.cumsum([0, *(prediction.bases[j].shape[1] for j in joints)])
        gaps = [
            prediction.bases[j] @ prediction.gaps[a:b]
            for j, a, b in zip(joints, ends, ends[1:], strict=False)
        ]
        square = np.mean(np.square(gaps), axis=0)
        square = np.maximum(square, 1e-12 * square.max())
        return np.concatenate([(prediction.bases[j] ** 2).T @ square for j in joints])

    def sizes(self, bases: Sequence[np.ndarray], diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return scales of the unknowns (n,) and of the defects between segments (g,).
        The scales of unknowns are lower bounds of the information's `diagonal`, and those of defects are
        standard deviations. They are needed because unknowns, and defects, have different units.

        Quantities of different kinds are scaled separately: the unit of a momentum is not relevant to an
        angle.
        """
        w, information = self.nz + self.nc, np.zeros(self.map.ndx)
        columns = w + np.concatenate([[0], np.cumsum([T.shape[1] for T in bases])])
        for T, a, b in zip(bases, columns, columns[1:], strict=False):
            information = np.maximum(information, T**2 @ diagonal[a:b])
        most = max(float(diagonal.max(initial=0.0)), 1e-300)
        information[information == 0] = most
        input_scale = diagonal[self.nz : w].max(initial=0.0) or most
        least = [np.zeros(self.nz), np.full(self.nc, input_scale), *((T**2).T @ information for T in bases)]
        joints = self._joints()
        gaps = [(bases[j] ** 2).T @ (1 / information) for j in joints]
        return np.concatenate(least), np.sqrt(np.concatenate(gaps)) if gaps else np.zeros(0)

    def _sensitivities(self, lin, drives: Sequence[np.ndarray], J: np.ndarray, bases: Sequence[np.ndarray]):
        """Return derivatives of the states in all segments with respect to the unknowns.
        The unknowns of a segment are the coordinates of its initial state, the coordinates z of the
        parameters, and the values c of unknown inputs. The first result has an array (steps + 1, ndx,
        unknowns) for each segment. The second result is the number of columns for the initial state. See
        (ID-3).
        """
        w, ndx = self.nz + self.nc, self.map.ndx
        lengths = [p.last - p.first for p in self.pieces]
        first_steps = np.concatenate([[0], np.cumsum(lengths)])
        n, M = max(lengths), len(self.pieces)
        widest = max(T.shape[1] for T in bases)
        A, Q = np.zeros((n, M, ndx, ndx)), np.zeros((n, M, ndx, w))
        for j, ((r, a, b), first) in enumerate(zip(self.pieces, first_steps, strict=False)):
            some = slice(first, first + b - a)
            A[: b - a, j] = lin.A[some]
            Q[: b - a, j] = lin.B[some] @ drives[r][a:b]
            for i, col in self._parameter_columns:
                Q[: b - a, j, :, : self.nz] += lin.P[some, :, i, None] * J[col]
        S = np.zeros((n + 1, M, ndx, widest + w))
        for j, T in enumerate(bases):
            S[0, j, :, : T.shape[1]] = T
        for k in range(n):
            np.matmul(A[k], S[k], out=S[k + 1])
            S[k + 1, :, :, widest:] += Q[k]
        return [S[: lengths[j] + 1, j] for j in range(M)], widest

    def _jacobians(
        self, trial: Trial, lin, drives, slopes, bases
    ) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
        J = self.slopes(trial.z)
        S, widest = self._sensitivities(lin, drives, J, bases)
        w, ndx = self.nz + self.nc, self.map.ndx
        columns = w + np.concatenate([[0], np.cumsum([T.shape[1] for T in bases])])
        rows, blocks, gaps = [], [], []
        for j, (r, a, b) in enumerate(self.pieces):
            indices = self.grids[r].sample_indices
            last = b == len(self.grids[r].lengths)
            samples = np.flatnonzero((indices >= a) & ((indices < b) | ((indices == b) & last)))
            size = bases[j].shape[1]
            C, G = slopes[r][samples][:, :, :ndx], slopes[r][samples][:, :, ndx:]
            D = C @ S[j][indices[samples] - a]
            for i, col in self._parameter_columns:
                D[:, :, widest : widest + self.nz] += G[:, :, i, None] * J[col]
            for i, col in self._biases:
                D[:, i, widest : widest + self.nz] += J[col]
            keep = np.isfinite(self.y[r][samples])
            D = (D / self.std[:, None])[keep]
            blocks.append(D)
            rows.append((size, columns[j]))
        parts = []
        for D, (size, col) in zip(blocks, rows, strict=True):
            common = sparse.csr_matrix(D[:, widest:])
            parts.append(_placed(common, sparse.csr_matrix(D[:, :size]), col, w, columns[-1]))
        for j in self._joints():
            end, T, size = S[j - 1][-1], bases[j], bases[j - 1].shape[1]
            row = np.zeros((T.shape[1], columns[-1]))
            row[:, :w] = T.T @ end[:, widest:]
            row[:, columns[j - 1] : columns[j - 1] + size] = T.T @ end[:, :size]
            row[:, columns[j] : columns[j + 1]] = -np.eye(T.shape[1])
            gaps.append(sparse.csr_matrix(row))
        E = sparse.vstack(gaps, format="csr") if gaps else sparse.csr_matrix((0, columns[-1]))
        return sparse.vstack(parts, format="csr"), E


def _placed(
    common: sparse.csr_matrix, initial: sparse.csr_matrix, column: int, w: int, n: int
) -> sparse.csr_matrix:
    """Return the sparse Jacobian of one segment's residuals by all n unknowns.
    The first w unknowns, parameters and unknown inputs, are common to all segments and have the derivatives
    `common`. The derivatives by the initial state are `initial`, in the columns from `column` on.
    """
    m, size = initial.shape
    blank, after = sparse.csr_matrix((m, column - w)), sparse.csr_matrix((m, n - column - size))
    return sparse.hstack([common, blank, initial, after], format="csr")
