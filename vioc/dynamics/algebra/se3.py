"""Logarithm of poses in SE(3), and the inverse of the derivative (tangent map) of the exponential.

A pose is a rotation and a position, a twist V = (v, w) has its linear part first, hat(V) = [[w^, v], [0, 0]].

    Ad_T V = T V T^-1          [[R, p^ R], [0, R]]           wrenches transform by Ad_T^T
    ad_V W = V W - W V         [[w^, v^], [0, w^]]           and by ad_V^T
    d/dt exp(V) = dexp_V(dV/dt) exp(V)                       right-trivialized, dlog_V its inverse

A spatial object is an object of SO(3) over dual numbers, w^ + eps v^: formulas for rotations give the
spatial ones by differentiation along v (docs/maths/se3.md). All functions take scalars, floats or CasADi
expressions, have no branches, and are smooth up to a rotation of pi.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import casadi as ca
from numpy.polynomial import Polynomial

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.rotations import series
from vioc.dynamics.algebra.vectors import Matrix, Vector

Twist = tuple[Vector, Vector]

# -- scalar functions --------------------------------------------------------------------------------


def _continued_fraction(depth: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return a rational function of y^2 that approximates (1 - y cot y)/(4 y^2).
    The result is two tuples of coefficients, those of the numerator and of the denominator, in ascending
    powers. The function is a continued fraction of the given depth.

    Lambert: y cot y = 1 - s/(3 - s/(5 - s/(7 - ...))).
    """
    s = Polynomial([0.0, 1.0])
    numerator, denominator = Polynomial([2.0 * depth + 1.0]), Polynomial([1.0])
    for k in reversed(range(1, depth)):
        numerator, denominator = (2 * k + 1) * numerator - s * denominator, numerator
    scale = numerator.coef[0]
    return tuple(denominator.coef / (4 * scale)), tuple(numerator.coef / scale)


BETA_ABOVE, BETA_BELOW = _continued_fraction(10)

# arcsin(x) / (x sqrt(1 - x^2)) = sum of (2n)!!/(2n+1)!! x^2n
ARCSINE = tuple(4.0**n * factorial(n) ** 2 / factorial(2 * n + 1) for n in range(14))


def beta(t: Any) -> tuple[Any, Any, Any]:
    """Return beta(t) in the inverse tangent map of SO(3), 1 - w^/2 + beta w^ w^, and beta' and beta''.
    Here w is a rotation vector, w^ its skew-symmetric matrix, and t = |w|^2.

    beta(t) = (1 - y cot y)/t = 1/12 + t/720 + ... with y = |w|/2 and t =
    |w|^2 < (2 pi)^2, exact to rounding for |w| <= pi.
    """
    s = t * 0.25
    a, b = BETA_ABOVE, BETA_BELOW
    a1, b1 = _derivative(a), _derivative(b)
    A, B = series(a, s), series(b, s)
    A1, B1, A2, B2 = (series(c, s) for c in (a1, b1, _derivative(a1), _derivative(b1)))
    value = A / B
    first = (A1 - value * B1) / B
    second = (A2 - 2 * first * B1 - value * B2) / B
    return value, first * 0.25, second * 0.0625


