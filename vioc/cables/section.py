"""Cross-sections of cables, and the stiffness matrix of a beam element.
The matrix is equation (16) of Nichols and Murphey (2008).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vioc.dynamics.description.numbers import Number, as_number
from vioc.errors import ModelError


def _check(name: str, value: object, *, positive: bool = False) -> Number:
    number = as_number(value, f"section: {name}")
    size = float(number)
    if size < 0 or (positive and size == 0):
        raise ModelError(
            f"section: {name}: expected a finite number {'>' if positive else '>='} 0, got {size:g}"
        )
    return number


def _check_float(name: str, value: object, *, positive: bool = False) -> float:
    number = _check(name, value, positive=positive)
    if not isinstance(number, float):
        raise ModelError(
            f"section: {name}: expected a number, got {number!r}: only moduli and densities vary"
        )
    return number


@dataclass(frozen=True)
class Section:
    """Uniform cross-section of a cable: mass per length, and stiffness such as E I.

    Parameters
    ----------
    density : number
        Mass per length rho A, kg/m, > 0.
    axial : number
        E A, N; needed by extensible cables.
    bending : number or 2 numbers
        E I about the hinges' axes, in their order, N m^2; 0 is a rope.
    torsion : number
        G J, N m^2; needed by cables with a torsional hinge.
    polar : number
        Polar moment of inertia of mass per length, rho (I1 + I2), kg m; needed by cables with a torsional
        hinge.

    Raises
    ------
    ModelError
        If a number is negative or not finite.

    Notes
    -----
    A number may be a declared parameter, ``P("EI", 0.1)``. Maps then have it as an input, and derivatives by
    it.
    """

    density: Number
    axial: Number = 0.0
    bending: Number | tuple[Number, Number] = 0.0
    torsion: Number = 0.0
    polar: Number = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "density", _check("density", self.density, positive=True))
        for name in ("axial", "torsion", "polar"):
            object.__setattr__(self, name, _check(name, getattr(self, name)))
        several = isinstance(self.bending, (tuple, list, np.ndarray))
        pair = tuple(self.bending) if several else (self.bending,)  # type: ignore[arg-type]
        if len(pair) not in (1, 2):
            raise ModelError(f"section: bending: expected one number or two, got {self.bending!r}")
        first, last = (_check("bending", value) for value in (pair[0], pair[-1]))
        object.__setattr__(self, "bending", (first, last))


def _section(area: float, moments: tuple[float, float], J: float, density, young, shear) -> Section:
    E, G, rho = _check("young", young), _check("shear", shear), _check("density", density, positive=True)
    return Section(rho * area, E * area, (E * moments[0], E * moments[1]), G * J, rho * sum(moments))


def round_section(
    diameter: float, *, density: Number, young: Number = 0.0, shear: Number = 0.0, inner: float = 0.0
) -> Section:
    """Return the cross-section of a solid round cable or a tube.

    Parameters
    ----------
    diameter, inner : float
        Outer and inner diameter, m.
    density : number
        Density of the material, kg/m^3.
    young, shear : number
        Moduli E and G, Pa.
    """
    outer, inner = _check_float("diameter", diameter, positive=True), _check_float("inner", inner)
    if inner >= outer:
        raise ModelError(f"section: inner: expected less than the diameter {outer:g} m, got {inner:g}")
    area = math.pi / 4 * (outer**2 - inner**2)
    moment = math.pi / 64 * (outer**4 - inner**4)
    return _section(area, (moment, moment), 2 * moment, density, young, shear)


def rectangular_section(
    width: float, height: float, *, density: Number, young: Number = 0.0, shear: Number = 0.0
) -> Section:
    """Return the cross-section of a solid rectangular cable of given dimensions.

    Its `width` is along the first hinge's axis and its `height` across it (m), so that the first hinge bends
    with I = width height^3 / 12. The torsion constant is Saint-Venant's series for the rectangle. Other
    parameters are as in `round_section`.
    """
    b, h = _check_float("width", width, positive=True), _check_float("height", height, positive=True)
    long, thin = max(b, h), min(b, h)
    odd = np.arange(1, 40, 2)  # terms decrease as n^-5; tanh is 1 from the second on
    tail = float(np.sum(np.tanh(odd * np.pi * long / (2 * thin)) / odd**5.0))
    J = long * thin**3 / 3 * (1 - 192 / np.pi**5 * thin / long * tail)
    return _section(b * h, (b * h**3 / 12, h * b**3 / 12), J, density, young, shear)


def beam_stiffness(length: float, axial: float, bending: float) -> np.ndarray:
    """Return the stiffness matrix K (6, 6) of an elastic beam element in the plane.
    Its coordinates are the displacements and rotations of both ends, (dx0, dy0, dtheta0, dx1, dy1, dtheta1).

    It is equation (16) of paper [C], corrected.

    Parameters
    ----------
    length : float
        Rest length, m, > 0.
    axial, bending : float
        E A, N, and E I, N m^2.
    """
    L = _check_float("length", length, positive=True)
    a, b = _check_float("axial", axial) / L, _check_float("bending", bending) / L
    K = np.zeros((6, 6))
    K[np.ix_([0, 3], [0, 3])] = a * np.array([[1, -1], [-1, 1]])
    s, t = 12 / L**2, 6 / L
    K[np.ix_([1, 2, 4, 5], [1, 2, 4, 5])] = b * np.array(
        [[s, t, -s, t], [t, 4, -t, 2], [-s, -t, s, -t], [t, 2, -t, 4]]
    )
    return K
