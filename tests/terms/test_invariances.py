"""Every term in a model: dense algebra, gradients, units, order, duplicated rows, levels, shared null spaces."""

from functools import cache

import numpy as np
import pytest
from scipy import sparse, stats
from support.term_priors import dense_precision
from support.tolerances import AT_REST, OPTIMUM

import cavity
from cavity import likelihoods
from cavity.models.mixed import solution
from cavity.models.mixed.variance_search import FreeTerms, MixedEvidence

pd = pytest.importorskip("pandas")

LEVELS = ["a", "b", "c", "d"]
CHAIN = sparse.csr_array(np.diag([1.0, 2.0, 2.0, 1.0]) - np.diag(np.ones(3), 1) - np.diag(np.ones(3), -1))
GRAPHS = {"Q": (CHAIN + sparse.eye_array(4), LEVELS), "W": {"a": ["b"], "b": ["a", "c"], "c": ["b", "d"], "d": ["c"]}}
TERMS = {  # sds and other parameters at which it is compared
    "s(x, k=8)": {"sd": 0.8},
    "s(x, by=f, k=6)": {"sd(u)": 0.5, "sd(v)": 0.9},
    "s(x, by=z, k=6)": {"sd": 0.6},
    "s(x | g, k=6)": {"sd": 0.4, "sd(intercept)": 0.5, "sd(slope)": 0.7},
    "s(x, period=10, k=7)": {"sd": 0.7},
    "te(x, z, k=5)": {"sd(x)": 0.6, "sd(z)": 0.8},
    "ti(x, z, k=5)": {"sd(x)": 0.6, "sd(z)": 0.8},
    "rw1(x)": {"sd": 0.6},
    "rw2(t)": {"sd": 0.6},
    "rw1(t | g)": {"sd": 0.6, "sd(start)": 0.5},
    "ar1(t)": {"sd": 0.6, "rho": 0.4},
    "seasonal(t, 3)": {"sd": 0.3},
    "matern32(x)": {"sd": 0.6, "lengthscale": 1.5},
    "precision(g, Q)": {"sd": 0.6},
    "icar(g, W)": {"sd": 0.6},
    "bym2(g, W)": {"sd": 0.6, "phi": 0.5},
    "mm(g, h, weights=(1, -1))": {"sd": 0.7},
}


def make_rows(n=150):
    rng = np.random.default_rng(0)
    x, t = rng.choice(np.linspace(0.0, 10.0, 41)[:-1], n), rng.integers(0, 12, n).astype(float)
    labels = {"f": rng.choice(["u", "v"], n), "g": rng.choice(LEVELS, n), "h": rng.choice(LEVELS, n)}
    frame = pd.DataFrame({"x": x, "t": t, "z": rng.uniform(1.0, 2.0, n), **labels})
    return frame.assign(y=rng.poisson(np.exp(0.4 + 0.6 * np.sin(x) + 0.3 * (frame.g == "a") + 0.2 * np.cos(t))))


def make_model(term, likelihood="poisson", **settings):
    arguments = {"prior_variance": 9.0, "graphs": {key: value for key, value in GRAPHS.items() if f", {key})" in term}}
    return cavity.MixedGLM(f"y ~ {term}", likelihood, **(arguments | settings))


def name_of(term):
    """The name of a term, which has no number of splines, period or weights."""
    for option in (", k=", ", period=", ", weights="):
        term = term.split(option)[0]
    return term.removesuffix(")") + ")"


def fit_given(term, frame, parameters=None, **options):
    """The fit with the parameters of the table or others, without a search."""
    arguments = {name_of(term): TERMS.get(term) if parameters is None else parameters}
    return make_model(term, effect_covariances=arguments).fit(frame, tol=1e-11, **options)


@cache
def fit_usual(term):
    """The fit of the rows as they are."""
    return fit_given(term, make_rows())


def assert_equal_fits(one, other, frame, moved):
    """The evidence, and the predictions for a frame in the columns of either."""
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=AT_REST)
    np.testing.assert_allclose(other.predict(moved), one.predict(frame), rtol=AT_REST, atol=AT_REST)


@pytest.mark.parametrize("term", TERMS)
def test_gradients_are_those_of_differences(term):
    """Of the log evidence under constraints, in all free parameters of the term and of the likelihood."""
    likelihood, results = likelihoods.NegativeBinomial(2.0), {}

    def spied(problem, names, threads, options, varies):
        vector = FreeTerms(problem, ("dispersion",), likelihood)
        evidence = MixedEvidence(problem, vector, threads, options)
        x = vector.start(0.5, likelihood) + 0.1 * np.sin(1.0 + np.arange(vector.size))
        steps = 1e-4 * np.eye(len(x))
        pairs = [[evidence.at(vector.unpack(x + s), tol=1e-12).log_evidence for s in (step, -step)] for step in steps]
        results["differences"] = [(up - down) / 2e-4 for up, down in pairs]
        results["gradient"] = vector.gradient(evidence, evidence.at(vector.unpack(x), tol=1e-12))
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solution, "learn_settings", spied)
        with pytest.raises(InterruptedError):
            make_model(term, likelihood).fit(make_rows())
    assert len(results["gradient"]) == len(TERMS[term]) + 1
    np.testing.assert_allclose(results["gradient"], results["differences"], atol=2 * OPTIMUM)


