"""Gaussian processes by EP: against EP by the book, integration and sampling; their laws; hard problems."""

import json
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import gaussian_process as reference
from scipy.stats import norm
from support import GOLDEN
from support.events import writing
from support.examples import examples
from support.gaussian_processes import COVARIANCES, NAMES, Cauchy, covariance, factors, known, problem
from support.own_likelihoods import FastLogit, PlainLogit
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, LAST_BIT, LOSSES, ROOT_EPS, SOLVES

import cavity
from cavity import GaussianProcess, covariances, likelihoods

SCHEDULES = ("parallel", "sequential")
TABLE = GOLDEN / "gp_slice.json"
CLASSES = ("Probit", "Logit", "OrderedProbit")


def fit(likelihood, X, y, kernel="RBF", mean=0.0, **options):
    """A fit to a tight fixed point without learning; `kernel` is a name or a covariance."""
    kernel = covariance(kernel)[0] if isinstance(kernel, str) else kernel
    return GaussianProcess(kernel, likelihood, mean=mean).fit(X, y, **dict(learn=False, tol=1e-11) | options)


def assert_same(a, b, atol):
    """Compare the numbers of two posteriors over the same rows."""
    np.testing.assert_allclose(a.mean, b.mean, rtol=0, atol=atol)
    np.testing.assert_allclose(a.variance, b.variance, rtol=0, atol=atol)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=atol)
    np.testing.assert_allclose(a.loo_log_density, b.loo_log_density, rtol=0, atol=atol)


def assert_same_bits(a, b):
    """Compare all that a posterior says."""
    for name in ("mean", "variance", "covariance", "loo_log_density", "log_evidence_gradient"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    np.testing.assert_array_equal(a.sites.tau, b.sites.tau)
    np.testing.assert_array_equal(a.sites.rho, b.sites.rho)
    assert a.log_evidence == b.log_evidence
    assert (a.n_iter, a.status, a.residual) == (b.n_iter, b.status, b.residual)


def distance_to_fixed_point(posterior, likelihood, y, K, mean=0.0):
    """What the reference says a renewal of one site would change; the sites are all it takes from the posterior."""
    tau, rho = posterior.sites.tau, posterior.sites.rho
    return reference.residual(K, factors(likelihood, y), tau, rho, mean=mean)


# ------------------------------------------------------------------------------------------ truth


@pytest.mark.long_cases("Cauchy-parallel")
@pytest.mark.sample(3)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", NAMES)
def test_equals_ep_by_the_book(name, schedule):
    likelihood, X, y = problem(name)
    mean, S, evidence, log_z, (tau, rho), changes = known(name)
    assert changes[-1] < 1e-11  # the reference has converged too
    posterior = fit(likelihood, X, y, schedule=schedule)
    assert posterior.converged
    assert posterior.residual < 1e-8
    sd = np.sqrt(np.diag(S))
    assert np.max(np.abs(posterior.mean - mean) / sd) < 1e-8
    assert np.max(np.abs(posterior.variance / sd**2 - 1)) < 1e-8
    assert np.max(np.abs(posterior.covariance - S) / np.outer(sd, sd)) < 1e-8
    assert posterior.log_evidence == pytest.approx(evidence, abs=ROOT_EPS)
    np.testing.assert_allclose(posterior.loo_log_density, log_z, rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(posterior.sites.rho, rho, rtol=EARLY, atol=EARLY)
    np.testing.assert_allclose(posterior.sites.tau, tau, rtol=EARLY, atol=EARLY)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kernel", [name for name in COVARIANCES if name != "RBF"])
def test_equals_ep_by_the_book_with_every_covariance(kernel):
    likelihood, X, y = problem("Probit")
    mean, S, evidence, log_z, *_ = known("Probit", kernel)
    posterior = fit(likelihood, X, y, kernel)
    np.testing.assert_allclose(posterior.mean, mean, rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(posterior.covariance, S, rtol=0, atol=ROOT_EPS)
    assert posterior.log_evidence == pytest.approx(evidence, abs=ROOT_EPS)
    np.testing.assert_allclose(posterior.loo_log_density, log_z, rtol=0, atol=ROOT_EPS)


@pytest.mark.parametrize("name", ["Probit", "StudentT", "Poisson"])
def test_equals_ep_by_the_book_about_a_linear_mean(name):
    likelihood, X, y = problem(name)
    coefficients = np.array([0.3, -0.5, 0.8])
    prior = 0.3 + X @ [-0.5, 0.8]
    K = covariance()[1](X, X)
    mean, S, evidence, log_z, (tau, rho), _ = reference.ep(K, factors(likelihood, y), mean=prior)
    posterior = fit(likelihood, X, y, mean=coefficients)
    np.testing.assert_allclose(posterior.mean, mean, rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(posterior.variance, np.diag(S), rtol=0, atol=ROOT_EPS)
    assert posterior.log_evidence == pytest.approx(evidence, abs=ROOT_EPS)
    np.testing.assert_allclose(posterior.loo_log_density, log_z, rtol=0, atol=ROOT_EPS)
    new = np.array([[0.1, -0.4], [1.5, 1.9], [0.0, 3.0]])
    cross = covariance()[1](X, new)
    f, v = reference.predict(K, cross, np.full(3, 1.5), tau, rho, prior, 0.3 + new @ [-0.5, 0.8])
    ours = posterior.predict(new)
    np.testing.assert_allclose(ours[0], f, rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(ours[1], v, rtol=0, atol=ROOT_EPS)


# EP's own error at N rows that are strongly correlated (0.3 to 0.6): exact for one, small for two and three
EP_ERROR = {1: (1e-11, 1e-11, 1e-11), 2: (2e-4, 3e-4, 1e-3), 3: (2e-3, 6e-3, 1e-2)}


@pytest.mark.sample(3)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "Laplace"])
def test_against_integration(name, n):
    likelihood, X, y = problem(name, n)
    K = reference.rbf(4.0, [1.5, 3.0])(X, X)
    log_evidence, mean, variance = reference.exact(K, factors(likelihood, y), step={1: 0.01, 2: 0.03, 3: 0.2}[n])
    posterior = fit(likelihood, X, y, covariances.RBF(4.0, lengthscale=[1.5, 3.0]))
    of_evidence, of_mean, of_variance = EP_ERROR[n]
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=of_evidence)
    assert np.max(np.abs(posterior.mean - mean) / np.sqrt(variance)) < of_mean
    assert np.max(np.abs(posterior.variance / variance - 1)) < of_variance


# EP's own error at N = 20: nats, posterior sd, relative; on top of four standard errors of the sampling
@pytest.mark.parametrize(
    ("name", "error"),
    [("Probit", (0.04, 0.02, 0.09)), ("Poisson", (0.03, 0.02, 0.07)), ("StudentT", (0.05, 0.06, 0.07))],
)
def test_against_elliptical_slice_sampling(name, error):
    golden = json.loads(TABLE.read_text())
    model, truth = golden["model"], {key: np.array(value) for key, value in golden[name].items()}
    likelihood = {
        "Probit": likelihoods.Probit(),
        "Poisson": likelihoods.Poisson(),
        "StudentT": likelihoods.StudentT(model["degrees_of_freedom"], model["scale"]),
    }[name]
    posterior = fit(
        likelihood, truth["X"][:, None], truth["y"], covariances.RBF(model["variance"], model["lengthscale"])
    )
    assert truth["log_evidence_error"] < 0.05
    apart = abs(posterior.log_evidence - truth["log_evidence"])
    assert apart < error[0] + 4 * truth["log_evidence_error"]
    sd = np.sqrt(truth["variance"])
    assert np.all(truth["mean_error"] < 0.01 * sd)
    assert np.all(np.abs(posterior.mean - truth["mean"]) < error[1] * sd + 4 * truth["mean_error"])
    apart = np.abs(posterior.variance - truth["variance"])
    assert np.all(apart < error[2] * sd**2 + 4 * truth["variance_error"])


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "error"), [("Probit", 0.03), ("Poisson", 0.1), ("StudentT", 0.01), ("Cauchy", 0.05)])
def test_leave_one_out_against_integration(name, error):
    """log p(y_i | the others) is a difference of exact log evidences."""
    likelihood, X, y = problem(name, 3)
    K, log_ps = reference.rbf(4.0, [1.5, 3.0])(X, X), factors(likelihood, y)
    posterior = fit(likelihood, X, y, covariances.RBF(4.0, lengthscale=[1.5, 3.0]))
    full = reference.exact(K, log_ps, step=0.2)[0]
    for i in range(3):
        rest = np.arange(3) != i
        others = reference.exact(K[np.ix_(rest, rest)], [log_ps[j] for j in np.flatnonzero(rest)], step=0.05)[0]
        assert posterior.loo_log_density[i] == pytest.approx(full - others, abs=error)


