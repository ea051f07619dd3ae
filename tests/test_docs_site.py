"""The parts of the documentation site that do not need Sphinx: pages of studies, notebooks, examples."""

import ast
import importlib
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from support.snippets import BLOCK

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
STUDY = "energy_in_short"


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    return importlib.import_module("study_gallery")


@pytest.fixture
def study():
    """A study of three claims: one that holds, one that fails, one that is only reported."""
    from studies.harness import Claim, Study, at_most, near

    made = Study(
        f"{STUDY}.py",
        "a band of energy | and more",
        band=Claim("band [of] the energy", at_most(1e-3), unit="J", published="bounded", source="[T] Fig. 1"),
        order=Claim("order", near(2, 0.1), published=2.0),
        steps=Claim("steps"),
    )

    @made.body
    def run(report):
        from matplotlib.figure import Figure

        report.measure(band=1.234e-4, order=3.0, steps=100)
        report.save(Figure(figsize=(2, 1)))

    return made


def test_a_page_has_the_papers_figure_beside_ours(gallery, study, tmp_path, capsys):
    study.execute(quick=True, out=tmp_path)
    result = gallery.results(tmp_path, STUDY)
    table = gallery.claims(study, result).splitlines()
    assert (
        table[2] == r"| band \[of\] the energy \[J\] (\[T\] Fig. 1) | bounded | 0.0001234 | ≤ 0.001 | holds |"
    )
    assert table[3] == "| order | 2 | 3 | = 2 ± 0.1 | fails |"
    assert table[4] == "| steps | – | 100 | – | reported |"
    page = gallery.page(study, gallery, result)
    assert page.startswith("# A band of energy | and more\n")
    assert f"({STUDY}.png)" in page and "The reduced form" in page and f"{STUDY}.ipynb" in page
    assert gallery.verdict(study, result) == "1 holds, 1 fails, 1 reported (quick form)"


def test_a_study_that_was_not_run_says_so(gallery, study, tmp_path):
    result = gallery.results(tmp_path, STUDY)
    assert result == {} and gallery.verdict(study, result) == "not run here"
    assert gallery.claims(study, result).count("not run") == 3
    (tmp_path / f"{STUDY}.json").write_text("{")
    assert gallery.results(tmp_path, STUDY) == {}


def test_every_study_has_a_page_and_a_notebook(gallery, tmp_path):
    names = gallery.write(tmp_path / "studies", tmp_path / "nothing")
    assert "pendulum_energy" in names and len(names) > 20
    index = (tmp_path / "studies" / "index.md").read_text()
    for name in names:
        assert f"]({name}.md): not run here" in index and f"<{name}>" in index
        assert (tmp_path / "studies" / f"{name}.md").exists()
        notebook = json.loads((tmp_path / "studies" / f"{name}.ipynb").read_text())
        code = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
        assert code[0].startswith(f"from studies.{name} import STUDY")
        for source in code:
            ast.parse(source)


def test_a_notebook_runs(gallery, tmp_path, monkeypatch, capsys):
    from studies import cable_euler as module

    monkeypatch.chdir(tmp_path)
    notebook = gallery.notebook(module.STUDY, module)
    namespace = {}
    exec(next("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"), namespace)
    assert (
        namespace["report"].pictures and (namespace["report"].out / namespace["report"].pictures[0]).exists()
    )


