"""Times of events, and columns that say whether these were observed, as bounds."""

import numpy as np

from cavity.base import arrays, frames
from cavity.base.errors import mark_missing

EVENT_CODES_OF_R = (1, 2)  # censored and observed, in the columns `status` of R's package survival

TRUTH_TEXTS = {"true": 1.0, "false": 0.0}


def read_real_column(column, name, *, allow_missing=False):
    """Return a column of real numbers (N,), infinite ones included, and truth values, as text too.

    ValueError or TypeError for other text and, unless they are allowed, for missing values.
    """
    column = _read_truth_values(frames.take_only_column(column), name)
    values = arrays.check_real_array(frames.to_numbers(column, name), name)
    arrays.check_ndim(values, name, (1,))
    if np.isnan(values).any() and not allow_missing:
        row = int(np.argmax(np.isnan(values)))
        raise mark_missing(arrays.error_of(name, f"must have a value in every row, got nan in row {row}"), None)
    return values


def _read_truth_values(column, name):
    """Return a column with truth values in place of "True" and "False", as text files have them."""
    if not (np.ndim(column) and isinstance(next(iter(column), None), str)):
        return column
    values = [TRUTH_TEXTS.get(str(value).lower()) for value in column]
    if None in values:
        row = values.index(None)
        message = f"must hold numbers or truth values, got {str(column[row])!r} in row {row}"
        raise arrays.error_of(name, f"{message}: write a comparison, as status == 'died'", TypeError)
    return np.array(values)


def make_bounds(time, event, names=("y", "event"), example="event = status == 2", *, allow_missing=False):
    """Return bounds (N, 2) of times: (time, time) of observed events, (time, inf) of rows censored on the right.

    Parameters
    ----------
    time : array_like (N,)
        When the event was, or until when it had not been.
    event : array_like (N,)
        1 or True where the event was observed, 0 or False where the row is censored.
    names : tuple of str
        What messages call the times and the events.
    example : str
        How truth values are written where the column has other values.
    allow_missing : bool, default False
        Whether NaN stays NaN.
    """
    if np.ndim(time) != 1:
        message = f"must hold one time in each row, where there is a column of events, got shape {np.shape(time)}"
        raise arrays.error_of(names[0], f"{message}; bounds (N, 2) need no events")
    time, event = (
        read_real_column(column, name, allow_missing=allow_missing)
        for column, name in zip((time, event), names, strict=True)
    )
    if len(time) != len(event):
        raise arrays.error_of(names[1], f"must have one entry for each of the {len(time)} times, got {len(event)}")
    bad = (event != 0) & (event != 1) & ~np.isnan(event)
    if bad.any():
        row, is_coded_like_r = int(np.argmax(bad)), bool(np.isin(event, EVENT_CODES_OF_R).all())
        codes = ", 1 and 2 are R's codes" if is_coded_like_r else ""
        message = f"must hold 1 (observed) and 0 (censored), or truth values, got {event[row]:g} in row {row}"
        raise arrays.error_of(names[1], f"{message}{codes}: recode it, as {example}")
    return np.column_stack([time, np.where(event == 1, time, np.where(event == 0, np.inf, np.nan))])
