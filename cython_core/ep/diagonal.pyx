"""Generalised linear models with independent Gaussian weights: ADF and EP over the rows of a CSR matrix.

[G]  T. Graepel, J. Quinonero Candela, T. Borchert, R. Herbrich, Web-scale Bayesian click-through rate prediction for
     sponsored search advertising in Microsoft's Bing search engine, ICML 2010 (ADF for the probit likelihood).
[M]  T. Minka, Power EP, Microsoft Research, MSR-TR-2004-149, 2004.

The latent value of a row is f = offset + sum_j x_j w_j. With weights w_j ~ N(m_j, c_j) it is N(M, V), V = sum_j a_j,
a_j = x_j^2 c_j. The likelihood tells d1, d2, the derivatives of log Z in M, and its site on f, of precision r. Then

    m_j' = m_j + c_j x_j d1,        c_j' = c_j (1 + a_j d2) = c_j (1 + R_j r)/(1 + V r),     R_j = V - a_j,

the second form for V r > 1, where the first cancels. The site of the row on w_j, match/cavity, has

    rho_j = x_j^2 r D,    tau_j = x_j D (p + x_j m_j r),    D = 1/(1 + R_j r),    p = d1 (1 + V r),

without a difference of precisions either. R_j is a difference only where that keeps its digits: for the one feature
that may have more than half of V, the others are summed.

Design:
a) The numbers of a weight, its moments in ADF and its natural parameters in EP, lie next to each other: one cache line
   per nonzero. They are prefetched some rows ahead; without that, a sweep over a million columns stalls on memory.
b) In EP every nonzero has a site, (tau, rho), stored in the order of the nonzeros. The natural parameters of a weight
   are sums of two numbers, (tau, rho, rest of tau, rest of rho), so that a cavity keeps its digits where one site is
   much more precise than the prior and all others together.
c) All nonzeros of a row are read before any weight is changed, so that the order of the columns does not matter.
d) A row whose cavity is improper is left alone in this pass and counted; nothing is clamped.
e) A row of ADF takes as long as its chain of operations, as the processor does not see as far as the next row. So the
   two numbers of a weight are one register; log Z, which no weight depends on, is found for many rows at once.
f) Likelihoods without a kernel use the same steps, one row at a time: `latent`, `absorb`, `cavity`, `renew`.
"""

from libc.math cimport INFINITY, NAN, fabs, isnan, log1p, sqrt
from libc.stdint cimport int32_t, int64_t

from cavity._core.closed_form_sites cimport probit_site
from cavity._core.site_calls cimport connect, match_tile, tilted
from cavity._core.site_types cimport PROBIT, Likelihood, Tilted, unpack