def test_is_the_linear_model_with_as_many_weights_as_rows():
    likelihood, X, y = problem("Logit")
    linear = cavity.GLM(likelihood, prior_variance=[0.5, 2.0], intercept=False).fit(X, y, tol=1e-11)
    process = fit(likelihood, X, y, covariances.Linear([0.5, 2.0]))  # a Gram matrix of rank two
    f, v = linear.predict(X)
    np.testing.assert_allclose(process.mean, f, rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(process.variance, v, rtol=0, atol=ROOT_EPS)
    assert process.log_evidence == pytest.approx(linear.log_evidence, abs=ROOT_EPS)
    np.testing.assert_allclose(process.loo_log_density, linear.loo_log_density, rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(process.predict(-3 * X), linear.predict(-3 * X), rtol=0, atol=EARLY)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("Probit", 0.02),
        pytest.param("Poisson", 0.08, marks=pytest.mark.long),
        pytest.param("StudentT", 0.04, marks=pytest.mark.long),
    ],
)
def test_leave_one_out_is_near_refitting_without_the_row(name, tolerance):
    """The cavity is EP's posterior of the others with their sites as they are: equal up to EP's own accuracy."""
    likelihood, X, y = problem(name, n=40)
    posterior = fit(likelihood, X, y)
    kernel, apart = covariance()[1], []
    for i in range(0, 40, 16):
        rest = np.arange(40) != i
        K = kernel(X[rest], X[rest])
        *_, (tau, rho), _ = reference.ep(K, factors(likelihood, y[rest]), tol=1e-9)
        m, v = reference.predict(K, kernel(X[rest], X[i : i + 1]), np.array([1.5]), tau, rho)
        log_density = reference.log_tilted(factors(likelihood, y[i : i + 1])[0], m[0], v[0])[0]
        refit = fit(likelihood, X[rest], y[rest]).log_density(X[i : i + 1], y[i : i + 1])
        assert refit.shape == (1,)
        assert refit[0] == pytest.approx(log_density, abs=EARLY)
        apart.append(abs(posterior.loo_log_density[i] - log_density))
    assert max(apart) < tolerance


