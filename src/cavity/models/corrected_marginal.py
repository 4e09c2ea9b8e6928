"""Marginals of linear combinations of effects by the factors of all rows; see `ep.marginal_factors`.

The density of a standardised combination is corrected at the maximum, and is that of each point of an integral over
hyperparameters with the mean and the standard deviation there.
"""

from typing import Any, NamedTuple

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.lazy_scipy import interpolate, sparse, special
from cavity.ep.marginal_factors import correct_density
from cavity.models.integral import SiteMoments
from cavity.models.marginal import tabulate_density
from cavity.runs.executors import single_blas

CUMULANTS_METHOD, FACTORS_METHOD, STEP_METHOD = "cumulants", "factors", "1step"
MARGINAL_METHODS = (CUMULANTS_METHOD, FACTORS_METHOD, STEP_METHOD)
MAX_STEP_EFFECTS = 2000  # of which a root of the covariance is taken
N_TABLE_CELLS = 1024


class RowsAtMaximum(NamedTuple):
    """What a posterior and the rows of its fit say at the maximum."""

    moments: SiteMoments
    effects: Any  # `mean`, `variance`, `cross` and `solve_for`
    matrix: Any  # (U, n): rows in use
    offset: np.ndarray  # (U,)
    in_use: np.ndarray  # (N,)

    def take_row(self, number):
        """Return the combination (n,) of effects that is f at a row of the fit, and its offset."""
        if not number < len(self.in_use) or not self.in_use[number]:
            text = f"must be a row that is in use, below {len(self.in_use)}, got {number}"
            raise error_of("effect", text)
        index = int(np.sum(self.in_use[:number]))
        row = self.matrix[[index]]
        return (row.toarray() if sparse.issparse(row) else np.asarray(row))[0], float(self.offset[index])


def check_rows_are_there(X):
    """Return X; raise ValueError where it is None."""
    if X is None:
        raise error_of("X", "must be the rows of the fit once more, which the posterior has no copy of, got None")
    return X


def find_covariance(effects, combination):
    """Return the covariance (n,) of a combination (n,) of effects with all of them."""
    index = np.flatnonzero(combination)
    return combination[index] @ effects.solve_for(index)


def find_moments(effects, combination):
    """Return the mean and the variance of a combination (n,) of effects."""
    index = np.flatnonzero(combination)
    if len(index) == 1:
        variance = combination[index[0]] ** 2 * effects.variance[index[0]]
    else:
        variance = combination @ find_covariance(effects, combination)
    return float(combination @ effects.mean), float(variance)


@single_blas()  # the same bits for any number of threads
def correct_combination(fitted, combination, method):
    """Return the `StandardDensity` of a combination (n,) of effects at the maximum."""
    sites, matrix, mean, variance, tau, rho = fitted.moments
    covariance = find_covariance(fitted.effects, combination)
    own = combination @ covariance
    if not own > 0.0:
        raise error_of("effect", "must vary: its posterior variance is 0")
    correlations = matrix @ covariance / np.sqrt(own * variance)
    roots = ()
    if method == STEP_METHOD:
        n = len(combination)
        if n > MAX_STEP_EFFECTS:
            text = f"must be 'factors' or 'cumulants' for more than {MAX_STEP_EFFECTS} effects, got '1step' for {n}"
            raise error_of("method", text)
        values, vectors = np.linalg.eigh(fitted.effects.cross(sparse.eye_array(n, format="csr")))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        loadings = combination @ root
        roots = matrix @ root, loadings / np.sqrt(loadings @ loadings)
    return correct_density((sites, mean, variance, tau, rho), correlations, *roots)


def tabulate_mixture(name, weights, means, sds, standard):
    """Return the marginal that mixes one standardised density over means and sds (P,) of the points."""
    z, log_density = standard
    curve = interpolate.CubicSpline(z, log_density, extrapolate=False)
    x = np.linspace(np.min(means + z[0] * sds), np.max(means + z[-1] * sds), N_TABLE_CELLS + 1)
    if len(means) == 1:
        return tabulate_density(name, means[0] + sds[0] * z, log_density)
    values = curve((x[:, None] - means) / sds)
    values = np.where(np.isnan(values), -np.inf, values)
    with np.errstate(divide="ignore"):
        return tabulate_density(name, x, special.logsumexp(values + np.log(weights / sds), axis=1))
