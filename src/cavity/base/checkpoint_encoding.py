"""What a computation holds on its way, as JSON and numbered arrays, and back with every bit, type and memory layout.

`records` say what a file of a posterior must hold. Snapshots follow the objects themselves, and only those who made
them read them again: records (dataclasses) of classes that the reader names, tuples, lists, dictionaries, arrays and
numbers.
"""

from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from cavity.base.frozen_dataclasses import set_fields


@dataclass(frozen=True, slots=True)
class EncodedValue:
    """What `apart` returned, and the arrays: a value of which nobody knows the classes yet."""

    told: object
    arrays: dict


def encode(value, arrays, known=None):
    """Return a value as JSON has it; arrays go where they are told to, each once.

    Parameters
    ----------
    value : object
        Dataclasses, tuples, lists, dictionaries with strings as keys, arrays, numbers, strings and None. Fields of
        dataclasses with {"kept": False} as metadata are left out, and come back with their defaults.
    arrays : dict of ndarray
        Takes the arrays, by their numbers as strings.
    known : dict, optional
        Names of arrays by their identities.

    Returns
    -------
    object
        For `together`.
    """
    known = {} if known is None else known
    match value:
        case np.generic():
            return {"scalar": _number(value, arrays, known)}
        case np.ndarray():
            return {"array": _number(value, arrays, known)} | ({} if value.flags.writeable else {"frozen": True})
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return {"tuple": [encode(each, arrays, known) for each in value]}
        case list():
            return [encode(each, arrays, known) for each in value]
        case dict():
            return {"dict": {name: encode(each, arrays, known) for name, each in value.items()}}
        case EncodedValue():
            return _renumbered(value.told, value.arrays, arrays, known)
        case _ if hasattr(value, "__array__"):  # numbers in a file, which become an array when they are written
            return {"array": _number(value, arrays, known)}
    if not is_dataclass(value):
        raise TypeError(f"a {type(value).__name__} cannot be kept")
    kept = [each.name for each in fields(value) if each.metadata.get("kept", True)]
    parts = {name: encode(getattr(value, name), arrays, known) for name in kept}
    return {"record": type(value).__name__, "fields": parts}


def _number(value, arrays, known):
    """Return the name of an array among the others, which it may join."""
    if id(value) not in known:
        known[id(value)] = str(len(arrays))
        arrays[known[id(value)]] = np.asarray(value) if isinstance(value, np.generic) else value
    return known[id(value)]


def _renumbered(told, old, arrays, known):
    """Return what `apart` told of other arrays, in terms of these, which they join."""
    match told:
        case {"scalar": name}:
            return {"scalar": _number(old[name], arrays, known)}
        case {"array": name}:
            return told | {"array": _number(old[name], arrays, known)}
        case {"tuple": values}:
            return {"tuple": _renumbered(values, old, arrays, known)}
        case {"dict": parts} | {"fields": parts}:
            key = "dict" if "dict" in told else "fields"
            return told | {key: {name: _renumbered(each, old, arrays, known) for name, each in parts.items()}}
        case list():
            return [_renumbered(each, old, arrays, known) for each in told]
    return told


def decode(told, arrays, classes):
    """Return what `apart` took apart.

    Parameters
    ----------
    told : object
        What it returned.
    arrays : dict of ndarray
        By names.
    classes : dict of str to type
        Those of the records, by names.

    Returns
    -------
    object
        Equal to what was taken apart.
    """
    match told:
        case {"scalar": name}:
            return arrays[name][()]
        case {"array": name}:
            if "frozen" in told:
                arrays[name].flags.writeable = False
            return arrays[name]
        case {"tuple": values}:
            return tuple(decode(each, arrays, classes) for each in values)
        case {"dict": values}:
            return {name: decode(each, arrays, classes) for name, each in values.items()}
        case {"record": name, "fields": parts}:
            record = object.__new__(classes[name])
            for each in fields(classes[name]):
                known = each.name in parts
                set_fields(record, **{each.name: decode(parts[each.name], arrays, classes) if known else each.default})
            return record
        case list():
            return [decode(each, arrays, classes) for each in told]
    return told


def collect_classes(*values):
    """Return the classes of all records in some values, and those that are given themselves, by their names.

    Parameters
    ----------
    *values : object
        Records, tuples, lists and dictionaries of such; classes.

    Returns
    -------
    dict of str to type
        For `together`.
    """
    found = {}
    for value in values:
        if isinstance(value, type):
            found[value.__name__] = value
        elif is_dataclass(value):
            found[type(value).__name__] = type(value)
            found |= collect_classes(*(getattr(value, each.name) for each in fields(value)))
        elif isinstance(value, tuple | list | dict):
            found |= collect_classes(*(value.values() if isinstance(value, dict) else value))
    return found
