"""Cross-sections of cables, and the stiffness matrix of a beam element ([C] (16))."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vioc.errors import ModelError


def _check(name: str, value: float, *, positive: bool = False) -> float:
    value = float(value)
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
        raise ModelError(
            f"section: {name}: expected a finite number {'>' if positive else '>='} 0, got {value:g}"
        )
    return value


@dataclass(frozen=True)
class Section:
    """What a cable is made of, the same along its length.

    Parameters
    ----------
    density : float
        Mass per length rho A, kg/m, > 0.
    axial : float
        E A, N; needed by extensible cables.
    bending : float or 2 floats
        E I about the hinges' axes, in their order, N m^2; 0 is a rope.
    torsion : float
        G J, N m^2; needed by cables with a torsional hinge.
    polar : float
        Polar moment of inertia of mass per length, rho (I1 + I2), kg m; needed likewise.

    Raises
    ------
    ModelError
        For numbers that are negative or not finite.
    """

    density: float
    axial: float = 0.0
    bending: float | tuple[float, float] = 0.0
    torsion: float = 0.0
    polar: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "density", _check("density", self.density, positive=True))
        for name in ("axial", "torsion", "polar"):
            object.__setattr__(self, name, _check(name, getattr(self, name)))
        pair = np.atleast_1d(np.asarray(self.bending, float))
        if pair.shape not in ((1,), (2,)):
            raise ModelError(f"section: bending: expected one number or two, got {self.bending!r}")
        first, last = (_check("bending", value) for value in (pair[0], pair[-1]))
        object.__setattr__(self, "bending", (first, last))


def _section(area: float, moments: tuple[float, float], J: float, density, young, shear) -> Section:
    E, G = _check("young", young), _check("shear", shear)
    rho = _check("density", density, positive=True)
    return Section(rho * area, E * area, (E * moments[0], E * moments[1]), G * J, rho * sum(moments))


def round_section(
    diameter: float, *, density: float, young: float = 0.0, shear: float = 0.0, inner: float = 0.0
) -> Section:
    """A solid round, or a tube.

    Parameters
    ----------
    diameter, inner : float
        Outer and inner diameter, m.
    density : float
        Of the material, kg/m^3.
    young, shear : float
        Moduli E and G, Pa.
    """
    outer, inner = _check("diameter", diameter, positive=True), _check("inner", inner)
    if inner >= outer:
        raise ModelError(f"section: inner: expected less than the diameter {outer:g} m, got {inner:g}")
    area = math.pi / 4 * (outer**2 - inner**2)
    moment = math.pi / 64 * (outer**4 - inner**4)
    return _section(area, (moment, moment), 2 * moment, density, young, shear)


def rectangular_section(
    width: float, height: float, *, density: float, young: float = 0.0, shear: float = 0.0
) -> Section:
    """A rectangle, `width` along the first hinge's axis and `height` across it (m).

    So the first hinge bends with I = width height^3 / 12. The torsion constant is Saint-Venant's
    series for the rectangle. Other parameters as for `round_section`.
    """
    b, h = _check("width", width, positive=True), _check("height", height, positive=True)
    long, thin = max(b, h), min(b, h)
    odd = np.arange(1, 40, 2)  # terms fall as n^-5; tanh is 1 from the second on
    tail = float(np.sum(np.tanh(odd * np.pi * long / (2 * thin)) / odd**5.0))
    J = long * thin**3 / 3 * (1 - 192 / np.pi**5 * thin / long * tail)
    return _section(b * h, (b * h**3 / 12, h * b**3 / 12), J, density, young, shear)


def beam_stiffness(length: float, axial: float, bending: float) -> np.ndarray:
    """K (6, 6) of a planar beam element in (dx0, dy0, dtheta0, dx1, dy1, dtheta1) ([C] (16), corrected).

    Parameters
    ----------
    length : float
        Rest length, m, > 0.
    axial, bending : float
        E A, N, and E I, N m^2.
    """
    L = _check("length", length, positive=True)
    a, b = _check("axial", axial) / L, _check("bending", bending) / L
    K = np.zeros((6, 6))
    K[np.ix_([0, 3], [0, 3])] = a * np.array([[1, -1], [-1, 1]])
    s, t = 12 / L**2, 6 / L
    K[np.ix_([1, 2, 4, 5], [1, 2, 4, 5])] = b * np.array(
        [[s, t, -s, t], [t, 4, -t, 2], [-s, -t, s, -t], [t, 2, -t, 4]]
    )
    return K
