"""Charts of free rotations: recognized, warned of, changed without a trace."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from vioc import (
    Gravity,
    JointForce,
    LinearSpring,
    Mass,
    MidpointVI,
    PointConstraint,
    System,
    TorsionalSpring,
    change_chart,
    charts,
    rollout_charts,
    rx,
    ry,
    rz,
    tx,
    ty,
    tz,
)

# inside: segments change charts at a bound that has no public name
from vioc.dynamics.charts import SWITCH
from vioc.errors import ChartWarning, ModelError

INERTIA = (1.0, 2.0, 2.5)


def body(*components, parts=()):
    free = rz("a")[ry("b")[rx("c", name="body", mass=Mass(1.5, INERTIA))[tuple(parts)]]]
    return System(tx("x")[ty("y")[tz("z")[free]]], *components)


def spinning(f, omega, angles=(0.1, 0.2, 0.3)):
    chart = charts(f.system)[0]
    rates = np.linalg.solve(chart.rates(np.array(angles)), omega)
    names = dict(zip("abc", angles, strict=True))
    return f.initial_state(names, dict(zip("abc", rates, strict=True)))


def test_charts_are_recognized():
    assert [c.axes for c in charts(body())] == ["zyx"]
    assert charts(body())[0].variables == ("a", "b", "c")
    assert charts(System(rz("a")[rx("b")[rz("c", mass=(1, 1, 1, 1))]]))[0].axes == "zxz"
    assert charts(System(rz("a", mass=1.0)[rx("b")[rz("c", mass=(1, 1, 1, 1))]])) == ()
    assert charts(System(rz("a")[rz("b")[rx("c", mass=(1, 1, 1, 1))]])) == ()
    assert charts(System(rx("a")[tz(-1, mass=1)[rx("b")[tz(-1, mass=1)]]])) == ()


def test_rates_are_the_body_velocity():
    f = MidpointVI(body(), 0.01)
    from vioc import Kinematics

    random = np.random.default_rng(0)
    q, v = random.normal(size=6), random.normal(size=6)
    v[:3] = 0
    omega = Kinematics(f.system).body_velocity("body", q, v)[3:]
    np.testing.assert_allclose(charts(f.system)[0].rates(q[3:]) @ v[3:], omega, atol=1e-13)


@pytest.mark.parametrize("axes", ["xyz", "yzx", "zxy", "zyz", "xzx"])
def test_a_change_keeps_attitude_energy_and_motion(axes):
    arm = tz(0.5)[ry("joint")[tz(0.7, name="tip", mass=0.4)]]
    f = MidpointVI(body(Gravity(0, 0, -9.81), JointForce("joint", "u"), parts=[arm]), 0.01)
    x = np.random.default_rng(1).normal(size=f.nx)
    g, y = change_chart(f, x, charts(f.system)[0], axes)
    assert charts(g.system)[0].axes == axes
    np.testing.assert_allclose(f.frame_positions(x)[0], g.frame_positions(y)[0], atol=1e-12)
    run, again = f.rollout(x, steps=1), g.rollout(y, steps=1)
    for name in ("energy", "p.x", "p.z", "v.joint"):
        np.testing.assert_allclose(again[name][0], run[name][0], rtol=1e-10)
    _, back = change_chart(g, y, charts(g.system)[0], "zyx")
    np.testing.assert_allclose(back[6:], x[6:], atol=1e-9)
    # both maps follow the same motion to second order
    gaps = []
    for h in (0.02, 0.01, 0.005):
        ends = [m.rollout(s, steps=round(0.1 / h), dt=h) for m, s in ((f, x), (g, y))]
        gaps.append(np.linalg.norm(ends[0]["tip:z"][-1] - ends[1]["tip:z"][-1]))
    assert np.polyfit(np.log([0.02, 0.01, 0.005]), np.log(gaps), 1)[0] == pytest.approx(2.0, abs=0.3)


def euler_equations(omega, t):
    """Attitude of a free body by its own equations: w and R as a quaternion-free 12 vector."""
    I = np.array(INERTIA)

    def rate(_, s):
        w, R = s[:3], s[3:].reshape(3, 3)
        hat = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
        return np.concatenate([np.cross(I * w, w) / I, (R @ hat).ravel()])

    f = MidpointVI(body(), 0.01)
    R0 = charts(f.system)[0].rotation(np.array([0.1, 0.2, 0.3]))
    start = np.concatenate([omega, R0.ravel()])
    return solve_ivp(rate, (0, t), start, rtol=1e-11, atol=1e-12).y[:, -1]


def test_a_tumbling_body_goes_through_every_attitude():
    """Without a change the chart's pole spoils the run; with changes it is second order accurate."""
    omega = np.array([0.3, 3.0, 0.2])  # about the intermediate axis: it flips
    exact = euler_equations(omega, 3.0)[3:].reshape(3, 3)
    errors = []
    built = MidpointVI(body(), 3.0)
    for n in (600, 1200, 2400):
        f = built.with_dt(3.0 / n)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ChartWarning)
            run = rollout_charts(f, spinning(f, omega), steps=n)
        assert len(run.segments) >= 2 and len(run.t) == n + 1
        last = run.segments[-1]
        names = last.map.system.dynamic
        chart = charts(last.map.system)[0]
        angles = last.x[-1][[names.index(v) for v in chart.variables]]
        errors.append(np.abs(chart.rotation(angles) - exact).max())
        for segment in run.segments:
            (its_chart,) = charts(segment.map.system)
            assert its_chart.distance(segment[its_chart.variables[1]])[:-1].min() > 0.35
        assert np.ptp(run.energy) < 1e-2 * run.energy[0]
        assert np.abs(run["p.x"]).max() < 1e-12
        with pytest.raises(ModelError, match="another quantity in each segment"):
            run["v.b"]
    slope = -np.polyfit(np.log([600, 1200, 2400]), np.log(errors), 1)[0]
    assert slope == pytest.approx(2.0, abs=0.2)
    assert errors[-1] < 1e-3


