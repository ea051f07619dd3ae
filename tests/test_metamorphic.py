"""Motions and derivatives do not depend on how a mechanism is told: a dozen of studies.metamorphic."""

from __future__ import annotations

from dataclasses import replace

import pytest

import vioc
from studies.metamorphic import INTEGRATORS, SAME, Base, outcomes
from studies.metamorphic_changes import CHANGES, Change
from studies.metamorphic_family import mechanisms

JOINTS = (2, 2)
FEW = dict.fromkeys(("GroupVI", "MaximalVI"), ("mm, t, 0.1 s", "mirror", "base pose"))


@pytest.mark.parametrize("name", INTEGRATORS)
def test_motions_and_derivatives_are_the_same_in_every_description(name):
    labels = FEW.get(name, tuple(CHANGES))
    found = list(outcomes(name, 1, JOINTS, labels=labels))
    assert len(found) == len(labels)
    assert not [o.finding for o in found if o.finding]


def test_a_wrong_number_in_a_description_is_seen():
    base = Base("MidpointVI", 0, next(mechanisms("any", JOINTS)))

    class Wrong(Change):
        def system(self, system: vioc.System) -> vioc.System:
            terms = (
                replace(c, z=1.001 * c.z) if isinstance(c, vioc.Gravity) else c for c in system.components
            )
            return super().system(vioc.System(*system.frames, *terms))

    assert base.compared("right", Change()).worst == 0
    outcome = base.compared("wrong", Wrong())
    assert not outcome.error and outcome.worst > 1e3 * SAME
