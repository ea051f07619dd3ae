"""What the studies of lifts, caching and published mechanisms are made of."""

import casadi as ca
import numpy as np
import pytest

import vioc
from studies import peers
from studies.n_link_caching import Mechanics, pendulum
from studies.peer_links import links_of
from studies.reference_suite import (
    CASES,
    double_four_bar,
    four_bar_run,
    off_branch,
    order,
    regular_branch,
    richardson,
    slider_crank_solution,
    violation,
)
from studies.scissor_cost_of_accuracy import TARGET, Trial, exceeds, seek
from studies.scissor_lift import FREE, REGULAR, G, benchmark, lift, pull, simulate, smallest_residual
from vioc import Lagrangian


def test_richardson_and_order_of_a_series_in_h_squared():
    h = 0.1 / 2.0 ** np.arange(4)
    values = np.array([3 + 2 * h**2 - 5 * h**4 + h**6, 1 - h**2 + 7 * h**6]).T
    assert richardson(values) == pytest.approx([3, 1], abs=1e-13)
    assert order(1 + h[:, None] ** 2) == pytest.approx(2, abs=1e-12)
    assert order(np.array([h]).T) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("key", ["pendulum", "car_axis", "heavy_top"])
def test_published_limits(key):
    case = CASES[key]
    values = np.array([case.solve(case.dt / 2**i, case.end)[0] for i in range(4)])
    assert order(values) == pytest.approx(2, abs=0.2)
    assert np.abs(richardson(values) - case.published).max() <= case.bound


def test_slider_crank_equation_has_the_energy_that_the_torque_puts_in():
    """T(theta, rate) by the tree, on the closed loop, against the work 0.1 theta."""
    angle, rate = slider_crank_solution(1.0)
    rod = -np.arcsin(np.sin(angle) / 3) - angle
    turn = -np.cos(angle) / 3 / np.sqrt(1 - (np.sin(angle) / 3) ** 2) - 1
    body = [vioc.Mass(0.2, (0, m, m), com=(c, 0, 0)) for m, c in ((0.2 * 0.01 / 12, 0.05), (0.0015, 0.15))]
    frames = vioc.rz("theta", mass=body[0])[
        vioc.tx(0.1)[vioc.rz("rod", mass=body[1])[vioc.tx(0.3, mass=0.4)]]
    ]
    energy = Lagrangian(vioc.System(frames)).kinetic_energy([angle, rod], [rate, rate * turn])
    work = 0.1 * angle
    assert energy == pytest.approx(work, rel=1e-10)


def test_double_four_bar_passes_its_singular_position():
    run = four_bar_run(0.005, 2.0)
    assert np.count_nonzero(np.diff(np.sign(np.sin(run["crank-0"])))) == 2
    assert off_branch(run) < 1e-10
    assert violation(run) < 1e-12


def test_double_four_bar_has_the_published_energies():
    """[(N+1)/3 + N] / 2 rate^2 and [(N+1)/2 + N] g sin(theta), N = 2, whose equation is published."""
    lag, angle = Lagrangian(double_four_bar()), 0.3
    assert lag.kinetic_energy(regular_branch(angle), regular_branch(-1.0)) == pytest.approx(3 / 2)
    assert lag.potential_energy(regular_branch(angle)) == pytest.approx(3.5 * G * np.sin(angle))


# -- scissor lifts --------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "start", "dt"), [(2, FREE, 0.01), (5, REGULAR, 0.01), (5, FREE, 0.005)])
def test_lift_follows_the_equation_with_one_degree_of_freedom(n, start, dt):
    run = simulate(lift(n, forced=start == REGULAR), start, dt, 3.0)
    assert run.error < 1e-6
    assert run.violation < 1e-12


def test_benchmark_keeps_the_energy_of_the_lift():
    """The equation of the study against the energies of the tree, at the benchmark's own velocities."""
    n, h = 5, 1e-5
    t = np.array([0.3, 0.3 + h, 0.3 + 2 * h])
    theta = benchmark(n, REGULAR, pull(n), t)
    q = [vioc.models.scissor_lift_configuration(n, a) for a in (*theta, REGULAR)]
    system = vioc.models.scissor_lift(n)
    lag = Lagrangian(system)
    v = {name: (q[2][name] - q[0][name]) / (2 * h) for name in system.variables}
    total = lag.kinetic_energy(q[1], v) + lag.potential_energy(q[1]) - pull(n) * q[1]["slider"]
    at_rest = lag.potential_energy(q[3]) - pull(n) * q[3]["slider"]
    assert total == pytest.approx(at_rest, rel=1e-8)


def test_a_step_that_is_refused_has_no_solution():
    f = lift(5)
    assert smallest_residual(f, 0.04) > 0.01
    assert np.isnan(smallest_residual(f, 0.01))  # none is refused


