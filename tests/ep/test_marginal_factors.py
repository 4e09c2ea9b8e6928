"""Marginals by the factors of all rows: slow twins, exact integrals, and the published tables of corrections."""

import numpy as np
import pytest
from reference.marginal_factors import find_log_ratio
from scipy import special, stats
from support import GOLDEN
from support.coal_disasters import count_disasters
from support.tolerances import AT_REST, EXPANSION, PRINTED, ROOT_EPS

import cavity
from cavity import likelihoods
from cavity.ep.corrections import TiltedCumulants, correct_evidence, correct_marginals, find_tilted_cumulants
from cavity.ep.marginal_factors import correct_density
from cavity.ep.sites import Sites
from cavity.models.marginal import Marginal, tabulate_density

SUCCESSES = np.array([4, 2, 2] + [1] * 6 + [0] * 16)  # of 25 groups of 4 rows


class Case:
    """Rows of effects with a normal prior, a site each, and their posterior by EP."""

    def __init__(self, likelihood, y, X, prior_variance, **options):
        options = {"prior_mean": 0.0, "prior_variance": prior_variance, "intercept": False} | options
        self.likelihood, self.y, self.X = likelihood, y, X
        self.posterior = cavity.GLM(likelihood, **options).fit(X, y, tol=1e-11)
        self.covariance = X @ self.posterior.covariance @ X.T
        self.mean, self.sd = X @ self.posterior.mean, np.sqrt(np.diag(self.covariance))
        self.tau, self.rho = self.posterior._tau, self.posterior._rho
        self.moments = Sites(likelihood, y), self.mean, self.sd**2, self.tau, self.rho
        self.cumulants = find_tilted_cumulants(*self.moments)
        self.correlations = self.covariance / self.sd / self.sd[:, None]

    def correct(self, fourth=True):
        """R by third, or third and fourth cumulants."""
        cumulants = self.cumulants if fourth else TiltedCumulants(self.cumulants.third, np.zeros(len(self.y)))
        return correct_evidence(cumulants, self.correlations).value

    def describe(self, row):
        """Mean, sd and correlations with rows of a combination of effects."""
        covariance = self.posterior.covariance @ row
        sd = np.sqrt(row @ covariance)
        return row @ self.posterior.mean, sd, self.X @ covariance / sd / self.sd

    def find_quantiles(self, row):
        """The 2.5 and 97.5 % quantiles and sds of a combination by EP, K3+sd, FACT and 1STEP."""
        mean, sd, correlations = self.describe(row)
        skewness, factor = correct_marginals(self.cumulants, correlations[None], self.correlations)
        z = stats.norm.ppf([0.025, 0.975])
        expanded = mean + sd * factor * (z + skewness * (z * z - 1.0) / 6.0)  # Cornish and Fisher
        skew_normal = Marginal("", np.ones(1), np.array([mean]), sd * factor, float(skewness[0]))
        np.testing.assert_allclose(skew_normal.interval(), expanded, atol=10 * EXPANSION * sd)
        out = [(mean + sd * z, sd), (expanded, float(sd * factor[0]))]
        root = np.linalg.cholesky(self.posterior.covariance)
        for roots in ((), (self.X @ root, row @ root / sd)):
            z, log_density = correct_density(self.moments, correlations, *roots)
            marginal = tabulate_density("", mean + sd * z, log_density)
            out.append((marginal.interval(), marginal.sd))
        return out


def make_rare_rows():
    y = np.concatenate([np.repeat([1.0, -1.0], [k, 4 - k]) for k in SUCCESSES])
    X = np.column_stack([np.ones(100), np.repeat(np.arange(25), 4)[:, None] == np.arange(25)]).astype(float)
    return Case(likelihoods.Logit(), y, X, np.r_[25.0, np.full(25, 4.0)])


def make_coal():
    """A walk of second order, sd .7, an intercept and a slope."""
    D = np.diff(np.eye(112), 2, axis=0)
    x = np.column_stack([np.ones(112), (np.arange(1851, 1963) - 1906.5) / 100.0])
    inverse = np.linalg.pinv(D.T @ D)
    scale = np.exp(np.mean(np.log(np.diagonal(inverse))))
    prior = 0.49 / scale * inverse + 100.0 * x @ x.T
    return Case(likelihoods.Poisson(), count_disasters(), np.eye(112), prior)


