"""Operations of one kind side by side: the numbers of CasADi's virtual machine, to the bit."""

from concurrent.futures import ThreadPoolExecutor
from operator import add, eq, le, lt, mul, ne, sub, truediv

import casadi as ca
import numpy as np
import pytest

import vioc

# inside: the two ways to run a function are compared to the bit, and their thresholds moved
from vioc.compile import grouped, virtual
from vioc.compile.grouped import GroupedFunction
from vioc.compile.virtual import VirtualProgram

UNARY = ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"]
UNARY += ["exp", "log", "sqrt", "fabs", "sign", "floor", "ceil", "erf", "logic_not", "expm1", "log1p"]
BINARY = ["fmin", "fmax", "fmod", "atan2", "copysign", "logic_and", "logic_or", "power", "hypot"]


def unary(name):
    return lambda x, y: getattr(ca, name)(x)


PLAIN = [add, sub, mul, truediv, lambda x, y: -x]
OTHERS = [lt, le, eq, ne, lambda x, y: ca.if_else(x < y, x, y)]
OTHERS += [lambda x, y: x**2.5, lambda x, y: 1 / x, lambda x, y: 2 * x]
OTHERS += [*map(unary, UNARY), *(getattr(ca, name) for name in BINARY)]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e300, 5e-324]


def values(rng, a, count):
    """So many values of those in `a` and of one another, by operations of all kinds."""
    pool = list(a)
    for _ in range(count):
        x, y = (pool[rng.integers(max(0, len(pool) - 40), len(pool))] for _ in range(2))
        kinds = PLAIN if rng.random() < 0.8 else OTHERS
        pool.append(kinds[rng.integers(len(kinds))](x, y))
    return pool


def random_function(seed, count=150):
    """Of three arguments, one of them the same for all points; with results that are constants, arguments,
    or there twice.
    """
    rng = np.random.default_rng(seed)
    args = [ca.SX.sym("x", 4), ca.SX.sym("y", 2, 2), ca.SX.sym("p", 3)]
    pool = values(rng, [e for a in args for e in ca.vertsplit(ca.vec(a))], count)
    some = [pool[i] for i in rng.integers(0, len(pool), 12)]
    M = ca.reshape(ca.vertcat(*some), 4, 3)
    return ca.Function("f", args, [M, ca.vertcat(args[0][1], 2.5, 0, M[0], M[0]), ca.SX(0, 1), pool[-1]])


def points(seed, count):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(count, 4)), rng.normal(size=(count, 4))
    x[rng.random(x.shape) < 0.1] = rng.choice(SPECIAL)
    return [x, y, rng.normal(size=3)]


def by_groups(function, args, count):
    outputs = [np.full((count, function.numel_out(i)), np.pi) for i in range(function.n_out())]
    GroupedFunction(function)(args, outputs)
    return [o.reshape(-1) for o in outputs]


def same_bits(a, b):
    """Equal, zeros with their signs; not a number where the other is none."""
    known = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[known]), np.signbit(b[known]))


@pytest.mark.parametrize("seed", range(40))
def test_random_functions(seed):
    f, count = random_function(seed), [1, 8, 33, 100][seed % 4]
    args = points(seed, count)
    truth = VirtualProgram(lambda: f).map(args, count)
    assert np.isfinite(np.concatenate(truth)).any()
    for found, expected in zip(by_groups(f, args, count), truth, strict=True):
        assert same_bits(found, expected)


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_each_operation_at_special_values(name):
    x = ca.SX.sym("x", 2)
    f = ca.Function("f", [x], [getattr(ca, name)(*ca.vertsplit(x)[: 1 + (name in BINARY)])])
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL])
    (truth,) = VirtualProgram(lambda: f).map([pairs], len(pairs))
    assert same_bits(by_groups(f, [pairs], len(pairs))[0], truth)


def test_rows_are_used_again_and_points_taken_in_pieces(monkeypatch):
    f = random_function(3, 2000)
    small = GroupedFunction(f)
    assert small._height < 0.7 * f.n_instructions()
    monkeypatch.setattr(grouped, "CACHE", 1)
    args, count = points(3, 3 * grouped.NARROW - 5), 3 * grouped.NARROW - 5  # the last piece is shorter
    for found, expected in zip(
        by_groups(f, args, count), VirtualProgram(lambda: f).map(args, count), strict=True
    ):
        assert same_bits(found, expected)


