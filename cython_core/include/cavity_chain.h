/* Filter and smoother of sums of Matern processes in time, whose states are small: see cython_core/ep/chain.pyx.
 *
 * Design:
 * a) Every function has the number of states as its first argument and is inlined. `CV_CHAIN_CALL` calls one with a
 *    constant for 1 to 3 states, for which the compiler unrolls all loops, and with a variable for more.
 * b) Steps are computed where they are used: they do not depend on the moments, so the processor has time for them
 *    while it waits for the recursion.
 * c) Of a sum, the first state is f itself in place of the first of its processes, z = T x: the update of a site is then in
 *    the first row and column, where nothing cancels, as it would in the sum of the entries of several processes.
 */
#ifndef CAVITY_CHAIN_H
#define CAVITY_CHAIN_H

#include "cavity_math.h"

#define CV_MAX_STATES 24
#define CV_MAX_SQUARE (CV_MAX_STATES * CV_MAX_STATES)
#define CV_PACKED(p) ((p) + (p) * ((p) + 1) / 2)      /* numbers of a mean and the lower triangle of a matrix */
#define CV_FAR 750.0                                  /* lam dt from which exp(-2 lam dt) is zero */

typedef struct {
    double states, rate, variance;                    /* b = nu + 1/2, lam = sqrt(2 nu)/lengthscale, sd^2 */
} cv_chain_block;

typedef struct {
    ptrdiff_t n_rows;
    int n_blocks;
    const cv_chain_block *blocks;
    const double *gaps;                               /* (N,): from the row before; inf for the first */
    const double *rho, *g;                            /* (N,): sites, g = tau - rho base */
} cv_chain;

/* A, Q and lam dt of the blocks for one step, Q[0] of the first process alone; and what the last step predicts: A m,
 * A P A' and A P A' + Q, whose first rows are those of f */
typedef struct {
    double gap, A[CV_MAX_SQUARE], Q[CV_MAX_SQUARE], d[CV_MAX_STATES], first_noise;
    double mean[CV_MAX_STATES], carried[CV_MAX_SQUARE], covariance[CV_MAX_SQUARE];
} cv_chain_step;

static const double cv_reciprocals[34] = {            /* divisions would take longer than all else of a step */
    0.0, 1.0 / 1, 1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 5, 1.0 / 6, 1.0 / 7, 1.0 / 8, 1.0 / 9, 1.0 / 10, 1.0 / 11,
    1.0 / 12, 1.0 / 13, 1.0 / 14, 1.0 / 15, 1.0 / 16, 1.0 / 17, 1.0 / 18, 1.0 / 19, 1.0 / 20, 1.0 / 21, 1.0 /
    22, 1.0 / 23, 1.0 / 24, 1.0 / 25, 1.0 / 26, 1.0 / 27, 1.0 / 28, 1.0 / 29, 1.0 / 30, 1.0 / 31, 1.0 / 32, 1.0
    / 33
};

/* sum of x^j/((m + 1) ... (m + j)), j = 0, ..., n, by Horner's rule */
CV_INLINE double cv_gamma_series(int m, double x, int n)
{
    double sum = 1.0;
    for (int j = n; j > 0; j--)
        sum = 1.0 + (x * cv_reciprocals[m + j]) * sum;
    return sum;
}

/* the incomplete gamma function P(m, x) of m = 1, 3, 5, no digits lost for small x; E = exp(-x) */
CV_INLINE double cv_gamma_share(int m, double x, double E)
{
    double power = 1.0, sum = 1.0;
    if (x >= 0.5 * (m + 1)) {
        for (int k = 1; k < m; k++) {
            power *= x * cv_reciprocals[k];
            sum += power;
        }
        return 1.0 - E * sum;
    }
    for (int k = 1; k <= m; k++)
        power *= x * cv_reciprocals[k];
    /* terms until they are below 1e-17 */
    sum = x < 0.0625 ? cv_gamma_series(m, x, 9) : x < 0.5 ? cv_gamma_series(m, x, 14) : cv_gamma_series(m, x, 28);
    return E * power * sum;
}

/* A = exp(F d) and Q = q int_0^d exp(F s) e e' exp(F s)' ds of b states, equations (1) and (2) of terms/matern_steps.py;
 * with t_k = E x^k/k!, x = 2 d and E = exp(-x), all of Q is P(2 b - 1, x) and these */
