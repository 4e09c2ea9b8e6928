"""Streaming sparse Gaussian processes in pure NumPy/SciPy: what people write, and as fast as it gets.

An RBF covariance with a lengthscale for each column; the inducing variables have K = k(Z, Z) + jitter variance I as
covariance, with Cholesky factor L, and are whitened: w = L^-1 u ~ N(0, I). Rows x have W = L^-1 k(Z, x) and residual
k(x, x) - W'W. Regression is Titsias' bound, classification is EP for probit labels with the residual in the noise.
"""

import numpy as np
from rivals.glm import probit_sites
from rivals.gp import change, gram
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.blas import dgemm, dger, dsymv, dsyr, dsyrk, dtrmm, dtrsm, dtrsv
from scipy.linalg.lapack import dpotrf, dtpqrt, dtrtri

LOG_TWO_PI = np.log(2.0 * np.pi)
MOST_SWEEPS = 200


class Settings:
    """What is known before any row: covariance, noise, inducing points and their factor."""

    def __init__(self, Z, variance, lengthscale, noise_variance, jitter=1e-8):
        self.Z, self.variance, self.noise_variance, self.jitter = Z, variance, noise_variance, jitter
        self.lengthscale = np.broadcast_to(lengthscale, Z.shape[1])
        self.scaled = Z / self.lengthscale
        self.half = 0.5 * np.einsum("md,md->m", self.scaled, self.scaled)
        K = gram("rbf", Z, variance, self.lengthscale)
        K.flat[:: len(Z) + 1] = variance * (1.0 + jitter)
        self.L = np.asfortranarray(np.linalg.cholesky(K))
        self.inverse, _ = dtrtri(self.L, lower=1)

    def row(self, x):
        """Covariances of the inducing points with one row."""
        scaled = x / self.lengthscale
        out = self.scaled @ scaled
        out -= self.half
        out -= 0.5 * (scaled @ scaled)
        np.exp(out, out=out)
        out *= self.variance
        return out

    def rows(self, X):
        """The same for many rows, (N, M), in place: -r^2/2 by one product of matrices."""
        scaled = X / self.lengthscale
        out = scaled @ self.scaled.T
        out -= self.half
        out -= 0.5 * np.einsum("nd,nd->n", scaled, scaled)[:, None]
        np.minimum(out, 0.0, out=out)
        np.exp(out, out=out)
        out *= self.variance
        return out

    def features(self, X):
        """W, (N, M), and residuals of many rows."""
        W = dtrsm(1.0, self.L, self.rows(X).T, lower=1, overwrite_b=1).T
        return W, self.variance - np.einsum("nm,nm->n", W, W)


# One row after the other


class Triangular:
    """The factor and the sufficient statistics, updated row by row through a QR factorisation in LAPACK.

    R, upper, of (M + 1, M + 1) has R'R = [I + A, r; r', y'y / noise]; its last column ends with the root of what least
    squares leaves. The new row goes below R and is rotated away by dtpqrt.
    """

    def __init__(self, settings):
        self.settings, M = settings, len(settings.Z)
        self.A, self.R = np.zeros((M, M), order="F"), np.zeros((M + 1, M + 1), order="F")
        self.R.flat[: -1 : M + 2] = 1.0
        self.below, self.width = np.empty((1, M + 1), order="F"), 8 if M < 200 else 16
        self.residual, self.count = 0.0, 0

    def observe(self, x, y):
        """Add a row."""
        truth, row = self.settings, self.below[0]
        w = dtrsv(truth.L, truth.row(x), lower=1, overwrite_x=1)
        self.residual += truth.variance - w @ w
        self.A = dsyr(1.0 / truth.noise_variance, w, lower=1, a=self.A, overwrite_a=1)
        row[:-1], row[-1] = w, y
        row /= np.sqrt(truth.noise_variance)
        self.R, *_ = dtpqrt(0, self.width, self.R, self.below, overwrite_a=1, overwrite_b=1)
        self.count += 1

    def mean(self):
        """Mean of the whitened inducing variables."""
        return dtrsv(self.R[:-1, :-1], self.R[:-1, -1])

    def log_bound(self):
        """The bound of all rows so far."""
        truth, diagonal = self.settings, np.abs(np.diag(self.R))
        fit = -0.5 * diagonal[-1] ** 2 - np.sum(np.log(diagonal[:-1])) - 0.5 * self.residual / truth.noise_variance
        return fit - 0.5 * self.count * (LOG_TWO_PI + np.log(truth.noise_variance))


