"""What both streaming Gaussian processes share: settings, and states that are begun and continued."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from cavity.base import arrays
from cavity.covariances import Covariance
from cavity.models.streaming_gp.model import StreamingGP
from cavity.sklearn.base import Estimator, check_rows
from cavity.sklearn.gp import kernels as own_kernels
from cavity.sklearn.gp.noise import split_noise


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows in ascending order, those equal in X and y as one: the order of rows and copies of rows do not matter."""

    X: np.ndarray  # (N, D)
    y: np.ndarray  # (N,) numbers
    weight: np.ndarray | None  # (N,), None where all are one
    n: int  # rows as they came
    total: float  # weight of all

    @classmethod
    def of(cls, X, y, weight):
        """Return the batch of checked rows, the weights of which may be None."""
        X, n = X + 0.0, len(y)  # no negative zeros
        weight = np.ones(n) if weight is None else weight
        order = np.lexsort((y, *X.T))
        X, y, weight = X[order], y[order], weight[order]
        is_new = np.append(True, (y[1:] != y[:-1]) | np.any(X[1:] != X[:-1], axis=1))
        weight = np.add.reduceat(weight, np.flatnonzero(is_new))
        return cls(X[is_new], y[is_new], None if np.all(weight == 1) else weight, n, float(np.sum(weight)))


class Streaming(Estimator):
    """An estimator made of streaming Gaussian processes; a subclass sets its `_default` kernel and `_least_power`."""

    def _checked(self, X, y, sample_weight, *, reset, **options):
        """Return checked rows, targets and weights, after the settings that the model does not check."""
        if reset and self.kernel is not None:
            own_kernels.check_kernel(self.kernel)
        arrays.check_number(self.power, "power", low=self._least_power, high=1, closed_low=True, closed_high=True)
        if not isinstance(self.learn, bool | np.bool_):
            arrays.check_choice(self.learn, "learn, unless it is True or False,", ("first",))
        return check_rows(self, X, y, sample_weight, dtype=np.float64, reset=reset, **options)

    def _parts(self, n_features, alpha=0.0):
        """Return the kernel to begin with, taken apart."""
        kernel = self._default if self.kernel is None else self.kernel
        return split_noise(kernel if isinstance(kernel, Covariance) else clone(kernel), n_features, alpha)

    def _next_state(self, state, parts, likelihood, batch, y, learn):
        """Return the state of one more batch, with targets y; the given one stays as it is.

        Without one (None) the batch is the first of such a kernel and likelihood. `learn` is that of `StreamingGP.fit`.
        """
        options = self._options("n_threads") | {"sample_weight": batch.weight, "learn": learn}
        if state is not None:
            return state.copy().update(batch.X, y, **options)
        settings = self._settings("inducing", "n_inducing", "tolerance", "jitter")
        return StreamingGP(parts.covariance, likelihood, alpha=self.power, **settings).fit(batch.X, y, **options)

    def _set_states(self, states, batch, first, kernels, learns):
        """Set the attributes that sum up states after a batch, and the kernels if there are new ones."""
        if kernels:
            self.kernel_ = own_kernels.join_kernels(kernels)
        if learns:
            for kernel in kernels:
                own_kernels.warn_at_bounds(kernel)
        self.n_samples_seen_: int = batch.n + (0 if first else self.n_samples_seen_)
        self.information_lost_ = float(arrays.add_in_order(state.information_lost for state in states))
        self.converged_: bool = all(state.converged for state in states)
