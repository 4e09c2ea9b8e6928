"""Learning of Gaussian processes: gradients of the evidence against differences, maxima against dense searches."""

import itertools
import warnings

import numpy as np
import pytest
from reference import gaussian_process as reference
from scipy.optimize import minimize
from scipy.stats import norm
from support.gaussian_processes import COVARIANCES, covariance, known, problem
from support.tolerances import EARLY, EXPANSION, OPTIMUM, PRINTED, SLOPES, SOLVES
from threadpoolctl import threadpool_info

import cavity
from cavity import GaussianProcess, covariances, likelihoods

# ------------------------------------------------------------------------------------------ gradients


def evidence_at(kernel, vector, likelihood, X, y, **options):
    """Log evidence of a fit with other log parameters."""
    model = GaussianProcess(kernel.with_log_parameters(vector), likelihood, mean=options.pop("mean", 0.0))
    return model.fit(X, y, **dict(learn=False, tol=1e-12) | options).log_evidence


def assert_gradient(kernel, likelihood, X, y, atol=2e-7, **options):
    """Compare log_evidence_gradient with central differences of fourth order."""
    theta, h = np.asarray(kernel.log_parameters), 1e-3
    model = GaussianProcess(kernel, likelihood, mean=options.get("mean", 0.0))
    rest = {key: value for key, value in options.items() if key != "mean"}
    gradient = model.fit(X, y, **dict(learn=False, tol=1e-12) | rest).log_evidence_gradient
    assert gradient.shape == theta.shape == (len(kernel.parameter_names),)
    for j, slope in enumerate(gradient):
        step = h * (np.arange(len(theta)) == j)
        low, lower, higher, high = (
            evidence_at(kernel, theta + k * step, likelihood, X, y, **options) for k in (-2, -1, 1, 2)
        )
        difference = (8 * (higher - lower) - (high - low)) / (12 * h)
        assert slope == pytest.approx(difference, rel=OPTIMUM, abs=atol), kernel.parameter_names[j]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kernel", COVARIANCES)
def test_gradient_with_every_covariance(kernel):
    for name in ("Gaussian", "Probit"):
        likelihood, X, y = problem(name)
        assert_gradient(covariance(kernel)[0], likelihood, X, y, mean=0.3)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "name", ["Logit", "OrderedProbit", "Poisson", "StudentT", "Laplace", pytest.param("Cauchy", marks=pytest.mark.long)]
)
def test_gradient_with_every_likelihood(name):
    likelihood, X, y = problem(name)
    assert_gradient(covariance()[0], likelihood, X, y, mean=[0.1, 0.2, -0.3])


@pytest.mark.long_cases("StudentT")
@pytest.mark.parametrize("name", ["Gaussian", "Probit", "StudentT"])
def test_gradient_with_weights_offsets_and_both_schedules(name):
    likelihood, X, y = problem(name)
    weights, offset = np.linspace(0.4, 2.2, 12), np.linspace(-1, 1, 12)
    for schedule in ("parallel", "sequential"):
        assert_gradient(covariance()[0], likelihood, X, y, sample_weight=weights, offset=offset, schedule=schedule)
    if name != "Gaussian":
        assert_gradient(covariance()[0], likelihood, X, y, power=0.7)


def test_gradient_with_known_noise_and_equal_rows():
    likelihood, X, y = problem("Gaussian")
    assert_gradient(covariance()[0], likelihood, X, y, noise_variance=np.linspace(0.1, 1, 12))
    _, X, labels = problem("Probit")
    assert_gradient(covariance("Matern12")[0], likelihoods.Probit(), X[np.arange(12) % 5], labels)


