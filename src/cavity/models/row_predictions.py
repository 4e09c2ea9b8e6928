"""Predictions of rows: NaN in rows with missing values, and results as data frames."""

from functools import wraps
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from cavity.base import arrays
from cavity.base.errors import suggest
from cavity.base.frames import index_of, make_data_frame
from cavity.sources.chunkwise import map_chunks
from cavity.sources.dataset import find_complete_rows, take_dataset_rows

NAN_CHOICES = ("raise", "nan")  # what predictions do about rows without a value
NAN_WAY_OUT = "missing='nan' gives NaN in such rows"
ROW_ARGUMENTS = ("y", "offset", "exposure", "trials")  # arguments that may have a value for each row

Method = TypeVar("Method", bound=Any)


def name_moments(self):
    """Return the columns of a data frame of means and standard deviations."""
    return ("mean", "sd")


def name_classes(self):
    """Return the columns of a data frame of class probabilities: the names of the classes, or 0, 1, ..."""
    return self.classes or range(find_class_shape(self._likelihood)[0])


def find_class_shape(likelihood):
    """Return the shape of the probabilities of a row; None for a likelihood without classes."""
    return None if likelihood.n_classes is None else (likelihood.n_classes,)


def predict_rows(tail=lambda self, **settings: (), *, pair=False, columns=None, on_collections=True):
    """Return a decorator of a method (self, X, ..., missing="raise") whose result has an entry for each row of X.

    With missing="nan" the method gets the rows that have all values that it reads, and its result is NaN in the others.
    ``self._complete_rows(X, arguments)`` finds these rows; the bits are those of the complete rows alone.

    Parameters
    ----------
    tail : callable
        Returns the shape of what comes of a row, for the object and the arguments beside X, as `map_chunks` takes it.
    pair : bool, default False
        Whether the method returns a tuple of arrays (n,), means and variances.
    columns : callable, optional
        Returns the names of the columns of a data frame, where the method has an argument as_frame.
    on_collections : bool, default True
        Whether the method returns a lazy dask array where X is a collection of dask.
    """

    def decorate(method: Method) -> Method:
        name = [*signature(method).parameters][1]

        @wraps(method)
        def call(self, *values, missing="raise", **settings):
            arrays.check_choice(missing, "missing", NAN_CHOICES)
            as_frame = columns is not None and arrays.check_flag(settings.pop("as_frame", False), "as_frame")
            if not values and name not in settings:
                return method(self, **settings)  # whose message has its name
            X, *values = values or (settings.pop(name),)
            if missing == "raise":
                with suggest(NAN_WAY_OUT):
                    result = method(self, X, *values, **settings)
            else:
                result = _predict_complete_rows(self, method, X, values, settings, tail, pair)
            return _make_frame(columns(self), result, X) if as_frame else result

        return map_chunks(_frame_tail(tail), pair=pair)(call) if on_collections else call

    return decorate


def _frame_tail(tail):
    """Return a tail that is None for data frames, which are not lazy."""
    return lambda self, as_frame=False, **settings: None if as_frame else tail(self, **settings)


def _predict_complete_rows(self, method, X, values, settings, tail, pair):
    """Return the result of a method, NaN in rows with missing values."""
    bound = signature(method).bind(self, X, *values, **settings)
    bound.apply_defaults()  # arguments that are None may stand for columns of X
    settings = dict([*bound.arguments.items()][2:])
    arguments = {name: settings[name] for name in ROW_ARGUMENTS if name in settings}
    n, index, complete, rows = self._complete_rows(X, arguments)
    if index is None:
        return method(self, X, **settings)
    settings |= rows
    shape = tail(self, **settings)
    if len(index) or shape is None:  # the method says why there is none
        result = method(self, complete, **settings)
    else:
        result = (np.zeros(0),) * shape[0] if pair else np.zeros((0, *shape))
    return tuple(scatter_rows(part, index, n) for part in result) if pair else scatter_rows(result, index, n)


def scatter_rows(values, index, n):
    """Return values (m, ...) at their numbers among n rows, NaN in all others."""
    out = np.full((n, *values.shape[1:]), np.nan)
    out[index] = values
    return out


def complete_dataset(dataset):
    """Return the number of rows of a dataset, which are complete, None for all, their features and their columns."""
    index, _ = find_complete_rows(dataset, needs_rows=False)
    complete = dataset if index is None else take_dataset_rows(dataset, index)
    return dataset.n_rows, index, complete.X, dict(complete.columns)


def _make_frame(names, result, X):
    """Return probabilities (n, K), or means and variances, as a data frame with the index of X."""
    columns = (result[0], np.sqrt(result[1])) if isinstance(result, tuple) else result.T
    rows = getattr(X, "X", X)  # those of a mixed model may be with their groups
    return make_data_frame(dict(zip(names, columns, strict=True)), index_of(rows))
