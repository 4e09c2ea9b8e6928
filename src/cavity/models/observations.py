"""What was observed in the rows of a fit, checked once: likelihood, y, offset, weights and noise."""

from dataclasses import dataclass

import numpy as np

from cavity.base.arrays import wrong
from cavity.base.labels import coded, recoded
from cavity.base.rows import Rows, known_part, observations, row_vector, row_weights
from cavity.likelihoods import Gaussian
from cavity.models.defaults import likelihood_for


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Checked columns of the rows of a fit, without the features, and what predictions and files need of them.

    Attributes
    ----------
    likelihood : Likelihood
        That of the model, or the one chosen from y; its parameters may be open.
    y : ndarray (N,) or (N, 2)
        As the likelihood takes them.
    offset, weights, noise : ndarray (N,) or None
        Known part of f, with the log of exposures; sample weights; known variances of the noise.
    classes : tuple or None
        The labels that class numbers stand for.
    names : tuple of str or None
        Those of the features.
    roles : dict or None
        The names of columns by arguments.
    chosen : tuple of str
        "likelihood" where y decided.
    """

    likelihood: object
    y: np.ndarray
    offset: np.ndarray | None
    weights: np.ndarray | None
    noise: np.ndarray | None
    classes: tuple | None
    names: tuple | None
    roles: dict | None
    chosen: tuple = ()

    @classmethod
    def of(cls, likelihood, dataset, *, default=likelihood_for, some=True, fitted=None):
        """Check the columns of a dataset that was opened with the arguments of a fit.

        Parameters
        ----------
        likelihood : Likelihood or None
            That of the model; None if y decides.
        dataset : Dataset
            With the column "y" and, where the fit has them, offset, exposure, noise_variance and sample_weight.
        default : callable, optional
            Returns the likelihood for y where the model has none.
        some : bool, default True
            Whether some row must have a positive weight.
        fitted : posterior, optional
            Of the rows before, in an update: its `classes` stay.

        Raises
        ------
        ValueError, TypeError
            Naming the argument, what was expected and what came.
        """
        columns = {name: dataset.column(name) for name in dataset.columns}
        y, chosen = columns["y"], () if likelihood is not None else ("likelihood",)
        likelihood = default(y) if likelihood is None else likelihood
        y, classes = (
            coded(y, likelihood) if fitted is None else (recoded(y, likelihood, fitted.classes), fitted.classes)
        )
        n, weights, noise = dataset.n_rows, columns.get("sample_weight"), columns.get("noise_variance")
        offset = known_part(likelihood, columns.get("offset"), columns.get("exposure"), n)
        return cls(
            likelihood,
            observations(likelihood, y, n),
            offset,
            None if weights is None else row_weights(weights, n, some=some),
            row_noise(likelihood, noise, n),
            classes,
            dataset.names,
            dataset.roles,
            chosen,
        )

    def rows(self, X, kind=Rows):
        """Return `Rows` of checked features X (N, D), or others of their kind."""
        return kind(X, self.y, self.offset, self.weights, self.noise)

    @property
    def labels(self):
        """What a posterior keeps of them, by the names of its fields."""
        return {"columns": self.names, "classes": self.classes, "roles": self.roles}


def row_noise(likelihood, value, n):
    """Return n known variances of Gaussian noise, one per row of X: positive; None if there are none."""
    if value is None:
        return None
    if not isinstance(likelihood, Gaussian):
        raise ValueError("noise_variance needs the likelihood Gaussian; other likelihoods have noise of their own")
    noise = row_vector(value, "noise_variance", n)
    if not np.all(noise > 0):
        row = int(np.argmin(noise > 0))
        raise wrong("noise_variance", f"must be positive, got {float(noise[row])!r} in row {row}")
    return noise
