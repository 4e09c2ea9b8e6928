"""Columns by their names: another order is put right, missing and unknown ones are refused, files keep the names."""

import numpy as np
import pytest
from support.glms import GLM
from support.saved_files import load_changed
from support.tolerances import AT_REST, SOLVES

import cavity
from cavity import covariances, likelihoods

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.normal(50.0, 9.0, 40), "dose": RNG.normal(size=40), "smokes": RNG.random(40) < 0.4})
X = FRAME.to_numpy(dtype=float)
LABEL = (FRAME["dose"] + RNG.normal(size=40) > 0).to_numpy()
REAL = X @ [0.1, 1.0, -0.5] + 0.1 * RNG.normal(size=40)
RBF = covariances.RBF(1.0, [9.0, 1.0, 1.0])
FITS = {
    "glm": lambda X: GLM(likelihoods.Probit()).fit(X, LABEL),
    "diagonal glm": lambda X: GLM(likelihoods.Probit(), approximation="diagonal").fit(X, LABEL),
    "glm by adf": lambda X: GLM(likelihoods.Probit()).fit(X, LABEL, method="adf"),
    "linear": lambda X: cavity.LinearRegression(intercept=False).fit(X, REAL),
    "logistic": lambda X: cavity.LogisticRegression(intercept=False).fit(X, LABEL),
    "gp": lambda X: cavity.GaussianProcess(RBF).fit(X, REAL, learn=False),
    "gp classes": lambda X: cavity.GaussianProcess(RBF, likelihoods.Probit()).fit(X, LABEL, learn=False),
    "streaming": lambda X: cavity.StreamingGP(RBF).fit(X, REAL, learn=False),
    "mixture": lambda X: cavity.GaussianMixture(2, covariance="diag").fit(X),
    "clutter": lambda X: cavity.Clutter(clutter_variance=1e4).fit(X),
}
NEW = FRAME[:7]


def rows_of(model):
    """The methods of a posterior that take rows, as functions of posterior and rows."""
    y = LABEL[:7] if "glm" in model or model in ("logistic", "gp classes") else REAL[:7]
    if model == "mixture":
        return [lambda p, X: p.log_density(X), lambda p, X: p.responsibilities(X), lambda p, X: p.predict(X)]
    if model == "clutter":
        return [lambda p, X: p.log_density(X), lambda p, X: p.clutter_probability(X, fitted=False)]
    methods = [lambda p, X: p.predict_proba(X)] if model == "logistic" else [lambda p, X: p.predict(X)]
    if "glm" in model or model == "gp classes":
        methods += [lambda p, X: p.log_density(X, y), lambda p, X: p.predict_proba(X)]
    if model in ("gp", "streaming"):
        methods += [lambda p, X: p.log_density(X, y), lambda p, X: p.expected(X)]
    if model in ("gp", "gp classes", "streaming"):
        methods += [lambda p, X: p.predict_covariance(X)[1], lambda p, X: p.sample(X, 2, 0)]
    return methods


@pytest.mark.parametrize("model", FITS)
def test_columns_are_found_by_name(model, tmp_path):
    posterior = FITS[model](FRAME)
    assert posterior.columns == ("age", "dose", "smokes")
    posterior.save(tmp_path / "p.npz")
    turned, polars = NEW[["smokes", "age", "dose"]], pytest.importorskip("polars")
    for item in (posterior, cavity.load(tmp_path / "p.npz")):
        assert item.columns == posterior.columns
        for method in rows_of(model):
            expected = method(item, NEW.to_numpy(dtype=float))  # by position
            for rows in (NEW, turned, polars.from_pandas(turned), polars.from_pandas(turned).to_arrow()):
                np.testing.assert_array_equal(method(item, rows), expected)
            with pytest.raises(ValueError, match="columns of the fit: 'dose' missing; there is 'smokes', 'age'"):
                method(item, turned[["smokes", "age"]])
            np.testing.assert_array_equal(method(item, NEW.assign(height=1.0)), expected)
            with pytest.raises(ValueError, match="but .* has two columns 'age'"):
                method(item, NEW[["age", "age", "dose", "smokes"]])


def state(posterior):
    """Numbers that tell posteriors apart."""
    return posterior.mean if posterior.kind != "streaming_gp" else posterior.log_bound


