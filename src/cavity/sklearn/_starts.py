"""Where scikit-learn's mixtures start: initial responsibilities, the same ones from the same random state."""

import copy
from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans, kmeans_plusplus

from .. import _blocks

METHODS = ("kmeans", "k-means++", "random", "random_from_data")
NOBODY = -1  # the label of a row that no component has at first
DRAWN = 1 << 18  # responsibilities drawn at a time: 2 MB


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


def responsibilities(method, X, n_components, weight, random_state):
    """Return initial responsibilities by one of scikit-learn's methods; `random_state` moves on as it does there."""
    n = len(X)
    if method == "random":
        before = copy.deepcopy(random_state)
        for start, stop in _blocks.starts(n, max(1, DRAWN // n_components)):
            random_state.uniform(size=(stop - start, n_components))
        return Responsibilities(n_components, None, before)
    if method == "kmeans":
        means = KMeans(n_clusters=n_components, n_init=1, random_state=random_state)
        return Responsibilities(n_components, means.fit(X, sample_weight=weight).labels_, None)
    if method == "k-means++":
        chosen = kmeans_plusplus(X, n_components, sample_weight=weight, random_state=random_state)[1]
    else:
        share = None if weight is None else weight / np.sum(weight)
        chosen = random_state.choice(n, size=n_components, replace=False, p=share)
    labels = np.full(n, NOBODY, dtype=np.intp)
    labels[chosen] = np.arange(n_components)
    return Responsibilities(n_components, labels, None)
