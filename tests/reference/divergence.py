"""Kullback-Leibler divergences and log partitions straight from the textbook, in arbitrary precision.

Every function takes the parameters as floats and converts them exactly. Nothing is rearranged: with enough digits
cancellation does not matter.

References: Bishop, "Pattern Recognition and Machine Learning", appendix B, (10.2) to (10.4).
"""

import mpmath as mp

DIGITS = 60


def precise(function):
    """Evaluate with DIGITS digits."""

    def wrapped(*arguments):
        with mp.workdps(DIGITS):
            return function(*arguments)

    return wrapped


def matrix(values):
    """A numpy array of one or two dimensions as an mpmath matrix (a vector is a column)."""
    return mp.matrix([[mp.mpf(float(v)) for v in row] for row in values]) if values.ndim == 2 else vector(values)


def vector(values):
    return mp.matrix([mp.mpf(float(v)) for v in values])


def trace(a):
    return sum(a[i, i] for i in range(a.rows))


@precise
def gaussian(tau_p, rho_p, tau_q, rho_q):
    """One-dimensional Gaussians in natural parameters."""
    tau_p, rho_p, tau_q, rho_q = map(mp.mpf, (tau_p, rho_p, tau_q, rho_q))
    m_p, v_p, m_q, v_q = tau_p / rho_p, 1 / rho_p, tau_q / rho_q, 1 / rho_q
    return (mp.log(v_q / v_p) + (v_p + (m_p - m_q) ** 2) / v_q - 1) / 2


@precise
def multivariate(m_p, S_p, m_q, S_q):
    """Gaussians by mean and covariance."""
    m, S_p, S_q = vector(m_p) - vector(m_q), matrix(S_p), matrix(S_q)
    L_q = S_q**-1
    quadratic = (m.T * L_q * m)[0]
    return (trace(L_q * S_p) - S_p.rows - mp.log(mp.det(S_p) / mp.det(S_q)) + quadratic) / 2


@precise
def multivariate_natural(t_p, L_p, t_q, L_q):
    """Gaussians by precision times mean and precision."""
    L_p, L_q = matrix(L_p), matrix(L_q)
    S_p, m = L_p**-1, L_p**-1 * vector(t_p) - L_q**-1 * vector(t_q)
    return (trace(L_q * S_p) - L_p.rows + mp.log(mp.det(L_p) / mp.det(L_q)) + (m.T * L_q * m)[0]) / 2


@precise
def gamma(a_p, b_p, a_q, b_q):
    """Shapes a and rates b."""
    a_p, b_p, a_q, b_q = map(mp.mpf, (a_p, b_p, a_q, b_q))
    log_partitions = mp.loggamma(a_q) - a_q * mp.log(b_q) - mp.loggamma(a_p) + a_p * mp.log(b_p)
    return log_partitions + (a_p - a_q) * (mp.digamma(a_p) - mp.log(b_p)) + (b_q - b_p) * a_p / b_p


@precise
def dirichlet(a, b):
    """Concentrations."""
    a, b = [mp.mpf(float(x)) for x in a], [mp.mpf(float(x)) for x in b]
    total = mp.loggamma(sum(a)) - mp.loggamma(sum(b))
    for x, y in zip(a, b, strict=True):
        total += mp.loggamma(y) - mp.loggamma(x) + (x - y) * (mp.digamma(x) - mp.digamma(sum(a)))
    return total


@precise
def categorical(p, q):
    """Probabilities, each divided by their sum."""
    p, q = [mp.mpf(float(x)) for x in p], [mp.mpf(float(x)) for x in q]
    return sum(x / sum(p) * mp.log((x / sum(p)) / (y / sum(q))) for x, y in zip(p, q, strict=True) if x)


def log_multigamma(a, d):
    """log of the multivariate gamma function."""
    return mp.mpf(d * (d - 1)) / 4 * mp.log(mp.pi) + sum(mp.loggamma(a - mp.mpf(i) / 2) for i in range(d))


def expected_log_determinant(nu, V):
    d = V.rows
    return sum(mp.digamma((nu - i) / 2) for i in range(d)) + d * mp.log(2) - mp.log(mp.det(V))


@precise
def wishart(nu_p, V_p, nu_q, V_q):
    """Degrees of freedom nu and inverse scales V."""
    nu_p, nu_q, V_p, V_q = mp.mpf(nu_p), mp.mpf(nu_q), matrix(V_p), matrix(V_q)
    d = V_p.rows

    def log_partition(nu, V):
        return nu * d / 2 * mp.log(2) - nu / 2 * mp.log(mp.det(V)) + log_multigamma(nu / 2, d)

    difference = (nu_p - nu_q) / 2 * expected_log_determinant(nu_p, V_p)
    difference -= trace((V_p - V_q) * (nu_p * V_p**-1)) / 2
    return difference - log_partition(nu_p, V_p) + log_partition(nu_q, V_q)


@precise
def normal_wishart(m_p, beta_p, nu_p, V_p, m_q, beta_q, nu_q, V_q):
    """Means m, mean precisions beta, degrees of freedom nu and inverse scales V."""
    beta_p, beta_q, d = mp.mpf(beta_p), mp.mpf(beta_q), len(m_p)
    m = vector(m_p) - vector(m_q)
    distance = beta_q * mp.mpf(nu_p) * (m.T * matrix(V_p) ** -1 * m)[0]
    conditional = (d * (beta_q / beta_p - 1 - mp.log(beta_q / beta_p)) + distance) / 2
    return wishart(nu_p, V_p, nu_q, V_q) + conditional
