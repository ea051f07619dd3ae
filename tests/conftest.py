"""Settings that every test shares."""

import gc
import os
import signal
import sys

import matplotlib
import pytest
from hypothesis import settings

# inside: the variables that BLAS takes its number of threads from are those that `vioc.compile` sets
from vioc.compile.cores import BLAS

matplotlib.use("Agg")

# Building a graph takes longer than hypothesis' deadline the first time, and its later runs do not.
# Others are drawn in every run, so that a few at a time will do; .ci/run draws the same each time.
settings.register_profile("default", deadline=None, max_examples=30)
settings.register_profile("ci", deadline=None, max_examples=30, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_configure():
    """Workers that come take one thread of BLAS each, or would keep each other from working."""
    for name in BLAS:
        os.environ.setdefault(name, "1")


def pytest_collection_finish():
    """What was imported and collected stays to the end: not looked through each time that garbage is."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def ctrl_c():
    """Python's own handler of Ctrl-C; a job in the background starts with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _no_figures_left():
    """Each test starts without open figures, whatever the ones before it drew."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
