"""The algebra of scaled Gaussians, one pair at a time.

[H]  R. Herbrich, Efficient Operations on Gaussian Distributions and Factors, 2023, Theorems 1 and 2.

A scaled spherical Gaussian in d dimensions has the value exp(kappa + tau'x - rho |x|^2/2), where log_scale = gamma is
the log of its integral, extended to every precision so that * and / form a group:

    rho != 0     kappa = gamma + d/2 log(|rho|/(2 pi)) - |tau|^2/(2 rho)
    rho == 0     kappa = gamma
    rho == inf   point mass of weight exp(gamma) at x = tau

With u = rho2 tau1 - rho1 tau2 both theorems, with absolute values for improper factors, are one function:

    overlap(p, r, u) = d/2 log|p/(2 pi r)| - |u|^2/(2 p r)
    f g:   rho = rho1 + rho2,  gamma = gamma1 + gamma2 + overlap(rho1 rho2, rho, u)
    f/g:   rho = rho1 - rho2,  gamma = gamma1 - gamma2 - overlap(rho rho2, rho1, u)

`sign` is +1 for a product and -1 for a quotient.

"Ordinary" operands (no zero precision, no product out of range) use exactly these formulas and vectorise. Everything
else goes through the *_special functions: zero and infinite precisions by their own algebra, extreme exponents by
splitting off powers of two. Which branch is taken depends on the element alone.
"""

from libc.math cimport INFINITY, NAN, fabs, frexp, isfinite, ldexp
from libc.stdint cimport int64_t

from cavity._core.constants cimport INV_2PI, LOG_2, LOG_2PI
from cavity._core.simd cimport cv_log, cv_log_ratio
from cavity._core.status_codes cimport DIVIDED_BY_POINT_MASS, OK, OVERFLOWED

cdef enum:
    CHUNK_ROWS = 128                      # rows staged on the stack by the array kernels

cdef extern from *:
    """
    /* with these bounds every product and quotient of an overlap is normal, or too small to matter */
    #define CV_TINY_E 0x1p-600
    #define CV_HUGE_E 0x1p600
    #define CV_TINY_R 0x1p-150
    #define CV_HUGE_R 0x1p150
    #define CV_HUGE_U2 0x1p400
    #define CV_HUGE_TAU 0x1p400
    """
    const double TINY_E "CV_TINY_E"
    const double HUGE_E "CV_HUGE_E"
    const double TINY_R "CV_TINY_R"
    const double HUGE_R "CV_HUGE_R"
    const double HUGE_U2 "CV_HUGE_U2"
    const double HUGE_TAU "CV_HUGE_TAU"

cdef struct Row:                         # one result, d = 1
    double tau, rho, gamma
    int64_t special                      # non-zero: the other fields mean nothing


cdef inline int64_t is_special(double p, double r, double u2, double tau) noexcept nogil:
    """1 unless `overlap` is accurate; p = p1 p2, |u|^2, and tau the result.

    An infinite, nan or zero operand shows in p r, |u|^2 or tau. The type and form are those that vectorise.
    """
    return 0 if ((TINY_E < fabs(p * r)) & (fabs(p * r) < HUGE_E) & (TINY_R < fabs(r)) & (fabs(r) < HUGE_R)
                 & (u2 < HUGE_U2) & (fabs(tau) < HUGE_TAU)) else 1


cdef inline double overlap(double p, double r, double u2, double d) noexcept nogil:
    """overlap(p, r, u) of the file's head, for ordinary operands; u2 = |u|^2/d."""
    return 0.5 * d * (cv_log_ratio(fabs(p), fabs(r)) - u2 / (p * r) - LOG_2PI)


