"""Structured terms in files: the fields of their dataclasses, as JSON has them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from cavity import terms
from cavity.base.labels import plain_label
from cavity.base.lazy_scipy import sparse
from cavity.terms.base import StructuredTerm
from cavity.terms.contract import BuiltTerm
from cavity.terms.levels import Levels


def describe_term(term: Any) -> dict[str, Any]:
    """Return a structured term, as settings or built, for a file.

    Raises
    ------
    NotImplementedError
        For a term of one's own.
    """
    kind = type(term).__name__
    if getattr(terms, kind, None) is not type(term) and kind not in terms.BUILT_TERMS:
        raise NotImplementedError(
            f"the term {term.name} is one of your own, {kind}, which files cannot hold: keep the data, and fit again"
        )
    return {"kind": kind} | {field.name: _encode(getattr(term, field.name)) for field in fields(term) if field.init}


def restore_term(settings: dict[str, Any]) -> Any:
    """Return the term of the settings of a file; ValueError for settings of no term."""
    values = {name: _decode(value) for name, value in settings.items()}
    kind = values.pop("kind", None)
    form = terms.BUILT_TERMS.get(kind) or (getattr(terms, str(kind), None) if kind in terms.__all__ else None)
    if form is None or not is_dataclass(form):
        raise ValueError(f"there is no term of the kind {kind!r}")
    try:
        return form(**values)
    except TypeError as error:
        raise ValueError(f"settings of a {kind} that do not make one: {error}") from error


def _encode(value):
    """A value as JSON has it."""
    if isinstance(value, StructuredTerm | BuiltTerm):
        return {"term": describe_term(value)}
    if isinstance(value, Levels):
        labels = [
            [plain_label(getattr(label, "item", lambda label=label: label)()) for label in column]
            for column in value.labels
        ]
        return {"levels": [list(value.columns), labels, value.combinations.tolist()]}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if sparse.issparse(value):
        entries = sparse.coo_array(value)
        return {"sparse": [list(entries.shape), *(part.tolist() for part in (*entries.coords, entries.data))]}
    if isinstance(value, tuple | list):
        return {"tuple": list(map(_encode, value))}
    return value.item() if isinstance(value, np.generic) else value


def _decode(value):
    """The value of what JSON has."""
    if not isinstance(value, dict):
        return value
    if "term" in value:
        return restore_term(value["term"])
    if "levels" in value:
        columns, labels, combinations = value["levels"]
        return Levels(tuple(columns), tuple(map(tuple, labels)), np.array(combinations, dtype=np.intp))
    if "array" in value:
        return np.array(value["array"], dtype=np.dtype(value["dtype"]))
    if "sparse" in value:
        shape, rows, columns, data = value["sparse"]
        return sparse.csc_array(sparse.coo_array((np.array(data, dtype=float), (rows, columns)), tuple(shape)))
    return tuple(map(_decode, value["tuple"]))
