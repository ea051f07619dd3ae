"""Limits as rows over stages: values, derivatives through multipliers and on manifolds, names, scales."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from support.control_maps import double_integrator
from support.mechanisms import everything, hold, state_near

import vioc
from vioc import Gravity, Mass, MaximalVI, MidpointVI, System
from vioc.compile import Cache, find_compiler
from vioc.control import Cost, optimize, quadratic
from vioc.control.dmoc import PathConstraint

# inside: rows of limits against differences, without a search
from vioc.control.shooting.rows import ConstraintRows, collected
from vioc.control.shooting.stages import Stages

N = 3
STENCIL = np.arange(-2, 3)
FIRST = np.array([1, -8, 0, 8, -1]) / 12
SECOND = np.array([-1, 16, -30, 16, -1]) / 12


class Setting:
    """A curve that is no trajectory, and rows there."""

    def __init__(self, f, X, U, cost, **limits):
        limits = {"bounds": None, "constraints": None, "final": None} | limits
        self.map, self.X, self.U = f, X, U
        self.rows = ConstraintRows(f, N, collected(f, N, **limits))
        self.stages = Stages(f, cost, self.rows, 0, np.full(N, f.dt))
        self.point = self.stages.at(X, U)
        self.curve = self.point.curve
        self.lin = self.stages.map.derivatives.linearize(self.point.steps)

    def along(self, dx, du, step):
        """Rows at the points of a stencil, (5, rows)."""
        found = []
        for i in STENCIL:
            X = self.map.retract(self.X, i * step * dx)
            found.append(self.stages.at(X, self.U + i * step * du).rows)
        return np.array(found)

    def split(self, y):
        """Of an array over the rows, that of the steps (N, m), and of the end."""
        n = N * self.rows.m
        return y[:n].reshape(N, -1), y[n:]


def pulled():
    """One of each on a string: what depends on multipliers, velocities, places and data over time."""
    f, rng = MidpointVI(everything(), 0.05), np.random.default_rng(2)
    x0 = state_near(f, 3)
    X = x0 + 0.02 * rng.standard_normal((N + 1, f.nx))
    U = hold(f, x0) + 0.01 * rng.standard_normal((N, f.nu))
    where, tension = ca.SX.sym("where"), f.quantity("lambda.string")
    meet = (f.quantity("tip:x") - where) ** 2 + f.quantity("a") * f.quantity("u.torque") * tension
    several = ca.vertcat(ca.sin(f.quantity("b")), tension**2)
    return Setting(
        f,
        X,
        U,
        Cost(
            f, f.quantity("u.torque") ** 2 * ca.cos(f.quantity("b")) + tension**2, 3 * ca.sin(f.quantity("c"))
        ),
        bounds={"lambda.string": (-9, None), "u.torque": 2.0, "a": (None, 1.5), "v.b": 3.0},
        constraints=[
            PathConstraint("meet", meet, upper=2.0, references=[(where, np.linspace(0, 1, N + 1))]),
            PathConstraint(
                "near", f.quantity("c") - where, upper=1.0, references=[(where, np.arange(N + 1))]
            ),
            PathConstraint("two", several, -3.0, 3.0),
            PathConstraint("over", f.quantity("a") * f.quantity("b"), upper=0.3, where="end"),
        ],
        final={"c": 0.1, "tip:z": (-2.0, 1.0)},
    )


def floating():
    """A body in maximal coordinates, seven numbers of pose and six errors."""
    body = vioc.free("j", "xyz", frame="tool", mass=Mass(1.5, (1.0, 2.0, 3.0)))
    f, rng = MaximalVI(System(body, Gravity(0, 0, -9.81)), 0.05), np.random.default_rng(3)
    X = f.retract(np.tile(f.initial_state(), (N + 1, 1)), 0.4 * rng.standard_normal((N + 1, f.ndx)))
    return Setting(
        f,
        X,
        np.zeros((N, f.nu)),
        quadratic(f, Q={"tool:x": 1.0}),
        bounds={"tool:rz": 1.0, "tool:x": (None, 2.0)},
        constraints=PathConstraint("turn", f.quantity("tool:rx") * f.quantity("tool:ry"), upper=1.0),
        final={"tool:z": 0.2, "tool:ry": 0.1},
    )


@pytest.fixture(scope="module", params=[pulled, floating])
def setting(request):
    return request.param()


def close(found, sizes, rounding):
    """Against differences with steps h and 2h of order 4: their own difference bounds the error."""
    fine, coarse = sizes
    bound = np.abs(fine - coarse) + rounding * (1 + np.abs(fine))
    assert bound.max() < 1e-3 * (1 + np.abs(fine).max())  # or it says nothing
    assert (np.abs(found - fine) <= bound).all()


def test_jacobians_are_those_of_the_values(setting):
    J, J_end = setting.rows.jacobians(setting.curve, setting.lin)
    rng, f = np.random.default_rng(4), setting.map
    for _ in range(6):
        dx, du = rng.standard_normal((N + 1, f.ndx)), rng.standard_normal((N, f.nu))
        sizes = [FIRST @ setting.along(dx, du, h) / h for h in (1e-3, 2e-3)]
        dz = np.concatenate([dx[:-1], du], axis=1)
        found = np.concatenate([np.einsum("kmq,kq->km", J, dz).ravel(), J_end @ dx[-1]])
        close(found, sizes, 1e-9)


def test_curvature_is_that_of_the_values(setting):
    rng, f, rows = np.random.default_rng(5), setting.map, setting.rows
    y = rng.standard_normal(len(rows))
    H, H_end, zeta = rows.curvature(setting.curve, setting.lin, y)
    q, n = f.ndx + f.nu, f.ndx
    whole = np.zeros((N, q, q)) if H is None else H.copy()
    if zeta is not None:
        second = f.derivatives.second(setting.point.steps, np.zeros((N, n)), zeta)
        whole[:, :n, :n] += second.xx
        whole[:, :n, n:] += second.xu
        whole[:, n:, :n] += np.swapaxes(second.xu, 1, 2)
        whole[:, n:, n:] += second.uu
    assert (zeta is not None) == bool(f.multiplier_names)
    np.testing.assert_allclose(whole, np.swapaxes(whole, 1, 2), rtol=0, atol=1e-13 * np.abs(whole).max())
    for _ in range(6):
        dx, du = rng.standard_normal((N + 1, n)), rng.standard_normal((N, f.nu))
        dz = np.concatenate([dx[:-1], du], axis=1)
        found = np.append(np.einsum("kp,kpq,kq->k", dz, whole, dz), dx[-1] @ H_end @ dx[-1])
        sizes = []
        for h in (1e-3, 2e-3):
            each = SECOND @ (setting.along(dx, du, h) * y) / h**2
            at_steps, at_end = setting.split(each)
            sizes.append(np.append(at_steps.sum(axis=1), at_end.sum()))
        close(found, sizes, 1e-6)


def test_blocks_have_the_curvature_of_the_lagrangian(setting):
    """Of cost, next states weighted with costates, and rows, by each stage's states and inputs."""
    rng, f, stages = np.random.default_rng(6), setting.map, setting.stages
    p, y = rng.standard_normal((N + 1, f.ndx)), rng.standard_normal(len(setting.rows))
    model = stages.blocks(setting.point, setting.lin)
    b = stages.curved(setting.point, setting.lin, model, p, y)
    assert np.abs(b.H - model.H).max() > 1e-2
    np.testing.assert_array_equal(b.F, np.concatenate([setting.lin.A, setting.lin.B], axis=2))
    for _ in range(4):
        dx, du = rng.standard_normal((N + 1, f.ndx)), rng.standard_normal((N, f.nu))
        dz = np.concatenate([dx[:-1], du], axis=1)
        slope = np.vdot(b.g, dz) + b.g_end @ dx[-1]
        slope += np.vdot(p[1:], np.einsum("kij,kj->ki", b.F, dz))
        curve = np.einsum("kp,kpq,kq->", dz, b.H, dz) + dx[-1] @ b.H_end @ dx[-1]
        at_steps, at_end = setting.split(y)
        slope += np.vdot(at_steps, np.einsum("kmq,kq->km", b.J, dz)) + at_end @ (b.J_end @ dx[-1])
        values = {}
        for h in (5e-4, 1e-3, 2e-3):
            found = []
            for i in STENCIL:
                X, U = f.retract(setting.X, i * h * dx), setting.U + i * h * du
                point = stages.at(X, U)
                moved = f.difference(setting.point.steps.x1, point.steps.x1)
                found.append(point.cost + np.vdot(p[1:], moved) + y @ point.rows)
            values[h] = np.array(found)
        close(np.array([slope]), [np.array([FIRST @ values[h] / h]) for h in (5e-4, 1e-3)], 1e-8)
        close(np.array([curve]), [np.array([SECOND @ values[h] / h**2]) for h in (1e-3, 2e-3)], 1e-5)


