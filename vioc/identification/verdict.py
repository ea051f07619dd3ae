"""Analysis of the Fisher information: which parameters are identifiable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

SEEN = 1.0  # relative standard deviation above which a direction is not identifiable
NULL = 1e-12  # eigenvalue of relative information, over the largest one, that is rounding
DOUBTED = 1e-10  # doubtful information of a parameter, over that with all other parameters known
SMALL = 1e-3  # smaller components, relative to a direction's largest one, are not named


@dataclass(frozen=True)
class UnidentifiableDirection:
    """Combination of parameter changes that the measurements do not determine.

    Attributes
    ----------
    parts : dict of str to float
        Changes by name, in the units of the parameters; the largest relative change is 1.
    deviation : float
        Relative standard deviation along the direction; infinite without any information.
    """

    parts: dict[str, float]
    deviation: float

    def __str__(self) -> str:
        text = ", ".join(f"{n} {v:+.3g}" for n, v in self.parts.items())
        return f"{text} (relative deviation {self.deviation:.2g})"


@dataclass(frozen=True)
class Identifiability:
    """Identifiability of parameters: covariance and unidentifiable combinations.

    Attributes
    ----------
    covariance : (n, n)
        In the units of the parameters; infinite variances if not identifiable.
    directions : list of UnidentifiableDirection
        Directions that are not identifiable, the one with least information first.
    given : tuple of str
        Parameters that must be known for the others to be identifiable.
    """

    covariance: np.ndarray
    directions: list[UnidentifiableDirection]
    given: tuple[str, ...]


def identifiability(
    information: np.ndarray, names: Sequence[str], scale: np.ndarray, alone: np.ndarray | None = None
) -> Identifiability:
    """Analyze the Fisher information, and return which parameters are identifiable.

    The `information` is in the units of the parameters; `scale` (n,) makes errors relative. `alone` (n,),
    given if it exceeds the diagonal of `information`, is the information on each parameter if all other
    unknowns were known. See (ID-11).
    """
    n = len(names)
    if not n:
        return Identifiability(np.zeros((0, 0)), [], ())
    relative = information * np.outer(scale, scale)
    if alone is not None:
        covariance = _of_all(relative, alone * scale**2)
        if covariance is not None:
            return Identifiability(covariance * np.outer(scale, scale), [], ())
    values, vectors = np.linalg.eigh((relative + relative.T) / 2)
    least = max(NULL * values[-1], 0.0)
    singular = (values <= least) | (values < 1 / SEEN**2)
    good = vectors[:, ~singular]
    covariance = (good / values[~singular]) @ good.T
    N = vectors[:, singular]
    affected = np.abs(N).max(axis=1, initial=0.0) > SMALL
    covariance = covariance * np.outer(scale, scale)
    covariance[affected, affected] = np.inf
    return Identifiability(covariance, _directions(N, names, scale, relative), _pivots(N, names))


def _of_all(relative: np.ndarray, alone: np.ndarray) -> np.ndarray | None:
    """Return the covariance (n, n) of relative errors, or None if it is not finite.
    It is not finite if some parameter is not identifiable.

    Each parameter is scaled by its own information: the information on a parameter known to 1e-9 must not
    hide that on another known to 10 %.
    """
    diagonal = relative.diagonal()
    if not (diagonal > DOUBTED * alone).all():
        return None
    root = np.sqrt(diagonal)
    correlation = relative / np.outer(root, root)
    if not np.linalg.eigvalsh(correlation)[0] > DOUBTED:
        return None
    covariance = np.linalg.inv(correlation) / np.outer(root, root)
    covariance = (covariance + covariance.T) / 2
    return covariance if np.linalg.eigvalsh(covariance)[-1] < SEEN**2 else None


def _pivots(N: np.ndarray, names: Sequence[str]) -> tuple[str, ...]:
    """Return a set of parameters that, if known, make all others identifiable.
    The columns of N (n, k) span the directions that are not identifiable.
    """
    if not N.shape[1]:
        return ()
    pivots = qr(N.T, mode="r", pivoting=True)[1]
    return tuple(names[i] for i in pivots[: N.shape[1]])


def _directions(
    N: np.ndarray, names: Sequence[str], scale: np.ndarray, information: np.ndarray
) -> list[UnidentifiableDirection]:
    """Return a basis of the unidentifiable directions, with few parameters in each.

    The columns of N (n, k) span these directions. In the basis, each of k pivot parameters changes in one
    direction only.
    """
    k = N.shape[1]
    if not k:
        return []
    pivots = qr(N.T, mode="r", pivoting=True)[1][:k]
    basis = N @ np.linalg.inv(N[pivots])
    directions = []
    for d in basis.T:
        d = d / np.abs(d).max()
        along = d @ information @ d / (d @ d)
        largest = float(np.abs(information).max())
        deviation = np.inf if along <= NULL * largest else 1 / np.sqrt(along)
        order = np.argsort(-np.abs(d))
        parts = {names[i]: float(d[i] * scale[i]) for i in order if abs(d[i]) > SMALL}
        directions.append(UnidentifiableDirection(parts, float(deviation)))
    return sorted(directions, key=lambda d: -d.deviation)
