"""Sparse symmetric matrices of one pattern: factors, log determinants, solves and selected inverses.

The pattern is analysed once: pivots are put in an order that fills little, the tree of elimination is cut into
supernodes (neighbouring columns with the same rows, stored as one dense panel) and into rounds of independent tasks.
All this depends on the pattern alone, so the bits do not depend on the number of threads. Supernodes of many products
are worked on by all threads, in tiles.
"""

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import LazyModule, sparse
from cavity.linalg import tiled
from cavity.runs.executors import single_blas, split_range

_analysis = LazyModule("cavity._core.elimination")
_kernel = LazyModule("cavity._core.supernodal")  # it loads SciPy

# columns of more entries than this, and than this times the root of n, come last
MIN_DENSE_ENTRIES, MIN_DENSE_ROOTS = 16, 10
STEPS_PER_CALL = 10_000_000  # of the analysis, in a call of its kernel
MIN_FILL_PRODUCTS = 1e9  # of a factor, some tenths of a second, from which a better order is looked for
# cost in products of a supernode, of an entry of its update and of an entry of its panel
CALL_COST, SPREAD_COST, ENTRY_COST = 500.0, 30.0, 200.0
PRODUCTS_PER_TASK = 1e7  # some ms
TASKS_PER_CALL = 4
# several threads work on a supernode of more products, or of more rows below it
MIN_LARGE_PRODUCTS, MAX_SINGLE_THREAD_ROWS = 3e7, 1024
MIN_ROWS_PER_TILE, MAX_TILES = 32, 8  # of a large supernode: rows of a task, and tasks, if there are enough rows
ENTRIES_PER_SOLVE = 10_000_000  # of L, in a call of the kernel
RIGHT_SIDES_PER_SOLVE = 32  # at most, if they are few numbers


def fill_reducing_order(indptr, indices):
    """Return a fill-reducing order (n,) of a symmetric pattern by columns.

    It is minimum degree, or in place of an order of many products that of least fill, where it has fewer.
    """
    indptr, indices = np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(indices, np.int32)
    order = _order_by_degree(indptr, indices)
    counts = _find_tree(indptr, indices, order)[-1].astype(float)
    products = float(counts @ counts)
    if products < max(MIN_FILL_PRODUCTS, len(order) ** 2):  # n^2 is what the search for the least fill takes
        return order
    other = _order_by_fill(indptr, indices, int(np.sum(counts)))
    counts = counts if other is None else _find_tree(indptr, indices, other)[-1].astype(float)
    return other if float(counts @ counts) < products else order


def _order_by_degree(indptr, indices):
    """Return the order (n,) of SuperLU's minimum degree.

    Columns with very many entries come last, the fewest first: the time of minimum degree grows with the square of
    these. The incomplete factorisation that it belongs to drops all entries, so that the order is what takes time.
    """
    from scipy.sparse.linalg import spilu

    n = len(indptr) - 1
    half = sparse.csc_array((np.ones(len(indices)), indices, indptr), shape=(n, n))
    matrix = (sparse.eye_array(n) + 1e-3 / n * (half + half.T)).tocsc()
    degrees = np.diff(matrix.indptr)
    many = degrees > max(MIN_DENSE_ENTRIES, MIN_DENSE_ROOTS * np.sqrt(n))
    first, last = np.flatnonzero(~many), np.flatnonzero(many)
    last = last[np.argsort(degrees[last], kind="stable")]
    if len(first) == 0:
        return last
    options = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    order = spilu(matrix[first][:, first].tocsc(), drop_tol=1.0, fill_factor=1, **options).perm_c
    return np.concatenate([first[np.argsort(order)], last])


def _order_by_fill(indptr, indices, most):
    """Return the order (n,) of least fill, about, or None if L has more than `most` entries."""
    n = len(indptr) - 1
    columns = np.repeat(np.arange(n), np.diff(indptr))
    rows, columns = indices[indices != columns], columns[indices != columns]
    ones, ends = np.ones(2 * len(rows)), (np.append(rows, columns), np.append(columns, rows))
    both = sparse.coo_array((ones, ends), (n, n)).tocsc()
    length, begin, size = np.diff(both.indptr).astype(np.int32), np.zeros(n + 1, np.int64), np.zeros(2 * n, np.int32)
    lists = both.indptr.astype(np.int64), both.indices.astype(np.int32), length, length.astype(float) ** 2
    order = np.empty(n, np.int32)
    work = size - 1, begin, size, np.empty(most, np.int32), order
    return order if _in_steps(_analysis.order_by_fill, n, *lists, *work) == n else None


def _in_steps(kernel, n, *arguments):
    """Call a function of the analysis until it has done all rows; return the last row."""
    at = 0
    while at < n:
        at = kernel(*arguments, at, STEPS_PER_CALL)
    return at


