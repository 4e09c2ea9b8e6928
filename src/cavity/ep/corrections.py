"""Corrections of EP's evidence and marginals by the third and fourth cumulants of tilted distributions.

With F_i the factor by which the tilted distribution of site i differs from the posterior q, E_q F_i = 1, the evidence
is exactly Z = Z_EP E_q[prod F_i] ([OPW]_). As EP matches two moments,
F_i = 1 + k3_i He3(z_i)/6 + k4_i He4(z_i)/24 + ..., with k3 and k4 the standardised cumulants of the tilted distribution
of row i and z_i its standardised f, so that with the posterior correlations r_ij of rows

    log Z - log Z_EP = R = sum_(i<j) [k3_i k3_j r_ij^3/6 + k4_i k4_j r_ij^4/24] + ...                              (1)

To third order a latent value k, whose correlations with rows are r_ki, has

    skewness   sum_i k3_i r_ki^3,                                                                                  (2)
    variance   v_k (1 + sum_(i<j) k3_i k3_j r_ki r_kj r_ij^2);                                                     (3)

EP's means are left as they are.

References
----------
.. [OPW] M. Opper, U. Paquet and O. Winther, "Perturbative corrections for approximate inference in Gaussian latent
   variable models", JMLR 14, 2013.
"""

from typing import NamedTuple

import numpy as np

from cavity.ep.site_updates import find_cavities

MAX_PAIRED_ROWS = 2000  # up to which all pairs are summed
N_FIRST_NODES, N_NODES, MAX_DEVIATIONS = 41, 161, 10.0  # of the trapezoidal rule of the cumulants
MAX_HALVES_APART = 2e-5  # of cumulants by every second node
BLOCK_NUMBERS = 1 << 17  # densities at nodes of the rows that are in the cache together, 1 MB
N_DRAWS, PAIR_SHIFTS = 64, (1, 5, 11)  # of the sketch of sums over pairs
ROWS_PER_PRODUCT = 2048  # of the draws, 1 MB
N_GROUPS = 8  # of draws
SKETCH_SEED = 20130501


class TiltedCumulants(NamedTuple):
    """Standardised third and fourth cumulants of tilted distributions, (N,) each, and how far their moments are off.

    `mismatch` (N,) is the difference of their means from those of the posterior, in sds, or of their variances,
    relative: where that is not small, the posterior is no fixed point of EP, and (1) to (3) do not hold.
    """

    third: np.ndarray
    fourth: np.ndarray
    mismatch: np.ndarray | None = None


class EvidenceCorrection(NamedTuple):
    """R of (1), and its standard error where it is a sketch, else 0."""

    value: float
    standard_error: float


