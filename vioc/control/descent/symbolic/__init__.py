"""Newton's method on trajectories of small maps, with symbolic CasADi functions.
Each function computes one stage: one step of the map with its cost.

`elimination` solves a step's linearized equations in a fixed order, `stage` writes a stage (map and cost) in
symbols, `newton_stage` has the recursions' computation at one stage, `stage_programs` and `recursions` run it
over a horizon. See docs/maths/optimal_control.md, "Stages".
"""
