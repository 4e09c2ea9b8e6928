"""Gaussian processes as chains against dense ones, golden values, and what posteriors of chains offer."""

import numpy as np
import pytest
from support.tolerances import AT_REST, INTEGRAL, LAST_BIT, OPTIMUM, ROOT_EPS, SLOPES, SOLVES

import cavity
from cavity import covariances, likelihoods
from cavity.covariances import RBF, Constant, Matern, Matern12, Matern32, Matern52
from cavity.ep.chain import ChainFilter, Times
from cavity.models.gp.chain_processes import make_blocks

NEW = np.array([[-3.0], [2.0], [3.0], [11.0], [1e6], [2e6], [5.5]])
COVARIANCES = {
    "1/2": Matern12(1.0, 2.0),
    "3/2": Matern32(1.0, [2.0]),
    "5/2": Matern(2.5, 1.0, 2.0),
    "sum": 2.0 * Matern32(1.0, 0.5) + Matern52(1.0, 4.0) + Constant(3.0),
}
GOLDEN = {  # structured additive models: log evidence, means and sds of f at rows 0, 50, 100 and 199
    0.5: (-284.6138729615, (0.98292757, 0.50203853, 1.29861691, 1.31290802), (0.33801876, 0.3059092, 0.25713127)),
    1.5: (-280.4689626927, (0.96432376, 0.38459138, 1.20582776, 1.24570228), (0.26958119, 0.22538923, 0.17082358)),
    2.5: (-284.1784457474, (0.90829789, 0.29023928, 1.1106223, 1.20597352), (0.25767141, 0.20984217, 0.15718517)),
}


def data(seed=0):
    """Times in any order, equal ones, 1e-12 apart and with gaps of 1e6, and observations of several kinds."""
    rng = np.random.default_rng(seed)
    t = np.concatenate([rng.uniform(0, 10, 60), [3.0, 3.0, 3.0 + 1e-12, 1e6, 1e6 + 0.1]])
    rng.shuffle(t)
    y = np.sin(t) + 0.2 * rng.normal(size=len(t))
    return t[:, None], {"gaussian": y, "poisson": rng.poisson(np.exp(np.sin(t))), "probit": y > 0, "student": y}


LIKELIHOODS = {
    "gaussian": likelihoods.Gaussian(0.04),
    "poisson": "poisson",
    "probit": "probit",
    "student": likelihoods.StudentT(0.2, 3.0),  # with sites of negative precision
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_chains_are_dense_processes(covariance, likelihood, weighted):
    X, y = data()
    options = {"learn": False, "offset": 0.1 * np.cos(X[:, 0])}
    if weighted:
        options["sample_weight"] = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(X))
    dense, chain = (
        cavity.GaussianProcess(COVARIANCES[covariance], LIKELIHOODS[likelihood], method=method).fit(
            X, y[likelihood], **options
        )
        for method in ("dense", "chain")
    )
    assert dense.converged
    assert chain.converged
    assert chain.log_evidence == pytest.approx(dense.log_evidence, rel=AT_REST)
    np.testing.assert_allclose(chain.mean, dense.mean, atol=ROOT_EPS)
    np.testing.assert_allclose(np.sqrt(chain.variance), np.sqrt(dense.variance), atol=ROOT_EPS)
    np.testing.assert_allclose(chain.loo_log_density, dense.loo_log_density, atol=ROOT_EPS)
    np.testing.assert_allclose(chain.log_evidence_gradient, dense.log_evidence_gradient, atol=ROOT_EPS)
    for mine, theirs in zip(chain.predict(NEW, offset=0), dense.predict(NEW, offset=0), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=ROOT_EPS)
    new = np.concatenate([NEW[[1, 1, 2, 6]], NEW, X[:5]])  # equal ones, those of rows, before and after all
    joint = [posterior.predict_covariance(new, offset=0)[1] for posterior in (chain, dense)]
    np.testing.assert_allclose(*joint, atol=ROOT_EPS)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_filtered_predictions_are_fits_of_earlier_rows(covariance, tmp_path):
    """By dense fits of the rows up to each time: new ones, those of rows, equal ones, before the first, after a gap."""
    X, y = data()
    y, times = y["gaussian"], np.concatenate([NEW, X[::8], [[3.0], [3.0 + 1e-12]]])
    weights = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(X))
    model = {"covariance": COVARIANCES[covariance], "likelihood": LIKELIHOODS["gaussian"], "mean": 0.3}
    posterior = cavity.GaussianProcess(**model, method="chain").fit(X, y, sample_weight=weights, learn=False)
    mean, variance = posterior.predict_filtered(times)
    for i, t in enumerate(times[:, 0]):
        until = X[:, 0] <= t
        if not np.any(weights[until] > 0):
            expected = np.array([0.3]), np.array(model["covariance"].gram(times[:1])[0])
        else:
            dense = cavity.GaussianProcess(**model, method="dense")
            expected = dense.fit(X[until], y[until], sample_weight=weights[until], learn=False).predict([[t]])
        assert mean[i] == pytest.approx(expected[0][0], abs=ROOT_EPS)
        assert np.sqrt(variance[i]) == pytest.approx(np.sqrt(expected[1][0]), abs=ROOT_EPS)
    of_observations = posterior.predict_filtered(times, noise=True)
    np.testing.assert_allclose(of_observations[1], variance + 0.04, rtol=SOLVES)
    np.testing.assert_array_equal(posterior.predict_filtered([[2e6]]), posterior.predict([[2e6]]))
    posterior.save(tmp_path / "chain")
    np.testing.assert_array_equal(cavity.load(tmp_path / "chain").predict_filtered(times), (mean, variance))