@pytest.mark.parametrize("model", [name for name in FITS if name not in ("linear", "logistic")])
def test_updates_find_columns_by_name(model):
    y = () if model in ("mixture", "clutter") else (REAL[:7] if model in ("gp", "streaming") else LABEL[:7],)
    turned = NEW[["smokes", "age", "dose"]]
    expected = FITS[model](X).update(NEW.to_numpy(dtype=float), *y)
    posterior = FITS[model](FRAME).update(turned, *y)
    np.testing.assert_array_equal(state(posterior), state(expected))
    assert posterior.columns == ("age", "dose", "smokes")
    assert expected.columns is None
    learnt = FITS[model](X).update(NEW, *y)  # names come with the first data frame
    assert learnt.columns == ("age", "dose", "smokes")
    before = FITS[model](FRAME)
    stored = state(before)
    with pytest.raises(ValueError, match="'dose' missing"):
        before.update(turned[["smokes", "age"]], *y)
    np.testing.assert_array_equal(state(before), stored)


def test_merged_posteriors_are_of_the_same_columns():
    turned = FRAME[["smokes", "age", "dose"]]
    model = cavity.GaussianMixture(1).with_defaults(FRAME)
    first, second = model.fit(FRAME[:20]), model.fit(FRAME[20:])
    assert first.merge(second).columns == first.forget(0.5).columns == ("age", "dose", "smokes")
    assert model.fit(X[:20]).merge(second).columns == ("age", "dose", "smokes")
    with pytest.raises(ValueError, match="other must be of the columns 'age', 'dose', 'smokes', in this order, got"):
        first.merge(model.fit(turned[20:]))
    model = cavity.StreamingGP(RBF, inducing=X[:5])
    states = [model.fit(rows[part], REAL[part], learn=False) for rows in (FRAME, turned, X) for part in (slice(0, 20),)]
    assert states[2].copy().merge(states[0]).columns == states[0].copy().merge(states[2]).columns == states[0].columns
    with pytest.raises(ValueError, match="other must be of the columns 'age', 'dose', 'smokes', in this order, got"):
        states[0].merge(states[1])
    assert states[0].n_samples == 20


def test_streams_of_data_frames():
    turned = FRAME[["smokes", "age", "dose"]]
    model = cavity.GaussianMixture(1, covariance="diag")
    expected = model.fit_stochastic(iter([X[:20], X[20:]]), n_samples=40)
    posterior = model.fit_stochastic(iter([FRAME[:20], turned[20:]]), n_samples=40)
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert posterior.columns == ("age", "dose", "smokes")
    assert model.fit_stochastic(FRAME).columns == ("age", "dose", "smokes")
    with pytest.raises(ValueError, match="minibatch 1 of X must have the columns of the fit: 'dose' missing"):
        model.fit_stochastic(iter([FRAME[:20], FRAME[["age", "smokes"]]]), n_samples=40)
    state = cavity.StreamingGP(RBF).fit(FRAME[:20], REAL[:20], learn=False)
    single = state.copy().update(turned[20:21], REAL[20:21])  # one row has a way of its own
    np.testing.assert_array_equal(single.predict(X)[0], state.update(FRAME[20:21], REAL[20:21]).predict(X)[0])


def test_initial_means_are_of_the_same_columns():
    means = FRAME[["smokes", "age", "dose"]].astype(float)[3:5]
    model = cavity.GaussianMixture(2, covariance="diag")
    for fit in (model.fit, model.fit_stochastic):
        result = fit(FRAME, initial_means=means)
        np.testing.assert_array_equal(result.mean, fit(X, initial_means=X[3:5]).mean)
        with pytest.raises(ValueError, match="initial_means must have the columns of the fit: 'dose' missing"):
            fit(FRAME, initial_means=means[["smokes", "age"]])


def test_a_selection_keeps_names():
    best = cavity.select_components(cavity.GaussianMixture(1, covariance="diag"), FRAME, [1, 2]).best
    assert best.columns == ("age", "dose", "smokes")


def test_files_from_before_there_were_names(tmp_path):
    def remove_names(settings, _):
        for name in ("columns", "classes", "intercept", "has_offset"):
            settings.pop(name, None)

    for model, fit in FITS.items():
        posterior = fit(FRAME)
        old = load_changed(posterior, tmp_path, remove_names)
        assert old.columns is None
        method = rows_of(model)[0]
        np.testing.assert_array_equal(method(old, NEW), method(posterior, NEW))


