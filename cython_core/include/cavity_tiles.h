/* Squared distances |F (z - m)|^2 and weighted moments of z - m, for strips of points that lie in vectors.
 *
 * Design:
 * a) Points are columns: coordinate i of a group of points is row i of z, `stride` doubles apart, so that every
 *    operation is done on as many points as a register holds, for any number of coordinates.
 * b) Triangles are cut into tiles of 4 x 4 entries whose sums stay in registers: a product and an addition need half a
 *    load. Tile rows are 0..first-1 and from there on four at a time, first = 1..4: every tile but those of the
 *    first row has four rows, and the compiler sees constants only.
 * c) Products and sums are separate operations: both kinds have their own pipes, and the bits do not depend on fma.
 * d) Moments are eight sums side by side (point i in lane i mod 8), added up tile by tile by cv8_combine_each.
 */
#ifndef CAVITY_TILES_H
#define CAVITY_TILES_H

#include "cavity_lanes.h"

#define CV_TILE 4
#define CV_TILE_SUMS 16                     /* room for the sums of one tile */
#define CV_PARTS_OF_STRIP (CV_WIDTH == 8 ? 4 : 2)
#define CV_STRIP (CV_PARTS_OF_STRIP * CV_WIDTH)     /* points whose distances are found together */
/* rows of a tile whose sums fit into the registers together */
#define CV_TILE_STEP (CV_WIDTH == 8 ? 4 : 2)

#if defined(__GNUC__) && !defined(__clang__)
#define CV_UNROLLED _Pragma("GCC unroll 16")
#elif defined(__clang__)
#define CV_UNROLLED _Pragma("unroll")
#else
#define CV_UNROLLED
#endif

CV_INLINE cv_part cv_part_load(const double *from) { return *(const cv_part_anywhere *)from; }
CV_INLINE void cv_part_store(double *to, cv_part x) { *(cv_part_anywhere *)to = x; }
CV_INLINE cv_part cv_part_set(double a) { const cv_part zero = {0}; return a - zero; }

CV_INLINE int cv_first_tile(ptrdiff_t n_features) { return (int)((n_features - 1) % CV_TILE) + 1; }

/* ---------------------------------------------------------------------------------------------- coordinates */

/* Store eight coordinates; if `partial`, bits that say whether they are not nan, and 0 for those that are. */
CV_INLINE void cv_store_coordinates(const int partial, cv8 x, double origin, double scale, double *z, double *seen)
{
    CV_EACH(p) {
        cv_part c = (x.part[p] - cv_part_set(origin)) * cv_part_set(scale);
        if (partial) {
            cv_part known = cv_part_known(x.part[p]);
            cv_part_store(seen + p * CV_WIDTH, known);
            c = cv_part_and(c, known);
        }
        cv_part_store(z + p * CV_WIDTH, c);
    }
}

/* z, and if `partial` seen, (n_features, stride) = coordinates of n rows in columns. `room` doubles may be read from
 * rows on. */
CV_INLINE void cv_coordinates(const int partial, const double *rows, ptrdiff_t n_features, ptrdiff_t n, ptrdiff_t room,
                              const double *origin, const double *scale, double *z, double *seen, ptrdiff_t stride)
{
    const uint64_t none = 0, all = ~none;
    const ptrdiff_t beyond = CV_LANES - 1 - (n_features - 1) % CV_LANES;    /* what the last block of a row reads */
    ptrdiff_t i = 0;
    for (; n_features > 4 && i + CV_LANES <= n && (i + CV_LANES) * n_features + beyond <= room; i += CV_LANES)
        for (ptrdiff_t j = 0; j < n_features; j += CV_LANES) {
            cv8 x[CV_LANES];
            for (int l = 0; l < CV_LANES; l++)
                x[l] = cv8_load(rows + (i + l) * n_features + j);
            cv8_transpose(x);
            for (int c = 0; c < (n_features - j < CV_LANES ? n_features - j : CV_LANES); c++)
                cv_store_coordinates(partial, x[c], origin[j + c], scale[j + c], z + (j + c) * stride + i,
                                     partial ? seen + (j + c) * stride + i : seen);
        }
    for (ptrdiff_t j = 0; j < n_features; j++)
        for (ptrdiff_t k = i; k < n; k++) {
            double x = rows[k * n_features + j];
            z[j * stride + k] = partial && x != x ? 0.0 : (x - origin[j]) * scale[j];
            if (partial)
                memcpy(seen + j * stride + k, x == x ? &all : &none, sizeof all);
        }
}

