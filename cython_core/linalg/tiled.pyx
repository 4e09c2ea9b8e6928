"""Large lower triangles in tiles: factors, inverses, squares and updates as rounds of independent tasks.

Matrices are C-contiguous; only their lower triangles are read and written. BLAS sees their transposes as upper ones.
Each function is one round: the threads that call it at the same time take the next task from `counter`, which starts at
zero, until none is left. A task is the same calls of BLAS on one thread whoever makes them, so results do not depend on
the number of threads. A round must be over before the next one begins.
"""

from scipy.linalg.cython_blas cimport dgemm, dsyrk, dtrmm, dtrsm
from scipy.linalg.cython_lapack cimport dlauum, dpotrf, dtrtri

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #include <intrin.h>
    static __inline long long cv_next(long long *counter) { return _InterlockedExchangeAdd64(counter, 1); }
    #else
    static inline long long cv_next(long long *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
    #endif
    """
    long long next_task "cv_next"(long long *counter) noexcept nogil

cdef enum:
    TILE_ROWS = 256                          # rows and columns of a tile
    LEAF_ROWS = 128                          # of those that are inverted first

TILE, LEAF = TILE_ROWS, LEAF_ROWS


def factor_first(double[:, ::1] a):         # inout (N, N): its first tile, then the factor of that
    """Factor the first tile; return 0 or the number, from 1, of the pivot that is not positive."""
    cdef int size = <int> min(TILE_ROWS, a.shape[0]), ld = <int> a.shape[0], info = 0
    with nogil:
        dpotrf("U", &size, &a[0, 0], &ld, &info)
    return info


def solve_panel(double[:, ::1] a,           # inout (N, N): P L^-T for the rows P below a tile L
                Py_ssize_t at,               # in    first row and column of the tile
                long long[::1] counter):
    """A round of `factor`: tasks are rows of the panel."""
    cdef Py_ssize_t n = a.shape[0], first
    cdef int size = TILE_ROWS, ld = <int> n, rows
    cdef double one = 1.0
    with nogil:
        while True:
            first = at + TILE_ROWS + TILE_ROWS * next_task(&counter[0])
            if first >= n:
                break
            rows = <int> min(TILE_ROWS, n - first)
            dtrsm("L", "U", "T", "N", &size, &rows, &one, &a[at, at], &ld, &a[first, at], &ld)


def update(double[:, ::1] a,                # inout (N, N): less the products of the panel with itself
           Py_ssize_t at,                    # in    first row and column of the tile above the panel
           long long[::1] counter):
    """A round of `factor`: tasks are tiles, one column of them after the other; the first one is factored, too.

    Returns 0 or the number, from 1, of the pivot of that tile that is not positive.
    """
    cdef Py_ssize_t n = a.shape[0], start = at + TILE_ROWS, tiles = (n - start + TILE_ROWS - 1) // TILE_ROWS
    cdef Py_ssize_t column = 0, passed = 0, task, left, top
    cdef int columns, rows, ld = <int> n, inner = TILE_ROWS, info = 0
    cdef double minus = -1.0, one = 1.0
    with nogil:
        while True:
            task = next_task(&counter[0])
            while column < tiles and task >= passed + tiles - column:
                passed += tiles - column
                column += 1
            if column == tiles:
                break
            left = start + TILE_ROWS * column
            top = left + TILE_ROWS * (task - passed)
            columns, rows = <int> min(TILE_ROWS, n - left), <int> min(TILE_ROWS, n - top)
            if top > left:
                dgemm("T", "N", &columns, &rows, &inner, &minus, &a[left, at], &ld, &a[top, at], &ld, &one,
                      &a[top, left], &ld)
            else:
                dsyrk("U", "T", &columns, &inner, &minus, &a[left, at], &ld, &one, &a[left, left], &ld)
            if task == 0:
                dpotrf("U", &columns, &a[left, left], &ld, &info)
    return first_pivot(start, info)


cdef inline Py_ssize_t first_pivot(Py_ssize_t at, int info) noexcept nogil:
    """The number of a pivot in the matrix, from its number in the tile; 0 for none."""
    return at + info if info > 0 else 0


def invert_leaves(double[:, ::1] a,         # inout (N, N): its leaves on the diagonal, then their inverses
                  long long[::1] counter):
    """The first round of `invert`: tasks are leaves."""
    cdef Py_ssize_t n = a.shape[0], at
    cdef int size, ld = <int> n, info
    with nogil:
        while True:
            at = LEAF_ROWS * next_task(&counter[0])
            if at >= n:
                break
            size = <int> min(LEAF_ROWS, n - at)
            dtrtri("U", "N", &size, &a[at, at], &ld, &info)


def join_inverses(double[:, ::1] a,         # inout (N, N): blocks of `size` rows on the diagonal are inverses
                  Py_ssize_t size,           # in    LEAF times a power of 2
                  bint last,                 # in    whether it is the second round of the two
                  long long[::1] counter):
    """A round of `invert` for pairs of blocks: [A 0; C B]^-1 = [A^-1 0; -B^-1 C A^-1 B^-1].

    Tasks are rows of C, from which -C A^-1 comes first, and columns of that in the second round.
    """
    cdef Py_ssize_t n = a.shape[0], chunks = size // LEAF_ROWS, task, at, middle, start, stop
    cdef int rows, columns, ld = <int> n
    cdef double minus = -1.0, one = 1.0
    with nogil:
        while True:
            task = next_task(&counter[0])
            at = 2 * size * (task // chunks)
            middle, start = at + size, LEAF_ROWS * (task % chunks)
            if middle >= n:
                break
            stop = min(middle + size, n)
            if last:
                rows, columns = <int> (stop - middle), LEAF_ROWS
                dtrmm("R", "U", "N", "N", &columns, &rows, &one, &a[middle, middle], &ld, &a[middle, at + start], &ld)
            elif middle + start < stop:
                rows, columns = <int> min(LEAF_ROWS, stop - middle - start), <int> size
                dtrmm("L", "U", "N", "N", &columns, &rows, &minus, &a[at, at], &ld, &a[middle + start, at], &ld)


def square_rows(double[:, ::1] a,           # inout (N, N): L, then rows of L'L
                const double[:, ::1] tile,   # in    (TILE, TILE): the tile of L on the diagonal
                Py_ssize_t at,               # in    its first row and column
                long long[::1] counter):
    """A round of `square` for the rows of a tile: tasks are tiles from the diagonal on to the left."""
    cdef Py_ssize_t n = a.shape[0], size = min(TILE_ROWS, n - at), below = at + size, left
    cdef int rows = <int> size, inner = <int> (n - below), ld = <int> n, own = TILE_ROWS, columns = TILE_ROWS, info
    cdef double one = 1.0
    with nogil:
        while True:
            left = at - TILE_ROWS * next_task(&counter[0])
            if left < 0:
                break
            if left == at:
                dlauum("U", &rows, &a[at, at], &ld, &info)
                if inner > 0:
                    dsyrk("U", "N", &rows, &inner, &one, &a[below, at], &ld, &one, &a[at, at], &ld)
            else:
                dtrmm("R", "U", "T", "N", &columns, &rows, &one, <double *> &tile[0, 0], &own, &a[at, left], &ld)
                if inner > 0:
                    dgemm("N", "T", &columns, &rows, &inner, &one, &a[below, left], &ld, &a[below, at], &ld, &one,
                          &a[at, left], &ld)


def add_squares(double[:, ::1] a,           # inout (N, N): plus up' up less down' down
                const double[:, ::1] up,     # in    (m, N)
                const double[:, ::1] down,   # in    (k, N)
                long long[::1] counter):
    """A round for all of a lower triangle: tasks are rows of tiles, the longest first."""
    cdef Py_ssize_t n = a.shape[0], tiles = (n + TILE_ROWS - 1) // TILE_ROWS, at
    with nogil:
        while True:
            at = TILE_ROWS * (tiles - 1 - next_task(&counter[0]))
            if at < 0:
                break
            if up.shape[0]:
                add_square(a, up, 1.0, at)
            if down.shape[0]:
                add_square(a, down, -1.0, at)


cdef void add_square(double[:, ::1] a, const double[:, ::1] x, double sign, Py_ssize_t at) noexcept nogil:
    """Add sign x' x to the rows of a tile."""
    cdef Py_ssize_t n = a.shape[0]
    cdef int rows = <int> min(TILE_ROWS, n - at), columns = <int> at, inner = <int> x.shape[0], ld = <int> n
    cdef double *start = <double *> &x[0, 0]
    cdef double one = 1.0
    if columns:
        dgemm("N", "T", &columns, &rows, &inner, &sign, start, &ld, start + at, &ld, &one, &a[at, 0], &ld)
    dsyrk("U", "N", &rows, &inner, &sign, start + at, &ld, &one, &a[at, at], &ld)


def apply(const double[:, ::1] triangle,    # in    (N, N): L
          bint inverted,                     # in    whether it is L^-1
          bint transposed,                   # in    whether L^-T is meant
          double[:, ::1] x,                  # inout (n, N): L^-1 or L^-T applied to its rows
          long long[::1] counter):
    """A round: tasks are TILE rows of x."""
    cdef Py_ssize_t n = triangle.shape[0], first
    cdef int size = <int> n, rows
    cdef char *trans = "N" if transposed else "T"
    cdef double one = 1.0
    with nogil:
        while True:
            first = TILE_ROWS * next_task(&counter[0])
            if first >= x.shape[0]:
                break
            rows = <int> min(TILE_ROWS, x.shape[0] - first)
            if inverted:
                dtrmm("L", "U", trans, "N", &size, &rows, &one, <double *> &triangle[0, 0], &size, &x[first, 0], &size)
            else:
                dtrsm("L", "U", trans, "N", &size, &rows, &one, <double *> &triangle[0, 0], &size, &x[first, 0], &size)
