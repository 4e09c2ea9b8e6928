"""Mixed models: golden values, the dense model of the same prior, exact marginal likelihoods, laws, bad input."""

import warnings

import numpy as np
import pytest
from scipy import stats
from support.tolerances import AT_REST, EARLY, INTEGRAL, OPTIMUM, ROOT_EPS

import cavity
from cavity import likelihoods, priors
from cavity.models.mixed import solution
from cavity.models.mixed.free_parameters import FreeCovariance
from cavity.models.mixed.variance_search import FreeTerms, MixedEvidence

RNG = np.random.default_rng(0)
N = 150
GROUPS = {"g": RNG.integers(7, size=N), "h": np.array(["a", "b", "c", "d"])[RNG.integers(4, size=N)]}
X = np.column_stack([np.ones(N), RNG.normal(size=N)])
EFFECTS = [cavity.RandomEffects("g", 1), "h"]
COVARIANCES = {"1 + x2 | g": np.array([[0.6, 0.2], [0.2, 0.4]]), "h": 0.3}
F = X @ [0.3, 0.5] + np.array([-1.0, 1.3, -0.5, 0.2, 0.9, -0.8, 0.1])[GROUPS["g"]]
F += np.array([0.5, 0.6, -0.8, 0.9, -0.3, -0.6, 0.1])[GROUPS["g"]] * X[:, 1]
F += np.array([0.6, -0.5, 0.4, -0.7])[np.unique(GROUPS["h"], return_inverse=True)[1]]


def dense():
    """The design of all effects, and the prior covariance, of the same model written out."""
    g, h = GROUPS["g"], np.unique(GROUPS["h"], return_inverse=True)[1]
    slopes = np.zeros((N, 14))
    slopes[np.arange(N), 2 * g], slopes[np.arange(N), 2 * g + 1] = 1.0, X[:, 1]
    return np.column_stack([X, slopes, np.eye(4)[h]])


def prior():
    covariance = np.zeros((20, 20))
    covariance[:2, :2] = 9.0 * np.eye(2)
    covariance[2:16, 2:16] = np.kron(np.eye(7), COVARIANCES["1 + x2 | g"])
    covariance[16:, 16:] = 0.3 * np.eye(4)
    return covariance


def model(likelihood, **settings):
    return cavity.MixedGLM(
        EFFECTS, likelihood, **({"prior_variance": 9.0, "effect_covariances": COVARIANCES} | settings)
    )


