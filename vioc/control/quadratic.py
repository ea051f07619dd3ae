"""Quadratic costs of named quantities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import by_name, check_array
from vioc.control.costs import Cost
from vioc.control.weights import INPUTS, input_weight, weight_matrix
from vioc.dynamics.integrators.base import OneStepMap


def quadratic(
    f: OneStepMap,
    *,
    Q: Any = None,
    R: Any = None,
    Qf: Any = None,
    goal: Mapping[str, float] | None = None,
    reference: Any = None,
    u_reference: Any = None,
    per_time: bool = True,
) -> Cost:
    """sum of w_k (1/2 e'Qe + 1/2 v'Rv) + 1/2 e_N'Qf e_N, e and v the errors of state and input.

    Parameters
    ----------
    f : OneStepMap
    Q, Qf : dict of str to float, or float, (nx,), (nx, nx)
        Running and terminal weights >= 0: by the name of any quantity of the map (states, velocities,
        frame positions, multipliers), or an array on the state. Errors of angles that the map wraps
        are taken the short way round.
    R : dict of str to float, or float, (nu,), (nu, nu)
        Weight > 0 of every input, by the input's name (``NAME`` or ``u.NAME``) or as an array.
    goal : dict of str to float, optional
        Constant values to reach, by quantity; 0 where not named.
    reference : (N+1, nx), or dict of str to float or (N+1,), optional
        Values to follow, of the states or by quantity.
    u_reference : (N, nu), (nu,), or dict of str to float or (N,), optional
        Inputs to follow, by the input's name as in R; default 0.
    per_time : bool
        w_k = dt_k, else 1.

    Raises
    ------
    ModelError
        Unknown names.
    ValueError
        Shapes, numbers that are not finite, Q or Qf not symmetric positive semi-definite, R not
        positive definite, a goal or reference of a quantity that has no weight.
    """
    if Q is None and R is None and Qf is None:
        raise ValueError("a cost needs weights: give at least one of Q, R and Qf")
    targets = _Targets(f, goal, reference, u_reference)
    x, u, multipliers = f.symbols[:3]
    stage = ca.vertcat(x, u, multipliers)
    running, convex = targets.form(Q, "Q", stage)
    terminal, convex_end = targets.form(Qf, "Qf", x)
    if R is not None:
        if isinstance(R, Mapping):
            R = by_name(R, f.input_names, "R", prefix=INPUTS)
            missing = [n for n in f.input_names if n not in R]
            if missing:
                raise ValueError(f"R: input {missing[0]!r} has no weight; every input needs one > 0")
        weight = input_weight(f, R, "R", definite=True)
        cost, part = _half_form(weight, [targets.error(INPUTS + n) for n in f.input_names], stage)
        running, convex = running + cost, convex + part
    targets.check_used()
    return Cost(
        f,
        running,
        terminal,
        references=targets.references,
        per_time=per_time,
        convex=(convex, convex_end),
    )


class _Targets:
    """Errors of named quantities from what they should be; collects the references that vary."""

    def __init__(self, f: OneStepMap, goal: Any, reference: Any, u_reference: Any):
        self.f = f
        self.references: list[tuple[ca.SX, np.ndarray]] = []
        self._values: dict[str, Any] = {}
        self._named: list[str] = []  # by the user, one by one: each must have a weight
        self._symbols: dict[str, ca.SX] = {}
        self._add({} if goal is None else goal, "goal", f.state_names)
        self._add(reference, "reference", f.state_names)
        self._add(u_reference, "u_reference", f.input_names, prefix=INPUTS)

    def _add(self, given: Any, what: str, names: tuple[str, ...], prefix: str = "") -> None:
        if given is None:
            return
        if what == "goal" and not isinstance(given, Mapping):
            raise ValueError(f"goal: expected a dict of values by quantity, got {given!r}; see `reference`")
        if isinstance(given, Mapping):
            if prefix:
                given = by_name(given, names, what, prefix=prefix)
            given = {prefix + name: value for name, value in given.items()}
            self._named += given
        else:
            array = np.asarray(given, float)
            if array.shape[-1:] != (len(names),) or array.ndim > 2:
                raise ValueError(
                    f"{what}: expected shape (steps, {len(names)}) in the order {', '.join(names)}, "
                    f"got {array.shape}"
                )
            given = {prefix + name: array[..., i] for i, name in enumerate(names)}
        for name, value in given.items():
            if name in self._values:
                raise ValueError(f"{what}: {name!r} has a goal and a reference; give one")
            values = np.asarray(value, float)
            if values.ndim > 1 or (what == "goal" and values.ndim):
                shape = "a number" if what == "goal" else "a number or one value per sample"
                raise ValueError(f"{what}: expected {shape} for {name!r}, got shape {values.shape}")
            self._values[name] = check_array(values, values.shape or (1,), f"{what} of {name!r}")

    def error(self, name: str) -> ca.SX:
        """The quantity minus its target."""
        values = self._values.get(name, np.zeros(1))
        if values.size > 1 and name not in self._symbols:
            self._symbols[name] = ca.SX.sym(f"reference_{len(self.references)}")
            self.references.append((self._symbols[name], values))
        e = self.f.quantity(name) - (self._symbols[name] if values.size > 1 else values[0])
        if name in getattr(self.f, "wrap", ()):
            e -= 2 * np.pi * ca.floor(e / (2 * np.pi) + 0.5)
        if name in self._named:
            self._named.remove(name)
        return e

    def form(self, weights: Any, what: str, by: ca.SX) -> tuple[ca.SX, ca.SX]:
        """1/2 e' W e, and the part J' W J of its Hessian."""
        names = list(weights) if isinstance(weights, Mapping) else list(self.f.state_names)
        if weights is None or not names:
            return ca.SX(0), ca.SX(by.numel(), by.numel())
        errors = [self.error(name) for name in names]
        if what == "Qf":
            later = ca.vertcat(self.f.symbols.u, self.f.symbols.multipliers)
            for name, e in zip(names, errors, strict=True):
                if ca.depends_on(e, later):
                    raise ValueError(f"Qf: {name!r} belongs to a step, and none starts at the last state")
        return _half_form(weight_matrix(weights, names, what), errors, by)

    def check_used(self) -> None:
        for name in self._named:
            self.f.quantity(name)  # says so where there is none
            raise ValueError(f"{name!r} has a goal or a reference, but no weight")


def _half_form(weight: np.ndarray, errors: Sequence[ca.SX], by: ca.SX) -> tuple[ca.SX, ca.SX]:
    e, W = ca.vertcat(*errors), ca.sparsify(ca.DM(weight))
    J = ca.jacobian(e, by)
    return 0.5 * ca.dot(e, W @ e), J.T @ W @ J
