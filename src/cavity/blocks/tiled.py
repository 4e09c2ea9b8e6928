"""Large lower triangles, worked on in tiles by several threads, with the same bits for any number of them.

The bits of BLAS' own threads depend on their number, so BLAS is held to one thread, and every task here is a call of it
on fixed tiles. Below MANY rows LAPACK takes the whole matrix.

Matrices are C-contiguous; only their lower triangles are read and written.
"""

from itertools import pairwise

import numpy as np

from cavity.base.lazy import Lazy, lapack
from cavity.blocks.executors import Threads

_kernel = Lazy("cavity._core.tiled")  # it loads SciPy

TILE, LEAF = 256, 128  # rows of tiles, and of those that are inverted first, in the kernel
MANY = 768  # rows from which tiles are as fast as LAPACK on one thread
ALONE = Threads(1)
ENTRIES = 1 << 20  # of the square around a triangle in a task of `by_rows`
FEW_FLOPS = 2e6  # of a round that one thread does by itself: handing over would cost as much


def _round(threads, function, *arguments, tasks=None, flops=np.inf):
    """Let the threads call a function of the kernel, which share its tasks; return what each returned."""
    workers = 1 if flops < FEW_FLOPS else threads.count
    workers = workers if tasks is None else min(workers, tasks)
    counter = np.zeros(1, np.longlong)
    return threads.run(function, [(*arguments, counter)] * workers)


def factor(a, threads):
    """Replace a symmetric matrix by its Cholesky factor L, a = L L'; return 0 or the number, from 1, of a bad pivot.

    That is the first one that is not positive.
    """
    n = len(a)
    if n < MANY:
        return max(0, lapack.dpotrf(a.T, lower=0, overwrite_a=1, clean=0)[1])
    bad = _kernel.factor_first(a)
    for at in range(0, n - TILE, TILE):
        if bad:
            break
        below = n - at - TILE
        _round(threads, _kernel.solve_panel, a, at, flops=TILE * TILE * below)
        bad = max(_round(threads, _kernel.update, a, at, flops=TILE * below * below))
    return bad


def invert(triangle, threads):
    """Replace a triangle with a positive diagonal by its inverse."""
    n, size = len(triangle), LEAF
    _round(threads, _kernel.invert_leaves, triangle, tasks=-(-n // LEAF), flops=n * LEAF * LEAF)
    while size < n:
        for last in (False, True):
            _round(threads, _kernel.join_inverses, triangle, size, last, flops=size * size * n)
        size *= 2


def square(triangle, threads):
    """Replace a triangle L by the lower triangle of L'L."""
    n = len(triangle)
    if n < MANY:
        lapack.dlauum(triangle.T, lower=0, overwrite_c=1)
        return
    tile = np.zeros((TILE, TILE))
    for at in range(0, n, TILE):
        size = min(TILE, n - at)
        tile[:size, :size] = triangle[at : at + size, at : at + size]
        _round(threads, _kernel.square_rows, triangle, tile, at, flops=2.0 * (at + TILE) * TILE * (n - at))


def add_squares(a, up, down, threads):
    """Add up' up - down' down, of rows (m, N) and (k, N), to the lower triangle of a."""
    up, down = np.ascontiguousarray(up), np.ascontiguousarray(down)
    _round(threads, _kernel.add_squares, a, up, down, flops=1.0 * len(a) ** 2 * (len(up) + len(down)))


def solve(triangle, rows, threads=ALONE, *, inverted=False, transposed=False):
    """Apply L^-1, or L^-T, to rows (n, N), in place if they are C-contiguous; the triangle is L, or L^-1 if so said."""
    rows = np.ascontiguousarray(rows)
    _round(threads, _kernel.apply, triangle, inverted, transposed, rows, tasks=-(-len(rows) // TILE))
    return rows


def by_rows(threads, function, n, *arguments):
    """Call function(*arguments, start, stop) on ranges of n rows with equally many entries of a triangle."""
    if n * n < 2 * ENTRIES:
        function(*arguments, 0, n)
        return
    edges = (n * np.sqrt(np.linspace(0.0, 1.0, n * n // ENTRIES + 1))).astype(int).tolist()
    threads.run(function, [(*arguments, *ends) for ends in pairwise(edges)])