@pytest.mark.parametrize("term", TERMS)
def test_order_of_rows_does_not_matter(term):
    frame = make_rows()
    order = np.random.default_rng(1).permutation(len(frame))
    one, other = fit_usual(term), fit_given(term, frame.iloc[order])
    assert_equal_fits(one, other, frame, frame)


@pytest.mark.parametrize("term", TERMS)
def test_a_row_twice_is_a_row_of_weight_two(term):
    frame = make_rows()
    weights = 1.0 + (np.arange(len(frame)) % 3 == 0)
    one = fit_given(term, frame, sample_weight=weights)
    other = fit_given(term, frame.loc[frame.index.repeat(weights.astype(int))])
    assert_equal_fits(one, other, frame, frame)


@pytest.mark.parametrize("term", TERMS)
def test_units_do_not_matter(term):
    """x in other units and from another origin, where it is a length; t from another origin, where it is a number."""
    frame = make_rows()
    moved = frame.assign(x=1000.0 * frame.x + (0.0 if "period" in term else 7.0), t=frame.t + 12.0)
    if name_of(term) in ("te(x, z)", "ti(x, z)"):
        moved = moved.assign(z=0.01 * frame.z - 3.0)
    parameters = TERMS[term] | ({"lengthscale": 1500.0} if "lengthscale" in TERMS[term] else {})
    one, other = fit_usual(term), fit_given(term.replace("=10,", "=10000,"), moved, parameters)
    assert_equal_fits(one, other, frame, moved)


def test_levels_split_over_columns():
    """Parts of the effect of one level add up to it."""
    frame = make_rows().assign(again=lambda frame: frame.g)
    one = make_model("(1 | g)", effect_covariances={"g": 0.49}).fit(frame, tol=1e-11)
    parts = {"mm(g, again)": {"sd": 0.7}}
    other = make_model("mm(g, again, weights=(0.3, 0.7))", effect_covariances=parts).fit(frame, tol=1e-11)
    assert_equal_fits(one, other, frame, frame)


@pytest.mark.parametrize(
    ("formula", "names"),
    [
        ("x + s(x, k=8)", ("intercept", "x")),
        ("s(t, k=8) + rw2(t)", ("intercept", "s(t) slope")),
        ("s(x, k=6) + te(x, z, k=5)", ("intercept", "s(x) slope", "te(x, z) slope[z]", "te(x, z) slope[x:z]")),
        ("s(x, k=6) + s(x, by=f, k=6)", ("intercept", "f[v]", "s(x) slope", "s(x, by=f) slope[u]")),
        ("s(x, k=6) + s(x | g, k=6)", ("intercept", "s(x) slope")),
    ],
)
@pytest.mark.filterwarnings("ignore:the log evidence has no maximum")
def test_a_null_space_that_terms_share_enters_once(formula, names):
    posterior = make_model(formula).fit(make_rows())
    assert posterior.converged
    assert posterior.coefficient_names == names
    assert np.all(np.isfinite(posterior.predict(make_rows())))


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("rw3(t)", "there is no function 'rw3'"),
        ("s(x, period=0)", r"period must be in \(0, inf\), got 0"),
        ("seasonal(t, 0)", "period must be at least 2, got 0"),
        ("precision(g, A)", "'A'"),
    ],
)
def test_formulas_that_are_refused(formula, message):
    with pytest.raises(ValueError, match=message):
        make_model(formula, graphs={}).fit(make_rows())


@pytest.mark.parametrize("term", TERMS)
def test_gaussian_fits_are_those_of_dense_algebra(term):
    """Evidence and predictions from N x N matrices: the prior on an orthonormal basis of the subspace of a term."""
    frame = make_rows(80)
    arguments = {name_of(term): TERMS[term]}
    model = make_model(term, likelihoods.Gaussian(0.5), effect_covariances=arguments)
    posterior = model.fit(frame)
    rows, _, extra = posterior._linear_rows(frame)
    (built,) = posterior._reader.structured
    np.testing.assert_array_equal(extra, 0.0)
    free = [parameter.free(TERMS[term][parameter.name]) for parameter in built.prior.parameters]
    P, _ = dense_precision(built.prior, free)
    A = built.prior.constraints
    V = np.eye(len(P)) if A is None else np.linalg.svd(A)[2][len(A) :].T
    X, Z = np.split(rows.toarray(), [len(posterior.coefficient_names)], axis=1)
    latent = 9.0 * X @ X.T + Z @ V @ np.linalg.solve(V.T @ P @ V, V.T @ Z.T)
    covariance, y = latent + 0.5 * np.eye(len(frame)), frame.y.to_numpy(float)
    expected = stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)
    assert posterior.log_evidence == pytest.approx(expected, abs=AT_REST)
    mean, variance = posterior.predict(frame)
    gain = np.linalg.solve(covariance, latent).T
    np.testing.assert_allclose(mean, gain @ y, atol=AT_REST)
    np.testing.assert_allclose(variance, np.diagonal(latent - gain @ latent), atol=AT_REST)
