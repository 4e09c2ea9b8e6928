"""Moments of p(y|f)^power N(f; m, v) in many digits, from the mathematics alone: closed forms and panels of quadrature.

Slow (a second a site), and meant for tests/golden/make_likelihoods.py, which writes what the tests read.
"""

import functools
import itertools
import math

import mpmath as mp
from mpmath.calculus.quadrature import GaussLegendre
from numpy.polynomial import hermite_e

from . import response_densities

DIGITS = 60
CUT = 110  # nats below the highest point at which a panel is left out: 1e-48
TOLERANCE = mp.mpf("1e-22")  # of every integral, relative to that of the absolute values


# ------------------------------------------------------------------------------------------------ closed forms


def phi_cdf(z):
    """The standard normal distribution function, its far tail included."""
    return mp.erfc(-z / mp.sqrt(2)) / 2


def normal_pdf(x, variance):
    """The density of N(0, variance)."""
    return mp.exp(-x * x / (2 * variance)) / mp.sqrt(2 * mp.pi * variance)


def probit_z(m, v, y, power, noise=1):
    """Phi(y f/sqrt(noise)); noise 0 is the step."""
    return phi_cdf(y * m / mp.sqrt(v + noise))


def interval_z(m, v, y, power, noise=1):
    """P(lower < f + eps < upper): from the side on which both bounds are in the lower tail."""
    sd = mp.sqrt(v + noise)
    a, b = ((mp.mpf(bound) - m) / sd for bound in y)
    if a == b:
        return normal_pdf(y[0] - m, v + noise)
    return phi_cdf(b) - phi_cdf(a) if a + b <= 0 else phi_cdf(-a) - phi_cdf(-b)


def gaussian_z(m, v, y, power, noise=1):
    """N(y; f, noise)^power is a constant times N(y; f, noise/power)."""
    s = mp.mpf(noise) / power
    return normal_pdf(y - m, v + s) * mp.sqrt(2 * mp.pi * s) / (2 * mp.pi * mp.mpf(noise)) ** (mp.mpf(power) / 2)


def laplace_z(m, v, y, power, scale=1):
    """(exp(-|y - f|/scale)/(2 scale))^power: completing the square on each side of y."""
    rate, sd, delta = mp.mpf(power) / scale, mp.sqrt(v), y - m
    above = mp.exp(rate * delta + rate**2 * v / 2) * phi_cdf(-delta / sd - rate * sd)
    below = mp.exp(-rate * delta + rate**2 * v / 2) * phi_cdf(delta / sd - rate * sd)
    return (above + below) / (2 * mp.mpf(scale)) ** power


def ordered_probit_z(m, v, y, power, thresholds):
    """Phi(b_{y+1} - f) - Phi(b_y - f): f and noise of variance 1 are between two thresholds."""
    edges = (-mp.inf, *thresholds, mp.inf)
    return interval_z(m, v, edges[y : y + 2], power, 1)


def clutter_z(m, v, y, power, weight=0.5, clutter=10, noise=1, centre=0):
    """(1 - w) N(y; f, noise) + w N(y; centre, clutter)."""
    w = mp.mpf(weight)
    return (1 - w) * normal_pdf(y - m, v + noise) + w * normal_pdf(mp.mpf(y) - centre, mp.mpf(clutter))


CLOSED = {
    "Probit": probit_z,
    "Interval": interval_z,
    "OrderedProbit": ordered_probit_z,
    "Gaussian": gaussian_z,
    "Laplace": laplace_z,
    "Clutter": clutter_z,
    **response_densities.CLOSED_FORMS,
}


def from_closed_form(z, mean, variance, digits=1000):
    """(log_z, d1, d2) of a closed form z(m, v), by central differences in as many digits as it takes."""
    with mp.workdps(digits):
        m, v = mp.mpf(mean), mp.mpf(variance)
        step = mp.sqrt(v) * mp.mpf(10) ** -30 / (1 + abs(m))
        low, result, high = (mp.log(z(m + k * step, v)) for k in (-1, 0, 1))
        return result, (high - low) / (2 * step), (high - 2 * result + low) / step**2


# ------------------------------------------------------------------------------------------------ quadrature


