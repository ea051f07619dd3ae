"""A pendulum with unknown parameters and records of its true motion; a four-bar with parameters."""

from itertools import pairwise
from math import ceil, sin

import numpy as np

import vioc
from vioc.identification import Record

MASS, LENGTH, SPIN, RUB, G = 0.7, 0.4, 0.01, 0.05, 9.81
NOISE = 1e-3


def pendulum(mass=MASS, spin=SPIN, rub=RUB, dt=0.005):
    """The pendulum whose mass, spin and friction are parameters, with guesses in place of what is true."""
    body = vioc.Mass(vioc.P("mass", mass), (vioc.P("spin", spin), vioc.P("spin", spin), 0.0))
    arm = vioc.rx("theta")[vioc.tz(-vioc.P("length", LENGTH).value, mass=body)]
    rubs = vioc.JointDamping("theta", vioc.P("rub", rub))
    return vioc.MidpointVI(vioc.System(arm, vioc.Gravity(0, 0, -G), rubs, vioc.JointForce("theta", "u")), dt)


def truth(t, torque, start=(0.5, 0.0)):
    """Angles and rates (K, 2), by Runge-Kutta's method in steps of at most 2 ms."""

    def rate(angle, speed, s):  # in plain numbers, as NumPy takes ten times as long for two
        pull = float(torque(s)) - MASS * G * LENGTH * sin(angle) - RUB * speed
        return speed, pull / (SPIN + MASS * LENGTH**2)

    x, v = map(float, start)
    rows = [(x, v)]
    for a, b in pairwise(np.asarray(t, float).tolist()):
        n = ceil((b - a) / 2e-3)
        h = (b - a) / n
        for i in range(n):
            s = a + i * h
            x1, v1 = rate(x, v, s)
            x2, v2 = rate(x + h / 2 * x1, v + h / 2 * v1, s + h / 2)
            x3, v3 = rate(x + h / 2 * x2, v + h / 2 * v2, s + h / 2)
            x4, v4 = rate(x + h * x3, v + h * v3, s + h)
            x, v = x + h / 6 * (x1 + 2 * x2 + 2 * x3 + x4), v + h / 6 * (v1 + 2 * v2 + 2 * v3 + v4)
        rows.append((x, v))
    return np.array(rows)


def drive(s):
    """The torque at time s."""
    return 1.5 * np.sin(2.1 * s) + 0.8 * np.sin(5.3 * s + 1.0)


def record(seed=0, t=None, torque=drive, **more):
    """Angles of the true pendulum at times t, with noise, and the torque."""
    t = np.arange(301) * 0.01 if t is None else t
    theta = truth(t, torque)[:, 0] + NOISE * np.random.default_rng(seed).standard_normal(len(t))
    return Record(t, {"theta": theta}, {"u": drive}, **more)


def four_bar():
    """A loop with masses, damping and a torque that are parameters."""
    P = vioc.P
    coupler = vioc.rx("b")[vioc.tz(-0.6, name="end", mass=P("m2", 0.5))]
    left = vioc.rx("a")[vioc.tz(-0.5, mass=P("m1", 1.0))[coupler]]
    right = vioc.ty(0.5)[vioc.rx("c")[vioc.tz(-0.7, name="tip", mass=0.4)]]
    closed = [vioc.PointConstraint("end", "tip", axis) for axis in ((0, 1, 0), (0, 0, 1))]
    damped = vioc.JointDamping("a", P("rub", 0.1))
    return vioc.System(left, right, vioc.Gravity(0, 0, -G), closed, damped, vioc.JointForce("a", "u"))