# ------------------------------------------------------------------------------------------ schedules


@pytest.mark.long_cases("Cauchy-RBF")
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        pytest.param(name, kernel, marks=() if name == "Logit" or kernel == "RBF" else pytest.mark.long)
        for name in NAMES
        for kernel in ("RBF", "Matern12", "sum")
    ],
)
def test_schedules_agree(name, kernel):
    likelihood, X, y = problem(name, n=60, seed=3)
    a, b = (fit(likelihood, X, y, kernel, schedule=schedule) for schedule in SCHEDULES)
    assert a.converged
    assert b.converged
    assert_same(a, b, atol=ROOT_EPS)


def test_blocks_of_delayed_updates_are_the_sequential_schedule():
    """More rows than any block of delayed updates: one sweep equals the rank-1 updates of the reference."""
    likelihood, X, y = problem("Probit", n=150)
    K = covariance()[1](X, X)
    *_, (tau, rho), _ = reference.ep(K, factors(likelihood, y), passes=1)
    with pytest.warns(cavity.ConvergenceWarning):
        once = fit(likelihood, X, y, schedule="sequential", max_iter=1)
    np.testing.assert_allclose(once.sites.rho, rho, rtol=ROOT_EPS, atol=AT_REST)
    np.testing.assert_allclose(once.sites.tau, tau, rtol=ROOT_EPS, atol=AT_REST)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_damping_and_start_do_not_change_the_fixed_point(schedule):
    likelihood, X, y = problem("Probit")
    damped = fit(likelihood, X, y, schedule=schedule, damping=0.5)
    assert damped.converged
    assert damped.log_evidence == pytest.approx(known("Probit")[2], abs=ROOT_EPS)


@pytest.mark.sample(3)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "name", ["Probit", "Logit", "OrderedProbit", "StudentT", pytest.param("Cauchy", marks=pytest.mark.long)]
)
def test_power_ep_and_fractional_weights_by_the_book(name, schedule):
    likelihood, X, y = problem(name)
    weights = np.random.default_rng(2).uniform(0.3, 2.5, len(y))
    exponent = 0.6 * np.minimum(1.0, weights)
    K = covariance()[1](X, X)
    mean, S, evidence, *_ = reference.ep(K, factors(likelihood, y, exponent), fraction=exponent / weights)
    posterior = fit(likelihood, X, y, sample_weight=weights, power=0.6, schedule=schedule)
    np.testing.assert_allclose(posterior.mean, mean, rtol=0, atol=EARLY)
    np.testing.assert_allclose(posterior.variance, np.diag(S), rtol=0, atol=EARLY)
    assert posterior.log_evidence == pytest.approx(evidence, abs=EARLY)


# ------------------------------------------------------------------------------------------ laws


@given(st.permutations(range(12)), st.sampled_from(["Probit", "Poisson", "StudentT"]))
@examples(6)
def test_the_order_of_rows_does_not_matter(order, name):
    likelihood, X, y = problem(name)
    mean, S, evidence, log_z, *_ = known(name)
    posterior = fit(likelihood, X[order], y[order])
    np.testing.assert_allclose(posterior.mean, mean[order], rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(posterior.covariance, S[np.ix_(order, order)], rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(posterior.loo_log_density, log_z[order], rtol=0, atol=ROOT_EPS)
    assert posterior.log_evidence == pytest.approx(evidence, abs=ROOT_EPS)


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0.1, 5))
@examples(6)
def test_shift_and_scale_of_the_inputs_do_not_matter(a, b, scale):
    likelihood, X, y = problem("Logit")
    moved = fit(likelihood, scale * (X + [a, b]), y, covariances.RBF(1.5, lengthscale=scale * np.array([0.7, 1.8])))
    np.testing.assert_allclose(moved.mean, known("Logit")[0], rtol=0, atol=ROOT_EPS)
    assert moved.log_evidence == pytest.approx(known("Logit")[2], abs=ROOT_EPS)


@pytest.mark.parametrize("name", ["Probit", "Logit"])
def test_label_symmetry_and_codes(name):
    likelihood, X, y = problem(name)
    a, b = fit(likelihood, X, y, mean=0.4), fit(likelihood, X, -y, mean=-0.4)
    np.testing.assert_allclose(a.mean, -b.mean, rtol=0, atol=LOSSES)
    np.testing.assert_allclose(a.variance, b.variance, rtol=0, atol=LOSSES)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=INTEGRAL)
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X)[:, ::-1], atol=LOSSES)
    for other in (y > 0, (y + 1) // 2, y.astype(np.float32), y.tolist()):
        assert np.array_equal(fit(likelihood, X, other, mean=0.4).mean, a.mean)


def test_sign_symmetry_of_robust_regression():
    likelihood, X, y = problem("StudentT")
    a, b = fit(likelihood, X, y), fit(likelihood, X, -y)
    np.testing.assert_allclose(a.mean, -b.mean, rtol=0, atol=INTEGRAL)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=INTEGRAL)


