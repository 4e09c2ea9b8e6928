"""The sites of a batch of responses by the compiled kernel, at parameters of the likelihood of each response."""

from functools import cached_property

import numpy as np

from cavity.ep.site_updates import kernel
from cavity.likelihoods.base import encode_responses, site_kernel
from cavity.likelihoods.parameters import FreeParameters


class SiteBatch:
    """Sites of B responses (B, N) with a compiled likelihood.

    Parameters
    ----------
    common : Sites
        Of one response, with a number for each parameter of the likelihood; they have the powers of all.
    names : sequence of str
        The parameters that differ by response.
    y : ndarray (B, N) or (B, N, 2)
        Checked observations.
    observed : ndarray (B, N) of bool
        Which of them count; others have sites that are 1, whatever y holds.
    joined : MeanSites or TrialSites, optional
        What rows of all responses are together, of which sites leave a constant out; see `mixed.merged_sites`.
    """

    def __init__(self, common, names, y, observed, joined=None):
        self.likelihood, self.y, self.free = common.likelihood, y, FreeParameters(common.likelihood, names)
        self.observed, self.common, self.joined = observed, common, joined

    @property
    def fraction(self):
        """What of a site its cavity leaves out, (N,) or (1,)."""
        return self.common.fraction

    def encode(self, number, vectors):
        """Return what kernels read of some responses at free numbers (A, k), and which entries are observed."""
        return *encode_responses(self.likelihood, self.y[number], self.free, vectors), self.observed[number]

    def constants(self, number, vectors):
        """Return log evidences less those of the sites, of some responses at free numbers (A, k)."""
        if self.joined is None:
            return np.zeros(len(number))
        if not self.free.names:
            return self._constants[number]
        return self.joined.constant(self.free.unpack_columns(vectors, self.likelihood), number)

    @cached_property
    def _constants(self):
        return self.joined.constant(self.likelihood)

    def match(self, encoded, mean, variance):
        """Return log_z, tau and rho, (A, N) each, that match p^e times cavities N(mean, variance)."""
        log_z, tau, rho = np.empty((3, *mean.shape))
        parameters, numbers, extra, observed = encoded
        site_kernel.evaluate_responses(
            self.common.kind, parameters, self.common.exponent, numbers, extra, mean, variance, log_z, tau, rho
        )
        if not observed.all():
            for array in (log_z, tau, rho):
                array[~observed] = 0.0
        return log_z, tau, rho

    def visit(self, encoded, features, base, scale):
        """Return the sites after a first sweep from the prior, one site after the other: tau and rho, (A, N)."""
        tau, rho = np.zeros(base.shape), np.zeros(base.shape)
        for a, (parameters, numbers, extra, observed) in enumerate(zip(*encoded, strict=True)):
            rows = slice(None) if observed.all() else observed
            powers = (_take_rows(p, rows) for p in (self.common.exponent, self.common.fraction, self.common.residual))
            mean, covariance = np.zeros(scale.shape[1]), np.diag(scale[a] ** 2)
            sites = np.zeros((2, len(numbers[rows])))
            kernel.sweep_rows(
                *(self.common.kind, parameters, *powers, numbers[rows], _take_rows(extra, rows), features[rows]),
                *(base[a, rows], mean, covariance, *sites, 1.0, 1.0),
            )
            tau[a, rows], rho[a, rows] = sites
        return tau, rho


def _take_rows(values, rows):
    """Return some of N values; one value stands for all."""
    return values if len(values) == 1 else values[rows]
