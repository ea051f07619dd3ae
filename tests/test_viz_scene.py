"""Scenes: what there is to draw of a mechanism, from its description and numbers alone."""

import casadi as ca
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import systems

import vioc
from vioc import (
    Contact,
    DistanceConstraint,
    Gravity,
    K,
    Kinematics,
    LinearDamper,
    LinearSpring,
    LinearTimeVI,
    Mass,
    MaximalVI,
    P,
    PairContact,
    PointOnPlane,
    StringConstraint,
    System,
    coincident,
    free,
    rx,
    ry,
    se3,
    spherical,
    twist,
    tx,
    ty,
    tz,
)
from vioc.cables import SheaveString, cable, round_section
from vioc.components import DrumRope

# inside: scenes are what pictures are made of, and have no public name
from vioc.dynamics.formats.robot import RobotGeometry
from vioc.dynamics.kinematics import FrameGraph
from vioc.errors import FileFormatError, ModelError
from vioc.shapes import HalfSpace, Sphere
from vioc.viz.poses import frame_poses, quaternions, rotation_matrices
from vioc.viz.recorded import read_recorded
from vioc.viz.scene import labelled, scene_at, scene_of
from vioc.viz.solids import Solid, outline, visual_solids


@given(systems(), st.integers(0, 10**6))
def test_poses_are_those_of_the_symbolic_kinematics(system, seed):
    q = np.random.default_rng(seed).uniform(-2, 2, len(system.variables))
    positions, rotations = frame_poses(system, q[None])
    graph, theta = FrameGraph(system), list(system.parameters.values())
    for i in range(len(system.nodes)):
        R, p = graph.node_pose(i)
        flat = [ca.SX(e) for row in R for e in row] + [ca.SX(e) for e in p]
        f = ca.Function("f", [graph.q_vector, graph.parameters], [ca.vertcat(*flat)])
        expected = np.array(f(q, theta)).ravel()
        np.testing.assert_allclose(rotations[0, i].ravel(), expected[:9], atol=1e-12)
        np.testing.assert_allclose(positions[0, i], expected[9:], atol=1e-11)


def test_poses_of_screws_parameters_and_constant_rotations():
    R = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    tree = twist("s", (0.1, 0.2, 0.3), (0.5, -1.0, 2.0))[
        se3((1.0, 2.0, 3.0), rotation=R)[tz(P("l", 0.5), name="e")]
    ]
    system = System(tree)
    positions, rotations = frame_poses(system, np.array([[0.7]]), {"l": 0.9})
    pose = Kinematics(system, l=0.9).pose("e", [0.7])
    np.testing.assert_allclose(positions[0, -1], pose[:3, 3], atol=1e-14)
    np.testing.assert_allclose(rotations[0, -1], pose[:3, :3], atol=1e-14)


def test_quaternions_and_rotations():
    rng = np.random.default_rng(1)
    q = rng.standard_normal((200, 4))
    q[:4] = np.eye(4)  # turns by pi, where the scalar part vanishes
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    R = rotation_matrices(q)
    np.testing.assert_allclose(R @ np.swapaxes(R, 1, 2), np.broadcast_to(np.eye(3), R.shape), atol=1e-14)
    v = rng.standard_normal(3)
    w, u = q[:, :1], q[:, 1:]
    turned = v + 2 * w * np.cross(u, v) + 2 * np.cross(u, np.cross(u, v))  # q v q*
    np.testing.assert_allclose(R @ v, turned, atol=1e-14)
    back = quaternions(R)
    np.testing.assert_allclose(np.abs(np.sum(back * q, axis=1)), 1, atol=1e-14)


# -- every kind of map ------------------------------------------------------------------------------


def chain(n=3):
    frame = tz(-0.3, name="end")
    for i in reversed(range(n)):
        mass = Mass(1.0, (0.02, 0.02, 0.001), (0, 0, -0.15))
        joint = spherical(f"s{i}", frame=f"link{i}", mass=mass)
        frame = joint[frame] if i == n - 1 else joint[tz(-0.3)[frame]]
    return System(Gravity(0, 0, -9.81), tx(0.1)[frame], name="chain")


@pytest.mark.parametrize("kind", [vioc.MidpointVI, LinearTimeVI, MaximalVI])
def test_frames_are_where_the_map_has_them(kind):
    f = kind(chain(), 0.01)
    run = f.rollout(f.initial_state({"s0-rx": 0.8, "s1-ry": 0.7}), steps=20)
    scene = scene_of(run)
    np.testing.assert_allclose(scene.positions, f.frame_positions(run.x), atol=1e-12)
    assert len(scene.bodies) == 3 and len(scene.kind("link")) == 3


