"""`MaximalVI`: the variational integrator in maximal coordinates of [M] as a one-step map.

    pi-(V_k) = pi+(V_k-1) + dt F(Z_k) - G(Z_k)' lambda,   Z_k+1 = Z_k moved by V_k for dt,   g(Z_k+1) = 0

with the state x_k = (Z_k, V_k-1). The maths is in docs/maths/maximal.md.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.compile.backend import Backend
from vioc.dynamics.compile.compiler import find_compiler
from vioc.dynamics.compile.programs import Program
from vioc.dynamics.description.system import System
from vioc.dynamics.evaluate import Evaluator
from vioc.dynamics.integrators.base import Linearization, SecondOrder, Symbols
from vioc.dynamics.integrators.kernel import KernelMap
from vioc.dynamics.integrators.maximal import rotations as rot
from vioc.dynamics.integrators.maximal.derivatives import StepDerivatives
from vioc.dynamics.integrators.maximal.kernel import build_kernel
from vioc.dynamics.integrators.maximal.newton import solve_step
from vioc.dynamics.integrators.maximal.quantities import Quantities
from vioc.dynamics.integrators.maximal.states import START, States
from vioc.dynamics.integrators.maximal.step import PAST, STATE, StepGraph
from vioc.dynamics.integrators.maximal.tape import Core, CoreProgram
from vioc.dynamics.integrators.maximal.terms import TWIST
from vioc.dynamics.integrators.newton import dependent_constraints
from vioc.dynamics.signals import inputs
from vioc.dynamics.trajectory import Trajectory

UNIT = 1e-6  # how far from 1 the norm of a state's quaternion may be
POSE_NAMES = ("x", "y", "z", "qw", "qx", "qy", "qz")
TWIST_NAMES = ("vx", "vy", "vz", "wx", "wy", "wz")


class MaximalVI(KernelMap):
    """The variational integrator of [M] 3 in maximal coordinates, as a one-step map.

    Parameters
    ----------
    system : System
        Without kinematic variables; every body needs a mass.
    dt : float
        Time step, s, > 0. No body may turn by pi or more within a step.
    tolerance : float
        Largest accepted residual of a step, relative: momenta as displacements, and constraint values, in
        units of 1 + the mechanism's extent.
    backend : {"virtual", "compiled", "auto"}
        What runs the map's functions, see `vioc.dynamics.compile.backend.Backend`.

    Attributes
    ----------
    system : System
    graph : StepGraph
        Bodies, constraints and their graph.
    bodies : tuple of str
        Their names, in the order of the state.

    Raises
    ------
    ModelError
        If the system has no maximal coordinates (the frame or joint is named).

    Notes
    -----
    The state is, for every body, its centre of mass and unit quaternion (``x.BODY`` ... ``qz.BODY``, 7
    numbers), then for every body the linear velocity in the world's axes and the angular one in its own
    (``vx.BODY`` ... ``wz.BODY``), those of the step before. Its error has 12 numbers a body: (dx, phi) of
    each, then (dv, dw) of each, phi a rotation vector in the body's axes. Multipliers are impulses of the
    joints' rows (``BODY.1`` ... for the joint that holds BODY) and of the system's constraints.

    Quantities beside the protocol's: every variable of the system by its name (rad in (-pi, pi]), ``v.NAME``,
    ``kinetic``, ``potential``, ``energy``, ``FRAME:x`` (y, z), ``momentum:x``, ``angular:x`` (about the
    world's origin), ``g.NAME`` and ``force.NAME`` of constraints.
    """

    def __init__(self, system: System, dt: float, *, tolerance: float = 1e-11, backend: str = "virtual"):
        if not isinstance(system, System):
            raise TypeError(f"expected a System, got {type(system).__name__}")
        self.system, self.dt, self._tolerance = system, float(dt), float(tolerance)
        self._step_lengths(None, 1)
        self.graph = StepGraph(system)
        self.bodies = tuple(b.name for b in self.graph.bodies)
        n = len(self.bodies)
        self.state_names = (
            *(f"{c}.{b}" for b in self.bodies for c in POSE_NAMES),
            *(f"{c}.{b}" for b in self.bodies for c in TWIST_NAMES),
        )
        self.input_names, self.multiplier_names = system.inputs, self.graph.names
        self.nx, self.ndx, self.nu = (STATE + TWIST) * n, 2 * TWIST * n, len(system.inputs)
        self.parameters = dict(system.parameters)
        self.symbols = Symbols(
            ca.SX.sym("x", self.nx),
            ca.SX.sym("u", self.nu),
            ca.SX.sym("multipliers", len(self.multiplier_names)),
            ca.SX.sym("theta", len(self.parameters)),
            ca.SX.sym("dt"),
        )
        self.backend = Backend(backend)
        self.states = States(self)

    def __reduce__(self):
        options = dict(tolerance=self._tolerance, backend=self.backend.name)
        return _rebuild, (self.system, self.dt, options, self.parameters)

    def __repr__(self) -> str:
        rows = len(self.multiplier_names)
        return (
            f"MaximalVI({self.system.name}: {len(self.bodies)} bodies, {rows} constraint rows, "
            f"nx = {self.nx}, nu = {self.nu}, dt = {self.dt:g} s)"
        )

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "model": repr(self.system)}

    def inputs(self, steps: int, signals: Any = None, **options: Any) -> np.ndarray:
        """U (N, nu) from numbers, arrays, functions of time and splines by name: `vioc.inputs`."""
        return inputs(self, steps, signals, **options)

    # -- the state space ------------------------------------------------------------------------------

    def _split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions (..., n, 3), quaternions (..., n, 4), twists (..., 6 n)."""
        x = np.asarray(x, float)
        n = len(self.bodies)
        poses = x[..., : STATE * n].reshape(*x.shape[:-1], n, STATE)
        return poses[..., :3], poses[..., 3:], x[..., STATE * n :]

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        (p0, q0, V0), (p1, q1, V1) = self._split(x0), self._split(x1)
        phi = rot.logarithm(rot.product(q0 * [1, -1, -1, -1], q1))
        poses = np.concatenate([p1 - p0, phi], axis=-1)
        return np.concatenate([poses.reshape(*poses.shape[:-2], -1), V1 - V0], axis=-1)

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        p, q, V = self._split(x)
        dx = np.asarray(dx, float)
        n = len(self.bodies)
        e = dx[..., : TWIST * n].reshape(*dx.shape[:-1], n, TWIST)
        turned = rot.product(q, rot.exponential(e[..., 3:]))
        poses = np.concatenate([p + e[..., :3], turned], axis=-1)
        return np.concatenate([poses.reshape(*poses.shape[:-2], -1), V + dx[..., TWIST * n :]], axis=-1)

    def retract_expression(self, x: ca.SX, dx: ca.SX) -> ca.SX:
        """`retract` on symbols, exact to second order in dx: for derivatives by errors."""
        n, parts = len(self.bodies), []
        for i in range(n):
            phi = dx[TWIST * i + 3 : TWIST * i + 6]
            small = (1 - ca.dot(phi, phi) / 8, *ca.vertsplit(phi / 2))
            q = rot.multiply(tuple(ca.vertsplit(x[STATE * i + 3 : STATE * i + STATE])), small)
            parts += [x[STATE * i : STATE * i + 3] + dx[TWIST * i : TWIST * i + 3], *q]
        return ca.vertcat(*parts, x[STATE * n :] + dx[TWIST * n :])

    def _difference_expression(self, x0: ca.MX, x1: ca.MX) -> ca.MX:
        n, rows = len(self.bodies), []
        for i in range(n):
            a, b = x0[STATE * i : STATE * i + STATE], x1[STATE * i : STATE * i + STATE]
            s = ca.dot(a[3:], b[3:])
            v = a[3] * b[4:] - b[3] * a[4:] - ca.cross(a[4:], b[4:])
            size = ca.sqrt(ca.dot(v, v) + 1e-300)
            sign = ca.if_else(s < 0, -1.0, 1.0)
            rows += [b[:3] - a[:3], 2 * ca.atan2(size, sign * s) / size * sign * v]
        return ca.vertcat(*rows, x1[STATE * n :] - x0[STATE * n :])

    def check_state(self, x: Any, what: str = "state") -> np.ndarray:
        x = super().check_state(x, what)
        norms = np.linalg.norm(self._split(x)[1], axis=-1)
        bad = np.flatnonzero(np.abs(norms - 1) > UNIT)
        if len(bad):
            raise ValueError(
                f"{what}: expected unit quaternions, got one of norm {norms[bad[0]]:.6g} for the body "
                f"{self.bodies[bad[0]]!r}; make states by initial_state or retract"
            )
        return x

    def state(self, values: Any = None, **named: float) -> np.ndarray:
        """The state at rest at minimal coordinates by name, zero elsewhere; see `initial_state`."""
        return self.initial_state({**(values or {}), **named})

    def initial_state(
        self, q: Any = None, v: Any = None, u: Any = None, *, start: str = START[0]
    ) -> np.ndarray:
        """The state of minimal coordinates and their rates.

        Parameters
        ----------
        q, v : array (nq,) or dict by name
            Missing names are zero; q may be the report of `consistent_configuration`.
        u : (nu,), optional
            Inputs that act at the start; their half impulse belongs to the state.
        start : {"legendre", "given"}
            ``"legendre"`` takes half a step's impulse of the forces off: second order in positions.
            ``"given"`` sets V_-1 to the velocity itself, as [M] 3.1 does: first order.

        Raises
        ------
        ConstraintError
            If a constraint of the system, or its rate, is not zero there.
        """
        return self.states.initial(q, v, u, start)

    def minimal(self, x: Any, near: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Minimal coordinates q and rates v (nq,) each of a state; rates as ``v.NAME``.

        Parameters
        ----------
        x : (nx,)
        near : array (nq,) or dict, optional
            Angles are taken within half a turn of these; by default of zero.
        """
        return self.states.minimal(self.check_state(x), near)

    # -- steps ----------------------------------------------------------------------------------------

    @cached_property
    def _kernel(self) -> ca.Function:
        return build_kernel(self.graph, self.nx, self.nu)

    def _program(self, feedback: bool, robust: bool = False) -> Program:
        if self.backend.name == "virtual" or find_compiler() is None:
            return super()._program(feedback, robust)
        programs = self.__dict__.setdefault("_programs", {})
        if feedback not in programs:
            programs[feedback] = CoreProgram(self, self.core, feedback)
        return programs[feedback]

    @cached_property
    def core(self) -> Core:
        """The compiled core; needs a compiler."""
        return Core(self)

    def _carry(self, x: np.ndarray, before: np.ndarray, dt: float) -> np.ndarray:
        at = STATE * len(self.bodies)
        past = [x[at:], *before[::-1, at:][:PAST]]
        while len(past) <= PAST:
            past.append(past[-1] if len(past) == 1 else 2 * past[-1] - past[-2])
        return np.concatenate([x, *past[1:]])

    def _check_start(self, x: np.ndarray, k: int) -> None:
        """Refuse to start where the constraints of a loop are dependent: multipliers would be arbitrary."""
        if self.system.constraints:  # joints of a tree are always independent
            G = self._variations(x, self._theta)[0]
            error = dependent_constraints(G, self.multiplier_names, f"step {k}: G(Z_k)", k, 0.0)
            if error is not None:
                raise error

    @cached_property
    def _variations(self) -> Evaluator:
        return Evaluator(self.quantities.variations)

    def _rescue(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        return solve_step(self, x, u, k, t, dt)

    # -- derivatives ------------------------------------------------------------------------------------

    @cached_property
    def derivatives(self) -> StepDerivatives:
        return StepDerivatives(self)

    def _first(self, x: Any, u: Any, k: int, dt: float | None):
        x = self.check_state(x)
        u = self.check_input(u, x)
        h = self._step_lengths(dt, 1)
        X, multipliers, _ = self._steps(x, u[None], k, h)
        return self.derivatives.first(X[:1], X[1:], u[None], multipliers, k * h, h, self._theta)

    def linearize(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> Linearization:
        return self._first(x, u, k, dt).row(0)

    def linearize_points(self, X: Any, U: Any, *, k0: int = 0) -> Linearization:
        X, U = np.asarray(X, float), np.asarray(U, float)
        h = self._step_lengths(None, 1)
        solved = [self._steps(x, u[None], k0 + i, h) for i, (x, u) in enumerate(zip(X, U, strict=True))]
        X1, multipliers = np.stack([s[0][1] for s in solved]), np.stack([s[1][0] for s in solved])
        t = (k0 + np.arange(len(U))) * self.dt
        return self.derivatives.first(
            X, X1, U, multipliers, t, np.repeat(h, len(U)), self._theta
        ).linearization

    def linearize_trajectory(self, trajectory: Trajectory) -> Linearization:
        return self.derivatives.first(*self._along(trajectory)).linearization

    def second_order(
        self, x: Any, u: Any, z: Any, k: int = 0, dt: float | None = None, *, zeta: Any = None
    ) -> SecondOrder:
        first = self._first(x, u, k, dt)
        zeta = np.zeros(len(self.multiplier_names)) if zeta is None else np.asarray(zeta, float)
        H = self.derivatives.second(first, np.asarray(z, float)[None], zeta[None])
        return SecondOrder(*(getattr(H, f)[0] for f in ("xx", "xu", "uu", "xp", "up", "pp")))

    def second_order_trajectory(
        self, trajectory: Trajectory, Z: np.ndarray, zeta: np.ndarray | None = None
    ) -> SecondOrder:
        first = self.derivatives.first(*self._along(trajectory))
        zeta = np.zeros((len(trajectory), len(self.multiplier_names))) if zeta is None else zeta
        return self.derivatives.second(first, np.asarray(Z, float), zeta)

    def _along(self, run: Trajectory) -> tuple:
        return run.x[:-1], run.x[1:], run.u, run.multipliers, run.t[:-1], run.step_lengths, self._theta

    # -- named quantities ---------------------------------------------------------------------------------

    @cached_property
    def quantities(self) -> Quantities:
        """Expressions of the named quantities."""
        return Quantities(self)

    def quantity(self, name: str) -> ca.SX:
        found = self.quantities.find(name)
        return super().quantity(name) if found is None else found

    def _morequantities(self) -> list[str]:
        return self.quantities.names()

    def unit(self, name: str) -> str:
        """SI unit of a named quantity, "" where it has none that is known."""
        return self.quantities.unit(name)

    def frame_positions(self, X: Any) -> np.ndarray:
        """World positions of every frame's origin (N, nodes, 3), m; of frames inside a joint, the joint's."""
        X = np.atleast_2d(np.asarray(X, float))
        flat = self._frame_positions(np.ascontiguousarray(X), self._theta)[0][..., 0]
        return flat.reshape(len(X), -1, 3)

    @cached_property
    def _frame_positions(self) -> Evaluator:
        return Evaluator(self.quantities.frame_positions)


def _rebuild(system: System, dt: float, options: dict, parameters: dict) -> MaximalVI:
    f = MaximalVI(system, dt, **options)
    return f.with_parameters(**parameters) if parameters != f.parameters else f
