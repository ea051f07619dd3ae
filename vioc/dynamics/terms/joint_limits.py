"""Limits of joint variables by rigid stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vioc.dynamics.description.component import Inequality, Meeting, number, variable
from vioc.dynamics.description.numbers import Number
from vioc.errors import ModelError


def at_most_whole(item: Any) -> None:
    """Raise `ModelError` if a component's coefficient of restitution exceeds 1."""
    if float(item.restitution) > 1:
        raise ModelError(
            f"{item.label()}: restitution: expected 0 to 1, got {float(item.restitution):g}: an "
            "impact cannot add energy"
        )


@dataclass(frozen=True, repr=False)
class JointLimits(Inequality):
    """Two rigid stops, which keep a configuration variable q between lower and upper limits.

    They are inelastic unless they have a restitution.

    Parameters
    ----------
    variable : str
    lower, upper : number
        m or rad, lower < upper. Angles of maximal coordinates lie in (-pi, pi]; their limits must, too.
    restitution : number
        e of an impact, from 0 (inelastic) to 1, in `ContactVI`.

    Notes
    -----
    Its two constraints are called ``NAME-lower`` and ``NAME-upper``.
    """

    keyword: ClassVar[str] = "JOINT-LIMITS"

    variable: str = variable()
    lower: Number = number()
    upper: Number = number()
    restitution: Number = number(0.0, minimum=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_most_whole(self)
        if not float(self.lower) < float(self.upper):
            raise ModelError(
                f"{self.label()}: expected lower < upper, got {float(self.lower):g} and {float(self.upper):g}"
            )

    def meetings(self, k: Any) -> dict[str, Meeting]:
        q = k.q(self.variable)
        return {"-lower": Meeting(q - k.number(self.lower)), "-upper": Meeting(k.number(self.upper) - q)}
