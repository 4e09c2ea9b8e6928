"""Comparison of posteriors of the same data: log evidences, and leave-one-out predictions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.results import Posterior, evidence_of, get_named_classes
from cavity.base.summary import Table
from cavity.likelihoods import Gaussian
from cavity.models.formula.evaluation import INTERCEPT_NAME
from cavity.models.leave_one_out import LeavesOneOut, find_error_of_sum, make_record, warn_of_doubtful_rows

SEVERAL_KINDS_COLUMN = "log_evidence or bound"
EQUAL_VARIANCES = 1e-6  # relative difference of variances of priors that count as one
RANK_COLUMNS = ("rank", "loo_rank")


def compare(posteriors: Mapping[str, Any]) -> Table:
    """Compare models of the same rows by log evidence, and by how well they predict each row from the others.

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
        - ``correction``, where a posterior has one: what is added to the log evidence of EP by higher cumulants, see
          `MixedGLM`.
        - ``loo``, the sum of the leave-one-out log densities, its standard error ``loo_se``, the difference to the best
          sum, ``loo_difference``, the standard error of that, ``difference_se``, from the differences row by row, and
          ``loo_rank``. Blank where a fit has none, as after `update`, ADF, or coordinate ascent. A row of sample weight
          w counts as w copies. ``difference_se`` is blank, too, where rows do not correspond, see the warnings.

    Raises
    ------
    TypeError, ValueError
        If these are no posteriors, have nothing to compare, are of different numbers of rows, or of different
        observations, like y and log(y), whose densities cannot be compared. Observations are compared by digests that
        posteriors keep, in single precision (numbers above 3e38 or below 1e-45 in size are not distinguished), and rows
        of weight 0 count; labels by their values, and -1 and 1, 0 and 1, and truth values count as the same.
        Posteriors without a digest, as those in files of earlier versions, are taken to be of the same observations.

    Warns
    -----
    NumericalWarning
        If bounds are compared with log evidences: a bound is smaller by an unknown amount. If models with structured
        terms have fixed effects of one name with different prior variances, on which such evidences depend. If
        evidences after ADF or `update`, which depend on the order of the rows, are compared with those of all rows at
        once. If observations are the same but in another order, or with other sample weights. If leave-one-out
        densities are doubtful, see `LeaveOneOut`.

    Notes
    -----
    If z = g(y), the density of y is that of z times |dg/dy|: the log evidence of a model of z becomes one of y, and may
    be compared with others, by adding the sum of log|dg/dy| over the rows, for z = log(y) minus the sum of log(y).

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
    names = _check_posteriors(posteriors)
    kinds, worth = zip(*(evidence_of(posterior) for posterior in posteriors.values()), strict=True)
    _check_integration(posteriors)
    orders = _check_observations(posteriors)
    _warn_of_other_priors(posteriors)
    _warn_of_updates(posteriors)
    worth = np.array([np.nan if value is None else value for value in worth])
    records, notes = [], []
    for name, posterior in posteriors.items():
        record, note = _find_leave_one_out(posterior)
        records.append(record)
        notes += [f"{name} has no leave-one-out: {note}"] if note else []
        if record is not None:
            warn_of_doubtful_rows(record, f" of {name!r}")
    corrections = [getattr(posterior, "evidence_correction", None) for posterior in posteriors.values()]
    columns = _make_evidence_columns(kinds, worth)
    if any(value is not None for value in corrections):
        columns["correction"] = [np.nan if value is None else value for value in corrections]
    columns |= _make_loo_columns(names, records, orders)
    formats = {column: 0 if column in RANK_COLUMNS else 2 for column in columns}
    order = np.argsort(-worth, kind="stable")  # those that are not known last
    columns = {name: [values[i] for i in order] for name, values in columns.items()}
    title = f"{len(names)} models of {next(iter(posteriors.values())).n_samples:g} rows"
    return Table(title, tuple(names[i] for i in order), columns, formats, tuple(notes))


def _check_posteriors(posteriors):
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


def _check_integration(posteriors):
    """Raise ValueError if evidences integrated over hyperparameters stand beside those at their maximum."""
    integrated = [
        name for name, posterior in posteriors.items() if getattr(getattr(posterior, "integration", None), "names", ())
    ]
    names = [name for name, posterior in posteriors.items() if getattr(posterior, "hyperparameters", None) is not None]
    other = next((name for name in names if name not in integrated), None)
    if integrated and other is not None:
        raise ValueError(
            f"posteriors must all be integrated over hyperparameters, or none: {integrated[0]!r} is, and {other!r} has "
            "the evidence at the maximum; fit both with one setting of integrate"
        )


def _warn_of_other_priors(posteriors):
    """Warn where models with structured terms have fixed effects of one name with priors of different variances.

    Evidences of such terms compare under proper and equal priors of what their null spaces are among.
    """
    first, variance_of = {}, {}
    for name, posterior in posteriors.items():
        if not getattr(posterior, "structured_terms", ()):
            continue
        variances = np.broadcast_to(posterior.model.prior_variance, posterior.mean.shape)
        for coefficient, variance in zip(posterior.coefficient_names, variances, strict=True):
            if coefficient == INTERCEPT_NAME:  # whose default prior depends on the other columns
                continue
            key = type(posterior.model.likelihood), coefficient
            other = variance_of.setdefault(key, variance)
            if abs(variance - other) > EQUAL_VARIANCES * other:
                warn(
                    f"{coefficient!r} has prior variance {other:.4g} in {first[key]!r} and {variance:.4g} in {name!r}: "
                    "part of the difference of their evidences is that of the priors; give prior_variance",
                    NumericalWarning,
                )
                return
            first.setdefault(key, name)


