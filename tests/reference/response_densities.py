"""Log densities of proportions, times, positive amounts and counts with excess zeros, in many digits.

Every function takes the latent value f, y and parameters by the names of cavity.likelihoods, and returns the log
density with its first and second derivative in f. E is exp(f).
"""

import mpmath as mp


def logistic(f):
    """(s, 1 - s) of s = 1/(1 + exp(-f))."""
    return 1 / (1 + mp.exp(-f)), 1 / (1 + mp.exp(f))


def softplus(x):
    """log(1 + e^x)."""
    return x + mp.log1p(mp.exp(-x)) if x > 0 else mp.log1p(mp.exp(x))


def log_one_minus_exp(x, slope=1):
    """log(1 - exp(-x)) of x proportional to exp(slope f), and its derivatives in f."""
    if x > 10**5:  # exp(-1e5) is beyond all digits
        return mp.mpf(0), mp.mpf(0), mp.mpf(0)
    odds = 1 / mp.expm1(x)
    return mp.log(-mp.expm1(-x)), slope * x * odds, slope**2 * x * odds * (1 - x * (1 + odds))


def gamma(f, y, shape=1):
    """a log(a y/E) - log Gamma(a) - log y - a y/E, of mean E."""
    a, y = mp.mpf(shape), mp.mpf(y)
    ratio = a * y * mp.exp(-f)
    return a * (mp.log(a * y) - f) - mp.loggamma(a) - mp.log(y) - ratio, ratio - a, -ratio


def log_normal(f, y, sd=1):
    """log y ~ N(f, sd^2), y a pair of bounds; equal ones are an observed time."""
    sd = mp.mpf(sd)
    lower, upper = (mp.mpf(bound) for bound in y)
    if lower == upper:
        z = (mp.log(lower) - f) / sd
        return -z * z / 2 - mp.log(2 * mp.pi) / 2 - mp.log(sd) - mp.log(lower), z / sd, -1 / sd**2
    a = (mp.log(lower) - f) / sd if lower > 0 else -mp.inf
    b = (mp.log(upper) - f) / sd if upper < mp.inf else mp.inf
    flip = b == mp.inf or (a != -mp.inf and a + b > 0)  # differences are taken in the lower tail
    low, high = (-b, -a) if flip else (a, b)
    mass = phi_cdf(high) - phi_cdf(low)
    pa, pb = (mp.npdf(x) if abs(x) < mp.inf else mp.mpf(0) for x in (a, b))
    ta, tb = (x * p if p else mp.mpf(0) for x, p in ((a, pa), (b, pb)))
    first = (pa - pb) / (sd * mass)
    return mp.log(mass), first, (ta - tb) / (sd**2 * mass) - first**2


def phi_cdf(z):
    """The standard normal distribution function, infinities included."""
    return mp.mpf(z == mp.inf) if abs(z) == mp.inf else mp.erfc(-z / mp.sqrt(2)) / 2


def log_normal_z(m, v, y, power, sd=1):
    """The integral of an observed time to a power, or of a censored one, over N(m, v), in closed form."""
    lower, upper = (mp.mpf(bound) for bound in y)
    if lower == upper:
        s = mp.mpf(sd) ** 2 / power
        norm = mp.exp(-((mp.log(lower) - m) ** 2) / (2 * (v + s))) / mp.sqrt(2 * mp.pi * (v + s))
        return norm * mp.sqrt(2 * mp.pi * s) / (mp.sqrt(2 * mp.pi) * sd * lower) ** power
    width = mp.sqrt(v + mp.mpf(sd) ** 2)
    a = (mp.log(lower) - m) / width if lower > 0 else -mp.inf
    b = (mp.log(upper) - m) / width if upper < mp.inf else mp.inf
    flip = b == mp.inf or (a != -mp.inf and a + b > 0)
    low, high = (-b, -a) if flip else (a, b)
    return phi_cdf(high) - phi_cdf(low)


def weibull(f, y, shape=1, effect="time"):
    """Cumulative hazard H = (y/E)^shape or, with effect="hazard", y^shape E; y a pair of bounds."""
    r, slope = mp.mpf(shape), -mp.mpf(shape) if effect == "time" else mp.mpf(1)
    lower, upper = (mp.mpf(bound) for bound in y)

    def hazard(t):
        return mp.mpf(0) if t <= 0 else mp.exp(r * mp.log(t) + slope * f)

    if lower == upper:
        u, h = r * mp.log(lower) + slope * f, hazard(lower)
        return mp.log(r / lower) + u - h, slope * (1 - h), -(slope**2) * h
    h = hazard(lower)
    rest = (0, 0, 0) if upper == mp.inf else log_one_minus_exp(hazard(upper) - h, slope)
    return rest[0] - h, rest[1] - slope * h, rest[2] - slope**2 * h


def exponential(f, y, effect="time"):
    """A Weibull time of shape 1."""
    return weibull(f, y, 1, effect)


