"""Sites by quadrature, one or a tile of them: the steps of quadrature_steps.pxd in their order, with the same bits."""

from cavity._core.adaptive_quadrature cimport integrate_adaptively
from cavity._core.lanes cimport cv8_add, cv8_load, cv8_set, template
from cavity._core.quadrature_nodes cimport hermite_counts, hermite_logs, hermite_nodes
from cavity._core.quadrature_panels cimport add_panels
from cavity._core.quadrature_steps cimport (
    MAX_NEWTON_STEPS, MIN_CHANGE, begin_anchor, bound_curvature, choose_narrow_rule, choose_rule, concave_range,
    end_anchor, find_top, find_unit, finish_site, improve_anchor, is_adaptive, move_left_end, move_right_end,
    place_narrow_nodes, place_nodes, student_anchor, student_range, weigh_node,
)
from cavity._core.response_steps cimport (
    ANCHOR_STEPS, END_STEPS, begin_ends, choose_response_rule, keep_curved_anchor, move_curved_anchor, move_end,
)
from cavity._core.simd cimport CV_LANES
from cavity._core.site_integrands cimport (
    INTEGRAND_FIELDS, Lanes, Tile, copy_lane, evaluate_nodes, evaluate_slopes_of, evaluate_values, spread,
)
from cavity._core.site_types cimport (
    BETA, BETA_BINOMIAL, BINOMIAL, LOGISTIC_INTERVAL, LOGIT, NEGATIVE_BINOMIAL, POISSON, PROBIT, STUDENT_T, TRUNCATED,
    TWEEDIE, ZERO_MIXTURE, Form, Tilted,
)


# ---------------------------------------------------------------- steps that are compiled once, in `lanes` lanes


cdef inline template improve_anchors_in(int kind, Tile *t, int lanes) noexcept nogil:
    cdef Py_ssize_t i
    cdef double moving = 0.0
    cdef int _step
    for i in range(lanes):
        moving += t.moving[i]
    for _step in range(MAX_NEWTON_STEPS):
        if moving == 0.0:
            break
        for i in range(lanes):
            t.node_f[i] = t.next[i]
        evaluate_slopes_of(kind, t, lanes)
        for i in range(lanes):
            improve_anchor(t, i)
        moving = 0.0
        for i in range(lanes):
            moving += t.moving[i]


cdef inline void improve_anchors(int kind, Tile *t, int lanes) noexcept nogil:
    if lanes == 1:
        improve_anchors_in(kind, t, 1)
    else:
        improve_anchors_in(kind, t, CV_LANES)


cdef inline void choose_narrow_rules(Tile *t, int lanes) noexcept nogil:
    cdef Py_ssize_t i
    if lanes == 1:
        choose_narrow_rule(t, 0)
    else:
        for i in range(CV_LANES):
            choose_narrow_rule(t, i)


cdef inline template shrink_ranges_in(int kind, Tile *t, int steps, int lanes) noexcept nogil:
    cdef Py_ssize_t i
    cdef int _step
    for _step in range(steps):
        for i in range(lanes):
            t.node_x[i] = t.left[i]
        evaluate_nodes(kind, t, lanes)
        for i in range(lanes):
            move_left_end(t, i)
        for i in range(lanes):
            t.node_x[i] = t.right[i]
        evaluate_nodes(kind, t, lanes)
        for i in range(lanes):
            move_right_end(t, i)


cdef inline void shrink_ranges(int kind, Tile *t, int steps, int lanes) noexcept nogil:
    """Both ends some steps nearer."""
    if lanes == 1:
        shrink_ranges_in(kind, t, steps, 1)
    else:
        shrink_ranges_in(kind, t, steps, CV_LANES)


cdef inline void finish_sites(Tile *t, int lanes) noexcept nogil:
    cdef Py_ssize_t i
    if lanes == 1:
        finish_site(t, 0)
    else:
        for i in range(CV_LANES):
            finish_site(t, i)


cdef inline template find_response_rule(int kind, Tile *t, int lanes) noexcept nogil:
    """Steps 2 and 4 of response_steps.pxd."""
    cdef Py_ssize_t i
    cdef double curved = 0.0
    cdef int _step
    for i in range(lanes):
        curved += t.is_curved[i]
    if curved > 0.0:
        for _step in range(ANCHOR_STEPS):
            for i in range(lanes):
                move_curved_anchor(t, i)
            evaluate_slopes_of(kind, t, lanes)
            for i in range(lanes):
                keep_curved_anchor(t, i)
        for i in range(lanes):
            end_anchor(kind, t, i)
    for i in range(lanes):
        begin_ends(kind, t, i)
    for _step in range(END_STEPS):
        for i in range(lanes):
            t.node_x[i] = t.grow_left[i]
        evaluate_nodes(kind, t, lanes)
        for i in range(lanes):
            move_end(kind, t, i, -1.0, &t.left[i], &t.grow_left[i])
        for i in range(lanes):
            t.node_x[i] = t.grow_right[i]
        evaluate_nodes(kind, t, lanes)
        for i in range(lanes):
            move_end(kind, t, i, 1.0, &t.right[i], &t.grow_right[i])
    for i in range(lanes):
        choose_response_rule(kind, t, i)


