"""Cables bent in two planes: of second order in a segment's length, against geometrically exact rods."""

import pickle
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support.exact_rod import Rod, shot, shot_between_clamps

import vioc
from vioc.cables import (
    HingeDamping,
    HingeSpring,
    Section,
    cable,
    normal_modes,
    rectangular_section,
    round_section,
    static_equilibrium,
)

# inside: an exact rod is laid along the axis that a cable's argument names
from vioc.cables.chain import direction
from vioc.control import check_derivatives

BENT = Section(1.0, bending=(1.0, 9.0), torsion=0.8, polar=1e-3)
WEIGHT = (0.0, -1.8, 2.4)
HINGES = pytest.mark.parametrize("hinges", ["yzx", "yz"])


def scaled(section: Section) -> Section:
    """One of 1 kg/m whose least bending stiffness is 1 N m^2, in the proportions of another."""
    a, b, k = *section.bending, min(section.bending)
    return Section(1.0, 0.0, (a / k, b / k), section.torsion / k, 1e-3)


# aluminium of 508 mm with 13.345 N on its end: the experiments of Dowell and Traybar at Princeton, 1975
PRINCETON = rectangular_section(12.377e-3, 3.2024e-3, density=2800.0, young=71.7e9, shear=27.37e9)
LOAD = 13.345 * 0.508**2 / PRINCETON.bending[0]
SECTIONS = {
    "rectangle": scaled(PRINCETON),
    "upright": scaled(rectangular_section(1.0, 2.0, density=1.0, young=1.0, shear=0.4)),
    "strip": scaled(rectangular_section(8.0, 1.0, density=1.0, young=1.0, shear=0.4)),
    "round": scaled(round_section(1.0, density=1.0, young=1.0, shear=0.4)),
    "tube": scaled(round_section(1.0, inner=0.9, density=1.0, young=1.0, shear=0.4)),
}
ORDERS = ["".join(p) for p in permutations("xyz")]
shot = cache(shot)


def stiffness(section: Section, hinges: str, along: str = "x") -> tuple[float, float, float]:
    """About the rod's tangent, the axis of the first hinge that bends it, and the axis across both."""
    return section.torsion if along[-1] in hinges else np.inf, *section.bending


def triad(hinges: str, along: str) -> np.ndarray:
    """Columns: these three axes."""
    t, first = direction(along), np.eye(3)["xyz".index(hinges.replace(along[-1], "")[0])]
    return np.column_stack([t, first, np.cross(t, first)])


def end(n: int, section: Section, hinges: str, force, weight=(0, 0, 0), along="x", **more) -> np.ndarray:
    """Position of a cantilever's end."""
    rope = cable("c", n, 1.0, section, along=along, hinges=hinges, start="clamped", **more)
    load = vioc.Wrench(f"c-{n}", tuple(force), axes="hybrid")
    system = vioc.System(rope, load, vioc.Gravity(*weight))
    return vioc.Kinematics(system).position(f"c-{n}", static_equilibrium(system).q)


def judge(found, exact, limit: float, slack: float = 0.1) -> None:
    """Errors of order 2 where segments are halved, and their limit by the last two."""
    gaps = [np.atleast_1d(each - exact) for each in found]
    sizes = [np.linalg.norm(gap) for gap in gaps]
    assert np.diff(np.log2(sizes)) == pytest.approx([-2] * (len(sizes) - 1), abs=slack)
    assert np.linalg.norm(4 * gaps[-1] - gaps[-2]) / 3 < limit


# -- at rest --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hinges", "angle"), [*(("yzx", angle) for angle in (0, 30, 45, 60, 90)), ("yz", 30), ("yz", 60)]
)
def test_the_princeton_beam(hinges, angle):
    """A load on its end at an angle to the axes of a rectangle; without a hinge for torsion it has none."""
    section, turned = SECTIONS["rectangle"], np.radians(angle)
    force = (0.0, LOAD * np.sin(turned), LOAD * np.cos(turned))
    exact, _ = shot(stiffness(section, hinges), force)
    judge([end(n, section, hinges, force) for n in (10, 20)], exact, 1e-5)


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_under_a_weight_and_a_load_across_it(name):
    section, force, weight = SECTIONS[name], (0.1, 0.9, -0.3), (0.0, 0.4, 0.7)
    for hinges, along in (("yzx", "x"), ("xy", "-z")):
        exact, _ = shot(stiffness(section, hinges, along), force, weight)
        axes = triad(hinges, along)
        found = [end(n, section, hinges, axes @ force, axes @ weight, along) for n in (6, 12)]
        judge(found, axes @ exact, 1e-5)


def test_every_order_of_axes():
    force = (0.1, 0.9, -0.3)
    for hinges in (*ORDERS, "yz", "zy"):
        exact, _ = shot(stiffness(BENT, hinges), force)
        axes = triad(hinges, "x")
        judge([end(n, BENT, hinges, axes @ force) for n in (6, 12)], axes @ exact, 1e-5)


