"""Robots with linkages in their legs, from file to motion: closures that imply a part of each other."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import vioc

pytest.importorskip("mujoco")

from vioc import read_mjcf

BIPED = Path(__file__).with_name("data") / "biped_with_linkages.xml"


@pytest.fixture(scope="module")
def robot():
    return read_mjcf(BIPED, gravity=None)


@pytest.mark.parametrize("yaw", [None, 0.0, np.pi / 2, 0.4])
def test_a_biped_moves_from_its_own_pose(robot, yaw):
    """On a pelvis that is held (None), or floats and faces anywhere."""
    base = [n for n in robot.system.variables if n.startswith("base_")]
    pose = {"base_z": 1.0, "base_yaw": yaw or 0.0}
    if yaw is None:
        robot = robot.locked(**{n: pose.get(n, 0.0) for n in base})
        pose = {}
    system = robot.system
    q = vioc.consistent_configuration(system, pose)
    assert q.iterations == 0 and q.rank == 10  # the file's pose, closed as it is drawn
    v = vioc.project_velocity(system, q.q, np.random.default_rng(0).normal(size=len(q.q)) / 5)
    ends = []
    for dt in (0.002, 0.005):
        with pytest.warns(vioc.errors.RedundancyWarning):
            f = vioc.MidpointVI(system, dt)
        # of each planar loop the direction across it, in the axes of a body of the loop
        assert f.redundant == ("l-rod-y", "r-rod-y")
        run = f.rollout(f.initial_state(q, v), steps=round(0.1 / dt))
        for name in system.constraint_names:
            assert np.abs(run[f"h.{name}"]).max() < 1e-13
        ends.append(run.x[-1, : f.nq])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine = vioc.MidpointVI(system, 0.001, redundant=f.redundant)
    end = fine.rollout(fine.initial_state(q, v), steps=100).x[-1, : f.nq]
    first, second = (np.abs(e - end).max() for e in ends)
    assert first < second * (4 - 1) / (25 - 1) * 1.2  # order 2, against steps of 1 ms
