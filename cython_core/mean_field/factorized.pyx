"""Coordinate ascent for a factorised Gaussian, [Bishop2006] eqs. (10.13) and (10.15).

[Bishop2006] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.1.2.

With e = m - mu a sweep sets e_i = -(sum_{j<i} Lam_ij e_j + sum_{j>i} Lam_ij e_j)/Lam_ii, one i after the other: the e
before i are new, those behind it old.

Design:
a) Only the upper triangle is read. Row i serves twice: with the old e in the second sum of e_i, and with the new e_i in
   the first sums of later coordinates, which wait in `sums`. So a sweep moves half of the matrix from memory, which is
   all the time it takes when the matrix is larger than the caches.
b) The second sums are what the energy of the e given needs: e'Lam e = sum_i e_i (Lam_ii e_i + 2 sum_{j>i} Lam_ij e_j).
c) PANEL_ROWS rows go together, so that e and the sums are loaded and stored once for all of them. Their products with
   e are added in CV_LANES lanes each, and all in a fixed order: the same bits from every instruction set.
Entries of the size of 1e200 or 1e-200 are no problem: products are of the size of sqrt(Lam_ii) times a number of
standard deviations.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memset

from cavity._core.simd cimport CV_LANES

cdef enum:
    PANEL_ROWS = 4

cdef extern from *:
    """
    #include "cavity_math.h"
    /* not inlined: inside the caller gcc packs the lanes of different rows together and loses the vector loop */
    #if defined(__GNUC__)
    __attribute__((noinline))
    #else
    __declspec(noinline)
    #endif
    static double cv_combine_apart(const double *lanes) { return cv_combine(lanes); }
    """
    double cv_combine_apart(const double *lanes) noexcept nogil


cdef struct Visit:
    double energy                                # share of this coordinate in the energy of the e given
    double fall                                  # by how much its update lowers the energy


cdef inline void products(
    const double *rows, Py_ssize_t stride,       # in: PANEL_ROWS rows of n entries, `stride` apart
    const double *e, Py_ssize_t n,               # in (n,)
    double *out,                                 # out (PANEL_ROWS,)
) noexcept nogil:
    """out = rows e."""
    cdef double lanes[PANEL_ROWS][CV_LANES]
    cdef Py_ssize_t chunk, j, k, lane, whole = n // CV_LANES * CV_LANES
    memset(lanes, 0, sizeof(lanes))
    for chunk in range(n // CV_LANES):
        j = chunk * CV_LANES
        for k in range(PANEL_ROWS):
            for lane in range(CV_LANES):
                lanes[k][lane] += rows[k * stride + j + lane] * e[j + lane]
    for k in range(PANEL_ROWS):
        for lane in range(n - whole):
            lanes[k][lane] += rows[k * stride + whole + lane] * e[whole + lane]
        out[k] = cv_combine_apart(lanes[k])


cdef inline void push(
    const double *rows, Py_ssize_t stride,       # in: PANEL_ROWS rows of n entries, `stride` apart
    const double *e, Py_ssize_t n,               # in (PANEL_ROWS,)
    double *sums,                                # inout (n,)
) noexcept nogil:
    """sums += rows' e."""
    cdef const double *second = rows + stride
    cdef const double *third = second + stride
    cdef const double *fourth = third + stride
    cdef double a = e[0], b = e[1], c = e[2], d = e[3]
    cdef Py_ssize_t j
    for j in range(n):
        sums[j] += (rows[j] * a + second[j] * b) + (third[j] * c + fourth[j] * d)


cdef inline Visit visit(
    const double *row, Py_ssize_t n,             # in (n,): the row from the diagonal to the end of its panel
    double later,                                # in: the sum over coordinates behind the panel
    double *e, double *sums,                     # inout (n,): from this coordinate to the end of the panel
) noexcept nogil:
    """Renew e[0] and push it to the others of the panel."""
    cdef Visit out
    cdef double old = e[0], step
    cdef Py_ssize_t j
    for j in range(1, n):
        later += row[j] * e[j]
    e[0] = (0.0 - (sums[0] + later)) / row[0]
    for j in range(1, n):
        sums[j] += row[j] * e[0]
    step = e[0] - old
    out.energy = old * (0.5 * row[0] * old + later)
    out.fall = 0.5 * (row[0] * step) * step
    return out


cdef double visit_all(const double *Lam, Py_ssize_t size, double *e, double *sums) noexcept nogil:
    """One sweep; `sums` holds zeros. Returns the energy of the e given."""
    cdef double later[PANEL_ROWS]
    cdef const double *corner
    cdef double energy = 0.0, fall = 0.0
    cdef Py_ssize_t panel, i, k, n
    cdef Visit each
    for panel in range((size + PANEL_ROWS - 1) // PANEL_ROWS):
        i = panel * PANEL_ROWS
        n = size - i
        corner = Lam + i * (size + 1)
        memset(later, 0, sizeof(later))
        if n > PANEL_ROWS:
            n = PANEL_ROWS
            products(corner + PANEL_ROWS, size, e + i + PANEL_ROWS, size - i - PANEL_ROWS, later)
        for k in range(n):
            each = visit(corner + k * (size + 1), n - k, later[k], e + i + k, sums + i + k)
            energy += each.energy
            fall += each.fall
        if size - i > PANEL_ROWS:
            push(corner + PANEL_ROWS, size, e + i, size - i - PANEL_ROWS, sums + i + PANEL_ROWS)
    return max(energy, fall)                     # the energy falls by exactly `fall`, and never below zero


def sweep(const double[:, ::1] Lam,              # in    (D, D): the upper triangle, positive diagonal
          double[::1] e, /):                     # inout (D,)
    """Renew each e_i in turn. Returns e'Lam e/2 of the e given."""
    cdef Py_ssize_t size = e.shape[0]
    cdef double energy
    cdef double *sums = <double *> calloc(size, sizeof(double))
    if sums == NULL:
        raise MemoryError("no memory for the sums of a sweep")
    try:
        with nogil:
            energy = visit_all(&Lam[0, 0], size, &e[0], sums)
    finally:
        free(sums)
    return energy
