"""Laws as C: compiled where there is a compiler, and compared with Python."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from control_maps import midpoint_pendulum, two_inputs

from vioc.control import dlqr
from vioc.control.feedback import LinearMPC, as_law, c_source, equilibrium, track_curve, write_c

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")


def compiled(path, name):
    """The exported function as a Python one: (k, x, nu) -> (status, u)."""
    library = path.with_suffix(".so")
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *flags, str(path), "-o", str(library), "-lm"], check=True)
    function = getattr(ctypes.CDLL(str(library)), name)
    pointer = ctypes.POINTER(ctypes.c_double)

    def call(k, x, nu):
        x, u = np.ascontiguousarray(x, float), np.full(nu, np.nan)
        status = function(ctypes.c_int(k), x.ctypes.data_as(pointer), u.ctypes.data_as(pointer))
        return status, u

    return call


@needs_compiler
def test_time_varying_law_with_two_inputs(tmp_path):
    f = two_inputs()
    run = f.rollout([0.3, -0.2, 0.5], np.random.default_rng(0).standard_normal((15, 2)))
    plan = track_curve(f, run.x + 0.1, run.u, 1.0, 0.5, k0=2)
    law = as_law(plan)
    call = compiled(write_c(tmp_path / "law.c", plan, "follow"), "follow")
    for k in (2, 9, 16):
        x = np.random.default_rng(k).standard_normal(3)
        status, u = call(k, x, 2)
        assert status == 0
        np.testing.assert_allclose(u, law(k, x), rtol=1e-14, atol=1e-15)
    for k in (1, 17, -5):
        status, u = call(k, x, 2)
        assert status == 1 and np.isnan(u).all()


@needs_compiler
def test_steady_law_wraps_and_saturates(tmp_path):
    f = midpoint_pendulum(wrap=("theta",))
    law = as_law(dlqr(f, equilibrium(f, theta=np.pi), 5.0, 0.1))
    path = write_c(tmp_path / "hold.c", law, "hold", lower=-2.0, upper={"torque": 3.0})
    call = compiled(path, "hold")
    for x in np.random.default_rng(1).uniform(-20, 20, (50, 2)):
        status, u = call(12345, x, 1)
        assert status == 0
        np.testing.assert_allclose(u, np.clip(law(0, x), -2, 3), rtol=1e-12, atol=1e-12)
    assert call(-1, x, 1)[0] == 1
    text = path.read_text()
    assert "theta, p.theta" in text and "every 0.1 s" in text


@needs_compiler
def test_held_law_stays_at_its_last_row(tmp_path):
    f = midpoint_pendulum()
    run = f.rollout([np.pi, 0.0], np.zeros((5, 1)))
    held = dlqr(f, run, 1.0, 1.0).hold()
    call = compiled(write_c(tmp_path / "held.c", held, "held"), "held")
    for k in (0, 4, 5, 400):
        np.testing.assert_allclose(call(k, [3.0, 0.1], 1)[1], as_law(held)(k, [3.0, 0.1]), rtol=1e-14)


def test_what_cannot_be_exported():
    f = midpoint_pendulum()
    loop = dlqr(f, equilibrium(f, theta=0.0), 1.0, 1.0)
    assert "math.h" not in c_source(loop) and "lower" not in c_source(loop)
    with pytest.raises(ValueError, match="expected a C identifier, got '2fast'"):
        c_source(loop, "2fast")
    with pytest.raises(TypeError, match="expected a law with gains, got LinearMPC"):
        c_source(LinearMPC(loop, 3))
