"""Lower triangular matrices, through BLAS itself: solvers of scipy.linalg start threads even for the smallest ones."""

from scipy.linalg import blas, lapack


def inverse_lower(factor):
    """The inverse of a lower triangular matrix with positive diagonal."""
    return lapack.dtrtri(factor, lower=1)[0]


def solve_lower(factor, b):
    """The inverse of a lower triangular matrix with positive diagonal, times a vector or a matrix."""
    return blas.dtrsm(1.0, factor, b.reshape(len(b), -1), lower=1).reshape(b.shape)


def whiten(factor, matrix):
    """The inverse of the factor, times a matrix, times the inverse's transpose."""
    return solve_lower(factor, solve_lower(factor, matrix).T)