connect()

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__GNUC__)
    /* inlined before gcc looks for functions without effect, which a loop of prefetches is in its eyes */
    #define CV_ALWAYS_INLINE static inline __attribute__((always_inline))
    #define CV_PREFETCH_LINE(p) __builtin_prefetch((p), 1, 3)
    #elif defined(_M_X64)
    #include <xmmintrin.h>
    #define CV_ALWAYS_INLINE static __forceinline
    #define CV_PREFETCH_LINE(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
    #else
    #define CV_ALWAYS_INLINE static inline
    #define CV_PREFETCH_LINE(p) ((void)(p))
    #endif
    /* prefetch the weights of as many nonzeros as the row has, `ahead` nonzeros later; `size` doubles a weight */
    CV_ALWAYS_INLINE void cv_prefetch(const double *state, int64_t size, const int32_t *indices, const int64_t *row,
                               int64_t ahead, int64_t nnz)
    {
        int64_t k, stop = row[1] + ahead < nnz ? row[1] + ahead : nnz;
        for (k = row[0] + ahead; k < stop; k++)
            CV_PREFETCH_LINE(state + size * indices[k]);
    }
    #define CV_SMALLEST_MOMENT 1e-250
    #define CV_LARGEST_MOMENT 1e250
    /* no number of a probit site leaves the range of float64 where V is above the first, and M^2/V below the second */
    #define CV_MODERATE_VARIANCE 1e-100
    #define CV_MODERATE_RATIO 1e50
    """
    void cv_prefetch(
        const double *state, int64_t size, const int32_t *indices, const int64_t *row, int64_t ahead, int64_t nnz,
    ) noexcept nogil
    const double SMALLEST_MOMENT "CV_SMALLEST_MOMENT"
    const double LARGEST_MOMENT "CV_LARGEST_MOMENT"
    const double MODERATE_VARIANCE "CV_MODERATE_VARIANCE"
    const double MODERATE_RATIO "CV_MODERATE_RATIO"

cdef extern from "cavity_pairs.h" nogil:
    ctypedef struct cv_pair:
        pass
    cv_pair cv_pair_of(double a, double b) noexcept
    cv_pair cv_pair_load(const double *source) noexcept
    void cv_pair_store(double *to, cv_pair a) noexcept
    cv_pair cv_pair_add(cv_pair a, cv_pair b) noexcept
    cv_pair cv_pair_mul(cv_pair a, cv_pair b) noexcept
    double cv_pair_first(cv_pair a) noexcept
    double cv_pair_second(cv_pair a) noexcept

cdef enum:
    PREFETCH_NONZEROS = 160              # between prefetch and use
    PROBIT_ROWS = 128                    # whose log Z are found together
    CACHED_WEIGHTS = 2048                # are not prefetched: 32 kB of moments, as the smallest first-level cache has

cdef struct Design:
    const int64_t *indptr                # (N + 1,)
    const int32_t *indices               # (nnz,)
    const double *x                      # (nnz,)
    const double *offset                 # (N,) or NULL
    int64_t nnz

cdef struct Latent:
    double mean, variance                # of f


cdef inline bint usable(Latent f) noexcept nogil:
    """Whether squares and quotients of the moments stay in the range of float64; false for nan."""
    return SMALLEST_MOMENT < f.variance < LARGEST_MOMENT and fabs(f.mean) < LARGEST_MOMENT


cdef inline bint finite(Tilted at) noexcept nogil:
    return fabs(at.log_z) < INFINITY and fabs(at.d1) < INFINITY and fabs(at.d2) < INFINITY and fabs(at.rho) < INFINITY


cdef inline double rest(
    const double *share, Py_ssize_t stride, Py_ssize_t n, Py_ssize_t j, double total,
) noexcept nogil:
    """Sum of all shares but share j, which are stride apart."""
    cdef double left = 0.0
    cdef Py_ssize_t k
    if share[j * stride] <= 0.5 * total:
        return total - share[j * stride]
    for k in range(n):
        if k != j:
            left += share[k * stride]
    return left


# ------------------------------------------------------------------------------------------------ ADF: moments


cdef inline cv_pair project_weight(
    double x,
    const double *w,                     # in  (2,): mean m and variance c
    double *work,                        # out (2,): x c and a = x^2 c
) noexcept nogil:
    """x m and a."""
    cdef cv_pair scaled = cv_pair_mul(cv_pair_load(w), cv_pair_of(x, x))
    cdef cv_pair out = cv_pair_mul(scaled, cv_pair_of(1.0, x))
    cv_pair_store(work, cv_pair_of(cv_pair_second(scaled), cv_pair_second(out)))
    return out


cdef inline Latent project(
    const Design *X, Py_ssize_t row,
    const double *state,                 # in  (D, 2): mean and variance of the weights
    double *work,                        # out (n, 2)
) noexcept nogil:
    cdef int64_t start = X.indptr[row]
    cdef Py_ssize_t n = X.indptr[row + 1] - start, k
    cdef const int32_t *j = X.indices + start
    cdef const double *x = X.x + start
    cdef cv_pair even = cv_pair_of(X.offset[row] if X.offset != NULL else 0.0, 0.0), odd = cv_pair_of(0.0, 0.0)
    cdef Latent f
    for k in range(0, n - 1, 2):         # two chains of additions, half as long
        even = cv_pair_add(even, project_weight(x[k], state + 2 * <Py_ssize_t> j[k], work + 2 * k))
        odd = cv_pair_add(odd, project_weight(x[k + 1], state + 2 * <Py_ssize_t> j[k + 1], work + 2 * k + 2))
    if n & 1:
        even = cv_pair_add(even, project_weight(x[n - 1], state + 2 * <Py_ssize_t> j[n - 1], work + 2 * n - 2))
    even = cv_pair_add(even, odd)
    f.mean, f.variance = cv_pair_first(even), cv_pair_second(even)
    return f


cdef inline void assimilate(
    const Design *X, Py_ssize_t row, double variance, Tilted at,
    const double *work,                  # in    (n, 2): from `project`
    double *state,                       # inout (D, 2)
) noexcept nogil:
    cdef int64_t start = X.indptr[row]
    cdef Py_ssize_t n = X.indptr[row + 1] - start, k
    cdef double shrink
    cdef double *w
    cdef cv_pair slopes = cv_pair_of(at.d1, at.d2), old, new
    if not variance * at.d2 < -0.5:      # or V r <= 1; then 1 + a d2 >= 1/2: nothing cancels
        for k in range(n):
            w = state + 2 * <Py_ssize_t> X.indices[start + k]
            old = cv_pair_load(w)
            new = cv_pair_add(cv_pair_of(cv_pair_first(old), 1.0), cv_pair_mul(cv_pair_load(work + 2 * k), slopes))
            cv_pair_store(w, cv_pair_mul(new, cv_pair_of(1.0, cv_pair_second(old))))
    else:
        shrink = 1.0 / (1.0 + variance * at.rho)
        for k in range(n):
            w = state + 2 * <Py_ssize_t> X.indices[start + k]
            w[0] += work[2 * k] * at.d1
            w[1] *= (1.0 + rest(work + 1, 2, n, k, variance) * at.rho) * shrink


cdef Py_ssize_t filter_probit_rows(
    const Design *X, Likelihood *lik, const double *y, Py_ssize_t start, Py_ssize_t stop,
    double *work, double *state, double *log_z,
) noexcept nogil:
    """`filter_rows` for at most PROBIT_ROWS rows of the probit likelihood without weights."""
    cdef double mean[PROBIT_ROWS]
    cdef double variance[PROBIT_ROWS]
    cdef double unused[2][PROBIT_ROWS]
    cdef double power = 1.0
    cdef Py_ssize_t i
    cdef Latent f
    cdef Tilted at
    lik.power = power
    for i in range(start, stop):
        cv_prefetch(state, 2, X.indices, X.indptr + i, PREFETCH_NONZEROS, X.nnz)
        f.mean, f.variance = 0.0, 1.0
        if X.indptr[i] < X.indptr[i + 1]:
            f = project(X, i, state, work)
            if MODERATE_VARIANCE < f.variance < LARGEST_MOMENT and f.mean * f.mean < MODERATE_RATIO * f.variance:
                at = probit_site(lik.a, y[i], f.mean, f.variance)      # finite
            elif usable(f):
                at = tilted(lik, y[i], 0.0, f.mean, f.variance)
                if not finite(at):
                    return i
            else:
                return i
            assimilate(X, i, f.variance, at, work, state)
        mean[i - start], variance[i - start] = f.mean, f.variance
    match_tile(lik, stop - start, &power, 0, y + start, &power, 0, mean, variance, False, log_z + start, unused[0],
               unused[1])
    for i in range(start, stop):
        log_z[i] = log_z[i] if X.indptr[i] < X.indptr[i + 1] else 0.0
    return -1


cdef Py_ssize_t filter_rows(
    const Design *X, Likelihood *lik, const double *y, const double *extra, bint extras,
    const double *weight,                # in  (N,) or NULL
    Py_ssize_t start, Py_ssize_t stop, double *work, double *state, double *log_z,
) noexcept nogil:
    """Return -1, or the first row whose moments leave the range of float64."""
    cdef Py_ssize_t i, row = -1
    cdef double left
    cdef Latent f
    cdef Tilted at
    if lik.kind == PROBIT and weight == NULL:
        while start < stop and row < 0:
            i, start = start, min(start + PROBIT_ROWS, stop)
            row = filter_probit_rows(X, lik, y, i, start, work, state, log_z)
        return row
    for i in range(start, stop):
        cv_prefetch(state, 2, X.indices, X.indptr + i, PREFETCH_NONZEROS, X.nnz)
        log_z[i] = 0.0
        if X.indptr[i] == X.indptr[i + 1]:
            continue
        left = weight[i] if weight != NULL else 1.0
        while left > 0.0:
            lik.power = left if left < 1.0 else 1.0
            f = project(X, i, state, work)
            if not usable(f):
                return i
            at = tilted(lik, y[i], extra[i if extras else 0], f.mean, f.variance)
            if not finite(at):
                return i
            assimilate(X, i, f.variance, at, work, state)
            log_z[i] += at.log_z
            left -= 1.0
    return -1


# ------------------------------------------------------------------------------------------------ EP: sites


cdef inline void put(double *w, double a, double b) noexcept nogil:
    """w[0] + w[2] = a + b, without a rounding error."""
    cdef double total = a + b
    cdef double of_b = total - a
    w[2] = (a - (total - of_b)) + (b - of_b)
    w[0] = total


cdef inline double others(const double *w, const double *site) noexcept nogil:
    """What remains of a natural parameter without a site."""
    return (w[0] - site[0]) + w[2]


cdef inline bint without(
    const Design *X, Py_ssize_t row, double fraction,
    const double *state,                 # in  (D, 4): tau and rho of the weights, as sums of two
    const double *sites,                 # in  (nnz, 2)
    double *work,                        # out (n, 2): mean of the cavity and x^2 times its variance
    Latent *f,                           # out
) noexcept nogil:
    """Return whether the cavity, the posterior without a fraction of the row's sites, is proper."""
    cdef int64_t start = X.indptr[row]
    cdef Py_ssize_t n = X.indptr[row + 1] - start, k
    cdef double m0 = X.offset[row] if X.offset != NULL else 0.0, m1 = 0.0, v0 = 0.0, v1 = 0.0, x, c, rho
    cdef double kept = 1.0 - fraction
    cdef const double *w
    cdef const double *site
    cdef bint proper = True
    for k in range(n):
        x = X.x[start + k]
        w = state + 4 * <Py_ssize_t> X.indices[start + k]
        site = sites + 2 * (start + k)
        rho = others(w + 1, site + 1) + kept * site[1]
        proper = proper and rho > 0.0
        c = 1.0 / rho
        work[2 * k] = (others(w, site) + kept * site[0]) * c
        work[2 * k + 1] = x * (x * c)
        if k & 1:
            m1 += x * work[2 * k]
            v1 += work[2 * k + 1]
        else:
            m0 += x * work[2 * k]
            v0 += work[2 * k + 1]
    f.mean, f.variance = m0 + m1, v0 + v1
    return proper


