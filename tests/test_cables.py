"""Cables: sections, chains, their terms, shapes, equilibria and modes."""

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize
from support.mechanisms import G

import vioc
from vioc.cables import (
    BendingSpring,
    Cable,
    LineDrag,
    MassDamping,
    Section,
    SheaveString,
    beam_stiffness,
    cable,
    catenary,
    longest_step,
    normal_modes,
    rectangular_section,
    round_section,
    static_equilibrium,
    static_sensitivity,
)

BEAM = Section(1.0, axial=1e3, bending=(1.0, 2.0), torsion=0.5, polar=1e-3)
DOWN = vioc.Gravity(0, 0, -G)
RANDOM = np.random.default_rng(0)


def kinds() -> dict[str, Cable]:
    """One of each kind."""
    return {
        "planar": cable("c", 3, 1.5, BEAM),
        "along x": cable("c", 3, 1.5, BEAM, along="x", hinges="z", start="clamped", masses="nodes"),
        "space": cable("c", 3, 1.5, BEAM, hinges="yx", start="clamped"),
        "torsion": cable("c", 2, 1.0, BEAM, hinges="xyz", start="clamped", damping=(0.1, 0.2)),
        "extensible": cable("c", 3, 1.5, BEAM, extensible=True, drag=(0.1, 0.2)),
        "extensible, space": cable(
            "c", 2, 1.0, BEAM, along="y", hinges="xz", extensible=True, masses="nodes"
        ),
        "free": cable("c", 2, 1.0, BEAM, start="free"),
        "free, space": cable("c", 2, 1.0, BEAM, hinges="xy", start="free", extensible=True),
    }


KINDS = pytest.mark.parametrize("rope", kinds().values(), ids=kinds().keys())


def positions(rope: Cable, system: vioc.System, q) -> np.ndarray:
    k = vioc.Kinematics(system)
    return np.array([k.position(node, q) for node in rope.nodes])


# -- sections -------------------------------------------------------------------------------------------


def test_sections():
    wire = round_section(0.02, density=7800, young=2e11, shear=8e10)
    area = np.pi * 1e-4
    assert wire.density == pytest.approx(7800 * area) and wire.axial == pytest.approx(2e11 * area)
    assert wire.bending == pytest.approx((2e11 * np.pi * 1e-8 / 4,) * 2)
    assert wire.torsion == pytest.approx(8e10 * np.pi * 1e-8 / 2)
    assert round_section(2, density=1, inner=1).density == pytest.approx(np.pi * 0.75)
    square = rectangular_section(2.0, 2.0, density=1, young=1, shear=1)
    assert square.torsion == pytest.approx(0.140577 * 16, rel=1e-5)  # Timoshenko and Goodier, table 7.1
    strip = rectangular_section(10.0, 1.0, density=1, young=1, shear=1)
    assert strip.torsion == pytest.approx(0.312325 * 10, rel=2e-4)
    assert strip.bending == pytest.approx((10 / 12, 1000 / 12))


def test_beam_stiffness_has_the_flexibility_of_a_cantilever():
    K = beam_stiffness(2.0, 3.0, 5.0)
    rigid = np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 2.0, 1]])
    assert np.abs(K @ rigid.T).max() < 1e-12 and np.abs(K - K.T).max() == 0
    flexibility = np.linalg.inv(K[3:, 3:])
    assert flexibility[0, 0] == pytest.approx(2 / 3)
    assert flexibility[1:, 1:] == pytest.approx(np.array([[8 / 3, 2], [2, 2]]) / 5)


def test_hinges_are_the_condensed_element():
    """Constant curvature on (16): E I / l inside, 2 E I / l at a clamp; the paper keeps one angle."""
    system = vioc.System(cable("c", 4, 2.0, BEAM, start="clamped"))
    lag, angle = vioc.Lagrangian(system), 0.3
    K = beam_stiffness(0.5, BEAM.axial, BEAM.bending[0])
    bend = np.array([0, 0, -angle / 2, 0, 0, angle / 2])
    assert lag.potential_energy({"c-2": angle}) == pytest.approx(bend @ K @ bend / 2)
    half = beam_stiffness(0.25, BEAM.axial, BEAM.bending[0])
    bend = np.array([0, 0, 0, 0, angle * 0.25 / 2, angle])
    assert lag.potential_energy({"c-1": angle}) == pytest.approx(bend @ half @ bend / 2)
    paper = cable("c", 4, 2.0, BEAM, start="clamped", stiffness="paper", extensible=True)
    x = np.array([0, 0, angle, 0.1, 0, 0])
    found = vioc.Lagrangian(vioc.System(paper)).potential_energy({"c-3": angle, "c-3-e": 0.1})
    assert found == pytest.approx(x @ K @ x / 2)


