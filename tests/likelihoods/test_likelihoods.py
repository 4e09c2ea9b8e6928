"""Likelihoods: golden moments, laws, equal bits from every variant, bad input."""

import json

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from reference import sites as reference
from scipy import special
from scipy.stats import norm
from support import GOLDEN
from support.sites import BEST, assert_golden, kernel
from support.tolerances import AT_REST, INTEGRAL, LAST_BIT, LOSSES, ROUNDING, SOLVES, SUMS

import cavity
from cavity import _core, likelihoods
from cavity.likelihoods import (
    Binomial,
    Clutter,
    Gaussian,
    Interval,
    Laplace,
    Logit,
    NegativeBinomial,
    OrderedProbit,
    Poisson,
    Probit,
    Step,
    StudentT,
    quadrature,
)
from cavity.likelihoods.base import encode_observations, encode_responses, kernel_settings
from cavity.likelihoods.parameters import FreeParameters

VARIANTS = _core.variants("sites")
TABLE = json.loads((GOLDEN / "likelihoods.json").read_text())
FINITE = st.floats(-1e6, 1e6)
LABEL = st.sampled_from([-1.0, 1.0])
SD = st.floats(-6, 3).map(lambda exponent: 10.0**exponent)

SMOOTH = [
    (Probit(), 1.0),
    (Logit(), 0.0),
    (Poisson(), 7.0),
    (NegativeBinomial(2.5), 3.0),
    (StudentT(3.0, 0.5), 0.7),
    (Laplace(0.7), -0.4),
    (Gaussian(0.3), 2.0),
    (Clutter(0.2, 9.0, 0.5, 1.0), 1.3),
    (OrderedProbit([-1.0, 0.0, 2.0]), 2.0),
    (Interval(0.0), (-0.5, 0.7)),
    (Binomial(), (3.0, 10.0)),
    (Binomial("probit"), (7.0, 10.0)),
    (likelihoods.Gamma(2.0), 1.7),
    (likelihoods.Tweedie(1.5, 2.0), 3.0),
    (likelihoods.Beta(4.0), 0.8),
    (likelihoods.BetaBinomial(2.0), (3.0, 10.0)),
    (likelihoods.ZeroInflatedPoisson(0.3), 0.0),
    (likelihoods.ZeroInflatedNegativeBinomial(2.0, 0.3), 0.0),
    (likelihoods.HurdlePoisson(0.3), 2.0),
    (likelihoods.Cloglog(), 1.0),
    (likelihoods.OrderedLogit([-1.0, 1.0]), 1.0),
    (likelihoods.AsymmetricLaplace(0.9, 0.5), 1.0),
]
TIMES = [
    (likelihoods.Weibull(1.3), (1.5, 1.5)),
    (likelihoods.Weibull(1.3, "hazard"), (1.5, 2.0)),
    (likelihoods.LogLogistic(1.3), (1.5, 2.0)),
    (likelihoods.LogNormal(0.7), (1.5, np.inf)),
]


class OwnLaplace(likelihoods.Likelihood):
    """Known by its logarithm alone."""

    def log_p(self, y, f):
        return -np.abs(y - f) - np.log(2.0)


def evaluate(likelihood, y, power, mean, variance, variant=BEST):
    """(log_z, d1, d2, tau, rho) of sites of p(y|f)^power, straight from the kernel."""
    mean, variance = (np.atleast_1d(np.asarray(a, dtype=float)) for a in (mean, variance))
    y = np.ascontiguousarray(np.broadcast_to(likelihood.check(y), mean.shape + np.shape(y)[np.ndim(y) :]))
    return kernel(likelihood, y, power, mean, variance, variant)


def from_table(entry):
    likelihood = getattr(likelihoods, entry["likelihood"])(**entry["parameters"])
    y = np.atleast_1d(likelihood.check(np.array([entry["y"]], dtype=float)))
    return kernel(likelihood, y, entry["power"], np.array([entry["mean"]]), np.array([entry["variance"]]))


# ---------------------------------------------------------------------------------------------- truth


@pytest.mark.parametrize("name", sorted({entry["likelihood"] for entry in TABLE}))
def test_golden_moments(name):
    """From tests/golden/make_likelihoods.py."""
    entries = [item for item in TABLE if item["likelihood"] == name]
    for entry in entries:
        assert_golden(entry, [float(a[0]) for a in from_table(entry)])
    assert len(entries) >= 15


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("name", "sizes"), [("Probit", (126, 127, 128, 129, 255, 256, 257)), ("Logit", (63, 64, 65)), ("Poisson", ())]
)
def test_the_last_sites_of_a_tile_count(name, sizes, variant):
    """The last row takes each entry of the table in turn, the others one with the fewest nodes."""
    likelihood = getattr(likelihoods, name)()
    entries = [item for item in TABLE if item["likelihood"] == name and item["power"] == 1]
    other = min(entries, key=lambda entry: entry["variance"])
    for n in (*range(1, 34), *sizes):
        for entry in entries[:: 1 if n % 16 < 2 else 4]:
            rows = [other] * (n - 1) + [entry]
            y, mean, variance = (np.array([row[key] for row in rows], dtype=float) for key in ("y", "mean", "variance"))
            checked = np.ascontiguousarray(likelihood.check(y))
            result = np.transpose(kernel(likelihood, checked, 1, mean, variance, variant))
            assert_golden(entry, result[-1])
            assert_golden(rows[0], result[0])
            np.testing.assert_array_equal(result[:-1], np.broadcast_to(result[0], (n - 1, 5)))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["Probit", "Logit", "Gaussian", "Laplace"])
