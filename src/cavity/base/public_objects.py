"""What public classes share: types of arguments, names in `dir`, tables in notebooks, arrays that are read-only.

Arrays of records stay read-only in copies and pickles, of which NumPy makes writeable ones.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from os import PathLike
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from cavity.base import arrays
from cavity.base.argument_names import explain_arguments

ArrayLike = npt.ArrayLike
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
FloatOrArray = Any  # a float for one, an array for several
Seed = int | Sequence[int] | np.random.SeedSequence | np.random.BitGenerator | np.random.Generator


class RowCollection(Protocol):
    """What has rows: frames, sparse matrices, stored arrays of other libraries."""

    @property
    def shape(self) -> Any:
        """Numbers of rows and of columns."""


Path = str | PathLike[str]
Data = npt.ArrayLike | RowCollection | Mapping[str, Any] | PathLike[str] | Sequence[Path]

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
    summary = posterior.summary()
    names, columns = summary.names[:ROWS_SHOWN], {name: rows[:ROWS_SHOWN] for name, rows in summary.columns.items()}
    more = len(summary.names) > ROWS_SHOWN
    notes = (f"the first {ROWS_SHOWN} of {len(summary.names)} rows of summary()",) if more else ()
    return replace(summary, title="", names=names, columns=columns, notes=notes, below=None)._repr_html_()


def set_fields(record, **values):
    """Set fields of a frozen record that is being made."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


def replace_unchecked(record, **values):
    """Return a frozen record with some other values, which are not checked: those that stay were."""
    new = object.__new__(type(record))
    for name in list_field_names(type(record)):
        object.__setattr__(new, name, values[name] if name in values else getattr(record, name))
    return new


@cache
def list_field_names(record_class):
    """Return the names of the fields of a dataclass."""
    return tuple(field.name for field in fields(record_class))


def check_positive(record, *names):
    """Check that fields of a frozen record that is being made are positive numbers."""
    set_fields(record, **{name: arrays.check_number(getattr(record, name), name, low=0) for name in names})


class Frozen(Public):
    """Base of records that hold read-only arrays, themselves or in records, tuples and dictionaries in them.

    Two of one class are equal if their fields are, arrays by their numbers. A class in which each is one of its own, as
    posteriors are, says so: ``__eq__, __hash__ = object.__eq__, object.__hash__``.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(map(_are_equal, _compared(self), _compared(other)))

    def __hash__(self) -> int:
        return hash((type(self), *map(_hashable, _compared(self))))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return how pickle, copy and deepcopy make another one: from the state, and from what in it is read-only."""
        if type(self).__reduce__ is not object.__reduce__:  # it is built anew from its parts
            return super().__reduce_ex__(protocol)
        state = self.__getstate__()
        frozen = {path for path, array in _arrays_in(state) if not array.flags.writeable}
        return _restore, (type(self), state, frozen)


def _compared(record):
    """The values of the fields of a record by which it is equal to others."""
    return [getattr(record, field.name) for field in fields(record) if field.compare]


def _are_equal(a, b):
    """Whether two values of a field are equal."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_are_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_are_equal(value, b[name]) for name, value in a.items())
    return bool(a == b)


def _hashable(value):
    """What stands for a value of a field in a hash: the same for values that are equal."""
    if isinstance(value, np.ndarray):
        return value.shape, (value + 0.0).tobytes()  # zeros of one sign
    if isinstance(value, dict):
        return frozenset((name, _hashable(part)) for name, part in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, tuple) else value


def _restore(cls, state, frozen):
    """Return a record of a class in that state, its arrays at the places in `frozen` read-only."""
    for path, array in _arrays_in(state):
        if path in frozen:
            array.flags.writeable = False
    record: ClassVar[Any] = cls.__new__(cls)
    if hasattr(record, "__setstate__"):  # dataclasses with slots
        record.__setstate__(state)
        return record
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in ((attributes or {}) | (slots or {})).items():
        object.__setattr__(record, name, value)
    return record


def _arrays_in(value, path=()):
    """Yield (place, array) for the arrays in a value; a place is a tuple of names and numbers that lead there."""
    if isinstance(value, np.ndarray):
        yield path, value
    for name, part in _parts(value):
        yield from _arrays_in(part, (*path, name))


def _parts(value):
    """Return (name, value) of what is in a collection or in a record of this library; what users write is theirs."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    if is_dataclass(value) and type(value).__module__.partition(".")[0] == "cavity":
        field_values = {field.name: getattr(value, field.name, None) for field in fields(value)}
        return (field_values | getattr(value, "__dict__", {})).items()  # properties are kept there
    return ()
