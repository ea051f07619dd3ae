"""Masses and mass matrices that no mechanism has are refused, and named."""

import re
import warnings
from functools import cache

import numpy as np
import pytest

import vioc
from vioc import GroupVI, ModelError, P, StepError, identification
from vioc.components import RotorInertia
from vioc.control import feedback

# inside: a mass as a file gives it, which a `Mass` would refuse
from vioc.dynamics.formats.robot import GivenMass

MAPS = {
    "midpoint": vioc.MidpointVI,
    "Runge-Kutta": vioc.RungeKutta,
    "Galerkin": vioc.GalerkinVI,
    "linear time": vioc.LinearTimeVI,
    "maximal": vioc.MaximalVI,
}


def cart(bob=0.3, rotor=None):
    pole = vioc.tz(0.5, name="pole", mass=P("bob", bob))
    more = [] if rotor is None else [RotorInertia("theta", rotor)]
    return vioc.System(
        vioc.tx("x", name="cart", mass=1.0)[vioc.ry("theta")[pole]], vioc.Gravity(0, 0, -9.81), *more
    )


def double(first, second, unit=1.0, *more):
    """Two links of 1 kg, 1 m apart, whose moments of inertia about y are given, in a unit of mass."""

    def link(variable, moment, name, *frames):
        inertia = tuple(unit * m for m in (moment, moment, 0.01, 0, 0, 0))
        body = vioc.Mass if moment >= 0.005 else GivenMass
        mass = body(unit, inertia, (0, 0, -0.5))
        return vioc.ry(variable, name=name, mass=mass)[frames]

    return vioc.System(link("j1", first, "l1", vioc.tz(-1)[link("j2", second, "l2")]), *more, name="arm")


@cache
def map_of_cart(integrator):
    return MAPS[integrator](cart(), 0.02)


@pytest.mark.parametrize("integrator", MAPS)
@pytest.mark.parametrize("bob", [-0.3, -5.0])
def test_negative_masses_by_parameters_are_refused(integrator, bob):
    f = map_of_cart(integrator)
    message = f"frame 'pole' .*, with bob = {bob:g}: mass: expected a number >= 0"
    with pytest.raises(ModelError, match=message):
        f.with_parameters(bob=bob)
    with pytest.raises(ModelError, match=rf"with bob = {bob:g} \(sample 1\): mass: expected"):
        f.rollouts(np.tile(f.initial_state({"theta": 0.3}), (3, 1)), steps=2, parameters={"bob": [1, bob, 2]})
    with pytest.raises(ModelError, match=message):
        vioc.Continuous(f.system, bob=bob)
    with pytest.raises(ValueError, match="parameter 'bob': expected a number .*, got True"):
        f.with_parameters(bob=True)
    assert f.with_parameters(bob=0.2).rollout(f.initial_state({"theta": 0.3}), steps=2)


@pytest.mark.parametrize("integrator", MAPS)
def test_parameters_without_which_nothing_moves_a_mass_are_refused(integrator):
    f = map_of_cart(integrator)
    message = "the mass matrix is singular: nothing with mass moves with theta independently"
    with pytest.raises(ModelError, match=message):
        f.with_parameters(bob=0.0)
    with pytest.raises(ModelError, match=message):
        f.rollouts(np.tile(f.initial_state({"theta": 0.3}), (2, 1)), steps=2, parameters={"bob": [1.0, 0.0]})
    with pytest.raises(ModelError, match=message):
        vioc.Continuous(f.system, bob=0.0)
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match=rf"parameters: expected finite numbers, got {value} .*\(bob\)"):
            f.with_parameters(bob=value)


