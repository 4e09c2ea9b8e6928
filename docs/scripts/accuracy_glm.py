"""Compare EP and Laplace's approximation of GLMs with the exact posterior, and print the table of accuracy_glm.rst.

    python docs/scripts/accuracy_glm.py > docs/accuracy_glm_table.inc

The truth is importance sampling from a Student's t around EP's posterior, at scrambled Sobol points: REPLICATES
independent sets of DRAWS points give estimates and their standard errors. In one dimension, and for the step
likelihood in two, it is a sum over a grid. Needs scikit-learn (for its breast cancer data).
"""

import warnings

import numpy as np
from scipy.special import chdtri, gammaln, ndtri
from scipy.stats import qmc

import cavity
from cavity import data
from cavity.base.column_statistics import robust_spread
from cavity.models.linear.defaults import INTERCEPT_VARIANCE_RATIO

REPLICATES, DRAWS = 16, 1 << 14
INFLATED = 1.1  # root of the proposal's covariance over that of EP's
GRID = 1 << 16
STEP = 1e-3  # of the differences that Laplace's approximation takes; of f, whose scale is 1 in all cases
SEED = 1


def log_joint(w, X, y, model):
    """log p(y, w) for draws w (n, D); the prior has independent weights."""
    variance = np.broadcast_to(model.prior_variance, w.shape[1])
    prior = -0.5 * np.sum((w - model.prior_mean) ** 2 / variance + np.log(2 * np.pi * variance), axis=1)
    return prior + np.sum(model.likelihood.log_p(y, w @ X.T), axis=1)


def sampled(X, y, model, posterior):
    """Importance sampling; mean, sd and log evidence, their standard errors, and what share of the draws counts."""
    d = X.shape[1]
    freedom = 5 + d  # heavier tails than the posterior, without wasting the draws in high dimension
    root = INFLATED * np.linalg.cholesky(posterior.covariance)
    constant = gammaln(0.5 * (freedom + d)) - gammaln(0.5 * freedom) - 0.5 * d * np.log(np.pi * freedom)
    constant -= np.sum(np.log(np.diag(root)))
    top, sums, squares = None, [], 0.0
    for k in range(REPLICATES):
        u = qmc.Sobol(d + 1, rng=np.random.default_rng([SEED, k])).random(DRAWS)
        z = ndtri(u[:, :d]) * np.sqrt(freedom / chdtri(freedom, u[:, d]))[:, None]
        shift = z @ root.T
        log_q = constant - 0.5 * (freedom + d) * np.log1p(np.sum(z**2, axis=1) / freedom)
        log_weight = log_joint(posterior.mean + shift, X, y, model) - log_q
        top = log_weight.max() if top is None else top
        weight = np.exp(log_weight - top)
        squares += weight @ weight
        sums.append(np.concatenate([[weight.sum()], weight @ shift, weight @ shift**2]))
    sums = np.array(sums)
    total = sums.sum(axis=0)
    first, second = np.split(total[1:] / total[0], 2)
    variance = second - first**2
    # replicate by replicate, the sums of weight, weight (w - mean) and weight ((w - mean)^2 - variance)
    zeroth, ones, twos = sums[:, :1], sums[:, 1 : d + 1], sums[:, d + 1 :]
    centred = ones - zeroth * first
    spread = twos - 2 * first * ones + zeroth * first**2 - zeroth * variance
    error = [np.std(part, axis=0, ddof=1) * np.sqrt(REPLICATES) / total[0] for part in (zeroth, centred, spread)]
    sd = np.sqrt(variance)
    value = posterior.mean + first, sd, np.log(total[0] / (REPLICATES * DRAWS)) + top
    errors = np.max(error[1] / sd), np.max(error[2] / (2 * variance)), error[0][0]
    return value, errors, f"importance sampling, {100 * total[0] ** 2 / squares / (REPLICATES * DRAWS):.0f} % effective"


