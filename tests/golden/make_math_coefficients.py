"""Print the polynomial coefficients of cavity_math.h and cavity_lanes.h in cython_core/include, and the latter's table.

Each polynomial interpolates its function at Chebyshev nodes in 40-digit arithmetic, which is within a small factor of
the minimax polynomial; the relative error of the function it serves is printed beside it.
"""

import mpmath as mp
import numpy as np

mp.mp.dps = 40


def fit(f, low, high, n_terms):
    """Return n_terms coefficients of the polynomial that equals f at the Chebyshev nodes of [low, high]."""
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = [middle + half * mp.cos(mp.pi * (2 * k + 1) / (2 * n_terms)) for k in range(n_terms)]
    vandermonde = mp.matrix([[x**j for j in range(n_terms)] for x in nodes])
    return list(mp.lu_solve(vandermonde, mp.matrix([f(x) for x in nodes])))


def horner(coefficients, x):
    """Evaluate sum_j coefficients[j] x^j."""
    return mp.polyval(list(reversed(coefficients)), x)


def exp_coefficients():
    """Q of exp(r) = 1 + r + r^2 Q(r) on |r| <= log(2)/2."""
    bound = mp.log(2) / 2 * mp.mpf("1.0001")
    q = fit(lambda r: (mp.expm1(r) - r) / r**2, -bound, bound, 10)
    grid = [-bound + 2 * bound * k / 401 for k in range(402)]
    return q, max(abs((1 + r + r * r * horner(q, r)) / mp.exp(r) - 1) for r in grid)


def root_exp_coefficients():
    """Q of 2^(r/16) = 1 + r Q(r) on |r| <= 1/2."""
    bound = mp.mpf("0.50005")
    q = fit(lambda r: mp.expm1(r * mp.log(2) / 16) / r, -bound, bound, 6)
    grid = [-bound + 2 * bound * k / 400 for k in range(401) if k != 200]
    return q, max(abs((1 + r * horner(q, r)) / mp.mpf(2) ** (r / 16) - 1) for r in grid)


def log_coefficients(s_max, n_terms):
    """R(z)/z of log((1 + s)/(1 - s)) = 2 s + s R(z), z = s^2, on |s| <= s_max."""

    def reduced(z):
        s = mp.sqrt(z)
        return (2 * mp.atanh(s) - 2 * s) / (s * z)

    z_max = s_max**2 * mp.mpf("1.0001")
    r = fit(reduced, mp.mpf("1e-30"), z_max, n_terms)
    grid = [z_max * k / 401 for k in range(1, 402)]
    return r, max(abs((2 + z * horner(r, z)) * mp.sqrt(z) / (2 * mp.atanh(mp.sqrt(z))) - 1) for z in grid)


def sin_pi_coefficients():
    """Q(w) of sin(pi x) = 2 x + x w Q(w), w = x^2 - 1/4, on |x| <= 1/2."""

    def reduced(w):
        x = mp.sqrt(w + mp.mpf(1) / 4)
        return (mp.sin(mp.pi * x) / x - 2) / w

    low = -mp.mpf(1) / 4 + mp.mpf("1e-30")
    q = fit(reduced, low, mp.mpf("1e-5"), 8)
    grid = [low * k / 401 for k in range(1, 402)]
    return q, max(abs((2 + w * horner(q, w)) / (2 + w * reduced(w)) - 1) for w in grid)


if __name__ == "__main__":
    root2 = mp.sqrt(2)
    for name, (coefficients, error) in {
        "cv_exp": exp_coefficients(),
        "cv8_root_exp": root_exp_coefficients(),
        "cv8_sin_pi": sin_pi_coefficients(),
        "cv_log_normal": log_coefficients((root2 - 1) / (root2 + 1), 7),
        # the exponent split by bit patterns leaves |log2 of the ratio| <= 1/2 + 0.0861
        "cv_log_ratio": log_coefficients((mp.mpf(2) ** mp.mpf("0.5861") - 1) / (mp.mpf(2) ** mp.mpf("0.5861") + 1), 7),
    }.items():
        print(f"{name}: relative error {mp.nstr(error, 3)}")
        for power, value in enumerate(coefficients):
            print(f"    x^{power}: {float(value)!r}")
    print("cv_roots: bits of 2^(j/16)")
    for j in range(16):
        print(f"    {np.float64(mp.mpf(2) ** (mp.mpf(j) / 16)).view(np.uint64):#x}")
