"""Sparse LDU factorization of block matrices by their graph ([M] 4); see docs/maths/graph_ldu.md."""

from studies.block_ldu.ldu import BlockLDU, Factors
from studies.block_ldu.structure import Structure, analyse

__all__ = ["BlockLDU", "Factors", "Structure", "analyse"]
