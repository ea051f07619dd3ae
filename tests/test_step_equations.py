"""Equations of one step along its branch, against an independent writing and finite differences."""

import numpy as np
import pytest

import vioc

# inside: continuation in the step length evaluates these equations, and no public function returns them
from vioc.dynamics.integrators.step_equations import StepEquations


def loop_with_a_prescribed_base() -> vioc.System:
    """A closed four-bar linkage on a base whose height is prescribed, with a motor."""
    links = vioc.tz(vioc.K("height"))[
        vioc.ry("a", mass=(1.0, 0.1, 0.1, 0.1))[vioc.tz(-0.5, name="tip")],
        vioc.tx(0.7)[vioc.ry("b", mass=(0.7, 0.1, 0.1, 0.1))[vioc.tz(-0.6, name="top")]],
    ]
    rod = vioc.DistanceConstraint("tip", "top", 0.8)
    return vioc.System(vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "motor"), rod, links)


@pytest.mark.parametrize("share", [1.0, 0.375])
def test_equations_for_a_share_of_a_step_and_their_slopes(share):
    f = vioc.MidpointVI(loop_with_a_prescribed_base(), 0.01)
    rng = np.random.default_rng(0)
    x, u = 0.3 * rng.standard_normal(f.nx), 0.3 * rng.standard_normal(f.nu)
    equations = StepEquations(f, f.rule, x, u, 0.2, f.dt)
    w = rng.standard_normal(f.nd)
    found = equations(w, share)
    end = equations.end(w, share)
    nd, nm, h = f.nd, f.nm, share * f.dt

    # balance and constraints by the equations of a whole step of that length, `f.residual`
    def whole(q: np.ndarray) -> np.ndarray:
        applied = np.concatenate([u[: len(f.system.inputs)], q[nd:]])
        x1 = np.concatenate([q, np.zeros(f.nx - f.nq)])
        return np.array(f.residual(x, applied, x1, np.zeros(nm), 0.2, h, f.theta)).ravel()

    left, off = whole(end), whole(x[: f.nq])[nd : nd + nm]
    assert np.abs(off).max() > 0.01
    np.testing.assert_allclose(found.residual[:nd], left[:nd], rtol=1e-11, atol=1e-11)
    expected = (left[nd : nd + nm] - (1 - share) * off) / h
    np.testing.assert_allclose(found.residual[nd:], expected, rtol=1e-11, atol=1e-11)

    step = 1e-6
    for i in range(nd):
        e = step * np.eye(nd)[i]
        slope = (equations(w + e, share).residual - equations(w - e, share).residual) / (2 * step)
        np.testing.assert_allclose(found.matrix[:, i], slope, rtol=1e-6, atol=1e-6)
    assert not found.matrix[nd:, nd:].any()
