"""Symmetric compositions of a symmetric integrator, of order 4 and 6.

One step is s steps of a base map, of lengths gamma_i dt. Maths: docs/maths/composition.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.integrators.composition_coefficients import coefficients_of, order_of
from vioc.errors import ModelError, StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.kernel import KernelMap, KernelPrograms, StepSolver
from vioc.maps.made.around import MapAround, around, derivatives_of
from vioc.maps.made.parts import Parts
from vioc.maps.mechanism import Mechanism
from vioc.maps.twins import own, shared, twin


class Composition(KernelMap, MapAround):
    """Integrator of order 4 or 6, whose steps are sequences of steps of another map.
    The other map must be symmetric and of order 2. Some steps in the sequence have negative length.

    Parameters
    ----------
    f : KernelMap
        The map to compose, such as ``MidpointVI(system, dt)`` with alpha 1/2 and symmetric forcing. Its dt is
        the length of a whole step; its names, states and inputs are those of the composition.
    method : int, str or sequence of float
        An order, 4 or 6; a name of `composition_coefficients.METHODS`; or coefficients gamma_1 ... gamma_s
        of your own, which sum to 1 and are symmetric about the middle.

    Attributes
    ----------
    inner : KernelMap
        `f`.
    coefficients : (s,) tuple of float
        Lengths of the stages as fractions of the step.
    order : int

    Raises
    ------
    ModelError
        If the map `f` is not symmetric or cannot be composed, or the method is unknown or not symmetric.

    Notes
    -----
    Some stages run backwards in time, where damping adds energy: the time constant of a damper must be long
    compared with a step. Inputs are constant over a step and kinematic variables move linearly, so varying
    inputs are approximated to order 2. The multiplier ``lambda.NAME`` is the impulse in stage 1, divided by
    gamma_1; it belongs to the start of the step, as for the map `f`. There is no `residual`, because the
    unknowns of a step are those of its stages.

    The data of the mechanism (``system``, ``initial_state``, ``quantity``, ...) are those of the map `f`;
    its other attributes are at ``inner``.

    Examples
    --------
    >>> import vioc
    >>> f = Composition(vioc.MidpointVI(vioc.models.load("pendulum"), dt=0.1), 6)
    >>> f.order, len(f.coefficients)
    (6, 11)
    """

    _identified_by = (("", "inner"), ("composition", "coefficients"))

    def __init__(self, f: KernelMap, method: int | str | Sequence[float] = 4):
        if not isinstance(f, KernelMap):
            raise TypeError(f"expected a one-step map of vioc, got {type(f).__name__}")
        self.method, self.coefficients = coefficients_of(method)
        self.order = order_of(self.coefficients)
        self._given = f
        self._around(f)
        self.parameters, self.symbols, self.tolerance = dict(f.parameters), f.symbols, f.tolerance
        self._as_mechanism = self._mechanical
        _check_composed(f)
        identity = f.backend.identity
        title = identity and f"Composition, {identity['title']}"
        self.backend = f.backend.knowing(composition=list(self.coefficients), title=title)

    def __reduce__(self):
        return Composition, (self.inner, self.method)

    def __repr__(self) -> str:
        return f"Composition(order {self.order}, {len(self.coefficients)} stages, of {self.inner!r})"

    def with_system(self, system: Any) -> Composition:
        """Return a composition with the same method and options for another system.
        The map whose steps are composed keeps its class and options too.
        """
        return Composition(self.inner.with_system(system), self.method)  # type: ignore[attr-defined]

    # -- from the base ----------------------------------------------------------------------------

    @own
    def inner(self) -> KernelMap:  # type: ignore[override]
        inner = twin(self._given)
        inner.parameters, inner.dt = self.parameters, self.dt
        return inner

    def frame_positions(self, X: Any) -> np.ndarray:
        """Return the world positions, in m, of the origins of all frames in the states X."""
        return self.inner.frame_positions(X)  # type: ignore[attr-defined]

    def _mechanical(self) -> Mechanism:
        base = self.inner.mechanism
        return around(self, base.review, implicit=base.implicit)

    # -- one step ---------------------------------------------------------------------------------

    @shared
    def _stage_starts(self) -> np.ndarray:
        """Start times of the s stages, then 1, as fractions of the step (s + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.coefficients)[:-1], [1.0]])

    @shared
    def _stage_inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """Two matrices that compute the inputs of all stages of a step.
        They multiply the state and the input of the whole step. The state is necessary because prescribed
        (kinematic) variables move linearly from their present to their next values.

        The input of stage i is the first (s, nu, nx) times x_k plus the second (s, nu, nu) times u_k.
        """
        return self.inner.mechanism.inputs_at(self._stage_starts[1:])

    def _stage_input(self, i: int, x: Any, u: Any) -> Any:
        by_x, by_u = (m[i] for m in self._stage_inputs)
        if isinstance(x, ca.MX):
            return ca.sparsify(ca.DM(by_x)) @ x + ca.sparsify(ca.DM(by_u)) @ u if by_x.any() else u
        return by_x @ x + by_u @ u

    @shared
    def _chain(self) -> ca.Function:
        """CasADi function that computes all stages of one step, one after another.
        Its arguments and results are (x, u, t, dt, parameters) -> states (nx, s) at the ends of the s stages,
        multipliers (nm, s), error of the solver.
        """
        kernel, starts = self.inner.kernel, self._stage_starts
        assert kernel is not None
        x, u = ca.MX.sym("x", self.nx), ca.MX.sym("u", self.nu)
        t, dt = ca.MX.sym("t"), ca.MX.sym("dt")
        theta = ca.MX.sym("theta", len(self.parameters))
        states, multipliers, errors = [x], [], []
        for i, gamma in enumerate(self.coefficients):
            ui = self._stage_input(i, x, u)
            x_next, impulse, error = kernel.function(
                states[-1], ui, t + float(starts[i]) * dt, gamma * dt, theta
            )
            states.append(x_next)
            multipliers.append(impulse)
            errors.append(error)
        outputs = [ca.horzcat(*states[1:]), ca.horzcat(*multipliers)]
        # the 2-norm keeps a NaN
        return ca.Function("chain", [x, u, t, dt, theta], [*outputs, ca.norm_2(ca.vertcat(*errors))])

    @shared
    def _kernel(self) -> ca.Function:
        args = self._chain.mx_in()
        states, impulses, error = self._chain(*args)
        return ca.Function("step", args, [states[:, -1], impulses[:, 0] / self.coefficients[0], error])

    @property
    def explicit(self) -> ca.Function | None:
        return self._kernel if self.inner.explicit is not None else None

    @shared
    def _programs(self) -> KernelPrograms:
        return KernelPrograms(self, lambda: self._kernel)

    @own
    def step_solver(self) -> StepSolver:
        base = self.inner.step_solver
        return self._programs.solver(self._rescued, check=base.check, fault_of=base.fault_of)

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        states, impulses = self._rescued_stages(x, u, k, t, dt)
        return states[-1], impulses[0] / self.coefficients[0]

    def _rescued_stages(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        """Solve the stages of a composed step one after another.
        Each stage is a step of the composed map. If the usual solver of this map fails, its slower, robust
        solvers are used. The results are the states (s, nx) at the ends of the s stages, and the multipliers
        (s, nm).
        """
        states, impulses, state = [], [], x
        for i, (gamma, start) in enumerate(zip(self.coefficients, self._stage_starts, strict=False)):
            try:
                ui = self._stage_input(i, x, u)
                state, impulse = self.inner.driver.one(state, ui, k, t + start * dt, gamma * dt)
            except StepError as error:
                raise self._of_stage(error, k, i) from None
            states.append(state)
            impulses.append(impulse)
        return np.stack(states), np.stack(impulses)

    def _of_stage(self, error: StepError, k: int, i: int) -> StepError:
        where = f"stage {i + 1} of {len(self.coefficients)} (of length {self.coefficients[i]:.3g} dt)"
        return error.saying(f"step {k}, {where}: {error}", k)

    # -- derivatives ------------------------------------------------------------------------------

    @shared
    def _chain_numbers(self) -> Evaluator:
        return Evaluator(self.backend.program(lambda: self._chain, "chain"))

    def _first(self, steps: Steps, timed: bool) -> Linearization:
        stages = replace(self._stages_of(steps), timed=timed)
        return stages.first(self._linearize_stages(stages, steps))

    def _second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray, timed: bool) -> SecondOrder:
        stages = replace(self._stages_of(steps), timed=timed)
        lin = self._linearize_stages(stages, steps)
        second = derivatives_of(self.inner, timed).second
        return stages.second(lin, second(stages.steps, *stages.weights(lin, Z, zeta)))

    def _stages_of(self, steps: Steps) -> Parts:
        n, s, nx = len(steps), len(self.coefficients), self.nx
        X, U, t, h = steps.x0, steps.u, steps.t[:, None], steps.h[:, None]
        outputs = self._chain_numbers(X, U, t, h, self.theta)
        states, impulses = (np.ascontiguousarray(np.swapaxes(m, 1, 2)) for m in outputs[:2])  # (N, s, ...)
        for i in np.flatnonzero(~(outputs[2][:, 0, 0] <= self.tolerance)):
            step = X[i], U[i], int(steps.k[i]), float(t[i, 0]), float(h[i, 0])
            states[i], impulses[i] = self._rescued_stages(*step)
        by_x, by_u = self._stage_inputs
        inputs = np.einsum("sij,nj->nsi", by_x, X) + np.einsum("sij,nj->nsi", by_u, U)
        flat = Steps(
            np.concatenate([X[:, None], states[:, :-1]], axis=1).reshape(n * s, nx),
            np.concatenate([states[:, :-1], steps.x1[:, None]], axis=1).reshape(n * s, nx),
            inputs.reshape(n * s, self.nu),
            impulses.reshape(n * s, impulses.shape[2]),
            (t + self._stage_starts[:-1] * h).ravel(),
            (h * self.coefficients).ravel(),
            np.arange(n * s),
        )
        shares = np.zeros((s, flat.multipliers.shape[1]))
        shares[0] = 1 / self.coefficients[0]
        return Parts(flat, by_x, by_u, shares, self._stage_starts[:-1], np.array(self.coefficients))

    def _linearize_stages(self, stages: Parts, steps: Steps) -> Linearization:
        try:
            return derivatives_of(self.inner, stages.timed).first(stages.steps)
        except StepError as error:
            k, i = divmod(error.k, len(self.coefficients))
            raise self._of_stage(error, int(steps.k[k]), i) from None


