"""How Sphinx makes the site from the pages in this folder: `make site`."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_site"))
os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of notebooks: their matrices are small
# Notebooks and the reference read the source beside this folder, installed or not; one also the paper's experiments.
SOURCES = [str(HERE.parent / "src"), str(HERE.parent)]
sys.path[:0] = SOURCES
os.environ["PYTHONPATH"] = os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)

import stiefel_init  # noqa: E402 - from where the lines above say

project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["name"]
author = "The stiefel-init developers"
project_copyright = f"2026, {author}"
release = version = stiefel_init.__version__

extensions = ["myst_nb", "site_pages"]
exclude_patterns = ["_build", "_site", "explorer/*.html"]

suppress_warnings = ["ref.python"]  # two modules have a Row; a signature names it without its module
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
nb_execution_mode = os.environ.get("STIEFEL_INIT_NOTEBOOKS", "cache")
nb_execution_timeout = 240
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_execution_show_tb = True

html_theme = "furo"
html_title = f"stiefel-init {release}"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # it fetches pages, which a browser refuses for files
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e4f", "color-brand-content": "#0b5fa5"},
    "dark_css_variables": {"color-brand-primary": "#5fd3a6", "color-brand-content": "#8ec5ff"},
}
