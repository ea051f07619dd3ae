"""Base parameters of a mechanism from the equations that are linear in them: (ID-12) to (ID-15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np
from scipy.interpolate import make_lsq_spline
from scipy.linalg import qr, solve_triangular
from scipy.optimize import least_squares
from scipy.stats import norm

from vioc.compile.evaluate import Evaluator
from vioc.control.identification.inertias import body_coordinates, body_numbers, consistent
from vioc.control.identification.known import by_own_gain, check_forces
from vioc.control.identification.records import Record, as_records
from vioc.maps.protocol import OneStepMap
from vioc.maps.signals import sample
from vioc.names import INPUTS, by_name

DEGREE = 5  # of splines: accelerations are smooth
RANK = 1e-8  # singular values below this, of columns of length one, count as zero; of a mechanism's own
RANK_LOOPS = 1e-5  # the same of samples whose loops are closed up to noise
DRAWN = 400  # random states at which a tree's rank is found
NEAR = 1e4, 1e3, 1e2, 1e1, 1.0  # weights of the start, in standard deviations, one search after the other
REWEIGHTED = 3
FAR = 3.0  # deviations
SMALL = 1e-6  # of a combination's largest part: what is not named


@dataclass(frozen=True)
class Motion:
    """A record as a smooth motion: q, v, a (N, nq) and inputs of forces (N, nu) at t (N,), a time from its
    ends. Motions that are prescribed are of q, v, a.
    """

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    u: np.ndarray


def motion(f: OneStepMap, record: Record, knots: float) -> Motion:
    """Quintic splines by least squares with knots every `knots` s, without two such spans at either end."""
    variables = f.system.variables
    lacking = [n for n in variables if n not in record.measured]
    if lacking:
        raise ValueError(f"{record.name}: the regressor needs every configuration, got none of {lacking[0]}")
    t = record.t
    spans = max(5, round((t[-1] - t[0]) / knots))
    inner = np.linspace(t[0], t[-1], spans + 1)
    ends = np.repeat(inner[[0, -1]], DEGREE)
    places = np.concatenate([ends[:DEGREE], inner, ends[DEGREE:]])
    keep = (t >= inner[2]) & (t <= inner[-3])
    rows = []
    for n in variables:
        y, good = record.measured[n], np.isfinite(record.measured[n])
        y = np.unwrap(y[good]) if n in f.wrap else y[good]
        try:
            spline = make_lsq_spline(t[good], y, places, DEGREE)
        except (ValueError, np.linalg.LinAlgError) as error:
            raise ValueError(
                f"{record.name}: {n}: no spline with knots every {knots:g} s: {error}"
            ) from error
        rows.append([spline.derivative(i)(t[keep]) if i else spline(t[keep]) for i in range(3)])
    q, v, a = (np.array([row[i] for row in rows]).T for i in range(3))
    signals = by_name(record.inputs, f.input_names, f"{record.name}: inputs", prefix=INPUTS)
    U = np.zeros((len(t), len(f.system.inputs)))
    for i, n in enumerate(f.system.inputs):
        if n in signals:
            U[:, i] = _at_samples(signals[n], t, f"{record.name}: input {n!r}")
    return Motion(t[keep], q, v, a, U[keep])


def _at_samples(value: Any, t: np.ndarray, what: str) -> np.ndarray:
    """What is held from sample to sample jumps at them: the mean of both sides."""
    if not callable(value) and np.shape(value) == (len(t) - 1,):
        held = sample(value, t[1:], what)
        return np.concatenate([held[:1], (held[1:] + held[:-1]) / 2, held[-1:]])
    return sample(value, t, what)


@dataclass(frozen=True)
class Torques:
    """Generalized forces that a record's inputs made, and what is predicted of them, (N, nd) at `t`."""

    t: np.ndarray
    names: tuple[str, ...]
    measured: np.ndarray
    predicted: np.ndarray

    @property
    def relative(self) -> dict[str, float]:
        """rms of the difference over that of what was measured, by variable."""
        size = np.sqrt(np.mean(self.measured**2, axis=0))
        error = np.sqrt(np.mean((self.predicted - self.measured) ** 2, axis=0))
        return {n: float(e / s) for n, e, s in zip(self.names, error, size, strict=True) if s > 0}