@pytest.mark.parametrize("name", ["Probit", "Poisson", "StudentT"])
def test_an_offset_is_a_known_part_of_f(name):
    likelihood, X, y = problem(name)
    a, b = fit(likelihood, X, y, offset=np.full(len(y), 0.7)), fit(likelihood, X, y, mean=0.7)
    assert_same(a, b, atol=AT_REST)
    new = X[:3] + 0.1
    for mine, other in zip(a.predict(new, offset=np.full(3, 0.7)), b.predict(new), strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=AT_REST)
    np.testing.assert_allclose(a.predict(new, offset=0)[0] + 0.7, b.predict(new)[0], rtol=0, atol=AT_REST)
    for call in (a.predict, a.predict_covariance, lambda X: a.log_density(X, y[:3]), lambda X: a.sample(X, 1, 0)):
        with pytest.raises(ValueError, match="offset: the fit had offsets.*give offset=0 for none"):
            call(new)
    slope = fit(likelihood, X, y, offset=X @ [0.2, -0.1])
    assert_same(slope, fit(likelihood, X, y, mean=[0.0, 0.2, -0.1]), atol=AT_REST)


@pytest.mark.parametrize("name", ["Probit", "Logit", "Poisson", "StudentT"])
def test_integer_weights_equal_repeated_rows(name):
    likelihood, X, y = problem(name)
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    a = fit(likelihood, X, y, sample_weight=weights)
    b = fit(likelihood, np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0))  # a singular Gram matrix
    assert a.converged
    assert b.converged
    used, first = weights > 0, np.cumsum(weights) - weights
    np.testing.assert_allclose(
        a.predict(X[used]), [b.mean[first[used]], b.variance[first[used]]], rtol=0, atol=ROOT_EPS
    )
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=ROOT_EPS)
    np.testing.assert_allclose(a.predict(X[~used]), b.predict(X[~used]), rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(a.loo_log_density[used], b.loo_log_density[first[used]], rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(
        a.loo_log_density[~used], b.log_density(X[~used], y[~used]), rtol=0, atol=ROOT_EPS
    )  # of a row that was not used: its predictive density


def test_threads_and_layout_do_not_change_a_bit():
    likelihood, X, y = problem("Probit", n=300)
    first = fit(likelihood, X, y)
    for data, n_threads in ((X, 2), (np.asfortranarray(X), 3), (X[::-1].copy()[::-1], 2)):
        assert_same_bits(first, fit(likelihood, data, np.column_stack([y, y])[:, 0], n_threads=n_threads))
    sequential = [fit(likelihood, X, y, schedule="sequential", n_threads=n_threads) for n_threads in (1, 2)]
    assert_same_bits(*sequential)
    learnt = [
        GaussianProcess(covariance()[0], likelihood).fit(X[:80], y[:80], n_threads=n_threads) for n_threads in (1, 2)
    ]
    assert_same_bits(*learnt)
    assert np.array_equal(*(item.model.covariance.log_parameters for item in learnt))
    new = np.random.default_rng(1).normal(size=(1100, X.shape[1]))
    np.testing.assert_array_equal(first.predict(new), first.predict(new, n_threads=3))


def test_inputs_are_left_alone_and_results_are_read_only():
    likelihood, X, y = problem("Poisson")
    X, y, weights, offset = X.copy(), y.astype(float), np.linspace(0.5, 2, len(y)), np.linspace(-1, 1, len(y))
    before = [a.copy() for a in (X, y, weights, offset)]
    for a in (X, y, weights, offset):
        a.flags.writeable = False
    posterior = fit(likelihood, X, y, sample_weight=weights, offset=offset, learn=True, tol=1e-8)
    posterior.predict(X, offset=offset), posterior.update(X[:2] + 0.3, y[:2]), posterior.sample(X, 2, 0, offset=offset)
    for a, b in zip((X, y, weights, offset), before, strict=True):
        np.testing.assert_array_equal(a, b)
    data = [a.copy() for a in before]
    mine = fit(likelihood, data[0], data[1], sample_weight=data[2], offset=data[3])
    first = mine.predict(before[0], offset=0)
    for a in data:  # the posterior keeps its own
        a[:] = np.nan
    np.testing.assert_array_equal(mine.predict(before[0], offset=0), first)
    assert np.all(np.isfinite(mine.covariance))
    for name in ("mean", "variance", "covariance", "loo_log_density", "X"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(posterior, name)[0] = 1.0
    with pytest.raises(AttributeError):
        posterior.log_evidence = 0.0


@pytest.mark.parametrize("name", ["Probit", "OrderedProbit", "StudentT", "Gaussian"])
def test_saved_posteriors_come_back_in_every_bit(name, tmp_path):
    likelihood, X, y = problem(name)
    posterior = fit(likelihood, X, y, "sum", mean=[0.1, -0.2, 0.3], sample_weight=np.linspace(0, 2, len(y)))
    posterior.save(tmp_path / "gp.npz")
    back = cavity.load(tmp_path / "gp.npz")
    assert_same_bits(posterior, back)
    assert back.model.likelihood == likelihood
    assert repr(back) == repr(posterior)
    assert back.trace.keys() == posterior.trace.keys()
    np.testing.assert_array_equal(back.predict(X + 0.5), posterior.predict(X + 0.5))
    np.testing.assert_array_equal(back.sample(X[:3], 4, 1), posterior.sample(X[:3], 4, 1))
    new = X[:3] + 0.1
    np.testing.assert_array_equal(back.update(new, y[:3]).mean, posterior.update(new, y[:3]).mean)


@pytest.mark.parametrize("more", [1.0, [2.0, 1.0, 0.0, 1.0]])
def test_rows_that_are_not_in_use_come_back_too(more, tmp_path):
    """Rows of weight zero and rows whose f is known, before and after an update of what was loaded."""
    X = np.random.default_rng(3).normal(size=(12, 2))
    X[[4, 9]], weights = 0.0, np.ones(12)
    weights[[2, 7]] = 0.0
    y, kernel = X[:, 0] > 0, covariances.Linear(1.5)
    posterior = fit(likelihoods.Probit(), X, y, kernel, mean=0.2, sample_weight=weights)
    posterior.save(tmp_path / "a.npz")
    both = [
        item.update(X[:4], y[:4], sample_weight=np.full(4, more))
        for item in (posterior, cavity.load(tmp_path / "a.npz"))
    ]
    both[0].save(tmp_path / "b.npz")
    full = np.append(weights, np.full(4, more))
    second = fit(likelihoods.Probit(), np.vstack([X, X[:4]]), np.append(y, y[:4]), kernel, mean=0.2, sample_weight=full)
    assert_same(both[0], second, 1e-8)
    for other in (both[1], cavity.load(tmp_path / "b.npz")):
        for name in ("mean", "variance", "loo_log_density"):
            np.testing.assert_array_equal(getattr(both[0], name), getattr(other, name))


def test_a_likelihood_of_ones_own_cannot_be_saved(tmp_path):
    likelihood, X, y = problem("Cauchy")
    with pytest.raises(TypeError, match="Cauchy"):
        fit(likelihood, X, y).save(tmp_path / "never.npz")
    assert not (tmp_path / "never.npz").exists()


# ------------------------------------------------------------------------------------------ predictions


@pytest.mark.long_cases("Cauchy")
@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_those_of_the_sites(name):
    likelihood, X, y = problem(name)
    posterior = fit(likelihood, X, y)
    kernel = covariance()[1]
    *_, (tau, rho), _ = known(name)
    new = np.random.default_rng(7).uniform(-3, 3, (30, 2))
    expected = reference.predict(kernel(X, X), kernel(X, new), np.full(30, 1.5), tau, rho)
    f, v = posterior.predict(new)
    np.testing.assert_allclose(f, expected[0], rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(v, expected[1], rtol=0, atol=ROOT_EPS)
    mean, joint = posterior.predict_covariance(new)
    np.testing.assert_allclose(mean, f, rtol=0, atol=SOLVES)
    np.testing.assert_allclose(np.diag(joint), v, rtol=0, atol=SOLVES)
    inner = np.linalg.inv(np.eye(len(y)) + rho[:, None] * kernel(X, X)) @ (rho[:, None] * kernel(X, new))
    np.testing.assert_allclose(joint, kernel(new, new) - kernel(new, X) @ inner, rtol=0, atol=ROOT_EPS)
    assert np.array_equal(joint, joint.T)
    np.testing.assert_allclose(posterior.predict(X), [posterior.mean, posterior.variance], rtol=0, atol=INTEGRAL)
    _, joint = posterior.predict_covariance(X)
    np.testing.assert_allclose(joint, posterior.covariance, rtol=0, atol=INTEGRAL)


def test_a_new_row_far_away_takes_no_digits_from_the_others():
    likelihood, X, y = problem("Logit")
    X, shift = np.round(X, 6), 2.0**27
    X = (X + shift) - shift  # so that the shift loses nothing
    near, moved = fit(likelihood, X, y), fit(likelihood, X + shift, y)
    result = np.array(moved.predict(np.vstack([X + shift, np.zeros((1, 2))])))
    np.testing.assert_allclose(result[:, :-1], near.predict(X), rtol=INTEGRAL)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(moved)).predict(X), moved.predict(X))


def test_far_away_is_the_prior():
    likelihood, X, y = problem("Probit")
    f, v = fit(likelihood, X, y, mean=[0.5, 0.0, 0.1]).predict([[1e4, 2.0], [-1e4, 0.0], [1e150, 5.0]])
    np.testing.assert_allclose(f, [0.7, 0.5, 1.0], rtol=LAST_BIT)
    np.testing.assert_allclose(v, 1.5, rtol=LAST_BIT)


def test_probabilities_integrate_over_the_posterior():
    new = np.random.default_rng(5).uniform(-3, 3, (20, 2))
    for name in CLASSES:
        likelihood, X, y = problem(name)
        posterior = fit(likelihood, X, y)
        f, v = posterior.predict(new)
        probabilities = posterior.predict_proba(new)
        assert probabilities.shape == (20, 3 if name == "OrderedProbit" else 2)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=0, atol=SOLVES)
        for j in range(20):
            for k in range(probabilities.shape[1]):
                p = np.exp(reference.log_tilted(factors(likelihood, np.array([k]))[0], f[j], v[j])[0])
                assert probabilities[j, k] == pytest.approx(p, abs=INTEGRAL)
        log_density = posterior.log_density(new, np.ones(20))
        np.testing.assert_allclose(np.exp(log_density), probabilities[:, 1], rtol=SOLVES)
    likelihood, X, y = problem("Poisson")
    counts = fit(likelihood, X, y)
    f, v = counts.predict(new)
    np.testing.assert_allclose(counts.expected(new), np.exp(f + v / 2), rtol=SOLVES)
    with pytest.raises(ValueError, match="Poisson"):
        counts.predict_proba(new)


@pytest.mark.parametrize("name", ["Probit", "StudentT"])
def test_samples_have_the_moments(name):
    likelihood, X, y = problem(name)
    posterior = fit(likelihood, X, y)
    new = np.vstack([X[:3], [[0.3, 0.1], [2.5, -2.5], [0.3, 0.1]]])  # training rows, a pair of equal ones
    draws = posterior.sample(new, 20_000, rng=1)
    assert draws.shape == (20_000, 6)
    mean, joint = posterior.predict_covariance(new)
    error = 5 * np.sqrt(np.diag(joint) / 20_000)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < error)
    spread = np.sqrt((np.outer(np.diag(joint), np.diag(joint)) + joint**2) / 20_000)
    assert np.all(np.abs(np.cov(draws.T) - joint) < 5 * spread)
    np.testing.assert_allclose(draws[:, 3], draws[:, 5], rtol=0, atol=EXPANSION)
    assert np.array_equal(draws, posterior.sample(new, 20_000, rng=np.random.default_rng(1)))


