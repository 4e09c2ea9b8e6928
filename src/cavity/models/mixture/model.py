"""Mixtures of Gaussians with full, tied, diagonal or spherical covariances, by mean field.

References
----------
.. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.
.. [BJ] David Blei and Michael Jordan, "Variational inference for Dirichlet process mixtures", Bayesian Analysis 1,
   2006.
.. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of Machine
   Learning Research 14, 2013.
.. [HS] Michael Hughes and Erik Sudderth, "Memoized online variational inference for Dirichlet process mixture models",
   Advances in Neural Information Processing Systems 26, 2013.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.frames import in_order, names_of
from cavity.base.loop import warn_unconverged
from cavity.base.results import VariationalPosterior
from cavity.blocks.executors import Threads
from cavity.blocks.minibatches import OneShot, minibatches
from cavity.mean_field import engine
from cavity.models.mixture import data as mixture_data
from cavity.models.mixture import memoised as mixture_memoised
from cavity.models.mixture import moves as mixture_moves
from cavity.models.mixture import prior
from cavity.models.mixture import start as mixture_start
from cavity.models.mixture.factors import is_full
from cavity.models.mixture.posterior import GaussianMixturePosterior
from cavity.models.mixture.sweep import Sweeps, block_rows

COVARIANCES = ("full", "tied", "diag", "spherical")
WEIGHTS = ("dirichlet", "stick_breaking")
SCHEDULES = ("full", "memoised")
INITS = ("auto", "kmeans", "split", "principal")
SMALLEST, LARGEST = 1e-300, 1e300  # of prior settings that are positive: their inverses are numbers, too
PRIOR_SHAPES = {  # of covariance_prior, for one component and for each of K
    "full": ("(D, D)", "(K, D, D)"),
    "tied": ("(D, D)",),
    "diag": ("(D,)", "(K, D)"),
    "spherical": ("()", "(K,)"),
}
LEAST_ARRAYS = 16  # of K x D numbers, that a fit holds at least


@dataclass(frozen=True, slots=True)
class GaussianMixture:
    """A mixture of K Gaussians with unknown means, precisions and weights [B]_.

    The model is, for "full" covariances::

        pi ~ Dirichlet(weight_concentration_prior)            or broken from a stick
        L_k ~ Wishart(degrees_of_freedom_prior, covariance_prior)
        mu_k | L_k ~ N(mean_prior, (mean_precision_prior L_k)^-1)
        x_n ~ sum_k pi_k N(mu_k, L_k^-1)

    with one L for all components if they are "tied"; "diag" has a precision for each column,
    Gamma(degrees_of_freedom_prior/2, covariance_prior_d/2), and "spherical" one for all columns of a component,
    Gamma(degrees_of_freedom_prior/2, covariance_prior/2). The approximation is q(pi) q(mu, L) prod_n q(z_n).

    Parameters
    ----------
    n_components : int
        K, the number of components; with a small weight_concentration_prior some stay empty.
    covariance : {"full", "tied", "diag", "spherical"}, default "full"
        What the precision matrices may be.
    weights : {"dirichlet", "stick_breaking"}, default "dirichlet"
        The prior of the weights: a Dirichlet distribution, or a Dirichlet process cut off at K [BJ]_:
        pi_k = v_k prod_{j<k} (1 - v_j), v_k ~ Beta(1, weight_concentration_prior), v_K = 1.
    weight_concentration_prior : float or array_like, optional
        Positive; 1/K if None. (K,) for a Dirichlet that is not symmetric, (K - 1, 2) for parameters of each stick.
    mean_prior : array_like (D,) or (K, D), optional
        Prior mean of the component means; the mean of the data if None.
    mean_precision_prior : float or array_like (K,), default 1.0
        How many observations the prior means are worth.
    degrees_of_freedom_prior : float or array_like (K,), optional
        Above D - 1 for "full" and "tied", positive for the others; D if None.
    covariance_prior : array_like, optional
        The inverse scale of the precisions' prior, in squared units of the data, (D, D) for "full" and "tied", (D,)
        for "diag", a number for "spherical", or one for each component. Precisions are expected to be
        degrees_of_freedom_prior times its inverse. If None, the covariance of the data, their variances, or the mean
        of these, over N - 1.

    Raises
    ------
    ValueError, TypeError
        For a setting outside its domain, naming it.

    Notes
    -----
    The prior settings have the names of scikit-learn's `BayesianGaussianMixture`, whose "full" model this is, too. Its
    "tied", "diag" and "spherical" are other approximations; see `cavity.sklearn.BayesianGaussianMixture`.

    References
    ----------
    .. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.
    .. [BJ] David Blei and Michael Jordan, "Variational inference for Dirichlet process mixtures", Bayesian Analysis 1,
       2006.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> columns, about = cavity.data.table("faithful")
    >>> X = np.column_stack([columns["eruptions"], columns["waiting"]])
    >>> posterior = cavity.GaussianMixture(2).fit(X)
    >>> posterior.mean.round(2).tolist(), posterior.weights.round(3).tolist(), posterior.converged
    ([[2.05, 54.69], [4.29, 79.95]], [0.358, 0.642], True)
    """

    n_components: int
    covariance: str = "full"
    weights: str = "dirichlet"
    weight_concentration_prior: float | tuple | None = None
    mean_prior: tuple | None = None
    mean_precision_prior: float | tuple = 1.0
    degrees_of_freedom_prior: float | tuple | None = None
    covariance_prior: float | tuple | None = None

    def __post_init__(self):
        def keep(name, value):
            object.__setattr__(self, name, value)

        keep("n_components", arrays.integer(self.n_components, "n_components", low=1))
        keep("covariance", arrays.choice(self.covariance, "covariance", COVARIANCES))
        keep("weights", arrays.choice(self.weights, "weights", WEIGHTS))
        k = self.n_components
        sticks = self.weights == "stick_breaking"
        wanted = ("a number", "(K - 1, 2)" if sticks else "(K,)")
        self._keep("weight_concentration_prior", [(), (k - 1, 2) if sticks else (k,)], wanted)
        self._keep("mean_prior", [(None,), (k, None)], ("(D,)", "(K, D)"), positive=False)
        self._keep("mean_precision_prior", [(), (k,)], ("a number", "(K,)"))
        shapes = [()] if self.covariance == "tied" else [(), (k,)]
        self._keep("degrees_of_freedom_prior", shapes, ("a number", "(K,)")[: len(shapes)])
        wanted = PRIOR_SHAPES[self.covariance]
        sizes = {"D": None, "K": k}
        shapes = [tuple(sizes[letter] for letter in shape if letter in sizes) for shape in wanted]
        self._keep("covariance_prior", shapes, wanted, positive=not is_full(self.covariance))

    def _keep(self, name, shapes, wanted, positive=True):
        """Keep a prior setting as a number or nested tuples, which compare and hash; None in a shape fits all."""
        value = getattr(self, name)
        if value is None:
            return
        array = arrays.finite_array(value, name)

        def fits(shape):
            return array.ndim == len(shape) and all(b in (None, a) for a, b in zip(array.shape, shape, strict=True))

        if not any(fits(shape) for shape in shapes) or (0 in array.shape and array.shape != (0, 2)):
            raise ValueError(
                f"{name} must have shape {' or '.join(wanted)} with K = {self.n_components}, got shape {array.shape}"
            )
        if positive and np.any(array <= 0):
            raise ValueError(f"{name} must be positive, got {array[array <= 0].flat[0]}")
        outside = array[(array < SMALLEST) | (array > LARGEST)]
        if positive and outside.size:
            raise ValueError(f"{name} must be within {SMALLEST:g} and {LARGEST:g}, got {outside.flat[0]}")
        object.__setattr__(self, name, float(array) if array.ndim == 0 else _nested(array.tolist()))

    def fit(
        self,
        X,
        *,
        sample_weight=None,
        initial_means=None,
        init="auto",
        n_init=1,
        rng=None,
        accelerate=True,
        schedule="full",
        moves=False,
        max_iter=1000,
        tol=1e-10,
        n_threads=1,
        callback=None,
    ):
        """Approximate the posterior by coordinate ascent.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, or list of paths
            The data: numbers in memory (any real dtype, stride or order; a numpy.memmap), a .npy file, or several that
            are read as one. Files are read block by block in every pass: memory does not grow with N. With "diag" and
            "spherical" covariances nan stands for a value that was not seen. The posterior keeps the names of the
            columns of a data frame.
        sample_weight : array_like (N,) or path, optional
            How often each row counts; not negative, not all zero. A weight of 2 is the same as the row twice.
        initial_means : array_like (K, D), optional
            Where to start: rows begin with the component whose mean is nearest, in units of the columns' standard
            deviations (as they are for "spherical").
        init : {"auto", "kmeans", "split", "principal"}, default "auto"
            How to start otherwise, from up to 16384 rows: "kmeans" from centres far apart, "split" along principal
            axes, "principal" by quantiles along the first one; "auto" takes the one with the largest ELBO after 20
            passes over these rows.
        n_init : int, default 1
            Number of starts, of which the one with the largest ELBO counts; those after the first are drawn by `rng`.
        rng : seed or numpy.random.Generator, optional
            Needed if n_init > 1.
        accelerate : bool or {"anderson", "squarem"}, default True
            How to extrapolate from the last sweeps (`cavity.mean_field.fit`).
        schedule : {"full", "memoised"}, default "full"
            "memoised" renews the components and weights after every group of blocks instead of every pass [HS]_, and is
            not accelerated. It needs fewer passes than plain sweeps do, and keeps up to 32 MB of statistics.
        moves : bool, default False
            Whether to try, from the optimum, to merge similar components, to empty small ones and, for "stick_breaking"
            weights, to put them in order; what raises the ELBO is kept, until nothing does. ``trace["moves"]`` holds
            the passes after which a move had been accepted.
        max_iter : int, default 1000
            Most passes over the data (of each start), moves included.
        tol : float, default 1e-10
            Stopping rule: the predicted remaining gain of the ELBO is at most tol nats per row.
        n_threads : int, default 1
            Threads; the result has the same bits for any number.
        callback : callable, optional
            Called as callback(n_iter, elbo) after each pass; a true result stops the fit.

        Returns
        -------
        GaussianMixturePosterior
            The frozen posterior; its ELBO has all constants and compares across K, covariances and priors.

        Raises
        ------
        ValueError, TypeError
            For bad data (row and file are named), settings that do not fit them, or options, before the first sweep.
        NotPositiveDefiniteError
            If the covariance prior is not positive definite, as that of constant or dependent columns by default.
        MemoryError
            If K is too large for this machine.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; the posterior is returned all the same, with ``converged=False``.

        Notes
        -----
        One pass does, for all rows, q(z_n) [B]_ (10.46) and the sums that the other factors (10.58) to (10.63) and the
        ELBO need; no array of N x K is formed. The ELBO is that of the q(z) which is best for the other factors::

            sum_n log sum_k exp(E[log pi_k N(x_n; mu_k, L_k^-1)]) - KL(q(pi) || p(pi)) - KL(q(mu, L) || p(mu, L))

        The optimum is a local one, and its components can be permuted. If the sample that decides where to start is
        all of the data, the passes from the start that was chosen count in `n_iter`, `trace` and max_iter; callback
        is called for those after them.

        References
        ----------
        .. [HS] Michael Hughes and Erik Sudderth, "Memoized online variational inference for Dirichlet process mixture
           models", Advances in Neural Information Processing Systems 26, 2013.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(3000, 2)) + rng.choice([-4.0, 1.0, 5.0], size=(3000, 1))
        >>> posterior = cavity.GaussianMixture(3, covariance="spherical").fit(X, n_threads=2)
        >>> sorted(posterior.mean.round(1).tolist())
        [[-4.0, -4.0], [1.0, 1.0], [5.0, 5.0]]
        """
        options = engine.check_options(accelerate, max_iter, tol)
        n_init, generator = engine.check_starts(n_init, rng)
        init = arrays.choice(init, "init", INITS)
        moves = arrays.flag(moves, "moves")
        memoised = arrays.choice(schedule, "schedule", SCHEDULES) == "memoised"
        with Threads(arrays.integer(n_threads, "n_threads", low=1)) as threads:
            data = self._open(X, sample_weight, threads, many_blocks=memoised)
            given = self._given_means(in_order(initial_means, names_of(X), "initial_means"), data)
            model, prior = self._prior(data, threads)
            sweeps = Sweeps(prior, data.frame, data.n_samples, data, threads)
            best = None
            shared = self.covariance == "spherical"
            starts = mixture_start.starts(data, prior, given, init, n_init, generator, shared, options["max_iter"])
            for start, trial in starts:
                left, report = options, callback
                if trial is not None:
                    left = options | {"max_iter": options["max_iter"] - trial.n_iter}
                    report = engine.counting(callback, trial)
                if memoised:
                    done = mixture_memoised.fit(sweeps, start, left, report)
                else:
                    done = engine.fit(sweeps, start, **left, callback=report)
                done = done if trial is None else engine.joined(trial, done)
                if moves:
                    done = mixture_moves.improved(sweeps, done, options, callback)
                best = done if best is None or done.elbo > best.elbo else best
        warn_unconverged(best.status, best.predicted_gap / data.n_samples, tol, max_iter)
        outcome = VariationalPosterior.outcome(best)
        return model._posterior(best.state, best.image.counts, data, prior, outcome, names_of(X))

    def fit_stochastic(
        self,
        X,
        *,
        batch_size=4096,
        n_epochs=1,
        n_samples=None,
        delay=1.0,
        forgetting=0.7,
        initial_means=None,
        init="auto",
        n_threads=1,
        callback=None,
    ):
        """Approximate the posterior by one natural-gradient step per minibatch [H]_, in one or a few passes.

        Step t moves the natural parameters by the share (t + delay)^-forgetting towards what all data would give if
        they were like the minibatch.

        Parameters
        ----------
        X : array_like (N, D), path, list of paths, or iterator of arrays (n, D)
            As for `fit`; a one-shot iterator, each array a minibatch, is taken too if `n_samples` is given.
            Minibatches are runs of rows: shuffle data that are sorted.
        batch_size : int, default 4096
            Rows per minibatch (not for an iterator).
        n_epochs : int, default 1
            How often every row is seen.
        n_samples : int, optional
            N, for an iterator: the posterior is as sure as so many rows make it.
        delay : float, default 1.0
            At least 0; larger values make the first steps smaller.
        forgetting : float in (0.5, 1], default 0.7
            The exponent of the step sizes.
        initial_means : array_like (K, D), optional
            As for `fit`.
        init : {"auto", "kmeans", "split", "principal"}, default "auto"
            As for `fit`; of an iterator from its first minibatch, as are the priors that depend on the data.
        n_threads : int, default 1
            Threads for the check of the data and the final ELBO.
        callback : callable, optional
            Called as callback(step number, step size) after each step; a true result stops the fit.

        Returns
        -------
        GaussianMixturePosterior
            The factors after the last step. There is no stopping rule: `converged` is False and `status` says "passes
            done". `elbo` is that of all data, from one more pass; None for an iterator, whose data are gone.

        Raises
        ------
        ValueError, TypeError
            For bad data or options; of an iterator, when the bad minibatch comes.

        Warns
        -----
        NumericalWarning
            If an iterator holds more than `n_samples` rows.

        References
        ----------
        .. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of
           Machine Learning Research 14, 2013.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50_000, 2)) + rng.choice([-4.0, 1.0, 5.0], size=(50_000, 1))
        >>> posterior = cavity.GaussianMixture(3).fit_stochastic(X, batch_size=500)
        >>> sorted(posterior.mean.round(1).tolist()), posterior.n_iter
        ([[-4.0, -4.0], [1.0, 1.0], [5.0, 5.0]], 1)
        """
        schedule = engine.check_schedule(delay, forgetting)
        size = arrays.integer(batch_size, "batch_size", low=1)
        epochs = arrays.integer(n_epochs, "n_epochs", low=1)
        init = arrays.choice(init, "init", INITS)
        with Threads(arrays.integer(n_threads, "n_threads", low=1)) as threads:
            stream = None
            if hasattr(X, "__next__"):
                gaps = not is_full(self.covariance)
                stream = OneShot(
                    X, "X", n_samples, epochs, lambda rows, name: mixture_data.open_minibatch(rows, name, gaps)
                )
            elif n_samples is not None:
                raise ValueError(f"n_samples is for an iterator and must be left out for rows, got {n_samples!r}")
            data = self._open(X if stream is None else stream.first, None, threads)
            columns = names_of(X) if stream is None else stream.columns
            given = self._given_means(in_order(initial_means, columns, "initial_means"), data)
            model, prior = self._prior(data, threads)
            starts = mixture_start.starts(data, prior, given, init, 1, None, self.covariance == "spherical")
            state, _ = next(starts)
            n = data.source.n_rows if stream is None else stream.n_samples
            sweeps = Sweeps(prior, data.frame, n, data, threads)
            batches = stream
            if stream is None:
                batches = (batch for _ in range(epochs) for batch in minibatches(data.source, size))
            state, steps = engine.fit_stochastic(sweeps, state, batches, **schedule, callback=callback)
            if stream is not None:
                stream.warn_surplus()
                done = engine.outcome_of_steps(None, steps, 1)
                data = replace(data, n_samples=float(n))
                return model._posterior(state, state.counts, data, prior, done, columns)
            image, elbo = sweeps.sweep(state)
        done = engine.outcome_of_steps(elbo, steps, engine.passes(len(steps), n, size))
        return model._posterior(state, image.counts, data, prior, done, columns)

    def settle(self, X, *, sample_weight=None, n_threads=1):
        """Return the model with the priors that depend on the data filled in, to use the same for several fits.

        Parameters
        ----------
        X : array_like (N, D), path, or list of paths
            The data.
        sample_weight : array_like (N,) or path, optional
            Their weights.
        n_threads : int, default 1
            Threads.

        Returns
        -------
        GaussianMixture
            With mean_prior, degrees_of_freedom_prior and covariance_prior set; weight_concentration_prior, which
            depends on K alone, is left as it is.

        Examples
        --------
        >>> import cavity
        >>> model = cavity.GaussianMixture(2).settle([[0.0, 1.0], [2.0, 1.0], [1.0, 4.0]])
        >>> model.mean_prior, model.degrees_of_freedom_prior, model.covariance_prior
        ((1.0, 2.0), 2.0, ((1.0, 0.0), (0.0, 3.0)))
        """
        with Threads(arrays.integer(n_threads, "n_threads", low=1)) as threads:
            return prior.settled(self, self._open(X, sample_weight, threads), threads)

    def _open(self, X, sample_weight, threads, many_blocks=False, **known):
        """Return the data, checked."""
        full = is_full(self.covariance)

        def rows(n_rows, dim):
            size = block_rows(self.n_components, dim, full)
            return mixture_memoised.rows_of_blocks(size, n_rows) if many_blocks else size

        options = {"missing": not full, "shared": self.covariance == "spherical", **known}
        return mixture_data.open_data(X, sample_weight, threads, block_rows=rows, **options)

    def _prior(self, data, threads):
        """Return the model with all priors filled in, and these as a state in the frame of the data."""
        k, shape = self.n_components, (self.n_components, data.source.n_features)
        what = f"n_components={k}: {LEAST_ARRAYS} arrays of the components, each"
        arrays.matrices(LEAST_ARRAYS, shape, what, argument="n_components")
        model = prior.settled(self, data, threads)
        return model, prior.state_of(model, data)

    def _given_means(self, means, data):
        """Return the initial means in coordinates, or None."""
        if means is None:
            return None
        array = arrays.finite_array(means, "initial_means", ndim=(2,))
        shape = (self.n_components, data.source.n_features)
        if array.shape != shape:
            raise ValueError(f"initial_means must have shape (K, D) = {shape}, got {array.shape}")
        return prior.placed(array, "initial_means", data.frame)

    def _continued(
        self,
        posterior,
        X,
        *,
        sample_weight=None,
        accelerate=True,
        max_iter=1000,
        tol=1e-10,
        n_threads=1,
        callback=None,
    ):
        """Fit more data with a posterior of this model as the prior, see `GaussianMixturePosterior.update`."""
        options = engine.check_options(accelerate, max_iter, tol)
        known = {"frame": posterior._frame, "n_features": posterior.mean.shape[1]}
        columns = names_of(X) if posterior.columns is None else posterior.columns
        X = in_order(X, posterior.columns)
        with Threads(arrays.integer(n_threads, "n_threads", low=1)) as threads:
            data = self._open(X, sample_weight, threads, **known)
            prior = posterior._state
            if data.missing:
                prior = replace(prior, factors=prior.factors.by_columns())
            sweeps = Sweeps(prior, data.frame, data.n_samples, data, threads)
            done = engine.fit(sweeps, prior, **options, callback=callback)
        warn_unconverged(done.status, done.predicted_gap / data.n_samples, tol, max_iter)
        state = replace(done.state, counts=prior.counts + done.image.counts)
        outcome = VariationalPosterior.outcome(done)
        total = posterior.n_samples + data.n_samples
        return GaussianMixturePosterior._of(self, state, posterior._prior, data.frame, total, outcome, columns)

    def _posterior(self, state, counts, data, prior, outcome, columns=None):
        state = replace(state, counts=counts)
        return GaussianMixturePosterior._of(self, state, prior, data.frame, data.n_samples, outcome, columns)


def _nested(values):
    """Return nested lists as nested tuples."""
    return tuple(_nested(each) for each in values) if isinstance(values, list) else values
