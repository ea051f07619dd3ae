"""Checks that a map, of vioc or of a user, satisfies the interface `OneStepMap`.

    from vioc.maps.suite import check_map
    check_map(f, x, u)

raises AssertionError with the values got and expected. The tolerance of difference quotients is their error:
truncation, estimated by halving the difference, and the accuracy of solved steps.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import input_of
from vioc.runs.trajectory import Trajectory

EPS = np.finfo(float).eps
APART = 2e-3  # size of the variations in difference quotients


@dataclass(frozen=True)
class Case:
    """Test case of a map: a state, an input, and a short trajectory that starts from this state.

    Attributes
    ----------
    f : OneStepMap
    x, u : (nx,), (nu,)
    solved : float
        Largest distance between two solutions of a step, relative to 1 + |x|.
    k : int
        Index of the step at (x, u).
    """

    f: OneStepMap
    x: np.ndarray
    u: np.ndarray
    solved: float
    pickles: bool
    k: int = 3

    @cached_property
    def inputs(self) -> np.ndarray:
        return self.u + 1e-3 * np.arange(4)[:, None] * np.ones(self.f.nu)

    @cached_property
    def run(self) -> Trajectory:
        return self.f.rollout(self.x, self.inputs, k0=self.k, warn=False)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Unequal step lengths, s, of the test trajectory."""
        return self.f.dt * np.array([1.0, 0.7, 0.9, 0.8])

    def numbers(self, seed: int, *shape: int) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(shape)

    def same(self, got: Any, expected: Any, what: str, bound: float | None = None) -> None:
        """Raise `AssertionError` if two arrays differ by more than the tolerance `bound`.

        By default the bound is `solved`, relative.
        """
        got, expected = np.asarray(got, float), np.asarray(expected, float)
        if got.shape != expected.shape:
            raise AssertionError(f"{what}: got shape {got.shape}, expected {expected.shape}")
        if not got.size:
            return
        bound = self.solved * (1 + np.abs(expected).max()) if bound is None else bound
        off = np.abs(got - expected)
        if not off.max() <= bound:
            worst = np.argmax(np.nan_to_num(off, nan=np.inf))
            index = tuple(int(i) for i in np.unravel_index(worst, off.shape))
            raise AssertionError(
                f"{what}: at {index} got {got[index]:.12g}, expected {expected[index]:.12g} "
                f"within {bound:.1e}"
            )

    def vary(self, s: np.ndarray) -> np.ndarray:
        """Return the result of the test step after a change s of its arguments.
        The arguments are the state error, the input and the parameters. The result (ndx + nm,) consists of
        the next state's error, relative to that of the unchanged step, and of the multipliers. Finite
        differences use it.
        """
        f, (e, du, dp) = self.f, self.parts(s)
        g = f.trying(**dict(zip(f.parameters, f.theta + dp, strict=True))) if dp.any() else f
        run = g.rollout(f.retract(self.x, e), [self.u + du], k0=self.k, warn=False)
        return np.concatenate([f.difference(self.run.x[1], run.x[1]), run.multipliers[0]])

    def parts(self, s: np.ndarray) -> list[np.ndarray]:
        return np.split(s, [self.f.ndx, self.f.ndx + self.f.nu])

    @property
    def size(self) -> int:
        """Number of scalar arguments of a step: components of the state's error, inputs and parameters."""
        return self.f.ndx + self.f.nu + len(self.f.theta)


def check_map(
    f: OneStepMap, x: Any = None, u: Any = None, *, solved: float = 1e-9, pickles: bool = True
) -> None:
    """Check that a map satisfies the interface `OneStepMap`, at a state and an input.

    Parameters
    ----------
    f : OneStepMap
    x : (nx,), optional
        A generic state, near which steps are smooth; by default `initial_state()`.
    u : (nu,), optional
        By default `rest_input`.
    solved : float
        Largest distance between two solutions of one step, relative to 1 + |x|: error of the map's solver.
    pickles : bool
        False for a map whose class cannot be imported, such as one made in a notebook.

    Raises
    ------
    AssertionError
        With the name of the check, and the values got and expected.
    """
    x = f.check_state(f.initial_state() if x is None else x)
    case = Case(f, x, input_of(f, u, x), solved, pickles)
    for check in CHECKS:
        try:
            check(case)
        except AssertionError as error:
            raise AssertionError(f"{f!r}: {check.__name__}: {error}") from None


