"""The triangular factor of rows below a triangle, in tiles: one orthogonal step for each run of rows and columns.

A step is the QR factorisation of a triangle and the tile of rows below it, by Householder reflections [S]_; those tiles
to the right of it are then reflected. Threads share the tasks as those of tiled.pyx do.

.. [S] R. Schreiber and C. Van Loan, "A Storage-Efficient WY Representation for Products of Householder
   Transformations", SIAM Journal on Scientific and Statistical Computing 10 (1989), 53-57.
"""

from scipy.linalg.cython_lapack cimport dtpmqrt, dtpqrt

from cavity._core.tasks cimport let_others_work, load, next_number, store

cdef enum:
    STEP_COLUMNS = 128                       # of a tile
    STEP_ROWS = 256                          # of a tile of the rows below, where there are several runs of columns
    REFLECTIONS_PER_STEP = 32                           # reflections that are applied at once

COLUMNS, ROWS, TOGETHER = STEP_COLUMNS, STEP_ROWS, REFLECTIONS_PER_STEP


def stack(double[:, ::1] a,                 # inout (N, N) lower: R', then that of all rows
          double[:, ::1] b,                  # inout (N, m): the columns of the rows below; then what reflected them
          double[:, :, ::1] t,               # out   (row tiles, N, REFLECTIONS_PER_STEP): factors of the reflections
          Py_ssize_t height,                 # in    rows of a tile
          const long long[:, ::1] tasks,     # in    (n, 4): tile of rows, run of columns, tile reflected, first run
          long long[::1] state,              # inout (2 + (runs + row tiles) runs)
          double most, /):
    """Tasks reflect a tile of R and the tile of rows below it; those on the diagonal find the reflections.

    state[2:] counts, for each tile of R, the tiles of rows that it has seen, and for each of these the steps it took.
    """
    cdef Py_ssize_t task
    cdef double spent = 0.0
    with nogil:
        while spent < most:
            task = next_number(&state[0])
            if task >= tasks.shape[0]:
                store(&state[1], 1)
                break
            spent += step(a, b, t, height, &tasks[task, 0], &state[2])


cdef double step(double[:, ::1] a, double[:, ::1] b, double[:, :, ::1] t, Py_ssize_t height, const long long *task,
                 long long *seen) noexcept nogil:
    """Do a task; return how many operations it took."""
    cdef Py_ssize_t runs = (a.shape[0] + STEP_COLUMNS - 1) // STEP_COLUMNS
    cdef Py_ssize_t tile = task[0], run = task[1], moved = task[2]
    cdef Py_ssize_t top = height * tile, at = STEP_COLUMNS * run, left = STEP_COLUMNS * moved
    cdef long long *steps = seen + (runs + tile) * runs
    cdef int rows = <int> min(height, b.shape[1] - top), own = <int> min(STEP_COLUMNS, a.shape[0] - at)
    cdef int columns = <int> min(STEP_COLUMNS, a.shape[0] - left), together = min(REFLECTIONS_PER_STEP, own), none = 0
    cdef int ld = <int> a.shape[0], ld_below = <int> b.shape[1], ld_t = REFLECTIONS_PER_STEP, info
    cdef double work[REFLECTIONS_PER_STEP * STEP_COLUMNS]
    wait(&seen[runs * run + moved], tile)
    if run > task[3]:
        wait(&steps[moved], run)
    if moved == run:
        # a[at, at].T = R of np.linalg.qr(np.vstack([a[at, at].T, b[at, top].T])); b and t hold Q
        dtpqrt(&rows, &own, &none, &together, &a[at, at], &ld, &b[at, top], &ld_below, &t[tile, at, 0], &ld_t, work,
               &info)
    else:
        wait(&steps[run], run + 1)
        # np.vstack([a[left, at].T, b[left, top].T]) = Q.T @ np.vstack([a[left, at].T, b[left, top].T])
        dtpmqrt("L", "T", &rows, &columns, &own, &none, &together, &b[at, top], &ld_below, &t[tile, at, 0], &ld_t,
                &a[left, at], &ld, &b[left, top], &ld_below, work, &info)
    store(&steps[moved], run + 1)
    store(&seen[runs * run + moved], tile + 1)
    return 4.0 * rows * own * columns


cdef void wait(long long *count, long long number) noexcept nogil:
    """Let others work until a count is reached."""
    while load(count) < number:
        let_others_work()