def logit(f, y):
    """log 1/(1 + exp(-y f)) and its derivatives."""
    u = mp.exp(-y * f)
    wrong = u / (1 + u)
    return -mp.log1p(u), y * wrong, -wrong / (1 + u)


def probit(f, y):
    """log Phi(y f) and its derivatives."""
    cdf = phi_cdf(y * f)
    h = mp.npdf(f) / cdf
    return mp.log(cdf), y * h, -h * (h + y * f)


def poisson(f, y):
    """y f - exp(f) - log y! and its derivatives."""
    u = mp.exp(f)
    return y * f - u - mp.loggamma(y + 1), y - u, -u


def negative_binomial(f, y, r=1):
    """log [Gamma(y + r)/(Gamma(r) y!) p^y (1 - p)^r], p = mu/(mu + r), mu = exp(f), and its derivatives."""
    mu, r = mp.exp(f), mp.mpf(r)
    p, q = mu / (mu + r), r / (mu + r)
    constant = mp.loggamma(y + r) - mp.loggamma(r) - mp.loggamma(y + 1)
    return constant + y * mp.log(p) + r * mp.log(q), y * q - r * p, -(y + r) * p * q


def binomial(f, y, link="logit"):
    """log [n!/(k! (n - k)!) p^k (1 - p)^(n - k)], y = (k, n), p = 1/(1 + exp(-f)) or Phi(f), and its derivatives."""
    k, n = mp.mpf(y[0]), mp.mpf(y[1])
    one = {"logit": logit, "probit": probit}[link]
    success, failure = one(f, 1), one(f, -1)
    constant = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
    value, first, second = (k * s + (n - k) * q for s, q in zip(success, failure, strict=True))
    return constant + value, first, second


def student(f, y, nu=4, scale=1):
    """log of Student's density of (y - f)/scale over scale, and its derivatives."""
    nu, scale, d = mp.mpf(nu), mp.mpf(scale), f - mp.mpf(y)
    constant = mp.loggamma((nu + 1) / 2) - mp.loggamma(nu / 2) - mp.log(nu * mp.pi) / 2 - mp.log(scale)
    b = nu * scale**2
    log_p = constant - (nu + 1) / 2 * mp.log1p(d * d / b)
    return log_p, -(nu + 1) * d / (b + d * d), -(nu + 1) * (b - d * d) / (b + d * d) ** 2


SMOOTH = {
    "Logit": logit,
    "Probit": probit,
    "Poisson": poisson,
    "NegativeBinomial": negative_binomial,
    "Binomial": binomial,
    "StudentT": student,
    **response_densities.DENSITIES,
}


