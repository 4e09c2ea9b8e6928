"""The beliefs of belief.pxd for Python."""

from cavity._core.belief cimport find_posterior, measure_change


def posterior(const double[:, ::1] h, const double[::1] g, const double[::1] root,
              double[:, ::1] factor, double[::1] u, double[:, ::1] triangle, double[:, ::1] wide, /):
    """Factorise the precision; return whether it is finite and positive definite. Arguments as of find_posterior."""
    cdef bint proper = True
    if g.shape[0]:
        with nogil:
            proper = find_posterior(g.shape[0], &h[0, 0], &g[0], &root[0], &factor[0, 0], &u[0], &triangle[0, 0],
                                    &wide[0, 0])
    return proper


def change(const double[:, ::1] factor, const double[::1] u, const double[:, ::1] old_factor, const double[::1] old_u,
           double[:, ::1] ratio, double[:, ::1] squares, /):
    """|L'(u - u_old)| and |RR' - I|. Arguments as of measure_change."""
    cdef double changes[2]
    changes[0] = changes[1] = 0.0
    if u.shape[0]:
        with nogil:
            measure_change(u.shape[0], &factor[0, 0], &u[0], &old_factor[0, 0], &old_u[0], &ratio[0, 0],
                           &squares[0, 0], changes)
    return changes[0], changes[1]