/* ---------------------------------------------------------------------------------------------- distances */

/* Add the squares of `n` rows of F (z - m) to q, the first of them row `at`: d holds z - m of the coordinates before
 * `at`, and gets those of these rows if `keep`. */
CV_INLINE void cv_tile_distance(const int n, const int keep, ptrdiff_t at, const double *z, ptrdiff_t stride,
                                const double *mean, const double *factor, ptrdiff_t width, double *d, cv_part *q)
{
    cv_part y[CV_TILE][CV_PARTS_OF_STRIP], x[CV_PARTS_OF_STRIP];
    const double *row = factor + at * width;
    CV_UNROLLED for (int b = 0; b < n; b++) {
        cv_part m = cv_part_set(mean[at + b]);
        CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++) {
            x[u] = cv_part_load(z + (at + b) * stride + u * CV_WIDTH) - m;
            if (keep)
                cv_part_store(d + (at + b) * CV_STRIP + u * CV_WIDTH, x[u]);
        }
        CV_UNROLLED for (int a = b; a < n; a++) {
            cv_part f = cv_part_set(row[a * width + at + b]);
            CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++)
                y[a][u] = b ? y[a][u] + f * x[u] : f * x[u];
        }
    }
    for (ptrdiff_t i = 0; i < at; i++) {
        CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++)
            x[u] = cv_part_load(d + i * CV_STRIP + u * CV_WIDTH);
        CV_UNROLLED for (int a = 0; a < n; a++) {
            cv_part f = cv_part_set(row[a * width + i]);
            CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++)
                y[a][u] += f * x[u];
        }
    }
    CV_UNROLLED for (int a = 0; a < n; a++)
        CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++)
            q[u] += y[a][u] * y[a][u];
}

/* out (CV_STRIP) = |F (z - m)|^2 of a strip, F lower triangular; d is scratch of n_features CV_STRIP. */
CV_INLINE void cv_distance(ptrdiff_t n_features, const double *z, ptrdiff_t stride, const double *mean,
                           const double *factor, double *d, double *out)
{
    cv_part q[CV_PARTS_OF_STRIP];
    ptrdiff_t at = cv_first_tile(n_features);
    CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++)
        q[u] = cv_part_set(0.0);
#define CV_CASE(n, keep) cv_tile_distance(n, keep, 0, z, stride, mean, factor, n_features, d, q)
    switch (n_features <= CV_TILE ? -at : at) {
    case -1: CV_CASE(1, 0); break;
    case -2: CV_CASE(2, 0); break;
    case -3: CV_CASE(3, 0); break;
    case -4: CV_CASE(4, 0); break;
    case 1: CV_CASE(1, 1); break;
    case 2: CV_CASE(2, 1); break;
    case 3: CV_CASE(3, 1); break;
    default: CV_CASE(4, 1);
    }
#undef CV_CASE
    for (; at < n_features - CV_TILE; at += CV_TILE)
        cv_tile_distance(CV_TILE, 1, at, z, stride, mean, factor, n_features, d, q);
    if (at < n_features)
        cv_tile_distance(CV_TILE, 0, at, z, stride, mean, factor, n_features, d, q);
    CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++)
        cv_part_store(out + u * CV_WIDTH, q[u]);
}

/* ---------------------------------------------------------------------------------------------- moments */

/* Add the totals of n of CV_TILE_SUMS sums to as many numbers. */
CV_INLINE void cv_add_sums(const int n, cv8 *sums, double *to)
{
    CV_UNROLLED for (int i = n; i < CV_TILE_SUMS; i++)
        sums[i] = cv8_set(0.0);
    cv8_store(to, cv8_add(cv8_load(to), cv8_combine_each(sums)));
    if (n > 8)
        cv8_store(to + 8, cv8_add(cv8_load(to + 8), cv8_combine_each(sums + 8)));
}

