"""Streaming sparse Gaussian process classification with the interface of scikit-learn.

References
----------
.. [BNT] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike
from cavity.sklearn import base
from cavity.sklearn.base import Classifier, check_stream_classes, compute_log_probabilities, find_classes
from cavity.sklearn.gp.binary import LIKELIHOOD_BY_NAME
from cavity.sklearn.streaming_gp.base import Batch, Streaming


@dataclass(eq=False, repr=False)
class StreamingGPClassifier(Classifier, Streaming):
    """Gaussian process classification of any number of rows, batch by batch, in memory that does not grow [BNT]_.

    The posterior is summarised at `n_inducing` points at most, which are chosen among the rows as they come;
    expectation propagation makes each batch a Gaussian factor of it. Of more than two classes each has a model against
    the rest, and their probabilities are normalised.

    Parameters
    ----------
    kernel : kernel of scikit-learn or `cavity.covariances.Covariance`, optional
        The covariance; ``ConstantKernel() * RBF()`` if None. It holds no `WhiteKernel`.
    likelihood : {"logit", "probit"}, default "logit"
        p(y|f) = 1/(1 + exp(-y f)) or Phi(y f), which is faster.
    power : float in [1e-6, 1], default 1.0
        Exponent of power EP; 1 is EP.
    inducing : array_like (M, D), optional
        Inducing points, which stay for ever. They are chosen if None.
    n_inducing : int, default 200
        Most inducing points that are chosen, of each model.
    tolerance : float, default 1e-3
        Nats a row may lose before another inducing point is chosen.
    jitter : float, default 1e-8
        Variance of the noise of inducing variables, relative to the variance of the function there.
    learn : {"first", True, False}, default "first"
        Whether the free parameters of the kernel are learnt from the first batch, from every batch, or not at all. A
        model learns from the batch on that makes its rows be of both kinds.
    n_threads : int, optional
        Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
        use and the work is worth, at most CAVITY_NUM_THREADS.
    verbose : int, default 0
        1 and above show progress on stderr: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    classes_ : ndarray (K,)
        The labels, sorted.
    kernel_ : kernel or covariance
        With the parameters that were learnt. Of more than two classes a ``CompoundKernel``, or a tuple of covariances.
    states_ : list of cavity.StreamingGPState
        The posterior of each model: one for two classes, else K.
    log_bound_ : float
        Estimate of the log evidence; of more than two classes the sum over the models.
    information_lost_ : float
        Nats that exchanges of inducing points took from what was known, of all models.
    n_samples_seen_ : int
        Rows taken in, without those of weight zero.
    converged_ : bool
        Whether all batches met the stopping rules of all models.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.

    See Also
    --------
    GaussianProcessClassifier : Without sparse approximation, for up to some thousand rows.
    StreamingGPRegressor : For numbers.
    cavity.StreamingGP : With other likelihoods, offsets, merging and forgetting.

    Notes
    -----
    Within a batch neither the order of the rows nor whether some are copies or have weights changes a bit of the
    result. Which rows came in one batch matters, as their sites are found together.

    References
    ----------
    .. [BNT] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import StreamingGPClassifier
    >>> rng = np.random.default_rng(0)
    >>> model = StreamingGPClassifier(likelihood="probit")
    >>> for _ in range(4):
    ...     X = rng.normal(size=(100, 2))
    ...     y = X[:, 0] * X[:, 1] > 0.3 * rng.normal(size=100)
    ...     model = model.partial_fit(X, y, classes=[False, True])
    >>> model.predict([[1.0, 1.0], [1.0, -1.0]]).tolist(), model.n_samples_seen_
    ([True, False], 400)
    """

    _default, _least_power = ConstantKernel() * RBF(), 1e-6

    kernel: Any = None
    _: KW_ONLY
    likelihood: Literal["logit", "probit"] = "logit"
    power: float = 1.0
    inducing: ArrayLike | None = None
    n_inducing: int = 200
    tolerance: float = 1e-3
    jitter: float = 1e-8
    learn: Literal["first", True, False] = "first"
    n_threads: int | None = None
    verbose: int = 0

    # ------------------------------------------------------------------------------------------ fitting

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the kernels' parameters and take in all rows, from the prior.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : array_like, shape (N,)
            Class labels of any kind, of at least two classes.
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
            If EP or the search for the parameters ended early, or the search at their bounds.
        """
        X, y, weight = self._checked(X, y, sample_weight, reset=True)
        self._take(X, y, weight, find_classes(y), [])
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Take in more rows on top of what is known.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The new rows.
        y : array_like, shape (N,)
            Their labels; a batch may lack some of the classes.
        classes : array_like, shape (K,), optional
            All classes there will be. Needed in the first call, unless `fit` came before.
        sample_weight : array_like, shape (N,), optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        self : object
            The estimator, fitted to the new rows too. After an error it is as it was before.

        Raises
        ------
        ValueError, TypeError
            For data or settings that make no sense, naming them, before any work.

        Warns
        -----
        ConvergenceWarning
            As in `fit`.
        SettingsWarning
            With ``learn=True``, if what is known of the rows before holds parameters that the new rows contradict.
        """
        states = getattr(self, "states_", [])
        X, y, weight = self._checked(X, y, sample_weight, reset=not states)
        self._take(X, y, weight, check_stream_classes(y, classes, self.classes_ if states else None), states)
        return self

    def _checked(self, X, y, sample_weight, reset):
        arrays.check_choice(self.likelihood, "likelihood", tuple(LIKELIHOOD_BY_NAME))
        return super()._checked(X, y, sample_weight, reset=reset)

    def _take(self, X, y, weight, classes, states):
        """Take in rows: on top of the states, or from the prior if there are none."""
        parts = self._parts_now if states else self._parts(X.shape[1])
        if parts.noise is not None:
            raise ValueError(f"kernel must not hold white noise: the likelihood has its own, got {parts.kernel!r}")
        if self.learn:
            parts.check_learnable()
        batch = Batch.of(X, np.searchsorted(classes, y), weight)
        signs = base.split_one_vs_rest(classes[batch.y], classes)
        before = self._seen if states else np.zeros((len(signs), 2), dtype=bool)
        after = before | np.array([[np.any(labels < 0), np.any(labels > 0)] for labels in signs])
        learn = after.all(axis=1) & bool(self.learn)
        if isinstance(self.learn, str):
            learn &= ~before.all(axis=1)
        likelihood = LIKELIHOOD_BY_NAME[self.likelihood]
        problems = zip(states or [None] * len(signs), signs, learn.tolist(), strict=True)
        next_states = [self._next_state(state, parts, likelihood, batch, *inputs) for state, *inputs in problems]
        self.classes_, self.states_, self._seen, self._parts_now = classes, next_states, after, parts
        kernels = [] if states else [parts.kernel] * len(next_states)
        if learn.any():
            kernels = [parts.with_values(state.model.covariance) for state in next_states]
        self._set_states(next_states, batch, not states, kernels, learn.any())
        self.log_bound_: float = float(arrays.add_in_order(state.log_bound for state in next_states))

    def _log_probabilities(self, X):
        X = self._new_rows(X)
        return compute_log_probabilities(self.states_, X)
