/* Covariances and their derivatives for panels of 8 x 64 pairs of points.
 *
 * Design:
 * a) Coordinates are in columns: left[8 c + r] is coordinate c of row r, right[64 c + j] that of column j, so that a
 *    vector holds eight columns j of one row and coordinates of rows are broadcast. Eight rows of eight columns have
 *    their sums over coordinates in registers together.
 * b) A panel stays in the first-level cache; an operation of a program reads and writes panels. Panels are whole:
 *    beyond the last point there are copies of it, whose weight is 0.
 * c) Stationary covariances take halved coordinates: halves of finite numbers differ by finite numbers, so that a
 *    derivative that has fallen to 0 times a difference is 0. Their squares may overflow, to a covariance of 0.
 * d) Sums have eight lanes (column j in lane j mod 8) and a fixed order; no operation depends on the instruction set.
 */
#ifndef CAVITY_PANELS_H
#define CAVITY_PANELS_H

#include <float.h>

#include "cavity_tiles.h"

#define CV_PANEL_ROWS CV_LANES
#define CV_PANEL_COLUMNS 64
#define CV_PANEL (CV_PANEL_ROWS * CV_PANEL_COLUMNS)

enum cv_leaf {
    CV_CONSTANT, CV_WHITE, CV_LINEAR, CV_RBF, CV_MATERN12, CV_MATERN32, CV_MATERN52, CV_MATERN, CV_RATIONAL_QUADRATIC,
    CV_PERIODIC
};

/* Parameters of CV_MATERN: variance, order n, -2 sqrt(2 n + 1), coefficients of P (n + 1) and of Q (n). */
#define CV_MATERN_HEAD 3

/* all rows of a panel, and all groups of eight columns */
#define CV_ROWS(r) CV_UNROLLED for (int r = 0; r < CV_PANEL_ROWS; r++)
/* the same without a copy for each row where a cv8 is several registers: half the time to compile, and no slower */
#if defined(__clang__) && CV_WIDTH < 4
#define CV_LONG_ROWS(r) _Pragma("clang loop unroll_count(2)") for (int r = 0; r < CV_PANEL_ROWS; r++)
#elif defined(__GNUC__) && !defined(__clang__) && CV_WIDTH < 8
#define CV_LONG_ROWS(r) _Pragma("GCC unroll 2") for (int r = 0; r < CV_PANEL_ROWS; r++)
#else
#define CV_LONG_ROWS(r) CV_ROWS(r)
#endif
#define CV_GROUPS(at) for (ptrdiff_t at = 0; at < CV_LANES * n_groups; at += CV_LANES)

CV_INLINE cv8 cv8_scaled(double a, cv8 x) { return cv8_mul(cv8_set(a), x); }

/* variance 2^(x/16) for x <= 0. */
CV_INLINE cv8 cv8_decay(double variance, cv8 x) { return cv8_scaled(variance, cv8_root_exp_any(x)); }

/* -min(|difference|, 2^52): doubles from there on are integers. */
CV_INLINE cv8 cv8_minus_turns(cv8 difference) { return cv8_max(cv8_minus_abs(difference), cv8_set(-0x1p52)); }

/* ---------------------------------------------------------------------------------------------- values */

/* x[r] = sum over c of (left - right)^2, or of left right. */
CV_INLINE void cv_pair_sums(const int product, ptrdiff_t n_columns, const double *left, const double *right, cv8 *x)
{
    CV_EACH(p) {
        cv_part sums[CV_PANEL_ROWS];
        CV_ROWS(r) sums[r] = cv_part_set(0.0);
        for (ptrdiff_t c = 0; c < n_columns; c++) {
            cv_part y = cv_part_load(right + c * CV_PANEL_COLUMNS + p * CV_WIDTH);
            CV_ROWS(r) {
                cv_part l = cv_part_set(left[c * CV_PANEL_ROWS + r]), d = l - y;
                sums[r] += product ? l * y : d * d;
            }
        }
        CV_ROWS(r) x[r].part[p] = sums[r];
    }
}

