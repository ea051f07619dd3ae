"""Every one-step map keeps the protocol: vioc's, and a user's. And the suite finds what does not."""

from dataclasses import replace
from functools import cache, cached_property

import casadi as ca
import numpy as np
import pytest
from support.control_maps import RailedMap, cart_pole
from support.mechanisms import everything, hold, state_near

from vioc import (
    CasadiMap,
    Composition,
    Contact,
    ContactVI,
    Gravity,
    JointForce,
    JointLimits,
    LinearTimeVI,
    Mass,
    MaximalVI,
    MidpointVI,
    P,
    RungeKutta,
    Substeps,
    System,
    ry,
    tx,
    tz,
)
from vioc.control.feedback import DelayedMap, ExtendedMap
from vioc.errors import StepError

# inside: maps of a user's own need the types of the protocol, and the suite its cases
from vioc.maps import ExplicitMap, MapDerivatives, SwitchedMap, check_map, derivatives
from vioc.maps.derivatives import SecondOrder
from vioc.maps.made.noisy import NoisyMap
from vioc.maps.mechanism import no_mechanism
from vioc.maps.named import Symbols
from vioc.maps.space import FlatSpace, StateSpace
from vioc.maps.suite import CHECKS, Case, tensors
from vioc.maps.twins import shared
from vioc.models import load
from vioc.shapes import HalfSpace

DT = 0.02


@cache
def driven():
    """A user's: an oscillator pushed in time, with parameters, an angle and the length of its step."""
    x, u, t, dt = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("t"), ca.SX.sym("dt")
    theta = ca.SX.sym("theta", 2)
    rate = -theta[0] * ca.sin(x[0]) - theta[1] * x[1] + u * ca.cos(3 * t)
    after = ca.vertcat(x[0] + dt * (x[1] + dt * rate), x[1] + dt * rate)
    return CasadiMap(
        ca.Function("driven", [x, u, t, dt, theta], [after]),
        0.1,
        state_names=("angle", "rate"),
        parameters={"stiffness": 4.0, "damping": 0.3},
        wrap=("angle",),
    )


class Attitudes(StateSpace):
    error_names = ("error 0", "error 1", "error 2")

    def retract(self, x, dx):
        return np.array(times(ca.DM(x), turn(ca.DM(dx)))).ravel()

    def difference(self, x0, x1):
        rows = [
            np.array(self.difference_expression(ca.DM(a), ca.DM(b))).ravel()
            for a, b in zip(np.atleast_2d(x0), np.atleast_2d(x1), strict=True)
        ]
        return np.stack(rows) if np.ndim(x0) > 1 else rows[0]

    def difference_expression(self, x0, x1):
        q = times(ca.vertcat(x0[0], -x0[1:]), x1)
        size = ca.sqrt(ca.sumsqr(q[1:]) + 1e-60)
        return 2 * ca.atan2(size, q[0]) * q[1:] / size

    def retract_expression(self, x, dx):
        return times(x, ca.vertcat(1 - ca.sumsqr(dx) / 8, dx / 2))

    def check(self, x, what):
        pass


class Attitude(ExplicitMap):
    """A user's on a manifold: a unit quaternion turned by the rates u for dt; errors are rotation vectors."""

    def __init__(self, dt):
        self.nx, self.ndx, self.nu, self.dt = 4, 3, 3, dt
        self.state_names, self.input_names = ("w", "x", "y", "z"), ("a", "b", "c")
        self.multiplier_names, self.parameters = (), {"gain": 1.5}
        sizes = zip(Symbols._fields, (4, 3, 0, 1, 1), strict=True)
        self.symbols = Symbols(*(ca.SX.sym(name, size) for name, size in sizes))

    @shared
    def explicit(self):
        x, u, lam, gain, dt = self.symbols
        return ca.Function(
            "step",
            [x, u, ca.SX.sym("t"), dt, gain],
            [times(x, turn(gain * dt * (u - x[1:] * x[0]))), lam, ca.SX(0)],
        )

    @cached_property
    def space(self):
        return Attitudes()

    def initial_state(self, q=None, v=None, u=None, **named):
        return np.array([1.0, 0.0, 0.0, 0.0])

    @property
    def mechanism(self):
        return replace(no_mechanism(self), coordinates=())


def times(a, b):
    v = a[0] * b[1:] + b[0] * a[1:] + ca.cross(a[1:], b[1:])
    return ca.vertcat(a[0] * b[0] - ca.dot(a[1:], b[1:]), v)


def turn(phi):
    size = ca.sqrt(ca.sumsqr(phi) + 1e-60)
    return ca.vertcat(ca.cos(size / 2), ca.sin(size / 2) / size * phi)