/* The sums of rows top..bottom-1 of the tile below, in part p; count may be NULL. */
CV_INLINE void cv_rows_on_diagonal(const int plain, const int top, const int bottom, const int first, const int last,
                                   const int p, const double *z, ptrdiff_t stride, const double *mean, const double *r,
                                   const double *t, ptrdiff_t n_points, double *d, double *w, cv8 *sums, cv8 *count)
{
    cv_part s[CV_TILE], S[CV_TILE][CV_TILE], e[CV_TILE], m[CV_TILE], f, N = cv_part_set(0.0), pull = N;
    CV_UNROLLED for (int a = 0; a < bottom; a++) {
        s[a] = N;
        if (!plain)
            m[a] = cv_part_set(mean[a]);
        CV_UNROLLED for (int b = 0; b <= a; b++)
            S[a][b] = N;
    }
    for (ptrdiff_t i = p * CV_WIDTH; i < n_points; i += CV_LANES) {
        cv_part weight = cv_part_load(r + i);
        if (count)
            N += weight;
        if (plain)
            pull = cv_part_load(t + i);
        CV_UNROLLED for (int a = 0; a < bottom; a++) {
            e[a] = cv_part_load(z + a * stride + i);
            if (!plain)
                e[a] -= m[a];
            if (a < top)
                continue;
            f = weight * e[a];
            s[a] += plain ? pull * e[a] : f;
            if (!plain && !last)
                cv_part_store(d + a * n_points + i, e[a]);
            if (!first)
                cv_part_store(w + a * n_points + i, f);
            CV_UNROLLED for (int b = 0; b <= a; b++)
                S[a][b] += f * e[b];
        }
    }
    CV_UNROLLED for (int a = top; a < bottom; a++) {
        CV_UNROLLED for (int b = 0; b <= a; b++)
            sums[a * (a + 3) / 2 + b].part[p] = S[a][b];
        sums[a * (a + 3) / 2 + a + 1].part[p] = s[a];
    }
    if (count)
        count->part[p] = N;
}

/* Add to `to`, row by row of the `n` coordinates from z on: sum r d_a d_b (b <= a) and sum r d_a, or sum t d_a if
 * `plain`; then, if `first`, sum r. d of these coordinates, n x n_points, is kept unless `last`, w = r d unless `first`.
 */
CV_INLINE void cv_tile_on_diagonal(const int plain, const int n, const int first, const int last, const double *z,
                                   ptrdiff_t stride, const double *mean, const double *r, const double *t,
                                   ptrdiff_t n_points, double *d, double *w, double *to)
{
    cv8 sums[CV_TILE_SUMS];
    cv8 *count = first ? sums + n * (n + 3) / 2 : NULL;
    CV_EACH(p) {
        cv_rows_on_diagonal(plain, 0, n < CV_TILE_STEP ? n : CV_TILE_STEP, first, last, p, z, stride, mean, r, t,
                            n_points, d, w, sums, count);
        if (n > CV_TILE_STEP)
            cv_rows_on_diagonal(plain, CV_TILE_STEP, n, first, last, p, z, stride, mean, r, t, n_points, d, w, sums,
                                NULL);
    }
    cv_add_sums(n * (n + 3) / 2 + first, sums, to);
}

