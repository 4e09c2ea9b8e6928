"""Filter and smoother of sums of Matern processes over N rows in the order of time, linear in N.

The state of a process of smoothness b - 1/2 is f and b - 1 scaled derivatives, x(t + dt) = A x(t) + N(0, Q), see
cavity/terms/matern_steps.py; those of a sum lie one after the other. f is the sum of their first entries, h'x. With the
prediction N(m, P) of a row, u = P h, v = h'P h and its site (rho, g), g = tau - rho base, the filter is

    scale = 1 + rho v,   m += u (g - rho h'm)/scale,   P -= u u' rho/scale,   log|I + K R| = sum log|scale|,         (1)

for sites of any sign. The smoother carries the derivatives of the log evidence back: a that in the mean, -G/2 that in
the covariance. With those after the site, the posterior of f of a row is

    mean = h'm + [v (g - rho h'm) + u'a]/scale,   variance = v/scale - u'G u/scale^2,                                (2)
    alpha = (K^-1 mean) = [g - rho (h'm + u'a)]/scale,                                                               (3)

then a += alpha h, G = C'G C + h h' rho/scale with C = I - u h' rho/scale, and before the step a = A'a, G = A'G A: the
modified Bryson-Frazier smoother [B]_, which has no inverse of a matrix. So the gradient in a hyperparameter is the sum
of a'(dA) m + tr[(a a' - G) d(A P A' + Q)]/2 over the steps, moments of the filter held fixed.

[B] G. J. Bierman, Fixed interval smoothing with discrete measurements, International Journal of Control 18, 1973.
"""
from libc.stdint cimport int64_t

cdef extern from "cavity_chain.h" nogil:
    ctypedef struct cv_chain_block:
        pass

    ctypedef struct cv_chain:
        Py_ssize_t n_rows
        int n_blocks
        const cv_chain_block *blocks
        const double *gaps
        const double *rho
        const double *g

    int MAX_STATES "CV_MAX_STATES"
    bint cv_filter(int p, const cv_chain *chain, double *moments, double *white, double *totals) noexcept
    void cv_smooth(
        int p, const cv_chain *chain, const double *moments, double *mean, double *variance, double *alpha,
        double *curvature, double *slopes, double *gradient,
    ) noexcept
    void cv_interpolate(
        int p, const cv_chain *chain, const double *moments, const double *slopes, Py_ssize_t n, const int64_t *after,
        const double *before, const double *ahead, double *mean, double *variance,
    ) noexcept

max_states = MAX_STATES


cdef cv_chain make_chain(
    const double[:, ::1] blocks, const double[::1] gaps, const double[::1] rho, const double[::1] g,
) noexcept:
    cdef cv_chain chain
    chain.n_rows, chain.n_blocks = gaps.shape[0], <int> blocks.shape[0]
    chain.blocks = <const cv_chain_block *> &blocks[0, 0]
    chain.gaps, chain.rho, chain.g = &gaps[0], &rho[0], &g[0]
    return chain


cdef int count_states(const double[:, ::1] blocks) noexcept:
    cdef double states = 0.0
    cdef Py_ssize_t k
    for k in range(blocks.shape[0]):
        states += blocks[k, 0]
    return <int> states


def filter_rows(const double[:, ::1] blocks,     # in  (B, 3): states, lam and variance of each process
                const double[::1] gaps,          # in  (N,): from the row before, inf for the first
                const double[::1] rho,           # in  (N,): precisions of sites
                const double[::1] g,             # in  (N,)
                double[:, ::1] moments,          # out (N, p + p (p + 1)/2): means and lower triangles
                double[::1] white, /):           # out (N,): (y - h'm) sqrt(rho/scale), y = g/rho, or None
    """Filter (1); return log|I + K R|, the sum of the squares of `white`, and whether the posterior is proper."""
    cdef cv_chain chain = make_chain(blocks, gaps, rho, g)
    cdef double totals[2]
    cdef double *residuals = NULL if white is None else &white[0]
    cdef int p = count_states(blocks)
    cdef bint proper
    with nogil:
        proper = cv_filter(p, &chain, &moments[0, 0], residuals, totals)
    return totals[0], totals[1], proper


def smooth_rows(const double[:, ::1] blocks, const double[::1] gaps, const double[::1] rho, const double[::1] g,
                const double[:, ::1] moments,    # in  (N, p + p (p + 1)/2): from `filter_rows`
                double[::1] mean,                # out (N,)
                double[::1] variance,            # out (N,)
                double[::1] alpha,               # out (N,)
                double[::1] curvature,           # out (N,): the diagonal of (I + R K)^-1 R
                double[:, ::1] slopes,           # out (N, p + p (p + 1)/2): a and G of each prediction, or None
                double[:, ::1] gradient, /):     # out (B, 2): in log variances and log lengthscales, or None
    """Smooth by (2) and (3)."""
    cdef cv_chain chain = make_chain(blocks, gaps, rho, g)
    cdef double *states = NULL if slopes is None else &slopes[0, 0]
    cdef double *by_logs = NULL if gradient is None else &gradient[0, 0]
    cdef int p = count_states(blocks)
    with nogil:
        cv_smooth(p, &chain, &moments[0, 0], &mean[0], &variance[0], &alpha[0], &curvature[0], states, by_logs)


def interpolate(const double[:, ::1] blocks, const double[::1] gaps,
                const double[:, ::1] moments,    # in  (N, p + p (p + 1)/2)
                const double[:, ::1] slopes,     # in  (N, p + p (p + 1)/2), or None for the filter's predictions
                const int64_t[::1] after,        # in  (n,): the row that follows each time, N for none
                const double[::1] before,        # in  (n,): the gap from the row before, inf for none
                const double[::1] ahead,         # in  (n,): the gap to the row that follows
                double[::1] mean,                # out (n,)
                double[::1] variance, /):        # out (n,)
    """Write the moments of f at other times."""
    cdef cv_chain chain = make_chain(blocks, gaps, gaps, gaps)
    cdef const double *states = NULL
    cdef int p = count_states(blocks)
    cdef Py_ssize_t n = after.shape[0]
    if n == 0:
        return
    if slopes is not None:
        states = &slopes[0, 0]
    with nogil:
        cv_interpolate(p, &chain, &moments[0, 0], states, n, &after[0], &before[0], &ahead[0], &mean[0], &variance[0])
