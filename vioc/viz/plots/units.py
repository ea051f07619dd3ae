"""Units of named quantities, and labels of axes with units."""

from __future__ import annotations

from typing import Any

KINDS = {
    "m": "position",
    "rad": "angle",
    "m/s": "velocity",
    "rad/s": "angular velocity",
    "kg m/s": "momentum",
    "kg m^2/s": "angular momentum",
    "N": "force",
    "N m": "torque",
    "N s": "impulse",
    "N/m": "multiplier",
    "N s/m": "multiplier",
    "J": "energy",
}
# Unit of a constraint's h; the unit of its multiplier follows, because h times a force is work
VALUES = {
    "PointConstraint": "m",
    "PointOnPlane": "m",
    "DistanceConstraint": "m^2",
    "StringConstraint": "m^2",
    "SheaveString": "m",
    "ScrewConstraint": "m",
}
OWNERS = (
    "variable1",
    "follower",
)  # attributes of constraints between variables that name the variable whose unit h has
FORCES = {"m": "N", "m^2": "N/m", "rad": "N m"}
IMPULSES = {"m": "N s", "m^2": "N s/m", "rad": "N m s"}


def quantity_unit(f: Any, name: str) -> str:
    """Return the SI unit of a map's quantity, given its name; "" if it is unknown."""
    known: str = f.unit(name)
    if known:
        return known
    kind, _, rest = name.partition(".")
    if kind in ("h", "force", "lambda"):
        value = _constraint_unit(f, rest)
        return {"force": FORCES.get(value, ""), "lambda": IMPULSES.get(value, "")}.get(kind, value)
    return ""


def _constraint_unit(f: Any, name: str) -> str:
    known = () if f.system is None else f.system.constraint_names
    if name not in known:
        return ""  # multipliers that are not constraints of the description: joints
    constraint = f.system.constraints[known.index(name)]
    for owner in OWNERS:
        if hasattr(constraint, owner):
            return str(f.unit(getattr(constraint, owner)))
    return VALUES.get(type(constraint).__name__, "")


def per(unit: str, other: str) -> str:
    """Return the text of the quotient unit / other, where "" is an unknown unit."""
    if not other:
        return unit
    below = f"({other})" if " " in other or "/" in other else other
    return f"{unit or '1'}/{below}"


def label(name: str, unit: str = "") -> str:
    """Return an axis label, ``"theta (rad)"``; only the name if `unit` is empty."""
    return f"{name} ({unit.replace('^2', '²').replace('^3', '³')})" if unit else name
