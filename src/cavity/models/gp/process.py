"""What the models of latent processes share: a covariance, a likelihood and a mean."""

from dataclasses import dataclass, field, is_dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.frozen import Frozen
from cavity.base.rows import row_vector
from cavity.covariances.base import Covariance
from cavity.likelihoods import Gaussian, Likelihood


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
