"""Many Gaussian responses of one design: their evidence in closed form, and its maximum by Newton's method.

With f = base + F (s u), u ~ N(0, I), and noise of variance s2/w, w the weights of rows, sums over rows are those of the
triangle R of sqrt(w) F = Q R and of c = Q' sqrt(w) (y - base), whatever the variances. With P = I + s R'R s/s2,

    u = P^-1 s R'c/s2,
    log Z = -sum(w)/2 log(2 pi s2) - (rest + |c - R (s u)|^2)/(2 s2) - |u|^2/2 - log|P|/2,                          (1)

`rest` what c leaves of the squares. The columns of one random effect, none of which share a row, are a diagonal block
of P and are eliminated first. Derivatives in log s2 and in logs t of factors on prior variances of groups of columns
follow from B = I - P^-1, which is F'K^-1 F in units of the prior for the covariance K of y:

    dlog Z/dt_j = (|u_j|^2 - tr B_jj)/2,     d2log Z/dt_j dt_k = |B_jk|^2/2 - u_j'B_jk u_k + [j = k] dlog Z/dt_j;   (2)

the noise stands for what is missing of K in the sum over all columns. Steps are Newton's with absolute values of
curvatures, at most 2 along each of their axes; one that lowers (1) is halved.
"""

from dataclasses import dataclass, fields

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.likelihoods.parameters import PARAMETER_RANGE
from cavity.models.linear.evidence_search import MIN_FALL_NATS
from cavity.models.many.batch import MAX_NEWTON_STEP, BatchSolution, find_converged_slope, find_held
from cavity.models.many.beliefs import factorise
from cavity.models.search import FAR_LOG_STEP
from cavity.models.standard_errors import MIN_STANDARD_CURVATURE

RISING_SLOPE = 1e-5  # nats per unit of a free number, from which the evidence rises beyond a bound
MIN_EIGENVALUE = 1e-12  # of the curvature, relative to the largest: less is no reason for longer steps
MAX_ROUNDING_LOSS = 1e-12  # of the log evidence, relative, that counts as none
MIN_NOISE_SHARE = 1e-4  # of the squares of y about the prior mean, where a search for the noise begins


@dataclass(slots=True, eq=False)
class GaussianMoments:
    """What follows from the variances of A responses."""

    value: np.ndarray  # (A,): (1)
    u: np.ndarray  # (A, M)
    covariance: np.ndarray  # (A, M, M): P^-1
    slope: np.ndarray  # (A, k): (2)
    hessian: np.ndarray  # (A, k, k)

    def put(self, index, part):
        """Put the moments of some responses in their places."""
        for f in fields(self):
            getattr(self, f.name)[index] = getattr(part, f.name)


