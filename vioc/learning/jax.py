"""Any map as a function of JAX, differentiable forwards and backwards to second order.

    step = vioc.learning.jax.step(f)
    x_next = step(x, u)                      # (nx,), under jit, vmap, grad, jacfwd, hessian, lax.scan

Double precision: ``jax.config.update("jax_enable_x64", True)`` first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

try:
    import jax
    import jax.numpy as jnp
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir
except ImportError:
    raise ImportError("this needs JAX: pip install 'vioc[jax]'") from None

from vioc.learning.solved import autonomous, check_framework_map, solve
from vioc.maps.protocol import OneStepMap


def step(f: OneStepMap, *, multipliers: bool = False) -> Callable[..., Any]:
    """The step of a map as a function of JAX.

    Parameters
    ----------
    f : OneStepMap
        Contact included. Quaternions of states may have any size: the step is that from the unit one.
    multipliers : bool
        Whether they are returned, too.

    Returns
    -------
    callable
        (x, u, theta=None, k=0) -> x_next (nx,), or (x_next, multipliers (nm,)). `x` (nx,), `u` (nu,) and the
        values `theta` (np,) of the declared parameters, by default the map's own, in double precision; `k` is
        the number of the step, by which nothing is differentiated. Many at once: ``jax.vmap``.

    Raises
    ------
    RuntimeError
        Without JAX's double precision.
    ValueError
        Of shapes.

    Notes
    -----
    Derivatives are the map's exact ones, (1) of `vioc.learning.solved`. Second ones are the whole tensor,
    which is ndx + nm contracted ones of `OneStepMap.second_order`; third ones are an error. A step without a
    solution raises in JAX what the map raises, with its text.
    """
    check_framework_map(f)
    if not jax.config.jax_enable_x64:
        raise RuntimeError('steps are in double precision: jax.config.update("jax_enable_x64", True) first')
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
        (y,) = _STEPPED.bind(jnp.concatenate(arrays), number, host=host)
        return (y[:nx], y[nx:]) if multipliers else y[:nx]

    return call


@dataclass(frozen=True, eq=False)
class _Host:
    """What a primitive calls: steps of a map at (s (..., ns), k (...)), s = (x, u, theta)."""

    map: OneStepMap
    timeless: bool

    def __call__(self, order: int, s: Any, k: Any) -> tuple[np.ndarray, ...]:
        s, k = np.asarray(s), np.asarray(k)
        lead, f = s.shape[:-1], self.map
        x, u, theta = np.split(s.reshape(-1, s.shape[-1]), [f.nx, f.nx + f.nu], axis=1)
        solved = solve(f, x, u, theta, k.reshape(-1), self.timeless)
        arrays = [(solved.values,), (solved.values, solved.jacobians), (solved.tensors,)][order]
        return tuple(a.reshape(*lead, *a.shape[1:]) for a in arrays)

    def results(self, order: int, s: Any) -> list[jax.ShapeDtypeStruct]:
        ny, ns = self.map.nx + len(self.map.multiplier_names), s.shape[-1]
        every: list[list[tuple[int, ...]]] = [[(ny,)], [(ny,), (ny, ns)], [(ny, ns, ns)]]
        return [jax.ShapeDtypeStruct((*s.shape[:-1], *shape), np.dtype(float)) for shape in every[order]]


def _primitive(order: int, jvp: Callable[..., Any]) -> Primitive:
    """(s, k) -> [y], [y, J] or [y''].

    Primitives, as JAX drops a custom rule of derivatives where it splits the body of a ``scan``.
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
        found = primitive.bind(s, k, host=host)
        return found, [0] * len(found)

    def differentiated(at: Any, along: Any, *, host: _Host) -> Any:
        ds = jnp.zeros_like(at[0]) if isinstance(along[0], ad.Zero) else along[0]
        return jvp(*at, ds, host)

    primitive = Primitive(f"vioc_step_{order}")
    primitive.multiple_results = True
    primitive.def_impl(call)
    primitive.def_abstract_eval(shapes)
    mlir.register_lowering(primitive, mlir.lower_fun(call, multiple_results=True))
    batching.primitive_batchers[primitive] = batched
    ad.primitive_jvps[primitive] = differentiated
    return primitive


def _first(s: Any, k: Any, ds: Any, host: _Host) -> Any:
    y, J = _LINEARIZED.bind(s, k, host=host)
    return [y], [jnp.einsum("...ij,...j->...i", J, ds)]


def _second(s: Any, k: Any, ds: Any, host: _Host) -> Any:
    y, J = _LINEARIZED.bind(s, k, host=host)
    (T,) = _CURVED.bind(s, k, host=host)
    return [y, J], [jnp.einsum("...ij,...j->...i", J, ds), jnp.einsum("...ijk,...k->...ij", T, ds)]


def _third(*_: Any) -> Any:
    raise NotImplementedError("steps of vioc have first and second derivatives, no third ones")


_STEPPED, _LINEARIZED, _CURVED = (_primitive(i, jvp) for i, jvp in enumerate((_first, _second, _third)))
