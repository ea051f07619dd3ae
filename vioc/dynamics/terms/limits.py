"""Limits of joints, as rigid stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vioc.dynamics.description.component import Inequality, Meeting, number, variable
from vioc.dynamics.description.numbers import Number
from vioc.errors import ModelError


@dataclass(frozen=True, repr=False)
class JointLimits(Inequality):
    """A configuration variable stays between two rigid, inelastic stops: lower <= q <= upper.

    Parameters
    ----------
    variable : str
    lower, upper : number
        m or rad, lower < upper. Angles of maximal coordinates lie in (-pi, pi]: so must their limits.

    Notes
    -----
    Its two rows are called ``NAME-lower`` and ``NAME-upper``.
    """

    keyword: ClassVar[str] = "JOINT-LIMITS"

    variable: str = variable()
    lower: Number = number()
    upper: Number = number()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not float(self.lower) < float(self.upper):
            raise ModelError(
                f"{self.label()}: expected lower < upper, got {float(self.lower):g} and {float(self.upper):g}"
            )

    def meetings(self, k: Any) -> dict[str, Meeting]:
        q = k.q(self.variable)
        return {"-lower": Meeting(q - k.number(self.lower)), "-upper": Meeting(k.number(self.upper) - q)}
