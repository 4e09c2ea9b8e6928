"""What GLMs learn by the log evidence: gradients, maxima, standard errors, and what is said where there is none."""

import pickle
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln
from scipy.stats import multivariate_normal
from scipy.stats import t as student_t
from support.glms import GLM, problem_of
from support.tolerances import AT_REST, EARLY, EXPANSION, OPTIMUM, PRINTED, ROOT_EPS, ROUNDING, SLOPES

import cavity
from cavity import likelihoods
from cavity.ep.options import Options
from cavity.likelihoods import Likelihood
from cavity.models import standard_errors
from cavity.models.linear import evidence_search
from cavity.models.linear.evidence import PRIOR_VARIANCE, FreeFactors, LinearEvidence, estimate_remaining_share
from cavity.runs.executors import Threads

MADE = {
    "Gaussian": likelihoods.Gaussian(0.2),
    "Laplace": likelihoods.Laplace(0.3),
    "StudentT": likelihoods.StudentT(3.0, 0.3),
    "Clutter": likelihoods.Clutter(0.2, 9.0, 0.2, 0.5),
    "NegativeBinomial": likelihoods.NegativeBinomial(2.0),
    "OrderedProbit": likelihoods.OrderedProbit((-0.7, 0.3, 1.1)),
    "Interval": likelihoods.Interval(0.3),
    "AsymmetricLaplace": likelihoods.AsymmetricLaplace(0.3, 0.2),
    "Gamma": likelihoods.Gamma(2.0),
    "LogNormal": likelihoods.LogNormal(0.4),
    "Weibull": likelihoods.Weibull(1.4),
    "Weibull hazard": likelihoods.Weibull(1.4, effect="hazard"),
    "LogLogistic": likelihoods.LogLogistic(1.8),
}
CENSORED = np.array([[1.0, 1.0], [1.0, np.inf], [0.0, 1.0], [1.0, 1.0]])  # factors of bounds


@dataclass(frozen=True)
class OwnStudentT(Likelihood):
    """A twin of StudentT, by its density alone."""

    nu: float | None = 4.0
    width: float | None = 1.0
    parameters = {"nu": "positive", "width": "scale"}  # noqa: RUF012 - as users write it

    def log_p(self, y, f):
        """Log density."""
        nu, s = self.nu, self.width
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(np.pi * nu) - np.log(s)
        return constant - 0.5 * (nu + 1) * np.log1p(((y - f) / s) ** 2 / nu)


def design(n, d=2, seed=0):
    """A column of ones and others."""
    return np.column_stack([np.ones(n), np.random.default_rng(seed).normal(size=(n, d - 1))])


def observed(likelihood, n, d=2, seed=0):
    """X and y with an f of the size of one."""
    rng, X = np.random.default_rng(seed + 1), design(n, d, seed)
    f = X @ np.resize([0.4, 0.8, -0.5], d)
    match type(likelihood).__name__:
        case "NegativeBinomial" | "Poisson":
            return X, rng.poisson(np.exp(f) * rng.gamma(2.0, 0.5, n)).astype(float)
        case "OrderedProbit":
            return X, np.digitize(f + rng.normal(size=n), [-0.7, 0.3, 1.1]).astype(float)
        case "Interval":
            y = f + 0.5 * rng.normal(size=n)
            return X, np.column_stack([np.where(y > 1, 1.0, y), np.where(y > 1, np.inf, y)])
        case "Gamma":
            return X, np.exp(f) * rng.gamma(2.0, 0.5, n)
        case "LogNormal" | "Weibull" | "LogLogistic":
            return X, np.exp(f + rng.normal(size=n))[:, None] * np.resize(CENSORED, (n, 2))
    return X, f + 0.3 * rng.standard_t(3, size=n)


