"""Variational integrator in maximal coordinates, the poses of all bodies, of paper [M].
Its mathematics is in docs/maths/maximal.md.
"""

from vioc.dynamics.integrators.maximal.maximal_vi import MaximalVI

__all__ = ["MaximalVI"]
