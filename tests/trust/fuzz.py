"""Fuzzing of the readers: ``python tests/trust/fuzz.py --reader sexpr --minutes 10``.

With `atheris` installed (``pip install atheris``) libFuzzer chooses the inputs by the branches of vioc's
readers that they reach; without it, or with ``--engine blind``, sound files are mutated at random. Both keep
going after a crash, and write each kind of crash once to ``--out``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

INSTRUMENTED = ("vioc.dynamics.description", "vioc.runs.trajectory", "vioc.sweeps")
MEMORY = 4 << 30  # bytes of address space above what is loaded


class Record:
    """Counts, and one input of each kind of crash, kept on disk as they come."""

    def __init__(self, reader: str, engine: str, out: Path):
        self.reader, self.engine, self.out = reader, engine, out
        self.tried = self.accepted = 0
        self.crashes: dict[tuple[str, str], str] = {}
        self.start = self._saved = time.monotonic()
        out.mkdir(parents=True, exist_ok=True)

    def add(self, verdict) -> None:
        self.tried += 1
        if verdict is True:
            self.accepted += 1
        elif verdict is not False and verdict.kind not in self.crashes:
            name = f"{self.reader}-{self.engine}-{len(self.crashes)}"
            self.crashes[verdict.kind] = f"{verdict.error} in {verdict.where} ({name})"
            (self.out / name).write_bytes(verdict.data)
            (self.out / f"{name}.txt").write_text(verdict.text, "utf-8", "replace")
            self.save()
        if time.monotonic() - self._saved > 2:
            self.save()

    def save(self) -> None:
        self._saved = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        report = {
            "reader": self.reader,
            "engine": self.engine,
            "seconds": round(self._saved - self.start, 1),
            "inputs": self.tried,
            "accepted": self.accepted,
            "peak_MB": round(peak, 1),
            "crashes": list(self.crashes.values()),
        }
        (self.out / f"{self.reader}-{self.engine}.json").write_text(json.dumps(report, indent=1))


def blind(name: str, seconds: float, out: Path, seed: int = 0, limit: int | None = None) -> Record:
    """Mutate sound files at random for a time, or for a number of inputs."""
    from readers import READERS, judge, mutate

    reader, random, record = READERS[name], Random(seed), Record(name, "blind", out)
    pool = reader.seeds()
    with tempfile.TemporaryDirectory() as folder:
        for data in pool:  # sound files are accepted
            record.add(judge(reader, data, Path(folder)))
        while time.monotonic() - record.start < seconds and record.tried != limit:
            data = mutate(reader, random.choice(pool), random, pool)
            verdict = judge(reader, data, Path(folder))
            record.add(verdict)
            if verdict is True and random.random() < 0.1:  # go on from it, sometimes
                pool[random.randrange(len(pool)) if len(pool) > 200 else len(pool) :] = [data]
    record.save()
    return record


def guided(name: str, seconds: float, out: Path, seed: int) -> None:
    """libFuzzer in this process; does not return."""
    import atheris

    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        for module in ("vioc", "vioc.sweeps", "vioc.dynamics.formats.urdf"):
            importlib.import_module(module)
    from readers import READERS, judge, mutate

    reader, record = READERS[name], Record(name, "atheris", out)
    folder = out / f"work-{name}"
    folder.mkdir(exist_ok=True)
    corpus = out / f"corpus-{name}"
    corpus.mkdir(exist_ok=True)
    for i, data in enumerate(reader.seeds()):
        (corpus / f"seed{i}").write_bytes(data)
        record.add(judge(reader, data, folder))
    words = out / f"{name}.dict"
    escaped = ("".join(f"\\x{b:02x}" for b in word) for word in reader.words)
    words.write_text("".join(f'"{word}"\n' for word in escaped))
    pool = reader.seeds()

    def one(data: bytes) -> None:
        record.add(judge(reader, data, folder))

    def mutator(data: bytes, size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.4:
            return atheris.Mutate(data, size)
        return mutate(reader, data, random, pool)[:size]

    soft = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, soft))
    options = [f"-max_total_time={seconds:.0f}", f"-seed={seed}", "-timeout=60", "-rss_limit_mb=2048"]
    more = ["-max_len=20000", f"-dict={words}", f"-artifact_prefix={out}/", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, *more, str(corpus)], one, custom_mutator=mutator)
    atheris.Fuzz()


def table(out: Path) -> tuple[str, int]:
    """What the runs in a folder found, and the number of kinds of crashes."""
    rows, crashes = [], []
    for path in sorted(out.glob("*-*.json")):
        r = json.loads(path.read_text())
        log = path.with_suffix(".log")
        covered = re.findall(r"cov: (\d+)", log.read_text("utf-8", "replace")) if log.exists() else []
        rate = r["inputs"] / max(r["seconds"], 1e-9)
        rows.append(
            f"{r['reader']:<12}{r['engine']:<9}{r['seconds'] / 60:>8.1f}{r['inputs']:>12,}{rate:>10.0f}"
            f"{r['accepted']:>12,}{(covered or ['-'])[-1]:>10}{r['peak_MB']:>9.0f}{len(r['crashes']):>9}"
        )
        crashes += [f"  {r['reader']}: {c}" for c in r["crashes"]]
    head = (
        f"{'reader':<12}{'engine':<9}{'minutes':>8}{'inputs':>12}{'a second':>10}{'accepted':>12}"
        f"{'branches':>10}{'peak MB':>9}{'crashes':>9}"
    )
    return "\n".join([head, *rows, *crashes]), len(crashes)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tests/trust/fuzz.py", description=__doc__)
    names = ("sexpr", "urdf", "trajectory", "sweep", "cache")
    parser.add_argument("--reader", action="append", choices=names, help="default: all")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each reader")
    parser.add_argument("--engine", choices=("atheris", "blind"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="crashes, counts and corpora")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    engine = given.engine or ("atheris" if importlib.util.find_spec("atheris") else "blind")
    out = given.out.resolve()
    if given.inside:
        guided(given.reader[0], 60 * given.minutes, out, given.seed)
    out.mkdir(parents=True, exist_ok=True)
    for name in given.reader or names:
        if engine == "blind":
            blind(name, 60 * given.minutes, out, given.seed)
            continue
        command = [sys.executable, __file__, "--inside", "--reader", name]
        command += ["--minutes", str(given.minutes), "--seed", str(given.seed), "--out", str(out)]
        with open(out / f"{name}-atheris.log", "wb") as log:  # libFuzzer ends the process that it runs in
            subprocess.run(command, stdout=log, stderr=log, env={**os.environ, "PYTHONHASHSEED": "0"})
    text, crashes = table(out)
    print(text)
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
