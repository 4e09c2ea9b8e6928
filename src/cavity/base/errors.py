"""The errors and warnings of the library, and the words for what kernels report as a status code."""

import os
import sys
import warnings
from contextlib import contextmanager

import numpy as np

OVERFLOWED, DIVIDED_BY_POINT_MASS = 1, 2  # cython_core/shared/status_codes.pxd


PUBLIC = "cavity.errors"  # where users import these from, and what tracebacks call them


class NotPositiveDefiniteError(np.linalg.LinAlgError, ValueError):
    """A matrix that must be positive definite is not."""

    __module__ = PUBLIC


class NumericalWarning(RuntimeWarning):
    """The result stands, but not exactly for what was asked: jitter added, precision lost."""

    __module__ = PUBLIC


class ConvergenceWarning(RuntimeWarning):
    """An iteration stopped before its stopping rule was met; the result has `converged=False`."""

    __module__ = PUBLIC


class SettingsWarning(UserWarning):
    """The settings are those of other data, of the past or of an example, and these data speak against them."""

    __module__ = PUBLIC


def about(error, *arguments):
    """Return an error about arguments of the library, whose names it keeps for faces that call them otherwise.

    The first place of each name in the message must be the name itself, and no other word.
    """
    error.arguments = arguments
    return error


def warn(message, category):
    """Warn at the line that called the library, however deep in it this is; scikit-learn and dask may be in between."""
    frame, level = sys._getframe(1), 2  # level 1 is this function
    inner = ("cavity", "sklearn", "dask")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inner:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def raise_status(status, row, action):
    """Raise the exception that a kernel's status code stands for; `action` is 'multiply' or 'divide'."""
    if status == OVERFLOWED:
        raise OverflowError(
            f"{action}: the natural parameters of element {row} leave the range of float64; rescale the variable"
        )
    if status == DIVIDED_BY_POINT_MASS:
        raise ZeroDivisionError(f"{action}: element {row} of the divisor is a point mass (rho = inf)")


def within_range(values, what):
    """Return `values`, or raise OverflowError if one of them is not finite; `what` begins the message."""
    if not np.isfinite(values).all():
        raise OverflowError(f"{what} leave the range of float64; rescale the variable")
    return values


def missing_extra(module, extra):
    """Return the ImportError for an optional dependency that is not installed."""
    return ImportError(f"this needs {module}, which is not installed; run: pip install 'cavity[{extra}]'")


@contextmanager
def naming(path):
    """Give errors of the file system that do not say which file they are about the name of this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise
