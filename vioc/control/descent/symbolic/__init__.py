"""Newton's method on the stages of an optimal-control problem as CasADi functions, for maps of moderate size.

`elimination` solves a step's linearized equations in a fixed order, `stage` writes a stage (map and cost) in
symbols, `newton_stage` what a recursion does at one, `stage_programs` and `recursions` run them over a
horizon. See docs/maths/optimal_control.md, "Stages".
"""