def from_quadrature(log_p, mean, variance, power=1, marks=()):
    """(log_z, d1, d2) from `log_p(f)`, which returns l and its derivatives; d1 = E l', d2 = E l'' + Var l'.

    Panels are halved until Gauss-Legendre rules of 24 nodes on the whole and on the halves agree. `marks` are places
    (centre, scale) where p(y|f) has structure, around which the first panels are.
    """
    with mp.workdps(DIGITS):
        m, v, e = mp.mpf(mean), mp.mpf(variance), mp.mpf(power)
        sd = mp.sqrt(v)

        def h(f):
            return e * log_p(f)[0] - (f - m) ** 2 / (2 * v)

        edges = {m + sd * k for k in range(-16, 17)}
        for centre, scale in marks:
            steps = [mp.mpf(scale) * mp.mpf(2) ** k for k in range(-2, 16)]
            edges |= {mp.mpf(centre) + sign * step for step in (0, *steps) for sign in (-1, 1)}
        edges = sorted(edges)
        for _ in range(120):  # close in on the highest point, so that no peak is between edges
            values = [h(f) for f in edges]
            i = max(range(len(edges)), key=values.__getitem__)
            left, right = edges[max(i - 1, 0)], edges[min(i + 1, len(edges) - 1)]
            if max(values[i] - h(left), values[i] - h(right)) < 1:
                break
            edges = sorted({*edges, (left + edges[i]) / 2, (right + edges[i]) / 2})
        top, anchor = values[i], edges[i]
        slope = e * log_p(anchor)[1]
        rule = GaussLegendre(mp.mp).calc_nodes(4, mp.mp.prec)

        def panel(a, b):
            """Integrals of g = exp(h - top) times 1, f, f^2, l', l'^2, l'', all but l'' measured from the anchor."""
            middle, half, sums = (a + b) / 2, (b - a) / 2, [mp.mpf(0)] * 6
            for x, weight in rule:
                f = middle + half * x
                l0, l1, l2 = (e * part for part in log_p(f))
                g = half * weight * mp.exp(l0 - (f - m) ** 2 / (2 * v) - top)
                change, away = l1 - slope, f - anchor
                terms = g, g * away, g * away**2, g * change, g * change**2, g * l2
                sums = [s + t for s, t in zip(sums, terms, strict=True)]
            return sums

        todo = [(a, b, panel(a, b)) for a, b in itertools.pairwise(edges) if h_max(h, a, b) > top - CUT]
        scale = [sum(abs(p[2][k]) for p in todo) for k in range(6)]
        sums = [mp.mpf(0)] * 6
        while todo:
            a, b, full = todo.pop()
            middle = (a + b) / 2
            halves = panel(a, middle), panel(middle, b)
            both = [p + q for p, q in zip(*halves, strict=True)]
            if all(abs(p - q) <= TOLERANCE * s for p, q, s in zip(both, full, scale, strict=True)):
                sums = [s + p for s, p in zip(sums, both, strict=True)]
            else:
                todo += [(a, middle, halves[0]), (middle, b, halves[1])]
        first, second, change, square, curvature = (s / sums[0] for s in sums[1:])
        d1, d2 = slope + change, curvature + square - change**2
        moments = (anchor - m + first) / v, ((second - first**2) / v - 1) / v  # the same by way of the moments
        assert abs(d1 - moments[0]) * sd < 1e-12 * (1 + abs(d1) * sd)
        assert abs(d2 - moments[1]) * v < 1e-12 * (1 + v * d2)
        return top + mp.log(sums[0]) - mp.log(2 * mp.pi * v) / 2, d1, d2


def h_max(h, a, b):
    """The largest of a few values of h in [a, b]."""
    return max(h(a + (b - a) * mp.mpf(k) / 8) for k in range(9))


@functools.cache
def hermite(order, digits):
    """Nodes and weights of the rule for exp(-x^2/2)/sqrt(2 pi), by Newton from those in double precision."""
    with mp.workdps(digits):
        nodes, weights = [], []
        for start in hermite_e.hermegauss(order)[0]:
            x = mp.mpf(float(start))
            for _ in range(8):
                low, result = mp.mpf(1), x  # He_{n-1} and He_n
                for k in range(1, order):
                    low, result = result, x * result - k * low
                x -= result / (order * low)
            nodes.append(x)
            weights.append(mp.factorial(order - 1) / (order * low * low))
        return nodes, weights


def from_narrow(log_p, mean, variance, power=1, orders=(20, 28)):
    """(log_z, d1, d2) where p^power N is nearly Gaussian, for concave log p: rules of Hermite around the mode.

    Much faster than `from_quadrature`; None where two orders differ by more than 1e-17.
    """
    span = abs(math.log10(variance)) + (abs(math.log10(abs(mean))) if mean else 0)
    digits = DIGITS + int(2 * span)
    with mp.workdps(digits):
        m, v, e, results = mp.mpf(mean), mp.mpf(variance), mp.mpf(power), []
        f = m
        for _ in range(100):
            _, l1, l2 = log_p(f)
            step = (e * l1 - (f - m) / v) / (1 / v - e * l2)
            f += step
            if step * step * (1 / v - e * l2) < mp.mpf(10) ** -30:
                break
        else:
            return None
        top, slope, curvature = (e * part for part in log_p(f))
        sd = 1 / mp.sqrt(1 / v - curvature)
        for order in orders:
            sums = [mp.mpf(0)] * 4
            for x, weight in zip(*hermite(order, digits), strict=True):
                l0, l1, l2 = (e * part for part in log_p(f + sd * x))
                fall = l0 - top - (sd * x) * (sd * x + 2 * (f - m)) / (2 * v) + x * x / 2
                g, change = weight * mp.exp(fall), l1 - slope
                sums = [s + g * t for s, t in zip(sums, (1, change, change**2, l2), strict=True)]
            change, square, bend = (s / sums[0] for s in sums[1:])
            log_z = top - (f - m) ** 2 / (2 * v) + mp.log(sums[0] * sd / mp.sqrt(v))
            results.append((log_z, slope + change, bend + square - change**2))
        (a, a1, a2), (b, b1, b2) = results
        same = abs(a - b) < 1e-17 and abs(a1 - b1) * sd < 1e-17 and abs(a2 - b2) * sd**2 < 1e-17
        return results[1] if same else None


