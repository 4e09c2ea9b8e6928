"""Cavities that are no difference of posterior and site: priors of any width."""

import warnings

import mpmath as mp
import numpy as np
import pytest
from reference import clutter as reference
from support.tolerances import AT_REST, EARLY, OPTIMUM, ROOT_EPS, ROUNDING, SOLVES

from cavity import Clutter, ConvergenceWarning, SettingsWarning

EVERY_WAY = {
    "sequential": {},
    "parallel": dict(schedule="parallel"),
    "damped": dict(damping=0.6),
    "adf": dict(method="adf"),
    "power": dict(power=0.5, schedule="parallel"),
    "power, sequential": dict(power=0.5),
}


def exact_one(x, weight, clutter_variance, noise_variance, prior_variance):
    """Mean, variance and log evidence of one point, all means 0, by mpmath; ADF and EP match them exactly."""
    with mp.workdps(250):
        x, w, c, s, v = map(mp.mpf, (x, weight, clutter_variance, noise_variance, prior_variance))
        signal = (1 - w) * mp.exp(-x * x / (2 * (v + s))) / mp.sqrt(2 * mp.pi * (v + s))
        clutter = w * mp.exp(-x * x / (2 * c)) / mp.sqrt(2 * mp.pi * c)
        z = signal + clutter
        r, gain = signal / z, v / (v + s)
        variance = v - r * gain * v + r * (1 - r) * (gain * x) ** 2
        return float(r * gain * x), float(variance), float(mp.log(z))


@pytest.mark.parametrize("way", EVERY_WAY)
def test_a_signal_under_a_prior_wider_than_float64(way):
    """Prior 1e-17 and site 1 sum to 1: the cavity is no difference of the two."""
    settings = 1e-10, 6e-4, 2.6, 1e17
    mean, variance, evidence = exact_one(1.0, *settings)
    assert (mean, variance, evidence) == pytest.approx((1.0, 2.6, -20.4909), rel=OPTIMUM)
    names = "clutter_weight", "clutter_variance", "noise_variance", "prior_variance"
    model = Clutter(**dict(zip(names, settings, strict=True)))
    posterior, batch = (model.fit(x, **EVERY_WAY[way]) for x in ([1.0], np.ones((3, 1, 1))))
    assert posterior.converged
    assert (posterior.mean, posterior.variance) == pytest.approx((mean, variance), rel=AT_REST)
    assert posterior.log_evidence == pytest.approx(evidence, rel=AT_REST)
    assert posterior.loo_log_density[0] == pytest.approx(evidence, rel=AT_REST)
    assert posterior.clutter_probability([1.0])[0] < 1e-3
    assert (posterior.prior * posterior.sites.prod()).log_scale == pytest.approx(evidence, rel=AT_REST)
    assert [batch.mean[1, 0], batch.log_evidence[1]] == [posterior.mean, posterior.log_evidence]
    np.testing.assert_array_equal(batch.loo_log_density[1], posterior.loo_log_density)


@pytest.mark.parametrize("way", ["sequential", "parallel", "damped", "adf"])
def test_one_point_under_any_prior_is_exact(way):
    rng = np.random.default_rng(3)
    for _ in range(40):
        w, c, s, v = 10.0 ** rng.uniform([-12, -4, -3, 3], [-0.1, 25, 3, 90])
        x = float(rng.normal() * 10.0 ** rng.uniform(-1, 3))
        posterior = Clutter(clutter_weight=w, clutter_variance=c, noise_variance=s, prior_variance=v).fit(
            [x], **EVERY_WAY[way]
        )
        mean, variance, evidence = exact_one(x, w, c, s, v)
        assert posterior.mean == pytest.approx(mean, abs=EARLY * np.sqrt(variance) + ROUNDING * abs(x))
        assert posterior.variance == pytest.approx(variance, rel=EARLY)
        assert posterior.log_evidence == pytest.approx(evidence, rel=AT_REST)
        assert np.isfinite(posterior.loo_log_density).all()