/* x[r] = sum over c of scale_c sin^2(pi (left - right)). */
CV_INLINE void cv_sine_sums(ptrdiff_t n_columns, const double *scale, const double *left, const double *right, cv8 *x)
{
    CV_ROWS(r) x[r] = cv8_set(0.0);
    for (ptrdiff_t c = 0; c < n_columns; c++) {
        cv8 y = cv8_load(right + c * CV_PANEL_COLUMNS);
        for (int r = 0; r < CV_PANEL_ROWS; r++) {
            cv8 s = cv8_sin_pi(cv8_fraction(cv8_minus_turns(cv8_sub(cv8_set(left[c * CV_PANEL_ROWS + r]), y))));
            x[r] = cv8_add(x[r], cv8_scaled(scale[c], cv8_mul(s, s)));
        }
    }
}

/* The polynomial of n coefficients, the highest first, at x. */
CV_INLINE cv8 cv8_polynomial(const double *coefficients, ptrdiff_t n, cv8 x)
{
    cv8 y = cv8_set(coefficients[0]);
    for (ptrdiff_t i = 1; i < n; i++)
        y = cv8_add(cv8_mul(y, x), cv8_set(coefficients[i]));
    return y;
}

/* Eight values of a stationary covariance and, if `slopes`, of t = -dk/d(r^2/2), from h = r^2/4. */
CV_INLINE cv8 cv_stationary(const int leaf, const int slopes, const double *p, cv8 h, cv8 *t)
{
    const double root = leaf == CV_MATERN32 ? -3.4641016151377544 : -4.47213595499958;   /* -2 sqrt(3), -2 sqrt(5) */
    cv8 one = cv8_set(1.0), a, e, k;
    if (leaf == CV_RBF) {
        k = cv8_decay(p[0], cv8_scaled(-2.0 * CV_PER_NAT, h));
        *t = k;
    } else if (leaf == CV_MATERN12) {
        a = cv8_sqrt(h);
        k = cv8_decay(p[0], cv8_scaled(-2.0 * CV_PER_NAT, a));
        if (slopes)     /* there is no derivative at r = 0; this leads to 0, as long as k/r is finite */
            *t = cv8_div(k, cv8_max(cv8_scaled(2.0, a), cv8_set(p[0] < 1e144 ? 1e-160 : 1e-304 * p[0])));
    } else if (leaf == CV_MATERN) {
        /* P(s) e^(-s/2) is finite, and is not lost where e^-s is 0 */
        const ptrdiff_t order = (ptrdiff_t)p[1];
        cv8 minus_s = cv8_max(cv8_scaled(p[2], cv8_sqrt(h)), cv8_set(-2000.0)), s = cv8_scaled(-1.0, minus_s);
        a = cv8_decay(1.0, cv8_scaled(0.5 * CV_PER_NAT, minus_s));
        e = cv8_decay(p[0], cv8_scaled(0.5 * CV_PER_NAT, minus_s));
        k = cv8_mul(e, cv8_mul(a, cv8_polynomial(p + CV_MATERN_HEAD, order + 1, s)));
        if (slopes)
            *t = cv8_mul(e, cv8_mul(a, cv8_polynomial(p + CV_MATERN_HEAD + order + 1, order, s)));
    } else {
        /* e^-2000 is 0, and its products must be */
        a = cv8_max(cv8_scaled(root, cv8_sqrt(h)), cv8_set(-2000.0));
        e = cv8_decay(p[0], cv8_scaled(CV_PER_NAT, a));
        k = cv8_sub(one, a);
        if (slopes)
            *t = leaf == CV_MATERN32 ? cv8_scaled(3.0, e) : cv8_mul(cv8_scaled(5.0 / 3.0, k), e);
        if (leaf == CV_MATERN52)
            k = cv8_add(k, cv8_scaled(1.0 / 3.0, cv8_mul(a, a)));
        k = cv8_mul(k, e);
    }
    return k;
}

/* k = those of h = r^2/4 in k, of a rational quadratic of shape p[1]; also t and `by_shape` = dk/dlog shape. */
CV_INLINE void cv_rational_quadratic(const int slopes, const double *p, ptrdiff_t n_groups, double *k, double *t,
                                     double *by_shape)
{
    const double variance = p[0], shape = p[1], per_square = 2.0 / shape, power = -shape * CV_PER_NAT;
    for (int r = 0; r < CV_PANEL_ROWS; r++) {
        double *row = k + r * CV_PANEL_COLUMNS, *u = t + r * CV_PANEL_COLUMNS, *excess = by_shape + r * CV_PANEL_COLUMNS;
        for (ptrdiff_t j = 0; j < CV_LANES * n_groups; j++) {
            double v = row[j] * per_square;
            u[j] = v < 1e308 ? v : 1e308;
            row[j] = row[j] <= DBL_MAX ? power * cv_log_1p(u[j]) : -INFINITY;
        }
        for (ptrdiff_t j = 0; j < CV_LANES * n_groups; j += CV_LANES)
            cv8_store(row + j, cv8_decay(variance, cv8_load(row + j)));
        for (ptrdiff_t j = 0; slopes && j < CV_LANES * n_groups; j++) {
            excess[j] = -shape * (row[j] * cv_log_1p_excess(u[j]));
            u[j] = row[j] / (1.0 + u[j]);
        }
    }
}

