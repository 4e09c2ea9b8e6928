"""GLM: against EP by the book, closed forms and quadrature; its laws; hard problems; bad input."""

import warnings

import numpy as np
import pytest
from reference import glm as reference
from scipy import sparse
from scipy.stats import multivariate_normal, norm
from support.bad_fits import BAD_FITS
from support.glms import GLM, factors
from support.own_likelihoods import FastLogit, PlainLogit
from support.tolerances import AT_REST, EARLY, INTEGRAL, OPTIMUM, ROOT_EPS, SOLVES, SUMS

import cavity
from cavity import likelihoods

SCHEDULES = ("parallel", "sequential")


def design(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))]) if d > 1 else rng.normal(size=(n, 1))


def problem(name, n=25, d=3, seed=0):
    """(likelihood, X, y) of a small problem for each likelihood."""
    rng = np.random.default_rng(seed + 100)
    X = design(n, d, seed)
    f = X @ np.linspace(1, -1, d)
    labels = np.where(f + rng.normal(size=n) > 0, 1, -1)
    return {
        "Probit": lambda: (likelihoods.Probit(), X, labels),
        "Logit": lambda: (likelihoods.Logit(), X, labels),
        "OrderedProbit": lambda: (
            likelihoods.OrderedProbit([-1.0, 0.5]),
            X,
            np.digitize(f + rng.normal(size=n), [-1.0, 0.5]),
        ),
        "Interval": lambda: (likelihoods.Interval(0.5), X, np.column_stack([f - rng.random(n), f + rng.random(n)])),
        "Poisson": lambda: (likelihoods.Poisson(), X, rng.poisson(np.exp(f))),
        "NegativeBinomial": lambda: (likelihoods.NegativeBinomial(2.0), X, rng.poisson(np.exp(f))),
        "Laplace": lambda: (likelihoods.Laplace(0.7), X, f + rng.laplace(size=n)),
        "StudentT": lambda: (likelihoods.StudentT(3.0, 0.7), X, f + rng.standard_t(3, size=n)),
        "Gaussian": lambda: (likelihoods.Gaussian(0.5), X, f + rng.normal(size=n)),
        "Clutter": lambda: (likelihoods.Clutter(0.2, 20.0, 0.5), X, f + rng.standard_t(3, size=n)),
    }[name]()


NAMES = ("Probit", "Logit", "OrderedProbit", "Interval", "Poisson", "NegativeBinomial", "Laplace", "StudentT")
NAMES += ("Clutter",)


# ------------------------------------------------------------------------------------------ truth


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bayes_point_machine_golden(schedule):
    X = [[0, 0, 1], [0, 1, 1], [1, 0, 1]]
    posterior = GLM(likelihoods.Step()).fit(X, [1, 1, -1], schedule=schedule, tol=1e-10)
    assert posterior.converged
    assert posterior.log_evidence == pytest.approx(-2.486152518337251, abs=SUMS)
    assert posterior.residual < 1e-9


def test_published_probit_site():
    posterior = GLM(likelihoods.Probit(), prior_mean=1.0, prior_variance=0.5).fit([[1.0]], [1])
    site = posterior.sites
    assert float(site.tau[0]) == pytest.approx(0.67236165826940, rel=SUMS)
    assert float(site.rho[0]) == pytest.approx(0.32950039939607, rel=SUMS)


@pytest.mark.sample(3)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", NAMES)
def test_equals_ep_by_the_book(name, schedule):
    likelihood, X, y = problem(name)
    prior_mean, prior_variance = np.array([0.3, -0.2, 0.1]), np.array([2.0, 1.0, 0.5])
    mean, covariance, evidence, log_z, (tau, rho), changes = reference.ep(
        X, factors(likelihood, y), prior_mean, np.diag(prior_variance)
    )
    assert changes[-1] < 1e-10  # the reference has converged too
    posterior = GLM(likelihood, prior_mean, prior_variance).fit(X, y, schedule=schedule, tol=1e-11)
    assert posterior.converged
    sd = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(posterior.mean - mean) / sd) < 1e-8
    assert np.allclose(posterior.covariance, covariance, rtol=0, atol=ROOT_EPS * sd.max() ** 2)
    assert posterior.log_evidence == pytest.approx(evidence, abs=ROOT_EPS)
    assert np.allclose(posterior.loo_log_density, log_z, atol=ROOT_EPS)
    assert np.allclose(posterior.sites.rho, rho, rtol=OPTIMUM, atol=EARLY)
    assert np.allclose(posterior.sites.tau, tau, rtol=OPTIMUM, atol=EARLY)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_more_weights_than_rows_is_the_same_posterior(schedule):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(6, 11)), [1, -1, 1, 1, -1, -1]
    root = rng.normal(size=(11, 11))
    prior_mean, prior_covariance = rng.normal(size=11), root @ root.T + np.eye(11)
    mean, covariance, evidence, *_ = reference.ep(X, factors(likelihoods.Probit(), y), prior_mean, prior_covariance)
    posterior = GLM(likelihoods.Probit(), prior_mean, prior_covariance).fit(X, y, schedule=schedule, tol=1e-11)
    assert np.allclose(posterior.mean, mean, atol=EARLY)
    assert np.allclose(posterior.covariance, covariance, atol=EARLY)
    assert np.allclose(posterior.variance, np.diag(covariance), atol=EARLY)
    assert posterior.log_evidence == pytest.approx(evidence, abs=ROOT_EPS)
    new = rng.normal(size=(4, 11))
    f, v = posterior.predict(new)
    assert np.allclose(f, new @ mean, atol=EARLY)
    assert np.allclose(v, np.einsum("ij,jk,ik->i", new, covariance, new), atol=EARLY)


