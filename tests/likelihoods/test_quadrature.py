"""Quadrature for likelihoods given by their logarithm: closed forms and mpmath, laws, extremes, refusals."""

from functools import cache

import mpmath
import numpy as np
import pytest
from mpmath import mp
from scipy.special import gammaln, log_expit, log_ndtr
from support.tolerances import INTEGRAL, LAST_BIT, ROOT_EPS, ROUNDING, SLOPES, SOLVES, SUMS

from cavity.likelihoods import quadrature
from cavity.likelihoods.quadrature import SITES_PER_CHUNK, log_tilted, log_tilted_of_pass

SDS = [1e-6, 1e-3, 1.0, 30.0, 1e3]
WORST = 1e-10


def one(log_p, mean, sd):
    """Results for one site, given log_p(f)."""
    return [float(a[0]) for a in log_tilted(lambda f, _: log_p(f), np.array([mean]), np.array([sd * sd]))]


def errors(result, exact, sd):
    """Errors of the results in the units of what is required."""
    log_z, d1, d2, shrink = (mpmath.mpf(a) for a in result)
    return [
        float(abs(log_z - exact[0]) / max(1, abs(exact[0]))),
        float(abs(d1 - exact[1]) / max(1 / mpmath.mpf(sd), abs(exact[1]))),
        float(abs(d2 - exact[2]) / max(1 / mpmath.mpf(sd) ** 2, abs(exact[2]))),
        float(abs(shrink - exact[3]) / exact[3]),
    ]


# ---------------------------------------------------------------------------------------------- likelihoods


def laplace(f, y=0.3, b=1.0):
    return -np.abs(f - y) / b - np.log(2 * b)


def step(f, y=0.5):
    return np.where(f >= y, 0.0, -np.inf)


def jump(f, y=0.5):
    return np.where(f >= y, 0.0, -3.0)


def student(f, y=0.5, s=1.0):
    return -2.0 * np.log1p(((f - y) / s) ** 2 / 3.0)


def poisson(f, y):
    """Less the value at the top, f = log y; in this form it has all digits."""
    return -y * (np.expm1(f - np.log(y)) - (f - np.log(y))) if y else -np.exp(f)


BUMPS = (-1.5, 0.25, 0.25), (2.0, 0.5, 0.75)  # mean, sd, weight


def bumps(f):
    return np.logaddexp(*(-0.5 * ((f - y) / s) ** 2 + np.log(w / (s * np.sqrt(2 * np.pi))) for y, s, w in BUMPS))


# ---------------------------------------------------------------------------------------------- many digits


def cdf(z):
    return mp.erfc(-z / mp.sqrt(2)) / 2


def laplace_z(m, v, y=0.3, b=1.0):
    y, b = mp.mpf(y), mp.mpf(b)
    sides = (m - y, y - m)
    return mp.fsum(mp.exp(v / (2 * b * b) - d / b) * cdf((d - v / b) / mp.sqrt(v)) for d in sides) / (2 * b)


def bumps_z(m, v):
    variances = [(y, v + mp.mpf(s) ** 2, w) for y, s, w in BUMPS]
    return mp.fsum(w * mp.exp(-((m - y) ** 2) / (2 * u)) / mp.sqrt(2 * mp.pi * u) for y, u, w in variances)


CLOSED = {
    "probit": (log_ndtr, lambda m, v: cdf(m / mp.sqrt(1 + v))),
    "laplace": (laplace, laplace_z),
    "narrow laplace": (lambda f: laplace(f, b=0.03125), lambda m, v: laplace_z(m, v, b=0.03125)),
    "step": (step, lambda m, v: cdf((m - 0.5) / mp.sqrt(v))),
    "jump": (jump, lambda m, v: cdf((m - 0.5) / mp.sqrt(v)) + mp.exp(-3) * cdf((0.5 - m) / mp.sqrt(v))),
    "bumps": (bumps, bumps_z),
}


def closed_form(z, mean, sd):
    """Results from a formula for Z, differentiated by differences of many digits."""
    with mp.workdps(80):
        v = mp.mpf(sd * sd)
        h = mp.sqrt(v) * mp.mpf(10) ** -15
        low, at, high = (mp.log(z(mp.mpf(mean) + k * h, v)) for k in (-1, 0, 1))
        d2 = (high - 2 * at + low) / h**2
        return at, (high - low) / (2 * h), d2, 1 + v * d2


