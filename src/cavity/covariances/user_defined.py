"""User-defined covariances in Python: their parameters and their matrices, which are checked.

Such a covariance is a dataclass that derives from `Covariance` and has ``gram(X, Z)``. Blocks of rows are those of
compiled covariances, so the number of threads does not change a bit here either.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from numbers import Real
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatArray, Public, set_fields
from cavity.base.triangles import fill_symmetric
from cavity.covariances.program import UncompiledProgram, split_rows
from cavity.priors import densities as priors
from cavity.runs import merge

LEARNING_OPTIONS = ("fixed", "bounds", "priors")  # fields or class attributes that say how parameters are learnt
DIAGONAL_ROWS = 64  # rows whose matrix is found for its diagonal, if there is no other way to variances
# of a log parameter: central differences are good to about its square
LOG_DIFFERENCE_STEP = np.cbrt(np.finfo(np.float64).eps)


def is_parameter(field, value):
    """Return whether a field of a user's dataclass is a positive parameter: a number or array that is no whole one."""
    if field.name in LEARNING_OPTIONS or field.type in (int, "int"):
        return False
    return isinstance(value, Real | np.ndarray | list) and not isinstance(value, bool)


def check_bounds(value, name):
    """Return (low, high) as two positive floats."""
    pair = arrays.check_finite_array(value, name, ndim=(1,))
    if pair.shape != (2,) or not 0 < pair[0] <= pair[1]:
        raise ValueError(f"{name} must be (low, high) with 0 < low <= high, got {value!r}")
    return float(pair[0]), float(pair[1])


