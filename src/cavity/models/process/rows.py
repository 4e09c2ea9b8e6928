"""The rows of a fit of a Gaussian process: what was observed there, and the prior means of f."""

from dataclasses import replace

import numpy as np

from cavity.base.errors import check_within_range
from cavity.covariances.base import Covariance
from cavity.covariances.program import get_program
from cavity.likelihoods import Gaussian
from cavity.likelihoods.predictive import MIN_VARIANCE
from cavity.models.defaults import likelihood_for
from cavity.models.observations import Observations
from cavity.models.process.model import check_columns, compute_prior_means


def observe(model, dataset, *, some=True):
    """Return the `Observations` of first rows: a covariance that is given means that the scale of f is, too."""

    def choose_likelihood(y):
        likelihood = likelihood_for(y) if dataset.columns["noise_variance"] is None else Gaussian(None)
        given = isinstance(model.covariance, Covariance) and isinstance(likelihood, Gaussian)
        return Gaussian() if given else likelihood

    return Observations.of(model.likelihood, dataset, default=choose_likelihood, some=some)


def add_prior_means(model, rows):
    """Return checked rows in memory of their own; their offset is all that is known of the prior mean of f."""
    check_columns(model.covariance, model.mean, rows.X.shape[1])
    f_known = None
    if not isinstance(model.likelihood, Gaussian):
        f_known = ~rows.left_out & (get_program(model.covariance, rows.X.shape[1]).diagonal(rows.X) < MIN_VARIANCE)
        if isinstance(model.mean, str) and f_known.any():
            raise ValueError(
                f"mean={model.mean!r} cannot be found: the covariance is zero at row {int(np.argmax(f_known))}, where "
                "the mean alone decides; add a Constant to the covariance, or give a mean"
            )
        f_known = f_known if f_known.any() else None
    with np.errstate(over="ignore", invalid="ignore"):
        known = 0.0 if rows.offset is None else rows.offset
        base = check_within_range(known + compute_prior_means(model, rows.X), "the prior means of f")
    # the posterior keeps its rows and makes them read-only: they must not be the caller's
    weights, noise = (None if value is None else value.copy() for value in (rows.weights, rows.noise))
    own = {"X": rows.X.copy(), "y": rows.y.copy(), "weights": weights, "noise": noise}
    return replace(rows, **own, offset=base, f_known=f_known)
