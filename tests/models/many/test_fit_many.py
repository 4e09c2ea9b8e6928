"""Many responses of one design: the fits of each alone, dense algebra, bits, tables, what is refused."""

import numpy as np
import pytest
from scipy import sparse, stats
from support.own_likelihoods import PlainLogit
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, PRINTED, ROUNDING, SOLVES, SUMS

import cavity
from cavity import likelihoods
from cavity.distributions import Gamma
from cavity.errors import ConvergenceWarning, NumericalWarning, SettingsWarning
from cavity.models.many.fits import BatchSolver
from cavity.priors import Beta, HalfNormal, LogNormal

RNG = np.random.default_rng(7)
N, G = 40, 21
X = np.column_stack([RNG.normal(size=N), RNG.normal(size=N) > 0])
F = RNG.normal(1.0, 0.7, size=G) + X @ RNG.normal(0.0, 0.6, size=(2, G))
COUNTS = RNG.poisson(np.exp(F) * RNG.gamma(3.0, 1 / 3.0, size=(N, G))).astype(float)
WEIGHTS = RNG.integers(1, 4, N) / 2.0
DONORS = np.arange(N) % 8
MIXED_COUNTS = RNG.poisson(np.exp(F + RNG.normal(0.0, 0.8, size=(8, G))[DONORS]) * RNG.gamma(3.0, 1 / 3.0, size=(N, G)))
RESPONSES = {
    "poisson": ("poisson", COUNTS),
    "negative binomial": (likelihoods.NegativeBinomial(3.0), COUNTS),
    "logit": ("logit", (F + RNG.logistic(size=(N, G)) > 1.0).astype(float)),
    "gaussian": (likelihoods.Gaussian(0.5), F + RNG.normal(size=(N, G))),
    "student": (likelihoods.StudentT(3.0, 0.3), F + 0.5 * RNG.standard_t(2, size=(N, G))),
    "gamma": (likelihoods.Gamma(2.0), RNG.gamma(2.0, np.exp(F) / 2.0)),
    "own": (PlainLogit(), np.where(F + RNG.logistic(size=(N, G)) > 1.0, 1.0, -1.0)),
}


def assert_alike(many, number, single, rtol):
    """Compare a response with its fit alone: means in sd, sds and log evidences relative."""
    d = len(single.mean)
    np.testing.assert_allclose((many.mean[number, :d] - single.mean) / single.sd, 0.0, atol=rtol)
    sd = np.sqrt(np.diagonal(many.covariance(number))[:d])
    np.testing.assert_allclose(sd, single.sd, rtol=rtol)
    np.testing.assert_allclose(many.log_evidence[number], single.log_evidence, rtol=rtol)


@pytest.mark.parametrize("name", RESPONSES)
def test_each_response_is_its_fit_alone(name):
    likelihood, Y = RESPONSES[name]
    options = {"sample_weight": WEIGHTS, "tol": 1e-12}
    model = cavity.GLM(likelihood, intercept=True, standardize=True)
    many = model.fit_many(X, Y, **options)
    assert many.converged.all()
    for number in range(0, G, 10):
        separate = model.fit(X, Y[:, number], **options)
        assert_alike(many, number, separate, AT_REST)
        single = many.of(number)
        np.testing.assert_allclose(single.summary().columns["mean"], separate.summary().columns["mean"], rtol=EARLY)
        for ours, theirs in zip(single.predict(X[:3]), separate.predict(X[:3]), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=EARLY)
        mean, variance = many.predict(X[:3])
        np.testing.assert_allclose([mean[number], variance[number]], single.predict(X[:3]), rtol=INTEGRAL)


@pytest.mark.parametrize("kind", ["glm", "mixed"])
@pytest.mark.parametrize("is_alone", [False, True])
def test_covariances_of_weights_leave_each_intercept_its_prior(kind, is_alone, set_sizes):
    """Responses of other locations and spreads, with a matrix for the other columns."""
    Y = F[:, :4] * [1.0, 5.0, 0.1, 1.0] + [0.0, 50.0, 2.0, -20.0] + RNG.normal(size=(N, 4))
    Y[3, 3] = np.nan
    settings = {"prior_variance": np.array([[2.0, 0.5], [0.5, 1.0]]), "intercept": True}
    model, groups = cavity.GLM(likelihoods.Gaussian(2.0), **settings), {}
    if kind == "mixed":
        model = cavity.MixedGLM("donor", likelihoods.Gaussian(2.0), effect_covariances={"donor": 0.3}, **settings)
        groups = {"groups": {"donor": DONORS}}
    if is_alone:
        set_sizes(MAX_BATCH_COLUMNS=0)
    many = model.fit_many(X, Y, **groups, tol=1e-12, missing="drop")
    assert many.converged.all()
    for number in range(4):
        rows = ~np.isnan(Y[:, number])
        there = {name: {"donor": DONORS[rows]} for name in groups}
        alone, single = model.fit(X[rows], Y[rows, number], **there, tol=1e-12), many.of(number)
        assert_alike(many, number, alone, AT_REST)
        np.testing.assert_allclose(single.model.prior_variance, alone.model.prior_variance, rtol=SUMS)
        np.testing.assert_allclose(single.model.prior_mean, alone.model.prior_mean, rtol=SUMS)


def test_what_batches_leave_is_fitted_alone(set_sizes):
    """Outliers under StudentT give negative precisions; without batches every response is fitted alone."""
    Y = F[:, :3] + 0.5 * RNG.normal(size=(N, 3))
    Y[0, 2] += 4.0
    model = cavity.GLM(likelihoods.StudentT(4.0, 0.3), intercept=True)
    many = model.fit_many(X, Y, tol=1e-10)
    assert many.converged.all()
    set_sizes(MAX_BATCH_COLUMNS=0)
    single = model.fit_many(X, Y, tol=1e-10)
    for number in range(3):
        assert_alike(many, number, model.fit(X, Y[:, number], tol=1e-10), EARLY)
    np.testing.assert_allclose(single.mean, many.mean, rtol=EARLY)
    np.testing.assert_allclose(single.prior_sd, many.prior_sd, rtol=SUMS)


