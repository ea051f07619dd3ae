"""Physically consistent inertias of bodies, by Cholesky factors of second moments.

The ten inertial parameters of a body are its mass m, centre of mass c (3), and inertia about it Ixx, Iyy,
Izz, Ixy, Ixz, Iyz. Its second moments S = tr(I)/2 1 - I are positive definite if and only if I is positive
definite and satisfies the triangle inequality (ID-8). Coordinates are the diagonals themselves: their
logarithms would place bodies without extent at infinity, where derivatives vanish.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

LEAST = 1e-9  # smallest second moment of an initial guess, over the largest one
POINT = 1e-6  # radius of gyration of a point mass, over the mechanism's length
FLAT = 1e-6  # ratio of second moments below which a body is flat: thickness a thousandth of its length
PAIRS = ((0, 1), (0, 2), (1, 2))


def moments(numbers: np.ndarray) -> np.ndarray:
    """Return the second moments (3, 3) of a body's mass, kg m^2.
    They are moments about the body's centre of mass.

    `numbers` (10,) are its ten inertial parameters.
    """
    inertia = np.diag(np.asarray(numbers[4:7], float))
    for (i, j), value in zip(PAIRS, numbers[7:10], strict=True):
        inertia[i, j] = inertia[j, i] = value
    return np.trace(inertia) / 2 * np.eye(3) - inertia


def consistent(numbers: np.ndarray, slack: float = 1e-9) -> bool:
    """Return whether a body's ten inertial parameters are physically possible.
    The mass and the matrix of second moments of mass must be >= 0.

    S are the second moments; `slack` times the largest one is tolerated. Bodies without extent (point
    masses), in a plane or on a line are physical; so is a rotor without mass.
    """
    sizes = np.linalg.eigvalsh(moments(numbers))
    return bool(numbers[0] >= 0 and sizes[0] >= -slack * np.abs(sizes).max())


def body_numbers(z: ca.SX) -> ca.SX:
    """Return a body's ten inertial parameters as functions of coordinates z (10,).
    The coordinates are unconstrained. They are the logarithm of the mass m, the centre of mass, and the
    entries of a triangular matrix L, where m L L' are the second moments of mass.

    The coordinates are (log m, c, L11, L22, L33, L21, L31, L32). See (ID-9).
    """
    m = ca.exp(z[0])
    L = ca.SX(3, 3)
    for i in range(3):
        L[i, i] = z[4 + i]
    for value, (i, j) in zip(ca.vertsplit(z[7:10]), PAIRS, strict=True):
        L[j, i] = value
    S = m * L @ L.T
    return ca.vertcat(
        m, z[1:4], S[1, 1] + S[2, 2], S[0, 0] + S[2, 2], S[0, 0] + S[1, 1], -S[0, 1], -S[0, 2], -S[1, 2]
    )


def extent(numbers: np.ndarray) -> float:
    """Return the RMS distance of a body's mass from the origin of its frame, m."""
    c = numbers[1:4]
    return float(np.sqrt(np.trace(moments(numbers)) / numbers[0] + c @ c)) if numbers[0] > 0 else 0.0


def body_coordinates(numbers: Any, length: float) -> np.ndarray:
    """Return unconstrained coordinates (10,) of a body's ten inertial parameters.

    This is the inverse of `body_numbers`. A point mass is given a small extent, relative to the mechanism's
    `length`.
    """
    numbers = np.asarray(numbers, float)
    if numbers[0] <= 0:
        raise ValueError(
            f"a body whose inertia is estimated needs a mass > 0 to begin with, got {numbers[0]:g}"
        )
    S = moments(numbers) / numbers[0]
    sizes, axes = np.linalg.eigh(S)
    sizes = np.maximum(sizes, LEAST * max(sizes.max(), (POINT * length) ** 2))
    L = np.linalg.cholesky((axes * sizes) @ axes.T)
    below = [L[j, i] for i, j in PAIRS]
    return np.array([np.log(numbers[0]), *numbers[1:4], *np.diag(L), *below])


def flat(numbers: np.ndarray) -> bool:
    """Return whether a body's mass has no extent in at least one direction."""
    sizes = np.linalg.eigvalsh(moments(numbers))
    return bool(sizes[0] <= FLAT * sizes[-1])


def size_of(numbers: np.ndarray, length: float) -> np.ndarray:
    """Return typical magnitudes (10,) of a body's inertial parameters, as scales.

    They are mass, radius of gyration and largest moment. The radius of a point mass is a small fraction of
    the mechanism's length.
    """
    S = moments(numbers)
    largest = max(np.trace(S), numbers[0] * (POINT * length) ** 2)
    radius = np.sqrt(largest / numbers[0])
    return np.array([numbers[0], *[radius] * 3, *[largest] * 6])