def make_chain():
    i = np.arange(100)
    y = np.where(np.sin(i / 9) + 0.6 * np.cos(1.3 * i) > 0.9, 1.0, -1.0)
    prior = 2.25 * 0.9 ** np.abs(np.subtract.outer(i, i)) + 25.0
    return Case(likelihoods.Logit(), y, np.eye(100), prior)


def make_kidney():
    rows = [line.split(",") for line in (GOLDEN / "kidney.csv").read_text().splitlines()[2:]]
    patient, time, event, age, sex = np.array([row[:5] for row in rows], dtype=float).T
    diseases = ([row[5] == disease for row in rows] for disease in ("GN", "AN", "PKD"))
    groups = patient[:, None] == np.unique(patient)
    X = np.column_stack([np.ones(76), (age - 40) / 10, sex == 2, *diseases, groups]).astype(float)
    y = np.column_stack([time, np.where(event == 1, time, np.inf)])
    return Case(likelihoods.Weibull(1.2, effect="hazard"), y, X, np.r_[np.full(6, 100.0), np.full(38, 0.64)])


SAMPLED = {  # quantiles and sd, by importance sampling
    "D last year": ([-2.2464, -0.1283], 0.5410),
    "D 1911": ([-0.5590, 0.2673], 0.2108),
    "F row 51": ([-6.140, -1.408], 1.2107),
}
MAKERS = {"A": make_rare_rows, "D": make_coal, "F": make_chain, "K": make_kidney}


@pytest.fixture(scope="module")
def cases():
    return {name: make() for name, make in MAKERS.items()}


@pytest.mark.parametrize(
    ("name", "log_evidence", "third", "both", "truth", "error"),
    [
        ("A", -39.9152822648, 0.2554906067, 0.2678967213, -39.64390369, PRINTED),
        ("D", -179.7642374608, 0.01522472, 0.01541032, -179.74912, PRINTED),
        ("F", -41.4931207610, 0.0506884252, 0.0526628224, -41.4402, EXPANSION),
        ("K", -350.7075655337, 0.0910449894, None, -350.61553, EXPANSION),
    ],
)
def test_errors_of_the_log_evidence(cases, name, log_evidence, third, both, truth, error):
    """EP, with k3, with k3 and k4; truths by quadrature (A) and importance sampling, with the error of these."""
    case = cases[name]
    assert case.posterior.log_evidence == pytest.approx(log_evidence, abs=AT_REST)
    assert case.correct(fourth=False) == pytest.approx(third, abs=ROOT_EPS)
    if both is not None:
        assert case.correct() == pytest.approx(both, abs=ROOT_EPS)
    errors = [case.posterior.log_evidence + R - truth for R in (0.0, case.correct(False), case.correct())]
    table = {"A": (-0.2714, -0.0159, -0.0035), "D": (-0.0151, 0.0001, 0.0003), "F": (-0.0529, -0.0022, -0.0002)}
    np.testing.assert_allclose(errors, table.get(name, (-0.0920, -0.0010, -0.0017)), atol=error)


def integrate_rare_rows():
    """Values and densities of the intercept and of f of the first row, by integrals over the other groups."""
    z = np.linspace(-9.0, 9.0, 601)
    w = stats.norm.pdf(z) * (z[1] - z[0])
    b, f = np.linspace(-9.0, 2.0, 801), np.linspace(-9.0, 9.0, 1201)
    k, counts = np.unique(SUCCESSES, return_counts=True)
    inside = b[:, None] + 2.0 * z
    log_p = [np.log(np.exp(n * special.log_expit(inside) + (4 - n) * special.log_expit(-inside)) @ w) for n in k]
    joint = counts @ log_p + stats.norm.logpdf(b, scale=5.0)
    others = np.exp(joint - log_p[-1] - np.max(joint))  # the first group has 4 successes
    of_row = (np.exp(-0.125 * (f[:, None] - b) ** 2) @ others) * np.exp(4.0 * special.log_expit(f))
    return (b, np.exp(joint - np.max(joint))), (f, of_row)


def measure(x, density):
    """Quantiles and sd of a density on a regular grid."""
    density = density / np.sum(density)
    mean = density @ x
    return np.interp([0.025, 0.975], np.cumsum(density) - 0.5 * density, x), np.sqrt(density @ (x - mean) ** 2)


