"""The table of a fit by a formula: its columns, those that arguments name, and rows without missing values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.labels import read_labels
from cavity.base.missing_values import complete_rows, take_rows
from cavity.base.rows import check_row_vector
from cavity.models.formula.columns import FormulaColumns
from cavity.models.formula.design import (
    build_design,
    column_texts,
    formula_variables,
    refuse_y_as_effect,
    with_all_others,
)
from cavity.models.formula.evaluation import column_variables
from cavity.models.formula.notation import FormulaParts, quote_name
from cavity.sources.dataset import IN_FILES, Dataset, open_table


@dataclass(frozen=True, slots=True, eq=False)
class FormulaTable:
    """The rows of a fit by a formula.

    Attributes
    ----------
    parts : FormulaParts
        Of the formula, names of columns in place of a dot.
    columns : FormulaColumns
        Those that the formula may name.
    dataset : Dataset
        With the columns of arguments: offset, exposure, sample_weight.
    """

    parts: FormulaParts
    columns: FormulaColumns
    dataset: Dataset

    @classmethod
    def open(cls, formula, data, arguments, missing="raise"):
        """Open a table and take out the columns of arguments; `missing` says what is done about rows without a value.

        Raises
        ------
        ValueError, TypeError
            For a formula that is not understood, columns that are not there, and rows without a value.
        """
        columns = FormulaColumns(open_table(data, "data"))
        dataset = columns.open_dataset(arguments)
        reserved = {
            name for role in (dataset.roles or {}).values() for name in ([role] if isinstance(role, str) else role)
        }
        parts = with_all_others(FormulaParts.of(formula), columns.names, reserved)
        refuse_y_as_effect(parts)
        needed = {name: columns[name] for name in sorted(formula_variables(parts))}
        others = {name: value for name, value in dataset.columns.items() if value is not None}
        index, dropped = complete_rows(needed | others, missing)
        if index is not None:
            columns = FormulaColumns({name: take_rows(column, index) for name, column in needed.items()})
            arguments = {name: take_rows(value, index) for name, value in others.items()}
            dataset = replace(dataset, columns=dataset.columns | arguments, dropped=dropped)
        return cls(parts, columns, dataset)

    def with_main_effects(self, terms):
        """Return the table of a formula in which the factors that structured terms have curves by are fixed effects."""
        fixed, used_names = (
            self.parts.fixed,
            {name for text in column_texts(self.parts) for name in column_variables(text)},
        )
        for name in dict.fromkeys(term.by for term in terms if getattr(term, "by", None) is not None):
            if name not in used_names and read_labels(self.columns[name], f"data[{name!r}]").kinds is not None:
                fixed += f" + {quote_name(name)}"
        return replace(self, parts=replace(self.parts, fixed=fixed))

    def design(self, **options):
        """Return the `Design` of the rows; the options are those of `build_design`."""
        return build_design(self.parts, self.columns, **options)

    def with_features(self, design):
        """Return the `Dataset` of a fit: fixed effects as features, y and the sum of all offsets as columns."""
        offset = add_offsets(design.offset, self.dataset.column("offset"))
        return replace(
            self.dataset, X=design.X, columns=self.dataset.columns | {"y": design.y, "offset": offset}, name="X"
        )


def read_new_rows(coding, data, arguments, roles, *, intercept=True, n_features=None, in_blocks=False):
    """Return the `Dataset` of new rows by the formula of a fit, and their pandas table.

    Parameters
    ----------
    coding : Coding
        That of the fit.
    data : data frame, dict of columns, path or Source
        The rows.
    arguments : dict
        Values of arguments, or names of columns; "y" None stands for what the formula contains.
    roles : dict or None
        The columns that arguments of the fit named.
    intercept : bool, default True
        Whether the ones of the formula are one of the columns.
    n_features : int, optional
        The number of columns of the fit; with one more the ones are left out.
    in_blocks : bool, default False
        Whether the features of files may be a Source.
    """
    columns = FormulaColumns(open_table(data, "data"))
    dataset = columns.open_dataset({name: value for name, value in arguments.items() if name != "y"}, roles)
    in_blocks = in_blocks and dataset.kind == IN_FILES
    fixed, frame = coding.fixed_columns(columns, intercept, in_blocks)
    if n_features is not None and len(fixed.names) > n_features:
        fixed, frame = coding.fixed_columns(columns, False, in_blocks)
    rows = {"offset": add_offsets(fixed.offset, dataset.column("offset"))}
    if "y" in arguments:
        y = arguments["y"]
        rows["y"] = coding.observations(columns) if y is None else columns[y] if isinstance(y, str) else y
    return replace(dataset, X=fixed.values, columns=dataset.columns | rows, name="X"), frame, columns


def complete_new_rows(coding, data, arguments, roles, optional=()):
    """Return the number of new rows, those without missing values, None for all, and their table and arguments.

    The parameters are those of `read_new_rows`; values that the formula and the arguments do not read do not count, and
    `optional` columns may be absent.
    """
    columns = FormulaColumns(open_table(data, "data"))
    dataset = columns.open_dataset({name: value for name, value in arguments.items() if name != "y"}, roles)
    y = arguments.get("y")
    parts = coding.parts if "y" in arguments and y is None else replace(coding.parts, y="1")
    names = formula_variables(parts)
    needed_names = [name for name in sorted(names) if name in columns.names or name not in optional]
    table = {name: columns[name] for name in needed_names}
    rows = {name: dataset.column(name) for name in dataset.columns}
    rows |= {} if y is None else {"y": columns[y] if isinstance(y, str) else y}
    all_columns = table | {f"argument {name}": value for name, value in rows.items()}
    index, _ = complete_rows(all_columns, "drop", needs_rows=False)
    if index is None:
        return columns.n_rows, None, data, arguments
    values = {name: take_rows(value, index) if np.ndim(value) else value for name, value in rows.items()}
    return columns.n_rows, index, take_rows(table, index), values


def add_offsets(formula_offset, offset):
    """Return the sum of the offset of a formula and the argument of that name, None where there are none."""
    if formula_offset is None or offset is None:
        return offset if formula_offset is None else formula_offset
    offset = np.full(len(formula_offset), offset) if np.ndim(offset) == 0 else offset
    return formula_offset + check_row_vector(offset, "offset", len(formula_offset))
