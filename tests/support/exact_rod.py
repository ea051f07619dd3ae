"""A geometrically exact rod that does not shear, clamped at its start, without vioc.

It is 1 m long. R (3, 3) has its own axes, the tangent first: r' = R e_x, R' = R kappa^, and the moment is
R C kappa with C = diag(torsion, bending, bending). `shot` integrates m' = -r' x f, f' = -w, the equilibrium,
and shoots for what is asked of the far end; there the rod may stretch, r' = (1 + R e_x . f / axial) R e_x.
`Rod` has kappa as polynomials in s, for motions, too.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import legendre
from scipy.integrate import solve_ivp
from scipy.linalg import eigh
from scipy.optimize import root
from scipy.spatial.transform import Rotation


def integrated(C, moment, force, weight=(0, 0, 0), axial=np.inf):
    """r, R and m at the far end of what is clamped at 0, with m and f there; C may be infinite."""
    soft = (1 / np.asarray(C, float)).tolist()
    wx, wy, wz = np.asarray(weight, float).tolist()

    def slopes(s, y):  # in plain numbers, as NumPy takes ten times as long for vectors of three
        xx, xy, xz, yx, yy, yz, zx, zy, zz, _, _, _, mx, my, mz, fx, fy, fz = y.tolist()
        a = soft[0] * (xx * mx + yx * my + zx * mz)  # the curvatures, about the rod's own axes
        b = soft[1] * (xy * mx + yy * my + zy * mz)
        c = soft[2] * (xz * mx + yz * my + zz * mz)
        stretched = 1 + (xx * fx + yx * fy + zx * fz) / axial
        dx, dy, dz = stretched * xx, stretched * yx, stretched * zx
        turned = [c * xy - b * xz, a * xz - c * xx, b * xx - a * xy]
        turned += [c * yy - b * yz, a * yz - c * yx, b * yx - a * yy]
        turned += [c * zy - b * zz, a * zz - c * zx, b * zx - a * zy]
        bent = [fy * dz - fz * dy, fz * dx - fx * dz, fx * dy - fy * dx]
        return np.array([*turned, dx, dy, dz, *bent, -wx, -wy, -wz])

    y0 = np.concatenate([np.ravel(np.eye(3)), np.zeros(3), moment, force])
    y = solve_ivp(slopes, (0, 1), y0, method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    return y[9:12], y[:9].reshape(3, 3), y[12:15]


def shot(C, force, weight=(0, 0, 0), axial=np.inf):
    """r and R at the free end under a force there and a weight per length, which grow from zero."""
    moment, force, weight = np.zeros(3), np.asarray(force, float), np.asarray(weight, float)
    for share in (0.25, 0.5, 0.75, 1.0):
        f, w = share * (force + weight), share * weight
        found = root(lambda m, f=f, w=w: integrated(C, m, f, w, axial)[2], moment, tol=1e-12)
        assert np.abs(found.fun).max() < 1e-9, found.message
        moment = found.x
    return integrated(C, moment, f, w, axial)[:2]


def shot_between_clamps(C, r, R, guess):
    """Moment and force at the start (6,) of a rod whose far end is held at a pose."""

    def missed(x):
        end, axes, _ = integrated(C, x[:3], x[3:])
        return np.concatenate([end - r, Rotation.from_matrix(R.T @ axes).as_rotvec()])

    found = root(missed, guess, tol=1e-12)
    assert np.abs(found.fun).max() < 1e-9, found.message
    return found.x


class Rod:
    """Equations of motion, q the coefficients of kappa's Legendre polynomials.

    Axes of infinite stiffness do not bend. `inertia` (3,) is that of a cross-section per length.
    """

    def __init__(self, C, density, inertia, degree=6, points=16):
        self.density, self.inertia = density, np.asarray(inertia, float)
        x, w = legendre.leggauss(points)
        values = legendre.legvander(x, points - 1)
        sums = np.column_stack([legendre.legval(x, legendre.legint(e, lbnd=-1)) for e in np.eye(points)])
        self.upto, self.weights = sums @ np.linalg.inv(values) / 2, w / 2  # integrals from 0 to s, and to 1
        bends = [i for i in range(3) if np.isfinite(C[i])]
        shapes = legendre.legvander(x, degree - 1)
        self.B = np.zeros((points, 3, degree * len(bends)))
        for n, i in enumerate(bends):
            self.B[:, i, n * degree : (n + 1) * degree] = shapes
        stiff = np.where(np.isfinite(C), C, 0.0)
        self.K = np.einsum("p,pia,i,pib->ab", self.weights, self.B, stiff, self.B)

    def axes(self, q):
        """R at the points and at the end, by collocation of R' = R kappa^."""
        kappa = self.B @ q
        hat = np.cross(kappa[:, None, :], np.eye(3)).transpose(0, 2, 1)
        n = len(kappa)
        A = np.eye(3 * n) - np.einsum("ij,jba->iajb", self.upto, hat).reshape(3 * n, 3 * n)
        rows = np.linalg.solve(A, np.tile(np.eye(3), (n, 1)))  # column k is row k of every R
        R = rows.reshape(n, 3, 3).transpose(0, 2, 1)
        return R, np.eye(3) + np.einsum("p,pij->ij", self.weights, R @ hat)

    def tip(self, q):
        return self.weights @ self.axes(q)[0][:, :, 0]

    def parts(self, q, rate, force, weight):
        """M, and the generalized forces less what M does not hold of the inertia's."""
        R, _ = self.axes(q)
        t, RB, I = R[:, :, 0], R @ self.B, np.einsum("pij,j,pkj->pik", R, self.inertia, R)

        def upto(values):
            return np.einsum("ij,j...->i...", self.upto, values)

        turns = upto(RB)  # by q, of the axes; moves of the points
        moves_slope = np.cross(turns, t[:, :, None], axis=1)
        moves = upto(moves_slope)
        omega = turns @ rate
        spin = upto(np.cross(omega, RB @ rate))  # accelerations without that of q
        drift = upto(np.cross(spin, t) + np.cross(omega, np.cross(omega, t)))
        M = np.einsum("p,pia,pib->ab", self.density * self.weights, moves, moves)
        M += np.einsum("p,pia,pij,pjb->ab", self.weights, turns, I, turns)
        gyro = np.einsum("pij,pj->pi", I, spin) + np.cross(omega, np.einsum("pij,pj->pi", I, omega))
        pushed = self.weights[:, None] * (weight - self.density * drift)
        Q = -self.K @ q + np.einsum("pia,pi->a", moves, pushed)
        Q -= np.einsum("p,pia,pi->a", self.weights, turns, gyro)
        return M, Q + np.einsum("p,pia->ia", self.weights, moves_slope).T @ force

    def rest(self, force=(0, 0, 0), weight=(0, 0, 0)):
        force, weight, q = np.asarray(force, float), np.asarray(weight, float), np.zeros(len(self.K))
        for share in (0.25, 0.5, 0.75, 1.0):
            found = root(lambda q, s=share: self.parts(q, 0 * q, s * force, s * weight)[1], q, tol=1e-13)
            q = found.x
        assert np.abs(found.fun).max() < 1e-9, found.message
        return q

    def frequencies(self, q, force=(0, 0, 0), weight=(0, 0, 0)):
        """rad/s of small motions about an equilibrium, slowest first."""
        force, weight = np.asarray(force, float), np.asarray(weight, float)
        pull = lambda p: self.parts(p, 0 * p, force, weight)[1]  # noqa: E731
        S = -np.column_stack([(pull(q + d) - pull(q - d)) / 2e-5 for d in 1e-5 * np.eye(len(q))])
        return np.sqrt(eigh((S + S.T) / 2, self.parts(q, 0 * q, force, weight)[0], eigvals_only=True))

    def moved(self, q, duration, weight=(0, 0, 0), damping=0.0):
        """q after a time, from rest, with viscosity `damping` times the stiffness."""
        n, weight = len(q), np.asarray(weight, float)

        def slopes(t, y):
            M, Q = self.parts(y[:n], y[n:], np.zeros(3), weight)
            return np.concatenate([y[n:], np.linalg.solve(M, Q - damping * self.K @ y[n:])])

        y0 = np.concatenate([q, np.zeros(n)])
        return solve_ivp(slopes, (0, duration), y0, method="LSODA", rtol=1e-6, atol=1e-7).y[:n, -1]
