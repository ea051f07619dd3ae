"""The motion of the marionette of [S] VIII-B, whose strings are pulled."""

from __future__ import annotations

import numpy as np

import vioc

PULL = {"left_arm": 0.1, "right_arm": -0.1, "left_leg": -0.1, "right_leg": 0.1}  # m


def start(f: vioc.MidpointVI) -> np.ndarray:
    """The state after a step from rest, q(-dt) = q(0): p is half of gravity's impulse in a step."""
    q = vioc.models.marionette_configuration()
    return f.state_from_configurations(q, q)


def pulled(f: vioc.MidpointVI, t: np.ndarray) -> np.ndarray:
    """Inputs (len(t), 18) that change the strings of arms and legs by +-0.1 sin(0.6 pi t)."""
    q = vioc.models.marionette_configuration()
    U = np.tile(f.input({f"rho.{name}": q[name] for name in f.system.kinematic}), (len(t), 1))
    for limb, size in PULL.items():
        U[:, f.input_names.index(f"rho.{limb}_string-length")] += size * np.sin(0.6 * np.pi * t)
    return U


def tension(run: vioc.Trajectory, string: str) -> np.ndarray:
    """Return the tension of each step (N,), N: its force goes with the gradient 2 d of h = |d|^2 - L^2."""
    return -2 * run[f"{string}-length"][:-1] * run[f"force.{string}"]
