"""Bayesian Gaussian mixtures by the book: Bishop, PRML (2006), section 10.2, every expectation written out.

prior: covariance ("full", "tied", "diag", "spherical"), weights ("dirichlet", "stick_breaking"), alpha (the
concentration alpha0 or gamma), m0 (D,), beta0, nu0, V0 ((D, D); diag (D,); spherical a number).
q: alpha (K,) or sticks (K - 1, 2); mean (K, D); beta (K,), nu (K,) and V (K, D, D) for full, a number and (D, D) for
tied; beta (K, D) for diag and spherical, with nu and V (K, D) and (K,).
V is the inverse of Bishop's W. A precision of diag and spherical is Gamma(nu/2, rate V/2). w (N,) are weights of rows:
whole ones are repetitions. nan is an entry that was not seen (diag and spherical only).
"""

import itertools

import numpy as np
from scipy import special, stats

LOG_2PI = np.log(2 * np.pi)


def by_matrix(prior):
    """Whether precisions are matrices."""
    return prior["covariance"] in ("full", "tied")


def wishart_of(prior, q, k):
    """nu and V of component k of full and tied."""
    return (q["nu"], q["V"]) if prior["covariance"] == "tied" else (q["nu"][k], q["V"][k])


def gamma_of(prior, q, k, d):
    """nu and V of the precision of component k in dimension d of diag and spherical."""
    return (q["nu"][k], q["V"][k]) if prior["covariance"] == "spherical" else (q["nu"][k, d], q["V"][k, d])


def expected_log_pi(prior, q):
    """E log pi_k, (10.66) and the sum of E log v_k and E log(1 - v_j), j < k."""
    if prior["weights"] == "dirichlet":
        return special.digamma(q["alpha"]) - special.digamma(np.sum(q["alpha"]))
    a, b = q["sticks"].T
    log_v = np.append(special.digamma(a) - special.digamma(a + b), 0.0)
    log_rest = special.digamma(b) - special.digamma(a + b)
    return np.array([log_v[k] + np.sum(log_rest[:k]) for k in range(len(log_v))])


def expected_pi(prior, q):
    """E pi_k."""
    if prior["weights"] == "dirichlet":
        return q["alpha"] / np.sum(q["alpha"])
    a, b = q["sticks"].T
    v = np.append(a / (a + b), 1.0)
    return np.array([v[k] * np.prod(1 - v[:k]) for k in range(len(v))])


def log_det_wishart(nu, V):
    """E log|L|, (10.65)."""
    d = len(V)
    return sum(special.digamma((nu - i) / 2) for i in range(d)) + d * np.log(2) - np.linalg.slogdet(V)[1]


def log_gamma(nu, V):
    """E log lambda of Gamma(nu/2, V/2)."""
    return special.digamma(nu / 2) - np.log(V / 2)


def expected_log_density(X, prior, q):
    """E log N(x_n; mu_k, L_k^-1) (N, K), of the entries that were seen; (10.64)."""
    n_rows, dims = X.shape
    result = np.zeros((n_rows, len(q["mean"])))
    for k, mean in enumerate(q["mean"]):
        if by_matrix(prior):
            nu, V = wishart_of(prior, q, k)
            squared = np.sum((X - mean).T * np.linalg.solve(V, (X - mean).T), axis=0)
            quadratic = nu * squared + dims / q["beta"][k]
            result[:, k] = 0.5 * (log_det_wishart(nu, V) - dims * LOG_2PI - quadratic)
            continue
        for d in range(dims):
            nu, V = gamma_of(prior, q, k, d)
            quadratic = nu / V * (X[:, d] - mean[d]) ** 2 + 1 / q["beta"][k, d]
            term = 0.5 * (log_gamma(nu, V) - LOG_2PI - quadratic)
            result[:, k] += np.where(np.isnan(X[:, d]), 0.0, term)
    return result


def e_step(X, prior, q):
    """Responsibilities (N, K), (10.46) and (10.49)."""
    log_rho = expected_log_pi(prior, q) + expected_log_density(X, prior, q)
    return special.softmax(log_rho, axis=1)


