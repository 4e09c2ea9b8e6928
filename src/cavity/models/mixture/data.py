"""The data of a Gaussian mixture: rows and their weights, block by block, and what is known of all of them."""

from dataclasses import dataclass

import numpy as np

from cavity.blocks import merge, sources
from cavity.blocks.executors import Threads
from cavity.models.mixture.state import NO_WEIGHT, Frame, Statistics
from cavity.models.mixture.sweep import Expectation, check_reached

LARGEST = 1e150  # squares of data beyond it overflow
GRAIN = 4  # most blocks of some 0.2 ms that a thread takes at once
HELD = 1 << 18  # most numbers that their statistics are together, 2 MB
CLOSEST = 1e-140  # squares of differences below it underflow
LEAST_ROWS, MOST_ROWS = 1e-100, 1e100  # sums of weights: beyond, precisions leave float64


@dataclass(frozen=True, slots=True)
class Data:
    """Checked rows in a frame; `weights` is None or a source with the same blocks."""

    source: sources.Source
    weights: sources.Source | None
    frame: Frame
    missing: bool  # whether nan stands for values that were not seen
    n_samples: float  # the sum of the weights
    log_scale: float  # what the units of the coordinates take from the log density of all rows

    def block(self, index):
        """Return the rows and the weights of a block."""
        return self.source.read(index), NO_WEIGHT if self.weights is None else self.weights.read(index)

    def statistics(self, expectation, threads, indices=None):
        """Return the summed statistics (K, numbers) and log densities of the blocks, of all or of some."""

        def task(index):
            out, totals, bad = expectation.statistics(*self.block(index))
            check_reached(bad, lambda row: self.source.where(self.source.span(index)[0] + row))
            return out, totals

        numbers = range(self.source.block_count) if indices is None else indices
        grain = max(1, min(GRAIN, len(numbers) // (2 * threads.count), HELD // expectation.size))
        out, totals = merge.merge(threads.imap(task, zip(numbers), grain=grain))
        return out, float(totals[0])

    def sample(self):
        """Return rows at equal distances with their weights, as data of their own; all if they are few."""
        if self.source.n_rows <= sources.SAMPLE:
            return self
        rows = self.source.sample()
        source = sources.open_source(rows, self.source.name, ndim=(2,), block_rows=self.source.block_rows)
        weights, total = None, float(len(rows))
        if self.weights is not None:
            drawn = self.weights.sample()
            if not np.any(drawn > 0):  # so few rows count that none of them was met
                return self
            weights = sources.open_source(drawn, "sample_weight", block_rows=self.source.block_rows)
            total = float(np.sum(drawn))
        return Data(source, weights, self.frame, self.missing, total, 0.0)

    def points(self):
        """Return all rows in coordinates (N, D) and their weights (N,) or None; for samples."""
        rows = self.frame.rows(self.source.rows())
        return rows, None if self.weights is None else self.weights.rows()


def open_data(X, sample_weight, threads, *, block_rows, n_features=None, missing=False, shared=False, frame=None):
    """Return X with everything checked.

    Parameters
    ----------
    X : array_like (N, D), path, or list of paths
        The rows. A vector (N,) is refused: whether it is a row or a column is for the user to say.
    sample_weight : array_like (N,), path or None
        Weights of the rows.
    threads : Threads
        Who reads.
    block_rows : callable
        block_rows(N, D) returns the number of rows in a block.
    n_features : int, optional
        D, where it is known already.
    missing : bool
        Whether nan is allowed.
    shared : bool
        Whether the frame must have one scale for all columns.
    frame : Frame, optional
        The frame to use instead of one around the data, which may then be without any value in a column.
    """
    source = open_rows(X, n_features, block_rows)
    weights, total = _open_weights(sample_weight, source, threads)
    low, high, mean, seen = check_rows(source, threads, missing)
    gaps = bool(np.any(seen < source.n_rows))
    if frame is None and not np.all(seen):
        raise ValueError(f"X must have a value in every column, got only nan in column {int(np.argmin(seen))}")
    _check_size(low, high, "X")
    _check_range(low, high)
    frame = Frame.around(low, high, mean, shared) if frame is None else frame
    data = Data(source, weights, frame, gaps, total, 0.0)
    per_column = total
    if gaps:
        found, _ = data.statistics(Expectation.flat(frame, False, True), threads)
        per_column = Statistics.of(found, source.n_features, False).seen[0]
    log_scale = float(np.sum(per_column * np.log(frame.scale)))
    return Data(source, weights, frame, gaps, total, log_scale)


def open_minibatch(rows, name, missing):
    """Return a minibatch as float64 rows, checked; where values may be missing, a column may be without any."""
    source = open_rows(rows, None, lambda n_rows, _: n_rows, name)
    with Threads(1) as thread:
        low, high, *_ = check_rows(source, thread, missing)
    _check_size(low, high, name)
    return source.rows()


def check_rows(source, threads, missing):
    """Return the minimum, maximum and mean of the columns, and how many values of each were seen."""
    try:
        return (
            source.summary(threads, missing=True)
            if missing
            else (*source.summary(threads), np.full(source.n_features, source.n_rows))
        )
    except ValueError as error:
        if missing or "nan" not in str(error):
            raise
        raise ValueError(f"{error}; values may be missing with covariance='diag' or 'spherical' only") from None


def open_rows(X, n_features, block_rows, name="X"):
    """Return X as a source of rows (n, D)."""
    source = sources.open_source(X, name, ndim=(2,))
    if n_features is not None and source.n_features != n_features:
        raise ValueError(f"{name} must have {n_features} columns, got shape {source.shape}")
    source.block_rows = block_rows(source.n_rows, source.n_features)
    return source


def _open_weights(sample_weight, source, threads):
    """Return the weights as a source with the blocks of `source`, or None, and their sum."""
    if sample_weight is None:
        return None, float(source.n_rows)
    weights = sources.open_source(sample_weight, "sample_weight", block_rows=source.block_rows)
    if weights.n_rows != source.n_rows:
        raise ValueError(
            f"sample_weight must have one weight for each of the {source.n_rows} rows of X, got shape {weights.shape}"
        )
    low, high, mean = weights.summary(threads)
    if low < 0 or high == 0:
        raise ValueError(f"sample_weight must not be negative and not all zero, got weights from {low:g} to {high:g}")
    total = mean * source.n_rows
    if not LEAST_ROWS <= total <= MOST_ROWS:
        raise ValueError(
            f"sample_weight must add up to between {LEAST_ROWS:g} and {MOST_ROWS:g} rows, got {total:g}; rescale it"
        )
    return weights, total


def _check_size(low, high, name):
    """Raise ValueError for data whose squares overflow."""
    if max(np.fmax.reduce(-low), np.fmax.reduce(high)) > LARGEST:
        raise ValueError(
            f"{name} must be within {LARGEST:g} of zero, got {np.fmin.reduce(low):g} to {np.fmax.reduce(high):g}; "
            "rescale it"
        )


def _check_range(low, high):
    """Raise ValueError for columns whose squared differences underflow."""
    spread = high - low
    narrow = (spread > 0) & (spread < CLOSEST)
    if narrow.any():
        column = int(np.argmax(narrow))
        raise ValueError(f"X must have ranges above {CLOSEST:g}, got {spread[column]:g} in column {column}; rescale it")


def moments(data, threads, full):
    """Return the mean of all rows (D,) and their covariance (D, D), or variances (D,), in the units of the data."""
    found, _ = data.statistics(Expectation.flat(data.frame, full, data.missing), threads)
    _, first, second, seen = Statistics.of(found, data.source.n_features, full).parts()
    if not np.all(seen > 0.0):
        raise ValueError(
            f"X must have a value of positive weight in every column, got none in column {int(np.argmin(seen[0]))}; or "
            "give mean_prior and covariance_prior"
        )
    mean = (first / seen)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        square = (second[0] - seen[0] * (np.outer(mean, mean) if full else mean**2)) / (seen[0] - 1.0)
    if not np.all(seen > 1.0):
        square = np.full_like(square, np.nan)  # there is none
    return data.frame.user_rows(mean), data.frame.user_squares(square[None])[0]