class Refactored(Triangular):
    """The same with a new Cholesky factor for each row: the fastest for few inducing points."""

    def observe(self, x, y):
        """Add a row."""
        truth, M = self.settings, len(self.A)
        w = dtrsv(truth.L, truth.row(x), lower=1, overwrite_x=1)
        self.residual += truth.variance - w @ w
        self.A = dsyr(1.0 / truth.noise_variance, w, lower=1, a=self.A, overwrite_a=1)
        if self.count == 0:
            self.r, self.squares = np.zeros(M), 0.0
        self.r += (y / truth.noise_variance) * w
        self.squares += y * y / truth.noise_variance
        B = self.A.copy(order="F")
        B.flat[:: M + 1] += 1.0
        self.factor, _ = dpotrf(B, lower=1, clean=0, overwrite_a=1)
        self.c = dtrsv(self.factor, self.r, lower=1)
        self.count += 1

    def mean(self):
        """Mean of the whitened inducing variables."""
        return dtrsv(self.factor, self.c, lower=1, trans=1)

    def log_bound(self):
        """The bound of all rows so far."""
        truth, logs = self.settings, np.sum(np.log(np.diag(self.factor)))
        fit = 0.5 * (self.c @ self.c - self.squares - self.residual / truth.noise_variance) - logs
        return fit - 0.5 * self.count * (LOG_TWO_PI + np.log(truth.noise_variance))


class Rotated(Triangular):
    """The same with the rotations of the textbook, a column after the other in Python."""

    def observe(self, x, y):
        """Add a row."""
        truth, M = self.settings, len(self.A)
        w = solve_triangular(truth.L, truth.row(x), lower=True, check_finite=False)
        self.residual += truth.variance - w @ w
        self.A += np.outer(w, w) / truth.noise_variance
        row = np.append(w, y) / np.sqrt(truth.noise_variance)
        for i in range(M + 1):
            old, below = self.R[i, i], row[i]
            new = np.hypot(old, below)
            cosine, sine = old / new, below / new
            upper = self.R[i, i:].copy()
            self.R[i, i:] = cosine * upper + sine * row[i:]
            row[i:] = cosine * row[i:] - sine * upper
        self.count += 1


class Covariance(Triangular):
    """The covariance of the inducing variables in place of a factor, by Sherman-Morrison: a Kalman filter.

    Least work, but the covariance is a difference: it loses digits, and in the end its sign, where a row leaves little
    of it. Nothing is kept with which inducing points could be moved.
    """

    def __init__(self, settings):
        self.settings, M = settings, len(settings.Z)
        self.S, self.m, self.bound = np.eye(M, order="F"), np.zeros(M), 0.0

    def observe(self, x, y):
        """Add a row."""
        truth = self.settings
        w = dtrsv(truth.L, truth.row(x), lower=1, overwrite_x=1)
        s = dsymv(1.0, self.S, w, lower=1)
        v, error = truth.noise_variance + s @ w, y - self.m @ w
        self.bound -= 0.5 * (LOG_TWO_PI + np.log(v) + error * error / v)
        self.bound -= 0.5 * (truth.variance - w @ w) / truth.noise_variance
        self.m += (error / v) * s
        self.S = dsyr(-1.0 / v, s, lower=1, a=self.S, overwrite_a=1)

    def mean(self):
        """Mean of the whitened inducing variables."""
        return self.m

    def log_bound(self):
        """The bound of all rows so far."""
        return self.bound


# Rows in batches


class Batches:
    """Batches of rows: a product of matrices and exponentials, dtrmm, dsyrk, dpotrf.

    dtrmm with the inverse of L, which is known beforehand, takes a third of the time of dtrsm.
    """

    def __init__(self, settings):
        self.settings, M = settings, len(settings.Z)
        self.A, self.r = np.zeros((M, M), order="F"), np.zeros(M)
        self.constant = 0.0

    def update(self, X, y):
        """Add rows."""
        truth = self.settings
        W = dtrmm(1.0, truth.inverse, truth.rows(X).T, lower=1, overwrite_b=1).T
        residual = len(y) * truth.variance - np.vdot(W, W)
        self.A = dsyrk(1.0 / truth.noise_variance, W.T, beta=1.0, c=self.A, lower=1, overwrite_c=1)
        self.r += (y @ W) / truth.noise_variance
        self.constant -= 0.5 * len(y) * (LOG_TWO_PI + np.log(truth.noise_variance))
        self.constant -= 0.5 * (y @ y + residual) / truth.noise_variance
        B = self.A.copy(order="F")
        B.flat[:: len(B) + 1] += 1.0
        self.factor, info = dpotrf(B, lower=1, clean=0, overwrite_a=1)
        assert info == 0
        self.c = dtrsv(self.factor, self.r, lower=1)

    def mean(self):
        """Mean of the whitened inducing variables."""
        return dtrsv(self.factor, self.c, lower=1, trans=1)

    def log_bound(self):
        """The bound of all rows so far."""
        return self.constant + 0.5 * self.c @ self.c - np.sum(np.log(np.diag(self.factor)))


