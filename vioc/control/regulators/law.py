"""Feedback laws, which compute the inputs of a closed loop at every sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import casadi as ca
import numpy as np

from vioc.checks import as_count, check_array
from vioc.control.regulators.formulas import Estimate, LawFormula
from vioc.control.regulators.sampling import PerfectObserver, Sampler
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory

ONE_STEP = "a closed loop runs at one step: resample, or follow it with regulator.rollout"


class Law:
    """Feedback law: a function from time index k and state x to the control input.

    A law with a memory overrides `start` and `apply`; the memory is passed, not stored in the object.
    """

    def start(self) -> Any:
        """Return the initial memory of a feedback law, before the first sample."""
        return None

    def apply(self, k: int, x: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
        """Return the control input at sample k, and the law's updated memory."""
        return self(k, x), memory

    def formula(self) -> LawFormula | None:
        """Return the law as symbolic expressions for fast simulation.
        Return None if the law has no symbolic form.
        """
        return None

    def rollout(self, x0: Any, steps: int, *, k0: int = 0) -> Trajectory:
        """Simulate the feedback law with the map for which it was designed.
        The closed loop starts from the state x0 (nx,).

        Raises
        ------
        StepError
            If a step does not exist.
        """
        f: OneStepMap = self.map  # type: ignore[attr-defined]
        x, free = f.check_state(x0, "initial state"), np.full(f.nu, np.inf)
        loop = Sampler(f, self, PerfectObserver(), None, -free, free)
        return loop.trajectory(loop.run(x, Estimate(x), as_count(steps, "steps"), k0))

    def __call__(self, k: int, x: Any) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} has a memory: use start() and apply()")


@dataclass(frozen=True)
class StateLaw(Law):
    """Linear state feedback u = U[k] - K[k] difference(X[k], x) about a reference.
    The states X, inputs U and gains K may vary in time.

    See [S] (37).

    Attributes
    ----------
    map : OneStepMap
    X, U, K : (N, nx), (N, nu), (N, nu, ndx)
    after : str
        After sample N - 1 the law "ends", "holds" its last gain forever, or "repeats" all gains.
    k0 : int
        Sample of the first gain.
    """

    map: OneStepMap = field(repr=False)
    X: np.ndarray
    U: np.ndarray
    K: np.ndarray
    after: Literal["ends", "holds", "repeats"] = "ends"
    k0: int = 0

    def __post_init__(self) -> None:
        f, n = self.map, len(self.U)
        for name, shape in (("X", (n, f.nx)), ("U", (n, f.nu)), ("K", (n, f.nu, f.ndx))):
            object.__setattr__(self, name, check_array(getattr(self, name), shape, name))

    def row(self, k: int) -> int:
        """Return the index of the feedback gain for sample k.
        Raise ValueError if there is no gain, because the sample is outside of the horizon.
        """
        i = k - self.k0
        if i >= len(self.U) and self.after != "ends":
            return len(self.U) - 1 if self.after == "holds" else i % len(self.U)
        if not 0 <= i < len(self.U):
            raise ValueError(
                f"the law is given for samples {self.k0} .. {self.k0 + len(self.U) - 1}, asked at {k}; "
                "regulator.hold() goes on at the end of a trajectory"
            )
        return i

    def __call__(self, k: int, x: Any) -> np.ndarray:
        i = self.row(k)
        return self.U[i] - self.K[i] @ self.map.difference(self.X[i], x)

    @property
    def x(self) -> np.ndarray | None:
        """Last reference state (nx,) if the law keeps its last gain forever, else None."""
        return self.X[-1] if self.after == "holds" else None

    def formula(self) -> LawFormula:
        f, sizes = self.map, np.cumsum([0, self.map.nx, self.map.nu, self.map.nu * self.map.ndx])

        def expression(x: ca.SX, memory: ca.SX, numbers: ca.SX) -> tuple[ca.SX, ca.SX]:
            x_d, u_d, K = ca.vertsplit(numbers, sizes.tolist())
            return u_d - ca.reshape(K, f.ndx, f.nu).T @ f.space.difference_expression(x_d, x), memory

        table = np.concatenate([self.X, self.U, self.K.reshape(len(self.U), -1)], axis=1)

        def rows(k: int, n: int) -> np.ndarray:
            steady = len(table) == 1 and self.after != "ends" and k >= self.k0
            return table[0] if steady else table[[self.row(i) for i in range(k, k + n)]]

        return LawFormula(("gains", f.nx, f.nu, f.wrap, type(f)), expression, rows)

    def __repr__(self) -> str:
        n = len(self.U)
        after = {"ends": "", "holds": ", then held", "repeats": ", again and again"}[self.after]
        kind = "steady" if self.after == "holds" and n == 1 else f"{n} samples" + after
        return f"StateLaw({kind}; gains {self.K.shape[1]} x {self.K.shape[2]})"


def as_law(regulator: Any) -> Law:
    """Return the feedback law of a regulator, or of any object with ``as_law``.

    A law is returned itself.
    """
    if isinstance(regulator, Law):
        return regulator
    if hasattr(regulator, "as_law"):
        return regulator.as_law()
    raise TypeError(f"expected a regulator or a law, got {type(regulator).__name__}")