/* Values of a leaf at a panel; with `slopes` also t (stationary leaves) and by_shape (the rational quadratic, which
 * uses t without them too). n_groups groups of eight columns are found. */
CV_INLINE void cv_leaf_values(const int leaf, const int slopes, const double *p, ptrdiff_t n_columns,
                              const double *left, const double *right, ptrdiff_t n_groups, double *k, double *t,
                              double *by_shape)
{
    cv8 x[CV_PANEL_ROWS], slope;
    CV_GROUPS(at) {
        if (leaf == CV_PERIODIC)
            cv_sine_sums(n_columns, p + 1, left, right + at, x);
        else
            cv_pair_sums(leaf == CV_LINEAR, n_columns, left, right + at, x);
        CV_LONG_ROWS(r) {
            if (leaf == CV_PERIODIC)
                x[r] = cv8_decay(p[0], cv8_scaled(-2.0 * CV_PER_NAT, x[r]));
            else if (leaf != CV_LINEAR && leaf != CV_RATIONAL_QUADRATIC)
                x[r] = cv_stationary(leaf, slopes, p, x[r], &slope);
            cv8_store(k + r * CV_PANEL_COLUMNS + at, x[r]);
            if (slopes && leaf >= CV_RBF && leaf <= CV_MATERN)
                cv8_store(t + r * CV_PANEL_COLUMNS + at, slope);
        }
    }
    if (leaf == CV_RATIONAL_QUADRATIC)
        cv_rational_quadratic(slopes, p, n_groups, k, t, by_shape);
}

/* White noise of variance p[0]: column `diagonal` + r of row r, where it lies in the panel. */
CV_INLINE void cv_white_values(const double *p, int symmetric, ptrdiff_t diagonal, double *k)
{
    memset(k, 0, CV_PANEL * sizeof(double));
    for (int r = 0; symmetric && r < CV_PANEL_ROWS; r++)
        if (diagonal + r >= 0 && diagonal + r < CV_PANEL_COLUMNS)
            k[r * CV_PANEL_COLUMNS + diagonal + r] = p[0];
}

static void cv_values(const int slopes, int leaf, const double *p, ptrdiff_t n_columns, const double *left,
                      const double *right, ptrdiff_t n_groups, double *k, double *t, double *by_shape)
{
#define CV_CASE(name) \
    case name: \
        if (slopes) \
            cv_leaf_values(name, 1, p, n_columns, left, right, n_groups, k, t, by_shape); \
        else \
            cv_leaf_values(name, 0, p, n_columns, left, right, n_groups, k, t, by_shape); \
        break
    switch (leaf) {
    CV_CASE(CV_LINEAR);
    CV_CASE(CV_RBF);
    CV_CASE(CV_MATERN12);
    CV_CASE(CV_MATERN32);
    CV_CASE(CV_MATERN52);
    CV_CASE(CV_MATERN);
    CV_CASE(CV_RATIONAL_QUADRATIC);
    CV_CASE(CV_PERIODIC);
    default:
        for (int i = 0; i < CV_PANEL; i++)
            k[i] = p[0];
    }
#undef CV_CASE
}

/* out = a + b, or a b; out may be a. */
static void cv_join(const int multiply, const double *a, const double *b, ptrdiff_t n_groups, double *out)
{
    CV_GROUPS(at)
        for (int r = 0; r < CV_PANEL_ROWS; r++) {
            cv8 x = cv8_load(a + r * CV_PANEL_COLUMNS + at), y = cv8_load(b + r * CV_PANEL_COLUMNS + at);
            cv8_store(out + r * CV_PANEL_COLUMNS + at, multiply ? cv8_mul(x, y) : cv8_add(x, y));
        }
}

