/* Eight doubles at a time, whatever the hardware has, and 2^(x/16) of them.
 *
 * Design:
 * a) A cv8 is one AVX-512 register, two of AVX2, four of SSE2 or NEON (GNU vector types), or eight plain doubles. A
 *    kernel written in cv8 keeps its values in registers where a loop over arrays would go through memory.
 * b) Every operation is an IEEE operation on each lane, in the order written: all instruction sets return the same bits.
 * c) 2^(x/16) = 2^n 2^(j/16) 2^(r/16) with 16 n + j = round(x), |r| <= 1/2: the scale 2^n 2^(j/16) is an entry of a
 *    table of 16 with an integer added to its exponent, 2^(r/16) a polynomial of degree 6. The 16 entries fill two
 *    AVX-512 registers, where one permutation looks up eight. The caller folds 16/log 2 into the factors of x, which
 *    saves the two-part product with log 2 that an exp of x needs.
 * Measured with gcc 12 on Zen 4: 0.45 ns an element on AVX-512 (cv_exp 0.96), 0.68 on AVX2 (cv_exp 1.38).
 * Errors against mpmath are in tests/test_simd.py: 1.1 ulp, 1.3 ulp below 2^-1016. The coefficients and the table come
 * from tests/golden/make_math_coefficients.py.
 */
#ifndef CAVITY_LANES_H
#define CAVITY_LANES_H

#include "cavity_math.h"
#include "cavity_stream.h"    /* and with it the intrinsics */

#if defined(__GNUC__)
#if defined(__AVX512F__)
#define CV_WIDTH 8
#elif defined(__AVX2__)
#define CV_WIDTH 4
#else
#define CV_WIDTH 2
#endif
typedef double cv_part __attribute__((vector_size(8 * CV_WIDTH)));
typedef uint64_t cv_part_bits __attribute__((vector_size(8 * CV_WIDTH)));
typedef double cv_part_anywhere __attribute__((vector_size(8 * CV_WIDTH), aligned(8), may_alias));
#else
#define CV_WIDTH 1
typedef double cv_part, cv_part_anywhere;
typedef uint64_t cv_part_bits;
#endif

#define CV_PARTS (CV_LANES / CV_WIDTH)
/* how many cv8 an inner loop should treat together: as many as the registers hold beside the constants */
#define CV_STEP (CV_WIDTH == 8 ? 4 : 2)

typedef struct {
    cv_part part[CV_PARTS];
} cv8;

/* goes before the type of a Cython function: each call with constant flags gets its own copy without their tests */
#if defined(__GNUC__)
#define CV_TEMPLATE __attribute__((always_inline))
#else
#define CV_TEMPLATE
#endif

#define CV_PER_NAT 23.083120654223414       /* 16/log 2 */

#define CV_EACH(p) for (int p = 0; p < CV_PARTS; p++)

CV_INLINE cv8 cv8_load(const double *from)
{
    cv8 x;
    CV_EACH(p) x.part[p] = *(const cv_part_anywhere *)(from + p * CV_WIDTH);
    return x;
}

CV_INLINE void cv8_store(double *to, cv8 x)
{
    CV_EACH(p) *(cv_part_anywhere *)(to + p * CV_WIDTH) = x.part[p];
}

CV_INLINE cv8 cv8_set(double a)
{
    cv8 x;
    const cv_part zero = {0};
    CV_EACH(p) x.part[p] = a - zero;
    return x;
}

CV_INLINE cv8 cv8_add(cv8 a, cv8 b) { CV_EACH(p) a.part[p] += b.part[p]; return a; }
CV_INLINE cv8 cv8_sub(cv8 a, cv8 b) { CV_EACH(p) a.part[p] -= b.part[p]; return a; }
CV_INLINE cv8 cv8_mul(cv8 a, cv8 b) { CV_EACH(p) a.part[p] *= b.part[p]; return a; }
CV_INLINE cv8 cv8_div(cv8 a, cv8 b) { CV_EACH(p) a.part[p] /= b.part[p]; return a; }

CV_INLINE cv_part_bits cv_part_to_bits(cv_part x)
{
    cv_part_bits u;
    memcpy(&u, &x, sizeof u);
    return u;
}

