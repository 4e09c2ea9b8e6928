"""Products and quotients of arrays of scaled Gaussians, fused with their log scale. Formulas: gaussian.pxd.

Design:
a) Rows are taken CHUNK_ROWS at a time; one loop computes everything, also whether any row is special. It vectorises
   because results wait in stack buffers; for the same reason outputs may be the inputs.
b) A chunk with a special row is redone row by row; ordinary rows get the same bits either way.
c) Outputs far larger than the caches are written past them, unless they overwrite the inputs.
d) `multiply` and `divide` look at the ndarrays directly: nine typed memoryviews cost 1.2 us a call, this 0.1 us.
"""

cimport numpy as cnp
from cpython.float cimport PyFloat_Check
from libc.math cimport INFINITY, NAN, fabs, frexp, isfinite, ldexp
from libc.stdint cimport int64_t

from cavity._core.constants cimport LOG_2PI
from cavity._core.gaussian cimport (
    CHUNK_ROWS, Row, combine_one, divide_row, log_value, multiply_row, same_place,
)
from cavity._core.lanes cimport template
from cavity._core.simd cimport cv_log, cv_sum
from cavity._core.stream cimport cv_copy, cv_stream, cv_stream_end
from cavity._core.status_codes cimport OK, OVERFLOWED

cnp.import_array()

cdef extern from *:
    """
    #define CV_TAME_LOW 0x1p-100
    #define CV_TAME_HIGH 0x1p100
    """
    const double TAME_LOW "CV_TAME_LOW"
    const double TAME_HIGH "CV_TAME_HIGH"

cdef enum:
    MIN_STAGED_ROWS = 16                 # of a chunk; fewer go one by one
    MIN_ROWS_WITHOUT_GIL = 512           # other threads profit from so many
    MIN_STREAMED_ROWS = 1 << 20          # 24 MB of results, which bypass the caches


cdef inline void write(double *to, const double *source, Py_ssize_t n, bint stream) noexcept nogil:
    if stream:
        cv_stream(to, source, n)
    else:
        cv_copy(to, source, n)


cdef int one_by_one(
    double sign,
    const double *tau1, const double *rho1, const double *gamma1,  # in (n, d), (n,), (n,)
    const double *tau2, const double *rho2, const double *gamma2,  # in (n, d), (n,), (n,)
    double *tau, double *rho, double *gamma,                       # out (n, d), (n,), (n,); may be the inputs
    Py_ssize_t n, Py_ssize_t d,
    Py_ssize_t *offender,
) noexcept nogil:
    """Rows of any kind, any d."""
    cdef Py_ssize_t i
    cdef int status
    for i in range(n):
        status = combine_one(sign, tau1 + i * d, rho1[i], gamma1[i], tau2 + i * d, rho2[i], gamma2[i],
                             tau + i * d, rho + i, gamma + i, d)
        if status != OK:
            offender[0] = i
            return status
    return OK


cdef inline template combine_ordinary(
    bint product,
    const double *tau1, const double *rho1, const double *gamma1,  # in  (CHUNK_ROWS,)
    const double *tau2, const double *rho2, const double *gamma2,  # in  (CHUNK_ROWS,)
    double *tau, double *rho, double *gamma,                       # out (CHUNK_ROWS,), none of the inputs
    int64_t *special,                                              # out: non-zero if a row is
) noexcept nogil:
    cdef Row row
    cdef int64_t any_special = 0
    cdef Py_ssize_t i
    for i in range(CHUNK_ROWS):
        row = (multiply_row(tau1[i], rho1[i], gamma1[i], tau2[i], rho2[i], gamma2[i]) if product
               else divide_row(tau1[i], rho1[i], gamma1[i], tau2[i], rho2[i], gamma2[i]))
        tau[i] = row.tau
        rho[i] = row.rho
        gamma[i] = row.gamma
        any_special |= row.special
    special[0] = any_special


cdef int chunk(
    double sign,
    const double *tau1, const double *rho1, const double *gamma1,  # in (CHUNK_ROWS,)
    const double *tau2, const double *rho2, const double *gamma2,  # in (CHUNK_ROWS,)
    double *tau, double *rho, double *gamma,                       # out (CHUNK_ROWS,), may be the inputs
    bint stream,
    Py_ssize_t *offender,
) noexcept nogil:
    """CHUNK_ROWS rows, d = 1. With a constant count the loops have no remainders."""
    cdef double t[CHUNK_ROWS]
    cdef double r[CHUNK_ROWS]
    cdef double g[CHUNK_ROWS]
    cdef int64_t special = 0
    if sign > 0.0:
        combine_ordinary(True, tau1, rho1, gamma1, tau2, rho2, gamma2, t, r, g, &special)
    else:
        combine_ordinary(False, tau1, rho1, gamma1, tau2, rho2, gamma2, t, r, g, &special)
    if special:
        return one_by_one(sign, tau1, rho1, gamma1, tau2, rho2, gamma2, tau, rho, gamma, CHUNK_ROWS, 1, offender)
    write(tau, t, CHUNK_ROWS, stream)
    write(rho, r, CHUNK_ROWS, stream)
    write(gamma, g, CHUNK_ROWS, stream)
    return OK


