"""What the models of latent processes share: settings, checks, and the rows of a fit with the prior means of f."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.public_objects import FloatArray, FloatOrArray, Frozen, set_fields
from cavity.covariances.base import Covariance
from cavity.covariances.program import get_program
from cavity.covariances.slots import list_leaves
from cavity.covariances.strings import parse
from cavity.likelihoods import Gaussian, Likelihood
from cavity.likelihoods.parameters import choose_parameters, list_open_parameters, list_scales
from cavity.likelihoods.predictive import MIN_VARIANCE
from cavity.models.defaults import check_kind, check_likelihood, likelihood_for
from cavity.models.observations import Observations
from cavity.models.process.mean_formula import is_mean_formula, split_mean


def observe(model, dataset, *, needs_rows=True):
    """Return the `Observations` of first rows: a covariance that is given means that the scale of f is, too."""

    def choose_likelihood(y):
        likelihood = likelihood_for(y) if dataset.columns["noise_variance"] is None else Gaussian(None)
        has_scale = isinstance(model.covariance, Covariance) and isinstance(likelihood, Gaussian)
        return Gaussian() if has_scale else likelihood

    return Observations.of(model.likelihood, dataset, default=choose_likelihood, needs_rows=needs_rows)


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
        offset = 0.0 if rows.offset is None else rows.offset
        base = check_within_range(offset + compute_prior_means(model, rows.X), "the prior means of f")
    # the posterior keeps its rows and makes them read-only: they must not be the caller's
    weights, noise = (None if value is None else value.copy() for value in (rows.weights, rows.noise))
    own = {"X": rows.X.copy(), "y": rows.y.copy(), "weights": weights, "noise": noise}
    return replace(rows, **own, offset=base, f_known=f_known)


@dataclass(frozen=True, slots=True, eq=False)
class LatentProcess(Frozen):
    """Base of the models in which f - mean is a Gaussian process and y has likelihood p(y|f)."""

    covariance: Covariance | Any = None
    likelihood: Likelihood | Any = None
    mean: FloatOrArray = None

    def __post_init__(self) -> None:
        set_fields(self, likelihood=check_likelihood(self.likelihood))
        if isinstance(self.covariance, str):
            parse(self.covariance)
        elif self.covariance is not None:
            check_kind(self.covariance, "covariance", Covariance, "covariances")
            list_leaves(self.covariance)  # TypeError for one of the user's own
        if is_mean_formula(self.mean):
            split_mean(self.mean)
        if self.mean is None or isinstance(self.mean, str):
            return
        mean = arrays.check_finite_array(self.mean, "mean", ndim=(0, 1))
        arrays.check_not_empty(mean.shape, "mean")
        set_fields(self, mean=arrays.copy_read_only(mean))

    def prior_mean(self, X: FloatArray) -> FloatArray:
        """The mean function at the rows of X.

        Parameters
        ----------
        X : ndarray (n, D)
            The rows.

        Returns
        -------
        ndarray (n,)
            Their prior means, offsets not included; a mean that is yet to be found counts as 0.
        """
        X = arrays.check_finite_array(X, "X", ndim=(2,))
        check_columns(self.covariance, self.mean, X.shape[1])
        return compute_prior_means(self, X)


def compute_prior_means(model, X):
    """Return the prior means of f at checked rows; a mean that is yet to be found counts as 0."""
    if np.ndim(model.mean) == 0:
        return np.full(len(X), 0.0 if model.mean is None or isinstance(model.mean, str) else model.mean)
    return model.mean[0] + X @ model.mean[1:]  # (n, D) (D,)


def check_columns(covariance, mean, n_features):
    """Raise ValueError unless a covariance and a mean, a number, coefficients or a name, are for so many columns."""
    if isinstance(covariance, Covariance):
        covariance.check_columns(n_features)
    if np.ndim(mean) == 1 and len(mean) != 1 + n_features:
        raise ValueError(
            f"mean must be a number or have 1 + {n_features} coefficients for {n_features} columns, got {len(mean)}"
        )


def choose_learnt(model, learn, known_noise, learnable=None):
    """Return whether the covariance is learnt, and the names of the parameters of the likelihood that are.

    Those that are open always are; `learnable` are those that can be, by default all.
    """
    likelihood = model.likelihood
    learnable_parameters = tuple(likelihood.parameters) if learnable is None else learnable
    chosen = choose_parameters(learn, ("covariance", *learnable_parameters), ("covariance", *list_scales(likelihood)))
    needed = list_open_parameters(likelihood)
    names = tuple(name for name in learnable_parameters if name in chosen or name in needed)
    return "covariance" in chosen, () if known_noise else names


def fill_open_parameters(model, rows):
    """Return the model with open parameters of the likelihood as rows suggest them."""
    likelihood, names = model.likelihood, list_open_parameters(model.likelihood)
    if not names:
        return model
    copies = rows.list_copies()
    y, offset = rows.y[copies], (np.zeros(rows.n) if rows.offset is None else rows.offset)[copies]
    guess = likelihood.start(y)
    fitted = offset if guess is None else offset + np.median(guess - offset)
    values = likelihood.starting_values(y, fitted)
    return replace(model, likelihood=replace(likelihood, **{name: values[name] for name in names}))
