"""Shapes of contact: closed forms and brute force on random poses, terrain, motions that enter nothing."""

from __future__ import annotations

from itertools import product

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import lsq_linear, minimize
from scipy.spatial.transform import Rotation

import vioc
from vioc import Contact, Gravity, Mass, MaximalVI, System
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.formats.sexpr import write_text
from vioc.dynamics.terms.contacts import PairContact
from vioc.dynamics.terms.distances import meet
from vioc.dynamics.terms.shapes import Box, Capsule, Hull, Sphere
from vioc.dynamics.terms.terrain import Terrain
from vioc.errors import ModelError

DOWN = Gravity(0, 0, -9.81)
TURNED = tuple(Rotation.from_rotvec([0.3, -0.5, 0.8]).as_matrix().ravel().tolist())
SHAPES = {
    "sphere": Sphere(0.1, (0.1, 0.0, 0.05)),
    "capsule": Capsule(0.1, 0.6, (1.0, 2.0, 0.5), (0.1, 0.0, 0.0)),
    "box": Box((0.5, 0.3, 0.2), (0.0, 0.1, 0.0), TURNED),
}


def at(shape, R, p):
    """In the world, its frame at the pose (R, p)."""
    row = shape.placed(float, vec.IDENTITY, vec.ZERO)
    return shape.at(row, tuple(map(tuple, R)), tuple(p))


def core(shape, R, p):
    """Of a shape at a pose, the parallelepiped c + E s, |s| <= 1, that it is but for a radius."""
    c = p + R @ np.array(shape.center)
    if isinstance(shape, Sphere):
        return c, np.zeros((3, 0)), shape.radius
    if isinstance(shape, Capsule):
        axis = np.array(shape.axis)
        return c, (R @ axis * shape.length / 2 / np.linalg.norm(axis))[:, None], shape.radius
    return c, R @ np.reshape(shape.rotation, (3, 3)) * np.array(shape.size) / 2, 0.0


def distance(first, second):
    """By a bounded least squares problem."""
    (c1, E1, r1), (c2, E2, r2) = first, second
    M, d = np.hstack([E1, -E2]), c2 - c1
    if M.size:
        d = d - M @ lsq_linear(M, d, bounds=(-1, 1), tol=1e-15, method="bvls").x
    return np.linalg.norm(d) - r1 - r2, np.linalg.norm(d)


def parts(first, second):
    """Pairs of shapes that meet in one point each."""
    return [(a, b) for _, a, _, b in PairContact("a", first, "b", second).parts().values()]


def met(shapes, poses):
    """Gap, normal and point (numpy) of two shapes."""
    found = meet(*(at(s, *pose) for s, pose in zip(shapes, poses, strict=True)))
    return [np.array(ca.evalf(ca.vertcat(*a) if isinstance(a, tuple) else ca.SX(a)))[:, 0] for a in found]


@pytest.mark.parametrize("kinds", [k for k in product(SHAPES, repeat=2) if k != ("box", "box")])
def test_closed_forms_are_the_distance(kinds):
    rng, tried = np.random.default_rng(1), 0
    shapes = [SHAPES[k] for k in kinds]
    while tried < 40:
        poses = [(Rotation.random(random_state=rng).as_matrix(), 0.35 * rng.normal(size=3)) for _ in shapes]
        wanted, apart = distance(*(core(s, *pose) for s, pose in zip(shapes, poses, strict=True)))
        if apart < 1e-3:
            continue
        tried += 1
        gaps, normals, points = zip(*(met(pair, poses) for pair in parts(*shapes)), strict=True)
        best = np.argmin(np.ravel(gaps))
        (gap,), n, point = gaps[best], normals[best], points[best]
        if set(kinds) == {"capsule", "box"}:  # none is nearer; where a capsule tilts over an edge, -3 is near
            assert -1e-12 <= gap - wanted <= 0.0025 * (wanted + 0.1)
        else:
            assert gap == pytest.approx(wanted, abs=1e-12)
        if gap > wanted + 1e-12:
            continue
        # the nearest points of the two surfaces are half the gap away from the point, along the normal
        for sign, shape, pose in zip((-1, 1), shapes, poses, strict=True):
            surface = point + sign * 0.5 * gap * n
            dot = (np.eye(3), surface)
            off = distance(core(shape, *pose), core(Sphere(0.0), *dot))[0]
            assert abs(off) <= 1e-12


def test_a_point_within_a_box_is_pushed_out_of_the_nearest_face():
    pose = np.eye(3), np.zeros(3)
    (gap,), n, _ = met((Box((1.0, 2.0, 3.0)), Sphere(0.1)), (pose, (np.eye(3), np.array([0.1, -0.9, 0.2]))))
    assert gap == pytest.approx(-0.2, abs=1e-15)
    np.testing.assert_array_equal(n, [0, -1, 0])


@pytest.mark.parametrize("kinds", [("capsule", "capsule"), ("capsule", "box"), ("box", "sphere")])
def test_slopes_of_gaps_are_their_normals(kinds):
    """By pushing the second shape: also where a nearest point lies at an end, or passes along a segment."""
    rng, shapes = np.random.default_rng(2), [SHAPES[k] for k in kinds]
    p = ca.SX.sym("p", 3)
    for _ in range(20):
        (R1, p1), (R2, p2) = (
            (Rotation.random(random_state=rng).as_matrix(), 0.4 * rng.normal(size=3)) for _ in "ab"
        )
        gap, n, _ = meet(at(shapes[0], R1, p1), at(shapes[1], R2, ca.vertsplit(p)))
        f = ca.Function("f", [p], [ca.gradient(gap, p), ca.vertcat(*n), gap])
        slope, normal, phi = (np.array(a)[:, 0] for a in f(p2))
        if phi > -0.09:
            np.testing.assert_allclose(slope, normal, atol=1e-9)


