"""A finger pushes a block to a pose through stick and slip, and a box is pushed and lifted by its centre.

Contact is not scheduled: `dmoc` finds it by its homotopy. Beside it a program by hand for CasADi and IPOPT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from studies import contact_peers, contact_problems
from studies.contact_problems import GOALS, alongside, box, carry, planar_push, push
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import Trajectory
from vioc.control import Result, dmoc

SOURCE = "optimization_dynamics, Dojo.jl"

STUDY = Study(
    __file__,
    "a finger pushes a block to a pose through stick and slip; 20 random starts; a program by hand beside",
    translate=Claim("the block 1 m on: cost", near(12.02, 0.05), source=SOURCE),
    translate_peer=Claim("the same by hand, friction a polygon: cost", near(11.82, 0.05)),
    rotate=Claim("to (0.5, 0.5) and by a quarter turn: cost", near(25.82, 0.1), source=SOURCE),
    rotate_peer=Claim("the same by hand: cost", near(25.59, 0.1)),
    iterations=Claim("iterations of both, and of both by hand: the quotient"),
    translate_ms=Claim("the block 1 m on: time of the solver", unit="ms"),
    translate_peer_ms=Claim("by hand", unit="ms"),
    rotate_ms=Claim("by a quarter turn: time of the solver", unit="ms"),
    rotate_peer_ms=Claim("by hand", unit="ms"),
    replay=Claim("replay by the map, inputs alone: farthest from the plan, relative", at_most(1e-6)),
    products=Claim("gap x impulse at the end, m N s", at_most(1e-8)),
    energy=Claim("energy of block and finger less the work of force and floor, relative", at_most(1e-9)),
    slips=Claim("steps in which the finger slips along the block, of 50", at_least(1)),
    finger_starts=Claim("random starts of the finger that converge, %", at_least(90.0), full_only=True),
    box_starts=Claim("random starts of Dojo's box push that converge, %", at_least(90.0), full_only=True),
    untrue=Claim('of all these, verdicts "converged" that the replay denies', at_most(0), full_only=True),
    box_cost=Claim("Dojo's box push, a box of 1 kg: cost", full_only=True),
    lift_cost=Claim("lifted by 1 m: cost", full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    f = planar_push(smoothing=5e-9)  # 11 kg: gap x impulse is smoothing x mass x step
    found = {way: solved(f, way) for way in GOALS}
    peers = {way: by_hand(f, way) for way in GOALS}
    for way, best in found.items():
        report.measure(
            **{way: best.cost, f"{way}_peer": peers[way].cost},
            **{f"{way}_ms": 1e3 * best.seconds, f"{way}_peer_ms": 1e3 * peers[way].seconds},
        )
    ours, theirs = (sum(a.iterations for a in b.values()) for b in (found, peers))
    replays = [best.rollout() for best in found.values()]
    assert not any(r.feedback for r in replays)
    unbalance = max(unbalanced(r.trajectory) for r in replays)
    report.measure(
        iterations=ours / theirs,
        replay=max(r.gap for r in replays),
        products=max(np.abs(p).max() for best in found.values() for p in best.products().values()),
        energy=unbalance,
        slips=sum(
            int((best["slip.tip"] * (best["force.tip"] > 0.1) > 1e-3).sum()) for best in found.values()
        ),
    )
    if not report.quick:
        made = box()
        lifted, moved = (
            dmoc.solve(made, **carry(made, goal)) for goal in ((0.0, 0.0, 1.25), (1.0, 0.0, 0.25))
        )
        report.measure(box_cost=moved.cost, lift_cost=lifted.cost)
        fingers = converged(problem(f, "rotate"), lambda r: finger_start(f, "rotate", r), wide=1e-2)
        boxes = converged(dmoc.Problem(dmoc.Phase(made, **carry(made))), lambda r: box_start(made, r))
        report.measure(finger_starts=fingers[0], box_starts=boxes[0], untrue=fingers[1] + boxes[1])
    draw(report, found)


def problem(f: Any, way: str) -> dmoc.Problem:
    return dmoc.Problem(dmoc.Phase(f, **push(f, way)))


def solved(f: Any, way: str) -> Result:
    """From the finger on the block's left side; a block of 0.2 m: contacts are felt from a millimetre."""
    return problem(f, way).solve((alongside(f, way), None), smoothing=1e-2)


