"""EP and ADF for the clutter problem: cavity beside NumPy and Python floats.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_clutter.py`. Every implementation is compared
with another one before it is timed. The data are those of Minka's thesis: theta = 2, half of them clutter.
"""

from functools import lru_cache

import numpy as np
import pytest
from rivals import clutter as reference

import cavity
from cavity.ep.options import Options
from cavity.models.clutter.cavities import evaluate
from cavity.models.clutter.problem import DataPoints, Points
from cavity.models.clutter.sweeps import LaneSweeper, Sweeper, Visits, assimilate_points
from cavity.runs.executors import Threads

SETTING = reference.Setting()
SWEEPS = 3  # done from the prior by both sides before they are compared
PROBLEMS, POINTS = 1024, 200  # of the batch
MANY = 10**6  # points of the parallel sweeps
BLOCK = 1 << 14  # points a block of the NumPy code that keeps to the caches


@lru_cache(maxsize=4)
def data_of(*shape):
    """Return data of shape (N, d) or (B, N, d): half clutter N(0, 10), half signal N(theta, 1).

    At d = 100 theta is 5: around 2 all data are clutter to a prior as wide as this, and the sites stay empty.
    """
    rng = np.random.default_rng(7)
    clutter = rng.random((*shape[:-1], 1)) < 0.5
    theta = 5.0 if shape[-1] >= 100 else 2.0
    return np.where(clutter, rng.normal(0.0, np.sqrt(10.0), shape), rng.normal(theta, 1.0, shape))


def assert_close(actual, desired, atol=0.0):
    """Compare results whose operations come in a different order."""
    np.testing.assert_allclose(actual, desired, rtol=1e-9, atol=atol)


def points_of(x):
    """Return data in working units."""
    return Points.of(DataPoints(x), cavity.Clutter())


def in_data_units(units, state):
    """Return site_tau, site_rho, posterior mean and precision of a fit in the units of the data."""
    scale, site_rho = units.scale, state.site_rho * units.scale**2
    site_tau = state.site_tau * scale + site_rho[:, None] * units.origin
    return site_tau, site_rho, units.origin + state.tau / state.rho / scale, state.rho * scale**2


def assert_same_sites(units, state, site_tau, site_rho, tau, rho):
    """Compare cavity's state with sites and posterior in the units of the data.

    Textbook formulas take a site as the difference of two posteriors: its rounding is that of the posterior.
    """
    expected = in_data_units(units, state)
    assert_close(site_tau, expected[0].reshape(np.shape(site_tau)), atol=1e-12 + 1e-14 * rho)
    assert_close(site_rho, expected[1], atol=1e-12 + 1e-14 * rho)
    assert_close(np.divide(tau, rho), expected[2].reshape(np.shape(tau)))
    assert_close(rho, expected[3])


def sequential(name, x):
    """Return a function that does one more sequential sweep and returns (site_tau, site_rho, tau, rho)."""
    n, d = x.shape
    base, work, points = SETTING.base_odds(x).tolist(), np.empty((3, d)), x[:, 0].tolist()
    site_tau = [0.0] * n if name == "floats" else np.zeros((n, d))
    site_rho = np.zeros(n) if name == "naive" else [0.0] * n
    tau, rho = (0.0 if name == "floats" else np.zeros(d)), 1 / SETTING.prior_variance

    def sweep():
        nonlocal tau, rho
        now = site_tau, site_rho, SETTING, tau, rho
        if name == "floats":
            tau, rho = reference.sweep_floats(points, base, *now)
        elif name == "expert":
            rho = reference.sweep_vectors(x, base, *now, work)
        else:
            tau, rho, _ = reference.sweep_naive(x, *now)
        return site_tau, site_rho, tau, rho

    return sweep


SEQUENTIAL_POINTS = {1: 10_000, 2: 10_000, 10: 10_000, 100: 2_000}


def sequential_cases():
    """Return (d, implementation)."""
    for d in SEQUENTIAL_POINTS:
        yield from ((d, name) for name in ("cavity", "expert", "naive"))
    yield 1, "floats"


@pytest.mark.parametrize(("d", "name"), list(sequential_cases()))
def test_sequential(measure, d, name):
    """One sequential sweep of one problem."""
    x = data_of(SEQUENTIAL_POINTS[d], d)
    n, points = len(x), points_of(x)
    with Threads(1) as threads:
        sweeper = Sweeper(points, Options(schedule="sequential"), Visits(), threads)
        sweep = sequential("expert" if name == "cavity" else name, x)
        for _ in range(SWEEPS):
            sweeper.visit_one_by_one(n)
            results = sweep()
        assert_same_sites(points.units, sweeper.sites, *results)
        assert np.count_nonzero(sweeper.sites.site_rho > 1e-3) > n / 4
        call = (lambda: sweeper.visit_one_by_one(n)) if name == "cavity" else sweep
        measure(f"sequential sweep, d={d}", name, call, n, "update")


@pytest.mark.parametrize("name", ["cavity", "floats", "expert", "naive"])
def test_adf(measure, name):
    """ADF of one problem, d = 1, its log evidence included."""
    x = data_of(10_000, 1)
    data = points_of(x)
    base, points = SETTING.base_odds(x).tolist(), x[:, 0].tolist()

    def naive():
        site_tau, site_rho = np.zeros(x.shape), np.zeros(len(x))
        start = np.zeros(1), 1 / SETTING.prior_variance
        return (*reference.sweep_naive(x, site_tau, site_rho, SETTING, *start), site_tau, site_rho)

    calls = {
        "cavity": lambda: assimilate_points(data, None),
        "floats": lambda: reference.adf_floats(points, base, SETTING),
        "expert": lambda: reference.adf_vectors(x, base, SETTING),
        "naive": naive,
    }
    state, units = calls["cavity"](), data.units
    tau, rho, log_evidence, site_tau, site_rho = calls["floats" if name == "cavity" else name]()
    assert_same_sites(units, state, site_tau, site_rho, tau, rho)
    assert_close(log_evidence, state.log_evidence + len(x) * units.log_jacobian)
    measure("ADF, d=1", name, calls[name], len(x), "update")


