"""What posteriors of a latent process share: predictions of f, draws, and a summary of hyperparameters."""

from __future__ import annotations

from dataclasses import replace
from threading import local
from typing import Literal

import numpy as np

from cavity.base import arrays
from cavity.base.frames import name_coefficients
from cavity.base.public_objects import ArrayLike, Data, FloatArray, Seed
from cavity.base.results import list_notes, title_of
from cavity.base.rows import check_moments
from cavity.base.summary import Table, tabulate_estimates
from cavity.covariances import slots
from cavity.covariances.program import get_program
from cavity.ep.latent import find_root
from cavity.models.hyperparameters import choose_scale, label_thresholds
from cavity.models.latent_posterior import LatentPosterior
from cavity.models.process.mean_formula import add_mean_columns, list_mean_columns, tabulate_mean
from cavity.models.process.model import compute_prior_means
from cavity.models.row_predictions import name_moments, predict_rows
from cavity.runs.executors import Threads, resolve_n_threads, single_blas
from cavity.runs.merge import BlockTask
from cavity.runs.passes import map_runs
from cavity.sources.dense_rows import in_blocks, open_dense, read_dense

ROWS_PER_TASK = 512  # of new rows: their covariances with the rows of a fit are in memory together


def collect_hyperparameters(model, columns):
    """Return what a model has been given or has learnt, free numbers of its covariance, likelihood and mean: a dict."""
    numbers = dict(zip(model.covariance.parameter_names, slots.get_values(model.covariance).tolist(), strict=True))
    for name in model.likelihood.parameters:
        values = getattr(model.likelihood, name)
        entries = enumerate(values) if np.ndim(values) else [(None, values)]
        numbers |= {name if i is None else f"{name}[{i}]": value for i, value in entries}
    coefficients = np.ravel(model.mean).tolist()
    names = "mean", *(f"mean, {name}" for name in name_coefficients(columns, len(coefficients) - 1))
    return numbers | dict(zip(names, coefficients, strict=False))


