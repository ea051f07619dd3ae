"""What must work where vioc is installed from a wheel: `python installed_smoke.py`, outside a checkout.

It needs nothing but vioc and its dependencies; with `--studies` it is about the studies beside vioc. It works
in a folder of its own and exits with 1 at the first thing that does not work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

VIOC = str(Path(sysconfig.get_path("scripts")) / "vioc")


def main() -> None:
    import numpy as np

    import vioc

    package = Path(vioc.__file__).parent
    expect(
        not (package.parent / "pyproject.toml").exists(), f"vioc is not installed, but in {package.parent}"
    )
    expect((package / "py.typed").is_file(), "py.typed is missing: editors do not see the types")
    for name in vioc.models.names():
        expect(vioc.models.load(name).variables, f"model {name} is empty")

    cart_pole = vioc.models.load("cart_pole")
    runs = []
    for make in (vioc.MidpointVI, vioc.LinearTimeVI, vioc.MaximalVI):
        f = make(cart_pole, 0.01)
        runs.append(f.rollout(f.initial_state({"theta": 0.3}), steps=50))
    ends = [run["theta"][-1] for run in runs]
    expect(np.ptp(ends) < 0.01, f"the integrators disagree: theta ends at {ends}")
    saved = runs[0].save("run.npz")
    again = vioc.Trajectory.load(saved, runs[0].map)
    expect(np.array_equal(again.x, runs[0].x), "a saved trajectory is not the same when it is read")

    expect(vioc.__version__ in command("--version"), "vioc --version")
    print(command("doctor"))
    command(
        "simulate", "cart_pole", "--set", "theta=1", "--time", "1", "--plot", "a.png", "--animate", "a.gif"
    )
    expect(Path("a.png").stat().st_size > 1000 and Path("a.gif").stat().st_size > 1000, "no pictures")
    linear = json.loads(command("linearize", "cart_pole", "--json"))
    expect(linear["controllability_rank"] == 4, "a cart-pole is controllable")
    expect("converged" in command("demo", "--quick", "--out", "demo"), "the demo did not converge")
    refused = subprocess.run([VIOC, "study", "list"], capture_output=True, text=True)
    expect(refused.returncode == 2 and "pip install ./studies" in refused.stderr, "vioc brings studies")
    expect("complete -o default -F _vioc vioc" in command("completion", "bash"), "no completion")
    print(f"vioc {vioc.__version__} works on Python {sys.version.split()[0]}")


def studies() -> None:
    import studies

    expect(not (Path(studies.__file__).parent / "pyproject.toml").exists(), "the studies are a checkout's")
    expect("pendulum_energy" in command("study", "list"), "the studies are not installed")
    study = "closed_chain_energy"  # it reads data that their wheel must have
    expect("OK: " in command("study", "run", study, "--quick"), f"study {study}")
    expect(json.loads(Path(f"out/studies/{study}.json").read_text())["all_hold"], f"study {study}")
    expect("--group" in run(sys.executable, "-m", "studies.benchmarks", "--help"), "no benchmarks")
    print(f"the studies work on Python {sys.version.split()[0]}")


def command(*words: str) -> str:
    """Return what a command of vioc prints; it must exit with 0."""
    return run(VIOC, *words)


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    shown = " ".join([Path(words[0]).name, *words[1:]])
    expect(done.returncode == 0, f"{shown} exits with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def expect(holds: object, message: str) -> None:
    if not holds:
        sys.exit(f"installed_smoke: {message}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["VIOC_CACHE"] = str(Path(folder, "cache"))
        os.environ.setdefault("MPLBACKEND", "Agg")
        studies() if "--studies" in sys.argv else main()
