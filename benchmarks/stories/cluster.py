"""Fits of dask collections on this machine: what a pass costs by two workers and by one, and what dask adds to it.

    python benchmarks/stories/cluster.py [--rows 5e6] [--quick]

Workers are processes of one thread. Passes are timed from one event to the next, the shortest of several counts, and
clusters of one and of two workers are measured in turn. What goes through the scheduler is counted, not estimated.
"""

import argparse
import pickle
import time
from functools import partial

import cloudpickle
import numpy as np
from dask import array as da
from dask import config
from distributed import Client, LocalCluster

import cavity
from cavity.ep.remote import _run_groups
from cavity.models.mixture.e_step import choose_block_rows
from cavity.models.mixture.rows import sum_run
from cavity.runs import dask_scheduler, remote


def rows_of(n, chunks, columns):
    """Return rows that workers draw, about eight centres."""

    def drawn(block_info=None):
        (start, stop), _ = block_info[None]["array-location"]
        rng = np.random.default_rng(start)
        return rng.normal(size=(stop - start, columns)) + 3.0 * rng.integers(0, 8, size=(stop - start, 1))

    sizes = np.diff(np.linspace(0, n, chunks + 1).astype(int)).tolist()
    return da.map_blocks(drawn, chunks=(tuple(sizes), (columns,)), dtype=float, meta=np.empty((0, 2)))


SWEEPS = {sum_run, _run_groups}  # tasks of the passes that are counted


class Passes:
    """A callback that keeps the seconds of each pass over all rows."""

    def __init__(self, stages):
        self.stages, self.seconds, self._last = stages, [], None

    def __call__(self, event):
        now = time.perf_counter()
        if event.stage in self.stages:
            if self._last is not None:
                self.seconds.append(now - self._last)
            self._last = now


def mixture(rows, k=8, **options):
    """Return the seconds of passes of a mixture of k components."""
    passes = Passes({"fit"})
    cavity.GaussianMixture(k).fit(rows, init="principal", max_iter=8, tol=0.0, callback=passes, **options)
    return passes.seconds


def probit(rows, y):
    """Return the seconds of sweeps of a probit regression."""
    passes = Passes({"last", "fit"})
    model = cavity.GLM("probit", intercept=False, prior_variance=1.0)
    model.fit(rows, y, max_iter=6, tol=0.0, callback=passes)
    return passes.seconds


class Counter:
    """What passes send: tasks, bytes of the state and of graphs without the rows, and bytes that come back."""

    def __enter__(self):
        self.tasks = self.up = self.down = self.passes = 0
        self._values = dask_scheduler.Scheduler.values

        def values(scheduler, graph, keys, *rest):
            own = {key: task for key, task in graph.items() if "cavity" in str(key)}
            inputs = [item for task in own.values() for item in (task if isinstance(task, tuple) else (task,))]
            inputs = {entry.task for entry in inputs if isinstance(entry, remote.TaskInputs)}
            if not inputs & SWEEPS:
                yield from self._values(scheduler, graph, keys, *rest)
                return
            self.tasks, self.passes = self.tasks + len(own), self.passes + 1
            self.up += len(cloudpickle.dumps(list(own.values())))
            for value in self._values(scheduler, graph, keys, *rest):
                self.down += len(pickle.dumps(value))
                yield value

        dask_scheduler.Scheduler.values = values
        return self

    def __exit__(self, *_):
        dask_scheduler.Scheduler.values = self._values

    def words(self):
        """Return the averages of a pass."""
        tasks, up, down = (number / max(self.passes, 1) for number in (self.tasks, self.up, self.down))
        return f"{tasks:7.0f} tasks {up / 1e3:9.1f} kB up {down / 1e3:9.1f} kB down"


def clusters(fit, chunked, repeats):
    """Return the shortest pass of a fit by one worker and by two, measured in turn."""
    best = {1: np.inf, 2: np.inf}
    for _ in range(repeats):
        for workers in best:
            options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
            with LocalCluster(**options) as cluster, Client(cluster) as client:
                data = [client.persist(item) for item in chunked()]
                for value in data:
                    value.sum().compute()
                best[workers] = min(best[workers], *fit(*data)[1:])
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=5e6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    values = parser.parse_args()
    n, repeats = (200_000, 1) if values.quick else (int(values.rows), values.repeats)
    config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})

    for k in (8, 16):
        result = clusters(partial(mixture, k=k), lambda: [rows_of(n, 16, 8)], repeats)
        print(f"mixture, {n} rows of 8 columns, {k} components, 16 chunks")
        print(f"  pass by one worker {result[1]:.3f} s, by two {result[2]:.3f} s: ratio {result[1] / result[2]:.2f}")

    small = 64 * choose_block_rows(8, 8, True)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        data = client.persist(rows_of(small, 16, 8))
        data.sum().compute()
        current = np.asarray(data)
        with Counter() as counter:
            cluster_seconds = min(mixture(data)[1:])
        own_seconds = min(mixture(current)[1:])
        print(f"mixture, {small} rows, 64 blocks")
        print(f"  pass by two workers {cluster_seconds:.3f} s, in this process {own_seconds:.3f} s")
        print(f"  a pass is {counter.words()}")
        m = 200_000 if values.quick else 2_000_000
        data = client.persist(rows_of(m, 16, 8))
        y = client.persist((data[:, 0] > 12.0).astype(float))
        with Counter() as counter:
            seconds = min(probit(data, y)[1:])
        print(f"probit, {m} rows: sweep by two workers {seconds:.3f} s\n  a pass is {counter.words()}")


if __name__ == "__main__":
    main()