def test_equilibria_and_poses_take_no_parameters_that_no_body_has():
    hanging = vioc.System(vioc.ry("q", name="rod")[vioc.tz(-1, name="bob", mass=P("m", 0.3))])
    for call in (
        lambda: vioc.cables.static_equilibrium(hanging, {"q": 0.1}, m=-0.3),
        lambda: vioc.Kinematics(hanging, m=-0.3),
    ):
        with pytest.raises(ModelError, match="frame 'bob' .*with m = -0.3: mass: expected a number >= 0"):
            call()


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_inertias_by_parameters_are_those_of_bodies(unit):
    """A thin rod lies on the edge of what bodies are: its moment across may not be more than the other."""
    inertia = (P("across", unit / 12), unit / 12, P("along", 0.0))
    system = vioc.System(vioc.rx("a")[vioc.ry("b", name="rod", mass=vioc.Mass(unit, inertia, (0, 0, 0.5)))])
    f = vioc.MidpointVI(system, 0.01)
    for across, along, fault in [
        (1.01, 0.0, "triangle"),
        (0.99, 0.0, "triangle"),
        (1.0, -0.01, "semidefinite"),
    ]:
        with pytest.raises(ModelError, match=f"frame 'rod' in .*{fault}"):
            f.with_parameters(across=across * unit / 12, along=along * unit)
    for across, along in [(1.0, 0.0), (1.01, 0.01), (1 + 1e-15, 0.0)]:
        assert f.with_parameters(across=across * unit / 12, along=along * unit)


@pytest.mark.parametrize(
    "values, fault",
    [
        ({"d": -0.1}, "with d = -0.1: joint-damping: coefficient: expected at least 0, got -0.1"),
        ({"k": -3.0}, "with k = -3: torsional-spring: stiffness: expected at least 0, got -3"),
        ({"rod": -1.0}, "with rod = -1: distance-constraint 'rod': length: expected a length > 0, got -1"),
        ({"low": 1.0}, "with low = 1: joint-limits 'stop': expected lower < upper, got 1 and 1"),
        ({"e": 1.5}, "with e = 1.5: joint-limits 'stop': restitution: expected 0 to 1, got 1.5"),
        (
            {"rub": 0.0},
            "with rub = 0: dry-friction 'rub': limit: expected the largest friction, > 0",
        ),
    ],
)
def test_values_of_parameters_are_judged_as_those_of_a_description(values, fault):
    terms = [
        vioc.JointDamping("a", P("d", 0.1)),
        vioc.TorsionalSpring("a", P("k", 1.0)),
        vioc.UserPotential(lambda k, c: c * k.q("a"), (P("free", 1.0),)),
    ]
    stop = vioc.JointLimits("a", P("low", -1.0), 1.0, restitution=P("e", 0.2), name="stop")
    rub = vioc.components.DryFriction("a", P("rub", 1.0), name="rub")
    rod = vioc.DistanceConstraint("tip", "post", P("rod", 1.25**0.5), name="rod")
    (name,) = values
    more = {"low": stop, "e": stop, "rub": rub, "rod": rod}.get(name)
    mass = vioc.Mass(1.0, (0.1, 0.1, 0.1), (0, 0, -0.5))
    frames = vioc.ry("a", mass=mass)[vioc.tz(-1.0, name="tip")], vioc.tx(0.5, name="post")
    system = vioc.System(frames, terms, more or [], name="one")
    f = (vioc.ContactVI if system.inequalities else vioc.MidpointVI)(system, 0.01)
    with pytest.raises(ModelError, match=re.escape(f"one: {fault}")):
        f.with_parameters(**values)
    with pytest.raises(ModelError, match=re.escape("(sample 1)")):
        both = {name: [system.parameters[name], values[name]]}
        f.rollouts(np.tile(f.initial_state(), (2, 1)), steps=1, parameters=both)
    if not system.inequalities:
        with pytest.raises(ModelError, match=re.escape(fault)):
            vioc.Continuous(system, **values)
    assert f.with_parameters(free=-5.0).parameters["free"] == -5.0  # what a description takes is taken
    assert f.trying(**values).parameters[name] == values[name]  # a search may pass there


def test_inertias_of_rotors_are_not_negative():
    f = vioc.MidpointVI(cart(rotor=P("rotor", 0.1)), 0.02)
    with pytest.raises(ModelError, match="rotor-inertia, with rotor = -0.1: inertia: expected at least 0"):
        f.with_parameters(rotor=-0.1)
    assert f.with_parameters(rotor=0.0)