def test_values_are_the_quantities_over_their_scale():
    setting = pulled()
    curve, each = setting.curve, setting.rows.each(setting.point.rows)
    names = ["lambda.string", "u.torque", "a", "v.b", "meet", "near", "two[0]", "two[1]", "over"]
    assert list(each) == [*names, "final c", "final tip:z"]
    scale = {"lambda.string": 9, "u.torque": 2, "a": 1.5, "v.b": 3, "final c": 1, "final tip:z": 1.5}
    for name, divided in scale.items():
        value = curve[name.removeprefix("final ")]
        value = value[-1:] if name.startswith("final") else value
        value = value[:N] if name in ("lambda.string", "u.torque") else value
        np.testing.assert_allclose(divided * each[name], value, rtol=1e-13)
    x, string = curve["tip:x"][:N], curve["lambda.string"][:N]
    meet = (x - np.linspace(0, 1, N + 1)[:N]) ** 2 + curve["a"][:N] * curve["u.torque"][:N] * string
    np.testing.assert_allclose(2 * each["meet"], meet, rtol=1e-12)  # where = 0 at the start, 1/3 after it
    np.testing.assert_allclose(each["near"], curve["c"] - np.arange(N + 1), rtol=1e-13)
    np.testing.assert_allclose(3 * each["two[0]"], np.sin(curve["b"][:N]), rtol=1e-12)
    np.testing.assert_allclose(3 * each["two[1]"], string**2, rtol=1e-12)
    over = (curve["a"] * curve["b"])[-1:]
    np.testing.assert_allclose(each["over"], over, rtol=1e-12)  # of a limit below 1 the scale is 1


