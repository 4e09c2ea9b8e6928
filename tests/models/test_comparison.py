"""The table of several posteriors of the same data."""

import numpy as np
import pytest

import cavity
from cavity import covariances, likelihoods

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
    model = cavity.GaussianMixture(1).settle(x)
    merged = model.fit(x[:25]).merge(model.fit(x[25:]))
    frame = cavity.compare({"merged": merged, "whole": model.fit(x)}).to_frame()
    assert list(frame.index) == ["whole", "merged"]
    assert frame["rank"].fillna(0).tolist() == [1, 0]


def test_clutter_after_an_update_has_the_new_points_only():
    x = np.random.default_rng(1).normal(2.0, 1.0, 12)
    fits = {"all": cavity.Clutter().fit(x), "steps": cavity.Clutter().fit(x[:6]).update(x[6:])}
    assert "steps has no leave-one-out: it is that of the last 6 rows only" in repr(cavity.compare(fits))


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
