/* Two doubles that lie next to each other, as one register: loaded, multiplied, added and stored together. */
#ifndef CAVITY_PAIRS_H
#define CAVITY_PAIRS_H

#include "cavity_math.h"

#if defined(__GNUC__)
typedef double cv_pair __attribute__((vector_size(16)));
typedef double cv_pair_anywhere __attribute__((vector_size(16), aligned(8), may_alias));
CV_INLINE cv_pair cv_pair_of(double a, double b) { return (cv_pair){a, b}; }
CV_INLINE cv_pair cv_pair_load(const double *from) { return *(const cv_pair_anywhere *)from; }
CV_INLINE void cv_pair_store(double *to, cv_pair a) { *(cv_pair_anywhere *)to = a; }
CV_INLINE cv_pair cv_pair_add(cv_pair a, cv_pair b) { return a + b; }
CV_INLINE cv_pair cv_pair_mul(cv_pair a, cv_pair b) { return a * b; }
#define cv_pair_first(a) ((a)[0])
#define cv_pair_second(a) ((a)[1])
#else
typedef struct {
    double at[2];
} cv_pair;
CV_INLINE cv_pair cv_pair_of(double a, double b) { cv_pair out; out.at[0] = a; out.at[1] = b; return out; }
CV_INLINE cv_pair cv_pair_load(const double *from) { return cv_pair_of(from[0], from[1]); }
CV_INLINE void cv_pair_store(double *to, cv_pair a) { to[0] = a.at[0]; to[1] = a.at[1]; }
CV_INLINE cv_pair cv_pair_add(cv_pair a, cv_pair b) { return cv_pair_of(a.at[0] + b.at[0], a.at[1] + b.at[1]); }
CV_INLINE cv_pair cv_pair_mul(cv_pair a, cv_pair b) { return cv_pair_of(a.at[0] * b.at[0], a.at[1] * b.at[1]); }
#define cv_pair_first(a) ((a).at[0])
#define cv_pair_second(a) ((a).at[1])
#endif

#endif