def _check_composed(base: KernelMap) -> None:
    """Raise `ModelError` unless a map is suitable for composition.
    A suitable map is symmetric and of order 2, and one CasADi function computes its steps, also for a
    negative step length.
    """
    unknown = base.symmetric is None and base.explicit is None
    if base.kernel is None or unknown or getattr(base, "order", 2) != 2:
        raise ModelError(
            f"{base!r} cannot be composed: expected a map of order 2 whose steps are one function that may "
            "run backwards in time; compose a MidpointVI of the system instead"
        )
    if not (_undoes_itself(base) if base.symmetric is None else base.symmetric):
        raise ModelError(
            f"{base!r} is not symmetric: a step by -dt does not undo a step by dt. Compose a symmetric map "
            "of order 2, such as MidpointVI with alpha = 1/2 and symmetric forcing"
        )


def _undoes_itself(base: KernelMap) -> bool:
    """Return whether an explicit map is symmetric: a step of length -dt undoes a step of dt."""
    step = base.explicit
    assert step is not None
    rng = np.random.default_rng(0)
    x = base.retract(np.zeros(base.nx), 0.1 * rng.standard_normal(base.ndx))
    u, dt, theta = np.ones(base.nu), base.dt, base.theta
    x_next = step(x, u, 0.0, dt, theta)[0].full()[:, 0]
    x_back = step(x_next, u, dt, -dt, theta)[0].full()[:, 0]
    return bool(np.abs(base.difference(x, x_back)).max(initial=0.0) <= 1e-10)
