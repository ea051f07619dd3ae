"""Hypothesis strategies for random mechanisms."""

import numpy as np
from hypothesis import strategies as st

from vioc import (
    DistanceConstraint,
    Frame,
    Gravitation,
    Gravity,
    JointDamping,
    JointForce,
    LinearDamper,
    LinearSpring,
    Mass,
    MassGravity,
    PointConstraint,
    PointOnPlane,
    StringConstraint,
    System,
    TorsionalSpring,
    Wrench,
    WrenchInput,
)
from vioc.components import CamConstraint, GearConstraint, PolynomialSpring, ScrewConstraint

# inside: frames, numbers and wrenches are drawn by their parts, of every kind that there is
from vioc.dynamics.description.frame import PRIMITIVES, Pose, Transform, Twist
from vioc.dynamics.description.numbers import Parameter, Variable
from vioc.dynamics.terms.wrenches import AXES


def reals(low, high):
    """Floats in [low, high] without the denormal ones, which only test the printer."""
    return st.floats(low, high, allow_subnormal=False)


@st.composite
def vectors(draw, low=-1.0, high=1.0):
    """Three numbers."""
    return tuple(draw(reals(low, high)) for _ in range(3))


@st.composite
def rotations(draw):
    """Rotation matrices, (3, 3)."""
    a, b, c = (draw(reals(-3.0, 3.0)) for _ in range(3))
    z = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    x = np.array([[1, 0, 0], [0, np.cos(c), -np.sin(c)], [0, np.sin(c), np.cos(c)]])
    return z @ y @ x


@st.composite
def masses(draw):
    """Bodies with a positive definite inertia matrix that is full, and their centre off the origin."""
    # Second moments s of a solid: its inertia tr(s) - s obeys the triangle inequality strictly.
    s = np.diag([draw(reals(0.05, 0.5)) for _ in range(3)])
    rotation = draw(rotations())
    inertia = rotation @ (np.trace(s) * np.eye(3) - s) @ rotation.T
    rows, columns = [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]
    return Mass(draw(reals(0.2, 3.0)), tuple(inertia[rows, columns]), draw(vectors(-0.5, 0.5)))


def offsets():
    """Three numbers, none of them small."""
    return st.tuples(*[reals(0.2, 1.0).flatmap(lambda v: st.sampled_from([v, -v]))] * 3)


def poses():
    return st.builds(Pose, offsets(), rotations())


@st.composite
def other_terms(draw, tree, dynamic, number):
    """Terms that `systems` does not use elsewhere, for a tree with these dynamic variables.

    Constraints may be dependent, or met by no configuration.
    """
    carriers = [n.frame.name for n in tree.nodes if n.frame.mass is not None and n.frame.name]
    frames = [n for n in tree.frame_names if n != "anchor"]
    frame = draw(st.sampled_from(frames))
    v = draw(st.sampled_from(dynamic))
    axes = st.sampled_from(AXES)
    terms = [
        MassGravity(draw(st.sampled_from(carriers)), *(number(-5, 5) for _ in range(3))),
        PolynomialSpring(v, tuple(number(0, 2) for _ in range(draw(st.integers(1, 4)))), number(-1, 1)),
        LinearDamper("world", frame, number(0, 1)),
        Wrench(frame, draw(offsets()), draw(vectors()), draw(axes)),
        WrenchInput(frame, "u-wrench", draw(vectors()), draw(offsets()), draw(axes)),
    ]
    if len(carriers) > 1:
        pair = draw(st.lists(st.sampled_from(carriers), min_size=2, max_size=2, unique=True))
        terms.append(Gravitation(*pair, number(0, 2)))
    if len(dynamic) > 2:
        one, two = draw(st.lists(st.sampled_from(dynamic), min_size=2, max_size=2, unique=True))
        kinds = [
            ScrewConstraint(one, two, number(-1, 1)),
            GearConstraint(one, two, number(0.2, 2), number(-1, 1)),
            CamConstraint(one, two, (number(-1, 1), number(-1, 1)), draw(st.sampled_from([(), (0.3, 0.1)]))),
            StringConstraint("world", frame, number(0.2, 2)),
            PointOnPlane("world", frame, draw(offsets()), number(-1, 1)),
            PointConstraint("world", frame, draw(offsets()), frame),
        ]
        terms += draw(st.lists(st.sampled_from(kinds), max_size=2, unique=True))
    return terms