CV_INLINE void cv_matern_step(int b, double d, double variance, int stride, double *A, double *Q)
{
    double near = d < CV_FAR ? d : CV_FAR, e = cv_exp(-near), E = e * e, x = 2.0 * near;
    double share = cv_gamma_share(2 * b - 1, x, E) * variance, t1 = E * x * variance;
    if (b == 1) {
        A[0] = e;
        Q[0] = share;
    } else if (b == 2) {
        A[0] = e * (1.0 + near), A[1] = e * near;
        A[stride] = -e * near, A[stride + 1] = e * (1.0 - near);
        Q[0] = share, Q[1] = Q[stride] = 0.5 * t1 * x;
        Q[stride + 1] = share + 2.0 * t1;
    } else {
        double t2 = 0.5 * t1 * x, t3 = t2 * x / 3.0, t4 = 0.25 * t3 * x, half = 0.5 * near * near, square = near * near;
        A[0] = e * (1.0 + near + half), A[1] = e * (near + square), A[2] = e * half;
        A[stride] = -e * half, A[stride + 1] = e * (1.0 + near - square), A[stride + 2] = e * (near - half);
        A[2 * stride] = e * (half - near), A[2 * stride + 1] = e * (square - 3.0 * near);
        A[2 * stride + 2] = e * (1.0 - 2.0 * near + half);
        Q[0] = share, Q[1] = Q[stride] = t4;
        Q[2] = Q[2 * stride] = (-share + 2.0 * t3 - 4.0 * t4) / 3.0;
        Q[stride + 1] = (share + 4.0 * t3 - 2.0 * t4) / 3.0;
        Q[stride + 2] = Q[2 * stride + 1] = (4.0 / 3.0) * t2 - 2.0 * t3 + t4;
        Q[2 * stride + 2] = share + (8.0 / 3.0) * (t1 - t2) + 4.0 * t3;
    }
}

/* the step of a gap; `single` says that there is one block, of p states */
CV_INLINE void cv_chain_find_step(int p, int single, const cv_chain *chain, double gap, cv_chain_step *step)
{
    if (gap == step->gap)
        return;
    step->gap = gap;
    for (int k = 0, first = 0; k < (single ? 1 : chain->n_blocks); k++) {
        int b = single ? p : (int)chain->blocks[k].states, at = first * (p + 1);
        double d = chain->blocks[k].rate * gap, variance = chain->blocks[k].variance;
        step->d[k] = d < CV_FAR ? d : CV_FAR;         /* nan, of a rate of zero before the first row, is far */
        if (b == 1)
            cv_matern_step(1, step->d[k], variance, p, step->A + at, step->Q + at);
        else if (b == 2)
            cv_matern_step(2, step->d[k], variance, p, step->A + at, step->Q + at);
        else
            cv_matern_step(3, step->d[k], variance, p, step->A + at, step->Q + at);
        first += b;
    }
    step->first_noise = step->Q[0];
    for (int k = 1, first = (int)chain->blocks[0].states; !single && k < chain->n_blocks; k++) {
        int b = (int)chain->blocks[k].states, at = first * p;
        for (int j = first; j < first + b; j++) {     /* T A T^-1, of which the other rows are as they were, and T Q T' */
            step->A[j] = step->A[at + j];
            step->Q[j] = step->Q[j * p] = step->Q[at + j];
        }
        for (int i = 0; i < (int)chain->blocks[0].states; i++)
            step->A[i * p + first] = (i ? 0.0 : step->A[first]) - step->A[i * p];
        step->Q[0] += step->Q[first];
        first += b;
    }
}

/* moments of the states after a step from a mean and a lower triangle, of no state if NULL */
CV_INLINE void cv_chain_predict(int p, const double *from, cv_chain_step *step)
{
    double P[CV_MAX_SQUARE], product[CV_MAX_SQUARE];
    for (int i = 0; i < p; i++)
        for (int j = 0; j <= i; j++)
            P[i * p + j] = P[j * p + i] = from ? from[p + i * (i + 1) / 2 + j] : 0.0;
    for (int i = 0; i < p; i++) {
        double mean = 0.0;
        for (int j = 0; j < p; j++) {
            double sum = 0.0;
            for (int k = 0; k < p; k++)
                sum += step->A[i * p + k] * P[k * p + j];
            product[i * p + j] = sum;
            mean += step->A[i * p + j] * (from ? from[j] : 0.0);
        }
        step->mean[i] = mean;
    }
    for (int i = 0; i < p; i++)
        for (int j = 0; j <= i; j++) {
            double sum = 0.0;
            for (int k = 0; k < p; k++)
                sum += product[i * p + k] * step->A[j * p + k];
            step->carried[i * p + j] = step->carried[j * p + i] = sum;
            step->covariance[i * p + j] = step->covariance[j * p + i] = sum + step->Q[i * p + j];
        }
}

