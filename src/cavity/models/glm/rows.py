"""The rows a GLM is fitted to, and what becomes of rows that tell nothing about the weights or weigh nothing."""

from dataclasses import dataclass, replace

import numpy as np

MOST_COPIES = 1e7  # of rows, all together, in ADF


@dataclass(frozen=True, slots=True)
class Data:
    """Checked data: design matrix, observations, offsets, weights, the mask of rows used (None for all), idle rows."""

    X: object
    y: np.ndarray
    offset: np.ndarray | None
    weights: np.ndarray | None
    used: np.ndarray | None
    idle: "Idle | None"
    spare: "Spare | None"

    @property
    def n_rows(self):
        """Rows given, whether used or not."""
        return len(self.y) if self.used is None else len(self.used)

    def scatter(self, values, others=None):
        """Put values of the used rows into place; `others` fill the rest."""
        if self.used is None or values is None:
            return values
        full = np.full(len(self.used), np.nan) if others is None else others.copy()
        full[self.used] = values
        return full

    def repeated(self):
        """Rows of weight w > 1 repeated, whole ones first, and the weights that remain (None if all are 1)."""
        if self.weights is None:
            return self, None
        times = np.ceil(self.weights)
        if np.sum(times) > MOST_COPIES:
            raise ValueError(
                f"ADF takes in a row of weight w that many times; the weights ask for {np.sum(times):.3g} rows, "
                f"more than {MOST_COPIES:.0e}: use method='ep'"
            )
        times = times.astype(np.intp)
        index = np.repeat(np.arange(len(times)), times)
        weights = np.ones(len(index))
        weights[np.cumsum(times) - 1] = self.weights - (times - 1)
        offset = None if self.offset is None else self.offset[index]
        return replace(self, X=self.X[index], y=self.y[index], offset=offset), weights


@dataclass(frozen=True, slots=True)
class Idle:
    """Rows whose f does not depend on the weights: their log likelihoods (nan elsewhere) and the weighted sum."""

    log_p: np.ndarray
    total: float


@dataclass(frozen=True, slots=True)
class Spare:
    """Rows of weight zero: which they are, and their data."""

    mask: np.ndarray
    X: object
    y: np.ndarray
    offset: np.ndarray | None


def has_offset(offset):
    """Whether there is an offset other than zero."""
    return offset is not None and bool(np.any(np.asarray(offset)))
