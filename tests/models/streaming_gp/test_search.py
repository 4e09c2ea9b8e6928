"""Learning of streaming Gaussian processes: searches, tension, noise and amplitude of all rows so far."""

import warnings
from dataclasses import replace
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from reference import gaussian_process
from reference import streaming_learn as reference
from scipy.optimize import minimize, minimize_scalar
from support.streaming_batches import JITTER, THREADS, Case, model_of, rows_in, rows_of
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, OPTIMUM, PRINTED, ROOT_EPS, SOLVES, SUMS

from cavity import ConvergenceWarning, SettingsWarning, StreamingGP, covariances, likelihoods
from cavity import covariances as c
from cavity.base.loop import CONVERGED_STATUS
from cavity.models.search import SEARCH_NOT_CONVERGED
from cavity.models.streaming_gp import search
from cavity.models.streaming_gp.inducing_basis import InducingBasis, Information
from cavity.models.streaming_gp.inducing_choice import choose_greedily
from cavity.models.streaming_gp.new_data_factor import add_gaussian_rows
from cavity.models.streaming_gp.old_data_factor import map_old_factor
from cavity.models.streaming_gp.rescaling import ScaleObjective, learn_scales, multiply_covariance, rescale_information
from cavity.models.streaming_gp.search import compute_largest_tension, grow_rows, learn_batch

pytestmark = pytest.mark.usefixtures("one_blas_thread")

# ------------------------------------------------------------------------------------------ searches


