"""What the models of latent processes share: a covariance, a likelihood and a mean."""

import re
from dataclasses import dataclass, field, is_dataclass

import numpy as np

from cavity import covariances
from cavity.base import arrays
from cavity.base.frames import in_order
from cavity.base.frozen import Frozen
from cavity.base.records import NONNEGATIVE, SHARE, TABLE, Made, integer
from cavity.base.rows import design_matrix, row_vector
from cavity.covariances.base import Covariance
from cavity.ep.latent import half_of
from cavity.likelihoods import Gaussian, Likelihood
from cavity.models.latent import LatentPosterior

COVARIANCE = Made(covariances.from_settings, TABLE, lambda covariance: covariance.to_settings())
OPTIONS = {  # of EP
    "damping": SHARE,
    "max_iter": integer(1),
    "tol": NONNEGATIVE,
}


@dataclass(frozen=True, slots=True, eq=False)
class LatentProcess(Frozen):
    """Base of the models in which f - mean is a Gaussian process and y has likelihood p(y|f)."""

    covariance: Covariance
    likelihood: Likelihood = field(default_factory=Gaussian)
    mean: float | np.ndarray | str = 0.0

    def __post_init__(self):
        for name, value, kind in (
            ("covariance", self.covariance, Covariance),
            ("likelihood", self.likelihood, Likelihood),
        ):
            if not isinstance(value, kind):
                hint = " (did you forget the brackets?)" if isinstance(value, type) else ""
                if type(value).__module__.startswith("sklearn."):
                    hint = " of scikit-learn; the faces in cavity.sklearn take its kernels"
                module = "covariances.Covariance" if kind is Covariance else "likelihoods.Likelihood"
                raise TypeError(f"{name} must be an instance of cavity.{module}, got {value!r}{hint}")
        self.covariance._leaves()  # TypeError for one of the user's own
        for name in self.likelihood.scales:
            kind = type(self.likelihood).__name__
            if not is_dataclass(self.likelihood) or not hasattr(self.likelihood, name):
                raise TypeError(
                    f"likelihood {kind} must be a dataclass with the fields in its scales, {name!r} among them"
                )
            arrays.number(getattr(self.likelihood, name), f"{name} of {kind}", low=0)
        if isinstance(self.mean, str):
            arrays.choice(self.mean, "mean", ("constant", "linear"))
            return
        mean = arrays.finite_array(self.mean, "mean", ndim=(0, 1))
        arrays.check_not_empty(mean.shape, "mean")
        object.__setattr__(self, "mean", arrays.read_only(mean.copy()) if mean.ndim else float(mean))

    def prior_mean(self, X):
        """The mean function at the rows of X.

        Parameters
        ----------
        X : ndarray (n, D)
            Rows.

        Returns
        -------
        ndarray (n,)
            Their prior means, offsets not included; a mean that is yet to be found counts as 0.
        """
        return self._means(arrays.finite_array(X, "X", ndim=(2,)))

    def _means(self, X):
        """Prior means of checked rows."""
        if isinstance(self.mean, str):
            return np.zeros(len(X))
        if np.ndim(self.mean) == 1 and len(self.mean) != 1 + X.shape[1]:
            raise ValueError(f"X must have {len(self.mean) - 1} columns like the mean has slopes, got {X.shape[1]}")
        if np.ndim(self.mean) == 0:
            return np.full(len(X), self.mean)
        return self.mean[0] + X @ self.mean[1:]

    def _check_slopes(self, n_features):
        """Raise ValueError unless the mean has a slope for each column, or none at all."""
        if np.ndim(self.mean) == 1 and len(self.mean) != 1 + n_features:
            raise ValueError(
                f"mean must be a number or have 1 + {n_features} coefficients for {n_features} columns, "
                f"got {len(self.mean)}"
            )

    def _row_noise(self, value, n):
        """Checked noise variances of n rows, or None if there are none."""
        if value is None:
            return None
        if not isinstance(self.likelihood, Gaussian):
            raise ValueError("noise_variance needs the likelihood Gaussian; other likelihoods have noise of their own")
        noise = row_vector(value, "noise_variance", n)
        if not np.all(noise > 0):
            row = int(np.argmin(noise > 0))
            raise ValueError(f"noise_variance must be positive, got {float(noise[row])!r} in row {row}")
        return noise

    def _what_to_learn(self, learn, known_noise):
        """Whether the covariance is learnt, and the scales of the likelihood that are."""
        if isinstance(learn, str) and learn == "covariance":
            return True, ()
        if not isinstance(learn, bool | np.bool_):
            kind = ValueError if isinstance(learn, str) else TypeError
            raise kind(f"learn must be True, False or 'covariance', got {learn!r}")
        return bool(learn), self.likelihood.scales if learn and not known_noise else ()


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
