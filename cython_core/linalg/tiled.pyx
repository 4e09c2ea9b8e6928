"""Factors and inverses of large positive definite matrices in tiles, for several threads and the same bits.

Matrices are C-contiguous and only their lower triangles are read and written. A step of `factor` is two rounds of
tasks, each a call of BLAS on one thread, whoever makes it: threads take the next task of a round from a counter, and
every one of them must have come back before the next round. Inverses of the diagonal tiles are kept, so that all but
these is products of matrices.
"""

from scipy.linalg.cython_blas cimport dgemm, dsyrk, dtrmm
from scipy.linalg.cython_lapack cimport dpotrf, dtrtri

cdef extern from *:
    """
    static inline long cv_next(long *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
    """
    long next_task "cv_next"(long *counter) noexcept nogil

cdef enum:
    TILE = 128
    ROWS = 512                               # of a panel in one task


cdef void times_transposed(Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t inner, double alpha, double *a,
                           double *b, double *c, Py_ssize_t stride) noexcept nogil:
    """c (rows, columns) += alpha a b', a (rows, inner), b (columns, inner)."""
    cdef int m = <int> columns, n = <int> rows, k = <int> inner, ld = <int> stride
    cdef double one = 1.0
    dgemm("T", "N", &m, &n, &k, &alpha, b, &ld, a, &ld, &one, c, &ld)


def factor_tile(double[:, ::1] a, Py_ssize_t step, double[:, ::1] inverse, long[::1] counter):
    """Factor the diagonal tile of a step, and invert that; return 0 or the number of the pivot that is not positive."""
    cdef Py_ssize_t n = a.shape[0], at = step * TILE, i, j
    cdef int size = <int> min(TILE, n - at), ld = <int> n, info = 0, own = TILE
    with nogil:
        counter[0] = 0
        dpotrf("U", &size, &a[at, at], &ld, &info)
        if info == 0:
            for i in range(size):
                for j in range(i + 1):
                    inverse[i, j] = a[at + i, at + j]
            dtrtri("U", "N", &size, &inverse[0, 0], &own, &info)
    return at + info if info else 0


def solve_panel(double[:, ::1] a, Py_ssize_t step, double[:, ::1] inverse, long[::1] counter):
    """The rows below the diagonal tile times the transpose of its inverse."""
    cdef Py_ssize_t n = a.shape[0], at = step * TILE, first
    cdef int size = TILE, ld = <int> n, rows, own = TILE
    cdef double one = 1.0
    with nogil:
        while True:
            first = at + TILE + ROWS * next_task(&counter[0])
            if first >= n:
                break
            rows = <int> min(ROWS, n - first)
            dtrmm("L", "U", "T", "N", &size, &rows, &one, &inverse[0, 0], &own, &a[first, at], &ld)


def update(double[:, ::1] a, Py_ssize_t step, long[::1] counter):
    """Take the panel's products from the columns to its right, one column of tiles a task."""
    cdef Py_ssize_t n = a.shape[0], at = step * TILE, first, below
    cdef int size, ld = <int> n, inner = TILE
    cdef double minus = -1.0, one = 1.0
    with nogil:
        while True:
            first = at + TILE + TILE * next_task(&counter[0])
            if first >= n:
                break
            size = <int> min(TILE, n - first)
            dsyrk("U", "T", &size, &inner, &minus, &a[first, at], &ld, &one, &a[first, first], &ld)
            below = first + size
            if below < n:
                times_transposed(n - below, size, TILE, -1.0, &a[below, at], &a[first, at], &a[below, first], n)


cdef void plain(Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t inner, double alpha, double *a, Py_ssize_t a_stride,
                double *b, Py_ssize_t b_stride, double beta, double *c, Py_ssize_t c_stride) noexcept nogil:
    """c (rows, columns) = alpha a b + beta c."""
    cdef int m = <int> columns, n = <int> rows, k = <int> inner
    cdef int lda = <int> a_stride, ldb = <int> b_stride, ldc = <int> c_stride
    dgemm("N", "N", &m, &n, &k, &alpha, b, &ldb, a, &lda, &beta, c, &ldc)


cdef void first_transposed(Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t inner, double alpha, double *a,
                           Py_ssize_t a_stride, double *b, Py_ssize_t b_stride, double beta, double *c,
                           Py_ssize_t c_stride) noexcept nogil:
    """c (rows, columns) = alpha a' b + beta c, a (inner, rows), b (inner, columns)."""
    cdef int m = <int> columns, n = <int> rows, k = <int> inner
    cdef int lda = <int> a_stride, ldb = <int> b_stride, ldc = <int> c_stride
    dgemm("N", "T", &m, &n, &k, &alpha, b, &ldb, a, &lda, &beta, c, &ldc)


cdef enum:
    COLUMNS = 256                            # of right-hand sides in one task


def solve(double[:, ::1] a, double[:, :, ::1] inverses, double[:, ::1] b, bint triangular, long[::1] counter):
    """b = L^-1 b, some columns a task; `triangular` if b is lower triangular itself, as the identity is."""
    cdef Py_ssize_t n = a.shape[0], m = b.shape[1], first, width, k, at, below
    cdef int size, columns, ld = <int> m, own = TILE
    cdef double one = 1.0
    with nogil:
        while True:
            first = COLUMNS * next_task(&counter[0])
            if first >= m:
                break
            width = min(COLUMNS, m - first)
            columns = <int> width
            for k in range(first // TILE if triangular else 0, (n + TILE - 1) // TILE):
                at = k * TILE
                size = <int> min(TILE, n - at)
                dtrmm("R", "U", "N", "N", &columns, &size, &one, &inverses[k, 0, 0], &own, &b[at, first], &ld)
                below = at + size
                if below < n:
                    plain(n - below, width, size, -1.0, &a[below, at], n, &b[at, first], m, 1.0, &b[below, first], m)


def square(double[:, ::1] w, double[:, ::1] out, long[::1] counter):
    """out = w' w, both lower triangles, one row of tiles a task."""
    cdef Py_ssize_t n = w.shape[0], first, size
    cdef int rows, inner, ld = <int> n
    cdef double one = 1.0, zero = 0.0
    with nogil:
        while True:
            first = TILE * next_task(&counter[0])
            if first >= n:
                break
            size = min(TILE, n - first)
            rows, inner = <int> size, <int> (n - first)
            dsyrk("U", "N", &rows, &inner, &one, &w[first, first], &ld, &zero, &out[first, first], &ld)
            if first > 0:
                first_transposed(size, first, n - first, 1.0, &w[first, first], n, &w[first, 0], n, 0.0,
                                 &out[first, 0], n)
