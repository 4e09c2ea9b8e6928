"""Structured terms of a fit: their rows, and the names of their parameters."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base.arrays import check_number, error_of
from cavity.base.errors import NumericalWarning, warn
from cavity.base.frames import find_repeated
from cavity.base.lazy_scipy import sparse
from cavity.linalg.coded_rows import MAX_CODES
from cavity.models.hyperpriors import PriorTarget
from cavity.models.mixed.effect_layout import StructuredBlock
from cavity.models.mixed.free_parameters import FreeTermParameters, name_parameters
from cavity.terms.blocks import read_numbers
from cavity.terms.contract import BuiltTerm

MIN_BINS = 10
INDEPENDENT_ROWS = 1 << 12  # that mostly show it
MAX_DEPENDENT_SHARE = 1e-10  # of a column that is left where others explain it


@dataclass(frozen=True, slots=True, eq=False)
class StructuredRows:
    """A structured term with its rows Z, a CSR array (N, k). Its setting are the values of its parameters, or None.

    With `codes` (N,) `different` are the rows (m, k) that differ, and `codes` their numbers; else it is Z.
    """

    built: BuiltTerm
    different: Any
    codes: Any = None

    @property
    def Z(self):
        """All rows."""
        return self.different if self.codes is None else self.different[self.codes]

    @property
    def n_rows(self):
        """How many rows there are."""
        return self.different.shape[0] if self.codes is None else len(self.codes)

    @property
    def name(self):
        """The name of the term, as formulas have it."""
        return self.built.name

    @property
    def block(self):
        """The block of its effects."""
        return StructuredBlock(self.built.size, self.built.prior, self.Z if self.built.has_linked_rows else None)

    def is_open(self, values):
        """Whether some parameter is to be found."""
        return None in values

    def free_parameters(self, values, spread):
        """The map from free numbers to the values of its parameters, None where all are given."""
        return FreeTermParameters(self.name, self.built.prior.parameters, values, spread) if None in values else None

    @property
    def prior_targets(self):
        """The parameters, as priors may be of them."""
        parameters = self.built.prior.parameters
        names = name_parameters(self.name, [p.name for p in parameters])
        return [PriorTarget(name, p.name, p.scale, self.name) for name, p in zip(names, parameters, strict=True)]

    def values(self, rows):
        """The rows Z of some rows, a mask or a slice."""
        return self.Z if self._count(rows) == self.n_rows else self.Z[rows]

    @property
    def coded_values(self):
        """What `code_effects` takes: the different rows and their numbers, if there are such."""
        return self.different if self.codes is None else (self.different, self.codes)

    def _count(self, rows):
        """How many rows a mask or a slice has."""
        return len(range(*rows.indices(self.n_rows))) if isinstance(rows, slice) else int(np.count_nonzero(rows))

    def variances(self, values, rows):
        """About the variance of f that its effects have in some rows under the prior: the sum of those of its sds."""
        parameters = self.built.prior.parameters
        total = sum((value / p.unit) ** 2 for p, value in zip(parameters, values, strict=True) if p.is_sd)
        return np.full(self._count(rows), total)

    def check_setting(self, setting, name):
        """Return the values of its parameters, None of those that are open, from a variance or a dict of values."""
        parameters = {parameter.name: parameter for parameter in self.built.prior.parameters}
        values = dict.fromkeys(parameters)
        if isinstance(setting, dict):
            values |= setting
        elif setting is not None:
            if list(parameters) != ["sd"] or np.shape(setting) != (1, 1):
                message = f"must be a dict with some of {', '.join(parameters)}, as the term has these; got {setting!r}"
                raise error_of(name, message)
            values["sd"] = float(np.sqrt(setting[0, 0]))
        for key, value in values.items():
            if key not in parameters:
                raise error_of(name, f"must have values of {', '.join(parameters)}, got one of {key!r}")
            if value is not None:
                low, high = parameters[key].domain
                values[key] = check_number(value, f"{name}[{key!r}]", low=low, high=high)
        return tuple(values.values())

    def describe_setting(self, values):
        """Return the values of its parameters as a posterior's model has them, by their names."""
        return {p.name: value for p, value in zip(self.built.prior.parameters, values, strict=True)}

    def without_rows(self):
        """The term without the entries of its rows."""
        return replace(self, different=sparse.csr_array((self.n_rows, self.built.size)), codes=None)

    def named(self):
        """What decides the bits of a fit, by the words of messages."""
        parts = {part: getattr(self.different, part) for part in ("data", "indices", "indptr")}
        return {f"{part} of {self.name}": values for part, values in (parts | {"codes": self.codes}).items()}


