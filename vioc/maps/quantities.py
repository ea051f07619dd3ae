"""`Quantities`: the named quantities of a map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.names import meaning

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap
    from vioc.runs.trajectory import Trajectory


def nothing(*_: Any) -> None:
    """None, whatever the arguments."""


class QuantityTable(NamedTuple):
    """Named quantities of some kinds, in functions.

    Attributes
    ----------
    find : name -> expression in the map's symbols; None if it is none of these
    names : () -> full names of all
    unit : name -> SI unit, "" where it has none that is known; None if it is not for these to tell
    rotation : frame -> matrix (3, 3) from its axes to the world's; None where there is no such frame
    """

    find: Callable[[str], ca.SX | None]
    names: Callable[[], Iterable[str]]
    unit: Callable[[str], str | None] = nothing
    rotation: Callable[[str], ca.SX | None] = nothing


class Quantities:
    """Named quantities of a map: states, inputs, multipliers, parameters, and of tables.

    Parameters
    ----------
    f : OneStepMap
        Whose quantities they are, and those of its twins.
    *tables : QuantityTable
        The last one is asked first.
    along : trajectory, name -> values, optional
        What a quantity is along a run of the map, where that is not its expression.
    """

    def __init__(
        self,
        f: OneStepMap,
        *tables: QuantityTable,
        along: Callable[[Trajectory, str], np.ndarray] | None = None,
    ):
        self._map, self._tables, self._along = f, tables, along

    def added(self, *tables: QuantityTable) -> Quantities:
        """Return these quantities and those of more tables."""
        return Quantities(self._map, *self._tables, *tables, along=self._along)

    def find(self, name: str) -> ca.SX:
        """Return a quantity as an expression; see `OneStepMap.quantity`."""
        for table in reversed(self._tables):
            found = table.find(name)
            if found is not None:
                return found
        for (prefix, names), symbol in zip(self._groups, self._map.symbols, strict=False):
            if name.startswith(prefix) and name[len(prefix) :] in names:
                return symbol[names.index(name[len(prefix) :])]
        return self.find(meaning(name, [n for n in self.names() if n != name]))

    def names(self) -> tuple[str, ...]:
        """Full names of all quantities."""
        own = (prefix + n for prefix, names in self._groups for n in names)
        return tuple(dict.fromkeys((*own, *(n for table in self._tables for n in table.names()))))

    def unit(self, name: str) -> str:
        """Return the SI unit of a quantity, "" if unknown."""
        told = (table.unit(name) for table in reversed(self._tables))
        return next((unit for unit in told if unit is not None), "")

    def rotation(self, frame: str) -> ca.SX | None:
        """Return the rotation matrix (3, 3) of a frame, in the map's symbols.

        It leads from the frame's axes to the world's; None where the map has no such frame. Its log has the
        names ``FRAME:rx``, ry and rz, see `vioc.maps.orientation`.
        """
        told = (table.rotation(frame) for table in reversed(self._tables))
        return next((R for R in told if R is not None), None)

    def along(self, run: Trajectory, name: str) -> np.ndarray:
        """Return a quantity along a run of the map, ``run[name]``."""
        return run.evaluate(self.find(name)) if self._along is None else self._along(run, name)

    @property
    def _groups(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Prefix and names of what every map has: states, inputs, multipliers, parameters."""
        f = self._map
        every = f.state_names, f.input_names, f.multiplier_names, tuple(f.parameters)
        return tuple(zip(("", "u.", "lambda.", "param."), every, strict=True))
