"""Where scikit-learn's mixtures start: initial responsibilities, the same ones from the same random state."""

import copy
from dataclasses import dataclass

import numpy as np
from sklearn import config_context
from sklearn.cluster import KMeans, kmeans_plusplus

from cavity.models.mixture.state import RowSums
from cavity.runs import merge
from cavity.runs.executors import single_blas

INIT_METHODS = ("kmeans", "k-means++", "random", "random_from_data")
NO_COMPONENT = -1  # the label of a row that no component has at first
MAX_VALUES_DRAWN = 1 << 18  # responsibilities drawn at a time: 2 MB


@dataclass(frozen=True, slots=True)
class Responsibilities:
    """Responsibilities of all rows, made block by block: from labels, or drawn anew in every pass from a state."""

    n_components: int
    labels: np.ndarray | None
    state: object

    def blocks(self, spans):
        """Yield (rows, K) for consecutive spans of rows."""
        state = copy.deepcopy(self.state)
        for start, stop in spans:
            if self.labels is None:
                block = state.uniform(size=(stop - start, self.n_components))
                block /= block.sum(axis=1)[:, None]
            else:
                block = (self.labels[start:stop, None] == np.arange(self.n_components)).astype(np.float64)
            yield block


def initialise_responsibilities(method, X, n_components, weight, random_state):
    """Return initial responsibilities by one of scikit-learn's methods; `random_state` moves on as it does there."""
    n = len(X)
    if method == "random":
        before = copy.deepcopy(random_state)
        for start, stop in merge.split_rows(n, max(1, MAX_VALUES_DRAWN // n_components)):
            random_state.uniform(size=(stop - start, n_components))
        return Responsibilities(n_components, None, before)
    if method == "kmeans":
        means = KMeans(n_clusters=n_components, n_init=1, random_state=random_state)
        with config_context(assume_finite=True, skip_parameter_validation=True):  # both have been checked
            return Responsibilities(n_components, means.fit(X, sample_weight=weight).labels_, None)
    if method == "k-means++":
        chosen = kmeans_plusplus(X, n_components, sample_weight=weight, random_state=random_state)[1]
    else:
        share = None if weight is None else weight / np.sum(weight)
        chosen = random_state.choice(n, size=n_components, replace=False, p=share)
    labels = np.full(n, NO_COMPONENT, dtype=np.intp)
    labels[chosen] = np.arange(n_components)
    return Responsibilities(n_components, labels, None)


def sum_rows(data, resp, full):
    """Return means (K, D), and the RowSums around them, of given responsibilities.

    Two passes: the second measures from the means that the first one found.
    """
    with single_blas():
        count, first = merge.merge((r.sum(axis=0), r.T @ z) for z, r in _weighted_blocks(data, resp))
        mean = np.divide(first, count[:, None], out=np.zeros_like(first), where=count[:, None] > 0)
        count, first, second = merge.merge(_sum_block(z, r, mean, full) for z, r in _weighted_blocks(data, resp))
    return mean, RowSums(count, first, second, count[:, None])


def sum_unclaimed(data, resp):
    """Return the sum of x x' (D, D) over the rows of no component: scikit-learn's tied covariance begins with it."""
    if resp.labels is None or np.min(resp.labels) > NO_COMPONENT:
        return 0.0

    def squares(z, r):
        x = data.scaling.to_user_rows(z[~r.any(axis=1)])
        return x.T @ x

    with single_blas():
        return merge.merge(squares(z, r) for z, r in _weighted_blocks(data, resp))


def _weighted_blocks(data, resp):
    """Yield the rows of each block in coordinates, and their weighted responsibilities."""
    spans = [data.source.span(index) for index in range(data.source.block_count)]
    for index, r in enumerate(resp.blocks(spans)):
        rows, weight = data.scaling.rows(data.source.read(index)), data.weights
        yield rows, r if weight is None else weight.read(index)[:, None] * r


def _sum_block(z, r, mean, full):
    """Return counts, first and second sums around given means of a block; `r` is responsibilities times weights."""
    parts = []
    for share, m in zip(r.T, mean, strict=True):
        used = np.flatnonzero(share)
        weight, difference = share[used], z[used] - m
        second = (weight[:, None] * difference).T @ difference if full else weight @ difference**2
        parts.append((weight.sum(), weight @ difference, second))
    return tuple(np.array(part) for part in zip(*parts, strict=True))
