"""Digests of what the toolkit computes: ``python tests/trust/results.py`` prints them as JSON."""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np

import vioc
from vioc.control import optimize, quadratic


def digest(*arrays) -> str:
    """Of the bits of arrays and texts."""
    total = hashlib.sha256()
    for a in arrays:
        total.update(a.encode() if isinstance(a, str) else np.ascontiguousarray(a).tobytes())
    return total.hexdigest()[:16]


def results() -> dict[str, str]:
    """Everything that must be the same to the bit in every process, by what it is."""
    system = vioc.models.load("cart_pole")
    found = {"text": digest(vioc.write_text(system)), "repr": digest(repr(system))}
    maps = {
        "midpoint": vioc.MidpointVI(system, 0.02),
        "composition": vioc.Composition(vioc.MidpointVI(system, 0.02)),
        "linear-time": vioc.LinearTimeVI(system, 0.02),
        "maximal": vioc.MaximalVI(system, 0.02),
        "rk4": vioc.RungeKutta(system, 0.02),
    }
    random = np.random.default_rng(0)
    for name, f in maps.items():
        x = f.initial_state({"theta": 0.4})
        U = random.normal(size=(40, f.nu))
        run = f.rollout(x, U)
        lin = f.linearize_trajectory(run)
        H = f.second_order_trajectory(run, np.ones((40, f.ndx)))
        many = f.rollouts(np.stack([x, run.x[1], run.x[2], run.x[3]]), U)
        found[f"{name}: rollouts"] = digest(run.x, run.multipliers, many.x)
        found[f"{name}: derivatives"] = digest(lin.A, lin.B, H.xx, H.uu)
    f = maps["midpoint"]
    cost = quadratic(f, Q={"theta": 10.0}, R=0.1, Qf=1.0)
    best = optimize(f, cost, f.rollout(f.initial_state({"theta": 0.2}), steps=30))
    found["optimize"] = digest(best.trajectory.x, best.trajectory.u)
    if "--compiled" in sys.argv:  # rollouts are those of the virtual machine; derivatives differ by rounding
        compiled = vioc.MidpointVI(system, 0.02, backend="compiled")
        run = compiled.rollout(best.trajectory.x[0], best.trajectory.u)
        found["optimize, compiled"] = digest(run.x, run.u)
    return found


if __name__ == "__main__":
    print(json.dumps(results()))
