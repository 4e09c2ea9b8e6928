"""Open and named parameters of likelihoods of Gaussian processes, by batch and in streams."""

import pickle

import numpy as np
import pytest
from support.tolerances import EXPANSION, OPTIMUM

import cavity
from cavity import GaussianProcess, StreamingGP, covariances, likelihoods

X = np.linspace(0.0, 6.0, 40)[:, None]
F = np.sin(X[:, 0])
RNG = np.random.default_rng(0)
Y = F + 0.2 * RNG.standard_t(3, size=40)
COUNTS = RNG.poisson(np.exp(F + 1.0) * RNG.gamma(2.0, 0.5, 40)).astype(float)
GRADES = np.digitize(2.0 * F + RNG.normal(size=40), [-1.0, 0.5]).astype(float)


def test_an_open_noise_variance_is_learnt_like_a_given_one():
    values = GaussianProcess(covariances.RBF()).fit(X, Y)
    unknown = GaussianProcess(covariances.RBF(), likelihoods.Gaussian(None)).fit(X, Y)
    assert unknown.log_evidence == pytest.approx(values.log_evidence, abs=OPTIMUM)
    assert unknown.hyperparameters.names == ("rbf.variance", "rbf.lengthscale", "noise_variance")
    assert unknown.hyperparameters.values[2] == unknown.model.likelihood.noise_variance
    only = GaussianProcess(covariances.RBF(), likelihoods.Gaussian(None)).fit(X, Y, learn=False)
    assert only.hyperparameters.names == ("noise_variance",)
    assert only.model.covariance == covariances.RBF()


@pytest.mark.parametrize(
    ("likelihood", "y", "names"),
    [
        (likelihoods.StudentT(None, None), Y, ("degrees_of_freedom", "scale")),
        (likelihoods.NegativeBinomial(), COUNTS, ("dispersion",)),
        (likelihoods.OrderedProbit(), GRADES, ("thresholds[0]", "thresholds[1]")),
    ],
)
def test_open_parameters_maximise_the_evidence(likelihood, y, names):
    posterior = GaussianProcess(covariances.RBF(1.0, 1.5), likelihood, mean=0.3).fit(X, y, learn=False)
    assert posterior.converged
    assert posterior.hyperparameters.names == names
    best, model = np.array(posterior.hyperparameters.values), posterior.model
    for i, factor in np.ndindex(len(names), 2):
        values = best * np.where(np.arange(len(names)) == i, (0.9, 1.1)[factor], 1.0)
        kind = type(likelihood)
        changed = kind(tuple(values)) if kind is likelihoods.OrderedProbit else kind(*values)
        other = GaussianProcess(model.covariance, changed, mean=0.3).fit(X, y, learn=False)
        assert other.log_evidence < posterior.log_evidence


def test_names_choose():
    model = GaussianProcess(covariances.RBF(1.0, 1.5), likelihoods.StudentT(4.0, 0.3))
    posterior = model.fit(X, Y, learn=("scale", "degrees_of_freedom"))
    assert posterior.hyperparameters.names == ("degrees_of_freedom", "scale")
    assert model.fit(X, Y, learn="covariance").hyperparameters.names == ("rbf.variance", "rbf.lengthscale")
    assert model.fit(X, Y, learn=()).hyperparameters is None
    with pytest.raises(ValueError, match="learn must be one of.*got 'noise_variance'"):
        model.fit(X, Y, learn=("covariance", "noise_variance"))


def test_standard_errors_are_those_of_the_curvature_of_the_evidence():
    """By second differences of whole fits; with noise they are those of the closed form."""
    for likelihood, y in ((likelihoods.Gaussian(None), Y), (likelihoods.NegativeBinomial(), COUNTS)):
        posterior = GaussianProcess(covariances.RBF(), likelihood, mean=0.1).fit(X, y)
        x = np.log(posterior.hyperparameters.values)
        kind, h = type(likelihood), 0.03

        def evidence(step, kind=kind, x=x, y=y):
            values = np.exp(x + step)
            model = GaussianProcess(covariances.RBF(*values[:2]), kind(values[2]), mean=0.1)
            return model.fit(X, y, learn=False, tol=1e-10).log_evidence

        unit = h * np.eye(3)
        curvature = [
            [evidence(a - b) + evidence(b - a) - evidence(a + b) - evidence(-a - b) for a in unit] for b in unit
        ]
        expected = np.exp(x) * np.sqrt(np.diag(np.linalg.inv(np.array(curvature) / (4 * h * h))))
        assert np.allclose(posterior.standard_errors().sd, expected, rtol=0.02)
    with pytest.raises(ValueError, match="nothing was learnt"):
        GaussianProcess(covariances.RBF()).fit(X, Y, learn=False).standard_errors()


