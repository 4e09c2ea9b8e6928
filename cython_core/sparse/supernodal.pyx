"""Numeric Cholesky factors, solves and selected inverses of sparse matrices by supernodes.

What supernodes are: elimination.pyx. The panel of a supernode has its own w rows, of which the lower triangle counts,
and the b rows below, each of w entries; BLAS sees the transpose. Panels are factored from left to right: each takes the
updates of earlier ones itself, in their order, so sums do not depend on who else is at work. The selected inverse goes
from right to left: Takahashi, Fagan and Chen, Formation of a sparse bus impedance matrix and its application to short
circuit study (1973).

Functions with a `counter` are one round: threads that call them at the same time take the next task from it until none
is left or `most` are done. A task is the same on any thread.
"""

from libc.math cimport sqrt
from libc.string cimport memset
from scipy.linalg.cython_blas cimport dgemm, dgemv, dsymm, dsyrk, dtrsm, dtrsv
from scipy.linalg.cython_lapack cimport dpotrf, dpotri

from cavity._core.tasks cimport next_number


cdef inline Py_ssize_t take(long long *counter, Py_ssize_t stop, Py_ssize_t *most) noexcept nogil:
    """The number of a task, or -1 if none before `stop` is left or this call has done its share."""
    cdef Py_ssize_t task
    if most[0] == 0:
        return -1
    most[0] -= 1
    task = next_number(counter)
    return task if task < stop else -1


cdef enum:
    TILE_ROWS = 256                          # rows and columns of a product of panels
    MIN_PRODUCTS_FOR_BLAS = 2000             # loops make fewer in less time than a call of BLAS or LAPACK takes
    MIN_TOGETHER = 4                         # single pivots in a row whose products one call of BLAS makes, at least
    MAX_TOGETHER = 64                        # and at most
    LONG_SHARE = 4                           # these have entries in one row of so many of the panel above them
    FAILED_BEFORE = -1                       # of a supernode: pivots depend on one that is not positive

TILE = TILE_ROWS

cdef double PLUS_1 = 1.0, TIMES_0 = 0.0, MINUS_1 = -1.0


cdef struct Tree:                            # pointers into the arrays of `Supernodes`
    const int *first
    const int *member
    const long long *rows_at
    const int *rows
    const long long *starts
    const long long *sources_at
    const int *sources
    const int *begins


cdef class Supernodes:
    """The symbolic factor: arrays that belong together, for the functions of this file."""
    cdef tuple arrays
    cdef Tree tree

    def __init__(self, *arrays):
        cdef const int[::1] first                # (S + 1,): first pivots, then n
        cdef const int[::1] member               # (n,): supernode of each pivot
        cdef const long long[::1] rows_at        # (S + 1,)
        cdef const int[::1] rows                 # rows below the supernodes, and one more
        cdef const long long[::1] starts         # (S + 1,): where their panels begin in the storage
        cdef const long long[::1] sources_at     # (S + 1,)
        cdef const int[::1] sources              # by supernodes: which ones update it, ascending, and one more
        cdef const int[::1] begins               # from which of their rows on, and one more
        first, member, rows_at, rows, starts, sources_at, sources, begins = self.arrays = arrays
        self.tree = Tree(&first[0], &member[0], &rows_at[0], &rows[0], &starts[0], &sources_at[0], &sources[0],
                         &begins[0])

    def __reduce__(self):
        return Supernodes, self.arrays


cdef inline Py_ssize_t width_of(const Tree *tree, Py_ssize_t s) noexcept nogil:
    return tree.first[s + 1] - tree.first[s]


cdef inline Py_ssize_t below_of(const Tree *tree, Py_ssize_t s) noexcept nogil:
    return tree.rows_at[s + 1] - tree.rows_at[s]


