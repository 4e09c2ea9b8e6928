"""The state of a streaming sparse Gaussian process: updates, merges, forgetting, predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cavity.base import arrays
from cavity.base.errors import DROP_WAY_OUT, suggest
from cavity.base.frames import check_same_names
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.missing_values import MISSING_CHOICES, DroppedRows
from cavity.base.observation_digest import ObservationDigest, join_digests
from cavity.base.public_objects import ArrayLike, Data, IntArray
from cavity.base.results import format_count, format_table, list_name_rows, shorten_repr
from cavity.jobs.job import SILENT_JOB, Event, Job
from cavity.models.formula.design import Coding
from cavity.models.observations import Observations
from cavity.models.process.model import check_columns
from cavity.models.streaming_gp.plain_batches import take_plain_batch
from cavity.models.streaming_gp.posterior import SparsePosterior
from cavity.models.streaming_gp.record import STATE_RECORD
from cavity.models.streaming_gp.rows import is_exact, open_rows
from cavity.models.streaming_gp.single_rows import SingleRows, finish_single_row
from cavity.models.streaming_gp.snapshot import StreamSnapshot
from cavity.models.streaming_gp.update import forget, merge, relearn_scales, take_rows_in

if TYPE_CHECKING:
    from cavity.models.streaming_gp.model import StreamingGP


def _show_field(name: str, description: str) -> Any:
    """Return a property for a field of the snapshot, with one line of description."""
    return property(attrgetter(f"_now.{name}"), doc=description)


class StreamingGPState(SparsePosterior):
    """The posterior of a `StreamingGP` given the rows so far. It is mutable: `update` works in place.

    Attributes
    ----------
    n_features : int
        D.

    Notes
    -----
    Any number of threads may predict at the same time. None may do so while another one updates, which works in place:
    give it a `copy`.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> covariance, noise = cavity.covariances.RBF(lengthscale=2.0), cavity.likelihoods.Gaussian(0.1)
    >>> model = cavity.StreamingGP(covariance, noise, inducing=np.arange(5.0)[:, None])
    >>> state = model.fit([[0.0], [1.0]], [0.5, 1.0], learn=False)
    >>> round(state.log_bound, 6), round(state.update([[2.0]], [0.7]).last_increment, 6)
    (-1.98837, -0.460561)
    >>> mean, variance = state.predict([[1.0], [6.0]])
    >>> mean.round(3).tolist(), variance.round(3).tolist()
    ([0.797, 0.012], [0.047, 0.973])
    """

    __slots__ = ("_now", "_options", "_singles", "n_features")
    kind: ClassVar[str] = "streaming_gp"
    record: ClassVar[Any] = STATE_RECORD

    model: StreamingGP = _show_field("model", "The `StreamingGP`: the settings, with what was learnt in them.")
    n_samples: int = _show_field("n_samples", "Rows taken in, those of weight zero not counted.")
    inducing_ids: IntArray = _show_field(
        "inducing_ids", "A number for every inducing point, (M,), which it keeps while it is one."
    )
    last_increment: float = _show_field("last_increment", "What the last update added to log_bound, in nats.")
    last_information_lost: float = _show_field(
        "last_information_lost", "Nats of `information_lost` that the last update lost."
    )
    n_updates: int = _show_field("n_updates", "Calls so far that took in rows, the fit and merges among them.")
    status: str = _show_field("status", "Why the iteration of the last update ended.")
    n_iter: int = _show_field("n_iter", "EP's sweeps of the last update; 1 with Gaussian noise.")
    roles: dict[str, str] | None = _show_field(
        "roles", "The names of the columns that were y, offset, ..., by these words, where given by name."
    )
    dropped: DroppedRows | None = _show_field(
        "dropped", "How many rows were left out because of missing values, and for which columns; None for none."
    )
    coding: Coding | None = _show_field("coding", "The formula of the mean, None if it is none.")
    has_offset: bool = _show_field("has_offset", "Whether rows came with offsets: predictions then need theirs.")

    @property
    def information_lost(self) -> float:
        """Nats that all updates lost by giving up inducing points.

        By so much the bound of the rows before is lower than it was at its own inducing points. What updates lost by
        changed settings is not in it, as it cannot be computed without the rows; `information_lost_bound` says what all
        of this may have cost at most.
        """
        return self._now.information_lost

    @property
    def trace(self) -> dict[str, Any]:
        """Arrays by names, of the last update.

        "change" of every sweep of EP, "learning", the increment plus log prior of every step of the search for
        settings, and "seconds" when it was known, since the last part of the search began, which files do not keep.
        """
        return self._now.trace

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns of X, if it was a data frame, else None.

        The columns of later data frames are put in their order.
        """
        return self._now.columns

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The values that labels stand for, in their order.

        None where y was 0 and 1, -1 and 1, or the numbers of classes.
        """
        return self._now.classes

    # ------------------------------------------------------------------------------------------ taking in rows

    def update(
        self,
        X: Data,
        y: ArrayLike,
        *,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        missing: Literal["raise", "drop"] = "raise",
        learn: bool | Literal["covariance"] = False,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
    ) -> StreamingGPState:
        """Take in rows, one or many, in place.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, list of paths, or Source
            Rows; the columns of a data frame are found by their names, in whatever order; none at all change nothing.
        y : array_like (N,) or str
            Their observations. What the fit took from columns of X, or its formula, is found there by its name,
            unless it is given.
        event : array_like (N,) or str, optional
            Of times y: 1 or True where the event was observed, 0 or False where it was not until then. Likelihoods of
            times take bounds (N, 2) as well, lower and upper, which need no events.
        offset : array_like (N,) or str, optional
            Known part of f.
        exposure : array_like (N,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        noise_variance : array_like (N,) or str, optional
            Known noise variances of the rows, in place of that of the Gaussian likelihood.
        sample_weight : array_like (N,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.
        missing : {"raise", "drop"}, default "raise"
            What is done about rows without a value in a column that the fit reads: refuse them, naming the first, or
            leave them out; `dropped` of the posterior counts them.
        learn : bool or "covariance", default False
            Whether to learn the settings again, as in `StreamingGP.fit`, from these rows and the summary of
            those before.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.
        callback : callable, optional
            Called as callback(event) with a `cavity.Event` after each sweep, and evaluation of a search; a true result
            stops the fit and keeps what is known.
        progress : bool, default False
            Whether to show progress on stderr: a bar where tqdm is installed, else lines.

        Returns
        -------
        StreamingGPState
            This one.

        Raises
        ------
        ValueError, TypeError, OverflowError, NotPositiveDefiniteError
            As `StreamingGP.fit`; the state is then what it was before.

        Warns
        -----
        ConvergenceWarning
            If EP or the search for settings did not come to rest.
        SettingsWarning
            If the new rows contradict the settings. With learn, if what is known of the rows before holds settings
            that the new ones would leave by far. Without, if rows are much farther from what was predicted for them
            than the settings allow: Gaussian noise and alpha = 0 are judged by 50 rows or more at a time, however they
            come, and the mean of their squared distances, which the settings say is 1, is then above 2. Batches of
            other noise are, where they would be worth more if nothing at all were known of f; single rows, and
            likelihoods of your own, are not judged. The rows are taken in all the same.

        Notes
        -----
        N rows cost N M^2 operations, a single one M^2. New inducing points, and other settings, cost M^3. Rows that all
        have weight 0, or are all left out, change nothing but `dropped`.

        With other noise than Gaussian batches are not visited again, so that the state, and its log bound, depend on
        the order of the rows and on the batches: little where rows come in random order, much where the function
        changes with time and time is no column of X.
        """
        plain = learn is progress is False and callback is event is offset is exposure is None
        plain = plain and noise_variance is sample_weight is None and missing in MISSING_CHOICES
        if plain and (n_threads is None or (type(n_threads) is int and (n_threads == -1 or n_threads > 0))):
            new = self._get_single_rows().from_arrays(self._now, X, y)
            if new is not None:
                return finish_single_row(self, new)
            if take_plain_batch(self, X, y, n_threads):
                return self
        run = replace(self._options, n_threads=n_threads, job=Job.checked(callback, progress))
        columns = {"y": y, "event": event, "offset": offset, "exposure": exposure}
        columns |= {"noise_variance": noise_variance, "sample_weight": sample_weight}
        dataset = self._open_arguments(X, columns).leave_out(missing, needs_rows=False)
        fitted = self if self.n_samples or self.classes is not None else None
        with suggest(DROP_WAY_OUT):
            X = open_rows(dataset, self.n_features)
            observations = Observations.of(self.model.likelihood, dataset, needs_rows=False, fitted=fitted)
            return take_rows_in(self, X, observations, learn, run)

    @property
    def observation_digest(self) -> ObservationDigest | None:
        """By which `compare` checks that posteriors are of the same y, in the order in which they came.

        None where it is not known: after rows that came one by one, and in files of earlier versions.
        """
        return self._now.digest if self._now.digest and self._now.digest.n_rows == self.n_samples else None

    def _get_single_rows(self):
        """Return the SingleRows of the current basis and settings."""
        now, singles = self._now, self._singles
        if singles is None or singles.basis is not now.basis or singles.model is not now.model:
            singles = self._singles = SingleRows(now.model, now.basis)
        return singles

    def copy(self) -> StreamingGPState:
        """A state of its own, for the same rows.

        Returns
        -------
        StreamingGPState
            What happens to one does not change the other.
        """
        out = wrap_snapshot(self._now, self._options)
        self._singles = None  # no row is added in place to a snapshot that both share
        return out

    __copy__ = copy  # a shallow one would share the snapshot

    def merge(self, other: StreamingGPState) -> StreamingGPState:
        """Take in all rows of another state.

        Parameters
        ----------
        other : StreamingGPState
            Of equal settings, for rows of the same columns. It stays as it is.

        Returns
        -------
        StreamingGPState
            This one.

        Raises
        ------
        TypeError, ValueError
            If `other` is no such state, or its settings differ.
        NotPositiveDefiniteError
            If sites of negative precision, as outliers of StudentT have, together exceed the prior precision;
            the state is then what it was before.

        Notes
        -----
        With equal inducing points the result is that of one state for all rows, exactly; so it is with all inducing
        points of both. If those are more than n_inducing, the ones that cost least are given up, and what is lost is in
        last_information_lost. Inducing points that were given stay as they are.
        """
        names = self._check_like(other)
        digest = join_digests(self._now.digest, other._now.digest)
        self._now = replace(merge(self._now, other._now, names), digest=digest)
        return self

    def _check_like(self, other):
        """Raise unless `other` is a state of the same settings; return columns, classes and roles of both."""
        if not isinstance(other, StreamingGPState):
            raise TypeError(f"other must be a StreamingGPState, got {type(other).__name__}")
        if other.n_features != self.n_features:
            raise ValueError(f"other must have {self.n_features} columns, got {other.n_features}")
        for name in ("covariance", "likelihood", "mean", "jitter", "alpha"):
            mine, theirs = getattr(self.model, name), getattr(other.model, name)
            if not np.array_equal(mine, theirs) if name == "mean" else mine != theirs:
                raise ValueError(f"other must have the same {name}: {theirs!r} is not {mine!r}")
        names = {
            name: check_same_names(getattr(self, name), getattr(other, name), name) for name in ("columns", "classes")
        }
        return names | {"roles": self.roles if other.roles is None else other.roles | (self.roles or {})}

    def forget(self, factor: float) -> StreamingGPState:
        """Let all rows so far count less.

        Parameters
        ----------
        factor : float in [0, 1]
            What the weight of every row so far is multiplied with: 1 changes nothing, 0 leaves the prior.

        Returns
        -------
        StreamingGPState
            This one. Its log_bound is then that of the likelihood to the power of `factor`.
        """
        factor = arrays.check_number(factor, "factor", low=0, high=1, closed_low=True, closed_high=True)
        self._now = forget(self._now, factor)
        return self

    def learn(self, *, noise: bool = True, amplitude: bool = True) -> StreamingGPState:
        """Learn the noise variance and a common factor of the covariance again, from all rows so far.

        Sums that the state keeps give the bound of all rows at any noise and amplitude, exactly: for inducing points
        and lengthscales that never changed this is what a fit of all rows would find, given these.

        Parameters
        ----------
        noise : bool, default True
            Whether to learn the noise variance.
        amplitude : bool, default True
            Whether to learn the factor: it multiplies one variance of every term of a sum, the first free one of a
            product.

        Returns
        -------
        StreamingGPState
            This one.

        Raises
        ------
        ValueError
            If the likelihood is not Gaussian or alpha is not 0, if no variance of the covariance is free, or if rows
            had noise variances of their own.
        """
        noise, amplitude = arrays.check_flag(noise, "noise"), arrays.check_flag(amplitude, "amplitude")
        model = self.model
        if not is_exact(model.likelihood) or model.alpha != 0.0:
            raise ValueError("learn needs the likelihood Gaussian and alpha = 0; others have update(X, y, learn=True)")
        if noise and not self._now.uniform:
            raise ValueError("noise=True needs rows of one noise variance: some had their own; give noise=False")
        if self._now.information.n > 0.0:
            self._now = relearn_scales(self._now, noise, amplitude)
        return self

    @property
    def converged(self) -> bool:
        """Whether all updates met their stopping rules; `worst_update` says which of the others matters most."""
        return self._now.history.worst is None

    @property
    def worst_update(self) -> float:
        """The update that did not converge with the largest last change: its sites stay inside; None without any.

        It has the fields update, n_samples (rows by then), status and change. All but `forget(0)` leaves it.
        """
        return self._now.history.worst

    @property
    def information_lost_bound(self) -> float:
        """Nats lost at most: a bound of what changed settings may have cost, on top of what is counted.

        As long as settings did not change under rows taken in before, and where they did so in ways that are exact
        (`learn`, and updates that learn nothing but the noise), it is information_lost. Then, with Gaussian noise, no
        fit of the same rows at the settings of now has a log bound that is larger by more than this: it is what is
        missing to a function that meets every observation. As no function meets noise, some half a nat a row of it is
        not lost in truth. Of other noise nothing can be said: it is infinite.
        """
        now, likelihood = self._now, self.model.likelihood
        history = now.history
        if not history.changed:
            return self.information_lost
        if not is_exact(likelihood) or np.isnan(history.own_log_noise):
            return np.inf
        missing = history.ceiling(now.information, likelihood.noise_variance) - now.log_bound
        return max(self.information_lost, missing)

    def __repr__(self) -> str:
        done = "converged" if self.status == CONVERGED_STATUS else f"NOT CONVERGED: {self.status}"
        model = self.model
        method = ("VFE" if model.alpha == 0 else f"power {model.alpha:g}") if is_exact(model.likelihood) else "EP"
        information, rows = self._now.information, ""
        if is_exact(model.likelihood) and information.n > 0:
            rows = (
                f" by changes, {0.5 * information.gap / information.n:.2g} a row in all (tolerance {model.tolerance:g})"
            )
        loss = f"{self.information_lost:.3g} nats{rows}"
        if self._now.history.changed:
            loss += f"; with changed settings {self.information_lost_bound:.3g} at most"
        worst = [] if self.converged else [("worst update", f"NOT CONVERGED: {self.worst_update}")]
        return format_table(
            f"StreamingGPState: {type(model.likelihood).__name__}, {format_count(self.n_samples, 'row')}, "
            f"{format_count(self.n_inducing, 'inducing point')}",
            [
                ("log_bound", f"{self.log_bound:.6f} (last increment {self.last_increment:.6f})"),
                ("covariance", shorten_repr(model.covariance)),
                ("likelihood", shorten_repr(model.likelihood)),
                ("mean", shorten_repr(np.asarray(model.mean).tolist())),
                *list_name_rows(self),
                ("lost", loss),
                ("last update", f"{method}, {done}"),
                *worst,
            ],
        )


def wrap_snapshot(snapshot, options):
    """Return the state of a snapshot; updates have these options of EP."""
    out = StreamingGPState()
    out._now, out._options, out._singles = snapshot, options, None
    out.n_features = snapshot.waiting.X.shape[1]
    return out


def start_state(model, dataset, options, coding=None):
    """Return the state of a model before any row of a dataset: the prior; updates have these options of EP."""
    shape = np.shape(dataset.X)
    if len(shape) != 2:
        raise ValueError(f"X must have 2 dimension(s), got shape {shape}; {arrays.hint_one_column(dataset.X)}")
    check_columns(model.covariance, model.mean, shape[1])
    if model.inducing is not None and model.inducing.shape[1] != shape[1]:
        raise ValueError(f"X must have {model.inducing.shape[1]} columns like inducing, got {shape[1]}")
    columns = dataset.names or model.inducing_columns
    return wrap_snapshot(
        replace(StreamSnapshot.prior(model, shape[1], columns, dataset.roles), coding=coding),
        replace(options, job=SILENT_JOB),
    )


def rename_columns(state, columns, classes, roles=None):
    """Name the columns of X and the classes of y, tuples of str or None, of a state; and those of other roles."""
    state._now = replace(state._now, columns=columns, classes=classes, roles=roles or state.roles)
