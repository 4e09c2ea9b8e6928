"""Sites of many rows at once, side by side in lanes where the kind allows; none depends on its neighbours."""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from cavity._core.closed_form_sites cimport probit_tiles
from cavity._core.logit_site cimport MAX_LOGIT_VARIANCE, logit_tiles
from cavity._core.quadrature_sites cimport fill_lane, quadrature_tile
from cavity._core.simd cimport CV_LANES
from cavity._core.site_integrands cimport Tile
from cavity._core.site_types cimport LOGIT, POISSON, PROBIT, Form, Likelihood, Tilted
from cavity._core.sites cimport form_of, is_integral, tilted

cdef extern from *:
    """
    #define CV_MAX_NARROW_VARIANCE 0.1
    #define CV_CLASSES_PER_UNIT 7.69         /* 8 a factor of 2, of exp(2 m/3) */
    """
    const double MAX_NARROW_VARIANCE "CV_MAX_NARROW_VARIANCE", CLASSES_PER_UNIT "CV_CLASSES_PER_UNIT"

cdef enum:
    QUEUE_SITES = 128                        # length of the queue: tiles hold sites of about one width
    QUEUES = 3
    WIDTH_CLASSES = 256                         # classes of variances: 8 a factor of 2, over a factor of 2^32

cdef struct Queue:                       # queued sites of one kind, for tiles
    int kind, size
    Py_ssize_t rows[QUEUE_SITES]
    Form forms[QUEUE_SITES]
    double m[QUEUE_SITES]
    double v[QUEUE_SITES]


cdef inline int width_class(const Queue *queue, int i) noexcept nogil:
    """The last 5 bits of the exponent of v and the first 3 of the mantissa.

    Among narrow cavities times exp(2 m/3) where rates are exp(f): nodes depend on the rate times the cube of an sd.
    """
    cdef uint64_t bits
    cdef double v = queue.v[i], m = queue.forms[i].scale * queue.m[i] + queue.forms[i].shift
    memcpy(&bits, &v, sizeof(double))
    bits >>= 49
    if queue.kind == POISSON and v < MAX_NARROW_VARIANCE and -30.0 < m < 30.0:
        bits += <int> (CLASSES_PER_UNIT * (m + 30.0))
    return bits & (WIDTH_CLASSES - 1)


cdef inline void sort_by_width(const Queue *queue, int *order) noexcept nogil:
    """A tile needs as many nodes as its widest site, so that sites of one class stand together."""
    cdef int ends[WIDTH_CLASSES]
    cdef int classes[QUEUE_SITES]
    cdef int i, sites, before = 0
    memset(ends, 0, sizeof(ends))
    for i in range(queue.size):
        classes[i] = width_class(queue, i)
        ends[classes[i]] += 1
    for i in range(WIDTH_CLASSES):
        sites, ends[i] = ends[i], before
        before += sites
    for i in range(queue.size):
        order[ends[classes[i]]] = i
        ends[classes[i]] += 1


cdef inline void send(Queue *queue, bint natural, double *log_z, double *first, double *second) noexcept nogil:
    """Match the sites of a queue, which is empty then; lanes left over do as the last."""
    cdef int order[QUEUE_SITES]
    cdef Tile t
    cdef Py_ssize_t row
    cdef int i, at, tile, start
    if queue.size == 0:
        return
    sort_by_width(queue, order)
    for tile in range((queue.size + CV_LANES - 1) // CV_LANES):
        start = tile * CV_LANES
        for i in range(CV_LANES):
            at = order[start + i if start + i < queue.size else queue.size - 1]
            fill_lane(&t, i, &queue.forms[at], queue.m[at], queue.v[at])
        quadrature_tile(queue.kind, &t)
        for i in range(CV_LANES if start + CV_LANES <= queue.size else queue.size - start):
            row = queue.rows[order[start + i]]
            log_z[row] = t.log_z[i]
            first[row] = t.tau[i] if natural else t.d1[i]
            second[row] = t.rho[i] if natural else t.d2[i]
    queue.size = 0


cdef inline void empty_queues(Queue *queues) noexcept nogil:
    cdef int i
    for i in range(QUEUES):
        queues[i].size, queues[i].kind = 0, -1


cdef inline void match_rows(
    const Likelihood *lik, Queue *queues, Py_ssize_t start, Py_ssize_t stop,
    const double *power, Py_ssize_t powers, const double *y, const double *extra, Py_ssize_t extras,
    const double *m, const double *v, bint natural, double *log_z, double *first, double *second,
) noexcept nogil:
    """Rows from start to stop of `match_tile`, whose arrays begin with row `start`, but for outputs; some may wait."""
    cdef Likelihood form = lik[0]
    cdef bint done_narrow = False
    cdef Queue *queue
    cdef Py_ssize_t i, row, n = stop - start
    cdef Form site
    cdef Tilted at
    form.power = power[0]
    if form.kind == PROBIT and not powers and (form.power == 1.0 or form.a == 0.0):
        probit_tiles(form.a, n, y, m, v, natural, log_z + start, first + start, second + start)
        return
    if form.kind == LOGIT and not powers and form.power == 1.0:
        logit_tiles(n, y, m, v, natural, log_z + start, first + start, second + start)
        done_narrow = True
    for i in range(n):
        if done_narrow and v[i] <= MAX_LOGIT_VARIANCE:
            continue
        row, form.power = start + i, power[i * powers]
        if is_integral(&form, y[i], extra[i * extras], v[i]):
            site = form_of(&form, y[i], extra[i * extras])
            queue = queues
            while queue.kind != site.kind and queue.kind >= 0:
                queue += 1
            queue.kind, queue.rows[queue.size], queue.forms[queue.size] = site.kind, row, site
            queue.m[queue.size], queue.v[queue.size] = m[i], v[i]
            queue.size += 1
            if queue.size == QUEUE_SITES:
                send(queue, natural, log_z, first, second)
        else:
            at = tilted(&form, y[i], extra[i * extras], m[i], v[i])
            log_z[row] = at.log_z
            first[row] = at.tau if natural else at.d1
            second[row] = at.rho if natural else at.d2


cdef inline void match_tile(
    Likelihood *lik, Py_ssize_t n,
    const double *power, Py_ssize_t powers,              # in  (n,) if powers is 1; where 0, one number serves all rows
    const double *y,                                     # in  (n,)
    const double *extra, Py_ssize_t extras,              # in  (n,) if extras is 1: as in `tilted`
    const double *m, const double *v,                    # in  (n,): the cavities N(m, v)
    bint natural,
    double *log_z,                                       # out (n,)
    double *first,                                       # out (n,): d1, or tau if natural
    double *second,                                      # out (n,): d2, or rho if natural
) noexcept nogil:
    """Moments of p(y|f)^power N(f; m, v) of n rows, n > 0; `power` stands for lik.power."""
    cdef Queue queues[QUEUES]            # one of a kind: rows of a likelihood may come to as many
    cdef int i
    empty_queues(queues)
    match_rows(lik, queues, 0, n, power, powers, y, extra, extras, m, v, natural, log_z, first, second)
    for i in range(QUEUES):
        send(&queues[i], natural, log_z, first, second)
