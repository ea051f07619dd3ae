"""Maps to first order about points and trajectories: errors, weights by name, tangent bases, A and B."""
