"""The rule of the attack: the right number, or a documented refusal; never nan, never a false `converged`."""

import warnings

import numpy as np

import cavity

REFUSALS = (ValueError, OverflowError)  # of data or settings, in a sentence


class Wrong(AssertionError):
    """What no user should meet."""


def sure(call, *arguments, **options):
    """The result of a call that has no reason to refuse; warnings of NumPy are errors: users cannot act upon them."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = call(*arguments, **options)
    for each in heard:
        if each.category is RuntimeWarning:
            raise Wrong(f"a warning of NumPy: {each.message}, {each.filename}:{each.lineno}")
    said = any(each.category is cavity.ConvergenceWarning for each in heard)
    if said == getattr(result, "converged", not said):
        raise Wrong(f"converged is {result.converged}, and a ConvergenceWarning came{'' if said else ' not'}")
    return result


def refusing(call, *arguments, **options):
    """The same of a call that may refuse: None then."""
    try:
        return sure(call, *arguments, **options)
    except REFUSALS as error:
        known = type(error) in (ValueError, OverflowError, cavity.NotPositiveDefiniteError)
        if not known or len(str(error).split()) < 4:
            raise Wrong(f"refused without a sentence: {error!r}") from error
        return None


def finite(what, values):
    """Nothing is nan or infinite."""
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        raise Wrong(f"{what} has {values[~np.isfinite(values)][0]} in place {np.argmin(np.isfinite(values))}")


def near(what, got, expected, error):
    """Each number of `got` differs from what is expected by `error` at most, a number for all or one for each."""
    got, expected = np.asarray(got, dtype=float), np.asarray(expected, dtype=float)
    finite(what, got)
    if got.shape != expected.shape:
        raise Wrong(f"{what} has shape {got.shape}, not {expected.shape}")
    excess = np.abs(got - expected) / error
    if got.size and not np.max(excess) <= 1:
        at = np.unravel_index(np.argmax(excess), excess.shape)
        raise Wrong(f"{what} is {got[at]!r}, not {expected[at]!r}, {np.max(excess):.3g} times the error allowed")
