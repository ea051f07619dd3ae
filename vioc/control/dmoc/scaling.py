"""Scaling of a nonlinear program, so that a solve does not depend on units.

Unknowns are divided by their typical sizes. Equations and constraints are divided by sizes that follow from
the quantities in them or from their limits. The cost is divided so that the larger of its value and its
gradient at the guess has a given size. See docs/maths/dmoc.md, "Units".

The scale of a free parameter is the largest of its value and limits. The scale of an unknown
without a known unit, such as a multiplier, is the change of the unknown that changes its equation by the
scale of the equation. The scale of a step equation is the scale of the state that has the factor 1 in it. The
scale of a condition on a quantity is the size of the quantity. The scale of any other constraint is its
change at the guess if the unknowns change by their scales.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import casadi as ca
import numpy as np
import scipy.sparse as sp

from vioc.control.dmoc import eliminated
from vioc.control.dmoc.phase import Phase
from vioc.control.dmoc.separable import SeparableProgram
from vioc.control.dmoc.transcription import PULL, Transcription
from vioc.control.problem.sizes import Sizes, as_unit
from vioc.names import INPUTS

OF_QUANTITIES = "final ", "initial ", "periodic.", "joint.", "gap."  # prefixes in names of constraints
RATE, DEFECT, STEP = "rate.", "gap.", "gap.step"
HOVER = 0.1  # height at which bodies hover at the first smoothing, relative to the extent of the mechanism
STEEPNESS = 100.0  # the larger of the scaled cost and its gradient at the guess
GROWN = 1000.0  # ratio of an unknown at the end of a search to its size above which the size is raised


class Scales(NamedTuple):
    """Typical sizes of the unknowns, constraints and cost of a nonlinear program.

    The first two are arrays (size,) and (rows,).
    """

    unknowns: np.ndarray
    rows: np.ndarray
    cost: float

    @classmethod
    def ones(cls, t: Transcription) -> Scales:
        return cls(np.ones(t.program.size), np.ones(t.program.rows), 1.0)

    def back(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert variables and multipliers from the scaled to the original program."""
        return x * self.unknowns, y * self.cost / self.rows

    def grown(self, t: Transcription, w: np.ndarray) -> Scales | None:
        """Return scales with larger sizes for variables that have become large.
        w are the variables at the end of a search. Return None if no variable exceeds `GROWN` times its size,
        or if the program is FATROP's, in which a state and its step equation must have equal sizes.
        """
        if any(layout.staged for layout in t.layouts):
            return None
        of_w = self.unknowns.copy()
        for layout in t.layouts:
            for index in (*layout.X.T, *layout.U.T, *layout.L.T, *layout.V.T):
                index = index[index >= 0]
                ratio = float(np.abs(w[index] / of_w[index]).max(initial=0.0))
                of_w[index] *= as_unit(ratio) if ratio > GROWN else 1.0
        return self._replace(unknowns=of_w) if (of_w != self.unknowns).any() else None

    def priced(self, t: Transcription, w: np.ndarray, p: np.ndarray) -> Scales:
        """Return these scales with a new unit of the cost.
        In this unit, the larger of the cost and its gradient at the variables w is `STEEPNESS`.
        """
        size = _size_of_cost(t.program, w, p, self.unknowns)
        return self._replace(cost=as_unit(size / STEEPNESS))


class Scaled:
    """Nonlinear program in scaled units, with its derivatives.
    Its variables are w/s, its constraints g/r and its cost f/c, where w, g and f belong to the original
    program and s, r and c are their scales.

    Its parameter vector holds the program's parameters, then s, r and c.
    """

    def __init__(self, program: SeparableProgram):
        self.program = program
        parts = program.p.numel(), program.size, program.rows, 1
        self.given = sum(parts)
        self.x, self.q = ca.MX.sym("x", program.size), ca.MX.sym("q", self.given)
        p, self._of_w, self._of_g, self._of_f = ca.vertsplit(self.q, np.cumsum([0, *parts]).tolist())
        self._args = [self._of_w * self.x, p]

    @staticmethod
    def values(p: np.ndarray, scales: Scales) -> np.ndarray:
        """Return the parameter vector of the scaled program.
        It contains the parameters p of the original program, then the scales of the variables, of the
        constraints and of the cost.
        """
        return np.concatenate([p, *scales[:2], [scales.cost]])

    @property
    def nlp(self) -> dict[str, ca.MX]:
        """Expressions of the scaled program for `casadi.nlpsol`: x, p, f and g."""
        f, g = self.program.values.call(self._args, True, False)  # inlined: f, g can be evaluated separately
        return {"x": self.x, "p": self.q, "f": f / self._of_f, "g": g / self._of_g}

    @cached_property
    def grad_f(self) -> ca.Function:
        f, slope = self.program.grad_f(*self._args)
        outputs = [f / self._of_f, self._of_w * slope / self._of_f]
        return ca.Function("grad_f", [self.x, self.q], outputs, ["x", "p"], ["f", "grad"])

    @cached_property
    def jac_g(self) -> ca.Function:
        g, J = self.program.jac_g(*self._args)
        J = _scaled(J, self._of_w, self._of_g)
        return ca.Function("jac_g", [self.x, self.q], [g / self._of_g, J], ["x", "p"], ["g", "jac"])

    @cached_property
    def hess_lag(self) -> ca.Function:
        sigma, mu = ca.MX.sym("sigma"), ca.MX.sym("mu", self.program.rows)
        H = self.program.hess_lag(*self._args, sigma / self._of_f, mu / self._of_g)
        names = ["x", "p", "lam_f", "lam_g"]
        args = [self.x, self.q, sigma, mu]
        H = _scaled(H, self._of_w, 1 / self._of_w)
        return ca.Function("hess_lag", args, [H], names, ["hess"])


