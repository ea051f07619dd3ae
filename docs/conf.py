"""The documentation site: `make docs`, or ``python -m sphinx -W docs out/docs``."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(DOCS.parent), os.environ.get("PYTHONPATH"))))
os.environ.pop("MPLBACKEND", None)  # notebooks draw into their pages

import matplotlib  # noqa: E402

matplotlib.use("Agg")

import vioc  # noqa: E402

project = "vioc"
author = copyright = "the vioc authors"
version = release = vioc.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",  # formulas show without a network
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "benchmark_tables",
    "plain_docstrings",
    "public_names",
    "study_gallery",
    "text_forms",
    "tutorial_notebooks",
]
exclude_patterns = [
    "_ext",
    "README.md",
    "img",
    "generated/gallery/*.ipynb",
    "generated/gallery/*.py",
    "generated/studies/*.ipynb",
]
highlight_language = "text"  # formulas and diagrams are indented; code says its language
nitpicky = False  # signatures name types of CasADi and numpy, whose pages are elsewhere

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
default_role = "py:obj"  # `name` in a docstring: a link where it is one
suppress_warnings = ["ref.python"]  # `x` may be an attribute of several classes

autosummary_generate = True
autodoc_mock_imports = [n for n in ("gymnasium", "jax", "torch") if find_spec(n) is None]  # of vioc.learning
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types and shapes are in the docstrings
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"vioc {version}"
html_static_path = ["_static"]
html_css_files = ["vioc.css"]
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"

sphinx_gallery_conf = {
    "examples_dirs": str(DOCS.parent / "examples"),
    "gallery_dirs": "generated/gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"__init__\.py",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": True,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "plot_gallery": True,
    "capture_repr": ("_repr_html_",),
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "show_signature": False,
}
