"""The contract of a structured term: what a model needs of it, once its columns have been seen.

A term adds Z b to the linear predictor f of a row: Z a sparse row, b its k effects. Their prior has mean zero and the
precision

    P(theta) = sum_j c_j(theta) S_j,                                                                               (1)

whose pattern does not depend on theta. Where P is singular, its null space N (k, r) stands among the fixed effects, and
the prior is the proper Gaussian on the subspace A b = 0, A (r, k) with A N regular ([RH]_, sections 2.3.3 and 3.2). Its
normalising constant takes part in evidences as

    log|P|* + 2 log|det(A N)| - log|N'N|,                                                                          (2)

log|P|* the log of the product of the eigenvalues of P that are not zero: with log|A A'| subtracted, (2) is the log
determinant of the precision on the subspace, and log|A A'| cancels against that of the posterior.

References
----------
.. [RH] H. Rue and L. Held, "Gaussian Markov Random Fields", 2005.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cavity.base.lazy_scipy import linalg
from cavity.base.public_objects import FloatArray, IntArray
from cavity.base.scales import SCALES_BY_NAME


class Parameter(NamedTuple):
    """A hyperparameter of a term.

    Attributes
    ----------
    name : str
        "sd", "sd(start)", "rho" and the like.
    scale : {"log", "fisher z", "logit"}
        Its free number is log x, log((1 + x)/(1 - x)), or log(x/(1 - x)).
    unit : float
        For standard deviations: which one moves f by about 1 in a typical row. For other positive numbers: a typical
        one.
    search : tuple of float, optional
        The values between which one is looked for. Positive numbers that have none are standard deviations.
    """

    name: str
    scale: str = "log"
    unit: float = 1.0
    search: tuple[float, float] | None = None

    @property
    def is_sd(self) -> bool:
        """Whether it is a standard deviation of effects."""
        return self.scale == "log" and self.search is None

    @property
    def domain(self) -> tuple[float, float]:
        """The numbers between which values are."""
        return SCALES_BY_NAME[self.scale].low, SCALES_BY_NAME[self.scale].high

    def value(self, free: float) -> float:
        """Return the value of a free number."""
        return float(SCALES_BY_NAME[self.scale].value(free))

    def slope(self, free: float) -> float:
        """Return the derivative of the value in the free number."""
        return float(SCALES_BY_NAME[self.scale].slope(free))

    def free(self, value: float) -> float:
        """Return the free number of a value."""
        return float(SCALES_BY_NAME[self.scale].free(value))


class PriorValue(NamedTuple):
    """The prior of a term at given free numbers, (m,): (1) and (2), and their derivatives."""

    coefficients: FloatArray  # (J,)
    slopes: FloatArray  # (J, m)
    log_determinant: float  # (2)
    log_determinant_slopes: FloatArray  # (m,)


@dataclass(frozen=True, eq=False)
class TermPrior(ABC):
    """The prior of the effects of a term.

    Attributes
    ----------
    parameters : tuple of Parameter, m of them
        The hyperparameters theta.
    rows, columns : ndarray (e,) of int
        The pattern: entries of the lower triangle, row >= column, with all of the diagonal, each once.
    structures : ndarray or sparse array (J, e)
        The entries of each S_j; the identity where entries are functions of theta each, which `evaluate` returns.
    constraints : ndarray (r, k) or None
        A, without a constraint None.
    """

    parameters: tuple[Parameter, ...]
    rows: IntArray
    columns: IntArray
    structures: Any
    constraints: FloatArray | None

    @cached_property
    def pins(self) -> IntArray:
        """The numbers (r,) of effects without which no null vector is left: those by which constraints differ most."""
        return np.sort(linalg.qr(self.constraints, mode="r", pivoting=True)[1][: len(self.constraints)])

    @abstractmethod
    def evaluate(self, free: Sequence[float]) -> PriorValue:
        """Return the prior at free numbers (m,)."""


@dataclass(frozen=True, eq=False)
class ScaledStructures(TermPrior):
    """Structures that are scaled by precisions: c_j = scale_j/sd^2, sd one of the parameters for each structure.

    Attributes
    ----------
    which : tuple of int (J,)
        The number of the parameter of each structure.
    scales : tuple of float (J,)
        What the variance of an effect is divided by, so that sd has the meaning that the term documents.
    ranks : tuple of int (J,)
        Of the structures: together k - r.
    log_determinant : float
        (2) where all c_j are 1.
    """

    which: tuple[int, ...]
    scales: tuple[float, ...]
    ranks: tuple[int, ...]
    log_determinant: float

    def evaluate(self, free: Sequence[float]) -> PriorValue:
        """Return the prior at free numbers, the logs of the standard deviations."""
        free, index = np.asarray(free, dtype=np.float64), np.array(self.which)
        c = np.array(self.scales) * np.exp(-2.0 * free[index])
        slopes = np.zeros((len(c), len(free)))
        slopes[np.arange(len(c)), index] = -2.0 * c
        ranks = np.array(self.ranks, dtype=np.float64)
        value = self.log_determinant + float(ranks @ (np.log(self.scales) - 2.0 * free[index]))
        return PriorValue(c, slopes, value, -2.0 * np.bincount(index, ranks, len(free)))


def list_variables(term: Any) -> tuple[str | int, ...]:
    """The columns that it reads."""
    names = (getattr(term, field, None) for field in ("column", "by", "group"))
    return tuple(name for name in names if name is not None)


class BuiltTerm(ABC):
    """A term whose columns have been seen: everything it says about other rows comes from what it has stored.

    Those of `cavity.terms` are dataclasses, whose fields files hold: numbers, texts, arrays, `Levels`, tuples of these.

    Attributes
    ----------
    name : str
        As formulas have it: "s(age)".
    variables : tuple of str
        The columns that it reads.
    size : int
        The number of effects, k.
    prior : TermPrior
        Of the effects.
    """

    name: str
    variables: tuple[str, ...]
    size: int
    prior: TermPrior
    derivative_variables: tuple[str | int, ...] = ()  # in which `derivative_design` has the rows of derivatives
    has_linked_rows = False  # whether rows have effects that the prior does not link, so that they fill the factor
    has_knots = False  # whether more effects may show more of the same function
    is_full = False  # whether there cannot be more of them
    has_rows_by_parameters = False  # whether `design` of new rows takes the free numbers, free=

    @property
    def point_variables(self) -> tuple[str, ...]:
        """The columns by which `grid` and curves name a point: those that it reads, where not several levels act."""
        return self.variables

    def effect_names(self) -> list[str]:
        """Return the names of the effects."""
        return [str(i + 1) for i in range(self.size)]

    def grid(self, n: int) -> dict[str, Any]:
        """Return a table of columns that shows the term: n points for each level, or all states or levels."""
        raise ValueError(f"{self.name} has no grid: give points for its values")

    @abstractmethod
    def design(self, table: Mapping[str, Any], levels: str = "known") -> Any:
        """Return the rows Z of a table of columns (M,), a CSR array (M, k).

        Parameters
        ----------
        table : dict of str to array_like (M,)
            The columns of `variables`.
        levels : {"known", "new", "zero"}
            What is done about levels of groups that the fit had not: refused with a ValueError naming them, or rows
            without entries.
        """

    def find_problem(self, free: Sequence[float]) -> str | None:
        """Return what a fit at some free numbers has to warn of, None if there is nothing."""
        return None

    def fixed_columns(self, table: Mapping[str, Any]) -> dict[str, FloatArray]:
        """Return the columns (M,) of the null space, by the names of their fixed effects; by default none.

        A constant is not among them: the intercept of the model stands for it.
        """
        return {}

    def extra_variance(self, table: Mapping[str, Any], free: Sequence[float], levels: str = "known") -> Any:
        """Return the variance of f (M,) that the effects do not have: of new levels, and beyond the range of a smooth.

        None stands for zeros.
        """
        return None

    def extra_covariance(
        self, table: Mapping[str, Any], origin: Mapping[str, Any], free: Sequence[float], derivative: bool = False
    ) -> Any:
        """Return the covariance (M,) of what effects do not have with that at the first row of `origin`.

        That is of the variables of `extra_variance`, or `derivative_variance`, at levels of the fit. None stands for
        unknown: variances of differences then are a bound.
        """
        return None

    def derivative_variance(self, table: Mapping[str, Any], free: Sequence[float]) -> Any:
        """Return the variance of the derivative (M,) that the effects do not have; None stands for zeros."""
        return None