# -- the chain ------------------------------------------------------------------------------------------


@KINDS
def test_values_survive(rope):
    system = vioc.System(DOWN, rope)
    assert vioc.read_text(vioc.write_text(system)) == system
    again = pickle.loads(pickle.dumps(rope))
    assert again == rope and again.nodes == rope.nodes and again.hinges == rope.hinges
    assert eval(repr(rope)) == rope  # every option is in the notation


@KINDS
def test_mass_and_translation(rope):
    """The whole mass, and a translation's kinetic energy, whatever the shape."""
    system = vioc.System(vioc.tx("cart")[rope.frame], rope.terms)
    q = RANDOM.normal(scale=0.3, size=len(system.variables))
    assert vioc.Lagrangian(system).kinetic_energy(q, {"cart": 2.0}) == pytest.approx(2 * rope.length)


@KINDS
def test_configuration_of_points(rope):
    system = vioc.System(rope)
    steps = positions(rope, system, None)[1:] - positions(rope, system, None)[:-1]
    planar = len(rope.hinges[0]) == 1
    steps = steps + RANDOM.normal(scale=0.15, size=steps.shape)
    if planar:
        off = "xyz".index(next(a for a in "yz" if a not in rope._moves()))
        steps[:, off] = 0.0
    if not rope.extensions:
        steps *= rope.length / rope.segments / np.linalg.norm(steps, axis=1)[:, None]
    points = np.vstack([np.zeros(3), np.cumsum(steps, axis=0)])
    if rope._options["start"] == "free":
        points += np.array([0.1, 0.2, 0.3]) * [a in rope._moves() for a in "xyz"]
    found = positions(rope, system, rope.configuration(points))
    assert np.abs(found - points).max() < 1e-12


def test_children_go_on_the_far_end():
    rope = cable("c", 3, 1.5, BEAM)[vioc.tz(-0.5, name="load", mass=2.0)]
    assert vioc.Kinematics(vioc.System(rope)).position("load", None) == pytest.approx([0, 0, -2.0])


def test_wrong_options_are_named():
    for options, message in (
        ({"segments": 0}, "segments: expected an integer >= 1, got 0"),
        ({"length": -1.0}, "length: expected a finite number > 0"),
        ({"along": "down"}, "along"),
        ({"hinges": "z"}, "hinges: expected different letters"),
        ({"start": "glued"}, "'pinned' or 'clamped' or 'free'"),
        ({"damping": (-1, 0)}, "damping: expected two numbers >= 0"),
        ({"section": Section(1.0), "extensible": True}, "axial > 0"),
        ({"section": Section(1.0), "hinges": "yxz"}, "polar > 0"),
        ({"drag": (1, 1), "masses": "nodes"}, "masses: expected 'rods' with drag"),
    ):
        with pytest.raises(vioc.ModelError, match=message):
            cable(**{"name": "c", "segments": 3, "length": 1.0, "section": BEAM, **options})
    rope = cable("c", 3, 1.0, BEAM)
    with pytest.raises(vioc.ModelError, match=r"node: expected 0 \.\.\. 3, got 4"):
        rope.attach("world", 4)
    with pytest.raises(vioc.ModelError, match="only the far end is clamped here"):
        rope.attach("world", 1, clamped=True)
    with pytest.raises(vioc.ModelError, match="segment 1 leaves the plane"):
        rope.configuration([[0, 0, 0], [0, 1, -1], [0, 1, -2], [0, 1, -3]])
    for wrong in ({"density": 0}, {"density": 1, "axial": -1}, {"density": 1, "bending": (1, 2, 3)}):
        with pytest.raises(vioc.ModelError, match="section"):
            Section(**wrong)
    with pytest.raises(vioc.ModelError, match="inner"):
        round_section(1, density=1, inner=1)


# -- terms ----------------------------------------------------------------------------------------------