def test_weights_of_scaled_columns_take_the_columns_as_they_are(tmp_path):
    """The fields describe what is done to rows; a fit of rows done so by hand must say the same."""
    from dataclasses import replace

    centre, spread = X.mean(axis=0), X.std(axis=0)
    design = np.column_stack([np.ones(40), (X - centre) / spread])
    turned = NEW[["smokes", "age", "dose"]]
    for approximation in ("full", "diagonal"):
        fit = GLM(likelihoods.Probit(), approximation=approximation).fit(design, LABEL)
        described = {"columns": tuple(FRAME), "centre": centre, "spread": spread, "intercept": True}
        posterior = replace(fit, **described, classes=("no", "yes"))
        posterior.save(tmp_path / "p.npz")
        for item in (posterior, cavity.load(tmp_path / "p.npz")):
            assert (item.classes, item.intercept) == (("no", "yes"), True)
            for rows in (NEW, turned, NEW.to_numpy(dtype=float)):
                np.testing.assert_allclose(item.predict(rows), fit.predict(design[:7]), rtol=SOLVES)
            np.testing.assert_allclose(item.predict_proba(turned), fit.predict_proba(design[:7]), rtol=SOLVES)
            updated = item.update(turned, LABEL[:7])
            np.testing.assert_allclose(updated.mean, fit.update(design[:7], LABEL[:7]).mean, rtol=AT_REST, atol=SOLVES)
            assert (updated.columns, updated.classes, updated.intercept) == (tuple(FRAME), ("no", "yes"), True)
            np.testing.assert_array_equal(updated.centre, centre)
            with pytest.raises(ValueError, match="X must have 3 columns like the data of the fit, got 4"):
                item.predict(design)
    from scipy.sparse import csr_array

    sparse = csr_array(NEW.to_numpy(dtype=float))
    np.testing.assert_allclose(posterior.predict(sparse), fit.predict(design[:7]), rtol=SOLVES)
    assert not posterior.centre.flags.writeable
    with pytest.raises(OverflowError, match="the latent value of row 1 of X leaves the range of float64"):
        replace(posterior, spread=np.full(3, 1e-150)).predict([[50.0, 0.0, 0.0], [1e200, 0.0, 0.0]])
    with pytest.raises(OverflowError, match="the latent value of row 1 of X leaves the range of float64"):
        fit.predict([[1.0, 1.0, 1.0, 1.0], [1.0, 1e200, 0.0, 0.0]])
    with pytest.raises(OverflowError, match="X: columns divided by spread"):
        replace(posterior, spread=np.full(3, 1e-150)).update([[1e200, 0.0, 0.0]], [1])


def test_rows_out_of_range_are_named():
    for fit in (
        cavity.LinearRegression(intercept=False).fit(X, REAL),
        cavity.LogisticRegression(intercept=False).fit(X, LABEL),
    ):
        method = fit.predict if fit.kind == "linear_regression" else fit.predict_proba
        with pytest.raises(OverflowError, match="the latent value of row 1 of X leaves the range of float64"):
            method([[1.0, 1.0, 1.0], [1e200, 0.0, 0.0]])


def test_offsets_are_remembered(tmp_path):
    model = GLM(likelihoods.Poisson())
    for offset, has in ((None, False), (np.zeros(40), False), (pd.Series(np.ones(40)), True)):
        posterior = model.fit(X / 50, LABEL, offset=offset)
        posterior.save(tmp_path / "p.npz")
        assert cavity.load(tmp_path / "p.npz").has_offset is has
    assert model.fit(X / 50, LABEL).update(X / 50, LABEL, offset=np.ones(40)).has_offset


TABLE = FRAME.assign(died=np.where(LABEL, "yes", "no"), w=RNG.uniform(1.0, 2.0, 40), log_pop=0.1 * RNG.normal(size=40))
BY_NAME = {
    "glm": lambda X, y, **more: GLM(likelihoods.Probit(), prior_variance=1e-4).fit(X, y, **more),
    "gp": lambda X, y, **more: cavity.GaussianProcess(RBF, likelihoods.Probit()).fit(X, y, learn=False, **more),
    "streaming": lambda X, y, **more: cavity.StreamingGP(RBF, likelihoods.Probit()).fit(X, y, learn=False, **more),
}


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
@pytest.mark.parametrize("model", BY_NAME)
def test_y_weights_and_offsets_by_name(model, library, tmp_path):
    polars = pytest.importorskip("polars")
    made = {"pandas": lambda f: f, "polars": polars.from_pandas, "arrow": lambda f: polars.from_pandas(f).to_arrow()}
    table, new = made[library](TABLE), made[library](TABLE[["log_pop", "smokes", "died", "age", "dose", "w"]][:7])
    names = {"sample_weight": "w", "offset": "log_pop"}
    columns = {name: TABLE[column].to_numpy() for name, column in names.items()}
    posterior, plain = BY_NAME[model](table, "died", **names), BY_NAME[model](X, LABEL, **columns)
    np.testing.assert_array_equal(posterior.mean, plain.mean)
    posterior.save(tmp_path / "p.npz")
    offset = columns["offset"][:7]
    for item in (posterior, cavity.load(tmp_path / "p.npz")):
        assert item.columns == ("age", "dose", "smokes")
        assert item.roles == {"y": "died", **names}
        np.testing.assert_array_equal(item.predict(new), plain.predict(X[:7], offset=offset))
        np.testing.assert_array_equal(item.predict(new, offset=0 * offset), plain.predict(X[:7], offset=0 * offset))
        np.testing.assert_array_equal(item.predict_proba(new), plain.predict_proba(X[:7], offset=offset))
        expected = plain.log_density(X[:7], LABEL[:7], offset=offset)
        np.testing.assert_array_equal(item.log_density(new, "died"), expected)
    more = {name: values[:7] for name, values in columns.items()}
    expected = BY_NAME[model](X, LABEL, **columns).update(X[:7], LABEL[:7], **more)
    updated = posterior.update(new, "died")  # with the weights and the offsets of the table
    np.testing.assert_array_equal(state(updated), state(expected))
    assert updated.roles == {"y": "died", **names}


