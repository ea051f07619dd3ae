"""A pendulum of 1 m and 1 kg released at 90 degrees: energy over 5000 s ([T] Fig. 1), and accuracy."""

from __future__ import annotations

from itertools import pairwise

import casadi as ca
import numpy as np
from scipy.special import ellipj, ellipk

import vioc
from studies import peers
from studies.energy import shadow_energy, total_drift
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import Gravity, System, rx, tz

G = 9.81  # m/s^2
DT = 0.01  # s
DURATION = 5000.0  # s
STEPS = (0.02, 0.01, 0.005, 0.0025)  # s, for the orders
END = 10.0  # s, where the solution is compared with the exact one
EXACT = (0.2750874626, -0.9614192051)  # m, (x, y) at END as published
A01 = "multibody benchmark A01"

STUDY = Study(
    __file__,
    "energy of a pendulum over 5000 s, and order against the exact solution",
    band=Claim(
        "band of the energy over m g L, dt 0.01 s",
        near(4.09e-5, 1e-6),
        published="a region",
        source="[T] Fig. 1",
    ),
    band_order=Claim("order at which the band shrinks with dt", near(2, 0.05)),
    drift=Claim(
        "|drift| / band, slope of the energy times 5000 s",
        at_most(1e-3),
        published="none",
        source="[T] Fig. 1",
        full_only=True,
    ),
    shadow=Claim("|drift| of the shadow energy / band", at_most(1e-3), full_only=True),
    baseline=Claim("|drift| of Heun's rule over the variational band", at_least(10), full_only=True),
    runge_kutta=Claim("|drift| of the classical Runge-Kutta rule over the same band", full_only=True),
    ode=Claim(
        f"|drift| of {peers.ODE} over the same band",
        published="dissipates slowly",
        source="[T] Fig. 1",
        full_only=True,
    ),
    mujoco=Claim(f"|drift| of {peers.MUJOCO} over the same band", full_only=True),
    closed_form=Claim(
        "closed form at t = 10 s against the published digits", at_most(1e-10), unit="m", source=A01
    ),
    error=Claim("position error at t = 10 s, dt 0.01 s", near(1.208e-3, 1e-5), unit="m", source=A01),
    order=Claim("order of the position error over dt", near(2, 0.05)),
    driven=Claim("order of a damped oscillator under a force of time, from q and v", near(2, 0.05)),
    driven_pair=Claim("the same from two configurations of the exact motion", near(2, 0.05)),
    reversed=Claim("run back from its end with -p: distance from the start", at_most(1e-10), unit="rad, ..."),
    limit=Claim("error of the Richardson limit", at_most(1e-7), unit="m", published=0.0, source=A01),
)

KEYS = {"Heun": "baseline", "Runge-Kutta 4": "runge_kutta", peers.ODE: "ode", peers.MUJOCO: "mujoco"}


@STUDY.body
def run(report: Report) -> None:
    pendulum = System(rx("phi")[tz(-1.0, name="bob", mass=1.0)], Gravity(0, 0, -G), name="pendulum")
    accuracy(report, pendulum)
    driven(report)
    f = vioc.MidpointVI(pendulum, DT)
    duration = 50.0 if report.quick else DURATION
    run = f.rollout(f.initial_state({"phi": np.pi / 2}), steps=round(duration / DT))
    band = np.ptp(run.energy)
    report.measure(band=band / G, reversed=there_and_back(f, 1000))
    rivals = others(report, pendulum, len(run))
    if not report.quick:
        report.measure(
            drift=abs(total_drift(run.t, run.energy)) / band,
            shadow=abs(total_drift(*shadow_energy(run))) / band,
            **{KEYS[name]: abs(total_drift(*rival)) / band for name, rival in rivals.items()},
        )
    draw(report, run, rivals)


def exact(t: float) -> np.ndarray:
    """(x, y) of the release from the horizontal: phi = 2 asin(k sn(K - w t)), k = sin(pi/4)."""
    m = 0.5  # k^2
    sn = ellipj(ellipk(m) - np.sqrt(G) * t, m)[0]
    phi = 2 * np.arcsin(np.sqrt(m) * sn)
    return np.array([np.sin(phi), -np.cos(phi)])


def accuracy(report: Report, pendulum: System) -> None:
    """Order in the step, and the limit that the three finest steps extrapolate to."""
    ends, bands = [], []
    for dt in STEPS:
        f = vioc.MidpointVI(pendulum, dt)
        run = f.rollout(f.initial_state({"phi": np.pi / 2}), steps=round(END / dt))
        ends.append([np.sin(run["phi"][-1]), -np.cos(run["phi"][-1])])
        bands.append(np.ptp(run.energy))
    errors = np.linalg.norm(np.array(ends) - exact(END), axis=1)
    # the errors in h^2, then in h^4, taken off
    once = [(4 * np.array(b) - np.array(a)) / 3 for a, b in pairwise(ends)]
    limit = (16 * once[-1] - once[-2]) / 15
    report.measure(
        closed_form=np.abs(exact(END) - EXACT).max(),
        error=errors[STEPS.index(DT)],
        order=np.polyfit(np.log(STEPS), np.log(errors), 1)[0],
        limit=np.abs(limit - exact(END)).max(),
        band_order=np.polyfit(np.log(STEPS), np.log(bands), 1)[0],
    )


