/* The sums over nodes of logistic sites, side by side in lanes: see sites/logit_site.pxd for the mathematics.
 *
 * The nodes x_j = j h, in sd from the anchor f0, go outwards in pairs of j and -j. All exponentials are products of
 * those of the pair before: e^f of e^(sd h), the Gaussian weight of its ratio, and that of e^(-h^2); after j steps the
 * relative error is j^2/2 eps, on a weight that has fallen to e^(-(j h)^2/2). A pair shares one division. A lane that has
 * had its pairs adds zeros, so no lane depends on others.
 */
#ifndef CAVITY_LOGIT_H
#define CAVITY_LOGIT_H

#include "cavity_tiles.h"

/* of a site, (CV_LOGIT_FIELDS, stride) for many */
enum {
    CV_LOGIT_ODDS,      /* e^f0 */
    CV_LOGIT_RISE,      /* e^(sd h), the ratio of e^f from node to node; and its inverse */
    CV_LOGIT_FALL,
    CV_LOGIT_UP,        /* ratios of the weight from the anchor to the first node above, and below */
    CV_LOGIT_DOWN,
    CV_LOGIT_BEND,      /* e^(-h^2), the ratio of such ratios */
    CV_LOGIT_WRONG,     /* 1 - sigmoid(f0) */
    CV_LOGIT_PAIRS,     /* of nodes */
    CV_LOGIT_FIELDS
};

/* CV_WIDTH sites, with r = 1 - sigmoid(f) = l', s = sigmoid(f), g = weight r e^(f - f0), c = r - r(f0), one of each
 * pair's nodes above (a) the anchor and one below (b). sums (3, stride): of g, g c and g (c^2 - r s). */
CV_INLINE void cv_logit_sums(const double *site, ptrdiff_t stride, double *sums)
{
    const cv_part one = cv_part_set(1.0), odds = cv_part_load(site + CV_LOGIT_ODDS * stride);
    const cv_part rise = cv_part_load(site + CV_LOGIT_RISE * stride), fall = cv_part_load(site + CV_LOGIT_FALL * stride);
    const cv_part bend = cv_part_load(site + CV_LOGIT_BEND * stride);
    const cv_part wrong = cv_part_load(site + CV_LOGIT_WRONG * stride);
    const cv_part pairs = cv_part_load(site + CV_LOGIT_PAIRS * stride);
    cv_part up = cv_part_load(site + CV_LOGIT_UP * stride), down = cv_part_load(site + CV_LOGIT_DOWN * stride);
    cv_part odds_a = odds, odds_b = odds, weight_a = one, weight_b = one;
    /* the anchor itself: c = 0 */
    cv_part total = wrong, first = cv_part_set(0.0), second = -(wrong * wrong) * (odds * wrong);
    double most = 0.0;
    for (int l = 0; l < CV_WIDTH; l++)
        most = site[CV_LOGIT_PAIRS * stride + l] > most ? site[CV_LOGIT_PAIRS * stride + l] : most;
    for (double j = 0.0; j < most; j += 1.0) {
        const cv_part left = cv_part_above(pairs, cv_part_set(j));
        odds_a *= rise, odds_b *= fall;
        weight_a = cv_part_and(weight_a * up, left), weight_b = cv_part_and(weight_b * down, left);
        up *= bend, down *= bend;
        const cv_part one_a = one + odds_a, one_b = one + odds_b, both = one / (one_a * one_b);
        const cv_part r_a = one_b * both, r_b = one_a * both;
        const cv_part g_a = weight_a * r_a, g_b = weight_b * r_b, c_a = r_a - wrong, c_b = r_b - wrong;
        const cv_part gc_a = g_a * c_a, gc_b = g_b * c_b;
        total += g_a + g_b;
        first += gc_a + gc_b;
        second += (gc_a * c_a - (g_a * r_a) * (odds_a * r_a)) + (gc_b * c_b - (g_b * r_b) * (odds_b * r_b));
    }
    cv_part_store(sums, total);
    cv_part_store(sums + stride, first);
    cv_part_store(sums + 2 * stride, second);
}

#endif
