"""Portable SIMD arithmetic for every kernel: see include/cavity_math.h for design, ranges and errors."""

cdef extern from "cavity_math.h" nogil:
    enum: CV_LANES
    double cv_exp(double x) noexcept
    double cv_exp_rest(double x) noexcept
    double cv_log(double x) noexcept
    double cv_log_1p(double u) noexcept
    double cv_log_1p_known(double u, double inv) noexcept
    double cv_log_1p_excess(double u) noexcept
    double cv_log_normal(double x) noexcept
    double cv_log_ratio(double a, double b) noexcept
    double cv_combine(const double *lanes) noexcept
    double cv_sum(const double *x, Py_ssize_t n) noexcept
    double cv_sum_squares(const double *x, Py_ssize_t n) noexcept
