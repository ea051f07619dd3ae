"""Energy of the linear-time integrator ([L] Fig. 2b): a chain of 10 bodies, 1 ms steps.

Beside it semi-implicit Euler, the paper's standard method. Energies are taken at the middle of a step,
where the integrator is second order; the authors pair q_k+1 with the mean velocity of the step, which
wobbles at O(h). A chain of 2 bodies runs for 1e6 steps, and with steps of unequal lengths: lengths that
depend on the state spoil the energy, lengths that repeat with a period do not.
"""

from __future__ import annotations

import numpy as np

import vioc
from studies.energy import total_drift
from studies.harness import Claim, Report, Study, at_least, at_most
from studies.linear_time_chain import chain, midpoint_energy, start
from vioc import LinearTimeVI
from vioc.dynamics.integrators.linear_time.core import available

DT = 1e-3  # s
BODIES = 10
G = 9.81  # m/s^2
SMALL, LONG = 2, 1_000_000  # bodies, steps
SPEED = 0.3  # of the golden start, for the long run
UNEQUAL, UNEQUAL_STEPS = 0.02, 20_000  # s, of the longest step; steps

STUDY = Study(
    __file__,
    "energy of a chain of 10 bodies by DRNEA, and by semi-implicit Euler",
    total=Claim("kinetic energy at the start", unit="J", published=62.4),
    free=Claim(
        "largest error of the midpoint energy, zero gravity, 10 s", at_most(1.1e-3), unit="J", full_only=True
    ),
    band=Claim(
        f"range of the energy, gravity {G}, 1 s", unit="J", published="constant", source="[L] Fig. 2b"
    ),
    euler=Claim(
        "range of semi-implicit Euler over it, 1 s", at_least(3), published="dissipates", source="[L] Fig. 2b"
    ),
    order=Claim("band at 1 ms over that at 0.5 ms", at_least(3.0)),
    drift=Claim("|drift| / band over 1e6 steps, 2 bodies", at_most(1e-3), full_only=True),
    periodic=Claim("|drift| / band, alternating steps", at_most(0.05), full_only=True),
    adaptive=Claim("|drift| / band, steps by the state", full_only=True),
)


def rollout(system: vioc.System, dt: float, q: np.ndarray, v: np.ndarray, steps: int) -> vioc.Trajectory:
    """A run of the linear-time integrator, compiled where that is possible."""
    f = LinearTimeVI(system, dt)
    if available(f):
        f = LinearTimeVI(system, dt, backend="compiled")
    return f.rollout(f.initial_state(q, v), steps=steps)


@STUDY.body
def run(report: Report) -> None:
    q, v = start(BODIES)
    free = rollout(chain(BODIES), DT, q, v, 500 if report.quick else 10_000)
    report.measure(total=free.map.lagrangian.kinetic_energy(q, v))  # type: ignore[attr-defined]
    if not report.quick:
        exact = free.map.lagrangian.kinetic_energy(q, v)  # type: ignore[attr-defined]
        report.measure(free=np.abs(midpoint_energy(free) - exact).max())

    system, rest = chain(BODIES, G), np.zeros(BODIES)
    begin = np.concatenate([[np.pi / 2], rest[1:]])  # stretched out level
    steps = 1000
    ours = rollout(system, DT, begin, rest, steps)
    half = rollout(system, DT / 2, begin, rest, 2 * steps)
    energy, finer = midpoint_energy(ours), midpoint_energy(half)
    euler = vioc.RungeKutta(system, DT, "semi-implicit-euler")
    rival = euler.rollout(euler.initial_state(begin, rest), steps=steps).energy
    report.measure(
        band=np.ptp(energy), euler=np.ptp(rival) / np.ptp(energy), order=np.ptp(energy) / np.ptp(finer)
    )
    curves = [(ours.t[:-1], energy, "linear-time VI"), (ours.t, rival, "semi-implicit Euler")]
    if not report.quick:
        q, v = start(SMALL)
        long = rollout(chain(SMALL, G), DT, np.pi + SPEED * q, SPEED * v, LONG)
        energy = midpoint_energy(long)
        report.measure(drift=abs(total_drift(long.t[:-1], energy)) / np.ptp(energy), **unequal())
    draw(report, curves)
    report.frame(ours, np.linspace(0.0, ours.t[-1], 6), title=f"{BODIES} bodies, gravity")


def unequal() -> dict[str, float]:
    """|drift| over the band of the energy for steps of unequal lengths."""
    system = chain(SMALL, G)
    q, v = start(SMALL)
    f = LinearTimeVI(system, UNEQUAL)
    x0 = f.initial_state(np.pi + q, v)
    lengths = np.resize([UNEQUAL, UNEQUAL / 2], UNEQUAL_STEPS)
    runs = {"periodic": f.rollout(x0, steps=UNEQUAL_STEPS, dt=lengths)}
    X = [x0]
    for k in range(UNEQUAL_STEPS):  # shorter where it moves fast, by the last step's mean velocity
        speed = np.abs(X[-1][:SMALL] - X[-2][:SMALL]).max() / lengths[k - 1] if k else np.abs(v).max()
        lengths[k] = UNEQUAL / (1 + 0.3 * speed)
        X.append(f.step(X[-1], dt=lengths[k]))
    t = np.concatenate([[0.0], np.cumsum(lengths)])
    nothing = np.zeros((UNEQUAL_STEPS, 0))
    runs["adaptive"] = vioc.Trajectory(f, t, np.array(X), nothing, nothing)
    found = {}
    for name, run in runs.items():
        energy = run["energy"]
        found[name] = abs(total_drift(run.t, energy)) / np.ptp(energy)
    return found


def draw(report: Report, curves: list) -> None:
    """[L] Fig. 2b."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for (t, energy, name), style in zip(curves, ("C0", "k--"), strict=True):
        axes.plot(t, energy - energy[0], style, label=name)
    axes.set(xlabel="time (s)", ylabel="energy error (J)", title="10 bodies, gravity, 1 ms ([L] Fig. 2b)")
    axes.legend()
    axes.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
