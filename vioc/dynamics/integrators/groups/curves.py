"""Attitudes and angular momenta of rotating bodies along a step.
The attitudes follow curves of quaternions, which a quadrature rule with several points determines from the
angular velocities.

The curve of one rotation consists of quaternions s_i, not of unit length, at the quadrature points. With
multipliers k_i, rates w_i and torques t_i at the points, it is, relative to the start of a step
(docs/maths/groups.md),

    s_i = 1 + h sum_j a_ij s_j w_j / 2,    k_i = pi + h sum_j ab_ij (k_j w_j / 2 + s_j t_j / |s_j|^2),     (8)
    momentum at a point: vec(s_i' k_i),        R pi_k+1 = pi + h sum_j b_j R_j t_j.                      (10)
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.rotations import Quaternion
from vioc.dynamics.algebra.vectors import Vector
from vioc.dynamics.integrators.quadrature import Quadrature, quadrature

ONE = (1.0, 0.0, 0.0, 0.0)


class Curves:
    """Attitudes and angular momenta of one rotating body in a step.
    They are computed at the quadrature points of the step. In all arguments and results, each column belongs
    to one quadrature point.

    Parameters
    ----------
    rule : Quadrature
    """

    def __init__(self, rule: Quadrature):
        self.rule = rule

    @cached_property
    def path(self) -> ca.Function:
        """CasADi function that computes the attitudes of a body along a step.
        Its arguments and results are (angular velocities (3, s), dt) -> unit quaternions at the s quadrature
        points (4, s) and at the end (4,) of the step, relative to the attitude at the start.
        """
        w, dt = ca.SX.sym("w", 3, self.rule.stages), ca.SX.sym("dt")
        stages, end = Path(self.rule, w, dt).ends
        outputs = [ca.horzcat(*(vec.column(_unit(s)) for s in stages)), vec.column(_unit(end))]
        return ca.Function("path", [w, dt], outputs)

    @cached_property
    def momenta(self) -> ca.Function:
        """CasADi function that computes the angular momenta of a body along a step.
        Its arguments and results are (angular velocities (3, s), torques (3, s), pi (3,), dt) -> momenta at
        the s quadrature points (3, s) and at the end (3,) of the step; pi is the momentum at the start.
        """
        s = self.rule.stages
        w, torques, pi, dt = (
            ca.SX.sym("w", 3, s),
            ca.SX.sym("torque", 3, s),
            ca.SX.sym("pi", 3),
            ca.SX.sym("dt"),
        )
        momenta, end = Path(self.rule, w, dt).momenta(_vector(pi), _columns(torques))
        outputs = [ca.horzcat(*map(vec.column, momenta)), vec.column(end)]
        return ca.Function("momenta", [w, torques, pi, dt], outputs)

    @cached_property
    def errors(self) -> ca.Function:
        """CasADi function that computes rotation errors and momenta of a body in a step.
        A rotation error is the rotation vector from a reference attitude, which is an argument of the
        function, to the attitude of the body at the same time. The momenta are angular momenta.

        The arguments are (y, dt, attitudes (4 s + 4,)). y (6 + 6 s,) contains the rotation vector and the
        momentum pi at the start, then the angular velocities and the torques at the s points. Both results
        have the shape (3, s + 1), with columns for the s points and the end. The rotation vectors are exact
        to second order, so that their first and second derivatives at zero are exact.
        """
        s = self.rule.stages
        y, dt, attitudes = ca.SX.sym("y", 6 + 6 * s), ca.SX.sym("dt"), ca.SX.sym("given", 4 * s + 4)
        phi, pi, rates, torques = ca.vertsplit(y, [0, 3, 6, 6 + 3 * s, 6 + 6 * s])
        rates, torques = ca.reshape(rates, 3, s), ca.reshape(torques, 3, s)
        stages, end = self.path(rates, dt)
        momenta, arrival = self.momenta(rates, torques, pi, dt)
        a = _vector(phi)
        start = (1 - vec.dot(a, a) / 8, *vec.scale(0.5, a))
        turns = []
        for was, attitude in zip(
            _columns(ca.reshape(attitudes, 4, s + 1)), [*_columns(stages), _vector(end)], strict=True
        ):
            c, *v = rot.multiply(rot.conjugate(was), rot.multiply(start, attitude))
            turns.append(vec.column(vec.scale(2 / c, v)))  # type: ignore[arg-type]
        outputs = [ca.horzcat(*turns), ca.horzcat(momenta, arrival)]
        return ca.Function("errors", [y, dt, attitudes], outputs)

    @cached_property
    def slopes(self) -> ca.Function:
        """CasADi function that computes the Jacobians of the results of `errors`.
        Its arguments and results are (y, dt, attitudes) -> derivatives of the rotation errors and of the
        angular momenta along a step with respect to y, (3 s + 3, 6 + 6 s) each. The argument y of `errors`
        contains the rotation vector and momentum at the start, the angular velocities and the torques.
        """
        y, dt, attitudes = self.errors.sx_in()
        outputs = [ca.densify(ca.jacobian(ca.vec(o), y)) for o in self.errors(y, dt, attitudes)]
        return ca.Function("slopes", [y, dt, attitudes], outputs)

    @cached_property
    def curvature(self) -> ca.Function:
        """CasADi function that computes a Hessian of weighted results of `errors`.
        Its arguments and results are (y, dt, attitudes, weights (6 s + 6,)) -> Hessian with respect to y. The
        weights are those of the rotation errors, then of the angular momenta, along a step. The argument y of
        `errors` contains the rotation vector and momentum at the start, the angular velocities and the
        torques.
        """
        y, dt, attitudes = self.errors.sx_in()
        turns, momenta = self.errors(y, dt, attitudes)
        weights = ca.SX.sym("weights", 2 * turns.numel())
        H = ca.hessian(ca.dot(weights, ca.vertcat(ca.vec(turns), ca.vec(momenta))), y)[0]
        return ca.Function("curvature", [y, dt, attitudes, weights], [ca.densify(H)])


@lru_cache(maxsize=16)
def curves_of(points: str, stages: int) -> Curves:
    """Return the functions that compute attitudes and angular momenta along a step.
    They are built once for each quadrature rule and kept in a cache, since they do not depend on the
    mechanism and their construction takes longer than that of most mechanisms.
    """
    return Curves(quadrature(points, stages))


class Path:
    """Quaternion curve of one rotation along a step with s quadrature points.
    It follows from the angular velocities w (3, s) at these points, in the axes of the body.
    """

    def __init__(self, rule: Quadrature, w: ca.SX, dt: Any):
        self.rule, self.dt = rule, dt
        self.halves: list[Quaternion] = [(0.0, *vec.scale(dt / 2, rate)) for rate in _columns(w)]
        self.stages = _Elimination(rule.A, self.halves).solve([ONE] * rule.stages)

    @property
    def ends(self) -> tuple[list[Quaternion], Quaternion]:
        moves = (
            _times(b, rot.multiply(s, half))
            for b, s, half in zip(self.rule.b, self.stages, self.halves, strict=True)
        )
        return self.stages, _sum([ONE, *moves])

    def momenta(self, pi: Vector, torques: list[Vector]) -> tuple[list[Vector], Vector]:
        rule, dt, n = self.rule, self.dt, len(torques)
        pushes = [
            _times(dt / sum(e * e for e in s), rot.multiply(s, (0.0, *torque)))
            for s, torque in zip(self.stages, torques, strict=True)
        ]
        start: Quaternion = (0.0, *pi)
        right = [_sum([start, *(_times(rule.Ab[i, j], pushes[j]) for j in range(n))]) for i in range(n)]
        k = _Elimination(rule.Ab, self.halves).solve(right)
        momenta = [rot.multiply(rot.conjugate(s), k_i)[1:] for s, k_i in zip(self.stages, k, strict=True)]
        impulses = [rot.multiply(p, rot.conjugate(s))[1:] for p, s in zip(pushes, self.stages, strict=True)]
        whole = pi
        for b, kick in zip(rule.b, impulses, strict=True):
            whole = vec.add(whole, vec.scale(b, kick))
        return momenta, rot.turned(rot.conjugate(_unit(self.ends[1])), whole)


class _Elimination:
    """Solver, by elimination, of a linear system whose unknowns x_i are quaternions.
    The equations are x_i - sum_j a_ij x_j q_j = right_i, with given numbers a_ij and given quaternions q_j
    and right_i.
    """

    def __init__(self, a: np.ndarray, q: list[Quaternion]):
        n = len(q)
        N = [[_sum([ONE] * (i == j) + [_times(-a[i, j], q[j])]) for j in range(n)] for i in range(n)]
        self.inverses: list[Quaternion] = []
        self.factors: dict[tuple[int, int], Quaternion] = {}
        self.rows = N
        for k in range(n):
            square = sum(e * e for e in N[k][k])
            self.inverses.append(_times(1 / square, rot.conjugate(N[k][k])))
            for i in range(k + 1, n):
                X = self.factors[i, k] = rot.multiply(self.inverses[k], N[i][k])
                for j in range(k + 1, n):
                    N[i][j] = _sum([N[i][j], _times(-1.0, rot.multiply(N[k][j], X))])

    def solve(self, right: list[Quaternion]) -> list[Quaternion]:
        x, n = list(right), len(right)
        for (i, k), X in self.factors.items():
            x[i] = _sum([x[i], _times(-1.0, rot.multiply(x[k], X))])
        for k in reversed(range(n)):
            terms = [_times(-1.0, rot.multiply(x[j], self.rows[k][j])) for j in range(k + 1, n)]
            x[k] = rot.multiply(_sum([x[k], *terms]), self.inverses[k])
        return x


def _unit(q: Quaternion) -> Quaternion:
    return _times(1 / ca.sqrt(sum(e * e for e in q)), q)


def _times(a: Any, q: Quaternion) -> Quaternion:
    return tuple(vec.times(a, e) for e in q)


def _sum(terms: list[Quaternion]) -> Quaternion:
    total = terms[0]
    for term in terms[1:]:
        total = tuple(map(vec.plus, total, term))
    return total


def _vector(column: ca.SX) -> Any:
    return tuple(ca.vertsplit(column))


def _columns(matrix: ca.SX) -> list[Any]:
    return [_vector(column) for column in ca.horzsplit(matrix)]
