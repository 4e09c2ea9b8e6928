"""Sums over rows whose effects are those of a few codes, each of few values, and of one level.

Row i is the sum over parts j of row codes[j, i] of a matrix B_j, and z_i times the unit vector of its level; rows of a
level follow each other. `first` (C + 1,), `columns` and `values` are the rows of all B_j, one part after the other, and
`offsets` says which one is the first of each part.
"""

from libc.string cimport memset


def add_codes(const unsigned short[::1] codes,   # in    (N,)
              const double[::1] rho,             # in    (N,)
              double[::1] sums, /):              # inout plus the sums of rho by codes
    cdef Py_ssize_t i
    with nogil:
        for i in range(rho.shape[0]):
            sums[codes[i]] += rho[i]


def look_up(const unsigned short[::1] codes,   # in    (N,)
            const double[::1] numbers,         # in    one for each code
            double[::1] out,                   # inout (N,): plus those of the rows
            Py_ssize_t start,
            Py_ssize_t stop, /):
    cdef Py_ssize_t i
    with nogil:
        for i in range(start, stop):
            out[i] += numbers[codes[i]]


def add_pairs(const unsigned short[::1] left,   # in    (N,) codes
              const unsigned short[::1] right,   # in    (N,)
              const double[::1] rho,             # in    (N,)
              double[:, ::1] table, /):          # out   sums of rho by pairs of codes
    cdef Py_ssize_t i, m = table.shape[1]
    cdef double *sums = &table[0, 0]
    with nogil:
        memset(sums, 0, table.shape[0] * m * sizeof(double))
        for i in range(rho.shape[0]):
            sums[left[i] * m + right[i]] += rho[i]


def look_up_pairs(const unsigned short[::1] left,   # in    (N,) codes
                  const unsigned short[::1] right,   # in    (N,)
                  const double[:, ::1] table,        # in
                  double[::1] out,                   # inout (N,): plus the entries of the table
                  Py_ssize_t start,
                  Py_ssize_t stop, /):
    cdef Py_ssize_t i, m = table.shape[1]
    cdef const double *entries = &table[0, 0]
    with nogil:
        for i in range(start, stop):
            out[i] += entries[left[i] * m + right[i]]


def add_levels(const long long[::1] level_indptr,    # in    (L + 1,): rows of each level
               const unsigned short[:, ::1] codes,    # in    (J, N)
               const long long[::1] offsets,          # in    (J,)
               const int[::1] first,                  # in
               const int[::1] columns,                # in    from 0 to K - 1
               const double[::1] values,              # in
               const double[::1] z,                   # in    (N,)
               const long long[::1] entry_indptr,     # in    (L + 1,): the entries of each level beside others
               const int[::1] entry_columns,          # in    from 0 to K - 1
               const long long[::1] places,           # in    where they stand in the pattern
               const long long[::1] diagonal,         # in    (L,): where that of the level alone stands
               const double[::1] rho,                 # in    (N,)
               double[::1] work,                      # work  (K,)
               double[::1] out,                       # out   entries of X' diag(rho) X
               Py_ssize_t start,                      # in    range of levels
               Py_ssize_t stop, /):
    cdef Py_ssize_t level, i, j, e, row
    cdef double weight, total
    with nogil:
        for level in range(start, stop):
            memset(&work[0], 0, work.shape[0] * sizeof(double))
            total = 0.0
            for i in range(level_indptr[level], level_indptr[level + 1]):
                weight = rho[i] * z[i]
                total += weight * z[i]
                for j in range(codes.shape[0]):
                    row = offsets[j] + codes[j, i]
                    for e in range(first[row], first[row + 1]):
                        work[columns[e]] += weight * values[e]
            out[diagonal[level]] = total
            for e in range(entry_indptr[level], entry_indptr[level + 1]):
                out[places[e]] = work[entry_columns[e]]


def add_level_variances(const long long[::1] level_indptr,   # in    as for add_levels
                        const unsigned short[:, ::1] codes,
                        const long long[::1] offsets,
                        const int[::1] first,
                        const int[::1] columns,
                        const double[::1] values,
                        const double[::1] z,
                        const long long[::1] entry_indptr,
                        const int[::1] entry_columns,
                        const long long[::1] places,
                        const long long[::1] diagonal,
                        const double[::1] inverse,            # in    Z by entries of the pattern
                        double[::1] work,                     # work  (K,)
                        double[::1] out,                      # inout (N,): plus the part of x' Z x of the levels
                        Py_ssize_t start,
                        Py_ssize_t stop, /):
    cdef Py_ssize_t level, i, j, e, row
    cdef double total
    with nogil:
        for level in range(start, stop):
            memset(&work[0], 0, work.shape[0] * sizeof(double))
            for e in range(entry_indptr[level], entry_indptr[level + 1]):
                work[entry_columns[e]] = inverse[places[e]]
            for i in range(level_indptr[level], level_indptr[level + 1]):
                total = 0.0
                for j in range(codes.shape[0]):
                    row = offsets[j] + codes[j, i]
                    for e in range(first[row], first[row + 1]):
                        total += values[e] * work[columns[e]]
                out[i] += z[i] * (2.0 * total + z[i] * inverse[diagonal[level]])
