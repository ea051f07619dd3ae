"""The command line: look at a model, simulate it, linearize it, without writing Python."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import vioc
from vioc.dynamics.compile import BACKENDS
from vioc.errors import CompileError, ConstraintError, ModelError, OptimizationError, StepError
from vioc.starts import start

if TYPE_CHECKING:
    from vioc import MidpointVI, System
    from vioc.dynamics.consistency import ConstraintReport

EXPECTED = (
    ValueError,
    OSError,
    ImportError,
    CompileError,
    StepError,
    OptimizationError,
)  # what a user can cause, and mend


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (2 for what the user can mend)."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else it is tried again at exit
        return 1
    except MemoryError as error:
        if args.debug:
            raise
        print(f"vioc: error: not enough memory for this many steps or variables: {error}", file=sys.stderr)
        return 2
    except EXPECTED as error:
        if args.debug:
            raise
        message = " ".join(str(error).split())
        print(f"vioc: error: {message}", file=sys.stderr)
        return 2
    return 0


# -- commands -----------------------------------------------------------------------------------


def info(args: argparse.Namespace) -> None:
    from vioc.dynamics.consistency import constraint_rank

    system = load(args.model)
    f = vioc.MidpointVI(system, args.dt)
    print(system)
    print()
    try:
        x, u, found = start(f, args.set, args.guess)
    except ConstraintError:
        print(f"state  {', '.join(f.state_names)}\ninput  {', '.join(f.input_names) or 'none'}", flush=True)
        raise
    q = x[: f.nq]
    _print_start(found)
    _print_values(f, "state", f.state_names, x)
    _print_values(f, "input", f.input_names, u, "u.")
    M = f.lagrangian.mass_matrix(q)[: f.nd, : f.nd]
    print(f"mass matrix  {f.nd} x {f.nd}, condition {np.linalg.cond(M):.3g}")
    rank, redundant = constraint_rank(f.lagrangian, q)
    if f.nm:
        print(f"constraints  {f.nm} of rank {rank}; redundant: {', '.join(redundant) or 'none'}")
    print(f"degrees of freedom  {f.nd - rank}")


def simulate(args: argparse.Namespace) -> None:
    check_targets(args)
    steps = round(args.time / args.dt)
    if steps < 1:
        raise ValueError(f"--time {args.time:g} is shorter than one step of {args.dt:g} s")
    if steps > np.iinfo(np.int32).max:
        raise ValueError(f"--time {args.time:g} is {steps:.3g} steps of {args.dt:g} s, more than can be kept")
    f = vioc.MidpointVI(load(args.model), args.dt, backend=args.backend)
    x, u, found = start(f, args.set, args.guess)
    if found:
        _print_start(found)
        _print_values(f, "state at the start", f.state_names, x)
    run = f.rollout(x, u, steps=steps)
    energy = run.energy
    print(run)
    _print_values(f, "state at the end", f.state_names, run.x[-1])
    print(
        f"energy  {energy[0]:.8g} J at the start, {energy[-1]:.8g} J at the end, range {np.ptp(energy):.3g} J"
    )
    if args.save:
        print(f"wrote {run.save(args.save)}")
    if args.plot:
        axes = np.atleast_1d(run.plot())
        axes[0].figure.savefig(args.plot, dpi=150)
        print(f"wrote {args.plot}")
    if args.animate:
        from vioc.viz import animate

        animate(run, args.animate)
        print(f"wrote {args.animate}")


def cache(args: argparse.Namespace) -> None:
    from vioc.dynamics.compile import Cache, find_compiler

    kept = Cache()
    if args.clear:
        print(f"freed {kept.clear() / 1e6:.1f} MB in {kept.directory}")
        return
    compiler = find_compiler()
    print(f"compiler  {compiler.identity.splitlines()[0] if compiler else 'none found'}")
    entries = list(kept.entries())
    print(
        f"cache     {kept.directory}, {len(entries)} libraries, {sum(e.bytes for e in entries) / 1e6:.1f} MB"
    )
    for entry in entries:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.made))
        print(f"  {made}  {entry.bytes / 1e3:8.0f} kB  {entry.title}")


def linearize(args: argparse.Namespace) -> None:
    from vioc.control.analysis import controllability_rank

    f = vioc.MidpointVI(load(args.model), args.dt)
    x, u, found = start(f, args.set, args.guess)
    q, resting = x[: f.nq], not any(name.startswith("v.") and value for name, value in args.set)
    if found and resting:  # p = 0 is half a constraint impulse away from the fixed point of the map
        x = f.state_from_configurations(q, q, u)
    A, B = f.linearize(x, u)
    eigenvalues = np.linalg.eigvals(A)
    rank = controllability_rank(A, B) if f.nu else 0
    T = tangent(f, q)
    free = controllability_rank(T.T @ A @ T, T.T @ B) if f.nu else 0
    moved = float(np.abs(f.difference(x, f.step(x, u))).max())
    if args.json:
        result = {
            "dt": f.dt,
            "state_names": f.state_names,
            "input_names": f.input_names,
            "x": x.tolist(),
            "u": u.tolist(),
            "A": A.tolist(),
            "B": B.tolist(),
            "eigenvalues": [[s.real, s.imag] for s in eigenvalues],
            "controllability_rank": rank,
            "controllability_rank_on_constraints": [free, T.shape[1]],
            "step": moved,
        }
        print(json.dumps(result, indent=1))
        return
    print(f)
    _print_start(found)
    still = moved <= 1e-9 * (1 + np.abs(x).max())
    print("an equilibrium" if still else f"not an equilibrium: the state moves by {moved:.3g} in a step")
    print(_table("A", f.state_names, f.state_names, A))
    if f.nu:
        print(_table("B", f.state_names, f.input_names, B))
    print("eigenvalues")
    for s in sorted(eigenvalues, key=lambda s: (-abs(s), s.imag)):
        number = f"{s.real:+.8f}" + (f" {s.imag:+.8f}i" if s.imag else "")
        print(f"  {number:28s} |s| = {abs(s):.8f}")
    print(f"controllability rank  {rank} of {f.ndx}")
    if f.nm:
        print(f"on the constraint manifold  {free} of {T.shape[1]}")
        print("(momenta that the constraints absorb count in the first, not in the second)")


def tangent(f: MidpointVI, q: np.ndarray) -> np.ndarray:
    """T (ndx, r): of the motions that the constraints leave at q; T' A T acts on them at an equilibrium.

    Configurations in ker Dh; momenta modulo span Dh', which a step absorbs (docs/maths/linearization.md).
    """
    from scipy.linalg import block_diag, null_space

    if not f.nm:
        return np.eye(f.ndx)
    Dh = f.lagrangian.constraint_jacobian(q)
    return block_diag(null_space(Dh, 1e-9), null_space(Dh[:, : f.nd], 1e-9), np.eye(f.nk))


def demo(args: argparse.Namespace) -> None:
    from vioc.demo import swing_up

    swing_up(args.out, quick=args.quick)


# -- models and files --------------------------------------------------------------------------


def load(name: str) -> System:
    """A model by its file's path, else by a built-in name (``scissor_lift:5`` has an argument).

    A robot from a URDF file stands on a fixed base and has an input at every joint.
    """
    from vioc import models
    from vioc.dynamics.description.files import read

    file = Path(name)
    path_like = file.suffix or os.sep in name or file.is_file()
    if not path_like and (name in models.names() or not file.is_dir()):
        return models.load(name)
    if file.is_dir():
        held = sorted(p.name for p in file.iterdir() if p.suffix.lower() in (".sexp", ".urdf"))
        raise ModelError(f"{name!r} is a folder; model files in it: {', '.join(held) or 'none'}")
    if not file.exists():
        raise ModelError(f"no such model file: {name!r}; built-in models are {', '.join(models.names())}")
    options: dict[str, Any] = {"inputs": "all"} if Path(name).suffix.lower() == ".urdf" else {}
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        system = read(name, **options)
    for remark in remarks:
        print(f"vioc: warning: {remark.message}", file=sys.stderr)
    return system


def check_targets(args: argparse.Namespace) -> None:
    """Raise ValueError where a file to write is not of a kind that can be written, or has no folder."""
    from vioc.viz import film

    kinds = {"save": (".npz",), "plot": (".png", ".pdf", ".svg"), "animate": film.SUFFIXES}
    for option, suffixes in kinds.items():
        target = getattr(args, option)
        if target is None:
            continue
        path = Path(target)
        if path.suffix.lower() not in suffixes:
            raise ValueError(f"--{option}: expected a file {' or '.join(suffixes)}, got {target!r}")
        if not path.parent.is_dir():
            raise ValueError(f"--{option}: no such folder: {str(path.parent)!r}")
        if path.is_dir():
            raise ValueError(f"--{option}: {target!r} is a folder")


def _setting(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        return name, float(value if equals else "")
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected NAME=NUMBER, got {text!r}") from None


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < np.inf:
        raise argparse.ArgumentTypeError(f"expected a time > 0 in seconds, got {text!r}")
    return value


# -- printing -----------------------------------------------------------------------------------


def _print_values(
    f: MidpointVI, title: str, names: Sequence[str], values: np.ndarray, prefix: str = ""
) -> None:
    print(title if names else f"{title}  none")
    width = max(map(len, names), default=0)
    for name, value in zip(names, values, strict=True):
        print(f"  {name:{width}} {value:14.8g} {f.unit(prefix + name)}".rstrip())


def _print_start(found: ConstraintReport | None) -> None:
    if found:
        print(f"start found  {found}")


def _table(title: str, rows: Sequence[str], columns: Sequence[str], values: np.ndarray) -> str:
    width = max(14, *(len(c) + 2 for c in columns))
    first = max(len(r) for r in rows) + 2
    lines = [title.ljust(first) + "".join(c.rjust(width) for c in columns)]
    lines += [
        ("  " + r).ljust(first) + "".join(f"{v:{width}.6g}" for v in row)
        for r, row in zip(rows, values, strict=True)
    ]
    return "\n".join(lines)


# -- arguments ----------------------------------------------------------------------------------

MODEL_HELP = """\
MODEL is the path of a model file (.sexp, or .urdf: fixed base, an input at every joint), or the name of
a built-in model: {names}.
Families take a size: n_link_pendulum:3, scissor_lift:5."""

SET_HELP = (
    "start: configurations (theta=0.3), velocities (v.theta=1) and inputs that are held (u.force=2); SI "
    "units, radians. Not given: 0; in a model with constraints what those ask for, with the given ones fixed"
)
GUESS_HELP = (
    "models with constraints: where the search for the configurations that are not set begins, to choose "
    "between the ways to assemble the mechanism (default 0)"
)


def _parser() -> argparse.ArgumentParser:
    from vioc import models

    about = MODEL_HELP.format(names=", ".join(models.names()))
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show where an error came from")
    start_options = argparse.ArgumentParser(add_help=False)
    start_options.add_argument("model", metavar="MODEL", help="path or built-in name, see below")
    start_options.add_argument(
        "--set", metavar="NAME=VALUE", nargs="+", action="extend", type=_setting, default=[], help=SET_HELP
    )
    start_options.add_argument(
        "--guess",
        metavar="NAME=VALUE",
        nargs="+",
        action="extend",
        type=_setting,
        default=[],
        help=GUESS_HELP,
    )
    start_options.add_argument("--dt", type=_seconds, default=0.01, help="time step, s (default 0.01)")

    parser = argparse.ArgumentParser(
        prog="vioc",
        description="Mechanisms on variational integrators: simulate, linearize, control.",
        epilog="Try `vioc demo`, or `vioc COMMAND --help` for examples.",
    )
    parser.add_argument("--version", action="version", version=f"vioc {vioc.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(
        run: Any, help: str, examples: str, *parents: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        epilog = f"examples:\n{examples}" + (f"\n\n{about}" if parents else "")
        made = commands.add_parser(
            run.__name__,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[*parents, common],
        )
        made.set_defaults(run=run)
        return made

    command(
        info,
        "print a model: its tree, states, inputs, mass matrix and constraints",
        "  vioc info cart_pole\n  vioc info my_robot.sexp --set shoulder=0.5",
        start_options,
    )
    made = command(
        simulate,
        "simulate a model; save, plot or animate the result",
        "  vioc simulate cart_pole --set theta=0.3 --time 5 --plot fall.png\n"
        "  vioc simulate cart_pole --set theta=3 v.x=1 u.force=0.5 --animate push.gif --save push.npz",
        start_options,
    )
    made.add_argument("--time", type=_seconds, default=10.0, metavar="T", help="how long, s (default 10)")
    made.add_argument(
        "--backend",
        choices=BACKENDS,
        default="virtual",
        help="what computes: CasADi's virtual machine (default), compiled C, or whichever pays",
    )
    made.add_argument("--save", metavar="FILE", help="the trajectory, as .npz")
    made.add_argument("--plot", metavar="FILE", help="the states over time, as .png, .pdf or .svg")
    made.add_argument("--animate", metavar="FILE", help="an animation, as .gif or .html")
    made = command(
        linearize,
        "print the exact linearization of a step: A, B, eigenvalues, controllability",
        "  vioc linearize cart_pole\n  vioc linearize cart_pole --set theta=3.14159265 --dt 0.02 --json",
        start_options,
    )
    made.add_argument("--json", action="store_true", help="print JSON, all digits")
    made = command(
        cache,
        "show or clear the libraries that compiled models are kept in",
        "  vioc cache\n  vioc cache --clear",
    )
    made.add_argument("--clear", action="store_true", help="remove all of them")
    made = command(
        demo,
        "swing up a cart-pole and balance it; leaves plots, an animation and the trajectory",
        "  vioc demo --out out",
    )
    made.add_argument("--out", metavar="DIR", default="out", help="where to (default out)")
    made.add_argument("--quick", action="store_true", help="coarser, without the animation")
    return parser


if __name__ == "__main__":
    sys.exit(main())