def test_bending_spring_is_an_angle_to_third_order():
    system = vioc.System(
        vioc.rz("a")[vioc.ry("b")[vioc.rx("c", name="end", mass=vioc.Mass(1, (1, 1, 1)))]],
        BendingSpring("world", "end", (1.0, 2.0, 3.0)),
    )
    lag = vioc.Lagrangian(system)
    for name, k in (("c", 1.0), ("b", 2.0), ("a", 3.0)):
        assert lag.potential_energy({name: 0.7}) == pytest.approx(k / 2 * (2 * np.tan(0.35)) ** 2)
        assert lag.potential_energy({name: -1e-3}) == pytest.approx(k / 2 * 1e-6, rel=1e-6)
    with pytest.raises(vioc.ModelError, match="stiffness: expected numbers >= 0"):
        BendingSpring("world", "end", (1, -1, 0))


def test_atwood_machine_over_a_sheave():
    """Acceleration, tension, and the length around half a turn."""
    m1, m2, r = 3.0, 2.0, 0.25
    length = 1.0 + 2.0 + np.pi * r
    system = vioc.System(
        vioc.tx(r)[vioc.tz("left", name="one", mass=m1)],
        vioc.tx(-r)[vioc.tz("right", name="two", mass=m2)],
        vioc.tz(0.0, name="sheave"),
        # counter-clockwise about -y goes from +x over the top to -x
        SheaveString("one", "two", length, "sheave", r, (0, -1, 0), name="string"),
        DOWN,
    )
    lag = vioc.Lagrangian(system)
    assert abs(lag.constraints({"left": -1.0, "right": -2.0})[0]) < 1e-14
    f = vioc.MidpointVI(system, 0.01)
    run = f.rollout(f.initial_state({"left": -1.0, "right": -2.0}), steps=30)
    a = (m1 - m2) / (m1 + m2) * G
    assert run["left"][-1] == pytest.approx(-1 - a * 0.3**2 / 2, abs=1e-9)
    assert run["tension.string"][1:] == pytest.approx(2 * m1 * m2 / (m1 + m2) * G, rel=1e-9)


def test_sheave_length_by_winding_a_polygon():
    """Against the taut path around a fine polygon, found from tangent points alone."""
    r, c = 0.3, np.array([0.1, 0.0, -0.2])
    p1, p2 = c + [1.0, 0, -0.4], c + [-0.5, 0, -0.7]
    system = vioc.System(
        vioc.tx("x")[vioc.se3(tuple(p1), name="p1", mass=1.0)],
        vioc.se3(tuple(p2), name="p2"),
        vioc.se3(tuple(c), name="s"),
        SheaveString("p1", "p2", 1.0, "s", r, (0, -1, 0)),
    )
    plane = lambda p: complex(p[0], p[2])  # noqa: E731 - counter-clockwise about -y
    a, b, o = plane(p1), plane(p2), plane(c)
    angles = np.linspace(0, 2 * np.pi, 400001)
    rim = o + r * np.exp(1j * angles)
    normal = lambda p: np.abs(((rim - p) * np.conj(rim - o)).real)  # noqa: E731
    outside = [angles[np.argsort(normal(p))[:40]] for p in (a, b)]
    best = np.inf
    for s in outside[0][::3]:
        for t in outside[1][::3]:
            arc = (t - s) % (2 * np.pi)
            path = abs(o + r * np.exp(1j * s) - a) + r * arc + abs(o + r * np.exp(1j * t) - b)
            leaves = ((o + r * np.exp(1j * s) - a) * np.conj(1j * np.exp(1j * s))).real > 0
            enters = ((b - o - r * np.exp(1j * t)) * np.conj(1j * np.exp(1j * t))).real > 0
            best = min(best, path) if leaves and enters else best
    h = vioc.Lagrangian(system).constraints(None)[0]
    assert h + 1.0 == pytest.approx(best, abs=1e-6)


def test_a_string_leaves_its_sheave():
    """Where the straight line is clear of the sheave the string is that, with one slope where it leaves."""
    r = 0.3
    system = vioc.System(
        vioc.tx(-1.0, name="a"),
        vioc.tx(1.0)[vioc.tz("z", name="b", mass=1.0)],
        vioc.tx(0.0, name="sheave"),
        SheaveString("b", "a", 1.0, "sheave", r, (0, -1, 0), name="rope"),
        DOWN,
    )
    lag = vioc.Lagrangian(system)
    length = lambda z: lag.constraints({"z": z})[0] + 1.0  # noqa: E731
    slope = lambda z: lag.constraint_jacobian({"z": z})[0, 0]  # noqa: E731
    edge = 2 * r / np.sqrt(1 - r**2)  # there the line from (-1, 0) touches the sheave
    for z in (edge + 1e-9, 0.8, 2.0):
        assert length(z) == pytest.approx(np.hypot(2, z), abs=1e-14)
    assert length(edge - 1e-6) == pytest.approx(length(edge + 1e-6), abs=1e-5)
    assert slope(edge - 1e-9) == pytest.approx(slope(edge + 1e-9), abs=1e-6)
    assert length(edge - 0.1) > np.hypot(2, edge - 0.1)


