"""The prior variance of a GLM by the log evidence."""

from dataclasses import replace

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.ep.engine import Engine
from cavity.ep.stochastic import Stochastic
from cavity.ep.weights import weights_of

LEARN_SCAN = tuple(float(np.log(10.0)) * k for k in (0, -2, 2, -4, 4, -6, 6, -8, 8))
PRIOR_RANGE = 1e10  # the learned prior variance stays within this factor of the given one


def engine_of(geometry, sites, options, start):
    """Return the engine of a schedule."""
    if options.schedule == "stochastic":
        return Stochastic(geometry, sites, options)
    return Engine(geometry, sites, options, start)


def learned(problem, sites, threads, options):
    """Maximise the log evidence over the prior variance; return the problem with it and the sites to start from."""
    from scipy.optimize import minimize

    prior = problem.prior
    is_vector = prior.variance.ndim == 1
    n_free = prior.variance.size if is_vector else 1
    quiet = replace(options, callback=None)
    start = None

    def scaled(theta):
        factor = np.exp(theta) if is_vector else float(np.exp(theta[0]))
        return problem.with_prior(prior.mean, prior.variance * factor)

    def objective(theta):
        nonlocal start
        candidate = scaled(theta)
        geometry = candidate.geometry(threads)
        fit = engine_of(geometry, sites, quiet, start).run()
        start = fit.tau, fit.rho
        return -fit.log_evidence, -_evidence_gradient(candidate.prior, geometry, fit.belief)

    bound = float(np.log(PRIOR_RANGE))
    # far from the maximum the evidence is flat: begin where a common factor is best
    first = max(LEARN_SCAN, key=lambda theta: -objective(np.full(n_free, theta))[0])
    result = minimize(objective, np.full(n_free, first), jac=True, method="L-BFGS-B", bounds=[(-bound, bound)] * n_free)
    further = np.clip(result.x + np.sign(result.x) * np.log(100.0), -bound, bound)
    if not is_vector and objective(further)[0] <= result.fun + 1e-6:
        warn(
            "the log evidence has no maximum in the prior variance: it does not fall beyond "
            f"{np.exp(result.x[0]):.1g} times the given one; the search ended there",
            NumericalWarning,
        )
    best = scaled(result.x)
    return replace(best, model=replace(problem.model, prior_variance=best.prior.variance)), start


def _evidence_gradient(prior, geometry, belief):
    """d log evidence / d log prior variance: that of the expected log prior, as the sites are at their fixed point.

    One entry for a number or a matrix (a factor on it), D for a vector. [M]_ and math of GPML section 5.5.
    """
    if prior.variance.ndim != 1:
        return np.array([belief.prior_slope()])
    mean, covariance = weights_of(prior.moments, geometry, belief)
    return weight_gradient(prior.variance, mean - prior.mean, covariance.variances())


def weight_gradient(prior_variance, apart, variances):
    """The derivatives for each weight, from its posterior mean less that of the prior and its posterior variance."""
    return 0.5 * ((apart**2 + variances) / prior_variance - 1.0)
