"""The history of a streaming state: changed settings, and updates that did not converge.

A change of settings keeps the factor of earlier rows on the inducing variables. A fit of all rows at the present
settings may have a larger log bound; by how much is unknown without the rows. With Gaussian noise no log bound exceeds
the log likelihood of an f that meets every observation,

    ceiling = -sum_n weight_n log(2 pi noise variance_n)/2,

whatever the covariance, inducing points and alpha: all other terms of a bound are negative.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.base.loop import CONVERGED


@dataclass(frozen=True, slots=True)
class Unconverged:
    """An update that did not meet its stopping rules.

    Attributes
    ----------
    update : int
        Its number, counted from 1; that of the merge for one of another state.
    n_samples : int
        Rows taken in by then, its own included.
    status : str
        Why its iteration ended.
    change : float
        That of its last sweep, as the stopping rule measures it; 0.0 if only the search for settings failed.
    """

    update: int
    n_samples: int
    status: str
    change: float

    def __str__(self):
        change = f", last change {self.change:.3g}" if self.change else ""
        return f"update {self.update}, to row {self.n_samples}: {self.status}{change}"


@dataclass(frozen=True, slots=True)
class History:
    """What a state has been through.

    Attributes
    ----------
    changed : bool
        Whether settings changed under rows that were taken in before, other than in ways that are exact.
    own_weight, own_log_noise : float
        Sums of the weights of rows with noise variances of their own, and of weight times log noise variance; nan if
        that is not known.
    worst : Unconverged or None
        The worst of all updates that did not converge, the one with the largest last change.
    """

    changed: bool = False
    own_weight: float = 0.0
    own_log_noise: float = 0.0
    worst: Unconverged | None = None

    def with_rows(self, rows):
        """Return the history with further rows."""
        if rows is None or rows.noise is None:
            return self
        weight = np.broadcast_to(rows.weight(), rows.noise.shape)
        log_noise = float(weight @ np.log(rows.noise))
        return replace(
            self, own_weight=self.own_weight + float(np.sum(weight)), own_log_noise=self.own_log_noise + log_noise
        )

    def with_end(self, update, n_samples, status, change):
        """Return the history after an update that ended like that."""
        return self if status == CONVERGED else self._with(Unconverged(update, n_samples, status, change))

    def _with(self, other):
        worst = max((self.worst, other), key=lambda update: -1.0 if update is None else update.change)
        return replace(self, worst=worst)

    def plus(self, other, update, n_samples):
        """Return it merged with that of another state, by an update of that number that ends with so many rows."""
        worst = None if other.worst is None else replace(other.worst, update=update, n_samples=n_samples)
        return replace(
            self._with(worst),
            changed=self.changed or other.changed,
            own_weight=self.own_weight + other.own_weight,
            own_log_noise=self.own_log_noise + other.own_log_noise,
        )

    def times(self, factor):
        """Return the history of rows of so much less weight."""
        if factor == 0.0:
            return History()
        return replace(self, own_weight=factor * self.own_weight, own_log_noise=factor * self.own_log_noise)

    def ceiling(self, information, noise_variance):
        """What no log bound of these rows exceeds, at the noise variance of those that have none of their own."""
        rest = (information.n - self.own_weight) * np.log(noise_variance)
        return -0.5 * (float(rest) + self.own_log_noise + information.n * LOG_2PI)

    @classmethod
    def from_settings(cls, settings):
        """Return the history of checked settings, as files have them."""
        worst = settings["worst"]
        return cls(**settings | {"worst": None if worst is None else Unconverged(**worst)})