def rows_of(f, steps=N, **limits):
    limits = {"bounds": None, "constraints": None, "final": None} | limits
    return ConstraintRows(f, steps, collected(f, steps, **limits))


def test_limits_by_stage():
    """Of states from the first step's end on, of inputs from the first step on; equations; none."""
    f = double_integrator()
    high = np.array([1.0, 2.0, np.inf, 4.0])
    rows = rows_of(
        f, bounds={"x": (-2.0, high), "u.force": (None, np.array([4.0, 4.0, 8.0]))}, final={"v": 0.5}
    )
    both = np.mean((high + 2)[np.isfinite(high)]) / 2
    lower, upper = rows.each(rows.lower), rows.each(rows.upper)
    np.testing.assert_array_equal(both * lower["x"], [-np.inf, -2, -2, -2])
    np.testing.assert_array_equal(both * upper["x"], [np.inf, 2, np.inf, 4])
    assert (lower["u.force"] == -np.inf).all()
    np.testing.assert_allclose(16 / 3 * upper["u.force"], [4, 4, 8], rtol=1e-15)
    assert lower["final v"] == upper["final v"] == 0.5
    assert (rows.m, rows.m_end, len(rows)) == (2, 2, 2 * N + 2)


def test_without_limits_there_are_no_rows():
    f = double_integrator()
    rows, run = rows_of(f), f.rollout(np.ones(2), np.ones((N, 1)))
    assert len(rows) == 0 and len(rows.values(run)) == 0
    assert rows.violations(run, 0.0) == [] and rows.margin(run) == np.inf
    J, J_end = rows.jacobians(run, f.linearize_trajectory(run))
    assert J.shape == (N, 0, 3) and J_end.shape == (0, 2)
    assert rows.curvature(run, f.linearize_trajectory(run), np.zeros(0)) == (None, None, None)


