"""The model text: what it means, that it survives a round trip, and how large it may be."""

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import systems

from vioc import (
    DistanceConstraint,
    Frame,
    Gravity,
    JointDamping,
    JointForce,
    K,
    LinearSpring,
    Mass,
    P,
    PointConstraint,
    System,
    TorsionalSpring,
    read,
    read_text,
    rx,
    ry,
    rz,
    se3,
    tx,
    ty,
    tz,
    write,
    write_text,
)
from vioc.components import Force, component_form

# inside: types that a test registers are taken out again, and every registered one has a text
from vioc.dynamics.description import component
from vioc.dynamics.description.component import component_types
from vioc.errors import ModelError, ReadError

DOCS = Path(__file__).parent.parent / "docs" / "model_text.md"


@pytest.fixture
def keywords():
    """Keywords that a test registers are forgotten afterwards."""
    before = dict(component._COMPONENTS)
    yield
    component._COMPONENTS.clear()
    component._COMPONENTS.update(before)


def same(text, *parts, name="system"):
    """`text` inside SYSTEM reads as the system of `parts`."""
    system = read_text(f"(SYSTEM {text})")
    assert system == System(*parts, name=name)
    assert system.name == name


# -- what the text means --------------------------------------------------------------------------


def test_system_and_comments():
    expected = System(tx(1.0, name="a"))
    assert read_text('(SYSTEM (TX 1 (NAME "a")))') == expected
    assert read_text('; head ( "\n(mechanical-system;x)\n (Tx 1.0 (Name "a")) ) ; end') == expected


def test_system_name():
    same('(NAME "a (b) \\"c\\" \\\\ ; d\n e") (TX 1)', tx(1.0), name='a (b) "c" \\ ; d\n e')
    same('(TX 1) (NAME "")', tx(1.0), name="")


def test_parameters_of_transforms():
    same('(TX 1) (TY "y") (tz (d "z"))', tx(1.0), ty("y"), tz("z"))
    same('(RX (K "a")) (RY (P "b" -2)) (RZ .5e1)', rx(K("a")), ry(P("b", -2.0)), rz(5.0))


def test_several_pairs_make_a_chain():
    same(
        '(TX 0.1 TY 0.2 TZ "z" (MASS 1) (NAME "a") (RX 1))',
        tx(0.1)[ty(0.2)[tz("z", name="a", mass=1.0)[rx(1.0)]]],
    )
    same('(RX "a" SE3 ((1 2 3)) TX 1)', rx("a")[se3((1.0, 2.0, 3.0))[tx(1.0)]])


def test_se3():
    turn = (0, -1, 0, 1, 0, 0, 0, 0, 1)
    same(
        '(SE3 ((1 2 (P "h" 3)) (0 -1 0 1 0 0 0 0 1)) (NAME "a"))',
        se3((1.0, 2.0, P("h", 3.0)), rotation=turn, name="a"),
    )


def test_mass():
    same("(TX 1 (MASS 2))", tx(1.0, mass=2.0))
    same("(TX 1 (MASS 2 1 2 3))", tx(1.0, mass=(2.0, 1.0, 2.0, 3.0)))
    same("(TX 1 (MASS 2 (COM 1 2 3)))", tx(1.0, mass=Mass(2.0, com=(1.0, 2.0, 3.0))))
    same(
        '(TX 1 (MASS (P "m" 2) (COM 0 0 (P "c" 1)) 3 3 3 .1 .2 .3))',
        tx(1.0, mass=Mass(P("m", 2.0), (3, 3, 3, 0.1, 0.2, 0.3), (0.0, 0.0, P("c", 1.0)))),
    )


def test_components():
    frames = tx("q", name="a", mass=1.0), ty(1.0, name="b")
    same(
        """(POINT-CONSTRAINT "a" "world" 1 0 (P "n" 2) (NAME "one"))
           (POINT-CONSTRAINT (NAME "two") "a" "b" ((P "m" 0) 0 1))
           (DISTANCE-CONSTRAINT "a" "b" (K "l"))
           (DISTANCE-CONSTRAINT "a" "b" "q")
           (DISTANCE-CONSTRAINT "a" "b" 2)
           (JOINT-DAMPING "q" 0.5) (JOINT-FORCE "l" "u")
           (TX "q" (NAME "a") (MASS 1)) (TY 1 (NAME "b"))
           (gravity 0 0 -9.81) (LINEAR-SPRING "a" "b" 3) (LINEAR-SPRING "a" "b" 3 1)
           (TORSIONAL-SPRING "q" 1) (TORSIONAL-SPRING "q" 1 (P "rest" 0))""",
        *frames,
        Gravity(0.0, 0.0, -9.81),
        LinearSpring("a", "b", 3.0),
        LinearSpring("a", "b", 3.0, 1.0),
        TorsionalSpring("q", 1.0),
        TorsionalSpring("q", 1.0, P("rest", 0.0)),
        JointDamping("q", 0.5),
        JointForce("l", "u"),
        PointConstraint("a", "world", (1.0, 0.0, P("n", 2.0)), name="one"),
        PointConstraint("a", "b", (P("m", 0.0), 0.0, 1.0), name="two"),
        DistanceConstraint("a", "b", K("l")),
        DistanceConstraint("a", "b", component.Variable("q")),
        DistanceConstraint("a", "b", 2.0),
    )


