"""Power EP: tilted moments against grids and the closed form, fixed points against a naive twin, extremes, errors."""

import warnings

import mpmath
import numpy as np
import pytest
from reference import clutter as ordinary
from reference import power as reference
from scipy.special import expit
from support.clutters import assert_same_bits, bits, draw, finite, points_of, sweeper_of
from support.tolerances import AT_REST, EARLY, INTEGRAL, LOSSES, OPTIMUM, ROOT_EPS, ROUNDING, SLOPES, SOLVES

import cavity
from cavity import Clutter, ConvergenceWarning
from cavity.models.clutter import power_ep as power_ep
from cavity.models.clutter.problem import DataPoints, Points
from cavity.models.clutter.solution import find_posteriors


def moments(log_z, pull, rho_f, x, m, v):
    """Turn what `match` returns into log Z and the moments of the tilted distribution."""
    rho = 1 / v + rho_f
    return log_z, m + pull * (x - m) / rho, 1 / rho


def match(x, m, v, alpha, w=0.5, c=10.0, s=1.0, centre=0.0):
    """`power_ep.match_sites` for one point and a cavity."""
    x, m = np.atleast_1d(x), np.atleast_1d(m)
    model = Points.of(DataPoints(np.zeros((1, 1))), Clutter(clutter_weight=w, clutter_variance=c)).units.model
    d = x.size
    base = model[4] - d * model[2] - np.sum((x - centre) ** 2) * model[1]
    delta = np.sqrt(np.sum((x - m) ** 2))
    return [a[0] for a in power_ep.match_sites(model, alpha, d, np.array([base]), np.array([1 / v]), np.array([delta]))]


# ---------------------------------------------------------------------------------------------- integrals


def test_bessel_functions():
    z = np.array([0.0, 1e-9, 0.1, 2.0, 17.0, 29.9, 30.1, 400.0, 1e6, 1e13])
    for d in (2, 3, 9, 60, 61, 62, 63, 300, 1000):
        nu = 0.5 * d - 1
        log_scaled, ratio, rest = power_ep._evaluate_bessel(nu, z)
        assert ratio[0] == pytest.approx(1 / d, rel=ROUNDING)
        assert rest[0] == 1
        with mpmath.workdps(40):
            for i in range(1, 8):
                order, argument = mpmath.mpf(nu), mpmath.mpf(float(z[i]))
                first, second = (mpmath.besseli(order + k, argument) for k in (0, 1))
                expected = mpmath.log(first) - argument - order * mpmath.log(argument / 2)
                assert log_scaled[i] == pytest.approx(float(expected), rel=ROUNDING, abs=SOLVES)
                assert ratio[i] == pytest.approx(float(second / first / argument), rel=ROUNDING)
                assert rest[i] == pytest.approx(float(1 - second / first), rel=SOLVES)
        assert rest[-1] == pytest.approx(0.5 * (d - 1) / z[-1], rel=OPTIMUM)


