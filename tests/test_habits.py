"""What CONTRIBUTING.md promises of versions, of what goes away, and of packaging."""

import importlib
import re
from pathlib import Path

import pytest

import vioc
from vioc.deprecation import DEPRECATED, deprecated, release

ROOT = Path(__file__).parents[1]
ROOMS = ("benchmarks", "docs", "examples", "recipe", "studies", "tests", "vioc")


def overdue(version: str) -> list[str]:
    return [name for name, entry in DEPRECATED.items() if release(entry.until) <= release(version)]


def test_what_is_deprecated_goes_when_it_was_said_to():
    for path in (ROOT / "vioc").rglob("*.py"):  # those alone: the extras of others may be absent
        if "@deprecated(" in path.read_text():
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert "vioc.control.optimizing.optimize_constrained" in DEPRECATED
    assert overdue(vioc.__version__) == [], "deprecated until this version: take them out"
    assert overdue("9.0") == list(DEPRECATED)


def test_the_changelog_names_what_is_deprecated():
    changes = (ROOT / "CHANGELOG.md").read_text()
    told = " ".join(re.findall(r"^### Deprecated\n(.*?)(?=^##|\Z)", changes, re.MULTILINE | re.DOTALL))
    for entry in DEPRECATED.values():
        assert f"`{entry.name}`" in told and entry.until in told


def test_a_deprecated_function_still_works_and_says_what_to_write(monkeypatch):
    monkeypatch.setattr("vioc.deprecation.DEPRECATED", {})

    @deprecated(since="0.2", until="0.4", instead="total(...)")
    def summed(*values, start=0):
        """The sum."""
        return sum(values, start)

    with pytest.warns(
        DeprecationWarning, match=r"summed is total\(\.\.\.\) now, and goes in vioc 0\.4"
    ) as told:
        assert summed(1, 2, start=3) == 6
    assert told[0].filename == __file__ and summed.__doc__ == "The sum."


@pytest.mark.parametrize("until", ["0.2", "0.3", "0.1"])
def test_nothing_goes_too_soon(until):
    with pytest.raises(ValueError, match="two minor releases"):
        deprecated(since="0.2", until=until, instead="nothing")
    deprecated(since="0.9", until="1.0", instead="nothing")


def test_versions_are_numbers():
    assert release("0.10.1") > release("0.9")
    with pytest.raises(ValueError, match=r"MAJOR\.MINOR"):
        release("next")


def test_what_is_declared_twice_agrees():
    project = (ROOT / "pyproject.toml").read_text()
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text()
    for line in ((ROOT / "CITATION.cff").read_text(), recipe):
        assert re.search(r'^ *version: "?([\d.]+)', line, re.MULTILINE)[1] == vioc.__version__
    declared = re.search(r"^dependencies = \[(.*)\]$", project, re.MULTILINE)[1]
    for name, least in re.findall(r'"(\w+)>=([\d.]+)"', declared):
        assert re.search(rf"^ +- {name}(-base)? >={re.escape(least)}$", recipe, re.MULTILINE), name
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    for tool in ("ruff", "mypy"):
        pinned = re.search(rf'"{tool}==([\d.]+)"', project)[1]
        assert f"rev: v{pinned} " in hooks, tool


@pytest.mark.peer
def test_the_recipe_renders():
    """By the program that conda-forge builds with; no channel is asked."""
    builder = pytest.importorskip("rattler_build")
    found = builder.Stage0Recipe.from_file(ROOT / "recipe" / "recipe.yaml")
    [variant] = found.render(builder.VariantConfig(), builder.RenderConfig())
    assert variant.recipe.package.version == vioc.__version__
    assert len(variant.recipe.requirements.run) == 5


def test_every_dependency_is_listed_with_its_licence():
    project = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r'"([a-z0-9_-]+)(?:[<>=]=?[^"]*)"', project.split("[dependency-groups]")[0])
    listed = re.findall(
        r"^\| [^|]+ \| ([a-z][\w-]+) \| \S", (ROOT / "docs/dependencies.md").read_text(), re.M
    )
    assert {"numpy", "sphinx", "twine"} <= set(named) == set(listed) - {"package"}


def untidy(text: str) -> bool:
    """What pre-commit's end-of-file-fixer and trailing-whitespace would rewrite."""
    ends = text.endswith("\n") and not text.endswith("\n\n")
    return text != "" and (not ends or any(line != line.rstrip() for line in text.split("\n")))


def test_hooks_of_pre_commit_find_nothing_to_rewrite():
    kinds = {".c", ".cff", ".h", ".json", ".md", ".py", ".sexp", ".toml", ".txt", ".yaml", ".yml"}
    files = [*ROOT.glob("*"), *(p for room in ROOMS for p in (ROOT / room).rglob("*"))]
    files = [p for p in files if p.suffix in kinds and not {"data", "generated"} & {*p.parts}]
    assert len(files) > 500
    assert [str(p) for p in files if untidy(p.read_text("utf-8"))] == []
    assert untidy("a\n\n") and untidy("a \nb\n") and untidy("a") and not untidy("a\n\nb\n")