@pytest.mark.parametrize("kind", [vioc.MidpointVI, vioc.LinearTimeVI])
def test_the_direction_of_a_rod_may_be_a_parameter_of_any_length(kind):
    rods = vioc.tx("x", name="a", mass=1.0)[vioc.tz("z", name="b", mass=1.0)]
    system = vioc.System(rods, LineDrag("a", "b", 2.0, (vioc.P("d", 1.0), 0, 0), 1.0, 3.0))
    f = kind(system, 0.01).with_parameters(d=2.0)
    run = f.rollout(f.initial_state({}, {"x": 1.0}), steps=100)
    assert run["v.x"][-1] == pytest.approx(np.exp(-2), rel=2 * 0.01**2)  # two rods of 2 m over 2 kg


def test_winch_lifts_a_load():
    system = vioc.System(
        vioc.tx(1.0, name="eye"),
        vioc.tx(2.0)[vioc.tz("z", name="load", mass=1.0)],
        SheaveString("world", "load", vioc.K("wire"), "eye", name="wire"),
        DOWN,
    )
    f = vioc.MidpointVI(system, 0.01)
    start = vioc.consistent_configuration(system, {"z": -1.0, "wire": 1 + np.sqrt(2)})
    v = vioc.project_velocity(system, start, {"wire": -0.1})
    wire = start["wire"] - 0.1 * 0.01 * np.arange(1, 101)
    run = f.rollout(f.initial_state(start, v), wire[:, None])
    assert run["z"] == pytest.approx(-np.sqrt((run["wire"] - 1) ** 2 - 1), abs=1e-11)


def test_dissipation_is_power():
    """F.v of drag and damping against sums over points of the cable."""
    rope = cable(
        "c", 3, 1.5, BEAM, hinges="yx", drag=(0.3, 0.7), damping=(0.4, 0.01), start="free", extensible=True
    )
    system = vioc.System(rope)
    kinds = {
        type(t): vioc.System(rope.frame, t) for t in rope.terms if isinstance(t, (LineDrag, MassDamping))
    }
    q, v = RANDOM.normal(scale=0.3, size=(2, len(system.variables)))

    def power(kind):
        lag = vioc.Lagrangian(kinds[kind])
        f = lag.function("F", [lag.F])
        return float(v @ np.array(f(q, v, [], 0.0, [])).ravel())

    assert power(MassDamping) == pytest.approx(-0.8 * vioc.Lagrangian(system).kinetic_energy(q, v))
    k, total = vioc.Kinematics(system), 0.0
    points, weights = np.polynomial.legendre.leggauss(2)
    for i, node in enumerate(system.nodes):
        if node.frame.mass is None:
            continue
        # a rod of a quarter of a metre about its centre of mass, along z, by Gauss's rule
        named = node.frame.mass
        twist = _twist(system, i, q, v)
        for s, w in zip(points, weights, strict=True):
            at = np.array(named.com) + [0, 0, s * 0.125]
            speed = twist[:3] + np.cross(twist[3:], at)
            total += 0.125 * w * (0.3 * speed[2] ** 2 + 0.7 * (speed[0] ** 2 + speed[1] ** 2))
    assert power(LineDrag) == pytest.approx(-total)
    assert k.position("c-0", q).shape == (3,)


def _twist(system, i, q, v):
    import casadi as ca

    g = vioc.Lagrangian(system).graph
    linear, angular = g.node_velocity(i)
    f = ca.Function("twist", [g.q_vector, g.v_vector], [ca.vertcat(*linear, *angular)])
    return np.array(f(q, v)).ravel()


def test_a_chain_must_descend():
    rope = cable("c", 2, 1.0, BEAM)
    with pytest.raises(vioc.ModelError, match="no mass lies between 'c-2' and 'c-0'"):
        vioc.System(rope, MassDamping("c-2", "c-0", 1.0))


# -- shapes and equilibria ------------------------------------------------------------------------------


