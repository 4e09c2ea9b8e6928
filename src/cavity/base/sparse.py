"""The boundary check of sparse matrices: kernels, and those of SciPy, read memory wherever indices lead them."""

from copy import copy

import numpy as np

from cavity.base import arrays


def to_csr(X, name):
    """Return a sparse matrix of SciPy in any format as CSR, checked; X is not changed.

    Entries of the same row and column may occur several times and in any order. What has been cached about that is
    found anew, as indices may have changed since, and what is stored beyond the last row is left out.

    Raises
    ------
    ValueError
        If indices and their pointers do not belong together, naming the first that is wrong, or are no integers.
    """
    arrays.check_ndim(X, name, (2,))
    check_structure(X, name)
    rows = X.tocsr()
    if rows is not X:
        check_structure(rows, name)  # LIL leaves the indices in its lists as they are
        return rows
    rows, stop = copy(X), X.indptr[-1]  # the arrays are the same; a constructor would look at all indices once more
    rows.data, rows.indices = X.data[:stop], X.indices[:stop]
    for cached in ("_has_canonical_format", "_has_sorted_indices"):
        rows.__dict__.pop(cached, None)
    return rows


def check_structure(X, name):
    """Raise ValueError unless all entries of a sparse matrix are where its shape has room; see `to_csr`.

    Those of CSR, CSC, BSR and COO are looked at; other formats have to be converted by `to_csr`, which does it again.
    """
    kind = getattr(X, "format", "")
    if kind == "coo":
        for axis, length in zip(("row", "col"), X.shape, strict=True):
            _check_indices(getattr(X, axis), len(X.data), length, f"{name}.{axis}")
    elif kind in ("csr", "csc", "bsr"):
        shape = np.floor_divide(X.shape, getattr(X, "blocksize", 1))  # of a BSR matrix, in blocks
        n_pointers, length = shape[::-1] if kind == "csc" else shape
        pointers, entries = X.indptr, len(X.data)
        _check_integers(pointers, n_pointers + 1, f"{name}.indptr")
        bad = (pointers < np.concatenate([0 * pointers[:1], pointers[:-1]])) | (pointers > entries)
        bad[0] = pointers[0] != 0
        if bad.any():
            requirement = f"must start at 0, never fall, and end at most at {entries}, the number of stored entries"
            i = int(np.argmax(bad))
            raise arrays.error_of(f"{name}.indptr", f"{requirement}, got {pointers[i]} at position {i}")
        _check_indices(X.indices, entries, length, f"{name}.indices", pointers[-1])


def _check_integers(values, n, name):
    if values.shape != (n,) or values.dtype.kind not in "iu":
        raise arrays.error_of(name, f"must be {n} integers, got {values.dtype} of shape {values.shape}")


def _check_indices(indices, entries, length, name, stop=None):
    """Raise unless there are as many indices as entries, and those up to `stop` are at least 0 and below a length."""
    _check_integers(indices, entries, name)
    stored = indices[:stop]
    unsigned = stored.view(stored.dtype.str.replace("i", "u"))  # negative ones are the largest
    if len(stored) and unsigned.max() >= length:
        i = int(np.argmax((stored < 0) | (stored >= length)))
        raise arrays.error_of(name, f"must be at least 0 and below {length}, got {stored[i]} at position {i}")
