"""The standard normal distribution, exact in its tails: see include/cavity_normal.h."""

cdef extern from "cavity_normal.h" nogil:
    ctypedef struct Normal "cv_normal":
        double log_cdf, hazard, curvature, variance, excess, pull, log_mills
    Normal cv_standard_normal(double z) noexcept
    Normal cv_normal_of_parts(double z, double x, double mills, double tail, double density) noexcept
    double cv_normal_distance(double z) noexcept
    double cv_normal_density(double z) noexcept
    double cv_mills(double t, double inv) noexcept
    double cv_tail_variance(double t, double inv) noexcept