def m_step(X, w, prior, r):
    """The best q(pi) q(mu, L) for responsibilities, (10.57) to (10.63)."""
    r = r * w[:, None]
    counts = np.sum(r, axis=0)
    if prior["weights"] == "dirichlet":
        q = {"alpha": prior["alpha"] + counts}
    else:
        later = [np.sum(counts[k + 1 :]) for k in range(len(counts))]
        q = {"sticks": np.column_stack([1 + counts, prior["alpha"] + np.array(later)])[:-1]}
    return q | (_by_matrix(X, prior, r) if by_matrix(prior) else _by_dimension(X, prior, r))


def _by_matrix(X, prior, r):
    m0, beta0, scatter = prior["m0"], prior["beta0"], []
    counts, means = np.sum(r, axis=0), []
    for k, count in enumerate(counts):
        mean = r[:, k] @ X / count if count > 0 else m0
        inside = (r[:, k, None] * (X - mean)).T @ (X - mean)
        scatter.append(inside + beta0 * count / (beta0 + count) * np.outer(mean - m0, mean - m0))
        means.append((beta0 * m0 + count * mean) / (beta0 + count))
    q = {"mean": np.array(means), "beta": beta0 + counts}
    if prior["covariance"] == "tied":
        return q | {"nu": prior["nu0"] + np.sum(counts), "V": prior["V0"] + sum(scatter)}
    return q | {"nu": prior["nu0"] + counts, "V": np.array([prior["V0"] + s for s in scatter])}


def _by_dimension(X, prior, r):
    k_all, dims = r.shape[1], X.shape[1]
    counts, scatter, means = (np.zeros((k_all, dims)) for _ in range(3))
    m0, beta0 = prior["m0"], prior["beta0"]
    for k, d in itertools.product(range(k_all), range(dims)):
        seen = ~np.isnan(X[:, d])
        x, share = X[seen, d], r[seen, k]
        count = np.sum(share)
        mean = share @ x / count if count > 0 else m0[d]
        counts[k, d] = count
        scatter[k, d] = share @ (x - mean) ** 2 + beta0 * count / (beta0 + count) * (mean - m0[d]) ** 2
        means[k, d] = (beta0 * m0[d] + count * mean) / (beta0 + count)
    q = {"mean": means, "beta": beta0 + counts}
    if prior["covariance"] == "spherical":
        return q | {"nu": prior["nu0"] + counts.sum(axis=1), "V": prior["V0"] + scatter.sum(axis=1)}
    return q | {"nu": prior["nu0"] + counts, "V": prior["V0"] + scatter}


def cavi_step(X, w, prior, q):
    """The responsibilities that are best for q, and the q that is best for these: (q, r)."""
    r = e_step(X, prior, q)
    return m_step(X, w, prior, r), r


def elbo(X, w, prior, q, r):
    """The evidence lower bound, (10.70): the sum of the terms (10.71) to (10.77), for any q and r."""
    return sum(terms(X, w, prior, q, r).values())


def terms(X, w, prior, q, r):
    """The expectations that the ELBO is the sum of, by name; those of log q with their sign."""
    weighted = w[:, None] * r
    return {
        "x": np.sum(weighted * expected_log_density(X, prior, q)),  # (10.71)
        "z": np.sum(weighted * expected_log_pi(prior, q)),  # (10.72)
        "pi": _log_p_pi(prior, q),  # (10.73)
        "mu": _log_p_mean(prior, q),  # (10.74), the part of N(mu; m0, (beta0 L)^-1)
        "L": _log_p_precision(prior, q),  # (10.74), the Wishart or Gamma part
        "q(z)": -np.sum(w[:, None] * special.xlogy(r, r)),  # (10.75)
        "q(pi)": _entropy_pi(prior, q),  # (10.76)
        "q(mu)": _entropy_mean(prior, q),  # (10.77), the part of N(mu; m, (beta L)^-1)
        "q(L)": _entropy_precision(prior, q),  # (10.77), the Wishart or Gamma part
    }


def _log_p_pi(prior, q):
    alpha = prior["alpha"]
    if prior["weights"] == "dirichlet":
        k = len(q["alpha"])
        constant = special.gammaln(k * alpha) - k * special.gammaln(alpha)
        return constant + (alpha - 1) * np.sum(expected_log_pi(prior, q))
    a, b = q["sticks"].T
    return np.sum(np.log(alpha) + (alpha - 1) * (special.digamma(b) - special.digamma(a + b)))


