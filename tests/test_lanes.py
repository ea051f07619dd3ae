"""Functions on vectors: values of every operation, sine and cosine, and what is refused."""

import ctypes

import casadi as ca
import numpy as np
import pytest

from vioc.compile import find_compiler, load_library

# inside: code on vectors of numbers is made and run without a map
from vioc.compile.arrays import on_arrays
from vioc.compile.lanes import laned, prelude
from vioc.errors import ModelError

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
CALL = """
__attribute__((visibility("default"))) void call(const double *a, double *b, long long n, long long m) {
  lanes x[16], y[64];
  const lanes *in[] = {x};
  lanes *out[] = {y};
  for (int k = 0; k < n; k++) for (int i = 0; i < LANES; i++) x[k][i] = a[n * i + k];
  of(in, out);
  for (int k = 0; k < m; k++) for (int i = 0; i < LANES; i++) b[m * i + k] = y[k][i];
}
"""


def evaluated(f, rows, lanes):
    """`f` at `rows`, so many at a time."""
    library = load_library([prelude(lanes) + laned(f, "of") + CALL], "test of lanes")
    n, m = f.numel_in(0), f.numel_out(0)
    found = np.empty((len(rows), m))
    for i in range(0, len(rows), lanes):
        some, values = np.ascontiguousarray(rows[i : i + lanes]), np.empty((lanes, m))
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in (some, values))
        library.call(*pointers, ctypes.c_longlong(n), ctypes.c_longlong(m))
        found[i : i + lanes] = values
    return found


def operations():
    """Every operation of three numbers: a function, and how many of its results are exact."""
    x = ca.SX.sym("x", 3)
    a, b, c = ca.vertsplit(x)
    exact = [a + b, a - b, a * b, a / b, -a, a**2, 2 * a, 1 / c, ca.sqrt(c), a * 0.3, ca.SX(2.5)]
    exact += [ca.fabs(a), a < b, a <= b, ca.if_else(a < b, a, c), ca.logic_or(a < b, b < c), ca.floor(a)]
    exact += [
        ca.fmin(a, b),
        ca.logic_not(a < b),
        ca.if_else(a < b, np.inf, a),
        ca.if_else(a < b, b, -np.inf),
        a == b,
        a != b,
    ]
    near = [
        ca.exp(a),
        ca.log(c),
        c**a,
        ca.tan(a),
        ca.atan2(a, b),
        ca.asin(ca.sin(a)),
        ca.tanh(a),
        ca.sin(a + b),
    ]
    return ca.Function("f", [x], [ca.vertcat(*exact, *near)]), len(exact)


def check_values(f, exact, rows, found):
    truth = np.array(f.map(len(rows))(rows.T)).T
    assert (found[:, :exact] == truth[:, :exact]).all()
    assert found[:, exact:] == pytest.approx(truth[:, exact:], rel=1e-14)


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_values_are_those_of_the_virtual_machine(lanes):
    f, exact = operations()
    rows = np.random.default_rng(1).uniform(0.1, 3.0, (lanes * 5, 3)) * [-1, 1, 1]
    check_values(f, exact, rows, evaluated(f, rows, lanes))


def test_so_are_values_on_arrays():
    f, exact = operations()
    rows = np.random.default_rng(1).uniform(0.1, 3.0, (20, 3)) * [-1, 1, 1]
    check_values(f, exact, rows, on_arrays(f, np)(rows.T)[0].T)
    a, b = ca.SX.sym("a", 2), ca.SX.sym("b")
    pair = ca.Function("f", [a, b], [a * b, ca.SX(0, 1), ca.SX(1, 1) + 3.0])  # samples are broadcast
    product, none, constant = on_arrays(pair, np)(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0]]))
    assert (product == [[2, 4], [6, 8]]).all() and none.shape == (0, 2) and (constant == 3).all()
    with pytest.raises(ModelError, match="has no form on arrays"):
        on_arrays(ca.Function("f", [b], [ca.erf(b)]), np)
    with pytest.raises(ModelError, match="expected a function of SX"):
        on_arrays(f.map(2), np)


def test_sine_and_cosine_are_within_an_ulp_at_any_size():
    x = ca.SX.sym("x")
    f = ca.Function("f", [x], [ca.vertcat(ca.sin(x), ca.cos(x))])
    rng = np.random.default_rng(2)
    turns = np.arange(-200, 200) * np.pi / 4
    angles = [
        rng.uniform(-4, 4, 4000),
        rng.uniform(-9e5, 9e5, 4000),
        turns,
        turns + 1e-9,
        [0.0, -0.0, 1e-300],
    ]
    angles = np.concatenate([*angles, 10.0 ** rng.uniform(5, 22, 200), [np.pi / 2 * 600_000] * 1])
    angles = angles[: len(angles) // 4 * 4, None]
    found = evaluated(f, angles, 4)
    for column, function in ((0, np.sin), (1, np.cos)):
        truth = function(angles[:, 0].astype(np.longdouble))
        assert (np.abs(found[:, column] - truth) <= np.spacing(np.abs(truth.astype(float)))).all()
    wild = evaluated(f, np.array([[np.nan], [np.inf], [1.0], [-np.inf]]), 4)
    assert np.isnan(wild[[0, 1, 3]]).all() and np.isfinite(wild[2]).all()


def test_what_has_no_form_is_left_to_others():
    x = ca.SX.sym("x")
    assert laned(ca.Function("f", [x], [ca.erf(x)]), "of") is None