cdef inline void find_response_rule_alone(int kind, Tile *t) noexcept nogil:
    find_response_rule(kind, t, 1)


cdef inline template find_rule(int kind, Tile *t, int lanes) noexcept nogil:
    """Steps 1 to 4, but for the sums."""
    cdef Py_ssize_t i
    cdef double narrow
    for i in range(lanes):
        bound_curvature(kind, t, i)
    if kind == STUDENT_T:
        for i in range(lanes):
            student_anchor(t, i)
    else:
        for i in range(lanes):
            t.node_f[i] = t.m[i]
        evaluate_slopes_of(kind, t, lanes)
        for i in range(lanes):
            begin_anchor(kind, t, i)
        improve_anchors(kind, t, lanes)
    for i in range(lanes):
        end_anchor(kind, t, i)
    for i in range(lanes):
        find_unit(kind, t, i)
    choose_narrow_rules(t, lanes)
    narrow = 0.0
    for i in range(lanes):
        narrow += 1.0 if t.rule[i] > 0.0 else 0.0
    if narrow == lanes:
        return
    if is_adaptive(kind):
        if lanes == 1:
            find_response_rule_alone(kind, t)
        else:
            find_response_rule(kind, t, CV_LANES)
        return
    for i in range(lanes):
        if kind == STUDENT_T:
            student_range(t, i)
        else:
            concave_range(kind, t, i)
    if kind != STUDENT_T:
        shrink_ranges(kind, t, 2 if kind == PROBIT or kind == BINOMIAL else 3, lanes)
    for i in range(lanes):
        choose_rule(kind, t, i)


# ---------------------------------------------------------------- sums


cdef inline template add_nodes_of_tile(int kind, Tile *t, bint by_values) noexcept nogil:
    cdef Py_ssize_t i
    cdef double g, x
    if by_values:
        evaluate_values(kind, t)
        for i in range(CV_LANES):
            g, x = weigh_node(t, i), t.node_x[i]
            t.total[i] += g
            t.first[i] += g * x
            t.second[i] += g * x * x
        return
    evaluate_nodes(kind, t, CV_LANES)
    for i in range(CV_LANES):
        g, x = weigh_node(t, i), t.node_x[i]
        t.total[i] += g
        t.first[i] += g * x
        t.second[i] += g * x * x
        t.change[i] += g * t.node_change[i]
        t.square[i] += g * t.node_change[i] * t.node_change[i]
        t.bend[i] += g * t.node_l2[i]


cdef inline void sum_rules(int kind, Tile *t) noexcept nogil:
    """Node by node, sites in lanes: those with the smooth rule, then the others; 0 is added beyond a last node."""
    cdef Py_ssize_t i
    cdef int j, smooth = 0, narrow = 0, rule = 0, mixed = 0
    cdef int rules[CV_LANES]
    cdef double slopes_needed = 0.0
    cdef Lanes places, log_weights
    for i in range(CV_LANES):
        smooth = <int> t.count[i] if t.count[i] > smooth else smooth
        rule = <int> t.rule[i] - 1
        rules[i] = rule if rule >= 0 else 0
        j = hermite_counts[rule] if rule >= 0 else 0
        narrow = j if j > narrow else narrow
        mixed += t.rule[i] != t.rule[0]
        slopes_needed += t.min_change[i]
    for j in range(smooth + narrow):
        if j < smooth:
            place_nodes(t, cv8_set(j))
        elif mixed == 0:
            place_narrow_nodes(t, cv8_set(hermite_nodes[rule][j - smooth]), cv8_set(hermite_logs[rule][j - smooth]))
        else:
            for i in range(CV_LANES):
                places[i] = hermite_nodes[rules[i]][j - smooth]
                log_weights[i] = hermite_logs[rules[i]][j - smooth]
            place_narrow_nodes(t, cv8_load(places), cv8_load(log_weights))
        add_nodes_of_tile(kind, t, slopes_needed == 0.0)


