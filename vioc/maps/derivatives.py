"""First and second derivatives of the steps of a map, and arrays of the steps' states and inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vioc.checks import finite
from vioc.errors import StepError
from vioc.runs.given import trajectory_of

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap
    from vioc.runs.trajectory import Trajectory

PRINTED = 64  # largest number of entries of A for which a linearization prints its values
TENSOR_ROWS = 1000  # steps whose second derivatives are computed at once, for a tensor

Self = TypeVar("Self", bound="StepArrays")


class StepArrays:
    """Base class of objects whose attributes are arrays, in which the first index is that of a step."""

    @property
    def blocks(self) -> dict[str, np.ndarray]:
        """Arrays of this object, by the names of its attributes."""
        return dict(self.__dict__)

    def rows(self: Self, index: Any) -> Self:
        """Return a copy of this object that contains only the steps selected by `index`.
        If `index` is an integer, the arrays of the copy have no axis of steps.
        """
        return type(self)(**{name: block[index] for name, block in self.blocks.items()})

    @classmethod
    def joined(cls: type[Self], parts: list[Self]) -> Self:
        """Join several objects of this class into one, along the axis of steps."""
        if len(parts) == 1:
            return parts[0]
        names = parts[0].blocks
        return cls(**{name: np.concatenate([p.blocks[name] for p in parts]) for name in names})


@dataclass(frozen=True)
class Steps:
    """States, inputs, multipliers and times of N steps of a map, at which derivatives are evaluated.

    Attributes
    ----------
    x0, x1 : (N, nx)
        States at the start and at the end of each step.
    u, multipliers : (N, nu), (N, nm)
    t, h : (N,)
        Start and length, s.
    k : (N,) int
        Indices of the steps, for messages.
    """

    x0: np.ndarray
    x1: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray
    t: np.ndarray
    h: np.ndarray
    k: np.ndarray

    def __len__(self) -> int:
        return len(self.u)

    @staticmethod
    def of(given: Any) -> Steps:
        """Return the steps of a trajectory as a `Steps` object; a `Steps` object is returned unchanged."""
        return given if isinstance(given, Steps) else Steps.along(trajectory_of(given))

    @staticmethod
    def along(run: Trajectory) -> Steps:
        """Return the states, inputs and multipliers of all steps of a trajectory."""
        k = np.arange(run.k0, run.k0 + len(run))
        h = run.step_lengths
        return Steps(run.x[:-1], run.x[1:], run.u, run.multipliers, run.t[:-1], h, k)

    def piece(self, rows: slice) -> Steps:
        """Return the steps in the range `rows`."""
        x0, x1, u, multipliers = (a[rows] for a in (self.x0, self.x1, self.u, self.multipliers))
        return Steps(x0, x1, u, multipliers, self.t[rows], self.h[rows], self.k[rows])

    @staticmethod
    def joined(parts: list[Steps]) -> Steps:
        """Join several `Steps` objects into one."""
        return Steps(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Steps)})

    def tiled(self, count: int) -> Steps:
        """Return these steps, repeated `count` times one after the other."""
        arrays = self.x0, self.x1, self.u, self.multipliers, self.t, self.h, self.k
        x0, x1, u, multipliers, t, h, k = (np.tile(a, (count, *[1] * (a.ndim - 1))) for a in arrays)
        return Steps(x0, x1, u, multipliers, t, h, k)


@dataclass(frozen=True, repr=False)
class Linearization(StepArrays):
    """First derivatives of one step, or of several steps, of a map.
    A and B are the Jacobians of the next state with respect to the state and the input; ``A, B = ...``
    unpacks them.

    Along a trajectory every array has a leading axis of N steps.

    Attributes
    ----------
    A : (ndx, ndx)
    B : (ndx, nu)
        Derivatives of the next state by state and input.
    P : (ndx, np)
        Derivative of the next state by the declared parameters.
    C, D, E : (nm, ndx), (nm, nu), (nm, np)
        Derivatives of the multipliers by state, input and parameters.
    """

    A: np.ndarray
    B: np.ndarray
    P: np.ndarray
    C: np.ndarray
    D: np.ndarray
    E: np.ndarray

    @staticmethod
    def of(states: np.ndarray, multipliers: np.ndarray, nu: int) -> Linearization:
        """Return a linearization from the Jacobians of the next state and multipliers.
        The Jacobian of the next state is `states` (..., ndx, ns), that of the multipliers `multipliers`
        (..., nm, ns). The ns columns of both are the components of the state error, the `nu` inputs and the
        parameters, in this order.
        """
        groups = columns(states.shape[-2], nu)
        return Linearization(
            *(np.ascontiguousarray(m[..., c]) for m in (states, multipliers) for c in groups)
        )

    @property
    def matrix(self) -> np.ndarray:
        """Jacobian of the next state (ndx components) and the multipliers (nm).
        The derivatives are with respect to the state (ndx components), the input (nu) and the parameters
        (np). The shape is (..., ndx + nm, ndx + nu + np).
        """
        return np.block([[self.A, self.B, self.P], [self.C, self.D, self.E]])

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.A, self.B))

    def __repr__(self) -> str:
        if self.A.ndim > 2 or self.A.size > PRINTED:
            sizes = f"{self.C.shape[-2]} multipliers, {self.P.shape[-1]} parameters"
            return f"Linearization(A {self.A.shape}, B {self.B.shape}, {sizes})"
        blocks = [f"  {name} = {_table(m)}" for name, m in self.blocks.items() if m.size]
        return "\n".join(["Linearization(", *blocks, ")"])


def _table(m: np.ndarray) -> str:
    """Return a matrix as text with five digits; entries as small as rounding errors are printed as 0."""
    texts = [[f"{v:.5g}" for v in row] for row in np.where(np.abs(m) > 1e-14 * np.abs(m).max(), m, 0.0)]
    width = max(len(text) for row in texts for text in row)
    return "\n       ".join(" ".join(text.rjust(width) for text in row) for row in texts)


@dataclass(frozen=True)
class SecondOrder(StepArrays):
    """Hessian of a weighted sum of a step's results.
    It is the Hessian of z . f + zeta . lambda, with the next state f, the multipliers lambda and their
    weights z and zeta. ``Hxx, Hxu, Huu = ...`` unpacks the blocks with respect to the state x and the input
    u. Along a trajectory every array has a leading axis of N steps.

    Attributes
    ----------
    xx, xu, uu : (ndx, ndx), (ndx, nu), (nu, nu)
    xp, up, pp : (ndx, np), (nu, np), (np, np)
        Blocks with the declared parameters.
    """

    xx: np.ndarray
    xu: np.ndarray
    uu: np.ndarray
    xp: np.ndarray
    up: np.ndarray
    pp: np.ndarray

    @staticmethod
    def of(H: np.ndarray, ndx: int, nu: int) -> SecondOrder:
        """Return a `SecondOrder` object with the blocks of each step's Hessian H.
        H has the shape (..., ns, ns). The ns variables are the components of the state error, the inputs and
        the parameters, in this order. A block has the derivatives with respect to two of the three, such as
        state and input.
        """
        x, u, p = columns(ndx, nu)
        pairs = (x, x), (x, u), (u, u), (x, p), (u, p), (p, p)
        return SecondOrder(*(np.ascontiguousarray(H[..., i, j]) for i, j in pairs))

    @staticmethod
    def shapes(ndx: int, nu: int, np_: int) -> tuple[tuple[int, int], ...]:
        """Return the shapes of the blocks xx, xu, uu, xp, up and pp of one step's Hessian.
        The letters stand for the state errors x (`ndx`), the inputs u (`nu`) and the parameters p (`np_`).
        """
        return (ndx, ndx), (ndx, nu), (nu, nu), (ndx, np_), (nu, np_), (np_, np_)

    @staticmethod
    def room(n: int, ndx: int, nu: int, np_: int) -> SecondOrder:
        """Allocate arrays for the second derivatives of n steps, with undefined values."""
        return SecondOrder(*(np.empty((n, *shape)) for shape in SecondOrder.shapes(ndx, nu, np_)))

    @property
    def matrix(self) -> np.ndarray:
        """Hessian (..., ns, ns) of a weighted sum of a step's results, as one symmetric matrix.
        The results are the next state and the multipliers. The ns variables are the state errors, the inputs
        and the parameters.
        """
        xt, ut, pt = (np.swapaxes(m, -1, -2) for m in (self.xu, self.xp, self.up))
        rows = (self.xx, self.xu, self.xp), (xt, self.uu, self.up), (ut, pt, self.pp)
        return np.concatenate([np.concatenate(row, axis=-1) for row in rows], axis=-2)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.xx, self.xu, self.uu))


def solved(S: np.ndarray, right: np.ndarray | None = None) -> np.ndarray:
    """Solve the linear systems S[i] X[i] = right[i] for all i.
    If `right` is None, return the inverse of every matrix S[i].

    X (N, n, m) has S (N, n, n) X = right. It is not a number where S is singular.
    """
    try:
        return np.linalg.inv(S) if right is None else np.linalg.solve(S, right)
    except np.linalg.LinAlgError:  # one of them is singular
        if len(S) == 1:
            return np.full((S if right is None else right).shape, np.nan)
        rows = [slice(i, i + 1) for i in range(len(S))]
        return np.concatenate([solved(S[i], None if right is None else right[i]) for i in rows])


def columns(ndx: int, nu: int) -> tuple[slice, slice, slice]:
    """Return the column ranges of a step's Jacobian, as slices.
    The ranges belong to the state errors (`ndx` columns), the inputs (`nu` columns) and the parameters.
    """
    return slice(ndx), slice(ndx, ndx + nu), slice(ndx + nu, None)


@dataclass(frozen=True)
class MapDerivatives:
    """First and second derivatives of the steps of a map.

    Attributes
    ----------
    map : OneStepMap
    first : steps -> Linearization
        First derivatives of solved steps, with a leading axis of steps. If they do not exist, they are not
        finite, or `StepError` is raised with the reason.
    second : steps, Z (N, ndx), zeta (N, nm) -> SecondOrder
        Second derivatives, contracted with the weights Z of the next states and zeta of the multipliers.
    with_times : () -> MapDerivatives
        Implementation of `timed`; raises NotImplementedError with the reason if it does not exist.
    whole : steps -> (SecondOrder, SecondOrder), optional
        Implementation of `tensor` for this map.
    moving : trajectory, closed -> Linearization, optional
        Implementation of `linearize_motion`, if it differs from `linearize`.
    """

    map: OneStepMap
    first: Callable[[Steps], Linearization]
    second: Callable[[Steps, np.ndarray, np.ndarray], SecondOrder]
    with_times: Callable[[], MapDerivatives]
    whole: Callable[[Steps], tuple[SecondOrder, SecondOrder]] | None = None
    moving: Callable[[Trajectory, bool], Linearization] | None = None

    @property
    def timed(self) -> MapDerivatives:
        """Derivatives with two more parameters: the step length dt and the start time t.
        These two parameters come last. The derivative by dt is that for a fixed start of the step. If the
        lengths of all steps change, later steps also start later; the derivative by t accounts for this. The
        derivatives are those of the step that solves the map's `residual`, or that `explicit` defines.

        Raises
        ------
        NotImplementedError
            If the map has neither.
        """
        return self.with_times()

    def linearize(self, steps: Any) -> Linearization:
        """Return the first derivatives of the map at given steps, or at all steps of a trajectory.

        Raises `StepError` if those of a step do not exist.
        """
        steps = Steps.of(steps)
        lin = self.first(steps)
        if finite(lin.A, lin.B):
            return lin
        bad = np.flatnonzero(~(np.isfinite(lin.A).all(axis=(1, 2)) & np.isfinite(lin.B).all(axis=(1, 2))))
        k = int(steps.k[bad[0]])
        raise StepError(
            f"step {k} cannot be linearized: its derivatives are not finite; the map is not differentiable "
            "there (ca.sqrt(x) at 0 is not)",
            k,
            float("nan"),
            "not finite",
        )

    def linearize_motion(self, trajectory: Trajectory, *, closed: bool = False) -> Linearization:
        """Return the first derivatives of the motion along a trajectory, for feedback.
        The derivatives account for contact events whose times depend on the state. The result differs from
        that of `linearize` for a `SwitchedMap`, whose steps are switched at given indices, while the contacts
        of the real motion close when their gaps do. With `closed`, the motion is periodic: it continues with
        its first step.
        """
        return self.linearize(trajectory) if self.moving is None else self.moving(trajectory, closed)

    def tensor(self, steps: Any) -> tuple[SecondOrder, SecondOrder]:
        """Return all second derivatives of steps as tensors, without weights.

        The first result has the second derivatives of the next states, the second those of the multipliers.
        In step k, ``xx[k, i, a, b]`` is the second derivative of output i by the state errors a and b; the
        other blocks are defined likewise. Output i is a component of the next state's error in the first
        result (N, ndx, ...), and a multiplier in the second (N, nm, ...). Each step has
        (ndx + nm) (ndx + nu)^2 numbers, 5 MB for the marionette of [S].
        """
        steps = Steps.of(steps)
        if self.whole is not None:
            return self.whole(steps)
        n, ndx, nm = len(steps), self.map.ndx, steps.multipliers.shape[1]
        weights, at_once, parts = np.eye(ndx + nm), max(1, TENSOR_ROWS // max(n, 1)), []
        for i in range(0, ndx + nm, at_once):
            some = weights[i : i + at_once]
            w = np.repeat(some, n, axis=0)
            parts.append(self.second(steps.tiled(len(some)), w[:, :ndx].copy(), w[:, ndx:].copy()))
        each = SecondOrder.joined(parts).blocks
        whole = {k: m.reshape(ndx + nm, n, *m.shape[1:]).swapaxes(0, 1) for k, m in each.items()}
        states, multipliers = (
            {k: m[:, of] for k, m in whole.items()} for of in (slice(ndx), slice(ndx, None))
        )
        return SecondOrder(**states), SecondOrder(**multipliers)