def _scaled(matrix: ca.MX, of_columns: ca.MX, of_rows: ca.MX) -> ca.MX:
    """Multiply the columns of a sparse matrix by factors, and divide its rows.

    FATROP requires that a step's equation has exactly the factor 1 at its next state: a quotient of two equal
    scales is 1, a product with a reciprocal may be off by a rounding error.
    """
    pattern = matrix.sparsity()
    if not pattern.nnz():
        return matrix
    rows, columns = pattern.get_triplet()
    factors = ca.vec(of_columns[columns]), ca.vec(of_rows[rows])  # one of one entry may be a row
    return ca.MX(pattern, ca.vec(matrix.nz[:]) * factors[0] / factors[1])


# -- sizes ---------------------------------------------------------------------------------------------


def scales(t: Transcription, w: np.ndarray, p: np.ndarray) -> Scales:
    """Return the scales of a program, from the sizes of states and inputs in a guess.

    An unknown or constraint without a known unit is scaled by its change when the other quantities change by
    their sizes.
    """
    of_w, of_g = np.ones(t.program.size), np.ones(t.program.rows)
    J = t.program.jac_g(w, p)[1].sparse().tocsr()
    for i, sizes in enumerate(_sizes(t, w, p)):
        _of_unknowns(t, i, sizes, of_w)
        _of_rows(t, i, sizes, abs(J), of_w, of_g)
    return Scales(of_w, of_g, 1.0)


class ContactUnits(NamedTuple):
    """First smoothing of contact and its unit, m^2/s^2, and gravity, m/s^2.
    With the first smoothing, a body hovers at the height `HOVER` L above the ground, with the extent L of the
    mechanism in the first state, but at least a tenth of the typical length l of the problem. Without
    gravity, the acceleration is 10 l/T^2 with the duration T.
    """

    smoothing: float = 1.0
    unit: float = 1.0
    pull: float = PULL

    @classmethod
    def of(cls, t: Transcription, w: np.ndarray, p: np.ndarray) -> ContactUnits:
        """Return the first smoothing of contact, its unit and the gravity of a problem.
        w is a guess of the variables and p are the parameters of the nonlinear program `t`.
        """
        each = _sizes(t, w, p)
        sizes = next((s for s in each if s.measured), each[0])
        length, acceleration, square = (sizes.of_unit(unit) for unit in ("m", "m/s^2", "m^2/s^2"))
        assert length and acceleration and square
        pull = sizes.gravity or PULL * acceleration
        return cls(HOVER * max(sizes.extent, 0.1 * length) * pull, square, pull)


def _sizes(t: Transcription, w: np.ndarray, p: np.ndarray) -> list[Sizes]:
    """Return the typical sizes of the states and inputs of each phase.
    They follow from the total duration of all phases, but with contact and gravity at least from the longest
    time of a fall by the typical length of a phase. With contact, all momenta have the same typical size.
    """
    lengths = [
        float(w[layout.H[0]]) if layout.H is not None else phase.length_limits[0]
        for phase, layout in zip(t.phases, t.layouts, strict=True)
    ]
    free = all(phase.equations.relaxed is None for phase in t.phases)
    duration = sum(phase.steps * h for phase, h in zip(t.phases, lengths, strict=True))

    def over(duration: float) -> list[Sizes]:
        return [
            Sizes(phase.map, eliminated.states(t, i, w, p), w[t.layouts[i].U], duration, _limits(phase), free)
            for i, phase in enumerate(t.phases)
        ]

    sizes = over(duration)
    if not free and (fall := max(map(_fall, sizes))) > duration:
        return over(fall)
    return sizes


def _fall(sizes: Sizes) -> float:
    """Return the typical time of a fall, s, or 0 without gravity.
    It is sqrt(L/g) with the typical length L and the acceleration g of gravity.
    """
    length = sizes.of_unit("m")
    assert length
    return float(np.sqrt(length / sizes.gravity)) if sizes.gravity else 0.0