def log_logistic(f, y, shape=1):
    """Logistic noise on log y: u = shape (log y - f) has the density s (1 - s), s = 1/(1 + exp(-u))."""
    r = mp.mpf(shape)
    lower, upper = (mp.mpf(bound) for bound in y)
    if lower == upper:
        u = r * (mp.log(lower) - f)
        s, rest = logistic(u)
        return mp.log(r / lower) - softplus(u) - softplus(-u), r * (s - rest), -2 * r**2 * s * rest
    bounds = (r * mp.log(t) if 0 < t < mp.inf else (-mp.inf if t <= 0 else mp.inf) for t in (lower, upper))
    return between_logistic(r * f, bounds, r)


def between_logistic(f, bounds, slope=1):
    """log[s(upper - f) - s(lower - f)] of the logistic function s; f is `slope` times the latent value."""
    a, b = bounds
    value, first, second = mp.mpf(0), mp.mpf(0), mp.mpf(0)
    if b != mp.inf:
        s, rest = logistic(b - f)
        value, first, second = value - softplus(f - b), first - rest, second - s * rest
    if a != -mp.inf:
        s, rest = logistic(a - f)
        value, first, second = value - softplus(a - f), first + s, second - s * rest
    if -mp.inf < a and b < mp.inf:
        value += mp.log(-mp.expm1(a - b))
    return value, slope * first, slope**2 * second


def ordered_logit(f, y, thresholds=()):
    """y of 0..K - 1 is the number of thresholds below f plus logistic noise."""
    edges = [-mp.inf, *(mp.mpf(t) for t in thresholds), mp.inf]
    return between_logistic(f, (edges[y], edges[y + 1]))


def cloglog(f, y):
    """P(1) = 1 - exp(-E), P(-1) = exp(-E)."""
    rate = mp.exp(f)
    return log_one_minus_exp(rate) if y > 0 else (-rate, -rate, -rate)


def tweedie(f, y, power=1.5, dispersion=1):
    """Mean E, variance dispersion E^power: a Poisson number of gamma amounts."""
    p, phi, y = mp.mpf(power), mp.mpf(dispersion), mp.mpf(y)
    pull, push = y * mp.exp((1 - p) * f) / phi, mp.exp((2 - p) * f) / phi
    value = pull / (1 - p) - push / (2 - p) + tweedie_constant(y, p, phi)
    return value, pull - push, (1 - p) * pull - (2 - p) * push


CONSTANTS = {}


def tweedie_constant(y, p, phi):
    """What is free of the mean: from the sum over the number of amounts at mean 1."""
    if y == 0:
        return mp.mpf(0)
    key = y, p, phi, mp.mp.dps
    if key not in CONSTANTS:
        rate, a, scale = 1 / (phi * (2 - p)), (2 - p) / (p - 1), phi * (p - 1)

        def term(j):
            log_gamma = (j * a - 1) * mp.log(y) - j * a * mp.log(scale) - mp.loggamma(j * a)
            return j * mp.log(rate) - mp.loggamma(j + 1) + log_gamma

        top = max(1, int(y ** (2 - p) / ((2 - p) * phi)))
        high, total = term(top), mp.mpf(0)
        for step in (1, -1):
            j = top if step == 1 else top - 1
            while j >= 1 and term(j) > high - 150:
                total += mp.exp(term(j) - high)
                j += step
        CONSTANTS[key] = high + mp.log(total) - rate - y / scale - (y / (1 - p) - 1 / (2 - p)) / phi
    return CONSTANTS[key]


def beta(f, y, precision=1):
    """Mean mu = 1/(1 + exp(-f)), a = mu phi, b = (1 - mu) phi."""
    phi, y = mp.mpf(precision), mp.mpf(y)
    mu, rest = logistic(f)
    a, b, change = mu * phi, rest * phi, phi * mu * rest
    value = mp.loggamma(phi) - mp.loggamma(a) - mp.loggamma(b) + (a - 1) * mp.log(y) + (b - 1) * mp.log(1 - y)
    slope = mp.log(y) - mp.log(1 - y) - mp.psi(0, a) + mp.psi(0, b)
    bend = mp.psi(1, a) + mp.psi(1, b)
    return value, change * slope, change * (rest - mu) * slope - change**2 * bend


def beta_binomial(f, y, precision=1):
    """Successes and trials y; the share of successes is Beta(mu phi, (1 - mu) phi), mu = 1/(1 + exp(-f))."""
    phi = mp.mpf(precision)
    successes, failures = mp.mpf(y[0]), mp.mpf(y[1] - y[0])
    mu, rest = logistic(f)
    a, b, change = mu * phi, rest * phi, phi * mu * rest
    total = successes + failures
    value = mp.loggamma(total + 1) - mp.loggamma(successes + 1) - mp.loggamma(failures + 1)
    value += mp.loggamma(phi) - mp.loggamma(total + phi)
    slope = bend = mp.mpf(0)
    for count, c, sign in ((successes, a, 1), (failures, b, -1)):
        if count <= 50:
            terms = [c + j for j in range(int(count))]
            value += mp.fsum(map(mp.log, terms))
            slope += sign * mp.fsum(1 / t for t in terms)
            bend -= mp.fsum(1 / t**2 for t in terms)
        else:
            value += mp.loggamma(count + c) - mp.loggamma(c)
            slope += sign * (mp.psi(0, count + c) - mp.psi(0, c))
            bend += mp.psi(1, count + c) - mp.psi(1, c)
    return value, change * slope, change * (rest - mu) * slope + change**2 * bend


