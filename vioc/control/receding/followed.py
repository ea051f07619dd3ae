"""Reference of a predictive controller: a trajectory or an equilibrium.
It includes the linearization of the map about the reference, and the weights of the cost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vioc.checks import as_count
from vioc.control.linear.manifold import tangent_bases, tangent_basis
from vioc.control.regulators.lqr import Regulator, SteadyRegulator


class Takeover(NamedTuple):
    """Change from a reference trajectory to a constant state, at the trajectory's end.

    Attributes
    ----------
    sample : int
        Number N of the sample, counted from the reference's first one.
    offset : (ndx,)
        Error from the constant state minus the error from the trajectory's last state.
    Qf, P : (ndx, ndx)
        Matrices of the cost-to-go: Qf for the error from the trajectory's last state, P for the error from
        the constant state.
    """

    sample: int
    offset: np.ndarray
    Qf: np.ndarray
    P: np.ndarray


class Reference(NamedTuple):
    """Reference states and inputs of a regulator.
    The fields include the linearization of the map about the reference, and the weights of the cost.

    Attributes
    ----------
    A, B : (M, ndx, ndx), (M, ndx, nu)
    X, U : (M+1, nx), (M, nu)
    P : (M+1, ndx, ndx)
        Cost-to-go.
    Q, S : (M, ndx, ndx), (M, ndx, nu)
        Weights; restricted to the constraint manifold if the regulator is.
    onto : (M, ndx, ndx)
        Projection of errors onto those that the regulator feeds back.
    k0 : int
        Sample of the first row.
    after : str
        After the last row, the reference "ends"; or it "holds": the last row is repeated; or it "repeats":
        all rows are repeated.
    takeover : Takeover or None
        Change to a constant reference at the trajectory's end, if there is one.
    """

    A: np.ndarray
    B: np.ndarray
    X: np.ndarray
    U: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    S: np.ndarray
    onto: np.ndarray
    k0: int
    after: str
    takeover: Takeover | None = None

    def window(self, k: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the reference's samples and steps in a horizon.
        The horizon begins at sample k and has at most `horizon` steps.

        The indices are those of the samples k .. k + n and of the n steps between them. The number n is less
        than `horizon` if the reference ends before. Raises ValueError if the reference has no sample k.
        """
        i, last = as_count(k, "k", 0) - self.k0, len(self.U)
        if i < 0 or (i >= last and self.after == "ends"):
            raise ValueError(f"the reference has samples {self.k0} .. {self.k0 + last - 1}, asked at {k}")
        samples = i + np.arange(horizon + 1)
        if self.after == "repeats":
            return samples % last, samples[:-1] % last
        samples = np.minimum(samples, last) if self.after == "holds" else samples[samples <= last]
        return samples, np.minimum(samples[:-1], last - 1)


def reference(regulator: Regulator | SteadyRegulator, S: np.ndarray | None = None) -> Reference:
    """Return the reference of a regulator: a trajectory or an equilibrium.
    S is the weight of products of state deviations and inputs in the cost, by default that of the regulator.
    Raises ValueError for unequal steps.
    """
    f = regulator.map
    if isinstance(regulator, SteadyRegulator):
        A, B = f.linearize(regulator.x, regulator.u)
        X, P = np.tile(regulator.x, (2, 1)), np.tile(regulator.P, (2, 1, 1))
        T = tangent_basis(f, regulator.x, idle=True) if regulator.manifold else np.eye(f.ndx)
        onto = (T @ T.T)[None]
        weights = _weights(regulator, S, onto)
        return Reference(A[None], B[None], X, regulator.u[None], P, *weights, onto, 0, "holds")
    run, end, n = regulator.reference, regulator.end, len(regulator.reference)
    after = regulator.as_law().after
    A, B = f.linearize_trajectory(run)
    T = tangent_bases(f, run, idle=True)[:-1] if regulator.manifold else np.tile(np.eye(f.ndx), (n, 1, 1))
    onto = T @ np.swapaxes(T, 1, 2)
    Q, S_run = _weights(regulator, S, onto)
    X, U, P = run.x, run.u, regulator.P
    if end is None:
        return Reference(A, B, X, U, P, Q, S_run, onto, run.k0, after)
    tail = reference(end, S)
    run_parts, end_parts = (A, B, U, Q, S_run, onto), (tail.A, tail.B, tail.U, tail.Q, tail.S, tail.onto)
    A, B, U, Q, S_run, onto = map(np.concatenate, zip(run_parts, end_parts, strict=True))
    X, P = np.concatenate([X[:-1], tail.X]), np.concatenate([P[:-1], tail.P])
    takeover = Takeover(n, f.difference(end.x, run.x[-1]), regulator.P[-1], end.P)
    return Reference(A, B, X, U, P, Q, S_run, onto, run.k0, after, takeover)


def _weights(
    regulator: Regulator | SteadyRegulator, S: np.ndarray | None, onto: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights Q and S of a quadratic cost, for all steps of the reference.
    Q is the weight of state deviations, and S that of products of state deviations and inputs. The
    regulator's Q, and the argument S (by default the regulator's S), are restricted by the projections `onto`
    to the state deviations that the regulator feeds back. Other deviations have no weight.
    """
    f, Q = regulator.map, regulator.Q
    S = regulator.S if S is None else S
    Q = onto @ (Q if Q.ndim == 2 else Q[: len(onto)]) @ onto
    return Q, np.zeros((len(onto), f.ndx, f.nu)) if S is None else onto @ S
