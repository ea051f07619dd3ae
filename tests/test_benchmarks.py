"""The benchmarks run, print and draw; the other programs compute the same mechanics."""

from __future__ import annotations

import importlib
import json
import math
import re

import numpy as np
import pytest

import vioc
from studies.benchmarks import __main__ as command
from studies.benchmarks import (
    alone,
    contact_peers,
    harness,
    ocp_peers,
    page,
    problems,
    simulators,
    work_precision,
)
from studies.benchmarks.harness import Row

CHAIN = vioc.models.load("n_link_pendulum", 4)


@pytest.fixture(autouse=True)
def virtual(monkeypatch):
    """No compiler: these tests are of the benchmarks, not of what they measure."""
    monkeypatch.setattr(harness, "find_compiler", lambda: None)


GROUPS = [
    "contact",
    "derivatives",
    "optimizers",
    pytest.param("ocp", marks=pytest.mark.slow),
    "ocp-scaling",
    "mpc",
    "work-precision",
    "batches",
    "compile-times",
]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_runs(group, tmp_path, capsys, monkeypatch):
    for package in ("mujoco", "pinocchio", "dart", "drake"):
        monkeypatch.setattr(simulators, package, lambda: None)
    monkeypatch.setattr(work_precision, "DURATION", 2.0)  # s, of 20: it runs, whatever the figures
    monkeypatch.setattr(work_precision.Pendulum.runner, "__defaults__", (2.0,))
    command.main(["--quick", "--group", group, "--out", str(tmp_path)])
    text = capsys.readouterr().out
    result = json.loads((tmp_path / "benchmarks.json").read_text())
    rows = result["rows"][group]
    assert rows and all(row["name"] in text for row in rows)
    for row in rows:
        assert set(row["figures"]) <= {"virtual"}
        assert all(math.isfinite(v) and v > 0 for v in row["figures"].values())
    pictures = {p.name for p in tmp_path.glob("*.png")}
    drawn = {"optimizers": "benchmark_optimizers.png", "work-precision": "benchmark_work_precision.png"}
    assert pictures == ({drawn[group]} if group in drawn else set())


def test_steps_name_absent_programs(tmp_path, capsys, monkeypatch):
    for package in ("mujoco", "pinocchio", "dart", "drake"):
        monkeypatch.setattr(simulators, package, lambda: None)
    monkeypatch.setattr("studies.peers.available", dict)
    command.main(["--quick", "--json", "--group", "steps", "--out", str(tmp_path)])
    rows = json.loads(capsys.readouterr().out)["rows"]["steps"]
    assert rows[0]["peers"]["DART"] == rows[4]["peers"]["MuJoCo"] == harness.ABSENT
    assert (tmp_path / "benchmark_steps.png").stat().st_size > 1000


def test_a_row_as_text():
    row = Row("step", "us", {"virtual": 12.0, "compiled": 2.0}, {"compiled": 2.5}, {"A": 5.0, "B": "absent"})
    assert row.cells() == ("step", "us", "12.0", "2.00 (2.50)", "A 5.00 = 2.50x; B: absent", "")
    lines = harness.table([row]).splitlines()
    assert lines[0].index("compiled") == lines[2].index("2.00 (2.50)")
    lines = harness.markdown([row], "a.py").splitlines()
    assert lines[0] == "Problems: `a.py`."
    assert lines[2] == "| work, us | virtual machine | compiled | A | B |"
    assert lines[4] == "| step | 12.0 | 2.00 | 5.00 | absent |"
    other = Row("solve", "ms", {"virtual": 3.0}, note="in full", remark="short", problem="b.py:B")
    lines = harness.markdown([row, other], "a.py").splitlines()
    assert lines[0] == "Problems: `a.py`, `b.py:B`."
    assert lines[5] == "| solve, ms | 3.00 | - |  |  | short |"
    nothing = Row("x", "ms", {}, {}, {"A": math.nan})
    assert nothing.cells()[2:4] == ("-", "-") and harness.plain([nothing])[0]["peers"]["A"] == "nan"


