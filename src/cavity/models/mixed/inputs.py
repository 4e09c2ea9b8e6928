"""The rows of a fit of a mixed model, from a formula and a data frame, or from X, y and groups."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.frames import name_coefficients, names_of
from cavity.base.labels import is_ordered
from cavity.base.missing_values import DroppedRows
from cavity.models.formula.structured import parse_term
from cavity.models.formula.survival import has_times
from cavity.models.linear.defaults import learns_level
from cavity.models.linear.inputs import (
    likelihood_for_formula,
    likelihood_of_regression,
    open_formula_table,
    refuse_proportions,
)
from cavity.models.mixed.group_columns import take_group_columns
from cavity.models.mixed.row_readers import GROUP_ARGUMENT, FormulaRowReader, RowReader
from cavity.models.mixed.structured_rows import bin_covariates, build_structured, read_numbered_columns
from cavity.models.mixed.terms import INTERCEPT_NAME, RandomEffects, make_terms, make_terms_of_blocks
from cavity.models.observations import Observations
from cavity.sources.dataset import Dataset, open_table
from cavity.sources.features import open_features


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Checked rows of a fit.

    Attributes
    ----------
    observations : Observations
        What was observed.
    X : ndarray (N, D)
        Columns of the fixed effects.
    terms : tuple of Term
        The random effects.
    reader : RowReader
        For rows to come.
    dropped : DroppedRows or None
        Rows left out because of missing values.
    """

    observations: Observations
    X: np.ndarray
    terms: tuple
    reader: RowReader
    dropped: DroppedRows | None = None

    @classmethod
    def of(cls, model, X, y, groups, others, missing="raise"):
        """Return the rows of a fit of a model; `others` are the arguments offset, exposure and sample_weight.

        Raises
        ------
        ValueError, TypeError
            For what is not there, or is no column.
        """
        if model.formula:
            return cls._by_formula(model, X, y, groups, others, missing)
        return cls._by_columns(model, X, y, groups, others, missing)

    @classmethod
    def _by_formula(cls, model, frame, y, groups, others, missing):
        table = open_formula_table(model.effects, frame, others | {"y": y, "groups": groups}, missing)
        refuse_proportions(table.parts.y, model.likelihood)
        structured = [parse_term(text, model.graphs) for text in table.parts.structured]
        table = table.with_main_effects(structured)
        design = table.design()
        dataset = table.with_features(design)
        default, are_times = likelihood_for_formula, has_times(table.parts.y)
        observations = Observations.of(model.likelihood, dataset, default=default, are_times=are_times)
        intercept_left_out = is_intercept_left_out(model, observations.likelihood)
        if intercept_left_out:
            design = table.design(thresholds_for_intercept=True)
        if not (design.names or structured or (intercept_left_out and design.blocks)):
            raise arrays.error_of("effects", f"must have fixed effects, if only an intercept, got {model.effects!r}")
        if model.intercept is False and INTERCEPT_NAME in design.names:
            raise arrays.error_of("intercept", "must be None where there is a formula: write '0 +' in it; got False")
        terms = make_terms_of_blocks([(group, names, None, Z) for group, names, Z in design.blocks], design.groups)
        columns = {name: table.columns[name] for term in structured for name in term.variables}
        settings = {"coding": design.coding, "roles": observations.roles}
        reader = FormulaRowReader(terms, design.names, len(design.names), **settings)
        return cls._with_structured(
            model, observations, design.X, terms, structured, columns, reader, table.dataset.dropped
        )

    @classmethod
    def _with_structured(cls, model, observations, X, terms, structured, table, reader, dropped):
        """Return the inputs with structured terms, whose null spaces are fixed effects."""
        names = reader.columns or name_coefficients(None, X.shape[1], False)
        likelihood = observations.likelihood
        constant = is_intercept_left_out(model, likelihood) if model.formula else learns_level(likelihood)
        weights = observations.weights
        in_use = None if weights is None or np.all(weights > 0) else weights > 0
        table, X, coded = bin_covariates(structured, table, model.bins, in_use, X, names)
        rows, X, null_names = build_structured(structured, table, X, names, constant, in_use, coded)
        bare = tuple(term.without_rows() for term in terms)
        structured = tuple(block.built for block in rows)
        reader = replace(reader, terms=bare, structured=structured, null_names=null_names)
        return cls(observations, X, (*terms, *rows), reader, dropped)

    @classmethod
    def _by_columns(cls, model, X, y, groups, others, missing):
        X = open_table(X, "X")
        random = [effect for effect in model.effects if isinstance(effect, RandomEffects)]
        structured = [effect for effect in model.effects if not isinstance(effect, RandomEffects)]
        group_names = dict.fromkeys(name for one in random for name in one.group)
        group_names |= dict.fromkeys(name for one in structured for name in one.variables if isinstance(name, str))
        if group_names and groups is None and names_of(X) is None:
            message = f"must hold the labels of {', '.join(map(repr, group_names))}, as X is no data frame; got None"
            raise arrays.error_of("groups", message, TypeError)
        columns = {GROUP_ARGUMENT.format(name): name for name in group_names} if groups is None else {}
        dataset = Dataset.open(X, {"y": y} | others | columns)
        if groups is not None:
            table = take_group_columns(groups, group_names, dataset.n_rows)
            columns = {GROUP_ARGUMENT.format(name): column for name, column in table.items()}
            dataset = replace(dataset, columns=dataset.columns | columns)
        dataset = dataset.leave_out(missing)
        groups = {name: dataset.column(GROUP_ARGUMENT.format(name)) for name in group_names}
        names, X = dataset.names, open_features(dataset.in_memory(), "full")
        terms = tuple(make_terms(random, X, names, groups)) if random else ()
        observed = replace(dataset, X=X, columns={name: dataset.columns[name] for name in ("y", *others)})
        observations = Observations.of(model.likelihood, observed, default=likelihood_of_regression)
        columns = groups | read_numbered_columns(structured, X)
        reader = RowReader(terms, names, X.shape[1], observations.roles)
        return cls._with_structured(model, observations, X, terms, structured, columns, reader, dataset.dropped)

    def named(self, rows):
        """Return what decides the bits of a fit by the words of messages; `rows` are prepared."""
        named = rows.named()
        for term in self.terms:
            named |= term.named()
        return named


def is_intercept_left_out(model, likelihood):
    """Whether the intercept of a formula is left out, because thresholds stand for it."""
    return model.formula and is_ordered(likelihood) and (model.intercept is False or learns_level(likelihood))