def exact_logit(f):
    return -mp.log1p(mp.exp(-f))


def exact_student(f, y=0.5, s=1.0):
    return -2 * mp.log1p(((f - y) / mp.mpf(s)) ** 2 / 3)


def exact_poisson(f, y):
    top = mp.mpf(float(np.log(y))) if y else 0
    return -y * (mp.expm1(f - top) - (f - top)) if y else -mp.exp(f)


def integral(log_p, mean, sd, *places):
    """Results by quadrature; breaks at powers of 8 from places (f, width), the cavity and the top of the integrand."""
    with mp.workdps(30):
        m, v = mp.mpf(mean), mp.mpf(sd * sd)
        places = [(mp.mpf(f), mp.mpf(w)) for f, w in (*places, (m, mp.sqrt(v)))]

        def log_h(f):
            return log_p(f) - (f - m) ** 2 / (2 * v)

        def breaks():
            points = {f + sign * w * mp.mpf(8) ** k for f, w in places for k in range(-1, 25) for sign in (-1, 0, 1)}
            return sorted(f for f in points if abs(f - m) < 200 * mp.sqrt(v) + 2e4)

        points = breaks()
        i = max(range(1, len(points) - 1), key=lambda i: log_h(points[i]))
        a, b = points[i - 1], points[i + 1]
        while b - a > 1e-15 * mp.sqrt(v):
            third = (b - a) / 3
            a, b = (a + third, b) if log_h(a + third) < log_h(b - third) else (a, b - third)
        top, width = log_h(a), 1 / mp.sqrt(-mp.diff(log_h, a, 2))
        places.append((a, width))
        points = breaks()
        near = [log_h(f) > top - 150 for f in points]
        points = [(f - a) / width for i, f in enumerate(points) if any(near[max(i - 1, 0) : i + 2])]
        h = cache(lambda x: mp.exp(log_h(a + width * x) - top))

        def moment(k, centre):
            value, error = mp.quad(
                lambda x: (x - centre) ** k * h(x), points, method="gauss-legendre", maxdegree=7, error=True
            )
            assert error < 1e-20 * max(1, abs(value))
            return value

        norm = moment(0, 0)
        centre = moment(1, 0) / norm
        shrink = moment(2, centre) / norm * width**2 / v
        log_z = top + mp.log(norm * width) - mp.log(2 * mp.pi * v) / 2
        return log_z, (a - m + centre * width) / v, (shrink - 1) / v, shrink


NARROW = 0.01
TOP = float(np.log(1e6))
INTEGRALS = {
    "logit": (log_expit, exact_logit, [(0, 1)]),
    "student": (student, exact_student, [(0.5, 1)]),
    "narrow student": (lambda f: student(f, s=NARROW), lambda f: exact_student(f, s=NARROW), [(0.5, NARROW)]),
    "no count": (lambda f: poisson(f, 0), lambda f: exact_poisson(f, 0), [(0, 1)]),
    "count of 3": (lambda f: poisson(f, 3), lambda f: exact_poisson(f, 3), [(1, 1)]),
    "count of a million": (lambda f: poisson(f, 10**6), lambda f: exact_poisson(f, 10**6), [(TOP, 1e-3)]),
}
CAVITIES = {
    "logit": [(0.3, 1e-6), (-1e4, 1e-6), (5, 1e-3), (2, 1), (-40, 1), (0.01, 30), (-1200, 30), (3e3, 1e3), (-1e4, 1e3)],
    "student": [(0.5, 1e-6), (-1e4, 1e-3), (1.5, 1), (40, 1), (165.5, 30), (0.5, 1e3), (1e4, 1e3)],
    "narrow student": [
        (0.505, 1e-6),
        (0.5, 1e-3),
        (0.54, 1e-3),
        (6.5, 1),
        (40, 1),
        (100, 30),
        (400, 1e3),
        (10250.5, 1e3),
    ],
    "no count": [(-3, 1e-6), (3, 1e-3), (0, 1), (40, 1), (-60, 30), (1200, 30), (-500, 1e3), (1e4, 1e3)],
    "count of 3": [(1, 1e-6), (1.1, 1e-3), (8, 1), (-20, 1), (40, 1), (-600, 30), (1e4, 1e3)],
    "count of a million": [
        (TOP, 1e-6),
        (13.81, 1e-3),
        (13.5, 1e-3),
        (14, 1),
        (-26, 1),
        (50, 30),
        (-2174, 273),
        (-1e4, 1e3),
    ],
}