def test_losses_are_shown_as_losses():
    rows = {
        "steps": [
            Row("step", "us", {"virtual": 8.0, "compiled": 2.0}, {}, {"A": 1.0, "B": 4.0, "C": "absent"})
        ]
    }
    assert rows["steps"][0].cells()[4] == "A 1.00 = 0.50x (loss); B 4.00 = 2.00x; C: absent"
    text = harness.losses(rows)
    assert text.startswith("Others are faster in 1 of 2 comparisons")
    assert "| step | 8.00 | 2.00 | **1.00** | 4.00 | absent |" in harness.markdown(rows["steps"], "a.py")
    nothing = {"ocp": [Row("arm", "ms", {}, {}, {"A": 3.0, "B": "not converged"})]}
    text = harness.losses(nothing)  # where vioc has no answer, one is a loss
    assert text.startswith("Others are faster in 1 of 1")
    assert "| arm | - | - | **3.00** | not converged |" in harness.markdown(nothing["ocp"], "a.py")


def test_every_figure_has_the_file_of_its_problem():
    assert list(page.PROBLEMS) == list(command.GROUPS)
    for path in {*page.PROBLEMS.values(), "studies/heap.py", "studies/quadruped_robot.py"}:
        assert (alone.ROOT / path).exists()


def test_the_command_installs_what_is_declared():
    together, *others = alone.programs()
    assert {"crocoddyl", "libpinocchio", "pin"} == {p.split(">")[0].split("=")[0] for p in together}
    assert {"dartpy", "drake", "mujoco", "mujoco-mjx"} == {p.split(">")[0] for (p,) in others}
    assert set(alone.QUICK) <= set(command.GROUPS)


