"""Sweeps of a Gaussian mixture for the mean-field engine: an E-step over the blocks of the data, then an M-step.

States are in the coordinates z = (x - origin) scale of `Scaling`. Steps on minibatches B of N rows move the natural
parameters lambda of q(pi, mu, Lambda), those of the prior being eta [H]_::

    lambda^ = eta + (N/|B|) sum_{n in B} of the statistics of r_n,                                                 (1)
    lambda = (1 - step) lambda + step lambda^.                                                                       (2)

References
----------
.. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.
.. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of Machine
   Learning Research 14, 2013.
"""

import numpy as np

from cavity.models.mixture.e_step import EStep, UnreachableRow
from cavity.models.mixture.elbo import compute_elbo
from cavity.models.mixture.state import MixtureState, RowSums


class MixtureSweeps:
    """The model of `mean_field.engine`: whole sweeps over the data, and steps on minibatches."""

    def __init__(self, prior, data, threads, n_samples=None):
        self.prior, self.data, self._threads = prior, data, threads
        self.n_samples = data.n_samples if n_samples is None else n_samples  # of a stream, more than in `data`

    @property
    def n_rows(self):
        """Rows of a sweep, whatever their weights."""
        return self.data.source.n_rows

    def sweep(self, state):
        """Return the state after one sweep, and the ELBO of the state before it."""
        sums, log_density_sum = self.sums(state)  # E-step [B]_ (10.46) to (10.53)
        elbo = compute_elbo(log_density_sum + self.data.log_scale, state, self.prior)  # (10.70)
        return state.update(self.prior, sums), elbo  # M-step (10.58), (10.60) to (10.63)

    def sums(self, state):
        """Return the RowSums under q(z) of a state, and the sum of log densities."""
        return self.data.sums(EStep.of(state, self.data.scaling, missing=self.data.missing), self._threads)

    def estimate(self, state, rows):
        """Return the optimal state if all data were like `rows`, each counted n_samples/len(rows) times [H]_."""
        e_step = EStep.of(state, self.data.scaling, missing=bool(np.isnan(rows).any()))
        try:
            statistics, _ = e_step.compute_sums(rows)
        except UnreachableRow as error:
            raise error.to_error("row {} of the minibatch".format) from None
        sums = RowSums.of(statistics, rows.shape[1], state.full)
        return state.update(self.prior, sums.scale(self.n_samples / len(rows)))  # (1)

    @staticmethod
    def blend(state, estimate, step):
        """Return the state with natural parameters (1 - step) old + step estimated [H]_."""
        return MixtureState.combine([(1.0 - step, state), (step, estimate)])  # (2)

    @staticmethod
    def coordinates(state):
        """Return natural parameters and expected statistics, flat."""
        return state.coordinates()

    @staticmethod
    def at(natural, state):
        """Return the state with the given natural parameters, or None where one is out of its domain."""
        return state.at(natural)