class GaussianSolver:
    """The maxima of the evidence of B responses.

    Parameters
    ----------
    features : ndarray (N, M)
        The whitened design.
    y, base : ndarray (B, N)
        Observations, and prior means of f.
    scale : ndarray (B, M)
        Prior sds of the whitened weights where the logs of the factors are 0.
    weights : ndarray (N,) or (B, N)
        Of the rows, or of the rows of each response.
    noise_variance : float or None
        That of the likelihood; None is learnt.
    groups : list of slice
        The columns of each factor on prior variances that is learnt.
    priors : LogNormalPriors
        Of the free numbers.
    max_iter : int
        Most evaluations.
    """

    def __init__(self, features, y, base, scale, weights, noise_variance, groups, priors, max_iter):
        root = np.sqrt(weights)
        rows = np.atleast_2d(root)[:, :, None] * features  # (P, N, M): one design for all, or one each
        basis, self.triangle = np.linalg.qr(rows)
        left = root * (y - base)
        self.c = _multiply(np.swapaxes(basis, 1, 2), left)
        self.rest = np.sum((left - _multiply(basis, self.c)) ** 2, axis=1)
        self.pulled = _multiply(np.swapaxes(self.triangle, 1, 2), self.c)
        self.gram = np.matmul(np.swapaxes(rows, 1, 2), rows)
        self.total = np.sum(np.atleast_2d(weights), axis=1)
        self.scale, self.noise_variance, self.groups = scale, noise_variance, groups
        self.priors, self.max_iter, self.least_slope = priors, max_iter, find_converged_slope(features)
        self.first = _find_diagonal_block(self.gram, groups)
        self.members = np.zeros((features.shape[1], len(groups)))
        for j, group in enumerate(groups):
            self.members[group, j] = 1.0

    def choose_starts(self):
        """Return free numbers (B, k): the noise is what all columns leave, effects are as large as the observations."""
        squares = (self.rest + np.sum(self.c**2, axis=1)) / self.total
        left = self.rest / np.maximum(self.total - self.triangle.shape[1], 1.0)
        noise = np.maximum(left, MIN_NOISE_SHARE * squares)
        diagonal = np.diagonal(self.gram, axis1=1, axis2=2)
        lengths = [np.mean(diagonal[:, group], axis=1) / self.total * _size(group) for group in self.groups]
        lengths = [np.where(length > 0, length, 1.0) for length in lengths]  # 0 where no row is observed of any level
        variances = [np.maximum(squares, np.finfo(float).tiny) / (len(lengths) * length) for length in lengths]
        starts = [np.maximum(noise, np.finfo(float).tiny)] if self.noise_variance is None else []
        return np.log(np.array(starts + variances)).T.reshape(len(squares), len(starts) + len(variances))

    def solve(self):
        """Climb from `choose_starts`; return the `BatchSolution`."""
        free = self.choose_starts()
        count, (m, k) = len(free), (self.scale.shape[1], free.shape[1])
        bounds = free + np.log(PARAMETER_RANGE) * np.array([-1.0, 1.0])[:, None, None]
        shapes = (), (m,), (m, m), (k,), (k, k)
        best, sweeps = GaussianMoments(*(np.zeros((count, *shape)) for shape in shapes)), np.zeros(count, dtype=np.intp)
        best.value[:] = -np.inf
        solved, trial, active = np.zeros(count, dtype=bool), free.copy(), np.arange(count)
        for sweep in range(1, self.max_iter + 1):
            part = self.evaluate(active, trial[active])
            allowed = best.value[active] - MAX_ROUNDING_LOSS * np.abs(best.value[active])
            better = (part.value >= allowed) | np.isneginf(best.value[active])
            accepted = active[better & np.isfinite(part.value)]
            best.put(accepted, _take(part, better & np.isfinite(part.value)))
            free[accepted] = trial[accepted]
            worse = active[~better]
            trial[worse] = 0.5 * (free[worse] + trial[worse])
            step, is_done = _find_steps(best, accepted, free, bounds, self.least_slope)
            trial[accepted] = np.clip(free[accepted] + step, bounds[0][accepted], bounds[1][accepted])
            solved[accepted[is_done]], sweeps[accepted[is_done]] = True, sweep
            active = np.sort(np.append(accepted[~is_done], worse))
            if not active.size:
                break
        at_bounds = (free <= bounds[0]) | (free >= bounds[1])
        solved &= ~np.any(at_bounds & (np.abs(best.slope) > RISING_SLOPE), axis=1)  # it still rises there
        value = best.value - self.priors.evaluate(slice(None), free)
        flat = self._find_flat_noise(free, best, solved)
        curvature = np.diagonal(best.hessian, axis1=1, axis2=2).copy()
        return BatchSolution(solved, sweeps, best.u, best.covariance, value, free, curvature, flat)

    def _find_flat_noise(self, free, best, solved):
        """Return in which responses the density does not fall as a noise that is learnt goes to 0, (B,)."""
        flat = np.zeros(len(free), dtype=bool)
        if self.noise_variance is None:
            doubtful = np.flatnonzero(solved & (-best.hessian[:, 0, 0] < MIN_STANDARD_CURVATURE))
            further = free[doubtful] - FAR_LOG_STEP * (np.arange(free.shape[1]) == 0)
            flat[doubtful] = self.evaluate(doubtful, further).value >= best.value[doubtful] - MIN_FALL_NATS
        return flat

    def evaluate(self, number, free):
        """Return the `GaussianMoments` of some responses at free numbers (A, k), log priors included."""
        learns_noise = self.noise_variance is None
        noise = np.exp(free[:, 0]) if learns_noise else np.full(len(number), self.noise_variance)
        scale = self.scale[number]
        for j, group in enumerate(self.groups, int(learns_noise)):
            scale[:, group] *= np.exp(0.5 * free[:, j, None])
        with np.errstate(all="ignore"):
            gram, triangle, total = self._design_of(number)
            covariance, log_determinant = _invert(gram, scale / np.sqrt(noise)[:, None], self.first)
            u = np.matmul(covariance, (scale * self.pulled[number] / noise[:, None])[:, :, None])[:, :, 0]
            fitted = _multiply(triangle, scale * u)
            squares = (self.rest[number] + np.sum((self.c[number] - fitted) ** 2, axis=1)) / noise
        value = -0.5 * (total * (LOG_2PI + np.log(noise)) + squares + np.sum(u * u, axis=1) + log_determinant)
        slope, hessian = self._differentiate(u, covariance, squares, total)
        if not learns_noise:
            slope, hessian = slope[:, 1:], hessian[:, 1:, 1:]
        slope, bends = self.priors.add_to(number, free, slope, 0.0)
        hessian = hessian + bends[:, :, None] * np.eye(bends.shape[1])
        return GaussianMoments(value + self.priors.evaluate(number, free), u, covariance, slope, hessian)

    def _design_of(self, number):
        """Return the sums over rows of some responses, or of all."""
        parts = self.gram, self.triangle, self.total
        return parts if len(self.gram) == 1 else tuple(part[number] for part in parts)

    def _differentiate(self, u, covariance, squares, total):
        """Return (2), the noise first; `squares` are those of y about f, in units of the noise, `total` weights."""
        B, T, k = np.eye(u.shape[1]) - covariance, self.members, self.members.shape[1]
        bends = u[:, :, None] * u[:, None, :]
        bends = np.multiply(np.subtract(0.5 * B, bends, out=bends), B, out=bends)
        by_row = np.matmul(bends, T)  # (A, M, k)
        own = 0.5 * _multiply(T.T, u * u - np.diagonal(B, axis1=1, axis2=2))
        length, traces = np.sum(u * u, axis=1), np.trace(B, axis1=1, axis2=2)
        slope = np.column_stack([0.5 * (squares - total + traces), own])
        hessian = np.empty((len(u), k + 1, k + 1))
        hessian[:, 1:, 1:] = np.matmul(T.T, by_row) + own[:, :, None] * np.eye(k)
        # tr(K^-1 A_j) and r'K^-1 A_j K^-1 r of the noise, less what the columns have of them
        hessian[:, 0, 1:] = hessian[:, 1:, 0] = -own - 0.5 * _multiply(T.T, u * u) - np.sum(by_row, axis=1)
        hessian[:, 0, 0] = slope[:, 0] + 0.5 * total - traces - squares + length + np.sum(bends, axis=(1, 2))
        return slope, hessian


