"""A mixture of Gaussians of one common variance in one dimension, by mean field and variational EM.

References
----------
.. [B] David Blei, Alp Kucukelbir and Jon McAuliffe, "Variational inference: a review for statisticians", Journal of the
   American Statistical Association 112, 2017, section 3: the model and eqs. (26) and (34).
.. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of Machine
   Learning Research 14, 2013.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from cavity.base import arrays
from cavity.base.errors import suggest_dropping
from cavity.base.frames import name_of
from cavity.base.public_objects import ArrayLike, Data, FloatArray, FloatOrArray, Public, Seed, set_fields
from cavity.jobs.job import Event, Job
from cavity.mean_field import engine
from cavity.mean_field.options import LEAST_TO_INVERT, TRIAL_OPTIONS, AscentOptions, StochasticOptions, check_room
from cavity.mean_field.stochastic import StochasticRows
from cavity.models.misfit_warnings import warn_of_few_rows
from cavity.models.unit_mixture import start
from cavity.models.unit_mixture.posterior import UnitMixturePosterior, build_posterior
from cavity.models.unit_mixture.sweep import (
    EPSILON_64,
    LEARNABLE_SETTINGS,
    MIN_WEIGHT,
    DataExtent,
    UnitMixtureSweeps,
)
from cavity.sources.dataset import Dataset


@dataclass(frozen=True, slots=True)
class UnitMixture(Public):
    """A mixture of K Gaussians of equal variance whose means are unknown [B]_.

    The model is::

        theta_k ~ N(prior_mean, prior_variance)                k = 1 ... K
        z_n ~ Categorical(weights)                             n = 1 ... N
        y_n | z_n, theta ~ N(theta_{z_n}, noise_variance)

    and the approximation q(theta, z) = prod_k N(theta_k; mean_k, variance_k) prod_n q(z_n).

    Parameters
    ----------
    n_components : int
        K, the number of components.
    prior_variance : float or array_like (K,), default 100.0
        Variance of the component means, in squared units of the data.
    prior_mean : float or array_like (K,), default 0.0
        Prior mean of the component means.
    noise_variance : float, default 1.0
        Variance of the data around their component's mean, in squared units of the data; `learn` finds it.
    weights : array_like (K,), optional
        Probabilities of the components, positive; equal if None. They are divided by their sum.
    learn : tuple of {"prior_variance", "weights", "noise_variance"}, default ()
        Settings that variational EM estimates by maximising the ELBO, starting from the given values.

    Raises
    ------
    ValueError, TypeError
        For a setting outside its domain, naming it.
    MemoryError
        If K is too large for this machine.

    References
    ----------
    .. [B] David Blei, Alp Kucukelbir and Jon McAuliffe, "Variational inference: a review for statisticians", Journal of
       the American Statistical Association 112, 2017, section 3.

    Examples
    --------
    >>> import cavity
    >>> posterior = cavity.UnitMixture(2).fit([-3.2, -2.7, -3.1, 1.9, 2.4, 2.2, 1.6])
    >>> posterior.mean.round(3).tolist(), posterior.variance.round(3).tolist(), round(posterior.elbo, 4)
    ([-2.99, 2.02], [0.332, 0.249], -17.4541)
    """

    n_components: int
    prior_variance: FloatOrArray = 100.0
    prior_mean: FloatOrArray = 0.0
    noise_variance: float = 1.0
    weights: FloatOrArray = None
    learn: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        k = arrays.check_integer(self.n_components, "n_components", low=1)
        check_room(k, 1)
        for name in ("prior_mean", "prior_variance"):
            values = arrays.check_finite_array(getattr(self, name), name, ndim=(0, 1))
            if values.ndim == 1 and values.shape != (k,):
                raise ValueError(f"{name} must be a number or one for each of the {k} components, got {values.shape}")
            set_fields(self, **{name: arrays.to_tuple(values)})
        if np.any(np.asarray(self.prior_variance) <= LEAST_TO_INVERT):
            message = f"must be positive, above {LEAST_TO_INVERT:g}, got {self.prior_variance}"
            raise arrays.error_of("prior_variance", message)
        noise = arrays.check_number(self.noise_variance, "noise_variance", low=LEAST_TO_INVERT)
        weights = None if self.weights is None else _check_weights(self.weights, k)
        set_fields(self, n_components=k, noise_variance=noise, weights=weights, learn=_check_learn(self.learn))
        if "prior_variance" in self.learn and isinstance(self.prior_variance, tuple):
            raise ValueError("learn='prior_variance' estimates one variance for all components; give one to start from")

    @suggest_dropping
    def fit(
        self,
        y: Data,
        *,
        missing: Literal["raise", "drop"] = "raise",
        initial_means: ArrayLike | None = None,
        n_init: int = 1,
        rng: Seed | None = None,
        accelerate: bool | Literal["anderson", "squarem"] = True,
        max_iter: int = 1000,
        tol: float = 1e-10,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> UnitMixturePosterior:
        """Approximate the posterior of the component means by coordinate ascent.

        Parameters
        ----------
        y : array_like (N,), data frame of one column, path, or list of paths
            The data: numbers in memory (any real dtype, stride or order), or anything that `cavity.source` reads: files
            are read block by block in every pass, so memory does not grow with N.
        missing : {"raise", "drop"}, default "raise"
            What is done about rows without a value in a column that the fit reads: refuse them, naming the first, or
            leave them out; `dropped` of the posterior counts them.
        initial_means : array_like (K,), optional
            Where the component means start; if None, at the (k - 1/2)/K quantiles or at equal distances, whichever has
            the larger ELBO after 20 passes over up to 16384 rows. Equal ones are set apart a little.
        n_init : int, default 1
            Number of starts, of which the one with the largest ELBO counts; those after the first are drawn by `rng`.
        rng : seed or numpy.random.Generator, optional
            Needed if n_init > 1.
        accelerate : bool or {"anderson", "squarem"}, default True
            How to extrapolate from the last sweeps (`cavity.mean_field.fit`).
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
        UnitMixturePosterior
            The frozen posterior; its ELBO has all constants and compares across K and settings.

        Raises
        ------
        ValueError, TypeError
            For bad data (row and file are named) or options, before the first sweep.
        ArithmeticError
            If a learnt variance falls to zero, which happens if the data have no more than K different values.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; the posterior is returned all the same, with ``converged=False``.
        SettingsWarning
            If most points (of up to 16384, at equal distances) lie more than 6 standard deviations from every
            component: then `noise_variance` is that of data in other units; ``learn="noise_variance"`` finds it.

        Notes
        -----
        One pass does, for all points, q(z_n) and the sums that the means (eq. 34 of Blei et al. 2017), the ELBO and the
        learnt settings need; no array of N x K is formed. The ELBO is that of the q(z) which is best for q(theta)::

            sum_n log sum_k exp(E[log w_k N(y_n; theta_k, noise_variance)]) - sum_k KL(q(theta_k) || p(theta_k))

        The optimum is a local one, and its components can be permuted.

        Examples
        --------
        >>> import cavity
        >>> from cavity import data
        >>> velocities, about = data.load("galaxies")
        >>> model = cavity.UnitMixture(3, prior_mean=20.0, learn=("prior_variance", "weights", "noise_variance"))
        >>> posterior = model.fit(velocities)
        >>> posterior.mean.round(2).tolist(), posterior.weights.round(3).tolist(), posterior.converged
        ([9.82, 21.4, 32.75], [0.086, 0.877, 0.037], True)
        """
        job = Job.checked(callback, progress, checkpoint, checkpoint_every)
        ascent = {"accelerate": accelerate, "max_iter": max_iter, "tol": tol, "n_init": n_init, "rng": rng}
        run = AscentOptions(**ascent, n_threads=n_threads, job=job)
        means = start.check_means(initial_means, self)
        dataset = Dataset.open(y, remote=True, name="y").leave_out(missing)
        source = dataset.blocks(ndim=(1,))
        with run.open(self, {"y": source}, uses_blas=False, initial_means=means) as threads:
            warn_of_few_rows(self.n_components, source.n_rows)
            extent = start.check_extent(self, source, threads, means)
            sweeps = UnitMixtureSweeps(source.n_rows, self.learn, source, threads, extent)
            sample = source.sample()
            states = start.generate_states(self, means, sample, source.n_rows, run)
            done = engine.choose_best(partial(engine.ascend, sweeps), states, run)
        outcome = engine.report_outcome(done, source.n_rows, run) | {"observation_digest": extent.digest}
        outcome |= {"dropped": dataset.dropped}
        posterior = build_posterior(self, done, source.n_rows, source.names or name_of(dataset.X), **outcome)
        start.warn_of_units(sample, posterior)
        return posterior

    def fit_stochastic(
        self,
        y: Data | Iterator[FloatArray],
        *,
        batch_size: int = 4096,
        n_epochs: int = 1,
        n_samples: int | None = None,
        delay: float = 1.0,
        forgetting: float = 0.7,
        initial_means: ArrayLike | None = None,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> UnitMixturePosterior:
        """Approximate the posterior by one natural-gradient step per minibatch [H]_, in one or a few passes.

        Step t moves the natural parameters of q(theta), and the averages that settings are learnt from, by the share
        (t + delay)^-forgetting towards what all data would give if they were like the minibatch.

        Parameters
        ----------
        y : array_like (N,), path, list of paths, or iterator of arrays
            As for `fit`; a one-shot iterator of one-dimensional arrays, each a minibatch, is taken too if `n_samples`
            is given. Minibatches are runs of rows: shuffle data that are sorted.
        batch_size : int, default 4096
            Rows per minibatch (not for an iterator).
        n_epochs : int, default 1
            How often every row is seen.
        n_samples : int, optional
            N, for an iterator: the posterior is as sure as so many points make it.
        delay : float, default 1.0
            At least 0; larger values make the first steps smaller.
        forgetting : float in (0.5, 1], default 0.7
            The exponent of the step sizes.
        initial_means : array_like (K,), optional
            Where the component means start; if None, as for `fit`, from the first minibatch of an iterator.
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
        UnitMixturePosterior
            The factors after the last step. There is no stopping rule: `converged` is False and `status` says "passes
            done". `elbo` is that of all data, from one more pass; None for an iterator, whose data are gone.

        Raises
        ------
        ValueError, TypeError
            For bad data or options; of an iterator, when the bad minibatch comes.

        Warns
        -----
        NumericalWarning
            If an iterator holds more than `n_samples` points.
        SettingsWarning
            As for `fit`; of an iterator the first minibatch decides.

        References
        ----------
        .. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of
           Machine Learning Research 14, 2013.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> y = rng.normal(rng.choice([-4.0, 0.0, 5.0], size=50_000), 1.0)
        >>> posterior = cavity.UnitMixture(3).fit_stochastic(y, batch_size=500)
        >>> posterior.mean.round(1).tolist(), posterior.n_iter
        ([-4.0, 0.0, 5.0], 1)
        """
        steps = {"batch_size": batch_size, "n_epochs": n_epochs, "delay": delay, "forgetting": forgetting}
        job = Job.checked(callback, progress, checkpoint, checkpoint_every)
        run = StochasticOptions(**steps, n_threads=n_threads, job=job)
        means = start.check_means(initial_means, self)
        check = partial(start.check_minibatch, model=self, means=means)
        batches = StochasticRows.open(y, "y", n_samples, run, check)
        source = batches.dataset.blocks(ndim=(1,))
        with run.open(self, {"y": source}, n_samples=n_samples, initial_means=means) as threads:
            sample, n, extent = source.sample(), source.n_rows, start.check_extent(self, source, threads, means)
            if batches.stream is not None:
                sample, n, extent = batches.stream.first, batches.stream.n_samples, DataExtent()
            sweeps = UnitMixtureSweeps(n, self.learn, source, threads, extent)
            state = next(start.generate_states(self, means, sample, n, replace(TRIAL_OPTIONS, job=run.job)))
            done = batches.fit(sweeps, state, source, run)
        outcome = done.outcome() | {"observation_digest": extent.digest}
        posterior = build_posterior(self, done, n, name_of(y), **outcome)
        start.warn_of_units(sample, posterior)
        return posterior


def _check_weights(weights, k):
    array = arrays.check_finite_array(weights, "weights", ndim=(1,))
    if array.shape != (k,) or np.any(array <= 0):
        raise ValueError(f"weights must be {k} positive numbers, one per component, got {array}")
    if np.max(array) <= 1.0 and abs(np.sum(array) - 1.0) <= k * EPSILON_64:
        shares = array  # normalised before: a saved model comes back with the same bits
    else:
        array = np.ldexp(array, -np.frexp(np.max(array))[1])  # exact; their sum cannot overflow
        shares = array / np.sum(array)
    if np.min(shares) < MIN_WEIGHT / (2 * k):
        raise ValueError(f"weights must be at least {MIN_WEIGHT:g} of the largest, got {weights!r}")
    return tuple(shares.tolist())


def _check_learn(learn):
    """Return the names of the settings to learn, each once and in one order, so that equal models compare equal."""
    names = (learn,) if isinstance(learn, str) else learn
    if not isinstance(names, tuple | list | set | frozenset):
        raise TypeError(
            f"learn must be a tuple of names out of {', '.join(map(repr, LEARNABLE_SETTINGS))}, got {learn!r}"
        )
    chosen = {arrays.check_choice(name, "learn", LEARNABLE_SETTINGS) for name in names}
    return tuple(name for name in LEARNABLE_SETTINGS if name in chosen)
