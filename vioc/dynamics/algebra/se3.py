"""SE(3) in the field's terms: exp, log, the right-trivialized tangent and its inverse, adjoints.

A pose is a 4 x 4 matrix, a twist V = (v, w) has its linear part first, hat(V) = [[w^, v], [0, 0]].

    Ad_T V = T V T^-1          [[R, p^ R], [0, R]]           wrenches move by Ad_T^T
    ad_V W = V W - W V         [[w^, v^], [0, w^]]           and by ad_V^T
    d/dt exp(V) = dexp_V(dV/dt) exp(V)                       right-trivialized, dlog_V its inverse

A spatial object is one of SO(3) over dual numbers, w^ + eps v^: what holds for rotations gives the rest by
differentiation along v (docs/maths/se3.md). The functions with `hat`, 4 x 4 and 6 x 6 arrays are for
numbers; `logarithm`, `dlog_transposed`, `dlog_blocks` and `momentum_slope` are written on scalars, for CasADi
graphs and floats alike, without a branch and smooth up to a turn of pi.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import casadi as ca
import numpy as np
from numpy.polynomial import Polynomial

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector

Twist = tuple[Vector, Vector]

SERIES = 9.0  # |w|^2 up to which the entire functions of dexp are summed as series

# -- scalar functions --------------------------------------------------------------------------------


def _horner(coefficients: Any, x: Any) -> Any:
    """Polynomial with ascending coefficients."""
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _continued_fraction(depth: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """beta(s) = (1 - y cot y)/(4 s), s = y^2, as a fraction of polynomials in s.

    Lambert: y cot y = 1 - s/(3 - s/(5 - s/(7 - ...))).
    """
    s = Polynomial([0.0, 1.0])
    above, below = Polynomial([2.0 * depth + 1.0]), Polynomial([1.0])
    for k in reversed(range(1, depth)):
        above, below = (2 * k + 1) * above - s * below, above
    scale = above.coef[0]
    return tuple(below.coef / (4 * scale)), tuple(above.coef / scale)


BETA_ABOVE, BETA_BELOW = _continued_fraction(10)

# arcsin(x) / (x sqrt(1 - x^2)) = sum of (2n)!!/(2n+1)!! x^2n
ARCSINE = tuple(4.0**n * factorial(n) ** 2 / factorial(2 * n + 1) for n in range(14))


def beta(t: Any) -> tuple[Any, Any, Any]:
    """(1 - y cot y)/t with y = |w|/2, t = |w|^2 < (2 pi)^2, and its first two derivatives by t.

    The coefficient of w^ w^ in dlog of SO(3): 1/12 + t/720 + ... Exact to rounding for |w| <= pi.
    """
    s = t * 0.25
    a, b = BETA_ABOVE, BETA_BELOW
    a1, b1 = _derivative(a), _derivative(b)
    A, B = _horner(a, s), _horner(b, s)
    A1, B1, A2, B2 = (_horner(c, s) for c in (a1, b1, _derivative(a1), _derivative(b1)))
    value = A / B
    first = (A1 - value * B1) / B
    second = (A2 - 2 * first * B1 - value * B2) / B
    return value, first * 0.25, second * 0.0625


def _derivative(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(k * c for k, c in enumerate(coefficients))[1:]


def _turn_over_sine(cosine: Any) -> Any:
    """angle / sin(angle) as a smooth function of the cosine, angle in [0, pi).

    Three square roots give the cosines of a half, a quarter and an eighth of it; the rest is a series in
    z = sin^2(angle/16), which is formed without the cancellation of 1 - cos.
    """
    half = ca.sqrt(0.5 * (1 + cosine))
    quarter = ca.sqrt(0.5 * (1 + half))
    eighth = ca.sqrt(0.5 * (1 + quarter))
    z = (1 - cosine) / (16 * (1 + half) * (1 + quarter) * (1 + eighth))
    return _horner(ARCSINE, z) / (half * quarter * eighth)


# -- on scalars: numbers and CasADi graphs -------------------------------------------------------------


@vec.inlined
def logarithm(R: Matrix, p: Vector) -> Twist:
    """log of a pose as (v, w), for a rotation by less than pi.

    w = angle/sin(angle) vee(R - R')/2, and v = dlog of SO(3) at w, times p.
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
    turned = vec.cross(w, p)
    again = vec.scale(beta(vec.dot(w, w))[0], vec.cross(w, turned))
    return vec.add(vec.sub(p, vec.scale(0.5, turned)), again), w


@vec.inlined
def dlog_transposed(X: Twist, P: Twist, sign: float = 1.0) -> Twist:
    """dlog_X^T of a momentum P = (f, tau); with sign -1 dlog_{-X}^T = Ad_{exp X}^T dlog_X^T.

    The dual-number form of 1 + w^/2 + beta w^ w^: derivative along v in the angular part.
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
    """(A, Q) of dlog_{sign X} = [[A, Q], [0, A]]."""
    v, w = X
    W, V = vec.skew(w), vec.skew(v)
    if all(vec.is_zero(c) for c in w):
        return vec.IDENTITY, _times(-0.5 * sign, V)
    b, b1, _ = beta(vec.dot(w, w))
    square = vec.matmul(W, W)
    A = vec.matadd(vec.matadd(vec.IDENTITY, _times(-0.5 * sign, W)), _times(b, square))
    both = vec.matadd(vec.matmul(W, V), vec.matmul(V, W))
    slope = vec.times(vec.times(2.0, b1), vec.dot(w, v))
    Q = vec.matadd(vec.matadd(_times(-0.5 * sign, V), _times(b, both)), _times(slope, square))
    return A, Q


def momentum_slope(X: Twist, P: Twist) -> tuple[Matrix, Matrix]:
    """(k, K) of d(dlog_X^T P)/dX = [[0, k], [k, K]] for a fixed momentum P = (f, tau)."""
    (v, w), (f, tau) = X, P
    if all(vec.is_zero(c) for c in w):
        w = vec.ZERO
    b, b1, b2 = beta(vec.dot(w, w))
    turn, lever = vec.cross(w, f), vec.add(vec.cross(v, f), vec.cross(w, tau))
    twice, mixed = vec.cross(w, turn), vec.add(vec.cross(v, turn), vec.cross(w, lever))
    W, F, V, T = (vec.skew(a) for a in (w, f, v, tau))
    # derivative of 1/2 w x f + beta w x (w x f) by w
    inner = vec.matadd(vec.skew(turn), vec.matmul(W, F))
    k = _sum(_times(-0.5, F), _times(vec.minus(0.0, b), inner), _outer(vec.scale(2 * b1, twice), w))
    # and its derivative along the dual part (v, tau)
    dual = _sum(vec.skew(lever), vec.matmul(V, F), vec.matmul(W, T))
    along = vec.times(2.0, vec.dot(w, v))
    slope = vec.times(b1, along)
    K = _sum(
        _times(-0.5, T),
        _times(vec.minus(0.0, b), dual),
        _times(vec.minus(0.0, slope), inner),
        _outer(vec.scale(2 * b1, mixed), w),
        _outer(vec.scale(2 * b1, twice), v),
        _outer(vec.scale(vec.times(2 * b2, along), twice), w),
    )
    return k, K


def _times(s: Any, m: Matrix) -> Matrix:
    return tuple(vec.scale(s, row) for row in m)  # type: ignore[return-value]


def _sum(*matrices: Matrix) -> Matrix:
    total = matrices[0]
    for m in matrices[1:]:
        total = vec.matadd(total, m)
    return total


def _outer(a: Vector, b: Vector) -> Matrix:
    return vec.scale(a[0], b), vec.scale(a[1], b), vec.scale(a[2], b)


# -- on arrays of numbers ------------------------------------------------------------------------------


def hat(V: Any) -> np.ndarray:
    """hat(V) (4, 4) of a twist (6,), or the cross-product matrix (3, 3) of a vector (3,)."""
    V = np.asarray(V, float)
    w = V[-3:]
    W = np.array([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])
    if len(V) == 3:
        return W
    result = np.zeros((4, 4))
    result[:3, :3], result[:3, 3] = W, V[:3]
    return result


def pose(R: Any, p: Any) -> np.ndarray:
    """The 4 x 4 matrix of a rotation (3, 3) and a position (3,)."""
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R, p
    return T


def inverse(T: np.ndarray) -> np.ndarray:
    """T^-1 of a pose."""
    R, p = T[:3, :3], T[:3, 3]
    return pose(R.T, -R.T @ p)


def Ad(T: np.ndarray) -> np.ndarray:
    """Ad_T (6, 6): moves twists from T's frame into the frame that T is written in."""
    R, p = T[:3, :3], T[:3, 3]
    return np.block([[R, hat(p) @ R], [np.zeros((3, 3)), R]])


def ad(V: Any) -> np.ndarray:
    """ad_V (6, 6): ad_V W is the bracket of the twists V and W."""
    V = np.asarray(V, float)
    return np.block([[hat(V[3:]), hat(V[:3])], [np.zeros((3, 3)), hat(V[3:])]])


def exp(V: Any) -> np.ndarray:
    """exp of a twist (6,): the pose (4, 4)."""
    V = np.asarray(V, float)
    v, W = V[:3], hat(V[3:])
    a, b, _, _, s = _entire(float(V[3:] @ V[3:]))
    return pose(np.eye(3) + s * W + a * W @ W, v + a * W @ v + b * W @ (W @ v))


def log(T: np.ndarray) -> np.ndarray:
    """The twist (6,) with exp(V) = T and |w| <= pi; at a turn of pi one of the two.

    Through the quaternion with its largest component first, so that no angle is a bad one.
    """
    R, p = np.asarray(T, float)[:3, :3], np.asarray(T, float)[:3, 3]
    K = np.array(  # 4 q q' in the order (scalar, x, y, z)
        [
            [1 + R[0, 0] + R[1, 1] + R[2, 2], R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]],
            [0, 1 + R[0, 0] - R[1, 1] - R[2, 2], R[0, 1] + R[1, 0], R[0, 2] + R[2, 0]],
            [0, 0, 1 - R[0, 0] + R[1, 1] - R[2, 2], R[1, 2] + R[2, 1]],
            [0, 0, 0, 1 - R[0, 0] - R[1, 1] + R[2, 2]],
        ]
    )
    K = np.triu(K) + np.triu(K, 1).T
    row = K[int(np.argmax(np.diag(K)))]
    q = row / np.linalg.norm(row)
    q = q if q[0] >= 0 else -q
    size = float(np.linalg.norm(q[1:]))
    w = q[1:] * (2 * np.arctan2(size, q[0]) / size if size > 1e-8 else 2.0 / q[0])
    W = hat(w)
    v = p - W @ p / 2 + beta(float(w @ w))[0] * W @ (W @ p)
    return np.concatenate([v, w])


