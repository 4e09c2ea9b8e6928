"""A mean by formula: against the equations of Rasmussen and Williams, section 2.7, and the same model by columns."""

import numpy as np
import pytest
from support.tolerances import AT_REST, EXPANSION, SOLVES

import cavity
from cavity.covariances import RBF, Linear

pd = pytest.importorskip("pandas")
pytest.importorskip("formulae")

RNG = np.random.default_rng(1)
N = 60
TABLE = pd.DataFrame({"t": np.sort(RNG.uniform(0, 10, N)), "age": RNG.normal(50, 10, N)}, index=range(5, 5 + N))
TABLE["site"] = RNG.choice(["u", "v", "w"], N)
TABLE["y"] = 100 + np.sin(TABLE["t"]) + 0.2 * TABLE["age"] + 3.0 * (TABLE["site"] == "v") + 0.3 * RNG.normal(size=N)
TABLE["label"] = np.where(TABLE["age"] + 10 * RNG.normal(size=N) > 50, "old", "young")
H = np.column_stack([np.ones(N), TABLE["age"], TABLE["site"] == "v", TABLE["site"] == "w"])
COVARIANCE, NOISE, FORMULA = RBF(2.0, 1.5, columns=[0]), 0.09, "age + C(site)"
MODEL = cavity.GaussianProcess(COVARIANCE, cavity.likelihoods.Gaussian(NOISE), mean=FORMULA)
ROWS = TABLE.drop(columns="label")


def fit():
    return MODEL.fit(ROWS, "y", learn=False)


def term_of(posterior):
    return posterior.model.covariance.parts[-1]


def test_coefficients_and_predictions_are_those_of_the_equations():
    posterior, new = fit(), ROWS.iloc[::7]
    assert posterior.columns == ("t", "age", *(f"mean: {name}" for name in ("intercept", "age", "site[v]", "site[w]")))
    B, b = np.diag(term_of(posterior).variance), np.array([posterior.model.mean, 0.0, 0.0, 0.0])
    K = COVARIANCE.gram(TABLE[["t"]].to_numpy()) + NOISE * np.eye(N)
    precision = H.T @ np.linalg.solve(K, H) + np.linalg.inv(B)
    beta = np.linalg.solve(precision, H.T @ np.linalg.solve(K, TABLE["y"]) + np.linalg.solve(B, b))  # below (2.41)
    table = posterior.summary().below
    np.testing.assert_allclose(table.columns["mean"], beta, rtol=AT_REST)
    np.testing.assert_allclose(table.columns["sd"], np.sqrt(np.diag(np.linalg.inv(precision))), rtol=AT_REST)
    cross = COVARIANCE.cross(TABLE[["t"]].to_numpy(), new[["t"]].to_numpy())
    R = H[::7].T - H.T @ np.linalg.solve(K, cross)
    mean = H[::7] @ beta + cross.T @ np.linalg.solve(K, TABLE["y"] - H @ beta)  # (2.41)
    variance = (
        2.0 - np.sum(cross * np.linalg.solve(K, cross), axis=0) + np.sum(R * np.linalg.solve(precision, R), axis=0)
    )
    np.testing.assert_allclose(posterior.predict(new)[0], mean, rtol=SOLVES)
    np.testing.assert_allclose(posterior.predict(new)[1], variance, rtol=AT_REST)
    full = K + H @ B @ H.T
    rest = TABLE["y"] - H @ b
    evidence = -0.5 * (rest @ np.linalg.solve(full, rest) + np.linalg.slogdet(full)[1] + N * np.log(2 * np.pi))
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=AT_REST)


def test_the_prior_is_that_of_a_glm():
    posterior, glm = fit(), cavity.GLM("y ~ age + C(site)", "gaussian").fit(TABLE)
    np.testing.assert_allclose(term_of(posterior).variance, glm.model.prior_variance, rtol=SOLVES)
    np.testing.assert_allclose(posterior.model.mean, glm.model.prior_mean[0], rtol=SOLVES)
    no_intercept = cavity.GaussianProcess(COVARIANCE, mean="0 + age").fit(TABLE[["t", "age", "y"]], "y", learn=False)
    assert no_intercept.model.mean == 0.0
    assert no_intercept.summary().below.names == ("age",)


def test_by_expectation_propagation_it_is_the_model_of_these_columns():
    table = TABLE[["t", "age", "label"]]
    posterior = cavity.GaussianProcess("rbf", "logit", mean="age").fit(table, "label", learn=False)
    columns = np.column_stack([TABLE[["t", "age"]], np.ones(N), TABLE["age"]])
    covariance = RBF(*posterior.model.covariance.parts[0].parameters.values(), columns=[0, 1])
    covariance += Linear(term_of(posterior).variance, columns=[2, 3], fixed="variance")
    reference = cavity.GaussianProcess(covariance, "logit").fit(columns, TABLE["label"], learn=False)
    assert posterior.log_evidence == reference.log_evidence
    np.testing.assert_array_equal(posterior.predict_proba(table), reference.predict_proba(columns))


