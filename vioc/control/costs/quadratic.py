"""Quadratic costs of named quantities about goals or reference trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_floats, as_names, check_array
from vioc.compile.evaluate import Evaluator
from vioc.control.costs.cost import Cost
from vioc.control.costs.squares import Squares
from vioc.control.linear.weights import input_weight, weight_matrix
from vioc.maps.orientation import AXES, component, rotation_vector
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name, by_quantity, quantity_name
from vioc.runs.given import trajectory_of
from vioc.runs.steps import check_steps
from vioc.runs.trajectory import Trajectory


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
    wrap: str | Iterable[str] = (),
) -> Cost:
    """Return a quadratic cost of the deviations of named quantities from their goals.

    It is the sum of w_k (1/2 e'Qe + 1/2 v'Rv) + 1/2 e_N'Qf e_N with the errors e and v of state and input.

    Parameters
    ----------
    f : OneStepMap
    Q, Qf : dict of str to float, or float, (ndx,), (ndx, ndx)
        Running and terminal weights >= 0: by the name of any quantity of the map (states, velocities,
        frame positions, multipliers), or an array on the state's error ``difference(x_d, x)``. Errors of
        angles that the map wraps are taken the short way round. The error of ``FRAME:rx``, ``FRAME:ry``,
        ``FRAME:rz`` is the rotation from the orientation with that rotation vector, log(R_d' R), in its axes.
    R : dict of str to float, or float, (nu,), (nu, nu)
        Weight > 0 of every input, by the input's name (``NAME`` or ``u.NAME``) or as an array.
    goal : dict of str to float, optional
        Constant targets by quantity; default 0.
    reference : (N+1, nx), (nx,), a trajectory, an equilibrium, or dict of str to float or (N+1,), optional
        Targets over time: states (and the quantities that depend on them), or values by quantity. Required
        with an array of weights if errors are not differences of states (ndx != nx).
    u_reference : (N, nu), (nu,), a trajectory, an equilibrium, or dict of str to float or (N,), optional
        Targets of the inputs, by the input's name as in R; default 0.
    per_time : bool
        True for w_k = dt_k, False for w_k = 1.
    wrap : names, optional
        Quantities that are angles known modulo 2 pi, such as joint angles in maximal coordinates, in addition
        to those that the map wraps.

    Raises
    ------
    ModelError
        Unknown names.
    ValueError
        Wrong shapes or values that are not finite, Q or Qf not symmetric positive semi-definite, R not
        positive definite, a goal, reference or `wrap` of a quantity that has no weight.
    """
    if Q is None and R is None and Qf is None:
        raise ValueError("a cost needs weights: give at least one of Q, R and Qf")
    targets = _Targets(f, goal, reference, u_reference, as_names(wrap, "wrap"))
    running, terminal = targets.form(Q, "Q"), targets.form(Qf, "Qf")
    if R is not None:
        if isinstance(R, Mapping):
            R = by_name(R, f.input_names, "R", prefix=INPUTS)
            missing = [n for n in f.input_names if n not in R]
            if missing:
                raise ValueError(f"R: input {missing[0]!r} has no weight; every input needs one > 0")
        weight = input_weight(f, R, "R", definite=True)
        running += _half_form(weight, [targets.error(INPUTS + n) for n in f.input_names])
    targets.check_used()
    return Cost(f, running, terminal, references=targets.references, per_time=per_time)


def _check_known(values: np.ndarray, what: str) -> None:
    """Raise ValueError if a reference has missing samples (NaN).
    The message has advice to fill them.
    """
    gaps = np.flatnonzero(~np.isfinite(values))
    if len(gaps) and values.ndim:
        more = f" and at {len(gaps) - 1} more" * (len(gaps) > 1)
        raise ValueError(
            f"{what}: expected finite numbers, got {values[gaps[0]]} at sample {gaps[0]}{more}; a cost "
            "leaves no sample out: fill it from those around, np.interp(t, t[known], values[known]), or "
            "follow another quantity"
        )


class _Targets:
    """Goals and time-varying references of named quantities.
    The class returns the deviations of quantities from these targets as expressions.
    """

    def __init__(self, f: OneStepMap, goal: Any, reference: Any, u_reference: Any, wrap: tuple[str, ...]):
        self.f = f
        wrap = tuple(quantity_name(f, name, "wrap") for name in wrap)
        self._wrapped = (*f.wrap, *wrap)
        self._to_wrap = set(wrap)  # each must have a weight
        self.references: list[tuple[ca.SX, np.ndarray]] = []
        self._values: dict[str, Any] = {}
        self._named: list[str] = []  # quantities with a goal or reference by name: each must have a weight
        self._symbols: dict[str, ca.SX] = {}
        self._rotations: dict[str, ca.SX] = {}
        self._states: np.ndarray | None = None  # the reference, if it consists of whole states
        self._add({} if goal is None else goal, "goal", f.state_names)
        self._add(reference, "reference", f.state_names)
        self._add(u_reference, "u_reference", f.input_names, prefix=INPUTS)

    def _add(self, given: Any, what: str, names: tuple[str, ...], prefix: str = "") -> None:
        if given is None:
            return
        if what != "goal" and not isinstance(given, Mapping):
            given = trajectory_of(given)
            h = given.step_lengths if isinstance(given, Trajectory) else np.zeros(0)
            if h.size and (h == h[0]).all():  # unequal ones are checked by the optimizer
                check_steps(h[0], self.f.dt, what)
            given = getattr(given, "x" if what == "reference" else "u", given)
        if what == "goal" and not isinstance(given, Mapping):
            raise ValueError(f"goal: expected a dict of values by quantity, got {given!r}; see `reference`")
        if isinstance(given, Mapping):
            if prefix:
                named = by_name(given, names, what, prefix=prefix)
                given = {prefix + name: value for name, value in named.items()}
            else:
                given = by_quantity(self.f, given, what)
            self._named += given
        else:
            array = as_floats(given, what)
            if array.shape[-1:] != (len(names),) or array.ndim > 2:
                raise ValueError(
                    f"{what}: expected shape (steps, {len(names)}) in the order {', '.join(names)}, "
                    f"got {array.shape}"
                )
            for name, column in zip(names, array.T, strict=True):
                _check_known(column, f"{what} of {prefix + name!r}")
            if what == "reference":
                self._states = check_array(
                    np.atleast_2d(array), (array.size // len(names), len(names)), what, names
                )
            given = {prefix + name: array[..., i] for i, name in enumerate(names)}
        for name, value in given.items():
            if name in self._values:
                raise ValueError(f"{what}: {name!r} has a goal and a reference; give one")
            values = as_floats(value, f"{what} of {name!r}")
            if values.ndim > 1 or (what == "goal" and values.ndim):
                shape = "a number" if what == "goal" else "a number or one value per sample"
                raise ValueError(f"{what}: expected {shape} for {name!r}, got shape {values.shape}")
            _check_known(values, f"{what} of {name!r}")
            self._values[name] = check_array(values, values.shape or (1,), f"{what} of {name!r}")

    def target(self, name: str) -> Any:
        """Return the goal of a quantity: a number, or the symbol of a varying reference."""
        if name not in self._values and self._states is not None:
            self._values[name] = self._on_reference(name)
        values = self._values.get(name, np.zeros(1))
        if values.size == 1:
            return float(values.flat[0])
        if name not in self._symbols:
            self._symbols[name] = ca.SX.sym(f"reference_{len(self.references)}")
            self.references.append((self._symbols[name], values))
        return self._symbols[name]

    def _on_reference(self, name: str) -> np.ndarray:
        """Return the values of a quantity at the reference states.
        The result is 0 for a quantity that depends on inputs, multipliers or the step length, since the
        reference states do not determine it.
        """
        f, quantity = self.f, self.f.quantity(name)
        if ca.depends_on(quantity, ca.vertcat(f.symbols.u, f.symbols.multipliers, f.symbols.dt)):
            return np.zeros(1)
        return self._along_reference(quantity).ravel()

    def _along_reference(self, expression: ca.SX) -> np.ndarray:
        s = self.f.symbols
        evaluate = Evaluator(ca.Function("on_reference", [s.x, s.parameters], [expression]))
        assert self._states is not None
        return evaluate(self._states, self.f.theta)[0]

    def error(self, name: str) -> ca.SX:
        """Return the deviation of a quantity from its goal, as an expression.
        If the quantity is a component of an orientation R with the goal R_d, the deviation is this component
        of the rotation vector log(R_d' R).
        """
        part = component(name)
        R = None if part is None else self.f.quantities.rotation(part[0])
        if part is not None and R is not None:
            return rotation_vector(self._rotation(part[0]).T @ R)[part[1]]
        e = self.f.quantity(name) - self.target(name)
        self._to_wrap.discard(name)
        if name in self._wrapped:
            e -= 2 * np.pi * ca.floor(e / (2 * np.pi) + 0.5)
        if name in self._named:
            self._named.remove(name)
        return e

    def _rotation(self, frame: str) -> ca.SX:
        """Return a frame's desired rotation R_d, from its goal or the reference states."""
        from scipy.spatial.transform import Rotation  # imported here because it is slow to import

        names = [f"{frame}:{axis}" for axis in AXES]
        self._to_wrap -= set(names)  # a rotation vector always takes the short way round
        self._named = [name for name in self._named if name not in names]
        if frame not in self._rotations:
            if self._states is not None and not any(name in self._values for name in names):
                R = self._along_reference(self.f.quantities.rotation(frame))
            else:
                values = [self._values.get(name, np.zeros(1)) for name in names]
                R = Rotation.from_rotvec(np.stack(np.broadcast_arrays(*values), axis=-1)).as_matrix()
            if len(R) > 1:
                self._rotations[frame] = ca.SX.sym(f"reference_{len(self.references)}", 3, 3)
                columns = np.swapaxes(R, 1, 2).reshape(len(R), 9)  # as CasADi stacks a matrix
                self.references.append((self._rotations[frame], columns))
            else:
                self._rotations[frame] = ca.SX(R[0])
        return self._rotations[frame]

    def state_errors(self, what: str) -> list[ca.SX]:
        """Return the components of the error difference(x_d, x) of the state.
        The desired states x_d are the reference.
        """
        f = self.f
        if f.ndx == f.nx:
            return [self.error(name) for name in f.state_names]
        missing = [name for name in f.state_names if name not in self._values]
        if missing:
            raise ValueError(
                f"{what}: a weight on the whole state needs the state to be near, and {missing[0]!r} has no "
                "value; give reference=x (nx,) or (N+1, nx), or weigh quantities by name"
            )
        self._named = [name for name in self._named if name not in f.state_names]
        x_d = ca.vertcat(*(self.target(name) for name in f.state_names))
        return ca.vertsplit(f.space.difference_expression(x_d, f.symbols.x))

    def form(self, weights: Any, what: str) -> Squares:
        """Return the cost 1/2 e'We, where e are deviations of quantities from their goals.
        `weights` is a number, the diagonal of W, the matrix W, or a dict of weights by name.
        """
        f = self.f
        by_name = isinstance(weights, Mapping)
        weights = by_quantity(f, weights, what) if by_name else weights
        names = tuple(weights) if by_name else f.space.error_names
        if weights is None or not names:
            return Squares.nothing()
        errors = [self.error(name) for name in names] if by_name else self.state_errors(what)
        if what == "Qf":
            later = ca.vertcat(f.symbols.u, f.symbols.multipliers)
            for name, e in zip(names, errors, strict=True):
                if ca.depends_on(e, later):
                    raise ValueError(f"Qf: {name!r} belongs to a step, and none starts at the last state")
        return _half_form(weight_matrix(weights, names, what), errors)

    def check_used(self) -> None:
        for name in self._named:
            raise ValueError(f"{name!r} has a goal or a reference, but no weight")
        for name in self._to_wrap:
            raise ValueError(f"wrap: {name!r} has no weight by its name")


def _half_form(weight: np.ndarray, errors: Sequence[ca.SX]) -> Squares:
    e, W = ca.vertcat(*errors), ca.sparsify(ca.DM(weight))
    return Squares.convex(0.5 * ca.dot(e, W @ e), e, W)