@HINGES
def test_a_cable_that_stretches(hinges):
    section, force, weight = replace(BENT, axial=20.0), (0.5, 0.9, -0.3), (0.0, 0.4, 0.7)
    exact, _ = shot(stiffness(section, hinges), force, weight, section.axial)
    judge([end(n, section, hinges, force, weight, extensible=True) for n in (6, 12)], exact, 1e-5)


def test_a_far_end_that_is_clamped_in_space():
    """The moment and the force at the start of a rod that is bent and twisted to a pose."""
    r, R = np.array([0.85, 0.2, 0.25]), Rotation.from_rotvec([0.4, -0.3, 0.5]).as_matrix()
    exact, found = None, []
    for n in (8, 16):
        rope = cable("c", n, 1.0, BENT, along="x", hinges="yzx", start="clamped")
        grip = vioc.se3(r, rotation=R, name="grip")
        system = vioc.System(rope, grip, rope.attach("grip", clamped=True, name="held"))
        guess = {v: a / n for names in rope.hinges for v, a in zip(names, (-0.3, 0.5, 0.4), strict=True)}
        rest = static_equilibrium(system, guess)
        force = -np.array([rest[f"held-{a}"] for a in "xyz"])
        if exact is None:
            exact = shot_between_clamps(stiffness(BENT, "yzx"), r, R, [0, 0, 0, *force])[3:]
        found.append(force)
    judge(found, exact, 1e-3 * np.linalg.norm(exact))


# -- in motion ------------------------------------------------------------------------------------------


def rod(hinges: str, degree: int) -> Rod:
    inertia = np.array([1.0, 0.5, 0.5]) * (BENT.polar if "x" in hinges else 0.0)
    return Rod(stiffness(BENT, hinges), BENT.density, inertia, degree)


@pytest.mark.parametrize(("hinges", "masses"), [("yzx", "rods"), ("yzx", "nodes"), ("yz", "rods")])
def test_modes_about_a_bent_shape(hinges, masses):
    """The slowest four, of bending in both planes and of torsion."""
    exact = rod(hinges, 6)
    omega = exact.frequencies(exact.rest(weight=WEIGHT), weight=WEIGHT)[:4]
    found = []
    for n in (12, 24):
        rope = cable("c", n, 1.0, BENT, along="x", hinges=hinges, start="clamped", masses=masses)
        rest = static_equilibrium(vioc.System(rope, vioc.Gravity(*WEIGHT)))
        found.append(normal_modes(rest, 4).omega / omega)
    for mode in np.transpose(found):
        judge(mode, 1.0, 2e-3, 0.25)


def test_the_two_rods_that_this_is_judged_by_are_one():
    r, R = shot(stiffness(BENT, "yzx"), (0.0, 0.5, 0.5), WEIGHT)
    other = rod("yzx", 7)
    q = other.rest((0.0, 0.5, 0.5), WEIGHT)
    assert other.tip(q) == pytest.approx(r, abs=1e-9)
    assert other.axes(q)[1] == pytest.approx(R, abs=1e-9)


@pytest.mark.parametrize("hinges", ["yz", pytest.param("yzx", marks=pytest.mark.slow)])
def test_a_fall_in_two_planes(hinges):
    """The motion from straight and level, with the material's damping; steps are halved with segments."""
    exact = rod(hinges, 5)
    weight, duration, beta = 2 * np.array(WEIGHT), 0.6, 0.02
    fallen = exact.moved(np.zeros(len(exact.K)), duration, weight, beta)
    found = []
    for n in (5, 10, 20):
        rope = cable("c", n, 1.0, BENT, along="x", hinges=hinges, start="clamped", damping=(0.0, beta))
        f = vioc.MidpointVI(vioc.System(rope, vioc.Gravity(*weight)), 0.1 / n)
        run = f.rollout(f.initial_state(), steps=round(duration / f.dt))
        found.append(np.array([run[f"c-{n}:{a}"][-1] for a in "xyz"]))
    judge(found, exact.tip(fallen), 2e-4)


@pytest.mark.parametrize("damping", [0.0, 0.005])
def test_integrators_go_to_one_motion(damping):
    rope = cable("c", 3, 1.0, BENT, along="x", hinges="yzx", start="clamped", damping=(0.0, damping))
    system, ends = vioc.System(rope, vioc.Gravity(*WEIGHT)), {}
    for kind in (vioc.MidpointVI, vioc.LinearTimeVI, vioc.MaximalVI):
        f = kind(system, 0.002)
        for dt in (0.002, 0.001):
            run = f.rollout(f.initial_state(), steps=round(0.2 / dt), dt=dt)
            ends[kind, dt] = np.array([run[f"c-3:{a}"][-1] for a in "xyz"])
    for kind in (vioc.LinearTimeVI, vioc.MaximalVI):
        gaps = [np.linalg.norm(ends[kind, dt] - ends[vioc.MidpointVI, dt]) for dt in (0.002, 0.001)]
        assert np.log2(gaps[0] / gaps[1]) == pytest.approx(2, abs=0.3)


