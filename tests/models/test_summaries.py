"""Tables of what models without a design matrix have found."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support.tolerances import AT_REST, SOLVES

import cavity
from cavity import covariances, likelihoods
from cavity.base import summary
from cavity.base.summary import estimate_interval, tabulate_estimates
from cavity.models.hyperparameters import choose_scale

RNG = np.random.default_rng(2)
X = np.concatenate([RNG.normal(size=(40, 2)), RNG.normal(size=(25, 2)) + [4.0, 0.0]])
FRAME = pd.DataFrame(X, columns=["wait", "size"])
DRAWS = 40_000


def agrees(frame, draws):
    """The mean, sd and interval of a table are those of draws (n, rows) to the error of these."""
    error = draws.std(axis=0) * 4.0 / np.sqrt(len(draws))
    np.testing.assert_array_less(np.abs(frame["mean"] - draws.mean(axis=0)), error)
    np.testing.assert_allclose(frame["sd"], draws.std(axis=0), rtol=0.03)
    ends = np.quantile(draws, [0.025, 0.975], axis=0).T
    np.testing.assert_allclose(frame.iloc[:, 2:4], ends, atol=0.06 * draws.std())
    if "P(>0)" in frame:
        np.testing.assert_allclose(frame["P(>0)"].dropna(), (draws > 0).mean(axis=0), atol=0.02)


@pytest.mark.long_cases("full")
@pytest.mark.sample(2)
@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
def test_means_of_a_mixture_by_draws_from_its_factors(covariance):
    posterior = cavity.GaussianMixture(2, covariance=covariance).fit(FRAME, rng=0)
    frame = posterior.summary().to_frame()
    names = ["mean[0, wait]", "mean[0, size]", "mean[1, wait]", "mean[1, size]"]
    assert list(frame.index) == ["weight[0]", "weight[1]", *names]
    rng, draws = np.random.default_rng(0), np.empty((DRAWS, 2, 2))
    degrees = np.broadcast_to(np.asarray(posterior.degrees_of_freedom).T, (2, 2)).T  # of a component, or its columns
    for k in range(2):
        scatter, beta = np.asarray(posterior.inverse_scale), posterior.mean_precision[k]
        if covariance in ("full", "tied"):
            scatter = scatter[k] if covariance == "full" else scatter
            precision = stats.wishart(degrees[k, 0], np.linalg.inv(scatter)).rvs(DRAWS, random_state=rng)
            roots = np.linalg.cholesky(np.linalg.inv(precision) / beta)
            draws[:, k] = posterior.mean[k] + np.einsum("nij,nj->ni", roots, rng.normal(size=(DRAWS, 2)))
        else:
            rate = 0.5 * np.broadcast_to(scatter.reshape(2, -1), (2, 2))[k]
            precision = rng.gamma(0.5 * degrees[k], 1.0 / rate, (DRAWS, 2))
            draws[:, k] = posterior.mean[k] + rng.normal(size=(DRAWS, 2)) / np.sqrt(beta * precision)
    agrees(frame.loc[names], draws.reshape(DRAWS, 4))


def test_weights_of_a_mixture():
    posterior = cavity.GaussianMixture(3).fit(X, rng=0)
    a = posterior.weight_concentration
    truth = stats.beta(a, a.sum() - a)
    frame = posterior.summary(level=0.9).to_frame().iloc[:3]
    np.testing.assert_allclose(frame["mean"], truth.mean(), rtol=SOLVES)
    np.testing.assert_allclose(frame["sd"], truth.std(), rtol=SOLVES)
    np.testing.assert_allclose(frame[["5%", "95%"]], np.transpose(truth.interval(0.9)), rtol=AT_REST, atol=SOLVES)
    posterior = cavity.GaussianMixture(3, weights="stick_breaking").fit(X, rng=0)
    sticks = np.random.default_rng(0).beta(*posterior.weight_concentration.T, (DRAWS, 2))
    left = np.cumprod(np.column_stack([np.ones(DRAWS), 1.0 - sticks]), axis=1)
    draws = left * np.column_stack([sticks, np.ones(DRAWS)])
    frame = posterior.summary().to_frame().iloc[:3].drop(columns="P(>0)")
    agrees(frame, draws)
    single = cavity.GaussianMixture(1).fit(X).summary().to_frame().iloc[0]
    assert single.iloc[:4].tolist() == [1.0, 0.0, 1.0, 1.0]


def test_one_dimension_each_way():
    clutter = cavity.Clutter().fit(X[:, 0])
    table = clutter.summary()
    assert table.names == ("mean",)
    assert table.columns["sd"][0] == np.sqrt(clutter.variance)
    assert cavity.Clutter().fit(FRAME).summary().names == ("wait", "size")
    batch = cavity.Clutter().fit(X[:64].reshape(2, 32, 2))
    assert batch.summary().names[-1] == "problem 1: x2"
    np.testing.assert_array_equal(batch.summary().columns["mean"], batch.mean.ravel())
    unit = cavity.UnitMixture(2).fit(X[:, 0])
    assert unit.summary().below.names == ("weight[0]", "weight[1]", "noise_variance")
    np.testing.assert_array_equal(unit.summary().columns["sd"], np.sqrt(unit.variance))
    named = cavity.UnitMixture(2).fit(FRAME[["wait"]])
    assert named.summary().names == ("mean[0, wait]", "mean[1, wait]")
    assert "'wait'" in repr(named)
    factors = cavity.FactorizedGaussian(0.0, np.diag([1.0, 4.0])).fit()
    assert factors.summary().columns["sd"].tolist() == [1.0, 0.5]


def test_the_noise_of_a_regression():
    posterior = cavity.LinearRegression(intercept=False).fit(X, X @ [1.0, 0.5] + RNG.normal(size=65))
    q = posterior.noise_precision
    truth = stats.invgamma(q.shape, scale=q.rate)
    frame = posterior.summary(level=0.8).below.to_frame()
    assert frame.loc["noise_variance"].tolist() == pytest.approx([truth.mean(), truth.std(), *truth.interval(0.8)])
    assert cavity.LinearRegression(intercept=False, noise_variance=1.0).fit(X, X[:, 0]).summary().below is None
    few = summary.tabulate_marginals(
        "", summary.make_inverse_gamma_marginals(("a",), np.array([1.5]), np.array([1.0])), 0.9
    )
    assert few.columns["mean"].tolist() == pytest.approx([2.0])
    assert repr(few).splitlines()[2].split()[:2] == ["a", "2"]  # no sd


def test_states_at_the_end_of_chains():
    chain = cavity.GaussianProcess(covariances.Matern32(), likelihoods.Gaussian(0.5), 0.0, "chain")
    posterior = chain.fit(X[:, :1], X[:, 1], learn=False)
    end = posterior.keep_end()
    assert end.summary().names == posterior.summary().names
    assert "matern32.variance" in end._repr_html_()


def test_hyperparameters_by_their_names():
    noise = covariances.White(0.1, fixed="variance")
    model = cavity.GaussianProcess(
        covariances.RBF(1.0, [1.0, 2.0]) + noise, likelihoods.Gaussian(0.5), mean=[1.0, 2.0, 3.0]
    )
    posterior = model.fit(FRAME, X[:, 0], learn=False)
    assert dict(zip(posterior.summary().names, posterior.summary().columns["value"], strict=True)) == {
        "rbf.variance": 1.0,
        "rbf.lengthscale[wait]": 1.0,
        "rbf.lengthscale[size]": 2.0,
        "noise_variance": 0.5,
        "mean": 1.0,
        "mean, wait": 2.0,
        "mean, size": 3.0,
    }
    chosen = cavity.GaussianProcess(covariances.RBF(1.0, [2.0], columns=[1]), likelihoods.Gaussian(0.5))
    table = chosen.fit(FRAME, X[:, 0], learn=False).summary()
    assert table.names[1] == "rbf.lengthscale[size]"
    ordered = cavity.GaussianProcess(covariances.RBF(), likelihoods.OrderedProbit([0.0, 1.0]))
    table = ordered.fit(X, np.arange(65) % 3, learn=False).summary()
    assert table.names[-3:] == ("thresholds[0]", "thresholds[1]", "mean")
    state = cavity.StreamingGP(covariances.RBF(), n_inducing=5).fit(X, X[:, 0], learn=False)
    assert state.summary().notes == (f"log_bound {state.log_bound:.3f}",)


def test_what_did_not_converge_says_so():
    with pytest.warns(cavity.ConvergenceWarning):
        posterior = cavity.GLM("probit", prior_variance=1.0, intercept=True).fit(X, X[:, 0] > 1, max_iter=1)
    assert "NOT CONVERGED: max_iter reached" in repr(posterior.summary())


def test_intervals_of_what_was_learnt():
    """Those of the log-normal and the logit-normal distribution, and normal ones of thresholds."""
    learnt = cavity.Hyperparameters(
        ("scale", "clutter_weight", "thresholds[0]", "x"), (2.0, 0.9, -0.5, 3.0), (0.5, 0.05, 0.2, None)
    )
    scales = [choose_scale(name, likelihoods.Clutter(0.2, 9.0, 1.0)) for name in learnt.names[:2]]
    assert scales == ["log", "logit"]
    assert choose_scale("thresholds[0]", likelihoods.OrderedProbit()) == "as it is"
    assert choose_scale("corr(a, b | g)", likelihoods.Probit()) == "Fisher z"
    columns = learnt.names, learnt.values, learnt.sd
    table = tabulate_estimates("", *columns, scales=[*scales, "as it is", "log"], level=0.8)
    assert list(table.columns) == ["value", "standard error", "10%", "90%"]
    logit = stats.norm(np.log(9.0), 0.05 / 0.09).ppf([0.1, 0.9])
    expected = [
        stats.lognorm(0.25, scale=2.0).ppf([0.1, 0.9]),
        1.0 / (1.0 + np.exp(-logit)),
        stats.norm(-0.5, 0.2).ppf([0.1, 0.9]),
        [np.nan, np.nan],
    ]
    np.testing.assert_allclose(np.column_stack([table.columns["10%"], table.columns["90%"]]), expected, rtol=SOLVES)
    assert repr(table).splitlines()[-1].split() == ["x", "3"]
    assert np.isnan(estimate_interval(1.0, 0.1, "Fisher z", 0.95)).all()


def test_hyperparameters_with_standard_errors_have_intervals():
    posterior = cavity.GaussianProcess(covariances.RBF()).fit(X[:40], np.sin(X[:40, 1]) + RNG.normal(0.0, 0.3, 40))
    table = replace(posterior, hyperparameters=posterior.standard_errors()).summary(level=0.5)
    logs = np.log([table.columns[name][0] for name in ("25%", "value", "75%")])
    assert logs[2] - logs[1] == pytest.approx(logs[1] - logs[0])
    assert logs[2] - logs[1] == pytest.approx(0.6744897501960817 * table.columns["standard error"][0] / np.exp(logs[1]))
    f = X[:, 0] + RNG.normal(size=len(X))
    ordered = cavity.GLM("ordered-probit").fit(X, np.digitize(f, [-0.5, 0.5]))
    assert list(ordered.summary(level=0.5).below.columns) == ["value", "standard error", "25%", "75%"]


def test_names_with_line_breaks_stay_on_one_line():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a\nb\tc": [1.0, 2.0, 3.0, 5.0], "y": [1.0, 2.0, 3.0, 4.0]})
    posterior = cavity.GLM("gaussian", intercept=True).fit(frame, "y")
    assert "  a\\nb\\tc  " in repr(posterior.summary())
    assert "a\\nb\\tc" in posterior.summary()._repr_html_()
    assert posterior.summary().names[1] == "a\nb\tc"


def test_one_row_and_one_column_are_singular():
    one, y = np.ones((1, 1)), [2.0]
    count = r"1 (weight|row|fixed effect|random effect|inducing point|component|column|response|point)s\b"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posteriors = (
            cavity.GLM(likelihoods.Gaussian(1.0)).fit(one, y),
            cavity.MixedGLM("g", likelihoods.Gaussian(1.0)).fit(one, y, groups=["a"]),
            cavity.GaussianProcess("rbf", likelihoods.Gaussian(1.0)).fit(one, y, learn=False),
            cavity.GaussianProcess("matern12", likelihoods.Gaussian(1.0), method="chain").fit(one, y, learn=False),
            cavity.StreamingGP("rbf", likelihoods.Gaussian(1.0)).fit(one, y, learn=False),
            cavity.LinearRegression().fit(one, y),
            cavity.GaussianMixture(1, covariance_prior=one).fit(one),
            cavity.GLM(likelihoods.Gaussian(1.0)).fit_many(one, [[2.0]]),
        )
    for posterior in posteriors:
        assert "1 row" in repr(posterior)
        assert not re.search(count, repr(posterior))
