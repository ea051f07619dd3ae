"""Limits by name, and constraints as expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc.maps.protocol import OneStepMap

WHERE = ("path", "start", "end")


def limits(value: Any, count: int, what: str, *, number: str) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limits at `count` samples from what a user may write.

    A pair (lower, upper), each a number, an array over the samples or None for no limit; or a number b,
    which means [-b, b] (`number` = "symmetric") or the value b (`number` = "equal").

    Raises
    ------
    ValueError
        Wrong shape, not a number, or lower > upper; says at which sample.
    """
    if isinstance(value, (tuple, list)) and len(value) == 2:
        low, high = value
    elif number == "symmetric":
        if np.ndim(value) == 0 and not float(value) >= 0:
            raise ValueError(f"{what}: a single limit b means [-b, b] and is >= 0, got {value!r}")
        low, high = -np.asarray(value, float), value
    else:
        low = high = value
    sides = []
    for side, name, default in ((low, "lower", -np.inf), (high, "upper", np.inf)):
        try:
            array = np.asarray(default if side is None else side, float)
            array = np.broadcast_to(array, (count,)).copy()
        except (TypeError, ValueError):
            raise ValueError(
                f"{what}: expected a number or {count} of them as {name} limit, got {side!r}"
            ) from None
        if np.isnan(array).any():
            raise ValueError(
                f"{what}: the {name} limit is not a number at k = {int(np.isnan(array).argmax())}"
            )
        sides.append(array)
    bad = np.flatnonzero((sides[0] > sides[1]) | (sides[0] == np.inf) | (sides[1] == -np.inf))
    if len(bad):
        k = int(bad[0])
        at = f" at k = {k}" if count > 1 else ""
        raise ValueError(f"{what}: lower limit {sides[0][k]:g} > upper limit {sides[1][k]:g}{at}")
    return sides[0], sides[1]


@dataclass(frozen=True)
class Constraint:
    """lower <= expression <= upper along a phase, or at one of its ends.

    Parameters
    ----------
    name : str
        What reports and multipliers call it.
    expression : casadi.SX
        In ``f.symbols`` (and `references`), a scalar or a column; of states alone at an end. What depends
        on inputs, multipliers or the step length belongs to a step (N samples), else to a state (N+1).
    lower, upper : float or array over the samples
        Equal for an equation.
    where : {"path", "start", "end"}
    references : sequence of (symbol, values)
        Time-varying data, as in `Cost`: an SX column of s symbols with values (N+1, s).

    Examples
    --------
    >>> Constraint("below", f.quantity("tip:z"), upper=0.5)
    """

    name: str
    expression: ca.SX
    lower: Any = -np.inf
    upper: Any = np.inf
    where: str = "path"
    references: Sequence[tuple[ca.SX, Any]] = ()

    def __post_init__(self) -> None:
        if self.where not in WHERE:
            raise ValueError(
                f"constraint {self.name}: where is one of {', '.join(WHERE)}, got {self.where!r}"
            )
        object.__setattr__(self, "expression", ca.densify(ca.vec(ca.SX(self.expression))))

    @property
    def row_names(self) -> tuple[str, ...]:
        m = self.expression.numel()
        return (self.name,) if m == 1 else tuple(f"{self.name}[{i}]" for i in range(m))

    def symbols(self) -> ca.SX:
        """The reference symbols as one column."""
        return ca.vertcat(ca.SX(0, 1), *(ca.vec(ca.SX(s)) for s, _ in self.references))

    def check(self, f: OneStepMap) -> None:
        """ValueError where the expression is not of the map's symbols."""
        known = ca.vertcat(*f.symbols, self.symbols())
        hashes = {e.element_hash() for e in ca.symvar(known)}
        free = [e.name() for e in ca.symvar(self.expression) if e.element_hash() not in hashes]
        if free:
            raise ValueError(
                f"constraint {self.name}: {free[0]!r} is neither a symbol of this map nor a reference"
            )
        if self.where != "path" and self.by_step(f):
            raise ValueError(
                f"constraint {self.name}: at the {self.where} it may depend on the state only, it depends on "
                "an input, a multiplier or the step length; give a path constraint limits over time"
            )

    def by_step(self, f: OneStepMap) -> bool:
        """Whether it belongs to a step rather than a state."""
        s = f.symbols
        return bool(ca.depends_on(self.expression, ca.vertcat(s.u, s.multipliers, s.dt)))

    def at(self, where: str) -> Constraint:
        return Constraint(self.name, self.expression, self.lower, self.upper, where, self.references)


def obstacle(
    f: OneStepMap, frame: str, centre: Any, radius: float, *, axes: str = "xyz", name: str | None = None
) -> Constraint:
    """A frame's origin stays outside of a ball, or of a cylinder along the axes that are left out.

    Parameters
    ----------
    f : OneStepMap
        Of a mechanism: it knows ``FRAME:x``.
    frame : str
    centre : (d,) or (N+1, d)
        m, along `axes`; rows over time for an obstacle that moves.
    radius : float
        m.
    axes : str
        ``"xz"`` for a planar mechanism.

    Returns
    -------
    Constraint
        |p - c|^2 >= radius^2, smooth at c too.
    """
    where = ca.vertcat(*(f.quantity(f"{frame}:{axis}") for axis in axes))
    centre = np.asarray(centre, float)
    if centre.shape[-1:] != (len(axes),) or centre.ndim > 2 or not np.isfinite(centre).all():
        raise ValueError(f"obstacle: expected a centre of {len(axes)} numbers along {axes}, got {centre!r}")
    if not radius > 0:
        raise ValueError(f"obstacle: expected a radius > 0, got {radius!r}")
    label = name or f"clearance.{frame}"
    if centre.ndim == 1:
        return Constraint(label, ca.sumsqr(where - ca.DM(centre)), lower=radius**2)
    c = ca.SX.sym("centre", len(axes))
    return Constraint(label, ca.sumsqr(where - c), lower=radius**2, references=((c, centre),))