@pytest.mark.parametrize("likelihood", ["negative-binomial", "gaussian"])
def test_parameters_are_learnt_by_response(likelihood):
    Y = COUNTS if likelihood == "negative-binomial" else F + RNG.normal(size=(N, G))
    model = cavity.GLM(likelihood, intercept=True)
    many = model.fit_many(X, Y)
    name = {"negative-binomial": "dispersion", "gaussian": "noise_variance"}[likelihood]
    assert many.parameter_names == (name,)
    for number in range(0, G, 4):
        single = model.fit(X, Y[:, number])
        assert many.log_evidence[number] >= single.log_evidence - AT_REST
        assert_alike(many, number, single, EXPANSION)
        np.testing.assert_allclose(many.parameters[number, 0], getattr(single.model.likelihood, name), rtol=EXPANSION)
        closed = cavity.GLM(many.of(number).model.likelihood, intercept=True).fit(X, Y[:, number], tol=1e-11)
        assert_alike(many, number, closed, EARLY)


PRIORS = {
    "dispersion": ("negative-binomial", {"dispersion": Gamma(5.0, 2.0)}),
    "share": ("zero-inflated-poisson", {"zero_probability": Beta(2.0, 8.0)}),
    "noise": ("gaussian", {"noise_variance": LogNormal(0.3, 0.2), "donor": HalfNormal(0.3)}),
    "donor": ("poisson", {"sd(intercept | donor)": LogNormal(0.2, 0.3)}),
}


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("is_alone", [False, True])
def test_priors_of_parameters_are_those_of_a_fit(name, is_alone, set_sizes):
    likelihood, priors = PRIORS[name]
    Y = (MIXED_COUNTS if likelihood != "gaussian" else F + RNG.normal(size=(N, G)))[:, :3]
    is_mixed = any("donor" in key for key in priors)
    groups = {"groups": {"donor": DONORS}} if is_mixed else {}
    model = (
        cavity.MixedGLM("donor", likelihood, intercept=True, priors=priors)
        if is_mixed
        else cavity.GLM(likelihood, intercept=True, priors=priors)
    )
    if is_alone:
        set_sizes(MAX_BATCH_COLUMNS=0)
    many = model.fit_many(X, Y, **groups)
    for number in range(3):
        single = model.fit(X, Y[:, number], **groups)
        values = dict(zip(single.hyperparameters.names, single.hyperparameters.values, strict=True))
        expected = [values[item] for item in many.parameter_names]
        np.testing.assert_allclose(many.parameters[number], expected, rtol=EXPANSION)
        assert_alike(many, number, single, EXPANSION)


def test_gaussian_noise_is_dense_algebra():
    """Mean, covariance and evidence of a Gaussian model with random effects, all in closed form."""
    Y, s2, v = F + RNG.normal(size=(N, G)), 0.5, 0.3
    model = cavity.MixedGLM(
        "donor", likelihoods.Gaussian(s2), prior_variance=2.0, intercept=False, effect_covariances={"donor": v}
    )
    many = model.fit_many(X, Y, groups={"donor": DONORS}, tol=1e-12)
    Z = np.column_stack([X, DONORS[:, None] == np.arange(8)])
    prior = np.append(np.full(2, 2.0), np.full(8, v))
    covariance = np.linalg.inv(np.diag(1 / prior) + Z.T @ Z / s2)
    for number in range(0, G, 7):
        np.testing.assert_allclose(many.covariance(number), covariance, rtol=INTEGRAL, atol=INTEGRAL)
        np.testing.assert_allclose(many.mean[number], covariance @ Z.T @ Y[:, number] / s2, rtol=AT_REST)
        marginal = stats.multivariate_normal(np.zeros(N), (Z * prior) @ Z.T + s2 * np.eye(N))
        np.testing.assert_allclose(many.log_evidence[number], marginal.logpdf(Y[:, number]), rtol=INTEGRAL)
    assert many.effect_names[:2] == ("0 | donor", "1 | donor")


def test_mixed_models_are_their_fits_alone():
    values = cavity.MixedGLM(
        "donor", likelihoods.NegativeBinomial(3.0), intercept=True, effect_covariances={"donor": 0.3}
    )
    learnt = cavity.MixedGLM("donor", "negative-binomial", intercept=True)
    groups = {"groups": {"donor": DONORS}}
    many, free = values.fit_many(X, MIXED_COUNTS, **groups, tol=1e-12), learnt.fit_many(X, MIXED_COUNTS, **groups)
    assert free.parameter_names == ("dispersion", "sd(intercept | donor)")
    assert free.converged.all()
    for number in range(0, G, 10):
        assert_alike(many, number, values.fit(X, MIXED_COUNTS[:, number], **groups, tol=1e-12), AT_REST)
        single = learnt.fit(X, MIXED_COUNTS[:, number], **groups)
        assert free.log_evidence[number] >= single.log_evidence - PRINTED
        assert_alike(free, number, single, EXPANSION)


