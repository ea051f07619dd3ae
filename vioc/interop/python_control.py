"""Conversion of maps and gains to the package python-control, and back.

It needs the extra ``vioc[interop]``. Signals are matched by name, never by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from vioc.checks import check_array, near_misses
from vioc.control.linear.linear_system import linear_system, output_jacobians
from vioc.control.regulators.lqr import SteadyRegulator
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap


def state_space(f: OneStepMap, about: Any, outputs: Sequence[str] | None = None) -> Any:
    """Linearize a map about an equilibrium; return a ``control.StateSpace``.

    It is a discrete system.

    Parameters
    ----------
    f : OneStepMap
    about : equilibrium (x, u), or an object with `x` (nx,) and `u` (nu,)
    outputs : names of quantities of the state, optional
        Default: the errors of all states.

    Returns
    -------
    control.StateSpace
        Of the errors from the equilibrium, with dt and the map's names.

    Raises
    ------
    ImportError
        Without python-control.
    ValueError
        Not an equilibrium; a quantity that depends on inputs.
    """
    control = _control()
    system = linear_system(f, about, manifold=False)
    if not system.steady:
        raise ValueError(
            "state_space: expected an equilibrium (x, u), got a trajectory: python-control has no LTV"
        )
    names = f.space.error_names
    outputs = names if outputs is None else tuple(outputs)
    C = output_jacobians(f, outputs, system.x[:1])[0]
    D = np.zeros((len(C), f.nu))
    labels = dict(states=_labels(names), inputs=_labels(f.input_names), outputs=_labels(outputs))
    return control.ss(system.A[0], system.B[0], C, D, f.dt, **labels)


def nonlinear_system(f: OneStepMap, outputs: Sequence[str] | None = None) -> Any:
    """Return a nonlinear map as a ``control.NonlinearIOSystem`` in discrete time.

    Parameters
    ----------
    f : OneStepMap
        May contain a law.
    outputs : names of quantities of the state, optional
        Default: all states.

    Returns
    -------
    control.NonlinearIOSystem
        With dt and the map's names. Its parameters are those of `f`. Inputs are constant over a step; the
        step from time t is that of sample k = round(t / dt).

    Raises
    ------
    ImportError
        Without python-control.
    ValueError
        A quantity that depends on inputs.
    """
    control = _control()
    names = f.state_names if outputs is None else tuple(outputs)
    values = ca.vertcat(*(f.quantity(name) for name in names))
    rest = ca.vertcat(f.symbols[1], f.symbols[2])
    if rest.numel() and ca.depends_on(values, rest):
        raise ValueError(f"nonlinear_system: expected quantities of the state, got {', '.join(names)}")
    read = ca.Function("outputs", [f.symbols[0], f.symbols[3], f.symbols[4]], [ca.densify(values)])
    theta = np.array(list(f.parameters.values()), float)

    def update(t: float, x: Any, u: Any, params: Any) -> np.ndarray:
        return f.step(np.array(x, float), np.array(u, float).reshape(f.nu), round(t / f.dt))

    def output(t: float, x: Any, u: Any, params: Any) -> np.ndarray:
        return np.array(read(np.array(x, float), theta, f.dt)).ravel()

    labels = dict(states=_labels(f.state_names), inputs=_labels(f.input_names), outputs=_labels(names))
    return control.nlsys(update, output, dt=f.dt, **labels)


def gain_system(loop: Any) -> Any:
    """Return the feedback -K dx of a regulator as a static ``control.StateSpace``.
    K is the gain matrix, and dx the deviation of the state from the equilibrium.

    Inputs are states, outputs are inputs of the map. ``control.interconnect([state_space(f, eq),
    gain_system(loop)], ...)`` closes the loop by names.
    """
    control = _control()
    f, K = loop.map, np.asarray(loop.K, float)
    if K.ndim != 2:
        raise ValueError("gain_system: the gains vary with time; python-control has no LTV systems")
    return control.ss(
        [], [], [], -K, f.dt, inputs=_labels(f.space.error_names), outputs=_labels(f.input_names)
    )


def regulator(
    f: OneStepMap,
    about: Any,
    K: Any,
    *,
    states: Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
) -> SteadyRegulator:
    """Return a regulator of a map, with a gain K that another program computed.

    For example from ``control.dlqr`` or ``control.place``.

    Parameters
    ----------
    f : OneStepMap
    about : equilibrium (x, u), or an object with `x` and `u`
    K : (nu, ndx)
        u = u_d - K dx.
    states, inputs : names, optional
        Names of columns and rows of K, if the order is not the map's (``system.state_labels``).

    Returns
    -------
    SteadyRegulator
        P solves the Lyapunov equation P = (A - BK)'P(A - BK) + I + K'K.

    Raises
    ------
    ValueError
        Wrong names or shapes.
    OptimizationError
        If the gain does not stabilize the linearization; gives the largest pole.
    """
    system = linear_system(f, about, manifold=False)
    if not system.steady:
        raise ValueError("regulator: expected an equilibrium (x, u), got a trajectory")
    K = check_array(K, (f.nu, f.ndx), "K")
    K = K[_order(inputs, f.input_names, "inputs")][:, _order(states, f.space.error_names, "states")]
    closed = system.A[0] - system.B[0] @ K
    poles = np.linalg.eigvals(closed)
    if not np.abs(poles).max() < 1:
        raise OptimizationError(
            f"regulator: with this gain the largest pole is {np.abs(poles).max():.6g}; is it for "
            "u = u_d - K dx, in discrete time, with this dt and this order of states?"
        )
    Q, R = np.eye(f.ndx), np.eye(f.nu)
    P = solve_discrete_lyapunov(closed.T, Q + K.T @ R @ K)
    return SteadyRegulator(f, system.x[0], system.u[0], K, P, Q, R, poles)


def map_arguments(system: Any) -> dict[str, Any]:
    """Convert a ``control.StateSpace`` in discrete time to arguments of `CasadiMap`.

    Returns
    -------
    dict
        ``vioc.CasadiMap(**map_arguments(system))`` is x+ = A x + B u with the system's names.

    Raises
    ------
    ValueError
        Not discrete, or without a step length in seconds (dt = True).
    """
    dt = system.dt
    if dt is None or dt is True or not dt > 0:
        raise ValueError(f"map_arguments: expected a discrete system with dt > 0 in seconds, got dt = {dt!r}")
    A, B = np.asarray(system.A, float), np.asarray(system.B, float)
    x, u = ca.SX.sym("x", A.shape[0]), ca.SX.sym("u", B.shape[1])
    x_next = ca.sparsify(ca.DM(A)) @ x + ca.sparsify(ca.DM(B)) @ u
    return {
        "function": ca.Function("state_space", [x, u], [ca.densify(x_next)]),
        "dt": float(dt),
        "state_names": tuple(system.state_labels),
        "input_names": tuple(system.input_labels),
    }


def _order(given: Sequence[str] | None, names: tuple[str, ...], what: str) -> np.ndarray:
    """Return the index of each of the `names` in the list `given`.
    The list contains the same names in any order. If the list is None, the indices are 0, 1, 2 and so on.
    """
    if given is None:
        return np.arange(len(names))
    labels = list(_labels(names))
    given = [n if n in labels else _label(n) for n in given]
    if sorted(given) != sorted(labels):
        unknown = [n for n in given if n not in labels]
        hint = f"unknown {unknown[0]!r}; {near_misses(unknown[0], names)}" if unknown else f"got {given}"
        raise ValueError(f"{what}: expected each of {', '.join(names)} once; {hint}")
    return np.array([given.index(n) for n in labels])


def _labels(names: Sequence[str]) -> list[str]:
    return [_label(n) for n in names]


def _label(name: str) -> str:
    """Convert a quantity's name for python-control, with underscores for dots."""
    return name.replace(".", "_")


def _control() -> Any:
    try:
        import control
    except ImportError:
        raise ImportError("this needs python-control: pip install 'vioc[interop]' (or control)") from None
    return control
