"""Multiple shooting with a primal-dual interior point, the core of the optimizer."""