def _check_observations(posteriors):
    """Return ordered digests of the observations, None where not known, if they are the same but for the order."""
    digests = {name: getattr(posterior, "observation_digest", None) for name, posterior in posteriors.items()}
    worth = {name: evidence_of(posterior)[1] for name, posterior in posteriors.items()}
    comparable = {name: digest for name, digest in digests.items() if digest and worth[name] is not None}
    labels = {name: tuple(map(str, get_named_classes(posteriors[name]))) for name in comparable}
    unordered = {name: digest.unordered for name, digest in comparable.items()}
    for group in (unordered, {name: value for name, value in labels.items() if value}):
        names = [name for name in group if group[name] != next(iter(group.values()))]
        if names:
            raise ValueError(
                f"posteriors must be of the same observations, but {names[0]!r} has others than {next(iter(group))!r}: "
                "densities of different quantities cannot be compared. If one is of y and the other of g(y), fit both "
                "to y, or add the log Jacobian, the sum of log|dg/dy| over the rows, to the log evidence of that of "
                "g(y). Labels must be the same in all fits; the elbo of a mixture after update is that of the new rows"
            )
    first = next(iter(comparable), None)
    moved = [name for name in comparable if comparable[name].ordered != comparable[first].ordered]
    if moved:
        warn(
            f"{', '.join(map(repr, moved))} has the observations of {first!r} in another order: rows do not correspond"
            ", so there is no difference_se; if y was sorted but X was not, nothing can be compared",
            NumericalWarning,
        )
    return [comparable[name].ordered if name in comparable else None for name in posteriors]


def _warn_of_updates(posteriors):
    """Warn if evidences of rows taken in one after the other stand beside those of all rows at once."""
    later = [name for name, posterior in posteriors.items() if _depends_on_order(posterior)]
    if 0 < len(later) < len(posteriors):
        warn(
            f"{', '.join(map(repr, later))} took in rows one after the other, by ADF or update: such an evidence "
            "depends on their order, by tens of nats where coefficients drift: do not compare it with that of all rows",
            NumericalWarning,
        )


def _depends_on_order(posterior):
    """Whether rows were taken in one by one, or batch by batch, and not exactly."""
    batches = getattr(posterior, "n_updates", 1) > 1 or (posterior.kind == "mixed" and posterior._tau is None)
    exact = isinstance(getattr(posterior.model, "likelihood", None), Gaussian)
    return not exact and (batches or getattr(posterior, "method", "ep") == "adf")


def _find_leave_one_out(posterior):
    """Return the leave-one-out record of a posterior, or None and why there is none."""
    if not isinstance(posterior, LeavesOneOut):
        return None, ""
    try:
        record = make_record(posterior)
    except ValueError as error:
        return None, str(error)
    n = len(record.log_density)
    return (record, "") if n == posterior.n_samples else (None, f"it is that of the last {n} rows only")


def _make_evidence_columns(kinds, worth):
    """Return the columns of log evidences or bounds."""
    if len(set(kinds)) == 1:
        return {kinds[0]: worth, "difference": worth - _find_best(worth), "rank": _rank(worth)}
    warn(
        f"{' and '.join(sorted(set(kinds)))} are compared: a bound is smaller than the log evidence it bounds, so that "
        "a model may be better than its bound",
        NumericalWarning,
    )
    return {SEVERAL_KINDS_COLUMN: worth, "kind": kinds, "difference": worth - _find_best(worth), "rank": _rank(worth)}


def _make_loo_columns(names, records, orders):
    """Return the columns of leave-one-out sums, none if nothing is known; `orders` are of the observations."""
    if all(record is None for record in records):
        return {}
    sums = np.array([np.nan if record is None else record.sum for record in records])
    first = int(np.nanargmax(sums))
    best, reweighted = records[first], []
    errors, differences_of_sums, difference_errors = (np.full(len(records), np.nan) for _ in range(3))
    for i, record in enumerate(records):
        if record is not None:
            errors[i] = record.standard_error
            differences_of_sums[i] = record.sum - best.sum if i != first else 0.0
            if len({orders[i], orders[first]} - {None}) > 1:
                continue
            if not np.array_equal(*(1.0 if item.weights is None else item.weights for item in (record, best))):
                reweighted.append(names[i])
            else:
                differences = record.log_density - best.log_density
                difference_errors[i] = find_error_of_sum(differences, best.weights) if i != first else 0.0
    if reweighted:
        warn(
            f"{', '.join(map(repr, reweighted))} have other sample weights than {names[first]!r}: not the same data",
            NumericalWarning,
        )
    columns = {"loo": sums, "loo_se": errors, "loo_difference": differences_of_sums}
    return columns | {"difference_se": difference_errors, "loo_rank": _rank(sums)}


def _find_best(values):
    """The largest of the values that are known."""
    return np.nanmax(values) if np.isfinite(values).any() else np.nan


def _rank(values):
    """Ranks from 1 on, equal values the same one; nan where values are not known."""
    ranks = 1 + np.sum(values > values[:, None], axis=1)
    return np.where(np.isnan(values), np.nan, ranks) if np.isnan(values).any() else ranks