def threads_of(name):
    """Return the number of threads in an implementation's name."""
    return 2 if name == "cavity, 2 threads" else 1


def batch_of(name):
    """Return the NumPy batch of an implementation."""
    kind = reference.NaiveBatch if name == "naive" else reference.ExpertBatch
    return kind(data_of(PROBLEMS, POINTS, 1)[..., 0], SETTING)


BATCH_NAMES = ["cavity", "cavity, 2 threads", "expert", "naive"]


@pytest.mark.parametrize("name", BATCH_NAMES)
def test_batch_sweep(measure, name):
    """One sequential sweep of many problems, d = 1."""
    x, batch = data_of(PROBLEMS, POINTS, 1), batch_of(name)
    points, everything = points_of(x), np.ones(PROBLEMS, dtype=bool)
    with Threads(threads_of(name)) as threads:
        lanes = LaneSweeper(points, Options(schedule="sequential"), Visits(), threads)
        for _ in range(SWEEPS):
            lanes.step(everything)
            batch.sweep()
        tau, rho = (sums.ravel()[:PROBLEMS] for sums in (lanes.sites.tau, lanes.sites.rho))
        units = points.units
        assert_close(batch.tau / batch.rho, units.origin[:, 0] + tau / rho / units.scale)
        assert_close(batch.rho, rho * units.scale**2)
        call = (lambda: lanes.step(everything)) if name.startswith("cavity") else batch.sweep
        measure("batch sweep, 1024 x 200, d=1", name, call, PROBLEMS * POINTS, "update")


@pytest.mark.parametrize("name", BATCH_NAMES)
def test_batch_fit(measure, name):
    """The whole fit of many problems, d = 1, to 1e-10, with log evidences."""
    x = data_of(PROBLEMS, POINTS, 1)

    def fit():
        return cavity.Clutter().fit(x, n_threads=threads_of(name))

    def fit_reference():
        return reference.fit_batch(batch_of(name))

    posterior, (mean, variance, log_evidence) = fit(), fit_reference()
    assert np.all(posterior.converged)
    assert np.all(posterior.trace["double_loop"] == 0)  # the references have none
    assert_close(mean, posterior.mean[:, 0])
    assert_close(variance, posterior.variance)
    assert_close(log_evidence, posterior.log_evidence)
    call = fit if name.startswith("cavity") else fit_reference
    measure("fit of a batch, 1024 x 200, d=1", name, call, PROBLEMS, "problem")


MANY_NAMES = ["cavity", "cavity, 2 threads", "expert", "blocked", "naive"]


@pytest.mark.parametrize("name", MANY_NAMES)
def test_parallel(measure, name):
    """One parallel sweep of many points, d = 1."""
    x = data_of(MANY, 1)
    data, points, base = points_of(x), x[:, 0], SETTING.base_odds(x)
    units = data.units
    work = np.ones((8, BLOCK if name == "blocked" else MANY))
    with Threads(threads_of(name)) as threads:
        sweeper = Sweeper(data, Options(schedule="parallel"), Visits(), threads)
        sweeper.step(None)
        site_tau, site_rho, mean, rho = in_data_units(units, sweeper.sites)
        site_tau, tau = site_tau[:, 0], float(mean[0] * rho)

        def sweep():
            nonlocal tau, rho
            now = site_tau, site_rho, SETTING, tau, rho
            if name == "naive":
                tau, rho = reference.sweep_parallel_naive(points, *now)
            else:
                tau, rho = reference.sweep_parallel_expert(points, base, *now, work)

        sweep()
        assert sweeper.renew_all() == 0
        assert_same_sites(units, sweeper.sites, site_tau, site_rho, tau, rho)
        call = sweeper.renew_all if name.startswith("cavity") else sweep
        measure("parallel sweep, N=1e6, d=1", name, call, MANY, "update")


@pytest.mark.parametrize("name", MANY_NAMES)
def test_evaluate(measure, name):
    """log Z, odds and site value of many points under their cavities: the log evidence, d = 1."""
    x = data_of(MANY, 1)
    data, points, base = points_of(x), x[:, 0], SETTING.base_odds(x)
    units = data.units
    with Threads(threads_of(name)) as threads:
        sweeper = Sweeper(data, Options(schedule="parallel"), Visits(), threads)
        sweeper.step(None)
        state = sweeper.sites
        site_tau, site_rho, mean, rho = in_data_units(units, state)
        cavities = site_tau[:, 0], site_rho, float(mean[0] * rho), rho, SETTING
        work, blocks = np.ones((6, MANY)), np.ones((3, BLOCK))

        def in_blocks():
            reference.evaluate_in_blocks(points, base, *cavities, work[:3], blocks)
            return work[:3]

        calls = {
            "expert": lambda: reference.evaluate_expert(points, base, *cavities, work),
            "blocked": in_blocks,
            "naive": lambda: reference.evaluate_naive(points, *cavities),
        }
        log_z, odds, value, _ = evaluate(data, state, threads)
        results = calls.get(name, calls["expert"])()
        assert_close(results[0], log_z + units.log_jacobian, atol=1e-9)
        assert_close(results[1], odds, atol=1e-9)
        assert_close(results[2], value + units.log_jacobian, atol=1e-9)
        calls.setdefault(name, lambda: evaluate(data, state, threads))
        measure("log evidence, N=1e6, d=1", name, calls[name], MANY, "point")
