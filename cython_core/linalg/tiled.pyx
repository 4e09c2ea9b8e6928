"""Large lower triangles in tiles: factors, inverses, squares and updates as tasks that threads share.

Matrices are C-contiguous; only their lower triangles are read and written. BLAS sees their transposes as upper ones.
The threads that call a function at the same time take the number of the next task from state[0], which starts at zero.
A thread that finds none left sets state[1]; until then calls return after `most` operations, to be called again.
A task is the same calls of BLAS on any thread, so results do not depend on the number of threads.
"""

from scipy.linalg.cython_blas cimport dgemm, dsyrk, dtrmm, dtrsm
from scipy.linalg.cython_lapack cimport dlauum, dpotrf, dtrtri

from cavity._core.tasks cimport let_others_work, load, next_number, store

cdef enum:
    TILE_ROWS = 256                          # rows and columns of a tile
    LEAF_ROWS = 128                          # of those that are inverted first
    MAX_SOLVED_ROWS = 64                         # of triangles that BLAS solves, slowly; the rest is products
    MIN_TASK_ROWS = 64                          # of a task of `apply`

TILE, LEAF = TILE_ROWS, LEAF_ROWS

cdef double PLUS_1 = 1.0, MINUS_1 = -1.0


def factor(double[:, ::1] a,                # inout (N, N): the matrix, then its factor
           const long long[:, ::1] tasks,    # in    (n, 3): row and column of a tile, and tiles done to its left
           long long[::1] state,             # inout (3 + square of the number of tiles in a column)
           double most, /):
    """Tasks take the product of two tiles of a column away from a tile, and factor or solve it after the last column.

    state[2] becomes the number, from 1, of the first pivot that is not positive, and ends the work; the rest counts,
    for each tile, products that were taken away, and one more when it is done. A task waits for some before it.
    """
    cdef Py_ssize_t task
    cdef double spent = 0.0
    with nogil:
        while spent < most:
            task = next_number(&state[0])
            if task >= tasks.shape[0] or load(&state[2]):
                store(&state[1], 1)
                break
            spent += factor_tile(a, &tasks[task, 0], &state[2])


cdef double factor_tile(double[:, ::1] a, const long long *task, long long *bad) noexcept nogil:
    """Do a task; return how many operations it took."""
    cdef Py_ssize_t tiles = (a.shape[0] + TILE_ROWS - 1) // TILE_ROWS, row = task[0], column = task[1]
    cdef Py_ssize_t top = TILE_ROWS * row, left = TILE_ROWS * column, start = TILE_ROWS * (task[2] - 1)
    cdef long long done = task[2]
    cdef long long *across = bad + 1 + tiles * row
    cdef long long *above = bad + 1 + tiles * column
    cdef int rows = <int> min(TILE_ROWS, a.shape[0] - top), columns = <int> min(TILE_ROWS, a.shape[0] - left)
    cdef int inner = TILE_ROWS, ld = <int> a.shape[0], info = 0
    if done and not (reached(&across[column], done - 1, bad) and reached(&across[done - 1], done, bad)
                     and reached(&above[done - 1], done, bad)):
        return 0.0
    if done and row == column:
        # a[top, top] -= np.tril(a[top, start] @ a[top, start].T), each a tile
        dsyrk("U", "T", &rows, &inner, &MINUS_1, &a[top, start], &ld, &PLUS_1, &a[top, left], &ld)
    elif done:
        # a[top, left] -= a[top, start] @ a[left, start].T, each a tile
        dgemm("T", "N", &columns, &rows, &inner, &MINUS_1, &a[left, start], &ld, &a[top, start], &ld, &PLUS_1,
              &a[top, left], &ld)
    if done == column:
        if row == column:
            # a[top, top] = np.linalg.cholesky(a[top, top])
            dpotrf("U", &rows, &a[top, left], &ld, &info)
            if info > 0:
                store(bad, top + info)
                return 0.0
        elif reached(&above[column], column + 1, bad):
            solve_rows(&a[left, left], columns, False, &a[top, left], rows, ld)
        else:
            return 0.0
        done += 1
    store(&across[column], done)
    return 2.0 * rows * columns * inner


cdef bint reached(long long *count, long long number, long long *bad) noexcept nogil:
    """Wait for a count; False if a pivot is bad."""
    while load(count) < number:
        if load(bad):
            return False
        let_others_work()
    return True