def _entropy_pi(prior, q):
    if prior["weights"] == "stick_breaking":
        return sum(stats.beta(a, b).entropy() for a, b in q["sticks"])
    return stats.dirichlet(q["alpha"]).entropy() if len(q["alpha"]) > 1 else 0.0


def _log_p_mean(prior, q):
    beta0, total = prior["beta0"], 0.0
    for k, mean in enumerate(q["mean"]):
        away, dims = mean - prior["m0"], len(mean)
        if by_matrix(prior):
            nu, V = wishart_of(prior, q, k)
            quadratic = beta0 * (dims / q["beta"][k] + nu * away @ np.linalg.solve(V, away))
            total += 0.5 * (dims * np.log(beta0 / (2 * np.pi)) + log_det_wishart(nu, V) - quadratic)
            continue
        for d in range(dims):
            nu, V = gamma_of(prior, q, k, d)
            quadratic = beta0 * (1 / q["beta"][k, d] + nu / V * away[d] ** 2)
            total += 0.5 * (np.log(beta0 / (2 * np.pi)) + log_gamma(nu, V) - quadratic)
    return total


def _entropy_mean(prior, q):
    """Entropy of q(mu | L), its expectation over q(L)."""
    total = 0.0
    for k, mean in enumerate(q["mean"]):
        dims = len(mean)
        if by_matrix(prior):
            beta, log_det = q["beta"][k], log_det_wishart(*wishart_of(prior, q, k))
            total += 0.5 * (dims * (1 + np.log(2 * np.pi / beta)) - log_det)
            continue
        for d in range(dims):
            total += 0.5 * (1 + np.log(2 * np.pi / q["beta"][k, d]) - log_gamma(*gamma_of(prior, q, k, d)))
    return total


def precisions(prior, q):
    """(nu, V, prior V) of every precision there is: one a component, one in all, or one a component and dimension."""
    if prior["covariance"] == "tied":
        return [(q["nu"], q["V"], prior["V0"])]
    if prior["covariance"] == "diag":
        item = itertools.product(range(len(q["nu"])), range(q["nu"].shape[1]))
        return [(q["nu"][k, d], q["V"][k, d], prior["V0"][d]) for k, d in item]
    return [(nu, V, prior["V0"]) for nu, V in zip(q["nu"], q["V"], strict=True)]


def _log_p_precision(prior, q):
    nu0, total = prior["nu0"], 0.0
    for nu, V, V0 in precisions(prior, q):
        if by_matrix(prior):
            d = len(V)
            trace = nu * np.trace(np.linalg.solve(V, V0))
            total += 0.5 * (nu0 - d - 1) * log_det_wishart(nu, V) - 0.5 * trace - log_wishart_constant(nu0, V0)
        else:
            shape, rate = nu0 / 2, V0 / 2
            constant = shape * np.log(rate) - special.gammaln(shape)
            total += constant + (shape - 1) * log_gamma(nu, V) - rate * nu / V
    return total


def _entropy_precision(prior, q):
    if by_matrix(prior):
        return sum(stats.wishart(nu, np.linalg.inv(V)).entropy() for nu, V, _ in precisions(prior, q))
    return sum(stats.gamma(nu / 2, scale=2 / V).entropy() for nu, V, _ in precisions(prior, q))


def log_wishart_constant(nu, V):
    """log of the integral of |L|^((nu - D - 1)/2) exp(-tr(V L)/2)."""
    d = len(V)
    return nu * d / 2 * np.log(2) - nu / 2 * np.linalg.slogdet(V)[1] + special.multigammaln(nu / 2, d)


def log_component(x, prior, q, k):
    """Log density of one new point under component k: Student's t, (10.81) and (10.82), of its seen entries."""
    seen = ~np.isnan(x)
    if not seen.any():
        return 0.0
    mean = q["mean"][k]
    if by_matrix(prior):
        nu, V = wishart_of(prior, q, k)
        df = nu + 1 - len(x)
        return stats.multivariate_t(mean, V * (1 + 1 / q["beta"][k]) / df, df).logpdf(x)
    spread = 1 + 1 / q["beta"][k]
    if prior["covariance"] == "spherical":  # one precision: the dimensions are not independent
        shape = np.diag(q["V"][k] / q["nu"][k] * spread[seen])
        return stats.multivariate_t(mean[seen], shape, q["nu"][k]).logpdf(x[seen])
    nu, V = q["nu"][k, seen], q["V"][k, seen]
    return np.sum(stats.t(nu, mean[seen], np.sqrt(V / nu * spread[seen])).logpdf(x[seen]))


