"""A chain of stages, x+ = F z + c of z = (x, u) with a cost of second order, and the Riccati recursion on it.

Written once for each of those who run it: `recursion` for numpy, `symbols` for CasADi, `riccati.c` for C
without allocation. Regulators, descents, interior points and receding horizons stand on it.
"""
