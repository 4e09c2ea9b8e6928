"""The posterior of a `GaussianProcess`: what it predicts, how rows are added, how it is saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.public_objects import FloatArray
from cavity.base.records import Array, Part, declare
from cavity.base.results import freeze_arrays
from cavity.base.triangles import fill_symmetric
from cavity.covariances.program import ReferenceRows, get_program
from cavity.covariances.slots import compute_gradient
from cavity.ep import latent_solver
from cavity.ep.latent_solver import Solver
from cavity.models.gp.evidence import Evidence, allocate_matrices, compute_leave_one_out, make_fit
from cavity.models.gp.rows_posterior import RowsPosterior
from cavity.models.gp.saved import POSTERIOR_RECORD
from cavity.models.posterior_mixture import mix_covariances, mix_moments
from cavity.models.process.model import compute_prior_means
from cavity.models.process.predictions import ROWS_PER_TASK
from cavity.runs.executors import Threads, single_blas
from cavity.runs.merge import split_rows

LAZY_FIELDS = ("variance", "_loo")  # fields that an exact fit computes on first use: they cost as much again


def build_posterior(model, evidence, point, search=None, hyperparameters=None, **names):
    """Return the posterior of the rows at a point of their evidence, the end of a `search` for settings if any."""
    belief, rows, known_mean = point.belief, evidence.all_rows, point.settings.basis is None
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
    buffer = np.empty((min(len(X), ROWS_PER_TASK), len(alpha)))
    with single_blas():
        for start, stop in split_rows(len(X), ROWS_PER_TASK):
            cross = buffer[: stop - start]
            posterior._compared.cross(X[start:stop], cross)
            mean[start:stop] += cross @ alpha  # (n, U) (U,)
    return mean


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GaussianProcessPosterior(RowsPosterior):
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

    _alpha: FloatArray = declare(Array("U"))  # of the U rows in use
    _solver: Solver = declare(Part(Solver, "solver_"))

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
        rows, X = self._rows.used(), self._X_in_use
        with Threads(1) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            gram = np.empty((len(X), len(X)))
            get_program(self.model.covariance, X.shape[1]).gram(X, gram, threads)
            keep = self._rows.in_use
            site_values = self._rho[keep], self.mean[keep], self._alpha
            fields = compute_leave_one_out(rows, self.model.likelihood, gram, self._own_solver(), *site_values, threads)
        for name, values in zip(LAZY_FIELDS, fields, strict=True):
            vars(self)[name] = arrays.make_read_only(self._rows.scattered(values, 0.0))
        return vars(self)

    @cached_property
    def covariance(self) -> FloatArray:
        """Posterior covariance of f at the rows, (N, N)."""
        keep = self._rows.in_use
        if self._integrated_names:
            parts = [point.covariance for point in self._points]
            means = np.stack([self._rows.scattered(mean, self._rows.offset) for mean in self.integration.means])
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

    def _moments(self, X, threads, cache):
        if len(getattr(cache, "cross", ())) < len(X):  # new memory would have to be cleared for every block
            cache.cross = np.empty((len(X), len(self._alpha)))
        cross, prior = cache.cross[: len(X)], self._compared.program.diagonal(X)
        self._compared.cross(X, cross)
        return cross @ self._alpha, self._solver.find_variances(prior, cross)  # (n, U) (U,)

    def _project(self, variances, columns):
        """Return posterior moments of coefficients of some columns of X, of these prior variances."""
        if self._integrated_names:
            moments = [point._project(variances, columns) for point in self._points]
            return mix_moments(self.integration.weights, *(np.stack(part) for part in zip(*moments, strict=True)))
        cross = variances[:, None] * self._X_in_use[:, columns].T  # (p, U), covariances with f
        return cross @ self._alpha, self._solver.find_variances(variances, cross)

    def _joint(self, X, gram, threads):
        cross = np.empty((len(X), len(self._alpha)))
        self._compared.cross(X, cross)
        return cross @ self._alpha, self._solver.find_covariance(gram, cross)  # (n, U) (U,)

    def _check_size(self, n):
        """Raise MemoryError if there is no memory for the matrices of n more rows."""
        allocate_matrices(self.n_samples + n)

    def _make_evidence(self, rows, threads, start, extends=False):
        """Return the evidence of rows, which go on from the solver of an exact fit if they begin with its own."""
        solver = self._solver if extends and self._exact else None
        return Evidence(self.model.likelihood, rows, threads, self._options, start, solver)

    @classmethod
    def _build(cls, model, evidence, point, **fields):
        return build_posterior(model, evidence, point, **fields)


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
