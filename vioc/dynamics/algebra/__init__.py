"""Algebra of mechanisms: vectors and SE(3), recursions over trees, sparse and articulated factorizations."""