@dataclass(frozen=True, repr=False)
class BaseParameters:
    """What `base_parameters` found.

    Attributes
    ----------
    names : tuple of str
        The combinations that the equations tell, such as ``"link2.mx + 0.2 link3.m"``.
    values, std : (nb,)
    covariance : (nb, nb)
    numbers : dict of str to (10,)
        Of each body mass, centre of mass, inertia about it: a set that is physical, has these combinations
        to within their deviations, and is near the start where they do not tell.
    linear : dict of str to float
        Parameters of forces.
    base : (nb, n)
        ``values = base @ numbers`` of the regressor's n.
    physical : (n,)
        The physical set, as the regressor has it.
    apart : float
        How far its combinations are from `values`, root mean square in deviations. More than about one: no
        bodies have these combinations, the model or the splines are wrong.
    deviations : dict of str to float
        Of the forces' residuals by variable, N m or N.
    biased : tuple of str
        Variables that an input of unknown gain alone drives: its noise makes the gain, and with it all that
        is told there, too small, by more than `std` says.
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
    biased: tuple[str, ...] = ()

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))

    def interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Confidence intervals by name, of white residuals."""
        k = float(norm.ppf(0.5 + level / 2))
        rows = zip(self.names, self.values, k * self.std, strict=True)
        return {n: (float(v - s), float(v + s)) for n, v, s in rows}

    @property
    def bodies(self) -> dict[str, bool]:
        """Whether the numbers of each body are those of one."""
        return {n: consistent(v) for n, v in self.numbers.items()}

    def validate(self, record: Any, physical: bool = True) -> Torques:
        """Forces that a record kept aside had, and what is predicted from its motion: by the physical
        set of numbers, or by the base parameters. Of loops the part of forces that moves them. Where gains
        were estimated, what inputs made is by the gains found.
        """
        one, *others = as_records(record)
        if others:
            raise ValueError(f"validate: expected one record, got {1 + len(others)}")
        m = motion(self.map, one, self.knots)
        Y, rest, Dh = self.regressor(m.q, m.v, m.a, m.u, m.t)
        idle, free, _ = self.regressor(m.q, m.v, m.a, 0 * m.u, m.t)
        own = self.physical if physical else self.columns @ self.values
        nd = len(self.map.system.dynamic)
        N = _left(Dh[:, :, :nd])
        P = np.swapaxes(N, 1, 2) @ N if N is not None else np.eye(nd)
        made, needed = free - rest + (idle - Y) @ own, idle @ own + free
        both = (np.einsum("...ij,...j->...i", P, e[:, :nd]) for e in (made, needed))
        return Torques(m.t, tuple(self.map.system.dynamic), *both)

    def __str__(self) -> str:
        lines = [f"{len(self.names)} combinations told of {self.base.shape[1]} numbers"]
        for n, v, s in zip(self.names, self.values, self.std, strict=True):
            lines.append(f"{v:14.6g} +- {s:8.2g}  {n}")
        if self.apart > FAR:
            lines.append(
                f"doubt: no bodies have these combinations, the nearest are {self.apart:.1f} deviations off; "
                "look at the model and at knots="
            )
        if self.biased:
            lines.append(
                f"doubt: an input of unknown gain alone drives {', '.join(self.biased)}: its noise makes "
                "what is told there too small; give the gain, or filter the input"
            )
        lines += [f"{n} is not the inertia of a body" for n, fine in self.bodies.items() if not fine]
        return "\n".join(lines)

    __repr__ = __str__