def summed(X, y, model, posterior):
    """One weight: a sum over a grid. Halving the step may not matter."""
    reach = 60 * np.sqrt(posterior.variance[0])

    def moments(count):
        w = posterior.mean[0] + reach * (np.arange(-count, count + 1) / count)[:, None]
        value = np.concatenate([log_joint(part, X, y, model) for part in np.array_split(w, 64)])
        top = value.max()
        p, w = np.exp(value - top), w[:, 0]
        mean = p @ w / p.sum()
        sd = np.sqrt(p @ (w - mean) ** 2 / p.sum())
        return np.array([mean, sd, np.log(p.sum() * reach / count) + top])

    coarse, fine = moments(GRID // 64), moments(GRID // 32)
    if not np.allclose(coarse, fine, rtol=1e-10, atol=0):
        raise ArithmeticError(f"quadrature not converged: {coarse} and {fine}")
    return (fine[:1], fine[1:2], fine[2]), None, "sum over a grid"


def wedge(X, y, model, posterior):
    """Step likelihood, two weights, spherical prior: a sum over the angle, the radius in closed form."""
    variance = model.prior_variance
    angle = 2 * np.pi * (np.arange(1 << 20) + 0.5) / (1 << 20)
    direction = np.column_stack([np.cos(angle), np.sin(angle)])
    inside = direction[np.all(direction @ (X * y[:, None]).T > 0, axis=1)]
    mean = np.sqrt(0.5 * np.pi * variance) * inside.mean(axis=0)  # the radius has a Rayleigh distribution
    sd = np.sqrt(2 * variance * np.mean(inside**2, axis=0) - mean**2)
    return (mean, sd, np.log(len(inside) / len(angle))), None, "sum over the angle"


def laplace(X, y, model, start):
    """Laplace's approximation by Newton's method: mean, sd and log evidence."""
    d = len(start)
    precision = np.broadcast_to(1.0 / np.asarray(model.prior_variance), d)
    w = start.copy()
    for _ in range(100):
        low, middle, high = (model.likelihood.log_p(y, X @ w + step) for step in (-STEP, 0.0, STEP))
        slope, curvature = (high - low) / (2 * STEP), (low - 2 * middle + high) / STEP**2
        hessian = np.diag(precision) - X.T @ (curvature[:, None] * X)
        move = np.linalg.solve(hessian, X.T @ slope - precision * (w - model.prior_mean))
        w = w + move
        if np.max(np.abs(move)) < 1e-9 * (1 + np.max(np.abs(w))):
            value = log_joint(w[None], X, y, model)[0] + 0.5 * d * np.log(2 * np.pi)
            return w, np.sqrt(np.diag(np.linalg.inv(hessian))), value - 0.5 * np.linalg.slogdet(hessian)[1]
    raise ArithmeticError("Newton's method did not converge")


def with_intercept(columns):
    """Standardized columns after a column of ones, and the prior variance of the command line."""
    X = np.column_stack([np.ones(len(columns[0])), *((c - np.mean(c)) / np.std(c) for c in columns)])
    return X, np.append(INTERCEPT_VARIANCE_RATIO, np.ones(X.shape[1] - 1))


def cases():
    """Yield (name, X, y, model, how to find the truth); y in the form of the likelihood's log_p."""
    truth = cavity.likelihoods
    table, about = data.table("pima")
    X, variance = with_intercept([table[c] for c in list(about["columns"])[:7]])
    y = np.where(table["type"] == "Yes", 1.0, -1.0)
    yield "Pima, probit", X, y, cavity.GLM(truth.Probit(), prior_variance=variance, intercept=False), sampled
    yield "Pima, logit", X, y, cavity.GLM(truth.Logit(), prior_variance=variance, intercept=False), sampled
    from sklearn.datasets import load_breast_cancer

    cancer = load_breast_cancer()
    y = np.where(cancer.target == 1, 1.0, -1.0)
    for count in (10, 30):
        X, variance = with_intercept(list(cancer.data.T[:count]))
        for likelihood in (truth.Probit(), truth.Logit()):
            name = f"breast cancer, {count} columns, {type(likelihood).__name__.lower()}"
            yield name, X, y, cavity.GLM(likelihood, prior_variance=variance, intercept=False), sampled
    times, _ = data.load("newcomb")
    spread = robust_spread(times)
    # in units of the spread, as STEP is
    prior = {"prior_mean": np.median(times) / spread, "prior_variance": INTERCEPT_VARIANCE_RATIO}
    model = cavity.GLM(truth.StudentT(4.0, 1.0), intercept=False, **prior)
    yield "Newcomb, Student's t", np.ones((len(times), 1)), times / spread, model, summed
    rng = np.random.default_rng(SEED)
    X = np.column_stack([np.ones(50), rng.normal(size=(50, 3))])
    y = rng.poisson(np.exp(X @ [0.5, 0.5, -0.3, 0.1])).astype(float)
    yield "Poisson, N = 50, D = 4", X, y, cavity.GLM(truth.Poisson(), prior_variance=10.0, intercept=False), sampled
    latent = X @ [0.2, 1.0, -0.5, 0.0] + rng.normal(size=50)
    y = np.digitize(latent, [-1.0, 0.0, 1.0]).astype(float)
    model = cavity.GLM(truth.OrderedProbit([-1.0, 0.0, 1.0]), prior_variance=10.0, intercept=False)
    yield "ordered probit, 4 classes, N = 50, D = 4", X, y, model, sampled
    X = rng.normal(size=(8, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + rng.normal(size=8) > 0, 1.0, -1.0)
    yield (
        "logit, N = 8, D = 3, vague prior",
        X,
        y,
        cavity.GLM(truth.Logit(), prior_variance=25.0, intercept=False),
        sampled,
    )
    X = rng.normal(size=(10, 2))
    y = np.where(X @ [1.0, 0.5] > 0, 1.0, -1.0)
    yield (
        "step (Bayes point machine), N = 10, D = 2",
        X,
        y,
        cavity.GLM(truth.Step(), prior_variance=1.0, intercept=False),
        wedge,
    )


def compared(name, X, y, model, truth):
    """Yield the rows of one case."""
    posterior = model.fit(X, y)
    if not posterior.converged:
        raise ArithmeticError(posterior.status)
    (mean, sd, evidence), errors, how = truth(X, y, model, posterior)
    margins = [f"± {error:.1g}" for error in errors] if errors else ["", "", ""]
    yield name, how, f"{evidence:.4f}", margins[2], *margins[:2]
    results = [("EP", (posterior.mean, np.sqrt(posterior.variance), posterior.log_evidence))]
    if not isinstance(model.likelihood, cavity.likelihoods.Step):  # without a mode inside
        results.append(("Laplace", laplace(X, y, model, posterior.mean)))
    for label, (m, s, value) in results:
        worst = (error[np.argmax(np.abs(error))] for error in ((m - mean) / sd, s / sd - 1))
        yield "", label, f"{value:.4f}", f"{value - evidence:+.4f}", *(f"{error:+.4f}" for error in worst)


def main():
    """Print the table."""
    warnings.simplefilter("error", cavity.ConvergenceWarning)
    header = (
        "data",
        "method",
        "log evidence",
        "its error",
        "largest error of a mean / sd",
        "largest error of an sd / sd",
    )
    print(".. Written by docs/scripts/accuracy_glm.py.\n")
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(".. list-table:: EP and Laplace's approximation against the exact posterior\n   :header-rows: 1\n")
    for row in (header, *(row for case in cases() for row in compared(*case))):
        print("\n".join(f"   {' ' if i else '*'} - {cell}".rstrip() for i, cell in enumerate(row)))


if __name__ == "__main__":
    main()
