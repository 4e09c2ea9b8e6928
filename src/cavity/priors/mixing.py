"""Prior of the share of a variance that a field on a graph has.

References
----------
.. [RSSR] A. Riebler, S. H. Sorbye, D. Simpson and H. Rue, "An intuitive Bayesian spatial model for disease mapping that
   accounts for scaling", Statistical Methods in Medical Research 25, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import field as declare_field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cavity.base.arrays import check_number, error_of
from cavity.base.public_objects import FloatOrArray, Public, set_fields
from cavity.base.scales import LOGIT_SCALE
from cavity.terms.graphs import MarkovField

MAX_REGIONS = 5000  # whose covariance is a dense matrix for once


@dataclass(frozen=True)
class PCMixing(Public):
    """Penalised complexity prior of the share phi of ``bym2``, whose simplest model are independent effects, 0 [RSSR]_.

    With g the eigenvalues of the covariance of the effects at phi = 1 and sd = 1, the distance from independent effects
    is d(phi) with d^2 = phi sum (g - 1) - sum log(1 + phi (g - 1)), and the density of phi is r exp(-r d) d'(phi).

    Parameters
    ----------
    eigenvalues : sequence of float
        The g, of which one at least is 0; `of` finds those of a graph.
    share : float in (0, 1), default 0.5
        A share that phi is below with a given probability.
    probability_below : float in (0, 1), default 2/3
        That one.

    Raises
    ------
    ValueError, TypeError
        For numbers outside these ranges.

    Examples
    --------
    >>> import cavity
    >>> counties, _ = cavity.data.table("scotland")
    >>> W = {name: others.split() for name, others in zip(counties["county"], counties["neighbours"])}
    >>> prior = cavity.priors.PCMixing.of(cavity.terms.MarkovField("county", W))
    >>> round(prior.rate, 6), round(float(prior.log_density(0.5)), 6)
    (0.285542, -0.612609)
    """

    eigenvalues: Sequence[float] = declare_field(repr=False)
    share: float = 0.5
    probability_below: float = 2.0 / 3.0
    scale: ClassVar[str] = LOGIT_SCALE

    def __post_init__(self) -> None:
        values = tuple(check_number(value, "eigenvalues", low=-1e-12) for value in self.eigenvalues)
        if not values or min(values) > 0.0:
            raise error_of("eigenvalues", "must have at least one 0, as those of effects that sum to zero, got none")
        shares = {
            name: check_number(getattr(self, name), name, low=0, high=1) for name in ("share", "probability_below")
        }
        set_fields(self, eigenvalues=values, **shares)

    @classmethod
    def of(cls, field: Any, share: float = 0.5, probability_below: float = 2.0 / 3.0) -> PCMixing:
        """Return the prior for the graph of a field.

        Parameters
        ----------
        field : cavity.terms.MarkovField
            On the graph, of any kind.
        share : float in (0, 1), default 0.5
            A share that phi is below with a given probability.
        probability_below : float in (0, 1), default 2/3
            That one.
        """
        if not isinstance(field, MarkovField):
            raise error_of("field", f"must be a cavity.terms.MarkovField, got {field!r}", TypeError)
        n = len(field.regions)
        if n > MAX_REGIONS:
            raise error_of("field", f"must have at most {MAX_REGIONS} regions for this prior, got {n}; take Beta")
        prior = replace(field, prior="icar").build({field.group: field.regions}).prior
        P = np.zeros((n, n))
        P[prior.rows, prior.columns] = prior.structures[0]
        rank, precisions = prior.ranks[0], np.linalg.eigvalsh(P)  # of the lower triangle
        return cls((0.0,) * (n - rank) + tuple((1.0 / precisions[n - rank :]).tolist()), share, probability_below)

    @cached_property
    def _excess(self):
        return np.array(self.eigenvalues) - 1.0

    @cached_property
    def rate(self) -> float:
        """Return the rate r, at which phi is below `share` with the probability."""
        return -math.log1p(-self.probability_below) / float(self._distance(self.share)[0])

    def _distance(self, value):
        """d and its first two derivatives."""
        phi = np.asarray(value, dtype=np.float64)[..., None]
        ratio = self._excess / (1.0 + phi * self._excess)
        square = np.sum(phi * self._excess - np.log1p(phi * self._excess), axis=-1)
        d = np.sqrt(square)
        first = 0.5 * np.sum(phi * self._excess * ratio, axis=-1) / d
        return d, first, (0.5 * np.sum(ratio**2, axis=-1) - first**2) / d

    def log_density(self, value: FloatOrArray) -> FloatOrArray:
        """Return the log density of shares.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        d, first, _ = self._distance(value)
        return math.log(self.rate) - self.rate * d + np.log(first)

    def slope(self, value: FloatOrArray) -> FloatOrArray:
        """Return the derivative of the log density in the logit.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        _, first, second = self._distance(value)
        return value * (1.0 - value) * (second / first - self.rate * first)
