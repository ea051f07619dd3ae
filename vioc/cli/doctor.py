"""Command ``vioc doctor``, which lists and tests software versions and tools."""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import vioc
from vioc.cli.options import Commands
from vioc.compile.cores import BLAS

LIBRARIES = ("numpy", "scipy", "casadi", "matplotlib")
EXTRAS = {
    "urdfdom-py": "robots from URDF files: pip install 'vioc[urdf]'",
    "mujoco": "robots from MJCF files: pip install 'vioc[mjcf]'",
    "control": "python-control: pip install 'vioc[interop]'",
    "crocoddyl": "its solvers on vioc's maps: pip install crocoddyl",
    "distributed": "sweeps over a Dask cluster: pip install distributed",
    "viser": "`vioc view`, in the browser: pip install 'vioc[viewer]'",
}
SOLVERS = {"ipopt": "DMOC's default", "fatrop": "DMOC", "sqpmethod": "DMOC"}
ENVIRONMENT = ("CC", "VIOC_CACHE", "VIOC_WORKERS", "VIOC_PROGRESS")
Row = tuple[str, str]


def add(commands: Commands) -> None:
    commands.add(
        "doctor",
        run,
        "show versions, compiler, cache, solvers and extras, and check that they work",
        "  vioc doctor",
    )


def run(args: argparse.Namespace) -> int:
    sections: dict[str, Callable[[], Iterator[Row]]] = {
        "": installation,
        "compiled models": compiling,
        "solvers of nonlinear programs": solvers,
        "optional": extras,
        "environment": environment,
    }
    for title, rows in sections.items():
        entries = list(rows())
        if title and entries:
            print(f"\n{title}")
        for name, text in entries:
            print(f"{'  ' * bool(title)}{name:{22 - 2 * bool(title)}} {text}")
    print("\nchecks")
    sound = True
    for name, check in CHECKS.items():
        before = time.perf_counter()
        try:
            text = check()
        except Exception as error:
            if args.debug:
                raise
            sound, text = False, f"FAILED: {type(error).__name__}: {' '.join(str(error).split())}"
        print(f"  {name:20} {text}  ({time.perf_counter() - before:.1f} s)", flush=True)
    print("\nall is well" if sound else "\nsomething is wrong: see FAILED above")
    return 0 if sound else 1


# -- installed software -------------------------------------------------------------------------


def installation() -> Iterator[Row]:
    """Yield name and version of each installed package, and the folder of vioc."""
    folder = Path(vioc.__file__).parent
    checkout = (folder.parent / "pyproject.toml").is_file()
    yield "vioc", f"{vioc.__version__}, {'checkout' if checkout else 'installed'} in {folder}"
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}, {_cores()}"
    for name in LIBRARIES:
        yield name, _version(name) or "MISSING"
    yield "BLAS threads", _blas_threads()


def compiling() -> Iterator[Row]:
    """Yield the name of the C compiler, and the state of the cache of libraries."""
    from vioc.compile import Cache, find_compiler

    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        compiler = find_compiler()
    if compiler:
        text = f"{compiler.name}: {compiler.identity.splitlines()[0]}"
    elif remarks:
        text = f"none that works: {remarks[0].message}"
    else:
        text = "none: no need of one (pip install 'vioc[compiler]' brings one)"
    yield "compiler", text
    cache = Cache()
    entries = list(cache.entries())
    yield "cache", str(cache.directory)
    yield "holds", f"{len(entries)} libraries, {sum(e.bytes for e in entries) / 1e6:.1f} MB (vioc cache)"
    yield "writable", _writable(cache.directory)


def solvers() -> Iterator[Row]:
    import casadi as ca

    for name, use in SOLVERS.items():
        yield name, f"{'yes' if ca.has_nlpsol(name) else 'not in this CasADi'} ({use})"


