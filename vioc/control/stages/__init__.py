"""Sweeps over the stages of an optimal-control problem as CasADi functions, for maps of moderate size.

`elimination` solves a step's linearized equations in a fixed order, `equations` writes a stage (map and
cost) in symbols, `sweeps` strings stages to the passes of an optimizer. See
docs/maths/optimal_control.md, "Stages".
"""
