"""The double four-bar linkage through its singular position ([M] Fig. 12; multibody benchmark A02).

Five uniform rods of 1 m and 1 kg: three cranks and two couplers that stay horizontal. Where all are in line
the constraints are dependent, and another branch of motions, with couplers that turn, meets this one. On the
regular branch the linkage is one equation for the cranks' angle, integrated here to 1e-12, and the benchmark
publishes where it is after 10 s.

[M] sets the integrator beside one that enforces the velocity constraint too: after each step momenta
are projected onto the tangent of the constraints (RATTLE). That only adds to the constraint impulse of the
next step, so its positions are those of [M]; its velocities satisfy Dg v = 0. `MaximalVI` has them in its
state.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

import vioc
from studies.harness import Claim, Report, Study, at_most, near
from vioc import Gravity, Mass, MaximalVI, System, ry, tx, tz
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.integrators.maximal import body_space as space

G, CELLS, END = 9.81, 2, 10.0
PUBLISHED = (0.3284581115, 0.9445185382)  # m, B0 at END
STEPS = (0.01, 0.001)
A02 = "multibody benchmark A02"
ROD = Mass(1.0, (1 / 12, 1 / 12, 0.0), (0, 0, 0.5))

STUDY = Study(
    __file__,
    "a double four-bar linkage through its singular position",
    reference=Claim(
        "one equation of the regular branch against the published digits", at_most(1e-9), "m", 0.0, A02
    ),
    passages=Claim("singular positions passed in 10 s", published="several", source="[M] Fig. 12"),
    branch=Claim("turn of the couplers, largest: 0 on the regular branch", at_most(1e-6), "rad"),
    constraint=Claim("largest |g| at any step, dt 0.01 s", at_most(1e-9), "m", "very low", "[M] Fig. 12 c"),
    velocity=Claim("largest |Dg v| of the step's twists, dt 0.01 s", unit="m/s"),
    projected=Claim("the same of the state", at_most(1e-9), "m/s", "better", "[M] Fig. 12 c"),
    energy=Claim("largest energy error, dt 0.01 s", unit="J", published="bounded", source="[M] Fig. 12 b"),
    energy_fine=Claim("the same, dt 0.001 s", unit="J", full_only=True),
    energy_late=Claim(
        "the same over its value in the first half: 100 s, dt 0.01 s", at_most(2.0), full_only=True
    ),
    energy_order=Claim("order of the energy error", near(2, 0.3), full_only=True),
    error=Claim("error of B0 at 10 s, dt 0.01 s", unit="m", source=A02),
    error_fine=Claim("the same, dt 0.001 s", unit="m", source=A02, full_only=True),
    order=Claim("order of the error of B0", near(2, 0.3), full_only=True),
    limit=Claim("error of B0's Richardson limit", at_most(1e-4), "m", 0.0, A02, full_only=True),
)


def linkage() -> System:
    """Cranks at x = 0, 1, 2; each but the last carries the coupler to the next."""
    cranks = []
    for i in range(CELLS + 1):
        top = tz(1.0, name=f"B{i}")
        if i < CELLS:
            top = top[ry(np.pi / 2)[ry(f"coupler-{i}", mass=ROD)[tz(1.0, name=f"end-{i}")]]]
        cranks.append(tx(float(i))[ry(f"crank-{i}", mass=ROD)[top]])
    loops = [vioc.coincident(f"end-{i}", f"B{i + 1}", "xz", name=f"pin-{i}") for i in range(CELLS)]
    return System(cranks, loops, Gravity(0, 0, -G), name="double four-bar")


def start(f: MaximalVI) -> np.ndarray:
    rates = {f"crank-{i}": 1.0 for i in range(CELLS + 1)} | {f"coupler-{i}": -1.0 for i in range(CELLS)}
    return f.initial_state(None, rates)


def regular(times: np.ndarray) -> np.ndarray:
    """The cranks' angle th from the x axis: [(N + 1)/3 + N] th'' = -[(N + 1)/2 + N] g cos th."""
    n = CELLS
    rate = ((n + 1) / 2 + n) / ((n + 1) / 3 + n) * G
    solution = solve_ivp(
        lambda t, y: [y[1], -rate * np.cos(y[0])],
        (0, times[-1]),
        [np.pi / 2, -1.0],
        method="DOP853",
        rtol=1e-13,
        atol=1e-13,
        dense_output=True,
    )
    return solution.sol(times)[0]


def velocity_violations(f: MaximalVI, X: np.ndarray, projected: bool) -> np.ndarray:
    """Largest |Dg v| at each state but the first, of its velocities or of the twists of the step before."""
    import casadi as ca

    graph, terms = f.graph, f.graph.terms
    poses = [terms.poses[12 * i : 12 * i + 12] for i in range(graph.n)]
    g = ca.vertcat(
        *(r.rows.function.call([*(poses[i] for i in r.bodies), terms.parameters])[0] for r in graph.groups)
    )
    rate = ca.Function("rate", [terms.poses, terms.twists], [ca.jtimes(g, terms.poses, terms.pose_rates)])
    x, twists = f.symbols.x, ca.SX.sym("V", 6 * graph.n)
    there = ca.vertcat(*f.named.poses)
    evaluate = Evaluator(ca.Function("violation", [x, twists], [ca.densify(rate(there, twists))]))
    V = X[1:, -6 * graph.n :] if projected else space.between(graph.n, X[:-1], X[1:], f.dt)
    return np.abs(evaluate(X[1:], V)[0][..., 0]).max(axis=1)