@pytest.mark.parametrize("share", [0.49, 0.497, 0.4986, 0.5014, 0.74])
def test_a_step_passes_the_folded_position_wherever_it_lies_in_the_step(share):
    """The constraints of a lift are dependent where its links are vertical; the motion passes there."""
    f = lift(5)
    run = f.rollout(f.initial_state(vioc.models.scissor_lift_configuration(5, FREE)), steps=60)
    angle, vertical = run["left-1"], np.pi / 2
    k = int(np.flatnonzero(angle > vertical)[0]) - 1
    until = f.dt * (vertical - angle[k]) / (angle[k + 1] - angle[k])
    end = f.with_dt(until / share).rollout(run.x[k], steps=1)
    assert end["left-1"][-1] > vertical
    expected = vioc.models.scissor_lift_configuration(5, end["left-1"][-1])
    assert {n: end[n][-1] for n in expected} == pytest.approx(expected, abs=1e-10)


def test_seek_finds_the_step():
    found = seek(lambda dt: Trial(TARGET * (0.01 / dt) ** 2, 1.0), 0.1, 1e-4)
    assert found.dt == pytest.approx(0.01, rel=0.006)
    assert seek(lambda dt: Trial(TARGET * (0.01 / dt) ** 2, 1.0), 0.1, 0.02) is None


def test_seek_goes_on_behind_a_jump():
    """The time jumps over the window at 0.01, and again crosses it, continuously, at 0.0136."""

    def trial(dt):
        return Trial(20.0 if dt < 0.01 else 15 * dt / 0.0136, 1.0)

    found = seek(trial, 0.01, 1e-4)
    assert found.exceeds == pytest.approx(TARGET, rel=0.01)
    assert found.dt == pytest.approx(0.0136, rel=0.01)


def test_exceeds():
    t = np.linspace(0, 10, 1001)
    assert exceeds(t, np.full(1001, 0.2)) == pytest.approx(2.5)  # 0.04 t = 0.1
    assert exceeds(t, np.zeros(1001)) == np.inf
    assert exceeds(t, np.where(t < 5, 0.0, np.nan)) == pytest.approx(5, abs=0.02)


# -- caching --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [True, False])
def test_recursion_agrees_with_the_sweeps(cached):
    system, n = pendulum(3), 3
    q, v = ca.SX.sym("q", n), ca.SX.sym("v", n)
    mechanics = Mechanics(system, q, v, cached)
    lag = Lagrangian(system)
    ours = ca.Function("ours", [q, v], [*mechanics.first(), *mechanics.second()])
    swept = lag.function("swept", [lag.L_q, lag.L_v, *lag.second])
    at = np.random.default_rng(0).normal(size=(2, n))
    for a, b in zip(ours(*at), swept(*at, [], 0, []), strict=True):
        assert np.abs(np.array(a - b)).max() < 1e-12


# -- peers ----------------------------------------------------------------------------------------


def test_links_of_a_lift():
    system = vioc.models.scissor_lift(2)
    q = vioc.models.scissor_lift_configuration(2, FREE)
    links, loops = links_of(system, q)
    assert [link.variable for link in links] == list(system.variables)
    assert sum(link.mass for link in links) == pytest.approx(5.0)
    for loop in loops:
        np.testing.assert_allclose(*loop.points, atol=1e-12)
        assert loop.directions.shape == (2, 3)
    by_name = {link.variable: link for link in links}
    assert by_name["slider"].parent == -1
    assert links[by_name["right-1"].parent].variable == "slider"
    np.testing.assert_allclose(by_name["left-1"].com, [0.5, 0, 0], atol=1e-15)


def test_peers_are_not_told_what_they_cannot_do():
    system = vioc.System(vioc.rx("a", mass=1.0), vioc.JointDamping("a", 1.0))
    with pytest.raises(ValueError, match="joint-damping"):
        links_of(system, None)
    with pytest.raises(ValueError, match="carries no mass"):
        links_of(vioc.System(vioc.rx("a")[vioc.rx("b", mass=1.0)]), None)


@pytest.mark.peer
@pytest.mark.parametrize("name", [peers.ODE, peers.MUJOCO])
def test_a_peer_follows_a_double_pendulum(name):
    engines = peers.available()
    if name not in engines:
        pytest.skip(f"{name} is not installed")
    system, dt, steps = vioc.models.load("n_link_pendulum", 2), 5e-4, 2000
    q = {"link-0": 1.0, "link-1": 4.0}
    f = vioc.MidpointVI(system, dt)
    expected = f.rollout(f.initial_state(q), steps=steps)
    run = engines[name](system, q, dt, steps, every=100)
    assert np.abs(run.q - expected.x[::100, :2]).max() < 0.02
    assert run.energy[0] == pytest.approx(expected.energy[0])
    assert np.ptp(run.energy) < 0.2