def drawn(n, seed, lengthscale=1.0, noise=0.1, variance=2.0):
    """Rows on a line, in no order, and draws of a process with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-6, 6, (n, 1))
    K = gaussian_process.rbf(variance, lengthscale)(X, X) + 1e-9 * np.eye(n)
    return X, np.linalg.cholesky(K) @ rng.standard_normal(n) + np.sqrt(noise) * rng.standard_normal(n)


def choose(model, rows):
    """Inducing points for settings."""
    weight = 0.5 * np.broadcast_to(rows.precision(model.likelihood), (rows.n,))
    more, _ = choose_greedily(
        InducingBasis.of(model.covariance, rows.X[:0], JITTER, THREADS), rows.X, weight, 60, 1e-3, THREADS
    )
    return rows.X[more]


def dense(X, y, Z):
    """Minus the bound of Titsias as a function of log variance, log lengthscale and log noise."""

    def objective(t):
        return -reference.titsias(gaussian_process.rbf(np.exp(t[0]), np.exp(t[1])), Z, X, y, np.exp(t[2]), JITTER)

    return objective


def stream(batches):
    """Learn from batches one after the other; what was learnt from each, and the state in the end."""
    model, old, result = StreamingGP(covariances.RBF(), likelihoods.Gaussian(), jitter=JITTER), None, []
    for X, y in batches:
        rows = rows_in(X, y)
        Z = choose(model, rows) if old is None else old[0].Z
        learnt = learn_batch(
            old, Z, rows, model, True, ("noise_variance",), THREADS, pooled=True, choose=choose if old is None else None
        )
        before, model = model, learnt.optimum
        basis = InducingBasis.of(model.covariance, learnt.Z, JITTER, THREADS)
        information = Information.empty(basis.n)
        if old is not None:
            log_t = np.log(model.likelihood.noise_variance / before.likelihood.noise_variance)
            information = map_old_factor(rescale_information(old[1], 0.0, log_t), old[0], basis, 0.0, THREADS)[0]
        old = basis, add_gaussian_rows(basis, information, rows, model, 0.0, THREADS)
        result.append(learnt)
    return result, old


def test_one_batch_reaches_the_maximum_of_the_dense_bound():
    X, y = drawn(60, 3)
    Z = np.linspace(-6, 6, 12)[:, None]
    model = StreamingGP(covariances.RBF(), likelihoods.Gaussian(), jitter=JITTER)
    learnt = learn_batch(None, Z, rows_in(X, y), model, True, ("noise_variance",), THREADS)
    best = minimize(dense(X, y, Z), np.log([2, 1, 0.1]), method="BFGS", options={"gtol": 1e-3})
    assert learnt.status == CONVERGED_STATUS
    assert learnt.tension == 0.0
    assert max(learnt.trace["learning"]) == pytest.approx(-best.fun, abs=OPTIMUM)
    result = np.append(learnt.optimum.covariance.log_parameters, np.log(learnt.optimum.likelihood.noise_variance))
    np.testing.assert_allclose(result, best.x, atol=EXPANSION)


@pytest.mark.long_cases("1", "2")
@pytest.mark.parametrize("seed", range(3))
def test_batches_find_the_truth(seed):
    X, y = drawn(600, seed)
    result, _ = stream([(X[i : i + 200], y[i : i + 200]) for i in (0, 200, 400)])
    last = result[-1]
    assert all(item.status == CONVERGED_STATUS for item in result)
    result = [
        last.optimum.covariance.variance / 2.0,
        last.optimum.covariance.lengthscale,
        last.optimum.likelihood.noise_variance / 0.1,
    ]
    # sd of their logs: 12 independent pieces of f, and 600 rows
    assert np.all(np.abs(np.log(result)) < [1.0, 0.4, 0.2])


def test_noise_is_that_of_all_rows_where_it_is_pooled():
    """With all else fixed, batches lead to the maximum for all rows at once; unpooled, to that for the last batch."""
    X, y = drawn(90, 1)
    y[:30] *= 1.3
    Z, model = (
        np.linspace(-6, 6, 14)[:, None],
        StreamingGP(covariances.RBF(2.0), likelihoods.Gaussian(), jitter=JITTER, inducing=np.zeros((1, 1))),
    )
    covariance = covariances.RBF(2.0)

    def last_noise(parts, pooled):
        old, noise = None, 1.0
        for part in parts:
            rows = rows_in(X[part], y[part])
            model = StreamingGP(covariance, likelihoods.Gaussian(noise), jitter=JITTER)
            learnt = learn_batch(old, Z, rows, model, False, ("noise_variance",), THREADS, pooled=pooled)
            basis, t = (
                InducingBasis.of(covariance, Z, JITTER, THREADS),
                learnt.optimum.likelihood.noise_variance / noise,
            )
            before = (
                Information.empty(basis.n)
                if old is None
                else rescale_information(old[1], 0.0, np.log(t) if pooled else 0.0)
            )
            noise, model = noise * t, replace(model, likelihood=learnt.optimum.likelihood)
            old = basis, add_gaussian_rows(basis, before, rows, model, 0.0, THREADS)
        return noise

    def best(part):
        objective = dense(X[part], y[part], Z)
        return np.exp(minimize_scalar(lambda t: objective([np.log(2.0), 0.0, t]), bounds=(-6, 2), method="bounded").x)

    thirds = [slice(0, 30), slice(30, 60), slice(60, 90)]
    everything = best(slice(None))
    assert last_noise(thirds, True) == pytest.approx(everything, rel=PRINTED)
    assert last_noise(thirds, False) != pytest.approx(everything, rel=1e-2)
    assert model.n_inducing == 1


def thirds(seed, n):
    """Three batches of one process."""
    X, y = drawn(3 * n, seed)
    return [(X[i : i + n], y[i : i + n]) for i in (0, n, 2 * n)]


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 20), marks=pytest.mark.long)])
def test_tension_is_silent_where_nothing_changes(seeds):
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SettingsWarning)
            result, _ = stream(thirds(seed, 60))
        assert 0.0 <= max(item.tension for item in result) < compute_largest_tension(3)


@pytest.mark.long_cases("1", "2")
@pytest.mark.filterwarnings("ignore:the search:cavity.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
def test_tension_speaks_where_something_changes(seed):
    """A third of the lengthscale, or three times the noise."""
    first, second, (X, y) = thirds(seed, 250)
    noisy = y + np.sqrt(0.2) * np.random.default_rng(seed).standard_normal(250)
    for last in (drawn(250, seed + 50, lengthscale=1 / 3), (X, noisy)):
        with pytest.warns(SettingsWarning, match="250 new ones would gain"):
            result, _ = stream([first, second, last])
        assert result[-1].tension > compute_largest_tension(3)


def test_what_one_batch_may_move_is_bounded_and_said():
    """Far rows of another size: no setting moves by more than a factor of ten."""
    first, second, _ = thirds(0, 60)
    with pytest.warns(ConvergenceWarning, match="stopped with a gradient"), pytest.warns(SettingsWarning):
        result, _ = stream([first, (second[0][:40] + 100.0, np.linspace(-1e3, 1e3, 40))])
    before, after = (
        np.append(item.optimum.covariance.log_parameters, np.log(item.optimum.likelihood.noise_variance))
        for item in result
    )
    assert result[-1].status == SEARCH_NOT_CONVERGED
    assert np.max(np.abs(after - before)) == pytest.approx(np.log(10.0), rel=OPTIMUM)


def test_warnings_name_the_line_that_called_the_library():
    first, (X, y), _ = thirds(0, 60)
    state = StreamingGP(covariances.RBF()).fit(*first)
    with warnings.catch_warnings(record=True) as text:
        warnings.simplefilter("always")
        state.update(X[:40] + 100.0, np.linspace(-1e3, 1e3, 40), learn=True)
    assert {item.category for item in text} == {SettingsWarning, ConvergenceWarning}
    assert {value.filename for value in text} == {__file__}


@pytest.mark.parametrize("n", [99, 100, 101, 401, 1600])
def test_growing_choices_of_rows(n, set_sizes):
    """Each is part of the next one and about a quarter of it; the first one has at most as many rows as it may."""
    set_sizes(MAX_FIRST_ROWS=100)
    rows = rows_in(np.arange(1.0 * n)[:, None], np.arange(1.0 * n))
    parts = list(grow_rows(rows))
    assert parts[-1] is rows
    assert parts[0].n <= 100
    for part, larger in pairwise(parts):
        assert larger.n / search.ROW_GROWTH_FACTOR <= part.n < larger.n / search.ROW_GROWTH_FACTOR + 1
        assert set(part.y) <= set(larger.y)
        np.testing.assert_array_equal(part.X[:, 0], part.y)


@pytest.mark.long_cases("probit")
@pytest.mark.parametrize("likelihood", [likelihoods.Gaussian(), likelihoods.Probit()], ids=["gaussian", "probit"])
def test_searches_of_some_rows_first_end_where_those_of_all_do(likelihood, set_sizes):
    X, y = drawn(700, 3)
    y = y if isinstance(likelihood, likelihoods.Gaussian) else y > 0
    results = []
    for first in (10**6, 64):
        set_sizes(MAX_FIRST_ROWS=first)
        state = StreamingGP(covariances.RBF(), likelihood, n_inducing=40, tolerance=1e-5, jitter=JITTER).fit(X, y)
        assert state.converged
        results.append(state.log_bound)
    assert results[1] == pytest.approx(results[0], abs=0.02)


# ------------------------------------------------------------------------------------------ all rows so far


def chain(kernel, noise, which="partly"):
    """Two batches by the library at one covariance and noise."""
    case = Case(which, 0.0)
    basis, information = None, None
    likelihood = likelihoods.Gaussian(noise)
    model = model_of(0.0, likelihood=likelihood)
    for Z, (X, y, w) in ((case.first, case.old_batch), (case.second, case.rows)):
        new = InducingBasis.of(kernel, Z, JITTER, THREADS)
        information = (
            Information.empty(new.n) if basis is None else map_old_factor(information, basis, new, 0.0, THREADS)[0]
        )
        basis, information = new, add_gaussian_rows(new, information, rows_in(X, y, w), model, 0.0, THREADS)
    return information


@pytest.mark.parametrize("which", ["same", "partly", "others"])
@pytest.mark.parametrize(("s", "t"), [(1.0, 1.0), (3.0, 1.0), (1.0, 0.2), (0.4, 5.0)])
def test_noise_and_amplitude_are_known_for_all_rows_so_far(which, s, t):
    """What a chain of batches is worth at other ones, by integrals in 40 digits."""
    case, information = Case(which, 0.0), chain(covariances.RBF(1.3, lengthscale=[0.8, 1.1]), 0.2, which)
    with mp.workdps(reference.DIGITS):
        k = reference.rbf(mp.mpf(1.3) * s, [mp.mpf(0.8), mp.mpf(1.1)])
        state = case.old(k, mp.mpf(0.2) * t)
        expected = float(case.twin(state, k, mp.log(mp.mpf(0.2) * t)) + state[4])
    result = rescale_information(information, np.log(s), np.log(t))
    assert result.log_bound == pytest.approx(expected, rel=AT_REST)
    objective = ScaleObjective(information, covariances.RBF(1.3, lengthscale=[0.8, 1.1]))
    assert objective.log_bound(np.log(s), np.log(t))[0] == pytest.approx(expected, rel=AT_REST)
    second = rescale_information(result, -np.log(s), -np.log(t))
    assert second.log_bound == pytest.approx(information.log_bound, rel=INTEGRAL)


def test_slopes_of_noise_and_amplitude():
    """Priors included, against differences of the values tested above."""
    prior = c.LogNormal(1.0, 0.5)
    kernel = covariances.RBF(1.3, lengthscale=[0.8, 1.1], priors={"variance": prior})
    objective, place, h = ScaleObjective(chain(kernel, 0.2), kernel), np.array([0.3, -0.4]), 1e-4
    slope = objective(place)[1]
    for j in range(2):
        step = h * (np.arange(2) == j)
        low, lower, higher, high = (objective(place + k * step)[0] for k in (-2, -1, 1, 2))
        assert slope[j] == pytest.approx((8 * (higher - lower) - (high - low)) / (12 * h), rel=ROOT_EPS)
    only = ScaleObjective(chain(kernel, 0.2), kernel, noise=False)
    assert only(place[:1])[0] == pytest.approx(objective(np.array([0.3, 0.0]))[0], rel=SUMS)


@pytest.mark.parametrize(("noise", "amplitude"), [(True, True), (True, False), (False, True), (False, False)])
def test_relearning_finds_the_maximum_of_the_dense_bound(noise, amplitude):
    X, y = drawn(60, 5)
    Z = np.linspace(-6, 6, 13)[:, None]
    basis = InducingBasis.of(covariances.RBF(0.7), Z, JITTER, THREADS)
    model, information = StreamingGP(covariances.RBF(0.7), likelihoods.Gaussian(0.5)), Information.empty(13)
    for part in (slice(0, 20), slice(20, 60)):
        information = add_gaussian_rows(basis, information, rows_in(X[part], y[part]), model, 0.0, THREADS)
    log_s, log_t, value = learn_scales(information, covariances.RBF(0.7), noise, amplitude)
    objective, free = dense(X, y, Z), np.array([amplitude, noise])

    def restricted(x):
        place = np.zeros(2)
        place[free] = x
        return objective([np.log(0.7) + place[0], 0.0, np.log(0.5) + place[1]])

    best = minimize(restricted, np.zeros(free.sum()), method="BFGS") if free.any() else None
    assert value == pytest.approx(-restricted([]) if best is None else -best.fun, abs=EARLY)
    np.testing.assert_allclose(np.array([log_s, log_t])[free], [] if best is None else best.x, atol=EXPANSION)
    np.testing.assert_array_equal(np.array([log_s, log_t])[~free], 0.0)


@pytest.mark.parametrize(
    "kernel",
    [
        covariances.RBF(1.2),
        2.0 * covariances.RBF(1.2) * covariances.Matern32(0.7),
        (lambda k: k + k * k)(covariances.RBF(1.2)),
        covariances.RBF(1.2)
        + covariances.Linear([0.3, 0.8]) * (covariances.RBF(0.4) + covariances.Constant(0.2))
        + covariances.Periodic(0.5),
    ],
)
def test_one_variance_of_every_term_scales_a_covariance(kernel):
    X = rows_of(5)[0]
    scaled = multiply_covariance(kernel, np.log(2.5))
    np.testing.assert_allclose(scaled.gram(X), 2.5 * kernel.gram(X), rtol=SUMS)


def test_amplitudes_that_are_fixed_are_refused_and_bounds_hold():
    information = chain(covariances.RBF(1.0), 0.2)
    for kernel in (
        covariances.RBF(1.0, fixed="variance"),
        covariances.RBF(1.0) + covariances.Linear(1.0, fixed="variance"),
        2.0 * covariances.RBF(fixed="variance"),
    ):
        with pytest.raises(ValueError, match="no variance of .* is free"):
            learn_scales(information, kernel)
        assert learn_scales(information, kernel, amplitude=False)[0] == 0.0
    free = learn_scales(information, covariances.RBF(1.0))[0]
    kernel = covariances.RBF(1.0, bounds={"variance": (0.9, 1.1)})
    assert learn_scales(information, kernel)[0] == pytest.approx(np.log(1.1 if free > 0 else 0.9), abs=SOLVES)


@pytest.mark.parametrize(
    "likelihood", [likelihoods.Gaussian(), pytest.param(likelihoods.Probit(), marks=pytest.mark.long)]
)
def test_files_and_threads_change_no_bit_of_what_is_learnt(likelihood, tmp_path):
    """Rows in two files of float32 are read into buffers that serve again; the prior mean depends on them."""
    X = rows_of(2500)[0].astype(np.float32)
    y = np.sin(X[:, 0]) > 0 if isinstance(likelihood, likelihoods.Probit) else np.sin(X[:, 0])
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for file, part in zip(files, (X[:1300], X[1300:]), strict=True):
        np.save(file, part)
    model = StreamingGP(covariances.RBF(), likelihood, mean=[0.1, 0.3, -0.2], n_inducing=6)
    options = dict(learn=True, tol=1e-4)
    states = [model.fit(X, y, **options), *(model.fit(files, y, n_threads=n, **options) for n in (1, 2))]
    assert len({(state.log_bound, state.model.covariance.lengthscale) for state in states}) == 1
