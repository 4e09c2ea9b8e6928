"""Mixtures of Gaussians with full, tied, diagonal or spherical covariances, by mean field.

References
----------
.. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.
.. [BJ] David Blei and Michael Jordan, "Variational inference for Dirichlet process mixtures", Bayesian Analysis 1,
   2006.
.. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of Machine
   Learning Research 14, 2013.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Self

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, Data, FloatArray, FloatOrArray, Public, Seed, set_fields
from cavity.jobs.job import Event, Job
from cavity.mean_field import engine, options
from cavity.mean_field.options import LARGEST_TO_INVERT, LEAST_TO_INVERT, AscentOptions, StochasticOptions
from cavity.mean_field.stochastic import StochasticRows
from cavity.models.misfit_warnings import warn_of_few_rows
from cavity.models.mixture.component_moves import ascend_with_moves
from cavity.models.mixture.factors import is_full
from cavity.models.mixture.posterior import GaussianMixturePosterior, build_posterior
from cavity.models.mixture.prior import build_prior_state, fill_priors
from cavity.models.mixture.rows import open_minibatch, open_rows
from cavity.models.mixture.start import check_means, generate_states
from cavity.models.mixture.sweep import MixtureSweeps
from cavity.runs.executors import Threads, resolve_n_threads
from cavity.sources.dataset import Dataset

COVARIANCE_KINDS = ("full", "tied", "diag", "spherical")
WEIGHT_KINDS = ("dirichlet", "stick_breaking")
INIT_METHODS = ("auto", "kmeans", "split", "principal")
PRIOR_SHAPES = {  # of covariance_prior, for one component and for each of K
    "full": ("(D, D)", "(K, D, D)"),
    "tied": ("(D, D)",),
    "diag": ("(D,)", "(K, D)"),
    "spherical": ("()", "(K,)"),
}


@dataclass(frozen=True, slots=True)
class GaussianMixture(Public):
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
    weight_concentration_prior: FloatOrArray = None
    mean_prior: FloatOrArray = None
    mean_precision_prior: FloatOrArray = 1.0
    degrees_of_freedom_prior: FloatOrArray = None
    covariance_prior: FloatOrArray = None

    def __post_init__(self) -> None:
        set_fields(self, n_components=arrays.check_integer(self.n_components, "n_components", low=1))
        arrays.check_choice(self.covariance, "covariance", COVARIANCE_KINDS)
        arrays.check_choice(self.weights, "weights", WEIGHT_KINDS)
        shape = "(K - 1, 2)" if self.weights == "stick_breaking" else "(K,)"
        self._keep("weight_concentration_prior", "a number", shape)
        self._keep("mean_prior", "(D,)", "(K, D)", positive=False)
        self._keep("mean_precision_prior", "a number", "(K,)")
        self._keep("degrees_of_freedom_prior", "a number", *(["(K,)"] if self.covariance != "tied" else []))
        self._keep("covariance_prior", *PRIOR_SHAPES[self.covariance], positive=not is_full(self.covariance))

    def _keep(self, name, *shapes, positive=True):
        """Keep a prior setting of one of the shapes as a number or nested tuples, which compare and hash."""
        value, k = getattr(self, name), self.n_components
        if value is None:
            return
        array = arrays.check_finite_array(value, name)
        sizes = {"K - 1": k - 1, "K": k, "2": 2, "D": -1}  # D is not known yet, but is not 0
        for shape in shapes:
            axes = [sizes[axis] for axis in shape.strip("(,)").split(", ") if axis in sizes]
            if array.ndim == len(axes) and all(b == a or b < 0 < a for a, b in zip(array.shape, axes, strict=True)):
                break
        else:
            raise ValueError(f"{name} must have shape {' or '.join(shapes)} with K = {k}, got shape {array.shape}")
        if positive and (array <= 0).any():
            raise ValueError(f"{name} must be positive, got {array[array <= 0].flat[0]}")
        if positive and (outside := (array < LEAST_TO_INVERT) | (array > LARGEST_TO_INVERT)).any():
            limits = f"within {LEAST_TO_INVERT:g} and {LARGEST_TO_INVERT:g}"
            raise ValueError(f"{name} must be {limits}, got {array[outside].flat[0]}")
        set_fields(self, **{name: arrays.to_tuple(array)})

    def fit(
        self,
        X: Data,
        *,
        sample_weight: Data | None = None,
        initial_means: ArrayLike | None = None,
        init: Literal["auto", "kmeans", "split", "principal"] = "auto",
        n_init: int = 1,
        rng: Seed | None = None,
        accelerate: bool | Literal["anderson", "squarem"] = True,
        moves: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-10,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> GaussianMixturePosterior:
        """Approximate the posterior by coordinate ascent.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, or list of paths
            The data: numbers in memory (any real dtype, stride or order), or anything that `cavity.source` reads: files
            are read block by block in every pass, so memory does not grow with N. With "diag" and
            "spherical" covariances nan stands for a value that was not seen. The posterior keeps the names of the
            columns of a data frame.
        sample_weight : array_like (N,), name of a column of X, or path, optional
            A row of weight w counts as w copies; 0 leaves it out.
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
        moves : bool, default False
            Whether to try, from the optimum, to merge similar components, to empty small ones and, for "stick_breaking"
            weights, to put them in order; what raises the ELBO is kept, until nothing does. ``trace["moves"]`` holds
            the passes after which a move had been accepted.
        max_iter : int, default 1000
            Most passes over the data, those of rejected extrapolations included.
        tol : float, default 1e-10
            Stopping rule: the predicted remaining gain of the ELBO is at most tol nats per row.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.
        callback : callable, optional
            Called as callback(event) with a `cavity.Event` after each pass; a true result stops the fit and keeps what
            is known.
        progress : bool, default False
            Whether to show progress on stderr: a bar where tqdm is installed, else lines.
        checkpoint : str or path-like, optional
            File that keeps how far the fit is: killed, it goes on from there when it is called again with the same data
            and options, and ends in the same bits. The file stays when the fit is done.
        checkpoint_every : float, default 60.0
            Seconds from one writing of it to the next; 0 writes it after each pass or step.

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
        hears of those before as of trials.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(3000, 2)) + rng.choice([-4.0, 1.0, 5.0], size=(3000, 1))
        >>> posterior = cavity.GaussianMixture(3, covariance="spherical").fit(X, n_threads=2)
        >>> sorted(posterior.mean.round(1).tolist())
        [[-4.0, -4.0], [1.0, 1.0], [5.0, 5.0]]
        """
        job = Job.checked(callback, progress, checkpoint, checkpoint_every)
        ascent = {"accelerate": accelerate, "max_iter": max_iter, "tol": tol, "n_init": n_init, "rng": rng}
        run = AscentOptions(**ascent, n_threads=n_threads, job=job)
        init, moves = arrays.check_choice(init, "init", INIT_METHODS), arrays.check_flag(moves, "moves")
        dataset = Dataset.open(X, {"sample_weight": sample_weight}, remote=True, streamed=("sample_weight",))
        data = dataset.sources()
        means = check_means(initial_means, dataset.names, self.n_components, data["X"].n_features)
        with run.open(self, data, initial_means=means, init=init, moves=moves) as threads:
            rows = open_rows(*data.values(), threads, self.n_components, self.covariance)
            warn_of_few_rows(self.n_components, data["X"].n_rows)
            model = fill_priors(self, rows, threads)
            sweeps = MixtureSweeps(build_prior_state(model, rows), rows, threads)
            starts = generate_states(sweeps, means, init, run)
            done = engine.choose_best(partial(ascend_with_moves, sweeps, moves), starts, run)
        outcome = engine.report_outcome(done, rows.n_samples, run) | {"observation_digest": rows.digest}
        return build_posterior(model, sweeps, done, dataset.names, dataset.roles, **outcome)

    def fit_stochastic(
        self,
        X: Data | Iterator[FloatArray],
        *,
        batch_size: int = 4096,
        n_epochs: int = 1,
        n_samples: int | None = None,
        delay: float = 1.0,
        forgetting: float = 0.7,
        initial_means: ArrayLike | None = None,
        init: Literal["auto", "kmeans", "split", "principal"] = "auto",
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> GaussianMixturePosterior:
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
        n_threads : int, optional
            Threads for the check of the data and the final ELBO; the result has the same bits for any number. -1 is all
            cores; by default as many as the process may use and the work is worth, at most CAVITY_NUM_THREADS.
        callback : callable, optional
            Called as callback(event) with a `cavity.Event` after each step; a true result stops the fit and keeps what
            is known.
        progress : bool, default False
            Whether to show progress on stderr: a bar where tqdm is installed, else lines.
        checkpoint : str or path-like, optional
            File that keeps how far the fit is: killed, it goes on from there when it is called again with the same data
            and options, and ends in the same bits. The file stays when the fit is done.
        checkpoint_every : float, default 60.0
            Seconds from one writing of it to the next; 0 writes it after each pass or step.

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
        steps = {"batch_size": batch_size, "n_epochs": n_epochs, "delay": delay, "forgetting": forgetting}
        job = Job.checked(callback, progress, checkpoint, checkpoint_every)
        run = StochasticOptions(**steps, n_threads=n_threads, job=job)
        init = arrays.check_choice(init, "init", INIT_METHODS)
        check = partial(open_minibatch, missing=not is_full(self.covariance))
        batches = StochasticRows.open(X, "X", n_samples, run, check)
        source = batches.dataset.blocks()
        means = check_means(initial_means, batches.columns, self.n_components, source.n_features)
        with run.open(self, {"X": source}, n_samples=n_samples, initial_means=means, init=init) as threads:
            rows = open_rows(source, None, threads, self.n_components, self.covariance)
            model = fill_priors(self, rows, threads)
            sweeps = MixtureSweeps(build_prior_state(model, rows), rows, threads, n_samples)
            state, _ = next(generate_states(sweeps, means, init, replace(options.TRIAL_OPTIONS, job=run.job)))
            done = batches.fit(sweeps, state, source, run)
        outcome = done.outcome() | {"observation_digest": rows.digest if batches.stream is None else None}
        return build_posterior(model, sweeps, done, batches.columns, **outcome)

    def with_defaults(self, X: Data, *, sample_weight: Data | None = None, n_threads: int | None = None) -> Self:
        """Return the model with the priors that depend on the data filled in, to use the same for several fits.

        Parameters
        ----------
        X : array_like (N, D), path, or list of paths
            The rows.
        sample_weight : array_like (N,) or path, optional
            A row of weight w counts as w copies; 0 leaves it out.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.

        Returns
        -------
        GaussianMixture
            With mean_prior, degrees_of_freedom_prior and covariance_prior set; weight_concentration_prior, which
            depends on K alone, is left as it is.

        Examples
        --------
        >>> import cavity
        >>> model = cavity.GaussianMixture(2).with_defaults([[0.0, 1.0], [2.0, 1.0], [1.0, 4.0]])
        >>> model.mean_prior, model.degrees_of_freedom_prior, model.covariance_prior
        ((1.0, 2.0), 2.0, ((1.0, 0.0), (0.0, 3.0)))
        """
        dataset = Dataset.open(X, {"sample_weight": sample_weight}, remote=True, streamed=("sample_weight",))
        with Threads(resolve_n_threads(n_threads)) as threads:
            rows = open_rows(*dataset.sources().values(), threads, self.n_components, self.covariance)
            return fill_priors(self, rows, threads)
