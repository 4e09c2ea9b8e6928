"""What users see of an object: public names when they ask `dir`, and a table of what it is in a notebook."""

import re
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from cavity.base.argument_names import explain_arguments

ROWS_SHOWN = 8  # of a summary below a posterior in a notebook
MAX_SETTING_CHARACTERS = 300  # characters of a setting
LEFT_STYLE = ' style="text-align: left"'  # notebooks put the cells of tables to the right
TITLE_STYLE = ' style="text-align: left; white-space: nowrap"'


class Public:
    """Base of what users hold."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        explain_arguments(cls)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows: the settings of a model, what became of a fit; None is the text of `repr`."""
        if is_dataclass(self) and hasattr(self, "fit"):
            return _table(type(self).__name__, _settings(self))
        title, *lines = repr(self).split("\n")
        if not hasattr(self, "plot") or not lines or not all(re.match("  +[^ ]", line) for line in lines):
            return None
        return _table(title, _rows(lines)) + _head_of_summary(self)


def _settings(model):
    """Yield name, value and whether it was chosen, of the settings of a model."""
    for field in fields(model):
        if field.repr:
            value = getattr(model, field.name)
            usual = field.default if field.default_factory is MISSING else field.default_factory()
            yield field.name, repr(value), usual is MISSING or repr(value) != repr(usual)


def _rows(lines):
    """Return name, value and False of the lines of a repr; those further to the right go on with the value above."""
    rows = []
    for line in lines:
        name, _, value = line[2:].partition("  ")
        if name:
            rows.append([name, value.strip(), False])
        else:
            rows[-1][1] += " " + value.strip()
    return rows


def _table(title, rows):
    """Return a table of names and values in HTML, without colors of its own: pages are light or dark."""
    from html import escape

    lines = [f"<table><caption{TITLE_STYLE}>{escape(title)}</caption><tbody>"]
    for name, value, chosen in rows:
        value = escape(value if len(value) <= MAX_SETTING_CHARACTERS else f"{value[:MAX_SETTING_CHARACTERS]}…")
        value = f"<b>{value}</b>" if chosen else value
        lines.append(f"<tr><th{LEFT_STYLE}>{escape(name)}</th><td{LEFT_STYLE}>{value}</td></tr>")
    return "".join([*lines, "</tbody></table>"])


def _head_of_summary(posterior):
    """Return the first rows of the summary in HTML, "" where there is none."""
    if not hasattr(posterior, "summary"):
        return ""
    whole = posterior.summary()
    names, columns = whole.names[:ROWS_SHOWN], {name: rows[:ROWS_SHOWN] for name, rows in whole.columns.items()}
    more = len(whole.names) > ROWS_SHOWN
    notes = (f"the first {ROWS_SHOWN} of {len(whole.names)} rows of summary()",) if more else ()
    return replace(whole, title="", names=names, columns=columns, notes=notes, below=None)._repr_html_()
