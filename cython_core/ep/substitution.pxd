"""Substitution: a triangle, in Fortran order and zero above the diagonal, times unknowns, for one vector or many.

PANEL_COLUMNS columns go together. Many right-hand sides go eight to a register, CV_GROUPS registers together; an
unknown takes its terms in the order of a single right-hand side, so that vectors have the same bits whether they come
alone or with others.
"""

from cavity._core.lanes cimport cv8, cv8_load, cv8_mul, cv8_set, cv8_store, cv8_sub, cv8_transpose, template
from cavity._core.simd cimport CV_LANES, cv_sum_squares

cdef extern from *:
    """
    #define CV_GROUPS (CV_STEP - 1)     /* of eight right-hand sides, with four unknowns each in registers */
    """
    enum:
        CV_GROUPS

cdef enum:
    MAX_GROUPS = 3
    SOLVE_ROWS = CV_GROUPS * CV_LANES
    PANEL_COLUMNS = 4


cdef inline Py_ssize_t first_lane(Py_ssize_t n, Py_ssize_t i) noexcept nogil:
    """The row from which on lanes end at row n: i or up to seven before it, after it if there are not so many."""
    cdef Py_ssize_t first = n - (n - i + CV_LANES - 1) // CV_LANES * CV_LANES
    return first if first >= 0 else first + CV_LANES


cdef inline void subtract_panel(const double *columns, Py_ssize_t n, Py_ssize_t j, const double *factor,
                                double *x) noexcept nogil:
    """x -= columns factor in rows behind panel j; rows of and above it are not kept."""
    cdef const double *second = columns + n
    cdef const double *third = second + n
    cdef const double *fourth = third + n
    cdef cv8 a = cv8_set(factor[0]), b = cv8_set(factor[1]), c = cv8_set(factor[2]), d = cv8_set(factor[3]), rest
    cdef Py_ssize_t i, first = first_lane(n, j + PANEL_COLUMNS)
    for i in range(j + PANEL_COLUMNS, first):
        x[i] = (((x[i] - columns[i] * factor[0]) - second[i] * factor[1]) - third[i] * factor[2]
                ) - fourth[i] * factor[3]
    i = first
    while i < n:
        rest = cv8_sub(cv8_load(x + i), cv8_mul(cv8_load(columns + i), a))
        rest = cv8_sub(rest, cv8_mul(cv8_load(second + i), b))
        rest = cv8_sub(rest, cv8_mul(cv8_load(third + i), c))
        cv8_store(x + i, cv8_sub(rest, cv8_mul(cv8_load(fourth + i), d)))
        i += CV_LANES


cdef inline void solve(const double *L, Py_ssize_t n, double *x) noexcept nogil:
    """x becomes L^-1 x."""
    cdef double own[PANEL_COLUMNS]
    cdef const double *column
    cdef Py_ssize_t j = 0, k, i, width
    while j < n:
        width = min(<Py_ssize_t>PANEL_COLUMNS, n - j)
        for k in range(width):
            own[k] = x[j + k]
        for k in range(width):
            column = L + (j + k) * n + j
            own[k] *= 1.0 / column[k]           # the division does not wait for x
            for i in range(k + 1, width):
                own[i] -= column[i] * own[k]
        if j + PANEL_COLUMNS < n:
            subtract_panel(L + j * n, n, j, own, x)
        for k in range(width):
            x[j + k] = own[k]
        j += PANEL_COLUMNS