# ------------------------------------------------------------------------------------------ updates


@pytest.mark.long_cases("Cauchy")
@pytest.mark.parametrize("name", NAMES)
def test_update_is_refitting_with_all_rows(name):
    likelihood, X, y = problem(name, n=25)
    full = fit(likelihood, X, y)
    parts = fit(likelihood, X[:20], y[:20]).update(X[20:22], y[20:22]).update(X[22:], y[22:])
    assert parts.converged
    assert parts.n_samples == 25
    assert_same(parts, full, atol=EARLY)
    np.testing.assert_allclose(parts.predict(X + 0.2), full.predict(X + 0.2), rtol=0, atol=EARLY)
    assert distance_to_fixed_point(parts, likelihood, y, covariance()[1](X, X)) < 1e-6


def test_update_leaves_the_old_posterior_alone_and_keeps_the_learnt_model():
    likelihood, X, y = problem("Probit", n=25)
    start = GaussianProcess(covariance()[0], likelihood, mean="constant").fit(X[:20], y[:20])
    before = start.mean.copy(), start.log_evidence
    more = start.update(X[20:], y[20:])
    assert np.array_equal(start.mean, before[0])
    assert start.log_evidence == before[1]
    assert np.array_equal(more.model.covariance.log_parameters, start.model.covariance.log_parameters)
    refit = start.model.fit(X, y, learn=False, tol=1e-10)
    sd = np.sqrt(refit.variance)
    np.testing.assert_allclose(more.mean / sd, refit.mean / sd, rtol=0, atol=EARLY)
    np.testing.assert_allclose(more.variance / sd**2, 1.0, rtol=0, atol=EARLY)
    assert more.log_evidence == pytest.approx(refit.log_evidence, abs=EARLY)


