"""From a problem to the posterior of all effects."""

from dataclasses import replace

from cavity.ep.engine import Engine
from cavity.ep.sparse import Pattern, Precision, Sparse
from cavity.models.integral import add_integral
from cavity.models.linear.evidence_search import Solution
from cavity.models.mixed.effects import Effects, EffectsMixture
from cavity.models.mixed.equal_rows import merge_equal_rows
from cavity.models.mixed.variance_search import learn_settings
from cavity.runs.executors import Threads, single_blas


def solve(problem, names, options, threads, varies=True):
    """Solve a problem by EP; `names` are those of the open parameters of the likelihood.

    `varies` is false where y has no variation from which standard deviations could be found.
    """
    search, evidence, method = learn_settings(problem, names, threads, options, varies)
    problem = search.optimum
    likelihood = problem.model.likelihood
    sites = problem.sites.make_sites(likelihood, options.power)
    geometry = problem.geometry(threads)
    last = options.job.final_job().substage("last")
    fit = Engine(geometry, sites, replace(options, job=last), search.start).run()
    effects, site_fit = Effects.of(geometry, fit.belief), fit
    fit = problem.sites.expand(problem.sites.correct(fit, likelihood), likelihood)
    fit = replace(fit, trace=site_fit.trace | search.trace)
    integration, joint, status = None, effects, search.status
    if method is not None:
        start = site_fit.tau, site_fit.rho
        fit, integration, points, status = add_integral(fit, evidence, search, options.job, method, start)
        joint = effects if integration is None else EffectsMixture(points, integration.weights)
    return Solution(problem, fit, effects, search.hyperparameters, status, integration, joint)


def update_effects(likelihood, rows, matrix, effects, options):
    """Take in rows, of which `matrix` (N, n) are the effects, under a prior that is a posterior: fit and effects."""
    merged = merge_equal_rows(likelihood, rows, matrix)
    pattern = Pattern(merged.matrix, effects.indices, effects.columns, effects.order)
    precision = Precision(effects.entries, effects.log_determinant, effects.bounds)
    with Threads(1) as threads, single_blas():
        geometry = Sparse(pattern, effects.mean, precision, merged.rows.offset, threads)
        fit = Engine(geometry, merged.make_sites(likelihood, options.power), options).run()
        return merged.correct(fit, likelihood), Effects.of(geometry, fit.belief)
