"""The arithmetic of a barrier subproblem, of NumPy and of C, against each other and a step's equations."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from vioc.compile import find_compiler

# inside: the arithmetic of numpy and of C on random subproblems, without a problem
from vioc.control.shooting import subproblem as module
from vioc.control.shooting.compiled import NativeSubproblem, newton_of
from vioc.control.shooting.newton_step import Newton
from vioc.control.shooting.stages import StageBlocks
from vioc.control.shooting.subproblem import Iterate, Subproblem

EPS = np.finfo(float).eps
N, n, nu, m, m_end = 4, 3, 2, 5, 2
KINDS = [
    Subproblem,
    pytest.param(NativeSubproblem, marks=pytest.mark.skipif(find_compiler() is None, reason="no C compiler")),
]


class Rows(SimpleNamespace):
    def __len__(self):
        return len(self.lower)


def problem(kind, seed, *, gaps=True, same_rows=False):
    """A subproblem of random rows of all kinds, an iterate inside of its limits, and blocks."""
    rng = np.random.default_rng(seed)
    size, q = N * m + m_end, n + nu
    low, width = rng.standard_normal(size), rng.uniform(0.5, 2.0, size)
    which = rng.integers(0, 5, size)  # none, equation, both limits, lower, upper
    lower = np.where((which == 0) | (which == 4), -np.inf, low)
    upper = np.where((which == 0) | (which == 3), np.inf, np.where(which == 1, low, low + width))
    rows = Rows(lower=lower, upper=upper, hard=rng.random(size) < 0.2, m=m)
    stages = SimpleNamespace(
        rows=rows, map=SimpleNamespace(ndx=n, nu=nu), lengths=np.ones(N), start=rng.random((n, 2)), rigid=1
    )
    subproblem = kind(stages, 1e-8, 1e-3, 0.3)
    subproblem.mu = 0.02
    subproblem.estimate[:], subproblem.costates[:] = (
        rng.standard_normal(size),
        rng.standard_normal((N + 1, n)),
    )
    h = rng.standard_normal(size)
    point = SimpleNamespace(
        rows=h, gaps=np.asfortranarray(rng.standard_normal((N, n)) * gaps), cost=1.7, open=gaps
    )
    s = subproblem.inside(h)
    y, p = rng.standard_normal(size), rng.standard_normal((N + 1, n))
    of_low, of_high = (z * rng.uniform(0.5, 2.0, size) for z in subproblem.multipliers(s))
    it = Iterate(point, p, y, s, of_low, of_high)
    J = rng.standard_normal((1 if same_rows else N, m, q))
    H = rng.standard_normal((N, q, q))
    b = StageBlocks(
        F=rng.standard_normal((N, n, q)),
        g=rng.standard_normal((N, q)),
        g_end=rng.standard_normal(n),
        c=point.gaps,
        J=np.broadcast_to(J, (N, m, q)),
        J_end=rng.standard_normal((m_end, n)),
        H=H + np.swapaxes(H, 1, 2),
        H_end=np.eye(n),
    )
    solved = rng.standard_normal((N + 1, n)), rng.standard_normal((N, nu)), rng.standard_normal((N + 1, n))
    bent = rng.standard_normal((N, q)), rng.standard_normal(n)
    return subproblem, it, b, solved, bent


def results(kind, seed, **options):
    """Everything that a subproblem computes, flat by name; of M the lower half, which is all that counts."""
    subproblem, it, b, solved, bent = problem(kind, seed, **options)
    r = subproblem.residuals(it.point, it.s)
    M, last = subproblem.hessian(it, b, 0.1, 0.2, np.array([0.3, 0.0, 0.4]))
    found = {"M": np.tril(M), "last": last}
    for name, more in (("bent", bent), ("plain", None)):
        found |= dict(
            zip(
                (f"v {name}", f"g {name}", f"end {name}", f"c {name}"),
                subproblem.linear(it, b, it.point.gaps, r, more),
                strict=True,
            )
        )
    d = subproblem.direction(it, b, r, found["v plain"], solved)
    found |= {"y": d.y, "ds": d.s, "low": d.low, "high": d.high, "slope": d.slope, "lengths": d.lengths}
    moved = subproblem.moved(it, d, it.point, it.s + 0.9 * d.lengths[0] * d.s, 0.7, 0.6)
    found |= {f"moved {name}": getattr(moved, name) for name in ("p", "y", "low", "high")}
    found["merit"] = subproblem.merit(it.point, it.s)
    found["slacks"], found["trial merit"] = subproblem.trial_merit(
        it, it.point, it.s + 0.9 * d.lengths[0] * d.s
    )
    found["error"], found["of subproblem"] = subproblem.errors(it, b)
    return {name: np.asarray(value) for name, value in found.items()}


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("options", [{}, {"gaps": False}, {"same_rows": True}])
@pytest.mark.parametrize("seed", range(4))
def test_c_computes_what_numpy_does(seed, options):
    ours, theirs = results(Subproblem, seed, **options), results(NativeSubproblem, seed, **options)
    for name, value in ours.items():
        # sums of at most some hundred products, of entries up to 1 / delta times what is shown
        size = 1 + np.abs(value).max() + 1e3
        assert np.abs(value - theirs[name]).max(initial=0) <= 1e3 * EPS * size, name


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("gaps", [True, False])
def test_newton_in_one_call_is_what_its_parts_are(gaps):
    subproblem, it, b, _, bent = problem(NativeSubproblem, 5, gaps=gaps)
    subproblem.stages.start = np.empty((n, 0))
    subproblem.stages.map.backend = SimpleNamespace(name="compiled")
    b = replace(b, H=b.H @ np.swapaxes(b.H, 1, 2) + np.eye(n + nu))
    once, parts, r = newton_of(subproblem), Newton(subproblem), subproblem.residuals(it.point, it.s)
    assert type(once) is not Newton
    assert not once.factor(it, replace(b, H=-b.H), 0.0, 0.0, np.zeros(n))
    for newton in (once, parts):
        assert newton.factor(it, b, 0.1, 0.2, np.array([0.3, 0.0, 0.4]))
    np.testing.assert_array_equal(once.gains, parts.gains)
    for more in (None, bent):
        for mine, theirs in zip(
            *(x.solve(it, b, it.point.gaps, r, more) for x in (once, parts)), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_direction_solves_the_equations_of_rows_and_slacks(kind, seed):
    """The third and fourth line of (IP 5), and of the slope the derivative of the merit."""
    subproblem, it, b, solved, _ = problem(kind, seed)
    r = subproblem.residuals(it.point, it.s)
    v, *_ = subproblem.linear(it, b, it.point.gaps, r, None)
    d = subproblem.direction(it, b, r, v, solved)
    dz = np.concatenate([d.dx[:-1], d.du], axis=1)
    dh = np.concatenate([np.einsum("kmq,kq->km", b.J, dz).ravel(), b.J_end @ d.dx[-1]])
    limited, unequal = subproblem.kind > 0, subproblem.kind == 2
    soft = np.where(unequal, subproblem.softness, subproblem.soft)
    left = np.where(limited, r + dh - d.s - soft * (d.y - subproblem.estimate), 0.0)
    assert np.abs(left).max() <= 1e4 * EPS * (1 + np.abs(d.y).max())
    low, high = it.low + d.low, it.high + d.high
    assert np.abs((d.y - high + low)[unequal]).max() <= 1e3 * EPS * (1 + np.abs(d.y).max())
    for has, distance, side, sign, new in (
        (subproblem.has[0], it.s - subproblem.lower, it.low, 1, low),
        (subproblem.has[1], subproblem.upper - it.s, it.high, -1, high),
    ):
        moved = side[has] * sign * d.s[has] + new[has] * distance[has]
        bound = (
            1e4 * EPS * (1 + np.abs(moved).max() + np.abs(d.y).max() / soft.min(initial=1, where=soft > 0))
        )
        assert np.abs(moved - subproblem.mu).max() <= bound

    def merit(t):
        gaps = it.point.gaps + t * (np.einsum("kij,kj->ki", b.F, dz) - d.dx[1:])
        cost = it.point.cost + t * (np.vdot(b.g, dz) + b.g_end @ d.dx[-1])
        point = SimpleNamespace(rows=it.point.rows + t * dh, gaps=gaps, cost=cost)
        return subproblem.merit(point, it.s + t * d.s).value

    t = 1e-4 * min(1.0, d.lengths[0])  # central differences to order 4: t^4 times what bends the logarithms
    slope = (8 * (merit(t) - merit(-t)) - (merit(2 * t) - merit(-2 * t))) / (12 * t)
    assert slope == pytest.approx(d.slope, rel=1e-6, abs=10 * EPS * abs(merit(0)) / t)


class TestRelenting:
    """The barrier takes back a part of its fall if the first step of a subproblem meets limits early."""

    @pytest.fixture(autouse=True)
    def far_ahead(self, monkeypatch):
        monkeypatch.setattr(module, "AHEAD", 0.0)  # random rows would hold the barrier up

    def fallen(self, mu=1e-3):
        """A subproblem that begins, after one of weight `mu`, and a step of it whose lengths can be told."""
        subproblem, it, b, solved, _ = problem(Subproblem, 0)
        r = subproblem.residuals(it.point, it.s)
        v, *_ = subproblem.linear(it, b, it.point.gaps, r, None)
        d = subproblem.direction(it, b, r, v, solved)
        subproblem.mu, subproblem.violation = mu, np.inf
        assert subproblem.next(it)
        return subproblem, d

    @pytest.mark.parametrize("lengths", [(0.1, 1.0), (1.0, 0.1)])
    def test_to_a_share_of_what_it_was(self, lengths):
        subproblem, d = self.fallen()
        assert subproblem.mu == pytest.approx(1e-3**1.7)
        assert subproblem.raise_mu(d._replace(lengths=lengths)) and subproblem.mu == pytest.approx(0.3e-3)
        assert not subproblem.raise_mu(d._replace(lengths=lengths)) and subproblem.mu == pytest.approx(0.3e-3)

    def test_only_by_the_first_step_and_a_short_one(self):
        subproblem, d = self.fallen()
        assert not subproblem.raise_mu(d._replace(lengths=(0.5, 0.9)))
        assert not subproblem.raise_mu(d._replace(lengths=(0.1, 0.1))) and subproblem.mu == pytest.approx(
            1e-3**1.7
        )

    def test_a_subproblem_that_did_not_fall_does_not(self):
        subproblem, *_ = problem(Subproblem, 0)
        assert not subproblem.raise_mu(SimpleNamespace(lengths=(0.0, 0.0)))
        assert subproblem.mu == 0.02