CV_INLINE void cv_chain_start(int p, cv_chain_step *step)
{
    step->gap = -1.0, step->first_noise = 0.0;
    for (int k = 0; k < CV_MAX_STATES; k++)
        step->d[k] = CV_FAR;
    for (int i = 0; i < p * p; i++)
        step->A[i] = step->Q[i] = 0.0;
}

/* Filter: moments (N, CV_PACKED(p)) of the states given the sites up to each row; of each row sqrt(rho/scale) times
 * y - mean in `white` (N,), if it is not NULL. Write log|I + K R| and the sum of squares of `white` to totals (2,), and
 * return whether the posterior is proper. */
CV_INLINE int cv_chain_filter(int p, int single, const cv_chain *chain, double *moments, double *white, double *totals)
{
    ptrdiff_t misfits = 0;
    double logs = 0.0, product = 1.0, squares = 0.0;
    cv_chain_step step;
    cv_chain_start(p, &step);
    for (ptrdiff_t n = 0; n < chain->n_rows; n++) {
        double *out = moments + n * CV_PACKED(p);
        cv_chain_find_step(p, single, chain, chain->gaps[n], &step);
        cv_chain_predict(p, n ? out - CV_PACKED(p) : NULL, &step);
        const double *spread = step.covariance;
        double rho = chain->rho[n], scale = 1.0 + rho * spread[0], inverse = 1.0 / scale;
        double residual = chain->g[n] - rho * step.mean[0], gain = residual * inverse, shrink = rho * inverse;
        for (int i = 0; i < p; i++) {
            out[i] = step.mean[i] + gain * spread[i];
            for (int j = 0; j <= i; j++)              /* nothing cancels in the column of f */
                out[p + i * (i + 1) / 2 + j] =
                    j == 0 ? inverse * spread[i] : step.covariance[i * p + j] - shrink * spread[i] * spread[j];
        }
        /* pivots of R^-1 + K, which has as many negative ones as R if and only if the posterior is proper */
        misfits += scale < 0.0 ? (rho > 0.0 ? 1 : -1) : 0;
        double size = fabs(scale), square = rho > 0.0 ? residual * gain / rho : 0.0;
        squares += square;
        if (white)
            white[n] = rho > 0.0 ? residual * sqrt(inverse / rho) : 0.0;
        if (!(size < 1e100 && size > 1e-100)) {
            logs += cv_log(size);
            continue;
        }
        product *= size;
        if (!(product < 1e100 && product > 1e-100)) {
            logs += cv_log(product);
            product = 1.0;
        }
    }
    totals[0] = logs + cv_log(product), totals[1] = squares;
    return misfits == 0 && totals[0] < INFINITY && totals[0] > -INFINITY;
}

/* Smoother, from the moments of the filter. Out, (N,): mean and variance of f, alpha = K^-1 mean and the diagonal of
 * (I + R K)^-1 R. Out, unless NULL: `slopes` (N, CV_PACKED(p)), of the log evidence in the predicted mean of a row and
 * minus twice that in its covariance; `gradient` (n_blocks, 2), in log variance and log lengthscale. */
