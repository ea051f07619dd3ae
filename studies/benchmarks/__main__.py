"""``python -m studies.benchmarks``: one run, one table. Best of several, building excluded, one core.

Times depend on the machine; the ratios to other programs are of the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from studies.benchmarks.batches import batches
from studies.benchmarks.compile_times import compile_times
from studies.benchmarks.contact import contact
from studies.benchmarks.derivatives import derivatives
from studies.benchmarks.first import first
from studies.benchmarks.harness import Bench, Group, Row, machine, one_core, plain, table
from studies.benchmarks.mpc import mpc
from studies.benchmarks.ocp import ocp, ocp_scaling
from studies.benchmarks.optimizers import optimizers
from studies.benchmarks.page import body, publish
from studies.benchmarks.plots import draw
from studies.benchmarks.steps import steps
from studies.benchmarks.work_precision import work_precision

GROUPS: dict[str, Group] = {
    "steps": steps,
    "contact": contact,
    "derivatives": derivatives,
    "optimizers": optimizers,
    "ocp": ocp,
    "ocp-scaling": ocp_scaling,
    "mpc": mpc,
    "work-precision": work_precision,
    "batches": batches,
    "compile-times": compile_times,
    "first": first,
}
ALL_CORES = ("batches", "first")
OUT = Path("out") / "benchmarks"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables as they are measured, write JSON and pictures."""
    parser = argparse.ArgumentParser(prog="python -m studies.benchmarks", description=__doc__)
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this; may be repeated")
    parser.add_argument("--quick", action="store_true", help="small problems, hardly repeated: a smoke test")
    parser.add_argument("--json", action="store_true", help="print JSON in the place of tables")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of results (default: %(default)s)")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="also renew the published results and pictures of docs/benchmarks.md, in a checkout",
    )
    args = parser.parse_args(argv)
    if args.publish and (args.quick or args.group):
        parser.error("--publish wants a full run, without --quick and --group")

    bench, rows = Bench(args.quick), {}
    if not args.json:
        print(machine())
        if args.quick:
            print("quick: small problems, hardly repeated; it shows that everything runs, not how fast")
    for name in args.group or GROUPS:
        with contextlib.nullcontext() if name in ALL_CORES else one_core():
            rows[name] = list(GROUPS[name](bench))
        if not args.json:
            print(f"\n{name}\n\n{table(rows[name])}", flush=True)
        text = written(args.out, bench, rows)  # so far: an hour's run may be stopped
    if args.json:
        print(text)
    else:
        print(f"\nwrote {args.out}: {', '.join(sorted(p.name for p in args.out.iterdir() if p.is_file()))}")
    if args.publish:
        publish(rows, bench.curves)
    return 0


def written(out: Path, bench: Bench, rows: dict[str, list[Row]]) -> str:
    """Write data, page and pictures; the data as JSON."""
    result = {
        "machine": machine(),
        "quick": bench.quick,
        "rows": {name: plain(group) for name, group in rows.items()},
        "curves": bench.curves,
    }
    text = json.dumps(result, indent=1, allow_nan=False)
    out.mkdir(parents=True, exist_ok=True)
    (out / "benchmarks.json").write_text(text + "\n")
    (out / "benchmarks.md").write_text(f"# Benchmarks\n\n{body(rows)}\n", "utf-8")
    draw(bench.curves, out)
    return text


if __name__ == "__main__":
    sys.exit(main())
