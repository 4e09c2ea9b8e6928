"""Messages for keyword arguments that are those of other libraries, or misspelt."""

import copy
import inspect
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest

import cavity
from cavity import likelihoods
from cavity.base.argument_names import ADVICE_BY_NAME, ARGUMENT_SYNONYMS, EXPLAINED_METHODS, find_close_names
from cavity.base.public_objects import Public

X = np.random.default_rng(0).normal(size=(30, 2))
Y = X[:, 0] + np.random.default_rng(1).normal(size=30) > 0
POSTERIOR = cavity.GLM("probit", intercept=True, prior_variance=1.0).fit(X, Y)
MODEL_CLASSES = (
    cavity.GLM,
    cavity.MixedGLM,
    cavity.GaussianProcess,
    cavity.StreamingGP,
    cavity.LinearRegression,
    cavity.LogisticRegression,
    cavity.GaussianMixture,
    cavity.UnitMixture,
    cavity.Clutter,
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cavity.GLM(family="poisson"), "GLM() got an unexpected keyword argument 'family'; the argument for "),
        (lambda: cavity.GLM(family="poisson"), "the argument for that is likelihood"),
        (lambda: cavity.GLM("y ~ x", link="log"), "the argument for that is likelihood"),
        (lambda: cavity.GLM("probit", weights=Y), "the argument for that is sample_weight of fit"),
        (lambda: cavity.GLM("probit").fit(X, Y, weights=Y), "GLM.fit() got an unexpected keyword argument 'weights'"),
        (lambda: cavity.GLM("probit").fit(X, Y, freq_weights=Y), "the argument for that is sample_weight"),
        (lambda: cavity.GLM("logit", C=1.0), "the argument for that is prior_variance = C"),
        (lambda: cavity.GLM("logit", alpha=1.0), "the argument for that is prior_variance = 1/alpha"),
        (lambda: cavity.LogisticRegression(C=1.0), "the argument for that is prior_variance = C"),
        (lambda: cavity.LogisticRegression(family="binomial"), "cavity.GLM and cavity.MixedGLM have formulas"),
        (lambda: cavity.GLM().fit(data=X), "the argument for that is X"),
        (lambda: cavity.GLM().fit(X, Y, groups=Y), "cavity.MixedGLM has groups, as has a formula with (1 | group)"),
        (lambda: cavity.GLM().fit(X, Y, prior_variance=1.0), "it is an argument of GLM()"),
        (lambda: cavity.GLM("probit", max_iter=9), "it is an argument of fit"),
        (lambda: cavity.GLM(prior_varience=1.0), "did you mean 'prior_variance'?"),
        (lambda: cavity.GLM().fit(X, Y, zzz=1), "there are X, y, event, offset, exposure"),
        (lambda: cavity.GLM("beta-binomial").fit([[1.0]], [1], trials=[2]), "in the second column of y"),
        (lambda: cavity.MixedGLM("g", "binomial").fit([[1.0]], [1], trials=[2]), "p(successes, trials) before the ~"),
        (lambda: cavity.MixedGLM("y ~ x + (1 | g)", REML=True), "fixed effects are integrated out as by REML"),
        (lambda: cavity.MixedGLM(formula="y ~ x"), "the argument for that is effects"),
        (lambda: cavity.GaussianMixture(n_clusters=3), "the argument for that is n_components"),
        (lambda: cavity.GaussianMixture(3, covariance_type="diag"), "the argument for that is covariance"),
        (lambda: cavity.GaussianMixture(3, random_state=0), "the argument for that is rng of fit"),
        (lambda: cavity.GaussianProcess(kernel="rbf"), "the argument for that is covariance"),
        (lambda: cavity.Clutter().fit(data=X[:, 0]), "the argument for that is x"),
        (lambda: cavity.FactorizedGaussian([0.0], [[1.0]], block=[[0]]), "did you mean 'blocks'?"),
        (lambda: likelihoods.StudentT(df=3.0), "the argument for that is degrees_of_freedom"),
        (lambda: POSTERIOR.predict(X, offsets=1.0), "GLMPosterior.predict() got an unexpected keyword argument"),
        (lambda: POSTERIOR.predict(X, type="response"), "expected those of y"),
        (lambda: POSTERIOR.predict_proba(X, frame=True), "did you mean 'as_frame'?"),
        (lambda: POSTERIOR.update(X, Y, weights=Y), "the argument for that is sample_weight"),
        (lambda: POSTERIOR.summary(alpha=0.1), "the argument for that is level = 1 - alpha"),
        (lambda: replace(POSTERIOR.model, familiy="probit"), "GLM() got an unexpected keyword argument 'familiy'"),
    ],
)
def test_errors_name_the_argument_that_is_meant(call, message):
    with pytest.raises(TypeError) as caught:
        call()
    assert message in str(caught.value)
    assert caught.value.__context__ is None


