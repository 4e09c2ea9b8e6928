"""Sums over sparse rows x_i: X' diag(rho) X, x_i' Z x_i, X a and X' tau.

A run is a part of a row whose columns follow each other. It makes a pair with each entry q of the row before it, and
the rest of it, from q on, with each of its own: the entries of X'X of such a pair follow each other in column q of the
lower triangle, and `pairs` holds the number of the first one, pair after pair, run after run and row after row. Each
function works on a range of rows, whose first pair is number `pair`. Runs of four, those of cubic splines, stay in
registers.
"""


cdef inline Py_ssize_t end_of_run(const int *indices, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    """Where the run of entry p ends."""
    p += 1
    while p < end and indices[p] == indices[p - 1] + 1:
        p += 1
    return p


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
    cdef Py_ssize_t i, q, p, at, end, place, high, j
    cdef int row = -1, column = -1
    cdef unsigned int mask = <unsigned int> (cache.shape[0] - 1)
    cdef int *entry
    cdef bint has_all
    with nogil:
        for i in range(start, stop):
            p = indptr[i]
            while p < indptr[i + 1]:
                end = end_of_run(&indices[0], p, indptr[i + 1])
                for q in range(indptr[i], end):
                    at = max(p, q)
                    # multiplicative hashing by an odd number near 2^32 over the golden ratio
                    entry = &cache[((<unsigned int> indices[q] * 2654435769u) ^ <unsigned int> indices[at]) & mask, 0]
                    if entry[0] == indices[q] and entry[1] == indices[at] and entry[2] == end - at:
                        pairs[pair] = entry[3]
                        pair += 1
                        continue
                    high = pattern_indptr[indices[q] + 1]
                    place = find_row(&pattern_rows[0], pattern_indptr[indices[q]], high, indices[at])
                    has_all = True
                    for j in range(end - at):
                        if place + j >= high or pattern_rows[place + j] != indices[at + j]:
                            row, column, has_all = indices[at + j], indices[q], False
                            is_missing[i] = 1
                            break
                    if has_all:
                        entry[0], entry[1], entry[2], entry[3] = indices[q], indices[at], <int> (end - at), <int> place
                    pairs[pair] = <int> place if has_all else 0
                    pair += 1
                p = end
    return row, column


def add(const long long[::1] indptr,        # in    (N + 1,)
        const int[::1] indices,
        const double[::1] data,
        const int[::1] pairs,
        Py_ssize_t pair,
        double[::1] scaled,                  # work  as many as the longest row has entries
        const double[::1] rho,               # in    (N,)
        double[::1] sums,                    # inout entries of X' diag(rho) X
        Py_ssize_t start,
        Py_ssize_t stop, /):
    cdef Py_ssize_t i, j, p, q, end
    cdef double x, a, b, c, d
    cdef double *target
    with nogil:
        for i in range(start, stop):
            p = indptr[i]
            while p < indptr[i + 1]:
                end = end_of_run(&indices[0], p, indptr[i + 1])
                if end == p + 4:
                    a, b, c, d = rho[i] * data[p], rho[i] * data[p + 1], rho[i] * data[p + 2], rho[i] * data[p + 3]
                    for q in range(indptr[i], p + 1):
                        x, target = data[q], &sums[pairs[pair]]
                        target[0], target[1], target[2], target[3] = (
                            target[0] + a * x, target[1] + b * x, target[2] + c * x, target[3] + d * x
                        )
                        pair += 1
                    target = &sums[pairs[pair]]
                    target[0] += b * data[p + 1]
                    target[1] += c * data[p + 1]
                    target[2] += d * data[p + 1]
                    target = &sums[pairs[pair + 1]]
                    target[0] += c * data[p + 2]
                    target[1] += d * data[p + 2]
                    sums[pairs[pair + 2]] += d * data[p + 3]
                    pair += 3
                else:
                    for j in range(p, end):
                        scaled[j - p] = rho[i] * data[j]
                    for q in range(indptr[i], end):
                        x, target = data[q], &sums[pairs[pair]]
                        for j in range(max(p, q), end):
                            target[j - max(p, q)] += scaled[j - p] * x
                        pair += 1
                p = end


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
              double[::1] beside,            # work  as many as the longest row has entries
              const double[::1] inverse,     # in    (m,): Z by entries
              double[::1] out,               # out   (N,): x' Z x
              Py_ssize_t start,
              Py_ssize_t stop, /):
    cdef Py_ssize_t i, j, p, q, end
    cdef const double *entry
    cdef double x, total, a, b, c, d
    with nogil:
        for i in range(start, stop):
            p, total = indptr[i], 0.0
            while p < indptr[i + 1]:
                end = end_of_run(&indices[0], p, indptr[i + 1])
                if end == p + 4:
                    a, b, c, d = 0.0, 0.0, 0.0, 0.0
                    for q in range(indptr[i], p):
                        x, entry = data[q], &inverse[pairs[pair]]
                        a, b, c, d = a + entry[0] * x, b + entry[1] * x, c + entry[2] * x, d + entry[3] * x
                        pair += 1
                    x, entry = data[p], &inverse[pairs[pair]]
                    # column q is complete for entry q itself: entries before it have been added
                    total += x * (2.0 * a + entry[0] * x)
                    b, c, d = b + entry[1] * x, c + entry[2] * x, d + entry[3] * x
                    x, entry = data[p + 1], &inverse[pairs[pair + 1]]
                    total += x * (2.0 * b + entry[0] * x)
                    c, d = c + entry[1] * x, d + entry[2] * x
                    x, entry = data[p + 2], &inverse[pairs[pair + 2]]
                    total += x * (2.0 * c + entry[0] * x)
                    d += entry[1] * x
                    x = data[p + 3]
                    total += x * (2.0 * d + inverse[pairs[pair + 3]] * x)
                    pair += 4
                else:
                    for j in range(end - p):
                        beside[j] = 0.0
                    for q in range(indptr[i], end):
                        x, entry = data[q], &inverse[pairs[pair]]
                        if q < p:
                            for j in range(end - p):
                                beside[j] += entry[j] * x
                        else:
                            total += x * (2.0 * beside[q - p] + entry[0] * x)
                            for j in range(1, end - q):
                                beside[q - p + j] += entry[j] * x
                        pair += 1
                p = end
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