CASES = {
    "probit": (likelihoods.Probit(), np.where(F + RNG.normal(size=N) > 0, 1, -1)),
    "poisson": (likelihoods.Poisson(), RNG.poisson(np.exp(np.minimum(F, 3.0)))),
    "student-t": (likelihoods.StudentT(0.3, 3.0), F + 0.5 * RNG.standard_t(2, size=N)),
    "gaussian": (likelihoods.Gaussian(0.5), F + 0.7 * RNG.normal(size=N)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_dense_model_of_the_same_prior(name):
    likelihood, y = CASES[name]
    ours = model(likelihood).fit(X, y, groups=GROUPS, tol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.SettingsWarning)
        theirs = cavity.GLM(likelihood, prior_variance=prior()).fit(dense(), y, tol=1e-10)
    assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=AT_REST)
    np.testing.assert_allclose(ours.mean, theirs.mean[:2], atol=ROOT_EPS)
    np.testing.assert_allclose(ours.covariance, theirs.covariance[:2, :2], atol=ROOT_EPS)
    np.testing.assert_allclose(ours.effect_moments("1 + x2 | g")[0].ravel(), theirs.mean[2:16], atol=ROOT_EPS)
    np.testing.assert_allclose(ours.effect_moments("h")[1].ravel(), theirs.variance[16:], rtol=EARLY)
    np.testing.assert_allclose(ours.loo_log_density, theirs.loo_log_density, atol=EARLY)
    np.testing.assert_allclose(ours.predict(X, groups=GROUPS), theirs.predict(dense()), atol=EARLY)
    keys = ["x2", ("h", "c"), ("1 + x2 | g", 3, "x2")]
    mean, covariance = ours.joint(keys)
    index = [1, 18, 9]
    np.testing.assert_allclose(mean, theirs.mean[index], atol=ROOT_EPS)
    np.testing.assert_allclose(covariance, theirs.covariance[np.ix_(index, index)], atol=ROOT_EPS)
    combined = ours.contrast({"x2": 1.0, ("1 + x2 | g", 3, "x2"): 2.0})
    weights = np.zeros(20)
    weights[[1, 9]] = 1.0, 2.0
    assert float(combined.mean) == pytest.approx(weights @ theirs.mean, abs=ROOT_EPS)
    assert float(combined.variance) == pytest.approx(weights @ theirs.covariance @ weights, rel=EARLY)


def test_gaussian_noise_is_exact():
    """Evidence, predictions of new levels, groups left out and updates are those of the joint Gaussian of y."""
    likelihood, y = CASES["gaussian"]
    posterior = model(likelihood).fit(X, y, groups=GROUPS)
    D = dense()
    of_y = stats.multivariate_normal(np.zeros(N), D @ prior() @ D.T + 0.5 * np.eye(N))
    assert posterior.log_evidence == pytest.approx(of_y.logpdf(y), abs=AT_REST)
    left = posterior.leave_group_out("h", X, y, groups=GROUPS)
    for level, result in zip("abcd", left, strict=True):
        rest = GROUPS["h"] != level
        without = stats.multivariate_normal(np.zeros(rest.sum()), of_y.cov[np.ix_(rest, rest)])
        assert result == pytest.approx(of_y.logpdf(y) - without.logpdf(y[rest]), abs=ROOT_EPS)
    first = np.arange(N) < 100
    some = {name: column[first] for name, column in GROUPS.items()}
    more = {name: column[~first] for name, column in GROUPS.items()}
    updated = model(likelihood).fit(X[first], y[first], groups=some).update(X[~first], y[~first], groups=more)
    assert updated.log_evidence == pytest.approx(posterior.log_evidence, abs=ROOT_EPS)
    np.testing.assert_allclose(updated.mean, posterior.mean, atol=ROOT_EPS)
    np.testing.assert_allclose(updated.predict(X, groups=GROUPS), posterior.predict(X, groups=GROUPS), atol=ROOT_EPS)
    with pytest.raises(ValueError, match="an update has none"):
        updated.loo()


def test_new_levels_are_drawn_from_their_prior():
    likelihood, y = CASES["probit"]
    posterior = model(likelihood).fit(X, y, groups=GROUPS)
    rows = np.array([[1.0, 2.0]])
    mean, variance = posterior.predict(rows, groups={"g": [99], "h": ["z"]}, levels="new")
    V = COVARIANCES["1 + x2 | g"]
    assert mean[0] == pytest.approx(rows[0] @ posterior.mean)
    assert variance[0] == pytest.approx(rows[0] @ (posterior.covariance + V) @ rows[0] + 0.3)
    new = posterior.rows(rows, {"g": [99], "h": ["z"]}, "new")
    assert posterior.predict_proba(new)[0, 1] == pytest.approx(stats.norm.cdf(mean[0] / np.sqrt(1 + variance[0])))
    assert posterior.log_density(new, [1])[0] == pytest.approx(np.log(posterior.predict_proba(new)[0, 1]))
    draws = posterior.sample_y(new, 4000, rng=1)
    assert np.mean(draws == 1) == pytest.approx(posterior.predict_proba(new)[0, 1], abs=0.03)
    with pytest.raises(ValueError, match=r"groups must have levels of the fit, got '99' of 'g' in row 0"):
        posterior.predict(rows, groups={"g": [99], "h": ["a"]})


PRIORS = {
    "flat": None,
    "avoid-zero": "avoid-zero",
    "in words": {"sd": priors.PC(2.0), "corr": priors.PCCorrelation(0.5, 0.8), "scale": priors.HalfNormal(0.7)},
}


@pytest.mark.long_cases("flat")
@pytest.mark.parametrize("prior_of", PRIORS)
def test_gradients_are_those_of_differences(prior_of):
    """Of the log evidence and log prior, in all free numbers of covariances and likelihood."""
    y = CASES["student-t"][1]
    likelihood = likelihoods.StudentT(0.3, 4.0)
    stored = {}
    fitted = cavity.MixedGLM(EFFECTS, likelihood, prior_variance=9.0, priors=PRIORS[prior_of])
    original = solution.learn_settings

    def spied(problem, names, threads, options, varies):
        vector = FreeTerms(problem, ("scale",), likelihood)
        evidence = MixedEvidence(problem, vector, threads, options)
        x = vector.start(0.3, likelihood) + 0.1 * np.sin(1.0 + np.arange(vector.size))

        def value(x):
            point = evidence.at(vector.unpack(x), tol=1e-12)
            return point.log_evidence + vector.log_prior(point.settings)[0], point

        gradient = vector.gradient(evidence, value(x)[1])
        slopes = vector.log_prior(vector.unpack(x))[1]
        gradient[: len(slopes)] += slopes
        steps = 1e-4 * np.eye(vector.size)
        stored["differences"] = np.array([(value(x + s)[0] - value(x - s)[0]) / 2e-4 for s in steps])
        stored["gradient"] = gradient
        np.testing.assert_allclose(vector.pack(vector.unpack(x)), x[: vector.size], atol=AT_REST)
        return original(problem, names, threads, options, varies)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solution, "learn_settings", spied)
        fitted.fit(X, y, groups=GROUPS)
    np.testing.assert_allclose(stored["gradient"], stored["differences"], atol=OPTIMUM)


