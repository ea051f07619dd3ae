"""Named quantities of a map: their expressions, units and values along trajectories."""

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
    """Return None for any arguments."""


class QuantityTable(NamedTuple):
    """Functions that define the names, expressions and units of a group of quantities.

    Attributes
    ----------
    find : name -> expression in the map's symbols, or None if the group does not have it
    names : () -> full names of the group
    unit : name -> SI unit, "" if it is unknown; None if another group decides
    rotation : frame -> matrix (3, 3) from the frame's axes to the world's, or None without such a frame
    """

    find: Callable[[str], ca.SX | None]
    names: Callable[[], Iterable[str]]
    unit: Callable[[str], str | None] = nothing
    rotation: Callable[[str], ca.SX | None] = nothing


class Quantities:
    """Table of a map's named quantities, such as states, inputs and multipliers.

    Parameters
    ----------
    f : OneStepMap
        Map with these quantities, which its copies have too.
    *tables : QuantityTable
        Tables of further quantities. If several define a name, the last of them applies.
    along : trajectory, name -> values, optional
        Returns the values of a quantity along a run of the map, if they are not those of its expression.
    """

    def __init__(
        self,
        f: OneStepMap,
        *tables: QuantityTable,
        along: Callable[[Trajectory, str], np.ndarray] | None = None,
    ):
        self._map, self._tables, self._along = f, tables, along

    def added(self, *tables: QuantityTable) -> Quantities:
        """Return the table extended by the quantities of further tables."""
        return Quantities(self._map, *self._tables, *tables, along=self._along)

    def find(self, name: str) -> ca.SX:
        """Return the expression of a quantity, given its name.

        See `OneStepMap.quantity`.
        """
        for table in reversed(self._tables):
            expression = table.find(name)
            if expression is not None:
                return expression
        for (prefix, names), symbol in zip(self._groups, self._map.symbols, strict=False):
            if name.startswith(prefix) and name[len(prefix) :] in names:
                return symbol[names.index(name[len(prefix) :])]
        return self.find(meaning(name, [n for n in self.names() if n != name]))

    def names(self) -> tuple[str, ...]:
        """Return the full names of all quantities."""
        variables = (prefix + n for prefix, names in self._groups for n in names)
        return tuple(dict.fromkeys((*variables, *(n for table in self._tables for n in table.names()))))

    def unit(self, name: str) -> str:
        """Return the SI unit of a quantity, "" if unknown."""
        units = (table.unit(name) for table in reversed(self._tables))
        return next((unit for unit in units if unit is not None), "")

    def rotation(self, frame: str) -> ca.SX | None:
        """Return the rotation matrix (3, 3) of a frame as an expression in the map's symbols.
        The result is None if the map has no frame of this name.

        It maps the frame's axes to the world's. Its logarithm has the names ``FRAME:rx``, ry and rz
        (`vioc.maps.orientation`).
        """
        rotations = (table.rotation(frame) for table in reversed(self._tables))
        return next((R for R in rotations if R is not None), None)

    def along(self, run: Trajectory, name: str) -> np.ndarray:
        """Return the values of a quantity, given by its name, along a trajectory of the map.

        They are ``run[name]``.
        """
        return run.evaluate(self.find(name)) if self._along is None else self._along(run, name)

    @property
    def _groups(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Names of the map's states, inputs, multipliers and parameters, each group with its prefix."""
        f = self._map
        every = f.state_names, f.input_names, f.multiplier_names, tuple(f.parameters)
        return tuple(zip(("", "u.", "lambda.", "param."), every, strict=True))