def test_composed_maps_and_runge_kutta_draw_alike():
    f = vioc.MidpointVI(vioc.models.load("double_pendulum"), 0.01)
    q = dict.fromkeys(f.system.dynamic, 0.4)
    for g in (vioc.Composition(f, 4), vioc.RungeKutta(f.system, 0.01)):
        run = g.rollout(g.initial_state(q), steps=5)
        np.testing.assert_allclose(scene_of(run).positions, g.frame_positions(run.x), atol=1e-13)


def test_bodies_of_maximal_coordinates_with_masses_on_several_frames():
    arm = ry("a", name="arm", mass=Mass(1.0, (0.1, 0.1, 0.1)))[
        tx(0.5)[ry(0.3, name="hook", mass=Mass(2.0, (0.01, 0.02, 0.02), (0.1, 0, 0.2)))]
    ]
    f = MaximalVI(System(Gravity(0, 0, -9.81), arm), 0.01)
    run = f.rollout(f.initial_state({"a": 0.5}), steps=5)
    scene = scene_of(run)
    np.testing.assert_allclose(scene.positions, f.frame_positions(run.x), atol=1e-12)
    kinematics = Kinematics(f.system)
    pose = kinematics.pose("hook", [run["a"][-1]])
    np.testing.assert_allclose(scene.rotations[-1, -1], pose[:3, :3], atol=1e-12)
    np.testing.assert_allclose(scene.positions[-1, -1], pose[:3, 3], atol=1e-12)


def test_a_map_without_frames_is_refused():
    from vioc import CasadiMap

    plain = CasadiMap(ca.Function("f", [ca.SX.sym("x"), ca.SX.sym("u")], [ca.SX(1)]), dt=0.1)
    with pytest.raises(TypeError, match="CasadiMap has no frames"):
        scene_of(plain.rollout([0.0], steps=2))


def test_times_take_the_nearest_sample():
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.1)
    run = f.rollout(f.initial_state(f.system.dynamic and {f.system.dynamic[0]: 0.5}), steps=10)
    scene = scene_of(run, np.array([-1.0, 0.04, 0.06, 0.52, 9.0]))
    np.testing.assert_array_equal(scene.positions, scene_of(run).positions[[0, 0, 1, 5, 10]])


# -- lines ------------------------------------------------------------------------------------------


def lines(scene, kind):
    return {line.name: line.points[0].round(12).tolist() for line in scene.kind(kind)}


def test_components_are_drawn():
    system = System(
        tx("x", name="cart", mass=2.0)[ry("a", name="pole")[tz(1.0, name="tip", mass=P("m", 0.5))]],
        tx(1.0, name="wall"),
        tz("z", name="bob", mass=1.0),
        LinearSpring("wall", "tip", 1.0, name="coil"),
        LinearDamper("wall", "cart", 1.0),
        DistanceConstraint("world", "tip", 1.0, name="bar"),
        StringConstraint("bob", "wall", K("length"), name="cord"),
        coincident("tip", "bob", "xz", name="pin"),
        PointOnPlane("tip", "world", (0, 0, 2.0), 1.0, name="lid"),
    )
    q = {"x": 0.5, "z": -0.2}
    scene = scene_at(system, Kinematics(system).configuration(q))
    assert lines(scene, "link") == {"tip": [[0.5, 0, 0], [0.5, 0, 1]]}
    assert lines(scene, "ground") == {"wall": [[0, 0, 0], [1, 0, 0]]}
    assert lines(scene, "spring") == {"coil": [[1, 0, 0], [0.5, 0, 1]]}
    assert lines(scene, "damper") == {"": [[1, 0, 0], [0.5, 0, 0]]}
    assert lines(scene, "rod") == {"bar": [[0, 0, 0], [0.5, 0, 1]]}
    assert lines(scene, "string") == {"cord": [[0, 0, -0.2], [1, 0, 0]]}
    assert lines(scene, "pin") == {"tip-bob": [[0.5, 0, 1], [0, 0, -0.2]]}
    (plane,) = scene.kind("plane")
    np.testing.assert_allclose(plane.points[0, :, 2], 0.5)  # c / |n|
    assert [(b.name, b.mass, b.kind) for b in scene.bodies] == [
        ("cart", 2.0, "carriage"),
        ("tip", 0.5, "body"),
        ("bob", 1.0, "carriage"),
    ]
    center = np.array([2 * 0.5 + 0.5 * 0.5, 0, 0.5 * 1 - 0.2]) / 3.5
    np.testing.assert_allclose(scene.center_of_mass()[0], center, atol=1e-12)
    np.testing.assert_array_equal(scene.track("tip")[0], scene.positions[0, 2])
    with pytest.raises(ModelError, match="did you mean 'tip'"):
        scene.track("tipp")