/* ---------------------------------------------------------------------------------------------- derivatives */

CV_INLINE cv8 cv8_tree(const cv8 *x)
{
    return cv8_add(cv8_add(cv8_add(x[0], x[1]), cv8_add(x[2], x[3])),
                   cv8_add(cv8_add(x[4], x[5]), cv8_add(x[6], x[7])));
}

CV_INLINE void cv_add_lanes(double *lanes, double factor, cv8 x)
{
    cv8_store(lanes, cv8_add(cv8_load(lanes), cv8_scaled(factor, x)));
}

/* lanes += sum of a b over a panel; product = a b if not NULL. */
CV_INLINE void cv_panel_dot(const double *a, const double *b, ptrdiff_t n_groups, double *product, double *lanes)
{
    cv8 x[CV_PANEL_ROWS], sum = cv8_set(0.0);
    CV_GROUPS(at) {
        CV_ROWS(r) {
            x[r] = cv8_mul(cv8_load(a + r * CV_PANEL_COLUMNS + at), cv8_load(b + r * CV_PANEL_COLUMNS + at));
            if (product)
                cv8_store(product + r * CV_PANEL_COLUMNS + at, x[r]);
        }
        sum = cv8_add(sum, cv8_tree(x));
    }
    cv_add_lanes(lanes, 1.0, sum);
}

/* lanes[0..7] += sum of g (left - right)^2 over a panel, or of g left right. */
CV_INLINE void cv_square_sum(const int product, const double *left, const double *right, const double *g,
                             ptrdiff_t n_groups, double *lanes)
{
    CV_EACH(p) {
        cv_part x[CV_PANEL_ROWS], sum = cv_part_set(0.0);
        for (ptrdiff_t at = p * CV_WIDTH; at < CV_LANES * n_groups; at += CV_LANES) {
            cv_part y = cv_part_load(right + at);
            CV_ROWS(r) {
                cv_part l = cv_part_set(left[r]), d = l - y, w = cv_part_load(g + r * CV_PANEL_COLUMNS + at);
                x[r] = product ? (w * l) * y : (w * d) * d;
            }
            sum += ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
        }
        cv_part_store(lanes + p * CV_WIDTH, cv_part_load(lanes + p * CV_WIDTH) + sum);
    }
}

/* lanes of row r += sum over columns of g (left - right), or of g right. */
CV_INLINE void cv_row_sums(const int product, const double *left, const double *right, const double *g,
                           ptrdiff_t n_groups, double *lanes)
{
    CV_EACH(p) {
        cv_part sums[CV_PANEL_ROWS];
        CV_ROWS(r) sums[r] = cv_part_load(lanes + r * CV_LANES + p * CV_WIDTH);
        for (ptrdiff_t at = p * CV_WIDTH; at < CV_LANES * n_groups; at += CV_LANES) {
            cv_part y = cv_part_load(right + at);
            CV_ROWS(r) {
                cv_part w = cv_part_load(g + r * CV_PANEL_COLUMNS + at);
                sums[r] += product ? w * y : w * (cv_part_set(left[r]) - y);
            }
        }
        CV_ROWS(r) cv_part_store(lanes + r * CV_LANES + p * CV_WIDTH, sums[r]);
    }
}

/* Sine of -pi |d|, and its product with the cosine; returns -|d|, at least -2^52. cos(pi f) = sin(pi (1/2 - |f|)). */
CV_INLINE cv8 cv8_sines(cv8 d, cv8 *sine, cv8 *both)
{
    cv8 y = cv8_minus_turns(d), f = cv8_fraction(y);
    *sine = cv8_sin_pi(f);
    *both = cv8_mul(*sine, cv8_sin_pi(cv8_add(cv8_set(0.5), cv8_minus_abs(f))));
    return y;
}

/* lanes[0..7] += 4 p times the sums of g sin^2 over a panel, `second` += 4 pi p times those of g d sin cos. The largest
 * p times such a sum is finite, where 4 p is not: powers of two come last. */
