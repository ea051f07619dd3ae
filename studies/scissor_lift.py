"""The scissor lift of [T] VI-C (Fig. 11, 12): many loops, one degree of freedom, a singular position.

Two cases. *Regular*: a constant force of n^2 m_L g (25 m_L g at 5 segments) pulls the slider outward, and
the links swing between 30 and 60 degrees whatever the number n of segments. *Free*: released at 45 degrees
the lift swings through 90 degrees, where all links are collinear and the constraints dependent: other
motions branch off there. The steps straddle that position and keep to the branch.

Near 90 degrees only n / 2 + 1 kg move, against n^3 / 3 kg at 45 degrees, so a long lift whips through in
milliseconds. A step that is long against that has no solution: the momentum that the discrete equations can
carry across is bounded. `refused` shows this on the reduced equation; it is no failure of a solver.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.integrate import cumulative_trapezoid, solve_ivp

import vioc
from studies import peers
from studies.harness import Claim, Report, Study, at_least, at_most, near

INERTIA, G = 1e-3, 9.81  # kg m^2, m/s^2; lengths and masses are 1
DURATION = 10.0  # s
DT = 0.01  # s, the paper's
FREE_STEPS = {2: 0.01, 5: 0.01, 10: 0.005, 20: 0.002}  # s, by number of segments
REGULAR, FREE = np.pi / 3, np.pi / 4  # rad, starts
ORDER_STEPS = {REGULAR: (0.02, 0.01, 0.005, 0.0025), FREE: (0.01, 0.005, 0.0025, 0.00125)}  # s
REPEATS = 3  # of a timed run: the shortest counts; in quick form 1
PEER_STEPS = (0.01, 0.001, 0.0001)  # s, the paper's
BENCH = "measured elsewhere, same model"

STUDY = Study(
    __file__,
    "scissor lifts of 2 to 20 segments against the Lagrangian with one degree of freedom",
    low=Claim("regular case, 5 segments: smallest angle", near(30, 0.01), unit="deg", published=30),
    high=Claim("regular case, 5 segments: largest angle", near(60, 0.01), unit="deg", published=60),
    regular=Claim(
        "regular case, 5 segments, dt 0.01 s: error integral (47) over 10 s",
        at_most(1e-6),
        unit="rad^2 s",
        source="[T] (47)",
    ),
    regular_ode=Claim(f"the same by {peers.ODE}", unit="rad^2 s", published=7.1e-5, source=BENCH),
    regular_mujoco=Claim(f"the same by {peers.MUJOCO}", unit="rad^2 s", published=1.2e-3, source=BENCH),
    order=Claim("order of its square root over dt", near(2, 0.1)),
    regular_all=Claim(
        "regular case, largest error integral of all n, dt 0.01 s", at_most(1e-6), unit="rad^2 s"
    ),
    **{
        f"free_{n}": Claim(
            f"free case, {n} segments, dt {dt:g} s: error integral over 10 s",
            at_most(1e-3),
            unit="rad^2 s",
            published="fails to converge" if n >= 10 else None,
            source="an independent implementation" if n >= 10 else "",
            full_only=n >= 10,
        )
        for n, dt in FREE_STEPS.items()
    },
    order_free=Claim("free case, 5 segments: order of the root of the error integral", near(2, 0.1)),
    crossings=Claim("free case, 5 segments: passages of 90 degrees in 10 s", at_least(2)),
    branch=Claim(
        "free case, all n: largest |q - scissor configuration of theta|", at_most(1e-9), unit="rad, m"
    ),
    constraints=Claim("largest |h| of any step, both cases, all n", at_most(1e-10), unit="m"),
    free_energy=Claim("free case, 5 segments: |loss| of swing energy in 10 s", at_most(1e-2), unit="of it"),
    free_energy_ode=Claim(f"the same by {peers.ODE}, dt 0.01 s", unit="of it", source="[T] Fig. 11"),
    free_energy_mujoco=Claim(
        f"the same by {peers.MUJOCO}, dt 0.01 s", unit="of it", published=0.94, source=BENCH
    ),
    refused=Claim(
        "20 segments, dt 0.01 s, the step refused: smallest residual of the reduced equation over momentum",
        at_least(0.01),
        full_only=True,
    ),
    seconds=Claim(
        "time to simulate 10 s, 5 segments, dt 0.01 s", unit="s", published=1.74, source="[T] VI-C"
    ),
    **{
        f"seconds_ode_{i}": Claim(
            f"the same by {peers.ODE}, dt {dt:g} s",
            unit="s",
            published=seconds,
            source="[T] VI-C",
            full_only=dt < 0.001,
        )
        for i, (dt, seconds) in enumerate(zip(PEER_STEPS, (0.19, 1.85, 18.47), strict=True))
    },
    long_amplitude=Claim(
        "1000 s: amplitude in the last 10 s, from 90 degrees",
        near(45, 0.5),
        unit="deg",
        published="close to the benchmark",
        source="[T] Fig. 12",
        full_only=True,
    ),
    long_phase=Claim(
        "1000 s: time shift at the end",
        unit="of a period",
        published="slight",
        source="[T] Fig. 12",
        full_only=True,
    ),
    long_constraints=Claim("1000 s: largest |h| of any step", at_most(1e-10), unit="m", full_only=True),
)


class Run(NamedTuple):
    """A simulated lift: trajectory, its angle, the benchmark's, and the time that it took, s."""

    trajectory: vioc.Trajectory
    theta: np.ndarray
    benchmark: np.ndarray
    seconds: float

    @property
    def error(self) -> float:
        return float(error_integral(self.trajectory.t, self.theta - self.benchmark)[-1])

    @property
    def violation(self) -> float:
        run = self.trajectory
        return max(float(np.abs(run[f"h.{name}"]).max()) for name in run.map.multiplier_names)