def find_tilted_cumulants(sites, mean, variance, tau, rho):
    """Return the cumulants of the tilted distributions of sites at the posterior moments of their f.

    By a trapezoidal rule over ten standard deviations of the tilted distribution on each side, which converges
    exponentially for smooth likelihoods and with the square of the step for those with kinks: of 41 nodes where its
    halves, of 21 and of 20, agree, as then it has twice their digits; otherwise of 161.
    """
    m, v, _ = find_cavities(mean, variance, tau, rho, sites.part(sites.one, slice(None)))
    cumulants = np.empty((4, len(mean)))
    left = np.arange(len(mean))
    for n_nodes in (N_FIRST_NODES, N_NODES):
        nodes = np.linspace(-MAX_DEVIATIONS, MAX_DEVIATIONS, n_nodes)
        step, unsettled = max(1, BLOCK_NUMBERS // n_nodes), []
        for first in range(0, len(left), step):
            part = left[first : first + step]
            t = _evaluate_tilted(
                sites, part, mean[part, None] + np.sqrt(variance[part, None]) * nodes, m[part], v[part]
            )
            cumulants[:, part] = _standardise(t, nodes)
            halves = [_standardise(t[:, start::2], nodes[start::2]) for start in (0, 1)]
            unsettled.append(part[~(np.max(np.abs(np.subtract(*halves)[2:]), axis=0) < MAX_HALVES_APART)])
        left = np.concatenate([left[:0], *unsettled])
    first, second, third, fourth = cumulants
    return TiltedCumulants(third, fourth, np.maximum(np.abs(first), np.abs(second - 1.0)))


def _evaluate_tilted(sites, part, f, m, v):
    """Return tilted densities of some sites at f (n, nodes), up to factors."""
    y = sites.y[part]
    with np.errstate(all="ignore"):
        log_t = sites.likelihood.log_p(y[:, None] if y.ndim == 1 else y[:, None, :], f)
        log_t = np.reshape(sites.part(sites.exponent, part), (-1, 1)) * log_t - 0.5 * (f - m[:, None]) ** 2 / v[:, None]
    log_t = np.where(np.isnan(log_t), -np.inf, log_t)
    return np.exp(log_t - np.max(log_t, axis=1, keepdims=True))


def _standardise(t, nodes):
    """Return means, variances and standardised third and fourth cumulants (4, n) of densities t (n, nodes)."""
    weights = t / np.sum(t, axis=1, keepdims=True)
    mean = weights @ nodes
    centred = nodes - mean[:, None]
    square = centred * centred
    second = np.einsum("ij,ij->i", weights, square)
    third = np.einsum("ij,ij,ij->i", weights, square, centred)
    fourth = np.einsum("ij,ij,ij->i", weights, square, square) / second**2 - 3.0
    return np.stack([mean, second, third / second**1.5, fourth])


def correct_evidence(cumulants, correlations):
    """Return R by all pairs of rows with posterior correlations (N, N)."""
    third, fourth, _ = cumulants
    pairs = third @ correlations**3 @ third - np.sum(third**2)
    more = fourth @ correlations**4 @ fourth - np.sum(fourth**2)
    return EvidenceCorrection(float(pairs / 12.0 + more / 48.0), 0.0)


def sketch_evidence_correction(cumulants, draws):
    """Return the third-order part of R from independent standardised draws of the rows, (64, N).

    With draws g, g', g'' the mean of (sum_i k3_i g_i g'_i g''_i)^2 is sum_ij k3_i k3_j r_ij^3, here over triples of
    which two draws stand 1, 5 or 11 places apart, in a circle: 12,000 by matrix products. The standard error is that of
    the jackknife over eight groups of draws.
    """
    third, n = cumulants.third, len(draws)
    sums = np.zeros((len(PAIR_SHIFTS), n, n))
    for first in range(0, len(third), ROWS_PER_PRODUCT):
        block = draws[:, first : first + ROWS_PER_PRODUCT]
        weighted = third[first : first + ROWS_PER_PRODUCT] * block
        for total, shift in zip(sums, PAIR_SHIFTS, strict=True):
            total += weighted @ (block * np.roll(block, -shift, axis=0)).T
    a, b = np.indices((n, n))
    triples = np.stack([np.stack([a, b, (b + shift) % n]) for shift in PAIR_SHIFTS], axis=1)
    is_triple = (triples[0] != triples[1]) & (triples[0] != triples[2])
    estimates = (sums[is_triple] ** 2 - np.sum(third**2)) / 12.0
    groups = triples[:, is_triple] % N_GROUPS
    jackknife = np.array([np.mean(estimates[np.all(groups != group, axis=0)]) for group in range(N_GROUPS)])
    error = np.sqrt((N_GROUPS - 1) / N_GROUPS * np.sum((jackknife - jackknife.mean()) ** 2))
    return EvidenceCorrection(float(np.mean(estimates)), float(error))


def correct_marginals(cumulants, latent_correlations, correlations=None):
    """Return the skewness (2) of latent values, and the factors of their standard deviations by (3).

    Parameters
    ----------
    cumulants : TiltedCumulants
        Of N rows.
    latent_correlations : ndarray (K, N)
        Posterior correlations of latent values and rows.
    correlations : ndarray (N, N), optional
        Those of the rows; without them the factors are 1.
    """
    third = cumulants.third
    skewness = latent_correlations * latent_correlations * latent_correlations @ third
    if correlations is None:
        return skewness, np.ones(len(skewness))
    weighted = latent_correlations * third
    pairs = np.sum((weighted @ correlations**2) * weighted, axis=1) - np.sum(weighted**2, axis=1)
    return skewness, np.sqrt(np.maximum(1.0 + 0.5 * pairs, 0.0))
