"""The geometry of generalised linear models: sites on f = F a + base, a ~ N(a0, C C'), with a full covariance.

Everything M x M is done in whitened coordinates u, a = a0 + C u, whose prior is N(0, I): the precision I + C' F' R F C
is then well scaled whatever the units of the columns. With more weights than rows only N directions of weight space are
seen by the data; in these the problem is N x N (the dual form), so that a pass costs N D min(N, D).
"""

from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from cavity import _core
from cavity.base.arrays import add_in_order
from cavity.base.lazy_scipy import lapack
from cavity.base.triangles import fill_symmetric, invert_lower, solve_lower, whiten
from cavity.ep.damping import PROGRESS_RATIO
from cavity.ep.geometry import ROW_GROUPS, Geometry
from cavity.ep.site_updates import kernel, visit_sites
from cavity.ep.weights import WeightRoot
from cavity.linalg import tiled
from cavity.runs.executors import Threads
from cavity.runs.merge import merge, split_rows
from cavity.runs.passes import map_runs
from cavity.sources.dataset import IN_FILES, ON_WORKERS
from cavity.sources.features import kind_of
from cavity.sources.read_ahead import iterate_spans, read_rows
from cavity.sources.scratch import allocate_vector, is_beyond
from cavity.sources.sources import Source

dense_kernel, belief_kernel = _core.best("dense"), _core.best("belief")

MAX_TILED_COLUMNS = 128  # up to which rows go through compiled tiles, beyond through products of matrices
NO_SHIFT, NO_BASE = np.zeros(0), np.zeros(1)
MAX_BLOCK_ROWS = 1 << 14  # most rows of a block: the slowest compiled sites take some ten milliseconds
MAX_CALL_ROWS = 1 << 16  # sites that one call of `run_passes` renews, in all its passes
CACHED_NUMBERS = 1 << 17  # numbers per block of rows: 1 MB, which stays in the cache
MAX_GROUP_NUMBERS = 1 << 20  # most numbers of a group of blocks, 8 MB: what is read of a file at a time, unless ...
MIN_GROUP_ROWS_PER_COLUMN = 4  # ... these are fewer rows a column: adding up the squares of columns would take its time
MAX_RANK_ONE_COLUMNS = 128  # up to which a rank-1 update a site is faster than blocks of them: 1.3 times there
MAX_LOOP_COLUMNS = 128  # columns up to which loops of our own factorise faster than calls of LAPACK
SWEEP_ROWS = 8192
MIN_FIRST_ROWS, FIRST_ROWS_PER_COLUMN = 256, 32  # visited one by one first: with fewer, more passes follow
ORDER_SEED = 19460105  # of rows in the order of y
LARGEST_PRIOR_SD = 1e3  # of f, up to which some rows are enough
GOLDEN_STEP = 40503  # 2^16 over the golden ratio: its multiples modulo 2^16 fill the range evenly
ROWS_PER_THREAD_TASK = 256  # of the running covariance of a sweep, for a thread
TILE_ROWS = 128  # of a block are a multiple of it, so that no tile is partly empty but the last


