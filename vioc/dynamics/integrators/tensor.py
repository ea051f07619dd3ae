"""Full second derivatives of midpoint steps: the Hessian of every result.

The results are the components of the next state and the multipliers. See [S] (16)-(27), (31), (32). The
Hessian of a result is a sum of the Hessians of the step's equations r, h and of p_k+1, multiplied from both
sides by the first derivatives. These products are computed once for each equation. One product with the
inverse of the Jacobian then combines them to the Hessians of all results. Maths: docs/maths/linearization.md.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.ancestor_triples import AncestorTriples

if TYPE_CHECKING:
    from vioc.dynamics.integrators.structured import Segment, StructuredLinearization, TreeFirstOrder
    from vioc.maps.derivatives import Steps

KEYS = ("zz", "zx", "zu", "zt", "xx", "xu", "uu")  # rows and columns: state, input, parameters, unknowns
AT_ONCE = 6000  # largest number of entries of the constraints' third derivatives for one function

Block = tuple[slice, "tuple[Segment, ...]", np.ndarray]  # equations, positions of the columns, (N, ..., c, c)


class Tensor:
    """Evaluator of the Hessians of all components of the next state and multipliers of midpoint steps."""

    def __init__(self, structured: StructuredLinearization):
        self._structured = structured
        f = structured.f
        self._triples = AncestorTriples(f.lagrangian, structured.rule.alpha, f.backend)

    @cached_property
    def _tree(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Indices of third derivatives of the kinetic energy, with positions in Hessians.
        The third derivatives are entries of the Hessians of the step equations.

        For each kind of matrix there are target positions in the flattened matrix, and source positions.
        """
        f = self._structured.f
        places, source = self._triples.places
        dynamic = places[:, 0] < f.nd
        (x, first, y, second, z, third), source = places[dynamic].T, source[dynamic]
        end = ["z"] * f.nd + ["u"] * f.nk
        kinds = np.array([["x"] * f.nq, end])
        offsets = np.stack([np.arange(f.nq), [*range(f.nd), *(f.nu - f.nk + i for i in range(f.nk))]])
        rows, columns = (second, y), (third, z)
        sizes = self._sizes
        indices = {}
        for key in KEYS:
            mask = (kinds[rows] == key[0]) & (kinds[columns] == key[1])
            equation = (x + first * (f.nd + f.nm))[mask]
            row, column = offsets[rows][mask], offsets[columns][mask]
            indices[key] = (equation * sizes[key[0]] + row) * sizes[key[1]] + column, source[mask]
        return indices

    @property
    def _sizes(self) -> dict[str, int]:
        f = self._structured.f
        return {"x": f.nx, "u": f.nu, "t": len(f.parameters), "z": f.nd + f.nm}

    def __call__(self, steps: Steps, first: TreeFirstOrder, out: list[list[np.ndarray]]) -> None:
        """Write the Hessians of the next state and of the multipliers into `out`.
        There is one Hessian for each component. `out` has six arrays of zeros for the next state (N, nx, ...)
        and six for the multipliers (N, nm, ...), in the order of a `SecondOrder`.
        """
        f = self._structured.f
        nq, nd, nm, n = f.nq, f.nd, f.nm, len(steps)
        values = self._triples.values(first.args[0], first.args[1], steps.h, first.args[4])
        blocks = self._blocks(steps, first)
        lin = first.linearization
        follows = {
            "x": np.concatenate([lin.A[:, :nd], lin.C], axis=1)[:, None],
            "u": np.concatenate([lin.B[:, :nd], lin.D], axis=1)[:, None],
            "t": np.concatenate([lin.P[:, :nd], lin.E], axis=1)[:, None],
        }
        H = {key: np.zeros(self._shape(n, key)) for key in KEYS if key[0] == "z"}
        self._add(H, values, blocks)
        side = {kind: H["zz"] @ z + H["z" + kind] for kind, z in follows.items()}
        for i, key in enumerate(("xx", "xu", "uu", "xt", "ut", "tt")):
            a, b = key[0], key[1]
            R = np.swapaxes(follows[a], 2, 3) @ side[b]
            if not R.size:
                continue
            R += np.swapaxes(H["z" + a], 2, 3) @ follows[b]
            self._add({key: R}, values, blocks)
            # Hessians of q_k+1, lambda and p_k+1 from those of the equations
            size = R.shape[2] * R.shape[3]
            rows = R.reshape(n, 2 * nd + nm, size)
            states, multipliers = (
                part[i].reshape(n, count, size) for part, count in zip(out, (f.nx, nm), strict=True)
            )
            q, p = states[:, :nd], states[:, nq : nq + nd]
            np.matmul(first.inverse[:, :nd], rows[:, : nd + nm], out=q)
            np.matmul(first.inverse[:, nd:], rows[:, : nd + nm], out=multipliers)
            np.matmul(first.momentum_z, q, out=p)
            p += rows[:, nd + nm :]

    def _shape(self, n: int, key: str) -> tuple[int, ...]:
        f = self._structured.f
        return (n, 2 * f.nd + f.nm, *(self._sizes[kind] for kind in key))

    def _add(self, H: dict[str, np.ndarray], values: np.ndarray, blocks: list[Block]) -> None:
        """Add the Hessians of the step equations to the arrays H.
        An array of H has the shape (N, equations, rows, columns). The array `values` has third derivatives of
        the kinetic energy, and `blocks` the Hessians of forces, potentials and constraints.
        """
        for key, matrix in H.items():
            if key in self._tree:
                target, source = self._tree[key]
                matrix.reshape(len(matrix), -1)[:, target] += values.reshape(len(values), -1)[:, source]
        for equations, segments, block in blocks:
            for row, to_row, r in segments:
                for column, to_column, c in segments:
                    if row + column in H:
                        H[row + column][:, equations, to_row, to_column] += block[..., r, c]

    def _blocks(self, steps: Steps, first: TreeFirstOrder) -> list[Block]:
        """Return Hessians of forces, potentials and constraints in N steps.
        The Hessians of forces and potentials are returned for the momentum balance and for the equation of
        the next momentum, those of constraints for the momentum balance and for the constraint equations.
        Kinetic energy and gravity are not included.
        """
        s, f = self._structured, self._structured.f
        nq, nd, nm, n, theta = f.nq, f.nd, f.nm, len(steps), first.args[4]
        in_r, in_h, in_p = slice(nd), slice(nd, nd + nm), slice(nd + nm, None)

        def mapped(count: int, evaluate: Evaluator, args: list[np.ndarray], *weights: float) -> np.ndarray:
            """Evaluate a function at every step, for each of `count` unit vectors.
            The last arguments of the function `evaluate` are multiples of the unit vector, one for each of
            the factors `weights`.
            """
            many = [np.repeat(a, count, axis=0) if a.ndim == 2 else a for a in args]
            (values,) = evaluate(*many, *(np.tile(w * np.eye(count), (n, 1)) for w in weights))
            return values.reshape(n, count, *values.shape[1:])

        blocks: list[Block] = []
        if s.curved:
            args = [*first.args, steps.h[:, None]]
            for rows, mu, z in ((in_r, 1.0, 0.0), (in_p, 0.0, 1.0)):
                blocks.append((rows, s.of_terms, mapped(nd, s.terms_second, args, mu, z)))
        if nm:
            args = [steps.x0[:, :nq], steps.multipliers, theta]
            if self._start_at_once is None:
                start = mapped(nd, s.start_second, args, 1.0)
            else:
                evaluate, target = self._start_at_once
                start = np.zeros((n, nd * s.start_size**2))
                start[:, target] = evaluate(*args)[0][:, :, 0]
                start = start.reshape(n, nd, s.start_size, s.start_size)
            blocks.append((in_r, s.of_start, start))
            args = [*s.end_args(steps.x0[:, :nq], steps.x1[:, :nq]), theta]
            blocks.append((in_h, s.of_end, mapped(nm, s.end_second, args, 1.0)))
        return blocks

    @cached_property
    def _start_at_once(self) -> tuple[Evaluator, np.ndarray] | None:
        """Evaluator of all nonzero entries of Hessians, with their positions.
        They are the Hessians of the constraint impulses -(Dh'lambda)_j with respect to (q_k, lambda,
        parameters), for the constraint Jacobian Dh and each component j. The result is None if there are so
        many nonzero entries that a loop over j is faster.
        """
        f, s = self._structured.f, self._structured
        q, lam, theta = s.start_args
        w = ca.vertcat(q, lam, theta)
        gradient = ca.sparsify(ca.jacobian(-f.lagrangian.Dh[:, : f.nd].T @ lam, w))
        j, b = (np.array(i, int) for i in gradient.sparsity().get_triplet())
        entries = vec.column(gradient.nonzeros())
        pattern = ca.jacobian_sparsity(entries, w)
        if pattern.nnz() > AT_ONCE:
            return None
        rows, c = (np.array(i, int) for i in pattern.get_triplet())
        third = ca.jacobian(entries, w)
        values = vec.column(third.nonzeros())
        target = (j[rows] * s.start_size + b[rows]) * s.start_size + c
        return Evaluator(ca.Function("start_tensor", [q, lam, theta], [values])), target