def base_parameters(
    f: OneStepMap, records: Any, linear: str | Sequence[str] = (), *, knots: float = 0.1
) -> BaseParameters:
    """Combinations of a mechanism's inertias, and of parameters that forces are linear in, by least squares.

    Every body's ten numbers are looked for, whether parameters or not; its other numbers (lengths, axes)
    are the model's. Trees, and loops, whose equations are taken along the motions that the loops leave.

    Parameters
    ----------
    f : OneStepMap
        An integrator of a mechanism; its inertias are where the physical set is near.
    records : Record or run (`Record.of`), or several
        With every configuration and the inputs.
    linear : names
        Parameters of forces, estimated too: friction, stiffness, gains of motors.
    knots : float
        Spacing of the knots of the splines that stand for the motion, s: shorter than the fastest part of the
        motion, longer than several samples.

    Returns
    -------
    BaseParameters

    Raises
    ------
    ModelError
        Where there is no mechanism, or forces are not linear in a parameter.
    ValueError
        A record without some configuration, or too short; no force of known size, be it on one axis.
    """
    records = as_records(records)
    linear = (linear,) if isinstance(linear, str) else tuple(linear)
    regressor = f.regressor(linear)
    parts = [motion(f, r, knots) for r in records]
    blocks = [_projected(f, *regressor(m.q, m.v, m.a, m.u, m.t)) for m in parts]
    W, y = np.concatenate([b[0] for b in blocks]), np.concatenate([b[1] for b in blocks])  # (N, r, n), (N, r)
    if not y.any():
        raise ValueError(
            "base_parameters: expected a force of known size in the records, got none, so that only ratios "
            "are told; leave a gain, friction or stiffness out of linear="
        )
    own, K = _independent(_drawn(f, regressor, parts) if not f.multiplier_names else (W, RANK_LOOPS))
    base = np.zeros((len(own), W.shape[2]))
    others = np.setdiff1d(np.arange(W.shape[2]), own)
    base[np.arange(len(own)), own], base[:, others] = 1.0, K
    if not f.multiplier_names:
        check_forces(W[:, :, own], y, f.system.dynamic, RANK)
    Wb, sizes = W[:, :, own], np.ones(W.shape[1])
    for _ in range(REWEIGHTED):
        A, b = (Wb / sizes[:, None]).reshape(-1, len(own)), (y / sizes).ravel()
        Q, R = qr(A, mode="economic")
        values = solve_triangular(R, Q.T @ b)
        left = y - Wb @ values
        freedom = 1 - len(own) / y.size
        sizes = np.sqrt(np.mean(left**2, axis=0) / max(freedom, 1e-3))
        sizes = np.full_like(sizes, np.sqrt(np.mean(sizes**2))) if f.multiplier_names else sizes
    inverse = solve_triangular(R, np.eye(len(own)))
    physical, numbers, apart = _physical(regressor, base, values, R)
    names = [_combination(row, regressor.names) for row in base]
    columns = np.zeros((W.shape[2], len(own)))
    columns[own, np.arange(len(own))] = 1.0
    rows = (
        f.system.dynamic
        if W.shape[1] == len(f.system.dynamic)
        else [f"direction {i}" for i in range(W.shape[1])]
    )
    return BaseParameters(
        map=f,
        names=tuple(names),
        values=values,
        covariance=inverse @ inverse.T,
        numbers=numbers,
        linear=dict(zip(linear, map(float, physical[10 * len(regressor.bodies) :]), strict=True)),
        base=base,
        physical=physical,
        apart=apart,
        deviations=dict(zip(rows, map(float, sizes), strict=True)),
        knots=knots,
        regressor=regressor,
        columns=columns,
        biased=by_own_gain(regressor, parts, y, f.system.dynamic) if not f.multiplier_names else (),
    )


