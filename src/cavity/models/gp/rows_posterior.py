"""What posteriors of a `GaussianProcess` share, dense ones and chains: rows, sites, updates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cavity import likelihoods
from cavity.base.observation_digest import ObservationDigest
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.base.records import Array, Nullable, Part, declare, names
from cavity.base.results import declare_common, format_count, format_table, list_name_rows, shorten_repr
from cavity.base.rows import Rows
from cavity.distributions.gaussian import Gaussian
from cavity.ep.options import Options
from cavity.models.formula.design import Coding
from cavity.models.formula.saved import CODING_SETTING
from cavity.models.gp.integrated_process import IntegratedProcess
from cavity.models.gp.saved import EP_SETTINGS, MODEL_SETTINGS
from cavity.models.gp.search import add_standard_errors
from cavity.models.hyperparameters import Hyperparameters
from cavity.models.integration import INTEGRATION_DESCRIPTION, INTEGRATION_PART, Integration
from cavity.models.latent_posterior import SitesPosterior
from cavity.models.observations import Observations
from cavity.models.predictive_densities import integrate_log_density
from cavity.models.process.model import add_prior_means
from cavity.models.process.predictions import ProcessPosterior
from cavity.models.process.saved import EP_OPTIONS
from cavity.models.process.settings import Settings, compute_gaussian_log_density
from cavity.runs.executors import Threads, single_blas
from cavity.sources.dataset import Dataset
from cavity.sources.dense_rows import read_dense

if TYPE_CHECKING:
    from cavity.models.gp.model import GaussianProcess

PRIOR_MEAN_ROUNDING = 1e-10  # of the terms of a prior mean, which another machine may sum in another order


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RowsPosterior(IntegratedProcess, SitesPosterior, ProcessPosterior):
    """Base of posteriors of a `GaussianProcess`.

    A subclass has ``_build(model, evidence, point, **fields)``, ``_check_size(n)`` of n new rows, and
    ``_make_evidence(rows, threads, start, extends)``; `extends` says that the rows begin with its own.
    """

    model: GaussianProcess = declare(Part(MODEL_SETTINGS), "The settings, with the hyperparameters found.")
    X: FloatArray = declare(Array("N D"), "The rows.")
    mean: FloatArray = declare(Array("N"), "Posterior mean of f at the rows.")
    variance: FloatArray = declare(Array("N", "nonnegative"), "Posterior variance of f at the rows.")
    _rows: Rows
    _options: Options = declare(EP_OPTIONS | EP_SETTINGS)
    columns: tuple[str, ...] | None = declare_common("columns", Nullable(names("D")))
    roles: dict[str, Any] | None = declare_common("roles")
    coding: Coding | None = declare(CODING_SETTING, "The formula of the mean: its columns are the last of X.", None)
    integration: Integration | None = declare(INTEGRATION_PART, INTEGRATION_DESCRIPTION, None)

    def __repr__(self) -> str:
        rows = format_count(self.n_samples, "row")
        rows += "" if self._rows.noise is None else ", noise_variance of every row"
        return format_table(
            f"{type(self).__name__}: {type(self.model.likelihood).__name__}, {rows}",
            [
                ("log_evidence", f"{self.log_evidence:.6f}"),
                *([] if self.integration is None else [("integration", self.integration.describe())]),
                ("covariance", shorten_repr(self.model.covariance)),
                ("likelihood", shorten_repr(self.model.likelihood)),
                ("mean", shorten_repr(np.asarray(self.model.mean).tolist())),
                *list_name_rows(self),
                self._outcome_row("exact" if self._exact else "EP"),
            ],
        )

    @property
    def _exact(self):
        return isinstance(self.model.likelihood, likelihoods.Gaussian)

    @property
    def n_features(self) -> int:
        """D."""
        return self.X.shape[1]

    @cached_property
    def has_offset(self) -> bool:
        """Whether the rows had offsets on top of the mean: predictions then need theirs."""
        mean = np.abs(np.atleast_1d(self.model.mean))
        size = mean[0] + np.abs(self.X) @ mean[1:] if len(mean) > 1 else mean[0]
        return bool(np.any(np.abs(self._rows.offset - self.model.prior_mean(self.X)) > PRIOR_MEAN_ROUNDING * size))

    @property
    def loo_log_density(self) -> FloatArray:
        """log p(y_i | the other rows) for every row, (N,), at the hyperparameters of the model.

        Exact for Gaussian noise; with EP free, from the cavities. A row of weight above one leaves one of its copies
        out; for a row of weight zero, which was not used, it is the predictive density.

        Raises
        ------
        ValueError
            If a cavity without a row is improper, naming the row.
        """
        return self._proper_loo()

    def _influences(self):
        """The influences of the rows, and the effective number of parameters unless leaving a site away is a refit."""
        return self._influence, None if self._exact else float(np.sum(self._rho * self.variance))

    @cached_property
    def observation_digest(self) -> ObservationDigest | None:
        """By which `compare` checks that posteriors are of the same y."""
        return ObservationDigest.of(self._rows.y, self.model.likelihood)

    @property
    def _row_weights(self):
        """The sample weights of the rows, None where all are one."""
        return self._rows.unequal_weights

    @property
    def sites(self) -> Any:
        """The sites as a batch of Gaussians in f, (N,); negative precisions are legitimate."""
        return Gaussian(self._tau, self._rho)

    def standard_errors(self) -> Hyperparameters:
        """Find how sure the data are of what was learnt, from the curvature of the log evidence at its maximum.

        This takes two fits for each number. A mean that was found counts as known.

        Returns
        -------
        Hyperparameters
            `hyperparameters` with standard errors; None where the evidence is flat, with a note that says so.

        Raises
        ------
        ValueError
            If nothing was learnt.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> X = np.linspace(0, 6, 30)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=30)
        >>> learnt = cavity.GaussianProcess(cavity.covariances.RBF()).fit(X, y).standard_errors()
        >>> learnt.names[1], round(learnt.values[1], 1), round(learnt.sd[1], 1)
        ('rbf.lengthscale', 1.5, 0.3)
        """
        if self.hyperparameters is None:
            raise ValueError("nothing was learnt: there is nothing to find standard errors of")
        if self._integrated_names:
            raise ValueError("hyperparameters are integrated: their posterior is integration.table()")
        in_use = self._rows.in_use
        with Threads(1) as threads, single_blas():
            start = self._tau[in_use], self._rho[in_use]
            evidence = self._make_evidence(self._rows, threads, start)
            return add_standard_errors(self.hyperparameters, self.model, evidence)

    @property
    def _has_noise(self):
        return self._rows.noise is not None

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Take in new rows at the hyperparameters of the model, which are not learnt again.

        Parameters
        ----------
        X : array_like (n, D)
            The new rows.
        y : array_like (n,) or str
            Their observations. What the fit took from columns of X, or its formula, is found there by its name,
            unless it is given.
        event : array_like (n,) or str, optional
            Of times y: 1 or True where the event was observed, 0 or False where it was not until then. Likelihoods of
            times take bounds (N, 2) as well, lower and upper, which need no events.
        offset : array_like (n,) or str, optional
            Known part of f.
        exposure : array_like (n,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        noise_variance : array_like (n,) or str, optional
            Known noise variances of the rows; needed if, and only if, the fit had them.
        sample_weight : array_like (n,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        posterior
            What a fit of all rows with ``learn=False`` returns; this one stays as it is.
            EP starts from the sites known; with Gaussian noise n new rows cost N^2 n operations.

        Raises
        ------
        ValueError, TypeError
            For bad rows, before any work.
        MemoryError, NotPositiveDefiniteError, OverflowError
            As `GaussianProcess.fit`.

        Warns
        -----
        ConvergenceWarning
            If EP did not converge.
        """
        self._refuse_update()
        columns = {"y": y, "offset": offset, "noise_variance": noise_variance, "sample_weight": sample_weight}
        columns |= {"event": event, "exposure": exposure}
        names = {"names": self.columns, "roles": self.roles}
        X = self._with_mean_columns(X)
        dataset = Dataset.open(X, columns, **names, check_size=self._check_size)
        X = read_dense(dataset, self.n_features)
        observations = Observations.of(self.model.likelihood, dataset, fitted=self)
        if (observations.noise is None) != (self._rows.noise is None):
            raise ValueError("noise_variance must be given for all rows or for none, like in the fit")
        rows = add_prior_means(self.model, observations.rows(X))
        joined, fresh = self._rows.joined(rows), np.zeros(int(rows.in_use.sum()))
        start = tuple(np.append(a[self._rows.in_use], fresh) for a in (self._tau, self._rho))
        with Threads(1) as threads, single_blas():
            evidence = self._make_evidence(joined, threads, start, extends=True)
            point = evidence.at(Settings(self.model.covariance, self.model.likelihood))
            labels = observations.labels | {"columns": self.columns or observations.names, "dropped": self.dropped}
            labels["coding"] = self.coding
            labels["hyperparameters"] = self.hyperparameters
            posterior = type(self)._build(self.model, evidence, point, **labels)
        if point.fit is not None:
            point.fit.warn(self._options)
        return posterior

    def _completed(self):
        """This posterior with its results for rows not in use: predictions where weights are zero, and known values."""
        rows, likelihood = self._rows, self.model.likelihood
        mean, variance, loo = (values.copy() for values in (self.mean, self.variance, self._loo))
        if rows.f_known is not None:
            loo[rows.f_known] = rows.log_p_known(likelihood)[0]
        out = rows.left_out
        if out.any():
            new = rows.part(out)
            offset = new.offset - self.model.prior_mean(new.X)
            mean[out], variance[out] = moments = self.predict(new.X, offset=offset)
            if rows.noise is None:
                loo[out] = integrate_log_density(likelihood, new.y, *moments)
            else:
                loo[out] = compute_gaussian_log_density(new.y, moments[0], moments[1] + new.noise)
        return replace(self, mean=mean, variance=variance, _loo=loo)
