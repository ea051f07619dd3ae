"""The family of random mechanisms, and what holds for every one of them."""

from __future__ import annotations

import numpy as np

import vioc
from studies.random_family import mechanism, mechanisms


def test_the_family_is_consistent_and_the_same_in_any_order():
    found = list(mechanisms(8))
    assert {m.name.split()[0] for m in found} == {"tree", "loop"}
    for m in found:
        vioc.MidpointVI(m.system, 0.01).initial_state(m.q, m.v)  # refuses what is not consistent
    again = mechanism(5)
    assert again.system == found[5].system
    assert (again.q == found[5].q).all() and (again.v == found[5].v).all()
    (alone,) = mechanisms(1, 5)
    assert alone.name == again.name
    assert not np.array_equal(mechanism(5, seed=1).q[:2], again.q[:2])
