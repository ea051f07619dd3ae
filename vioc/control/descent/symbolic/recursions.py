"""Recursions of Newton's method over all stages, on NumPy arrays.

See docs/maths/optimal_control.md, "Stages". All arrays are in the order of time; backward recursions read and
write reversed views.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from vioc.compile.evaluate import Bound
from vioc.control.costs.cost import Cost
from vioc.control.descent.local_model import Weights
from vioc.control.descent.symbolic import newton_stage
from vioc.control.descent.symbolic.newton_stage import StageLayout
from vioc.control.descent.symbolic.stage_programs import StageArguments, StagePrograms
from vioc.control.linear.weights import absolute
from vioc.control.problem.sizes import Sizes
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory

REGULAR = 1e8  # sum of |entries| of scaled A, B above which the map itself checks if the step is singular
STOP = 0.5  # threshold between 0 and 1 for the stage outputs that indicate failure


class Recursions:
    """Backward and forward recursions of Newton's method over a horizon.

    Each object owns its arrays and serves one search at a time.

    Parameters
    ----------
    programs : StagePrograms
    f : OneStepMap
    cost : Cost
    grid : StageArguments

    Attributes
    ----------
    x, u, multipliers : (N+1, nx), (N, nu), (N, nm)
        The iterate.
    lx_end, lxx_end : (nx,), (nx, nx)
        Derivatives of the terminal cost at the iterate.
    blocks : dict of str to (N, ...) array
        Matrices of the last model: A, B, the cost's gradient g with respect to (x, u), the projection's gains
        K, the cost's Hessian L and Newton's Hessian H.
    L : (N, ns, ns)
        The cost's Hessian, which is computed before the model.
    unit : (ns,)
        Units of a shift: mean weight of the inputs per step weight, or of the last state if inputs have none.
    kernel : Kernel or None
        Compiled step of the map, which trial rollouts need.
    reached : (nx,)
        State of a trial from which the kernel did not complete a step.
    """

    reached: np.ndarray

    def __init__(self, programs: StagePrograms, f: OneStepMap, cost: Cost, grid: StageArguments):
        e = programs.equations
        self._programs, self._grid, self._end_program = programs, grid, cost.end_program
        N, nx, nu, ns = len(grid.w), e.nx, e.nu, e.ns
        self.x, self.u, self.multipliers = np.zeros((N + 1, nx)), np.zeros((N, nu)), np.zeros((N, e.nm))
        iterate = [self.x[:-1], self.u, self.x[1:], self.multipliers]
        self._last_reference = np.ascontiguousarray(cost.reference_rows(N)[N])
        self._end = self._terminal(self.x[-1])
        self.lx_end, self.lxx_end = self._end.outputs[1][0], self._end.outputs[2].reshape(nx, nx)
        rows = [self.x[:-1], self.u, self.multipliers, *grid[1:]]
        self._running = programs.program("running", lambda: newton_stage.running_stage(e)).bind_map(rows, N)

        # the model
        self._regulator, self._shift = np.zeros((N, ns * ns)), np.zeros(ns)
        self._carry = np.zeros(1 + 2 * nx * nx + 2 * nx)
        program = programs.program("about", lambda: newton_stage.model_stage(e))
        back = [_back(a) for a in (*iterate, *grid, self._regulator)]
        self._about = program.bind_accumulate(self._carry, [*back, self._shift], N, 1, STOP)
        layout, reversed_rows = StageLayout.of(e), self._about.outputs[1]
        natural = reversed_rows[::-1]
        self.blocks = {
            name: natural[:, layout.part(name)].reshape(N, *shape)
            for name, shape in zip(layout.names, layout.shapes, strict=True)
        }

        # directions: of the model, of its blocks with another shift, of another Hessian
        self._other = np.zeros((N, ns * ns))
        self._lq_carry, self._lq_shift = np.zeros(nx * nx + nx), np.zeros(ns)
        self._linear, self._gradient = reversed_rows[:, layout.part("A", "g")], natural[:, layout.part("g")]
        self._hessians = reversed_rows[:, layout.part("H")], self._other[::-1]
        self._minimizers: dict[int, Bound] = {}
        self._directions: dict[int, Bound] = {}

        # trials
        self._dx, self._du, self._gamma = np.zeros((N, nx)), np.zeros((N, nu)), np.zeros(1)
        self._gains = natural[:, layout.part("K")]
        self.kernel, self._start = f.kernel, np.zeros(1 + nx)

        # constants of all iterates
        self._constant = cost.constant_hessian
        if self._constant is None:
            program = programs.program("curvature", lambda: newton_stage.curvature_stage(e))
            self._curvature = program.bind_map([*iterate, *grid], N)
            self.L = self._curvature.outputs[0].reshape(N, ns, ns)
        else:
            self.L = grid.w[:, :, None] * self._constant
        self._weights: Weights | None = None
        self._end_known: tuple[np.ndarray, np.ndarray] | None = None

    # -- the iterate --------------------------------------------------------------------------------

    def begin(self, x0: np.ndarray, weights: Weights | None, sizes: Sizes) -> None:
        """Set initial state, weights Q, R of a regulator, and typical sizes.
        The gains of this regulator are the feedback of trial rollouts.
        """
        self._weights, self._end_known, self.sizes = weights, None, sizes
        self._sizes = np.concatenate([sizes.states, sizes.inputs])
        self._start[1:] = x0
        if weights is not None:
            Q, R = weights
            n = len(Q)
            block = np.zeros((n + len(R), n + len(R)))
            block[:n, :n], block[n:, n:] = Q, R
            self._regulator[:] = block.reshape(-1)
        elif self._constant is not None:
            convex = absolute(self._constant, self._sizes)
            self._regulator[:] = (self._grid.w[:, :, None] * convex).reshape(len(self.u), -1)

    @property
    def w(self) -> np.ndarray:
        """Factors (N,) by which the running costs of the steps are multiplied.
        They are the step lengths in s if the cost is per time, and 1 otherwise.
        """
        return self._grid.w[:, 0]

    def load(self, run: Trajectory) -> None:
        """Set the iterate to a given trajectory."""
        self.x[:], self.u[:], self.multipliers[:] = run.x, run.u, run.multipliers
        self._end.call()

    @property
    def value(self) -> float:
        """Cost of the iterate."""
        self._running.call()
        return float(self._running.outputs[0].sum() + self._end.outputs[0][0, 0])

    def _terminal(self, x: np.ndarray) -> Bound:
        return self._end_program.bind_map([x, self._grid.parameters, self._last_reference], 1)

    # -- model and directions -----------------------------------------------------------------------

    def model(self, shift: float) -> tuple[bool, bool]:
        """Compute the second-order model of the cost at the iterate.

        The diagonal of Newton's Hessian is shifted by `shift` times `unit`.

        Returns
        -------
        sound : bool
            True if all values are finite, the steps are regular and the regulator exists.
        minimum : bool
            True if the shifted Hessian has a minimum.
        """
        nx = len(self.lx_end)
        if self._constant is None:
            self._curvature.call()
            if not np.isfinite(self.L).all():
                return False, False
            if self._weights is None:
                self._regulator[:] = absolute(self.L, self._sizes).reshape(len(self.L), -1)
        curvature = self._constant
        if curvature is None:
            curvature = self.L.sum(axis=0) / self._grid.w.sum()
        if not np.isfinite(self.lxx_end).all():
            return False, False
        of_u, of_x = self._sizes[nx:], self._sizes[:nx]
        mean = float((np.diag(curvature)[nx:] * of_u**2).mean())
        bend = float(np.abs(self.lxx_end * np.outer(of_x, of_x)).max())
        price = mean if mean > 0 else bend / self._grid.w.mean()
        self.unit = price / self._sizes**2
        weights = self._weights
        G = self._end_part() if weights is None else weights[0]
        self._shift[:] = add = shift * self.unit
        carry, square = self._carry[1:], nx * nx
        carry[:square] = G.reshape(-1)
        carry[square : square + nx] = self.lx_end
        self._shifted_end(carry[square + nx :], self.lxx_end, add[:nx])
        if self._about.call() < len(self.u):
            return False, False
        growth = np.concatenate([self.blocks["A"], self.blocks["B"]], axis=2) * self._sizes / of_x[:, None]
        if np.abs(growth).sum(axis=(1, 2)).max() > REGULAR:
            return False, False
        return True, bool(self._about.outputs[0][-1, 0] == 0)

    def _end_part(self) -> np.ndarray:
        """Return the terminal cost's Hessian with eigenvalues replaced by absolute values.
        It is recomputed only if the Hessian has changed.
        """
        known = self._end_known
        if known is None or not np.array_equal(known[0], self.lxx_end):
            of_x = self._sizes[: len(self.lx_end)]
            self._end_known = known = self.lxx_end.copy(), absolute(self.lxx_end, of_x)
        return known[1]

    def _shifted_end(self, carry: np.ndarray, P: np.ndarray, add: np.ndarray) -> None:
        """Write the terminal cost's Hessian and gradient into the array `carry`.

        `carry` gets the matrix P + w diag(add) with the mean weight w of a step in the cost, followed by
        the gradient at the last sample.
        """
        nx = len(P)
        carry[: nx * nx] = P.reshape(-1)
        carry[: nx * nx : nx + 1] += self._grid.w.mean() * add
        carry[nx * nx :] = self.lx_end

    def minimize(self, shift: float) -> int | None:
        """Minimize the quadratic model of the cost with the given shift of its Hessian.
        Return a number with which the method `direction` returns the minimizer, or None if there is no
        minimum.
        """
        return self._minimize(0, self.lxx_end, shift * self.unit)

    def minimize_other(self, H: np.ndarray, P: np.ndarray) -> int | None:
        """Minimize the quadratic model of the cost with given Hessians.
        H are the Hessians of the steps, and P is that of the terminal cost. Return a number with which the
        method `direction` returns the minimizer, or None if there is no minimum.
        """
        self._other[:] = H.reshape(len(H), -1)
        return self._minimize(1, P, np.zeros(len(self._shift)))

    def _minimize(self, which: int, P: np.ndarray, add: np.ndarray) -> int | None:
        self._lq_shift[:] = add
        self._shifted_end(self._lq_carry, P, add[: len(P)])
        if which not in self._minimizers:
            e = self._programs.equations
            program = self._programs.program("quadratic", lambda: newton_stage.quadratic_stage(e))
            rows = [self._linear, self._hessians[which], self._grid.w[::-1], self._lq_shift]
            self._minimizers[which] = program.bind_accumulate(self._lq_carry, rows, len(self.u), 0, STOP)
        return which + 1 if self._minimizers[which].call() == len(self.u) else None

    def direction(self, which: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the descent direction dx, du, and the slope of the cost along it.
        The direction minimizes the quadratic model with number `which`: 0 is the model at the iterate, other
        numbers are results of `minimize` and `minimize_other`.

        The shapes of dx and du are (N+1, nx) and (N, nu); the slope is Dg.zeta.
        """
        if which not in self._directions:
            e, nx = self._programs.equations, self.x.shape[1]
            program = self._programs.program("direction", lambda: newton_stage.direction_stage(e))
            affine = self._minimizers[which - 1].outputs[1] if which else self._about.outputs[3]
            rows, start = [affine[::-1], self._gradient], np.zeros(1 + nx)
            self._directions[which] = program.bind_accumulate(start, rows, len(self.u), 1 + nx, np.inf)
        bound = self._directions[which]
        bound.call()
        carries, du = bound.outputs[:2]
        dx = np.zeros(self.x.shape)
        dx[1:] = carries[:, 1:]
        return dx, du.copy(), float(carries[-1, 0] + self.lx_end.dot(dx[-1]))

    # -- trials -------------------------------------------------------------------------------------

    def aim(self, dx: np.ndarray, du: np.ndarray) -> None:
        """Set the search direction for the following trial steps."""
        self._dx[:], self._du[:] = dx[:-1], du

    def attempt(self, gamma: float) -> float | None:
        """Simulate a trial with step length gamma along the search direction.
        Return the cost of the trial, or None if one of its time steps cannot be computed.

        The failed step starts at `reached`.
        """
        self._gamma[0] = gamma
        trial, end = self._trial
        count = trial.call()
        if count < len(self.u):
            self.reached = trial.outputs[0][count - 1, 1:] if count else self.x[0]
            return None
        end.call()
        return float(trial.outputs[0][-1, 0] + end.outputs[0][0, 0])

    @cached_property
    def _trial(self) -> tuple[Bound, Bound]:
        """Compiled functions of a trial step of the line search.
        The first simulates the trial under feedback, the second evaluates its terminal cost.
        """
        kernel, e = self.kernel, self._programs.equations
        assert kernel is not None
        program = self._programs.program("trial", lambda: newton_stage.trial_stage(e, kernel))
        rows = [self.x[:-1], self.u, self._dx, self._du, self._gains, self._gamma, *self._grid]
        bound = program.bind_accumulate(self._start, rows, len(self.u), 1 + e.nx, kernel.tolerance)
        return bound, self._terminal(bound.outputs[0][-1, 1:])

    def attempted(self, run: Trajectory) -> Trajectory:
        """Return the trajectory of the last trial step.

        `run` is the iterate.
        """
        states, u, _, multipliers = self._trial[0].outputs
        x = np.concatenate([self.x[:1], states[:, 1:]])
        return Trajectory(run.map, run.t, x, u.copy(), multipliers.copy(), k0=run.k0)


def _back(a: np.ndarray) -> np.ndarray:
    """Return an array with its stages in reversed order.
    An array with one axis, which holds the same values for all stages, is returned unchanged.
    """
    return a[::-1] if a.ndim == 2 else a
