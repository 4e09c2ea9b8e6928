"""What is free in a Gaussian process: hyperparameters as one vector."""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.likelihoods import Gaussian
from cavity.models.evaluations import FreeSettings
from cavity.models.hyperparameters import Hyperparameters
from cavity.models.hyperpriors import evaluate_log_prior


def compute_mean_basis(X, degree):
    """Return orthonormal columns, times sqrt(N), that span the mean functions, and what leads back: basis = H back.

    H = [1, X], or its first column for degree 1. Where columns depend on each other, as a constant one does, there are
    fewer in the basis, and the coefficients are the shortest ones in units of the columns.
    """
    n = len(X)
    columns = np.ones((n, 1)) if degree == 1 else np.column_stack([np.ones(n), X])
    scale = np.max(np.abs(columns), axis=0)
    scale[scale == 0] = 1.0
    left, values, right = np.linalg.svd(columns / scale, full_matrices=False)
    keep = values > values[0] * max(columns.shape) * np.finfo(float).eps
    back = right[keep].T / values[keep] / scale[:, None]
    return left[:, keep] * np.sqrt(n), back * np.sqrt(n)


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """What the evidence depends on: the mean is the offset plus basis @ coefficients."""

    covariance: object
    likelihood: object
    basis: np.ndarray | None = None  # (N, p) of a mean to be found, else it is in the offset
    back: np.ndarray | None = None  # (1 + D, p) or (1, p): from coefficients to those of [1, X]
    coefficients: np.ndarray | None = None  # (p,)

    @classmethod
    def of(cls, model, rows):
        """Return those of a model, where a search begins."""
        if not isinstance(model.mean, str):
            return cls(model.covariance, model.likelihood)
        basis, back = compute_mean_basis(rows.X, 1 if model.mean == "constant" else 2)
        return cls(model.covariance, model.likelihood, basis, back, np.zeros(basis.shape[1]))

    def put_in(self, model):
        """Return the model with these settings."""
        mean = model.mean
        if self.basis is not None:
            mean = self.back @ self.coefficients  # (1 + D, p) (p,)
            mean = float(mean[0]) if len(mean) == 1 else mean
        return replace(model, covariance=self.covariance, likelihood=self.likelihood, mean=mean)


class FreeHyperparameters(FreeSettings):
    """Logs of covariance parameters and coefficients of the mean, then free numbers of the likelihood."""

    least_value = -np.inf  # covariances have priors

    def __init__(self, settings, covariance, names, unit=1.0):
        self.settings = settings
        self.exact = isinstance(settings.likelihood, Gaussian)
        self.n_covariance = len(settings.covariance.log_parameters) if covariance else 0
        # with Gaussian noise the best coefficients of the mean are known at any setting of the others
        self.n_mean = 0 if settings.coefficients is None or self.exact else len(settings.coefficients)
        super().__init__(self.n_covariance + self.n_mean, settings.likelihood, names, unit)

    def part(self, index):
        """Return those of an array of rows."""
        part, basis = copy(self), self.settings.basis
        part.settings = self.settings if basis is None else replace(self.settings, basis=basis[index])
        return part

    def pack(self, settings):
        """The vector of some settings."""
        mean = settings.coefficients if self.n_mean else ()
        of_likelihood = self.free.pack(settings.likelihood)
        return np.concatenate([settings.covariance.log_parameters[: self.n_covariance], mean, of_likelihood])

    def unpack(self, x):
        """The settings of a vector."""
        covariance, mean = np.split(x[: self.n_prior], [self.n_covariance])
        covariance_setting = self.settings.covariance
        return replace(
            self.settings,
            covariance=covariance_setting.with_log_parameters(covariance) if self.n_covariance else covariance_setting,
            likelihood=self.likelihood_at(x),
            coefficients=mean if self.n_mean else self.settings.coefficients,
        )

    def prior_bounds(self):
        """(low, high) of every log parameter of the covariance; coefficients of the mean have none."""
        return [*self.settings.covariance.log_bounds[: self.n_covariance], *[(-np.inf, np.inf)] * self.n_mean]

    def is_inside(self, x):
        """Whether the covariance may have the parameters of a vector: they are between its bounds."""
        low, high = np.reshape(self.prior_bounds(), (-1, 2)).T
        return bool(np.all((x[: self.n_prior] >= low) & (x[: self.n_prior] <= high)))

    def gradient(self, evidence, point):
        """One vector of the parts of `Evidence.gradient`."""
        covariance, mean, likelihood = evidence.gradient(point, self.free)
        return np.concatenate([covariance[: self.n_covariance], mean[: self.n_mean], likelihood[: self.free.size]])

    @property
    def places(self):
        """The numbers of the entries of a vector that `describe` has values of: not those of a mean."""
        return np.delete(np.arange(self.size), np.arange(self.n_covariance, self.n_prior))

    def log_prior(self, settings):
        """The log prior of some settings, and its slopes in those of the covariance, if they are free.

        With default priors it is the density of the free numbers, as integrals need it, and otherwise that of the
        parameters of the covariance.
        """
        if self.priors:
            value, slopes = evaluate_log_prior(self.priors, *self.describe(settings))
            every = np.zeros(self.size)
            every[self.places] = slopes
            return value, every
        value, slopes = settings.covariance.log_prior()
        return value, slopes[: self.n_covariance]

    def describe_prior(self, settings):
        """Names and values of the free parameters of the covariance, and their derivatives; a mean counts as known."""
        values = np.exp(settings.covariance.log_parameters[: self.n_covariance])
        return settings.covariance.parameter_names[: self.n_covariance], values.tolist(), np.diag(values)

    def hyperparameters(self, settings):
        """The record of what was found of the covariance and the likelihood, or None; a mean is in the model."""
        names, values, _ = self.describe(settings)
        note, log_prior = "standard errors: see the method standard_errors", 0.0
        if self.priors:
            note, log_prior = "those of the integral: see integration", self.log_prior(settings)[0]
        return Hyperparameters(tuple(names), tuple(values), (None,) * len(names), note, log_prior) if names else None


def compute_gaussian_log_density(y, mean, variance):
    """Return log N(y; mean, variance)."""
    return -0.5 * ((y - mean) ** 2 / variance + np.log(variance) + LOG_2PI)
