"""The command line: look at a model, simulate it, linearize it, without writing Python."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import vioc
from vioc.errors import ModelError, OptimizationError, StepError

if TYPE_CHECKING:
    from vioc import MidpointVI, System

EXPECTED = (ValueError, OSError, StepError, OptimizationError)  # what a user can cause, and mend


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (2 for what the user can mend)."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        args.run(args)
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
    x, u = start(f, args.set)
    q = x[: f.nq]
    print(system)
    print()
    _print_values(f, "state", f.state_names, x)
    _print_values(f, "input", f.input_names, u)
    M = f.lagrangian.mass_matrix(q)[: f.nd, : f.nd]
    print(f"mass matrix  {f.nd} x {f.nd}, condition {np.linalg.cond(M):.3g}")
    rank, redundant = constraint_rank(f.lagrangian, q)
    if f.nm:
        print(f"constraints  {f.nm} of rank {rank}; redundant: {', '.join(redundant) or 'none'}")
    print(f"degrees of freedom  {f.nd - rank}")


def simulate(args: argparse.Namespace) -> None:
    steps = round(args.time / args.dt)
    if steps < 1:
        raise ValueError(f"--time {args.time:g} is shorter than one step of {args.dt:g} s")
    f = vioc.MidpointVI(load(args.model), args.dt)
    x, u = start(f, args.set)
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


def linearize(args: argparse.Namespace) -> None:
    from vioc.control.analysis import controllability_rank

    f = vioc.MidpointVI(load(args.model), args.dt)
    x, u = start(f, args.set)
    A, B = f.linearize(x, u)
    eigenvalues = np.linalg.eigvals(A)
    rank = controllability_rank(A, B) if f.nu else 0
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
            "step": moved,
        }
        print(json.dumps(result, indent=1))
        return
    print(f)
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


def demo(args: argparse.Namespace) -> None:
    from vioc.demo import swing_up

    swing_up(args.out, quick=args.quick)


# -- models and starts --------------------------------------------------------------------------


def load(name: str) -> System:
    """A model by its file's path, else by a built-in name (``scissor_lift:5`` has an argument)."""
    from vioc import models

    if Path(name).suffix or os.sep in name or Path(name).is_file():
        return vioc.read(name)
    return models.load(name)


def start(f: MidpointVI, settings: Sequence[tuple[str, float]]) -> tuple[np.ndarray, np.ndarray]:
    """State and input by name: configurations ``theta``, velocities ``v.theta``, inputs ``u.force``.

    Kinematic variables are held where they start. Where there are constraints, variables that are not
    set go where those want them, and velocities are projected.
    """
    from vioc.dynamics.consistency import consistent_configuration, project_velocity

    known = {"": f.system.variables, "v.": f.system.variables, "u.": f.input_names}
    groups: dict[str, dict[str, float]] = {prefix: {} for prefix in known}
    for name, value in settings:
        prefix = name[:2] if name[:2] in groups else ""
        if name[len(prefix) :] not in known[prefix]:
            choices = [p + n for p, names in known.items() for n in names]
            raise ModelError(f"--set: unknown name {name!r}; known are {', '.join(choices)}")
        groups[prefix][name[len(prefix) :]] = value
    q: Any = groups[""]
    v: Any = groups["v."]
    if f.nm:
        q = consistent_configuration(f.lagrangian, q, fixed=groups[""]).q
        v = project_velocity(f.lagrangian, q, v)
    hold = {f"rho.{n}": groups[""].get(n, 0.0) for n in f.system.kinematic}
    return f.initial_state(q, v), f.input({**hold, **groups["u."]})


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


def _print_values(f: MidpointVI, title: str, names: Sequence[str], values: np.ndarray) -> None:
    print(title if names else f"{title}  none")
    width = max(map(len, names), default=0)
    for name, value in zip(names, values, strict=True):
        print(f"  {name:{width}} {value:14.8g} {f.unit(name)}".rstrip())


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
MODEL is the path of a model file (.sexp), or the name of a built-in model: {names}.
Families take a size: n_link_pendulum:3, scissor_lift:5."""

SET_HELP = (
    "start: configurations (theta=0.3), velocities (v.theta=1) and inputs that are held (u.force=2); "
    "0 where not given. SI units, radians"
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
        demo,
        "swing up a cart-pole and balance it; leaves plots, an animation and the trajectory",
        "  vioc demo --out out",
    )
    made.add_argument("--out", metavar="DIR", default="out", help="where to (default out)")
    made.add_argument("--quick", action="store_true", help="coarser, without the animation")
    return parser


if __name__ == "__main__":
    sys.exit(main())
