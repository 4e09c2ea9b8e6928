"""Gaussian mixtures by maximum likelihood, with the interface of scikit-learn.

References
----------
.. [B] Christopher Bishop, "Pattern recognition and machine learning", Springer, 2006, section 9.2.2.
"""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cavity.base import arrays
from cavity.sklearn import checks
from cavity.sklearn.mixture.base import Mixture
from cavity.sklearn.mixture.em import covariances_of, roots, roots_of_precisions
from cavity.sklearn.mixture.steps import Likelihood, Point


class GaussianMixture(Mixture):
    """A Gaussian mixture by maximum likelihood, by expectation maximisation [B]_: scikit-learn's, faster.

    Settings, attributes and numbers are those of ``sklearn.mixture.GaussianMixture``; what is new is `n_threads`,
    ``fit(X, sample_weight=...)``, and that no array of N x K is made.

    Parameters
    ----------
    n_components : int, default 1
        K, the number of components.
    covariance_type : {"full", "tied", "diag", "spherical"}, default "full"
        A matrix for each component, one matrix for all, or variances: of every column, or one for all columns.
    tol : float, default 1e-3
        Stopping rule: the mean log likelihood has changed by less than tol.
    reg_covar : float, default 1e-6
        Added to the variances of every component.
    max_iter : int, default 100
        Most iterations; with 0, the mixture stays where it started.
    n_init : int, default 1
        Number of starts, of which the one with the largest bound counts.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default "kmeans"
        Responsibilities to start from: those of k-means clusters, of K rows that k-means++ or chance chose, or drawn.
    weights_init : array_like (K,), optional
        Weights to start from.
    means_init : array_like (K, D), optional
        Means to start from.
    precisions_init : array_like, optional
        Precisions to start from, of the shape of ``precisions_``.
    random_state : int, RandomState or None, default None
        Makes the starts and `sample` repeatable.
    warm_start : bool, default False
        Whether `fit` goes on from where the last one ended.
    verbose : int, default 0
        Whether to print progress; 2 prints times too.
    verbose_interval : int, default 10
        Print every so many iterations.
    n_threads : int, default 1
        Threads; the result has the same bits for any number.

    Attributes
    ----------
    weights_ : ndarray (K,)
        Weights of the components.
    means_ : ndarray (K, D)
        Their means.
    covariances_ : ndarray
        Their covariances: (K, D, D) full, (D, D) tied, (K, D) diag, (K,) spherical.
    precisions_, precisions_cholesky_ : ndarray
        The inverses U U' and their factors U (upper triangular), of the same shape.
    lower_bound_ : float
        Mean log likelihood of the rows, before the last iteration.
    lower_bounds_ : list of float
        The bound of every iteration.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the stopping rule was met.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.

    See Also
    --------
    BayesianGaussianMixture : With priors; it finds how many components the data support.

    Notes
    -----
    All sums are over differences to the last means, so that data far from zero lose no digits. A component that has
    lost all rows stays where it is; scikit-learn moves it to zero. If a covariance ceases to be positive definite,
    which `reg_covar` prevents, the fit ends with what it had before, and warns; scikit-learn raises an error.

    References
    ----------
    .. [B] Christopher Bishop, "Pattern recognition and machine learning", Springer, 2006, section 9.2.2.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import GaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> mixture = GaussianMixture(n_components=2, random_state=0).fit(X)
    >>> mixture.means_.round(6).tolist()
    [[10.0, 2.0], [1.0, 2.0]]
    >>> mixture.predict([[0, 0], [12, 3]]).tolist()
    [1, 0]
    """

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        tol=1e-3,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        weights_init=None,
        means_init=None,
        precisions_init=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
        n_threads=1,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.n_threads = n_threads

    def _fit_rows(self, X, weight, random_state, threads):
        return self._ascend(X, weight, random_state, threads)

    def _step(self, data, threads):
        return Likelihood(self.covariance_type, data.n_samples)

    def _begin(self, step, data, X, weight, random_state):
        """Return the first estimates: what was given, the rest from initial responsibilities."""
        weights, mean, root = self._given(data.frame.origin)
        covariance = None if root is None else covariances_of(root, self.covariance_type)
        if any(each is None for each in (weights, mean, root)):
            moments = self._start(data, X, weight, random_state)
            weights = moments.count / data.n_samples if weights is None else weights
            mean = moments.mean if mean is None else mean
            if root is None:
                covariance, root = moments.covariance, roots(moments.covariance, self.covariance_type)
        return Point(weights, mean, covariance, root)

    def _given(self, origin):
        """Return the given weights, means (from the origin) and factors of precisions, each None if it is not."""
        weights, mean, root = self.weights_init, self.means_init, self.precisions_init
        if weights is not None:
            weights = arrays.finite_array(weights, "weights_init")
            checks.shape(weights, (self.n_components,), "weights")
            if np.any(weights < 0) or np.any(weights > 1):
                raise ValueError(
                    f"The parameter 'weights' should be in the range [0, 1], but got min value {np.min(weights):.5f}, "
                    f"max value {np.max(weights):.5f}"
                )
            if not np.isclose(np.sum(weights), 1.0, rtol=1e-6):  # of float32
                raise ValueError(
                    f"The parameter 'weights' should be normalized, but got sum(weights) = {np.sum(weights):.5f}"
                )
        if mean is not None:
            mean = arrays.finite_array(mean, "means_init")
            checks.shape(mean, (self.n_components, self.n_features_in_), "means")
            mean = mean - origin
        if root is not None:
            given = checks.precision(root, self.covariance_type, self._shapes(), "precision")
            root = roots_of_precisions(given, self.covariance_type)
        return weights, mean, root

    def _state(self, origin):
        """Return the fitted estimates, means measured from an origin."""
        mean = self.means_.astype(np.float64) - origin
        return Point(
            self.weights_.astype(np.float64), mean, self.covariances_, self.precisions_cholesky_.astype(np.float64)
        )

    def _gaussians(self, origin):
        return Likelihood(self.covariance_type, np.nan).gaussians(self._state(origin))

    def _keep(self, state, origin, dtype):
        self.weights_ = state.weights.astype(dtype)
        self._keep_gaussians(state, origin, dtype)

    def _n_parameters(self):
        """Return the number of free parameters."""
        k, d = self.means_.shape
        covariances = {"full": k * d * (d + 1) // 2, "tied": d * (d + 1) // 2, "diag": k * d, "spherical": k}
        return covariances[self.covariance_type] + k * d + k - 1

    def bic(self, X):
        """Bayesian information criterion of the mixture for rows.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.

        Returns
        -------
        float
            Minus twice the log likelihood, and log N for each parameter; the lower the better.
        """
        check_is_fitted(self)
        log_density = self.score_samples(X)
        return float(-2.0 * np.sum(log_density) + self._n_parameters() * np.log(len(log_density)))

    def aic(self, X):
        """Akaike information criterion of the mixture for rows.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.

        Returns
        -------
        float
            Minus twice the log likelihood, and 2 for each parameter; the lower the better.
        """
        check_is_fitted(self)
        return float(-2.0 * np.sum(self.score_samples(X)) + 2.0 * self._n_parameters())
