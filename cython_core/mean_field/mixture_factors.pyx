"""Divergences, expected statistics and updates of the factors of q of a Gaussian mixture, all components in one call.

The formulas are those of models/mixture/factors.py and elbo.py [Bishop2006, section 10.2]: K components in D dimensions
with T = K precisions or T = 1, which all share. Remainders of log Gamma leave no cancellation of large terms:

    log Gamma(b) - log Gamma(a) + (a - b) psi(a) = B(b) - B(a) + (b - 1/2) log(b/a) + (a - b) (1 + psi(a) - log a).

[Bishop2006] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006.
"""

from libc.float cimport DBL_MAX
from libc.math cimport NAN, log, sqrt

from cavity._core.constants cimport LOG_2, LOG_2PI
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


cdef double log_determinant(Py_ssize_t dim, double nu, const double[:, :, :] factor, Py_ssize_t t) noexcept nogil:
    """E log|L| of a Wishart distribution."""
    cdef double total = dim * LOG_2
    cdef Py_ssize_t i
    for i in range(dim):
        total += digamma(0.5 * (nu - i)) - 2.0 * log(factor[t, i, i])
    return total


cdef bint factorise(Py_ssize_t dim,
                    const double *scatter,      # in  (D, D), of which the lower triangle is read
                    double *factor,             # out (D, D): its lower Cholesky factor
                    double *root) noexcept nogil:   # out (D, D): the inverse of that
    """Whether a matrix is positive definite."""
    cdef Py_ssize_t i, j, c
    cdef double entry
    for i in range(dim):
        for j in range(dim):
            factor[i * dim + j] = root[i * dim + j] = 0.0
    for i in range(dim):
        for j in range(i + 1):
            entry = scatter[i * dim + j]
            for c in range(j):
                entry -= factor[i * dim + c] * factor[j * dim + c]
            if j < i:
                factor[i * dim + j] = entry / factor[j * dim + j]
            elif not entry > 0.0:
                return False
            else:
                factor[i * dim + i] = sqrt(entry)
        root[i * dim + i] = 1.0 / factor[i * dim + i]
        for j in range(i):
            entry = 0.0
            for c in range(j, i):
                entry -= factor[i * dim + c] * root[c * dim + j]
            root[i * dim + j] = entry * root[i * dim + i]
    return True


cdef bint all_finite(const double[::1] values) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(values.shape[0]):
        if not -DBL_MAX <= values[i] <= DBL_MAX:
            return False
    return True


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
    cdef Py_ssize_t t
    for t in range(nu.shape[0]):
        out[t] = log_determinant(factor.shape[1], nu[t], factor, t)


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
    cdef Py_ssize_t dim = mean.shape[1], t, k, i, j
    cdef bint shared = nu0.shape[0] == 1
    cdef double n, entry
    for t in range(nu0.shape[0]):
        new_nu[t] = nu0[t]
        for i in range(dim):
            for j in range(dim):
                new_scatter[t, i, j] = scatter0[t, i, j]
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
            for j in range(i):
                new_scatter[t, j, i] = new_scatter[t, i, j]
        if not factorise(dim, &new_scatter[t, 0, 0], &factor[t, 0, 0], &root[t, 0, 0]):
            return t
    return -1


def wishart_constants(const double[:, :] beta, const double[:] nu,                    # in  (K, 1), (T,)
                      const double[:, :, :] factor, const double[:, :, :] root,       # in  (T, D, D)
                      double[::1] height,                                             # out (K,)
                      double[:, :, ::1] precision, /):                                # out (K, D, D)
    """E log N(x; mu_k, 1/L_k) = height_k - |precision_k (x - mean_k)|^2/2."""
    cdef Py_ssize_t dim = factor.shape[1], shared = nu.shape[0] == 1, k, t, i, j
    cdef double scale
    for k in range(beta.shape[0]):
        t = 0 if shared else k
        height[k] = 0.5 * (log_determinant(dim, nu[t], factor, t) - dim * LOG_2PI - dim / beta[k, 0])
        scale = sqrt(nu[t])
        for i in range(dim):
            for j in range(dim):
                precision[k, i, j] = scale * root[t, i, j]


