"""Potentials, forces and constraints defined by users' functions.

Such a function takes the symbolic kinematics `k` (`vioc.dynamics.kinematics.FrameGraph`) and returns
CasADi expressions of ``k.q(name)``, ``k.v(name)``, ``k.u(name)``, ``k.t``, ``k.position(frame)``,
``k.pose(frame)`` and ``k.body_velocity(frame)``; all derivatives follow. Further arguments are listed
in `args`: numbers and declared parameters are converted by ``k.number``, names are passed unchanged. These
terms have no model text; a subclass of `Potential`, `Force` or `Constraint` with a keyword has one.
A function defined in a module can be pickled; a lambda cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.description.component import (
    Component,
    Constraint,
    Force,
    Potential,
    function,
    handed_on,
    input_names,
)
from vioc.dynamics.description.numbers import Number, Parameter
from vioc.errors import ModelError


class _Guarded:
    """Symbolic kinematics, as passed to users' functions.
    A `ModelError` is raised if a user's function asks for an undeclared input or parameter.
    """

    def __init__(self, k: Any, term: Any):
        self._k, self._term = k, term

    def __getattr__(self, name: str) -> Any:
        return getattr(self._k, name)

    def u(self, name: str) -> Any:
        if name in self._k.system.inputs:
            return self._k.u(name)
        if isinstance(self._term, UserForce):
            example = (*self._term.inputs, name)
            raise ModelError(f"undeclared input {name!r}; declare it: UserForce(f, {example!r})")
        kind = type(self._term).__name__
        raise ModelError(f"a {kind} depends on q alone, got the input {name!r}; write a UserForce")

    def number(self, value: Any) -> Any:
        if isinstance(value, Parameter) and value.name not in self._k.system.parameters:
            raise ModelError(
                f"undeclared parameter {value.name!r}; hand it on in args=({value!r},) and take it as an "
                "argument of the function"
            )
        return self._k.number(value)


def _call(term: Any, k: Any) -> Any:
    """Call the function of a user's component, and turn any exception into a `ModelError`.

    The error names the component.
    """
    args = [a if isinstance(a, str) else k.number(a) for a in term.args]
    try:
        return term.function(_Guarded(k, term), *args)
    except ModelError as error:
        raise ModelError(f"{_label(term, term.function)}: {error}") from error
    except Exception as error:  # the user's code may raise any exception
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        hint = ""
        if any(word in str(error) for word in ("truth value", "__bool__")):
            hint = "; a symbol has no value yet: write casadi.if_else(condition, a, b), not if, and or max"
        raise ModelError(f"{_label(term, term.function)}: the function raised {reason}{hint}") from error


def _numeric(what: str, reason: str) -> ModelError:
    """Return a `ModelError` with advice, for a user's expression that contains NaN.

    math.sin(symbol) is NaN without an error, because it takes the symbol as a number.
    """
    return ModelError(f"{what}: {reason}; use casadi functions (ca.sin), not math or numpy")


def _scalar(value: Any, what: str) -> ca.SX:
    try:
        result = ca.SX(value)
    except (NotImplementedError, TypeError):
        raise ModelError(f"{what}: expected a CasADi SX expression, got {value!r}") from None
    if result.numel() != 1:
        raise ModelError(f"{what}: expected one number, got an expression of shape {result.shape}")
    graph = ca.Function("term", ca.symvar(result), [result])
    for i in range(graph.n_instructions()):
        if graph.instruction_id(i) == ca.OP_CONST and np.isnan(graph.instruction_constant(i)):
            hint = "" if ca.symvar(result) else "depends on no configuration variable and "
            raise _numeric(what, f"the expression {hint}contains NaN")
    return result


def _label(term: Component, function: Any) -> str:
    return f"{term.label()} {getattr(function, '__qualname__', repr(function))}"


def called(term: Any, k: Any) -> ca.SX:
    """Return the scalar expression that the user's function of the component `term` returns for `k`.
    The argument `k` is the symbolic kinematics of the mechanism.
    """
    return _scalar(_call(term, k), _label(term, term.function))


@dataclass(frozen=True, repr=False)
class UserPotential(Potential):
    """Potential energy V(q), J, that a user's function defines.

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
    """Generalized forces F(q, dq, u, t) that a user's function defines.

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
            try:
                k.system.variable_index(name)
            except ModelError as error:
                raise ModelError(f"{what}: {error}") from None
        return {name: _scalar(value, f"{what}: {name}") for name, value in forces.items()}


@dataclass(frozen=True, repr=False)
class UserConstraint(Constraint):
    """Holonomic constraint h(q) = 0 whose value h a user's function defines.

    Parameters
    ----------
    function : callable
        ``function(k, *args)`` -> h, one number; of configurations, frames and parameters only.
    args : numbers, parameters and names
    """

    function: Callable[..., Any] = function()
    args: tuple[Number | str, ...] = handed_on()

    def value(self, k: Any) -> ca.SX:
        what = _label(self, self.function)
        h = _scalar(_call(self, k), what)
        if not any(ca.depends_on(h, s) for s in (k.q_vector, k.v_vector, k.u_vector, k.t)):
            raise _numeric(what, f"h = {h} depends on no configuration variable")
        return h