def test_a_full_run_replaces_the_published_results(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(page, "PICTURES", tmp_path)
    page.RESULTS.write_text('{"machine": "old", "rows": {}, "notes": {"compile-times": "old"}}')
    peers = {"A": 2.0, "B": "absent", "C": math.nan}
    row = Row("first use", "s", {"virtual": 1.0}, {}, peers, "long", "b.py:B", remark="")
    rows = {"compile-times": [row, Row("x", "s", {}, note="in full")]}
    command.publish(rows, {})
    assert "old" not in page.RESULTS.read_text()
    assert page.summary() == f"{harness.machine()}\n\nOthers are faster in 0 of 1 comparisons."
    table = harness.markdown(rows["compile-times"], "studies/benchmarks/problems.py")
    assert page.section("compile-times") == table and "| first use | 1.00 | - | 2.00 |" in table
    with pytest.raises(SystemExit):
        command.main(["--publish", "--quick"])


def test_the_page_has_the_table_of_every_group_below_its_title(monkeypatch):
    monkeypatch.syspath_prepend(str(alone.ROOT / "docs" / "_ext"))
    tables = importlib.import_module("benchmark_tables")
    text = (alone.ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    published = [g for g in command.GROUPS if g != "first"]  # newer than the published run
    assert tables.BLOCK.findall(text) == ["summary", *published]
    for group in published:
        assert f"### {page.title(group)}\n\n```{{benchmarks}} {group}\n```" in text
    assert re.fullmatch(r"vioc .*\n\nOthers are faster in \d+ of \d+ comparisons\.", tables.shown("summary"))
    versions, rows, notes = page.read()
    assert list(rows) == published and set(notes) <= set(rows) and versions
    assert all(tables.shown(group).startswith("Problems: `studies/") for group in rows)
    assert "tables; costs of the arm from an earlier run.\n\n| work, ms |" in tables.shown("ocp")


def test_the_error_at_a_time_is_read_off_between_points():
    points = [(1.0, 1e-2, 1e-1), (100.0, 1e-6, 1e-5)]
    assert work_precision._at(points, 1, 1e-4) == pytest.approx(10.0)
    assert math.isnan(work_precision._at(points, 1, 1e-8))


def test_the_fewest_steps_reach_the_goal():
    pendulum = work_precision.Pendulum(2, "virtual")
    name = "composition, order 4"
    count = work_precision._fewest(pendulum, name, 1e-4)

    def error(steps: int) -> float:
        return pendulum.energy_error(pendulum.motion(pendulum.runner(name, 20.0 / steps)()))

    assert error(count) <= 1e-4 < error(count // 2)


def test_energy_is_that_of_the_system():
    pendulum = work_precision.Pendulum(3, "virtual")
    run = pendulum.midpoint.rollout(pendulum.start, steps=50)
    expected = np.abs(run.energy / run.energy[0] - 1).max()
    assert pendulum.energy_error(pendulum.motion(run)) == pytest.approx(expected, rel=1e-9)


def test_ipopt_finds_the_published_cost():
    answer = ocp_peers.ipopt(problems.CART_POLE)()
    assert answer.converged and answer.cost == pytest.approx(0.98133, abs=5e-6)


# -- other programs compute the same accelerations -------------------------------------------------------


def state():
    rng = np.random.default_rng(0)
    q, v = rng.standard_normal((2, 4))
    return q, v, vioc.Continuous(CHAIN).forward(q, v)[0]


@pytest.mark.peer
def test_pinocchio():
    pytest.importorskip("pinocchio")
    q, v, a = state()
    chain = simulators.PinocchioChain(CHAIN)
    np.testing.assert_allclose(chain.acceleration(q, v, np.zeros(4)), a, rtol=1e-9)
    A, B = chain.linearize(q, v, np.zeros(4), 0.01)
    h = 1e-6
    dynamics = vioc.Continuous(CHAIN)

    def step(q, v):
        v = v + 0.01 * dynamics.forward(q, v)[0]
        return np.concatenate([q + 0.01 * v, v])

    for i, e in enumerate(np.eye(8) * h):
        column = (step(q + e[:4], v + e[4:]) - step(q - e[:4], v - e[4:])) / (2 * h)
        np.testing.assert_allclose(A[:, i], column, atol=1e-7)
    assert B.shape == (8, 4)


@pytest.mark.peer
def test_mujoco():
    pytest.importorskip("mujoco")
    q, _, _ = state()
    run = simulators.MujocoRollout(CHAIN, q, 1e-3, "RK4")
    positions, velocities = run(500)
    f = vioc.RungeKutta(CHAIN, 1e-3, "rk4")
    ours = f.rollout(f.initial_state(q), steps=500)
    np.testing.assert_allclose(np.hstack([positions, velocities]), ours.x, atol=1e-3)  # it adds inertia
    driven = simulators.MujocoRollout(CHAIN, q, 1e-3, "Euler", motors=True)
    A, B = driven.linearize(np.zeros(4))
    assert A.shape == (8, 8) and B.shape == (8, 4) and np.abs(A - np.eye(8)).max() < 1


@pytest.mark.peer
def test_dart():
    pytest.importorskip("dartpy")
    q, v, a = state()
    world = simulators.DartWorld(CHAIN, q, 0.01)
    np.testing.assert_allclose(world.acceleration(q, v), a, rtol=1e-4)
    assert world.run(3).shape == (4,)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_drake():
    pytest.importorskip("pydrake")
    q, v, a = state()
    plant = simulators.DrakePlant(CHAIN, q, 1e-3)
    np.testing.assert_allclose(plant.acceleration(q, v), a, rtol=1e-4)
    ours = vioc.MidpointVI(CHAIN, 1e-3)
    expected = ours.rollout(ours.initial_state(q), steps=50).x[-1, :4]
    np.testing.assert_allclose(plant.run(50), expected, atol=5e-2 * np.abs(expected - q).max())


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", contact_peers.ENGINES)
def test_a_box_comes_to_rest_on_the_floor(name):
    engine = contact_peers.ENGINES[name](np.array([[0.1, 0.0, 0.15, 1.0, 0.0, 0.0, 0.0]]))
    if engine is None:
        pytest.skip("not installed")
    np.testing.assert_allclose(engine(200), [[0.1, 0.0, 0.1]], atol=5e-3)  # floors give: DART's by 2 mm
    np.testing.assert_allclose(engine(200), engine(200), atol=1e-12)  # from the start again


@pytest.mark.peer
def test_crocoddyl():
    pytest.importorskip("crocoddyl")
    solve = ocp_peers.crocoddyl(problems.CART_POLE)
    answer = solve()
    assert answer.converged and answer.cost == pytest.approx(0.98, abs=0.01)
