"""Solves with I + K R, R the diagonal precisions of sites on N function values with covariance K.

With S^2 the positive part of R, everything is found from the triangle of B = I + S K S, whose eigenvalues are at least
one: no inverse of K, and no jitter [RW]_ (section 3.6). Sites of negative precision, T = -R there, take away from
Sigma_+ = (K^-1 + S^2)^-1:

    Sigma = Sigma_+ + Sigma_+ T^(1/2) C^-1 T^(1/2) Sigma_+,    C = I - T^(1/2) Sigma_+ T^(1/2) over these sites,

which exists if and only if C is positive definite.

Digits: where rho_i K_ii > 1 moments come from B^-1, Sigma_ii = (1 - B^-1_ii)/rho_i, else from K by subtraction; neither
loses more than the conditioning of B where it is used. Predictions are solves with L, not products with its inverse,
which would lose the square of that.

References
----------
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", 2006.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from cavity import _core
from cavity.base.records import Array, declare
from cavity.linalg import tiled
from cavity.runs.executors import split_range

_kernel = _core.best("latent")

COLUMNS_PER_TASK = 256  # of K, or rows of a triangle, worked on at a time
MIN_DIRECT_VARIANCE_RATIO = 1e-4  # rho_i Sigma_ii from which Sigma_ii is taken from B^-1: what is lost is below 1e-11


@dataclass(slots=True)
class Solver:
    """The triangle of B and what negative sites add: solves with I + K R."""

    root: np.ndarray = declare(Array("U", "nonnegative"))  # S, of the U rows
    triangle: np.ndarray = declare(Array("U U", "triangle"))  # lower: L, B = L L', or its inverse
    inverted: bool
    log_determinant: float  # of I + K R
    # of the J negative sites: indices, T^(1/2), K_n. S L^-T, and a lower triangle, C = corner corner'
    negative: np.ndarray | None = declare(Array("J", "nonnegative", "i"), default=None)
    weight: np.ndarray | None = declare(Array("J", "positive"), default=None)
    reach: np.ndarray | None = declare(Array("J U"), default=None)
    corner: np.ndarray | None = declare(Array("J J", "triangle"), default=None)
    # of B^-1, once it was read
    diagonal: np.ndarray | None = declare(Array("U", "nonnegative"), default=None)
    cleared: bool = False  # whether zeros are above the triangle

    def forward(self, x, threads=tiled.ONE_THREAD, transposed=False):
        """L^-1 applied to the rows of x (n, N), which is overwritten where it can be; L^-T if transposed."""
        if len(x) == 1:
            apply = blas.dtrmv if self.inverted else blas.dtrsv  # half the time of the others
            return apply(self.triangle.T, x[0], lower=0, trans=not transposed, overwrite_x=1)[None]
        return tiled.solve(self.triangle, x, threads, inverted=self.inverted, transposed=transposed)

    def backward(self, x, threads=tiled.ONE_THREAD):
        """L^-T applied to the rows of x (n, N), which is overwritten where it can be."""
        return self.forward(x, threads, transposed=True)

    def clear(self):
        """Put zeros above the triangle."""
        if not self.cleared:
            tiled.clear(self.triangle)
            self.cleared = True

    def invert(self, threads):
        """Replace L by its inverse."""
        if not self.inverted:
            tiled.invert(self.triangle, threads)
            self.inverted = True
        return self

    def find_inverse_diagonal(self, threads):
        """The diagonal of B^-1, (N,): one minus rho_i times the variance that positive sites leave."""
        if self.diagonal is None:
            self.diagonal = np.empty(len(self.root))
            columns = split_range(len(self.root), -(-len(self.root) // COLUMNS_PER_TASK))
            triangle = self.invert(threads).triangle
            threads.run(_kernel.column_squares, [(triangle, self.diagonal, *span) for span in columns])
        return self.diagonal

    def explain(self, cross):
        """Return rows v and z for values with covariances `cross` (n, N) with f.

        Their covariance under the posterior is the prior's less v v' plus z z'; z is None without negative sites.
        """
        v = self.forward(cross * self.root)
        if self.negative is None:
            return v, None
        remainder = (cross[:, self.negative] - v @ self.reach.T) * self.weight
        # z' = C^(-1/2) T^(1/2) (K_n* - reach v'): (m, m) (m, n) of m negative sites
        return v, blas.dtrsm(1.0, self.corner, remainder.T, lower=1).T

    def find_covariance(self, prior, cross):
        """Posterior covariance of values with prior covariance `prior` (n, n), which it takes."""
        v, z = self.explain(cross)
        prior -= v @ v.T
        if z is not None:
            prior += z @ z.T
        return 0.5 * (prior + prior.T)

    def find_variances(self, prior, cross):
        """Posterior variances of values with prior variances `prior` (n,) and covariances `cross` (n, N) with f."""
        v, z = self.explain(cross)
        out = prior - np.einsum("ij,ij->i", v, v)
        if z is not None:
            out += np.einsum("ij,ij->i", z, z)
        # smaller differences are rounding
        return np.maximum(out, np.finfo(float).eps * prior)


def factorise(gram, h, buffer, threads):
    """Factorise for site precisions h; the triangle goes to `buffer` (N, N). None if the posterior is not proper."""
    root = np.sqrt(np.maximum(h, 0.0))
    tiled.run_by_rows(threads, _kernel.scaled, len(root), gram, root, buffer)
    failed = tiled.factor(buffer, threads)  # B = I + S K S = L L' (N, N), in place
    diagonal = np.diagonal(buffer)
    if failed or not np.isfinite(diagonal).all():
        return None
    out = Solver(root, buffer, False, 2.0 * float(np.sum(np.log(diagonal))))
    negative = np.flatnonzero(h < 0)
    if negative.size:
        out.weight = np.sqrt(-h[negative])
        cross = gram[negative]
        # C = I - T^(1/2) (K_nn - K_n. S B^-1 S K_.n) T^(1/2) (m, m) = corner corner'
        out.reach = out.forward(cross * root, threads)
        remainder = cross[:, negative] - out.reach @ out.reach.T
        system = -out.weight[:, None] * remainder * out.weight
        system[np.diag_indices_from(system)] += 1.0
        out.corner, failed = lapack.dpotrf(system, lower=1)
        if failed:
            return None
        out.negative = negative
        out.log_determinant += 2.0 * float(np.sum(np.log(np.diagonal(out.corner))))
    return out


def extend_solver(solver, cross, own, h, buffer):
    """The solver of more sites, whose first are those of a `solver` with a clear triangle, no inverse, and h > 0.

    The new values have covariances `cross` (m, n) with the others, which it takes, and `own` (m, m). None if the
    posterior is not proper. It costs N^2 operations a new site.
    """
    n, root = len(solver.root), np.sqrt(h)
    cross *= root[n:, None]
    cross *= solver.root
    # rows below L (m, n) and the corner (m, m) of the new triangle: B_21 L^-T, then B_22 less its square
    across = solver.forward(cross)
    corner = root[n:, None] * own * root[n:] - across @ across.T
    corner[np.diag_indices_from(corner)] += 1.0
    corner, failed = lapack.dpotrf(corner, lower=1)
    if failed or not np.all(np.isfinite(np.diagonal(corner))):
        return None
    for low in range(0, n, COLUMNS_PER_TASK):  # what is zero is not read
        high = min(low + COLUMNS_PER_TASK, n)
        buffer[low:high, :high], buffer[low:high, high:] = solver.triangle[low:high, :high], 0.0
    buffer[n:, :n], buffer[n:, n:] = across, corner
    more = 2.0 * float(np.sum(np.log(np.diagonal(corner))))
    return Solver(root, buffer, False, solver.log_determinant + more, cleared=True)


def is_prior_weaker(diagonal, h):
    """Return whether every site is more precise than a prior of these variances: `solve` then needs no gram."""
    return bool((h * diagonal > 1.0).all())


def solve(gram, solver, h, g):
    """alpha = (I + R K)^-1 g and the posterior mean K alpha, which has (K^-1 + R) mean = g.

    gram may be None where all sites are more precise than the prior, see `is_prior_weaker`.
    """
    n = solver.negative
    if n is None:
        return _solve_positive(gram, solver, h, g)
    _, mean = _solve_positive(gram, solver, np.maximum(h, 0.0), g)
    # C^-1 T^(1/2) of the means that positive sites give at the m negative ones
    scaled = lapack.dpotrs(solver.corner, solver.weight * mean[n], lower=1)[0]
    pushed = g.copy()
    pushed[n] += solver.weight * scaled  # T times the means at the negative sites
    return _solve_positive(gram, solver, np.maximum(h, 0.0), pushed)


def _solve_positive(gram, solver, h, g):
    """`solve` for h >= 0: by S^-1 g for sites more precise than the prior, by K g for the others."""
    root = solver.root
    if gram is None or is_prior_weaker(np.diagonal(gram), h):
        alpha = root * solver.backward(solver.forward((g / root)[None]))[0]
        return alpha, (g - alpha) / h
    strong = h * np.diagonal(gram) > 1.0
    weak = np.where(strong, 0.0, g)
    right = np.where(strong, g, 0.0) / np.where(strong, root, 1.0)
    if weak.any():
        right -= root * (gram @ weak)
    # B^-1 = L^-T L^-1 (N, N) (N,), and K alpha
    alpha = weak + root * solver.backward(solver.forward(right[None]))[0]
    mean = gram @ alpha
    mean[strong] = ((g - alpha) / np.where(strong, h, 1.0))[strong]
    return alpha, mean


def find_variances(gram, solver, h, threads):
    """Posterior variances of the function values; a solver whose diagonal was not read before is inverted."""
    explained = 1.0 - solver.find_inverse_diagonal(threads)
    well = explained > MIN_DIRECT_VARIANCE_RATIO
    out = explained / np.where(well, h, 1.0)
    rest = np.flatnonzero(~well)
    for low in range(0, rest.size, COLUMNS_PER_TASK):
        index = rest[low : low + COLUMNS_PER_TASK]
        prior, v = np.diagonal(gram)[index], solver.forward(gram[index] * solver.root, threads)
        # smaller differences are rounding
        out[index] = np.maximum(prior - np.einsum("ij,ij->i", v, v), np.finfo(float).eps * prior)
    if solver.negative is not None:
        z = _whiten_negative(gram, solver, h)
        out += np.einsum("ij,ij->j", z, z)
    return out


def _whiten_negative(gram, solver, h):
    """C^(-1/2) T^(1/2) Sigma_+ for the rows of the negative sites, (n, N): its square is what they add to Sigma_+."""
    # Sigma_+ of the negative sites' rows: K_n. - K_n. S B^-1 S K, (m, N) (N, N)
    back = solver.root * solver.backward(solver.reach.copy())
    cross = gram[solver.negative] - back @ gram
    strong = h * np.diagonal(gram) > 1.0
    cross[:, strong] = back[:, strong] / h[strong]
    return blas.dtrsm(1.0, solver.corner, solver.weight[:, None] * cross, lower=1)


def find_covariance(gram, solver, h, threads):
    """The posterior covariance of the function values, in the lower triangle of the solver's buffer, which it takes."""
    well = 1.0 - solver.find_inverse_diagonal(threads) > MIN_DIRECT_VARIANCE_RATIO
    triangle = solver.invert(threads).triangle
    rest = np.flatnonzero(~well)
    if rest.size:
        v = solver.forward(gram[rest] * solver.root, threads)
        columns = gram[rest] - (solver.root * solver.backward(v, threads)) @ gram
    added = None if solver.negative is None else _whiten_negative(gram, solver, h)
    tiled.square(triangle, threads)  # B^-1 = L^-T L^-1 (N, N), in place
    scale = np.where(well, 1.0 / np.where(well, solver.root, 1.0), 0.0)
    tiled.run_by_rows(threads, _kernel.covariance, len(scale), triangle, scale)
    for i, column in zip(rest, columns if rest.size else (), strict=True):
        triangle[i, : i + 1] = column[: i + 1]
        triangle[i:, i] = column[i:]
    if added is not None:
        tiled.add_squares(triangle, added, added[:0], threads)
    return triangle


def find_evidence_weights(solver, alpha, threads):
    """d log evidence / d K in the lower triangle of the solver's buffer, which it takes: (alpha alpha' - A)/2.

    A = (I + R K)^-1 R = S B^-1 S - Q' C^-1 Q, Q = T^(1/2) (I_n. - K_n. S B^-1 S) [RW]_ (eq. 5.23).
    """
    added = None
    if solver.negative is not None:
        back = -solver.root * solver.backward(solver.reach.copy())
        back[np.arange(len(back)), solver.negative] += 1.0
        added = blas.dtrsm(1.0, solver.corner, solver.weight[:, None] * back, lower=1)
    triangle = solver.invert(threads).triangle
    tiled.square(triangle, threads)  # B^-1 = L^-T L^-1 (N, N), in place
    tiled.run_by_rows(threads, _kernel.evidence_weights, len(alpha), triangle, solver.root, alpha)
    if added is not None:
        tiled.add_squares(triangle, np.sqrt(0.5) * added, added[:0], threads)
    return triangle
