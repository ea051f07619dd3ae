"""``python -m studies`` lists every study with its claims; with names, or ``--run`` for all, it runs them."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from studies.harness import add_options, studies
from vioc.checks import near_misses


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="studies to run")
    parser.add_argument("--run", action="store_true", help="run them all; exit 0 only if every claim holds")
    add_options(parser)
    args = parser.parse_args(argv)
    known = list(studies())
    names = [study.name for study in known]
    unknown = [name for name in args.names if name not in names]
    if unknown:
        parser.error(f"unknown study {unknown[0]!r}; {near_misses(unknown[0], names)}")
    runs = args.run or bool(args.names)
    failed = []
    for study in known:
        if args.names and study.name not in args.names:
            continue
        if not runs:
            print(study.listing() + "\n")
            continue
        try:
            holds = study.execute(quick=args.quick, out=args.out).all_hold
        except Exception:
            traceback.print_exc()
            holds = False
        if not holds:
            failed.append(study.name)
        print()
    if failed:
        print(f"failed: {', '.join(failed)}")
    elif runs:
        print("every claim holds")
    else:
        print("python -m studies NAME [--quick] [--out DIR] runs one, python -m studies --run all of them")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
