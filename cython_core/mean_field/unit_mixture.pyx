"""Responsibilities and sufficient statistics of a mixture of Gaussians on a line with one noise variance.

For points y (N,), means m (K,), log weights c (K,) and h = 1/(2 noise variance), the log weight of component k at
point i is c_k - h (y_i - m_k)^2, and r_ik is its softmax over k. These are the updates of [Blei2017] section 3.1; the
caller puts the expectations over q that do not depend on i into c.

Design:
* Groups of GROUP_ROWS = 32 points go through in one pass: weights of all components (kept, K x GROUP_ROWS doubles),
  their sums and inverses, then the sums over the group. Components are the inner loop, so that points, sums and
  inverses stay in registers, and there is no array of N x K.
* Differences y_i - m_k are formed first: offsets far larger than the noise cost no digits, unlike an expanded square.
* Weights are powers 2^(x/16) with 16/log 2 folded into h and c; c is shifted so that its largest is 0, hence x <= 0.
  A point with a weight above 2^-400 (within 23 standard deviations of a component) needs no shift by its largest x.
  Where a sum is lower, the largest x are found and the group is done again; other points keep shift 0 and so
  their bits.
* One division a point. No logarithm a point: mantissas of the sums are multiplied lane by lane, exponents added.
* Sums are in eight lanes per component (point i of a group in lane i mod 8) within chunks of CHUNK_ROWS points, and
  chunks are added in their order, blocks along a tree: the result depends on the points, their order and the block
  alone.
Errors: a log weight is off by a few eps of |c_k - max c| + h (y_i - m_k)^2, everything else by a few eps. Weights below
2^-1022 may be 0, that is responsibilities below 1e-187.

[Blei2017] Blei, Kucukelbir, McAuliffe, Variational inference: a review for statisticians, JASA 112 (2017).
"""

from libc.math cimport INFINITY, ldexp
from libc.stdlib cimport free, malloc

from cavity._core.block_sums cimport add_equal, add_rest, levels_of
from cavity._core.constants cimport LOG_2
from cavity._core.lanes cimport (
    CV_PER_NAT, CV_STEP, cv_prefetch_32, cv8, cv8_add, cv8_div, cv8_exponent, cv8_load, cv8_mantissa,
    cv8_max, cv8_mul, cv8_root_exp, cv8_root_exp_any, cv8_set, cv8_store, cv8_sub, template,
)
from cavity._core.lane_sums cimport aligned, log_of_lanes
from cavity._core.simd cimport CV_LANES, cv_combine, cv_log_normal

cdef enum:
    GROUP_VECTORS = 4
    GROUP_ROWS = 32             # CV_LANES * GROUP_VECTORS
    CHUNK_ROWS = 8192           # a multiple of GROUP_ROWS
    LOWEST_UNSHIFTED = -6400    # 400 powers of two: the product of two sums stays a normal number
    MAX_UNCHECKED_FALL = 16000  # cv8_root_exp ends at 16352


cdef struct Mixture:
    Py_ssize_t n_components
    const double *mean      # (K,)
    const double *height    # (K,): (c - max c) 16/log 2
    double scale            # h 16/log 2
    double top              # max c
    double bottom           # lowest height
    double low              # sums from here on belong to points whose largest x is above LOWEST_UNSHIFTED
    double first, last      # lowest and highest mean


cdef struct Rows:
    double y[GROUP_ROWS]
    double shift[GROUP_ROWS]      # 0, or the largest x of a point that is far from all components
    double total[GROUP_ROWS]      # sum of the weights
    double inverse[GROUP_ROWS]    # 1/total, 0 beyond the last point
    bint shifted


