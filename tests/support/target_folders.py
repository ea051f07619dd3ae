"""What tests of C folders share: a compiler, folders that are built and replayed, a loop to be written."""

import ctypes
import shutil
import subprocess
from functools import cache

import pytest

import vioc
from vioc.control import Measurement, dlqr, equilibrium

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
CHECKED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
OF_MATH = {"sin", "cos", "sincos", "sqrt", "floor", "fabs", "sinf", "cosf", "sincosf", "floorf"}


@cache
def works(*flags):
    """Whether the compiler links and runs with these."""
    done = subprocess.run(
        [str(COMPILER), "-x", "c", "-", "-o", "/dev/null", *flags],
        input="#include <math.h>\nint main(void) { return 0; }",
        text=True,
        capture_output=True,
    )
    return done.returncode == 0


def _object(written):
    """The folder's source compiled once, for the test program and the shared library."""
    source = written.folder / f"{written.name}.c"
    made = source.with_suffix(".o")
    if not made.exists() or made.stat().st_mtime_ns < source.stat().st_mtime_ns:
        subprocess.run([COMPILER, *STRICT, "-O1", "-fPIC", "-c", str(source), "-o", str(made)], check=True)
    return str(made)


def replayed(written, *flags):
    """Exit code and lines of the test program; of a source compiled with these flags, if there are any."""
    name, program = written.name, written.folder / "replay"
    source = str(written.folder / f"{name}.c") if flags else _object(written)
    test = str(written.folder / f"{name}_test.c")
    subprocess.run([COMPILER, *STRICT, *flags, source, test, "-o", str(program), "-lm"], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def loaded(written):
    """The folder as a shared library."""
    library = written.folder / "library.so"
    subprocess.run([COMPILER, "-shared", _object(written), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def balanced_cart():
    """A cart-pole of two angles' worth of trouble: wrapped, measured by encoders, bounded."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01, wrap=("theta",))
    upright = equilibrium(f, theta=0.0)
    law = dlqr(f, upright, {"x": 20.0, "theta": 20.0, "p.x": 1.0, "p.theta": 1.0}, 0.1)
    sensors = Measurement(f, {"x": 1e-7, "theta": 4e-6})
    return f, upright, law, sensors