def pull(n: int) -> float:
    """Force on the slider of the regular case, N: then 45 degrees is the equilibrium of every n."""
    return n**2 * G


def benchmark(n: int, theta: float, force: float, t: np.ndarray, end: float | None = None) -> np.ndarray:
    """theta(t) of a release at rest, by the Lagrangian of [T] VI-C (mended; see `scissor_lift`).

    It is solved to the last time, or to `end`, s, and kept for other times until then.
    """
    return _solution(n, theta, force, float(t[-1]) if end is None else end)(t)[0]


@lru_cache(maxsize=8)
def _solution(n: int, theta: float, force: float, end: float) -> Callable[[np.ndarray], np.ndarray]:
    """(theta, rate) as an interpolant of the integrator's own order."""
    i = np.arange(1, n + 1)
    across, along = 2 * np.sum((i - 0.5) ** 2), n / 2 + 1  # T = 1/2 (across cos^2 + along sin^2 + I) dth^2
    weight = 2 * G * np.sum(i - 0.5)

    def rate(_: float, y: np.ndarray) -> list[float]:
        s, c = np.sin(y[0]), np.cos(y[0])
        mass = across * c * c + along * s * s + 2 * n * INERTIA
        half_slope = (along - across) * s * c
        return [y[1], (-half_slope * y[1] ** 2 + weight * c - force * s) / mass]

    y0 = [theta, 0.0]
    return solve_ivp(rate, (0.0, end), y0, "DOP853", dense_output=True, rtol=1e-12, atol=1e-13).sol


def error_integral(t: np.ndarray, error: np.ndarray) -> np.ndarray:
    """(47) from the start to every sample, rad^2 s."""
    return cumulative_trapezoid(error**2, t, initial=0.0)


def simulate(
    f: vioc.MidpointVI,
    start: float,
    dt: float,
    duration: float = DURATION,
    repeats: int = 1,
    end: float | None = None,
) -> Run:
    """The lift released at rest at `start`; a map with an input gets the constant pull.

    The benchmark is solved to the last sample, or to `end`, s.
    The first of the repeats builds what is built at first use: a timed run has more than one.
    """
    n = len(f.system.dynamic) // 2
    x0 = f.initial_state(vioc.models.scissor_lift_configuration(n, start))
    steps = round(duration / dt)
    force = pull(n) if f.nu else 0.0
    U = np.full((steps, f.nu), force)
    seconds = np.inf
    for _ in range(repeats):
        before = time.perf_counter()
        run = f.rollout(x0, U, dt=dt)
        seconds = min(seconds, time.perf_counter() - before)
    return Run(run, run["left-1"], benchmark(n, start, force, run.t, end), seconds)


def lift(n: int, *, forced: bool = False) -> vioc.MidpointVI:
    system = vioc.models.scissor_lift(n)
    return vioc.MidpointVI(
        system.with_components(vioc.JointForce("slider", "pull")) if forced else system, DT
    )


