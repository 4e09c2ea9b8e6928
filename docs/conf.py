"""Sphinx settings: `pip install '.[docs]' && sphinx-build -W docs docs/_build`."""

import logging
import re
from importlib.metadata import files

from sphinx.ext import autosummary

import cavity

logging.getLogger("cavity").setLevel(logging.WARNING)  # the gallery's logging would show the progress of fits

project = "cavity"
author = copyright = "the cavity developers"
version = release = cavity.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "numpydoc",
    "matplotlib.sphinxext.plot_directive",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "examples", "**sg_execution_times.rst"]
default_role = "py:obj"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # api.rst lists the members

plot_include_source = True
plot_html_show_source_link = plot_html_show_formats = False
plot_formats = [("png", 100)]

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,  # a page of its own, whose scripts come from elsewhere
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
    "capture_repr": (),
}

html_theme = "furo"
html_title = f"cavity {version}"
html_copy_source = False
html_theme_options = {f"{mode}_css_variables": {"code-font-size": "72%"} for mode in ("light", "dark")}
html_css_files = ["wide.css"]
html_static_path = ["static"]
html_static_path += [  # one file with its fonts: mathematics need no network
    str(each.locate()) for each in files("sphinx-mathjax-offline") if each.match("mathjax/tex-svg.js")
]
mathjax_path = "tex-svg.js"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def keep_bars(app, what, name, obj, options, lines):
    """Escape the |x| of docstrings, an absolute value that reST would take for a substitution."""
    lines[:] = [re.sub(r"(?<!\w)\|(?=\w)", r"\\|", line) for line in lines]


def summarise(doc, settings, extract=autosummary.extract_summary):
    """Return the first sentence of a docstring without its citations, in whose "(eq. 4.9)" it would end."""
    text = re.sub(r"\s*\[[\w-]+\]_(\s*\((eq|section|algorithm)[^)]*\))?", "", "\n".join(doc))
    return extract(text.splitlines(), settings)


def tables_of_pipes(app, path, parent, content):
    """Make tables of the pipe tables that benchmarks print; keep the lines between them; escape cells of one dash."""
    content[0] = re.sub(r"^( +[* ] -) -$", r"\1 \\-", content[0], flags=re.MULTILINE)
    if "\n|---" in content[0] and path.name != "CHANGELOG.md":
        content[0] = replace_pipe_tables(content[0], special=r"[*`_|\\]|^-$", prefix="| ")


def replace_pipe_tables(text, special="^-$", prefix=""):
    """Return a text with list tables in place of pipe tables.

    What matches `special` in cells, and in other lines if they have a prefix, is escaped.
    """
    lines, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|---"):
            continue
        if line.startswith("|"):
            cells = [re.sub(f"({special})", r"\\\1", cell.strip()) for cell in line.strip("|").split("|")]
            rows.append(cells + [""] * (len(rows[0]) - len(cells) if rows else 0))
            continue
        if rows:
            lines += [".. list-table::", "   :header-rows: 1", ""]
            lines += [f"   {' ' if k else '*'} - {cell}" for row in rows for k, cell in enumerate(row)]
            lines.append("")
            rows = []
        escaped = re.sub(f"({special})", r"\\\1", line) if prefix else line
        lines.append(prefix + escaped if line else "")
    return "\n".join(lines)


def convert_changelog(app, path, parent, content):
    """Turn the Markdown of the changelog into reST: headings, tables, code and links."""
    if path.name != "CHANGELOG.md":
        return
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", content[0])
    text = re.sub(r"\[([^]]+)\]\((\S+?)\)", r"`\1 <\2>`__", text)
    lines = []
    for line in replace_pipe_tables(text).splitlines():
        heading = re.match(r"(#+) (.*)", line)
        lines += [heading[2], "=-~"[len(heading[1]) - 1] * len(heading[2])] if heading else [line]
    content[0] = "\n".join(lines)


def setup(app):
    """Register the hooks."""
    autosummary.extract_summary = summarise  # there is no event for summaries
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("include-read", tables_of_pipes)
    app.connect("include-read", convert_changelog)
