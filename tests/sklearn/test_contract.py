"""What scikit-learn wants of every estimator, and docstrings of all."""

import inspect

import pytest
from numpydoc.validate import validate
from sklearn.utils.estimator_checks import parametrize_with_checks

import cavity.sklearn
from cavity import covariances
from cavity.sklearn import (
    ARDRegression,
    BayesianGaussianMixture,
    GaussianMixture,
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    LogitClassifier,
    NegativeBinomialRegressor,
    OrdinalClassifier,
    PoissonRegressor,
    ProbitClassifier,
    RobustRegressor,
    StreamingGPClassifier,
    StreamingGPRegressor,
)

NEEDED = {"GL08", "SS03", "SS05", "PR01", "PR02", "PR03", "PR04", "PR10", "RT03"}
QUIET = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",  # of parameters at their bounds
    "ignore::cavity.ConvergenceWarning",
    "ignore::cavity.NumericalWarning",
    "ignore::cavity.SettingsWarning",
)
RBF = covariances.RBF() + covariances.White(0.1)


@QUIET
@parametrize_with_checks(
    [
        BayesianGaussianMixture(),
        BayesianGaussianMixture(covariance_type="tied", weight_concentration_prior_type="dirichlet_distribution"),
        GaussianMixture(covariance_type="diag"),
        GaussianProcessClassifier(),
        GaussianProcessRegressor(RBF, normalize_y=True),
        LogitClassifier(power=0.5),
        PoissonRegressor(max_iter=50),
        StreamingGPClassifier(learn=False),
        StreamingGPRegressor(RBF, power=1.0, normalize_y=True, learn=False),
    ]
)
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.long
@QUIET
@parametrize_with_checks(
    [
        ARDRegression(ard=False),
        BayesianGaussianMixture(covariance_type="diag"),
        BayesianGaussianMixture(covariance_type="spherical"),
        GaussianMixture(),
        GaussianProcessClassifier(
            covariances.RBF(2.0).fix("rbf.variance"), likelihood="probit", multi_class="one_vs_one"
        ),
        GaussianProcessRegressor(),
        LogitClassifier(),
        NegativeBinomialRegressor(),
        OrdinalClassifier(),
        ProbitClassifier(),
        ProbitClassifier(approximation="full", schedule="sequential"),
        RobustRegressor(),
        RobustRegressor("laplace"),
        StreamingGPClassifier(covariances.RBF(2.0), likelihood="probit", learn=False),
        StreamingGPRegressor(learn=False),
    ]
)
def test_contract_of_scikit_learn_with_other_settings(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", cavity.sklearn.__all__)
def test_docstrings_follow_numpydoc(name):
    kind = getattr(cavity.sklearn, name)
    assert "{settings}" not in kind.__doc__
    methods = {member: value for member, value in inspect.getmembers(kind, inspect.isroutine) if member[0] != "_"}
    own = [f".{member}" for member, value in methods.items() if value.__module__.startswith("cavity.")]
    assert len(own) > 1
    for member in ["", *own]:
        errors = validate(f"cavity.sklearn.{name}{member}")["errors"]
        assert [(member, *error) for error in errors if error[0] in NEEDED] == []