@STUDY.body
def run(report: Report) -> None:
    counts = [n for n in FREE_STEPS if n < 10 or not report.quick]
    regular = {n: simulate(lift(n, forced=True), REGULAR, DT) for n in counts}
    lifts, timed, levels = {n: lift(n) for n in counts}, *((1, 3) if report.quick else (REPEATS, 4))
    free = {n: simulate(lifts[n], FREE, FREE_STEPS[n], repeats=1 + timed * (n == 5)) for n in counts}
    both = [*regular.values(), *free.values()]
    five, swing = regular[5], free[5]
    report.measure(
        low=np.degrees(five.theta.min()),
        high=np.degrees(five.theta.max()),
        regular=five.error,
        regular_all=max(r.error for r in regular.values()),
        order=order(five.trajectory.map, REGULAR, levels, five),
        order_free=order(lifts[5], FREE, levels, swing),
        crossings=np.count_nonzero(np.diff(np.sign(swing.theta - np.pi / 2))),
        branch=max(off_branch(r) for r in free.values()),
        constraints=max(r.violation for r in both),
        free_energy=abs(swing_energy_lost(5, swing.trajectory.t, swing.trajectory.energy)),
        seconds=swing.seconds,
        **{f"free_{n}": r.error for n, r in free.items()},
    )
    if 20 in lifts:
        report.measure(refused=smallest_residual(lifts[20], DT))
    rivals = compare_with_peers(report)
    draw(report, swing, rivals)
    if not report.quick:
        long_run(report, lifts[5])


def order(f: vioc.MidpointVI, start: float, levels: int, known: Run) -> float:
    """Slope of the root of the error integral over the step, of the longest so many; that of DT is known."""
    steps = ORDER_STEPS[start][:levels]
    errors = [np.sqrt((known if dt == DT else simulate(f, start, dt)).error) for dt in steps]
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


def off_branch(run: Run) -> float:
    """Largest distance from the scissor configuration with the same angle."""
    names = run.trajectory.map.system.variables
    expected = scissor(names, run.theta)
    return float(np.abs(run.trajectory.x[:, : len(names)] - expected).max())


def scissor(names: tuple[str, ...], theta: np.ndarray) -> np.ndarray:
    """The configurations of a lift at angles `theta` (K,): (K, nq)."""
    n = len(names) // 2
    q = [vioc.models.scissor_lift_configuration(n, float(a)) for a in theta]
    return np.array([[row[name] for name in names] for row in q])


def swing_energy_lost(n: int, t: np.ndarray, energy: np.ndarray) -> float:
    """Part of the energy above the rest at 90 degrees that is lost: median of the last two seconds."""
    lowest = -2 * G * np.sum(np.arange(n) + 0.5)
    return float((energy[0] - np.median(energy[t >= t[-1] - 2])) / (energy[0] - lowest))