def test_frames_and_variables_are_separate_name_spaces():
    same('(RX "J" (NAME "J")) (RY "K" (NAME "x")) (RZ "x")', rx("J", name="J"), ry("K", name="x"), rz("x"))


# -- round trip -----------------------------------------------------------------------------------


@given(systems(max_frames=10, forced=True, kinematic=True, parameters=True))
def test_round_trip(system):
    again = read_text(write_text(system))
    assert again == system
    assert again.name == system.name
    assert write_text(again) == write_text(system)


@given(systems(max_frames=8, constrained=True, kinematic=True, parameters=True))
def test_round_trip_with_constraints(system):
    assert read_text(write_text(system)) == system


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: name != "world"),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_name_and_number_survive(name, value):
    system = System(tx(value, name=name), name=name)
    again = read_text(write_text(system))
    assert again == system
    assert again.name == name
    assert again.frames[0].name == name


def test_layout():
    system = System(
        rx("a", name="arm", mass=Mass(2.0, (1.0, 1.0, 1.0), (0.0, 0.5, 0.0)))[
            tz(-1.0)[ty(K("k"))], tx(P("l", 2.0))
        ],
        se3((1.0, 0.0, 0.0)),
        JointForce("a", "u", name="motor"),
        Gravity(0.0, 0.0, -9.8),
        name="two",
    )
    assert write_text(system) == (
        '(SYSTEM\n  (NAME "two")\n'
        '  (RX "a" (NAME "arm") (MASS 2.0 1.0 1.0 1.0 (COM 0.0 0.5 0.0))\n'
        "    (TZ -1.0\n"
        '      (TY (K "k")))\n'
        '    (TX (P "l" 2.0)))\n'
        "  (SE3 ((1.0 0.0 0.0) (1.0 0.0 0.0 0.0 1.0 0.0 0.0 0.0 1.0)))\n"
        "  (GRAVITY 0.0 0.0 -9.8)\n"
        '  (JOINT-FORCE "a" "u" (NAME "motor")))\n'
    )


def test_parameters_with_default_zero_are_written():
    zero = (P("ixy", 0.0), 0.0, 0.0)
    system = System(
        tx(1.0, mass=Mass(1.0, (1.0, 1.0, 1.0, *zero))),
        tx(1.0, mass=Mass(1.0, com=(P("c", 0.0), 0.0, 0.0))),
        tx(1.0, mass=Mass(1.0, (0.0, P("iyy", 0.0), 0.0))),
    )
    again = read_text(write_text(system))
    assert again == system
    assert set(again.parameters) == {"ixy", "c", "iyy"}


def test_files(tmp_path):
    path = tmp_path / "système.sexp"
    system = System(tx("q", name="bras \r\n"), name="système")
    write(System(ty(1.0)), path)
    write(system, path)
    assert read(path) == system
    assert read(str(path)).name == "système"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read(path) == system