cdef inline Py_ssize_t search(const int *sorted, Py_ssize_t low, Py_ssize_t high, int value) noexcept nogil:
    """The first place from `low` on where something not below the value stands, in steps that double."""
    cdef Py_ssize_t step = 1, middle
    while low + step < high and sorted[low + step] < value:
        low += step
        step *= 2
    high = min(high, low + step)
    while low < high:
        middle = (low + high) >> 1
        if sorted[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


cdef Py_ssize_t locate(const Tree *tree, Py_ssize_t s, Py_ssize_t k, Py_ssize_t t, int *places) noexcept nogil:
    """Write where rows k, k + 1, ... below s stand in the panel of t; return the first of them that is not its own."""
    cdef Py_ssize_t size = below_of(tree, s), others = below_of(tree, t), at = 0, middle
    cdef int first = tree.first[t], last = tree.first[t + 1]
    cdef const int *rows = tree.rows + tree.rows_at[s]
    cdef const int *there = tree.rows + tree.rows_at[t]
    while k < size and rows[k] < last:
        places[k] = rows[k] - first
        k += 1
    middle = k
    while k < size:
        at = search(there, at, others, rows[k])
        places[k] = <int> (last - first + at)
        at += 1
        k += 1
    return middle


def positions(Supernodes nodes,
              const int[::1] place,         # in    (n,): number of the pivot of each row of the matrix
              const long long[::1] rows,     # in    (m,)
              const long long[::1] columns,  # in    (m,)
              long long[::1] out, /):        # out   (m,): where these entries stand; -1 for none
    cdef Py_ssize_t k, low, high, s, at
    cdef const Tree *tree = &nodes.tree
    cdef const int *below
    with nogil:
        for k in range(rows.shape[0]):
            low, high = place[rows[k]], place[columns[k]]
            if low > high:
                low, high = high, low
            s = tree.member[low]
            if high < tree.first[s + 1]:
                at = high - tree.first[s]
            else:
                below = tree.rows + tree.rows_at[s]
                at = search(below, 0, below_of(tree, s), <int> high)
                if at == below_of(tree, s) or below[at] != high:
                    out[k] = -1
                    continue
                at += width_of(tree, s)
            out[k] = tree.starts[s] + at * width_of(tree, s) + low - tree.first[s]


cdef Py_ssize_t count_together(const Tree *tree, Py_ssize_t t, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """How many sources of t from `first` on, before `last`, are single pivots with entries in many rows of t."""
    cdef Py_ssize_t e = first, m = width_of(tree, t) + below_of(tree, t)
    while e < last and width_of(tree, tree.sources[e]) == 1 and (
        (below_of(tree, tree.sources[e]) - tree.begins[e]) * LONG_SHARE >= m
    ):
        e += 1
    return e - first


cdef void update_together(const Tree *tree, double *values, Py_ssize_t t, Py_ssize_t first, Py_ssize_t last,
                          Py_ssize_t top, Py_ssize_t bottom, int *places, double *columns) noexcept nogil:
    """`update` for sources of one pivot; columns (last - first, bottom)."""
    cdef Py_ssize_t e, s, i, w = width_of(tree, t)
    cdef const double *low
    cdef double *column = columns
    cdef int width = <int> min(w, bottom), rows = <int> (bottom - top), inner = <int> (last - first)
    cdef int length = <int> bottom, stride = <int> w
    memset(columns, 0, (last - first) * bottom * sizeof(double))
    for e in range(first, last):
        s, i = tree.sources[e], tree.begins[e]
        low = values + tree.starts[s] + 1
        locate(tree, s, i, t, places)
        while i < below_of(tree, s) and places[i] < bottom:
            column[places[i]] = low[i]
            i += 1
        column += bottom
    # panel[top:bottom] -= columns[:, top:bottom].T @ columns[:, :w]
    dgemm("N", "T", &width, &rows, &inner, &MINUS_1, columns, &length, columns + top, &length, &PLUS_1,
          values + tree.starts[t] + top * w, &stride)
    for i in range(top, min(bottom, w)):     # zeros above the diagonal
        memset(values + tree.starts[t] + i * w + i + 1, 0, (width - i - 1) * sizeof(double))


cdef void update(const Tree *tree, double *values, Py_ssize_t t, long long first, long long last, Py_ssize_t top,
                 Py_ssize_t bottom, int *places, double *tile) noexcept nogil:
    """Subtract from rows `top` to `bottom` of the panel of t the products of its sources from `first` to `last`.

    places: one for each row below a supernode; tile (TILE, TILE).
    """
    cdef Py_ssize_t most = min(<Py_ssize_t> MAX_TOGETHER, TILE_ROWS * TILE_ROWS // bottom), count
    while first < last:
        count = count_together(tree, t, first, min(last, first + most))
        if count >= MIN_TOGETHER:
            update_together(tree, values, t, first, first + count, top, bottom, places, tile)
        else:
            count = min(count + 1, last - first)
            update_by_sources(tree, values, t, first, first + count, top, bottom, places, tile)
        first += count


cdef void update_by_sources(const Tree *tree, double *values, Py_ssize_t t, long long first, long long last,
                            Py_ssize_t top, Py_ssize_t bottom, int *places, double *tile) noexcept nogil:
    """`update` for one source after the other."""
    cdef Py_ssize_t e, s, start, stop, end, i, j, c, inner, w = width_of(tree, t)
    cdef double *panel = values + tree.starts[t]
    cdef double *low
    cdef double *left
    cdef double *row
    cdef double total
    for e in range(first, last):
        s, start = tree.sources[e], tree.begins[e]
        inner, end = width_of(tree, s), below_of(tree, s)
        low = values + tree.starts[s] + inner * inner
        stop = locate(tree, s, start, t, places)
        i = search(places, start, end, <int> top)
        end = search(places, i, end, <int> bottom)
        if (end - i) * (stop - start) * inner >= MIN_PRODUCTS_FOR_BLAS and inner > 1:
            update_by_tiles(panel, w, low, inner, start, stop, i, end, places, tile)
        elif inner == 1:
            while i < end:
                row, total = panel + places[i] * w, low[i]
                for j in range(start, min(i + 1, stop)):
                    row[places[j]] -= total * low[j]
                i += 1
        else:
            while i < end:
                row, left = panel + places[i] * w, low + i * inner
                for j in range(start, min(i + 1, stop)):
                    total = 0.0
                    for c in range(inner):
                        total += left[c] * low[j * inner + c]
                    row[places[j]] -= total
                i += 1


cdef void update_by_tiles(double *panel, Py_ssize_t w, double *low, Py_ssize_t width, Py_ssize_t start, Py_ssize_t stop,
                          Py_ssize_t top, Py_ssize_t bottom, const int *places, double *tile) noexcept nogil:
    """Subtract low[top:bottom] @ low[start:stop].T where these rows stand in the panel; below its diagonal."""
    cdef Py_ssize_t left, at, end, i, j
    cdef int columns, rows, inner = <int> width
    cdef double *row
    left = start
    while left < stop:
        columns = <int> min(TILE_ROWS, stop - left)
        at = max(top, left)
        while at < bottom:
            end = min(left + columns if at < left + columns else at + TILE_ROWS, bottom)
            rows = <int> (end - at)
            if at == left and rows == columns:
                # tile = np.tril(low[left:left + columns] @ low[left:left + columns].T)
                dsyrk("U", "T", &columns, &inner, &PLUS_1, low + left * width, &inner, &TIMES_0, tile, &columns)
            else:
                # tile = low[at:end] @ low[left:left + columns].T
                dgemm("T", "N", &columns, &rows, &inner, &PLUS_1, low + left * width, &inner, low + at * width, &inner,
                      &TIMES_0, tile, &columns)
            for i in range(at, end):
                row = panel + places[i] * w
                for j in range(left, min(i + 1, left + columns)):
                    row[places[j]] -= tile[(i - at) * columns + j - left]
            at = end
        left += columns


cdef int eliminate(double *panel, Py_ssize_t w, Py_ssize_t b) noexcept nogil:
    """Factor a panel; return 0 or the number, from 1, of its pivot that is not positive."""
    cdef Py_ssize_t i, j, c
    cdef double total
    cdef double *row
    cdef double *other
    cdef int width = <int> w, rows = <int> b, info
    if w * w * (w + b) < MIN_PRODUCTS_FOR_BLAS or w == 1:
        for i in range(w + b):
            row = panel + i * w
            for j in range(min(i + 1, w)):
                other, total = panel + j * w, row[j]
                for c in range(j):
                    total -= row[c] * other[c]
                if j < i:
                    row[j] = total / other[j]
                elif total > 0.0:
                    row[j] = sqrt(total)
                else:
                    return <int> i + 1
        return 0
    # L = panel[:w] = np.linalg.cholesky(panel[:w])
    dpotrf("U", &width, panel, &width, &info)
    if info == 0:
        for j in range(w):
            if not panel[j * w + j] > 0.0:   # a nan that LAPACK has let pass
                return <int> j + 1
        if b:
            # panel[w:] = panel[w:] @ inv(L).T
            dtrsm("L", "U", "T", "N", &width, &rows, &PLUS_1, panel, &width, panel + w * w, &width)
    return info


cdef Py_ssize_t sound(const Tree *tree, Py_ssize_t t, const int *failed) noexcept nogil:
    """How many of the first pivots of t depend on none that has failed."""
    cdef Py_ssize_t e, s, columns = width_of(tree, t)
    for e in range(tree.sources_at[t], tree.sources_at[t + 1]):
        s = tree.sources[e]
        if failed[s]:
            columns = min(columns, tree.rows[tree.rows_at[s] + tree.begins[e]] - tree.first[t])
    return columns


cdef int verdict(const Tree *tree, Py_ssize_t t, int bad, const int *failed) noexcept nogil:
    """What is to be known of t, of which pivot `bad` was the first that was not positive."""
    cdef Py_ssize_t columns = sound(tree, t, failed)
    if 0 < bad <= columns:
        return bad
    return FAILED_BEFORE if bad or columns < width_of(tree, t) else 0


def sources_of(Supernodes nodes, Py_ssize_t t, /):
    """How many supernodes update t."""
    return nodes.tree.sources_at[t + 1] - nodes.tree.sources_at[t]


def verdict_on(Supernodes nodes, Py_ssize_t t, int bad, const int[::1] failed, /):
    """What goes into `failed` for a large supernode."""
    return verdict(&nodes.tree, t, bad, &failed[0])


def factor(Supernodes nodes,
           double[::1] values,               # inout the matrix, then L
           const int[::1] schedule,          # in    supernodes by tasks
           const long long[::1] tasks_at,    # in    where each task begins in it
           int[::1] failed,                  # out   (S,): 0, or the number from 1 of a bad pivot, or FAILED_BEFORE
           Py_ssize_t stop,                  # in    the first task of another round
           Py_ssize_t most,                  # in    tasks of a call
           int[::1] places,                  # work  for the rows below any supernode
           double[::1] tile,                 # work  (TILE * min(TILE, rows of the largest panel),)
           long long[::1] counter, /):
    """A round: tasks are subtrees."""
    cdef Py_ssize_t task, e, t
    cdef int bad
    cdef const Tree *tree = &nodes.tree
    with nogil:
        while True:
            task = take(&counter[0], stop, &most)
            if task < 0:
                break
            for e in range(tasks_at[task], tasks_at[task + 1]):
                t = schedule[e]
                update(tree, &values[0], t, tree.sources_at[t], tree.sources_at[t + 1], 0,
                       width_of(tree, t) + below_of(tree, t), &places[0], &tile[0])
                bad = eliminate(&values[tree.starts[t]], width_of(tree, t), below_of(tree, t))
                failed[t] = verdict(tree, t, bad, &failed[0])


def update_rows(Supernodes nodes,
                double[::1] values,          # inout the matrix, and L in earlier panels
                Py_ssize_t t,                # in    a supernode, less the updates of earlier ones afterwards
                Py_ssize_t first,            # in    range of its sources
                Py_ssize_t last,
                Py_ssize_t size,             # in    rows of a task, at most TILE
                Py_ssize_t stop,             # in    the number of tasks
                Py_ssize_t most,             # in    tasks of a call
                int[::1] places,             # work
                double[::1] tile,            # work  (TILE * TILE,)
                long long[::1] counter, /):
    """A round for a large supernode: tasks are rows of its panel, the longest first."""
    cdef const Tree *tree = &nodes.tree
    cdef Py_ssize_t rows = width_of(tree, t) + below_of(tree, t), top
    cdef long long start = tree.sources_at[t]
    with nogil:
        while True:
            top = size * (stop - 1 - take(&counter[0], stop, &most))
            if top >= size * stop:
                break
            update(tree, &values[0], t, start + first, start + last, top, min(top + size, rows), &places[0], &tile[0])


cdef void invert_column(const Tree *tree, double *values, Py_ssize_t s, int *places, double *work) noexcept nogil:
    """The selected inverse of a supernode of one pivot; work (b,)."""
    cdef Py_ssize_t b = below_of(tree, s), k = 0, stop, t, i, j, w
    cdef const int *rows = tree.rows + tree.rows_at[s]
    cdef double *panel = values + tree.starts[s]
    cdef double *y = panel + 1
    cdef double *there
    cdef double *row
    cdef double pivot = panel[0], total, mine
    for i in range(b):
        y[i] /= pivot
        work[i] = 0.0
    while k < b:                             # work = Z22 y
        t = tree.member[rows[k]]
        w, there = width_of(tree, t), values + tree.starts[t]
        stop = locate(tree, s, k, t, places)
        for i in range(k, b):
            row, total, mine = there + places[i] * w, work[i], y[i]
            for j in range(k, min(i, stop)):
                total += row[places[j]] * y[j]
                work[j] += row[places[j]] * mine
            if i < stop:
                total += row[places[i]] * mine
            work[i] = total
        k = stop
    total = 1.0 / (pivot * pivot)
    for i in range(b):
        total += y[i] * work[i]
        y[i] = -work[i]
    panel[0] = total


cdef Py_ssize_t count_inverse_together(const Tree *tree, const int *schedule, Py_ssize_t last,
                                       Py_ssize_t first) noexcept nogil:
    """How many supernodes of a schedule from `last` back to `first` are single pivots with many rows of one panel."""
    cdef Py_ssize_t e = last, s = schedule[last], t, w, b
    if below_of(tree, s) == 0:
        return 0
    t = tree.member[tree.rows[tree.rows_at[s]]]
    w = width_of(tree, t)
    first = max(first, last + 1 - min(<Py_ssize_t> MAX_TOGETHER, TILE_ROWS * TILE_ROWS // (2 * w)))
    while e >= first:
        s = schedule[e]
        b = below_of(tree, s)
        if width_of(tree, s) > 1 or b * LONG_SHARE < w or tree.rows[tree.rows_at[s]] < tree.first[t] or (
            tree.rows[tree.rows_at[s] + b - 1] >= tree.first[t + 1]
        ):
            break
        e -= 1
    return last - e


cdef void invert_together(const Tree *tree, double *values, const int *schedule, Py_ssize_t last, Py_ssize_t count,
                          double *work) noexcept nogil:
    """`invert_column` of supernodes whose rows are all in one panel, of w columns; work (2, count, w)."""
    cdef Py_ssize_t t = tree.member[tree.rows[tree.rows_at[schedule[last]]]], w = width_of(tree, t), c, i, s
    cdef const int *rows
    cdef double *panel
    cdef double *column
    cdef double *product
    cdef double total
    cdef int size = <int> w, several = <int> count
    memset(work, 0, count * w * sizeof(double))
    for c in range(count):
        s = schedule[last - c]
        rows, panel, column = tree.rows + tree.rows_at[s], values + tree.starts[s], work + c * w - tree.first[t]
        for i in range(below_of(tree, s)):
            column[rows[i]] = panel[1 + i] / panel[0]
    # work[1] = work[0] @ Z, Z symmetric
    dsymm("L", "U", &size, &several, &PLUS_1, values + tree.starts[t], &size, work, &size, &TIMES_0,
          work + count * w, &size)
    for c in range(count):
        s = schedule[last - c]
        rows, panel, column = tree.rows + tree.rows_at[s], values + tree.starts[s], work + c * w - tree.first[t]
        product, total = column + count * w, 1.0 / (panel[0] * panel[0])
        for i in range(below_of(tree, s)):
            total += column[rows[i]] * product[rows[i]]
            panel[1 + i] = -product[rows[i]]
        panel[0] = total


cdef void gather(const Tree *tree, const double *values, Py_ssize_t s, Py_ssize_t top, Py_ssize_t bottom, bint whole,
                 int *places, double *out) noexcept nogil:
    """Write rows `top` to `bottom` of Z22, (b, b), for the rows below s; above its diagonal only if `whole`."""
    cdef Py_ssize_t b = below_of(tree, s), k = 0, stop, t, i, j, w
    cdef const int *rows = tree.rows + tree.rows_at[s]
    cdef const double *there
    cdef const double *row
    while k < (b if whole else bottom):
        t = tree.member[rows[k]]
        w, there = width_of(tree, t), values + tree.starts[t]
        stop = locate(tree, s, k, t, places)
        for i in range(max(k, top), bottom):
            row = there + places[i] * w
            for j in range(k, min(i + 1, stop)):
                out[(i - top) * b + j] = row[places[j]]
        if whole:
            for i in range(max(k, top), b):
                row = there + places[i] * w
                for j in range(max(k, top), min(i, min(stop, bottom))):
                    out[(j - top) * b + i] = row[places[j]]
        k = stop


cdef void invert_few(double *panel, Py_ssize_t w, Py_ssize_t b, const double *square, double *work) noexcept nogil:
    """The selected inverse of a small panel by columns; square (b, b): Z22, its lower triangle; work (w + b,)."""
    cdef Py_ssize_t m = w + b, c, i, j
    cdef double pivot, total, mine
    cdef const double *row
    for c in range(w - 1, -1, -1):
        pivot = panel[c * w + c]
        for i in range(c + 1, m):
            panel[i * w + c] /= pivot
            work[i] = 0.0
        for i in range(c + 1, m):            # work = Z y, of which columns after c and rows below are known
            total, mine = work[i], panel[i * w + c]
            row = panel + i * w
            for j in range(c + 1, min(i, w)):
                total += row[j] * panel[j * w + c]
                work[j] += row[j] * mine
            if i < w:
                total += row[i] * mine
            else:
                row = square + (i - w) * b - w
                for j in range(w, i):
                    total += row[j] * panel[j * w + c]
                    work[j] += row[j] * mine
                total += row[i] * mine
            work[i] = total
        total = 1.0 / (pivot * pivot)
        for i in range(c + 1, m):
            total += panel[i * w + c] * work[i]
            panel[i * w + c] = -work[i]
        panel[c * w + c] = total


cdef void invert_panel(const Tree *tree, double *values, Py_ssize_t s, int *places, double *work) noexcept nogil:
    """The selected inverse of a supernode; work (b * b + b * w + w * w,).

    With Y = L21 L11^-1: Z21 = -Z22 Y and Z11 = L11^-T L11^-1 + Y' Z22 Y.
    """
    cdef Py_ssize_t w = width_of(tree, s), b = below_of(tree, s), i, j
    cdef double *panel = values + tree.starts[s]
    cdef double *low = panel + w * w
    cdef double *strip = work + b * b
    cdef double *corner = strip + b * w
    cdef int width = <int> w, rows = <int> b, info
    gather(tree, values, s, 0, b, False, places, work)
    if w * (w + b) * (w + b) < MIN_PRODUCTS_FOR_BLAS:
        invert_few(panel, w, b, work, strip)
        return
    if b:
        # low = low @ inv(L): Y
        dtrsm("L", "U", "N", "N", &width, &rows, &PLUS_1, panel, &width, low, &width)
        # strip = Z22 @ low
        dsymm("R", "U", &width, &rows, &PLUS_1, work, &rows, low, &width, &TIMES_0, strip, &width)
        # corner = low.T @ strip: Y' Z22 Y
        dgemm("N", "T", &width, &width, &rows, &PLUS_1, strip, &width, low, &width, &TIMES_0, corner, &width)
    # panel[:w] = inv(L @ L.T)
    dpotri("U", &width, panel, &width, &info)
    if b:
        for i in range(w):
            for j in range(i + 1):
                panel[i * w + j] += corner[i * w + j]
        for i in range(b * w):
            low[i] = -strip[i]


def invert(Supernodes nodes,
           double[::1] values,               # inout L, then the selected inverse
           const int[::1] schedule,          # in    supernodes by tasks
           const long long[::1] tasks_at,    # in    where each task begins in it
           Py_ssize_t both,                  # in    the sum of the first and the last task of the round
           Py_ssize_t stop,                  # in    the first task of another round
           Py_ssize_t most,                  # in    tasks of a call
           int[::1] places,                  # work  for the rows below any supernode
           double[::1] work,                 # work  of the longest that any of these supernodes needs, or as for factor
           long long[::1] counter, /):
    """A round: tasks are subtrees, from the last to the first."""
    cdef Py_ssize_t task, e, s, count
    cdef const Tree *tree = &nodes.tree
    with nogil:
        while True:
            task = take(&counter[0], stop, &most)
            if task < 0:
                break
            task = both - task
            e = tasks_at[task + 1] - 1
            while e >= tasks_at[task]:
                s, count = schedule[e], count_inverse_together(tree, &schedule[0], e, tasks_at[task])
                if count >= MIN_TOGETHER:
                    invert_together(tree, &values[0], &schedule[0], e, count, &work[0])
                    e -= count
                    continue
                if width_of(tree, s) == 1:
                    invert_column(tree, &values[0], s, &places[0], &work[0])
                else:
                    invert_panel(tree, &values[0], s, &places[0], &work[0])
                e -= 1


def inverse_strips(Supernodes nodes,
                   double[::1] values,       # in    the selected inverse in later panels, Y below s
                   Py_ssize_t s,             # in    a supernode
                   double[:, ::1] strips,    # out   (b, w): Z22 Y
                   Py_ssize_t size,          # in    rows of a task, at most TILE
                   Py_ssize_t stop,          # in    the number of tasks
                   Py_ssize_t most,          # in    tasks of a call
                   int[::1] places,          # work
                   double[::1] work,         # work  (TILE * b,)
                   long long[::1] counter, /):
    """A round for a large supernode: tasks are rows below it."""
    cdef const Tree *tree = &nodes.tree
    cdef Py_ssize_t w = width_of(tree, s), b = below_of(tree, s), top
    cdef int width = <int> w, inner = <int> b, rows
    with nogil:
        while True:
            top = size * take(&counter[0], stop, &most)
            if top < 0:
                break
            rows = <int> min(size, b - top)
            gather(tree, &values[0], s, top, top + rows, True, &places[0], &work[0])
            # strips[top:top + rows] = work @ Y, work = Z22[top:top + rows]
            dgemm("N", "N", &width, &rows, &inner, &PLUS_1, &values[tree.starts[s] + w * w], &width, &work[0], &inner,
                  &TIMES_0, &strips[top, 0], &width)


def inverse_corner(double[:, ::1] corner,   # inout (w, w): L11^-T L11^-1, then Z11; the lower triangle
                   double[:, ::1] low,       # in    (b, w): Y
                   double[:, ::1] strips,    # in    (b, w): Z22 Y
                   Py_ssize_t size,          # in    rows of a task, at most TILE
                   Py_ssize_t stop,          # in    the number of tasks
                   Py_ssize_t most,          # in    tasks of a call
                   double[::1] tile,         # work  (TILE * TILE,)
                   long long[::1] counter, /):
    """A round for a large supernode: tasks are rows of its own."""
    cdef Py_ssize_t w = corner.shape[0], top, i, j
    cdef int width = <int> w, inner = <int> low.shape[0], rows, columns
    with nogil:
        while True:
            top = size * take(&counter[0], stop, &most)
            if top < 0:
                break
            rows, columns = <int> min(size, w - top), <int> top
            if columns:
                # corner[top:top + rows, :top] += low[:, top:top + rows].T @ strips[:, :top]
                dgemm("N", "T", &columns, &rows, &inner, &PLUS_1, &strips[0, 0], &width, &low[0, top], &width, &PLUS_1,
                      &corner[top, 0], &width)
            # tile = low[:, top:top + rows].T @ strips[:, top:top + rows]
            dgemm("N", "T", &rows, &rows, &inner, &PLUS_1, &strips[0, top], &width, &low[0, top], &width, &TIMES_0,
                  &tile[0], &rows)
            for i in range(rows):
                for j in range(i + 1):
                    corner[top + i, top + j] += tile[i * rows + j]


def forward(Supernodes nodes,
            const double[::1] values,        # in    L
            Py_ssize_t start,                # in    range of supernodes
            Py_ssize_t stop,
            double[:, ::1] x,                # inout (n, k): L^-1 applied to its columns
            double[::1] work, /):            # work  (b * k,) for the largest b
    cdef const Tree *tree = &nodes.tree
    cdef Py_ssize_t k = x.shape[1], s, w, b, i, c, r
    cdef double *panel
    cdef double *own
    cdef double *other
    cdef const int *below
    cdef int width, rows, several = <int> k, inc = 1
    cdef double entry
    with nogil:
        for s in range(start, stop):
            w, b = width_of(tree, s), below_of(tree, s)
            panel, own, below = <double *> &values[tree.starts[s]], &x[tree.first[s], 0], tree.rows + tree.rows_at[s]
            width, rows = <int> w, <int> b
            i = 0
            while i < w * k and own[i] == 0.0:
                i += 1
            if i == w * k:  # as where right hand sides begin further on
                continue
            if w * (w + b) * k < MIN_PRODUCTS_FOR_BLAS or w == 1:
                for i in range(w + b):
                    other = own + i * k if i < w else &x[below[i - w], 0]
                    for c in range(min(i, w)):
                        entry = panel[i * w + c]
                        for r in range(k):
                            other[r] -= entry * own[c * k + r]
                    if i < w:
                        for r in range(k):
                            other[r] /= panel[i * w + i]
                continue
            if k == 1:
                # own = inv(L) @ own
                dtrsv("U", "T", "N", &width, panel, &width, own, &inc)
            else:
                # own = inv(L) @ own
                dtrsm("R", "U", "N", "N", &several, &width, &PLUS_1, panel, &width, own, &several)
            if b:
                if k == 1:
                    # work = L21 @ own
                    dgemv("T", &width, &rows, &PLUS_1, panel + w * w, &width, own, &inc, &TIMES_0, &work[0], &inc)
                else:
                    # work = L21 @ own
                    dgemm("N", "N", &several, &rows, &width, &PLUS_1, own, &several, panel + w * w, &width, &TIMES_0,
                          &work[0], &several)
            for i in range(b):
                for r in range(k):
                    x[below[i], r] -= work[i * k + r]


def backward(Supernodes nodes,
             const double[::1] values,       # in    L
             Py_ssize_t start,               # in    range of supernodes, of which the last comes first
             Py_ssize_t stop,
             double[:, ::1] x,               # inout (n, k): L^-T applied to its columns
             double[::1] work, /):           # work  (b * k,) for the largest b
    cdef const Tree *tree = &nodes.tree
    cdef Py_ssize_t k = x.shape[1], s, w, b, i, c, r
    cdef double *panel
    cdef double *own
    cdef double *other
    cdef const int *below
    cdef int width, rows, several = <int> k, inc = 1
    cdef double entry
    with nogil:
        for s in range(stop - 1, start - 1, -1):
            w, b = width_of(tree, s), below_of(tree, s)
            panel, own, below = <double *> &values[tree.starts[s]], &x[tree.first[s], 0], tree.rows + tree.rows_at[s]
            width, rows = <int> w, <int> b
            if w * (w + b) * k < MIN_PRODUCTS_FOR_BLAS or w == 1:
                for i in range(w + b - 1, -1, -1):
                    other = own + i * k if i < w else &x[below[i - w], 0]
                    if i < w:
                        for r in range(k):
                            other[r] /= panel[i * w + i]
                    for c in range(min(i, w)):
                        entry = panel[i * w + c]
                        for r in range(k):
                            own[c * k + r] -= entry * other[r]
                continue
            for i in range(b):
                for r in range(k):
                    work[i * k + r] = x[below[i], r]
            if k == 1:
                if b:
                    # own -= L21.T @ work
                    dgemv("N", &width, &rows, &MINUS_1, panel + w * w, &width, &work[0], &inc, &PLUS_1, own, &inc)
                # own = inv(L).T @ own
                dtrsv("U", "N", "N", &width, panel, &width, own, &inc)
            else:
                if b:
                    # own -= L21.T @ work
                    dgemm("N", "T", &several, &width, &rows, &MINUS_1, &work[0], &several, panel + w * w, &width,
                          &PLUS_1, own, &several)
                # own = inv(L).T @ own
                dtrsm("R", "U", "T", "N", &several, &width, &PLUS_1, panel, &width, own, &several)