def test_gradient_of_the_reference_evidence():
    """The derivative of another program's evidence: EP by the book."""
    likelihood, X, y = problem("Probit")
    from support.gaussian_processes import factors

    def evidence(log_variance, log_scale):
        K = reference.rbf(np.exp(log_variance), np.exp(log_scale))(X, X)
        return reference.ep(K, factors(likelihood, y))[2]

    kernel, h = covariances.RBF(1.5, 0.8), 1e-4
    gradient = GaussianProcess(kernel, likelihood).fit(X, y, learn=False, tol=1e-11).log_evidence_gradient
    a, b = np.log(1.5), np.log(0.8)
    assert gradient[0] == pytest.approx((evidence(a + h, b) - evidence(a - h, b)) / (2 * h), abs=EARLY)
    assert gradient[1] == pytest.approx((evidence(a, b + h) - evidence(a, b - h)) / (2 * h), abs=EARLY)


# ------------------------------------------------------------------------------------------ maxima


def simulated(n=80, seed=0, noise=0.1):
    """Draws from a process of variance 2 and lengthscale 0.6 on a line."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-4, 4, (n, 1)), axis=0)
    K = reference.rbf(2.0, 0.6)(X, X)
    f = np.linalg.cholesky(K + 1e-9 * np.eye(n)) @ rng.standard_normal(n)
    return X, f, f + np.sqrt(noise) * rng.standard_normal(n)


TRUTH = np.log([2.0, 0.6, 0.1])


def dense_objective(X, y):
    """Minus the log evidence as a function of log variance, log lengthscale and log noise."""

    def objective(t):
        return -reference.regression(reference.rbf(np.exp(t[0]), np.exp(t[1]))(X, X), y, np.exp(t[2]))[2]

    return objective


def hessian(f, x, h=1e-3):
    """Second differences."""
    e = h * np.eye(len(x))
    return np.array([[(f(x + a + b) - f(x + a - b) - f(x - a + b) + f(x - a - b)) / (4 * h * h) for a in e] for b in e])


@pytest.mark.long_cases("1", "2")
@pytest.mark.parametrize("seed", range(3))
def test_regression_finds_the_maximum_and_the_truth_in_its_error_bars(seed):
    X, _, y = simulated(seed=seed)
    learnt = GaussianProcess(covariances.RBF(1.0, 1.0), likelihoods.Gaussian(1.0)).fit(X, y)
    assert learnt.converged
    result = np.append(learnt.model.covariance.log_parameters, np.log(learnt.model.likelihood.noise_variance))
    objective = dense_objective(X, y)
    best = minimize(objective, TRUTH, method="Nelder-Mead", options=dict(xatol=1e-6, fatol=1e-9, maxiter=2000))
    assert learnt.log_evidence == pytest.approx(-objective(result), abs=EARLY)
    assert learnt.log_evidence > -best.fun - 1e-5
    np.testing.assert_allclose(result, best.x, rtol=0, atol=5e-3)
    assert np.max(np.abs(learnt.log_evidence_gradient)) < 1e-2
    # 3.5 sd of the Laplace approximation of the likelihood of the parameters
    sd = np.sqrt(np.diag(np.linalg.inv(hessian(objective, result))))
    assert np.all(np.abs(result - TRUTH) < 3.5 * sd)
    assert np.all(sd < 0.7)


@pytest.mark.long
def test_classification_recovers_the_lengthscale():
    X, f, _ = simulated(n=250, seed=1)
    y = np.random.default_rng(5).random(250) < norm.cdf(f)
    learnt = GaussianProcess(covariances.RBF(1.0, 2.0), likelihoods.Probit()).fit(X, y)
    assert learnt.converged
    result = learnt.model.covariance.log_parameters

    def objective(t):
        return -evidence_at(learnt.model.covariance, t, likelihoods.Probit(), X, y)

    sd = np.sqrt(np.diag(np.linalg.inv(hessian(objective, result, 0.02))))
    assert np.all(np.abs(result - TRUTH[:2]) < 3.5 * sd)
    assert np.all(sd < 0.8)
    assert np.max(np.abs(learnt.log_evidence_gradient)) < 1e-2


@pytest.mark.long_cases("Laplace-scale")
@pytest.mark.parametrize(
    ("name", "parameter"), [("Gaussian", "noise_variance"), ("StudentT", "scale"), ("Laplace", "scale")]
)
def test_the_scale_of_the_likelihood_is_learnt(name, parameter):
    likelihood, X, y = problem(name, n=60)
    learnt = GaussianProcess(covariance()[0], likelihood).fit(X, y)
    best = getattr(learnt.model.likelihood, parameter)
    assert best != getattr(likelihood, parameter)
    options = {"degrees_of_freedom": 4.0} if name == "StudentT" else {}

    def evidence(value):
        changed = type(likelihood)(**options, **{parameter: value})
        return evidence_at(learnt.model.covariance, learnt.model.covariance.log_parameters, changed, X, y)

    h = 1e-3
    assert abs(evidence(best * np.exp(h)) - evidence(best * np.exp(-h))) / (2 * h) < 1e-2
    assert evidence(best) == pytest.approx(learnt.log_evidence, abs=OPTIMUM)
    for factor in (0.7, 1.4):
        assert evidence(best * factor) < learnt.log_evidence
    stored = GaussianProcess(covariance()[0], likelihood).fit(X, y, learn="covariance")
    assert stored.model.likelihood == likelihood
    assert stored.log_evidence <= learnt.log_evidence + 1e-6


@pytest.mark.parametrize("name", ["Gaussian", "Probit", "Poisson"])
@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_the_coefficients_of_the_mean_are_learnt(mean, name):
    likelihood, X, y = problem(name, n=50)
    learnt = GaussianProcess(covariance()[0], likelihood, mean=mean).fit(X, y)
    best = np.atleast_1d(np.asarray(learnt.model.mean, dtype=float))
    assert best.shape == ((1,) if mean == "constant" else (3,))
    kernel, theta, h = learnt.model.covariance, learnt.model.covariance.log_parameters, 1e-3

    def evidence(b):
        return evidence_at(kernel, theta, learnt.model.likelihood, X, y, mean=b if mean == "linear" else float(b[0]))

    assert evidence(best) == pytest.approx(learnt.log_evidence, abs=OPTIMUM)
    for j in range(len(best)):
        e = h * (np.arange(len(best)) == j)
        assert abs(evidence(best + e) - evidence(best - e)) / (2 * h) < 2e-2


@pytest.mark.parametrize("name", ["Gaussian", "Probit", "Poisson"])
def test_columns_that_depend_on_each_other_leave_the_mean_as_it_is(name):
    """A constant column, a copy, and fewer rows than coefficients: the same functions, the shortest coefficients."""
    likelihood, X, y = problem(name, n=30)
    kernel = covariances.RBF(1.5, lengthscale=[0.7, 1.8], columns=(0, 1)).fix()
    model = GaussianProcess(kernel, likelihood, mean="linear")
    plain = model.fit(X, y, learn="covariance")
    wide = model.fit(np.column_stack([X, np.full(30, 7.0), X[:, 0], np.zeros(30)]), y, learn="covariance")
    assert wide.log_evidence == pytest.approx(plain.log_evidence, abs=OPTIMUM)
    np.testing.assert_allclose(wide.mean, plain.mean, rtol=0, atol=EXPANSION)
    np.testing.assert_allclose(wide.model.prior_mean(wide.X), plain.model.prior_mean(X), rtol=0, atol=2e-3)
    assert np.max(np.abs(wide.model.mean)) < 10
    for n in (1, 2):
        few = model.fit(X[:n], y[:n], learn="covariance")
        assert np.all(np.isfinite(few.model.mean))
        assert few.log_evidence >= model.fit(X[:n], y[:n], learn=False).log_evidence - 1e-9


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_units_of_the_columns_do_not_matter(scale):
    likelihood, X, y = problem("Gaussian", n=40)
    a = GaussianProcess(covariances.RBF(), likelihood, mean="linear").fit(X, y)
    b = GaussianProcess(covariances.RBF(lengthscale=scale), likelihood, mean="linear").fit(scale * X, y)
    assert b.log_evidence == pytest.approx(a.log_evidence, abs=SLOPES)
    assert b.model.covariance.lengthscale == pytest.approx(scale * a.model.covariance.lengthscale, rel=1e-2)


@pytest.mark.long_cases("Logit")
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["Gaussian", "Probit", "Logit", "OrderedProbit", "Poisson", "StudentT", "Laplace"])
def test_learning_never_lowers_the_evidence(name):
    likelihood, X, y = problem(name, n=40)
    kernel = covariance()[0]
    start = GaussianProcess(kernel, likelihood).fit(X, y, learn=False)
    for schedule in ("parallel", "sequential"):
        learnt = GaussianProcess(kernel, likelihood).fit(X, y, schedule=schedule)
        assert learnt.log_evidence >= start.log_evidence - 1e-9
        free = learnt.log_evidence_gradient  # at the maximum it is zero, or points out of the bounds
        theta, bounds = learnt.model.covariance.log_parameters, learnt.model.covariance.log_bounds
        inside = (theta > bounds[:, 0] + 1e-6) & (theta < bounds[:, 1] - 1e-6)
        assert np.all(np.abs(free[inside]) < 2e-2)
        assert np.all(free[theta <= bounds[:, 0] + 1e-6] < 1e-6)
        assert np.all(free[theta >= bounds[:, 1] - 1e-6] > -1e-6)
        second = learnt.model.fit(X, y, learn=False)
        assert second.log_evidence == pytest.approx(learnt.log_evidence, abs=OPTIMUM)


def test_fixed_parameters_and_bounds_are_kept():
    X, _, y = simulated()
    fixed = GaussianProcess(covariances.RBF(3.0, 1.0, fixed=("variance",)), likelihoods.Gaussian(0.1)).fit(X, y)
    assert fixed.model.covariance.variance == 3.0
    assert fixed.model.covariance.lengthscale != 1.0
    assert fixed.log_evidence_gradient.shape == (1,)
    bounded = GaussianProcess(
        covariances.RBF(1.0, 2.0, bounds={"lengthscale": (1.5, 10.0)}), likelihoods.Gaussian(0.1)
    ).fit(X, y)
    assert bounded.model.covariance.lengthscale == pytest.approx(1.5, rel=SOLVES)  # 0.6 were best
    assert bounded.model.covariance.lengthscale >= 1.5
    free = GaussianProcess(covariances.RBF(1.0, 2.0), likelihoods.Gaussian(0.1)).fit(X, y)
    assert free.log_evidence > bounded.log_evidence
    nothing = GaussianProcess(covariances.RBF(fixed=("variance", "lengthscale")), likelihoods.Gaussian(0.1))
    same = nothing.fit(X, y, learn="covariance")
    assert same.log_evidence == nothing.fit(X, y, learn=False).log_evidence
    assert same.log_evidence_gradient.shape == (0,)


@pytest.mark.long_cases("Probit")
@pytest.mark.parametrize("name", ["Gaussian", "Probit"])
def test_starts_are_deterministic_and_more_are_not_worse(name):
    likelihood, X, y = problem(name, n=40)
    model = GaussianProcess(covariances.RBF(0.01, 50.0), likelihood)
    one, a, b = model.fit(X, y), model.fit(X, y, n_starts=4), model.fit(X, y, n_starts=4)
    assert a.log_evidence >= one.log_evidence - 1e-9
    assert a.log_evidence == b.log_evidence
    assert np.array_equal(a.model.covariance.log_parameters, b.model.covariance.log_parameters)
    good = GaussianProcess(covariances.RBF(), likelihood).fit(X, y)
    assert a.log_evidence == pytest.approx(good.log_evidence, abs=PRINTED)


def test_irrelevant_inputs_get_long_lengthscales():
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, (100, 3))
    y = np.sin(3 * X[:, 1]) + 0.1 * rng.normal(size=100)
    learnt = GaussianProcess(covariances.RBF(1.0, lengthscale=np.ones(3)), likelihoods.Gaussian(0.1)).fit(X, y)
    scales = learnt.model.covariance.lengthscale
    assert scales[1] < 1.5
    assert scales[0] > 5
    assert scales[2] > 5


def test_the_evidence_prefers_the_model_that_made_the_data():
    likelihood, X, y = problem("Gaussian", n=60)
    y = y.copy()
    y[::6] += np.random.default_rng(0).choice([-5, 5], 10)
    robust = GaussianProcess(covariance()[0], likelihoods.StudentT(4.0, 0.4)).fit(X, y)
    gaussian = GaussianProcess(covariance()[0], likelihoods.Gaussian(0.3)).fit(X, y)
    assert robust.log_evidence > gaussian.log_evidence + 3


def test_an_interrupted_search_raises_and_a_stopped_one_says_so():
    likelihood, X, y = problem("Probit", n=40)
    model = GaussianProcess(covariance()[0], likelihood)

    def interrupt(event):
        raise KeyboardInterrupt

    before = [info["num_threads"] for info in threadpool_info()]
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, callback=interrupt)
    assert [info["num_threads"] for info in threadpool_info()] == before
    with pytest.warns(cavity.ConvergenceWarning):
        stopped = model.fit(X, y, callback=lambda event: True)
    assert not stopped.converged
    assert np.isfinite(stopped.log_evidence)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.fit(X, y).log_evidence >= known("Probit", n=40)[2] - 1e-9


def test_a_callback_hears_of_searches_for_gaussian_noise_and_stops_them():
    """At the best settings so far, of which the posterior is the exact one."""
    likelihood, X, y = problem("Gaussian", n=40)
    model, events = GaussianProcess(covariance()[0], likelihood), []
    full = model.fit(X, y, n_starts=2, callback=events.append)
    stages = list(dict.fromkeys(event.stage for event in events))
    assert stages == ["starting points", "search 1 of 2", "search 2 of 2"]
    assert len(events) == len(full.trace["learning"])
    assert max(event.objective for event in events) == max(full.trace["learning"])
    for stop in (1, 5, 8):
        reports = itertools.count(1)
        with pytest.warns(cavity.ConvergenceWarning, match="stopped by callback with a gradient") as caught:
            stopped = model.fit(X, y, callback=lambda _, reports=reports, stop=stop: next(reports) == stop)
        assert len(caught) == 1
        assert (stopped.converged, stopped.status) == (False, "stopped by callback")
        values = stopped.trace["learning"]
        assert len(values) == stop
        fixed = stopped.model.fit(X, y, learn=False)
        assert fixed.log_evidence + stopped.model.covariance.log_prior()[0] == pytest.approx(max(values), rel=SOLVES)


@pytest.mark.long_cases("100")
@pytest.mark.parametrize("n", [20, 100])
def test_a_search_leaves_the_plateau_of_zero_counts(n):
    """They have probability 1 as the dispersion vanishes; at the first dispersion that makes no difference."""
    X = np.random.default_rng(n).standard_normal((n, 1))
    posterior = GaussianProcess(likelihood="negative-binomial").fit(X, np.zeros(n))
    assert posterior.converged
    assert -1e-3 < posterior.log_evidence <= 1e-9


@pytest.mark.long
@pytest.mark.parametrize("outlier", [1e6, 1e12])
def test_a_far_outlier_does_not_hide_the_noise_of_the_others(outlier):
    """Under Student's t it moves the evidence by its tail, (nu + 1) log(outlier), and nothing else."""
    X = np.linspace(-2.0, 2.0, 60)[:, None]
    y = np.sin(2.0 * X[:, 0]) + 0.2 * np.random.default_rng(3).standard_t(4.0, 60)
    y[30] = 1e4
    near = GaussianProcess(likelihood="student-t").fit(X, y)
    y[30] = outlier
    far = GaussianProcess(likelihood="student-t").fit(X, y)
    assert near.converged
    assert far.converged
    assert near.model.likelihood.scale < 0.4
    assert far.model.likelihood.scale == pytest.approx(near.model.likelihood.scale, rel=EXPANSION)
    assert near.log_evidence - far.log_evidence == pytest.approx(5.0 * np.log(outlier / 1e4), abs=EXPANSION)
