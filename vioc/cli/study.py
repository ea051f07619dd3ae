"""Command ``vioc study``: compare measured values with values that papers report."""

from __future__ import annotations

import argparse
import importlib
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from vioc.cli.options import Commands, check_folder

OUT = Path("out") / "studies"
GROUP = "vioc.studies"  # group of entry points, each a package with modules runner, page and harness


def add(commands: Commands) -> None:
    group = commands.group(
        "study",
        "list, run and publish the studies, which measure the papers' figures",
        "  vioc study list\n  vioc study run pendulum_energy --quick",
    )
    parser = group.add(
        "list",
        list_studies,
        "list the studies, a line for each; with --claims their claims too",
        "  vioc study list\n  vioc study list scissor_lift --claims",
    )
    parser.add_argument("names", nargs="*", metavar="STUDY", help="studies (default all)")
    parser.add_argument("--claims", action="store_true", help="also their claims and published figures")
    parser = group.add(
        "run",
        run,
        "run studies; each writes a picture and a JSON file, and the exit code is 0 if all claims hold",
        "  vioc study run pendulum_energy --quick\n  vioc study run --all --out results",
    )
    parser.add_argument("names", nargs="*", metavar="STUDY", help="studies")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--quick", action="store_true", help="the quick form: a smaller problem, in seconds")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="as many at a time (default 1)")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=OUT, help="folder for results (default %(default)s)"
    )
    parser = group.add(
        "publish",
        publish,
        "write results of runs into studies/results of a checkout, whose figures the page shows",
        "  vioc study run pendulum_energy --out results\n"
        "  vioc study publish pendulum_energy --results results",
    )
    parser.add_argument("names", nargs="+", metavar="STUDY", help="studies")
    parser.add_argument(
        "--results", metavar="DIR", type=Path, default=OUT, help="folder of the runs (default %(default)s)"
    )
    parser = group.add(
        "page",
        page,
        "write a page with the results of all studies: those published, or those of runs",
        "  vioc study page\n  vioc study page --results results --out results.md",
    )
    parser.add_argument(
        "--results", metavar="DIR", type=Path, help="folder of runs (default: the published results)"
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, default="results.md", help="the page (default %(default)s)"
    )


def list_studies(args: argparse.Namespace) -> None:
    runner = studies("runner")
    chosen = runner.choose(args.names)
    print("\n\n".join(s.listing() for s in chosen) if args.claims else runner.listing(chosen))


def run(args: argparse.Namespace) -> int:
    runner = studies("runner")
    if args.all == bool(args.names):
        raise ValueError("name the studies to run, or give --all; `vioc study list` shows them")
    chosen = runner.choose(args.names)
    check_folder("--out", args.out)
    if args.jobs < 1:
        raise ValueError(f"--jobs: expected at least 1, got {args.jobs}")
    return runner.run(chosen, quick=args.quick, out=args.out, jobs=args.jobs)


def publish(args: argparse.Namespace) -> None:
    pages = studies("page")
    if not (pages.RESULTS.parent / "pyproject.toml").exists():
        raise ValueError("results are published in a checkout of vioc; the studies here are an installation")
    for study in studies("runner").choose(args.names):
        print(f"wrote {pages.publish(study, args.results, pages.RESULTS)}")


def page(args: argparse.Namespace) -> None:
    pages = studies("page")
    results = args.results or pages.RESULTS
    if not any(results.glob("*.json")):
        raise ValueError(
            f"--results: no results of studies in {str(results)!r}; `vioc study run --all` makes them"
        )
    if args.out.is_dir() or not args.out.parent.is_dir():
        raise ValueError(f"--out: expected a file in a folder that exists, got {str(args.out)!r}")
    args.out.write_text(pages.page(studies("runner").choose(), results), encoding="utf-8")
    print(f"wrote {args.out}")


def studies(module: str) -> ModuleType:
    """Import and return a module of the studies, which reproduce results of papers.
    It is in the installed package of the studies, or in the checkout of vioc.

    Raises ModuleNotFoundError, with instructions for installing them, if there is neither.
    """
    package = next((point.value for point in entry_points(group=GROUP)), "studies")
    try:
        return importlib.import_module(f"{package}.{module}")
    except ModuleNotFoundError as error:
        if error.name not in (package, f"{package}.{module}"):  # a dependency of a study
            raise
    raise ModuleNotFoundError(
        "the studies are not installed: in a checkout of vioc, `pip install ./studies` brings them"
    )
