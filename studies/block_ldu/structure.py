"""What a graph and an order of elimination decide without any numbers: fill-in, loops, cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vioc.checks import near_misses
from vioc.dynamics.algebra.block_elimination import later
from vioc.errors import ModelError

ORDERS = ("auto", "depth-first", "minimum-degree")


@dataclass(frozen=True)
class Structure:
    """The pattern of the factors.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each node's blocks.
    order : tuple of int
        Nodes, first eliminated first.
    later : tuple of tuples of int
        For each node its neighbours when it is eliminated (N(k) of the maths page), in the order of
        elimination: its parent in the elimination tree first, then its loop openers.
    edges : frozenset of (int, int)
        The edges given, smaller node first.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    later: tuple[tuple[int, ...], ...]
    edges: frozenset[tuple[int, int]]

    @property
    def parent(self) -> tuple[int, ...]:
        """Of each node in the elimination tree; -1 for a root."""
        return tuple(n[0] if n else -1 for n in self.later)

    @property
    def loop_openers(self) -> tuple[tuple[int, ...], ...]:
        """Of each node: what keeps it from being a leaf when its turn comes, besides its parent."""
        return tuple(n[1:] for n in self.later)

    @property
    def fill_in(self) -> int:
        """Edges that elimination adds."""
        return sum(map(len, self.later)) - len(self.edges)

    @property
    def operations(self) -> int:
        """Multiplications and additions of a factorization."""
        total = 0.0
        for k, neighbours in enumerate(self.later):
            s, width = self.sizes[k], sum(self.sizes[j] for j in neighbours)
            total += 2 / 3 * s**3 + 2 * s * s * width + 2 * s * width * width
        return round(total)

    def __repr__(self) -> str:
        return (
            f"Structure({len(self.sizes)} nodes, {sum(self.sizes)} rows, {len(self.edges)} edges, "
            f"fill-in {self.fill_in}, {self.operations:.3g} operations)"
        )


def analyse(
    sizes: int | Sequence[int],
    edges: Iterable[tuple[int, int]],
    order: str | Sequence[int] = "auto",
    root: int = 0,
) -> Structure:
    """The structure of a block matrix; arguments as for `BlockLDU`."""
    edges = [(int(i), int(j)) for i, j in edges]
    if isinstance(sizes, (int, np.integer)):
        sizes = [int(sizes)] * (1 + max((max(e) for e in edges), default=0))
    sizes = tuple(int(s) for s in sizes)
    n = len(sizes)
    if n == 0 or min(sizes) < 1:
        raise ModelError(f"sizes: expected block sizes >= 1 of at least one node, got {sizes}")
    for i, j in edges:
        if i == j or not (0 <= i < n and 0 <= j < n):
            raise ModelError(f"edges: expected pairs of different nodes from 0 to {n - 1}, got {(i, j)}")
    if not 0 <= root < n:
        raise ModelError(f"root: expected a node from 0 to {n - 1}, got {root}")
    undirected = frozenset((min(e), max(e)) for e in edges)
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for i, j in edges:  # in the order given, which depth-first search follows
        if j not in neighbours[i]:
            neighbours[i].append(j)
            neighbours[j].append(i)

    def structure(sequence: Sequence[int]) -> Structure:
        return Structure(sizes, tuple(sequence), later(neighbours, sequence), undirected)

    if not isinstance(order, str):
        sequence = [int(i) for i in order]
        if sorted(sequence) != list(range(n)):
            raise ModelError(f"order: expected each node from 0 to {n - 1} once, got {sequence}")
        return structure(sequence)
    if order not in ORDERS:
        raise ModelError(f"order: unknown {order!r}; {near_misses(order, ORDERS)}")
    found = []
    if order != "minimum-degree":
        found.append(structure(depth_first(neighbours, root)))
    if order == "minimum-degree" or (found and order == "auto" and found[0].fill_in):
        found.append(structure(minimum_degree(neighbours)))
    return min(found, key=lambda s: s.operations)


def depth_first(neighbours: Sequence[Sequence[int]], root: int = 0) -> list[int]:
    """Nodes in the reverse of the order in which a depth-first search finds them: the root last."""
    found: list[int] = []
    seen = [False] * len(neighbours)
    for start in (root, *range(len(neighbours))):
        stack = [start]
        while stack:
            i = stack.pop()
            if seen[i]:
                continue
            seen[i] = True
            found.append(i)
            stack += [j for j in reversed(neighbours[i]) if not seen[j]]
    return found[::-1]


def minimum_degree(neighbours: Sequence[Sequence[int]]) -> list[int]:
    """The node with the fewest neighbours left comes next; the lower number on a tie."""
    graph = [set(n) for n in neighbours]
    left = set(range(len(graph)))
    order = []
    while left:
        k = min(left, key=lambda i: (len(graph[i]), i))
        left.remove(k)
        order.append(k)
        for i in graph[k]:
            graph[i] |= graph[k]
            graph[i] -= {i, k}
    return order