def smallest_residual(f: vioc.MidpointVI, dt: float) -> float:
    """At the first step refused: min |r| / |p| of the reduced equation over all angles within reach.

    On the branch q = q(theta) the step is one equation r(theta_k+1) = q'(theta_k) . (p_k + D1 L_d) = 0.
    NaN where no step is refused.
    """
    names = f.system.variables
    x0 = f.initial_state(vioc.models.scissor_lift_configuration(len(names) // 2, FREE))
    try:
        f.rollout(x0, steps=round(DURATION / dt), dt=dt)
    except vioc.StepError as error:
        x = error.trajectory.x[-1]
        theta = x[names.index("left-1")]
        near_by = scissor(names, theta + np.array([-1e-6, 1e-6]))
        tangent = (near_by[1] - near_by[0]) / 2e-6
        momentum = tangent @ x[f.nq :]
        reach = theta + np.linspace(-0.6, 0.6, 2401)
        q1, n = scissor(names, reach), len(reach)
        steps = np.tile(x, (n, 1)), np.zeros((n, f.nu)), np.zeros(n), np.full(n, dt)
        residual = f.rule.blocks(*steps, f.theta, q1).balance @ tangent
        signs = np.sign(residual)
        return float(np.abs(residual).min() / abs(momentum)) if (signs == signs[0]).all() else 0.0
    return float("nan")


def compare_with_peers(report: Report) -> dict[str, peers.PeerRun]:
    """Both cases by other simulators, where they are installed."""
    system, engines = vioc.models.scissor_lift(5), peers.available()
    start = {a: vioc.models.scissor_lift_configuration(5, a) for a in (REGULAR, FREE)}
    rivals: dict[str, peers.PeerRun] = {}
    for name, short in ((peers.ODE, "ode"), (peers.MUJOCO, "mujoco")):
        steps = PEER_STEPS[: 3 - report.quick] if short == "ode" else PEER_STEPS[: 2 - report.quick]
        if name not in engines:
            seconds = [f"seconds_ode_{i}" for i in range(len(steps))] if short == "ode" else []
            report.skip(peers.INSTALL[name], f"regular_{short}", f"free_energy_{short}", *seconds)
            continue
        pulled = engines[name](system, start[REGULAR], DT, round(DURATION / DT), forces={"slider": pull(5)})
        off = pulled["left-1"] - benchmark(5, REGULAR, pull(5), pulled.t)
        report.measure(**{f"regular_{short}": error_integral(pulled.t, off)[-1]})
        for i, dt in enumerate(steps):
            free = engines[name](system, start[FREE], dt, round(DURATION / dt), every=round(DT / dt))
            rivals[f"{name}, {dt:g} s"] = free
            if short == "ode":
                report.measure(**{f"seconds_ode_{i}": free.seconds})
            if dt == DT:
                report.measure(**{f"free_energy_{short}": swing_energy_lost(5, free.t, free.energy)})
    return rivals


def long_run(report: Report, f: vioc.MidpointVI) -> None:
    """[T] Fig. 12: 1000 s."""
    import matplotlib.pyplot as plt

    run = simulate(f, FREE, DT, 1000.0)
    t = run.trajectory.t
    end = t >= t[-1] - 10
    ours, known = (crossing_times(t, a) for a in (run.theta, run.benchmark))
    count = min(len(ours), len(known))
    period = 2 * (known[-1] - known[0]) / (len(known) - 1)
    report.measure(
        long_amplitude=np.degrees(np.abs(run.theta[end] - np.pi / 2).max()),
        long_phase=(ours[count - 1] - known[count - 1]) / period,
        long_constraints=run.violation,
    )
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    axes.plot(t[end], np.degrees(run.benchmark[end]), color="0.6", lw=2.5, label="benchmark")
    axes.plot(t[end], np.degrees(run.theta[end]), color="k", lw=1, label="variational, 0.01 s")
    axes.set(
        xlabel="t (s)", ylabel="angle (deg)", title="Scissor lift, 5 segments, after 1000 s ([T] Fig. 12)"
    )
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncol=2)
    axes.grid(alpha=0.3)
    report.save(figure, "1000s")


def crossing_times(t: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """When the angle passes 90 degrees, s, by linear interpolation."""
    off = theta - np.pi / 2
    i = np.flatnonzero(off[1:] * off[:-1] < 0)
    return t[i] + (t[i + 1] - t[i]) * off[i] / (off[i] - off[i + 1])


def draw(report: Report, swing: Run, rivals: dict[str, peers.PeerRun]) -> None:
    """[T] Fig. 11, and the energies."""
    import matplotlib.pyplot as plt

    figure, (angle, energy) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), layout="constrained")
    t = swing.trajectory.t
    angle.plot(t, np.degrees(swing.benchmark), color="0.7", lw=4, label="benchmark")
    angle.plot(t, np.degrees(swing.theta), color="k", lw=1, label=f"variational, {DT:g} s")
    energy.plot(t, swing.trajectory.energy, color="k", lw=1, zorder=5)
    shades = {peers.ODE: iter(plt.get_cmap("Blues")((0.9, 0.65, 0.4))), peers.MUJOCO: iter(("C1", "C3"))}
    for label, rival in rivals.items():
        color = next(shades[label.split(",")[0]])
        angle.plot(rival.t, np.degrees(rival["left-1"]), color=color, lw=0.9, label=label)
        energy.plot(rival.t, rival.energy, color=color, lw=1.2)
    angle.axhline(90, color="0.5", lw=0.6, ls=":")
    angle.set(ylabel="angle (deg)", title="Scissor lift, 5 segments, released at 45 degrees ([T] Fig. 11)")
    energy.set(xlabel="t (s)", ylabel="energy (J)")
    figure.legend(*angle.get_legend_handles_labels(), loc="outside lower center", ncol=3)
    for axes in (angle, energy):
        axes.grid(alpha=0.3)
    report.save(figure)
    report.frame(swing.trajectory, [0.0, 0.3, 0.6], title="Scissor lift, 5 segments ([T] Fig. 9)")


if __name__ == "__main__":
    STUDY.main()
