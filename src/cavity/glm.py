"""Generalised linear models by expectation propagation: any likelihood of x'w, a Gaussian prior on w.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
.. [G] Thore Graepel et al., "Web-scale Bayesian click-through rate prediction for sponsored search advertising in
   Microsoft's Bing search engine", ICML 2010.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from . import _arrays, _records
from ._blocks import rows
from ._dense import Dense
from ._ep import Engine, filter_rows
from ._executors import Threads, single_blas
from ._frames import in_order, names_of
from ._frozen import Frozen
from ._loop import CONVERGED, warn_unconverged
from ._predictions import FITTED, TRACE, LatentPosterior, log_density
from ._records import FLAG, Array, Record, one_of, together
from ._rows import Data, Idle, Spare, check_moments, design_matrix, observations, row_vector, row_weights
from ._sites import Sites
from ._stochastic import Stochastic
from ._weights import Covariance, weights_of
from .errors import NumericalWarning, warn, within_range
from .gaussian import Gaussian
from .likelihoods import Likelihood
from .results import table, to_list, to_tuple

PREDICT_ROWS = 8192
SMALLEST_REACH, LARGEST_REACH = 1e-150, 1e150  # of a row times the prior sd: squares stay in the range of float64
LEARN_SCAN = tuple(float(np.log(10.0)) * k for k in (0, -2, 2, -4, 4, -6, 6, -8, 8))
LEARN_RANGE = 1e10  # the learned prior variance stays within this factor of the given one


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
        mean = _arrays.finite_array(self.prior_mean, "prior_mean", ndim=(0, 1))
        variance = _arrays.finite_array(self.prior_variance, "prior_variance", ndim=(0, 1, 2))
        _arrays.choice(self.approximation, "approximation", ("full", "diagonal"))
        if variance.ndim < 2 and not np.all(variance > 0):
            raise ValueError(f"prior_variance must be positive, got {float(variance.min())!r}")
        if variance.ndim == 2:
            if self.approximation == "diagonal":
                raise ValueError("prior_variance must be a number or (D,) for approximation='diagonal', got a matrix")
            _arrays.cholesky(_arrays.symmetric(variance, "prior_variance"), "prior_variance")
        for name, value in (("prior_mean", mean), ("prior_variance", variance)):
            object.__setattr__(self, name, _arrays.read_only(value.copy()) if value.ndim else float(value))

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
            Most sweeps. Steps of the double loop come on top.
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
        _arrays.choice(method, "method", ("ep", "adf"))
        _arrays.choice(schedule, "schedule", ("parallel", "sequential", "stochastic"))
        if learn is not None:
            _arrays.choice(learn, "learn", ("prior_variance",))
        options = dict(
            damping=_arrays.number(damping, "damping", low=0, high=1, closed_high=True),
            max_iter=_arrays.integer(max_iter, "max_iter", low=1),
            tol=_arrays.number(tol, "tol", low=0, closed_low=True),
            callback=callback,
        )
        power = _arrays.number(power, "power", low=1e-6, high=1, closed_low=True, closed_high=True)
        n_threads = _arrays.integer(n_threads, "n_threads", low=1)
        if schedule == "stochastic" and (power != 1 or (data.weights is not None and np.any(data.weights < 1))):
            raise ValueError("schedule='stochastic' averages whole sites: power must be 1 and weights at least 1")
        if method == "adf" and (damping != 1 or power != 1 or learn is not None or schedule != "parallel"):
            raise ValueError("method='adf' sees each row once: schedule, damping, power and learn have no meaning")
        if self.approximation == "diagonal" and (schedule == "stochastic" or learn is not None):
            raise ValueError("approximation='diagonal' has no schedule='stochastic' and no learn")
        if self.approximation == "diagonal":
            posterior = self._fit_diagonal(data, method, power, options)
        elif len(data.y) == 0:
            posterior = _unmoved(self, data, method)
        else:
            posterior = self._fit_full(data, method, schedule, power, learn, n_threads, options)
        if method == "ep" and not posterior.converged:
            last = posterior.trace["change"][-1] if posterior.n_iter else np.inf
            warn_unconverged(posterior.status, last, options["tol"], options["max_iter"])
        posterior = posterior if data.spare is None else posterior._with_spare(data.spare)
        return replace(posterior, columns=names_of(X), has_offset=_has(offset))

    def _fit_full(self, data, method, schedule, power, learn, n_threads, options):
        """Fit with all covariances."""
        with Threads(n_threads) as threads, single_blas():
            if method == "adf":
                return _assimilate(self, data, self._prior(data.X.shape[1]), threads)
            sites = Sites(self.likelihood, data.y, data.weights, power)
            model, start = self, None
            if learn is not None:
                model, start = _learn(self, data, sites, schedule, threads, options)
            geometry = model._geometry(data, threads)
            return _posterior(model, data, geometry, _engine(geometry, sites, schedule, options, start).run())

    def _check(self, X, y, offset, sample_weight):
        """Validate the data; rows of weight zero, and rows of X that are zero, are set aside."""
        X = design_matrix(X, self.approximation)
        n, d = X.shape
        _arrays.vector(self.prior_mean, "prior_mean", d)
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
        mean = np.array(_arrays.vector(self.prior_mean, "prior_mean", d))
        variance = np.asarray(self.prior_variance)
        if variance.ndim == 2:
            return mean, _arrays.cholesky(variance, "prior_variance")
        return mean, np.sqrt(np.broadcast_to(variance, (d,)))

    def _geometry(self, data, threads):
        return Dense(data.X, data.offset, *self._prior(data.X.shape[1]), threads)

    def _fit_diagonal(self, data, method, power, options):
        from . import _diagonal

        d = data.X.shape[1]
        result = _diagonal.fit(
            self.likelihood,
            data.X,
            data.y,
            prior_mean=np.array(_arrays.vector(self.prior_mean, "prior_mean", d)),
            prior_variance=np.array(np.broadcast_to(np.asarray(self.prior_variance), (d,))),
            offset=data.offset,
            weights=data.weights,
            method=method,
            power=power,
            **options,
        )
        return GLMPosterior(
            model=self,
            mean=result.mean,
            variance=result.variance,
            log_evidence=result.log_evidence,
            converged=result.status == CONVERGED,
            n_iter=result.n_iter,
            status=result.status,
            residual=0.0,
            n_samples=data.n_rows,
            method=method,
            trace=result.trace,
            _covariance=None,
            _loo=None if method == "adf" else data.scatter(result.loo),
            _tau=None,
            _rho=None,
        )


def _has(offset):
    """Whether there is an offset other than zero."""
    return offset is not None and bool(np.any(np.asarray(offset)))


def _engine(geometry, sites, schedule, options, start):
    if schedule == "stochastic":
        return Stochastic(geometry, sites, **options)
    return Engine(geometry, sites, schedule=schedule, start=start, **options)


def _learn(model, data, sites, schedule, threads, options):
    """Maximise the log evidence over the prior variance; return the model and the sites to start from."""
    from scipy.optimize import minimize

    given = np.asarray(model.prior_variance)
    n_free = given.size if given.ndim == 1 else 1
    quiet = {**options, "callback": None}
    warm = {"start": None}

    def scaled(theta):
        return replace(model, prior_variance=given * (np.exp(theta) if given.ndim == 1 else float(np.exp(theta[0]))))

    def objective(theta):
        candidate = scaled(theta)
        geometry = candidate._geometry(data, threads)
        fit = _engine(geometry, sites, schedule, quiet, warm["start"]).run()
        warm["start"] = (fit.tau, fit.rho)
        return -fit.log_evidence, -_evidence_gradient(candidate, geometry, fit.belief)

    bound = float(np.log(LEARN_RANGE))
    # far from the maximum the evidence is flat: begin where a common factor is best
    first = max(LEARN_SCAN, key=lambda theta: -objective(np.full(n_free, theta))[0])
    result = minimize(objective, np.full(n_free, first), jac=True, method="L-BFGS-B", bounds=[(-bound, bound)] * n_free)
    further = np.clip(result.x + np.sign(result.x) * np.log(100.0), -bound, bound)
    if np.ndim(model.prior_variance) != 1 and objective(further)[0] <= result.fun + 1e-6:
        warn(
            "the log evidence has no maximum in the prior variance: it does not fall beyond "
            f"{np.exp(result.x[0]):.1g} times the given one; the search ended there",
            NumericalWarning,
        )
    return scaled(result.x), warm["start"]


def _evidence_gradient(model, geometry, belief):
    """d log evidence / d log prior variance: that of the expected log prior, as the sites are at their fixed point.

    One entry for a number or a matrix (a factor on it), D for a vector. [M]_ and math of GPML section 5.5.
    """
    if np.ndim(model.prior_variance) != 1:
        return np.array([belief.prior_slope()])
    prior = model._prior(len(model.prior_variance))
    mean, covariance = weights_of(prior, geometry, belief)
    return _weight_gradient(model, mean - prior[0], covariance.variances())


def _weight_gradient(model, apart, variances):
    """The same for each weight, from its posterior mean less that of the prior and its posterior variance."""
    return 0.5 * ((apart**2 + variances) / model.prior_variance - 1.0)


def _posterior(model, data, geometry, fit):
    """Turn a fit of the dense geometry into a posterior over the weights."""
    mean, covariance = weights_of(model._prior(data.X.shape[1]), geometry, fit.belief)
    return GLMPosterior(
        model=model,
        mean=mean,
        variance=covariance.variances(),
        log_evidence=fit.log_evidence + (0.0 if data.idle is None else data.idle.total),
        converged=fit.status == CONVERGED,
        n_iter=fit.n_iter,
        status=fit.status,
        residual=fit.residual,
        n_samples=data.n_rows,
        method="ep",
        trace=fit.trace,
        _covariance=covariance,
        _loo=data.scatter(fit.loo, None if data.idle is None else data.idle.log_p),
        _tau=data.scatter(fit.tau),
        _rho=data.scatter(fit.rho),
    )


def _unmoved(model, data, method, before=None):
    """The posterior where no row depends on the weights: the prior, or the posterior before."""
    mean, covariance = _start(model, data, before)
    nothing = np.zeros(data.n_rows)
    return GLMPosterior(
        model=model,
        mean=mean,
        variance=covariance.variances(),
        log_evidence=data.idle.total + (0.0 if before is None else before.log_evidence),
        converged=True if before is None else before.converged,
        n_iter=1,
        status=CONVERGED if before is None else before.status,
        residual=0.0,
        n_samples=data.n_rows + (0 if before is None else before.n_samples),
        method=method,
        trace={} if method == "adf" else {"change": np.zeros(1), "improper": np.zeros(1), "double_loop": np.array(0)},
        _covariance=covariance,
        _loo=None if method == "adf" else data.idle.log_p,
        _tau=None if method == "adf" else nothing,
        _rho=None if method == "adf" else nothing,
    )


def _start(model, data, before):
    """Mean and Covariance that rows are added to: the prior's, or those of the posterior before."""
    if before is not None:
        return before.mean, before._covariance
    mean, root = model._prior(data.X.shape[1])
    return mean, Covariance(root)