@pytest.mark.parametrize("weights", [None, "integer", "fractional"])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_gaussian_likelihood_is_exact_whatever_weights_and_power(weights, power):
    rng = np.random.default_rng(5)
    X, y, offset = design(12, 3, 4), rng.normal(size=12), rng.normal(size=12)
    w = {None: np.ones(12), "integer": rng.integers(1, 4, 12), "fractional": rng.uniform(0.1, 2.5, 12)}[weights]
    prior_covariance = np.diag([2.0, 1.0, 0.5]) + 0.1
    noise = 0.3
    posterior = GLM(likelihoods.Gaussian(noise), 0.5, prior_covariance).fit(
        X, y, offset=offset, sample_weight=None if weights is None else w, power=power
    )
    precision = np.linalg.inv(prior_covariance) + X.T @ (w[:, None] / noise * X)
    mean = np.linalg.solve(
        precision, np.linalg.solve(prior_covariance, np.full(3, 0.5)) + X.T @ (w / noise * (y - offset))
    )
    assert np.allclose(posterior.mean, mean, atol=SOLVES)
    assert np.allclose(posterior.covariance, np.linalg.inv(precision), atol=SOLVES)
    # N(y; f, s)^w is N(y; f, s/w) times a constant
    constant = 0.5 * np.sum(np.log(2 * np.pi * noise / w) - w * np.log(2 * np.pi * noise))
    marginal = X @ prior_covariance @ X.T + np.diag(noise / w)
    exact = multivariate_normal(X @ np.full(3, 0.5) + offset, marginal).logpdf(y) + constant
    assert posterior.log_evidence == pytest.approx(exact, abs=INTEGRAL)


@pytest.mark.long_cases("Probit-1000-0.001")
@pytest.mark.parametrize(
    ("name", "n", "tolerance"), [("Gaussian", 40, 1e-10), ("Probit", 1000, 1e-3), ("Poisson", 200, 1e-3)]
)
def test_leave_one_out_is_refitting_without_the_row(name, n, tolerance):
    likelihood, X, y = problem(name, n=n)
    posterior = GLM(likelihood).fit(X, y)
    for i in range(0, n, n // 40):
        rest = np.arange(n) != i
        refit = GLM(likelihood).fit(X[rest], y[rest]).log_density(X[i : i + 1], y[i : i + 1])[0]
        assert posterior.loo_log_density[i] == pytest.approx(refit, abs=tolerance)


def test_one_row_is_exact():
    for name in NAMES:
        likelihood, X, y = problem(name)
        posterior = GLM(likelihood, prior_variance=2.0).fit(X[:1], y[:1])
        v = 2.0 * float(X[0] @ X[0])
        exact = reference.log_tilted(factors(likelihood, y[:1])[0], 0.0, v)
        assert posterior.log_evidence == pytest.approx(exact[0], abs=ROOT_EPS), name
        f, variance = posterior.predict(X[:1])
        assert f[0] == pytest.approx(exact[1], abs=ROOT_EPS)
        assert variance[0] == pytest.approx(exact[2], abs=ROOT_EPS)


# ------------------------------------------------------------------------------------------ laws


@pytest.mark.parametrize("name", ["Probit", "Logit", "Poisson", "StudentT"])
def test_integer_weights_equal_repeated_rows(name):
    likelihood, X, y = problem(name)
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    options = dict(tol=1e-11)
    a = GLM(likelihood).fit(X, y, sample_weight=weights, **options)
    b = GLM(likelihood).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights, axis=0), **options)
    assert np.allclose(a.mean, b.mean, atol=ROOT_EPS)
    assert np.allclose(a.covariance, b.covariance, atol=ROOT_EPS)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=ROOT_EPS)
    used = weights > 0
    first = np.cumsum(weights[used]) - weights[used]
    assert np.allclose(a.loo_log_density[used], b.loo_log_density[first], atol=ROOT_EPS)
    assert np.allclose(a.loo_log_density[~used], b.log_density(X[~used], np.asarray(y)[~used]), atol=ROOT_EPS)


@pytest.mark.long_cases("OrderedProbit")
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["Probit", "Logit", "OrderedProbit", "StudentT"])
def test_power_ep_and_fractional_weights_by_the_book(name):
    likelihood, X, y = problem(name, n=15)
    weights = np.random.default_rng(2).uniform(0.3, 2.5, 15)
    exponent = 0.6 * np.minimum(1.0, weights)
    mean, covariance, evidence, *_ = reference.ep(
        X, factors(likelihood, y, exponent), np.zeros(3), np.eye(3), fraction=exponent / weights, passes=300
    )
    for schedule in SCHEDULES:
        posterior = GLM(likelihood).fit(X, y, sample_weight=weights, power=0.6, schedule=schedule, tol=1e-11)
        assert np.allclose(posterior.mean, mean, atol=EARLY)
        assert np.allclose(posterior.covariance, covariance, atol=EARLY)
        assert posterior.log_evidence == pytest.approx(evidence, abs=EARLY)


def test_threads_and_layout_do_not_change_a_bit():
    likelihood, X, y = problem("Probit", n=70_000, d=4)
    fits = [
        GLM(likelihood).fit(data, y, n_threads=threads)
        for data, threads in ((X, 1), (X, 2), (np.asfortranarray(X), 3), (X[::-1].copy()[::-1], 2))
    ]
    fits.append(GLM(likelihood).fit(X, np.column_stack([y, -y])[:, 0]))
    read_only = X.copy()
    read_only.flags.writeable = False
    fits.append(GLM(likelihood).fit(read_only, y))
    for other in fits[1:]:
        assert np.array_equal(fits[0].mean, other.mean)
        assert np.array_equal(fits[0].covariance, other.covariance)
        assert fits[0].log_evidence == other.log_evidence