@st.composite
def systems(
    draw,
    max_frames=8,
    constrained=False,
    forced=False,
    kinematic=False,
    parameters=False,
    potentials=True,
    vocabulary=False,
):
    """Random trees whose mass matrix is positive definite at every configuration.

    They branch, use all six transforms and constant poses, and have at least one dynamic variable.
    Each variable's frame, or a frame fixed to it, carries a `masses` body: were a velocity not to
    move any of them, it would be zero from the root on.

    Parameters
    ----------
    max_frames : int
        At least 2; with constraints at least 5.
    constrained : bool
        Add constraints, fewer than the dynamic variables (of which there are at least two). They
        are independent except at special configurations; which ones meet them is left open.
    forced : bool
        Add inputs on one or two variables, and damping.
    kinematic : bool
        Let some variables be kinematic, among them lengths of constraints.
    parameters : bool
        Let some numbers be declared parameters.
    potentials : bool
        Add gravity and springs.
    vocabulary : bool
        Add one each of the other potentials and forces, and one or two other constraints.
    """
    serial = iter(range(10**6))

    def number(low, high):
        value = draw(reals(low, high))
        return Parameter(f"p{next(serial)}", value) if parameters and draw(st.booleans()) else value

    def body():
        mass = draw(masses())
        return Mass(number(0.2, 3.0), mass.inertia, mass.com)

    least = 2 if constrained else 1
    count = draw(st.integers(least, max(least, (max_frames - constrained) // 2)))
    parents = [draw(st.integers(-1, i - 1)) for i in range(count)]
    frames, dynamic = [], []
    for i in range(count):
        # The last places are kept for the dynamic variables that there must be.
        free = count - i > least - len(dynamic)
        kind = draw(st.sampled_from(["variable", "variable", "number", "SE3"])) if free else "variable"
        primitive = draw(st.sampled_from(PRIMITIVES))
        name = f"f{i}" if draw(st.booleans()) else None
        if kind == "SE3":
            frames.append(
                Frame(Transform(kind, draw(poses())), name, body() if draw(st.booleans()) else None)
            )
        elif kind == "number":
            frames.append(Frame(Transform(primitive, number(-1.5, 1.5)), name))
        else:
            variable = Variable(f"q{i}", kinematic and free and draw(st.booleans()))
            if not variable.kinematic:
                dynamic.append(variable.name)
            transform = Transform(primitive, variable)
            if draw(st.integers(0, 4)) == 0:
                transform = Transform("TWIST", Twist(variable, draw(offsets()), draw(offsets())))
            if constrained or draw(st.booleans()):
                tip = Frame(Transform("SE3", draw(poses())), f"tip{i}", body())
                frames.append(Frame(transform, name)[tip])
            else:
                frames.append(Frame(transform, f"f{i}", body()))

    # An odd place, which no axis of rotation happens to pass through.
    anchor = Frame(Transform("SE3", Pose((2.31, -1.87, 3.13), draw(rotations()))), "anchor")
    roots = [anchor] if constrained else []
    for i in reversed(range(count)):
        if parents[i] < 0:
            roots.append(frames[i])
        else:
            frames[parents[i]] = frames[parents[i]][frames[i]]

    tree = System(roots)
    components = []
    if potentials:
        components.append(Gravity(*(number(-9.8, 9.8) for _ in range(3))))
        if draw(st.booleans()):
            variable = draw(st.sampled_from(tree.variables))
            components.append(TorsionalSpring(variable, number(0, 5), number(-1, 1)))
        if draw(st.booleans()):
            components.append(LinearSpring("world", draw(st.sampled_from(tree.frame_names)), number(0, 5)))
    if forced:
        driven = draw(st.lists(st.sampled_from(dynamic), min_size=1, max_size=2, unique=True))
        components += [JointForce(v, f"u-{v}") for v in driven]
        components += [JointDamping(v, number(0, 1)) for v in driven if draw(st.booleans())]
    if constrained:
        # Each holds the tip of another variable, so none follows from the rest.
        held = draw(
            st.lists(st.sampled_from(dynamic), min_size=1, max_size=min(2, len(dynamic) - 1), unique=True)
        )
        for v in held:
            if draw(st.booleans()):
                constraint = PointConstraint(f"tip{v[1:]}", "anchor", draw(offsets()))
            else:
                own = kinematic and draw(st.booleans())
                length = Variable(f"length-{v}", kinematic=True) if own else number(0.2, 2)
                constraint = DistanceConstraint("anchor", f"tip{v[1:]}", length)
            components.append(constraint)
    if vocabulary:
        components += draw(other_terms(tree, dynamic, number))
    return System(roots, components, name=draw(st.sampled_from(["system", "a b", 'say "hi"', "x\\y", ""])))