def bin_covariates(terms, table, bins, in_use, X, names):
    """Return a table whose covariates of smooths have at most so many different values, X with them, and for each of
    these covariates its values and the number of that of each row.

    The range is that of the rows in use, None for all; values of other rows beyond it stay, and then there are no
    numbers, or where `bins` are more than MAX_CODES. None as `bins` changes nothing.
    """
    if bins is None:
        return table, X, {}
    table, X, coded = dict(table), X.copy(), {}
    has_codes = in_use is None and bins <= MAX_CODES
    for name in dict.fromkeys(name for term in terms for name in term.binned_variables):
        x = read_numbers(table, name)
        own = x if in_use is None else x[in_use]
        low, high = float(np.min(own)), float(np.max(own))
        if len(np.unique(own[: 2 * bins])) > bins or len(np.unique(own)) > bins:
            step = (high - low) / (bins - 1)
            codes = np.rint((x - low) / step)
            if has_codes:
                coded[name] = np.clip(low + step * np.arange(bins), low, high), codes.astype(np.uint16)
            binned = np.clip(low + step * codes, low, high)
            table[name] = binned if in_use is None else np.where((x < low) | (x > high), x, binned)
            if isinstance(name, int) or name in names:  # a linear effect of the covariate is that of the binned one
                X[:, name if isinstance(name, int) else names.index(name)] = table[name]
        elif has_codes:
            values, codes = np.unique(x, return_inverse=True)
            coded[name] = values, codes.astype(np.uint16)
    return table, X, coded


def build_structured(terms, table, X, names, constant=False, in_use=None, coded=None):
    """Return structured terms with their rows, X with the columns of their null spaces, and the names of these.

    A column that depends linearly on those before it is left out: a slope that is an effect of its own already.

    Parameters
    ----------
    terms : sequence of StructuredTerm
        Settings.
    table : dict of str or int to array_like (N,)
        The columns that they read.
    X : ndarray (N, D)
        Columns of the fixed effects.
    names : tuple of str
        Their names.
    constant : bool, default False
        Whether there is a constant beside X, as open thresholds have.
    in_use : ndarray (N,) of bool, optional
        The rows that decide on ranges and knots of smooths; by default all. States and levels are those of all rows.
    coded : dict, optional
        The values of columns, and the number of that of each row.
    """
    built = _name_apart(terms, [term.build(_select_to_build(table, term, in_use)) for term in terms])
    repeated = find_repeated([term.name for term in built])
    if repeated is not None:
        raise error_of("effects", f"must have each term once, got {repeated} twice")
    rows = [_read_rows(term, table, coded or {}) for term in built]
    idle = next((block.name for block in rows if not np.any(block.different.data)), None)
    if idle is not None:
        raise error_of("effects", f"must act in some row, got {idle}, whose weights are 0 or cancel in every row")
    columns = _find_fixed_columns(built, table)
    columns = {name: values for name, values in columns.items() if name not in names}
    basis = X if not constant else np.column_stack([np.ones(len(X)), X])
    independent = find_independent(basis, list(columns.values()))
    added = {name: values for (name, values), is_new in zip(columns.items(), independent, strict=True) if is_new}
    return rows, append_columns(X, added.values()), tuple(added)


def _read_rows(built, table, coded):
    """Return a built term with its rows, those of different values once where its only column is coded."""
    if len(built.variables) != 1 or built.variables[0] not in coded:
        return StructuredRows(built, design_rows(built, _select(table, built)))
    name = built.variables[0]
    values, codes = coded[name]
    return StructuredRows(built, sparse.csr_array(design_rows(built, {name: values})), codes)


