"""The priors of a Gaussian mixture: what follows from the data, and all of them as a state in coordinates."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import NotPositiveDefiniteError, name_arguments
from cavity.base.frames import describe_column
from cavity.mean_field.options import LARGEST_TO_SQUARE, check_room
from cavity.models.mixture.factors import GammaFactors, WeightFactors, WishartFactors, is_full
from cavity.models.mixture.rows import compute_moments
from cavity.models.mixture.state import MixtureState

MIN_VARIANCE_SHARE = (
    1e-12  # share of a column's variance that others leave; below, sweeps can lower the ELBO by rounding
)
DEFAULT_PRIOR_RULE = "covariance_prior defaults to the covariance of X"


def fill_priors(model, data, threads):
    """Return the model with the priors that depend on the data filled in."""
    k, dim = model.n_components, data.source.n_features
    check_room(k, dim)
    if is_full(model.covariance):
        arrays.allocate_matrix(
            ((1 if model.covariance == "tied" else k) * dim, dim), "the covariances of the components"
        )
    changes = {}
    if model.degrees_of_freedom_prior is None:
        changes["degrees_of_freedom_prior"] = float(dim)
    if model.mean_prior is None or model.covariance_prior is None:
        mean, square = compute_moments(data, threads, is_full(model.covariance))
    if model.mean_prior is None:
        changes["mean_prior"] = mean
    if model.covariance_prior is None:
        square = np.mean(square) if model.covariance == "spherical" else square
        changes["covariance_prior"] = _check_default_covariance(square, data.source.names)
    return replace(model, **changes) if changes else model


def build_prior_state(model, data):
    """Return the priors of a model with defaults from the data as a state in the frame of the data."""
    k, dim = model.n_components, data.source.n_features
    mean = _check_width(model.mean_prior, "mean_prior", dim)
    mean = scale_means(np.array(np.broadcast_to(mean, (k, dim))), "mean_prior", data.scaling)
    beta = np.array(np.broadcast_to(model.mean_precision_prior, k), dtype=float)[:, None]
    full = is_full(model.covariance)
    factors = (_build_wishart_factors if full else _build_gamma_factors)(model, mean, beta, data.scaling)
    if data.missing:
        factors = factors.widen()
    return MixtureState(_build_weight_factors(model), factors, np.zeros(k))


def _build_weight_factors(model):
    k = model.n_components
    concentration = 1.0 / k if model.weight_concentration_prior is None else model.weight_concentration_prior
    if model.weights == "dirichlet":
        return WeightFactors(np.array(np.broadcast_to(concentration, k), dtype=float))
    sticks = (1.0, concentration) if np.ndim(concentration) == 0 else np.reshape(concentration, (k - 1, 2))
    return WeightFactors(np.array(np.broadcast_to(sticks, (k - 1, 2)), dtype=float))


def _build_wishart_factors(model, mean, beta, scaling):
    k, dim = mean.shape
    nu = np.asarray(model.degrees_of_freedom_prior)
    if np.any(nu <= dim - 1):
        raise arrays.error_of("degrees_of_freedom_prior", f"must be above D - 1 = {dim - 1}, got {np.min(nu):g}")
    several = 1 if model.covariance == "tied" else k
    scatter = np.array(np.broadcast_to(_check_matrices(model.covariance_prior, dim), (several, dim, dim)))
    nu = np.array(np.broadcast_to(nu, several), dtype=float)
    try:
        return WishartFactors.of(mean, beta, nu, scaling.squares(scatter))
    except NotPositiveDefiniteError:
        error = NotPositiveDefiniteError("covariance_prior must be positive definite")
        raise name_arguments(error, "covariance_prior") from None


def _build_gamma_factors(model, mean, beta, scaling):
    k, dim = mean.shape
    scatter = np.asarray(model.covariance_prior, dtype=float)
    by_column = model.covariance == "diag"
    scatter = _check_width(scatter, "covariance_prior", dim) if by_column else scatter.reshape(-1, 1)
    shape = (k, scatter.shape[-1])
    nu = np.array(np.broadcast_to(np.reshape(model.degrees_of_freedom_prior, (-1, 1)), shape), dtype=float)
    return GammaFactors(mean, beta, nu, scaling.squares(np.array(np.broadcast_to(scatter, shape))))


def _check_width(value, name, dim):
    """Return (D,) or (K, D) numbers, after a check of D."""
    array = np.asarray(value, dtype=float)
    if array.shape[-1] != dim:
        raise ValueError(f"{name} must have {dim} columns as X has, got shape {array.shape}")
    return array


def scale_means(means, name, scaling):
    """Return means (K, D) in coordinates, or say that they are too far from the data."""
    with np.errstate(over="ignore"):
        placed = scaling.rows(means)
    far = ~(np.abs(placed) <= LARGEST_TO_SQUARE)
    if far.any():
        limit = f"within {LARGEST_TO_SQUARE:g} ranges of X from its mean"
        raise ValueError(f"{name} must be {limit}, got {means[far][0]:g}")
    return placed


def _check_matrices(value, dim):
    """Return symmetric matrices (D, D) or (K, D, D), after a check."""
    array = np.asarray(value, dtype=float)
    if array.ndim == 2:
        return arrays.check_symmetric(array, "covariance_prior", dim)
    return np.stack([arrays.check_symmetric(matrix, f"covariance_prior[{k}]", dim) for k, matrix in enumerate(array)])


def _check_default_covariance(square, names):
    """Return the covariance of the data as a prior, or say why it cannot be one."""
    if not np.all(np.isfinite(square)):
        raise ValueError(
            f"{DEFAULT_PRIOR_RULE}, which needs weights of more than 1 row in each column; give covariance_prior"
        )
    flat = np.diag(square) if square.ndim == 2 else np.atleast_1d(square)
    if np.any(flat <= 0):
        column = describe_column(int(np.argmin(flat)), names)
        raise ValueError(f"{DEFAULT_PRIOR_RULE}, but {column} is constant; give covariance_prior, or drop the column")
    if square.ndim == 2 and not _is_regular(square):
        cause = "columns depend on each other or rows are too few; give covariance_prior, or drop columns"
        raise NotPositiveDefiniteError(f"{DEFAULT_PRIOR_RULE}, which is not positive definite: {cause}")
    return square


def _is_regular(square):
    """Whether every column of a covariance varies, given those before it, by more than rounding makes of nothing."""
    try:
        conditional_variances = np.diag(arrays.cholesky(square, "square")) ** 2
    except NotPositiveDefiniteError:
        return False
    return bool(np.all(conditional_variances > MIN_VARIANCE_SHARE * np.diag(square)))