def _limits(phase: Phase) -> dict[str, np.ndarray]:
    """Return all limits of a phase in a dict by the name of the limited quantity."""
    f, limit_lists = phase.map, dict[str, list[np.ndarray]]()
    inputs = [INPUTS + n for n in f.input_names]
    for names, sides in ((f.state_names, phase.state_limits), (inputs, phase.input_limits)):
        for j, name in enumerate(names):
            limit_lists.setdefault(name, []).extend(side[:, j] for side in sides)
    for c in phase.rows:
        limit_lists.setdefault(_quantity(c.name), []).extend(side.ravel() for side in phase.row_limits(c))
    return {name: np.concatenate(values) for name, values in limit_lists.items()}


def _quantity(name: str) -> str:
    """Return the name of the limited quantity, from the name of its constraint."""
    for prefix in OF_QUANTITIES:
        name = name.removeprefix(prefix)
    return name


def _of_unknowns(t: Transcription, i: int, sizes: Sizes, of_w: np.ndarray) -> None:
    """Write the typical sizes of a phase's states, inputs and step lengths to `of_w`.
    The array `of_w` has an entry for each variable of the nonlinear program.
    """
    layout = t.layouts[i]
    for index, size in ((layout.X, sizes.of_states), (layout.W, sizes.of_states), (layout.U, sizes.inputs)):
        of_w[index[index >= 0]] = np.broadcast_to(size, index.shape)[index >= 0]
    if layout.H is not None:
        of_w[layout.H] = sizes.time


def _of_rows(
    t: Transcription, i: int, sizes: Sizes, J: sp.csr_matrix, of_w: np.ndarray, of_g: np.ndarray
) -> None:
    """Write the typical sizes of a phase's constraints to the array `of_g`.
    J is the program's Jacobian in magnitudes.

    A variable without a known unit, for example a multiplier, gets its typical size in the array `of_w`: the
    change of the variable that changes a constraint with a known unit by the size of this constraint.
    """
    layout, sized = t.layouts[i], list[tuple[np.ndarray, float | None]]()
    for b, block in enumerate(t.program.blocks):
        if block.phase == i:
            columns = zip(t.program.rows_of(b).T, block.names, strict=True)
            sized += [(rows, _size(t.phases[i], sizes, name)) for rows, name in columns]
    inverse, step = np.zeros(len(of_g)), t.phases[i].equations.relaxed
    for rows, size in sized:
        if size is not None:
            of_g[rows], inverse[rows] = size, 1 / size
    slopes = (sp.diags(inverse) @ J).max(axis=0).toarray().ravel() if len(inverse) else np.zeros(len(of_w))
    units = [""] * (layout.L.shape[1] + layout.V.shape[1])
    if step is not None:
        units[: len(step.units)] = step.units
    for index, unit in zip((*layout.L.T, *layout.V.T), units, strict=True):
        index = index[index >= 0]
        largest, size = float(slopes[index].max(initial=0.0)), sizes.of_unit(unit)
        of_w[index] = size if size is not None else as_unit(1 / largest) if largest > 0 else 1.0
    reach = J @ of_w
    for rows, size in sized:
        if size is None:
            of_g[rows] = as_unit(float(reach[rows].max(initial=0.0)))


def _size(phase: Phase, sizes: Sizes, name: str) -> float | None:
    """Return the typical size of a constraint, None if its unit is unknown."""
    if name == STEP:
        return sizes.time
    if name.startswith(RATE):
        return sizes.of(INPUTS + name.removeprefix(RATE)) / sizes.time
    if name.startswith(DEFECT) and name.removeprefix(DEFECT) in phase.map.state_names:
        return sizes.of(name.removeprefix(DEFECT))
    step = phase.equations.relaxed
    if step is not None and name in step.rows and (unit := step.row_units[step.rows.index(name)]):
        return sizes.of_unit(unit)
    measured = phase.measures.get(name)
    return sizes.known(_quantity(name) if measured is None else measured)


def _size_of_cost(program: SeparableProgram, w: np.ndarray, p: np.ndarray, of_w: np.ndarray) -> float:
    """Return the larger of the cost and its scaled gradient at the variables w.

    If both vanish, the size follows from the diagonal of the Hessian: it is the change of the cost if the
    variables change by their sizes.
    """
    cost, slope = (np.asarray(part).ravel() for part in program.grad_f(w, p))
    size = max(float(np.abs(cost).max()), float(np.abs(of_w * slope).max(initial=0.0)))
    if not size:
        bend = program.hess_lag(w, p, 1.0, 0.0).sparse().diagonal()
        size = 0.5 * float(np.abs(bend) @ of_w**2)
    return size