cdef inline bint move(
    const Design *X, Py_ssize_t row, double fraction, double variance, Tilted at, double damping,
    const double *work,                  # in    (n, 2): from `without`
    double *fresh,                       # work  (n, 2): the new sites
    double *state, double *sites,        # inout (D, 4), (nnz, 2)
) noexcept nogil:
    """Renew the sites of a row; False, and nothing is changed, if a weight would become improper."""
    cdef int64_t start = X.indptr[row]
    cdef Py_ssize_t n = X.indptr[row + 1] - start, k
    cdef double x, a, pull, scale, total = 1.0 + variance * at.d2, inverse = 1.0 / fraction
    cdef bint strong = variance * at.rho > 1.0                       # else 1 + a d2 > 1/2: nothing cancels
    cdef double *w
    cdef double *site
    cdef bint proper = True
    pull = at.d1 * (1.0 + variance * at.rho) if strong else at.d1 / total
    for k in range(n):
        x, a = X.x[start + k], work[2 * k + 1]
        w = state + 4 * <Py_ssize_t> X.indices[start + k]
        site = sites + 2 * (start + k)
        if strong:
            scale = inverse / (1.0 + rest(work + 1, 2, n, k, variance) * at.rho)
        else:
            scale = inverse * total / (1.0 + a * at.d2)
        fresh[2 * k] = damping * (x * scale * (pull + x * work[2 * k] * at.rho)) + (1.0 - damping) * site[0]
        fresh[2 * k + 1] = damping * (x * (x * (at.rho * scale))) + (1.0 - damping) * site[1]
        proper = proper and others(w + 1, site + 1) + fresh[2 * k + 1] > 0.0
    if not proper:
        return False
    for k in range(n):
        w = state + 4 * <Py_ssize_t> X.indices[start + k]
        site = sites + 2 * (start + k)
        put(w, others(w, site), fresh[2 * k])
        put(w + 1, others(w + 1, site + 1), fresh[2 * k + 1])
        site[0], site[1] = fresh[2 * k], fresh[2 * k + 1]
    return True


