"""The closed-chain device of [T] VI-B (Fig. 6, 8): constraints and energy over 120 s, undamped.

The device is chaotic: after some 15 s two runs that differ by rounding are different motions. So what is
said of its drift is said of several runs whose starts differ by 1e-9 rad. In its fastest whips (13 rad/s)
a step of 0.01 s is too long for the expansion that makes a band of the energy: there the conserved
energy itself takes jumps of either sign, and the run's drift is a random walk. At half the step it is not.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

import vioc
from studies import peers
from studies.energy import shadow_energy, total_drift
from studies.harness import Claim, Report, Study, at_most, near
from studies.reference_models import load_reference
from vioc import consistent_configuration

DURATION = 120.0  # s
DT = 0.01  # s, the paper's
ORDER_STEPS = (0.01, 0.005, 0.0025, 0.00125)
ORDER_DURATION = 2.0  # s, short enough for all steps to follow one motion
SPREAD = 1e-9  # rad, between starts

STUDY = Study(
    __file__,
    "constraints and energy of the closed-chain device over 120 s",
    constraints=Claim(
        "largest |h| of any step, dt 0.01 s", at_most(1e-10), unit="m", published="kept", source="[T] VI-B"
    ),
    reference_q=Claim(
        "configurations in the first second, against an independent implementation",
        at_most(1e-8),
        unit="rad",
        source="studies/data/closed_chain_undamped",
    ),
    reference_p=Claim(
        "momenta in the first second, likewise",
        at_most(1e-8),
        unit="kg m^2/s",
        source="studies/data/closed_chain_undamped",
    ),
    listing=Claim(
        "configurations of Listing 1 (with that gravity) against the same",
        at_most(1e-8),
        unit="rad",
        source="[T] Listing 1",
    ),
    near_constant=Claim(
        "standard deviation of the energy over its kinetic part's peak, dt 0.01 s",
        at_most(1e-2),
        published="near constant",
        source="[T] Fig. 8",
    ),
    band_order=Claim("order at which the band shrinks with dt", near(2, 0.2)),
    shadow_order=Claim("order of the shadow energy's band", near(4, 0.2)),
    time=Claim("time for the 120 s", unit="s", published=22.1, source="trep, [T] VI-B"),
    ode=Claim(
        f"range of the energy by {peers.ODE}",
        unit="J",
        published="lost",
        source="[T] Fig. 8",
        full_only=True,
    ),
    ode_time=Claim(f"time by {peers.ODE}", unit="s", published=1.86, source="[T] VI-B", full_only=True),
    mujoco=Claim(f"range of the energy by {peers.MUJOCO}", unit="J", full_only=True),
    mujoco_time=Claim(f"time by {peers.MUJOCO}", unit="s", full_only=True),
    band=Claim("band of the energy (max - min), dt 0.01 s", unit="J"),
    drift_raw=Claim("drift / band, energy at the samples, dt 0.01 s, one run"),
    drift_shadow=Claim("drift / band, shadow energy, dt 0.01 s, one run"),
    drift_mean=Claim(
        "|mean| / standard error of the drift over the starts, dt 0.01 s", at_most(4), full_only=True
    ),
    drift_spread=Claim("standard deviation of drift / band over the starts, dt 0.01 s", full_only=True),
    drift_half=Claim("median |drift| / band over the starts, dt 0.005 s", at_most(1e-3)),
    drift_quarter=Claim("largest |drift| / band over the starts, dt 0.0025 s", at_most(1e-3), full_only=True),
)


class Energy(NamedTuple):
    """Band of the energy at the samples, J, and drifts relative to it."""

    band: float
    raw: float
    shadow: float


@STUDY.body
def run(report: Report) -> None:
    device = vioc.models.load("closed_chain")
    start = consistent_start(device)
    f = vioc.MidpointVI(device, DT)
    state = f.state_from_configurations(start, start)
    f.rollout(state, steps=1024)  # the functions are built now
    before = time.perf_counter()
    paper = f.rollout(state, steps=round(DURATION / DT))
    report.measure(time=time.perf_counter() - before)
    h = np.abs([paper[f"h.{name}"] for name in device.constraint_names])
    report.measure(constraints=h.max(), near_constant=np.std(paper.energy) / np.max(paper["kinetic"]))
    compare_with_reference(report, device)
    orders(report, device, start)

    judged = judge(paper)
    report.measure(band=judged.band, drift_raw=judged.raw, drift_shadow=judged.shadow)
    if report.quick:
        report.measure(drift_half=np.median(np.abs(ensemble(device, start, DT / 2, 1))))
    else:
        drifts = ensemble(device, start, DT, 24)
        deviation = drifts.std(ddof=1)
        report.measure(
            drift_mean=abs(drifts.mean()) / deviation * np.sqrt(len(drifts)),
            drift_spread=deviation,
            drift_half=np.median(np.abs(ensemble(device, start, DT / 2, 12))),
            drift_quarter=np.abs(ensemble(device, start, DT / 4, 6)).max(),
        )
    rivals = others(report, device, start)
    draw(report, paper, device, start, rivals)


def others(report: Report, device: vioc.System, start: np.ndarray) -> dict[str, peers.PeerRun]:
    """The device released at rest by the peers that are installed, for as long as it is run here."""
    duration = 2.0 if report.quick else DURATION
    found, engines = {}, peers.available()
    for name, key in ((peers.ODE, "ode"), (peers.MUJOCO, "mujoco")):
        if name not in engines:
            report.skip(peers.INSTALL[name], key, f"{key}_time")
            continue
        found[name] = engines[name](device, start, DT, round(duration / DT))
        swing = np.ptp(found[name].energy)
        if not report.quick:
            figures = {key: swing, f"{key}_time": found[name].seconds}
            report.measure(**figures)
    return found


def consistent_start(device: vioc.System) -> np.ndarray:
    """The reference's first configuration, by name, put on the constraints to rounding."""
    _, data = load_reference("closed_chain_undamped")
    by_name = dict(zip(map(str, data["names"]), data["q"][0], strict=True))
    return consistent_configuration(device, by_name).q