CV_INLINE void cv_sine_slopes(const double *left, const double *right, const double *g, ptrdiff_t n_groups, double p,
                              double *lanes, double *second)
{
    cv8 x[CV_PANEL_ROWS], z[CV_PANEL_ROWS], sum = cv8_set(0.0), sum_of_second = sum, s, both;
    CV_GROUPS(at) {
        cv8 y = cv8_load(right + at);
        for (int r = 0; r < CV_PANEL_ROWS; r++) {
            cv8 w = cv8_load(g + r * CV_PANEL_COLUMNS + at);
            cv8 turns = cv8_sines(cv8_sub(cv8_set(left[r]), y), &s, &both);
            x[r] = cv8_mul(w, cv8_mul(s, s));
            z[r] = cv8_mul(cv8_mul(w, both), turns);
        }
        sum = cv8_add(sum, cv8_tree(x));
        sum_of_second = cv8_add(sum_of_second, cv8_tree(z));
    }
    cv_add_lanes(lanes, 4.0, cv8_scaled(p, sum));
    cv_add_lanes(second, 16.0, cv8_scaled(0.25 * 3.141592653589793 * p, sum_of_second));
}

/* lanes of row r += 4 pi p times the sum over columns of g sin cos of pi (right - left), as in cv_sine_slopes. */
CV_INLINE void cv_sine_row_slopes(const double *left, const double *right, const double *g, ptrdiff_t n_groups,
                                  double p, double *lanes)
{
    for (int r = 0; r < CV_PANEL_ROWS; r++) {
        cv8 sum = cv8_set(0.0), s, both;
        CV_GROUPS(at) {
            cv8 d = cv8_sub(cv8_set(left[r]), cv8_load(right + at));
            cv8_sines(d, &s, &both);
            sum = cv8_add(sum, cv8_mul(cv8_load(g + r * CV_PANEL_COLUMNS + at), cv8_flip(both, d)));
        }
        cv_add_lanes(lanes + r * CV_LANES, 16.0, cv8_scaled(0.25 * 3.141592653589793 * p, sum));
    }
}

/* Add to the lanes of each slot of a leaf the sums of adjoint dk/dlog(slot); k, t, by_shape as cv_values left them.
 * t is lost. A factor 4 of squares of halved coordinates is left to cv_slot_factor. */
static void cv_slot_sums(int leaf, const double *p, ptrdiff_t n_columns, const double *left, const double *right,
                         ptrdiff_t n_groups, const double *adjoint, const double *k, double *t, const double *by_shape,
                         double *lanes)
{
    const double *g = leaf == CV_LINEAR ? adjoint : t;
    if (leaf != CV_LINEAR) {
        const int own_t = leaf > CV_RBF && leaf <= CV_RATIONAL_QUADRATIC;
        cv_panel_dot(adjoint, k, n_groups, own_t || leaf <= CV_WHITE ? NULL : t, lanes);
        if (own_t)
            cv_join(1, t, adjoint, n_groups, t);
        lanes += CV_LANES;
    }
    if (leaf == CV_RATIONAL_QUADRATIC) {
        cv_panel_dot(adjoint, by_shape, n_groups, NULL, lanes);
        lanes += CV_LANES;
    }
    for (ptrdiff_t c = 0; c < n_columns; c++) {
        const double *l = left + c * CV_PANEL_ROWS, *r = right + c * CV_PANEL_COLUMNS;
        if (leaf == CV_PERIODIC)
            cv_sine_slopes(l, r, g, n_groups, p[1 + c], lanes, lanes + n_columns * CV_LANES);
        else if (leaf == CV_LINEAR)
            cv_square_sum(1, l, r, g, n_groups, lanes);
        else
            cv_square_sum(0, l, r, g, n_groups, lanes);
        lanes += CV_LANES;
    }
}

/* Add to lanes (n_columns, 8 rows, 8) the sums over columns of adjoint dk/dleft, but for a factor -2 of stationary
 * leaves. t is lost. */
static void cv_input_sums(int leaf, const double *p, ptrdiff_t n_columns, const double *left, const double *right,
                          ptrdiff_t n_groups, const double *adjoint, const double *k, double *t, double *lanes)
{
    if (leaf >= CV_RBF)
        cv_join(1, leaf == CV_PERIODIC ? k : t, adjoint, n_groups, t);
    for (ptrdiff_t c = 0; c < n_columns; c++) {
        const double *l = left + c * CV_PANEL_ROWS, *r = right + c * CV_PANEL_COLUMNS;
        if (leaf == CV_PERIODIC)
            cv_sine_row_slopes(l, r, t, n_groups, p[1 + c], lanes);
        else if (leaf == CV_LINEAR)
            cv_row_sums(1, l, r, adjoint, n_groups, lanes);
        else
            cv_row_sums(0, l, r, t, n_groups, lanes);
        lanes += CV_PANEL_ROWS * CV_LANES;
    }
}

