"""Third derivatives of a discrete Lagrangian, computed for triples of links on one branch of the tree.

The topmost of three variables moves all its descendants as one body. This changes no inertia and no
angle below it: it only adds its twist to the velocities there, and rotates gravity. The derivative of an
ancestor pair (`ancestor_pairs`) by this variable is therefore the product of its twist with one vector of the
pair. CasADi evaluates values per link; numpy forms vectors per pair and products per triple.

Let i, j, k be links from top to bottom, with S, dS, Ic, F, y as in docs/maths/kinematics.md, and all
twists in the same axes. In these axes q_i adds d = dS_i to every velocity below, and dq_i adds d = S_i. With
Gamma_k = ad_Sk' Ic_k + Ic_k ad_Sk, the second derivatives of the pair change by

    L_qj,qk:   d . (-ad_Sj' y_k - Gamma_k dS_j)        L_qj,dqk:   d . (-ad_Sj' F_k)
    L_dqj,qk:  d . (-Gamma_k S_j)                      L_dqj,dqk:  0

since y_k changes by Ic_k ad_d S_k - ad_Sk' Ic_k d. Gravity g adds w_i . (f_k (w_j . g) - w_j (f_k . g)) to
L_qi,qj,qk, with the angular part w of S and the linear part f of F.
"""

from __future__ import annotations

from functools import cached_property
from itertools import permutations, product

import casadi as ca
import numpy as np

from vioc.compile.backend import Backend
from vioc.dynamics.algebra import tree_recursions as recursions
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.ancestor_pairs import in_world, twist_in, wrench_in
from vioc.dynamics.lagrangian import Lagrangian

SLOTS = tuple(product((0, 1), repeat=3))  # end of each of three variables: q_k or q_k+1


