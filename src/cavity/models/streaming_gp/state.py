"""What a streaming sparse Gaussian process knows: it takes in rows, merges, forgets, predicts, and is saved."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import within_range
from cavity.base.frames import check_alike, in_order, names_of
from cavity.base.loop import CONVERGED, warn_unconverged
from cavity.base.results import table, to_list
from cavity.blocks.executors import Threads, single_blas
from cavity.models.gp.process import check_columns, short, what_to_learn
from cavity.models.gp.search import NOT_LEARNT
from cavity.models.latent import likelihood_settings
from cavity.models.streaming_gp.basis import Basis, same_rows
from cavity.models.streaming_gp.carrier import moved
from cavity.models.streaming_gp.history import ENOUGH, History, Watch, warn_of
from cavity.models.streaming_gp.inducing import Waiting, avoidable, within_budget
from cavity.models.streaming_gp.information import Information
from cavity.models.streaming_gp.posterior import SparsePosterior
from cavity.models.streaming_gp.rescale import multiplied, relearn, rescaled
from cavity.models.streaming_gp.rows import INLINE, checked_rows, is_exact, paths_in
from cavity.models.streaming_gp.single import Single
from cavity.models.streaming_gp.update import EMPTY, Update, loss_rates

PARTS = (  # what an update replaces
    "model",
    "_basis",
    "_information",
    "inducing_ids",
    "_next_id",
    "n_samples",
    "_log_bound",
    "last_increment",
    "information_lost",
    "last_information_lost",
    "status",
    "n_iter",
    "trace",
    "n_updates",
    "_waiting",
    "_uniform",
    "_history",
    "_watch",
    "has_offset",
)
NOT_PLAIN = ("model", "_basis", "_information", "_waiting", "_history", "_watch", "inducing_ids", "trace")


INFORMATION = ("A", "r", "factor", "c")


class StreamingGPState(SparsePosterior):
    """What a `StreamingGP` knows after the rows so far. The one result that changes: `update` works in place.

    Attributes
    ----------
    model : StreamingGP
        The settings, with what was learnt in them.
    n_features : int
        D.
    n_samples : int
        Rows taken in, those of weight zero not counted.
    inducing_ids : ndarray (M,) of int
        A number for every inducing point, which it keeps as long as it is one.
    last_increment : float
        What the last update added to log_bound, in nats.
    information_lost, last_information_lost : float
        Nats that all updates, and the last one, lost by giving up inducing points: by so much the bound of the rows
        before is lower than it was at its own inducing points. What they lost by changed settings is not in it, as
        nobody can count that without the rows.
    information_lost_bound : float
        What all of this may have cost at most, see there.
    n_updates : int
        Calls so far that took in rows, the fit and merges among them.
    converged : bool
        Whether the stopping rules of all of them were met.
    worst_update : Unconverged or None
        Of those that did not meet them the one with the largest last change.
    status : str
        Why the iteration of the last update ended.
    n_iter : int
        EP's sweeps of the last update; 1 with Gaussian noise.
    trace : dict of ndarray
        Of the last update: "change" of every sweep of EP, and "learning", the increment plus log prior of every step of
        the search for settings.
    columns : tuple of str or None
        Names of the columns of X, if it was a data frame: those of later data frames are put in their order.
    classes : tuple of str or None
        What the labels of a target with classes stand for, in their order, where that was said.
    has_offset : bool
        Whether rows came with offsets, which predictions then want as well.

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

    __slots__ = (*PARTS, "_options", "_single", "classes", "columns", "n_features")
    kind = "streaming_gp"

    @classmethod
    def started(cls, model, X, options):
        """The prior, for rows like X.

        Parameters
        ----------
        model : StreamingGP
            The settings.
        X : array_like (N, D), or paths
            Rows, of which D and the names are taken.
        options : Options
            Those of EP.

        Returns
        -------
        StreamingGPState
            Without data.
        """
        out = cls()
        shape = np.shape(X) if paths_in(X) is None else paths_in(X).shape
        if len(shape) != 2:
            raise ValueError(f"X must have 2 dimension(s), got shape {shape}; X[:, None] makes numbers one column")
        check_columns(model.covariance, model.mean, shape[1])
        out.model, out.n_features, out._options = model, shape[1], options
        out.columns, out.classes = names_of(X), None
        Z = np.zeros((0, shape[1])) if model.inducing is None else model.inducing
        if Z.shape[1] != shape[1]:
            raise ValueError(f"X must have {Z.shape[1]} columns like inducing, got {shape[1]}")
        with Threads(1) as threads, single_blas():
            out._basis = Basis.of(model.covariance, Z, model.jitter, threads)
        out._information, out._single = Information.empty(len(Z)), None
        out.inducing_ids, out._next_id = arrays.read_only(np.arange(len(Z))), len(Z)
        out.n_samples, out.n_iter, out.status, out._uniform, out.trace = 0, 0, CONVERGED, True, EMPTY
        out._log_bound = out.last_increment = out.information_lost = out.last_information_lost = 0.0
        out._waiting, out.has_offset = Waiting.none(shape[1]), False
        out.n_updates, out._history, out._watch = 0, History(), Watch.of(out._information)
        return out

    # ------------------------------------------------------------------------------------------ taking in rows

    def update(self, X, y, *, offset=None, noise_variance=None, sample_weight=None, learn=False, n_threads=1):
        """Take in rows, one or many, in place.

        Parameters
        ----------
        X : array_like (N, D), data frame, path of a .npy file, or list of such paths
            Rows; the columns of a data frame are found by their names, in whatever order; none at all change nothing.
        y : array_like, shape (N,)
            Their observations.
        offset : array_like (N,), optional
            Known part of f.
        noise_variance : array_like (N,), optional
            Known noise variances of the rows, in place of that of the Gaussian likelihood.
        sample_weight : array_like (N,), optional
            A row of weight w counts as w copies; 0 leaves it out, and zeros only change nothing.
        learn : bool or "covariance", default False
            Whether to learn the settings again, as in `StreamingGP.fit`, from these rows and what the state knows of
            those before.
        n_threads : int, default 1
            Threads that work on blocks of rows; the result has the same bits for any number.

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
            If the new rows speak against the settings. With learn, if what is known of the rows before holds settings
            that the new ones would leave by far. Without, if rows are much farther from what was predicted for them
            than the settings allow: Gaussian noise and alpha = 0 are judged by 50 rows or more at a time, however they
            come, and the mean of their squared distances, which the settings say is 1, is then above 2. Batches of
            other noise are, where they would be worth more if nothing at all were known of f; single rows, and
            likelihoods of your own, are not judged. The rows are taken in all the same.

        Notes
        -----
        N rows cost N M^2 operations, a single one M^2. New inducing points, and other settings, cost M^3.
        """
        plain = learn is False and offset is None and noise_variance is None and sample_weight is None
        if plain and type(n_threads) is int and n_threads > 0 and self._singly().take(self, X, y):
            if self._information.n - self._watch.n >= ENOUGH:
                self._judge()
            return self
        return self._take_in(X, y, offset, noise_variance, sample_weight, learn=learn, n_threads=n_threads)

    def _singly(self):
        """What takes in single rows at this basis, in these settings."""
        single = self._single
        if single is None or single.basis is not self._basis or single.model is not self.model:
            single = self._single = Single(self.model, self._basis)
        return single

    def _judge(self):
        """Compare single rows with what was announced for them."""
        model = self.model
        if not (is_exact(model.likelihood) and model.alpha == 0.0):
            self._watch = Watch.of(self._information)
            return
        surprise, self._watch = self._watch.judged(self._information)
        warn_of(surprise)

    def _took_one(self, known, gained, waiting):
        """Note what one row that was taken in by rank-1 updates changed.

        `known` are n_samples, log_bound and n_updates before.
        """
        self.n_samples, self._log_bound, self.n_updates = known[0] + 1, known[1] + gained, known[2] + 1
        self.last_increment, self._waiting = gained, waiting
        self.n_iter, self.status, self.last_information_lost, self.trace = 1, CONVERGED, 0.0, EMPTY

    def _take_in(self, X, y, offset, noise_variance, sample_weight, *, learn, n_threads, callback=None):
        learn, scales = what_to_learn(self.model, learn, noise_variance is not None)
        n_threads = arrays.integer(n_threads, "n_threads", low=1)
        columns = names_of(X) if self.columns is None else self.columns
        X = in_order(X, self.columns)
        rows = checked_rows(self.model, self.n_features, X, y, offset, noise_variance, sample_weight)
        if rows is None:
            return self
        with np.errstate(over="ignore", invalid="ignore"):
            taken = rows.n == 1 and not learn and self._take_in_one(rows)
        if taken:
            self.columns, self.has_offset = columns, self.has_offset or bool(np.any(rows.offset))
            self._history = self._history.with_rows(rows)
            if self._information.n - self._watch.n >= ENOUGH:
                self._judge()
            return self
        with Threads(n_threads) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore"):
            update = self._update(rows, threads)
            update.callback = callback
            update.run(learn, scales)
            parts = self._parts(update, rows.n) | {"columns": columns}
        self._become(parts)
        warn_of(update.surprise)
        if self.status not in (CONVERGED, NOT_LEARNT):  # the search has warned
            options = self._options
            change = np.append(np.inf, self.trace["change"])[-1]
            warn_unconverged(self.status, change, options.tol, options.max_iter)
        return self

    def _take_in_one(self, rows):
        """Take in one row by rank-1 updates in place, M^2 operations; False if it takes more than that."""
        model, basis = self.model, self._basis
        if not basis.n or not isinstance(rows.X, np.ndarray):
            return False
        waiting = self._waiting
        W, residual = basis.features(rows.X, INLINE)
        if model.inducing is None:
            prior, rate = residual[0] + W[0] @ W[0], loss_rates(model, rows.X, rows, slice(None))
            loss = avoidable(basis, prior, rate, residual)
            waiting = waiting.unless_needed(rows.X, rate, loss, model.tolerance, basis.n, model.n_inducing)
            if waiting is None:
                return False
        base = rows.base(model, rows.X, slice(None))
        if not is_exact(model.likelihood):
            return self._singly().match(self, W, residual, rows, base, waiting)
        noise = rows.noise_variance(model.likelihood)
        numbers = (float(np.ravel(a)[0]) for a in (residual, rows.y - base, noise, rows.weight()))
        return self._singly().add(self, W, *numbers, waiting)

    def _become(self, parts):
        """Take over parts of the state, all of them: once begun, Ctrl-C waits until it is done."""
        try:
            for name, value in parts.items():
                setattr(self, name, value)
        except BaseException:
            for name, value in parts.items():
                setattr(self, name, value)
            raise

    def _parts(self, update, n):
        """The parts of the state after an update, or what looks like one; finite or refused."""
        basis, information = update.basis, update.information
        increment = information.log_bound - self._information.log_bound
        within_range(np.append(information.c, increment), "the moments and the bound")
        ids = np.full(basis.n, -1)
        new, old = same_rows(basis.Z, self._basis.Z)
        ids[new] = self.inducing_ids[old]
        fresh = ids < 0
        ids[fresh] = self._next_id + np.arange(np.sum(fresh))
        number = self.n_updates + (update.rows is not None)
        change = 0.0 if update.status == NOT_LEARNT else float(np.append(np.inf, update.trace["change"])[-1])
        return {
            "model": update.model,
            "_basis": basis,
            "_information": information,
            "_waiting": update.waiting,
            "_uniform": update.uniform,
            "_history": update.history.with_end(number, self.n_samples + n, update.status, change),
            "_watch": update.watch,
            "n_updates": number,
            "has_offset": self.has_offset or bool(update.rows is not None and np.any(update.rows.offset)),
            "inducing_ids": arrays.read_only(ids),
            "_next_id": self._next_id + int(np.sum(fresh)),
            "n_samples": self.n_samples + n,
            "_log_bound": self._log_bound + increment,
            "last_increment": increment,
            "information_lost": self.information_lost + update.lost,
            "last_information_lost": update.lost,
            "status": update.status,
            "n_iter": update.n_iter,
            "trace": update.trace,
        }

    def _update(self, rows=None, threads=None):
        """The update of the state as it is."""
        known = self.model, self._basis, self._information, self._waiting, self._uniform
        return Update(*known, self._history, self._watch, self._options, rows, threads)

    def copy(self):
        """A state of its own, for the same rows.

        Returns
        -------
        StreamingGPState
            What happens to one does not change the other.
        """
        out = type(self)()
        for name in self.__slots__:
            setattr(out, name, getattr(self, name))
        out._information, out._single = self._information.copy(), None
        return out

    __copy__ = copy  # a shallow one would change with this one

    def merge(self, other):
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

        Notes
        -----
        With equal inducing points the result is that of one state for all rows, exactly; so it is with all inducing
        points of both. If those are more than n_inducing, the ones that cost least are given up, and what is lost is in
        last_information_lost. Inducing points that were given stay as they are.
        """
        named = self._check_like(other)
        model, update = self.model, self._update()
        Z = other._basis.Z
        new = np.setdiff1d(np.arange(len(Z)), same_rows(Z, self._basis.Z)[0])
        with Threads(1) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore"):
            basis = self._basis if model.inducing is not None else self._basis.extended(Z[new], threads)
            more, lost = other._information, 0.0
            if not np.array_equal(basis.Z, Z):
                more, lost = moved(more, other._basis, basis, model.alpha, threads)
            information = self._information.extended(basis.n).plus(more).factorised()
            basis, information, given_up = within_budget(basis, information, model.n_inducing, model.alpha, threads)
            update.basis, update.information, update.lost = basis, information, lost + given_up
            update.uniform = self._uniform and other._uniform
            update.watch = Watch.of(information)
            parts = self._parts(update, other.n_samples)
            parts["n_updates"] = number = self.n_updates + 1
            parts["_history"] = self._history.plus(other._history, number, parts["n_samples"])
            parts["has_offset"] = self.has_offset or other.has_offset
        self._become(parts | named)
        return self

    def _check_like(self, other):
        """Raise unless `other` is a state of the same settings; return the names of columns and classes of both."""
        if not isinstance(other, StreamingGPState):
            raise TypeError(f"other must be a StreamingGPState, got {type(other).__name__}")
        if other.n_features != self.n_features:
            raise ValueError(f"other must have {self.n_features} columns, got {other.n_features}")
        for name in ("covariance", "likelihood", "mean", "jitter", "alpha"):
            mine, theirs = getattr(self.model, name), getattr(other.model, name)
            if not np.array_equal(mine, theirs) if name == "mean" else mine != theirs:
                raise ValueError(f"other must have the same {name}: {theirs!r} is not {mine!r}")
        return {name: check_alike(getattr(self, name), getattr(other, name), name) for name in ("columns", "classes")}

    def forget(self, factor):
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
        factor = arrays.number(factor, "factor", low=0, high=1, closed_low=True, closed_high=True)
        update = self._update()
        with single_blas():
            update.information, update.waiting = self._information.to_the(factor), self._waiting.times(factor)
        update.uniform = self._uniform or factor == 0.0
        update.history = self._history.times(factor)
        update.watch = self._watch.carried(self._information, update.information)
        self._become(self._parts(update, 0))
        return self

    def learn(self, *, noise=True, amplitude=True):
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
        noise, amplitude = arrays.flag(noise, "noise"), arrays.flag(amplitude, "amplitude")
        model = self.model
        if not is_exact(model.likelihood) or model.alpha != 0.0:
            raise ValueError("learn needs the likelihood Gaussian and alpha = 0; others have update(X, y, learn=True)")
        if noise and not self._uniform:
            raise ValueError("noise=True needs rows of one noise variance: some had their own; give noise=False")
        if self._information.n == 0.0:
            return self
        update = self._update()
        with Threads(1) as threads, single_blas():
            log_s, log_t, _ = relearn(self._information, model.covariance, noise, amplitude)
            update.information = rescaled(self._information, log_s, log_t)
            covariance = multiplied(model.covariance, log_s)
            likelihood = replace(
                model.likelihood, noise_variance=model.likelihood.noise_variance * float(np.exp(log_t))
            )
            update.model = replace(model, covariance=covariance, likelihood=likelihood)
            update.waiting = Waiting.none(self.n_features)
            update.watch = Watch.of(update.information)
            update.basis = Basis.of(covariance, self._basis.Z, model.jitter, threads)
        self._become(self._parts(update, 0))
        return self

    @property
    def converged(self):
        """Whether all updates met their stopping rules; `worst_update` says which of the others matters most."""
        return self._history.worst is None

    @property
    def worst_update(self):
        """The update that did not converge with the largest last change: its sites stay inside; None without any.

        It has the fields update, n_samples (rows by then), status and change. All but `forget(0)` leaves it.
        """
        return self._history.worst

    @property
    def information_lost_bound(self):
        """Nats lost at most: a bound of what changed settings may have cost, on top of what is counted.

        As long as settings did not change under rows taken in before, and where they did so in ways that are exact
        (`learn`, and updates that learn nothing but the noise), it is information_lost. Then, with Gaussian noise, no
        fit of the same rows at the settings of now has a log bound that is larger by more than this: it is what is
        missing to a function that meets every observation. As no function meets noise, some half a nat a row of it is
        not lost in truth. Of other noise nothing can be said: it is infinite.
        """
        history, likelihood = self._history, self.model.likelihood
        if not history.changed:
            return self.information_lost
        if not is_exact(likelihood) or np.isnan(history.own_log_noise):
            return np.inf
        missing = history.ceiling(self._information, likelihood.noise_variance) - self._log_bound
        return max(self.information_lost, missing)

    def __repr__(self):
        done = "converged" if self.status == CONVERGED else f"NOT CONVERGED: {self.status}"
        model = self.model
        method = ("VFE" if model.alpha == 0 else f"power {model.alpha:g}") if is_exact(model.likelihood) else "EP"
        information, rows = self._information, ""
        if is_exact(model.likelihood) and information.n > 0:
            rows = (
                f" by changes, {0.5 * information.gap / information.n:.2g} a row in all (tolerance {model.tolerance:g})"
            )
        lost = f"{self.information_lost:.3g} nats{rows}"
        if self._history.changed:
            lost += f"; with changed settings {self.information_lost_bound:.3g} at most"
        worst = [] if self.converged else [("worst update", f"NOT CONVERGED: {self.worst_update}")]
        return table(
            f"StreamingGPState: {type(model.likelihood).__name__}, {self.n_samples} rows, "
            f"{self.n_inducing} inducing points",
            [
                ("log_bound", f"{self.log_bound:.6f} (last increment {self.last_increment:.6f})"),
                ("covariance", short(model.covariance)),
                ("likelihood", short(model.likelihood)),
                ("mean", short(np.ndarray.tolist(np.asarray(model.mean)))),
                ("lost", lost),
                ("last update", f"{method}, {done}"),
                *worst,
            ],
        )

    # ------------------------------------------------------------------------------------------ files

    def to_arrays(self):
        """Return (arrays, settings) for `save`."""
        likelihood, model, information = likelihood_settings(self.model.likelihood), self.model, self._information
        stored = {"prior_mean": np.asarray(model.mean), "Z": self._basis.Z, "nugget": self._basis.nugget}
        stored |= {"triangle": self._basis.factor, "inducing_ids": self.inducing_ids}
        stored |= {name: getattr(information, name) for name in INFORMATION}
        stored |= {"waiting_X": self._waiting.X, "waiting_weight": self._waiting.weight}
        settings = {name: getattr(information, name) for name in ("constant", "n", "squares", "gap")}
        settings = {
            "information": settings,
            "n_features": self.n_features,
            "options": self._options.record("schedule", "damping", "max_iter", "tol"),
        }
        stored |= {f"trace_{name}": values for name, values in self.trace.items()}
        settings["history"] = self._history.to_settings()
        settings["parts"] = {name: getattr(self, name) for name in PARTS if name not in NOT_PLAIN}
        settings["waiting"] = {name: getattr(self._waiting, name) for name in ("patience", "debt", "count")}
        settings |= {name: to_list(getattr(self, name)) for name in ("columns", "classes")}
        settings["covariance"] = model.covariance.to_settings()
        settings["likelihood"] = likelihood
        settings["model"] = {name: getattr(model, name) for name in ("n_inducing", "tolerance", "jitter", "alpha")}
        settings["given"] = model.inducing is not None
        return stored, settings

    def _unknown_history(self):
        """That of a state from a file that says nothing about it: settings may have changed."""
        own_log_noise = 0.0 if self._uniform else np.nan
        change = float(np.append(0.0, self.trace["change"])[-1])
        return History(changed=self.n_samples > 0, own_log_noise=own_log_noise).with_end(
            self.n_updates, self.n_samples, self.status, change
        )
