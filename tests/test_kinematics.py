"""Frames against the recursions of [T] (2)-(10) in plain numpy, and the sweeps against AD."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm
from support.strategies import systems

from vioc import Gravity, Kinematics, Lagrangian, P, System, rx, tz

# inside: recursions on the graph of frames, and its kinds of pose, against those of a paper
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.description.frame import Pose, Twist
from vioc.dynamics.kinematics import FrameGraph

seeds = st.integers(0, 2**32 - 1)


def hat(xi):
    x, y, z, a, b, c = xi
    return np.array([[0, -c, b, x], [c, 0, -a, y], [-b, a, 0, z], [0, 0, 0, 0]], float)


def unhat(m):
    return np.array([m[0, 3], m[1, 3], m[2, 3], m[2, 1], m[0, 2], m[1, 0]])


def primitive(transform, q, order):
    """g, g' or g'' of one transform by its own variable."""
    if isinstance(transform.value, Pose):
        g = np.eye(4)
        g[:3, :3] = np.reshape(transform.value.rotation, (3, 3))
        g[:3, 3] = [float(v) for v in transform.value.position]
        return g
    value = q if transform.variable else float(transform.value)
    if isinstance(transform.value, Twist):
        X = hat((*transform.value.linear, *transform.value.angular))
    else:
        xi = np.zeros(6)
        xi["XYZ".index(transform.kind[1]) + (3 if transform.kind[0] == "R" else 0)] = 1.0
        X = hat(xi)
    g = expm(X * value)
    return np.linalg.matrix_power(X, order) @ g


class Recursion:
    """(2)-(10), mended as in the maths page: piecewise, top case first, without sharing."""

    def __init__(self, system, q, v):
        self.nodes, self.q, self.v = system.nodes, q, v
        self.owner = [
            system.variables.index(n.frame.transform.variable.name) if n.frame.transform.variable else None
            for n in system.nodes
        ]

    def local(self, k, order=0, inverse=False):
        i = self.owner[k]
        q = self.q[i] if i is not None else 0.0
        g = primitive(self.nodes[k].frame.transform, q, 0)
        if not inverse:
            return primitive(self.nodes[k].frame.transform, q, order)
        X = np.linalg.inv(g) @ primitive(self.nodes[k].frame.transform, q, 1)
        return np.linalg.matrix_power(-X, order) @ np.linalg.inv(g)

    def pose(self, k, by=()):
        """Derivative of g_{s,k} by the variables in `by`."""
        if k < 0:
            return np.eye(4) if not by else np.zeros((4, 4))
        mine = [i for i in by if i == self.owner[k]]
        rest = tuple(i for i in by if i != self.owner[k])
        return self.pose(self.nodes[k].parent, rest) @ self.local(k, len(mine))

    def velocity(self, k, by=(), by_v=()):
        if k < 0:
            return np.zeros((4, 4))
        parent, own = self.nodes[k].parent, self.owner[k]
        mine = sum(i == own for i in by)
        rest = tuple(i for i in by if i != own)
        below = self.velocity(parent, rest, by_v)
        binomial = {0: [1], 1: [1, 1], 2: [1, 2, 1]}[mine]
        total = sum(
            b * self.local(k, j, True) @ below @ self.local(k, mine - j) for j, b in enumerate(binomial)
        )
        if own is not None and not by:
            xi = np.linalg.inv(self.local(k)) @ self.local(k, 1)
            if not by_v:
                total = total + xi * self.v[own]
            elif by_v == (own,):
                total = total + xi
        return total


@given(system=systems(), seed=seeds)
@pytest.mark.slow
def test_frames_agree_with_the_recursions(system, seed):
    random = np.random.default_rng(seed)
    n = len(system.variables)
    q, v = random.normal(size=n), random.normal(size=n)
    names = [name for name in system.frame_names]
    if not names:
        return
    name = names[-1]
    k = system.frame_index(name)
    kinematics, recursion = Kinematics(system), Recursion(system, q, v)

    np.testing.assert_allclose(kinematics.pose(name, q), recursion.pose(k), atol=1e-12)
    first, second = kinematics.pose(name, q, 1), kinematics.pose(name, q, 2)
    for i in range(n):
        np.testing.assert_allclose(first[:, :, i], recursion.pose(k, (i,)), atol=1e-12)
        for j in range(n):
            np.testing.assert_allclose(second[:, :, i, j], recursion.pose(k, (i, j)), atol=1e-11)

    by = {w: kinematics.body_velocity(name, q, v, w) for w in ("", "q", "v", "qq", "qv", "vv")}
    np.testing.assert_allclose(by[""], unhat(recursion.velocity(k)), atol=1e-11)
    assert not by["vv"].any()
    for i in range(n):
        np.testing.assert_allclose(by["q"][:, i], unhat(recursion.velocity(k, (i,))), atol=1e-11)
        np.testing.assert_allclose(by["v"][:, i], unhat(recursion.velocity(k, (), (i,))), atol=1e-11)
        for j in range(n):
            np.testing.assert_allclose(by["qq"][:, i, j], unhat(recursion.velocity(k, (i, j))), atol=1e-10)
            np.testing.assert_allclose(
                by["qv"][:, i, j], unhat(recursion.velocity(k, (i,), (j,))), atol=1e-10
            )