def test_a_rollout_warns_before_the_pole():
    f = MidpointVI(body(), 0.01)
    with pytest.warns(ChartWarning, match=r"the angle b = 1\.[34].* is near the singularity .*zyx"):
        f.rollout(spinning(f, np.array([0.0, 1.0, 0.0]), (0.0, 0.0, 0.0)), steps=140)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.rollout(spinning(f, np.array([0.0, 1.0, 0.0]), (0.0, 0.0, 0.0)), steps=100)


def test_what_acts_inside_a_chart_forbids_changing_it():
    f = MidpointVI(body(TorsionalSpring("b", 1.0)), 0.01)
    with pytest.raises(ModelError, match="torsional-spring refers to b"):
        change_chart(f, f.state(), charts(f.system)[0], "xyz")
    f = MidpointVI(body(), 0.01)
    for axes in ("xxz", "zy", "abc", "zzy"):
        with pytest.raises(ModelError, match="axes"):
            change_chart(f, f.state(), charts(f.system)[0], axes)


def test_frames_inside_a_chart_forbid_changing_it():
    """Not only its variables: a frame between the rotations turns another way in another order."""
    rotations = rz("a", name="yaw")[ry("b", name="pitch")[rx("c", name="body", mass=Mass(1.5, INERTIA))]]
    frames = tx("x")[ty("y")[tz("z")[rotations]]], tx(1.0, name="post")
    held = {
        "yaw": PointConstraint("yaw", "post", (1, 0, 0)),
        "pitch": LinearSpring("pitch", "post", stiffness=1.0),
    }
    for name, component in held.items():
        f = MidpointVI(System(*frames, component), 0.01)
        with pytest.raises(ModelError, match=f"refers to {name} inside the chart"):
            change_chart(f, f.state(), charts(f.system)[0], "xyz")
    behind = MidpointVI(System(*frames, LinearSpring("body", "post", stiffness=1.0)), 0.01)
    changed, _ = change_chart(behind, behind.state(), charts(behind.system)[0], "xyz")
    assert charts(changed.system)[0].axes == "xyz"


def test_the_first_of_two_charts_ends_a_segment():
    """Two bodies: now the one listed first comes near its pole first, now the other, a few steps apart."""

    def tumbler(i):
        turns = rz(f"a{i}")[ry(f"b{i}")[rx(f"c{i}", mass=Mass(1.0, (1.0, 1.0, 1.0)))]]
        return tx(f"x{i}")[turns]

    for first, second in ((1, 2), (2, 1)):
        f = MidpointVI(System(tumbler(1), tumbler(2)), 0.02)
        start = {f"b{first}": 1.0, f"b{second}": 0.85}  # 1.16 is where |cos b| = SWITCH
        x = f.initial_state(start, {"b1": 1.0, "b2": 1.0})
        run = rollout_charts(f, x, steps=20)
        ends = []
        for segment in run.segments:
            for chart in charts(segment.map.system):
                distance = chart.distance(segment[chart.variables[1]])
                assert distance[:-1].min() >= SWITCH  # the sample that is nearer begins the next segment
            ends.append(segment.t[-1])
        assert ends[0] == pytest.approx(0.18, abs=0.021) and len(ends) == 3


def test_segments_go_on_in_time():
    """Each starts at the step where the one before ended: t is one clock."""
    f = MidpointVI(body(), 0.005)
    run = rollout_charts(f, spinning(f, np.array([0.3, 3.0, 0.2])), steps=400)
    assert len(run.segments) >= 2
    np.testing.assert_allclose(run.t, 0.005 * np.arange(401), atol=1e-12)
    lengths = [len(segment) for segment in run.segments]
    assert [segment.k0 for segment in run.segments] == [0, *np.cumsum(lengths)[:-1]]


def test_frames_between_the_rotations_of_a_chart_are_others_in_each():
    system = System(rx("a", name="A")[ry("b")[rz("c", name="body", mass=(1, 0.1, 0.2, 0.3))]])
    f = MidpointVI(system, 0.01)
    start = f.initial_state({"a": 0.1, "b": 0.9, "c": 0.1}, {"a": 0.3, "b": 1.5, "c": 0.2})
    run = rollout_charts(f, start, steps=60)
    assert len(run.segments) > 1 and np.abs(np.diff(run["body:rx"])).max() < 0.1
    for name in ("A:ry", "w.A:x"):
        with pytest.raises(ModelError, match="belongs to a chart that was changed"):
            run[name]