CV_INLINE void cv_chain_smooth(
    int p, int single, const cv_chain *chain, const double *moments, double *mean, double *variance, double *alpha,
    double *curvature, double *slopes, double *gradient)
{
    static const double companion[3][3] = {{1.0}, {1.0, 2.0}, {1.0, 3.0, 3.0}}, q[3] = {2.0, 4.0, 16.0 / 3.0};
    double a[CV_MAX_STATES], G[CV_MAX_SQUARE], product[CV_MAX_SQUARE], y[CV_MAX_STATES];
    int n_blocks = single ? 1 : chain->n_blocks;
    cv_chain_step step;
    cv_chain_start(p, &step);
    for (int i = 0; i < p * p; i++)
        G[i] = 0.0;
    for (int i = 0; i < p; i++)
        a[i] = 0.0;
    for (int k = 0; gradient && k < 2 * n_blocks; k++)
        gradient[k] = 0.0;
    for (ptrdiff_t n = chain->n_rows - 1; n >= 0; n--) {
        cv_chain_find_step(p, single, chain, chain->gaps[n], &step);
        cv_chain_predict(p, n ? moments + (n - 1) * CV_PACKED(p) : NULL, &step);
        const double *spread = step.covariance;
        double rho = chain->rho[n], inverse = 1.0 / (1.0 + rho * spread[0]), shrink = rho * inverse;
        double ahead = 0.0, square = 0.0, u[CV_MAX_STATES];
        for (int i = 0; i < p; i++)                   /* (I - k h')' h, k = shrink spread, whose first entry cancels */
            u[i] = i ? -shrink * spread[i] : inverse;
        for (int i = 0; i < p; i++) {
            double sum = 0.0;
            y[i] = 0.0;
            for (int j = 0; j < p; j++) {
                sum += G[i * p + j] * spread[j];
                y[i] += G[i * p + j] * u[j];
            }
            ahead += spread[i] * a[i];
            square += spread[i] * sum;
        }
        double filtered = spread[0] * inverse, lost = square * inverse * inverse;
        /* smaller differences are rounding */
        variance[n] = filtered - lost > 2.3e-16 * filtered ? filtered - lost : 2.3e-16 * filtered;
        mean[n] = step.mean[0] + (spread[0] * (chain->g[n] - rho * step.mean[0]) + ahead) * inverse;
        alpha[n] = (chain->g[n] - rho * (step.mean[0] + ahead)) * inverse;
        curvature[n] = shrink + shrink * (shrink * square);       /* the square of shrink may leave the range */
        double own_slope = inverse * (chain->g[n] - rho * step.mean[0]), own_square = shrink;
        for (int i = 0; i < p; i++) {                 /* (I - k h')' a and (I - k h')' G (I - k h'), and those of the row */
            own_slope += u[i] * a[i];
            own_square += u[i] * y[i];
            G[i] = G[i * p] = y[i];
        }
        G[0] = own_square, a[0] = own_slope;
        if (slopes) {
            double *out = slopes + n * CV_PACKED(p);
            for (int i = 0; i < p; i++) {
                out[i] = a[i];
                for (int j = 0; j <= i; j++)
                    out[p + i * (i + 1) / 2 + j] = G[i * p + j];
            }
        }
        for (int k = 1, first = (int)chain->blocks[0].states; gradient && k < n_blocks; k++) {
            step.mean[0] -= step.mean[first];         /* T^-1 A m and T^-1 A P A': the first process is f less the others */
            for (int j = 0; j < p; j++)
                step.carried[j] -= step.carried[first * p + j];
            first += (int)chain->blocks[k].states;
        }
        for (int k = 0, first = 0; gradient && k < n_blocks; k++) {
            int b = single ? p : (int)chain->blocks[k].states;
            double by_variance = 0.0, by_length = 0.0;
            for (int i = first; i < first + b; i++) {
                int adds = k > 0 && i == first;       /* rows of T'(a a' - G), and of T'a */
                double own = adds ? a[i] + a[0] : a[i], moved = 0.0, weights[CV_MAX_STATES];
                for (int j = 0; j < p; j++) {         /* rows of F T^-1 A P A' and F T^-1 A m */
                    double row = 0.0;
                    if (i < first + b - 1)
                        row = step.carried[(i + 1) * p + j];
                    else
                        for (int m = 0; m < b; m++)
                            row -= companion[b - 1][m] * step.carried[(first + m) * p + j];
                    weights[j] = own * a[j] - (adds ? G[i * p + j] + G[j] : G[i * p + j]);
                    by_length += weights[j] * row;
                }
                if (i < first + b - 1)
                    moved = step.mean[i + 1];
                else
                    for (int m = 0; m < b; m++)
                        moved -= companion[b - 1][m] * step.mean[first + m];
                by_length += own * moved;
                for (int j = first; j < first + b; j++) {
                    double weight = 0.5 * (k > 0 && j == first ? weights[j] + weights[0] : weights[j]);
                    by_variance += weight * (i + j ? step.Q[i * p + j] : step.first_noise);
                    by_length += weight * q[b - 1] * chain->blocks[k].variance *
                                 step.A[i * p + first + b - 1] * step.A[j * p + first + b - 1];
                }
            }
            gradient[2 * k] += by_variance;
            gradient[2 * k + 1] -= step.d[k] * by_length;
            first += b;
        }
        for (int i = 0; i < p; i++) {
            y[i] = 0.0;
            for (int j = 0; j < p; j++) {
                double sum = 0.0;
                for (int k = 0; k < p; k++)
                    sum += G[i * p + k] * step.A[k * p + j];
                product[i * p + j] = sum;
                y[i] += step.A[j * p + i] * a[j];
            }
        }
        for (int i = 0; i < p; i++) {
            a[i] = y[i];
            for (int j = 0; j <= i; j++) {
                double sum = 0.0;
                for (int k = 0; k < p; k++)
                    sum += step.A[k * p + i] * product[k * p + j];
                G[i * p + j] = G[j * p + i] = sum;
            }
        }
    }
}

