"""The vocabulary as data: model text, printing, pickling, and what is refused."""

from __future__ import annotations

import math
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.mechanisms import state_near
from support.strategies import systems
from support.tree_of_terms import TREE, charge, drag, height

from vioc import (
    D,
    Gravitation,
    JointForce,
    K,
    Kinematics,
    Lagrangian,
    LinearDamper,
    Mass,
    MassGravity,
    MidpointVI,
    P,
    PointConstraint,
    PointOnPlane,
    StringConstraint,
    System,
    UserConstraint,
    UserForce,
    UserPotential,
    Wrench,
    WrenchInput,
    coincident,
    read_text,
    rx,
    rz,
    tx,
    wrench_inputs,
    write_text,
)
from vioc.components import CamConstraint, GearConstraint, PolynomialSpring, ScrewConstraint, cam

# inside: every registered term has a text, and reprs are read with names of these modules
from vioc.dynamics.description import frame as frame_module
from vioc.dynamics.description.component import component_types
from vioc.dynamics.terms import constraints, forces, pairs, potentials, wrenches
from vioc.errors import ModelError, ReadError, RedundancyWarning, StepError

DOCS = Path(__file__).parent.parent / "docs" / "model_text.md"
NOTATION = {
    name: value
    for module in (frame_module, potentials, forces, constraints, pairs, wrenches)
    for name, value in vars(module).items()
    if not name.startswith("_")
} | {"System": System, "Mass": Mass, "P": P, "K": K}
few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
random_systems = systems(max_frames=8, forced=True, kinematic=True, parameters=True, vocabulary=True)


@given(random_systems)
def test_text_notation_and_pickle_give_the_same_system(system):
    again = read_text(write_text(system))
    assert again == system and hash(again) == hash(system) and repr(again) == repr(system)
    assert again.parameters == system.parameters and again.inputs == system.inputs
    assert pickle.loads(pickle.dumps(system)) == system
    assert eval(repr(system), NOTATION) == system


@few
@given(random_systems, st.integers(0, 2**32 - 1))
def test_steps_of_random_systems_are_differentiated_exactly(system, seed):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RedundancyWarning)  # random constraints may be redundant
            f = MidpointVI(system, 0.01)
    except ModelError:
        assume(False)
    x = state_near(f, seed)
    assume(x is not None)
    k, q = Kinematics(system), x[: f.nq]
    dampers = [force for force in system.forces if isinstance(force, LinearDamper)]
    lengths = [np.linalg.norm(k.position(d.frame1, q) - k.position(d.frame2, q)) for d in dampers]
    assume(min(lengths) > 1e-3)  # a damper whose ends meet has no direction, and its force no derivative
    random = np.random.default_rng(seed)
    u = np.concatenate([random.normal(size=len(system.inputs)), x[f.nd : f.nq]])
    d = np.concatenate([random.normal(size=f.nx), random.normal(size=f.nu)])
    try:
        A, B = f.linearize(x, u)
        one, two = (f.step(x + e * d[: f.nx], u + e * d[f.nx :]) for e in (1e-5, -1e-5))
    except StepError:
        assume(False)
    slope = A @ d[: f.nx] + B @ d[f.nx :]
    np.testing.assert_allclose((one - two) / 2e-5, slope, atol=1e-6 * (1 + np.abs(slope).max() ** 2))


def test_the_document_has_an_example_of_every_component():
    examples = "".join(re.findall(r"```lisp\n(.*?)```", DOCS.read_text(), re.DOTALL))
    own = [w for w, cls in component_types().items() if cls.__module__.startswith("vioc.")]
    assert len(own) >= 18
    assert [word for word in own if f"({word} " not in examples] == []


