"""Linear regression with errors in variables: noise in the measured regressor.

See (ID-14).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import eigh, qr, solve_triangular, solveh_banded
from scipy.sparse import csr_array

FITS = 4  # number of fits, each weighted by the previous deviations
MOST = 0.5  # largest share of noise in a direction of parameters that is estimated
LEAST = 0.1  # least share of motion assumed by the deviations in the other directions
FAR = 3.0  # standard deviations above which correlations are significant
ROUNDING = 1e-12  # relative noise of positions that are exact


@dataclass(frozen=True)
class SplineNoise:
    """Errors of a spline and its first two derivatives due to measurement noise.
    The spline is fitted to a measured position; its derivatives are velocity and acceleration.

    The errors are `basis` (three sparse matrices (N, nc)) times the errors of the spline's nc coefficients,
    which have the `covariance` (nc, nc). `at_samples` (N, 3, 3) is the covariance of the three errors at each
    sample. `smoothed` is True if the residuals are not white noise, so that the spline is smoother than the
    motion.
    """

    basis: Sequence[Any]
    covariance: np.ndarray
    at_samples: np.ndarray
    smoothed: bool


def spline_noise(spline: BSpline, t: np.ndarray, y: np.ndarray, kept: np.ndarray) -> SplineNoise:
    """Return the errors of a least-squares spline due to the noise of its samples.
    The spline is fitted to the samples (t, y). The errors are those of its value and of its first two
    derivatives at the times `kept`.
    """
    hat = BSpline.design_matrix(t, spline.t, spline.k)
    normal, count = hat.T @ hat, hat.shape[1]
    band = np.array([np.pad(normal.diagonal(-i), (0, i)) for i in range(spline.k + 1)])
    residuals = y - spline(t)
    variance = max(residuals @ residuals / max(len(t) - count, 1), (ROUNDING * np.abs(y).max()) ** 2)
    inverse = solveh_banded(band, np.eye(count), lower=True)
    width = min(2 * spline.k, count - 1)  # what single samples and their neighbours need
    near = csr_array(np.tril(np.triu(inverse, -width), width))
    basis, differences = [], csr_array(np.eye(count))
    for i in range(3):
        degree, places = spline.k - i, spline.t[i : len(spline.t) - i]
        basis.append(BSpline.design_matrix(kept, places, degree) @ differences)
        if i < 2:  # a derivative is a spline of lower degree, of differences of the coefficients
            spans = places[degree + 1 : -1] - places[1 : -degree - 1]
            differences = csr_array(degree / spans[:, None] * np.diff(differences.toarray(), axis=0))
    some = [[np.asarray(b.multiply(a @ near).sum(axis=1)).ravel() for b in basis] for a in basis]
    # products of neighbouring residuals, less those expected for white noise
    lags = range(1, min(spline.k, len(t) - 1) + 1)
    correlations = [
        residuals[i:] @ residuals[:-i] + variance * (hat[i:] @ near).multiply(hat[:-i]).sum() for i in lags
    ]
    coloured = (
        np.sum(np.square(correlations)) > (len(lags) + FAR * np.sqrt(2 * len(lags))) * len(t) * variance**2
    )
    return SplineNoise(
        basis, variance * inverse, variance * np.moveaxis(np.array(some), 2, 0), bool(coloured)
    )


@dataclass(frozen=True)
class Regression:
    """Result of a linear regression y = W c with noise in W: estimates and covariance.

    The `values` c have the `covariance`. `deviations` are the standard deviations of the equations'
    residuals, and `sizes` those by which the equations are weighted. `unclear` is the number of directions of
    c in which the initial values are kept, because W is mostly noise there. `smoothed` is the largest error
    of an estimate, in its standard deviations, that splines cause by smoothing the motion.
    """

    values: np.ndarray
    covariance: np.ndarray
    deviations: np.ndarray
    sizes: np.ndarray
    unclear: int
    smoothed: float


def fit(
    parts: Sequence[np.ndarray],
    noises: Sequence[Sequence[SplineNoise]],
    changes: Sequence[Callable[[int], np.ndarray]],
    start: np.ndarray,
    pooled: bool,
) -> Regression:
    """Estimate the coefficients c of linear equations y = W c, where W contains noise.
    The matrices W and the vectors y are computed from splines that are fitted to measured motions.

    `parts` has the matrices [W, y] (N, r, n + 1) of each motion, with r equations for each of N samples.
    `noises` has the errors of the splines, one for each variable. `changes` has functions that take the
    number of a variable and return the derivatives (3, N, r, n + 1) of [W, y] by its position, velocity and
    acceleration. `start` are initial values of c. If `pooled`, the r equations of a sample have the same
    weight.
    """
    E = np.concatenate(parts)
    (N, r, n), W, y = (E.shape[0], E.shape[1], E.shape[2] - 1), E[:, :, :-1], E[:, :, -1]
    C = np.zeros((r, n + 1, n + 1))  # expected squares of the noise in [W, y], summed over samples
    for record, change in zip(noises, changes, strict=True):
        for i, spline in enumerate(record):
            D = change(i)
            C += np.einsum("akin,kab,bkim->inm", D, spline.at_samples, D, optimize=True)

    def mean(squares: np.ndarray) -> np.ndarray:
        return np.full(r, squares.mean()) if pooled else squares

    def noise_of(values: np.ndarray) -> np.ndarray:
        both = np.append(values, -1.0)
        return mean(np.einsum("n,inm,m->i", both, C, both) / N)

    squares = noise_of(start)
    for _ in range(FITS):
        weights = 1 / np.where(squares > 0, squares, 1.0)
        R = qr((W * np.sqrt(weights)[:, None]).reshape(-1, n), mode="r")[0][:n]
        R_inverse = solve_triangular(R, np.eye(n))
        weighted = np.einsum("i,inm->nm", weights, C)
        shares, V = eigh(R_inverse.T @ weighted[:n, :n] @ R_inverse)
        T, clear = R_inverse @ V, shares <= MOST
        inverse = T[:, clear] / (1 - shares[clear]) @ T[:, clear].T
        slope = np.einsum("kin,ki,i->n", W, y - W @ start, weights)
        values = start + inverse @ (slope + weighted[:n] @ np.append(start, -1.0))
        mean_squares = mean(((y - W @ values) ** 2).mean(axis=0) / max(1 - n / y.size, 1e-3))
        noise = noise_of(values)
        sizes, squares = np.sqrt(1 / weights), np.maximum(mean_squares, noise)
    both = np.append(values, -1.0)
    S = np.einsum("kin,kim,i->nm", W, W, np.maximum(mean_squares - noise, 0.0) * weights**2)
    for part, record, change in zip(parts, noises, changes, strict=True):
        for i, spline in enumerate(record):
            e = np.einsum("kin,akim,m,i->akn", part[:, :, :n], change(i), both, weights, optimize=True)
            X = sum(basis.T @ e[a] for a, basis in enumerate(spline.basis))
            S += X.T @ spline.covariance @ X
    T = T / np.maximum(1 - shares, LEAST)
    covariance = T @ (V.T @ R_inverse.T @ S @ R_inverse @ V) @ T.T
    # what splines smooth away attenuates as noise does, as far as residuals are not of the noise's size
    excess = weights * np.abs(np.divide(mean_squares, noise, out=np.ones(r), where=noise > 0) - 1)
    errors = inverse @ np.einsum("i,inm,m->n", excess, C[:, :n], both) / np.sqrt(np.diag(covariance))
    smoothed = any(spline.smoothed for record in noises for spline in record)
    largest = float(np.abs(errors).max()) if smoothed else 0.0
    return Regression(values, covariance, np.sqrt(mean_squares), sizes, int(np.sum(~clear)), largest)