@pytest.mark.parametrize("kernel", ["RBF", "sum"])
@pytest.mark.parametrize("name", ["Gaussian", "Probit", "StudentT"])
def test_moments_of_rows_that_are_not_in_use(name, kernel):
    """Rows of weight zero are values under the posterior of the others; each row has its own white noise."""
    likelihood, X, y = problem(name)
    used = np.arange(12) % 3 > 0
    posterior = fit(likelihood, X, y, kernel, sample_weight=used.astype(float))
    np.testing.assert_allclose(np.diag(posterior.covariance), posterior.variance, rtol=0, atol=SOLVES)
    K = covariance(kernel)[1](X, X)
    tau, rho = (np.where(used, site, 0.0) for site in (posterior.sites.tau, posterior.sites.rho))
    S = np.linalg.solve(np.eye(12) + K * rho, K)
    np.testing.assert_allclose(posterior.covariance, S, rtol=0, atol=INTEGRAL)
    np.testing.assert_allclose(posterior.mean, S @ tau, rtol=0, atol=INTEGRAL)
    if name != "Gaussian":
        rest = reference.ep(K[np.ix_(used, used)], factors(likelihood, y[used]))
        np.testing.assert_allclose(posterior.mean[used], rest[0], rtol=0, atol=ROOT_EPS)
    more = posterior.update(X[:3] + 0.4, y[:3], sample_weight=[0.0, 1.0, 2.0])
    assert more.n_samples == 15
    np.testing.assert_allclose(np.diag(more.covariance), more.variance, rtol=0, atol=SOLVES)
    assert np.all(np.isfinite(more.loo_log_density))


