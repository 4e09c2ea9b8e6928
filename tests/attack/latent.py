"""Expectation propagation on random problems: fixed points and evidences recomputed by the plain twin in f.

GLMs, mixed models and Gaussian processes are one problem there: f ~ N(mean, K), a site a row.
"""

import numpy as np
from attack.covariances import composed, table
from attack.rule import Wrong, finite, near, sure
from attack.sites import positive, vary
from reference import gaussian_process as reference
from reference import mixed as mixed_reference
from support.glms import factors
from support.responses import SPECIAL_RESPONSES, draw, make_likelihood

import cavity
from cavity import likelihoods
from cavity.models.mixed.terms import make_terms

NAMES = ("Probit", "Logit", "OrderedProbit", "Interval", "Poisson", "NegativeBinomial", "Binomial", "StudentT")
NAMES += ("Laplace", *SPECIAL_RESPONSES)
TOL = 1e-8
SLACK = 300.0  # of a fixed point by sums of many rows, over the tolerance of a fit


def observed(rng, f, name=None):
    """(likelihood, y) for values f of a random likelihood; powers fit it."""
    name, n = str(rng.choice(NAMES)) if name is None else name, len(f)
    noisy = f + rng.normal(size=n)
    if name in SPECIAL_RESPONSES:
        return vary(rng, make_likelihood(name)), draw(name, rng, np.clip(f, -4, 4))
    if name in ("Probit", "Logit"):
        return getattr(likelihoods, name)(), np.where(noisy > 0, 1.0, -1.0)
    if name == "OrderedProbit":
        return likelihoods.OrderedProbit([-0.7, 0.4]), np.digitize(noisy, [-0.7, 0.4]).astype(float)
    if name == "Interval":
        low = np.where(rng.random(n) < 0.3, -np.inf, np.floor(noisy))
        return likelihoods.Interval(positive(rng, -1, 1)), np.column_stack([low, np.floor(noisy) + 1])
    if name == "Binomial":
        trials = rng.integers(1, 9, n)
        link = str(rng.choice(["logit", "probit"]))
        return likelihoods.Binomial(link), np.column_stack([rng.binomial(trials, 1 / (1 + np.exp(-f))), trials])
    if name == "StudentT":
        return likelihoods.StudentT(positive(rng, 0.3, 1.5), positive(rng, -0.5, 0.5)), f + rng.standard_t(3, n)
    if name == "Laplace":
        return likelihoods.Laplace(positive(rng, -0.5, 0.5)), f + rng.laplace(size=n)
    counts = rng.poisson(np.exp(np.minimum(f, 6)))
    return (likelihoods.Poisson() if name == "Poisson" else likelihoods.NegativeBinomial(positive(rng, -1, 2))), counts


def options(rng, likelihood, n):
    """Random options of EP, (what fit is given, exponent, fraction)."""
    weights = rng.choice([1.0, 2.0, 3.0], n) if rng.random() < 0.3 else np.ones(n)
    power = float(rng.uniform(0.3, 1)) if likelihood.any_power and rng.random() < 0.3 else 1.0
    arguments = {"power": power, "damping": float(rng.choice([1.0, 0.7])), "tol": TOL}
    if np.any(weights != 1.0):
        arguments["sample_weight"] = weights
    exponent = power * np.minimum(1.0, weights)
    return arguments, exponent, exponent / weights


