"""Consistent configurations, their rank report, and constraints that contradict each other."""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
import pytest
from support.mechanisms import reference

from vioc import (
    DistanceConstraint,
    Lagrangian,
    MidpointVI,
    P,
    PointConstraint,
    System,
    coincident,
    consistent_configuration,
    project_velocity,
    rx,
    rz,
    tx,
    ty,
    tz,
)

# inside: the rank report of a matrix by itself, and a kind of constraint that is no component yet
from vioc.dynamics.consistency import rank_of_rows
from vioc.dynamics.description.component import Constraint
from vioc.errors import ConstraintError, ConstraintWarning, ModelError


def four_bar(extra=()):
    return System(
        rx("a")[tz(-1, mass=1)[rx("b")[tz(-1, name="tip", mass=1)]]],
        ty(1.0, name="post")[rx("c")[tz(-1, name="end", mass=1)]],
        coincident("tip", "end", axes="yz", name="pin"),
        *extra,
    )


def test_loop_closes_near_the_guess_with_a_report():
    system = four_bar()
    report = consistent_configuration(system, {"a": 0.3, "b": 1.2, "c": 0.2})
    assert np.abs(report.residual).max() <= 1e-12
    assert (report.rank, report.degrees_of_freedom, report.redundant) == (2, 1, ())
    assert report["a"] == report.q[0]
    assert "rank 2" in str(report)
    held = consistent_configuration(system, {"a": 0.3, "b": 1.2, "c": 0.2}, fixed=["a"])
    assert held["a"] == 0.3


@pytest.mark.parametrize("metre", [1e-6, 1e3, 1e9])
def test_the_configuration_found_is_the_same_in_other_units_of_length(metre):
    """A crank on a cart, whose tip meets a fixed point: slides and an angle share the way to closure."""

    def found(metre):
        cart = tx("x", mass=1)[ty("y", mass=2)[rz("crank")[tx(0.4 * metre, name="tip", mass=1)]]]
        post = tx(0.9 * metre)[ty(0.5 * metre, name="post")]
        system = System(cart, post, coincident("tip", "post", axes="xy"))
        q = consistent_configuration(system, {"x": 0.2 * metre, "y": -0.1 * metre, "crank": 0.3}).q
        return q / [metre, metre, 1.0]

    np.testing.assert_allclose(found(metre), found(1.0), rtol=1e-10)


def test_singular_and_distant_guesses_lead_to_closed_loops():
    rod = System(tx("x")[ty("y", name="bob", mass=1)], DistanceConstraint("bob", "world", 1.0))
    near = consistent_configuration(rod, [1e-8, 2e-8]).q
    np.testing.assert_allclose(near, np.array([1, 2]) / np.sqrt(5), rtol=1e-6)
    arm = rz("a")[tx(0.5, mass=1)[rz("b")[tx(0.5, name="tip", mass=1)]]]
    folded = System(arm, DistanceConstraint("tip", "world", 0.6))
    for bend in (1e-6, 1e-3):  # from the pose at which the distance has no slope
        assert np.abs(consistent_configuration(folded, [0, np.pi - bend]).q).max() < 2 * np.pi
    slider = System(arm, tx("s", name="pin", mass=1), coincident("tip", "pin", axes="xy"))
    assert np.abs(consistent_configuration(slider, [0.3, -0.2, 1e3]).residual).max() < 1e-12


def test_loops_far_from_the_origin_close_to_rounding_errors():
    arm = rz("a")[tx(0.5, mass=1)[rz("b")[tx(0.5, name="tip", mass=1)]]]
    far = System(tx(1e6)[arm, ty(0.6, name="post")], coincident("tip", "post", axes="xy"))
    report = consistent_configuration(far, [0.1, 1.0])
    assert np.abs(report.residual).max() <= 4 * np.spacing(1e6)


def test_lengths_that_are_parameters_count_with_their_values():
    def found(number, **lengths):
        cart = tx("x", mass=1)[ty("y", mass=2)[rz("crank")[tx(number(0.4), name="tip", mass=1)]]]
        post = tx(number(0.9))[ty(number(0.5), name="post")]
        system = System(cart, post, coincident("tip", "post", axes="xy"))
        return consistent_configuration(system, {"x": 200, "y": -100, "crank": 0.3}, **lengths).q

    by_value = found(lambda a: P(f"L{10 * a:g}", a), L4=400.0, L9=900.0, L5=500.0)
    np.testing.assert_allclose(by_value, found(lambda a: 1000 * a), rtol=1e-10)