def test_what_is_described_has_the_derivatives_it_says():
    root, x = FreeCovariance((), np.array([1.0, 0.2, 3.0])), np.array([0.1, -0.3, 0.2, 0.5, -0.4, 0.7])
    values, slopes = root.describe(x)
    for i in range(len(x)):
        step = 1e-6 * (np.arange(len(x)) == i)
        high, low = (np.array(root.describe(x + way * step)[0]) for way in (1, -1))
        np.testing.assert_allclose(slopes[:, i], (high - low) / 2e-6, atol=EARLY)
    covariance = root.unpack(x)
    np.testing.assert_allclose(np.square(values[:3]), np.diagonal(covariance))
    assert values[3] == pytest.approx(covariance[1, 0] / np.sqrt(covariance[0, 0] * covariance[1, 1]))


@pytest.mark.parametrize("signs", [(1.0, 1.0, 1.0), (-1.0, 1.0, 1.0), (1.0, -1.0, 1.0)])
def test_covariances_at_the_ends_of_their_correlations_keep_digits(signs):
    free = FreeCovariance((), np.array([1.0, 0.2, 3.0]))
    x = np.where(np.arange(6) < 3, 0.3, np.append(np.zeros(3), signs) * free.bounds()[:, 1])
    assert np.min(np.linalg.eigvalsh(free.unpack(x))) > 0.0
    np.testing.assert_allclose(free.pack(free.unpack(x)), x, rtol=OPTIMUM)


def test_the_maximum_of_the_evidence_is_one():
    """Learnt covariances: no other ones nearby have a larger log evidence."""
    likelihood, y = CASES["poisson"]
    posterior = model(likelihood, effect_covariances={"h": 0.3}).fit(X, y, groups=GROUPS)
    learnt = posterior.model.effect_covariances["1 + x2 | g"]
    assert posterior.hyperparameters.names == ("sd(intercept | g)", "sd(x2 | g)", "corr(intercept, x2 | g)")
    np.testing.assert_allclose(posterior.hyperparameters.values[:2], np.sqrt(np.diagonal(learnt)), rtol=AT_REST)
    for change in ([[1.1, 1.0], [1.0, 1.0]], [[1.0, 1.0], [1.0, 0.9]], [[1.0, 0.8], [0.8, 1.0]]):
        other = model(likelihood, effect_covariances={"1 + x2 | g": learnt * change, "h": 0.3}).fit(X, y, groups=GROUPS)
        assert other.log_evidence < posterior.log_evidence