cdef int tail(
    double sign,
    const double *tau1, const double *rho1, const double *gamma1,  # in (n,)
    const double *tau2, const double *rho2, const double *gamma2,  # in (n,)
    double *tau, double *rho, double *gamma,                       # out (n,), may be the inputs
    Py_ssize_t n,
    Py_ssize_t *offender,
) noexcept nogil:
    """The last n < CHUNK_ROWS rows: one by one if they are few, else as a chunk filled up with harmless rows."""
    cdef double a[9][CHUNK_ROWS]
    cdef const double *source[6]
    cdef Py_ssize_t i, k
    cdef int status
    if n < MIN_STAGED_ROWS:
        return one_by_one(sign, tau1, rho1, gamma1, tau2, rho2, gamma2, tau, rho, gamma, n, 1, offender)
    source[0], source[1], source[2], source[3], source[4], source[5] = tau1, rho1, gamma1, tau2, rho2, gamma2
    for k in range(6):
        cv_copy(a[k], source[k], n)
        for i in range(n, CHUNK_ROWS):
            a[k][i] = 2.0 if k == 1 else 1.0   # precisions 2 and 1: neither product nor quotient is special
    status = chunk(sign, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], False, offender)
    if status == OK:
        cv_copy(tau, a[6], n)
        cv_copy(rho, a[7], n)
        cv_copy(gamma, a[8], n)
    return status


cdef int rows(
    double sign,
    const double *tau1, const double *rho1, const double *gamma1,  # in (n, d), (n,), (n,)
    const double *tau2, const double *rho2, const double *gamma2,  # in (n, d), (n,), (n,)
    double *tau, double *rho, double *gamma,                       # out (n, d), (n,), (n,); may be the inputs
    Py_ssize_t n, Py_ssize_t d, bint stream,
    Py_ssize_t *offender,
) noexcept nogil:
    """All rows; on an error `offender` is the first bad row and later chunks are untouched."""
    cdef Py_ssize_t i = 0
    cdef int status = OK
    if d != 1:
        return one_by_one(sign, tau1, rho1, gamma1, tau2, rho2, gamma2, tau, rho, gamma, n, d, offender)
    while i < n and status == OK:
        if n - i >= CHUNK_ROWS:
            status = chunk(sign, tau1 + i, rho1 + i, gamma1 + i, tau2 + i, rho2 + i, gamma2 + i,
                           tau + i, rho + i, gamma + i, stream, offender)
        else:
            status = tail(sign, tau1 + i, rho1 + i, gamma1 + i, tau2 + i, rho2 + i, gamma2 + i,
                          tau + i, rho + i, gamma + i, n - i, offender)
        if status != OK:
            offender[0] += i
        i += CHUNK_ROWS
    if stream:
        cv_stream_end()
    return status


cdef inline bint plain(object a) noexcept:
    """An exact ndarray of aligned, C-contiguous, native float64."""
    return (cnp.PyArray_CheckExact(a) and cnp.PyArray_TYPE(<cnp.ndarray> a) == cnp.NPY_DOUBLE
            and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray> a))


cdef inline double *data(object a) noexcept:
    return <double *> cnp.PyArray_DATA(<cnp.ndarray> a)


cdef inline bint is_disjoint(double *a, double *b, Py_ssize_t n) noexcept:
    """Whether two arrays of n doubles are the same or disjoint memory (anything but a partial overlap)."""
    return a == b or a + n <= b or b + n <= a


cdef inline bint fits(object tau, object rho, object gamma, object like_tau, object like_rho) noexcept:
    return (plain(tau) and plain(rho) and plain(gamma)
            and cnp.PyArray_SAMESHAPE(<cnp.ndarray> tau, <cnp.ndarray> like_tau)
            and cnp.PyArray_SAMESHAPE(<cnp.ndarray> rho, <cnp.ndarray> like_rho)
            and cnp.PyArray_SAMESHAPE(<cnp.ndarray> gamma, <cnp.ndarray> like_rho))


