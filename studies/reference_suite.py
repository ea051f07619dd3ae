"""Mechanisms with published solutions: order of the step, and the limit by Richardson extrapolation.

- the pendulum A01, here a mass point in Cartesian coordinates on a wire;
- the double four-bar A02, which passes positions with all bars in line, where its constraints are dependent;
- a slider-crank under a constant torque;
- the car axis of the test set for initial value problems: two mass points on an axle, on springs, on a base
  that rocks; the rocking is a kinematic variable;
- the heavy top of the Lie group literature, in the chart Rz Rx Ry;
- a free axisymmetric body, in maximal coordinates, against the closed form of its precession.

Each is solved with steps h, h/2, h/4, ... The order is the slope of the differences of successive
solutions; the limit eliminates the terms h^2, h^4, ... one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

import vioc
from studies.harness import Claim, Report, Study, at_most, near
from vioc import (
    DistanceConstraint,
    Gravity,
    JointForce,
    K,
    LinearSpring,
    Mass,
    MaximalVI,
    MidpointVI,
    PointConstraint,
    System,
    coincident,
    free,
    rx,
    ry,
    rz,
    tx,
    ty,
)

G = 9.81  # m/s^2
BEFORE_SINGULAR = 0.5  # s: the bars are in line first at 0.7 s
LEVELS = 4  # steps h, h/2, h/4, h/8
QUICK = 3  # in quick form, but of the car axis, whose limit needs all four
TEST_SET = "test set for IVP solvers"


class Case(NamedTuple):
    """A mechanism and its published solution.

    Attributes
    ----------
    title : str
    end : float
        s.
    dt : float
        The longest step, s.
    solve : function of dt and end
        The quantities at the end (K,), and the largest |h| of any step.
    published : (K,)
    bound : float
        For the limit, in the units of `published`.
    source : str
    """

    title: str
    end: float
    dt: float
    solve: Callable[[float, float], tuple[np.ndarray, float]]
    published: tuple[float, ...]
    bound: float
    source: str


def violation(run: vioc.Trajectory) -> float:
    """Largest |h| of any step."""
    names = run.map.multiplier_names
    return max((float(np.abs(run[f"h.{name}"]).max()) for name in names), default=0.0)


# -- pendulum A01 ---------------------------------------------------------------------------------


def pendulum(dt: float, end: float) -> tuple[np.ndarray, float]:
    """Released from the horizontal: (x, y)."""
    system = System(
        tx("x")[ty("y", name="bob", mass=1.0)],
        Gravity(0, -G, 0),
        DistanceConstraint("world", "bob", 1.0, name="wire"),
        name="pendulum",
    )
    f = MidpointVI(system, dt)
    run = f.rollout(f.initial_state({"x": 1.0}), steps=round(end / dt))
    return run.x[-1, :2], violation(run)


# -- double four-bar A02 --------------------------------------------------------------------------


def double_four_bar() -> System:
    """Three cranks and two couplers, uniform rods of 1 m and 1 kg, in the x-y plane."""
    rod = Mass(1.0, (0.0, 1 / 12, 1 / 12), com=(0.5, 0.0, 0.0))
    couplers = rz("coupler-1", mass=rod)[tx(1.0, name="B1")[rz("coupler-2", mass=rod)[tx(1.0, name="B2")]]]
    cranks = [tx(float(i))[rz(f"crank-{i}", mass=rod)[tx(1.0, name=f"C{i}")]] for i in (1, 2)]
    return System(
        rz("crank-0", mass=rod)[tx(1.0, name="B0")[couplers]],
        cranks,
        Gravity(0, -G, 0),
        [coincident(f"B{i}", f"C{i}", "xy", name=f"pin-{i}") for i in (1, 2)],
        name="double_four_bar",
    )


def regular_branch(angle: float) -> dict[str, float]:
    """Configuration (or velocity) with all cranks parallel."""
    return {"crank-0": angle, "crank-1": angle, "crank-2": angle, "coupler-1": -angle}


@lru_cache(maxsize=1)
def four_bar_run(dt: float, end: float) -> vioc.Trajectory:
    f = MidpointVI(double_four_bar(), dt)
    return f.rollout(f.initial_state(regular_branch(np.pi / 2), regular_branch(-1.0)), steps=round(end / dt))


def four_bar(dt: float, end: float) -> tuple[np.ndarray, float]:
    """Position and velocity of B0."""
    run = four_bar_run(dt, end)
    th, w = run["crank-0"][-1], run["v.crank-0"][-1]
    return np.array([np.cos(th), np.sin(th), -w * np.sin(th), w * np.cos(th)]), violation(run)


def off_branch(run: vioc.Trajectory) -> float:
    """Largest angle by which the double four-bar leaves the regular branch, rad."""
    th = run["crank-0"]
    off = [run["coupler-2"], run["coupler-1"] + th, run["crank-1"] - th, run["crank-2"] - th]
    return float(np.abs(off).max())


# -- slider-crank ---------------------------------------------------------------------------------


def slider_crank(dt: float, end: float) -> tuple[np.ndarray, float]:
    """Crank and rod of 0.1 m and 0.3 m, 0.2 kg each, slider of 0.4 kg, 0.1 N m: angle and rate."""
    crank, rod = (
        Mass(0.2, (0.0, 0.2 * length**2 / 12, 0.2 * length**2 / 12), com=(length / 2, 0.0, 0.0))
        for length in (0.1, 0.3)
    )
    system = System(
        rz("theta", mass=crank)[tx(0.1)[rz("rod", mass=rod)[tx(0.3, name="slider", mass=0.4)]]],
        PointConstraint("slider", "world", (0.0, 1.0, 0.0), name="rail"),
        JointForce("theta", "torque"),
        name="slider_crank",
    )
    f = MidpointVI(system, dt)
    run = f.rollout(f.initial_state(), np.full((round(end / dt), 1), 0.1))
    return np.array([run["theta"][-1], run["v.theta"][-1]]), violation(run)


def slider_crank_solution(end: float) -> np.ndarray:
    """(angle, rate) by the equation with one degree of freedom: 1/2 M(theta) rate^2, at rtol 1e-13."""
    a, b = 0.1, 0.3

    def rate(_: float, y: np.ndarray) -> list[float]:
        s, c = np.sin(y[0]), np.cos(y[0])
        sin, cos = -a / b * s, np.sqrt(1 - (a / b * s) ** 2)  # of the rod's angle
        turn = -a / b * c / cos  # its derivatives by theta
        bend = (a / b * s + sin * turn**2) / cos
        M, half_slope = 0.2 * a**2 / 3 + 0.2 * b**2 / 12 * turn**2, 0.2 * b**2 / 12 * turn * bend
        for mass, part in ((0.2, b / 2), (0.4, b)):  # the rod's centre, and the slider at its end
            x, dx = -a * s - part * sin * turn, -a * c - part * (cos * turn**2 + sin * bend)
            y1, dy = a * c + part * cos * turn, -a * s + part * (cos * bend - sin * turn**2)
            M += mass * (x * x + y1 * y1)
            half_slope += mass * (x * dx + y1 * dy)
        return [y[1], (0.1 - half_slope * y[1] ** 2) / M]

    return solve_ivp(rate, (0.0, end), [0.0, 0.0], "DOP853", rtol=1e-13, atol=1e-13).y[:, -1]


# -- car axis -------------------------------------------------------------------------------------


def car_axis(dt: float, end: float) -> tuple[np.ndarray, float]:
    """(xl, yl, xr, yr) and velocities.

    Springs of stiffness 1 and rest length 1/2 join the ends of the axle (length 1, mass points of
    eps^2 M / 2 = 5e-4) to those of the base, whose right end moves on the unit circle at the height
    0.1 sin 10 t. The left spring stays normal to the base, so the left end is (0, left) in its axes.
    """
    system = System(
        rz(K("base"), name="base")[ty("left", name="L", mass=5e-4), tx(1.0, name="base-end")],
        tx("xr")[ty("yr", name="R", mass=5e-4)],
        Gravity(0, -1.0, 0),
        LinearSpring("world", "L", 1.0, 0.5),
        LinearSpring("base-end", "R", 1.0, 0.5),
        DistanceConstraint("L", "R", 1.0, name="axle"),
        name="car_axis",
    )
    f = MidpointVI(system, dt)
    t = dt * np.arange(round(end / dt) + 1)
    base = np.arcsin(0.1 * np.sin(10 * t))
    start = f.initial_state({"left": 0.5, "xr": 1.0, "yr": 0.5}, {"xr": -0.5, "base": 1.0})
    run = f.rollout(start, base[1:, None])
    at, turn = base[-1], np.cos(10 * t[-1]) / np.sqrt(1 - (0.1 * np.sin(10 * t[-1])) ** 2)
    # the state holds the base's rate over the last step, half a step late for velocities at its end
    run.x[-1, f.state_names.index("v.base")] = turn
    up, across = np.array([-np.sin(at), np.cos(at)]), np.array([-np.cos(at), -np.sin(at)])
    s, ds = run["left"][-1], run["v.left"][-1]
    place = [*(s * up), run["xr"][-1], run["yr"][-1]]
    rate = [*(ds * up + s * turn * across), run["v.xr"][-1], run["v.yr"][-1]]
    return np.array(place + rate), violation(run)


# -- heavy top ------------------------------------------------------------------------------------


def heavy_top(dt: float, end: float) -> tuple[np.ndarray, float]:
    """Euler parameters, scalar first."""
    body = Mass(15.0, (0.234375, 0.46875, 0.234375), com=(0.0, 1.0, 0.0))
    system = System(rz("a")[rx("b")[ry("spin", mass=body)]], Gravity(0, 0, -G), name="heavy_top")
    f = MidpointVI(system, dt)
    start = f.initial_state(v={"a": -4.61538, "spin": 150.0})  # at the identity the rates are the body's
    run = f.rollout(start, steps=round(end / dt))
    q = Rotation.from_euler("ZXY", run.x[-1, :3]).as_quat()[[3, 0, 1, 2]]
    return -q if q[0] > 0 else q, 0.0  # of q and -q the one published


# -- free axisymmetric body -----------------------------------------------------------------------

RATE = np.array([2.0, 0.0, 5.0])  # rad/s, in the body's axes
AXIAL, ACROSS = 0.02, 0.04  # kg m^2


def free_body(dt: float, end: float) -> tuple[np.ndarray, float]:
    """Euler parameters, scalar first, in maximal coordinates."""
    f = MaximalVI(System(free("b", mass=Mass(1.0, (ACROSS, ACROSS, AXIAL))), name="free_body"), dt)
    run = f.rollout(f.initial_state(v={"b-rx": RATE[0], "b-rz": RATE[2]}), steps=round(end / dt))
    q = run.x[-1, 3:7]  # behind the centre of mass
    return q * np.sign(q @ precession(end)), 0.0  # q and -q are one rotation


def precession(end: float) -> tuple[float, ...]:
    """Closed form: the body spins about its axis, which turns about the angular momentum at |L| / ACROSS."""
    turn = Rotation.from_rotvec(end * RATE * (1.0, 1.0, AXIAL / ACROSS))
    spin = Rotation.from_rotvec([0.0, 0.0, end * RATE[2] * (1 - AXIAL / ACROSS)])
    x, y, z, w = (turn * spin).as_quat()
    return (w, x, y, z)


CASES = {
    "pendulum": Case(
        "pendulum on a wire", 10.0, 0.01, pendulum, (0.2750874626, -0.9614192051), 1e-9, "benchmark A01"
    ),
    "four_bar": Case(
        "double four-bar",
        10.0,
        0.01,
        four_bar,
        (0.3284581115, 0.9445185382, 1.4230514702, -0.4948688455),
        1e-8,
        "benchmark A02",
    ),
    "slider_crank": Case(
        "slider-crank", 3.0, 4e-4, slider_crank, (121.886277, 101.365636), 1e-5, "published, 9 digits"
    ),
    "car_axis": Case(
        "car axis",
        3.0,
        2e-3,
        car_axis,
        (
            0.0493455784275402809,
            0.496989460230171154,
            1.04174252488542152,
            0.373911027265361257,
            -0.0770583684040972358,
            0.00744686658723778553,
            0.0175568157537232222,
            0.770341043779251976,
        ),
        1e-8,
        TEST_SET,
    ),
    "heavy_top": Case(
        "heavy top",
        0.2,
        1.6e-3,
        heavy_top,
        (-0.70827915, 0.43878109, 0.54572840, 0.08939975),
        1e-8,
        "published, 8 digits",
    ),
    "free_body": Case(
        "free axisymmetric body", 2.0, 0.02, free_body, precession(2.0), 1e-8, "closed-form precession"
    ),
}

STUDY = Study(
    __file__,
    "order 2 and the published limit of six mechanisms",
    **{
        f"{key}_{what}": claim
        for key, case in CASES.items()
        for what, claim in (
            ("order", Claim(f"{case.title}: order over dt from {case.dt:g} s", near(2, 0.2))),
            (
                "limit",
                Claim(
                    f"{case.title}, t = {case.end:g} s: largest error of the Richardson limit",
                    at_most(case.bound),
                    published=0.0,
                    source=case.source,
                ),
            ),
            ("error", Claim(f"{case.title}: largest error of the shortest step, {case.dt / 8:g} s")),
        )
    },
    slider_crank_rate=Claim(
        "slider-crank: published rate against its equation with one degree of freedom, DOP853", unit="rad/s"
    ),
    slider_crank_check=Claim("slider-crank: Richardson limit against the same", at_most(5e-6)),
    four_bar_regular=Claim(
        "double four-bar: order up to t = 0.5 s, before any singular position", near(2, 0.2)
    ),
    four_bar_singular=Claim("double four-bar: passages with all bars in line"),
    four_bar_branch=Claim("double four-bar: largest angle off the regular branch", at_most(1e-9), unit="rad"),
    constraints=Claim("largest |h| of any step of all of them", at_most(1e-10), unit="m, m^2"),
)


@STUDY.body
def run(report: Report) -> None:
    errors: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    worst = 0.0
    for key, case in CASES.items():
        steps = case.dt / 2.0 ** np.arange(QUICK if report.quick and key != "car_axis" else LEVELS)
        solved = [case.solve(dt, case.end) for dt in steps]
        values = np.array([value for value, _ in solved])
        worst = max(worst, *(h for _, h in solved))
        error = np.abs(values - case.published).max(axis=1)
        limit = richardson(values)
        errors[case.title] = steps, error
        report.measure(
            **{
                f"{key}_order": order(values),
                f"{key}_limit": np.abs(limit - case.published).max(),
                f"{key}_error": error[-1],
            }
        )
        if key == "slider_crank":
            exact = slider_crank_solution(case.end)
            report.measure(
                slider_crank_rate=abs(exact[1] - case.published[1]),
                slider_crank_check=np.abs(limit - exact).max(),
            )
    steps = CASES["four_bar"].dt / 2.0 ** np.arange(QUICK if report.quick else LEVELS)
    passes = four_bar_run(steps[-1], CASES["four_bar"].end)
    report.measure(
        constraints=worst,
        four_bar_regular=order(np.array([four_bar(dt, BEFORE_SINGULAR)[0] for dt in steps])),
        four_bar_singular=np.count_nonzero(np.diff(np.sign(np.sin(passes["crank-0"])))),
        four_bar_branch=off_branch(passes),
    )
    draw(report, errors)


def order(values: np.ndarray) -> float:
    """Slope of the differences of successive solutions (steps, K) over the step."""
    gaps = np.abs(np.diff(values, axis=0)).max(axis=1)
    return float(-np.polyfit(np.arange(len(gaps)), np.log2(gaps), 1)[0])


def richardson(values: np.ndarray) -> np.ndarray:
    """Limit of solutions (steps, K) for steps h, h/2, ... whose error is a series in h^2."""
    power = 4.0
    while len(values) > 1:
        values = (power * values[1:] - values[:-1]) / (power - 1)
        power *= 4
    return values[0]


def draw(report: Report, errors: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for (title, (steps, error)), marker in zip(errors.items(), "os^vDP", strict=True):
        axes.loglog(steps, error, f"-{marker}", ms=4, label=title)
    ends = np.array([1e-4, 1e-2])
    axes.loglog(ends, 1e2 * ends**2, color="0.6", ls="--", label="order 2")
    axes.set(xlabel="time step (s)", ylabel="error against the published solution", title="Reference suite")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3, which="both")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
