"""O(n) algebra on trees, against dense matrices and CasADi's own derivatives."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import casadi as ca
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from support.strategies import systems

import vioc
from vioc import Lagrangian
from vioc.compile import Backend

# inside: recursions on trees against dense matrices, without a map
from vioc.dynamics.algebra.ancestor_pairs import AncestorPairs
from vioc.dynamics.algebra.articulated import ArticulatedInverse, within_hinges
from vioc.dynamics.algebra.tree_recursions import gather_links
from vioc.errors import StepError

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=25, deadline=None)


@few
@given(system=systems(max_frames=8, forced=True), seed=seeds, coupled=st.booleans())
def test_articulated_inverse_is_the_mass_matrix_inverse(system, seed, coupled):
    """With what springs add to the diagonal, and to pairs of joints that follow each other."""
    lag, random = Lagrangian(system), np.random.default_rng(seed)
    nd = lag.nd
    q, a, diagonal = random.normal(size=lag.nq), random.normal(size=nd), random.uniform(0, 1, nd)
    links = lag.first.links
    poses = [link.pose for link in links]
    pairs = [p for p in combinations(range(nd), 2) if coupled and within_hinges(links, [p])]
    values = dict(zip(pairs, random.uniform(-1, 1, len(pairs)), strict=True))
    C = np.diag(diagonal)
    for (i, j), value in values.items():
        C[[i, j], [j, i]] = value
        C[[i, j], [i, j]] += abs(value)
    M = lag.mass_matrix(q)[:nd, :nd] + C
    assume(np.linalg.cond(M) < 1e6)
    whole, couplings = [ca.SX(d) for d in np.diag(C)], {pair: ca.SX(v) for pair, v in values.items()}
    solver = ArticulatedInverse.of_masses(links, poses, nd, whole, -0.25, couplings)
    b, w = ca.SX.sym("b", nd), ca.SX.sym("w", len(solver.entries()))
    g = lag.graph
    factor = ca.Function("factor", [g.q_vector, g.parameters], [ca.vertcat(ca.SX(0, 1), *solver.entries())])
    again = solver.with_entries(ca.vertsplit(w))
    solve = ca.Function("solve", [b, w], [ca.vertcat(*again.solve(ca.vertsplit(b)))])
    theta = list(system.parameters.values())
    x = np.array(solve(a, factor(q, theta)))[:, 0]
    np.testing.assert_allclose(M @ x, -0.25 * a, atol=1e-9 * np.linalg.cond(M))


def test_turns_of_frames_that_no_variable_moves_follow_each_other():
    """Two fixed rotations between a joint and its body, against scipy's rotations and the parallel axes."""
    body = vioc.Mass(1.0, (0.02, 0.03, 0.04), (0.1, 0.2, 0.3))
    fixed = vioc.rx(0.7)[vioc.ry(0.4)[vioc.tx(0.5, name="tool", mass=body)]]
    links, _ = gather_links(vioc.System(vioc.rz("a")[vioc.ry("b")[fixed]]), float)
    R = Rotation.from_euler("XY", [0.7, 0.4]).as_matrix()
    com, about = R @ [0.6, 0.2, 0.3], R @ np.diag([0.02, 0.03, 0.04]) @ R.T
    np.testing.assert_allclose(links[1].moment, com, atol=1e-15)
    inertia = about + com @ com * np.eye(3) - np.outer(com, com)
    np.testing.assert_allclose(links[1].inertia, inertia, atol=1e-15)


