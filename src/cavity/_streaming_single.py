"""Single rows of Gaussian noise in a stream, taken in by rank-1 updates in place."""

from math import log, log1p

import numpy as np

from . import _core
from ._streaming_rows import is_exact
from .likelihoods import LOG_2PI

_kernel = _core.best("sparse_gp")

FLOAT = np.dtype(np.float64)
LARGEST = 1e300  # of (y - mean)^2/noise variance, which is summed


class Single:
    """Takes in rows one by one; what basis and model alone decide is found once.

    Notes
    -----
    The increment of the bound is the log density of the row under its Gaussian approximation, less what the residual
    costs. It is found from the rotations of the factor, without the difference of two bounds.
    """

    __slots__ = ("W", "alpha", "basis", "limit", "mean", "model", "plain", "precision", "prior", "ready", "room")

    def __init__(self, model, basis):
        self.model, self.basis, self.alpha = model, basis, model.alpha
        self.room = tuple(np.empty(1) for _ in range(4))  # tau, rho, residual, gain
        # rows that need no look at the model: equal variances, means and noise
        self.ready = basis.n > 0 and is_exact(model.likelihood) and np.ndim(model.mean) == 0
        self.ready = self.ready and basis.variance is not None
        if self.ready:
            self.mean, self.precision = float(model.mean), 1.0 / model.likelihood.noise_variance
            self.limit = 2.0 * model.tolerance if model.inducing is None else np.inf
            self.prior, self.W = np.array([basis.variance]), np.empty((1, basis.n))

    def take(self, information, X, y):
        """Take in one row of arrays as the kernels want them: the increment in nats.

        None, and nothing is changed, if it is anything else, or if it needs a new inducing point.
        """
        if not (self.ready and type(X) is type(y) is np.ndarray and X.dtype is y.dtype is FLOAT and y.shape == (1,)):
            return None
        basis, W, residual = self.basis, self.W, self.room[2]
        if X.shape != (1, basis.Z.shape[1]) or not X.flags.c_contiguous or basis.target.fill(X, W) != 1:
            return None
        _kernel.solve_rows(basis.factor, W, self.prior, residual)
        left = residual.item()
        if not self.precision * left <= self.limit:
            return None
        return self.add(information, W, left, y.item() - self.mean, self.precision)

    def add(self, information, W, residual, target, precision, weight=1.0):
        """Add a row in place.

        Parameters
        ----------
        information : Information
            It changes.
        W : ndarray (1, M)
            What the row sees of the inducing variables.
        residual : float
            The variance of f that these leave.
        target : float
            y less the prior mean of f.
        precision : float
            weight/noise variance.
        weight : float
            Of the row.

        Returns
        -------
        float or None
            The increment of the bound in nats; None if the row cannot be added, and then nothing is changed.
        """
        spread = precision * residual
        if self.alpha == 0.0:
            rho, loss = precision, 0.5 * spread
        else:
            fraction = self.alpha / max(1.0, weight)
            rho, loss = precision / (1.0 + fraction * spread), 0.5 * log1p(fraction * spread) / fraction
        rest = -0.5 * weight * (LOG_2PI + log(weight / precision)) - loss
        squares = precision * target * target
        tau_array, rho_array, _, gain = self.room
        tau_array[0], rho_array[0] = rho * target, rho
        if not squares <= LARGEST or not information.add(W, tau_array, rho_array, gain):
            return None
        information.constant += rest - 0.5 * rho * target * target
        information.n += weight
        information.squares += squares
        information.gap += spread
        return rest + gain.item()
