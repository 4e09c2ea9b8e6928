"""The sites of a fit: likelihood, observations and powers, row by row.

Sample weights are site powers. A row of weight w counts as w copies of itself, each with its own site t: the posterior
is prior x prod t_i^{w_i}. In terms of the whole factor p^w with site T = t^w, EP (or power EP with exponent a [P]_)
then matches p^e against T^f with

    e = a min(1, w),     f = e/w:                                                                                   (1)

of w >= 1 copies one is taken out at a time, of a fraction w < 1 of a row all of it. Where one site stands for several
observations, whose product is a power n of the likelihood, the `copies`, e is n times that of (1). With log Z the log
normaliser of p^e times a cavity N(m, v), and d1, d2 its derivatives in m, the matching factor is

    rho = -d2/(1 + v d2),     tau = (d1 - m d2)/(1 + v d2).                                                         (2)

Where f = g + N(0, residual) given g and the site acts on g, as in a sparse Gaussian process [BYT]_, the integral of p^e
over f is matched: (2) at the cavity of g with the residual added to its variance, and then

    (tau, rho) of g = (tau, rho) of f/(1 + rho residual).                                                           (3)

References
----------
.. [P] Thomas Minka, "Power EP", Microsoft Research, MSR-TR-2004-149, 2004.
.. [BYT] T. D. Bui, J. Yan and R. E. Turner, "A unifying framework for Gaussian process pseudo-point approximations
   using power expectation propagation", JMLR 18, 2017.
"""

from copy import copy

import numpy as np

from cavity.likelihoods import Likelihood
from cavity.likelihoods import base as likelihood_base
from cavity.likelihoods.base import SHARED_ONE, SHARED_ZERO, has_kernel, site_kernel


def find_tilted_moments(likelihood, y, exponent, mean, variance):
    """Return log_z, d1, d2 and 1 + variance d2 of p^exponent for checked vectors, outside the sweeps' kernels.

    By the user's log_tilted if there is one, by the kernel if it supports the exponent, else by quadrature to 1e-9.
    """
    has_moments = has_kernel(likelihood) or type(likelihood).log_tilted is not Likelihood.log_tilted
    if has_moments and np.all(exponent == 1.0):
        moments = likelihood_base.evaluate_tilted(likelihood, y, mean, variance)
        log_z, d1, d2 = (np.asarray(a, dtype=np.float64) for a in moments)
        if not log_z.shape == d1.shape == d2.shape == mean.shape:
            raise ValueError(
                f"{type(likelihood).__name__}.log_tilted must return three arrays of shape {mean.shape}, "
                f"got shapes {log_z.shape}, {d1.shape} and {d2.shape}"
            )
        return log_z, d1, d2, 1.0 + variance * d2
    from cavity.likelihoods.quadrature import log_tilted_of_pass

    exponents = np.broadcast_to(exponent, mean.shape)

    def log_p(f, index):
        return exponents[index, None] * likelihood.log_p(y[index, None], f)

    return log_tilted_of_pass(log_p, mean, variance)


