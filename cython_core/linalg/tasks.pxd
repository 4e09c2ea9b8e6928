"""How threads share tasks: a number that each increases for its next one, and counts on which other threads wait."""

cdef extern from *:
    """
    #if defined(_WIN32)
    #define WIN32_LEAN_AND_MEAN
    #define NOMINMAX
    #include <windows.h>
    #define cv_yield() ((void) SwitchToThread())
    #else
    #include <sched.h>
    #define cv_yield() ((void) sched_yield())
    #endif
    #if defined(_MSC_VER)
    #include <intrin.h>
    static __inline long long cv_next(long long *p) { return _InterlockedExchangeAdd64(p, 1); }
    static __inline long long cv_load(long long *p) { return _InterlockedOr64(p, 0); }
    static __inline void cv_store(long long *p, long long value) { _InterlockedExchange64(p, value); }
    #else
    static inline long long cv_next(long long *p) { return __atomic_fetch_add(p, 1, __ATOMIC_RELAXED); }
    static inline long long cv_load(long long *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void cv_store(long long *p, long long value) { __atomic_store_n(p, value, __ATOMIC_RELEASE); }
    #endif
    """
    long long next_number "cv_next"(long long *p) noexcept nogil
    long long load "cv_load"(long long *p) noexcept nogil
    void store "cv_store"(long long *p, long long value) noexcept nogil
    void let_others_work "cv_yield"() noexcept nogil
