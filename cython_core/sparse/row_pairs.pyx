"""Sums over sparse rows x_i: X' diag(rho) X, x_i' Z x_i, X a and X' tau.

A row of r entries has r (r + 1) / 2 pairs, (0, 0), (1, 0), (1, 1), (2, 0), ...: `pairs` holds for each, row after row,
the number of its entry of X'X. Each function works on a range of rows, whose first pair is number `pair`.
"""


def columns(const long long[::1] indptr,    # in    (N + 1,)
            const int[::1] indices,          # in    columns, each at most once in a row
            Py_ssize_t start,
            Py_ssize_t stop,
            long long[::1] left,             # out   columns of the first entries of the pairs
            long long[::1] right):           # out   columns of the second ones
    cdef Py_ssize_t i, p, q, k = 0
    with nogil:
        for i in range(start, stop):
            for p in range(indptr[i], indptr[i + 1]):
                for q in range(indptr[i], p + 1):
                    left[k], right[k] = indices[p], indices[q]
                    k += 1


def number(const long long[::1] positions,  # in    (m,)
           int[::1] known,                   # inout numbers of positions that were met before, from 1; else 0
           long long[::1] entries,           # inout their positions
           Py_ssize_t count,                 # in    how many these are
           int[::1] out):                    # out   (m,): number of each, from 0
    """Number positions as they come; return how many there are now."""
    cdef Py_ssize_t k
    with nogil:
        for k in range(positions.shape[0]):
            if known[positions[k]] == 0:
                entries[count] = positions[k]
                count += 1
                known[positions[k]] = <int> count
            out[k] = known[positions[k]] - 1
    return count


def add(const long long[::1] indptr,        # in    (N + 1,)
        const double[::1] data,
        const int[::1] pairs,
        Py_ssize_t pair,
        const double[::1] rho,               # in    (N,)
        double[::1] sums,                    # inout entries of X' diag(rho) X
        Py_ssize_t start,
        Py_ssize_t stop):
    cdef Py_ssize_t i, p, q, first
    cdef double scaled
    with nogil:
        for i in range(start, stop):
            first = indptr[i]
            for p in range(first, indptr[i + 1]):
                scaled = rho[i] * data[p]
                for q in range(first, p + 1):
                    sums[pairs[pair]] += scaled * data[q]
                    pair += 1


def combine(const double[:, ::1] sums,      # in    (parts, m)
            const long long[::1] entries,    # in    (m,)
            double[::1] values,              # inout at these positions: plus the sums, in the order of the parts
            Py_ssize_t start,
            Py_ssize_t stop):
    cdef Py_ssize_t e, part
    cdef double total
    with nogil:
        for e in range(start, stop):
            total = sums[0, e]
            for part in range(1, sums.shape[0]):
                total += sums[part, e]
            values[entries[e]] += total


def variances(const long long[::1] indptr,  # in    (N + 1,)
              const double[::1] data,
              const int[::1] pairs,
              Py_ssize_t pair,
              const double[::1] inverse,     # in    (m,): Z by entries
              double[::1] out,               # out   (N,): x' Z x
              Py_ssize_t start,
              Py_ssize_t stop):
    cdef Py_ssize_t i, p, q, first
    cdef double total, beside
    with nogil:
        for i in range(start, stop):
            first, total = indptr[i], 0.0
            for p in range(first, indptr[i + 1]):
                beside = 0.0
                for q in range(first, p):
                    beside += inverse[pairs[pair]] * data[q]
                    pair += 1
                total += data[p] * (2.0 * beside + inverse[pairs[pair]] * data[p])
                pair += 1
            out[i] = total


def matvec(const long long[::1] indptr,     # in    (N + 1,)
           const int[::1] indices,
           const double[::1] data,
           const double[::1] a,              # in    (n,)
           double[::1] out,                  # out   (N,): X a
           Py_ssize_t start,
           Py_ssize_t stop):
    cdef Py_ssize_t i, p
    cdef double total
    with nogil:
        for i in range(start, stop):
            total = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                total += data[p] * a[indices[p]]
            out[i] = total


def transposed(const long long[::1] indptr,  # in    (N + 1,)
               const int[::1] indices,
               const double[::1] data,
               const double[::1] tau,        # in    (N,)
               double[::1] sums,             # inout (n,): plus X' tau
               Py_ssize_t start,
               Py_ssize_t stop):
    cdef Py_ssize_t i, p
    with nogil:
        for i in range(start, stop):
            for p in range(indptr[i], indptr[i + 1]):
                sums[indices[p]] += data[p] * tau[i]
