"""Checked observations of the rows of a fit: likelihood, y, offset, weights and noise."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.censoring import make_bounds
from cavity.base.labels import encode_labels, encode_new_labels, has_classes
from cavity.base.missing_values import DroppedRows
from cavity.base.observation_digest import ObservationDigest
from cavity.base.rows import Rows, check_observations, check_row_vector, check_row_weights, combine_known_parts
from cavity.likelihoods import Gaussian
from cavity.models.defaults import choose_for_times, likelihood_for
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockTask
from cavity.runs.passes import reduce_runs
from cavity.sources.sources import Source, open_source

MAX_LABEL_KINDS = 16  # different labels of a remote y that are counted; two are expected


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Checked columns of the rows of a fit, without the features.

    Attributes
    ----------
    likelihood : Likelihood
        That of the model, or the one chosen from y; its parameters may be open.
    y : ndarray (N,) or (N, 2), or Source
        As the likelihood takes them; a Source for a remote collection, whose numbers are checked with the features.
    offset, weights, noise : ndarray (N,) or None
        Known part of f, with the log of exposures; sample weights; known variances of the noise.
    classes : tuple or None
        The labels of class numbers.
    names : tuple of str or None
        Those of the features.
    roles : dict or None
        The names of columns by arguments.
    chosen : tuple of str
        "likelihood" where y decided.
    dropped : DroppedRows or None
        Rows that were left out because of missing values.
    """

    likelihood: object
    y: np.ndarray | Source
    offset: np.ndarray | None
    weights: np.ndarray | None
    noise: np.ndarray | None
    classes: tuple | None
    names: tuple | None
    roles: dict | None
    chosen: tuple = ()
    dropped: DroppedRows | None = None

    @classmethod
    def of(
        cls, likelihood, dataset, *, default=likelihood_for, needs_rows=True, fitted=None, remote=False, are_times=False
    ):
        """Check the columns of a dataset that was opened with the arguments of a fit.

        Parameters
        ----------
        likelihood : Likelihood or None
            That of the model; None if y decides.
        dataset : Dataset
            With the column "y" and, where the fit has them, offset, exposure, noise_variance and sample_weight.
        default : callable, optional
            Returns the likelihood for y where the model has none.
        needs_rows : bool, default True
            Whether some row must have a positive weight.
        fitted : posterior, optional
            Of the rows before, in an update: its `classes` stay.
        remote : bool, default False
            Whether the y of a remote collection stays remote; else it is read.
        are_times : bool, default False
            Whether y are bounds of times that a formula has made; a column "event" says so, too.

        Raises
        ------
        ValueError, TypeError
            Naming the argument, what was expected and what was given.
        """
        are_times = are_times or dataset.columns.get("event") is not None
        remote = remote and dataset.is_remote("y") and not are_times
        remote_columns = {"y": dataset.columns["y"]} if remote else {}
        local_names = [name for name in dataset.columns if name not in remote_columns]
        columns = remote_columns | {name: dataset.column(name) for name in local_names}
        y, chosen = join_events(columns), () if likelihood is not None else ("likelihood",)
        likelihood = choose_for_times(likelihood) if are_times else likelihood
        likelihood = default(y) if likelihood is None else likelihood
        if remote:
            y, classes = code_remote_labels(y, likelihood)
        elif fitted is None:
            y, classes = encode_labels(y, likelihood)
        else:
            y, classes = encode_new_labels(y, likelihood, fitted.classes), fitted.classes
        n, weights, noise = dataset.n_rows, columns.get("sample_weight"), columns.get("noise_variance")
        offset = combine_known_parts(likelihood, columns.get("offset"), columns.get("exposure"), n)
        return cls(
            likelihood,
            y if remote else check_observations(likelihood, y, n),
            offset,
            None if weights is None else check_row_weights(weights, n, needs_rows=needs_rows),
            check_row_noise(likelihood, noise, n),
            classes,
            dataset.names,
            dataset.roles,
            chosen,
            dataset.dropped,
        )

    def rows(self, X, kind=Rows):
        """Return `Rows` of checked features X (N, D), or others of their kind."""
        return kind(X, self.y, self.offset, self.weights, self.noise)

    @property
    def digest(self):
        """The `ObservationDigest` of y; None where it is remote."""
        return ObservationDigest.of(self.y, self.likelihood)

    @property
    def labels(self):
        """Fields of a posterior, by name."""
        return {"columns": self.names, "classes": self.classes, "roles": self.roles, "dropped": self.dropped}


def join_events(columns):
    """Return the y among the columns of arguments, as bounds of times where there is a column of events."""
    return columns["y"] if columns.get("event") is None else make_bounds(columns["y"], columns["event"])


def check_row_noise(likelihood, value, n):
    """Return n known variances of Gaussian noise, one per row of X: positive; None if there are none."""
    if value is None:
        return None
    if not isinstance(likelihood, Gaussian):
        raise ValueError("noise_variance needs the likelihood Gaussian; other likelihoods have noise of their own")
    noise = check_row_vector(value, "noise_variance", n)
    if not np.all(noise > 0):
        row = int(np.argmin(noise > 0))
        raise error_of("noise_variance", f"must be positive, got {float(noise[row])!r} in row {row}")
    return noise


def code_remote_labels(y, likelihood):
    """Return the y of a remote collection as the likelihood takes it, and its classes: `labels.coded`.

    Numbers that are no labels are checked in the first pass.
    """
    y = open_source(y, "y")
    if not has_classes(likelihood):
        return y, None
    with Threads(1) as thread:
        y.summary(thread)
        kinds = reduce_runs(BlockTask(_find_kinds, add=_join_kinds), None, [y], thread, add=_join_kinds)
    codes, classes = encode_labels(kinds, likelihood)
    numbers = np.asarray(likelihood.check(codes), dtype=np.float64)
    return Source([y.parts[0].map_rows(partial(_code_values, kinds, numbers))], "y"), classes


def _find_kinds(y, start, _):
    """Return the different values of a block, in order; of many the first."""
    return np.unique(y)[:MAX_LABEL_KINDS]


def _join_kinds(left, right):
    """Return the different values of two."""
    return np.union1d(left, right)[:MAX_LABEL_KINDS]


def _code_values(kinds, numbers, values):
    """Return the number that stands for each value, of a few kinds in order."""
    return numbers[np.searchsorted(kinds, values)]
