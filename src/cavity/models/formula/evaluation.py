"""Columns that the package formulae makes of parts of a formula, with names as people write them.

The notation is that of Wilkinson and Rogers (1973), as T. Capretto's formulae reads it. Rows of the design matrix of a
long file are evaluated when they are read, so the matrix is never in memory.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.errors import missing_extra_error
from cavity.base.labels import plain_label
from cavity.base.public_objects import FloatArray
from cavity.models.formula.notation import QUOTED_TEXT, TERM_NOTATION, refuse
from cavity.runs.merge import split_rows
from cavity.sources.source_parts import NamedRows
from cavity.sources.sources import Source

LARGEST_DESIGN = 1 << 25  # numbers of a design matrix of rows in files that are evaluated at once: 256 MB
EVALUATED_ROWS = 1 << 16  # whose offsets are evaluated at a time
EVALUATION_LOCK = threading.Lock()  # formulae changes its terms when it evaluates them
INTERCEPT_NAME = "intercept"
FORMULA_FUNCTIONS = {name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "exp", "sqrt", "abs")} | {
    "np": np
}
CODING_NAMES = {"Treatment", "Sum", ""}  # names that are no columns: codings, and what numbers are to formulae
CATEGORY_CALL = re.compile(r"[CTS]\(\s*`?([^`,()]+?)`?\s*(,.*)?\)", re.DOTALL)  # a column that is made categorical
FUNCTION_CALL = re.compile(r"(?<![\w.])([^\W\d][\w.]*)\s*\(")
COMPARISON_SIGN = re.compile(r"[<>]|[=!]=")
BRACKET_PAIR = re.compile(r"[({][^(){}]*[)}]")
OTHER_NAMES = {  # functions of other packages, and what to write here
    "factor": "C(x) makes categories of a column",
    "as.factor": "C(x) makes categories of a column",
    "relevel": "C(x, Treatment('b')) compares with the level b",
    "ns": "bs(x, df=5) is a spline with that many coefficients, poly(x, 3) a polynomial",
    **dict.fromkeys(("smooth", "f", "lo", "ps", "pb"), "s(x) is a smooth function, s(x, period=12) a periodic one"),
    "t2": "te(x, z) is a smooth function of two variables, ti(x, z) their interaction",
    "interaction": "a:b are the combinations of a and b, a*b also the effects of each",
}


class DesignRows(NamedRows):
    """Rows (N, D) that a matrix of formulae makes of a pandas table."""

    in_memory = False

    def __init__(self, matrix, table, names, intercept):
        super().__init__("X", (len(table), len(names)), names)
        self._matrix, self._table, self._intercept = matrix, table, intercept

    def fill(self, out, start, state):
        """Evaluate the rows from `start` on into out (n, D)."""
        out[...] = self.evaluate(start, start + len(out)).values

    def evaluate(self, start, stop):
        """Return the `Evaluated` columns of some rows."""
        with EVALUATION_LOCK:
            return evaluate_columns(self._matrix, self._table.iloc[start:stop], self._intercept, is_checked=False)


def evaluate_in_blocks(matrix, table, intercept=True):
    """Return the `Evaluated` columns for a table, whose values are a Source of rows where they are many.

    The Source does not check that they are finite.
    """
    first = evaluate_columns(matrix, table.iloc[:1], intercept, is_checked=False)
    if len(table) * len(first.names) <= LARGEST_DESIGN:
        return evaluate_columns(matrix, table, intercept)
    rows = DesignRows(matrix, table, first.names, intercept)
    offset = first.offset
    if offset is not None:
        spans = split_rows(len(table), EVALUATED_ROWS)
        offset = np.concatenate([rows.evaluate(start, stop).offset for start, stop in spans])
    return replace(first, values=Source([rows], "X"), offset=offset)


def _import_formulae():
    """Return the modules of formulae; ImportError says how to install it."""
    try:
        from formulae import environment, matrices, parser, resolver, scanner, terms, transforms
    except ImportError as error:
        raise missing_extra_error("formulae", "formula") from error
    return environment, matrices, parser, resolver, scanner, terms, transforms


def check_notation(text):
    """Raise ValueError for what other packages write, with what to write in its place."""
    bare = QUOTED_TEXT.sub("", text)
    if "^" in bare:
        raise refuse(text, "a power is written **: I(x**2) for the square, (a + b)**2 for effects and interactions")
    names = {*FORMULA_FUNCTIONS, *_import_formulae()[-1].TRANSFORMS, "Treatment", "Sum"} - {"np"}
    for name in FUNCTION_CALL.findall(bare):
        if name in TERM_NOTATION:
            raise refuse(text, f"{name} must stand alone between plus signs; there is {TERM_NOTATION[name]}")
        if name not in names and not name.startswith("np."):
            hint = OTHER_NAMES.get(name)
            message = f"there is no function {name!r}, but {', '.join(sorted(names))}, and those of NumPy as np.tanh"
            raise refuse(text, message if hint is None else f"there is no function {name!r}: {hint}")
    inside = bare
    while BRACKET_PAIR.search(inside):
        inside = BRACKET_PAIR.sub("", inside)
    if COMPARISON_SIGN.search(inside):
        raise refuse(text, "a comparison is written I(x > 3), a column of 0 and 1")


def describe(text):
    """Return the model of formulae for a part of a formula, with an intercept unless there is a 0."""
    _, _, parsing, resolving, scanning, terms, _ = _import_formulae()
    check_notation(text)
    try:
        parser = parsing.Parser(scanning.Scanner(text).scan())
        model = resolving.Resolver(parser.parse()).resolve()
        model = model if isinstance(model, terms.terms.Model) else terms.terms.Model(model)
    except Exception as error:  # formulae has many kinds of errors and no common one
        raise refuse(text, f"formulae refuses it ({type(error).__name__}: {error})") from error
    if not parser.at_end():
        raise refuse(text, f"it goes on after its end, at {parser.peek().lexeme!r}")
    odd = [name for name in model.var_names if not isinstance(name, str)]
    if odd:
        raise refuse(text, f"numbers other than 0 and 1 are no effects, got {odd[0]!r}")
    return model


def column_variables(text):
    """Return the names of the columns that a part of a formula is about."""
    return describe(text).var_names - CODING_NAMES


def quote_term(term):
    """Return the name of a term of formulae as a formula has it; None for the intercept."""
    if term.kind == "intercept":
        return None
    return ":".join(part.name if hasattr(part, "call") else f"`{part.name}`" for part in term.components)


def evaluate(text, table):
    """Return the matrix of formulae for a part of a formula and a pandas table, None if it has no columns."""
    environment, matrices, *_ = _import_formulae()
    model = describe(text)
    try:
        with np.errstate(all="ignore"):
            return matrices.DesignMatrices(model, table, environment.Environment([FORMULA_FUNCTIONS])).common
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise refuse(text, f"formulae cannot evaluate it ({type(error).__name__}: {error})") from error


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """The columns of a part of a formula.

    Attributes
    ----------
    values : ndarray (n, D)
        The columns, without those of offsets.
    names : tuple of str
        Their names: `INTERCEPT` for the ones, "period[2]" for a category.
    offset : ndarray (n,) or None
        The sum of the offsets.
    base_levels : dict of str to str
        For each column of categories the level that the others are compared with.
    has_intercept : bool
        Whether there is an intercept, be it left out of the columns.
    """

    values: FloatArray
    names: tuple[str, ...]
    offset: FloatArray | None
    base_levels: dict[str, str]
    has_intercept: bool = False


def evaluate_columns(matrix, table, intercept=True, is_checked=True):
    """Return the columns that a matrix of formulae has for a table, without the ones unless `intercept`.

    ValueError for numbers that are not finite, if `is_checked`.
    """
    if matrix is None:
        return Evaluated(np.zeros((len(table), 0)), (), None, {})
    unordered = {name: table[name].cat.as_unordered() for name in table if table[name].dtype == "category"}
    table = table.assign(**unordered)  # formulae refuses C(x) of ordered categories that rows lack
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused below
            values = matrix.evaluate_new_data(table).design_matrix
    except ValueError as error:
        raise error_of("data", f"does not fit the formula: {error}") from error
    values = np.asarray(values, dtype=np.float64)
    names, kinds, base_levels = [], [], {}
    for term in matrix.terms.values():
        labels = [INTERCEPT_NAME] if term.kind == "intercept" else term_labels(term)
        names += labels
        kinds += [term.kind] * len(labels)
        if len(getattr(term, "components", ())) == 1:
            base_levels |= base_level(term.components[0])
    kinds = np.array(kinds)
    offsets, in_matrix = kinds == "offset", (kinds != "offset") & (intercept | (kinds != "intercept"))
    place = arrays.find_nonfinite(values) if is_checked else None
    if place is not None:  # where columns have values, so that leaving out rows without one is no way out
        entry = arrays.describe_bad_entry(values[place], "X", place, tuple(names))
        raise error_of("X", f"must be finite, got {entry}")
    chosen = tuple(name for name, is_wanted in zip(names, in_matrix, strict=True) if is_wanted)
    offset = values[:, offsets].sum(axis=1) if offsets.any() else None
    return Evaluated(
        np.ascontiguousarray(values[:, in_matrix]), chosen, offset, base_levels, bool(np.any(kinds == "intercept"))
    )


def term_labels(term):
    """Return the names of the columns of a term: "district[2]:age" for what is C(district)[2.0]:age to formulae."""
    components = getattr(term, "components", ())
    parts = [component_labels(component) for component in components]
    raw = [list(component.labels or [component.name]) for component in components]
    if list(term.labels) != [":".join(labels) for labels in product(*raw)]:
        return list(term.labels)
    return [":".join(labels) for labels in product(*parts)]


def component_labels(component):
    """Return the names of the columns of a factor of a term."""
    labels = list(component.labels or [component.name])
    if component.kind != "categoric":
        return labels
    prefix = f"{component.name}["
    if not all(label.startswith(prefix) for label in labels):
        return labels
    return [f"{shown_name(component)}[{shown_level(label[len(prefix) : -1])}]" for label in labels]


def shown_name(component):
    """Return the name of a factor of a term: that of the column for C(column)."""
    call = CATEGORY_CALL.fullmatch(component.name)
    return call[1] if call else component.name


def shown_level(level):
    """Return a level as text: 2 for 2.0."""
    return re.sub(r"^(-?\d+)\.0$", r"\1", str(plain_label(level)))


def base_level(component):
    """Return the level that the others are compared with, by the name of the column; nothing where there is none."""
    coding = getattr(component, "contrast_matrix", None)
    if component.kind != "categoric" or coding is None or getattr(component, "spans_intercept", True):
        return {}
    zero = ~np.asarray(coding.matrix).any(axis=1)
    levels = list(component.levels)
    return {shown_name(component): shown_level(levels[int(np.argmax(zero))])} if zero.sum() == 1 else {}


def has_memory(formula):
    """Whether a formula has a function of formulae that keeps what all rows have: a mean, or knots."""
    transforms = _import_formulae()[-1].TRANSFORMS
    names = [name for name, function in transforms.items() if getattr(function, "__stateful_transform__", False)]
    return re.search(rf"\b({'|'.join(names)})\s*\(", formula) is not None


def coded_numbers(matrix):
    """Return the names of columns of numbers that functions make categories of."""
    terms = () if matrix is None else matrix.terms.values()
    components = [component for term in terms for component in getattr(term, "components", ())]
    return {
        name
        for component in components
        if hasattr(component, "call") and component.kind == "categoric"
        for name in component.var_names - CODING_NAMES
    }
