"""The script that tries the tests, tried: what it sows differs, and it knows who notices."""

import ast

import mutants
import pytest
import sowing

SOURCE = '''
def area(width, height, flags):
    """2 * 3"""
    total = width * height + 0.5
    if width < 0 and not flags:
        raise ValueError(f"got {width - 1}")
    total += solve(width, height)[1] - flags.T @ flags
    return -total
'''


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A checkout with one module and its tests."""
    for folder in ("vioc/dynamics", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    for package in ("vioc", "vioc/dynamics"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    (tmp_path / "vioc/dynamics/shapes.py").write_text("def area(a, b):\n    return a * b + 0 * a\n")
    (tmp_path / "tests/test_shapes.py").write_text(
        "from vioc.dynamics.shapes import area\n\n\ndef test_area():\n    assert area(2.0, 3.0) == 6.0\n"
    )
    for module in (mutants, sowing):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return tmp_path


def test_each_mutant_is_another_program():
    sower = sowing.Sower(SOURCE)
    found = {(what, SOURCE[start:end], new) for what, start, end, new, _, _ in sower.found}
    assert {
        ("operator", "width * height", "(width) / (height)"),
        ("term", "width * height + 0.5", "(width * height)"),
        ("constant", "0.5", "1.0"),
        ("comparison", "width < 0", "(width) > (0)"),
        ("sign", "not flags", "(flags)"),
        ("arguments", "width, height", "height, width"),
        ("constant", "1", "2"),
        ("transpose", "flags.T", "flags"),
        ("statement", "total += solve(width, height)[1] - flags.T @ flags", "pass"),
        ("sign", "-total", "(total)"),
    } <= found
    assert all("ValueError" not in old and '"' not in old for _, old, _ in found)
    whole = ast.dump(ast.parse(SOURCE))
    for _, start, end, new, _, _ in sower.found:
        assert ast.dump(ast.parse(SOURCE[:start] + new + SOURCE[end:])) != whole


def test_c_is_sown_on_its_tokens():
    text = (
        "#define N 2\n/* a + b */\nstatic double f(const double *a, int n)\n{\n    return *a - 0.5 * n;\n}\n"
    )
    found = {(what, text[start:end], new) for what, start, end, new, *_ in sowing.sow_c(text)}
    assert found == {("sign", "-", "+"), ("number", "0.5", "1.0"), ("times", "*", "/")}


def test_names_outlive_edits_elsewhere(tree):
    before, _ = sowing.sow("vioc/dynamics/shapes.py")
    path = tree / "vioc/dynamics/shapes.py"
    path.write_text("import math\n\n\ndef other():\n    return math.pi\n\n\n" + path.read_text())
    after, _ = sowing.sow("vioc/dynamics/shapes.py")
    assert {m.name for m in before} <= {m.name for m in after}
    assert len({m.name for m in after}) == len(after)


@pytest.mark.parametrize("folder", ["vioc/arms", "vioc/arms/c"])
def test_c_is_tried_by_tests_of_its_folder_or_of_the_one_above(tmp_path, monkeypatch, folder):
    """Templates in a folder of their own run where the code beside that folder does."""
    for name, text in (("test_arms.py", "needs_compiler"), ("test_legs.py", "needs_compiler")):
        (tmp_path / "tests").mkdir(exist_ok=True)
        (tmp_path / "tests" / name).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    ran = {
        "vioc/arms/write.py": {1: {"tests/test_arms.py::test_written|run"}},
        "vioc/legs/walk.py": {1: {"tests/test_legs.py::test_walks|run"}},
    }

    class Known(mutants.Tests):
        def __init__(self):
            self.sources = dict.fromkeys(ran, "")
            self.seconds = {"tests/test_arms.py::test_written": 0.1, "tests/test_legs.py::test_walks": 0.1}

        def contexts(self, path):
            return ran[path]

    mutant = sowing.Mutant("a sign", f"{folder}/step.c", 1, 0, 1, "-")
    assert Known().of(mutant) == ["tests/test_arms.py::test_written"]


@pytest.mark.slow
def test_verdicts(tree, tmp_path):
    """Killed by the test that knows, alive where none does, no end where it hangs."""

    class Known(mutants.Tests):
        def __init__(self):
            self.seconds = {"tests/test_shapes.py::test_area": 0.1}

        def of(self, mutant):
            return list(self.seconds)

    field, (sown, _) = mutants.Field(tmp_path / "field"), sowing.sow("vioc/dynamics/shapes.py")
    by_change = {m.name.split(":")[2].strip() + m.new: m for m in sown}
    killed = field.kill(by_change["operator(a * b) - (0 * a)"], Known(), 10)
    assert killed["verdict"] == "survived"  # it adds nothing
    killed = field.kill(by_change["operator(a) / (b)"], Known(), 10)
    assert killed["verdict"] == "killed" and killed["by"] == "tests/test_shapes.py::test_area"
    assert (field.tree / "vioc/dynamics/shapes.py").read_text() == (
        tree / "vioc/dynamics/shapes.py"
    ).read_text()
    (field.tree / "tests/test_shapes.py").write_text("def test_hangs():\n    while True:\n        pass\n")
    assert field.run(["tests/test_shapes.py"], 2.0) == "no end within 2 s"