def extras() -> Iterator[Row]:
    for name, use in EXTRAS.items():
        version = _version(name)
        yield name, version if version else f"-  ({use})"
    yield "ffmpeg", shutil.which("ffmpeg") or "-  (animations as .mp4)"


def environment() -> Iterator[Row]:
    for name in (*ENVIRONMENT, *BLAS):
        if name in os.environ:
            yield name, os.environ[name]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cores() -> str:
    from vioc.compile.cores import workers

    count = os.cpu_count() or 1
    return f"{count} cores" + (f", {workers()} in use" if workers() != count else "")


def _blas_threads() -> str:
    """Return the number of threads of NumPy's BLAS library, if known, as text.
    Otherwise return the environment variables that set this number.
    """
    loaded = []
    if sys.platform == "linux":
        with open("/proc/self/maps") as maps:
            loaded = sorted({line.split()[-1] for line in maps if "openblas" in line})
    for path in loaded:
        library = ctypes.CDLL(path)
        for name in (f"{p}openblas_get_num_threads{s}" for p in ("", "scipy_") for s in ("", "64_")):
            if hasattr(library, name):
                return f"{getattr(library, name)()} (OpenBLAS)"
    settings = [f"{name}={os.environ[name]}" for name in BLAS if name in os.environ]
    return ", ".join(settings) or "its own choice"


def _writable(folder: Path) -> str:
    """Return a text that says whether files can be created in a folder."""
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return "yes"
    except OSError as error:
        return f"no: {error.strerror}; set VIOC_CACHE to a folder that is"


# -- checks -------------------------------------------------------------------------------------


def check_virtual() -> str:
    """Check energy and linearization of a rollout with CasADi's virtual machine."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01)
    run = f.rollout(f.initial_state({"theta": 0.5}), steps=500)
    band = float(np.ptp(run.energy))
    if not band < 1e-3:
        raise ArithmeticError(f"the energy of a falling cart-pole varies by {band:.3g} J, expected < 1e-3 J")
    x, u = run.x[100], np.array([0.5])
    A, B = f.linearize(x, u)
    point, h = np.concatenate([x, u]), 1e-5
    ends = [[f.step((point + s * e)[:4], (point + s * e)[4:]) for s in (h, -h)] for e in np.eye(5)]
    error = float(np.abs(np.array([(a - b) / (2 * h) for a, b in ends]).T - np.hstack([A, B])).max())
    if not error < 1e-7:
        raise ArithmeticError(f"A, B differ from differences of steps by {error:.3g}, expected < 1e-7")
    return f"ok: energy within {band:.1e} J over 500 steps, A and B exact to {error:.1e}"


def check_compiled() -> str:
    """Check that compiled code gives the same bits as CasADi's virtual machine."""
    from vioc.compile import find_compiler

    if find_compiler() is None:
        return "skipped: no compiler"
    runs = []
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        for backend in ("virtual", "compiled"):
            f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01, backend=backend)
            runs.append(f.rollout(f.initial_state({"theta": 0.5}), steps=100))
    if not np.array_equal(runs[0].x, runs[1].x):
        gap = float(np.abs(runs[0].x - runs[1].x).max())
        raise ArithmeticError(f"it differs from the virtual machine by {gap:.3g}, expected the same bits")
    return "ok: the same bits as the virtual machine" + "".join(f"; {r.message}" for r in remarks)


def check_optimizer() -> str:
    """Check that the optimizer `dmoc` converges for a small swing-up problem."""
    import casadi as ca

    if not ca.has_nlpsol("ipopt"):
        return "skipped: this CasADi has no IPOPT"
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.05)
    cost = vioc.control.quadratic(f, R=1.0)
    best = vioc.control.dmoc.solve(
        f, cost, steps=40, initial=f.initial_state(), final=f.initial_state({f.state_names[0]: np.pi})
    )
    return f"ok: {best.iterations} iterations of IPOPT"


CHECKS = {
    "virtual machine": check_virtual,
    "compiled backend": check_compiled,
    "optimizer": check_optimizer,
}
