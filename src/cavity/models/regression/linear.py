"""Bayesian linear regression by mean field: noise and relevance of the columns learnt with the weights.

References
----------
.. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, sections 10.3 and 7.2.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.base.errors import check_within_range, suggest_dropping
from cavity.base.public_objects import ArrayLike, Data, FloatOrArray, Public, check_positive
from cavity.base.records import POSITIVE_REAL, Made, Nullable, declare
from cavity.base.rows import Rows
from cavity.base.summary import make_inverse_gamma_marginals, tabulate_marginals
from cavity.distributions import Gamma
from cavity.distributions.divergence import kl
from cavity.distributions.factors import join_coordinates, step_towards
from cavity.jobs.job import Event, Job
from cavity.likelihoods import Gaussian
from cavity.linalg import tiled
from cavity.mean_field import engine
from cavity.mean_field.options import AscentOptions
from cavity.models.defaults import REAL_PRIOR_SCALE, find_location_and_spread
from cavity.models.regression.newton import MAX_COLUMNS, NewtonAscent
from cavity.models.regression.posterior import PRIOR_SETTINGS, WeightPrior, WeightsPosterior, check_prior
from cavity.models.regression.rows import add_ones, fit_weights
from cavity.runs.executors import Threads
from cavity.runs.passes import map_runs

ROWS_OF_QR = 4096  # of a block
UNIT_NOISE = Gaussian(1.0)  # for the checks and defaults of real y
MIN_WIDE_COLUMNS = 512  # columns from which threads share tiles of a block instead of blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRegression(Public):
    """Linear regression with unknown noise and unknown (or known) scale of the weights [B]_.

    The model is::

        y_n ~ N(x_n'w, 1/tau),    w_i ~ N(0, 1/alpha_i),
        tau ~ Gamma(noise_shape, noise_rate),    alpha_i ~ Gamma(prior_shape, prior_rate)

    with one alpha for all weights, or one for each (automatic relevance determination). The approximation is
    q(w) q(alpha) q(tau).

    Parameters
    ----------
    prior_variance : float or array_like (D,), optional
        1/alpha where it is known; learnt if None.
    ard : bool, default False
        One alpha for each weight: those of columns that do not help grow, and their weights vanish.
    prior_shape, prior_rate : float, default 1e-6
        Of the Gamma prior of alpha.
    noise_variance : float, optional
        1/tau where it is known; learnt if None.
    noise_shape, noise_rate : float, default 1e-6
        Of the Gamma prior of tau.
    intercept : bool or float, optional
        Whether to put a column of ones before X; its weight is the first one and has a prior of its own, from which no
        alpha is learnt: its mean is the median of y, its variance this number. True stands for a wide one, (25 s_y)^2
        and what the means of the columns add, s_y the robust spread of y. By default there is no intercept, and a
        warning if X has no constant column; False is for none.

    Raises
    ------
    ValueError, TypeError
        For a setting outside its domain, naming it.

    References
    ----------
    .. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, sections 10.3 and 7.2.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 5))
    >>> y = X @ [2.0, 0.0, -1.0, 0.0, 0.0] + rng.normal(0.0, 0.5, size=100)
    >>> posterior = cavity.LinearRegression(ard=True, intercept=False).fit(X, y)
    >>> posterior.mean.round(1).tolist(), posterior.relevance.round(1).tolist()
    ([2.0, 0.0, -1.0, 0.0, 0.0], [1.0, 0.1, 1.0, 0.0, 0.0])
    >>> cavity.LinearRegression(ard=True, intercept=True).fit(X, y + 50.0).mean.round(1).tolist()
    [50.0, 2.0, 0.0, -1.0, 0.0, 0.0]
    """

    prior_variance: FloatOrArray = None
    ard: bool = False
    prior_shape: float = 1e-6
    prior_rate: float = 1e-6
    noise_variance: float | None = None
    noise_shape: float = 1e-6
    noise_rate: float = 1e-6
    intercept: bool | float | None = None

    def __post_init__(self) -> None:
        check_prior(self)
        if self.noise_variance is not None:
            check_positive(self, "noise_variance")
        check_positive(self, "noise_shape", "noise_rate")

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
    ) -> LinearRegressionPosterior:
        """Approximate the posterior of weights, noise and relevance by coordinate ascent.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, list of paths, dask collection, or Source
            Columns to predict from, of any scale; files are read block by block, collections worked on where they are.
        y : array_like (N,) or str
            Observations, or the name of their column in X.
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
        LinearRegressionPosterior
            The frozen posterior.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work.
        OverflowError
            If the data are so large or small that sums of squares leave the range of float64.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; the posterior is returned all the same, with ``converged=False``.
        SettingsWarning
            If `intercept` is None and X has no constant column; if X has one and another is added.

        Notes
        -----
        The rows are read once (and unless ``intercept=False`` the first block a second time, all of them where a column
        is constant there), into the triangular factor of [X y] (no squares of X are formed, so that nearly
        dependent columns keep their digits); a pass then costs some 3 D^3 operations whatever N. q(w) is the best one
        for q(alpha) and q(tau), eqs. (10.99) and (10.100) of [B]_.

        Up to 200 columns, ``accelerate=True`` is Newton's method in the logarithms of the means of q(alpha) and q(tau),
        with exact derivatives; the predicted gain is that of its next step. Where the ELBO has several maxima, as with
        ``ard=True`` and more columns than rows, it need not end in the one that sweeps lead to.

        Examples
        --------
        >>> import cavity
        >>> model = cavity.LinearRegression(prior_variance=10.0, intercept=False)
        >>> posterior = model.fit([[1.0], [2.0], [3.0]], [1.1, 1.9, 3.2])
        >>> posterior.mean.round(3).tolist(), round(posterior.elbo, 3)
        ([1.036], -15.466)
        """
        job = Job.checked(callback, progress, checkpoint, checkpoint_every)
        run = AscentOptions(accelerate=accelerate, max_iter=max_iter, tol=tol, n_threads=n_threads, job=job)
        sweeps_of = NewtonSweeps if accelerate is True else LinearSweeps
        return LinearRegressionPosterior(**fit_weights(self, X, y, sweeps_of, missing, run))


def factor_block(X, y, start, _):
    """Return the triangle L of a block of [X y], L L' = [X y]'[X y]."""
    out = np.zeros((X.shape[1] + 1, X.shape[1] + 1))
    tiled.stack(out, _transpose_columns(X, y), tiled.ONE_THREAD)
    return out


def stack_triangles(triangle, other):
    """Return the triangle of two sets of rows from the triangles of each."""
    out = triangle.copy()
    tiled.stack(out, other.copy(), tiled.ONE_THREAD, triangular=True)
    return out


def _transpose_columns(X, y):
    """Return the columns of [X y], (D + 1, n)."""
    out = np.empty((X.shape[1] + 1, len(X)))
    out[:-1], out[-1] = X.T, y
    return out


def _factor_rows(rows, threads):
    """Return the triangle of all rows.

    Threads take blocks of a few columns, and share tiles of the blocks of many, one block after the other.
    """
    if rows.X.n_features < MIN_WIDE_COLUMNS:
        return rows.total(factor_block, None, threads, add=stack_triangles)
    out, prepared = np.zeros((rows.width + 1, rows.width + 1)), add_ones if rows.intercept else np.asarray

    def stack_run(run, _):
        X, y = run.arrays
        tiled.stack(out, _transpose_columns(prepared(X), y), threads)

    with Threads(1, threads.job) as inline:
        for _ in map_runs(stack_run, None, (rows.X, rows.y), inline, grain=1):
            if not np.isfinite(out[-1]).all():
                rows.X.summary(threads)
    return out


class LinearSweeps:
    """Sweeps for the engine: states are (q(alpha), q(tau)), None for a known one; q(w) follows from them."""

    likelihood = UNIT_NOISE
    n_rows = None  # sweeps use their sums only

    def __init__(self, model, rows, threads, job):
        self.model, self._threads = model, threads
        self.n_samples, size = rows.n, rows.width
        triangle = job.restore()  # R, R'R = [X y]'[X y]
        if triangle is None:
            triangle = np.ascontiguousarray(_factor_rows(rows, threads).T)
            job.store(lambda: triangle)
        self._factor, self._target, prior = triangle[:, :size], triangle[:, size], None
        if rows.intercept:  # row 0 has the column means, up to a factor; its weight is relative to its prior mean
            with np.errstate(over="ignore"):  # the prior is refused then
                mean, sd = triangle[0] / triangle[0, 0], np.linalg.norm(triangle[1:], axis=0) / np.sqrt(rows.n)
            location, spread = find_location_and_spread(UNIT_NOISE, Rows(None, rows.y.rows()))
            least = np.finfo(float).eps * np.sqrt(rows.n)  # of a QR
            size_of_effect = REAL_PRIOR_SCALE * spread
            prior = WeightPrior.of_intercept(model, location, size_of_effect, mean[1:size], sd[1:size], least)
            self._target = self._target - prior[0] * triangle[:, 0]
        self.prior = WeightPrior.of(model, rows.X.n_features, prior)

    @staticmethod
    def block_rows(n_features):
        """Return the number of rows of a block."""
        return ROWS_OF_QR

    def ascend(self, options):
        """Return the fit from the start, and the fields of its posterior."""
        fit = engine.ascend(self, self.start(), options)
        return fit, self.describe(fit.state)

    def start(self):
        """Return q(alpha) as if each column alone explained y, and q(tau) as if all of y were noise."""
        with np.errstate(over="ignore", under="ignore"):
            columns = np.einsum("ij,ij->j", self._factor, self._factor)
            power = float(self._target @ self._target) or float(self.n_samples)
            used = np.where(columns > 0, columns, 1.0)
            ratios = np.concatenate([used / power, power / used])
        check_within_range(ratios, "X, y: squares of the columns, of y or their ratios")
        alpha = self.prior.around(used / power)
        noise = Gamma(1.0, power / self.n_samples) if self.model.noise_variance is None else None
        return alpha, noise

    def _noise(self, noise):
        """Return E[tau] and E[log tau]."""
        if noise is None:
            return 1.0 / self.model.noise_variance, -np.log(self.model.noise_variance)
        return noise.mean, noise.statistics[0]

    def weights(self, state):
        """Return q(w) for the state: its mean, a root of its covariance, E[w_i^2] and E|y - Xw|^2."""
        alpha, noise = state
        scale, size = np.sqrt(self._noise(noise)[0]), self._factor.shape[1]
        triangle, prior = np.zeros((size + 1, size + 1)), np.zeros((size + 1, size))
        np.multiply(scale, self._factor.T, out=triangle[:size, : len(self._factor)])
        np.multiply(scale, self._target, out=triangle[size, : len(self._factor)])
        np.fill_diagonal(prior, np.sqrt(self.prior.mean(alpha)))
        tiled.stack(triangle, prior, self._threads, triangular=True)
        inverse, target = triangle[:size, :size].copy(), triangle[size, :size]
        if not np.all(np.diag(inverse)):
            raise np.linalg.LinAlgError("the precision of the weights is singular to rounding")
        tiled.invert(inverse, self._threads)
        root = inverse.T
        mean = root @ target
        residual = self._target - self._factor @ mean
        # X root (D + 1, D) of the rows of the factor of X
        spread = tiled.solve(inverse, self._factor.copy(), self._threads, inverted=True)
        misfit = float(residual @ residual + np.einsum("ij,ij->", spread, spread))
        return mean, root, mean**2 + np.einsum("ij,ij->i", root, root), misfit

    def sweep(self, state):
        alpha, noise = state
        _, root, second, misfit = self.weights(state)
        tau, log_tau = self._noise(noise)
        elbo = 0.5 * (self.n_samples * (log_tau - LOG_2PI) - tau * misfit) + self.prior.elbo(alpha, second)
        elbo += 0.5 * len(root) * (1.0 + LOG_2PI) + float(np.sum(np.log(np.abs(np.diag(root)))))
        model = self.model
        if noise is not None:
            elbo -= float(kl(noise, Gamma(model.noise_shape, model.noise_rate)))
            noise = Gamma(model.noise_shape + 0.5 * self.n_samples, model.noise_rate + 0.5 * misfit)
        return (self.prior.update(second), noise), elbo

    def describe(self, state):
        """Return the fields of a posterior that a state stands for."""
        mean, root, _, _ = self.weights(state)
        return self._list_fields(state, mean, np.ascontiguousarray(root))

    def _list_fields(self, state, mean, root):
        alpha, noise = state
        if self.prior.intercept is not None:
            mean[0] += self.prior.intercept[0]
        return {"mean": mean, "alpha": alpha, "noise_precision": noise, "_root": root}

    def coordinates(self, state):
        return join_coordinates(state)

    def at(self, natural, state):
        return step_towards(state, natural)


class NewtonSweeps(LinearSweeps):
    """Those of models with few columns, which do without sweeps: Newton's method takes fewer passes."""

    def ascend(self, options):
        if self._factor.shape[1] > MAX_COLUMNS:
            return super().ascend(options)
        fit, mean, root = NewtonAscent(self, self._factor, self._target).run(self.start(), options)
        return fit, self._list_fields(fit.state, mean, root)


