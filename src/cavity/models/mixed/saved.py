"""What a file of a mixed model holds, and the parts of its posterior made of it again."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays as arrays_of
from cavity.base import records
from cavity.base.results import ROLES_SETTING, are_labels
from cavity.models.formula.design import Coding
from cavity.models.formula.saved import to_json_label
from cavity.models.hyperpriors import PRIORS_SETTING
from cavity.models.integration import INTEGRATE_SETTING, INTEGRATION_ARRAYS
from cavity.models.likelihood_settings import LIKELIHOOD_SETTING
from cavity.models.mixed.effects import Effects
from cavity.models.mixed.row_readers import FormulaRowReader, RowReader
from cavity.models.mixed.structured_rows import MIN_BINS
from cavity.models.mixed.terms import CONSTANT_COLUMN, RandomEffects, Term, format_term_name
from cavity.terms.levels import Levels
from cavity.terms.saved import describe_term, restore_term

LABELS_SETTING = records.Setting(
    "lists of strings and numbers",
    lambda value: isinstance(value, list | tuple) and all(map(are_labels, value)),
    convert=lambda value: tuple(map(tuple, value)),
)
INDEX_SETTING = replace(records.REAL_LISTS, convert=lambda value: tuple(map(int, value)))
LIST_SETTING = records.Setting("a list", lambda value: isinstance(value, list | tuple))
TERM_SETTINGS = {
    "group": records.names(),
    "columns": records.names(),
    "index": records.Nullable(INDEX_SETTING),
    "labels": LABELS_SETTING,
}
CODING_SETTINGS = {
    "formula": records.ANY_TEXT,
    "columns": records.names(),
    "labels": records.JSON_OBJECT,
    "base_levels?": records.JSON_OBJECT,
}
OF_READER = ("columns", "roles", "intercept", "centre", "spread")  # its fields that are saved as they are
EFFECTS_SETTINGS = {
    "group": records.names(),
    "slopes": LIST_SETTING,
    "intercept": records.TRUTH_VALUE,
    "correlated": records.TRUTH_VALUE,
}


# ------------------------------------------------------------------------------------------ the reader of rows


def _describe_reader(reader):
    """The parts of a RowReader by the names that files have for them."""
    coding = getattr(reader, "coding", None)
    parts = {name: getattr(reader, name) for name in ("n_features", *OF_READER)}
    parts["terms"] = reader.terms
    if reader.structured:
        parts |= {"structured": reader.structured, "null_names": reader.null_names}
    parts |= {f"levels_{i}": term.levels.combinations for i, term in enumerate(reader.terms)}
    if coding is not None:
        parts["coding"] = coding
        parts |= {f"coded_{i}": column for i, column in enumerate(_coded(coding).values())}
    return parts


def _coded(coding):
    """The columns that a coding keeps, by their names, categories as numbers."""
    return coding.numbers | coding.codes


def _reader(terms, n_features, coding=None, **parts):
    """The RowReader of these parts."""
    full_terms = []
    for i, term in enumerate(terms):
        levels = Levels(term["group"], term["labels"], np.asarray(parts.pop(f"levels_{i}")))
        codes, Z = np.zeros(0, dtype=np.intp), np.zeros((0, len(term["columns"])))
        full_terms.append(Term(levels, term["columns"], term["index"], codes, Z))
    settings = {"terms": tuple(full_terms), "n_features": n_features} | {
        name: parts.pop(name, None) for name in OF_READER
    }
    settings |= {name: tuple(parts.pop(name, ())) for name in ("structured", "null_names")}
    if coding is None:
        return RowReader(**settings)
    columns = {name: np.asarray(parts.pop(f"coded_{i}")) for i, name in enumerate(coding["columns"])}
    labels = {name: tuple(categories) for name, categories in coding["labels"].items()}
    numbers = {name: column for name, column in columns.items() if name not in labels}
    codes = {name: column.astype(np.intp) for name, column in columns.items() if name in labels}
    coding = Coding(coding["formula"], numbers, codes, labels, coding.get("base_levels") or {})
    return FormulaRowReader(**settings, coding=coding)


def _describe_terms(terms):
    return [
        {
            "group": list(term.levels.columns),
            "columns": list(term.columns),
            "index": None if term.index is None else list(map(int, term.index)),
            "labels": [list(map(to_json_label, labels)) for labels in term.levels.labels],
        }
        for term in terms
    ]


def _describe_coding(coding):
    labels = {name: list(map(to_json_label, levels)) for name, levels in coding.labels.items()}
    return {
        "formula": coding.formula,
        "columns": list(_coded(coding)),
        "labels": labels,
        "base_levels": coding.base_levels,
    }


# ------------------------------------------------------------------------------------------ the settings of the model


def _effects(value):
    """The effects of a model: a formula, or RandomEffects and structured terms."""
    if isinstance(value, str):
        return value
    return tuple(
        restore_term(term) if "kind" in term else RandomEffects(**records.check_settings(EFFECTS_SETTINGS, term))
        for term in value
    )


def _describe_effects(effects):
    if isinstance(effects, str):
        return effects
    return [
        {name: getattr(term, name) for name in EFFECTS_SETTINGS}
        if isinstance(term, RandomEffects)
        else describe_term(term)
        for term in effects
    ]


def _arrays_of(settings):
    arrays = {"reader_centre?": records.Array("f"), "reader_spread?": records.Array("f", "positive")}
    n_terms, n_coded = len(settings["reader_terms"]), len(settings.get("reader_coding", {}).get("columns", ()))
    arrays |= {f"reader_levels_{i}": records.Array(f"l{i} g{i}", "nonnegative", "i") for i in range(n_terms)}
    return arrays | dict.fromkeys((f"reader_coded_{i}" for i in range(n_coded)), records.Array("r", "any", "fi"))


def _fits(arrays, settings, sizes):
    """Whether effects and terms are as many as there should be, as a rule of the record."""
    terms = settings["reader_terms"]
    shapes = {format_term_name(":".join(term["group"]), term["columns"]): 2 * (len(term["columns"]),) for term in terms}
    structured = settings.get("reader_structured", ())
    shapes |= {term.name: tuple(parameter.name for parameter in term.prior.parameters) for term in structured}
    own_shapes = {
        name: tuple(value) if isinstance(value, dict) else value.shape
        for name, value in settings["covariances"].items()
    }
    if own_shapes != shapes:
        return f"setting 'covariances' must have matrices or values of the terms {', '.join(shapes)}"
    for name, entry in settings["covariances"].items():
        if isinstance(entry, dict):
            continue
        arrays_of.cholesky(arrays_of.check_symmetric(entry, f"covariances[{name!r}]"), f"covariances[{name!r}]")
    random = sum(sizes[f"l{i}"] * len(term["columns"]) for i, term in enumerate(terms))
    random += sum(term.size for term in structured)
    if sizes["d"] + random != sizes["n"]:
        return f"there must be {sizes['d'] + random} effects, as the terms say, got {sizes['n']}"
    fields = {name: arrays[f"effects_{name}"] for name in ("mean", "indptr", "indices", "entries", "order")}
    constraints = {name: arrays.get(f"effects_{name}") for name in ("constraints", "pins", "pin_precisions")}
    pins = constraints["pins"]
    if len({value is None for value in constraints.values()}) > 1 or (pins is not None and np.any(pins >= sizes["n"])):
        return "arrays 'effects_constraints', 'effects_pins' and 'effects_pin_precisions' must be there together"
    try:
        _ = Effects(**fields, **constraints).factor
    except ArithmeticError:
        return "array 'effects_entries' must be those of a positive definite matrix"
    return None


def _pattern(arrays, settings, sizes):
    """Whether the effects have a pattern and an order, and levels are combinations of labels, as a rule."""
    if sizes["m"] != sizes["n"] + 1 or arrays["effects_indptr"][-1] != sizes["e"]:
        return "array 'effects_indptr' must have an entry more than there are effects, and end at the number of entries"
    indptr, indices, n = arrays["effects_indptr"], arrays["effects_indices"], sizes["n"]
    columns = np.repeat(np.arange(n), np.maximum(np.diff(indptr), 0))
    if np.any(np.diff(indptr) < 1) or indptr[0] or len(columns) != sizes["e"]:
        return "array 'effects_indptr' must begin at 0 and grow"
    if np.any(indices >= n) or np.any(np.diff(columns * n + indices) < 1) or np.any(indices[indptr[:-1]] != range(n)):
        return "array 'effects_indices' must have the rows of a lower triangle, in order"
    if not np.array_equal(np.sort(arrays["effects_order"]), np.arange(n)):
        return "array 'effects_order' must have the number of each effect once"
    n_columns = settings["reader_n_features"]
    for i, term in enumerate(settings["reader_terms"]):
        index = term["index"]
        if (index is None) != ("reader_coding" in settings):
            return "setting 'reader_terms' must number columns of X where there is no formula, and only there"
        if index is not None and (
            len(index) != len(term["columns"]) or any(not CONSTANT_COLUMN <= j < n_columns for j in index)
        ):
            return "setting 'reader_terms' must number columns of X"
        sizes_of = np.array([len(labels) for labels in term["labels"]])
        levels = arrays[f"reader_levels_{i}"]
        if levels.shape[1] != len(term["group"]) or len(sizes_of) != len(term["group"]) or np.any(levels >= sizes_of):
            return f"array 'reader_levels_{i}' must have numbers of labels, a column for each of the group"
        if np.any(np.diff(np.ravel_multi_index(levels.T, tuple(sizes_of))) < 1):
            return f"array 'reader_levels_{i}' must be in order"
    return None


def _is_covariance(value):
    return all(map(records.REAL_LISTS.test, value.values() if isinstance(value, dict) else [value]))


COVARIANCES_SETTING = records.Made(
    lambda settings: {
        name: value if isinstance(value, dict) else np.array(value, dtype=np.float64)
        for name, value in settings.items()
    },
    records.Setting(
        "an object of matrices, and of objects of numbers",
        lambda value: isinstance(value, dict) and all(map(_is_covariance, value.values())),
    ),
    lambda covariances: {
        name: value if isinstance(value, dict) else np.asarray(value).tolist() for name, value in covariances.items()
    },
)
STRUCTURED_SETTING = records.Made(
    lambda settings: tuple(map(restore_term, settings)), LIST_SETTING, lambda terms: list(map(describe_term, terms))
)
MODEL_SETTINGS = {
    "likelihood": LIKELIHOOD_SETTING,
    "effects": records.Made(
        _effects, records.Setting("a formula or a list", lambda value: isinstance(value, str | list)), _describe_effects
    ),
    "effects_prior?": PRIORS_SETTING,
    "bins?": records.Nullable(records.integer(MIN_BINS)),
    "integrate?": INTEGRATE_SETTING,
    "covariances": COVARIANCES_SETTING,
    "prior_mean": records.Array("() | d"),
    "prior_variance": records.Array("() | d | d d"),
}
POSTERIOR_RECORD = records.Record(
    _arrays_of,
    {
        "columns?": records.Nullable(records.names("C")),
        "roles?": ROLES_SETTING,
        "reader_terms": records.Made(
            lambda settings: [records.check_settings(TERM_SETTINGS, setting) for setting in settings],
            LIST_SETTING,
            _describe_terms,
        ),
        "reader_structured?": STRUCTURED_SETTING,
        "reader_null_names?": records.names(),
        "reader_n_features": records.integer(),
        "reader_intercept": records.TRUTH_VALUE,
        "intercept?": records.TRUTH_VALUE,
        "reader_coding?": records.Made(
            lambda settings: records.check_settings(CODING_SETTINGS, settings), records.JSON_OBJECT, _describe_coding
        ),
    },
    (
        *map(records.together, ("_tau", "reader_centre"), ("_rho", "reader_spread")),
        records.together(*(f"integration_{name}" for name in INTEGRATION_ARRAYS)),
        _pattern,
        _fits,
    ),
    {
        "covariances": "model.effect_covariances",
        "effects_prior": "model.priors",
        "reader_": "_reader.",
        "columns": "_reader.columns",
        "roles": "_reader.roles",
        "intercept": "model.intercept",
        "reader_intercept": "_reader.intercept model.reader_intercept",
        "reader_centre": "_reader.centre model.centre",
    },
    {"_reader": (_describe_reader, _reader)},
)