@pytest.mark.parametrize("likelihood", ["poisson", "probit", "student"])
def test_filtered_predictions_of_sites(likelihood):
    """By dense conditioning on the sites of the rows up to each time; refused where these have no proper posterior."""
    X, y = data()
    t, offset = X[:, 0], 0.1 * np.cos(X[:, 0])
    model = cavity.GaussianProcess(COVARIANCES["3/2"], LIKELIHOODS[likelihood], method="chain")
    posterior = model.fit(X, y[likelihood], learn=False, offset=offset)
    K, rho, refused = model.covariance.gram(X), posterior._rho, []
    for i in range(len(t)):
        rows = np.flatnonzero(t <= t[i])
        k, factor = K[i, rows], np.eye(len(rows)) + rho[rows, None] * K[np.ix_(rows, rows)]  # I + R K
        root = np.linalg.cholesky(K[np.ix_(rows, rows)] + 1e-9 * np.eye(len(rows)))
        if np.linalg.eigvalsh(root.T @ (rho[rows, None] * root)).min() <= -1.0:
            refused.append(i)
            with pytest.raises(cavity.NotPositiveDefiniteError, match=f"rows up to time {t[i]:g} have no proper"):
                posterior.predict_filtered(X[[i]], offset=offset[[i]])
            continue
        mean, variance = posterior.predict_filtered(X[[i]], offset=offset[[i]])
        g = posterior._tau[rows] - rho[rows] * offset[rows]
        assert mean[0] == pytest.approx(offset[i] + k @ np.linalg.solve(factor, g), abs=ROOT_EPS)
        expected = K[i, i] - k @ np.linalg.solve(factor, rho[rows] * k)
        assert variance[0] == pytest.approx(expected, abs=ROOT_EPS)
    assert len(refused) < len(t) / 2
    assert not refused or likelihood == "student"


def test_filtered_predictions_without_a_proper_posterior():
    """The first row is an outlier under Student t noise, which the rows beside it show: its site is negative."""
    t, y = np.array([[0.0], [0.1], [0.2], [0.3]]), [6.0, 0.0, 0.1, 0.0]
    model = cavity.GaussianProcess(Matern32(100.0, 2.0), likelihoods.StudentT(0.2, 3.0), method="chain")
    posterior = model.fit(t, y, learn=False)
    assert posterior._rho[0] < -0.01
    assert posterior.predict_filtered([[-1.0], [0.2]])[1][0] == pytest.approx(100.0, rel=SOLVES)
    with pytest.raises(cavity.NotPositiveDefiniteError, match="the rows up to time 0.05 have no proper posterior"):
        posterior.predict_filtered([[-1.0], [0.05], [0.2]])


@pytest.mark.parametrize("likelihood", ["gaussian", "student"])
def test_covariances_of_long_chains(likelihood):
    """By posterior means as functions of what a site of precision zero says: one filter and smoother a new time."""
    rng = np.random.default_rng(6)
    t = rng.uniform(0.0, 100.0, 5000)
    y = np.sin(t) + 0.2 * rng.normal(size=len(t))
    model = cavity.GaussianProcess(COVARIANCES["sum"], LIKELIHOODS[likelihood], method="chain")
    posterior = model.fit(t[:, None], y, learn=False)
    new = np.array([2.0, 2.0, -1.0, 99.0, 2.001, t[77], 98.999, 1e6])
    n, times = len(t), Times(np.concatenate([t, new]))
    rho, expected = np.append(posterior._rho, np.zeros(len(new))), []
    for j in range(len(new)):
        unit = (np.arange(n + len(new)) == n + j).astype(float)
        filtered = ChainFilter(make_blocks(model.covariance), times, times.take(rho), times.take(unit))
        expected.append(times.put(filtered.smooth().mean)[n:])
    covariance = posterior.predict_covariance(new[:, None])[1]
    np.testing.assert_allclose(covariance, expected, atol=INTEGRAL)
    np.testing.assert_allclose(np.diagonal(covariance), posterior.predict(new[:, None])[1], rtol=ROOT_EPS)


