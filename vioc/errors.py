"""Exceptions and warnings of vioc, each exception a subclass of a builtin exception."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vioc.runs.trajectory import Trajectory

_trying: ContextVar[bool] = ContextVar("trying", default=False)


@contextmanager
def trying() -> Iterator[None]:
    """Context manager that suppresses the warnings of trial steps, such as the steps of a line search."""
    token = _trying.set(True)
    try:
        yield
    finally:
        _trying.reset(token)


def is_tried() -> bool:
    """Return whether the code runs within a block of `trying`, which suppresses warnings."""
    return _trying.get()


class ModelError(ValueError):
    """Error in the description of a mechanism; the message names the frame or component."""


class ReadError(ModelError):
    """Error for a text of a mechanism's description that cannot be parsed.

    Attributes
    ----------
    source : str
        File name, or ``"<text>"``.
    line, column : int
        Position of the error, counted from 1.
    """

    def __init__(self, message: str, line: int, column: int, source: str = "<text>"):
        super().__init__(f"{source}:{line}:{column}: {message}")
        self.reason = message
        self.line = line
        self.column = column
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.line, self.column, self.source)


class ConstraintError(ModelError):
    """Error for constraints that contradict each other or that a state violates.

    It is also raised if they cannot be satisfied from the given configuration.
    """


class FileFormatError(ValueError):
    """Error for a saved file that has an unsupported format or is damaged."""


class CompileError(RuntimeError):
    """Error for C code that cannot be compiled, or for a missing compiler."""


class ChartWarning(UserWarning):
    """Warning that a rollout comes near a singularity of Euler angles."""


class ConstraintWarning(UserWarning):
    """Warning that a rollout starts where constraints are violated.

    The first step of a variational integrator moves the mechanism onto the constraint manifold.
    """


class RedundancyWarning(UserWarning):
    """Warning that a map omits constraints because other constraints imply them.

    The forces of all constraints together have the least norm.
    """


class SlackWarning(UserWarning):
    """Warning that a rollout has a string in compression or a closed contact in tension.

    A real string or contact would let go.
    """


class CrossingWarning(UserWarning):
    """Warning that bodies pass through each other within a step of a rollout.

    It is also issued if a joint passes its limits.
    """


class StepWarning(UserWarning):
    """Warning that a rollout with adaptive steps shortened steps that had no solution."""


class StepError(RuntimeError):
    """Error for an integrator's step that has no solution or whose solution is not found.

    Attributes
    ----------
    k : int
        Index of the step that failed.
    residual : float
        Scaled residual at which the solver stopped; for a step that was solved but cannot be linearized, its
        amplification of an impulse.
    cause : str
        ``"singular M"`` if the reciprocal condition of M_k+1, in units of a typical mass, is below 1e-10;
        ``"singular constraints"`` if Dh has dependent or zero rows, to 1e-9, or the branch ends within 1e-4
        of such a position; ``"indefinite M"`` if a motion starts with, or reaches, a mass matrix that no real
        bodies have; ``"no convergence"`` if the cause is unknown;
        ``"not finite"`` if a term of the system, or an explicit map, is NaN or infinite; ``"fold"`` if the
        step is longer than any step from its state (docs/maths/midpoint.md, "Which root is the step");
        ``"diverged"`` for a rollout whose energy grew more than its forces can supply.
    trajectory : Trajectory or None
        Motion before the failed step of a rollout.
    length : float or None
        Length up to which steps from this state exist, s, if it is known.
    """

    def __init__(
        self,
        message: str,
        k: int,
        residual: float,
        cause: str,
        trajectory: Trajectory | None = None,
        length: float | None = None,
    ):
        super().__init__(message)
        self.k = k
        self.residual = residual
        self.cause = cause
        self.trajectory = trajectory
        self.length = length

    def saying(self, message: str, k: int | None = None) -> StepError:
        """Return a copy of the error with another message, and another step index if given."""
        k = self.k if k is None else k
        return StepError(message, k, self.residual, self.cause, self.trajectory, self.length)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.k, self.residual, self.cause, self.trajectory, self.length)


class OptimizationError(RuntimeError):
    """Error for an optimization or design problem whose solver found no usable solution.

    The text says what to try.

    Attributes
    ----------
    result : object or None
        The best iterate with its status, if there is one.
    """

    def __init__(self, message: str, result: object | None = None):
        super().__init__(message)
        self.result = result


class StartOutside(ValueError):
    """Error for an initial state of an optimal control problem that violates a path constraint."""


class RobotWarning(UserWarning):
    """Warning that elements of a robot file are not supported; the message names them."""