def _name_apart(terms, built):
    """Return built terms, of which those with the name of another one have their long names."""
    names = [item.name for item in built]
    pairs = zip(terms, built, strict=True)
    return [
        item if names.count(item.name) == 1 or term.long_name == term.name else replace(item, name=term.long_name)
        for term, item in pairs
    ]


def _select_to_build(table, term, in_use):
    """Return the columns of a table that a term is built from."""
    columns = _select(table, term)
    if in_use is None or set(term.variables) != set(term.binned_variables):
        return columns
    return {name: np.asarray(column)[in_use] for name, column in columns.items()}


def _select(table, term):
    """Return the columns of a table that a term reads."""
    return {name: table[name] for name in term.variables}


def _find_fixed_columns(built_terms, table):
    """Return the columns of the null spaces of terms by their names."""
    columns = {}
    for built in built_terms:
        columns |= built.fixed_columns(_select(table, built))
    return columns


def append_columns(X, columns):
    """Return X (N, D) with more columns (N,)."""
    return np.column_stack([X, *columns]) if columns else X


def find_independent(X, columns):
    """Return whether each of some columns is linearly independent of X and those before it, a list."""
    if not columns:
        return []
    units = [column / np.max(np.abs(column)) for column in columns]
    least = [MAX_DEPENDENT_SHARE * np.linalg.norm(unit) for unit in units]
    if len(X) > INDEPENDENT_ROWS:  # what is left of a column in some rows is left in all of them
        few = slice(0, None, -(-len(X) // INDEPENDENT_ROWS))
        independent = _leave_rests(X[few], [unit[few] for unit in units], least)
        if all(independent):
            return independent
    return _leave_rests(X, units, least)


def _leave_rests(X, units, least):
    """Return whether X and the columns before it leave more of each column than the least size, a list."""
    scaled = X / np.maximum(np.max(np.abs(X), axis=0), np.finfo(float).tiny)
    basis, out = np.linalg.qr(scaled)[0], []
    for unit, smallest in zip(units, least, strict=True):
        rest = unit - basis @ (basis.T @ unit)
        rest -= basis @ (basis.T @ rest)
        size = np.linalg.norm(rest)
        out.append(bool(size > smallest))
        if out[-1]:
            basis = np.column_stack([basis, rest / size])
    return out


def read_structured(built_terms, table, levels="known", settings=None):
    """Return the rows Z of structured terms for new rows, CSR arrays (M, k), given the values of their parameters."""
    settings = [None] * len(built_terms) if settings is None else settings
    return [
        design_rows(built, _select(table, built), levels, setting)
        for built, setting in zip(built_terms, settings, strict=True)
    ]


def design_rows(built, table, levels="known", values=None):
    """Return the rows Z of a built term, which may depend on the values of its parameters."""
    if values is None or not built.has_rows_by_parameters:
        return built.design(table, levels)
    return built.design(table, levels, StructuredBlock(built.size, built.prior).free(values))


def warn_of_terms(problem):
    """Warn of what structured terms find wrong with the values of their parameters after a fit."""
    for term, setting in zip(problem.terms, problem.settings, strict=True):
        message = term.built.find_problem(term.block.free(setting)) if isinstance(term, StructuredRows) else None
        if message is not None:
            warn(message, NumericalWarning)


def find_null_columns(built_terms, table, names):
    """Return the columns of the null spaces of structured terms for new rows, those of some names, in their order."""
    columns = _find_fixed_columns(built_terms, table)
    return [columns[name] for name in names]


def read_numbered_columns(terms, X):
    """Return the columns of X (N, D) that structured terms name by their numbers."""
    numbers = dict.fromkeys(name for term in terms for name in term.variables if not isinstance(name, str))
    for number in numbers:
        if not 0 <= number < X.shape[1]:
            raise error_of("effects", f"must name columns of X, counted from 0, got {number}; X has {X.shape[1]}")
    return {number: X[:, number] for number in numbers}
