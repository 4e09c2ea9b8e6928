"""The rows that a Gaussian mixture is fitted to, with their weights, and what is known of all of them."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import frames
from cavity.base.observation_digest import ObservationDigest
from cavity.mean_field.options import LARGEST_TO_SQUARE, LEAST_TO_SQUARE
from cavity.models.mixture.e_step import EStep, UnreachableRow, choose_block_rows
from cavity.models.mixture.factors import is_full
from cavity.models.mixture.scaling import Scaling
from cavity.models.mixture.state import RowSums
from cavity.runs import passes
from cavity.runs.executors import Threads
from cavity.sources import sources

MIN_TOTAL_WEIGHT, MAX_TOTAL_WEIGHT = 1e-100, 1e100  # weights of all rows: beyond, precisions leave float64


@dataclass(frozen=True, slots=True)
class MixtureRows:
    """Checked rows and their scaling; `weights` is None or a source with the same blocks."""

    source: sources.Source
    weights: sources.Source | None
    scaling: Scaling
    missing: bool  # whether nan stands for values that were not seen
    one_unit: bool  # whether all columns are in one
    n_samples: float  # the sum of the weights
    log_scale: float  # what the units of the coordinates take from the log density of all rows
    digest: ObservationDigest | None = None
    block: tuple | None = None  # rows and weights in memory where they are one block, for many passes over few rows

    def sums(self, e_step, threads):
        """Return the `RowSums` of all rows and the sum of their log densities."""
        try:
            if self.block is not None:
                out, totals = e_step.compute_sums(*self.block, self.source.block_rows)
            else:
                grain = e_step.most_blocks(self.source.block_rows)
                out, totals = passes.reduce_runs(sum_run, e_step, (self.source, self.weights), threads, grain=grain)
        except UnreachableRow as error:
            raise error.to_error(self.source.describe_row) from None
        return RowSums.of(out, self.source.n_features, e_step.full), float(totals[0])

    def sample(self):
        """Return rows at equal distances with their weights, as data of their own; all if they are few."""
        if self.source.n_rows <= sources.SAMPLE_ROWS:
            return self
        rows, size = self.source.sample(), self.source.block_rows
        source = sources.open_source(rows, self.source.name, ndim=(2,), block_rows=size)
        part = replace(self, source=source, n_samples=float(len(rows)), log_scale=0.0, digest=None, block=None)
        if self.weights is None:
            return part
        index = self.weights.sample()
        if not np.any(index > 0):  # so few rows count that none of them was met
            return self
        weights = sources.open_source(index, "sample_weight", block_rows=size)
        return replace(part, weights=weights, n_samples=float(np.sum(index)))


def sum_run(run, e_step):
    """A task: the sums of the rows of a run, and the sum of their log densities."""
    try:
        return e_step.compute_sums(*run.arrays, run.block_rows)
    except UnreachableRow as error:
        raise UnreachableRow(run.start + error.args[0]) from None


def open_rows(X, sample_weight, threads, n_components, covariance, *, scaling=None):
    """Return the checked rows (N, D) and weights of a fit; a vector X is refused, as it may be a row or a column.

    With the covariances "diag" and "spherical" values may be missing, and "spherical" has one scale for all columns.
    With a scaling given, which is else one around the data, columns may be without any value.
    """
    full = is_full(covariance)
    source = open_blocks(X, n_components, full, None if scaling is None else len(scaling.scale))
    weights, total = _open_weights(sample_weight, source, threads)
    low, high, mean, counts, digest = check_rows(source, threads, not full, digested=True)
    gaps = bool(np.any(counts < source.n_rows))
    if scaling is None and not np.all(counts):
        column = frames.describe_column(int(np.argmin(counts)), source.names)
        raise ValueError(f"X must have a value in every column, got only nan in {column}")
    _check_size(low, high, "X")
    _check_range(low, high, source.names)
    one_unit = covariance == "spherical"
    scaling = Scaling.around(low, high, mean, one_unit) if scaling is None else scaling
    block = passes.read_single_block(source, weights)
    data = MixtureRows(source, weights, scaling, gaps, one_unit, total, 0.0, digest, block)
    per_column = total
    if gaps:
        statistics, _ = data.sums(EStep.flat(scaling, False, True), threads)
        per_column = statistics.seen[0]
    return replace(data, log_scale=float(np.sum(per_column * np.log(scaling.scale))))


def open_minibatch(rows, name, missing):
    """Return a minibatch as float64 rows, checked; where values may be missing, a column may be without any."""
    source = sources.open_source(rows, name, ndim=(2,))
    source.block_rows = source.n_rows
    with Threads(1) as thread:
        low, high, *_ = check_rows(source, thread, missing)
    _check_size(low, high, name)
    return source.rows()


def check_rows(source, threads, missing, digested=False):
    """Return minimum, maximum and mean of the columns, how many values of each were seen, and a digest on request."""
    try:
        low, high, mean, *more = source.summary(threads, missing, digested)
        return low, high, mean, *(more if missing else (np.full(source.n_features, source.n_rows), *more))
    except ValueError as error:
        if missing or "nan" not in str(error):
            raise
        raise ValueError(f"{error}; values may be missing with covariance='diag' or 'spherical' only") from None


def open_blocks(X, n_components, full, n_features=None):
    """Return rows as a source whose blocks are the same work for any K and D; a known D is checked."""
    source = sources.open_source(X, "X", ndim=(2,))
    if n_features is not None and source.n_features != n_features:
        raise ValueError(f"X must have {n_features} columns, got shape {source.shape}")
    source.block_rows = choose_block_rows(n_components, source.n_features, full)
    return source


def _open_weights(sample_weight, source, threads):
    """Return the weights as a source with the blocks of `source`, or None, and their sum."""
    if sample_weight is None:
        return None, float(source.n_rows)
    weights = sources.open_source(sample_weight, "sample_weight", block_rows=source.block_rows)
    if weights.n_rows != source.n_rows:
        requirement = f"one weight for each of the {source.n_rows} rows of X"
        raise ValueError(f"sample_weight must have {requirement}, got shape {weights.shape}")
    low, high, mean = weights.summary(threads)
    if low < 0 or high == 0:
        raise ValueError(f"sample_weight must not be negative and not all zero, got weights from {low:g} to {high:g}")
    total = mean * source.n_rows
    if not MIN_TOTAL_WEIGHT <= total <= MAX_TOTAL_WEIGHT:
        limits = f"between {MIN_TOTAL_WEIGHT:g} and {MAX_TOTAL_WEIGHT:g} rows"
        raise ValueError(f"sample_weight must add up to {limits}, got {total:g}; rescale it")
    return weights, total


def _check_size(low, high, name):
    """Raise ValueError for data whose squares overflow."""
    low, high = np.fmin.reduce(low), np.fmax.reduce(high)
    if max(-low, high) > LARGEST_TO_SQUARE:
        raise ValueError(f"{name} must be within {LARGEST_TO_SQUARE:g} of zero, got {low:g} to {high:g}; rescale it")


def _check_range(low, high, names):
    """Raise ValueError for columns whose squared differences underflow."""
    spread = high - low
    narrow = (spread > 0) & (spread < LEAST_TO_SQUARE)
    if narrow.any():
        column = int(np.argmax(narrow))
        widest = f"{spread[column]:g} in {frames.describe_column(column, names)}"
        raise ValueError(f"X must have ranges above {LEAST_TO_SQUARE:g}, got {widest}; rescale it")


def compute_moments(data, threads, full):
    """Return the mean of all rows (D,) and their covariance (D, D), or variances (D,), in the units of the data."""
    statistics, _ = data.sums(EStep.flat(data.scaling, full, data.missing), threads)
    _, first, second, counts = statistics.parts()
    if not np.all(counts > 0.0):
        column = frames.describe_column(int(np.argmin(counts[0])), data.source.names)
        instead = "or give mean_prior and covariance_prior"
        raise ValueError(f"X must have a value of positive weight in every column, got none in {column}; {instead}")
    mean = (first / counts)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        square = (second[0] - counts[0] * (np.outer(mean, mean) if full else mean**2)) / (counts[0] - 1.0)
    if not np.all(counts > 1.0):
        square = np.full_like(square, np.nan)  # there is none
    return data.scaling.to_user_rows(mean), data.scaling.to_user_squares(square[None])[0]
