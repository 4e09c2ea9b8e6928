"""Large lower triangles, worked on in tiles by several threads, with the same bits for any number of them.

The bits of BLAS' own threads depend on their number, so BLAS is held to one thread, and every task here is a call of it
on fixed tiles. Below MIN_TILED_ROWS rows LAPACK takes the whole matrix.

Matrices are C-contiguous; only their lower triangles are read and written.
"""

from functools import cache
from itertools import pairwise

import numpy as np

from cavity.base.lazy_scipy import LazyModule, lapack, linalg
from cavity.runs.executors import Threads

_kernel, _stacked = LazyModule("cavity._core.tiled"), LazyModule("cavity._core.stacked")  # they load SciPy

TILE_ROWS, LEAF_ROWS = 256, 128  # rows of tiles, and of those that are inverted first, in the kernel
MIN_TILED_ROWS = 768  # rows from which tiles are as fast as LAPACK on one thread
ONE_THREAD = Threads(1)
ENTRIES_PER_TASK = 1 << 20  # of the square around a triangle in a task of `by_rows`
MOST_FLOPS = 1e9  # of a call of the kernel, some 20 milliseconds: then Ctrl-C takes effect
FEW_FLOPS = 2e6  # of a round that one thread does by itself: handing over would cost as much
MANY_FLOPS = 5e7  # the same where threads are not requested: some milliseconds


def _round(threads, function, *arguments, flops=np.inf, size=2):
    """Let the threads share the tasks of a function of the kernel; return the `size` numbers that these leave."""
    state = np.zeros(size, np.longlong)
    workers = 1 if flops < (MANY_FLOPS if threads.is_adaptive else FEW_FLOPS) else threads.count
    threads.run(_work, [(function, arguments, state)] * workers, shared=True)
    return state


def _work(function, arguments, state):
    """Call a function of the kernel again and again, until there are no more tasks or one call is interrupted."""
    try:
        while not state[1]:
            function(*arguments, state, MOST_FLOPS)
    finally:
        state[1] = 1