cdef inline void sum_alone(int kind, Tile *t) noexcept nogil:
    """The narrow or the smooth rule of the site in lane 0: nodes in lanes, added in the same order."""
    cdef Lanes terms[6]
    cdef double g, x
    cdef int part, j, rule = <int> t.rule[0] - 1, count = hermite_counts[rule] if rule >= 0 else <int> t.count[0]
    cdef Lanes numbers
    for j in range(CV_LANES):
        numbers[j] = j
    spread(t, 0, t)
    for part in range((count + CV_LANES - 1) // CV_LANES):
        if rule >= 0:
            place_narrow_nodes(t, cv8_load(hermite_nodes[rule] + part * CV_LANES),
                               cv8_load(hermite_logs[rule] + part * CV_LANES))
        else:
            place_nodes(t, cv8_add(cv8_set(part * CV_LANES), cv8_load(numbers)))
        if t.min_change[0] == 0.0:
            evaluate_values(kind, t)
        else:
            evaluate_nodes(kind, t, CV_LANES)
        for j in range(CV_LANES):
            g, x = weigh_node(t, j), t.node_x[j]
            terms[0][j], terms[1][j], terms[2][j] = g, g * x, g * x * x
            terms[3][j] = g * t.node_change[j]
            terms[4][j], terms[5][j] = g * t.node_change[j] * t.node_change[j], g * t.node_l2[j]
        for j in range(CV_LANES):
            t.total[0] += terms[0][j]
            t.first[0] += terms[1][j]
            t.second[0] += terms[2][j]
            t.change[0] += terms[3][j]
            t.square[0] += terms[4][j]
            t.bend[0] += terms[5][j]


cdef inline void integrate_wide(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """The rule of lane i, which is in all lanes of another tile for that."""
    cdef Tile one
    t.min_change[i] = MIN_CHANGE
    spread(t, i, &one)
    copy_lane(t, i, &one, 0, INTEGRAND_FIELDS)
    if is_adaptive(kind):
        integrate_adaptively(kind, &one)
    else:
        add_panels(kind, &one)
    copy_lane(&one, 0, t, i, 0)


cdef inline template integrate_tile(int kind, Tile *t) noexcept nogil:
    """Sites of one kind in all lanes; loops over them vectorise if `kind` is a compile-time constant."""
    cdef Py_ssize_t i
    find_rule(kind, t, CV_LANES)
    sum_rules(kind, t)
    for i in range(CV_LANES):
        if t.count[i] == 0.0 and t.rule[i] == 0.0:
            integrate_wide(kind, t, i)
    for i in range(CV_LANES):
        find_top(kind, t, i)
    finish_sites(t, CV_LANES)


cdef inline void quadrature_tile(int kind, Tile *t) noexcept nogil:
    """Sites of one kind in all lanes."""
    if kind == LOGIT:
        integrate_tile(LOGIT, t)
    elif kind == PROBIT:
        integrate_tile(PROBIT, t)
    elif kind == POISSON:
        integrate_tile(POISSON, t)
    elif kind == NEGATIVE_BINOMIAL:
        integrate_tile(NEGATIVE_BINOMIAL, t)
    elif kind == BINOMIAL:
        integrate_tile(BINOMIAL, t)
    elif kind == STUDENT_T:
        integrate_tile(STUDENT_T, t)
    elif kind == TRUNCATED:
        integrate_tile(TRUNCATED, t)
    elif kind == ZERO_MIXTURE:
        integrate_tile(ZERO_MIXTURE, t)
    elif kind == LOGISTIC_INTERVAL:
        integrate_tile(LOGISTIC_INTERVAL, t)
    elif kind == TWEEDIE:
        integrate_tile(TWEEDIE, t)
    elif kind == BETA:
        integrate_tile(BETA, t)
    else:
        integrate_tile(BETA_BINOMIAL, t)


cdef inline void fill_lane(Tile *t, Py_ssize_t i, const Form *form, double m, double v) noexcept nogil:
    t.power[i], t.y[i], t.a[i], t.b[i], t.c[i] = form.power, form.y, form.a, form.b, form.c
    t.constant[i], t.scale[i], t.unshifted[i] = form.constant, form.scale, form.scale * m
    t.m[i], t.v[i] = t.unshifted[i] + form.shift, form.scale * form.scale * v


cdef inline Tilted quadrature_site(const Form *form, double m, double v) noexcept nogil:
    """All nan where more than MAX_PANELS panels would be needed."""
    cdef Tile t
    cdef Tilted out
    fill_lane(&t, 0, form, m, v)
    find_rule(form.kind, &t, 1)
    if t.count[0] == 0.0 and t.rule[0] == 0.0:
        integrate_wide(form.kind, &t, 0)
    else:
        sum_alone(form.kind, &t)
    find_top(form.kind, &t, 0)
    finish_sites(&t, 1)
    out.log_z, out.d1, out.d2, out.tau, out.rho = t.log_z[0], t.d1[0], t.d2[0], t.tau[0], t.rho[0]
    return out
