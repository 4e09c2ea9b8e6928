"""Sites through pointers into the module `sites`, so that they are compiled there only.

A kernel that cimports from here calls `connect()` once; sites are then those of the best instruction set.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer

from cavity._core.site_types cimport Likelihood, Tilted

ctypedef Tilted (*TiltedCall)(const Likelihood *, double, double, double, double) noexcept nogil
ctypedef void (*MatchCall)(
    Likelihood *, Py_ssize_t, const double *, Py_ssize_t, const double *, const double *, Py_ssize_t, const double *,
    const double *, bint, double *, double *, double *,
) noexcept nogil

cdef struct SiteCalls:
    TiltedCall tilted                    # sites.pxd
    MatchCall match_tile                 # site_tiles.pxd

cdef extern from *:
    """
    static void *cv_site_calls;          /* of the module that includes this */
    #define cv_connect(calls) (cv_site_calls = (calls))
    """
    void *site_calls "cv_site_calls"
    void set_calls "cv_connect"(void *calls)


cdef inline int connect() except -1:
    """Set the pointers to the functions of `sites`."""
    from cavity._core import best

    set_calls(PyCapsule_GetPointer(best("sites").calls, b"cavity.sites"))
    return 0


cdef inline Tilted tilted(const Likelihood *lik, double y, double extra, double m, double v) noexcept nogil:
    return (<SiteCalls *> site_calls).tilted(lik, y, extra, m, v)


cdef inline void match_tile(
    Likelihood *lik, Py_ssize_t n, const double *power, Py_ssize_t powers, const double *y, const double *extra,
    Py_ssize_t extras, const double *m, const double *v, bint natural, double *log_z, double *first, double *second,
) noexcept nogil:
    (<SiteCalls *> site_calls).match_tile(lik, n, power, powers, y, extra, extras, m, v, natural, log_z, first, second)