@pytest.mark.parametrize("integrator", [name for name in MAPS if name != "maximal"])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_a_mass_matrix_that_is_nowhere_positive_is_refused_and_its_link_named(integrator, unit):
    """M = [[3.26 + c, 0.51 + c / 2], [., 0.26 - 0.3]] by hand."""
    with pytest.raises(ModelError, match=r"not positive definite: j1, j2 would .*: 'l2' \(") as caught:
        MAPS[integrator](double(0.1, -0.3, unit), 0.01)
    assert "singular" not in str(caught.value) and "l1" not in str(caught.value)


@pytest.mark.parametrize("integrator", MAPS)
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_a_start_where_the_mass_matrix_is_indefinite_is_refused(integrator, unit):
    """det M < 0 at j2 = 0, > 0 at j2 = 1.5: M = [[1.4 + c, 0.05 + c / 2], [., 0.05]], c = cos(j2)."""
    f = MAPS[integrator](double(0.1, -0.2, unit), 0.005)
    bad, good = f.initial_state(j1=0.1), f.initial_state(j1=0.1, j2=1.5)
    for start in (lambda: f.rollout(bad, steps=3), lambda: f.step(bad), lambda: f.linearize(bad)):
        with pytest.raises(StepError, match=r"arm: the mass matrix is not positive definite.*'l2'") as caught:
            start()
        assert caught.value.cause == "indefinite M"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(f.rollout(good, steps=3)) == 3
        batch = f.rollouts(np.array([good, bad]), steps=3, raise_on_failure=False)
    assert set(batch.errors) == {1} and batch.errors[1].cause == "indefinite M"


@pytest.mark.parametrize("integrator", [vioc.MidpointVI, vioc.LinearTimeVI])
def test_a_motion_that_comes_to_where_the_mass_matrix_is_indefinite_says_so(integrator):
    """From j2 = 1.5 to where 0.05 (1.4 + c) = (0.05 + c / 2)^2, c = cos(j2)."""
    f = integrator(double(0.1, -0.2).with_components(vioc.Gravity(0, 0, -9.81)), 0.005)
    known = r"the mass matrix is (not positive|about to lose its rank).*'l2'"
    with pytest.raises(StepError, match=known) as caught:
        f.rollout(f.initial_state({"j1": 0.5, "j2": 1.5}), steps=400)
    assert caught.value.cause == "indefinite M" and "a smaller dt" not in str(caught.value)


def test_accelerations_where_the_mass_matrix_is_indefinite_are_refused():
    arm = vioc.Continuous(double(0.1, -0.2))
    with pytest.raises(ModelError, match=r"sample 1: the mass matrix is not positive definite.*'l2'"):
        arm.forward(np.array([[0.0, 1.5], [0.0, 0.0]]))
    assert np.isfinite(arm.forward([0.0, 1.5]).accelerations).all()


def test_moments_that_cancel_are_blamed_on_their_body():
    """M = -0.25 + 1 * 0.5^2 = 0."""
    body = GivenMass(1.0, (-0.25, -0.25, 0.01, 0, 0, 0), (0, 0, -0.5))
    with pytest.raises(ModelError, match="not positive definite: j would move .*'l'"):
        vioc.MidpointVI(vioc.System(vioc.ry("j", name="l", mass=body)), 0.01)


def test_inertias_that_only_violate_the_triangle_inequality_still_move():
    system = vioc.System(vioc.ry("j", name="l", mass=GivenMass(1.0, (0, 0.1, 0.01, 0, 0, 0), (0, 0, -0.5))))
    f = vioc.MidpointVI(system, 0.01)
    assert f.lagrangian.mass_matrix([0.0]) == pytest.approx(0.35)
    assert len(f.rollout(f.initial_state(j=1.0), steps=5)) == 5


def test_estimates_stay_among_bodies():
    """The record wants a moment of 0.25, more than that of any body whose others are 0.1 each."""

    def arm(*rotor):
        body = vioc.Mass(1.0, (0.1, P("I", 0.1), 0.1), (0, 0, -0.5))
        return vioc.MidpointVI(
            vioc.System(vioc.ry("j", name="l", mass=body), vioc.Gravity(0, 0, -9.81), *rotor), 0.02
        )

    f, g = arm(), arm(RotorInertia("j", 0.15))
    run = g.rollout(g.initial_state(j=1.0), steps=100)
    record = identification.Record(run.t, {"j": run["j"]}, {})
    found = identification.identify(f, record, ["I"], noise={"j": 1e-8})
    assert 0.19 < found.map.parameters["I"] <= 0.2 * (1 + 1e-9) and not found.converged


