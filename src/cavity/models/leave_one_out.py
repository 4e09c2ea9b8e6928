"""How well each row is predicted from all others, how far its sum is known, and where EP cannot be trusted with it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.frozen_dataclasses import Frozen
from cavity.base.results import format_table
from cavity.base.summary import Table
from cavity.base.types import BoolArray, FloatArray, FloatOrArray

DOUBTFUL = 0.5  # nats of influence: in refits 99 of 100 rows below it were within 0.05, one in eight above not in 0.1
REACTION = 0.02  # nats, influence times parameters per row, below which others hardly react: all were within 0.015
NAMED = 8  # most rows in a message


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut(Frozen):
    """Leave-one-out log densities of the rows of a fit, and what they are worth.

    EP has them for free: it takes away what a row said and leaves what all others said as it is. A refit without the
    row would move this too, the more the row has to say.

    Parameters
    ----------
    log_density : ndarray (N,)
        log p(y_i | the other rows).
    influence : ndarray (N,) or None
        How far the posterior moves without what a row said: KL(posterior without it || posterior with it), in nats.
        None where it is not known: with approximation="diagonal", and from files of earlier versions.
    doubtful : ndarray of bool (N,) or None
        Rows whose influence is above 0.5 nats, in a fit in which others react to that: times the effective number of
        parameters per row it is above 0.02. With Gaussian noise none, as there a refit says the same. None where the
        influence is not known.
    weights : ndarray (N,) or None
        The sample weights of the fit, None where all are one. A row of weight w counts as w copies in `sum` and
        `standard_error`; `log_density` is that of one of its copies given all others, or of all of it where w <= 1.
    """

    log_density: FloatArray
    influence: FloatArray | None
    doubtful: BoolArray | None
    weights: FloatArray | None = None

    @property
    def sum(self) -> FloatOrArray:
        """The sum of `log_density`, each times its weight: how well the model predicts."""
        return weighted_sum(self.log_density, self.weights)

    @property
    def standard_error(self) -> FloatOrArray:
        """Standard error of `sum`, if rows are independent: the sd of `log_density` times the root of N.

        With weights the sd and N are those of the rows written out.
        """
        return standard_error(self.log_density, self.weights)

    def to_frame(self) -> Any:
        """Return a pandas data frame with the rows: log density, influence, doubtful, and weight, as far as known.

        Returns
        -------
        pandas.DataFrame
            Indexed by the numbers of the rows, from 0.
        """
        known = {"log_density": self.log_density, "influence": self.influence, "doubtful": self.doubtful}
        known["weight"] = self.weights
        columns = {name: value for name, value in known.items() if value is not None}
        return Table("", range(len(self.log_density)), columns).to_frame()

    def __repr__(self) -> str:
        doubtful = self.doubtful
        found = "not known" if doubtful is None else _rows(doubtful) or "none"
        n, width = self.log_density.shape[-1], {"precision": 2, "floatmode": "fixed", "threshold": 8}
        weights = "" if self.weights is None else f" of weight {np.sum(self.weights):g} in all"
        return format_table(
            f"LeaveOneOut: {n} row{'s' if n != 1 else ''}{weights}",
            [
                ("sum", np.array2string(np.asarray(self.sum), **width)),
                ("standard error", np.array2string(np.asarray(self.standard_error), **width)),
                ("doubtful", found),
            ],
        )


class LeavesOneOut:
    """Base of posteriors with `loo_log_density`.

    A subclass has ``_influences()``: those of the rows, or None, and the effective number of parameters, which is None
    if leaving a site away is the same as a refit.
    """

    __slots__ = ()
    _row_weights: Any = None  # sample weights of the rows, None where all are one

    def loo(self) -> LeaveOneOut:
        """Return how well each row is predicted from all others: `loo_log_density`, its sum, and what it is worth.

        Returns
        -------
        LeaveOneOut
            With `log_density` (N,), `sum` and its `standard_error`, `influence` of every row and which are `doubtful`.

        Raises
        ------
        ValueError
            As `loo_log_density`.

        Warns
        -----
        NumericalWarning
            If rows are doubtful: the posterior rests so much on them that a refit without them may say otherwise.
        """
        record = record_of(self)
        warn_of(record)
        return record


def record_of(posterior):
    """Return the record of a posterior that leaves rows out."""
    log_density, (influence, parameters) = posterior.loo_log_density, posterior._influences()
    weights = posterior._row_weights
    if parameters is None:
        return LeaveOneOut(log_density, influence, np.zeros(log_density.shape, dtype=bool), weights)
    if influence is None:
        return LeaveOneOut(log_density, None, None, weights)
    n = log_density.shape[-1] if weights is None else np.sum(weights)
    reaction = influence * np.expand_dims(parameters, -1) / n
    return LeaveOneOut(log_density, influence, (influence > DOUBTFUL) & (reaction > REACTION), weights)


def warn_of(record, whose=""):
    """Warn if rows of a record are doubtful; `whose` it is goes into the message."""
    if record.doubtful is not None and record.doubtful.any():
        count = int(record.doubtful.sum())
        warn(
            f"leave-one-out{whose} is doubtful in {count} row{'s' if count > 1 else ''} "
            f"({_rows(record.doubtful)}; from 0): the posterior moves by more than {DOUBTFUL} nats without such a row, "
            "so only a fit without it is sure",
            NumericalWarning,
        )


def weighted_sum(values, weights):
    """Return the sum along the last axis, each value so many times; those of weight 0 may be infinite."""
    if weights is not None:
        values = weights * np.where(weights > 0, values, 0.0)
    return np.sum(values, axis=-1)[()]


def standard_error(values, weights=None):
    """Return the standard error of the sum of independent values along the last axis; infinite for a single one.

    With weights it is that of so many copies of each: sqrt(W sum w (value - mean)^2/(W - 1)), W their sum.
    """
    if weights is not None:
        weights, values = weights[weights > 0], values[weights > 0]
        n = np.sum(weights)
        if n <= 1.0 or not np.all(np.isfinite(values)):
            return np.inf
        return np.sqrt(n / (n - 1.0) * np.sum(weights * (values - np.average(values, weights=weights)) ** 2))
    n = values.shape[-1]
    if n < 2 or not np.all(np.isfinite(values)):
        return np.full(values.shape[:-1], np.inf)[()]
    return (np.sqrt(n) * np.std(values, axis=-1, ddof=1))[()]


def _rows(chosen):
    """The numbers of the rows that are chosen, from 0, the first of them."""
    found = [", ".join(map(str, each)) if len(each) > 1 else str(each[0]) for each in np.argwhere(chosen).tolist()]
    words = "; ".join(found[:NAMED]) if chosen.ndim > 1 else ", ".join(found[:NAMED])
    return words + (", ..." if len(found) > NAMED else "")
