"""What tests of C folders share: a compiler, folders that are built and replayed, a loop to be written."""

import ctypes
import shutil
import subprocess

import pytest

import vioc
from vioc.control import Measurement, dlqr, equilibrium

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
CHECKED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
OF_MATH = {"sin", "cos", "sincos", "sqrt", "floor", "fabs", "sinf", "cosf", "sincosf", "floorf"}


def works(*flags):
    """Whether the compiler links and runs with these."""
    done = subprocess.run(
        [str(COMPILER), "-x", "c", "-", "-o", "/dev/null", *flags],
        input="#include <math.h>\nint main(void) { return 0; }",
        text=True,
        capture_output=True,
    )
    return done.returncode == 0


def replayed(written, *flags):
    """Exit code and lines of the test program."""
    name, program = written.name, written.folder / "replay"
    sources = [str(written.folder / f"{name}{part}.c") for part in ("", "_test")]
    subprocess.run([COMPILER, *STRICT, *flags, *sources, "-o", str(program), "-lm"], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def loaded(written):
    """The folder as a shared library."""
    library = written.folder / "library.so"
    source = written.folder / f"{written.name}.c"
    command = [COMPILER, *STRICT, "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
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
