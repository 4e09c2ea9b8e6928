"""Increments of streaming Gaussian processes, and their gradients, against integrals in 40 digits and differences."""

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from reference import gaussian_process
from reference import streaming_learn as reference
from support.gaussian_processes import COVARIANCES, covariance
from support.streaming_batches import JITTER, THREADS, Case, model_of, rows_in, rows_of, settings_of
from support.tolerances import AT_REST, EARLY, INTEGRAL, LAST_BIT, LOSSES, OPTIMUM, ROOT_EPS, SOLVES, SUMS

from cavity import NotPositiveDefiniteError, StreamingGP, covariances, likelihoods
from cavity.ep.options import Options
from cavity.likelihoods.parameters import list_scales
from cavity.models.process.settings import Settings
from cavity.models.streaming_gp.bound_increment import BoundIncrement, RowSites
from cavity.models.streaming_gp.inducing_basis import InducingBasis, Information
from cavity.models.streaming_gp.new_data_factor import add_gaussian_rows, add_rows_by_ep
from cavity.models.streaming_gp.old_data_factor import map_old_factor
from cavity.runs.executors import Threads

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("which", "alpha", "variant"),
    [
        *((which, alpha, {}) for which in ("same", "turned", "partly", "others") for alpha in (0.0, 0.3, 1.0)),
        *(("partly", alpha, {"row_noise": True}) for alpha in (0.0, 1.0)),
        *(("partly", alpha, {"negative": True}) for alpha in (0.0, 0.6)),
        *((which, 0.0, {"pooled": True}) for which in ("same", "partly")),
    ],
)
def test_increment_and_gradient_agree_with_integrals_in_40_digits(which, alpha, variant):
    case, h = Case(which, alpha, **variant), mp.mpf("1e-12")
    start, kernel = covariances.RBF(1.0, lengthscale=[1.0, 1.4]), covariances.RBF(1.3, lengthscale=[0.8, 1.1])
    with mp.workdps(reference.DIGITS):

        def value(log_parameters, log_noise):
            parameters = [mp.exp(p) for p in log_parameters]
            pooled = case.old(first, mp.exp(log_noise))[:4] + old[4:] if case.pooled else old
            return case.twin(pooled, reference.rbf(parameters[0], parameters[1:]), log_noise)

        first = reference.rbf(mp.mpf(1), [mp.mpf(1), mp.mpf(1.4)])
        old, log_noise = case.old(first), mp.log(mp.mpf(0.5 if case.pooled else 0.2))
        place = [mp.log(mp.mpf(v)) for v in (1.3, 0.8, 1.1)]
        expected = float(value(place, log_noise))
        slopes = []
        for j in range(3):
            ahead, behind = ([p + sign * h * (i == j) for i, p in enumerate(place)] for sign in (1, -1))
            slopes.append((value(ahead, log_noise) - value(behind, log_noise)) / (2 * h))
        by_noise = (value(place, log_noise + h) - value(place, log_noise - h)) / (2 * h)
    increment, result = case.library(start, kernel)
    assert result.log_evidence == pytest.approx(expected, rel=LOSSES, abs=LOSSES)
    by_covariance, by_mean, by_scale = increment.gradient(result)
    size = max(abs(float(s)) for s in slopes)
    np.testing.assert_allclose(by_covariance, [float(s) for s in slopes], rtol=AT_REST, atol=AT_REST * size)
    assert by_mean.size == 0
    if not variant or case.pooled:
        np.testing.assert_allclose(by_scale, [float(by_noise)], rtol=AT_REST, atol=INTEGRAL)
    elif "row_noise" in variant:
        assert by_scale.size == 0


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_without_inducing_points_rows_are_on_their_own(alpha):
    """N(y; 0, noise + variance) of every row with alpha = 1, Titsias's bound of it with 0."""
    X, y, _ = rows_of(7)
    v, n, Z = 1.3, 0.2, np.zeros((0, 2))
    increment = BoundIncrement(None, Z, rows_in(X, y), model_of(alpha), THREADS)
    result = increment.at(settings_of(covariances.RBF(v, lengthscale=0.8), n))
    total = n + alpha * v
    value = -0.5 * (np.log(2 * np.pi * total) + y**2 / total) - (1 - alpha) * v / (2 * n)
    by_total = -0.5 / total + 0.5 * y**2 / total**2
    by_covariance, _, by_scale = increment.gradient(result)
    assert result.log_evidence == pytest.approx(np.sum(value), rel=SUMS)
    by_variance = np.sum(v * by_total) if alpha else -7 * v / (2 * n)
    np.testing.assert_allclose(by_covariance, [by_variance, 0.0], rtol=SOLVES, atol=LAST_BIT)
    by_noise = n * by_total + (1 - alpha) * v / (2 * n)
    np.testing.assert_allclose(by_scale, [np.sum(by_noise)], rtol=SOLVES)


@pytest.mark.parametrize("likelihood", [likelihoods.Gaussian(), likelihoods.Probit()])
def test_a_batch_that_needs_no_inducing_points_is_learnt_from(likelihood):
    X, y, _ = rows_of(20)
    y = y if isinstance(likelihood, likelihoods.Gaussian) else y > 0
    state = StreamingGP(covariances.RBF(1e-4), likelihood, tolerance=10.0).fit(X[:10], y[:10])
    assert state.n_inducing == 0
    state.update(X[10:], y[10:], learn=True)
    assert state.n_samples == 20
    assert np.isfinite(state.log_bound)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [name for name in COVARIANCES if name not in ("White", "Constant", "sum")])
