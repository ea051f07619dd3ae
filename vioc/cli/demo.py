"""Command ``vioc demo``, which swings up a cart-pole and balances it."""

from __future__ import annotations

import argparse
from pathlib import Path

from vioc.cli.options import Commands, check_folder


def add(commands: Commands) -> None:
    parser = commands.add(
        "demo",
        run,
        "swing up a cart-pole and balance it; leaves plots, an animation and the trajectory",
        "  vioc demo --out out",
    )
    parser.add_argument("--out", metavar="DIR", default="out", help="where to (default out)")
    parser.add_argument("--quick", action="store_true", help="coarser, without the animation")


def run(args: argparse.Namespace) -> None:
    from vioc.demo import swing_up

    check_folder("--out", Path(args.out))
    swing_up(args.out, quick=args.quick)
