"""The Gaussian that a factorised one approximates: its precision in units in which every factor is standard normal.

With s_i^2 = Lam_ii, R = S^-1 Lam S^-1 has a unit diagonal. For blocks, R_BB = L_B L_B', and the coordinates
u = L'S (x - mean) have the precision W = L^-1 R L^-T, whose diagonal blocks are identities; without blocks W is R. All
divergences are those of W, whatever the units of x. Coordinate ascent on u one by one is block by block ascent on x,
because the coordinates of a block do not see each other.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.linalg import solve_triangular

from cavity.base.arrays import add_in_order, make_read_only
from cavity.base.errors import NotPositiveDefiniteError
from cavity.linalg import tiled
from cavity.runs.executors import Threads, resolve_n_threads

PANEL_ROWS = 256  # rows or columns worked on together
MAX_SIZE_FOR_ALL_EIGENVALUES = 512  # coordinates up to which all eigenvalues take less than a second
N_ARNOLDI_EIGENVALUES = 4  # eigenvalues that Arnoldi looks for: complex ones of equal size come in pairs
EIGENVALUE_TOLERANCE = 1e-10  # relative, of these eigenvalues
ARNOLDI_BASIS_SIZE, MAX_ARNOLDI_RESTARTS = (
    100,
    200,
)  # of Arnoldi's method: a smaller basis hardly separates the eigenvalues of random matrices


@dataclass(frozen=True, slots=True, eq=False)
class WhitenedTarget:
    """Matrix and units of the sweep, and the numbers found by the Cholesky factorisation of W."""

    matrix: np.ndarray  # (D, D): what a sweep reads, Lam itself or W
    diagonal: np.ndarray  # (D,): of this matrix
    scale: np.ndarray  # (D,): s
    order: np.ndarray | None  # (D,): coordinates in the order of the blocks, None without blocks
    factors: tuple | None  # of every block its slice of the ordered coordinates and L_B, None without blocks
    log_root: float  # half the log determinant of the precision of q
    kl_minimum: float  # -log|W|/2

    def standard(self, deviations):
        """u = L'S (x - mean), of deviations x - mean (..., D)."""
        scaled = deviations * self.scale
        if self.order is None:
            return scaled
        scaled = scaled[..., self.order]
        for part, factor in self.factors:
            scaled[..., part] = scaled[..., part] @ factor
        return scaled

    def deviations(self, u):
        """x - mean, the inverse of `standard`."""
        if self.order is None:
            return u / self.scale
        scaled = np.empty(u.shape)
        for part, factor in self.factors:
            scaled[..., self.order[part]] = _solve_right(u[..., part], factor)
        return scaled / self.scale

    def block_roots(self):
        """Yield the coordinates of every block and L_B^-1 S^-1, a root of its covariance under q: root'root."""
        for part, factor in self.factors:
            indices = self.order[part]
            yield indices, _solve_right(np.eye(len(indices)), factor) / self.scale[indices]

    def relative(self):
        """W, as a new array of which only one triangle counts."""
        return _scale_to_unit(self.matrix, np.sqrt(self.diagonal))


def get_target(model):
    """Return the `Target` that a `FactorizedGaussian` prepared when it was made."""
    return model._target


def prepare_target(precision, blocks):
    """Return the Target of a symmetric precision and a partition of its coordinates (None: each by itself).

    Raises
    ------
    NotPositiveDefiniteError
        Naming the coordinate at which this shows.
    OverflowError
        If a variance is beyond float64.
    """
    diagonal = np.diag(precision).copy()
    _check_diagonal(diagonal)
    scale = np.sqrt(diagonal)
    if blocks is None:
        matrix, order, factors = precision, None, None
        w = _scale_to_unit(precision, scale)
    else:
        order = np.concatenate(blocks)
        matrix, factors = _whiten_blocks(
            _scale_to_unit(precision, scale, order), order, np.cumsum([0, *map(len, blocks)])
        )
        diagonal, w = np.ones(len(scale)), matrix.copy()
    log_root = float(np.sum(np.log(scale)))
    if factors is not None:
        log_root += float(add_in_order(np.sum(np.log(np.diag(factor))) for _, factor in factors))
    with Threads(resolve_n_threads(None)) as threads:
        kl_minimum = float(np.sum(_compute_minus_log(*_compute_explained(_cholesky(w, order, threads)))))
    for array in (matrix, diagonal, scale, order):
        if array is not None:
            make_read_only(array)
    return WhitenedTarget(matrix, diagonal, scale, order, factors, log_root, kl_minimum)


