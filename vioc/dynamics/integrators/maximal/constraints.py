"""Groups of constraints, each one node of the mechanism's graph, and their functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import casadi as ca

from vioc.dynamics.lagrangian import OPTIONS


class Rows:
    """The functions of a group of constraints; alike groups share them.

    Parameters
    ----------
    function : casadi.Function
        (poses of the bodies.., parameters) -> g, its right variations by each body (rows, 6).
    """

    def __init__(self, function: ca.Function):
        self.function, self.count = function, function.n_in() - 1

    @cached_property
    def held(self) -> ca.Function:
        """(poses.., parameters) -> the transposed variations G' by each body (6, rows)."""
        args = [ca.SX.sym("a", s) for s in map(self.function.size1_in, range(self.function.n_in()))]
        return ca.Function("held", args, [ca.sparsify(g.T) for g in self.function.call(args)[1:]], OPTIONS)

    @cached_property
    def landed(self) -> ca.Function:
        """(next poses.., T.., dt, parameters) -> g, and H: its slopes by the twists that lead there."""
        count = self.count
        *Z, theta = [ca.SX.sym("a", s) for s in map(self.function.size1_in, range(self.function.n_in()))]
        T, dt = [ca.SX.sym("T", 3, 3) for _ in range(count)], ca.SX.sym("dt")
        g, *rows = self.function.call([*Z, theta])
        H = [ca.sparsify(ca.horzcat(dt * v[:, :3], v[:, 3:] @ t)) for v, t in zip(rows, T, strict=True)]
        return ca.Function("landed", [*Z, *T, dt, theta], [g, *H], OPTIONS)

    @cached_property
    def swept(self) -> ca.Function:
        """(G' by each body.., their twists.., dt) -> dt G V (rows,), dt G by each body."""
        held = [ca.SX.sym("G", self.held.sparsity_out(i)) for i in range(self.count)]
        V, dt = [ca.SX.sym("V", g.shape[0]) for g in held], ca.SX.sym("dt")
        H = [dt * g.T for g in held]
        swept = sum((h @ v for h, v in zip(H, V, strict=True)), ca.SX(self.function.size1_out(0), 1))
        return ca.Function("swept", [*held, *V, dt], [ca.densify(swept), *H], OPTIONS)

    @cached_property
    def impulse(self) -> ca.Function:
        """(G' by each body.., multipliers) -> G' lambda by each body (6,)."""
        held = [ca.SX.sym("G", self.held.sparsity_out(i)) for i in range(self.count)]
        lam = ca.SX.sym("lambda", self.function.size1_out(0))
        return ca.Function("impulse", [*held, lam], [ca.densify(g @ lam) for g in held], OPTIONS)


@dataclass(frozen=True)
class Group:
    """Constraints that are one node of the graph.

    Attributes
    ----------
    bodies : tuple of int
    names : tuple of str
        Of its rows.
    rows : Rows
    joint : bool
        Whether it is a joint of the tree.
    """

    bodies: tuple[int, ...]
    names: tuple[str, ...]
    rows: Rows
    joint: bool
