"""Identification of base parameters by a linear least-squares problem.

See (ID-12) to (ID-15).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.interpolate import make_lsq_spline
from scipy.linalg import qr, solve_triangular
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri

from vioc.checks import as_names, as_positive
from vioc.identification.attenuation import SplineNoise, fit, spline_noise
from vioc.identification.inertias import consistent
from vioc.identification.physical import TEN, length_of, physical_set
from vioc.identification.records import Record, as_records
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name
from vioc.runs.signals import sample

DEGREE = 5  # degree of splines, so that accelerations are smooth
RANK = 1e-8  # smaller singular values count as zero, for columns of norm one of trees
RANK_LOOPS = 1e-5  # the same threshold for samples whose loops are closed up to noise
DRAWN = 400  # number of random states for the rank of a tree
FAR = 3.0  # standard deviations above which a distance is reported
TIE = 1e-7  # preference for the first of columns of equal norm, so that rounding does not decide
ROUNDING = 1e-9  # relative differences of times that are rounding
STEP = 1e-6  # relative step of difference quotients
SMALL = 1e-6  # smaller relative coefficients are omitted from names


@dataclass(frozen=True)
class SmoothMotion:
    """Smooth motion fitted to a record: positions, velocities and accelerations.

    q, v, a are (N, nq) and include prescribed motions; u (N, nu) are inputs of forces and t (N,) times. The
    ends of the record are omitted. `noise` is that of each variable's spline.
    """

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    u: np.ndarray
    noise: tuple[SplineNoise, ...] = ()


def motion(f: OneStepMap, record: Record, knots: float) -> SmoothMotion:
    """Fit quintic splines to a record by least squares, and return the motion.

    `knots` is the interval between knots, s. Two such intervals at either end are omitted.
    """
    variables = f.system.variables
    lacking = [n for n in variables if n not in record.measured]
    if lacking:
        raise ValueError(f"{record.name}: the regressor needs every configuration, got none of {lacking[0]}")
    t = record.t
    nudge = ROUNDING * (t[-1] - t[0])  # rounding of times shall not decide on knots or samples
    spans = max(5, round(min((t[-1] - t[0] - nudge) / knots, len(t))))  # more than samples cannot be fitted
    inner = np.linspace(t[0], t[-1], spans + 1)
    ends = np.repeat(inner[[0, -1]], DEGREE)
    places = np.concatenate([ends[:DEGREE], inner, ends[DEGREE:]])
    keep = (t >= inner[2] - nudge) & (t <= inner[-3] + nudge)
    rows, noise = [], []
    for n in variables:
        y, good = record.measured[n], np.isfinite(record.measured[n])
        y = np.unwrap(y[good]) if n in f.wrap else y[good]
        try:
            spline = make_lsq_spline(t[good], y, places, DEGREE)
        except (ValueError, np.linalg.LinAlgError) as error:
            raise ValueError(
                f"{record.name}: {n}: {len(y)} samples determine no spline with knots every {knots:g} s; "
                "take a larger knots="
            ) from error
        noise.append(spline_noise(spline, t[good], y, t[keep]))
        rows.append([spline.derivative(i)(t[keep]) if i else spline(t[keep]) for i in range(3)])
    q, v, a = (np.array([row[i] for row in rows]).T for i in range(3))
    signals = by_name(record.inputs, f.input_names, f"{record.name}: inputs", prefix=INPUTS)
    U = np.zeros((len(t), len(f.system.inputs)))
    for i, n in enumerate(f.system.inputs):
        if n in signals:
            U[:, i] = _at_samples(signals[n], t, f"{record.name}: input {n!r}")
    return SmoothMotion(t[keep], q, v, a, U[keep], tuple(noise))


def _at_samples(value: Any, t: np.ndarray, what: str) -> np.ndarray:
    """Return the values of a signal at the sample times.
    Where the signal jumps, the value is the mean of both sides of the jump.

    Signals that are constant between samples jump at the samples.
    """
    if not callable(value) and np.shape(value) == (len(t) - 1,):
        values = sample(value, t[1:], what)
        return np.concatenate([values[:1], (values[1:] + values[:-1]) / 2, values[-1:]])
    return sample(value, t, what)


@dataclass(frozen=True)
class Torques:
    """Generalized forces of a record's inputs, and their prediction from the motion.

    `measured` and `predicted` are arrays (N, nd) at the times `t` (N,), with a column for each variable in
    `names`.
    """

    t: np.ndarray
    names: tuple[str, ...]
    measured: np.ndarray
    predicted: np.ndarray

    @property
    def relative(self) -> dict[str, float]:
        """RMS prediction error of each force, relative to the RMS measured force.
        The keys are the names of the variables on which the generalized forces act.
        """
        size = np.sqrt(np.mean(self.measured**2, axis=0))
        error = np.sqrt(np.mean((self.predicted - self.measured) ** 2, axis=0))
        return {n: float(e / s) for n, e, s in zip(self.names, error, size, strict=True) if s > 0}


@dataclass(frozen=True, repr=False)
class BaseParameters:
    """Result of `base_parameters`: estimated combinations of inertial parameters.

    Attributes
    ----------
    names : tuple of str
        The identifiable combinations, such as ``"link2.mx + 0.2 link3.m"``.
    values, std : (nb,)
        Estimated values of these combinations, and their standard deviations.
    covariance : (nb, nb)
    numbers : dict of str to (10,)
        Mass, centre of mass and inertia about it of each body. They are physically possible, and have the
        estimated combinations to within their deviations. What the combinations do not determine is near the
        initial guess.
    linear : dict of str to float
        Parameters of forces.
    base : (nb, n)
        Combinations of the regressor's n parameters: ``values = base @ parameters``.
    physical : (n,)
        The parameters in `numbers` and `linear`, in the order of the regressor.
    apart : float
        Root mean square distance of the combinations of `physical` from `values`, in standard deviations. If
        it is above 3, no bodies have these combinations, and the model or the splines are wrong.
    deviations : dict of str to float
        Standard deviations of the forces' residuals by variable, N m or N. For a mechanism with loops, those
        of forces times `arms`, by direction of its motion.
    arms : (nd,)
        A length of the mechanism for variables in metres and 1 for angles, which makes forces and torques
        comparable.
    biased : tuple of str
        Variables driven only by an input of unknown gain. The input's noise makes the gain, and with it all
        estimates for these variables, too small, by more than `std`.
    unclear : int
        Number of independent combinations of base parameters whose terms are mostly noise of the measured
        motion. They stay at the model's values; `std` may be too small.
    smoothed : float
        Estimated error, in standard deviations, that splines cause by smoothing the motion, if their
        residuals show it.
    """

    map: OneStepMap
    names: tuple[str, ...]
    values: np.ndarray
    covariance: np.ndarray
    numbers: dict[str, np.ndarray]
    linear: dict[str, float]
    base: np.ndarray
    physical: np.ndarray
    apart: float
    deviations: dict[str, float]
    knots: float
    regressor: Any = field(repr=False)
    columns: np.ndarray = field(repr=False)
    arms: np.ndarray = field(repr=False)
    biased: tuple[str, ...] = ()
    unclear: int = 0
    smoothed: float = 0.0

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))

    def interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Return confidence intervals of the base parameters, by name.
        They are valid if the residuals are white noise.
        """
        k = float(ndtri(0.5 + level / 2))
        rows = zip(self.names, self.values, k * self.std, strict=True)
        return {n: (float(v - s), float(v + s)) for n, v, s in rows}

    @property
    def bodies(self) -> dict[str, bool]:
        """Flags by body name, True if the body's inertia is physically possible."""
        return {n: consistent(v) for n, v in self.numbers.items()}

    def validate(self, record: Any, physical: bool = True) -> Torques:
        """Return the measured and predicted generalized forces of one more record.
        The measured forces are those of the record's inputs. They are predicted from the record's motion,
        with the physical inertias if `physical` is True, else with the base parameters.

        For a mechanism with loops, both contain only the components of the forces that move it. If gains of
        inputs were estimated, the measured forces are computed with the estimated gains.
        """
        one, *others = as_records(record)
        if others:
            raise ValueError(f"validate: expected one record, got {1 + len(others)}")
        m = motion(self.map, one, self.knots)
        Y, rest, Dh = self.regressor(m.q, m.v, m.a, m.u, m.t)
        idle, free, _ = self.regressor(m.q, m.v, m.a, 0 * m.u, m.t)
        parameters = self.physical if physical else self.columns @ self.values
        nd = len(self.map.system.dynamic)
        N = _free_directions(Dh[:, :, :nd] * self.arms)
        P = (np.swapaxes(N, 1, 2) @ N if N is not None else np.eye(nd)) * self.arms / self.arms[:, None]
        measured_forces, predicted_forces = free - rest + (idle - Y) @ parameters, idle @ parameters + free
        both = (np.einsum("...ij,...j->...i", P, e[:, :nd]) for e in (measured_forces, predicted_forces))
        return Torques(m.t, tuple(self.map.system.dynamic), *both)

    def __str__(self) -> str:
        lines = [f"{len(self.names)} identifiable combinations of {self.base.shape[1]} numbers"]
        for n, v, s in zip(self.names, self.values, self.std, strict=True):
            lines.append(f"{v:14.6g} +- {s:8.2g}  {n}")
        if self.apart > FAR:
            lines.append(
                f"doubt: no bodies have these combinations, the nearest are {self.apart:.1f} deviations off; "
                "check the model and knots="
            )
        if self.smoothed > 1:
            lines.append(
                f"doubt: splines with knots every {self.knots:g} s smooth the motion, with errors of about "
                f"{self.smoothed:.1f} deviations; take shorter knots=, or use identify"
            )
        if self.unclear:
            lines.append(
                f"doubt: the motion's noise hides {self.unclear} of {len(self.names)} combinations; "
                "they stay at the model's values; record larger motions, or use identify"
            )
        if self.biased:
            lines.append(
                f"doubt: an input of unknown gain alone drives {', '.join(self.biased)}: its noise makes "
                "the estimates there too small; give the gain, or filter the input"
            )
        lines += [f"the inertia of {n} is not physical" for n, fine in self.bodies.items() if not fine]
        return "\n".join(lines)

    __repr__ = __str__