def _assimilate(model, data, prior, threads, before=None):
    """ADF over the rows from a Gaussian; rows of weight above one are taken that many times."""
    data, visits = data.repeated()
    geometry = Dense(data.X, data.offset, *prior, threads)
    belief, log_z = filter_rows(geometry, Sites(model.likelihood, data.y, visits))
    if belief is None:
        raise ArithmeticError("ADF lost the posterior to rounding; rescale the columns of X")
    mean, covariance = weights_of(prior, geometry, belief)
    return GLMPosterior(
        model=model,
        mean=mean,
        variance=covariance.variances(),
        log_evidence=log_z
        + (0.0 if before is None else before.log_evidence)
        + (0.0 if data.idle is None else data.idle.total),
        converged=True if before is None else before.converged,
        n_iter=1,
        status=CONVERGED if before is None else before.status,
        residual=0.0,
        n_samples=data.n_rows + (0 if before is None else before.n_samples),
        method="adf",
        trace={},
        _covariance=covariance,
        _loo=None,
        _tau=None,
        _rho=None,
    )


PLAIN = ("log_evidence", "converged", "n_iter", "status", "residual", "n_samples", "method")


def _arrays_of(settings):
    full, ep = settings["approximation"] == "full", settings["method"] == "ep"
    root = {"covariance_root": Array("D | D D")}
    root |= {"covariance_basis?": Array("D M"), "covariance_factor?": Array("M M")}
    sites = {"_tau?": Array("N", "any"), "_rho?": Array("N", "any")}  # stochastic EP keeps none
    return {
        "mean": Array("D"),
        "variance": Array("D", "nonnegative"),
        **(root if full else {}),
        **({"_loo?": Array("N", "any")} if ep else {}),
        **(sites if full and ep else {}),
        "prior_mean": Array("() | D"),
        "prior_variance": Array("() | D | D D"),
        "centre?": Array("C"),
        "spread?": Array("C", "positive"),
        **TRACE,
    }


