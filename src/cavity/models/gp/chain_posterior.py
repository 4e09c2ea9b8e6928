"""The posterior of a `GaussianProcess` over one column as a chain: predictions by interpolation between its states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from cavity.base import arrays
from cavity.base.errors import NotPositiveDefiniteError
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.public_objects import ArrayLike, Data, FloatArray
from cavity.base.results import freeze_arrays
from cavity.ep.chain import ChainFilter, Times, find_sum, unpack
from cavity.models.gp.chain_end import GaussianProcessEndPosterior
from cavity.models.gp.chain_evidence import ChainEvidence
from cavity.models.gp.chain_processes import gather_gradient, make_blocks
from cavity.models.gp.evidence import leave_one_out_exactly, make_fit
from cavity.models.gp.rows_posterior import RowsPosterior
from cavity.models.gp.saved import CHAIN_RECORD
from cavity.models.row_predictions import name_moments, predict_rows


def build_chain_posterior(model, evidence, point, search=None, hyperparameters=None, **labels):
    """Return the posterior of the rows at a point of their evidence, the end of a `search` for settings if any."""
    rows, belief, likelihood = evidence.all_rows, point.belief, point.settings.likelihood
    exact = {}
    if point.fit is None:
        rows_used, left = evidence.rows, belief.complete().curvature / belief.h
        exact["_loo"] = leave_one_out_exactly(
            rows_used, likelihood, point.geometry.base + belief.mean, belief.variance, belief.alpha, left
        )
    fit = make_fit(evidence.rows, point)
    model, known_mean = point.settings.put_in(model), point.settings.basis is None
    status, trace = (CONVERGED_STATUS, {"learning": np.zeros(0)}) if search is None else (search.status, search.trace)
    rows = rows if known_mean else replace(rows, offset=rows.offset + model.prior_mean(rows.X))
    values = {"_loo": fit.loo, "_influence": fit.influence, "_tau": fit.tau, "_rho": fit.rho} | exact
    out = GaussianProcessChainPosterior(
        model=model,
        X=rows.X,
        mean=rows.scattered(point.geometry.base + belief.mean, rows.offset),
        variance=rows.scattered(belief.variance, 0.0),
        log_evidence=point.log_evidence,
        n_samples=rows.n,
        trace=fit.trace | trace,
        **fit.outcome(status),
        **labels,
        **{name: None if value is None else rows.scattered(value, 0.0) for name, value in values.items()},
        _rows=rows,
        _options=evidence.options,
        hyperparameters=hyperparameters if search is None else search.hyperparameters,
    )
    return out if rows.in_use.all() else out._completed()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GaussianProcessChainPosterior(RowsPosterior):
    """The posterior of a `GaussianProcess` over one column as a chain, given N rows.

    Notes
    -----
    All costs are linear in N. There is no covariance of all rows; `predict_covariance` has that of some, at a cost of
    N + n^2 for n of them. States between the rows are those of a Kalman filter and smoother,
    which predictions compute once from the sites.

    `converged` includes the stopping rule of the search for hyperparameters, whose `standard_errors` are computed on
    demand. In `trace`, "learning" has the log evidence plus log prior of every fixed point of the search.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> t = np.arange(5000) / 50.0
    >>> y = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(t)))
    >>> model = cavity.GaussianProcess(cavity.covariances.Matern32(), "poisson", mean=1.0)
    >>> posterior = model.fit(t[:, None], y, learn=False)
    >>> type(posterior).__name__
    'GaussianProcessChainPosterior'
    >>> mean, variance = posterior.predict([[50.0], [101.0]])
    >>> np.sqrt(variance).round(2).tolist()
    [0.15, 0.89]
    """

    kind: ClassVar[str] = "gaussian_process_chain"
    record: ClassVar[Any] = CHAIN_RECORD

    def __post_init__(self) -> None:
        freeze_arrays(self)
        freeze_arrays(self._rows)

    @classmethod
    def _build(cls, model, evidence, point, **fields):
        return build_chain_posterior(model, evidence, point, **fields)

    def _check_size(self, n):
        """Chains have no matrices of all rows."""

    def _make_evidence(self, rows, threads, start, extends=False):
        """Return the evidence of rows."""
        return ChainEvidence(self.model.likelihood, rows, threads, self._options, start)

    def _filter(self, times, rho, g):
        """Return the filter of sites at times, in the order of rows."""
        return ChainFilter(make_blocks(self.model.covariance), times, times.take(rho), times.take(g))

    @cached_property
    def _sites_in_use(self):
        """Times, rho and g of the rows in use."""
        keep = self._rows.in_use
        rho = self._rho[keep]
        # tau - rho base; of exact fits rho (y - base), which has more digits
        base = self._rows.offset[keep]
        g = rho * (self._rows.y[keep] - base) if self._exact else self._tau[keep] - rho * base
        return self.X[keep, 0], rho, g

    @cached_property
    def _smoother(self):
        """The states between the rows in use."""
        times, rho, g = self._sites_in_use
        return self._filter(Times(times), rho, g).smooth(slopes=True)

    @predict_rows(lambda self, **_: (2,), pair=True, columns=name_moments, on_collections=False)
    def predict_filtered(
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
        """Predict f at new rows, or a new observation y, each given the rows of the fit up to its time only.

        These are filtered moments, those of a Kalman filter, where `predict` has smoothed ones, given all rows. Rows at
        the time itself count. Before the first row they are the prior's, from the last one on those of `predict`.

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
            Of f, or of y, given the rows up to each time; or a pandas.DataFrame.

        Raises
        ------
        ValueError, TypeError, OverflowError
            As in `predict`.
        NotPositiveDefiniteError
            Where some sites have negative precisions, as outliers have under Student t noise: if those up to a time
            have no proper posterior without later ones.

        Notes
        -----
        Hyperparameters and the mean are those of the fit, which has seen all rows. With Gaussian noise the moments are
        those of a fit of the earlier rows with these settings. With other likelihoods the Gaussian sites that stand for
        earlier rows are those that EP found with all rows; a fit of the earlier rows alone has slightly other ones.

        Examples
        --------
        >>> import cavity
        >>> noise = cavity.likelihoods.Gaussian(0.1)
        >>> model = cavity.GaussianProcess(cavity.covariances.Matern32(), noise, method="chain")
        >>> posterior = model.fit([[0.0], [1.0]], [0.3, 0.6], learn=False)
        >>> (mean, variance), (smoothed, _) = posterior.predict_filtered([[0.5]]), posterior.predict([[0.5]])
        >>> mean.round(2).tolist(), smoothed.round(2).tolist()
        ([0.21], [0.45])
        """
        moments = self._latent(X, offset, exposure, n_threads, find_moments=self._filtered_moments)
        return self._observed(X, moments, noise, trials)

    def _filtered_moments(self, X, threads, cache):
        filtered, times = self._smoother.filtered, np.ascontiguousarray(X[:, 0])
        improper = ~filtered.proper_until[filtered.count_until(times)]
        if improper.any():
            raise NotPositiveDefiniteError(
                f"the rows up to time {times[np.argmax(improper)]:g} have no proper posterior without later ones: some "
                "of their sites have negative precisions; fit these rows alone"
            )
        return filtered.predict(times)

    def keep_end(self) -> GaussianProcessEndPosterior:
        """Return the state after the last row, to which later rows are added without those of this posterior.

        Returns
        -------
        GaussianProcessEndPosterior
            It predicts from the last time on.

        Examples
        --------
        >>> import cavity
        >>> noise = cavity.likelihoods.Gaussian(0.1)
        >>> model = cavity.GaussianProcess(cavity.covariances.Matern32(), noise, method="chain")
        >>> state = model.fit([[0.0], [1.0]], [0.3, 0.6], learn=False).keep_end()
        >>> state.update([[1.5]], [0.9]).state_mean.round(2).tolist()
        [0.81, 0.03]
        """
        filtered = self._smoother.filtered
        last, (_, from_sum) = filtered.moments[-1], find_sum(filtered.blocks)
        p = len(from_sum)
        shared = {"columns": self.columns, "roles": self.roles, "classes": self.classes, "_options": self._options}
        return GaussianProcessEndPosterior(
            model=self.model,
            time=float(filtered.times.sorted[-1]),
            state_mean=from_sum @ last[:p],
            state_covariance=from_sum @ unpack(last[None], p)[0] @ from_sum.T,
            log_evidence=self.log_evidence,
            n_samples=self.n_samples,
            has_offset=self.has_offset,
            _has_noise=self._has_noise,
            **shared,
        )

    @cached_property
    def log_evidence_gradient(self) -> Any:
        """Derivatives of log_evidence in the logs of the free parameters, in the order of their names.

        The names are ``model.covariance.parameter_names``. Right for a fit that has converged.
        """
        gradient = self._smoother.filtered.smooth(gradient=True).gradient
        return arrays.make_read_only(gather_gradient(self.model.covariance, gradient))

    def _moments(self, X, threads, cache):
        return self._smoother.predict(np.ascontiguousarray(X[:, 0]))

    def _joint(self, X, gram, threads):
        """New rows are rows without sites, of a filter and smoother of all."""
        times, rho, g = self._sites_in_use
        new, of_rows = np.unique(X[:, 0], return_inverse=True)
        all_times, zero = Times(np.concatenate([times, new])), np.zeros(len(new))
        smoother = self._filter(all_times, np.append(rho, zero), np.append(g, zero)).smooth(slopes=True)
        numbers = np.flatnonzero(all_times.take(np.arange(len(times) + len(new))) >= len(times))
        covariance = smoother.find_covariance(numbers)[np.ix_(of_rows, of_rows)]
        return self._smoother.predict(np.ascontiguousarray(X[:, 0]))[0], covariance

    def _project(self, variances, columns):
        """There are no coefficients in the covariance of a chain."""
        raise NotImplementedError