def wishart_coordinates(const double[:, :] mean, const double[:, :] beta, const double[:] nu,
                        const double[:, :, :] scatter, const double[:, :, :] factor,
                        const double[:, :, :] root,     # in  (K, D), (K, 1), (T,), (T, D, D) each
                        double[::1] natural,            # out (K D + K + T D D + T,)
                        double[::1] statistics, /):     # out the same
    """Natural parameters beta m, -beta/2, -(V + beta m m')/2, nu/2, and the expected statistics of each."""
    cdef Py_ssize_t n = mean.shape[0], dim = mean.shape[1], T = nu.shape[0], shared = T == 1, k, t, i, j, c
    cdef Py_ssize_t of_beta = n * dim, of_moment = of_beta + n, of_nu = of_moment + T * dim * dim, at
    cdef double entry
    for t in range(T):
        natural[of_nu + t] = 0.5 * nu[t]
        statistics[of_nu + t] = log_determinant(dim, nu[t], factor, t)
        for i in range(dim):
            for j in range(i + 1):
                entry = 0.0  # of the expected precision nu root' root
                for c in range(i, dim):
                    entry += root[t, c, i] * root[t, c, j]
                at = of_moment + t * dim * dim
                statistics[at + i * dim + j] = statistics[at + j * dim + i] = nu[t] * entry
                natural[at + i * dim + j] = -0.5 * scatter[t, i, j]
                natural[at + j * dim + i] = -0.5 * scatter[t, j, i]
    for k in range(n):
        at = of_moment + (0 if shared else k) * dim * dim
        natural[of_beta + k], statistics[of_beta + k] = -0.5 * beta[k, 0], dim / beta[k, 0]
        for i in range(dim):
            entry = 0.0
            for j in range(dim):
                entry += statistics[at + i * dim + j] * mean[k, j]
                natural[at + i * dim + j] -= 0.5 * beta[k, 0] * (mean[k, i] * mean[k, j])
            natural[k * dim + i], statistics[k * dim + i] = beta[k, 0] * mean[k, i], entry
            statistics[of_beta + k] += entry * mean[k, i]


def wishart_at(const double[::1] natural,               # in  as wishart_coordinates has them
               double[:, ::1] mean, double[:, ::1] beta, double[::1] nu, double[:, :, ::1] scatter,
               double[:, :, ::1] factor, double[:, :, ::1] root, /):    # out as there
    """Whether these are the natural parameters of proper factors, which are then filled in."""
    cdef Py_ssize_t n = mean.shape[0], dim = mean.shape[1], T = nu.shape[0], shared = T == 1, k, t, i, j
    cdef Py_ssize_t of_beta = n * dim, of_moment = of_beta + n, of_nu = of_moment + T * dim * dim, at
    if not all_finite(natural):
        return False
    for t in range(T):
        nu[t], at = 2.0 * natural[of_nu + t], of_moment + t * dim * dim
        if not nu[t] > dim - 1:
            return False
        for i in range(dim):
            for j in range(dim):
                scatter[t, i, j] = -natural[at + i * dim + j] - natural[at + j * dim + i]
    for k in range(n):
        t, beta[k, 0] = 0 if shared else k, -2.0 * natural[of_beta + k]
        if not beta[k, 0] > 0.0:
            return False
        for i in range(dim):
            mean[k, i] = natural[k * dim + i] / beta[k, 0]
        for i in range(dim):
            for j in range(dim):
                scatter[t, i, j] -= beta[k, 0] * (mean[k, i] * mean[k, j])
    for t in range(T):
        if not factorise(dim, &scatter[t, 0, 0], &factor[t, 0, 0], &root[t, 0, 0]):
            return False
    return True


def gamma_update(const double[:, :] mean,           # in  (K, D): about which the sums are
                 const double[:, :] mean0, const double[:, :] beta0, const double[:, :] nu0,
                 const double[:, :] scatter0,       # in  the prior's
                 const double[:, :] counts,         # in  (K, 1) or (K, D)
                 const double[:, :] first, const double[:, :] second,   # in  (K, D)
                 double[:, ::1] new_mean, double[:, ::1] new_beta, double[:, ::1] new_nu,
                 double[:, ::1] new_scatter, /):    # out the optimal factors; new_beta has the width of counts or beta0
    """As wishart_update, for precisions of columns, or of all columns of a component."""
    cdef Py_ssize_t k, d, e, g, dim = mean.shape[1]
    cdef bint own_count = counts.shape[1] == dim, own_beta = beta0.shape[1] == dim, own_rate = nu0.shape[1] == dim
    cdef double n, beta, step, away
    for k in range(mean.shape[0]):
        for g in range(nu0.shape[1]):
            new_nu[k, g], new_scatter[k, g] = nu0[k, g], scatter0[k, g]
        for d in range(dim):
            e, g = d if own_beta else 0, d if own_rate else 0
            n = counts[k, d if own_count else 0]
            beta = new_beta[k, d if own_count else e] = beta0[k, e] + n
            step = (beta0[k, e] * (mean0[k, d] - mean[k, d]) + first[k, d]) / beta
            away = (first[k, d] + n * (mean[k, d] - mean0[k, d])) / beta
            new_mean[k, d] = mean0[k, d] + away if beta0[k, e] > n else mean[k, d] + step
            new_nu[k, g] += n
            new_scatter[k, g] += second[k, d] + step * (n * step - 2.0 * first[k, d]) + beta0[k, e] * away * away


