"""Gymnasium environments from maps, policies from controllers, and expert data.
Expert data are for imitation learning.

env = gymnasium.make("vioc/CartPole-v0")
envs = gymnasium.make_vec("vioc/CartPole-v0", num_envs=8)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

try:
    import gymnasium
    from gymnasium.spaces import Box
except ImportError:
    raise ImportError("this needs Gymnasium: pip install 'vioc[gymnasium]'") from None

from vioc import models
from vioc.checks import as_count
from vioc.control.costs.cost import Cost
from vioc.control.costs.quadratic import quadratic
from vioc.control.regulators.law import as_law
from vioc.dynamics.integrators.midpoint import MidpointVI
from vioc.errors import StepError
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import input_of, trajectory_of
from vioc.runs.trajectory import Trajectory


class Environment(gymnasium.Env):
    """Gymnasium environment with a map's dynamics, a cost and random initial states.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
        Cost in the symbols of `f`.
    start : (nx,)
        The initial state; ``reset(options={"state": x})`` sets another one.
    steps : int
        Number N of steps after which an episode is truncated.
    bounds : float, (nu,), or dict by name
        Largest magnitude of inputs, in their units; larger inputs are clipped, as ``info["clipped"]``
        reports.
    spread : dict by name, optional
        Half-widths, by state, of the box around `start` from which initial states are drawn uniformly. Other
        states begin as in `start`.
    failure : float
        Cost of a step without a solution; the episode ends there, ``info["error"]`` has the reason.
    render_mode : None
        Only None: plot runs with ``Environment.trajectory().plot()``, or animate them.

    Notes
    -----
    Observations are states (nx,), float64, without bounds, since a map has none. A step's reward is minus its
    running cost, times dt if the cost is per second; the last reward includes the terminal cost. The
    undiscounted return of a whole episode is thus ``-cost.value`` of the trajectory.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's

    def __init__(
        self,
        f: OneStepMap,
        cost: Cost,
        start: Any,
        *,
        steps: int,
        bounds: Any,
        spread: Mapping[str, float] | None = None,
        failure: float = 1e3,
        render_mode: None = None,
    ):
        cost.check_map(f)
        if not f.nu:
            raise ValueError("an environment needs a map with inputs, got one without")
        if render_mode is not None:
            raise ValueError(f"render_mode: expected None, got {render_mode!r}; plot env.trajectory()")
        self.map, self.cost, self.steps, self.failure = f, cost, as_count(steps, "steps"), float(failure)
        self.start = f.check_state(start, "start")
        sizes = f.input(bounds) if isinstance(bounds, Mapping) else np.asarray(bounds, float)
        high = np.broadcast_to(sizes, (f.nu,)).copy()
        if not (np.isfinite(high).all() and (high > 0).all()):
            raise ValueError(f"bounds: expected sizes > 0 of {f.nu} inputs, got {bounds!r}")
        self.spread = np.abs(f.state(spread or {}))
        self.render_mode = render_mode
        self.action_space = Box(-high, high, dtype=np.float64)
        self.observation_space = Box(-np.inf, np.inf, (f.nx,), np.float64)
        self._references = cost.reference_rows(self.steps)
        self._begin(self.start)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode at a random state, or at ``options["state"]``.
        The random state is near the attribute `start`.
        """
        super().reset(seed=seed)
        if options and "state" in options:
            self._begin(self.map.check_state(options["state"], "state"))
        else:
            deviation = self.spread * self.np_random.uniform(-1.0, 1.0, self.map.nx)
            self._begin(self.map.retract(self.start, deviation))
        return self._x[-1].copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply an action for one step; return Gymnasium's five results of a step.

        An episode is terminated by a step without a solution, and truncated after N steps.
        """
        f, k, x = self.map, len(self._u), self._x[-1]
        if k >= self.steps:
            raise RuntimeError(f"the episode of {self.steps} steps is over: call reset()")
        command = input_of(f, action, what="action")
        u = np.clip(command, self.action_space.low, self.action_space.high)
        info: dict[str, Any] = {"clipped": bool((u != command).any())}
        try:
            run = f.rollout(x, u[None], k0=k, warn=False)
        except StepError as error:
            return x.copy(), -self.failure, True, False, {**info, "error": str(error)}
        self._x.append(run.x[1])
        self._u.append(u)
        self._multipliers.append(run.multipliers[0])
        weight = f.dt if self.cost.per_time else 1.0
        step = run.multipliers[0], f.theta, np.full(1, f.dt), self._references[k]
        reward = -weight * self.cost.running(x, u, *step)[0].item()
        last = k + 1 == self.steps
        if last:
            zeros = np.zeros(f.nu), np.zeros(len(f.multiplier_names))
            end = run.x[1], *zeros, f.theta, np.zeros(1), self._references[-1]
            reward -= self.cost.terminal(*end)[0].item()
        return run.x[1].copy(), float(reward), False, last, info

    def trajectory(self) -> Trajectory:
        """Return the steps of the present episode as a trajectory of the map."""
        f, n = self.map, len(self._u)
        u, multipliers = np.array(self._u).reshape(n, f.nu), np.array(self._multipliers).reshape(n, -1)
        return Trajectory(f, f.dt * np.arange(n + 1), np.array(self._x), u, multipliers)

    def _begin(self, x: np.ndarray) -> None:
        self._x = [np.array(x)]
        self._u: list[np.ndarray] = []
        self._multipliers: list[np.ndarray] = []


