"""What the engine of EP asks of a geometry: where sites act, and how they make up a posterior.

A geometry holds N values f_i that are jointly Gaussian under the prior, and turns N sites (tau_i, rho_i) on them into a
belief about all of them. Beliefs carry the sums (h, g) of the natural parameters of their sites, in coordinates that
the geometry chooses; the engine only adds and scales these. `dense.Dense` has weights as coordinates, `latent.Latent`
the values themselves, `sparse.Sparse` the entries of a sparse precision.
"""

from typing import Protocol

import numpy as np

from cavity.ep.visits import renew_block

GROUPS = 16  # partial sums over rows, whatever the number of threads: the same bits for all
SHORTEST_PART = 1e-100  # part of the way to other sums that is tried


class Belief(Protocol):
    """A proper Gaussian over all values: the prior times sites.

    Attributes
    ----------
    h, g : ndarray
        Sums of the natural parameters of the sites, linear in these: h of rho, g of tau less rho times the prior means.
    """

    h: np.ndarray
    g: np.ndarray

    def prior_gap(self) -> float:
        """Return log of the posterior's density over the prior's, at the posterior mean."""

    def divergence(self) -> float:
        """Return KL(q || prior)."""

    def change_from(self, old: "Belief") -> float:
        """Return the largest change of a marginal: means in sd of this belief, variances relative."""


class Geometry(Protocol):
    """Where sites act, see the head of the file.

    Attributes
    ----------
    n_rows : int
        N, the number of sites.
    parallel_only : bool
        Whether sites are renewed from one belief only: then there is no `sweep`, but ``first(sites, options)``, tau and
        rho to begin with, or None.
    """

    n_rows: int
    parallel_only: bool

    def prior(self) -> Belief:
        """Return the belief without sites."""

    def belief(self, h: np.ndarray, g: np.ndarray) -> Belief | None:
        """Return the belief whose sites sum to (h, g), or None if it is not proper."""

    def gather(self, tau: np.ndarray, rho: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums (h, g) of given sites, (N,) each."""

    def sharpened(self, belief: Belief, factor: float) -> Belief | None:
        """Return a belief of the same mean that knows more: about `factor` times the precision."""

    def settled(self, belief: Belief) -> Belief | None:
        """Return the belief that a fit ends with: this one without rounding that sweeps carry on."""

    def coordinates(self, belief: Belief, h: np.ndarray, g: np.ndarray) -> np.ndarray:
        """Return a change of sums in coordinates in which the Fisher metric of the belief is about the identity."""

    def slope(self, belief: Belief, h: np.ndarray, g: np.ndarray) -> float:
        """Return the square of the length of a change of sums in the Fisher metric of the belief."""

    def vector(self):
        """Return N zeros that are read and written by slices: an array, or a vector in a scratch file."""

    def each_group(self, function):
        """Yield function(blocks) for groups of blocks, in order; threads take groups.

        The blocks are pairs (part, x) in order: a slice of rows, and what the geometry knows of them, for `values` and
        `add`; x is valid until the next one is asked for.
        """

    def values(self, belief: Belief, part: slice, x) -> tuple[np.ndarray, np.ndarray]:
        """Return the means and variances (n,) of f of a block."""

    def add(self, part: slice, x, tau: np.ndarray, rho: np.ndarray, h: np.ndarray, g: np.ndarray):
        """Return (h, g) with the sites (n,) of a block added, linear in these.

        h and g may be changed in place, and only `reduce` knows how to read them.
        """

    def renew(
        self, sites, belief: Belief, part: slice, x, tau, rho, up: float, down: float, h: np.ndarray, g: np.ndarray
    ):
        """Renew the sites (n,) of a block from one belief and add them to (h, g), see `visits.renew_block`.

        Returns
        -------
        tau, rho, skipped, h, g
            The new sites, the number of those left alone, and the sums.
        """

    def reduce(self, task) -> tuple[np.ndarray, np.ndarray, float]:
        """Run task(part, x, h, g) -> h, g, number over all blocks; return the sums, the same for any threads."""

    def sweep(self, sites, belief: Belief, part: slice, tau: np.ndarray, rho: np.ndarray, up: float, down: float):
        """Renew the sites of a slice of rows one after the other; tau, rho, of all rows, change in place.

        Returns
        -------
        belief, skipped, log_z
            The belief of all sites (None if it is not proper), the number of sites left alone, and the sum of log
            normalisers of the others.
        """


class Whitened:
    """Base of geometries whose `coordinates` are those in which the Fisher metric is the identity."""

    __slots__ = ()

    def slope(self, belief, h, g):
        """Return the square of the length of a change of sums in the Fisher metric."""
        change = self.coordinates(belief, h, g)
        return float(change @ change)


class RowByRow:
    """Base of geometries that keep h and g of the sites of each row, and sum them up when all are known.

    A subclass has `n_rows`, `base`, the prior means of f (N,), `threads`, `groups`, the first and last rows of the
    groups, `block`, how many rows are matched together, and `summed`.
    """

    __slots__ = ()

    def vector(self):
        """A number for each row, zeros."""
        return np.zeros(self.n_rows)

    def each_group(self, function):
        """Yield function(blocks) for the groups of rows, in order; threads take groups."""

        def group(start, stop):
            rows = range(start, stop, self.block)
            return function((slice(low, min(low + self.block, stop)), None) for low in rows)

        return self.threads.imap(group, self.groups)

    def add(self, part, _, tau, rho, h, g):
        """Put the sites of a block into (h, g) of the rows."""
        h[part] = rho
        g[part] = tau - rho * self.base[part]
        return h, g

    def renew(self, sites, belief, part, x, tau, rho, up, down, h, g):
        """Renew the sites of a block from one belief and put them into (h, g) of the rows."""
        return renew_block(self, sites, belief, part, x, tau, rho, up, down, h, g)

    def reduce(self, task):
        """Run task(part, x, h, g) -> h, g, number over all blocks; return h, g and the sum, in a fixed order."""
        h, g = np.empty(self.n_rows), np.empty(self.n_rows)

        def group(blocks):
            return sum(task(part, x, h, g)[2] for part, x in blocks)

        total = sum(self.each_group(group))
        return *self.summed(h, g), total

    def gather(self, tau, rho):
        """(h, g) of given sites."""
        return self.summed(rho.copy(), tau - rho * self.base)


def towards(geometry, start, h, g, length, accept=lambda belief: True):
    """Go from a belief to sums (h, g), or part of the way, until the belief is proper and accepted: it and the length.

    The sums are linear in the step, so that shorter ones cost nothing.
    """
    while length > SHORTEST_PART:
        belief = geometry.belief(start.h + length * (h - start.h), start.g + length * (g - start.g))
        if belief is not None and accept(belief):
            return belief, length
        length *= 0.5
    raise OverflowError("the sites leave the range of float64; rescale the columns of X or the prior")