def test_rows_whose_value_is_known():
    """Under a linear covariance the function is its mean at x = 0: the likelihood is a factor."""
    likelihood, X, y = problem("Probit")
    zeros = np.vstack([X, np.zeros((2, 2))])
    posterior = fit(likelihood, zeros, np.append(y, [1, -1]), covariances.Linear(), mean=0.3)
    rest = fit(likelihood, X, y, covariances.Linear(), mean=0.3)
    truth = norm.logcdf([0.3, -0.3])
    later = rest.update(np.zeros((2, 2)), [1, -1])
    assert later.log_evidence == pytest.approx(posterior.log_evidence, abs=AT_REST)
    assert posterior.log_evidence == pytest.approx(rest.log_evidence + truth.sum(), abs=SOLVES)
    np.testing.assert_allclose(posterior.loo_log_density, np.append(rest.loo_log_density, truth), atol=SOLVES)
    np.testing.assert_allclose(posterior.mean, np.append(rest.mean, [0.3, 0.3]), rtol=0, atol=SOLVES)
    np.testing.assert_allclose(np.diag(posterior.covariance), posterior.variance, rtol=0, atol=SOLVES)
    np.testing.assert_allclose(posterior.variance[12:], 0.0, rtol=0, atol=0)


# ------------------------------------------------------------------------------------------ hard problems


@pytest.mark.sample(3)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["Probit", "Poisson", "StudentT"])
@pytest.mark.parametrize("lengthscale", [1e-300, 1e-6, 1e6, 1e300])
def test_tiny_and_huge_lengthscales(name, lengthscale, schedule):
    """Rows that know nothing of each other, or share one value: many problems of one site, or one of many."""
    likelihood, X, y = problem(name)
    posterior = fit(likelihood, X, y, covariances.RBF(1.5, lengthscale, fixed=("lengthscale",)), schedule=schedule)
    K = 1.5 * (np.eye(12) if lengthscale < 1 else np.ones((12, 12)))
    mean, S, evidence, log_z, *_ = reference.ep(K, factors(likelihood, y))
    assert posterior.converged
    np.testing.assert_allclose(posterior.mean, mean, rtol=0, atol=EARLY)
    np.testing.assert_allclose(posterior.covariance, S, rtol=0, atol=EARLY)
    assert posterior.log_evidence == pytest.approx(evidence, abs=EARLY)
    np.testing.assert_allclose(posterior.loo_log_density, log_z, rtol=0, atol=EARLY)


@pytest.mark.sample(3)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "Cauchy" else ()) for name in NAMES]
)
def test_duplicate_inputs(name, schedule):
    """Every row three times, with its own and with other observations; the Gram matrix is singular."""
    likelihood, X, y = problem(name, n=15)
    X = X[np.arange(15) % 5]
    K = covariance()[1](X, X)
    mean, S, evidence, *_ = reference.ep(K, factors(likelihood, y))
    posterior = fit(likelihood, X, y, schedule=schedule)
    assert posterior.converged
    np.testing.assert_allclose(posterior.mean, mean, rtol=0, atol=EARLY)
    np.testing.assert_allclose(posterior.mean[:5], posterior.mean[5:10], rtol=0, atol=SOLVES)
    np.testing.assert_allclose(posterior.variance, np.diag(S), rtol=0, atol=EARLY)
    assert posterior.log_evidence == pytest.approx(evidence, abs=EARLY)


@pytest.mark.long_cases("Logit")
@pytest.mark.parametrize("name", CLASSES)
def test_one_class_only(name):
    likelihood, X, _ = problem(name)
    y = np.ones(12)
    posterior = fit(likelihood, X, y)
    assert posterior.converged
    *_, evidence, _, _, _ = reference.ep(covariance()[1](X, X), factors(likelihood, y))
    assert posterior.log_evidence == pytest.approx(evidence, abs=ROOT_EPS)
    if name != "OrderedProbit":
        assert np.all(posterior.mean > 0)
        learnt = GaussianProcess(covariances.RBF(), likelihood).fit(X, y)  # the evidence has no maximum in the variance
        assert learnt.log_evidence >= posterior.log_evidence
        assert np.all(np.isfinite(learnt.model.covariance.log_parameters))


def hard_problems():
    """(name, X, y, likelihood, covariance) that EP has trouble with."""
    rng = np.random.default_rng(0)
    x = np.linspace(-3, 3, 60)[:, None]
    yield "separable", x, np.where(x[:, 0] > 0, 1, -1), likelihoods.Probit(), covariances.RBF(1e4, 3.0)
    yield "separable, no noise", x, np.where(x[:, 0] > 0, 1, -1), likelihoods.Step(), covariances.RBF(25.0, 1.0)
    yield "labels at random", x, rng.choice([-1, 1], 60), likelihoods.Logit(), covariances.RBF(100.0, 0.5)
    twice, both = np.repeat(x, 2, axis=0), np.tile([1, -1], 60)
    yield "contradictions", twice, both, likelihoods.Probit(), covariances.RBF(100.0, 2.0)
    outliers = np.sin(x[:, 0]) + 0.1 * rng.normal(size=60)
    outliers[::7] += rng.choice([-8, 8], 9)
    for nu in (1.0, 2.0, 4.0):
        yield f"outliers {nu}", x, outliers, likelihoods.StudentT(nu, 0.1), covariances.RBF(1.0, 1.0)
    many = rng.poisson(np.exp(5 + 2 * np.sin(x[:, 0])))
    yield "large counts", x, many, likelihoods.Poisson(), covariances.RBF(4.0, 1.0)
    yield "no counts", x, np.zeros(60), likelihoods.Poisson(), covariances.RBF(100.0, 1.0)
    yield "clutter", x, outliers, likelihoods.Clutter(0.2, 30.0, 0.02), covariances.RBF(1.0, 1.0)
    signs = np.where(rng.random(60) < 0.7, 1, -1)
    yield "ill-conditioned", 1e-3 * x, signs, likelihoods.Probit(), covariances.RBF(1e3, 1.0)
    yield "little noise", x, outliers, likelihoods.Laplace(0.1), covariances.RBF(1.0, 1.0)
    yield "hopeless", np.repeat(x[::6], 2, axis=0), np.tile([1, -1], 10), likelihoods.Step(), covariances.RBF(10.0, 1.0)


