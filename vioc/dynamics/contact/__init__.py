"""Contacts, friction and joint limits, for any coordinates and integrators.

- `touch`: one contact, joint limit or dry friction; `polytopes`: boxes and hulls; `features`: the points
  where two polytopes meet; `look`: the search for these points during a step
- `cones`: complementarity and friction in the variables of the interior point; `laws`: the same as
  equations of an optimization
- `interior`: the solver in numpy; `compiled_contact`: the solver in C, which runs the tables of `tape` with
  `tape.c`; `rollouts`: consecutive steps
- `smoothed`: base class of maps with contact; `crossings`: bodies that pass through each other within a
  step; `implicit`: derivatives of solved steps
"""
