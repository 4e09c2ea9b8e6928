"""Geometries: the interface between the engine of EP and the values that sites act on.

A geometry holds N values f_i that are jointly Gaussian under the prior, and turns N sites (tau_i, rho_i) on them into a
belief about all of them. Beliefs carry the sums (h, g) of the natural parameters of their sites, in coordinates that
the geometry chooses; the engine only adds and scales these. `dense.Dense` has weights as coordinates, `latent.Latent`
the values themselves, `sparse.Sparse` the entries of a sparse precision.
"""

import numpy as np

from cavity.ep.site_updates import renew_sites

ROW_GROUPS = 16  # partial sums over rows, whatever the number of threads: the same bits for all
MIN_STEP_SHARE = 1e-100  # part of the way to other sums that is tried
DIFFERENCE_LENGTH = 1e-3  # of the step of central differences, in the metric of `coordinates`


class Belief:
    """A proper Gaussian over all values: the prior times sites.

    Attributes
    ----------
    h, g : ndarray
        Sums of the natural parameters of the sites, linear in these: h of rho, g of tau less rho times the prior means.
    """

    __slots__ = ()

    def prior_gap(self) -> float:
        """Return log of the posterior's density over the prior's, at the posterior mean."""
        raise NotImplementedError

    def divergence(self) -> float:
        """Return KL(q || prior)."""
        raise NotImplementedError

    def change_from(self, old: "Belief") -> float:
        """Return the largest change of a marginal: means in sd of this belief, variances relative."""
        raise NotImplementedError