def test_a_trial_of_a_parameter_that_is_a_state_fails_as_a_step():
    f = feedback.ExtendedMap(vioc.MidpointVI(cart(), 0.02), parameters=["bob"])
    x = f.initial_state({"theta": 0.3})
    assert np.isfinite(f.step(x)).all()
    x[f.state_names.index("param.bob")] = -1.0
    with pytest.raises(StepError, match="with bob = -1: mass: expected a number >= 0"):
        f.step(x)


def composed(system, dt):
    return vioc.Composition(vioc.MidpointVI(system, dt), 4)


@pytest.mark.parametrize("integrator", [*MAPS, "composition"])
@pytest.mark.parametrize(("dt", "unit"), [(0.05, 1e-9), (0.01, 1.0), (0.005, 1e9), (0.002, 1.0)])
def test_a_mass_matrix_that_loses_its_rank_on_the_way_is_named(integrator, dt, unit):
    """det M = 0 at j2 = acos(sqrt(0.27)) = 1.024, which the motion from 1.5 runs into."""
    f = (MAPS | {"composition": composed})[integrator](double(0.1, -0.2, unit, vioc.Gravity(0, 0, -9.81)), dt)
    x = f.initial_state(j1=0.5, j2=1.5)
    with pytest.raises(StepError, match="mass matrix is .*'l2'") as caught:
        f.rollout(x, steps=int(2 / dt))
    error = caught.value
    assert error.cause == "indefinite M" and "dt" not in str(error) and "l1" not in str(error)
    run = error.trajectory
    assert len(run) == error.k and (run["j2"][:-1] > np.arccos(np.sqrt(0.27))).all()
    batch = f.rollouts(np.array([x, x]), steps=int(2 / dt), raise_on_failure=False)
    assert {i: (e.cause, e.k) for i, e in batch.errors.items()} == dict.fromkeys(
        (0, 1), (error.cause, error.k)
    )


def test_steps_that_are_too_long_are_not_blamed_on_inertias_that_hardly_matter():
    """A moment of -1e-6 beside 0.25: the pendulum falls a turn a step, and that is what its error says."""
    body = GivenMass(1.0, (-1e-6, -1e-6, 0.01, 0, 0, 0), (0, 0, -0.5))
    f = vioc.MidpointVI(vioc.System(vioc.ry("j", mass=body), vioc.Gravity(0, 0, -9.81)), 3.0)
    with pytest.raises(StepError) as caught:
        f.rollout(f.initial_state(j=3.0), steps=20)
    assert caught.value.cause == "fold"


def test_free_bodies_that_carry_a_bad_link():
    """The same arm on a body of 50 kg, which floats: M is indefinite with the arm stretched, not bent."""
    tip = vioc.ry("j2", name="l2", mass=GivenMass(1.0, (-0.15, -0.15, 0.01, 0, 0, 0), (0, 0, -0.5)))
    arm = vioc.ry("j1", name="l1", mass=vioc.Mass(1.0, (0.1, 0.1, 0.01), (0, 0, -0.5)))[vioc.tz(-1)[tip]]
    trunk = vioc.free("b", frame="trunk", mass=(50.0, 0.1, 0.1, 0.1))[arm]
    f = GroupVI(vioc.System(trunk), 0.01)
    with pytest.raises(StepError, match=r"step 0: .*not positive definite.*'l2'") as caught:
        f.rollout(f.initial_state(j2=0.0), steps=3)
    assert caught.value.cause == "indefinite M"
    bent = f.initial_state({"j2": 1.5}, {"j2": -2.0})
    with pytest.raises(StepError, match="mass matrix is .*'l2'") as caught:
        f.rollout(bent, steps=200)
    assert caught.value.cause == "indefinite M" and len(caught.value.trajectory) == caught.value.k > 5
