"""Terrain: uneven ground whose height is a function of the world coordinates x and y."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.terms.contact_shapes import Shape, Surface
from vioc.errors import ModelError

WIDE = 3.0  # m, half the drawn width of a terrain without edges


@dataclass(frozen=True)
class Terrain(Shape):
    """Uneven ground, whose surface z = h(x, y) is a function of the world's x and y.

    Parameters
    ----------
    height : callable
        (x, y) -> h, m, of CasADi expressions, twice differentiable: ``lambda x, y: 0.1 * casadi.sin(x)``;
        or `Terrain.sampled`.
    """

    height: Callable

    def __post_init__(self) -> None:
        if not callable(self.height):
            raise ModelError(f"terrain: height: expected a function of x and y, got {self.height!r}")
        try:
            _ = self.function
        except Exception as error:
            raise ModelError(f"terrain: height: {error}; it is called with CasADi expressions") from None

    @cached_property
    def function(self) -> ca.Function:
        """CasADi function of (x, y) for the height h of the terrain and its slopes dh/dx and dh/dy."""
        x, y = ca.SX.sym("x"), ca.SX.sym("y")
        h = ca.SX(self.height(x, y))
        if h.shape != (1, 1):
            raise ModelError(f"expected one number, got the shape {h.shape}")
        return ca.Function("height", [x, y], [h, ca.gradient(h, x), ca.gradient(h, y)], {"cse": True})

    @classmethod
    def sampled(cls, x: Any, y: Any, heights: Any) -> Terrain:
        """Make a terrain from sampled heights, interpolated by a cubic spline.

        The spline is extrapolated linearly. The heights (len(x), len(y)), m, are those over evenly spaced x
        and y (docs/maths/contact.md).
        """
        return cls(SplineGrid.of(x, y, heights))

    def placed(self, number: Callable, R: Matrix, p: Vector) -> tuple:
        return ()

    def at(self, row: tuple, R: Matrix, p: Vector) -> Surface:
        return Surface(self.function)

    @property
    def extent(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Ranges (lowest, highest) of x and of y, m, in which drawings show the terrain.

        Sampled terrain is drawn over the range of its samples.
        """
        if isinstance(self.height, SplineGrid):
            return self.height.extent
        return (-WIDE, WIDE), (-WIDE, WIDE)

    def heights(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the heights of the terrain, m, at arrays x and y of equal shape."""
        values = self.function.map(np.size(x))(np.ravel(x)[None], np.ravel(y)[None])[0]
        return np.array(values).reshape(np.shape(x))


@dataclass(frozen=True)
class SplineGrid:
    """Height function of a terrain: a sum of products of uniform cubic B-splines, one in x and one in y.

    h = sum c_ij B(x/dx - i) B(y/dy - j).
    """

    start: tuple[float, float]
    spacing: tuple[float, float]
    coefficients: tuple[tuple[float, ...], ...]

    @property
    def extent(self) -> tuple[tuple[float, float], tuple[float, float]]:
        counts = len(self.coefficients), len(self.coefficients[0])
        parts = zip(self.start, self.spacing, counts, strict=True)
        x, y = ((s + d, s + (n - 2) * d) for s, d, n in parts)
        return x, y

    @classmethod
    def of(cls, x: Any, y: Any, heights: Any) -> SplineGrid:
        H, start, spacing = np.array(heights, float), [], []
        for name, a in (("x", x), ("y", y)):
            a = np.array(a, float)
            steps = np.diff(a)
            if a.ndim != 1 or len(a) < 4 or not np.allclose(steps, steps[:1]) or not steps[0] > 0:
                expected = "at least 4 numbers, evenly spaced and rising"
                raise ModelError(f"terrain: {name}: expected {expected}, got {a.tolist()}")
            start.append(float(a[0] - steps[0]))  # position of the first coefficient
            spacing.append(float(steps[0]))
        if H.shape != (np.size(x), np.size(y)) or not np.isfinite(H).all():
            raise ModelError(
                f"terrain: heights: expected finite numbers ({np.size(x)}, {np.size(y)}), got shape {H.shape}"
            )
        for axis in (0, 1):
            n = H.shape[axis] + 2
            rows = np.zeros((n, n))
            for i in range(n - 2):
                rows[1 + i, i : i + 3] = 1 / 6, 4 / 6, 1 / 6
            rows[0, :3] = rows[-1, -3:] = 1.0, -2.0, 1.0  # linear beyond the edges
            padded = np.insert(np.moveaxis(H, axis, 0), [0, n - 2], 0.0, axis=0)
            H = np.moveaxis(np.linalg.solve(rows, padded), 0, axis)
        return cls((start[0], start[1]), (spacing[0], spacing[1]), tuple(map(tuple, H.tolist())))

    def __call__(self, x: Any, y: Any) -> Any:
        C, weights, beyond = ca.DM(np.array(self.coefficients)), [], []
        for value, first, step, n in zip((x, y), self.start, self.spacing, C.shape, strict=True):
            s = (value - first) / step
            inside = ca.fmin(ca.fmax(s, 1.0), n - 2.0)
            weights.append(ca.vertcat(*(_bump(inside - i) for i in range(n))))
            beyond.append((s - inside, ca.vertcat(*(_bump_slope(inside - i) for i in range(n)))))
        (weights_x, weights_y), (dx, sx), (dy, sy) = weights, *beyond
        h = weights_x.T @ C @ weights_y + dx * (sx.T @ C @ weights_y) + dy * (weights_x.T @ C @ sy)
        return h + dx * dy * (sx.T @ C @ sy)


def _bump(s: Any) -> Any:
    """Return the value of the uniform cubic B-spline, which is 4/6 at its centre.
    The argument s is the distance from the centre, divided by the grid spacing.
    """
    a = ca.fabs(s)
    inner, outer = 4 / 6 - a * a + 0.5 * a**3, ca.fmax(2 - a, 0.0) ** 3 / 6
    return ca.if_else(a < 1, inner, outer)


def _bump_slope(s: Any) -> Any:
    a = ca.fabs(s)
    slope = ca.if_else(a < 1, -2 * a + 1.5 * a * a, -0.5 * ca.fmax(2 - a, 0.0) ** 2)
    return slope * ca.sign(s)