/* ---------------------------------------------------------------------------------------------- in and out */

/* Coordinates of `n` points from x on, scaled, in `width` places: beyond the last point its copies. */
static void cv_points(const double *x, ptrdiff_t n, double scale, ptrdiff_t width, double *to)
{
    for (ptrdiff_t i = 0; i < width; i++)
        to[i] = scale * x[i < n ? i : n - 1];
}

/* Copy n doubles, past the caches if `stream`. */
CV_INLINE void cv_put(int stream, double *to, const double *from, ptrdiff_t n)
{
    if (stream)
        cv_stream(to, from, n);
    else
        cv_copy(to, from, n);
}

/* out[r, j] = panel for n_rows rows and n_columns columns; of a symmetric matrix those up to column `diagonal` + r. */
static void cv_put_panel(int stream, const double *panel, int symmetric, ptrdiff_t n_rows, ptrdiff_t n_columns,
                         ptrdiff_t diagonal, double *out, ptrdiff_t stride)
{
    for (ptrdiff_t r = 0; r < n_rows; r++) {
        ptrdiff_t n = symmetric && diagonal + r + 1 < n_columns ? diagonal + r + 1 : n_columns;
        cv_put(stream, out + r * stride, panel + r * CV_PANEL_COLUMNS, n);
    }
}

/* mirrored[j, r] = panel for all rows and n_groups groups of columns. */
static void cv_mirror_panel(const double *panel, ptrdiff_t n_groups, double *mirrored, ptrdiff_t stride)
{
    CV_GROUPS(at) {
        cv8 x[CV_PANEL_ROWS];
        CV_ROWS(r) x[r] = cv8_load(panel + r * CV_PANEL_COLUMNS + at);
        cv8_transpose(x);
        CV_ROWS(r) cv8_store(mirrored + (at + r) * stride, x[r]);
    }
}

/* out[j, r] = mirrored for n_columns columns and n_rows rows, those with diagonal + r >= j. */
static void cv_put_mirrored(int stream, const double *mirrored, ptrdiff_t n_columns, ptrdiff_t n_rows,
                            ptrdiff_t width, ptrdiff_t diagonal, double *out, ptrdiff_t stride)
{
    for (ptrdiff_t j = 0; j < n_columns; j++) {
        ptrdiff_t first = j > diagonal ? j - diagonal : 0;
        if (first < n_rows)
            cv_put(stream, out + j * stride + first, mirrored + j * width + first, n_rows - first);
    }
}

/* Ask for the weights of the panel below. */
static void cv_prefetch_panel(const double *weights, ptrdiff_t stride)
{
    for (ptrdiff_t r = CV_PANEL_ROWS; r < 2 * CV_PANEL_ROWS; r++)
        for (ptrdiff_t j = 0; j < CV_PANEL_COLUMNS; j += 32)
            cv_prefetch_32(weights + r * stride + j);
}

/* panel = weights of n_rows x n_columns entries, 0 beyond; of a symmetric matrix those left of column `diagonal` + r
 * doubled, and 0 right of it. */
static void cv_get_panel(const double *weights, ptrdiff_t stride, int symmetric, ptrdiff_t n_rows, ptrdiff_t n_columns,
                         ptrdiff_t diagonal, double *panel)
{
    for (ptrdiff_t r = 0; r < CV_PANEL_ROWS; r++) {
        double *row = panel + r * CV_PANEL_COLUMNS;
        ptrdiff_t n = r < n_rows ? n_columns : 0, twice = 0;
        if (symmetric && r < n_rows) {
            n = diagonal + r + 1 < n ? diagonal + r + 1 : n;
            twice = diagonal + r < n ? diagonal + r : n;
        }
        for (ptrdiff_t j = 0; j < twice; j++)
            row[j] = 2.0 * weights[r * stride + j];
        for (ptrdiff_t j = twice; j < n; j++)
            row[j] = weights[r * stride + j];
        for (ptrdiff_t j = n; j < CV_PANEL_COLUMNS; j++)
            row[j] = 0.0;
    }
}

#endif