def test_notebooks_of_the_tutorials_hold_what_was_run(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    notebooks = importlib.import_module("tutorial_notebooks")
    paths = notebooks.write(ROOT / "docs" / "tutorials", tmp_path)
    assert [path.stem for path in paths] == ["feedback", "trajectories", "controllability"]
    for path in paths:
        page = (ROOT / "docs" / "tutorials" / f"{path.stem}.md").read_text()
        assert f"notebooks/{path.stem}.ipynb" in page
        cells = json.loads(path.read_text())["cells"]
        run = [b.group(2).rstrip() for b in BLOCK.finditer(page) if "no-run" not in b.group(1).split()]
        assert [c["source"] for c in cells if c["cell_type"] == "code"] == run and len(run) > 4
        told = "".join(c["source"] for c in cells if c["cell_type"] == "markdown")
        assert "## " in told and "```text" not in told and "](" not in told and "{download}" not in told


@pytest.mark.parametrize("sought", ["identification", "inverse kinematics", "gravity compensation"])
def test_what_is_sought_is_a_title(sought):
    """The site's search puts titles first; the contents beside every page have the words too."""
    docs = ROOT / "docs"
    titles = [path.read_text().partition("\n")[0].lower() for path in docs.glob("*.md")]
    assert sum(title.startswith("# ") and sought in title for title in titles) == 1
    assert re.search(rf"^.*{sought}.* <", (docs / "index.md").read_text().lower(), re.MULTILINE)
    assert re.search(rf"\[[^\]]*{sought}[^\]]*\]\(", (docs / "README.md").read_text().lower())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["feedback", "trajectories", "controllability"])
def test_notebooks_of_the_tutorials_run(monkeypatch, tmp_path, name):
    """Cell by cell, with the display of each cell's last expression, as a notebook does."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    monkeypatch.chdir(tmp_path)
    notebooks = importlib.import_module("tutorial_notebooks")
    text = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text()
    cells = notebooks.notebook(text)["cells"]
    namespace = {"__name__": "__main__"}
    for cell in (c for c in cells if c["cell_type"] == "code"):
        tree = ast.parse(cell["source"])
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell["id"], "exec"), namespace)
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), cell["id"], "eval"), namespace)
            rich = getattr(shown, "_repr_html_", None)
            assert (rich() if rich else repr(shown)) is not None
    plt.close("all")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_pages(example):
    """They run when the site is made; here that they have a title, and assert what they say."""
    tree = ast.parse(example.read_text())
    title, line, *_ = ast.get_docstring(tree).splitlines()
    assert re.fullmatch("=+", line) and len(line) == len(title)
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    assert example.name.startswith("plot_")


def test_tutorials_tell_how_long_they_take():
    """At their top; within a factor of two of 150 words a minute and 6 lines of code."""
    docs = ROOT / "docs"
    for page in (docs / "start.md", docs / "tutorial.md", *sorted((docs / "tutorials").glob("*.md"))):
        text = page.read_text()
        told = re.match(r"# [^\n]+\n\n\*About (\d+) minutes\.\*\n", text)
        assert told, f"{page.name}: expected *About N minutes.* under its title"
        code = sum(
            b.count("\n") for b in re.findall(r"^```(?:python|sh)[^\n]*\n(.*?)^```$", text, re.M | re.S)
        )
        words = len(re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).split())
        assert 0.5 < int(told[1]) / (words / 150 + code / 6) < 2, page.name


def test_the_search_is_tried_for_every_page_and_pictures_are_looked_for(tmp_path):
    from whole_site import not_found, read_index, without_picture

    index = {
        "docnames": ["a", "b"],
        "titles": ["The <em>Steps</em>", "Ropes and 12 masts"],
        "terms": {"rope": [0, 1]},
        "titleterms": {"step": 0, "mast": [1]},
    }
    (tmp_path / "searchindex.js").write_text(f"Search.setIndex({json.dumps(index)})")
    found = read_index(tmp_path)
    stem, stopwords = (lambda word: word.removesuffix("s")), frozenset({"the", "and"})
    assert not_found(found, stem, stopwords) == []
    del found["titleterms"]["mast"]
    assert not_found(found, stem, stopwords) == ["b: masts"]
    for folder in ("studies", "gallery"):
        (tmp_path / "generated" / folder).mkdir(parents=True)
    (tmp_path / "generated/studies/heap.html").write_text('<img alt="" src="../../_images/heap.png" />')
    (tmp_path / "generated/gallery/plot_1.html").write_text('<img src="../../_static/no_image.png" />')
    assert without_picture(tmp_path, ["plot_1"]) == ["generated/gallery/plot_1.html"]


def test_reference_pages_say_what_to_see_besides():
    for page in (ROOT / "docs" / "api").glob("*.md"):
        last = page.read_text().rstrip().splitlines()[-1]
        if page.stem != "index":
            assert last.startswith("**See also**: ") and last.count("](../") >= 2, page.name
