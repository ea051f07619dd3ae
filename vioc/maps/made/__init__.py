"""Maps built from other maps: delayed, extended, noisy, substeps, switched.

`around` is their base class. `parts` and `stepwise` compute their derivatives and rollouts from those of the
inner maps, and `joining` joins runs of several maps.
"""