cdef inline template solve_panel(Py_ssize_t width, const double *L, Py_ssize_t n, Py_ssize_t i,
                                 double *x) noexcept nogil:
    """Rows [i, i + width) of L^-1 x, from those before, for SOLVE_ROWS vectors: x (n, CV_GROUPS, CV_LANES)."""
    cdef cv8 own[PANEL_COLUMNS][MAX_GROUPS]
    cdef cv8 at[MAX_GROUPS]
    cdef cv8 factor
    cdef const double *column
    cdef double *rows = x + i * CV_GROUPS * CV_LANES
    cdef Py_ssize_t j, k, m, g
    for k in range(width):
        for g in range(CV_GROUPS):
            own[k][g] = cv8_load(rows + (k * CV_GROUPS + g) * CV_LANES)
    for j in range(i):
        column = L + j * n + i
        for g in range(CV_GROUPS):
            at[g] = cv8_load(x + (j * CV_GROUPS + g) * CV_LANES)
        for k in range(width):
            factor = cv8_set(column[k])
            for g in range(CV_GROUPS):
                own[k][g] = cv8_sub(own[k][g], cv8_mul(factor, at[g]))
    for k in range(width):
        column = L + (i + k) * n + i
        factor = cv8_set(1.0 / column[k])
        for g in range(CV_GROUPS):
            own[k][g] = cv8_mul(own[k][g], factor)
            cv8_store(rows + (k * CV_GROUPS + g) * CV_LANES, own[k][g])
        for m in range(k + 1, width):
            factor = cv8_set(column[m])
            for g in range(CV_GROUPS):
                own[m][g] = cv8_sub(own[m][g], cv8_mul(factor, own[k][g]))


cdef inline void exchange(double *rows, Py_ssize_t n_rows, Py_ssize_t n, double *x, bint back) noexcept nogil:
    """Move up to SOLVE_ROWS rows (n_rows, n) to x (n, CV_GROUPS, CV_LANES), padded with zeros; or back."""
    cdef cv8 square[CV_LANES]
    cdef double *row
    cdef double *packed
    cdef Py_ssize_t g, i, j, lane, whole = n // CV_LANES * CV_LANES, present
    for g in range(CV_GROUPS):
        present = min(max(n_rows - g * CV_LANES, <Py_ssize_t>0), <Py_ssize_t>CV_LANES)
        for i in range(whole // CV_LANES if present == CV_LANES else 0):
            row, packed = rows + g * CV_LANES * n + i * CV_LANES, x + (i * SOLVE_ROWS + g) * CV_LANES
            for lane in range(CV_LANES):
                square[lane] = cv8_load(packed + lane * SOLVE_ROWS if back else row + lane * n)
            cv8_transpose(square)
            for lane in range(CV_LANES):
                cv8_store(row + lane * n if back else packed + lane * SOLVE_ROWS, square[lane])
        for j in range(whole if present == CV_LANES else 0, n):
            for lane in range(CV_LANES):
                row = rows + (g * CV_LANES + lane) * n + j
                if lane < present and back:
                    row[0] = x[(j * CV_GROUPS + g) * CV_LANES + lane]
                elif not back:
                    x[(j * CV_GROUPS + g) * CV_LANES + lane] = row[0] if lane < present else 0.0


cdef inline void solve_panels(const double *L, Py_ssize_t n, double *x) noexcept nogil:
    """`solve` for SOLVE_ROWS vectors x (n, CV_GROUPS, CV_LANES), with the same bits."""
    cdef Py_ssize_t i, whole = n // PANEL_COLUMNS
    for i in range(whole):
        solve_panel(PANEL_COLUMNS, L, n, i * PANEL_COLUMNS, x)
    for i in range(whole * PANEL_COLUMNS, n):
        solve_panel(1, L, n, i, x)


cdef inline void solve_all(const double *L, Py_ssize_t n, double *rows, Py_ssize_t n_rows, double *x) noexcept nogil:
    """`solve` for up to SOLVE_ROWS rows of n, with the same bits; x has room for (n, SOLVE_ROWS) if many."""
    if n_rows == 1:
        solve(L, n, rows)
        return
    exchange(rows, n_rows, n, x, False)
    solve_panels(L, n, x)
    exchange(rows, n_rows, n, x, True)


cdef inline double subtract_squares(double prior, const double *x, Py_ssize_t n) noexcept nogil:
    """prior - x'x, or 0 where rounding makes it negative."""
    cdef double residual = prior - cv_sum_squares(x, n)
    return 0.0 if residual < 0.0 else residual
