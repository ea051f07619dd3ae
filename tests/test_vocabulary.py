"""One vocabulary: the signatures of all public callables keep to the table of docs/conventions.md."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import vioc

PAGE = Path(__file__).parent.parent / "docs" / "conventions.md"
BANNED = {  # words that say what another one says
    **dict.fromkeys(("lower", "upper", "state_lower", "state_upper", "limits"), "bounds"),
    **dict.fromkeys(("iterations", "max_iter", "maxiter"), "max_iterations"),
    **dict.fromkeys(("tol", "eps"), "tolerance"),
    "rates": "rate",
    "on_manifold": "manifold",
}
SIDE = "a description of one quantity, whose sides these are"
COUNT = "a result, which tells how many there were"
EXEMPT = {  # with the reason
    ("JointLimits", "lower"): SIDE,
    ("JointLimits", "upper"): SIDE,
    ("PathConstraint", "lower"): SIDE,
    ("PathConstraint", "upper"): SIDE,
    ("Robot", "limits"): "a description: what a file says of its joints",
    ("Violation", "lower"): "a report of one quantity",
    ("Violation", "upper"): "a report of one quantity",
    ("LyapunovLevel", "upper"): "a result: what the level is at most",
    ("accessibility", "rates"): "dx/dt as a function, no limit of it",
    ("Problem.result", "iterations"): "makes a result",
    ("Equilibrium", "iterations"): COUNT,
    ("StaticEquilibrium", "iterations"): COUNT,
    ("Result", "iterations"): COUNT,
    ("RobustRegulator", "iterations"): COUNT,
    ("SteeredCovariance", "iterations"): COUNT,
    ("Target", "iterations"): COUNT,
    ("Verdict", "iterations"): COUNT,
    ("Window", "iterations"): COUNT,
}
MOST = 300  # iterations of a search
OTHER = {  # docs/conventions.md says why
    ("vioc.control.dmoc", "Problem.solve"): 1000,
    ("vioc.control", "NonlinearMPC"): 50,
    ("vioc.control.feedback", "MovingHorizon"): None,
    ("vioc.target", "write_target"): None,
}
UNLISTED = {  # callables that the table need not name: what it names hands these on, or another meaning
    ("Regulator", "manifold"): "of the design that made it",
    ("SteadyRegulator", "manifold"): "of the design that made it",
    ("Structure", "manifold"): "of the analysis that made it",
    ("Continuous.saddle_solution", "rate"): "an expression, the rate of constraints",
}
WHOLE = ("bounds", "rate", "soft", "horizon", "max_iterations", "manifold")  # whose rows name all
MAP = re.compile(r"(?:\w+\.)*(?:\w+Map|\w*VI|RungeKutta|Composition|Substeps)(?: \| None)?")


def public():
    """Public callables and methods of public classes by (module, name), of methods CLASS.NAME."""
    found, seen = {}, set()
    packages = sorted(m.name for m in pkgutil.walk_packages(vioc.__path__, "vioc.") if m.ispkg)
    for module in ("vioc", *packages):
        home = importlib.import_module(module)
        for name in getattr(home, "__all__", ()):
            thing = getattr(home, name)
            if id(thing) in seen or not callable(thing):
                continue
            seen.add(id(thing))
            found[module, name] = thing
            if inspect.isclass(thing):
                methods = inspect.getmembers(thing, lambda m: inspect.isfunction(m) or inspect.ismethod(m))
                own = {n: m for n, m in methods if n[0] != "_" and m.__module__.startswith("vioc")}
                found |= {(module, f"{name}.{n}"): m for n, m in own.items()}
    return found


def parameters(thing):
    try:
        found = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):  # of what is not written in Python
        return {}
    return {p.name: p for p in found if p.name != "self"}


def annotated(p):
    a = p.annotation
    return a if isinstance(a, str) else getattr(a, "__forward_arg__", getattr(a, "__name__", ""))


THINGS = public()
TAKEN = {key: parameters(thing) for key, thing in THINGS.items()}
ROWS = {
    word: (default, set(re.findall(r"`([\w.]+)`", where)))
    for word, _, _, default, where in re.findall(
        r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE
    )
}


def misspelt(taken):
    return [(name, w) for (_, name), own in taken.items() for w in own if w in BANNED]


def unnamed(things, taken):
    """Whose first map has another name than `f`, but for records, which keep it by the field's name."""
    found = []
    for (module, name), own in taken.items():
        first = next((p for p in own.values() if MAP.fullmatch(annotated(p))), None)
        record = dataclasses.is_dataclass(things[module, name])
        if first is not None and first.name not in ("f", *(("map", "plant") if record else ())):
            found.append((module, name, first.name))
    return found


def test_what_is_looked_at_is_all_that_is_public():
    assert len(THINGS) > 1000
    for key in (("vioc", "Kinematics.inverse"), ("vioc.control", "optimize"), ("vioc.cables", "cable")):
        assert TAKEN[key]


def test_no_word_says_what_another_one_says():
    wrong = [(name, w, f"say {BANNED[w]}") for name, w in misspelt(TAKEN) if (name, w) not in EXEMPT]
    assert not wrong
    assert not set(EXEMPT) - set(misspelt(TAKEN))  # nothing is exempt that is gone


def test_the_first_map_is_called_f():
    assert not unnamed(THINGS, TAKEN)


def test_searches_have_one_limit_of_iterations():
    found = {key: own["max_iterations"].default for key, own in TAKEN.items() if "max_iterations" in own}
    assert {key: most for key, most in found.items() if most != MOST} == OTHER
    assert str(MOST) in ROWS["max_iterations"][0]


def test_bounds_come_by_name_and_are_none_by_default():
    for key, own in TAKEN.items():
        if "bounds" in own:
            assert own["bounds"].default is None, key
            assert annotated(own["bounds"]).startswith(("Mapping[str, Any]", "Any")), key


@pytest.mark.parametrize("word", ROWS)
def test_the_table_says_who_takes_a_word(word):
    taking = {name for (_, name), own in TAKEN.items() if word in own}
    _, named = ROWS[word]
    strange = {n for n in named if not any(n in (t, t.rpartition(".")[2]) for t in taking)}
    assert not strange
    if word in WHOLE:
        missing = {t for t in taking if t not in named and (t, word) not in UNLISTED}
        assert not missing


def test_the_words_are_those_of_the_table():
    assert set(ROWS) >= {*WHOLE, "f", "steps", "tolerance", "parameters"} and set(BANNED.values()) <= set(
        ROWS
    )


def test_other_spellings_are_seen():
    def search(plant, lower, iterations=30): ...

    def wrap(inner: "OneStepMap", n: int): ...  # noqa: F821

    things = {("here", "search"): search, ("here", "wrap"): wrap}
    taken = {key: parameters(thing) for key, thing in things.items()}
    assert misspelt(taken) == [("search", "lower"), ("search", "iterations")]
    assert unnamed(things, taken) == [("here", "wrap", "inner")]
