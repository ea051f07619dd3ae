"""Problems with contact of CALIPSO, nosbench and optimization_dynamics, and the same by hand, in one table.

`dmoc` solves the map's program by its homotopy, from the task's guess to the map's smoothing; by hand it is
Scholtes' relaxation from 0.01 to 1e-8 in IPOPT, from the same guess. Neither is told when what touches, and
feet only where they stand.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from studies import contact_direct, contact_gait, contact_library, contact_nosbench, contact_reach
from studies.contact_direct import Direct
from studies.contact_library import Task, unbalanced
from studies.harness import Bound, Claim, Report, Study, at_least, at_most, near
from vioc.control import Result

CALIPSO = "CALIPSO.jl, examples/contact_implicit"
NOSBENCH, DYNAMICS = "nosbench, problems/generators", "optimization_dynamics"


class Case:
    """A problem: its title, source, task; what its cost is held against; whether its masses are constant."""

    def __init__(
        self, title: str, source: str, task: Callable[[], Task], cost: Bound, flat: bool, quick: bool = False
    ):
        self.title, self.source, self.task = title, source, task
        self.cost, self.flat, self.quick = cost, flat, quick


L, B = contact_library, contact_nosbench
WIDE = 1e-2  # of Scholtes' relaxation, where it begins
GRIDS, REACHED = (161, 321), {"in5": 100, "in6": 120}  # shoulder angles; steps of 0.05 s
CASES = {  # costs are those by hand, of the acrobot from a guess that swings five times
    "cup": Case("ball in cup", CALIPSO, L.ball_in_cup, near(139.746, 0.01), True),
    "bunny": Case("bunny hop", CALIPSO, L.bunny_hop, near(372.58, 0.1), True),
    "drift": Case("drift", CALIPSO, L.drift, near(0.1849, 0.001), True, True),
    "pole2": Case("cart-pole, friction 2 N", NOSBENCH, B.cart_pole, near(696.1, 0.5), False),
    "pole5": Case("cart-pole, friction 5 N", NOSBENCH, lambda: B.cart_pole(5.0), near(790.5, 0.5), False),
    "hopper": Case("hopper", NOSBENCH, B.hopper, at_most(5.1), True),
    "carts1": Case("three carts, 1 kg", NOSBENCH, B.three_carts, near(153.2, 0.2), True, True),
    "carts2": Case("three carts, 2 kg", NOSBENCH, lambda: B.three_carts(2.0), near(146.8, 0.2), True),
    "discs": Case("two discs swap", NOSBENCH, B.two_discs, near(123.0, 0.2), True),
    "swing": Case("cart-pole, rail and joint rub", DYNAMICS, B.swing_up, at_most(10.7), False),
    "gait": Case("quadruped gait", CALIPSO, contact_gait.gait, at_most(3.5368), False),
    "acrobot": Case("acrobot whose elbow stops, 10 s", DYNAMICS, B.acrobot, near(110.92, 0.1), False),
}


def claims() -> dict[str, Claim]:
    found = {}
    for name, case in CASES.items():
        only = dict(full_only=not case.quick)
        found |= {
            name: Claim(f"{case.title}: cost", case.cost, source=case.source, **only),
            f"{name}_peer": Claim(f"{case.title}, by hand: cost", **only),
            f"{name}_count": Claim(f"{case.title}: iterations of all smoothings", **only),
            f"{name}_peer_count": Claim(f"{case.title}, by hand: iterations", **only),
            f"{name}_ms": Claim(f"{case.title}: time of the solver", unit="ms", **only),
            f"{name}_peer_ms": Claim(f"{case.title}, by hand: time of the solver", unit="ms", **only),
        }
    return found


STUDY = Study(
    __file__,
    "problems with contact of CALIPSO, nosbench and optimization_dynamics, and programs by hand beside",
    converged=Claim("problems that converge, replay within 1e-6 by inputs alone, %", at_least(100.0)),
    peers=Claim("problems that converge by hand, %"),
    replay=Claim(
        "of those that converge: replay by the map, inputs alone, farthest from the plan, relative",
        at_most(1e-6),
    ),
    products=Claim("their gap x impulse at the end, J s", at_most(1e-8)),
    energy=Claim("their energy less the work of all impulses, of constant masses, relative", at_most(1e-9)),
    faster=Claim("time by hand over ours, median"),
    **claims(),
    in5=Claim(
        "acrobot whose elbow stops, 5 s: least distance from upright at any torque, to no grid, rad",
        at_least(1e-3),
        source=DYNAMICS,
        full_only=True,
    ),
    in6=Claim("the same, 6 s", source=DYNAMICS, full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    chosen = {n: c for n, c in CASES.items() if c.quick or not report.quick}
    found = {name: both(report, name, case.task()) for name, case in chosen.items()}
    ours = {name: best for name, (_, best, _) in found.items()}
    replays = {name: best.rollout() for name, best in ours.items() if best.converged}
    good = [name for name, r in replays.items() if r.gap <= 1e-6 and not r.feedback]
    flat = [name for name in replays if chosen[name].flat]
    products = [np.abs(p).max() for n in replays for p in ours[n].products().values()]
    report.measure(
        converged=100.0 * len(good) / len(chosen),
        peers=100.0 * sum(peer.converged for _, _, peer in found.values()) / len(chosen),
        replay=max(r.gap for r in replays.values()),
        products=max(products),
        energy=max(unbalanced(found[n][0], replays[n].trajectory) for n in flat),
        faster=float(np.median([peer.seconds / best.seconds for _, best, peer in found.values()])),
    )
    if not report.quick:
        coarse, fine = (contact_reach.nearest(n, max(REACHED.values())) for n in GRIDS)
        limit = np.maximum(2 * fine - coarse, 0.0)  # the error falls with the grid's spacing
        report.measure(**{name: float(limit[n - 1]) for name, n in REACHED.items()})
    draw(report, found)


def both(report: Report, name: str, task: Task) -> tuple[Task, Result, Direct]:
    best, peer = task.solve(), contact_direct.solve(task, WIDE)
    report.measure(
        **{
            name: best.cost if best.converged else np.inf,
            f"{name}_peer": peer.cost,
            f"{name}_count": best.iterations,
            f"{name}_peer_count": peer.iterations,
            f"{name}_ms": 1e3 * best.seconds,
            f"{name}_peer_ms": 1e3 * peer.seconds,
        }
    )
    return task, best, peer


def draw(report: Report, found: dict[str, tuple[Task, Result, Direct]]) -> None:
    import matplotlib.pyplot as plt

    shown = [n for n in ("drift", "carts1", "bunny") if n in found]
    figure, axes = plt.subplots(1, len(shown), figsize=(11, 3.6), layout="constrained")
    for ax, name in zip(axes, shown, strict=True):
        _, best, peer = found[name]
        n, t = peer.q.shape[1], best.t
        if name == "drift":
            ax.plot(best["x"], best["y"], "o-", ms=3, label="vioc")
            ax.plot(*peer.q[:, :2].T, "k--", lw=0.8, label="by hand")
            turn = best["a"]
            ax.quiver(best["x"], best["y"], np.cos(turn), np.sin(turn), width=0.004, scale=18)
            for y in (0.65, -0.65):
                ax.add_patch(plt.Circle((3, y), 0.1, color="tab:red"))
            ax.set(title="drift", xlabel="x (m)", ylabel="y (m)", aspect="equal")
            ax.legend(fontsize=8)
            continue
        columns = range(n) if name == "carts1" else (1, 3, 5)
        for i in columns:
            ax.plot(t, best.x[:, i], label=best.map.state_names[i])
            ax.plot(t, peer.q[:, i], "k--", lw=0.8)
        ax.set(title=CASES[name].title, xlabel="t (s)", ylabel="place (m)")
        ax.legend(fontsize=8)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
