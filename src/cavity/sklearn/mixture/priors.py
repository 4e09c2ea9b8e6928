"""The priors of scikit-learn's Bayesian mixture: what is given, and what follows from the rows."""

import numpy as np

from cavity.base import arrays
from cavity.base.errors import within_range
from cavity.models.mixture.factors import is_full
from cavity.models.mixture.rows import compute_moments
from cavity.sklearn import checks


def check_numbers(settings):
    """Raise ValueError or TypeError for a number outside its domain, whatever the rows."""
    for name in ("weight_concentration_prior", "mean_precision_prior", "degrees_of_freedom_prior"):
        if getattr(settings, name) is not None:
            arrays.number(getattr(settings, name), name, low=0)


def resolve_priors(settings, data, threads):
    """Return the priors of an estimator's settings for data, by the names that `cavity.GaussianMixture` gives them."""
    dim, kind = data.source.n_features, settings.covariance_type
    freedom, mean, square = settings.degrees_of_freedom_prior, settings.mean_prior, settings.covariance_prior
    if freedom is not None and not freedom > dim - 1:
        raise ValueError(
            f"The parameter 'degrees_of_freedom_prior' should be greater than {dim - 1}, but got {freedom:.3f}."
        )
    if mean is not None:
        mean = checks.check_shape(mean, "mean_prior", (dim,), "means")
    if square is not None:
        shapes = {"full": (dim, dim), "tied": (dim, dim), "diag": (dim,), "spherical": ()}
        square = checks.check_precision(square, kind, shapes, "covariance_prior")
    if mean is None or square is None:
        mean, square = _from_rows(mean, square, kind, data, threads)
    concentration, precision = settings.weight_concentration_prior, settings.mean_precision_prior
    return {
        "weight_concentration_prior": 1.0 / settings.n_components if concentration is None else concentration,
        "mean_precision_prior": 1.0 if precision is None else precision,
        "mean_prior": mean,
        "degrees_of_freedom_prior": dim if freedom is None else freedom,
        "covariance_prior": square if np.ndim(square) else float(square),
    }


def _from_rows(mean, square, kind, data, threads):
    """Return the mean and the covariance of the rows for those that are None."""
    found_mean, found_square = compute_moments(data, threads, is_full(kind))
    if square is None:
        if not data.n_samples > 1.0:
            raise ValueError(
                "covariance_prior=None is the covariance of X, which needs weights that sum to more than one, got "
                f"{data.n_samples:g}; give covariance_prior"
            )
        within_range(found_square, "the squares of X")
        square = np.mean(found_square) if kind == "spherical" else found_square
    return found_mean if mean is None else mean, square
