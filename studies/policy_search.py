"""A policy learnt by exact gradients through the map: the cart-pole balanced from starts at random.

The policy is u = clip(-K x) with K = 0 to begin with. Its cost over some starts is differentiated through all
steps by (1) of docs/learning.md, a batch of starts at a time, and K follows Adam's rule (Kingma and Ba, 2015)
over horizons that grow. Beside it the regulator of `vioc.control.dlqr` under the same weights, which knows
the linearized map, and the same gradient by JAX and by PyTorch where they are installed.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.learning.solved import solve

DT, BOUND = 0.02, 12.0  # s, N
Q, R = np.array([1.0, 10.0, 0.1, 0.1]), 0.01
SPREAD = np.array([0.2, 0.2, 0.0, 0.02])  # m, rad, kg m/s, kg m^2/s
HORIZONS = ((10, 20), (25, 20))  # steps, and updates of Adam
QUICK, FULL = (200, 15), (400, 100)  # steps, and iterations of BFGS
RATE, STARTS = 2.0, 8
SCALE = np.array([3.0, 10.0, 3.0, 40.0])  # of the gains, for BFGS
GOAL, STEPS, TESTS = 1e-2, 500, 100  # error after so many steps, of so many fresh starts

STUDY = Study(
    __file__,
    "a policy of four gains learnt through the map's exact derivatives, beside the regulator",
    gradient=Claim("gradient of the cost against central differences, relative", at_most(1e-6)),
    learnt=Claim(f"of {TESTS} fresh starts the learnt policy brings to the goal", near(TESTS, 0.0)),
    lqr=Claim("the regulator, of the same starts", near(TESTS, 0.0)),
    cost=Claim("mean cost of the learnt policy over the regulator's", near(1.0, 0.01), full_only=True),
    steps=Claim("steps of the map that it learnt from"),
    jax=Claim("gradient by JAX against ours, relative", at_most(1e-10), full_only=True),
    torch=Claim("gradient by PyTorch against ours, relative", at_most(1e-10), full_only=True),
    gymnasium=Claim(
        "share of 50 episodes of vioc/CartPole-v0 (4 s) with the pole within 0.01 rad at the end",
        at_least(1.0),
        full_only=True,
    ),
)


@STUDY.body
def run(report: Report) -> None:
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), DT)
    rng = np.random.default_rng(0)
    K, history, taken = learn(f, rng, *(QUICK if report.quick else FULL))
    X = SPREAD * rng.uniform(-1, 1, (STARTS, 4))
    point = np.array([-3.0, -20.0, -5.0, -20.0])
    slope = cost(f, point, X, 30)[1]
    central = np.array(
        [(cost(f, point + e, X, 30)[0] - cost(f, point - e, X, 30)[0]) / 2e-4 for e in 1e-4 * np.eye(4)]
    )
    regulator = vioc.control.dlqr(f, vioc.control.equilibrium(f, theta=0.0), Q, R)
    tests = SPREAD * rng.uniform(-1, 1, (TESTS, 4))
    ours, theirs = (follow(f, gains, tests) for gains in (K, regulator.K[0]))
    report.measure(
        gradient=np.abs(slope - central).max() / np.abs(slope).max(),
        learnt=reached(ours),
        lqr=reached(theirs),
        steps=taken,
    )
    if not report.quick:
        costs = [cost(f, gains, tests, STEPS)[0] for gains in (K, regulator.K)]
        report.measure(cost=costs[0] / costs[1])
        frameworks(report, f, point, X, slope)
        episodes(report, K)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    axes[0].semilogy(history)
    axes[0].set(xlabel="update", ylabel="mean cost", title="Learning, over horizons that grow")
    for ax, found, title in zip(axes[1:], (ours, theirs), ("Learnt policy", "Regulator"), strict=True):
        ax.plot(DT * np.arange(STEPS + 1), found[:, :, 1], lw=0.5)
        ax.set(xlabel="t (s)", ylabel="theta (rad)", title=f"{title}: {TESTS} fresh starts")
    for ax in axes:
        ax.grid(alpha=0.3)
    report.save(figure)


def cost(f: Any, K: np.ndarray, X: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """Mean over the starts X of the sum of dt/2 (x'Qx + R u^2), and its gradient by the gains."""
    K, n = np.reshape(K, (1, 4)), len(X)
    none, k = np.zeros((n, 0)), np.zeros(n, int)
    runs, x, total = [], X, 0.0
    for _ in range(steps):
        asked = -x @ K.T
        u = np.clip(asked, -BOUND, BOUND)
        solved = solve(f, x, u, none, k, True)
        runs.append((x, u, np.abs(asked) < BOUND, solved))
        total += 0.5 * DT * ((x * x) @ Q + R * u[:, 0] ** 2).sum()
        x = solved.values
    back, slope = np.zeros_like(X), np.zeros((1, 4))
    for x, u, free, solved in reversed(runs):
        both = np.einsum("nij,ni->nj", solved.jacobians, back)
        by_u = (both[:, 4:] + DT * R * u) * free
        slope -= by_u.T @ x
        back = both[:, :4] + DT * Q * x - by_u @ K
    return total / n, slope[0] / n


def learn(
    f: Any, rng: np.random.Generator, steps: int, iterations: int
) -> tuple[np.ndarray, list[float], int]:
    """Gains from zero, the cost at each gradient, and how many steps of the map were taken."""
    K, history, mean, square, taken = np.zeros(4), [], np.zeros(4), np.zeros(4), 0
    for horizon, updates in HORIZONS:
        for i in range(updates):
            value, slope = cost(f, K, SPREAD * rng.uniform(-1, 1, (STARTS, 4)), horizon)
            history.append(value)
            mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
            count = len(history)
            rate = RATE * (1 - 0.9 * i / updates)
            K = K - rate * (mean / (1 - 0.9**count)) / (np.sqrt(square / (1 - 0.99**count)) + 1e-12)
        taken += updates * horizon * STARTS
    X = SPREAD * rng.uniform(-1, 1, (STARTS, 4))

    def scaled(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = cost(f, z * SCALE, X, steps)
        history.append(value)
        return value, slope * SCALE

    found = minimize(scaled, K / SCALE, jac=True, method="BFGS", options={"maxiter": iterations})
    return found.x * SCALE, history, taken + found.nfev * steps * STARTS


def follow(f: Any, K: np.ndarray, X: np.ndarray) -> np.ndarray:
    """States (STEPS + 1, n, 4) under u = clip(-K x)."""
    found, n = [X], len(X)
    for _ in range(STEPS):
        u = np.clip(-found[-1] @ np.reshape(K, (4, 1)), -BOUND, BOUND)
        found.append(solve(f, found[-1], u, np.zeros((n, 0)), np.zeros(n, int), True).values)
    return np.array(found)


def reached(states: np.ndarray) -> int:
    return int((np.abs(states[-1]) < GOAL).all(axis=1).sum())


def frameworks(report: Report, f: Any, K: np.ndarray, X: np.ndarray, slope: np.ndarray) -> None:
    """The same gradient by JAX and PyTorch."""
    import jax
    import torch

    from vioc.learning.jax import step as jax_step
    from vioc.learning.torch import step as torch_step

    jax.config.update("jax_enable_x64", True)
    one = jax.vmap(jax_step(f))

    def total(K: Any) -> Any:
        def advance(x: Any, _: Any) -> Any:
            u = jax.numpy.clip(-x @ K[:, None], -BOUND, BOUND)
            return one(x, u), 0.5 * DT * ((x * x) @ Q + R * u[:, 0] ** 2).mean()

        return jax.lax.scan(advance, X, None, length=30)[1].sum()

    theirs = np.array(jax.jit(jax.grad(total))(K))
    gains, x, value, two = torch.tensor(K, requires_grad=True), torch.tensor(X), 0.0, torch_step(f)
    for _ in range(30):
        u = (-x @ gains[:, None]).clamp(-BOUND, BOUND)
        value = value + 0.5 * DT * ((x * x) @ torch.tensor(Q) + R * u[:, 0] ** 2).mean()
        x = two(x, u)
    value.backward()
    size = np.abs(slope).max()
    report.measure(
        jax=np.abs(theirs - slope).max() / size, torch=np.abs(gains.grad.numpy() - slope).max() / size
    )


def episodes(report: Report, K: np.ndarray) -> None:
    """The policy in the registered environment, one episode a seed."""
    import gymnasium

    from vioc.learning.gymnasium import MODELS

    assert "CartPole" in MODELS  # registered
    env = gymnasium.make("vioc/CartPole-v0", disable_env_checker=True)
    good = 0
    for seed in range(50):
        x, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            x, _, failed, ended, _ = env.step(np.clip(-K @ x, -BOUND, BOUND)[None])
            assert not failed
        good += bool((np.abs(x[1]) < GOAL).all())
    report.measure(gymnasium=good / 50)


if __name__ == "__main__":
    STUDY.main()