def test_label_symmetry_and_codes():
    likelihood, X, y = problem("Probit")
    a, b = GLM(likelihood).fit(X, y), GLM(likelihood).fit(X, -y)
    assert np.allclose(a.mean, -b.mean, atol=SOLVES)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=SOLVES)
    for other in (y > 0, (y + 1) // 2, y.astype(np.float32)):
        assert np.array_equal(GLM(likelihood).fit(X, other).mean, a.mean)


@pytest.mark.parametrize("seed", range(3))
def test_adf_and_update_by_the_book(seed):
    likelihood, X, y = problem("Logit", seed=seed)
    mean, covariance, total = reference.adf(X, factors(likelihood, y), np.zeros(3), 2 * np.eye(3))
    model = GLM(likelihood, prior_variance=2.0)
    full = model.fit(X, y, method="adf")
    parts = model.fit(X[:2], y[:2], method="adf").update(X[2:3], y[2:3]).update(X[3:], y[3:])
    for posterior in (full, parts):
        assert np.allclose(posterior.mean, mean, atol=ROOT_EPS)
        assert np.allclose(posterior.covariance, covariance, atol=ROOT_EPS)
        assert posterior.log_evidence == pytest.approx(total, abs=ROOT_EPS)
        assert posterior.n_samples == 25
    with pytest.raises(ValueError, match="leave-one-out"):
        _ = full.loo_log_density


def test_update_of_weighted_rows_takes_them_repeatedly():
    likelihood, X, y = problem("Probit")
    start = GLM(likelihood).fit(X[:20], y[:20])
    a = start.update(X[20:], y[20:], sample_weight=[2, 1, 3, 1, 1])
    b = start.update(np.repeat(X[20:], [2, 1, 3, 1, 1], axis=0), np.repeat(y[20:], [2, 1, 3, 1, 1]))
    assert np.allclose(a.mean, b.mean, atol=SUMS)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=SOLVES)
    assert start.n_samples == 20


def test_stochastic_ep_is_near_ep_for_many_rows():
    likelihood, X, y = problem("Probit", n=5000, d=4)
    ep, stochastic = GLM(likelihood).fit(X, y), GLM(likelihood).fit(X, y, schedule="stochastic")
    assert stochastic.converged
    assert np.max(np.abs(ep.mean - stochastic.mean) / np.sqrt(ep.variance)) < 2e-3
    assert np.allclose(ep.variance, stochastic.variance, rtol=2e-3)
    assert stochastic.log_evidence == pytest.approx(ep.log_evidence, abs=1e-2)
    with pytest.raises(ValueError, match="sites are kept"):
        _ = stochastic.sites
    # for a Gaussian likelihood the averaged site loses nothing
    likelihood, X, y = problem("Gaussian")
    ep, stochastic = GLM(likelihood).fit(X, y), GLM(likelihood).fit(X, y, schedule="stochastic", tol=1e-11)
    assert np.allclose(ep.mean, stochastic.mean, atol=AT_REST)
    assert np.allclose(ep.covariance, stochastic.covariance, atol=AT_REST)
    assert stochastic.log_evidence == pytest.approx(ep.log_evidence, abs=ROOT_EPS)


@pytest.mark.parametrize("n", [1, 3])
def test_stochastic_ep_of_equal_rows_is_ep(n):
    """Their sites are all the same, so that the average is each of them."""
    X, y = np.tile([[1.0, -0.5]], (n, 1)), np.ones(n)
    model = GLM(likelihoods.Probit())
    ep, stochastic = (model.fit(X, y, schedule=schedule, tol=1e-11) for schedule in ("parallel", "stochastic"))
    assert np.allclose(ep.mean, stochastic.mean, atol=AT_REST)
    assert np.allclose(ep.covariance, stochastic.covariance, atol=AT_REST)
    assert stochastic.log_evidence == pytest.approx(ep.log_evidence, abs=ROOT_EPS)


@pytest.mark.parametrize("variance", [0.7, [0.5, 1.0, 2.0], "matrix"])
def test_gradient_of_the_evidence(variance):
    if variance == "matrix":
        variance = np.diag([0.5, 1.0, 2.0]) + 0.2
    variance = np.asarray(variance)
    for n in (25, 2):  # precision form and dual form
        likelihood, X, y = problem("Probit")
        X, y = X[:n], y[:n]

        def evidence(factor, X=X, y=y, likelihood=likelihood):
            return GLM(likelihood, 0.1, variance * factor).fit(X, y, tol=1e-12).log_evidence

        h = 1e-4
        gradient = np.atleast_1d(GLM(likelihood, 0.1, variance).fit(X, y, tol=1e-12).log_evidence_gradient)
        for j, slope in enumerate(gradient):
            unit = np.where(np.arange(gradient.size) == j, np.exp(h), 1.0)
            unit, inverse = (unit, 1 / unit) if variance.ndim == 1 else (np.exp(h), np.exp(-h))
            assert slope == pytest.approx((evidence(unit) - evidence(inverse)) / (2 * h), abs=EARLY)


@pytest.mark.parametrize("variance", [1.0, [1.0, 1.0, 1.0]])
def test_learning_the_prior_variance_maximises_the_evidence(variance):
    likelihood, X, y = problem("Poisson", n=60)
    learned = GLM(likelihood, prior_variance=variance).fit(X, y, learn="prior_variance")
    assert learned.converged
    best = np.asarray(learned.model.prior_variance)
    assert best.shape == np.shape(variance)
    assert np.max(np.abs(learned.log_evidence_gradient)) < 1e-3
    for factor in (0.5, 2.0):
        assert GLM(likelihood, prior_variance=best * factor).fit(X, y).log_evidence < learned.log_evidence