def _check_diagonal(diagonal):
    if not np.all(diagonal > 0):
        i = int(np.argmin(diagonal > 0))
        raise NotPositiveDefiniteError(f"precision must be positive definite, got precision[{i}, {i}] = {diagonal[i]}")
    if diagonal.min() < 1.0 / np.finfo(float).max:
        i = int(np.argmin(diagonal))
        raise OverflowError(f"the variance of coordinate {i}, 1/{diagonal[i]}, is beyond float64; rescale the variable")


def _split_panels(size):
    return [slice(start, min(start + PANEL_ROWS, size)) for start in range(0, size, PANEL_ROWS)]


def _scale_to_unit(matrix, scale, order=None):
    """The matrix with rows and columns divided by `scale` and put in `order`; its diagonal is exactly 1."""
    out = np.empty(matrix.shape)
    with np.errstate(over="ignore"):  # entries that large do not belong to a positive definite matrix
        for part in _split_panels(len(out)):
            rows = part if order is None else order[part]
            np.divide(matrix[rows], scale[rows, None], out=out[part])
            out[part] /= scale
            if order is not None:
                out[part] = out[part][:, order]
    np.fill_diagonal(out, 1.0)
    return out


def _whiten_blocks(r, order, edges):
    """Turn R into W in place; return it with the slices of the blocks and their factors L_B."""
    factors = []
    for start, stop in pairwise(edges.tolist()):
        part, before, after = slice(start, stop), slice(0, start), slice(stop, None)
        factor = _cholesky(r[part, part].copy(), order[part], tiled.ONE_THREAD)
        if stop - start > 1:  # the upper triangle only
            r[before, part] = _solve_right(r[before, part], factor, transposed=True)
            r[part, after] = _solve_right(r[part, after].T, factor, transposed=True).T
            r[part, part] = np.eye(stop - start)
        factors.append((part, make_read_only(factor)))
    for rows in _split_panels(len(r)):
        r[rows.stop :, rows] = r[rows, rows.stop :].T
        corner = np.triu(r[rows, rows])
        r[rows, rows] = corner + np.triu(corner, 1).T
    return r, tuple(factors)


def _solve_right(x, factor, transposed=False):
    """x L^-1, or x L'^-1 if transposed, for rows of x and a lower triangular L."""
    return solve_triangular(factor, x.T, lower=True, trans=0 if transposed else 1, check_finite=False).T


def _cholesky(matrix, order, threads):
    """The lower Cholesky factor of a matrix in C order of which only the lower triangle counts, in its place."""
    bad = tiled.factor(matrix, threads)
    if bad:
        coordinate = bad - 1 if order is None else order[bad - 1]
        raise NotPositiveDefiniteError(
            f"precision must be positive definite; its Cholesky factorisation fails at coordinate {coordinate}"
        )
    tiled.clear(matrix)
    return matrix


def _compute_explained(factor):
    """Squared lengths of the rows of a Cholesky factor left of its diagonal: 1 - pivot^2 for W, with all digits."""
    pivots = np.diag(factor).copy()
    np.fill_diagonal(factor, 0.0)
    explained = np.einsum("ij,ij->i", factor, factor)
    factor[range(len(pivots)), range(len(pivots))] = pivots
    return explained, pivots


def _compute_minus_log(explained, pivots):
    """-log pivot >= 0 for every pivot of W."""
    near = explained < 0.5
    return np.where(near, -0.5 * np.log1p(-np.where(near, explained, 0.0)), -np.log(pivots))