cdef inline Row multiply_row(
    double tau1, double rho1, double gamma1, double tau2, double rho2, double gamma2,
) noexcept nogil:
    """f g for ordinary operands, d = 1."""
    cdef Row row
    cdef double u = tau1 * rho2 - tau2 * rho1
    row.tau = tau1 + tau2
    row.rho = rho1 + rho2
    row.gamma = (gamma1 + gamma2) + overlap(rho1 * rho2, row.rho, u * u, 1.0)
    row.special = is_special(rho1 * rho2, row.rho, u * u, row.tau)
    return row


cdef inline Row divide_row(
    double tau1, double rho1, double gamma1, double tau2, double rho2, double gamma2,
) noexcept nogil:
    """f/g for ordinary operands, d = 1."""
    cdef Row row
    cdef double u = tau1 * rho2 - tau2 * rho1
    row.tau = tau1 - tau2
    row.rho = rho1 - rho2
    row.gamma = (gamma1 - gamma2) - overlap(row.rho * rho2, rho1, u * u, 1.0)
    row.special = is_special(row.rho * rho2, rho1, u * u, row.tau)
    return row


cdef inline double overlap_scaled(
    const double *tau1, double rho1,     # in (d,)
    const double *tau2, double rho2,     # in (d,)
    double p1, double p2, double r, Py_ssize_t d,
) noexcept nogil:
    """overlap(p1 p2, r, u) for any finite non-zero precisions: mantissas and exponents are kept apart."""
    cdef int e1, e2, er, f1, f2, top = -100000
    cdef double m1 = frexp(p1, &e1), m2 = frexp(p2, &e2), mr = frexp(r, &er)
    cdef double n1 = frexp(rho1, &f1), n2 = frexp(rho2, &f2)
    cdef double log_term = cv_log(fabs(m1 * m2 / mr) * INV_2PI) + (e1 + e2 - er) * LOG_2
    cdef double t1, t2, u, u2 = 0.0
    cdef int a, b
    cdef Py_ssize_t j
    for j in range(d):                   # top: the largest exponent among the terms of u
        frexp(tau1[j], &a)
        frexp(tau2[j], &b)
        if tau1[j] != 0.0:
            top = max(top, a + f2)
        if tau2[j] != 0.0:
            top = max(top, b + f1)
    if top == -100000:
        return 0.5 * d * log_term
    for j in range(d):
        t1 = frexp(tau1[j], &a)          # before a and b are read: C leaves the order of arguments open
        t2 = frexp(tau2[j], &b)
        u = ldexp(t1 * n2, a + f2 - top) - ldexp(t2 * n1, b + f1 - top)
        u2 += u * u
    return 0.5 * (d * log_term - ldexp(u2 / (m1 * m2 * mr), 2 * top - e1 - e2 - er))


cdef inline double form(
    const double *x, const double *y,    # in (d,)
    double a, double b, double c, double e, double rho, Py_ssize_t d,
) noexcept nogil:
    """2/rho sum_j (a x_j + b y_j)(c x_j + e y_j) without intermediate overflow; |a| + |b|, |c| + |e| <= 1."""
    cdef int ep = -100000, eq = -100000, k, l
    cdef double total = 0.0, mp, mq
    cdef Py_ssize_t j
    for j in range(d):
        if frexp(a * x[j] + b * y[j], &k) != 0.0:
            ep = max(ep, k)
        if frexp(c * x[j] + e * y[j], &l) != 0.0:
            eq = max(eq, l)
    if ep == -100000 or eq == -100000:
        return 0.0
    for j in range(d):
        mp = frexp(a * x[j] + b * y[j], &k)
        mq = frexp(c * x[j] + e * y[j], &l)
        total += ldexp(mp, k - ep) * ldexp(mq, l - eq)
    mp = frexp(rho, &k)
    return ldexp(2.0 * total / mp, ep + eq - k)


cdef inline double log_value(
    const double *x, const double *tau,  # in (d,)
    double rho, double gamma, Py_ssize_t d,
) noexcept nogil:
    """log of the scaled Gaussian (finite rho) at the finite point x."""
    cdef double total = 0.0, deviation
    cdef Py_ssize_t j
    if rho == 0.0:
        for j in range(d):
            total += tau[j] * x[j]
        return gamma + total
    for j in range(d):
        deviation = rho * x[j] - tau[j]
        total += deviation * (deviation / rho)
    return gamma + 0.5 * (d * (cv_log(fabs(rho)) - LOG_2PI) - total)


