"""Wheel and source of this checkout, built twice and the same to the bit: `build_twice.py DIST [studies]`.

They are those of vioc, or of the studies, which are a distribution of their own. A wheel has its package and
nothing else; wheel and source of vioc have the licence. Times within them are SOURCE_DATE_EPOCH: as given, or
of the last commit.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WITHOUT_GIT = "1767225600"  # 2026-01-01
NO_PART = re.compile(r"__pycache__|\.egg-info/|^studies/(build/|pyproject\.toml$)")  # of a package


def epoch() -> int:
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return int(os.environ.get("SOURCE_DATE_EPOCH") or done.stdout.strip() or WITHOUT_GIT)


def settled(path: Path, when: int) -> None:
    """Write a source archive again with the same members, in order, of no owner and one time."""
    out = io.BytesIO()
    with (
        tarfile.open(path) as old,
        gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = when, {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member))
    path.write_bytes(out.getvalue())


def build(project: Path, into: Path, when: int) -> dict[str, str]:
    """sha256 of what is built of the project in a folder, by its name."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(when)}
    command = [sys.executable, "-m", "build", "--outdir", str(into), str(project)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    for archive in into.glob("*.tar.gz"):
        settled(archive, when)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(into.iterdir())}


def amiss(wheel: Path, package: Path) -> list[str]:
    """Files that the wheel of a package lacks or has too many."""
    with zipfile.ZipFile(wheel) as archive:
        got = {n for n in archive.namelist() if not re.match(r"[^/]*\.dist-info/", n)}
    inside = (path.relative_to(ROOT) for path in package.rglob("*") if path.is_file())
    wanted = {str(path) for path in inside if not NO_PART.search(path.as_posix())}
    return [f"lacks {n}" for n in sorted(wanted - got)] + [f"has {n}" for n in sorted(got - wanted)]


def licensed(archive: Path) -> bool:
    """Return whether a wheel or source archive has the text of the licence."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(archive) as source:
            names = source.getnames()
    return any(name.endswith("/LICENSE") for name in names)


def main(into: Path, package: str = "vioc") -> None:
    when, project = epoch(), ROOT if package == "vioc" else ROOT / package
    with tempfile.TemporaryDirectory() as again:
        first, second = build(project, into, when), build(project, Path(again), when)
    for name, digest in first.items():
        print(f"{digest}  {name}" + ("" if second.get(name) == digest else f"  but {second.get(name)} again"))
    if first != second:
        sys.exit("two builds of the same source differ")
    for wheel in into.glob("*.whl"):
        if wrong := amiss(wheel, ROOT / package):
            sys.exit(f"{wheel.name} " + ", ".join(wrong))
    if package == "vioc" and not all(licensed(path) for path in into.iterdir()):
        sys.exit("wheel or source without the licence")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