cdef Mixture prepare(const double[::1] mean, const double[::1] log_weight, double h, double *height) noexcept nogil:
    """The constants of a call; `height` is filled."""
    cdef Mixture mix
    cdef Py_ssize_t k
    mix.n_components, mix.mean, mix.height, mix.scale = mean.shape[0], &mean[0], height, h * CV_PER_NAT
    mix.top, mix.first, mix.last, mix.bottom = log_weight[0], mean[0], mean[0], 0.0
    for k in range(mix.n_components):
        mix.top = max(mix.top, log_weight[k])
        mix.first, mix.last = min(mix.first, mean[k]), max(mix.last, mean[k])
    for k in range(mix.n_components):
        height[k] = (log_weight[k] - mix.top) * CV_PER_NAT
        mix.bottom = min(mix.bottom, height[k])
    mix.low = ldexp(<double>mix.n_components, -399)
    return mix


cdef bint all_near(const Mixture *mix, const double *y, Py_ssize_t n) noexcept nogil:
    """Whether no weight of these points can be out of the range of cv8_root_exp."""
    cdef double lanes[CV_LANES]
    cdef double low = y[0], high = y[0], span
    cdef cv8 lowest = cv8_set(-low), highest = cv8_set(high), zero = cv8_set(0.0), x
    cdef Py_ssize_t i
    for i in range(n // CV_LANES):
        x = cv8_load(y + i * CV_LANES)
        highest, lowest = cv8_max(x, highest), cv8_max(cv8_sub(zero, x), lowest)
    cv8_store(lanes, highest)
    for i in range(CV_LANES):
        high = max(high, lanes[i])
    cv8_store(lanes, lowest)
    for i in range(CV_LANES):
        low = min(low, -lanes[i])
    for i in range(n - n % CV_LANES, n):
        low, high = min(low, y[i]), max(high, y[i])
    span = max(high - mix.first, mix.last - low)
    return mix.scale * (span * span) - mix.bottom < MAX_UNCHECKED_FALL


cdef inline cv8 log_weight_of(cv8 y, cv8 mean, cv8 height, cv8 scale) noexcept nogil:
    """log rho_ik = c_k - h (y_i - m_k)^2 [Blei2017, (26)], in sixteenths of a power of two."""
    cdef cv8 d = cv8_sub(y, mean)
    return cv8_sub(height, cv8_mul(scale, cv8_mul(d, d)))


cdef inline template weigh(const Mixture *mix, Rows *rows, double *weight, bint near) noexcept nogil:
    """weight (K, GROUP_ROWS) = 2^((x - shift)/16) and its sums over k; without shift and bounds if near."""
    cdef cv8 y[GROUP_VECTORS]
    cdef cv8 total[GROUP_VECTORS]
    cdef cv8 x[GROUP_VECTORS]
    cdef cv8 mean, height, scale = cv8_set(mix.scale)
    cdef const double *means = mix.mean
    cdef const double *heights = mix.height
    cdef double *to
    cdef Py_ssize_t k, u, step, at, n_components = mix.n_components
    for step in range(GROUP_VECTORS // CV_STEP):
        at = step * CV_STEP * CV_LANES
        to = weight + at
        for u in range(CV_STEP):
            y[u], total[u] = cv8_load(&rows.y[at + u * CV_LANES]), cv8_set(0.0)
        for k in range(n_components):
            mean, height = cv8_set(means[k]), cv8_set(heights[k])
            for u in range(CV_STEP):
                x[u] = log_weight_of(y[u], mean, height, scale)
            for u in range(CV_STEP):
                if near:
                    x[u] = cv8_root_exp(x[u])
                else:
                    x[u] = cv8_root_exp_any(cv8_sub(x[u], cv8_load(&rows.shift[at + u * CV_LANES])))
            for u in range(CV_STEP):
                cv8_store(to + u * CV_LANES, x[u])
                total[u] = cv8_add(total[u], x[u])
            to += GROUP_ROWS
        for u in range(CV_STEP):
            cv8_store(&rows.total[at + u * CV_LANES], total[u])
            cv8_store(&rows.inverse[at + u * CV_LANES], cv8_div(cv8_set(1.0), total[u]))


cdef Py_ssize_t find_shifts(const Mixture *mix, Rows *rows) noexcept nogil:
    """Shifts of the points far from all components; the first point whose largest x is -inf or nan, or -1."""
    cdef cv8 y, top, scale = cv8_set(mix.scale)
    cdef Py_ssize_t k, u, i
    for u in range(GROUP_VECTORS):
        y, top = cv8_load(&rows.y[u * CV_LANES]), cv8_set(-INFINITY)
        for k in range(mix.n_components):
            top = cv8_max(log_weight_of(y, cv8_set(mix.mean[k]), cv8_set(mix.height[k]), scale), top)
        cv8_store(&rows.shift[u * CV_LANES], top)
    for i in range(GROUP_ROWS):
        if not rows.shift[i] > -INFINITY:
            return i
        if rows.shift[i] >= LOWEST_UNSHIFTED:
            rows.shift[i] = 0.0
    return -1


cdef Py_ssize_t visit(const Mixture *mix, const double *y, Py_ssize_t n, bint near, Rows *rows,
                      double *weight) noexcept nogil:
    """Weights and sums of n <= GROUP_ROWS points; the first point without any weight, or -1."""
    cdef Py_ssize_t i, low = 0, bad
    if n == GROUP_ROWS:       # a fixed number of steps
        for i in range(GROUP_ROWS):
            rows.y[i] = y[i]
    else:
        for i in range(GROUP_ROWS):
            rows.y[i] = y[min(i, n - 1)]
    if rows.shifted:
        for i in range(GROUP_ROWS):
            rows.shift[i] = 0.0
        rows.shifted = False
    if near:
        weigh(mix, rows, weight, True)
    else:
        weigh(mix, rows, weight, False)
    for i in range(GROUP_ROWS):
        low += 0 if rows.total[i] >= mix.low else 1
    if low > 0:
        bad = find_shifts(mix, rows)
        if bad >= 0:
            return bad
        rows.shifted = True
        weigh(mix, rows, weight, False)
    for i in range(n, GROUP_ROWS):
        rows.total[i], rows.inverse[i] = 1.0, 0.0
    return -1


cdef inline template accumulate(const Mixture *mix, const Rows *rows, const double *weight, double *lanes,
                                bint squares) noexcept nogil:
    """Add a group to lanes (2 K + 1, CV_LANES): N_k, D_k of [Blei2017, (34)] for each component, then Q."""
    cdef cv8 y[GROUP_VECTORS]
    cdef cv8 inverse[GROUP_VECTORS]
    cdef cv8 r[GROUP_VECTORS]
    cdef cv8 d[GROUP_VECTORS]
    cdef cv8 q[GROUP_VECTORS]
    cdef cv8 mean, total
    cdef Py_ssize_t k, u
    for u in range(GROUP_VECTORS):
        y[u], inverse[u] = cv8_load(&rows.y[u * CV_LANES]), cv8_load(&rows.inverse[u * CV_LANES])
        q[u] = cv8_set(0.0)
    for k in range(mix.n_components):
        mean = cv8_set(mix.mean[k])
        for u in range(GROUP_VECTORS):
            r[u] = cv8_mul(cv8_load(weight + k * GROUP_ROWS + u * CV_LANES), inverse[u])    # r_ik [Blei2017, (26)]
            d[u] = cv8_sub(y[u], mean)
            if squares:
                q[u] = cv8_add(q[u], cv8_mul(cv8_mul(r[u], d[u]), d[u]))
            d[u] = cv8_mul(r[u], d[u])
        total = cv8_add(cv8_add(r[0], r[1]), cv8_add(r[2], r[3]))
        cv8_store(lanes + 2 * k * CV_LANES, cv8_add(cv8_load(lanes + 2 * k * CV_LANES), total))
        total = cv8_add(cv8_add(d[0], d[1]), cv8_add(d[2], d[3]))
        cv8_store(lanes + (2 * k + 1) * CV_LANES, cv8_add(cv8_load(lanes + (2 * k + 1) * CV_LANES), total))
    if squares:
        lanes += 2 * mix.n_components * CV_LANES
        total = cv8_add(cv8_add(q[0], q[1]), cv8_add(q[2], q[3]))
        cv8_store(lanes, cv8_add(cv8_load(lanes), total))


cdef Py_ssize_t chunk(const Mixture *mix, const double *y, Py_ssize_t n, bint squares, double *weight, double *lanes,
                      double *out, double *totals) noexcept nogil:
    """Add the sums of n <= CHUNK_ROWS points to out and totals; the first point without any weight, or -1."""
    cdef Rows rows
    cdef cv8 product = cv8_set(1.0), exponent = cv8_set(0.0)
    cdef double shift = 0.0
    cdef bint near = all_near(mix, y, n)
    cdef Py_ssize_t group, at, i, k, bad
    rows.shifted = True
    for i in range((2 * mix.n_components + 1) * CV_LANES):
        lanes[i] = 0.0
    for group in range((n + GROUP_ROWS - 1) // GROUP_ROWS):
        cv_prefetch_32(y + group * GROUP_ROWS + CHUNK_ROWS)    # all_near reads them next, and would stall
        at = group * GROUP_ROWS
        bad = visit(mix, y + at, min(<Py_ssize_t>GROUP_ROWS, n - at), near, &rows, weight)
        if bad >= 0:
            return at + bad
        if squares:
            accumulate(mix, &rows, weight, lanes, True)
        else:
            accumulate(mix, &rows, weight, lanes, False)
        for i in range(GROUP_VECTORS // 2):
            product = cv8_mul(product, cv8_mul(cv8_load(&rows.total[2 * i * CV_LANES]),
                                               cv8_load(&rows.total[(2 * i + 1) * CV_LANES])))
            exponent = cv8_add(exponent, cv8_exponent(product))
            product = cv8_mantissa(product)
        if rows.shifted:
            for i in range(min(<Py_ssize_t>GROUP_ROWS, n - group * GROUP_ROWS)):
                shift += rows.shift[i]
    for k in range(mix.n_components):
        out[2 * k] += cv_combine(lanes + 2 * k * CV_LANES)
        out[2 * k + 1] += cv_combine(lanes + (2 * k + 1) * CV_LANES)
    totals[0] += log_of_lanes(product, exponent, shift)
    totals[1] += cv_combine(lanes + 2 * mix.n_components * CV_LANES)
    return -1


cdef Py_ssize_t block(const Mixture *mix, const double *y, Py_ssize_t n, bint squares, double *weight, double *lanes,
                      double *sums) noexcept nogil:
    """The chunks of the n points of a block, one after the other, into sums: out and totals of `statistics`."""
    cdef Py_ssize_t numbers = 2 * mix.n_components, step, at, bad
    for at in range(numbers + 2):
        sums[at] = 0.0
    for step in range((n + CHUNK_ROWS - 1) // CHUNK_ROWS):
        at = step * CHUNK_ROWS
        bad = chunk(mix, y + at, min(<Py_ssize_t>CHUNK_ROWS, n - at), squares, weight, lanes, sums, sums + numbers)
        if bad >= 0:
            return at + bad
    sums[numbers] += n * mix.top
    return -1


def statistics(const double[::1] y,             # in  (N,), N > 0
               const double[::1] mean,          # in  (K,), finite
               const double[::1] log_weight,    # in  (K,): c, finite or -inf, one of them finite
               double h,                        # 1/(2 noise variance)
               bint squares,                    # whether Q is wanted
               double[:, ::1] out,              # out (K, 2): N_k = sum_i r_ik, D_k = sum_i r_ik (y_i - m_k)
               double[::1] totals,              # out (2,): L = sum_i log sum_k exp(.), Q = sum_ik r_ik (y_i - m_k)^2
               Py_ssize_t block_rows=0, /):     # points of a block, 0 for all
    """One pass over the points. Return the index of the first point that has no weight in any component, or -1.

    Such a point is nan, infinite or so far that (y - m)^2 or h (y - m)^2 overflows for every component (1e154 for the
    former); out and totals mean nothing then. Differences y - m must not overflow. Q is 0 without `squares`. Sums of
    blocks are added up along a tree.
    """
    cdef Py_ssize_t n = y.shape[0], n_components = mean.shape[0], i, k, bad = -1, depth = 0
    cdef Py_ssize_t size = n if block_rows == 0 else block_rows, numbers = 2 * n_components + 2
    cdef Py_ssize_t n_blocks = (n + size - 1) // size
    cdef double *memory = <double *>malloc((n_components * (GROUP_ROWS + 2 * CV_LANES + 1) + CV_LANES + 8
                                            + levels_of(n_blocks) * numbers) * sizeof(double))
    cdef double *weight
    cdef double *lanes
    cdef double *blocks
    cdef Mixture mix
    if memory == NULL:
        raise MemoryError
    try:
        with nogil:
            weight = aligned(memory)
            lanes = weight + n_components * GROUP_ROWS
            mix = prepare(mean, log_weight, h, lanes + (2 * n_components + 1) * CV_LANES)
            blocks = lanes + (2 * n_components + 1) * CV_LANES + n_components
            for i in range(n_blocks):
                bad = block(&mix, &y[i * size], min(size, n - i * size), squares, weight, lanes,
                            blocks + depth * numbers)
                if bad >= 0:
                    bad += i * size
                    break
                depth = add_equal(blocks, numbers, depth + 1, i + 1)
            if bad < 0:
                add_rest(blocks, numbers, depth)
                for k in range(n_components):
                    out[k, 0], out[k, 1] = blocks[2 * k], blocks[2 * k + 1]
                totals[0], totals[1] = blocks[numbers - 2], blocks[numbers - 1]
    finally:
        free(memory)
    return bad


def responsibilities(const double[::1] y,           # in  (N,), N > 0
                     const double[::1] mean,        # in  (K,), finite
                     const double[::1] log_weight,  # in  (K,): c, finite or -inf, one of them finite
                     double h,                      # 1/(2 noise variance)
                     double[:, ::1] resp,           # out (N, K): r_ik
                     double[::1] log_density, /):   # out (N,): log sum_k exp(c_k - h (y_i - m_k)^2)
    """The rows of r and their log normalisers. Return as `statistics` does."""
    cdef Py_ssize_t n = y.shape[0], n_components = mean.shape[0], start, size, i, k, group, bad = -1
    cdef bint near
    cdef double *memory = <double *>malloc((n_components * (GROUP_ROWS + 1) + 8) * sizeof(double))
    cdef double *weight
    cdef Rows rows
    cdef Mixture mix
    if memory == NULL:
        raise MemoryError
    try:
        with nogil:
            weight = aligned(memory)
            mix = prepare(mean, log_weight, h, weight + n_components * GROUP_ROWS)
            near = all_near(&mix, &y[0], n)
            rows.shifted = True
            for group in range((n + GROUP_ROWS - 1) // GROUP_ROWS):
                start = group * GROUP_ROWS
                size = min(<Py_ssize_t>GROUP_ROWS, n - start)
                bad = visit(&mix, &y[start], size, near, &rows, weight)
                if bad >= 0:
                    bad += start
                    break
                for i in range(size):
                    log_density[start + i] = (
                        cv_log_normal(rows.total[i]) + rows.shift[i] * (0.0625 * LOG_2)) + mix.top
                    for k in range(n_components):
                        resp[start + i, k] = weight[k * GROUP_ROWS + i] * rows.inverse[i]
    finally:
        free(memory)
    return bad