@cache
def midpoint(**options):
    return MidpointVI(load("acrobot"), DT, **options)


@cache
def maximal():
    return MaximalVI(load("pendulum"), DT)


@cache
def linear_time():
    return LinearTimeVI(load("acrobot"), DT)


@cache
def balanced():
    return MidpointVI(load("cart_pole"), DT)


@cache
def full():
    return MidpointVI(everything(), DT)


def hopping():
    """A leg with a motor, limits, and a foot that slides, smoothed so that differences feel it."""
    leg = tz("z")[ry("a", mass=Mass.rod(1.0, 0.5, com=(0, 0, -0.25)))[tz(-0.5, name="foot")]]
    ground, stops = HalfSpace((0, 0, -0.28)), JointLimits("a", -0.2, 1.0, name="stop")
    foot = Contact.sphere("foot", 0.05, ground=ground, friction=P("mu", 0.4), name="sole")
    system = System(tx("x")[leg], Gravity(0, 0, -9.81), JointForce("a", "torque"), foot, stops)
    return ContactVI(system, DT, smoothing=0.1)


MAPS = {
    "midpoint": lambda: midpoint(wrap=("q1",)),
    "midpoint, left": lambda: midpoint(alpha=0.3, forcing="left"),
    "midpoint, loop": lambda: MidpointVI(load("closed_chain"), DT),
    "linear-time": linear_time,
    "linear-time, loop": lambda: LinearTimeVI(load("closed_chain"), DT),
    "maximal": maximal,
    "contact": hopping,
    "rk4": lambda: RungeKutta(load("acrobot"), DT),
    "implicit midpoint": lambda: RungeKutta(load("closed_chain"), DT, "implicit-midpoint"),
    "composition": lambda: Composition(midpoint(), 4),
    "composition of Runge-Kutta": lambda: Composition(
        RungeKutta(load("acrobot"), DT, "implicit-midpoint"), 4
    ),
    "delayed": lambda: DelayedMap(midpoint()),
    "delayed twice": lambda: DelayedMap(DelayedMap(driven())),
    "delayed by three": lambda: DelayedMap(driven(), 3),
    "delayed by two, maximal": lambda: DelayedMap(maximal(), 2),
    "extended by its duration": lambda: ExtendedMap(midpoint(), 20),
    "extended by a state": lambda: ExtendedMap(linear_time(), kept=load("acrobot").variables[:1]),
    "extended, maximal": lambda: ExtendedMap(maximal(), 20),
    "extended, of parameters": lambda: ExtendedMap(driven(), 10, list(driven().parameters)[:1]),
    "extended, disturbed": lambda: ExtendedMap(
        midpoint(), disturbances=(*midpoint().input_names, midpoint().state_names[-1]), biases=["q1"]
    ),
    "extended, all": lambda: ExtendedMap(
        driven(), None, list(driven().parameters)[:1], (), driven().input_names + driven().state_names[:1]
    ),
    "noisy": lambda: NoisyMap(midpoint(), 3, noise(midpoint(), 3, [False, True, True])),
    "noisy, of time": lambda: NoisyMap(driven(), 3, noise(driven(), 3, [True] * 9), k0=7),
    "switched, of time": lambda: SwitchedMap([driven(), driven()], [2, 3], periodic=True),
    "CasADi": cart_pole,
    "CasADi, of all arguments": driven,
}


def noise(f, size, taken):
    rng = np.random.default_rng(2)
    shapes = (f.nu,), (f.nu, size), (f.nx, size)
    return (*(0.01 * rng.standard_normal((len(taken), *s)) for s in shapes), np.array(taken))


@pytest.mark.parametrize("name", MAPS)
def test_it_keeps_the_protocol(name):
    f = MAPS[name]()
    check_map(f, somewhere(f))


def somewhere(f):
    """A state that is not special."""
    if f.multiplier_names and f.ndx == f.nx:
        q = f.consistent_configuration({n: 0.3 for n in f.mechanism.coordinates})
        return f.initial_state(q)
    values = {n: 0.3 + 0.05 * i for i, n in enumerate(f.mechanism.coordinates)}
    return f.initial_state(values, {n: 0.2 for n in values} if f.system else None)


def extended(f):
    return ExtendedMap(f, 20, list(f.parameters)[:1], f.state_names[:1], f.input_names[:1])


def pushed(f):
    return ExtendedMap(f, None, list(f.parameters)[:1], (), [f.input_names[0], "p.a"])


