"""The rows of a fit of a mixed model, from a formula and a data frame, or from X, y and groups."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.frames import names_of
from cavity.base.labels import is_ordered
from cavity.likelihoods import Binomial
from cavity.models.defaults import likelihood_for
from cavity.models.linear.defaults import learns_level
from cavity.models.mixed.formula import design
from cavity.models.mixed.readers import GROUPS, FormulaReader, Reader, add_offsets
from cavity.models.mixed.terms import INTERCEPT, terms_of
from cavity.models.observations import Observations
from cavity.sources.dataset import Dataset, open_columns, open_table
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
    reader : Reader
        For rows to come.
    """

    observations: Observations
    X: np.ndarray
    terms: tuple
    reader: Reader

    @classmethod
    def of(cls, model, X, y, groups, others):
        """Return the rows of a fit of a model; `others` are the arguments offset, exposure and sample_weight.

        Raises
        ------
        ValueError, TypeError
            For what is not there, or is no column.
        """
        if model.formula:
            return cls._by_formula(model, X, y, groups, others)
        return cls._by_columns(model, X, y, groups, others)

    @classmethod
    def _by_formula(cls, model, frame, y, groups, others):
        for name, value in (("y", y), ("groups", groups)):
            if value is not None:
                words = f"must be None where there is a formula, which says it; got {type(value).__name__}"
                raise arrays.error_of(name, words)
        dataset = Dataset.open(open_columns(frame, "data"), others)
        made = design(model.effects, dataset.X)
        columns = dataset.columns | {"y": made.y, "offset": add_offsets(made.offset, dataset.column("offset"))}
        observed = replace(dataset, X=made.X, columns=columns)
        observations = Observations.of(model.likelihood, observed, default=_likelihood_for)
        intercept_left_out = leaves_intercept_out(model, observations.likelihood)
        if intercept_left_out:
            made = design(model.effects, dataset.X, intercept_left_out)
        if not (made.names or (intercept_left_out and made.terms)):
            raise arrays.error_of("effects", f"must have fixed effects, if only an intercept, got {model.effects!r}")
        if model.intercept is False and INTERCEPT in made.names:
            raise arrays.error_of("intercept", "must be None where there is a formula: write '0 +' in it; got False")
        terms = tuple(term.without_rows() for term in made.terms)
        reader = FormulaReader(terms, made.names, len(made.names), observations.roles, coding=made.coding)
        return cls(observations, made.X, tuple(made.terms), reader)

    @classmethod
    def _by_columns(cls, model, X, y, groups, others):
        X = open_table(X, "X")
        wanted = dict.fromkeys(each for one in model.effects for each in one.group)
        if groups is None and names_of(X) is None:
            words = f"must hold the labels of {', '.join(map(repr, wanted))}, as X is no data frame; got None"
            raise arrays.error_of("groups", words, TypeError)
        columns = {GROUPS.format(name): name for name in wanted} if groups is None else {}
        dataset = Dataset.open(X, {"y": y} | others | columns)
        if groups is None:
            groups = {name: dataset.column(argument) for argument, name in columns.items()}
        names, X = dataset.names, open_features(dataset.in_memory(), "full")
        terms = tuple(terms_of(model.effects, X, names, groups))
        observed = replace(dataset, X=X, columns={name: dataset.columns[name] for name in ("y", *others)})
        observations = Observations.of(model.likelihood, observed)
        bare = tuple(term.without_rows() for term in terms)
        return cls(observations, X, terms, Reader(bare, names, X.shape[1], observations.roles))

    def named(self, rows):
        """Return what decides the bits of a fit by the words of messages; `rows` are prepared."""
        levels = {f"levels of {term.name}": term.codes for term in self.terms}
        return rows.named() | levels | {f"columns of {term.name}": term.Z for term in self.terms}


def leaves_intercept_out(model, likelihood):
    """Whether the intercept of a formula is left out, because thresholds stand for it."""
    return model.formula and is_ordered(likelihood) and (model.intercept is False or learns_level(likelihood))


def _likelihood_for(y):
    """Return the likelihood for the y of a formula, whose counts are pairs of successes and trials."""
    return Binomial() if np.ndim(y) == 2 else likelihood_for(y)