def base_parameters(
    f: OneStepMap, records: Any, linear: str | Sequence[str] = (), *, knots: float = 0.1
) -> BaseParameters:
    """Estimate the identifiable combinations of a mechanism's inertial parameters.

    The method is linear least squares, corrected for the noise of the motion in the equations. Parameters in
    which forces are linear may be included. All ten inertial parameters of every body are considered,
    declared or not; other values (lengths, axes) are the model's. Mechanisms may be trees or have loops,
    whose equations are projected onto the motions that the loops allow.

    Parameters
    ----------
    f : OneStepMap
        An integrator of a mechanism; the physical set is near its inertias.
    records : Record or run (`Record.of`), or several
        Records with every configuration and the inputs.
    linear : names
        Parameters of forces to be estimated too: friction, stiffness, gains of motors.
    knots : float
        Interval between the knots of the motion's splines, s: shorter than the fastest part of the motion,
        longer than several samples.

    Returns
    -------
    BaseParameters

    Raises
    ------
    ModelError
        If there is no mechanism, or forces are not linear in a parameter.
    ValueError
        A record that is too short or lacks a configuration; an axis without a force of known magnitude.
    """
    records = as_records(records)
    linear, knots = as_names(linear, "linear"), as_positive(knots, "knots")
    regressor = f.mechanism.regressor(linear)
    parts = [motion(f, r, knots) for r in records]
    equations = [regressor(m.q, m.v, m.a, m.u, m.t) for m in parts]
    length = length_of(regressor.numbers, np.concatenate([_terms(regressor, m) for m in parts]))
    whole = np.array([length if f.unit(n) == "m" else 1.0 for n in f.system.variables])
    arms = whole[: len(f.system.dynamic)]
    blocks = [_projected(Y, rest, Dh, arms) for Y, rest, Dh in equations]
    W, y = np.concatenate([b[0] for b in blocks]), np.concatenate([b[1] for b in blocks])  # (N, r, n), (N, r)
    if not y.any():
        raise ValueError(
            "base_parameters: expected a force of known size in the records, got none, so that only ratios "
            "are identifiable; leave a gain, friction or stiffness out of linear="
        )
    rank_matrices = (
        _random_regressors(f, regressor, parts, whole) * arms[:, None] if not f.multiplier_names else W
    )
    pivots, K, shares = _independent(
        rank_matrices, _weights(regressor, length), RANK_LOOPS if f.multiplier_names else RANK
    )
    base = np.zeros((len(pivots), W.shape[2]))
    others = np.setdiff1d(np.arange(W.shape[2]), pivots)
    base[np.arange(len(pivots)), pivots], base[:, others] = 1.0, K
    if not f.multiplier_names:
        check_forces(W[:, :, pivots] * arms[:, None], y, f.system.dynamic, RANK)
    estimate = fit(
        [np.dstack([b[0][:, :, pivots], b[1]]) for b in blocks],
        [m.noise for m in parts],
        [_changes(regressor, m, arms, whole, pivots, e[2]) for m, e in zip(parts, equations, strict=True)],
        base @ regressor.start,
        bool(f.multiplier_names),
    )
    std = np.sqrt(np.diag(estimate.covariance))
    variances, V = np.linalg.eigh(estimate.covariance / np.outer(std, std))
    R = (V / np.sqrt(np.maximum(variances, np.finfo(float).eps * variances[-1]))).T / std
    reach = _reach(W / estimate.sizes[:, None], y / estimate.sizes)
    physical, numbers, apart = physical_set(regressor, base, estimate.values, R, length, reach)
    names = [_combination(*row, regressor.names) for row in zip(pivots, base, shares, strict=True)]
    columns = np.zeros((W.shape[2], len(pivots)))
    columns[pivots, np.arange(len(pivots))] = 1.0
    rows = (
        f.system.dynamic
        if W.shape[1] == len(f.system.dynamic)
        else [f"direction {i}" for i in range(W.shape[1])]
    )
    return BaseParameters(
        map=f,
        names=tuple(names),
        values=estimate.values,
        covariance=estimate.covariance,
        numbers=numbers,
        linear=dict(zip(linear, map(float, physical[10 * len(regressor.bodies) :]), strict=True)),
        base=base,
        physical=physical,
        apart=apart,
        unclear=estimate.unclear,
        smoothed=estimate.smoothed,
        deviations=dict(zip(rows, map(float, estimate.deviations), strict=True)),
        knots=knots,
        regressor=regressor,
        columns=columns,
        arms=arms,
        biased=by_own_gain(regressor, parts, y, f.system.dynamic) if not f.multiplier_names else (),
    )


