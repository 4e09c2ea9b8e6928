"""What the settings that a GLM leaves to the data become for some rows: prior, intercept, scaled columns."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import SettingsWarning, warn, within_range
from cavity.base.frozen import unchecked
from cavity.base.labels import is_ordered
from cavity.base.rows import Rows
from cavity.models.defaults import location_and_spread, prior_scale
from cavity.models.linear.prior import Prior
from cavity.sources.features import (
    SPARSE_KIND,
    column_limits,
    compute_column_scales,
    find_constant_columns,
    kind_of,
    prepare_rows,
)

WIDER = 100.0  # prior variance of an intercept over that of the effect of a column


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """A model whose settings are numbers, and rows as its weights take them."""

    model: object  # the GLM
    rows: Rows
    kept: dict  # centre, spread, intercept and chosen: what a posterior keeps of it

    def described(self, observations):
        """Return the fields of a posterior that say what its rows and settings were."""
        chosen = self.kept["chosen"] + observations.chosen
        return observations.labels | {"has_offset": self.rows.has_offset} | self.kept | {"chosen": chosen or None}


def resolve_defaults(model, rows):
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
    added = adds_intercept(model.intercept)
    constant = _checked_intercept(model, rows, added)
    columns = Columns.of(model, rows, added)
    mean, variance = model.prior_mean, model.prior_variance
    if added or variance is None:
        location, spread = location_and_spread(model.likelihood, rows)
        size = prior_scale(model.likelihood) * spread
    if variance is None:
        variance = 1.0 if model.approximation == "diagonal" else scaled_to(columns, constant, location, size)
    if added:
        wide = None if model.intercept is True else model.intercept
        mean, variance = with_intercept(Prior.of(mean, variance, rows.X.shape[1]), columns, location, size, wide)
    if added or columns.scaled:
        rows = replace(rows, X=prepare_rows(rows.X, columns.centre, columns.spread, added))
    if columns.scaled:
        within_range(column_limits(rows.X), "X: columns divided by their spread")
    kept = {"centre": columns.centre, "spread": columns.spread, "intercept": added}
    kept["chosen"] = tuple(name for name, known in given.items() if not known)
    if variance is not model.prior_variance:
        model = replace(model, prior_mean=mean, prior_variance=variance)
    model = unchecked(model, intercept=False, **scaling_settings(columns.centre, columns.spread, added))
    return Resolved(model, rows, kept)


def scaling_settings(centre, spread, added):
    """Return the settings of a model in numbers that does to columns what was done to them, for rows as in the fit.

    Where an intercept was added the model is that of prepared rows, whose first column are the ones.
    """
    if added or centre is None:
        return {"standardize": False, "centre": None}
    return {"standardize": bool(np.any(spread != 1.0)), "centre": centre}


def _checked_intercept(model, rows, added):
    """Return which columns of X are constant, a mask; warn where there is no intercept, or one too many."""
    if added and learns_level(model.likelihood):
        raise arrays.wrong(
            "intercept", f"must be None or False with open thresholds, which stand for it, got {model.intercept!r}"
        )
    constant = find_constant_columns(rows.X, rows.weights)
    warn_of_intercepts(model.intercept, constant, model.likelihood)
    return constant


def warn_of_intercepts(intercept, constant, likelihood=None):
    """Warn where nothing stands for an intercept, or two things do; `constant` is a mask of the columns of X."""
    has_thresholds = likelihood is not None and is_ordered(likelihood)
    if intercept is None and not (has_thresholds or constant.any()):
        warn(
            "X has no constant column, so there is no intercept: say intercept=True for one, intercept=False for none",
            SettingsWarning,
        )
    learns = has_thresholds and learns_level(likelihood)
    another = "open thresholds stand for the intercept" if learns else f"intercept={intercept!r} adds another one"
    if constant.any() and (learns or adds_intercept(intercept)):
        warn(
            f"X has a constant column and {another}: only the prior tells them apart; leave one of them out",
            SettingsWarning,
        )


def checked_intercept(intercept):
    """Return the setting of that name: None, True, False, or a prior variance."""
    if isinstance(intercept, bool | np.bool_):
        return bool(intercept)
    if isinstance(intercept, str):
        raise arrays.wrong("intercept", f"must be True, False or a prior variance, got {intercept!r}", TypeError)
    return None if intercept is None else arrays.number(intercept, "intercept", low=0)


def adds_intercept(intercept):
    """Return whether the setting of that name, once checked, asks for a column of ones."""
    return intercept is not None and intercept is not False


def learns_level(likelihood):
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
        centres = learns_level(model.likelihood) and model.approximation == "full"
        scaled = model.standardize or model.centre is not None
        if kind_of(rows.X) == SPARSE_KIND:
            if scaled:
                name = "standardize=True" if model.centre is None else "centre"
                raise TypeError(f"{name} needs an array, sparse X would fill up: scale its columns yourself")
            return cls(None, None)
        if not (scaled or model.prior_variance is None or model.intercept is True or centres):
            return cls(None, None)
        mean, sd, scale = compute_column_scales(rows.X, rows.weights)
        if not (scaled or centres):
            return cls(mean, scale)
        varies = sd > 0
        spread, centre = np.where(varies & model.standardize, sd, 1.0), np.where(varies & (added or centres), mean, 0.0)
        if model.centre is not None:
            centre = arrays.vector(model.centre, "centre", len(sd))
        return cls((mean - centre) / spread, scale / spread, centre, spread)

    @property
    def scaled(self):
        """Whether something is done to them."""
        return self.spread is not None


def scaled_to(columns, constant, location, size):
    """Return prior variances of the weights of columns; that of a constant one is an intercept, wherever y is."""
    with np.errstate(over="ignore"):
        variance = (size / np.where(columns.scale > 0, columns.scale, 1.0)) ** 2
        if constant.any():
            reach = WIDER * size**2 + location**2 + np.sum((variance * columns.mean**2)[~constant])
            variance[constant] = reach / columns.mean[constant] ** 2
    return within_range(variance, "prior_variance=None: variances in the scale of the columns")


def with_intercept(prior, columns, location, size, wide):
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
