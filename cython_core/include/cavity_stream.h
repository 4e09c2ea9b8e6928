/* Copies of doubles by the widest registers there are. Apart from cavity_math.h, which needs no intrinsics: the header
 * of those takes half of the time that a small kernel compiles.
 */
#ifndef CAVITY_STREAM_H
#define CAVITY_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#endif

/* Copy n doubles past the caches, for outputs far larger than them (plain copy where there is no such store).
 * The destination may have any alignment; callers on another thread see the data after cv_stream_end. */
static inline void cv_stream(double *to, const double *from, ptrdiff_t n)
{
    ptrdiff_t i = 0;
#if defined(__SSE2__) || defined(_M_X64)
    for (; i < n && ((uintptr_t)(to + i) & 63) != 0; i++)
        to[i] = from[i];
#if defined(__AVX512F__)
    for (; i + 8 <= n; i += 8)
        _mm512_stream_pd(to + i, _mm512_loadu_pd(from + i));
#elif defined(__AVX2__)
    for (; i + 4 <= n; i += 4)
        _mm256_stream_pd(to + i, _mm256_loadu_pd(from + i));
#else
    for (; i + 2 <= n; i += 2)
        _mm_stream_pd(to + i, _mm_loadu_pd(from + i));
#endif
#endif
    for (; i < n; i++)
        to[i] = from[i];
}

/* Copy n doubles; for the short runs of the kernels a loop is faster than the call that a compiler makes of it. */
static inline void cv_copy(double *to, const double *from, ptrdiff_t n)
{
    ptrdiff_t i = 0;
#if defined(__AVX512F__)
    for (; i + 8 <= n; i += 8)
        _mm512_storeu_pd(to + i, _mm512_loadu_pd(from + i));
#elif defined(__AVX2__)
    for (; i + 4 <= n; i += 4)
        _mm256_storeu_pd(to + i, _mm256_loadu_pd(from + i));
#endif
    if (i < n)
        memcpy(to + i, from + i, (size_t)(n - i) * sizeof(double));
}

static inline void cv_stream_end(void)
{
#if defined(__SSE2__) || defined(_M_X64)
    _mm_sfence();
#endif
}

#endif