def count_density(f, y, dispersion=None):
    """log p of a Poisson (no dispersion) or negative binomial count, with derivatives."""
    rate = mp.exp(f)
    if dispersion is None:
        return y * f - rate - mp.loggamma(y + 1), y - rate, -rate
    r = mp.mpf(dispersion)
    p, q = rate / (rate + r), r / (rate + r)
    constant = mp.loggamma(y + r) - mp.loggamma(r) - mp.loggamma(y + 1)
    return constant + y * (f - mp.log(rate + r)) + r * mp.log(q), y * q - r * p, -(y + r) * p * q


def zero_inflated_poisson(f, y, zero_probability=0.5, dispersion=None):
    """pi at zero and 1 - pi times a count of mean E."""
    pi = mp.mpf(zero_probability)
    value, first, second = count_density(f, y, dispersion)
    if y > 0:
        return mp.log1p(-pi) + value, first, second
    if value < -(10**5):  # exp of it is below all digits, beside pi
        return mp.log(pi), mp.mpf(0), mp.mpf(0)
    counted = (1 - pi) * mp.exp(value)
    share = counted / (pi + counted)
    return mp.log(pi + counted), share * first, share * second + share * (1 - share) * first**2


def hurdle_poisson(f, y, zero_probability=0.5):
    """pi at zero; 1 - pi times a Poisson count above zero."""
    pi = mp.mpf(zero_probability)
    if y == 0:
        return mp.log(pi), mp.mpf(0), mp.mpf(0)
    counts, above = count_density(f, y), log_one_minus_exp(mp.exp(f))
    return mp.log1p(-pi) + counts[0] - above[0], counts[1] - above[1], counts[2] - above[2]


def asymmetric_laplace_z(m, v, y, power, quantile_level=0.5, scale=1):
    """(q (1 - q)/s exp(-u (q - [u < 0])))^power, u = (y - f)/s: completing the square on each side of y."""
    q, sd, delta = mp.mpf(quantile_level), mp.sqrt(v), y - m
    up, down = power * (1 - q) / scale, power * q / mp.mpf(scale)  # rates above and below y
    above = mp.exp(up * delta + up**2 * v / 2) * phi_cdf(-delta / sd - up * sd)
    below = mp.exp(-down * delta + down**2 * v / 2) * phi_cdf(delta / sd - down * sd)
    return (above + below) * (q * (1 - q) / scale) ** power


DENSITIES = {
    "Gamma": gamma,
    "Exponential": exponential,
    "Weibull": weibull,
    "LogLogistic": log_logistic,
    "Tweedie": tweedie,
    "Beta": beta,
    "BetaBinomial": beta_binomial,
    "ZeroInflatedPoisson": zero_inflated_poisson,
    "ZeroInflatedNegativeBinomial": zero_inflated_poisson,
    "HurdlePoisson": hurdle_poisson,
    "Cloglog": cloglog,
    "OrderedLogit": ordered_logit,
}
CLOSED_FORMS = {"LogNormal": log_normal_z, "AsymmetricLaplace": asymmetric_laplace_z}


def marks(likelihood, y, parameters):
    """Return places (centre, scale) in f where the density of y has structure."""
    if likelihood in ("Weibull", "Exponential", "LogLogistic"):
        shape = mp.mpf(parameters.get("shape", 1))
        slope = shape if parameters.get("effect") == "hazard" else -1
        times = [mp.mpf(t) for t in y if 0 < t < mp.inf]
        return [(-slope * mp.log(t), 1 / shape if slope < 0 else 1) for t in times]
    if likelihood in ("Gamma", "Tweedie"):
        width = mp.sqrt(parameters.get("dispersion", 1 / mp.mpf(parameters.get("shape", 1))))
        return [(mp.log(y), width)] if y > 0 else [(0, 1)]
    if likelihood in ("Beta", "BetaBinomial"):
        share = y if likelihood == "Beta" else (y[0] + mp.mpf("0.1")) / (y[1] + mp.mpf("0.2"))
        phi, trials = mp.mpf(parameters["precision"]), 1 if likelihood == "Beta" else y[1]
        centre, share = mp.log(share) - mp.log(1 - mp.mpf(share)), mp.mpf(share)
        return [(centre, 1), (centre, 1 / mp.sqrt(share * (1 - share) * max(phi, trials))), (mp.log(phi), 1)]
    if likelihood == "OrderedLogit":
        return [(mp.mpf(t), 1) for t in parameters["thresholds"]]
    if likelihood == "Cloglog":
        return []
    places = [(mp.log(y + mp.mpf("0.1")), 1 / mp.sqrt(mp.mpf(y + 1)))]
    share = parameters.get("zero_probability")
    if share:
        places += [(mp.log(-mp.log(share)), 1)]
    return places + ([(mp.log(parameters["dispersion"]), 1)] if "dispersion" in parameters else [])
