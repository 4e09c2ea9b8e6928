/* Run-time detection of x86-64-v3 and x86-64-v4 (the levels of the x86-64 psABI, as far as our kernels use them).
 * __builtin_cpu_supports also asks the operating system whether it saves the wide registers. */
#ifndef CAVITY_CPU_H
#define CAVITY_CPU_H

#if (defined(__x86_64__) || defined(__amd64__)) && (defined(__GNUC__) || defined(__clang__))
static inline int cv_has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
        && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static inline int cv_has_v4(void)
{
    return cv_has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl");
}
#else
static inline int cv_has_v3(void) { return 0; }
static inline int cv_has_v4(void) { return 0; }
#endif

#endif