def factor(a, threads):
    """Replace a symmetric matrix by its Cholesky factor L, a = L L'; return 0 or the number, from 1, of a bad pivot.

    That is the first one that is not positive.
    """
    n = len(a)
    if n < MIN_TILED_ROWS:
        return max(0, lapack.dpotrf(a.T, lower=0, overwrite_a=1, clean=0)[1])
    tiles = -(-n // TILE_ROWS)
    return int(_round(threads, _kernel.factor, a, _order(tiles), size=3 + tiles * tiles)[2])


@cache
def _order(tiles):
    """The tasks of `factor` in the order in which they are begun: row, column, and how far to the left it is done.

    What far columns need is put off, half of the way to them, to when the next ones would keep threads waiting.
    """
    tasks = [
        (done + column, column, row, done)
        for column in range(tiles)
        for row in range(column, tiles)
        for done in range(min(column, 1), column + 1)
    ]
    return np.array([(row, column, done) for _, column, row, done in sorted(tasks)], np.longlong)


def clear(triangle):
    """Put zeros above a triangle."""
    for i, row in enumerate(triangle):
        row[i + 1 :] = 0.0


def invert(triangle, threads):
    """Replace a triangle with a positive diagonal by its inverse."""
    n, size = len(triangle), LEAF_ROWS
    _round(threads, _kernel.invert_leaves, triangle, flops=n * LEAF_ROWS * LEAF_ROWS)
    while size < n:
        for last in (False, True):
            _round(threads, _kernel.join_inverses, triangle, size, last, flops=size * size * n)
        size *= 2


def square(triangle, threads):
    """Replace a triangle L by the lower triangle of L'L."""
    n = len(triangle)
    if n < MIN_TILED_ROWS:
        lapack.dlauum(triangle.T, lower=0, overwrite_c=1)
        return
    tile = np.zeros((TILE_ROWS, TILE_ROWS))
    for at in range(TILE_ROWS, n + TILE_ROWS, TILE_ROWS):
        own = triangle[at - TILE_ROWS : at, at - TILE_ROWS : at]
        tile[: len(own), : len(own)] = own
        _round(threads, _kernel.square_rows, triangle, tile, at, flops=1.0 * at * at * TILE_ROWS)


def add_squares(a, up, down, threads=ONE_THREAD):
    """Add up' up - down' down, of rows (m, N) and (k, N), to the lower triangle of a."""
    up, down = np.ascontiguousarray(up), np.ascontiguousarray(down)
    _round(threads, _kernel.add_squares, a, up, down, flops=1.0 * len(a) ** 2 * (len(up) + len(down)))


def solve(triangle, rows, threads=ONE_THREAD, *, inverted=False, transposed=False):
    """Apply L^-1, or L^-T, to rows (n, N), in place if they are C-contiguous; the triangle is L, or L^-1 if so said."""
    rows = np.ascontiguousarray(rows)
    _round(threads, _kernel.apply, triangle, inverted, transposed, rows, flops=1.0 * len(rows) * len(triangle) ** 2)
    return rows


def stack(triangle, columns, threads, *, triangular=False):
    """Replace L by a triangle of L L' + C C', C = columns (N, m), without squares: they keep all digits.

    The columns are overwritten; `triangular` says that C is lower triangular, too. The new triangle's diagonal may have
    any sign. It is the transposed factor of L' with the rows C' below.
    """
    n, m = columns.shape
    # one run of columns leaves nothing to share: few calls of BLAS are faster, above all on several threads at once
    height = _stacked.ROWS if n > _stacked.COLUMNS else max(m, 1)
    runs, tiles = -(-n // _stacked.COLUMNS), -(-m // height)
    tasks = _steps(runs, tiles, _stacked.ROWS // _stacked.COLUMNS if triangular else 0)
    factors = np.empty((tiles, n, _stacked.TOGETHER))
    size = 2 + (runs + tiles) * runs
    _round(threads, _stacked.stack, triangle, columns, factors, height, tasks, flops=2.0 * m * n * n, size=size)


@cache
def _steps(runs, tiles, later):
    """The tasks of `stack` in the order in which they are begun: tile of rows, run of columns, run moved, first run.

    Each tile of rows, whose first nonzero run is `later` than that of the one before, follows that one a step behind.
    """
    tasks = [
        (tile + run, tile, run, moved, later * tile)
        for tile in range(tiles)
        for run in range(later * tile, runs)
        for moved in range(run, runs)
    ]
    return np.array([task[1:] for task in sorted(tasks)], np.longlong).reshape(-1, 4)


def orthonormalize(rows, threads):
    """Return Q (D, n), with orthonormal columns, and the lower triangle L (n, n), with rows = L Q' (n, D), n <= D.

    By Householder reflections, a panel of them at a time: I - V T V' [S]_.

    .. [S] R. Schreiber and C. Van Loan, "A Storage-Efficient WY Representation for Products of Householder
       Transformations", SIAM Journal on Scientific and Statistical Computing 10 (1989), 53-57.
    """
    n = len(rows)
    if n < MIN_TILED_ROWS:
        q, upper = linalg.qr(rows.T, mode="economic", check_finite=False)
        return q, np.ascontiguousarray(upper.T)
    rows, q, panels = rows.copy(), np.eye(*rows.shape), []
    for at in range(0, n, LEAF_ROWS):
        below = at + min(LEAF_ROWS, n - at)
        # factored in place, (D - at, own): R above the diagonal, below it V with a diagonal of ones
        panel = np.asfortranarray(rows[at:below, at:].T)
        panel, scales, *_ = lapack.dgeqrf(panel, lwork=LEAF_ROWS * LEAF_ROWS, overwrite_a=1)
        v = np.tril(panel, -1)
        np.fill_diagonal(v, 1.0)
        rows[at:below, at:] = np.triu(panel).T  # which may be the memory of the panel
        t, products = np.diag(scales), v.T @ v
        for i, scale in enumerate(scales):
            t[:i, i] = -scale * (t[:i, :i] @ products[:i, i])
        panels.append((at, np.ascontiguousarray(v.T), t))
        _reflect(rows[below:, at:], panels[-1][1], t, threads)
    for at, v, t in reversed(panels):
        _reflect(q[at:, at:], v, t.T, threads)
    return q.T, np.tril(rows[:, :n])


def _reflect(rows, v, t, threads):
    """Take rows v' t v away from rows; threads share these."""

    def apply_rows(first):
        chosen = rows[first : first + TILE_ROWS]
        chosen -= chosen @ v.T @ t @ v

    threads.run(apply_rows, [(first,) for first in range(0, len(rows), TILE_ROWS)])


def run_by_rows(threads, function, n, *arguments):
    """Call function(*arguments, start, stop) on ranges of n rows with equally many entries of a triangle."""
    if n * n < 2 * ENTRIES_PER_TASK:
        function(*arguments, 0, n)
        return
    edges = (n * np.sqrt(np.linspace(0.0, 1.0, n * n // ENTRIES_PER_TASK + 1))).astype(int).tolist()
    threads.run(function, [(*arguments, *ends) for ends in pairwise(edges)])
