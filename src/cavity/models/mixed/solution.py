"""From a problem to the posterior of all effects."""

from dataclasses import replace

from cavity.base.errors import NumericalWarning, warn
from cavity.base.loop import CONVERGED_STATUS, STOPPED_STATUS
from cavity.ep.engine import Engine
from cavity.ep.sparse import Pattern, Precision, Sparse
from cavity.models.linear.evidence_search import Solution
from cavity.models.mixed.effects import Effects
from cavity.models.mixed.equal_rows import merge_equal_rows
from cavity.models.mixed.integration import StoppedIntegral, integrate_posterior
from cavity.models.mixed.variance_search import learn_settings
from cavity.runs.executors import Threads, single_blas


def solve(problem, names, options, threads):
    """Solve a problem by EP; `names` are those of the open parameters of the likelihood."""
    search, evidence, method = learn_settings(problem, names, threads, options)
    problem = search.optimum
    likelihood = problem.model.likelihood
    sites = problem.sites.make_sites(likelihood, options.power)
    geometry = problem.geometry(threads)
    last = options.job.final_job().substage("last")
    fit = Engine(geometry, sites, replace(options, job=last), search.start).run()
    effects, site_fit = Effects.of(geometry, fit.belief), fit
    fit = problem.sites.expand(problem.sites.correct(fit, likelihood), likelihood)
    fit = replace(fit, trace=site_fit.trace | search.trace)
    solution = Solution(problem, fit, effects, search.hyperparameters, search.status)
    if method is None:
        return solution
    return add_integration(solution, evidence, search, options, method, (site_fit.tau, site_fit.rho))


def add_integration(solution, evidence, search, options, method, start):
    """Return a solution with hyperparameters integrated, or with corrections at their maximum."""
    if options.job.stopped or not solution.fit.converged:
        return solution
    if method != "mode" and search.status != CONVERGED_STATUS:
        words = f"there is no integral over hyperparameters: the search for their maximum ended with: {search.status}"
        warn(words, NumericalWarning)
        return solution
    try:
        integration, log_evidence, loo = integrate_posterior(evidence, search, options, method, start)
    except StoppedIntegral:
        return replace(solution, searched=STOPPED_STATUS)
    except ArithmeticError as error:
        warn(f"there is no integral over hyperparameters: {error}", NumericalWarning)
        return solution
    value = solution.fit.log_evidence if log_evidence is None else log_evidence
    fit = replace(solution.fit, log_evidence=value, loo=loo)
    return replace(solution, fit=fit, integration=integration)


def update_effects(likelihood, rows, matrix, effects, options):
    """Take in rows, of which `matrix` (N, n) are the effects, under a prior that is a posterior: fit and effects."""
    merged = merge_equal_rows(likelihood, rows, matrix)
    pattern = Pattern(merged.matrix, effects.indices, effects.columns, effects.order)
    precision = Precision(effects.entries, effects.log_determinant, effects.bounds)
    with Threads(1) as threads, single_blas():
        geometry = Sparse(pattern, effects.mean, precision, merged.rows.offset, threads)
        fit = Engine(geometry, merged.make_sites(likelihood, options.power), options).run()
        return merged.correct(fit, likelihood), Effects.of(geometry, fit.belief)