@pytest.mark.parametrize("nu", GOLDEN)
def test_golden_values(nu):
    i = np.arange(200)
    t = 0.1 * i + 0.03 * np.sin(1.7 * i)
    y = np.floor(2.0 * np.exp(np.sin(i / 15) + 0.5 * np.cos(i / 4)))
    assert y.sum() == 440
    model = cavity.GaussianProcess(Matern(nu, 0.64, 2.0), "poisson", mean=0.5, method="chain")
    posterior = model.fit(t[:, None], y, learn=False)
    evidence, mean, sd = GOLDEN[nu]
    assert posterior.log_evidence == pytest.approx(evidence, abs=AT_REST)
    np.testing.assert_allclose(posterior.mean[[0, 50, 100, 199]], mean, atol=ROOT_EPS)
    np.testing.assert_allclose(np.sqrt(posterior.variance)[[0, 50, 100]], sd, atol=ROOT_EPS)


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
@pytest.mark.parametrize("mean", [0.5, "constant", "linear"])
def test_searches_end_at_the_same_settings(likelihood, mean):
    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0, 30, 120))
    y = rng.normal(np.sin(t), 0.4) + 2.0 if likelihood == "gaussian" else rng.poisson(np.exp(1.0 + np.sin(t)))
    fits = [
        cavity.GaussianProcess(Matern32(1.0, 3.0), likelihood, mean, method).fit(t[:, None], y)
        for method in ("dense", "chain")
    ]
    assert fits[1].log_evidence == pytest.approx(fits[0].log_evidence, rel=OPTIMUM)
    np.testing.assert_allclose(fits[1].hyperparameters.values, fits[0].hyperparameters.values, rtol=10 * SLOPES)
    np.testing.assert_allclose(fits[1].model.mean, fits[0].model.mean, rtol=10 * SLOPES, atol=10 * SLOPES)
    errors = [fit.standard_errors().sd for fit in fits]
    np.testing.assert_allclose(*errors, rtol=1e-2)


def test_the_method():
    X, y = data()
    fit = cavity.GaussianProcess(Matern32(), likelihoods.Gaussian(0.04)).fit
    assert type(fit(X, y["gaussian"], learn=False)) is cavity.GaussianProcessPosterior  # few rows keep their bits
    t = np.linspace(0.0, 100.0, 2001)[:, None]
    y = np.sin(t[:, 0])
    assert type(fit(t, y, learn=False)) is cavity.GaussianProcessChainPosterior
    assert type(fit(t[1:], y[1:], learn=False)) is cavity.GaussianProcessPosterior
    named = cavity.GaussianProcess("matern32 + constant", "gaussian", method="chain")
    assert named.fit(t[:50], y[:50]).converged


@pytest.mark.parametrize(
    ("covariance", "mean", "shape", "message"),
    [
        (RBF(), None, (5, 1), "Matern12, Matern32, Matern52 and Constant, multiples and sums of them, got RBF"),
        ("rbf", None, (5, 1), "got rbf"),
        (None, None, (5, 1), "got rbf"),
        (Matern12() * Matern32(), None, (5, 1), "multiples and sums of them, got Matern12 . Matern32"),
        (Matern(3.5), None, (5, 1), "Matern12, Matern32"),
        (Matern32(), None, (5, 2), "one column, times, got 2 columns"),
        (Matern32(), "x + z", (5, 1), "a mean that is a number, coefficients, 'constant' or 'linear', got 'x . z'"),
    ],
)
def test_what_is_no_chain(covariance, mean, shape, message):
    with pytest.raises(ValueError, match=f"method.*{message}"):
        cavity.GaussianProcess(covariance, "gaussian", mean, method="chain").fit(np.ones(shape), np.arange(5.0))