def test_evidence_prefers_the_model_that_made_the_data():
    rng = np.random.default_rng(8)
    X = design(300, 3, 8)
    y = X @ [1.0, 2.0, 0.0] + 0.5 * rng.standard_t(2, size=300)
    robust = GLM(likelihoods.StudentT(2.0, 0.5), prior_variance=10.0).fit(X, y)
    gaussian = GLM(likelihoods.Gaussian(float(np.var(y - X @ robust.mean))), prior_variance=10.0).fit(X, y)
    assert robust.log_evidence > gaussian.log_evidence + 10


# ------------------------------------------------------------------------------------------ hard problems


def hard_problems():  # (name, X, y, likelihood, prior variance)
    for seed in range(8):  # teams of three against each other
        rng = np.random.default_rng(seed)
        n = int(rng.integers(20, 200))
        X = np.zeros((n, 12))
        for row in X:
            players = rng.permutation(12)[:6]
            row[players[:3]], row[players[3:]] = 1, -1
        skill = 3 * rng.normal(size=12)
        y = np.where(X @ skill + 0.1 * rng.normal(size=n) > 0, 1, -1)
        yield f"teams {seed}", X, y, (likelihoods.Step(), likelihoods.Probit())[seed % 2], 25.0
    for seed in range(4):  # columns that differ in the third digit
        rng = np.random.default_rng(100 + seed)
        z = rng.normal(size=(100, 1))
        y = np.where(z[:, 0] + 0.3 * rng.normal(size=100) > 0, 1, -1)
        yield f"correlated {seed}", z + 1e-3 * rng.normal(size=(100, 10)), y, likelihoods.Logit(), 100.0
    for seed in range(2):  # many more sites than weights
        rng = np.random.default_rng(200 + seed)
        X = rng.normal(size=(3000, 2))
        yield (f"many {seed}", X, np.where(X @ [1, -1] + rng.normal(size=3000) > 0, 1, -1), likelihoods.Probit(), 1e4)
    for seed in range(6):  # outliers under heavy tails: several modes
        rng = np.random.default_rng(300 + seed)
        X = design(40, 3, seed)
        y = X @ [1, 2, -1] + rng.standard_t(1.2, size=40)
        yield f"outliers {seed}", X, y, likelihoods.StudentT(2.0 + seed % 3, 0.5), 100.0
    for seed in range(6):
        rng = np.random.default_rng(400 + seed)
        X = design(8, 2, seed)
        y = X @ [1, 2] + 5 * rng.standard_t(1, size=8)
        yield f"few outliers {seed}", X, y, likelihoods.StudentT(1.0, 0.1), 1000.0
    for seed in range(5):
        rng = np.random.default_rng(500 + seed)
        y = np.where(rng.random(20) < 0.5, rng.normal(2, 1, 20), rng.normal(0, 3.2, 20))
        yield f"clutter {seed}", np.ones((20, 1)), y, likelihoods.Clutter(), 100.0
    x = np.linspace(-1, 1, 30)
    y = np.where(x > 0, 1, -1)
    yield "separable", np.column_stack([np.ones(30), x]), y, likelihoods.Logit(), 1e6
    yield "separable, no noise", np.column_stack([np.ones(30), x]), y, likelihoods.Step(), 1e6
    yield "collinear and constant columns", np.column_stack([x, x, 0 * x]), y, likelihoods.Probit(), 10.0
    yield "one class", design(50, 3), np.ones(50), likelihoods.Probit(), 10.0
    yield "one row", np.array([[1.0, 2.0]]), [1], likelihoods.Step(), 10.0


SLOW = ("few outliers 3", "few outliers 4")  # alike others, and many steps of the double loop


@pytest.mark.long_cases("few outliers 1----")
@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "X", "y", "likelihood", "variance"),
    [pytest.param(*item, marks=[pytest.mark.long] if item[0] in SLOW else []) for item in hard_problems()],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_default_schedule_converges_on_hard_problems(name, X, y, likelihood, variance):
    posterior = GLM(likelihood, prior_variance=variance).fit(X, y)
    assert posterior.converged
    assert np.all(np.isfinite(posterior.loo_log_density))
    assert posterior.residual < 1e-4
    # the sites really are those of the posterior
    precision = np.eye(X.shape[1]) / variance + X.T @ (posterior.sites.rho[:, None] * X)
    assert np.allclose(precision @ posterior.mean, X.T @ posterior.sites.tau, rtol=OPTIMUM, atol=OPTIMUM)


@pytest.mark.long
def test_undamped_parallel_ep_fails_on_some_of_them():
    failing = 0
    for name, X, y, likelihood, variance in hard_problems():
        if not name.startswith(("outliers", "clutter")):
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            d = X.shape[1]
            changes = reference.ep(
                X, factors(likelihood, y), np.zeros(d), variance * np.eye(d), parallel=True, passes=30, tol=1e-6
            )[-1]
        failing += not changes[-1] < 1e-6
    assert failing >= 2


def test_schedules_agree_on_hard_problems():
    for name, X, y, likelihood, variance in hard_problems():
        if name.startswith(("teams", "correlated", "many", "separable", "one", "collinear")):  # one fixed point
            a, b = (GLM(likelihood, prior_variance=variance).fit(X, y, schedule=s) for s in SCHEDULES)
            assert b.converged, name
            assert a.log_evidence == pytest.approx(b.log_evidence, abs=OPTIMUM), name
            assert np.max(np.abs(a.mean - b.mean) / np.sqrt(a.variance)) < 1e-5, name


