"""Linear-quadratic problems on a chain of stages, and their Riccati recursion.

Stages have dynamics x+ = F z + c with z = (x, u) and costs of second order. The recursion exists in NumPy
(`recursion`), in CasADi symbols (`symbols`) and in C without allocation (`riccati.c`). Regulators, descents,
interior points and receding horizons use it.
"""
