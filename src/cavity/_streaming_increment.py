"""What a batch adds to the log bound of a streaming sparse Gaussian process, and its gradient in the settings.

The inducing variables b of the new state are given, and so is what the old state says: a Gaussian factor on its own
inducing variables a, in coordinates whitened by the old covariance. With K_.. of the covariance to be judged, nuggets
included, L L' = K_bb, and for rows n

    T = L^-1 K_ba,  V = T L_a^-T,  D = K_aa - T'T,  P = L_a^-1 D L_a^-T,  W_n = L^-1 k(Z, x_n),

the bound is a function of V, P, W_n and the variances that b leaves to the rows [T]_ [B]_. An old variable that is
also a new one is known from it: its column of T is a row of L, and it has no part in D. So only the others are in what
follows, and where all are kept the old factor costs no covariance of its own and loses nothing to rounding.

Rows come in blocks of a fixed size, whose statistics are added up in their order.

References
----------
.. [T] M. K. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009, eq. 9.
.. [B] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017, eq. 8.
.. [BYT] T. D. Bui, J. Yan and R. E. Turner, "A unifying framework for Gaussian process pseudo-point approximations
   using power expectation propagation", JMLR 18, 2017.
"""

import threading
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from ._blocks import merge, rows, starts
from ._gp_evidence import Settings, log_slope
from ._sparse import Basis, Information, full, same_rows
from .errors import NotPositiveDefiniteError, within_range
from .likelihoods import LOG_2PI, ONE, Gaussian

BLOCK_ROWS = 1024
KEPT_NUMBERS = 1 << 22  # of W that are kept for the gradient, 32 MB; those of other blocks are computed again


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Checked rows in use, less their prior means."""

    X: np.ndarray  # (N, D)
    y: np.ndarray  # (N,): less mean and offset where the likelihood is Gaussian
    weights: np.ndarray | None = None
    noise: np.ndarray | None = None  # (N,): known noise variances
    offset: np.ndarray | float = 0.0  # of f, for other likelihoods

    def weight(self):
        """Weights, (N,) or (1,) where all are one."""
        return ONE if self.weights is None else self.weights


@dataclass(frozen=True, slots=True, eq=False)
class RowSites:
    """Sites on the f of rows; those of a Gaussian likelihood know what was seen."""

    tau: np.ndarray  # (N,)
    rho: np.ndarray  # (N,)
    fraction: np.ndarray  # (N,) or (1,)
    y: np.ndarray | None = None  # (N,): tau/rho
    constant: float = 0.0  # what they add to the log bound whatever the covariance

    @classmethod
    def gaussian(cls, batch, noise, alpha):
        """Those of a batch with Gaussian noise; a row of weight w is w rows."""
        weight = batch.weight()
        with np.errstate(over="ignore"):
            rho = within_range(np.broadcast_to(weight / noise, batch.y.shape).copy(), "precisions of the noise")
        constants = np.broadcast_to(weight * (np.log(noise) + LOG_2PI), batch.y.shape)
        fraction = alpha * np.minimum(1.0, 1.0 / weight)
        return cls(rho * batch.y, rho, fraction, batch.y, -0.5 * float(np.sum(constants)))

    def part(self, block):
        """Those of a slice of rows."""
        fraction = self.fraction[block] if len(self.fraction) > 1 else self.fraction
        return RowSites(self.tau[block], self.rho[block], fraction, None if self.y is None else self.y[block])

    def on_features(self, residual):
        """tau and rho of the sites on g, where f is g and noise of variance `residual`, and what they add otherwise.

        Sites T with integral N(f; g, residual) T^fraction, to the power 1/fraction, [BYT]_ (section 3.4).
        """
        extra = self.fraction * self.rho * residual
        if not np.all(extra > -1.0):
            raise NotPositiveDefiniteError("sites of negative precision take away more than the prior knows of the row")
        tau, rho = self.tau / (1.0 + extra), self.rho / (1.0 + extra)
        none = self.fraction == 0.0
        spread = np.where(none, self.rho * residual, np.log1p(extra) / np.where(none, 1.0, self.fraction))
        known = rho * self.y**2 if self.y is not None else -self.fraction * tau * self.tau * residual
        return tau, rho, -0.5 * (float(np.sum(spread)) + float(np.sum(known)))


def add_squares(W, weights, out, scratch):
    """Add the sum of weights_n W_n W_n' to the lower triangle of a matrix in Fortran order; `scratch` is like W."""
    low, high = (weights.min(), weights.max()) if len(W) else (0.0, 0.0)
    if low == high:
        return blas.dsyrk(low, W.T, beta=1.0, c=out, lower=1, overwrite_c=1) if W.size else out
    if low < 0.0 < high:
        for chosen in (weights > 0.0, weights < 0.0):
            out = add_squares(W[chosen], weights[chosen], out, scratch[: np.count_nonzero(chosen)])
        return out
    scaled = np.multiply(W, np.sqrt(np.abs(weights))[:, None], out=scratch)
    return blas.dsyrk(1.0 if high > 0.0 else -1.0, scaled.T, beta=1.0, c=out, lower=1, overwrite_c=1)