def _terms(regressor: Any, m: SmoothMotion) -> np.ndarray:
    """Return the regressor (samples, nq, n) of a mechanism at rest, and changes of it.
    A regressor is the matrix that multiplies the parameters in the equations of motion. At rest all
    velocities and accelerations are 0. Each change results from the measured acceleration of one variable,
    while all other accelerations and all velocities are 0.

    Some samples of the motion are used. The matrices at rest and the changes follow each other along the
    first axis. Their sum is zero for bodies that no force moves.
    """
    some = slice(None, None, 1 + len(m.t) // DRAWN)
    q, a, u, t = m.q[some], m.a[some], m.u[some], m.t[some]
    rest = regressor(q, 0 * q, 0 * q, u, t)[0]
    return np.concatenate([rest, *[regressor(q, 0 * q, a * e, u, t)[0] - rest for e in np.eye(q.shape[1])]])


def _projected(
    Y: np.ndarray, rest: np.ndarray, Dh: np.ndarray, arms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Project the equations of motion onto the directions that constraints allow.
    The projected equations do not contain constraint forces. Return their regressor matrix, which multiplies
    the parameters, and their right-hand side.

    At each sample the directions have a basis that is orthonormal in the variables divided by `arms`; the
    choice of units then does not matter. Dh are the Jacobians of the constraints, and `rest` are the terms
    without parameters.
    """
    nd = len(arms)
    Y, rest = Y[:, :nd], rest[:, :nd]
    N = _free_directions(Dh[:, :, :nd] * arms)
    return (Y, -rest) if N is None else (N * arms @ Y, -np.einsum("kij,kj->ki", N * arms, rest))


def _changes(
    regressor: Any, m: SmoothMotion, arms: np.ndarray, whole: np.ndarray, pivots: np.ndarray, Dh: np.ndarray
) -> Callable[[int], np.ndarray]:
    """Return a function that differentiates the regression equations y = W c.
    Its argument is the index of a variable. It returns the derivatives of [W, y], an array (3, N, r, n + 1),
    with respect to the position, the velocity and the acceleration of this variable, by difference quotients.
    Dh are the constraint Jacobians along the motion `m`.
    """
    motions, nd = (m.q, m.v, m.a), len(arms)
    sizes = [1.0, *(np.abs(x / whole).max() or 1.0 for x in motions[1:])]
    basis = _free_directions(Dh[:, :, :nd] * arms)

    def moved(order: int, i: int, step: float) -> np.ndarray:
        changed = list(motions)
        changed[order] = changed[order] + step * np.eye(len(whole))[i]
        Y, rest, Dh = regressor(*changed, m.u, m.t)
        W, y = _projected(Y, rest, Dh, arms)
        E = np.dstack([W[:, :, pivots], y])
        N = _free_directions(Dh[:, :, :nd] * arms)  # turned to the basis along the motion, which is arbitrary
        return E if basis is None or N is None else basis @ np.swapaxes(N, 1, 2) @ E

    fixed = moved(0, 0, 0.0)

    def change(i: int) -> np.ndarray:
        steps = STEP * whole[i] * np.array(sizes)
        return np.array([(moved(k, i, step) - fixed) / step for k, step in enumerate(steps)])

    return change


def _weights(regressor: Any, length: float) -> np.ndarray:
    """Return scales (n,) of the regressor's columns, which make them comparable."""
    ten = max(regressor.numbers[:, 0], default=1.0) * length**TEN
    sizes = np.abs(regressor.start[len(regressor.names) - len(regressor.linear) :])
    return np.concatenate([np.tile(ten, len(regressor.bodies)), sizes])


def _reach(W: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the values (n,) of parameters that each alone explain all forces.
    With its value, the forces of one parameter are as large as all measured forces y, as root mean squares.
    The value is 0 for a parameter without effect.
    """
    sizes = np.linalg.norm(W, axis=(0, 1))
    return np.divide(np.linalg.norm(y), sizes, out=np.zeros_like(sizes), where=sizes > 0)


def _free_directions(Dh: np.ndarray) -> np.ndarray | None:
    """Return an orthonormal basis of the directions in which constraints allow motion.

    The basis is the rows of an array (N, r, nd), for N constraint Jacobians Dh. The result is None if there
    are no constraints.
    """
    if not Dh.shape[1]:
        return None
    _, sizes, V = np.linalg.svd(Dh)
    return V[:, int((sizes[0] > 1e-9 * sizes[0, 0]).sum()) :]


def _random_regressors(
    f: OneStepMap, regressor: Any, parts: Sequence[SmoothMotion], arms: np.ndarray
) -> np.ndarray:
    """Return the regressor matrices of a mechanism without loops at random states.
    The rank of all matrices together is the number of identifiable parameter combinations.

    States are as large as those of the records; metres are scaled by `arms` (nq,). Inputs, prescribed motions
    and times are within the records' ranges, so that constants stay constant.
    """
    rng = np.random.default_rng(0)
    sizes = [max(np.abs(getattr(m, n) / arms).max() for m in parts) for n in ("v", "a")]
    q, v, a = (arms * rng.uniform(-s, s, (DRAWN, len(arms))) for s in (np.pi, *sizes))
    nd = len(f.system.dynamic)

    def between(name: str, start: int = 0) -> np.ndarray:
        samples = np.concatenate([getattr(m, name) for m in parts])[..., start:]
        return rng.uniform(samples.min(axis=0), samples.max(axis=0), (DRAWN, *samples.shape[1:]))

    for name, array in (("q", q), ("v", v), ("a", a)):
        array[:, nd:] = between(name, nd)
    return regressor(q, v, a, between("u"), between("t"))[0][:, :nd]


def _independent(
    W: np.ndarray, weights: np.ndarray, least: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Select linearly independent columns of the matrix W.
    Return their indices (r,); the coefficients K (r, others) by which they are combined to the other columns;
    and an array (r, n), which is K for columns of norm one, and 0 for the independent columns.

    A column is independent if its pivot in a QR factorization exceeds `least`, relative to the largest pivot.
    `weights` (n,) make columns comparable; a column of weight 0 counts unless it is exactly 0. See (ID-13).
    """
    W = W.reshape(-1, W.shape[-1])
    lengths = np.linalg.norm(W, axis=0)
    nonzero = (lengths > 0) & ((weights == 0) | (lengths * weights > least * (lengths * weights).max()))
    scale = np.where(nonzero, lengths * (1 + TIE * np.arange(len(lengths))), np.inf)
    R, order = qr(W / scale, mode="r", pivoting=True)
    rank = int((np.abs(np.diag(R)) > least * abs(R[0, 0])).sum())
    K = solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank else np.zeros((0, 0))
    K[np.abs(K) < 1e-9 * max(np.abs(K).max(initial=0.0), 1.0)] = 0.0
    pivots, others = order[:rank], order[rank:]
    place, rest = np.argsort(pivots), np.argsort(others)
    pivots, others, K = pivots[place], others[rest], K[place][:, rest]
    shares = np.zeros((rank, len(weights)))
    shares[:, others] = K
    return pivots, K * np.where(nonzero, scale, 0.0)[others] / scale[pivots][:, None], shares


def _combination(pivot: int, row: np.ndarray, shares: np.ndarray, names: Sequence[str]) -> str:
    parts = [(float(c), n) for c, share, n in zip(row, shares, names, strict=True) if abs(share) > SMALL]
    return names[pivot] + "".join(f" {'+' if c > 0 else '-'} {abs(c):.4g} {n}" for c, n in parts)


def check_forces(W: np.ndarray, y: np.ndarray, rows: Sequence[str], rank: float) -> None:
    """Raise ValueError if no known force acts on a group of coupled coordinates.
    Generalized coordinates are coupled if their equations of motion share a parameter. The matrix W
    multiplies the parameters in these equations, and y has the known forces. Without known forces, measured
    motions determine only ratios of parameters.

    `rows` are the names of the coordinates' variables.
    """
    sizes = np.linalg.norm(W, axis=0)
    touched = sizes > rank * sizes.max(axis=0, initial=0.0)
    count, block = connected_components((touched @ touched.T).astype(float))
    for mine in (block == b for b in range(count)):
        if touched[mine].any() and not y[:, mine].any():
            names = ", ".join(n for n, its in zip(rows, mine, strict=True) if its)
            raise ValueError(
                f"base_parameters: expected a force of known size on {names}, got none, and nothing couples "
                "it to others, so that only ratios are determined; leave a gain out of linear="
            )


def by_own_gain(regressor: Any, parts: Sequence[Any], y: np.ndarray, rows: Sequence[str]) -> tuple[str, ...]:
    """Return the variables on which only inputs with unknown gains act.
    No force of known magnitude acts on these variables.
    """
    driven = np.zeros(len(rows), bool)
    for m in parts:
        Y, idle = (regressor(m.q, m.v, m.a, u, m.t)[0] for u in (m.u, 0 * m.u))
        driven |= (idle != Y).any(axis=(0, 2))[: len(rows)]
    alone = driven & ~y.any(axis=0)
    return tuple(n for n, its in zip(rows, alone.tolist(), strict=True) if its)