# ------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize(
    ("name", "power"), [*((name, 1.0) for name in (*MADE, "Own")), ("StudentT", 0.6), ("Weibull", 0.6)]
)
def test_gradient_is_that_of_whole_fits(name, power):
    """In all free numbers: rows of all weights, rows that are left out, and one whose f is known."""
    likelihood = OwnStudentT(3.0, 0.3) if name == "Own" else MADE[name]
    X, y = observed(likelihood, 6)
    X[3] = 0.0
    weights = np.array([1.0, 2.0, 0.0, 1.0, 0.5, 3.0])
    problem = problem_of(GLM(likelihood, 0.2, np.array([2.0, 0.5])), X, y, 0.1 * X[:, 1], weights)
    assert problem.rows.f_known.sum() == 1
    vector = FreeFactors((PRIOR_VARIANCE, *likelihood.parameters), np.arange(2), likelihood, problem)
    evidence = LinearEvidence(problem, vector, Threads(1), Options(tol=1e-9, power=power))
    x = vector.start(0.1, likelihood)
    gradient = vector.gradient(evidence, evidence.at(vector.unpack(x)))
    assert len(gradient) == vector.size
    for i, slope in enumerate(gradient):
        low, lower, higher, high = (
            evidence.at(vector.unpack(x + k * 2e-3 * (np.arange(len(x)) == i))).log_evidence for k in (-2, -1, 1, 2)
        )
        assert slope == pytest.approx((8 * (higher - lower) - (high - low)) / (12 * 2e-3), rel=EARLY, abs=ROOT_EPS)


# ------------------------------------------------------------------------------------------ maxima


@pytest.mark.parametrize("name", ["NegativeBinomial", "StudentT", "Own"])
def test_a_search_that_begins_on_some_rows_ends_at_the_maximum_of_all(name, monkeypatch):
    """With fewer evaluations of all rows and the same standard errors; where some rows tell little, it is as ever."""
    made = OwnStudentT(3.0, 0.3) if name == "Own" else MADE[name]
    X, y = observed(made, 1000)
    model = GLM(replace(made, **dict.fromkeys(made.parameters)), prior_variance=1.0)
    weights = 1.0 + 0.5 * (np.arange(1000) % 3)
    usual = model.fit(X, y, sample_weight=weights)
    monkeypatch.setattr(evidence_search, "MIN_SAMPLED_ROWS", 1000)
    monkeypatch.setattr(evidence_search, "SAMPLE_ROWS", 300)
    sampled = model.fit(X, y, sample_weight=weights)
    assert sampled.converged
    assert sampled.trace["learning"].size < usual.trace["learning"].size
    np.testing.assert_allclose(sampled.hyperparameters.values, usual.hyperparameters.values, rtol=SLOPES)
    np.testing.assert_allclose(sampled.hyperparameters.sd, usual.hyperparameters.sd, rtol=EXPANSION)
    assert sampled.log_evidence == pytest.approx(usual.log_evidence, abs=AT_REST)
    monkeypatch.setattr(evidence_search, "MAX_SAMPLE_VARIANCE", 0.0)
    assert model.fit(X, y, sample_weight=weights).hyperparameters.values == pytest.approx(
        usual.hyperparameters.values, rel=OPTIMUM
    )


def test_a_search_that_begins_on_some_rows_is_the_same_with_any_threads(monkeypatch):
    """Bits; a prior variance is learnt, too."""
    X, y = observed(MADE["NegativeBinomial"], 1000, 6)
    monkeypatch.setattr(evidence_search, "MIN_SAMPLED_ROWS", 1000)
    monkeypatch.setattr(evidence_search, "SAMPLE_ROWS", 500)
    model = GLM(likelihoods.NegativeBinomial(), prior_variance=1.0)
    one, two = (model.fit(X, y, learn="prior_variance", n_threads=n) for n in (1, 2))
    assert one.hyperparameters == two.hyperparameters
    np.testing.assert_array_equal(one.trace["learning"], two.trace["learning"])


