"""Generalised linear models by expectation propagation: any likelihood of x'w, a Gaussian prior on w.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
.. [G] Thore Graepel et al., "Web-scale Bayesian click-through rate prediction for sponsored search advertising in
   Microsoft's Bing search engine", ICML 2010.
.. [AA] A. Albert and J. A. Anderson, "On the existence of maximum likelihood estimates in logistic regression models",
   Biometrika 71, 1984.
.. [GJ] A. Gelman, A. Jakulin, M. G. Pittau and Y.-S. Su, "A weakly informative default prior distribution for logistic
   and other regression models", Annals of Applied Statistics 2, 2008.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from cavity.base import arrays
from cavity.base.errors import name_arguments, suggest_dropping
from cavity.base.public_objects import ArrayLike, Data, FloatOrArray, replace_unchecked
from cavity.ep.options import EP_SCHEDULES, Options
from cavity.jobs.job import Event, Job
from cavity.models.formula.notation import has_random_effects
from cavity.models.glm.many_responses import ManyResponses
from cavity.models.glm.posterior import FITS_WITHOUT_SITES, GLMPosterior, make_posterior
from cavity.models.glm.problem import GLMProblem, check_memory
from cavity.models.glm.random_effects import fit_mixed
from cavity.models.glm.single_posteriors import make_single_posterior, read_rows
from cavity.models.glm.solution import solve
from cavity.models.hyperpriors import match_priors
from cavity.models.linear.defaults import make_scaling_settings, resolve_defaults
from cavity.models.linear.evidence import PRIOR_VARIANCE_TARGET
from cavity.models.linear.evidence_search import check_can_learn, check_groups, choose_names_to_learn
from cavity.models.linear.inputs import LinearInputs
from cavity.models.linear.separation import warn_of_separation
from cavity.models.linear.settings import LinearSettings
from cavity.models.many.posterior import POSTERIOR_MAKERS
from cavity.sources.dataset import ON_WORKERS
from cavity.sources.features import open_features, scan
from cavity.sources.scratch import MOST_IN_MEMORY

if TYPE_CHECKING:
    from cavity.likelihoods import Likelihood
    from cavity.likelihoods.names import LikelihoodName
    from cavity.models.mixed.posterior import MixedGLMPosterior


@dataclass(frozen=True, slots=True, eq=False)
class GLM(ManyResponses, LinearSettings):
    """Generalised linear model with a Gaussian prior, fitted by EP or ADF [M]_.

    Each row has a latent value f = x'w + offset and an observation y with likelihood p(y|f); w ~ N(prior_mean,
    prior_variance). What is left to the data is chosen in `fit`; the posterior shows it, its model holds the numbers.

    Parameters
    ----------
    formula : str, optional
        Observations and effects in the notation of R, ``"claims ~ C(district) + age * sex + offset(log(holders))"``,
        which `fit` reads from a table; needs the formula extra. ``y ~ .`` takes all other columns. Random effects like
        ``(1 + days | subject)`` make it a mixed model, see `MixedGLM`. Without a formula the first argument may be the
        likelihood.
    likelihood : cavity.likelihoods.Likelihood or str, optional
        For example ``cavity.likelihoods.Probit()``, or one of your own; or a name, as "logit", "binomial",
        "ordered-probit", "poisson", "negative-binomial", "gamma", "weibull", "beta", "gaussian" or "student-t"
        (`cavity.likelihoods` has all of them), which leaves scales, shapes, dispersion and thresholds to the fit. By
        default y decides: "logit" for two different values, "ordered-probit" for ordered categories, "weibull" for
        times with events, "gaussian" for other numbers. Counts are not guessed.
    prior_mean : float or array_like (D,), default 0.0
        Mean of the prior of the weights.
    prior_variance : float, array_like (D,) or (D, D), optional
        Variance of every weight, of each, or the covariance matrix of all. By default it is in the scale of the data,
        (c/s_j)^2 for column j [GJ]_: s_j is its standard deviation, or (b - a)/2 for a column of two values a < b,
        however rare; c is 2.5 for logit and for counts, 2.5/1.7 for probit and ordered probit, whose unit is 1.7 of
        logit's, and 2.5 robust spreads of y for real y. A constant column has the variance of an intercept then. For
        approximation="diagonal" it is 1.
    approximation : {"full", "diagonal"}, default "full"
        Posterior with all covariances, or with independent weights: for sparse X with very many columns [G]_.
    intercept : bool or float, optional
        Whether to put a column of ones before X, for data whose columns have none; its weight is the first one. Its
        prior has the median of y for its mean (0 for labels and counts), and this variance; True stands for a wide one,
        (10 c)^2 and what the means of the columns add. By default there is no intercept, and a warning if X has no
        constant column; False is for none. `OrderedProbit` has its thresholds instead. A formula says whether there is
        one, so that this may only be its prior variance.
    standardize : bool, default False
        Whether to divide columns by their standard deviations, after subtracting their means if `intercept` is given;
        constant columns stay as they are. `prior_mean` and `prior_variance` are those of the scaled columns then, as
        are mean and variance of the posterior; `GLMPosterior.summary` is in the units of the columns.
    centre : array_like (D,), optional
        What to subtract from the columns, in place of their means: f is (x - centre)'w, but for an intercept. Where
        thresholds are open the means are subtracted in any case, and the model of the posterior has them here.
    priors : dict, optional
        Priors of `cavity.priors` of what is learnt, by names: parameters of the likelihood ("dispersion"),
        "prior_variance", and hyperparameters of the terms of a formula, as in `MixedGLM`. The log evidence plus their
        log density is maximised then.
    graphs : dict, optional
        Matrices by names, for terms of a formula like ``precision(g, Q)``; see `MixedGLM`.
    integrate : {False, "auto", "grid", "ccd", "mode"}, default False
        Whether hyperparameters are integrated with proper priors, and the posterior is corrected for what EP misses:
        parameters of the likelihood and prior variances that are learnt, and those of the groups and terms of a
        formula, see `MixedGLM`. Without groups "auto" does so for up to 30 rows and six hyperparameters.
    bins : int, optional
        Where the covariates of smooths have more different values than that, they are rounded to so many, at equal
        distances over their range, so that more rows are equal and have one site together; a fit of many rows
        takes less time and memory, and errors are those of shifting covariates by half a bin. By default none.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefiniteError
        For settings outside their domain, naming them.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = np.where(X @ [2.0, -1.0] + rng.normal(size=200) > 0.5, "yes", "no")
    >>> posterior = cavity.GLM(intercept=True).fit(X, y)
    >>> posterior.model.likelihood, posterior.mean.round(1).tolist()
    (Logit(), [-0.7, 3.1, -1.6])

    By formula, from a data frame:

    >>> table, about = cavity.data.table("sleepstudy", as_frame=True)
    >>> posterior = cavity.GLM("Reaction ~ Days").fit(table)
    >>> posterior.coefficient_names, posterior.mean.round(1).tolist()
    (('intercept', 'Days'), [251.4, 10.5])

    All settings given, as for any reference to a result:

    >>> X = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1]])
    >>> posterior = cavity.GLM(cavity.likelihoods.Step(), prior_variance=1.0).fit(X, [1, 1, -1])
    >>> posterior.mean.round(3).tolist(), round(posterior.log_evidence, 6)
    ([-1.178, 0.514, 0.533], -2.486153)
    """

    if TYPE_CHECKING:  # what the first argument may be, for editors and type checkers

        @overload
        def __init__(
            self,
            formula: str,
            likelihood: Likelihood | LikelihoodName | None = None,
            *,
            prior_mean: FloatOrArray = 0.0,
            prior_variance: FloatOrArray = None,
            approximation: str = "full",
            intercept: bool | float | None = None,
            standardize: bool = False,
            centre: FloatOrArray = None,
            priors: Mapping[str, Any] | str | None = None,
            graphs: Mapping[str, Any] | None = None,
            integrate: str | bool = False,
            bins: int | None = None,
        ) -> None: ...

        @overload
        def __init__(
            self,
            likelihood: Likelihood | LikelihoodName | None = None,
            *,
            prior_mean: FloatOrArray = 0.0,
            prior_variance: FloatOrArray = None,
            approximation: str = "full",
            intercept: bool | float | None = None,
            standardize: bool = False,
            centre: FloatOrArray = None,
            priors: Mapping[str, Any] | str | None = None,
            graphs: Mapping[str, Any] | None = None,
            integrate: str | bool = False,
            bins: int | None = None,
        ) -> None: ...

        def __init__(self, formula: Any = None, likelihood: Any = None, **settings: Any) -> None: ...

    @suggest_dropping
    def fit(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        missing: Literal["raise", "drop"] = "raise",
        method: Literal["ep", "adf"] = "ep",
        schedule: Literal["parallel", "sequential", "stochastic"] = "parallel",
        damping: float = 1.0,
        power: float = 1.0,
        learn: bool | str | tuple[str, ...] | None = None,
        prior_groups: ArrayLike | None = None,
        max_iter: int = 200,
        tol: float = 1e-8,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> GLMPosterior | MixedGLMPosterior:
        """Approximate the posterior of the weights.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, list of paths, Source, or scipy.sparse for approximation="diagonal"
            Design matrix; float64 is not copied, other types are converted block by block. Files are read in every
            sweep, block by block; dask collections are worked on where they are. The posterior keeps the names of the
            columns of a table. With a formula a table with all its columns: a data frame, a dictionary of columns, or
            a file with names of columns, of which those that the formula names are read.
        y : array_like (N,) or str, optional
            Observations in the form of the likelihood: numbers; counts; labels of any two kinds; ordered categories;
            bounds, or successes and trials, (N, 2), or two names. A string, here and below, is the name of a column of
            X, which is then no feature. A formula names them.
        event : array_like (N,) or str, optional
            Of times y: 1 or True where the event was observed, 0 or False where it was not until then. Likelihoods of
            times take bounds (N, 2) as well, lower and upper, which need no events.
        offset : array_like (N,) or str, optional
            Known part of f.
        exposure : array_like (N,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        sample_weight : array_like (N,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.
        missing : {"raise", "drop"}, default "raise"
            What is done about rows without a value in a column that the fit reads: refuse them, naming the first, or
            leave them out; `dropped` of the posterior counts them.
        method : {"ep", "adf"}, default "ep"
            "adf" sees each row once, in order, on which the result depends, much so where coefficients drift, see
            `GLMPosterior.update`; schedule, damping, power, learn, max_iter, tol and callback are EP's.
        schedule : {"parallel", "sequential", "stochastic"}, default "parallel"
            Renew all sites at once (after a first sweep over some rows one by one; fastest, uses `n_threads`), or
            one after the other, or keep one averaged site for all rows (memory independent of N, no leave-one-out).
        damping : float in (0, 1], default 1.0
            Largest fraction of each site change that is made; it is adapted downwards while changes do not fall.
        power : float in [1e-6, 1], default 1.0
            Exponent of power EP; 1 is EP.
        learn : None, str, tuple of str or True, default None
            What to find by maximising the log evidence, beside the parameters of the likelihood that are None, which
            always are: "prior_variance", names of parameters of the likelihood, or True for all of these. Of the prior
            variance a factor is learnt if it is left to the data, a number or a matrix, all entries if it is a vector
            (automatic relevance determination), or what `prior_groups` says. That of an added intercept stays.
        prior_groups : array_like (D,) of int, optional
            Columns of one number share a factor on their prior variances, which is learnt; those of negative numbers
            keep theirs.
        max_iter : int, default 200
            Most sweeps; of the steps of the double loop, where sweeps do not converge, three times as many.
        tol : float, default 1e-8
            Stopping rule: a sweep moves the mean of no linear functional of w by more than tol posterior standard
            deviations, and its variance by no more than the relative amount tol (divided by the damping in use).
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.
        callback : callable, optional
            Called as callback(event) with a `cavity.Event` after each sweep, and evaluation of a search; a true result
            stops the fit and keeps what is known.
        progress : bool, default False
            Whether to show progress on stderr: a bar where tqdm is installed, else lines.
        checkpoint : str or path-like, optional
            File that keeps how far the fit is: killed, it goes on from there when it is called again with the same data
            and options, and ends in the same bits. The file stays when the fit is done.
        checkpoint_every : float, default 60.0
            Seconds from one writing of it to the next; 0 writes it after each pass or step.

        Returns
        -------
        GLMPosterior or MixedGLMPosterior
            The frozen posterior; the second where a formula has random effects, as of a fit by `MixedGLM`.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work.
        MemoryError
            If the matrices of dependent weights do not fit into the memory of the machine, before X is read;
            the message says how many bytes they need.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; the posterior is returned all the same, with ``converged=False``.
        NumericalWarning
            If a search has found no maximum; if `prior_variance` is left to the data and a column separates the
            observations, as a dummy does of which all rows have one class or no counts: see the notes.

        Notes
        -----
        A pass costs N D min(N, D) operations: with fewer rows than columns the work is done in the N directions of
        weight space that the data see. Sites may have negative precision (outliers under StudentT) and are not clamped.
        A step that makes a cavity or the posterior improper is taken back half-way and the damping is increased; when
        the change has not halved in 10 sweeps the fixed point is found by minimising EP's free energy, a double loop
        whose every step lowers it.

        Learning is a search by L-BFGS with exact gradients, from the given values and from some that the data suggest,
        over logs of variances, scales and the like: at a fixed point of EP the sites count as constants. Standard
        errors are those of the curvature of the log evidence at its maximum. Each fit starts from the sites of the one
        before, all together take as long as some twenty fits. Where the evidence has no maximum a NumericalWarning says
        so: a dispersion without bound, for example, means that the counts are Poisson. Where it still rises at the end
        of the range that is searched, as with noise of a y that is constant or fitted exactly, the fit has not
        converged.

        Rows in files stay there, with the same bits as from an array in memory; y, offset, exposure and sample_weight
        are in memory. EP keeps two numbers a row, from 2^24 rows in files on in scratch files.
        Then the posterior has no `sites` and no `loo_log_density`, and where sweeps do not converge the fit ends
        without the double loop, not converged. Looking through a file takes a pass before the first sweep, and two more
        where the scales of columns are needed.

        A column separates the observations if its coefficient could grow without end and no row would become less
        likely [AA]_: the rows of one class are on one side of those of the other, but for ties; all counts of a dummy
        are 0. The data then bound the coefficient on one side only, and the default prior decides how large it is.
        That is searched for after EP, one column at a time, not in directions of several columns together: for
        labels, ordered classes, counts and bounds, not for sparse X and collections of dask, and not where
        `prior_variance` is given. It reads few rows, but all of them again where a column does separate them.

        With weights w, the exponent inside the tilted distribution is ``power * min(1, w)`` and the cavity leaves out
        the fraction ``power * min(1, 1/w)`` of the row's site: integer weights equal repeated rows exactly.

        Fits that are started from several Python threads take turns, because BLAS is held to one thread meanwhile.

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
        columns = {"y": y, "event": event, "offset": offset, "exposure": exposure, "sample_weight": sample_weight}
        iteration = {"schedule": schedule, "damping": damping, "power": power, "max_iter": max_iter, "tol": tol}
        job = Job.checked(callback, progress, checkpoint, checkpoint_every)
        if self.formula is not None and has_random_effects(self.formula):
            options = iteration | {"n_threads": n_threads, "callback": job}
            return fit_mixed(self, X, columns, missing, options, method, learn, prior_groups)
        run = Options.checked(schedules=(*EP_SCHEDULES, "stochastic"), **iteration, n_threads=n_threads, job=job)
        inputs = LinearInputs.of(self, X, columns, missing)
        dataset, observations = inputs.dataset, inputs.observations
        names = choose_names_to_learn(observations.likelihood, learn)
        check_method(self, method, run, names, inputs)
        rows = observations.rows(open_features(dataset, self.approximation))
        model = replace_unchecked(self, formula=None, likelihood=observations.likelihood, intercept=inputs.intercept)
        with run.open(model, rows.named(), method=method, learn=names, prior_groups=prior_groups) as threads:
            scan(rows.X, rows.weights, run.job)
            resolved = resolve_defaults(model, rows, observations.names)
            problem = GLMProblem.of(resolved.model, resolved.rows)
            groups = check_groups(prior_groups, self.prior_variance, problem, names, resolved.fields["intercept"])
            solution = solve(problem, method, run, threads, names, groups)
            if method == "adf":
                run.job.report(1, rows=problem.used.n)
        if method == "ep":
            solution.fit.warn(run)
            warn_of_separation(model, rows, observations.names, resolved.fields["intercept"])
        return make_posterior(solution, method, **resolved.described(observations), **inputs.labels())


def check_method(model, method, run, names, inputs):
    """Raise ValueError or TypeError for methods, schedules and learning that cannot be had together.

    Raise MemoryError where what they need does not fit into memory.

    Parameters
    ----------
    model : GLM
        The settings.
    method : str
        As `GLM.fit` takes it.
    run : Options
        With the schedule, the damping and the power.
    names : tuple of str
        What is learnt.
    inputs : LinearInputs
        The rows.
    """
    kind = inputs.dataset.kind
    arrays.check_choice(method, "method", ("ep", "adf"))
    check_can_learn(model, names, method, run.schedule)
    match_priors(model.priors, inputs.observations.likelihood, [PRIOR_VARIANCE_TARGET])
    if model.integrate is not False:
        is_full = model.approximation == "full" and method == "ep" and run.schedule != "stochastic"
        if not is_full or kind == ON_WORKERS or inputs.dataset.n_rows > MOST_IN_MEMORY:
            message = f"must be False without EP over all sites ({FITS_WITHOUT_SITES}), got {model.integrate!r}"
            raise arrays.error_of("integrate", message)
    if model.bins is not None:
        raise arrays.error_of("bins", f"has a meaning for formulas with smooths, got {model.bins!r}")
    if model.graphs is not None:
        raise arrays.error_of("graphs", "must be None where no term of a formula reads them, as precision(g, Q) does")
    if method == "adf" and (run.damping != 1 or run.power != 1 or names or run.schedule != "parallel"):
        message = "method='adf' sees each row once: schedule, damping, power and learn have no meaning"
        raise name_arguments(ValueError(message), "method")
    if model.approximation == "diagonal" and (run.schedule == "stochastic" or names):
        message = "approximation='diagonal' has no schedule='stochastic' and no learn"
        raise name_arguments(ValueError(message), "approximation", "schedule")
    if kind == ON_WORKERS and names:
        raise ValueError(
            f"X is a collection of dask, and {' and '.join(names)} would be learnt, which needs the rows in one "
            "process: give numbers, those of a fit to a sample of the rows for example"
        )
    if kind == ON_WORKERS and model.approximation == "diagonal":
        raise ValueError("X is a collection of dask: approximation='diagonal' needs the rows in one process")
    check_memory(inputs.dataset, model.approximation, inputs.observations.weights)


def model_from_settings(centre=None, spread=None, intercept=False, **settings):
    """Return the model of a posterior, whose settings are numbers; centre, spread and intercept are the posterior's."""
    return GLM(**settings, intercept=False, **make_scaling_settings(centre, spread, intercept))


POSTERIOR_MAKERS["glm"] = partial(make_single_posterior, model_from_settings), read_rows
