"""Where a Gaussian mixture starts: labels of points, from their distances alone.

Everything is deterministic unless a Generator is given. Rows are put in order along the first principal axis first, so
that the labels follow the rows when these are permuted, and clusters are numbered by where they begin on that axis.

References
----------
.. [AV] David Arthur and Sergei Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007, sections 2.2
   and 7 (the greedy variant). "kmeans" takes quantiles of the distribution that "random" draws from.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.frames import order_columns
from cavity.base.lazy_scipy import lapack
from cavity.mean_field import engine
from cavity.mean_field.options import TRIAL_OPTIONS, TRIAL_PASSES
from cavity.models.mixture.prior import scale_means
from cavity.models.mixture.state import MixtureState
from cavity.models.mixture.sweep import MixtureSweeps
from cavity.runs.executors import Threads

DETERMINISTIC_METHODS = ("kmeans", "split", "principal")
DISTANCE_ROWS = 2048  # whose distances to all centres are held at a time
SEED_CANDIDATES = 16  # tried for each centre
MAX_LLOYD_ROUNDS = 50
MAX_ROUNDS_AFTER_SPLITS = 5  # the means of split clusters are good centres already
CONVERGED_FALL_SHARE = 1e-4  # of the total squared distance, by which a converged round of Lloyd's algorithm lowers it
EQUAL_POINT_SHARE = 1e-13  # of squared distances from the mean: rounding of the squared distance of equal points


@dataclass(frozen=True, slots=True)
class OrderedPoints:
    """Points around their mean, in the order of their places on the first principal axis."""

    points: np.ndarray  # (n, D)
    weight: np.ndarray  # (n,), the largest is 1
    squares: np.ndarray  # (n,) squared distances from the mean
    place: np.ndarray  # (n,) ascending
    order: np.ndarray  # (n,) the rows they were


def choose_labels(points, weight, n_components, method, rng=None, *, missing=False):
    """Return labels to start a mixture of `n_components` from.

    Parameters
    ----------
    points : ndarray (n, D)
        float64, finite, in coordinates in which distances mean something: of roughly unit spread in every column.
    weight : ndarray (n,) or None
        Weights of the points, at least 0 and not all 0. Points of weight zero get a label and have no influence.
    n_components : int
        K.
    method : {"kmeans", "split", "principal", "random"}
        "kmeans": Lloyd's algorithm from centres that are chosen one by one, each the candidate that lowers the total
        squared distance most. "random": the same, with candidates drawn by `rng`. "split": until there are K, that
        cluster is cut in two, across its first principal axis, where this lowers the squared distances along the axis
        most; a few rounds of Lloyd's algorithm follow. "principal": K equal shares of the weight along the first
        principal axis.
    rng : numpy.random.Generator, optional
        For "random".
    missing : bool, default False
        Whether points may hold nan, for which the mean of the column's other entries stands in.

    Returns
    -------
    ndarray of int (n,)
        Labels 0, 1, ... of which K are used, or fewer where the points do not make so many clusters.
    """
    return _compute_labels(_order_points(points, weight, missing), n_components, method, rng)


def propose_labels(points, weight, n_components, *, missing=False):
    """Yield the labels of every deterministic method, no partition twice; arguments as for `choose_labels`."""
    cloud = _order_points(points, weight, missing)
    partitions = []
    for method in DETERMINISTIC_METHODS:
        labels = _compute_labels(cloud, n_components, method, None)
        if not any(np.array_equal(labels, other) for other in partitions):  # equal partitions have equal numbers
            partitions.append(labels)
            yield labels


def _compute_labels(cloud, k, method, rng):
    """Return the labels of a method in the order of the rows as they were given."""
    if method == "principal":
        labels = _cut_into_shares(cloud, k)
    elif method == "split":
        labels = _run_lloyd(cloud, _split_clusters(cloud, k), MAX_ROUNDS_AFTER_SPLITS)
    else:
        labels = _run_lloyd(cloud, _choose_seeds(cloud, k, rng if method == "random" else None), MAX_LLOYD_ROUNDS)
    order = np.argsort(cloud.weight == 0, kind="stable")  # rows without weight do not decide where a cluster begins
    _, first, number = np.unique(labels[order], return_index=True, return_inverse=True)
    result = np.empty(len(labels), dtype=np.intp)
    result[cloud.order[order]] = np.argsort(np.argsort(first))[number]
    return result


def _order_points(points, weight, missing):
    """Return the points as a Cloud."""
    weight = np.ones(len(points)) if weight is None else weight / np.max(weight)
    if missing:
        points = _fill_missing(points, weight)
    points = points - _compute_mean(points, weight)
    coordinate = _project(points, _compute_principal_axis(points, weight))
    order = np.argsort(coordinate, kind="stable")
    points = points[order]
    return OrderedPoints(points, weight[order], np.einsum("nd,nd->n", points, points), coordinate[order], order)


def _fill_missing(points, weight):
    """Return points with nan replaced by the weighted mean of the column, by 0 where nothing of it was seen."""
    is_observed = np.isfinite(points)
    values = np.where(is_observed, points, 0.0)
    total = weight @ is_observed
    mean = np.divide(weight @ values, total, out=np.zeros(len(total)), where=total > 0)
    return np.where(is_observed, points, mean)


def _compute_mean(points, weight):
    return weight @ points / np.sum(weight)


def _compute_principal_axis(centred, weight):
    """Return the first principal axis of points around their mean, its first large entry positive.

    That is half as large as the largest: entries of equal size, as two standardised columns have, make no difference.
    """
    d = centred.shape[1]
    scatter = (centred * weight[:, None]).T @ centred
    _, vectors, *_ = lapack.dsyevr(scatter, range="I", il=d, iu=d)
    axis = vectors[:, 0]
    size = np.abs(axis)
    return axis * np.sign(axis[np.argmax(size >= 0.5 * np.max(size))])


def _project(points, axis):
    """Return coordinates along an axis, the same bits for equal points, which a matrix product does not promise."""
    return np.sum(points * axis, axis=1)


def _cut_into_shares(cloud, k):
    """Return labels that cut the first principal axis into K equal shares of the weight; equal places stay together."""
    _, group = np.unique(cloud.place, return_inverse=True)
    mass = np.bincount(group, cloud.weight)
    middle = np.cumsum(mass) - 0.5 * mass
    share = np.floor(k * (middle / np.sum(mass))).astype(np.intp)
    return np.minimum(share, k - 1)[group]  # points without weight may lie beyond the last share


def _choose_seeds(cloud, k, rng):
    """Return up to K points as centres, each the one of CENTRES_TRIED that lowers the total squared distance most.

    They are quantiles of the distribution of [AV]_, or drawn from it: proportional to weight times squared distance
    to the nearest centre so far (to the mean, for the first one).
    """
    nearest, centres = cloud.squares, []
    while len(centres) < k:
        mass = np.cumsum(cloud.weight * nearest)
        if not mass[-1] > 0.0:
            break  # every point is a centre
        at = (np.arange(SEED_CANDIDATES) + 0.5) / SEED_CANDIDATES if rng is None else rng.random(SEED_CANDIDATES)
        candidates = np.searchsorted(mass, at * mass[-1], side="right")
        if rng is None:
            candidates = np.append(candidates, np.argmax(nearest * (cloud.weight > 0)))
        distance = _compute_squared_distances(cloud, cloud.points[candidates])
        if centres:
            np.minimum(distance, nearest, out=distance)
        best = np.argmin(distance @ cloud.weight)
        nearest = distance[best]
        centres.append(cloud.points[candidates[best]])
    return np.array(centres) if centres else np.zeros((1, cloud.points.shape[1]))


def _compute_squared_distances(cloud, centres):
    """Return |x_n - c_j|^2 (J, n); what is below rounding is zero."""
    squares = np.einsum("jd,jd->j", centres, centres)
    scale = squares[:, None] + cloud.squares
    distance = scale - 2.0 * (centres @ cloud.points.T)
    distance[distance <= EQUAL_POINT_SHARE * scale] = 0.0
    return distance


def _split_clusters(cloud, k):
    """Return the means of up to K clusters, made by cutting in two where `_split_cluster` gains most."""
    parts = [_split_cluster(cloud, np.arange(len(cloud.points)))]
    while len(parts) < k:
        gain, members, above = max(parts, key=lambda part: part[0])
        if not gain > 0.0:
            break  # every cluster is one point
        parts = [part for part in parts if part[1] is not members]
        parts += [_split_cluster(cloud, members[~above]), _split_cluster(cloud, members[above])]
    return np.array([_compute_mean(cloud.points[members], cloud.weight[members]) for _, members, _ in parts])


def _split_cluster(cloud, members):
    """Return what the best cut across the first principal axis gains, the members, and which of them are above.

    The gain is how much the squared distances along the axis are lowered: S^2 (1/W + 1/V) for weights W below and V
    above and a weighted sum S of the centred places below.
    """
    weight = cloud.weight[members]
    centred = cloud.points[members] - _compute_mean(cloud.points[members], weight)
    coordinate = _project(centred, _compute_principal_axis(centred, weight))
    order = np.argsort(coordinate, kind="stable")
    below, above = np.cumsum(weight[order])[:-1], np.cumsum(weight[order][::-1])[-2::-1]
    moment = np.cumsum((weight * coordinate)[order])[:-1]
    possible = (np.diff(coordinate[order]) > 0) & (below > 0) & (above > 0)
    if not possible.any():
        return 0.0, members, None
    gain = np.zeros(len(below))
    np.divide(moment**2 * (below + above), below * above, out=gain, where=possible)
    last = order[np.argmax(gain)]
    return float(np.max(gain)), members, coordinate > coordinate[last]


def _run_lloyd(cloud, centres, rounds):
    """Return labels after at most `rounds` of: every point to its nearest centre, every centre to its points' mean."""
    labels, total = _assign_to_nearest(cloud, centres)
    columns = np.ascontiguousarray((cloud.weight[:, None] * cloud.points).T)
    for _ in range(rounds):
        mass, *sums = (np.bincount(labels, values, len(centres)) for values in (cloud.weight, *columns))
        is_occupied = mass > 0
        centres = centres.copy()  # empty ones stay
        centres[is_occupied] = (np.stack(sums, axis=1)[is_occupied]) / mass[is_occupied, None]
        before, (labels, total) = total, _assign_to_nearest(cloud, centres)
        if not total < (1.0 - CONVERGED_FALL_SHARE) * before:
            break
    return labels


