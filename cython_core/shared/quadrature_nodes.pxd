"""Quadrature rules of 16 nodes: see include/cavity_nodes.h."""

cdef extern from "cavity_nodes.h" nogil:
    enum: NODES "CV_NODES"
    const double gauss_nodes "cv_gauss_nodes"[16]
    const double gauss_weights "cv_gauss_weights"[16]
    const double even_nodes "cv_even_nodes"[16]
    const double even_weights "cv_even_weights"[16]