def largest_move(x, posterior, w, c, s, v):
    """By how much a visit of any site moves the posterior, in sd and relative variance, and the log evidence; mpmath.

    All means 0. Cavities are sums over the other sites in 150 digits.
    """

    def partition(tau, rho):
        return tau * tau / (2 * rho) - mp.log(rho) / 2

    with mp.workdps(150):
        site_tau, site_rho = ([mp.mpf(a) for a in slot] for slot in (posterior.sites.tau, posterior.sites.rho))
        x, w, c, s, prior_rho = [mp.mpf(a) for a in x], mp.mpf(w), mp.mpf(c), mp.mpf(s), 1 / mp.mpf(v)
        tau, rho = sum(site_tau), prior_rho + sum(site_rho)
        evidence, move = partition(tau, rho) - partition(0, prior_rho), mp.mpf(0)
        for i, point in enumerate(x):
            cavity = tau - site_tau[i], rho - site_rho[i]
            m, v = cavity[0] / cavity[1], 1 / cavity[1]
            signal = (1 - w) * mp.exp(-((point - m) ** 2) / (2 * (v + s))) / mp.sqrt(2 * mp.pi * (v + s))
            clutter = w * mp.exp(-(point**2) / (2 * c)) / mp.sqrt(2 * mp.pi * c)
            r, gain = signal / (signal + clutter), v / (v + s)
            mean = m + r * gain * (point - m)
            variance = v - r * gain * v + r * (1 - r) * (gain * (point - m)) ** 2
            move = max(move, abs(mean - tau / rho) * mp.sqrt(rho), abs(variance * rho - 1))
            evidence += mp.log(signal + clutter) - partition(tau, rho) + partition(*cavity)
        return float(move), float(evidence)


@pytest.mark.parametrize("way", ["sequential", "parallel", "damped"])
def test_fixed_points_under_any_prior(way):
    rng = np.random.default_rng(5)
    converged = 0
    for n in np.tile([2, 3, 6], 14):
        w, c, s, v = 10.0 ** rng.uniform([-10, -2, -2, 4], [-0.1, 20, 2, 80])
        x = rng.normal(size=n) * 10.0 ** rng.uniform(-1, 5, n if rng.random() < 0.5 else 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", SettingsWarning)
            posterior = Clutter(clutter_weight=w, clutter_variance=c, noise_variance=s, prior_variance=v).fit(
                x, **EVERY_WAY[way]
            )
        assert np.isfinite([posterior.mean, posterior.variance, posterior.log_evidence]).all()
        if posterior.converged:
            move, evidence = largest_move(x, posterior, w, c, s, v)
            assert move < 1e-5  # sites in units of the data round their distance from 0
            assert posterior.log_evidence == pytest.approx(evidence, rel=AT_REST, abs=AT_REST)
            converged += 1
    assert converged > 35


def test_updates_under_any_prior():
    for v in (1e17, 1e40, 1e90):
        model = dict(clutter_weight=1e-3, clutter_variance=1e6, noise_variance=2.0, prior_variance=v)
        start = Clutter(**model).fit([1.0])
        later = start.update([1.5, -700.0])
        mean, variance, evidence = reference.adf(np.array([[1.0], [1.5], [-700.0]]), 1e-3, 1e6, 2.0, 0.0, v)
        assert later.mean == pytest.approx(mean[0], rel=SOLVES)
        assert later.variance == pytest.approx(variance, rel=SOLVES)
        assert later.log_evidence == pytest.approx(evidence, rel=SOLVES)


def test_to_the_prior_and_back_is_a_change():
    """The first sweep of the parallel schedule went to the signal and back within one step."""
    model = dict(clutter_weight=2.4e-12, clutter_variance=1.1e10, noise_variance=1.5e-3, prior_variance=5e26)
    x = [-190.35028625813905, 10.926954474906308, -51.13068504840585, -20.535740689615125, -82.60641054077783]
    posterior = Clutter(**model).fit(x, schedule="parallel")
    assert posterior.mean == pytest.approx(Clutter(**model).fit(x).mean, rel=ROOT_EPS)
    assert largest_move(x, posterior, 2.4e-12, 1.1e10, 1.5e-3, 5e26)[0] < 1e-6


def test_a_start_whose_cavities_power_ep_cannot_use():
    model = Clutter(
        clutter_weight=0.5355694930526911,
        clutter_variance=46.74092901633182,
        noise_variance=0.09530456417845357,
        prior_variance=8612566.156060271,
    )
    x = [833585433224.0428, 18961.904522086632, 52796.73332978772]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        posterior = model.fit(x, schedule="parallel", power=0.5)
    assert np.isfinite([posterior.mean, posterior.variance, posterior.log_evidence]).all()
