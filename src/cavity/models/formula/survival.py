"""Times of events before the ~ of a formula: ``surv(time, event)`` and ``surv(lower, upper)`` as bounds."""

import re

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.censoring import EVENT_CODES_OF_R, make_bounds
from cavity.models.formula.notation import COLUMN_NAME, refuse, split

SURVIVAL_CALL = re.compile(r"\s*[sS]urv\s*\((.*)\)\s*", re.DOTALL)
MEANINGS_OF_SECOND = ("event", "interval")  # of the second column in surv()
EVENT_CODES = (0, 1)
SURVIVAL_NOTATION = "surv(time, event) has times and 1 or 0 for observed or censored, surv(lower, upper) bounds"


def has_times(text):
    """Whether what stands before the ~ of a formula are times that may be censored."""
    return SURVIVAL_CALL.fullmatch(text) is not None


def split_survival_call(text):
    """Return the expressions in ``surv(time, event)``, and "event", "interval" or None where numbers decide."""
    texts = [part.strip() for _, part in split(SURVIVAL_CALL.fullmatch(text)[1], ",")]
    meaning = texts.pop().strip("'\"") if len(texts) == 3 else None
    if len(texts) not in (1, 2) or not all(texts) or meaning not in (None, *MEANINGS_OF_SECOND):
        third = "a third argument 'event' or 'interval' says which where numbers do not"
        raise refuse(text, f"{SURVIVAL_NOTATION}; {third}")
    return texts, meaning


def add_meaning(text, read):
    """Return ``surv(...)`` with the meaning of its second column, by the rows of a fit; new rows have the same."""
    texts, meaning = split_survival_call(text)
    if len(texts) == 2 and meaning is None:
        texts.append(MEANINGS_OF_SECOND[0 if np.isin(read(texts[1]), EVENT_CODES).all() else 1])
    return f"surv({', '.join(texts)})"


def make_survival_bounds(text, read):
    """Return the bounds (N, 2) of ``surv(...)``; `read` returns the numbers (N,) of an expression."""
    texts, meaning = split_survival_call(text)
    columns = [read(part) for part in texts]
    if len(columns) == 1:
        return np.column_stack(columns * 2)
    first, second = columns
    has_codes = bool(np.isin(second, EVENT_CODES_OF_R).all())
    if meaning == "event" or (meaning is None and (has_codes or np.isin(second, EVENT_CODES).all())):
        example = f"surv({texts[0]}, {_describe_event(texts[1])})"
        example += f"; bounds are surv({', '.join(texts)}, 'interval')" if has_codes and meaning is None else ""
        return make_bounds(first, second, tuple(texts), example)
    bad = first > second
    if bad.any():
        row = int(np.argmax(bad))
        message = (
            f"must have lower <= upper bounds in {text.strip()}, got {first[row]:g} and {second[row]:g} in row {row}"
        )
        if meaning is None:
            other = np.argmax((second != 0) & (second != 1))
            message += f"; if {texts[1]} has events it must hold 1 and 0 only, got {second[other]:g} in row {other}"
        raise error_of("formula", f"{message}; else exchange the bounds of this row")
    return np.column_stack(columns)


def _describe_event(text):
    """Return an expression of truth values by that of a column."""
    return f"{text} == 2" if COLUMN_NAME.fullmatch(text) else "status == 2"
