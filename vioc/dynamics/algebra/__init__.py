"""Algebra of mechanisms: vectors, poses in SE(3), tree recursions, factorizations."""
