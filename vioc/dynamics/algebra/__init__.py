"""Algebra for mechanisms: vectors, poses in SE(3), recursions over trees, and factorizations."""