def test_every_row_has_its_own_power(name, variant):
    entries = [item for item in TABLE if item["likelihood"] == name]
    entries = [value for value in entries if value["parameters"] == entries[0]["parameters"]]
    likelihood = getattr(likelihoods, name)(**entries[0]["parameters"])
    columns = (
        np.array([element[key] for element in entries], dtype=float) for key in ("y", "power", "mean", "variance")
    )
    y, power, mean, variance = columns
    assert len(set(power)) > 1
    result = kernel(likelihood, np.ascontiguousarray(likelihood.check(y)), power, mean, variance, variant)
    for entry, at in zip(entries, np.transpose(result), strict=True):
        assert_golden(entry, at)


@pytest.mark.parametrize("variant", VARIANTS)
def test_logit_far_below_zero(variant):
    """sigmoid(f) = e^f - e^{2 f} there, so that d2 = -e^{m + 3 v/2}, whose mass is an sd above that of Z."""
    v = 10.0 ** np.linspace(-6.0, np.log10(16.0), 40)
    m = -2.5 * v - np.linspace(35.0, 300.0, 40)
    y = np.ones(40)
    log_z, d1, d2, _, rho = kernel(Logit(), y, 1.0, m, v, variant)
    np.testing.assert_allclose(log_z, m + 0.5 * v, rtol=LAST_BIT)
    np.testing.assert_allclose(d1, y, rtol=LAST_BIT)
    np.testing.assert_allclose(d2, -np.exp(m + 1.5 * v), rtol=SOLVES)
    np.testing.assert_array_equal(rho, -d2)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(2.5)])
def test_no_counts_far_below_zero(likelihood, variant):
    """log p(0|f) = -e^f there; e^f has its mass v above that of the cavity, beyond 8 sd for the wider ones."""
    v = 10.0 ** np.linspace(-6.0, 2.0, 40)
    m = -2.5 * v - np.linspace(35.0, 300.0, 40)
    log_z, d1, d2, tau, rho = kernel(likelihood, np.zeros(40), 1.0, m, v, variant)
    rate = np.exp(m + 0.5 * v)
    np.testing.assert_allclose(log_z, -rate, rtol=0, atol=ROUNDING)
    for result, true in ((-d1, rate), (-d2, rate), (rho, rate), (-tau, rate * (1.0 - m))):
        np.testing.assert_allclose(result, true, rtol=LOSSES)


@pytest.mark.parametrize("variant", VARIANTS)
def test_part_of_a_label_far_from_zero(variant):
    """sigmoid(f)^e for f below 0 and above: d2 = -e e^{-|m| + v/2}, whose mass is an sd above that of Z or below."""
    v = 10.0 ** np.linspace(-6.0, 2.0, 40)
    m = 2.5 * v + np.linspace(35.0, 300.0, 40)
    _, d1, d2, _, _ = kernel(Logit(), np.ones(40), 0.5, m, v, variant)
    np.testing.assert_allclose(d1, 0.5 * np.exp(-m + 0.5 * v), rtol=LOSSES)
    np.testing.assert_allclose(d2, -0.5 * np.exp(-m + 0.5 * v), rtol=LOSSES)
    _, d1, d2, _, _ = kernel(Logit(), -np.ones(40), 0.5, m, v, variant)
    np.testing.assert_allclose(d1, np.full(40, -0.5), rtol=LAST_BIT)
    np.testing.assert_allclose(d2, -0.5 * np.exp(-(m - 0.5 * v) + 0.5 * v), rtol=LOSSES)


def test_published_probit_site():
    """ReactiveMP's: cavity N(1, 0.5), y = 1."""
    *_, tau, rho = evaluate(Probit(), 1, 1, 1.0, 0.5)
    assert tau[0] == pytest.approx(0.67236165826940, rel=SUMS)
    assert rho[0] == pytest.approx(0.32950039939607, rel=SUMS)


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_variants_return_the_same_bits(variant):
    rng = np.random.default_rng(5)
    for likelihood, y in [*SMOOTH, *TIMES, (Step(), 1.0)]:
        for n in (1, 15, 16, 17, 129, 300):
            mean, variance = rng.normal(size=n) * 10.0 ** rng.integers(-2, 3, n), 10.0 ** rng.uniform(-9, 5, n)
            checked = np.ascontiguousarray(likelihood.check(np.broadcast_to(y, (n, *np.shape(y)))))
            base = kernel(likelihood, checked, 1, mean, variance, _core.BASELINE_VARIANT)
            for one, other in zip(base, kernel(likelihood, checked, 1, mean, variance, variant), strict=True):
                np.testing.assert_array_equal(one.view(np.int64), other.view(np.int64))


@pytest.mark.parametrize(("likelihood", "y"), [*SMOOTH, *TIMES, (Step(), 1.0)])
def test_a_site_does_not_depend_on_its_neighbours(likelihood, y):
    """Nor on whether all sites have one power or each its own, which takes the scalar path."""
    rng = np.random.default_rng(6)
    n = 37
    mean, variance = 3 * rng.normal(size=n), 10.0 ** rng.uniform(-6, 4, n)
    checked = np.ascontiguousarray(likelihood.check(np.broadcast_to(y, (n, *np.shape(y)))))
    together = kernel(likelihood, checked, 1, mean, variance)
    apart = kernel(likelihood, checked, np.ones(n), mean, variance)
    for i in range(n):
        single = kernel(likelihood, checked[i : i + 1], 1, mean[i : i + 1], variance[i : i + 1])
        assert [a[0] for a in single] == [a[i] for a in together] == [a[i] for a in apart]