cdef object floats(double sign, double t1, double r1, double g1, double t2, double r2, double g2):
    cdef double t, r, g
    cdef int status = combine_one(sign, &t1, r1, g1, &t2, r2, g2, &t, &r, &g, 1)
    return (status, 0, None) if status != OK else (OK, 0, (t, r, g))


cdef object combine(double sign, object tau1, object rho1, object gamma1,
                    object tau2, object rho2, object gamma2, object out, Py_ssize_t d, Py_ssize_t total):
    """(status, offending row, outputs), or None where the operands need broadcasting, casting or staging.

    `out` is given for d = 1 only.
    """
    cdef Py_ssize_t n, offender = 0
    cdef int status, i, j
    cdef bint stream
    cdef double *p[9]
    cdef object tau, rho, gamma
    if not (plain(rho1) and plain(tau1) and fits(tau1, rho1, gamma1, tau1, rho1)
            and fits(tau2, rho2, gamma2, tau1, rho1)):
        return None
    if out is None:
        tau = cnp.PyArray_EMPTY(cnp.PyArray_NDIM(tau1), cnp.PyArray_DIMS(tau1), cnp.NPY_DOUBLE, 0)
        rho = cnp.PyArray_EMPTY(cnp.PyArray_NDIM(rho1), cnp.PyArray_DIMS(rho1), cnp.NPY_DOUBLE, 0)
        gamma = cnp.PyArray_EMPTY(cnp.PyArray_NDIM(rho1), cnp.PyArray_DIMS(rho1), cnp.NPY_DOUBLE, 0)
        out = (tau, rho, gamma)
    elif type(out) is tuple and len(<tuple> out) == 3:
        tau, rho, gamma = <tuple> out
        if not (fits(tau, rho, gamma, tau1, rho1) and cnp.PyArray_ISWRITEABLE(<cnp.ndarray> tau)
                and cnp.PyArray_ISWRITEABLE(<cnp.ndarray> rho) and cnp.PyArray_ISWRITEABLE(<cnp.ndarray> gamma)):
            return None
    else:
        return None
    n = cnp.PyArray_SIZE(rho1)
    p[0], p[1], p[2] = data(tau1), data(rho1), data(gamma1)
    p[3], p[4], p[5] = data(tau2), data(rho2), data(gamma2)
    p[6], p[7], p[8] = data(tau), data(rho), data(gamma)
    stream = max(n, total) >= MIN_STREAMED_ROWS
    if d == 1:
        for i in range(6, 9):
            for j in range(i):
                if not is_disjoint(p[i], p[j], n) or (j > 5 and n > 0 and p[i] == p[j]):
                    return None
                stream = stream and p[i] != p[j]
    if n < MIN_ROWS_WITHOUT_GIL:
        status = rows(sign, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], n, d, stream, &offender)
    else:
        with nogil:
            status = rows(sign, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], n, d, stream, &offender)
    return status, offender, out


cdef inline bint all_floats(object a, object b, object c, object d, object e, object f) noexcept:
    return (PyFloat_Check(a) and PyFloat_Check(b) and PyFloat_Check(c)
            and PyFloat_Check(d) and PyFloat_Check(e) and PyFloat_Check(f))


def multiply(tau1, rho1, gamma1, tau2, rho2, gamma2, out=None, Py_ssize_t total=0, /):
    """f g for floats or equal-shaped plain arrays: (status, first bad row, (tau, rho, gamma)); None for others.

    `total` is the size of the whole job if these rows are a part of it.
    """
    if out is None and all_floats(tau1, rho1, gamma1, tau2, rho2, gamma2):
        return floats(1.0, tau1, rho1, gamma1, tau2, rho2, gamma2)
    return combine(1.0, tau1, rho1, gamma1, tau2, rho2, gamma2, out, 1, total)


def divide(tau1, rho1, gamma1, tau2, rho2, gamma2, out=None, Py_ssize_t total=0, /):
    """f/g: see multiply."""
    if out is None and all_floats(tau1, rho1, gamma1, tau2, rho2, gamma2):
        return floats(-1.0, tau1, rho1, gamma1, tau2, rho2, gamma2)
    return combine(-1.0, tau1, rho1, gamma1, tau2, rho2, gamma2, out, 1, total)


def combine_spherical(double sign, tau1, rho1, gamma1, tau2, rho2, gamma2, /):
    """f g or f/g in d dimensions for plain arrays tau (n, d), rho (n,): (status, first bad row, outputs)."""
    return combine(sign, tau1, rho1, gamma1, tau2, rho2, gamma2, None, cnp.PyArray_DIM(tau1, 1), 0)