def compare_with_reference(report: Report, device: vioc.System) -> None:
    """First second, against numbers computed elsewhere, with "configs start": q(-dt) = q(0)."""
    reference, data = load_reference("closed_chain_undamped")
    steps = round(1 / DT)
    errors = []
    for system in (reference, vioc.System(device.frames, reference.potentials, device.constraints)):
        order = [list(data["names"]).index(name) for name in system.variables]
        f = vioc.MidpointVI(system, DT)
        start = data["q"][0][order]
        run = f.rollout(f.state_from_configurations(start, start), steps=steps)
        known = np.hstack([data["q"][: steps + 1, order], data["p"][: steps + 1, order]])
        errors.append(np.abs(run.x - known))
    n = len(reference.variables)
    report.measure(
        reference_q=errors[0][:, :n].max(), reference_p=errors[0][:, n:].max(), listing=errors[1][:, :n].max()
    )


def orders(report: Report, device: vioc.System, start: np.ndarray) -> None:
    """Regression slopes of the two bands over the step."""
    bands = []
    for dt in ORDER_STEPS:
        f = vioc.MidpointVI(device, dt)
        run = f.rollout(f.initial_state(start), steps=round(ORDER_DURATION / dt))
        bands.append([np.ptp(run.energy), np.ptp(shadow_energy(run)[1])])
    at_samples, shadow = np.polyfit(np.log(ORDER_STEPS), np.log(bands), 1)[0]
    report.measure(band_order=at_samples, shadow_order=shadow)


def judge(run: vioc.Trajectory) -> Energy:
    band = float(np.ptp(run.energy))
    return Energy(band, total_drift(run.t, run.energy) / band, total_drift(*shadow_energy(run)) / band)


def ensemble(device: vioc.System, start: np.ndarray, dt: float, count: int) -> np.ndarray:
    """Drift of the shadow energy over the band, for `count` starts next to each other."""
    rng = np.random.default_rng(0)
    f = vioc.MidpointVI(device, dt)
    drifts = []
    for _ in range(count):
        q = consistent_configuration(device, start + SPREAD * rng.standard_normal(len(start))).q
        run = f.rollout(f.state_from_configurations(q, q), steps=round(DURATION / dt))
        drifts.append(judge(run).shadow)
    return np.array(drifts)


def draw(
    report: Report,
    paper: vioc.Trajectory,
    device: vioc.System,
    start: np.ndarray,
    rivals: dict[str, peers.PeerRun],
) -> None:
    """[T] Fig. 8, and below it the same energy in its band."""
    import matplotlib.pyplot as plt

    f, duration = vioc.MidpointVI(device, DT / 2), 10.0 if report.quick else DURATION
    fine = f.rollout(f.state_from_configurations(start, start), steps=round(2 * duration / DT))
    figure, (whole, band) = plt.subplots(2, 1, sharex=True, figsize=(7, 6), layout="constrained")
    whole.plot(paper.t, paper.energy, color="k", lw=0.8, label="total")
    for (name, rival), color in zip(rivals.items(), ("tab:red", "tab:purple"), strict=False):
        whole.plot(rival.t, rival.energy, color=color, lw=0.8, label=name)
    whole.plot(paper.t, paper["potential"], color="0.7", lw=0.6, zorder=0, label="potential")
    whole.set(ylabel="energy (J)", title=f"Closed-chain device, dt = {DT:g} s ([T] Fig. 8)")
    figure.legend(*whole.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    for run, color in ((paper, "tab:blue"), (fine, "tab:orange")):
        offset = run.energy[0]
        band.plot(run.t, run.energy - offset, color=color, lw=0.5, alpha=0.5)
        label = f"shadow energy, dt = {run.map.dt:g} s"
        t, shadow = shadow_energy(run)
        band.plot(t, shadow - offset, color=color, lw=1.5, label=label)
    band.set(xlabel="t (s)", ylabel="energy - its start (J)", title="the band (faint: energy at the samples)")
    band.legend(loc="lower left")
    for axes in (whole, band):
        axes.grid(alpha=0.3)
    report.save(figure)
    report.frame(paper, np.linspace(0.0, 1.2, 4), title="Closed-chain device, released at rest ([T] Fig. 6)")


if __name__ == "__main__":
    STUDY.main()