def test_third_derivatives_by_differences():
    system = System(rx("a")[tz("b")[rx("c", name="tip")]])
    kinematics = Kinematics(system)
    q, step = np.array([0.3, -0.8, 1.1]), 1e-6
    third = kinematics.pose("tip", q, 3)
    for i in range(3):
        e = step * np.eye(3)[i]
        slope = (kinematics.pose("tip", q + e, 2) - kinematics.pose("tip", q - e, 2)) / (2 * step)
        np.testing.assert_allclose(third[..., i], slope, atol=1e-8)


def energies_by_bodies(system, graph):
    """T body by body from each frame's velocity, and V from each centre of mass: no links, no sweeps."""
    T = ca.SX(0)
    for i, node in enumerate(system.nodes):
        mass = node.frame.mass
        if mass is None:
            continue
        v, w = (vec.column(part) for part in graph.node_velocity(i))
        v = v + ca.cross(w, ca.DM([float(c) for c in mass.com]))
        T += 0.5 * float(mass.mass) * ca.dot(v, v) + 0.5 * ca.dot(w, ca.DM(mass.matrix()) @ w)
    return T, sum((p.energy(graph) for p in system.potentials), ca.SX(0))


@given(system=systems(), seed=seeds)
def test_sweeps_agree_with_automatic_differentiation(system, seed):
    random = np.random.default_rng(seed)
    lag = Lagrangian(system)
    graph = FrameGraph(system)
    T, V = energies_by_bodies(system, graph)
    q, v = graph.q_vector, graph.v_vector
    Lq, Lv = ca.gradient(T - V, q), ca.gradient(T - V, v)
    second = [ca.jacobian(Lq, q), ca.jacobian(Lv, q), ca.jacobian(Lv, v)]
    expected = ca.Function("expected", [q, v], [T, V, Lq, Lv, *second, second[2]])
    ours = lag.function("ours", [lag.T, lag.V, lag.L_q, lag.L_v, *lag.second, lag.M])
    point = random.normal(size=lag.nq), random.normal(size=lag.nq)
    theta = list(system.parameters.values())
    for a, b in zip(ours(*point, np.zeros(len(system.inputs)), 0.0, theta), expected(*point), strict=True):
        scale = 1 + float(ca.norm_fro(b))
        assert float(ca.norm_fro(a - b)) <= 1e-12 * scale


@given(system=systems(), seed=seeds)
def test_mass_matrix_is_symmetric_positive_definite(system, seed):
    lag = Lagrangian(system)
    M = lag.mass_matrix(np.random.default_rng(seed).normal(size=lag.nq))
    np.testing.assert_allclose(M, M.T, atol=1e-12)
    assert np.linalg.eigvalsh(M)[0] > 0


@given(system=systems(), seed=seeds)
def test_power_balance(system, seed):
    """Along any motion dT/dt = v' (M a + d/dt terms): here with v' dL_v/dt - v' L_q = d(T + V)/dt."""
    random = np.random.default_rng(seed)
    lag = Lagrangian(system)
    q, v, a = (random.normal(size=lag.nq) for _ in range(3))
    eps = 1e-6

    def energy(s):
        position, speed = q + s * v + s**2 / 2 * a, v + s * a
        return lag.kinetic_energy(position, speed) + lag.potential_energy(position)

    def momentum(s):
        return lag.momentum(q + s * v + s**2 / 2 * a, v + s * a)

    L_q = lag._value("L_q", q, v, None)[:, 0]
    rate = (energy(eps) - energy(-eps)) / (2 * eps)
    work = v @ ((momentum(eps) - momentum(-eps)) / (2 * eps) - L_q)
    assert rate == pytest.approx(work, rel=1e-5, abs=1e-5 * (1 + abs(energy(0))))


def test_composite_inertia_of_constant_frames():
    """A body split over rigidly joined frames is the same body; parameters stay symbols in it."""
    whole = System(Gravity(0, 0, -9.81), rx("a")[tz(-1.0, mass=2.0), tz(0.5)[rx(0.7)[tz(1.0, mass=3.0)]]])
    y, z = -np.sin(0.7), 0.5 + np.cos(0.7)
    lag = Lagrangian(whole)
    assert lag.mass_matrix([0.4])[0, 0] == pytest.approx(2 * 1 + 3 * (y**2 + z**2), abs=1e-12)
    lag = Lagrangian(System(rx("a")[tz(P("l", 2.0), mass=P("m", 3.0))]))
    assert lag.mass_matrix([0.0])[0, 0] == pytest.approx(12.0)
    assert lag.mass_matrix([0.0], l=1.0, m=5.0)[0, 0] == pytest.approx(5.0)


def test_a_planar_chain_costs_what_a_planar_chain_costs():
    """Exact zeros never reach the graph: a planar double pendulum needs few operations."""
    lag = Lagrangian(System(Gravity(0, 0, -9.8), rx("a")[tz(-1, mass=1)[rx("b")[tz(-1, mass=1)]]]))
    assert lag.function("f", [lag.L_q, lag.L_v]).n_instructions() < 70


def test_bad_arguments():
    kinematics = Kinematics(System(rx("a", name="arm")))
    with pytest.raises(ValueError, match="did you mean 'arm'"):
        kinematics.pose("amr", [0.0])
    with pytest.raises(ValueError, match=r"expected shape \(1,\)"):
        kinematics.pose("arm", [0.0, 1.0])
    with pytest.raises(ValueError, match="finite"):
        kinematics.pose("arm", [np.nan])
    with pytest.raises(ValueError, match="letters q and v"):
        kinematics.body_velocity("arm", [0.0], [0.0], by="x")
    with pytest.raises(ValueError, match="unknown configuration variable 'b'"):
        kinematics.pose("arm", {"b": 1.0})
