"""Streaming sparse Gaussian process regression with the interface of scikit-learn.

References
----------
.. [BNT] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017.
.. [T] M. K. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.public_objects import ArrayLike
from cavity.likelihoods import Gaussian
from cavity.sklearn.base import Regressor
from cavity.sklearn.gp.learner import centre_and_scale
from cavity.sklearn.streaming_gp.base import Batch, Streaming


@dataclass(eq=False, repr=False)
class StreamingGPRegressor(Regressor, Streaming):
    """Gaussian process regression of any number of rows, batch by batch, in memory that does not grow [BNT]_.

    The posterior is summarised at `n_inducing` points at most, which are chosen among the rows as they come. `fit` is
    sparse regression of all rows at once [T]_, `partial_fit` takes in one batch, or one row, more.

    Parameters
    ----------
    kernel : kernel of scikit-learn or `cavity.covariances.Covariance`, optional
        The covariance; ``ConstantKernel() * RBF() + WhiteKernel()`` if None. A `WhiteKernel` in the sum is the noise.
    alpha : float, default 1e-10
        Variance of the noise that is added to that of the `WhiteKernel`; it is not learnt.
    power : float in [0, 1], default 0.0
        The approximation: 0 is the variational one (VFE) [T]_, 1 is FITC, and power EP lies in between.
    inducing : array_like (M, D), optional
        Inducing points, which stay for ever. They are chosen if None.
    n_inducing : int, default 200
        Most inducing points that are chosen.
    tolerance : float, default 1e-3
        Nats a row may lose before another inducing point is chosen.
    jitter : float, default 1e-8
        Variance of the noise of inducing variables, relative to the variance of the function there.
    learn : {"first", True, False}, default "first"
        Whether the free parameters of the kernel are learnt from the first batch, from every batch, or not at all.
    normalize_y : bool, default False
        Whether targets are measured from the mean, and in standard deviations, of the first batch.
    n_threads : int, optional
        Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
        use and the work is worth, at most CAVITY_NUM_THREADS.
    verbose : int, default 0
        1 and above show progress on stderr: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    kernel_ : kernel or covariance
        With the parameters that were learnt.
    noise_variance_ : float
        Variance of the noise, `alpha` included, in squared units of y.
    inducing_points_ : ndarray (M, D)
        The inducing points.
    log_bound_ : float
        Of all targets as they were given: after one batch a lower bound of their log evidence, as long as the inducing
        points and the parameters stay also after more; else, and with a power above 0, an estimate.
    information_lost_ : float
        Nats that exchanges of inducing points took from what was known.
    n_samples_seen_ : int
        Rows taken in, without those of weight zero.
    converged_ : bool
        Whether all batches met their stopping rules.
    state_ : cavity.StreamingGPState
        The posterior, of normalised targets.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.

    See Also
    --------
    GaussianProcessRegressor : Without approximation, for up to some thousand rows.
    StreamingGPClassifier : For classes.
    cavity.StreamingGP : With other likelihoods, noise of every row, offsets, merging and forgetting.

    Notes
    -----
    Rows of a stream are seen once: parameters learnt from a first batch that is not like the rest stay what they are,
    unless ``learn=True``. The variance of the noise stays within the bounds of its `WhiteKernel`: where the best one
    is outside, the other parameters are learnt with that at the bound or, in later batches, with that of before.
    Kernels of scikit-learn are translated as for `GaussianProcessRegressor`. Within a batch neither the order of the
    rows nor whether some are copies or have weights changes a bit of the result.

    References
    ----------
    .. [BNT] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017.
    .. [T] M. K. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> from cavity.sklearn import StreamingGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> model = StreamingGPRegressor(1.0 * RBF() + WhiteKernel(0.1))
    >>> for _ in range(5):
    ...     X = rng.uniform(0, 6, (200, 1))
    ...     model = model.partial_fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=200))
    >>> mean, sd = model.predict([[1.5], [4.5]], return_std=True)
    >>> mean.round(1).tolist(), sd.round(1).tolist(), model.n_samples_seen_
    ([1.0, -1.0], [0.1, 0.1], 1000)
    """

    _default, _least_power = ConstantKernel() * RBF() + WhiteKernel(), 0.0

    kernel: Any = None
    _: KW_ONLY
    alpha: float = 1e-10
    power: float = 0.0
    inducing: ArrayLike | None = None
    n_inducing: int = 200
    tolerance: float = 1e-3
    jitter: float = 1e-8
    learn: Literal["first", True, False] = "first"
    normalize_y: bool = False
    n_threads: int | None = None
    verbose: int = 0

    # ------------------------------------------------------------------------------------------ fitting

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the kernel's parameters and take in all rows, from the prior.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : array_like, shape (N,)
            The targets.
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
            If the search for the parameters ended early, or at their bounds.
        """
        self._take(self._checked(X, y, sample_weight, reset=True), None)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Take in more rows on top of what is known; the first call is that of `fit`.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The new rows.
        y : array_like, shape (N,)
            The targets.
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
            As in `fit`, with ``learn=True``.
        SettingsWarning
            With ``learn=True``, if what is known of the rows before holds parameters that the new rows contradict.
        """
        state = getattr(self, "state_", None)
        self._take(self._checked(X, y, sample_weight, reset=state is None), state)
        return self

    def _checked(self, X, y, sample_weight, reset):
        arrays.check_number(self.alpha, "alpha", low=0, closed_low=True)
        arrays.check_flag(self.normalize_y, "normalize_y")
        X, y, weight = super()._checked(X, y, sample_weight, reset=reset, y_numeric=True)
        return Batch.of(X, y.astype(np.float64, copy=False), weight)

    def _take(self, batch, state):
        """Take in rows: on top of a state, or from the prior if it is None."""
        first = state is None
        parts, centre, spread = self._begun(batch) if first else (self._parts_now, self._centre, self._spread)
        learn = bool(self.learn) if first or self.learn != "first" else False
        if learn:
            parts.check_learnable()
            learn = True if parts.learns_noise else "covariance"

        def continued(noise, learn):
            return self._next_state(state, parts, Gaussian(noise), batch, (batch.y - centre) / spread, learn)

        after = continued(parts.alpha + parts.noise_variance, learn)
        noise = after.model.likelihood.noise_variance
        if learn is True and not parts.allow(noise):
            after = continued(parts.alpha + parts.noise_in(noise), "covariance")
            noise = after.model.likelihood.noise_variance
        kernels = [parts.kernel] if first else []
        if learn:
            kernels = [parts.with_values(after.model.covariance, parts.noise_in(noise))]
        self.state_, self._parts_now, self._centre, self._spread = after, parts, centre, spread
        self._total_weight = batch.total + (0.0 if first else self._total_weight)
        self._set_states([after], batch, first, kernels, learn)
        self.inducing_points_: Any = after.inducing
        self.noise_variance_ = noise * spread**2
        self.log_bound_: float = after.log_bound - self._total_weight * float(np.log(spread))

    def _begun(self, batch):
        """Return the kernel to begin with, taken apart, and what targets are measured from and in."""
        parts = self._parts(batch.X.shape[1], float(self.alpha))
        if parts.alpha + parts.noise_variance == 0:
            raise ValueError("alpha must be positive where the kernel has no white noise, got 0")
        centre, spread = centre_and_scale(batch.y, batch.weight) if self.normalize_y else (0.0, 1.0)
        with np.errstate(over="ignore"):
            check_within_range(np.square(spread), "the squares of y")
        return parts, float(centre), float(spread)

    def _moments(self, X, with_std, with_cov):
        X = self._new_rows(X)
        white = self._parts_now.noise_in(self.state_.model.likelihood.noise_variance)
        if with_cov:
            mean, covariance = self.state_.predict_covariance(X)
            covariance[np.diag_indices_from(covariance)] += white
            return self._centre + self._spread * mean, self._spread**2 * covariance
        mean, variance = self.state_.predict(X, n_threads=self.n_threads)
        return self._centre + self._spread * mean, self._spread * np.sqrt(variance + white) if with_std else None