def test_catenary_is_one():
    points = catenary((0.1, 0.2, 0.3), (1.1, 1.2, 0.8), 2.5, 400)
    steps = np.diff(points, axis=0)
    assert points[-1] == pytest.approx([1.1, 1.2, 0.8])
    assert np.linalg.norm(steps, axis=1).sum() == pytest.approx(2.5, rel=1e-5)
    slope = steps[:, 2] / np.hypot(steps[:, 0], steps[:, 1])  # grows in proportion to the arc length
    assert np.ptp(np.diff(slope)) < 1e-3 * np.diff(slope).mean()
    with pytest.raises(vioc.ModelError, match="length of more than 1 m, got 0.5"):
        catenary((0, 0, 0), (1, 0, 0), 0.5, 3)
    with pytest.raises(vioc.ModelError, match="above one another"):
        catenary((0, 0, 0), (0, 0, 1), 2.0, 3)


def test_equilibrium_by_another_minimizer():
    rope = cable(
        "c", 4, 1.5, Section(1.0, axial=50.0, bending=0.2), along="x", extensible=True, start="clamped"
    )
    system = vioc.System(rope, vioc.tx(1.0, name="hook"), rope.attach("hook"), DOWN)
    found = static_equilibrium(system)
    assert found.stable and found.violation < 1e-12 and found.residual < 1e-10
    lag = vioc.Lagrangian(system)
    constraint = {"type": "eq", "fun": lag.constraints, "jac": lag.constraint_jacobian}
    q0 = found.q + RANDOM.normal(scale=0.02, size=len(found.q))
    other = minimize(
        lag.potential_energy, q0, constraints=constraint, options={"maxiter": 500, "ftol": 1e-14}
    )
    assert other.fun == pytest.approx(found.energy, rel=1e-8)
    assert np.abs(other.x - found.q).max() < 1e-3
    assert "stable" in repr(found) and found["c-1"] == found.q[system.variables.index("c-1")]


def test_equilibrium_under_a_load():
    """A force on the tip of a clamped beam: its deflection, the state of the same weight, rest, slopes."""
    load = vioc.P("load", -1.0)
    beam = cable("c", 20, 1.0, Section(1.0, bending=200.0), along="x", start="clamped")
    loaded = vioc.System(beam, vioc.Wrench("c-20", (0.0, 0.0, load), axes="hybrid"))
    found = static_equilibrium(loaded)
    tip = positions(beam, loaded, found.q)[-1][2]
    assert tip == pytest.approx(-1.0 / (3 * 200.0), rel=2e-3)  # -F L^3 / 3 E I, to the order of the segments
    assert found.stable and found.residual < 1e-10
    hung = beam[vioc.tx(0.0, name="end", mass=1.0)]
    hung = static_equilibrium(vioc.System(hung, vioc.MassGravity("end", 0.0, 0.0, -1.0)))
    assert found.q == pytest.approx(hung.q, abs=1e-12)
    f = vioc.MidpointVI(loaded, 0.01)
    run = f.rollout(f.initial_state(found), steps=20)
    assert np.abs(run.x[:, : f.nq] - found.q).max() < 1e-10
    far = static_equilibrium(loaded, load=-1000.0)  # F L^2 / E I = 5
    assert positions(beam, loaded, far.q)[-1][2] == pytest.approx(-0.71379, abs=2e-3)  # the elastica's
    ends = [static_equilibrium(loaded, far.q, load=-1000.0 + h).q for h in (1.0, -1.0)]
    slope = static_sensitivity(far, "load")["load"]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2, abs=1e-5 * np.abs(slope).max())


def test_a_pulled_rope_has_the_frequencies_of_a_string():
    """The pull's slope is in the stiffness: without it the modes of a rope without weight are all zero."""
    rope = cable("c", 45, 2.0, Section(0.5), along="x")
    pulled = vioc.System(
        rope[vioc.tx(0.0, name="end", mass=1e4)], vioc.Wrench("end", (30.0, 0, 0), axes="hybrid")
    )
    found = static_equilibrium(pulled)
    assert found.stable
    omega = normal_modes(found).omega[1:3]  # the first is the heavy end's
    assert omega == pytest.approx(np.pi / 2.0 * np.sqrt(30.0 / 0.5) * np.array([1, 2]), rel=2e-3)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            vioc.Wrench("c-3", (0.0, 0.0, -1.0), name="follower"),
            "the work of .*follower.* depends on the path",
        ),
        (vioc.UserForce(lambda k: {"c-1": k.t}, name="growing"), "growing.* depends on time"),
        (vioc.JointLimits("c-1", -0.1, 0.1, name="stop"), "stop is passed by 1.47"),
        (  # of a rope of 1 m that hangs straight, by the radius alone
            vioc.Contact("c-3", offset=-1.2, radius=0.25, name="ground"),
            "ground is passed by 0.05,",
        ),
    ],
)
def test_loads_that_no_equilibrium_is_found_with(load, message):
    rope = cable("c", 3, 1.0, Section(1.0), along="x")
    with pytest.raises(vioc.ModelError, match=message):
        static_equilibrium(vioc.System(rope, DOWN, load), {"c-1": 0.3})


