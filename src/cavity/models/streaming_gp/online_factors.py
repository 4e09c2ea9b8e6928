"""What the formulas of `online_bound` share: the two expectations as quadratic functions, and their sum with the prior.

Values at the new inducing points are b = L w with K_bb = L L', so that w ~ N(0, I) under the prior.
"""

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import NotPositiveDefiniteError, check_within_range
from cavity.base.triangles import invert_lower, solve_lower, whiten

MAX_ROUNDING_SHARE = 1e-6  # a conditional variance below minus this times the prior's is not a matter of rounding


@dataclass(frozen=True, slots=True)
class NewInducing:
    """The new inducing variables, b = L w with w ~ N(0, I)."""

    covariance: np.ndarray  # (M_b, M_b)
    factor: np.ndarray  # L

    @classmethod
    def of(cls, K_bb):
        """Check K_bb and factorise it."""
        K_bb = arrays.check_symmetric(K_bb, "K_bb")
        return cls(K_bb, arrays.cholesky(K_bb, "K_bb"))

    @property
    def size(self):
        """M_b."""
        return len(self.covariance)

    def features(self, K, name, n):
        """n rows of covariances with b, (n, M_b), in terms of w: K L^-T."""
        return solve_lower(self.factor, arrays.check_shaped(K, name, (n, self.size)).T).T


@dataclass(frozen=True, slots=True)
class OldExpectation:
    """E_1 as a function of w: the ratio q(a)/p'(a) = exp(constant + S_a^-1 m_a . a - a' D_a^-1 a/2), averaged."""

    mean: np.ndarray  # m_a
    factor: np.ndarray  # lower Cholesky factors of S_a,
    prior_factor: np.ndarray  # and of K'_aa
    precision: np.ndarray  # D_a^-1
    features: np.ndarray  # (M_a, M_b): beta = features w
    residual: np.ndarray  # Q_a, (M_a, M_a)
    root: np.ndarray  # Q_a = root root',
    gain: np.ndarray  # (M_a,): root' D_a^-1 root = diag(gain)
    alpha: float

    @classmethod
    def of(cls, coordinates, alpha, mean, covariance, prior, K_aa, K_ab):
        """Check the arguments; None if there are no old inducing points."""
        mean = arrays.check_finite_array(mean, "old_mean", ndim=(1,))
        size = len(mean)
        matrices = {"old_covariance": covariance, "old_prior": prior, "K_aa": K_aa}
        if size == 0:
            for name, matrix in (matrices | {"K_ab": K_ab}).items():
                arrays.check_shaped(matrix, name, (0, coordinates.size if name == "K_ab" else 0))
            return None
        S, K_old, K_new = (arrays.check_symmetric(matrix, name, size) for name, matrix in matrices.items())
        features = coordinates.features(K_ab, "K_ab", size)
        residual = K_new - features @ features.T
        root = _compute_root(residual, np.max(np.diag(K_new)))
        factor, prior_factor = arrays.cholesky(S, "old_covariance"), arrays.cholesky(K_old, "old_prior")
        precision = _subtract_inverses(S, factor, K_old, prior_factor)
        gain, rotation = np.linalg.eigh(root.T @ precision @ root)
        if not 1.0 + alpha * gain[0] > 0.0:
            raise NotPositiveDefiniteError(
                f"I + alpha D_a^-1 Q_a must be positive definite for the power mean to be finite; it has the "
                f"eigenvalue {1.0 + alpha * gain[0]:g}"
            )
        return cls(mean, factor, prior_factor, precision, features, residual, root @ rotation, gain, alpha)

    def natural(self):
        """Minus the curvature in w, and the slope at w = 0."""
        shift = solve_cholesky(self.factor, self.mean)
        system = np.eye(len(self.mean)) + self.alpha * (self.precision @ self.residual)
        inner = np.linalg.solve(system, np.column_stack([self.precision, shift]))
        information = self.features.T @ inner[:, :-1] @ self.features
        return 0.5 * (information + information.T), self.features.T @ inner[:, -1]

    def values(self, w):
        """E_1 for rows of w (n, M_b): log q/p' at the peak of the average, less its distance and width."""
        beta = w @ self.features.T
        slope = (solve_cholesky(self.factor, self.mean) - beta @ self.precision) @ self.root
        step = slope / (1.0 + self.alpha * self.gain)  # the peak is at beta + alpha root step
        distance = 0.5 * self.alpha * np.sum(step * step, axis=1) + 0.5 * np.sum(_log_mean_exp(self.gain, self.alpha))
        return self._log_ratio(beta + self.alpha * (step @ self.root.T)) - distance

    def _log_ratio(self, a):
        """log q(a) - log p'(a) for rows of a (n, M_a)."""
        z, z_prior = solve_lower(self.factor, (a - self.mean).T), solve_lower(self.prior_factor, a.T)
        constant = compute_half_log_determinant(self.prior_factor) - compute_half_log_determinant(self.factor)
        return constant + 0.5 * (np.sum(z_prior * z_prior, axis=0) - np.sum(z * z, axis=0))