def policy(regulator: Any, bounds: Any = np.inf) -> Callable[..., np.ndarray]:
    """Return a regulator as a policy, a function (observation, k=0) -> action.
    The policy clips actions to the `bounds`.

    Parameters
    ----------
    regulator
        Result of `vioc.control.dlqr` or similar.
    bounds : float or (nu,)
        Bounds of the environment, to which actions are clipped.
    """
    law = as_law(regulator)

    def act(observation: Any, k: int = 0) -> np.ndarray:
        command = law(k, np.asarray(observation, float))
        clipped: np.ndarray = np.clip(command, -np.asarray(bounds), bounds)
        return clipped

    return act


@dataclass(frozen=True)
class Transitions:
    """Transitions of an expert for imitation learning, as arrays.
    Each row of an array belongs to one transition.

    Attributes
    ----------
    observations, next_observations : (N, nx)
    actions : (N, nu)
    rewards : (N,)
    terminals, truncations : (N,) bool
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    terminals: np.ndarray
    truncations: np.ndarray


def expert(env: Any, optimum: Any) -> Transitions:
    """Return the transitions that the inputs of a trajectory cause in an environment.
    The trajectory is, for example, the solution of an optimization.

    Parameters
    ----------
    env : gymnasium.Env
        An `Environment`, wrapped or not.
    optimum : Result or Trajectory
        Trajectory with at most as many steps as an episode, and with inputs within the environment's bounds.

    Raises
    ------
    ValueError
        If the environment clips an input, or a state differs from the trajectory's because its map is
        another.
    """
    inner: Environment = env.unwrapped
    run = trajectory_of(optimum)
    observation, _ = inner.reset(options={"state": run.x[0]})
    rows: list[tuple[Any, ...]] = []
    for k, u in enumerate(run.u):
        after, reward, terminated, truncated, info = inner.step(u)
        if info["clipped"]:
            raise ValueError(f"expert: the input {u} of step {k} is beyond the environment's bounds")
        if terminated or not np.allclose(after, run.x[k + 1], rtol=1e-6, atol=1e-6):
            why = info.get("error", f"the environment went to {after}, the optimum to {run.x[k + 1]}")
            raise ValueError(f"expert: at step {k} the environment does not follow the optimum: {why}")
        rows.append((observation, u, reward, after, terminated, truncated))
        observation = after
    return Transitions(*(np.array(column) for column in zip(*rows, strict=True)))


# -- environments of models -----------------------------------------------------------------------------


def pendulum(**options: Any) -> Environment:
    """Return an environment of a pendulum that is to swing up in 4 s.
    The torque is limited to 6 N m.

    The pendulum is that of [S] VIII-A; theta = pi is upright.
    """
    f = MidpointVI(models.load("pendulum"), 0.02)
    cost = quadratic(
        f, Q={"theta": 1.0, "v.theta": 0.1}, R=0.01, Qf={"theta": 50.0, "v.theta": 5.0}, goal={"theta": np.pi}
    )
    return Environment(
        f, cost, f.state(), steps=200, bounds=6.0, spread={"theta": 0.1, "p.theta": 0.1}, **options
    )


def cart_pole(**options: Any) -> Environment:
    """Return the environment of a cart that is to balance a pole upright.

    The pole is upright at theta = 0, and the cart stays near the middle of the rail; 4 s, 12 N.
    """
    f = MidpointVI(models.load("cart_pole"), 0.02)
    weights = {"x": 1.0, "theta": 10.0, "v.x": 0.1, "v.theta": 0.1}
    cost = quadratic(f, Q=weights, R=0.01, Qf=weights)
    spread = {"x": 0.2, "theta": 0.2, "p.theta": 0.02}
    return Environment(f, cost, f.state(), steps=200, bounds=12.0, spread=spread, **options)


def acrobot(**options: Any) -> Environment:
    """Return the environment of an acrobot that is to swing up.

    It hangs at first, q1 = pi, and is upright at the end, q1 = q2 = 0; 6 s, 25 N m at the elbow.
    """
    f = MidpointVI(models.load("acrobot"), 0.02)
    last = {"q1": 100.0, "q2": 100.0, "v.q1": 10.0, "v.q2": 10.0}
    cost = quadratic(f, Q={"q1": 1.0, "q2": 1.0, "v.q1": 0.1, "v.q2": 0.1}, R=0.01, Qf=last)
    start = f.state(q1=np.pi)
    return Environment(f, cost, start, steps=300, bounds=25.0, spread={"q1": 0.05, "q2": 0.05}, **options)


MODELS = {"Pendulum": pendulum, "CartPole": cart_pole, "Acrobot": acrobot}

for _name in MODELS:
    if f"vioc/{_name}-v0" not in gymnasium.registry:
        gymnasium.register(f"vioc/{_name}-v0", entry_point=MODELS[_name])
