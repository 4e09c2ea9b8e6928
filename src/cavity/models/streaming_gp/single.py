"""Single rows in a stream, taken in by rank-1 updates in place."""

from math import log, log1p, nan

import numpy as np

from cavity import _core
from cavity.base.constants import LOG_2PI
from cavity.ep.sites import Sites
from cavity.models.streaming_gp.absorb import UNSEEN
from cavity.models.streaming_gp.rows import is_exact

_kernel = _core.best("sparse_gp")

FLOAT = np.dtype(np.float64)
LARGEST = 1e300  # of (y - mean)^2/noise variance, and of residual/noise variance, which are summed


class Single:
    """Takes in rows one by one; what basis and model alone decide is found once.

    Notes
    -----
    The increment of the bound is the log density of the row under its Gaussian approximation, less what the residual
    costs. It is found from the rotations of the factor, without the difference of two bounds.
    """

    __slots__ = ("W", "alpha", "basis", "limit", "mean", "model", "noise", "prior", "ready", "room")

    def __init__(self, model, basis):
        self.model, self.basis, self.alpha = model, basis, model.alpha
        self.room = tuple(np.empty(1) for _ in range(4))  # tau, rho, residual, gain
        # rows that need no look at the model: equal variances, means and noise
        self.ready = basis.n > 0 and is_exact(model.likelihood) and np.ndim(model.mean) == 0
        self.ready = self.ready and basis.variance is not None
        if self.ready:
            self.mean, self.noise = float(model.mean), float(model.likelihood.noise_variance)
            self.limit = 2.0 * model.tolerance * self.noise if model.inducing is None else np.inf
            self.prior, self.W = np.array([basis.variance]), np.empty((1, basis.n))

    def take(self, state, X, y):
        """Take in one row of arrays as the kernels want them.

        False, and nothing is changed, if it is anything else, or if it needs a new inducing point.
        """
        if not (self.ready and type(X) is type(y) is np.ndarray and X.dtype is y.dtype is FLOAT and y.shape == (1,)):
            return False
        basis, W, residual = self.basis, self.W, self.room[2]
        if X.shape != (1, basis.Z.shape[1]) or not X.flags.c_contiguous or basis.target.fill(X, W) != 1:
            return False
        _kernel.solve_rows(basis.factor, W, self.prior, residual)
        left = residual.item()
        if not left <= self.limit:
            return False
        return self.add(state, W, left, y.item() - self.mean, self.noise)

    def add(self, state, W, residual, target, noise, weight=1.0, waiting=None):
        """Add a row of Gaussian noise in place.

        Parameters
        ----------
        state : StreamingGPState
            It changes.
        W : ndarray (1, M)
            What the row sees of the inducing variables.
        residual : float
            The variance of f that these leave.
        target : float
            y less the prior mean of f.
        noise : float
            Its variance.
        weight : float
            Of the row.
        waiting : Waiting, optional
            The rows that wait for other inducing points, with this one.

        Returns
        -------
        bool
            False if the row cannot be added, and then nothing is changed.
        """
        precision = weight / noise
        spread, information = precision * residual, state._information
        if self.alpha == 0.0:
            rho, loss = precision, 0.5 * spread
        else:
            fraction = self.alpha / max(1.0, weight)
            rho, loss = precision / (1.0 + fraction * spread), 0.5 * log1p(fraction * spread) / fraction
        rest = -0.5 * weight * (LOG_2PI + log(noise)) - loss
        squares = precision * target * target
        if not max(squares, spread) <= LARGEST:
            return False
        numbers = information.n + weight, information.squares + squares, information.gap + spread
        constant, gain = information.constant + rest - 0.5 * rho * target * target, self.room[3]

        def settle():
            information.constant = constant
            information.n, information.squares, information.gap = numbers
            return rest + gain.item()

        return self._add(state, W, rho * target, rho, waiting, settle)

    def match(self, state, W, residual, rows, base, waiting):
        """Add a row of another likelihood in place: its site matches the moments at once; False if it takes EP."""
        if rows.weights is not None or self.alpha != 1.0 or not float(W[0] @ W[0]) > UNSEEN * residual[0]:
            return False
        information = state._information
        before, n = information.log_bound, information.n + 1.0
        mean, variance = information.marginals(W)
        sites = Sites(self.model.likelihood, rows.y, residual=residual)
        log_z, tau, rho = sites.match(slice(None), base + mean, variance)

        def settle():
            information.constant = before + log_z.item() - information.log_z
            information.n = n
            return log_z.item()

        return self._add(state, W, tau - rho * base, rho, waiting, settle)

    def _add(self, state, W, tau, rho, waiting, settle):
        """Add a site on g in place, and what goes with it: all or nothing, whenever Ctrl-C comes.

        That is answered when the kernel is through. Only then is there a gain, and what is settled is settled again:
        these are new values, not changes of old ones.
        """
        tau_array, rho_array, _, gain = self.room
        tau_array[:], rho_array[:], gain[0] = tau, rho, nan
        known, done = (state.n_samples, state.log_bound, state.n_updates), None
        waiting = state._waiting if waiting is None else waiting
        try:
            done = state._information.add(W, tau_array, rho_array, gain)
            if done:
                state._took_one(known, settle(), waiting)
        except BaseException:
            if done or (done is None and gain[0] == gain[0]):
                state._took_one(known, settle(), waiting)
            raise
        return done