class Sites:
    """A likelihood with its observations.

    `exponent` and `fraction` are e and f; these and `residual`, all (N,) or (1,) where all are equal.
    """

    def __init__(self, likelihood, y, weights=None, power=1.0, residual=None, copies=None):
        self.likelihood, self.y = likelihood, y
        self.copies = SHARED_ONE if copies is None else copies
        self.residual = SHARED_ZERO if residual is None else residual
        self.weights = SHARED_ONE if weights is None else weights
        exponent = power * np.minimum(1.0, self.weights)  # (1)
        self.fraction = exponent / self.weights
        self.exponent = exponent * self.copies
        self.compiled = likelihood_base.has_kernel_for(likelihood, self.exponent)
        if self.compiled:
            self.kind, self.parameters = likelihood_base.kernel_settings(likelihood)
            self.numbers, self.extra = likelihood_base.encode_observations(likelihood, y)
        self.one = np.minimum(1.0, 1.0 / self.weights)  # what of a site is one observation, and
        # whether the cavity of one left-out observation is the one EP uses
        self.leaves_one = bool(np.all(exponent == 1.0))

    first = 0  # the number of the first row, for messages

    def __len__(self):
        return len(self.y)

    def of_rows(self, rows):
        """Return the sites of some rows alone, which for a slice are counted from its first one."""
        sites = copy(self)
        sites.first = rows.start if isinstance(rows, slice) else 0
        for name in ("y", "weights", "copies", "exponent", "fraction", "residual", "one", "numbers", "extra"):
            if hasattr(self, name):
                setattr(sites, name, np.ascontiguousarray(self.part(getattr(self, name), rows)))
        return sites

    def are_in_order(self, n):
        """Whether y ascends or descends over the first n sites and is not constant: these may be separated."""
        y, first = self.y, self.y[:n]
        is_row_of_numbers = np.ndim(y) == 1 and y[0] != y[-1]
        return is_row_of_numbers and bool(np.all(first[1:] >= first[:-1]) or np.all(first[1:] <= first[:-1]))

    def with_residual(self, residual):
        """Return the sites of g, f = g + N(0, residual)."""
        sites = copy(self)
        sites.residual = residual
        return sites

    def with_likelihood(self, likelihood):
        """Return the sites of a likelihood that differs in its parameters only."""
        sites = copy(self)
        sites.likelihood = likelihood
        if self.compiled:
            sites.parameters = likelihood_base.kernel_settings(likelihood)[1]
            if not likelihood._encodes_alone:
                sites.numbers, sites.extra = likelihood_base.encode_observations(likelihood, self.y)
        return sites

    def part(self, values, rows):
        """Return the rows of something that is (N,) or (1,)."""
        return values[rows] if len(values) > 1 else values

    def arguments(self, rows):
        """Return the arguments of the sequential kernels for a block of rows."""
        powers = self.part(self.exponent, rows), self.part(self.fraction, rows)
        residual, extra = self.part(self.residual, rows), self.part(self.extra, rows)
        return self.kind, self.parameters, *powers, residual, self.numbers[rows], extra

    def match(self, rows, mean, variance, exponent=None, strict=True):
        """Return log_z and the factors tau, rho (2) that match p^e times cavities N(mean, variance).

        Their product with the cavities has the moments of the tilted distributions; they are the sites T^f. Moments
        that no quadrature rule resolves raise ArithmeticError, or are nan if not `strict`.
        """
        exponent = self.part(self.exponent, rows) if exponent is None else exponent
        if self.residual is SHARED_ZERO:
            return self._match(rows, mean, variance, exponent, strict)
        residual = self.part(self.residual, rows)
        log_z, tau, rho = self._match(rows, mean, variance + residual, exponent, strict)
        scale = 1.0 + rho * residual  # (3)
        return log_z, tau / scale, rho / scale

    def _match(self, rows, mean, variance, exponent, strict):
        """Return the same for sites that act on f."""
        out = tuple(np.empty(mean.size) for _ in range(3))
        if self.compiled:
            numbers, extra = self.numbers[rows], self.part(self.extra, rows)
            site_kernel.evaluate(self.kind, self.parameters, exponent, numbers, extra, mean, variance, True, *out)
            if strict and np.isnan(np.sum(out[0])):
                i = int(np.argmax(np.isnan(out[0])))
                row = self.first + np.arange(len(self))[rows][i]
                raise ArithmeticError(
                    f"the moments of row {row} cannot be integrated: its f has mean "
                    f"{mean[i]:.3g} and sd {variance[i] ** 0.5:.3g}, far from the scale of the likelihood; "
                    "rescale X, the offset or the prior"
                )
            return out
        log_z, d1, d2, shrink = find_tilted_moments(self.likelihood, self.y[rows], exponent, mean, variance)
        self._check(rows, log_z, d1, shrink)
        rho = -d2 / shrink  # (2)
        return log_z, d1 / shrink + mean * rho, rho

    def _check(self, rows, log_z, d1, shrink):
        """Raise ValueError naming the first row for which a user-written likelihood gives no proper moments."""
        bad = ~(np.isfinite(log_z) & np.isfinite(d1) & (shrink > 0))
        if bad.any():
            i = int(np.argmax(bad))
            row = self.first + np.arange(len(self))[rows][i]
            raise ValueError(
                f"{type(self.likelihood).__name__}.log_tilted must give finite values with 1 + variance * d2 > 0; "
                f"row {row} gave log_z = {log_z[i]}, d1 = {d1[i]}, 1 + variance * d2 = {shrink[i]}"
            )

    def total(self, mean, variance, rows=slice(None)):
        """Return the sum over rows of log normalisers of p^e at all cavities, each over its f of (1).

        At EP's fixed point the log evidence depends on parameters of the likelihood through it only.
        """
        return float(np.sum(self.match(rows, mean, variance)[0] / self.part(self.fraction, rows)))

    def slope_in_log_scale(self, rows, mean, variance, tau, rho):
        """Return the derivative of `total` in log s at cavities, from sites near their fixed point there; None if p is
        not of this form:

            p = g((f - c)/s)/s^n:     d log p/d log s = -n - (f - c) d log p/df.

        The mean of (f - c) d log p^e/df under a tilted distribution is v (d2 + d1^2) + d1 (m - c), by parts.
        """
        place = self.likelihood._locate(self.numbers[rows], self.part(self.extra, rows)) if self.compiled else None
        if place is None:
            return None
        fraction, exponent = self.part(self.fraction, rows), self.part(self.exponent, rows)
        shrink = 1.0 / (1.0 + variance * fraction * rho)
        d1, d2 = fraction * (tau - mean * rho) * shrink, -fraction * rho * shrink  # (2)
        slopes = exponent * place[1] + variance * (d2 + d1 * d1) + d1 * (mean - place[0])
        return -float(np.sum(slopes / fraction))

    def log_z(self, rows, mean, variance):
        """Return log of the integral of p(y|f) N(f; mean, variance), whatever the powers; of all copies at once."""
        return self.match(rows, mean, variance, self.part(self.copies, rows))[0]