def test_order_of_rows_and_levels_does_not_matter():
    likelihood, y = CASES["probit"]
    one = model(likelihood).fit(X, y, groups=GROUPS)
    order = np.random.default_rng(2).permutation(N)
    renamed = {"g": (GROUPS["g"][order] * 5) % 7, "h": GROUPS["h"][order]}
    other = model(likelihood).fit(X[order], y[order], groups=renamed)
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=AT_REST)
    np.testing.assert_allclose(other.mean, one.mean, atol=EARLY)
    np.testing.assert_allclose(other.loo_log_density, one.loo_log_density[order], atol=OPTIMUM)
    np.testing.assert_allclose(
        other.effect_moments("1 + x2 | g")[0][(np.arange(7) * 5) % 7], one.effect_moments("1 + x2 | g")[0], atol=EARLY
    )


def test_the_same_bits_for_any_number_of_threads():
    likelihood, y = CASES["probit"]
    ones = [model(likelihood, effect_covariances=None).fit(X, y, groups=GROUPS, n_threads=n) for n in (1, 2, 3)]
    for other in ones[1:]:
        assert other.log_evidence == ones[0].log_evidence
        assert other.mean.tobytes() == ones[0].mean.tobytes()
        assert other.hyperparameters.values == ones[0].hyperparameters.values


def test_weights_are_copies_and_zero_leaves_out():
    likelihood, y = CASES["poisson"]
    weights = np.ones(N)
    weights[:5], weights[5:9] = 2.0, 0.0
    one = model(likelihood).fit(X, y, groups=GROUPS, sample_weight=weights, tol=1e-10)
    index = np.repeat(np.arange(N), weights.astype(int))
    groups = {name: column[index] for name, column in GROUPS.items()}
    other = model(likelihood).fit(X[index], y[index], groups=groups, tol=1e-10)
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=ROOT_EPS)
    np.testing.assert_allclose(one.mean, other.mean, atol=ROOT_EPS)
    rows = {name: column[5:9] for name, column in GROUPS.items()}
    out = one.log_density(X[5:9], y[5:9], groups=rows)
    np.testing.assert_allclose(one.loo_log_density[5:9], out, rtol=INTEGRAL)


