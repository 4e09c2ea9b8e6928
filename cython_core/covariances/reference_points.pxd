"""Covariances of rows with the points of a `Target` of the module `covariance`, for kernels without the GIL."""

from cpython.pycapsule cimport PyCapsule_GetPointer

cdef extern from *:
    """
    #define CV_REFERENCE_POINTS "cavity.reference_points"
    """
    const char *REFERENCE_POINTS "CV_REFERENCE_POINTS"

cdef struct ReferencePoints:
    Py_ssize_t n_points, n_features
    # out (n, n_points) = covariances of rows X (n, n_features). Returns n; the first row that is not finite or out of
    # reach, and no out then; or -1 without memory
    Py_ssize_t (*fill)(const ReferencePoints *points, const double *X, Py_ssize_t n, double *out) noexcept nogil


cdef inline const ReferencePoints *points_of(object target) except NULL:
    """Those of a Target, which has to live as long."""
    return <const ReferencePoints *>PyCapsule_GetPointer(target.points, REFERENCE_POINTS)
