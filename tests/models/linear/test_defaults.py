"""Settings that are left to the data: they equal the same settings written out, and suit any units."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from support.glms import GLM as plain
from support.tolerances import AT_REST, EARLY, OPTIMUM, ROOT_EPS, SOLVES

import cavity
from cavity import GLM, MixedGLM, SettingsWarning, likelihoods

RNG = np.random.default_rng(3)
X = RNG.normal(size=(80, 2)) * [2.0, 0.1] + [10.0, -3.0]
F = 0.5 * (X[:, 0] - 10.0) - 8.0 * (X[:, 1] + 3.0) + 0.4
LABELS = F + RNG.normal(size=80) > 0
REAL = 1000.0 + 5.0 * (F + 0.3 * RNG.normal(size=80))
ONES = np.ones((80, 1))
NOISE = likelihoods.Gaussian(2.0)
PROBIT = 2.5 / 1.7  # prior sd of what a column does to f, by default


def assert_same(posterior, other, **tolerance):
    np.testing.assert_allclose(posterior.mean, other.mean, **{"rtol": 1e-9} | tolerance)
    np.testing.assert_allclose(posterior.variance, other.variance, **{"rtol": 1e-8} | tolerance)
    assert posterior.log_evidence == pytest.approx(other.log_evidence, abs=EARLY)


def test_an_intercept_is_a_column_of_ones_put_first():
    for y, likelihood, location in ((LABELS, likelihoods.Probit(), 0.0), (REAL, NOISE, np.median(REAL))):
        posterior = GLM(likelihood, prior_variance=2.0, intercept=50.0).fit(X, y)
        written = plain(likelihood, [location, 0.0, 0.0], [50.0, 2.0, 2.0]).fit(np.hstack([ONES, X]), y)
        assert_same(posterior, written)
        assert posterior.coefficient_names == ("intercept", "x1", "x2")
        new = X[:3] + 0.1
        np.testing.assert_allclose(posterior.predict(new), written.predict(np.hstack([ONES[:3], new])), rtol=AT_REST)
        later = posterior.update(new, y[:3]), written.update(np.hstack([ONES[:3], new]), y[:3])
        assert_same(*later)
    matrix = np.array([[2.0, 0.3], [0.3, 1.0]])
    posterior = GLM(likelihoods.Probit(), prior_mean=[0.1, 0.2], prior_variance=matrix, intercept=9.0).fit(X, LABELS)
    full = np.block([[np.array([[9.0]]), np.zeros((1, 2))], [np.zeros((2, 1)), matrix]])
    assert_same(posterior, plain(likelihoods.Probit(), [0.0, 0.1, 0.2], full).fit(np.hstack([ONES, X]), LABELS))


def test_standardized_columns_are_those_of_scaled_rows():
    mean, sd = X.mean(axis=0), X.std(axis=0)
    posterior = GLM(likelihoods.Probit(), prior_variance=2.0, intercept=50.0, standardize=True).fit(X, LABELS)
    written = plain(likelihoods.Probit(), 0.0, [50.0, 2.0, 2.0]).fit(np.hstack([ONES, (X - mean) / sd]), LABELS)
    assert_same(posterior, written)
    np.testing.assert_allclose([posterior.centre, posterior.spread], [mean, sd], rtol=SOLVES)
    summary = posterior.summary()
    assert summary.columns["mean"][1:] == pytest.approx(written.mean[1:] / sd, rel=AT_REST)
    assert summary.columns["mean"][0] == pytest.approx(written.mean[0] - written.mean[1:] @ (mean / sd), rel=AT_REST)
    through_zero = GLM(likelihoods.Probit(), prior_variance=2.0, intercept=False, standardize=True).fit(X, LABELS)
    assert_same(through_zero, plain(likelihoods.Probit(), 0.0, 2.0).fit(X / sd, LABELS))
    assert len(through_zero.summary().names) == 2
    with_ones = GLM(likelihoods.Probit(), prior_variance=2.0, standardize=True).fit(np.hstack([X, ONES]), LABELS)
    assert_same(with_ones, plain(likelihoods.Probit(), 0.0, 2.0).fit(np.hstack([X / sd, ONES]), LABELS))


def test_the_prior_is_in_the_scale_of_the_data():
    sd = X.std(axis=0)
    posterior = GLM(likelihoods.Probit(), intercept=False).fit(X, LABELS)
    np.testing.assert_allclose(posterior.model.prior_variance, (PROBIT / sd) ** 2, rtol=SOLVES)
    assert_same(posterior, plain(likelihoods.Probit(), 0.0, (PROBIT / sd) ** 2).fit(X, LABELS))
    logit = GLM("logit", intercept=False).fit(X, LABELS)
    np.testing.assert_allclose(logit.model.prior_variance, (2.5 / sd) ** 2, rtol=SOLVES)
    model = GLM(NOISE, intercept=True, standardize=True).fit(X, REAL).model
    spread = 1.4826 * np.median(np.abs(REAL - np.median(REAL)))
    np.testing.assert_allclose(model.prior_variance, (2.5 * spread) ** 2 * np.array([100.0, 1.0, 1.0]), rtol=SOLVES)
    np.testing.assert_allclose(model.prior_mean, [np.median(REAL), 0.0, 0.0])
    diagonal = GLM("probit", approximation="diagonal", intercept=False).fit(X - X.mean(axis=0), LABELS)
    assert diagonal.model.prior_variance == 1.0


@pytest.mark.parametrize("unit", [1.0, 1000.0, 1e-3])
def test_a_column_of_two_values_has_half_their_distance_for_its_scale(unit):
    rare = np.where(np.arange(80) < 3, 5.0, 2.0)[:, None] * unit  # whose sd is .19 of the distance, not .5
    columns = np.hstack([X, rare])
    for standardize in (False, True):
        model = GLM("logit", intercept=True, standardize=standardize)
        posterior = model.fit(columns, LABELS)
        spread = columns.std(axis=0) if standardize else np.ones(3)
        variance = posterior.model.prior_variance[1:] / spread**2
        np.testing.assert_allclose(variance, (2.5 / np.append(X.std(axis=0), 1.5 * unit)) ** 2, rtol=SOLVES)
        written = np.append(posterior.model.prior_variance[0], variance * spread**2)
        prepared = (columns - columns.mean(axis=0)) / spread if standardize else columns
        assert_same(posterior, plain(likelihoods.Logit(), 0.0, written).fit(np.hstack([ONES, prepared]), LABELS))


def test_links_are_chosen_by_the_data_and_not_by_their_units():
    columns = cavity.data.table("pima")[0]
    diabetic = columns["type"] == "Yes"
    inputs = np.column_stack([columns[name] for name in ("npreg", "glu", "bp", "skin", "bmi", "ped", "age")])
    unit = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    evidence = {}
    for link, size in (("logit", 2.5), ("probit", PROBIT)):
        evidence[link] = GLM(link, intercept=True, standardize=True).fit(inputs, diabetic).log_evidence
        written = GLM(link, prior_variance=size**2, intercept=100 * size**2).fit(unit, diabetic)
        assert evidence[link] == pytest.approx(written.log_evidence, abs=EARLY)
    assert evidence == pytest.approx({"logit": -259.37, "probit": -259.81}, abs=0.005)


def test_units_do_not_matter():
    first = GLM("probit", intercept=True, standardize=True).fit(X, LABELS)
    second = GLM("probit", intercept=True, standardize=True).fit(X * [1e5, 1e-7] + [3.0, -2e-6], LABELS)
    np.testing.assert_allclose(
        first.predict(X), second.predict(X * [1e5, 1e-7] + [3.0, -2e-6]), rtol=OPTIMUM, atol=ROOT_EPS
    )
    assert first.log_evidence == pytest.approx(second.log_evidence, abs=EARLY)
    near = X - [6.0, -2.7]  # 2 and -3 sds from 0: centred by the intercept only, whose prior is wide enough for these
    raw = GLM("probit", intercept=True).fit(near, LABELS)
    np.testing.assert_allclose(raw.predict_proba(near), first.predict_proba(X), atol=0.01)
    ones = GLM("probit").fit(np.hstack([near, 7.0 * ONES]), LABELS)
    np.testing.assert_allclose(ones.predict_proba(np.hstack([near, 7.0 * ONES])), first.predict_proba(X), atol=0.01)
    far = GLM(likelihoods.Gaussian(2.0)).fit(np.hstack([X, ONES]), REAL)  # y is about 1000
    assert abs(far.predict(np.hstack([X, ONES]))[0] - REAL).mean() < 2.0


@pytest.mark.parametrize("approximation", ["full", "diagonal"])
def test_weights_count_rows_in_all_that_is_chosen(approximation):
    copies = RNG.integers(0, 3, size=80)
    model = GLM(NOISE, approximation=approximation, intercept=True, standardize=True)
    weighted = model.fit(X, REAL, sample_weight=copies)
    repeated = model.fit(np.repeat(X, copies, axis=0), np.repeat(REAL, copies))
    assert_same(weighted, repeated, rtol=OPTIMUM)


def test_no_intercept_is_said():
    with pytest.warns(SettingsWarning, match="X has no constant column, so there is no intercept: say intercept=True"):
        GLM("probit").fit(X, LABELS)
    with pytest.warns(
        SettingsWarning, match=r"column 2 \(counted from 0\) of X is constant and intercept=True adds another"
    ):
        GLM("probit", intercept=True).fit(np.hstack([X, ONES]), LABELS)
    table = {"a": X[:, 0], "level": np.ones(len(X))}
    for model in (GLM("probit", intercept=True), MixedGLM("g", "probit", intercept=True)):
        options = {"groups": np.arange(len(X)) % 5} if isinstance(model, MixedGLM) else {}
        with pytest.warns(SettingsWarning, match="column 'level' of X is constant and intercept=True adds another one"):
            model.fit(pd.DataFrame(table), LABELS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GLM("probit").fit(np.hstack([X, ONES]), LABELS)
        GLM("probit", intercept=False).fit(X, LABELS)
        GLM(likelihoods.OrderedProbit([0.0, 1.0])).fit(X, LABELS)


def test_sparse_rows_have_an_intercept_and_stay_sparse():
    S = sparse.csr_array(np.where(RNG.random((80, 5)) < 0.5, RNG.normal(size=(80, 5)), 0.0))
    model = GLM("probit", prior_variance=2.0, approximation="diagonal", intercept=50.0)
    posterior, dense = model.fit(S, LABELS), model.fit(S.toarray(), LABELS)
    assert_same(posterior, dense)
    np.testing.assert_allclose(posterior.predict(S), dense.predict(S.toarray()), rtol=AT_REST)
    assert_same(posterior.update(S[:3], LABELS[:3]), dense.update(S[:3].toarray(), LABELS[:3]))
    assert sparse.issparse(posterior._scale(S))
    assert (
        GLM("probit", approximation="diagonal", intercept=True).fit(S, LABELS).model.prior_variance[0]
        == 100 * PROBIT**2
    )
    with pytest.raises(TypeError, match="standardize=True needs an array"):
        GLM("probit", approximation="diagonal", intercept=True, standardize=True).fit(S, LABELS)


def test_what_was_chosen_is_said_and_saved(tmp_path):
    posterior = GLM(intercept=True, standardize=True).fit(X, LABELS)
    assert set(posterior.chosen) == {"likelihood", "prior_variance", "intercept"}
    for line in (
        "Logit() (chosen from y)",
        "variance 6.25 (scaled to the data)",
        "prior mean 0, variance 625",
        "divided",
    ):
        assert line in repr(posterior)
    posterior.save(tmp_path / "p.npz")
    back = cavity.load(tmp_path / "p.npz")
    assert (back.chosen, repr(back)) == (posterior.chosen, repr(posterior))
    assert (back.model.intercept, back.model.standardize) == (False, False)
    second = posterior.model.fit(posterior._scale(X), LABELS)  # the model of a posterior is that of prepared rows
    assert_same(second, posterior)
    spelt = GLM(likelihoods.Probit(), prior_variance=1.0, intercept=False).fit(X, LABELS)
    assert spelt.chosen is None
    assert "prior" not in repr(spelt)


def test_one_factor_is_learnt_where_one_setting_was_left_open():
    free = GLM("probit", intercept=True, standardize=True).fit(X, LABELS, learn="prior_variance")
    variance = free.model.prior_variance
    assert variance[0] == 100 * PROBIT**2
    assert variance[1] == variance[2] != pytest.approx(PROBIT**2)
    assert "(learnt)" in repr(free)
    numbers = dict(prior_variance=PROBIT**2, intercept=100 * PROBIT**2)
    values = GLM("probit", **numbers, standardize=True).fit(X, LABELS, learn="prior_variance")
    assert_same(free, values)
    with_ones = GLM("probit").fit(np.hstack([X, ONES]), LABELS)
    moved = GLM("probit").fit(np.hstack([X, ONES]), LABELS, learn="prior_variance").model.prior_variance
    factors = moved / with_ones.model.prior_variance
    assert factors[0] == pytest.approx(factors[1])
    assert factors[2] == 1.0


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        (dict(likelihood="probbit"), ValueError, "likelihood must be one of 'probit', 'logit'"),
        (dict(intercept=0.0), ValueError, "intercept must be in"),
        (dict(intercept="yes"), TypeError, "intercept must be True, False or a prior variance, got 'yes'"),
        (dict(standardize=1), TypeError, "standardize must be True or False"),
        (dict(likelihood="ordered-probit", intercept=True), ValueError, "open thresholds, which stand for it"),
        (dict(prior_variance=[1.0, 2.0, 3.0], intercept=True), ValueError, r"have shape \(2,\)"),
    ],
)
def test_bad_settings(settings, kind, message):
    with pytest.raises(kind, match=message):
        GLM(**{"likelihood": "probit"} | settings).fit(X, LABELS)