def names(case: Case) -> None:
    """Check that names of states, inputs and parameters are unique, and that quantities are scalars."""
    f = case.f
    sizes = f.nx, f.nu, len(f.multiplier_names), len(f.theta), 1
    for symbol, size, what in zip(f.symbols, sizes, f.symbols._fields, strict=True):
        assert symbol.numel() == size, f"symbols.{what}: got {symbol.numel()} entries, expected {size}"
    groups = (
        *((f.state_names, f.nx, "state"), (f.space.error_names, f.ndx, "error")),
        *((f.input_names, f.nu, "input"), (tuple(f.parameters), len(f.theta), "parameter")),
    )
    for group, size, what in groups:
        assert len(group) == size, f"{what}_names: got {len(group)}, expected {size}"
        assert len(set(group)) == size, f"{what}_names: {group} has one twice"
    assert set(f.wrap) <= set(f.quantities.names()), f"wrap: {f.wrap} are not all quantities"
    assert list(f.parameters.values()) == list(f.theta), f"theta: got {f.theta} for {f.parameters}"
    for name in f.quantities.names():
        assert f.quantity(name).numel() == 1, f"quantity {name!r}: expected one number"
        assert isinstance(f.unit(name), str), f"unit {name!r}: expected text, got {f.unit(name)!r}"
    assert f.rest_input(case.x).shape == (f.nu,), f"rest_input: got shape {f.rest_input(case.x).shape}"


def errors_of_states(case: Case) -> None:
    """Check that `retract` and `difference` are inverse to each other, for arrays and CasADi expressions."""
    f, e = case.f, 1e-3 * case.numbers(0, case.f.ndx)
    there = f.retract(case.x, e)
    rounding = 100 * EPS * (1 + np.abs(case.x).max(initial=0.0))
    case.same(f.difference(case.x, there), e, "difference(x, retract(x, e))", rounding)
    case.same(f.difference(case.x, case.x), 0 * e, "difference(x, x)", rounding)
    many = f.difference(np.stack([case.x, there]), np.stack([there, there]))
    case.same(many, np.stack([e, 0 * e]), "difference of rows", rounding)
    result = np.array(ca.DM(f.space.difference_expression(ca.DM(case.x), ca.DM(there)))).ravel()
    case.same(result, e, "difference_expression(x, retract(x, e))", rounding + 10 * np.abs(e).max() ** 3)
    result = np.array(ca.DM(f.space.retract_expression(ca.DM(case.x), ca.DM(e)))).ravel()
    case.same(f.difference(there, result), 0 * e, "retract_expression", rounding + 10 * np.abs(e).max() ** 3)


def starts(case: Case) -> None:
    """Check that `initial_state` accepts coordinates by name."""
    f = case.f
    if f.multiplier_names:
        return  # not all values of coordinates fulfil constraints
    values = dict(
        zip(f.mechanism.coordinates, 0.1 + 0.01 * np.arange(len(f.mechanism.coordinates)), strict=True)
    )
    x = f.check_state(f.initial_state(values))
    for name, value in values.items():
        s = f.symbols
        got = float(ca.Function("q", list(s), [f.quantity(name)])(x, 0, 0, f.theta, f.dt))
        case.same(got, value, f"{name!r} of initial_state")