def test_rails_go_as_far_as_the_motion_and_move_with_what_carries_them():
    arm = System(ry("a", name="arm")[tz("x", name="slider", mass=1.0)])
    a = np.linspace(0, 2, 30)
    scene = scene_at(arm, np.column_stack([a, 0.2 + a / 4]))
    (rail,) = scene.kind("rail")
    along = np.stack([np.sin(a), 0 * a, np.cos(a)], axis=1)
    margin = 0.03 * np.ptp(scene.positions, axis=(0, 1)).max()
    np.testing.assert_allclose(rail.points[:, 0], (0.2 - margin) * along, atol=1e-12)
    np.testing.assert_allclose(rail.points[:, 1], (0.7 + margin) * along, atol=1e-12)
    assert rail.group == 0  # the arm carries it


def test_a_rail_begins_at_the_body_that_has_it():
    """A leg that slides in a body is seen to hang on it; that of a bare frame begins where the leg is."""
    lengths = np.array([[-0.6], [-0.4]])
    heavy, bare = (
        scene_at(System(tz(1.0, name="hip", mass=mass)[tz("r", name="foot", mass=0.1)]), lengths).kind("rail")
        for mass in (1.0, None)
    )
    assert heavy[0].points[0, :, 2].max() == 1.0 and 0.5 < bare[0].points[0, :, 2].max() < 0.7


def test_a_rope_that_hoists_is_a_line_from_its_pivot_to_the_load():
    crane = System(tx("x", name="cart", mass=1.0)[ry("swing")[tz(K("rope"), name="load", mass=2.0)]])
    Q = dict(x=[0.0, 0.5], swing=[0.2, -0.1], rope=[-1.0, -0.4])
    scene = scene_at(crane, np.array([Q[n] for n in crane.variables]).T)
    (rope,) = scene.kind("link")
    assert rope.name == "load" and rope.group is None
    ends = np.array([[x - r * np.sin(-a), 0, r * np.cos(a)] for x, a, r in zip(*Q.values(), strict=True)])
    np.testing.assert_allclose(rope.points[:, 1], ends, atol=1e-15)
    np.testing.assert_allclose(rope.points[:, 0], [[0, 0, 0], [0.5, 0, 0]], atol=1e-15)


def test_an_elastic_rope_over_a_drum_is_drawn_as_a_string_over_a_sheave_is():
    frames = tx(-0.5)[tz("a", name="one", mass=1.0)], tx(0.5)[tz("b", name="two", mass=1.0)]
    drum = tz(1.0, name="drum")
    string = SheaveString("one", "two", 3.0, "drum", 0.2)
    rope = DrumRope("one", "two", "drum", "slip", 3.0, 1e3, 0.2)
    scenes = [
        scene_at(System(*frames, drum, *more), np.array([[-0.4, -0.6, 0.0][:n]]))
        for n, more in ((2, [string]), (3, [tx("slip", mass=0.1), rope]))
    ]
    for kind in ("string", "sheave"):
        (one,), (other,) = (scene.kind(kind) for scene in scenes)
        np.testing.assert_array_equal(one.points, other.points)


def test_free_motion_has_no_rails():
    loose = scene_at(System(tx("x")[tz("z", name="bob", mass=1.0)]), np.ones((2, 2)))
    crane = scene_at(System(tx("x", mass=2.0)[tz("z", mass=1.0)]), np.ones((2, 2)))
    assert not loose.kind("rail") and loose.bodies[0].kind == "body"
    assert len(crane.kind("rail")) == 2


