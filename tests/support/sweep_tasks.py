"""Functions that the tests of sweeps send to other processes."""

import os
import signal
import time

import numpy as np


def square(x, scale=1.0):
    return {"y": scale * x * x}


def noisy(x, rng):
    return {"y": x + rng.standard_normal(), "draws": rng.standard_normal(3)}


def picky(x):
    if x == 2:
        raise ValueError("two is refused")
    return x


def deadly(x, marker):
    """Kills its process at x = 3; at x = 1 only the first time."""
    if x == 3 or (x == 1 and not os.path.exists(marker)):
        with open(marker, "w") as file:
            file.write("killed once")
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def slow(x, rng):
    time.sleep(0.02)
    return float(x + rng.standard_normal())


def first_state(f, x0):
    return f.step(np.array(x0))


def ignored(given, point):
    return point


def times(a):
    def scale(x):
        return a * x

    return scale


def environment(names):
    return [os.environ.get(name) for name in names]
