"""A chain of stages, x+ = F z + c of z = (x, u) with a cost of second order, and the Riccati recursion on it.

Written once for each of those who run it: `recursion` for numpy, `riccati.c` for C without allocation. What
has stages, regulators, descents, interior points and receding horizons, stands on it.
"""
