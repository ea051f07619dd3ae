"""``./vioc-bench``: the benchmarks beside other programs, on one core in one go, in their own environment.

Makes the environment, installs vioc and each of the other programs that has a wheel here, and runs
``python -m studies.benchmarks`` there. What cannot be installed is said, and stands as "not installed" in the
tables. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUT = Path("out") / "vioc-bench"
# In quick runs: where others are beside. First uses, batches, scaling and samples of NMPC are of vioc alone
QUICK = ("steps", "contact", "derivatives", "optimizers", "ocp")


def programs() -> list[list[str]]:
    """Return what is installed together: the extra `bench` of the studies, each library by its pins."""
    text = (ROOT / "studies" / "pyproject.toml").read_text("utf-8")
    extra = re.search(r"^bench = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    assert extra is not None
    packages = re.findall(r'"([^"]+)"', extra[1])
    together = [p for p in packages if re.match(r"(crocoddyl|libpinocchio|pin)\b", p)]
    return [together, *([p] for p in packages if p not in together)]


def environment(folder: Path) -> Path:
    """Make it, or bring it up to date; its Python."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    # With what urdf and mjcf need: robots of the problems are read from files
    subprocess.run([*pip, "--editable", f"{ROOT}[urdf]"], check=True)
    for packages in programs():
        if subprocess.run([*pip, "--only-binary", ":all:", *packages]).returncode:
            print(f"not installed: {', '.join(packages)}", flush=True)
    # Robots of problems are among Pinocchio's examples; their newest would bring another Pinocchio
    if subprocess.run([*pip, "--no-deps", "example-robot-data", "example-robot-data-loaders"]).returncode:
        print("not installed: example-robot-data", flush=True)
    return python


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="vioc-bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Other options go to the benchmarks: --group, --json, --publish.",
    )
    parser.add_argument("--quick", action="store_true", help="small problems, hardly repeated: minutes")
    parser.add_argument(
        "--out", type=Path, default=OUT, help="environment and results (default: %(default)s)"
    )
    args, rest = parser.parse_known_args(argv)
    began = time.monotonic()
    python = environment(args.out.absolute() / "env")
    print(f"environment: {time.monotonic() - began:.0f} s", flush=True)
    groups = [] if "--group" in rest or not args.quick else [w for g in QUICK for w in ("--group", g)]
    own = [*(["--quick"] if args.quick else []), "--out", str(args.out), *groups, *rest]
    code = subprocess.run([str(python), "-m", "studies.benchmarks", *own], cwd=ROOT).returncode
    print(f"in all: {time.monotonic() - began:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
