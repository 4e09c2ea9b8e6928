"""The effects of rows by codes, where covariates are in bins: every part of a row has few different values."""

import numpy as np

from cavity.base.lazy_scipy import sparse
from cavity.linalg.coded_rows import MAX_CODES, CodedRows

MAX_TABLE_SHARE = 32  # entries of all tables of pairs of codes for each row: beyond it rows take less time
SAMPLE_ROWS = 1 << 12  # which decide whether a column has many different values


def code_effects(layout, X, values):
    """Return the effects of rows as `CodedRows`; None where some have too many different values.

    Parameters
    ----------
    layout : EffectLayout
        The effects.
    X : ndarray (N, D)
        Columns of the fixed effects.
    values : list
        For each term the different rows, a CSR array (m, k), and their numbers (N,); or levels (N,) and values (N, k)
        of random effects; or rows without numbers, a CSR array.
    """
    parts, large = [], None  # of columns of all effects: (codes, CSR array), and levels with their values
    for term, (start, value) in enumerate(zip(layout.starts, values, strict=False)):
        if not isinstance(value, tuple):
            return None
        first, second = value
        if sparse.issparse(first):
            shape = first.shape[0], layout.size
            parts.append((second, sparse.csr_array((first.data, first.indices + start, first.indptr), shape)))
            continue
        n_levels = layout.part(term).stop - start
        if second.shape[1] != 1 or np.min(first, initial=0) < 0:
            return None
        if n_levels <= MAX_CODES and np.ptp(second) == 0.0:
            eye = sparse.eye_array(n_levels, layout.size, k=start, format="csr")
            parts.append((first, sparse.csr_array(second[0, 0] * eye)))
        elif large is None:
            large = (start + first).astype(np.int32), np.ascontiguousarray(second[:, 0])
        else:
            return None
    if not (parts and _add_columns(parts, X, layout.size)):
        return None
    sizes = np.array([part.shape[0] for _, part in parts])
    if np.sum(sizes) ** 2 - np.sum(sizes**2) > 2 * MAX_TABLE_SHARE * len(X):
        return None
    codes = np.array([codes for codes, _ in parts], np.uint16)
    return CodedRows(codes, [part for _, part in parts], *(large or ()))


def _add_columns(parts, X, n):
    """Add columns of fixed effects to the parts whose codes they depend on, or as parts; return whether all are few."""
    examples = []
    for codes, part in parts:
        examples.append(np.zeros(part.shape[0], np.intp))
        examples[-1][codes] = np.arange(len(X))
    for d, column in enumerate(np.ascontiguousarray(X.T)):
        for number, (codes, part) in enumerate(parts):
            values = column[examples[number]]
            if np.array_equal(values[codes], column):
                parts[number] = codes, _place(values, d, n) + part
                break
        else:
            if len(np.unique(column[:SAMPLE_ROWS])) > MAX_CODES:
                return False
            values, first, codes = np.unique(column, return_index=True, return_inverse=True)
            if len(values) > MAX_CODES:
                return False
            parts.append((codes, _place(values, d, n)))
            examples.append(first)
    return True


def _place(values, column, n):
    """Return rows (m, n) with some values in a column."""
    at = np.flatnonzero(values)
    return sparse.csr_array((values[at], (at, np.full(len(at), column))), (len(values), n))