def completed(log_z, d1, d2, mean, variance, digits=DIGITS):
    """(log_z, d1, d2, tau, rho, 1 + v d2)."""
    with mp.workdps(digits):
        m, v = mp.mpf(mean), mp.mpf(variance)
        shrink = 1 + v * d2
        rho = -d2 / shrink
        return log_z, d1, d2, d1 / shrink + m * rho, rho, shrink


def site(likelihood, parameters, y, power, mean, variance, quick=False):
    """(log_z, d1, d2, tau, rho, 1 + v d2) of one site; parameters by the names of the functions above.

    `quick` asks `from_narrow` first, for 17 digits, in cavities of which its nodes leave out no step of p.
    """
    if likelihood in CLOSED and (power == 1 or likelihood not in SMOOTH):
        form = CLOSED[likelihood]
        log_z, d1, d2 = from_closed_form(lambda m, v: form(m, v, y, power, **parameters), mean, variance)
    else:
        form, sd = SMOOTH[likelihood], mp.sqrt(variance)
        if quick and likelihood != "StudentT" and variance <= 1:
            truth = from_narrow(lambda f: form(f, y, **parameters), mean, variance, power)
            if truth is not None:
                return completed(*truth, mean, variance)
        marks = [(0, 1), (0, min(1, sd))]
        if likelihood == "StudentT":
            width = parameters.get("scale", 1) * mp.sqrt(parameters.get("nu", 4))
            marks = [(y, width), (y, min(width, sd))]
        elif likelihood in ("Poisson", "NegativeBinomial"):
            marks += [(mp.log(y + 0.1), mp.sqrt(1 / mp.mpf(y + 1)))]
            marks += [(mp.log(parameters.get("r", 1)), 1)]
        elif likelihood == "Binomial":
            share = (y[0] + mp.mpf("0.1")) / (y[1] + mp.mpf("0.2"))
            top = (
                mp.log(share / (1 - share)) if parameters["link"] == "logit" else mp.sqrt(2) * mp.erfinv(2 * share - 1)
            )
            marks += [(top, 1 / mp.sqrt(y[1] + 1)), (top, 1)]
        elif likelihood in response_densities.DENSITIES:
            marks += response_densities.marks(likelihood, y, parameters)
        log_z, d1, d2 = from_quadrature(lambda f: form(f, y, **parameters), mean, variance, power, marks)
    return completed(log_z, d1, d2, mean, variance)


# parameters of the reference by the names of those of the library
NAMES = {
    "Interval": {"noise_variance": "noise"},
    "Gaussian": {"noise_variance": "noise"},
    "NegativeBinomial": {"dispersion": "r"},
    "StudentT": {"degrees_of_freedom": "nu"},
    "Clutter": {
        "clutter_weight": "weight",
        "clutter_variance": "clutter",
        "noise_variance": "noise",
        "clutter_mean": "centre",
    },
}


def entry(likelihood, parameters, y, power, mean, variance, quick=False):
    """Return a site as tests/golden/likelihoods.json has it, by the names of the library."""
    settings = {NAMES.get(likelihood, {}).get(name, name): value for name, value in parameters.items()}
    name = likelihood
    if name == "Step":
        name, settings = "Probit", {"noise": 0}
    values = site(name, settings, y, power, mean, variance, quick)
    return {
        "likelihood": likelihood,
        "parameters": parameters,
        "y": y,
        "power": power,
        "mean": mean,
        "variance": variance,
        "values": [mp.nstr(value, 20) for value in values],
    }