def steps(case: Case) -> None:
    """Check that all methods of the map that take steps give the same results.

    They are `step`, `rollout`, `rollouts`, `track`, and those of `with_dt` and `with_parameters`.
    """
    f, run, k = case.f, case.run, case.k
    assert run.x.shape == (5, f.nx) and (run.x[0] == case.x).all(), "rollout: the first state is not x0"
    assert (run.u == case.inputs).all(), "rollout: the inputs are not those given"
    case.same(run.t, (k + np.arange(5)) * f.dt, "times of a rollout", 100 * EPS * (k + 5) * f.dt)
    for i, (x, u) in enumerate(zip(run.x, run.u, strict=False)):
        case.same(f.step(x, u, k + i), run.x[i + 1], f"step {k + i} and rollout")
    again = f.rollout(case.x, case.inputs, k0=k, warn=False)
    assert (again.x == run.x).all(), "rollout: the same call gives other bits"
    case.same(f.rollouts(case.x[None], case.inputs[None], k0=k).x[0], run.x, "rollouts")
    K = 0.1 * case.numbers(1, 4, f.nu, f.ndx)
    start = f.retract(case.x, 1e-4 * case.numbers(2, f.ndx))
    if not f.multiplier_names:  # another start would violate constraints
        closed = f.track(start, run.x, run.u, K, k0=k)
        off = np.stack([K[i] @ f.difference(run.x[i], closed.x[i]) for i in range(4)])
        case.same(closed.u, run.u - off, "inputs that track applied")
        case.same(f.rollout(start, closed.u, k0=k, warn=False).x, closed.x, "track and rollout")
    case.same(f.track(case.x, run.x, run.u, 0 * K, k0=k).x, run.x, "track without gains")
    h = 0.8 * f.dt
    other = f.with_dt(h)
    assert other.dt == h and f.dt != h, "with_dt: expected another map with that step"
    case.same(other.step(case.x, case.u, k), f.step(case.x, case.u, k, h), "with_dt(h).step and step(dt=h)")
    same = f.with_parameters(**f.parameters)
    case.same(same.step(case.x, case.u, k), run.x[1], "with_parameters of the same values")


def unequal_steps(case: Case) -> None:
    """Check trajectories with steps of different lengths, and the derivatives along them."""
    f, k = case.f, case.k
    run = f.rollout(case.x, case.inputs, k0=k, dt=case.lengths, warn=False)
    case.same(run.step_lengths, case.lengths, "step_lengths", 100 * EPS * (k + 5) * f.dt)
    lin = f.linearize_trajectory(run)
    points = f.derivatives.linearize(f.steps_at(run.x[:-1], run.u, k0=k, dt=case.lengths))
    _same_blocks(case, points, lin, "derivatives of points and along a run, steps of several lengths")
    first = f.rollout(case.x, case.inputs[:1], k0=k, dt=case.lengths[:1], warn=False)
    case.same(first.x[1], run.x[1], "the first of steps of several lengths")
    _same_steps(case, f.steps_at(run.x[:-1], run.u, k, case.lengths), Steps.along(run))
    for i in range(len(run)):  # ranges of the run begin when the run does there
        rest = slice(i, len(run))
        piece = f.run(run.x[i], case.inputs[rest], k + i, case.lengths[rest], t=run.t[rest])
        case.same(piece.x, run.x[i:], "x of run(t=...), from a step of several lengths on")
        case.same(piece.t, run.t[i:], "t of run(t=...)", 100 * EPS * (1 + np.abs(run.t).max()))
        one = slice(i, i + 1)
        alone = f.steps_at(run.x[one], run.u[one], k + i, case.lengths[one], t=run.t[one])
        _same_steps(case, alone, Steps.along(run).piece(one))


def steps_from_states(case: Case) -> None:
    """Check that `steps_at` takes the same steps as `step` and `rollout`.

    A step must not depend on the other steps of the same call.
    """
    f, run, k = case.f, case.run, case.k
    steps = Steps.along(run)
    _same_steps(case, f.steps_at(run.x[:-1], run.u, k), steps)
    for i in range(len(run)):  # alone
        one = slice(i, i + 1)
        _same_steps(case, f.steps_at(steps.x0[one], steps.u[one], k + i), steps.piece(one))
    none = f.steps_at(run.x[:0], run.u[:0], k)
    assert len(none) == 0 and none.x1.shape == (0, f.nx), f"steps_at of no states: got {none.x1.shape}"


def _same_steps(case: Case, got: Steps, expected: Steps) -> None:
    f, rounding = case.f, 100 * EPS * (1 + np.abs(expected.t).max())
    case.same(f.difference(expected.x1, got.x1), np.zeros((len(expected), f.ndx)), "x1 of steps_at")
    case.same(got.multipliers, expected.multipliers, "multipliers of steps_at")
    for name, bound in (("x0", 0.0), ("u", 0.0), ("t", rounding), ("h", rounding), ("k", 0.0)):
        case.same(getattr(got, name), getattr(expected, name), f"{name} of steps_at", bound)


