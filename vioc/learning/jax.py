"""Maps as JAX functions with forward and reverse derivatives up to second order.

    step = vioc.learning.jax.step(f)
    x_next = step(x, u)                      # (nx,), under jit, vmap, grad, jacfwd, hessian, lax.scan
    many = vioc.learning.jax.rollouts(f)     # many rollouts at once, on a CPU or a GPU

Enable double precision first: ``jax.config.update("jax_enable_x64", True)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

try:
    import jax
    import jax.numpy as jnp
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir
except ImportError:
    raise ImportError("this needs JAX: pip install 'vioc[jax]'") from None

from vioc.compile.arrays import on_arrays
from vioc.dynamics.integrators.chord import ITERATIONS
from vioc.dynamics.integrators.discrete import DiscreteLagrangianVI
from vioc.dynamics.integrators.midpoint import MidpointVI
from vioc.learning.solved import autonomous, check_framework_map, solve
from vioc.maps.protocol import OneStepMap


def step(f: OneStepMap, *, multipliers: bool = False) -> Callable[..., Any]:
    """Return a JAX function that computes a step of a map, with exact derivatives.

    Parameters
    ----------
    f : OneStepMap
        The map may have contact. Quaternions of states may have any norm: they are normalized.
    multipliers : bool
        True to return multipliers, too.

    Returns
    -------
    callable
        (x, u, theta=None, k=0) -> x_next (nx,), or (x_next, multipliers (nm,)). `x` (nx,), `u` (nu,) and the
        values `theta` (np,) of the declared parameters, by default the map's own, in double precision; `k` is
        the index of the step, without derivatives. Use ``jax.vmap`` for many steps at once.

    Raises
    ------
    RuntimeError
        Without JAX's double precision.
    ValueError
        Wrong shapes.

    Notes
    -----
    Derivatives are the map's exact ones, (1) of `vioc.learning.solved`. Second derivatives are the whole
    tensor, that is, ndx + nm contracted ones of `OneStepMap.second_order`; third derivatives raise an error.
    If a step does not exist, JAX raises an error with the text of the map's error.
    """
    check_framework_map(f)
    _check_precision()
    nx, nu, np_, host = f.nx, f.nu, len(f.parameters), _Host(f, autonomous(f))

    def call(x: Any, u: Any, theta: Any = None, k: Any = 0) -> Any:
        given = (x, nx, "state"), (u, nu, "input"), (f.theta if theta is None else theta, np_, "theta")
        arrays = []
        for got, size, what in given:
            array = jnp.asarray(got, float)
            if array.shape != (size,):
                raise ValueError(
                    f"{what}: expected shape ({size},), got {array.shape}; use jax.vmap for many of them"
                )
            arrays.append(array)
        number = jnp.asarray(k)
        if number.shape or not jnp.issubdtype(number.dtype, jnp.integer):
            raise ValueError(f"k: expected a whole number, got {number.dtype} of shape {number.shape}")
        (y,) = _primitive(0).bind(jnp.concatenate(arrays), number, host=host)
        return (y[:nx], y[nx:]) if multipliers else y[:nx]

    return call


def rollouts(f: MidpointVI | DiscreteLagrangianVI) -> Callable[..., Any]:
    """Return a JAX program that computes many rollouts at once, on a CPU or a GPU.

    The program consists of JAX operations made from the map's step, without callbacks. It runs on the device
    of JAX's arrays and under ``jax.jit``. For derivatives use `step`.

    Parameters
    ----------
    f : MidpointVI or DiscreteLagrangianVI
        The map is compiled once; XLA takes seconds to a minute for ten links.

    Returns
    -------
    callable
        (x0 (B, nx), U (B, N, nu), theta=None (np,) or (B, np), k0=0) -> X (B, N + 1, nx), compiled. Steps are
        those of the map's own `rollouts` to its `tolerance`. If the iteration cannot certify the root of a
        step, which `rollouts` would then solve in another way or refuse, the sample is NaN from that step on.

    Raises
    ------
    RuntimeError
        Without JAX's double precision.
    ValueError
        If the map has no equations in CasADi's scalar operations, or a shape is wrong.
    ModelError
        If a force or potential has an operation without an array form.
    """
    _check_precision()
    if not isinstance(f, MidpointVI | DiscreteLagrangianVI):
        raise ValueError(f"f: expected a MidpointVI or a DiscreteLagrangianVI, got {type(f).__name__}")
    step_functions = f.chord.step_functions
    functions = step_functions.predict, step_functions.factorize, step_functions.iterate, step_functions.check
    predict, factorize, iterate, check = (on_arrays(function, jnp) for function in functions)
    nx, nu, h, nominal = f.nx, f.nu, jnp.full((1, 1), f.dt), f.theta

    def advanced(x: Any, given: tuple[Any, Any], theta: Any) -> tuple[Any, Any]:
        t, u = given
        arguments = u, jnp.full((1, 1), t), h, theta
        guess, away, pivots = predict(x, *arguments)
        context = x, guess, *arguments
        y, w, suspect = factorize(*context, x[: len(guess)], pivots)
        z = jnp.concatenate([y, jnp.zeros_like(y[:1])])  # the last entry is the memory of corrections
        none = jnp.zeros_like(z), x, jnp.full_like(suspect, jnp.inf)

        def goes(state: Any) -> Any:
            count, _, going, _ = state
            return (count < ITERATIONS) & going.any()

        def again(state: Any) -> Any:
            count, z, going, (g, _, _) = state
            z = jnp.where(going, z - g, z)
            g, x_next, _, error = iterate(z, *context, w)
            return count + 1, z, going & (jnp.abs(g).max(0) > step_functions.converged), (g, x_next, error)

        start = 0, z, jnp.ones(z.shape[1:], bool), none
        *_, (_, x_next, error) = jax.lax.while_loop(goes, again, start)
        error = (error + suspect + away + check(x, x_next[: f.nq], theta)[0])[0]
        x_next = jnp.where(error <= f.tolerance, x_next, jnp.nan)  # NaN errors compare false
        return x_next, x_next

    def rolled(x0: Any, U: Any, theta: Any, k0: Any) -> Any:
        x0, theta = x0.T, theta.T
        t = f.dt * (k0 + jnp.arange(U.shape[1]))
        _, X = jax.lax.scan(partial(advanced, theta=theta), x0, (t, U.transpose(1, 2, 0)))
        return jnp.concatenate([x0[None], X]).transpose(2, 0, 1)

    program = jax.jit(rolled)

    def call(x0: Any, U: Any, theta: Any = None, k0: Any = 0) -> Any:
        x0, U = jnp.asarray(x0, float), jnp.asarray(U, float)
        if x0.ndim != 2 or x0.shape[1] != nx:
            raise ValueError(f"x0: expected shape (samples, {nx}), got {x0.shape}")
        if U.ndim != 3 or (U.shape[0], U.shape[2]) != (len(x0), nu):
            raise ValueError(f"U: expected shape ({len(x0)}, steps, {nu}), got {U.shape}")
        given = jnp.atleast_2d(jnp.asarray(nominal if theta is None else theta, float))
        if given.shape not in ((1, len(nominal)), (len(x0), len(nominal))):
            raise ValueError(
                f"theta: expected shape ({len(nominal)},) or ({len(x0)}, {len(nominal)}), got {given.shape}"
            )
        return program(x0, U, given, k0)

    return call


def _check_precision() -> None:
    if not jax.config.jax_enable_x64:
        raise RuntimeError('steps are in double precision: jax.config.update("jax_enable_x64", True) first')


@dataclass(frozen=True, eq=False)
class _Host:
    """Callback on the host by which JAX programs solve steps of a map.

    Its arguments are s = (x, u, theta), (..., ns), and the step indices k (...).
    """

    map: OneStepMap
    timeless: bool

    def __call__(self, order: int, s: Any, k: Any) -> tuple[np.ndarray, ...]:
        s, k = np.asarray(s), np.asarray(k)
        lead, f = s.shape[:-1], self.map
        x, u, theta = np.split(s.reshape(-1, s.shape[-1]), [f.nx, f.nx + f.nu], axis=1)
        solved = solve(f, x, u, theta, k.reshape(-1), self.timeless)
        wanted = [("values",), ("values", "jacobians"), ("tensors",)][order]  # computed on access
        return tuple(a.reshape(*lead, *a.shape[1:]) for a in (getattr(solved, name) for name in wanted))

    def results(self, order: int, s: Any) -> list[jax.ShapeDtypeStruct]:
        ny, ns = self.map.nx + len(self.map.multiplier_names), s.shape[-1]
        every: list[list[tuple[int, ...]]] = [[(ny,)], [(ny,), (ny, ns)], [(ny, ns, ns)]]
        return [jax.ShapeDtypeStruct((*s.shape[:-1], *shape), np.dtype(float)) for shape in every[order]]


@cache
def _primitive(order: int) -> Primitive:
    """Return the JAX primitive of a step (order 0) or of its derivatives (order 1, 2).

    For orders 0, 1, 2 it is (s, k) -> [y], [y, J] or [y'']. Primitives are used since JAX drops custom
    derivative rules when it splits the body of a ``scan``.
    """

    def call(s: Any, k: Any, *, host: _Host) -> Any:
        return jax.pure_callback(partial(host, order), tuple(host.results(order, s)), s, k)

    def shapes(s: Any, k: Any, *, host: _Host) -> Any:
        return [jax.core.ShapedArray(r.shape, r.dtype) for r in host.results(order, s)]

    def batched(arrays: Any, axes: Any, *, host: _Host) -> Any:
        size = next(a.shape[i] for a, i in zip(arrays, axes, strict=True) if i is not None)
        s, k = (
            jnp.broadcast_to(a, (size, *a.shape)) if i is None else jnp.moveaxis(a, i, 0)
            for a, i in zip(arrays, axes, strict=True)
        )
        results = primitive.bind(s, k, host=host)
        return results, [0] * len(results)

    def differentiated(point: Any, along: Any, *, host: _Host) -> Any:
        ds = jnp.zeros_like(point[0]) if isinstance(along[0], ad.Zero) else along[0]
        return rules[order](*point, ds, host)

    rules: tuple[Callable[..., Any], ...] = (_first, _second, _third)
    primitive = Primitive(f"vioc_step_{order}")
    primitive.multiple_results = True
    primitive.def_impl(call)
    primitive.def_abstract_eval(shapes)
    mlir.register_lowering(primitive, mlir.lower_fun(call, multiple_results=True))
    batching.primitive_batchers[primitive] = batched
    ad.primitive_jvps[primitive] = differentiated
    return primitive


def _first(s: Any, k: Any, ds: Any, host: _Host) -> Any:
    y, J = _primitive(1).bind(s, k, host=host)
    return [y], [jnp.einsum("...ij,...j->...i", J, ds)]


def _second(s: Any, k: Any, ds: Any, host: _Host) -> Any:
    y, J = _primitive(1).bind(s, k, host=host)
    (T,) = _primitive(2).bind(s, k, host=host)
    return [y, J], [jnp.einsum("...ij,...j->...i", J, ds), jnp.einsum("...ijk,...k->...ij", T, ds)]


def _third(*_: Any) -> Any:
    raise NotImplementedError("steps of vioc have first and second derivatives, no third ones")