@pytest.mark.sample(3)
@pytest.mark.parametrize("alpha", [0.02, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("v", [0.03, 1.0, 40.0])
def test_moments_on_a_grid(alpha, v):
    for x, m in ((0.3, 0.3), (2.0, 1.0), (-4.0, 3.0), (7.0, -2.0)):
        log_z, mean, variance = moments(*match(x, m, v, alpha), x, m, v)
        expected = reference.tilted(x, m, v, alpha)
        assert log_z == pytest.approx(expected[0], rel=AT_REST, abs=AT_REST)
        assert mean == pytest.approx(expected[1][0], rel=AT_REST, abs=AT_REST)
        assert variance == pytest.approx(expected[2], rel=AT_REST)
    x, m = np.array([1.5, 0.2]), np.array([0.0, -0.7])
    log_z, mean, variance = moments(*match(x, m, v, alpha, w=0.2, centre=0.5), x, m, v)
    expected = reference.tilted(x, m, v, alpha, w=0.2, centre=0.5)
    assert log_z == pytest.approx(expected[0], rel=ROOT_EPS)
    np.testing.assert_allclose(mean, expected[1], rtol=EARLY)
    assert variance == pytest.approx(expected[2], rel=EARLY)


@pytest.mark.sample(3)
@pytest.mark.parametrize("alpha", [0.1, 0.6])
@pytest.mark.parametrize("d", [3, 10, 120])
def test_moments_in_many_dimensions(alpha, d):
    for v, delta, gap in ((0.1, 2.0, 3.0), (1.0, 4.0, 0.5 * d), (20.0, 5.0, 1.5 * d), (2.0, 12.0, -1.0)):
        log_a = -0.5 * d * np.log(2 * np.pi)
        model = np.zeros(5)
        model[0] = 1.0
        log_z, pull, rho = (
            a[0] for a in power_ep.match_sites(model, alpha, d, np.array([-gap]), np.array([1 / v]), np.array([delta]))
        )
        expected = reference.tilted_radially(d, delta, v, alpha, log_a, log_a - gap)
        _, mean, variance = moments(log_z, pull, rho, 0.0, delta, v)
        assert log_z == pytest.approx(expected[0], rel=INTEGRAL)
        assert mean == pytest.approx(expected[1], rel=ROOT_EPS)
        assert variance == pytest.approx(expected[2], rel=ROOT_EPS)


def closed_form(d, base, v, delta, s=1.0):
    """The ordinary site after clutter.pxd, from the probability r of signal: log Z, pull and rho."""
    g = 1 / (v + s)
    q, f = v * g, delta**2 * g / d
    odds = base + 0.5 * (delta**2 * g - d * np.log(g))
    r, rest = expit(-odds), expit(odds)
    shrink = rest + r * s * g + r * rest * q * f
    return base - 0.5 * d * np.log(2 * np.pi) + np.logaddexp(0, -odds), r * g / shrink, r * g * (1 - rest * f) / shrink


@pytest.mark.parametrize("d", [1, 2, 10, 300])
def test_power_one_by_quadrature_is_the_ordinary_site(d):
    rng = np.random.default_rng(d)
    n, model = 400, np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    v = 10 ** rng.uniform(-3, 3, n)
    delta = np.sqrt(d * (v + 1)) * np.where(rng.random(n) < 0.1, 0.0, 10 ** rng.uniform(-3, 0.3, n))
    base = rng.normal(0, 4, n) - 0.5 * (delta**2 / (v + 1) + d * np.log(v + 1))
    log_z, pull, rho = power_ep.match_sites(model, 1.0, d, base, 1 / v, delta)
    expected = closed_form(d, base, v, delta)
    np.testing.assert_allclose(log_z, expected[0], rtol=SOLVES, atol=LOSSES)
    np.testing.assert_allclose(pull, expected[1], rtol=INTEGRAL)
    np.testing.assert_allclose(rho, expected[2], rtol=INTEGRAL, atol=INTEGRAL * np.min(expected[1]))


@pytest.mark.parametrize("d", [1, 2, 30, 1000])
def test_every_scale(d):
    """Narrow and wide cavities, hundreds of sd away, any odds: right at power 1, in bounds below."""
    grid = np.meshgrid(10.0 ** np.arange(-8, 9, 2), [0, 1e-9, 0.3, 3, 30, 300], [-1e5, -300, -3, 0, 3, 300, 1e5])
    v, sd, odds = (a.ravel() for a in grid)
    delta, model = sd * np.sqrt(v + 1), np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    for base in (odds, odds - 0.5 * (sd**2 + d * np.log(v + 1))):
        log_z, pull, rho = power_ep.match_sites(model, 1.0, d, base, 1 / v, delta)
        expected = closed_form(d, base, v, delta)
        np.testing.assert_allclose(log_z, expected[0], rtol=LOSSES, atol=LOSSES)
        np.testing.assert_allclose(pull * v / (1 + rho * v), expected[1] * v / (1 + expected[2] * v), atol=AT_REST)
        np.testing.assert_allclose(1 + rho * v, 1 + expected[2] * v, rtol=AT_REST, atol=LOSSES)
        for alpha in (0.5, 1e-3):
            log_z, pull, rho = power_ep.match_sites(model, alpha, d, base, 1 / v, delta)
            assert np.isfinite([log_z, pull, rho]).all()
            assert (pull >= 0).all()
            assert (rho <= alpha * (1 + 1e-7)).all()  # no more precise than the signal alone
            assert (rho > -1 / v).all()


def test_weak_sites_keep_their_digits():
    """Sites of 1e-12 of the cavity's precision, computed without differences of precisions."""
    v, delta = np.array([1e-4, 1.0, 50.0]), np.array([1.0, 5.0, 3.0])
    base = 27.0 - 0.5 * (delta**2 / (v + 1) + np.log(v + 1))
    result = power_ep.match_sites(np.array([1.0, 0, 0, 0, 0]), 1.0, 1, base, 1 / v, delta)
    for log_z, pull, rho in zip(*result, strict=True):
        assert 0 < abs(rho) < 1e-10
        assert np.isfinite(log_z + pull)
    _, pull, rho = power_ep.match_sites(np.array([1.0, 0, 0, 0, 0]), 1.0, 1, base, 1 / v, delta)
    expected = closed_form(1, base, v, delta)
    np.testing.assert_allclose(pull, expected[1], rtol=AT_REST)
    np.testing.assert_allclose(rho, expected[2], rtol=AT_REST)


# ---------------------------------------------------------------------------------------------- fixed points


@pytest.mark.long_cases("0.2-0.7")
@pytest.mark.sample(3)
@pytest.mark.parametrize("damping", [1.0, 0.7])
@pytest.mark.parametrize("alpha", [0.5, 0.2])
def test_fits_equal_their_naive_twin(alpha, damping):
    x = draw((12, 1), seed=7)
    posterior = Clutter(prior_variance=20.0).fit(x, power=alpha, damping=damping)
    m, v, evidence, loo, tau, rho = reference.ep(x, 45, alpha, damping=damping, v0=20.0)
    assert posterior.converged
    assert posterior.mean[0] == pytest.approx(m[0], rel=OPTIMUM)
    assert posterior.variance == pytest.approx(v, rel=OPTIMUM)
    assert posterior.log_evidence == pytest.approx(evidence, rel=EARLY)
    np.testing.assert_allclose(posterior.loo_log_density, loo, rtol=OPTIMUM)
    np.testing.assert_allclose(posterior.sites.tau, tau, rtol=SLOPES, atol=OPTIMUM)
    np.testing.assert_allclose(posterior.sites.rho, rho, rtol=SLOPES, atol=OPTIMUM)
    rest = [posterior.posterior / posterior.sites[i] for i in range(len(x))]
    signal = [ordinary.tilted(x[i], rest[i].mean, rest[i].variance, 0.5, 10.0, 1.0)[1] for i in range(len(x))]
    np.testing.assert_allclose(posterior.clutter_probability(x), 1 - np.array(signal), rtol=AT_REST)


@pytest.mark.long_cases("2")
@pytest.mark.parametrize("d", [1, 2, 20])
def test_fixed_point(d):
    """The tilted moments are the posterior's for every site, and the sites make the evidence."""
    alpha, x = 0.4, draw((30, d), seed=4)
    posterior = Clutter().fit(x, power=alpha, tol=1e-12)
    full, sites = posterior.posterior, posterior.sites
    product = posterior.prior * sites.prod()
    assert product.log_scale == pytest.approx(posterior.log_evidence, rel=LOSSES)
    assert product.variance == pytest.approx(posterior.variance, rel=LOSSES)
    for i in range(len(x)):
        rest = full.normalized() / sites[i] ** alpha
        result = match(x[i], rest.mean, rest.variance, alpha)
        log_z, mean, variance = moments(*result, x[i], rest.mean, rest.variance)
        np.testing.assert_allclose(mean, posterior.mean, rtol=ROOT_EPS, atol=AT_REST)
        assert variance == pytest.approx(posterior.variance, rel=AT_REST)
        assert (rest.normalized() * sites[i] ** alpha).log_scale == pytest.approx(log_z, rel=AT_REST)


def test_schedules_orders_and_dampings_share_the_fixed_point():
    x = draw((12, 2), seed=9)
    base = Clutter().fit(x, power=0.5)
    for options in (
        dict(schedule="parallel"),
        dict(schedule="parallel", damping=0.6, max_iter=300),
        dict(order="random", rng=1),
        dict(order=np.arange(12)[::-1]),
    ):
        other = Clutter().fit(x, power=0.5, **options)
        assert other.converged
        np.testing.assert_allclose(other.mean, base.mean, rtol=AT_REST)
        assert other.variance == pytest.approx(base.variance, rel=AT_REST)
        assert other.log_evidence == pytest.approx(base.log_evidence, rel=INTEGRAL)
        np.testing.assert_allclose(other.loo_log_density, base.loo_log_density, rtol=EARLY)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("d", [1, 3])
def test_power_one_through_the_quadrature_is_ordinary_ep(schedule, d):
    x = draw((40, d), seed=1)
    base = Clutter().fit(x, schedule=schedule)
    state, outcome = find_posteriors(sweeper_of(points_of(x), power_ep.PowerSweeper, schedule=schedule))
    assert outcome.converged
    assert state.rho == pytest.approx(base._sites.rho, rel=AT_REST)
    np.testing.assert_allclose(state.tau, base._sites.tau, rtol=AT_REST, atol=AT_REST)
    assert state.log_evidence == pytest.approx(base._sites.log_evidence, rel=LOSSES)
    np.testing.assert_allclose(state.loo + base._units.log_jacobian, base.loo_log_density, rtol=AT_REST)


@pytest.mark.long_cases("4")
@pytest.mark.parametrize("d", [1, 4])
def test_continuity(d):
    x = draw((40, d), seed=2)
    for power, near in ((1.0, 1 - 1e-6), (0.5, 0.5 + 1e-6), (1e-3, 1e-3 + 1e-6)):
        a, b = (Clutter().fit(x, power=p, schedule="parallel") for p in (power, near))
        np.testing.assert_allclose(a.mean, b.mean, atol=SLOPES)
        assert a.variance == pytest.approx(b.variance, rel=SLOPES)
        assert a.log_evidence == pytest.approx(b.log_evidence, rel=SLOPES)
    wide, narrow = (Clutter().fit(draw((40,), seed=2), power=p) for p in (1.0, 0.1))
    assert wide.variance > narrow.variance


def test_one_is_the_default():
    x = draw((30, 2), seed=1)
    assert_same_bits(bits(Clutter().fit(x)), bits(Clutter().fit(x, power=1)))


@pytest.mark.long_cases("sequential")
@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_a_batch_has_the_bits_of_its_problems(schedule):
    x = draw((5, 20, 1), seed=5)
    batch = Clutter().fit(x, power=0.5, schedule=schedule, n_threads=2)
    for b in range(5):
        single = Clutter().fit(x[b], power=0.5, schedule=schedule)
        assert_same_bits(bits(single), bits(batch, b))
        np.testing.assert_array_equal(batch.clutter_probability(x)[b], single.clutter_probability(x[b]))


def test_threads_do_not_change_bits():
    x = draw((1000, 2), seed=5)
    base = Clutter().fit(x, power=0.5, schedule="parallel")
    assert_same_bits(bits(base), bits(Clutter().fit(x, power=0.5, schedule="parallel", n_threads=3)))


# ---------------------------------------------------------------------------------------------- convergence, extremes


def test_what_is_stuck_says_so():
    x = draw((5,), seed=3)
    with pytest.warns(ConvergenceWarning, match="no progress"):
        posterior = Clutter().fit(x, power=0.8)
    assert not posterior.converged
    assert posterior.status == "no progress"
    assert posterior.trace["double_loop"] == 0
    assert np.isfinite([posterior.mean, posterior.variance, posterior.log_evidence]).all()


def test_judging_points_without_a_proper_cavity_is_refused():
    """q over a site to the power 1/2 may be proper where q over the site is not."""
    x = draw((5,), seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        posteriors = [Clutter().fit(draw((5,), seed=seed), power=0.8, max_iter=30) for seed in range(10)]
    refused = [p for p in posteriors if (1 / p.variance <= p.sites.rho).any()]
    assert refused
    for posterior in refused:
        with pytest.raises(ValueError, match="loo_log_density: at this power some points have no proper cavity"):
            posterior.loo_log_density  # noqa: B018
        with pytest.raises(ValueError, match="clutter_probability: at this power some points have no proper cavity"):
            posterior.clutter_probability(x)


def test_unfinished_fits_are_finite():
    for n_iter in (1, 2, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for schedule in ("sequential", "parallel"):
                for power in (0.1, 0.9):
                    for row in draw((2, 10), seed=20):
                        posterior = Clutter().fit(row, max_iter=n_iter, schedule=schedule, power=power)
                        assert np.isfinite([posterior.mean, posterior.variance, posterior.log_evidence]).all()
                        assert posterior.variance > 0


@pytest.mark.long_cases("0.05-sequential")
@pytest.mark.sample(3)
@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("power", [0.05, 0.5])
def test_hard_data(schedule, power):
    x = draw((40,), seed=3)
    base = Clutter().fit(x, schedule=schedule, power=power)
    far = Clutter().fit(np.append(x, [302.0]), schedule=schedule, power=power)
    assert far.mean == pytest.approx(base.mean, rel=AT_REST)
    expected = np.log(0.5) + ordinary.log_normal(302.0, 0.0, 10.0)
    assert far.log_evidence - base.log_evidence == pytest.approx(expected, rel=INTEGRAL)
    wide = draw((15, 1000), seed=2)
    wide[4] += 300.0
    same = np.full(20, 3.25), np.zeros(10), np.full((10, 4), -1.5)
    for data in ([1.7], [300.0], np.full((1, 1000), 0.3), wide, *same):
        assert finite(Clutter().fit(data, schedule=schedule, power=power))
    for settings in (
        dict(clutter_weight=1e-300),
        dict(clutter_weight=1 - 1e-12),
        dict(prior_variance=1e60),
        dict(clutter_variance=1e-20),
    ):
        assert finite(Clutter(**settings).fit(draw((20,), seed=2, w=0.0), schedule=schedule, power=power))


def test_extreme_units():
    x = draw((20,), seed=2)
    base = Clutter().fit(x, power=0.5, schedule="parallel")
    for scale in (1e-80, 1e80):
        model = dict(clutter_variance=10 * scale**2, noise_variance=scale**2, prior_variance=100 * scale**2)
        posterior = Clutter(**model).fit(x * scale, power=0.5, schedule="parallel")
        assert finite(posterior)
        assert posterior.mean / scale == pytest.approx(base.mean, rel=AT_REST)


# ---------------------------------------------------------------------------------------------- results, errors


@pytest.mark.long_cases("shape1")
@pytest.mark.parametrize("shape", [(20,), (20, 2), (3, 10, 1)])
def test_every_bit_comes_back(shape, tmp_path):
    posterior, path = Clutter().fit(draw(shape, seed=1), power=0.5, schedule="parallel"), tmp_path / "posterior.npz"
    posterior.save(path)
    restored = cavity.load(path)
    assert_same_bits(bits(posterior), bits(restored))
    np.testing.assert_array_equal(posterior.sites.log_scale, restored.sites.log_scale)
    later = restored.update(draw((*shape[:-2], 5, *shape[-1:]) if len(shape) > 1 else (5,), seed=2))
    assert np.isfinite(later.log_evidence).all()
    assert later._sites.loo is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(power=0), ValueError, r"power must be in \(0, 1\], got 0.0"),
        (dict(power=1.5), ValueError, r"power must be in \(0, 1\], got 1.5"),
        (dict(power=np.nan), ValueError, "power must be in"),
        (dict(power="x"), TypeError, "power must be a number, got 'x'"),
        (dict(power=0.5, method="adf"), ValueError, "power must be 1 for method='adf', .* got 0.5"),
    ],
)
def test_bad_powers(options, error, message):
    with pytest.raises(error, match=message):
        Clutter().fit([1.0, 2.0], **options)
