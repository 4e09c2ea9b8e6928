"""The posterior of a `GaussianProcess`: what it predicts, how rows are added, how it is saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cavity import likelihoods
from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.observation_digest import ObservationDigest
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.base.records import Array, Nullable, Part, declare, names
from cavity.base.results import declare_common, format_table, freeze_arrays, list_name_rows, shorten_repr
from cavity.base.rows import Rows
from cavity.base.triangles import fill_symmetric
from cavity.covariances.program import ReferenceRows, get_program
from cavity.covariances.slots import compute_gradient
from cavity.distributions.gaussian import Gaussian
from cavity.ep import latent_solver
from cavity.ep.latent_solver import Solver
from cavity.ep.options import Options
from cavity.models.formula.design import Coding
from cavity.models.formula.saved import CODING_SETTING
from cavity.models.gp.evidence import Evidence, allocate_matrices, compute_leave_one_out, make_fit
from cavity.models.gp.integrated_process import IntegratedProcess
from cavity.models.gp.saved import EP_SETTINGS, POSTERIOR_RECORD
from cavity.models.gp.search import add_standard_errors
from cavity.models.hyperparameters import Hyperparameters
from cavity.models.integration import INTEGRATE_SETTING, INTEGRATION_DESCRIPTION, INTEGRATION_PART, Integration
from cavity.models.latent_posterior import SitesPosterior
from cavity.models.likelihood_settings import LIKELIHOOD_SETTING
from cavity.models.observations import Observations
from cavity.models.posterior_mixture import mix_covariances, mix_moments
from cavity.models.predictive_densities import integrate_log_density
from cavity.models.process.model import add_prior_means, compute_prior_means
from cavity.models.process.predictions import ROWS_PER_TASK, ProcessPosterior
from cavity.models.process.saved import COVARIANCE_SETTING, EP_OPTIONS
from cavity.models.process.settings import Settings, compute_gaussian_log_density
from cavity.runs.executors import Threads, single_blas
from cavity.runs.merge import split_rows
from cavity.sources.dataset import Dataset
from cavity.sources.dense_rows import read_dense

if TYPE_CHECKING:
    from cavity.models.gp.model import GaussianProcess

MODEL_SETTINGS = {"likelihood": LIKELIHOOD_SETTING, "covariance": COVARIANCE_SETTING, "integrate?": INTEGRATE_SETTING}
LAZY_FIELDS = ("variance", "_loo")  # fields that an exact fit computes on first use: they cost as much again
PRIOR_MEAN_ROUNDING = 1e-10  # of the terms of a prior mean, which another machine may sum in another order


def build_posterior(model, evidence, point, search=None, hyperparameters=None, **names):
    """Return the posterior of the rows at a point of their evidence, the end of a `search` for settings if any."""
    belief, rows, known_mean = point.belief, evidence.given, point.settings.basis is None
    fit = make_fit(evidence.rows, point)
    model = point.settings.put_in(model)
    status, trace = (CONVERGED_STATUS, {"learning": np.zeros(0)}) if search is None else (search.status, search.trace)
    solver = point.geometry.final_solver(belief)
    solver.clear()
    rows = rows if known_mean else replace(rows, offset=rows.offset + model.prior_mean(rows.X))
    out = GaussianProcessPosterior(
        model=model,
        X=rows.X,
        mean=rows.scattered(point.geometry.base + belief.mean, rows.offset),
        variance=None if belief.variance is None else rows.scattered(belief.variance, 0.0),
        log_evidence=point.log_evidence,
        n_samples=rows.n,
        trace=fit.trace | trace,
        **fit.outcome(status),
        **names,
        _loo=None if fit.loo is None else rows.scattered(fit.loo, 0.0),
        _influence=None if fit.influence is None else rows.scattered(fit.influence, 0.0),
        _tau=rows.scattered(fit.tau, 0.0),
        _rho=rows.scattered(fit.rho, 0.0),
        _alpha=belief.alpha,
        _rows=rows,
        _solver=solver,
        _options=evidence.options,
        hyperparameters=hyperparameters if search is None else search.hyperparameters,
    )
    out = out if rows.in_use.all() else out._completed()
    return out if search is None or search.integral is None else out._integrated(*search.integral)


def compute_latent_means(posterior, X):
    """Return the posterior means of f at checked rows (n, D), of a fit without offsets: the cheap half of `predict`."""
    mean, alpha = compute_prior_means(posterior.model, X), posterior._alpha
    room = np.empty((min(len(X), ROWS_PER_TASK), len(alpha)))
    with single_blas():
        for start, stop in split_rows(len(X), ROWS_PER_TASK):
            cross = room[: stop - start]
            posterior._compared.cross(X[start:stop], cross)
            mean[start:stop] += cross @ alpha  # (n, U) (U,)
    return mean


@dataclass(frozen=True, eq=False, repr=False)
class GaussianProcessPosterior(IntegratedProcess, SitesPosterior, ProcessPosterior):
    """The posterior of a `GaussianProcess`, given N rows.

    Notes
    -----
    With Gaussian noise variances, like leave-one-out densities, are computed when they are first used. `converged`
    includes the stopping rule of the search for hyperparameters, whose `standard_errors` are computed on demand. In
    `trace`, "learning" has the log evidence plus log prior of every fixed point of the search, and "seconds" when it
    was known, since the begin, which files do not keep.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> X, y = np.array([[0.0], [1.0], [3.0]]), [1, 1, 0]
    >>> model = cavity.GaussianProcess(cavity.covariances.RBF(4.0), cavity.likelihoods.Probit())
    >>> posterior = model.fit(X, y, learn=False)
    >>> round(posterior.log_evidence, 6), np.exp(posterior.loo_log_density).round(2).tolist()
    (-1.859635, [0.67, 0.62, 0.47])
    >>> posterior.predict_proba([[0.5], [2.0]])[:, 1].round(2).tolist()
    [0.88, 0.49]
    """

    model: GaussianProcess = declare(Part(MODEL_SETTINGS), "The settings, with the hyperparameters found.")
    X: FloatArray = declare(Array("N D"), "The rows.")
    mean: FloatArray = declare(Array("N"), "Posterior mean of f at the rows.")
    variance: FloatArray = declare(Array("N", "nonnegative"), "Posterior variance of f at the rows.")
    _alpha: FloatArray = declare(Array("U"))  # of the U rows in use
    _rows: Rows
    _solver: Solver = declare(Part(Solver, "solver_"))
    _options: Options = declare(EP_OPTIONS | EP_SETTINGS)
    columns: tuple[str, ...] | None = declare_common("columns", Nullable(names("D")))
    roles: dict[str, Any] | None = declare_common("roles")
    coding: Coding | None = declare(CODING_SETTING, "The formula of the mean: its columns are the last of X.", None)
    integration: Integration | None = declare(INTEGRATION_PART, INTEGRATION_DESCRIPTION, None)

    kind: ClassVar[str] = "gaussian_process"
    record: ClassVar[Any] = POSTERIOR_RECORD

    def __post_init__(self) -> None:
        later = [name for name in LAZY_FIELDS if vars(self)[name] is None]
        for name in later:
            del vars(self)[name]
        freeze_arrays(self, *later)
        for record in (self._rows, self._solver):
            freeze_arrays(record)

    def _settle(self):
        """Compute the LAZY_FIELDS of an exact fit, and return the attributes with them."""
        used, X = self._rows.used(), self._X_in_use
        with Threads(1) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            gram = np.empty((len(X), len(X)))
            get_program(self.model.covariance, X.shape[1]).gram(X, gram, threads)
            keep = self._rows.in_use
            known = self._rho[keep], self.mean[keep], self._alpha
            fields = compute_leave_one_out(used, self.model.likelihood, gram, self._own_solver(), *known, threads)
        for name, values in zip(LAZY_FIELDS, fields, strict=True):
            vars(self)[name] = arrays.make_read_only(self._rows.scattered(values, 0.0))
        return vars(self)

    def __repr__(self) -> str:
        noise = "" if self._rows.noise is None else ", noise_variance of every row"
        return format_table(
            f"GaussianProcessPosterior: {type(self.model.likelihood).__name__}, {self.n_samples} rows{noise}",
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
        """Whether the rows had offsets on top of the mean: predictions then want theirs."""
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
        """By which `compare` tells that posteriors are of the same y."""
        return ObservationDigest.of(self._rows.y, self.model.likelihood)

    @property
    def _row_weights(self):
        """The sample weights of the rows, None where all are one."""
        return self._rows.unequal_weights

    @property
    def sites(self) -> Any:
        """The sites as a batch of Gaussians in f, (N,); negative precisions are legitimate."""
        return Gaussian(self._tau, self._rho)

    @cached_property
    def covariance(self) -> FloatArray:
        """Posterior covariance of f at the rows, (N, N)."""
        keep = self._rows.in_use
        if self._integrated_names:
            parts = [each.covariance for each in self._points]
            means = np.stack([self._rows.scattered(each, self._rows.offset) for each in self.integration.means])
            return arrays.make_read_only(mix_covariances(self.integration.weights, means, np.stack(parts))[1])
        with Threads(1) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            gram = np.empty((self.n_samples, self.n_samples))
            get_program(self.model.covariance, self.X.shape[1]).gram(self.X, gram, threads)
            if keep.all():
                matrix = fill_symmetric(latent_solver.find_covariance(gram, self._own_solver(), self._rho, threads))
            else:
                matrix = self._solver.find_covariance(gram, gram[:, keep])
            return arrays.make_read_only(check_within_range(matrix, "covariance: its entries"))

    def _own_solver(self):
        """The solver, with a triangle that may be overwritten."""
        return replace(self._solver, triangle=self._solver.triangle.copy())

    @cached_property
    def log_evidence_gradient(self) -> Any:
        """Derivatives of log_evidence in the logs of the free parameters, in the order of their names.

        The names are ``model.covariance.parameter_names``. Right for a fit that has converged.
        """
        if self._integrated_names:
            raise ValueError("the log evidence is integrated over hyperparameters: it has no gradient in them")
        with Threads(1) as threads, single_blas():
            weights = latent_solver.find_evidence_weights(self._own_solver(), self._alpha, threads)
            gradient = compute_gradient(self.model.covariance, self._X_in_use, weights, None, threads)
            return arrays.make_read_only(gradient)

    @cached_property
    def _X_in_use(self):
        """X of the rows with sites, (U, D)."""
        return self._rows.used().X

    @cached_property
    def _compared(self):
        """The rows with sites as new rows are compared with them."""
        return ReferenceRows(get_program(self.model.covariance, self.n_features), self._X_in_use)

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
        used = self._rows.in_use
        with Threads(1) as threads, single_blas():
            start = self._tau[used], self._rho[used]
            evidence = Evidence(self.model.likelihood, self._rows, threads, self._options, start)
            return add_standard_errors(self.hyperparameters, self.model, evidence)

    def _moments(self, X, threads, cache):
        if len(getattr(cache, "cross", ())) < len(X):  # new memory would have to be cleared for every block
            cache.cross = np.empty((len(X), len(self._alpha)))
        cross, prior = cache.cross[: len(X)], self._compared.program.diagonal(X)
        self._compared.cross(X, cross)
        return cross @ self._alpha, self._solver.find_variances(prior, cross)  # (n, U) (U,)

    def _project(self, variances, columns):
        """Return posterior moments of coefficients of some columns of X, of these prior variances."""
        if self._integrated_names:
            moments = [each._project(variances, columns) for each in self._points]
            return mix_moments(self.integration.weights, *(np.stack(part) for part in zip(*moments, strict=True)))
        cross = variances[:, None] * self._X_in_use[:, columns].T  # (p, U), covariances with f
        return cross @ self._alpha, self._solver.find_variances(variances, cross)

    def _joint(self, X, gram, threads):
        cross = np.empty((len(X), len(self._alpha)))
        self._compared.cross(X, cross)
        return cross @ self._alpha, self._solver.find_covariance(gram, cross)  # (n, U) (U,)

    def _check_noise_is_known(self, what):
        if self._rows.noise is not None:
            raise ValueError(
                f"{what} has no meaning where every row had a noise_variance of its own; add yours to predict"
            )

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
    ) -> GaussianProcessPosterior:
        """Take in new rows at the hyperparameters of the model, which are not learnt again.

        Parameters
        ----------
        X : array_like (n, D)
            The new rows.
        y : array_like (n,) or str
            Their observations. What the fit took from columns of X, or its formula says, is found there by its name,
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
        GaussianProcessPosterior
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
        dataset = Dataset.open(X, columns, **names, check_size=lambda n: allocate_matrices(self.n_samples + n))
        X = read_dense(dataset, self.n_features)
        observations = Observations.of(self.model.likelihood, dataset, fitted=self)
        if (observations.noise is None) != (self._rows.noise is None):
            raise ValueError("noise_variance must be given for all rows or for none, like in the fit")
        rows = add_prior_means(self.model, observations.rows(X))
        joined, fresh = self._rows.joined(rows), np.zeros(int(rows.in_use.sum()))
        start = tuple(np.append(a[self._rows.in_use], fresh) for a in (self._tau, self._rho))
        with Threads(1) as threads, single_blas():
            known = self._solver if self._exact else None
            evidence = Evidence(self.model.likelihood, joined, threads, self._options, start, known)
            point = evidence.at(Settings(self.model.covariance, self.model.likelihood))
            labels = observations.labels | {"columns": self.columns or observations.names, "dropped": self.dropped}
            labels["coding"] = self.coding
            posterior = build_posterior(self.model, evidence, point, hyperparameters=self.hyperparameters, **labels)
        if point.fit is not None:
            point.fit.warn(self._options)
        return posterior

    def _completed(self):
        """This posterior with what it says of rows not in use: predictions where weights are zero, and known values."""
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


def _make_lazy_field(name):
    """Return the attribute of the class for one of LAZY_FIELDS: it is called where an instance has no value."""

    def compute(posterior):
        """Posterior variances of f, or leave-one-out log densities, (N,); of an exact fit computed on first use."""
        return posterior._settle()[name]

    later = cached_property(compute)
    later.__set_name__(GaussianProcessPosterior, name)
    return later


for _name in LAZY_FIELDS:
    setattr(GaussianProcessPosterior, _name, _make_lazy_field(_name))