# ---------------------------------------------------------------------------------------------- accuracy


@pytest.mark.parametrize("sd", SDS)
@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name, sd):
    log_p, z = CLOSED[name]
    for distance in (0.0, 0.3, -3.0, 12.0, -40.0):
        mean = 0.5 + distance * sd
        assert max(errors(one(log_p, mean, sd), closed_form(z, mean, sd), sd)) < WORST


@pytest.mark.parametrize("distance", [0.2, -3.0, 30.0, -1e4])
@pytest.mark.parametrize("name", ["probit", "laplace", "bumps"])
def test_closed_forms_far_away(name, distance):
    log_p, z = CLOSED[name]
    for sd in (0.05, 0.25, 1.0, 300.0):
        mean = 0.5 + distance
        if abs(distance) <= 40 * sd:
            assert max(errors(one(log_p, mean, sd), closed_form(z, mean, sd), sd)) < WORST


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "mean", "sd"),
    [
        pytest.param(name, *cavity, marks=pytest.mark.long if k % 3 else ())
        for name in INTEGRALS
        for k, cavity in enumerate(CAVITIES[name])
    ],
)
def test_integrals(name, mean, sd):
    log_p, exact, places = INTEGRALS[name]
    assert max(errors(one(log_p, mean, sd), integral(exact, mean, sd, *places), sd)) < WORST


def test_both_peaks_of_an_outlier_count():
    assert one(INTEGRALS["narrow student"][0], 6.5, 1.0)[3] > 5  # neither peak alone is wider than the cavity


@pytest.mark.long_cases("0.001")
@pytest.mark.sample(3)
@pytest.mark.parametrize("sd", [1e-6, 1e-5, 1e-4, 1e-3])
def test_narrow_cavities_keep_the_digits_of_derivatives(sd):
    for mean, (log_p, exact) in (
        (1.25, (log_ndtr, closed_form(CLOSED["probit"][1], 1.25, sd))),
        (-0.7, (bumps, closed_form(bumps_z, -0.7, sd))),
        (-1.5, (log_expit, integral(exact_logit, -1.5, sd, (0, 1)))),
        (2.0, (student, integral(exact_student, 2.0, sd, (0.5, 1)))),
        (2.0, (lambda f: poisson(f, 3), integral(lambda f: exact_poisson(f, 3), 2.0, sd, (1, 1)))),
        *((0.3 + k * sd, (laplace, closed_form(laplace_z, 0.3 + k * sd, sd))) for k in (-1.4, -0.6, 0.5, 1.1)),
    ):
        _, d1, d2, shrink = one(log_p, mean, sd)
        assert d1 == pytest.approx(float(exact[1]), rel=ROOT_EPS)
        assert d2 == pytest.approx(float(exact[2]), rel=ROOT_EPS)
        assert shrink == pytest.approx(float(exact[3]), rel=ROUNDING)


@pytest.mark.parametrize("sd", [1e-12, 1e-17, 1e-20, 1e-60, 1e-150])
def test_cavities_narrower_than_float64_is_spaced(sd):
    """log Z is log p at the mean, d1 and d2 what they are to 1e-10 in units of the cavity."""
    for mean in (0.3, -1e-18, -5.0):
        for log_p, slope in (
            (log_ndtr, np.exp(-0.5 * mean**2 - log_ndtr(mean)) / np.sqrt(2 * np.pi)),
            (log_expit, np.exp(log_expit(-mean))),
            (lambda f: f - np.exp(f), 1 - np.exp(mean)),
            (lambda f: -2.0 * np.abs(f - 7.0), 2.0),
        ):
            log_z, d1, d2, shrink = one(log_p, mean, sd)
            assert log_z == pytest.approx(float(log_p(mean)), rel=SUMS, abs=SUMS)
            assert d1 * sd == pytest.approx(slope * sd, abs=INTEGRAL)
            assert d2 * sd * sd == pytest.approx(0.0, abs=INTEGRAL)
            assert shrink == pytest.approx(1.0, rel=INTEGRAL)


