"""Data of any scale and of little variety: results in other units are the same results, or the fit says why not."""

import numpy as np
from attack.latent import observed
from attack.rule import finite, near, refusing, sure
from attack.sites import positive
from support.mixtures import COVARIANCES, WEIGHTS, model_of

import cavity
from cavity import covariances, likelihoods

LARGEST = 498  # powers of two: squares of 1e150 are numbers still
PLAIN = 100  # up to which, 1e30, nothing may be refused


def exponents(rng):
    """Powers of two for columns and for observations, both moderate or one of them extreme."""
    if rng.random() < 0.5:
        return (int(k) for k in rng.integers(-PLAIN // 2, PLAIN // 2 + 1, 2))
    extreme = int(rng.integers(-LARGEST, LARGEST + 1))
    return (extreme, 0) if rng.random() < 0.5 else (0, extreme)


def in_units(fit, described, k, j):
    """Compare what a fit in units 2^k of the columns and 2^l of the observations says with that in units of 1."""
    a, b = np.ldexp(1.0, k), np.ldexp(1.0, j)
    attempt = sure if abs(k) + abs(j) <= PLAIN else refusing
    result, other = sure(fit, 1.0, 1.0), attempt(fit, a, b)
    if other is None:
        return
    finite("the result", np.concatenate([np.ravel(item) for item in described(other, 1.0, 1.0)]))
    if result.converged and other.converged:
        for number, (actual, expected) in enumerate(
            zip(described(other, a, b), described(result, 1.0, 1.0), strict=True)
        ):
            near(f"number {number} in units 2^{k}, 2^{j}", actual, expected, 1e-6 * (1 + np.max(np.abs(expected))))


def rows(rng):
    """A table of few rows and columns: equal ones, constant columns and columns of zeros among them."""
    n, d = int(rng.choice([1, 2, 3, 10, 30])), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d)) if rng.random() < 0.7 else rng.integers(0, 2, (n, d)).astype(float)
    for column in X.T:
        if rng.random() < 0.15:
            column[:] = rng.choice([0.0, 1.0, -3.0])
    return X


def generalised_linear_units(rng):
    """GLMs of any likelihood; those of real numbers in other units of y, too."""
    X = rows(rng)
    k, j = exponents(rng)
    f, variance = X @ rng.normal(size=X.shape[1]), 10 ** rng.uniform(-1, 1, X.shape[1])
    if rng.random() < 0.5:
        noise, y = positive(rng, -2, 1), f + rng.normal(size=len(X))
        made = [
            lambda b: likelihoods.Gaussian(noise * b * b),
            lambda b: likelihoods.StudentT(4.0, np.sqrt(noise) * b),
            lambda b: likelihoods.Laplace(np.sqrt(noise) * b),
        ][rng.integers(3)]
        constant = len(X)
    else:
        likelihood, y = observed(rng, f, str(rng.choice(["Probit", "Logit", "Poisson", "OrderedProbit"])))
        j, constant = 0, 0

        def made(b):
            return likelihood

    def fit(a, b):
        return cavity.GLM(made(b), prior_variance=variance * (b / a) ** 2, intercept=False).fit(a * X, b * y)

    def described(p, a, b):
        return p.mean * (a / b), np.sqrt(p.variance) * (a / b), p.log_evidence + constant * np.log(b)

    in_units(fit, described, k, j)


def linear_units(rng):
    """Linear regressions of given variances."""
    X, (k, j) = rows(rng), exponents(rng)
    noise, variance = positive(rng, -2, 1), positive(rng, -1, 1)
    y = X @ rng.normal(size=X.shape[1]) + rng.normal(size=len(X))

    def fit(a, b):
        model = cavity.LinearRegression(
            intercept=False, prior_variance=variance * (b / a) ** 2, noise_variance=noise * b * b
        )
        return model.fit(a * X, b * y)

    def described(p, a, b):
        return p.mean * (a / b), np.sqrt(p.variance) * (a / b), p.elbo + len(X) * np.log(b)

    in_units(fit, described, k, j)


def values(p, X, a, b, log_evidence):
    """What a process says of some rows and of y, in units of 1."""
    mean, variance = p.predict(a * X[:3])
    return mean / b, np.sqrt(variance) / b, log_evidence + len(X) * np.log(b)


def process_units(rng):
    """Gaussian processes, exact ones and those of EP."""
    X, (k, j) = rows(rng), exponents(rng)
    kind = getattr(covariances, str(rng.choice(["RBF", "Matern32", "RationalQuadratic"])))
    variance, length, noise = positive(rng, -1, 1), positive(rng, -1, 1), positive(rng, -3, 0)
    y = np.sin(X[:, 0]) + np.sqrt(noise) * rng.normal(size=len(X))
    student = rng.random() < 0.4

    def fit(a, b):
        likelihood = likelihoods.StudentT(4.0, np.sqrt(noise) * b) if student else likelihoods.Gaussian(noise * b * b)
        model = cavity.GaussianProcess(kind(variance * b * b, length * a), likelihood, mean=0.0)
        return model.fit(a * X, b * y, learn=False)

    def described(p, a, b):
        return values(p, X, a, b, p.log_evidence)

    in_units(fit, described, k, j)


