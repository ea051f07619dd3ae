"""The form that studies share; the studies themselves run by ``make studies``."""

import importlib
import json
import sys
from concurrent.futures import Future
from importlib.metadata import EntryPoint
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import studies
import vioc
from studies import harness, page, runner
from studies.energy import shadow_energy, total_drift
from studies.frames import poses
from studies.harness import Claim, Report, Study, at_least, at_most, near
from studies.pendulum_optimal_control import closed_form
from studies.reference_models import load_reference, system_of
from vioc.cli import main

# inside: the error of a broken distribution is that of the function beneath the command
from vioc.cli import study as command

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


def test_what_needs_a_package_that_is_absent_is_skipped(tmp_path, capsys):
    """No failure, but named where a user looks; a bound that was not measured stays a failure."""
    study = make(long=3.0)
    measure = study._body
    study.claims["peer"] = Claim("an error of a peer")

    @study.body
    def run(report: Report) -> None:
        report.skip("pip install peer", "peer")
        measure(report)

    assert runner.run([study], out=tmp_path) == 0
    out = capsys.readouterr().out
    assert "OK: 2 holds, 1 reported, 1 skipped: pip install peer" in out
    assert out.rstrip().endswith("every claim holds; skipped: pip install peer (small)")
    stored = json.loads((tmp_path / "small.json").read_text())
    assert stored["all_hold"] is True and stored["claims"][-1]["verdict"] == "skipped: pip install peer"
    study.claims["peer"] = Claim("an error of a peer", at_most(1.0))
    assert runner.run([study], out=tmp_path) == 1
    out = capsys.readouterr().out
    assert "FAILED: 1 not measured, 2 holds, 1 reported" in out
    assert out.rstrip().endswith("failed: small; skipped: pip install peer (small)")


def test_a_figure_without_a_claim_is_refused(tmp_path):
    with pytest.raises(KeyError, match="no claim 'other'"):
        make(other=1.0).execute(out=tmp_path)


def test_a_run_that_breaks_leaves_no_old_verdict(tmp_path):
    make(long=3.0).execute(out=tmp_path)
    with pytest.raises(KeyError):
        make(other=1.0).execute(out=tmp_path)
    assert not (tmp_path / "small.json").exists()


