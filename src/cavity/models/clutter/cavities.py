"""Cavities, the densities of points under them or under the posterior, and the log evidence that these sum to.

A cavity is the posterior divided by one site, (tau - site_tau, rho - site_rho) of spherical Gaussians. Where that site
holds all but a 2^-20 of the precision, as a lone signal under a very vague prior does, the difference has lost its
digits, or all of them: prior 1e-17 and site 1 sum to 1. The kernels skip such sites. Here their cavities are summed
without rounding from the prior and the other sites, one at a time; rounded once, they are proper if they are positive.
They are few: two sites can only have such precisions if others are negative.
"""

from itertools import chain
from math import fsum

import numpy as np

from cavity import _core
from cavity.models.clutter.problem import SUMMED_ROWS
from cavity.runs.executors import Threads
from cavity.runs.merge import merge
from cavity.runs.passes import map_runs
from cavity.runs.remote import RemoteRuns
from cavity.sources.dataset import ON_WORKERS

kernel = _core.best("clutter")

LOST_SHARE = 2.0 * kernel.lost  # of the precision: twice the limit of kernels, to find what they skip


def can_lose(rho, units):
    """Whether any cavity of posteriors of these precisions can be lost, or improper: no site is above 1/noise."""
    return rho * units.noise * (1.0 - LOST_SHARE) <= 1.0


def find_lost_cavities(sites, units):
    """Return the rows of one problem whose cavity is too small a difference."""
    if not can_lose(sites.rho, units):
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.abs(sites.rho - sites.site_rho) <= LOST_SHARE * abs(sites.rho))


def sum_cavity(sites, units, i, power=1.0):
    """Return tau (d,) and rho of the prior and all sites without the power of site i, rounded once."""
    rest = 1.0 - power  # exact for power above 1/2; below it no cavity is lost

    def total(prior, of_sites):
        return fsum(chain((float(prior), -of_sites[i], rest * of_sites[i]), of_sites))

    tau = np.array([total(*parts) for parts in zip(units.prior_tau, sites.site_tau.T, strict=True)])
    return tau, total(units.prior_rho, sites.site_rho)


def visit_lost_cavities(points, sites, damping):
    """Visit the sites with lost cavities, each under the sites as they are then; return how many have moved."""
    moved, d = 0, points.shape[1]
    for i in find_lost_cavities(sites, points.units):
        tau, rho = sum_cavity(sites, points.units, i)
        if rho > 0:
            site_tau, site_rho = np.empty((1, d)), np.empty(1)
            kernel.assimilate(*points.arguments(slice(i, i + 1)), site_tau, site_rho, np.empty(1), tau, rho, 0.0)
            sites.site_tau[i] += damping * (site_tau[0] - sites.site_tau[i])
            sites.site_rho[i] += damping * (site_rho[0] - sites.site_rho[i])
            moved += 1
    return moved


def evaluate_lost_cavities(points, sites):
    """Yield row, log Z, log odds of clutter and log site value of the sites with lost cavities."""
    for i in find_lost_cavities(sites, points.units):
        tau, rho = sum_cavity(sites, points.units, i)
        if not rho > 0:
            yield i, np.nan, np.nan, np.nan  # does not happen after EP; callers raise
            continue
        d, out = len(tau), np.empty((3, 1))
        _evaluate_rows(points.units, points.data.rows(slice(i, i + 1)), (np.zeros((1, d)), np.zeros(1)), tau, rho, out)
        shift = sites.tau / sites.rho - tau / rho
        value = out[0, 0] + 0.5 * (d * np.log(sites.rho / rho) + rho * (shift @ shift))
        yield i, out[0, 0], out[1, 0], value