def test_streams_have_the_coefficients_of_all_rows():
    stream = cavity.StreamingGP(COVARIANCE, MODEL.likelihood, mean=FORMULA, tolerance=1e-9, jitter=1e-12)
    state = stream.fit(ROWS.iloc[::2], "y", learn=False)
    second = cavity.GaussianProcess(state.model.covariance, MODEL.likelihood, mean=state.model.mean)
    state.update(ROWS.iloc[1::2].drop(columns="site").assign(site=ROWS["site"].iloc[1::2]), "y")
    columns = np.column_stack([TABLE[["t", "age"]], H])
    exact = second.fit(columns, TABLE["y"], learn=False)
    mean, sd = state.predict(ROWS)[0], np.sqrt(exact.predict(columns)[1])
    assert np.max(np.abs(mean - exact.predict(columns)[0]) / sd) < EXPANSION
    table, full = state.summary().below, fit().summary().below
    assert table.names == full.names
    assert np.max(np.abs(table.columns["mean"] - full.columns["mean"]) / full.columns["sd"]) < 0.1  # another prior


@pytest.mark.parametrize("model", [MODEL, cavity.StreamingGP(COVARIANCE, MODEL.likelihood, mean=FORMULA)])
def test_missing_values_updates_and_files(model, tmp_path):
    gaps = ROWS.copy()
    gaps.iloc[[3, 4], 2], gaps.iloc[5, 0] = None, np.nan
    complete = np.setdiff1d(np.arange(N), [3, 4, 5])
    posterior = model.fit(gaps, "y", missing="drop", learn=False)
    reference = model.fit(ROWS.iloc[complete], "y", learn=False)
    assert posterior.dropped.n_rows == 3
    frame = posterior.predict(gaps, missing="nan", as_frame=True)
    assert (frame.index.tolist(), np.flatnonzero(frame["mean"].isna()).tolist()) == (ROWS.index.tolist(), [3, 4, 5])
    np.testing.assert_array_equal(frame["mean"].iloc[complete], reference.predict(ROWS.iloc[complete])[0])
    one_site = ROWS[ROWS["site"] == "w"].drop(columns="y")
    np.testing.assert_allclose(posterior.predict(one_site)[0], posterior.predict(ROWS)[0][ROWS["site"] == "w"], SOLVES)
    posterior.save(tmp_path / "posterior.npz")
    loaded = cavity.load(tmp_path / "posterior.npz")
    np.testing.assert_array_equal(loaded.predict(ROWS)[0], posterior.predict(ROWS)[0])
    assert str(loaded.summary()) == str(posterior.summary())
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    np.testing.assert_allclose(posterior.predict(tmp_path / "rows.csv")[0], posterior.predict(ROWS)[0], rtol=SOLVES)
    before = posterior.n_samples
    assert posterior.update(ROWS.iloc[:3], "y").n_samples == before + 3


@pytest.mark.parametrize(
    ("attempt", "error", "message"),
    [
        (lambda: cavity.GaussianProcess(mean="age + (1 | site)"), ValueError, "mean must have columns of X"),
        (lambda: cavity.GaussianProcess(mean="agee").fit(ROWS, "y"), ValueError, "did you mean 'age'"),
        (lambda: cavity.GaussianProcess(mean="offset(t)").fit(ROWS, "y"), ValueError, "offsets in the argument offset"),
        (
            lambda: cavity.GaussianProcess(mean="linaer").fit(H, TABLE["y"]),
            ValueError,
            "mean must be a number, coefficients, 'constant' or 'linear' where X has no names, got 'linaer'",
        ),
        (lambda: cavity.GaussianProcess(mean="site").fit(ROWS[["site", "y"]], "y"), ValueError, "columns of numbers"),
        (lambda: cavity.StreamingGP(mean="age", inducing=[[1.0]]), ValueError, "inducing must be None"),
        (lambda: cavity.StreamingGP(mean="constant"), ValueError, "mean must be a number, coefficients or a formula"),
        (lambda: fit().predict(ROWS.assign(site="x")), ValueError, "X must have categories of the fit"),
        (lambda: fit().predict(ROWS.drop(columns="age")), ValueError, "'age' missing"),
        (lambda: fit().predict([[1.0, 2.0]]), TypeError, "X must be a data frame"),
    ],
)
def test_what_does_not_fit_is_named(attempt, error, message):
    with pytest.raises(error, match=message):
        attempt()
