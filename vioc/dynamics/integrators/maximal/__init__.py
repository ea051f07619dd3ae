"""Variational integrator in maximal coordinates of [M], docs/maths/maximal.md."""

from vioc.dynamics.integrators.maximal.maximal_vi import MaximalVI

__all__ = ["MaximalVI"]