class UserDefined(Public):
    """Parameters and options of a user-defined covariance; those of this library override them."""

    __slots__ = ()

    fixed: str | tuple[str, ...] = ()
    bounds: Mapping[str, Any] = MappingProxyType({})
    priors: Mapping[str, Any] = MappingProxyType({})

    def gram(self, X: Any, *args: Any, **options: Any) -> FloatArray:
        """Matrix of covariances of rows: what a covariance of your own defines, as ``gram(self, X, Z)``.

        Parameters
        ----------
        X : ndarray, shape (n, D)
            The rows.
        *args
            Z, other rows (m, D), in a covariance of your own; there is none in those of the library.
        **options
            Those of the library have `out` and `n_threads`.

        Returns
        -------
        ndarray
            Covariances of X with Z, (n, m), finite and, where both are the same rows, symmetric; in the library those
            of X with X.
        """
        raise TypeError(f"{type(self).__name__} must define gram(X, Z), the covariances of rows X with rows Z, (n, m)")

    @property
    def _label(self):
        """The class name in the style of names of parameters: OfTwoParts is of_two_parts."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def _fields(self):
        return fields(self) if is_dataclass(self) else ()

    @property
    def _slots(self):
        """The names of the parameters, in the order of the fields."""
        return tuple(field.name for field in self._fields if is_parameter(field, getattr(self, field.name)))

    @property
    def _roles(self):
        """Only the author of the class can say what a parameter does."""
        return dict.fromkeys(self._slots, "own")

    def _check(self):
        """Raise TypeError or ValueError unless there is a Gram matrix, and parameters are positive."""
        kind = type(self).__name__
        if type(self).gram is UserDefined.gram:
            self.gram(None)  # raises the error that names what is missing
        for name in self._slots:
            value = arrays.check_finite_array(getattr(self, name), f"{name} of {kind}", ndim=(0, 1))
            arrays.check_not_empty(value.shape, f"{name} of {kind}")
            arrays.check_positive_array(value, f"{name} of {kind}")
            if value.ndim and type(self).__eq__ is not UserDefined.__eq__:
                raise TypeError(
                    f"{kind} holds an array, {name}, and arrays have no one answer to ==: write "
                    "@dataclass(frozen=True, eq=False), and two are compared by their parameters"
                )
        for option in LEARNING_OPTIONS:
            self._check_known(option, getattr(self, option))
        for name in self.bounds:
            check_bounds(self.bounds[name], f"bounds[{name!r}] of {kind}")
        for name in self.priors:
            priors.check_prior(self.priors[name], f"priors[{name!r}] of {kind}")

    def _check_known(self, argument, names):
        for name in names:
            if name not in self._slots:
                parameters = ", ".join(self._slots)
                raise ValueError(f"{argument}: {type(self).__name__} has no parameter {name!r}, it has {parameters}")

    def _check_columns(self, label, n_features):
        """Any width may do: gram sees it."""

    def _slot_size(self, name, n_features):
        """Return how many derivatives there are for a parameter."""
        return np.size(getattr(self, name))

    def _with(self, **changes):
        """Return the covariance with other parameters or options."""
        names = {field.name for field in self._fields}
        inside = {name: value for name, value in changes.items() if name in names}
        other = replace(self, **inside) if names else copy.copy(self)
        options = {name: changes.get(name, getattr(self, name)) for name in LEARNING_OPTIONS if name not in names}
        options = {name: value for name, value in options.items() if value is not getattr(type(self), name)}
        if options and not hasattr(other, "__dict__"):
            raise TypeError(f"{type(self).__name__} has no slots for {', '.join(options)}: write it without slots")
        set_fields(other, **options)
        return other

    def _moved(self, **changes):
        """Return the covariance with other parameters."""
        return self._with(**changes)

    def _program(self, n_features):
        return UserDefinedProgram(self)

    def _key(self):
        """Return what covariances that are equal have in common."""
        parameters = self._slots
        values = tuple(np.asarray(getattr(self, name)).tolist() for name in parameters)
        rest = tuple(
            getattr(self, field.name) for field in self._fields if field.name not in (*parameters, *LEARNING_OPTIONS)
        )
        own_priors = tuple((name, priors.make_key(prior)) for name, prior in self.priors.items())
        return type(self), values, rest, tuple(self.fixed), tuple(self.bounds.items()), own_priors

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, UserDefined) else NotImplemented

    __hash__: ClassVar[Any] = None


class UserDefinedProgram(UncompiledProgram):
    """A user-defined covariance with the interface of `Program`."""

    def __init__(self, covariance):
        self.covariance = covariance
        self._own_diagonal = covariance._has_own_diagonal
        self.name = type(covariance).__name__
        self.n_slots = sum(np.size(getattr(covariance, name)) for name in covariance._slots)

    def gram(self, X, out, threads):
        """Write the covariance matrix of rows X (N, D) into out (N, N)."""
        self.cross(X, X, out, threads)
        out[...] = arrays.check_symmetric(out, f"gram(X, X) of {self.name}", copy=False)

    def cross(self, X, Z, out, threads):
        """Write the covariances of rows X (N, D) with rows Z (M, D) into out (N, M)."""

        def task(start, stop):
            out[start:stop] = self._matrix(self.covariance, X[start:stop], Z)

        threads.run(task, split_rows(*out.shape))

    def columns_of(self, X):
        """Return a function of indices of n rows: the covariances (n, N) of these with all rows X."""
        return lambda rows: self._matrix(self.covariance, X[rows], X)

    def contract(self, X, weights, Z, threads):
        """Return the derivatives of <weights, K> in the logs of the parameters; Z=None: K is the Gram matrix."""
        if Z is None:
            Z, weights = X, fill_symmetric(weights)

        def task(start, stop):
            slopes = self._slopes(X[start:stop], Z)
            return np.array([np.sum(weights[start:stop] * slope) for slope in slopes]).reshape(self.n_slots)

        return merge.merge(threads.imap(task, split_rows(*weights.shape)))

    def contract_inputs(self, X, weights, Z, threads):
        """There are no derivatives in rows."""
        raise TypeError(f"{self.name} has no derivatives in the rows")

    def diagonal(self, X):
        """Return the variance of every row, (N,)."""
        return self._variances(self.covariance, X)

    def diagonal_contract(self, X, weights):
        """Return the derivatives of weights (N,) times the variances of the rows in the logs of the parameters."""
        total = np.zeros(self.n_slots)
        for start, stop in merge.split_rows(len(X), DIAGONAL_ROWS):
            rows, weight = X[start:stop], weights[start:stop]
            if hasattr(self.covariance, "gradients"):
                slopes = (np.diagonal(slope) for slope in self._slopes(rows, rows))
            else:
                slopes = self._differences(lambda covariance, rows=rows: self._variances(covariance, rows))
            total += [np.sum(weight * slope) for slope in slopes]
        return total

    def _variances(self, covariance, X):
        if self._own_diagonal:
            value = self._checked(covariance.diagonal(_make_read_only(X)), (len(X),), "diagonal(X)")
        else:
            blocks = merge.split_rows(len(X), DIAGONAL_ROWS)
            parts = [np.diagonal(self._matrix(covariance, X[a:b], X[a:b])) for a, b in blocks]
            value = np.concatenate([np.zeros(0), *parts])
        if len(value) and np.min(value) < 0.0:
            i = int(np.argmin(value))
            raise ValueError(f"{self.name}: k(x, x) is a variance and cannot be negative, got {value[i]} at row {i}")
        return value

    def _matrix(self, covariance, X, Z):
        return self._checked(covariance.gram(_make_read_only(X), _make_read_only(Z)), (len(X), len(Z)), "gram(X, Z)")

    def _checked(self, value, shape, call):
        """Return what a user's method returned as finite floats of a shape."""
        value = arrays.check_real_array(value, f"{call} of {self.name}")
        if value.shape != shape:
            raise ValueError(f"{call} of {self.name} must have shape {shape}, got {value.shape}")
        return arrays.check_finite_array(value, f"{call} of {self.name}").astype(np.float64, copy=False)

    def _slopes(self, X, Z):
        """Yield the derivatives (n, m) of the covariances in the log of every parameter."""
        if not hasattr(self.covariance, "gradients"):
            yield from self._differences(lambda covariance: self._matrix(covariance, X, Z))
            return
        derivatives, names = self.covariance.gradients(_make_read_only(X), _make_read_only(Z)), self.covariance._slots
        if not isinstance(derivatives, Mapping) or set(derivatives) != set(names):
            returned = list(derivatives) if isinstance(derivatives, Mapping) else type(derivatives).__name__
            raise ValueError(f"gradients(X, Z) of {self.name} must be a dict with {', '.join(names)}, got {returned}")
        for name in names:
            shape = (*np.shape(getattr(self.covariance, name)), len(X), len(Z))
            value = self._checked(derivatives[name], shape, f"gradients(X, Z)[{name!r}]")
            yield from value.reshape(-1, len(X), len(Z))

    def _differences(self, value_of):
        """Yield central differences of value_of(covariance) in the log of every parameter."""
        for name in self.covariance._slots:
            value = np.asarray(getattr(self.covariance, name), dtype=np.float64)
            for index in np.ndindex(value.shape):
                moved = []
                for step in (LOG_DIFFERENCE_STEP, -LOG_DIFFERENCE_STEP):
                    new = value.copy()
                    new[index] *= np.exp(step)
                    moved.append(value_of(self.covariance._with(**{name: new if new.ndim else float(new)})))
                yield (moved[0] - moved[1]) / (2.0 * LOG_DIFFERENCE_STEP)


def _make_read_only(rows):
    """Return rows that a user's method may look at, but not change."""
    view = rows.view()
    view.flags.writeable = False
    return view
