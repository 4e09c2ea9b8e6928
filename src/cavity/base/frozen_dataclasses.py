"""Records whose arrays are read-only, and stay so in copies and pickles, of which numpy makes writeable ones."""

from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import Public


def set_fields(record, **values):
    """Set fields of a frozen record that is being made."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


def replace_unchecked(record, **values):
    """Return a frozen record with some other values, which are not checked: those that stay were."""
    new = object.__new__(type(record))
    set_fields(new, **{field.name: getattr(record, field.name) for field in fields(record)} | values)
    return new


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
        frozen = {place for place, array in _arrays_in(state) if not array.flags.writeable}
        return _restore, (type(self), state, frozen)


def _compared(record):
    """The values of the fields of a record by which it is equal to others."""
    return [getattr(record, each.name) for each in fields(record) if each.compare]


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
        return frozenset((name, _hashable(each)) for name, each in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, tuple) else value


def _restore(cls, state, frozen):
    """Return a record of a class in that state, its arrays at the places in `frozen` read-only."""
    for place, array in _arrays_in(state):
        if place in frozen:
            array.flags.writeable = False
    record: ClassVar[Any] = cls.__new__(cls)
    if hasattr(record, "__setstate__"):  # dataclasses with slots
        record.__setstate__(state)
        return record
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in ((attributes or {}) | (slots or {})).items():
        object.__setattr__(record, name, value)
    return record


def _arrays_in(value, place=()):
    """Yield (place, array) for the arrays in a value; a place is a tuple of names and numbers that lead there."""
    if isinstance(value, np.ndarray):
        yield place, value
    for name, part in _parts(value):
        yield from _arrays_in(part, (*place, name))


def _parts(value):
    """Return (name, value) of what is in a collection or in a record of this library; what users write is theirs."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    if is_dataclass(value) and type(value).__module__.partition(".")[0] == "cavity":
        known = {field.name: getattr(value, field.name, None) for field in fields(value)}
        return (known | getattr(value, "__dict__", {})).items()  # properties are kept there
    return ()
