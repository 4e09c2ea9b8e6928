"""Remainders of log Gamma and its derivatives, without branches, for x > 0 however small or large.

With log x given, since x may have underflown, and B(x) = log Gamma(x) - (x - 1/2) log x + x - log(2 pi)/2:

    remainder   B(x)
    first       x (psi(x) - log x)
    second      x^2 (psi'(x) - 1/x)

    rest        B(x) + log(product), where a product of a few of these takes one logarithm

by Stirling's series at x, or at x + 8 below 16 [Abramowitz and Stegun, 6.1.15, 6.1.41, 6.3.18, 6.4.12].
"""

from cavity._core.lanes cimport template
from cavity._core.simd cimport cv_log

cdef struct LogGamma:
    double remainder, first, second, rest, product


cdef inline template log_gamma(double x, double log_x, LogGamma *out) noexcept nogil:
    cdef bint small = x < 16.0
    cdef double t = x if small else 1.0, z = t + 8.0 if small else x, inv = 1.0 / z, w = inv * inv
    # Stirling's series, that of B and its derivatives times -z and z^2
    cdef double series = inv * (1.0 / 12.0 - w * (1.0 / 360.0 - w * (1.0 / 1260.0 - w * (1.0 / 1680.0 - w * (
        1.0 / 1188.0 - w * (691.0 / 360360.0 - w / 156.0))))))
    cdef double of_first = inv * (1.0 / 12.0 - w * (1.0 / 120.0 - w * (1.0 / 252.0 - w * (1.0 / 240.0 - w * (
        1.0 / 132.0 - w * (691.0 / 32760.0 - w / 12.0))))))                      # z (log z - 1/(2 z) - psi(z))
    cdef double of_second = inv * (1.0 / 6.0 - w * (1.0 / 30.0 - w * (1.0 / 42.0 - w * (1.0 / 30.0 - w * (
        5.0 / 66.0 - w * (691.0 / 2730.0 - w * 7.0 / 6.0))))))                   # z^2 psi'(z) - z - 1/2
    # P = (t + 1) ... (t + 7) with P'/P and its derivative, from pairs (t + i)(t + 8 - i) = u + i (8 - i)
    cdef double u = t * (t + 8.0), a = u + 7.0, b = u + 12.0, c = u + 15.0, d = t + 4.0
    cdef double inv_ab = 1.0 / (a * b), inv_cd = 1.0 / (c * d)
    cdef double ra = b * inv_ab, rb = a * inv_ab, rc = d * inv_cd, rd = c * inv_cd
    cdef double log_product = cv_log((a * b) * (c * d)), log_z = cv_log(z)
    cdef double slope = 2.0 * d * (ra + rb + rc) + rd
    cdef double bend = 4.0 * d * d * (ra * ra + rb * rb + rc * rc) - 2.0 * (ra + rb + rc) + rd * rd
    cdef double up_first = log_z - 0.5 * inv - inv * of_first, up_second = inv * (1.0 + 0.5 * inv + inv * of_second)
    out.remainder = ((t + 7.5) * log_z - (t + 0.5) * log_x - 8.0 - log_product) + series if small else series
    out.rest = ((t + 7.5) * log_z - (t + 0.5) * log_x - 8.0) + series if small else series
    out.product = (a * b) * (c * d) if small else 1.0
    out.first = t * (up_first - log_x - slope) - 1.0 if small else -0.5 - of_first
    out.second = t * t * (up_second + bend) + 1.0 - t if small else 0.5 + of_second
