"""Tables of what a saved record holds, and the one check of a record against its table.

A `Record` lists what arrays and settings there are, and where in a posterior they are (`cavity.base.serialization`). An
array is an `Array`: its axes, its domain, its kind (`cavity.base.record_arrays`).

A dataclass declares its fields with `declare`, and those of objects in its fields with `Part`: `record_of` makes a
record of that. What fields do not declare is in the attribute `record` of the class.

A setting is a `Setting`, a table of them (a dictionary by names), a list of them (one for each entry), `Nullable`, or
`Made`: handed to a function that makes an object of it and refuses what it cannot use. Names of arrays and settings
that end in "?" may be missing; those not in the table are refused.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from cavity.base.record_arrays import Array

MISFIT_MESSAGE = "arrays and settings do not fit each other: "
LARGEST_FLOAT = sys.float_info.max
MAX_LIST_DEPTH = 8  # lists in lists of numbers: arrays have fewer axes
CONSTRUCTOR_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError, MemoryError)


# ------------------------------------------------------------------------------------------ settings


@dataclass(frozen=True, slots=True)
class Setting:
    """What a setting must be and the test of it; `axis` names one that it is the size of, or has the length of."""

    description: str
    test: Callable
    axis: str | None = None
    convert: Callable | None = None


@dataclass(frozen=True, slots=True)
class Nullable:
    """Null, which stands for `missing`, or a value of a form."""

    form: object
    missing: object = None


@dataclass(frozen=True, slots=True)
class Made:
    """A value of a form, of which a function makes an object; `apart` takes one apart."""

    make: Callable
    form: object
    apart: Callable


def _real(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_FLOAT


def _reals(value, deepest=MAX_LIST_DEPTH):
    if isinstance(value, list | tuple):
        return deepest > 0 and all(_reals(item, deepest - 1) for item in value)
    return _real(value)


def _text(value):
    return isinstance(value, str)


def number(condition="", test=lambda value: True):
    """A finite number that passes a test, which `condition` describes."""
    return Setting(f"a finite number{condition}", lambda value: _real(value) and test(value), convert=float)


def integer(least=0, axis=None):
    """An integer, at least that, and the size of the axis if one is named."""

    def test(value):
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= sys.maxsize

    return Setting(f"an integer, at least {least}", test, axis)


def one_of(*options):
    """One of some strings."""
    return Setting(f"one of {', '.join(map(repr, options))}", lambda value: _text(value) and value in options)


def names(axis=None):
    """A list of strings, as many as the axis is long if one is named; it is used as a tuple."""

    def test(value):
        return isinstance(value, list | tuple) and all(map(_text, value))

    return Setting("a list of strings", test, axis, tuple)


FINITE_REAL, POSITIVE_REAL = number(), number(" above 0", lambda value: value > 0)
NONNEGATIVE_REAL = number(", not negative", lambda value: value >= 0)
UNIT_SHARE = number(" above 0 and at most 1", lambda value: 0 < value <= 1)
REAL_LISTS = Setting("a finite number, or lists of them", _reals)
LOG_DENSITY = Setting("a finite number, or -Infinity", lambda value: _real(value) or value == -np.inf, convert=float)
ANY_NUMBER = Setting("a number, which may be infinite or nan", lambda x: _real(x) or isinstance(x, float), None, float)
TRUTH_VALUE = Setting("true or false", lambda value: isinstance(value, bool))
ANY_TEXT = Setting("a string", _text)
JSON_OBJECT = Setting("an object", lambda value: isinstance(value, dict))


def _setting(name, value, form, claims):
    """Return a setting as it is used; `claims` get (name, size, axis) where it must be as long as an axis."""
    match form:
        case Nullable():
            return form.missing if value is None else _setting(name, value, form.form, claims)
        case Made():
            value = _setting(name, value, form.form, claims)
            with refusing(f"setting {name!r}: "):
                return form.make(value)
        case Setting():
            if not form.test(value):
                raise ValueError(f"setting {name!r} must be {form.description}, got {_short(value)}")
            if form.axis is not None:
                claims.append((name, value if isinstance(value, int) else len(value), form.axis))
            return value if form.convert is None else form.convert(value)
        case list():
            if not isinstance(value, list | tuple) or len(value) != len(form):
                raise ValueError(f"setting {name!r} must be a list of {len(form)}, got {_short(value)}")
            return [_setting(f"{name}[{i}]", *pair, claims) for i, pair in enumerate(zip(value, form, strict=True))]
    if not isinstance(value, dict):
        raise ValueError(f"setting {name or 'settings'!r} must be an object, got {_short(value)}")
    prefix = f"{name}." if name else ""
    forms = _entries(value, form, f"setting '{prefix}")
    return {key: _setting(f"{prefix}{key}", item, forms[key], claims) for key, item in value.items()}


def _short(value):
    try:
        text = repr(value)
    except RecursionError:
        return "lists in lists without end"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _entries(values, table, prefix):
    """Return the entries of a table for all values, in its order; all must be known, and none missing."""
    plain = {name.removesuffix("?"): (entry, name.endswith("?")) for name, entry in table.items()}
    unknown = next((name for name in values if name not in plain), None)
    if unknown is not None:
        raise ValueError(f"{prefix}{unknown}' is not known")
    missing = next((name for name, (_, optional) in plain.items() if name not in values and not optional), None)
    if missing is not None:
        raise ValueError(f"{prefix}{missing}' is missing")
    return {name: entry for name, (entry, _) in plain.items() if name in values}


# ------------------------------------------------------------------------------------------ records


@dataclass(frozen=True, slots=True)
class Record:
    """What a kind of record holds.

    Parameters
    ----------
    arrays : dict of str to Array, or callable
        By names, or what returns them given the checked settings.
    settings : dict
        By names.
    rules : tuple of callables
        Each gets (arrays, settings, sizes), all of them checked, and raises an error, or returns None or a message, if
        they do not fit each other.
    places : dict of str to str
        Names, or what they begin with up to "_", and what that is among the attributes of the posterior: with
        {"rows_": "_rows."} the array rows_X is at _rows.X. Several places have a space between them. "trace_" is
        "trace."; other names are those of attributes.
    forms : dict of str to (callable, callable)
        By attributes whose parts have other names in files: the one returns a dictionary of these parts, the other
        takes them as keyword arguments.
    """

    arrays: Mapping | Callable = field(default_factory=dict)
    settings: Mapping = field(default_factory=dict)
    rules: tuple = ()
    places: Mapping = field(default_factory=dict)
    forms: Mapping = field(default_factory=dict)

    def table(self, settings):
        """Return the table of arrays that settings lead to."""
        return self.arrays(settings) if callable(self.arrays) else self.arrays

    def list_paths(self, name):
        """Return the places of an array or setting, each as a list of attributes on the way."""
        prefix_paths = {"trace_": "trace.", "": ""} | self.places
        prefixes = [begin for begin in prefix_paths if name.startswith(begin) and begin[-1:] in ("", "_")]
        begins = name if name in prefix_paths else max(prefixes, key=len)
        parents = prefix_paths[begins].split() or [""]
        return [f"{parent}{name.removeprefix(begins)}".split(".", parent.count(".")) for parent in parents]


@dataclass(frozen=True, slots=True)
class Part:
    """What files have of an object in a field: a table, or its dataclass; and what all names of it begin with."""

    form: object
    begin: str = ""


def declare(form=None, description="", default=MISSING, name=None) -> Any:
    """Return a field of a dataclass that files have.

    Parameters
    ----------
    form : Array, Setting or other form of one, or Part, optional
        What it must be in files, which by default do not have it.
    description : str
        Its words in the docstring of the class and in `cavity info`, see `base/field_descriptions.py`.
    default : object, optional
        Of the field.
    name : str, optional
        What it is called in files; by default as the field, with a "?" where that has a default.

    Returns
    -------
    dataclasses.Field
        For the body of the class.
    """
    return field(default=default, metadata={"saved": form, "description": description, "name": name})


def _name_in_files(declared):
    """Return the name that files have for a field; what has a default may be missing."""
    return declared.metadata["name"] or f"{declared.name}{'' if declared.default is MISSING else '?'}"


def _declared(form, begin="", parent=""):
    """Yield (name in files, form, place) of what files have by a dataclass or a table."""
    if isinstance(form, Mapping):
        entries = [(name, name.removesuffix("?"), part) for name, part in form.items()]
    else:
        saved_fields = [f for f in fields(form) if f.metadata.get("saved")] if is_dataclass(form) else []
        entries = [(_name_in_files(f), f.name, f.metadata["saved"]) for f in saved_fields]
    for name, attribute, part in entries:
        if isinstance(part, Part):
            yield from _declared(part.form, begin + part.begin, f"{parent}{attribute}.")
        else:
            yield f"{begin}{name}", part, f"{parent}{attribute}"


@cache
def record_of(cls):
    """Return the record of a dataclass: what its fields declare, and what its attribute `record` adds to that.

    Parameters
    ----------
    cls : type
        The dataclass.

    Returns
    -------
    Record
        Entries of `record` come later, or in the place of a field of the same name.
    """
    own, declared = cls.record, [*_declared(cls)]
    arrays = {name: form for name, form, _ in declared if isinstance(form, Array)}
    settings = {name: form for name, form, _ in declared if not isinstance(form, Array)}
    places = {name.removesuffix("?"): place for name, _, place in declared if name.removesuffix("?") != place}
    return replace(
        own,
        arrays=lambda settings: {name: form for name, form in (arrays | own.table(settings)).items() if form},
        settings=settings | own.settings,
        places=places | own.places,
    )


@contextmanager
def refusing(what=MISFIT_MESSAGE):
    """Turn whatever a constructor raises about its arguments into a ValueError that begins with `what`."""
    try:
        with np.errstate(all="ignore"):
            yield
    except CONSTRUCTOR_ERRORS as error:
        message = f"there is no {error}" if isinstance(error, KeyError) else f"{error}"
        raise ValueError(f"{what}{message or type(error).__name__}") from error


def check_settings(form, settings):
    """Return settings checked against a table without axes.

    Parameters
    ----------
    form : dict
        The table.
    settings : dict
        The settings.

    Returns
    -------
    dict
        As they are used.

    Raises
    ------
    ValueError
        Naming what is not as it must be.
    """
    return _setting("", settings, form, [])


def check(record, arrays, settings):
    """Check arrays and settings against the tables of a record, and against each other.

    Parameters
    ----------
    record : Record
        The tables.
    arrays : dict of ndarray
        By names.
    settings : dict
        As JSON has them.

    Returns
    -------
    arrays : dict of ndarray
        In the order of the table.
    settings : dict
        In their order, with what is made of them.

    Raises
    ------
    ValueError
        Naming the first array or setting that is missing, not known, or not as it must be.
    """
    claims, sizes, checked_arrays = [], {}, {}
    settings = _setting("", settings, record.settings, claims)
    for name, entry in _entries(arrays, record.table(settings), "array '").items():
        checked_arrays[name], sizes = entry.check(name, arrays[name], sizes)
    for name, size, axis in claims:
        if size != sizes.setdefault(axis, size):
            raise ValueError(f"setting {name!r} must be of size {axis} = {sizes[axis]} like the arrays, got {size}")
    for rule in record.rules:
        with refusing():
            message = rule(checked_arrays, settings, sizes)
        if message is not None:
            raise ValueError(message)
    return checked_arrays, settings


def together(*names):
    """Return a rule: all of some arrays are there, or none.

    Parameters
    ----------
    *names : str
        Their names.

    Returns
    -------
    callable
        For `Record.rules`.
    """

    def rule(arrays, settings, sizes):
        present = [name for name in names if name in arrays]
        if present and len(present) < len(names):
            missing = next(name for name in names if name not in arrays)
            return f"array {missing!r} is missing, as there is {present[0]!r}"
        return None

    return rule