def _shaped(case: Case, got: Linearization | SecondOrder, what: str) -> None:
    """Check the shapes of all arrays in an object with the first or second derivatives of a step.

    Blocks of wrong sizes may also fit together.
    """
    f = case.f
    sizes = {"x": f.ndx, "u": f.nu, "p": len(f.parameters), "m": len(f.multiplier_names)}
    places = dict(A="xx", B="xu", P="xp", C="mx", D="mu", E="mp")
    for name, block in got.blocks.items():
        shape = tuple(sizes[letter] for letter in places.get(name, name))
        assert block.shape == shape, f"{name} of {what}: got shape {block.shape}, expected {shape}"


def first_derivatives(case: Case) -> None:
    """Check the first derivatives of a step against finite differences of steps."""
    lin = case.f.linearize(case.x, case.u, case.k)
    _shaped(case, lin, "linearize")
    _finite(lin, "linearize")
    slopes = lin.matrix
    for i, direction in enumerate(np.eye(case.size)):
        expected, bound = _slope(case.vary, direction, case)
        case.same(slopes[:, i], expected, f"derivative by entry {i} of (error, input, parameters)", bound)


def second_derivatives(case: Case) -> None:
    """Check the Hessian of a weighted sum of a step's results against finite differences.
    The results are the next state and the multipliers.
    """
    f = case.f
    z, zeta = case.numbers(3, f.ndx), case.numbers(4, len(f.multiplier_names))
    second = f.second_order(case.x, case.u, z, case.k, zeta=zeta)
    _shaped(case, second, "second_order")
    H = second.matrix
    case.same(H, H.T, "symmetry of second derivatives", 1e-10 * (1 + np.abs(H).max(initial=0.0)))
    weights = np.concatenate([z, zeta])

    def gradient(s: np.ndarray) -> np.ndarray:
        e, du, dp = case.parts(s)
        g = f.trying(**dict(zip(f.parameters, f.theta + dp, strict=True)))
        lin = g.linearize(f.retract(case.x, e), case.u + du, case.k)
        return weights @ lin.matrix

    for seed in range(5, 8):
        d = case.numbers(seed, case.size)
        d /= np.linalg.norm(d)
        if f.ndx == f.nx and not f.multiplier_names:
            expected, bound = _slope(gradient, d, case)
            case.same(H @ d, expected, "second derivatives along a direction", bound)
        else:  # errors at other states are of other tangent spaces, and other states may violate constraints
            curvature, bound = _curvature(lambda s: weights @ case.vary(s), d, case)
            case.same(d @ H @ d, curvature, "second derivative along a direction", bound)


def derivatives_by_times(case: Case) -> None:
    """Check the derivatives with respect to step length and start time.
    They are compared with finite differences.
    """
    f, n = case.f, case.size
    step = f.steps_at(case.x[None], case.u[None], case.k)
    z, zeta = case.numbers(3, 1, f.ndx), case.numbers(4, 1, len(f.multiplier_names))
    try:
        lin = f.derivatives.timed.first(step).rows(0)
    except NotImplementedError:
        return
    _same_blocks(
        case,
        Linearization(lin.A, lin.B, lin.P[:, :-2], lin.C, lin.D, lin.E[:, :-2]),
        f.derivatives.first(step).rows(0),
        "timed.first",
    )
    H = f.derivatives.timed.second(step, z, zeta).rows(0).matrix
    case.same(
        H[:n, :n],
        f.derivatives.second(step, z, zeta).rows(0).matrix,
        "timed.second, but for times",
        1e-11 * (1 + np.abs(H).max()),
    )
    case.same(H, H.T, "symmetry of timed.second", 1e-10 * (1 + np.abs(H).max()))
    weights = np.concatenate([z[0], zeta[0]])

    def moved(s: np.ndarray) -> tuple[OneStepMap, Steps]:
        e, du, dp = case.parts(s[:n])
        g = f.trying(**dict(zip(f.parameters, f.theta + dp, strict=True)))
        g = g.with_dt(f.dt + s[n + 1] / case.k)  # start of steps of several lengths
        x, u = f.retract(case.x, e), case.u + du
        two = g.steps_at(np.stack([x, x]), np.stack([u, u]), case.k, [f.dt + s[n], 0.9 * f.dt])
        return g, two.piece(slice(1))

    def after(s: np.ndarray) -> np.ndarray:
        one = moved(s)[1]
        return np.concatenate([f.difference(step.x1[0], one.x1[0]), one.multipliers[0]])

    def gradient(s: np.ndarray) -> np.ndarray:
        g, one = moved(s)
        m = g.derivatives.timed.first(one).rows(0)
        return weights @ m.matrix

    for i, what in enumerate(("length", "start")):
        d = np.zeros(n + 2)
        d[n + i] = f.dt if i == 0 else 1.0
        expected, bound = _slope(after, d, case)
        column = np.concatenate([lin.P[:, i - 2], lin.E[:, i - 2]])
        case.same(d[n + i] * column, expected, f"derivative by the step's {what}", bound)
        if f.ndx == f.nx:  # errors at other states are of other tangent spaces
            expected, bound = _slope(gradient, d, case)
            case.same(H @ d, expected, f"second derivatives by the step's {what}", bound)
    for seed in range(10, 13):
        d = case.numbers(seed, n + 2)
        d[n] *= f.dt
        d /= np.linalg.norm(d)
        curvature, bound = _curvature(lambda s: weights @ after(s), d, case)
        case.same(d @ H @ d, curvature, "second derivative along a direction with times", bound)