def _find_noise_misfit(arrays, settings, sizes):
    """Whether the noise is either known or learnt, as a rule of the record."""
    if (settings["model"]["noise_variance"] is None) != ("noise_precision" in settings):
        return "setting 'noise_precision' must be there where 'model.noise_variance' is null, and only there"
    return None


NOISE_SETTINGS = {"noise_variance": Nullable(POSITIVE_REAL), "noise_shape": POSITIVE_REAL, "noise_rate": POSITIVE_REAL}
NOISE_SETTING = Made(
    lambda values: Gamma(*values), [POSITIVE_REAL, POSITIVE_REAL], lambda noise: [noise.shape, noise.rate]
)
WEIGHTS_RECORD = WeightsPosterior.record


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class LinearRegressionPosterior(WeightsPosterior):
    """The approximate posterior of a `LinearRegression` fit.

    Notes
    -----
    `elbo` is the log evidence itself if alpha and tau are known.
    """

    model: LinearRegression = declare(PRIOR_SETTINGS | NOISE_SETTINGS, "The settings.")
    noise_precision: Gamma | Any = declare(None, "q(tau); None if the noise variance is known.")

    kind: ClassVar[str] = "linear_regression"
    record: ClassVar[Any] = replace(
        WEIGHTS_RECORD,
        settings=WEIGHTS_RECORD.settings | {"noise_precision?": NOISE_SETTING},
        rules=(*WEIGHTS_RECORD.rules, _find_noise_misfit),
    )

    def _below(self, level):
        """The table of the noise, if that was learnt."""
        if self.noise_precision is None:
            return None
        noise = make_inverse_gamma_marginals(
            ("noise_variance",), *np.atleast_1d(self.noise_precision.shape, self.noise_precision.rate)
        )
        return tabulate_marginals("Learnt with the weights", noise, level)

    @property
    def _likelihood(self):
        noise = self.model.noise_variance if self.noise_precision is None else 1.0 / self.noise_precision.mean
        return Gaussian(float(noise))