def test_far_tails():
    """log Z of -1e6, where a difference of two such numbers has ten digits less."""
    assert max(errors(one(laplace, -1e6, 1.0), closed_form(laplace_z, -1e6, 1.0), 1.0)) < WORST
    assert max(errors(one(log_ndtr, -1400.0, 1.0), closed_form(CLOSED["probit"][1], -1400.0, 1.0), 1.0)) < WORST
    # the mass is farther from the cavity than any grid of the cavity's sd
    assert max(errors(one(step, -999.5, 1.0), closed_form(CLOSED["step"][1], -999.5, 1.0), 1.0)) < WORST
    assert max(errors(one(bumps, 1000.0, 0.25), closed_form(bumps_z, 1000.0, 0.25), 0.25)) < WORST


def test_rounding_errors_of_log_p_are_no_obstacle():
    """The plain formula takes 1e7 from 1e7."""
    y = 10**6
    constant = float(mp.loggamma(y + 1) + y - y * mp.log(y))
    for mean, sd in ((14.0, 1.0), (13.8, 1e-3), (13.0, 30.0), (8791.78, 815.92)):
        log_z, d1, d2, shrink = one(lambda f: y * f - np.exp(f) - gammaln(y + 1.0), mean, sd)
        exact = one(lambda f: poisson(f, y), mean, sd)
        rounding = np.finfo(float).eps * y * 14
        assert log_z == pytest.approx(exact[0] - constant, abs=rounding)
        assert d1 == pytest.approx(exact[1], abs=rounding / sd)
        assert shrink == pytest.approx(exact[3], abs=rounding)


# ---------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("value", [0.0, -2.5, 1e-3, 700.0, -1e6])
def test_constant_likelihoods(value):
    sd = np.array(SDS)
    log_z, d1, d2, shrink = log_tilted(lambda f, _: np.full(f.shape, value), np.linspace(-1e4, 1e4, sd.size), sd**2)
    np.testing.assert_allclose(log_z, value, rtol=LAST_BIT)
    assert (d1 == 0).all()
    assert (d2 == 0).all()
    assert (shrink == 1).all()


def test_gaussian_likelihoods():
    rng = np.random.default_rng(0)
    n = 2 * SITES_PER_CHUNK + 3
    sd, width = 10 ** rng.uniform(-6, 3, n), 10 ** rng.uniform(-3, 3, n)
    mean, total = rng.uniform(-100, 100, n), sd**2 + width**2
    y = mean + np.sqrt(total) * rng.uniform(-10, 10, n)
    log_z, d1, d2, shrink = log_tilted(lambda f, i: -0.5 * ((f - y[i, None]) / width[i, None]) ** 2, mean, sd**2)
    scale = np.maximum(1 / sd, np.abs(y - mean) / total)
    expected = 0.5 * np.log(width**2 / total) - 0.5 * (mean - y) ** 2 / total
    np.testing.assert_array_less(np.abs(log_z - expected), WORST * np.maximum(1, np.abs(expected)))
    np.testing.assert_array_less(np.abs(d1 - (y - mean) / total), WORST * scale)
    np.testing.assert_array_less(np.abs(d2 + 1 / total), WORST / sd**2)
    np.testing.assert_allclose(shrink, width**2 / total, rtol=WORST)
    np.testing.assert_allclose(1 + sd**2 * d2, shrink, atol=SOLVES)


LIKELIHOODS = log_expit, log_ndtr, laplace, step, jump, bumps, student, lambda f: poisson(f, 3)


def of_all(f, index):
    """A likelihood of its own for each site."""
    values = np.empty(f.shape)
    for k, log_p in enumerate(LIKELIHOODS):
        values[index % len(LIKELIHOODS) == k] = log_p(f[index % len(LIKELIHOODS) == k])
    return values


def draw(n, seed):
    rng = np.random.default_rng(seed)
    sd = 10 ** rng.uniform(-3, 3, n)
    return rng.uniform(-3, 3, n) + sd * rng.uniform(-20, 20, n), sd


