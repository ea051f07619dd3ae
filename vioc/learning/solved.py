"""Solutions of steps from many states, with derivatives for JAX and PyTorch.

A step is y = (x', multipliers) of s = (x, u, parameters). With J = dy/ds of `Linearization` and the Hessian
of w . y of `SecondOrder`,

    dy = J ds,    s_bar = J' w,    d(J' w) = (w . y'') ds + J' dw.                                 (1)

See docs/learning.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.errors import StepError
from vioc.learning import ambient
from vioc.maps.derivatives import Steps
from vioc.maps.protocol import OneStepMap


def check_framework_map(f: OneStepMap) -> None:
    """Raise ValueError if a map cannot become a function of JAX or PyTorch.
    Each component of an error between two states must be a difference of state components, or a component
    of a rotation between two quaternions.
    """
    if f.nx - f.ndx != len(f.space.quaternions):
        raise ValueError(
            f"{type(f).__name__}: its errors ({f.ndx}) are neither differences of states ({f.nx}) nor turns "
            "of its `quaternions`: frameworks have nothing to differentiate by"
        )


def autonomous(f: OneStepMap) -> bool:
    """Return True only if it is known that the map's steps do not depend on time."""
    step = f.mechanism.relaxed()
    relaxed = None if step is None else step.function  # the only equations of contacts
    for function, index in ((relaxed, 4), (f.residual, 4), (f.explicit, 2)):
        if function is not None:
            return all(function.jac_sparsity(i, index).nnz() == 0 for i in range(function.n_out()))
    return False


@dataclass(frozen=True)
class Solved:
    """Solutions of a map's steps from many states, with first and second derivatives.

    Attributes
    ----------
    parts : list of (rows, map, Steps, x)
        Groups of steps with common parameters and, for maps that depend on time, a common step index. The
        states x (rows, nx) are as given: quaternions may have any norm.
    sizes : (nx, nm, nu, np)
    count : int
        Number N of steps.
    """

    parts: list[tuple[np.ndarray, OneStepMap, Steps, np.ndarray]]
    sizes: tuple[int, int, int, int]
    count: int

    @property
    def values(self) -> np.ndarray:
        """Results (N, nx + nm) of N steps: next states and multipliers.
        A next state has nx components; a step has nm multipliers.
        """
        nx, nm, *_ = self.sizes
        y = np.empty((self.count, nx + nm))
        for rows, _, steps, _ in self.parts:
            y[rows] = np.concatenate([steps.x1, steps.multipliers], axis=1)
        return y

    @property
    def jacobians(self) -> np.ndarray:
        """Jacobians of N steps: derivatives of next states and multipliers.
        A next state has nx components; a step has nm multipliers. The derivatives are with respect to the
        components of state (nx), input (nu) and parameters (np). The shape is (N, nx + nm, nx + nu + np).
        """
        nx, nm, nu, np_ = self.sizes
        J = np.empty((self.count, nx + nm, nx + nu + np_))
        for rows, f, steps, x in self.parts:
            lin = f.derivatives.linearize(steps)
            matrix = lin.matrix
            J[rows] = _Errors(f, steps, x).first(matrix) if f.space.quaternions else matrix
        return self._finite(J, "first")

    def hessians(self, W: np.ndarray) -> np.ndarray:
        """Return the Hessian of a weighted sum of the results of each step.
        The results are the next state and the multipliers; the ns = nx + nu + np variables are the components
        of state, input and parameters.

        The weights W are (N, nx + nm); the shape is (N, ns, ns).
        """
        nx, _, nu, np_ = self.sizes
        ns = nx + nu + np_
        H = np.empty((self.count, ns, ns))
        for rows, f, steps, x in self.parts:
            w = np.asarray(W, float)[rows]
            chart = _Errors(f, steps, x) if f.space.quaternions else None
            inner = w if chart is None else chart.weights(w)
            ndx = inner.shape[1] - len(f.multiplier_names)
            second = f.derivatives.second(
                steps, np.ascontiguousarray(inner[:, :ndx]), np.ascontiguousarray(inner[:, ndx:])
            )
            H[rows] = second.matrix if chart is None else chart.second(second.matrix, w)
        return self._finite(H, "second")

    @property
    def tensors(self) -> np.ndarray:
        """Second derivatives (N, nx + nm, ns, ns) of next states and multipliers.
        Each of N steps has a next state with nx components, and nm multipliers. The ns = nx + nu + np
        variables are the components of state (nx), input (nu) and parameters (np).
        """
        nx, nm, nu, np_ = self.sizes
        ns = nx + nu + np_
        T = np.empty((self.count, nx + nm, ns, ns))
        for rows, f, steps, x in self.parts:
            states, multipliers = f.derivatives.tensor(steps)
            tensor = np.concatenate([states.matrix, multipliers.matrix], axis=1)
            if f.space.quaternions:
                chart = _Errors(f, steps, x)
                units = np.eye(nx + nm)[:, None].repeat(len(rows), axis=1)
                parts = (np.einsum("ni,nijk->njk", chart.weights(w), tensor) for w in units)
                tensor = np.stack([chart.second(H, w) for H, w in zip(parts, units, strict=True)], axis=1)
            T[rows] = tensor
        return self._finite(T, "second")

    def _finite(self, values: np.ndarray, which: str) -> np.ndarray:
        bad = np.flatnonzero(~np.isfinite(values).reshape(self.count, -1).all(axis=1))
        if len(bad):
            raise StepError(
                f"row {bad[0]}: its {which} derivatives are not finite; the step is not differentiable there",
                int(bad[0]),
                float("nan"),
                "not finite",
            )
        return values


