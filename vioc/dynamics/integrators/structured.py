"""Exact first and second derivatives of steps of the generalized midpoint rule.

They are those of [S] IV-VI. CasADi provides the second and third derivatives of the Lagrangian at the
midpoints. The block algebra of [S] (10)-(32) runs on stacked matrices in LAPACK and BLAS. The derivatives
follow from two implicit equations and one explicit one,

    r(s, z) = 0,  h(q_k+1) = 0,  p_k+1 = P(s, z),     z = (q_k+1 dynamic, lambda_k),

where s = (x_k, u_k, parameters) are the arguments of a step. Maths: docs/maths/linearization.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import ref

import casadi as ca
import numpy as np

from vioc.compile.cores import over_cores
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.ancestor_pairs import AncestorPairs
from vioc.dynamics.integrators.at_once import AtOnce
from vioc.dynamics.integrators.conditions import check_regular
from vioc.dynamics.integrators.tensor import Tensor
from vioc.maps.derivatives import Linearization, MapDerivatives, SecondOrder, Steps, solved

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap
    from vioc.dynamics.integrators.midpoint_rule import MidpointRule


Segment = tuple[str, slice, slice]  # kind of variables, slice of that kind, slice of a Hessian

CACHED = 160_000  # entries of state matrices that are processed at once
AT_ONCE = 4 * CACHED  # number of these in C, which takes steps one after the other: fewer calls


@dataclass(frozen=True)
class TreeFirstOrder:
    """First derivatives of a group of midpoint steps, with intermediate results for second derivatives.

    Attributes
    ----------
    linearization : Linearization
    args : list of arrays
        Midpoint arguments (q_m, v, u, t, parameters).
    inverse : (N, nd + nm, nd + nm)
        Negative inverse of the derivative of (r, h) by q_k+1 and lambda_k.
    momentum_z : (N, nd, nd)
        D2 D2 L_d + D2 F+.
    """

    linearization: Linearization
    args: list[np.ndarray]
    inverse: np.ndarray
    momentum_z: np.ndarray


class StructuredLinearization:
    """First and second derivatives of the steps of the generalized midpoint rule.
    Recursions over pairs of bodies (`AncestorPairs`) compute the terms of kinetic energy and gravity; CasADi
    differentiates other potentials, forces, constraints and declared parameters.
    """

    def __init__(self, rule: MidpointRule):
        self.rule, f = rule, rule.f
        self.f = f
        self._kept: tuple[Callable[[], Steps | None], np.ndarray, TreeFirstOrder] | None = None
        lag, g = f.lagrangian, f.lagrangian.graph
        self._pairs = AncestorPairs(lag, rule.alpha, f.backend)
        q, v, u, theta = g.q_vector, g.v_vector, g.u_vector, g.parameters
        lam, mu, nu = ca.SX.sym("lambda", f.nm), ca.SX.sym("mu", f.nd), ca.SX.sym("nu", f.nm)
        along = lag.Dh[:, : f.nd].T @ lam
        q0 = ca.SX.sym("q0", f.nq)
        closed, slope = rule.closing(q0, q, theta)
        self.drags = f.nm > 0 and bool(ca.depends_on(closed, q0))  # its constraints depend on its start
        before = [q0] * self.drags

        def evaluator(name: str, args: list[ca.SX], outputs: Callable[[], list[ca.SX]]) -> Evaluator:
            build = lambda: ca.Function(name, args, outputs())  # noqa: E731
            return Evaluator(f.backend.program(build, name))

        self._start = evaluator(
            "h_start",
            [q, lam, theta],
            lambda: [lag.Dh, ca.jacobian(along, q), ca.jacobian(along, theta)],
        )
        self._end = evaluator(
            "h_end",
            [*before, q, theta],
            lambda: [slope, ca.jacobian(closed, theta), *(ca.jacobian(closed, s) for s in before)],
        )
        self.start_second = evaluator(
            "h_start_second",
            [q, lam, theta, mu],
            lambda: [ca.hessian(-ca.dot(along, mu), ca.vertcat(q, lam, theta))[0]],
        )
        self.end_second = evaluator(
            "h_end_second",
            [*before, q, theta, nu],
            lambda: [ca.hessian(ca.dot(nu, closed), ca.vertcat(*before, q, theta))[0]],
        )
        h, a, b = ca.SX.sym("h"), ca.SX.sym("a", f.nd), ca.SX.sym("b", f.nd)
        args = [q, v, u, g.t, theta, h]
        self._terms = evaluator("terms", args, lambda: self._first_terms(h))
        self._force_by_input = evaluator("force_by_input", args[:5], lambda: [self._F_u])
        self.terms_second = evaluator("terms_second", [*args, a, b], lambda: [self._second_terms])
        self._directions = h, a, b

        # columns of those Hessians that belong to state, input, parameters, and to the unknowns q_k+1, lambda
        nq, nd, nm, nf, np_ = f.nq, f.nd, f.nm, len(f.system.inputs), len(f.parameters)
        start: Segment = "x", slice(0, nq), slice(0, nq)
        self._of_q0, self._of_q1 = (
            (start,),
            (("z", slice(0, nd), slice(0, nd)), ("u", slice(nf, f.nu), slice(nd, nq))),
        )
        rows = slice(nd, nd + nm), slice(nq, nq + nm)
        self.of_start = (start, ("z", *rows), ("t", slice(0, np_), slice(nq + nm, nq + nm + np_)))
        first = nq * self.drags
        self.of_end = (
            *((start,) * self.drags),
            *((kind, to, slice(first + of.start, first + of.stop)) for kind, to, of in self._of_q1),
            ("t", slice(0, np_), slice(first + nq, first + nq + np_)),
        )
        self.of_terms = (
            start,
            *((kind, to, slice(nq + of.start, nq + of.stop)) for kind, to, of in self._of_q1),
            ("u", slice(0, nf), slice(2 * nq, 2 * nq + nf)),
            ("t", slice(0, np_), slice(2 * nq + nf, 2 * nq + nf + np_)),
        )
        self.start_args, self.start_size = (q, lam, theta), nq + nm + np_

    def end_args(self, q0: np.ndarray, q1: np.ndarray) -> list[np.ndarray]:
        """Return the configurations on which a step's constraint residuals depend.
        They are q1 at the end of the step, and with velocity constraints also q0 at its start.
        """
        return [q0, q1] if self.drags else [q1]

    # -- terms other than the tree's --------------------------------------------------------------

    @cached_property
    def _F_u(self) -> ca.SX:
        return self.f.lagrangian.F_u[: self.f.nd, :]

    @cached_property
    def _constant_F_u(self) -> np.ndarray | None:
        """Derivative dF/du of the forces F with respect to the inputs u, if constant.
        It is constant, for example, for forces on joints. Otherwise, the value is None.
        """
        return np.array(ca.DM(self._F_u)).reshape(self._F_u.shape) if self._F_u.is_constant() else None

    @cached_property
    def _has_terms(self) -> bool:
        """Flag, True if forces, or potentials other than gravity, depend on the state."""
        lag, g = self.f.lagrangian, self.f.lagrangian.graph
        parts = (lag.stiffness, ca.jacobian(lag.F, ca.vertcat(g.q_vector, g.v_vector)))
        return any(ca.sparsify(part).nnz() for part in parts)

    @cached_property
    def curved(self) -> bool:
        """Flag, True if the terms computed by CasADi have nonzero second derivatives.
        They are forces, potentials except gravity, and all terms with declared parameters.
        """
        return bool(ca.sparsify(self._second_terms).nnz())

    def _first_terms(self, h: ca.SX) -> list[ca.SX]:
        """Return the derivatives of the step equations that CasADi computes.
        The step equations are the momentum balance and the equation of the next momentum. The derivatives
        with respect to q_k and q_k+1 are those of forces and of potentials except gravity; there are none if
        `_has_terms` is False. The derivatives with respect to the parameters include all terms.
        """
        f, a = self.f, self.rule.alpha
        lag, g = f.lagrangian, f.lagrangian.graph
        minus, plus = self.rule.force_shares(h)
        blocks = []
        if self._has_terms:
            F_q, F_v = (ca.jacobian(lag.F, s) for s in (g.q_vector, g.v_vector))
            for weight, share in ((1 - a, minus), (a, plus)):
                by_q = -h * weight * lag.stiffness + share * F_q
                by_v = share * F_v
                blocks += [(1 - a) * by_q - by_v / h, a * by_q + by_v / h]
        if f.parameters:
            L_q, L_v, F = (ca.jacobian(e, g.parameters) for e in (lag.L_q, lag.L_v, lag.F))
            blocks += [h * (1 - a) * L_q - L_v + minus * F, h * a * L_q + L_v + plus * F]
        return [block[: f.nd, :] for block in blocks]

    @cached_property
    def _second_terms(self) -> ca.SX:
        """Hessian of a weighted sum of the step equations, for terms that CasADi computes.
        These terms are forces and potentials except gravity. Kinetic energy and gravity are included only in
        derivatives that involve parameters. The weighted sum is mu . balance + z . momentum, with the
        momentum balance and the next momentum of a step. The second derivatives are those with respect to
        (q_k, q_k+1, inputs of forces, parameters).
        """
        f, a = self.f, self.rule.alpha
        h, mu, z = self._directions
        lag, g = f.lagrangian, f.lagrangian.graph
        q, v, u, theta = g.q_vector, g.v_vector, g.u_vector, g.parameters
        minus, plus = self.rule.force_shares(h)
        pad = ca.SX.zeros(f.nk)
        in_q, in_v = (ca.vertcat(e, pad) for e in (h * ((1 - a) * mu + a * z), z - mu))
        other = -ca.dot(in_q, lag.potential_gradient) + ca.dot(minus * mu + plus * z, lag.F[: f.nd])
        y = ca.vertcat(q, v, u, theta)
        H = ca.hessian(other, y)[0]
        if theta.numel():  # part of the tree that depends on parameters
            first = ca.vertcat(lag.L_q + lag.potential_gradient, lag.L_v)
            direction = ca.vertcat(in_q, in_v)
            gradient = ca.jtimes(first, ca.vertcat(q, v), direction)
            by_theta = ca.jtimes(first, theta, direction, True)
            mixed = ca.jacobian(gradient, theta)
            n = y.numel() - theta.numel() - 2 * f.nq
            corner = ca.jacobian(by_theta, theta)
            zeros = ca.SX(n, theta.numel())
            side = ca.vertcat(mixed, zeros)
            H += ca.vertcat(ca.horzcat(ca.SX(2 * f.nq + n, 2 * f.nq + n), side), ca.horzcat(side.T, corner))
        eye = ca.SX.eye(f.nq)
        rest = ca.SX.eye(y.numel() - 2 * f.nq)
        T = ca.diagcat(ca.vertcat(ca.horzcat((1 - a) * eye, a * eye), ca.horzcat(-eye / h, eye / h)), rest)
        return T.T @ H @ T

    # -- whole trajectories -----------------------------------------------------------------------

    def of_map(self, f: MechanicalMap) -> MapDerivatives:
        """Return an object that computes the derivatives of the midpoint steps of a map f.
        The derivatives are evaluated at the parameters of f.
        """
        return MapDerivatives(
            f,
            lambda steps: self.linearize(steps, f.theta),
            lambda steps, Z, zeta: self.contract(steps, f.theta, Z, zeta),
            f.with_times,
            lambda steps: self.tensor(steps, f.theta),
        )

    def linearize(self, steps: Steps, theta: np.ndarray) -> Linearization:
        """Return the Jacobians of the next state and the multipliers of all steps.
        They are derivatives with respect to state, input and parameters.
        """
        f, np_ = self.f, len(theta)
        columns = f.nx, f.nu, np_
        shapes = [*((f.nx, c) for c in columns), *((f.nm, c) for c in columns)]
        whole = [np.empty((len(steps), *shape)) for shape in shapes]

        def work(rows: slice) -> None:
            self.first(steps.piece(rows), theta, [w[rows] for w in whole])

        pieces = self._pieces(len(steps), self._size)
        if len(pieces) == 1:  # so few that they may be kept for the second order
            first_order = self.first(steps, theta, whole)
            copies = Linearization(*(w.copy() if w.size else w for w in whole))
            self._kept = ref(steps), theta.copy(), replace(first_order, linearization=copies)
            return first_order.linearization
        for _ in over_cores(work, pieces):
            pass
        return Linearization(*whole)

    def contract(self, steps: Steps, theta: np.ndarray, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Return second derivatives of all steps, contracted with covectors.
        Z (N, nx) has the covectors of the next states, and zeta (N, nm) those of the multipliers, one row for
        each step.
        """

        cache, pieces = self._kept, self._pieces(len(steps), self._size)
        if cache and cache[0]() is steps and np.array_equal(cache[1], theta):
            return self.second(steps, cache[2], Z, zeta)

        in_c = self._at_once is not None and not self.curved
        whole = SecondOrder.room(len(steps), self.f.nx, self.f.nu, len(theta)) if in_c else None

        def work(rows: slice) -> SecondOrder:
            piece, out = steps.piece(rows), whole and whole.rows(rows)
            return self.second(piece, self.first(piece, theta), Z[rows], zeta[rows], out)

        parts = list(over_cores(work, pieces))
        return whole or SecondOrder.joined(parts)

    def tensor(self, steps: Steps, theta: np.ndarray) -> tuple[SecondOrder, SecondOrder]:
        """Return the Hessians of the next state and of the multipliers of all steps.
        There is one Hessian for each component. The first result is that of the next state, the second that
        of the multipliers, with shapes (N, components, ...).
        """

        f, n, np_ = self.f, len(steps), len(theta)
        shapes = SecondOrder.shapes(f.nx, f.nu, np_)
        whole = [[np.zeros((n, count, *shape)) for shape in shapes] for count in (f.nx, f.nm)]

        def work(rows: slice) -> None:
            piece = steps.piece(rows)
            self._tensor(piece, self.first(piece, theta), [[w[rows] for w in part] for part in whole])

        entries = (2 * f.nd + f.nm) * (f.nx + f.nu) ** 2
        for _ in over_cores(work, self._pieces(n, max(1, CACHED // entries))):
            pass
        states, multipliers = (SecondOrder(*part) for part in whole)
        return states, multipliers

    @cached_property
    def _tensor(self) -> Tensor:
        return Tensor(self)

    @cached_property
    def _size(self) -> int:
        """Number of steps whose derivatives are computed together.
        It is limited so that the matrices of these steps fit into the processor's cache.
        """
        return max(4, (AT_ONCE if self._at_once else CACHED) // self.f.nx**2)

    def _pieces(self, n: int, size: int) -> list[slice]:
        """Return slices of at most `size` steps that divide n steps."""
        return [slice(k, min(k + size, n)) for k in range(0, n, size)]

    # -- first order ------------------------------------------------------------------------------

    def first(self, steps: Steps, theta: np.ndarray, out: list[np.ndarray] | None = None) -> TreeFirstOrder:
        """Return the first derivatives of a group of midpoint steps.
        They are derivatives with respect to state, input and parameters. If `out` is given, the six Jacobians
        of a `Linearization` are written to these arrays.

        Raises
        ------
        StepError
            If M_k+1 or Dh M^-1 Dh' of a step is singular ([S] VII).
        """
        f, a = self.f, self.rule.alpha
        nq, nd, nk, nm, nx = f.nq, f.nd, f.nk, f.nm, f.nx
        nf, np_ = len(f.system.inputs), len(theta)
        n, h = len(steps), steps.h
        if out is None:
            columns = nx, f.nu, np_
            out = [np.empty((n, r, c)) for r in (nx, nm) for c in columns]
        q0, q1 = steps.x0[:, :nq], steps.x1[:, :nq]
        q_m, v = (1 - a) * q0 + a * q1, (q1 - q0) / h[:, None]
        args = [q_m, v, steps.u[:, :nf], (steps.t + a * h)[:, None], theta]
        if self._at_once is not None:
            terms = self._terms(*args, h[:, None]) if self._has_terms else None
            momentum_z = self._at_once.first(
                *self._pairs.factors(q_m, v, h, theta), h, theta, terms, *out[:2]
            )
            if momentum_z is not None:
                return TreeFirstOrder(Linearization(*out), args, out[0][:, :nd, nd:], momentum_z)
        blocks = self._pairs.blocks(q_m, v, h, theta)
        # balance r and momentum P by q_k and q_k+1  ([S] (10), (13))
        r_0, r_1, P_1 = blocks.D11[:, :nd], blocks.D12[:, :nd], blocks.D22[:, :nd]
        P_0 = np.swapaxes(blocks.D12, 1, 2)[:, :nd]
        r_t = P_t = np.empty((n, nd, 0))
        if self._has_terms or np_:
            terms = self._terms(*args, h[:, None])
            if np_:
                *terms, r_t, P_t = terms
            if terms:
                r_0, r_1, P_0, P_1 = (x + y for x, y in zip((r_0, r_1, P_0, P_1), terms, strict=True))
        minus, plus = (
            np.broadcast_to(np.asarray(s), (n, 1, 1)) for s in self.rule.force_shares(h[:, None, None])
        )

        by_q, by_rho, by_t = r_0, r_1[:, :, nd:], r_t
        if not nm:
            saddle = -r_1[:, :, :nd]  # M_k+1 of [S] (8)
        else:
            Dh0, bend, bend_t = self._start(q0, steps.multipliers, theta)
            Dh1, h1_t, *h1_0 = self._end(*self.end_args(q0, q1), theta)
            saddle = np.zeros((n, nd + nm, nd + nm))
            np.negative(r_1[:, :, :nd], out=saddle[:, :nd, :nd])
            saddle[:, :nd, nd:] = np.swapaxes(Dh0[:, :, :nd], 1, 2)
            np.negative(Dh1[:, :, :nd], out=saddle[:, nd:, :nd])
            by_q = np.empty((n, nd + nm, nq))
            np.subtract(r_0, bend, out=by_q[:, :nd])
            by_q[:, nd:] = h1_0[0] if h1_0 else 0.0
            by_rho = np.concatenate([by_rho, Dh1[:, :, nd:]], axis=1)
            by_t = np.concatenate([r_t - bend_t, h1_t], axis=1)
        G = solved(saddle)
        G_r = G[:, :, :nd]
        check_regular(f, G_r, saddle, h, steps.k)

        # q_k+1 changes as q_k does, plus a small change. The inverse multiplies only that: with D_1 D_1 L_d
        # it would lose digits as the square of the condition number of M_k+1
        by_q[:, :, :nd] -= saddle[:, :, :nd]
        A, B, P, C, D, E = out
        p = slice(nq, nq + nd)
        rows = ((A, B, P, slice(nd), slice(nd)), (C, D, E, slice(nm), slice(nd, nd + nm)))
        for X, Y, W, to, of in rows:  # [S] (10)-(12), (29), (30): q_k+1 (its difference to q_k), then lambda
            if to.stop:
                np.matmul(G[:, of], by_q, out=X[:, to, :nq])
                X[:, to, p] = G_r[:, of]
                X[:, to, p.stop :] = 0.0
                Y[:, to, nf:] = G[:, of] @ by_rho
                W[:, to] = G[:, of] @ by_t
        P_1d = P_1[:, :, :nd]
        for X in (A[:, :, : p.stop], B[:, :, nf:], P):  # [S] (13)-(15)
            if X.shape[2]:
                np.matmul(P_1d, X[:, :nd], out=X[:, p])
        A[:, p, :nq] += P_0
        A[:, p, :nd] += P_1d
        np.einsum("nii->ni", A[:, :nd, :nd])[:] += 1.0
        A[:, p, p.stop :] = 0.0
        B[:, p, nf:] += P_1[:, :, nd:]
        P[:, p] += P_t
        if nf:  # a force acts like an addition to p_k, and its other half on p_k+1
            self._add_forces(A, B, C, D, args, minus, plus)
        if nk:
            ks, vs, into = np.arange(nd, nq), np.arange(nq + nd, nx), nf + np.arange(nk)
            for X in (A, B, P):
                X[:, ks] = 0.0
                X[:, vs] = 0.0
            B[:, ks, into] = 1.0
            B[:, vs, into] = 1 / h[:, None]
            A[:, vs, ks] = -1 / h[:, None]
        return TreeFirstOrder(Linearization(*out), args, G, P_1d)

    @cached_property
    def _at_once(self) -> AtOnce | None:
        """Evaluator of the derivatives in C, or None.
        The result is None unless the backend is compiled, each input acts on one joint with a constant gain,
        and the mechanism has no constraints, prescribed (kinematic) variables or parameters.
        """
        f, F_u = self.f, self._constant_F_u
        if f.backend.name != "compiled" or f.nm or f.nk or f.parameters or F_u is None or not self._picked:
            return None
        return AtOnce(self.rule, self._pairs.masks[0], F_u)

    @cached_property
    def _picked(self) -> tuple[slice | np.ndarray, np.ndarray] | None:
        """Indices of the variables on which inputs act, and gains of the inputs.
        The result is None unless each input acts on a single variable with a constant gain.
        """
        F_u = self._constant_F_u
        if F_u is None or (np.count_nonzero(F_u, axis=0) != 1).any():
            return None
        variables, nf = np.argmax(F_u != 0, axis=0), F_u.shape[1]
        row = nf and (np.diff(variables) == 1).all()
        return slice(variables[0], variables[0] + nf) if row else variables, F_u[variables, np.arange(nf)]

    def _add_forces(self, A, B, C, D, args: list[np.ndarray], minus: np.ndarray, plus: np.ndarray) -> None:
        """Write the derivatives with respect to force inputs into the arrays B and D.
        B is the Jacobian of the next state with respect to the input, and D that of the multipliers. The
        derivatives are computed from A and C, the Jacobians of the next state and of the multipliers with
        respect to the state.
        """
        f, F_u, picked = self.f, self._constant_F_u, self._picked
        p, nf = slice(f.nq, f.nq + f.nd), len(f.system.inputs)
        F_u = self._force_by_input(*args)[0] if F_u is None else F_u
        for X, Y in ((A, B), (C, D)):
            if X.shape[1] and picked is not None:
                np.multiply(X[:, :, p][:, :, picked[0]], minus * picked[1], out=Y[:, :, :nf])
            elif X.shape[1]:
                np.matmul(X[:, :, p], minus * F_u, out=Y[:, :, :nf])
        B[:, p, :nf] += plus * F_u

    # -- second order -----------------------------------------------------------------------------

    def second(
        self,
        steps: Steps,
        first: TreeFirstOrder,
        Z: np.ndarray,
        zeta: np.ndarray,
        out: SecondOrder | None = None,
    ) -> SecondOrder:
        """Return second derivatives of N midpoint steps, contracted with covectors.
        They are the Hessians of z . x_k+1 + zeta . lambda_k for each step, where z and zeta are rows of the
        arrays Z and `zeta` of covectors.

        No third-order tensor is formed ([S] (16)-(27), (31)). With the adjoint (mu, nu) of the implicit
        equations the second derivatives of q_k+1 and lambda_k cancel in z . x_k+1 + zeta . lambda + mu . r +
        nu . h, so its Hessian is that of known functions along the first derivatives. The C code writes it to
        `out`, if given.
        """
        f, a = self.f, self.rule.alpha
        nq, nd, nm, nx = f.nq, f.nd, f.nm, f.nx
        theta = first.args[4]
        np_, n = len(theta), len(steps)
        h = steps.h[:, None]
        z_q, z_p = Z[:, :nd], Z[:, nq : nq + nd]
        weights = np.concatenate([z_q + (z_p[:, None] @ first.momentum_z)[:, 0], zeta], axis=1)
        adjoint = (weights[:, None] @ first.inverse)[:, 0]
        mu, nu = np.ascontiguousarray(adjoint[:, :nd]), np.ascontiguousarray(adjoint[:, nd:])

        dq, dv = np.zeros((n, nq)), np.zeros((n, nq))
        dq[:, :nd] = (1 - a) * mu + a * z_p
        dv[:, :nd] = (z_p - mu) / h
        args = first.args[0], first.args[1], steps.h, theta, dq, dv
        if self._at_once is not None and not self.curved:
            if out is None:
                out = SecondOrder.room(n, f.nx, f.nu, np_)
            A, factors = first.linearization.A, self._pairs.factors_along(*args)
            self._at_once.second(*factors, steps.h, A, out.xx, out.xu, out.uu)
            return out

        # q_k, inputs, parameters | dynamic q_k+1, lambda: arguments, then unknowns
        free = nq + f.nu + np_
        H = np.zeros((n, free + nd + nm, free + nd + nm))
        begins = {"x": 0, "u": nq, "t": nq + f.nu, "z": free}

        def add(rows: Sequence[Segment], columns: Sequence[Segment], matrix: np.ndarray) -> None:
            for row, i, r in rows:
                for column, j, c in columns:
                    down, right = begins[row], begins[column]
                    H[:, down + i.start : down + i.stop, right + j.start : right + j.stop] += matrix[:, r, c]

        tree = self._pairs.blocks_along(*args)
        add(self._of_q0, self._of_q0, tree.D11)
        add(self._of_q0, self._of_q1, tree.D12)
        add(self._of_q1, self._of_q0, np.swapaxes(tree.D12, 1, 2))
        add(self._of_q1, self._of_q1, tree.D22)
        if self.curved:
            add(self.of_terms, self.of_terms, self.terms_second(*first.args, h, mu, z_p)[0])
        if nm:
            start = self.start_second(steps.x0[:, :nq], steps.multipliers, theta, mu)[0]
            add(self.of_start, self.of_start, start)
            ends = self.end_args(steps.x0[:, :nq], steps.x1[:, :nq])
            add(self.of_end, self.of_end, self.end_second(*ends, theta, nu)[0])

        # With the first derivatives z: X + X' with X = z'(H_zf + H_zz z / 2), and H_ff. Columns: q_k, p_k |
        # forces, rho, parameters; a step does not depend on the state's v_k
        lin, m = first.linearization, nq + nd
        halves = slice(0, nq), slice(m, None)
        z = np.empty((n, nd + nm, m + f.nu + np_))
        z[:, :nd] = np.concatenate([lin.A[:, :nd, :m], lin.B[:, :nd], lin.P[:, :nd]], axis=2)
        z[:, nd:] = np.concatenate([lin.C[:, :, :m], lin.D, lin.E], axis=2)
        side = 0.5 * (H[:, free:, free:] @ z)
        side[:, :, halves[0]] += H[:, free:, :nq]
        side[:, :, halves[1]] += H[:, free:, nq:free]
        result = np.swapaxes(z, 1, 2) @ side
        result = result + np.swapaxes(result, 1, 2)
        for i, p in zip(halves, (slice(0, nq), slice(nq, free)), strict=True):
            for j, q in zip(halves, (slice(0, nq), slice(nq, free)), strict=True):
                result[:, i, j] += H[:, p, q]

        xx, xu, xp = np.zeros((n, nx, nx)), np.zeros((n, nx, f.nu)), np.zeros((n, nx, np_))
        x, u, t = slice(m), slice(m, m + f.nu), slice(m + f.nu, None)
        xx[:, x, x], xu[:, x], xp[:, x] = result[:, x, x], result[:, x, u], result[:, x, t]
        uu, ut, tt = (result[:, i, j].copy() for i, j in ((u, u), (u, t), (t, t)))
        return SecondOrder(xx, xu, uu, xp, ut, tt)
