"""What the mixture kernels share."""

from libc.stdint cimport uintptr_t

from cavity._core.constants cimport LOG_2
from cavity._core.lanes cimport cv8, cv8_store
from cavity._core.simd cimport cv_combine, cv_log_normal


cdef inline double *aligned(void *memory) noexcept nogil:
    """The first address from `memory` on that is a multiple of 64."""
    return <double *>((<uintptr_t>memory + 63) & ~<uintptr_t>63)


cdef inline double sum_of_lanes(cv8 x) noexcept nogil:
    cdef double lanes[8]
    cv8_store(lanes, x)
    return cv_combine(lanes)


cdef inline double log_of_lanes(cv8 mantissa, cv8 exponent, double shift) noexcept nogil:
    """Sum over lanes of log(mantissa 2^exponent), plus shift/16 powers of two."""
    cdef double lanes[8]
    cdef Py_ssize_t i
    cv8_store(lanes, mantissa)
    for i in range(8):
        lanes[i] = cv_log_normal(lanes[i])
    return (sum_of_lanes(exponent) + shift * 0.0625) * LOG_2 + cv_combine(lanes)