class Textbook(Batches):
    """The same as people write it."""

    def update(self, X, y):
        """Add rows."""
        truth = self.settings
        Kuf = gram("rbf", truth.Z, truth.variance, truth.lengthscale, X)
        W = solve_triangular(truth.L, Kuf, lower=True)
        residual = truth.variance - np.sum(W**2, axis=0)
        self.A = self.A + W @ W.T / truth.noise_variance
        self.r = self.r + W @ y / truth.noise_variance
        self.constant -= 0.5 * len(y) * np.log(2 * np.pi * truth.noise_variance)
        self.constant -= 0.5 * np.sum(y**2 + residual) / truth.noise_variance
        self.factor = cholesky(np.eye(len(self.A)) + self.A, lower=True)
        self.c = solve_triangular(self.factor, self.r, lower=True)


# The bound of one batch and its gradient


def dense_bound(settings, X, y):
    """log N(y | 0, Q + noise I) - tr(K - Q) / (2 noise) from N by N matrices."""
    W, residual = settings.features(X)
    factor = np.linalg.cholesky(W @ W.T + settings.noise_variance * np.eye(len(y)))
    half = solve_triangular(factor, y, lower=True)
    evidence = -0.5 * half @ half - np.sum(np.log(np.diag(factor))) - 0.5 * len(y) * LOG_TWO_PI
    return evidence - 0.5 * residual.sum() / settings.noise_variance


def textbook_gradient(settings, X, y):
    """The bound and its gradient in log(variance, lengthscales, noise variance): a derivative of K for each of them.

    Math as in `gradient`, with inverses instead of factors.
    """
    Z, t = settings.Z, 1.0 / settings.noise_variance
    Kuf = gram("rbf", Z, settings.variance, settings.lengthscale, X)
    Kuu = gram("rbf", Z, settings.variance, settings.lengthscale)
    nugget = settings.jitter * settings.variance * np.eye(len(Z))
    inverse_L = np.linalg.inv(np.linalg.cholesky(Kuu + nugget))
    W = inverse_L @ Kuf
    A = t * W @ W.T
    B = np.eye(len(Z)) + A
    S = np.linalg.inv(B)
    mu = t * S @ W @ y
    E = S + np.outer(mu, mu)
    residual = settings.variance - np.sum(W**2, axis=0)
    value = 0.5 * t * mu @ W @ y - 0.5 * np.linalg.slogdet(B)[1] - 0.5 * t * (y @ y + residual.sum())
    value -= 0.5 * len(y) * np.log(2 * np.pi / t)
    G_uf = t * inverse_L.T @ (W - E @ W + np.outer(mu, y))
    G_uu = -0.5 * inverse_L.T @ (B + E - 2 * np.eye(len(Z))) @ inverse_L
    results = [np.sum(G_uf * Kuf) + np.sum(G_uu * (Kuu + nugget)) - 0.5 * t * len(y) * settings.variance]
    for d, length in enumerate(settings.lengthscale):
        uf = Kuf * (Z[:, d, None] - X[:, d]) ** 2 / length**2
        uu = Kuu * (Z[:, d, None] - Z[:, d]) ** 2 / length**2
        results.append(np.sum(G_uf * uf) + np.sum(G_uu * uu))
    error = np.sum((y - W.T @ mu) ** 2) + np.sum(W * (S @ W)) + residual.sum()
    return value, np.array([*results, 0.5 * t * error - 0.5 * len(y)])


def lengthscale_slopes(T, left, right):
    """sum_ij T_ij (left_id - right_jd)^2 for every d, by products of matrices."""
    slopes = T.sum(axis=1) @ left**2 + T.sum(axis=0) @ right**2
    return slopes - 2.0 * np.einsum("id,id->d", left, T @ right)


