"""Versions and packaging are as CONTRIBUTING.md promises."""

import re
from pathlib import Path

import pytest
from release import COPIES, SOURCE, version

import vioc

ROOT = Path(__file__).parents[1]
# Data as they were got, and what is made by installing and for the site
MADE = {"data", "generated", "build", "vioc_studies.egg-info"}
ROOMS = ("docs", "examples", "recipe", "studies", "tests", "vioc")


def test_copies_of_the_version_agree():
    assert {version(*place) for place in (SOURCE, *COPIES)} == {vioc.__version__}
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(vioc.__version__)}\b", changes, re.MULTILINE)


def test_the_licence_is_the_same_wherever_it_is_stated():
    stated = {
        re.search(r'^ *license(?: =|:) "?([\w.-]+)"?$', (ROOT / file).read_text(), re.MULTILINE)[1]
        for file in ("pyproject.toml", "studies/pyproject.toml", "CITATION.cff", "recipe/recipe.yaml")
    }
    assert stated == {"BSD-3-Clause"}
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause License")


def test_the_citation_has_what_its_format_requires():
    citation = (ROOT / "CITATION.cff").read_text()
    keys = set(re.findall(r"^([a-z-]+):", citation, re.MULTILINE))
    assert {"cff-version", "message", "title", "authors", "type", "license", "version"} <= keys


def test_what_is_declared_twice_agrees():
    project = (ROOT / "pyproject.toml").read_text()
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text()
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
    project = (ROOT / "pyproject.toml").read_text().split("[dependency-groups]")[0]
    declared = project + (ROOT / "studies" / "pyproject.toml").read_text()
    named = set(re.findall(r'"([a-z0-9_-]+)(?:[<>=]=?[^"]*)"', declared)) - {"vioc"}
    listed = re.findall(
        r"^\| [^|]+ \| ([a-z][\w-]+) \| \S", (ROOT / "docs/dependencies.md").read_text(), re.M
    )
    assert {"numpy", "sphinx", "twine"} <= named == set(listed) - {"package"}


def untidy(text: str) -> bool:
    """What pre-commit's end-of-file-fixer and trailing-whitespace would rewrite."""
    ends = text.endswith("\n") and not text.endswith("\n\n")
    return text != "" and (not ends or any(line != line.rstrip() for line in text.split("\n")))


def test_hooks_of_pre_commit_find_nothing_to_rewrite():
    kinds = {".c", ".cff", ".h", ".json", ".md", ".py", ".sexp", ".toml", ".txt", ".yaml", ".yml"}
    files = [*ROOT.glob("*"), *(p for room in ROOMS for p in (ROOT / room).rglob("*"))]
    files = [p for p in files if p.suffix in kinds and not MADE & {*p.parts}]
    assert len(files) > 500
    assert [str(p) for p in files if untidy(p.read_text("utf-8"))] == []
    assert untidy("a\n\n") and untidy("a \nb\n") and untidy("a") and not untidy("a\n\nb\n")