/* Add sum w_a d_b to `to` for CV_TILE rows a and `n` columns b. */
CV_INLINE void cv_tile_off_diagonal(const int n, const double *w, const double *d, ptrdiff_t n_points, double *to)
{
    cv8 sums[CV_TILE_SUMS];
    CV_EACH(p) {
        for (int top = 0; top < CV_TILE; top += CV_TILE_STEP) {
            cv_part S[CV_TILE_STEP][CV_TILE], f[CV_TILE_STEP], e;
            CV_UNROLLED for (int a = 0; a < CV_TILE_STEP; a++)
                CV_UNROLLED for (int b = 0; b < n; b++)
                    S[a][b] = cv_part_set(0.0);
            for (ptrdiff_t i = p * CV_WIDTH; i < n_points; i += CV_LANES) {
                CV_UNROLLED for (int a = 0; a < CV_TILE_STEP; a++)
                    f[a] = cv_part_load(w + (top + a) * n_points + i);
                CV_UNROLLED for (int b = 0; b < n; b++) {
                    e = cv_part_load(d + b * n_points + i);
                    CV_UNROLLED for (int a = 0; a < CV_TILE_STEP; a++)
                        S[a][b] += f[a] * e;
                }
            }
            CV_UNROLLED for (int a = 0; a < CV_TILE_STEP; a++)
                CV_UNROLLED for (int b = 0; b < n; b++)
                    sums[(top + a) * n + b].part[p] = S[a][b];
        }
    }
    cv_add_sums(CV_TILE * n, sums, to);
}

/* Add the weighted moments of n_points points about m to sums: for each row of tiles its tile on the diagonal (with
 * the sums of r d, and the first with that of r), then those to the left, CV_TILE_SUMS numbers a tile. Weights have any
 * sign. d (n_features, n_points) and w (CV_TILE, n_points) are scratch.
 * If `plain` they are about zero, with sums of t d instead of r d; z is d itself, of n_points points a column. */
CV_INLINE void cv_moments(const int plain, ptrdiff_t n_features, double *z, ptrdiff_t stride, const double *mean,
                          const double *r, const double *t, ptrdiff_t n_points, double *d, double *w, double *sums)
{
    const ptrdiff_t first = cv_first_tile(n_features);
    if (plain)
        d = z, stride = n_points;
#define CV_CASE(n, last) cv_tile_on_diagonal(plain, n, 1, last, z, stride, mean, r, t, n_points, d, w, sums)
    switch (n_features <= CV_TILE ? -first : first) {
    case -1: CV_CASE(1, 1); break;
    case -2: CV_CASE(2, 1); break;
    case -3: CV_CASE(3, 1); break;
    case -4: CV_CASE(4, 1); break;
    case 1: CV_CASE(1, 0); break;
    case 2: CV_CASE(2, 0); break;
    case 3: CV_CASE(3, 0); break;
    default: CV_CASE(4, 0);
    }
#undef CV_CASE
    sums += CV_TILE_SUMS;
    for (ptrdiff_t at = first; at < n_features; at += CV_TILE) {
        if (at < n_features - CV_TILE)
            cv_tile_on_diagonal(plain, CV_TILE, 0, 0, z + at * stride, stride, plain ? mean : mean + at, r, t, n_points,
                                d + at * n_points, w, sums);
        else
            cv_tile_on_diagonal(plain, CV_TILE, 0, 1, z + at * stride, stride, plain ? mean : mean + at, r, t, n_points,
                                d, w, sums);
        sums += CV_TILE_SUMS;
        switch (first) {
        case 1: cv_tile_off_diagonal(1, w, d, n_points, sums); break;
        case 2: cv_tile_off_diagonal(2, w, d, n_points, sums); break;
        case 3: cv_tile_off_diagonal(3, w, d, n_points, sums); break;
        default: cv_tile_off_diagonal(4, w, d, n_points, sums);
        }
        sums += CV_TILE_SUMS;
        for (ptrdiff_t left = first; left < at; left += CV_TILE) {
            cv_tile_off_diagonal(CV_TILE, w, d + left * n_points, n_points, sums);
            sums += CV_TILE_SUMS;
        }
    }
}

/* ---------------------------------------------------------------------------------------------- by coordinates */

/* out (CV_STRIP) = sum_i p_i (z_i - m_i)^2 of a strip; if `partial`, that less twice gain_i (nothing if NULL), over the
 * coordinates seen (bits, all set or none, laid out as z). */
