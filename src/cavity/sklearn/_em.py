"""Passes over the rows, and the loop, of mixtures fitted by scikit-learn's formulas: EM and its variational cousin.

Rows are measured from an origin, the mean of the data. An E-step leaves, for every component with mean m_k,

    N_k = sum_n w_n r_nk,    s_k = sum_n w_n r_nk (x_n - m_k),    S_k = sum_n w_n r_nk (x_n - m_k)(x_n - m_k)',

packed in a row of `sums` as the kernel packs them; no array of N x K is made. Differences to the last means keep all
digits wherever the data lie.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn import exceptions

from .. import _arrays, _blocks, _core
from .._executors import single_blas
from .._triangular import inverse_lower
from ..errors import ConvergenceWarning, within_range

_kernel = _core.best("gaussian_mixture")

TYPES = ("full", "tied", "diag", "spherical")
NOTHING = 10 * np.finfo(np.float64).eps  # added to counts, so that an empty component has a mean
NO_WEIGHTS = np.empty(0)


class UnfinishedWarning(ConvergenceWarning, exceptions.ConvergenceWarning):
    """An iteration stopped before its stopping rule was met: a warning of both libraries."""


def warn_unfinished(stacklevel=4):
    """Say that a fit did not converge, at the line that called it."""
    warnings.warn(
        "Best performing initialization did not converge. Try different init parameters, or increase max_iter, tol, "
        "or check for degenerate data.",
        UnfinishedWarning,
        stacklevel=stacklevel,
    )


@dataclass(frozen=True, slots=True)
class Components:
    """log rho_nk = height_k - |root_k'(x_n - mean_k)|^2/2, root_k root_k' the precision, of the type's shape."""

    covariance_type: str
    mean: np.ndarray
    root: np.ndarray
    height: np.ndarray

    @property
    def matrices(self):
        """Whether the components have matrices, not variances of single columns."""
        return self.covariance_type in ("full", "tied")

    def factor(self):
        """Return what the kernels want: root_k' (K, D, D), or the precisions of the columns (K, D)."""
        k, d = self.mean.shape
        if self.matrices:
            lower = np.swapaxes(self.root, -1, -2)
            return np.ascontiguousarray(np.broadcast_to(lower, (k, d, d)))
        precision = self.root**2
        columns = precision if self.covariance_type == "diag" else precision[:, None]
        return np.ascontiguousarray(np.broadcast_to(columns, (k, d)))

    def expected(self, sums):
        """Return sum_n w_n sum_k r_nk log rho_nk, the sums being those that these components led to."""
        second = unpack(sums, self.mean.shape[1], self.matrices)[2]
        factor = self.factor()
        spread = np.sum(factor @ second * factor) if self.matrices else np.sum(factor * second)
        return float(sums[:, 0] @ self.height - 0.5 * spread)


@dataclass(frozen=True, slots=True)
class Moments:
    """Counts (K,), means (K, D) and covariances (the type's shape, regularised) of what components hold."""

    count: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