def _derivative(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(k * c for k, c in enumerate(coefficients))[1:]


def _turn_over_sine(cosine: Any) -> Any:
    """Return angle / sin(angle) as a smooth function of cos(angle), for an angle in [0, pi).

    Three square roots give the cosines of a half, a quarter and an eighth of the angle; the rest is a series
    in z = sin^2(angle/16), which is computed without the cancellation of 1 - cos.
    """
    half = ca.sqrt(0.5 * (1 + cosine))
    quarter = ca.sqrt(0.5 * (1 + half))
    eighth = ca.sqrt(0.5 * (1 + quarter))
    z = (1 - cosine) / (16 * (1 + half) * (1 + quarter) * (1 + eighth))
    return series(ARCSINE, z) / (half * quarter * eighth)


# -- on scalars: numbers and CasADi graphs -------------------------------------------------------------


@vec.inlined
def logarithm(R: Matrix, p: Vector) -> Twist:
    """Return the twist (v, w) whose exponential is the pose with rotation R and position p.

    Its rotation is less than pi: w = angle/sin(angle) vee(R - R')/2, and v = dlog of SO(3) at w, times p.
    """
    trace = vec.plus(vec.plus(R[0][0], R[1][1]), R[2][2])
    twice = (
        vec.minus(R[2][1], R[1][2]),
        vec.minus(R[0][2], R[2][0]),
        vec.minus(R[1][0], R[0][1]),
    )
    if all(vec.is_zero(c) for c in twice):
        return p, vec.ZERO
    w = vec.scale(vec.times(0.5, _turn_over_sine(vec.times(0.5, vec.minus(trace, 1.0)))), twice)
    crossed = vec.cross(w, p)
    again = vec.scale(beta(vec.dot(w, w))[0], vec.cross(w, crossed))
    return vec.add(vec.sub(p, vec.scale(0.5, crossed)), again), w


@vec.inlined
def dlog_transposed(X: Twist, P: Twist, sign: float = 1.0) -> Twist:
    """Return dlog_X^T P, where dlog_X is the inverse tangent map of exp on SE(3).
    X is a twist (v, w) and P = (f, tau) a momentum. If `sign` is -1, the result is
    dlog_{-X}^T P = Ad_{exp X}^T dlog_X^T P.

    The formula is the dual-number form of 1 + w^/2 + beta w^ w^, with the derivative along v in the angular
    part.
    """
    (v, w), (f, tau) = X, P
    if all(vec.is_zero(c) for c in w):
        return f, vec.add(tau, vec.scale(0.5 * sign, vec.cross(v, f)))
    b, b1, _ = beta(vec.dot(w, w))
    turn = vec.cross(w, f)
    twice = vec.cross(w, turn)
    force = vec.add(vec.add(f, vec.scale(0.5 * sign, turn)), vec.scale(b, twice))
    moment = vec.add(tau, vec.scale(0.5 * sign, vec.add(vec.cross(w, tau), vec.cross(v, f))))
    mixed = vec.add(vec.cross(v, turn), vec.cross(w, vec.add(vec.cross(v, f), vec.cross(w, tau))))
    slope = vec.times(vec.times(2.0, b1), vec.dot(w, v))
    return force, vec.add(vec.add(moment, vec.scale(b, mixed)), vec.scale(slope, twice))


def dlog_blocks(X: Twist, sign: float = 1.0) -> tuple[Matrix, Matrix]:
    """Return the 3 x 3 blocks A and Q of dlog_X = [[A, Q], [0, A]].
    dlog_X is the inverse tangent map of the exponential of SE(3) at the twist X. If `sign` is -1, the blocks
    are those of dlog_{-X}.
    """
    v, w = X
    W, V = vec.skew(w), vec.skew(v)
    if all(vec.is_zero(c) for c in w):
        return vec.IDENTITY, vec.matscale(-0.5 * sign, V)
    b, b1, _ = beta(vec.dot(w, w))
    square = vec.matmul(W, W)
    A = vec.matadd(vec.matadd(vec.IDENTITY, vec.matscale(-0.5 * sign, W)), vec.matscale(b, square))
    both = vec.matadd(vec.matmul(W, V), vec.matmul(V, W))
    slope = vec.times(vec.times(2.0, b1), vec.dot(w, v))
    Q = vec.matadd(
        vec.matadd(vec.matscale(-0.5 * sign, V), vec.matscale(b, both)), vec.matscale(slope, square)
    )
    return A, Q


def momentum_slope(X: Twist, P: Twist) -> tuple[Matrix, Matrix]:
    """Return the 3 x 3 blocks k and K of the derivative of dlog_X^T P with respect to X.
    The derivative is [[0, k], [k, K]]. X is a twist, the momentum P is constant, and dlog_X is the inverse
    tangent map of the exponential of SE(3).
    """
    (v, w), (f, tau) = X, P
    if all(vec.is_zero(c) for c in w):
        w = vec.ZERO
    b, b1, b2 = beta(vec.dot(w, w))
    turn, lever = vec.cross(w, f), vec.add(vec.cross(v, f), vec.cross(w, tau))
    twice, mixed = vec.cross(w, turn), vec.add(vec.cross(v, turn), vec.cross(w, lever))
    W, F, V, T = (vec.skew(a) for a in (w, f, v, tau))
    # derivative of 1/2 w x f + beta w x (w x f) by w
    inner = vec.matadd(vec.skew(turn), vec.matmul(W, F))
    k = _sum(
        vec.matscale(-0.5, F), vec.matscale(vec.minus(0.0, b), inner), _outer(vec.scale(2 * b1, twice), w)
    )
    # and its derivative along the dual part (v, tau)
    dual = _sum(vec.skew(lever), vec.matmul(V, F), vec.matmul(W, T))
    product = vec.times(2.0, vec.dot(w, v))
    slope = vec.times(b1, product)
    K = _sum(
        vec.matscale(-0.5, T),
        vec.matscale(vec.minus(0.0, b), dual),
        vec.matscale(vec.minus(0.0, slope), inner),
        _outer(vec.scale(2 * b1, mixed), w),
        _outer(vec.scale(2 * b1, twice), v),
        _outer(vec.scale(vec.times(2 * b2, product), twice), w),
    )
    return k, K


def _sum(*matrices: Matrix) -> Matrix:
    total = matrices[0]
    for m in matrices[1:]:
        total = vec.matadd(total, m)
    return total


def _outer(a: Vector, b: Vector) -> Matrix:
    return vec.scale(a[0], b), vec.scale(a[1], b), vec.scale(a[2], b)