def mixture_units(rng):
    """Gaussian mixtures of all kinds with given priors."""
    X, (k, _) = rows(rng), exponents(rng)
    covariance, weights = str(rng.choice(COVARIANCES)), str(rng.choice(WEIGHTS))
    inputs = model_of(covariance, int(rng.integers(1, 4)), X.shape[1], weights)

    def fit(a, b):
        scatter = np.asarray(inputs.covariance_prior) * a * a
        priors = {"mean_prior": np.asarray(inputs.mean_prior) * a, "covariance_prior": scatter}
        model = model_of(covariance, inputs.n_components, X.shape[1], weights, **priors)
        return model.fit(a * X, rng=0)

    def described(p, a, b):
        return (p.elbo + X.size * np.log(a),)  # means may swap places where rows are equal

    in_units(fit, described, k, 0)


def unit_mixture_units(rng):
    """Mixtures of unit variance."""
    y, (k, _) = rows(rng)[:, 0], exponents(rng)

    def fit(a, b):
        return cavity.UnitMixture(3, 10.0 * a * a, 0.5 * a, 0.3 * a * a).fit(a * y, rng=0)

    def described(p, a, b):
        return (p.elbo + len(y) * np.log(a),)

    in_units(fit, described, k, 0)


def clutter_units(rng):
    """Clutter problems."""
    x, (k, _) = rows(rng), exponents(rng)
    schedule = str(rng.choice(["sequential", "parallel"]))

    def fit(a, b):
        variances = {"clutter_variance": 10.0 * a * a, "noise_variance": 0.7 * a * a, "prior_variance": 50.0 * a * a}
        return cavity.Clutter(prior_mean=0.2 * a, **variances).fit(a * x, schedule=schedule)

    def described(p, a, b):
        return p.mean / a, np.sqrt(p.variance) / a, p.log_evidence + x.size * np.log(a)

    in_units(fit, described, k, 0)


def stream_units(rng):
    """Streams of real numbers."""
    X, (k, j) = rows(rng), exponents(rng)
    y, variance, length, noise = (
        rng.normal(size=len(X)),
        positive(rng, -1, 1),
        positive(rng, -1, 1),
        positive(rng, -2, 0),
    )

    def fit(a, b):
        model = cavity.StreamingGP(
            covariances.RBF(variance * b * b, length * a),
            likelihoods.Gaussian(noise * b * b),
            mean=0.0,
            inducing=a * X[:5],
        )
        return model.fit(a * X, b * y, learn=False)

    def described(p, a, b):
        return values(p, X, a, b, p.log_bound)

    in_units(fit, described, k, j)


def defaults(rng):
    """Models that choose their settings from the data, on data of any scale and of no variety at all."""
    X = rows(rng) * 10 ** rng.uniform(*rng.choice([(-3, 3), (-150, 150)]))
    n = len(X)
    labels = rng.integers(0, 2, n) if rng.random() < 0.6 else np.full(n, rng.integers(0, 2))
    real = X[:, 0] + 10 ** rng.uniform(-3, 3) * rng.normal(size=n) if rng.random() < 0.6 else np.full(n, X[0, 0])
    fit = [
        lambda: cavity.GLM("probit").fit(X, labels),
        lambda: cavity.GLM("logit", standardize=True).fit(X, labels),
        lambda: cavity.GLM("gaussian").fit(X, real),
        lambda: cavity.GLM("student-t").fit(X, real),
        lambda: cavity.GLM("poisson").fit(X, labels * 3),
        lambda: cavity.LinearRegression(intercept=False).fit(X, real),
        lambda: cavity.LinearRegression(intercept=False, ard=True).fit(X, real),
        lambda: cavity.LogisticRegression(intercept=False).fit(X, labels),
        lambda: cavity.GaussianProcess().fit(X, real),
        lambda: cavity.GaussianProcess("rbf", "probit").fit(X, labels),
        lambda: cavity.StreamingGP().fit(X, real),
        lambda: cavity.GaussianMixture(2).fit(X, rng=0),
        lambda: cavity.GaussianMixture(2, "diag", "stick_breaking").fit(X, rng=0),
        lambda: cavity.MixedGLM("g", "gaussian").fit(X, real, groups={"g": rng.integers(0, 3, n)}),
    ][rng.integers(14)]
    result = refusing(fit)
    if result is None:
        return
    for name in ("log_evidence", "elbo", "log_bound"):
        if hasattr(result, name):
            finite(name, getattr(result, name))
    for name in ("mean", "variance"):
        if hasattr(result, name):
            finite(name, getattr(result, name))
    if hasattr(result, "predict") and not isinstance(
        result, cavity.GaussianMixturePosterior | cavity.MixedGLMPosterior
    ):
        predicted = refusing(result.predict, X)
        if predicted is not None:
            finite("predict", predicted)


ATTACKS = (
    generalised_linear_units,
    linear_units,
    process_units,
    mixture_units,
    unit_mixture_units,
    clutter_units,
    stream_units,
    defaults,
)