@dataclass(frozen=True, slots=True)
class NewExpectation:
    """E_2 as a function of w."""

    y: np.ndarray
    features: np.ndarray  # (N, M_b): E[f | b] = features w
    variance: np.ndarray  # noise + alpha Q_f
    constant: float

    @classmethod
    def of(cls, coordinates, alpha, y, K_ff_diagonal, K_fb, noise_variance):
        """Check the arguments; None if there are no rows."""
        y = arrays.check_finite_array(y, "y", ndim=(1,))
        diagonal = arrays.check_shaped(K_ff_diagonal, "K_ff_diagonal", y.shape)
        noise = arrays.check_positive_array(noise_variance, "noise_variance")
        if noise.shape not in ((), y.shape):
            raise ValueError(f"noise_variance must be a number or have shape {y.shape} like y, got {noise.shape}")
        if len(y) == 0:
            arrays.check_shaped(K_fb, "K_fb", (0, coordinates.size))
            return None
        features = coordinates.features(K_fb, "K_fb", len(y))
        residual = diagonal - np.sum(features * features, axis=1)
        wrong = residual < -MAX_ROUNDING_SHARE * np.abs(diagonal)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"K_ff_diagonal must be at least what K_fb and K_bb explain; in row {row} it is {diagonal[row]:g}, "
                f"and {diagonal[row] - residual[row]:g} is explained"
            )
        residual = np.maximum(residual, 0.0)  # below zero is rounding
        loss = _log_mean_exp(residual / noise, alpha)
        constant = -0.5 * float(np.sum(loss + LOG_2PI + np.log(np.broadcast_to(noise, y.shape))))
        return cls(y, features, noise + alpha * residual, constant)

    def natural(self):
        """Minus the curvature in w, and the slope at w = 0."""
        scaled = self.features / self.variance[:, None]
        return scaled.T @ self.features, scaled.T @ self.y

    def values(self, w):
        """E_2 for rows of w (n, M_b)."""
        residual = self.y - w @ self.features.T
        return self.constant - 0.5 * np.sum(residual * residual / self.variance, axis=1)


@dataclass(frozen=True, slots=True)
class OptimalQ:
    """q_opt(b) in coordinates w: mean and the lower Cholesky factor of its precision."""

    coordinates: NewInducing
    parts: list
    factor: np.ndarray
    w: np.ndarray

    @classmethod
    def of(cls, K_bb, old, new, alpha):
        """Check the arguments, and multiply the prior by exp(E_1 + E_2)."""
        coordinates, alpha = NewInducing.of(K_bb), check_alpha(alpha)
        parts = collect_expectations(coordinates, alpha, old, new)
        precision, slope = np.eye(coordinates.size), np.zeros(coordinates.size)
        for part in parts:
            information, shift = part.natural()
            precision, slope = precision + information, slope + shift
        factor = arrays.cholesky(check_within_range(precision, "the precisions of q(b)"), "the precision of q(b)")
        return cls(coordinates, parts, factor, solve_cholesky(factor, slope))


def collect_expectations(coordinates, alpha, old, new):
    """E_1 and E_2, those of them that are there."""
    both = OldExpectation.of(coordinates, alpha, *old), NewExpectation.of(coordinates, alpha, *new)
    return [part for part in both if part is not None]


def evaluate_expectation(coordinates, part, b):
    """E_1 or E_2 at one or many b."""
    b = arrays.check_finite_array(b, "b", ndim=(1, 2))
    if b.shape[-1] != coordinates.size:
        raise ValueError(f"b must have {coordinates.size} values like K_bb has rows, got shape {b.shape}")
    w = solve_lower(coordinates.factor, b.reshape(-1, coordinates.size).T).T
    values = np.zeros(len(w)) if part is None else check_within_range(part.values(w), "the values at b")
    return values if b.ndim == 2 else float(values[0])


def check_alpha(alpha):
    """Check the exponent of power means."""
    return arrays.check_number(alpha, "alpha", low=0, high=1, closed_low=True, closed_high=True)


def compute_half_log_determinant(factor):
    """Half of log |factor factor'|."""
    return float(np.sum(np.log(np.diag(factor))))


def solve_cholesky(factor, b):
    """(factor factor')^-1 b."""
    inverse = invert_lower(factor)
    return inverse.T @ (inverse @ b)


def _log_mean_exp(x, alpha):
    """log(1 + alpha x)/alpha, which is x for alpha = 0."""
    return x if alpha == 0.0 else np.log1p(alpha * x) / alpha


def _subtract_inverses(S, factor, K, prior_factor):
    """S^-1 - K^-1 from K - S: where the data have no information the two are close, and their inverses too."""
    ratio = solve_lower(prior_factor, factor)  # S in coordinates in which K is the identity is ratio ratio'
    inner = solve_cholesky(ratio, whiten(prior_factor, K - S))  # symmetric: the two commute
    inverse = invert_lower(prior_factor)
    return inverse.T @ (0.5 * (inner + inner.T)) @ inverse


def _compute_root(residual, scale):
    """A square root of Q_a, which may be singular; what is below zero in it is rounding."""
    values, vectors = np.linalg.eigh(residual)
    if values[0] < -MAX_ROUNDING_SHARE * scale:
        raise ValueError(
            "K_aa must be at least what K_ab and K_bb explain; K_aa - K_ab K_bb^-1 K_ba has the eigenvalue "
            f"{values[0]:g}"
        )
    return vectors * np.sqrt(np.maximum(values, 0.0))