# Products along an axis. All factors are evaluated at one place among them, sum sign(rho) tau/sum |rho| (the mean, if
# all are proper), and the product's log scale is what makes up for its own value there. No intermediate product is
# formed, so factors that cancel in between do no harm; only cancellation in the whole product shows.

cdef inline double summed(const double *x, Py_ssize_t stride, Py_ssize_t n) noexcept nogil:
    """Sum of n numbers `stride` apart."""
    cdef double total = 0.0
    cdef Py_ssize_t i
    if stride == 1:
        return cv_sum(x, n)
    for i in range(n):
        total += x[i * stride]
    return total


cdef inline bint tame(const double *tau, double rho, Py_ssize_t d) noexcept nogil:
    """Exponents so small that no square below can overflow, or the uniform factor."""
    cdef bint good = (TAME_LOW < fabs(rho) and fabs(rho) < TAME_HIGH) or rho == 0.0
    cdef Py_ssize_t j
    for j in range(d):
        good = good and fabs(tau[j]) < TAME_HIGH
    return good


# The same with exponents of any size: no product of two of them leaves the range, whatever the factors.

cdef struct Wide:
    double m                             # 0, or 0.5 <= |m| < 1
    int64_t e                            # the number is m 2^e


cdef inline Wide wide(double m, int64_t e=0) noexcept nogil:
    cdef Wide result
    cdef int shift
    result.m = frexp(m, &shift)
    result.e = e + shift if m != 0.0 else 0
    return result


cdef inline double narrow(Wide a) noexcept nogil:
    """The nearest double, infinite beyond their range."""
    return ldexp(a.m, <int> max(-3000, min(3000, a.e)))


cdef inline Wide times(Wide a, Wide b) noexcept nogil:
    return wide(a.m * b.m, a.e + b.e)


cdef inline Wide over(Wide a, Wide b) noexcept nogil:
    return wide(a.m / b.m, a.e - b.e)


cdef inline Wide plus(Wide a, Wide b) noexcept nogil:
    if a.m == 0.0:
        return b
    if b.m == 0.0:
        return a
    if a.e >= b.e:                       # what is below the last bit by far may vanish
        return wide(a.m + ldexp(b.m, <int> max(-3000, b.e - a.e)), a.e)
    return wide(ldexp(a.m, <int> max(-3000, a.e - b.e)) + b.m, b.e)


cdef inline Wide minus(Wide a) noexcept nogil:
    a.m = -a.m
    return a


cdef inline void add_to(Wide *high, Wide *low, Wide b) noexcept nogil:
    """Add b to high + low, what rounding takes from high going to low: Knuth's TwoSum."""
    cdef Wide total = plus(high[0], b), part = plus(total, minus(high[0]))
    low[0] = plus(low[0], plus(plus(high[0], minus(plus(total, minus(part)))), plus(b, minus(part))))
    high[0] = total


cdef inline Wide exponent_at(
    const double *place, const double *exponents, const double *tau, double rho, Py_ssize_t d,   # in (d,)
) noexcept nogil:
    """What depends on the place in the log of a factor: tau'x for rho = 0, else -|rho x - tau|^2/(2 rho)."""
    cdef Wide total = wide(0.0), x, deviation
    cdef Py_ssize_t j
    for j in range(d):
        x.m, x.e = place[j], <int64_t> exponents[j]
        if rho == 0.0:
            total = plus(total, times(wide(tau[j]), x))
        else:
            deviation = plus(times(wide(rho), x), wide(-tau[j]))
            total = plus(total, times(wide(-0.5), times(deviation, over(deviation, wide(rho)))))
    return total