def _projected(
    f: OneStepMap, Y: np.ndarray, rest: np.ndarray, Dh: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Equations without constraint forces: times a basis of what the constraints leave, sample by sample."""
    nd = len(f.system.dynamic)
    Y, rest = Y[:, :nd], rest[:, :nd]
    N = _left(Dh[:, :, :nd])
    return (Y, -rest) if N is None else (N @ Y, -np.einsum("kij,kj->ki", N, rest))


def _left(Dh: np.ndarray) -> np.ndarray | None:
    """Orthonormal rows (N, r, nd) of what constraints leave, sample by sample; None without constraints."""
    if not Dh.shape[1]:
        return None
    _, sizes, V = np.linalg.svd(Dh)
    return V[:, int((sizes[0] > 1e-9 * sizes[0, 0]).sum()) :]


def _drawn(f: OneStepMap, regressor: Any, parts: Sequence[Motion]) -> tuple[np.ndarray, float]:
    """Equations of a tree at random states, as large as those of the records: what it tells at all.

    Inputs, prescribed motions and times are between the records' own: what is constant there stays so.
    """
    rng = np.random.default_rng(0)
    sizes = [max(np.abs(getattr(m, n)).max() for m in parts) for n in ("v", "a")]
    shape = DRAWN, parts[0].q.shape[1]
    q, v, a = rng.uniform(-np.pi, np.pi, shape), *(rng.uniform(-s, s, shape) for s in sizes)
    nd = len(f.system.dynamic)

    def between(name: str, start: int = 0) -> np.ndarray:
        own = np.concatenate([getattr(m, name) for m in parts])[..., start:]
        return rng.uniform(own.min(axis=0), own.max(axis=0), (DRAWN, *own.shape[1:]))

    for name, drawn in (("q", q), ("v", v), ("a", a)):
        drawn[:, nd:] = between(name, nd)
    return regressor(q, v, a, between("u"), between("t"))[0][:, :nd], RANK


def _independent(given: tuple[np.ndarray, float]) -> tuple[np.ndarray, np.ndarray]:
    """Columns that all others are combinations of, and these combinations K (r, others): (ID-13)."""
    W, least = given
    W = W.reshape(-1, W.shape[-1])
    lengths = np.linalg.norm(W, axis=0)
    scale = np.where(lengths > least * lengths.max(), lengths, np.inf)
    R, order = qr(W / scale, mode="r", pivoting=True)
    rank = int((np.abs(np.diag(R)) > least * abs(R[0, 0])).sum())
    K = solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank else np.zeros((0, 0))
    own, others = order[:rank], order[rank:]
    with np.errstate(invalid="ignore"):
        K = K * np.where(np.isfinite(scale[others]), scale[others], 0.0) / scale[own][:, None]
    K[np.abs(K) < 1e-9 * max(np.abs(K).max(initial=0.0), 1.0)] = 0.0
    place = np.argsort(own)
    return own[place], K[place][:, np.argsort(others)]


def _combination(row: np.ndarray, names: Sequence[str]) -> str:
    own = int(np.argmax(row == 1.0))
    parts = [
        (float(c), n) for j, (c, n) in enumerate(zip(row, names, strict=True)) if abs(c) > SMALL and j != own
    ]
    text = "".join(f" {'+' if c > 0 else '-'} {abs(c):.4g} {n}" for c, n in parts)
    head = [n for c, n in zip(row, names, strict=True) if c == 1.0]
    return head[0] + text if head else text


def _physical(
    regressor: Any, base: np.ndarray, values: np.ndarray, R: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray], float]:
    """Numbers of bodies with these combinations, near the start, and how far off they are: (ID-15)."""
    count, own = len(regressor.bodies), len(regressor.linear)
    z = ca.SX.sym("z", 10)
    ten = body_numbers(z)
    m, c = ten[0], ten[1:4]
    about = m * (ca.sumsqr(c) * ca.SX.eye(3) - c @ c.T)
    extra = ca.vertcat(about[0, 0], about[1, 1], about[2, 2], about[0, 1], about[0, 2], about[1, 2])
    moments = ca.vertcat(m, m * c, ten[4:10] + extra)
    evaluate = Evaluator(ca.Function("body", [z], [moments, ca.jacobian(moments, z), ten]))
    start = np.concatenate([*(body_coordinates(n) for n in regressor.numbers), regressor.start[10 * count :]])
    scale = np.concatenate([np.ones(10 * count), np.maximum(np.abs(regressor.start[10 * count :]), 1e-3)])

    def unpacked(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        J = np.zeros((len(x), len(x)))
        found = x.copy()
        if count:
            pi, by, _ = evaluate(x[: 10 * count].reshape(count, 10))
            found[: 10 * count] = pi[..., 0].ravel()
            for i in range(count):
                some = slice(10 * i, 10 * i + 10)
                J[some, some] = by[i]
        J[10 * count :, 10 * count :] = np.eye(own)
        return found, J

    def gaps(x: np.ndarray) -> np.ndarray:
        return R @ (base @ unpacked(x)[0] - values)

    x = start
    for near in NEAR:  # the way along which the start is forgotten is curved: not all at once
        found = least_squares(
            lambda x, near: np.concatenate([gaps(x), near * (x - start) / scale]),
            x,
            lambda x, near: np.concatenate([R @ base @ unpacked(x)[1], near * np.diag(1 / scale)]),
            method="lm",
            x_scale=scale,
            max_nfev=500,
            args=(near,),
        )
        x = found.x
    numbers: Any = evaluate(x[: 10 * count].reshape(count, 10))[2][..., 0] if count else []
    apart = float(np.sqrt(np.mean(gaps(x) ** 2)))
    return unpacked(x)[0], dict(zip(regressor.bodies, map(np.array, numbers), strict=True)), apart
