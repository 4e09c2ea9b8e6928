"""Coordinate ascent on random problems: bounds term by term as the book has them, and one more step of the twin."""

import numpy as np
from attack.rule import Wrong, finite, near, sure
from attack.sites import positive
from reference import clutter as clutter_reference
from reference import factorized as factorized_reference
from reference import gaussian_mixture as mixture_reference
from reference import mean_field as unit_reference
from reference import regression as reference
from support.mixtures import COVARIANCES, WEIGHTS, factors_of, model_of, prior_of, reference_elbo

import cavity


def rest(label, gained, size):
    """A step of the twin from where a fit converged gains next to nothing, and never loses."""
    if not -1e-8 * size <= gained <= 1e-6 * size:
        raise Wrong(f"converged, but one step changes {label} by {gained:.3g}")


def gaussian_mixture(rng):
    """Mixtures of all kinds: ELBO by the book, and a step of the book from where the fit ended."""
    n, d, k = int(rng.integers(1, 60)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    covariance, weights = str(rng.choice(COVARIANCES)), str(rng.choice(WEIGHTS))
    X = rng.normal(size=(n, d)) + 4 * rng.normal(size=(k, d))[rng.integers(0, k, n)]
    if covariance in ("diag", "spherical") and rng.random() < 0.3:
        X[rng.random(X.shape) < 0.1] = np.nan
        X = X[~np.isnan(X).all(axis=1)]
    w = rng.choice([1.0, 2.0, 0.5], len(X)) if rng.random() < 0.3 else np.ones(len(X))
    if np.isnan(X).all(axis=0).any():  # no value in a column, which is refused, or no rows at all
        return
    model = model_of(covariance, k, d, weights, weight_concentration_prior=positive(rng, -1, 1))
    posterior = sure(model.fit, X, sample_weight=w, rng=0, accelerate=bool(rng.random() < 0.8))
    expected = reference_elbo(X, w, posterior)
    near("elbo", posterior.elbo, expected, 1e-9 * (1 + abs(expected) + len(X)))
    if posterior.converged:
        prior, q = prior_of(posterior.model), factors_of(posterior)
        q, _ = mixture_reference.cavi_step(X, w, prior, q)
        after = mixture_reference.elbo(X, w, prior, q, mixture_reference.e_step(X, prior, q))
        rest("the ELBO", after - expected, 1 + abs(expected))


def unit_mixture(rng):
    """Mixtures of unit variance: responsibilities, ELBO, and a sweep from where the fit ended."""
    n, k = int(rng.integers(1, 40)), int(rng.integers(1, 5))
    noise, prior_variance, prior_mean = positive(rng, -1, 1), positive(rng, 0, 2), float(rng.normal())
    y = rng.normal(size=n) * np.sqrt(noise) + 4 * rng.normal(size=k)[rng.integers(0, k, n)]
    weights = rng.dirichlet(np.ones(k))
    weights = weights / weights.sum()
    posterior = sure(cavity.UnitMixture(k, prior_variance, prior_mean, noise, weights).fit, y, rng=0)
    settings = weights, noise, prior_mean, prior_variance
    resp = unit_reference.unit_mixture_responsibilities(y, posterior.mean, posterior.variance, weights, noise)
    near("responsibilities", posterior.responsibilities(y), resp, 1e-9)
    elbo = unit_reference.unit_mixture_elbo(y, resp, posterior.mean, posterior.variance, *settings)
    near("elbo", posterior.elbo, elbo, 1e-9 * (1 + abs(elbo) + n))
    if posterior.converged:
        *_, elbos = unit_reference.unit_mixture_cavi(y, posterior.mean, posterior.variance, *settings, 2)
        rest("the ELBO", elbos[1] - elbos[0], 1 + abs(elbo))


def linear_regression(rng):
    """Linear regressions: ELBO by the book, q(w) given the precisions of the others."""
    n, d = int(rng.integers(2, 40)), int(rng.integers(1, 6))
    X, ard = rng.normal(size=(n, d)), bool(rng.random() < 0.5)
    y = X @ rng.normal(size=d) + positive(rng, -1, 0.5) * rng.normal(size=n)
    model = cavity.LinearRegression(
        intercept=False, ard=ard, prior_shape=1e-2, prior_rate=1e-2, noise_shape=1e-2, noise_rate=1e-2
    )
    posterior = sure(model.fit, X, y)
    alpha, noise = posterior.alpha, posterior.noise_precision
    finite("elbo", posterior.elbo)
    if not posterior.converged:
        return
    values = np.broadcast_to(alpha.mean, d)
    mean, covariance = reference.linear_q_w(X, y, values, float(noise.mean))
    sd = np.sqrt(np.diag(covariance))
    near("mean", posterior.mean, mean, 1e-5 * sd)
    near("covariance", posterior.covariance, covariance, 1e-5 * np.outer(sd, sd))


def logistic_regression(rng):
    """Logistic regressions by Polya-Gamma variables: ELBO by the book, and a sweep from where the fit ended."""
    n, d = int(rng.integers(1, 40)), int(rng.integers(1, 5))
    X, variance = rng.normal(size=(n, d)) * positive(rng, -1, 1), 10 ** rng.uniform(-1, 2, d)
    y = np.where(X @ rng.normal(size=d) + rng.logistic(size=n) > 0, 1.0, -1.0)
    posterior = sure(cavity.LogisticRegression(intercept=False, prior_variance=variance).fit, X, y)
    elbo = reference.polya_gamma_elbo(X, y, posterior.mean, posterior.covariance, 1 / variance)
    near("elbo", posterior.elbo, elbo, 1e-8 * (1 + abs(elbo)))
    if posterior.converged:
        m, S = reference.polya_gamma_sweep(X, y, posterior.mean, posterior.covariance, 1 / variance)
        rest("the ELBO", reference.polya_gamma_elbo(X, y, m, S, 1 / variance) - elbo, 1 + abs(elbo))


def factorized(rng):
    """Factorised Gaussians: blocks in any order, nearly singular precisions."""
    d = int(rng.integers(1, 8))
    root = rng.normal(size=(d, d))
    precision = root @ root.T + positive(rng, -3, 1) * np.eye(d)
    order, cuts = rng.permutation(d), np.sort(rng.integers(0, d + 1, rng.integers(0, 3)))
    blocks = [part.tolist() for part in np.split(order, cuts) if len(part)]
    mean = rng.normal(size=d)
    posterior = sure(cavity.FactorizedGaussian(mean, precision, blocks).fit, max_iter=20_000)
    expected = factorized_reference.covariance_of_q(precision, blocks)
    sd = np.sqrt(np.diag(expected))
    near("variance", posterior.variance, sd**2, 1e-9 * sd**2 * np.linalg.cond(precision))
    if posterior.converged:
        near("mean", posterior.mean, mean, 1e-6 * sd * np.linalg.cond(precision))


def clutter(rng):
    """Clutter: sites of converged fits are at rest under the book's sweep, and so is the evidence."""
    n, d = int(rng.integers(1, 30)), int(rng.integers(1, 4))
    w, noise = float(rng.uniform(0.05, 0.8)), positive(rng, -0.5, 0.5)
    wide, m0, v0 = noise * positive(rng, 0.5, 2), float(rng.normal()), positive(rng, 0, 2)
    theta = m0 + np.sqrt(v0) * rng.normal(size=d)
    is_clutter = rng.random(n)[:, None] < w
    x = np.where(is_clutter, np.sqrt(wide), np.sqrt(noise)) * rng.normal(size=(n, d)) + np.where(is_clutter, 0, theta)
    model = cavity.Clutter(
        clutter_weight=w, clutter_variance=wide, noise_variance=noise, prior_mean=m0, prior_variance=v0
    )
    posterior = sure(model.fit, x, schedule=str(rng.choice(["sequential", "parallel"])))
    finite("log_evidence", posterior.log_evidence)
    if not posterior.converged:
        return
    tau, rho = (np.asarray(item) for item in (posterior.sites.tau, posterior.sites.rho))
    tau = tau.reshape(n, d)
    post_tau, post_rho = m0 / v0 + tau.sum(axis=0), 1 / v0 + rho.sum()
    near("variance", posterior.variance, 1 / post_rho, 1e-9 * np.max(1 + np.abs(rho).sum() / post_rho) / post_rho)
    for i in range(n):
        cavity_tau, cavity_rho = post_tau - tau[i], post_rho - rho[i]
        if cavity_rho <= 0:
            continue
        moments = clutter_reference.tilted(x[i], cavity_tau / cavity_rho, 1 / cavity_rho, w, wide, noise)
        near("tilted mean", moments[2], post_tau / post_rho, 1e-6 / np.sqrt(post_rho))
        near("tilted variance", moments[3], 1 / post_rho, 1e-6 / post_rho)
    m, v = post_tau / post_rho, 1 / post_rho
    if np.all(post_rho > rho):
        expected, _ = clutter_reference.log_evidence(x, m, v, tau, rho, w, wide, noise, m0, v0, 0.0)
        near("log_evidence", posterior.log_evidence, expected, 1e-8 * (1 + abs(expected) + n * d))


ATTACKS = (gaussian_mixture, unit_mixture, linear_regression, logistic_regression, factorized, clutter)
