"""Contact-implicit programs written out by hand for CasADi and IPOPT, as their sources have them: peers.

Nothing here is of vioc's maps or transcription. Three configurations meet in the midpoint rule; of contacts
at the new one gamma phi, beta eta and psi (mu gamma - sum beta) are at most s, a slack that costs 1000 s.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

G = 9.81
PRICE = 1000.0


class Answer(NamedTuple):
    """What IPOPT ended with."""

    cost: float  # with 1000 s
    slack: float  # the sum of s
    iterations: int
    seconds: float
    converged: bool
    q: np.ndarray
    unknowns: int


class Rows:
    """A program that grows by pieces."""

    def __init__(self) -> None:
        self.w: list[Any] = []
        self.w0: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.g: list[Any] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.cost: Any = 0

    def new(self, n: int, start: Any, low: float = -np.inf, high: float = np.inf) -> Any:
        v = ca.SX.sym(f"v{len(self.w)}", n)
        self.w.append(v)
        self.w0 += np.broadcast_to(start, n).tolist()
        self.low += [low] * n
        self.high += [high] * n
        return v

    def row(self, value: Any, low: float = 0.0, high: float = 0.0) -> None:
        n = ca.SX(value).numel()
        self.g.append(ca.vec(ca.SX(value)))
        self.lower += [low] * n
        self.upper += [high] * n

    def solve(self, configurations: list[Any], slacks: list[Any], tolerance: float = 1e-8) -> Answer:
        w = ca.vertcat(*self.w)
        nlp = {"x": w, "f": self.cost, "g": ca.vertcat(*self.g)}
        options = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": tolerance}
        solver = ca.nlpsol("peer", "ipopt", nlp, {**options, "ipopt.max_iter": 1000})
        begin = time.perf_counter()
        found = solver(x0=self.w0, lbx=self.low, ubx=self.high, lbg=self.lower, ubg=self.upper)
        seconds = time.perf_counter() - begin
        q, slack = (
            np.array(ca.Function("q", [w], [ca.vertcat(*v)])(found["x"])) for v in (configurations, slacks)
        )
        stats = solver.stats()
        n = configurations[0].numel()
        free = int((np.array(self.low) < np.array(self.high)).sum())
        return Answer(
            float(found["f"]),
            float(slack.sum()),
            stats["iter_count"],
            seconds,
            stats["success"],
            q.reshape(-1, n),
            free,
        )


def discrete(lagrangian: Any, n: int, h: float) -> tuple[ca.Function, ca.Function]:
    """D1 and D2 of h L((q0 + q1)/2, (q1 - q0)/h)."""
    a, b = ca.SX.sym("a", n), ca.SX.sym("b", n)
    value = h * lagrangian((a + b) / 2, (b - a) / h)
    return tuple(ca.Function("D", [a, b], [ca.gradient(value, s)]) for s in (a, b))  # type: ignore[return-value]


def hopper(seed: int | None = None) -> Answer:
    """The direct form of optimization_dynamics' hopper; its guess, or one that is off at random."""
    h, stages = 0.05, 20
    first, goal = np.array([0.0, 0.55, 0.0, 0.5]), np.array([0.5, 0.8, 0.0, 0.25])
    weights, mu = np.array([1.0, 10, 1, 10]), 0.5

    def foot(q: Any) -> Any:
        return ca.vertcat(q[0] + q[3] * ca.sin(q[2]), q[1] - q[3] * ca.cos(q[2]))

    def lagrangian(q: Any, v: Any) -> Any:
        s, c = ca.sin(q[2]), ca.cos(q[2])
        moved = ca.vertcat(v[0] + v[3] * s + q[3] * c * v[2], v[1] - v[3] * c + q[3] * s * v[2])
        kinetic = 0.5 * (v[0] ** 2 + v[1] ** 2) + 0.05 * v[2] ** 2 + 0.05 * ca.sumsqr(moved)
        return kinetic - G * (q[1] + 0.1 * foot(q)[1])

    D1, D2 = discrete(lagrangian, 4, h)
    sym = ca.SX.sym("q", 4)
    gaps = ca.Function(
        "gaps", [sym], [ca.vertcat(sym[1] - 0.1, foot(sym)[1] - 0.05, sym[3] - 0.25, 1 - sym[3])]
    )
    N = ca.Function("N", [sym], [ca.jacobian(gaps(sym), sym)])
    T = ca.Function("T", [sym], [ca.vertcat(ca.horzcat(1, 0, 0.1, 0), ca.jacobian(foot(sym)[0], sym))])
    random = np.random.default_rng(seed)

    def off(size: float, shape: Any) -> np.ndarray:
        return size * random.standard_normal(shape) if seed is not None else np.zeros(shape)

    p = Rows()
    q = [p.new(4, first + (0 if i == 0 else off(0.1, 4))) for i in range(stages + 2)]
    p.low[:4] = p.high[:4] = first.tolist()
    slacks = []
    for t in range(1, stages + 1):
        a, b, c = q[t - 1 : t + 2]
        u = p.new(2, np.array([0.0, 0.5 * G * h]) + off(0.2, 2), -10, 10)
        gamma, beta, psi, eta = (p.new(n, 1e-3, 0.0) for n in (4, 4, 2, 4))
        sphi, spsi, s = p.new(4, 0.1, 0.0), p.new(2, 0.1, 0.0), p.new(1, 0.1, 0.0)
        slacks.append(s)
        push = ca.vertcat(-ca.sin(b[2]) * u[1], ca.cos(b[2]) * u[1], u[0], u[1])
        friction = ca.vertcat(beta[0] - beta[1], beta[2] - beta[3])
        damp = ca.vertcat(0, 0, 0, -0.1 * (c[3] - b[3]) / h)
        p.row(D2(a, b) + D1(b, c) + push + N(c).T @ gamma + T(c).T @ friction + damp)
        p.row(sphi - gaps(c))
        p.row(spsi - (mu * gamma[:2] - ca.vertcat(beta[0] + beta[1], beta[2] + beta[3])))
        v = T(c) @ (c - b) / h
        p.row(eta - ca.vertcat(v[0] + psi[0], -v[0] + psi[0], v[1] + psi[1], -v[1] + psi[1]))
        for x, y in ((gamma, sphi), (beta, eta), (psi, spsi)):
            p.row(x * y - s, -np.inf, 0.0)
        everything = ca.vertcat(u, gamma, beta, psi, eta, sphi, spsi, s)
        miss = ca.vertcat(a, b) - np.r_[goal, goal]
        p.cost += 0.5 * ca.dot(np.r_[weights, weights], miss**2) + 0.05 * ca.sumsqr(everything) + PRICE * s
    p.cost += 0.5 * ca.sumsqr(ca.vertcat(q[-2], q[-1]) - np.r_[goal, goal])
    p.row(foot(q[1]) - foot(ca.SX(first)))
    for i in (0, 1):
        p.row(q[-2 + i][1:] - q[i][1:])
        p.row(q[-2 + i][0] - q[i][0], 0.5, np.inf)
    return p.solve(q, slacks)


