"""Poses and body velocities of frames, with derivatives ([T] (2)-(10)).

`FrameGraph` is the recursion as a CasADi graph, in which each frame's pose and body velocity are built once
and shared. `Kinematics` evaluates it numerically.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_bounds, as_names, as_value, check_array, limits, near_misses
from vioc.compile.backend import Backend
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.tree_recursions import local_pose
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.description.numbers import Number, Parameter
from vioc.dynamics.description.system import System
from vioc.dynamics.inverse import WIDE, InverseConfigurations, InverseKinematics, targets_of
from vioc.errors import ModelError


class TermGraph(ABC):
    """Interface of symbolic kinematics, from which potentials, forces and constraints are computed.

    It is independent of the coordinates of a mechanism.

    Attributes
    ----------
    system : System
    q_vector, v_vector, u_vector, parameters : casadi.SX
        Arguments of terms: coordinates, rates, inputs (nu,), declared parameters (np,).
    t : casadi.SX
        Time, s.
    """

    q_vector: ca.SX
    v_vector: ca.SX

    def __init__(self, system: System):
        self.system = system
        self.u_vector = ca.SX.sym("u", len(system.inputs))
        self.t = ca.SX.sym("t")
        self.parameters = ca.SX.sym("theta", len(system.parameters))

    @abstractmethod
    def q(self, name: str) -> ca.SX:
        """Return the symbol of a configuration variable by its name."""

    @abstractmethod
    def v(self, name: str) -> ca.SX:
        """Return the symbol of a configuration variable's rate (time derivative), by the variable's name."""

    @abstractmethod
    def node_velocity(self, i: int) -> tuple[Vector, Vector]:
        """Return the linear and angular velocity of frame number i, in the frame's own axes.
        The world has the index -1 and the velocity 0.
        """

    @abstractmethod
    def slope(self, value: ca.SX) -> ca.SX:
        """Return the gradient of a scalar expression with respect to the mechanism's position variables.
        The product of the gradient and the velocities `v_vector` is the time derivative of the expression.
        """

    @abstractmethod
    def node_pose(self, i: int) -> tuple[Matrix, Vector]:
        """Return the rotation and position of frame number i in the world.
        The index -1 denotes the world itself.
        """

    def body_velocity(self, name: str) -> ca.SX:
        """Return the body velocity (6,) of a frame, linear part first ([T] (5)).

        It is v^b_{s,k} in the frame's axes.
        """
        v, w = self.node_velocity(self.system.frame_index(name))
        return ca.vertcat(vec.column(v), vec.column(w))

    def number(self, value: Number) -> Any:
        """Return `value` itself if it is a number, or its CasADi symbol if it is a declared parameter."""
        if not isinstance(value, Parameter):
            return value
        names = list(self.system.parameters)
        if value.name not in names:
            raise ModelError(f"undeclared parameter {value.name!r}; {near_misses(value.name, names)}")
        return value.of(self.parameters[names.index(value.name)])

    def u(self, name: str) -> ca.SX:
        """Return the symbol of an input by its name."""
        if name not in self.system.inputs:
            raise ModelError(f"undeclared input {name!r}; {near_misses(name, self.system.inputs)}")
        return self.u_vector[self.system.inputs.index(name)]

    def position(self, name: str) -> ca.SX:
        """Return the world position of a frame's origin (3,), m."""
        return vec.column(self.node_pose(self.system.frame_index(name))[1])

    def pose(self, name: str) -> ca.SX:
        """Return the pose of a frame in the world, 4 x 4 ([T] (2))."""
        R, p = self.node_pose(self.system.frame_index(name))
        top = ca.horzcat(vec.matrix(R), vec.column(p))
        return ca.vertcat(top, ca.SX(np.array([[0.0, 0.0, 0.0, 1.0]])))

    def masses(self) -> Iterator[tuple[Any, ca.SX]]:
        """Yield each mass of the mechanism, with the world position of its centre of mass."""
        for i, node in enumerate(self.system.nodes):
            if node.frame.mass is not None:
                R, p = self.node_pose(i)
                com = tuple(self.number(c) for c in node.frame.mass.com)
                yield self.number(node.frame.mass.mass), vec.column(vec.add(p, vec.apply(R, com)))