def check(posterior, K, prior, likelihood, y, exponent, fraction, offset):
    """Sites of a converged fit are a fixed point of the twin's, and the evidence is the twin's for these sites."""
    finite("log_evidence", posterior.log_evidence)
    if not posterior.converged:
        return
    log_ps = factors(likelihood, y, exponent)
    shifted = [lambda f, p=p, o=o: p(f + o) for p, o in zip(log_ps, offset, strict=True)]
    for one, p, o in zip(shifted, log_ps, offset, strict=True):
        one.kinks = tuple(kink - o for kink in p.kinks)
    tau, rho = posterior.sites.tau, posterior.sites.rho
    tau = tau - rho * offset  # of f without the offset
    apart = reference.residual(K, shifted, tau, rho, prior, fraction)
    if not apart <= SLACK * TOL:
        raise Wrong(f"converged ({posterior.n_iter} passes), but the twin moves by {apart:.3g}")
    m, S = reference.belief_of(K, prior, tau, rho)
    log_z = [reference.tilt(p, m, S, tau, rho, fraction, i)[0] for i, p in enumerate(shifted)]
    evidence = reference.evidence(K, prior, tau, rho, np.array(log_z), m, S, fraction)
    near("log_evidence", posterior.log_evidence, evidence, 1e-7 * (1 + np.sum(np.abs(np.array(log_z) / fraction))))
    return m, S


def generalised_linear(rng):
    """GLMs: likelihoods, weights, powers, damping, offsets, schedules, priors."""
    n, d = int(rng.integers(1, 25 if rng.random() < 0.9 else 300)), int(rng.integers(1, 6))
    X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-1, 1, d)
    X[:, 0] = 1.0
    weights = rng.normal(size=d) / np.maximum(np.max(np.abs(X), axis=0), 1)
    offset = rng.normal(size=n) if rng.random() < 0.5 else np.zeros(n)
    likelihood, y = observed(rng, X @ weights + offset)
    values, exponent, fraction = options(rng, likelihood, n)
    prior_mean, variance = rng.normal(size=d) / 3, 10 ** rng.uniform(-2, 2, d)
    schedule = str(rng.choice(["parallel", "sequential"]))
    model = cavity.GLM(likelihood, prior_mean=prior_mean, prior_variance=variance, intercept=False)
    posterior = sure(model.fit, X, y, offset=offset, schedule=schedule, **values)
    result = check(posterior, (X * variance) @ X.T, X @ prior_mean, likelihood, y, exponent, fraction, offset)
    if result is not None:
        m, S = result
        sd = np.sqrt(np.diag(S))
        near("mean of f", X @ posterior.mean, m, 1e-6 * sd)
        near("variance of f", np.einsum("ij,jk,ik->i", X, posterior.covariance, X), sd**2, 1e-6 * sd**2)


def gaussian_process(rng):
    """Gaussian processes: covariances composed at random, both schedules."""
    n, d = int(rng.integers(1, 16)), int(rng.integers(1, 3))
    covariance = composed(rng, d, int(rng.integers(1, 4))) + cavity.covariances.White(positive(rng, -4, 0))
    X = table(rng, n, d)
    K = covariance.gram(X)
    size = np.sqrt(np.max(np.diag(K)))
    if not 1e-3 < size < 30:  # the twin's panels are made for functions of about one
        return
    f = np.linalg.cholesky(K) @ rng.normal(size=n)
    likelihood, y = observed(rng, np.clip(f, -4, 4))
    values, exponent, fraction = options(rng, likelihood, n)
    schedule = str(rng.choice(["parallel", "sequential"]))
    model = cavity.GaussianProcess(covariance, likelihood)
    posterior = sure(model.fit, X, y, learn=False, schedule=schedule, **values)
    mean = np.broadcast_to(posterior.model.mean, n)
    result = check(posterior, K, mean, likelihood, y, exponent, fraction, np.zeros(n))
    if result is not None:
        m, S = result
        near("mean", posterior.mean, m, 1e-6 * np.sqrt(np.diag(S)))
        near("variance", posterior.variance, np.diag(S), 1e-6 * np.diag(S))


