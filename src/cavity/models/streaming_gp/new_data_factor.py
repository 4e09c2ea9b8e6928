"""The factor of new rows, exp(E_2(b)): sums over blocks for Gaussian noise, EP for other likelihoods.

With W = K_fb L^-T, residual_n = k_nn - |W_n|^2 (the diagonal of Q_f) and b = L w, ::

    E_2(b) = log N(y; W w, noise) - tr(noise^-1 Q_f)/2        [J]_ (E_2)

adds W' diag(1/noise) W to A and W'(y/noise) to r, see `Information`. Sites (tau, rho) of other likelihoods stand in for
(y/noise, 1/noise).

References
----------
.. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": E_1, E_2 and q_opt.
.. [BYT] T. D. Bui, J. Yan and R. E. Turner, "A unifying framework for Gaussian process pseudo-point approximations
   using power expectation propagation", JMLR 18, 2017.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import NotPositiveDefiniteError, check_within_range
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.triangles import solve_rows
from cavity.ep.dense import Dense
from cavity.ep.engine import Engine
from cavity.ep.site_updates import find_cavities
from cavity.ep.sites import Sites
from cavity.likelihoods.predictive import MIN_VARIANCE
from cavity.models.streaming_gp.inducing_basis import ROWS_PER_BLOCK, Information
from cavity.models.streaming_gp.rows import CALLING_THREAD, compute_fractions

MIN_SHRINKAGE = 1e-10  # of 1/(1 + rho residual): below, a site on f is not computed from that on g
MIN_EXPLAINED_SHARE = 1e-20  # of the variance of f, explained by inducing variables, for a site to act on them


@dataclass(frozen=True, slots=True, eq=False)
class RowSites:
    """Sites on the f of rows; those of Gaussian noise have the observations y."""

    tau: np.ndarray  # (N,)
    rho: np.ndarray  # (N,)
    fraction: np.ndarray  # (N,) or (1,)
    y: np.ndarray | None = None  # (N,): tau/rho
    constant: float = 0.0  # of the log bound, whatever the covariance

    @classmethod
    def gaussian(cls, weight, noise, target, alpha):
        """Return the sites of Gaussian noise of variances `noise`: a row of weight w is w rows."""
        rho = np.broadcast_to(check_within_range(weight / noise, "precisions of the noise"), target.shape)
        # -sum_n weight_n log(2 pi noise_n)/2
        constant = -0.5 * _sum_over(weight * (LOG_2PI + np.log(noise)), len(target))
        return cls(rho * target, np.ascontiguousarray(rho), compute_fractions(weight, alpha), target, constant)

    def part(self, block):
        """Return the sites of a slice of rows."""
        fraction = self.fraction[block] if len(self.fraction) > 1 else self.fraction
        return RowSites(self.tau[block], self.rho[block], fraction, None if self.y is None else self.y[block])

    def on_features(self, residual):
        """Return tau and rho of the sites on g, f = g + noise of variance `residual`.

        Each is the integral of N(f; g, residual) site(f)^fraction, to the power 1/fraction [BYT]_ (section 3.4).
        """
        spread = 1.0 + self.fraction * self.rho * residual
        return self.tau / spread, self.rho / spread  # (tau, rho)/(1 + fraction rho residual)

    def constant_of(self, numbers):
        """Return the constant of the sites on g from the numbers of `InducingBasis.add_rows`.

        It is minus half the sum of rho residual for fraction 0, the trace term of E_2, else of log(1 + fraction rho
        residual)/fraction, and of rho y^2.
        """
        if numbers[4]:
            raise NotPositiveDefiniteError("sites of negative precision exceed the prior precision of the row")
        return -0.5 * float(numbers[0] + numbers[1])


def add_gaussian_rows(basis, information, rows, model, alpha, threads, features=None):
    """Return the factor with rows of Gaussian noise added, factorised: q_opt(b) = p(b) exp(E_1(b) + E_2(b))/C [J]_.

    It takes O(N M^2) operations, in memory that does not grow with N. `features` are W and residuals of the blocks.
    """

    def statistics(X, start):
        part = slice(start, start + len(X))
        weight = rows.weight(part)
        target = rows.y[part] - rows.base(model, X, part)
        sites = RowSites.gaussian(weight, rows.noise_variance(model.likelihood, part), target, alpha)
        block_features = () if features is None else features[start // ROWS_PER_BLOCK]
        return sum_block(basis, X, sites, weight, threads, *block_features)

    new = Information(*rows.sum_blocks(statistics, threads))  # exp(E_2(b))
    # (A, r) of E_1 and E_2 add up; B = I + A is the precision of q_opt(w)
    return information.plus(new, in_place=True).factorise()


def sum_block(basis, X, sites, weight, threads, *known):
    """Return A, r and the sums of an `Information` of sites of Gaussian noise; `known` are W and residuals."""
    A, r, numbers, _ = basis.add_rows(X, sites, threads, *known)
    n, constant = _sum_over(weight, len(X)), sites.constant + sites.constant_of(numbers)
    return A, r, np.array([constant, n, numbers[2], numbers[3], 0.0])


def _sum_over(values, n):
    """Return the sum of values of n rows: an array of n, or of one that all have."""
    return float(np.sum(values)) * (n // np.size(values))


@dataclass(slots=True, eq=False)
class EPBatch:
    """The factor after a batch, and the sites that EP found for it."""

    information: Information
    tau: np.ndarray  # (N,): sites on f, less the prior mean of f
    rho: np.ndarray
    status: str
    n_iter: int
    changes: np.ndarray  # of every sweep


def add_rows_by_ep(basis, information, rows, model, alpha, options, threads, features=None, start=None):
    """Add rows of any likelihood by (power) EP; return the EPBatch.

    In coordinates in which the posterior before them is N(0, I) the rows are those of a generalised linear model.
    `start` are sites on f, tau less the prior mean, to start from.
    """
    W, residual = _collect_features(basis, rows, model.likelihood, threads, features)
    mean = rows.compute_prior_means(model, threads)
    tau, rho, total, fit = np.zeros(rows.n), np.zeros(rows.n), 0.0, None
    explained = np.einsum("ij,ij->i", W, W)  # |W_n|^2, the variance of f_n under the prior of w
    is_explained = (explained > MIN_EXPLAINED_SHARE * residual) & (explained > MIN_VARIANCE)
    if not is_explained.all():
        tau[~is_explained], rho[~is_explained], total = _match_unexplained(
            rows.observed(~is_explained), model.likelihood, mean[~is_explained], residual[~is_explained], alpha
        )
    if is_explained.any():
        used, W, residual_used = rows.observed(is_explained), W[is_explained], residual[is_explained]
        # with B = F F' the precision of w before the batch: w = F'^-1 (c + v), v ~ N(0, I), so that f = base + T v
        T = solve_rows(information.factor, W.copy())  # W F'^-1
        sites = Sites(model.likelihood, used.y, used.weights, alpha, residual=residual_used)
        base = mean[is_explained] + T @ information.c
        geometry = Dense(T, base, np.zeros(basis.n), np.ones(basis.n), threads)
        if start is not None:
            start = _convert_to_g(
                start[0][is_explained], start[1][is_explained], mean[is_explained], residual_used, sites.fraction
            )
        fit = Engine(geometry, sites, options, start).run()
        total += fit.log_evidence
        alone = Sites(model.likelihood, used.y, used.weights, alpha)
        tau[is_explained], rho[is_explained] = _convert_to_f(fit, geometry, alone, mean[is_explained], residual_used)
        on_g = RowSites(fit.tau - fit.rho * mean[is_explained], fit.rho, np.zeros(1))
        A, r, *_ = basis.add_rows(None, on_g, threads, W, residual_used)  # W' diag(rho) W and W' tau in place of E_2
        more = Information.of(A, r)
    else:
        more = Information.empty(basis.n)
    out = information.plus(more, in_place=True).factorise()  # q_opt(b) = p(b) exp(E_1(b) + E_2(b))/C [J]_
    weight = float(np.sum(np.broadcast_to(rows.weight(), (rows.n,))))
    out.sums[:2] = information.log_bound + total - out.log_z, information.n + weight
    if fit is None:
        return EPBatch(out, tau, rho, CONVERGED_STATUS, 0, np.zeros(0))
    return EPBatch(out, tau, rho, fit.status, fit.n_iter, fit.trace["change"])


def _collect_features(basis, rows, likelihood, threads, blocks):
    """Return W (N, M) and residuals (N,) of all rows; `blocks` are those of the blocks, or None."""
    purpose = f"the likelihood {type(likelihood).__name__}, whose rows are taken in together: two matrices, each"
    way_out = "; give the rows in batches, one after the other, as from Source.batches"
    W, _ = arrays.allocate_matrices(2, (rows.n, basis.n), purpose, way_out)  # W, and T of `add_rows_by_ep`
    residual = np.empty(rows.n)

    def fill(X, start):
        part = slice(start, start + len(X))
        if blocks is None:
            residual[part] = basis.features(X, CALLING_THREAD, out=W[part])[1]
        else:
            W[part], residual[part] = blocks[start // ROWS_PER_BLOCK]

    deque(rows.map_blocks(fill, threads), maxlen=0)
    return W, residual


def _convert_to_g(tau, rho, mean, residual, fraction):
    """Sites on g of sites on f whose tau is less the prior mean."""
    shrink = 1.0 + fraction * rho * residual  # as in `RowSites.on_features` [BYT]_ (section 3.4)
    return tau / shrink + rho / shrink * mean, rho / shrink


def _convert_to_f(fit, geometry, alone, mean, residual):
    """The inverse of `_convert_to_g` for the sites of a fit; where it loses all digits, sites by moments of f."""
    shrink = 1.0 - alone.fraction * fit.rho * residual
    clear = shrink > MIN_SHRINKAGE
    shrink = np.where(clear, shrink, 1.0)
    tau, rho = (fit.tau - fit.rho * mean) / shrink, fit.rho / shrink
    if not clear.all():
        moments = geometry.values(fit.belief, slice(None), geometry.features)
        m, v, _ = find_cavities(*moments, fit.tau, fit.rho, alone.fraction)
        _, match_tau, match_rho = alone.match(slice(None), m, v + residual)
        rho = np.where(clear, rho, match_rho / alone.fraction)
        tau = np.where(clear, tau, match_tau / alone.fraction - rho * mean)
    return tau, rho


def _match_unexplained(rows, likelihood, mean, residual, alpha):
    """Return sites, and the sum of log normalisers, of rows whose f is independent of the inducing variables."""
    is_determined = residual < MIN_VARIANCE
    tau, rho, total = np.zeros(rows.n), np.zeros(rows.n), 0.0
    if is_determined.any():
        part = rows.observed(is_determined)
        total += float(np.sum(part.weight() * likelihood.log_p(part.y, mean[is_determined])))
    if not is_determined.all():
        part = rows.observed(~is_determined)
        sites = Sites(likelihood, part.y, part.weights, alpha)
        log_z, match_tau, match_rho = sites.match(slice(None), mean[~is_determined], residual[~is_determined])
        total += float(np.sum(log_z / sites.fraction))
        rho[~is_determined] = match_rho / sites.fraction
        tau[~is_determined] = match_tau / sites.fraction - rho[~is_determined] * mean[~is_determined]
    return tau, rho, total
