"""Projection of states and inputs to a trajectory by feedback.
The given states and inputs, called a curve, need not satisfy the equations of the map.

P maps a curve (X, U) to the trajectory x+ = f(x, u), u = U - K difference(X, x) from x_0.
See docs/maths/optimal_control.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.checks import as_count, as_floats, check_array, check_rows
from vioc.control.linear.weights import weight_matrix
from vioc.control.regulators.riccati import riccati
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import state_of
from vioc.runs.trajectory import Trajectory


def project(
    f: OneStepMap,
    X: Any,
    U: Any,
    K: Any,
    x0: Any = None,
    *,
    k0: int = 0,
    dt: Any = None,
) -> Trajectory:
    """Return the trajectory that follows states X and inputs U under feedback.
    The feedback gains are K. The states X and inputs U need not satisfy the equations of the map f.

    Parameters
    ----------
    f : OneStepMap
    X, U, K : (N or N+1, nx), (N, nu), (N, nu, ndx)
    x0 : (nx,), optional
        Start; default X[0].
    dt : float or (N,), optional
        Step lengths, as in `OneStepMap.rollout`.

    Returns
    -------
    Trajectory
        ``u`` are the applied inputs. A trajectory is its own projection.

    Raises
    ------
    StepError
        If a step does not exist.
    """
    start = np.asarray(X, float)[0] if x0 is None else x0
    return f.track(start, X, U, K, k0=k0, dt=dt)


def projection_gains(
    f: OneStepMap, X: Any, U: Any, Q: Any = 1.0, R: Any = 1.0, *, k0: int = 0, dt: Any = None
) -> np.ndarray:
    """Return the gains of a linear-quadratic regulator about states X and inputs U.
    These states and inputs need not satisfy the equations of the map f. Q and R are the weights of the
    regulator.

    The map is linearized at the points (X[k], U[k]).

    Parameters
    ----------
    f : OneStepMap
    X, U : (N or N+1, nx), (N, nu)
    Q, R
        Weights as in `dlqr`; Qf = Q.
    dt : float or (N,), optional
        Step lengths, as in `OneStepMap.rollout`.

    Returns
    -------
    (N, nu, ndx)
    """
    U = check_rows(U, "inputs", f.input_names)
    X = check_rows(X, "states", f.state_names)[: len(U)]
    X = check_array(X, (len(U), f.nx), "states", f.state_names)
    Q = weight_matrix(Q, f.space.error_names, "projection Q")
    R = weight_matrix(R, f.input_names, "projection R", definite=True)
    A, B = f.derivatives.linearize(f.steps_at(X, U, k0=k0, dt=dt))
    return riccati(A, B, Q, R, Q)[0]


def straight_line(x0: Any, xf: Any, steps: int, f: OneStepMap | None = None) -> np.ndarray:
    """Return states on the straight line from x0 to xf, as a guess.
    These states need not satisfy the equations of motion.

    Parameters
    ----------
    x0, xf : (nx,)
    steps : int
        N.
    f : OneStepMap, optional
        If given, the line is straight in the map's errors, retract(x0, s difference(x0, xf)): the short way
        round for wrapped angles, a rotation about one axis for quaternions. Without it entries are
        interpolated.

    Returns
    -------
    (N+1, nx)
    """
    x0, xf = state_of(x0, "x0"), state_of(xf, "xf")
    x0 = check_array(x0, as_floats(x0, "x0").shape, "x0")
    xf = check_array(xf, x0.shape, "xf")
    steps = as_count(steps, "steps")
    if x0.ndim != 1:
        raise ValueError(f"expected states of shape (nx,), got {x0.shape}")
    if f is None:
        return np.linspace(x0, xf, steps + 1)
    x0, xf = f.check_state(x0, "x0"), f.check_state(xf, "xf")
    errors = np.linspace(np.zeros(f.ndx), f.difference(x0, xf), steps + 1)
    return f.retract(np.tile(x0, (steps + 1, 1)), errors)
