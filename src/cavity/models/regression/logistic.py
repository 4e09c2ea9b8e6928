"""Bayesian logistic regression by mean field: a true bound on the evidence, from a quadratic bound on the sigmoid.

References
----------
.. [J] Tommi Jaakkola and Michael Jordan, "Bayesian parameter estimation via variational methods", Statistics and
   Computing 10, 2000.
.. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.6.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cavity.base.errors import check_within_range, suggest_dropping
from cavity.base.public_objects import ArrayLike, Data, FloatOrArray, Public
from cavity.base.records import declare
from cavity.distributions import Gamma, MultivariateGaussian
from cavity.distributions.factors import join_coordinates, step_towards
from cavity.distributions.multivariate import covariance_root
from cavity.jobs.job import Event, Job
from cavity.likelihoods import Logit
from cavity.mean_field import engine
from cavity.mean_field.options import AscentOptions
from cavity.models.defaults import LOGIT_PRIOR_SCALE
from cavity.models.regression.posterior import PRIOR_SETTINGS, WeightPrior, WeightsPosterior, check_prior
from cavity.models.regression.rows import fit_weights

LEAST_ROWS, MOST_ROWS = 1 << 12, 1 << 14  # of a block, with ...
BLOCK_NUMBERS = 1 << 18  # ... so many numbers, 2 MB, in between
MOST_NUMBERS = 1 << 20  # of the least rows: limits the time until an interrupt with thousands of columns
NEAR_ZERO = 1e-3  # below it tanh(x/2)/(2 x) is 1/4 - x^2/48 to double precision


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticRegression(Public):
    """Logistic regression by the bound of Jaakkola and Jordan [J]_.

    The model is::

        p(y_n = 1) = 1/(1 + exp(-x_n'w)),    w_i ~ N(0, 1/alpha_i)

    with alpha known, or alpha_i ~ Gamma(prior_shape, prior_rate): one for all weights, or one for each (automatic
    relevance determination). The approximation is q(w) q(alpha), and q(w) a Gaussian. It is the same as mean field with
    Polya-Gamma variables.

    `cavity.GLM` with `cavity.likelihoods.Logit` is closer to the posterior; this model's `elbo` is a true bound, and it
    learns alpha.

    Parameters
    ----------
    prior_variance : float or array_like (D,), optional
        1/alpha, 1 by default; None learns alpha.
    ard : bool, default False
        One alpha for each weight; needs ``prior_variance=None``.
    prior_shape, prior_rate : float, default 1e-6
        Of the Gamma prior of alpha.
    intercept : bool or float, optional
        Whether to put a column of ones before X; its weight is the first one and has a prior of its own, from which no
        alpha is learnt: its mean is 0, its variance this number. True stands for a wide one, 25^2 and what the means of
        the columns add. By default there is no intercept, and a warning if X has no constant column; False is for none.

    Raises
    ------
    ValueError, TypeError
        For a setting outside its domain, naming it.

    References
    ----------
    .. [J] Tommi Jaakkola and Michael Jordan, "Bayesian parameter estimation via variational methods", Statistics and
       Computing 10, 2000.

    Examples
    --------
    >>> import cavity
    >>> X = [[1.0, 0.5], [1.0, 1.5], [1.0, -1.0], [1.0, -0.3], [1.0, 0.1]]
    >>> posterior = cavity.LogisticRegression(intercept=False).fit(X, [1, 1, 0, 0, 1])
    >>> posterior.mean.round(3).tolist(), round(posterior.elbo, 4)
    ([0.177, 0.975], -3.3177)
    """

    prior_variance: FloatOrArray = 1.0
    ard: bool = False
    prior_shape: float = 1e-6
    prior_rate: float = 1e-6
    intercept: bool | float | None = None

    def __post_init__(self) -> None:
        check_prior(self)

    @suggest_dropping
    def fit(
        self,
        X: Data,
        y: ArrayLike,
        *,
        missing: Literal["raise", "drop"] = "raise",
        accelerate: bool | Literal["anderson", "squarem"] = True,
        max_iter: int = 1000,
        tol: float = 1e-10,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> LogisticRegressionPosterior:
        """Approximate the posterior of the weights by coordinate ascent.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, list of paths, dask collection, or Source
            Columns to predict from; files are read block by block, in every pass, collections worked on where they are.
        y : array_like (N,) or str
            Labels, of any two values, or the name of their column in X.
        missing : {"raise", "drop"}, default "raise"
            What is done about rows without a value in a column that the fit reads: refuse them, naming the first, or
            leave them out; `dropped` of the posterior counts them.
        accelerate : bool or {"anderson", "squarem"}, default True
            How to extrapolate from the last sweeps (`cavity.mean_field.fit`).
        max_iter : int, default 1000
            Most passes over the data, those of rejected extrapolations included.
        tol : float, default 1e-10
            Stopping rule: the predicted remaining gain of the ELBO is at most tol nats per row.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.
        callback : callable, optional
            Called as callback(event) with a `cavity.Event` after each pass; a true result stops the fit and keeps what
            is known.
        progress : bool, default False
            Whether to show progress on stderr: a bar where tqdm is installed, else lines.
        checkpoint : str or path-like, optional
            File that keeps how far the fit is: killed, it goes on from there when it is called again with the same data
            and options, and ends in the same bits. The file stays when the fit is done.
        checkpoint_every : float, default 60.0
            Seconds from one writing of it to the next; 0 writes it after each pass or step.

        Returns
        -------
        LogisticRegressionPosterior
            The frozen posterior.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work.
        OverflowError
            If the squares of X leave the range of float64.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; the posterior is returned all the same, with ``converged=False``.
        SettingsWarning
            If `intercept` is None and X has no constant column; if X has one and another is added.

        Notes
        -----
        With t_n the labels as -1, +1 and a_n = t_n x_n'w, the bound is (eqs. 10.144 and 10.159 of [B]_)::

            log sigmoid(a) >= log sigmoid(xi) + (a - xi)/2 - lambda(xi) (a^2 - xi^2),  lambda(xi) = tanh(xi/2)/(4 xi)

        and is highest in expectation at xi_n^2 = E[(x_n'w)^2] (10.163), so a pass over the rows finds every xi_n, the
        ELBO and the next q(w) (10.157) together: N D^2 operations, and nothing of the size of N is kept.
        """
        job = Job.checked(callback, progress, checkpoint, checkpoint_every)
        run = AscentOptions(accelerate=accelerate, max_iter=max_iter, tol=tol, n_threads=n_threads, job=job)
        return LogisticRegressionPosterior(**fit_weights(self, X, y, LogisticSweeps, missing, run))


@dataclass(frozen=True, slots=True, eq=False)
class LogisticState:
    """sum_n 2 lambda(xi_n) x_n x_n' and q(alpha), None if that is known; q(w), `weights`, follows from the two.

    Extrapolated sums and q(alpha) are thus consistent with one q(w).
    """

    data: FloatOrArray
    alpha: Gamma | Any
    weights: MultivariateGaussian


def sum_products(X, y, start, _):
    """Return X'X, and X'y/2 of labels -1 and 1, of a block."""
    return X.T @ X, 0.5 * y @ X


def sum_bounds(X, y, start, weights):
    """Return the bound of a block at its best xi, and the sum of 2 lambda(xi_n) x_n x_n'; weights are (mean, root)."""
    mean, root = weights
    f, spread = X @ mean, X @ root
    xi = np.sqrt(f * f + np.einsum("ij,ij->i", spread, spread))
    bound = np.sum(0.5 * (y * f - xi) - np.log1p(np.exp(-xi)))
    return bound, (X * find_curvature(xi)[:, None]).T @ X


class LogisticSweeps:
    """Sweeps for the engine, over `LogisticState`s."""

    likelihood = Logit()

    def __init__(self, model, rows, threads, job):
        self._rows, self._threads = rows, threads
        self.n_samples, self.n_rows, prior = rows.n, rows.n, None
        with np.errstate(over="ignore", invalid="ignore"):
            self._products, self._tau = rows.total(sum_products, None, threads)
        check_within_range(self._products, "X: squares of the columns")
        if rows.intercept:
            mean, square = self._products[0, 1:] / rows.n, np.diag(self._products)[1:] / rows.n
            sd = np.sqrt(np.maximum(square - mean**2, 0.0))
            prior = WeightPrior.of_intercept(model, 0.0, LOGIT_PRIOR_SCALE, mean, sd, least=1e-7)  # of a sum of squares
        self.prior = WeightPrior.of(model, rows.X.n_features, prior)

    @staticmethod
    def block_rows(n_features):
        """Return the number of rows of a block."""
        least = max(1, min(LEAST_ROWS, MOST_NUMBERS // n_features))
        return min(MOST_ROWS, max(least, BLOCK_NUMBERS // n_features))

    def ascend(self, options):
        """Return the fit from the start, and the fields of its posterior."""
        fit = engine.ascend(self, self.start(), options)
        return fit, self.describe(fit.state)

    def start(self):
        """Return the state of xi_n = 0, and of columns that reach a unit of log odds if alpha is not known."""
        squares = np.diag(self._products) / self.n_samples
        return self._state(0.25 * self._products, self.prior.around(np.where(squares > 0, squares, 1.0)))

    def _state(self, data, alpha):
        precision = data + np.diag(self.prior.mean(alpha))
        return LogisticState(data, alpha, MultivariateGaussian.from_natural(self._tau, precision))

    def sweep(self, state):
        weights = state.weights
        moments = weights.mean, covariance_root(weights)
        bound, data = self._rows.total(sum_bounds, moments, self._threads)
        second = weights.mean**2 + np.diag(weights.covariance)
        elbo = float(bound) + self.prior.elbo(state.alpha, second) + weights.entropy()
        return self._state(0.5 * (data + data.T), self.prior.update(second)), elbo

    def describe(self, state):
        """Return the fields of a posterior that a state stands for."""
        return {"mean": state.weights.mean, "alpha": state.alpha, "_root": covariance_root(state.weights)}

    def coordinates(self, state):
        """Return natural parameters and expected statistics of q(w), those of its prior apart, and of q(alpha)."""
        size = len(state.data)
        second = state.weights.statistics[size:]
        natural, statistics = join_coordinates([state.alpha])
        return (
            np.concatenate([state.data.ravel(), self.prior.mean(state.alpha), natural]),
            np.concatenate([second, second[:: size + 1], statistics]),
        )

    def at(self, natural, state):
        size = state.data.size
        factors = step_towards([state.alpha], natural[size + len(state.data) :])
        if factors is None:
            return None
        try:
            return self._state(natural[:size].reshape(state.data.shape), factors[0])
        except (ValueError, OverflowError):  # beyond the domain
            return None


def find_curvature(xi):
    """Return 2 lambda(xi) = tanh(xi/2)/(2 xi), the expectation of a Polya-Gamma PG(1, xi) variable; 1/4 at 0."""
    near = xi < NEAR_ZERO
    safe = np.where(near, 1.0, xi)
    return np.where(near, 0.25 - xi * xi / 48.0, np.tanh(0.5 * safe) / (2.0 * safe))


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class LogisticRegressionPosterior(WeightsPosterior):
    """The approximate posterior of a `LogisticRegression` fit."""

    model: LogisticRegression = declare(PRIOR_SETTINGS, "The settings.")

    kind: ClassVar[str] = "logistic_regression"

    @property
    def _likelihood(self):
        return LogisticSweeps.likelihood
