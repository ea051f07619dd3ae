"""Maps as PyTorch functions with forward- and reverse-mode derivatives.
To get second derivatives, apply the reverse mode twice.

step = vioc.learning.torch.step(f)
x_next = step(x, u)                      # (..., nx), double precision
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    raise ImportError("this needs PyTorch: pip install 'vioc[torch]'") from None

from vioc.learning.solved import autonomous, check_framework_map, solve
from vioc.maps.protocol import OneStepMap


def step(f: OneStepMap, *, multipliers: bool = False) -> Callable[..., Any]:
    """Return a PyTorch function that computes a step of a map, with exact derivatives.

    Parameters
    ----------
    f : OneStepMap
        The map may have contact. Quaternions of states may have any norm: they are normalized.
    multipliers : bool
        True to return multipliers, too.

    Returns
    -------
    callable
        (x, u, theta=None, k=0) -> x_next (..., nx), or (x_next, multipliers (..., nm)). `x` (..., nx), `u`
        (..., nu) and the values `theta` (..., np) of the declared parameters, by default the map's own, are
        tensors of float64 on the CPU whose leading axes are broadcast; `k` is the index of the steps, an int
        or integers of that shape, without derivatives.

    Raises
    ------
    TypeError
        Tensors that are not float64.
    ValueError
        Wrong shapes or values.
    StepError
        If a step has no solution.

    Notes
    -----
    Derivatives are the map's exact ones, (1) of `vioc.learning.solved`. Double reverse mode costs one
    contracted second derivative per step, not the whole tensor. Third derivatives raise an error.
    """
    check_framework_map(f)
    timeless = autonomous(f)
    nx, nu, np_ = f.nx, f.nu, len(f.parameters)

    def call(x: Any, u: Any, theta: Any = None, k: Any = 0) -> Any:
        given = [(x, nx, "state"), (u, nu, "input")]
        given.append((torch.from_numpy(f.theta) if theta is None else theta, np_, "theta"))
        for tensor, size, what in given:
            if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float64:
                kind = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
                raise TypeError(f"{what}: expected a tensor of torch.float64, got {kind}")
            if not tensor.ndim or tensor.shape[-1] != size:
                raise ValueError(f"{what}: expected shape (..., {size}), got {tuple(tensor.shape)}")
        lead = torch.broadcast_shapes(*(tensor.shape[:-1] for tensor, *_ in given))
        s = torch.cat([tensor.expand(*lead, size) for tensor, size, _ in given], dim=-1)
        numbers = np.broadcast_to(np.asarray(k, int), tuple(lead)).reshape(-1)
        y = _Step.apply(s.reshape(-1, nx + nu + np_), f, numbers, timeless).reshape(*lead, -1)
        return (y[..., :nx], y[..., nx:]) if multipliers else y[..., :nx]

    return call


class _Step(torch.autograd.Function):
    """Autograd function that solves a step for each row of states, inputs, parameters."""

    @staticmethod
    def forward(ctx: Any, s: Any, f: OneStepMap, k: np.ndarray, timeless: bool) -> Any:
        x, u, theta = np.split(s.detach().numpy(), [f.nx, f.nx + f.nu], axis=1)
        ctx.solved = solve(f, x, u, theta, k, timeless)
        ctx.save_for_backward(s)
        ctx.save_for_forward(s)
        return torch.from_numpy(ctx.solved.values)

    @staticmethod
    def backward(ctx: Any, w: Any) -> Any:
        (s,) = ctx.saved_tensors
        return _Pullback.apply(s, w, ctx.solved), None, None, None

    @staticmethod
    def jvp(ctx: Any, ds: Any, *_: Any) -> Any:
        (s,) = ctx.saved_tensors
        return _Pushforward.apply(s, ds, ctx.solved)


class _Pushforward(torch.autograd.Function):
    """Autograd function of the products of steps' Jacobians with directions.
    It is the forward mode of a step; each row of its arguments belongs to one step.

    It is (s, ds) -> J(s) ds.
    """

    @staticmethod
    def forward(ctx: Any, s: Any, ds: Any, solved: Any) -> Any:
        J = torch.from_numpy(solved.jacobians)
        ctx.solved = solved
        ctx.save_for_backward(s, ds, J)
        return torch.einsum("nij,nj->ni", J, ds)

    @staticmethod
    def backward(ctx: Any, w: Any) -> Any:
        s, ds, J = ctx.saved_tensors
        H = torch.from_numpy(ctx.solved.hessians(w.detach().numpy()))
        by_s, by_ds = torch.einsum("nij,nj->ni", H, ds), torch.einsum("nij,ni->nj", J, w)
        return _Last.apply(by_s, s, ds, w), _Last.apply(by_ds, s, ds, w), None


class _Pullback(torch.autograd.Function):
    """Autograd function of products of transposed Jacobians of steps with weights.
    It is the reverse mode of a step; each row of its arguments belongs to one step.

    It is (s, w) -> J(s)' w, for each row.
    """

    @staticmethod
    def forward(ctx: Any, s: Any, w: Any, solved: Any) -> Any:
        J = torch.from_numpy(solved.jacobians)
        ctx.solved = solved
        ctx.save_for_backward(s, w, J)
        ctx.save_for_forward(s, w, J)
        return torch.einsum("nij,ni->nj", J, w)

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        s, w, J = ctx.saved_tensors
        H = torch.from_numpy(ctx.solved.hessians(w.detach().numpy()))
        by_s, by_w = torch.einsum("nij,nj->ni", H, v), torch.einsum("nij,nj->ni", J, v)
        return _Last.apply(by_s, s, w, v), _Last.apply(by_w, s, w, v), None

    @staticmethod
    def jvp(ctx: Any, ds: Any, dw: Any, *_: Any) -> Any:
        s, w, J = ctx.saved_tensors
        tangent = torch.zeros(len(J), J.shape[2], dtype=J.dtype)
        if dw is not None:
            tangent = tangent + torch.einsum("nij,ni->nj", J, dw)
        if ds is not None:
            H = torch.from_numpy(ctx.solved.hessians(w.detach().numpy()))
            tangent = tangent + torch.einsum("nij,nj->ni", H, ds)
        return _Last.apply(tangent, s, w)


class _Last(torch.autograd.Function):
    """Identity function that blocks third derivatives, which maps do not provide.

    Without it, autograd would treat second derivatives as constant. Reverse mode raises an error; forward
    mode, which computes all tangents, returns NaN.
    """

    @staticmethod
    def forward(ctx: Any, value: Any, *of: Any) -> Any:
        ctx.save_for_forward(value)
        return value.clone()

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        (value,) = ctx.saved_tensors
        return torch.full_like(value, torch.nan)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError("steps of vioc have first and second derivatives, no third ones")