def test_contradictory_data_say_so():
    with pytest.warns(cavity.ConvergenceWarning, match="no fixed point|no progress|max_iter"):
        posterior = GLM(likelihoods.Step(), prior_variance=10.0).fit(np.ones((40, 1)), np.tile([1, -1], 20))
    assert not posterior.converged
    assert np.isfinite(posterior.log_evidence)
    assert np.all(np.isfinite(posterior.mean))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seeds", [(4, 5), pytest.param(range(40), marks=pytest.mark.long)])
def test_contradictory_labels_of_identical_rows(schedule, seeds):
    """The precision of the posterior grows until it has no digits left: the last state that has them is kept."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        d, n = rng.integers(1, 4), rng.integers(2, 8)
        y = rng.choice([-1, 1], n)
        y[0], y[-1] = 1, -1
        with pytest.warns(cavity.ConvergenceWarning):
            posterior = GLM(likelihoods.Step()).fit(np.tile(rng.normal(size=d), (n, 1)), y, schedule=schedule)
        assert "NOT CONVERGED" in repr(posterior)
        assert np.isfinite(posterior.log_evidence)
        assert posterior.residual > 0
        for numbers in (posterior.mean, posterior.covariance, posterior.sites.tau, posterior.sites.rho):
            assert np.all(np.isfinite(numbers))
        assert np.all(posterior.variance > 0)


@pytest.mark.long_cases("sequential")
@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning", "ignore::cavity.NumericalWarning")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_learning_from_contradictory_ranges_is_quiet(schedule):
    """At a small prior variance the sites of ranges that exclude each other leave the range of float64."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    low = np.floor(X @ [1.0, -0.5])
    bounds = np.column_stack([low, low + 1]) + 0.5 * rng.normal(size=30)[:, None]
    posterior = GLM(likelihoods.Interval(0.0)).fit(X, bounds, learn="prior_variance", schedule=schedule)
    assert not posterior.converged
    assert np.isfinite(posterior.log_evidence)
    assert np.all(np.isfinite(posterior.mean))


def test_counts_of_rows_that_hardly_move_f():
    """f is 0 to 1e-9: log p(1|0) + log p(0|0) = -1 - 1."""
    posterior = GLM(likelihoods.Poisson()).fit([[1e-9], [1e-9]], [1, 0])
    assert posterior.converged
    assert posterior.log_evidence == pytest.approx(-2.0, abs=SOLVES)


def test_outliers_get_sites_of_negative_precision():
    likelihood, X, y = problem("StudentT")
    y = y.copy()
    y[3] += 30.0
    posterior = GLM(likelihood, prior_variance=10.0).fit(X, y)
    assert posterior.converged
    assert posterior.sites.rho[3] < 0
    without = np.arange(len(y)) != 3
    clean = GLM(likelihood, prior_variance=10.0).fit(X[without], y[without])
    assert np.max(np.abs(posterior.mean - clean.mean) / np.sqrt(clean.variance)) < 0.5


# ------------------------------------------------------------------------------------------ your own likelihood


@pytest.mark.parametrize("own", [PlainLogit(), FastLogit()])
@pytest.mark.parametrize("schedule", [*SCHEDULES, "stochastic"])
def test_a_likelihood_in_plain_python(own, schedule):
    likelihood, X, y = problem("Logit")
    built_in = GLM(likelihood).fit(X, y, schedule=schedule)
    posterior = GLM(own).fit(X, y, schedule=schedule)
    assert np.allclose(posterior.mean, built_in.mean, atol=EARLY)
    assert posterior.log_evidence == pytest.approx(built_in.log_evidence, abs=ROOT_EPS)
    assert np.allclose(posterior.log_density(X, y), built_in.log_density(X, y), atol=ROOT_EPS)
    weighted = dict(sample_weight=np.linspace(0.5, 2, len(y)), power=0.7)
    assert np.allclose(GLM(own).fit(X, y, **weighted).mean, GLM(likelihood).fit(X, y, **weighted).mean, atol=EARLY)


def test_own_likelihoods_that_misbehave_are_named():
    class Wrong(likelihoods.Likelihood):
        def log_tilted(self, y, mean, variance):
            return np.full(len(mean), np.nan), mean, mean

    class Empty(likelihoods.Likelihood):
        pass

    with pytest.raises(ValueError, match="Wrong.log_tilted must give finite values.*row 0 gave log_z = nan"):
        GLM(Wrong()).fit([[1.0]], [1.0])
    with pytest.raises(NotImplementedError, match="Empty must define log_p"):
        GLM(Empty()).fit([[1.0]], [1.0])
    with pytest.raises(TypeError, match="PlainLogit"):
        GLM(PlainLogit()).fit([[1.0]], [1.0]).save("never.npz")


# ------------------------------------------------------------------------------------------ results


def test_predictions_integrate_over_the_posterior():
    likelihood, X, y = problem("Probit")
    posterior = GLM(likelihood).fit(X, y)
    f, v = posterior.predict(X, offset=np.full(len(y), 0.5))
    assert np.allclose(f, X @ posterior.mean + 0.5)
    assert np.allclose(posterior.predict_proba(X)[:, 1], norm.cdf(X @ posterior.mean / np.sqrt(1 + v)))
    assert np.allclose(posterior.predict_proba(X).sum(axis=1), 1.0)
    far = np.array([[0.0, 1e4, 0.0]])
    assert posterior.log_density(far, [1])[0] != posterior.log_density(far, [-1])[0]
    assert np.isfinite(posterior.log_density(1e3 * far, [1])[0])
    assert np.allclose(np.exp(posterior.log_density(np.zeros((1, 3)), [1])), 0.5)  # no variance at all
    ordered, X, y = problem("OrderedProbit")
    assert np.allclose(GLM(ordered).fit(X, y).predict_proba(X).sum(axis=1), 1.0)
    poisson, X, y = problem("Poisson")
    counts = GLM(poisson).fit(X, y)
    f, v = counts.predict(X)
    assert np.allclose(counts.expected(X), np.exp(f + v / 2))
    with pytest.raises(ValueError, match="predict_proba needs a likelihood of classes, got Poisson"):
        counts.predict_proba(X)