class Rows:
    """The data of a fit: a source of blocks, weights (None for all one) and an origin."""

    def __init__(self, X, weight, threads):
        self._source = _blocks.open_source(X, "X", ndim=(2,))
        self._weight = NO_WEIGHTS if weight is None else np.ascontiguousarray(weight)
        self._threads = threads
        self.total = float(len(X) if weight is None else np.sum(weight))
        self.origin = self._source.summary(threads)[2]
        self._scale = np.ones(len(self.origin))

    def spread(self):
        """Return the mean (D,), measured from the origin, and the scatter around it (D, D)."""

        def task(index):
            block, weight = self._read(index)
            z = block - self.origin
            weighted = weight[:, None] * z if len(weight) else z
            return weighted.sum(axis=0), weighted.T @ z

        with single_blas():
            shift, scatter = _blocks.merge(self._imap(task))
        mean = shift / self.total
        return mean, within_range(scatter - self.total * np.outer(mean, mean), "the squares of X")

    def e_step(self, components):
        """Return the sums (K, P), and sum_n w_n log sum_k rho_nk."""
        mean, factor, height = components.mean, components.factor(), components.height
        k, d = mean.shape
        width = 1 + d + (d * (d + 1) // 2 if components.matrices else d)

        def task(index):
            out, total = np.empty((k, width)), np.zeros(1)
            block, weight = self._read(index)
            place = (block, weight, self.origin, self._scale, mean, factor, height)
            if components.matrices:
                far = _kernel.full(*place, False, out, total)
            else:
                far = _kernel.diagonal(*place, np.empty((0, 0)), out, total)
            if far >= 0:
                where = self._source.where(self._source.span(index)[0] + far)
                raise OverflowError(f"{where} is so far from every component that its density leaves float64")
            return out, total

        with single_blas():
            sums, total = _blocks.merge(self._imap(task))
        return sums, float(total[0])

    def start(self, responsibilities, covariance_type, reg_covar):
        """Return the moments of given responsibilities, in two passes: means first, then what is around them."""
        matrices, d = covariance_type in ("full", "tied"), len(self.origin)
        with single_blas():
            first = self._weighed(responsibilities, np.zeros((responsibilities.n_components, d)), False)
            mean = first[:, 1 : 1 + d] / (first[:, :1] + NOTHING)
            sums = self._weighed(responsibilities, mean, matrices)
            left = self._unclaimed(responsibilities) if covariance_type == "tied" else 0.0
        return moments(sums, mean, covariance_type, reg_covar, left)

    def _imap(self, task):
        return self._threads.imap(task, zip(range(self._source.block_count)))

    def _read(self, index):
        """Return a block of rows, and their weights or none."""
        start, stop = self._source.span(index)
        return self._source.read(index), self._weight[start:stop]

    def _weighted(self, responsibilities):
        """Yield the blocks measured from the origin, and their weighted responsibilities, one after the other."""
        spans = [self._source.span(index) for index in range(self._source.block_count)]
        for index, held in enumerate(responsibilities.blocks(spans)):
            block, weight = self._read(index)
            yield block - self.origin, weight[:, None] * held if len(weight) else held

    def _weighed(self, responsibilities, mean, matrices):
        """Return the sums around given means."""
        return _blocks.merge(weigh(z, held, mean, matrices) for z, held in self._weighted(responsibilities))

    def _unclaimed(self, responsibilities):
        """Return sum x x' (D, D) over the rows of no component, around zero: scikit-learn's tied covariance has it."""

        def squares(z, held):
            x = z[~held.any(axis=1)] + self.origin
            return x.T @ x

        return _blocks.merge(squares(z, held) for z, held in self._weighted(responsibilities))


def weigh(z, held, mean, matrices):
    """Return the sums of a block for responsibilities (rows, K) that are given, packed as the kernel's."""
    d = z.shape[1]
    below = np.tril_indices(d)
    parts = []
    for each, m in zip(held.T, mean, strict=True):
        some = np.flatnonzero(each)
        weight, apart = each[some], z[some] - m
        second = ((weight[:, None] * apart).T @ apart)[below] if matrices else weight @ apart**2
        parts.append(np.concatenate([[weight.sum()], weight @ apart, second]))
    return np.array(parts)


def unpack(sums, d, matrices):
    """Return N (K,), s (K, D) and S, (K, D, D) or its diagonals (K, D)."""
    count, first, second = sums[:, 0], sums[:, 1 : 1 + d], sums[:, 1 + d :]
    if not matrices:
        return count, first, second
    i, j = np.tril_indices(d)
    square = np.empty((len(sums), d, d))
    square[:, i, j] = square[:, j, i] = second
    return count, first, square


def moments(sums, mean, covariance_type, reg_covar, unclaimed=0.0):
    """Return the Moments that sums around `mean` stand for.

    A component that has lost all its rows stays where it was (in scikit-learn it moves to zero).
    """
    d, matrices = mean.shape[1], covariance_type in ("full", "tied")
    count, first, second = unpack(sums, d, matrices)
    count = count + NOTHING
    shift = first / count[:, None]
    if matrices:
        scatter = second - (count + NOTHING)[:, None, None] * shift[:, :, None] * shift[:, None, :]
        if covariance_type == "tied":
            covariance = (scatter.sum(axis=0) + unclaimed) / count.sum()
        else:
            covariance = scatter / count[:, None, None]
        covariance[..., np.arange(d), np.arange(d)] += reg_covar
    else:
        covariance = second / count[:, None] - (1.0 + NOTHING / count)[:, None] * shift**2 + reg_covar
        if covariance_type == "spherical":
            covariance = covariance.mean(axis=1)
    return Moments(count, mean + shift, covariance)


def roots(covariance, covariance_type):
    """Return the precisions' Cholesky factors as scikit-learn has them: U with U U' the precision, U upper triangular."""
    try:
        if covariance_type == "full":
            return np.array([_root(each) for each in covariance])
        if covariance_type == "tied":
            return _root(covariance)
        _arrays.positive_array(covariance, "covariance")
    except ValueError as error:
        raise ValueError(
            "Fitting the mixture model failed because some components have ill-defined empirical covariance (for "
            "instance caused by singleton or collapsed samples). Try to decrease the number of components, increase "
            "reg_covar, or scale the input data."
        ) from error
    return 1.0 / np.sqrt(covariance)


def _root(covariance):
    return inverse_lower(_arrays.cholesky(covariance, "covariance")).T


def roots_of_precisions(precision, covariance_type):
    """Return the same factors of precisions: Cholesky's of the matrix read backwards, read backwards."""
    if covariance_type in ("diag", "spherical"):
        return np.sqrt(precision)
    matrices = precision.reshape(-1, *precision.shape[-2:])
    found = [_arrays.cholesky(each[::-1, ::-1], "precisions")[::-1, ::-1] for each in matrices]
    return np.array(found).reshape(precision.shape)


def precisions(root, covariance_type):
    """Return the precisions of these factors."""
    return root @ np.swapaxes(root, -1, -2) if covariance_type in ("full", "tied") else root**2


def covariances_of(root, covariance_type):
    """Return the covariances of these factors."""
    if covariance_type in ("diag", "spherical"):
        return 1.0 / root**2
    lower = np.array([inverse_lower(each.T) for each in root.reshape(-1, *root.shape[-2:])])
    return (lower @ np.swapaxes(lower, -1, -2)).reshape(root.shape)


def log_determinants(root, covariance_type, d):
    """Return half the log determinant of every component's precision, (K,); a number for the tied one."""
    if covariance_type == "spherical":
        return d * np.log(root)
    return np.log(root if covariance_type == "diag" else np.diagonal(root, axis1=-2, axis2=-1)).sum(axis=-1)


@dataclass(frozen=True, slots=True)
class Ascent:
    """How a fit ended."""

    state: object
    bound: float
    bounds: list
    n_iter: int
    converged: bool


def ascend(rows, step, state, *, covariance_type, reg_covar, max_iter, tol, before, report):
    """Alternate E- and M-steps until the bound changes by less than tol.

    Parameters
    ----------
    rows : Rows
        The data.
    step : object
        The model: `components(state)` for the E-step, `best(moments)` -> state, the M-step, and
        `bound(state, log_likelihood, entropy)` after it, of sums over the rows.
    state : object
        Where to start.
    covariance_type : str
        One of TYPES.
    reg_covar : float
        Added to variances.
    max_iter : int
        Most iterations.
    tol : float
        Stopping rule.
    before : float
        The bound of the state, if it is known, else -inf.
    report : callable
        Called as report(n_iter, change) after every iteration.
    """
    bounds, bound, converged = [], before, False
    while len(bounds) < max_iter and not converged:
        components, last = step.components(state), bound
        sums, total = rows.e_step(components)
        state = step.best(moments(sums, components.mean, covariance_type, reg_covar))
        bound = step.bound(state, total, total - components.expected(sums))
        bounds.append(bound)
        report(len(bounds), bound - last)
        converged = abs(bound - last) < tol
    return Ascent(state, bound, bounds, len(bounds), converged)


def log_joint(X, origin, components):
    """Return log rho (rows, K) of a block of rows; the components are measured from the origin."""
    out = np.empty((len(X), len(components.mean)))
    distances = _kernel.distances if components.matrices else _kernel.distances_diagonal
    far = distances(X, origin, np.ones(len(origin)), components.mean, components.factor(), out)
    if far >= 0:
        raise OverflowError(f"X[{far}] is so far from every component that its density leaves float64")
    return components.height - 0.5 * out
