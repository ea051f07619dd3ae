"""The form that studies share; the studies themselves run by ``make studies``."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import studies
import vioc
from studies import __main__ as command
from studies.energy import shadow_energy, total_drift
from studies.harness import Claim, Report, Study, at_least, at_most, near
from studies.pendulum_optimal_control import closed_form
from studies.reference_models import load_reference, system_of

FOLDER = Path(studies.__path__[0])


def make(error: float = 0.5, **more: float) -> Study:
    """A small study; `error` is held against 1."""
    study = Study(
        "somewhere/small.py",
        "a small study",
        error=Claim("an error", at_most(1.0), unit="m", published=0.9, source="[T] Fig. 1"),
        count=Claim("a count", published="many"),
        long=Claim("something long", at_least(3.0), full_only=True),
    )

    @study.body
    def run(report: Report) -> None:
        figure, axes = plt.subplots()
        axes.plot([0, 1])
        report.save(figure)
        report.measure(error=error, count=7, **more)

    return study


@pytest.mark.parametrize(
    ("bound", "good", "bad"),
    [(at_most(1.0), 1.0, 1.1), (at_least(2.0), 2.0, 1.9), (near(2.0, 0.2), 2.1, 2.3)],
)
def test_bounds(bound, good, bad):
    assert bound.holds(good)
    assert not bound.holds(bad)
    assert not bound.holds(float("nan"))
    assert f"{bound.value:g}" in str(bound)


def test_a_study_that_holds(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        make(long=3.0).main(["--out", str(tmp_path)])
    assert end.value.code == 0
    stored = json.loads((tmp_path / "small.json").read_text())
    assert stored["all_hold"] is True
    assert stored["form"] == "full"
    assert stored["pictures"] == ["small.png"]
    assert stored["claims"][0] == {
        "key": "error",
        "claim": "an error",
        "unit": "m",
        "published": 0.9,
        "source": "[T] Fig. 1",
        "measured": 0.5,
        "bound": {"kind": "at most", "value": 1.0, "tolerance": 0.0},
        "verdict": "holds",
    }
    assert [c["verdict"] for c in stored["claims"]] == ["holds", "reported", "holds"]
    assert (tmp_path / "small.png").stat().st_size > 0
    assert not plt.get_fignums()
    table = capsys.readouterr().out
    rows = [line for line in table.splitlines() if line.startswith(("claim", "an error", "a count"))]
    assert len({line.index(word) for line, word in zip(rows, ("measured", "0.5", "7"), strict=True)}) == 1
    assert "OK: 2 holds, 1 reported" in table


@pytest.mark.parametrize("error", [2.0, float("nan"), float("inf")])
def test_a_false_verdict_exits_1(tmp_path, capsys, error):
    with pytest.raises(SystemExit) as end:
        make(error, long=3.0).main(["--out", str(tmp_path)])
    assert end.value.code == 1

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    stored = json.loads((tmp_path / "small.json").read_text(), parse_constant=refuse)
    assert stored["all_hold"] is False
    assert stored["claims"][0]["verdict"] == "fails"
    assert "FAILED: 1 fails" in capsys.readouterr().out


def test_quick_form_says_what_it_leaves_out(tmp_path):
    report = make().execute(quick=True, out=tmp_path)
    assert report.all_hold
    assert report.verdict("long") == "not measured in quick form"
    assert json.loads((tmp_path / "small.json").read_text())["claims"][2]["measured"] is None


def test_a_claim_that_is_forgotten_fails(tmp_path):
    report = make().execute(out=tmp_path)
    assert report.verdict("long") == "not measured"
    assert not report.all_hold


def test_a_figure_without_a_claim_is_refused(tmp_path):
    with pytest.raises(KeyError, match="no claim 'other'"):
        make(other=1.0).execute(out=tmp_path)


def test_a_run_that_breaks_leaves_no_old_verdict(tmp_path):
    make(long=3.0).execute(out=tmp_path)
    with pytest.raises(KeyError):
        make(other=1.0).execute(out=tmp_path)
    assert not (tmp_path / "small.json").exists()


def test_the_list_has_every_study_and_claim(capsys):
    assert command.main([]) == 0
    listed = capsys.readouterr().out
    files = [f for f in FOLDER.glob("*.py") if "\nSTUDY = Study(" in f.read_text()]
    found = {study.name: study for study in command.studies()}
    assert set(found) == {f.stem for f in files}
    for study in found.values():
        assert f"{study.name}: {study.title}" in listed
        assert study.claims
        for claim in study.claims.values():
            assert claim.text in listed


def test_run_all_reports_failures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "studies", lambda: iter([make(), make(2.0)]))
    assert command.main(["--run", "--quick", "--out", str(tmp_path)]) == 1
    assert "failed: small" in capsys.readouterr().out
    monkeypatch.setattr(command, "studies", lambda: iter([make()]))
    assert command.main(["--run", "--quick", "--out", str(tmp_path)]) == 0


def test_run_all_goes_on_after_an_exception(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "studies", lambda: iter([make(other=1.0), make()]))
    assert command.main(["--run", "--quick", "--out", str(tmp_path)]) == 1
    assert "OK: 1 holds" in capsys.readouterr().out


# -- what studies are made of ---------------------------------------------------------------------


def test_reference_system_matches_its_data():
    system, data = load_reference("closed_chain_undamped")
    assert system.variables == tuple(data["names"])
    h = vioc.MidpointVI(system, 0.01).lagrangian.constraints(data["q"][0])
    assert np.abs(h).max() < 1e-10


@pytest.mark.parametrize(
    "change",
    [
        {"constraints": [{"type": "Weld"}]},
        {"frames": [{"id": 0}, {"id": 1, "name": "a", "parent": 0, "transform": "SE3", "config": "a"}]},
    ],
)
def test_reference_reader_names_what_it_does_not_know(change):
    frames = [{"id": 0}, {"id": 1, "name": "a", "parent": 0, "transform": "TX", "config": "a"}]
    description = {"frames": frames, "potentials": [], "constraints": [], "forces": []}
    with pytest.raises(ValueError, match=r"Weld|SE3"):
        system_of({**description, **change})


def test_closed_form_derivatives():
    at, h = np.array([0.2, 0.5, 0.8]), 1e-6
    _, gradient, hessian = closed_form(*at)
    for i, e in enumerate(h * np.eye(3)):
        ahead, behind = closed_form(*(at + e)), closed_form(*(at - e))
        assert np.abs((ahead[0] - behind[0]) / (2 * h) - gradient[:, i]).max() < 1e-8
        assert np.abs((ahead[1] - behind[1]) / (2 * h) - hessian[:, :, i]).max() < 1e-8


def test_shadow_energy_is_fourth_order():
    bands = []
    for dt in (0.02, 0.01):
        f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 2), dt)
        run = f.rollout(f.initial_state({"link-0": 1.0}), steps=round(2 / dt))
        bands.append([np.ptp(run.energy), np.ptp(shadow_energy(run)[1])])
    orders = np.log2(np.array(bands[0]) / bands[1])
    assert orders == pytest.approx([2, 4], abs=0.1)


def test_total_drift_of_a_line():
    t = np.linspace(5.0, 25.0, 101)
    assert total_drift(t, 3.0 + 0.1 * t) == pytest.approx(2.0, rel=1e-12)