def _find_tree(indptr, indices, order):
    """Return the places of pivots, the permuted pattern, its tree and the numbers of entries of the columns of L."""
    n = len(order)
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    at, earlier = np.empty(n + 1, np.int64), np.empty(len(indices) + 1, np.int32)
    _analysis.permuted(indptr, indices, place, at, earlier)
    parent, counts = np.empty(n, np.int32), np.zeros(n, np.int32)
    _analysis.tree(at, earlier, np.empty(n, np.int32), parent)
    _in_steps(_analysis.count, n, at, earlier, parent, np.zeros(n, np.int32), counts)
    return place, at, earlier, parent, counts


def _offsets(lengths):
    """Where pieces of these lengths begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


class SparseCholesky:
    """Factors of symmetric matrices (n, n) of one sparse pattern, which is analysed once.

    Numbers stand in an array `values` (n_entries,): those of the matrix, then those of L, then those of the selected
    inverse, which is the inverse where L has entries. Entries of the matrix are written where `positions` says, over
    zeros.

    Parameters
    ----------
    indptr, indices : array_like of int (n + 1,), (m,)
        The pattern by columns. Entries may stand in either triangle; the diagonal always belongs to it.
    order : array_like of int (n,), optional
        The pivots from the first to the last; by default `fill_reducing_order`.

    Attributes
    ----------
    n, n_entries : int
        Size of the matrix, and of `values`.
    order : ndarray of int32 (n,)
        Pivots in the order in which they are eliminated: the requested one, up to changes that leave L as it
        was.
    """

    def __init__(self, indptr, indices, order=None):
        indptr = np.ascontiguousarray(indptr, np.int64)
        indices = np.ascontiguousarray(indices, np.int32)
        self.n = n = len(indptr) - 1
        order = fill_reducing_order(indptr, indices) if order is None else order
        self._first_order = np.ascontiguousarray(order, np.int32)
        if not np.array_equal(np.sort(self._first_order), np.arange(n)):
            raise arrays.error_of("order", f"must have each of the numbers 0 to {n - 1} once")
        self._analyse(indptr, indices)

    def _analyse(self, indptr, indices):
        """Find the tree, an order in which its subtrees lie together, and the supernodes."""
        n = self.n
        parent, counts = _find_tree(indptr, indices, self._first_order)[3:]
        last_first = np.lexsort((-np.arange(n), -counts)).astype(np.int32)  # of equal ones that with most before it
        post = np.empty(n, np.int32)
        _analysis.postorder(parent, last_first, np.empty(n + 1, np.int32), np.empty(n, np.int32), post)
        self.order = self._first_order[post]
        self._rank = post  # place of each pivot in the requested order
        self._place, at, earlier, parent, counts = _find_tree(indptr, indices, self.order)
        first, rows = np.empty(n + 1, np.int32), np.empty(n, np.int32)
        S = _analysis.supernodes(parent, counts, np.array([CALL_COST, SPREAD_COST, ENTRY_COST]), first, rows)
        first, rows = first[: S + 1].copy(), rows[:S]
        widths = np.diff(first)
        self._first, self._member = first, np.repeat(np.arange(S, dtype=np.int32), widths)
        self._below = rows - widths
        above = parent[first[1:] - 1]
        self._parent = np.where(above >= 0, self._member[above], -1).astype(np.int32)
        self._starts = _offsets(rows.astype(np.int64) * widths)
        self.n_entries = int(self._starts[-1])
        arrays.allocate_matrix((1, self.n_entries), f"the sparse factor of a matrix of {n} rows, its panels in a row,")
        local = np.arange(n) - np.repeat(first[:-1], widths)
        self._diagonal = (np.repeat(self._starts[:-1], widths) + local * (np.repeat(widths, widths) + 1))[self._place]
        self._rows(at, earlier, widths)

    def _rows(self, at, earlier, widths):
        """Find the rows below each supernode, which ones update it, and the rounds of tasks."""
        S = len(widths)
        rows_at = _offsets(self._below)
        rows = np.zeros(rows_at[-1] + 1, np.int32)
        mark, free = np.full(S, -1, np.int32), rows_at[:-1].copy()
        _in_steps(_analysis.below, self.n, at, earlier, self._member, self._parent, mark, free, rows)
        sources_at, products, none = np.zeros(S + 1, np.int64), np.zeros(S), np.empty(0, np.int32)
        _analysis.sources(self._first, rows_at, rows, self._member, sources_at, products, none, none)
        sources_at = np.cumsum(sources_at)
        sources, begins = np.zeros((2, sources_at[-1] + 1), np.int32)
        free = sources_at.copy()
        _analysis.sources(self._first, rows_at, rows, self._member, free, products, sources, begins)
        self._nodes = _kernel.Supernodes(
            self._first, self._member, rows_at, rows, self._starts, sources_at, sources, begins
        )
        self._plan(widths.astype(float), self._below.astype(float), products)

    def _plan(self, w, b, products):
        """Cut the supernodes into rounds of tasks, and name those that are large."""
        S, self._products = len(w), products
        cost = CALL_COST + products + w * (w + b) ** 2 + 2.0 * w * b * b
        task, turn = np.empty(S, np.int32), np.zeros(S, np.int32)
        _analysis.rounds(self._parent, cost, PRODUCTS_PER_TASK, task, turn, np.zeros(S))
        large = (cost > MIN_LARGE_PRODUCTS) | ((w > 1) & (b > MAX_SINGLE_THREAD_ROWS))
        own = np.where(large | (w == 1), b, b * b + b * w + w * w)
        self._tile = _kernel.TILE * min(_kernel.TILE, int(np.max(w + b, initial=1.0)))  # numbers of a product of panels
        self._square = int(np.max(own, initial=self._tile))
        small = np.flatnonzero(~large)
        schedule = small[np.lexsort((small, task[small], turn[small]))]
        begins = np.flatnonzero(np.diff(task[schedule], prepend=-1))  # of subtrees, of which some make a task
        turns = turn[schedule[begins]]
        spent = np.cumsum(cost[schedule])
        bundle = (spent[begins] // PRODUCTS_PER_TASK).astype(np.int64)
        begins = begins[(np.diff(turns, prepend=-1) != 0) | (np.diff(bundle, prepend=-1) != 0)]
        self._schedule = schedule.astype(np.int32)
        self._tasks_at = np.append(begins, len(schedule)).astype(np.int64)
        self._most_below = int(self._below.max(initial=1))
        steps = [*dict.fromkeys(np.searchsorted(self._starts, range(0, self.n_entries, ENTRIES_PER_SOLVE)).tolist())]
        self._solve_steps = [*zip(steps, [*steps[1:], S], strict=True)]  # supernodes of a call
        turns = turn[schedule[begins]]
        self._rounds = [
            (*np.searchsorted(turns, [k, k + 1]).tolist(), np.flatnonzero(large & (turn == k)).tolist())
            for k in range(int(turn.max(initial=0)) + 1)
        ]

    def positions(self, rows, columns):
        """Return where the entries (i, j) of the matrix stand in `values`, int64 (m,); either triangle is meant.

        Raises
        ------
        ValueError
            Where the pattern of L has no such entry.
        """
        rows, columns = (np.ascontiguousarray(a, np.int64) for a in (rows, columns))
        out = np.empty(len(rows), np.int64)
        for start in range(0, len(rows), 1 << 19):
            part = slice(start, start + (1 << 19))
            _kernel.positions(self._nodes, self._place, rows[part], columns[part], out[part])
        if len(out) and out.min() < 0:
            k = int(np.argmin(out))
            raise ValueError(f"the pattern has no entry in row {rows[k]}, column {columns[k]}")
        return out

    def factor(self, values, threads):
        """Replace the matrix by its factor L; return 0 or the number, from 1, of a row whose pivot is not positive.

        That is the first one in the requested order. What stands in `values` then is of no use.
        """
        failed = np.zeros(len(self._starts) - 1, np.int32)
        work = self._work(threads, self._tile)
        with single_blas():
            for start, stop, large in self._rounds:
                arguments = self._nodes, values, self._schedule, self._tasks_at, failed
                _share(threads, range(start, stop), TASKS_PER_CALL, _kernel.factor, arguments, work)
                for s in large:
                    failed[s] = self._factor_large(values, s, threads, work, failed)
        bad = np.flatnonzero(failed > 0)
        pivots = self._first[bad] + failed[bad] - 1
        return int(self.order[pivots[np.argmin(self._rank[pivots])]]) + 1 if len(bad) else 0

    def _work(self, threads, size):
        """Work arrays of the threads."""
        return [(np.empty(self._most_below + 1, np.int32), np.empty(size)) for _ in range(threads.count)]

    def _panel(self, values, s):
        """The panel of a supernode: its own rows (w, w), and those below (b, w)."""
        w = int(self._first[s + 1] - self._first[s])
        panel = values[self._starts[s] : self._starts[s + 1]].reshape(-1, w)
        return panel[:w], panel[w:]

    def _factor_large(self, values, s, threads, work, failed):
        """Factor a large supernode on all threads; return the result of `failed`."""
        corner, low = self._panel(values, s)
        count = _kernel.sources_of(self._nodes, s)
        for part in split_range(count, int(np.ceil(self._products[s] / (2.0 * PRODUCTS_PER_TASK)))):
            _tiles(threads, len(corner) + len(low), 0.0, _kernel.update_rows, (self._nodes, values, s, *part), work)
        bad = tiled.factor(corner, threads)
        diagonal = corner.diagonal()
        if not bad and not np.all(diagonal > 0.0):  # a nan that LAPACK has let pass
            bad = int(np.argmin(diagonal > 0.0)) + 1
        if not bad and len(low):
            tiled.solve(corner, low, threads)
        return _kernel.verdict_on(self._nodes, s, bad, failed)

    def log_determinant(self, values):
        """Return the log determinant of the matrix, from its factor."""
        return float(2.0 * np.sum(np.log(values[self._diagonal])))

    def diagonal(self, values):
        """Return what stands on the diagonal, (n,)."""
        return values[self._diagonal]

    def solve(self, values, b, threads, *, half="both"):
        """Solve with the matrix whose factor stands in `values`.

        Parameters
        ----------
        values : ndarray (n_entries,)
            The factor L.
        b : array_like (n,) or (k, n)
            Right hand sides.
        threads : Threads
            That solve.
        half : {"both", "forward", "backward"}
            "forward" returns y with L y = P b, its pivots in the order of elimination, and "backward" P' L^-T b of such
            a b: of independent standard normals it is a draw whose precision is the matrix.

        Returns
        -------
        ndarray of the shape of b
        """
        b = np.asarray(b, float)
        rows = b.reshape(-1, self.n)
        out = np.empty_like(rows, order="C")
        size = max(1, min(RIGHT_SIDES_PER_SOLVE, ENTRIES_PER_SOLVE // (2 * self.n)))
        parts = [slice(at, at + size) for at in range(0, len(rows), size)]
        with single_blas():
            threads.run(self._solve_rows, [(values, rows[part], half, out[part]) for part in parts])
        return out.reshape(b.shape)

    def _solve_rows(self, values, rows, half, out):
        """Solve for a few right hand sides (k, n)."""
        x = np.array((rows if half == "backward" else rows[:, self.order]).T, order="C")
        work = np.empty(self._most_below * len(rows) + 1)
        if half != "backward":
            for start, stop in self._solve_steps:
                _kernel.forward(self._nodes, values, start, stop, x, work)
        if half != "forward":
            for start, stop in reversed(self._solve_steps):
                _kernel.backward(self._nodes, values, start, stop, x, work)
        out[:] = x.T if half == "forward" else x[self._place].T

    def invert(self, values, threads):
        """Replace the factor L by the selected inverse: the entries of the inverse where L has entries."""
        work = self._work(threads, self._square)
        with single_blas():
            for start, stop, large in reversed(self._rounds):
                for s in reversed(large):
                    self._invert_large(values, s, threads)
                arguments = self._nodes, values, self._schedule, self._tasks_at, start + stop - 1
                _share(threads, range(start, stop), TASKS_PER_CALL, _kernel.invert, arguments, work)

    def _invert_large(self, values, s, threads):
        """The selected inverse of a large supernode, on all threads: see `invert_panel` in the kernel."""
        corner, low = self._panel(values, s)
        if len(low):
            tiled.solve(corner, low, threads, transposed=True)
        tiled.invert(corner, threads)
        tiled.square(corner, threads)
        if len(low):
            strips = np.empty(low.shape)
            work = self._work(threads, _kernel.TILE * max(_kernel.TILE, len(low)))
            arguments = self._nodes, values, s, strips
            _tiles(threads, len(low), low.size, _kernel.inverse_strips, arguments, work)
            arguments = corner, low, strips
            _tiles(threads, len(corner), low.size, _kernel.inverse_corner, arguments, [item[1:] for item in work])
            np.negative(strips, out=low)


def _share(threads, tasks, most, kernel, arguments, work):
    """Let the threads call a kernel, which share its tasks; each does at most so many of them in a call."""
    counter = np.array([tasks.start], np.int64)
    while counter[0] < tasks.stop:
        several = work[: tasks.stop - int(counter[0])]
        if len(several) == 1:
            kernel(*arguments, tasks.stop, most, *several[0], counter)
            continue
        threads.run(kernel, [(*arguments, tasks.stop, most, *group, counter) for group in several], shared=True)


def _tiles(threads, rows, products, kernel, arguments, work):
    """Let the threads call a kernel, whose tasks are rows, each of so many products."""
    size = min(_kernel.TILE, MIN_ROWS_PER_TILE * -(-rows // (MIN_ROWS_PER_TILE * MAX_TILES)))
    most = max(1, int(TASKS_PER_CALL * PRODUCTS_PER_TASK / (size * products + 1.0)))
    _share(threads, range(-(-rows // size)), most, kernel, (*arguments, size), work)
