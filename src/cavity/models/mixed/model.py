"""Generalised linear mixed models by expectation propagation over a sparse posterior.

References
----------
.. [CH] B. Cseke and T. Heskes, "Approximate marginals in latent Gaussian models", JMLR 12, 2011.
.. [CRGLD] Y. Chung, S. Rabe-Hesketh, V. Dorie, A. Gelman and J. Liu, "A nondegenerate penalized likelihood estimator
   for variance parameters in multilevel models", Psychometrika 78, 2013.
.. [OPW] M. Opper, U. Paquet and O. Winther, "Perturbative corrections for approximate inference in Gaussian latent
   variable models", JMLR 14, 2013.
.. [RMC] H. Rue, S. Martino and N. Chopin, "Approximate Bayesian inference for latent Gaussian models by using
   integrated nested Laplace approximations", JRSS B 71, 2009.
.. [Wo] S. N. Wood, Z. Li, G. Shaddick and N. H. Augustin, "Generalized additive models for gigadata: modeling the UK
   black smoke network daily data", Journal of the American Statistical Association 112, 2017.
.. [GTC] A. R. Gilmour, R. Thompson and B. R. Cullis, "Average information REML: an efficient algorithm for variance
   parameter estimation in linear mixed models", Biometrics 51, 1995.
.. [GJ] A. Gelman, A. Jakulin, M. G. Pittau and Y.-S. Su, "A weakly informative default prior distribution for logistic
   and other regression models", Annals of Applied Statistics 2, 2008.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from cavity.base import arrays
from cavity.base.errors import suggest_dropping
from cavity.base.public_objects import ArrayLike, Data, FloatOrArray, Frozen, replace_unchecked, set_fields
from cavity.ep.options import Options
from cavity.jobs.job import Event, Job
from cavity.likelihoods import Likelihood
from cavity.likelihoods.parameters import list_open_parameters
from cavity.models.defaults import check_likelihood
from cavity.models.hyperpriors import AVOID_ZERO_PRIOR, check_priors, match_priors
from cavity.models.integration_designs import check_integrate
from cavity.models.linear.defaults import resolve_defaults
from cavity.models.linear.separation import lacks_variation, warn_of_separation
from cavity.models.linear.settings import LinearSettings
from cavity.models.many.posterior import POSTERIOR_MAKERS
from cavity.models.mixed.inputs import Inputs, is_intercept_left_out
from cavity.models.mixed.many_responses import ManyMixedResponses
from cavity.models.mixed.posterior import MixedGLMPosterior, make_posterior
from cavity.models.mixed.problem import MixedProblem
from cavity.models.mixed.single_posteriors import make_single_posterior, read_rows
from cavity.models.mixed.solution import solve
from cavity.models.mixed.structured_rows import MIN_BINS, warn_of_terms
from cavity.models.mixed.terms import RandomEffects, check_effects
from cavity.models.mixed.variance_search import list_targets
from cavity.terms.base import StructuredTerm


@dataclass(frozen=True, slots=True, eq=False)
class MixedGLM(ManyMixedResponses, Frozen):
    """Generalised linear mixed model: effects of all rows, and random effects that differ by group, fitted by EP [CH]_.

    Each row has a latent value f = x'w + sum over terms of z'b + offset, b the effects of the row's level of the term,
    and an observation y with likelihood p(y|f). The fixed effects w have a Gaussian prior; the effects of each level of
    a term are N(0, V), where V, a number or a small matrix, is given or maximises the log evidence. With Gaussian noise
    all this is exact: a linear mixed model, whose fixed effects are integrated out as in REML.

    Parameters
    ----------
    effects : str, RandomEffects, StructuredTerm, or sequence of these
        A formula in lme4's notation, as ``"good ~ service + (1 | student) + (1 | lecturer)"``, which `fit` reads from a
        data frame and needs the formula extra; or the random effects alone, where `fit` is given X and y. A string
        without "~" is the group of an intercept.
    likelihood : cavity.likelihoods.Likelihood or str, optional
        As in `GLM`: an object, or a name as "probit", "binomial" or "poisson"; scales and dispersions that are left
        open are found by the fit. By default y decides; "binomial" for ``p(successes, trials)`` of a formula.
    prior_mean : float or array_like (D,), default 0.0
        Mean of the prior of the fixed effects.
    prior_variance : float, array_like (D,) or (D, D), optional
        Variance of every fixed effect, of each, or the covariance matrix of all; by default in the scale of the data,
        as in `GLM` [GJ]_.
    effect_covariances : dict, optional
        Variances, or covariance matrices (k, k), of terms by their names, as `MixedGLMPosterior.terms` has them: those
        given are not learnt.
    priors : dict or "avoid-zero", optional
        Priors of `cavity.priors` of what is learnt, by names of hyperparameters ("sd(s(age))", "dispersion"), of terms
        (of their standard deviations, or a dict such as ``{"sd": prior, "rho": prior}``), or of kinds ("sd" is all
        standard deviations). The log evidence plus their log density is maximised then; by default they are flat.
        "avoid-zero" is in proportion to ``|V|^(1/2)`` of each term, for one effect the sd itself, which keeps variances
        away from 0 where there are few levels (equations 5 and 7 of [CRGLD]_ with the rate going to 0).
    intercept : bool or float, optional
        As in `GLM`, for X without a constant column. Formulas have their own, so that it must be None, but for
        `OrderedProbit`: open thresholds stand for the intercept of a formula, which is left out whether it is written
        or not (``x``, ``1 + x`` and ``0 + x`` are one model, and categories have an effect of each but the first);
        False does the same where thresholds are given.
    centre : array_like (D,), optional
        What to subtract from the columns of the fixed effects. Where thresholds are open their means are subtracted in
        any case, and the model of the posterior has them here.
    graphs : dict, optional
        What formulas have names for: matrices (Q, levels) of ``precision(g, Q)``, Q sparse, the precision of effects
        of the levels; graphs W of ``bym2(region, W)`` and other fields, as `cavity.terms.MarkovField` takes them, or a
        matrix of weights with its regions, (W, regions).
    integrate : {False, "auto", "grid", "ccd", "mode"}, default False
        Whether the posterior is integrated over hyperparameters with proper priors, those of `priors` or by default
        weak ones (see `docs/guide/priors`), on a grid, for up to three, or by a central composite design, for up to
        eight [RMC]_; "auto" takes a grid for up to two, the design for up to six, and integrates only where a group has
        at most 30 levels. "mode" stays at the maximum. All but False correct the evidence and the marginals of EP by
        higher cumulants [OPW]_.
    bins : int, optional
        Where the covariates of smooths have more different values than that, they are rounded to so many, at equal
        distances over their range, so that more rows are equal and have one site together; a fit of many rows
        takes less time and memory, and errors are those of shifting covariates by half a bin. By default none.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain, naming them.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> school, x = rng.integers(20, size=600), rng.normal(size=600)
    >>> f = 0.5 * x + rng.normal(size=20)[school]
    >>> y = f + rng.normal(size=600) > 0
    >>> model = cavity.MixedGLM("school", "probit")
    >>> posterior = model.fit(np.column_stack([np.ones(600), x]), y, groups={"school": school})
    >>> posterior.converged, posterior.hyperparameters.names
    (True, ('sd(intercept | school)',))
    """

    effects: str | RandomEffects | StructuredTerm | Sequence[RandomEffects | StructuredTerm | str]
    likelihood: Likelihood | Any = None
    prior_mean: FloatOrArray = 0.0
    prior_variance: FloatOrArray = None
    effect_covariances: Mapping[str, Any] | None = None
    priors: Mapping[str, Any] | str | None = None
    intercept: bool | float | None = None
    centre: FloatOrArray = None
    graphs: Mapping[str, Any] | None = None
    integrate: str | bool = False
    bins: int | None = None

    def __post_init__(self) -> None:
        if not self.formula:
            set_fields(self, effects=check_effects(self.effects))
        set_fields(self, likelihood=check_likelihood(self.likelihood))
        fixed = self._fixed_effects()
        set_fields(self, **{name: getattr(fixed, name) for name in ("prior_mean", "prior_variance", "centre")})
        if self.formula and self.intercept not in (None, False):
            text = f"must be None where there is a formula, which contains it; got {self.intercept!r}"
            raise arrays.error_of("intercept", text)
        set_fields(self, priors=check_priors(self.priors))
        if self.bins is not None:
            set_fields(self, bins=arrays.check_integer(self.bins, "bins", low=MIN_BINS))
        if check_integrate(self.integrate) is not False and self.priors == AVOID_ZERO_PRIOR:
            raise arrays.error_of("priors", "must be proper where hyperparameters are integrated: give a dict")
        if self.effect_covariances is not None:
            if not isinstance(self.effect_covariances, Mapping):
                message = f"must be a dict of variances by names of terms, got {self.effect_covariances!r}"
                raise arrays.error_of("effect_covariances", message, TypeError)
            covariances = {str(name): _check_covariance(value, name) for name, value in self.effect_covariances.items()}
            set_fields(self, effect_covariances=covariances)

    @property
    def formula(self) -> bool:
        """Whether the effects are a formula."""
        return isinstance(self.effects, str) and "~" in self.effects

    @suggest_dropping
    def fit(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        groups: Any = None,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        missing: Literal["raise", "drop"] = "raise",
        damping: float = 1.0,
        power: float = 1.0,
        max_iter: int = 200,
        tol: float = 1e-8,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> MixedGLMPosterior:
        """Approximate the posterior of all effects, and find what is open of covariances and likelihood.

        Parameters
        ----------
        X : data frame, or array_like (N, D)
            With a formula a data frame with all its columns. Else the columns of the fixed effects; a data frame may
            have y, groups and others among its columns, which are named below.
        y : array_like (N,) or str, optional
            Observations in the form of the likelihood; a formula names them.
        groups : dict of columns (N,), data frame, or one column, optional
            Labels of the groups by their names; by default columns of X, which are then no features.
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
        checkpoint : str or path-like, optional
            File that keeps how far the fit is: killed, it goes on from there when it is called again with the same data
            and options, and ends in the same bits. The file stays when the fit is done.
        checkpoint_every : float, default 60.0
            Seconds from one writing of it to the next; 0 writes it after each pass or step.

        Returns
        -------
        MixedGLMPosterior
            The frozen posterior.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work: a group with missing labels, a slope of a constant column, a term
            of the formula that is not understood, naming it.
        MemoryError
            If the factor of the precision of all effects does not fit into the memory of the machine, as soon as its
            size is known; the message says how many bytes it needs.
        ImportError
            For a formula, if the formula extra is not installed, with the command that installs it.

        Warns
        -----
        ConvergenceWarning
            If a stopping rule was not met, or the log evidence grows without bound as noise that is learnt goes to 0
            (y is constant, or fitted exactly); the posterior is returned all the same, with ``converged=False``.
        NumericalWarning
            If the log evidence has no maximum in a standard deviation, which is then at an end of its range; if y holds
            one class or no count above 0, from which none is found; if a column separates the observations, as for
            `GLM`.

        Notes
        -----
        All sites are renewed from one belief (parallel EP). A pass costs a sparse Cholesky factorisation of the
        posterior precision, whose order of elimination is found once from the groups, and its selected inverse: time
        and memory grow with the rows and, for nested groups, with their number; two crossed factors cost the cube of
        the number of levels of the smaller one.

        Covariances and parameters of the likelihood maximise the log evidence by L-BFGS with exact gradients, over the
        logs of standard deviations and the inverse hyperbolic tangents of correlations, of effects given those before
        both, up to 0.9999; each fit on the way starts from the sites of the one before. From 4,096 rows on they first
        move with single passes, by Newton steps with the average information [GTC]_, of 262,144 rows and more with
        non-Gaussian noise on a sixteenth of these before all, and standard errors follow from the response of EP's
        fixed point; with fewer rows, or weights, they are of differences of gradients. Priors
        count by the density of the log of a standard deviation, of log((1 + r)/(1 - r)) of a correlation r and of the
        logit of a share, so that a proper one of a standard deviation has its maximum away from 0; `hyperparameters` of
        the posterior have the log density at the maximum.

        Rows with the same effects and offset are one site, which is exact; `bins` makes more of them, by the
        discretisation of [Wo]_.
        """
        others = {"event": event, "offset": offset, "exposure": exposure, "sample_weight": sample_weight}
        inputs = Inputs.of(self, X, y, groups, others, missing)
        observations, reader = inputs.observations, inputs.reader
        iteration = {"damping": damping, "power": power, "max_iter": max_iter, "tol": tol}
        job = Job.checked(callback, progress, checkpoint, checkpoint_every)
        run = Options.checked(schedules=("parallel",), **iteration, n_threads=n_threads, job=job)
        covariances = _match_settings(inputs.terms, self.effect_covariances or {})
        match_priors(self.priors, observations.likelihood, list_targets(inputs.terms))
        settings, rows = self._fixed_effects(observations.likelihood), observations.rows(inputs.X)
        resolved = resolve_defaults(settings, rows, reader.columns)
        prepared = {name: resolved.fields[name] for name in ("intercept", "centre", "spread")}
        model, reader = self._with_numbers(observations.likelihood, resolved.model), replace(reader, **prepared)
        dropped, data = inputs.dropped, inputs.named(resolved.rows)
        with run.open(model, data) as threads:
            problem = MixedProblem.of(model, resolved.rows, inputs.terms, covariances)
            del inputs, data  # rows of structured terms, which are long
            varies = not lacks_variation(settings, rows, reader.intercept)
            solution = solve(problem, list_open_parameters(observations.likelihood), run, threads, varies)
        solution.fit.warn(run)
        warn_of_terms(solution.problem)
        warn_of_separation(settings, rows, reader.columns, reader.intercept)
        chosen = resolved.fields["chosen"] + observations.chosen
        return make_posterior(solution, reader, classes=observations.classes, chosen=chosen or None, dropped=dropped)

    def _settings_of(self, terms):
        """Return the covariance of each term, None where it is not given."""
        return _match_settings(terms, self.effect_covariances or {})

    def _fixed_effects(self, likelihood=None):
        """Return the settings of the fixed effects, checked."""
        intercept = False if self.formula else self.intercept
        prior = {name: getattr(self, name) for name in ("prior_mean", "prior_variance", "centre")}
        return LinearSettings(likelihood=likelihood, intercept=intercept, **prior)

    def _with_numbers(self, likelihood, fixed):
        """Return the model of the posterior, with the settings of its fixed effects."""
        numbers = {name: getattr(fixed, name) for name in ("prior_mean", "prior_variance", "centre")}
        intercept = None if self.formula and not is_intercept_left_out(self, likelihood) else False
        return replace_unchecked(self, likelihood=likelihood, intercept=intercept, **numbers)


def _check_covariance(value, name):
    """A variance or a covariance matrix of a term, as a matrix."""
    name = f"effect_covariances[{name!r}]"
    if isinstance(value, Mapping):  # values of parameters, checked when the term is built
        return dict(value)
    value = arrays.check_finite_array(value, name, ndim=(0, 2))
    value = value.reshape(1, 1) if value.ndim == 0 else arrays.check_symmetric(value, name)
    arrays.cholesky(value, name)
    return arrays.copy_read_only(value)


def _match_settings(terms, covariances):
    """The setting of each term as far as it is given; ValueError for names and shapes that are none of theirs."""
    names = [term.name for term in terms]
    unknown = [name for name in covariances if name not in names]
    if unknown:
        message = f"must be of the terms {', '.join(map(repr, names))}, got {unknown[0]!r}"
        raise arrays.error_of("effect_covariances", message)
    return [term.check_setting(covariances.get(term.name), f"effect_covariances[{term.name!r}]") for term in terms]


def model_from_settings(effects, intercept=None, centre=None, reader_intercept=False, **settings):
    """Return the model of a posterior, whose settings are numbers; files of earlier versions have no `intercept`."""
    intercept = False if intercept is None and not isinstance(effects, str) else intercept
    return MixedGLM(effects, intercept=intercept, centre=None if reader_intercept else centre, **settings)


POSTERIOR_MAKERS["mixed"] = tuple(partial(make, model_from_settings) for make in (make_single_posterior, read_rows))