def _assign_to_nearest(cloud, centres):
    """Return the number of the nearest centre of every point, and the weighted total of the squared distances."""
    n = len(cloud.points)
    labels, least = np.empty(n, dtype=np.intp), np.empty(n)
    half = 0.5 * np.einsum("kd,kd->k", centres, centres)
    for start in range(0, n, DISTANCE_ROWS):
        rows = slice(start, start + DISTANCE_ROWS)
        height = half - cloud.points[rows] @ centres.T
        np.argmin(height, axis=1, out=labels[rows])
        np.min(height, axis=1, out=least[rows])
    return labels, float(cloud.weight @ (cloud.squares + 2.0 * least))


def generate_states(sweeps, means=None, init="auto", options=TRIAL_OPTIONS):
    """Yield the first state of every start, and the passes over all data that led there, a `MeanFieldFit` or None.

    Parameters
    ----------
    sweeps : MixtureSweeps
        The prior, and the data, of which a sample is looked at.
    means : array_like (K, D), optional
        Where the first start is, in the units of the data.
    init : str
        How to start without them: "auto", or a method of `choose_labels`.
    options : AscentOptions
        How many starts, and the generator of those after the first; most passes over all data, of which trials leave
        one at least; the job gets the trials.
    """
    prior, data = sweeps.prior, sweeps.data
    sample, k = data.sample(), len(prior.counts)
    points = data.scaling.rows(sample.source.rows())
    weight = np.ones(len(points)) if sample.weights is None else sample.weights.rows()
    spread = 1.0 if data.one_unit else _compute_spread(points, weight)
    standard, missing = points / spread, data.missing
    if means is not None:
        labels = [_assign_to_means(standard, scale_means(means, "initial_means", data.scaling) / spread)]
    elif init == "auto":
        labels = propose_labels(standard, weight, k, missing=missing)
    else:
        labels = [choose_labels(standard, weight, k, init, missing=missing)]
    states = [build_state_from_labels(prior, points, weight, partition) for partition in labels]
    passes = min(TRIAL_PASSES, options.max_iter - 1) if sample is data else TRIAL_PASSES
    state, trial = _choose_best_state(sample, prior, states, passes, options.job)
    yield state, trial if sample is data else None
    for _ in range(options.n_init - 1):
        labels_drawn = choose_labels(standard, weight, k, "random", options.rng, missing=missing)
        yield build_state_from_labels(prior, points, weight, labels_drawn), None