def _fits(arrays, settings, sizes):
    """Whether sites and columns are as many as there should be, as a rule of the record."""
    if settings["n_samples"] != sizes.get("N", settings["n_samples"]):
        return f"setting 'n_samples' must be {sizes['N']} like the sites, got {settings['n_samples']}"
    added = int(settings.get("intercept", False))
    if sizes.get("C", sizes["D"] - added) != sizes["D"] - added:
        return f"there must be {sizes['D'] - added} columns, as there are {sizes['D']} weights, got {sizes['C']}"
    return None


@dataclass(frozen=True, eq=False, repr=False)
class GLMPosterior(LatentPosterior):
    """The approximate posterior of the weights of a `GLM`.

    Attributes
    ----------
    model : GLM
        The settings; with ``learn="prior_variance"`` the learned ones.
    mean : ndarray (D,)
        Posterior mean of the weights.
    variance : ndarray (D,)
        Posterior variance of each weight.
    log_evidence : float
        EP's (or ADF's) estimate of log p(y | X), all constants included: models of the same y compare by it.
    converged : bool
        Whether the stopping rule of `GLM.fit` was met.
    n_iter : int
        Sweeps and steps of the double loop taken.
    status : str
        Why the iteration ended.
    residual : float
        How far the sites are from their fixed point: the largest change of a marginal moment that one more undamped
        renewal of a single site would make, means in posterior sd, variances relative.
    n_samples : int
        Rows seen, those of earlier updates included.
    method : {"ep", "adf"}
        How the last rows were taken in.
    trace : dict of ndarray
        "change" and "improper" for every sweep, "double_loop" the number of its steps.
    columns : tuple of str or None
        Names of the columns of X, if it was a data frame: those of later data frames are put in their order.
    classes : tuple of str or None
        What the labels of two classes stand for, that of -1 (or 0) first, where that was said.
    centre, spread : ndarray or None
        What is subtracted from each column of new rows, and what it is then divided by, before the weights apply; None
        where the weights belong to the columns as they are.
    intercept : bool
        Whether the first weight is that of a column of ones, which is put before those of new rows.
    has_offset : bool
        Whether rows came with offsets, which predictions then want as well.

    Notes
    -----
    `centre`, `spread` and `intercept` describe what was done to a table before it was fitted, as the command line does:
    `predict`, `update` and all else that takes rows then want the columns of the table, and do the same to them. `fit`
    does nothing to X, and leaves them None and False.
    """

    model: GLM
    mean: np.ndarray
    variance: np.ndarray
    log_evidence: float
    converged: bool
    n_iter: int
    status: str
    residual: float
    n_samples: int
    method: str
    trace: dict
    _covariance: Covariance | None
    _loo: np.ndarray | None
    _tau: np.ndarray | None
    _rho: np.ndarray | None
    columns: tuple | None = None
    classes: tuple | None = None
    centre: np.ndarray | None = None
    spread: np.ndarray | None = None
    intercept: bool = False
    has_offset: bool = False

    kind = "glm"
    record = Record(
        _arrays_of,
        FITTED
        | {
            "method": one_of("ep", "adf"),
            "approximation": one_of("full", "diagonal"),
            "intercept?": FLAG,
            "has_offset?": FLAG,
        },
        (*map(together, ("_tau", "covariance_basis", "centre"), ("_rho", "covariance_factor", "spread")), _fits),
    )

    def __post_init__(self):
        self._freeze()

    def __repr__(self):
        done = "converged" if self.converged else f"NOT CONVERGED: {self.status}"
        return table(
            f"GLMPosterior: {type(self.model.likelihood).__name__}, {len(self.mean)} weights, {self.n_samples} rows",
            [
                ("log_evidence", f"{self.log_evidence:.6f}"),
                ("mean", np.array2string(self.mean, precision=4, threshold=8)),
                ("sd", np.array2string(np.sqrt(self.variance), precision=4, threshold=8)),
                ("fit", f"{self.method.upper()}, {done}, {self.n_iter} pass(es)"),
            ],
        )

    @cached_property
    def covariance(self):
        """Posterior covariance of the weights, (D, D); only of the full approximation."""
        if self._covariance is None:
            raise AttributeError("approximation='diagonal' keeps variances only, no covariance")
        root = self._covariance.full_root()
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.diag(root**2) if root.ndim == 1 else root @ root.T
        return _arrays.read_only(within_range(squares, "covariance: its entries"))

    @property
    def loo_log_density(self):
        """log p(y_i | the other rows) for every row, (N,): free with EP, from the cavities.

        A row of weight above one leaves one of its copies out; for a row of weight zero, which was not used, it is the
        predictive density.

        Raises
        ------
        ValueError
            If the fit has none (ADF, stochastic EP), or if a cavity without a row is improper, naming the row.
        """
        if self._loo is None:
            raise ValueError("leave-one-out densities need a fit by EP with the sites kept (not ADF, not stochastic)")
        return self._proper_loo()

    @property
    def sites(self):
        """The sites as a batch of Gaussians in f, (N,); negative precisions are legitimate."""
        if self._tau is None:
            raise ValueError("sites are kept by fits with EP and approximation='full' only (not ADF, not stochastic)")
        return Gaussian(self._tau, self._rho)

    @property
    def log_evidence_gradient(self):
        """Derivative of log_evidence in the log of the prior variance: (D,) if that is a vector, else a number."""
        if self._covariance is None or self.method != "ep":
            raise ValueError("the gradient needs a fit by EP with approximation='full'")
        prior_mean, root = self.model._prior(len(self.mean))
        apart = self.mean - prior_mean
        variance = np.asarray(self.model.prior_variance)
        if variance.ndim == 1:
            return _weight_gradient(self.model, apart, self.variance)
        if variance.ndim == 0:
            return float(np.sum(_weight_gradient(self.model, apart, self.variance)))
        from scipy.linalg import solve_triangular

        spread = solve_triangular(root, self._covariance.full_root(), lower=True)
        return float(0.5 * (np.sum(spread**2) + np.sum(solve_triangular(root, apart, lower=True) ** 2) - len(apart)))

    def predict(self, X, offset=None):
        """Predict the latent value f = x'w + offset: its moments.

        Parameters
        ----------
        X : array_like (n, D), data frame, or scipy.sparse for approximation="diagonal"
            Rows. The columns of a data frame are found by their names, in whatever order. Where the posterior has
            `centre`, `spread` or `intercept`, they are the columns before scaling, without a column of ones.
        offset : array_like (n,), optional
            Known part of f.

        Returns
        -------
        mean, variance : ndarray (n,)
            Of f under the posterior; noise of the likelihood is not in them.

        Raises
        ------
        ValueError, TypeError
            For bad rows; for columns that are missing or unknown, naming them.
        """
        X = self._rows_of(X)
        n = X.shape[0]
        offset = np.zeros(n) if offset is None else row_vector(offset, "offset", n)
        mean, variance = self._moments(X, offset)
        check_moments(mean, variance)
        return mean, variance

    def _moments(self, X, offset):
        """Moments of f at checked rows, not finite where they leave the range of float64."""
        if self._covariance is None and not self._prepares:
            from . import _diagonal

            return _diagonal.predict(X, self.mean, self.variance, offset)
        mean, variance = np.empty(X.shape[0]), np.empty(X.shape[0])
        with np.errstate(over="ignore", invalid="ignore"):
            for low in range(0, X.shape[0], PREDICT_ROWS):
                part = slice(low, low + PREDICT_ROWS)
                x = self._prepared(X[part]) if self._prepares else rows(X, part)
                mean[part] = x @ self.mean
                diagonal = self._covariance is None
                variance[part] = (x * x) @ self.variance if diagonal else self._covariance.spread(x)
            return mean + offset, variance

    @property
    def n_features(self):
        """Number of columns of the rows it takes; an intercept has none."""
        return len(self.mean) - self.intercept

    @property
    def _prepares(self):
        """Whether new rows are scaled, or get a column of ones."""
        return self.intercept or self.centre is not None

    def _rows_of(self, X):
        """Return new rows checked, their columns in the order of the fit, not yet prepared."""
        X = design_matrix(in_order(X, self.columns), self.model.approximation)
        if X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} columns like the data of the fit, got {X.shape[1]}")
        return X

    def _prepared(self, x):
        """Return rows as the weights take them."""
        x = x.toarray() if hasattr(x, "toarray") else x
        out = np.ones((len(x), len(self.mean)))
        columns = out[:, 1:] if self.intercept else out
        _arrays.copy_real(x, columns)
        if self.centre is not None:
            columns -= self.centre
            columns /= self.spread
        return out

    def _with_spare(self, spare):
        """The same posterior with the predictive densities of rows of weight zero among the leave-one-out ones."""
        if self._loo is None:
            return self
        loo = self._loo.copy()
        loo[spare.mask] = log_density(self.model.likelihood, spare.y, *self.predict(spare.X, spare.offset))
        return replace(self, _loo=loo)

    def sample(self, n, rng):
        """Draw weights from the posterior.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray (n, D)
            The draws.
        """
        n, rng = _arrays.integer(n, "n", low=0), _arrays.generator(rng)
        z = rng.standard_normal((n, len(self.mean)))
        with np.errstate(over="ignore", invalid="ignore"):
            spread = z * np.sqrt(self.variance) if self._covariance is None else self._covariance.colour(z)
            return within_range(self.mean + spread, "sample: the draws")

    def update(self, X, y, *, offset=None, sample_weight=None):
        """Take in new rows by ADF, on top of what is known.

        Parameters
        ----------
        X : array_like (n, D), data frame, or scipy.sparse for approximation="diagonal"
            New rows, as `predict` takes them.
        y : array_like (n,)
            Their observations.
        offset : array_like (n,), optional
            Known part of f.
        sample_weight : array_like (n,), optional
            Weights; a row of weight 2 is taken in twice.

        Returns
        -------
        GLMPosterior
            A new posterior; this one stays as it is. Its log evidence is that of all rows.
        """
        columns = names_of(X) if self.columns is None else self.columns
        X = in_order(X, self.columns)
        if self._prepares:
            with np.errstate(over="ignore", invalid="ignore"):
                X = within_range(self._prepared(self._rows_of(X)), "X: columns divided by spread")
        data = self.model._check(X, y, offset, sample_weight)
        if data.X.shape[1] != len(self.mean):
            raise ValueError(f"X must have {self.n_features} columns like the data of the fit, got {data.X.shape[1]}")
        kept = {name: getattr(self, name) for name in ("classes", "centre", "spread", "intercept")}
        kept |= {"columns": columns, "has_offset": self.has_offset or _has(offset)}
        return replace(self._updated(data), **kept)

    def _updated(self, data):
        """Take in checked rows by ADF."""
        if self._covariance is None:
            prior = replace(self.model, prior_mean=self.mean, prior_variance=self.variance)
            new = prior._fit_diagonal(data, "adf", 1.0, dict(damping=1.0, max_iter=1, tol=0.0, callback=None))
            return replace(
                new,
                model=self.model,
                log_evidence=self.log_evidence + new.log_evidence,
                n_samples=self.n_samples + new.n_samples,
                converged=self.converged,
                status=self.status,
            )
        if len(data.y) == 0:
            return _unmoved(self.model, data, "adf", self)
        with Threads(1) as threads, single_blas():
            prior = self.mean, self._covariance.full_root()
            return _assimilate(self.model, data, prior, threads, self)

    def to_arrays(self):
        """Return (arrays, settings) for `save`."""
        likelihood = self._likelihood_to_settings()
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), np.ndarray)}
        if self._covariance is not None:
            parts = {f.name: getattr(self._covariance, f.name) for f in fields(Covariance)}
            arrays |= {f"covariance_{name}": value for name, value in parts.items() if value is not None}
        arrays |= {f"trace_{key}": value for key, value in self.trace.items()}
        arrays["prior_mean"] = np.asarray(self.model.prior_mean)
        arrays["prior_variance"] = np.asarray(self.model.prior_variance)
        settings = {key: getattr(self, key) for key in (*PLAIN, "intercept", "has_offset")}
        settings |= {key: to_list(getattr(self, key)) for key in ("columns", "classes")}
        settings["approximation"] = self.model.approximation
        settings["likelihood"] = likelihood
        return arrays, settings

    @classmethod
    def _from_arrays(cls, arrays, settings):
        prior = arrays["prior_mean"][()], arrays["prior_variance"][()]
        model = GLM(settings["likelihood"], *prior, settings["approximation"])
        parts = _records.part(arrays, "covariance_")
        return cls(
            model=model,
            mean=arrays["mean"],
            variance=arrays["variance"],
            **{name: settings[name] for name in PLAIN},
            trace=_records.part(arrays, "trace_"),
            _covariance=Covariance(**parts) if parts else None,
            **{name: arrays.get(name) for name in ("_loo", "_tau", "_rho", "centre", "spread")},
            **{name: to_tuple(settings.get(name)) for name in ("columns", "classes")},
            **{name: settings.get(name, False) for name in ("intercept", "has_offset")},
        )
