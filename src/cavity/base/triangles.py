"""Lower triangular matrices, through BLAS itself: solvers of scipy.linalg start threads even for the smallest ones."""

from functools import cache

import numpy as np

from cavity.base.lazy_scipy import blas, lapack

MAX_MASK_ROWS = 256  # of triangles whose masks, of as many bytes as entries, are kept


def invert_lower(factor):
    """The inverse of a lower triangular matrix with positive diagonal."""
    return lapack.dtrtri(factor, lower=1)[0]


def solve_lower(factor, b):
    """The inverse of a lower triangular matrix with positive diagonal, times a vector or a matrix."""
    return blas.dtrsm(1.0, factor, b.reshape(len(b), -1), lower=1).reshape(b.shape)


def whiten(factor, matrix):
    """The inverse of the factor, times a matrix, times the inverse's transpose."""
    return solve_lower(factor, solve_lower(factor, matrix).T)


def solve_rows(factor, rows, trans=0):
    """factor^-1, or its transpose with trans=1, applied to the rows of (N, M), which are overwritten."""
    if rows.size:
        blas.dtrsm(1.0, factor, rows.T, lower=1, trans_a=trans, overwrite_b=1)
    return rows


def fill_symmetric(triangle):
    """The symmetric matrix of a lower triangle."""
    if len(triangle) > MAX_MASK_ROWS:
        return np.tril(triangle) + np.tril(triangle, -1).T
    return np.where(_make_lower_mask(len(triangle)), triangle, triangle.T)


@cache
def _make_lower_mask(n):
    """Return a mask (n, n) of a lower triangle."""
    return np.tri(n, dtype=bool)