def dexp(V: Any) -> np.ndarray:
    """The right-trivialized tangent of exp (6, 6): d/dt exp(V) = hat(dexp_V dV/dt) exp(V)."""
    V = np.asarray(V, float)
    v, w = V[:3], V[3:]
    a, b, a1, b1, _ = _entire(float(w @ w))
    return _dual(v, w, a, b, a1, b1)


def dlog(V: Any) -> np.ndarray:
    """dexp_V^-1 (6, 6) for |w| < 2 pi: dlog_V = sum of B_j/j! ad_V^j ([L] (12))."""
    V = np.asarray(V, float)
    v, w = V[:3], V[3:]
    t = float(w @ w)
    b, b1, _ = beta(t) if t < SERIES else _beta_wide(t)
    return _dual(v, w, -0.5, b, 0.0, b1)


def _beta_wide(t: float) -> tuple[float, float, float]:
    """`beta` in closed form, for turns beyond the continued fraction's best range (second unused)."""
    y = 0.5 * np.sqrt(t)
    g, g1 = y / np.tan(y), (1 / np.tan(y) - y / np.sin(y) ** 2) / (8 * y)
    b = (1 - g) / t
    return b, (-g1 - b) / t, np.nan


def _dual(v: np.ndarray, w: np.ndarray, a: float, b: float, a1: float, b1: float) -> np.ndarray:
    """1 + a w^ + b w^ w^ over dual numbers, a and b functions of |w|^2 with slopes a1 and b1."""
    W, N = hat(w), hat(v)
    A = np.eye(3) + a * W + b * W @ W
    Q = a * N + b * (W @ N + N @ W) + 2 * (w @ v) * (a1 * W + b1 * W @ W)
    return np.block([[A, Q], [np.zeros((3, 3)), A]])


def _entire(t: float) -> tuple[float, float, float, float, float]:
    """(1 - cos x)/t, (x - sin x)/x^3, their slopes by t, and sin x/x, at x^2 = t."""
    if t < SERIES:
        a = [(-1.0) ** k / factorial(2 * k + 2) for k in range(18)]
        b = [(-1.0) ** k / factorial(2 * k + 3) for k in range(18)]
        s = [(-1.0) ** k / factorial(2 * k + 1) for k in range(18)]
        a1, b1 = (_derivative(tuple(c)) for c in (a, b))
        return tuple(float(_horner(c, t)) for c in (a, b, a1, b1, s))  # type: ignore[return-value]
    x = np.sqrt(t)
    sine, cosine = np.sin(x), np.cos(x)
    a, b = (1 - cosine) / t, (x - sine) / (t * x)
    return a, b, (sine / (2 * x) - a) / t, (a / 2 - 1.5 * b) / t, sine / x
