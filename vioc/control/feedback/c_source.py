"""Feedback laws as self-contained C, for a controller that runs without Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from vioc.control.c_comment import listed
from vioc.control.problem.limits import input_bounds
from vioc.control.regulators.law import StateLaw, as_law

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def c_source(law: Any, name: str = "feedback", *, lower: Any = None, upper: Any = None) -> str:
    """C99 source of u = clip(u_d[k] - K[k] difference(x_d[k], x)).

    Parameters
    ----------
    law : StateLaw, Regulator, SteadyRegulator or Tracking
        Of a map whose errors are its states; angles in the map's ``wrap`` are wrapped.
    name : str
        Of the function, a C identifier.
    lower, upper : float, (nu,), dict of str to float, or None
        Bounds of the inputs.

    Returns
    -------
    str
        Defines ``int NAME(int k, const double *x, double *u)`` and ``NAME_NX``, ``NAME_NU``, ``NAME_N``. It
        returns 0, or 1 outside of the law's horizon, where it leaves u alone. It keeps no state and
        allocates nothing; it needs math.h only where angles wrap.

    Raises
    ------
    TypeError
        If the law has no gains.
    ValueError
        If the name is no C identifier, the bounds are wrong, or ndx != nx.
    """
    state_law = as_law(law)
    if not isinstance(state_law, StateLaw):
        raise TypeError(f"expected a law with gains, got {type(state_law).__name__}")
    if not _NAME.fullmatch(name):
        raise ValueError(f"name: expected a C identifier, got {name!r}")
    f = state_law.map
    if f.ndx != f.nx:
        raise ValueError(f"the map's errors ({f.ndx}) are not its states ({f.nx}): no C source for it")
    bounds = input_bounds(f, lower, upper)
    wrapped = [n in f.wrap for n in f.state_names]
    N, k0 = len(state_law.U), state_law.k0
    up = name.upper()
    ends = f"if (i < 0 || i >= {up}_N) return 1;" if state_law.after == "ends" else "if (i < 0) return 1;"
    hold = {
        "ends": "",
        "holds": f"\n    if (i >= {up}_N) i = {up}_N - 1;",
        "repeats": f"\n    i %= {up}_N;",
    }[state_law.after]
    wrap = (
        "\n        if (wrapped[c]) d[c] -= TURN * rint(d[c] / TURN); /* half to even, as numpy */"
        if any(wrapped)
        else ""
    )
    tables = [
        _table("x_d", state_law.X, f"[{up}_N][{up}_NX]"),
        _table("u_d", state_law.U, f"[{up}_N][{up}_NU]"),
        _table("gain", state_law.K.reshape(N, -1), f"[{up}_N][{up}_NU * {up}_NX]"),
    ]
    clip = ""
    if np.isfinite(bounds).any():
        low, high = (np.where(np.isfinite(b), b, np.sign(b) * np.finfo(float).max) for b in bounds)
        tables += [_vector("lower", low, f"[{up}_NU]"), _vector("upper", high, f"[{up}_NU]")]
        rows = ("if (value < lower[r]) value = lower[r];", "if (value > upper[r]) value = upper[r];")
        clip = "".join(f"\n        {row}" for row in rows)
    if any(wrapped):
        flags = ", ".join("1" if w else "0" for w in wrapped)
        tables.append(
            f"static const int wrapped[{up}_NX] = {{{flags}}};\nstatic const double TURN = {2 * np.pi!r};"
        )
    body = "\n".join(tables)
    return f"""/* u = u_d[k] - K[k] (x - x_d[k]), sampled every {f.dt!r} s.
   x: {listed(f.state_names)}
   u: {listed(f.input_names)} */
{"#include <math.h>" + chr(10) if any(wrapped) else ""}
#define {up}_NX {f.nx}
#define {up}_NU {f.nu}
#define {up}_N {N}

{body}

/* Input u for state x at sample k; returns 1 where the law has no gains for k. */
int {name}(int k, const double *x, double *u)
{{
    double d[{up}_NX];
    int i = k - ({k0}), r, c;
    {ends}{hold}
    for (c = 0; c < {up}_NX; ++c) {{
        d[c] = x[c] - x_d[i][c];{wrap}
    }}
    for (r = 0; r < {up}_NU; ++r) {{
        double value = u_d[i][r];
        for (c = 0; c < {up}_NX; ++c) value -= gain[i][r * {up}_NX + c] * d[c];{clip}
        u[r] = value;
    }}
    return 0;
}}
"""


def write_c(path: str | Path, law: Any, name: str = "feedback", **options: Any) -> Path:
    """Write `c_source` to a file; returns its path."""
    path = Path(path)
    path.write_text(c_source(law, name, **options))
    return path


def _vector(name: str, values: np.ndarray, shape: str) -> str:
    return f"static const double {name}{shape} = {{{_numbers(values)}}};"


def _table(name: str, rows: np.ndarray, shape: str) -> str:
    inner = ",\n    ".join(f"{{{_numbers(row)}}}" for row in rows)
    return f"static const double {name}{shape} = {{\n    {inner}\n}};"


def _numbers(values: np.ndarray) -> str:
    return ", ".join(repr(float(v)) for v in values)  # shortest text that reads back to the same bits