class FrameGraph(TermGraph):
    """Symbolic kinematics of a tree of frames, in the configuration q and the rates v, both (nq,)."""

    def __init__(self, system: System):
        super().__init__(system)
        nq = len(system.variables)
        self.q_vector = ca.SX.sym("q", nq)
        self.v_vector = ca.SX.sym("v", nq)
        self._poses: dict[int, tuple[Matrix, Vector]] = {}
        self._velocities: dict[int, tuple[Vector, Vector]] = {}

    def q(self, name: str) -> ca.SX:
        return self.q_vector[self.system.variable_index(name)]

    def v(self, name: str) -> ca.SX:
        return self.v_vector[self.system.variable_index(name)]

    def slope(self, value: ca.SX) -> ca.SX:
        return ca.gradient(value, self.q_vector)

    # -- the recursion ----------------------------------------------------------------------------

    def node_pose(self, i: int) -> tuple[Matrix, Vector]:
        if i < 0:
            return vec.IDENTITY, vec.ZERO
        if i not in self._poses:
            for j in range(len(self._poses), i + 1):  # parents precede children
                R, p = self.node_pose(self.system.nodes[j].parent)
                dR, dp = self._local(j)
                self._poses[j] = (vec.matmul(R, dR), vec.add(p, vec.apply(R, dp)))
        return self._poses[i]

    def node_velocity(self, i: int) -> tuple[Vector, Vector]:
        """Return the linear and angular velocity of frame number i, computed from those of its parent.

        It is Ad(g_k^-1) of the parent's velocity, plus the joint's twist.
        """
        if i < 0:
            return vec.ZERO, vec.ZERO
        if i not in self._velocities:
            for j in range(len(self._velocities), i + 1):
                node = self.system.nodes[j]
                v, w = self.node_velocity(node.parent)
                R, p = self._local(j)
                transposed = vec.transpose(R)
                v, w = vec.apply(transposed, vec.add(v, vec.cross(w, p))), vec.apply(transposed, w)
                transform = node.frame.transform
                if transform.variable is not None:
                    rate = self.v(transform.variable.name)
                    linear, angular = transform.twist
                    v = vec.add(v, vec.scale(rate, linear))  # type: ignore[arg-type]
                    w = vec.add(w, vec.scale(rate, angular))  # type: ignore[arg-type]
                self._velocities[j] = (v, w)
        return self._velocities[i]

    def _local(self, i: int) -> tuple[Matrix, Vector]:
        """Return the rotation and position of frame number i in its parent."""
        transform = self.system.nodes[i].frame.transform
        variable = transform.variable
        return local_pose(transform, self.number, self.q(variable.name) if variable else None)