def test_what_was_learnt_is_kept(tmp_path):
    posterior = GaussianProcess(covariances.RBF(), likelihoods.Gaussian(None)).fit(X, Y)
    posterior.save(tmp_path / "gp.npz")
    for second in (
        cavity.load(tmp_path / "gp.npz"),
        pickle.loads(pickle.dumps(posterior)),
        posterior.update(X[:2] + 9, Y[:2]),
    ):
        assert second.hyperparameters == posterior.hyperparameters


def test_noise_that_is_known_row_by_row_closes_the_likelihood():
    posterior = GaussianProcess(covariances.RBF(), likelihoods.Gaussian(None)).fit(
        X, Y, noise_variance=np.full(40, 0.1)
    )
    assert posterior.hyperparameters.names == ("rbf.variance", "rbf.lengthscale")
    assert posterior.model.likelihood.noise_variance is not None


def test_streams_learn_open_scales_from_their_first_batch(tmp_path):
    kernel = covariances.RBF(1.0, 1.5)
    for likelihood, name in ((likelihoods.Gaussian(None), "noise_variance"), (likelihoods.Laplace(None), "scale")):
        state = StreamingGP(kernel, likelihood).fit(X[:0], Y[:0])
        state.save(tmp_path / "open.npz")
        state = cavity.load(tmp_path / "open.npz")
        assert getattr(state.model.likelihood, name) is None
        state.update(X[:30], Y[:30])
        at_once = StreamingGP(kernel, likelihood).fit(X[:30], Y[:30], learn=name)
        result = getattr(state.model.likelihood, name)
        assert result == getattr(at_once.model.likelihood, name)
        assert 0.01 < result < 0.5
        assert state.model.covariance == kernel
        state.update(X[30:], Y[30:])
        assert getattr(state.model.likelihood, name) == result


def test_streams_refuse_what_they_cannot_find():
    for likelihood, name in (
        (likelihoods.NegativeBinomial(), "dispersion of NegativeBinomial"),
        (likelihoods.OrderedProbit(), "thresholds of OrderedProbit"),
        (likelihoods.StudentT(None), "degrees_of_freedom of StudentT"),
    ):
        with pytest.raises(ValueError, match=f"StreamingGP cannot find {name}: give a value"):
            StreamingGP(covariances.RBF(), likelihood)
    with pytest.raises(ValueError, match="learn must be one of"):
        StreamingGP(covariances.RBF(), likelihoods.StudentT()).fit(X, Y, learn="degrees_of_freedom")


@pytest.mark.parametrize("covariance", ["rbf", "rbf + linear"])
def test_searches_of_many_rows_begin_on_some_of_them(covariance, set_sizes):
    """They end at the same evidence after fewer evaluations of all rows; limits are those of many rows, made few."""
    rng = np.random.default_rng(6)
    X = rng.uniform(-3.0, 3.0, (240, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=240)
    model = cavity.GaussianProcess(covariance, "gaussian")
    full = model.fit(X, y)
    set_sizes(MIN_ROWS_OF_SAMPLED_SEARCH=200)
    sampled = model.fit(X, y)
    assert abs(sampled.log_evidence - full.log_evidence) < EXPANSION
    assert len(sampled.trace["learning"]) < 0.67 * len(full.trace["learning"])
    assert sampled.converged


@pytest.mark.parametrize("mean", ["linear", 0.0])
def test_searches_on_some_rows_take_their_part_of_the_mean(mean, set_sizes):
    """Of periodic covariances, which some rows may not show, there is none."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-3.0, 3.0, (150, 1))
    y = 2.0 * X[:, 0] + np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=150)
    set_sizes(MIN_ROWS_OF_SAMPLED_SEARCH=120)
    for covariance in ("rbf", "rbf * periodic"):
        sampled = cavity.GaussianProcess(covariance, "gaussian", mean=mean).fit(X, y)
        set_sizes(MIN_ROWS_OF_SAMPLED_SEARCH=np.inf)
        full = cavity.GaussianProcess(covariance, "gaussian", mean=mean).fit(X, y)
        set_sizes(MIN_ROWS_OF_SAMPLED_SEARCH=120)
        assert abs(sampled.log_evidence - full.log_evidence) < EXPANSION
        assert (len(sampled.trace["learning"]) == len(full.trace["learning"])) == ("periodic" in covariance)