@pytest.mark.parametrize("extensible", [False, True])
def test_a_cable_is_one_line_and_its_load_a_body(extensible):
    section = round_section(0.01, density=1000.0, young=1e6)
    rope = cable("rope", 4, 2.0, section, extensible=extensible)[tz(0.0, name="load", mass=3.0)]
    system = System(tx(K("trolley"), name="trolley")[rope.frame], rope.terms)
    scene = scene_at(system, np.zeros((1, len(system.variables))))
    (drawn,) = scene.kind("cable")
    np.testing.assert_allclose(drawn.points[0, :, 2], [0, -0.5, -1, -1.5, -2], atol=1e-12)
    assert not scene.kind("link") and len(scene.kind("rail")) == 1
    assert [b.name for b in scene.bodies if b.kind != "cable"] == ["trolley", "load"]
    assert [b.kind for b in scene.bodies[:1]] == ["carriage"] and scene.bodies[0].mass == 0


def test_links_that_are_numbered_are_no_cable():
    scene = scene_at(vioc.models.load("n_link_pendulum:5"), np.zeros((1, 5)))
    assert not scene.kind("cable") and len(scene.kind("link")) == 5
    assert all(b.kind == "body" for b in scene.bodies)


@pytest.mark.parametrize("radius", [0.0, 0.2])
def test_a_string_over_a_sheave_is_as_long_as_the_constraint_says(radius):
    item = SheaveString("a", "b", 3.0, "wheel", radius, axis=(0.0, 1.0, 0.0), name="cord")
    system = System(
        ry("turn")[tz(2.0, name="wheel")],
        tx(-0.5)[tz("p", name="a", mass=1.0)],
        tx(0.6)[tz("q", name="b", mass=1.0)],
        item,
    )
    Q = np.array([[0.0, 0.5, 0.3], [0.1, 0.5, 1.0], [0.2, 1.0, 0.0]])
    graph = FrameGraph(system)
    length = ca.Function("s", [graph.q_vector], [item.path(graph)])
    (string,) = scene_at(system, Q).kind("string")
    drawn = np.linalg.norm(np.diff(string.points, axis=1), axis=2).sum(axis=1)
    expected = [float(length(q)) for q in Q]
    np.testing.assert_allclose(drawn, expected, rtol=3e-3 if radius else 1e-12)  # chords of the arc
    if radius:
        center = scene_at(system, Q).track("wheel")
        far = np.linalg.norm(string.points[:, 1:-1] - center[:, None], axis=2)
        np.testing.assert_allclose(far, radius, rtol=1e-12)


# -- bodies and solids ------------------------------------------------------------------------------


def test_the_box_of_a_mass_has_its_inertia():
    x, y, z, m = 0.4, 0.2, 0.1, 3.0
    turned = Kinematics(System(rx("a")[ry("b", name="f")])).pose("f", [0.3, 0.7])[:3, :3]
    J = turned @ np.diag([y * y + z * z, x * x + z * z, x * x + y * y]) @ turned.T * m / 12
    scene = scene_at(System(ry("a", mass=Mass(m, J, (0.1, 0, 0)))), [[0.0]])
    (body,) = scene.bodies
    np.testing.assert_allclose(sorted(body.edges), [z, y, x], rtol=1e-12)
    np.testing.assert_allclose(np.linalg.det(body.axes), 1, rtol=1e-12)
    long = body.axes[:, np.argmax(body.edges)]
    assert abs(long @ turned[:, 0]) == pytest.approx(1, rel=1e-12)


