"""Streaming sparse Gaussian processes as the papers write them: dense, unwhitened, slow, in doubles or many digits.

Arrays hold doubles, or mpmath numbers (dtype object, from `many_digits`): the formulas are the same. Nothing here knows
the whitened information form of the library. The prior mean is zero; inducing variables are u_j = f(z_j) + e_j with
variances `jitter` k(z_j, z_j) of e_j, the same e_j for the same z_j.

References: Bui, Nguyen and Turner, "Streaming sparse Gaussian process approximations", NIPS 2017; Bui, Yan and Turner,
"A unifying framework for Gaussian process pseudo-point approximations using power expectation propagation", JMLR 2017;
Titsias, AISTATS 2009.
"""

import math
from dataclasses import dataclass, replace

import mpmath as mp
import numpy as np

from . import gaussian_process as dense
from .glm import log_tilted

# ------------------------------------------------------------------------------------------------ arithmetic

_mpf = np.frompyfunc(mp.mpf, 1, 1)
_exp = np.frompyfunc(mp.exp, 1, 1)
_log = np.frompyfunc(mp.log, 1, 1)


def many_digits(array):
    """The same numbers as mpmath's."""
    return _mpf(np.asarray(array, dtype=object))


def plain(value):
    """Doubles again."""
    return np.asarray(value, dtype=np.float64) if np.ndim(value) else float(value)


def is_many(A):
    """Whether an array holds mpmath numbers."""
    return getattr(A, "dtype", np.dtype(float)).kind == "O"


def exp(A):
    """Of doubles or mpmath numbers."""
    return _exp(A) if is_many(A) else np.exp(A)


def log(A):
    """Of doubles or mpmath numbers, arrays or not."""
    if isinstance(A, mp.mpf):
        return mp.log(A)
    return _log(A) if is_many(A) else np.log(A)


def inverse(A):
    """Inverse of a matrix, of size 0 too."""
    if not is_many(A) or len(A) == 0:
        return np.linalg.inv(A.astype(np.float64)) if len(A) else A
    return np.array(mp.inverse(mp.matrix(A.tolist())).tolist(), dtype=object).reshape(A.shape)


def log_determinant(A):
    """Log of the determinant of a matrix for which it is positive, of size 0 too."""
    if len(A) == 0:
        return 0.0
    if is_many(A):
        return mp.log(mp.det(mp.matrix(A.tolist())))
    sign, value = np.linalg.slogdet(A)
    assert sign > 0
    return value


def eye(n, like):
    """Identity in the arithmetic of another array."""
    return many_digits(np.eye(n)) if is_many(like) else np.eye(n)


def diag(vector):
    """Diagonal matrix in the arithmetic of the vector."""
    return eye(len(vector), vector) * vector


def log_normal(x, mean, covariance):
    """log N(x; mean, covariance)."""
    apart = x - mean
    two_pi = 2 * (mp.pi if is_many(covariance) else math.pi)
    return -(apart @ inverse(covariance) @ apart + log_determinant(covariance) + len(x) * log(two_pi)) / 2


# ------------------------------------------------------------------------------------------------ covariances


def rbf(variance, lengthscale):
    """Squared exponential of rows A and B, in their arithmetic."""

    def k(A, B):
        difference = (A[:, None, :] - B[None, :, :]) / lengthscale
        return variance * exp(-np.sum(difference * difference, axis=2) / 2)

    return k


def prior_of(k, Z, jitter):
    """K_uu, with the nuggets."""
    K = k(Z, Z)
    return K + diag(jitter * np.diag(K))


def between(k, A, B, jitter):
    """Covariance of inducing variables at A with those at B: nuggets where rows are the same."""
    same = np.array([[bool(np.all(a == b)) for b in B] for a in A]).reshape(len(A), len(B))
    return k(A, B) + jitter * k(A, B) * same


# ------------------------------------------------------------------------------------------------ all rows at once


def effective(residual, noise, weights, alpha):
    """What a row of weight w adds: the variance of a pseudo-observation y = g + ..., and the log of its scale.

    (1/f) log of the integral of N(r; g, residual) N(y; r, noise)^e for e = alpha min(1, w), f = e/w; alpha = 0 is the
    limit, in which it is w E log N(y; r, noise).
    """
    two_pi = 2 * (mp.pi if is_many(residual) else math.pi)
    exponent = alpha * np.minimum(1.0, weights)
    fraction = exponent / weights
    variance = noise / weights + fraction * residual
    constant = -weights / 2 * log(two_pi * noise)
    loss = weights * residual / noise / 2 if alpha == 0 else log(1 + exponent * residual / noise) / (2 * fraction)
    return variance, constant - loss + log(two_pi * variance) / 2


def batch(k, Z, X, y, noise, *, alpha=0, jitter=0.0, weights=None):
    """Titsias (alpha 0), FITC (1) or power EP: mean and covariance of q(u), and the bound or evidence, N x N."""
    noise = noise + 0 * y
    weights = np.ones(len(y)) + 0 * y if weights is None else weights
    K_uu, K_uf = prior_of(k, Z, jitter), k(Z, X)
    Q = K_uf.T @ inverse(K_uu) @ K_uf
    variance, constant = effective(np.diag(k(X, X)) - np.diag(Q), noise, weights, alpha)
    S = Q + diag(variance)
    half = K_uf @ inverse(S)
    return half @ y, K_uu - half @ K_uf.T, log_normal(y, 0 * y, S) + np.sum(constant)


