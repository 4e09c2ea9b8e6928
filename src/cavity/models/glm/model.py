"""Generalised linear models by expectation propagation: any likelihood of x'w, a Gaussian prior on w.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
.. [G] Thore Graepel et al., "Web-scale Bayesian click-through rate prediction for sponsored search advertising in
   Microsoft's Bing search engine", ICML 2010.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.frames import names_of
from cavity.base.frozen import Frozen
from cavity.base.loop import warn_unconverged
from cavity.base.rows import design_matrix, observations, row_vector, row_weights
from cavity.blocks.executors import Threads, single_blas
from cavity.ep.dense import Dense
from cavity.ep.options import SCHEDULES, Options
from cavity.ep.sites import Sites
from cavity.likelihoods import Likelihood
from cavity.models.glm.learn import engine_of, learned
from cavity.models.glm.posterior import PREDICT_ROWS, GLMPosterior, assimilated, posterior_of, unmoved
from cavity.models.glm.rows import Data, Idle, Spare, has_offset

SMALLEST_REACH, LARGEST_REACH = 1e-150, 1e150  # of a row times the prior sd: squares stay in the range of float64


@dataclass(frozen=True, slots=True, eq=False)
class GLM(Frozen):
    """Generalised linear model with a Gaussian prior, fitted by EP or ADF [M]_.

    Each row has a latent value f = x'w + offset and an observation y with likelihood p(y|f); w ~ N(prior_mean,
    prior_variance). No intercept is added: give X a column of ones for one.

    Parameters
    ----------
    likelihood : cavity.likelihoods.Likelihood
        For example ``cavity.likelihoods.Probit()``, or one of your own.
    prior_mean : float or array_like (D,), default 0.0
        Mean of the prior of the weights.
    prior_variance : float, array_like (D,) or (D, D), default 1.0
        Variance of every weight, of each, or the covariance matrix of all.
    approximation : {"full", "diagonal"}, default "full"
        Posterior with all covariances, or with independent weights: for sparse X with very many columns [G]_.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefiniteError
        For settings outside their domain, naming them.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> X = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1]])
    >>> posterior = cavity.GLM(cavity.likelihoods.Step()).fit(X, [1, 1, -1])
    >>> posterior.mean.round(3).tolist(), round(posterior.log_evidence, 6)
    ([-1.178, 0.514, 0.533], -2.486153)
    """

    likelihood: Likelihood
    prior_mean: float | np.ndarray = 0.0
    prior_variance: float | np.ndarray = 1.0
    approximation: str = "full"

    def __post_init__(self):
        if not isinstance(self.likelihood, Likelihood):
            hint = " (did you forget the brackets?)" if isinstance(self.likelihood, type) else ""
            raise TypeError(
                f"likelihood must be an instance of cavity.likelihoods.Likelihood, got {self.likelihood!r}{hint}"
            )
        mean = arrays.finite_array(self.prior_mean, "prior_mean", ndim=(0, 1))
        variance = arrays.finite_array(self.prior_variance, "prior_variance", ndim=(0, 1, 2))
        arrays.choice(self.approximation, "approximation", ("full", "diagonal"))
        if variance.ndim < 2 and not np.all(variance > 0):
            raise ValueError(f"prior_variance must be positive, got {float(variance.min())!r}")
        if variance.ndim == 2:
            if self.approximation == "diagonal":
                raise ValueError("prior_variance must be a number or (D,) for approximation='diagonal', got a matrix")
            arrays.cholesky(arrays.symmetric(variance, "prior_variance"), "prior_variance")
        for name, value in (("prior_mean", mean), ("prior_variance", variance)):
            object.__setattr__(self, name, arrays.read_only(value.copy()) if value.ndim else float(value))

    def fit(
        self,
        X,
        y,
        *,
        offset=None,
        sample_weight=None,
        method="ep",
        schedule="parallel",
        damping=1.0,
        power=1.0,
        learn=None,
        max_iter=200,
        tol=1e-8,
        n_threads=1,
        callback=None,
    ):
        """Approximate the posterior of the weights.

        Parameters
        ----------
        X : array_like (N, D), data frame, or scipy.sparse for approximation="diagonal"
            Design matrix; float64 is not copied, other types are converted block by block. The posterior keeps the
            names of the columns of a data frame.
        y : array_like, shape (N,)
            Observations, as the likelihood wants them: labels {-1, 1}, {0, 1} or bool; counts; numbers; bounds (N, 2).
        offset : array_like (N,), optional
            Known part of f, for example log exposure.
        sample_weight : array_like (N,), optional
            A row of weight w counts as w copies; 0 leaves it out. They are site powers, see the notes.
        method : {"ep", "adf"}, default "ep"
            "adf" sees each row once, in order; schedule, damping, power, learn, max_iter, tol and callback are EP's.
        schedule : {"parallel", "sequential", "stochastic"}, default "parallel"
            Renew all sites at once (after a first sweep over up to 4096 rows one by one; fastest, uses `n_threads`), or
            one after the other, or keep one averaged site for all rows (memory independent of N, no leave-one-out).
        damping : float in (0, 1], default 1.0
            Largest fraction of each site change that is made; it is adapted downwards while changes grow.
        power : float in [1e-6, 1], default 1.0
            Exponent of power EP; 1 is EP.
        learn : None or "prior_variance", default None
            Maximise the log evidence over a factor on the prior variance (if it is a number or a matrix) or over all
            entries (if it is a vector: automatic relevance determination), by L-BFGS with the exact gradient.
        max_iter : int, default 200
            Most sweeps; of the steps of the double loop, where sweeps do not settle, three times as many.
        tol : float, default 1e-8
            Stopping rule: a sweep moves the mean of no linear functional of w by more than tol posterior standard
            deviations, and its variance by no more than the relative amount tol (divided by the damping in use).
        n_threads : int, default 1
            Threads of the parallel schedule; the result has the same bits for any number. Fits that are started from
            several Python threads take turns, because BLAS is held to one thread meanwhile.
        callback : callable, optional
            Called as callback(n_iter, change) after each sweep; a true result stops the fit.

        Returns
        -------
        GLMPosterior
            The frozen posterior.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; the posterior is returned all the same, with ``converged=False``.

        Notes
        -----
        A pass costs N D min(N, D) operations: with fewer rows than columns the work is done in the N directions of
        weight space that the data see. Sites may have negative precision (outliers under StudentT) and are not clamped.
        A step that makes a cavity or the posterior improper is taken back half-way and the damping is increased; when
        the change has not halved in 10 sweeps the fixed point is found by minimising EP's free energy, a double loop
        whose every step lowers it.

        With weights w, the exponent inside the tilted distribution is ``power * min(1, w)`` and the cavity leaves out
        the fraction ``power * min(1, 1/w)`` of the row's site: integer weights equal repeated rows exactly.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = np.column_stack([np.ones(200), rng.normal(size=(200, 2))])
        >>> y = rng.poisson(np.exp(X @ [0.5, 0.3, -0.2]))
        >>> posterior = cavity.GLM(cavity.likelihoods.Poisson(), prior_variance=10.0).fit(X, y)
        >>> posterior.converged, posterior.mean.round(2).tolist()
        (True, [0.51, 0.32, -0.29])
        """
        data = self._check(X, y, offset, sample_weight)
        arrays.choice(method, "method", ("ep", "adf"))
        if learn is not None:
            arrays.choice(learn, "learn", ("prior_variance",))
        options = Options.checked(
            schedules=(*SCHEDULES, "stochastic"),
            schedule=schedule,
            damping=damping,
            power=power,
            max_iter=max_iter,
            tol=tol,
            callback=callback,
        )
        n_threads = arrays.integer(n_threads, "n_threads", low=1)
        if schedule == "stochastic" and (power != 1 or (data.weights is not None and np.any(data.weights < 1))):
            raise ValueError("schedule='stochastic' averages whole sites: power must be 1 and weights at least 1")
        if method == "adf" and (damping != 1 or power != 1 or learn is not None or schedule != "parallel"):
            raise ValueError("method='adf' sees each row once: schedule, damping, power and learn have no meaning")
        if self.approximation == "diagonal" and (schedule == "stochastic" or learn is not None):
            raise ValueError("approximation='diagonal' has no schedule='stochastic' and no learn")
        if self.approximation == "diagonal":
            posterior = self._fit_diagonal(data, method, options)
        elif len(data.y) == 0:
            posterior = unmoved(self, data, method)
        else:
            posterior = self._fit_full(data, method, learn, n_threads, options)
        if method == "ep" and not posterior.converged:
            last = posterior.trace["change"][-1] if posterior.n_iter else np.inf
            warn_unconverged(posterior.status, last, options.tol, options.max_iter)
        posterior = posterior if data.spare is None else posterior._with_spare(data.spare)
        return replace(posterior, columns=names_of(X), has_offset=has_offset(offset))

    def _fit_full(self, data, method, learn, n_threads, options):
        """Fit with all covariances."""
        with Threads(n_threads) as threads, single_blas():
            if method == "adf":
                return assimilated(self, data, self._prior(data.X.shape[1]), threads)
            sites = Sites(self.likelihood, data.y, data.weights, options.power)
            model, start = self, None
            if learn is not None:
                model, start = learned(self, data, sites, threads, options)
            geometry = model._geometry(data, threads)
            return posterior_of(model, data, geometry, engine_of(geometry, sites, options, start).run())

    def _check(self, X, y, offset, sample_weight):
        """Validate the data; rows of weight zero, and rows of X that are zero, are set aside."""
        X = design_matrix(X, self.approximation)
        n, d = X.shape
        arrays.vector(self.prior_mean, "prior_mean", d)
        if np.shape(self.prior_variance) not in ((), (d,), (d, d)):
            raise ValueError(
                f"prior_variance must be a number or have shape ({d},) or ({d}, {d}) for {d} columns, "
                f"got {np.shape(self.prior_variance)}"
            )
        y = observations(self.likelihood, y, n)
        offset = None if offset is None else row_vector(offset, "offset", n)
        weights = None if sample_weight is None else row_weights(sample_weight, n)
        used = np.ones(n, dtype=bool) if weights is None else weights > 0
        spare = None if used.all() else Spare(~used, X[~used], y[~used], None if offset is None else offset[~used])
        idle = None
        if self.approximation == "full":
            silent = used & self._silent(X)
            if silent.any():
                f = np.zeros(silent.sum()) if offset is None else offset[silent]
                log_p = np.full(n, np.nan)
                log_p[silent] = self.likelihood.log_p(y[silent], f)
                idle = Idle(log_p, float(np.sum(log_p[silent] * (1.0 if weights is None else weights[silent]))))
                used &= ~silent
        if used.all():
            used = None
        else:
            X, y = X[used], y[used]
            offset = None if offset is None else offset[used]
            weights = None if weights is None else weights[used]
        if weights is not None and np.all(weights == 1):
            weights = None
        return Data(X, y, offset, weights, used, idle, spare)

    def _silent(self, X):
        """Which rows of X are zero, or so small that the variance of f underflows: they tell nothing about w."""
        _, root = self._prior(X.shape[1])
        scale = float(np.max(np.abs(root)))
        silent = np.empty(len(X), dtype=bool)
        for low in range(0, len(X), PREDICT_ROWS):
            part = slice(low, low + PREDICT_ROWS)
            reach = scale * np.max(np.abs(X[part]), axis=1).astype(np.float64)
            silent[part] = reach < SMALLEST_REACH
            if not np.all(reach < LARGEST_REACH):
                row = low + int(np.argmax(~(reach < LARGEST_REACH)))
                raise OverflowError(
                    f"the latent value of row {row} leaves the range of float64; rescale the columns of X"
                )
        return silent

    def _prior(self, d):
        """The prior's mean and root."""
        mean = np.array(arrays.vector(self.prior_mean, "prior_mean", d))
        variance = np.asarray(self.prior_variance)
        if variance.ndim == 2:
            return mean, arrays.cholesky(variance, "prior_variance")
        return mean, np.sqrt(np.broadcast_to(variance, (d,)))

    def _geometry(self, data, threads):
        return Dense(data.X, data.offset, *self._prior(data.X.shape[1]), threads)

    def _fit_diagonal(self, data, method, options):
        from cavity.models.glm import diagonal as diagonal_ep

        d = data.X.shape[1]
        result = diagonal_ep.fit(
            self.likelihood,
            data.X,
            data.y,
            prior_mean=np.array(arrays.vector(self.prior_mean, "prior_mean", d)),
            prior_variance=np.array(np.broadcast_to(np.asarray(self.prior_variance), (d,))),
            offset=data.offset,
            weights=data.weights,
            method=method,
            options=options,
        )
        return GLMPosterior(
            model=self,
            mean=result.belief.mean,
            variance=result.belief.variance,
            log_evidence=result.log_evidence,
            n_samples=data.n_rows,
            method=method,
            **result.report(),
            _covariance=None,
            _loo=None if method == "adf" else data.scatter(result.loo),
            _tau=None,
            _rho=None,
        )