@pytest.mark.parametrize("kind", ["formula", "columns"])
def test_single_posteriors_of_mixed_models_are_fits_alone(kind, tmp_path):
    values, likelihood = {"donor": 0.3}, likelihoods.NegativeBinomial(3.0)
    table = {"x": X[:, 0], "z": X[:, 1], "donor": DONORS}
    if kind == "formula":
        pytest.importorskip("formulae")
        many = cavity.MixedGLM("~ x + z + (1 | donor)", likelihood, effect_covariances=values)
        many = many.fit_many(table, MIXED_COUNTS, tol=1e-12)
        model = cavity.MixedGLM("y ~ x + z + (1 | donor)", likelihood, effect_covariances=values)
        separate, groups = model.fit(table | {"y": MIXED_COUNTS[:, 3]}, tol=1e-12), {}
        new = {name: column[:4] for name, column in table.items()}
        unseen = new | {"donor": np.array([0, 99, 3, 98])}
        pairs = (new, {}), (unseen, {"levels": "new"}), (new, {"levels": "zero"})
    else:
        model = cavity.MixedGLM("donor", likelihood, intercept=True, effect_covariances=values)
        groups = {"groups": {"donor": DONORS}}
        many = model.fit_many(X, MIXED_COUNTS, **groups, tol=1e-12)
        separate = model.fit(X, MIXED_COUNTS[:, 3], **groups, tol=1e-12)
        pairs = ((X[:4], {"groups": {"donor": DONORS[:4]}}),)
    many.save(tmp_path / "many.npz")
    for posteriors in (many, cavity.load(tmp_path / "many.npz")):
        single = posteriors.of("y4")
        np.testing.assert_allclose(single.summary().columns["mean"], separate.summary().columns["mean"], rtol=EARLY)
        ours, theirs = single.effects("donor").columns, separate.effects("donor").columns
        for name in ("mean", "sd"):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=EARLY)
        np.testing.assert_allclose(single.effective_parameters, separate.effective_parameters, rtol=EARLY)
        for rows, options in pairs:
            mean, variance = posteriors.predict(rows, **options)
            of_one = single.predict(rows, **options)
            np.testing.assert_allclose([mean[3], variance[3]], of_one, rtol=SOLVES)
            np.testing.assert_allclose(of_one, separate.predict(rows, **options), rtol=EARLY)
    single.save(tmp_path / "single.npz")
    assert repr(cavity.load(tmp_path / "single.npz")) == repr(single)


def test_variances_of_effects_maximise_the_evidence():
    """The marginal density of Gaussian data in closed form, on a grid about the sd that was learnt."""
    Y = F + RNG.normal(size=(8, G))[DONORS] + RNG.normal(size=(N, G))
    settings = {"prior_variance": 2.0, "intercept": False}
    many = cavity.MixedGLM("donor", likelihoods.Gaussian(0.8), **settings).fit_many(X, Y, groups={"donor": DONORS})
    same = DONORS[:, None] == DONORS
    for number in range(0, G, 7):
        sd = many.parameters[number, 0]
        logs = [
            stats.multivariate_normal(np.zeros(N), 2.0 * X @ X.T + (c * sd) ** 2 * same + 0.8 * np.eye(N)).logpdf(
                Y[:, number]
            )
            for c in (0.99, 1.0, 1.01)
        ]
        assert np.argmax(logs) == 1
        np.testing.assert_allclose(many.log_evidence[number], logs[1], rtol=AT_REST)


def arrays_of(many):
    return {name: value for name, value in many.to_arrays()[0].items() if name not in ("names", "status")}


@pytest.mark.parametrize("kind", ["glm", "mixed"])
def test_bits_do_not_depend_on_threads_and_neighbours(kind, set_sizes):
    model = cavity.GLM("negative-binomial", intercept=True)
    groups = {}
    if kind == "mixed":
        model, groups = cavity.MixedGLM("donor", "poisson", intercept=True), {"groups": {"donor": DONORS}}
    many = arrays_of(model.fit_many(X, COUNTS, **groups))
    order = RNG.permutation(G)[:13]
    some = arrays_of(model.fit_many(X, COUNTS[:, order], **groups))
    set_sizes(MAX_BATCH_RESPONSES=4)
    threads = arrays_of(model.fit_many(X, COUNTS, n_threads=3, **groups))
    for name, value in many.items():
        assert threads[name].tobytes() == value.tobytes(), name
        if len(value) == G:
            assert some[name].tobytes() == value[order].tobytes(), name


