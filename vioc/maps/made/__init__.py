"""Maps that are made of other maps: delayed, extended, noisy, of substeps, taking turns.

`around` is what they share, `parts` and `stepwise` how their derivatives and rollouts come from those of
their maps, `joining` puts runs of several behind each other.
"""