def predict(k, Z, q, X, jitter=0.0):
    """Means and covariance matrix of new values from q(u) = (mean, covariance)."""
    mean, S = q
    K_uu, K_uf = prior_of(k, Z, jitter), k(Z, X)
    H = K_uf.T @ inverse(K_uu)
    return H @ mean, k(X, X) - H @ (K_uu - S) @ H.T


def exact(k, X, y, noise, new):
    """The Gaussian process itself: means and covariance matrix of new values, and log p(y)."""
    S = k(X, X) + diag(noise + 0 * y)
    half = k(new, X) @ inverse(S)
    return half @ y, k(new, new) - half @ k(X, new), log_normal(y, 0 * y, S)


# ------------------------------------------------------------------------------------------------ batch after batch


def lost(D_inverse, Q, shift, alpha):
    """What averaging exp(-a' D^-1 a/2 + shift' a) over a ~ N(beta, Q) makes of it: D^-1, shift and log scale.

    exp(E log) for alpha 0, else (E of the power alpha)^(1/alpha): D + alpha Q takes the place of D.
    """
    if alpha == 0:
        return D_inverse, shift, -np.trace(D_inverse @ Q) / 2
    inner = eye(len(Q), Q) + alpha * (D_inverse @ Q)
    left = inverse(inner)
    scale = alpha * (shift @ Q @ left @ shift) / 2 - log_determinant(inner) / (2 * alpha)
    return left @ D_inverse, left @ shift, scale


def online(old, k, Z, X, y, noise, *, alpha=0, jitter=0.0, weights=None):
    """Bui et al., equations (7) and (9): q(b) and the bound of a batch, from q(a) under another kernel and Z_a.

    `old` is (Z_a, m_a, S_a, K'_aa), or None. The rest is as for `batch`. D_a itself, which need not exist, is not used.
    """
    noise = noise + 0 * y
    weights = np.ones(len(y)) + 0 * y if weights is None else weights
    K_bb = prior_of(k, Z, jitter)
    K_bb_inverse = inverse(K_bb)
    precision, shift, constant = K_bb_inverse, 0 * K_bb[0], 0.0
    if old is not None:
        Z_a, m, S, K_old = old
        K_ab = between(k, Z_a, Z, jitter)
        H = K_ab @ K_bb_inverse
        Q = prior_of(k, Z_a, jitter) - H @ K_ab.T
        S_inverse = inverse(S)
        ratio = (log_determinant(K_old) - log_determinant(S) - m @ S_inverse @ m) / 2  # log q(a)/p(a) at a = 0
        D_inverse, moved, scale = lost(S_inverse - inverse(K_old), Q, S_inverse @ m, alpha)
        precision, shift, constant = precision + H.T @ D_inverse @ H, shift + H.T @ moved, ratio + scale
    if len(y):
        H = k(X, Z) @ K_bb_inverse
        variance, more = effective(np.diag(k(X, X)) - np.sum(H * k(X, Z), axis=1), noise, weights, alpha)
        two_pi = 2 * (mp.pi if is_many(y) else math.pi)
        precision, shift = precision + H.T @ diag(1 / variance) @ H, shift + H.T @ (y / variance)
        constant = constant + np.sum(more - log(two_pi * variance) / 2 - y * y / variance / 2)
    S_b = inverse(precision)
    S_b = (S_b + S_b.T) / 2
    integral = (shift @ S_b @ shift - log_determinant(precision) - log_determinant(K_bb)) / 2
    return S_b @ shift, S_b, constant + integral


class Stream:
    """`online` batch after batch: the state is q(u) with the Z and kernel it belongs to."""

    def __init__(self, *, alpha=0, jitter=0.0):
        self.alpha, self.jitter, self.old, self.log_bound = alpha, jitter, None, 0.0

    def update(self, k, Z, X, y, noise, weights=None):
        """Take in a batch; return the increment of the bound."""
        mean, S, increment = online(self.old, k, Z, X, y, noise, alpha=self.alpha, jitter=self.jitter, weights=weights)
        self.old, self.k, self.log_bound = (Z, mean, S, prior_of(k, Z, self.jitter)), k, self.log_bound + increment
        return increment

    @property
    def q(self):
        """Mean and covariance of q(u)."""
        return self.old[1:3]

    def predict(self, X):
        """Means and covariance matrix of new values."""
        return predict(self.k, self.old[0], self.q, X, self.jitter)


# ------------------------------------------------------------------------------------------------ other likelihoods


