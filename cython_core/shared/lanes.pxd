"""Eight doubles at a time, for kernels that keep values in registers: see include/cavity_lanes.h."""

cdef extern from "cavity_lanes.h" nogil:
    enum:
        CV_STEP, CV_WIDTH
    const double CV_PER_NAT
    ctypedef void template "CV_TEMPLATE void"
    ctypedef struct cv8:
        pass
    void cv_prefetch_32(const double *source) noexcept
    cv8 cv8_load(const double *source) noexcept
    void cv8_store(double *to, cv8 x) noexcept
    cv8 cv8_set(double a) noexcept
    cv8 cv8_add(cv8 a, cv8 b) noexcept
    cv8 cv8_sub(cv8 a, cv8 b) noexcept
    cv8 cv8_mul(cv8 a, cv8 b) noexcept
    cv8 cv8_div(cv8 a, cv8 b) noexcept
    cv8 cv8_max(cv8 a, cv8 b) noexcept
    void cv8_transpose(cv8 *x) noexcept
    cv8 cv8_mantissa(cv8 x) noexcept
    cv8 cv8_exponent(cv8 x) noexcept
    cv8 cv8_root_exp(cv8 x) noexcept
    cv8 cv8_root_exp_any(cv8 x) noexcept
    cv8 cv8_sin_pi(cv8 x) noexcept
    cv8 cv8_sqrt(cv8 x) noexcept
