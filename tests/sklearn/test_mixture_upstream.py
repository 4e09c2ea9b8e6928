"""scikit-learn's own tests of its Gaussian mixtures, as they are installed, with ours put in place of its classes."""

import numpy as np
import pytest
from sklearn.mixture import tests as mixture_tests
from support.upstream import before, counts, take_over
from threadpoolctl import threadpool_limits

from cavity.sklearn import BayesianGaussianMixture, GaussianMixture

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # k-means has some, too

NO_MIXTURE = "tests private functions of scikit-learn, no mixture"
PRIVATE = "calls private methods of the estimator"
LEFT_OUT = {
    "test_log_dirichlet_norm": NO_MIXTURE,
    "test_log_wishart_norm": NO_MIXTURE,
    "test_compute_log_det_cholesky": NO_MIXTURE,
    "test_gaussian_mixture_log_probabilities": NO_MIXTURE,
    "test_gaussian_suffstat_sk_spherical": NO_MIXTURE,
    "test_suffstat_sk_diag": NO_MIXTURE,
    "test_suffstat_sk_full": NO_MIXTURE,
    "test_suffstat_sk_tied": NO_MIXTURE,
    "test_compare_covar_type": PRIVATE,
    "test_gaussian_mixture_precisions_init": PRIVATE,
    "test_gaussian_mixture_all_init_does_not_estimate_gaussian_parameters": "counts calls of a private function",
    "test_gaussian_mixture_array_api_compliance": "arrays of other libraries are not taken; skipped by default",
    "test_gaussian_mixture_raises_where_array_api_not_implemented": "arrays of other libraries are not taken",
    "test_check_weights": "wants a message that calls the smallest weight the largest; see test_sklearn_mixture.py",
}
if before("1.7"):
    LEFT_OUT["test_regularisation"] = "has another wording of the message, which is that of newer versions here"
SLOW = {
    "test_monotonic_likelihood",
    "test_init",
    "test_bayesian_mixture_fit_predict_n_init",
    "test_invariant_translation",
}
TAKEN = {
    "bayes": ("test_bayesian_mixture", {"BayesianGaussianMixture": BayesianGaussianMixture}),
    "likelihood": ("test_gaussian_mixture", {"GaussianMixture": GaussianMixture}),
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threadpool_limits(1):  # of scikit-learn's k-means: its threads wait for each other on so few rows
        yield


@pytest.fixture(params=[np.float32, np.float64])
def global_dtype(request):
    return request.param


@pytest.fixture
def global_random_seed():
    return 42


take_over(globals(), mixture_tests, TAKEN, LEFT_OUT, SLOW)


def test_most_tests_are_there():
    result = counts(globals(), TAKEN)
    assert result[0] >= 11
    assert result[1] >= 25
