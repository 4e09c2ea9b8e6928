"""What posteriors of latent processes share, whatever they keep: new rows checked, and functions drawn."""

import re

import numpy as np

from cavity import covariances
from cavity.base import arrays
from cavity.base.frames import in_order
from cavity.base.records import NONNEGATIVE, SHARE, TABLE, Made, integer
from cavity.base.rows import design_matrix, row_vector
from cavity.ep.latent import half_of
from cavity.models.latent import LatentPosterior

COVARIANCE = Made(covariances.from_settings, TABLE)
OPTIONS = {  # of EP
    "damping": SHARE,
    "max_iter": integer(1),
    "tol": NONNEGATIVE,
}


def fits_columns(covariance, mean, n_features):
    """Raise ValueError unless a covariance and a mean, a number or coefficients, are for so many columns."""
    covariance.check_columns(n_features)
    if mean.ndim and len(mean) != 1 + n_features:
        raise ValueError(f"array 'prior_mean' must have 1 + {n_features} coefficients, got {len(mean)}")


def short(settings):
    """A repr with six digits of every number."""
    return re.sub(r"\d+\.\d+(e[-+]?\d+)?", lambda number: f"{float(number[0]):.6g}", repr(settings))


def rows_of(X, covariance, like=None):
    """Return rows checked, float64 in C order and aligned, of as many columns as the covariance (or the fit) wants."""
    if hasattr(X, "tocsr"):
        raise TypeError("X is sparse, which Gaussian processes have no use for: pass X.toarray()")
    if len(np.shape(X)) == 1:
        one = like is not None and like != 1 and len(X) == like
        hint = "X[None, :] makes it one row" if one else "X[:, None] makes numbers one column"
        raise ValueError(f"X must have 2 dimension(s), got shape {np.shape(X)}; {hint}")
    X = np.require(design_matrix(X, "full"), dtype=np.float64, requirements="CA")
    arrays.check_finite(X, "X")
    if like is not None and X.shape[1] != like:
        raise ValueError(f"X must have {like} columns like the data of the fit, got {X.shape[1]}")
    covariance.check_columns(X.shape[1])
    return X


class ProcessPosterior(LatentPosterior):
    """Base of posteriors of a latent process; it reads model, columns and n_features, and calls predict_covariance."""

    __slots__ = ()

    def sample(self, X, n, rng, *, offset=None):
        """Draw functions from the posterior.

        Parameters
        ----------
        X : array_like (m, D) or data frame
            Rows at which to draw their values.
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness.
        offset : array_like (m,), optional
            Known part of f.

        Returns
        -------
        ndarray (n, m)
            The draws of f; noise of the likelihood is not in them.
        """
        n, rng = arrays.integer(n, "n", low=0), arrays.generator(rng)
        mean, covariance = self.predict_covariance(X, offset=offset)
        return mean + rng.standard_normal((n, len(mean))) @ half_of(covariance).T

    def _new_rows(self, X, offset):
        """New rows checked, and their prior means."""
        X = rows_of(in_order(X, self.columns), self.model.covariance, self.n_features)
        base = self.model._means(X)
        return X, base if offset is None else base + row_vector(offset, "offset", len(X))
