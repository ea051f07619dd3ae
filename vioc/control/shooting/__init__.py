"""Multiple-shooting optimizer with a primal-dual interior-point method."""
