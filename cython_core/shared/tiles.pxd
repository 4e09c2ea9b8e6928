"""Squared distances and weighted moments of strips of points: see include/cavity_tiles.h."""

cdef extern from "cavity_tiles.h" nogil:
    enum:
        CV_STRIP, CV_TILE, CV_TILE_SUMS
    Py_ssize_t cv_first_tile(Py_ssize_t n_features) noexcept
    void cv_coordinates(
        bint partial, const double *rows, Py_ssize_t n_features, Py_ssize_t n, Py_ssize_t room, const double *origin,
        const double *scale, double *z, double *seen, Py_ssize_t stride) noexcept
    void cv_distance(Py_ssize_t n_features, const double *z, Py_ssize_t stride, const double *mean,
                     const double *factor, double *d, double *out) noexcept
    void cv_moments(bint plain, Py_ssize_t n_features, double *z, Py_ssize_t stride, const double *mean,
                    const double *r, const double *t, Py_ssize_t n_points, double *d, double *w, double *sums) noexcept
    void cv_distance_by_coordinate(
        bint partial, Py_ssize_t n_features, const double *z, const double *seen, Py_ssize_t stride, const double *mean,
        const double *precision, const double *gain, double *out) noexcept
    void cv_moments_by_coordinate(
        bint partial, Py_ssize_t n_features, const double *z, const double *seen, Py_ssize_t stride, const double *mean,
        const double *r, Py_ssize_t n_points, double *sums, double *total) noexcept