def compute_true_marginals(target):
    """What the true marginals of the blocks are, from T = C^-1 with the Cholesky factor C of W: W^-1 = T'T.

    Returns
    -------
    variance : ndarray (D,)
        Of every coordinate.
    covariances : tuple of (indices, matrix), or None
        Of every block.
    divergence : float
        KL(p || product of these marginals): (sum_B log|(W^-1)_BB| + log|W|)/2. By the formula for determinants, a block
        with the rows Y of T below it, times the inverse of its own, adds log|I + Y'Y|/2.
    reverse : float
        KL(p || q) for the q of coordinate ascent: (trace W^-1 - D + log|W|)/2, as a sum of positive terms.
    """
    with Threads(resolve_n_threads(None)) as threads:
        t = _cholesky(target.relative(), target.order, threads)
        explained, pivots = _compute_explained(t)
        tiled.invert(t, threads)
    ratio = np.einsum("ij,ij->j", t, t)
    np.fill_diagonal(t, 0.0)
    below = np.einsum("ij,ij->j", t, t)
    near = explained < 0.5
    odds = np.where(near, explained / np.where(near, 1.0 - explained, 1.0), 1.0 / pivots**2 - 1.0)
    reverse = float(np.sum(0.5 * (odds + below) - _compute_minus_log(explained, pivots)))
    if target.order is None:
        divergence = 0.5 * float(np.sum(np.log1p(below * pivots**2)))
        return ratio / target.scale / target.scale, None, divergence, reverse
    t[range(len(t)), range(len(t))] = 1.0 / pivots
    return *_compute_block_marginals(target, t), reverse


def _compute_block_marginals(target, t):
    """The first three results of `compute_true_marginals` for blocks."""
    variance, covariances, divergence = np.empty(len(t)), [], 0.0
    for (part, _), (indices, root) in zip(target.factors, target.block_roots(), strict=True):
        blocks = t[part.start :, part] @ root
        covariance = blocks.T @ blocks
        variance[indices] = np.diag(covariance)
        covariances.append((indices, make_read_only(covariance)))
        y = _solve_right(t[part.stop :, part], np.ascontiguousarray(t[part, part]))
        divergence += 0.5 * float(np.sum(np.log1p(np.linalg.eigvalsh(y.T @ y))))
    return variance, tuple(covariances), divergence


def compute_contraction_rate(target, sweep):
    """The spectral radius of the error's map in one sweep, -(lower triangle of W)^-1 (what is above the diagonal).

    Up to DENSE coordinates from all eigenvalues; beyond, Arnoldi's method on `sweep`, which changes its argument, a
    vector in the units of `target.matrix`.
    """
    size = len(target.scale)
    if target.kl_minimum == 0.0:  # nothing couples
        return 0.0
    if size <= MAX_SIZE_FOR_ALL_EIGENVALUES:
        w = np.triu(target.relative(), 1)
        return float(np.abs(np.linalg.eigvals(solve_triangular(w.T, w, lower=True, unit_diagonal=True))).max())
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

    unit = np.sqrt(target.diagonal)

    def swept(u):
        moved = u.ravel() / unit
        sweep(moved)
        return moved * unit

    start = np.random.default_rng(0).standard_normal(size)  # in no special direction, and always the same
    operator = LinearOperator((size, size), matvec=swept, dtype=np.float64)
    options = dict(
        k=N_ARNOLDI_EIGENVALUES,
        ncv=ARNOLDI_BASIS_SIZE,
        maxiter=MAX_ARNOLDI_RESTARTS,
        v0=start,
        tol=EIGENVALUE_TOLERANCE,
        return_eigenvectors=False,
    )
    try:
        return float(np.abs(eigs(operator, **options)).max())
    except ArpackNoConvergence:
        raise ArithmeticError(
            f"no eigenvalues of the sweep found in {MAX_ARNOLDI_RESTARTS} restarts of Arnoldi's method"
        ) from None
