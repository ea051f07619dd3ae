"""The task of `vioc.models.seven_joint_arm`: from a bent rest to a point with the tool."""

from __future__ import annotations

import casadi as ca

from vioc import OneStepMap
from vioc.control import Cost, NonlinearMPC, Problem

START = {"q2": 0.5, "q4": -1.2, "q6": 0.8}  # rad
GOAL = (0.45, 0.35, 0.75)  # m


def cost(f: OneStepMap) -> Cost:
    """Effort and rates along the way; the tool's distance and rates at the end."""
    v = ca.vertcat(*(f.quantity(f"v.q{i}") for i in range(1, 8)))
    tool = ca.vertcat(*(f.quantity(f"tool:{axis}") for axis in "xyz"))
    return Cost(
        f,
        0.5e-3 * ca.sumsqr(f.symbols.u) + 0.5e-2 * ca.sumsqr(v),
        0.5e4 * ca.sumsqr(tool - ca.DM(GOAL)) + 5 * ca.sumsqr(v),
    )


def following(f: OneStepMap) -> NonlinearMPC:
    """A law that weighs the tool's distance all the way, within torques and joint limits, over 30 steps."""
    v = ca.vertcat(*(f.quantity(f"v.q{i}") for i in range(1, 8)))
    away = ca.vertcat(*(f.quantity(f"tool:{axis}") for axis in "xyz")) - ca.DM(GOAL)
    running = 50.0 * ca.sumsqr(away) + 0.5 * ca.sumsqr(v) + 0.5e-3 * ca.sumsqr(f.symbols.u)
    whole = Cost(f, running, 50.0 * ca.sumsqr(away) + 0.5 * ca.sumsqr(v))
    bounds = {f"u.{n}": 40.0 for n in f.input_names} | {f"q{i}": 2.0 for i in range(1, 8)}
    return NonlinearMPC(Problem(f, whole, 30, bounds=bounds), native=True)
