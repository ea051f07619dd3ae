"""Command ``vioc cache``, which lists or clears the cache of compiled libraries."""

from __future__ import annotations

import argparse
import time

from vioc.cli.options import Commands
from vioc.compile import Cache, find_compiler

NEWEST = 10  # number of listed libraries


def add(commands: Commands) -> None:
    parser = commands.add(
        "cache",
        run,
        "show or clear the libraries that compiled models are kept in",
        "  vioc cache\n  vioc cache --clear",
    )
    parser.add_argument("--all", action="store_true", help=f"list all libraries, not the newest {NEWEST}")
    parser.add_argument("--clear", action="store_true", help="remove all of them")


def run(args: argparse.Namespace) -> None:
    cache = Cache()
    if args.clear:
        print(f"freed {cache.clear() / 1e6:.1f} MB in {cache.directory}")
        return
    compiler = find_compiler()
    print(f"compiler  {compiler.identity.splitlines()[0] if compiler else 'none found'}")
    entries = list(cache.entries())
    print(
        f"cache     {cache.directory}, {len(entries)} libraries, {sum(e.bytes for e in entries) / 1e6:.1f} MB"
    )
    entries.sort(key=lambda entry: entry.made, reverse=True)
    for entry in entries if args.all else entries[:NEWEST]:
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.made))
        print(f"  {date}  {entry.bytes / 1e3:8.0f} kB  {entry.title}")
    if len(entries) > NEWEST and not args.all:
        print(f"  ... {len(entries) - NEWEST} older ones; --all lists them")