cdef enum Outcome:
    MATCHED                              # the moments of the site are found
    NO_SITE                              # a row without nonzeros or weight
    IMPROPER_CAVITY
    OUT_OF_RANGE                         # moments leave the range of float64


cdef inline Outcome match_row(
    const Design *X, Likelihood *lik, double y, double extra, double fraction, Py_ssize_t row,
    const double *state, const double *sites, double *work, Latent *f, Tilted *at,
) noexcept nogil:
    """Find the cavity of f of a row, and the moments of its site."""
    cv_prefetch(state, 4, X.indices, X.indptr + row, PREFETCH_NONZEROS, X.nnz)
    if X.indptr[row] == X.indptr[row + 1] or lik.power == 0.0:
        return NO_SITE
    if not without(X, row, fraction, state, sites, work, f):
        return IMPROPER_CAVITY
    if not usable(f[0]):
        return OUT_OF_RANGE
    at[0] = tilted(lik, y, extra, f.mean, f.variance)
    return MATCHED if finite(at[0]) else OUT_OF_RANGE


cdef Py_ssize_t sweep_rows(
    const Design *X, Likelihood *lik, const double *y, const double *extra, bint extras,
    const double *fraction, const double *exponent, bint weighted,   # in  (N,) or (1,)
    Py_ssize_t start, Py_ssize_t stop, double damping, double *work, double *fresh, double *state, double *sites,
    int64_t *skipped,
) noexcept nogil:
    """Return -1, or the first row whose moments leave the range of float64."""
    cdef Py_ssize_t i
    cdef double part
    cdef Latent f
    cdef Tilted at
    cdef Outcome outcome
    for i in range(start, stop):
        part = fraction[i if weighted else 0]
        lik.power = exponent[i if weighted else 0]
        outcome = match_row(X, lik, y[i], extra[i if extras else 0], part, i, state, sites, work, &f, &at)
        if outcome == OUT_OF_RANGE:
            return i
        if outcome == IMPROPER_CAVITY:
            skipped[0] += 1
        elif outcome == MATCHED and not move(X, i, part, f.variance, at, damping, work, fresh, state, sites):
            skipped[0] += 1
    return -1


