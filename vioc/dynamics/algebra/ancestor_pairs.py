"""Second derivatives of a discrete Lagrangian, as products of twists and wrenches.

Only a link and its ancestors are coupled, and every coupling is the product of a twist of one and a wrench
of the other (`tree_recursions.second_derivatives`). In axes that all links share, the blocks D_a D_b L_d of a
step are therefore masked products of two thin matrices: O(n) work in CasADi, the rest in BLAS, and code
whose length grows with n, not n^2. Derivation: docs/maths/linearization.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.backend import Backend
from vioc.compile.programs import Program
from vioc.dynamics.algebra import tree_recursions as recursions
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.tree_recursions import Composite
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.dynamics.lagrangian import Lagrangian

Wrench = tuple[Vector, Vector]


@dataclass(frozen=True)
class StepBlocks:
    """Second derivatives of a discrete Lagrangian L_d(q_k, q_k+1), for N steps.
    Each field is an array (N, nq, nq). D1 and D2 are derivatives by q_k and q_k+1. D11 is D1 D1 L_d, D22 is
    D2 D2 L_d, and D12 is D1 D2 L_d, whose transpose is D2 D1 L_d. L_d contains T - V_gravity alone.
    """

    D11: np.ndarray
    D12: np.ndarray
    D22: np.ndarray


class AncestorPairs:
    """Evaluator of second derivatives of the discrete Lagrangian at all steps of a trajectory.

    It also evaluates directional derivatives of these second derivatives.

    Parameters
    ----------
    lagrangian : Lagrangian
    alpha : float
        Fraction of the step at which the Lagrangian is sampled.
    backend : Backend
    """

    def __init__(self, lagrangian: Lagrangian, alpha: float, backend: Backend):
        self._lagrangian, self._alpha = lagrangian, alpha
        self._vectors = backend.program(lambda: self._function, "pairs")
        self._variations = backend.program(self._varied, "pairs_along")

    @cached_property
    def masks(self) -> tuple[np.ndarray, np.ndarray]:
        """Two masks (nq, nq) for pairs of configuration variables.
        Entry (i, j) is 1 if the joint of q_i is an ancestor of the joint of q_j in the tree, else 0. The
        diagonal is 1 in the first mask and 0 in the second.
        """
        links = self._lagrangian.first.links
        mask = np.zeros((self._lagrangian.nq, self._lagrangian.nq))
        for j, link in enumerate(links):
            while j >= 0:
                mask[links[j].index, link.index] = 1.0
                j = links[j].parent
        return mask, mask * (1 - np.eye(len(mask)))

    def blocks(self, q: np.ndarray, v: np.ndarray, h: np.ndarray, theta: np.ndarray) -> StepBlocks:
        """Return second derivatives of the discrete Lagrangian L_d(q_k, q_k+1), for N steps.
        The arguments are the configurations q (N, nq) and velocities v (N, nq) at which the Lagrangian is
        evaluated, the step lengths h (N,) and the parameters theta.
        """
        blocks = self._products(self._vectors, [q, v, h[:, None], theta])
        if self._lagrangian.system.kinetic:
            rotors = np.diag(self._lagrangian.rotors(theta)) / h[:, None, None]
            blocks = StepBlocks(blocks.D11 + rotors, blocks.D12 - rotors, blocks.D22 + rotors)
        return blocks

    def blocks_along(
        self, q: np.ndarray, v: np.ndarray, h: np.ndarray, theta: np.ndarray, dq: np.ndarray, dv: np.ndarray
    ) -> StepBlocks:
        """Return directional derivatives of second derivatives of the discrete Lagrangian.
        The second derivatives with respect to q_k and q_k+1, at N steps, are functions of configurations q
        and velocities v, both (N, nq). They are differentiated along the direction (dq, dv).

        They are directional derivatives of `blocks`. dq and dv are (N, nq).
        """
        return self._products(self._variations, [q, v, h[:, None], theta, dq, dv])

    def factors(
        self, q: np.ndarray, v: np.ndarray, h: np.ndarray, theta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return matrices A and B for N steps; the products A B' are second derivatives.
        A is (N, nq, r) and B is (N, 4 nq, r), where r is at most 12. A product has four blocks (nq, nq)
        of second derivatives of the discrete Lagrangian: D12 above the diagonal, the transpose of D12 below
        the diagonal, D11 and D22 (see `StepBlocks`).

        The product is valid for pairs of a link and its ancestor; other second derivatives are 0 (`masks`).
        """
        return self._factors(self._vectors, [q, v, h[:, None], theta])

    def factors_along(
        self, q: np.ndarray, v: np.ndarray, h: np.ndarray, theta: np.ndarray, dq: np.ndarray, dv: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return matrices A and B for N steps, whose products A B' are derivatives.
        The four blocks (nq, nq) of a product are those of `factors`, differentiated in the direction
        (dq, dv). A and B have twice as many columns as in `factors`.
        """
        return self._factors(self._variations, [q, v, h[:, None], theta, dq, dv])

    def _factors(self, program: Program, args: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        n, nq = len(args[0]), self._lagrangian.nq
        left, right = program.map(
            [np.ascontiguousarray(a) for a in args], n
        )  # transposed, because CasADi stores columns
        return left.reshape(n, nq, -1), right.reshape(n, 4 * nq, -1)

    def _products(self, program: Program, args: list[np.ndarray]) -> StepBlocks:
        nq, (left, right) = self._lagrangian.nq, self._factors(program, args)
        whole = left @ np.swapaxes(right, 1, 2)
        above, below, first, second = (whole[:, :, i * nq : (i + 1) * nq] for i in range(4))
        mask, strict = self.masks

        def symmetric(block: np.ndarray) -> np.ndarray:
            return block * mask + np.swapaxes(block * strict, 1, 2)

        D12 = above * mask
        D12 += np.swapaxes(below * strict, 1, 2)
        return StepBlocks(symmetric(first), D12, symmetric(second))

    def _varied(self) -> ca.Function:
        """Make the CasADi function that returns A' and B' of `factors_along` for one step.
        With X = A' and Y = B' of `factors`, the derivative of the product X' Y is again one product,
        [X; dX]' [dY; Y].
        """
        q, v, h, theta = (ca.SX.sym("a", self._function.numel_in(i)) for i in range(4))
        dq, dv = ca.SX.sym("dq", q.numel()), ca.SX.sym("dv", v.numel())
        X, Y = self._function(q, v, h, theta)
        dX, dY = (
            ca.reshape(ca.jtimes(ca.vec(e), ca.vertcat(q, v), ca.vertcat(dq, dv)), e.shape) for e in (X, Y)
        )
        stacks = [ca.densify(ca.vertcat(*pair)) for pair in ((X, dX), (dY, Y))]
        return ca.Function("pairs_along", [q, v, h, theta, dq, dv], stacks)

    @cached_property
    def _function(self) -> ca.Function:
        """CasADi function that returns A' and B' of `factors` for one step.
        Its arguments are the configuration q, the velocity v, the step length h and the parameters. A' has a
        column of twists for each variable, and B' has four columns of wrenches: for D12 above and below the
        diagonal, D11 and D22.
        """
        lag, a, h = self._lagrangian, self._alpha, ca.SX.sym("h")
        g, tree = lag.graph, lag.first
        links = tree.links
        composite = recursions.composite_inertias(links)
        places = in_world(links)
        columns: dict[int, Any] = {}
        weights = _weights(a, h)
        for j, link in enumerate(links):
            state, S = (link.v, link.w, link.g), (link.Sv, link.Sw)
            columns[link.index] = _columns(places[j], composite[j], state, S, tree.momentum[j], weights)
        nothing = ((0.0,) * 12,) * 5
        stacks = [[columns.get(i, nothing)[k] for i in range(lag.nq)] for k in range(5)]
        # rows that are not zero in both twists and wrenches: few in a planar mechanism
        rows = [
            r
            for r in range(12)
            if any(not vec.is_zero(column[r]) for column in stacks[0])
            and any(not vec.is_zero(column[r]) for stack in stacks[1:] for column in stack)
        ]
        X, *wrenches = (
            ca.horzcat(*(vec.column(column[r] for r in rows) for column in stack)) for stack in stacks
        )
        outputs = [ca.densify(X), ca.densify(ca.horzcat(*wrenches))]
        return ca.Function("pairs", [g.q_vector, g.v_vector, h, g.parameters], outputs)


def in_world(links: list[recursions.Link]) -> list[tuple[Matrix, Vector]]:
    """Return the rotation and position of every link, in the axes of the world.
    Positions are relative to the last link of the list, which keeps rounding errors small.
    """
    places: list[tuple[Matrix, Vector]] = []
    for link in links:
        if link.parent < 0:
            places.append((link.R, link.p))
        else:
            R, p = places[link.parent]
            places.append((vec.matmul(R, link.R), vec.add(p, vec.apply(R, link.p))))
    if not places:
        return places
    origin = places[-1][1]
    return [(R, vec.sub(p, origin)) for R, p in places]


@vec.inlined
def _columns(
    place: tuple[Matrix, Vector],
    body: Composite,
    state: tuple[Vector, Vector, Vector],
    S: Wrench,
    momentum: Wrench,
    weights: tuple[Any, ...],
) -> tuple[tuple[Any, ...], ...]:
    """Return five columns (12,) of a link: one of twists and four of wrenches.
    The column of twists is [Sd; S], with the joint's twist S and Sd = ad(V) S, where V is the link's
    velocity. A column of wrenches stacks two wrenches. Its scalar product with the column of twists of
    another link is a second derivative of the discrete Lagrangian. The four columns belong to D12 above the
    diagonal, D12 below the diagonal, D11 and D22. All are in world axes.

    The arguments are the link's pose in the world, composite inertia, state (velocity and gravity), joint
    twist and momentum, and the coefficients of `_weights`.
    """
    (v, w, g), (m, moment, _) = state, body
    Sd = recursions.ad(v, w, *S)
    F = recursions.times_inertia(*body, *S)
    momenta, carried = recursions.times_inertia(*body, *Sd), recursions.ad_transposed(*S, *momentum)
    y = vec.sub(momenta[0], carried[0]), vec.sub(momenta[1], carried[1])
    z = vec.ZERO, vec.cross(vec.add(vec.scale(m, S[0]), vec.cross(S[1], moment)), g)
    left = twist_in(place, Sd), twist_in(place, S)
    wrenches = tuple(wrench_in(place, wrench) for wrench in (F, y, z))
    pairs = [left, *((_sum(above, wrenches), _sum(below, wrenches)) for above, below in weights)]
    return tuple((*one[0], *one[1], *two[0], *two[1]) for one, two in pairs)


def _weights(a: float, h: Any) -> tuple[Any, ...]:
    """Return the coefficients of wrenches F, y, z in second derivatives of L_d.
    The discrete Lagrangian L_d is h times the Lagrangian at the fraction `a` of a step of length h. The four
    results belong to D12 above the diagonal, D12 below the diagonal, D11 and D22. In each, the first three
    coefficients give a wrench that is multiplied by Sd, the rate of a joint's twist S, and the last three a
    wrench that is multiplied by S.

    The coefficients combine the second derivatives of the Lagrangian: K = Sd.y + S.z by q twice, C = Sd.F
    below and S.y above the diagonal by v and q, and M = S.F by v twice.
    """
    b = 1 - a
    c = a * b * h
    return (
        ((b, c, 0.0), (-1 / h, -a, c)),
        ((-a, c, 0.0), (-1 / h, b, c)),
        ((-b, b * b * h, 0.0), (1 / h, -b, b * b * h)),
        ((a, a * a * h, 0.0), (1 / h, a, a * a * h)),
    )


@vec.inlined
def twist_in(place: tuple[Matrix, Vector], twist: Wrench) -> Wrench:
    R, p = place
    angular = vec.apply(R, twist[1])
    return vec.add(vec.apply(R, twist[0]), vec.cross(p, angular)), angular


@vec.inlined
def wrench_in(place: tuple[Matrix, Vector], wrench: Wrench) -> Wrench:
    R, p = place
    force = vec.apply(R, wrench[0])
    return force, vec.add(vec.apply(R, wrench[1]), vec.cross(p, force))


def _sum(weights: tuple[Any, Any, Any], wrenches: tuple[Wrench, ...]) -> Wrench:
    force, torque = vec.ZERO, vec.ZERO
    for weight, wrench in zip(weights, wrenches, strict=True):
        force = vec.add(force, vec.scale(weight, wrench[0]))
        torque = vec.add(torque, vec.scale(weight, wrench[1]))
    return force, torque