def _count_group_rows(n_rows, n_columns, block):
    """Rows of the groups whose sums are added up in a tree: whole blocks, and at least GROUPS groups if there are so
    many.
    """
    most = max(MAX_GROUP_NUMBERS // max(n_columns, 1), MIN_GROUP_ROWS_PER_COLUMN * n_columns)
    return block * max(1, min(most // block, n_rows // block // ROW_GROUPS))


def _factor_by_loops(h, g, root, _):
    """L of I + C h C = L L', u = L^-T L^-1 C g, L^-1 C and its transpose, C = diag(root); None if there is no L."""
    factor, triangle, wide = np.empty((3, len(g), len(g)))
    u = np.empty(len(g))
    return (factor, u, triangle, wide) if belief_kernel.posterior(h, g, root, factor, u, triangle, wide) else None


def _factor_in_tiles(h, g, root, threads):
    """The same for larger matrices."""
    with np.errstate(over="ignore", invalid="ignore"):  # where that leaves the range of float64 there is none
        precision, pulled = root[:, None] * h * root, root * g
    precision.flat[:: len(g) + 1] += 1.0
    if not (np.isfinite(precision).all() and np.isfinite(pulled).all()):
        return None
    if tiled.factor(precision, threads):
        return None
    factor = np.tril(precision)
    triangle = factor.copy()
    tiled.invert(triangle, threads)
    triangle *= root
    return factor, lapack.dpotrs(factor.T, pulled, lower=0)[0], triangle, triangle.T


@dataclass(frozen=True, slots=True)
class DenseBelief:
    """A Gaussian over the coordinates: precision and root in whitened coordinates, mean and root of a."""

    h: np.ndarray  # (M, M): F' R F
    g: np.ndarray  # (M,): F'(tau - rho c), c the prior means of f
    factor: np.ndarray  # (M, M) lower: the precision I + C' h C is factor factor'
    u: np.ndarray  # (M,)
    mean: np.ndarray  # (M,): a
    root: np.ndarray  # (M, M): the covariance of a is root root'
    triangle: np.ndarray | None  # (M, M) lower: the covariance is triangle' triangle; None where only the root is known
    threads: Threads = field(default=tiled.ONE_THREAD, metadata={"kept": False})

    @property
    def log_determinant(self):
        """Of the whitened precision."""
        return 2.0 * float(np.sum(np.log(np.diag(self.factor))))

    def covariance(self):
        """The covariance of a, (M, M); of many columns in tiles, between which Ctrl-C interrupts."""
        if self.triangle is None or len(self.u) < tiled.MIN_TILED_ROWS:
            return self.root @ self.root.T
        triangle = self.triangle.copy()
        tiled.square(triangle, self.threads)
        return fill_symmetric(triangle)

    def prior_gap(self):
        """log of the posterior's density over the prior's, at the posterior mean."""
        return 0.5 * float(self.u @ self.u) + 0.5 * self.log_determinant

    def prior_slope(self):
        """(E |u|^2 - M)/2: the derivative of E log prior in the log of a factor on the prior variance."""
        # L^-1 (M, M) of I + C'hC = L L': E |u|^2 = |u|^2 + |L^-1|_F^2
        inverse = invert_lower(self.factor)
        return 0.5 * (float(self.u @ self.u) + float(np.sum(inverse**2)) - len(self.u))

    def divergence(self):
        """KL(q || prior)."""
        return self.prior_slope() + 0.5 * self.log_determinant

    def change_from(self, old):
        """Bound of the change of all linear functionals: means in sd of this belief, variances relative."""
        if len(self.u) <= MAX_LOOP_COLUMNS:
            changes = belief_kernel.change(self.factor, self.u, old.factor, old.u, *np.empty((2, *self.factor.shape)))
            return max(changes) if np.isfinite(changes).all() else np.inf
        with np.errstate(over="ignore", invalid="ignore"):  # where the squares leave the range of float64
            # |L'(u - u_old)|, and |L^-1 L_old L_old' L^-T - I|_F of its lower triangle, both (M, M) but the shift
            shift = self.factor.T @ (self.u - old.u)
            ratio = tiled.solve(self.factor, np.ascontiguousarray(old.factor.T), self.threads)
            gap = -np.eye(len(ratio))
            tiled.add_squares(gap, ratio, ratio[:0], self.threads)
            squares = 2.0 * np.vdot(gap, gap) - np.vdot(np.diag(gap), np.diag(gap))
            change = float(np.sqrt(np.maximum(shift @ shift, squares)))
        return change if np.isfinite(change) else np.inf


class Dense(Geometry):
    """Design matrix, offsets and prior of a model, and the sums over rows that turn sites into a posterior."""

    def __init__(self, X, offset, prior_mean, prior_root, threads, folder=None):
        """`prior_root` is (D,) or (D, D): the prior covariance is its square, or root root'.

        X is an array, or a Source whose rows are read in every pass; scratch files go to the folder.
        """
        n, d = X.shape
        self.threads, self.n_rows, self.folder = threads, n, folder
        self.basis = None
        if n < d:
            # (X root)' = Q R (D, N) (N, N): f = R'a with a = Q' of the whitened weights, N(0, I) as they are
            X = read_rows(X, slice(None))
            scaled = WeightRoot(prior_root).apply(X)
            # (D, N), with orthonormal columns, and F
            self.basis, self.features = tiled.orthonormalize(scaled, threads)
            self.base = X @ prior_mean + (0.0 if offset is None else offset)
            self.prior_mean, self.root = np.zeros(n), np.ones(n)
        else:
            self.features, self.base = X, offset
            self.prior_mean, self.root = prior_mean, prior_root
        self.size = self.features.shape[1]
        self.tiled = self.size <= MAX_TILED_COLUMNS
        self.block = max(256, min(MAX_BLOCK_ROWS, CACHED_NUMBERS // max(self.size, 1))) // TILE_ROWS * TILE_ROWS
        self.groups = split_rows(n, _count_group_rows(n, self.size, self.block))
        self.stored = kind_of(self.features) in (IN_FILES, ON_WORKERS)
        self.shifted = self.prior_mean if np.any(self.prior_mean) else NO_SHIFT

    def whiten(self, h):
        """C' h C."""
        if self.root.ndim == 1:
            return self.root[:, None] * h * self.root
        return self.root.T @ h @ self.root

    def whiten_vector(self, g):
        """C' g."""
        return self.root * g if self.root.ndim == 1 else self.root.T @ g

    def belief(self, h, g):
        """The posterior whose sites sum to (h, g), or None if it is not proper."""
        solve = _factor_by_loops if self.size <= MAX_LOOP_COLUMNS else _factor_in_tiles
        if self.root.ndim == 1:
            solution = solve(h, g, self.root, self.threads)
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # where that leaves the range of float64 there is none
                solution = solve(self.whiten(h), self.whiten_vector(g), np.ones(self.size), self.threads)
        if solution is None:
            return None
        factor, u, triangle, wide = solution  # the root of the covariance of a is C L^-T
        root, step = (wide, self.root * u) if self.root.ndim == 1 else (self.root @ wide, self.root @ u)
        if self.tiled:
            root, triangle = np.ascontiguousarray(root), self._triangle(root, triangle)
        elif self.root.ndim == 2:
            triangle = None
        return DenseBelief(h, g, factor, u, self.prior_mean + step, root, triangle, self.threads)

    def _triangle(self, root, triangle):
        """The lower triangular F with F'F = root root', which is root' itself unless C is a matrix."""
        if self.root.ndim == 1:
            return np.ascontiguousarray(triangle)
        # root' J = Q R, J the columns in reverse: F = J R J
        return np.ascontiguousarray(np.linalg.qr(root.T[:, ::-1], mode="r")[::-1, ::-1])

    def prior(self):
        """The prior as a DenseBelief."""
        return self.belief(np.zeros((self.size, self.size)), np.zeros(self.size))

    def sharpen(self, belief, factor):
        """The belief with its covariance divided by `factor` and the same mean."""
        prior = np.diag(self.root**-2.0) if self.root.ndim == 1 else np.linalg.inv(self.root @ self.root.T)
        with np.errstate(over="ignore", invalid="ignore"):  # where that leaves the range of float64 there is none
            return self.belief(factor * belief.h + (factor - 1.0) * prior, factor * belief.g)

    def coordinates(self, belief, h, g):
        """A change of natural parameters in coordinates in which the Fisher metric of the belief is the identity."""
        h, g = self.whiten(h), self.whiten_vector(g)
        # L^-1 h L^-T/sqrt 2 (M, M) and L^-1 (g - h u): their squares sum to twice the divergence of a small change
        scaled, shift = whiten(belief.factor, h), solve_lower(belief.factor, g - h @ belief.u)
        return np.append(scaled.ravel() * np.sqrt(0.5), shift)

    def vector(self):
        """A number for each row, zeros; of many rows in files in a file as well."""
        if not self.stored:
            return np.zeros(self.n_rows)
        return allocate_vector(self.n_rows, is_beyond(self.features, self.n_rows), self.folder)

    def values(self, belief, part, x):
        """The means and variances of f of the rows x of a block."""
        if self.tiled:
            mean, variance = np.empty(len(x)), np.empty(len(x))
            dense_kernel.moments(x, self._base(part), belief.mean, belief.triangle, mean, variance)
            return mean, variance
        mean = x @ belief.mean
        if self.base is not None:
            mean += self.base[part]
        triangle = belief.triangle
        # (n, M): V_ii = |x_i root|^2
        spread = x @ belief.root if triangle is None else tiled.solve(triangle, x.copy(), inverted=True)
        return mean, np.einsum("ij,ij->i", spread, spread)

    def _base(self, part):
        """What kernels read of the offsets of a block."""
        return NO_BASE if self.base is None else self.base[part]

    def add(self, part, x, tau, rho, h, g):
        """Add the sites of a block to the sums."""
        if self.tiled:
            dense_kernel.add(x, self._base(part), self.shifted, tau, rho, h, g)
            return h, g
        g += x.T @ (tau - rho * (x @ self.prior_mean + self._base(part)))
        up, weighted = rho > 0, np.sqrt(np.abs(rho))[:, None] * x
        down = rho < 0
        # h += X' R X, (M, n) (n, M) for each sign of rho: the lower triangle only, until `reduce` is done
        tiled.add_squares(h, weighted[up] if down.any() else weighted, weighted[down])
        return h, g

    def renew(self, sites, belief, part, x, tau, rho, up, down, h, g):
        """Renew the sites of a block from one belief and add them to the sums."""
        if self.tiled and sites.compiled:
            new_tau, new_rho = np.empty(len(x)), np.empty(len(x))
            rows, moments = (x, self._base(part)), (belief.mean, belief.triangle)
            unresolved, skipped = dense_kernel.renew(
                *sites.arguments(part), *rows, *moments, self.shifted, tau, rho, up, down, new_tau, new_rho, h, g
            )
            if unresolved < 0:
                return new_tau, new_rho, skipped, h, g
        return super().renew(sites, belief, part, x, tau, rho, up, down, h, g)

    def run_passes(self, schedule, sites, belief, tau, rho, best, most, tol):
        """Do undamped passes in one call, see `Geometry.run_passes`, where all rows are one block in memory."""
        is_block = not self.stored and self.n_rows <= self.block and len(self.groups) == 1
        if schedule != "parallel" or not (
            is_block and self.tiled and 0 < self.size <= MAX_LOOP_COLUMNS and self.root.ndim == 1
        ):
            return None
        changes = np.empty(min(most, max(1, MAX_CALL_ROWS // self.n_rows)))  # Ctrl-C interrupts between two calls
        site_parameters, numbers = np.empty((2, 2, self.n_rows)), np.empty((2, 3 + 4 * self.size, self.size))
        site_parameters[0] = tau, rho
        numbers[0, 0], numbers[0, 1] = belief.mean, belief.u
        numbers[0, 3 : 3 + 2 * self.size] = np.concatenate([belief.factor, belief.triangle])
        block = slice(0, self.n_rows)
        done = dense_kernel.converge(
            *sites.arguments(block), read_rows(self.features, block), self._base(block), self.shifted, self.root,
            site_parameters, numbers, best, PROGRESS_RATIO, tol, changes,
        )  # fmt: skip
        if not done:
            return None
        mean, u, g = numbers[done % 2, :3]
        factor, triangle, root, h = numbers[done % 2, 3:].reshape(4, self.size, self.size)
        new = DenseBelief(h, g, factor, u, mean, root, triangle, self.threads)
        return changes[:done].tolist(), new, tuple(site_parameters[done % 2]), tuple(site_parameters[1 - done % 2])

    def choose_first_rows(self, sites, most):
        """Return some of the rows, one of each of as many runs of equal length: passes for all rows take less time."""
        n, count = min(most, self.n_rows), max(MIN_FIRST_ROWS, FIRST_ROWS_PER_COLUMN * self.size)
        if n <= count or not self._goes_one_by_one(sites):
            return slice(0, n)
        if not self.stored and sites.are_in_order(n):
            return np.random.default_rng(ORDER_SEED).permutation(self.n_rows)[:n]
        edges = np.arange(count + 1) * n // count  # of runs; no period of rows is that of those chosen
        rows = edges[:-1] + (np.arange(count) * GOLDEN_STEP % 2**16 * np.diff(edges) >> 16)
        # under a wide prior few rows may be separated: f of the others is far from the scale of the likelihood then
        for _, x in self._read_in_turn(rows, SWEEP_ROWS):
            spread = x * self.root if self.root.ndim == 1 else x @ self.root
            if not np.max(np.einsum("ij,ij->i", spread, spread)) < LARGEST_PRIOR_SD**2:
                return slice(0, n)
        return rows

    def each_group(self, function):
        """Yield function(blocks) for the groups of rows, in order; threads take groups."""
        if self.stored:
            source = Source(self.features.parts, self.features.name, self.groups[0][1])
            results = map_runs(self._group, function, [source], self.threads, grain=1)
        else:
            results = self.threads.imap(lambda *span: function(self._blocks(slice(*span))), self.groups)
        with closing(results):
            for done, result in enumerate(results, 1):
                yield result
                if self.threads.job is not None:
                    self.threads.job.report_share(done, len(self.groups), self.n_rows)

    def _group(self, run, function):
        """A task for rows that have been read."""
        return function(self._blocks(slice(run.start, run.stop), run.arrays[0]))

    def _blocks(self, group, x=None):
        """The blocks of a group of rows in order, with their rows."""
        for low, high in split_rows(group.stop - group.start, self.block):
            part = slice(group.start + low, group.start + high)
            yield part, read_rows(self.features, part) if x is None else x[low:high]

    def reduce(self, task):
        """Run task(part, x, h, g) -> h, g, number over all blocks; return h, g and the sum, in a fixed order."""
        return self.complete_sums(*merge(self.each_group(lambda blocks: self.sum_blocks(task, blocks))))

    def sum_blocks(self, task, blocks):
        """The sums that task(part, x, h, g) makes of some blocks; see `complete_sums`."""
        h, g, total = np.zeros((self.size, self.size)), np.zeros(self.size), 0.0
        for part, x in blocks:
            h, g, extra = task(part, x, h, g)
            total += extra
        return h, g, total

    def complete_sums(self, h, g, total):
        """The sums of all blocks with all of h."""
        return h if self.tiled else fill_symmetric(h), g, total

    # --------------------------------------------------------------------------------- one site after the other

    def sweep(self, sites, belief, part, tau, rho, up, down):
        """Visit the sites of a slice of rows, or of chosen ones, one after the other; tau, rho change in place.

        Returns
        -------
        belief, skipped, log_z
            The belief of all sites (None if it is not proper), the number of sites left alone, and the sum of log
            normalisers of the others.
        """
        moments = belief.mean.copy(), belief.covariance()
        *_, skipped, gained = self.visit_from(sites, *moments, part, tau, rho, up, down)
        return self.belief(*self.gather(tau, rho)), skipped, add_in_order(gained)

    def visit_from(self, sites, mean, covariance, part, tau, rho, up, down):
        """Visit them from moments of the coordinates, which change in place; return these, how many were left alone,
        and the log normalisers of the others, in parts.
        """
        walk = self._one_by_one if self._goes_one_by_one(sites) else self._block_by_block
        return walk(sites, mean, covariance, part, tau, rho, up, down)

    def _goes_one_by_one(self, sites):
        """Whether `visit_from` updates the moments of the coordinates after each site."""
        return sites.compiled and self.size <= MAX_RANK_ONE_COLUMNS

    def _one_by_one(self, sites, mean, covariance, part, tau, rho, up, down):
        """A rank-1 update of the covariance of the coordinates for each site."""
        skipped, log_z = 0, []
        for block, x in self._read_in_turn(part, SWEEP_ROWS):  # Ctrl-C interrupts between kernel calls
            arguments, own = sites.arguments(block), (tau[block], rho[block])
            missed, gained = kernel.sweep_rows(*arguments, x, self._base(block), mean, covariance, *own, up, down)
            tau[block], rho[block] = own
            skipped += missed
            log_z.append(gained)
        return mean, covariance, skipped, log_z

    def _read_in_turn(self, part, size):
        """Slices of so many rows each of a slice, with their rows; or chosen rows, all of them."""
        if isinstance(part, np.ndarray):
            yield part, read_rows(self.features, slice(0, np.max(part) + 1))[part]
            return
        n = part.stop - part.start
        spans = [(part.start + low, part.start + high) for low, high in split_rows(n, size)]
        for block, x in iterate_spans(self.features, spans):
            yield block, x
            if self.threads is not None and self.threads.job is not None:
                self.threads.job.report_share(block.stop - part.start, n, n)

    def _block_by_block(self, sites, mean, covariance, part, tau, rho, up, down):
        """The same schedule at BLAS-3 speed.

        Within a block of B rows the sites see each other through the B x B covariance of their f; then the covariance
        of the coordinates takes all B changes at once.
        """
        size = self.joint_rows
        skipped, log_z, other = 0, [], np.empty_like(covariance)
        blocks = (
            (slice(indices.start + low, indices.start + high), x[low:high])
            for indices, x in self._read_in_turn(part, SWEEP_ROWS // size * size)
            for low, high in split_rows(len(x), size)
        )
        for block, x in blocks:
            own_tau, own_rho = tau[block], rho[block]
            before_tau, before_rho = own_tau.copy(), own_rho.copy()
            spread = x @ covariance  # U = X S (B, M)
            joint = spread @ x.T  # V = X S X' (B, B)
            f = x @ mean
            if self.base is not None:
                f += self.base[block]
            missed, gained = visit_sites(sites, block, f.copy(), joint.copy(), own_tau, own_rho, up, down)
            tau[block], rho[block] = own_tau, own_rho
            skipped += missed
            log_z.append(gained)
            d_tau, d_rho = own_tau - before_tau, own_rho - before_rho
            system = d_rho[:, None] * joint
            system[np.diag_indices_from(system)] += 1.0
            right = np.column_stack([d_tau - d_rho * f, d_rho[:, None] * spread])
            # (I + R V)^-1 [r, R U] (B, 1 + M): the mean moves by U' of its first column, S by -U' of the rest
            solution = np.linalg.solve(system, right)
            mean += spread.T @ solution[:, 0]
            covariance, other = self._subtract_update(covariance, spread, solution[:, 1:], other), covariance
        return mean, covariance, skipped, log_z

    def _subtract_update(self, covariance, spread, change, out):
        """The covariance less U' change, made symmetric; both matrices are overwritten, threads share their rows."""

        def take(part):
            covariance[part] -= spread[:, part].T @ change

        def mean(part):
            np.add(covariance[part], covariance[:, part].T, out=out[part])
            out[part] *= 0.5

        parts = [(slice(low, low + ROWS_PER_THREAD_TASK),) for low in range(0, len(out), ROWS_PER_THREAD_TASK)]
        threads = self.threads or tiled.ONE_THREAD  # a worker of dask has none
        threads.run(take, parts)
        threads.run(mean, parts)
        return out

    @property
    def joint_rows(self):
        """Rows whose sites are visited one by one, and change the moments of the coordinates together."""
        return int(np.clip(self.size // 2, 8, 64))
