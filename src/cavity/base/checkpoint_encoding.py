"""The state of a computation as JSON and numbered arrays, and back with every bit, type and memory layout.

`records` say what a file of a posterior must hold. Checkpoints follow the objects themselves, and only the
program that wrote one reads it again: records (dataclasses) of classes that the reader names, tuples, lists,
dictionaries, arrays and numbers.
"""

from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from cavity.base.public_objects import set_fields


@dataclass(frozen=True, slots=True)
class EncodedValue:
    """What `encode` returned, and the arrays: a value whose classes are not known yet."""

    encoded: object
    arrays: dict


def encode(value, arrays, names=None):
    """Return a value as JSON has it; its arrays are added to `arrays`, each once.

    Parameters
    ----------
    value : object
        Dataclasses, tuples, lists, dictionaries with strings as keys, arrays, numbers, strings and None. Fields of
        dataclasses with {"kept": False} as metadata are left out, and come back with their defaults.
    arrays : dict of ndarray
        Takes the arrays, by their numbers as strings.
    names : dict, optional
        Names of arrays by their identities.

    Returns
    -------
    object
        For `decode`.
    """
    names = {} if names is None else names
    match value:
        case np.generic():
            return {"scalar": _number(value, arrays, names)}
        case np.ndarray():
            return {"array": _number(value, arrays, names)} | ({} if value.flags.writeable else {"frozen": True})
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return {"tuple": [encode(item, arrays, names) for item in value]}
        case list():
            return [encode(item, arrays, names) for item in value]
        case dict():
            return {"dict": {name: encode(item, arrays, names) for name, item in value.items()}}
        case EncodedValue():
            return _renumbered(value.encoded, value.arrays, arrays, names)
        case _ if hasattr(value, "__array__"):  # numbers in a file, which become an array when they are written
            return {"array": _number(value, arrays, names)}
    if not is_dataclass(value):
        raise TypeError(f"a {type(value).__name__} cannot be kept")
    saved_names = [item.name for item in fields(value) if item.metadata.get("kept", True)]
    parts = {name: encode(getattr(value, name), arrays, names) for name in saved_names}
    return {"record": type(value).__name__, "fields": parts}


def _number(value, arrays, names):
    """Return the name of an array among the others, which it may join."""
    if id(value) not in names:
        names[id(value)] = str(len(arrays))
        arrays[names[id(value)]] = np.asarray(value) if isinstance(value, np.generic) else value
    return names[id(value)]


def _renumbered(encoded, old, arrays, names):
    """Return an encoded value of other arrays in terms of these, which they join."""
    match encoded:
        case {"scalar": name}:
            return {"scalar": _number(old[name], arrays, names)}
        case {"array": name}:
            return encoded | {"array": _number(old[name], arrays, names)}
        case {"tuple": values}:
            return {"tuple": _renumbered(values, old, arrays, names)}
        case {"dict": parts} | {"fields": parts}:
            key = "dict" if "dict" in encoded else "fields"
            return encoded | {key: {name: _renumbered(part, old, arrays, names) for name, part in parts.items()}}
        case list():
            return [_renumbered(part, old, arrays, names) for part in encoded]
    return encoded


def decode(encoded, arrays, classes):
    """Return the value that `encode` encoded.

    Parameters
    ----------
    encoded : object
        What it returned.
    arrays : dict of ndarray
        By names.
    classes : dict of str to type
        Those of the records, by names.

    Returns
    -------
    object
        Equal to the value that was encoded.
    """
    match encoded:
        case {"scalar": name}:
            return arrays[name][()]
        case {"array": name}:
            if "frozen" in encoded:
                arrays[name].flags.writeable = False
            return arrays[name]
        case {"tuple": values}:
            return tuple(decode(part, arrays, classes) for part in values)
        case {"dict": values}:
            return {name: decode(part, arrays, classes) for name, part in values.items()}
        case {"record": name, "fields": parts}:
            record = object.__new__(classes[name])
            for part in fields(classes[name]):
                saved = part.name in parts
                set_fields(record, **{part.name: decode(parts[part.name], arrays, classes) if saved else part.default})
            return record
        case list():
            return [decode(part, arrays, classes) for part in encoded]
    return encoded


def collect_classes(*values):
    """Return the classes of all records in some values, and those that are given themselves, by their names.

    Parameters
    ----------
    *values : object
        Records, tuples, lists and dictionaries of such; classes.

    Returns
    -------
    dict of str to type
        For `decode`.
    """
    classes = {}
    for value in values:
        if isinstance(value, type):
            classes[value.__name__] = value
        elif is_dataclass(value):
            classes[type(value).__name__] = type(value)
            classes |= collect_classes(*(getattr(value, field.name) for field in fields(value)))
        elif isinstance(value, tuple | list | dict):
            classes |= collect_classes(*(value.values() if isinstance(value, dict) else value))
    return classes