def find_cavities(sites, units):
    """Return tau (N, d) and rho (N,) of all cavities, of one problem or each of a batch."""
    tau = np.expand_dims(sites.tau, -2) - sites.site_tau
    rho = np.asarray(sites.rho)[..., None] - sites.site_rho
    for b in np.ndindex(sites.site_rho.shape[:-1]):
        one_units, problem_sites = (units.problem(b[0]), sites.problem(b[0])) if b else (units, sites)
        for i in find_lost_cavities(problem_sites, one_units):
            tau[(*b, i)], rho[(*b, i)] = sum_cavity(problem_sites, one_units, i)
    return tau, rho


def evaluate(points, sites, threads, *, fitted=True, values_only=False):
    """Return (log_z, log odds of clutter, log site values, their sums by chunk) of the points of one problem.

    Densities of fitted points are under their cavities, those of others under the posterior. With `values_only`, as
    always for remote points, the first two are scratch of the size of a block, so that memory stays that of the sites.
    """
    n, source = points.shape[0], points.data.source
    log_z, odds, value = (None, None, np.empty(n)) if values_only else np.empty((3, n))
    if points.data.kind == ON_WORKERS:
        runs = RemoteRuns(source)
        belief, remote_sites = (points.units, sites.tau, sites.rho), runs.put(sites.copy_spans(runs.spans))
        results, _ = runs.call_for_runs(_evaluate_remote_run, belief, remote_sites)
        value, sums = (np.concatenate(parts) for parts in zip(*results, strict=True))
    else:
        broadcast = points.units, sites, fitted, (log_z, odds, value)
        parts = map_runs(_evaluate_local_run, broadcast, [source], threads, grain=points.most_blocks)
        sums = np.concatenate(list(parts))
    for i, *densities, value[i] in evaluate_lost_cavities(points, sites) if fitted else ():
        if not values_only:
            log_z[i], odds[i] = densities
        first = i - i % SUMMED_ROWS
        # summed in the order of the rows, as kernels do
        sums[i // SUMMED_ROWS] = np.cumsum(value[first : first + SUMMED_ROWS])[-1]
    return log_z, odds, value, sums


def _evaluate_local_run(run, broadcast):
    """Evaluate the points of a run in place; return the sums of site values by chunk."""
    units, sites, fitted, (log_z, odds, value) = broadcast
    part, (x,) = slice(run.start, run.stop), run.arrays
    densities = np.empty((2, len(x))) if log_z is None else (log_z[part], odds[part])
    run_sites = sites.part(part) if fitted else (np.zeros(x.shape), np.zeros(len(x)))
    return _evaluate_rows(units, x, run_sites, sites.tau, sites.rho, (*densities, value[part]))


def _evaluate_remote_run(run, broadcast, run_sites):
    """Return the log site values of a remote run and their sums by chunk; None, as nothing stays remote."""
    (units, tau, rho), (x,) = broadcast, run.arrays
    values = np.empty((3, len(x)))
    sums = _evaluate_rows(units, x, run_sites, tau, rho, values)
    return (values[2], sums), None


def _evaluate_rows(units, x, row_sites, tau, rho, values):
    """Fill in log Z, log odds and log site values of points whose cavities lack their own sites; return their sums."""
    sums = np.empty(-(-len(x) // SUMMED_ROWS))
    kernel.evaluate(*units.arguments(x), *row_sites, tau, rho, *values, sums)
    return sums


def set_evidence(points, sites, threads):
    """Set the site values and the log evidence of one problem after EP."""
    _, _, sites.site_value, sums = evaluate(points, sites, threads, values_only=True)
    sites.log_evidence = float(sites.combine(points.units, merge(sums)))


def find_densities(points, sites, fitted):
    """Return log densities and log odds of clutter of the points of one problem, or of each of a batch."""
    problems = zip(points.problems, sites.problems, strict=True)
    with Threads(1) as threads:
        densities = [evaluate(*problem, threads, fitted=fitted)[:2] for problem in problems]
    return densities[0] if not points.is_batch else tuple(np.stack(part) for part in zip(*densities, strict=True))
