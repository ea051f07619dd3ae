"""Variational integrator in maximal coordinates, as in paper [M].
Maximal coordinates are the poses of all bodies. The mathematics is in docs/maths/maximal.md.
"""

from vioc.dynamics.integrators.maximal.maximal_vi import MaximalVI

__all__ = ["MaximalVI"]
