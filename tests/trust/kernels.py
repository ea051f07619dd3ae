"""The numerical tests once more, with the sums of other processors: ``python tests/trust/kernels.py``.

OpenBLAS and numpy choose their loops by the processor, and a sum in another order rounds otherwise: a test
that rests on the bits of one processor is red on the next. Here both are told to do as on processors that
this one can stand in for, by OPENBLAS_CORETYPE and NPY_DISABLE_CPU_FEATURES. What it cannot, and what
would be the same loops again, is said and left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CPUINFO = Path("/proc/cpuinfo")
# Tests that compare numbers closely, and end in BLAS or in numpy's loops
NUMERICAL = (
    "tests/test_compile.py",
    "tests/test_control_lqr.py",
    "tests/test_control_stages.py",
    "tests/test_feedback_manifold.py",
    "tests/test_graph_ldu.py",
    "tests/test_inertia.py",
    "tests/test_joints.py",
    "tests/test_linear_time.py",
    "tests/test_linearization.py",
    "tests/test_maximal.py",
    "tests/test_models.py",
    "tests/test_se3.py",
    "tests/test_terms.py",
    "tests/test_tree_algebra.py",
    "tests/test_viz_scene.py",
    "tests/test_viz_viewer.py",
)
# Of test_compile.py, those of files and compilers end in no sum
OTHERS = ("TestCache", "TestCompilersThatDoNotWork", "TestErrors")


@dataclass(frozen=True)
class Processor:
    """A kind of processor: OpenBLAS' name of it, the flags it needs, and which loops of numpy it has not."""

    name: str
    needs: frozenset[str]
    without: str  # of numpy's names, a pattern


PROCESSORS = (
    Processor("Haswell", frozenset({"avx2", "fma"}), "AVX512|X86_V4"),
    Processor("Zen", frozenset({"avx2", "fma"}), "AVX512|X86_V4"),
    Processor("SkylakeX", frozenset({"avx512f", "avx512dq", "avx512bw", "avx512vl"}), "^$"),
    Processor("Nehalem", frozenset({"sse4_2"}), ""),  # no fused products, no wide sums
)

# What numpy chooses at run time of what the processor has, and what the OpenBLAS that are loaded call theirs
CHOSEN = """
import ctypes, json, pathlib, re
import numpy, scipy.linalg
core = getattr(numpy, "_core", None) or numpy.core
has = core._multiarray_umath.__cpu_features__
numpys = [name for name in core._multiarray_umath.__cpu_dispatch__ if has.get(name)]
kernels = {}
for path in sorted(set(re.findall(r"/\\S*openblas\\S*", pathlib.Path("/proc/self/maps").read_text()))):
    library = ctypes.CDLL(path)
    for prefix in ("scipy_", ""):
        for suffix in ("64_", ""):
            try:
                name = getattr(library, f"{prefix}openblas_get_corename{suffix}")
            except AttributeError:
                continue
            name.restype = ctypes.c_char_p
            kernels[path] = name().decode()
print(json.dumps([numpys, kernels]))
"""


def chosen(settings: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Loops of numpy and kernels of OpenBLAS in a process with these settings."""
    command = [sys.executable, "-W", "error", "-c", CHOSEN]
    text = subprocess.run(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, check=True).stdout
    numpys, kernels = json.loads(text)
    return numpys, kernels


def stand_ins() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Settings by the processor that they stand for, and why the others are left out."""
    found, left = re.search(r"^flags\s*:(.*)", CPUINFO.read_text() if CPUINFO.exists() else "", re.M), {}
    flags = set(found[1].split()) if found else set()
    settings: dict[str, dict[str, str]] = {}
    own = chosen({}) if flags else ([], {})
    seen = {str(own): "this processor"}
    for p in PROCESSORS:
        if missing := sorted(p.needs - flags):
            left[p.name] = f"this processor has no {', '.join(missing)}"
            continue
        off = [name for name in own[0] if re.search(p.without, name)]  # names that numpy knows and uses
        given = {"OPENBLAS_CORETYPE": p.name} | ({"NPY_DISABLE_CPU_FEATURES": ",".join(off)} if off else {})
        loops = str(chosen(given))
        if loops in seen:
            left[p.name] = f"the same loops as those of {seen[loops]}"
            continue
        seen[loops] = p.name
        settings[p.name] = given
    return settings, left


def main() -> int:
    settings, left = stand_ins()
    for name, why in left.items():
        print(f"{name}: skipped: {why}", flush=True)
    code = 0
    for name, given in settings.items():
        print(f"{name}: {' '.join(f'{k}={v}' for k, v in given.items())}", flush=True)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "--dist",
            "worksteal",
            "-m",
            "not slow",
            "-k",
            " and ".join(f"not {name}" for name in OTHERS),
            "-p",
            "no:cacheprovider",
        ]
        code |= subprocess.run([*command, *NUMERICAL], cwd=ROOT, env={**os.environ, **given}).returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