class Kinematics:
    """Numerical poses and body velocities of frames by their names, and inverse kinematics.

    Derivatives may have any order.

    Parameters
    ----------
    system : System
    backend : {"virtual", "compiled", "auto"}
        Backend of `inverse`.
    **parameters : float
        Values of declared parameters other than their defaults.

    Notes
    -----
    A configuration is an array in the order of ``system.variables`` or a dict by name (missing names
    are zero). Each derivative is an exact CasADi function, built at its first use and cached.
    """

    def __init__(self, system: System, *, backend: str = "virtual", **parameters: float):
        self.system, self.backend = system, Backend(backend)
        self.graph = FrameGraph(system)
        self._theta = np.array(list(system.parameter_values(parameters).values()), float)
        self._functions: dict[tuple, Evaluator] = {}
        self._solvers: dict[tuple, InverseKinematics] = {}

    def __repr__(self) -> str:
        system = self.system
        frames = len(system.frame_names)
        return f"Kinematics({system.name}: {len(system.variables)} variables, {frames} frames)"

    def pose(self, frame: str, q: Any, order: int = 0) -> np.ndarray:
        """Return the pose (4, 4) of a frame in the world, or its derivatives.
        They are the derivatives of the given order with respect to the configuration q ([T] (2)-(4)).

        Returns
        -------
        (4, 4), (4, 4, nq), (4, 4, nq, nq), ... for `order` 0, 1, 2, ...: one axis per derivative.
        """
        return self._evaluate("pose", frame, "q" * order, q, None)

    def position(self, frame: str, q: Any, order: int = 0) -> np.ndarray:
        """Return the world position (3,) of a frame's origin, m, or its derivatives.
        They are the derivatives of the given order with respect to the configuration q.
        """
        return self.pose(frame, q, order)[:3, 3]

    def body_velocity(self, frame: str, q: Any, v: Any, by: str = "") -> np.ndarray:
        """Return the body velocity (6,) of a frame, linear part first, or its derivatives.
        Each letter ``q`` or ``v`` in `by` adds a derivative with respect to this argument ([T] (5)-(10)).

        Parameters
        ----------
        by : str
            One letter a derivative, ``q`` or ``v`` (the rate): ``"qv"`` has shape (6, nq, nq), with
            entry [:, i, j] the derivative by q_i and v_j.
        """
        return self._evaluate("body_velocity", frame, by, q, v)

    def jacobian(self, frame: str, q: Any) -> np.ndarray:
        """Return the Jacobian (6, nq) of a frame's body velocity, linear rows first ([T] IV-E)."""
        return self.body_velocity(frame, q, None, by="v")

    # -- inverse kinematics -------------------------------------------------------------------------

    def inverse(
        self,
        targets: Mapping[str, Any],
        guess: Any = None,
        *,
        bounds: Mapping[str, Any] | None = None,
        fixed: Iterable[str] = (),
        tries: int = 50,
        tolerance: float = 1e-10,
        seed: int = 0,
    ) -> InverseConfigurations:
        """Find configurations at which frames have given poses or positions.

        Limits and constraints are satisfied. The method is damped Gauss-Newton from the guess, then from
        random configurations within the limits (docs/maths/arms.md).

        Parameters
        ----------
        targets : dict of frame to (4, 4) pose, (3,) position, or N of either
            In the world, m. The remaining freedom of a redundant arm depends on the guess.
        guess : (nq,), (N, nq) or dict by name, optional
            Default the middle of the limits, and 0 without limits.
        bounds : dict of str to (lower, upper), optional
            Bounds of variables; from ``robot.bounds()`` those of velocities and inputs are ignored.
        fixed : names
            Variables that keep the values of the guess. Kinematic variables move.
        tries : int
            Largest number of guesses for each target.
        tolerance : float
            Largest error of positions (m), rotations (rad) and constraints.
        seed : int
            Seed of the random guesses.

        Returns
        -------
        InverseConfigurations
            Not converged if no try succeeds: the target is out of reach, or more tries are needed.
        """
        frames, rows, single = targets_of(targets)
        low, high, free, q0 = self._limits(bounds, guess, fixed)
        starts = np.array(np.broadcast_to(q0, (len(rows), len(low))), float)
        solutions = self._inverse(frames).solve(
            *(rows, np.clip(starts, low, high), low, high, free, self._theta),
            tries=int(tries),
            tolerance=float(tolerance),
            rng=np.random.default_rng(seed),
        )
        one = single and len(q0) == 1
        q, error, converged, attempts = (a[0] if one else a for a in solutions)
        return InverseConfigurations(q, error, converged, attempts, self.system.variables)

    def inverses(
        self,
        targets: Mapping[str, Any],
        seeds: Any = 100,
        *,
        apart: float = 1e-3,
        seed: int = 0,
        **options: Any,
    ) -> np.ndarray:
        """Find several configurations (k, nq) that reach one set of targets.
        The search starts from many initial guesses.

        They are sorted by their distance from the first seed.

        Parameters
        ----------
        targets : as for `inverse`, one
        seeds : int or (S, nq)
            Initial configurations; a number of them is drawn within the limits. The first is `guess`,
            or the middle of the limits, whose values ``fixed`` variables keep.
        apart : float
            Two configurations whose variables differ by less are one, rad and m; angles without limits are
            compared modulo a turn.
        **options
            ``bounds``, ``fixed``, ``tolerance``, and ``guess``, as for `inverse`.
        """
        args = options.get("bounds"), options.pop("guess", None), options.get("fixed", ())
        low, high, free, middle = self._limits(*args)
        if np.ndim(seeds) == 0:
            span = np.maximum(low, -WIDE), np.minimum(high, WIDE)
            samples = np.random.default_rng(seed).uniform(*span, (int(seeds) - 1, len(low)))
            seeds = np.concatenate([middle[:1], np.where(free > 0, samples, middle[0])])
        seeds = np.atleast_2d(np.asarray(seeds, float))
        many = {
            name: np.broadcast_to(value, (len(seeds), *np.shape(value))) for name, value in targets.items()
        }
        solutions = self.inverse(many, seeds, tries=1, **options)
        q = solutions.q[solutions.converged]
        endless = np.array(
            [
                n in self._angles and np.isinf(b - a)
                for n, a, b in zip(solutions.names, low, high, strict=True)
            ]
        )
        q[:, endless] -= 2 * np.pi * np.round((q[:, endless] - seeds[0][endless]) / (2 * np.pi))
        result: list[np.ndarray] = []
        for one in q[np.argsort(np.linalg.norm(q - seeds[0], axis=1), kind="stable")]:
            if all(np.abs(one - other).max() > apart for other in result):
                result.append(one)
        return np.array(result).reshape(-1, len(low))

    @property
    def _angles(self) -> set[str]:
        transforms = (node.frame.transform for node in self.system.nodes)
        return {t.variable.name for t in transforms if t.variable and t.rotational}

    def _limits(self, bounds: Any, guess: Any, fixed: Iterable[str]) -> tuple[np.ndarray, ...]:
        """Return lower and upper limits, the mask of variables that are not fixed, and initial guesses.

        Lower and upper limits are (nq,), guesses (1 or N, nq).
        """
        names = self.system.variables
        low, high = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        others = {f"v.{n}" for n in names} | {p + n for n in self.system.inputs for p in ("", "u.")}
        for name, value in as_bounds(bounds).items():
            if name not in names and name not in others:
                raise ModelError(f"bounds: {name!r} is no variable; {near_misses(name, names)}")
            if name in names:
                i = names.index(name)
                (low[i],), (high[i],) = limits(value, 1, f"bounds on {name}", number="symmetric")
        free = np.ones(len(names))
        free[[self.system.variable_index(n) for n in as_names(fixed, "fixed")]] = 0.0
        if np.ndim(guess) == 2:
            q0 = check_array(guess, np.shape(guess)[:1] + (len(names),), "guess", names)
        elif guess is None:
            with np.errstate(invalid="ignore"):
                q0 = np.nan_to_num(0.5 * (low + high), nan=0.0, posinf=0.0, neginf=0.0)[None]
        else:
            q0 = self.configuration(guess)[None]
        fixed_mask = free == 0
        low[fixed_mask], high[fixed_mask] = -np.inf, np.inf
        return low, high, free, q0

    def _inverse(self, frames: list[tuple[str, bool]]) -> InverseKinematics:
        key = ("inverse", *frames)
        if key not in self._solvers:
            g = self.graph
            h = vec.column(c.value(g) for c in self.system.constraints)
            self._solvers[key] = InverseKinematics(g, h, frames, self.backend)
        return self._solvers[key]

    def _evaluate(self, what: str, frame: str, by: str, q: Any, v: Any) -> np.ndarray:
        if set(by) - set("qv"):
            raise ValueError(f"by: expected letters q and v, got {by!r}")
        key = (what, frame, by)
        if key not in self._functions:
            g = self.graph
            expression = ca.vec(getattr(g, what)(frame))
            for letter in by:
                expression = ca.vec(ca.jacobian(expression, g.q_vector if letter == "q" else g.v_vector))
            args = [g.q_vector, g.v_vector, g.parameters]
            self._functions[key] = Evaluator(ca.Function(what, args, [expression]))
        n = len(self.system.variables)
        arrays = self.configuration(q), self.configuration(v)
        flat = self._functions[key](*arrays, self._theta)[0][:, 0]
        shape = (4, 4) if what == "pose" else (6,)
        return np.ascontiguousarray(flat.reshape((*shape, *[n] * len(by)), order="F"))

    def configuration(self, q: Mapping[str, float] | Any) -> np.ndarray:
        """Convert a configuration to an array (nq,); it may be an array, a dict by name, or None for zero."""
        return as_configuration(self.system, q, "configuration")


