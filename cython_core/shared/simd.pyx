"""The portable arithmetic as array functions: what the tests measure, in every variant."""

from cavity._core.lanes cimport cv8_load, cv8_root_exp, cv8_root_exp_any, cv8_sin_pi, cv8_sqrt, cv8_store
from cavity._core.stream cimport cv_stream, cv_stream_end


def exp(const double[::1] x,             # in  (N,)
        double[::1] out, /):             # out (N,), may be x
    """out = exp(x)."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(x.shape[0]):
            out[i] = cv_exp(x[i])


def log(const double[::1] x,             # in  (N,)
        double[::1] out, /):             # out (N,), may be x
    """out = log(x)."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(x.shape[0]):
            out[i] = cv_log(x[i])


def root_exp(const double[::1] x,        # in  (N,): N a multiple of 8, x <= 0
             bint bounded,
             double[::1] out, /):        # out (N,), may be x
    """out = 2^(x/16), by the function for -16352 <= x if bounded."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(x.shape[0] // 8):
            if bounded:
                cv8_store(&out[8 * i], cv8_root_exp(cv8_load(&x[8 * i])))
            else:
                cv8_store(&out[8 * i], cv8_root_exp_any(cv8_load(&x[8 * i])))


def sin_pi(const double[::1] x,          # in  (N,): N a multiple of 8, |x| <= 1/2
           double[::1] out, /):          # out (N,), may be x
    """out = sin(pi x)."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(x.shape[0] // 8):
            cv8_store(&out[8 * i], cv8_sin_pi(cv8_load(&x[8 * i])))


def sqrt(const double[::1] x,            # in  (N,): N a multiple of 8
         double[::1] out, /):            # out (N,), may be x
    """out = sqrt(x)."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(x.shape[0] // 8):
            cv8_store(&out[8 * i], cv8_sqrt(cv8_load(&x[8 * i])))


def log_1p_excess(const double[::1] x,   # in  (N,): 0 <= x <= 1e308
                  double[::1] out, /):   # out (N,), may be x
    """out = log(1 + x) - x/(1 + x)."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(x.shape[0]):
            out[i] = cv_log_1p_excess(x[i])


def sum(const double[::1] x, /):         # in  (N,)
    """Sum of x in eight lanes."""
    return cv_sum(&x[0], x.shape[0]) if x.shape[0] else 0.0


def sum_squares(const double[::1] x, /):    # in  (N,)
    """Sum of x**2 in eight lanes."""
    return cv_sum_squares(&x[0], x.shape[0]) if x.shape[0] else 0.0


def stream(const double[::1] x,          # in  (N,)
           double[::1] out, /):          # out (N,)
    """out = x, written past the caches."""
    if x.shape[0]:
        cv_stream(&out[0], &x[0], x.shape[0])
        cv_stream_end()
