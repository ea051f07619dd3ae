"""Search for physically possible inertias of bodies with given base parameters.
Base parameters are the combinations of inertial parameters that an identification determines.

See (ID-15).
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
from scipy.optimize import least_squares

from vioc.compile.evaluate import Evaluator
from vioc.identification.inertias import body_coordinates, body_numbers, extent

NEAR = 1e4, 1e3, 1e2, 1e1, 1.0  # weights of the initial guess in successive searches, in deviations
TEN = np.array([0, 1, 1, 1, 2, 2, 2, 2, 2, 2])  # powers of length in the ten inertial parameters of a body
ROUNDING = 1e-8  # relative length below which a length in the equations is rounding


def length_of(numbers: np.ndarray, Y: np.ndarray) -> float:
    """Return a typical length of a mechanism, m: the largest extent of its bodies.

    `numbers` (n, 10) are the bodies' inertial parameters. The extent of a body is the RMS distance of its
    mass from the origin of its frame. If all extents are 0, the result is the shortest arm: for each
    variable, the ratio of the columns of masses to those of first moments in the regressor Y (N, nq, n). The
    result is 1 if there are no such columns, since nothing depends on it then.
    """
    columns = Y[..., : 10 * len(numbers)].reshape(*Y.shape[:2], -1, 10)
    mass, first = (np.sqrt((columns[..., i == TEN] ** 2).sum(axis=(0, 2, 3))) for i in (0, 1))
    arms = mass[first > 0] / first[first > 0]
    arms = arms[arms > ROUNDING * arms.max(initial=0.0)]
    largest = max((extent(n) for n in numbers), default=0.0)
    return max(largest, float(arms.min(initial=np.inf)) if len(arms) else 0.0) or 1.0


def physical_set(
    regressor: Any, base: np.ndarray, values: np.ndarray, R: np.ndarray, length: float, reach: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray], float]:
    """Return physically possible inertial parameters for given base parameters.
    The results are all parameters of the regressor, the ten inertial parameters of each body by name, and the
    root mean square deviation, with the weights R, of the base parameters from the given `values`.

    The parameters are near the initial guess. Distances from it are relative to the guessed masses, to
    `length`, and for parameters of forces to the larger of the guess and `reach` (n,). The latter is the
    value that explains all measurements alone; it is needed since the guess of a friction may be 0. See
    (ID-15).
    """
    count, linear_count = len(regressor.bodies), len(regressor.linear)
    z = ca.SX.sym("z", 10)
    ten = body_numbers(z)
    m, c = ten[0], ten[1:4]
    steiner = m * (ca.sumsqr(c) * ca.SX.eye(3) - c @ c.T)
    extra = ca.vertcat(
        steiner[0, 0], steiner[1, 1], steiner[2, 2], steiner[0, 1], steiner[0, 2], steiner[1, 2]
    )
    moments = ca.vertcat(m, m * c, ten[4:10] + extra)
    evaluate = Evaluator(ca.Function("body", [z], [moments, ca.jacobian(moments, z), ten]))
    start = np.concatenate(
        [*(body_coordinates(n, length) for n in regressor.numbers), regressor.start[10 * count :]]
    )
    sizes = np.maximum(np.abs(regressor.start), reach)[10 * count :]
    lengths = np.tile([1.0, *[length] * 9], count)
    scale = np.concatenate([lengths, np.where(sizes > 0, sizes, 1.0)])

    def unpacked(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        J = np.zeros((len(x), len(x)))
        parameters = x.copy()
        if count:
            pi, jacobians, _ = evaluate(x[: 10 * count].reshape(count, 10))
            parameters[: 10 * count] = pi[..., 0].ravel()
            for i in range(count):
                some = slice(10 * i, 10 * i + 10)
                J[some, some] = jacobians[i]
        J[10 * count :, 10 * count :] = np.eye(linear_count)
        return parameters, J

    def gaps(x: np.ndarray) -> np.ndarray:
        return R @ (base @ unpacked(x)[0] - values)

    x = start
    for near in NEAR:  # gradually, since the path along which the initial guess loses its weight is curved
        solution = least_squares(
            lambda x, near: np.concatenate([gaps(x), near * (x - start) / scale]),
            x,
            lambda x, near: np.concatenate([R @ base @ unpacked(x)[1], near * np.diag(1 / scale)]),
            method="lm",
            x_scale=scale,
            max_nfev=500,
            args=(near,),
        )
        x = solution.x
    numbers: Any = evaluate(x[: 10 * count].reshape(count, 10))[2][..., 0] if count else []
    apart = float(np.sqrt(np.mean(gaps(x) ** 2)))
    return unpacked(x)[0], dict(zip(regressor.bodies, map(np.array, numbers), strict=True)), apart
