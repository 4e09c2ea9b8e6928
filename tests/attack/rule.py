"""The rule of the attack: the right number, or a documented refusal; never nan, never a false `converged`."""

import warnings

import numpy as np

import cavity

REFUSALS = (ValueError, OverflowError)  # of data or settings, in a sentence


class Wrong(AssertionError):
    """What no user should meet."""


def sure(call, *arguments, **options):
    """The result of a call that has no reason to refuse; warnings of NumPy are errors: users cannot act upon them."""
    with warnings.catch_warnings(record=True) as reports:
        warnings.simplefilter("always")
        result = call(*arguments, **options)
    for report in reports:
        if report.category is RuntimeWarning:
            raise Wrong(f"a warning of NumPy: {report.message}, {report.filename}:{report.lineno}")
    message = any(item.category is cavity.ConvergenceWarning for item in reports)
    if message == getattr(result, "converged", not message):
        raise Wrong(f"converged is {result.converged}, and a ConvergenceWarning came{'' if message else ' not'}")
    return result


def refusing(call, *arguments, **options):
    """The same of a call that may refuse: None then."""
    try:
        return sure(call, *arguments, **options)
    except REFUSALS as error:
        is_known = type(error) in (ValueError, OverflowError, cavity.NotPositiveDefiniteError)
        if not is_known or len(str(error).split()) < 4:
            raise Wrong(f"refused without a sentence: {error!r}") from error
        return None


def finite(label, values):
    """Nothing is nan or infinite."""
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        raise Wrong(f"{label} has {values[~np.isfinite(values)][0]} in place {np.argmin(np.isfinite(values))}")


def near(label, actual, expected, error):
    """Each number of `got` differs from what is expected by `error` at most, a number for all or one for each."""
    actual, expected = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    finite(label, actual)
    if actual.shape != expected.shape:
        raise Wrong(f"{label} has shape {actual.shape}, not {expected.shape}")
    excess = np.abs(actual - expected) / error
    if actual.size and not np.max(excess) <= 1:
        at = np.unravel_index(np.argmax(excess), excess.shape)
        raise Wrong(f"{label} is {actual[at]!r}, not {expected[at]!r}, {np.max(excess):.3g} times the error allowed")
