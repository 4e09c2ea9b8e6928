"""Covariances that are not composed: their positive parameters, columns, bounds and priors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import replace_unchecked, set_fields
from cavity.covariances.base import BuiltIn
from cavity.covariances.program import Program
from cavity.covariances.slots import DEFAULT_BOUNDS, list_free_names
from cavity.covariances.user_defined import check_bounds
from cavity.priors import densities as priors
from cavity.priors.saved import to_settings


def _rebuild(kind, arguments):
    return kind(**arguments)


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Leaf(BuiltIn):
    """Base of the covariances with parameters.

    A subclass has them as fields, names them in `_slots` in the kernel's order, in `_per_column` those that may be
    arrays, in `_roles` those whose role is not their name, in `_others` fields that are no parameters, and gives the
    kernel's `_op` and `_operand`.
    """

    fixed: str | tuple[str, ...] = ()
    bounds: Mapping[str, Any] = field(default_factory=dict)
    priors: Mapping[str, Any] = field(default_factory=dict)

    _op, _label = None, None
    _slots, _per_column, _roles, _others = ("variance",), (), {}, ()

    def __post_init__(self) -> None:
        set_fields(self, **{name: self._checked(name) for name in self._slots})
        chosen = self._checked_names()
        bounds, own_priors = self._pairs("bounds", check_bounds), self._pairs("priors", priors.check_prior)
        fixed = tuple(name for name in self._slots if name in chosen)
        set_fields(self, fixed=fixed, bounds=MappingProxyType(bounds), priors=MappingProxyType(own_priors))
        for name in list_free_names(self):
            low, high = self.bounds.get(name, DEFAULT_BOUNDS)
            value = np.ravel(getattr(self, name))
            bad = ~((value >= low) & (value <= high))
            if bad.any():
                raise ValueError(
                    f"{name} must be within its bounds ({low:g}, {high:g}), got {float(value[bad][0])!r}; "
                    f"give bounds={{{name!r}: (low, high)}}, or fix it"
                )

    def _checked(self, name):
        """Return a parameter: a positive number or, where that makes sense, a read-only vector of them."""
        value = getattr(self, name)
        if name not in self._per_column or np.ndim(value) == 0:
            return arrays.check_number(value, name, low=0)
        array = arrays.check_finite_array(value, name, ndim=(1,))
        arrays.check_not_empty(array.shape, name)
        return arrays.make_read_only(arrays.check_positive_array(array, name).copy())

    def _checked_names(self):
        """Return the names of fixed parameters; one alone need not be in a tuple."""
        names = (self.fixed,) if isinstance(self.fixed, str) else self.fixed
        if not isinstance(names, tuple | list | set | frozenset):
            raise TypeError(f"fixed must be a tuple of names of parameters, got {names!r}")
        self._check_known("fixed", names)
        return names

    def _pairs(self, argument, check):
        """Return the checked entries of a dictionary by names of parameters."""
        entries = getattr(self, argument)
        if not isinstance(entries, Mapping):
            raise TypeError(f"{argument} must be a dict by names of parameters, got {entries!r}")
        self._check_known(argument, entries)
        return {name: check(entries[name], f"{argument}[{name!r}]") for name in self._slots if name in entries}

    def _arguments(self):
        """Return what the leaf is built from."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"bounds": dict(self.bounds), "priors": dict(self.priors)}

    def _check(self):
        """It was, when it was made."""

    def _with(self, **changes):
        """Return the leaf with other arguments."""
        return type(self)(**self._arguments() | changes)

    def _moved(self, **changes):
        """Return the leaf with other parameters, which are known to be right."""
        return replace_unchecked(self, **changes)

    def _program(self, n_features):
        return Program([self], n_features)

    def _slot_size(self, name, n_features):
        """Return how many derivatives the kernel has for a parameter."""
        return self._n_columns(n_features) if name in self._per_column else 1

    def _n_columns(self, n_features):
        """Return how many columns the leaf looks at."""
        return 0

    def _check_columns(self, label, n_features):
        """Raise ValueError unless the leaf takes rows of that width."""

    def _operand(self, n_features):
        """Return the columns the leaf looks at, their divisors, and the parameters the kernel reads."""
        return [], (), (self.variance,)

    def _key(self):
        values = tuple(np.asarray(getattr(self, name)).tolist() for name in (*self._others, *self._slots))
        own_priors = tuple((name, priors.make_key(prior)) for name, prior in self.priors.items())
        return type(self).__name__, values, self._where(), self.fixed, tuple(self.bounds.items()), own_priors

    def _where(self):
        """Return the chosen columns, None for all."""
        return None

    def to_settings(self) -> dict[str, Any]:
        """Return the covariance as a JSON-able dictionary; see `Covariance.to_settings`."""
        settings = {"kind": type(self).__name__}
        settings |= {name: np.asarray(getattr(self, name)).tolist() for name in (*self._others, *self._slots)}
        settings |= {"columns": list(self._where())} if self._where() is not None else {}
        settings |= {"fixed": list(self.fixed)} if self.fixed else {}
        settings |= {"bounds": {name: list(pair) for name, pair in self.bounds.items()}} if self.bounds else {}
        own_priors = {n: to_settings(prior, f"priors[{n!r}]") for n, prior in self.priors.items()}
        return settings | ({"priors": own_priors} if own_priors else {})

    def __repr__(self) -> str:
        shown = (*self._others, *self._slots)
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name in shown}
        arguments = [f"{name}={np.asarray(value).tolist()!r}" for name, value in values.items()]
        extras = {
            "columns": self._where(),
            "fixed": self.fixed,
            "bounds": dict(self.bounds),
            "priors": dict(self.priors),
        }
        arguments += [f"{name}={value!r}" for name, value in extras.items() if value]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self._arguments())  # arrays come back read-only


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class ColumnLeaf(Leaf):
    """Base of the covariances that look at columns of the rows."""

    columns: Sequence[int] | None = None

    _slots, _per_column = ("variance", "lengthscale"), ("lengthscale",)

    def __post_init__(self) -> None:
        Leaf.__post_init__(self)
        if self.columns is not None:
            set_fields(self, columns=self._checked_columns())
            self._check_widths(type(self).__name__, len(self.columns))
        else:
            sizes = {len(getattr(self, name)) for name in self._arrays()}
            if len(sizes) > 1:
                self._check_widths(type(self).__name__, max(sizes))

    def _checked_columns(self):
        array = np.asarray(self.columns)
        if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu" or array.min() < 0:
            raise ValueError(f"columns must be a list of one or more column numbers from 0, got {self.columns!r}")
        chosen = tuple(array.tolist())
        if len(set(chosen)) < len(chosen):
            raise ValueError(f"columns must not repeat, got {list(chosen)}")
        return chosen

    def _arrays(self):
        """Return the names of the parameters that are arrays."""
        return [name for name in self._per_column if np.ndim(getattr(self, name))]

    def _check_widths(self, label, n_columns):
        for name in self._arrays():
            size = len(getattr(self, name))
            if size != n_columns:
                raise ValueError(
                    f"{label}: {name} must be a number or one for each of {n_columns} column(s), got {size}"
                )

    def _check_columns(self, label, n_features):
        """Raise ValueError unless the leaf takes rows of that width."""
        if self.columns is not None and max(self.columns) >= n_features:
            raise ValueError(f"{label}: columns must be below {n_features}, the width of X, got {max(self.columns)}")
        self._check_widths(label, self._n_columns(n_features))

    def _n_columns(self, n_features):
        """Return how many columns the leaf looks at."""
        return n_features if self.columns is None else len(self.columns)

    def _where(self):
        return self.columns

    def _chosen(self, n_features):
        return list(range(n_features) if self.columns is None else self.columns)

    def _repeat_parameter(self, name, n_features):
        """Return a parameter for every column."""
        return np.full(self._n_columns(n_features), getattr(self, name))

    def _operand(self, n_features):
        """Return the columns the leaf looks at, their divisors, and the parameters the kernel reads."""
        return self._chosen(n_features), self._repeat_parameter("lengthscale", n_features), (self.variance,)