cdef void solve_rows(const double *triangle,         # in    (size, size): L
                     int size,
                     bint transposed,                # in    whether L^-T is meant
                     double *x,                      # inout (rows, size): L^-1 or L^-T applied to its rows
                     int rows,
                     int ld) noexcept nogil:
    """By halves: the one that comes first is solved, and taken away from the other one."""
    cdef int half = (size + 2 * MAX_SOLVED_ROWS - 1) // (2 * MAX_SOLVED_ROWS) * MAX_SOLVED_ROWS, rest = size - half
    cdef double *below = <double *> triangle + half * <Py_ssize_t> ld
    if size <= MAX_SOLVED_ROWS:
        # x = x @ inv(L) if transposed else x @ inv(L).T
        dtrsm("L", "U", "N" if transposed else "T", "N", &size, &rows, &PLUS_1, <double *> triangle, &ld, x, &ld)
    elif transposed:
        solve_rows(below + half, rest, True, x + half, rows, ld)
        # x[:, :half] -= x[:, half:] @ below
        dgemm("N", "N", &half, &rows, &rest, &MINUS_1, below, &ld, x + half, &ld, &PLUS_1, x, &ld)
        solve_rows(triangle, half, True, x, rows, ld)
    else:
        solve_rows(triangle, half, False, x, rows, ld)
        # x[:, half:] -= x[:, :half] @ below.T
        dgemm("T", "N", &rest, &rows, &half, &MINUS_1, below, &ld, x, &ld, &PLUS_1, x + half, &ld)
        solve_rows(below + half, rest, False, x + half, rows, ld)


def invert_leaves(double[:, ::1] a,         # inout (N, N): its leaves on the diagonal, then their inverses
                  long long[::1] state,
                  double most, /):
    """The first round of `invert`: tasks are leaves."""
    cdef Py_ssize_t n = a.shape[0], at
    cdef int size, ld = <int> n, info
    cdef double spent = 0.0
    with nogil:
        while spent < most:
            at = LEAF_ROWS * next_number(&state[0])
            if at >= n:
                store(&state[1], 1)
                break
            size = <int> min(LEAF_ROWS, n - at)
            # a[at, at] = inv(a[at, at]), a leaf
            dtrtri("U", "N", &size, &a[at, at], &ld, &info)
            spent += 1.0 * size * size * size


