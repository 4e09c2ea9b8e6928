"""Fits of clutter problems: sweeps, the double loop for problems whose sweeps do not converge, the log evidence.

One loop drives a sweeper of one problem (`Sweeper`, `PowerSweeper`) or of many in SIMD lanes (`LaneSweeper`). Options,
damping, the loop, its outcome and the double loop are those of `cavity.ep`. The sweeps are not: a spherical site
couples d coordinates, and a fused kernel updates site and posterior in one pass over the points. In one dimension,
where `ep.engine` has the same fixed points, its sweeps take 2.4 to 4 times as long in the sequential schedule and 4 to
12 times in the parallel one; 1024 problems of 200 points in lanes take a 37th of the time of one after the other.
"""

from dataclasses import replace

import numpy as np

from cavity.base.loop import CONVERGED_STATUS, STUCK_STATUS, Outcome, iterate, warn_unconverged
from cavity.jobs.job import SILENT_JOB
from cavity.models.clutter.power_ep import PowerSweeper
from cavity.models.clutter.problem import ClutterSites
from cavity.models.clutter.sweeps import LaneSweeper, RemoteSweeper, Sweeper, Visits, assimilate_points
from cavity.sources.dataset import ON_WORKERS


def solve(points, method, options, visits, threads):
    """Fit one problem or each of a batch: in SIMD lanes if that applies, else one after the other on threads.

    Returns
    -------
    ClutterSites, Outcome
        With an axis for the problems in all of the outcome, but in the sites only for a batch.
    """
    if method == "adf":
        return filter_points(points, visits, threads, options.job)
    if points.is_batch and points.shape[1] == 1 and options.schedule == "sequential" and options.power == 1:
        return find_posteriors(LaneSweeper(points, options, visits, threads))
    kind = Sweeper if options.power == 1 else PowerSweeper
    kind = RemoteSweeper if points.data.kind == ON_WORKERS else kind
    problems = points.problems
    orders, n = visits.of_problems(len(problems)), len(problems)
    options_of_problems = [replace(options, job=options.job.numbered_stage("problem", b, n)) for b in range(1, n + 1)]

    def fit_one(problem, order, problem_options):
        return find_posteriors(kind(problem, problem_options, order, threads))

    sites, outcomes = zip(*threads.run(fit_one, zip(problems, orders, options_of_problems, strict=True)), strict=True)
    return ClutterSites.stack(points, sites), put_beside(outcomes)


def filter_points(points, visits, threads, job=SILENT_JOB):
    """ADF on one problem or each of a batch, all in the same order; returns as `solve` does."""
    order = visits.of_pass(points.shape[0])
    sites = threads.run(lambda problem: assimilate_points(problem, order, job), zip(points.problems))
    job.report(1, rows=points.shape[0])
    status, n_iter = np.full(len(sites), CONVERGED_STATUS, dtype=object), np.ones(len(sites), dtype=int)
    return ClutterSites.stack(points, sites), Outcome(status=status, n_iter=n_iter, trace={})


def find_posteriors(sweeper):
    """Sweep until the posteriors converge, run the double loop for the others; return sites and Outcome."""
    options, n_problems = sweeper.options, sweeper.n_problems
    n_rows = n_problems * sweeper.points.shape[0]
    loop = iterate(sweeper.step, options, sweeper.patience, n_problems, n_rows, sweeper)
    swept = len(loop.changes)
    if options.schedule == "parallel" and loop.status[0] == STUCK_STATUS and swept < options.max_iter:
        # sequential sweeps begin at the prior: the parallel ones may have diverged
        sweeps_left, job = options.max_iter - swept, options.job.continued_after(swept).substage("one by one")
        later = replace(options, schedule="sequential", max_iter=sweeps_left, job=job)
        sites, rest = find_posteriors(type(sweeper)(sweeper.points, later, Visits(), sweeper.threads))
        trace = {"change": loop.changes, "improper": np.array(sweeper.improper)}
        trace = {name: np.concatenate([first, rest.trace[name]]) for name, first in trace.items()}
        return sites, Outcome(status=rest.status, n_iter=loop.n_iter + rest.n_iter, trace=rest.trace | trace)
    status, steps = loop.status, {}
    onward = options.job.continued_after(swept)
    for b in np.flatnonzero(status == STUCK_STATUS):
        single = sweeper.problem(b)
        status[b], steps[b] = single.run_double_loop(onward.numbered_stage("problem", b + 1, n_problems))
        sweeper.replace_sites(b, single.sites)
    for b in sweeper.find_tight():
        single = sweeper.problem(b)
        if single.make_proper() and status[b] == CONVERGED_STATUS:
            status[b] = STUCK_STATUS
        sweeper.replace_sites(b, single.sites)
    return sweeper.finish(), _make_outcome(status, loop, np.array(sweeper.improper), steps)


def _make_outcome(status, loop, improper, steps):
    """Return the Outcome. A column of the trace holds a problem's sweeps and then its steps of the double loop."""
    n_steps = np.array([len(steps.get(b, ())) for b in range(len(status))])
    n_iter = loop.n_iter + n_steps
    trace = {"change": _pad(loop.changes, n_iter.max()), "improper": _pad(improper, n_iter.max())}
    for b, changes in steps.items():
        trace["change"][loop.n_iter[b] : n_iter[b], b] = changes
    return Outcome(status=status, n_iter=n_iter, trace=trace | {"double_loop": n_steps})


def _pad(values, length):
    """Return columns of numbers filled up with zeros; one number for each problem as it is."""
    more = length - len(values) if values.ndim > 1 else 0
    return np.concatenate([values, np.zeros((more, values.shape[1]), dtype=values.dtype)]) if more else values


def put_beside(outcomes):
    """Put the outcomes of problems fitted one by one side by side."""
    if len(outcomes) == 1:
        return outcomes[0]
    longest = max(len(outcome.trace["change"]) for outcome in outcomes)
    trace = {name: [_pad(outcome.trace[name], longest) for outcome in outcomes] for name in outcomes[0].trace}
    return Outcome(
        status=np.concatenate([outcome.status for outcome in outcomes]),
        n_iter=np.concatenate([outcome.n_iter for outcome in outcomes]),
        trace={name: np.concatenate(columns, axis=-1) for name, columns in trace.items()},
    )


def warn_of_outcome(outcome, options):
    """Issue the ConvergenceWarning for problems that have not converged."""
    if "change" in outcome.trace:
        last = outcome.trace["change"][outcome.n_iter - 1, np.arange(len(outcome.n_iter))]
        warn_unconverged(outcome.status, last, options.tol, options.max_iter)