def gamma_coordinates(const double[:, :] mean, const double[:, :] beta, const double[:, :] nu,
                      const double[:, :] scatter,       # in  (K, D), (K, 1 or D), (K, G), (K, G)
                      double[::1] natural,              # out of the sizes of mean, beta, scatter and nu together
                      double[::1] statistics, /):       # out the same
    """Natural parameters beta m, -beta/2, -(s + beta m^2)/2, nu/2, and the expected statistics of each."""
    cdef Py_ssize_t n = mean.shape[0], dim = mean.shape[1], betas = beta.shape[1], rates = nu.shape[1], k, d, e, g
    cdef Py_ssize_t of_beta = n * dim, of_moment = of_beta + n * betas, of_nu = of_moment + n * rates
    cdef double precision
    for k in range(n):
        for g in range(rates):
            natural[of_moment + k * rates + g], natural[of_nu + k * rates + g] = -0.5 * scatter[k, g], 0.5 * nu[k, g]
            statistics[of_moment + k * rates + g] = nu[k, g] / scatter[k, g]
            statistics[of_nu + k * rates + g] = digamma(0.5 * nu[k, g]) - log(0.5 * scatter[k, g])
        for e in range(betas):
            natural[of_beta + k * betas + e], statistics[of_beta + k * betas + e] = -0.5 * beta[k, e], 0.0
        for d in range(dim):
            e, g = d if betas == dim else 0, d if rates == dim else 0
            precision = nu[k, g] / scatter[k, g]
            natural[k * dim + d], statistics[k * dim + d] = beta[k, e] * mean[k, d], precision * mean[k, d]
            natural[of_moment + k * rates + g] -= 0.5 * beta[k, e] * (mean[k, d] * mean[k, d])
            statistics[of_beta + k * betas + e] += 1.0 / beta[k, e] + precision * (mean[k, d] * mean[k, d])


def gamma_at(const double[::1] natural,         # in  as gamma_coordinates has them
             double[:, ::1] mean, double[:, ::1] beta, double[:, ::1] nu, double[:, ::1] scatter, /):   # out as there
    """Whether these are the natural parameters of proper factors, which are then filled in."""
    cdef Py_ssize_t n = mean.shape[0], dim = mean.shape[1], betas = beta.shape[1], rates = nu.shape[1], k, d, e, g
    cdef Py_ssize_t of_beta = n * dim, of_moment = of_beta + n * betas, of_nu = of_moment + n * rates
    if not all_finite(natural):
        return False
    for k in range(n):
        for e in range(betas):
            beta[k, e] = -2.0 * natural[of_beta + k * betas + e]
            if not beta[k, e] > 0.0:
                return False
        for g in range(rates):
            nu[k, g] = 2.0 * natural[of_nu + k * rates + g]
            scatter[k, g] = -2.0 * natural[of_moment + k * rates + g]
            if not nu[k, g] > 0.0:
                return False
        for d in range(dim):
            e, g = d if betas == dim else 0, d if rates == dim else 0
            mean[k, d] = natural[k * dim + d] / beta[k, e]
            scatter[k, g] -= beta[k, e] * (mean[k, d] * mean[k, d])
        for g in range(rates):
            if not scatter[k, g] > 0.0:
                return False
    return True


def dirichlet_statistics(const double[:, :] a,      # in  (G, S): of G distributions
                         double[:, ::1] out, /):    # out (G, S)
    """The expected logs psi(a) - psi(sum of a)."""
    cdef Py_ssize_t g, i
    cdef double total, of_total
    for g in range(a.shape[0]):
        total = 0.0
        for i in range(a.shape[1]):
            total += a[g, i]
        of_total = digamma(total)
        for i in range(a.shape[1]):
            out[g, i] = digamma(a[g, i]) - of_total
