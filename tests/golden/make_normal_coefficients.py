"""Print the polynomials of cython_core/include/cavity_normal.h as C expressions.

With t = (x - 4)/(x + 4), which maps [0, inf) to [-1, 1), the Mills ratio M and the truncated variance V are
M(x) = P(t)/(x + 4) and V(x) = Q(t)/(x + 4)^2. P and Q interpolate at Chebyshev nodes in 60-digit arithmetic; the
relative error of what they serve is printed beside them.
"""

import mpmath as mp

mp.mp.dps = 60
CENTRE = 4


def mills(x):
    """Phi(-x)/phi(x): by erfc, far out by its continued fraction."""
    if x < 30:
        return mp.sqrt(mp.pi / 2) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2))
    tail = mp.mpf(0)
    for n in range(300, 0, -1):
        tail = n / (x + tail)
    return 1 / (x + tail)


def variance(x):
    """Variance of a standard normal variable known to exceed x: 1 - h (h - x) with h = 1/M."""
    with mp.workdps(80):
        h = 1 / mills(x)
        return +(1 - h * (h - x))


def fit(f, n_terms):
    """Return n_terms monomial coefficients of the polynomial that equals f at the Chebyshev nodes of [-1, 1]."""
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * n_terms)) for k in range(n_terms)]
    vandermonde = mp.matrix([[x**j for j in range(n_terms)] for x in nodes])
    return list(mp.lu_solve(vandermonde, mp.matrix([f(x) for x in nodes])))


def expression(coefficients, power=1):
    """Nest the polynomial in t by halves (Estrin's scheme), with t2 = t^2, t4 = t^4, ...: short chains."""
    pairs = [coefficients[i : i + 2] for i in range(0, len(coefficients), 2)]
    variable = "t" if power == 1 else f"t{power}"
    if isinstance(coefficients[0], str):
        merged = [p[0] if len(p) == 1 else f"({p[1]} * {variable} + {p[0]})" for p in pairs]
    else:
        merged = [
            repr(float(p[0])) if len(p) == 1 else f"({float(p[1])!r} * {variable} + {float(p[0])!r})" for p in pairs
        ]
    return merged[0] if len(merged) == 1 else expression(merged, 2 * power)


if __name__ == "__main__":

    def place(t):
        return CENTRE * (1 + t) / (1 - t)

    for name, f, n_terms, power in (("mills", mills, 25, 1), ("variance", variance, 28, 2)):
        coefficients = fit(lambda t, f=f, power=power: f(place(t)) * (place(t) + CENTRE) ** power, n_terms)
        grid = [mp.mpf(k) / 200 for k in range(-200, 200)]
        error = max(
            abs(mp.polyval(coefficients[::-1], t) / (f(place(t)) * (place(t) + CENTRE) ** power) - 1) for t in grid
        )
        print(f"{name}: relative error {mp.nstr(error, 3)}\n{expression(coefficients)}\n")
