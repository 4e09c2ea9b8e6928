"""The double loop: bounded, and honest where there is nothing to find."""

import time
import warnings
from functools import partial

import numpy as np
import pytest
from support.glms import GLM
from support.tolerances import AT_REST, EARLY, OPTIMUM

from cavity import likelihoods
from cavity.ep.dense import Dense
from cavity.ep.double_loop import (
    NO_FIXED_POINT,
    NO_PROGRESS,
    SITES_LOST_DIGITS,
    STEPS_PER_SWEEP,
    DoubleLoop,
    is_accepted,
)
from cavity.ep.free_energy import MatchedCavities, evaluate_free_energy
from cavity.ep.sites import Sites
from cavity.jobs.job import SILENT_JOB, Job
from cavity.runs.executors import Threads

SECONDS = 5.0  # a busy machine included; alone they take about one


def hopeless():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(20), rng.normal(size=(20, 2))])
    f = X @ [0.5, 1.0, -1.0]
    yield "narrow Laplace", likelihoods.Laplace(4e-5), np.ones((10, 1)), rng.normal(size=10)
    yield "interval of width 1e-9", likelihoods.Interval(0.0), X, np.column_stack([f, f + 1e-9])
    yield "interval between numbers", likelihoods.Interval(0.0), X, np.column_stack([f, np.nextafter(f, np.inf)])
    yield "huge column", likelihoods.Poisson(), X * [1.0, 1.0, 1e7], rng.poisson(np.exp(f))


HOPELESS = list(hopeless())


@pytest.mark.long_cases("narrow Laplace-parallel")
@pytest.mark.sample(3)
@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("case", HOPELESS, ids=[case[0] for case in HOPELESS])
def test_hopeless_problems_end_soon_and_say_so(case, schedule):
    _, likelihood, X, y = case
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = GLM(likelihood).fit(X, y, schedule=schedule)
    assert time.perf_counter() - start < SECONDS
    assert bool(caught) != posterior.converged
    assert posterior.converged == (posterior.residual < 1e-3 and posterior.status == "converged")
    assert np.all(np.isfinite(posterior.mean))
    assert np.all(posterior.variance > 0)
    assert np.isfinite(posterior.log_evidence)
    assert posterior.converged or posterior.status in (SITES_LOST_DIGITS, NO_FIXED_POINT, NO_PROGRESS)


def test_max_iter_bounds_the_double_loop():
    """Of a problem that needs it: three steps for each sweep allowed, from all starts together."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] > 0, 1.0, -1.0)
    with Threads(1) as threads:
        geometry = Dense(X, None, np.zeros(3), np.ones(3), threads)
        sites = Sites(likelihoods.Probit(), y)
        loop = DoubleLoop(
            geometry, partial(evaluate_free_energy, geometry, sites), np.zeros(30), np.zeros(30), 4, 1e-12
        )
        assert loop.run(SILENT_JOB) == "max_iter reached"
        assert len(loop.changes) == 4
        seen = []
        loop = DoubleLoop(
            geometry, partial(evaluate_free_energy, geometry, sites), np.zeros(30), np.zeros(30), 100, 1e-9
        )
        assert loop.run(Job.checked(lambda event: seen.append(event.n_iter)).continued_after(7)) == "converged"
        assert seen == list(range(8, 8 + len(seen)))
        full = GLM(likelihoods.Probit()).fit(X, y, tol=1e-11)
        np.testing.assert_allclose(loop.belief.mean, full.mean, rtol=EARLY)
        value = evaluate_free_energy(geometry, sites, loop.belief, MatchedCavities.flat(30))[0]
    assert -value == pytest.approx(full.log_evidence, rel=AT_REST)
    assert STEPS_PER_SWEEP == 3  # as the docstrings of `fit` say


def test_free_energy_of_power_ep_is_minus_its_evidence():
    """At the fixed point, with weights below and above one: every site counts by its own fraction."""
    rng = np.random.default_rng(3)
    X, weights = rng.normal(size=(12, 2)), rng.uniform(0.3, 2.5, 12)
    y = np.where(rng.normal(size=12) > 0, 1.0, -1.0)
    full = GLM(likelihoods.Probit()).fit(X, y, sample_weight=weights, power=0.6, tol=1e-12)
    with Threads(1) as threads:
        geometry, sites = Dense(X, None, np.zeros(2), np.ones(2), threads), Sites(likelihoods.Probit(), y, weights, 0.6)
        belief = geometry.belief(*geometry.gather(full.sites.tau, full.sites.rho))
        value, *implied, _ = evaluate_free_energy(geometry, sites, belief, None)
    assert -value == pytest.approx(full.log_evidence, rel=AT_REST)
    np.testing.assert_allclose(implied, (full.sites.tau, full.sites.rho), rtol=OPTIMUM)


@pytest.mark.parametrize("likelihood", [likelihoods.Probit(), likelihoods.StudentT(3.0, 0.5), likelihoods.Poisson()])
def test_cavities_of_given_moments_are_the_same_from_any_start(likelihood):
    """From flat sites, from the sites of EP, and from the cavities of other moments; each has the moments required."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(15, 2))
    y = rng.poisson(2.0, 15) + 0.0 if likelihood == likelihoods.Poisson() else np.sign(rng.normal(size=15))
    full = GLM(likelihood).fit(X, y, tol=1e-8)
    with Threads(1) as threads:
        geometry, sites = Dense(X, None, np.zeros(2), np.ones(2), threads), Sites(likelihood, y)
        at = full.sites.tau, full.sites.rho
        belief = geometry.sharpen(geometry.belief(*geometry.gather(*at)), 1.5)
        value, tau, rho, cavities = evaluate_free_energy(geometry, sites, belief, None)
        nearby = evaluate_free_energy(geometry, sites, geometry.sharpen(belief, 1.1), None)[-1]
        for start in (at, nearby):
            other = evaluate_free_energy(geometry, sites, belief, start)
            assert other[0] == pytest.approx(value, rel=AT_REST)
            np.testing.assert_allclose(other[1:3], (tau, rho), rtol=OPTIMUM)
        mean, variance = geometry.values(belief, slice(None), X)
    sd = np.sqrt(variance)
    _, match_tau, match_rho = sites.match(slice(None), mean + sd * cavities.t / cavities.r, variance / cavities.r)
    precision = cavities.r / variance + match_rho
    np.testing.assert_allclose(1.0 / precision, variance, rtol=OPTIMUM)
    tilted_mean = (cavities.r * mean / variance + cavities.t / sd + match_tau) / precision
    np.testing.assert_allclose((tilted_mean - mean) / sd, 0.0, atol=OPTIMUM)


def test_what_a_step_has_to_achieve():
    assert is_accepted(1.0, 0.9, 0.5, 0.5, 0.0)
    assert not is_accepted(1.0, 1.0 - 1e-5, 0.5, 0.5, np.inf)  # it fell, but not by its share
    assert is_accepted(1e6, 1e6 + 1e-10, 1e-12, 1e-12, 1e-9)  # rounding decides
    assert not is_accepted(1e6, 1e6 + 1e-8, 1e-12, 1e-12, 1e-9)
    assert not is_accepted(1.0, np.inf, 1e-14, 1e-14, np.inf)
    assert not is_accepted(1.0, np.nan, 1e-14, 1e-14, np.inf)
