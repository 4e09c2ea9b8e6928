"""Divergences, expected statistics and updates of the factors of q of a Gaussian mixture, all components in one call.

The formulas are those of models/mixture/factors.py and elbo.py [Bishop2006, section 10.2]: K components in D dimensions
with T = K precisions or T = 1, which all share. Remainders of log Gamma leave no cancellation of large terms:

    log Gamma(b) - log Gamma(a) + (a - b) psi(a) = B(b) - B(a) + (b - 1/2) log(b/a) + (a - b) (1 + psi(a) - log a).

[Bishop2006] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006.
"""

from libc.math cimport NAN, log, sqrt

from cavity._core.constants cimport LOG_2
from cavity._core.log_gamma cimport LogGamma, log_gamma


cdef double shape_terms(double a, double b) noexcept nogil:
    """log Gamma(b)/Gamma(a) + (a - b) psi(a)."""
    cdef LogGamma of_a, of_b
    cdef double log_a = log(a), log_b = log(b)
    log_gamma(a, log_a, &of_a)
    log_gamma(b, log_b, &of_b)
    return of_b.remainder - of_a.remainder + (b - 0.5) * (log_b - log_a) + (a - b) * (1.0 + of_a.first / a)


cdef double digamma(double x) noexcept nogil:
    cdef LogGamma of_x
    cdef double log_x = log(x)
    log_gamma(x, log_x, &of_x)
    return log_x + of_x.first / x


cdef double excess(double y, double x) noexcept nogil:
    """y/x - 1 - log(y/x)."""
    return y / x - 1.0 - (log(y) - log(x))


def dirichlet_divergence(const double[:, :] a,      # in (G, S): of G distributions
                         const double[:, :] b,      # in (G, S)
                         double most, /):
    """KL of Dirichlet(a) from Dirichlet(b), summed; nan if a number is above `most`."""
    cdef double total = 0.0, sum_a, sum_b
    cdef Py_ssize_t g, i
    for g in range(a.shape[0]):
        sum_a = sum_b = 0.0
        for i in range(a.shape[1]):
            sum_a += a[g, i]
            sum_b += b[g, i]
            total += shape_terms(a[g, i], b[g, i])
        if not (sum_a <= most and sum_b <= most):
            return NAN
        total -= shape_terms(sum_a, sum_b)
    return total


def gamma_divergence(const double[:, :] mean, const double[:, :] beta, const double[:, :] nu,
                     const double[:, :] scatter,                       # in (K, D), (K, 1 or D), (K, G), (K, G)
                     const double[:, :] mean0, const double[:, :] beta0, const double[:, :] nu0,
                     const double[:, :] scatter0,                      # in the prior's, of the same shapes
                     double most, /):
    """KL of GammaFactors from the prior's; nan if a shape is above `most`."""
    cdef bint own_beta = beta.shape[1] == mean.shape[1], own_rate = nu.shape[1] == mean.shape[1]
    cdef double total = 0.0, a, b
    cdef Py_ssize_t k, d, e, g
    for k in range(nu.shape[0]):
        for g in range(nu.shape[1]):
            a, b = 0.5 * nu[k, g], 0.5 * nu0[k, g]
            if not (a <= most and b <= most):
                return NAN
            total += shape_terms(a, b) + b * (log(scatter[k, g]) - log(scatter0[k, g]))
            total += a * (scatter0[k, g] / scatter[k, g] - 1.0)
        for d in range(mean.shape[1]):
            e, g = d if own_beta else 0, d if own_rate else 0
            total += 0.5 * excess(beta0[k, e], beta[k, e])
            total += 0.5 * beta0[k, e] * nu[k, g] / scatter[k, g] * (mean[k, d] - mean0[k, d]) ** 2
    return total


