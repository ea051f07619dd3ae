"""Contact, friction and limits of joints in any coordinates: what the maps that have them stand on.

What meets: `touch` is a gap or what rubs, `polytopes` are boxes and hulls, `features` where two of them meet,
and `look` finds these places for a step. What holds: `cones` are the laws of complementarity and friction in
the variables of the interior point, `laws` the same as rows of a program. How a step is solved: by `interior`
in numpy, or by `compiled_contact`, which runs tables (`tape`, `tape.c`) of compiled functions; `rollouts`
strings steps together. What a map has of it: `smoothed` is the maps' base class, `crossings` tells what
passes through each other within a step, `implicit` differentiates solved steps. No module here knows an
integrator, or of what coordinates a state is made.
"""
