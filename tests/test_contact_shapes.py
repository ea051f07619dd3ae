"""Shapes of contact: closed forms and brute force on random poses, terrain, motions that enter nothing."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from itertools import product

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import lsq_linear, minimize, nnls
from scipy.spatial.transform import Rotation

import vioc
from vioc import Contact, Gravity, Mass, MaximalVI, PairContact, System, write_text
from vioc.compile import find_compiler

# inside: distances, features and poses of shapes are functions beneath contact, tried by themselves
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.contact.features import BIAS, Features
from vioc.dynamics.contact.look import ENTERED
from vioc.dynamics.contact.polytopes import PLACES, Pair, Polytope
from vioc.dynamics.terms.distances import meet
from vioc.errors import ModelError
from vioc.shapes import Box, Capsule, Hull, Sphere, Terrain

DOWN = Gravity(0, 0, -9.81)
NEEDS_COMPILER = pytest.mark.skipif(find_compiler() is None, reason="needs a compiler")
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


def anywhere():
    """Symbols of two poses [R, p] (3, 4), and the two poses in these."""
    rows = [ca.SX.sym(n, 3, 4) for n in "ab"]
    bodies = [
        tuple((tuple(tuple(r[i, j] for j in range(3)) for i in range(3)), ca.vertsplit(r[:, 3])))
        for r in rows
    ]
    return rows, bodies


def met_anywhere(*shapes):
    """Symbols of both poses [R, p] (3, 4), and gap, normal, point of each place in which two shapes meet."""
    rows, bodies = anywhere()
    pairs = parts(*shapes)
    return rows, [meet(*(at(s, *b) for s, b in zip(pair, bodies, strict=True))) for pair in pairs]


@cache
def meeting(*shapes):
    """Function from the poses of two shapes that meet in one point to gap, normal and point."""
    rows, bodies = anywhere()
    gap, n, point = meet(*(at(s, *b) for s, b in zip(shapes, bodies, strict=True)))
    return ca.Function("met", rows, [gap, ca.vertcat(*n), ca.vertcat(*point)])


def met(shapes, poses):
    """Gap, normal and point (numpy) of two shapes."""
    return [np.array(a)[:, 0] for a in meeting(*shapes)(*(np.column_stack(pose) for pose in poses))]


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


STONE = Hull(0.15 * np.random.default_rng(7).normal(size=(8, 3)))


def hull_distance(stone, other):
    """Of a hull and a sphere or capsule: the point of least norm of the hull of differences."""
    ends = [np.array([float(c) for c in ball.center]) for ball in other[0].corners()]
    first, second = (
        p + np.array(own) @ R.T for own, (R, p) in ((stone[0].points, stone[1]), (ends, other[1]))
    )
    D = (second[None] - first[:, None]).reshape(-1, 3)
    weights = nnls(np.vstack([D.T, np.ones(len(D))]), [0.0, 0.0, 0.0, 1.0])[0]
    apart = np.linalg.norm(weights @ D) / weights.sum()
    return apart - other[0].radius, apart


@pytest.mark.parametrize("kind", ["sphere", "capsule"])
def test_hulls_meet_spheres_and_capsules_where_they_are_nearest(kind):
    rng, tried, other = np.random.default_rng(3), 0, SHAPES[kind]
    rows, found = met_anywhere(STONE, other)
    slopes = [ca.vertcat(gap, ca.gradient(gap, rows[1][:, 3]), *n, *point) for gap, n, point in found]
    f = ca.Function("f", rows, [ca.horzcat(*slopes)])
    while tried < 60:
        poses = [(Rotation.random(random_state=rng).as_matrix(), 0.25 * rng.normal(size=3)) for _ in "ab"]
        wanted, apart = hull_distance((STONE, poses[0]), (other, poses[1]))
        if apart < 1e-3:
            continue
        tried += 1
        values = np.array(f(*(np.column_stack(pose) for pose in poses)))
        gap, slope, n, point = np.split(values[:, values[0].argmin()], [1, 4, 7])
        assert -1e-11 <= gap[0] - wanted <= (0.0025 * (wanted + 0.1) if kind == "capsule" else 1e-11)
        if gap[0] > wanted + 1e-11:
            continue
        np.testing.assert_allclose(slope, n, atol=1e-7)
        for body, pose, sign in ((STONE, poses[0], -0.5), (other, poses[1], 0.5)):  # half the gap to each
            dot = Sphere(0.0), (np.eye(3), point + sign * gap[0] * n)
            if body is STONE:
                off = hull_distance((STONE, pose), dot)[0]
            else:
                off = distance(core(body, *pose), core(dot[0], *dot[1]))[0]
            assert abs(off) <= 1e-9


def test_a_hull_that_is_a_box_meets_like_one():
    """Also within, where a capsule lies flat: all three places of it."""
    box, rng = Box((0.5, 0.3, 0.2)), np.random.default_rng(4)
    hull = Hull(tuple(tuple(float(c) for c in ball.center) for ball in box.corners()))
    r, fixed = ca.SX.sym("r", 3, 4), (np.eye(3), np.zeros(3))
    moved = tuple(tuple(r[i, j] for j in range(3)) for i in range(3)), ca.vertsplit(r[:, 3])
    for other in (Sphere(0.05), Capsule(0.05, 0.6, (1.0, 0.0, 0.0))):
        gaps = [
            [meet(at(a, *fixed), at(b, *moved))[0] for a, b in parts(body, other)] for body in (hull, box)
        ]
        f = ca.Function("f", [r], [ca.vertcat(*row) for row in gaps])
        compared = 0
        for k in range(40):
            flat = Rotation.from_euler("z", k).as_matrix()
            turn = flat if k < 20 else Rotation.random(random_state=rng).as_matrix()
            high = 0.15 + 0.01 * rng.normal() if k < 20 else 0.25
            mine, theirs = (np.array(g)[:, 0] for g in f(np.column_stack([turn, [0.02, -0.05, high]])))
            if theirs.min() > -0.04:  # of a segment within, two equal depths are both right
                np.testing.assert_allclose(mine, theirs, atol=1e-9)
                compared += 1
        assert compared >= 20


def test_a_ball_and_a_rod_come_to_rest_on_a_hull_in_both_maps():
    hull = Hull(((-0.6, -0.4, 0.0), (0.6, -0.4, 0.0), (0.0, 0.6, 0.0), (0.0, 0.0, -0.2)))  # its top is flat
    shapes = {"ball": Sphere(0.1), "rod": Capsule(0.05, 0.3, (1.0, 0.0, 0.0))}
    for name, shape in shapes.items():
        pair = PairContact("world", hull, name, shape, friction=0.5, name="p")
        system = System(vioc.tz("z", name=name, mass=Mass.box(2.0, BIG)), DOWN, pair)
        for kind in (MaximalVI, vioc.ContactVI):
            f = kind(system, 0.01)
            run = f.rollout(f.initial_state({"z": 0.2}), steps=40)
            radius = shape.radius
            assert run["z"][-1] == pytest.approx(radius, abs=1e-6)
            names = [f"p{suffix}" for suffix in pair.parts()]
            assert min(run[f"gap.{n}"].min() for n in names) > -1e-9
            force = sum(run[f"force.{n}"][-1] for n in names)
            assert force == pytest.approx(2.0 * 9.81, rel=1e-6)


def test_a_point_within_a_box_is_pushed_out_of_the_nearest_face():
    pose = np.eye(3), np.zeros(3)
    (gap,), n, _ = met((Box((1.0, 2.0, 3.0)), Sphere(0.1)), (pose, (np.eye(3), np.array([0.1, -0.9, 0.2]))))
    assert gap == pytest.approx(-0.2, abs=1e-15)
    np.testing.assert_array_equal(n, [0, -1, 0])


@pytest.mark.parametrize("kinds", [("capsule", "capsule"), ("capsule", "box"), ("box", "sphere")])
def test_slopes_of_gaps_are_their_normals(kinds):
    """By pushing the second shape: also where a nearest point lies at an end, or passes along a segment."""
    rng, shapes = np.random.default_rng(2), [SHAPES[k] for k in kinds]
    rows, bodies = anywhere()
    gap, n, _ = meet(*(at(s, *b) for s, b in zip(shapes, bodies, strict=True)))
    f = ca.Function("f", rows, [ca.gradient(gap, rows[1][:, 3]), ca.vertcat(*n), gap])
    for _ in range(20):
        poses = [(Rotation.random(random_state=rng).as_matrix(), 0.4 * rng.normal(size=3)) for _ in "ab"]
        slope, normal, phi = (np.array(a)[:, 0] for a in f(*(np.column_stack(pose) for pose in poses)))
        if phi > -0.09:
            np.testing.assert_allclose(slope, normal, atol=1e-9)


def test_slopes_are_finite_where_shapes_are_aligned():
    """Symmetric poses are where quotients vanish: a rod along a box, above its middle, along another rod."""
    pill, box = Capsule(0.1, 0.6, (1.0, 0.0, 0.0)), Box((0.5, 0.3, 0.2))
    R, p = ca.SX.sym("R", 3, 3), ca.SX.sym("p", 3)
    for pair in (*parts(box, pill), *parts(pill, pill), *parts(box, Sphere(0.1))):
        rows = tuple(tuple(R[i, j] for j in range(3)) for i in range(3))
        gap, n, point = meet(at(pair[0], np.eye(3), np.zeros(3)), at(pair[1], rows, ca.vertsplit(p)))
        values, wanted = ca.vertcat(gap, *n, *point), ca.vertcat(ca.vec(R), p)
        f = ca.Function("f", [R, p], [ca.jacobian(values, wanted), ca.hessian(gap, wanted)[0]])
        for turned in (np.eye(3), [[0, -1, 0], [1, 0, 0], [0, 0, 1]], [[0, 0, -1], [0, 1, 0], [1, 0, 0]]):
            for place in ([0, 0, 0.5], [0.25, 0, 0.5], [0.25, 0.15, 0.5], [0.7, 0, 0]):
                assert all(np.isfinite(np.array(m)).all() for m in f(np.array(turned, float), place)), (
                    pair,
                    turned,
                    place,
                )


def test_terrain_is_a_distance_where_it_is_flat_against_the_sphere():
    land = Terrain(lambda x, y: 0.1 * ca.sin(2 * x) * ca.cos(y))
    rng = np.random.default_rng(3)
    for _ in range(30):
        x, y = rng.uniform(-2, 2, 2)
        c = np.array([x, y, float(land.heights(x, y)) + 0.06])

        def square(s, c=c):
            return np.sum((np.array([*s, 0.1 * np.sin(2 * s[0]) * np.cos(s[1])]) - c) ** 2)

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
        f.initial_state({"p-z": 0.6, "p-x": 0.35, "s-x": 0.3, "s-y": 0.05, "s-z": 1.2}), steps=100
    )
    assert np.array([run[f"gap.{n}"] for n in f.multiplier_names if n.count(".") == 0]).min() > 0
    assert np.diff(run.energy).max() < 1e-3  # of 17 J: rolling, of second order in dt
    assert run["force.pair"].max() > 1


def test_a_hull_stands_on_its_corners():
    points = np.random.default_rng(5).normal(size=(20, 3)) * 0.1
    hull = Hull(points)
    assert 4 <= len(hull.points) <= 20
    inside = np.array(hull.points).mean(axis=0)
    assert Hull((*hull.points, tuple(inside))) == hull
    system = System(
        vioc.free("b", frame="b", mass=Mass.sphere(1.0, 0.1)),
        DOWN,
        Contact.on("b", hull, friction=0.5, name="c"),
    )
    f = MaximalVI(system, 0.01)
    run = f.rollout(f.initial_state({"b-z": 0.3}), steps=150)
    count = len(hull.points)
    weight = sum(run[f"force.c-{i + 1}"][-1] for i in range(count))
    assert weight == pytest.approx(9.81, rel=1e-3)


BIG, SMALL = (0.5, 0.4, 0.3), (0.3, 0.2, 0.2)


@cache
def stacked(*sizes, friction=0.5, **options):
    """Boxes over the ground that may touch each other."""
    names = [f"box{i}" for i in range(len(sizes))]
    bodies = [
        vioc.free(f"b{i}", frame=n, mass=Mass.box(1.0, s))
        for i, (n, s) in enumerate(zip(names, sizes, strict=True))
    ]
    ground = [Contact.box(n, s, friction=friction, name=f"g-{n}") for n, s in zip(names, sizes, strict=True)]
    shapes = {n: Box(s) for n, s in zip(names, sizes, strict=True)}
    system = System(bodies, DOWN, ground, PairContact.among(shapes, friction=friction))
    return MaximalVI(system, 0.01, **options)


def test_planes_that_part_boxes_are_true_and_tight():
    rng, first, second = (
        np.random.default_rng(6),
        Box((0.5, 0.3, 0.2)),
        Box((0.2, 0.4, 0.3), (0.1, 0, 0), TURNED),
    )
    pair = Pair((0, 1), Polytope(first, np.eye(3), np.zeros(3)), Polytope(second, np.eye(3), np.zeros(3)))
    features, met_by = Features([pair]), set()
    size = features.sizes[0]
    for _ in range(120):
        R = Rotation.random(2, random_state=rng).as_matrix()
        p = 0.2 * rng.normal(size=(2, 3))
        (rows,), (count,), (gap,) = features.at(p, R, np.zeros((2, 6)), 1.0)
        apart = distance(core(first, R[0], p[0]), core(second, R[1], p[1]))[0]
        if apart > BIAS * size:
            assert gap <= apart + 1e-12
        assert (gap > 0) == (apart > 1e-9)
        assert 1 <= count <= PLACES
        for a, b, n, side in ((r[:3], r[3:6], r[6:9], r[9]) for r in rows[:count]):
            n = R[0 if side > 0 else 1] @ n
            assert np.linalg.norm(n) == pytest.approx(1, abs=1e-12)
            places = [R[0] @ a + p[0], R[1] @ b + p[1]]
            for k, (place, shape) in enumerate(zip(places, (first, second), strict=True)):
                off = distance(core(shape, R[k], p[k]), core(Sphere(0.0), np.eye(3), place))[0]
                if count > 1 and (side > 0) == (k == 1):
                    assert off <= 1e-9  # a point of the body, on a face of it
            assert n @ (places[1] - places[0]) >= gap - BIAS * size - 1e-9
        met_by.add((count == 1, rows[0, 9]))
    assert {(True, 1.0), (False, 1.0), (False, -1.0)} <= met_by  # edges; faces of either


@pytest.mark.parametrize(("offset", "falls"), [(0.24, False), (0.26, True)])
def test_a_box_tips_over_the_edge_of_another_where_its_middle_is_beyond(offset, falls):
    f = stacked(BIG, BIG)
    start = {"b0-z": 0.15 + 1e-7, "b1-z": 0.45 + 2e-7, "b1-x": offset}
    run = f.rollout(f.initial_state(start), steps=50)
    assert (abs(run["box1:ry"][-1]) > 0.2) == falls
    if not falls:
        assert np.abs(run["box1:x"] - offset).max() < 1e-6


CRATES = {n: Box((0.2,) * 3) for n in "ab"}
STONES = {
    n: Hull(0.1 * np.random.default_rng(k).normal(size=(14 - 5 * (k == 2), 3)))
    for n, k in (("a", 1), ("b", 2))
}


@pytest.mark.parametrize("backend", ["virtual", pytest.param("compiled", marks=NEEDS_COMPILER)])
@pytest.mark.parametrize(
    ("shapes", "seeds"), [(CRATES, (3, 27)), (STONES, (73, 196))], ids=["boxes", "hulls"]
)
def test_fast_hits_enter_nothing(shapes, seeds, backend):
    """Starts from which planes take turns, of boxes: held at one alone, they end 8 cm behind the other.

    Of hulls those whose deepest corner is on no face, or no edge, that look at each other.
    """
    bodies = [vioc.free(n, frame=n, mass=Mass.box(1.0, (0.2,) * 3)) for n in "ab"]
    f = MaximalVI(System(bodies, PairContact.among(shapes, friction=0.5)), 0.01, backend=backend)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        q = Rotation.random(2, random_state=rng).as_quat()[:, [3, 0, 1, 2]]
        twists = rng.normal(size=(2, 6)) * np.repeat([2.0, 20.0], 3)  # m/s, rad/s
        twists[:, 0] += [3.0, -3.0]

        def beside(d, q=q, twists=twists):
            return np.concatenate([np.zeros(3), q[0], [d, 0, 0], q[1], twists.ravel()])

        # convex bodies that are farther apart than ones that do not meet do not meet
        ways = np.arange(0.05, 0.8, 1e-3)
        first = bisect_left(ways, True, key=lambda d, beside=beside: f.gaps(beside(d)).min() > 0)
        x = beside(ways[first])
        run = f.rollout(x, steps=1, warn=False)
        assert f.gaps(run.x[-1]).min() > -ENTERED * f.graph.features.sizes[0]
        assert run.energy[1] < run.energy[0]


def test_boxes_that_tumble_lose_energy_and_hardly_enter_each_other():
    f = stacked(BIG, SMALL)
    start = {"b0-z": 0.16, "b1-z": 0.6, "b1-x": 0.1, "b1-ry": 0.4, "b1-rx": 0.5}
    run = f.rollout(f.initial_state(start), steps=60)
    assert np.diff(run.energy).max() < 1e-3 * (run.energy[0] - run.energy[-1])
    deepest = f.gaps(run.x).min()
    assert deepest > -2e-3
    assert f.gaps(run.x[-1]).min() > -1e-6
    weight = sum(run[f"force.g-box{b}-{i + 1}"][-1] for b in range(2) for i in range(8))
    assert weight == pytest.approx(2 * 9.81, rel=0.05)


@NEEDS_COMPILER
def test_what_is_near_alone_steps_like_all():
    start = {"b0-z": 0.16, "b1-z": 0.5, "b1-x": 0.1, "b1-ry": 0.2, "b1-rz": 0.4}
    runs = []
    for backend in ("virtual", "compiled"):
        f = stacked(BIG, SMALL, backend=backend)
        runs.append(f.rollout(f.initial_state(start), steps=30))
    np.testing.assert_allclose(runs[0].x, runs[1].x, atol=1e-6)  # far gaps push by kappa over the gap
    step = f.step(runs[1].x[25])
    np.testing.assert_allclose(step, runs[1].x[26], atol=1e-9)


def test_hulls_fall_on_boxes():
    rng = np.random.default_rng(7)
    hull = Hull(0.15 * rng.normal(size=(14, 3)))
    body = vioc.free("b", frame="stone", mass=Mass.sphere(1.0, 0.15))
    f = MaximalVI(
        System(body, DOWN, PairContact("world", Box((4, 4, 0.2)), "stone", hull, friction=0.6, name="t")),
        0.01,
    )
    run = f.rollout(f.initial_state({"b-z": 0.8}), steps=200)
    assert np.diff(run.energy).max() < 1e-3
    assert f.gaps(run.x).min() > -1e-4
    weight = sum(run[f"force.t-{i + 1}"][-1] for i in range(PLACES))
    assert weight == pytest.approx(9.81, rel=0.05)


def test_steps_of_boxes_on_boxes_have_derivatives():
    """Corners over a face, places that hold as the boxes move; along ways that move every error by one."""
    f = stacked(BIG, SMALL, smoothing=1e-4)
    x = f.initial_state({"b0-z": 0.151, "b1-z": 0.404, "b1-x": 0.02}, {"b1-x": 0.3, "b1-z": -0.2})
    A = f.linearize(x, np.zeros(0)).A
    ways = np.random.default_rng(8).choice([-1.0, 1.0], (8, f.ndx))
    steps = 1e-6 * ways
    ends = [f.difference(f.step(f.retract(x, -d)), f.step(f.retract(x, d))) / 2e-6 for d in steps]
    np.testing.assert_allclose(A @ ways.T, np.transpose(ends), atol=2e-4 * np.abs(A).max())


ROBOT = """<robot name="r"><link name="base"><inertial><mass value="2"/>
<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="0 0 0.1" rpy="0 0 0.5"/><geometry><box size="0.4 0.2 0.1"/></geometry></collision>
<collision><origin xyz="0.1 0 0" rpy="0 1.5707963267948966 0"/>
<geometry><cylinder radius="0.02" length="0.3"/></geometry></collision>
<collision><geometry><sphere radius="0.05"/></geometry></collision>
<collision><origin xyz="0 1 0"/>
<geometry><mesh filename="ball.stl" scale="0.1 0.1 0.2"/></geometry></collision>
</link></robot>"""


def test_what_links_collide_with_becomes_contacts(tmp_path):
    pytest.importorskip("urdf_parser_py")
    trimesh = pytest.importorskip("trimesh")
    trimesh.creation.icosphere(subdivisions=3).export(tmp_path / "ball.stl")
    robot = vioc.read_urdf_text(ROBOT, base="floating")
    box, rod, ball, mesh = robot.shapes(meshes=tmp_path, corners=24)["base"]
    assert (box.size, box.center) == ((0.4, 0.2, 0.1), (0.0, 0.0, 0.1))
    turned = Rotation.from_rotvec([0, 0, 0.5]).as_matrix()
    np.testing.assert_allclose(np.reshape(box.rotation, (3, 3)), turned, atol=1e-15)
    points = np.array(rod.points)
    np.testing.assert_allclose(np.ptp(points, axis=0)[0], 0.3, atol=1e-12)
    np.testing.assert_allclose(np.hypot(points[:, 1], points[:, 2]), 0.02, atol=1e-12)
    assert ball == Sphere(0.05)
    corners = np.array(mesh.points)
    assert 20 <= len(corners) <= 24
    away = (corners - [0, 1, 0]) / [0.1, 0.1, 0.2]
    np.testing.assert_allclose(np.linalg.norm(away, axis=1), 1, atol=1e-6)
    pill = robot.shapes(meshes=tmp_path, cylinders="capsule")["base"][1]
    assert (pill.radius, pill.length, pill.center) == (0.02, 0.26, (0.1, 0.0, 0.0))
    np.testing.assert_allclose(pill.axis, [1, 0, 0], atol=1e-15)
    feet = robot.contacts(["base"], meshes=tmp_path, corners=24, friction=0.7)
    assert len(feet) == 8 + len(points) + 1 + len(corners)
    f = MaximalVI(robot.system.with_components(*feet), 0.01)
    assert f.gaps(f.initial_state({"base_z": 1.0})).min() == pytest.approx(0.8, abs=1e-2)
    with pytest.raises(ModelError, match="no collision"):
        robot.contacts(["wheel"])


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
    with pytest.raises(ModelError, match="first of two"):
        PairContact("a", Sphere(0.1), "b", Terrain(lambda x, y: x))
    bodies = [vioc.free(n, frame=n, mass=Mass.box(1.0, BIG)) for n in "ab"]
    boxes = PairContact("a", Box((1, 1, 1)), "b", Box((1, 1, vioc.P("h", 1.0))))
    with pytest.raises(ModelError, match="numbers, not parameters"):
        MaximalVI(System(*bodies, boxes), 0.01)
    with pytest.raises(ModelError, match="numbers, not parameters"):
        vioc.ContactVI(System(*bodies, boxes), 0.01)


def test_pairs_are_written_and_read_with_parameters():
    r = vioc.P("r", 0.1)
    contact = PairContact(
        "a", Capsule(r, 0.4, (1, 0, 0)), "b", Box((0.1, 0.2, 0.3), rotation=TURNED), 0.3, name="p"
    )
    bodies = [vioc.free(n, frame=n, mass=1.0) for n in "ab"]
    system = System(*bodies, contact)
    assert dict(system.parameters) == {"r": 0.1}
    assert vioc.read_text(write_text(system)).inequalities == (contact,)


HULL = Hull(0.2 * np.random.default_rng(11).normal(size=(14, 3)))
ROUND = [
    *(("sphere", "sphere"), ("sphere", "capsule"), ("capsule", "capsule"), ("capsule", "box")),
    *(("sphere", "box"), ("hull", "sphere"), ("hull", "capsule")),
]
FLAT = [("box", "box"), ("hull", "box"), ("hull", "hull")]


def beside_mujoco(kinds, count=60):
    """Our gap, MuJoCo's distance and the way of its nearest points, the poses' rotations; at random poses."""
    mujoco = pytest.importorskip("mujoco")
    shapes = [{**SHAPES, "hull": HULL}[k] for k in kinds]

    def numbers(values):
        return " ".join(f"{v:.17g}" for v in values)

    def geom(shape):
        if isinstance(shape, Hull):
            return '<geom type="mesh" mesh="hull"/>'
        place = np.array(shape.center)
        if isinstance(shape, Sphere):
            return f'<geom type="sphere" size="{shape.radius}" pos="{numbers(place)}"/>'
        if isinstance(shape, Capsule):
            way = np.array(shape.axis) * shape.length / 2 / np.linalg.norm(shape.axis)
            ends = numbers([*(place - way), *(place + way)])
            return f'<geom type="capsule" size="{shape.radius}" fromto="{ends}"/>'
        turn = Rotation.from_matrix(np.reshape(shape.rotation, (3, 3))).as_quat()[[3, 0, 1, 2]]
        size = numbers(np.array(shape.size) / 2)
        return f'<geom type="box" size="{size}" pos="{numbers(place)}" quat="{numbers(turn)}"/>'

    bodies = "".join(f"<body><freejoint/>{geom(s)}</body>" for s in shapes)
    mesh = f'<mesh name="hull" inertia="convex" vertex="{numbers(np.ravel(HULL.points))}"/>'
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><option ccd_tolerance="1e-12" ccd_iterations="200"/>'
        f"<asset>{mesh}</asset><worldbody>{bodies}</worldbody></mujoco>"
    )
    data, rng, ends = mujoco.MjData(model), np.random.default_rng(12), np.zeros(6)
    if kinds in FLAT:
        both = [Polytope(s, np.eye(3), np.zeros(3)) for s in shapes]
        features = Features([Pair((0, 1), *both)])
    else:
        rows, found = met_anywhere(*shapes)
        f = ca.Function("gaps", rows, [ca.vertcat(*(gap for gap, *_ in found))])
    for _ in range(count):
        turns, p = Rotation.random(2, random_state=rng), 0.35 * rng.normal(size=(2, 3))
        data.qpos[:] = np.hstack([p, turns.as_quat()[:, [3, 0, 1, 2]]]).ravel()
        mujoco.mj_kinematics(model, data)
        theirs = mujoco.mj_geomDistance(model, data, 0, 1, 10.0, ends)
        R = turns.as_matrix()
        if kinds in FLAT:
            (ours,) = features.at(p, R, np.zeros((2, 6)), 10.0).gaps
        else:
            ours = np.array(f(*np.dstack([R, p]))).min()
        yield ours, theirs, ends[3:] - ends[:3], R


# m; MuJoCo keeps a mesh's vertices, up to 0.5 m away, in single precision: 2^-24 of it for each coordinate
EXACT, SINGLE = 1e-14, 1e-7


@pytest.mark.peer
@pytest.mark.parametrize("kinds", ROUND, ids="-".join)
def test_distances_of_round_shapes_are_mujoco_s(kinds):
    """But for depths at which a segment, or a sphere's middle, is inside the other."""
    within = SINGLE if "hull" in kinds else EXACT
    tilted = 0.0 if "sphere" in kinds or kinds == ("capsule", "capsule") else 2.5e-3  # maths/contact.md (P4)
    pairs = list(beside_mujoco(kinds))
    found = [(ours, theirs) for ours, theirs, *_ in pairs if min(ours, theirs) > -0.099]  # radii are 0.1
    ours, theirs = np.array(found).T
    assert len(found) > 50 and (theirs < 0).any()
    assert (ours >= theirs - within).all()
    assert (ours <= theirs + within + tilted * (theirs + 0.1)).all()
    assert (ours < theirs + within).mean() >= 0.95