def assert_same(results, expected, sd, tolerance):
    for result, other, scale in zip(results, expected, (1, 1 / sd, 1 / sd**2, 1), strict=True):
        np.testing.assert_array_less(np.abs(result - other), tolerance * np.maximum(scale, np.abs(other)))


def test_sites_do_not_depend_on_each_other():
    mean, sd = draw(SITES_PER_CHUNK + 40, seed=1)
    together = log_tilted(of_all, mean, sd**2)
    some = np.arange(0, mean.size, 37)
    single = [
        log_tilted(lambda f, _, i=i: of_all(f, np.full(f.shape[0], i)), mean[i : i + 1], sd[i : i + 1] ** 2)
        for i in some
    ]
    assert_same([a[some] for a in together], np.array(single)[:, :, 0].T, sd[some], 1e-13)
    assert_same(together, log_tilted(of_all, mean, sd**2), sd, 1e-15)


def test_symmetries():
    mean, sd = draw(400, seed=2)
    base = log_tilted(of_all, mean, sd**2)
    higher = log_tilted(lambda f, i: of_all(f, i) + 32.0, mean, sd**2)
    assert_same(higher, (base[0] + 32.0, *base[1:]), sd, 1e-11)
    log_z, d1, d2, shrink = log_tilted(lambda f, i: of_all(-f, i), -mean, sd**2)
    assert_same((log_z, -d1, d2, shrink), base, sd, 1e-11)
    exact = np.round(mean * 2.0**20) / 2.0**20  # so that the shift is without rounding
    shifted = log_tilted(lambda f, i: of_all(f - 64.0, i), exact + 64.0, sd**2)
    assert_same(shifted, log_tilted(of_all, exact, sd**2), sd, 1e-10)


def test_derivatives_are_those_of_log_z():
    mean, sd = draw(200, seed=3)
    h = 1e-3 * sd
    low, at, high = (log_tilted(of_all, mean + k * h, sd**2) for k in (-1, 0, 1))
    np.testing.assert_allclose((high[0] - low[0]) / 2e-3, at[1] * sd, rtol=SLOPES, atol=SLOPES)
    np.testing.assert_allclose((high[1] - low[1]) * sd / 2e-3, at[2] * sd**2, rtol=SLOPES, atol=SLOPES)


def test_log_p_may_overwrite_its_argument_and_return_any_array():
    sd = np.array([0.1, 1.0, 100.0])
    base = log_tilted(lambda f, _: -np.abs(f - 3.0), np.zeros(3), sd**2)

    def careless(f, _):
        f -= 3.0
        np.abs(f, out=f)
        return np.negative(f, out=f)

    assert_same(log_tilted(careless, np.zeros(3), sd**2), base, sd, 1e-15)
    for result in log_tilted(lambda f, _: np.broadcast_to(np.float32(0.0), f.shape), np.zeros(3), sd**2)[:3]:
        np.testing.assert_array_equal(result, 0.0)


def test_no_sites():
    assert [a.shape for a in log_tilted(of_all, np.empty(0), np.empty(0))] == [(0,)] * 4


def test_the_rule():
    powers = np.arange(2 * quadrature.LOBATTO_ORDER)
    expected = np.where(powers % 2, 0.0, 2.0 / (powers + 1))
    np.testing.assert_allclose(
        quadrature.LOBATTO_WEIGHTS @ quadrature.LOBATTO_NODES[:, None] ** powers, expected, atol=LAST_BIT
    )


# ---------------------------------------------------------------------------------------------- refusals


def spoilt(value):
    def log_p(f, index):
        values = -0.5 * f**2
        values[(index == 2)[:, None] & (f > 30)] = value
        return values

    return log_p


