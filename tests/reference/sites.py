"""log Z and its derivatives in the cavity mean by brute force: mpmath integrals of p(y|f) N(f; m, v) in pieces."""

import mpmath as mp
import numpy as np


def log_phi(z):
    """log Phi(z) in working precision, for any z."""
    if z > -20:
        return mp.log1p(-mp.erfc(z / mp.sqrt(2)) / 2) if z > 0 else mp.log(mp.erfc(-z / mp.sqrt(2)) / 2)
    x, tail = -z, mp.mpf(0)
    for n in range(400, 0, -1):
        tail = n / (x + tail)
    return -z * z / 2 - mp.log(2 * mp.pi) / 2 - mp.log(x + tail)


LOG_P = {
    "Probit": lambda y, f: log_phi(y * f),
    "Logit": lambda y, f: -mp.log1p(mp.exp(-y * f)),
    "Poisson": lambda y, f: y * f - mp.exp(f) - mp.loggamma(y + 1),
    "NegativeBinomial": lambda y, f, r=1: (
        mp.loggamma(y + r)
        - mp.loggamma(r)
        - mp.loggamma(y + 1)
        + y * (f - mp.log(mp.exp(f) + r))
        - r * mp.log1p(mp.exp(f) / r)
    ),
    "StudentT": lambda y, f, nu=4, scale=1: (
        mp.loggamma((mp.mpf(nu) + 1) / 2)
        - mp.loggamma(mp.mpf(nu) / 2)
        - mp.log(nu * mp.pi) / 2
        - mp.log(scale)
        - (mp.mpf(nu) + 1) / 2 * mp.log1p(((y - f) / scale) ** 2 / nu)
    ),
    "Laplace": lambda y, f, scale=1: -abs(y - f) / scale - mp.log(2 * mp.mpf(scale)),
    "Gaussian": lambda y, f, s=1: -((y - f) ** 2) / (2 * mp.mpf(s)) - mp.log(2 * mp.pi * s) / 2,
    "Clutter": lambda y, f, w=0.5, c=10, s=1: mp.log(
        (1 - mp.mpf(w)) * mp.npdf(y, f, mp.sqrt(s)) + mp.mpf(w) * mp.npdf(y, 0, mp.sqrt(c))
    ),
}


def log_tilted(log_p, mean, variance, marks=(), low=None, high=None):
    """(log_z, d1, d2, 1 + v d2) as mpmath numbers.

    `marks` are places where p(y|f) has structure, each a (centre, scale); [low, high] the support of p.
    """
    with mp.workdps(40):
        m, v = mp.mpf(float(mean)), mp.mpf(float(variance))
        sd = mp.sqrt(v)

        def h(f):
            return log_p(f) - (f - m) ** 2 / (2 * v)

        edges = {m + sd * k for k in np.linspace(-12, 12, 25)}
        for centre, scale in marks:
            steps = [mp.mpf(scale) * mp.mpf(2) ** k for k in np.arange(-2, 26)]
            edges |= {mp.mpf(centre)} | {mp.mpf(centre) + s for s in steps} | {mp.mpf(centre) - s for s in steps}
        low = min(edges) if low is None else mp.mpf(low)
        high = max(edges) if high is None else mp.mpf(high)
        edges = sorted({e for e in edges if low < e < high} | {low, high})
        inner = [e for e in edges if low < e < high] or [(low + high) / 2]
        top = max(h(e) for e in inner)
        anchor = max(inner, key=h)
        for _ in range(3):  # finer pieces around the highest point
            width = min(abs(anchor - e) for e in edges if e != anchor)
            extra = [anchor + width * k / 8 for k in range(-7, 8)]
            edges = sorted(set(edges) | {e for e in extra if low < e < high})
            anchor = max((e for e in edges if low < e < high), key=h)
            top = max(top, h(anchor))
        keep = [(a, b) for a, b in zip(edges, edges[1:]) if max(h((a + b) / 2), _inside(h, a, b)) > top - 120]
        sums = [mp.mpf(0)] * 3
        for a, b in keep:
            for k in range(3):
                sums[k] += mp.quad(lambda f, k=k: (f - anchor) ** k * mp.exp(h(f) - top), [a, (a + b) / 2, b])
        mean_t = sums[1] / sums[0]
        shrink = (sums[2] / sums[0] - mean_t**2) / v
        log_z = top + mp.log(sums[0]) - mp.log(2 * mp.pi * v) / 2
        return log_z, (anchor - m + mean_t) / v, (shrink - 1) / v, shrink


def _inside(h, a, b):
    """The larger value of h just inside the ends."""
    return max(h(a + (b - a) * mp.mpf("1e-12")), h(b - (b - a) * mp.mpf("1e-12")))
