"""log Phi, the hazard phi/Phi and the variance beyond a bound, over arrays.

Values are computed into a small tile first: outputs that may alias the input would keep the loop from vectorising.
"""

from cavity._core.normal cimport Normal, cv_standard_normal

cdef enum:
    TILE_VALUES = 128


def log_cdf_hazard(const double[::1] z,          # in  (N,)
                   double[::1] log_cdf,          # out (N,): log Phi(z)
                   double[::1] hazard, /):       # out (N,): phi(z)/Phi(z)
    """Both at once; the second derivative of log Phi is left out."""
    cdef Py_ssize_t n = z.shape[0], tile, start, i, m
    cdef double x[TILE_VALUES]
    cdef double first[TILE_VALUES]
    cdef double second[TILE_VALUES]
    cdef Normal at
    with nogil:
        for tile in range((n + TILE_VALUES - 1) // TILE_VALUES):
            start = tile * TILE_VALUES
            m = min(TILE_VALUES, n - start)
            for i in range(m):
                x[i] = z[start + i]
            for i in range(m, TILE_VALUES):
                x[i] = 0.0
            for i in range(TILE_VALUES):
                at = cv_standard_normal(x[i])
                first[i], second[i] = at.log_cdf, at.hazard
            for i in range(m):
                log_cdf[start + i], hazard[start + i] = first[i], second[i]


def curvature(const double[::1] z,               # in  (N,)
              double[::1] w,                     # out (N,): -(log Phi)''(z)
              double[::1] variance,              # out (N,): 1 - w
              double[::1] pull, /):              # out (N,): h + z w
    """The second derivative of log Phi and what goes with it."""
    cdef Py_ssize_t i
    cdef Normal at
    with nogil:
        for i in range(z.shape[0]):
            at = cv_standard_normal(z[i])
            w[i], variance[i], pull[i] = at.curvature, at.variance, at.pull
