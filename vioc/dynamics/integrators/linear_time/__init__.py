"""The linear-time variational integrator of [L].

`drnea` is the discrete recursive Newton-Euler algorithm on a system's links, `linear_time_step` the
equations of a step and the kernel that solves them, `linear_time_vi` the integrator `LinearTimeVI`,
`core` the same in compiled C.
"""
