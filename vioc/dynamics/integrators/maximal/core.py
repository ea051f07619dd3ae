"""The compiled core: a tape with its kernels, and rollouts by it."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.compile.libraries import load_library
from vioc.compile.native import EXPORT
from vioc.dynamics.integrators.contact.cones import Variables
from vioc.dynamics.integrators.contact.rollouts import Rollouts
from vioc.dynamics.integrators.maximal.kernel import ITERATIONS, PAST, STOP
from vioc.dynamics.integrators.maximal.space import TWIST
from vioc.dynamics.integrators.maximal.tape import TAPES, Tape
from vioc.progress import in_pieces

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.map import MaximalVI

PIECE = 1 << 13  # steps of one body in one call, a fraction of a second
Long, Double = ctypes.c_longlong, ctypes.c_double
PLACES = (
    *("carry", "u", "t", "dt", "V", "dV", "found", "multipliers", "values", "left", "poses", "after"),
    *("mismatch", "products", "impulses", "y", "dy", "fresh", "gaps", "kappa", "speed"),
)
COUNTS = ("touches", "mismatches", "complementary", "size_y", "positives", "rounds", "rubbing", "pushes")
ARRAYS = ("parts", "positive", "round", "before", "centers")


class _Model(ctypes.Structure):
    _fields_ = (
        ("kernels", ctypes.c_void_p),
        *((f"{kind}_{name}", ctypes.c_void_p) for kind in ("tape", "end") for name in TAPES),
        *((name, ctypes.c_void_p) for name in ("index", "image")),
        *((name, Long) for name in ("size", "n_arg", "n_res", "n_iw", "n_w", "bodies", "nu", "rows")),
        *((name, Long) for name in PLACES),
        *((name, Long) for name in COUNTS),
        *((name, ctypes.c_void_p) for name in ("scales", *ARRAYS)),
        ("stop", Double),
        ("limit", Long),
        *((name, Double) for name in ("mass", "floor")),
    )


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    library = load_library([Path(__file__).with_name("tape.c")], "maximal")
    pointer = ctypes.c_void_p
    library.vioc_maximal_rollout.argtypes = [
        *[pointer] * 2,
        *[Long] * 2,
        *[pointer] * 6,
        Double,
        *[pointer] * 5,
    ]
    library.vioc_maximal_rollout.restype = Long
    return library


class Core:
    """The tapes of both ends of a step with their kernels compiled."""

    def __init__(self, f: MaximalVI):
        departure = Tape(f.graph, f.nu)
        self.tapes = departure, Tape(f.graph, f.nu, departure)
        functions = departure.functions
        generator = ca.CodeGenerator("kernels", {"casadi_int": "long long"})
        for i, function in enumerate(functions):
            args = [ca.SX.sym("a", function.sparsity_in(k)) for k in range(function.n_in())]
            generator.add(ca.Function(f"kernel{i}", args, function.call(args), {"cse": True}))
        library = load_library([EXPORT + generator.dump()], f"MaximalVI of {f.system.name}")
        needs = np.zeros(4, int)
        pointers = []
        for i in range(len(functions)):
            work = [Long() for _ in range(4)]
            getattr(library, f"kernel{i}_work")(*(ctypes.byref(w) for w in work))
            needs = np.maximum(needs, [w.value for w in work])
            pointers.append(ctypes.cast(getattr(library, f"kernel{i}"), ctypes.c_void_p).value)
        variables = Variables([t.cone for t in f.graph.touches])
        # kept: the structures point into these
        shared: dict[str, Any] = {
            "kernels": np.array(pointers, np.uint64),
            "scales": np.ascontiguousarray(f.graph.scales),
            **{name: getattr(variables, name) for name in ARRAYS},
        }
        places = departure.places
        sizes = dict(zip(("n_arg", "n_res", "n_iw", "n_w"), map(int, needs), strict=True))
        sizes |= dict(
            bodies=f.graph.n,
            nu=f.nu,
            rows=len(f.graph.names),
            limit=ITERATIONS,
            touches=len(f.graph.touches),
            mismatches=places["mismatch"].nnz(),
            complementary=places["products"].nnz(),
            pushes=places["impulses"].nnz(),
            size_y=places["y"].nnz(),
            positives=len(variables.positive),
            rounds=len(variables.round),
            rubbing=len(variables.before),
        )
        self.half, self._whole = sizes["rows"] + sizes["pushes"], f.whole
        self._numbers = dict(stop=f.tolerance if f.graph.touches else STOP, mass=f.mass)
        self._parts: list[tuple[Tape, dict[str, Any], dict[str, int]]] = []
        for tape in self.tapes:
            arrays = {name: np.array([*code, -1], np.int64) for name, code in tape.codes.items()}
            arrays["index"] = np.array([*tape.index, 0], np.int64)
            own = {name: tape.places[name].place for name in PLACES}
            self._parts.append((tape, arrays | shared, {"size": tape.size} | own | sizes))

    def models(self, theta: np.ndarray, floor: float) -> list[tuple[_Model, np.ndarray]]:
        """The structures of both ends at parameters, each with the image that it points into."""
        found = []
        for tape, arrays, places in self._parts:
            image = np.zeros(tape.size + 1)
            at = tape.places["theta"].place
            image[at : at + len(theta)] = theta
            for place, values in tape.constants:
                image[place : place + len(values)] = values
            model = _Model(**places, **self._numbers, image=image.ctypes.data, floor=floor)
            for name in ("kernels", "index", "scales", *ARRAYS):
                setattr(model, name, arrays[name].ctypes.data)
            for name in TAPES:
                setattr(model, f"tape_{name}", arrays[name].ctypes.data)
                setattr(model, f"end_{name}", arrays[name].ctypes.data + 8 * (len(arrays[name]) - 1))
            found.append((model, image))
        return found

    def rollout(self, theta, carry, U, t, h, tolerance, goal=None, gains=None, *, floor=0.0):
        """Steps as far as they converge: states, multipliers, inputs, errors, iterations, by rows.

        With a carry for each of them, (N, nc), steps start from these and are all tried.
        """
        n, (_, _, sizes) = len(U), self._parts[0]
        nx, apart = carry.shape[-1] - PAST * TWIST * sizes["bodies"], carry.ndim == 2
        models = self.models(theta, floor)
        carry = np.ascontiguousarray(carry, float)
        given = [None if a is None else np.ascontiguousarray(a, float) for a in (U, goal, gains, t, h)]
        states, multipliers = np.empty((n, nx)), np.empty((n, 2 * self.half))
        applied, errors, iterations = np.empty((n, sizes["nu"])), np.empty(n), np.zeros(n, np.int64)

        def go(first: int, count: int) -> int:
            done = _driver().vioc_maximal_rollout(
                *(ctypes.byref(model) for model, _ in models),
                *(count, apart),
                carry[first:].ctypes.data if apart else carry.ctypes.data if first == 0 else None,
                *(None if a is None else a[first:].ctypes.data for a in given),
                tolerance,
                *(a[first:].ctypes.data for a in (states, multipliers, applied, errors, iterations)),
            )
            if done < 0:
                raise MemoryError("no memory for the workspace of a rollout")
            return done

        done = in_pieces(go, n, max(PIECE // sizes["bodies"], 1))
        whole = self._whole(multipliers[:done, : self.half], multipliers[:done, self.half :])
        return states[:done], whole, applied[:done], errors[: done + 1], iterations[: done + 1]


class CoreProgram(Rollouts):
    """A map's rollouts by the compiled core."""

    def __init__(self, core: Core, floor: float, tolerance: float):
        self._core, self._floor, self._tolerance = core, floor, tolerance

    def rollout(self, carry, U, tracked, t, h, theta, tolerance):
        found = self._core.rollout(theta, carry, U, t, h, tolerance, *tracked, floor=self._floor)
        states, multipliers, applied, errors, _ = found
        done = len(states)
        return [states, multipliers, errors[:done, None], applied], float(errors[done]) if done < len(
            U
        ) else 0.0

    def steps(self, carries, U, t, h, theta):
        found = self._core.rollout(theta, carries, U, t, h, self._tolerance, floor=self._floor)
        states, multipliers, _, errors, _ = found
        return [states, multipliers, errors]
