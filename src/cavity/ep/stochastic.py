"""Stochastic EP: one averaged site for all rows, so that nothing is kept per row [S]_.

The posterior is q = prior x t^W, W the sum of the weights; every row sees the cavity q/t, and t becomes the average of
the sites that the updates yield.

References
----------
.. [S] Yingzhen Li, Jose Miguel Hernandez-Lobato and Richard Turner, "Stochastic expectation propagation", 2015.
"""

import numpy as np

from cavity.base.loop import iterate
from cavity.ep.damping import PARALLEL_PATIENCE, Damping
from cavity.ep.engine import MAX_SWEEPS_WITHOUT_PROGRESS
from cavity.ep.evidence import evaluate_sites
from cavity.ep.fit_result import FitResult
from cavity.ep.geometry import step_towards
from cavity.ep.site_updates import find_cavities
from cavity.runs.merge import merge

NO_SITES = None, None  # of rows: nothing is kept


class Stochastic:
    """One fit by stochastic EP; the geometry is that of `engine.Engine`."""

    def __init__(self, geometry, sites, options):
        self.geometry, self.sites, self.options = geometry, sites, options
        self.damping = Damping(options.damping, PARALLEL_PATIENCE)
        weights = sites.weights
        self.total = float(np.sum(weights)) if len(weights) > 1 else float(weights[0]) * geometry.n_rows
        self.belief = geometry.prior()

    def _cavity(self, belief):
        """q/t; proper whenever q is, as t is one of W equal factors and the prior is another."""
        share = 1.0 - 1.0 / self.total
        return self.geometry.belief(share * belief.h, share * belief.g)

    def checkpoint_state(self):
        """Return what decides how passes go on, for `restore`."""
        return {"belief": self.belief, "damping": self.damping.checkpoint_state()}

    def restore(self, state):
        """Continue from a `checkpoint_state`."""
        self.belief = state["belief"]
        self.damping.restore(state["damping"])

    def run(self):
        """Iterate to a fixed point; return the Fit, without sites and leave-one-out densities."""
        damping = self.damping

        def step(_):
            before = self.belief
            h, g = self.geometry.sums(add_requested_sites, self.sites, NO_SITES, self._cavity(before))[0][:2]
            self.belief, length = step_towards(
                self.geometry, before, h, g, damping.step, lambda belief: self._cavity(belief) is not None
            )
            change = self.belief.change_from(before) / length
            damping.adapt(change)
            return np.array([change]), np.array([True])

        passes = 2 * MAX_SWEEPS_WITHOUT_PROGRESS
        outcome = iterate(step, self.options, passes, n_rows=self.geometry.n_rows, holder=self)
        changes = outcome.changes[:, 0]
        trace = {"change": changes, "improper": np.zeros(len(changes), dtype=int)}
        return FitResult(
            belief=self.belief,
            log_evidence=self._evidence(),
            status=outcome.status[0],
            n_iter=len(changes),
            residual=float(changes[-1]),
            trace=trace,
        )

    def _evidence(self):
        """EP's log evidence at the sites that the rows yield, in one more pass.

        Each row leaves the belief with its own site; as EP's free energy is stationary in the sites, that they come
        from the averaged cavity matters to second order only.
        """
        beliefs = self._cavity(self.belief), self.belief
        return (
            float(merge(self.geometry.in_groups(sum_site_values, self.sites, NO_SITES, *beliefs)[0]))
            - self.belief.prior_gap()
        )


def add_requested_sites(group, part, x, h, g, cavity):
    """Add the sites that the rows of a block yield to the sums; return these."""
    _, tau, rho = group.sites.match(part, *group.geometry.values(cavity, part, x))
    copies = 1.0 / group.sites.part(group.sites.fraction, part)
    return *group.geometry.add(part, x, copies * tau, copies * rho, h, g), 0.0


def sum_site_values(group, cavity, belief):
    """Return the sum of the log values of the sites that the rows of a group yield."""
    total, sites = 0.0, group.sites
    for part, x in group.blocks:
        _, tau, rho = sites.match(part, *group.geometry.values(cavity, part, x))
        mean, variance = group.geometry.values(belief, part, x)
        m, v, _ = find_cavities(mean, variance, tau, rho, 1.0)
        log_z, _, _ = sites.match(part, m, v)
        value = evaluate_sites(log_z, mean, variance, m, v)
        total += float(np.sum(value / sites.part(sites.fraction, part)))
    return total