@pytest.mark.parametrize(
    ("changes", "share"), [([4.0], 0.3), ([8.0, 4.0, 1.0], 1.0), ([9.0, 1.0, 0.1], 1 / 8), ([1.0, 1e-9], 1e-2)]
)
def test_the_share_of_a_change_that_is_left(changes, share):
    """Sums of geometric series; 1 after steps of the double loop, and after sweeps that shrink slowly."""
    trace = {"change": np.array(changes), "double_loop": 0}
    assert estimate_remaining_share(trace, 0.3) == pytest.approx(share, rel=ROUNDING)
    assert estimate_remaining_share(trace | {"double_loop": 3}, 0.3) == 1.0


def test_gaussian_noise_is_learnt_as_by_the_closed_form():
    """With its standard errors and that of the prior variance; EP is exact."""
    X, y = observed(likelihoods.Gaussian(), 30, 3)

    def loss(x):
        covariance = np.exp(x[0]) * X @ X.T + np.exp(x[1]) * np.eye(30)
        return -multivariate_normal(np.zeros(30), covariance).logpdf(y)

    x = minimize(loss, [0.0, -1.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
    h, steps = 1e-3, np.eye(2)
    curvature = [
        [
            (loss(x + h * (a + b)) - loss(x + h * (a - b)) - loss(x - h * (a - b)) + loss(x - h * (a + b)))
            / (4 * h * h)
            for a in steps
        ]
        for b in steps
    ]
    posterior = GLM(likelihoods.Gaussian(None), prior_variance=1.0).fit(X, y, learn=PRIOR_VARIANCE)
    learnt = posterior.hyperparameters
    assert posterior.converged
    assert learnt.names == ("prior_variance", "noise_variance")
    assert posterior.log_evidence == pytest.approx(-loss(x), abs=AT_REST)
    assert np.allclose(learnt.values, np.exp(x), rtol=PRINTED)
    assert np.allclose(learnt.sd, np.exp(x) * np.sqrt(np.diag(np.linalg.inv(curvature))), rtol=EXPANSION)
    assert learnt.values == (float(posterior.model.prior_variance), posterior.model.likelihood.noise_variance)


@pytest.mark.long_cases("NegativeBinomial")
@pytest.mark.parametrize("name", ["NegativeBinomial", "Laplace", "Interval"])
def test_one_parameter_is_near_the_maximum_of_the_evidence_itself(name):
    """Which is an integral over two weights, by quadrature over one at a time."""
    made = MADE[name]
    X, y = observed(made, 40)
    (parameter,) = made.parameters
    posterior = GLM(replace(made, **{parameter: None}), prior_variance=1.0).fit(X, y)
    steps = np.linspace(-8.0, 8.0, 41)
    spread = np.linalg.cholesky(posterior.covariance)
    w = posterior.mean + np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2) @ spread.T
    f, log_prior = w @ X.T, -0.5 * np.sum(w**2, axis=1) - np.log(2 * np.pi)
    log_cell = 2 * np.log(steps[1] - steps[0]) + np.linalg.slogdet(spread)[1]

    def loss(log_value):
        likelihood = replace(made, **{parameter: float(np.exp(log_value))})
        observed_at = np.broadcast_to(y, (*f.shape, 2)) if y.ndim == 2 else y
        log_p = np.sum(likelihood.log_p(observed_at, f), axis=1)
        return -np.logaddexp.reduce(log_p + log_prior) - log_cell

    best = minimize_scalar(loss, bracket=(-1.0, 0.5), tol=1e-6)
    assert posterior.converged
    (value,), (sd,) = posterior.hyperparameters.values, posterior.hyperparameters.sd
    assert posterior.log_evidence == pytest.approx(-best.fun, abs=0.02)
    assert abs(np.log(value) - best.x) < 0.1 * sd / value
    curvature = (loss(best.x + 0.05) - 2 * best.fun + loss(best.x - 0.05)) / 0.05**2
    assert sd / value == pytest.approx(curvature**-0.5, rel=0.05)


@pytest.mark.parametrize("name", MADE)
def test_what_is_learnt_is_a_maximum(name):
    likelihood = MADE[name]
    X, y = observed(likelihood, 120)
    X = X[:, 1:] if name == "OrderedProbit" else X
    posterior = GLM(type(likelihood)(**dict.fromkeys(likelihood.parameters))).fit(X, y)
    assert posterior.converged
    learnt, values = posterior.hyperparameters, posterior.model.likelihood
    for parameter in likelihood.parameters:
        for factor in (0.8, 1.25):
            value = getattr(values, parameter)
            other = tuple(factor * v for v in value) if parameter == "thresholds" else factor * value
            if parameter != "clutter_weight" or other < 1:
                changed = replace(posterior.model, likelihood=replace(values, **{parameter: other})).fit(X, y)
                assert changed.log_evidence < posterior.log_evidence, parameter
    assert len(learnt.names) == len(learnt.values) == len(learnt.sd)


def test_starting_at_given_values_ends_at_the_same_maximum():
    X, y = observed(MADE["StudentT"], 20)
    posterior = GLM(likelihoods.StudentT(None, None)).fit(X, y)
    for start in (likelihoods.StudentT(30.0, 50.0), likelihoods.StudentT(0.5, 1e-4)):
        second = GLM(start).fit(X, y, learn=("degrees_of_freedom", "scale"))
        assert second.log_evidence == pytest.approx(posterior.log_evidence, abs=OPTIMUM)
        assert np.allclose(second.hyperparameters.values, posterior.hyperparameters.values, rtol=EXPANSION)


def test_a_likelihood_of_ones_own_learns_as_its_built_in_twin():
    X, y = observed(MADE["StudentT"], 15)
    own = GLM(OwnStudentT(4.0, None)).fit(X, y)
    twin = GLM(likelihoods.StudentT(4.0, None)).fit(X, y)
    assert own.log_evidence == pytest.approx(twin.log_evidence, abs=EARLY)
    assert np.allclose(own.hyperparameters.values, twin.hyperparameters.values, rtol=PRINTED)
    assert np.allclose(own.hyperparameters.sd, twin.hyperparameters.sd, rtol=EXPANSION)
    assert own.hyperparameters.names == ("width",)


@pytest.mark.parametrize("unit", [1e8, 1e-8])
def test_noise_scales_with_the_observations(unit):
    X, y = observed(MADE["Laplace"], 60)
    for kind, power in (
        (likelihoods.Gaussian, 2),
        (likelihoods.Laplace, 1),
        (lambda _: likelihoods.StudentT(4.0, None), 1),
    ):
        one = GLM(kind(None), prior_variance=1.0).fit(X, y)
        other = GLM(kind(None), prior_variance=unit**2).fit(X, unit * y)
        assert np.allclose(
            other.hyperparameters.values, np.array(one.hyperparameters.values) * unit**power, rtol=OPTIMUM
        )
        assert np.allclose(other.hyperparameters.sd, np.array(one.hyperparameters.sd) * unit**power, rtol=PRINTED)


@pytest.mark.parametrize("unit", [1e100, 1e-150])
def test_standard_errors_are_in_the_range_of_float64(unit):
    X, y = observed(MADE["Gaussian"], 40)
    one = GLM(likelihoods.Gaussian(None), prior_variance=1.0).fit(X, y)
    other = GLM(likelihoods.Gaussian(None), prior_variance=unit**2).fit(X, unit * y)
    assert np.isclose(
        other.hyperparameters.sd[0] / other.hyperparameters.values[0],
        one.hyperparameters.sd[0] / one.hyperparameters.values[0],
        rtol=PRINTED,
    )


def test_fits_for_standard_errors_that_fail_do_not_take_longer_than_the_search(monkeypatch):
    steps, fit = [], LinearEvidence._fit

    def counted(self, *arguments):
        result = fit(self, *arguments)
        steps.append(0 if result is None else int(result.trace["double_loop"]))
        return result

    monkeypatch.setattr(LinearEvidence, "_fit", counted)
    monkeypatch.setattr(standard_errors, "CURVATURE_TOL", 1e-8)  # which these fits cannot reach by sweeps alone
    X, y = observed(MADE["Laplace"], 30)
    far = 1e8  # of which sites lose half of their digits
    model = GLM(likelihoods.Laplace(None), prior_mean=[far, 0.0], prior_variance=1.0)
    with pytest.warns(cavity.ConvergenceWarning):
        posterior = model.fit(X, far + y, callback=lambda event: event.stage == "fit")
    assert 0 < max(steps) <= 30
    assert posterior.hyperparameters.sd == (None,)


def test_learnt_thresholds_leave_slopes_as_uncertain_as_an_intercept_does():
    """Wherever the columns are: thresholds that count as known must not say where f is far from the rows."""
    X, y = observed(MADE["OrderedProbit"], 80, 3)
    X = X[:, 1:]
    result = GLM(likelihoods.OrderedProbit()).fit(X, y)
    other = GLM(likelihoods.OrderedProbit()).fit(X + [50.0, -300.0], y)
    assert other.summary().names == ("x1", "x2")
    assert "measured from `centre`, as a rule their means" in repr(other.summary())
    assert "columns       centred, for the thresholds" in repr(other)
    assert np.allclose(other.mean, result.mean, atol=EARLY)
    assert np.allclose(other.covariance, result.covariance, atol=EARLY)
    assert other.log_evidence == pytest.approx(result.log_evidence, abs=ROOT_EPS)
    assert np.allclose(other.predict_proba(X + [50.0, -300.0]), result.predict_proba(X), atol=EARLY)
    two = GLM(likelihoods.OrderedProbit()).fit(X + 50.0, y > 1)
    probit = cavity.GLM(likelihoods.Probit(), prior_variance=1.0, intercept=1e4, standardize=True).fit(X, y > 1)
    slopes = probit.mean[1:] / probit.spread, np.sqrt(probit.variance[1:]) / probit.spread
    assert np.allclose(two.mean, slopes[0], atol=0.1 * slopes[1])
    assert np.allclose(np.sqrt(two.variance), slopes[1], rtol=0.05)


# ------------------------------------------------------------------------------------------ counts


def test_open_dispersion_of_poisson_counts_comes_to_poisson():
    X = design(400, 3)
    y = np.random.default_rng(2).poisson(np.exp(X @ [0.5, 0.3, -0.2]))
    poisson = GLM(likelihoods.Poisson()).fit(X, y)
    with pytest.warns(cavity.NumericalWarning, match="no maximum in the dispersion.*Poisson counts"):
        open_one = GLM(likelihoods.NegativeBinomial()).fit(X, y)
    assert open_one.log_evidence == pytest.approx(poisson.log_evidence, abs=1e-2)
    assert np.allclose(open_one.variance, poisson.variance, rtol=1e-2)
    assert open_one.hyperparameters.sd == (None,)
    assert "no standard error of dispersion" in open_one.hyperparameters.note


# ------------------------------------------------------------------------------------------ prior variances


def test_prior_groups_share_a_factor_and_negative_ones_stay():
    X, y = observed(likelihoods.Gaussian(), 40, 5)
    likelihood, variance = likelihoods.Gaussian(0.3), np.array([7.0, 1.0, 2.0, 1.0, 3.0])
    posterior = GLM(likelihood, prior_variance=variance).fit(X, y, learn=PRIOR_VARIANCE, prior_groups=[-1, 3, 3, 0, -2])
    result = posterior.model.prior_variance

    def loss(x):
        factors = np.array([1.0, np.exp(x[1]), np.exp(x[1]), np.exp(x[0]), 1.0])
        covariance = X * (variance * factors) @ X.T + 0.3 * np.eye(40)
        return -multivariate_normal(np.zeros(40), covariance).logpdf(y)

    x = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
    assert result[0] == 7.0
    assert result[4] == 3.0
    assert np.allclose(result[1:4], np.exp(x[[1, 1, 0]]) * variance[1:4], rtol=PRINTED)
    assert posterior.hyperparameters.names == ("prior_variance[0]", "prior_variance factor[3]")
    assert np.allclose(posterior.hyperparameters.values, np.exp(x), rtol=PRINTED)
    one = GLM(likelihood, prior_variance=2.0).fit(X, y, learn=PRIOR_VARIANCE)
    same = GLM(likelihood, prior_variance=2.0).fit(X, y, learn=PRIOR_VARIANCE, prior_groups=np.zeros(5, dtype=int))
    assert same.log_evidence == pytest.approx(one.log_evidence, abs=AT_REST)
    assert same.model.prior_variance.shape == (5,)
    added = cavity.GLM(likelihood, prior_variance=2.0, intercept=50.0).fit(X[:, 1:], y, learn=PRIOR_VARIANCE)
    assert added.model.prior_variance[0] == 50.0
    assert len(set(added.model.prior_variance[1:])) == 1
    left = cavity.GLM(likelihood).fit(X, y, learn=PRIOR_VARIANCE)
    assert left.hyperparameters.names == ("prior_variance factor",)
    assert left.model.prior_variance[0] == cavity.GLM(likelihood).fit(X, y).model.prior_variance[0]


def test_names_choose_what_is_learnt():
    X, y = observed(MADE["StudentT"], 20)
    model = GLM(likelihoods.StudentT(5.0, 0.4))
    assert model.fit(X, y).hyperparameters is None
    assert model.fit(X, y, learn="scale").hyperparameters.names == ("scale",)
    assert model.fit(X, y, learn=("scale", PRIOR_VARIANCE)).hyperparameters.names == ("prior_variance", "scale")
    everything = model.fit(X, y, learn=True)
    assert everything.hyperparameters.names == ("prior_variance", "degrees_of_freedom", "scale")
    half_open = GLM(likelihoods.StudentT(None, 0.4)).fit(X, y)
    assert half_open.hyperparameters.names == ("degrees_of_freedom",)
    assert half_open.model.likelihood.scale == 0.4


# ------------------------------------------------------------------------------------------ refusals and keeping


def test_refusals():
    X, y = observed(MADE["Laplace"], 20)
    laplace = likelihoods.Laplace()
    counts = np.arange(20.0) % 4
    for fit, message in (
        (lambda: GLM(likelihoods.Laplace()).fit(X, y, learn="noise"), "learn must be one of"),
        (lambda: GLM(likelihoods.Laplace()).fit(X, y, prior_groups=[0, 0]), "prior_groups needs learn"),
        (
            lambda: GLM(likelihoods.Laplace()).fit(X, y, learn=PRIOR_VARIANCE, prior_groups=[0]),
            "prior_groups must be 2 integers",
        ),
        (lambda: GLM(laplace).fit(X, y, learn=PRIOR_VARIANCE, prior_groups=[-1, -1]), "some column in a group"),
        (
            lambda: GLM(laplace, prior_variance=np.eye(2)).fit(X, y, learn=PRIOR_VARIANCE, prior_groups=[0, 1]),
            "a number or a vector, got a matrix",
        ),
        (
            lambda: GLM(likelihoods.NegativeBinomial()).fit(X, counts, method="adf"),
            "method='adf' cannot find dispersion",
        ),
        (
            lambda: GLM(likelihoods.NegativeBinomial()).fit(X, counts, schedule="stochastic"),
            "schedule='stochastic' cannot find dispersion of NegativeBinomial",
        ),
        (
            lambda: GLM(likelihoods.NegativeBinomial(), approximation="diagonal").fit(X, counts),
            "approximation='diagonal' cannot find dispersion",
        ),
        (lambda: GLM(likelihoods.OrderedProbit()).fit(X[:, 1:], counts * 2), "no row of class 1"),
        (lambda: GLM(likelihoods.OrderedProbit()).fit(X[:, 1:], np.zeros(20)), "at least two classes"),
        (
            lambda: GLM(likelihoods.OrderedProbit()).fit(X[:, 1:], counts, sample_weight=(counts != 2).astype(float)),
            "no row of class 2",
        ),
        (
            lambda: GLM(likelihoods.NegativeBinomial()).fit(np.zeros((20, 2)), counts),
            "dispersion of NegativeBinomial cannot be found: every row of X is 0",
        ),
        (
            lambda: GLM(likelihoods.Interval(0.0)).fit(X, np.column_stack([y, y + 1]), learn=True),
            "noise_variance .* is 0",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            fit()
    with pytest.raises(TypeError, match="learn must be True, a name or a tuple"):
        GLM(likelihoods.Laplace()).fit(X, y, learn=3)


def test_what_was_learnt_is_kept(tmp_path):
    X, y = observed(MADE["OrderedProbit"], 80)
    X = X[:, 1:]
    posterior = GLM(likelihoods.OrderedProbit()).fit(X, y, learn=True)
    assert posterior.model.likelihood.n_classes == 4
    assert posterior.predict_proba(X[:2]).shape == (2, 4)
    posterior.save(tmp_path / "ordered.npz")
    for second in (
        cavity.load(tmp_path / "ordered.npz"),
        pickle.loads(pickle.dumps(posterior)),
        posterior.update(X, y),
    ):
        assert second.hyperparameters == posterior.hyperparameters
    assert repr(posterior.hyperparameters).startswith("Hyperparameters")
    assert "thresholds[2]" in repr(posterior.hyperparameters)


def test_a_search_that_is_cut_short_says_so():
    X, y = observed(MADE["Laplace"], 40)
    with pytest.warns(cavity.ConvergenceWarning):
        posterior = GLM(likelihoods.Laplace(None)).fit(X, y, max_iter=1)
    assert not posterior.converged
    assert np.isfinite(posterior.log_evidence)


# ------------------------------------------------------------------------------------------ plateaus and outliers


def test_a_search_leaves_a_plateau():
    """Zero counts have probability 1 as the dispersion vanishes; at the first dispersion no parameter matters."""
    X = np.random.default_rng(51).standard_normal((50, 1))
    model = cavity.GLM("negative-binomial", intercept=True)
    flat = "no maximum in the dispersion: it does not fall beyond 1e-08"
    with (
        pytest.warns(cavity.NumericalWarning, match=flat),
        pytest.warns(match="no maximum in the prior variance"),
        pytest.warns(match="y holds no value above 0"),
    ):
        posterior = model.fit(X, np.zeros(50), learn=PRIOR_VARIANCE)
    assert posterior.converged
    assert -1e-3 < posterior.log_evidence <= 1e-9


@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("outlier", [1e6, 1e12, 1e15])
def test_a_far_outlier_does_not_hide_the_scale_of_the_noise(n, outlier):
    """It adds log t(outlier), which is a power of the scale, to the evidence of the other rows."""
    rng, X = np.random.default_rng(1), design(n, 2, 1)
    y = X @ [1.0, 0.5] + 0.7 * rng.standard_t(4.0, n)
    rest = np.arange(n) != 3
    priors = {"prior_variance": np.array([20.0, 20.0])}

    def loss(log_scale):
        likelihood = likelihoods.StudentT(4.0, float(np.exp(log_scale)))
        tail = student_t.logpdf(outlier, 4.0, scale=likelihood.scale)
        return -GLM(likelihood, **priors).fit(X[rest], y[rest]).log_evidence - tail

    least = minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded", options={"xatol": 1e-8})
    y[3] = outlier
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = GLM(likelihoods.StudentT(4.0, None), **priors).fit(X, y)
    assert posterior.converged
    assert posterior.log_evidence == pytest.approx(-least.fun, abs=EXPANSION)
    assert posterior.model.likelihood.scale == pytest.approx(np.exp(least.x), rel=EXPANSION)


def test_noise_that_outliers_widen_is_within_the_range_of_the_search():
    """Under Laplace noise the scale of an outlier is that of all rows: about its distance over their number."""
    X, y = observed(likelihoods.Laplace(), 20)
    y[3] = 1e12
    posterior = GLM(likelihoods.Laplace(None), prior_variance=1.0).fit(X, y)
    assert posterior.converged
    assert posterior.model.likelihood.scale == pytest.approx(1e12 / 20, rel=EXPANSION)