def test_gradient_with_every_covariance(name):
    """Where both batches share some inducing points; `sum` has White in it, which has no place here."""
    kernel, twin = covariance(name)
    kernel, twin = (
        kernel + covariances.RBF(0.5, lengthscale=1.2),
        gaussian_process.total(twin, gaussian_process.rbf(0.5, 1.2)),
    )
    case, h, place = Case("partly", 0.3), 1e-3, kernel.log_parameters

    def value(vector):
        return case.library(kernel, kernel.with_log_parameters(vector))[1].log_evidence

    increment, result = case.library(kernel, kernel)
    k = reference.precise(twin)
    assert result.log_evidence == pytest.approx(float(case.twin(case.old(k), k)), rel=ROOT_EPS)
    gradient = increment.gradient(result)[0]
    for j, slope in enumerate(gradient):
        step = h * (np.arange(len(place)) == j)
        low, lower, higher, high = (value(place + k * step) for k in (-2, -1, 1, 2))
        assert slope == pytest.approx((8 * (higher - lower) - (high - low)) / (12 * h), rel=OPTIMUM, abs=ROOT_EPS)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_blocks_and_threads_change_no_digit(alpha, set_sizes):
    """Several blocks, kept or not, on one thread or two; and settings that are not the last ones asked for."""
    X, y, w = rows_of(2500)
    settings = settings_of(covariances.RBF(1.0, lengthscale=1.3)), settings_of(covariances.RBF(2.0, lengthscale=0.9))

    def found(threads):
        increment = BoundIncrement(None, X[:7], rows_in(X, y, w), model_of(alpha), threads)
        first, second = (increment.at(setting) for setting in settings)
        return [(p.log_evidence, *np.concatenate(increment.gradient(p))) for p in (first, second, first)]

    one = found(THREADS)
    assert one[0] == one[2]
    with Threads(2) as two:
        assert found(two) == one
    set_sizes(MAX_KEPT_NUMBERS=0)
    assert found(THREADS) == one


@pytest.mark.sample(3)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("name", ["Probit", "StudentT", "Laplace"])
def test_gradient_at_the_fixed_points_of_ep(name, alpha, weighted):
    """Of the log evidence of a second batch, by differences, the scale of the likelihood included."""
    X, y, w = rows_of(40)
    likelihood = likelihoods.Probit() if name == "Probit" else getattr(likelihoods, name)(scale=0.3)
    y, w = np.where(y > 0, 1.0, -1.0) if name == "Probit" else y, w if weighted else None
    options = Options(schedule="sequential", max_iter=500, tol=1e-12)
    model = StreamingGP(covariances.RBF(), likelihood, mean=0.2, alpha=alpha, jitter=JITTER)
    first, second = (rows_in(X[part], y[part], w if w is None else w[part]) for part in (slice(20), slice(20, 40)))
    basis = InducingBasis.of(model.covariance, X[:5], JITTER, THREADS)
    truth = add_rows_by_ep(basis, Information.empty(5), first, model, alpha, options, THREADS).information
    increment = BoundIncrement((basis, truth), np.vstack([X[[2, 0]], X[20:24]]), second, model, THREADS, options)

    def value(place):
        scale = {scale: getattr(likelihood, scale) * np.exp(place[2]) for scale in list_scales(likelihood)}
        return increment.at(Settings(covariances.RBF().with_log_parameters(place[:2]), replace(likelihood, **scale)))

    h, place = 1e-3, np.array([0.3, -0.2, 0.0])
    by_covariance, _, by_scale = increment.gradient(value(place))
    for j, slope in enumerate([*by_covariance, *by_scale]):
        step = h * (np.arange(3) == j)
        low, lower, higher, high = (value(place + k * step).log_evidence for k in (-2, -1, 1, 2))
        assert slope == pytest.approx((8 * (higher - lower) - (high - low)) / (12 * h), rel=EARLY, abs=ROOT_EPS)
    assert len(by_scale) == len(list_scales(likelihood))


def test_settings_at_which_the_sites_leave_nothing_are_refused():
    X, y, _ = rows_of(6)
    increment = BoundIncrement(None, X[:3], rows_in(X, y), model_of(1.0), THREADS)
    sites = RowSites(np.zeros(6), np.full(6, -1e3), np.ones(1))
    with pytest.raises(NotPositiveDefiniteError, match="exceed the prior precision"):
        increment.at(settings_of(covariances.RBF(1.0, lengthscale=0.5)), sites=sites)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_points_that_others_know_to_the_last_digit_lose_nothing(alpha):
    """Lines through the origin: any point says all."""
    kernel, (X, y, _) = covariances.Linear(1.0), rows_of(9, d=1)
    bases = [InducingBasis.of(kernel, np.array([[z]]), 0.0, THREADS) for z in (1.0, 3.0)]
    model = StreamingGP(kernel, likelihoods.Gaussian(), alpha=alpha, jitter=0.0)
    truth = add_gaussian_rows(bases[0], Information.empty(1), rows_in(X, y), model, alpha, THREADS)
    carried, loss = map_old_factor(truth, *bases, alpha, THREADS)
    assert loss == pytest.approx(0.0, abs=SOLVES)
    assert carried.factorise().log_bound == pytest.approx(truth.log_bound, rel=SUMS)
