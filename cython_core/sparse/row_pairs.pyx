"""Sums over sparse rows x_i: X' diag(rho) X, x_i' Z x_i, X a and X' tau.

A run is a part of a row whose columns follow each other. Each entry q of a row makes a pair with the rest of its run,
from q on, and with each later run: the entries of X'X of such a pair follow each other in column q of the lower
triangle, and `pairs` holds the number of the first one, pair after pair and row after row. Each function works on a
range of rows, whose first pair is number `pair`.
"""


cdef inline Py_ssize_t end_of_run(const int *indices, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """Where the run of entry p ends."""
    p += 1
    while p < end and indices[p] == indices[p - 1] + 1:
        p += 1
    return p


cdef inline void find_ends(const int *indices, Py_ssize_t first, Py_ssize_t end, int *lengths) noexcept nogil:
    """How many entries of a run there are from each entry of a row on."""
    cdef Py_ssize_t p
    for p in range(end - 1, first - 1, -1):
        lengths[p - first] = 1
        if p + 1 < end and indices[p + 1] == indices[p] + 1:
            lengths[p - first] += lengths[p + 1 - first]


cdef inline Py_ssize_t find_row(const int *rows, Py_ssize_t low, Py_ssize_t high, int row) noexcept nogil:
    """The first place from low on, below high, of a row that is not smaller."""
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if rows[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline void add_multiple(double *target, const double *values, double factor, Py_ssize_t length) noexcept nogil:
    """target += factor * values; four at once, as cubic splines have them."""
    cdef Py_ssize_t j
    if length == 4:
        target[0] += values[0] * factor
        target[1] += values[1] * factor
        target[2] += values[2] * factor
        target[3] += values[3] * factor
        return
    for j in range(length):
        target[j] += values[j] * factor


def runs(const long long[::1] indptr,       # in    (N + 1,)
         const int[::1] indices,             # in    columns in ascending order
         long long[::1] run_indptr,          # out   (N + 1,): where the runs of a row begin
         int[::1] firsts,                    # out   their first columns
         int[::1] lengths, /):               # out
    """Return how many runs and how many pairs there are; write the runs unless `firsts` is empty."""
    cdef Py_ssize_t i, p, stop, k = 0, pairs = 0
    cdef bint writes = firsts.shape[0] > 0
    with nogil:
        run_indptr[0] = 0
        for i in range(indptr.shape[0] - 1):
            p = indptr[i]
            while p < indptr[i + 1]:
                stop = end_of_run(&indices[0], p, indptr[i + 1])
                if writes:
                    firsts[k], lengths[k] = indices[p], <int> (stop - p)
                k += 1
                pairs += stop - indptr[i]  # all entries up to the end of the run
                p = stop
            run_indptr[i + 1] = k
    return k, pairs


def number(const long long[::1] indptr,     # in    (N + 1,)
           const int[::1] indices,
           const int[::1] pattern_indptr,    # in    (n + 1,): the lower triangle by columns
           const int[::1] pattern_rows,      # in    in ascending order
           int[::1] pairs,                   # out   0 where the pattern has not all entries
           Py_ssize_t pair,
           char[::1] is_missing,             # inout (N,): 1 where the pattern has not all entries of a row
           int[:, ::1] cache,                # inout (a power of 2, 4): columns, run lengths and places looked up before
           Py_ssize_t start,
           Py_ssize_t stop, /):
    """Number pairs; return the row and column of the last entry that the pattern has not, or -1 and -1."""
    cdef Py_ssize_t i, q, p, end, place, high, j
    cdef int row = -1, column = -1
    cdef unsigned int mask = <unsigned int> (cache.shape[0] - 1)
    cdef int *entry
    cdef bint has_all
    with nogil:
        for i in range(start, stop):
            for q in range(indptr[i], indptr[i + 1]):
                p, place, high = q, pattern_indptr[indices[q]], pattern_indptr[indices[q] + 1]
                while p < indptr[i + 1]:
                    end = end_of_run(&indices[0], p, indptr[i + 1])
                    # multiplicative hashing by an odd number near 2^32 over the golden ratio
                    entry = &cache[((<unsigned int> indices[q] * 2654435769u) ^ <unsigned int> indices[p]) & mask, 0]
                    if entry[0] == indices[q] and entry[1] == indices[p] and entry[2] == end - p:
                        pairs[pair] = entry[3]
                        pair += 1
                        p = end
                        continue
                    place = find_row(&pattern_rows[0], place, high, indices[p])
                    has_all = True
                    for j in range(end - p):
                        if place + j >= high or pattern_rows[place + j] != indices[p + j]:
                            row, column, has_all = indices[p + j], indices[q], False
                            is_missing[i] = 1
                            break
                    if has_all:
                        entry[0], entry[1], entry[2], entry[3] = indices[q], indices[p], <int> (end - p), <int> place
                    pairs[pair] = <int> place if has_all else 0
                    pair += 1
                    p = end
    return row, column


def add(const long long[::1] indptr,        # in    (N + 1,)
        const int[::1] indices,
        const double[::1] data,
        const int[::1] pairs,
        Py_ssize_t pair,
        int[::1] lengths,                    # work  as many as the longest row has entries
        double[::1] scaled,                  # work  as many
        const double[::1] rho,               # in    (N,)
        double[::1] sums,                    # inout entries of X' diag(rho) X
        Py_ssize_t start,
        Py_ssize_t stop, /):
    cdef Py_ssize_t i, p, q, first, end, length
    cdef double x
    with nogil:
        for i in range(start, stop):
            first, end = indptr[i], indptr[i + 1]
            if first < end:
                find_ends(&indices[0], first, end, &lengths[0])
            for p in range(first, end):
                scaled[p - first] = rho[i] * data[p]
            for q in range(first, end):
                x, p = data[q], q
                while p < end:
                    length = lengths[p - first]
                    add_multiple(&sums[pairs[pair]], &scaled[p - first], x, length)
                    pair += 1
                    p += length


def combine(const double[:, ::1] sums,      # in    (parts, m)
            double[::1] out,                 # out   (m,): the sums, in the order of the parts
            Py_ssize_t start,
            Py_ssize_t stop, /):
    cdef Py_ssize_t e, part
    cdef double total
    with nogil:
        for e in range(start, stop):
            total = sums[0, e]
            for part in range(1, sums.shape[0]):
                total += sums[part, e]
            out[e] = total


def variances(const long long[::1] indptr,  # in    (N + 1,)
              const int[::1] indices,
              const double[::1] data,
              const int[::1] pairs,
              Py_ssize_t pair,
              int[::1] lengths,              # work  as many as the longest row has entries
              double[::1] beside,            # work  as many
              const double[::1] inverse,     # in    (m,): Z by entries
              double[::1] out,               # out   (N,): x' Z x
              Py_ssize_t start,
              Py_ssize_t stop, /):
    cdef Py_ssize_t i, p, q, first, end, length, j
    cdef const double *entry
    cdef double *target
    cdef double x, total
    with nogil:
        for i in range(start, stop):
            first, end, total = indptr[i], indptr[i + 1], 0.0
            if first < end:
                find_ends(&indices[0], first, end, &lengths[0])
            for p in range(end - first):
                beside[p] = 0.0
            for q in range(first, end):
                x, p = data[q], q + 1
                entry = &inverse[pairs[pair]]
                # column q is complete for entry q itself: entries before it have been added
                total += x * (2.0 * beside[q - first] + entry[0] * x)
                length = lengths[q - first]
                target = &beside[q - first]
                for j in range(1, length):
                    target[j] += entry[j] * x
                pair += 1
                p = q + length
                while p < end:
                    length = lengths[p - first]
                    add_multiple(&beside[p - first], &inverse[pairs[pair]], x, length)
                    pair += 1
                    p += length
            out[i] = total


def matvec(const long long[::1] indptr,     # in    (N + 1,)
           const int[::1] indices,
           const double[::1] data,
           const double[::1] a,              # in    (n,)
           double[::1] out,                  # out   (N,): X a
           Py_ssize_t start,
           Py_ssize_t stop, /):
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
               Py_ssize_t stop, /):
    cdef Py_ssize_t i, p
    with nogil:
        for i in range(start, stop):
            for p in range(indptr[i], indptr[i + 1]):
                sums[indices[p]] += data[p] * tau[i]


def subtract_products(const int[::1] indptr,    # in    (n + 1,): the lower triangle by columns
                      const int[::1] rows,
                      const double[:, ::1] u,    # in    (n, r)
                      const double[:, ::1] su,   # in    (n, r)
                      double[::1] entries,       # inout (m,): less those of u su'
                      Py_ssize_t start,          # in    of the columns
                      Py_ssize_t stop, /):
    cdef Py_ssize_t c, e, k, r = u.shape[1]
    cdef double total
    cdef const double *left
    cdef const double *right
    with nogil:
        for c in range(start, stop):
            right = &su[c, 0]
            for e in range(indptr[c], indptr[c + 1]):
                left, total = &u[rows[e], 0], 0.0
                for k in range(r):
                    total += left[k] * right[k]
                entries[e] -= total