def simulate(dt: float, end: float):
    f = MaximalVI(linkage(), dt)
    run = f.rollout(start(f), steps=round(end / dt), warn=False)
    energy = run.energy - run.energy[0]
    return run, energy


@STUDY.body
def run(report: Report) -> None:
    report.measure(
        reference=np.hypot(*(np.array([np.cos(a := regular(np.array([END]))[-1]), np.sin(a)]) - PUBLISHED))
    )
    end = 2.0 if report.quick else END
    results = {dt: simulate(dt, end) for dt in (STEPS[:1] if report.quick else STEPS)}
    coarse, energy = results[STEPS[0]]
    angle = regular(coarse.t)
    report.measure(
        passages=np.count_nonzero(np.diff(np.sign(np.sin(angle)))),
        branch=max(np.abs(turn(coarse, i)).max() for i in range(CELLS)),
        constraint=max(np.abs(coarse["h." + name]).max() for name in coarse.map.multiplier_names),
        velocity=velocity_violations(coarse.map, coarse.x, False).max(),
        projected=velocity_violations(coarse.map, coarse.x, True).max(),
        energy=np.abs(energy).max(),
        error=np.hypot(*(place(coarse)[-1] - circle(angle[-1]))),
    )
    if not report.quick:
        fine, fine_energy = results[STEPS[1]]
        middle, middle_energy = simulate(0.002, end)
        errors = [np.hypot(*(place(r)[-1] - PUBLISHED)) for r in (middle, fine)]
        bands = [np.abs(e).max() for e in (middle_energy, fine_energy)]
        limit = place(fine)[-1] + (place(fine)[-1] - place(middle)[-1]) / 3
        _, long = simulate(STEPS[0], 100.0)
        half = len(long) // 2
        report.measure(
            energy_fine=bands[1],
            energy_order=np.log2(bands[0] / bands[1]),
            energy_late=np.abs(long[half:]).max() / np.abs(long[:half]).max(),
            error_fine=errors[1],
            order=np.log2(errors[0] / errors[1]),
            limit=np.hypot(*(limit - PUBLISHED)),
        )
    draw(report, results, angle)


def turn(run: vioc.Trajectory, i: int) -> np.ndarray:
    """Turn of a coupler from the horizontal, rad."""
    angle = run[f"crank-{i}"] + run[f"coupler-{i}"]
    return np.remainder(angle + np.pi, 2 * np.pi) - np.pi


def place(run: vioc.Trajectory) -> np.ndarray:
    """B0 (N+1, 2), m."""
    return np.stack([run["B0:x"], run["B0:z"]], axis=1)


def circle(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), np.sin(angle)])


def draw(report: Report, results: dict, angle: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    for dt, (run, energy) in results.items():
        axes[0, 0].plot(run.t, run["B0:x"], lw=1, label=f"MaximalVI, dt {dt:g} s")
        axes[0, 1].plot(run.t, energy, lw=1, label=f"dt {dt:g} s")
    coarse = results[STEPS[0]][0]
    axes[0, 0].plot(coarse.t, np.cos(angle), "k:", lw=1, label="regular branch")
    axes[0, 0].set(title="Point B0", xlabel="t (s)", ylabel="x (m)")
    axes[0, 1].set(title="Error of the energy", xlabel="t (s)", ylabel="energy (J)")
    f = coarse.map
    worst = np.max([np.abs(coarse["h." + n]) for n in f.multiplier_names], axis=0)
    axes[1, 0].semilogy(coarse.t, np.maximum(worst, 1e-18), lw=0.8, label="|g| (m)")
    for projected, name in ((False, "|Dg v| of the step (m/s)"), (True, "|Dg v| of the state (m/s)")):
        values = velocity_violations(f, coarse.x, projected)
        axes[1, 0].semilogy(coarse.t[1:], np.maximum(values, 1e-18), lw=0.8, label=name)
    axes[1, 0].set(title="Constraints, dt = 0.01 s", xlabel="t (s)", ylabel="largest violation")
    for name in ("kinetic", "potential", "energy"):
        axes[1, 1].plot(coarse.t, coarse[name], lw=1, label=name)
    axes[1, 1].set(title="Energies, dt = 0.01 s", xlabel="t (s)", ylabel="energy (J)")
    for ax in axes.flat:
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    report.save(figure)
    report.frame(coarse, np.linspace(0.0, 0.8, 5), trace=["B0"])


if __name__ == "__main__":
    STUDY.main()