@pytest.mark.peer
@pytest.mark.parametrize("kinds", FLAT, ids="-".join)
def test_planes_that_part_polytopes_are_as_far_as_mujoco_s_distance(kinds):
    """The depth of what overlaps; the distance of what is apart where a face is nearest, else less."""
    within, sides = SINGLE if "hull" in kinds else EXACT, [{**SHAPES, "hull": HULL}[k] for k in kinds]
    faces = [Polytope(s, np.eye(3), np.zeros(3)).normals for s in sides]
    counts = {"deep": 0, "face": 0}
    for ours, theirs, way, R in beside_mujoco(kinds, 150):
        n = way / np.linalg.norm(way)
        onto = max(np.abs(own @ turn.T @ n).max() for own, turn in zip(faces, R, strict=True))
        assert ours <= theirs + within
        if theirs < 0 or onto > 1 - 1e-9:
            counts["deep" if theirs < 0 else "face"] += 1
            assert ours == pytest.approx(theirs, abs=within)
    assert min(counts.values()) >= 5


def test_tangents_of_walls_do_not_leap_as_they_tilt():
    """Right-handed frames; slopes of terms as x^2/(1 + n_z) stay below 10 where 1 + n_z >= 0.2."""
    n = ca.SX.sym("n", 3)
    first, second = vec.tangents(ca.vertsplit(n))
    frame = ca.Function("frame", [n], [ca.horzcat(n, ca.vertcat(*first), ca.vertcat(*second))])
    random = np.random.default_rng(0)
    walls = np.c_[random.standard_normal((200, 2)), 1e-9 * random.standard_normal(200)]
    normals = np.vstack(
        [walls, random.standard_normal((800, 3)), [[1, 0, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]]]
    )
    for a in normals / np.linalg.norm(normals, axis=1, keepdims=True):
        b = a + 1e-6 * random.standard_normal(3)
        b /= np.linalg.norm(b)
        F, other = (np.array(frame(v)) for v in (a, b))
        assert np.abs(F.T @ F - np.eye(3)).max() < 1e-14 and np.linalg.det(F) > 0
        if (a[2] + 0.79) * (b[2] + 0.79) > 0:
            assert np.abs(F - other).max() < 10 * np.linalg.norm(a - b)