def test_a_rollout_from_an_open_loop_warns_of_it():
    f = MidpointVI(four_bar(), 0.01)
    start = f.initial_state(f.consistent_configuration({"a": 0.3, "b": 1.2, "c": 0.2}))
    f.rollout(start, steps=1)
    with pytest.warns(
        ConstraintWarning, match=r"the first state violates pin.* \(.*\).*consistent_configuration"
    ):
        f.rollout(start + [0.1, 0, 0, 0, 0, 0], steps=1)


@pytest.mark.parametrize("turns", [0, 1000, 10_000])
def test_whole_turns_of_an_angle_permit_no_larger_gaps(turns):
    """A crank that has turned often closes to the same gap as one that has not."""
    system = four_bar()
    closed = consistent_configuration(system, {"a": 0.3, "b": 1.2, "c": 0.2}).q + [2 * np.pi * turns, 0, 0]
    lagrangian = Lagrangian(system)
    assert not lagrangian.violated_constraints(closed)
    MidpointVI(system, 0.01).initial_state(closed)
    assert lagrangian.violated_constraints(closed + [0, 1e-4, 0])
    with pytest.raises(ConstraintError, match="violates"):
        MidpointVI(system, 0.01).initial_state(closed + [0, 1e-6, 0])


def test_parameters_that_are_no_numbers_are_named():
    with pytest.raises(ValueError, match="parameter 'l': expected a finite number, got nan"):
        consistent_configuration(System(rz("a")[tx(P("l", 0.4), name="e", mass=1)]), l=np.nan)


def test_redundant_constraints_are_named():
    system = four_bar([PointConstraint("tip", "end", (0, 1, 1), name="again")])
    report = consistent_configuration(system, {"a": 0.3, "b": 1.2, "c": 0.2})
    assert report.rank == 2 and report.redundant == ("again",)
    assert "again" in str(report)


def test_contradictions_are_named():
    system = System(
        tx("x", name="p", mass=1),
        PointConstraint("p", "world", (1, 0, 0), name="here"),
        DistanceConstraint("p", "world", 2.0, name="there"),
    )
    with pytest.raises(ConstraintError, match="violated: .*there"):
        consistent_configuration(system, {"x": 0.5})


def test_unreachable_closure_is_an_error():
    system = System(rx("a")[tz(-1, name="tip", mass=1)], ty(5.0, name="far"), coincident("tip", "far", "yz"))
    with pytest.raises(ConstraintError, match="another guess is needed"):
        consistent_configuration(system)
    with pytest.raises(ValueError, match="unknown configuration variable"):
        consistent_configuration(system, fixed=["b"])


def test_velocities_are_projected_in_the_kinetic_metric():
    system, data = reference("closed_chain_undamped")
    lag = Lagrangian(system)
    q, v = data["q"][0], np.random.default_rng(0).normal(size=7)
    w = project_velocity(system, q, v)
    J, M = lag.constraint_jacobian(q), lag.mass_matrix(q)
    assert np.abs(J @ w).max() < 1e-12
    # what was taken off is orthogonal, in M, to everything that may move
    kernel = np.linalg.svd(J)[2][4:].T
    assert np.abs(kernel.T @ M @ (v - w)).max() < 1e-10
    f = MidpointVI(system, 0.01)
    with pytest.raises(ConstraintError, match="project_velocity"):
        f.initial_state(q, v)
    run = f.rollout(f.initial_state(q, w), steps=5)
    np.testing.assert_allclose([run[f"v.{n}"][0] for n in system.variables], w, atol=1e-9)


def test_rank_of_rows():
    J = np.array([[1.0, 0, 0], [0, 1e-6, 0], [1, 1, 0], [0, 0, 0]])
    assert rank_of_rows(J, ("a", "b", "c", "d")) == (2, ("c", "d"))


@dataclass(frozen=True)
class Sideways(Constraint):
    """No sideways slip: a condition on velocities that says it were one on configurations."""

    def value(self, k):
        return k.v("x") * ca.sin(k.q("turn")) - k.v("y") * ca.cos(k.q("turn"))


def test_conditions_on_velocities_are_sent_to_the_component_for_them():
    system = System(tx("x")[ty("y")[rz("turn", mass=(1, 1, 1, 1))]], Sideways())
    with pytest.raises(ModelError, match=r"sideways-1 depends on velocities.*NonholonomicConstraint"):
        MidpointVI(system, 0.01)
