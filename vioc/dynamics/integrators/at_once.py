"""Derivatives of many steps of the midpoint integrator, computed by C code (structured.c)."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vioc.compile.libraries import address, load_library
from vioc.dynamics.integrators.conditions import AMPLIFIED

if TYPE_CHECKING:
    from vioc.dynamics.integrators.midpoint_rule import MidpointRule

Long = ctypes.c_longlong
Pointer = ctypes.c_void_p
NO_ROOM = "no memory for the derivatives of a step"


class _Mechanism(ctypes.Structure):
    """Data of a mechanism in the layout of the C structure `mechanism` (structured.c)."""

    _fields_ = (
        *((name, Long) for name in ("n", "rank", "inputs")),
        *((name, Pointer) for name in ("mask", "mass", "rotors", "at", "gain")),
    )


class AtOnce:
    """First and second derivatives of many midpoint steps of a tree of bodies, computed in C.
    The tree must have no constraints, prescribed (kinematic) variables or declared parameters.

    Parameters
    ----------
    rule : MidpointRule
    mask : (n, n)
        1 where the variable of the row is an ancestor of that of the column, or the same.
    F_u : (n, nu)
        Derivative of the generalized forces by the inputs: constant, with one entry in each column.
    """

    def __init__(self, rule: MidpointRule, mask: np.ndarray, F_u: np.ndarray):
        self._rule, self._f = rule, rule.f
        columns = np.argmax(F_u != 0, axis=0)
        self._mask, self._at = np.ascontiguousarray(mask), np.ascontiguousarray(columns, np.int64)
        self._gain = np.ascontiguousarray(F_u[columns, np.arange(F_u.shape[1])], float)

    def first(self, left, right, h, theta, terms, A, B) -> np.ndarray | None:
        """Compute the Jacobians of N steps and write them into the arrays A and B.
        The result (N, n, n) has the derivatives D2 D2 L_d + D2 F+ of the next momenta with respect to the
        next configurations. It is None if the equations of a step are nearly singular.

        Parameters
        ----------
        left, right : (N, n, rank), (N, 4 n, rank)
            Results of `AncestorPairs.factors`. The products of `left` and the transposed `right` are the
            second derivatives of the kinetic energy and gravity terms of the discrete Lagrangian L_d.
        h : (N,)
            Step lengths.
        theta : (0,)
            Declared parameters, of which this mechanism has none.
        terms : four (N, n, n), or None
            Derivatives of the momentum balance and of the next momentum with respect to q_k and q_k+1, due to
            forces and to potentials except gravity.
        A, B : (N, 2n, 2n), (N, 2n, nu)
            Derivatives of the next states with respect to the states, and with respect to the inputs.
        """
        f, n = self._f, self._f.nd
        mass = np.ascontiguousarray(f.lagrangian.mass_scale, float)
        rotors = np.ascontiguousarray(f.lagrangian.rotors(theta), float) if f.system.kinetic else None
        momentum_z, amplified = np.empty((len(h), n, n)), np.empty(len(h))
        more = None
        if terms is not None:
            terms = [np.ascontiguousarray(a) for a in terms]
            more = (Pointer * 4)(*map(address, terms))
        h, shares = np.ascontiguousarray(h), self._shares(h)  # named, so they live during the call
        failed = _library().first_order(
            *(
                ctypes.byref(self._mechanism(left, mass, rotors)),
                len(h),
                address(h),
                address(left),
                address(right),
            ),
            *(more, *map(address, (*shares, A, B, momentum_z, amplified))),
        )
        if failed:
            raise MemoryError(NO_ROOM)
        return momentum_z if (amplified <= AMPLIFIED).all() else None

    def second(self, left, right, h, A, xx, xu, uu) -> None:
        """Compute second derivatives of N steps, contracted with covectors.
        They are derivatives with respect to state x and input u, and include kinetic energy and gravity only.

        Parameters
        ----------
        left, right : (N, n, rank), (N, 4 n, rank)
            Results of `AncestorPairs.factors_along` the adjoint, which has been computed from the covectors.
            The products of `left` and the transposed `right` are the directional derivatives, along the
            adjoint, of the second derivatives of the discrete Lagrangian.
        h : (N,)
            Step lengths.
        A : (N, 2n, 2n)
            Jacobians of the next states with respect to the states.
        xx, xu, uu : (N, 2n, 2n), (N, 2n, nu), (N, nu, nu)
            Arrays to which the results are written.
        """
        minus, A = self._shares(h)[0], np.ascontiguousarray(A)
        failed = _library().second_order(
            *(
                ctypes.byref(self._mechanism(left)),
                len(h),
                *map(address, (left, right, minus, A, xx, xu, uu)),
            ),
        )
        if failed:
            raise MemoryError(NO_ROOM)

    def _mechanism(self, left: np.ndarray, *more: np.ndarray | None) -> _Mechanism:
        mass, rotors = (None if a is None else address(a) for a in (*more, None, None)[:2])
        pointers = address(self._mask), mass, rotors, address(self._at), address(self._gain)
        return _Mechanism(left.shape[1], left.shape[2], len(self._at), *pointers)

    def _shares(self, h: np.ndarray) -> list[np.ndarray]:
        return [np.ascontiguousarray(np.broadcast_to(s, h.shape), float) for s in self._rule.force_shares(h)]


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = load_library([Path(__file__).with_name("structured.c")], "derivatives of midpoint steps")
    library.first_order.argtypes = [Pointer, Long, *[Pointer] * 10]
    library.second_order.argtypes = [Pointer, Long, *[Pointer] * 7]
    return library
