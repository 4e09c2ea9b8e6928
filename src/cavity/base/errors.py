"""The errors and warnings of the library, and the words for what kernels report as a status code."""

import os
import sys
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

import numpy as np

OVERFLOW_STATUS, POINT_MASS_STATUS = 1, 2  # cython_core/shared/status_codes.pxd
DROP_WAY_OUT = "missing='drop' leaves such rows out"

Method = TypeVar("Method", bound=Any)


PUBLIC_MODULE = "cavity.errors"  # where users import these from, and what tracebacks call them


class NotPositiveDefiniteError(np.linalg.LinAlgError, ValueError):
    """A matrix that must be positive definite is not."""

    __module__ = PUBLIC_MODULE


class NumericalWarning(RuntimeWarning):
    """The result stands, but not exactly for these arguments: jitter added, precision lost."""

    __module__ = PUBLIC_MODULE


class ConvergenceWarning(RuntimeWarning):
    """An iteration stopped before its stopping rule was met; the result has `converged=False`."""

    __module__ = PUBLIC_MODULE


class SettingsWarning(UserWarning):
    """The settings are those of other data, of the past or of an example, and these data contradict them."""

    __module__ = PUBLIC_MODULE


def name_arguments(error, *arguments):
    """Return an error about arguments of the library, whose names it keeps for faces that call them otherwise.

    The first place of each name in the message must be the name itself, and no other word.
    """
    error.arguments = arguments
    return error


def mark_missing(error, value):
    """Return an error about a value, marked if that is missing, so that `suggest` can add what to do about it."""
    error.is_about_missing_value = value is None or value != value
    return error


@contextmanager
def suggest(way_out):
    """Add a way out to errors about missing values, which stay the same otherwise."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if getattr(error, "is_about_missing_value", False):
            error.args, error.is_about_missing_value = (f"{error}; {way_out}",), False
        raise


def suggest_dropping(fit: Method) -> Method:
    """Decorate a fit or an update: errors about missing values say that missing="drop" leaves the rows out."""

    @wraps(fit)
    def call(*arguments, **settings):
        with suggest(DROP_WAY_OUT):
            return fit(*arguments, **settings)

    return call


_collected = ContextVar("collected", default=None)  # messages of warnings, where they are collected


@contextmanager
def collect_warnings():
    """A context in which messages of warnings of the library, on this thread, are put into a list, and not issued."""
    messages = []
    token = _collected.set(messages)
    try:
        yield messages
    finally:
        _collected.reset(token)


def warn(message, category):
    """Warn at the line that called the library, however deep in it this is; scikit-learn and dask may be in between."""
    if _collected.get() is not None:
        _collected.get().append(message)
        return
    frame, level = sys._getframe(1), 2  # level 1 is this function
    inner = ("cavity", "sklearn", "dask")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inner:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def raise_status(status, row, action):
    """Raise the exception that a kernel's status code stands for; `action` is 'multiply' or 'divide'."""
    if status == OVERFLOW_STATUS:
        raise OverflowError(
            f"{action}: the natural parameters of element {row} leave the range of float64; rescale the variable"
        )
    if status == POINT_MASS_STATUS:
        raise ZeroDivisionError(f"{action}: element {row} of the divisor is a point mass (rho = inf)")


def check_within_range(values, description):
    """Return `values`, or raise OverflowError if one of them is not finite; `description` begins the message."""
    if not np.isfinite(values).all():
        raise OverflowError(f"{description} leave the range of float64; rescale the variable")
    return values


def missing_extra_error(module, extra):
    """Return the ImportError for an optional dependency that is not installed."""
    return ImportError(f"this needs {module}, which is not installed; run: pip install 'cavity[{extra}]'")


@contextmanager
def name_file_in_errors(path):
    """Give errors of the file system without a file name the name of this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise
