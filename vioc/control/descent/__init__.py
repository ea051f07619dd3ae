"""The projection-operator Newton method: descent on the manifold of trajectories, and multiple shooting."""
