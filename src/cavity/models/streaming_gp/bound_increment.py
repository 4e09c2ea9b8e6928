"""The increment F of the log bound by a batch, and its gradient in the settings, at given inducing points.

The old factor comes from `old_data_factor`. With B = I + A, mu = B^-1 r, E = B^-1 + mu mu' and q_n = dF/d residual_n
= fraction/2 ((tau_n - rho_n m_n)^2 + rho_n^2 v_n) - rho_n/2, the gradients are ::

    dF/dk(x_n, x_n) = q_n,    dF/dW_n = -rho_n B^-1 W_n + (tau_n - rho_n m_n) mu - 2 q_n W_n,
    dF/dK_bb = -L^-T (E - I + R) L^-1/2,    R = -2 sum_n q_n W_n W_n' and the same of old variables,

the last because F does not depend on which root of K_bb is taken. Rows come in blocks of a fixed size, whose statistics
are added up in their order.

References
----------
.. [T] M. K. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009, eq. 9.
.. [BYT] T. D. Bui, J. Yan and R. E. Turner, "A unifying framework for Gaussian process pseudo-point approximations
   using power expectation propagation", JMLR 18, 2017.
"""

import threading
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas, lapack

from cavity.base.errors import check_within_range
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.triangles import fill_symmetric, solve_rows
from cavity.covariances.program import get_program
from cavity.covariances.slots import compute_gradient, gather_free_gradient
from cavity.ep.options import Options
from cavity.ep.site_updates import find_cavities
from cavity.ep.sites import Sites
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods.parameters import FreeParameters, differentiate
from cavity.linalg import tiled
from cavity.models.process.settings import Settings
from cavity.models.streaming_gp.inducing_basis import ROWS_PER_BLOCK, InducingBasis, Information
from cavity.models.streaming_gp.new_data_factor import RowSites, add_rows_by_ep
from cavity.models.streaming_gp.old_data_factor import MappedFactor, OldFactorMap
from cavity.models.streaming_gp.rows import MAX_KEPT_NUMBERS, compute_fractions, is_exact


@dataclass(slots=True, eq=False)
class IncrementPoint:
    """The posterior of w at some settings, and the factors that it is made of."""

    settings: Settings
    basis: InducingBasis
    sites: RowSites
    information: Information
    mapped: MappedFactor | None
    log_evidence: float  # the increment
    fit: object = None  # of EP
    by_rows: np.ndarray | None = None  # (M, M), lower triangle: the part of A that comes from the rows
    mean: np.ndarray | None = None  # mu
    inverse: np.ndarray | None = None  # B^-1

    @property
    def converged(self):
        """Whether EP did, if it was needed."""
        return self.fit is None or self.fit.status == CONVERGED_STATUS

    def prepare(self):
        """Find mean and inverse of the posterior."""
        if self.inverse is None:
            self.mean = self.information.mean()
            factor = self.information.factor
            self.inverse = fill_symmetric(lapack.dpotri(factor, lower=1)[0]) if factor.size else np.zeros((0, 0))