@pytest.mark.parametrize(
    ("log_p", "message"),
    [
        (spoilt(np.nan), r"log_p must be finite or -inf, got nan for site 2 at f = \d+"),
        (spoilt(np.inf), r"log_p must be finite or -inf, got inf for site 2 at f = \d+"),
        (lambda f, _: -0.5 * f[:, 0] ** 2, r"must return an array of shape \(3, \d+\), got \(3,\) for sites 0 to 2"),
        (lambda f, _: None, r"must return an array of shape \(3, \d+\), got \(\) for sites 0 to 2, the first at f = "),
        (
            lambda f, i: np.where((i == 1)[:, None], -np.inf, -np.abs(f)),
            r"log_p of site 1 is -inf wherever it was evaluated \(cavity mean 2, sd 3\)",
        ),
        (
            lambda f, i: np.where((i == 1)[:, None], np.sin(1e9 * f), -np.abs(f)),
            r"log_p of site 1 cannot be integrated to 1e-10 \(cavity mean 2, sd 3\)",
        ),
        (
            lambda f, i: np.where((i == 1)[:, None], f**2, -np.abs(f)),
            r"log_p of site 1 rises faster than the cavity falls",
        ),
    ],
)
def test_refusals(log_p, message):
    with pytest.raises(ValueError, match=message):
        log_tilted(log_p, np.array([1.0, 2.0, 3.0]), np.array([1.0, 9.0, 4.0]))


# ---------------------------------------------------------------------------------------------- passes

OF_PASSES = {
    "student": (lambda f, y: student(f, y), False),
    "count": (lambda f, y: np.maximum(np.round(y), 0.0) * f - np.exp(f), False),
    "label": (lambda f, y: log_expit(np.where(y > 0.0, f, -f)), False),
    "gaussian": (lambda f, y: -2.0 * (f - y) ** 2, False),
    "laplace": (lambda f, y: laplace(f, y), True),
    "huber": (lambda f, y: np.where(np.abs(f - y) < 1.3, -0.5 * (f - y) ** 2, 0.845 - 1.3 * np.abs(f - y)), True),
    "jump": (lambda f, y: jump(f, y), True),
}


@pytest.mark.parametrize("name", OF_PASSES)
def test_passes_integrate_to_1e_9_at_few_nodes(name):
    """Kinks and jumps, wherever they lie between the nodes, and what is far from Gaussian, are left to panels."""
    log_p, kinked = OF_PASSES[name]
    rng, sd = np.random.default_rng(3), np.repeat([1e-3, 0.03, 0.3, 1.0, 3.0], 120)
    centre, values = rng.normal(size=sd.size), []
    y, mean = centre + rng.normal(size=sd.size), centre + sd * rng.normal(size=sd.size)

    def counted(f, index):
        values.append(f.size)
        return log_p(f, y[index, None])

    assert_same(log_tilted_of_pass(counted, mean, sd**2), log_tilted(counted, mean, sd**2), sd, 1e-9)
    values.clear()
    log_tilted_of_pass(counted, mean[:240], sd[:240] ** 2)
    assert kinked or (len(values) <= 2 and sum(values) < 60 * 240)


def test_passes_look_between_the_nodes():
    """A spike that no node sees; a likelihood that is zero at all of them."""
    site = np.zeros(1), np.ones(1)

    def spike(f, _):
        return np.logaddexp(-3.0, -0.5 * ((f - 0.1) / 0.02) ** 2)

    assert_same(log_tilted_of_pass(spike, *site), log_tilted(spike, *site), 1.0, 1e-12)
    with pytest.raises(ValueError, match="is -inf wherever it was evaluated"):
        log_tilted_of_pass(lambda f, _: np.full(f.shape, -np.inf), *site)


def test_passes_see_what_oscillates_more_than_once_between_nodes():
    """An angle under cavities of many turns, whatever their width over the period."""
    sd = np.linspace(1.0, 60.0, 237)

    def angle(f, _):
        return 2.0 * np.cos(f - 1.0)

    site = np.full(sd.size, 0.3), sd**2
    assert_same(log_tilted_of_pass(angle, *site), log_tilted(angle, *site), sd, 1e-9)


def test_passes_see_what_begins_beyond_the_nodes():
    """The square of f was seen: of two peaks one is 6.9 sd from the middle, the other 7.9."""
    site = np.array([-0.107]), np.array([0.2095]) ** 2

    def square(f, _):
        return -0.5 * ((f * f - 2.4047) / 0.02066) ** 2

    assert_same(log_tilted_of_pass(square, *site), log_tilted(square, *site), site[1] ** 0.5, 1e-9)
