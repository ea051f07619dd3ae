"""Numerical mass matrices, and checks that they are positive definite.

Links with numbers for parameters give M by recursion over the tree, without a CasADi graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from vioc.dynamics.algebra import tree_recursions as recursions
from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.description.system import System
from vioc.errors import ModelError

ROUNDING = 1e-12  # rounding error of the eigenvalues of M scaled to unit diagonal
HALF = 0.5  # share of a motion's kinetic energy above which a negative inertia determines the steps


def typical_masses(system: System, parameters: Mapping[str, float] | None = None) -> np.ndarray:
    """Return typical diagonal entries (nd,) of the mass matrix, as scales of the dynamic variables.

    Each is the largest of three generic configurations, or 1 if it is 0. The values of `parameters` default
    to the declared ones.
    """
    diagonals = _largest_diagonals(system, _generic(system), parameters)[: len(system.dynamic)]
    return np.where(diagonals > 0, diagonals, 1.0)


def natural_length(system: System, parameters: Mapping[str, float] | None = None) -> float:
    """Return a characteristic length of a mechanism, m, as the scale of its translations.

    It is the radius at which the whole mass has the largest moment of inertia of an angle, with all slides
    at 0. Without angles it is the largest offset of a frame within its link, and 1 m if all are 0. The values
    of `parameters` default to the declared ones.
    """
    return own_length(system, {**system.parameters, **(parameters or {})}) or 1.0


def own_length(system: System, parameters: Mapping[str, float]) -> float:
    """Return `natural_length`, but 0 for a mechanism in whose description no length is found."""
    return _own_length(system, tuple(parameters.items()))


@lru_cache(maxsize=32)
def _own_length(system: System, parameters: tuple[tuple[str, float], ...]) -> float:
    values = dict(parameters)
    turning, whole = np.array([n in system.angles for n in system.variables], bool), system.mass(values)
    if turning.any() and whole > 0:
        moments = _largest_diagonals(system, _random(system) * turning, values)[turning]
        if moments.max() > 0:
            return float(np.sqrt(moments.max() / whole))
    places = _numbers(system, values)[1]
    return max((float(np.linalg.norm(p)) for link, _, p in places if link >= 0), default=0.0)


def _largest_diagonals(
    system: System, configurations: np.ndarray, parameters: Mapping[str, float] | None = None
) -> np.ndarray:
    """Return the largest diagonal entries of the mass matrix (nq,) over configurations (n, nq)."""
    values = system.parameters if parameters is None else parameters
    links, diagonals = _numbers(system, values)[0], np.zeros(len(system.variables))
    for q in configurations:
        recursions.placed(links, q.tolist())
        for link, composite in zip(links, recursions.composite_inertias(links), strict=True):
            size = recursions.paired(link.twist, recursions.times_inertia(*composite, *link.twist))
            diagonals[link.index] = max(diagonals[link.index], size + float(link.rotor))
    return diagonals


def check_mass_matrix(system: System, parameters: Mapping[str, float] | None = None) -> None:
    """Raise `ModelError` if the mass matrix is positive definite at none of three test configurations.

    Its rows are those of the dynamic variables. The values of `parameters` default to the declared ones. The
    test is at generic configurations, so that a chart that is singular at some configurations passes.
    """
    parameters = system.parameters if parameters is None else parameters
    candidates = []
    for q in _generic(system):
        weakest = _weakest(system, q, parameters)
        if weakest.value > ROUNDING:
            return
        candidates.append((weakest, q))
    weakest, q = min(candidates, key=lambda one: one[0].value)
    energies = _rotational(system, q, parameters, weakest.rates)
    if weakest.value < -ROUNDING or min(energies.values(), default=0.0) < 0:
        raise ModelError(f"{system.name}: {_why_indefinite(system, q, parameters, weakest)}")
    raise ModelError(
        f"{system.name}: the mass matrix is singular: nothing with mass moves with "
        f"{weakest.moving} independently; give a frame that it moves a mass or inertia, "
        "or make the variable kinematic"
    )


def fault_at(system: System, q: np.ndarray, parameters: Mapping[str, float], nearly: bool = False) -> str:
    """Return an error message if the mass matrix at q is not positive definite, else "".
    If `nearly` is True, return a message also if negative moments of inertia of bodies reduce the kinetic
    energy of some motion by more than half.

    The message names the responsible bodies: the cause can only be physically impossible inertias, which
    files may contain. The motion is along the eigenvector of the smallest eigenvalue.
    """
    if not system.negative:
        return ""
    weakest = _weakest(system, q, parameters)
    if weakest.value < -ROUNDING:
        return _why_indefinite(system, q, parameters, weakest)
    energies = _rotational(system, q, parameters, weakest.rates) if nearly else {}
    negative = -sum(e for e in energies.values() if e < 0)
    share = negative / (weakest.value / 2 + negative) if negative > 0 else 0.0
    if share > HALF:
        return (
            f"the mass matrix is about to lose its rank: {share:.0%} of the kinetic energy of "
            f"{weakest.moving} is taken by {_blamed(system, q, parameters, weakest)}"
        )
    return ""


def _generic(system: System) -> np.ndarray:
    """Return three test configurations (3, nq), which are the same in every call.
    Their values are random, to avoid singular configurations.
    """
    turning = [n in system.angles for n in system.variables]
    return _random(system) * np.where(turning, 1.0, natural_length(system))


def _random(system: System) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.3, 1.2, (3, len(system.variables)))


def _numbers(system: System, parameters: Mapping[str, float]) -> tuple[list[recursions.Link], list[Any]]:
    """Return the links of a system, and each frame's link with the frame's pose in it.
    Inertias and poses are numbers, computed with the given values of the parameters.
    """

    def number(value: Any) -> float:
        return float(value.of(parameters[value.name]) if isinstance(value, Parameter) else value)

    return recursions.gather_links(system, number)


class _Weakest(NamedTuple):
    """Smallest eigenvalue of the mass matrix, after scaling to a unit diagonal.
    It comes with the velocities along the eigenvector and the names of the variables that move.

    The motion has rates (nd,) along the eigenvector, and names of the variables that move.
    """

    value: float
    rates: np.ndarray
    moving: str


def _weakest(system: System, q: np.ndarray, parameters: Mapping[str, float]) -> _Weakest:
    links, nd = recursions.placed(_numbers(system, parameters)[0], q.tolist()), len(system.dynamic)
    M = recursions.mass_matrix_of_numbers(links, len(system.variables))[:nd, :nd]
    scale = np.sqrt(np.abs(np.diag(M)))
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(M / np.outer(scale, scale))
    names = [n for n, w in zip(system.dynamic, np.abs(vectors[:, 0]), strict=True) if w > 0.1]
    return _Weakest(float(values[0]), vectors[:, 0] / scale, ", ".join(names))


def _why_indefinite(system: System, q: np.ndarray, parameters: Mapping[str, float], weakest: _Weakest) -> str:
    """Return a message that names the variables and bodies that make the mass matrix indefinite."""
    return (
        f"the mass matrix is not positive definite: {weakest.moving} would move without a positive kinetic "
        f"energy, because of {_blamed(system, q, parameters, weakest)}"
    )


def _blamed(system: System, q: np.ndarray, parameters: Mapping[str, float], weakest: _Weakest) -> str:
    """Return text with the names of the bodies that reduce the kinetic energy of a motion.
    These bodies have negative moments of inertia. The argument `weakest` has the velocities of the motion.
    """
    energies = _rotational(system, q, parameters, weakest.rates)
    blamed = [i for i in sorted(energies, key=lambda i: energies[i]) if energies[i] < 0]
    names = "; ".join(f"{system.nodes[i].frame.label()} ({system.negative[i]})" for i in blamed)
    return f"a physically impossible inertia: {names}. Correct it in the description"


def _rotational(
    system: System, q: np.ndarray, parameters: Mapping[str, float], rates: np.ndarray
) -> dict[int, float]:
    """Return the rotational energy, J, of each body that has a negative moment of inertia, by frame index.

    Rotations are about the centres of mass, at rates (nd,) of the dynamic variables. Only these energies can
    be negative, because masses are not.
    """
    links, places = _numbers(system, parameters)
    w = np.zeros((len(links) + 1, 3))  # the last is the world's
    for i, link in enumerate(recursions.placed(links, q.tolist())):
        rate = rates[link.index] if link.index < len(rates) else 0.0
        w[i] = np.array(link.R).T @ w[link.parent] + rate * np.array(link.Sw)
    energies = {}
    for i in system.negative:
        (link, R, _), body = places[i], system.nodes[i].frame.mass
        w_body = np.array(R).T @ w[link]
        energies[i] = float(w_body @ body.at(parameters)[1] @ w_body) / 2  # type: ignore[union-attr]
    return energies