def test_multipliers_go_there_and_back():
    rows = pulled().rows
    given = np.random.default_rng(6).standard_normal(len(rows))
    named = rows.multipliers(given)
    # nothing pushes where there is no limit
    least, most = (np.where(np.isfinite(side), np.inf, 0.0) for side in (rows.lower, rows.upper))
    y = np.clip(given, -least, most)
    assert 0 < (y != given).sum() < len(y)
    np.testing.assert_allclose(rows.from_multipliers(named), y, rtol=1e-15)
    named = rows.multipliers(y)
    for name, value in rows.each(y).items():  # cost over the limit's unit: y h stays what it is
        constraint = next(p for p in rows.places if name.split("[")[0] == p.constraint.name)
        np.testing.assert_allclose(named[name], value / constraint.scale, rtol=1e-15)
    some = rows.from_multipliers({"a": named["a"]})
    for name, value in rows.each(some).items():
        np.testing.assert_allclose(value, rows.each(y)[name] if name == "a" else 0.0, rtol=1e-15)
    with pytest.raises(ValueError, match="multipliers of a"):
        rows.from_multipliers({"a": np.zeros(N)})


def test_multipliers_of_a_state_at_the_end_are_those_of_its_condition():
    """Not those of a bound of that state, which may be felt at other samples."""
    rows = rows_of(double_integrator(0.1), final={"x": 0.0})
    np.testing.assert_array_equal(rows.from_multipliers({"x": np.array([1.0, 2.0, 3.0, 4.0])}), [0.0])
    np.testing.assert_array_equal(rows.from_multipliers({"final x": 5.0, "x": np.zeros(4)}), [5.0])


def test_violations_by_name_the_worst_first():
    f = double_integrator(0.1)
    run = f.rollout(np.array([0.0, 1.0]), np.array([[3.0], [-1.0], [5.0]]))
    rows = rows_of(f, bounds={"u.force": 2.0, "v": (None, 10.0)}, final={"x": 0.0})
    found = rows.violations(run, 1e-6)
    assert [(v.name, v.k) for v in found] == [("u.force", 2), ("u.force", 0), ("final x", N)]
    assert (found[0].value, found[0].lower, found[0].upper) == (5.0, -2.0, 2.0)
    assert found[0].t == pytest.approx(0.2) and found[1].amount == 1.0
    assert found[2].value == pytest.approx(run["x"][-1]) and found[2].lower == 0.0
    assert rows.margin(run) == pytest.approx((2 - 5) / 2)
    assert [v.name for v in rows.violations(run, 0.6)] == ["u.force"]


def test_starts_outside_of_a_limit_are_refused():
    f = double_integrator()
    rows = rows_of(f, bounds={"x": (None, 1.0), "u.force": 1.0})
    rows.check_start(f.rollout(np.array([1.0, 0.0]), np.full((N, 1), 9.0)))  # inputs may still change
    with pytest.raises(ValueError, match="x0: x = 1.5 is outside of its limits"):
        rows.check_start(f.rollout(np.array([1.5, 0.0]), np.zeros((N, 1))))


def test_what_is_no_limit_is_refused():
    f = double_integrator()
    start = PathConstraint("begin", f.quantity("x"), lower=0.0, where="start")
    twice = [PathConstraint("same", f.quantity(n), upper=1.0) for n in ("x", "v")]
    for given, message in (
        ({"constraints": start}, "no condition at the start"),
        ({"constraints": twice}, "two have the name 'same'"),
        ({"bounds": {"x": (None, None)}}, "no limit"),
        ({"final": {"u.force": 1.0}}, "on the state only"),
    ):
        with pytest.raises(ValueError, match=message):
            rows_of(f, **given)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_other_limits_need_no_other_code(tmp_path, monkeypatch):
    """The numbers of bounds and of ends are arguments of what is compiled."""
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path))
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.05, backend="compiled")
    cost = quadratic(f, Q={"theta": 1.0}, R=0.1)
    force, compiled, costs = f.input_names[0], [], []
    for via, end, most in ((0.3, 0.5, 8.0), (0.2, 0.4, 9.0), (0.1, -0.3, 7.0)):
        lower, upper = np.full(21, -np.inf), np.full(21, np.inf)
        lower[10], upper[10] = via - 0.05, via + 0.03 * most
        options = dict(bounds={"theta": (lower, upper), force: most}, final={"theta": end})
        best = optimize(f, cost, x0=f.initial_state(), steps=20, **options)
        assert lower[10] - 1e-6 <= best["theta"][10] <= upper[10] + 1e-6
        assert best["theta"][-1] == pytest.approx(end, abs=1e-6)
        compiled.append({entry.key for entry in Cache().entries()})
        costs.append(best.cost)
    assert compiled[0] and compiled[0] == compiled[1] == compiled[2] and len(set(costs)) == 3
