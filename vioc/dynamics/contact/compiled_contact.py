"""Compiled (C) solver of steps with contact, and rollouts that use this solver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.libraries import address, load_library
from vioc.compile.native import EXPORT
from vioc.dynamics.contact.cones import Variables
from vioc.dynamics.contact.natural_units import NaturalUnits
from vioc.dynamics.contact.rollouts import Rollouts
from vioc.dynamics.contact.tape import TAPES, Tape
from vioc.progress import in_pieces

PIECE = 1 << 13  # steps of one body in one call, which takes a fraction of a second
Long, Double = ctypes.c_longlong, ctypes.c_double
PLACES = (
    *("carry", "u", "t", "dt", "V", "dV", "found", "multipliers", "values", "left", "after"),
    *("mismatch", "products", "impulses", "y", "dy", "fresh", "gaps", "kappa", "speed", "work"),
)
COUNTS = ("touches", "mismatches", "complementary", "size_y", "positives", "rounds", "rubbing", "pushes")
NUMBERS = "stop", "mass", "length", "sample", "polish"
SIZES = ("nx", "nv", "nu", "rows", "bodies", "lasting", "limit")
ARRAYS = ("parts", "positive", "round", "before", "centers")


class _TapeModel(ctypes.Structure):
    _fields_ = (
        ("kernels", ctypes.c_void_p),
        *((f"{kind}_{name}", ctypes.c_void_p) for kind in ("tape", "end") for name in TAPES),
        *((name, ctypes.c_void_p) for name in ("index", "image")),
        *((name, Long) for name in ("size", "n_arg", "n_res", "n_iw", "n_w", "nx", "nv", "nu", "rows")),
        *((name, Long) for name in ("bodies", "lasting", "guess", "extent", "extents", "works")),
        *((name, Long) for name in PLACES),
        *((name, Long) for name in COUNTS),
        *((name, ctypes.c_void_p) for name in ("scales", "sizes", "row_sizes", "wrap", *ARRAYS)),
        ("stop", Double),
        ("limit", Long),
        *((name, Double) for name in ("mass", "length", "floor", "sample")),
        ("polish", Long),
    )


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    library = load_library([Path(__file__).with_name("tape.c")], "tapes")
    pointer = ctypes.c_void_p
    library.vioc_tape_rollout.argtypes = [
        *[pointer] * 2,
        *[Long] * 2,
        *[pointer] * 6,
        Double,
        *[pointer] * 5,
    ]
    library.vioc_tape_rollout.restype = Long
    return library


@dataclass(frozen=True)
class CoreLayout:
    """Data of a one-step map with contact for the compiled solver of its steps.
    The data are dimensions (such as the number of states), masses and units that scale the variables, and
    options of the solver.

    Attributes
    ----------
    nx, nv, nu, rows : int
        Numbers of states, of unknown velocities, of inputs, of multipliers of constraints.
    scales : (nv,)
        Masses and moments of inertia; momenta divided by them are velocities.
    natural : NaturalUnits
    mass : float
        Mass of the mechanism, kg.
    stop : float
        Tolerance of the iteration.
    wrap : (nx,)
        Whether each component of a flat state is an angle modulo a turn.
    bodies : int
        Number of poses in the state, 0 for a flat state.
    lasting : bool
        Whether the first guess of the contact impulses follows from the gaps at the start.
    limit : int
        Largest number of iterations of steps without contact.
    sample : float
        Fraction of the step at which time-dependent terms are evaluated.
    polish : bool
        See `InteriorPoint`.
    whole : callable
        Function from the multipliers at the ends of a step to those of the step.
    """

    nx: int
    nv: int
    nu: int
    rows: int
    scales: np.ndarray
    natural: NaturalUnits
    mass: float
    stop: float
    wrap: np.ndarray
    bodies: int = 0
    lasting: bool = True
    limit: int = 0
    sample: float = 0.0
    polish: bool = True
    whole: Callable = lambda multipliers: multipliers

    @property
    def length(self) -> float:
        return self.natural.length


class Kernels:
    """Compiled CasADi functions that the instruction tables of the contact solver call.
    Functions can be added at run time.

    Attributes
    ----------
    pointers : list of int
        Addresses of the functions.
    needs : (4,)
        Largest sizes of the work arrays: arg, res, iw, w.
    """

    def __init__(self, title: str):
        self._title = title
        self.pointers: list[int] = []
        self.needs = np.zeros(4, int)

    def add(self, functions: Sequence[ca.Function]) -> None:
        """Compile the functions that have been appended to the list `functions` since the last call."""
        first = len(self.pointers)
        if first == len(functions):
            return
        generator = ca.CodeGenerator("kernels", {"casadi_int": "long long"})
        for i, function in enumerate(functions[first:], first):
            args = [ca.SX.sym("a", function.sparsity_in(k)) for k in range(function.n_in())]
            generator.add(ca.Function(f"kernel{i}", args, function.call(args), {"cse": True}))
        library = load_library([EXPORT + generator.dump()], self._title)
        for i in range(first, len(functions)):
            work = [Long() for _ in range(4)]
            getattr(library, f"kernel{i}_work")(*(ctypes.byref(w) for w in work))
            self.needs = np.maximum(self.needs, [w.value for w in work])
            self.pointers.append(ctypes.cast(getattr(library, f"kernel{i}"), ctypes.c_void_p).value or 0)


class TapeCore:
    """Compiled solver of steps with contact.
    The solver interprets tables of instructions. Each instruction calls a compiled function, or adds, copies
    or clears an array.

    A tape is a set of tables for the momentum balance at the start of a step or, in maximal coordinates, at
    its end.

    Parameters
    ----------
    tapes : sequence of Tape
    variables : Variables
        Variables of the tapes' cones.
    layout : CoreLayout
    title : str
        Description in the list of the cache.
    kernels : Kernels, optional
        Kernels that other tapes share.
    """

    def __init__(
        self,
        tapes: Sequence[Tape],
        variables: Variables,
        layout: CoreLayout,
        title: str,
        kernels: Kernels | None = None,
    ):
        departure, self.layout, self.parts = tapes[0], layout, variables.parts
        kernels = Kernels(title) if kernels is None else kernels
        kernels.add(departure.functions)
        _driver()
        common: dict[str, Any] = {  # kept alive, because the structures point into these arrays
            "kernels": np.array(kernels.pointers, np.uint64),
            "scales": np.ascontiguousarray(layout.scales, float),
            "sizes": layout.natural.sizes,
            "row_sizes": layout.natural.rows,
            "wrap": np.ascontiguousarray(layout.wrap, np.int64),
            **{name: getattr(variables, name) for name in ARRAYS},
        }
        places = departure.places
        sizes = dict(zip(("n_arg", "n_res", "n_iw", "n_w"), map(int, kernels.needs), strict=True))
        sizes |= {name: getattr(layout, name) for name in SIZES}
        sizes |= dict(
            touches=len(variables.parts) - 1,
            mismatches=places["mismatch"].nnz(),
            complementary=places["products"].nnz(),
            pushes=places["impulses"].nnz(),
            size_y=places["y"].nnz(),
            positives=len(variables.positive),
            rounds=len(variables.round),
            rubbing=len(variables.before),
        )
        self.half = sizes["rows"] + sizes["pushes"]
        sizes |= {n: getattr(layout, n) for n in NUMBERS}
        # each tape with its memory image and the fields of its C structure
        self._parts: list[tuple[Tape, np.ndarray, dict[str, Any]]] = []
        self._kept: list[Any] = [common]
        for tape in tapes:
            codes = {name: np.array([*code, -1], np.int64) for name, code in tape.codes.items()}
            arrays = common | {"index": np.array([*tape.index, 0], np.int64)}
            fields = {name: tape.places[name].place for name in PLACES}
            fields |= {name: address(a) for name, a in arrays.items()}
            fields |= {f"tape_{name}": address(a) for name, a in codes.items()}
            fields |= {f"end_{name}": address(a[-1:]) for name, a in codes.items()}
            extent = tape.places["extent"]
            start, work_of = tape.places["guess"], tape.places["work"]
            fields |= dict(size=tape.size, extent=extent.place, extents=extent.nnz())
            fields |= dict(guess=start.place, works=work_of.nnz())
            image = np.zeros(tape.size + 1)
            for place, values in tape.constants:
                image[place : place + len(values)] = values
            self._parts.append((tape, image, fields | sizes))
            self._kept += [codes, arrays]

    def places(self, end: int) -> dict[str, int]:
        """Return, by name, the positions of the solver's inputs and outputs in its array of doubles.
        The argument `end` selects the momentum balance at the start (0) or at the end (1) of a step.
        """
        return {name: block.place for name, block in self._parts[end][0].places.items()}

    def models(self, theta: np.ndarray, floor: float) -> list[tuple[_TapeModel, np.ndarray]]:
        """Return the C structures of the solver for given parameters `theta`.
        Each structure comes with the array of doubles on which it works. The argument `floor` is the final
        barrier parameter.
        """
        models = []
        for tape, first, fields in self._parts:
            image, place = first.copy(), tape.places["theta"].place
            image[place : place + len(theta)] = theta
            models.append((_TapeModel(**fields, image=address(image), floor=floor), image))
        return models

    def rollout(self, theta, carry, U, t, h, tolerance, goal=None, gains=None, *, floor=0.0, models=None):
        """Compute consecutive steps with contact until one does not converge.
        The argument `carry` is the start state. The results are states, multipliers, inputs, norms of
        residuals and numbers of iterations, with one row for each step.

        If `carry` has a row for every step, (N, nx), each step starts from its row, and all steps are
        computed.
        """
        n, layout = len(U), self.layout
        nx, batched = layout.nx, carry.ndim == 2
        models = self.models(theta, floor) if models is None else models
        second = ctypes.byref(models[1][0]) if len(models) > 1 else None
        carry = np.ascontiguousarray(carry, float)
        arrays = [None if a is None else np.ascontiguousarray(a, float) for a in (U, goal, gains, t, h)]
        states, multipliers = np.empty((n, nx)), np.empty((n, len(models) * self.half))
        applied, errors, iterations = np.empty((n, layout.nu)), np.empty(n), np.zeros(n, np.int64)

        def go(first: int, count: int) -> int:
            solved = _driver().vioc_tape_rollout(
                ctypes.byref(models[0][0]),
                second,
                *(count, batched),
                carry[first:].ctypes.data if batched else carry.ctypes.data if first == 0 else None,
                *(None if a is None else a[first:].ctypes.data for a in arrays),
                tolerance,
                *(a[first:].ctypes.data for a in (states, multipliers, applied, errors, iterations)),
            )
            if solved < 0:
                raise MemoryError("no memory for the workspace of a rollout")
            return solved

        converged = in_pieces(go, n, max(PIECE // (layout.nv // 6 or 1), 1))
        whole = layout.whole(*np.split(multipliers[:converged], len(models), axis=1))
        return (
            states[:converged],
            whole,
            applied[:converged],
            errors[: converged + 1],
            iterations[: converged + 1],
        )


class TapeProgram(Rollouts):
    """Evaluator of rollouts of a one-step map, by the compiled contact solver.

    Parameters
    ----------
    core : TapeCore
    floor, tolerance : float
        Barrier parameter and tolerance of the map.
    """

    def __init__(self, core: TapeCore, floor: float, tolerance: float):
        self._core, self._floor, self._tolerance = core, floor, tolerance

    def rollout(self, x, U, tracked, t, h, theta, tolerance):
        outputs = self._core.rollout(theta, x, U, t, h, tolerance, *tracked, floor=self._floor)
        states, multipliers, applied, errors, _ = outputs
        solved = len(states)
        return [states, multipliers, errors[:solved, None], applied], float(errors[solved]) if solved < len(
            U
        ) else 0.0

    def steps(self, X, U, t, h, theta):
        outputs = self._core.rollout(theta, X, U, t, h, self._tolerance, floor=self._floor)
        states, multipliers, _, errors, _ = outputs
        return [states, multipliers, errors]
