"""Copies of doubles by the widest registers there are, past the caches or into them: include/cavity_stream.h."""

cdef extern from "cavity_stream.h" nogil:
    void cv_copy(double *to, const double *source, Py_ssize_t n) noexcept
    void cv_stream(double *to, const double *source, Py_ssize_t n) noexcept
    void cv_stream_end() noexcept
