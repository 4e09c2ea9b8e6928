"""Densities of points under cavities or a posterior, and the log evidence that those of the fitted points sum to."""

import numpy as np

from cavity.models.clutter import lost
from cavity.models.clutter.lost import kernel
from cavity.models.clutter.points import SUMMED_ROWS
from cavity.runs.executors import Threads
from cavity.runs.merge import merge
from cavity.runs.remote import Runs
from cavity.runs.runs import map_runs


def evaluate(points, sites, threads, *, fitted=True, values_only=False, remote=False):
    """Return (log_z, log odds of clutter, log site values, their sums by chunk) of the points of one problem.

    Fitted points are judged under their cavities, others under the posterior. With `values_only` the first two are
    scratch of the size of a block, so that memory stays that of the sites.
    """
    n = points.shape[0]
    log_z, odds = (None, None) if values_only else (np.empty(n), np.empty(n))
    if remote:
        value, sums = evaluate_remotely(points, sites)
    else:
        value = np.empty(n)
        known = points.units, sites, fitted, (log_z, odds, value)
        sums = np.concatenate(list(map_runs(_evaluate, known, [points.source], threads, grain=points.most_blocks)))
    for i, *densities, value[i] in lost.evaluate(points, sites) if fitted else ():
        if not values_only:
            log_z[i], odds[i] = densities
        first = i - i % SUMMED_ROWS
        sums[i // SUMMED_ROWS] = np.cumsum(value[first : first + SUMMED_ROWS])[-1]  # in the order of the rows, as ever
    return log_z, odds, value, sums


def evaluate_remotely(points, sites):
    """Return the log site values of points that dask has, and their sums by chunk."""
    runs = Runs(points.source)
    found, _ = runs.each(_evaluated, (points.units, sites.tau, sites.rho), runs.put(sites.cut(runs.spans)))
    return tuple(np.concatenate(each) for each in zip(*found, strict=True))


def _evaluated(run, known, own):
    """A task of dask: the log site values of a run, and their sums by chunk; nothing is left behind."""
    (units, tau, rho), (x,) = known, run.arrays
    values, sums = np.empty((3, len(x))), np.empty(-(-len(x) // SUMMED_ROWS))
    kernel.evaluate(*units.arguments(x), *own, tau, rho, *values, sums)
    return (values[2], sums), None


def _evaluate(run, known):
    """Evaluate the points of a run into their places; return the sums of site values by chunk."""
    units, sites, fitted, (log_z, odds, value) = known
    part, (x,) = slice(run.start, run.stop), run.arrays
    densities = np.empty((2, len(x))) if log_z is None else (log_z[part], odds[part])
    without = sites.part(part) if fitted else (np.zeros(x.shape), np.zeros(len(x)))
    sums = np.empty(-(-len(x) // SUMMED_ROWS))
    kernel.evaluate(*units.arguments(x), *without, sites.tau, sites.rho, *densities, value[part], sums)
    return sums


def set_evidence(points, sites, threads, remote=False):
    """Set the site values and the log evidence of one problem after EP."""
    _, _, sites.site_value, sums = evaluate(points, sites, threads, values_only=True, remote=remote)
    sites.log_evidence = float(sites.combine(points.units, merge(sums)))


def densities(points, sites, fitted):
    """Return log densities and log odds of clutter of the points of one problem, or of each of a batch."""
    problems = zip(points.problems, sites.problems, strict=True)
    with Threads(1) as threads:
        each = [evaluate(*problem, threads, fitted=fitted)[:2] for problem in problems]
    return each[0] if not points.is_batch else tuple(np.stack(part) for part in zip(*each, strict=True))
