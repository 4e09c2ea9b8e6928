"""EP with spherical Gaussian posteriors: the measure of change, and the double loop for data on which sweeps fail.

References
----------
.. [HZ] Tom Heskes and Onno Zoeter, "Expectation propagation for approximate inference in dynamic Bayesian
   networks", 2002.
"""

import numpy as np

SMALLEST_CURVATURE = 1e-3  # of the convex part: bounds Newton steps where the free energy is flat or not convex

SMALLEST_START = 1e-30  # of the prior variance: where the search for a starting point gives up


def moment_change(old_mean, old_variance, mean, variance):
    """Largest change of a spherical posterior's moments: means in standard deviations, variances relative."""
    shift = np.max(np.abs(mean - old_mean), axis=-1) / np.sqrt(variance)
    return np.maximum(shift, np.abs(variance / old_variance - 1.0))


def minimise_free_energy(moments, prior_tau, prior_rho, n_sites, *, max_iter, tol):
    """Find the EP fixed point of a spherical Gaussian posterior by minimising its free energy [HZ]_.

    F = sum_i A_i*(mu) - (N - 1) A_q*(mu) - lambda_prior'mu is minimised over the mean parameters mu of the posterior
    by Newton steps with the absolute curvature and a line search, from the moments of the prior; see
    cython_core/ep/double_loop.pyx.

    Parameters
    ----------
    moments : callable
        moments(mean, variance) -> (sum of A_i*, gradient (d + 1,), hessian (d + 1, d + 1)), summed over the sites,
        in coordinates centred at `mean`; the first is inf where some site has no solution.
    prior_tau, prior_rho : ndarray (d,), float
        Natural parameters of the prior.

    Returns
    -------
    mean, variance, changes : ndarray, float, list of float
        The last entry of `changes` is at most `tol` at a fixed point: the change of the posterior's moments that
        its sites imply.
    """
    mean, variance, d = prior_tau / prior_rho, 1.0 / prior_rho, prior_tau.size

    def evaluate(mean, variance):
        total, gradient, hessian = moments(mean, variance)
        entropy_term = 0.5 * d * (n_sites - 1) * (1.0 + np.log(2 * np.pi * variance))
        prior_term = prior_tau @ mean - 0.5 * prior_rho * (mean @ mean + d * variance)
        gradient[:d] -= prior_tau - prior_rho * mean
        gradient[d] -= (n_sites - 1) / variance + prior_rho
        return total + entropy_term - prior_term, gradient, hessian

    value, gradient, convex = evaluate(mean, variance)
    while not np.isfinite(value) and variance > SMALLEST_START / prior_rho:
        variance *= 0.01  # so vague a prior wants cavities flatter than float64 can hold: start from less
        value, gradient, convex = evaluate(mean, variance)
    changes = [] if np.isfinite(value) else [np.inf]
    for _ in range(max_iter if np.isfinite(value) else 0):
        change = np.max(np.abs(gradient[:d])) * np.sqrt(variance), abs(gradient[d]) * variance
        changes.append(float(max(change)))
        if changes[-1] <= tol:
            break
        step = _newton_step(gradient, convex, variance, n_sites)
        slope, length = step @ gradient, 1.0
        while True:
            new_mean = mean + length * step[:d]
            new_variance = variance - (2 * length * step[d] + length**2 * step[:d] @ step[:d]) / d
            if new_variance > 0.1 * variance:
                trial = evaluate(new_mean, new_variance)
                # a predicted decrease below 1e-9 drowns in rounding; Newton is then in its quadratic phase
                if trial[0] <= value + 1e-4 * length * slope or (slope > -1e-9 and np.isfinite(trial[0])):
                    break
            length *= 0.5
            if length < 1e-12:
                return mean, variance, changes
        mean, variance, (value, gradient, convex) = new_mean, new_variance, trial
    return mean, variance, changes


def _newton_step(gradient, convex, variance, n_sites):
    """Return -|H|^-1 gradient, with H measured against its convex part (the part from the sites)."""
    from scipy import linalg

    d = gradient.size - 1
    hessian = convex.copy()
    hessian[range(d), range(d)] -= (n_sites - 1) / variance
    hessian[d, d] -= (n_sites - 1) / (0.5 * d * variance**2)
    curvature, directions = linalg.eigh(hessian, convex)  # directions' convex directions = identity
    curvature = np.maximum(np.abs(curvature), SMALLEST_CURVATURE)
    return -directions @ ((directions.T @ gradient) / curvature)
