"""Constants of mathematics: see include/cavity_constants.h."""

cdef extern from "cavity_constants.h" nogil:
    const double LOG_2 "CV_LOG_2"
    const double LOG_2PI "CV_LOG_2PI"
    const double HALF_LOG_2PI "CV_HALF_LOG_2PI"
    const double INV_2PI "CV_INV_2PI"
