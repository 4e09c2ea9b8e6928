"""Default settings of a GLM for the rows of a fit: prior, intercept, scaled columns."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import SettingsWarning, check_within_range, warn
from cavity.base.frames import describe_column
from cavity.base.labels import is_ordered
from cavity.base.public_objects import replace_unchecked
from cavity.base.rows import Rows
from cavity.models.defaults import find_location_and_spread, find_prior_scale
from cavity.models.linear.prior import Prior
from cavity.sources import features
from cavity.sources.features import SPARSE_KIND, column_limits, compute_column_scales, find_constant_columns, kind_of

INTERCEPT_VARIANCE_RATIO = 100.0  # prior variance of an intercept over that of the effect of a column


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedModel:
    """A model whose settings are numbers, and its scaled rows."""

    model: object  # the GLM
    rows: Rows
    fields: dict  # fields of the posterior: centre, spread, intercept and chosen

    def described(self, observations):
        """Return the fields of a posterior about rows and settings."""
        chosen = self.fields["chosen"] + observations.chosen
        return observations.labels | {"has_offset": self.rows.has_offset} | self.fields | {"chosen": chosen or None}


def resolve_defaults(model, rows, names=None):
    """Return a model with a likelihood and its checked rows as `ResolvedModel`, defaults filled in.

    `names` are those of the columns, for warnings.

    Raises
    ------
    ValueError, TypeError
        For settings that cannot be had together, or not with these rows.

    Warns
    -----
    SettingsWarning
        If there is no intercept and the settings do not say so; if there are two.
    """
    is_set = {"prior_variance": model.prior_variance is not None, "intercept": model.intercept is not True}
    added = has_added_intercept(model.intercept)
    constant = _check_intercept_and_rows(model, rows, added, names)
    columns = ColumnScales.of(model, rows, added)
    mean, variance = choose_prior(model, rows, columns, constant, added)
    if added or columns.scaled:
        rows = replace(rows, X=features.prepare_rows(rows.X, columns.centre, columns.spread, added))
    if columns.scaled:
        check_within_range(column_limits(rows.X), "X: columns divided by their spread")
    fields = {"centre": columns.centre, "spread": columns.spread, "intercept": added}
    fields["chosen"] = tuple(name for name, was_set in is_set.items() if not was_set)
    if variance is not model.prior_variance:
        model = replace(model, prior_mean=mean, prior_variance=variance)
    model = replace_unchecked(model, intercept=False, **make_scaling_settings(columns.centre, columns.spread, added))
    return ResolvedModel(model, rows, fields)


def choose_prior(model, rows, columns, constant, added):
    """Return the mean and the variance of the prior of the weights, with defaults for rows and an added intercept.

    Parameters
    ----------
    model : GLM
        The settings, with a likelihood.
    rows : Rows
        The observations.
    columns : ColumnScales
        Those of X.
    constant : ndarray (D,) of bool
        Which columns of X are constant.
    added : bool
        Whether a column of ones is put before X.
    """
    mean, variance = model.prior_mean, model.prior_variance
    if added or variance is None:
        location, spread = find_location_and_spread(model.likelihood, rows)
        size = find_prior_scale(model.likelihood) * spread
    if variance is None:
        variance = 1.0 if model.approximation == "diagonal" else scale_prior_variance(columns, constant, location, size)
    if added:
        wide = None if model.intercept is True else model.intercept
        mean, variance = add_intercept(Prior.of(mean, variance, rows.X.shape[1]), columns, location, size, wide)
    return mean, variance


def make_scaling_settings(centre, spread, added):
    """Return the settings that scale columns as the fit did.

    Where an intercept was added there are none: the model is that of scaled rows, whose first column are the ones.
    """
    if added or centre is None:
        return {"standardize": False, "centre": None}
    return {"standardize": bool(np.any(spread != 1.0)), "centre": centre}


def _check_intercept_and_rows(model, rows, added, names):
    """Return which columns of X are constant, a mask; warn where there is no intercept, or one too many."""
    if added and learns_level(model.likelihood):
        raise arrays.error_of(
            "intercept", f"must be None or False with open thresholds, which stand for it, got {model.intercept!r}"
        )
    constant = find_constant_columns(rows.X, rows.weights)
    warn_of_intercepts(model.intercept, constant, model.likelihood, names)
    return constant


def warn_of_intercepts(intercept, constant, likelihood=None, names=None):
    """Warn if there is no intercept, or more than one; `constant` is a mask of the columns of X."""
    has_thresholds = likelihood is not None and is_ordered(likelihood)
    if intercept is None and not (has_thresholds or constant.any()):
        warn(
            "X has no constant column, so there is no intercept: say intercept=True for one, intercept=False for none",
            SettingsWarning,
        )
    learns = has_thresholds and learns_level(likelihood)
    another = "open thresholds stand for the intercept" if learns else f"intercept={intercept!r} adds another one"
    if constant.any() and (learns or has_added_intercept(intercept)):
        column = describe_column(int(np.argmax(constant)), names)
        warn(
            f"{column} of X is constant and {another}: only the prior distinguishes them; leave one of them out",
            SettingsWarning,
        )


def check_intercept(intercept):
    """Return the setting `intercept` checked: None, True, False, or a prior variance."""
    if isinstance(intercept, bool | np.bool_):
        return bool(intercept)
    if isinstance(intercept, str):
        raise arrays.error_of("intercept", f"must be True, False or a prior variance, got {intercept!r}", TypeError)
    return None if intercept is None else arrays.check_number(intercept, "intercept", low=0)


def has_added_intercept(intercept):
    """Return whether the checked setting `intercept` adds a column of ones."""
    return intercept is not None and intercept is not False


def learns_level(likelihood):
    """Whether open thresholds determine the level of f."""
    return is_ordered(likelihood) and likelihood.n_classes is None


@dataclass(frozen=True, slots=True, eq=False)
class ColumnScales:
    """Centre and spread of the columns of X, and their means and scales (`column_scales`) after scaling."""

    mean: np.ndarray | None  # (D,); None for sparse X, and where no default needs them
    scale: np.ndarray | None
    centre: np.ndarray | None = None
    spread: np.ndarray | None = None

    @classmethod
    def of(cls, model, rows, added):
        """Return the scales for a model. Columns are centred only if an intercept absorbs the shift.

        Open thresholds centre columns, too: their fitted values would be about f at x = 0.
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
            centre = arrays.check_vector(model.centre, "centre", len(sd))
        return cls((mean - centre) / spread, scale / spread, centre, spread)

    @property
    def scaled(self):
        """Whether columns are centred or divided."""
        return self.spread is not None