def test_derivatives():
    rope = cable("c", 2, 1.0, BENT, along="x", hinges="yzx", start="clamped", damping=(0.1, 0.02))
    f = vioc.MidpointVI(vioc.System(rope, vioc.Gravity(*WEIGHT)), 0.02)
    x = np.random.default_rng(4).normal(scale=0.3, size=f.nx) * np.repeat([1.0, 0.1], f.nq)
    assert all(check.error < 2e-6 for check in check_derivatives(f, x, []))


@pytest.mark.parametrize("damping", [(0.0, 0.0), (0.0, 0.01)])
@pytest.mark.parametrize("stiff", [1.0, 100.0])
def test_sweeps_take_the_couplings_of_a_hinge(stiff, damping):
    """A step solved in O(n) is the step solved by the exact matrix, also where springs outweigh masses."""
    strip = Section(1.0, bending=(stiff, 400 * stiff), torsion=2 * stiff, polar=1e-3)
    rope = cable("c", 4, 1.0, strip, along="x", hinges="yzx", start="clamped", damping=damping)
    system = vioc.System(rope, vioc.Gravity(*(stiff * np.array(WEIGHT))))
    swept, exact = (vioc.MidpointVI(system, 0.01) for _ in range(2))
    swept.__dict__["_articulated"], exact.__dict__["_articulated"] = True, False
    bent = vioc.System(rope, vioc.Gravity(*(stiff * np.array([0.0, 5.0, 2.6]))))
    x0 = swept.initial_state(static_equilibrium(bent))
    for f in (swept, exact):
        error = float(f.kernel.function(x0, [], 0.0, f.dt, [])[2])  # without a rescue
        assert error < f.tolerance
    np.testing.assert_allclose(swept.step(x0), exact.step(x0), rtol=1e-9, atol=1e-9)


def test_which_maps_sweep():
    long = cable("c", 8, 1.0, BENT, along="x", hinges="yzx", start="clamped", damping=(0.0, 0.01))
    maps = [vioc.MidpointVI(vioc.System(long, *more), 0.01) for more in ((), (vioc.UserForce(twisted),))]
    assert [f._articulated for f in maps] == [True, False]


def twisted(k):
    """A couple of forces without symmetry, as no potential has."""
    return {"c-3-y": k.q("c-3-z")}


# -- the terms ------------------------------------------------------------------------------------------


def hinge(axes: str, *terms) -> vioc.System:
    frame = vioc.tx(0.1, name="end", mass=vioc.Mass(1.0, (0.02, 0.03, 0.04)))
    for axis in reversed(axes):
        frame = getattr(vioc, f"r{axis}")(axis)[frame]
    return vioc.System(frame, *terms)


@pytest.mark.parametrize("axes", ORDERS)
def test_springs_and_dampers_act_on_the_rotation_vector(axes):
    """To third order in the angles, for every order of the axes."""
    k = np.array([1.0, 5.0, 30.0])
    system = hinge(axes, HingeSpring(tuple(axes), tuple(k)), HingeDamping(tuple(axes), tuple(k)))
    lag = vioc.Lagrangian(system)
    force, gaps = lag.function("F", [lag.F]), []
    for size in (0.1, 0.05):
        q, v = size * np.array([0.9, -0.7, 0.8]), np.array([0.3, 0.5, -0.4])
        turns = [Rotation.from_euler(axes.upper(), q + t * v).as_rotvec() for t in (1e-5, 0.0, -1e-5)]
        rate = (turns[0] - turns[2]) / 2e-5
        power = float(v @ np.array(force(q, v, [], 0.0, [])).ravel())
        gaps.append([lag.potential_energy(q) - k @ turns[1] ** 2 / 2, power + k @ rate**2])
    assert np.log2(np.abs(np.divide(*gaps))) == pytest.approx([4, 2], abs=0.3)


def test_terms_survive_text_and_pickling():
    stiff = (vioc.P("GJ", 2.0), 3.0, 0.0)
    system = hinge("yzx", HingeSpring(("y", "z", "x"), stiff), HingeDamping(("y", "z", "x"), stiff, name="d"))
    for again in (vioc.read_text(vioc.write_text(system)), pickle.loads(pickle.dumps(system))):
        assert again == system and hash(again) == hash(system)


@pytest.mark.parametrize(
    ("axes", "variables", "message"),
    [
        ("yzx", ("z", "y", "x"), "each frame the child of the one before, got z, y, x"),
        ("yzx", ("y", "z"), "expected those of three rotations"),
        ("yzx", ("y", "z", "other"), "expected those of three rotations"),
    ],
)
def test_hinges_that_are_none_are_refused(axes, variables, message):
    with pytest.raises(vioc.ModelError, match=message):
        vioc.System(hinge(axes).frames[0], vioc.rx("other"), HingeSpring(variables, (1.0, 1.0, 1.0)))
    with pytest.raises(vioc.ModelError, match="coefficient: expected numbers >= 0"):
        HingeDamping(("y", "z", "x"), (1.0, -1.0, 1.0))