@pytest.mark.long_cases("A row 1-None-table1", "D 1911-60-table3")
@pytest.mark.parametrize(
    ("name", "row", "table"),
    [
        ("A intercept", 0, [(0.084, -0.028), (0.009, 0.002), (0.057, -0.026), (0.012, 0.004)]),
        ("A row 1", None, [(0.227, -0.020), (0.054, -0.003), (0.005, -0.002), (0.003, -0.001)]),
        ("D last year", 111, [(0.158, -0.017), (0.001, 0.001), (0.012, -0.003), (0.002, 0.000)]),
        ("D 1911", 60, [(0.062, -0.005), (0.003, 0.000), (0.003, -0.001), (0.003, 0.000)]),
        ("F row 51", 50, [(0.124, -0.017), (0.008, 0.000), (0.021, -0.009), (0.004, -0.001)]),
    ],
)
def test_errors_of_quantiles(cases, name, row, table):
    """The larger error of the 2.5 and 97.5 % quantiles in sds, and that of the sd: EP, K3+sd, FACT, 1STEP.

    Truths are by quadrature (A), or by importance sampling with 2^22 Sobol points (F: as published), to .003 sds.
    """
    case = cases[name[0]]
    combination = case.X[0] if row is None else np.eye(case.X.shape[1])[row]
    if name[0] == "A":
        quantiles, sd = measure(*integrate_rare_rows()[0 if row == 0 else 1])
    else:
        quantiles, sd = SAMPLED[name]
    for (ends, own), (error, of_sd) in zip(case.find_quantiles(combination), table, strict=True):
        assert np.max(np.abs(ends - quantiles)) / sd == pytest.approx(error, abs=4 * EXPANSION)
        assert own / sd - 1.0 == pytest.approx(of_sd, abs=2 * EXPANSION)


@pytest.mark.parametrize("step", [False, True], ids=["factors", "1step"])
@pytest.mark.parametrize("name", ["A", "K"])
def test_slow_twins(cases, name, step):
    """Of the second effect, at five values."""
    case, row = cases[name], np.eye(cases[name].X.shape[1])[1]
    _, sd, correlations = case.describe(row)
    root = np.linalg.cholesky(case.posterior.covariance)
    z, log_density = correct_density(case.moments, correlations, *((case.X @ root, row @ root / sd) if step else ()))
    y = case.y
    log_p = [lambda f, i=i: case.likelihood.log_p(np.repeat(y[i : i + 1], len(f), axis=0), f) for i in range(len(y))]
    at = np.searchsorted(z, [-2.0 - 1e-9, -0.8 - 1e-9, 0.0 - 1e-9, 1.2 - 1e-9, 2.4 - 1e-9])
    dense = case.mean, case.covariance, correlations, case.tau, case.rho
    values = [find_log_ratio(z[i], log_p, *dense, step=step) - 0.5 * z[i] ** 2 for i in at]
    np.testing.assert_allclose(np.diff(log_density[at]), np.diff(values), atol=AT_REST)


@pytest.mark.parametrize("method", ["factors", "1step"])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_one_coefficient_is_exact(method, power):
    """Rows that are multiples of one effect have their likelihoods themselves, whatever their sites and weights."""
    X, y, w = np.array([[1.0], [0.5], [-2.0]]), np.array([3.0, 1.0, 0.0]), np.array([1.0, 2.5, 0.5])
    model = cavity.GLM(likelihoods.Poisson(), prior_variance=2.0, prior_mean=0.0, intercept=False)
    marginal = model.fit(X, y, sample_weight=w, power=power).marginal("x1", X, y=y, method=method)
    x = np.linspace(-8.0, 8.0, 4001)
    density = np.exp(np.sum(w * (y * (x[:, None] * X[:, 0]) - np.exp(x[:, None] * X[:, 0])), axis=1) - 0.25 * x**2)
    cumulative = np.cumsum(density) / np.sum(density) - 0.5 * density / np.sum(density)
    inner = (cumulative > 0.01) & (cumulative < 0.99)
    np.testing.assert_allclose(marginal.cdf(x[inner]), cumulative[inner], atol=PRINTED)


def test_a_density_that_does_not_fall():
    sites = Sites(likelihoods.Logit(), np.ones(1))
    with pytest.raises(ArithmeticError, match="does not fall within 24 standard deviations"):
        correct_density((sites, np.zeros(1), np.ones(1), np.zeros(1), np.full(1, 0.9999)), np.ones(1))