def test_contacts_are_drawn_by_their_shapes():
    slope = HalfSpace(point=(0, 0, 1.0), normal=(0, 3.0, 4.0))
    system = System(
        free("b", frame="box", mass=Mass(1.0, (0.1, 0.1, 0.1))),
        free("c", frame="pill", mass=Mass(1.0, (0.1, 0.1, 0.1))),
        free("d", frame="ball", mass=Mass(1.0, (0.1, 0.1, 0.1))),
        Contact.box("box", (0.4, 0.3, 0.2), (0.1, 0, 0), name="box"),
        Contact.box("box", (0.4, 0.3, 0.2), (0.1, 0, 0), ground=slope, name="sloped"),
        Contact.capsule("pill", 0.1, 0.5, axis=(1, 1, 0), name="pill"),
        Contact.sphere("ball", 0.2, (0, 0, 0.1), name="ball"),
        PairContact("ball", Sphere(0.25), "pill", Sphere(0.05)),
    )
    scene = scene_at(system, np.zeros((1, 18)))
    kinds = [s.kind for s in scene.solids]
    assert sorted(kinds) == ["box", "capsule", "ground", "ground", "sphere", "sphere", "sphere"]
    box, pill = scene.solids[kinds.index("box")], scene.solids[kinds.index("capsule")]
    np.testing.assert_allclose((*box.size, *box.position), [0.4, 0.3, 0.2, 0.1, 0, 0], atol=1e-12)
    np.testing.assert_allclose((*pill.size, *pill.position), [0.1, 0.5, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(pill.rotation[:, 2], np.array([1, 1, 0]) / np.sqrt(2), atol=1e-12)
    sloped = scene.solids[1]
    np.testing.assert_allclose(sloped.rotation[:, 2], [0, 0.6, 0.8], atol=1e-12)
    np.testing.assert_allclose(sloped.position, 0.8 * np.array([0, 0.6, 0.8]), atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "size", "inside"),
    [
        ("sphere", (0.3,), lambda p: np.linalg.norm(p, axis=1) - 0.3),
        ("box", (0.2, 0.4, 0.6), lambda p: np.max(np.abs(p) - [0.1, 0.2, 0.3], axis=1)),
        ("cylinder", (0.2, 0.5), lambda p: np.hypot(p[:, 0], p[:, 1]) - 0.2),
        (
            "capsule",
            (0.2, 0.5),
            lambda p: np.linalg.norm(p - [0, 0, 1] * np.clip(p[:, 2:], -0.25, 0.25), axis=1) - 0.2,
        ),
    ],
)
def test_outlines_lie_on_the_surface(kind, size, inside):
    R = Kinematics(System(rx("a")[ry("b", name="f")])).pose("f", [0.3, 0.7])[:3, :3]
    solid = Solid(0, kind, size, np.array([1.0, 2.0, 3.0]), R)
    points = np.concatenate(outline(solid))
    np.testing.assert_allclose(inside((points - solid.position) @ R), 0, atol=1e-12)


def test_meshes_are_found_in_packages(tmp_path, monkeypatch):
    mesh = tmp_path / "robots" / "arm_description" / "meshes" / "link.stl"
    mesh.parent.mkdir(parents=True)
    mesh.write_text("solid empty\nendsolid empty\n")
    system = System(ry("a", name="link", mass=1.0))

    def found(file, *folders):
        shape = RobotGeometry("link", "mesh", (1.0,) * 3, (0.0,) * 3, tuple(np.eye(3).ravel()), file, None)
        return visual_solids(system, [shape], folders)[0].file

    monkeypatch.delenv("ROS_PACKAGE_PATH", raising=False)
    file = "package://arm_description/meshes/link.stl"
    assert found(file, tmp_path / "robots") == mesh
    assert found(file, tmp_path / "robots" / "arm_description") == mesh
    assert found("meshes/link.stl", tmp_path / "robots" / "arm_description") == mesh
    assert found(f"file://{mesh}") == mesh == found(str(mesh))
    with pytest.raises(FileNotFoundError, match=r"link\.stl.*give its folder as meshes="):
        found(file, tmp_path)
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(tmp_path / "robots"))
    assert found(file, tmp_path) == mesh


# -- several runs, and saved ones -------------------------------------------------------------------


def test_labels():
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.1)
    run = f.rollout(f.state(), steps=2)
    assert list(labelled(run)) == ["run"]
    assert list(labelled([run, run])) == ["run 1", "run 2"]
    assert list(labelled({"a": run})) == ["a"]
    with pytest.raises(ValueError, match="got none"):
        labelled([])
    with pytest.raises(TypeError, match="run 2: expected a trajectory, got float"):
        labelled([run, 1.0])


@pytest.mark.parametrize("kind", [vioc.MidpointVI, MaximalVI])
def test_saved_runs_are_drawn_as_they_were(kind, tmp_path):
    system = System(
        Gravity(0, 0, -9.81), ry("a", name="arm")[tz(P("l", 1.0), name="tip", mass=Mass(1.0, (0.1,) * 3))]
    )
    f = kind(system, 0.01).with_parameters(l=0.8)
    run = f.rollout(f.initial_state({"a": 0.4}), steps=10)
    path = run.save(tmp_path / "run.npz")
    shown = scene_of(read_recorded(path, system))
    np.testing.assert_array_equal(shown.positions, scene_of(run).positions)
    other = System(ry("b", mass=1.0))
    with pytest.raises(FileFormatError, match="not a trajectory of system: it has no"):
        read_recorded(path, other)
    if kind is vioc.MidpointVI:
        with pytest.warns(UserWarning, match="saved from a model that differs"):
            read_recorded(path, system.with_components(ty(1.0, name="mark")))
