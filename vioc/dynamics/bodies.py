"""Inertial parameters of each rigid body of a mechanism, as CasADi expressions."""

from __future__ import annotations

from typing import Any

import casadi as ca

from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.description.system import System


def body_numbers(system: System, theta: ca.SX) -> dict[str, ca.SX]:
    """Return the ten inertial parameters of each body, as a dict of expressions by frame name.

    They are mass, centre of mass (3) and moments of inertia about it (6). A frame without a name is called by
    its variable, or that of its nearest ancestor with one. `theta` are symbols of the system's parameters, in
    their order.
    """
    names = list(system.parameters)

    def number(value: Any) -> Any:
        return value.of(theta[names.index(value.name)]) if isinstance(value, Parameter) else value

    bodies: dict[str, ca.SX] = {}
    for i, node in enumerate(system.nodes):
        mass = node.frame.mass
        if mass is None:
            continue
        name = node.frame.name or _moved_by(system, i)
        while name in bodies:
            name += "'"
        numbers = (mass.mass, *mass.com, *mass.inertia)
        bodies[name] = ca.vertcat(*(ca.SX(number(n)) for n in numbers))
    return bodies


def _moved_by(system: System, i: int) -> str:
    """Return the name of the variable that moves frame number i.
    It is the variable of the frame, or else that of the nearest ancestor that has a variable.
    """
    while i >= 0:
        variable = system.nodes[i].frame.transform.variable
        if variable is not None:
            return str(variable.name)
        i = system.nodes[i].parent
    return "world"