def test_equilibrium_is_a_state_at_rest():
    rope = cable("c", 6, 1.5, Section(1.0, bending=0.1), along="x", hinges="yz")
    system = vioc.System(rope, vioc.se3((0.8, 0.3, 0.1), name="hook"), rope.attach("hook", name="hook"), DOWN)
    guess = rope.configuration(catenary((0, 0, 0), (0.8, 0.3, 0.1), 1.5, 6))
    found = static_equilibrium(system, guess)
    f = vioc.MidpointVI(system, 0.01)
    run = f.rollout(f.initial_state(found), steps=20)
    assert np.abs(run.x[:, : f.nq] - found.q).max() < 1e-9
    assert run["lambda.hook-z"][1:] / 0.01 == pytest.approx(found["hook-z"], rel=1e-6)


def test_inverted_and_impossible():
    rope = cable("c", 3, 1.0, Section(1.0))
    upright = rope.configuration([[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3]])
    assert not static_equilibrium(vioc.System(rope, DOWN), upright).stable
    tilted = {name: value + 0.05 for name, value in upright.items()}
    assert static_equilibrium(vioc.System(rope, DOWN), tilted).energy == pytest.approx(-0.5 * G)
    far = vioc.System(rope, vioc.tx(2.0, name="far"), rope.attach("far", name="far"), DOWN)
    with pytest.raises(vioc.errors.ConstraintError, match="far-.* stays violated"):
        static_equilibrium(far, {"c-1": 0.3})


def test_round_beams_bend_alike_in_space():
    """A load across both hinge axes bends a round beam as a load across one."""
    section, ends = Section(1.0, bending=1.0), {}
    for hinges, load in (("y", (0.0, 2.0)), ("yz", (2 * np.sin(0.6), 2 * np.cos(0.6)))):
        rope = cable("c", 20, 1.0, section, along="x", hinges=hinges, start="clamped")
        rope = rope[vioc.tx(0.0, name="end", mass=1.0)]
        system = vioc.System(rope, vioc.MassGravity("end", 0, *load))
        ends[hinges] = positions(rope, system, static_equilibrium(system).q)[-1]
    assert np.hypot(*ends["yz"][1:]) == pytest.approx(ends["y"][2], rel=1e-3)
    assert ends["yz"][1] / ends["yz"][2] == pytest.approx(np.tan(0.6), rel=1e-2)


def gripped() -> tuple[vioc.System, dict[str, float]]:
    """A wire between a clamp and a gripper, and a guess of its arch."""
    wire = cable("c", 6, 1.0, Section(0.1, bending=0.1), along="x", hinges="z", start="clamped")
    grip = vioc.tx(vioc.K("x"))[vioc.ty(vioc.K("y"))[vioc.rz(vioc.K("turn"), name="grip")]]
    system = vioc.System(wire, grip, wire.attach("grip", clamped=True, name="held"))
    return system, {"x": 0.8, "y": 0.1, "turn": -0.2, "c-2": 0.5, "c-4": -0.5}


def test_equilibria_follow_the_gripper():
    """Exact slopes against central differences of equilibria, and a hinge that is held."""
    system, guess = gripped()
    found = static_equilibrium(system, guess)
    slopes = static_sensitivity(found, ("x", "y", "turn"))
    for name, slope in slopes.items():
        i, ends = system.variable_index(name), []
        for h in (1e-5, -1e-5):
            q = found.q.copy()
            q[i] += h
            ends.append(static_equilibrium(system, q).q)
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-7)
    chain = vioc.System(cable("c", 3, 1.5, BEAM, start="clamped"), DOWN)
    bent = [static_equilibrium(chain, {"c-1": 0.3 + h}, fixed="c-1").q for h in (0.0, 1e-5, -1e-5)]
    start = static_equilibrium(chain, bent[0], fixed="c-1")
    assert static_sensitivity(start, "c-1")["c-1"] == pytest.approx((bent[1] - bent[2]) / 2e-5, abs=1e-8)