@pytest.mark.parametrize(("likelihood", "y"), [*SMOOTH[10:], *TIMES])
def test_all_rules_beside_adaptive_quadrature(likelihood, y):
    """Cavities of all widths: each has its rule, of few nodes, many, or panels."""
    rng = np.random.default_rng(7)
    n = 300
    variance = 10.0 ** rng.uniform(-5, 1.5, n)
    mean = rng.uniform(-4, 4, n) + np.sqrt(variance) * rng.normal(size=n)
    checked = np.ascontiguousarray(likelihood.check(np.broadcast_to(y, (n, *np.shape(y)))))
    log_z, d1, d2, *_ = kernel(likelihood, checked, 1, mean, variance)
    expected = quadrature.log_tilted(lambda f, i: likelihood.log_p(checked[i, None], f), mean, variance)
    assert np.max(np.abs(log_z - expected[0]) / np.maximum(1.0, np.abs(expected[0]))) < INTEGRAL
    assert np.max(np.abs(d1 - expected[1]) * np.sqrt(variance)) < INTEGRAL
    assert np.max(np.abs(d2 - expected[2]) * variance) < INTEGRAL


@pytest.mark.parametrize(("mean", "variance"), [(-1e-18, 1e-18), (-1e-17, 1e-14), (-4e-17, 1e-14), (0.0, 1e-300)])
def test_counts_in_cavities_at_the_mode_of_p(mean, variance):
    """log p(1|f) = f - exp(f) is highest at f = 0."""
    log_z, d1, d2 = Poisson().log_tilted(1, mean, variance)
    assert log_z == pytest.approx(-1.0, abs=SUMS)
    assert d1 == pytest.approx(0.0, abs=ROUNDING)
    assert d2 == pytest.approx(-1.0, abs=SUMS)


def signed(rng, low, high, n):
    return rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(low, high, n)


# likelihood, its reference, parameters of that, observations
NARROW = [
    (Poisson(), "Poisson", {}, lambda rng, n: rng.integers(0, 3, n).astype(float)),
    (Poisson(), "Poisson", {}, lambda rng, n: np.floor(10.0 ** rng.uniform(0, 12, n))),
    (NegativeBinomial(2.5), "NegativeBinomial", {"r": 2.5}, lambda rng, n: np.floor(10.0 ** rng.uniform(-1, 6, n))),
    (NegativeBinomial(1e-3), "NegativeBinomial", {"r": 1e-3}, lambda rng, n: np.floor(10.0 ** rng.uniform(-1, 4, n))),
    (NegativeBinomial(1e12), "NegativeBinomial", {"r": 1e12}, lambda rng, n: np.floor(10.0 ** rng.uniform(-1, 7, n))),
    (Logit(), "Logit", {}, lambda rng, n: rng.choice([-1.0, 1.0], n)),
    (StudentT(4.0, 1.0), "StudentT", {"nu": 4.0, "scale": 1.0}, lambda rng, n: signed(rng, -20, 2, n)),
    (StudentT(3e5, 2.0), "StudentT", {"nu": 3e5, "scale": 2.0}, lambda rng, n: signed(rng, -20, 2, n)),
    (Probit(), "Probit", {}, lambda rng, n: rng.choice([-1.0, 1.0], n)),
    (Binomial("probit"), "Binomial", {"link": "probit"}, lambda rng, n: trials(rng, n)),
]


def trials(rng, n):
    """Successes and trials, few and many."""
    total = np.floor(10.0 ** rng.uniform(0, 4, n))
    return np.column_stack([rng.binomial(total.astype(int), rng.choice([1e-4, 0.3, 1.0], n)), total]).astype(float)


def check_narrow(likelihood, name, parameters, y, power, mean, variance):
    """log_z to 1e-13 but for the rounding of log variance, d1 to that of the terms of l', rho as the golden moments."""
    form = reference.SMOOTH[name]
    exact = reference.from_narrow(lambda f: form(f, y, **parameters), mean, variance, power)
    assert exact is not None, "a wider cavity than the reference knows"
    log_z, d1, d2, tau, rho, shrink = map(float, reference.completed(*exact, mean, variance))
    at = [float(a[0]) for a in kernel(likelihood, np.array([y]), power, np.array([mean]), np.array([variance]))]
    where = likelihood, y, power, mean, variance
    counts = name in ("Poisson", "NegativeBinomial")
    terms = y + np.exp(min(mean, 30.0)) if counts else abs(y - mean) + abs(mean) if name == "StudentT" else 1.0
    if name == "Binomial":
        terms = y[1] * (1.0 + abs(mean))
    if name == "NegativeBinomial":  # whose probabilities are functions of f - log r, which rounds
        terms *= 1.0 + 0.25 * abs(np.log(parameters["r"]))
    # exp(f) rounds once, which moves log p by |y - exp(f)| times that
    rounded = np.finfo(float).eps * abs(y - np.exp(min(mean, 30.0))) if counts else 0.0
    eps = 4 * np.finfo(float).eps
    rounded += np.finfo(float).eps * abs(d1) * (1 + abs(mean)) if name == "Binomial" else 0.0
    assert abs(at[0] - log_z) <= 1e-13 * (1 + abs(log_z)) + rounded, where
    assert abs(at[1] - d1) <= 1e-12 * abs(d1) + eps * terms + 1e-20 / np.sqrt(variance), where
    assert abs(at[2] - d2) <= 1e-10 * abs(d2), where
    assert abs(at[3] - tau) <= 1e-12 * (abs(d1) / shrink + abs(mean * rho)) + eps * terms / shrink + 1e-19 / np.sqrt(
        variance
    ), where
    assert abs(at[4] - rho) <= 1e-10 * abs(rho), where