def test_terrain_is_a_distance_where_it_is_flat_against_the_sphere():
    land = Terrain(lambda x, y: 0.1 * ca.sin(2 * x) * ca.cos(y))
    rng = np.random.default_rng(3)
    for _ in range(30):
        x, y = rng.uniform(-2, 2, 2)
        c = np.array([x, y, float(land.heights(x, y)) + 0.06])

        def square(s, c=c):
            return np.sum((np.array([*s, float(land.heights(*s))]) - c) ** 2)

        wanted = np.sqrt(minimize(square, [x, y], tol=1e-14).fun) - 0.05
        gap = meet(at(land, np.eye(3), np.zeros(3)), at(Sphere(0.05), np.eye(3), c))[0]
        assert float(ca.evalf(gap)) == pytest.approx(wanted, abs=0.05 * (0.06 * 0.4) ** 3)


def test_samples_are_met_and_smooth():
    x, y = np.linspace(-1, 2, 7), np.linspace(0, 1, 5)
    heights = np.sin(x)[:, None] + y**2
    land = Terrain.sampled(x, y, heights)
    np.testing.assert_allclose(land.heights(*np.meshgrid(x, y, indexing="ij")), heights, atol=1e-13)
    plane = Terrain.sampled(x, y, x[:, None] - 2 * y)  # straight beyond the edges, too
    X, Y = np.random.default_rng(4).uniform(-4, 4, (2, 50))
    np.testing.assert_allclose(plane.heights(X, Y), X - 2 * Y, atol=1e-12)


def test_bodies_of_all_smooth_shapes_fall_on_each_other_and_enter_nothing():
    pill, table = Capsule(0.1, 0.4, axis=(1, 0, 0)), Box((1.0, 0.6, 0.1), center=(0, 0, 0.4))
    land = Terrain(lambda x, y: 0.05 * ca.sin(3 * x) * ca.cos(2 * y))
    system = System(
        vioc.free("p", frame="pill", mass=Mass.box(1.0, (0.5, 0.2, 0.2))),
        vioc.free("s", frame="ball", mass=Mass.sphere(1.0, 0.2)),
        DOWN,
        PairContact("world", table, "pill", pill, friction=0.5, name="table"),
        Contact.sphere("ball", 0.2, ground=land, friction=0.5, name="land"),
        Contact.on("pill", pill, ground=land, friction=0.5, name="low"),
        PairContact("pill", pill, "ball", Sphere(0.2), friction=0.5, name="pair"),
    )
    f = MaximalVI(system, 0.01)
    run = f.rollout(
        f.initial_state({"p-z": 0.6, "p-x": 0.35, "s-x": 0.3, "s-y": 0.05, "s-z": 1.2}), steps=150
    )
    assert np.array([run[f"gap.{n}"] for n in f.multiplier_names if n.count(".") == 0]).min() > 0
    assert np.diff(run.energy).max() < 1e-3  # of 17 J: rolling, of second order in dt
    assert run["force.pair"].max() > 1


def test_a_hull_stands_on_its_corners():
    points = np.random.default_rng(5).normal(size=(40, 3)) * 0.1
    hull = Hull(points)
    assert 4 <= len(hull.points) <= 40
    inside = np.array(hull.points).mean(axis=0)
    assert Hull((*hull.points, tuple(inside))) == hull
    system = System(
        vioc.free("b", frame="b", mass=Mass.sphere(1.0, 0.1)),
        DOWN,
        Contact.on("b", hull, friction=0.5, name="c"),
    )
    f = MaximalVI(system, 0.01)
    run = f.rollout(f.initial_state({"b-z": 0.5}), steps=300)
    count = len(hull.points)
    weight = sum(run[f"force.c-{i + 1}"][-1] for i in range(count))
    assert weight == pytest.approx(9.81, rel=1e-3)


def test_what_shapes_cannot_be_is_refused():
    with pytest.raises(ModelError, match="box: size"):
        Box((1, 1, 0))
    with pytest.raises(ModelError, match="rotation matrix"):
        Box((1, 1, 1), rotation=(2, 0, 0, 0, 1, 0, 0, 0, 1))
    with pytest.raises(ModelError, match="no volume"):
        Hull(np.eye(3))
    with pytest.raises(ModelError, match="evenly spaced"):
        Terrain.sampled([0, 1, 3, 4], [0, 1, 2, 3], np.zeros((4, 4)))
    with pytest.raises(ModelError, match="CasADi expressions"):
        Terrain(lambda x, y: np.array([x.name(), y]))
    with pytest.raises(ModelError, match="a hull meets boxes"):
        PairContact("a", Hull(np.vstack([np.zeros(3), np.eye(3)])), "b", Sphere(0.1))
    with pytest.raises(ModelError, match="first of two"):
        PairContact("a", Sphere(0.1), "b", Terrain(lambda x, y: x))


def test_pairs_are_written_and_read_with_parameters():
    r = vioc.P("r", 0.1)
    contact = PairContact(
        "a", Capsule(r, 0.4, (1, 0, 0)), "b", Box((0.1, 0.2, 0.3), rotation=TURNED), 0.3, name="p"
    )
    bodies = [vioc.free(n, frame=n, mass=1.0) for n in "ab"]
    system = System(*bodies, contact)
    assert dict(system.parameters) == {"r": 0.1}
    assert vioc.read_text(write_text(system)).inequalities == (contact,)
