"""Leave-one-out log densities, the standard error of their sum, and rows for which EP's are doubtful."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.public_objects import BoolArray, FloatArray, FloatOrArray, Frozen
from cavity.base.results import format_table
from cavity.base.summary import Table

DOUBTFUL_NATS = 0.5  # of influence: 99 of 100 rows below were within 0.05 of refits, one in eight above not in 0.1
DOUBTFUL_REACTION = 0.02  # nats, influence times parameters per row: all rows below were within 0.015 of refits
MAX_ROWS_IN_MESSAGE = 8  # most rows in a message


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut(Frozen):
    """Leave-one-out log densities of the rows of a fit, and how reliable they are.

    EP has them for free: it removes the site of a row and leaves the sites of all others as they are. A refit without
    the row would change these, too, the more the larger the influence of the row.

    Parameters
    ----------
    log_density : ndarray (N,)
        log p(y_i | the other rows).
    influence : ndarray (N,) or None
        How far the posterior moves without the site of a row: KL(posterior without it || posterior with it), in nats.
        None where it is not known: with approximation="diagonal", and from files of earlier versions.
    doubtful : ndarray of bool (N,) or None
        Rows whose influence is above 0.5 nats, in a fit in which others react to that: times the effective number of
        parameters per row it is above 0.02. With Gaussian noise none, as there a refit gives the same. None where the
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
        return sum_weighted(self.log_density, self.weights)

    @property
    def standard_error(self) -> FloatOrArray:
        """Standard error of `sum`, if rows are independent: the sd of `log_density` times the root of N.

        With weights the sd and N are those of the rows written out.
        """
        return find_error_of_sum(self.log_density, self.weights)

    def to_frame(self) -> Any:
        """Return a pandas data frame with the rows: log density, influence, doubtful, and weight, as far as known.

        Returns
        -------
        pandas.DataFrame
            Indexed by the numbers of the rows, from 0.
        """
        values_by_name = {"log_density": self.log_density, "influence": self.influence, "doubtful": self.doubtful}
        values_by_name["weight"] = self.weights
        columns = {name: value for name, value in values_by_name.items() if value is not None}
        return Table("", range(len(self.log_density)), columns).to_frame()

    def __repr__(self) -> str:
        doubtful = self.doubtful
        doubtful_rows = "not known" if doubtful is None else _format_rows(doubtful) or "none"
        n, width = self.log_density.shape[-1], {"precision": 2, "floatmode": "fixed", "threshold": 8}
        weights = "" if self.weights is None else f" of weight {np.sum(self.weights):g} in all"
        return format_table(
            f"LeaveOneOut: {n} row{'s' if n != 1 else ''}{weights}",
            [
                ("sum", np.array2string(np.asarray(self.sum), **width)),
                ("standard error", np.array2string(np.asarray(self.standard_error), **width)),
                ("doubtful", doubtful_rows),
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
        """Return how well each row is predicted from all others: `loo_log_density`, its sum, and doubtful rows.

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
        record = make_record(self)
        warn_of_doubtful_rows(record)
        return record


def make_record(posterior):
    """Return the `LeaveOneOut` of a posterior."""
    log_density, (influence, parameters) = posterior.loo_log_density, posterior._influences()
    weights = posterior._row_weights
    if parameters is None:
        return LeaveOneOut(log_density, influence, np.zeros(log_density.shape, dtype=bool), weights)
    if influence is None:
        return LeaveOneOut(log_density, None, None, weights)
    n = log_density.shape[-1] if weights is None else np.sum(weights)
    reaction = influence * np.expand_dims(parameters, -1) / n
    return LeaveOneOut(log_density, influence, (influence > DOUBTFUL_NATS) & (reaction > DOUBTFUL_REACTION), weights)


def warn_of_doubtful_rows(record, whose=""):
    """Warn if rows of a record are doubtful; `whose` names the posterior in the message."""
    if record.doubtful is not None and record.doubtful.any():
        count = int(record.doubtful.sum())
        warn(
            f"leave-one-out{whose} is doubtful in {count} row{'s' if count > 1 else ''} "
            f"({_format_rows(record.doubtful)}; from 0): the posterior moves by more than {DOUBTFUL_NATS} nats without "
            "such a row, so only a fit without it is sure",
            NumericalWarning,
        )


def sum_weighted(values, weights):
    """Return the sum along the last axis, each value so many times; those of weight 0 may be infinite."""
    if weights is not None:
        values = weights * np.where(weights > 0, values, 0.0)
    return np.sum(values, axis=-1)[()]


def find_error_of_sum(values, weights=None):
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


def _format_rows(chosen):
    """The numbers of the rows that are chosen, from 0, the first of them."""
    labels = [", ".join(map(str, index)) if len(index) > 1 else str(index[0]) for index in np.argwhere(chosen).tolist()]
    message = "; ".join(labels[:MAX_ROWS_IN_MESSAGE]) if chosen.ndim > 1 else ", ".join(labels[:MAX_ROWS_IN_MESSAGE])
    return message + (", ..." if len(labels) > MAX_ROWS_IN_MESSAGE else "")
