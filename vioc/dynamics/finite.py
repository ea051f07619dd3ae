"""Search for the term of a mechanism that became NaN or infinite in a failed step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import few
from vioc.dynamics.description.component import VelocityConstraint
from vioc.dynamics.lagrangian import Lagrangian


def not_finite(
    lagrangian: Lagrangian, q: np.ndarray, v: np.ndarray, u: np.ndarray, t: float, parameters: np.ndarray
) -> str | None:
    """Describe the first term of the equations of motion whose value or derivative is NaN or infinite.
    Return None if there is no such term.

    Terms are potentials, forces and constraints.

    Parameters
    ----------
    lagrangian : Lagrangian
    q, v : (nq,)
    u : (number of the forces' inputs,)
    t : float
    parameters : (number of parameters,)

    Returns
    -------
    str or None
        For example ``"the force user-force <lambda> on theta is nan at theta = 0.3"``, with the variables on
        which the term depends.
    """
    args = [np.asarray(a, float) for a in (q, v, u, [t], parameters)]
    point = np.concatenate(args[:2])
    motion = ca.vertcat(lagrangian.graph.q_vector, lagrangian.graph.v_vector)
    names = (*lagrangian.system.variables, *(f"v.{n}" for n in lagrangian.system.variables))
    for what, value in _values(lagrangian):
        derivative = ca.jacobian(value, motion)
        indices = derivative.sparsity().get_triplet()[1]
        place = f" at {few([f'{names[i]} = {point[i]:.4g}' for i in indices])}" if indices else ""
        numbers, slopes = lagrangian.function("term", [value, ca.densify(derivative)])(*args)
        bad = np.asarray(numbers).ravel()
        if not np.isfinite(bad).all():
            return f"{what} is {bad[~np.isfinite(bad)][0]:g}{place}"
        row = np.asarray(slopes)[0]
        wrong = np.flatnonzero(~np.isfinite(row))
        if len(wrong):
            return f"the derivative of {what} by {names[wrong[0]]} is {row[wrong[0]]:g}{place}"
    return None


def _values(lagrangian: Lagrangian) -> Iterator[tuple[str, ca.SX]]:
    """Yield a description and the value of each term of the equations of motion."""
    system, g = lagrangian.system, lagrangian.graph
    for potential in system.potentials:
        V = ca.SX(potential.energy(g))
        yield f"the potential {_name(potential)}", V
        slope = ca.gradient(V, g.q_vector)
        for i, variable in enumerate(system.variables):
            if not slope[i].is_zero():
                yield f"the derivative of the potential {_name(potential)} by {variable}", slope[i]
    for force in system.forces:
        for variable, value in force.generalized(g).items():
            yield f"the force {_name(force)} on {variable}", ca.SX(value)
    for name, constraint in zip(system.constraint_names, system.constraints, strict=True):
        value = constraint.rate(g) if isinstance(constraint, VelocityConstraint) else constraint.value(g)
        yield f"the constraint {name}", ca.SX(value)


def _name(term: Any) -> str:
    function = getattr(term, "function", None)
    return (
        term.label()
        if function is None
        else f"{term.label()} {getattr(function, '__qualname__', repr(function))}"
    )
