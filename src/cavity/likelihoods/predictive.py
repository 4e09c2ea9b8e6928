"""Predictions of observations: what a likelihood says of y given f, integrated over f ~ N(mean, variance).

Every integral is one of a function g >= 0, which the adaptive quadrature of sites integrates as a likelihood g(f)
to 1e-10 of itself, whatever the scales. A conditional mean of either sign is measured from its value at the mean
of f, and its two signs apart; the variance is E [Var[y|f] + (E[y|f] - E y)^2], where nothing cancels. Quantiles are
looked for with a rule of few nodes, and found with that quadrature.
"""

from functools import partial

import numpy as np
from numpy.polynomial import hermite_e

from cavity.base.lazy_scipy import special
from cavity.likelihoods.quadrature import PROMISED_ACCURACY, NotIntegrableError, log_tilted

MIN_INTEGRAND, MAX_INTEGRAND = 1e-300, 1e300  # of integrands: their logs are finite
MIN_VARIANCE = 1e-300  # of f, below which it is known: x = 0, or beyond rounding
INTEGRAND_REACH_SD = 8.0  # sd of the integrand within which it must be in the range of float64
MAX_STEP_DOUBLINGS = 1100  # of a step, from the smallest number to the largest
MAX_SEARCH_STEPS = 200  # of a search; bisection alone needs some 64
STEPS_PER_BISECTION = 3  # every so manieth step of a search halves the bracket
QUANTILE_TOLERANCE = 1e-11  # relative error of a probability, and of a quantile, at which a search ends
REFINEMENT_STEP_RATIO = 1e-6  # the first step of the search with quadrature, over that of the one with few nodes
FLOAT64_EPSILON = np.finfo(float).eps
MAX_MIXTURE_NUMBERS = 1 << 20  # of a block of distribution functions of the points of a mixture
MIN_SD = np.finfo(float).tiny  # of normal laws: less stands for a step of the distribution function
NORMAL_STEP = 0.1  # the first step from the quantile of a normal law to that of a mixture of them, in its sd
HERMITE_NODES, HERMITE_WEIGHTS = hermite_e.hermegauss(40)
HERMITE_WEIGHTS = HERMITE_WEIGHTS / HERMITE_WEIGHTS.sum()
FIXED_RULE_SIZES = 9, 19, 39  # nodes of Gauss-Hermite rules, two of which must agree in place of adaptive quadrature
FIXED_RULE_AGREEMENT = 1e-9  # relative to a probability and to its complement


def integrate(g, mean, variance):
    """Return E g(f) for f ~ N(mean, variance), (n,); g(f, index) >= 0 has the rows of an index of f (len(index), k)."""
    out, every = np.empty(len(mean)), np.arange(len(mean))
    sure = variance < MIN_VARIANCE
    out[sure] = g(mean[sure, None], every[sure])[:, 0]
    rest = every[~sure]
    if not rest.size:
        return out
    m, v = mean[rest], variance[rest]

    def log_g(f, index):
        return np.log(np.clip(g(f, rest[index]), MIN_INTEGRAND, MAX_INTEGRAND))

    with np.errstate(all="ignore"):
        try:
            log_z, d1, _, shrink = log_tilted(log_g, m, v)
        except NotIntegrableError as error:
            reason = _explain_failure(lambda f: g(f, rest), m, np.sqrt(v))
            message = f"predictions of observations cannot be integrated over f to 1e-10: {reason}"
            raise ArithmeticError(message) from error
        values = np.exp(log_z)
        # which is the floor wherever g is below it
        out[rest] = np.where(values > (1.0 + PROMISED_ACCURACY) * MIN_INTEGRAND, values, 0.0)
        sd = np.sqrt(v * shrink)
        ends = (m + v * d1)[:, None] + sd[:, None] * np.array([-INTEGRAND_REACH_SD, INTEGRAND_REACH_SD])
        inside = np.all(g(ends, rest) < MAX_INTEGRAND, axis=1)
    _check_range(inside & (out[rest] < MAX_INTEGRAND), rest)
    return out


def _explain_failure(g, mean, sd):
    """Return what keeps g(f) from being integrated."""
    f = mean[:, None] + sd[:, None] * HERMITE_NODES
    values, rounded = g(f), g(f + np.maximum(np.spacing(np.abs(f)), FLOAT64_EPSILON))
    if np.max(np.abs(rounded - values)) > PROMISED_ACCURACY * np.max(values):
        return "observations vary so little given f that float64 does not resolve it, as where y is constant"
    return "the likelihood is not smooth"


def integrate_probability(g, mean, variance):
    """Return what `integrate` does for 0 <= g <= 1: by Gauss-Hermite rules where two of them agree, else adaptively.

    It costs 28 evaluations of a g that varies little over f ~ N(mean, variance).
    """
    out, todo, sd, coarse = np.empty(len(mean)), np.arange(len(mean)), np.sqrt(variance), None
    for size in FIXED_RULE_SIZES:
        nodes, weights = hermite_e.hermegauss(size)
        with np.errstate(all="ignore"):
            values = g(mean[todo, None] + sd[todo, None] * nodes, todo) @ (weights / weights.sum())
            out[todo] = values
            if coarse is not None:
                tail = np.where(values < 0.5, values, 1.0 - values + FLOAT64_EPSILON / FIXED_RULE_AGREEMENT)
                agree = (np.abs(values - coarse) <= FIXED_RULE_AGREEMENT * tail) & (values > 0.0)
                todo, values = todo[~agree], values[~agree]
        coarse = values
    if todo.size:
        out[todo] = integrate(lambda f, index: g(f, todo[index]), mean[todo], variance[todo])
    return out


