"""Command ``vioc target FOLDER``: run a controller's C code at a given rate."""

from __future__ import annotations

import argparse
from pathlib import Path

from vioc.cli.options import Commands, check_target, seconds


def add(commands: Commands) -> None:
    parser = commands.add(
        "target",
        run,
        "build a controller's folder of C and call it at a rate: how late samples begin, how long they take",
        "  vioc target balance\n  vioc target balance --frequency 500 --seconds 20 --plot jitter.png",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="what write_target made")
    parser.add_argument("--frequency", type=seconds, help="Hz (default the controller's own)")
    parser.add_argument("--seconds", type=seconds, default=5.0, help="how long (default 5)")
    parser.add_argument("--plot", metavar="FILE", help="write histograms (.png, .pdf or .svg)")


def run(args: argparse.Namespace) -> int:
    from vioc.target import run_at

    check_target("--plot", args.plot, (".png", ".pdf", ".svg"))
    times = run_at(args.folder, args.frequency, args.seconds)
    print(times)
    if args.plot:
        times.plot().figure.savefig(args.plot, dpi=150)
    return 1 if times.status else 0
