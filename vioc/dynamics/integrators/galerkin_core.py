"""Generation of C code for a Galerkin step, which evaluates all its stages at once (galerkin.c)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.lanes import laned, prelude
from vioc.compile.native import signature

if TYPE_CHECKING:
    from vioc.dynamics.integrators.galerkin import GalerkinVI

# Number of corrections that are not accelerated: differences of the first ones contain nonlinear terms.
FIRST = 2
# Fused products and sums save nine tenths of the time; the iteration differs from the virtual machine's
# anyway.
FUSED = '#pragma GCC optimize("fp-contract=fast")'


def source(
    f: GalerkinVI,
    feedback: bool,
    motion: ca.Function,
    stage: ca.Function,
    factors: ca.Function,
    solve: ca.Function,
    **numbers: float,
) -> str | None:
    """Return C code of a Galerkin step, which evaluates all its stages at once.
    The result is None if a force or potential has an operation without a vectorized form.

    Parameters
    ----------
    feedback : bool
        Whether the code has the arguments of a `KernelPrograms` with feedback.
    motion : casadi.Function
        (x, u, t, dt, parameters) -> velocities and accelerations at the step's start.
    stage : casadi.Function
        (q, v, forces, t, parameters, none) -> L_v, f. The argument `none` is empty, since there are no
        multipliers.
    factors, solve : casadi.Function
        (q, parameters) -> factors of the mass matrix M; (factors, b, none) -> M^-1 b.
    **numbers
        CONVERGED, STALLED, MOST, CONTRACTION, FAR, SPACING.
    """
    s, nd, rule = f.stages, f.nd, f.quadrature
    lanes = 1 << max(1, (s - 1).bit_length())
    functions: list[str] = []
    args = motion.sx_in()
    motion = ca.Function("motion", args, motion(*args)[:2])
    for name, function in (("motion", motion), ("stage", stage), ("factors", factors), ("solve", solve)):
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
    sizes = dict(ND=nd, NQ=f.nq, NX=f.nx, NF=nf, NP=parameters, S=s, NW=width, FIRST=FIRST)
    sizes |= dict(NU=f.nu)
    vectors = (
        f.nx + f.nu + 2 + 2 * nd + 2 * f.nq + nf + parameters + 2 + width + (6 + 2 * numbers["MOST"]) * nd
    )
    ones, input_sizes = np.ones(s), [f.nu, f.nx, f.nu * f.nx] if feedback else [f.nu]
    angles = [n in f.wrap for n in f.state_names]
    wrapped, turning = (", ".join(str(int(w)) for w in each) for each in (angles, f.turning))
    natural = ", ".join(repr(float(a)) for a in f.lagrangian.natural_sizes[:nd])
    return "\n".join(
        [
            FUSED,
            prelude(lanes),
            signature(
                [f.nx, *input_sizes, 1, 1, parameters],
                [f.nx, 0, 1, *[f.nu] * feedback],
                (vectors + 1) * lanes,
            ),
            *(f"#define {name} {value}" for name, value in {**sizes, **numbers}.items()),
            *(table(n, m) for n, m in (("A", rule.A), ("AB", rule.Ab))),
            *(
                f"static const lanes {n} = {column(v)};"
                for n, v in (("B", rule.b), ("C", rule.c), ("PRESENT", ones))
            ),
            *functions,
            f"#define FEEDBACK {int(feedback)}",
            f"static const int WRAP[] = {{{wrapped}}}, TURNING[] = {{{turning}}};",
            f"static const double SIZES[] = {{{natural}}};",
            Path(__file__).with_name("galerkin.c").read_text("utf-8"),
        ]
    )