@pytest.mark.parametrize("wrapped", [lambda f: f, lambda f: Composition(f, 4), DelayedMap, extended, pushed])
def test_with_one_of_each(wrapped):
    """Kinematic variables, a string, springs, damping, parameters."""
    base = full()
    f, x = wrapped(base), state_near(base, 3)
    u = hold(base, x) + [0, 0.01, 0.005]
    if f.nx > base.nx:
        pushed = {n: 0.01 for n in getattr(f, "constants", ()) if n.startswith("disturbance.")}
        x = f.join(x, pushed) if isinstance(f, ExtendedMap) else f.join(x, u)
    check_map(f, x, u)


def test_maps_of_ones_own():
    check_map(RailedMap(), [0.4, 0.3], [0.2], pickles=False)  # multipliers that are functions
    check_map(Attitude(0.1), [0.5, 0.5, -0.5, 0.5], [0.3, -0.2, 0.5], pickles=False)


def test_tensors_of_a_few_outputs_at_a_time(monkeypatch):
    """As long runs have them, of multipliers too."""
    monkeypatch.setattr(derivatives, "TENSOR_ROWS", 1)
    tensors(Case(RailedMap(), np.array([0.4, 0.3]), np.array([0.2]), solved=1e-10, pickles=False))


# -- what the suite finds --------------------------------------------------------------------------------


class Wrong(CasadiMap):
    """A double integrator with something to be wrong about."""

    def __init__(self):
        good = driven()
        super().__init__(good.function, good.dt, state_names=("angle", "rate"), parameters=good.parameters)


def scaled(blocks, name, factor=1.001):
    return type(blocks)(**{**blocks.blocks, name: factor * blocks.blocks[name]})


class Differently(Wrong):
    """One with other derivatives."""

    @property
    def derivatives(self) -> MapDerivatives:
        return self.spoilt(super().derivatives)


class WrongInput(Differently):
    def spoilt(self, good):
        return replace(good, first=lambda steps: scaled(good.first(steps), "B"))


class WrongParameters(Differently):
    def spoilt(self, good):
        return replace(good, first=lambda steps: scaled(good.first(steps), "P"))


class WrongCurvature(Differently):
    def spoilt(self, good):
        return replace(good, second=lambda *at: scaled(good.second(*at), "xx"))


class WrongBlocks(Differently):
    def spoilt(self, good):
        return replace(good, second=lambda *at: SecondOrder.of(good.second(*at).matrix, self.nu, self.ndx))


class WrongTensor(Differently):
    def spoilt(self, good):
        def whole(steps):
            states, multipliers = good.tensor(steps)
            return scaled(states, "xp"), multipliers

        return replace(good, whole=whole)


class WrongTimes(Differently):
    def spoilt(self, good):
        factor = np.array([1.0, 1.0, 1.001, 1.0])

        def timed():
            own = good.timed
            return replace(own, first=lambda steps: scaled(own.first(steps), "P", factor))

        return replace(good, with_times=timed)


class WrongStart(Differently):
    def spoilt(self, good):
        factor = np.array([1.0, 1.0, 1.0, 1.001])

        def timed():
            own = good.timed
            return replace(own, second=lambda *at: scaled(own.second(*at), "up", factor))

        return replace(good, with_times=timed)


class WrongMany(Wrong):
    def steps_at(self, X, U, k0=0, dt=None, *, t=None):
        steps = super().steps_at(X, U, k0, dt, t=t)
        return replace(steps, x1=1.001 * steps.x1)


class WrongRetraction(Wrong):
    def retract(self, x, dx):
        return np.asarray(x) + 1.001 * np.asarray(dx)


class Skewed(FlatSpace):
    def difference_expression(self, x0, x1):
        return 1.001 * (x1 - x0)


class WrongExpression(Wrong):
    @cached_property
    def space(self):
        return Skewed(self.state_names)


class WrongTrack(Wrong):
    def track(self, x0, X, U, K, **options):
        return super().track(x0, X, U, 1.001 * np.asarray(K), **options)


class WrongStep(Wrong):
    def step(self, x, u=None, k=0, dt=None):
        return super().step(x, u, k)


class WrongTime(Wrong):
    def step(self, x, u=None, k=0, dt=None):
        return super().step(x, u, 0, dt)


class WrongResidual(Wrong):
    @property
    def residual(self):
        good = super().residual
        args = good.sx_in()
        return ca.Function("residual", args, [good(*args) + 1e-3 * args[1]])


class WrongKernel(Wrong):
    @property
    def kernel(self):
        good = super().kernel
        args = good.function.sx_in()
        x_next, *others = good.function(*args)
        return good._replace(function=ca.Function("step", args, [1.001 * x_next, *others]))


class WrongNames(Wrong):
    space = FlatSpace(("angle",))


