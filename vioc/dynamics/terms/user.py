"""Potentials, forces and constraints given by functions of the user's own.

Such a function takes the symbolic kinematics `k` (`vioc.dynamics.kinematics.FrameGraph`) and returns
CasADi expressions of ``k.q(name)``, ``k.v(name)``, ``k.u(name)``, ``k.t``, ``k.position(frame)``,
``k.pose(frame)`` and ``k.body_velocity(frame)``; all derivatives follow. What it takes besides is listed
in `args`: numbers and declared parameters arrive as ``k.number`` makes them, names as they are. These
terms have no model text; a subclass of `Potential`, `Force` or `Constraint` with a keyword has one.
A function defined in a module pickles; a lambda does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import casadi as ca

from vioc.dynamics.description.component import (
    Component,
    Constraint,
    Force,
    Potential,
    function,
    handed_on,
    input_names,
)
from vioc.dynamics.description.numbers import Number
from vioc.errors import ModelError


def _call(term: Any, k: Any) -> Any:
    return term.function(k, *(a if isinstance(a, str) else k.number(a) for a in term.args))


def _scalar(value: Any, what: str) -> ca.SX:
    try:
        result = ca.SX(value)
    except (NotImplementedError, TypeError):
        raise ModelError(f"{what}: expected a CasADi SX expression, got {value!r}") from None
    if result.numel() != 1:
        raise ModelError(f"{what}: expected one number, got an expression of shape {result.shape}")
    return result


def _label(term: Component, function: Any) -> str:
    return f"{term.label()} {getattr(function, '__qualname__', repr(function))}"


@dataclass(frozen=True, repr=False)
class UserPotential(Potential):
    """A potential energy V(q) by a function of the user's own, J.

    Parameters
    ----------
    function : callable
        ``function(k, *args)`` -> V; see the module's text. V may depend on configurations, frames and
        parameters only.
    args : numbers, parameters and names
    """

    function: Callable[..., Any] = function()
    args: tuple[Number | str, ...] = handed_on()

    def energy(self, k: Any) -> ca.SX:
        what = _label(self, self.function)
        V = _scalar(_call(self, k), what)
        for symbol, name in ((k.v_vector, "velocities"), (k.u_vector, "inputs"), (k.t, "time")):
            if ca.depends_on(V, symbol):
                raise ModelError(f"{what}: a potential depends on q alone, got {name}; write a UserForce")
        return V


@dataclass(frozen=True, repr=False)
class UserForce(Force):
    """Generalized forces F(q, dq, u, t) by a function of the user's own.

    Parameters
    ----------
    function : callable
        ``function(k, *args)`` -> dict of the force (N or N m) on each variable, by name.
    inputs : names
        Inputs that it takes, as ``k.u(name)``.
    args : numbers, parameters and names
    """

    function: Callable[..., Any] = function()
    inputs: tuple[str, ...] = input_names()
    args: tuple[Number | str, ...] = handed_on()

    def generalized(self, k: Any) -> dict[str, Any]:
        what = _label(self, self.function)
        forces = _call(self, k)
        if not isinstance(forces, Mapping):
            raise ModelError(f"{what}: expected a dict of forces by variable, got {forces!r}")
        for name in forces:
            k.system.variable_index(name)  # unknown names raise, with near misses
        return {name: _scalar(value, f"{what}: {name}") for name, value in forces.items()}


@dataclass(frozen=True, repr=False)
class UserConstraint(Constraint):
    """A holonomic constraint h(q) = 0 by a function of the user's own.

    Parameters
    ----------
    function : callable
        ``function(k, *args)`` -> h, one number; of configurations, frames and parameters only.
    args : numbers, parameters and names
    """

    function: Callable[..., Any] = function()
    args: tuple[Number | str, ...] = handed_on()

    def value(self, k: Any) -> ca.SX:
        return _scalar(_call(self, k), _label(self, self.function))
