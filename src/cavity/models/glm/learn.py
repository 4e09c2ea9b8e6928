"""The prior variance of a GLM by the log evidence."""

from dataclasses import replace

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.ep.engine import Engine
from cavity.ep.stochastic import Stochastic
from cavity.ep.weights import weights_of

LEARN_SCAN = tuple(float(np.log(10.0)) * k for k in (0, -2, 2, -4, 4, -6, 6, -8, 8))
LEARN_RANGE = 1e10  # the learned prior variance stays within this factor of the given one


def engine_of(geometry, sites, options, start):
    if options.schedule == "stochastic":
        return Stochastic(geometry, sites, options)
    return Engine(geometry, sites, options, start)


def learned(model, data, sites, threads, options):
    """Maximise the log evidence over the prior variance; return the model and the sites to start from."""
    from scipy.optimize import minimize

    given = np.asarray(model.prior_variance)
    n_free = given.size if given.ndim == 1 else 1
    quiet = replace(options, callback=None)
    warm = {"start": None}

    def scaled(theta):
        return replace(model, prior_variance=given * (np.exp(theta) if given.ndim == 1 else float(np.exp(theta[0]))))

    def objective(theta):
        candidate = scaled(theta)
        geometry = candidate._geometry(data, threads)
        fit = engine_of(geometry, sites, quiet, warm["start"]).run()
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
    return weight_gradient(model, mean - prior[0], covariance.variances())


def weight_gradient(model, apart, variances):
    """The same for each weight, from its posterior mean less that of the prior and its posterior variance."""
    return 0.5 * ((apart**2 + variances) / model.prior_variance - 1.0)