cdef inline bint same_place(const double *x, const double *y, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(d):
        if x[j] != y[j]:
            return False
    return True


cdef inline int finish(
    const double *tau1, const double *tau2, double sign,   # in (d,)
    double rho, double gamma, bint exact,
    double *tau_out, double *rho_out, double *gamma_out,   # out (d,), may be tau1 or tau2
    Py_ssize_t d,
) noexcept nogil:
    """Write the result; return whether finite operands gave a natural parameter beyond float64."""
    cdef Py_ssize_t j
    cdef double tau
    if exact and not isfinite(rho):
        return OVERFLOWED
    for j in range(d):
        tau = tau1[j] + sign * tau2[j]
        if exact and not isfinite(tau):
            return OVERFLOWED
        tau_out[j] = tau
    rho_out[0] = rho
    gamma_out[0] = gamma
    return OK


cdef inline bint all_finite(const double *tau, double rho, Py_ssize_t d) noexcept nogil:
    cdef Py_ssize_t j
    if not isfinite(rho):
        return False
    for j in range(d):
        if not isfinite(tau[j]):
            return False
    return True


cdef inline int at_point(
    const double *place, double gamma,
    double *tau_out, double *rho_out, double *gamma_out, Py_ssize_t d,
) noexcept nogil:
    """Write a point mass."""
    cdef Py_ssize_t j
    for j in range(d):
        tau_out[j] = place[j]
    rho_out[0] = INFINITY
    gamma_out[0] = gamma
    return OK


cdef inline int multiply_special(
    const double *tau1, double rho1, double gamma1,
    const double *tau2, double rho2, double gamma2,
    double *tau, double *rho, double *gamma, Py_ssize_t d,
) noexcept nogil:
    """f g for operands that are not ordinary (math of the limits: see the file's head)."""
    cdef double r = rho1 + rho2, g = gamma1 + gamma2
    cdef bint exact = all_finite(tau1, rho1, d) and all_finite(tau2, rho2, d)
    if rho1 == INFINITY and rho2 == INFINITY:
        return at_point(tau1, NAN if same_place(tau1, tau2, d) else -INFINITY, tau, rho, gamma, d)
    if rho1 == INFINITY:
        return at_point(tau1, gamma1 + log_value(tau1, tau2, rho2, gamma2, d), tau, rho, gamma, d)
    if rho2 == INFINITY:
        return at_point(tau2, gamma2 + log_value(tau2, tau1, rho1, gamma1, d), tau, rho, gamma, d)
    if exact and isfinite(r):
        if rho1 == 0.0 and rho2 == 0.0:
            pass
        elif rho2 == 0.0:                # (2 tau1 + tau2) tau2/(2 rho1)
            g += form(tau1, tau2, 0.0, 1.0, 0.5, 0.25, rho1, d)
        elif rho1 == 0.0:
            g += form(tau2, tau1, 0.0, 1.0, 0.5, 0.25, rho2, d)
        elif r == 0.0:                   # kappa1 + kappa2
            g += d * (cv_log(fabs(rho1)) - LOG_2PI) - form(tau1, tau2, 0.5, -0.5, 0.5, 0.5, rho1, d)
        else:
            g += overlap_scaled(tau1, rho1, tau2, rho2, rho1, rho2, r, d)
    elif not exact:
        g = NAN
    return finish(tau1, tau2, 1.0, r, g, exact, tau, rho, gamma, d)


cdef inline int divide_special(
    const double *tau1, double rho1, double gamma1,
    const double *tau2, double rho2, double gamma2,
    double *tau, double *rho, double *gamma, Py_ssize_t d,
) noexcept nogil:
    """f/g for operands that are not ordinary."""
    cdef double r = rho1 - rho2, g = gamma1 - gamma2
    cdef bint exact = all_finite(tau1, rho1, d) and all_finite(tau2, rho2, d)
    if rho2 == INFINITY:
        return DIVIDED_BY_POINT_MASS
    if rho1 == INFINITY:
        return at_point(tau1, gamma1 - log_value(tau1, tau2, rho2, gamma2, d), tau, rho, gamma, d)
    if exact and isfinite(r):
        if rho1 == 0.0 and rho2 == 0.0:
            pass
        elif rho2 == 0.0:                # (tau2 - 2 tau1) tau2/(2 rho1)
            g += form(tau1, tau2, 0.0, 1.0, -0.5, 0.25, rho1, d)
        elif rho1 == 0.0:                # (2 tau2 - tau1) tau1/(2 rho2)
            g += form(tau1, tau2, 1.0, 0.0, -0.25, 0.5, rho2, d)
            g -= d * (cv_log(fabs(rho2)) - LOG_2PI)
        elif r == 0.0:                   # kappa1 - kappa2
            g -= form(tau1, tau2, 0.5, -0.5, 0.5, 0.5, rho1, d)
        else:
            g -= overlap_scaled(tau1, rho1, tau2, rho2, r, rho2, rho1, d)
    elif not exact:
        g = NAN
    return finish(tau1, tau2, -1.0, r, g, exact, tau, rho, gamma, d)


cdef inline int64_t row_d(
    double sign,
    const double *tau1, double rho1, double gamma1,        # in (d,)
    const double *tau2, double rho2, double gamma2,        # in (d,)
    double *rho, double *gamma,                            # out
    Py_ssize_t d,
) noexcept nogil:
    """Precision and log scale of f g or f/g for ordinary operands in d dimensions; non-zero if special."""
    cdef double r = rho1 + sign * rho2
    cdef double p = r * rho2 if sign < 0.0 else rho1 * rho2
    cdef double denominator = rho1 if sign < 0.0 else r
    cdef double u2 = 0.0, top = 0.0, u, t
    cdef Py_ssize_t j
    for j in range(d):
        u = tau1[j] * rho2 - tau2[j] * rho1
        u2 += u * u
        t = fabs(tau1[j] + sign * tau2[j])
        top = t if t > top else top      # nan is ignored here, but shows in u2
    if is_special(p, denominator, u2, top):
        return 1
    rho[0] = r
    gamma[0] = (gamma1 + sign * gamma2) + sign * overlap(p, denominator, u2 / d, <double> d)
    return 0


cdef inline int combine_one(
    double sign,
    const double *tau1, double rho1, double gamma1,        # in (d,)
    const double *tau2, double rho2, double gamma2,        # in (d,)
    double *tau, double *rho, double *gamma,               # out (d,), may be the operands
    Py_ssize_t d,
) noexcept nogil:
    """f g or f/g for any operands; for d = 1 the same bits as the array loops."""
    cdef Row row
    cdef double r = 0.0, g = 0.0
    cdef Py_ssize_t j
    cdef int64_t found
    if d == 1:
        row = (multiply_row(tau1[0], rho1, gamma1, tau2[0], rho2, gamma2) if sign > 0.0
               else divide_row(tau1[0], rho1, gamma1, tau2[0], rho2, gamma2))
        found, r, g = row.special, row.rho, row.gamma
    else:
        found = row_d(sign, tau1, rho1, gamma1, tau2, rho2, gamma2, &r, &g, d)
    if found and sign < 0.0:
        return divide_special(tau1, rho1, gamma1, tau2, rho2, gamma2, tau, rho, gamma, d)
    if found:
        return multiply_special(tau1, rho1, gamma1, tau2, rho2, gamma2, tau, rho, gamma, d)
    for j in range(d):
        tau[j] = tau1[j] + sign * tau2[j]
    rho[0] = r
    gamma[0] = g
    return OK
