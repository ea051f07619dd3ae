"""Algebra of mechanisms: vectors, SE(3), tree recursions, factorizations."""
