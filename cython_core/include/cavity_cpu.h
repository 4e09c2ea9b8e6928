/* Run-time detection of x86-64-v3 and x86-64-v4 (the levels of the x86-64 psABI, as far as our kernels use them), and of
 * whether the operating system saves the wide registers. By CPUID: __builtin_cpu_supports is always 0 in what Zig
 * links, whose runtime library does not fill its table. */
#ifndef CAVITY_CPU_H
#define CAVITY_CPU_H

#if (defined(__x86_64__) || defined(__amd64__)) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>

/* FMA, MOVBE, OSXSAVE, AVX, F16C in ECX of leaf 1; BMI, AVX2, BMI2, then AVX512F, DQ, CD, BW, VL in EBX of leaf 7 */
#define CV_V3_OF_LEAF_1 (1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29)
#define CV_V3_OF_LEAF_7 (1u << 3 | 1u << 5 | 1u << 8)
#define CV_V4_OF_LEAF_7 (1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31)
#define CV_LZCNT (1u << 5)                  /* in ECX of leaf 0x80000001 */
#define CV_YMM_STATE 0x6u                   /* of XCR0: registers that the operating system saves */
#define CV_ZMM_STATE 0xe6u

static inline int cv_has(unsigned features_of_leaf_7, unsigned state)
{
    unsigned a, b, c, d, saved;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & CV_V3_OF_LEAF_1) != CV_V3_OF_LEAF_1)
        return 0;
    if (!__get_cpuid(0x80000001u, &a, &b, &c, &d) || !(c & CV_LZCNT))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    return (saved & state) == state && __get_cpuid_count(7, 0, &a, &b, &c, &d)
        && (b & features_of_leaf_7) == features_of_leaf_7;
}

static inline int cv_has_v3(void) { return cv_has(CV_V3_OF_LEAF_7, CV_YMM_STATE); }
static inline int cv_has_v4(void) { return cv_has(CV_V3_OF_LEAF_7 | CV_V4_OF_LEAF_7, CV_ZMM_STATE); }
#else
static inline int cv_has_v3(void) { return 0; }
static inline int cv_has_v4(void) { return 0; }
#endif

#endif
