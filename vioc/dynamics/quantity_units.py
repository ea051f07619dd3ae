"""Units of a mechanism's quantities, given their names."""

from __future__ import annotations

from collections.abc import Set

from vioc.dynamics.description.system import System
from vioc.dynamics.velocities import velocity
from vioc.maps.orientation import component


def quantity_unit(system: System, name: str, angles: Set[str]) -> str:
    """Return the unit of a quantity, given its name, or "" for an unknown quantity.

    Quantities are variables, rates, momenta, energies, positions and inputs. `angles` names the variables
    and rates that are angular: their units have rad for m.
    """
    kind, dot, rest = name.rpartition(".")
    base, angle = kind.rpartition(".")[2], rest in angles
    if not dot and name in system.variables:
        return "rad" if angle else "m"
    of_kind = {"v": ("m/s", "rad/s"), "p": ("kg m/s", "kg m^2/s"), "rho": ("m", "rad"), "tension": ("N", "N")}
    if base in of_kind:
        return of_kind[base][angle]
    if name in ("kinetic", "potential", "energy"):
        return "J"
    moving = velocity(name, system.frame_names)
    if moving is not None:
        return moving.unit
    if ":" in name:
        return "rad" if component(name) else "m"
    name = rest if base == "u" else name
    units = (f.input_unit(frozenset(angles)) for f in system.forces if name in f.input_names())
    return next(units, "")
