"""The step of a `GalerkinVI` in C, its stages side by side in vectors (galerkin.c)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.lanes import laned, prelude
from vioc.compile.native import signature

if TYPE_CHECKING:
    from vioc.dynamics.integrators.galerkin import GalerkinVI

# Corrections that are not accelerated: differences of the first ones tell of what is not linear.
FIRST = 2
# Fused products and sums: another iteration than the virtual machine's anyway, and a tenth of the time.
FUSED = '#pragma GCC optimize("fp-contract=fast")'


def source(
    f: GalerkinVI, stage: ca.Function, factors: ca.Function, solve: ca.Function, **numbers: float
) -> str | None:
    """C of the kernel; None where a force or potential holds an operation that has no form in vectors.

    Parameters
    ----------
    stage, factors, solve : casadi.Function
        (q, v, forces, t, parameters, none) -> L_v, f; (q, parameters) -> those of M;
        (factors, b, none) -> M^-1 b.
    **numbers
        CONVERGED, STALLED, MOST.
    """
    s, nd, rule = f.stages, f.nd, f.rule
    lanes = 1 << max(1, (s - 1).bit_length())
    functions: list[str] = []
    for name, function in (("stage", stage), ("factors", factors), ("solve", solve)):
        text = laned(function, name)
        if text is None:
            return None
        functions.append(text)
    width = factors.numel_out(0)

    def column(values: np.ndarray) -> str:
        padded = [*values, *[0.0] * (lanes - s)]
        return "{" + ", ".join(repr(float(v)) for v in padded) + "}"

    def table(name: str, matrix: np.ndarray) -> str:
        return f"static const lanes {name}[] = {{{', '.join(column(c) for c in matrix.T)}}};"

    nf, parameters = len(f.system.inputs), len(f.parameters)
    sizes = dict(ND=nd, NQ=f.nq, NX=f.nx, NF=nf, NP=parameters, S=s, NW=width, PAST=f.past, FIRST=FIRST)
    carry = f.nx + (s + f.past) * nd
    vectors = 2 * f.nq + nf + parameters + 2 + width + (6 + 2 * numbers["MOST"]) * nd
    ones = np.ones(s)
    return "\n".join(
        [
            FUSED,
            prelude(lanes),
            signature([carry, f.nu, 1, 1, parameters], [carry, 0, 1], (vectors + 1) * lanes),
            *(f"#define {name} {value}" for name, value in {**sizes, **numbers}.items()),
            *(table(n, m) for n, m in (("A", rule.A), ("AB", rule.Ab), ("AHEAD", f.ahead))),
            *(
                f"static const lanes {n} = {column(v)};"
                for n, v in (("B", rule.b), ("C", rule.c), ("PRESENT", ones))
            ),
            *functions,
            Path(__file__).with_name("galerkin.c").read_text("utf-8"),
        ]
    )
