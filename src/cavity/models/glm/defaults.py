"""What the settings that a GLM leaves to the data become for some rows: prior, intercept, scaled columns."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import SettingsWarning, warn, within_range
from cavity.base.frozen import unchecked
from cavity.base.labels import is_ordered
from cavity.base.rows import Rows
from cavity.blocks.reading import is_stored
from cavity.models.defaults import location_and_spread, prior_scale
from cavity.models.glm.design import column_scales, constant_columns
from cavity.models.glm.problem import Prior
from cavity.models.glm.weights import prepared_rows

WIDER = 100.0  # prior variance of an intercept over that of the effect of a column


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """A model whose settings are numbers, and rows as its weights take them."""

    model: object  # the GLM
    rows: Rows
    kept: dict  # centre, spread, intercept and chosen: what a posterior keeps of it


def resolved(model, rows):
    """Return what the settings of a model with a likelihood are for checked rows, as `Resolved`.

    Raises
    ------
    ValueError, TypeError
        For settings that cannot be had together, or not with these rows.

    Warns
    -----
    SettingsWarning
        If there is no intercept and nobody said that there should be none; if there are two.
    """
    given = {"prior_variance": model.prior_variance is not None, "intercept": model.intercept is not True}
    added = model.intercept is not None and model.intercept is not False
    constant = _checked_intercept(model, rows, added)
    columns = Columns.of(model, rows, added)
    mean, variance = model.prior_mean, model.prior_variance
    if added or variance is None:
        location, spread = location_and_spread(model.likelihood, rows)
        size = prior_scale(model.likelihood) * spread
    if variance is None:
        variance = 1.0 if model.approximation == "diagonal" else _scaled_to(columns, constant, location, size)
    if added:
        wide = None if model.intercept is True else model.intercept
        mean, variance = _with_intercept(Prior.of(mean, variance, rows.X.shape[1]), columns, location, size, wide)
    if added or columns.scaled:
        rows = replace(rows, X=prepared_rows(rows.X, columns.centre, columns.spread, added))
    if columns.scaled:
        ends = [rows.X.low, rows.X.high] if is_stored(rows.X) else rows.X
        within_range(ends, "X: columns divided by their spread")
    kept = {"centre": columns.centre, "spread": columns.spread, "intercept": added}
    kept["chosen"] = tuple(name for name, known in given.items() if not known)
    if variance is not model.prior_variance:
        model = replace(model, prior_mean=mean, prior_variance=variance)
    if model.intercept is not False or model.standardize:
        model = unchecked(model, intercept=False, standardize=False)
    return Resolved(model, rows, kept)


def _checked_intercept(model, rows, added):
    """Return which columns of X are constant, a mask; warn where there is no intercept, or one too many."""
    if added and _learns_level(model.likelihood):
        raise arrays.wrong(
            "intercept", f"must be None or False with open thresholds, which stand for it, got {model.intercept!r}"
        )
    constant = constant_columns(rows.X, rows.weights)
    if model.intercept is None and not (is_ordered(model.likelihood) or constant.any()):
        warn(
            "X has no constant column, so there is no intercept: say intercept=True for one, intercept=False for none",
            SettingsWarning,
        )
    if added and constant.any():
        warn(
            f"X has a constant column and intercept={model.intercept!r} adds another one: only the prior tells them "
            "apart; leave one of them out",
            SettingsWarning,
        )
    return constant


def _learns_level(likelihood):
    """Whether open thresholds are there to say where f is."""
    return is_ordered(likelihood) and likelihood.n_classes is None


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What is done to the columns of X, and their means and scales (`column_scales`) after it."""

    mean: np.ndarray | None  # (D,); None for sparse X, and where nobody asks
    scale: np.ndarray | None
    centre: np.ndarray | None = None
    spread: np.ndarray | None = None

    @classmethod
    def of(cls, model, rows, added):
        """Return them for a model; columns are centred where an intercept takes up what that changes.

        So do open thresholds: they count as known once they are learnt, and would say where f is at x = 0.
        """
        learns_level = _learns_level(model.likelihood) and model.approximation == "full"
        if hasattr(rows.X, "tocsr"):
            if model.standardize:
                raise TypeError("standardize=True needs an array, sparse X would fill up: scale its columns yourself")
            return cls(None, None)
        if not (model.standardize or model.prior_variance is None or model.intercept is True or learns_level):
            return cls(None, None)
        mean, sd, scale = column_scales(rows.X, rows.weights)
        if not (model.standardize or learns_level):
            return cls(mean, scale)
        varies = sd > 0
        spread = np.where(varies & model.standardize, sd, 1.0)
        centre = np.where(varies & (added or learns_level), mean, 0.0)
        return cls((mean - centre) / spread, scale / spread, centre, spread)

    @property
    def scaled(self):
        """Whether something is done to them."""
        return self.spread is not None


def _scaled_to(columns, constant, location, size):
    """Return prior variances of the weights of columns; that of a constant one is an intercept, wherever y is."""
    with np.errstate(over="ignore"):
        variance = (size / np.where(columns.scale > 0, columns.scale, 1.0)) ** 2
        if constant.any():
            reach = WIDER * size**2 + location**2 + np.sum((variance * columns.mean**2)[~constant])
            variance[constant] = reach / columns.mean[constant] ** 2
    return within_range(variance, "prior_variance=None: variances in the scale of the columns")


def _with_intercept(prior, columns, location, size, wide):
    """Return prior mean and variance with those of an intercept before them.

    Its mean is where the observations are. Its variance, if that is not given, is wide: f may be anywhere where columns
    are at their means, which need not be 0.
    """
    at, variance = columns.mean, np.array(prior.variance)
    if wide is None:
        wide = WIDER * size**2
        if at is not None:
            wide += float(at @ (variance @ at if variance.ndim == 2 else variance * at) + (at @ prior.mean) ** 2)
    mean = np.append(location, prior.mean)
    if variance.ndim < 2:
        return mean, np.append(wide, np.broadcast_to(variance, prior.mean.shape))
    return mean, np.pad(variance, ((1, 0), (1, 0))) + np.diag(np.append(wide, np.zeros(len(variance))))
