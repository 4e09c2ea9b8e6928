"""Where searches for hyperparameters of Gaussian processes begin."""

from functools import cache

import numpy as np

from cavity.base.column_statistics import column_scales
from cavity.base.errors import check_within_range
from cavity.base.labels import has_classes
from cavity.covariances import Periodic, Sum
from cavity.covariances.slots import list_free_slots, list_leaves
from cavity.covariances.strings import INITIAL_NOISE_SHARE
from cavity.likelihoods import AsymmetricLaplace, Gaussian, Laplace, StudentT

NOISE_SCALE_KINDS = Gaussian | StudentT | Laplace | AsymmetricLaplace  # likelihoods with a scale of noise in units of y
LENGTHSCALES_TRIED = (1.0, 0.25)  # lengthscales tried, in standard deviations of the columns times sqrt(columns)
NOISE_SHARES_TRIED = (INITIAL_NOISE_SHARE, 0.01)  # shares of the variance of y that are noise, with short lengthscales
SEARCHED_FACTOR = 1e10  # from the starts to the ends of the range of a free number that has no bounds of its own


def choose_starts(settings, rows, vector):
    """Return where a search may begin.

    Parameters
    ----------
    settings : Settings
        As the model has them.
    rows : Rows
        To whose scale some starts are adapted.
    vector : FreeHyperparameters
        The free numbers.

    Returns
    -------
    bounds : ndarray (n, 2)
        Of the free numbers: their own, or else SEARCHED_FACTOR times beyond the starts.
    places : list of ndarray (n,)
        The given settings, and lengthscales that are fractions of the spread of the columns; then lengthscales of about
        two distances between neighbouring rows, where these are shorter, with much noise and, if it is Gaussian, with
        little: series that rise and fall every few rows have a maximum of the evidence there. Labels, which say little
        of f in a row, are not taken for such series.
    n_long : int
        How many of them come before those with short lengthscales.
    """
    variance = _compute_variance(settings, rows) if isinstance(settings.likelihood, NOISE_SCALE_KINDS) else None
    first, n = vector.pack(settings), vector.n_covariance
    noise = slice(len(first) - vector.free.size, None)

    def scaled(lengths, share=INITIAL_NOISE_SHARE):
        start = first.copy()
        if n:
            start[:n] = scale_parameters(settings.covariance, rows.X.shape[1], lengths, variance)
        if variance is not None:
            size = (1.0 if vector.exact else 0.5) * np.log(share * variance)
            start[noise] = np.where(vector.free.mark_scales(), size, start[noise])
        return start

    spread = column_scales(rows.X, rows.weights)[1]
    spread = np.where(spread > 0, spread, 1.0)
    distances = cache(lambda index: compute_neighbour_distances(rows.X[:, index]))
    points = [first, *(scaled(lambda index, f=f: f * spread[list(index)]) for f in LENGTHSCALES_TRIED)]
    shares = () if has_classes(settings.likelihood) else NOISE_SHARES_TRIED[: 1 + vector.exact]
    short = [scaled(distances, share) for share in shares]
    long, points = points, points + (short if short and np.any(short[0][:n] < points[-1][:n]) else [])
    bounds = vector.bounds(long[-1][noise])
    if n:
        open_ends = [slot.name not in slot.leaf.bounds for slot in list_free_slots(settings.covariance)]
        low, high = np.min(points, axis=0)[:n, None], np.max(points, axis=0)[:n, None]
        reach = np.clip(bounds[:n], low - np.log(SEARCHED_FACTOR), high + np.log(SEARCHED_FACTOR))
        bounds[:n][open_ends] = reach[open_ends]
    points = [np.clip(point, *bounds.T) for point in points]
    chosen = sorted({point.tobytes(): i for i, point in reversed([*enumerate(points)])}.values())
    return bounds, [points[i] for i in chosen], sum(i < len(long) for i in chosen)


def compute_neighbour_distances(X):
    """Return twice the distance of neighbouring rows in each column of X, (D,): the mean one if they fill a box evenly.

    It is the median step between different values u of a column, times their number, over the D-th root of the number
    of rows: the step of a grid in D columns, and (range)/N^(1/D) of N scattered rows.
    """
    n_rows = len(np.unique(X, axis=0))
    values = [np.unique(column) for column in X.T]
    steps = [np.median(np.diff(u)) * len(u) if len(u) > 1 else 1.0 for u in values]
    return 2.0 * np.array(steps) / n_rows ** (1.0 / X.shape[1])


def solve_least_squares(basis, values, weights=None):
    """Return the coefficients (p,) of the columns of a basis (n, p) that fit values (n,), rows weighted."""
    if weights is None:
        return np.linalg.lstsq(basis, values)[0]
    root = np.sqrt(weights)
    return np.linalg.lstsq(root[:, None] * basis, root * values)[0]


def _compute_variance(settings, rows):
    """Variance of y about its mean function by least squares."""
    rest = rows.y - rows.offset
    if settings.basis is not None:
        rest = rest - settings.basis @ solve_least_squares(settings.basis, rest, rows.unequal_weights)
    with np.errstate(over="ignore"):
        variance = float(np.average(rest**2, weights=rows.unequal_weights))
    check_within_range(variance, "the squares of y")
    return variance if variance > 0 else 1.0


def scale_parameters(covariance, n_features, lengths, variance):
    """Return log parameters with other lengthscales and, if given, variances that share `variance`.

    The lengthscales of a leaf are lengths(index), (d,), of its d columns, times the root of d.
    """
    out = covariance.log_parameters.copy()
    terms = covariance.parts if isinstance(covariance, Sum) else (covariance,)
    term_of = np.repeat(np.arange(len(terms)), [len(list_leaves(term)) for term in terms])
    scaled = set()  # a product takes the variance once
    for i, slot in enumerate(list_free_slots(covariance)):
        if slot.role == "lengthscale":
            columns = lengths(tuple(slot.leaf._chosen(n_features)))
            mean = np.max(columns) * np.sqrt(np.mean((columns / np.max(columns)) ** 2))
            size = mean if slot.index is None else columns[slot.index]
            out[i] = np.log(size * np.sqrt(len(columns)))
        elif slot.role == "variance" and variance is not None and not isinstance(slot.leaf, Periodic):
            term = term_of[slot.place]
            if term not in scaled or slot.index is not None:
                out[i] = np.log(variance / len(terms))
                scaled.add(term)
    return out