def test_responses_come_from_many_places(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("formulae")

    class Annotated:
        obs = pd.DataFrame({"x": X[:, 0], "z": np.where(X[:, 1] == 1, "high", "low")})
        var = pd.DataFrame(index=[f"gene{g}" for g in range(G)])
        X = sparse.csr_matrix(COUNTS)

    class Sliced:
        shape, dtype = COUNTS.shape, COUNTS.dtype

        def __getitem__(self, index):
            return COUNTS[index]

    np.save(tmp_path / "counts.npy", COUNTS)
    frame = pd.DataFrame(COUNTS, columns=Annotated.var.index)
    model = cavity.GLM("~ x + z", "poisson")
    first = model.fit_many(Annotated())
    assert first.names.tolist() == [*Annotated.var.index]
    assert first.coefficient_names == ("intercept", "x", "z[low]")
    for Y in (COUNTS, sparse.csc_array(COUNTS), frame, Sliced(), str(tmp_path / "counts.npy"), COUNTS.astype(np.int32)):
        np.testing.assert_array_equal(model.fit_many(Annotated.obs, Y).mean, first.mean)
    table = first.table("z[low]").to_frame()
    assert table.index[2] == "gene2"
    mean, variance = first.predict(Annotated.obs[:3])
    for ours, theirs in zip((mean[4], variance[4]), first.of("gene4").predict(Annotated.obs[:3]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=SOLVES)


@pytest.mark.parametrize("kind", ["power", "damping", "no weight", "row of zeros", "dask"])
def test_options_and_rows_are_those_of_a_fit(kind):
    rows, options = X, {"power": 0.5} if kind == "power" else {"damping": 0.6} if kind == "damping" else {}
    if kind == "no weight":
        options = {"sample_weight": np.where(np.arange(N) < 3, 0.0, WEIGHTS)}
    if kind == "row of zeros":
        rows = np.where(np.arange(N)[:, None] == 5, 0.0, X)
    Y = COUNTS if kind != "dask" else pytest.importorskip("dask.array").from_array(COUNTS, chunks=(10, 4))
    model = cavity.GLM("poisson", intercept=kind != "row of zeros")
    many = model.fit_many(rows, Y, tol=1e-11, **options)
    assert_alike(many, 4, model.fit(rows, COUNTS[:, 4], tol=1e-11, **options), AT_REST)


def test_exposures_may_differ_by_response():
    exposure = RNG.uniform(0.5, 2.0, size=(N, G))
    model = cavity.GLM("poisson", intercept=True)
    many = model.fit_many(X, COUNTS, exposure=exposure, offset=X[:, 0], tol=1e-12)
    single = model.fit(X, COUNTS[:, 5], exposure=exposure[:, 5], offset=X[:, 0], tol=1e-12)
    assert_alike(many, 5, single, AT_REST)
    assert many.has_offset
    with pytest.raises(ValueError, match="the fit had offsets or exposures"):
        many.predict(X)
    with pytest.raises(ValueError, match="groups has no meaning for a model without random effects"):
        many.predict(X, groups=DONORS, offset=0.0)


def test_tables_are_what_they_say():
    model = cavity.GLM("poisson", intercept=True)
    many = model.fit_many(X, COUNTS)
    columns = many.table("x1 - 2 * x2", level=0.9).columns
    for number in range(0, G, 5):
        single = many.of(number)
        row = single.contrasts("x1 - 2 * x2", level=0.9).columns
        for name in ("mean", "sd", "5%", "95%"):
            np.testing.assert_allclose(columns[name][number], row[name][0], rtol=AT_REST)
        sign = row["P(>0)"][0]
        np.testing.assert_allclose(columns["lfsr"][number], min(sign, 1 - sign), rtol=EARLY, atol=ROUNDING)
        factor = many.table("x2").columns["log Bayes factor"][number]
        np.testing.assert_allclose(factor, single.bayes_factors("x2").columns["log Bayes factor"][0], rtol=EARLY)
    order = np.argsort(columns["lfsr"])
    expected = np.cumsum(columns["lfsr"][order]) / np.arange(1, G + 1)
    np.testing.assert_allclose(columns["s-value"][order], expected, rtol=ROUNDING)


def test_a_prior_matrix_is_shared():
    prior = np.array([[1.0, 0.5], [0.5, 2.0]])
    model = cavity.GLM("poisson", intercept=False, prior_mean=[0.1, 0.2], prior_variance=prior)
    many = model.fit_many(X, COUNTS, tol=1e-12)
    single = model.fit(X, COUNTS[:, 3], tol=1e-12)
    assert_alike(many, 3, single, AT_REST)
    factor = many.table("x1").columns["log Bayes factor"][3]
    np.testing.assert_allclose(factor, single.bayes_factors("x1").columns["log Bayes factor"][0], rtol=EARLY)
    with pytest.raises(ValueError, match="share of coefficients needs prior_variance"):
        model.fit_many(X, COUNTS, share="x1")


def test_responses_that_cannot_be_fitted_stop_nothing():
    Y = COUNTS.copy()
    Y[3, 1], Y[:, 2], Y[0, 4], Y[5, 6] = -1.0, 0.0, 0.5, np.nan
    with pytest.warns(ConvergenceWarning, match="4 of 21 responses have no converged fit, the first is 'y2'"):
        many = cavity.GLM("negative-binomial", intercept=True).fit_many(X, Y)
    assert many.converged.sum() == G - 4
    assert "not negative; got -1.0 in row 3" in many.status[1]
    assert many.status[2].startswith("y has zeros only")
    assert "got 0.5 in row 0" in many.status[4]
    assert many.status[6] == "y must be finite, got y[5] = nan"
    assert np.isnan(many.mean[[1, 4, 6]]).all()
    np.testing.assert_array_equal(many.mean[2], many.prior_mean[2])
    np.testing.assert_allclose(np.diagonal(many.covariance(2)), many.prior_sd[2] ** 2, rtol=ROUNDING)
    with pytest.raises(ValueError, match="response must have a posterior, got 'y2': y must hold whole numbers"):
        many.of("y2")
    full = cavity.GLM("negative-binomial", intercept=True).fit_many(X, COUNTS)
    np.testing.assert_array_equal(many.mean[7:], full.mean[7:])
    Y = F + np.random.default_rng(1).normal(size=(N, G))
    Y[:, 0] = 2.0
    with pytest.warns(ConvergenceWarning, match="y is constant, from which no noise_variance can be found"):
        assert cavity.GLM("gaussian", intercept=True).fit_many(X, Y).converged.sum() == G - 1


ODD_ROWS = np.linspace(-1.0, 1.0, 20)
WAVE = np.sin(9.0 * ODD_ROWS)
ODD_TABLE = {"x": ODD_ROWS, "donor": np.arange(20) % 4}
ODD_MODELS = {"glm": (cavity.GLM, "~ x"), "mixed": (cavity.MixedGLM, "~ x + (1 | donor)")}


@pytest.mark.filterwarnings("ignore:.*responses? have no converged fit")
@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("kind", ODD_MODELS)
def test_an_evidence_without_bound_is_said(kind, is_alone, set_sizes):
    """The noise of a line without noise goes to 0, as in a fit alone."""
    if is_alone:
        set_sizes(MAX_BATCH_COLUMNS=0)
    model, formula = ODD_MODELS[kind]
    many = model(formula, "gaussian").fit_many(ODD_TABLE, np.column_stack([WAVE, 1.0 + 2.0 * ODD_ROWS]))
    assert many.converged.tolist() == [True, False]
    with pytest.warns(ConvergenceWarning, match="no maximum"):
        single = model(f"y {formula}", "gaussian").fit({**ODD_TABLE, "y": 1.0 + 2.0 * ODD_ROWS})
    assert many.status[1] == single.status
    assert many.status[1].startswith("the log evidence has no maximum")


@pytest.mark.filterwarnings("ignore:.*responses? have no converged fit", "ignore:the design has not full rank")
@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_noise_of_as_many_weights_as_rows_has_no_maximum(n, is_alone, set_sizes):
    if is_alone:
        set_sizes(MAX_BATCH_COLUMNS=0)
    x, z, y = np.random.default_rng(1).normal(size=(n, 3)).T
    many = cavity.GLM("~ x + z", "gaussian").fit_many({"x": x, "z": z}, y[:, None])
    assert many.converged[0] == (n > 3)
    if n <= 3:
        assert many.status[0].startswith("the log evidence has no maximum in the noise_variance")
        with pytest.warns(NumericalWarning, match="no maximum in the noise_variance"):
            cavity.GLM("y ~ x + z", "gaussian").fit({"x": x, "z": z, "y": y})


@pytest.mark.filterwarnings("ignore:.*responses? have no converged fit")
@pytest.mark.parametrize("kind", ODD_MODELS)
@pytest.mark.parametrize("likelihood", ["negative-binomial", "zero-inflated-poisson"])
def test_zeros_have_no_posterior_of_their_own(likelihood, kind):
    counts = np.column_stack([np.zeros(20), np.arange(20) % 4 * (1 + ODD_TABLE["donor"] // 2)])
    model, formula = ODD_MODELS[kind]
    many = model(formula, likelihood).fit_many(ODD_TABLE, counts)
    assert many.has_posterior.tolist() == [False, True]
    with pytest.raises(ValueError, match="response must have a posterior, got 'y1': y has zeros only"):
        many.of("y1")
    mean, variance = many.predict(ODD_TABLE)
    for ours, theirs in zip((mean[1], variance[1]), many.of("y2").predict(ODD_TABLE), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=SOLVES)


@pytest.mark.filterwarnings("ignore:.*responses? have no converged fit")
@pytest.mark.parametrize("kind", ODD_MODELS)
@pytest.mark.parametrize("likelihood", ["gaussian", likelihoods.StudentT(4.0, 0.5)])
def test_responses_out_of_range_stop_nothing(likelihood, kind):
    model, formula = ODD_MODELS[kind]
    model = model(formula, likelihood)
    usual = model.fit_many(ODD_TABLE, WAVE[:, None])
    assert usual.converged.all()
    for sizes in ((1.0, 1e200), (1e200, 1.0), (1e-200, 1.0), (1e308, 1e150), (1e150, 1e150)):
        many = model.fit_many(ODD_TABLE, np.outer(WAVE, sizes))
        for number, size in enumerate(sizes):
            if size == 1.0:
                np.testing.assert_array_equal(many.mean[number], usual.mean[0])
                assert many.log_evidence[number] == usual.log_evidence[0]
            else:
                assert many.status[number].startswith("y is too large or too small")
                assert np.isnan(many.mean[number]).all()


@pytest.mark.parametrize("kind", ODD_MODELS)
def test_single_posteriors_say_what_they_do_not_keep(kind):
    model, formula = ODD_MODELS[kind]
    single = model(formula, "gaussian").fit_many(ODD_TABLE, WAVE[:, None]).of(0)
    for name in ("loo_log_density", "sites"):
        with pytest.raises(ValueError, match="of fit_many.* a fit of "):
            getattr(single, name)


def test_a_singular_covariance_is_said():
    model = cavity.MixedGLM("donor", "poisson", intercept=True)
    many = model.fit_many(X, COUNTS[:, :2], names=["a", "b"], groups={"donor": DONORS})
    many._covariance.setflags(write=True)
    many._covariance[1] = 1.0  # all correlations are 1
    with pytest.raises(cavity.NotPositiveDefiniteError, match="covariance of response 'b' .* leave some out"):
        many.of("b")


REFUSED = {
    "rows": (lambda m: m.fit_many(X, COUNTS[1:]), ValueError, "Y must have as many rows as X, 40, got 39"),
    "rows of a table": (
        lambda _: cavity.GLM("~ x", "poisson").fit_many({"x": X[:, 0]}, COUNTS[1:]),
        ValueError,
        "Y must have as many rows as X, 40, got 39",
    ),
    "rows of a mixed table": (
        lambda _: cavity.MixedGLM("~ 1 + (1 | g)", "poisson").fit_many({"g": DONORS}, COUNTS[1:]),
        ValueError,
        "Y must have as many rows as X, 40, got 39",
    ),
    "approximation": (
        lambda _: cavity.GLM("poisson", approximation="diagonal", intercept=True).fit_many(X, COUNTS),
        ValueError,
        "approximation of fit_many must be 'full', got 'diagonal'",
    ),
    "integrate": (
        lambda _: cavity.GLM("negative-binomial", intercept=True, integrate="auto").fit_many(X, COUNTS),
        ValueError,
        "integrate of fit_many must be False, got 'auto'",
    ),
    "integrate mixed": (
        lambda _: cavity.MixedGLM("~ 1 + (1 | g)", "poisson", integrate="auto").fit_many({"g": DONORS}, COUNTS),
        ValueError,
        "integrate of fit_many must be False, got 'auto'",
    ),
    "bins": (
        lambda _: cavity.MixedGLM("~ 1 + (1 | g)", "poisson", bins=30).fit_many({"g": DONORS}, COUNTS),
        ValueError,
        "bins of fit_many must be None, got 30",
    ),
    "no responses": (lambda m: m.fit_many(X), TypeError, "Y must be a matrix"),
    "vector": (lambda m: m.fit_many(X, COUNTS[:, 0]), ValueError, "Y must have rows and a column for each response"),
    "names": (lambda m: m.fit_many(X, COUNTS, names=["a", "a"]), ValueError, "names must be 21 different names"),
    "exposure": (lambda m: m.fit_many(X, COUNTS, exposure=COUNTS[:, 1:]), ValueError, "exposure must be a vector or"),
    "no exposure": (
        lambda m: m.fit_many(X, COUNTS, exposure=0 * COUNTS),
        ValueError,
        "exposure must be positive, got 0",
    ),
    "share": (lambda m: m.fit_many(X, COUNTS, share="x3"), ValueError, "share must be one of"),
    "none good": (lambda m: m.fit_many(X, COUNTS - 0.5), ValueError, "Y must have a response that Poisson takes"),
    "likelihood": (lambda _: cavity.GLM().fit_many(X, COUNTS), ValueError, "likelihood must be given to fit_many"),
    "pairs": (
        lambda _: cavity.GLM(likelihoods.Interval(1.0)).fit_many(X, COUNTS),
        ValueError,
        "must take one number a row",
    ),
    "no trials": (
        lambda _: cavity.GLM("binomial").fit_many(X, COUNTS),
        ValueError,
        "trials are required by Binomial, got None",
    ),
    "trials": (
        lambda m: m.fit_many(X, COUNTS, trials=COUNTS),
        ValueError,
        "trials are of successes, as those of binomial, not of Poisson",
    ),
    "other trials": (
        lambda _: cavity.GLM("binomial").fit_many(X, COUNTS, trials=COUNTS[:, 1:]),
        ValueError,
        r"trials must be a vector or have the shape of Y, \(40, 21\), got \(40, 20\)",
    ),
    "thresholds": (
        lambda _: cavity.GLM("ordered-probit").fit_many(X, np.minimum(COUNTS, 2)),
        ValueError,
        "thresholds of OrderedProbit must be given",
    ),
    "priors": (
        lambda _: cavity.GLM("negative-binomial", intercept=True, priors={"spread": LogNormal(1.0, 1.0)}).fit_many(
            X, COUNTS
        ),
        ValueError,
        "priors must be of hyperparameters or terms",
    ),
    "shared prior": (
        lambda _: cavity.GLM("negative-binomial", intercept=True, priors={"dispersion": LogNormal(1.0, 1.0)}).fit_many(
            X, COUNTS, share="dispersion"
        ),
        ValueError,
        "share must not have what has a prior in priors, got 'dispersion'",
    ),
    "real prior": (
        lambda _: cavity.MixedGLM("donor", "gaussian", intercept=True, priors="avoid-zero").fit_many(
            X, F, groups={"donor": DONORS}
        ),
        ValueError,
        "priors of fit_many must be a dict",
    ),
    "observations": (
        lambda _: cavity.GLM("y ~ x", "poisson").fit_many({"x": X[:, 0]}, COUNTS),
        ValueError,
        "formula of fit_many must begin with ~",
    ),
    "slopes": (
        lambda _: cavity.MixedGLM(cavity.RandomEffects("g", 0), "poisson").fit_many(X, COUNTS, groups={"g": DONORS}),
        ValueError,
        "must have one column each",
    ),
    "number": (lambda m: m.fit_many(X, COUNTS).of(G), ValueError, "response must be below 21"),
    "name": (lambda m: m.fit_many(X, COUNTS).of("gene"), ValueError, "response must be a name of a response"),
    "table of a number": (lambda m: m.fit_many(X, COUNTS).table(1), TypeError, "must be expressions like .* got 1"),
    "two tables": (lambda m: m.fit_many(X, COUNTS).table(["x1", "x2"]), ValueError, "combination must be one .* got 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call(cavity.GLM("poisson", intercept=True))


def test_a_design_that_is_not_of_full_rank_is_said():
    twice = np.column_stack([X, X[:, 0] + X[:, 1]])
    with pytest.warns(SettingsWarning, match="not full rank: 'x3' follows from the columns before"):
        cavity.GLM("poisson", intercept=True).fit_many(twice, COUNTS)
    with pytest.warns(SettingsWarning, match="not full rank: 'x3', 'x4' follow from the columns before"):
        cavity.GLM("poisson", intercept=True).fit_many(np.column_stack([twice, X[:, 0]]), COUNTS)


def test_a_stop_keeps_what_is_known(set_sizes):
    set_sizes(MAX_BATCH_RESPONSES=4)
    events = []
    model = cavity.GLM("poisson", intercept=True)
    with pytest.warns(ConvergenceWarning, match="stopped by callback"):
        many = model.fit_many(X, COUNTS, callback=lambda event: events.append(event) or len(events) == 2)
    assert many.converged.tolist() == [True] * 8 + [False] * (G - 8)
    assert set(many.status[8:]) == {"stopped by callback"}


class Killed(BaseException):
    """What ends a fit from outside."""


@pytest.mark.long_cases("dispersion-2", "dispersion-9")
@pytest.mark.parametrize(("share", "after"), [(None, 3), ("dispersion", 2), ("dispersion", 9)])
def test_a_killed_fit_goes_on_in_the_same_bits(share, after, monkeypatch, set_sizes, tmp_path):
    set_sizes(MAX_BATCH_RESPONSES=4)
    events, path = [], tmp_path / "many.ck"
    model = cavity.GLM("negative-binomial", intercept=True)
    full = arrays_of(model.fit_many(X, COUNTS, share=share, callback=events.append))

    def kill(event):
        passes.append(event)
        if len(passes) == after:
            raise Killed

    passes = []
    with pytest.raises(Killed):
        model.fit_many(X, COUNTS, share=share, checkpoint=path, checkpoint_every=0, callback=kill)
    with pytest.raises(ValueError, match="is of another fit: Y"):
        model.fit_many(X, COUNTS + 1, share=share, checkpoint=path)
    batches = []
    solve = BatchSolver.solve
    monkeypatch.setattr(BatchSolver, "solve", lambda *a: batches.append(0) or solve(*a))
    second = arrays_of(model.fit_many(X, COUNTS, share=share, checkpoint=path))
    assert len(batches) == len(events) - after
    for name, value in full.items():
        assert second[name].tobytes() == value.tobytes(), name


def simulate(count, rows, seed):
    """Counts with dispersions and effects from their priors."""
    rng = np.random.default_rng(seed)
    dose, effect = np.repeat([0.0, 1.0], rows // 2), rng.normal(0.0, 0.5, size=count)
    mean, dispersion = np.exp(rng.normal(3.0, 1.0, count) + np.outer(dose, effect)), np.exp(rng.normal(1.0, 0.7, count))
    return {"dose": dose}, rng.poisson(rng.gamma(dispersion, mean / dispersion)).astype(float), effect, dispersion


@pytest.mark.long
def test_shared_priors_are_found_and_calibrate():
    pytest.importorskip("formulae")
    count = 600
    table, Y, effect, dispersion = simulate(count, 16, 3)
    model = cavity.GLM("~ dose", "negative-binomial")
    many = model.fit_many(table, Y, share=("dispersion", "dose"))
    truth = many.shared
    error = 3.0 / np.sqrt(count / 4)  # of logs, with a quarter of the information that the truths would have
    assert abs(np.log(truth["median(dispersion)"]) - 1.0) < 0.7 * error
    assert abs(np.log(truth["sd(log(dispersion))"] / 0.7)) < error
    assert abs(np.log(truth["factor(prior sd of dose)"] * 5.0 / 0.5)) < error
    columns, good = many.table("dose").columns, many.converged
    assert good.all()
    covered = np.mean(np.abs(columns["mean"] - effect) < 1.96 * columns["sd"])
    assert abs(covered - 0.95) < 3.0 * np.sqrt(0.95 * 0.05 / count)
    called = columns["s-value"] < 0.1
    wrong = np.sign(columns["mean"]) != np.sign(effect)
    claimed = columns["lfsr"][called].mean()
    assert abs(wrong[called].mean() - claimed) < 3.0 * np.sqrt(claimed * (1 - claimed) / called.sum())
    apart = model.fit_many(table, Y)
    assert np.std(np.log(many.parameters[:, 0] / dispersion)) < np.std(np.log(apart.parameters[:, 0] / dispersion))
    assert np.sqrt(np.mean((columns["mean"] - effect) ** 2)) < np.sqrt(np.mean((apart.mean[:, 1] - effect) ** 2))


@pytest.mark.long_cases("shared")
@pytest.mark.filterwarnings("ignore:.*y has zeros only")
@pytest.mark.parametrize("kind", ["shared", "known"])
def test_intervals_and_s_values_are_calibrated(kind):
    """Truths from the priors, those of the example of DESeq2 and learnt, or those that the model is told."""
    rng, count = np.random.default_rng(11), 480
    dose, effect = np.tile([0.0, 1.0], 8), np.log(2.0) * rng.normal(size=count)
    level = 2.0 ** rng.normal(4.0, 2.0, count)
    dispersion = 1.0 / (4.0 / level + 0.1) if kind == "shared" else np.full(count, 4.0)
    mean = level * np.exp(np.outer(dose, effect))
    Y = rng.poisson(rng.gamma(dispersion, mean / dispersion))
    rows = np.column_stack([np.ones(16), dose])
    if kind == "shared":
        many = cavity.GLM("negative-binomial").fit_many(rows, Y, share=("dispersion", "x2"))
        assert abs(np.log(many.shared["median(dispersion)"] / 10.0)) < 0.25
        assert abs(np.log(many.shared["level(half dispersion)"] / 40.0)) < 0.4
    else:
        prior = {"prior_mean": [4.0 * np.log(2.0), 0.0], "prior_variance": np.log(2.0) ** 2 * np.array([4.0, 1.0])}
        many = cavity.GLM(likelihoods.NegativeBinomial(4.0), **prior).fit_many(rows, Y)
    columns, good = many.table("x2").columns, many.converged
    assert good.sum() > 0.99 * count
    covered = np.mean(np.abs(columns["mean"] - effect)[good] < 1.96 * columns["sd"][good])
    assert abs(covered - 0.95) < 3.0 * np.sqrt(0.95 * 0.05 / good.sum())
    wrong, rates = np.sign(columns["mean"]) != np.sign(effect), columns["lfsr"]
    for limit in (0.01, 0.05, 0.2):
        called = good & (columns["s-value"] < limit)
        assert abs(wrong[called].sum() - rates[called].sum()) < 3.0 * np.sqrt(
            np.sum(rates[called] * (1 - rates[called]))
        )


def test_a_shared_prior_is_that_of_a_fit():
    """The response alone, under the prior that all responses have, at its maximum."""
    table, Y, *_ = simulate(40, 24, 5)
    dose = table["dose"][:, None]
    many = cavity.GLM("negative-binomial", intercept=True).fit_many(dose, Y, share="dispersion")
    limit, half, sd = (
        float(many.shared[name]) for name in ("median(dispersion)", "level(half dispersion)", "sd(log(dispersion))")
    )
    for number in range(0, 40, 13):
        prior = LogNormal(limit / (1.0 + half / Y[:, number].mean()), sd)
        model = cavity.GLM("negative-binomial", intercept=True, priors={"dispersion": prior})
        single = model.fit(dose, Y[:, number])
        np.testing.assert_allclose(many.parameters[number, 0], single.model.likelihood.dispersion, rtol=EXPANSION)
        assert_alike(many, number, single, EXPANSION)


def test_posteriors_come_back_from_files(tmp_path):
    many = cavity.GLM("negative-binomial", intercept=True).fit_many(X, COUNTS, share="dispersion")
    many.save(tmp_path / "many.npz")
    restored = cavity.load(tmp_path / "many.npz")
    assert repr(restored) == repr(many)
    assert repr(restored.summary()) == repr(many.summary())
    np.testing.assert_array_equal(restored.of(3).covariance, many.of(3).covariance)
    assert restored.shared == many.shared


@pytest.mark.parametrize("kind", ["glm", "mixed"])
def test_posteriors_come_back_from_parquet(kind, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    Y, path = COUNTS.copy(), tmp_path / "many.parquet"
    Y[0, 2] = -1.0
    if kind == "glm":
        model, groups = cavity.GLM("poisson", intercept=True, standardize=True), {}
    else:
        model, groups = cavity.MixedGLM("donor", "negative-binomial", intercept=True), {"groups": {"donor": DONORS}}
    with pytest.warns(ConvergenceWarning, match="1 of 21"):
        many = model.fit_many(X, Y, **groups)
    many.to_parquet(path)
    restored = cavity.load(path)
    for (name, value), (_, other) in zip(many.to_arrays()[0].items(), restored.to_arrays()[0].items(), strict=True):
        assert value.tobytes() == other.tobytes(), name
    assert repr(restored) == repr(many)
    assert repr(restored.of(3)) == repr(many.of(3))
    assert parquet.read_table(path, columns=["names"]).column("names").to_pylist() == many.names.tolist()
    with pytest.raises(ValueError, match=r"file must end in .parquet or .pq, got 'many.npz'"):
        many.to_parquet("many.npz")
    parquet.write_table(parquet.read_table(path).replace_schema_metadata(None), path)
    with pytest.raises(ValueError, match="is damaged, or holds no posteriors written by cavity"):
        cavity.load(path)


def test_posteriors_that_do_not_fit_into_memory_are_refused_with_their_size(monkeypatch):
    monkeypatch.setattr("cavity.base.arrays._memory", lambda: 1000)
    with pytest.raises(MemoryError, match="covariances of all responses"):
        cavity.GLM("poisson", intercept=True).fit_many(X, COUNTS)


def test_more_responses_than_memory_has_names_for_are_refused_with_their_size():
    class Endless:
        shape, dtype = (N, 10**11), np.dtype(float)

        def __getitem__(self, index):
            raise AssertionError("nothing is read")

    with pytest.raises(MemoryError, match=r"Y: names of all responses .* needs 4000000000000 bytes"):
        cavity.GLM("poisson", intercept=True).fit_many(X, Endless())


@pytest.mark.long_cases("mixed-True")
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("kind", ["glm", "mixed"])
def test_a_random_tenth_of_many_responses_is_their_fits_at_the_usual_tolerance(kind, learns):
    rng, likelihood = np.random.default_rng(1), likelihoods.NegativeBinomial(None if learns else 4.0)
    f = rng.normal(2.0, 1.0, 200) + np.outer(X[:, 1], rng.normal(0.0, 0.5, 200))
    f += (0.7 if learns else 0.0) * rng.normal(size=(8, 200))[DONORS]
    Y, groups, model = rng.poisson(rng.gamma(4.0, np.exp(f) / 4.0)), {}, cavity.GLM(likelihood, intercept=True)
    if kind == "mixed":
        variances = None if learns else {"donor": 0.2}
        model = cavity.MixedGLM("donor", likelihood, intercept=True, effect_covariances=variances)
        groups = {"groups": {"donor": DONORS}}
    many = model.fit_many(X[:, 1:], Y, **groups)
    for number in rng.choice(200, 20, replace=False):
        single = model.fit(X[:, 1:], Y[:, number], **groups)
        assert_alike(many, number, single, AT_REST)
        if learns:
            parameters = dict(zip(many.parameter_names, many.parameters[number], strict=True))
            values = dict(zip(single.hyperparameters.names, single.hyperparameters.values, strict=True))
            assert parameters == pytest.approx(values, rel=EARLY)


@pytest.mark.parametrize("place", ["Y", "offset"])
@pytest.mark.parametrize("has_groups", [False, True])
@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning")
def test_huge_numbers_of_one_response_leave_the_others_and_no_warnings_of_numpy(place, has_groups, recwarn):
    rng = np.random.default_rng(5)
    X, numbers = rng.normal(size=(60, 2)), {"Y": rng.poisson(2.0, (60, 3)).astype(float), "offset": np.zeros((60, 3))}
    numbers[place][5, 1] = 1e300
    groups = {"groups": {"g": np.arange(60) % 6}} if has_groups else {}
    model = cavity.MixedGLM("g", "poisson") if has_groups else cavity.GLM("poisson", intercept=True)
    many = model.fit_many(X, **numbers, **groups)
    assert many.converged.tolist() == [True, False, True]
    assert not [warning for warning in recwarn if warning.category is RuntimeWarning]


@pytest.mark.filterwarnings("ignore:the log evidence has no maximum")
def test_a_constant_response_of_a_mixed_model_has_a_posterior():
    """Its groups have no spread, at which no search begins."""
    rng = np.random.default_rng(5)
    X, groups = rng.normal(size=(60, 1)), {"g": np.arange(60) % 6}
    Y = np.column_stack([np.full(60, 3.0), rng.poisson(2.0, 60)]).astype(float)
    model = cavity.MixedGLM("g", "poisson", intercept=True)
    many, alone = model.fit_many(X, Y, groups=groups), model.fit(X, Y[:, 0], groups=groups)
    assert many.converged.all()
    np.testing.assert_allclose(many.mean[0, :2], alone.mean, atol=EXPANSION * np.max(alone.sd))
    np.testing.assert_allclose(many.of(0).sd, alone.sd, rtol=EXPANSION)