def check_means(means, columns, n_components, n_features):
    """Return initial means in the order of the columns, as an array (K, D), or None."""
    if means is None:
        return None
    array = arrays.check_finite_array(order_columns(means, columns, "initial_means"), "initial_means", ndim=(2,))
    shape = (n_components, n_features)
    if array.shape != shape:
        raise ValueError(f"initial_means must have shape (K, D) = {shape}, got {array.shape}")
    return array


def _choose_best_state(sample, prior, states, passes, job):
    """Return where passes over the sample lead from the best of the states, and how; the only one as it is."""
    if len(states) == 1 or passes < 1:
        return states[0], None
    with Threads(1) as thread:
        trials = engine.run_trials(MixtureSweeps(prior, sample, thread), states, passes, job)
    best = max(trials, key=lambda trial: trial.elbo)
    return best.state, best


def build_state_from_labels(prior, points, weight, labels):
    """Return the optimal state if the component of each point were known.

    Parameters
    ----------
    prior : MixtureState
        The prior.
    points : ndarray (n, D)
        In coordinates; nan where a value was not seen.
    weight : ndarray (n,)
        Their weights.
    labels : ndarray of int (n,)
        Their components.
    """
    k, dim = prior.factors.mean.shape
    full = prior.full
    is_observed = ~np.isnan(points)
    values = np.where(is_observed, points, 0.0)
    member = np.zeros((k, len(points)))
    member[labels, np.arange(len(points))] = weight
    observed = member @ is_observed
    with np.errstate(invalid="ignore"):
        mean = np.where(observed > 0, member @ values / observed, prior.factors.mean)
    second = np.zeros((k, dim, dim) if full else (k, dim))
    for j in range(k):
        d = np.where(is_observed, points - mean[j], 0.0)[labels == j]
        w = weight[labels == j, None]
        second[j] = (w * d).T @ d if full else np.sum(w * d * d, axis=0)
    counts = np.sum(member, axis=1)
    per_column = prior.factors.beta.shape[1] > 1
    centred = replace(prior.factors, mean=mean)
    factors = centred.update(prior.factors, observed if per_column else counts[:, None], np.zeros((k, dim)), second)
    return MixtureState(prior.weights.update(prior.weights, counts), factors, counts)


def _compute_spread(points, weight):
    """Return the standard deviations of the columns, 1 where they are constant, so that units do not matter."""
    is_observed = ~np.isnan(points)
    share = np.where(is_observed, (weight / np.max(weight))[:, None], 0.0)
    share /= np.maximum(np.sum(share, axis=0), np.finfo(float).tiny)
    mean = np.sum(share * np.where(is_observed, points, 0.0), axis=0)
    spread = np.sqrt(np.sum(share * np.where(is_observed, points - mean, 0.0) ** 2, axis=0))
    return np.where(spread > 0, spread, 1.0)


def _assign_to_means(points, means):
    """Return which of the means (K, D) is nearest to each point (n, D), by the columns that were seen."""
    distances = np.stack([np.nansum((points - mean) ** 2, axis=1) for mean in means], axis=1)
    return np.argmin(distances, axis=1)
