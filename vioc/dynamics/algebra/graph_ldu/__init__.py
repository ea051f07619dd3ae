"""Sparse LDU factorization of block matrices by their graph ([M] 4); see docs/maths/graph_ldu.md."""

from vioc.dynamics.algebra.graph_ldu.ldu import BlockLDU, Factors
from vioc.dynamics.algebra.graph_ldu.structure import Structure, analyse

__all__ = ["BlockLDU", "Factors", "Structure", "analyse"]