CV_INLINE void cv_distance_by_coordinate(const int partial, ptrdiff_t n_features, const double *z, const double *seen,
                                         ptrdiff_t stride, const double *mean, const double *precision,
                                         const double *gain, double *out)
{
    cv_part q[CV_PARTS_OF_STRIP], x, t;
    CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++)
        q[u] = cv_part_set(0.0);
    for (ptrdiff_t i = 0; i < n_features; i++) {
        cv_part m = cv_part_set(mean[i]), p = cv_part_set(precision[i]), g = cv_part_set(gain ? 2.0 * gain[i] : 0.0);
        CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++) {
            x = cv_part_load(z + i * stride + u * CV_WIDTH) - m;
            t = (p * x) * x;
            if (partial)
                t = cv_part_and(t - g, cv_part_load(seen + i * stride + u * CV_WIDTH));
            q[u] += t;
        }
    }
    CV_UNROLLED for (int u = 0; u < CV_PARTS_OF_STRIP; u++)
        cv_part_store(out + u * CV_WIDTH, q[u]);
}

/* Add to `to` the sums of r d_a and r d_a^2 of `n` coordinates from z on, a pair a coordinate, and, if `partial`,
 * behind those of CV_TILE coordinates, those of r, all over what is seen. */
CV_INLINE void cv_tile_by_coordinate(const int n, const int partial, const double *z, const double *seen,
                                     ptrdiff_t stride, const double *mean, const double *r, ptrdiff_t n_points,
                                     double *to)
{
    cv8 sums[CV_TILE_SUMS];
    CV_EACH(p) {
        cv_part s[CV_TILE], S[CV_TILE], N[CV_TILE], m[CV_TILE], weight, e, f;
        CV_UNROLLED for (int a = 0; a < n; a++)
            N[a] = s[a] = S[a] = cv_part_set(0.0), m[a] = cv_part_set(mean[a]);
        for (ptrdiff_t i = p * CV_WIDTH; i < n_points; i += CV_LANES)
            CV_UNROLLED for (int a = 0; a < n; a++) {
                weight = cv_part_load(r + i);
                if (partial) {
                    weight = cv_part_and(weight, cv_part_load(seen + a * stride + i));
                    N[a] += weight;
                }
                e = cv_part_load(z + a * stride + i) - m[a];
                f = weight * e;
                s[a] += f;
                S[a] += f * e;
            }
        CV_UNROLLED for (int a = 0; a < n; a++) {
            sums[2 * a].part[p] = s[a], sums[2 * a + 1].part[p] = S[a];
            if (partial)
                sums[2 * CV_TILE + a].part[p] = N[a];
        }
    }
    CV_UNROLLED for (int i = 2 * n; i < 2 * CV_TILE; i++)
        sums[i] = cv8_set(0.0);
    cv_add_sums(partial ? 2 * CV_TILE + n : 2 * n, sums, to);
}

/* Add those of all coordinates to sums, CV_TILE_SUMS numbers a tile, and the sum of r to total. */
CV_INLINE void cv_moments_by_coordinate(const int partial, ptrdiff_t n_features, const double *z, const double *seen,
                                        ptrdiff_t stride, const double *mean, const double *r, ptrdiff_t n_points,
                                        double *sums, double *total)
{
    const ptrdiff_t first = cv_first_tile(n_features);
    double lanes[CV_LANES];
    cv8 count = cv8_set(0.0);
    for (ptrdiff_t i = 0; i < n_points; i += CV_LANES)
        count = cv8_add(count, cv8_load(r + i));
    cv8_store(lanes, count);
    *total += cv_combine(lanes);
#define CV_CASE(n) cv_tile_by_coordinate(n, partial, z, seen, stride, mean, r, n_points, sums)
    switch (first) {
    case 1: CV_CASE(1); break;
    case 2: CV_CASE(2); break;
    case 3: CV_CASE(3); break;
    default: CV_CASE(4);
    }
#undef CV_CASE
    for (ptrdiff_t at = first; at < n_features; at += CV_TILE) {
        sums += CV_TILE_SUMS;
        cv_tile_by_coordinate(CV_TILE, partial, z + at * stride, partial ? seen + at * stride : seen, stride,
                              mean + at, r, n_points, sums);
    }
}

#endif