def as_configuration(
    system: System, q: Mapping[str, float] | Any, what: str, named: Mapping[str, float] | None = None
) -> np.ndarray:
    """Convert a configuration or velocity to an array in the order of the variables.

    `q` is an array, a dict by name, or None for zero. `named` has further values by name, and requires that
    `q` is a dict or None. A velocity may have its full name, ``v.theta``.
    """
    names = system.variables
    q = getattr(q, "q", q)  # a ConstraintReport is a configuration
    if named:
        if q is not None and not isinstance(q, Mapping):
            raise ValueError(
                f"{what}: {', '.join(map(repr, named))} by keyword go with values by name, got {q!r} as well"
            )
        q = {**(q or {}), **named}
    if q is None:
        return np.zeros(len(names))
    if isinstance(q, Mapping):
        result = np.zeros(len(names))
        for name, value in q.items():
            result[system.variable_index(_variable(system, name, what))] = as_value(value, f"{what}: {name}")
        q = result
    return check_array(q, (len(names),), what, names)


def _variable(system: System, name: str, what: str) -> str:
    """Return the name of the variable that a key denotes, in a dict of positions or of velocities.
    A key is a variable's name. In a dict of velocities, the key ``v.NAME`` also denotes the variable NAME.
    """
    kind, variable = (name[:2], name[2:]) if isinstance(name, str) else ("", "")
    if name in system.variables or variable not in system.variables:
        return name
    if kind == "v." and what == "velocity":
        return variable
    if kind in ("v.", "v_") and what == "configuration":
        raise ModelError(
            f"{what}: {name!r} is a velocity, which is a separate argument, {{{variable!r}: ...}}"
        )
    if kind == "p.":
        raise ModelError(f"{what}: {name!r} is a momentum; f.state({{{name!r}: ...}}) takes states")
    return name