def test_bad_arguments():
    with pytest.raises(ValueError, match="method must be one of"):
        cavity.GaussianProcess(method="fast")
    model = cavity.GaussianProcess(Matern32(), "poisson", method="chain")
    with pytest.raises(ValueError, match="schedule must be 'auto' or 'parallel' for a chain, got 'sequential'"):
        model.fit(np.arange(3.0)[:, None], [1, 2, 3], schedule="sequential")
    with pytest.raises(ValueError, match="X.*finite"):
        model.fit([[0.0], [np.inf]], [1, 2])
    sum_of_many = covariances.Sum(tuple(Matern52() for _ in range(9)))
    with pytest.raises(ValueError, match="at most 24 states"):
        cavity.GaussianProcess(sum_of_many, method="chain")


def test_forecasts_return_to_the_prior_and_gaps_are_wide():
    rng = np.random.default_rng(4)
    t = np.concatenate([rng.uniform(0, 10, 80), rng.uniform(20, 30, 80)])
    y = rng.poisson(np.exp(1.5 + np.sin(t)))
    model = cavity.GaussianProcess(Matern32(0.8, 2.0), "poisson", mean=1.5, method="chain")
    posterior = model.fit(t[:, None], y, learn=False)
    mean, variance = posterior.predict([[5.0], [15.0], [30.5], [34.0], [200.0]])
    assert variance[0] < variance[1] < 0.8
    assert variance[2] < variance[3] < variance[4]
    assert variance[4] == pytest.approx(0.8, rel=SOLVES)
    assert mean[4] == pytest.approx(1.5, rel=SOLVES)
    low, high = posterior.quantile([[30.5], [200.0]], [0.05, 0.95]).T
    assert high[1] - low[1] > high[0] - low[0]
    draws = posterior.sample(np.array([[5.0], [15.0], [34.0]]), 4000, rng=0)
    np.testing.assert_allclose(draws.var(axis=0), posterior.predict([[5.0], [15.0], [34.0]])[1], rtol=0.1)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_updates_are_fits_of_all_rows(likelihood):
    X, y = data()
    model = cavity.GaussianProcess(COVARIANCES["sum"], LIKELIHOODS[likelihood], method="chain")
    full = model.fit(X, y[likelihood], learn=False)
    first = model.fit(X[:40], y[likelihood][:40], learn=False)
    updated = first.update(X[40:], y[likelihood][40:])
    assert updated.n_samples == len(X)
    assert first.n_samples == 40
    assert updated.log_evidence == pytest.approx(full.log_evidence, rel=AT_REST)
    np.testing.assert_allclose(updated.mean, full.mean, atol=ROOT_EPS)
    np.testing.assert_allclose(updated.variance, full.variance, atol=ROOT_EPS)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_files(likelihood, tmp_path):
    X, y = data()
    weights = np.random.default_rng(1).choice([0.0, 0.5, 1.0], len(X))
    model = cavity.GaussianProcess(COVARIANCES["sum"], LIKELIHOODS[likelihood], "constant", method="chain")
    posterior = model.fit(X, y[likelihood], sample_weight=weights, learn=False)
    posterior.save(tmp_path / "chain")
    restored = cavity.load(tmp_path / "chain")
    assert restored.model == posterior.model
    assert restored.model.method == "chain"
    assert repr(restored) == repr(posterior)
    for name in ("mean", "variance", "loo_log_density"):
        np.testing.assert_array_equal(getattr(restored, name), getattr(posterior, name))
    for mine, theirs in zip(restored.predict(NEW), posterior.predict(NEW), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert restored.update(X[:3], y[likelihood][:3]).n_samples == len(X) + 3


def test_threads_and_order_of_rows():
    rng = np.random.default_rng(5)
    t = rng.uniform(0, 100, 20_000)
    y = rng.poisson(np.exp(1.0 + np.sin(t)))
    model = cavity.GaussianProcess(Matern32(0.5, 3.0), "poisson", method="chain")
    one, two = (model.fit(t[:, None], y, learn=False, n_threads=n) for n in (1, 2))
    assert one.log_evidence == two.log_evidence
    np.testing.assert_array_equal(one.mean, two.mean)
    np.testing.assert_array_equal(one.variance, two.variance)
    for mine, theirs in zip(*(one.predict(NEW, n_threads=n) for n in (1, 2)), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    order = np.argsort(t)
    ordered = model.fit(t[order, None], y[order], learn=False)
    assert ordered.log_evidence == pytest.approx(one.log_evidence, rel=SOLVES)
    np.testing.assert_allclose(ordered.mean, one.mean[order], atol=ROOT_EPS)


def test_shifts_of_time_change_nothing():
    X, y = data()
    model = cavity.GaussianProcess(Matern52(1.0, 2.0), likelihoods.Gaussian(0.04), method="chain")
    result, other = (
        model.fit(X[X[:, 0] < 100] + shift, y["gaussian"][X[:, 0] < 100], learn=False) for shift in (0, 1024)
    )
    np.testing.assert_allclose(other.mean, result.mean, atol=ROOT_EPS)
    assert np.abs(result.mean).max() > LAST_BIT


def test_a_flag_of_noise_lost_in_rounding():
    model = cavity.GaussianProcess(Matern32(1e300), likelihoods.Gaussian(1e-300), method="chain")
    with pytest.raises((cavity.NotPositiveDefiniteError, OverflowError)):
        model.fit(np.zeros((3, 1)), [0.0, 1.0, 2.0], learn=False)


def test_pictures():
    pytest.importorskip("matplotlib")
    X, y = data()
    model = cavity.GaussianProcess(Matern32(1.0, 2.0), "poisson", method="chain")
    posterior = model.fit(X[X[:, 0] < 100], y["poisson"][X[:, 0] < 100], learn=False)
    assert posterior.plot(X[X[:, 0] < 100], y["poisson"][X[:, 0] < 100]).get_lines()


@pytest.mark.parametrize("given_noise", [False, True])
def test_states_at_the_end_are_those_of_all_rows(given_noise, tmp_path):
    rng = np.random.default_rng(0)
    t = np.sort(np.append(rng.uniform(0, 30, 118), [20.0, 20.0]))
    y, noise = rng.normal(np.sin(t), 0.3), rng.uniform(0.05, 0.2, 120) if given_noise else None
    model = cavity.GaussianProcess(COVARIANCES["sum"] + Matern12(0.5, 3.0), likelihoods.Gaussian(0.09), 0.3, "chain")

    def rows(part):
        part = rng.permutation(np.arange(120)[part])  # in any order
        return (t[part, None], y[part]), {} if noise is None else {"noise_variance": noise[part]}

    (X, values), truth = rows(slice(None))
    full = model.fit(X, values, learn=False, **truth)
    (X, values), truth = rows(slice(0, 80))
    state = model.fit(X, values, learn=False, **truth).keep_end()
    for first in range(80, 120, 10):
        (X, values), truth = rows(slice(first, first + 10))
        state = state.update(X, values, **truth)
    expected = full.keep_end()
    assert (state.time, state.n_samples) == (t[-1], 120)
    assert state.log_evidence == pytest.approx(full.log_evidence, rel=AT_REST)
    np.testing.assert_allclose(state.state_mean, expected.state_mean, atol=ROOT_EPS)
    np.testing.assert_allclose(state.state_covariance, expected.state_covariance, atol=ROOT_EPS)
    new = t[-1] + np.array([[0.0], [0.7], [5.0], [1e6], [1e200]])
    for mine, theirs in zip(state.predict(new), full.predict(new), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=ROOT_EPS)
    np.testing.assert_allclose(state.predict_covariance(new)[1], full.predict_covariance(new)[1], atol=ROOT_EPS)
    state.save(tmp_path / "state")
    restored = cavity.load(tmp_path / "state")
    np.testing.assert_array_equal(restored.predict(new), state.predict(new))
    with pytest.raises(ValueError, match=r"X must have times from .* on, the last one, got 1 in row 1"):
        state.predict([[40.0], [1.0]])
    with pytest.raises(ValueError, match="noise_variance must be given for all rows or for none"):
        state.update(new, np.zeros(5), **({} if given_noise else {"noise_variance": np.ones(5)}))


def test_states_of_counts_keep_earlier_sites():
    """Rows one by one are assumed-density filtering; all of them at once are EP given the state."""
    rng = np.random.default_rng(1)
    t = np.sort(rng.uniform(0, 30, 300))
    y = rng.poisson(np.exp(1.0 + np.sin(t)))
    model = cavity.GaussianProcess(Matern32(0.5, 2.0), "poisson", 1.0, "chain")
    full = model.fit(t[:, None], y, learn=False)
    state = model.fit(t[:150, None], y[:150], learn=False).keep_end()
    for first in range(150, 300, 3):
        state = state.update(t[first : first + 3, None], y[first : first + 3])
    assert state.log_evidence == pytest.approx(full.log_evidence, rel=0.002)
    new = t[-1] + np.array([[0.1], [1.0], [5.0]])
    (mean, variance), (expected, of_all) = state.predict(new), full.predict(new)
    np.testing.assert_allclose(mean, expected, atol=0.1 * np.sqrt(of_all.min()))
    np.testing.assert_allclose(variance, of_all, rtol=0.02)
