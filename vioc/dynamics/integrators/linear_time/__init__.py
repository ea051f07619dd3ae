"""Variational integrator whose steps take time O(n) for n bodies, by Lee et al. [L].

`drnea` has the discrete recursive Newton-Euler algorithm on the links of a system, `linear_time_step` the
equations of a step and their CasADi kernel, `linear_time_vi` the integrator `LinearTimeVI`, `core` the
interface to the same integrator in compiled C.
"""