def test_threads_do_not_share_rows():
    f = random_function(5, 1500)
    function, many = GroupedFunction(f), [points(seed, 64) for seed in range(24)]

    def found(args):
        outputs = [np.empty((64, f.numel_out(i))) for i in range(f.n_out())]
        function(args, outputs)
        return np.concatenate([o.reshape(-1) for o in outputs])

    alone = [found(args) for args in many]
    with ThreadPoolExecutor(6) as pool:
        for together, expected in zip(pool.map(found, many), alone, strict=True):
            assert same_bits(together, expected)


class TestPrograms:
    """When a program of the virtual machine leaves it."""

    def test_it_does_once_that_has_paid(self):
        f, args = random_function(7), points(7, 100)
        program = VirtualProgram(lambda: f)
        expected = program.map(args, 100)
        assert program._grouped is None
        for _ in range(virtual.REGROUPED // 100):
            program.map(args, 100)
        assert program._grouped is not None
        for found, truth in zip(program.map(args, 100), expected, strict=True):
            assert same_bits(found, truth)

    def test_few_points_do_not(self):
        f, args = random_function(7), points(7, 4)
        program = VirtualProgram(lambda: f)
        for _ in range(virtual.REGROUPED):
            program.map(args, 4)
        assert program._grouped is None

    def test_nor_functions_that_call_others(self):
        f = random_function(7).wrap()
        program, args = VirtualProgram(lambda: f), points(7, 2 * virtual.REGROUPED)
        program.map(args, len(args[0]))
        assert program._grouped is None and not GroupedFunction.possible(f)


def test_derivatives_of_a_robot_stay_what_they_were(monkeypatch):
    """Eight joints, A and B and second order along a run, before and after."""
    f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 8), 0.01)
    run = f.rollout(f.initial_state({"link-0": 0.4, "link-3": -0.7}), steps=150)
    Z = np.random.default_rng(0).normal(size=(150, f.ndx))
    before = f.linearize_trajectory(run), f.second_order_trajectory(run, Z)
    monkeypatch.setattr(virtual, "REGROUPED", 0)
    twin = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 8), 0.01)
    uses = []
    call = GroupedFunction.__call__
    monkeypatch.setattr(GroupedFunction, "__call__", lambda self, *a: (uses.append(1), call(self, *a))[1])
    after = twin.linearize_trajectory(run), twin.second_order_trajectory(run, Z)
    assert uses
    for mine, theirs in zip(after, before, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_repeated_operations_are_found_once_that_pays_and_change_no_bit(self):
        f, args = random_function(7), points(7, 4)
        x = [ca.SX.sym("x", f.size_in(i)) for i in range(f.n_in())]
        again = [a + b for a, b in zip(f.call(x), f.call(x), strict=True)]  # every operation is there twice
        program = VirtualProgram(lambda: ca.Function("again", x, again))
        expected, operations = program.map(args, 4), program.function.n_instructions()
        for _ in range(virtual.REDUCED // 4 - 1):
            program.map(args, 4)
        assert program.function.n_instructions() == operations
        for found, truth in zip(program.map(args, 4), expected, strict=True):
            assert same_bits(found, truth)
        assert program.function.n_instructions() < 0.6 * operations


def test_calls_at_once_keep_their_own_numbers():
    """Single calls of a small function, by several threads; results that are kept do not change."""
    x, y = ca.SX.sym("x", 3), ca.SX.sym("y")
    program = VirtualProgram(lambda: ca.Function("f", [x, y, ca.SX(0, 1)], [ca.sin(x) * y, y + x[0]]))

    def call(seed):
        rng, calls = np.random.default_rng(seed), []
        for _ in range(300):
            a, b = rng.standard_normal(3), rng.standard_normal(1)
            calls.append((a, b, program([a, b, np.empty(0)])))
        return calls

    with ThreadPoolExecutor(4) as pool:
        for calls in pool.map(call, range(4)):
            for a, b, (first, second) in calls:
                np.testing.assert_allclose(first, np.sin(a) * b, rtol=1e-14)
                assert second[0] == b[0] + a[0]
    assert VirtualProgram(lambda: ca.Function("nothing", [x], []))([np.ones(3)]) == []
    with pytest.raises(RuntimeError):
        program([np.ones(2), np.ones(1), np.empty(0)])