CV_INLINE cv_part cv_part_of_bits(cv_part_bits u)
{
    cv_part x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Prefetch the 32 doubles from `from` on, which may lie beyond the end of an array. */
CV_INLINE void cv_prefetch_32(const double *from)
{
#if defined(__GNUC__)
    for (int line = 0; line < 4; line++)
        __builtin_prefetch((const char *)from + 64 * line);
#else
    (void)from;
#endif
}

/* a where a > b, else b: b where either is nan. */
CV_INLINE cv8 cv8_max(cv8 a, cv8 b)
{
#if CV_WIDTH == 8
    a.part[0] = _mm512_max_pd(a.part[0], b.part[0]);
#elif CV_WIDTH == 4
    CV_EACH(p) a.part[p] = _mm256_max_pd(a.part[p], b.part[p]);
#elif CV_WIDTH == 2 && defined(__SSE2__)
    CV_EACH(p) a.part[p] = _mm_max_pd(a.part[p], b.part[p]);
#elif CV_WIDTH == 2
    CV_EACH(p) {
        cv_part_bits larger = (cv_part_bits)(a.part[p] > b.part[p]);
        a.part[p] = cv_part_of_bits((cv_part_to_bits(a.part[p]) & larger) | (cv_part_to_bits(b.part[p]) & ~larger));
    }
#else
    CV_EACH(p) a.part[p] = a.part[p] > b.part[p] ? a.part[p] : b.part[p];
#endif
    return a;
}

/* Square roots, correctly rounded. */
CV_INLINE cv8 cv8_sqrt(cv8 x)
{
#if CV_WIDTH == 8
    x.part[0] = _mm512_sqrt_pd(x.part[0]);
#elif CV_WIDTH == 4
    CV_EACH(p) x.part[p] = _mm256_sqrt_pd(x.part[p]);
#elif CV_WIDTH == 2 && defined(__SSE2__)
    CV_EACH(p) x.part[p] = _mm_sqrt_pd(x.part[p]);
#else
    double lanes[CV_LANES];
    cv8_store(lanes, x);
    for (int l = 0; l < CV_LANES; l++)
        lanes[l] = sqrt(lanes[l]);
    x = cv8_load(lanes);
#endif
    return x;
}

/* All bits where x is not nan, else none. */
CV_INLINE cv_part cv_part_known(cv_part x)
{
#if CV_WIDTH > 1
    return cv_part_of_bits((cv_part_bits)(x == x));
#else
    return cv_part_of_bits(x == x ? ~UINT64_C(0) : 0);
#endif
}

/* All bits where a > b, else none. */
CV_INLINE cv_part cv_part_above(cv_part a, cv_part b)
{
#if CV_WIDTH > 1
    return cv_part_of_bits((cv_part_bits)(a > b));
#else
    return cv_part_of_bits(a > b ? ~UINT64_C(0) : 0);
#endif
}

/* Bits of a where those of mask are set, else 0. */
CV_INLINE cv_part cv_part_and(cv_part a, cv_part mask)
{
    return cv_part_of_bits(cv_part_to_bits(a) & cv_part_to_bits(mask));
}

#define CV_SIGN_BIT (UINT64_C(1) << 63)

/* -|x| */
CV_INLINE cv8 cv8_minus_abs(cv8 x)
{
    CV_EACH(p) x.part[p] = cv_part_of_bits(cv_part_to_bits(x.part[p]) | CV_SIGN_BIT);
    return x;
}

/* a with its sign changed where b has one. */
CV_INLINE cv8 cv8_flip(cv8 a, cv8 b)
{
    CV_EACH(p) a.part[p] = cv_part_of_bits(
        cv_part_to_bits(a.part[p]) ^ (cv_part_to_bits(b.part[p]) & CV_SIGN_BIT));
    return a;
}

/* x less the nearest integer, for -2^52 <= x <= 0; exact. */
CV_INLINE cv8 cv8_fraction(cv8 x)
{
    CV_EACH(p) x.part[p] -= (x.part[p] - 0x1p52) + 0x1p52;
    return x;
}

/* sin(pi x) for |x| <= 1/2, to 2 ulp. */
CV_INLINE cv8 cv8_sin_pi(cv8 x)
{
    CV_EACH(p) {
        cv_part y = x.part[p], w = y * y - 0.25, w2 = w * w;
        cv_part q01 = 2.1303955989106464 * w - 4.0;
        cv_part q23 = 0.07335823650733772 * w - 0.5215823956421223;
        cv_part q45 = 0.00042931476273930735 * w - 0.0066990557744322134;
        cv_part q67 = 7.670024675756437e-07 * w - 2.036662482891741e-05;
        /* 2 y is exact, the rest vanishes towards 1/2 */
        x.part[p] = 2.0 * y + (y * w) * (((q67 * w2 + q45) * w2 + q23) * w2 + q01);
    }
    return x;
}

/* of two registers: lanes 0, 1 and 4, 5 of both, and 2, 3 and 6, 7 */
#define CV_EVEN_PAIRS _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13)
#define CV_ODD_PAIRS _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15)

/* Lane l of x[k] becomes lane k of x[l], for eight x. */
CV_INLINE void cv8_transpose(cv8 *x)
{
#if CV_WIDTH == 8
    const __m512i even = CV_EVEN_PAIRS, odd = CV_ODD_PAIRS;
    __m512d a[8], b[8];
    for (int i = 0; i < 8; i += 2) {            /* lanes 0, 2, 4, 6 of two rows, and 1, 3, 5, 7 */
        a[i] = _mm512_unpacklo_pd(x[i].part[0], x[i + 1].part[0]);
        a[i + 1] = _mm512_unpackhi_pd(x[i].part[0], x[i + 1].part[0]);
    }
    for (int i = 0; i < 8; i++) {               /* lanes l, l + 4 of four rows */
        int row = (i & 4) + (i & 1);
        b[i] = _mm512_permutex2var_pd(a[row], i & 2 ? odd : even, a[row + 2]);
    }
    for (int i = 0; i < 4; i++) {
        x[i].part[0] = _mm512_shuffle_f64x2(b[i], b[i + 4], 0x44);
        x[i + 4].part[0] = _mm512_shuffle_f64x2(b[i], b[i + 4], 0xee);
    }
#elif CV_WIDTH == 4
    for (int p = 0; p < 2; p++)
        for (int q = p; q < 2; q++) {
            __m256d a[2][4];
            for (int side = 0; side < 2; side++) {
                cv8 *rows = x + 4 * (side ? q : p);
                int part = side ? p : q;
                __m256d r0 = rows[0].part[part], r1 = rows[1].part[part];
                __m256d r2 = rows[2].part[part], r3 = rows[3].part[part];
                __m256d t0 = _mm256_unpacklo_pd(r0, r1), t1 = _mm256_unpackhi_pd(r0, r1);
                __m256d t2 = _mm256_unpacklo_pd(r2, r3), t3 = _mm256_unpackhi_pd(r2, r3);
                a[side][0] = _mm256_permute2f128_pd(t0, t2, 0x20);
                a[side][1] = _mm256_permute2f128_pd(t1, t3, 0x20);
                a[side][2] = _mm256_permute2f128_pd(t0, t2, 0x31);
                a[side][3] = _mm256_permute2f128_pd(t1, t3, 0x31);
            }
            for (int i = 0; i < 4; i++) {
                x[4 * q + i].part[p] = a[0][i];
                x[4 * p + i].part[q] = a[1][i];
            }
        }
#else
    double rows[8][8], columns[8][8];
    for (int i = 0; i < 8; i++)
        cv8_store(rows[i], x[i]);
    for (int i = 0; i < 8; i++)
        for (int l = 0; l < 8; l++)
            columns[l][i] = rows[i][l];
    for (int i = 0; i < 8; i++)
        x[i] = cv8_load(columns[i]);
#endif
}

/* Lane l of the result is cv_combine of x[l]; x is changed. */
CV_INLINE cv8 cv8_combine_each(cv8 *x)
{
#if CV_WIDTH == 8
    /* a transposition that adds on the way: 14 shuffles instead of 24 */
    const __m512i even = CV_EVEN_PAIRS, odd = CV_ODD_PAIRS;
    __m512d pairs[4], fours[2];
    for (int i = 0; i < 4; i++) {
        __m512d a = x[2 * i].part[0], b = x[2 * i + 1].part[0];
        pairs[i] = _mm512_unpacklo_pd(a, b) + _mm512_unpackhi_pd(a, b);
    }
    for (int i = 0; i < 2; i++)
        fours[i] = _mm512_permutex2var_pd(pairs[2 * i], even, pairs[2 * i + 1])
            + _mm512_permutex2var_pd(pairs[2 * i], odd, pairs[2 * i + 1]);
    x[0].part[0] = _mm512_shuffle_f64x2(fours[0], fours[1], 0x44) + _mm512_shuffle_f64x2(fours[0], fours[1], 0xee);
    return x[0];
#elif CV_WIDTH == 4
    cv8 out;
    for (int i = 0; i < 2; i++) {
        __m256d parts[2];
        CV_EACH(p) {
            __m256d a = x[4 * i].part[p], b = x[4 * i + 1].part[p], c = x[4 * i + 2].part[p], d = x[4 * i + 3].part[p];
            a = _mm256_unpacklo_pd(a, b) + _mm256_unpackhi_pd(a, b);
            c = _mm256_unpacklo_pd(c, d) + _mm256_unpackhi_pd(c, d);
            parts[p] = _mm256_permute2f128_pd(a, c, 0x20) + _mm256_permute2f128_pd(a, c, 0x31);
        }
        out.part[i] = parts[0] + parts[1];
    }
    return out;
#else
    cv8_transpose(x);
    return cv8_add(cv8_add(cv8_add(x[0], x[1]), cv8_add(x[2], x[3])),
                   cv8_add(cv8_add(x[4], x[5]), cv8_add(x[6], x[7])));
#endif
}

/* The mantissa, in [1, 2), and the exponent of a normal x > 0. */
CV_INLINE cv8 cv8_mantissa(cv8 x)
{
    CV_EACH(p) x.part[p] = cv_part_of_bits(
        (cv_part_to_bits(x.part[p]) & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3ff0000000000000));
    return x;
}

CV_INLINE cv8 cv8_exponent(cv8 x)
{
    /* as in cv_log_normal */
    CV_EACH(p) x.part[p] = cv_part_of_bits(
        (cv_part_to_bits(x.part[p]) >> 52) | UINT64_C(0x4330000000000000)) - (0x1p52 + 1023.0);
    return x;
}

/* Adding it to x in [-16368, 0] leaves n + 32768, n = round(x) with ties to even, in the low 16 bits. */
#define CV_SIXTEENTHS (CV_ROUND + 32768.0)

/* Bits of 2^(j/16) less the bits that cv_scale adds for n = j. AVX-512 has a rotation beside the shift, and it goes to
 * the pipes of the multiplications, which have room; it also brings the upper bits of CV_SIXTEENTHS + n down, which
 * are the same for all n. */
#if CV_WIDTH == 8
#define CV_ROOT(j, bits) (bits - ((UINT64_C(32768) + j) << 48) - UINT64_C(0x433800000000))
#else
#define CV_ROOT(j, bits) (bits - ((UINT64_C(32768) + j) << 48))
#endif

#if defined(__GNUC__)
__attribute__((aligned(64)))
#endif
static const uint64_t cv_roots[16] = {
    CV_ROOT(0, 0x3ff0000000000000), CV_ROOT(1, 0x3ff0b5586cf9890f), CV_ROOT(2, 0x3ff172b83c7d517b),
    CV_ROOT(3, 0x3ff2387a6e756238), CV_ROOT(4, 0x3ff306fe0a31b715), CV_ROOT(5, 0x3ff3dea64c123422),
    CV_ROOT(6, 0x3ff4bfdad5362a27), CV_ROOT(7, 0x3ff5ab07dd485429), CV_ROOT(8, 0x3ff6a09e667f3bcd),
    CV_ROOT(9, 0x3ff7a11473eb0187), CV_ROOT(10, 0x3ff8ace5422aa0db), CV_ROOT(11, 0x3ff9c49182a3f090),
    CV_ROOT(12, 0x3ffae89f995ad3ad), CV_ROOT(13, 0x3ffc199bdd85529c), CV_ROOT(14, 0x3ffd5818dcfba487),
    CV_ROOT(15, 0x3ffea4afa2a490da),
};

/* 2^(n/16) of the bits of CV_SIXTEENTHS + n. */
CV_INLINE cv_part cv_scale(cv_part_bits n)
{
#if CV_WIDTH == 8
    __m512i root = _mm512_permutex2var_epi64(
        _mm512_load_si512(cv_roots), (__m512i)n, _mm512_load_si512(cv_roots + 8));
    return cv_part_of_bits((cv_part_bits)root + (cv_part_bits)_mm512_rol_epi64((__m512i)n, 48));
#elif CV_WIDTH > 1
    cv_part_bits root;
    for (int l = 0; l < CV_WIDTH; l++)
        root[l] = cv_roots[n[l] & 15];
    return cv_part_of_bits(root + (n << 48));
#else
    return cv_part_of_bits(cv_roots[n & 15] + (n << 48));
#endif
}

/* 2^(x/16) for -16352 <= x <= 0; meaningless numbers below that and above. */
CV_INLINE cv8 cv8_root_exp(cv8 x)
{
    CV_EACH(p) {
        cv_part shifted = x.part[p] + CV_SIXTEENTHS;
        cv_part r = x.part[p] - (shifted - CV_SIXTEENTHS), r2 = r * r;
        cv_part q01 = 0.0009383847928089873 * r + 0.04332169878499661;
        cv_part q23 = 1.467610032183724e-07 * r + 1.355080777749903e-05;
        cv_part q45 = 9.181334983985957e-12 * r + 1.271608507296839e-09;
        cv_part scale = cv_scale(cv_part_to_bits(shifted));
        x.part[p] = scale * (r * ((q45 * r2 + q23) * r2 + q01)) + scale;
    }
    return x;
}

/* 2^(x/16) for any x <= 0, -inf included, and nan for nan. Below 2^-1022 the result falls to 0 at 2^-1023 and stays
 * there: the absolute error is below 1.03 2^-1023. */
CV_INLINE cv8 cv8_root_exp_any(cv8 x)
{
    /* at -16368 the bits of the scale are those of 0 */
    return cv8_root_exp(cv8_max(cv8_set(-16368.0), x));
}

#endif
