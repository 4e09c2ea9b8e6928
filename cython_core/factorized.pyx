"""Coordinate ascent for a factorised Gaussian, [Bishop2006] eqs. (10.13) and (10.15).

[Bishop2006] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.1.2.

Design: with e = m - mu, the update of m_i needs the dot product of row i of the precision with e, whose entries before
i are new and after i still old. Kept as two sums, it also gives both energies e'Lam e/2, since
e'Lam e = sum_i e_i (Lam_ii e_i + 2 sum_{j>i} Lam_ij e_j). So the matrix is read once per sweep, which is all the time
a sweep takes when the matrix is larger than the caches. Entries of the size of 1e200 or 1e-200 are no problem: products
are of the size of sqrt(Lam_ii) times a number of standard deviations.
"""

from cavity._core.simd cimport cv_dot


def sweep(const double[:, ::1] Lam,      # in    (D, D), symmetric, with positive diagonal
          double[::1] e):                # inout (D,)
    """Renew each e_i in turn. Returns e'Lam e/2 of the e given."""
    cdef Py_ssize_t n = e.shape[0], i
    cdef const double *row
    cdef double lower, upper, old, step, energy = 0.0, fall = 0.0
    with nogil:
        for i in range(n):
            row = &Lam[i, 0]
            lower = cv_dot(row, &e[0], i)
            upper = cv_dot(row + i + 1, &e[0] + i + 1, n - i - 1)
            old = e[i]
            e[i] = (0.0 - (lower + upper)) / row[i]
            step = e[i] - old
            energy += old * (0.5 * row[i] * old + upper)
            fall += 0.5 * (row[i] * step) * step
    return max(energy, fall)             # the energy falls by exactly `fall`, and never below zero