def ep_batch(k, Z, q, X, log_ps, *, jitter=0.0, alpha=1.0, passes=100, tol=1e-12):
    """Sequential (power) EP of a batch given q(u), or the prior if q is None: new q(u), log evidence, sites on g.

    g = E[f | u], and the factor of row n is (1/alpha) log of the integral of p(y_n|f)^alpha N(f; g_n, residual_n).
    Under a cavity N(m, v) of g that of f is N(m, v + residual), and the derivatives of log Z in m are the same.
    `log_ps[n](f)` is log p(y_n | f).
    """
    K_uu, K_uf = prior_of(k, Z, jitter), k(Z, X)
    H = K_uf.T @ np.linalg.inv(K_uu)
    residual = np.diag(k(X, X)) - np.sum(H * K_uf.T, axis=1)
    mean, S = (np.zeros(len(Z)), K_uu) if q is None else q
    prior, K = H @ mean, H @ S @ H.T
    tau, rho, log_z = np.zeros((3, len(X)))
    for _ in range(passes):
        before = np.concatenate([tau, rho])
        for n, log_p in enumerate(log_ps):
            V = np.linalg.inv(np.eye(len(X)) + K * rho) @ K
            v = 1 / (1 / V[n, n] - alpha * rho[n])
            m = v * ((prior + V @ (tau - rho * prior))[n] / V[n, n] - alpha * tau[n])
            log_z[n], tilted_mean, tilted_variance = log_tilted(lambda f, p=log_p: alpha * p(f), m, v + residual[n])
            d1 = (tilted_mean - m) / (v + residual[n])
            d2 = (tilted_variance / (v + residual[n]) - 1) / (v + residual[n])
            rho[n], tau[n] = -d2 / (1 + v * d2) / alpha, (d1 - m * d2) / (1 + v * d2) / alpha
        if np.max(np.abs(np.concatenate([tau, rho]) - before)) < tol * (1 + np.max(np.abs(before))):
            break
    else:
        raise AssertionError("no fixed point")
    V = np.linalg.inv(np.eye(len(X)) + K * rho) @ K
    evidence = dense.evidence(K, prior, tau, rho, log_z, prior + V @ (tau - rho * prior), V, np.full(len(X), alpha))
    precision = np.linalg.inv(S)
    S_new = np.linalg.inv(precision + H.T @ (rho[:, None] * H))
    return (S_new @ (precision @ mean + H.T @ tau), S_new), evidence, (tau, rho)


# ------------------------------------------------------------------------------------------------ all rows of a stream


@dataclass
class SeenRows:
    """Rows as a stream takes them in, and what became of them since.

    `own_noise` is None for rows of the noise variance of the likelihood, `noise` the one of these that they keep
    whatever that becomes, or None. `power` is what forgetting has left of them, and the inducing variables speak for
    them by the `kernel` (variance, lengthscale).
    """

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    own_noise: np.ndarray | None
    kernel: tuple
    noise: float | None = None
    power: float = 1.0


class Memory:
    """All rows that a stream with inducing points Z has seen: its posterior is found from them anew each time."""

    def __init__(self, Z, *, alpha=0, jitter=0.0):
        self.Z, self.alpha, self.jitter, self.seen = Z, alpha, jitter, []

    def copy(self):
        """Another one of the same rows."""
        out = Memory(self.Z, alpha=self.alpha, jitter=self.jitter)
        out.seen = [replace(rows) for rows in self.seen]
        return out

    def forget(self, factor):
        """All rows to the power of a factor."""
        self.seen = [replace(rows, power=rows.power * factor) for rows in self.seen if factor > 0]

    def scale(self, s):
        """The covariance of all rows so far times s."""
        for rows in self.seen:
            rows.kernel = s * rows.kernel[0], rows.kernel[1]

    def keep_noise(self, noise):
        """Rows so far keep the noise that the likelihood has now, whatever it will have."""
        for rows in self.seen:
            rows.noise = noise if rows.noise is None else rows.noise

    @property
    def uniform(self):
        """Whether all rows have the noise of the likelihood, whatever it becomes."""
        return all(rows.own_noise is None and rows.noise is None for rows in self.seen)

    def posterior(self, kernel, noise, *, second=False):
        """Mean and covariance of q(u), and the log bound, under a kernel (variance, lengthscale) and noise variance.

        With `again`, those of one fit of all rows under this kernel.
        """
        K = prior_of(rbf(*kernel), self.Z, self.jitter)
        precision, shift, constant = inverse(K), 0 * K[0], 0.0
        for rows in self.seen:
            k = rbf(*(kernel if second else rows.kernel))
            H = k(rows.X, self.Z) @ inverse(prior_of(k, self.Z, self.jitter))
            stored = noise if rows.noise is None or second else rows.noise
            residual = np.diag(k(rows.X, rows.X)) - np.sum(H * k(rows.X, self.Z), axis=1)
            variance, more = effective(
                residual, stored if rows.own_noise is None else rows.own_noise, rows.weights, self.alpha
            )
            density = more - np.log(2 * np.pi * variance) / 2 - rows.y**2 / variance / 2
            precision = precision + rows.power * H.T @ diag(1 / variance) @ H
            shift = shift + rows.power * H.T @ (rows.y / variance)
            constant += rows.power * np.sum(density)
        S = inverse(precision)
        value = (shift @ S @ shift - log_determinant(precision) - log_determinant(K)) / 2
        return S @ shift, (S + S.T) / 2, constant + value
