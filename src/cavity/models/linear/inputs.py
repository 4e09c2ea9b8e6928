"""The rows of a fit of a linear model, from a formula and a table, or from X and y."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from cavity.base import arrays
from cavity.base.labels import has_classes, is_ordered
from cavity.likelihoods import Binomial
from cavity.models.defaults import likelihood_for
from cavity.models.formula.survival import has_times
from cavity.models.formula.table import FormulaTable
from cavity.models.linear.defaults import learns_level
from cavity.models.observations import Observations
from cavity.sources.dataset import IN_FILES, Dataset

ARGUMENTS_IN_FORMULAS = ("y", "event", "groups")  # which a formula contains
PROPORTION_NOTATION = re.compile(r"\s*(\w+)\s*/\s*(\w+)\s*")  # of successes in trials


@dataclass(frozen=True, slots=True, eq=False)
class LinearInputs:
    """Checked rows of a fit of a `GLM`.

    Attributes
    ----------
    dataset : Dataset
        The features, without a column of ones where a formula has one, and the columns of arguments.
    observations : Observations
        What was observed.
    intercept : bool, float or None
        The setting of the model, or what the formula contains.
    coding : Coding or None
        How the formula makes columns of rows to come.
    """

    dataset: Dataset
    observations: Observations
    intercept: Any
    coding: Any = None

    @classmethod
    def of(cls, model, X, columns, missing):
        """Return the rows of a fit; `columns` are the arguments y, offset, exposure and sample_weight.

        Raises
        ------
        ValueError, TypeError
            For what is not there, or is no column; for settings that a formula contains.
        """
        if model.formula is None:
            dataset = Dataset.open(X, columns, remote=True).leave_out(missing)
            observations = Observations.of(model.likelihood, dataset, default=likelihood_of_regression)
            return cls(dataset, observations, model.intercept)
        table = open_formula_table(model.formula, X, columns, missing)
        refuse_proportions(table.parts.y, model.likelihood)
        options = {"in_blocks": table.dataset.kind == IN_FILES}
        design = table.design(intercept=False, **options)
        dataset = table.with_features(design)
        default, are_times = likelihood_for_formula, has_times(table.parts.y)
        observations = Observations.of(model.likelihood, dataset, default=default, are_times=are_times)
        has_intercept = design.has_intercept
        if is_ordered(observations.likelihood) and learns_level(observations.likelihood):
            design, has_intercept = table.design(thresholds_for_intercept=True, **options), False
            dataset = replace(dataset, X=design.X)
        elif not design.names and has_intercept:  # the ones are the only column
            design, has_intercept = table.design(**options), False
            dataset = replace(dataset, X=design.X)
        if not design.names:
            raise arrays.error_of("formula", f"must have effects, if only an intercept, got {model.formula!r}")
        intercept = model.intercept if has_intercept and model.intercept is not None else has_intercept
        observations = replace(observations, names=design.names)
        return cls(dataset, observations, intercept, design.coding)

    def labels(self):
        """Return what a posterior keeps of them beside the observations, by the names of its fields."""
        return {"coding": self.coding}


def open_formula_table(formula, data, columns, missing):
    """Return the `FormulaTable` of a fit; ValueError for values of arguments that a formula contains."""
    for name in ARGUMENTS_IN_FORMULAS:
        refuse_where_formula(name, columns.get(name))
    others = {name: value for name, value in columns.items() if name not in ARGUMENTS_IN_FORMULAS}
    return FormulaTable.open(formula, data, others, missing)


def refuse_where_formula(name, value):
    """Raise ValueError for an argument that a formula contains."""
    if value is not None:
        message = f"must be None where there is a formula, which contains it; got {type(value).__name__}"
        raise arrays.error_of(name, message)


def refuse_proportions(text, likelihood):
    """Raise ValueError for ``k / n`` before the ~ of a formula where the likelihood is of successes or of classes."""
    proportion = PROPORTION_NOTATION.fullmatch(text)
    if proportion and likelihood is not None and (isinstance(likelihood, Binomial) or has_classes(likelihood)):
        hint = f"p({proportion[1]}, {proportion[2]}), with the likelihood 'binomial'"
        raise arrays.error_of("formula", f"must have successes and trials as {hint}; got {text!r}")


def likelihood_for_formula(y):
    """Return the likelihood for the y of a formula, whose counts are pairs of successes and trials."""
    return Binomial() if getattr(y, "ndim", 1) == 2 else likelihood_of_regression(y)


def likelihood_of_regression(y):
    """Return the default likelihood for the y of a regression: "logit" for two values, as its weights are log odds."""
    return likelihood_for(y, binary="logit")
