"""Ordered classes with the interface of scikit-learn.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from cavity.base.public_objects import ArrayLike
from cavity.likelihoods import OrderedProbit
from cavity.sklearn.base import Classifier, apply_class_weight, check_rows, find_classes, list_own_settings_first
from cavity.sklearn.regression import GLMEstimator

__all__ = ["OrdinalClassifier"]


@list_own_settings_first
@dataclass(kw_only=True, eq=False, repr=False)
class OrdinalClassifier(Classifier, GLMEstimator):
    """Classifier of ordered classes: f plus standard normal noise falls between thresholds, which are learnt [M]_.

    The classes are ordered as numpy orders them: numbers by their size, strings by the alphabet; number them where
    that is not their order.

    Parameters
    ----------
    class_weight : dict or "balanced", optional
        Factors of the weights of rows by their class; "balanced" gives all classes the same sum.
    {settings}
    classes_ : ndarray (K,)
        The labels, sorted.
    thresholds_ : ndarray (K - 1,)
        The values of ``X @ coef_`` where one class ends and the next begins, in units of the noise.

    See Also
    --------
    ProbitClassifier : For classes without an order.

    Notes
    -----
    There is no intercept: the thresholds have its place.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import OrdinalClassifier
    >>> X = np.linspace(-3.0, 3.0, 60)[:, None]
    >>> y = np.digitize(X[:, 0] + np.cos(9.0 * X[:, 0]), [-1.0, 1.0])
    >>> model = OrdinalClassifier().fit(X, y)
    >>> model.predict([[-2.5], [0.0], [2.5]]).tolist(), model.predict_proba([[0.0]]).round(1).tolist()
    ([0, 1, 2], [[0.1, 0.9, 0.0]])
    """

    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # of classes without an order
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit by expectation propagation; thresholds by the evidence.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : array_like, shape (N,)
            Class labels, of at least two classes.
        sample_weight : array_like, shape (N,), optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            For data or settings that make no sense, naming them, before any work.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule of `cavity.GLM.fit` was not met; ``converged_`` is False then.
        """
        X, y, weight = check_rows(self, X, y, sample_weight, dtype=np.float64)
        self.classes_, weight = find_classes(y), apply_class_weight(self.class_weight, y, weight)
        self._fit_checked(X, np.searchsorted(self.classes_, y).astype(np.float64), weight, intercept=False)
        # the thresholds of the likelihood are those of (x - centre)'w
        self.thresholds_ = np.array(self.likelihood_.thresholds) + self.posterior_.centre @ self.posterior_.mean
        return self

    def _likelihood_of_fit(self):
        return OrderedProbit()

    def _log_probabilities(self, X):
        X = self._new_rows(X)
        with np.errstate(divide="ignore"):
            return np.log(self.posterior_.predict_proba(X))