def by_hand(f: Any, way: str) -> contact_peers.Answer:
    columns = [f.state_names.index(n) for n in ("x", "y", "a", "fx", "fy")]
    X = alongside(f, way)[:, columns]
    start = np.array([0, 0, 0, -contact_problems.SIDE / 2 - 1e-8, -0.01 * (way == "rotate")])
    r = {"translate": 0.1, "rotate": 0.01}[way]
    return contact_peers.planar_push(way, np.array(GOALS[way]), start, np.vstack([X[:1], X]), r)


def unbalanced(run: Trajectory) -> float:
    """Kinetic energy of the steps' mean velocities against the work of all forces: an identity of the rule.

    M is constant, so (V_k - V_k-1)'M (V_k + V_k-1)/2 is the change of V'MV/2, M (V_k - V_k-1) the impulse of
    the force (half of either step's) and of the contacts at sample k.
    """
    f, h = run.map, run.map.dt
    q = run.x[:, : f.nq]
    V = np.diff(q, axis=0) / h
    M = np.diag([1.0, 1.0, 1.0, contact_problems.SIDE**2 / 6, 10.0, 10.0])
    names = f.state_names
    rows = np.zeros((len(V) - 1, f.nq))
    at = [names.index(n) for n in ("fx", "fy")]
    rows[:, at] = 0.5 * h * (run.u[1:] + run.u[:-1])
    rows[:, names.index("z")] -= h * contact_problems.G
    lin = f.touches.held
    for k in range(1, len(V)):
        J = f.touches.rows(lin(run.x[k][: f.nq], f.theta, []))
        place = 0
        for touch, own in zip(f.touches.all, J, strict=True):
            count = own.shape[0]
            rows[k - 1] += np.asarray(own.T @ run.multipliers[k][place : place + count]).ravel()
            place += len(touch.multipliers)
    kinetic = 0.5 * np.einsum("ki,ij,kj->k", V, M, V)
    work = (rows * (V[1:] + V[:-1]) / 2).sum(axis=1)
    return float(np.abs(np.diff(kinetic) - work).max() / kinetic.max())


def finger_start(f: Any, way: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The finger somewhere on the block's left, everything off by centimetres, forces of some N."""
    X = alongside(f, way, random.uniform(-0.5, 0.5))
    columns = [f.state_names.index(n) for n in ("x", "y", "a", "fx", "fy")]
    X[1:, columns] += 0.02 * random.standard_normal((len(X) - 1, 5))
    return X, 5.0 * random.standard_normal((len(X) - 1, 2))


def box_start(f: Any, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The box on the line to its goal, off by 0.1 m and 0.1 rad, forces of 5 N."""
    X = np.array([f.initial_state({"b-x": s, "b-z": 0.25}) for s in np.linspace(0, 1, 11)])
    error = np.zeros((11, f.ndx))
    error[1:, :6] = 0.1 * random.standard_normal((10, 6))
    X = f.retract(X, error)
    X[:, 2] = np.maximum(X[:, 2], 0.25)
    return X, 5.0 * random.standard_normal((10, 3))


def converged(stated: dmoc.Problem, start: Callable, count: int = 20, wide: float | None = None):
    """Per cent of random starts that converge at the map's own smoothing and are replayed within 1e-6.

    And how many are called converged though their replay is not.
    """
    found = [
        stated.solve(start(np.random.default_rng(seed)), smoothing=wide, raise_on_failure=False)
        for seed in range(count)
    ]
    gaps = np.array([best.rollout().gap for best in found if best.converged])
    return 100.0 * float((gaps <= 1e-6).sum()) / count, int((~(gaps <= 1e-6)).sum())


def draw(report: Report, found: dict[str, Result]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    corner = 0.1 * np.array([[1, 1], [1, -1], [-1, -1], [-1, 1], [1, 1]])
    for ax, (way, best) in zip(axes, found.items(), strict=True):
        for k in range(0, 26, 5):
            c, s = np.cos(best["a"][k]), np.sin(best["a"][k])
            at = corner @ np.array([[c, s], [-s, c]]) + [best["x"][k], best["y"][k]]
            ax.plot(*at.T, color="tab:blue", lw=1, alpha=0.3 + 0.7 * k / 25)
        ax.plot(best["fx"], best["fy"], ".-", color="tab:orange", ms=3, lw=0.8)
        ax.set(title=way, xlabel="x (m)", ylabel="y (m)", aspect="equal")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
