"""Covariances and their derivatives for panels of 8 x 64 pairs of points: see include/cavity_panels.h."""

cdef extern from "cavity_panels.h" nogil:
    enum:
        CV_MATERN_HEAD, CV_PANEL, CV_PANEL_ROWS, CV_PANEL_COLUMNS
    void cv_values(
        bint slopes, int leaf, const double *parameters, Py_ssize_t n_columns, const double *left, const double *right,
        Py_ssize_t n_groups, double *k, double *t, double *by_shape) noexcept
    void cv_white_values(const double *parameters, bint symmetric, Py_ssize_t diagonal, double *k) noexcept
    void cv_join(bint multiply, const double *a, const double *b, Py_ssize_t n_groups, double *out) noexcept
    void cv_slot_sums(
        int leaf, const double *parameters, Py_ssize_t n_columns, const double *left, const double *right,
        Py_ssize_t n_groups, const double *adjoint, const double *k, double *t, const double *by_shape,
        double *lanes) noexcept
    void cv_input_sums(
        int leaf, const double *parameters, Py_ssize_t n_columns, const double *left, const double *right,
        Py_ssize_t n_groups, const double *adjoint, const double *k, double *t, double *lanes) noexcept
    void cv_points(const double *x, Py_ssize_t n, double scale, Py_ssize_t width, double *to) noexcept
    void cv_put_panel(
        bint stream, const double *panel, bint symmetric, Py_ssize_t n_rows, Py_ssize_t n_columns, Py_ssize_t diagonal,
        double *out, Py_ssize_t stride) noexcept
    void cv_mirror_panel(const double *panel, Py_ssize_t n_groups, double *mirrored, Py_ssize_t stride) noexcept
    void cv_put_mirrored(
        bint stream, const double *mirrored, Py_ssize_t n_columns, Py_ssize_t n_rows, Py_ssize_t width,
        Py_ssize_t diagonal, double *out, Py_ssize_t stride) noexcept
    void cv_prefetch_panel(const double *weights, Py_ssize_t stride) noexcept
    void cv_get_panel(
        const double *weights, Py_ssize_t stride, bint symmetric, Py_ssize_t n_rows, Py_ssize_t n_columns,
        Py_ssize_t diagonal, double *panel) noexcept
