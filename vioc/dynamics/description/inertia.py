"""Mass of a frame, with its centre of mass and its moments of inertia."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.dynamics.description.numbers import Number, Parameter, as_number, as_numbers
from vioc.errors import ModelError

ORIGIN = (0.0, 0.0, 0.0)
ROUNDING = 1e-12  # relative rounding error of moments of inertia
ENTRIES = (
    (0, 0),
    (1, 1),
    (2, 2),
    (0, 1),
    (0, 2),
    (1, 2),
)  # entries of the matrix, in the order of the six numbers


@dataclass(frozen=True)
class Mass:
    """Mass, centre of mass and moments of inertia of the rigid body on a frame.

    Parameters
    ----------
    mass : number
        kg, >= 0.
    inertia : 3 or 6 numbers, or a symmetric (3, 3) matrix
        ``(Ixx, Iyy, Izz)`` or ``(Ixx, Iyy, Izz, Ixy, Ixz, Iyz)`` about the centre of mass, in the
        frame's axes, kg m^2; stored as six numbers. Products of inertia are the entries of the matrix
        (Ixy = -int x y dm). Zero (the default) is a point mass. `Mass.box`, `Mass.sphere` and `Mass.rod`
        compute the inertia of homogeneous bodies.
    com : 3 numbers
        Centre of mass in the frame, m.

    Raises
    ------
    ModelError
        If the mass is negative, or the inertia is physically impossible: it must be positive semidefinite
        with principal moments that satisfy the triangle inequality.
    """

    mass: Number
    inertia: tuple[Number, ...] = (0.0,) * 6
    com: tuple[Number, ...] = (0.0,) * 3

    # -- homogeneous bodies ------------------------------------------------------------------------

    @classmethod
    def box(cls, mass: Number, size: Sequence[float], com: Sequence[Number] = ORIGIN) -> Mass:
        """Make the `Mass` of a homogeneous box, whose edges are parallel to the frame's axes.

        Parameters
        ----------
        mass : number
            kg; may be a parameter.
        size : 3 numbers
            Edge lengths, m.
        com : 3 numbers
            Its centre in the frame, m.
        """
        x, y, z = (e**2 / 12 for e in _lengths(size, 3, "box: size"))
        return cls._solid(mass, (y + z, x + z, x + y), com)

    @classmethod
    def sphere(cls, mass: Number, radius: float, com: Sequence[Number] = ORIGIN) -> Mass:
        """Make the `Mass` of a homogeneous ball with the given radius, m, and its centre at `com`."""
        (r,) = _lengths((radius,), 1, "sphere: radius")
        return cls._solid(mass, (0.4 * r**2,) * 3, com)

    @classmethod
    def rod(
        cls,
        mass: Number,
        length: float,
        axis: Sequence[float] = (0.0, 0.0, 1.0),
        com: Sequence[Number] = ORIGIN,
    ) -> Mass:
        """Make the `Mass` of a thin rod, which has no moment of inertia about its axis.

        Parameters
        ----------
        mass : number
            kg; may be a parameter.
        length : float
            m.
        axis : 3 numbers
            Direction of the rod; need not be normalized.
        com : 3 numbers
            Its centre in the frame, m.
        """
        (size,) = _lengths((length,), 1, "rod: length")
        a = np.array(as_numbers(axis, 3, "rod: axis"), float)
        if not a.any():
            raise ModelError("rod: axis: expected a direction, got the zero vector")
        across = size**2 / 12 * (np.eye(3) - np.outer(a, a) / (a @ a))
        return cls._solid(mass, tuple(across[i, j] for i, j in ENTRIES), com)

    @classmethod
    def _solid(cls, mass: Number, squares: Sequence[float], com: Sequence[Number]) -> Mass:
        """Make a `Mass` with an inertia matrix that is the mass times given numbers.
        The numbers `squares`, m^2, are 3 for the diagonal of the matrix, or 6 for all independent entries.
        """
        number = as_number(mass, "mass")
        return cls(number, tuple(number * float(s) for s in squares), tuple(com))

    # -- checks ------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        object.__setattr__(self, "mass", as_number(self.mass, "mass"))
        values = tuple(self.inertia) if isinstance(self.inertia, (tuple, list, np.ndarray)) else ()
        if len(values) == 3 and all(isinstance(row, (tuple, list, np.ndarray)) for row in values):
            values = _of_matrix(values)
        if len(values) not in (3, 6):
            raise ModelError(
                "inertia: expected (Ixx, Iyy, Izz), (Ixx, Iyy, Izz, Ixy, Ixz, Iyz) or a 3 x 3 matrix, "
                f"got {self.inertia!r}"
            )
        inertia = as_numbers(values + (0.0,) * (6 - len(values)), 6, "inertia")
        object.__setattr__(self, "inertia", inertia)
        object.__setattr__(self, "com", as_numbers(self.com, 3, "centre of mass"))
        self._check()

    def _check(self) -> None:
        if fault := self.fault({}):
            raise ModelError(fault[1])

    def fault(self, parameters: Mapping[str, Any]) -> tuple[int, str] | None:
        """Return the index of the first impossible mass or inertia, and the reason.
        The result is None if all are possible. The dict `parameters` has a number or an array for each
        parameter; the index is that of the value in the array.

        Parameters
        ----------
        parameters : mapping of str to number or array (N,)
            Values of parameters; the others have their defaults.

        Returns
        -------
        (int, str)
            Index of the first impossible sample, and the reason.
        """
        mass = np.atleast_1d(_value(self.mass, parameters))
        if (mass < 0).any():
            i = int(np.argmax(mass < 0))
            return i, f"mass: expected a number >= 0 (kg), got {mass[i]}"
        varied = any(isinstance(v, Parameter) for v in self.inertia)
        if not varied and (parameters or not any(self.inertia)):  # checked when it was made
            return None
        mass, inertia, com = (
            np.array(v, ndmin=n) for v, n in zip(self.at(parameters), (1, 3, 2), strict=True)
        )
        moments = np.linalg.eigvalsh(inertia)
        # rounding error of the moments, also if they were computed about another point
        slack = ROUNDING * (np.abs(moments).max(axis=1) + mass * (com**2).sum(axis=1))
        indefinite = moments[:, 0] < -slack
        flat = moments[:, 2] > moments[:, 0] + moments[:, 1] + slack
        if not (indefinite | flat).any():
            return None
        i = int(np.argmax(indefinite | flat))
        if indefinite[i]:
            expected = "inertia: expected a positive semidefinite matrix, got principal moments"
        else:
            expected = (
                "inertia: expected principal moments that satisfy the triangle inequality "
                "(the largest is at most the sum of the others), got"
            )
        return i, f"{expected} {moments[i].tolist()}"

    def at(self, parameters: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mass, inertia matrix and centre of mass, for given values of the parameters.

        They are (...), (..., 3, 3) and (..., 3) for parameters (...).
        """
        mass, *entries = np.broadcast_arrays(*(_value(v, parameters) for v in self.numbers()))
        inertia = np.empty((*mass.shape, 3, 3))
        for (i, j), value in zip(ENTRIES, entries[:6], strict=True):
            inertia[..., i, j] = inertia[..., j, i] = value
        return mass, inertia, np.stack(entries[6:], axis=-1)

    def matrix(self) -> np.ndarray:
        """Return the inertia matrix (3, 3) about the centre of mass, at default parameter values."""
        return self.at({})[1]

    def numbers(self) -> tuple[Number, ...]:
        """Return mass, six moments of inertia and centre of mass as one tuple of 10 numbers."""
        return (self.mass, *self.inertia, *self.com)

    def __repr__(self) -> str:
        parts = [repr(self.mass)]
        if any(isinstance(v, Parameter) or v != 0 for v in self.inertia):
            keep = 6 if any(isinstance(v, Parameter) or v != 0 for v in self.inertia[3:]) else 3
            parts.append(f"inertia={self.inertia[:keep]!r}")
        if any(isinstance(v, Parameter) or v != 0 for v in self.com):
            parts.append(f"com={self.com!r}")
        return f"Mass({', '.join(parts)})"


