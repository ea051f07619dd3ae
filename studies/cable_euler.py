"""[C] Fig. 1-3: the one-link pendulum by explicit Euler and by the variational integrator.

The paper's rule (6) takes the Lagrangian at the start of a step with the backward difference: the
generalized midpoint rule with alpha = 0, which in configurations is Stoermer and Verlet's. The paper does
not print the start; here it is 90 degrees at rest with g = 9.81 m/s^2, a motion known in closed form.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ellipj, ellipk

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near

DURATION = 10.0  # s, of Fig. 1 and 2
DT = 0.01  # s, of Fig. 1
LOW = 0.2  # s, of Fig. 3
START = np.pi / 2
RATE = np.sqrt(9.81)  # rad/s, of small swings
STEPS = (0.04, 0.02, 0.01, 0.005)  # s

STUDY = Study(
    __file__,
    "one-link pendulum: explicit Euler against the variational integrator",
    euler=Claim(
        "RMS error of explicit Euler over 10 s, dt 0.01 s",
        at_least(0.1),
        unit="rad",
        published="diverges within a period",
        source="[C] Fig. 1",
    ),
    vi=Claim(
        "RMS error of the variational integrator, the same", at_most(2e-3), unit="rad", source="[C] Fig. 1"
    ),
    midpoint=Claim("RMS error of the midpoint rule, the same", at_most(2e-3), unit="rad"),
    euler_order=Claim("order of explicit Euler over dt, first second", near(1, 0.2), source="[C] Fig. 2"),
    vi_order=Claim("order of the paper's rule over dt", near(2, 0.2), source="[C] (6)"),
    amplitude=Claim(
        "largest swing over 10 s at dt 0.2 s over the true one",
        near(1, 0.1),
        published="not diverged",
        source="[C] Fig. 3",
    ),
    phase=Claim(
        "period at dt 0.2 s over the true one", near(1, 0.1), published="shifted", source="[C] Fig. 3"
    ),
    energy=Claim("growth of the energy of explicit Euler over 10 s", at_least(0.5), unit="J"),
)


def system() -> vioc.System:
    return vioc.System(vioc.Gravity(0, 0, -9.81), vioc.ry("theta")[vioc.tz(-1, mass=1)], name="pendulum")


def exact(t: np.ndarray) -> np.ndarray:
    """theta(t) from START at rest."""
    k = np.sin(START / 2)
    m = k**2
    sn = ellipj(ellipk(m) - RATE * t, m)[0]
    return 2 * np.arcsin(k * sn)


def euler(dt: float, duration: float) -> tuple[np.ndarray, np.ndarray]:
    """Angle and rate by explicit Euler."""
    states = np.zeros((round(duration / dt) + 1, 2))
    states[0] = START, 0.0
    for k in range(len(states) - 1):
        angle, rate = states[k]
        states[k + 1] = angle + dt * rate, rate - dt * RATE**2 * np.sin(angle)
    return states[:, 0], states[:, 1]


def by_paper(dt: float, duration: float) -> vioc.Trajectory:
    """The paper's rule from theta_0 and theta_1, both of the exact motion; time starts at theta_1."""
    f = vioc.MidpointVI(system(), dt, alpha=0.0)
    first, second = exact(np.array([0.0, dt]))
    start = f.state_from_configurations([first], [second])
    return f.rollout(start, steps=round(duration / dt) - 1)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def crossings(t: np.ndarray, angle: np.ndarray) -> float:
    """Mean period by the times at which the angle changes its sign."""
    i = np.flatnonzero(angle[:-1] * angle[1:] < 0)
    times = t[i] - angle[i] * (t[i + 1] - t[i]) / (angle[i + 1] - angle[i])
    return float(2 * (times[-1] - times[0]) / (len(times) - 1))


@STUDY.body
def run(report: Report) -> None:
    t = DT * np.arange(round(DURATION / DT) + 1)
    truth = exact(t)
    angle, rate = euler(DT, DURATION)
    paper = by_paper(DT, DURATION)
    f = vioc.MidpointVI(system(), DT)
    midpoint = f.rollout(f.initial_state({"theta": START}), steps=len(t) - 1)
    energy = rate**2 / 2 - RATE**2 * np.cos(angle)
    report.measure(
        euler=rms(angle - truth),
        vi=rms(paper["theta"] - truth[1:]),
        midpoint=rms(midpoint["theta"] - truth),
        energy=energy[-1] - energy[0],
    )
    errors = []
    for dt in STEPS:
        s = dt * np.arange(round(1.0 / dt) + 1)
        errors.append([rms(euler(dt, 1.0)[0] - exact(s)), rms(by_paper(dt, 1.0)["theta"] - exact(s[1:]))])
    slopes = np.polyfit(np.log(STEPS), np.log(errors), 1)[0]
    report.measure(euler_order=slopes[0], vi_order=slopes[1])
    low = by_paper(LOW, DURATION)
    report.measure(
        amplitude=np.abs(low["theta"]).max() / START,
        phase=crossings(low.t, low["theta"]) / (4 * ellipk(np.sin(START / 2) ** 2) / RATE),
    )
    draw(report, t, truth, angle, paper, low)


def draw(report: Report, t, truth, angle, paper, low) -> None:
    import matplotlib.pyplot as plt

    figure, (one, two, three) = plt.subplots(3, 1, figsize=(7, 8), sharex=True, layout="constrained")
    one.plot(t, angle, color="tab:red", label="explicit Euler")
    one.plot(paper.t + DT, paper["theta"], color="tab:blue", label="variational")
    one.set(ylabel="theta (rad)", title=f"dt = {DT:g} s ([C] Fig. 1)")
    two.semilogy(t[1:], np.abs(angle - truth)[1:], color="tab:red", label="explicit Euler")
    two.semilogy(t[2:], np.abs(paper["theta"] - truth[1:])[1:], color="tab:blue", label="variational")
    two.set(ylabel="|error| (rad)", ylim=(1e-9, None), title="error ([C] Fig. 2)")
    three.plot(t, truth, color="0.6", label="exact")
    three.plot(low.t + LOW, low["theta"], ".-", color="tab:blue", label="variational")
    three.set(xlabel="t (s)", ylabel="theta (rad)", title=f"dt = {LOW:g} s ([C] Fig. 3)")
    for axes in (one, two, three):
        axes.grid(alpha=0.3)
    lines = [*one.lines, three.lines[0]]
    figure.legend(lines, [line.get_label() for line in lines], loc="outside lower center", ncols=3)
    report.save(figure)
    report.frame(paper, np.linspace(0.0, 1.2, 5))


if __name__ == "__main__":
    STUDY.main()
