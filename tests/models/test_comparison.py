"""The table of several posteriors of the same data."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.saved_files import load_changed
from support.tolerances import AT_REST, EARLY

import cavity
from cavity import covariances, likelihoods
from cavity.base.observation_digest import ObservationDigest

RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(60), RNG.normal(size=60)])
Y = X @ [0.5, 1.0] + RNG.standard_t(2, size=60)
NORMAL = cavity.GLM(likelihoods.Gaussian(4.0), prior_variance=10.0).fit(X, Y)
ROBUST = cavity.GLM(likelihoods.StudentT(2.0), prior_variance=10.0).fit(X, Y)
ADF = cavity.GLM(likelihoods.Gaussian(4.0), prior_variance=10.0).fit(X, Y, method="adf")


def test_differences_are_those_of_the_rows():
    table = cavity.compare({"normal": NORMAL, "robust": ROBUST})
    frame = table.to_frame()
    assert list(frame.index) == ["robust", "normal"]
    assert frame["rank"].tolist() == frame["loo_rank"].tolist() == [1, 2]
    assert frame.loc["robust", ["difference", "loo_difference", "difference_se"]].tolist() == [0.0, 0.0, 0.0]
    assert frame.loc["normal", "difference"] == NORMAL.log_evidence - ROBUST.log_evidence
    apart = NORMAL.loo_log_density - ROBUST.loo_log_density
    assert frame.loc["normal", "loo_difference"] == pytest.approx(apart.sum())
    assert frame.loc["normal", "difference_se"] == pytest.approx(np.sqrt(60) * apart.std(ddof=1))
    assert frame.loc["normal", "loo_se"] == NORMAL.loo().standard_error
    assert repr(table).splitlines()[0] == "2 models of 60 rows"


def test_models_of_all_kinds():
    process = cavity.GaussianProcess(covariances.RBF()).fit(X[:, 1:], Y, learn=False)
    streaming = cavity.StreamingGP(covariances.RBF(), n_inducing=10).fit(X[:, 1:], Y, learn=False)
    linear = cavity.LinearRegression(intercept=False).fit(X, Y)
    fits = {"glm": NORMAL, "adf": ADF, "gp": process, "stream": streaming, "linear": linear}
    with pytest.warns(cavity.NumericalWarning, match="elbo and log_bound and log_evidence are compared"):
        frame = cavity.compare(fits).to_frame()
    assert frame["kind"].to_dict() == {
        "glm": "log_evidence",
        "adf": "log_evidence",
        "gp": "log_evidence",
        "stream": "log_bound",
        "linear": "elbo",
    }
    assert frame["loo"].notna().to_dict() == {"glm": True, "adf": False, "gp": True, "stream": False, "linear": False}
    frame = cavity.compare({"a": linear, "b": cavity.LinearRegression(intercept=False, ard=True).fit(X, Y)}).to_frame()
    assert list(frame.columns) == ["elbo", "difference", "rank"]
    assert "adf has no leave-one-out: leave-one-out densities need" in repr(cavity.compare({"adf": ADF}))


def test_what_is_not_known_comes_last():
    x = RNG.normal(size=(50, 1))
    model = cavity.GaussianMixture(1).with_defaults(x)
    merged = model.fit(x[:25]).merge(model.fit(x[25:]))
    frame = cavity.compare({"merged": merged, "whole": model.fit(x)}).to_frame()
    assert list(frame.index) == ["whole", "merged"]
    assert frame["rank"].fillna(0).tolist() == [1, 0]


def test_clutter_after_an_update_has_the_new_points_only():
    x = np.random.default_rng(1).normal(2.0, 1.0, 12)
    fits = {"all": cavity.Clutter().fit(x), "steps": cavity.Clutter().fit(x[:6]).update(x[6:])}
    with pytest.warns(cavity.NumericalWarning, match="'steps' took in rows one after the other"):
        table = cavity.compare(fits)
    assert "steps has no leave-one-out: it is that of the last 6 rows only" in repr(table)


def test_doubtful_rows_are_named_with_their_model():
    x, y = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 8.0]]), [1, 1, -1]
    fits = {"probit": cavity.GLM(likelihoods.Probit(), prior_variance=100.0).fit(x, y)}
    with pytest.warns(cavity.NumericalWarning, match=r"leave-one-out of 'probit' is doubtful in \d rows"):
        cavity.compare(fits)


def test_what_cannot_be_compared():
    with pytest.raises(TypeError, match="posteriors must be a dict of posteriors by names, got list"):
        cavity.compare([NORMAL, ROBUST])
    with pytest.raises(ValueError, match="posteriors must hold at least one"):
        cavity.compare({})
    with pytest.raises(TypeError, match=r"posteriors\['a'\] must be a posterior of rows, got GLM"):
        cavity.compare({"a": cavity.GLM(likelihoods.Probit())})
    with pytest.raises(
        TypeError, match=r"posteriors\['p'\] must be a posterior of rows, got FactorizedGaussianPosterior"
    ):
        cavity.compare({"p": cavity.FactorizedGaussian(0.0, np.eye(2)).fit()})
    fewer = cavity.GLM(likelihoods.Gaussian(4.0)).fit(X[1:], Y[1:])
    with pytest.raises(ValueError, match="must be of the same rows, but 'a' has 60 of them and 'b' 59"):
        cavity.compare({"a": NORMAL, "b": fewer})
    batch = cavity.Clutter().fit(RNG.normal(size=(2, 5, 1)))
    with pytest.raises(ValueError, match=r"posteriors\['batch'\] must be of one data set"):
        cavity.compare({"batch": batch})


# ------------------------------------------------------------------------------------------ the same observations

COUNTS = RNG.poisson(np.exp(0.5 * X[:, 1]))
LABELS = Y > 0
PRIOR = {"prior_variance": 10.0}
GROUPS = {"g": np.arange(60) % 5}
COMPONENTS = cavity.GaussianMixture(1).with_defaults(X[:, 1:])


def glm(y, likelihood="gaussian", rows=slice(None), **options):
    return cavity.GLM(likelihood, **PRIOR).fit(X[rows], y[rows], **options)


def stream(y, likelihood=None):
    likelihood = likelihood or likelihoods.Gaussian(1.0)
    inducing = np.linspace(-2, 2, 5)[:, None]
    return cavity.StreamingGP(covariances.RBF(), likelihood, inducing=inducing).fit(X[:, 1:], y, learn=False)


def test_a_transformed_y_is_refused_and_the_jacobian_makes_it_comparable():
    y = np.exp(Y)
    fits = {"y": glm(y), "log y": glm(np.log(y))}
    with pytest.raises(ValueError, match=r"'log y' has others than 'y'.*add the log Jacobian, the sum of log\|dg/dy\|"):
        cavity.compare(fits)
    # a normal density of log(y) is a log-normal density of y, by numerical integration of both
    from scipy import integrate, stats

    edges, at = np.array([0.5, 2.0]), stats.norm(0.3, 0.8)
    share = integrate.quad(lambda y: np.exp(at.logpdf(np.log(y)) - np.log(y)), *edges)[0]
    assert share == pytest.approx(np.diff(at.cdf(np.log(edges)))[0])


@pytest.mark.parametrize(
    "other",
    [
        lambda: glm(LABELS, "logit"),
        lambda: glm(Y + 1e-3),
        lambda: glm(np.where(np.arange(60) == 7, 0.0, Y)),
        lambda: cavity.GaussianProcess(covariances.RBF()).fit(X[:, 1:], 2.0 * Y, learn=False),
        lambda: cavity.MixedGLM("g", "gaussian", **PRIOR).fit(X, -Y, groups=GROUPS),
        lambda: stream(Y**2),
        lambda: cavity.LinearRegression().fit(X, Y**3),
        lambda: cavity.GaussianMixture(2).fit(X[:, 1:]),
    ],
)
@pytest.mark.filterwarnings("ignore::cavity.NumericalWarning")
def test_other_observations_are_refused(other):
    with pytest.raises(ValueError, match="must be of the same observations, but 'other' has others than 'y'"):
        cavity.compare({"y": NORMAL, "other": other()})


def test_all_families_know_the_same_observations():
    digest = ObservationDigest.of(Y)
    fits = {
        "robust": ROBUST,
        "adf": ADF,
        "diagonal": cavity.GLM(likelihoods.Gaussian(1.0), approximation="diagonal").fit(X, Y.tolist()),
        "gp": cavity.GaussianProcess(covariances.RBF()).fit(X[:, 1:], Y, learn=False),
        "mixed": cavity.MixedGLM("g", "gaussian", **PRIOR).fit(X, Y, groups=GROUPS),
        "stream": stream(Y),
        "linear": cavity.LinearRegression().fit(X, Y),
        "clutter": cavity.Clutter().fit(Y),
        "sequential clutter": cavity.Clutter().fit(Y[:, None], method="adf"),
        "units": cavity.UnitMixture(2).fit(Y),
        "stochastic units": cavity.UnitMixture(2).fit_stochastic(Y, batch_size=20),
        "mixture": cavity.GaussianMixture(2).fit(Y[:, None]),
        "stochastic mixture": cavity.GaussianMixture(2).fit_stochastic(Y[:, None], batch_size=20),
    }
    for name, posterior in fits.items():
        assert posterior.observation_digest == digest, name
    numbers = cavity.GLM("gaussian", prior_variance=1.0).fit(X, LABELS.astype(float))
    logit = {
        "bool": glm(LABELS, "logit"),
        "words": glm(np.where(LABELS, "yes", "no"), "probit"),
        "signs": glm(np.where(LABELS, 1, -1), "logit"),
        "mean field": cavity.LogisticRegression().fit(X, np.where(LABELS, "yes", "no")),
        "stream": stream(LABELS, likelihoods.Probit()),
        "ordered": glm(LABELS.astype(int), likelihoods.OrderedProbit([0.0])),
    }
    for name, posterior in logit.items():
        assert posterior.observation_digest == numbers.observation_digest == ObservationDigest.of(LABELS), name
    assert glm(COUNTS, "poisson").observation_digest == glm(COUNTS).observation_digest
    pairs = np.column_stack([COUNTS, COUNTS + 3])
    assert glm(pairs, "binomial").observation_digest == ObservationDigest.of(pairs)
    assert cavity.Clutter().fit(X.reshape(2, 30, 2)).observation_digest is None


def test_labels_of_other_names_are_refused():
    fits = {"a": glm(np.where(LABELS, "yes", "no"), "logit"), "b": glm(np.where(LABELS, "ill", "healthy"), "probit")}
    with pytest.raises(ValueError, match="'b' has others than 'a'.*Labels must be the same in all fits"):
        cavity.compare(fits)
    assert len(cavity.compare({"a": fits["a"], "c": glm(LABELS, "probit")}).names) == 2


def test_another_order_is_told_and_differences_row_by_row_are_blank():
    order = RNG.permutation(60)
    fits = {"robust": ROBUST, "moved": glm(Y, likelihoods.Gaussian(4.0), order)}
    with pytest.warns(cavity.NumericalWarning, match="'moved' has the observations of 'robust' in another order"):
        frame = cavity.compare(fits).to_frame()
    assert frame.loc["moved", "log_evidence"] == pytest.approx(NORMAL.log_evidence)
    assert frame.loc["moved", "loo_difference"] == pytest.approx(NORMAL.loo().sum - ROBUST.loo().sum)
    assert frame["difference_se"].isna().to_dict() == {"robust": False, "moved": True}


def test_updates_are_of_all_rows():
    full, parts = NORMAL.observation_digest, [slice(0, 20), slice(20, 45), slice(45, 60)]
    model = likelihoods.Gaussian(4.0)
    gp = cavity.GaussianProcess(covariances.RBF())
    first = {
        "glm": glm(Y, model, parts[0]),
        "gp": gp.fit(X[parts[0], 1:], Y[parts[0]], learn=False),
        "clutter": cavity.Clutter().fit(Y[parts[0]]),
        "stream": cavity.StreamingGP(covariances.RBF(), model).fit(X[:20, 1:], Y[:20]),
    }
    for name, posterior in first.items():
        columns = {"glm": X, "gp": X[:, 1:], "stream": X[:, 1:]}.get(name)
        for part in parts[1:]:
            rows = (Y[part],) if columns is None else (columns[part], Y[part])
            posterior = posterior.update(*rows)
        assert posterior.observation_digest == full, name
    later = glm(Y, model, parts[2]).update(X[:45], Y[:45])
    assert later.observation_digest.unordered == full.unordered
    with pytest.warns(cavity.NumericalWarning, match="in another order"):
        cavity.compare({"whole": NORMAL, "later": later})
    mixed = cavity.MixedGLM("g", model, effect_covariances={"g": 1.0}, **PRIOR)
    mixed = mixed.fit(X[:30], Y[:30], groups={"g": GROUPS["g"][:30]})
    assert mixed.update(X[30:], Y[30:], groups={"g": GROUPS["g"][30:]}).observation_digest == full


def test_shards_are_of_all_rows():
    digest = ObservationDigest.of(X[:, 1:])
    shards = [COMPONENTS.fit(X[part, 1:]) for part in (slice(0, 25), slice(25, 60))]
    assert shards[0].merge(shards[1]).observation_digest == digest
    assert shards[0].merge(shards[1]).forget(0.5).observation_digest == digest
    model = cavity.StreamingGP(covariances.RBF(), likelihoods.Gaussian(1.0), inducing=np.zeros((1, 1)))
    states = [model.fit(X[part, 1:], Y[part], learn=False) for part in (slice(0, 25), slice(25, 60))]
    copied = states[0].copy()
    assert states[0].merge(states[1]).observation_digest == NORMAL.observation_digest
    assert copied.observation_digest == ObservationDigest.of(Y[:25])


def test_a_stream_knows_rows_that_count_and_not_those_that_come_alone():
    weights = np.where(np.arange(60) % 3, 1.0, 0.0)
    inducing = np.linspace(-2, 2, 5)[:, None]
    model = cavity.StreamingGP(covariances.RBF(), likelihoods.Gaussian(1.0), inducing=inducing)
    weighted = model.fit(X[:, 1:], Y, learn=False, sample_weight=weights)
    assert weighted.observation_digest == ObservationDigest.of(Y[weights > 0])
    assert stream(Y).update(X[:1, 1:].copy(), Y[:1]).observation_digest is None
    empty = model.fit(np.zeros((0, 1)), [], learn=False)
    assert empty.observation_digest == ObservationDigest()
    assert empty.update(X[:, 1:], Y).observation_digest == ObservationDigest.of(Y)


def test_the_elbo_of_a_mixture_after_update_is_not_that_of_all_rows():
    x = X[:, 1:]
    fits = {"whole": COMPONENTS.fit(x), "updated": COMPONENTS.fit(x[:40]).update(x[40:])}
    assert fits["updated"].observation_digest == ObservationDigest.of(x[40:])
    with pytest.raises(ValueError, match="the elbo of a mixture after update is that of the new rows"):
        cavity.compare(fits)
    units = {"whole": cavity.UnitMixture(2).fit(Y), "updated": cavity.UnitMixture(2).fit(Y[:40]).update(Y[40:])}
    with pytest.raises(ValueError, match="the elbo of a mixture after update is that of the new rows"):
        cavity.compare(units)


def test_rows_in_files_and_in_several_blocks_have_the_digest_of_those_in_memory(tmp_path):
    x = np.random.default_rng(3).normal(size=(300_000, 2))
    np.save(tmp_path / "x.npy", x)
    digest = ObservationDigest.of(x)
    for data in (x, tmp_path / "x.npy", [tmp_path / "x.npy"]):
        posterior = cavity.GaussianMixture(1).fit(data, n_threads=2)
        assert posterior.observation_digest == digest
    gaps = x[:1000].copy()
    gaps[::7, 1] = np.nan
    assert cavity.GaussianMixture(1, covariance="diag").fit(gaps).observation_digest == ObservationDigest.of(gaps)
    for data in (x, tmp_path / "x.npy"):
        assert cavity.Clutter().fit(data, max_iter=1, method="adf").observation_digest == digest
    stream_of_arrays = cavity.GaussianMixture(1).fit_stochastic(iter([x[:100], x[100:200]]), n_samples=200)
    assert stream_of_arrays.observation_digest is None


def test_rows_of_dask_have_the_digest_of_those_in_memory():
    dask_array = pytest.importorskip("dask.array")
    x = np.random.default_rng(3).normal(size=(300_000, 2))
    other = cavity.GaussianMixture(1).fit(dask_array.from_array(x, chunks=(70_000, 2)))
    assert other.observation_digest == ObservationDigest.of(x)
    X, y = dask_array.from_array(x, chunks=(70_000, 2)), dask_array.from_array(x[:, 0], chunks=70_000)
    likelihood = likelihoods.Gaussian(1.0)
    glm = cavity.GLM(likelihood, prior_variance=1.0, intercept=False).fit(X, y)
    assert glm.observation_digest == ObservationDigest.of(x[:, 0])
    assert cavity.LinearRegression(intercept=False).fit(X, y).observation_digest is None


def test_files_keep_the_digest_and_those_without_one_are_compared_as_before(tmp_path):
    fits = {
        "glm": NORMAL,
        "gp": cavity.GaussianProcess(covariances.RBF()).fit(X[:, 1:], Y, learn=False),
        "mixed": cavity.MixedGLM("g", "gaussian", **PRIOR).fit(X, Y, groups=GROUPS),
        "stream": stream(Y),
        "linear": cavity.LinearRegression().fit(X, Y),
        "logistic": cavity.LogisticRegression().fit(X, LABELS),
        "clutter": cavity.Clutter().fit(X),
        "mixture": cavity.GaussianMixture(2).fit(X[:, 1:]),
        "units": cavity.UnitMixture(2).fit(Y),
    }
    for name, posterior in fits.items():
        posterior.save(tmp_path / name)
        restored = cavity.load(tmp_path / name)
        assert restored.observation_digest == posterior.observation_digest
        assert isinstance(restored.observation_digest, ObservationDigest)
    old = replace(glm(np.exp(Y), likelihoods.Gaussian(4.0)), observation_digest=None)
    assert cavity.compare({"old": old, "new": NORMAL}).columns["rank"] == [1, 2]
    for kind in ("glm", "gaussian_mixture", "streaming_gp", "clutter"):
        path = Path(__file__).parents[1] / "golden" / "files" / "2" / f"{kind}.npz"
        assert cavity.load(path).observation_digest is None
    state = cavity.load(Path(__file__).parents[1] / "golden" / "files" / "2" / "streaming_gp.npz")
    assert state.update(X[:5], LABELS[:5]).observation_digest is None


@pytest.mark.parametrize("entry", [[60, 1], [60, 1, -1], [60, 1, 1 << 63], [60, 1, "2"], "digest"])
def test_a_digest_in_a_file_is_checked(entry, tmp_path):
    with pytest.raises(ValueError, match="observation_digest"):
        load_changed(NORMAL, tmp_path, lambda settings, _: settings.update(observation_digest=entry))


# ------------------------------------------------------------------------------------------ evidences of updates


def test_evidences_of_updates_beside_those_of_all_rows():
    together, adf = glm(LABELS, "probit"), glm(LABELS, "probit", method="adf")
    later = glm(LABELS, "probit", slice(30)).update(X[30:], LABELS[30:])
    for name, posterior in {"adf": adf, "later": later}.items():
        with pytest.warns(
            cavity.NumericalWarning, match=f"'{name}' took in rows one after the other, by ADF or update"
        ):
            cavity.compare({"together": together, name: posterior})
    cavity.compare({"adf": adf, "later": later})
    mixed = cavity.MixedGLM("g", "probit", effect_covariances={"g": 1.0}, **PRIOR)
    half = mixed.fit(X[:30], LABELS[:30], groups={"g": GROUPS["g"][:30]})
    half = half.update(X[30:], LABELS[30:], groups={"g": GROUPS["g"][30:]})
    with pytest.warns(cavity.NumericalWarning, match="'half' took in rows one after the other"):
        cavity.compare({"mixed": mixed.fit(X, LABELS, groups=GROUPS), "half": half})
    at_once = stream(LABELS, likelihoods.Probit())
    inducing = np.linspace(-2, 2, 5)[:, None]
    model = cavity.StreamingGP(covariances.RBF(), likelihoods.Probit(), inducing=inducing)
    parts = model.fit(X[:30, 1:], LABELS[:30], learn=False).update(X[30:, 1:], LABELS[30:])
    with pytest.warns(cavity.NumericalWarning, match="'parts' took in rows one after the other"):
        cavity.compare({"at once": at_once, "parts": parts})


def test_updates_with_gaussian_noise_are_exact_in_any_order():
    later = glm(Y, likelihoods.Gaussian(4.0), slice(30)).update(X[30:], Y[30:])
    frame = cavity.compare({"together": NORMAL, "adf": ADF, "later": later}).to_frame()
    np.testing.assert_allclose(frame["log_evidence"], NORMAL.log_evidence, rtol=AT_REST)


# ------------------------------------------------------------------------------------------ weights


def test_weights_count_as_rows_written_out():
    weights = RNG.integers(0, 4, 60).astype(float)
    copies = np.repeat(np.arange(60), weights.astype(int))
    kinds = {"normal": likelihoods.Gaussian(4.0), "robust": likelihoods.StudentT(2.0)}
    weighted = {name: glm(Y, kind, sample_weight=weights) for name, kind in kinds.items()}
    written = {name: glm(Y, kind, copies) for name, kind in kinds.items()}
    frames = [cavity.compare(fits).to_frame() for fits in (weighted, written)]
    assert list(frames[0].index) == list(frames[1].index)
    np.testing.assert_allclose(frames[0].to_numpy(), frames[1].to_numpy(), rtol=EARLY)


def test_other_weights_are_other_data():
    doubled = glm(Y, likelihoods.Gaussian(4.0), sample_weight=np.where(np.arange(60) < 5, 2.0, 1.0))
    with pytest.warns(cavity.NumericalWarning, match="have other sample weights than 'robust'"):
        frame = cavity.compare({"robust": ROBUST, "doubled": doubled}).to_frame()
    assert frame["difference_se"].isna().to_dict() == {"robust": False, "doubled": True}