cdef inline double partition(
    const Design *X, Py_ssize_t row, double fraction, const double *state, const double *sites,
) noexcept nogil:
    """Sum over the nonzeros of A(cavity) - A(posterior), A = log of the integral, means measured from the posterior's.

    A(tau, rho) = tau^2/(2 rho) - log(rho)/2 up to a constant. The cavity must be proper.
    """
    cdef int64_t start = X.indptr[row], k
    cdef double total = 0.0, rho, shift, kept = 1.0 - fraction
    cdef const double *w
    cdef const double *site
    for k in range(start, X.indptr[row + 1]):
        w = state + 4 * <Py_ssize_t> X.indices[k]
        site = sites + 2 * k
        rho = others(w + 1, site + 1) + kept * site[1]
        shift = (others(w, site) + kept * site[0]) / rho - w[0] / w[1]
        total += rho * shift * shift + log1p(fraction * site[1] / rho)
    return 0.5 * total


cdef Py_ssize_t evaluate_rows(
    const Design *X, Likelihood *lik, const double *y, const double *extra, bint extras,
    const double *fraction, const double *exponent, bint weighted, Py_ssize_t start, Py_ssize_t stop, double *work,
    const double *state, const double *sites, double *log_z, double *excess,
) noexcept nogil:
    """Return -1, or the first row whose moments leave the range of float64."""
    cdef Py_ssize_t i
    cdef double part
    cdef Latent f
    cdef Tilted at
    cdef Outcome outcome
    for i in range(start, stop):
        part = fraction[i if weighted else 0]
        lik.power = exponent[i if weighted else 0]
        outcome = match_row(X, lik, y[i], extra[i if extras else 0], part, i, state, sites, work, &f, &at)
        if outcome == OUT_OF_RANGE:
            return i
        log_z[i] = NAN if outcome == IMPROPER_CAVITY else 0.0
        excess[i] = 0.0
        if outcome == MATCHED:
            log_z[i], excess[i] = at.log_z, partition(X, i, part, state, sites)
    return -1


