"""Memoised passes over a Gaussian mixture's data: the global factors are renewed after every group of blocks.

The sums of each group are kept, and replaced when the group is visited again, so that the state always follows
from all data. The ELBO is that of the kept responsibilities; no step lowers it.

References
----------
.. [HS] Michael Hughes and Erik Sudderth, "Memoized online variational inference for Dirichlet process mixture models",
   Advances in Neural Information Processing Systems 26, 2013.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from cavity.blocks import merge
from cavity.mean_field import engine
from cavity.models.mixture.state import MixtureState, RowSums

MOST_GROUPS = 64
KEPT_NUMBERS = 1 << 22  # most numbers kept of all groups, 32 MB
LEAST_GROUPS = 16  # blocks are made small enough for so many, if the data have the rows
LEAST_GROUPED = 1 << 8  # rows of such a block


def rows_of_blocks(rows, n_rows):
    """Return the number of rows in a block that leaves enough blocks to group, at most `rows`."""
    return max(min(rows, -(-n_rows // LEAST_GROUPS)), min(rows, LEAST_GROUPED))


@dataclass(frozen=True, slots=True)
class Memo:
    """A state with what is kept of each group: sums about the means of `origin`, and entropies."""

    state: MixtureState
    origin: np.ndarray = None  # (K, D)
    kept: tuple = ()  # of RowSums
    entropies: tuple = ()


def ascend(sweeps, start, options):
    """Return the `Fit` of memoised passes from a state, with states instead of memos."""
    done = engine.ascend(MemoisedSweeps(sweeps), Memo(start), replace(options, accelerate=False))
    return replace(done, state=done.state.state, image=done.image.state)


class MemoisedSweeps:
    """MixtureSweeps as the engine wants them, whose states are `Memo`s."""

    def __init__(self, sweeps):
        self._sweeps, self.n_samples = sweeps, sweeps.n_samples
        source = sweeps.data.source
        width = 1 + source.n_features + sweeps.prior.factors.mean[0].size ** (1 + sweeps.prior.full)
        most = max(2, min(MOST_GROUPS, KEPT_NUMBERS // (width * len(sweeps.prior.counts))))
        edges = np.linspace(0, source.block_count, min(most, source.block_count) + 1).astype(int)
        self._groups = [range(a, b) for a, b in pairwise(edges.tolist())]

    def sweep(self, memo):
        """Return the memo after a visit of every group, and the ELBO of the given one."""
        if not memo.kept:
            return self._begun(memo.state)
        state, kept, entropies = memo.state, list(memo.kept), list(memo.entropies)
        for g, blocks in enumerate(self._groups):
            kept[g], entropies[g] = self._visited(state, blocks, memo.origin)
            state = self._renewed(state, memo.origin, kept)
        return Memo(state, memo.origin, tuple(kept), tuple(entropies)), self._elbo(memo)

    def _begun(self, state):
        """Return the first memo, of one state for all groups, and the ELBO of this state."""
        origin = state.factors.mean
        visits = [self._visited(state, blocks, origin) for blocks in self._groups]
        kept, entropies = zip(*visits, strict=True)
        elbo = self._elbo(Memo(state, origin, kept, entropies))
        return Memo(self._renewed(state, origin, kept), origin, kept, entropies), elbo

    def _visited(self, state, blocks, origin):
        """Return the sums of a group about the origin, and the entropy of its responsibilities."""
        e_step = self._sweeps.e_step(state)
        sums, total = self._sweeps.sums(e_step, blocks)
        entropy = total - e_step.energy(sums)
        return sums.moved(state.factors.mean - origin), entropy

    def _renewed(self, state, origin, kept):
        """Return the optimal state given all that is kept."""
        total = _total(kept).moved(origin - state.factors.mean)
        return state.renewed(self._sweeps.prior, total)

    def _elbo(self, memo):
        """Return the ELBO of a state with the kept responsibilities."""
        total = _total(memo.kept).moved(memo.origin - memo.state.factors.mean)
        expected = self._sweeps.e_step(memo.state).energy(total) + merge.merge(memo.entropies)
        return expected + self._sweeps.data.log_scale - memo.state.divergence(self._sweeps.prior)

    @staticmethod
    def coordinates(memo):
        """Return natural parameters and expected statistics of the state."""
        return memo.state.natural(), memo.state.statistics()


def _total(kept):
    return RowSums(*merge.merge([sums.parts() for sums in kept]))