/* Moments (n,) of f at times: `after` is the row that follows each, `before` the gap from the one before it, inf for
 * none, `ahead` that to the row that follows, which counts only where there is one and slopes is not NULL. */
CV_INLINE void cv_chain_interpolate(
    int p, int single, const cv_chain *chain, const double *moments, const double *slopes, ptrdiff_t n,
    const int64_t *after, const double *before, const double *ahead, double *mean, double *variance)
{
    cv_chain_step step, next;
    cv_chain_start(p, &step);
    cv_chain_start(p, &next);
    for (ptrdiff_t i = 0; i < n; i++) {
        ptrdiff_t row = after[i];
        cv_chain_find_step(p, single, chain, before[i], &step);
        cv_chain_predict(p, row ? moments + (row - 1) * CV_PACKED(p) : NULL, &step);
        mean[i] = step.mean[0], variance[i] = step.covariance[0];
        if (!slopes || row >= chain->n_rows)
            continue;
        const double *slope = slopes + row * CV_PACKED(p);
        double w[CV_MAX_STATES], lost = 0.0;
        cv_chain_find_step(p, single, chain, ahead[i], &next);
        for (int j = 0; j < p; j++) {
            w[j] = 0.0;
            for (int k = 0; k < p; k++)
                w[j] += next.A[j * p + k] * step.covariance[k];
            mean[i] += w[j] * slope[j];
        }
        for (int j = 0; j < p; j++)
            for (int k = 0; k < p; k++)
                lost += w[j] * w[k] * slope[p + (j > k ? j * (j + 1) / 2 + k : k * (k + 1) / 2 + j)];
        variance[i] = variance[i] - lost > 2.3e-16 * variance[i] ? variance[i] - lost : 2.3e-16 * variance[i];
    }
}

/* call a function with a constant for a single block, or with p */
#define CV_CHAIN_CALL(function, p, chain, ...)                                  \
    ((chain)->n_blocks > 1 ? function(p, 0, chain, __VA_ARGS__)                 \
     : (p) == 1            ? function(1, 1, chain, __VA_ARGS__)                 \
     : (p) == 2            ? function(2, 1, chain, __VA_ARGS__)                 \
                           : function(3, 1, chain, __VA_ARGS__))

static int cv_filter(int p, const cv_chain *chain, double *moments, double *white, double *totals)
{
    return CV_CHAIN_CALL(cv_chain_filter, p, chain, moments, white, totals);
}

static void cv_smooth(
    int p, const cv_chain *chain, const double *moments, double *mean, double *variance, double *alpha,
    double *curvature, double *slopes, double *gradient)
{
    CV_CHAIN_CALL(cv_chain_smooth, p, chain, moments, mean, variance, alpha, curvature, slopes, gradient);
}

static void cv_interpolate(
    int p, const cv_chain *chain, const double *moments, const double *slopes, ptrdiff_t n, const int64_t *after,
    const double *before, const double *ahead, double *mean, double *variance)
{
    CV_CHAIN_CALL(cv_chain_interpolate, p, chain, moments, slopes, n, after, before, ahead, mean, variance);
}
#endif
