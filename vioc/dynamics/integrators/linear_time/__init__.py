"""The linear-time variational integrator of [L].

`se3` is the algebra, `articulated` the two-sided articulated-body recursion, `drnea` the discrete
recursive Newton-Euler algorithm on a system's links, `solvers` the root finders, `map` the integrator
`LinearTimeVI`, `core` the same in compiled C.
"""