def test_lists_and_choices_in_text():
    text = """(SYSTEM (RZ "q" (NAME "body") (MASS 1 1 1 1)) (TX "x" (MASS 1))
        (POLYNOMIAL-SPRING "q" (1 (P "k" 2) 3))
        (CAM-CONSTRAINT "q" "x" (0.1) ())
        (POINT-CONSTRAINT "body" "world" 1 0 0 "body")
        (WRENCH "body" (1 0 0) (0 0 0) "spatial"))"""
    system = read_text(text)
    assert system.potentials == (PolynomialSpring("q", (1, P("k", 2.0), 3)),)
    assert system.constraints == (
        CamConstraint("q", "x", (0.1,)),
        PointConstraint("body", "world", (1, 0, 0), "body"),
    )
    assert system.forces == (Wrench("body", (1, 0, 0), axes="spatial"),)
    assert read_text(write_text(system)) == system


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ('(POLYNOMIAL-SPRING "q" ())', "expected 1 numbers, got 0"),
        ('(POLYNOMIAL-SPRING "q" 3)', "expected 1 numbers, got 3"),
        ('(WRENCH "b" (1 0))', "expected 3 numbers, got 2"),
        ('(WRENCH "b" (1 0 0) (0 0 0) "sideways")', "expected one of body, hybrid, spatial, got 'sideways'"),
        ('(WRENCH "b" (0 0 0))', "expected a force or a moment, got zeros"),
        ('(WRENCH "world" (1 0 0))', "the world does not move"),
        ('(WRENCH "c" (1 0 0))', "unknown frame 'c'"),
        ('(POINT-CONSTRAINT "b" "world" (1 0 0) "c")', "unknown frame 'c'"),
        ('(GEAR-CONSTRAINT "q" "q" 2)', "expected two different variables, got 'q' twice"),
        ('(GEAR-CONSTRAINT "q" "r" 2)', "unknown configuration variable 'r'"),
        ('(STRING-CONSTRAINT "b" "world" -1)', "expected a length > 0"),
        ('(LINEAR-DAMPER "b" "b" 1)', "needs different frames"),
        ('(LINEAR-DAMPER "b" "world" -1)', "expected at least 0"),
        ('(GRAVITATION "b" "world" -1)', "expected at least 0"),
    ],
)
def test_wrong_forms_are_refused_at_their_place(form, message):
    with pytest.raises(ReadError, match=message) as info:
        read_text(f'(SYSTEM (RZ "q" (NAME "b") (MASS 1 1 1 1)) (TX "x")\n{form})')
    assert info.value.line == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PolynomialSpring("q", "12"), "expected a tuple of numbers, got '12'"),
        (lambda: PolynomialSpring("q", (1.0, np.nan)), "finite"),
        (lambda: CamConstraint("q", "x", ()), "expected 1 numbers, got 0"),
        (lambda: cam("q", "x", []), "expected samples of the lift over one turn, got none"),
        (lambda: cam("q", "x", [1.0, np.inf]), "finite"),
        (lambda: cam("q", "x", [[1.0, 2.0], [3.0, 4.0]]), "expected shape"),
        (
            lambda: ScrewConstraint("q", "q", 0.1, name="nut"),
            "screw-constraint 'nut': expected two different",
        ),
        (lambda: PointOnPlane("a", "b", (0, 0, 0)), "zero vector"),
        (lambda: WrenchInput("a", "u v", (1, 0, 0)), "without white space"),
        (lambda: wrench_inputs("a", fq="u"), r"unknown components \['fq'\]; known are fx"),
        (lambda: coincident("a", "b", "xw"), "different letters of x, y, z, got 'xw'"),
        (lambda: coincident("a", "b", "xx"), "different letters"),
        (lambda: UserPotential(3.0), "expected a function, got 3.0"),
        (lambda: GearConstraint("q", "x", 0), "gear-constraint: ratio: expected a number other than 0"),
        (lambda: StringConstraint("a", "b", "L m"), "string-constraint: length: a name is"),
        (lambda: UserForce(drag, "push"), "expected a tuple of names, got 'push'"),
        (lambda: UserForce(drag, ("bob", 0.02)), r"write \(\) for no inputs"),
        (lambda: UserConstraint(height, (None,)), "expected a number, got None"),
    ],
)
def test_wrong_components_are_refused(make, message):
    with pytest.raises(ModelError, match=message):
        make()


def test_inputs_are_unique():
    with pytest.raises(ModelError, match="two forces take the input 'push'"):
        System(TREE, JointForce("a", "push"), UserForce(drag, ("push",), (0.1,)))


# -- terms of the user's own -------------------------------------------------------------------------


def own():
    return System(
        TREE,
        UserPotential(charge, ("tip", P("strength", 2.0)), name="charge"),
        UserForce(drag, ("push",), (P("drag", 0.5),)),
        UserConstraint(height, ("tip", 0.1)),
    )


def test_user_terms_are_values():
    system = own()
    assert system == own() and hash(system) == hash(own())
    assert pickle.loads(pickle.dumps(system)) == system
    assert "UserPotential(charge, ('tip', P('strength', 2.0)), name='charge')" in repr(system)
    assert system.parameters == {"strength": 2.0, "drag": 0.5} and system.inputs == ("push",)
    profile = cam("a", "x", np.cos)
    assert repr(cam("a", "x", height)) == "UserConstraint(cam('a', 'x', height), ())"
    assert profile == cam("a", "x", np.cos) and pickle.loads(pickle.dumps(profile)) == profile