@pytest.mark.parametrize("n", [25, 3])
def test_samples_have_the_moments(n):
    likelihood, X, y = problem("Probit", d=5)
    posterior = GLM(likelihood).fit(X[:n], y[:n])
    draws = posterior.sample(40_000, rng=1)
    assert draws.shape == (40_000, 5)
    assert np.allclose(draws.mean(axis=0), posterior.mean, atol=0.03)
    assert np.allclose(np.cov(draws.T), posterior.covariance, atol=0.03)
    assert np.array_equal(draws, posterior.sample(40_000, rng=1))


@pytest.mark.parametrize("n", [25, 3])
def test_saved_posteriors_come_back_in_every_bit(n, tmp_path):
    likelihood, X, y = problem("OrderedProbit", d=5)
    posterior = GLM(likelihood, prior_variance=np.arange(1.0, 6.0)).fit(X[:n], y[:n])
    posterior.save(tmp_path / "glm.npz")
    back = cavity.load(tmp_path / "glm.npz")
    assert np.array_equal(back.covariance, posterior.covariance)
    assert np.array_equal(back.loo_log_density, posterior.loo_log_density)
    assert back.model.likelihood == likelihood
    assert back.trace.keys() == posterior.trace.keys()
    assert np.array_equal(back.update(X[:4], y[:4]).mean, posterior.update(X[:4], y[:4]).mean)
    assert repr(back) == repr(posterior)
    with pytest.raises(ValueError, match="read-only"):
        back.mean[0] = 1.0


def test_callback_and_max_iter():
    likelihood, X, y = problem("Probit")
    seen = []
    with pytest.warns(cavity.ConvergenceWarning, match="stopped by callback"):
        stopped = GLM(likelihood).fit(X, y, callback=lambda event: seen.append(event.change) or event.n_iter == 2)
    assert len(seen) == 2
    assert stopped.n_iter == 2
    with pytest.warns(cavity.ConvergenceWarning, match="max_iter reached"):
        assert not GLM(likelihood).fit(X, y, max_iter=1).converged


def test_scales_of_columns_do_not_matter():
    likelihood, X, y = problem("Logit")
    scale = np.array([1e-8, 1.0, 1e9])
    a = GLM(likelihood).fit(X, y)
    b = GLM(likelihood, prior_variance=1 / scale**2).fit(X * scale, y)
    assert np.allclose(a.mean, b.mean * scale, rtol=ROOT_EPS)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=ROOT_EPS)


