"""Sites by quadrature, one or a tile of them: the steps of quadrature_steps.pxd in their order, with the same bits."""

from cavity._core.adaptive_quadrature cimport integrate_adaptively
from cavity._core.lanes cimport template
from cavity._core.quadrature_panels cimport by_panels
from cavity._core.quadrature_nodes cimport hermite_counts, hermite_logs, hermite_nodes
from cavity._core.quadrature_steps cimport (
    MAX_NEWTON_STEPS, Lanes, Node, Tile, begin_anchor, choose_narrow_rule, choose_rule, concave_range, end_anchor,
    finish_site, improve_anchor, is_adaptive, shrink_range, student_anchor, student_range, weigh_narrow_node,
    weigh_node,
)
from cavity._core.simd cimport CV_LANES
from cavity._core.site_types cimport (
    BETA, BETA_BINOMIAL, BINOMIAL, LOGISTIC_INTERVAL, LOGIT, NEGATIVE_BINOMIAL, POISSON, PROBIT, STUDENT_T, TRUNCATED,
    TWEEDIE, ZERO_MIXTURE, Form, Tilted,
)


cdef inline template find_rule(int kind, Tile *t, int lanes) noexcept nogil:
    """Steps 1 to 4, but for the sums."""
    cdef Py_ssize_t i
    cdef double moving = lanes, narrow
    cdef int _step
    if kind == STUDENT_T:
        for i in range(lanes):
            student_anchor(t, i)
    else:
        for i in range(lanes):
            begin_anchor(kind, t, i)
        for _step in range(MAX_NEWTON_STEPS):
            if moving == 0.0:
                break
            for i in range(lanes):
                improve_anchor(kind, t, i)
            moving = 0.0
            for i in range(lanes):
                moving += t.moving[i]
    for i in range(lanes):
        end_anchor(kind, t, i)
    for i in range(lanes):
        choose_narrow_rule(kind, t, i)
    narrow = 0.0
    for i in range(lanes):
        narrow += 1.0 if t.rule[i] > 0.0 else 0.0
    if narrow == lanes or is_adaptive(kind):
        return
    for i in range(lanes):
        if kind == STUDENT_T:
            student_range(t, i)
        else:
            concave_range(kind, t, i)
    for _step in range(0 if kind == STUDENT_T else 2 if kind == PROBIT or kind == BINOMIAL else 3):
        for i in range(lanes):
            shrink_range(kind, t, i)
    for i in range(lanes):
        choose_rule(kind, t, i)


cdef inline template add_node(Tile *t, Py_ssize_t i, double g, double x, const Node *at) noexcept nogil:
    t.total[i] += g
    t.first[i] += g * x
    t.second[i] += g * x * x
    t.change[i] += g * at.change
    t.square[i] += g * at.change * at.change
    t.bend[i] += g * at.l2


cdef inline template sum_smooth_rule(int kind, Tile *t) noexcept nogil:
    """Node by node, sites in lanes."""
    cdef Py_ssize_t i
    cdef double most = 0.0, g, x
    cdef Node at
    cdef int j
    for i in range(CV_LANES):
        most = t.count[i] if t.count[i] > most else most
    for j in range(<int> most):
        for i in range(CV_LANES):
            weigh_node(kind, t, i, j, &g, &x, &at)
            add_node(t, i, g, x, &at)


cdef inline template sum_narrow_rules(int kind, Tile *t) noexcept nogil:
    """The same, each site by its own rule, beyond whose last node there are weights of 0."""
    cdef Py_ssize_t i
    cdef double g, x
    cdef Node at
    cdef int j, most = 0, rule, mixed = 0
    cdef int rules[CV_LANES]
    cdef Lanes places, log_weights
    for i in range(CV_LANES):
        rule = <int> t.rule[i] - 1
        rules[i] = rule if rule >= 0 else 0
        j = hermite_counts[rule] if rule >= 0 else 0
        most = j if j > most else most
        mixed += t.rule[i] != t.rule[0]
    if mixed == 0:
        for j in range(most):
            for i in range(CV_LANES):
                weigh_narrow_node(kind, t, i, hermite_nodes[rule][j], hermite_logs[rule][j], &g, &x, &at)
                add_node(t, i, g, x, &at)
        return
    for j in range(most):
        for i in range(CV_LANES):
            places[i], log_weights[i] = hermite_nodes[rules[i]][j], hermite_logs[rules[i]][j]
        for i in range(CV_LANES):
            weigh_narrow_node(kind, t, i, places[i], log_weights[i], &g, &x, &at)
            add_node(t, i, g, x, &at)


cdef inline template put_terms(Lanes *terms, int j, double g, double x, const Node *at) noexcept nogil:
    terms[0][j], terms[1][j], terms[2][j] = g, g * x, g * x * x
    terms[3][j], terms[4][j], terms[5][j] = g * at.change, g * at.change * at.change, g * at.l2


