"""Gaussian processes: exact regression, and expectation propagation for any other likelihood.

References
----------
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.
.. [KR] M. Kuss and C. E. Rasmussen, "Assessing approximate inference for binary Gaussian process classification",
   JMLR 6, 2005.
.. [NR] H. Nickisch and C. E. Rasmussen, "Approximations for binary Gaussian process classification", JMLR 9, 2008.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from cavity.base import arrays
from cavity.base.errors import suggest_dropping
from cavity.base.public_objects import ArrayLike, Data, set_fields
from cavity.covariances.base import Covariance
from cavity.ep.options import EP_SCHEDULES, Options
from cavity.jobs.job import Event, Job
from cavity.models.gp import search
from cavity.models.gp.chain_evidence import ChainEvidence
from cavity.models.gp.chain_posterior import GaussianProcessChainPosterior, build_chain_posterior
from cavity.models.gp.chain_processes import (
    AUTO_METHOD,
    CHAIN_METHOD,
    DENSE_METHOD,
    PROCESS_METHODS,
    choose_method,
    find_obstacle,
)
from cavity.models.gp.evidence import allocate_matrices
from cavity.models.gp.integral import IntegralEvidence
from cavity.models.gp.posterior import GaussianProcessPosterior, build_posterior
from cavity.models.integration_designs import check_integrate
from cavity.models.latent_posterior import AUTO_SCHEDULE
from cavity.models.process.defaults import choose_first_settings, resolve_defaults
from cavity.models.process.mean_formula import open_mean
from cavity.models.process.model import LatentProcess, add_prior_means, choose_learnt, fill_open_parameters, observe
from cavity.sources.dataset import Dataset
from cavity.sources.dense_rows import read_dense


def _open_evidence(method, *arguments):
    """Return the evidence of a method, and what builds the posterior at its end."""
    is_chain = method == CHAIN_METHOD
    kind, build = (ChainEvidence, build_chain_posterior) if is_chain else (IntegralEvidence, build_posterior)
    return kind(*arguments), build


@dataclass(frozen=True, slots=True, eq=False)
class GaussianProcess(LatentProcess):
    """Gaussian process with any likelihood: exact for Gaussian noise [RW]_ (algorithm 2.1), else by EP (3.5).

    Each row x has a latent value f(x) and an observation y with likelihood p(y|f); f - mean is a Gaussian process with
    the given covariance. What is left to the data is chosen in `fit`; the posterior shows it.

    Parameters
    ----------
    covariance : cavity.covariances.Covariance or str, optional
        For example ``cavity.covariances.RBF()``; sums and products of others. Or names, "rbf", "matern12", "matern32",
        "matern52", "rational-quadratic", "periodic", "linear", "constant" and "white", and sums and products of them
        like "rbf + linear * periodic": the search then begins in the scale of the data, with a lengthscale for each
        column and the period of the largest peak of a periodogram of y. Numbers in brackets are first values, in the
        order variance, lengthscale, period: "rbf(1, 10) * periodic(1, 1, 1)". The default is "rbf".
    likelihood : cavity.likelihoods.Likelihood or str, optional
        For example ``cavity.likelihoods.Probit()``, or one of your own, or one of the names that `GLM` accepts. By
        default y decides: "probit" for two different values, "gaussian" for other numbers.
    mean : float, array_like (1 + D,), "constant", "linear" or a formula, optional
        Prior mean of f: a number; a number and a slope for each column; or one of the two with coefficients that the
        fit finds, by maximising the evidence. A formula, ``"age + C(site)"``, names columns of X, a table; needs the
        formula extra. Its coefficients, that of an intercept included, have the default prior of a `GLM` and are
        integrated out with f: they are a `Linear` term of the posterior's covariance (eq. 2.40 of [RW]_), and in its
        summary. Columns of categories in it are no columns of the covariance. The default is "constant" for y of real
        numbers and for counts if the covariance is left to the data, or a string; else 0.
    method : {"auto", "dense", "chain"}, default "auto"
        How f is computed: with N x N matrices, or as a chain in the order of a single column, times, whose cost is
        linear in N: for Matern 1/2, 3/2 and 5/2 covariances, constants, and multiples and sums of these. "auto" is the
        chain where it can be and there are more than 2,000 rows. The results are the same but for rounding.
    integrate : {False, "auto", "grid", "ccd", "mode"}, default False
        Whether the posterior is integrated over what is learnt of covariance and likelihood with proper priors, those
        of the covariance or weak ones (see Notes), as `MixedGLM` does it, and corrected for what EP misses; "auto" does
        so for up to 200 rows and six hyperparameters. A mean that is found stays at its best coefficients. What is
        integrated has the dense method.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain, naming them.

    Notes
    -----
    Default priors of an integral: the standard deviation of a stationary covariance has ``PC(2.5 s)``, s the robust
    spread of y, or ``PC(3)`` where y has no scale of its own; a lengthscale is log-normal with sd 1 about the spread of
    its column, times the root of the number of columns; other parameters, and those of the likelihood, are log-normal
    with sd 2 about where the search begins. Densities are those of logs of parameters. Parameters of the covariance
    have no mass outside its ``bounds``, where the integral ends; the densities are not divided by the mass inside.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=30)
    >>> posterior = cavity.GaussianProcess().fit(X, y)
    >>> mean, variance = posterior.predict([[1.5], [4.5]])
    >>> mean.round(1).tolist()
    [1.0, -0.9]
    """

    method: str = AUTO_METHOD
    integrate: str | bool = False

    def __post_init__(self) -> None:
        LatentProcess.__post_init__(self)
        set_fields(self, integrate=check_integrate(self.integrate))
        if self.integrate is not False and self.method == CHAIN_METHOD:
            raise arrays.error_of("integrate", f"must be False with method='chain', got {self.integrate!r}")
        arrays.check_choice(self.method, "method", PROCESS_METHODS)
        if self.method == CHAIN_METHOD and (obstacle := find_obstacle(self.covariance, self.mean)) is not None:
            raise arrays.error_of("method", f"'chain' {obstacle}")

    def _check_size(self, n):
        """Raise MemoryError if there is no memory for the matrices of n rows, unless a chain may have none."""
        if self.method == DENSE_METHOD or find_obstacle(self.covariance, self.mean) is not None:
            allocate_matrices(n)

    @suggest_dropping
    def fit(
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
        learn: bool | str | tuple[str, ...] = True,
        n_starts: int = 1,
        schedule: Literal["auto", "sequential", "parallel"] = "auto",
        damping: float = 1.0,
        power: float = 1.0,
        max_iter: int = 200,
        tol: float = 1e-8,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
    ) -> GaussianProcessPosterior | GaussianProcessChainPosterior:
        """Find the posterior, and the hyperparameters that maximise the evidence.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, list of paths, or Source
            Rows. The posterior keeps the names of the columns of a table. Dates, in an array of datetime64 or in a
            table, are days since 1970-01-01 in UTC, here and in predictions; those in files have to be numbers. Files
            are read into memory: two N x N matrices have to fit there too, and a search at N = 10,000 takes hours. For
            more rows there is `StreamingGP`, and for one column, times, the `method` of chains.
        y : array_like (N,) or str
            Observations in the form of the likelihood: numbers; counts; labels of any two kinds; ordered categories;
            bounds, or successes and trials, (N, 2), or two names. A string, here and below, is the name of a column of
            X, which is then no feature.
        event : array_like (N,) or str, optional
            Of times y: 1 or True where the event was observed, 0 or False where it was not until then. Likelihoods of
            times take bounds (N, 2) as well, lower and upper, which need no events.
        offset : array_like (N,) or str, optional
            Known part of f.
        exposure : array_like (N,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        noise_variance : array_like (N,) or str, optional
            Known variance of the noise of each row, in place of that of the Gaussian likelihood.
        sample_weight : array_like (N,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.
        missing : {"raise", "drop"}, default "raise"
            What is done about rows without a value in a column that the fit reads: refuse them, naming the first, or
            leave them out; `dropped` of the posterior counts them.
        learn : bool, str or tuple of str, default True
            Whether to learn the free parameters of the covariance and the scale of the likelihood (noise_variance of
            Gaussian, scale of StudentT and Laplace, those of the domain "scale" of your own). Names choose:
            "covariance", and `parameters` of the likelihood. Parameters of it that are None are learnt in any case.
        n_starts : int, default 1
            How many of the starts are followed to the end, those with the largest evidence first. There are at most
            five: the given settings; lengthscales of one and of a quarter of the spread of the columns; and ones of
            about two distances between neighbouring rows, where these are shorter, with much noise and, if it is
            Gaussian, with little. If none of the last two is among those that are followed, or nothing else is, the
            best start of the other kind is tried for eight steps, and followed to the end if the evidence is then
            larger.
        schedule : {"auto", "sequential", "parallel"}, default "auto"
            Of EP: renew the sites one after the other, in blocks at BLAS-3 speed, or all at once with adaptive damping.
            "auto" is sequential, but parallel where there is no kernel for the likelihood (or its power), and the
            other one where that finds no fixed point; chains have the parallel one only.
        damping : float in (0, 1], default 1.0
            Largest fraction of each site change that is made; it is adapted downwards while changes do not fall.
        power : float in [1e-6, 1], default 1.0
            Exponent of power EP; 1 is EP.
        max_iter : int, default 200
            Most sweeps; of the steps of the double loop, where sweeps do not converge, three times as many.
        tol : float, default 1e-8
            Stopping rule: a sweep moves no posterior mean by more than tol posterior standard deviations, and no
            variance by more than the relative amount tol (divided by the damping in use).
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
        GaussianProcessPosterior or GaussianProcessChainPosterior
            The frozen posterior; its model holds what was learnt. The second one where the `method` is the chain.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work.
        MemoryError
            If two N x N matrices do not fit into the memory of the machine; the message says how many bytes they need.
            Of files no row is then read.
        OverflowError
            If moments or the log evidence leave the range of float64.
        NotPositiveDefiniteError
            If Gaussian noise is so small beside the variance of f that it is lost in rounding. No jitter is added.

        Warns
        -----
        ConvergenceWarning
            If a stopping rule was not met, or y is constant and the log evidence grows without bound as noise that is
            learnt goes to 0; the posterior is returned all the same, with ``converged=False``.
        NumericalWarning
            If every lengthscale ends beyond the range of its column, and f is a constant or a line in the rows: what
            else y shows is then taken for noise. A long lengthscale beside shorter ones only says that its column does
            not matter.

        Notes
        -----
        A chain costs some hundred nanoseconds a row in each sweep, and as many bytes of memory. Of the dense method
        memory is two N x N matrices, and blocks of another at times; n x N more for n sites of negative precision, and
        several N x N in the double loop. A sequential sweep costs N^3 operations, a parallel one 2/3 N^3; the end of a
        fit and the gradient of the evidence cost N^3, as does an exact fit, with or without the gradient.
        Hyperparameters are learnt by L-BFGS-B in the logs of the parameters, until the gradient is below 1e-4 nats or
        the evidence changes by less than 1e-11 of itself; each EP fit starts from the sites of the last. Of more than
        1000 rows with Gaussian noise the dense method searches a third first, drawn at random, unless the covariance is
        periodic; where these rows determine all parameters, the search on all rows begins with Newton's step by their
        curvature, and ends at a gradient of 1e-3 nats per standard error. Sites of
        negative precision (StudentT) are not clamped; when sweeps do not converge, EP's free energy is minimised by a
        double loop, as in `cavity.GLM`; weights are site powers, as there.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> X = np.random.default_rng(0).normal(size=(40, 2))
        >>> y = X[:, 0] * X[:, 1] > 0
        >>> model = cavity.GaussianProcess(cavity.covariances.RBF(), cavity.likelihoods.Probit())
        >>> posterior = model.fit(X, y)
        >>> posterior.predict_proba([[1, 1], [1, -1]])[:, 1].round(1).tolist()
        [1.0, 0.0]
        """
        columns = dict(y=y, event=event, offset=offset, noise_variance=noise_variance, sample_weight=sample_weight)
        X, coding = open_mean(self.mean, X)
        dataset = Dataset.open(X, columns | {"exposure": exposure}, check_size=self._check_size).leave_out(missing)
        X, observations = read_dense(dataset), observe(self, dataset)
        model = resolve_defaults(self, observations, X, dataset.column("offset"))
        rows = add_prior_means(model, observations.rows(X))
        if not rows.in_use.any():
            raise ValueError("covariance is zero at every row of X: f is known there; add a Constant to it")
        learn, names = choose_learnt(model, learn, rows.noise is not None)
        model = fill_open_parameters(model, rows)
        n_starts = arrays.check_integer(n_starts, "n_starts", low=1)
        iteration = {"schedule": schedule, "damping": damping, "power": power, "max_iter": max_iter, "tol": tol}
        job = Job.checked(callback, progress)
        run = Options.checked(schedules=(AUTO_SCHEDULE, *EP_SCHEDULES), **iteration, n_threads=n_threads, job=job)
        with run.open(model, rows.named()) as threads:
            evidence, build = _open_evidence(choose_method(self, rows), model.likelihood, rows, threads, run)
            start = choose_first_settings(model, evidence.rows, isinstance(self.covariance, Covariance))
            solution = search.integrate(start, evidence, learn, names, n_starts, run.job, self.integrate)
            point = evidence.final(solution.optimum, replace(run, job=run.job.final_job()))
            if learn:
                search.warn_if_line(point, evidence.rows, observations.names)
            posterior = build(model, evidence, point, solution, coding=coding, **observations.labels)
        if point.fit is not None:
            point.fit.warn(run)
        return posterior