def _multiply(matrix, vectors):
    """Return products of a matrix, or of one each, with vectors (B, n), in bits that do not depend on the others."""
    return np.matmul(matrix, vectors[:, :, None])[:, :, 0]


def _size(group):
    return group.stop - group.start


def _take(moments, index):
    return GaussianMoments(*(getattr(moments, f.name)[index] for f in fields(moments)))


def _find_diagonal_block(gram, groups):
    """Return the largest group whose columns share no row in any design, an empty one if there is none."""
    gram = np.sum(np.abs(gram), axis=0)
    diagonal = [g for g in groups if np.count_nonzero(gram[g, g]) == np.count_nonzero(np.diag(gram)[g])]
    return max(diagonal, key=_size, default=slice(0, 0))


def _invert(gram, scale, first):
    """Return P^-1, P = I + scale gram scale, and log|P|, nan for none, by elimination of a diagonal block.

    Parameters
    ----------
    gram : ndarray (1, M, M) or (A, M, M)
        Symmetric; one for all, or one each.
    scale : ndarray (A, M)
        Of each response.
    first : slice
        The columns of the block.
    """
    m = gram.shape[1]
    eliminated = np.zeros(m, dtype=bool)
    eliminated[first] = True
    i, j = np.flatnonzero(eliminated), np.flatnonzero(~eliminated)
    a, b = scale[:, i], scale[:, j]
    diagonal = 1.0 + a * a * np.diagonal(gram, axis1=1, axis2=2)[:, i]
    across = (a[:, :, None] * gram[:, i[:, None], j] * b[:, None, :]) / diagonal[:, :, None]  # D^-1 C
    schur = b[:, :, None] * gram[:, j[:, None], j] * b[:, None, :] + np.eye(len(j))
    schur = schur - np.matmul(np.swapaxes(across, 1, 2), diagonal[:, :, None] * across)
    factor, proper = factorise(schur)
    root = np.linalg.inv(factor)
    small = np.matmul(np.swapaxes(root, 1, 2), root)
    out = np.empty((len(scale), m, m))
    mixed = np.matmul(across, small)
    out[:, j[:, None], j] = small
    out[:, i[:, None], j] = -mixed
    out[:, j[:, None], i] = -np.swapaxes(mixed, 1, 2)
    out[:, i[:, None], i] = np.matmul(mixed, np.swapaxes(across, 1, 2))
    out[:, i, i] += 1.0 / diagonal
    logs = np.sum(np.log(diagonal), axis=1) + 2.0 * np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)), axis=1)
    return out, np.where(proper, logs, np.nan)


def _find_steps(best, number, free, bounds, least):
    """Return steps uphill of some responses, (A, k), and which are at rest, (A,): slopes up to `least` are none."""
    slope, hessian = best.slope[number].copy(), best.hessian[number].copy()
    low, high = bounds[0][number], bounds[1][number]
    held = find_held(free[number], slope, low, high)
    is_done = np.all((np.abs(slope) <= least) | held, axis=1)
    if not slope.shape[1]:
        return slope, is_done
    slope[held] = 0.0
    hessian[held[:, :, None] | held[:, None, :]] = 0.0
    bends, axes = np.linalg.eigh(hessian)
    bends = np.abs(bends)
    bends = np.maximum(bends, MIN_EIGENVALUE * np.max(bends, axis=1, keepdims=True) + np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        steps = _multiply(np.swapaxes(axes, 1, 2), slope) / bends
    return _multiply(axes, np.clip(steps, -MAX_NEWTON_STEP, MAX_NEWTON_STEP)), is_done
