"""What caching is worth ([T] VI-A, Fig. 7): 20 s of pendulums with 1 to 20 links, dt 0.01 s.

The recursions (2)-(10) of [T] for poses, body velocities and their derivatives are written once and made
into straight-line code in two ways: *with caching* every quantity is computed at its first use and kept
while a residual (21) and its Jacobian (22) are evaluated, *without* it each use evaluates the recursion
anew, down to the sines. Nothing else differs: the same virtual machine, the same Newton iteration, the same
steps; common subexpressions are not searched for. So the ratio is that of the figure. Beside it stands
`vioc.MidpointVI`, which needs no second derivative of any frame: it sweeps the tree instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

import casadi as ca
import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, count_ticks
from vioc import Gravity, Mass, System, rx, tz

DT = 0.01  # s
DURATION = 20.0  # s
G = 9.8  # m/s^2
START = np.pi / 4  # rad, of the top link; the others are in line
CACHED, UNCACHED, OURS = "with caching", "without caching", "MidpointVI"
COUNTS = {
    CACHED: (1, 2, 3, 4, 6, 8, 11, 15),
    UNCACHED: (1, 2, 3, 4, 6, 8),
    OURS: (1, 2, 3, 4, 6, 8, 11, 15, 20),
}
QUICK = 4  # links
REPEATS = 3  # in quick form 1
AGREE = 1.0  # s, compared before the motion's sensitivity tells

STUDY = Study(
    __file__,
    "runtime of N-link pendulums with and without caching",
    agree=Claim(
        "largest difference of the three in the first second, all N", at_most(1e-9), unit="rad, kg m^2/s"
    ),
    operations=Claim(
        f"operations of a Newton iteration without caching over those with it, N = {QUICK}", at_least(2)
    ),
    ratio=Claim(
        f"runtime without caching over that with it, N = {QUICK}",
        published="drastically faster",
        source="[T] Fig. 7",
    ),
    ratio_8=Claim("the same, N = 8", published="drastically faster", source="[T] Fig. 7", full_only=True),
    slope=Claim(
        "growth of operations: exponent in N without caching less that with it, from N = 3 on",
        at_least(0.5),
        published="grow at a slower rate",
        source="[T] Fig. 7",
    ),
    seconds_cached=Claim(f"20 s with caching, N = {QUICK}", unit="s"),
    seconds_uncached=Claim(f"20 s without caching, N = {QUICK}", unit="s"),
    seconds_ours=Claim(f"20 s by {OURS}, N = {QUICK}", unit="s"),
    gain=Claim(f"runtime with caching over that of {OURS}, N = 15", full_only=True),
)


def pendulum(n: int) -> System:
    """Links of 1 m, each with a body at its lower end: 1 kg, 0.1 kg m^2."""
    below: tuple = ()
    for i in reversed(range(n)):
        below = (rx(f"link-{i}")[tz(-1.0, mass=Mass(1.0, (0.1, 0.1, 0.1)))[below]],)
    return System(below, Gravity(0, 0, -G), name=f"pendulum_{n}")


class Recursion:
    """Poses and body velocities of frames with their derivatives ([T] (2)-(10)), as 4 x 4 graphs.

    Parameters
    ----------
    system : System
        Of frames RX, RY, RZ, TX, TY, TZ.
    q, v : (nq,) symbols
    cached : bool
        Whether a quantity is kept for its next use.
    """

    def __init__(self, system: System, q: ca.SX, v: ca.SX, cached: bool):
        self.nodes, self.q, self.v = system.nodes, q, v
        self._kept: dict[tuple, Any] | None = {} if cached else None
        names = list(system.variables)
        drivers = [node.frame.transform.variable for node in system.nodes]
        self.own = [names.index(d.name) if d else None for d in drivers]
        self.above: list[frozenset] = []  # variables that move a frame
        for node, own in zip(system.nodes, self.own, strict=True):
            parents = self.above[node.parent] if node.parent >= 0 else frozenset()
            self.above.append(parents | ({own} if own is not None else frozenset()))

    def _once(self, key: tuple, build: Callable[[], ca.SX]) -> ca.SX:
        if self._kept is None:
            return build()
        if key not in self._kept:
            self._kept[key] = build()
        return self._kept[key]

    def twist(self, k: int) -> ca.DM:
        """hat(xi) of frame k's own transform."""
        (a, b, c), (x, y, z) = self.nodes[k].frame.transform.twist
        return ca.sparsify(ca.DM([[0, -z, y, a], [z, 0, -x, b], [-y, x, 0, c], [0, 0, 0, 0]]))

    def local(self, k: int, order: int = 0, sign: int = 1) -> ca.SX:
        """The `order`-th derivative of g_k (sign 1) or of its inverse (-1) by its own variable."""
        return self._once(("local", k, order, sign), lambda: self._local(k, order, sign))

    def _local(self, k: int, order: int, sign: int) -> ca.SX:
        transform, own, X = self.nodes[k].frame.transform, self.own[k], self.twist(k)
        q = sign * (self.q[own] if own is not None else float(transform.value))
        g = ca.SX.eye(4)  # exp(X q), by Rodrigues' formula
        g += ca.sin(q) * X + (1 - ca.cos(q)) * (X @ X) if transform.rotational else q * X
        for _ in range(order):
            g = sign * X @ g
        return ca.sparsify(g)

    def pose(self, k: int, by: tuple[int, ...] = ()) -> ca.SX:
        """g_{s,k} and its derivatives by the variables in `by` ((2)-(4))."""
        return self._once(("pose", k, by), lambda: self._pose(k, by))

    def _pose(self, k: int, by: tuple[int, ...]) -> ca.SX:
        if not self.above[k].issuperset(by):
            return ca.SX(4, 4)
        rest, mine = self._split(k, by)
        parent = self.nodes[k].parent
        if parent < 0:
            return self.local(k, mine) if not rest else ca.SX(4, 4)
        return self.pose(parent, rest) @ self.local(k, mine)

    def velocity(self, k: int, by: tuple[int, ...] = (), by_v: tuple[int, ...] = ()) -> ca.SX:
        """hat(v^b_{s,k}) and its derivatives by configurations and rates ((5)-(10))."""
        return self._once(("velocity", k, by, by_v), lambda: self._velocity(k, by, by_v))

    def _velocity(self, k: int, by: tuple[int, ...], by_v: tuple[int, ...]) -> ca.SX:
        own, parent, total = self.own[k], self.nodes[k].parent, ca.SX(4, 4)
        if not self.above[k].issuperset(by + by_v):
            return total
        rest, mine = self._split(k, by)
        if parent >= 0:  # d^m (g^-1 V g) by g's own variable: the product rule with V fixed
            for j, weight in enumerate(((1,), (1, 1), (1, 2, 1))[mine]):
                inner = self.velocity(parent, rest, by_v)
                total += weight * self.local(k, j, -1) @ inner @ self.local(k, mine - j)
        if own is not None and not by and by_v in ((), (own,)):
            total += self.twist(k) * (1 if by_v else self.v[own])
        return total

    def _split(self, k: int, by: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """The variables in `by` other than frame k's own, and how often that occurs."""
        rest = tuple(i for i in by if i != self.own[k])
        return rest, len(by) - len(rest)


class Mechanics:
    """L_q, L_v and second derivatives by [T] (23)-(27) from a recursion; mass i has M_i = diag(m, I)."""

    def __init__(self, system: System, q: ca.SX, v: ca.SX, cached: bool):
        self.recursion = Recursion(system, q, v, cached)
        self.n = len(system.variables)
        self.masses = [(k, node.frame.mass) for k, node in enumerate(system.nodes) if node.frame.mass]
        (gravity,) = system.potentials
        self.g = np.array([gravity.x, gravity.y, gravity.z], float)  # type: ignore[attr-defined]

    def _body(self, k: int, by: tuple[int, ...] = (), by_v: tuple[int, ...] = ()) -> ca.SX:
        V = self.recursion.velocity(k, by, by_v)
        return ca.vertcat(V[:3, 3], V[2, 1], V[0, 2], V[1, 0])

    def _weight(self, by: tuple[int, ...]) -> ca.SX:
        """-dV by `by`."""
        return sum(
            (m.mass * ca.dot(self.g, self.recursion.pose(k, by)[:3, 3]) for k, m in self.masses), ca.SX(0)
        )

    def _sum(self, *pairs: tuple[tuple, tuple]) -> ca.SX:
        """Sum over masses and pairs of dv' M dv, each derivative given as (by) or (by, by_v)."""
        total = ca.SX(0)
        for k, m in self.masses:
            M = ca.DM([float(m.mass)] * 3 + [float(i) for i in m.inertia[:3]])
            for a, b in pairs:
                total += ca.dot(self._body(k, *a), M * self._body(k, *b))
        return total

    def first(self) -> tuple[ca.SX, ca.SX]:
        i = range(self.n)
        L_q = [self._sum(((), ((a,),))) + self._weight((a,)) for a in i]
        L_v = [self._sum(((), ((), (a,)))) for a in i]
        return ca.vertcat(*L_q), ca.vertcat(*L_v)

    def second(self) -> tuple[ca.SX, ca.SX, ca.SX]:
        """L_qq, L_vq (rows v), L_vv."""
        n = self.n
        qq, vq, vv = ca.SX(n, n), ca.SX(n, n), ca.SX(n, n)
        for a, b in combinations_with_replacement(range(n), 2):
            one, two = ((a,),), ((b,),)
            qq[a, b] = qq[b, a] = self._sum((one, two), ((), ((a, b),))) + self._weight((a, b))
            vv[a, b] = vv[b, a] = self._sum((((), (a,)), ((), (b,))))
        for a in range(n):
            for b in range(n):
                vq[a, b] = self._sum((((), (a,)), ((b,),)), ((), ((b,), (a,))))
        return qq, vq, vv


def stepper(system: System, cached: bool) -> tuple[ca.Function, int]:
    """A step (q, p, previous q) -> the same one step on, and the operations of a Newton iteration."""
    n = len(system.variables)
    q, v = ca.SX.sym("q", n), ca.SX.sym("v", n)
    mechanics = Mechanics(system, q, v, cached)
    L_q, L_v = mechanics.first()
    qq, vq, vv = mechanics.second()
    balance = DT / 2 * L_q - L_v
    matrix = DT / 4 * qq + (vq.T - vq) / 2 - vv / DT  # (22), mended
    newton = ca.Function("newton", [q, v], [matrix, balance])
    first = Mechanics(system, q, v, cached).first()
    momentum = ca.Function("momentum", [q, v], [DT / 2 * first[0] + first[1]])
    residual = ca.Function("residual", [q, v], [DT / 2 * first[0] - first[1]])

    z, q0, p = (ca.MX.sym(name, n) for name in ("z", "q0", "p"))
    at = (q0 + z) / 2, (z - q0) / DT
    J, r = newton(*at)
    jacobian = ca.Function("jacobian", [z, q0, p], [J, p + r])
    problem = ca.Function("problem", [z, q0, p], [p + residual(*at)])
    options = {"jacobian_function": jacobian, "abstol": 1e-11, "max_iter": 30}
    solve = ca.rootfinder("solve", "fast_newton", problem, options)
    state = ca.MX.sym("state", 3 * n)
    q0, p, before = state[:n], state[n : 2 * n], state[2 * n :]
    q1 = solve(2 * q0 - before, q0, p)
    p1 = momentum((q0 + q1) / 2, (q1 - q0) / DT)
    return ca.Function("step", [state], [ca.vertcat(q1, p1, q0)]), newton.n_instructions()


def simulate(step: ca.Function, n: int, steps: int, repeats: int) -> tuple[np.ndarray, float]:
    """States (steps + 1, 2 n) from rest, and the least processor time of a rollout, s."""
    start = np.zeros(3 * n)
    start[0] = start[2 * n] = START
    roll = step.mapaccum("roll", steps)
    states, seconds = timed(lambda: np.array(roll(start)), repeats)
    return np.vstack([start[: 2 * n], states.T[:, : 2 * n]]), seconds


def timed(work: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """What `work` returns, and the least processor time that it took, s."""
    shortest = np.inf
    for _ in range(repeats):
        before = time.process_time()
        result = work()
        shortest = min(shortest, time.process_time() - before)
    return result, shortest


@STUDY.body
def run(report: Report) -> None:
    steps, soon = round(DURATION / DT), round(AGREE / DT) + 1
    seconds: dict[str, dict[int, float]] = {name: {} for name in COUNTS}
    operations: dict[str, dict[int, int]] = {CACHED: {}, UNCACHED: {}}
    worst, repeats = 0.0, 1 if report.quick else REPEATS
    for n in (n for n in COUNTS[OURS] if n <= QUICK or not report.quick):
        system = pendulum(n)
        f = vioc.MidpointVI(system, DT)
        x0 = f.initial_state({"link-0": START})
        f.rollout(x0, steps=steps)  # builds what is built at first use
        trajectory, seconds[OURS][n] = timed(lambda f=f, x0=x0: f.rollout(x0, steps=steps), repeats)
        reference = trajectory.x
        for name in (CACHED, UNCACHED):
            if n in COUNTS[name]:
                step, operations[name][n] = stepper(system, name == CACHED)
                x, seconds[name][n] = simulate(step, n, steps, repeats)
                worst = max(worst, float(np.abs(x - reference)[:soon].max()))

    ratio = {n: seconds[UNCACHED][n] / seconds[CACHED][n] for n in seconds[UNCACHED]}
    report.measure(
        agree=worst,
        operations=operations[UNCACHED][QUICK] / operations[CACHED][QUICK],
        ratio=ratio[QUICK],
        slope=exponent(operations[UNCACHED]) - exponent(operations[CACHED]),
        seconds_cached=seconds[CACHED][QUICK],
        seconds_uncached=seconds[UNCACHED][QUICK],
        seconds_ours=seconds[OURS][QUICK],
    )
    if not report.quick:
        report.measure(ratio_8=ratio[8], gain=seconds[CACHED][15] / seconds[OURS][15])
    draw(report, seconds, operations)
    report.frame(trajectory, np.linspace(0.0, 1.0, 5), title=f"{n} links")


def exponent(counts: dict[int, int]) -> float:
    """Slope of log(count) over log N from N = 3 on."""
    n = [k for k in counts if k >= 3]
    return float(np.polyfit(np.log(n), np.log([counts[k] for k in n]), 1)[0])


def draw(report: Report, seconds: dict[str, dict[int, float]], operations: dict[str, dict[int, int]]) -> None:
    """[T] Fig. 7, and the operations behind it."""
    import matplotlib.pyplot as plt

    figure, (runtime, count) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for (name, values), style in zip(seconds.items(), ("k-o", "k--s", "C0-^"), strict=True):
        runtime.loglog(list(values), list(values.values()), style, ms=4, label=name)
        if name in operations:
            count.loglog(list(operations[name]), list(operations[name].values()), style, ms=4)
    runtime.set(ylabel="time to simulate 20 s (s)", title="N-link pendulum, dt = 0.01 s ([T] Fig. 7)")
    count.set(ylabel="operations", title="One Newton iteration")
    for axes in (runtime, count):
        axes.set_xlabel("links")
        count_ticks(axes, seconds[OURS])
        axes.grid(alpha=0.3)
    runtime.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
