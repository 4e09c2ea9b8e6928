"""Bayes factors of the terms of a linear predictor, by the Savage-Dickey density ratio.

References
----------
.. [VW] I. Verdinelli and L. Wasserman, "Computing Bayes factors using a generalization of the Savage-Dickey density
   ratio", Journal of the American Statistical Association 90, 1995.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cavity.base import arrays, summary
from cavity.base.constants import LOG_2PI
from cavity.base.frames import join_names
from cavity.base.lazy_scipy import linalg
from cavity.models.linear.prior import Prior


class TermBayesFactors:
    """Method of posteriors of weights with a `model` that has their Gaussian prior."""

    __slots__ = ()

    def bayes_factors(self, terms: str | Sequence[str] | None = None) -> summary.Table:
        """Compare the model with the models in which all coefficients of a term are 0.

        Parameters
        ----------
        terms : str or sequence of str, optional
            Names of columns, of columns of categories, or of interactions like "a:b"; by default all but the intercept.

        Returns
        -------
        Table
            For each term the number of its coefficients, and the log of the Bayes factor for the model with them: the
            difference of the log evidences of the two models. Above 0 the data speak for the term.

        Raises
        ------
        ValueError
            For a term that is not there.

        Notes
        -----
        The Bayes factor is p(w_T = 0) / p(w_T = 0 | data), prior over posterior density of the coefficients of the term
        at 0 (Savage-Dickey ratio [VW]_), both Gaussian; parameters that were learnt count as known. It depends on
        `prior_variance`: the wider the prior, the more the data have to say for a term.

        Examples
        --------
        >>> import cavity
        >>> table, about = cavity.data.table("sleepstudy", as_frame=True)
        >>> posterior = cavity.GLM("Reaction ~ Days").fit(table)
        >>> print(posterior.bayes_factors())
        Bayes factors of terms, by the Savage-Dickey ratio
                coefficients  log Bayes factor
          Days             1             31.98
        """
        members = {}
        for k, name in enumerate(self.coefficient_names):
            members.setdefault(":".join(part.partition("[")[0] for part in name.split(":")), []).append(k)
        names = [name for name in members if name != "intercept"] if terms is None else terms
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if name not in members:
                there = f"there is {join_names(list(members))}"
                raise arrays.error_of("terms", f"must be of the model, got {name!r}; {there}")
        prior = Prior.of(self.model.prior_mean, self.model.prior_variance, len(self.mean))
        variance = (
            prior.variance if prior.variance.ndim == 2 else np.diag(np.broadcast_to(prior.variance, self.mean.shape))
        )
        factors = []
        for name in names:
            index = np.array(members[name])
            part = np.ix_(index, index)
            before = log_density_at_zero(prior.mean[index], variance[part])
            factors.append(before - log_density_at_zero(self.mean[index], self.covariance[part]))
        columns = {"coefficients": [len(members[name]) for name in names], "log Bayes factor": np.array(factors)}
        formats = {"coefficients": 0, "log Bayes factor": 2}
        return summary.Table("Bayes factors of terms, by the Savage-Dickey ratio", tuple(names), columns, formats)


def log_density_at_zero(mean, covariance):
    """Return log N(0; mean, covariance)."""
    root = arrays.cholesky(np.asarray(covariance), "covariance")
    scaled = linalg.solve_triangular(root, mean, lower=True)
    return float(-0.5 * (scaled @ scaled + len(mean) * LOG_2PI) - np.sum(np.log(np.diagonal(root))))