@pytest.mark.parametrize("i", range(3))
def test_user_terms_have_no_text(i):
    with pytest.raises(ModelError, match=r"User\w+ has no keyword of its own, so no text form"):
        write_text(System(TREE, own().components[i]))


def stray(k):
    return {"nowhere": 1.0}


def pair(k):
    return k.position("tip")[:2]


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (UserPotential(lambda k: k.v("a") ** 2), "a potential depends on q alone, got velocities"),
        (UserPotential(lambda k: k.t), "got time"),
        (
            UserPotential(pair),
            r"user-potential pair: expected one number, got an expression of shape \(2, 1\)",
        ),
        (UserPotential(lambda k: None), "expected a CasADi SX expression, got None"),
        (UserForce(stray), "unknown configuration variable 'nowhere'"),
        (UserForce(pair), "expected a dict of forces by variable"),
        (UserForce(lambda k: {"a": "much"}), "a: expected a CasADi SX expression, got 'much'"),
        (UserConstraint(pair), "expected one number"),
        (
            UserConstraint(height, ("tpi", 1.0)),
            "user-constraint height: unknown frame 'tpi'; did you mean 'tip'",
        ),
        (UserForce(stray), "user-force stray: unknown configuration variable 'nowhere'"),
        (
            UserForce(lambda k: {"a": k.u("w")}),
            r"user-force .*undeclared input 'w'.*UserForce\(f, \('w',\)\)",
        ),
        (UserPotential(lambda k: k.u("w")), "user-potential .*q alone, got the input 'w'; write a UserForce"),
        (UserPotential(lambda k: k.number(P("c", 2.0))), r"undeclared parameter 'c'; hand it on in args="),
        (
            UserForce(lambda k: {"a": 1.0 if k.q("a") > 0 else 0.0}, name="kick"),
            "user-force 'kick' .*if_else",
        ),
        (UserPotential(lambda k: 1 / 0), "user-potential .*raised ZeroDivisionError: division by zero"),
        (UserPotential(lambda k: k.q("aa")), "user-potential .*: unknown configuration variable 'aa'"),
        (UserConstraint(lambda k: math.sin(k.q("a"))), r"contains NaN; use casadi functions \(ca.sin\)"),
        (UserConstraint(lambda k: k.q("a") - math.cos(k.q("a"))), "contains NaN; use casadi"),
        (
            UserPotential(lambda k: math.sin(k.q("a"))),
            "depends on no configuration variable and contains NaN",
        ),
        (UserConstraint(lambda k, c: c - 1.0, (P("c", 2.0),)), "depends on no configuration variable; use"),
    ],
)
def test_wrong_functions_are_refused(term, message):
    with pytest.raises(ModelError, match=message):
        lag = Lagrangian(System(TREE, term))
        _ = lag.V, lag.F, lag.h


def test_a_length_is_a_number_or_prescribed_or_a_frames_variable():
    frames = tx("x", name="load", mass=1.0), tx("L", name="slide", mass=1.0)
    short = System(*frames, StringConstraint("world", "load", "L"))
    assert short == System(*frames, StringConstraint("world", "load", D("L")))
    assert short.dynamic == ("x", "L")
    assert read_text(write_text(short)) == short
    for length in ("rope", D("rope")):
        with pytest.raises(ModelError, match=r'string-constraint: .*K\("rope"\) for a prescribed length'):
            System(*frames, StringConstraint("world", "load", length))
    with pytest.raises(ReadError, match=r'\(K "L"\) .*; no frame has \'L\'') as info:
        read_text('(SYSTEM (TX "x" (NAME "l") (MASS 1))\n (STRING-CONSTRAINT "world" "l" "L"))')
    assert info.value.line == 2


def test_the_prefix_of_a_message_comes_once():
    with pytest.raises(ModelError) as info:
        System(tx("x", name="a"), MassGravity("a", 0, 0, -1.0), name="s")
    assert str(info.value) == "s: mass-gravity: the frame 'a' carries no mass; give it one"


def test_dimensions_of_a_string_with_its_own_variable():
    system = System(
        rx("a", mass=Mass(1, (1, 1, 1)))[tx(1.0, name="tip")],
        rz(0.0, name="post"),
        StringConstraint("tip", "post", K("rope")),
        LinearDamper("tip", "post", 0.1),
    )
    assert system.kinematic == ("rope",)
    assert Gravitation("tip", "post").constant == 6.6743e-11
