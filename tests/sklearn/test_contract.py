"""What scikit-learn wants of every estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cavity import covariances, sklearn

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",  # of parameters at their bounds
    "ignore::cavity.ConvergenceWarning",
    "ignore::cavity.NumericalWarning",
    "ignore::cavity.SettingsWarning",
)
RBF = covariances.RBF() + covariances.White(0.1)


@pytest.mark.sample(2)  # in this order the default run has every check
@parametrize_with_checks(
    [
        sklearn.BayesianGaussianMixture(),
        sklearn.BayesianGaussianMixture(
            covariance_type="tied", weight_concentration_prior_type="dirichlet_distribution"
        ),
        sklearn.GaussianMixture(covariance_type="diag"),
        sklearn.GaussianProcessClassifier(),
        sklearn.GaussianProcessRegressor(RBF, normalize_y=True),
        sklearn.PoissonRegressor(max_iter=50),
        sklearn.LogitClassifier(power=0.5),
        sklearn.StreamingGPClassifier(learn=False),
        sklearn.StreamingGPRegressor(RBF, power=1.0, normalize_y=True, learn=False),
    ]
)
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.long
@parametrize_with_checks(
    [
        sklearn.ARDRegression(ard=False),
        *(sklearn.BayesianGaussianMixture(covariance_type=covariance) for covariance in ("diag", "spherical")),
        sklearn.GammaRegressor(),
        sklearn.GaussianMixture(),
        sklearn.GaussianProcessClassifier(
            covariances.RBF(2.0).fix("rbf.variance"), likelihood="probit", multi_class="one_vs_one"
        ),
        sklearn.GaussianProcessRegressor(),
        sklearn.LogitClassifier(),
        sklearn.NegativeBinomialRegressor(),
        sklearn.OrdinalClassifier(),
        sklearn.ProbitClassifier(),
        sklearn.ProbitClassifier(approximation="full", schedule="sequential"),
        sklearn.QuantileRegressor(),
        *(sklearn.RobustRegressor(noise) for noise in ("student-t", "laplace")),
        sklearn.StreamingGPClassifier(covariances.RBF(2.0), likelihood="probit", learn=False),
        sklearn.StreamingGPRegressor(learn=False),
        sklearn.TweedieRegressor(power=1.5),
    ]
)
def test_contract_of_scikit_learn_with_other_settings(estimator, check):
    check(estimator)
