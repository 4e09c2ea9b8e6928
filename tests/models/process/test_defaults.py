"""Latent processes of which little was said: likelihood, covariance and mean from the data, in any units."""

import numpy as np
import pytest
from support.tolerances import AT_REST, EXPANSION, SLOPES, SOLVES

import cavity
from cavity import GaussianProcess, StreamingGP, covariances, likelihoods
from cavity.models.process.defaults import resolve_defaults
from cavity.models.process.model import observe
from cavity.sources.dataset import Dataset

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, size=(50, 2)) * [1.0, 1e4]
F = np.sin(X[:, 0]) + 1e-4 * X[:, 1]
Y = 1000.0 + F + 0.1 * RNG.normal(size=50)
LABELS = np.where(F + 0.2 * RNG.normal(size=50) > 0.7, "yes", "no")


def resolved(model, y=Y, X=X, **columns):
    """Return the model with what its fit takes from the data."""
    dataset = Dataset.open(X, {"y": y, "noise_variance": None} | columns)
    return resolve_defaults(model, observe(model, dataset), X, None)


def test_nothing_needs_to_be_said():
    posterior = GaussianProcess().fit(X, Y)
    assert isinstance(posterior.model.likelihood, likelihoods.Gaussian)
    assert posterior.model.likelihood.noise_variance == pytest.approx(0.01, rel=0.5)
    assert abs(posterior.predict(X)[0] - 1000.0 - F).max() < 0.3
    spelt = GaussianProcess(covariances.RBF(1.0, [2.0, 2e4]), likelihoods.Gaussian(0.01), "constant").fit(X, Y)
    assert posterior.log_evidence == pytest.approx(spelt.log_evidence, abs=EXPANSION)
    assert "bounds" not in repr(posterior)
    with pytest.warns(cavity.NumericalWarning, match="column 1 .* as do the others: f is a constant or a line"):
        labelled = GaussianProcess().fit(X, LABELS)  # which are split by a line
    assert (labelled.model.likelihood, labelled.classes, float(labelled.model.mean)) == (
        likelihoods.Probit(),
        ("no", "yes"),
        0.0,
    )


def test_units_do_not_matter():
    first, second = GaussianProcess("matern52").fit(X, Y), GaussianProcess("matern52").fit(1e-5 * X, 1e6 * Y - 3.0)
    np.testing.assert_allclose(1e6 * first.predict(X)[0] - 3.0, second.predict(1e-5 * X)[0], rtol=SLOPES)
    assert first.log_evidence - 50 * np.log(1e6) == pytest.approx(second.log_evidence, abs=EXPANSION)


def test_names_of_likelihoods():
    robust = GaussianProcess("rbf", "student-t").fit(X, Y)
    assert robust.model.likelihood.degrees_of_freedom == 4.0
    assert 0.02 < robust.model.likelihood.scale < 0.2  # the search begins with the mean that y has, not at 0
    assert abs(robust.predict(X)[0] - 1000.0 - F).max() < 0.3
    with pytest.raises(ValueError, match="likelihood must be one of"):
        GaussianProcess("rbf", "studnet-t")
    with pytest.raises(ValueError, match="'rfb' is none of rbf"):
        GaussianProcess("rfb")
    with pytest.raises(ValueError, match="more than two classes without an order"):
        GaussianProcess().fit(X[:3], ["a", "b", "c"])


def test_a_given_covariance_has_the_mean_zero_and_noise_that_is_given():
    model = resolved(GaussianProcess(covariances.RBF()))
    assert (model.likelihood, float(model.mean)) == (likelihoods.Gaussian(1.0), 0.0)
    assert resolved(GaussianProcess()).mean == "constant"
    assert float(resolved(GaussianProcess(mean=3.0)).mean) == 3.0
    known_noise = resolved(GaussianProcess(), np.sign(F), noise_variance=np.ones(50))
    assert isinstance(known_noise.likelihood, likelihoods.Gaussian)
    weights = np.append(np.zeros(25), np.ones(25))
    weighted, part = resolved(GaussianProcess(), sample_weight=weights), resolved(GaussianProcess(), Y[25:], X[25:])
    np.testing.assert_allclose(weighted.covariance.log_parameters, part.covariance.log_parameters, rtol=SOLVES)


def test_streams_take_what_the_first_rows_say(tmp_path):
    state = StreamingGP().fit(X[:30], Y[:30])
    assert float(state.model.mean) == pytest.approx(np.median(Y[:30]))
    assert abs(state.update(X[30:], Y[30:]).predict(X)[0] - 1000.0 - F).max() < 0.5
    np.save(tmp_path / "X.npy", X)
    from_file = StreamingGP(n_inducing=40).fit(tmp_path / "X.npy", Y, learn=False)
    in_memory = StreamingGP(n_inducing=40).fit(X, Y, learn=False)
    assert from_file.log_bound == pytest.approx(in_memory.log_bound, rel=AT_REST)
    assert StreamingGP().fit(X, LABELS).classes == ("no", "yes")
    with pytest.raises(ValueError, match="must not have a White part"):
        StreamingGP("rbf + white").fit(X, Y)
    state.save(tmp_path / "s.npz")
    assert cavity.load(tmp_path / "s.npz").log_bound == state.log_bound
