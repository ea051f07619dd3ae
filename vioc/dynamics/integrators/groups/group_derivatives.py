"""First and second derivatives of midpoint steps on the group SO(3)^n x R^m.

With y = (errors at the end, multipliers) and s = (errors at the start, inputs, parameters) a step solves
G(s, y) = 0 (docs/maths/groups.md), and

    D_s y = -G_y^-1 G_s,    z . y'' = T' (mu . G)'' T,    T = [1; D_s y],    mu = -G_y^-T z.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.maps.derivatives import Linearization, SecondOrder, Steps, solved

if TYPE_CHECKING:
    from vioc.dynamics.integrators.groups.group_vi import GroupVI


class GroupDerivatives:
    """First and second derivatives of midpoint steps with rotations, on SO(3)^n x R^m."""

    def __init__(self, f: GroupVI):
        self.f = f

    @cached_property
    def _implied(self) -> tuple[list[ca.SX], ca.SX, ca.SX, ca.SX]:
        """CasADi expression of the residual G of a step, and the symbols in it.
        The first result is a list of the symbols of the step's arguments, which include the next state and
        the multipliers. Then follow s = (displacement of the start state, inputs, parameters), y =
        (displacement of the end state, change of the multipliers), and G (ndx + nm,). A displacement is a
        small change of a state. The displacements and the change are relative to the states and multipliers
        in the list.
        """
        f = self.f
        x, u, lam, theta, _ = f.symbols
        x1, t, dt = ca.SX.sym("x_next", f.nx), ca.SX.sym("t"), f.symbols.dt
        e, y = ca.SX.sym("e", f.ndx), ca.SX.sym("y", f.ndx + f.nm)
        start, end = f.space.retract_expression(x, e), f.space.retract_expression(x1, y[: f.ndx])
        equations = f.residual
        assert equations is not None  # one stage
        rows = equations(start, u, end, lam + part(y, f.ndx), t, dt, theta)
        nd, nb = f.space.nd, f.space.nb
        G = ca.vertcat(rows[:nd], rows[nd + nb :])  # without norms of quaternions, which `retract` preserves
        return [x, x1, u, lam, t, dt, theta], ca.vertcat(e, u, theta), y, G

    def _at_zero(self, name: str, more: list[ca.SX], outputs: list[ca.SX]) -> Evaluator:
        args, s, y, _ = self._implied
        e = s[: self.f.ndx]
        values = ca.substitute(outputs, [e, y], [ca.SX.zeros(e.numel()), ca.SX.zeros(y.numel())])
        function = ca.Function(name, [*args, *more], [ca.densify(o) for o in values])
        return Evaluator(self.f.backend.program(lambda: function, name))

    @cached_property
    def _slopes(self) -> Evaluator:
        _, s, y, G = self._implied
        return self._at_zero("group_first", [], [ca.jacobian(G, s), ca.jacobian(G, y)])

    @cached_property
    def _curvature(self) -> Evaluator:
        _, s, y, G = self._implied
        mu = ca.SX.sym("mu", G.numel())
        return self._at_zero("group_second", [mu], [ca.hessian(ca.dot(mu, G), ca.vertcat(s, y))[0]])

    def _data(self, steps: Steps, theta: np.ndarray) -> list[np.ndarray]:
        return [steps.x0, steps.x1, steps.u, steps.multipliers, steps.t[:, None], steps.h[:, None], theta]

    def first(self, steps: Steps, theta: np.ndarray) -> Linearization:
        G_s, G_y = self._slopes(*self._data(steps, theta))
        D = -solved(G_y, G_s)
        return Linearization.of(D[:, : self.f.ndx], D[:, self.f.ndx :], self.f.nu)

    def second(self, steps: Steps, theta: np.ndarray, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        data = self._data(steps, theta)
        G_s, G_y = self._slopes(*data)
        D = -solved(G_y, G_s)
        z = np.concatenate([Z, zeta], axis=1)
        mu = -solved(np.swapaxes(G_y, 1, 2), z[:, :, None])[..., 0]
        T = np.concatenate([np.tile(np.eye(D.shape[2]), (len(D), 1, 1)), D], axis=1)
        H = np.swapaxes(T, 1, 2) @ self._curvature(*data, mu)[0] @ T
        return SecondOrder.of((H + np.swapaxes(H, 1, 2)) / 2, self.f.ndx, self.f.nu)
