"""Inertia of homogeneous bodies: against integrals over them."""

import numpy as np
import pytest

from vioc import Mass, P
from vioc.errors import ModelError

NODES, WEIGHTS = np.polynomial.legendre.leggauss(6)


def of_points(points, masses):
    """sum m (r'r I - r r')."""
    squares = np.einsum("ni,ni->n", points, points)
    return np.einsum(
        "n,nij->ij", masses, squares[:, None, None] * np.eye(3) - points[:, :, None] * points[:, None]
    )


def cuboid(edges):
    """Gauss points and weights, summing to one."""
    grid = np.stack(np.meshgrid(NODES, NODES, NODES, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", WEIGHTS, WEIGHTS, WEIGHTS).ravel() / 8
    return grid * np.array(edges) / 2, weights


def test_box():
    edges = (0.5, 0.3, 0.2)
    points, weights = cuboid(edges)
    np.testing.assert_allclose(Mass.box(2.0, edges).matrix(), of_points(points, 2.0 * weights), atol=1e-15)
    assert Mass.box(2.0, edges, com=(0, 0, 0.1)).com == (0, 0, 0.1)


def test_sphere():
    # in spherical coordinates: radius, cosine of the polar angle, azimuth
    r, c = (NODES + 1) / 2 * 0.3, NODES
    a = 2 * np.pi * np.arange(6) / 6
    R, C, A = (g.ravel() for g in np.meshgrid(r, c, a, indexing="ij"))
    S = np.sqrt(1 - C**2)
    weights = np.einsum("i,j,k->ijk", WEIGHTS * r**2, WEIGHTS, np.ones(6)).ravel()
    points = np.column_stack([R * S * np.cos(A), R * S * np.sin(A), R * C])
    np.testing.assert_allclose(
        Mass.sphere(2.0, 0.3).matrix(), of_points(points, 2.0 * weights / weights.sum()), atol=1e-15
    )


@pytest.mark.parametrize("axis", [(0, 0, 1), (1, 0, 0), (1, 2, -2)])
def test_rod(axis):
    direction = np.array(axis) / np.linalg.norm(axis)
    points = NODES[:, None] / 2 * 0.8 * direction
    rod = Mass.rod(3.0, 0.8, axis)
    np.testing.assert_allclose(rod.matrix(), of_points(points, 3.0 * WEIGHTS / 2), atol=1e-15)
    assert np.abs(rod.matrix() @ direction).max() < 1e-15


def test_masses_may_be_parameters():
    ball = Mass.sphere(P("m", 2.0), 0.3)
    assert ball.mass == P("m", 2.0)
    assert ball.inertia[0] == P("m", 2.0) * (0.4 * 0.3**2)
    np.testing.assert_allclose(ball.matrix(), 0.4 * 2.0 * 0.3**2 * np.eye(3), atol=1e-15)


def test_sizes_that_no_body_has_are_refused():
    with pytest.raises(ModelError, match=r"box: size: expected 3 numbers > 0 \(m\), got \[1.0, 0.0, 1.0\]"):
        Mass.box(1.0, (1, 0, 1))
    with pytest.raises(ModelError, match="sphere: radius: expected a number > 0"):
        Mass.sphere(1.0, -0.1)
    with pytest.raises(ModelError, match="rod: axis: expected a direction"):
        Mass.rod(1.0, 1.0, (0, 0, 0))
    with pytest.raises(ModelError, match="mass: expected a number >= 0"):
        Mass.box(-1.0, (1, 1, 1))