class ProcessPosterior(LatentPosterior):
    """Base of posteriors of a latent process.

    It reads model, columns and n_features, and calls ``_moments(X, threads, cache)`` for a few rows and
    ``_joint(X, gram, threads)``: what the posterior adds to prior means of f, and variances or, in place of prior
    covariances, covariances of f. `cache` is a namespace of the thread, for arrays of further rows.
    """

    __slots__ = ()

    @predict_rows(lambda self, **_: (2,), pair=True, columns=name_moments, on_collections=False)
    def predict(
        self,
        X: Data,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise: bool = False,
        trials: ArrayLike | None = None,
        missing: Literal["raise", "nan"] = "raise",
        as_frame: bool = False,
        n_threads: int | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the latent value f of new rows, or a new observation y. Before any data they are the prior's.

        Parameters
        ----------
        X : array_like (n, D), data frame, path, list of paths, or Source
            Rows; those of files are read block by block.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        noise : bool, default False
            Whether to predict a new observation y instead of f.
        trials : int, array_like (n,) or str, optional
            For Binomial: the number of trials of each new observation, or the name of their column; by default 1.
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.
        as_frame : bool, default False
            Whether to return a pandas data frame with the columns mean and sd, and the index of X.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.

        Returns
        -------
        mean, variance : ndarray (n,)
            Of f, or of y, under the posterior; or a pandas.DataFrame. Variances of f are differences: good to about
            1e-15 of the prior's.

        Raises
        ------
        ValueError, TypeError
            For bad rows; for noise=True where y has classes (see predict_proba), or no mean or variance.
        OverflowError
            If moments leave the range of float64, naming the row.
        """
        return self._observed(X, self._latent(X, offset, exposure, n_threads), noise, trials)

    def _latent(self, X, offset, exposure, n_threads=None, find_moments=None):
        dataset = self._open(X, offset, exposure)
        X = in_blocks(open_dense(dataset, ROWS_PER_TASK, self.n_features), ROWS_PER_TASK)
        find_moments = find_moments or self._moments
        offset_values, n_threads, cache = self._known_offset(dataset), resolve_n_threads(n_threads), local()

        def moments(x, start, _):
            X.check_finite(x, start)
            base = compute_prior_means(self.model, x)
            base = base if offset_values is None else base + offset_values[start : start + len(x)]
            shift, variance = find_moments(x, threads, cache)
            return base + shift, variance

        with Threads(n_threads) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore"):
            parts = map_runs(BlockTask(moments), None, [X], threads, grain=1)
            mean, variance = (np.concatenate(values) for values in zip(*parts, strict=True))
        check_moments(mean, variance)
        return mean, variance

    def _with_mean_columns(self, X):
        """Return new rows with the columns of a mean by formula."""
        return add_mean_columns(self.coding, list_mean_columns(self.columns), X)

    def _open_arguments(self, X, arguments, **options):
        return super()._open_arguments(self._with_mean_columns(X), arguments, **options)

    def _complete_rows(self, X, arguments):
        return super()._complete_rows(self._with_mean_columns(X), arguments)

    def predict_covariance(
        self, X: Data, *, offset: ArrayLike | None = None, exposure: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the latent values at new rows together.

        Parameters
        ----------
        X : array_like (n, D) or data frame
            The rows.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.

        Returns
        -------
        mean : ndarray (n,)
            Of f under the posterior.
        covariance : ndarray (n, n)
            Of f under the posterior.

        Raises
        ------
        ValueError, TypeError, OverflowError
            As in `predict`.
        """
        return self._predict_jointly(X, offset, exposure)

    def _predict_jointly(self, X, offset, exposure):
        dataset = self._open(X, offset, exposure)
        X, offset_values = read_dense(dataset, self.n_features), self._known_offset(dataset)
        base = compute_prior_means(self.model, X)
        gram = arrays.allocate_matrix((len(X), len(X)), "the covariance of X")
        with Threads(1) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore"):
            get_program(self.model.covariance, X.shape[1]).gram(X, gram, threads)
            shift, covariance = self._joint(X, gram, threads)
            mean = (base if offset_values is None else base + offset_values) + shift
        check_moments(mean, covariance)
        return mean, covariance

    def sample(
        self, X: Data, n: int, rng: Seed, *, offset: ArrayLike | None = None, exposure: ArrayLike | None = None
    ) -> FloatArray:
        """Draw functions from the posterior.

        Parameters
        ----------
        X : array_like (m, D) or data frame
            Rows at which to draw their values.
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.
        offset : float or array_like (m,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (m,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.

        Returns
        -------
        ndarray (n, m)
            The draws of f; noise of the likelihood is not in them.
        """
        n, rng = arrays.check_integer(n, "n", low=0), arrays.make_generator(rng)
        return self._drawn(X, n, rng, offset, exposure)

    def _drawn(self, X, n, rng, offset, exposure):
        mean, covariance = self._predict_jointly(X, offset, exposure)
        # mean + Z R', Z (n, m), where the covariance is R R', (m, m)
        return mean + rng.standard_normal((n, len(mean))) @ find_root(covariance).T

    def summary(self, level: float = 0.95) -> Table:
        """Return a table of the hyperparameters: free ones of the covariance, those of the likelihood, and the mean.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.

        Returns
        -------
        Table
            It shows itself, and has `to_frame` for pandas; with standard errors and intervals of those that have some,
            from normal approximations of the logs of positive parameters, the logits of shares, and of others as they
            are.
        """
        if getattr(self, "_integrated_names", ()):
            table = self.integration.table(level)
            return replace(table, title=title_of(self), notes=list_notes(self), below=tabulate_mean(self, level))
        values, fitted = collect_hyperparameters(self.model, self.columns), getattr(self, "hyperparameters", None)
        by_name = {} if fitted is None else dict(zip(fitted.names, fitted.sd, strict=True))
        errors = [by_name.get(name) for name in values]
        scales = [choose_scale(name, self.model.likelihood) for name in values]
        shown = {slot.full_name: slot.name_with(self.columns) for slot in slots.list_free_slots(self.model.covariance)}
        names = label_thresholds([shown.get(name, name) for name in values], self.classes)
        notes = list_notes(self)
        table = tabulate_estimates(
            title_of(self), names, list(values.values()), errors, notes, scales=scales, level=level
        )
        return replace(table, below=tabulate_mean(self, level))
