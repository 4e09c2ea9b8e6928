"""Single rows of a stream, taken in by rank-1 updates: M^2 operations.

A row is added to a copy of what is known, which then is the next snapshot's. Once a snapshot has such a copy of its
own, and nothing but numbers changes, further rows are added to it in place, in one call of the kernel, which adds to
all sums as well: Ctrl-C is answered before it or after it.
"""

from dataclasses import replace
from math import log, log1p

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.ep.sites import Sites
from cavity.models.streaming_gp.inducing_basis import kernel
from cavity.models.streaming_gp.inducing_choice import compute_avoidable_loss
from cavity.models.streaming_gp.new_data_factor import MIN_EXPLAINED_SHARE
from cavity.models.streaming_gp.predictive_checks import MIN_CHECKED_ROWS, PredictiveCheck, warn_of_surprise
from cavity.models.streaming_gp.rows import CALLING_THREAD, compute_loss_rates, is_exact

FLOAT64_DTYPE = np.dtype(np.float64)
LARGEST_RATIO = 1e300  # of (y - mean)^2/noise variance, and of residual/noise variance, which are summed


class SingleRows:
    """Takes in rows one by one; what basis and model alone decide is found once.

    Methods return the next snapshot, which is the same object where the row was added in place; None if the row takes
    more than a rank-1 update, and nothing is changed then.

    Notes
    -----
    The increment of the bound is the log density of the row under its Gaussian approximation, less what the residual
    costs. It is found from the rotations of the factor, without the difference of two bounds.
    """

    __slots__ = (
        "W",
        "alpha",
        "basis",
        "limit",
        "mean",
        "model",
        "noise",
        "observe",
        "own",
        "prior",
        "ready",
        "residual",
        "spare",
    )

    def __init__(self, model, basis):
        self.model, self.basis, self.alpha = model, basis, model.alpha
        self.own = self.spare = None  # totals of the snapshot that rows may be added to in place; arrays for a copy
        self.residual, self.observe = np.empty(1), None  # a function that adds rows to it, where arrays are ready
        # rows that need no look at the model: equal variances, means and noise
        self.ready = basis.n > 0 and is_exact(model.likelihood) and np.ndim(model.mean) == 0
        self.ready = self.ready and basis.variance is not None
        self.ready = self.ready and model.likelihood.noise_variance is not None
        if self.ready:
            self.mean, self.noise = float(model.mean), float(model.likelihood.noise_variance)
            self.limit = 2.0 * model.tolerance * self.noise if model.inducing is None else np.inf
            self.prior, self.W = np.array([basis.variance]), np.empty((1, basis.n))

    def from_arrays(self, now, X, y):
        """Take in a row in arrays of the form of the kernels, which check it; None for anything else."""
        if not (
            self.ready and type(X) is type(y) is np.ndarray and X.dtype is y.dtype is FLOAT64_DTYPE and y.shape == (1,)
        ):
            return None
        basis, W = self.basis, self.W
        if X.shape != (1, basis.Z.shape[1]) or not (X.flags.c_contiguous and X.flags.aligned):
            return None
        if now.totals is self.own and self.observe is not None:
            return now if self.observe(X, y.item()) else None
        if basis.target.fill(X, W) != 1:
            return None
        kernel.solve_rows(basis.factor, W, self.prior, self.residual)
        residual = self.residual.item()
        if not residual <= self.limit:
            return None
        return self.add(now, W, residual, y.item() - self.mean, self.noise)

    def from_rows(self, now, rows, changes):
        """Take in one checked row; `changes` are fields of the snapshot that change with it."""
        model, basis = self.model, self.basis
        if not basis.n or not isinstance(rows.X, np.ndarray):
            return None
        W, residual = basis.features(rows.X, CALLING_THREAD)
        if model.inducing is None:
            prior, rate = residual[0] + W[0] @ W[0], compute_loss_rates(model, rows.X, rows, slice(None))
            loss = compute_avoidable_loss(basis, prior, rate, residual)
            waiting = now.waiting.add_unless_needed(rows.X, rate, loss, model.tolerance, basis.n, model.n_inducing)
            if waiting is None:
                return None
            changes = changes if waiting is now.waiting else changes | {"waiting": waiting}
        base = rows.base(model, rows.X, slice(None))
        if not is_exact(model.likelihood):
            return self.match(now, W, residual, rows, base, changes)
        noise = rows.noise_variance(model.likelihood)
        numbers = (float(np.ravel(a)[0]) for a in (residual, rows.y - base, noise, rows.weight()))
        return self.add(now, W, *numbers, changes)

    def add(self, now, W, residual, target, noise, weight=1.0, changes=None):
        """Add a row of Gaussian noise.

        Parameters
        ----------
        now : StreamSnapshot
            What is known.
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
        changes : dict, optional
            New values of fields of the snapshot.
        """
        precision = weight / noise
        spread = precision * residual
        if self.alpha == 0.0:
            rho, loss = precision, 0.5 * spread
        else:
            fraction = self.alpha / max(1.0, weight)
            rho, loss = precision / (1.0 + fraction * spread), 0.5 * log1p(fraction * spread) / fraction
        rest = -0.5 * weight * (LOG_2PI + log(noise)) - loss
        square = precision * target * target
        if not max(square, spread) <= LARGEST_RATIO:
            return None
        constant = now.information.constant + rest - 0.5 * rho * target * target
        return self._add_site(now, W, rho * target, rho, (constant, weight, square, spread, rest, False), changes)

    def match(self, now, W, residual, rows, base, changes):
        """Add a row of another likelihood: its site matches the moments at once; None if it takes EP."""
        if rows.weights is not None or self.alpha != 1.0 or not float(W[0] @ W[0]) > MIN_EXPLAINED_SHARE * residual[0]:
            return None
        mean, variance = now.information.marginals(W)
        sites = Sites(self.model.likelihood, rows.y, residual=residual)
        match = sites.match(slice(None), base + mean, variance)
        (log_z,), (tau,), (rho,) = (values.tolist() for values in match)
        numbers = now.information.log_bound + log_z, 1.0, 0.0, 0.0, log_z, True
        return self._add_site(now, W, tau - rho * base.item(), rho, numbers, changes)

    def _add_site(self, now, W, tau, rho, numbers, changes):
        """Add a site on g and numbers, in place if `now` is this object's own and nothing else changes."""
        new = now
        if changes or now.totals is not self.own:
            buffer = None if self.spare is now.information else self.spare
            new = now.with_buffer(buffer, changes or {})
        sums = new.information
        # A += rho W'W, r += tau W', factor and c follow; sums and totals get the numbers
        if not kernel.add_observation(
            W, tau, rho, sums.A, sums.r, sums.factor, sums.c, sums.sums, new.totals, *numbers
        ):
            return None
        if new is not now:
            self.spare, self.own = now.information if now.totals is self.own else None, new.totals
            self.observe = self._make_observer(new) if self.ready and self.basis.target.points is not None else None
        return new

    def _make_observer(self, new):
        """Return the function that adds rows in arrays to the snapshot, in one call of the kernel."""
        sums, basis = new.information, self.basis
        arrays = basis.factor, sums.A, sums.r, sums.factor, sums.c, sums.sums, new.totals
        numbers = basis.variance, self.mean, self.noise, self.alpha, self.limit, LOG_2PI + log(self.noise)
        return kernel.RowObserver(basis.target, *arrays, *numbers).observe


def finish_single_row(state, new):
    """Give a StreamingGPState the snapshot with one row added, and test predictions when enough rows have come."""
    state._now = new
    check, information = new.predictive_check, new.information
    if information.n - check.n >= MIN_CHECKED_ROWS:
        exact = is_exact(new.model.likelihood) and new.model.alpha == 0.0
        message, check = check.compare(information) if exact else (None, PredictiveCheck.of(information))
        state._now = replace(new, predictive_check=check)
        warn_of_surprise(message)
    return state