def tensors(case: Case) -> None:
    """Check that the tensors of second derivatives, multiplied by weights, give the weighted Hessians."""
    f, run, n = case.f, case.run, len(case.run)
    Z, zeta = case.numbers(8, n, f.ndx), case.numbers(9, n, len(f.multiplier_names))
    many = f.second_order_trajectory(run, Z, zeta)
    states, multipliers = f.derivatives.tensor(run)
    for name, block in many.blocks.items():
        a, b = states.blocks[name], multipliers.blocks[name]
        sums = np.einsum("ni,ni...->n...", Z, a) + np.einsum("ni,ni...->n...", zeta, b)
        size = 1 + sum(np.abs(m).max(initial=0.0) * m.shape[1] for m in (a, b))
        case.same(block, sums, f"{name} of second_order_trajectory and of tensors", 1e-11 * size)
    point = f.derivatives.tensor(f.steps_at(run.x[1:2], run.u[1:2], case.k + 1))
    for got, expected in zip(point, (states, multipliers), strict=True):
        _same_blocks(case, got, expected.rows([1]), "tensor at a point and along a trajectory")


def along_trajectories(case: Case) -> None:
    """Check derivatives along a trajectory against derivatives that are computed for each step alone."""
    f, run, n = case.f, case.run, len(case.run)
    lin = f.linearize_trajectory(run)
    _finite(lin, "linearize_trajectory")
    shapes = [m.shape for m in lin.blocks.values()]
    columns = f.ndx, f.nu, len(f.theta)
    expected = [(n, rows, c) for rows in (f.ndx, len(f.multiplier_names)) for c in columns]
    assert shapes == expected, f"linearize_trajectory: got shapes {shapes}, expected {expected}"
    Z, zeta = case.numbers(8, n, f.ndx), case.numbers(9, n, len(f.multiplier_names))
    H = f.second_order_trajectory(run, Z, zeta)
    for i in range(n):
        x, u, k = run.x[i], run.u[i], case.k + i
        _same_blocks(case, f.linearize(x, u, k), lin.rows(i), f"linearize at step {k}")
        single = f.second_order(x, u, Z[i], k, zeta=zeta[i])
        _same_blocks(case, single, H.rows(i), f"second_order at step {k}")
    points = f.derivatives.linearize(f.steps_at(run.x[:-1], run.u, k0=case.k))
    _same_blocks(case, points, lin, "linearize of points")