def scale_prior_variance(columns, constant, location, size):
    """Return prior variances of the weights of columns; a constant column is a wide intercept.

    Location and size may be (B, 1); the variances are (B, D) then.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        variance = (size / np.where(columns.scale > 0, columns.scale, 1.0)) ** 2
        if constant.any():
            others = np.sum((variance * columns.mean**2)[..., ~constant], axis=-1, keepdims=True)
            reach = INTERCEPT_VARIANCE_RATIO * size**2 + location**2 + others
            variance[..., constant] = reach / columns.mean[constant] ** 2
    if not np.all((variance > 0) & np.isfinite(variance)):
        scale = np.where(columns.scale > 0, columns.scale, np.where(constant, np.abs(columns.mean), 1.0))
        column = int(np.argmax(np.abs(np.log(scale))))
        squares = f"squares of y over column {column}, whose scale is {scale[column]:.3g},"
        raise OverflowError(f"X: {squares} leave the range of float64; rescale the column, or give a prior_variance")
    return variance


def add_intercept(prior, columns, location, size, wide):
    """Return prior mean and variance with those of an intercept before them.

    Its mean is the location of the observations. Its default variance is wide, and allows for the means of the columns.
    """
    at, variance = columns.mean, np.array(prior.variance)
    if wide is None:
        wide = INTERCEPT_VARIANCE_RATIO * size**2
        if at is not None:
            wide += float(at @ (variance @ at if variance.ndim == 2 else variance * at) + (at @ prior.mean) ** 2)
    mean = np.append(location, prior.mean)
    if variance.ndim < 2:
        return mean, np.append(wide, np.broadcast_to(variance, prior.mean.shape))
    return mean, np.pad(variance, ((1, 0), (1, 0))) + np.diag(np.append(wide, np.zeros(len(variance))))