def test_what_is_made_of_an_equilibrium_has_its_parameters_and_holds_what_it_held():
    """A mass on a spring, and one between two springs whose other end is held."""
    k = vioc.P("k", 3.0)
    one = vioc.System(vioc.tx("a", mass=2.0), vioc.TorsionalSpring("a", k, 0.0))
    assert normal_modes(static_equilibrium(one, k=48.0)).omega == pytest.approx([np.sqrt(24.0)], rel=1e-12)
    two = vioc.System(
        vioc.tx("a", name="first", mass=2.0),
        vioc.tx("b", name="second", mass=5.0),
        vioc.TorsionalSpring("a", 4.0, 0.0),
        vioc.LinearSpring("first", "second", k, 1.0),
    )
    found = static_equilibrium(two, {"a": 0.1, "b": 3.0}, fixed="b", k=8.0)
    assert found.held == ("b",) and found["a"] == pytest.approx(8.0 * 2.0 / 12.0)
    modes = normal_modes(found)
    assert modes.omega == pytest.approx([np.sqrt(6.0)], rel=1e-12)
    assert np.abs(modes.shapes) == pytest.approx(np.array([[1 / np.sqrt(2), 0.0]]), abs=1e-12)
    assert static_sensitivity(found, "k")["k"] == pytest.approx([2 / 12 - 16 / 144, 0.0], rel=1e-9)


def test_nothing_moves_where_all_is_held():
    bob = vioc.tz(-1.0, mass=vioc.P("m", 1.0))
    found = static_equilibrium(
        vioc.System(vioc.ry("a")[bob], vioc.Gravity(0, 0, -9.81)), {"a": 0.3}, fixed="a"
    )
    slopes = static_sensitivity(found, ("a", "m"))
    assert slopes["a"].tolist() == [1.0] and slopes["m"].tolist() == [0.0]


def test_sensitivities_that_there_are_not():
    system, guess = gripped()
    found = static_equilibrium(system, guess)
    with pytest.raises(vioc.ModelError, match="no variable or parameter 'turns'; did you mean 'turn'"):
        static_sensitivity(found, "turns")
    with pytest.raises(vioc.ModelError, match="expected the result of static_equilibrium, got dict"):
        static_sensitivity(guess, "turn")
    flat = vioc.System(vioc.tx("a", mass=1.0), vioc.ty(vioc.K("b"), mass=1.0))
    with pytest.raises(vioc.ModelError, match="not isolated"):
        static_sensitivity(static_equilibrium(flat), "b")


# -- modes ----------------------------------------------------------------------------------------------


def test_two_masses_on_springs():
    """Axial modes of two lumps, by the 2 x 2 eigenvalue problem."""
    rope = cable(
        "c",
        2,
        1.0,
        Section(1.0, axial=3.0, bending=1e4),
        along="x",
        start="clamped",
        extensible=True,
        masses="nodes",
    )
    modes = normal_modes(static_equilibrium(vioc.System(rope)))
    k, m = 6.0, 0.5
    squares = np.sort(np.linalg.eigvals(np.diag([1 / m, 2 / m]) @ np.array([[2 * k, -k], [-k, k]])))
    assert modes.omega[:2] == pytest.approx(np.sqrt(squares), rel=1e-12)
    assert abs(modes.shape(0)["c-1"]) < 1e-12 and len(modes) == 4
    lag = vioc.Lagrangian(vioc.System(rope))
    assert modes.shapes @ lag.mass_matrix(None) @ modes.shapes.T == pytest.approx(np.eye(4), abs=1e-9)


def test_torsional_frequency():
    section = Section(1.0, bending=1e3, torsion=0.5, polar=1e-3)
    rope = cable("c", 16, 1.0, section, along="x", hinges="yzx", start="clamped")
    found = normal_modes(static_equilibrium(vioc.System(rope)))
    twisting = [
        w
        for w, s in zip(found.omega, found.shapes, strict=True)
        if abs(s[2::3]).max() > 10 * abs(s[:2]).max()
    ]
    assert twisting[0] == pytest.approx(np.pi / 2 * np.sqrt(0.5 / 1e-3), rel=1e-3)


def test_modes_of_a_run():
    """A small free motion swings at the frequency that the midpoint rule makes of omega."""
    rope = cable("c", 5, 1.0, Section(1.0, bending=0.05), start="clamped")
    system = vioc.System(rope, DOWN)
    modes = normal_modes(static_equilibrium(system), 1)
    f = vioc.MidpointVI(system, 0.02)
    A, _ = f.linearize(f.initial_state())
    lam = np.linalg.eigvals(A)
    expected = 2 * np.arctan(modes.omega[0] * 0.01)
    assert np.abs(np.abs(np.angle(lam)) - expected).min() < 1e-10


