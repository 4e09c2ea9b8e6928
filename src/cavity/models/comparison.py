"""Posteriors of the same data beside each other: what the models are worth, and how well they predict."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.results import Posterior, evidence_of
from cavity.base.summary import Table
from cavity.models.leave_one_out import LeavesOneOut, record_of, standard_error, warn_of

SEVERAL = "log_evidence or bound"
RANKS = ("rank", "loo_rank")


def compare(posteriors: Mapping[str, Any]) -> Table:
    """Compare models by what their fits of the same rows are worth, and by how they predict each row from the others.

    Parameters
    ----------
    posteriors : dict
        Posteriors by the names that the models shall have in the table, all of the same observations, in one order.

    Returns
    -------
    Table
        A row for each model, the best one first:

        - ``log_evidence``, or ``elbo`` or ``log_bound`` where that is what all models have; with several of these the
          column ``kind`` says which. ``difference`` to the best in nats, and the ``rank``. A difference d is odds of
          exp(d) between two models that were equally credible before.
        - ``loo``, the sum of the leave-one-out log densities, its standard error ``loo_se``, the difference to the best
          sum, ``loo_difference``, the standard error of that, ``difference_se``, from the differences row by row, and
          ``loo_rank``. Blank where a fit has none, as after `update`, ADF, or coordinate ascent.

    Raises
    ------
    TypeError, ValueError
        If these are no posteriors, have nothing to compare, or are of different numbers of rows.

    Warns
    -----
    NumericalWarning
        If bounds are compared with log evidences: a bound is smaller than what it bounds, nobody knows by how much. If
        leave-one-out densities are doubtful, see `LeaveOneOut`.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> from cavity import likelihoods
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.ones(60), rng.normal(size=60)])
    >>> y = X @ [0.5, 1.0] + rng.standard_t(2, size=60)
    >>> fits = {}
    >>> for name, likelihood in {"normal": likelihoods.Gaussian(4.0), "robust": likelihoods.StudentT(2.0)}.items():
    ...     fits[name] = cavity.GLM(likelihood, prior_variance=10.0).fit(X, y)
    >>> cavity.compare(fits)
    2 models of 60 rows
              log_evidence  difference  rank      loo  loo_se  loo_difference  difference_se  loo_rank
      robust       -122.09        0.00     1  -117.82    9.59            0.00           0.00         1
      normal       -132.94      -10.85     2  -130.18   10.95          -12.36           6.13         2
    """
    names = _checked(posteriors)
    kinds, worth = zip(*(evidence_of(posterior) for posterior in posteriors.values()), strict=True)
    worth = np.array([np.nan if each is None else each for each in worth])
    records, notes = [], []
    for name, posterior in posteriors.items():
        record, note = _left_out(posterior)
        records.append(record)
        notes += [f"{name} has no leave-one-out: {note}"] if note else []
        if record is not None:
            warn_of(record, f" of {name!r}")
    columns = _of_worth(kinds, worth) | _of_loo(records)
    formats = {column: 0 if column in RANKS else 2 for column in columns}
    order = np.argsort(-worth, kind="stable")  # those that are not known last
    columns = {name: [values[i] for i in order] for name, values in columns.items()}
    title = f"{len(names)} models of {next(iter(posteriors.values())).n_samples:g} rows"
    return Table(title, tuple(names[i] for i in order), columns, formats, tuple(notes))


def _checked(posteriors):
    """Return the names of checked posteriors."""
    if not isinstance(posteriors, Mapping):
        raise TypeError(f"posteriors must be a dict of posteriors by names, got {type(posteriors).__name__}")
    if not posteriors:
        raise ValueError("posteriors must hold at least one, got none")
    first = None
    for name, posterior in posteriors.items():
        if not (isinstance(posterior, Posterior) and hasattr(posterior, "n_samples")):
            raise TypeError(f"posteriors[{name!r}] must be a posterior of rows, got {type(posterior).__name__}")
        if np.ndim(evidence_of(posterior)[1]):
            raise ValueError(f"posteriors[{name!r}] must be of one data set, got one of several")
        if first is None:
            first = name, posterior.n_samples
        elif posterior.n_samples != first[1]:
            raise ValueError(
                f"posteriors must be of the same rows, but {first[0]!r} has {first[1]:g} of them and "
                f"{name!r} {posterior.n_samples:g}"
            )
    return [str(name) for name in posteriors]


def _left_out(posterior):
    """Return the leave-one-out record of a posterior, or None and why there is none."""
    if not isinstance(posterior, LeavesOneOut):
        return None, ""
    try:
        record = record_of(posterior)
    except ValueError as error:
        return None, str(error)
    n = len(record.log_density)
    return (record, "") if n == posterior.n_samples else (None, f"it is that of the last {n} rows only")


def _of_worth(kinds, worth):
    """Return the columns of log evidences or bounds."""
    if len(set(kinds)) == 1:
        return {kinds[0]: worth, "difference": worth - _best(worth), "rank": _ranks(worth)}
    warn(
        f"{' and '.join(sorted(set(kinds)))} are compared: a bound is smaller than the log evidence it bounds, so that "
        "a model may be better than its bound says",
        NumericalWarning,
    )
    return {SEVERAL: worth, "kind": kinds, "difference": worth - _best(worth), "rank": _ranks(worth)}


def _of_loo(records):
    """Return the columns of leave-one-out sums, none if nothing is known."""
    if all(record is None for record in records):
        return {}
    sums = np.array([np.nan if record is None else record.sum for record in records])
    best = records[int(np.nanargmax(sums))]
    errors, apart, doubt = (np.full(len(records), np.nan) for _ in range(3))
    for i, record in enumerate(records):
        if record is not None:
            errors[i] = record.standard_error
            if record is best:
                apart[i] = doubt[i] = 0.0
            else:
                apart[i] = record.sum - best.sum
                doubt[i] = standard_error(record.log_density - best.log_density)
    columns = {"loo": sums, "loo_se": errors, "loo_difference": apart, "difference_se": doubt}
    return columns | {"loo_rank": _ranks(sums)}


def _best(values):
    """The largest of the values that are known."""
    return np.nanmax(values) if np.isfinite(values).any() else np.nan


def _ranks(values):
    """Ranks from 1 on, equal values the same one; nan where values are not known."""
    ranks = 1 + np.sum(values > values[:, None], axis=1)
    return np.where(np.isnan(values), np.nan, ranks) if np.isnan(values).any() else ranks
