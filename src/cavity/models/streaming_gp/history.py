"""What becomes of a streaming state over many updates: changed settings, updates that did not converge, surprises.

Rows that are gone cannot be asked how they would look under other settings. A change of settings keeps what they say
about the inducing variables, and a fit of all rows at the settings of now may have a larger log bound. By how much is
not known, only that with Gaussian noise no log bound exceeds the log likelihood of an f that meets every observation,

    ceiling = -sum_n weight_n log(2 pi noise variance_n)/2,

whatever settings of the covariance, inducing points and alpha: all else that is in a bound is negative.

That rows speak against the settings is seen from sums that every state keeps. With Gaussian noise and alpha = 0 the
squared distance of rows from what was predicted for them, in units of their predicted covariance S, is

    (y - m)' S^-1 (y - m) = change of (squares - c'c),

and as rows follow rows these distances add up. If the settings hold, it is a chi-squared of n, but for the variance of
f that the inducing variables do not know, which S leaves out: that adds `gap` at most on average, and at worst has the
tail of gap times a chi-squared of one. Rows of other noise are compared with what each would be worth if nothing
were known of f. If the settings hold, they are worth exp(t) times as much with probability exp(-t) at most, by Markov's
inequality, however they depend on each other.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.base.errors import SettingsWarning, warn
from cavity.base.loop import CONVERGED
from cavity.ep.sites import Sites
from cavity.likelihoods.base import ONE
from cavity.models.latent_posterior import KNOWN_VARIANCE
from cavity.models.process.settings import gaussian_log_density
from cavity.models.streaming_gp.rows import INLINE, is_exact

ENOUGH = 50  # rows to judge by
TWICE = 2.0  # as large as announced may squared distances be on average
RARE = 15.0  # what a chi-squared of one degree of freedom exceeds with probability 1e-4
CHANCE = 1e-4  # of rows that are worth so much more alone


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
        worst = max((self.worst, other), key=lambda each: -1.0 if each is None else each.change)
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


# ---------------------------------------------------------------------------------------------- surprises


@dataclass(frozen=True, slots=True)
class Watch:
    """The sums of a factor when its last rows began to be judged."""

    distance: float  # squares - c'c
    n: float
    gap: float

    @classmethod
    def of(cls, information):
        """Return the watch that begins now."""
        return cls(information.squares - float(information.c @ information.c), information.n, information.gap)

    def carried(self, before, after):
        """Return the watch for a factor that became another one without further rows."""
        if before is after:
            return self
        old, new = self.of(before), self.of(after)
        change = new.distance - old.distance, new.n - old.n, new.gap - old.gap
        return Watch(self.distance + change[0], self.n + change[1], self.gap + change[2])

    def judged(self, information):
        """Words about the rows since then, or None, and the next Watch; rows that are few are left for later."""
        now = self.of(information)
        n, distance, gap = now.n - self.n, now.distance - self.distance, now.gap - self.gap
        if n < ENOUGH:
            return None, self
        if not distance > TWICE * n + RARE * gap:
            return None, now
        ratio = np.sqrt(distance / n)
        return f"the last {n:.6g} rows are {ratio:.3g} times as far from what was predicted as the settings say", now


def surprise_of(rows, model, program, increment):
    """Words about rows of any noise that brought `increment` nats, or None if that is no less than chance allows."""
    if model.alpha < 1.0:  # what a batch brings is then no log density
        return None
    sites = None if is_exact(model.likelihood) else Sites(model.likelihood, rows.y, rows.weights)
    if sites is not None and not sites.compiled:  # a likelihood of the user's own: integrals would cost too much
        return None

    def nats(X, start):
        part = slice(start, start + len(X))
        mean = np.ascontiguousarray(np.broadcast_to(rows.base(model, X, part), len(X)))
        variance = np.maximum(program.diagonal(X), KNOWN_VARIANCE)
        if sites is None:
            log_z = gaussian_log_density(rows.y[part], mean, variance + rows.noise_variance(model.likelihood, part))
        else:
            log_z = sites.match(part, mean, variance, ONE, strict=False)[0]
        return float(np.sum(rows.weight(part) * log_z))

    alone = sum(rows.each(nats, INLINE), 0.0)
    if not alone - increment > -np.log(CHANCE):
        return None
    return (
        f"the {rows.n} new rows bring {increment:.6g} nats, but would be worth {alone:.6g} if nothing were known of f"
    )


def warn_of(surprise):
    """Warn of a surprise, if there is one."""
    if surprise is not None:
        way_out = "update(X, y, learn=True) learns them again, forget(factor) makes older rows count less"
        warn(f"{surprise}: the settings do not fit them; {way_out}", SettingsWarning)
