"""The block LDU by the graph of a matrix, against dense and sparse solvers of others."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.block_ldu import BlockLDU, analyse
from studies.graph_ldu import crystal, ladder, net
from vioc.compile import find_compiler
from vioc.errors import ModelError

BACKENDS = ["numpy", *(["compiled"] if find_compiler() else [])]


def random_matrix(ldu: BlockLDU, seed: int) -> dict:
    """Blocks with the pattern of the graph, not symmetric, well conditioned."""
    random = np.random.default_rng(seed)
    s = ldu.structure
    ends = {e for i, j in s.edges for e in ((i, j), (j, i))} | {(i, i) for i in range(len(s.sizes))}
    blocks = {e: random.normal(size=(s.sizes[e[0]], s.sizes[e[1]])) for e in sorted(ends)}
    for i, n in enumerate(s.sizes):
        weight = sum(s.sizes[j] for a, b in s.edges for j in (a, b) if i in (a, b)) + 2.0 * n
        blocks[i, i] += weight * np.linalg.qr(random.normal(size=(n, n)))[0]
    return blocks


def dense(ldu: BlockLDU, blocks: dict) -> np.ndarray:
    rows = ldu.rows
    F = np.zeros((rows[-1], rows[-1]))
    for (i, j), block in blocks.items():
        F[rows[i] : rows[i + 1], rows[j] : rows[j + 1]] = block
    return F


def check(ldu: BlockLDU, seed: int = 0, tolerance: float = 1e-10) -> None:
    blocks = random_matrix(ldu, seed)
    F = dense(ldu, blocks)
    factors = ldu.factorize(blocks)
    random = np.random.default_rng(seed + 1)
    for b in (random.normal(size=len(F)), random.normal(size=(len(F), 3))):
        for transpose in (False, True):
            expected = np.linalg.solve(F.T if transpose else F, b)
            x = factors.solve(b, transpose=transpose)
            assert np.abs(x - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-300)
            assert np.allclose(factors.multiply(x, transpose=transpose), b, atol=1e-8)


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 12))
    sizes = draw(st.lists(st.integers(1, 7), min_size=n, max_size=n))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    return sizes, draw(st.lists(st.sampled_from(pairs), max_size=25)) if pairs else []


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40)
@given(graphs(), st.sampled_from(["auto", "depth-first", "minimum-degree"]), st.integers(0, 99))
def test_any_graph_against_dense(backend, graph, order, seed):
    check(BlockLDU(*graph, order, backend=backend), seed)


@pytest.mark.parametrize("edges", [ladder(20), net(6), crystal(3)], ids=["ladder", "net", "crystal"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_lattices_against_dense_and_superlu(edges, backend):
    ldu = BlockLDU(6, edges, backend=backend)
    check(ldu)
    F = scipy.sparse.csr_matrix(dense(ldu, random_matrix(ldu, 3)))
    b = np.random.default_rng(0).normal(size=F.shape[0])
    expected = scipy.sparse.linalg.splu(F.tocsc()).solve(b)
    assert np.abs(ldu.factorize(F).solve(b) - expected).max() < 1e-10


@pytest.mark.skipif(len(BACKENDS) < 2, reason="there is no C compiler")
def test_compiled_core_agrees_with_numpy():
    edges = net(5)
    one, two = (BlockLDU(6, edges, backend=b) for b in ("numpy", "compiled"))
    blocks, b = random_matrix(one, 0), np.ones((150, 2))
    assert np.abs(one.factorize(blocks).solve(b) - two.factorize(blocks).solve(b)).max() < 1e-13


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_no_fill_in_on_trees(parents):
    edges = [(i + 1, p % (i + 1)) for i, p in enumerate(parents)]
    for order in ("depth-first", "minimum-degree"):
        s = analyse(6, edges, order)
        assert s.fill_in == 0 and not any(s.loop_openers)
    s = analyse(6, edges, "depth-first", root=len(parents))
    assert s.order[-1] == len(parents)


def test_operations_grow_linearly_on_trees():
    counts = [analyse(6, list(pairwise(range(n)))).operations for n in (100, 200, 400)]
    assert counts[2] - counts[1] == pytest.approx(2 * (counts[1] - counts[0]), abs=2)


def test_a_loop_fills_in_towards_its_opener_only():
    # a ring of five with a tail: 0 opens the loop, 5 hangs on 2
    s = analyse(3, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (2, 5)], "depth-first")
    assert s.order == (5, 4, 3, 2, 1, 0)
    assert s.parent == (-1, 0, 1, 2, 3, 2)
    assert s.loop_openers == ((), (), (0,), (0,), (), ()) or s.loop_openers == ((), (), (0,), (0,), (0,), ())
    assert s.fill_in == 2


def test_dense_matrix_is_a_complete_graph():
    n = 6
    check(BlockLDU([1] * n, [(i, j) for i in range(n) for j in range(i)]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_saddle_point_needs_its_order(backend):
    D, G = 2 * np.eye(3), np.array([[1.0, 0, 0]])
    blocks = {(0, 0): D, (0, 1): -G.T, (1, 0): G, (1, 1): np.zeros((1, 1))}
    good = BlockLDU([3, 1], [(0, 1)], [0, 1], backend=backend)
    x = good.factorize(blocks).solve(np.array([0.0, 0, 0, 1]))
    assert np.allclose(x, [1, 0, 0, 2])
    bad = BlockLDU([3, 1], [(0, 1)], [1, 0], backend=backend)
    with pytest.raises(np.linalg.LinAlgError, match="node 1 .* eliminated later"):
        bad.factorize(blocks)


@pytest.mark.parametrize("backend", BACKENDS)
def test_refinement_repairs_a_poor_pivot(backend):
    tiny = 1e-9
    blocks = {(0, 0): [[tiny]], (0, 1): [[1.0]], (1, 0): [[1.0]], (1, 1): [[1.0]]}
    factors = BlockLDU([1, 1], [(0, 1)], [0, 1], backend=backend).factorize(blocks)
    b = np.array([1.0, 2.0])
    exact = np.linalg.solve([[tiny, 1], [1, 1]], b)
    plain, refined = (np.abs(factors.solve(b, refine=r) - exact).max() for r in (0, 2))
    assert refined < 1e-14 < plain


def test_bad_input():
    with pytest.raises(ModelError, match="pairs of different nodes"):
        BlockLDU(6, [(1, 1)])
    with pytest.raises(ModelError, match="block sizes >= 1"):
        BlockLDU([2, 0], [(0, 1)])
    with pytest.raises(ModelError, match="minimum-degree"):
        BlockLDU(6, [(0, 1)], "minimum-dgree")
    with pytest.raises(ModelError, match="each node from 0 to 1 once"):
        BlockLDU(6, [(0, 1)], [0, 0])
    with pytest.raises(ModelError, match="root"):
        BlockLDU(6, [(0, 1)], root=2)
    with pytest.raises(ModelError, match="backend"):
        BlockLDU(6, [(0, 1)], backend="gpu")
    ldu = BlockLDU([2, 2, 1], [(0, 1), (1, 2)])
    with pytest.raises(ValueError, match=r"entry \(0, 4\) .* no edge \(0, 2\)"):
        ldu.factorize(np.ones((5, 5)))
    with pytest.raises(ValueError, match="no edge"):
        ldu.factorize({(0, 2): np.ones((2, 1))})
    with pytest.raises(ValueError, match="expected shape"):
        ldu.factorize({(0, 0): np.ones((3, 3))})
    with pytest.raises(ValueError, match="finite"):
        ldu.factorize({(0, 0): np.full((2, 2), np.nan)})
    with pytest.raises(ValueError, match="right-hand side"):
        ldu.factorize(np.eye(5)).solve(np.ones(4))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        ldu.factorize({(0, 0): np.eye(2)})
