"""Rows of sparse matrices of scipy, which are filled into dense blocks."""

from cavity.base import arrays
from cavity.base.sparse import to_csr
from cavity.sources.source_parts import NamedRows


class SparseRows(NamedRows):
    """Rows of a sparse matrix (N, D), which is held by rows."""

    def __init__(self, matrix, name):
        super().__init__(name, matrix.shape, None)
        arrays.check_dtype(matrix.dtype, name)
        self.matrix = to_csr(matrix, name)

    def fill(self, out, start, state):
        """Write the rows from `start` on into out (n, d)."""
        arrays.copy_real(self.matrix[start : start + len(out)].toarray(), out)
