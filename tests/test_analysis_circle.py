"""Verdicts of stability: what is known of eigenvalues near the unit circle, and what rounding hides."""

import json

import numpy as np
import pytest

import vioc
from vioc import Gravity, Mass, System, WrenchInput, rx, ry, rz, tx, ty, tz
from vioc.cli import main
from vioc.control import equilibrium, floquet, modes

# inside: verdicts on matrices by themselves, of which only those on maps are public
from vioc.control.linear.circle import sides, verdict

RNG = np.random.default_rng(3)


def turned(A, sizes=1.0):
    """The same eigenvalues in other axes and units, as far as rounding lets."""
    Q = np.linalg.qr(RNG.standard_normal(A.shape))[0]
    D = np.broadcast_to(sizes, len(A))
    return (Q.T @ A @ Q) * D[:, None] / D


def chain(s, n, coupling=0.02):
    """n integrators in a row: one eigenvector for an eigenvalue of multiplicity n."""
    return s * np.eye(n) + coupling * np.eye(n, k=1)


def judged(A, *known):
    return verdict(sides(A, np.linalg.eigvals(A).astype(complex), *known))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_chains_of_integrators_are_marginal_whatever_rounding_makes_of_them(n):
    spread = 0.0
    for _ in range(5):
        A = turned(chain(1.0, n, 1.0))
        spread = max(spread, np.abs(np.abs(np.linalg.eigvals(A)) - 1).max())
        assert judged(A) == judged(np.diag([1.0, -1.0]) if n == 1 else A) == "marginal"
    # |E| = eps moves an eigenvalue of multiplicity n by eps^(1/n): far beyond a fixed 1e-7 from n = 3 on
    assert spread > 0.03 * np.finfo(float).eps ** (1 / n) or n == 1
    assert judged(turned(chain(1.05, n))) == "unstable"
    assert judged(turned(chain(0.9, n))) == "asymptotically stable"


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-8])
def test_simple_eigenvalues_are_judged_as_far_as_the_matrix_is_known(gap):
    for sizes in (1.0, 10.0 ** np.array([0, 3, -3, 1])):  # metres beside momenta
        others = np.diag([0.5, 0.2, -0.3])
        for sign, expected in ((1, "unstable"), (-1, "asymptotically stable")):
            A = np.zeros((4, 4))
            A[0, 0], A[1:, 1:] = 1 + sign * gap, others
            A = turned(A, sizes)
            assert judged(A) == expected
            assert judged(A, 10 * gap) == "marginal"


def test_what_is_certain_beside_what_is_not():
    """An unstable mode beside a drift, a drift beside what decays: each on its own."""
    A = np.zeros((5, 5))
    A[:2, :2], A[2:4, 2:4], A[4, 4] = chain(1.0, 2), [[0.9, 0.2], [-0.2, 0.9]], 1.0002
    B = turned(A)
    values = np.linalg.eigvals(B).astype(complex)
    side = sides(B, values)
    order = np.argsort(np.abs(values))
    np.testing.assert_array_equal(side[order], [-1, -1, 0, 0, 1])
    assert verdict(side) == "unstable" and verdict(side[side < 1]) == "marginal"
    assert sides(np.zeros((0, 0)), np.zeros(0)).shape == (0,)
    near = np.array([1.02, 1.04, 1.0])  # discs that are smaller than the distance from the circle
    np.testing.assert_array_equal(sides(np.diag(near), near.astype(complex), 3e-3), [1, 1, 0])


def test_a_drift_with_rounding_for_a_stiffness_is_marginal():
    """|s| = 1 + 3e-9 by 1e-15 beside 0.01."""
    assert judged(np.array([[1, 0.01], [1e-15, 1]])) == "marginal"
    assert judged(np.array([[1, 0.01], [1e-9, 1]])) == "unstable"


def hover(kind, dt):
    """A quadrotor at z = 1 m: four integrators in a row from torques to places."""
    arms = [(0.2, 0), (0, 0.2), (-0.2, 0), (0, -0.2)]
    rotors = [tx(x, name=f"r{i}") if x else ty(y, name=f"r{i}") for i, (x, y) in enumerate(arms)]
    body = rx("roll", name="body", mass=Mass(1.0, (0.01, 0.012, 0.02)))[rotors]
    frame = tx("x")[ty("y")[tz("z")[rz("yaw")[ry("pitch")[body]]]]]
    thrust = [WrenchInput(f"r{i}", f"f{i}", (0, 0, 1.0), (0, 0, 0.02 * (-1) ** i)) for i in range(4)]
    f = kind(System(frame, Gravity(0, 0, -9.81), *thrust), dt)
    guess = f.initial_state({"z": 1.0}), np.full(4, 2.4)
    return equilibrium(f, x=0.0, y=0.0, z=1.0, yaw=0.0, guess=guess)


@pytest.mark.parametrize(
    "kind, dt", [(vioc.MidpointVI, 0.05), (vioc.LinearTimeVI, 0.02), (vioc.MidpointVI, 0.02)]
)
def test_a_hovering_quadrotor_is_marginal(kind, dt):
    still = hover(kind, dt)
    np.testing.assert_allclose(still.u, 9.81 / 4, rtol=1e-12)
    assert still.verdict == still.modes.stability == "marginal" and "marginal, " in repr(still)
    assert {mode.stability for mode in still.modes} == {"marginal"}
    assert all(mode.time_constant == np.inf for mode in still.modes)


def test_equilibria_and_orbits():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    for dt in (0.01, 1e-4):  # at 1e-5 the drift's coupling dt/m is near to what A is known to
        g = f.with_dt(dt)
        assert [equilibrium(g, x=0.0, theta=a).verdict for a in (0.0, np.pi)] == ["unstable", "marginal"]
    assert sorted(m.stability for m in modes(f, equilibrium(f, x=0.0, theta=0.0))) == [
        "decays",
        "grows",
        "marginal",
        "marginal",
    ]
    rest = f.rollout(f.state(theta=np.pi), steps=50)
    assert floquet(f, rest).stability == "marginal"
    fall = f.rollout(f.state(), steps=20)
    assert floquet(f, fall).stability == "unstable"


def test_the_command_says_so(capsys):
    assert main(["linearize", "cart_pole", "--set", "theta=3.141592653589793"]) in (0, None)
    assert "by the linearization  marginal" in capsys.readouterr().out
    assert main(["linearize", "cart_pole", "--json"]) in (0, None)
    assert json.loads(capsys.readouterr().out)["stability"] == "unstable"
    assert main(["linearize", "cart_pole", "--set", "theta=1", "--json"]) in (0, None)
    assert json.loads(capsys.readouterr().out)["stability"] is None