cdef int product_wide(
    const double *tau, const double *rho, const double *gamma,   # in  (n, d), (n,), (n,)
    double *tau_out, double *rho_out, double *gamma_out,         # out (d,), scalars
    double *place, double *exponents,                            # scratch (d,)
    Py_ssize_t n, Py_ssize_t d,
) noexcept nogil:
    """`product` of any factors, point masses among them, whose place every other factor is then evaluated at."""
    cdef Wide total, size = wide(0.0), exponent = wide(0.0), lost = wide(0.0)
    cdef double sign, logs = 0.0
    cdef Py_ssize_t i, j, point = -1
    for i in range(n):
        if rho[i] == INFINITY:
            point = i if point < 0 else point
        else:
            size = plus(size, wide(fabs(rho[i])))
    for j in range(d):
        total = wide(0.0)
        for i in range(n):
            sign = 1.0 if rho[i] > 0.0 else (-1.0 if rho[i] < 0.0 else 0.0)
            total = plus(total, wide(sign * tau[i * d + j])) if point < 0 else total
        if point >= 0:
            total = wide(tau[point * d + j])
        elif size.m != 0.0:
            total = over(total, size)
        place[j], exponents[j] = total.m, <double> total.e
        if point >= 0:
            tau_out[j] = tau[point * d + j]
    for i in range(n):
        if rho[i] == INFINITY:
            if i != point:               # no log scale at one place, no mass at two
                logs += NAN if same_place(tau + i * d, tau + point * d, d) else -INFINITY
            logs += gamma[i]
            continue
        add_to(&exponent, &lost, exponent_at(place, exponents, tau + i * d, rho[i], d))
        logs += gamma[i] + (0.5 * d * (cv_log(fabs(rho[i])) - LOG_2PI) if rho[i] != 0.0 else 0.0)
    if point >= 0:
        rho_out[0] = INFINITY
        gamma_out[0] = logs + narrow(plus(exponent, lost))
        return OK
    total = wide(0.0)
    for i in range(n):
        total = plus(total, wide(rho[i]))
    rho_out[0] = narrow(total)
    if not isfinite(rho_out[0]):
        return OVERFLOWED
    for j in range(d):
        total = wide(0.0)
        for i in range(n):
            total = plus(total, wide(tau[i * d + j]))
        tau_out[j] = narrow(total)
        if not isfinite(tau_out[j]):
            return OVERFLOWED
    # a factor that is nearly all of the product cancels with it, and leaves those of the others
    add_to(&exponent, &lost, minus(exponent_at(place, exponents, tau_out, rho_out[0], d)))
    if rho_out[0] != 0.0:
        logs -= 0.5 * d * (cv_log(fabs(rho_out[0])) - LOG_2PI)
    gamma_out[0] = logs + narrow(plus(exponent, lost))
    return OK


cdef int product(
    const double *tau, const double *rho, const double *gamma,   # in  (n, d), (n,), (n,)
    double *tau_out, double *rho_out, double *gamma_out,         # out (d,), scalars
    double *place, double *exponents,                            # scratch (d,)
    Py_ssize_t n, Py_ssize_t d,
) noexcept nogil:
    """Product of n factors."""
    cdef Py_ssize_t i, j
    cdef double r = cv_sum(rho, n), g = 0.0, size = 0.0
    cdef bint good = True
    for j in range(d):
        tau_out[j] = summed(tau + j, d, n)
    for i in range(n):
        good = good and tame(tau + i * d, rho[i], d)
    if good and (r == 0.0 or tame(tau_out, r, d)):
        for j in range(d):
            place[j] = 0.0
            for i in range(n):
                place[j] += tau[i * d + j] if rho[i] > 0.0 else (-tau[i * d + j] if rho[i] < 0.0 else 0.0)
        for i in range(n):
            size += fabs(rho[i])
        for j in range(d):
            place[j] = place[j] / size if size > 0.0 else 0.0
        for i in range(n):
            g += log_value(place, tau + i * d, rho[i], gamma[i], d)
        rho_out[0] = r
        gamma_out[0] = g - log_value(place, tau_out, r, 0.0, d)
        return OK
    return product_wide(tau, rho, gamma, tau_out, rho_out, gamma_out, place, exponents, n, d)


def prod(const double[:, :, ::1] tau,    # in  (B, n, d)
         const double[:, ::1] rho,       # in  (B, n)
         const double[:, ::1] gamma,     # in  (B, n)
         double[:, ::1] tau_out,         # out (B, d)
         double[::1] rho_out,            # out (B,)
         double[::1] gamma_out,          # out (B,)
         double[:, ::1] place, /):       # scratch (2, d)
    """Products over n, for each of B rows: (status, first bad row)."""
    cdef Py_ssize_t b = 0, n = tau.shape[1], d = tau.shape[2]
    cdef int status = OK
    if n == 0 or d == 0:                 # the empty product is the uniform
        tau_out[:] = 0.0
        rho_out[:] = 0.0
        gamma_out[:] = 0.0
        return OK, 0
    with nogil:
        for b in range(tau.shape[0]):
            status = product(&tau[b, 0, 0], &rho[b, 0], &gamma[b, 0], &tau_out[b, 0], &rho_out[b],
                             &gamma_out[b], &place[0, 0], &place[1, 0], n, d)
            if status != OK:
                break
    return status, b
