"""Large triangles on threads: times measured on two, and a model of more, `python docs/scripts/threads.py`.

The model runs the tasks of `cavity.linalg.tiled` in their order: the next goes to the first thread that is free, and
begins when what it waits for is done. How long a task takes is measured, of one tile on one thread; threads are as fast
as if each were alone, and handing over a round costs what it did here. No memory is too slow in it.
"""

import heapq
import sys
import time

import numpy as np
from scipy.linalg import blas, lapack

import cavity
from cavity.linalg import tiled
from cavity.runs.executors import Threads, single_blas

SIZES = (1000, 2000, 4000, 8000)
THREADS = (2, 4, 8, 16)
MEASURED = 4000  # rows up to which times are measured
T = tiled.TILE_ROWS


def fastest(function, start=None, repeats=5):
    """Seconds of the fastest of a few calls, with a fresh copy of an array if one is given."""
    best = np.inf
    for _ in range(repeats):
        arguments = () if start is None else (start.copy(),)
        begin = time.perf_counter()
        function(*arguments)
        best = min(best, time.perf_counter() - begin)
    return best


def spread(n):
    """A positive definite matrix (n, n)."""
    half = np.random.default_rng(0).normal(size=(n, n + 50))
    return half @ half.T / n + np.eye(n)


class Costs:
    """Seconds of single tasks on one thread."""

    def __init__(self):
        tile, wide = spread(T), np.random.default_rng(1).normal(size=(4 * T, T))
        left, out = np.asfortranarray(wide[:T]), np.zeros((T, T), order="F")
        factor, reflected = np.linalg.cholesky(tile), tiled._stacked
        self.product = fastest(lambda: blas.dgemm(1.0, left, left, 1.0, out, overwrite_c=1), repeats=20)
        self.factor = fastest(lambda a: lapack.dpotrf(a.T, lower=0, overwrite_a=1), tile)
        self.solve = fastest(lambda x: tiled.solve(factor, x), wide) / 4
        leaf = np.asfortranarray(factor[: tiled.LEAF_ROWS, : tiled.LEAF_ROWS])
        self.leaf = fastest(lambda a: lapack.dtrtri(a, lower=1), leaf)
        own = np.asfortranarray(tile[: reflected.COLUMNS, : reflected.COLUMNS])
        below, block = np.asfortranarray(wide[: reflected.ROWS, : reflected.COLUMNS]), reflected.TOGETHER
        self.panel = fastest(lambda: lapack.dtpqrt(0, block, own, below))
        _, v, t, _ = lapack.dtpqrt(0, block, own, below)
        self.reflect = fastest(lambda: lapack.dtpmqrt(0, v, t, own, below, trans="T"))
        with Threads(2) as two:
            self.round = fastest(lambda: two.run(abs, [(1,)] * 2), repeats=100)


def shared(tasks, n_threads):
    """Seconds of tasks (what is waited for, seconds, what is done then) that threads take in their order."""
    free, done = [0.0] * n_threads, {}
    for waits, seconds, result in tasks:
        begin = max([heapq.heappop(free), *(done.get(wait, 0.0) for wait in waits)])
        done[result] = begin + seconds
        heapq.heappush(free, begin + seconds)
    return max(free)


def factor(n, cost):
    """The one round of a factor."""
    tasks = []
    for row, column, left in tiled._order(-(-n // T)).tolist():
        high, wide = min(T, n - T * row) / T, min(T, n - T * column) / T
        seconds = cost.product * high * wide * (0.6 if row == column else 1.0) if left else 0.0
        waits = [(row, column, left - 1), (row, left - 1), (column, left - 1)] if left else []
        if left < column:
            tasks.append((waits, seconds, (row, column, left)))
        elif row == column:
            tasks.append((waits, seconds + cost.factor * high**3, (row, column)))
        else:
            tasks.append(([*waits, (column, column)], seconds + cost.solve * high, (row, column)))
    return [tasks]


def invert(n, cost):
    """The rounds of an inverse."""
    rounds, size = [[cost.leaf] * -(-n // tiled.LEAF_ROWS)], tiled.LEAF_ROWS
    while size < n:
        starts = range(0, n - size, 2 * size)
        heights = [min(size, n - at - size) for at in starts]
        share = cost.product * tiled.LEAF_ROWS / T / 2
        rounds.append([share * (size / T) ** 2 for high in heights for _ in range(0, high, tiled.LEAF_ROWS)])
        rounds.append([share * (high / T) ** 2 for high in heights for _ in range(0, size, tiled.LEAF_ROWS)])
        size *= 2
    return [[((), seconds, i) for i, seconds in enumerate(item)] for item in rounds]


def square(n, cost):
    """The rounds of L'L."""
    rounds = []
    for at in range(T, n + T, T):
        inner, heights = max(0, min(T, n - at)) / T, [min(T, n - top) / T for top in range(0, at, T)]
        rounds.append(
            [
                cost.product * high * (inner + 0.5 * (i == len(heights) - 1)) * (0.6 if i == j else 1.0)
                for i, high in reversed(list(enumerate(heights)))
                for j in range(i + 1)
            ]
        )
    return [[((), seconds, i) for i, seconds in enumerate(item)] for item in rounds]


def stack(n, cost):
    """The one round of a triangle below another one, as in a pass of linear regression."""
    runs, tiles = -(-n // tiled._stacked.COLUMNS), -(-n // tiled._stacked.ROWS)
    tasks = []
    for tile, run, moved, _ in tiled._steps(runs, tiles, tiled._stacked.ROWS // tiled._stacked.COLUMNS).tolist():
        waits = [(tile - 1, run, moved), (tile, run - 1, moved)] + ([] if moved == run else [(tile, run, run)])
        tasks.append((waits, cost.panel if moved == run else cost.reflect, (tile, run, moved)))
    return [tasks]


def seconds(rounds, n_threads, cost):
    """Seconds of rounds."""
    return sum(shared(tasks, n_threads) + (cost.round if n_threads > 1 else 0.0) for tasks in rounds)


def stacked(a, threads):
    """A diagonal below a triangle."""
    tiled.stack(a, np.eye(len(a)), threads, triangular=True)


def measured(work, start):
    """Seconds on one thread and on two, by turns."""
    with Threads(1) as one, Threads(2) as two:
        results = [[fastest(lambda a, t=t: work(a, t), start, 1) for t in (one, two)] for _ in range(4)]
    return np.min(results, axis=0)


def main():
    """Print the table as reStructuredText."""
    cost = Costs()
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(".. csv-table::\n   :header-rows: 1\n")
    print("   ,rows,one thread,two threads,", ",".join(f"model of {n}" for n in THREADS), sep="")
    sizes = [int(n) for n in sys.argv[1:]] or SIZES
    for name, work, rounds in (
        ("factor", tiled.factor, factor),
        ("inverse of a triangle", tiled.invert, invert),
        ("square of a triangle", tiled.square, square),
        ("triangle of two triangles", stacked, stack),
    ):
        for n in sizes:
            model = [seconds(rounds(n, cost), p, cost) for p in (1, *THREADS)]
            ratios = ",".join(f"{model[0] / item:.1f}" for item in model[1:])
            if n > MEASURED:
                print(f"   {name},{n},({1e3 * model[0]:.0f} ms),,{ratios}")
                continue
            start = spread(n) if work is tiled.factor else np.linalg.cholesky(spread(n))
            one, two = measured(work, start)
            print(f"   {name},{n},{1e3 * one:.0f} ms,{one / two:.2f},{ratios}")


if __name__ == "__main__":
    with single_blas():
        main()