def log_predictive(x, prior, q):
    """Log density of one new point (D,), given q: the mixture of the components' Student t densities."""
    log_t = [log_component(x, prior, q, k) for k in range(len(q["mean"]))]
    return special.logsumexp(log_t, b=expected_pi(prior, q))


def log_evidence(X, prior, n_components):
    """Exact log p(X), the sum over all K^N assignments. For whole weights, repeat the rows."""
    item = itertools.product(range(n_components), repeat=len(X))
    hard = (np.eye(n_components)[list(z)] for z in item)
    before = log_constant_before(X, prior, n_components)
    return special.logsumexp([log_p_assigned(r, prior) + log_p_given(X, prior, r, before) for r in hard])


def log_p_assigned(r, prior):
    """log p(Z) of hard assignments r (N, K) of zeros and ones, pi integrated out."""
    n_rows, k = r.shape
    counts, alpha = np.sum(r, axis=0), prior["alpha"]
    if prior["weights"] == "dirichlet":
        constant = special.gammaln(k * alpha) - special.gammaln(k * alpha + n_rows)
        return constant + np.sum(special.gammaln(alpha + counts) - special.gammaln(alpha))
    return sum(
        special.betaln(1 + counts[j], alpha + np.sum(counts[j + 1 :])) - special.betaln(1, alpha) for j in range(k - 1)
    )


def log_p_given(X, prior, r, before):
    """log p(X | Z), means and precisions integrated out: the constants of the posterior over those of the prior."""
    q = m_step(X, np.ones(len(X)), prior, r)
    return _log_constant(prior, q) - before - 0.5 * LOG_2PI * np.sum(~np.isnan(X))


def log_constant_before(X, prior, k):
    """The constant of the prior, that of rows like X without any."""
    return _log_constant(prior, m_step(X[:0], np.ones(0), prior, np.zeros((0, k))))


def _log_constant(prior, q):
    """log of the integral of the unnormalised densities of all (mu, L)."""
    matrices = by_matrix(prior)
    dims = q["mean"].shape[1] if matrices else 1  # beta has an entry for every dimension otherwise
    total = -0.5 * dims * np.sum(np.log(q["beta"] / (2 * np.pi)))
    for nu, V, _ in precisions(prior, q):
        total += log_wishart_constant(nu, V if matrices else np.array([[V]]))
    return total


def one_component(X, w, prior):
    """Exact posterior of a single Gaussian: mean, beta, nu, V and log p(X), of rows of weights w.

    `prior` is as in `elbo`, with one component; V is (D, D) for full and tied covariances, (D,) or a number.
    """
    kind, beta, m, V = prior["covariance"], prior["beta0"], prior["m0"], prior["V0"]
    n, dim = np.sum(w), X.shape[1]
    beta_n = beta + n
    mean = (beta * m + w @ X) / beta_n
    S = (w[:, None] * X).T @ X + beta * np.outer(m, m) - beta_n * np.outer(mean, mean)
    S = {"diag": np.diag(S), "spherical": np.trace(S)}.get(kind, S)
    nu = prior["nu0"] + n * (dim if kind == "spherical" else 1)
    return (
        mean,
        beta_n,
        nu,
        V + S,
        _log_mass(kind, dim, nu, V + S, beta_n)
        - _log_mass(kind, dim, prior["nu0"], V, beta)
        - 0.5 * n * dim * np.log(np.pi),
    )


def _log_mass(kind, dim, nu, V, beta):
    """Log normaliser of a Gaussian times Wishart or Gammas, less what prior and posterior share."""
    if kind == "diag":
        spread = np.sum(special.gammaln(nu / 2) - nu / 2 * np.log(V))
    elif kind == "spherical":
        spread = special.gammaln(nu / 2) - nu / 2 * np.log(V)
    else:
        spread = special.multigammaln(nu / 2, dim) - nu / 2 * np.linalg.slogdet(V)[1]
    return spread - dim / 2 * np.log(beta)
