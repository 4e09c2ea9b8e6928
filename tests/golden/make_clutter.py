"""Print the golden EP fixed point of tests/test_clutter.py: two points, 40 digits, 400 sweeps."""

import mpmath as mp

mp.mp.dps = 40


def fixed_point(points, w=0.5, c=10, s=1, v0=100, sweeps=400):
    """Return mean, variance and log evidence of sequential EP for clutter, d = 1."""
    n, w = len(points), mp.mpf(w)
    xs = [mp.mpf(x) for x in points]  # the doubles 0.1 and 2.3, not the decimals
    tau, rho = [mp.mpf(0)] * n, [mp.mpf(0)] * n
    post_tau, post_rho = mp.mpf(0), mp.mpf(1) / v0
    for _ in range(sweeps):
        for i, x in enumerate(xs):
            cav_tau, cav_rho = post_tau - tau[i], post_rho - rho[i]
            m, v = cav_tau / cav_rho, 1 / cav_rho
            _, r = log_z(x, m, v, w, c, s)
            new_m = m + v * r * (x - m) / (v + s)
            new_v = v - r * v**2 / (v + s) + r * (1 - r) * v**2 * (x - m) ** 2 / (v + s) ** 2
            tau[i], rho[i] = new_m / new_v - cav_tau, 1 / new_v - cav_rho
            post_tau, post_rho = cav_tau + tau[i], cav_rho + rho[i]
    total = partition(post_tau, post_rho) - partition(mp.mpf(0), mp.mpf(1) / v0)
    for i, x in enumerate(xs):
        cav_tau, cav_rho = post_tau - tau[i], post_rho - rho[i]
        total += log_z(x, cav_tau / cav_rho, 1 / cav_rho, w, c, s)[0]
        total -= partition(post_tau, post_rho) - partition(cav_tau, cav_rho)
    return post_tau / post_rho, 1 / post_rho, total


def log_z(x, m, v, w, c, s):
    """Return log Z of one tilted distribution and the responsibility of the signal."""
    signal = (1 - w) * mp.npdf(x, m, mp.sqrt(v + s))
    clutter = w * mp.npdf(x, 0, mp.sqrt(c))
    return mp.log(signal + clutter), signal / (signal + clutter)


def partition(tau, rho):
    """Log of the integral of exp(tau x - rho x^2/2), less log(2 pi)/2."""
    return tau**2 / (2 * rho) - mp.log(rho) / 2


if __name__ == "__main__":
    for name, value in zip(("mean", "variance", "log evidence"), fixed_point([0.1, 2.3]), strict=True):
        print(f"{name:<13} {mp.nstr(value, 20)}")
