"""Models with equal settings are equal; posteriors are each one of their own."""

import copy
import pickle

import numpy as np
import pytest

import cavity
from cavity import covariances, likelihoods

PAIR = np.array([1.0, 2.0])
SETTINGS = {  # what makes a model, and other settings of it
    "glm": (lambda **a: cavity.GLM(likelihoods.Probit(), **a), {"prior_mean": PAIR, "prior_variance": np.diag(PAIR)}),
    "gp": (lambda **a: cavity.GaussianProcess(covariances.RBF(1.0, PAIR), **a), {"mean": PAIR}),
    "gp mean": (lambda **a: cavity.GaussianProcess(covariances.RBF(), **a), {"mean": "linear"}),
    "stream": (lambda **a: cavity.StreamingGP(covariances.RBF(), **a), {"inducing": PAIR[:, None]}),
    "mixture": (lambda **a: cavity.GaussianMixture(2, **a), {"mean_prior": PAIR, "covariance_prior": np.diag(PAIR)}),
    "unit": (lambda **a: cavity.UnitMixture(2, **a), {"prior_variance": PAIR, "weights": np.array([0.25, 0.75])}),
    "clutter": (cavity.Clutter, {"prior_mean": PAIR}),
    "factorized": (lambda **a: cavity.FactorizedGaussian(0.0, np.diag(PAIR), **a), {"blocks": [[0, 1]]}),
    "linear": (cavity.LinearRegression, {"prior_variance": PAIR}),
    "logistic": (cavity.LogisticRegression, {"prior_variance": PAIR}),
    "likelihood": (lambda **a: likelihoods.OrderedProbit(**({"thresholds": PAIR - 1.0} | a)), {"thresholds": PAIR}),
    "covariance": (lambda **a: covariances.RBF(**a), {"lengthscale": PAIR}),
}
NO_HASH = {"gp", "gp mean", "stream", "covariance"}  # covariances have none


@pytest.mark.parametrize("name", SETTINGS)
def test_equal_settings_make_equal_models(name):
    made, other = SETTINGS[name]
    model, twin = made(**copy.deepcopy(other)), made(**other)
    assert model == twin
    assert pickle.loads(pickle.dumps(model)) == model
    assert copy.deepcopy(model) == model
    assert model != made()
    assert made() == made()
    assert model != "model"
    assert model not in [value for key, (make, _) in SETTINGS.items() if key != name for value in [make()]]
    if name in NO_HASH:
        with pytest.raises(TypeError, match="unhashable"):
            hash(model)
    else:
        assert hash(model) == hash(twin)
        assert len({model, twin, made()}) == 2


def test_zeros_of_either_sign_are_equal_and_hash_alike():
    first, second = (cavity.GLM(likelihoods.Probit(), prior_mean=zero * PAIR) for zero in (0.0, -0.0))
    assert first == second
    assert hash(first) == hash(second)


def test_shapes_make_a_difference():
    assert cavity.GLM(likelihoods.Probit(), prior_mean=np.zeros(2)) != cavity.GLM(
        likelihoods.Probit(), prior_mean=np.zeros(3)
    )
    assert cavity.GLM(likelihoods.Probit(), prior_mean=np.zeros(2)) != cavity.GLM(likelihoods.Probit(), prior_mean=0.0)


def test_posteriors_and_distributions_are_themselves_only():
    model = cavity.GLM(likelihoods.Probit())
    first, second = (model.fit([[1.0]], [1]) for _ in range(2))
    assert first == first
    assert first != second
    assert first.model == second.model
    assert len({first, second}) == 2
    assert cavity.Gaussian(0.0, 1.0) != cavity.Gaussian(0.0, 1.0)