class WrongUnit(Wrong):
    def unit(self, name):
        return None


class WrongCheck(Wrong):
    def check_state(self, x, what="state"):
        return np.ravel(np.nan_to_num(x))[: self.nx]


class WrongCopy(Wrong):
    def __reduce__(self):
        return type(self), ()  # forgets its parameters


@pytest.mark.parametrize(
    "wrong, found",
    [
        (WrongInput, "first_derivatives: derivative by entry 2 .* got .* expected .* within"),
        (WrongParameters, "first_derivatives: derivative by entry 3 "),
        (WrongCurvature, "second_derivatives: "),
        (WrongBlocks, r"second_derivatives: xx of second_order: got shape \(1, 1\), expected \(2, 2\)"),
        (WrongTensor, "tensors: xp of second_order_trajectory and of tensors"),
        (WrongTimes, "derivatives_by_times: derivative by the step's length"),
        (WrongStart, "derivatives_by_times: second derivatives by the step's start"),
        (WrongMany, "unequal_steps: x1 of steps_at"),
        (WrongRetraction, r"errors_of_states: difference\(x, retract\(x, e\)\)"),
        (WrongExpression, "errors_of_states: difference_expression"),
        (WrongTrack, "steps: inputs that track applied"),
        (WrongStep, "steps: with_dt"),
        (WrongTime, "steps: step 3 and rollout"),
        (WrongResidual, "equations: residual of a step"),
        (WrongKernel, "equations: state 1 by the kernel"),
        (WrongNames, "names: error_names: got 1, expected 2"),
        (WrongUnit, "names: unit 'angle'"),
        (WrongCheck, "refusals: step: .* should raise ValueError"),
        (WrongCopy, "copies: a copy has "),
    ],
)
def test_the_suite_finds(wrong, found):
    with pytest.raises(AssertionError, match=found):
        check_map(wrong(), [0.4, 0.3], [0.5])


def test_a_map_that_only_lacks_a_fault_passes():
    check_map(driven(), [0.4, 0.3], [0.5])
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)


def test_a_step_without_derivatives_is_refused():
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = CasadiMap(ca.Function("root", [x, u], [x + ca.sqrt(u)]), 0.1)
    with pytest.raises(StepError, match="step 4 cannot be linearized.* not finite") as caught:
        f.derivatives.linearize(f.steps_at(np.zeros((3, 1)), [[1.0], [0.0], [1.0]], k0=3))
    assert caught.value.k == 4 and caught.value.cause == "not finite"


def test_a_step_by_a_formula_that_does_not_converge_is_a_step_error():
    class Unsure(Attitude):
        tolerance = 1e-9

        @property
        def explicit(self):
            step = Attitude.explicit.__get__(self, Unsure)
            args = step.sx_in()
            x, lam, _ = step(*args)
            return ca.Function("step", args, [x, lam, ca.SX(2.5)])

    f = Unsure(0.1)
    with pytest.raises(StepError, match=r"did not converge: error 2\.5") as caught:
        f.rollout(f.initial_state(), steps=2)
    assert caught.value.cause == "no convergence" and caught.value.residual == 2.5


MADE = (
    lambda f: f,
    lambda f: Substeps(f, 2),
    lambda f: DelayedMap(f, 1),
    lambda f: ExtendedMap(f, disturbances=["force"]),
)


@pytest.mark.parametrize("make", MADE)
def test_steps_take_real_states_and_indices(make):
    f = make(balanced())
    X, U = np.full((3, f.nx), 0.1), np.zeros((3, f.nu))
    for x, u, words in (
        (X * (1 + 1j), U, "states: expected real numbers"),
        (X, U + 1j, "inputs: expected real numbers"),
        (np.ma.array(X, mask=X > 0), U, "states: .* hides entry 0, 0"),
        (X, np.ma.array(U, mask=U == 0), "inputs: .* hides entry 0, 0"),
        (X[:, :-1], U, "steps: expected states of shape"),
        (X, U[:2], "steps: expected states of shape"),
        (X[0], U, "steps: expected states of shape"),
        ("abc", U, "states: expected numbers, got 'abc'"),
        ([[1.0], [1.0, 2.0]], U, "states: expected numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            f.steps_at(x, u)
    for k in (-1, np.nan, np.inf, 1j, np.ma.masked, "3", True, np.arange(2), {}):
        for call in (f.step, f.linearize, lambda x, u, k: f.rollout(x, u[None], k0=k)):
            with pytest.raises(ValueError, match="index of the first step: expected a number"):
                call(X[0], U[0], k=k)
    assert np.array_equal(f.step(X[0], U[0], np.int64(2)), f.step(X[0], U[0], 2))
