"""CasADi symbols for functions that a nonlinear program evaluates at each sample."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

if TYPE_CHECKING:
    from vioc.control.dmoc.transcription import Transcription


class Stencil:
    """Factory of the CasADi symbols of one function of a nonlinear program.
    The function is evaluated at many samples of a trajectory. The symbols stand for the variables and
    parameters of the program at one sample, and are created on request.

    Parameters
    ----------
    owner : Transcription
    kind : casadi.SX or casadi.MX
    at : int or None
        The only sample of the block; None for a block whose samples are relative to its places.
    """

    def __init__(self, owner: Transcription, kind: Any = ca.SX, sample: int | None = None):
        self.owner, self.kind, self._k = owner, kind, sample
        self._nodes: dict[Any, SampleSymbols] = {}
        self._unknowns: dict[Any, _Entry] = {}
        self._given: dict[Any, _Entry] = {}

    def node(self, phase: int, ahead: int = 0) -> SampleSymbols:
        """Return the symbols of state, inputs and other quantities at another sample.
        This sample is `ahead` steps after the sample at which the function is evaluated.
        """
        return self.node_at(phase, ahead, False) if self._k is None else self.fixed(phase, self._k + ahead)

    def fixed(self, phase: int, sample: int) -> SampleSymbols:
        """Return the symbols of the sample with a given index.
        The sample is the same at all places where the function is evaluated.
        """
        return self.node_at(phase, sample, True)

    def node_at(self, phase: int, k: int, fixed: bool) -> SampleSymbols:
        """Return the symbols of a sample with a fixed or a relative index.
        The index k counts from the current sample unless `fixed` is True.
        """
        return self._nodes.setdefault((phase, k, fixed), SampleSymbols(self, phase, k, fixed))

    def unknown(self, node: SampleSymbols, name: str, table: np.ndarray) -> Any:
        """Return a symbol for variables of the program that belong to a sample.
        Row k of `table` has the indices of these variables at sample k, in the vector of all variables.

        The table is (samples, size); a table with one row is used for all samples.
        """
        return self._symbol(self._unknowns, node, name, table)

    def given(self, node: SampleSymbols, name: str, table: np.ndarray) -> Any:
        """Return a symbol for parameters of the program that belong to a sample.
        Row k of `table` has the indices of these parameters at sample k, in the vector of all parameters.
        """
        return self._symbol(self._given, node, name, table)

    def _symbol(self, entries: dict[Any, _Entry], node: SampleSymbols, name: str, table: np.ndarray) -> Any:
        k, fixed = (0, True) if len(table) == 1 else (node.k, node.is_fixed)
        key = node.phase, name, k, fixed
        if key not in entries:
            entries[key] = _Entry(self.kind.sym(name, table.shape[1]), table, k, fixed)
        return entries[key].symbol

    def function(self, cost: Any, rows: Any) -> ca.Function:
        """Build a CasADi function that returns a cost and constraints (`rows`).

        It is (v, p) -> cost, rows. Symbols on which cost and constraints do not depend are dropped.
        """
        self._unknowns = _used(self._unknowns, cost, rows, least=1)
        self._given = _used(self._given, cost, rows)
        parts = [[e.symbol for e in group.values()] for group in (self._unknowns, self._given)]
        if self.kind is ca.SX:
            args = [ca.vertcat(ca.SX(0, 1), *symbols) for symbols in parts]
            return ca.Function("block", args, [cost, rows])
        # an MX function's input is one symbol
        inner = ca.Function("inner", [*parts[0], *parts[1]], [cost, rows])
        args = [ca.MX.sym(name, sum(s.numel() for s in p)) for name, p in zip("vp", parts, strict=True)]
        split = [_split(whole, p) for whole, p in zip(args, parts, strict=True)]
        return ca.Function("block", args, inner(*split[0], *split[1]))

    @property
    def reach(self) -> int:
        """Offset to the earliest sample that the function uses, in samples.
        The offset is -1, for example, if the function uses the sample before the one at which it is
        evaluated.
        """
        entries = [*self._unknowns.values(), *self._given.values()]
        return min((e.k for e in entries if not e.fixed), default=0)

    def index(self, samples: np.ndarray) -> np.ndarray:
        """Return the indices of the variables that the function uses at each sample.
        They are indices into the vector of all variables of the nonlinear program.
        """
        return _rows_at(self._unknowns, samples)

    def given_index(self, samples: np.ndarray) -> np.ndarray:
        """Return the indices of the parameters that the function uses at each sample.
        They are indices into the vector of all parameters of the nonlinear program.
        """
        return _rows_at(self._given, samples)


class SampleSymbols:
    """CasADi symbols of the state, inputs and other quantities at one sample.

    Attributes
    ----------
    x : (nx,)
        The state. Its eliminated components (see `StepRows`) are expressions of the previous sample.
    u, unknowns, multipliers : (nu,), (nw,), (nm,)
        Inputs, further unknowns and map multipliers of the step that starts here.
    quantities : (nw,)
        `Mechanism.implicit`, if the phase has them as unknowns.
    w : (nx,)
        Copy of the next state in a staged program.
    t, h, theta, data, contacts
        Time, step length, the map's parameters, references; smoothing and gap offset (give) of contacts.
    """

    def __init__(self, stencil: Stencil, phase: int, k: int, fixed: bool):
        self.stencil, self.phase, self.k, self.is_fixed = stencil, phase, k, fixed
        self._layout = stencil.owner.layouts[phase]
        self._of = stencil.owner.phases[phase]

    def _unknown(self, name: str, table: np.ndarray) -> Any:
        return self.stencil.unknown(self, name, table)

    def section(self, name: str) -> Any:
        """Return the symbol of one section of the nonlinear program's parameter vector.
        If the section varies over time, the symbol stands for its value at the sample of this object.
        Sections are named as in the layout `Given`.
        """
        table = self.stencil.owner.given.index(self.phase, name)
        return self.stencil.given(self, name, table[None] if table.ndim == 1 else table)

    @cached_property
    def x(self) -> Any:
        layout, f = self._layout, self._of.map
        kept = self._kept
        if not layout.eliminated:
            return kept
        if self.is_fixed and self.k == 0:
            rest = self._unknown("start", layout.X[:1, layout.eliminated])
        else:
            before = self.stencil.node_at(self.phase, self.k - 1, self.is_fixed)
            rest = before.given_next(kept) + before.section("delta")
        return _placed(f.nx, (layout.kept, kept), (layout.eliminated, rest))

    @property
    def _kept(self) -> Any:
        return self._unknown("q", self._layout.X[:, self._layout.kept])

    def given_next(self, kept: Any) -> Any:
        """Return the eliminated components of the state one step after this sample.
        They follow from `kept`, the other components of that state, by equations of the step.
        """
        layout, f = self._layout, self._of.map
        x, x1 = (_placed(f.nx, (layout.kept, values)) for values in (self._kept, kept))
        more = self.unknowns, self.t, self.h, self.theta, self.contacts
        return self._of.equations.given_next(x, self.u, x1, *more)

    @property
    def u(self) -> Any:
        return self._unknown("u", self._layout.U)

    @property
    def unknowns(self) -> Any:
        return self._unknown("lam", self._layout.L)

    @property
    def multipliers(self) -> Any:
        return self._of.equations.multipliers(self.unknowns, self.h, self.theta)

    @property
    def quantities(self) -> Any:
        return self._unknown("v", self._layout.V)

    @property
    def w(self) -> Any:
        return self._unknown("w", self._layout.W)

    @property
    def h(self) -> Any:
        H = self._layout.H
        if H is None:
            return self.section("h")
        return self._unknown("h", H[:, None] if self._layout.staged else H[:1, None])

    @property
    def theta(self) -> Any:
        return self.section("theta")

    @property
    def t(self) -> Any:
        if not self._of.equations.uses_time:
            return self.stencil.kind.zeros(1)
        return self.section("t0") + self.section("k") * self.h

    @property
    def data(self) -> Any:
        return self.section("data")

    @property
    def contacts(self) -> Any:
        return self.section("contacts")


class _Entry:
    """Symbol of variables or parameters, with a table of their indices by sample.

    Its row in the table is a fixed sample, or an offset from the current sample.
    """

    def __init__(self, symbol: Any, table: np.ndarray, k: int, fixed: bool):
        self.symbol, self.table, self.k, self.fixed = symbol, table, k, fixed


def _placed(size: int, *parts: tuple[list[int], Any]) -> Any:
    """Return a column vector (size,) with given values at given indices, 0 elsewhere.
    Each of the `parts` is a pair of indices and values.
    """
    column = ca.SX.zeros(size)
    for entries, values in parts:
        column[entries] = values
    return column


def _used(entries: dict[Any, _Entry], cost: Any, rows: Any, least: int = 0) -> dict[Any, _Entry]:
    """Return the items of a dict whose symbols occur in a cost or constraints.
    If no symbol occurs, return the first `least` items.
    """
    expression = ca.vertcat(cost, rows)
    used = {key: e for key, e in entries.items() if ca.depends_on(expression, e.symbol)}
    return used or dict(list(entries.items())[:least])


def _split(whole: Any, parts: list[Any]) -> list[Any]:
    edges = np.concatenate([[0], np.cumsum([s.numel() for s in parts])]).astype(int)
    return [whole[a:b] for a, b in pairwise(edges)]


def _rows_at(entries: dict[Any, _Entry], samples: np.ndarray) -> np.ndarray:
    """Return the indices of a function's variables or parameters at given samples.
    They are indices into the vector of all variables or parameters of the program. There is a row for each
    sample and a column for each argument of the function.
    """
    columns = [np.empty((len(samples), 0), int)]
    for e in entries.values():
        columns.append(e.table[np.full(len(samples), e.k) if e.fixed else samples + e.k])
    return np.hstack(columns)