@pytest.mark.sample(4)
@pytest.mark.parametrize("n", [2, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize(("likelihood", "name", "parameters", "draw"), NARROW)
def test_narrow_cavities(likelihood, name, parameters, draw, n):
    """Cavities near 0, near where log p is highest, and elsewhere, compared with the reference."""
    rng = np.random.default_rng(n)
    y = draw(rng, n)
    top = np.log(np.maximum(y, 1.0)) if name in ("Poisson", "NegativeBinomial") else y if name == "StudentT" else 0.0
    for mean, low, high in (
        (signed(rng, -20, -2, n), -60, -6),
        (top + signed(rng, -20, -3, n), -40, -6),
        (signed(rng, -3, 1, n), -40, -4),
    ):
        # no wider than p is where it bends most
        width = np.where(y > 1, 1e-3 / np.sqrt(np.maximum(y, 1.0)), 1.0) ** 2 if name == "Poisson" else 1.0
        variance = np.minimum(10.0 ** rng.uniform(low, high, n), width)
        for i in range(n):
            for power in (1.0, 0.3):
                check_narrow(likelihood, name, parameters, y[i], power, mean[i], variance[i])


CLOSED_FORMS = [
    (Probit(), "Probit", {}, lambda rng: rng.choice([-1.0, 1.0])),
    (Step(), "Probit", {"noise": 0}, lambda rng: rng.choice([-1.0, 1.0])),
    (Laplace(0.7), "Laplace", {"scale": 0.7}, lambda rng: signed(rng, -20, 2, 1)[0]),
    (Gaussian(0.3), "Gaussian", {"noise": 0.3}, lambda rng: signed(rng, -20, 2, 1)[0]),
    (
        Clutter(0.2, 9.0, 0.5, 1.0),
        "Clutter",
        {"weight": 0.2, "clutter": 9.0, "noise": 0.5, "centre": 1.0},
        lambda rng: signed(rng, -20, 2, 1)[0],
    ),
    (Interval(0.3), "Interval", {"noise": 0.3}, lambda rng: tuple(np.sort(signed(rng, -8, 2, 2)).tolist())),
    (Interval(0.0), "Interval", {"noise": 0}, lambda rng: tuple(np.sort(signed(rng, -8, 2, 2)).tolist())),
    (OrderedProbit([-1.0, 0.5]), "Interval", {"noise": 1}, lambda rng: (-1.0, 0.5)),
]


@pytest.mark.parametrize("n", [4, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize(("likelihood", "name", "parameters", "draw"), CLOSED_FORMS)
def test_closed_forms_of_all_scales(likelihood, name, parameters, draw, n):
    """Cavities of all scales from 1e-30 to 1e10, compared with closed forms in many digits."""
    rng = np.random.default_rng(n)
    for _ in range(n):
        y, mean, variance = draw(rng), float(signed(rng, -20, 3, 1)[0]), float(10.0 ** rng.uniform(-60, 20))
        for power in (1.0, 0.3) if name in ("Laplace", "Gaussian") else (1.0,):
            digits = 250 + 2 * int(abs(np.log10(variance)))
            exact = reference.from_closed_form(
                lambda m, v, y=y, e=power: reference.CLOSED[name](m, v, y, e, **parameters), mean, variance, digits
            )
            values = reference.completed(*exact, mean, variance, digits)
            log_z, d1, d2, _, rho, shrink = map(float, values)
            checked = np.atleast_1d(np.array(1.0)) if name == "Interval" and likelihood.n_classes else np.array([y])
            at = [float(a[0]) for a in kernel(likelihood, checked, power, np.array([mean]), np.array([variance]))]
            where, nothing = (likelihood, y, power, mean, variance), 1e-20 / np.sqrt(variance)
            assert abs(at[0] - log_z) <= 1e-12 * max(1, abs(log_z)), where
            # d1 of Laplace is a difference of two probabilities over the scale
            near = 1e-15 if name == "Laplace" else 0.0
            assert abs(at[1] - d1) <= 1e-12 * abs(d1) + nothing + near, where
            assert abs(at[2] - d2) <= 1e-12 * abs(d2) + nothing / np.sqrt(variance), where
            assert abs(at[4] - rho) <= 1e-12 * abs(rho) + nothing / np.sqrt(variance), where
            assert abs(1 / (1 + variance * at[4]) - shrink) <= 1e-12 * shrink * max(1, -variance * rho), where


@pytest.mark.parametrize(
    ("likelihood", "y", "side"), [(Poisson(), 0, -1), (Logit(), 1, 1), (Probit(), 1, 1), (NegativeBinomial(1.0), 0, -1)]
)
@pytest.mark.parametrize("exponent", [24, 30, 40, 50, 70])
def test_cavities_far_wider_than_p_see_a_step(likelihood, y, side, exponent):
    """The corrections are of the order of log(sd)/sd."""
    log_z, d1, d2 = likelihood.log_tilted(y, 0.3, 10.0**exponent)
    assert log_z == pytest.approx(-np.log(2), abs=AT_REST)
    assert d1 * 10 ** (exponent / 2) == pytest.approx(side * np.sqrt(2 / np.pi), abs=AT_REST)
    assert d2 * 10.0**exponent == pytest.approx(-2 / np.pi, abs=AT_REST)


@pytest.mark.parametrize(
    ("likelihood", "y", "side"),
    [
        (Poisson(), 0, -1),
        (Logit(), 1, 1),
        (NegativeBinomial(5.0), 0, -1),
        (Binomial(), (0, 5), -1),
        (Binomial(), (5, 5), 1),
    ],
)
@pytest.mark.parametrize("exponent", [10, 14, 16, 20, 30])
@pytest.mark.parametrize("mean", [-3e4, -800.0, 800.0, 3e4])
def test_wide_cavities_centred_where_p_is_flat(likelihood, y, side, exponent, mean):
    """There exp(f) underflows, and the cavity's sd says nothing about how fast log p bends; again p is a step."""
    sd = 10.0 ** (exponent / 2)
    log_z, d1, _ = likelihood.log_tilted(y, mean, sd * sd)
    step, hazard = norm.logcdf(side * mean / sd), np.exp(norm.logpdf(mean / sd) - norm.logcdf(side * mean / sd))
    assert log_z == pytest.approx(step, abs=10.0 / sd)  # of where the step is
    assert d1 * sd == pytest.approx(side * hazard, abs=10.0 / sd)


LOG_P = [
    *[(Poisson(), "Poisson", {}, y) for y in (0, 1, 20, 10**6, 10**9, 10**12)],
    *[
        (NegativeBinomial(r), "NegativeBinomial", {"r": r}, y)
        for r in (1e-3, 0.7, 20.0, 1e6, 1e12, 1e15)
        for y in (0, 1, 20, 10**4, 10**6, 10**9)
    ],
    *[
        (StudentT(nu, 0.5), "StudentT", {"nu": nu, "scale": 0.5}, 0.3)
        for nu in (0.01, 0.5, 4.0, 63.9, 64.0, 1e3, 1e5, 2e6, 1e9)
    ],
]


@pytest.mark.parametrize(("likelihood", "name", "parameters", "y"), LOG_P)
def test_log_p_and_its_constants(likelihood, name, parameters, y):
    """To 1e-13 and the rounding of exp(f), which moves log p by |y - exp(f)| times that; by the kernel too."""
    top = np.log(y) if y > 1 else 0.3
    for f in (top, top + 0.3 / np.sqrt(y + 1.0), top - 2.0 / np.sqrt(y + 1.0), top + 0.7, top - 1.5):
        with mp.workdps(60):
            exact = float(reference.SMOOTH[name](mpmath.mpf(float(f)), mpmath.mpf(y), **parameters)[0])
        counts = name != "StudentT"
        tol = 1e-13 * abs(exact) + (1.5 * np.finfo(float).eps * abs(y - np.exp(f)) if counts else 0.0)
        assert float(likelihood.log_p(np.array(float(y)), np.array(f))) == pytest.approx(exact, abs=tol, rel=0)
        narrow = kernel(likelihood, np.array([float(y)]), 1.0, np.array([float(f)]), np.array([1e-60]))[0][0]
        assert narrow == pytest.approx(exact, abs=tol + SUMS, rel=0)  # the rounding of log variance


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize(
    ("k", "n"), [(0, 5), (5, 5), (3, 10), (1, 10**6), (5 * 10**5, 10**6), (999_990, 10**6), (2, 10**9)]
)
def test_log_p_of_trials(link, k, n):
    """As that of counts, to 1e-13 and the rounding of f; by the kernel too."""
    likelihood, share = Binomial(link), (k + 0.1) / (n + 0.2)
    top = special.logit(share) if link == "logit" else special.ndtri(share)
    for f in map(float, (top, top + 0.3 / np.sqrt(n), top - 2.0 / np.sqrt(n), top + 0.7, top - 1.5, 0.0)):
        with mp.workdps(60):
            value, slope, _ = map(float, reference.binomial(mpmath.mpf(f), (k, n), link))
        tol = 1e-13 * abs(value) + 1.5 * np.finfo(float).eps * (abs(slope) + 1.0) * max(1.0, abs(f))
        assert float(likelihood.log_p(np.array([k, n]), np.array(f))) == pytest.approx(value, abs=tol, rel=0)
        assert float(likelihood.log_tilted([k, n], f, 1e-60)[0]) == pytest.approx(value, abs=tol + SUMS, rel=0)


@pytest.mark.parametrize(("link", "label"), [("logit", Logit()), ("probit", Probit())])
def test_one_trial_is_a_label_and_none_is_nothing(link, label):
    rng = np.random.default_rng(0)
    mean, variance, likelihood = 10 * rng.normal(size=200), 10.0 ** rng.uniform(-12, 8, 200), Binomial(link)
    for power in (1.0, 0.3):
        for k, y in ((1, 1.0), (0, -1.0)):
            result = kernel(likelihood, np.tile([float(k), 1.0], (200, 1)), power, mean, variance)
            exact = kernel(label, np.full(200, y), power, mean, variance)
            for mine, theirs, near in zip(result, exact, (1e-13, *[1e-250] * 4), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=INTEGRAL, atol=near)
    assert not np.any(likelihood.log_tilted([0, 0], mean, variance))
    assert likelihood.log_p(np.zeros(2), 3.0) == 0.0


@pytest.mark.parametrize("link", ["logit", "probit"])
@given(mean=st.floats(-60, 60), sd=SD, k=st.integers(0, 30), failures=st.integers(0, 30))
def test_successes_and_failures_are_mirror_images(link, mean, sd, k, failures):
    log_z, d1, d2 = Binomial(link).log_tilted([k, k + failures], mean, sd * sd)
    mirrored = Binomial(link).log_tilted([failures, k + failures], -mean, sd * sd)
    np.testing.assert_allclose(
        mirrored, (log_z, -d1, d2), rtol=0.0 if k != failures else AT_REST, atol=SOLVES * (k == failures)
    )


@pytest.mark.parametrize("link", ["logit", "probit"])
@given(mean=st.floats(-8, 8), sd=SD, trials=st.integers(0, 12))
def test_numbers_of_successes_sum_to_one(link, mean, sd, trials):
    y = [(k, trials) for k in range(trials + 1)]
    assert np.exp(Binomial(link).log_tilted(y, mean, sd * sd)[0]).sum() == pytest.approx(1.0, rel=AT_REST)


def test_negative_binomial_of_large_dispersion():
    """As -7.82180 when its constant was a difference of log gammas."""
    exact = -7.8266943955198917
    assert float(NegativeBinomial(1e12).log_p(np.array(1e6), np.log(1e6))) == pytest.approx(exact, rel=SUMS)


def test_log_p_of_intervals():
    """Without bounds, far away, and so narrow that differences of the distribution function have no digits."""
    noise, f = 0.3, np.array([0.0, -40.0, 3.0, 1.0, 2.5, 1e200, 0.0])
    bounds = [(-np.inf, np.inf), (0, np.inf), (-np.inf, -900.0), (2.0, 2.0 + 1e-13), (2.0, 2.0), (0.0, 1.0), (-1, 9)]
    values = Interval(noise).log_p(np.array(bounds), f)
    for value, bound, at in zip(values, bounds, f, strict=True):
        with mp.workdps(60):
            exact = (
                mp.log(reference.interval_z(mpmath.mpf(at), mpmath.mpf(0), bound, 1, noise)) if at < 1e100 else -mp.inf
            )
        assert float(value) == pytest.approx(float(exact), rel=SUMS, abs=1e-300)
    grades = OrderedProbit([0.0, 1.0])
    assert grades.log_p(np.array([0, 1, 2])[:, None], np.zeros((3, 2))).shape == (3, 2)
    assert grades.log_p(np.array(2), np.array(1e4)) == 0.0
    assert grades.log_p(np.array([], dtype=float), np.array([])).shape == (0,)


# ---------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize(("likelihood", "y"), SMOOTH)
@pytest.mark.parametrize(("mean", "variance"), [(0.3, 0.5), (-1.5, 4.0), (2.0, 0.01)])
def test_derivatives_are_those_of_log_z(likelihood, y, mean, variance):
    """Central differences: errors h^4 from the next terms and eps/h from rounding."""
    h = 1e-3 * np.sqrt(variance)
    log_z, d1, d2 = likelihood.log_tilted(y, mean + h * np.arange(-2, 3), variance)
    slope = (log_z[0] - 8 * log_z[1] + 8 * log_z[3] - log_z[4]) / (12 * h)
    bend = (d1[0] - 8 * d1[1] + 8 * d1[3] - d1[4]) / (12 * h)
    assert d1[2] == pytest.approx(slope, rel=AT_REST, abs=INTEGRAL / np.sqrt(variance))
    assert d2[2] == pytest.approx(bend, rel=AT_REST, abs=INTEGRAL / variance)


@pytest.mark.parametrize("likelihood", [Probit(), Step(), Logit()])
@given(mean=st.floats(-60, 60), sd=SD, y=LABEL)
def test_labels_are_symmetric(likelihood, mean, sd, y):
    log_z, d1, d2 = likelihood.log_tilted(y, mean, sd * sd)
    assert likelihood.log_tilted(-y, -mean, sd * sd) == (log_z, -d1, d2)


@pytest.mark.parametrize("likelihood", [Probit(), Step(), Logit()])
@given(mean=st.floats(-8, 8), sd=SD)
def test_labels_sum_to_one(likelihood, mean, sd):
    log_z = likelihood.log_tilted([-1.0, 1.0], mean, sd * sd)[0]
    assert np.exp(log_z).sum() == pytest.approx(1.0, rel=SUMS)


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), Laplace(2.0), StudentT(3.0, 0.5)])
@given(y=st.integers(-50, 50), mean=st.integers(-50, 50), shift=st.integers(-(2**20), 2**20), sd=SD)
def test_noise_does_not_know_where_zero_is(likelihood, y, mean, shift, sd):
    """Whole numbers, whose differences are exact."""
    result = likelihood.log_tilted(y, mean, sd * sd)
    other = likelihood.log_tilted(y + shift, mean + shift, sd * sd)
    np.testing.assert_allclose(other[0], result[0], rtol=LOSSES, atol=LOSSES)
    np.testing.assert_allclose(other[1], result[1], rtol=AT_REST, atol=AT_REST / sd)
    np.testing.assert_allclose(other[2], result[2], rtol=AT_REST, atol=AT_REST / sd**2)


@pytest.mark.parametrize("exponent", [-498, -353, 353, 498])
@pytest.mark.parametrize("likelihood", [Gaussian, Laplace, StudentT])
def test_noise_in_units_of_any_size(likelihood, exponent):
    """Powers of two, of which squares are numbers still, round nothing."""
    rng, unit = np.random.default_rng(0), np.ldexp(1.0, exponent)
    y, mean, sd = 2 * rng.normal(size=60), 2 * rng.normal(size=60), 10 ** rng.uniform(-2, 3, 60)
    likelihood, other = (
        {Gaussian: lambda s: Gaussian(s * s), Laplace: Laplace, StudentT: lambda s: StudentT(4.0, s)}[likelihood](s)
        for s in (0.3, 0.3 * unit)
    )
    expected, result = likelihood.log_tilted(y, mean, sd**2), other.log_tilted(y * unit, mean * unit, (sd * unit) ** 2)
    np.testing.assert_allclose(result[0] + np.log(unit), expected[0], atol=INTEGRAL)
    np.testing.assert_allclose(result[1] * unit, expected[1], rtol=SUMS)
    np.testing.assert_allclose(result[2] * unit**2, expected[2], rtol=SUMS)


@given(mean=st.floats(-20, 20), sd=SD, cuts=st.lists(st.floats(-10, 10), min_size=1, max_size=5, unique=True))
def test_ordered_classes_sum_to_one(mean, sd, cuts):
    grades = OrderedProbit(sorted(cuts))
    log_z = grades.log_tilted(np.arange(grades.n_classes), mean, sd * sd)[0]
    assert np.exp(log_z).sum() == pytest.approx(1.0, rel=SUMS)


@given(mean=st.floats(-50, 50), sd=SD, bound=st.floats(-5, 5))
def test_an_interval_without_one_bound_is_probit(mean, sd, bound):
    for side, y in ((1.0, (bound, np.inf)), (-1.0, (-np.inf, bound))):
        result = Interval(1.0).log_tilted(y, mean, sd * sd)
        np.testing.assert_allclose(result, Probit().log_tilted(side, mean - bound, sd * sd), rtol=LOSSES, atol=1e-250)
    assert Interval(1.0).log_tilted((-np.inf, np.inf), mean, sd * sd) == (0.0, 0.0, 0.0)


def test_two_ordered_classes_are_probit():
    mean = np.linspace(-9, 9, 7)
    for result, other in zip(
        OrderedProbit([0.0]).log_tilted(1, mean, 2.0), Probit().log_tilted(1, mean, 2.0), strict=True
    ):
        np.testing.assert_allclose(result, other, rtol=ROUNDING)


@pytest.mark.parametrize("y", [0, 4, 60])
def test_negative_binomial_becomes_poisson(y):
    """The difference is of order 1/dispersion."""
    mean, variance = np.array([-1.0, 1.0, 3.0]), np.array([0.2, 1.0, 3.0])
    poisson = Poisson().log_tilted(y, mean, variance)
    differences = []
    for dispersion in (1e5, 1e7):
        near = NegativeBinomial(dispersion).log_tilted(y, mean, variance)
        differences.append(max(np.max(np.abs(a - b)) for a, b in zip(near, poisson, strict=True)))
    assert differences[0] < 0.1
    assert differences[1] == pytest.approx(differences[0] / 100, rel=0.05)


def test_outliers_get_sites_of_negative_precision():
    log_z, _, d2, _, rho = evaluate(StudentT(4.0), 12.0, 1, 0.0, 1.0)
    assert d2[0] > 0 > rho[0] > -1
    assert np.isfinite(log_z[0])


@pytest.mark.parametrize(("likelihood", "y"), SMOOTH)
def test_log_tilted_broadcasts(likelihood, y):
    results = likelihood.log_tilted(np.broadcast_to(y, (3, *np.shape(y))), 0.5, np.array([[0.5], [2.0]]))
    for result in results:
        assert result.shape == (2, 3)
        np.testing.assert_array_equal(result, result[:, :1] + np.zeros(3))
    single = likelihood.log_tilted(y, 0.5, 0.5)
    assert [np.ndim(a) for a in single] == [0, 0, 0]
    assert [a[0, 0] for a in results] == list(single)
    empty = likelihood.log_tilted(y, np.empty(0), 1.0)
    assert [a.shape for a in empty] == [(0,)] * 3


WILD = st.one_of(st.floats(-60, 60), st.floats(-1e6, 1e6), st.sampled_from([0.0, 1e-30, -1e-30]))
EXPONENT = st.floats(-30, 12)


@pytest.mark.parametrize(("likelihood", "y"), [*SMOOTH, (Step(), 1.0), (Interval(0.25), (1.0, 1.0 + 1e-12))])
@given(mean=WILD, exponent=EXPONENT)
def test_never_nan(likelihood, y, mean, exponent):
    try:
        log_z, d1, d2 = likelihood.log_tilted(y, mean, 10.0**exponent)
    except ArithmeticError:  # said rather than returned: exp(f) has left float64 for every f in reach
        assert isinstance(likelihood, Poisson | NegativeBinomial)
        assert abs(mean) > 700
        return
    assert not np.isnan([log_z, d1, d2]).any()
    natural = evaluate(likelihood, y, 1, mean, 10.0**exponent) if np.ndim(y) == 0 else ()
    assert not any(np.isnan(a).any() for a in natural)


# ---------------------------------------------------------------------------------------------- input


@pytest.mark.parametrize("likelihood", [Probit(), Step(), Logit()])
def test_labels(likelihood):
    for y in ([-1, 1], [0, 1], [False, True], [-1.0, 1.0]):
        np.testing.assert_array_equal(likelihood.check(y), [-1.0, 1.0])
    for y, row in (([0, 1, 2], 2), ([0.5, 1], 0), ([-1, 0, 1], 0), ([1, 3], 1)):
        with pytest.raises(ValueError, match=f"y must hold two classes.*in row {row}"):
            likelihood.check(y)
    with pytest.raises(ValueError, match="y must be finite"):
        likelihood.check([1, np.nan])
    with pytest.raises(TypeError, match="y must hold real numbers"):
        likelihood.check(["yes", "no"])


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(1.0)])
def test_counts(likelihood):
    for bad, row in (([1, -1], 1), ([0.5, 1], 0)):
        with pytest.raises(ValueError, match=f"y must hold whole numbers, not negative.*in row {row}"):
            likelihood.log_tilted(bad, 0.0, 1.0)