class Geometry:
    """Base of all geometries; see the module docstring.

    Attributes
    ----------
    n_rows : int
        N, the number of sites.
    parallel_only : bool
        Whether sites are renewed from one belief only: then there is no `sweep`, but ``first(sites, options)``, tau and
        rho to begin with, or None.
    """

    parallel_only = False

    def prior(self) -> Belief:
        """Return the belief without sites."""
        raise NotImplementedError

    def belief(self, h: np.ndarray, g: np.ndarray) -> Belief | None:
        """Return the belief whose sites sum to (h, g), or None if it is not proper."""
        raise NotImplementedError

    def gather(self, tau: np.ndarray, rho: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums (h, g) of given sites, (N,) each."""
        return self.sums(add_block, None, (tau, rho))[0][:2]

    def sharpen(self, belief: Belief, factor: float) -> Belief | None:
        """Return a belief of the same mean with about `factor` times the precision."""
        raise NotImplementedError

    def converged_belief(self, belief: Belief) -> Belief | None:
        """Return the final belief of a fit: this one without the accumulated rounding of sweeps."""
        return belief

    def coordinates(self, belief: Belief, h: np.ndarray, g: np.ndarray) -> np.ndarray:
        """Return a change of sums in coordinates in which the Fisher metric of the belief is the identity."""
        raise NotImplementedError

    def slope(self, belief: Belief, h: np.ndarray, g: np.ndarray) -> float:
        """Return the square of the length of a change of sums in the Fisher metric of the belief."""
        change = self.coordinates(belief, h, g)
        return float(change @ change)

    def vector(self):
        """Return N zeros that are read and written by slices: an array, or a vector in a scratch file."""
        return np.zeros(self.n_rows)

    def each_group(self, function):
        """Yield function(blocks) for groups of blocks, in order; threads take groups.

        The blocks are pairs (part, x) in order: a slice of rows, and the geometry's data of these rows, for `values`
        and `add`; x is valid until the next pair is taken.
        """
        raise NotImplementedError

    def in_groups(self, function, sites, at, *arguments, filled=False):
        """Call function(group, *known) for all groups of blocks, each a `BlockGroup`.

        `at` are tau and rho of the sites, or None twice where none are kept. The functions, and those for `sums`, may
        run in other processes, where the rows are: they are defined at the top level of modules.

        Returns
        -------
        found, new
            The result of each group, in order, and the two vectors (N,) that the function has written to
            `BlockGroup.new` if `filled`; else, and where they do not fit into memory, None twice.
        """
        new = (np.empty(self.n_rows), np.empty(self.n_rows)) if filled else (None, None)
        return list(self.each_group(lambda blocks: function(BlockGroup(self, sites, blocks, at, new), *arguments))), new

    def sums(self, function, sites, at, *arguments, new=None):
        """Return the sums of function(group, part, x, h, g, *known) -> h, g, number over all blocks, as of `reduce`.

        Returns
        -------
        sums, new
            h, g and the number; and the vectors that the function has written to `BlockGroup.new`.
        """
        group = BlockGroup(self, sites, None, at, new)
        return self.reduce(lambda *block: function(group, *block, *arguments)), new

    def values(self, belief: Belief, part: slice, x) -> tuple[np.ndarray, np.ndarray]:
        """Return the means and variances (n,) of f of a block."""
        raise NotImplementedError

    def add(self, part: slice, x, tau: np.ndarray, rho: np.ndarray, h: np.ndarray, g: np.ndarray):
        """Return (h, g) with the sites (n,) of a block added, linear in these.

        h and g may be changed in place, in a representation that `reduce` completes.
        """
        raise NotImplementedError

    def renew(
        self, sites, belief: Belief, part: slice, x, tau, rho, up: float, down: float, h: np.ndarray, g: np.ndarray
    ):
        """Renew the sites (n,) of a block from one belief and add them to (h, g), see `site_updates.renew_sites`.

        Returns
        -------
        tau, rho, skipped, h, g
            The new sites, the number of those with improper cavities, which do not change, and the sums.
        """
        new_tau, new_rho, skipped = renew_sites(sites, part, *self.values(belief, part, x), tau, rho, up, down)
        return new_tau, new_rho, skipped, *self.add(part, x, new_tau, new_rho, h, g)

    def reduce(self, task) -> tuple[np.ndarray, np.ndarray, float]:
        """Run task(part, x, h, g) -> h, g, number over all blocks; return the sums, the same for any threads."""
        raise NotImplementedError

    def choose_first_rows(self, sites, most: int):
        """Return the rows, as `part` of `sweep`, that the parallel schedule visits one by one before its first sweep.

        They are among the first `most`.
        """
        return slice(0, min(most, self.n_rows))

    def run_passes(self, schedule, sites, belief: Belief, tau, rho, best: float, most: int, tol: float):
        """Do up to `most` undamped passes of a schedule in one call, if the geometry can.

        They end at a change of at most `tol`, and with one that is no progress from the `best` so far.

        Returns
        -------
        changes, belief, site_parameters, site_parameters_before
            The changes of the passes, none of which left a site alone; the belief and (tau, rho) after the last, and
            the latter before it, None for a sequential schedule. None if there are no such passes.
        """
        return None

    def sweep(self, sites, belief: Belief, part: slice, tau: np.ndarray, rho: np.ndarray, up: float, down: float):
        """Renew the sites of a slice of rows one after the other; tau, rho, of all rows, change in place.

        Returns
        -------
        belief, skipped, log_z
            The belief of all sites (None if it is not proper), the number of sites with improper cavities, and
            the sum of log normalisers of the others.
        """
        raise NotImplementedError


class BlockGroup:
    """A group of blocks, the argument of functions for `Geometry.in_groups`; slices refer to its vectors."""

    __slots__ = ("blocks", "geometry", "new", "rho", "sites", "tau")

    def __init__(self, geometry, sites, blocks, at, new):
        self.geometry, self.sites, self.blocks = geometry, sites, blocks
        self.tau, self.rho = at
        self.new = new  # two vectors (N,) that results are written to, or None


def add_block(group, part, x, h, g):
    """Add the sites of a block to the sums; see `Geometry.sums`."""
    return *group.geometry.add(part, x, group.tau[part], group.rho[part], h, g), 0.0


class RowwiseGeometry(Geometry):
    """Base of geometries that collect h and g of the sites of each row and sum them at the end.

    A subclass has `n_rows`, `base`, the prior means of f (N,), `threads`, `groups`, the first and last rows of the
    groups, `block`, how many rows are matched together, and `sum_rows`. Its beliefs are `MarginalBelief`s.
    """

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

    def reduce(self, task):
        """Run task(part, x, h, g) -> h, g, number over all blocks; return h, g and the sum, in a fixed order."""
        h, g = np.empty(self.n_rows), np.empty(self.n_rows)

        def group(blocks):
            return sum(task(part, x, h, g)[2] for part, x in blocks)

        total = sum(self.each_group(group))
        return *self.sum_rows(h, g), total

    def gather(self, tau, rho):
        """(h, g) of given sites."""
        return self.sum_rows(rho.copy(), tau - rho * self.base)


class DifferenceGeometry(RowwiseGeometry):
    """Base of geometries whose `coordinates` are approximate; `slope` is exact up to a central difference of beliefs.

    A subclass has `pair_moments(up, down, step, h, g)`: the change of the moments from one belief to the other over 2
    step, times the natural parameters (g, -h/2).
    """

    def slope(self, belief, h, g):
        """The square of the length of a change of sums in the Fisher metric, from how it moves the moments."""
        length = float(np.linalg.norm(self.coordinates(belief, h, g)))
        if not 0.0 < length < np.inf:
            return length
        step, ends = DIFFERENCE_LENGTH / max(length, DIFFERENCE_LENGTH), (None,)
        while None in ends:
            ends = [self.belief(belief.h + sign * step * h, belief.g + sign * step * g) for sign in (1.0, -1.0)]
            step = 0.1 * step if None in ends else step
        return max(0.0, float(self.pair_moments(*ends, step, h, g)))


class MarginalBelief(Belief):
    """Base of beliefs that keep `mean` and `variance` of all f, (N,), the means up to a constant."""

    __slots__ = ()

    def change_from(self, old):
        """The largest change of a marginal of f: means in sd of this belief, variances relative."""
        shift = np.abs(self.mean - old.mean) / np.sqrt(self.variance)
        return float(max(shift.max(), np.abs(old.variance / self.variance - 1.0).max()))


def step_towards(geometry, start, h, g, length, accept=lambda belief: True):
    """Go from a belief to sums (h, g), or part of the way, until the belief is proper and accepted: it and the length.

    The sums are linear in the step, so that shorter ones cost nothing.
    """
    while length > MIN_STEP_SHARE:
        belief = geometry.belief(start.h + length * (h - start.h), start.g + length * (g - start.g))
        if belief is not None and accept(belief):
            return belief, length
        length *= 0.5
    raise OverflowError("the sites leave the range of float64; rescale y, the columns of X or the prior")
