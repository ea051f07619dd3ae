"""Observer that computes momenta from measured configurations.
The momenta follow from two configurations by the discrete Legendre transform.

See [S] II.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.control.feedback.measurement import Measurement
from vioc.control.regulators.formulas import Measured, ObserverFormula
from vioc.maps.protocol import OneStepMap


class ConfigurationEstimate(NamedTuple):
    """Estimated state, with the last measured configuration and input."""

    x: np.ndarray
    P: None = None
    q: np.ndarray | None = None
    u: np.ndarray | None = None


class ConfigurationObserver:
    """Observer that computes the state from two successive measured configurations.

    The momentum follows from the configurations and the input between them:

        p_k = D2 L_d(q_{k-1}, q_k) + F+(q_{k-1}, q_k, u_{k-1})

    It is exact without noise. L_d is the discrete Lagrangian and F+ the discrete force at the end of the
    step.

    Parameters
    ----------
    f : OneStepMap
        A map with ``state_from_configurations(q0, q1, u, k)``; its states begin with the nq configurations.
    covariance : float, (nq,), (nq, nq) or dict of str to float
        Covariance of the measured configurations, only for a simulation with noise. The observer amplifies
        this noise by M / dt, with the mass matrix M.

    Attributes
    ----------
    measurement : Measurement
        Measurement of all configurations.

    Raises
    ------
    TypeError
        If the map has no `state_from_configurations`.
    """

    def __init__(self, f: OneStepMap, covariance: Any = 1e-12):
        if not f.mechanism.configurations:
            raise TypeError(
                f"{type(f).__name__} has no state_from_configurations: the momentum of its state does not "
                "follow from two configurations; use a Kalman filter"
            )
        self.map = f
        self.measurement = Measurement(f, f.mechanism.configurations, covariance)

    def state(self, q0: Any, q1: Any, u: Any = None, k: int = 1) -> np.ndarray:
        """Return the state at sample k from two successive configurations.
        q0 is the configuration at sample k - 1, q1 that at sample k.

        u is the input of step k - 1. Shapes (nq,), (nq,), (nu,) -> (nx,). Angles in the map's ``wrap`` may
        jump by turns from q0 to q1.
        """
        f, nq = self.map, len(self.map.mechanism.configurations)
        q0, q1 = (check_array(q, (nq,), "configuration", f.state_names[:nq]) for q in (q0, q1))
        rest = np.zeros(f.nx - nq)
        d = f.difference(np.concatenate([q0, rest]), np.concatenate([q1, rest]))[:nq]
        x = f.state_from_configurations(q0, q0 + d, u, k - 1)
        return np.concatenate([q1, x[nq:]])

    def start(self, x: np.ndarray, P: Any = None) -> ConfigurationEstimate:
        """Return the estimate of the state before the first measurement.

        The first measurement replaces the configuration of the state x and keeps its momentum.
        """
        return ConfigurationEstimate(self.map.check_state(x, "estimate"))

    def correct(self, k: int, estimate: ConfigurationEstimate, y: np.ndarray) -> ConfigurationEstimate:
        """Return the state at sample k from the last two measured configurations.

        y (nq,) are the configurations at sample k. If one of them is missing (NaN), a step of the map from
        the last estimate predicts the state instead.
        """
        y = self.measurement.reading(y)
        if np.isnan(y).any():
            x = estimate.x if estimate.q is None else self.map.step(estimate.x, estimate.u, k - 1)
            return ConfigurationEstimate(x, None, x[: len(y)])
        if estimate.q is None:
            x = np.concatenate([y, estimate.x[len(y) :]])
        else:
            x = self.state(estimate.q, y, estimate.u, k)
        return ConfigurationEstimate(x, None, y)

    def predict(self, k: int, estimate: ConfigurationEstimate, u: np.ndarray) -> ConfigurationEstimate:
        """Store the input of step k, for the state estimate at the next measurement."""
        return estimate._replace(u=u)

    def formula(self) -> ObserverFormula | None:
        """Return the observer as symbolic expressions, for fast simulation.
        Return None if the mechanism has no symbolic expression of its momentum.
        """
        f, nq = self.map, len(self.measurement.names)
        recovery = f.mechanism.recovery()
        if recovery is None:
            return None

        def expression(x: ca.MX, memory: ca.MX, measured: Measured, numbers: ca.MX) -> tuple[ca.MX, ca.MX]:
            q0, u = ca.vertsplit(memory, [0, nq, nq + f.nu])
            y, rest = measured.y, ca.DM.zeros(f.nx - nq)
            d = f.space.difference_expression(ca.vertcat(q0, rest), ca.vertcat(y, rest))[:nq]
            momenta = recovery(q0, q0 + d, u, measured.t_before, measured.dt, measured.parameters)
            return ca.vertcat(y, momenta), ca.vertcat(y, u)

        return ObserverFormula(
            "configurations",
            expression,
            lambda k, n: np.zeros(0),
            stored=lambda estimate: np.concatenate([estimate.q, estimate.u]),
            restored=lambda k, x, memory: ConfigurationEstimate(x, None, memory[:nq], memory[nq:]),
            ahead=lambda memory, u, *_: ca.vertcat(memory[:nq], u),
            covariances=lambda k, memories: None,
            holds=lambda k, estimate: estimate.q is not None and estimate.u is not None,
            predicts=False,
        )

    def __repr__(self) -> str:
        return f"ConfigurationObserver({', '.join(self.measurement.names)})"
