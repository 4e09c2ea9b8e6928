"""Sphinx settings. Build with `sphinx-build -W docs docs/_build`; `cavity` must be importable."""

import re

import cavity

project = "cavity"
author = copyright = "the cavity developers"
version = release = cavity.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc", "matplotlib.sphinxext.plot_directive"]
exclude_patterns = ["_build"]
default_role = "py:obj"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # api.rst lists the members

plot_include_source = True
plot_html_show_source_link = plot_html_show_formats = False
plot_formats = [("png", 100)]

html_theme = "alabaster"  # the one that comes with Sphinx
html_theme_options = {"page_width": "1060px"}
html_copy_source = False


def keep_bars(app, what, name, obj, options, lines):
    """Escape the |x| of docstrings, an absolute value that reST would take for a substitution."""
    lines[:] = [re.sub(r"(?<!\w)\|(?=\w)", r"\\|", line) for line in lines]


def setup(app):
    """Register the hook."""
    app.connect("autodoc-process-docstring", keep_bars)