def _check_range(inside, rows):
    """Raise OverflowError naming the first row that is not inside."""
    if not np.all(inside):
        row = rows[np.argmin(inside)]
        raise OverflowError(f"the moments of a new observation of row {row} leave the range of float64")


def _check_results_of(likelihood, name):
    """Return a conditional function of a likelihood whose results are checked."""
    function = getattr(likelihood, name)

    def checked(*arguments):
        f = arguments[0 if name != "cdf" else 1]
        with np.errstate(over="ignore"):
            values = np.asarray(function(*arguments), dtype=np.float64)
        if values.shape != np.shape(f) or np.isnan(values).any():
            wrong = "nan" if values.shape == np.shape(f) else f"shape {values.shape}"
            kind = type(likelihood).__name__
            raise ValueError(f"{name} of {kind} must return numbers of the shape {np.shape(f)} of f, got {wrong}")
        return values

    return checked


def predict_mean(likelihood, mean, variance):
    """Return E y, (n,)."""
    conditional_mean = _check_results_of(likelihood, "conditional_mean")
    centre = conditional_mean(mean)
    _check_range(np.isfinite(centre), np.arange(len(mean)))

    def integrate_side(sign):
        return integrate(lambda f, i: np.maximum(sign * (conditional_mean(f) - centre[i, None]), 0.0), mean, variance)

    return centre + (integrate_side(1.0) - integrate_side(-1.0))


def predict_moments(likelihood, mean, variance):
    """Return E y and Var y, (n,) each."""
    total = likelihood.expected(mean, variance)
    means = _check_results_of(likelihood, "conditional_mean")
    variances = _check_results_of(likelihood, "conditional_variance")
    return total, integrate(lambda f, i: variances(f) + (means(f) - total[i, None]) ** 2, mean, variance)


def find_quantiles(likelihood, q, mean, variance, *covariates):
    """Return quantiles of y at probabilities q; `covariates` are further arguments of `cdf`, as the trials.

    All of them broadcast against the moments of f.
    """
    return find_mixture_quantiles([(1.0, likelihood, mean, variance)], q, *covariates)


def find_mixture_quantiles(points, q, *covariates):
    """Return quantiles of y at probabilities q, of a mixture of points: weights, likelihoods and moments of f.

    What `find_quantiles` says of its arguments holds for those of each point.
    """
    shape = np.broadcast_shapes(np.shape(q), *(np.shape(covariate) for covariate in covariates), np.shape(points[0][2]))
    q, *covariates = (np.broadcast_to(values, shape).ravel() for values in (q, *covariates))
    points = [(*one[:2], *(np.broadcast_to(values, shape).ravel() for values in one[2:])) for one in points]
    functions = [_check_results_of(likelihood, "cdf") for _, likelihood, *_ in points]

    def average(integral, y, rows):
        """The distribution function at y of rows, by the integral over f at each point."""
        values = [columns[rows, None] for columns in covariates]
        parts = [
            weight * integral(lambda f, i, cdf=cdf: cdf(y[i, None], f, *(a[i] for a in values)), m[rows], v[rows])
            for (weight, _, m, v), cdf in zip(points, functions, strict=True)
        ]
        return sum(parts[1:], parts[0])

    def apply_fixed_rule(conditional_cdf, mean, variance):
        f = mean[:, None] + np.sqrt(variance[:, None]) * HERMITE_NODES
        return conditional_cdf(f, np.arange(len(mean))) @ HERMITE_WEIGHTS

    weights, likelihood = np.array([weight for weight, *_ in points]), points[0][1]
    means, variances = (np.stack([one[k] for one in points]) for k in (2, 3))
    if getattr(likelihood, "_is_normal", False):
        laws = [law.moments(mean, variance) for _, law, mean, variance in points]
        moments = (np.stack(part) for part in zip(*laws, strict=True))
        return find_normal_mixture_quantiles(weights, q, *moments).reshape(shape)
    mean = weights @ means
    variance = variances[0] if len(points) == 1 else weights @ (variances + (means - mean) ** 2)
    start, step = _guess_quantiles(likelihood, q, mean, variance, *covariates)
    rough = partial(average, apply_fixed_rule)
    fine = partial(average, integrate if len(points) == 1 else integrate_probability)
    start = search_quantiles(rough, q, start, step, likelihood.discrete)
    return search_quantiles(fine, q, start, REFINEMENT_STEP_RATIO * step, likelihood.discrete).reshape(shape)


