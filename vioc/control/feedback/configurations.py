"""Observer of momenta from configurations by the discrete Legendre transform ([S] II)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vioc.checks import check_array
from vioc.control.feedback.measurement import Measurement
from vioc.maps.protocol import OneStepMap


class ConfigurationEstimate(NamedTuple):
    """State of an observer with its last configuration and input."""

    x: np.ndarray
    P: None = None
    q: np.ndarray | None = None
    u: np.ndarray | None = None


class ConfigurationObserver:
    """Exact state from two measured configurations and the input between them.

        p_k = D2 L_d(q_{k-1}, q_k) + F+(q_{k-1}, q_k, u_{k-1})

    Parameters
    ----------
    f : OneStepMap
        Map with ``state_from_configurations(q0, q1, u, k)``, whose states begin with the nq configurations.
    covariance : float, (nq,), (nq, nq) or dict of str to float
        Covariance of the measured configurations, for simulations with noise only. The observer amplifies
        noise by M / dt.

    Attributes
    ----------
    measurement : Measurement
        Measurement of all configurations.

    Raises
    ------
    TypeError
        If the map has no ``state_from_configurations``.
    """

    def __init__(self, f: OneStepMap, covariance: Any = 1e-12):
        if not f.configurations:
            raise TypeError(
                f"{type(f).__name__} has no state_from_configurations: the momentum of its state does not "
                "follow from two configurations; use a Kalman filter"
            )
        self.map = f
        self.measurement = Measurement(f, f.configurations, covariance)

    def state(self, q0: Any, q1: Any, u: Any = None, k: int = 1) -> np.ndarray:
        """State at sample k from configurations q0 at k - 1 and q1 at k.

        The input u acts in step k - 1. Shapes (nq,), (nq,), (nu,) -> (nx,). Angles in the map's ``wrap`` may
        jump by whole turns from q0 to q1.
        """
        f, nq = self.map, len(self.map.configurations)
        q0, q1 = (check_array(q, (nq,), "configuration", f.state_names[:nq]) for q in (q0, q1))
        rest = np.zeros(f.nx - nq)
        d = f.difference(np.concatenate([q0, rest]), np.concatenate([q1, rest]))[:nq]
        x = f.state_from_configurations(q0, q0 + d, u, k - 1)
        return np.concatenate([q1, x[nq:]])

    def start(self, x: np.ndarray, P: Any = None) -> ConfigurationEstimate:
        """Estimate before the first measurement; its momentum is used at the first sample."""
        return ConfigurationEstimate(self.map.check_state(x, "estimate"))

    def correct(self, k: int, estimate: ConfigurationEstimate, y: np.ndarray) -> ConfigurationEstimate:
        """Estimate at sample k from its configurations y (nq,) and the previous ones.

        If one of them is missing (NaN), the map's step predicts all.
        """
        if np.isnan(y).any():
            x = estimate.x if estimate.q is None else self.map.step(estimate.x, estimate.u, k - 1)
            return ConfigurationEstimate(x, None, x[: len(y)])
        if estimate.q is None:
            x = np.concatenate([y, estimate.x[len(y) :]])
        else:
            x = self.state(estimate.q, y, estimate.u, k)
        return ConfigurationEstimate(x, None, y)

    def predict(self, k: int, estimate: ConfigurationEstimate, u: np.ndarray) -> ConfigurationEstimate:
        """Store the input of step k; the next measurement determines the state."""
        return estimate._replace(u=u)

    def __repr__(self) -> str:
        return f"ConfigurationObserver({', '.join(self.measurement.names)})"
