"""Mechanisms and costs that tests of `vioc.control.dmoc` share."""

import casadi as ca

import vioc
from vioc import Gravity, JointForce, K, P, StringConstraint, System, coincident, ry, tx, tz
from vioc.control import Cost


def parametric_pendulum(dt=0.05):
    """A pendulum with a torque, whose length and mass are parameters."""
    arm = ry("theta")[tz(P("length", -1.0), mass=P("m", 1.0))]
    return vioc.MidpointVI(System(Gravity(0, 0, -9.8), arm, JointForce("theta", "torque")), dt)


def effort(f):
    """Half the square of the inputs."""
    return Cost(f, 0.5 * ca.sumsqr(f.symbols.u))


def four_bar(dt=0.02):
    """A planar four-bar with a torque at its crank, and a configuration that closes it."""
    crank = ry("crank")[tx(0.2, mass=0.2), tx(0.4)[ry("coupler")[tx(0.5, mass=0.5), tx(1.0, name="end")]]]
    rocker = tx(1.0)[ry("rocker")[tx(0.4, mass=0.3), tx(0.8, name="tip")]]
    pins = coincident("end", "tip", "xz", name="pin")
    system = System(crank, rocker, Gravity(0, 0, -9.81), JointForce("crank", "torque"), pins)
    q = -0.27965071378756173, -0.46952085039786756, -1.4243811674744762
    start = vioc.consistent_configuration(system, dict(zip(("crank", "coupler", "rocker"), q, strict=True)))
    return vioc.MidpointVI(system, dt), start


def hanging_load(dt=0.02):
    """A load on a string from a trolley that is moved along a rail."""
    load = tx("x")[tz("z", name="load", mass=1.0)]
    rail = tx(K("trolley"), name="trolley")
    string = StringConstraint("load", "trolley", 1.0, name="string")
    return vioc.MidpointVI(System(load, rail, Gravity(0, 0, -9.8), string), dt)


def haste(f):
    """Half the square of the trolley's velocity over each step."""
    return Cost(f, 0.5 * ((f.quantity("u.rho.trolley") - f.quantity("trolley")) / f.symbols.dt) ** 2)
