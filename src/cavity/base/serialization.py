"""Dataclasses, and those in their fields, as named arrays and settings, and back, by a `Record`."""

import sys
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from inspect import get_annotations
from types import SimpleNamespace, UnionType
from typing import Union, get_args, get_origin, get_type_hints

import numpy as np

from cavity.base.records import Made, Nullable


def serialize(record, posterior):
    """Return the arrays and the settings of a posterior, by its record.

    Parameters
    ----------
    record : Record
        The tables.
    posterior : object
        What has the attributes.

    Returns
    -------
    arrays : dict of ndarray
        Those that are not None.
    settings : dict
        As JSON has them.
    """
    formed = {name: take(getattr(posterior, name)) for name, (take, _) in record.forms.items()}

    def present(table):
        for entry, form in table.items():
            name = entry.removesuffix("?")
            path = record.list_paths(name)[0]
            value = _get_at(formed if path[0] in formed else posterior, path)
            if value is not None or isinstance(form, Nullable):
                yield name, form, value

    settings = {name: _write_setting(value, form) for name, form, value in present(record.settings)}
    return {name: np.asarray(value) for name, _, value in present(record.table(settings))}, settings


def _get_at(value, path):
    """Return what is at a place in a value, None if there is none."""
    for name in path:
        if value is None:
            return None
        entries = {str(i): item for i, item in enumerate(value)} if isinstance(value, tuple) else value
        value = entries.get(name) if isinstance(entries, dict) else getattr(value, name)
    return value


def _write_setting(value, form):
    """Return a setting as JSON has it."""
    match form:
        case Nullable():
            is_set = value is not None and (not isinstance(value, float) or np.isfinite(value))
            return _write_setting(value, form.form) if is_set else None
        case Made():
            return form.apart(value)
        case dict():
            return {
                name.removesuffix("?"): _write_setting(_get_at(value, [name.removesuffix("?")]), form[name])
                for name in form
            }
    if isinstance(value, list | tuple):
        return [_write_setting(entry, form) for entry in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def deserialize(record, cls, model, arrays, settings):
    """Return the posterior that `serialize` turned into arrays and settings.

    Parameters
    ----------
    record : Record
        The tables.
    cls : type
        The dataclass of the posterior; annotations of its fields are the classes of those in them.
    model : callable or None
        What makes the field `model`, if there is one.
    arrays : dict of ndarray
        Checked.
    settings : dict
        Checked.

    Returns
    -------
    object
        Of the class. Fields of which nothing is known have their defaults, None or an empty dictionary.
    """
    tree = {}
    for name, value in [*settings.items(), *arrays.items()]:
        for *parents, last in record.list_paths(name):
            node = tree
            for step in parents:
                node = node.setdefault(step, {})
            node[last] = value
    if model is not None:
        tree["model"] = model(**{name: _plain(value) for name, value in tree["model"].items()})
    for name, (_, make) in record.forms.items():
        tree[name] = make(**tree[name])
    return _make(cls, tree)


def _plain(value):
    """Return an array without axes as the number that it is."""
    return value.item() if isinstance(value, np.ndarray) and not value.ndim else value


def _make(cls, tree):
    """Return an object of a class made of what its fields are to be."""
    if cls is dict:
        return tree
    if cls is tuple:
        return tuple(map(_plain, tree.values()))
    needed = [field.name for field in fields(cls) if field.default is MISSING] if is_dataclass(cls) else []
    defaults = {name: {} if dict in _list_types(cls, name) else None for name in needed if name not in tree}
    for name, value in tree.items():
        kinds = _list_types(cls, name) if isinstance(value, dict | list) else ()
        if isinstance(value, dict):
            value = _make(
                min((kind for kind in kinds if kind is not type(None)), key=partial(_count_other_fields, value)), value
            )
        defaults[name] = tuple(value) if isinstance(value, list) and tuple in kinds else _plain(value)
    return cls(**defaults)


def _list_types(cls, name):
    """Return the classes that a field of a dataclass may be of, by its annotation; those of a union one by one."""
    owner = next((base for base in cls.__mro__ if name in get_annotations(base)), None)
    if owner is None:
        return ()
    one = SimpleNamespace(__annotations__={name: get_annotations(owner)[name]})  # others may be for checkers only
    hint = get_type_hints(one, vars(sys.modules[owner.__module__]))[name]
    options = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)
    return tuple(get_origin(option) or option for option in options)


def _count_other_fields(tree, kind):
    """Return how many fields a dataclass has more than a tree has entries."""
    return len({f.name for f in fields(kind)} ^ {*tree}) if is_dataclass(kind) else 0
