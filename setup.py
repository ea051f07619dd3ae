"""Puts the studies, which a checkout has beside the package, into the wheel; the rest: pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# What `vioc study` runs from an installed vioc, in the places where the studies look for it
BUNDLED = ("studies/**/*.py", "studies/**/*.c", "tests/data/*.npz", "tests/data/*_system.json")


class WithStudies(build_py):
    def run(self):
        super().run()
        if self.editable_mode:  # they are found where they are
            return
        for pattern in BUNDLED:
            for source in sorted(Path().glob(pattern)):
                target = Path(self.build_lib, "vioc", "bundled", source)
                self.mkpath(str(target.parent))
                self.copy_file(str(source), str(target))


setup(cmdclass={"build_py": WithStudies})