class AncestorTriples:
    """Evaluator of third derivatives of the discrete Lagrangian at all steps of a trajectory.

    L_d(q_k, q_k+1) contains T - V_gravity alone.

    Parameters
    ----------
    lagrangian : Lagrangian
    alpha : float
        Fraction of the step at which the Lagrangian is sampled.
    backend : Backend
    """

    def __init__(self, lagrangian: Lagrangian, alpha: float, backend: Backend):
        self._lagrangian, self._alpha = lagrangian, alpha
        self._levers = backend.program(lambda: self._function, "levers")

    @cached_property
    def _lists(self) -> tuple[np.ndarray, ...]:
        """Four index arrays of the pairs and triples of links on one branch of the tree.

        The first two have the links b and c of all pairs, where b is c or an ancestor of c. The last two
        describe all triples (a, b, c): the link a, which is b or an ancestor of b, and the index of the pair
        (b, c).
        """
        links = self._lagrangian.first.links
        ancestors: list[list[int]] = []
        for i, link in enumerate(links):
            ancestors.append([*(ancestors[link.parent] if link.parent >= 0 else []), i])
        pairs = [(b, c) for c, line in enumerate(ancestors) for b in line]
        triples = [(a, p) for p, (b, _) in enumerate(pairs) for a in ancestors[b]]
        shaped = (np.array(rows, int).reshape(-1, 2) for rows in (pairs, triples))
        return tuple(column for rows in shaped for column in rows.T)

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the nonzero third derivatives of one step, and their indices.
        The positions are rows (entries, 6) of the form (x, end of x, y, end of y, z, end of z), where x, y
        and z are indices of variables, and an end is 0 for q_k and 1 for q_k+1. The indices (entries,) are
        those in the flattened array (8, triples) that `values` returns for one step. Every nonzero entry of
        the symmetric tensor occurs once.
        """
        b, c, a, pair = self._lists
        links = self._lagrangian.first.links
        index = np.array([link.index for link in links], int)
        variables = index[np.stack([a, b[pair], c[pair]])] if len(a) else np.empty((3, 0), int)
        count, rows, sources = variables.shape[1], [], []
        for order in permutations(range(3)):
            for s, slots in enumerate(SLOTS):
                columns = [(variables[i], np.full(count, slots[i])) for i in order]
                rows.append(np.stack([entry for pair_ in columns for entry in pair_], axis=1))
                sources.append(s * count + np.arange(count))
        positions, first = np.unique(np.concatenate(rows), axis=0, return_index=True)
        return positions, np.concatenate(sources)[first]

    def values(self, q: np.ndarray, v: np.ndarray, h: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Return third derivatives of a discrete Lagrangian L_d(q_k, q_k+1), for N steps.
        The result D_e D_f D_g L_d (N, 8, triples) has a column for each triple of variables (top, middle,
        bottom) on one branch of the tree. The 8 rows are the combinations of the ends (e, f, g), each of
        which is q_k or q_k+1. The arguments q, v (N, nq) are configurations and velocities, h (N,) step
        lengths and theta parameters.
        """
        n, links = len(q), len(self._lagrangian.first.links)
        b, c, a, pair = self._lists
        (flat,) = self._levers.map([np.ascontiguousarray(x) for x in (q, v, theta)], n)
        flat = flat.reshape(n, links, -1)
        S, Sd, P = flat[:, :, :6], flat[:, :, 6:12], flat[:, :, 12:18]
        inertia = flat[:, :, 18:54].reshape(n, links, 6, 6)
        g = flat[:, :, 54:]
        adjoint = _adjoints(S)
        turn = np.swapaxes(adjoint, 2, 3)
        F = _apply(inertia, S)
        y = _apply(inertia, Sd) - _apply(turn, P)
        spatial_product = inertia @ adjoint
        G = spatial_product + np.swapaxes(spatial_product, 2, 3)
        # vectors per pair: their products with a twist that is added to all velocities below are the changes
        # of L_qq, L_q[b]v[c] and L_v[b]q[c]
        above, below = turn[:, b], G[:, c]
        qq = -_apply(above, y[:, c]) - _apply(below, Sd[:, b])
        qv = -_apply(above, F[:, c])
        vq = -_apply(below, S[:, b])
        # effect of a rotation of gravity
        force, axis = F[:, c, :3], S[:, b, 3:]
        lean = force * (axis * g[:, b]).sum(2, keepdims=True) - axis * (force * g[:, b]).sum(2, keepdims=True)

        by_q, by_v = Sd[:, a], S[:, a]
        parts = [(by * x[:, pair]).sum(2) for x in (qq, qv, vq) for by in (by_q, by_v)]
        parts[0] = parts[0] + (S[:, a, 3:] * lean[:, pair]).sum(2)
        return self._weights(h) @ np.stack(parts, axis=1)

    def _weights(self, h: np.ndarray) -> np.ndarray:
        """Return matrices (N, 8, 6), which transform third derivatives at N steps of lengths h (N,).
        A matrix transforms 6 kinds of third derivatives of the Lagrangian with respect to q and v to the 8
        kinds of third derivatives of the discrete Lagrangian with respect to q_k and q_k+1.
        """
        one = np.ones_like(h)
        in_q = np.stack([(1 - self._alpha) * one, self._alpha * one])
        in_v = np.stack([-1 / h, 1 / h])
        kinds = [tuple(kind) for kind in ("qqq", "vqq", "qqv", "vqv", "qvq", "vvq")]
        table = {"q": in_q, "v": in_v}
        rows = [[h * table[x][e] * table[y][f] * table[z][g] for x, y, z in kinds] for e, f, g in SLOTS]
        return np.ascontiguousarray(np.array(rows).transpose(2, 0, 1))

    @cached_property
    def _function(self) -> ca.Function:
        """CasADi function from (q, v, parameters) to quantities of each link.
        In axes that all links share, these are the joint's twist S, ad(V) S with the link's velocity V, the
        momentum and the composite inertia (6 x 6) of the link with its descendants, and the vector of
        gravity.
        """
        lag = self._lagrangian
        graph, tree = lag.graph, lag.first
        composite = recursions.composite_inertias(tree.links)
        columns = []
        for place, link, whole, momentum in zip(
            in_world(tree.links), tree.links, composite, tree.momentum, strict=True
        ):
            R, _ = place
            m, moment, about = recursions.composed(whole, place, (0.0, vec.ZERO, vec.NOTHING))
            H = vec.skew(moment)
            upper = [[m if i == j else 0.0 for j in range(3)] + [-x for x in H[i]] for i in range(3)]
            lower = [[*H[i], *about[i]] for i in range(3)]
            twists = (
                twist_in(place, (link.Sv, link.Sw)),
                twist_in(place, recursions.ad(link.v, link.w, link.Sv, link.Sw)),
                wrench_in(place, momentum),
            )
            columns.append(
                [
                    *(e for twist in twists for half in twist for e in half),
                    *(e for row in (*upper, *lower) for e in row),
                    *vec.apply(R, link.g),
                ]
            )
        stacked = ca.horzcat(*(ca.vertcat(*column) for column in columns)) if columns else ca.SX(57, 0)
        args = [graph.q_vector, graph.v_vector, graph.parameters]
        return ca.Function("levers", args, [ca.densify(stacked)])


def _adjoints(S: np.ndarray) -> np.ndarray:
    """Return the matrices (..., 6, 6) of the adjoint ad(S) for twists S (..., 6)."""
    A = np.zeros((*S.shape, 6))
    for block, x in (((0, 0), S[..., 3:]), ((0, 3), S[..., :3]), ((3, 3), S[..., 3:])):
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            A[..., block[0] + j, block[1] + i] = x[..., k]
            A[..., block[0] + k, block[1] + i] = -x[..., j]
    return A


def _apply(M: np.ndarray, x: np.ndarray) -> np.ndarray:
    return (M @ x[..., None])[..., 0]