BAD = [
    *BAD_FITS,
    (dict(method="vb"), ValueError, "method must be one of"),
    (dict(learn="noise"), ValueError, "learn must be one of"),
    (dict(method="adf", power=0.5), ValueError, "method='adf' sees each row once"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_data_and_options(change, error, message):
    arguments = dict(X=[[1.0], [2.0], [-1.0]], y=[0, 1, 1]) | change
    with pytest.raises(error, match=message):
        GLM(likelihoods.Probit()).fit(arguments.pop("X"), arguments.pop("y"), **arguments)


def test_bad_counts_and_models():
    with pytest.raises(ValueError, match="whole numbers, not negative; got -1.0 in row 1"):
        GLM(likelihoods.Poisson()).fit(np.ones((2, 1)), [1, -1])
    with pytest.raises(ValueError, match="got 0.5 in row 0"):
        GLM(likelihoods.NegativeBinomial()).fit(np.ones((2, 1)), [0.5, 1])
    with pytest.raises(TypeError, match="did you forget the brackets"):
        GLM(likelihoods.Probit)
    with pytest.raises(ValueError, match="prior_variance must be positive, got -1.0"):
        GLM(likelihoods.Probit(), prior_variance=-1.0)
    with pytest.raises(cavity.NotPositiveDefiniteError, match="prior_variance.*pivot 2"):
        GLM(likelihoods.Probit(), prior_variance=[[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match="prior_variance must be symmetric"):
        GLM(likelihoods.Probit(), prior_variance=[[1.0, 0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"prior_variance must be a number or have shape \(1,\)"):
        GLM(likelihoods.Probit(), prior_variance=[1.0, 2.0]).fit(np.ones((2, 1)), [0, 1])
    with pytest.raises(ValueError, match="prior_mean"):
        GLM(likelihoods.Probit(), prior_mean=[1.0, 2.0]).fit(np.ones((2, 1)), [0, 1])
    with pytest.raises(ValueError, match="approximation must be one of"):
        GLM(likelihoods.Probit(), approximation="lowrank")
    posterior = GLM(likelihoods.Probit()).fit(np.ones((2, 1)), [0, 1])
    with pytest.raises(ValueError, match="X must have 1 columns"):
        posterior.predict(np.ones((2, 3)))


@pytest.mark.parametrize("d", [3, 70])
def test_blocks_of_delayed_updates_are_the_sequential_schedule(set_sizes, d):
    likelihood, X, y = problem("Logit", n=150, d=d)
    weights = np.linspace(0.5, 2.0, 150)
    sweeps = {}
    for few_columns in (0, 1000):
        set_sizes(MAX_RANK_ONE_COLUMNS=few_columns)
        with pytest.warns(cavity.ConvergenceWarning):
            sweeps[few_columns] = GLM(likelihood).fit(X, y, schedule="sequential", sample_weight=weights, max_iter=1)
    assert np.allclose(sweeps[0].sites.rho, sweeps[1000].sites.rho, rtol=INTEGRAL, atol=SOLVES)
    assert np.allclose(sweeps[0].sites.tau, sweeps[1000].sites.tau, rtol=INTEGRAL, atol=SOLVES)


# ------------------------------------------------------------------------------------------ independent weights


def sparse_problem():
    rng = np.random.default_rng(9)
    X = sparse.random(300, 40, 0.1, "csr", None, rng)
    X.data[:] = 1.0
    y = np.where(X @ rng.normal(size=40) + rng.normal(size=300) > 0, 1, -1)
    return X, y


def test_diagonal_approximation_of_sparse_rows(tmp_path):
    X, y = sparse_problem()
    model = GLM(likelihoods.Probit(), approximation="diagonal")
    posterior = model.fit(X, y)
    assert posterior.converged
    full = GLM(likelihoods.Probit()).fit(X.toarray(), y)
    # columns overlap little: independent weights are a fair approximation
    assert np.max(np.abs(posterior.mean - full.mean) / np.sqrt(full.variance)) < 0.5
    assert posterior.log_evidence == pytest.approx(full.log_evidence, abs=2.0)
    f, v = posterior.predict(X)
    assert np.allclose(f, X @ posterior.mean)
    assert np.allclose(v, X.multiply(X) @ posterior.variance)
    assert np.allclose(posterior.predict_proba(X)[:, 1], norm.cdf(f / np.sqrt(1 + v)))
    with pytest.raises(AttributeError, match="no covariance"):
        _ = posterior.covariance
    with pytest.raises(ValueError, match="sites are kept"):
        _ = posterior.sites
    posterior.save(tmp_path / "diagonal.npz")
    back = cavity.load(tmp_path / "diagonal.npz")
    assert np.array_equal(back.loo_log_density, posterior.loo_log_density)
    assert np.array_equal(back.update(X[:5], y[:5]).mean, posterior.update(X[:5], y[:5]).mean)


def test_diagonal_approximation_is_exact_for_one_weight_a_row():
    rng = np.random.default_rng(10)
    X = np.zeros((60, 4))
    X[np.arange(60), rng.integers(0, 4, 60)] = rng.normal(size=60)
    y = np.where(rng.random(60) < 0.7, 1, -1)
    a = GLM(likelihoods.Logit(), approximation="diagonal").fit(sparse.csr_array(X), y, tol=1e-11)
    b = GLM(likelihoods.Logit()).fit(X, y, tol=1e-11)
    assert np.allclose(a.mean, b.mean, atol=ROOT_EPS)
    assert np.allclose(a.variance, b.variance, atol=ROOT_EPS)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=ROOT_EPS)
    assert np.allclose(a.loo_log_density, b.loo_log_density, atol=ROOT_EPS)


def test_diagonal_streaming_is_one_pass():
    X, y = sparse_problem()
    model = GLM(likelihoods.Probit(), approximation="diagonal")
    full = model.fit(X, y, method="adf")
    parts = model.fit(X[:100], y[:100], method="adf").update(X[100:101], y[100:101]).update(X[101:], y[101:])
    assert np.array_equal(full.mean, parts.mean)
    assert np.array_equal(full.variance, parts.variance)
    assert full.log_evidence == pytest.approx(parts.log_evidence, abs=INTEGRAL)
    assert parts.n_samples == 300


def test_sparse_matrices_and_what_they_cannot_do():
    X, y = sparse_problem()
    with pytest.raises(TypeError, match="X is sparse: use approximation='diagonal'"):
        GLM(likelihoods.Probit()).fit(X, y)
    diagonal = GLM(likelihoods.Probit(), approximation="diagonal")
    with pytest.raises(ValueError, match="no schedule='stochastic' and no learn"):
        diagonal.fit(X, y, learn="prior_variance")
    with pytest.raises(ValueError, match=r"prior_variance must be a number or \(D,\)"):
        GLM(likelihoods.Probit(), prior_variance=np.eye(2), approximation="diagonal")
    bad = X.copy()
    bad.data[3] = np.nan
    with pytest.raises(ValueError, match=r"X.data must be finite, got X.data\[3\] = nan"):
        diagonal.fit(bad, y)


def test_rows_that_tell_nothing_about_the_weights():
    likelihood, X, y = problem("Probit")
    X, y, offset = np.vstack([X, np.zeros((2, 3)), 1e-170 * X[:1]]), np.append(y, [1, -1, 1]), np.linspace(-1, 1, 28)
    posterior = GLM(likelihood).fit(X, y, offset=offset)
    rest = GLM(likelihood).fit(X[:25], y[:25], offset=offset[:25])
    truth = norm.logcdf(y[25:] * offset[25:])
    assert np.array_equal(posterior.mean, rest.mean)
    assert posterior.log_evidence == pytest.approx(rest.log_evidence + truth.sum(), abs=SOLVES)
    assert np.allclose(posterior.loo_log_density, np.append(rest.loo_log_density, truth), atol=SOLVES)
    for method in ("ep", "adf"):
        nothing = GLM(likelihood, 0.5, 2.0).fit(np.zeros((3, 2)), [1, 1, -1], method=method)
        assert nothing.mean.tolist() == [0.5, 0.5]
        assert np.allclose(nothing.covariance, 2 * np.eye(2))
        assert nothing.log_evidence == pytest.approx(3 * np.log(0.5))
    assert rest.update(np.zeros((1, 3)), [1]).log_evidence == pytest.approx(rest.log_evidence + np.log(0.5))
    with pytest.raises(OverflowError, match="row 1 leaves the range"):
        GLM(likelihood).fit([[1.0], [1e200]], [0, 1])


# ------------------------------------------------------------------------------------------ scales, limits, company


def test_absurd_scales_end_with_a_sentence_or_an_honest_flag():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.tile([1, -1], 10)
    with pytest.warns(cavity.ConvergenceWarning):
        steep = GLM(likelihoods.Logit(), prior_variance=1e100).fit(1e30 * X, y)
    assert not steep.converged
    assert np.all(np.isfinite(steep.mean))
    with pytest.warns(cavity.ConvergenceWarning):
        far = GLM(likelihoods.Poisson()).fit(X, y + 1, offset=np.full(20, 50.0))
    assert not far.converged
    assert np.all(np.isfinite(far.mean))
    for offset in (1e3, 1e6):  # one row: EP is exact, however far
        assert np.isfinite(GLM(likelihoods.Poisson()).fit([[1.0]], [2], offset=[offset]).log_evidence)


def test_a_row_that_decides_alone_keeps_its_digits():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3, 20)), rng.normal(size=3)
    posterior = GLM(likelihoods.Gaussian(1e-4), prior_variance=1e6).fit(X, y)
    assert posterior.converged
    assert posterior.residual < 1e-8
    exact = multivariate_normal(np.zeros(3), 1e6 * X @ X.T + 1e-4 * np.eye(3)).logpdf(y)
    assert posterior.log_evidence == pytest.approx(exact, abs=OPTIMUM)


def test_stochastic_ep_averages_whole_sites_only():
    likelihood, X, y = problem("Probit")
    for options in (dict(power=0.5), dict(sample_weight=np.full(len(y), 0.5))):
        with pytest.raises(ValueError, match="averages whole sites"):
            GLM(likelihood).fit(X, y, schedule="stochastic", **options)
    doubled = GLM(likelihood).fit(X, y, schedule="stochastic", sample_weight=np.full(len(y), 2.0), tol=1e-10)
    repeated = GLM(likelihood).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2), schedule="stochastic", tol=1e-10)
    assert np.allclose(doubled.mean, repeated.mean, atol=AT_REST)
    assert doubled.log_evidence == pytest.approx(repeated.log_evidence, abs=ROOT_EPS)


def test_learning_starts_where_it_matters_and_says_where_it_ends():
    likelihood, X, y = problem("Probit", n=60)
    best = GLM(likelihood).fit(X, y, learn="prior_variance")
    for start in (1e-8, 1e8):
        other = GLM(likelihood, prior_variance=start).fit(X, y, learn="prior_variance")
        assert other.log_evidence == pytest.approx(best.log_evidence, abs=OPTIMUM)
    with pytest.warns(cavity.NumericalWarning, match="the search ended there"):
        GLM(likelihoods.Gaussian()).fit(X, np.zeros(60), learn="prior_variance")


def test_concurrent_fits_leave_blas_as_it_was():
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_info

    likelihood, X, y = problem("Probit", n=20_000)
    single = GLM(likelihood).fit(X, y)
    before = [info["num_threads"] for info in threadpool_info()]
    with ThreadPoolExecutor(3) as pool:
        fits = list(pool.map(lambda _: GLM(likelihood).fit(X, y), range(6)))
    assert [info["num_threads"] for info in threadpool_info()] == before
    assert all(np.array_equal(single.mean, fit.mean) for fit in fits)


def test_step_at_zero_and_predictions_out_of_range():
    likelihood, X, y = problem("Probit")
    posterior = GLM(likelihoods.Step()).fit(X[:3], y[:3])
    assert np.allclose(posterior.predict_proba(np.zeros((1, 3))), 0.5)
    with pytest.raises(OverflowError, match="row 1 of X leaves the range"):
        posterior.predict([[1.0, 0.0, 0.0], [1e300, 1e300, 0.0]])
    with pytest.raises(TypeError, match="y must not be a masked array"):
        GLM(likelihood).fit(X, np.ma.masked_less(y, 0))
    with pytest.raises(ValueError, match="use method='ep'"):
        GLM(likelihood).fit(X, y, method="adf", sample_weight=np.full(len(y), 1e9))


def test_own_log_tilted_is_used_by_the_diagonal_approximation_too():
    calls = []

    class Counted(FastLogit):
        def log_tilted(self, y, mean, variance):
            calls.append(len(mean))
            return super().log_tilted(y, mean, variance)

    likelihood, X, y = problem("Logit")
    own = GLM(Counted(), approximation="diagonal").fit(X, y, method="adf")
    assert len(calls) == len(y)
    assert np.allclose(own.mean, GLM(likelihood, approximation="diagonal").fit(X, y, method="adf").mean, atol=INTEGRAL)


def test_rows_that_are_not_in_use_have_sites_without_effect():
    X, y = np.array([[1.0, 0.5], [0.0, 0.0], [-1.0, 2.0], [0.3, 0.3]]), [1, 0, 0, 1]
    posterior = GLM(likelihoods.Probit()).fit(X, y, sample_weight=[1.0, 1.0, 0.0, 2.0])
    assert np.all((posterior.sites.rho == 0.0) == [False, True, True, False])
    assert np.all((posterior.sites.tau == 0.0) == [False, True, True, False])
    assert posterior.loo_log_density[1] == pytest.approx(np.log(0.5))
