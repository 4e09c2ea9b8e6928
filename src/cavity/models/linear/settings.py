"""Settings of a linear predictor with a Gaussian prior, checked: those of `GLM`, and of the fixed effects of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatOrArray, Frozen, set_fields
from cavity.base.results import shorten_repr
from cavity.likelihoods import Likelihood
from cavity.models.defaults import check_likelihood
from cavity.models.formula.notation import is_formula
from cavity.models.hyperpriors import check_priors
from cavity.models.integration_designs import check_integrate
from cavity.models.linear.defaults import check_intercept
from cavity.models.linear.evidence import PRIOR_VARIANCE


@dataclass(frozen=True, slots=True, eq=False)
class LinearSettings(Frozen):
    """Base of models of f = x'w + offset, w ~ N(prior_mean, prior_variance); `cavity.GLM` explains the settings."""

    formula: str | Likelihood | None = None
    likelihood: Likelihood | Any = None
    _: KW_ONLY
    prior_mean: FloatOrArray = 0.0
    prior_variance: FloatOrArray = None
    approximation: str = "full"
    intercept: bool | float | None = None
    standardize: bool = False
    centre: FloatOrArray = None
    priors: Mapping[str, Any] | str | None = None
    graphs: Mapping[str, Any] | None = None
    integrate: str | bool = False
    bins: int | None = None

    def __post_init__(self) -> None:
        if self.formula is not None and not is_formula(self.formula):  # the first positional argument
            if self.likelihood is not None:
                message = f"must be a formula like 'y ~ x' before a likelihood, got {self.formula!r}"
                raise arrays.error_of("formula", message, ValueError if isinstance(self.formula, str) else TypeError)
            set_fields(self, formula=None, likelihood=self.formula)
        set_fields(
            self,
            likelihood=check_likelihood(self.likelihood),
            intercept=check_intercept(self.intercept),
            standardize=arrays.check_flag(self.standardize, "standardize"),
            priors=check_priors(self.priors),
            integrate=check_integrate(self.integrate),
        )
        if self.centre is not None:
            set_fields(self, centre=arrays.copy_read_only(arrays.check_finite_array(self.centre, "centre", ndim=(1,))))
        mean = arrays.check_finite_array(self.prior_mean, "prior_mean", ndim=(0, 1))
        set_fields(self, prior_mean=arrays.copy_read_only(mean))
        arrays.check_choice(self.approximation, "approximation", ("full", "diagonal"))
        if self.prior_variance is None:
            return
        variance = arrays.check_finite_array(self.prior_variance, "prior_variance", ndim=(0, 1, 2))
        if variance.ndim < 2 and not np.all(variance > 0):
            raise arrays.error_of("prior_variance", f"must be positive, got {float(variance.min())!r}")
        if variance.ndim == 2:
            if self.approximation == "diagonal":
                raise ValueError("prior_variance must be a number or (D,) for approximation='diagonal', got a matrix")
            arrays.cholesky(arrays.check_symmetric(variance, "prior_variance"), "prior_variance")
        set_fields(self, prior_variance=arrays.copy_read_only(variance))


def describe_settings(posterior):
    """Yield the lines about settings of the repr of a GLM's posterior."""
    likelihood = shorten_repr(posterior.model.likelihood)
    mean, variance = posterior.model.prior_mean, posterior.model.prior_variance
    variances = np.broadcast_to(np.diag(variance) if np.ndim(variance) == 2 else variance, posterior.mean.shape)
    chosen = posterior.chosen or ()
    if "likelihood" in chosen:
        likelihood += " (chosen from y)"
    if "()" not in likelihood or "likelihood" in chosen:
        yield "likelihood", likelihood
    columns = variances[posterior.intercept :]
    names = posterior.hyperparameters.names if posterior.hyperparameters else ()
    has_variance = any(name.startswith(PRIOR_VARIANCE) for name in names)
    if (has_variance or PRIOR_VARIANCE in chosen) and columns.size:
        ends = sorted({f"{columns.min():.4g}", f"{columns.max():.4g}"}, key=float)
        yield "prior", f"variance {' to '.join(ends)} ({'learnt' if has_variance else 'scaled to the data'})"
    if posterior.intercept:
        yield "intercept", f"prior mean {np.ravel(mean)[0]:.4g}, variance {variances[0]:.4g}"
    if posterior.centre is not None:
        scaled = np.any(posterior.spread != 1.0)
        yield "columns", "divided by their standard deviations" if scaled else "centred, for the thresholds"