def equations(case: Case) -> None:
    """Check that steps of the map agree with the CasADi functions that define these steps.
    The functions are the residual, the explicit formula and the solver of a step, as far as they exist."""
    f, run = case.f, case.run
    t, start = case.k * f.dt, (run.x[0], run.u[0])
    if f.residual is not None:
        args = f.residual.mx_in()
        slopes = ca.Function("J", args, [ca.jacobian(f.residual(*args), ca.vertcat(args[2], args[3]))])
        point = (*start, run.x[1], run.multipliers[0], t, f.dt, f.theta)
        size = np.abs(np.array(slopes(*point))).sum(axis=1).max(initial=0.0)
        off = np.array(f.residual(*point)).ravel()
        reach = 1 + max(np.abs(run.x[1]).max(), np.abs(run.multipliers[0]).max(initial=0.0))
        case.same(off, 0 * off, "residual of a step", case.solved * size * reach)
    if f.explicit is not None:
        x_next, multipliers, _ = f.explicit(*start, t, f.dt, f.theta)
        case.same(np.array(x_next).ravel(), run.x[1], "explicit")
        case.same(np.array(multipliers).ravel(), run.multipliers[0], "multipliers of explicit")
    if f.kernel is not None:
        x = case.x
        for i, u in enumerate(run.u):
            done = f.kernel.function(x, u, run.t[i], f.dt, f.theta)
            x, multipliers, error = (np.array(m).ravel() for m in done)
            case.same(x, run.x[i + 1], f"state {i + 1} by the kernel")
            case.same(multipliers, run.multipliers[i], f"multipliers of step {i} by the kernel")
            assert error <= f.kernel.tolerance, f"kernel: error {error}, above {f.kernel.tolerance}"


def refusals(case: Case) -> None:
    """Check that states and inputs that are not finite or have a wrong shape raise errors."""
    f = case.f
    wrong = ((np.zeros(f.nx + 1), case.u), (np.full(f.nx, np.nan), case.u), (case.x, np.zeros(f.nu + 1)))
    for x, u in wrong:
        for call in (f.step, f.linearize):
            try:
                call(x, u)
            except ValueError:
                continue
            raise AssertionError(f"{call.__name__}: x = {x}, u = {u} should raise ValueError")


def copies(case: Case) -> None:
    """Check that a pickled copy of the map gives exactly the same rollout, to the last bit.
    Also check that the map's description `identity()` is plain data."""
    json.dumps(case.f.identity())
    if not case.pickles:
        return
    f = case.f.trying(**{n: v + 1e-3 for n, v in case.f.parameters.items()})
    copy = pickle.loads(pickle.dumps(f))
    assert copy.parameters == f.parameters, f"a copy has {copy.parameters}, expected {f.parameters}"
    assert copy.identity() == f.identity(), f"a copy is {copy.identity()}, expected {f.identity()}"
    runs = [g.rollout(case.x, case.inputs, k0=case.k, warn=False).x for g in (copy, f)]
    assert (runs[0] == runs[1]).all(), "a pickled map makes another rollout"


CHECKS: tuple[Callable[[Case], None], ...] = (
    *(names, errors_of_states, starts, steps, unequal_steps, steps_from_states, first_derivatives),
    *(second_derivatives, derivatives_by_times, tensors, along_trajectories, equations, refusals, copies),
)


def _same_blocks(case: Case, got: Any, expected: Any, what: str) -> None:
    for name, block in expected.blocks.items():
        # derivatives amplify the distance between two solutions of a step
        bound = 100 * case.solved * (1 + np.abs(block).max(initial=0.0))
        case.same(got.blocks[name], block, f"{what}: {name}", bound)


def _finite(blocks: Linearization | SecondOrder, what: str) -> None:
    for name, block in blocks.blocks.items():
        assert np.isfinite(block).all(), f"{what}: {name} is not finite"


def _slope(
    function: Callable[[np.ndarray], np.ndarray], d: np.ndarray, case: Case
) -> tuple[np.ndarray, float]:
    """Return the derivative of a function in the direction d.
    It is computed at 0 by extrapolated finite differences. The second result is an estimate of its error.
    """
    coarse, fine = ((function(a * d) - function(-a * d)) / (2 * a) for a in (APART, APART / 2))
    best = (4 * fine - coarse) / 3
    size = 1 + np.abs(function(0 * d)).max(initial=0.0) + np.abs(best).max(initial=0.0)
    return best, float(np.abs(best - fine).max(initial=0.0) + case.solved * size / APART)


def _curvature(function: Callable[[np.ndarray], float], d: np.ndarray, case: Case) -> tuple[float, float]:
    """Return the second derivative of a function in the direction d.
    It is computed by finite differences. The second result is an estimate of its error.
    """
    middle = function(0 * d)
    h = 5 * APART
    coarse, fine = ((function(a * d) - 2 * middle + function(-a * d)) / a**2 for a in (h, h / 2))
    best = (4 * fine - coarse) / 3
    size = 1 + abs(middle) + abs(best)
    return best, float(abs(best - fine) + case.solved * size / h**2)