@pytest.mark.long_cases("contradictions----")
@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "X", "y", "likelihood", "kernel"), list(hard_problems()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_what_says_it_converged_is_a_fixed_point(name, X, y, likelihood, kernel):
    K = reference.rbf(kernel.variance, kernel.lengthscale)(X, X)
    for schedule in SCHEDULES:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            posterior = fit(likelihood, X, y, kernel, schedule=schedule, tol=1e-8)
        assert posterior.converged == (not any(w.category is cavity.ConvergenceWarning for w in caught))
        assert np.isfinite(posterior.log_evidence)
        assert np.all(np.isfinite(posterior.mean))
        assert np.all(posterior.variance > 0)
        if posterior.converged:
            assert posterior.residual < 1e-5
            assert distance_to_fixed_point(posterior, likelihood, y, K) < 1e-4
        else:
            assert name.startswith("hopeless")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("likelihood", [likelihoods.Laplace(0.1), likelihoods.StudentT(4.0, 0.1)], ids=repr)
def test_sites_lost_to_rounding_are_said_to_be(likelihood, schedule):
    """Beside a prior variance of 1e40 nothing is left of one: sites that imply themselves may have no belief."""
    kernel, X = covariances.Matern12(1.0, lengthscale=1.0) + covariances.Linear(1.0), np.full((3, 1), 1e20)
    with pytest.warns(cavity.ConvergenceWarning, match="lost their digits to rounding|no fixed point"):
        posterior = fit(likelihood, X, [1.8e4, 0.12, 0.10], kernel, schedule=schedule, tol=1e-8)
    assert not posterior.converged
    assert np.isfinite(posterior.log_evidence)
    assert np.all(np.isfinite(posterior.mean))
    assert np.all(posterior.variance > 0)


def test_outliers_get_sites_of_negative_precision():
    likelihood, X, y = problem("StudentT", n=30)
    y = y.copy()
    y[3] += 30.0
    posterior = fit(likelihood, X, y)
    assert posterior.converged
    assert posterior.sites.rho[3] < 0
    without = np.arange(30) != 3
    clean = fit(likelihood, X[without], y[without])
    assert np.max(np.abs(posterior.mean[without] - clean.mean) / np.sqrt(clean.variance)) < 0.5


def test_callback_and_max_iter():
    likelihood, X, y = problem("Probit")
    seen = []
    with pytest.warns(cavity.ConvergenceWarning, match="stopped by callback"):
        stopped = fit(likelihood, X, y, callback=writing(seen, "change", stop=2))
    assert [i for i, _ in seen] == [1, 2]
    assert stopped.n_iter == 2
    assert not stopped.converged
    with pytest.warns(cavity.ConvergenceWarning, match="max_iter reached"):
        once = fit(likelihood, X, y, max_iter=1)
    assert not once.converged
    assert np.isfinite(once.log_evidence)

    def fail(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(likelihood, X, y, callback=fail)
    assert fit(likelihood, X, y).log_evidence == pytest.approx(known("Probit")[2], abs=ROOT_EPS)


# ------------------------------------------------------------------------------------------ your own likelihood


@pytest.mark.parametrize("own", [PlainLogit(), FastLogit()], ids=["log_p", "log_tilted"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_likelihood_in_plain_python(own, schedule):
    likelihood, X, y = problem("Logit")
    built_in, posterior = (fit(item, X, y, schedule=schedule) for item in (likelihood, own))
    assert posterior.converged
    assert_same(built_in, posterior, atol=ROOT_EPS)
    np.testing.assert_allclose(posterior.log_density(X, y), built_in.log_density(X, y), rtol=0, atol=ROOT_EPS)
    options = dict(sample_weight=np.linspace(0.5, 2, len(y)), power=0.7, schedule=schedule)
    assert_same(fit(likelihood, X, y, **options), fit(own, X, y, **options), atol=EARLY)


def test_a_likelihood_of_ones_own_learns_the_covariance():
    likelihood, X, y = problem("Cauchy", n=40)
    start = fit(Cauchy(), X, y)
    learnt = GaussianProcess(covariance()[0], likelihood).fit(X, y)
    assert learnt.converged
    assert learnt.log_evidence > start.log_evidence
    assert learnt.model.likelihood is likelihood
    assert np.allclose(norm.cdf(0), 0.5)
