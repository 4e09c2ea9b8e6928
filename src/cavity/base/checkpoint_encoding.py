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


def encode(value, arrays, known=None):
    """Return a value as JSON has it; its arrays are added to `arrays`, each once.

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
        For `decode`.
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
            return {"tuple": [encode(item, arrays, known) for item in value]}
        case list():
            return [encode(item, arrays, known) for item in value]
        case dict():
            return {"dict": {name: encode(item, arrays, known) for name, item in value.items()}}
        case EncodedValue():
            return _renumbered(value.encoded, value.arrays, arrays, known)
        case _ if hasattr(value, "__array__"):  # numbers in a file, which become an array when they are written
            return {"array": _number(value, arrays, known)}
    if not is_dataclass(value):
        raise TypeError(f"a {type(value).__name__} cannot be kept")
    saved_names = [item.name for item in fields(value) if item.metadata.get("kept", True)]
    parts = {name: encode(getattr(value, name), arrays, known) for name in saved_names}
    return {"record": type(value).__name__, "fields": parts}


def _number(value, arrays, known):
    """Return the name of an array among the others, which it may join."""
    if id(value) not in known:
        known[id(value)] = str(len(arrays))
        arrays[known[id(value)]] = np.asarray(value) if isinstance(value, np.generic) else value
    return known[id(value)]


def _renumbered(encoded, old, arrays, known):
    """Return an encoded value of other arrays in terms of these, which they join."""
    match encoded:
        case {"scalar": name}:
            return {"scalar": _number(old[name], arrays, known)}
        case {"array": name}:
            return encoded | {"array": _number(old[name], arrays, known)}
        case {"tuple": values}:
            return {"tuple": _renumbered(values, old, arrays, known)}
        case {"dict": parts} | {"fields": parts}:
            key = "dict" if "dict" in encoded else "fields"
            return encoded | {key: {name: _renumbered(part, old, arrays, known) for name, part in parts.items()}}
        case list():
            return [_renumbered(part, old, arrays, known) for part in encoded]
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
                known = part.name in parts
                set_fields(record, **{part.name: decode(parts[part.name], arrays, classes) if known else part.default})
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