def test_write_replaces_the_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.sexp"
    path.write_text("precious")

    def crash(source, target):
        assert Path(source).parent == tmp_path  # another file system could not be renamed from
        assert read(source) == System(tx(1.0))
        raise OSError("power cut")

    monkeypatch.setattr("os.replace", crash)
    with pytest.raises(OSError, match="power cut"):
        write(System(tx(1.0)), path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_leaves_the_file(tmp_path):
    path = tmp_path / "a.sexp"
    path.write_text("precious")
    with pytest.raises(UnicodeEncodeError):
        write(System(tx(1.0), name="\ud800"), path)
    with pytest.raises(IsADirectoryError):
        write(System(tx(1.0)), tmp_path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]
    assert [p for p in tmp_path.parent.iterdir() if p.suffix == ".tmp"] == []


def test_own_components(keywords):
    @dataclass(frozen=True, repr=False)
    class Wind(Force):
        keyword: ClassVar[str] = "wind"
        at: str = component.frame()
        along: tuple = component.direction()
        speed: str = component.input_name()
        gain: float = component.number(2.0)

    assert component_form(Wind) == '(WIND "at" (x y z) "speed" [gain] [(NAME "name")])'
    text = '(SYSTEM (TX "q" (NAME "a")) (Wind "a" 1 0 0 "w") (WIND "world" (0 1 0) "v" 3 (NAME "n")))'
    system = System(
        tx("q", name="a"), Wind("a", (1, 0, 0), "w"), Wind("world", (0, 1, 0), "v", 3.0, name="n")
    )
    assert read_text(text) == system
    assert read_text(write_text(system)) == system


def test_components_without_a_text_form(keywords):
    @dataclass(frozen=True, repr=False)
    class Nameless(Force):
        pass

    @dataclass(frozen=True, repr=False)
    class Odd(Force):
        keyword: ClassVar[str] = "ODD"
        table: tuple = ()

    with pytest.raises(ModelError, match="nameless: Nameless has no keyword of its own"):
        write_text(System(tx("q"), Nameless()))
    with pytest.raises(ModelError, match=r"Odd: the field 'table' .* has no text form"):
        write_text(System(tx("q"), Odd()))
    with pytest.raises(ReadError, match="Odd: the field 'table'"):
        read_text("(SYSTEM (TX 1) (ODD 3))")


# -- depth and size -------------------------------------------------------------------------------


@pytest.mark.slow
def test_deep_nests_are_refused():
    for text in ("(" * 100_000, "(SYSTEM " + "(TX 1 " * 100_000 + ")" * 100_001):
        with pytest.raises(ReadError, match="nested deeper"):
            read_text(text)
    with pytest.raises(ReadError, match="more than 500 frames") as info:
        read_text("(SYSTEM\n(TX 1 " + "TX 1 " * 100_000 + "))")
    assert (info.value.line, info.value.column) == (2, 2 + 500 * 5)


def test_chains_up_to_the_limit_are_read():
    deepest = '(TX 1 (MASS 1 (COM 0 0 (P "z" 1))))'
    system = read_text("(SYSTEM " + "(TX 1 " * 499 + deepest + ")" * 500)
    assert len(system.nodes) == 500
    assert system.nodes[-1].parent == 498
    assert system.nodes[-1].frame.mass == Mass(1.0, com=(0.0, 0.0, P("z", 1.0)))
    text = write_text(system)
    assert write_text(read_text(text)) == text


@pytest.mark.slow
def test_wide_systems_are_read_quickly():
    frames = "".join(f'(TX "q{i}" (NAME "f{i}"))' for i in range(2000))
    dampers = "".join(f'(JOINT-DAMPING "q{i}" 1)' for i in range(2000))
    system = read_text(f"(SYSTEM {frames}{dampers})")
    assert len(system.nodes) == len(system.forces) == 2000
    with pytest.raises(ReadError, match="unknown configuration variable 'r'") as info:
        read_text(f'(SYSTEM {frames}\n(JOINT-DAMPING "r" 1){dampers})')
    assert (info.value.line, info.value.column) == (2, 1)


def test_nothing_similar_is_looked_for_in_the_place_of_a_long_keyword(monkeypatch):
    """The search compares letters: with 50 million it took minutes."""
    compared = []
    monkeypatch.setattr("difflib.get_close_matches", lambda word, *_, **__: compared.append(word) or [])
    for keyword in ("TXX", "X" * 10**6):
        with pytest.raises(ReadError, match=r"unknown keyword .{3,50}; known are TX"):
            read_text(f"(SYSTEM ({keyword} 1))")
    assert compared == ["TXX"]


def test_reader_keeps_the_order():
    system = read_text('(SYSTEM (TX "a" (TY "b") (TZ "c" (RX "d"))) (RY "e") (RZ "f" (TX "g")))')
    assert system.variables == ("a", "b", "c", "d", "e", "f", "g")
    assert [node.parent for node in system.nodes] == [-1, 0, 0, 2, -1, -1, 5]
    assert all(isinstance(frame, Frame) for frame in system.frames)


# -- the document ---------------------------------------------------------------------------------


def test_the_document_shows_every_component(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS.parent / "_ext"))
    forms = importlib.import_module("text_forms")
    kinds = forms.BLOCK.findall(DOCS.read_text())
    assert kinds == list(forms.KINDS)
    tables = "\n".join(map(forms.shown, kinds))
    own = [cls for cls in component_types().values() if cls.__module__.startswith("vioc.")]
    assert len(own) >= 7
    missing = [component_form(cls) for cls in own if f"| `{component_form(cls)}` |" not in tables]
    assert not missing
    assert "`~vioc.LinearSpring` | Linear spring between the origins of two frames. V = 1/2 k" in tables


def test_the_examples_of_the_document_are_models():
    examples = re.findall(r"```lisp\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(examples) >= 4
    for text in examples:
        assert read_text(write_text(read_text(text))) == read_text(text)
