"""Structured terms in mixed models: constraints, evidences, searches, predictions, by a term of one's own."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse
from support.tolerances import AT_REST, LOSSES, OPTIMUM, ROOT_EPS, SOLVES

import cavity
from cavity.terms import StructuredTerm
from cavity.terms.contract import BuiltTerm, Parameter, ScaledStructures

# explosions in coal mines by year, 1851 to 1962: R. G. Jarrett, "A note on the intervals between coal-mining
# disasters", Biometrika 66, 1979
COAL = np.array(
    list(
        map(
            int,
            "4541043406334026335453144155342522342132211113001011003103220111010100021000110233112111123300014000100000100101",
        )
    )
)
YEARS = np.arange(1851.0, 1963.0)
ONES = np.ones((len(COAL), 1))


@dataclass(frozen=True, slots=True, eq=False)
class Walk(StructuredTerm):
    """A random walk at equal steps with dense matrices, sd as the geometric mean of those of its states."""

    column: str
    order: int

    @property
    def name(self):
        return f"walk({self.column})"

    @property
    def variables(self):
        return (self.column,)

    def build(self, table):
        return BuiltWalk(self, np.unique(table[self.column]))


class BuiltWalk(BuiltTerm):
    def __init__(self, term, times):
        self.name, self.variables, self.times, self.size = term.name, term.variables, times, len(times)
        self.order, n = term.order, len(times)
        differences = np.diff(np.eye(n), n=term.order, axis=0)
        S = differences.T @ differences
        N = np.stack([np.ones(n), times - times.mean()][: term.order])
        scale = np.exp(np.mean(np.log(np.diagonal(np.linalg.pinv(S)))))
        eigenvalues, _ = np.linalg.eigh(S)
        constant = np.sum(np.log(eigenvalues[term.order :])) + np.linalg.slogdet(N @ N.T)[1]  # A = N'
        rows, columns = np.tril_indices(n)
        self.prior = ScaledStructures(
            (Parameter("sd"),), rows, columns, S[rows, columns][None], N, (0,), (scale,), (n - term.order,), constant
        )

    def design(self, table, levels="known"):
        states = np.searchsorted(self.times, table[self.variables[0]])
        return sparse.csr_array((np.ones(len(states)), (np.arange(len(states)), states)), (len(states), self.size))

    def fixed_columns(self, table):
        centred = (np.asarray(table[self.variables[0]]) - 1906.5) / 100.0
        return {f"{self.name} slope": centred} if self.order == 2 else {}


def fit(order, sd=None, **options):
    """The fit of a walk to the counts."""
    values = None if sd is None else {"walk(year)": sd**2}
    model = cavity.MixedGLM([Walk("year", order)], "poisson", prior_variance=100.0, effect_covariances=values)
    return model.fit(ONES, COAL, groups={"year": YEARS}, **options)


@pytest.mark.parametrize(
    ("order", "sd", "log_evidence", "fixed", "f", "f_sd"),
    [
        (
            2,
            0.5,
            -179.9655534179,
            [0.32712837, -1.83278226],
            [1.12225264, 1.21129574, 0.01629681, -0.94045087],
            [0.23451612, 0.12421989, 0.18192595, 0.46616299],
        ),
        (2, 0.7, -179.7642374608, [0.31197702, -1.86053209], None, None),
        (
            1,
            0.5,
            -177.6886705961,
            None,
            [1.16514762, 1.22414619, 0.05905941, -0.61982946],
            [0.24760786, 0.18141590, 0.24167471, 0.38669045],
        ),
    ],
)
def test_evidence_with_improper_terms_is_that_of_dense_algebra(order, sd, log_evidence, fixed, f, f_sd):
    """Values of a covariance form and a precision form of EP by other code, to ten digits."""
    posterior = fit(order, sd, tol=1e-11)
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=AT_REST)
    if fixed is not None:
        np.testing.assert_allclose(posterior.mean, fixed, atol=ROOT_EPS)
    if f is not None:
        result = [0, 20, 55, 111]
        mean, variance = posterior.predict(ONES[result], groups={"year": YEARS[result]})
        np.testing.assert_allclose(mean, f, atol=ROOT_EPS)  # eight digits are printed
        np.testing.assert_allclose(np.sqrt(variance), f_sd, atol=ROOT_EPS)


def test_the_sd_of_largest_evidence_is_found():
    posterior = fit(2)
    assert posterior.hyperparameters.names == ("sd(walk(year))",)
    assert posterior.hyperparameters.values[0] == pytest.approx(0.706545, abs=OPTIMUM)
    assert posterior.log_evidence == pytest.approx(-179.76407426, abs=ROOT_EPS)
    values = posterior.model.effect_covariances["walk(year)"]
    assert values == {"sd": posterior.hyperparameters.values[0]}


def test_moments_stay_on_the_subspace():
    """Effects obey their constraints: in the mean, in covariances of pairs, and in draws."""
    posterior = fit(2, 0.5)
    effects, A = posterior._effects, posterior._effects.constraints
    covariance = effects.covariance(np.arange(len(effects.mean)))
    np.testing.assert_allclose(A @ effects.mean, 0.0, atol=LOSSES)
    np.testing.assert_allclose(A @ covariance, 0.0, atol=AT_REST)
    np.testing.assert_allclose(np.diagonal(covariance), effects.variance, atol=SOLVES)
    draws = effects.sample(50, np.random.default_rng(0))
    np.testing.assert_allclose(draws @ A.T, 0.0, atol=AT_REST)
    rows = sparse.csr_array(np.eye(len(effects.mean))[[3, 40]] + np.eye(len(effects.mean))[[90, 7]])
    variance = effects.predict(rows)[1]
    np.testing.assert_allclose(variance, np.diagonal(rows @ covariance @ rows.T), atol=SOLVES)


def test_an_update_keeps_the_constraints():
    """Gaussian noise: two parts of the rows one after the other are all rows at once."""
    model = cavity.MixedGLM(
        [Walk("year", 2)],
        cavity.likelihoods.Gaussian(1.5),
        prior_variance=100.0,
        effect_covariances={"walk(year)": {"sd": 0.8}},
    )
    y = COAL.astype(float)
    both = model.fit(np.ones((224, 1)), np.tile(y, 2), groups={"year": np.tile(YEARS, 2)})
    first = model.fit(ONES, y, groups={"year": YEARS}).update(ONES, y, groups={"year": YEARS})
    assert first.log_evidence == pytest.approx(both.log_evidence, abs=ROOT_EPS)
    np.testing.assert_allclose(first.mean, both.mean, atol=AT_REST)
    np.testing.assert_allclose(first._effects.variance, both._effects.variance, atol=AT_REST)
    assert first.effective_parameters == pytest.approx(both.effective_parameters, abs=ROOT_EPS)


def test_leaving_rows_out_is_exact_with_gaussian_noise():
    """The density of a row given all others, against a fit without it."""
    model = cavity.MixedGLM(
        [Walk("year", 1)],
        cavity.likelihoods.Gaussian(1.5),
        prior_variance=100.0,
        effect_covariances={"walk(year)": {"sd": 0.8}},
    )
    y, row = COAL.astype(float), 17
    posterior = model.fit(ONES, y, groups={"year": YEARS})
    weights = np.ones(len(y))
    weights[row] = 0.0
    without = model.fit(ONES, y, groups={"year": YEARS}, sample_weight=weights)
    density = without.log_density(without.rows(ONES[[row]], {"year": YEARS[[row]]}), y[[row]])
    assert posterior.loo_log_density[row] == pytest.approx(density[0], abs=AT_REST)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"sd": -1.0}, r"effect_covariances\['walk\(year\)'\]\['sd'\] must be"),
        ({"rho": 0.5}, "must have values of sd, got one of 'rho'"),
        (np.eye(2), "must be a dict with some of sd"),
    ],
)
def test_bad_settings(setting, message):
    model = cavity.MixedGLM([Walk("year", 1)], "poisson", effect_covariances={"walk(year)": setting})
    with pytest.raises(ValueError, match=message):
        model.fit(ONES, COAL, groups={"year": YEARS})


def test_a_term_stands_once():
    with pytest.raises(ValueError, match=r"must have each term once, got walk\(year\) twice"):
        cavity.MixedGLM([Walk("year", 1), Walk("year", 2)], "poisson").fit(ONES, COAL, groups={"year": YEARS})


def test_a_term_of_ones_own_is_not_saved(tmp_path):
    with pytest.raises(NotImplementedError, match=r"the term walk\(year\) is one of your own"):
        fit(1, 0.5).save(tmp_path / "walk")
