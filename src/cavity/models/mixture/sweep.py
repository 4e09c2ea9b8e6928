"""The Gaussian mixture as the mean-field engine sees it: one pass over the blocks of the data per sweep.

All is in coordinates z = (x - origin) scale, see `Scaling`. Of q(z_n) a sweep needs N_k and the first and second
moments of the data about the component means.
ELBO = sum_n w_n log sum_k exp(E log pi_k + E log N(z_n; mu_k, 1/L_k)) - KL(q(pi) || p(pi)) - KL(q(mu, L) || p(mu, L)).
"""

import numpy as np

from cavity.models.mixture.e_step import EStep, UnreachableRow
from cavity.models.mixture.state import MixtureState, RowSums


class MixtureSweeps:
    """What the engine needs: whole sweeps over the data, and steps on minibatches."""

    def __init__(self, prior, data, threads, n_samples=None):
        self.prior, self.data, self._threads = prior, data, threads
        self.n_samples = data.n_samples if n_samples is None else n_samples  # those of a stream are not all in `data`

    @property
    def n_rows(self):
        """Rows of a sweep, whatever their weights."""
        return self.data.source.n_rows

    def sweep(self, state):
        """Return the state after one sweep, and the ELBO of the given one."""
        sums, total = self.sums(state)
        elbo = total + self.data.log_scale - state.divergence(self.prior)
        return state.renewed(self.prior, sums), elbo

    def sums(self, state):
        """Return the sums that a state leads to and the sum of log densities."""
        return self.data.sums(EStep.of(state, self.data.scaling, missing=self.data.missing), self._threads)

    def estimate(self, state, rows):
        """Return the state that all data would lead to if they were like `rows`."""
        e_step = EStep.of(state, self.data.scaling, missing=bool(np.isnan(rows).any()))
        try:
            found, _ = e_step.raw_sums(rows)
        except UnreachableRow as error:
            raise error.told("row {} of the minibatch".format) from None
        sums = RowSums.of(found, rows.shape[1], state.full)
        return state.renewed(self.prior, sums.scaled(self.n_samples / len(rows)))

    @staticmethod
    def blend(state, estimate, step):
        """Return the state part of the way to an estimate."""
        return MixtureState.combined([(1.0 - step, state), (step, estimate)])

    @staticmethod
    def coordinates(state):
        """Return natural parameters and expected statistics, flat."""
        return state.natural(), state.statistics()

    @staticmethod
    def at(natural, state):
        """Return the state with the given natural parameters, or None where one is out of its domain."""
        return state.at(natural)