class BoundIncrement:
    """The increment of the log bound by a batch as a function of the settings, at fixed inducing points.

    Parameters
    ----------
    old : (Basis, Information) or None
        The state before.
    Z : ndarray, shape (M, D)
        Inducing points after the batch, distinct.
    rows : Rows
        The batch.
    model : StreamingGP
        Of which mean, alpha and jitter count here.
    threads : Threads
        Threads for blocks of rows.
    options : Options, optional
        Those of EP, for other likelihoods than Gaussian.
    pooled : bool, default False
        Whether the noise variance is that of all rows before, too: their factor is known at any. They must have the
        noise variance of the model, and alpha must be 0.
    """

    def __init__(self, old, Z, rows, model, threads, options=None, pooled=False):
        self.rows, self.model, self.threads = rows, model, threads
        self.options = Options(tol=0.0) if options is None else replace(options, job=SILENT_JOB)
        self.alpha, self.jitter, self.pooled = model.alpha, model.jitter, pooled
        self.Z = np.ascontiguousarray(Z, dtype=np.float64)
        self.old_map = None if old is None or old[0].n == 0 else OldFactorMap(old, self.Z, self.alpha)
        self.before = (0.0, 0.0) if old is None else (old[1].constant, old[1].log_bound)
        blocks = rows.spans()
        self.base = rows.compute_prior_means(model, threads)
        # pages of fresh memory cost as much as the products: W of the first blocks, for the latest settings
        n_stored = min(len(blocks), MAX_KEPT_NUMBERS // max(1, len(self.Z) * ROWS_PER_BLOCK))
        self.kept_features = [np.empty((stop - start, len(self.Z))) for start, stop in blocks[:n_stored]]
        self.residuals, self.latest = [None] * n_stored, None
        self.local = threading.local()
        self.start = None

    def at(self, settings, *, sites=None, **ep):
        """Return the IncrementPoint at some settings, which owns W until the next call.

        `sites` are those on f if they are given; `ep` are options of EP that replace those of this object.
        """
        basis = InducingBasis.of(settings.covariance, self.Z, self.jitter, self.threads)
        mapped, fit, log_t = None, None, 0.0  # of the noise variance over that which the factor of the old rows has
        if self.pooled:
            log_t = float(np.log(settings.likelihood.noise_variance / self.model.likelihood.noise_variance))
        if self.old_map is None:
            information = Information.empty(basis.n, self.before[0])
        else:
            mapped = self.old_map.at(basis, self.threads, log_t)
            information = mapped.to_information(self.old_map.information)
        if sites is None and is_exact(settings.likelihood):
            sites = RowSites.gaussian(
                self.rows.weight(), self.rows.noise_variance(settings.likelihood), self.rows.y - self.base, self.alpha
            )
        elif sites is None:
            information = information.factorise()
            sites, fit = self._run_ep(basis, information, settings, ep)
        return self._solve(settings, basis, sites, information, mapped, fit)

    def _run_ep(self, basis, information, settings, options):
        """Sites on f, and what EP found, from the sites of the last settings at which it came to rest."""
        model = replace(self.model, covariance=settings.covariance, likelihood=settings.likelihood)
        options = replace(self.options, **options)
        fit = add_rows_by_ep(basis, information, self.rows, model, self.alpha, options, self.threads, start=self.start)
        if fit.status == CONVERGED_STATUS:
            self.start = fit.tau, fit.rho
        return RowSites(fit.tau, fit.rho, compute_fractions(self.rows.weight(), self.alpha)), fit

    def _solve(self, settings, basis, sites, information, mapped, fit):
        """The IncrementPoint with the rows' sites on top of the old factor."""

        def task(X, start):
            own, index = sites.part(slice(start, start + len(X))), start // ROWS_PER_BLOCK
            W = self.kept_features[index] if index < len(self.kept_features) else None
            A, r, numbers, residual = basis.add_rows(X, own, self.threads, W)
            if W is not None:
                self.residuals[index] = residual
            return A, r, own.constant_of(numbers)

        A, r, constant = information.A, information.r, information.constant + sites.constant
        by_rows = np.zeros_like(A)
        if self.rows.n:
            by_rows, more, extra = self.rows.sum_blocks(task, self.threads)
            A, r, constant = A + by_rows, r + more, constant + extra
        out = Information.of(A, r, constant).factorise()
        value = (out if fit is None else fit.information).log_bound - self.before[1]
        check_within_range(np.array([value]), "the increment of the log bound")
        self.latest = IncrementPoint(settings, basis, sites, out, mapped, value, fit, by_rows)
        return self.latest

    def gradient(self, solution, free=None):
        """Return the gradient in the log parameters of the covariance, nothing for the mean, and in the likelihood's.

        Those of the likelihood are the `FreeParameters` given, or else its log scales.
        """
        solution.prepare()
        basis, covariance = solution.basis, solution.settings.covariance
        total = np.zeros(len(covariance.log_parameters))
        # R of S = E - I + R, with which -L^-T S L^-1/2 is the gradient in K_bb
        R, slope = 0.0, 0.0
        if self.rows.n:
            rule = self._make_variational_task if _is_variational(solution) else self._make_power_task
            rule = rule if basis.n else self._make_prior_task
            has_features, self.latest = self.latest is solution, solution
            task = rule(solution, has_features)
            total, R, slope = self.rows.sum_blocks(task, self.threads)
        if _is_variational(solution):
            R = solution.by_rows
            slope += 0.5 * float(np.sum(solution.inverse * fill_symmetric(R)))
        S = fill_symmetric(R) + np.outer(solution.mean, solution.mean) + solution.inverse
        diagonal = np.einsum("ii->i", S)
        diagonal -= 1.0
        across, by_residual = None, None
        if solution.mapped is not None:
            across, by_residual = self.old_map.compute_gradients(solution.mapped, solution)
            S -= 2.0 * solution.mapped.across.T @ by_residual @ solution.mapped.across
        weights = -0.5 * solve_rows(basis.factor, solve_rows(basis.factor, S, 1).T.copy(), 1)
        if across is not None:
            across = solve_rows(basis.factor, np.ascontiguousarray(across), 1)
            weights[self.old_map.new_index] += across[self.old_map.kept_index]
            total = total + self._old_gradient(covariance, across[self.old_map.lost_index], by_residual)
            slope += self.old_map.differentiate_by_noise(solution.mapped, solution) if self.pooled else 0.0
        total = total + self._among(covariance, self.Z, 0.5 * (weights + weights.T))
        return total, np.zeros(0), self._likelihood_gradient(solution, free, slope)

    def _get_scratch(self, index, n):
        """One of three matrices (n, M) of this thread."""
        if not hasattr(self.local, "matrices"):
            self.local.matrices = np.empty((3, min(ROWS_PER_BLOCK, self.rows.n), len(self.Z)))
        return self.local.matrices[index, :n]

    def _compute_features(self, basis, X, start):
        """W and residuals of a block X under a basis; W belongs to this object."""
        index = start // ROWS_PER_BLOCK
        W = self.kept_features[index] if index < len(self.kept_features) else self._get_scratch(0, len(X))
        W, residual = basis.features(X, self.threads, out=W)
        if index < len(self.kept_features):
            self.residuals[index] = residual
        return W, residual

    def _read_block(self, solution, has_features, X, start):
        """Return W and residuals of a block X for a solution, and its sites on g; with `has_features` W was kept."""
        index, block = start // ROWS_PER_BLOCK, slice(start, start + len(X))
        if has_features and index < len(self.kept_features):
            W, residual = self.kept_features[index], self.residuals[index]
        else:
            W, residual = self._compute_features(solution.basis, X, start)
        sites = solution.sites.part(block)
        tau, rho = sites.on_features(residual)
        return W, residual, sites, tau, rho

    def _make_prior_task(self, solution, has_features):
        """A task for blocks without inducing points, where all variance of f is residual."""

        def task(X, start):
            _, residual, sites, tau, rho = self._read_block(solution, has_features, X, start)
            q = 0.5 * (sites.fraction * tau**2 - rho)
            slope = self._noise_slope(start, sites, 0.0, 0.0, residual, rho)
            by_prior = solution.basis.program.diagonal_contract(X, q)
            return gather_free_gradient(solution.settings.covariance, by_prior, X.shape[1]), np.zeros((0, 0)), slope

        return task

    def _make_variational_task(self, solution, has_features):
        """A task for blocks where alpha = 0: q_n = -rho_n/2, and R is what the rows add to A."""
        basis, mu = solution.basis, solution.mean
        within = -solution.inverse
        diagonal = np.einsum("ii->i", within)
        diagonal += 1.0
        pull = blas.dtrsm(1.0, basis.factor, within, lower=1, trans_a=1)  # L^-T (I - B^-1), (M, M)
        back = blas.dtrsv(basis.factor, mu, lower=1, trans=1)  # L^-T mu, (M,)

        def task(X, start):
            W, residual, sites, tau, rho = self._read_block(solution, has_features, X, start)
            m, weights = W @ mu, self._get_scratch(1, len(W))
            equal = rho.min() == rho.max()
            scaled = W if equal else np.multiply(W, rho[:, None], out=self._get_scratch(2, len(W)))
            factor = rho[0] * pull.T if equal else pull.T
            # diag(rho) W pull' (n, M) (M, M), plus (tau - rho m) back', (n,) and (M,)
            np.matmul(scaled, factor, out=weights)
            blas.dger(1.0, back, tau - rho * m, a=weights.T, overwrite_a=1)
            slope = self._noise_slope(start, sites, m, 0.0, residual, rho)
            return self._contract(solution, X, weights, -0.5 * rho), 0.0, slope

        return task

    def _make_power_task(self, solution, has_features):
        """A task for blocks where alpha > 0."""
        basis, mu, inverse = solution.basis, solution.mean, solution.inverse
        triangle = np.ascontiguousarray(basis.factor)

        def task(X, start):
            W, residual, sites, tau, rho = self._read_block(solution, has_features, X, start)
            fraction, m = sites.fraction, W @ mu
            weights, scaled = self._get_scratch(1, len(W)), self._get_scratch(2, len(W))
            np.matmul(W, inverse, out=weights)  # W B^-1, (n, M) (M, M)
            v, gradient = np.einsum("ij,ij->i", W, weights), tau - rho * m
            q = 0.5 * fraction * (gradient**2 + rho**2 * v) - 0.5 * rho
            np.multiply(W, 2.0 * q[:, None], out=scaled)
            weights *= -rho[:, None]
            weights -= scaled
            R = -(scaled.T @ W)  # -2 W' diag(q) W, (M, M)
            blas.dger(1.0, mu, gradient, a=weights.T, overwrite_a=1)  # plus (tau - rho m) mu', (n,) and (M,)
            slope = self._noise_slope(start, sites, m, v, residual, rho)
            return self._contract(solution, X, tiled.solve(triangle, weights, transposed=True), q), R, slope

        return task

    def _contract(self, solution, X, weights, prior):
        """Gradient of weights (n, M) times covariances of rows with Z, and weights (n,) times their variances."""
        covariance = solution.settings.covariance
        by_prior = solution.basis.program.diagonal_contract(X, prior)
        return compute_gradient(covariance, X, weights, self.Z, self.threads) + gather_free_gradient(
            covariance, by_prior, X.shape[1]
        )

    def _noise_slope(self, start, sites, m, v, residual, rho):
        """Return the derivative of the terms of a block in the log of the variance of Gaussian noise."""
        if sites.y is None or self.rows.noise is not None:
            return 0.0
        weight = np.broadcast_to(self.rows.weight(), self.rows.y.shape)[start : start + len(rho)]
        share = rho * (1.0 - sites.fraction * rho * residual)
        return 0.5 * float(np.sum(share * (v + (sites.y - m) ** 2) + rho * residual - weight))

    def _old_gradient(self, covariance, across, by_residual):
        """Return the gradient by old variables that are not kept: with the new ones, and among themselves."""
        old = self.old_map.rows
        if not len(old):
            return 0.0
        return compute_gradient(covariance, old, across, self.Z, self.threads) + self._among(
            covariance, old, by_residual
        )

    def _among(self, covariance, Z, weights):
        """Gradient of weights times the covariances of inducing variables, nuggets included."""
        if not len(Z):
            return np.zeros(len(covariance.log_parameters))
        nuggets = get_program(covariance, Z.shape[1]).diagonal_contract(Z, self.jitter * np.diagonal(weights))
        return compute_gradient(covariance, Z, weights, None, self.threads) + gather_free_gradient(
            covariance, nuggets, Z.shape[1]
        )

    def _likelihood_gradient(self, solution, free, slope):
        """Derivatives in the free numbers of the likelihood."""
        likelihood = solution.settings.likelihood
        if solution.fit is None:
            return np.array([slope]) if self.rows.noise is None else np.zeros(0)
        free = FreeParameters.scales(likelihood) if free is None else free
        if not free.size:
            return np.zeros(0)
        mean, variance = self._compute_cavities(solution)

        def total(likelihood):
            return Sites(likelihood, self.rows.y, self.rows.weights, self.alpha).total(mean, variance)

        return differentiate(free, likelihood, total)

    def _compute_cavities(self, solution):
        """Means and variances of f under the cavities."""

        def task(X, start):
            W, residual, sites, tau, rho = self._read_block(solution, True, X, start)
            part = slice(start, start + len(X))
            m, v = W @ solution.mean, np.einsum("ij,ij->i", W, W @ solution.inverse)
            m, v, _ = find_cavities(self.base[part] + m, v, tau + rho * self.base[part], rho, sites.fraction)
            return m, v + residual

        parts = self.rows.map_blocks(task, self.threads)
        return tuple(np.concatenate(values) for values in zip(*parts, strict=True))


def _is_variational(solution):
    """Whether the rows have alpha = 0."""
    return not np.any(solution.sites.fraction)