def join_inverses(double[:, ::1] a,         # inout (N, N): blocks of `size` rows on the diagonal are inverses
                  Py_ssize_t size,           # in    LEAF times a power of 2
                  bint last,                 # in    whether it is the second round of the two
                  long long[::1] state,
                  double most, /):
    """A round of `invert` for pairs of blocks: [A 0; C B]^-1 = [A^-1 0; -B^-1 C A^-1 B^-1].

    Tasks are rows of C, from which -C A^-1 comes first, and columns of that in the second round.
    """
    cdef Py_ssize_t n = a.shape[0], chunks = size // LEAF_ROWS, task, at, middle, start, stop
    cdef int rows, columns, ld = <int> n
    cdef double spent = 0.0
    with nogil:
        while spent < most:
            task = next_number(&state[0])
            at = 2 * size * (task // chunks)
            middle, start = at + size, LEAF_ROWS * (task % chunks)
            if middle >= n:
                store(&state[1], 1)
                break
            spent += 1.0 * size * size * LEAF_ROWS
            stop = min(middle + size, n)
            if last:
                rows, columns = <int> (stop - middle), LEAF_ROWS
                # c = inv(B) @ c, the columns of C inv(A) from `start` on
                dtrmm("R", "U", "N", "N", &columns, &rows, &PLUS_1, &a[middle, middle], &ld,
                      &a[middle, at + start], &ld)
            elif middle + start < stop:
                rows, columns = <int> min(LEAF_ROWS, stop - middle - start), <int> size
                # c = -c @ inv(A), the rows of C from `start` on
                dtrmm("L", "U", "N", "N", &columns, &rows, &MINUS_1, &a[at, at], &ld, &a[middle + start, at], &ld)


def square_rows(double[:, ::1] a,           # inout (N, N): above `at` rows of L'L but for what is below `at`
                const double[:, ::1] tile,   # in    (TILE, TILE): the tile of L on the diagonal above `at`
                Py_ssize_t at,               # in    first row of a tile of L that is added; N or more for none
                long long[::1] state,
                double most, /):
    """A round of `square`: tasks are tiles above, the rows of `tile`, which are still those of L, first."""
    cdef Py_ssize_t n = a.shape[0], row = at // TILE_ROWS - 1, passed = 0, task, top, left
    cdef int rows, columns = TILE_ROWS, inner = <int> max(0, min(TILE_ROWS, n - at)), ld = <int> n, own = TILE_ROWS
    cdef int info
    cdef double spent = 0.0
    with nogil:
        while spent < most:
            task = next_number(&state[0])
            while row >= 0 and task > passed + row:
                passed += row + 1
                row -= 1
            if row < 0:
                store(&state[1], 1)
                break
            top, left = TILE_ROWS * row, TILE_ROWS * (task - passed)
            rows = <int> min(TILE_ROWS, n - top)
            spent += 2.0 * TILE_ROWS * TILE_ROWS * TILE_ROWS
            if left == top:
                if top + TILE_ROWS == at:
                    # a[top, top] = np.tril(L.T @ L), L = a[top, top]
                    dlauum("U", &rows, &a[top, top], &ld, &info)
                if inner:
                    # a[top, top] += np.tril(a[at, top].T @ a[at, top])
                    dsyrk("U", "N", &rows, &inner, &PLUS_1, &a[at, top], &ld, &PLUS_1, &a[top, top], &ld)
            else:
                if top + TILE_ROWS == at:
                    # a[top, left] = tile.T @ a[top, left]
                    dtrmm("R", "U", "T", "N", &columns, &rows, &PLUS_1, <double *> &tile[0, 0], &own, &a[top, left],
                          &ld)
                if inner:
                    # a[top, left] += a[at, top].T @ a[at, left]
                    dgemm("N", "T", &columns, &rows, &inner, &PLUS_1, &a[at, left], &ld, &a[at, top], &ld, &PLUS_1,
                          &a[top, left], &ld)


def add_squares(double[:, ::1] a,           # inout (N, N): plus up' up less down' down
                const double[:, ::1] up,     # in    (m, N)
                const double[:, ::1] down,   # in    (k, N)
                long long[::1] state,
                double most, /):
    """A round for all of a lower triangle: tasks are rows of tiles, the longest first."""
    cdef Py_ssize_t n = a.shape[0], tiles = (n + TILE_ROWS - 1) // TILE_ROWS, at
    cdef double spent = 0.0
    with nogil:
        while spent < most:
            at = TILE_ROWS * (tiles - 1 - next_number(&state[0]))
            if at < 0:
                store(&state[1], 1)
                break
            spent += 2.0 * TILE_ROWS * at * (up.shape[0] + down.shape[0])
            if up.shape[0]:
                add_square(a, up, 1.0, at)
            if down.shape[0]:
                add_square(a, down, -1.0, at)


cdef void add_square(double[:, ::1] a, const double[:, ::1] x, double sign, Py_ssize_t at) noexcept nogil:
    """Add sign x' x to the rows of a tile."""
    cdef Py_ssize_t n = a.shape[0]
    cdef int rows = <int> min(TILE_ROWS, n - at), columns = <int> at, inner = <int> x.shape[0], ld = <int> n
    cdef double *start = <double *> &x[0, 0]
    if columns:
        # a[at, :at] += sign * x[:, at].T @ x[:, :at], `at` for the rows of the tile
        dgemm("N", "T", &columns, &rows, &inner, &sign, start, &ld, start + at, &ld, &PLUS_1, &a[at, 0], &ld)
    # a[at, at] += sign * np.tril(x[:, at].T @ x[:, at])
    dsyrk("U", "N", &rows, &inner, &sign, start + at, &ld, &PLUS_1, &a[at, at], &ld)


def apply(const double[:, ::1] triangle,    # in    (N, N): L
          bint inverted,                     # in    whether it is L^-1
          bint transposed,                   # in    whether L^-T is meant
          double[:, ::1] x,                  # inout (n, N): L^-1 or L^-T applied to its rows
          long long[::1] state,
          double most, /):
    """A round: tasks are rows of x, of whole tiles if `most` allows it."""
    cdef Py_ssize_t n = triangle.shape[0], size = TILE_ROWS, first
    cdef int columns = <int> n, rows
    cdef double spent = 0.0
    while size > MIN_TASK_ROWS and 1.0 * size * n * n > 2.5 * most:
        size //= 2
    with nogil:
        while spent < most:
            first = size * next_number(&state[0])
            if first >= x.shape[0]:
                store(&state[1], 1)
                break
            rows = <int> min(size, x.shape[0] - first)
            spent += 1.0 * rows * n * n
            if inverted:
                # x = x @ triangle if transposed else x @ triangle.T
                dtrmm("L", "U", "N" if transposed else "T", "N", &columns, &rows, &PLUS_1, <double *> &triangle[0, 0],
                      &columns, &x[first, 0], &columns)
            else:
                solve_rows(&triangle[0, 0], columns, transposed, &x[first, 0], rows, columns)