def test_odd_data():
    """One level, one row a level, separable labels, a level without rows in use: proper, finite, converged."""
    y = np.where(X[:, 1] > 0, 1, -1)
    for groups, weights in (
        (np.zeros(N), None),
        (np.arange(N), None),
        (GROUPS["g"], np.where(GROUPS["g"] == 3, 0.0, 1.0)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cavity.NumericalWarning)
            posterior = cavity.MixedGLM("g", "probit").fit(X, y, groups={"g": groups}, sample_weight=weights)
        assert posterior.converged
        assert np.isfinite(posterior.log_evidence)
        mean, variance = posterior.effect_moments("g")
        assert np.isfinite(mean).all()
        assert np.all(variance > 0)


def test_no_variance_where_there_is_none():
    """The evidence falls with the variance down to nothing: a warning says so, or a prior keeps it away from zero."""
    rng = np.random.default_rng(5)
    y, groups = rng.normal(size=N), {"g": np.arange(N) % 5}
    y -= np.bincount(groups["g"], y)[groups["g"]] / np.bincount(groups["g"])[groups["g"]]
    with pytest.warns(cavity.NumericalWarning, match=r"sd\(intercept \| g\).*no such effect"):
        posterior = cavity.MixedGLM("g", "gaussian").fit(X, y, groups=groups)
    assert posterior.hyperparameters.values[0] < 0.02
    away = cavity.MixedGLM("g", "gaussian", priors="avoid-zero").fit(X, y, groups=groups)
    assert away.hyperparameters.values[0] > 0.02
    assert away.hyperparameters.sd[0] is not None


def test_noise_that_terms_account_for():
    """Days of electricity: an autoregression of one state a day leaves nothing to the noise, and a warning says so."""
    load, _ = cavity.data.table("electricity", as_frame=True)
    load = load.assign(weekday=np.arange(len(load)) % 7)
    formula, likelihood = "energy ~ s(weekday, period=7) + ar1(day)", cavity.likelihoods.Gaussian
    with pytest.warns(cavity.NumericalWarning, match="noise_variance.*no noise beside the terms"):
        posterior = cavity.MixedGLM(formula).fit(load)
    assert posterior.converged
    assert posterior.model.likelihood.noise_variance < 1e-4
    assert posterior.log_evidence > cavity.MixedGLM(formula, likelihood(0.5)).fit(load).log_evidence
    note = "no standard error of noise_variance: the log evidence is flat there"
    assert note in posterior.variance_components().notes


def test_effects_that_nothing_limits():
    """Groups whose labels are all the same: the evidence rises with the variance, and the warning says what that is."""
    groups = {"g": np.arange(60) % 6}
    with pytest.warns(cavity.NumericalWarning, match="the data do not limit these effects"):
        posterior = cavity.MixedGLM("g", "probit", prior_variance=10.0).fit(
            X[:60], np.where(groups["g"] > 2, 1, -1), groups=groups
        )
    assert posterior.hyperparameters.values[0] > 100.0
    table = {"x": X[:60, 1], "y": np.ones(60), **groups}
    with pytest.warns(cavity.NumericalWarning, match=r"sd\(intercept \| g\).*do not limit these effects"):
        cavity.MixedGLM("y ~ x + (1 | g) - 1", "logit", prior_variance=10.0).fit(table)


BAD = [
    (dict(effects=3), TypeError, "effects must be RandomEffects"),
    (dict(effects="g", priors="normal"), TypeError, "priors must be a dict of priors"),
    (dict(effects="g", effect_covariances=1.0), TypeError, "effect_covariances must be a dict"),
    (
        dict(effects="g", effect_covariances={"g": -1.0}),
        cavity.NotPositiveDefiniteError,
        r"effect_covariances\['g'\] must be positive",
    ),
    (
        dict(effects="g", effect_covariances={"k": 1.0}),
        ValueError,
        "effect_covariances must be of the terms 'g', got 'k'",
    ),
    (dict(effects="g", effect_covariances={"g": np.eye(2)}), ValueError, r"must have shape \(1, 1\)"),
    (dict(effects="g", prior_variance=-1.0), ValueError, "prior_variance must be positive"),
    (dict(effects=[cavity.RandomEffects("g", 0)]), ValueError, "slopes must differ between rows"),
    (dict(effects="k"), ValueError, "groups"),
]


@pytest.mark.parametrize(("settings", "kind", "message"), BAD)
def test_bad_settings(settings, kind, message):
    with pytest.raises(kind, match=message):
        cavity.MixedGLM(**{"likelihood": "probit"} | settings).fit(
            X, CASES["probit"][1], groups={"g": GROUPS["g"], "q": 0}
        )


def test_bad_data():
    likelihood, y = CASES["probit"]
    with pytest.raises(TypeError, match="groups must hold the labels of 'g', 'h'"):
        model(likelihood).fit(X, y)
    with pytest.raises(ValueError, match=r"groups\['g'\] must have a value in every row, got nan in row 3"):
        model(likelihood).fit(X, y, groups=GROUPS | {"g": np.where(np.arange(N) == 3, np.nan, GROUPS["g"])})
    posterior = model(likelihood).fit(X, y, groups=GROUPS)
    with pytest.raises(ValueError, match="X must have 2 columns"):
        posterior.predict(np.ones((3, 3)), groups={"g": [1, 2, 3], "h": ["a", "a", "b"]})
    with pytest.raises(ValueError, match="term must be"):
        posterior.effects("k")
    with pytest.raises(ValueError, match="must say which of"):
        posterior.joint([("1 + x2 | g", 3)])
    with pytest.raises(ValueError, match="X must hold the 150 rows of the fit"):
        posterior.leave_group_out("h", X[:9], y[:9], groups={name: column[:9] for name, column in GROUPS.items()})


def test_a_formula_without_fixed_effects_is_refused():
    pytest.importorskip("formulae")
    with pytest.raises(ValueError, match="effects must have fixed effects, if only an intercept"):
        cavity.MixedGLM("y ~ 0 + (1 | g)").fit({"y": CASES["gaussian"][1], "g": GROUPS["g"]})


def test_data_frames_by_name():
    pandas = pytest.importorskip("pandas")
    likelihood, y = CASES["poisson"]
    frame = pandas.DataFrame({"one": 1.0, "x": X[:, 1], "g": GROUPS["g"], "h": GROUPS["h"], "y": y})
    effects = [cavity.RandomEffects("g", "x"), "h"]
    named = cavity.MixedGLM(
        effects, likelihood, prior_variance=9.0, effect_covariances={"1 + x | g": COVARIANCES["1 + x2 | g"], "h": 0.3}
    )
    posterior = named.fit(frame, "y")
    bare = model(likelihood).fit(X, y, groups=GROUPS)
    assert posterior.log_evidence == bare.log_evidence
    assert posterior.coefficient_names == ("one", "x")
    np.testing.assert_array_equal(posterior.predict(frame.drop(columns="y")), bare.predict(X, groups=GROUPS))
    for name in ("log_density", "residuals"):
        np.testing.assert_array_equal(getattr(posterior, name)(frame), getattr(bare, name)(X, y, groups=GROUPS))
    np.testing.assert_array_equal(posterior.fitted(frame), bare.fitted(bare.rows(X, GROUPS)))
    assert posterior.check(frame).table.columns["value"][0] == bare.check(X, y, groups=GROUPS).table.columns["value"][0]
    left = posterior.leave_group_out("h", frame)
    np.testing.assert_array_equal(left, bare.leave_group_out("h", X, y, groups=GROUPS))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_are_as_the_same_data_frame(ending, tmp_path):
    """X of a model without a formula, and columns of it that are named, groups of text among them."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": X[:, 1], "y": F > 0, "h": GROUPS["h"]})
    frame["y"] = frame["y"].astype(float)
    path = tmp_path / f"table.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    model = cavity.MixedGLM(cavity.RandomEffects("h"), "probit", intercept=True)
    expected, result = model.fit(frame, "y"), model.fit(path, "y")
    np.testing.assert_array_equal(result.covariance, expected.covariance)
    np.testing.assert_array_equal(result.predict(path), expected.predict(frame))


def test_rows_in_several_files(tmp_path):
    for number, part in enumerate(np.split(X, 3)):
        np.save(tmp_path / f"{number}.npy", part)
    model = cavity.MixedGLM(EFFECTS, "probit", effect_covariances=COVARIANCES)
    parts = sorted(tmp_path.iterdir())
    expected, posterior = (model.fit(rows, F > 0, groups=GROUPS) for rows in (X, parts))
    np.testing.assert_array_equal(posterior.covariance, expected.covariance)


@pytest.mark.parametrize("likelihood", ["gaussian", "laplace"])
def test_a_prior_that_leaves_the_range(likelihood):
    """Slopes by a column whose squares are 0 in float64."""
    frame = {"y": np.array([1e16, 2e16]), "a": np.array([4.5e-301, -1.2e-300]), "b": np.array([0.2, -1.3])}
    with pytest.raises(OverflowError, match="effects in the scale of y and X leave the range of float64"):
        cavity.MixedGLM("y ~ (a | b)", likelihood).fit(frame)


def test_a_group_of_one_term_is_its_name():
    posterior = model(likelihoods.Gaussian(0.5)).fit(X, CASES["gaussian"][1], groups=GROUPS)
    long = posterior.effects("1 + x2 | g")
    np.testing.assert_array_equal(posterior.effects("g").columns["mean"], long.columns["mean"])
    assert posterior.contrast({("g", 1, "x2"): 1.0}).mean == posterior.effect_moments("g")[0][1, 1]
    wide = posterior.effects("g", wide=True)
    assert list(wide.columns) == ["intercept mean", "intercept sd", "x2 mean", "x2 sd"]
    assert wide.names == tuple(map(str, range(7)))
    np.testing.assert_array_equal(wide.columns["x2 mean"], long.columns["mean"][1::2])
    np.testing.assert_array_equal(wide.columns["intercept sd"], long.columns["sd"][::2])
    with pytest.raises(ValueError, match=r"term must be one of '1 \+ x2 | g', 'h', got 'gg'"):
        posterior.effects("gg")


def test_a_group_of_two_terms_is_that_of_its_intercept():
    effects = ["g", cavity.RandomEffects("g", 1, intercept=False)]
    covariances = {"g": 0.6, "x2 | g": 0.4}
    made = cavity.MixedGLM(effects, likelihoods.Gaussian(0.5), prior_variance=9.0, effect_covariances=covariances)
    posterior = made.fit(X, CASES["gaussian"][1], groups=GROUPS)
    assert posterior.effect_names("g")[0] == ("intercept",)


def test_without_groups_there_is_no_table_of_variances():
    frame = {"x": X[:, 1], "y": CASES["poisson"][1]}
    posterior = cavity.MixedGLM("y ~ x", "poisson", prior_variance=9.0).fit(frame)
    assert posterior.summary().below is None
    assert posterior.variance_components().names == ()
    assert cavity.MixedGLM("x ~ 1", "gaussian", prior_variance=9.0).fit(frame).summary().below is not None


def test_observations_without_variation_take_no_search():
    """All counts are zero: with the smallest sd the evidence is that of a GLM, and that of others is no larger."""
    rng = np.random.default_rng(3)
    x, groups, y = rng.normal(size=60), np.repeat(np.arange(12), 5), np.zeros(60)
    table = {"x": x, "g": groups, "y": y}
    with pytest.warns(cavity.NumericalWarning) as caught:
        posterior = cavity.MixedGLM("y ~ x + (1 | g)", "poisson").fit(table)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2
    assert messages[0].startswith("y has no variation from which sd(intercept | g) could be found")
    assert "learning" not in posterior.trace
    with pytest.warns(cavity.NumericalWarning, match="no value above 0"):
        plain = cavity.GLM("y ~ x", "poisson").fit(table)
    assert posterior.log_evidence == pytest.approx(plain.log_evidence, abs=OPTIMUM)
    for sd in (1e-3, 0.1, 1.0):
        model = cavity.MixedGLM("y ~ x + (1 | g)", "poisson", effect_covariances={"g": sd**2})
        with pytest.warns(cavity.NumericalWarning, match="no value above 0"):
            assert model.fit(table).log_evidence <= posterior.log_evidence + OPTIMUM


@pytest.mark.parametrize("unit", [1e150, 1e-150])
def test_slopes_of_levels_in_extreme_units(unit):
    """In these units variances of effects are close to the ends of the range of float64, and searches look beyond."""
    rng = np.random.default_rng(4)
    x, g, y = rng.normal(size=60), rng.integers(6, size=60), rng.poisson(2.0, size=60)
    model, evidences = cavity.MixedGLM("y ~ 1 + (0 + x | g)", "poisson"), []
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        for scale in (1.0, unit):
            evidences.append(model.fit({"x": scale * x, "g": g, "y": y}).log_evidence)
    assert RuntimeWarning not in [warning.category for warning in record]
    assert evidences[1] == pytest.approx(evidences[0], rel=OPTIMUM)


@pytest.mark.parametrize("unit", [1e200, 1e-200])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_units_whose_squares_leave_float64_are_named(unit):
    rng = np.random.default_rng(0)
    table = {"x": unit * rng.normal(size=60), "g": rng.integers(6, size=60), "y": rng.normal(size=60)}
    with pytest.raises(OverflowError, match="variances of effects in the scale of y and X leave .*; rescale"):
        cavity.MixedGLM("y ~ 1 + (x | g)", "gaussian").fit(table)
