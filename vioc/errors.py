"""The exceptions of vioc; each subclasses the builtin that a caller would catch."""

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
    """Suppress warnings within the block, for trial steps of line searches."""
    token = _trying.set(True)
    try:
        yield
    finally:
        _trying.reset(token)


def is_tried() -> bool:
    """Return True within a block of `trying`."""
    return _trying.get()


class ModelError(ValueError):
    """A mechanism's description is wrong; the message names the frame or component."""


class ReadError(ModelError):
    """A model text cannot be read.

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
    """Constraints contradict each other or cannot be met from the given configuration."""


class FileFormatError(ValueError):
    """A saved file is not what it should be, or is damaged."""


class CompileError(RuntimeError):
    """C code could not be compiled, or there is no compiler."""


class ChartWarning(UserWarning):
    """A rollout comes near the singularity of a chart of rotations."""


class RedundancyWarning(UserWarning):
    """Redundant constraints are omitted.

    The forces of all constraints together have the least norm.
    """


class SlackWarning(UserWarning):
    """A string would have to push in a rollout, or a contact that is held to pull: a real one lets go."""


class CrossingWarning(UserWarning):
    """Bodies pass through each other, or a joint over its limits, within a step of a rollout."""


class StepWarning(UserWarning):
    """An adaptive rollout cut steps that do not exist at their length."""


class StepError(RuntimeError):
    """A step of an integrator does not exist, or could not be solved.

    Attributes
    ----------
    k : int
        Index of the step that failed.
    residual : float
        The scaled residual where the solver stopped; for a step that was solved but cannot be
        linearized, how much it amplifies an impulse.
    cause : str
        What [S] VII calls it, ``"singular M"`` or ``"singular constraints"``; ``"indefinite M"`` where a
        motion starts with, or comes to, a mass matrix that no bodies have; ``"no convergence"``;
        ``"not finite"`` where a term of the system, or an explicit map, is no number; ``"fold"`` where the
        step is longer than steps from its state exist (docs/maths/midpoint.md, "Which root is the step");
        ``"diverged"`` of a rollout whose energy grew beyond what its forces can feed.
    trajectory : Trajectory or None
        The motion until then, of a rollout that ended with this error.
    length : float or None
        The length up to which steps from this state exist, s, where that is known.
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
        """Return a copy with another message and, if `k` is given, another step index."""
        k = self.k if k is None else k
        return StepError(message, k, self.residual, self.cause, self.trajectory, self.length)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.k, self.residual, self.cause, self.trajectory, self.length)


class OptimizationError(RuntimeError):
    """An optimization or a design problem has no usable answer; the text says what to try.

    Attributes
    ----------
    result : object or None
        The best iterate with its status, if there is one.
    """

    def __init__(self, message: str, result: object | None = None):
        super().__init__(message)
        self.result = result


class StartOutside(ValueError):
    """A given initial state is outside of a limit along the path, where no input can change it."""


class RobotWarning(UserWarning):
    """A robot's file says something that the system does not have; the text says what."""
