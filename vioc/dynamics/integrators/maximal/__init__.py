"""The variational integrator in maximal coordinates of [M]; see docs/maths/maximal.md."""

from vioc.dynamics.integrators.maximal.map import MaximalVI

__all__ = ["MaximalVI"]