cdef inline template sum_alone(int kind, Tile *t) noexcept nogil:
    """The narrow or the smooth rule of the site in lane 0: nodes in lanes, added in the same order."""
    cdef Lanes terms[6]
    cdef double g, x
    cdef Node at
    cdef int part, j, rule = <int> t.rule[0] - 1, count = hermite_counts[rule] if rule >= 0 else <int> t.count[0]
    for part in range((count + CV_LANES - 1) // CV_LANES):
        if rule >= 0:
            for j in range(CV_LANES):
                weigh_narrow_node(kind, t, 0, hermite_nodes[rule][part * CV_LANES + j],
                                  hermite_logs[rule][part * CV_LANES + j], &g, &x, &at)
                put_terms(terms, j, g, x, &at)
        elif not is_adaptive(kind):
            for j in range(CV_LANES):
                weigh_node(kind, t, 0, part * CV_LANES + j, &g, &x, &at)
                put_terms(terms, j, g, x, &at)
        for j in range(CV_LANES):
            t.total[0] += terms[0][j]
            t.first[0] += terms[1][j]
            t.second[0] += terms[2][j]
            t.change[0] += terms[3][j]
            t.square[0] += terms[4][j]
            t.bend[0] += terms[5][j]


cdef inline void integrate_wide(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    if is_adaptive(kind):
        integrate_adaptively(kind, t, i)
    else:
        by_panels(kind, t, i)


cdef inline template integrate_tile(int kind, Tile *t) noexcept nogil:
    """Sites of one kind in all lanes."""
    cdef Py_ssize_t i
    find_rule(kind, t, CV_LANES)
    if not is_adaptive(kind):
        sum_smooth_rule(kind, t)
    sum_narrow_rules(kind, t)
    for i in range(CV_LANES):
        if t.count[i] == 0.0 and t.rule[i] == 0.0:
            integrate_wide(kind, t, i)
    for i in range(CV_LANES):
        finish_site(kind, t, i)


cdef inline template integrate_constant_kind(bint alone, int kind, Tile *t) noexcept nogil:
    """All steps of a tile, or the smooth rule of a site alone; both vectorise if `kind` is a compile-time constant."""
    if alone:
        sum_alone(kind, t)
    else:
        integrate_tile(kind, t)


cdef inline template dispatch_kind(bint alone, int kind, Tile *t) noexcept nogil:
    if kind == LOGIT:
        integrate_constant_kind(alone, LOGIT, t)
    elif kind == PROBIT:
        integrate_constant_kind(alone, PROBIT, t)
    elif kind == POISSON:
        integrate_constant_kind(alone, POISSON, t)
    elif kind == NEGATIVE_BINOMIAL:
        integrate_constant_kind(alone, NEGATIVE_BINOMIAL, t)
    elif kind == BINOMIAL:
        integrate_constant_kind(alone, BINOMIAL, t)
    elif kind == STUDENT_T:
        integrate_constant_kind(alone, STUDENT_T, t)
    elif kind == TRUNCATED:
        integrate_constant_kind(alone, TRUNCATED, t)
    elif kind == ZERO_MIXTURE:
        integrate_constant_kind(alone, ZERO_MIXTURE, t)
    elif kind == LOGISTIC_INTERVAL:
        integrate_constant_kind(alone, LOGISTIC_INTERVAL, t)
    elif kind == TWEEDIE:
        integrate_constant_kind(alone, TWEEDIE, t)
    elif kind == BETA:
        integrate_constant_kind(alone, BETA, t)
    else:
        integrate_constant_kind(alone, BETA_BINOMIAL, t)


cdef inline void fill_lane(Tile *t, Py_ssize_t i, const Form *form, double m, double v) noexcept nogil:
    t.power[i], t.y[i], t.a[i], t.b[i], t.c[i] = form.power, form.y, form.a, form.b, form.c
    t.constant[i], t.scale[i], t.unshifted[i] = form.constant, form.scale, form.scale * m
    t.m[i], t.v[i] = t.unshifted[i] + form.shift, form.scale * form.scale * v


cdef inline void quadrature_tile(int kind, Tile *t) noexcept nogil:
    """Sites of one kind in all lanes."""
    dispatch_kind(False, kind, t)


cdef inline Tilted quadrature_site(const Form *form, double m, double v) noexcept nogil:
    """All nan where more than MAX_PANELS panels would be needed.

    Steps that do not vectorise are compiled once for all kinds.
    """
    cdef Tile t
    cdef Tilted out
    fill_lane(&t, 0, form, m, v)
    find_rule(form.kind, &t, 1)
    dispatch_kind(True, form.kind, &t)
    if t.count[0] == 0.0 and t.rule[0] == 0.0:
        integrate_wide(form.kind, &t, 0)
    finish_site(form.kind, &t, 0)
    out.log_z, out.d1, out.d2, out.tau, out.rho = t.log_z[0], t.d1[0], t.d2[0], t.tau[0], t.rho[0]
    return out
