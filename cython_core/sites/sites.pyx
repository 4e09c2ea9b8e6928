"""Sites of a likelihood over arrays, and for other kernels."""

from cpython.pycapsule cimport PyCapsule_New

from cavity._core.site_calls cimport SiteCalls
from cavity._core.site_tiles cimport QUEUES, Queue, empty_queues, match_rows, match_tile, send
from cavity._core.site_types cimport Likelihood, unpack
from cavity._core.sites cimport tilted

cdef SiteCalls table
table.tilted, table.match_tile = tilted, match_tile
calls = PyCapsule_New(&table, "cavity.sites", NULL)


def evaluate(int kind, const double[::1] parameters,
             const double[::1] power,        # in  (N,) or (1,)
             const double[::1] y,            # in  (N,)
             const double[::1] extra,        # in  (N,) or (1,): upper bounds or constants of log p
             const double[::1] mean,         # in  (N,): of the cavities
             const double[::1] variance,     # in  (N,)
             bint natural,
             double[::1] log_z,              # out (N,)
             double[::1] first,              # out (N,): d1, or tau if natural
             double[::1] second, /):         # out (N,): d2, or rho if natural
    """log_z with its derivatives d1, d2, or with the natural parameters tau, rho of the sites."""
    cdef Likelihood lik = unpack(kind, power[0], parameters)
    cdef Py_ssize_t n = y.shape[0]
    if n:
        with nogil:
            match_tile(&lik, n, &power[0], power.shape[0] > 1, &y[0], &extra[0], extra.shape[0] > 1,
                       &mean[0], &variance[0], natural, &log_z[0], &first[0], &second[0])


def evaluate_responses(int kind,
                       const double[:, ::1] parameters,   # in  (A, 6): of each response
                       const double[::1] power,           # in  (N,) or (1,)
                       const double[:, ::1] y,            # in  (A, N)
                       const double[:, ::1] extra,        # in  (A, N) or (A, 1)
                       const double[:, ::1] mean,         # in  (A, N): of the cavities
                       const double[:, ::1] variance,     # in  (A, N)
                       double[:, ::1] log_z,              # out (A, N)
                       double[:, ::1] tau,                # out (A, N)
                       double[:, ::1] rho, /):            # out (A, N)
    """`evaluate` of A responses that differ in parameters, natural parameters; rows of several share tiles."""
    cdef Queue queues[QUEUES]
    cdef Likelihood lik
    cdef Py_ssize_t a, n = y.shape[1]
    cdef int i
    if not y.shape[0] or not n:
        return
    empty_queues(queues)
    with nogil:
        for a in range(y.shape[0]):
            lik = unpack(kind, power[0], parameters[a])
            match_rows(&lik, queues, a * n, (a + 1) * n, &power[0], power.shape[0] > 1, &y[a, 0], &extra[a, 0],
                       extra.shape[1] > 1, &mean[a, 0], &variance[a, 0], True, &log_z[0, 0], &tau[0, 0], &rho[0, 0])
        for i in range(QUEUES):
            send(&queues[i], True, &log_z[0, 0], &tau[0, 0], &rho[0, 0])
