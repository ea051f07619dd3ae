"""Named quantities, such as rates and energies, of the integrator on SO(3)^n x R^m."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.charts import Chart
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.groups.group_lagrangian import GroupLagrangian
from vioc.dynamics.integrators.groups.group_space import GroupSpace
from vioc.dynamics.velocities import quantity_unit, velocity, velocity_names
from vioc.errors import ModelError
from vioc.maps.kernel import KernelMap
from vioc.maps.orientation import AXES, rotation_vector
from vioc.maps.twins import shared

BODY = ("x", "y", "z")


class GroupQuantities(KernelMap):
    """Base class of the integrator `GroupVI` that evaluates its named quantities."""

    system: System
    group: GroupLagrangian
    rates: tuple[str, ...]
    nq: int
    nd: int
    rotations: Sequence[Chart]
    bases: tuple[str, ...]
    space: GroupSpace

    @shared
    def _rates(self) -> ca.SX:
        """Rates v (nd,) of a state, projected onto the constraints.
        Without constraints, they satisfy p = M(q) v with the mass matrix M and the momenta p.
        """
        x = self.symbols.x
        return self.group.velocity(x[: self.nq], x[self.nq :], self.symbols.parameters)

    @shared
    def _velocity(self) -> Evaluator:
        def build() -> ca.Function:
            return ca.Function("velocity", [self.symbols.x, self.symbols.parameters], [self._rates])

        return Evaluator(self.backend.program(build, "velocity"))

    def velocities(self, x: np.ndarray) -> np.ndarray:
        """Return the rates (..., nd) of states (..., nx).
        They are the rates of the coordinates r, which belong to no rotation, then the angular velocities of
        the rotations, in the axes of the bodies.
        """
        x = np.asarray(x, float)
        flat = self._velocity(np.ascontiguousarray(x.reshape(-1, self.nx)), self.theta)[0][..., 0]
        return flat.reshape(*x.shape[:-1], self.nd)

    @shared
    def _energies(self) -> tuple[ca.SX, ca.SX]:
        x, u, _, theta, _ = self.symbols
        *_, T, V = self.group.terms(x[: self.nq], self._rates, u, 0, theta)
        return T, V

    @shared
    def _constraint_numbers(self) -> Evaluator:
        return Evaluator(self.group.constraint)

    @shared
    def _directions(self) -> Evaluator:
        return Evaluator(self.group.directions)

    def frame_positions(self, X: Any) -> np.ndarray:
        """Return world positions (N, n, 3), in m, of all n frames for states (N, nx)."""
        return self.frame_poses(X)[0]

    def frame_poses(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the poses of all n frames: positions (N, n, 3) in m, rotations (N, n, 3, 3)."""
        X = np.atleast_2d(np.asarray(X, float))
        p, R = self._place_numbers(np.ascontiguousarray(X[:, : self.nq]), self.theta)
        return np.swapaxes(p, 1, 2), np.swapaxes(R.reshape(len(X), 3, -1, 3), 1, 2)

    @shared
    def _place_numbers(self) -> Evaluator:
        return Evaluator(self.group.places)

    @shared
    def _places(self) -> tuple[ca.SX, ca.SX]:
        """Positions and rotation matrices of all frames, as expressions of the state."""
        return self.group.places(self.symbols.x[: self.nq], self.symbols.parameters)

    def _rotation(self, frame: str) -> ca.SX | None:
        if frame not in self.system.frame_names:
            return None
        i = self.system.frame_index(frame)
        return self._places[1][:, 3 * i : 3 * i + 3]

    def _find(self, name: str) -> ca.SX | None:
        if name in ("kinetic", "potential", "energy"):
            T, V = self._energies
            return {"kinetic": T, "potential": V, "energy": T + V}[name]
        if name.startswith("v.") and name[2:] in self.rates:
            return self._rates[self.rates.index(name[2:])]
        kind, _, constraint = name.partition(".")
        if kind in ("h", "force") and constraint in self.multiplier_names:
            i = self.multiplier_names.index(constraint)
            if kind == "force":
                return -self.symbols.multipliers[i] / self.symbols.dt
            return self.group.constraint(self.symbols.x[: self.nq], self.symbols.parameters)[0][i]
        moving = velocity(name, self.system.frame_names)
        if moving is not None:
            x, theta = self.symbols.x, self.symbols.parameters
            return self.group.moved(moving.of(self.group.lagrangian.graph), x[: self.nq], self._rates, theta)
        frame, _, axis = name.rpartition(":")
        if frame in self.system.frame_names and axis in BODY:
            return self._places[0][BODY.index(axis), self.system.frame_index(frame)]
        R = self._rotation(frame) if axis in AXES else None
        for i, (chart, base) in enumerate(zip(self.rotations, self.bases, strict=True)):
            if name in chart.variables:
                return self._angles[i][chart.variables.index(name)]
            if name[2:] in chart.variables and kind == "v":
                return self._angle_rates[i][chart.variables.index(name[2:])]
            if name.rpartition(".")[2] in chart.variables:
                raise ModelError(
                    f"unknown quantity {name!r}: {type(self).__name__} represents this rotation by the "
                    f"quaternion {base}qw, {base}qx, {base}qy, {base}qz; its momenta are p.{base}wx, wy, wz "
                    "about the body's axes"
                )
        return None if R is None else rotation_vector(R)[AXES.index(axis)]

    @shared
    def _angles(self) -> list[ca.SX]:
        """Euler angles (3,) of each rotation, as expressions of the state's quaternions.
        Other integrators have these angles as states.
        """
        pairs = zip(self.rotations, self.space.attitudes(self.symbols.x), strict=True)
        return [chart.angles(rot.matrix(s)) for chart, s in pairs]

    @shared
    def _angle_rates(self) -> list[ca.SX]:
        """Rates (3,) of the Euler angles of each rotation, as expressions of the state.
        They follow from the rates s (0, w)/2 of the quaternions s at angular velocities w.
        """
        x, space, rates = self.symbols.x, self.space, []
        turns = space.turns(self._rates)
        for i, (s, w) in enumerate(zip(space.attitudes(x), turns, strict=True)):
            first = space.nr + 4 * i
            quaternion_rate = ca.vertcat(*rot.multiply(s, (0.0, *w))) / 2
            rates.append(ca.jacobian(self._angles[i], x)[:, first : first + 4] @ quaternion_rate)
        return rates

    def _unit(self, name: str) -> str:
        if name in self.space.error_names[self.space.nr : self.space.nd]:
            return "rad"
        return quantity_unit(self.system, name, {*self.system.angles, *self.rates[self.space.nr :]})

    def _names(self) -> list[str]:
        frames = [f"{n}:{a}" for n in self.system.frame_names for a in (*BODY, *AXES)]
        closed = (f"{kind}.{n}" for kind in ("h", "force") for n in self.multiplier_names)
        moving = velocity_names(self.system.frame_names)
        angles = tuple(v for chart in self.rotations for v in chart.variables)
        rates = (f"v.{n}" for n in (*self.rates, *angles))
        return [*angles, *rates, "kinetic", "potential", "energy", *frames, *moving, *closed]