def driven(report: Report) -> None:
    """m = 1, k = 4 and c = 0.5 under cos 3t, against x = Re(X e^3it) with X = 1/(4 - 9 + 1.5i)."""
    spring = vioc.TorsionalSpring("x", 4.0)
    pushed = vioc.UserForce(lambda k: {"x": ca.cos(3 * k.t)})
    system = System(vioc.tx("x", mass=1.0), spring, vioc.JointDamping("x", 0.5), pushed)
    X = 1 / (4.0 - 9.0 + 1.5j)

    def x(t: float) -> float:
        return float((X * np.exp(3j * t)).real)

    errors: list[list[float]] = []
    for dt in STEPS:
        f = vioc.MidpointVI(system, dt)
        v = float((3j * X).real)
        starts = f.initial_state([x(0.0)], [v]), f.state_from_configurations([x(-dt)], [x(0.0)], k=-1)
        runs = [f.rollout(start, steps=round(2.0 / dt)) for start in starts]
        errors.append([abs(run.x[-1, 0] - x(2.0)) for run in runs])
    report.measure(
        **{
            key: np.polyfit(np.log(STEPS), np.log(error), 1)[0]
            for key, error in zip(("driven", "driven_pair"), np.transpose(errors), strict=True)
        }
    )


def there_and_back(f: vioc.MidpointVI, steps: int) -> float:
    """The rule is its own adjoint, for alpha = 1/2 alone: from the end with -p the same steps lead back."""
    start = f.initial_state({"phi": np.pi / 2}, {"phi": 1.0})
    turned = f.rollout(start, steps=steps).x[-1] * [1.0, -1.0]
    return float(np.abs(f.rollout(turned, steps=steps).x[-1] * [1.0, -1.0] - start).max())


def others(report: Report, pendulum: System, steps: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Time and energy of the same release by rules and programs that are not variational."""
    start = {"phi": np.pi / 2}
    found = {}
    for method, name in (("heun", "Heun"), ("rk4", "Runge-Kutta 4")):
        f = vioc.RungeKutta(pendulum, DT, method)
        run = f.rollout(f.initial_state(start), steps=steps)
        found[name] = run.t, run.energy
    engines = peers.available()
    for name in (peers.ODE, peers.MUJOCO):
        if name not in engines:
            report.skip(peers.INSTALL[name], KEYS[name])
            continue
        rival = engines[name](pendulum, start, DT, steps, every=100)
        found[name] = rival.t, rival.energy
    return found


def draw(report: Report, run: vioc.Trajectory, rivals: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """[T] Fig. 1: regions, since the energy varies fast on this scale; and the band itself."""
    import matplotlib.pyplot as plt

    figure, (all_rules, band) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    colors = ("tab:green", "tab:orange", "0.6", "tab:purple")
    for (name, (t, energy)), color in zip(rivals.items(), colors, strict=False):
        all_rules.plot(t, energy, color=color, lw=0.8, label=name)
        if name == "Runge-Kutta 4":
            band.plot(t, 1e3 * energy, color=color, lw=1.2, zorder=3)
    all_rules.plot(run.t, run.energy, color="k", lw=0.5, label="variational")
    band.plot(run.t, 1e3 * run.energy, color="k", lw=0.5)
    t, shadow = shadow_energy(run)
    band.plot(t[::500], 1e3 * shadow[::500], color="tab:blue", label="shadow energy of the variational rule")
    band.legend(loc="upper left")
    for axes, unit in ((all_rules, "J"), (band, "mJ")):
        axes.set(xlabel="t (s)", ylabel=f"energy ({unit})")
        axes.grid(alpha=0.3)
    all_rules.set_title(f"dt = {DT:g} s ([T] Fig. 1)")
    all_rules.set_ylim(-1.05 * G, 0.35 * G)
    all_rules.legend(loc="lower left", fontsize=8)
    band.set_title("the variational band, enlarged")
    low, high = 1e3 * shadow.min(), 1e3 * run.energy.max()
    band.set_ylim(low - 0.2 * (high - low), high + 0.4 * (high - low))
    report.save(figure)
    report.frame(run, np.linspace(0.0, 0.6, 5))


if __name__ == "__main__":
    STUDY.main()
