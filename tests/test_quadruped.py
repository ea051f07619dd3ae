"""The quadruped that learns to walk: gait and search by themselves, the robot where it is installed."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from studies import quadruped_learning as study
from studies import quadruped_mujoco as peer
from studies.quadruped_robot import JOINTS, LEGS, Quadruped, description
from vioc.compile import find_compiler

GAIT = study.Gait(3.3, 0.3, 0.4, -0.5, 0.8, 0.05, 0.02)
LINK = 0.2  # m, thigh and calf of the A1


@pytest.fixture(scope="module")
def robot():
    if description() is None or find_compiler() is None:
        pytest.skip("needs a C compiler and example-robot-data")
    return Quadruped(description(), study.DT)


# -- the gait -----------------------------------------------------------------------------------------


def feet(angles):
    """Of a leg below its hip, in the plane of the leg (N, 4 legs, 2): forward, down."""
    legs = angles.reshape(-1, 4, 3)
    thigh, calf = legs[..., 1], legs[..., 1] + legs[..., 2]
    return np.stack([-LINK * (np.sin(thigh) + np.sin(calf)), LINK * (np.cos(thigh) + np.cos(calf))], axis=-1)


def test_rates_are_those_of_the_angles():
    t = np.linspace(0, 2, 20001)
    angles, rates = GAIT.references(t)
    slopes = (angles[2:] - angles[:-2]) / (t[2:] - t[:-2])[:, None]
    smooth = np.abs(t[1:-1] - study.RAMP) > 2e-4
    np.testing.assert_allclose(rates[1:-1][smooth], slopes[smooth], atol=0.01)  # of 8; it has kinks


def test_the_start_marches_on_the_spot():
    angles, _ = study.START.references(np.linspace(1, 2, 500))
    forward, down = np.moveaxis(feet(angles), -1, 0)
    np.testing.assert_allclose(forward, 0, atol=1e-15)
    standing = 2 * LINK * np.cos(study.START.bend)
    assert down.max() == pytest.approx(standing)
    assert down.min() < standing - 0.03


def test_a_foot_moves_forward_while_it_is_up():
    gait = replace(study.START, swing=0.3)
    t = np.linspace(1, 3, 2001)
    forward, down = np.moveaxis(feet(gait.references(t)[0]), -1, 0)
    for leg in range(4):
        speed = np.gradient(forward[:, leg], t)
        assert np.sum(speed * (down[:, leg] < down[:, leg].max() - 0.02)) > 0
        assert np.sum(speed * (down[:, leg] > down[:, leg].max() - 0.005)) < 0


def test_diagonal_legs_go_together():
    t = 1 + np.linspace(0, 1, 100)
    legs = GAIT.references(t)[0].reshape(-1, 4, 3)[..., 1:]
    later = GAIT.references(t + 0.5 / GAIT.frequency)[0].reshape(-1, 4, 3)[..., 1:]
    at = {leg: i for i, leg in enumerate(LEGS)}
    for a, b, c in (("FR", "RL", "FL"), ("FL", "RR", "RL")):
        np.testing.assert_allclose(legs[:, at[a]], legs[:, at[b]])
        np.testing.assert_allclose(legs[:, at[a]], later[:, at[c]], atol=1e-12)


# -- the search ---------------------------------------------------------------------------------------


def test_the_search_keeps_the_best_and_is_seeded(monkeypatch):
    seen = []

    def episode(robot, gait, end):
        seen.append(gait)
        return SimpleNamespace(distance=-abs(gait.swing - 0.4), fell=gait.bend < 0.8)

    monkeypatch.setattr(study, "walk", episode)
    calls = []
    found = study.learn(None, 5, 60, done=lambda: calls.append(0))
    assert len(calls) == 60 and len(seen) == len(found.distances) == len(found.fell) == 61
    assert seen[0] == study.START and found.best == seen[int(np.argmax(found.distances))]
    assert abs(found.best.swing - 0.4) < 0.05 < abs(study.START.swing - 0.4)
    assert any(found.fell) and all(study.SLOWEST <= g.frequency <= study.FASTEST for g in seen)
    assert study.learn(None, 5, 60).distances == found.distances
    assert study.learn(None, 6, 60).distances != found.distances


# -- without and with the robot -----------------------------------------------------------------------


def test_without_the_robot_nothing_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "description", lambda: None)
    report = study.STUDY.execute(quick=True, out=tmp_path)
    assert report.measured == {} and report.all_hold
    assert "pip install example-robot-data" in capsys.readouterr().out
    assert not study.STUDY.execute(quick=False, out=tmp_path).all_hold


@pytest.mark.peer
def test_quick_form_holds(robot, tmp_path):
    report = study.STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold
    assert {"balance", "constraint", "penetration", "cone"} <= report.measured.keys()


@pytest.mark.peer
def test_standing_carries_the_weight(robot):
    """The ground takes the weight; the knees' torques are those of the feet's forces by hand."""
    episode = study.walk(robot, study.Gait(lift=0.0), 2.0)
    run = episode.run
    assert not episode.fell and abs(episode.distance) < 0.05
    figures = study.physics(episode)
    assert figures["balance"] < 1e-10 and figures["constraint"] < 1e-10
    assert study.forces(run)[0][-1].sum() == pytest.approx(robot.weight, rel=0.01)  # it still sways a little
    angles, _, torques = robot.servos(run.x, run.u)
    points = robot.points(run.x)[-2]
    for i, leg in enumerate(LEGS):
        _, _, knee, foot = points[i]
        along = np.array([run[f"force.{leg}:{a}"][-1] for a in "xyz"])
        lever = np.cross(foot - knee, along)[1]
        assert torques[-1, 3 * i + 2] == pytest.approx(-lever, abs=0.5)  # less the calf's own weight
        assert angles.shape == torques.shape == (len(run) - 1, len(JOINTS))


@pytest.mark.peer
def test_a_fall_ends_the_episode(robot):
    episode = study.walk(robot, study.Gait(lean=0.8), 3.0)
    assert episode.fell and len(episode.run) < 3.0 / study.DT
    assert len(episode.run.t) == len(episode.run.x) == len(episode.run) + 1


@pytest.mark.peer
def test_limits_end_an_episode(robot, monkeypatch):
    """It stops where motors are weaker than standing needs; no sample is missed between two looks."""
    standing = study.Gait(lift=0.0)
    seen = []
    able = robot.able
    monkeypatch.setattr(robot, "able", lambda x, u: seen.append((len(x), len(u))) or able(x, u))
    whole = study.walk(robot, standing, 1.0)
    assert not whole.fell and seen == [(501, 500), (502, 501)]
    assert sum(u - 1 for _, u in seen) == len(robot.servos(whole.run.x, whole.run.u)[0])
    torque = np.abs(robot.servos(whole.run.x, whole.run.u)[2]).max()
    for effort, fell in ((0.99 * torque, True), (1.01 * torque, False)):
        limits = {j: limit._replace(effort=effort) for j, limit in robot.limits.items()}
        monkeypatch.setattr(robot, "limits", limits)
        assert study.walk(robot, standing, 1.0).fell == fell


@pytest.mark.peer
def test_mujoco_marches_alike(robot):
    """Trunk after 1 s of the start's march: rigid contact against MuJoCo's soft one."""
    pytest.importorskip("mujoco")
    model = peer.described(robot.path, study.DT).compile()
    assert model.body_subtreemass[0] == pytest.approx(robot.f.mass, rel=1e-12)
    angles, rates = study.START.references(np.arange(1000) * study.DT)
    other = peer.walk(robot.path, study.DT, robot.standing(angles[0])["base_z"], angles, rates)
    run = study.walk(robot, study.START, 1.0).run
    own = np.column_stack([run[f"trunk:{a}"] for a in "xyz"])
    np.testing.assert_allclose(own, other, atol=0.01)
