"""The state of a stream at one time, which an update replaces by another one, and the history of its updates.

A change of settings keeps the factor of earlier rows on the inducing variables. A fit of all rows at the present
settings may have a larger log bound; by how much is unknown without the rows. With Gaussian noise no log bound exceeds
the log likelihood of an f that meets every observation,

    ceiling = -sum_n weight_n log(2 pi noise variance_n)/2,

whatever the covariance, inducing points and alpha: all other terms of a bound are negative.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from cavity.base.arrays import make_read_only
from cavity.base.constants import LOG_2PI
from cavity.base.errors import check_within_range
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.missing_values import DroppedRows
from cavity.base.observation_digest import ObservationDigest
from cavity.models.streaming_gp.inducing_basis import InducingBasis, Information, match_equal_rows
from cavity.models.streaming_gp.inducing_choice import WaitingRows
from cavity.models.streaming_gp.predictive_checks import PredictiveCheck
from cavity.runs.executors import Threads, single_blas


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
        return self if status == CONVERGED_STATUS else self._with(Unconverged(update, n_samples, status, change))

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


EMPTY_TRACE = {name: make_read_only(np.zeros(0)) for name in ("change", "learning")}  # trace without sweeps or searches
TOTAL_NAMES = ("n_samples", "n_updates", "log_bound", "last_increment")


@dataclass(frozen=True, slots=True, eq=False)
class StreamSnapshot:
    """The state of a streaming Gaussian process after some updates."""

    model: object  # StreamingGP, with what was learnt in its settings
    basis: InducingBasis
    information: Information
    totals: np.ndarray  # (4,): TOTALS
    inducing_ids: np.ndarray  # (M,)
    next_id: int
    waiting: WaitingRows
    predictive_check: PredictiveCheck  # of the rows since the last warning or check
    history: History = field(default_factory=History)
    digest: ObservationDigest | None = field(default_factory=ObservationDigest)  # of the rows that came in batches
    uniform: bool = True  # whether all rows have the noise variance of the model
    has_offset: bool = False
    columns: tuple | None = None
    classes: tuple | None = None
    roles: dict[str, str] | None = None
    dropped: DroppedRows | None = None
    coding: object = None  # of a mean by formula
    information_lost: float = 0.0
    last_information_lost: float = 0.0
    status: str = CONVERGED_STATUS
    n_iter: int = 0
    trace: dict = field(default_factory=lambda: EMPTY_TRACE)

    @classmethod
    def prior(cls, model, n_features, columns, roles):
        """Return what is known before any row."""
        Z = np.zeros((0, n_features)) if model.inducing is None else model.inducing
        with Threads(1) as threads, single_blas():
            basis = InducingBasis.of(model.covariance, Z, model.jitter, threads)
        information, ids = Information.empty(len(Z)), make_read_only(np.arange(len(Z)))
        waiting = WaitingRows.none(n_features)
        return cls(
            model,
            basis,
            information,
            np.zeros(4),
            ids,
            len(Z),
            waiting,
            PredictiveCheck.of(information),
            columns=columns,
            roles=roles,
        )

    @property
    def n_samples(self):
        """Rows taken in."""
        return int(self.totals.item(0))

    @property
    def n_updates(self):
        """Updates that took in rows."""
        return int(self.totals.item(1))

    @property
    def log_bound(self):
        """Sum of all increments."""
        return self.totals.item(2)

    @property
    def last_increment(self):
        """What the last update added to the log bound."""
        return self.totals.item(3)

    def after(self, *, rows=0, updates=0, lost=0.0, status=CONVERGED_STATUS, n_iter=1, trace=EMPTY_TRACE, **changes):
        """Return the snapshot after an update of so many rows, or what looks like one; finite or refused.

        `lost` are the nats that giving up inducing points cost; the other arguments are new values of fields.
        """
        information, basis = changes.get("information", self.information), changes.get("basis", self.basis)
        increment = information.log_bound - self.information.log_bound
        check_within_range(np.append(information.c, increment), "the moments and the bound")
        if basis.Z is not self.basis.Z:
            ids = np.full(basis.n, -1)
            places, old = match_equal_rows(basis.Z, self.basis.Z)
            ids[places] = self.inducing_ids[old]
            fresh = ids < 0
            ids[fresh] = self.next_id + np.arange(np.sum(fresh))
            changes |= {"inducing_ids": make_read_only(ids), "next_id": self.next_id + int(np.sum(fresh))}
        totals = self.n_samples + rows, self.n_updates + updates, self.log_bound + increment, increment
        return replace(
            self,
            status=status,
            n_iter=n_iter,
            trace=trace,
            totals=np.array(totals, dtype=float),
            information_lost=self.information_lost + lost,
            last_information_lost=lost,
            **changes,
        )

    def with_buffer(self, buffer, changes):
        """Return a snapshot with a factor and totals of its own, for a row to be added in place that loses no nats.

        `buffer` is an `Information` whose arrays may be overwritten, or None; `changes` are new values of fields.
        """
        information, totals = self.information.copy(buffer), self.totals.copy()
        plain = {"last_information_lost": 0.0, "status": CONVERGED_STATUS, "n_iter": 1, "trace": EMPTY_TRACE}
        return replace(self, information=information, totals=totals, **plain, **changes)
