"""The end of a chain: all that its rows say of the future, to which later rows are added at the cost of these alone.

Given the state x at the last time, N(m, P), values at later times t_i are Gaussian with

    mean h'A_i m,   covariance k(t_i, t_j) + h'A_i (P - P_inf) A_j'h,                                                (1)

A_i the transition over t_i less the last time, P_inf the covariance of a state under the prior: a Gaussian process of
the new rows, which is fitted with their matrices. It gives the state at the last of them, too, whose covariances with
their values are

    A(t_n - t_j) [P_inf + A_j (P - P_inf) A_j'] h.                                                                   (2)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.base.records import FINITE_REAL, TRUTH_VALUE, Array, Nullable, Part, Record, declare, integer, names
from cavity.base.results import declare_common, format_count, format_table, freeze_arrays, list_name_rows, shorten_repr
from cavity.ep.chain import find_firsts, find_transitions
from cavity.ep.options import Options
from cavity.models.gp.chain_processes import make_blocks
from cavity.models.gp.evidence import Evidence, allocate_matrices
from cavity.models.gp.saved import EP_SETTINGS, MODEL_SETTINGS
from cavity.models.observations import Observations
from cavity.models.process.model import add_prior_means
from cavity.models.process.predictions import ProcessPosterior
from cavity.models.process.saved import EP_OPTIONS
from cavity.models.process.settings import Settings
from cavity.runs.executors import Threads, single_blas
from cavity.sources.dataset import Dataset
from cavity.sources.dense_rows import read_dense

if TYPE_CHECKING:
    from cavity.models.gp.model import GaussianProcess

STATIONARY_COVARIANCES = {  # of the states of smoothness b - 1/2, see `terms.matern_steps`
    1: np.eye(1),
    2: np.eye(2),
    3: np.array([[1.0, 0.0, -1 / 3], [0.0, 1 / 3, 0.0], [-1 / 3, 0.0, 1.0]]),
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GaussianProcessEndPosterior(ProcessPosterior):
    """The posterior at the end of a chain, by its state there, from `GaussianProcessChainPosterior.keep_end`.

    Notes
    -----
    With Gaussian noise its predictions are those of a posterior of all rows. With other likelihoods the sites of
    earlier rows stay as they were: later rows do not change them. Its size depends on neither the number of rows nor
    that of updates, the cost of an update on the number of new rows n alone, as n^3.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> t = np.arange(3000) / 20.0
    >>> y = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(t)))
    >>> model = cavity.GaussianProcess(cavity.covariances.Matern32(0.5, 2.0), "poisson", mean=1.0)
    >>> state = model.fit(t[:2990, None], y[:2990], learn=False).keep_end()
    >>> state = state.update(t[2990:, None], y[2990:])
    >>> state.n_samples, state.time
    (3000, 149.95)
    >>> state.quantile([[150.5]], [0.05, 0.95]).tolist()
    [[0.0, 5.0]]
    """

    model: GaussianProcess = declare(Part(MODEL_SETTINGS), "The settings, with the hyperparameters of the chain.")
    time: float = declare(FINITE_REAL, "The time of the last row.")
    state_mean: FloatArray = declare(Array("S"), "Mean of the state: of each process its value and scaled derivatives.")
    state_covariance: FloatArray = declare(Array("S S"), "Covariance of the state.")
    log_evidence: float = declare_common("log_evidence")
    n_samples: int = declare_common("n_samples", integer(1))
    has_offset: bool = declare_common("has_offset")
    _has_noise: bool = declare(TRUTH_VALUE)
    _options: Options = declare(EP_OPTIONS | EP_SETTINGS)
    columns: tuple[str, ...] | None = declare_common("columns", Nullable(names()))
    roles: dict[str, Any] | None = declare_common("roles")
    classes: tuple[Any, ...] | None = declare_common("classes")

    kind: ClassVar[str] = "gaussian_process_end"
    coding: ClassVar[Any] = None  # a mean by formula is none of chains
    record: ClassVar[Any] = Record({"prior_mean": Array("() | P")}, {}, (), {"prior_mean": "model.mean"})

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @property
    def _earliest(self):
        return self.time

    def __repr__(self) -> str:
        return format_table(
            f"{type(self).__name__}: {type(self.model.likelihood).__name__}, {format_count(self.n_samples, 'row')}",
            [
                ("log_evidence", f"{self.log_evidence:.6f}"),
                ("time", f"{self.time:g}"),
                ("covariance", shorten_repr(self.model.covariance)),
                *list_name_rows(self),
            ],
        )

    @property
    def n_features(self) -> int:
        """One, the time."""
        return 1

    @property
    def _stationary(self):
        """P_inf of all states."""
        blocks, first = make_blocks(self.model.covariance), 0
        out = np.zeros(self.state_covariance.shape)
        for states, _, variance in blocks:
            block = slice(first, first + int(states))
            out[block, block], first = variance * STATIONARY_COVARIANCES[int(states)], block.stop
        return out

    def _reach(self, times):
        """Return A (n, S, S) from the last time to others, ValueError naming the first that is earlier, and h'A."""
        early = times < self.time
        if early.any():
            row = int(np.argmax(early))
            raise arrays.error_of(
                "X", f"must have times from {self.time:g} on, the last one, got {times[row]:g} in row {row}"
            )
        blocks = make_blocks(self.model.covariance)
        firsts = find_firsts(blocks)
        A = find_transitions(blocks, times - self.time)
        return A, A[:, firsts].sum(axis=1), firsts

    def _moments(self, X, threads, cache):
        _, rows, firsts = self._reach(X[:, 0])
        stationary = self._stationary
        variance = stationary[np.ix_(firsts, firsts)].sum()
        excess = np.einsum("ij,jk,ik->i", rows, self.state_covariance - stationary, rows)
        return rows @ self.state_mean, np.maximum(variance + excess, np.finfo(float).eps * variance)

    def _joint(self, X, gram, threads):
        _, rows, _ = self._reach(X[:, 0])
        return rows @ self.state_mean, gram + rows @ (self.state_covariance - self._stationary) @ rows.T  # (1)

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> GaussianProcessEndPosterior:
        """Add rows from the last time on; hyperparameters stay.

        Parameters
        ----------
        X : array_like (n, D)
            The new rows.
        y : array_like (n,) or str
            Their observations. What the fit took from columns of X, or its formula, is found there by its name,
            unless it is given.
        event : array_like (n,) or str, optional
            Of times y: 1 or True where the event was observed, 0 or False where it was not until then. Likelihoods of
            times take bounds (N, 2) as well, lower and upper, which need no events.
        offset : array_like (n,) or str, optional
            Known part of f.
        exposure : array_like (n,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        noise_variance : array_like (n,) or str, optional
            Known noise variances of the rows; needed if, and only if, the fit had them.
        sample_weight : array_like (n,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        GaussianProcessEndPosterior
            The state at the last of the new times; this one stays as it is.

        Raises
        ------
        ValueError, TypeError
            For bad rows, and times before the last one, before any work.
        NotPositiveDefiniteError, OverflowError
            As `GaussianProcess.fit`.

        Warns
        -----
        ConvergenceWarning
            If EP did not converge.
        """
        columns = {"y": y, "offset": offset, "noise_variance": noise_variance, "sample_weight": sample_weight}
        columns |= {"event": event, "exposure": exposure}
        dataset = Dataset.open(X, columns, names=self.columns, roles=self.roles, check_size=allocate_matrices)
        X = read_dense(dataset, 1)
        observations = Observations.of(self.model.likelihood, dataset, fitted=self)
        if (observations.noise is None) == self._has_noise:
            raise ValueError("noise_variance must be given for all rows or for none, like in the fit")
        rows = add_prior_means(self.model, observations.rows(X))
        _, reach, _ = self._reach(rows.X[:, 0])
        rows = replace(rows, offset=rows.offset + reach @ self.state_mean)
        with Threads(1) as threads, single_blas():
            evidence = StateEvidence(self, rows, threads)
            point = evidence.at(Settings(self.model.covariance, self.model.likelihood))
            moments = self._advance(evidence.rows.X[:, 0], point)
        if point.fit is not None:
            point.fit.warn(self._options)
        total = self.log_evidence + point.log_evidence
        return replace(self, **moments, log_evidence=total, n_samples=self.n_samples + rows.n)

    def _advance(self, times, point):
        """Return the last of new times, and the moments of the state there given the rows at them."""
        A, _, firsts = self._reach(times)
        stationary, blocks, last = self._stationary, make_blocks(self.model.covariance), int(np.argmax(times))
        prior = stationary + A @ (self.state_covariance - stationary) @ A.transpose(0, 2, 1)  # of states at all times
        values = prior[:, :, firsts].sum(axis=2)
        cross = np.einsum("nij,nj->in", find_transitions(blocks, times[last] - times), values)  # (2)
        solver = point.geometry.final_solver(point.belief)
        covariance = solver.find_covariance(prior[last].copy(), cross)
        mean = A[last] @ self.state_mean + cross @ point.belief.alpha
        return {"time": float(times[last]), "state_mean": mean, "state_covariance": covariance}


class StateEvidence(Evidence):
    """The evidence of rows given the state before them."""

    def __init__(self, state, rows, threads):
        super().__init__(state.model.likelihood, rows, threads, state._options)
        self.state = state

    def _prepare(self, program):
        """Compute the covariance matrix (1)."""
        super()._prepare(program)
        _, reach, _ = self.state._reach(self.rows.X[:, 0])
        self.gram += reach @ (self.state.state_covariance - self.state._stationary) @ reach.T
