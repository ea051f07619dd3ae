"""A planar hopper hops half a metre and stands, with contacts known beforehand; MuJoCo plays the same law.

Three phases of free duration: stance, flight, stance; bounded leg force and hip torque. The optimizer starts
from twenty random guesses. The regulator along the hop reckons with when the foot lands; standing on a round
foot is an equilibrium that a second regulator holds, which the place of the foot does not concern.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from studies import peer_mujoco
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import Contact, Gravity, JointForce, Mass, ModeVI, System, ry, tx, tz
from vioc.control import Cost, Result, dlqr, dmoc, equilibrium

STEPS, WAY, HEIGHT = 20, 0.5, 0.5  # of a phase, m, m
RADIUS, FRICTION = 0.05, 0.8  # m, of the foot
BODY, FOOT, INERTIA, TOE = 1.0, 0.1, 0.1, 1e-3  # kg, kg, kg m^2, kg m^2
STARTS, PUSHES, PUSH = 20, 20, 0.02  # guesses, runs, m/s and rad/s of each velocity
STAND, BETWEEN = 3.0, 10  # s after the hop, steps of MuJoCo in one
Q = {"x": 1.0, "z": 100.0, "tilt": 100.0, "r": 10.0, "v.tilt": 1.0}

STUDY = Study(
    __file__,
    "a hop over half a metre in phases of stance and flight, and MuJoCo under its inputs and regulator",
    cost=Claim("cost of the hop, from standing and the straight line", near(0.0190, 0.0005)),
    iterations=Claim("iterations", at_most(200)),
    starts=Claim(f"of {STARTS} random guesses converged", at_least(18), full_only=True),
    best=Claim("of these, to this cost or a lower one", full_only=True),
    violation=Claim("largest violation of gap, pushing force and friction", at_most(1e-6), unit="m, N"),
    replay=Claim("rollout of the inputs against the plan", at_most(1e-6)),
    impact=Claim("impulse of the touch-down over mass times the speed of landing of what it stops"),
    lands=Claim("MuJoCo: foot of the landing off the plan", at_most(0.05), unit="m", full_only=True),
    tilt=Claim("MuJoCo: largest tilt off the plan over the hop", at_most(0.1), unit="rad", full_only=True),
    stands=Claim(f"MuJoCo: tilt after {STAND:g} s of standing", at_most(0.02), unit="rad", full_only=True),
    open_loop=Claim("MuJoCo without regulators: tilt at that time", unit="rad", full_only=True),
    pushed=Claim(f"MuJoCo: of {PUSHES} pushed starts that still stand then", at_least(18), full_only=True),
)


def hopper() -> System:
    foot = tz("r", name="foot", mass=Mass(FOOT, (TOE,) * 3))
    body = tx("x")[tz("z")[ry("tilt", name="body", mass=Mass(BODY, (INERTIA,) * 3))[foot]]]
    toe = Contact.sphere("foot", RADIUS, friction=FRICTION, name="toe")
    return System(body, Gravity(0, 0, -9.81), JointForce("r", "push"), JointForce("tilt", "hip"), toe)


def phase(f: ModeVI, **options: Any) -> dmoc.Phase:
    u = f.symbols.u
    cost = Cost(f, 0.5 * f.symbols.dt * (0.01 * u[0] ** 2 + u[1] ** 2))
    bounds = {"u.push": 40.0, "u.hip": 5.0, "r": (-0.6, -0.25), "z": (0.2, 2.0)}
    return dmoc.Phase(f, STEPS, cost, bounds=bounds, duration=(0.1, 0.6), **options)


def problem() -> tuple[dmoc.Problem, list]:
    """And the guess: it stands, moves along a line, stands."""
    stance = ModeVI(hopper(), 0.01, "toe")
    start = stance.initial_state({"z": HEIGHT, "r": RADIUS - HEIGHT})
    rest = {"x": WAY, "tilt": 0.0, "z": HEIGHT, "v.x": 0.0, "v.z": 0.0}
    phases = [phase(stance, initial=start), phase(stance.holding()), phase(stance, final=rest)]
    way = start + np.linspace(0, WAY, STEPS + 1)[:, None] * np.eye(8)[0]
    weight = np.tile([-(BODY + FOOT) * 9.81, 0.0], (STEPS, 1))
    rests = [np.tile(way[i], (STEPS + 1, 1)) for i in (0, -1)]
    return dmoc.Problem(phases), [(rests[0], weight), (way, 0 * weight), (rests[1], weight)]


@STUDY.body
def run(report: Report) -> None:
    hop, guess = problem()
    best = hop.solve(guess)
    physics(report, best)
    if not report.quick:
        random = np.random.default_rng(0)
        found = [hop.solve(shaken(guess, random), raise_on_failure=False) for _ in range(STARTS)]
        good = [b for b in found if b.status == "converged"]
        report.measure(starts=len(good), best=sum(b.cost < best.cost * 1.01 for b in good))
    player = Player(best)
    if player.model is None:
        missing = "lands", "tilt", "stands", "open_loop", "pushed"
        report.skip(peer_mujoco.INSTALL, *missing)
        draw(report, best, None)
        return
    played = player.play(np.zeros(4))
    plan, n = best.trajectory.x, 3 * STEPS
    alone = player.play(np.zeros(4), feedback=False)
    report.measure(
        lands=abs(played[2 * STEPS, 0] - plan[2 * STEPS, 0]),
        tilt=np.abs(played[: n + 1, 2] - plan[:, 2]).max(),
        stands=abs(played[-1, 2]),
        open_loop=abs(alone[-1, 2]),
    )
    if not report.quick:
        random = np.random.default_rng(1)
        ends = [player.play(PUSH * random.standard_normal(4) * [1, 0, 1, 0])[-1] for _ in range(PUSHES)]
        report.measure(pushed=sum(abs(q[2]) < 0.1 and q[1] > 0.3 for q in ends))
    draw(report, best, played)


def shaken(guess: list, random: np.random.Generator) -> list:
    """Other heights and lengths of the leg at every sample, other inputs."""
    found = []
    for x, u in guess:
        noise = np.zeros_like(x)
        noise[1:, :4] = random.uniform(-0.1, 0.1, (len(u), 4))
        found.append((x + noise, u + random.uniform(-5, 5, u.shape) * [1, 0.2]))
    return found


def physics(report: Report, best: Result) -> None:
    worst = 0.0
    for part in best.phases:
        for name in part.phase.map.mechanism.limits():
            kept = part[name][1:-1] if name.startswith("gap") else part[name]
            worst = max(worst, -float(np.min(kept)))
    run = best.trajectory
    falling = -best.phases[1]["v.z"][-1]
    impulse = run["lambda.toe"][2 * STEPS]
    report.measure(
        cost=best.cost,
        iterations=best.iterations,
        violation=worst,
        replay=best.rollout().gap,
        impact=impulse / ((BODY + FOOT) * falling),
    )


class Player:
    """MuJoCo under the inputs of a hop and its regulator, then under that of standing."""

    def __init__(self, best: Result):
        self.run = best.trajectory
        self.flight = best.phases[1].trajectory.map
        last = best.phases[2].trajectory.map
        self.loop = best.stabilize(Q, 0.1)
        guess = {"x": WAY, "z": HEIGHT, "r": RADIUS - HEIGHT}
        still = equilibrium(last.with_dt(0.01), guess=guess, fixed=["z"])
        self.stand = dlqr(still.map, still, Q | {"x": 0.0}, 0.1, disregard=["foot:x"])
        mujoco = peer_mujoco.package()
        self.model = None if mujoco is None else mujoco.MjModel.from_xml_string(XML)

    def play(self, push: np.ndarray, feedback: bool = True) -> np.ndarray:
        """Configurations (samples, 4) from the start with velocities `push`."""
        mujoco, run, model = peer_mujoco.package(), self.run, self.model
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = run.x[0, :4], push
        rows = [data.qpos.copy()]
        lengths = [*run.step_lengths, *[0.01] * round(STAND / 0.01)]
        for k, h in enumerate(lengths):
            x = self.flight.initial_state(data.qpos, data.qvel)  # type: ignore[attr-defined]
            hopping = k < len(run)
            law = self.loop.K[k] if hopping else self.stand.K
            aim, u = (run.x[k], run.u[k]) if hopping else (self.stand.x, self.stand.u)
            applied = u - law @ (x - aim) * feedback
            data.qfrc_applied[[3, 2]] = np.clip(applied, [-40.0, -5.0], [40.0, 5.0])
            model.opt.timestep = h / BETWEEN
            for _ in range(BETWEEN):
                mujoco.mj_step(model, data)
            rows.append(data.qpos.copy())
        return np.array(rows)


XML = f"""
<mujoco>
  <option gravity="0 0 -9.81"/>
  <worldbody>
    <geom type="plane" size="0 0 1" friction="{FRICTION} 0 0"/>
    <body>
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0"/>
      <inertial pos="0 0 0" mass="{BODY}" diaginertia="{INERTIA} {INERTIA} {INERTIA}"/>
      <body>
        <joint type="slide" axis="0 0 1"/>
        <inertial pos="0 0 0" mass="{FOOT}" diaginertia="{TOE} {TOE} {TOE}"/>
        <geom type="sphere" size="{RADIUS}" friction="{FRICTION} 0 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def draw(report: Report, best: Result, played: np.ndarray | None) -> None:
    import matplotlib.pyplot as plt

    run, n = best.trajectory, 3 * STEPS
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    for i, name in enumerate(("x", "z", "tilt")):
        axes[0, 0].plot(run.t, run.x[:, i], f"C{i}", label=name)
        if played is not None:
            axes[0, 0].plot(run.t, played[: n + 1, i], "k--", lw=1)
    axes[0, 0].set(
        title="the hop" if played is None else "the hop, MuJoCo dashed", xlabel="t (s)", ylabel="m, rad"
    )
    axes[0, 0].legend(frameon=False)
    axes[0, 1].plot(run["foot:x"], run["gap.toe"])
    axes[0, 1].set(title="path of the foot", xlabel="m", ylabel="gap (m)")
    axes[1, 0].step(run.t[:-1], run.u, where="post", label=("push (N)", "hip (N m)"))
    axes[1, 0].set(title="inputs", xlabel="t (s)")
    axes[1, 0].legend(frameon=False)
    if played is None:
        axes[1, 1].set_axis_off()
    else:
        t = run.t[-1] + 0.01 * np.arange(len(played) - n)
        axes[1, 1].plot(t, played[n:, 2], label="tilt (rad)")
        axes[1, 1].plot(t, played[n:, 0] - WAY, label="x off the goal (m)")
        axes[1, 1].set(title="standing, MuJoCo", xlabel="t (s)")
        axes[1, 1].legend(frameon=False)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