def _value(number: Number, parameters: Mapping[str, Any]) -> Any:
    """Return the value of a number, which may be a parameter.
    The value of a parameter is its value in the dict `parameters`, or its default value if the dict has none.
    """
    if not isinstance(number, Parameter):
        return float(number)
    return number.of(np.asarray(parameters.get(number.name, number.value), float))


def _of_matrix(rows: tuple) -> tuple[Number, ...]:
    """Return the six independent entries of a symmetric inertia matrix, given by its rows.

    The rounding error of a rotation R I R' is accepted.
    """
    matrix = [as_numbers(row, 3, "inertia: row") for row in rows]
    values = np.array(matrix, float)
    if np.abs(values - values.T).max() > 1e-12 * np.abs(values).max():
        raise ModelError(f"inertia: expected a symmetric matrix, got {values.tolist()}")
    return tuple(matrix[i][j] for i, j in ENTRIES)


def _lengths(values: object, count: int, what: str) -> list[float]:
    """Convert a number, or `count` numbers, to a list of lengths in m.
    Raise `ModelError` if there are not `count` numbers, or one is not positive.
    """
    lengths = [float(v) for v in as_numbers(values, count, what)]
    if min(lengths) <= 0:
        text = lengths[0] if count == 1 else lengths
        raise ModelError(
            f"{what}: expected {'a number' if count == 1 else f'{count} numbers'} > 0 (m), got {text}"
        )
    return lengths


def as_mass(value: object) -> Mass | None:
    """Convert None, a `Mass`, a number or ``(m, Ixx, Iyy, Izz)`` to a `Mass` or None."""
    if value is None or isinstance(value, Mass):
        return value
    if isinstance(value, (tuple, list)):
        if len(value) != 4:
            raise ModelError(f"mass: expected m or (m, Ixx, Iyy, Izz), got {value!r}")
        return Mass(value[0], tuple(value[1:]))
    return Mass(as_number(value, "mass"))