def find_normal_mixture_quantiles(weights, q, means, variances):
    """Return quantiles at probabilities q (n,) of mixtures of normal variables with these moments (P, n)."""
    sds = np.maximum(np.sqrt(variances), MIN_SD)
    mean = weights @ means
    spread = np.sqrt(weights @ (variances + (means - mean) ** 2))
    start, first_step = mean + spread * special.ndtri(q), np.maximum(NORMAL_STEP * spread, np.spacing(np.abs(mean)))
    step = max(1, MAX_MIXTURE_NUMBERS // len(weights))

    def cdf(y, rows):
        out = np.empty(len(rows))
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            with np.errstate(over="ignore"):
                z = (y[first : first + step] - means[:, part]) / sds[:, part]
            out[first : first + step] = weights @ special.ndtr(z)
        return out

    return search_quantiles(cdf, q, start, first_step, False)


def _guess_quantiles(likelihood, q, mean, variance, *covariates):
    """Return about where the quantiles are, and how far off that may be."""
    f, sd = mean + np.sqrt(variance) * special.ndtri(q), np.sqrt(variance)
    try:
        with np.errstate(over="ignore"):
            start = likelihood.conditional_mean(f, *covariates)
            spread = np.sqrt(likelihood.conditional_variance(f, *covariates))
    except (NotImplementedError, ValueError):  # the likelihood has none: observations around f, perhaps
        start, spread = f, np.where(sd > 0, sd, 1.0)
    good = np.isfinite(start) & np.isfinite(spread) & (spread > 0)
    return np.where(good, start, 0.0), np.where(good, spread, 1.0)


def search_quantiles(cdf, q, start, step, discrete):
    """Return where cdf(y, rows), of the rows of an index, reaches q: in brackets that secants and bisections narrow."""
    if discrete:
        start, step = np.floor(start), np.maximum(np.ceil(step), 1.0)
    low, high, at_low, at_high = _bracket_quantiles(cdf, q, start, step, discrete)
    for k in range(MAX_SEARCH_STEPS):
        width = high - low
        spacing = np.spacing(np.maximum(np.abs(low), np.abs(high)))
        tight = width <= (np.maximum(1.0, spacing) if discrete else QUANTILE_TOLERANCE * step + 4.0 * spacing)
        todo = np.flatnonzero(~tight)
        if not todo.size:
            break
        a, b, fa, fb = low[todo], high[todo], at_low[todo] - q[todo], at_high[todo] - q[todo]
        middle = _find_middle_count(a, b) if discrete else 0.5 * (a + b)
        with np.errstate(over="ignore"):
            secant = a - fa * ((b - a) / (fb - fa))
        y = middle if k % STEPS_PER_BISECTION == STEPS_PER_BISECTION - 1 else _clip_inside(secant, a, b, middle)
        if discrete:
            y = np.clip(np.floor(y), a + 1.0, b - 1.0)
        probability = cdf(y, todo)
        below = probability < q[todo]
        for edge, at, mask in ((low, at_low, below), (high, at_high, ~below)):
            edge[todo[mask]], at[todo[mask]] = y[mask], probability[mask]
        if not discrete:
            done = _has_reached(probability, q[todo])
            low[todo[done]] = high[todo[done]] = y[done]
    return high


def _has_reached(probability, q):
    """Whether probabilities are q but for rounding."""
    return np.abs(probability - q) <= QUANTILE_TOLERANCE * np.minimum(q, 1.0 - q) + FLOAT64_EPSILON


def _find_middle_count(a, b):
    """Return whole numbers between others, about their geometric means: counts may be far below their mean."""
    size = np.sqrt(np.abs(a) + 1.0) * np.sqrt(np.abs(b) + 1.0) - 1.0
    return np.where((a < 0) & (b > 0), 0.0, np.where(b <= 0, -size, size))


def _clip_inside(y, a, b, middle):
    """Return points of a bracket, not too close to its ends for the other one to move."""
    margin = 0.01 * (b - a)
    return np.where(np.isfinite(y), np.clip(y, a + margin, b - margin), middle)


def _bracket_quantiles(cdf, q, start, step, discrete):
    """Return ends with cdf < q <= cdf, and the cdf there, by steps that double; both the start where that is there."""
    every = np.arange(len(q))
    ends, values = [start.copy(), start.copy()], cdf(start, every)
    at, away = [values.copy(), values.copy()], discrete | ~_has_reached(values, q)
    for side, sign in ((0, -1.0), (1, 1.0)):
        todo, reach = every[away & ((values >= q) if side == 0 else (values < q))], step.copy()
        other = 1 - side
        for _ in range(MAX_STEP_DOUBLINGS):
            if not todo.size:
                break
            ends[other][todo], at[other][todo] = ends[side][todo], at[side][todo]
            with np.errstate(over="ignore"):
                ends[side][todo] += sign * reach[todo]
                reach[todo] *= 2.0
            if not np.all(np.isfinite(ends[side][todo])):
                raise OverflowError("quantiles of new observations leave the range of float64")
            at[side][todo] = cdf(ends[side][todo], todo)
            todo = todo[(at[side][todo] >= q[todo]) if side == 0 else (at[side][todo] < q[todo])]
    return ends[0], ends[1], at[0], at[1]