def planar_push(way: str, goal: Any, start: np.ndarray, guess: np.ndarray, r: float) -> Answer:
    """optimization_dynamics' planar push in the same form; `guess` has configurations (27, 5)."""
    h, side, mu = 0.1, 0.2, 0.5
    masses, weights = np.array([1.0, 1.0, side**2 / 6, 10.0, 10.0]), np.array([1.0, 1, 1, 0.1, 0.1])
    reference = np.r_[goal, goal[0] - side / 2, goal[1] - side / 2]
    sym = ca.SX.sym("q", 5)
    c, s = ca.cos(sym[2]), ca.sin(sym[2])
    away = ca.vertcat(ca.horzcat(c, s), ca.horzcat(-s, c)) @ (sym[3:] - sym[:2])
    size = (away[0] ** 10 + away[1] ** 10) ** 0.1
    slope = (away / size) ** 9
    n = ca.vertcat(ca.horzcat(c, -s), ca.horzcat(s, c)) @ (slope / ca.norm_2(slope))
    across, arm = ca.vertcat(-n[1], n[0]), sym[3:] - sym[:2]
    moves = ca.horzcat(-ca.SX.eye(2), ca.vertcat(arm[1], -arm[0]), ca.SX.eye(2))  # finger past the block
    gap = ca.Function("gap", [sym], [size - side / 2, ca.jacobian(size, sym), across.T @ moves])
    floor = []
    for i in (1, -1):
        for j in (1, -1):
            lever = ca.vertcat(-s * i - c * j, c * i - s * j) * side / 2
            floor.append(ca.horzcat(ca.SX.eye(2), lever, ca.SX(2, 2)))
    slides = ca.Function("slides", [sym], [ca.vertcat(*floor)])  # (8, 5)

    p = Rows()
    q = [p.new(5, guess[i]) for i in range(len(guess))]
    p.low[:10] = p.high[:10] = [*start, *start]
    slacks = []
    for t in range(1, len(guess) - 1):
        a, b, d = q[t - 1 : t + 2]
        u = p.new(2, 0.0, -5, 5)
        gamma, sphi, beta, psi, eta = (p.new(k, 1e-2, 0.0) for k in (1, 1, 18, 5, 18))
        spsi, slack = p.new(5, 1e-2, 0.0), p.new(1, 1e-1, 0.0)
        slacks.append(slack)
        phi, N, T = gap(d)
        S = ca.vertcat(slides(d), T)
        friction = ca.vertcat(*(beta[2 * i] - beta[2 * i + 1] for i in range(9)))
        inertia = ca.DM(masses) * ((b - a) - (d - b)) / h
        p.row(inertia + ca.vertcat(0, 0, 0, u) + N.T @ gamma + S.T @ friction)
        p.row(sphi - phi)
        v = S @ (d - b) / h
        whose = [i // 2 if i < 8 else 4 for i in range(9)]
        p.row(eta - ca.vertcat(*(sign * v[i] + psi[whose[i]] for i in range(9) for sign in (1, -1))))
        bound = [mu * G * h / 4] * 4 + [mu * gamma]
        spent = [sum(beta[2 * i] + beta[2 * i + 1] for i in range(9) if whose[i] == k) for k in range(5)]
        p.row(spsi - ca.vertcat(*(x - y for x, y in zip(bound, spent, strict=True))))
        for x, y in ((gamma, sphi), (beta, eta), (psi, spsi)):
            p.row(x * y - slack, -np.inf, 0.0)
        state = 0.5 * ca.dot(weights, ((b - a) / h) ** 2)
        state += 0.5 * ca.dot(weights, (a - reference) ** 2 + (b - reference) ** 2)
        p.cost += state + 0.5 * r * ca.sumsqr(u) + PRICE * slack
    a, b = q[-2:]
    p.cost += 0.5 * ca.dot(weights, ((b - a) / h) ** 2 + (a - reference) ** 2 + (b - reference) ** 2)
    p.row(b[:3] - ca.DM(goal))
    return p.solve(q, slacks)
