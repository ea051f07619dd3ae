"""A mechanism of the study `identify_family`, which once went wrong."""

import numpy as np

import vioc
from studies.identify_family import parametrized, record
from vioc.identification import identify
from vioc.models import mechanism


def test_bodies_do_not_run_flat():
    """The search with logarithms of the factors' diagonal ran to a flat body and called it converged."""
    m = mechanism(8, joints=(2, 5))
    rng = np.random.default_rng([23, 8])
    system, begin = parametrized(m, rng)
    one = record(m, system, rng)
    f = vioc.MidpointVI(system, 0.005)
    found = identify(f, one, list(begin), values=begin, noise=dict.fromkeys(one.measured, 1e-6))
    assert found.converged and not found.doubts and np.isfinite(list(found.std.values())).all()
    off = [abs(found[n] - f.parameters[n]) / s for n, s in found.std.items()]
    assert max(off) < 5
