"""Descriptions: the notation, value semantics, and what validation refuses."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from support.strategies import systems

from vioc import (
    D,
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
    chain,
    coincident,
    cylindrical,
    read_text,
    rx,
    ry,
    rz,
    se3,
    tx,
    ty,
    tz,
    universal,
    write_text,
)
from vioc.components import Force, screw

# inside: parts that the notation makes, and modules whose names a repr is read with
from vioc.dynamics.description import frame as frame_module
from vioc.dynamics.description.component import Constraint, Potential
from vioc.dynamics.description.frame import Pose, Transform
from vioc.dynamics.description.numbers import Parameter, Variable
from vioc.dynamics.terms import constraints, forces, potentials
from vioc.errors import ModelError

NOTATION = {
    name: value
    for module in (frame_module, potentials, forces, constraints)
    for name, value in vars(module).items()
    if not name.startswith("_")
} | {"System": System, "Mass": Mass, "P": P, "K": K}


def arm(**options):
    """A pendulum with damping, a torque and a stop."""
    return System(
        rx("theta", name="arm")[tz(-1.0, name="tip", mass=1.0)],
        ty(1.0, name="post"),
        Gravity(0.0, 0.0, -9.8),
        JointForce("theta", "torque"),
        DistanceConstraint("tip", "post", K("string"), name="stop"),
        **options,
    )


# -- structure ------------------------------------------------------------------------------------


def test_tree():
    system = System(
        tx("a")[ty(K("b"), name="left")[tz(1.0, name="end")], rz("c", name="right")],
        [rx(K("d"))],
        DistanceConstraint("left", "right", K("e")),
        DistanceConstraint("left", "end", K("f")),
    )
    assert system.dynamic == ("a", "c")
    assert system.kinematic == ("b", "d", "e", "f")
    assert system.variables == ("a", "c", "b", "d", "e", "f")
    assert [n.parent for n in system.nodes] == [-1, 0, 1, 0, -1]
    assert system.frame_names == ("left", "end", "right")
    assert system.frame_index("right") == 3
    assert system.frame_index("world") == -1
    assert system.variable_index("d") == 3
    assert system.constraint_names == ("distance-constraint-1", "distance-constraint-2")


def test_square_brackets_and_chain_nest():
    assert tx(1.0)[ty(2.0)][tz(3.0)] == tx(1.0)[ty(2.0), tz(3.0)]
    assert chain(tx(1.0), ty("y"), tz(3.0)[rx(1.0)]) == tx(1.0)[ty("y")[tz(3.0)[rx(1.0)]]]
    with pytest.raises(ModelError, match="only the last frame may have children"):
        chain(tx(1.0)[ty(2.0)], tz(3.0))
    with pytest.raises(ModelError, match="at least one"):
        chain()
    a = tx(1.0)
    assert chain(a, a) == a[a]  # the same object twice
    with pytest.raises(ModelError, match="expected frames and joints, got 'x'"):
        chain(a, "x")


def test_chain_takes_joints():
    """As frames, in every place; their constraints come behind, as a System takes them."""
    assert chain(universal("u"), tz(1.0)) == universal("u")[tz(1.0)]
    assert chain(tz(1.0), universal("u")) == tz(1.0)[universal("u")]
    assert chain(universal("u")) == universal("u").frame
    arm, *constraints = chain(rx("tilt"), screw("nut", 0.01), cylindrical("c"), tz(0.1, mass=1.0))
    nut, _ = screw("nut", 0.01)[cylindrical("c")[tz(0.1, mass=1.0)]]
    assert arm == rx("tilt")[nut]
    assert [c.label() for c in constraints] == [c.label() for c in screw("nut", 0.01).constraints]
    assert System(chain(screw("nut", 0.01), tz(0.1, mass=1.0))) == System(
        *screw("nut", 0.01)[tz(0.1, mass=1.0)]
    )
    assert len(System(chain(screw("a", 0.01), screw("b", 0.02, mass=1.0))).constraints) == 2
    with pytest.raises(TypeError, match=r"frame\.children"):
        list(tx(1.0))


def test_components_by_kind():
    system = arm()
    assert [type(c).__name__ for c in system.components] == ["Gravity", "JointForce", "DistanceConstraint"]
    assert system.inputs == ("torque",)
    assert system.constraint_names == ("stop",)
    more = system.with_components(JointDamping("theta", 0.1), name_of_more := Gravity(1.0, 0.0, 0.0))
    assert more.forces == (JointForce("theta", "torque"), JointDamping("theta", 0.1))
    assert more.potentials[-1] == name_of_more
    assert system == arm()


def test_parameters():
    m = P("m", 2.0)
    system = System(
        tx(P("l", 1.0), mass=Mass(m, (P("i", 1.0), 1.0, 1.0), (P("c", 0.0), 0.0, 0.0)))[ty("q", mass=m)],
        se3((P("h", 3.0), 0.0, 0.0), name="a"),
        JointDamping("q", P("d", 0.5)),
        PointConstraint("a", "world", (P("n", 1.0), 0.0, 0.0)),
        DistanceConstraint("a", "world", P("r", 1.0)),
    )
    assert system.parameters == {"l": 1, "m": 2, "i": 1, "c": 0, "h": 3, "d": 0.5, "n": 1, "r": 1}


def test_coincident():
    pins = coincident("a", "b", "xz", name="pin")
    assert [p.direction for p in pins] == [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)]
    assert [p.name for p in pins] == ["pin-x", "pin-z"]
    assert [p.name for p in coincident("a", "b")] == [None] * 3


def test_inertia():
    mass = Mass(1.0, (3.0, 4.0, 5.0, 0.1, 0.2, 0.3))
    np.testing.assert_array_equal(mass.matrix(), [[3.0, 0.1, 0.2], [0.1, 4.0, 0.3], [0.2, 0.3, 5.0]])
    assert Mass(1.0, (3.0, 4.0, 5.0)).inertia == (3.0, 4.0, 5.0, 0.0, 0.0, 0.0)
    Mass(1.0, (0.0, 0.1, 0.1))  # a thin rod obeys the triangle inequality with equality


# -- value semantics ------------------------------------------------------------------------------


def test_frozen():
    system = arm()
    for target, attribute in [
        (system, "name"),
        (system, "frames"),
        (system, "new"),
        (system.frames[0], "mass"),
        (system.frames[0].transform, "kind"),
        (system.components[0], "x"),
        (system.nodes[0], "parent"),
        (Mass(1.0), "mass"),
        (P("a", 1.0), "value"),
        (K("a"), "name"),
        (Pose((0, 0, 0), np.eye(3)), "position"),
    ]:
        with pytest.raises(AttributeError):
            setattr(target, attribute, None)


@given(systems(max_frames=8, constrained=True, forced=True, kinematic=True, parameters=True))
def test_equal_systems_hash_alike_pickle_and_copy(system):
    again = read_text(write_text(system))
    assert again is not system
    assert hash(again) == hash(system)
    for twin in (pickle.loads(pickle.dumps(system)), copy.deepcopy(system)):
        assert twin == system
        assert hash(twin) == hash(system)
        assert (twin.name, twin.variables, twin.parameters) == (
            system.name,
            system.variables,
            system.parameters,
        )
        with pytest.raises(AttributeError):
            twin.name = "b"


@given(systems(max_frames=8, constrained=True, forced=True, kinematic=True, parameters=True))
def test_repr_is_the_notation(system):
    again = eval(repr(system), NOTATION.copy())
    assert again == system
    assert again.name == system.name


def test_equality_sees_every_part():
    base = arm()
    assert base == arm(name="another")
    assert hash(base) == hash(arm(name="another"))
    assert base != "arm"
    text = write_text(base)
    for old, new in [
        ('"theta"', '"phi"'),
        ('(RX "theta"', '(RY "theta"'),
        ("-1.0", "-1.5"),
        ("(MASS 1.0)", "(MASS 2.0)"),
        ("(MASS 1.0)", "(MASS 1.0 1.0 1.0 1.0)"),
        ("(MASS 1.0)", "(MASS 1.0 (COM 0.0 0.0 1.0))"),
        ("(MASS 1.0)", '(MASS (P "m" 1.0))'),
        ('"tip"', '"end"'),
        ("-9.8", "-9.81"),
        ('"torque"', '"u"'),
        ('(K "string")', '(K "rope")'),
        ('(K "string")', "2.0"),
        ('"stop"', '"halt"'),
        ("(TY 1.0", "(TY 0.0 TY 1.0"),
    ]:
        assert old in text
        assert read_text(text.replace(old, new)) != base, new


def test_equality_sees_the_shape_of_the_tree():
    a, b, c = tx("a"), ty("b"), tz("c")
    shapes = [System(a[b[c]]), System(a[b, c]), System(a[b], c), System(a, b[c]), System(a, b, c)]
    shapes += [System(b, a, c), System(a[c, b])]
    assert len(set(shapes)) == len(shapes)


def test_printing():
    text = str(arm(name="swing"))
    assert text.startswith(
        "swing: 3 frames, 1 dynamic variable, 1 kinematic variable, 1 input, 1 constraint\n"
    )
    for part in (
        "RX 'theta'",
        "'tip'",
        "Mass(1.0)",
        "DistanceConstraint(frame1='tip', frame2='post', length=K('string'), name='stop')",
    ):
        assert part in text
    assert "parameters: m = 2" in str(System(tx("q", mass=P("m", 2.0))))
    assert repr(tx(1.0, name="a", mass=2.0)) == "tx(1.0, name='a', mass=2.0)"
    assert repr(se3((1, 2, 3))) == "se3((1.0, 2.0, 3.0))"


def test_negative_zero_is_zero():
    assert repr(tx(-0.0)) == repr(tx(0.0))
    assert repr(Gravity(-0.0, 0.0, -0.0)) == "Gravity(0.0, 0.0, 0.0)"


@pytest.mark.parametrize("n", [100, 200])
def test_long_chains(n):
    def links():
        return chain(*(f for i in range(n) for f in (rx(f"q{i}"), tz(-1.0, mass=1.0))))

    system = System(links())
    assert len(system.nodes) == 2 * n
    again = read_text(write_text(system))
    assert again == system
    assert hash(again) == hash(System(links()))
    assert repr(again) == repr(system)
    assert str(again) == str(system)
    assert pickle.loads(pickle.dumps(system)) == system


# -- validation -----------------------------------------------------------------------------------

A = tx("q", name="a")

REFUSED = [
    # kinds, names and places of components
    (lambda: System(tx("s", name="a"), DistanceConstraint("a", "world", K("s"))), "takes 's' as a kinematic"),
    (
        lambda: System(A, Gravity(0, 0, 1, name="g"), TorsionalSpring("q", 1, name="g")),
        "two components are named",
    ),
    (lambda: System(A, LinearSpring("a", "a", 1.0)), "needs different frames, got 'a', 'a'"),
    (lambda: System(A, name=5), "name is a string"),
    (lambda: Frame("TX"), "transform is a Transform"),
    (lambda: Frame(A.transform, children=None), "children of a frame"),
    (lambda: se3(rotation=[P("r", 1.0), 0, 0, 0, 1, 0, 0, 0, 1]), "takes no parameters"),
    (lambda: se3((1, 2), name="b"), "frame 'b': position: expected 3 numbers"),
    # names and references
    (lambda: System(), "needs at least one frame"),
    (lambda: System(Gravity(0, 0, 1)), "needs at least one frame"),
    (lambda: System(A, 3), "made of frames, potentials, forces, constraints and contacts; got 3"),
    (lambda: System(A, "abc"), "got 'abc'"),
    (
        lambda: System(A, ty(1)[tz(1, name="a")], name="s"),
        r"s: two frames are named 'a' \('a' in world and 'a' in",
    ),
    (
        lambda: System(A[ty("q")]),
        "the variable 'q' drives two transforms, 'a' in world and unnamed frame .TY 'q'",
    ),
    (lambda: System(A, JointForce("q", "u"), JointForce("q", "u")), "two forces take the input 'u'"),
    (lambda: System(tx(P("p", 1)), ty(P("p", 2))), "the parameter 'p' has two defaults, 1.0 and 2.0"),
    (
        lambda: System(A, PointConstraint("a", "arm", (1, 0, 0))),
        "point-constraint: unknown frame 'arm'; known are 'a'",
    ),
    (lambda: System(tx(1, name="arm"), LinearSpring("arm", "amr", 1)), "did you mean 'arm'"),
    (
        lambda: System(A, JointDamping("Q1", 1)),
        "joint-damping: unknown configuration variable 'Q1'; known are 'q'",
    ),
    (
        lambda: System(tx(1), JointForce("q", "u", name="motor")),
        "joint-force 'motor': .* 'q'; none is defined",
    ),
    (
        lambda: System(A, *(PointConstraint("a", "world", (1, 0, 0), name="c") for _ in range(2))),
        "two constraints are named 'c'",
    ),
    (
        lambda: System(
            A,
            PointConstraint("a", "world", (1, 0, 0)),
            PointConstraint("a", "world", (0, 1, 0), name="point-constraint-1"),
        ),
        "two constraints are named 'point-constraint-1'",
    ),
    (lambda: arm().frame_index("tipp"), "unknown frame 'tipp'; did you mean 'tip'"),
    (lambda: arm().variable_index("teta"), "unknown configuration variable 'teta'; did you mean 'theta'"),
    (lambda: arm().with_components(ty(1, name="tip")), "two frames are named 'tip'"),
    (lambda: tx(1, name="world"), "'world' is the root"),
    (lambda: tx(1, name=""), "non-empty string"),
    (lambda: tx(1, name=7), "non-empty string, got 7"),
    (lambda: tx(""), "configuration variable: a name is"),
    (lambda: K("p.q"), "configuration variable: a name is"),
    (lambda: P("a b", 1), "parameter: a name is"),
    (lambda: JointForce("q", "a:b"), "joint-force: input: a name is"),
    (lambda: Gravity(0, 0, 1, name="a b"), "gravity: a name is"),
    (lambda: LinearSpring("", "b", 1), "frame1: expected the name of a frame, got ''"),
    (lambda: LinearSpring("a", 2, 1), "frame2: expected the name of a frame, got 2"),
    # numbers
    (lambda: tx(math.nan, name="a"), "TX a: expected a finite number, got nan"),
    (lambda: ry(math.inf), "RY: expected a finite number, got inf"),
    (lambda: tx(None), "TX: expected a number, got None"),
    (lambda: tx(True), "TX: expected a number, got True"),
    (lambda: tx(np.True_), "TX: expected a number, got"),
    (lambda: P("p", math.nan), "parameter 'p': expected a finite number"),
    (lambda: P("p", "1"), "parameter 'p': expected a number, got '1'"),
    (lambda: Gravity(0, math.nan, 0), "gravity: y: expected a finite number"),
    (lambda: Gravity(0, "1", 0), "gravity: y: expected a number, got '1'"),
    (lambda: JointDamping("q", -1, name="d"), "joint-damping 'd': coefficient: expected at least 0, got -1"),
    (lambda: JointDamping("q", P("c", -1)), "coefficient: expected at least 0, got -1"),
    (lambda: TorsionalSpring("q", -1), "stiffness: expected at least 0"),
    (lambda: LinearSpring("a", "b", 1, -1), "rest_length: expected at least 0"),
    (lambda: PointConstraint("a", "b", (0, 0, 0)), "direction: expected a direction, got the zero vector"),
    (lambda: PointConstraint("a", "b", (1, 0)), "direction: expected 3 numbers, got 2"),
    (lambda: PointConstraint("a", "b", "xyz"), "direction: expected 3 numbers, got 'xyz'"),
    (lambda: PointConstraint("a", "b", (1, 0, math.nan)), "direction: expected a finite number"),
    (lambda: DistanceConstraint("a", "b", 0), "length: expected a length > 0, got 0 .*point constraints"),
    (lambda: DistanceConstraint("a", "b", -1), "length: expected a length > 0, got -1"),
    (
        lambda: System(A, ty(1, name="b"), DistanceConstraint("a", "b", "l")),
        r"a length is a number, or \(K \"l\"\) / K\(\"l\"\) .* no frame has 'l'",
    ),
    # masses and poses
    (lambda: tx(1, name="a", mass=-1), r"frame 'a': mass: expected a number >= 0 \(kg\), got -1"),
    (lambda: ty("q", mass=math.nan), "frame TY 'q': mass: expected a finite number"),
    (lambda: tx(1, mass=(1, 2)), r"frame TX 1.0: mass: expected m or \(m, Ixx, Iyy, Izz\), got \(1, 2\)"),
    (lambda: tx(1, name="a", mass=(1, 1, 1, 3)), "frame 'a': inertia: .*triangle inequality"),
    (lambda: Mass(1, (1, 1, 2.01)), "triangle inequality .* got .1.0, 1.0, 2.01"),
    (lambda: Mass(1, (1, 1, 1, 0, 0, 2)), "positive semidefinite"),
    (lambda: Mass(1, (-1, 0, 0)), "positive semidefinite"),
    (lambda: Mass(1, (1, 2)), "inertia: expected .Ixx, Iyy, Izz., .* or a 3 x 3 matrix"),
    (lambda: Mass(1, 5.0), "inertia: expected .Ixx, Iyy, Izz., .* got 5.0"),
    (lambda: Mass(1, (math.nan, 1, 1)), "inertia: expected a finite number"),
    (lambda: Mass(1, com=(0, 0)), "centre of mass: expected 3 numbers, got 2"),
    (lambda: Mass(1, com=(0, 0, math.inf)), "centre of mass: expected a finite number"),
    (lambda: se3((1, 2)), "position: expected 3 numbers, got 2"),
    (lambda: se3(rotation=np.diag([1, 1, -1])), "determinant .1.*det = -1"),
    (lambda: se3(rotation=2 * np.eye(3)), "rotation: expected a rotation matrix"),
    (lambda: se3(rotation=np.eye(2)), "rotation: expected 9 numbers, got 4"),
    (lambda: se3((math.nan, 0, 0)), "position: expected a finite number"),
    # transforms
    (lambda: Transform("TW", 1.0), "unknown transform 'TW'; known are TX"),
    (lambda: Transform("SE3", 1.0), "SE3 takes a constant pose, got 1.0"),
    (lambda: Transform("TX", Pose((0, 0, 0), np.eye(3))), "TX: expected a number"),
    (lambda: tx(1)["a"], "the children of a frame are frames, got 'a'"),
    (lambda: Frame(Transform("TX", 1.0), children=(A, None)), "got None"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_refused(build, message):
    with pytest.raises(ModelError, match=message) as info:
        build()
    assert isinstance(info.value, ValueError)


def test_abstract_components_say_what_they_lack():
    for base, method in [(Potential, "energy"), (Force, "generalized"), (Constraint, "value")]:
        own = type("Own", (base,), {})
        with pytest.raises(TypeError, match=rf"Own must define {method}\(k\)"):
            getattr(own(), method)(None)


def test_variables_and_parameters_are_values():
    assert K("a") == Variable("a", True) != D("a")
    assert P("a", 1) == Parameter("a", 1.0) != P("a", 2)
    assert float(P("a", 1.5)) == 1.5
    assert (repr(K("a")), repr(D("a")), repr(P("a", 1))) == ("K('a')", "'a'", "P('a', 1.0)")