class _Errors:
    """Converter of a map's derivatives from state errors to state components.
    The map has derivatives with respect to state errors, in which a rotation has three components. The state
    has a quaternion with four components instead.

    The formulas are in `vioc.learning.ambient`.
    """

    def __init__(self, f: OneStepMap, steps: Steps, x: np.ndarray):
        self.map, self.steps, self.x = f, steps, x
        self.into, self.out = ambient.inward(f, x), ambient.outward(f, steps.x1)
        lin = f.derivatives.linearize(steps)
        self.jacobian = lin.matrix

    def weights(self, w: np.ndarray) -> np.ndarray:
        """Convert weights of next-state components to weights of error components.
        The errors are those of the next state. The weighted sum of components and the weighted sum of
        errors have the same first derivative. Weights of multipliers are unchanged.
        """
        nx = self.map.nx
        return np.concatenate([np.einsum("nij,ni->nj", self.out, w[:, :nx]), w[:, nx:]], axis=1)

    def first(self, J: np.ndarray) -> np.ndarray:
        ndx = self.map.ndx
        J = np.concatenate([self.out @ J[:, :ndx], J[:, ndx:]], axis=1)
        return np.concatenate([J[:, :, :ndx] @ self.into, J[:, :, ndx:]], axis=2)

    def second(self, H: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Return the Hessian of w . (next state, multipliers).
        It is with respect to the components of the state, the input and the parameters. The given Hessian H
        is with respect to the error of the state instead of its components.

        H is the second derivative of `weights(w)` times (next error, multipliers) by (error, u, ...).
        """
        f, ndx, nx, ends = self.map, self.map.ndx, self.map.nx, self.jacobian[:, : self.map.ndx]
        H = H + ends.transpose(0, 2, 1) @ ambient.outward_curvature(f, self.steps.x1, w[:, :nx]) @ ends
        slope = np.einsum("ni,nij->nj", self.weights(w), self.jacobian[:, :, :ndx])
        G = np.zeros((len(H), H.shape[1], H.shape[2] + nx - ndx))
        G[:, :ndx, :nx], G[:, ndx:, nx:] = self.into, np.eye(H.shape[1] - ndx)
        H = G.transpose(0, 2, 1) @ H @ G
        H[:, :nx, :nx] += ambient.inward_curvature(f, self.x, slope)
        return H


def solve(f: OneStepMap, x: Any, u: Any, theta: Any, k: Any, timeless: bool) -> Solved:
    """Solve a step from each of many states, with individual inputs and parameters.

    Parameters
    ----------
    f : OneStepMap
    x, u, theta : (N, nx), (N, nu), (N, np)
    k : (N,) int
        Step indices, relevant to maps that depend on time.
    timeless : bool
        Result of `autonomous` for the map. If False, the steps are solved separately, in parallel on all
        cores.

    Raises
    ------
    ValueError
        Values that are not finite; quaternions of zeros.
    StepError
        For the first row that has no step.
    """
    x, u, theta = (np.ascontiguousarray(a, float) for a in (x, u, theta))
    k = np.asarray(k, int)
    for name, rows in (("state", x), ("input", u), ("parameters", theta)):
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise ValueError(f"{name}: expected finite numbers, got {rows[bad[0]]} in row {bad[0]}")
    states = ambient.normalized(f, x)
    sizes = f.nx, len(f.multiplier_names), f.nu, len(f.parameters)
    keys = theta if timeless else np.column_stack([theta, k])
    if keys.shape[1] == 0 or (keys == keys[:1]).all():
        groups = [np.arange(len(x))] if len(x) else []
    else:
        _, which = np.unique(keys, axis=0, return_inverse=True)
        groups = [np.flatnonzero(which.ravel() == i) for i in range(int(which.max()) + 1)]
    parts = []
    for rows in groups:
        values = theta[rows[0]]
        g = f
        if not np.array_equal(values, f.theta):
            g = f.trying(**dict(zip(f.parameters, map(float, values), strict=True)))
        start = int(k[rows[0]])
        parts.append((rows, g, _solve(g, states[rows], u[rows], start, timeless), x[rows]))
    return Solved(parts, sizes, len(x))


def _solve(f: OneStepMap, x: np.ndarray, u: np.ndarray, k: int, timeless: bool) -> Steps:
    if timeless:
        return f.steps_at(x, u, k)
    batch = f.rollouts(x, u[:, None], k0=k)
    return Steps.joined([Steps.along(run) for run in batch])