def hard_generalised_linear(rng):
    """GLMs of wide priors and large columns, labels without reason or without exception."""
    n, d = int(rng.integers(1, 40)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-2, 2, d)
    likelihood, y = observed(rng, rng.choice([0.0, 1.0, 5.0]) * np.clip(X @ rng.normal(size=d), -1, 1))
    variance = 10 ** rng.uniform(-4, 8, d)
    schedule = str(rng.choice(["parallel", "sequential"]))
    posterior = sure(
        cavity.GLM(likelihood, prior_variance=variance, intercept=False).fit, X, y, schedule=schedule, tol=TOL
    )
    finite("log_evidence", posterior.log_evidence)
    finite("mean", posterior.mean)
    finite("variance", posterior.variance)
    if not posterior.converged:
        return
    tau, rho = posterior.sites.tau, posterior.sites.rho
    m, v = X @ posterior.mean, np.einsum("ij,jk,ik->i", X, posterior.covariance, X)
    is_known = 1 - v * rho > 1e-6  # rows whose cavities have digits left here
    m, v, tau, rho, y = m[is_known], v[is_known], tau[is_known], rho[is_known], y[is_known]
    cavity_v = v / (1 - v * rho)
    cavity_m = cavity_v * (m / v - tau)
    _, d1, d2 = likelihood.log_tilted(y, cavity_m, cavity_v)  # which other attacks found right
    sharp = 1 + cavity_v / v
    near("tilted mean", (cavity_m + cavity_v * d1 - m) / np.sqrt(v), np.zeros(len(m)), 1e-5 * sharp)
    near("tilted variance", cavity_v * (1 + cavity_v * d2) / v, np.ones(len(m)), 1e-5 * sharp)


def mixed(rng):
    """Mixed models with given covariances: levels of one row, slopes, several terms, interactions."""
    n = int(rng.integers(2, 25))
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    groups = {"g": rng.integers(0, rng.integers(1, n + 1), n), "h": rng.integers(0, 3, n)}
    slopes = cavity.RandomEffects("g", 1)
    effects = [["g"], ["g", "h"], [slopes], [slopes, "h"], ["h", cavity.RandomEffects(("g", "h"))]][rng.integers(5)]
    root = np.tril(rng.normal(size=(2, 2))) + np.diag([1.0, 1.0])
    terms = make_terms(effects, X, None, groups)
    covariances = [root @ root.T if effect is slopes else positive(rng, -1.5, 1) for effect in effects]
    likelihood, y = observed(rng, X @ rng.normal(size=2) + rng.normal(size=3)[groups["h"]])
    values, exponent, fraction = options(rng, likelihood, n)
    if likelihood._merges_by not in (None, "factors"):  # copies of a row are one site
        fraction = np.full(n, values["power"])
        exponent = fraction * values.get("sample_weight", 1.0)
    variance = 10 ** rng.uniform(-1, 1.5, 2)
    settings = {term.name: covariance for term, covariance in zip(terms, covariances, strict=True)}
    model = cavity.MixedGLM(effects, likelihood, prior_variance=variance, effect_covariances=settings, intercept=False)
    posterior = sure(model.fit, X, y, groups=groups, **values)
    A = mixed_reference.rows(X, terms)
    C = mixed_reference.prior_covariance(variance, terms, covariances)
    K = A @ C @ A.T
    if check(posterior, K, np.zeros(n), likelihood, y, exponent, fraction, np.zeros(n)) is None:
        return
    tau, rho = posterior.sites.tau, posterior.sites.rho
    gain = np.linalg.solve(np.eye(n) + K * rho, A @ C)  # (I + K R)^-1 A C
    mean, covariance = gain.T @ tau, C - C @ A.T @ (rho[:, None] * gain)
    sd = np.sqrt(np.diag(covariance))
    near("mean", posterior.mean, mean[:2], 1e-6 * sd[:2])
    near("covariance", posterior.covariance, covariance[:2, :2], 1e-6 * np.outer(sd[:2], sd[:2]))
    result = np.concatenate([posterior.effect_moments(term.name)[0].ravel() for term in terms])
    near("mean of the effects", result, mean[2:], 1e-6 * sd[2:])


ATTACKS = (generalised_linear, hard_generalised_linear, gaussian_process, mixed)
