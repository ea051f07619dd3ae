"""Maps built from other maps: with delays, constants as states, noise, substeps or switching.

`around` is their base class. `parts` and `stepwise` compute their derivatives and rollouts from those of the
inner maps, and `joining` joins runs of several maps.
"""
