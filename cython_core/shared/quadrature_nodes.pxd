"""Quadrature rules: see include/cavity_nodes.h and include/cavity_hermite.h."""

cdef extern from "cavity_nodes.h" nogil:
    enum: NODES "CV_NODES"
    const double gauss_nodes "cv_gauss_nodes"[16]
    const double gauss_weights "cv_gauss_weights"[16]

cdef extern from "cavity_hermite.h" nogil:
    enum: HERMITE_RULES "CV_HERMITE_RULES"
    const int hermite_counts "cv_hermite_counts"[6]
    const double hermite_nodes "cv_hermite_nodes"[6][24]
    const double hermite_logs "cv_hermite_logs"[6][24]
