"""The solution of a GLM: the choice of engine, and the moments of the weights."""

from dataclasses import replace

import numpy as np

from cavity.base.errors import name_arguments
from cavity.ep.engine import filter_rows
from cavity.ep.factories import make_engine
from cavity.ep.fit_result import FitResult
from cavity.ep.sites import Sites
from cavity.ep.weights import WeightRoot, make_weights
from cavity.likelihoods.parameters import list_open_parameters
from cavity.models.glm.weights import Weights
from cavity.models.linear.evidence_search import learn_settings
from cavity.models.linear.solution import Solution
from cavity.models.search import SearchResult

MAX_ROW_COPIES = 1e7  # copies of rows in ADF beyond one each: some seconds


def solve(problem, method, run, threads, names=(), groups=None, before=None):
    """Solve a problem by EP or ADF.

    Parameters
    ----------
    problem : GLMProblem
        Rows, likelihood and prior.
    method : "ep" or "adf"
        How.
    run : Options
        Those of EP, and the job.
    threads : Threads
        For the work on blocks.
    names : tuple of str
        What is learnt.
    groups : ndarray or None
        The groups of prior variances that are learnt, see `checked_groups`.
    before : WeightRoot, optional
        Of the posterior that is the prior of an update.

    Returns
    -------
    Solution
    """
    rows, prior = problem.used, problem.prior
    if problem.model.approximation == "diagonal":
        from cavity.models.glm import diagonal  # scipy.sparse takes a while to load

        if method == "adf":
            _count_copies(rows.weights)
        fit = diagonal.fit(problem.model.likelihood, rows, prior, method, run)
        return Solution(problem, fit, Weights(fit.belief.mean, fit.belief.variance, None))
    if rows.n == 0:
        _check_no_open_parameters(problem.model.likelihood)
        covariance = WeightRoot(prior.root) if before is None else before
        return Solution(problem, _make_empty_fit(method), Weights.of(prior.mean, covariance))
    if run.schedule == "stochastic" and (run.power != 1 or np.any(rows.weight() < 1)):
        message = "schedule='stochastic' averages whole sites: power must be 1 and weights at least 1"
        raise name_arguments(ValueError(message), "schedule", "power")
    if method == "adf":
        search, (geometry, fit) = SearchResult(problem), _filter_rows(problem, threads)
    else:
        search = learn_settings(problem, names, groups, threads, run) if names else SearchResult(problem)
        problem = search.optimum
        sites = Sites(problem.model.likelihood, rows.y, rows.weights, run.power)
        geometry = problem.geometry(threads, run.job)
        last = run.job.final_job().substage("last")
        fit = make_engine(geometry, sites, replace(run, job=last), search.start).run()
    weights = Weights.of(*make_weights(problem.prior.moments, geometry, fit.belief))
    fit = replace(fit, trace=fit.trace | search.trace)
    return Solution(problem, fit, weights, search.hyperparameters, search.status)


def _check_no_open_parameters(likelihood):
    """Raise ValueError if a likelihood has open parameters but there are no rows to find them from."""
    for name in list_open_parameters(likelihood):
        raise ValueError(
            f"{name} of {type(likelihood).__name__} cannot be found: every row of X is 0 or has weight 0; give a number"
        )


def _make_empty_fit(method):
    """Return the fit of no rows."""
    trace = {} if method == "adf" else dict(change=np.zeros(1), improper=np.zeros(1), double_loop=np.array(0))
    none = dict.fromkeys(("tau", "rho", "loo"), np.zeros(0))
    return FitResult.of_one_pass(belief=None, log_evidence=0.0, trace=trace, **none)


def _filter_rows(problem, threads):
    """Run ADF over the rows in order; a row of weight w > 1 is repeated."""
    rows = _repeat_rows(problem.used)
    geometry = replace(problem, used=rows).geometry(threads)
    belief, log_z = filter_rows(geometry, Sites(problem.model.likelihood, rows.y, rows.weights))
    if belief is None:
        raise ArithmeticError("ADF lost the posterior to rounding; rescale the columns of X")
    return geometry, FitResult.of_one_pass(belief=belief, log_evidence=log_z)


def _count_copies(weights):
    """Return how often ADF repeats rows of these weights, None for once; ValueError for too many copies."""
    if weights is None:
        return None
    times = np.ceil(weights)
    copies = np.sum(times - np.minimum(times, 1.0))
    if copies > MAX_ROW_COPIES:
        raise ValueError(
            f"ADF takes in a row of weight w that many times; the weights ask for {copies:.3g} copies of rows, "
            f"more than {MAX_ROW_COPIES:.0e}: use method='ep'"
        )
    return times


def _repeat_rows(rows):
    """Return rows of weight w > 1 repeated, whole copies first, with the weights that remain."""
    times = _count_copies(rows.weights)
    if times is None:
        return rows
    times = times.astype(np.intp)
    index = np.repeat(np.arange(len(times)), times)
    weights = np.ones(len(index))
    weights[np.cumsum(times) - 1] = rows.weights - (times - 1)
    return replace(rows.part(index), weights=weights)