@few
@given(system=systems(max_frames=7), seed=seeds)
def test_blocks_are_second_derivatives_of_the_discrete_lagrangian(system, seed):
    lag, random = Lagrangian(system), np.random.default_rng(seed)
    g, alpha, h = lag.graph, 0.3, 0.2
    n, theta = lag.nq, np.array(list(system.parameters.values()))
    q0, q1 = ca.SX.sym("q0", n), ca.SX.sym("q1", n)
    # of what the pairs are for: T and gravity
    L = ca.Function("L", [g.q_vector, g.v_vector, g.parameters], [lag.L + lag._other_potential])
    Ld = h * L((1 - alpha) * q0 + alpha * q1, (q1 - q0) / h, theta)
    both = ca.vertcat(q0, q1)
    d = ca.SX.sym("d", 2 * n)
    H, _ = ca.hessian(Ld, both)
    along = ca.reshape(ca.jtimes(ca.vec(H), both, d), 2 * n, 2 * n)
    exact = ca.Function("exact", [both, d], [H, along])
    x, y = random.normal(size=(2, 2 * n))
    H, along = (np.array(e) for e in exact(x, y))
    pairs = AncestorPairs(lag, alpha, Backend())
    args = [((1 - alpha) * x[:n] + alpha * x[n:])[None], ((x[n:] - x[:n]) / h)[None], np.array([h]), theta]
    dq, dv = (1 - alpha) * y[:n] + alpha * y[n:], (y[n:] - y[:n]) / h
    varied = pairs.blocks_along(*args, dq[None], dv[None])
    for expected, blocks in ((H, pairs.blocks(*args)), (along, varied)):
        got = np.block([[blocks.D11[0], blocks.D12[0]], [blocks.D12[0].T, blocks.D22[0]]])
        np.testing.assert_allclose(got, expected, atol=1e-11 * (1 + np.abs(expected).max()))


class TestLongChains:
    """A step solved by sweeps is the step solved by the exact matrix."""

    def long(self, *more):
        return vioc.models.load("n_link_pendulum", 16).with_components(*more)

    @pytest.mark.parametrize(
        ("more", "articulated"),
        [
            ((), True),
            (
                (
                    vioc.JointDamping("link-3", 5.0),
                    vioc.TorsionalSpring("link-5", 400.0),
                    vioc.JointForce("link-2", "tau"),
                ),
                True,
            ),
            ((vioc.LinearSpring("world", "link-15", 10.0),), False),  # couples all variables
        ],
    )
    def test_agree(self, more, articulated):
        f = vioc.MidpointVI(self.long(*more), 0.01)
        assert f._articulated is articulated
        x0 = f.initial_state({"link-0": 1.0, "link-5": 0.4})
        U = np.full((60, f.nu), 3.0)
        run = f.rollout(x0, U)
        exact = vioc.MidpointVI(f.system, 0.01)
        exact.__dict__["_articulated"] = False
        expected = exact.rollout(x0, U).x
        np.testing.assert_allclose(run.x, expected, rtol=0, atol=1e-11 * np.abs(expected).max())

    def test_agree_with_both_ends_held(self):
        end = vioc.coincident("tip-15", "anchor", "yz")
        system = vioc.System(*self.long().frames, vioc.ty(9.0, name="anchor"), vioc.Gravity(0, 0, -9.8), end)
        guess = {f"link-{i}": 1.9 / 16 for i in range(16)} | {"link-0": -2.5}
        f, exact = vioc.MidpointVI(system, 0.01), vioc.MidpointVI(system, 0.01)
        exact.__dict__["_articulated"] = False
        assert f._articulated and f.nm == 2
        x0 = f.initial_state(vioc.consistent_configuration(system, guess))
        run, expected = f.rollout(x0, steps=40), exact.rollout(x0, steps=40)
        np.testing.assert_allclose(run.x, expected.x, rtol=0, atol=1e-11 * np.abs(expected.x).max())
        np.testing.assert_allclose(run.multipliers, expected.multipliers, rtol=0, atol=1e-10)
        assert max(np.abs(run[f"h.{name}"]).max() for name in f.multiplier_names) < 1e-13 * 16

    def test_a_step_that_sweeps_cannot_solve_goes_to_the_exact_matrix(self, monkeypatch):
        f = vioc.MidpointVI(self.long(), 0.05)
        x0 = f.initial_state({f"link-{i}": 1.2 * (-1) ** i for i in range(16)})
        tried = []
        solver = f.step_solver
        noted = replace(solver, robust=lambda feedback: (tried.append(feedback), solver.robust(feedback))[1])
        monkeypatch.setattr(f, "step_solver", noted)
        try:
            run = f.rollout(x0, steps=10)
        except StepError as error:
            pytest.fail(f"no way to solve it: {error}")
        assert tried, "the sweeps were enough: the example tests nothing"
        for k in range(10):
            r = f.residual(run.x[k], run.u[k], run.x[k + 1], [], k * 0.05, 0.05, [])
            assert np.abs(np.array(r)).max() < 1e-9
