"""The portable arithmetic as array functions: what the tests measure, in every variant."""


def exp(const double[::1] x,             # in  (N,)
        double[::1] out):                # out (N,), may be x
    """out = exp(x)."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(x.shape[0]):
            out[i] = cv_exp(x[i])


def log(const double[::1] x,             # in  (N,)
        double[::1] out):                # out (N,), may be x
    """out = log(x)."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(x.shape[0]):
            out[i] = cv_log(x[i])


def sum(const double[::1] x):            # in  (N,)
    """Sum of x in eight lanes."""
    return cv_sum(&x[0], x.shape[0]) if x.shape[0] else 0.0


def sum_squares(const double[::1] x):    # in  (N,)
    """Sum of x**2 in eight lanes."""
    return cv_sum_squares(&x[0], x.shape[0]) if x.shape[0] else 0.0


def stream(const double[::1] x,          # in  (N,)
           double[::1] out):             # out (N,)
    """out = x, written past the caches."""
    if x.shape[0]:
        cv_stream(&out[0], &x[0], x.shape[0])
        cv_stream_end()