class Carrier:
    """What an old factor says about new inducing variables under any covariance, and how that depends on it.

    With Y the columns of L_a^-1 of the variables that are not kept, P = X X' with X = Y R, R R' = D among them, and
    everything that alpha > 0 needs follows from the triangle of I + alpha X' A_a X, which is as small.
    """

    def __init__(self, old, Z, alpha):
        basis, information = old
        self.basis, self.alpha, self.A, self.r = basis, alpha, full(information.A), information.r
        self.constant, self.log_bound = information.constant, information.log_bound
        self.own, self.kept = same_rows(Z, basis.Z)
        self.rest = np.setdiff1d(np.arange(basis.n), self.kept)
        self.rows = np.ascontiguousarray(basis.Z[self.rest])
        columns = np.zeros((basis.n, len(self.rest)), order="F")
        columns[self.rest, np.arange(len(self.rest))] = 1.0
        self.columns = _solve(basis.factor, columns)

    def at(self, basis, threads):
        """What it says about the variables of a basis."""
        old = self.basis
        T = np.empty((old.n, basis.n), order="F")
        T[self.kept] = basis.factor[self.own]
        T[self.rest] = across = basis.solved(basis.cross(self.rows, threads))
        out = Carried(T, across, _solve(old.factor, T), self.A, self.r, self.constant)
        if len(self.rest):
            self._lose(out, self._spread(basis, across, threads))
        return out

    def _spread(self, basis, across, threads):
        """X of P = X X'."""
        left = np.empty((len(self.rows), len(self.rows)))
        basis.program.gram(self.rows, left, threads)
        left[np.diag_indices_from(left)] += basis.jitter * basis.program.diagonal(self.rows)
        left -= across @ across.T
        triangle, failed = lapack.dpotrf(np.asfortranarray(left), lower=1, overwrite_a=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError(
                f"old inducing point {self.rest[failed - 1]} is known from the new ones to the last digit"
            )
        return blas.dtrmm(1.0, triangle, self.columns, side=1, lower=1)

    def _lose(self, out, X):
        """Take away what the variables that are not kept had to say beyond the new ones."""
        known = X.T @ self.A @ X
        if self.alpha == 0.0:
            out.loss = 0.5 * float(np.trace(known))
            out.constant -= out.loss
            return
        system = self.alpha * known
        system[np.diag_indices_from(system)] += 1.0
        triangle, failed = lapack.dpotrf(np.asfortranarray(system), lower=1, overwrite_a=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError("what the old rows say cannot be carried over to the new inducing points")
        reached = _solve(triangle, np.asfortranarray(X.T @ self.A))
        shift = _solve(triangle, (X.T @ self.r)[:, None])[:, 0]
        out.loss = float(np.sum(np.log(np.diagonal(triangle)))) / self.alpha
        out.constant += 0.5 * self.alpha * float(shift @ shift) - out.loss
        out.A = self.A - self.alpha * (reached.T @ reached)
        out.r = self.r - self.alpha * (reached.T @ shift)

    def weights(self, carried, solution):
        """Gradients of the bound in K_ab (M_a, M), and in D among the variables that are not kept."""
        inverse, mu = solution.inverse, solution.mean
        apart = carried.r - carried.A @ (carried.V @ mu)
        pulled = carried.A @ carried.V @ inverse
        across = _solve(self.basis.factor, np.asfortranarray(np.outer(apart, mu) - pulled), trans=1)
        seen = carried.A @ self.columns
        left = -0.5 * (self.columns.T @ seen)
        if self.alpha > 0.0:
            spread, apart = seen.T @ carried.V, self.columns.T @ apart
            left += 0.5 * self.alpha * (spread @ inverse @ spread.T + np.outer(apart, apart))
        across[self.rest] -= 2.0 * left @ carried.across
        return across, left


@dataclass(slots=True, eq=False)
class Carried:
    """The old factor on the new variables, before V: A is V' A V there, with V transposed like all rows."""

    T: np.ndarray  # (M_a, M): K_ab L^-T
    across: np.ndarray  # (n, M): its rows of variables that are not kept
    V: np.ndarray  # (M_a, M): L_a^-1 T
    A: np.ndarray  # (M_a, M_a): A_e
    r: np.ndarray  # (M_a,): r_e
    constant: float
    loss: float = 0.0  # nats


@dataclass(slots=True, eq=False)
class Solution:
    """The posterior of w at some settings, and what led there."""

    settings: Settings
    basis: Basis
    sites: RowSites
    information: Information
    carried: Carried | None
    log_evidence: float  # the increment
    fit: object = None  # of EP
    by_rows: np.ndarray | None = None  # (M, M), lower triangle: what the rows add to A
    mean: np.ndarray | None = None  # mu
    inverse: np.ndarray | None = None  # B^-1

    def prepare(self):
        """Find mean and inverse of the posterior."""
        if self.inverse is None:
            self.mean = self.information.mean()
            inverse, failed = lapack.dpotri(self.information.factor, lower=1)
            self.inverse = full(inverse)


class Increment:
    """The increment of the log bound by a batch as a function of the settings, at fixed inducing points.

    Parameters
    ----------
    old : (Basis, Information) or None
        The state before.
    Z : ndarray, shape (M, D)
        Inducing points after the batch, distinct.
    batch : Batch
        Rows.
    alpha : float
        Power, 0 to 1.
    jitter : float
        Nuggets relative to k(z, z).
    threads : Threads
        Who takes blocks.
    ep : callable, optional
        For other likelihoods than Gaussian: ep(batch, basis, information, likelihood, start, tol) runs EP for the rows
        given what is known of the inducing variables before (`Information`, factorised), from sites `start` if not
        None. It returns an object with `sites` (`RowSites` on f), `value` (log evidence of the rows), `status`, and
        `normaliser(likelihood)`, the sum of log normalisers over fractions at the cavities, for slopes in scales.
    """

    def __init__(self, old, Z, batch, alpha, jitter, threads, ep=None):
        self.batch, self.alpha, self.jitter, self.threads, self.ep = batch, alpha, jitter, threads, ep
        self.Z = np.ascontiguousarray(Z, dtype=np.float64)
        self.carrier = None if old is None or old[0].n == 0 else Carrier(old, self.Z, alpha)
        self.before = (0.0, 0.0) if old is None else (old[1].constant, old[1].log_bound)
        self.blocks = [slice(*pair) for pair in starts(len(batch.X), BLOCK_ROWS)]
        # pages of fresh memory cost as much as the products: W of the first blocks, for the last settings asked for
        room = min(len(self.blocks), KEPT_NUMBERS // max(1, len(self.Z) * BLOCK_ROWS))
        self.kept = [np.empty((part.stop - part.start, len(self.Z))) for part in self.blocks[:room]]
        self.residuals, self.latest = [None] * room, None
        self.local = threading.local()
        self.start = None
        self.options = {"tol": 0.0}

    def at(self, settings, *, sites=None, tol=0.0, **_):
        """Return the Solution at some settings; `sites` on f if they are given."""
        basis = Basis.of(settings.covariance, self.Z, self.jitter, self.threads)
        carried = None if self.carrier is None else self.carrier.at(basis, self.threads)
        information = self._carried(carried, basis.n)
        fit = None
        if sites is None and isinstance(settings.likelihood, Gaussian):
            noise = settings.likelihood.noise_variance if self.batch.noise is None else self.batch.noise
            sites = RowSites.gaussian(self.batch, noise, self.alpha)
        elif sites is None:
            information = information.factorised()
            fit = self.ep(self.batch, basis, information, settings.likelihood, self.start, tol)
            self.start, sites = fit.sites, fit.sites
        return self._solved(settings, basis, sites, information, carried, fit)

    def _carried(self, carried, n):
        """The old factor on the new variables."""
        if carried is None:
            out = Information.empty(n)
            out.constant = self.before[0]
            return out
        A = carried.V.T @ (carried.A @ carried.V)
        return Information(np.asfortranarray(np.tril(A)), carried.V.T @ carried.r, carried.constant)

    def _solved(self, settings, basis, sites, information, carried, fit):
        """The Solution with the rows' sites on top of the old factor."""

        def task(index):
            _, W, residual = self._features(basis, index)
            tau, rho, constant = sites.part(self.blocks[index]).on_features(residual)
            square = add_squares(W, rho, np.zeros((basis.n, basis.n), order="F"), self._scratch(1, len(W)))
            return square, W.T @ tau, constant

        A, r, constant = information.A, information.r, information.constant + sites.constant
        by_rows = np.zeros_like(A)
        if self.blocks:
            by_rows, more, extra = merge(self.threads.imap(task, zip(range(len(self.blocks)))))
            A, r, constant = A + by_rows, r + more, constant + extra
        out = Information(A, r, constant).factorised()
        if fit is None:
            value = out.log_bound - self.before[1]
        else:
            value = fit.value + (information.log_bound - self.before[1])
        within_range(np.array([value]), "the increment of the log bound")
        self.latest = Solution(settings, basis, sites, out, carried, value, fit, by_rows)
        return self.latest

    def gradient(self, solution):
        """Return the gradient in the log parameters of the covariance, nothing for the mean, and in the log scales."""
        solution.prepare()
        basis, covariance = solution.basis, solution.settings.covariance
        total = np.zeros(len(covariance.log_parameters))
        # R of S = E - I + R, with which -L^-T S L^-1/2 is the gradient in K_bb
        R, slope = 0.0, 0.0
        if self.blocks:
            rule = self._titsias_rows if _titsias(solution) else self._power_rows
            known, self.latest = self.latest is solution, solution
            task = rule(solution, known)
            total, R, slope = merge(self.threads.imap(task, zip(range(len(self.blocks)))))
        if _titsias(solution):
            R = solution.by_rows
            slope += 0.5 * float(np.sum(solution.inverse * full(R)))
        S = full(R) + np.outer(solution.mean, solution.mean) + solution.inverse
        S[np.diag_indices_from(S)] -= 1.0
        across, left = None, None
        if solution.carried is not None:
            across, left = self.carrier.weights(solution.carried, solution)
            S -= 2.0 * solution.carried.across.T @ left @ solution.carried.across
        weights = -0.5 * _pulled(basis, _pulled(basis, S).T.copy())
        if across is not None:
            across = _pulled(basis, np.ascontiguousarray(across))
            weights[self.carrier.own] += across[self.carrier.kept]
            total = total + self._old_gradient(covariance, across[self.carrier.rest], left)
        total = total + self._among(covariance, self.Z, 0.5 * (weights + weights.T))
        return total, np.zeros(0), self._scale_gradient(solution, slope)

    def _scratch(self, index, n):
        """One of three matrices (n, M) of this thread."""
        if not hasattr(self.local, "matrices"):
            self.local.matrices = np.empty((3, min(BLOCK_ROWS, len(self.batch.X)), len(self.Z)))
        return self.local.matrices[index, :n]

    def _features(self, basis, index):
        """Rows X, W and residuals of a block under a basis; W belongs to this object."""
        X = rows(self.batch.X, self.blocks[index])
        W = self.kept[index] if index < len(self.kept) else self._scratch(0, len(X))
        basis.program.cross(X, self.Z, W, self.threads)
        residual = basis.program.diagonal(X)
        residual -= np.einsum("ij,ij->i", basis.solved(W), W)
        if index < len(self.kept):
            self.residuals[index] = residual
        return X, W, residual

    def _read(self, solution, known, index):
        """The same for a solution, and its sites on g; `known` are the features that were kept."""
        block = self.blocks[index]
        if known and index < len(self.kept):
            X, W, residual = rows(self.batch.X, block), self.kept[index], self.residuals[index]
        else:
            X, W, residual = self._features(solution.basis, index)
        tau, rho, _ = solution.sites.part(block).on_features(residual)
        return X, W, residual, tau, rho

    def _titsias_rows(self, solution, known):
        """A task for blocks where alpha = 0: q_n = -rho_n/2, R is what the rows add to A, as is the sum of rho_n v_n."""
        basis, mu = solution.basis, solution.mean
        within = -solution.inverse
        within[np.diag_indices_from(within)] += 1.0
        pull = blas.dtrsm(1.0, basis.factor, within, lower=1, trans_a=1)  # L^-T (I - B^-1)
        back = blas.dtrsv(basis.factor, mu, lower=1, trans=1)

        def task(index):
            X, W, residual, tau, rho = self._read(solution, known, index)
            m, weights = W @ mu, self._scratch(1, len(W))
            np.multiply(W, rho[:, None], out=self._scratch(2, len(W)))
            blas.dgemm(1.0, pull, self._scratch(2, len(W)).T, c=weights.T, overwrite_c=1)
            blas.dger(1.0, back, tau - rho * m, a=weights.T, overwrite_a=1)
            slope = self._noise_slope(index, solution, m, 0.0, residual, rho)
            return self._contracted(solution, X, weights, -0.5 * rho), 0.0, slope

        return task

    def _power_rows(self, solution, known):
        """A task for blocks where alpha > 0."""
        basis, mu, inverse = solution.basis, solution.mean, np.asfortranarray(solution.inverse)

        def task(index):
            X, W, residual, tau, rho = self._read(solution, known, index)
            fraction, m = solution.sites.part(self.blocks[index]).fraction, W @ mu
            weights, scaled = self._scratch(1, len(W)), self._scratch(2, len(W))
            blas.dsymm(1.0, inverse, W.T, lower=1, c=weights.T, overwrite_c=1)
            v, apart = np.einsum("ij,ij->i", W, weights), tau - rho * m
            q = 0.5 * fraction * (apart**2 + rho**2 * v) - 0.5 * rho
            np.multiply(W, 2.0 * q[:, None], out=scaled)
            weights *= -rho[:, None]
            weights -= scaled
            blas.dger(1.0, mu, apart, a=weights.T, overwrite_a=1)
            slope = self._noise_slope(index, solution, m, v, residual, rho)
            R = blas.dgemm(-1.0, scaled.T, W.T, trans_b=1)
            return self._contracted(solution, X, _pulled(basis, weights), q), R, slope

        return task

    def _contracted(self, solution, X, weights, prior):
        """Gradient of weights (n, M) times covariances of rows with Z, and weights (n,) times their variances."""
        covariance = solution.settings.covariance
        by_prior = solution.basis.program.diagonal_contract(X, prior)
        return covariance._gradient(X, weights, self.Z, self.threads) + covariance._free(by_prior, X.shape[1])

    def _noise_slope(self, index, solution, m, v, residual, rho):
        """Of a block in the log of the variance of Gaussian noise."""
        block, sites = self.blocks[index], solution.sites.part(self.blocks[index])
        if sites.y is None or self.batch.noise is not None:
            return 0.0
        weight = np.broadcast_to(self.batch.weight(), self.batch.y.shape)[block]
        share = rho * (1.0 - sites.fraction * rho * residual)
        return 0.5 * float(np.sum(share * (v + (sites.y - m) ** 2) + rho * residual - weight))

    def _old_gradient(self, covariance, across, left):
        """By the old variables that are not kept: their covariances with the new ones, and among themselves."""
        old = self.carrier.rows
        if not len(old):
            return 0.0
        return covariance._gradient(old, across, self.Z, self.threads) + self._among(covariance, old, left)

    def _among(self, covariance, Z, weights):
        """Gradient of weights times the covariances of inducing variables, nuggets included."""
        nuggets = covariance._program(Z.shape[1]).diagonal_contract(Z, self.jitter * np.diagonal(weights))
        return covariance._gradient(Z, weights, None, self.threads) + covariance._free(nuggets, Z.shape[1])

    def _scale_gradient(self, solution, slope):
        """Derivatives in the logs of the scales of the likelihood."""
        likelihood = solution.settings.likelihood
        if solution.fit is None:
            return np.array([slope]) if self.batch.noise is None else np.zeros(0)
        return np.array([log_slope(likelihood, name, solution.fit.normaliser) for name in likelihood.scales])


def _titsias(solution):
    """Whether the rows have alpha = 0."""
    return not np.any(solution.sites.fraction)


def _solve(factor, matrix, trans=0):
    """L^-1 or L^-T applied to a matrix in Fortran order."""
    return blas.dtrsm(1.0, factor, matrix, lower=1, trans_a=trans) if matrix.size else matrix


def _pulled(basis, matrix):
    """L^-T applied to the rows of (N, M), which are overwritten."""
    if matrix.size:
        blas.dtrsm(1.0, basis.factor, matrix.T, lower=1, trans_a=1, overwrite_b=1)
    return matrix