def test_other_type_errors_stay_as_they_are():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'X'"):
        cavity.GLM("probit").fit()
    with pytest.raises(TypeError, match="multiple values for argument 'X'"):
        cavity.GLM("probit").fit(X, X=X)

    class Broken(likelihoods.Probit):
        def check(self, y, first=0):
            return int(weights=3)

    with pytest.raises(TypeError) as caught:
        cavity.GLM(Broken(), prior_variance=1.0).fit(X, Y)
    with pytest.raises(TypeError) as direct:
        int(weights=3)
    assert str(caught.value) == str(direct.value)


@pytest.mark.parametrize("cls", MODEL_CLASSES)
def test_signatures_are_those_of_the_functions(cls):
    fields = [name for name, item in cls.__dataclass_fields__.items() if item.init]
    assert [*inspect.signature(cls).parameters] == fields
    assert "self" in inspect.signature(cls.fit).parameters
    assert not {"values", "arguments"} & {*inspect.signature(cls.fit).parameters}
    assert cls.fit.__doc__
    assert cls.fit.__module__ == cls.__module__
    assert not hasattr(cls.fit.__wrapped__, "has_explained_arguments")  # wrapped once


def test_models_are_copied_as_before():
    model = cavity.GLM("probit", prior_variance=2.0)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), replace(model)):
        assert type(other) is cavity.GLM
        assert other.prior_variance == 2.0
    assert pickle.loads(pickle.dumps(cavity.GLM.fit)) is cavity.GLM.fit


def test_methods_that_take_any_arguments_leave_them_to_others():
    @dataclass(frozen=True, slots=True)
    class Thing(Public):
        size: int = 0

        def predict(self, X, **options):
            return self.fit(X, **options)

        def fit(self, X, *, noise=False):
            return X

    assert Thing().predict(1, noise=True) == 1
    with pytest.raises(TypeError, match=r"Thing.fit\(\) got .* 'noises'; did you mean 'noise'"):
        Thing().predict(1, noises=True)
    with pytest.raises(TypeError, match=r"Thing\(\) got .* 'sizes'; did you mean 'size'"):
        Thing(sizes=1)


def test_tables_name_arguments_that_exist():
    classes = (*MODEL_CLASSES, type(POSTERIOR), likelihoods.StudentT)
    methods = [getattr(cls, name, None) for cls in classes for name in EXPLAINED_METHODS]
    methods = [method for method in methods if inspect.isfunction(method)]
    methods.append(cavity.GaussianMixture.fit_stochastic)
    names = {name for method in methods for name in inspect.signature(method).parameters}
    assert {meant for synonyms in ARGUMENT_SYNONYMS.values() for meant in synonyms} <= names
    assert all(advice[0].islower() and not advice.endswith(".") for advice in ADVICE_BY_NAME.values())


@pytest.mark.parametrize(
    ("name", "close"),
    [("possion", ("poisson",)), ("logti", ("logit",)), ("Poisson", ("poisson",)), ("gamma", ()), ("", ())],
)
def test_close_names(name, close):
    assert find_close_names(name, ("probit", "logit", "poisson", "laplace")) == close
    assert find_close_names(name, ()) == ()