def test_trials():
    for bad, message in (
        ([[3, 2]], "at most as many successes as trials; got 3.0 and 2.0 in row 0"),
        ([[1, 2], [0.5, 2]], "whole numbers.*got 0.5 and 2.0 in row 1"),
        ([[-1, 2]], "at least 0.*got -1.0"),
        ([1, 2, 3], r"y must have shape \(N, 2\), successes and trials each"),
        ([[1, np.inf]], "y must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            Binomial().log_tilted(bad, 0.0, 1.0)
    with pytest.raises(ValueError, match="link must be one of 'logit', 'probit', got 'cloglog'"):
        Binomial("cloglog")


def test_bounds():
    for bad, message in (
        ([[2.0, 1.0]], "lower < upper bounds, got .*2.0.* and .*1.0.* in row 0"),
        ([[0.0, 1.0], [1.0, np.nan]], "in row 1"),
        ([[np.inf, np.inf]], "in row 0"),
        ([1.0, 2.0, 3.0], "shape"),
    ):
        with pytest.raises(ValueError, match=message):
            Interval(1.0).log_tilted(bad, 0.0, 1.0)
    with pytest.raises(ValueError, match="equal bounds need noise_variance > 0"):
        Interval(0.0).log_tilted([1.0, 1.0], 0.0, 1.0)
    for bad in ([], [1.0, 1.0], [2.0, 1.0]):
        with pytest.raises(ValueError, match="thresholds must be increasing"):
            OrderedProbit(bad)
    with pytest.raises(ValueError, match="y must be at most 1 for 1 thresholds, got 2 in row 1"):
        OrderedProbit([0.0]).log_tilted([0, 2], 0.0, 1.0)


@pytest.mark.parametrize(("likelihood", "y"), SMOOTH)
def test_moments_are_checked(likelihood, y):
    for mean, variance, message in (
        (0.0, 0.0, "variance must be positive, got 0.0"),
        (0.0, [1.0, -2.0], "variance must be positive, got -2.0"),
        (0.0, np.nan, "variance must be finite"),
        (np.inf, 1.0, "mean must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            likelihood.log_tilted(y, mean, variance)


@pytest.mark.parametrize(("likelihood", "y"), [*SMOOTH, (Step(), 1.0), (OwnLaplace(), 0.3)])
def test_variances_without_all_digits_are_refused(likelihood, y):
    """The precision of 5e-324 is not within float64; 2.3e-308 is the smallest number with all its digits."""
    for small in (5e-324, 1e-310):
        with pytest.raises(ValueError, match=r"variance must be at least 2\.2250738585072014e-308, got"):
            likelihood.log_tilted(y, 0.3, [1.0, small])
    log_z, d1, d2 = likelihood.log_tilted(y, 0.3, 2.3e-308)
    assert np.isfinite([log_z, d1, d2]).all()
    checked = likelihood.check(y)
    assert log_z == pytest.approx(float(likelihood.log_p(checked, np.float64(0.3))), abs=SOLVES)


def test_moments_that_no_rule_resolves_are_refused():
    with pytest.raises(ArithmeticError, match="mean -1.67e.10 and variance 3.57e.07 cannot be integrated: .*Poisson"):
        Poisson().log_tilted([1, 2], [0.0, -16705218382.42663], [1.0, 35736449.474307425])


def test_parameters_are_checked():
    for make, name in (
        (lambda v: Gaussian(v), "noise_variance"),
        (lambda v: Laplace(v), "scale"),
        (lambda v: StudentT(v), "degrees_of_freedom"),
        (lambda v: StudentT(scale=v), "scale"),
        (lambda v: NegativeBinomial(v), "dispersion"),
        (lambda v: Clutter(clutter_variance=v), "clutter_variance"),
        (lambda v: Clutter(clutter_weight=v), "clutter_weight"),
    ):
        for bad in (0.0, -1.0, np.nan):
            with pytest.raises(ValueError, match=f"{name} must be in"):
                make(bad)
    with pytest.raises(ValueError, match="noise_variance must be in"):
        Interval(-1.0)


@pytest.mark.parametrize(
    "likelihood",
    [
        likelihoods.Gaussian(1.0),
        likelihoods.Laplace(1.0),
        likelihoods.StudentT(3.0),
        likelihoods.Probit(),
        likelihoods.Logit(),
        likelihoods.Step(),
        likelihoods.Poisson(),
        likelihoods.NegativeBinomial(1.0),
        likelihoods.Interval(0.0),
        likelihoods.Interval(2.0),
        likelihoods.Binomial(),
    ],
    ids=repr,
)
def test_log_densities_of_lists_are_those_of_arrays(likelihood):
    y = [[0, 1], [1, 2]] if likelihood._y_ndim == 2 else [1, 1]
    result = likelihood.log_p(y, [0.5, 1.5])
    np.testing.assert_array_equal(result, likelihood.log_p(np.array(y), np.array([0.5, 1.5])))


def test_log_densities_that_are_complex_are_refused():
    """A fit would drop their imaginary parts."""

    class Turned(likelihoods.Likelihood):
        def log_p(self, y, f):
            return -0.5 * (y - f) ** 2 + 0.1j

    with pytest.raises(TypeError, match="log_p must return real numbers, got complex128"):
        cavity.GLM(Turned(), intercept=False).fit([[1.0], [2.0]], [0.5, 1.0])


SEVERAL_COUNTS = np.random.default_rng(2).poisson(4.0, size=(3, 50)).astype(float)
SEVERAL_COUNTS[:, :2] = 0.0, 1e6


@pytest.mark.parametrize(
    ("likelihood", "names", "y"),
    [
        (likelihoods.NegativeBinomial(2.0), ("dispersion",), SEVERAL_COUNTS),
        (likelihoods.NegativeBinomial(2.0), (), SEVERAL_COUNTS),
        (likelihoods.Poisson(), (), SEVERAL_COUNTS),
        (likelihoods.Gaussian(0.5), ("noise_variance",), SEVERAL_COUNTS),
        (likelihoods.Gamma(2.0), ("shape",), SEVERAL_COUNTS + 0.5),
        (likelihoods.ZeroInflatedNegativeBinomial(2.0, 0.3), ("dispersion", "zero_probability"), SEVERAL_COUNTS),
    ],
)
def test_responses_are_encoded_as_each_alone(likelihood, names, y):
    free = FreeParameters(likelihood, names)
    vectors = free.pack(likelihood) + np.random.default_rng(3).normal(size=(3, free.size))
    encoded = encode_responses(likelihood, y, free, vectors)
    for parameters, numbers, extra, vector, response in zip(*encoded, vectors, y, strict=True):
        single = free.unpack(vector, likelihood)
        np.testing.assert_allclose(parameters, kernel_settings(single)[1], rtol=SUMS)
        expected = encode_observations(single, response)
        np.testing.assert_array_equal(numbers, expected[0])
        np.testing.assert_allclose(extra, expected[1], rtol=SUMS, atol=SUMS)
