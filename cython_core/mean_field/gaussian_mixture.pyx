"""Responsibilities and sufficient statistics of a mixture of Gaussians in D dimensions.

Rows x (N, D) have coordinates z = (x - origin) scale. For means m_k, lower triangular factors F_k and log weights c_k,
the log weight of component k at point n is log rho_nk = c_k - |F_k (z_n - m_k)|^2/2, and r_nk is its softmax over k.
These are the updates of [Bishop2006] eqs. (10.46) to (10.53); the caller puts the expectations over q that do not
depend on n into c.

Design:
* Groups of GROUP_ROWS points go through in one pass: their coordinates in columns, distances to all components (kept,
  K x GROUP_ROWS doubles), weights, the sums over the group. There is no array of N x K.
* Differences z - m_k are formed first, in both directions: points far from the origin or from all components cost no
  digits. Expanding the squares into features, for matrix products, takes as many operations and loses digits.
* include/cavity_tiles.h has the loops over coordinates. Measured on Zen 4 with AVX-512, K = 32: a whole pass takes no
  longer for D = 8 to 128 than those two matrix products alone (OpenBLAS), and some 85 % of the additions and
  multiplications the processor could do for D = 32 are done.
* Weights are powers 2^((x - top)/16), x = 16/log 2 log rho, top the largest of the point. One division a point; without
  sample weights no logarithm a point: mantissas of the sums are multiplied lane by lane, exponents added.
* Sums are in eight lanes within a group (point i in lane i mod 8), groups are added in their order within chunks of
  CHUNK_ROWS points, chunks in theirs, blocks along a tree: the result depends on the rows, their order and the block
  alone.
Errors: those of log rho and of d = z - m, that is a few eps of |c_k - max c| + sum_j (sum_i |F_ji d_i|)^2 D, and a few
eps of everything else. Weights below 2^-1022 may be 0.

[Bishop2006] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.
"""

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc

from cavity._core.block_sums cimport add_equal, add_rest, levels_of
from cavity._core.constants cimport LOG_2
from cavity._core.lanes cimport (
    CV_PER_NAT, CV_STEP, cv_prefetch_32, cv8, cv8_add, cv8_div, cv8_exponent, cv8_load, cv8_mantissa,
    cv8_max, cv8_mul, cv8_root_exp_any, cv8_set, cv8_store, cv8_sub, template,
)
from cavity._core.lane_sums cimport aligned, log_of_lanes, sum_of_lanes
from cavity._core.simd cimport CV_LANES, cv_log_normal
from cavity._core.tiles cimport (
    CV_STRIP, CV_TILE, CV_TILE_SUMS, cv_coordinates, cv_distance, cv_distance_by_coordinate, cv_first_tile, cv_moments,
    cv_moments_by_coordinate,
)

cdef enum:
    GROUP_ROWS = 128    # points of a group
    CHUNK_ROWS = 8192   # a multiple of GROUP_ROWS

cdef enum Kind:
    FULL
    DIAGONAL
    WITH_MISSING        # DIAGONAL where nan means not seen


cdef struct Mixture:
    Py_ssize_t n_features, n_components
    const double *origin    # (D,)
    const double *scale     # (D,)
    const double *mean      # (K, D)
    const double *shape     # factors (K, D, D) or precisions (K, D)
    const double *gain      # (K, D) or NULL
    double top              # max c
    # scratch
    Py_ssize_t n_sums       # of a component
    double *height          # (K,): (c - max c) 16/log 2
    double *z               # (D, GROUP_ROWS)
    double *seen            # (D, GROUP_ROWS): bits all set where z is seen, else none and z = 0
    double *weight          # (K, GROUP_ROWS): distances, then weights, then r
    double *largest         # (GROUP_ROWS,): the largest x of each point
    double *total           # (GROUP_ROWS,): sum of the weights
    double *inverse         # (GROUP_ROWS,): sample weight / total, 0 beyond the last point
    double *rest            # (D + CV_TILE, GROUP_ROWS), for the loops over coordinates
    double *sums            # (K, n_sums)
    double *blocks          # sums of blocks, see block_sums.pxd