def gradient(Z, variance, lengthscale, noise_variance, X, y, jitter=1e-8):
    """The bound and its gradient in log(variance, lengthscales, noise variance), with as little work as NumPy allows.

    With B = I + A, mu = B^-1 r and E = B^-1 + mu mu', the slopes in K(Z, X) and K(Z, Z) are
    L^-T ((I - E) W + mu y') / noise and -L^-T (B + E - 2 I) L^-1 / 2.
    """
    truth = Settings(Z, variance, lengthscale, noise_variance, jitter)
    M, N, t = len(Z), len(y), 1.0 / noise_variance
    K = truth.rows(X)
    W = dtrsm(1.0, truth.L, K.T, lower=1).T
    residual = N * variance - np.vdot(W, W)
    B = dsyrk(t, W.T, lower=1)
    B += np.tril(B, -1).T
    B.flat[:: M + 1] += 1.0
    factor, info = dpotrf(B, lower=1, clean=1)
    assert info == 0
    r = t * (y @ W)
    c = dtrsv(factor, r, lower=1)
    mu = dtrsv(factor, c, lower=1, trans=1)
    inverse = dtrsm(1.0, factor, np.eye(M, order="F"), lower=1)
    E = dsyrk(1.0, inverse, trans=1, lower=1)
    E += np.tril(E, -1).T
    used = M - np.trace(E)  # tr(B^-1 A)
    E += np.outer(mu, mu)
    value = 0.5 * c @ c - np.sum(np.log(np.diag(factor))) - 0.5 * t * (y @ y + residual)
    value -= 0.5 * N * (LOG_TWO_PI + np.log(noise_variance))
    inner = np.add(B, E, order="F")
    inner.flat[:: M + 1] -= 2.0
    inner = dtrsm(-0.5, truth.L, inner, lower=1, trans_a=1, overwrite_b=1)
    inner = dtrsm(1.0, truth.L, inner, side=1, lower=1, overwrite_b=1)
    np.negative(E, out=E)
    E.flat[:: M + 1] += 1.0
    slope = dgemm(1.0, dtrsm(t, truth.L, E, lower=1, trans_a=1, overwrite_b=1), W.T)
    slope = dger(1.0, dtrsv(truth.L, mu, lower=1, trans=1), t * y, a=slope, overwrite_a=1).T
    slope *= K
    inner *= gram("rbf", Z, variance, lengthscale)
    amplitude = slope.sum() + inner.sum() + jitter * np.trace(inner) - 0.5 * t * N * variance
    lengths = lengthscale_slopes(slope, X / truth.lengthscale, truth.scaled)
    lengths += lengthscale_slopes(inner, truth.scaled, truth.scaled)
    error = y @ y - 2.0 * (y @ (W @ mu)) + residual
    noise = 0.5 * (t * error + used + mu @ (B @ mu) - mu @ mu - N)
    return value, np.concatenate([[amplitude], lengths, [noise]])


# EP for probit labels


def sparse_ep(settings, X, y, tol, share=1.0):
    """All sites from the same posterior, undamped: means and variances of W'w at the rows, sweeps.

    A site acts on g = W'w; the label's probability given g has the noise 1 + residual. With share 0 the residual is
    left out: DTC.
    """
    W, residual = settings.features(X)
    M, noise = W.shape[1], 1.0 + share * residual
    mean, variance = np.zeros(len(y)), np.einsum("nm,nm->n", W, W)
    tau, rho = np.zeros(len(y)), np.zeros(len(y))
    for sweep in range(MOST_SWEEPS):
        cavity = 1.0 / variance - rho
        _, tau, rho = probit_sites(y, (mean / variance - tau) / cavity, 1.0 / cavity, noise)
        B = dsyrk(1.0, (W * np.sqrt(rho)[:, None]).T, lower=1)
        B.flat[:: M + 1] += 1.0
        factor, info = dpotrf(B, lower=1, clean=0, overwrite_a=1)
        assert info == 0
        T = dtrsm(1.0, factor, W.T, lower=1)
        before = mean, variance
        mean, variance = dtrsv(factor, tau @ W, lower=1) @ T, np.einsum("mn,mn->n", T, T)
        if change(before, (mean, variance)) < tol:
            return mean, variance, sweep + 1
    raise ArithmeticError("not converged")