def wishart_divergence(const double[:, :] mean, const double[:, :] beta, const double[:] nu,
                       const double[:, :, :] factor, const double[:, :, :] root,   # in (K, D), (K, 1), (T,), (T, D, D)
                       const double[:, :] mean0, const double[:, :] beta0, const double[:] nu0,
                       const double[:, :, :] factor0,                              # in the prior's
                       double most, /):
    """KL of WishartFactors from the prior's; nan if a number of degrees of freedom is above `most`."""
    cdef Py_ssize_t dim = mean.shape[1], shared = nu.shape[0] == 1, t, k, i, j, c
    cdef double total = 0.0, ratio, entry, means, shapes, square
    for t in range(nu.shape[0]):
        if not (nu[t] <= most and nu0[t] <= most):
            return NAN
        ratio, means, shapes = sqrt(nu[t] / nu0[t]), 0.0, 0.0
        for i in range(dim):  # M = ratio root factor0, lower triangular
            for j in range(i + 1):
                entry = 0.0
                for c in range(j, i + 1):
                    entry += root[t, i, c] * factor0[t, c, j]
                entry *= ratio
                means += entry * entry if j < i else entry * entry - 1.0 - 2.0 * log(entry)
            shapes += shape_terms(0.5 * (nu[t] - i), 0.5 * (nu0[t] - i))
        shapes += 0.5 * dim * (nu0[t] * log(nu[t] / nu0[t]) + nu0[t] - nu[t])
        total += 0.5 * nu0[t] * means + shapes
    for k in range(mean.shape[0]):
        t, square = 0 if shared else k, 0.0
        for i in range(dim):
            entry = 0.0
            for j in range(i + 1):
                entry += root[t, i, j] * (mean[k, j] - mean0[k, j])
            square += entry * entry
        total += 0.5 * (dim * excess(beta0[k, 0], beta[k, 0]) + beta0[k, 0] * nu[t] * square)
    return total


def wishart_log_determinants(const double[:] nu,            # in  (T,)
                             const double[:, :, :] factor,  # in  (T, D, D)
                             double[::1] out, /):           # out (T,)
    """E log|L| of Wishart distributions."""
    cdef Py_ssize_t dim = factor.shape[1], t, i
    for t in range(nu.shape[0]):
        out[t] = dim * LOG_2
        for i in range(dim):
            out[t] += digamma(0.5 * (nu[t] - i)) - 2.0 * log(factor[t, i, i])


def wishart_update(const double[:, :] mean,         # in  (K, D): about which the sums are
                   const double[:, :] mean0, const double[:, :] beta0, const double[:] nu0,
                   const double[:, :, :] scatter0,  # in  the prior's
                   const double[:, :] counts,       # in  (K, 1): N_k
                   const double[:, :] first,        # in  (K, D): s_k
                   const double[:, :, :] second,    # in  (K, D, D): S_k
                   double[:, ::1] new_mean, double[:, ::1] new_beta, double[::1] new_nu, double[:, :, ::1] new_scatter,
                   double[:, :, ::1] factor,        # out (T, D, D): lower Cholesky factors of the scatters
                   double[:, :, ::1] root,          # out (T, D, D): their inverses
                   double[:, ::1] steps, /):        # scratch (2, D)
    """The optimal factors; return the index of the first scatter that is not positive definite, or -1."""
    cdef Py_ssize_t dim = mean.shape[1], t, k, i, j, c
    cdef bint shared = nu0.shape[0] == 1
    cdef double n, entry
    for t in range(nu0.shape[0]):
        new_nu[t] = nu0[t]
        for i in range(dim):
            for j in range(dim):
                new_scatter[t, i, j] = scatter0[t, i, j]
                factor[t, i, j] = root[t, i, j] = 0.0
    for k in range(mean.shape[0]):
        t, n = 0 if shared else k, counts[k, 0]
        new_beta[k, 0] = beta0[k, 0] + n
        new_nu[t] += n
        for i in range(dim):  # the steps to the optimum from the own and from the prior's mean
            steps[0, i] = (beta0[k, 0] * (mean0[k, i] - mean[k, i]) + first[k, i]) / new_beta[k, 0]
            steps[1, i] = (first[k, i] + n * (mean[k, i] - mean0[k, i])) / new_beta[k, 0]
            new_mean[k, i] = mean0[k, i] + steps[1, i] if beta0[k, 0] > n else mean[k, i] + steps[0, i]
        for i in range(dim):
            for j in range(i + 1):
                entry = second[k, i, j] - (first[k, i] * steps[0, j] + first[k, j] * steps[0, i])
                entry += n * steps[0, i] * steps[0, j] + beta0[k, 0] * steps[1, i] * steps[1, j]
                new_scatter[t, i, j] += entry
    for t in range(nu0.shape[0]):
        for i in range(dim):
            for j in range(i + 1):
                new_scatter[t, j, i] = entry = new_scatter[t, i, j]
                for c in range(j):
                    entry -= factor[t, i, c] * factor[t, j, c]
                if j < i:
                    factor[t, i, j] = entry / factor[t, j, j]
                elif not entry > 0.0:
                    return t
                else:
                    factor[t, i, i] = sqrt(entry)
            root[t, i, i] = 1.0 / factor[t, i, i]
            for j in range(i):
                entry = 0.0
                for c in range(j, i):
                    entry -= factor[t, i, c] * root[t, c, j]
                root[t, i, j] = entry * root[t, i, i]
    return -1