cdef Py_ssize_t sums_of(Py_ssize_t n_features, Kind kind) noexcept nogil:
    """Sums of a component: whole tiles, and the count of points where it is not in the first tile."""
    cdef Py_ssize_t n_tiles = (n_features + CV_TILE - 1) // CV_TILE
    return CV_TILE_SUMS * (n_tiles * (n_tiles + 1) // 2 if kind == FULL else n_tiles) + (kind != FULL) * CV_LANES


cdef void *prepare(Mixture *mix, const double[::1] log_weight, Kind kind, Py_ssize_t room) noexcept nogil:
    """Allocate and set up the scratch, with `room` for sums of blocks; NULL without memory.

    `log_weight` may be empty: only distances are wanted.
    """
    cdef Py_ssize_t d = mix.n_features, k = mix.n_components, n = GROUP_ROWS, i
    cdef double *memory
    mix.n_sums = sums_of(d, kind)
    memory = <double *>malloc((n * ((2 * d + CV_TILE) + k + 3 + (d if kind == WITH_MISSING else 0))
                               + k * (mix.n_sums + 1) + 8 + room) * sizeof(double))
    if memory == NULL:
        return NULL
    mix.z = aligned(memory)
    mix.weight = mix.z + d * n
    mix.rest = mix.weight + k * n
    mix.largest = mix.rest + (d + CV_TILE) * n
    mix.total = mix.largest + n
    mix.inverse = mix.total + n
    mix.seen = mix.inverse + n
    mix.sums = mix.seen + (d * n if kind == WITH_MISSING else 0)
    mix.height = mix.sums + k * mix.n_sums
    mix.blocks = mix.height + k
    mix.top = -DBL_MAX
    for i in range(log_weight.shape[0]):
        mix.top = max(mix.top, log_weight[i])
    for i in range(log_weight.shape[0]):
        mix.height[i] = (log_weight[i] - mix.top) * CV_PER_NAT
    return memory


cdef inline template load(const Mixture *mix, const double *rows, Py_ssize_t n, Py_ssize_t room,
                          Kind kind) noexcept nogil:
    """Coordinates of n rows, and of the last one again for the rest of the group."""
    cdef Py_ssize_t i, j, d = mix.n_features
    cv_coordinates(kind == WITH_MISSING, rows, d, n, room, mix.origin, mix.scale, mix.z, mix.seen, GROUP_ROWS)
    if n < GROUP_ROWS:
        for j in range(d):
            for i in range(n, GROUP_ROWS):
                mix.z[j * GROUP_ROWS + i] = mix.z[j * GROUP_ROWS + n - 1]
                if kind == WITH_MISSING:
                    mix.seen[j * GROUP_ROWS + i] = mix.seen[j * GROUP_ROWS + n - 1]


cdef inline template measure(const Mixture *mix, const double *ahead, Kind kind) noexcept nogil:
    """weight = squared distances of the group to each component; asks for the rows `ahead` meanwhile."""
    cdef const double *gain = NULL
    cdef const double *mean
    cdef double *out
    cdef Py_ssize_t k, strip, at, i, d = mix.n_features
    cdef Py_ssize_t share = (GROUP_ROWS * d + 32 * mix.n_components - 1) // (32 * mix.n_components)
    for k in range(mix.n_components):
        for i in range(k * share, min((k + 1) * share, GROUP_ROWS * d // 32)):
            cv_prefetch_32(ahead + 32 * i)
        for strip in range(GROUP_ROWS // CV_STRIP):
            at = strip * CV_STRIP
            mean, out = mix.mean + k * d, mix.weight + k * GROUP_ROWS + at
            if kind == FULL:
                cv_distance(d, mix.z + at, GROUP_ROWS, mean, mix.shape + k * d * d, mix.rest, out)
            elif kind == DIAGONAL:
                cv_distance_by_coordinate(False, d, mix.z + at, NULL, GROUP_ROWS, mean, mix.shape + k * d, NULL, out)
            else:
                gain = mix.gain + k * d if mix.gain != NULL else NULL
                cv_distance_by_coordinate(True, d, mix.z + at, mix.seen + at, GROUP_ROWS, mean, mix.shape + k * d, gain,
                                          out)


cdef cv8 find_largest(const Mixture *mix) noexcept nogil:
    """weight = x; largest = that of each point, -DBL_MAX where there is none. Return the lowest by lanes, negated."""
    cdef cv8 x[CV_STEP]
    cdef cv8 top[CV_STEP]
    cdef cv8 height, lowest = cv8_set(-DBL_MAX), per_square = cv8_set(0.5 * CV_PER_NAT), floor = cv8_set(-DBL_MAX)
    cdef double *row
    cdef Py_ssize_t k, u, step, at
    for step in range(GROUP_ROWS // (CV_STEP * CV_LANES)):
        at = step * CV_STEP * CV_LANES
        row = mix.weight + at
        for u in range(CV_STEP):
            top[u] = floor
        for k in range(mix.n_components):
            height = cv8_set(mix.height[k])
            for u in range(CV_STEP):
                x[u] = cv8_sub(height, cv8_mul(per_square, cv8_load(row + u * CV_LANES)))   # (10.46)
                x[u] = cv8_max(x[u], floor)         # also where x is nan: a difference of infinities
                top[u] = cv8_max(x[u], top[u])
                cv8_store(row + u * CV_LANES, x[u])
            row += GROUP_ROWS
        for u in range(CV_STEP):
            cv8_store(mix.largest + at + u * CV_LANES, top[u])
            lowest = cv8_max(cv8_sub(cv8_set(0.0), top[u]), lowest)
    return lowest


cdef void weigh(const Mixture *mix) noexcept nogil:
    """weight = 2^((x - largest)/16), total = its sums over k, inverse = 1/total."""
    cdef cv8 x[CV_STEP]
    cdef cv8 top[CV_STEP]
    cdef cv8 total[CV_STEP]
    cdef double *row
    cdef Py_ssize_t _k, u, step, at
    for step in range(GROUP_ROWS // (CV_STEP * CV_LANES)):
        at = step * CV_STEP * CV_LANES
        row = mix.weight + at
        for u in range(CV_STEP):
            top[u], total[u] = cv8_load(mix.largest + at + u * CV_LANES), cv8_set(0.0)
        for _k in range(mix.n_components):
            for u in range(CV_STEP):
                x[u] = cv8_root_exp_any(cv8_sub(cv8_load(row + u * CV_LANES), top[u]))
            for u in range(CV_STEP):
                total[u] = cv8_add(total[u], x[u])
                cv8_store(row + u * CV_LANES, x[u])
            row += GROUP_ROWS
        for u in range(CV_STEP):
            cv8_store(mix.total + at + u * CV_LANES, total[u])
            cv8_store(mix.inverse + at + u * CV_LANES, cv8_div(cv8_set(1.0), total[u]))


cdef Py_ssize_t first_bad(const Mixture *mix, cv8 lowest) noexcept nogil:
    """The first point whose largest x is none, or -1."""
    cdef double lanes[CV_LANES]
    cdef double highest = -DBL_MAX
    cdef Py_ssize_t i
    cv8_store(lanes, lowest)
    for i in range(CV_LANES):
        highest = max(highest, lanes[i])
    if highest < DBL_MAX:
        return -1
    for i in range(GROUP_ROWS):
        if not mix.largest[i] > -DBL_MAX:
            return i
    return -1


cdef Py_ssize_t find_weights(const Mixture *mix, const double *rows, Py_ssize_t n, Py_ssize_t room,
                             Kind kind) noexcept nogil:
    """Weights and their sums for n rows, n <= GROUP_ROWS; the first row without any weight, or -1."""
    cdef Py_ssize_t i, bad
    if kind == FULL:
        load(mix, rows, n, room, FULL)
        measure(mix, rows + GROUP_ROWS * mix.n_features, FULL)
    elif kind == DIAGONAL:
        load(mix, rows, n, room, DIAGONAL)
        measure(mix, rows + GROUP_ROWS * mix.n_features, DIAGONAL)
    else:
        load(mix, rows, n, room, WITH_MISSING)
        measure(mix, rows + GROUP_ROWS * mix.n_features, WITH_MISSING)
    bad = first_bad(mix, find_largest(mix))
    if bad >= 0:
        return bad
    weigh(mix)
    for i in range(n, GROUP_ROWS):
        mix.total[i], mix.inverse[i], mix.largest[i] = 1.0, 0.0, 0.0
    return -1


cdef inline template add_moments(const Mixture *mix, Kind kind) noexcept nogil:
    """Add the sums over the group to those of each component: N_k, s_k, S_k of (10.51) to (10.53)."""
    cdef double *r
    cdef double *sums
    cdef const double *mean
    cdef Py_ssize_t k, i, d = mix.n_features, counts = mix.n_sums - CV_LANES
    for k in range(mix.n_components):
        r, sums, mean = mix.weight + k * GROUP_ROWS, mix.sums + k * mix.n_sums, mix.mean + k * d
        for i in range(GROUP_ROWS):
            r[i] *= mix.inverse[i]                                      # r_nk = rho_nk / sum_j rho_nj (10.49)
        if kind == FULL:
            cv_moments(False, d, mix.z, GROUP_ROWS, mean, r, r, GROUP_ROWS, mix.rest, mix.rest + d * GROUP_ROWS, sums)
        elif kind == DIAGONAL:
            cv_moments_by_coordinate(False, d, mix.z, NULL, GROUP_ROWS, mean, r, GROUP_ROWS, sums, sums + counts)
        else:
            cv_moments_by_coordinate(True, d, mix.z, mix.seen, GROUP_ROWS, mean, r, GROUP_ROWS, sums, sums + counts)


cdef inline void unpack_full(const double *sums, Py_ssize_t d, double *out) noexcept nogil:
    """Add the sums of a component in tiles to N, s, S by rows."""
    cdef Py_ssize_t first = cv_first_tile(d), top = 0, left, n = first, m, a, b
    cdef double *squares = out + 1 + d
    out[0] += sums[first * (first + 3) // 2]
    while top < d:
        for a in range(n):
            for b in range(a + 1):
                squares[(top + a) * (top + a + 1) // 2 + top + b] += sums[a * (a + 3) // 2 + b]
            out[1 + top + a] += sums[a * (a + 3) // 2 + a + 1]
        sums += CV_TILE_SUMS
        left, m = 0, first
        while left < top:
            for a in range(CV_TILE):
                for b in range(m):
                    squares[(top + a) * (top + a + 1) // 2 + left + b] += sums[a * m + b]
            sums += CV_TILE_SUMS
            left, m = left + m, CV_TILE
        top, n = top + n, CV_TILE


cdef inline void unpack_diagonal(const double *sums, Py_ssize_t d, bint seen, double *out) noexcept nogil:
    """Add the sums of a component in tiles to N, s, S, and the counts of what is seen."""
    cdef Py_ssize_t at = 0, n = cv_first_tile(d), a
    while at < d:
        for a in range(n):
            out[1 + at + a] += sums[2 * a]
            out[1 + d + at + a] += sums[2 * a + 1]
            if seen:
                out[1 + 2 * d + at + a] += sums[2 * CV_TILE + a]
        sums += CV_TILE_SUMS
        at, n = at + n, CV_TILE
    out[0] += sums[0]


cdef struct Tally:
    # lanes of what is needed for sum_n log total_n
    cv8 product, exponent, shift    # without sample weights
    cv8 logs, count                 # with them


cdef void tally_unweighted(const Mixture *mix, Tally *tally) noexcept nogil:
    cdef cv8 product = tally.product
    cdef Py_ssize_t i
    for i in range(GROUP_ROWS // CV_LANES):      # 16 sums of weights below 2^60
        product = cv8_mul(product, cv8_load(mix.total + i * CV_LANES))
        tally.shift = cv8_add(tally.shift, cv8_load(mix.largest + i * CV_LANES))
    tally.exponent = cv8_add(tally.exponent, cv8_exponent(product))
    tally.product = cv8_mantissa(product)


cdef void tally_weighted(const Mixture *mix, Tally *tally, const double *weight, Py_ssize_t n) noexcept nogil:
    """Also puts the sample weights of the n rows into inverse."""
    cdef Py_ssize_t i
    for i in range(GROUP_ROWS):
        mix.total[i] = cv_log_normal(mix.total[i]) + mix.largest[i] * (LOG_2 * 0.0625)
    for i in range(n):
        mix.total[i] *= weight[i]
        mix.inverse[i] *= weight[i]
        mix.largest[i] = weight[i]
    for i in range(GROUP_ROWS // CV_LANES):
        tally.logs = cv8_add(tally.logs, cv8_load(mix.total + i * CV_LANES))
        tally.count = cv8_add(tally.count, cv8_load(mix.largest + i * CV_LANES))


cdef Py_ssize_t chunk(const Mixture *mix, const double *rows, const double *weight, Py_ssize_t n, Kind kind,
                      double *out, Py_ssize_t width, double *total) noexcept nogil:
    """Add the sums of n <= CHUNK_ROWS rows to out (K, width) and total; the first row without any weight, or -1."""
    cdef Tally tally
    cdef Py_ssize_t group, at, k, size, bad
    tally.product = cv8_set(1.0)
    tally.exponent = tally.shift = tally.logs = tally.count = cv8_set(0.0)
    for k in range(mix.n_components * mix.n_sums):
        mix.sums[k] = 0.0
    for group in range((n + GROUP_ROWS - 1) // GROUP_ROWS):
        at = group * GROUP_ROWS
        size = min(<Py_ssize_t>GROUP_ROWS, n - at)
        bad = find_weights(mix, rows + at * mix.n_features, size, (n - at) * mix.n_features, kind)
        if bad >= 0:
            return at + bad
        if weight == NULL:
            tally_unweighted(mix, &tally)
        else:
            tally_weighted(mix, &tally, weight + at, size)
        if kind == FULL:
            add_moments(mix, FULL)
        elif kind == DIAGONAL:
            add_moments(mix, DIAGONAL)
        else:
            add_moments(mix, WITH_MISSING)
    for k in range(mix.n_components):
        if kind == FULL:
            unpack_full(mix.sums + k * mix.n_sums, mix.n_features, out + k * width)
        else:
            unpack_diagonal(mix.sums + k * mix.n_sums, mix.n_features, kind == WITH_MISSING, out + k * width)
    if weight == NULL:
        total[0] += log_of_lanes(tally.product, tally.exponent, sum_of_lanes(tally.shift)) + n * mix.top
    else:
        total[0] += sum_of_lanes(tally.logs) + sum_of_lanes(tally.count) * mix.top
    return -1


cdef Py_ssize_t block(const Mixture *mix, const double *rows, const double *weight, Py_ssize_t n, Kind kind,
                      double *out, Py_ssize_t width, double *total) noexcept nogil:
    """The chunks of the n rows of a block, one after the other."""
    cdef const double *none = NULL
    cdef Py_ssize_t step, at, bad
    for at in range(mix.n_components * width):
        out[at] = 0.0
    total[0] = 0.0
    for step in range((n + CHUNK_ROWS - 1) // CHUNK_ROWS):
        at = step * CHUNK_ROWS
        bad = chunk(mix, rows + at * mix.n_features, none if weight == NULL else weight + at,
                    min(<Py_ssize_t>CHUNK_ROWS, n - at), kind, out, width, total)
        if bad >= 0:
            return at + bad
    return -1


cdef Py_ssize_t statistics(const Mixture *mix, const double *rows, const double *weight, Py_ssize_t n,
                           Py_ssize_t block_rows, Kind kind, double *out, Py_ssize_t width,
                           double *total) noexcept nogil:
    """The blocks of n rows, added up along the tree."""
    cdef const double *none = NULL
    cdef double *top
    cdef Py_ssize_t numbers = mix.n_components * width, size = numbers + 1, depth = 0, count, at, bad
    for count in range((n + block_rows - 1) // block_rows):
        at, top = count * block_rows, mix.blocks + depth * size
        bad = block(mix, rows + at * mix.n_features, none if weight == NULL else weight + at, min(block_rows, n - at),
                    kind, top, width, top + numbers)
        if bad >= 0:
            return at + bad
        depth = add_equal(mix.blocks, size, depth + 1, count + 1)
    add_rest(mix.blocks, size, depth)
    for at in range(numbers):
        out[at] = mix.blocks[at]
    total[0] = mix.blocks[numbers]
    return -1


cdef inline Py_ssize_t room_for(Py_ssize_t n, Py_ssize_t block_rows, Py_ssize_t numbers) noexcept nogil:
    """How much `statistics` needs for sums of blocks."""
    return levels_of((n + block_rows - 1) // block_rows) * (numbers + 1)


cdef Py_ssize_t all_distances(const Mixture *mix, const double *rows, Py_ssize_t n, Kind kind,
                              double *out) noexcept nogil:
    """out (N, K) = squared distances, inf where they overflow; the first row that is finite to none, or -1."""
    cdef Py_ssize_t group, at, i, k, size, n_components = mix.n_components, first = -1
    cdef double q
    cdef bint any_finite
    for group in range((n + GROUP_ROWS - 1) // GROUP_ROWS):
        at = group * GROUP_ROWS
        size = min(<Py_ssize_t>GROUP_ROWS, n - at)
        if kind == FULL:
            load(mix, rows + at * mix.n_features, size, (n - at) * mix.n_features, FULL)
            measure(mix, rows + (at + GROUP_ROWS) * mix.n_features, FULL)
        else:
            load(mix, rows + at * mix.n_features, size, (n - at) * mix.n_features, WITH_MISSING)
            measure(mix, rows + (at + GROUP_ROWS) * mix.n_features, WITH_MISSING)
        for i in range(size):
            any_finite = False
            for k in range(n_components):
                q = mix.weight[k * GROUP_ROWS + i]
                any_finite |= q <= DBL_MAX
                out[(at + i) * n_components + k] = q if q <= DBL_MAX else INFINITY
            if not any_finite and first < 0:
                first = at + i
    return first


cdef Mixture mixture_of(const double[::1] origin, const double[::1] scale, const double[:, ::1] mean,
                        const double *shape, const double *gain) noexcept nogil:
    cdef Mixture mix
    mix.n_components, mix.n_features = mean.shape[0], mean.shape[1]
    mix.origin, mix.scale, mix.mean, mix.shape, mix.gain = &origin[0], &scale[0], &mean[0, 0], shape, gain
    return mix


cdef Py_ssize_t find_statistics(Mixture *mix, const double[:, ::1] rows, const double[::1] weight,
                                const double[::1] height, Kind kind, double[:, ::1] out, double[::1] totals,
                                Py_ssize_t block_rows) except -2:
    """The body of `full` and `diagonal`."""
    cdef Py_ssize_t bad, n = rows.shape[0], size = n if block_rows == 0 else block_rows
    cdef void *memory = prepare(mix, height, kind, room_for(n, size, out.shape[0] * out.shape[1]))
    if memory == NULL:
        raise MemoryError
    with nogil:
        bad = statistics(mix, &rows[0, 0], &weight[0] if weight.shape[0] else NULL, n, size, kind, &out[0, 0],
                         out.shape[1], &totals[0])
        free(memory)
    return bad


cdef Py_ssize_t find_distances(Mixture *mix, const double[:, ::1] rows, const double[::1] none, Kind kind,
                               double[:, ::1] out) except -2:
    """The body of `distances` and `distances_diagonal`."""
    cdef Py_ssize_t bad
    cdef void *memory = prepare(mix, none, kind, 0)
    if memory == NULL:
        raise MemoryError
    with nogil:
        bad = all_distances(mix, &rows[0, 0], rows.shape[0], kind, &out[0, 0])
        free(memory)
    return bad


def full(const double[:, ::1] rows,         # in  (N, D), N > 0
         const double[::1] weight,          # in  (N,) sample weights >= 0, or (0,) for ones
         const double[::1] origin,          # in  (D,)
         const double[::1] scale,           # in  (D,): z = (row - origin) scale
         const double[:, ::1] mean,         # in  (K, D): m_k in coordinates z
         const double[:, :, ::1] factor,    # in  (K, D, D): F_k, of which the lower triangle is read
         const double[::1] height,          # in  (K,): c_k, finite or -inf, one of them finite
         double[:, ::1] out,                # out (K, 1 + D + D (D + 1)/2): N_k, s_k, the lower triangle of S_k by rows
         double[::1] totals,                # out (1,): sum_n w_n log sum_k rho_nk
         Py_ssize_t block_rows=0, /):       # rows of a block, 0 for all
    """N_k = sum_n w_n r_nk, s_k = sum_n w_n r_nk (z_n - m_k), S_k = sum_n w_n r_nk (z_n - m_k)(z_n - m_k)'.

    Return the index of the first row that has no finite log rho, or -1. Such a row is nan, infinite or so far that its
    distances to all components overflow; out and totals mean nothing then. Sums of blocks are added up along a tree.
    """
    cdef Mixture mix = mixture_of(origin, scale, mean, &factor[0, 0, 0], NULL)
    return find_statistics(&mix, rows, weight, height, FULL, out, totals, block_rows)


def diagonal(const double[:, ::1] rows,         # in  (N, D), N > 0
             const double[::1] weight,          # in  (N,) sample weights >= 0, or (0,) for ones
             const double[::1] origin,          # in  (D,)
             const double[::1] scale,           # in  (D,): z = (row - origin) scale
             const double[:, ::1] mean,         # in  (K, D): m_k in coordinates z
             const double[:, ::1] precision,    # in  (K, D)
             const double[::1] height,          # in  (K,): c_k, finite or -inf, one of them finite
             const double[:, ::1] gain,         # in  (K, D) to leave out what is nan, or (0, 0)
             double[:, ::1] out,                # out (K, 1 + 2 D), or (K, 1 + 3 D) with gain
             double[::1] totals,                # out (1,): sum_n w_n log sum_k rho_nk
             Py_ssize_t block_rows=0, /):       # rows of a block, 0 for all
    """As `full`, for log rho_nk = c_k - sum_d precision_kd (z_nd - m_kd)^2/2.

    out holds N_k, sum_n w_n r_nk (z_nd - m_kd), D of them, and sum_n w_n r_nk (z_nd - m_kd)^2, D of them.
    With gain, log rho_nk = c_k + sum_d (gain_kd - precision_kd (z_nd - m_kd)^2/2), both sums run over entries that are
    not nan, and D more numbers N_kd are the sums of w_n r_nk over the rows where d is not nan.
    """
    cdef bint seen = gain.shape[0] > 0
    cdef Mixture mix = mixture_of(origin, scale, mean, &precision[0, 0], &gain[0, 0] if seen else NULL)
    return find_statistics(&mix, rows, weight, height, WITH_MISSING if seen else DIAGONAL, out, totals, block_rows)


def distances(const double[:, ::1] rows,        # in  (N, D), N > 0
              const double[::1] origin,         # in  (D,)
              const double[::1] scale,          # in  (D,): z = (row - origin) scale
              const double[:, ::1] mean,        # in  (K, D): m_k in coordinates z
              const double[:, :, ::1] factor,   # in  (K, D, D): F_k, of which the lower triangle is read
              double[:, ::1] out, /):           # out (N, K): |F_k (z_n - m_k)|^2, inf where it overflows
    """Return the index of the first row whose distances are all infinite or nan, or -1."""
    cdef Mixture mix = mixture_of(origin, scale, mean, &factor[0, 0, 0], NULL)
    return find_distances(&mix, rows, origin[:0], FULL, out)


def distances_diagonal(const double[:, ::1] rows,       # in  (N, D), N > 0; nan where not seen
                       const double[::1] origin,        # in  (D,)
                       const double[::1] scale,         # in  (D,): z = (row - origin) scale
                       const double[:, ::1] mean,       # in  (K, D): m_k in coordinates z
                       const double[:, ::1] precision,  # in  (K, D)
                       double[:, ::1] out, /):          # out (N, K): sum over d seen of precision_kd (z_nd - m_kd)^2
    """Return as `distances` does."""
    cdef Mixture mix = mixture_of(origin, scale, mean, &precision[0, 0], NULL)
    return find_distances(&mix, rows, origin[:0], WITH_MISSING, out)