def test_names_that_are_not_there():
    fit, posterior = BY_NAME["glm"], BY_NAME["glm"](TABLE, "died", sample_weight="w", offset="log_pop")
    for call, message in (
        (lambda: fit(TABLE, "dead"), "y='dead': X has no column 'dead'; it has 'age', 'dose', 'smokes', 'died', 'w'"),
        (lambda: fit(TABLE, LABEL, offset="pop"), "offset='pop': X has no column 'pop'"),
        (
            lambda: fit(X, "died"),
            r"y='died' is the name of a column, but X \(ndarray\) has none: give a data frame as X",
        ),
        (lambda: fit(X, LABEL, sample_weight="w"), "sample_weight='w' is the name of a column, but X"),
        (lambda: fit(TABLE["age"], "died"), r"y='died' is the name of a column, but X \(Series\) has none"),
        (lambda: fit(TABLE[["age", "died", "died"]], "died"), "y='died': X has two columns 'died'"),
        (lambda: posterior.predict(FRAME), "X must have the column 'log_pop', the offset of the fit, or give offset"),
        (lambda: posterior.predict(TABLE.drop(columns="age")), "columns of the fit: 'age' missing"),
        (lambda: posterior.update(TABLE, "dead"), "y='dead': X has no column 'dead'"),
        (lambda: posterior.log_density(X, "died"), "y='died' is the name of a column, but X"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_other_names_and_pairs():
    table = pd.DataFrame({("a", "x"): X[:, 1], ("a", "y"): X[:, 2], ("b", "z"): REAL})
    posterior = cavity.LinearRegression(intercept=False).fit(table, ("b", "z"))
    assert posterior.roles == {"y": "('b', 'z')"}
    np.testing.assert_array_equal(posterior.mean, cavity.LinearRegression(intercept=False).fit(X[:, 1:], REAL).mean)
    table = pd.DataFrame({0: X[:, 1], 1: REAL})
    assert cavity.LinearRegression(intercept=False).fit(table, 1).columns == ("0",)
    bounds = pd.DataFrame({"low": REAL - 1.0, "high": REAL + 1.0, "dose": X[:, 1]})
    posterior = GLM(likelihoods.Interval(), prior_variance=1.0).fit(bounds, ["low", "high"])
    assert (posterior.columns, posterior.roles) == (("dose",), {"y": ("low", "high")})
    assert np.isfinite(posterior.log_density(bounds, ["low", "high"])).all()
    two = TABLE[:2][["dose", "died"]]
    assert GLM(likelihoods.Probit()).fit(two[["dose"]], ["no", "yes"]).classes == ("no", "yes")  # labels of two rows


def test_inducing_points_of_a_frame_go_by_name():
    model = cavity.StreamingGP(RBF, inducing=FRAME[["smokes", "age", "dose"]].astype(float)[:5])
    turned = cavity.covariances.RBF(1.0, [9.0, 1.0, 1.0])
    plain = cavity.StreamingGP(turned, inducing=X[:5][:, [2, 0, 1]]).fit(X[:, [2, 0, 1]], REAL, learn=False)
    posterior = model.fit(FRAME, REAL, learn=False)
    assert posterior.columns == ("smokes", "age", "dose")
    np.testing.assert_array_equal(posterior.predict(NEW), plain.predict(X[:7][:, [2, 0, 1]]))
    with pytest.raises(ValueError, match="columns of the fit: 'dose' missing"):
        model.fit(FRAME[["smokes", "age"]], REAL)