def test_the_list_has_every_study_and_claim(capsys):
    assert main(["study", "list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    files = [f for f in FOLDER.glob("*.py") if "\nSTUDY = Study(" in f.read_text()]
    found = {study.name: study for study in harness.studies()}
    assert set(found) == {f.stem for f in files}
    assert [row.split()[0] for row in rows] == list(found)
    assert all(row.endswith(study.title) for row, study in zip(rows, found.values(), strict=True))
    assert main(["study", "list", "--claims"]) == 0
    listed = capsys.readouterr().out
    for study in found.values():
        assert f"{study.name}: {study.title}" in listed
        assert study.claims
        for claim in study.claims.values():
            assert claim.text in listed


def test_papers_are_those_that_claims_cite():
    assert make().papers == ("T",)
    cited = Study("a.py", "as in [S]", a=Claim("a", source="[M] (2)"), b=Claim("b", published="5 [M]"))
    assert cited.papers == ("M", "S")


def test_run_all_reports_failures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "studies", lambda: iter([make(), make(2.0)]))
    assert runner.run([make(), make(2.0)], quick=True, out=tmp_path) == 1
    assert "failed: small" in capsys.readouterr().out
    monkeypatch.setattr(runner, "studies", lambda: iter([make()]))
    assert main(["study", "run", "--all", "--quick", "--out", str(tmp_path)]) == 0
    assert "every claim holds" in capsys.readouterr().out


def test_run_goes_on_after_an_exception(tmp_path, capsys):
    assert runner.run([make(other=1.0), make()], quick=True, out=tmp_path) == 1
    assert "OK: 1 holds" in capsys.readouterr().out


@pytest.mark.study
def test_run_several_at_a_time(tmp_path, capsys):
    chosen = ["pendulum_energy", "double_four_bar"]
    assert main(["study", "run", *chosen, "--quick", "--jobs", "2", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("OK:") == 2 and "every claim holds" in printed
    assert all((tmp_path / f"{name}.json").is_file() for name in chosen)


def test_what_fails_beside_others_runs_again_alone(tmp_path, monkeypatch, capsys):
    class Pool:  # in this process, where a study of this file is known
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def submit(self, function, name, *rest):
            answer = Future()
            answer.set_result(runner.Verdict(False))
            return answer

    monkeypatch.setattr(runner, "ProcessPoolExecutor", Pool)
    assert runner.run([make()], quick=True, out=tmp_path, jobs=2) == 0
    assert "OK: 1 holds" in capsys.readouterr().out
    assert runner.run([make(2.0)], quick=True, out=tmp_path, jobs=2) == 1


def test_run_of_one_exits_with_its_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "studies", lambda: iter([make(2.0)]))
    assert main(["study", "run", "small", "--quick", "--out", str(tmp_path)]) == 1
    assert json.loads((tmp_path / "small.json").read_text())["all_hold"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "name the studies to run, or give --all"),
        (["run", "energy", "--all"], "name the studies to run, or give --all"),
        (["run", "pendulum_enrgy"], "unknown study 'pendulum_enrgy'; did you mean 'pendulum_energy'"),
        (["page", "--results", "nowhere"], "no results of studies in 'nowhere'"),
    ],
)
def test_what_a_user_can_mend(arguments, message, capsys):
    assert main(["study", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_page_has_what_was_run_and_what_was_not(tmp_path):
    make().execute(quick=True, out=tmp_path)
    other = Study("other.py", "another | one", error=Claim("x", at_most(1.0), source="[M] (1)"))
    text = page.page([other, make()], tmp_path)
    assert "| [other](#other) | [M] | not run | 1 | - |" in text
    assert "| [small](#small) | [T] | quick | 3 | 1 holds, 1 reported, 1 not measured in quick form |" in text
    assert "| an error [m] | 0.9 | 0.5 | &lt;= 1 | holds | [T] Fig. 1 |" in text
    assert (
        text.index("## Tree") < text.index("### small") < text.index("## Maximal") < text.index("### other")
    )
    assert "Quick form" in text and "Full form" not in text


def test_a_published_result_is_that_of_its_run(tmp_path):
    """Only what the study's code does not hold is written; the page is the same."""
    study = make(long=3.0)
    study.claims["peer"] = Claim("an error of a peer")
    measure = study._body
    study.body(lambda report: (report.skip("pip install peer", "peer"), measure(report)))
    study.execute(out=tmp_path)
    published = page.publish(study, tmp_path, tmp_path / "results")
    stored = json.loads(published.read_text())
    assert stored["measured"] == {"error": 0.5, "count": 7.0, "long": 3.0}
    assert stored["skipped"] == {"pip install peer": ["peer"]}
    assert set(stored) == {"form", "vioc", "seconds", "measured", "skipped"}
    assert page.page([study], published.parent) == page.page([study], tmp_path)
    published.write_text(json.dumps(stored | {"measured": {"other": 1.0}}))
    with pytest.raises(ValueError, match="small has no claim other"):
        page.read(study, published.parent)


def test_a_result_that_should_not_be_published_is_refused(tmp_path):
    study, results = make(long=3.0), tmp_path / "results"
    with pytest.raises(ValueError, match="`vioc study run small` makes it"):
        page.publish(study, tmp_path, results)
    make().execute(quick=True, out=tmp_path)
    page.publish(study, tmp_path, results)
    study.execute(out=tmp_path)
    page.publish(study, tmp_path, results)
    make().execute(quick=True, out=tmp_path)
    with pytest.raises(ValueError, match="does not replace a published full form"):
        page.publish(study, tmp_path, results)
    study.claims["new"] = Claim("a new claim")
    with pytest.raises(ValueError, match="claims of small have changed"):
        page.publish(study, tmp_path, results)


def test_published_results_are_of_studies_and_claims_that_exist():
    known = {study.name: study for study in harness.studies()}
    files = sorted(page.RESULTS.glob("*.json"))
    assert len(files) > 70
    for path in files:
        stored = page.read(known[path.stem])
        assert stored["form"] in ("quick", "full") and stored["seconds"] > 0


def test_the_command_publishes_into_a_checkout(tmp_path, monkeypatch, capsys):
    make().execute(quick=True, out=tmp_path)
    monkeypatch.setattr(runner, "studies", lambda: iter([make()]))
    monkeypatch.setattr(page, "RESULTS", tmp_path / "studies" / "results")
    page.RESULTS.parent.mkdir()
    command_line = ["study", "publish", "small", "--results", str(tmp_path)]
    assert main(command_line) == 2
    assert "in a checkout of vioc" in capsys.readouterr().err
    (page.RESULTS.parent / "pyproject.toml").touch()
    assert main(command_line) == 0
    assert (page.RESULTS / "small.json").exists()


def test_the_studies_are_those_that_a_distribution_registers(tmp_path, monkeypatch, capsys):
    def runner(code: str) -> None:
        monkeypatch.delitem(sys.modules, "mine.runner", raising=False)
        (tmp_path / "mine" / "runner.py").write_text(code)
        importlib.invalidate_caches()

    (tmp_path / "mine").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("studies", "mine", "vioc.studies")
    monkeypatch.setattr("vioc.cli.study.entry_points", lambda *, group: [point] * (group == point.group))
    assert main(["study", "list"]) == 2
    assert "are not installed: in a checkout of vioc, `pip install ./studies`" in capsys.readouterr().err
    runner("import no_such_package")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        command.studies("runner")
    runner("choose = len\nlisting = '{} studies of another package'.format")
    assert main(["study", "list"]) == 0
    assert capsys.readouterr().out == "0 studies of another package\n"


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
    built = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 2), 0.02)
    for dt in (0.02, 0.01):
        f = built.with_dt(dt)
        run = f.rollout(f.initial_state({"link-0": 1.0}), steps=round(2 / dt))
        bands.append([np.ptp(run.energy), np.ptp(shadow_energy(run)[1])])
    orders = np.log2(np.array(bands[0]) / bands[1])
    assert orders == pytest.approx([2, 4], abs=0.1)


def test_total_drift_of_a_line():
    t = np.linspace(5.0, 25.0, 101)
    assert total_drift(t, 3.0 + 0.1 * t) == pytest.approx(2.0, rel=1e-12)


def test_a_frame_is_drawn_from_the_description(tmp_path):
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01)
    run = f.rollout(f.initial_state({"theta": 2.5}), steps=100)
    axes = poses(run, (0.0, 0.5, 1.0))
    drawn = [line for line in axes.lines if line.get_marker() == "o"]
    tips = np.array([line.get_xydata()[0] for line in drawn])
    x, theta = run["x"][[0, 50, 100]], run["theta"][[0, 50, 100]]
    length = 0.5
    assert np.allclose(np.sort(tips[:, 0]), np.sort(x + length * np.sin(theta)))
    assert sorted(line.get_alpha() for line in drawn)[-1] == 1.0  # the last in full colour
    assert axes.get_xlabel().startswith("x") and "1 s" in axes.get_title()
    study = make()
    report = Report(study, True, tmp_path)
    assert report.frame(run, 0.5, title="cart and pole") == tmp_path / "small_frame.png"
    assert report.pictures == ["small_frame.png"] and (tmp_path / "small_frame.png").exists()


def test_a_path_is_traced_within_the_picture():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01)
    run = f.rollout(f.initial_state({"theta": 2.5}), steps=100)
    name = next(node.frame.name for node in f.system.nodes if node.frame.mass and node.frame.name != "cart")
    axes = poses(run, 0.0, trace=[name])
    path = axes.lines[-1].get_xydata()
    assert np.allclose(path[[0, -1], 0], run[f"{name}:x"][[0, -1]])
    assert axes.get_xlim()[0] < path[:, 0].min() and path[:, 0].max() < axes.get_xlim()[1]
    plt.close(axes.figure)
