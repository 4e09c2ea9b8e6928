"""Posteriors by formula as functions of their columns of numbers, by which curves and maps are drawn."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatArray
from cavity.models.formula.columns import FormulaColumns
from cavity.models.formula.design import observation_variables
from cavity.plot.display import encode_observed
from cavity.sources.dataset import open_table


@dataclass(frozen=True)
class NumberColumns:
    """A posterior by formula whose rows are arrays of the formula's columns of numbers, and the rows of a table.

    Columns of categories stay at their most frequent level, and effects of groups at zero. Nothing is predicted outside
    the range of a structured term that ends there; states of walks are those nearest.

    Attributes
    ----------
    posterior : posterior
        By a formula.
    columns : tuple of str
        The columns of numbers.
    fixed : dict of str to object
        The level of each column of categories.
    roles : dict
        The label of y.
    frame : FormulaColumns
        The table.
    rows : ndarray (n, D)
        Its columns of numbers.
    observed : ndarray (n,) or None
        Its observations as numbers, if they are there.
    """

    posterior: Any
    columns: tuple[str, ...]
    fixed: dict[str, object]
    roles: dict[str, str]
    frame: FormulaColumns
    rows: FloatArray
    observed: FloatArray | None

    @classmethod
    def of(cls, posterior, X, y=None):
        """Return it for a table; None without a table, and unless the fit was by a formula with a column of numbers."""
        numbers = list_number_columns(posterior)
        if X is None or not numbers:
            return None
        coding, table = posterior._coding, FormulaColumns(open_table(X, "X"), "X")
        names = tuple(name for name in table.names if name in numbers)
        if not names:
            return None
        fixed = {}
        for name in (*coding.levels, *_list_structured(posterior)[1]):
            labels, counts = np.unique(np.asarray(table[name]), return_counts=True)
            fixed[name] = labels[np.argmax(counts)]
        rows = np.column_stack([arrays.check_finite_array(table[name], f"X[{name!r}]", ndim=(1,)) for name in names])
        if isinstance(y, str):
            y = table[y]
        elif y is None and observation_variables(coding.parts.y) <= {*table.names}:
            y = coding.observations(table)
        observed = None if y is None else encode_observed(posterior, y)
        return cls(posterior, names, fixed, {"y": coding.parts.y}, table, rows, observed)

    def __getattr__(self, name):
        return getattr(self.posterior, name)

    @property
    def has_other_columns(self):
        """Whether rows differ in more than one column."""
        return len(self.columns) > 1 or bool(self.fixed)

    def table(self, points, **others):
        """Return the columns of a formula for an array (n, D) of its columns of numbers."""
        constants = self.fixed | others
        return {name: self._keep_known(name, values) for name, values in zip(self.columns, points.T, strict=True)} | {
            name: np.full(len(points), value) for name, value in constants.items()
        }

    def _keep_known(self, name, values):
        """The values of a column that structured terms take: none outside their range, the nearest state of a walk."""
        for term in _structured_terms(self.posterior):
            if name in split_columns(term)[0] and not getattr(term, "extrapolate", False):
                states = np.unique(self.rows[:, self.columns.index(name)])
                outside = (values < states[0]) | (values > states[-1])
                if not term.has_knots:
                    values = states[np.searchsorted(0.5 * (states[1:] + states[:-1]), values)]
                values = np.where(outside, np.nan, values)
        return values

    def predict(self, points, *, noise=False, **options):
        """Predict the rows of an array (n, D); noise of mixed models has the effects of a new level."""
        return self.posterior.predict(self.table(points), noise=noise, **self._levels(noise), missing="nan", **options)

    def quantile(self, points, q, **options):
        """Find quantiles of new observations of the rows of an array (n, D)."""
        return self.posterior.quantile(self.table(points), q, **self._levels(True), missing="nan", **options)

    def _levels(self, noise):
        return {"levels": "new" if noise else "zero"} if hasattr(self.posterior, "terms") else {}


def list_number_columns(posterior):
    """Return the names of the columns of numbers of the formula of a posterior; none without a formula."""
    coding = getattr(posterior, "_coding", None)
    if coding is None:
        return set()
    numbers, labels = _list_structured(posterior)
    return (coding.variables | numbers) - coding.levels.keys() - labels


def _structured_terms(posterior):
    """The structured terms of a posterior, as built."""
    return getattr(getattr(posterior, "_reader", None), "structured", ())


def _list_structured(posterior):
    """Names of the columns of numbers, and of labels, that structured terms read."""
    numbers, labels = set(), set()
    for term in _structured_terms(posterior):
        varying, own_labels, constants = split_columns(term)
        numbers |= {*varying, *constants}
        labels |= {*own_labels}
    return numbers - labels, labels


def split_columns(term):
    """Return names of the columns of numbers along which a structured term varies, of its labels, and of multipliers.

    A term without a grid has labels alone.
    """
    try:
        table = term.grid(2)
    except ValueError:
        return [], list(term.variables), []
    labels = [name for name, values in table.items() if np.asarray(values).dtype == object]
    numbers = [name for name in table if name not in labels]
    labels += [name for name in term.variables if name not in table]  # of other levels in a row
    constants = [name for name in numbers if np.ptp(table[name]) == 0.0]
    return [name for name in numbers if name not in constants], labels, constants