# -- motion ---------------------------------------------------------------------------------------------


def test_constraints_do_not_drift():
    rope = cable("c", 8, 1.0, Section(0.5, axial=200.0, bending=0.01), along="x", extensible=True)
    system = vioc.System(rope, vioc.tx(0.8, name="hook"), rope.attach("hook", name="hook"), DOWN)
    start = static_equilibrium(
        system.with_components(vioc.Gravity(3.0, 0, 0)),
        rope.configuration(catenary((0, 0, 0), (0.8, 0, 0), 1.0, 8)),
    )
    f = vioc.MidpointVI(system, 0.01, tolerance=1e-13)
    run = f.rollout(f.initial_state(start), steps=500)
    assert max(np.abs(run[f"h.hook-{a}"]).max() for a in "xz") <= 1e-14
    assert np.ptp(run.energy) < 0.05 * run["kinetic"].max()


def test_both_integrators_go_to_one_motion():
    rope = cable("c", 6, 2.0, Section(0.5, bending=0.01))
    system = vioc.System(rope, DOWN)
    start = static_equilibrium(vioc.System(rope, DOWN, vioc.Gravity(4.0, 0, 0)))
    maps, gaps = (vioc.MidpointVI(system, 0.01), vioc.LinearTimeVI(system, 0.01)), []
    for dt in (0.004, 0.002, 0.001):
        a, b = (
            g.rollout(g.initial_state(start), steps=round(0.4 / dt)).x[-1, :6]
            for g in (f.with_dt(dt) for f in maps)
        )
        gaps.append(np.abs(a - b).max())
    assert np.diff(np.log2(gaps)) == pytest.approx([-2, -2], abs=0.2)


@pytest.mark.parametrize("masses, extensible", [("rods", False), ("nodes", False), ("rods", True)])
def test_held_cables_have_a_longest_step(masses, extensible):
    """Just below it the eigenvalues of A lie on the unit circle, just above they do not."""
    rope = cable("c", 6, 1.2, Section(1.0, 500.0), along="x", masses=masses, extensible=extensible)
    system = vioc.System(rope, vioc.tx(0.7, name="hook"), rope.attach("hook", name="hook"), DOWN)
    start = static_equilibrium(system, rope.configuration(catenary((0, 0, 0), (0.7, 0, 0), 1.2, 6)))
    limit = longest_step(start)
    whole = vioc.MidpointVI(system, limit)
    for factor, stable in ((0.99, True), (1.01, False)):
        f = whole.with_dt(factor * limit)
        steady = f.step(f.initial_state(start))  # a start's momentum holds half of the impulse
        size = np.abs(np.linalg.eigvals(next(iter(f.linearize(steady))))).max()
        assert (size < 1 + 1e-9) if stable else (size > 1.1)
    assert longest_step(static_equilibrium(vioc.System(rope, DOWN))) == np.inf


def test_a_failed_step_of_a_taut_cable_says_where_the_limit_is():
    rope = cable("c", 8, 1.2, Section(1.0), along="x")
    system = vioc.System(rope, vioc.tx(0.7, name="hook"), rope.attach("hook", name="hook"), DOWN)
    guess = rope.configuration(catenary((0, 0, 0), (0.7, 0, 0), 1.2, 8))
    start = static_equilibrium(system.with_components(vioc.Gravity(3.0, 0, 0)), guess)
    f = vioc.MidpointVI(system, 2 * longest_step(static_equilibrium(system, guess)))
    with pytest.raises(vioc.StepError, match="quarter turn .*vioc.cables.longest_step tells the limit"):
        f.rollout(f.initial_state(start), steps=60)


def test_stiff_hinges_are_in_the_matrix_of_sweeps():
    """With the mass matrix alone the chord iteration diverges where springs outweigh it, dt^2 k >> 4 m."""
    beam = cable("c", 16, 1.0, Section(1.0, bending=50.0), along="x", start="clamped")
    f = vioc.MidpointVI(vioc.System(beam, DOWN), 0.02)
    assert f._articulated
    lag, q = f.lagrangian, np.full(f.nq, 0.02)
    K = np.diag(np.full(f.nq, 50.0 * 16))
    largest = np.linalg.eigvals(np.linalg.solve(lag.mass_matrix(q), K)).real.max()
    assert f.dt**2 * largest > 400
    x = f.initial_state(q)
    _, _, error = f.kernel.function(x, [], 0.0, f.dt, [])
    assert float(error) < 1e-11