# ------------------------------------------------------------------------------------------------ for Python


cdef class Rows:
    """A CSR matrix with canonical rows, the observations of a likelihood, and work space for one row."""

    cdef const int64_t[::1] _indptr
    cdef const int32_t[::1] _indices
    cdef const double[::1] _x, _offset, _y, _extra
    cdef double[:, ::1] _work, _fresh
    cdef Design X
    cdef Likelihood lik
    cdef bint extras

    def __init__(self, const int64_t[::1] indptr,    # in  (N + 1,)
                 const int32_t[::1] indices,         # in  (nnz,)
                 const double[::1] x,                # in  (nnz,)
                 offset,                             # in  (N,) float64 or None
                 double[:, :, ::1] work,             # work (2, most nonzeros of a row, at least 1, 2)
                 int kind=0,
                 parameters=None,                    # in  (6,) float64, None for a likelihood without a kernel
                 y=None,                             # in  (N,) float64
                 extra=None, /):                     # in  (N,) or (1,) float64
        self._indptr, self._indices, self._x, self._work, self._fresh = indptr, indices, x, work[0], work[1]
        self.X.indptr, self.X.nnz = &indptr[0], x.shape[0]
        self.X.indices = &indices[0] if x.shape[0] else NULL
        self.X.x = &x[0] if x.shape[0] else NULL
        self.X.offset = NULL
        if offset is not None:
            self._offset = offset
            self.X.offset = &self._offset[0]
        if parameters is not None:
            self.lik = unpack(kind, 1.0, parameters)
            self._y, self._extra = y, extra
            self.extras = self._extra.shape[0] > 1

    def moments(self, Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] state, double[::1] mean,
                double[::1] variance, /):
        """Mean and variance of f for rows start..stop, for weights with moments `state` (D, 2)."""
        cdef Py_ssize_t i
        cdef Latent f
        with nogil:
            for i in range(start, stop):
                cv_prefetch(&state[0, 0], 2, self.X.indices, self.X.indptr + i, PREFETCH_NONZEROS, self.X.nnz)
                f = project(&self.X, i, &state[0, 0], &self._work[0, 0])
                mean[i], variance[i] = f.mean, f.variance

    def filter(self, Py_ssize_t start, Py_ssize_t stop,
               const double[::1] weight,             # in    (N,) or None
               double[:, ::1] state,                 # inout (D, 2): means and variances
               double[::1] log_z, /):                # out   (N,)
        """ADF over rows start..stop, a row of weight w taken w times. Returns -1 or a row out of range."""
        cdef const double *weights = NULL
        cdef Likelihood lik = self.lik
        cdef Design X = self.X
        cdef Py_ssize_t row
        if weight is not None:
            weights = &weight[0]
        if state.shape[0] <= CACHED_WEIGHTS:
            X.nnz = 0                    # nothing is prefetched
        with nogil:
            row = filter_rows(&X, &lik, &self._y[0], &self._extra[0], self.extras, weights, start, stop,
                              &self._work[0, 0], &state[0, 0], &log_z[0])
        return row

    def latent(self, Py_ssize_t row, const double[:, ::1] state, /):
        """Moments of f before `absorb` of the same row."""
        cdef Latent f = project(&self.X, row, &state[0, 0], &self._work[0, 0])
        return f.mean, f.variance, usable(f)

    def absorb(self, Py_ssize_t row, double variance, double d1, double d2, double rho, double[:, ::1] state, /):
        """ADF for one row, given the moments of its site; after `latent`, which left the shares of the weights."""
        cdef Tilted at
        at.d1, at.d2, at.rho = d1, d2, rho
        assimilate(&self.X, row, variance, at, &self._work[0, 0], &state[0, 0])

    def sweep(self, Py_ssize_t start, Py_ssize_t stop,
              const double[::1] fraction,            # in    (N,) or (1,): of the site that the cavity lacks
              const double[::1] exponent,            # in    (N,) or (1,): of the likelihood; 0 leaves a row out
              double damping,
              double[:, ::1] state,                  # inout (D, 4): tau and rho, as sums of two
              double[:, ::1] sites, /):              # inout (nnz, 2)
        """EP over rows start..stop. Returns (rows skipped, -1 or a row out of range)."""
        cdef Likelihood lik = self.lik
        cdef int64_t skipped = 0
        cdef Py_ssize_t row
        cdef double *site = &sites[0, 0] if sites.shape[0] else NULL
        with nogil:
            row = sweep_rows(&self.X, &lik, &self._y[0], &self._extra[0], self.extras, &fraction[0], &exponent[0],
                             fraction.shape[0] > 1, start, stop, damping, &self._work[0, 0], &self._fresh[0, 0],
                             &state[0, 0], site, &skipped)
        return skipped, row

    def cavity(self, Py_ssize_t row, double fraction, const double[:, ::1] state, const double[:, ::1] sites, /):
        """Return whether the cavity is proper, the moments of f, and whether these are in range."""
        cdef Latent f
        cdef bint proper = without(&self.X, row, fraction, &state[0, 0], &sites[0, 0], &self._work[0, 0], &f)
        return proper, f.mean, f.variance, usable(f)

    def renew(self, Py_ssize_t row, double fraction, double variance, double d1, double d2, double rho, double damping,
              double[:, ::1] state, double[:, ::1] sites, /):
        """EP for one row, given the moments of its site; after `cavity`. Returns False for a skipped row."""
        cdef Tilted at
        at.d1, at.d2, at.rho = d1, d2, rho
        return move(&self.X, row, fraction, variance, at, damping, &self._work[0, 0], &self._fresh[0, 0],
                    &state[0, 0], &sites[0, 0])

    def evaluate(self, Py_ssize_t start, Py_ssize_t stop, const double[::1] fraction, const double[::1] exponent,
                 const double[:, ::1] state, const double[:, ::1] sites,
                 double[::1] log_z,                  # out (N,): nan where the cavity is improper
                 double[::1] excess, /):             # out (N,): see `partition`
        """log Z of rows start..stop; other arguments as for `sweep`. Returns -1 or a row out of range."""
        cdef Likelihood lik = self.lik
        cdef Py_ssize_t row
        cdef const double *site = &sites[0, 0] if sites.shape[0] else NULL
        with nogil:
            row = evaluate_rows(&self.X, &lik, &self._y[0], &self._extra[0], self.extras, &fraction[0], &exponent[0],
                                fraction.shape[0] > 1, start, stop, &self._work[0, 0], &state[0, 0], site, &log_z[0],
                                &excess[0])
        return row

    def excess(self, Py_ssize_t row, double fraction, const double[:, ::1] state, const double[:, ::1] sites, /):
        """What `evaluate` finds for one row; see `partition`."""
        return partition(&self.X, row, fraction, &state[0, 0], &sites[0, 0])

    def add(self, Py_ssize_t start, Py_ssize_t stop, const double[:, ::1] sites, double[:, ::1] state, /):
        """Add the sites of rows start..stop to the natural parameters (D, 4)."""
        cdef int64_t k
        cdef Py_ssize_t row
        cdef double before[2]
        cdef double *w
        with nogil:
            for row in range(start, stop):
                cv_prefetch(&state[0, 0], 4, self.X.indices, self.X.indptr + row, PREFETCH_NONZEROS, self.X.nnz)
                for k in range(self.X.indptr[row], self.X.indptr[row + 1]):
                    w = &state[0, 0] + 4 * <Py_ssize_t> self.X.indices[k]
                    before[0], before[1] = w[2], w[3]
                    put(w, w[0], sites[k, 0])
                    put(w + 1, w[1], sites[k, 1])
                    w[2] += before[0]
                    w[3] += before[1]


def largest_change(const double[:, ::1] before,      # in (D, 4): tau and rho, as sums of two
                   const double[:, ::1] after, /):
    """Largest move of a mean in posterior sd, or relative change of a variance; nan if there is one."""
    cdef double largest = 0.0, shift, ratio
    cdef Py_ssize_t j
    with nogil:
        for j in range(before.shape[0]):
            shift = fabs(after[j, 0] / after[j, 1] - before[j, 0] / before[j, 1]) * sqrt(after[j, 1])
            ratio = fabs(before[j, 1] - after[j, 1]) / after[j, 1]
            shift = ratio if ratio > shift else shift                # a nan shift stays: no comparison holds
            largest = shift if shift > largest or isnan(shift) else largest
    return largest
