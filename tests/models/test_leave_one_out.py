"""Leave-one-out records: sums, errors, and rows that are doubtful because a refit without them differs."""

import numpy as np
import pytest
from support.tolerances import AT_REST, OPTIMUM, ROOT_EPS, SLOPES

import cavity
from cavity import covariances, likelihoods
from cavity.models.leave_one_out import DOUBTFUL_NATS, DOUBTFUL_REACTION, LeaveOneOut, make_record

RNG = np.random.default_rng(5)
X = np.column_stack([np.ones(40), RNG.normal(size=(40, 2))])
Y = np.where(X @ [0.2, 2.0, -1.0] + RNG.normal(size=40) > 0, 1, -1)
LONELY = X.copy()
LONELY[3], LONELY_Y = [1.0, 6.0, 0.0], np.where(np.arange(40) == 3, -1, Y)  # far off, and in the wrong class


def divergence(mean, variance, other_mean, other_variance):
    return 0.5 * (np.log(variance / other_variance) + (other_variance + (mean - other_mean) ** 2) / variance - 1.0)


@pytest.mark.parametrize("options", [{}, {"power": 0.5}, {"schedule": "sequential"}])
def test_influence_is_how_far_the_posterior_moves_without_a_site(options):
    """KL of all weights, from the posterior with the site divided out by hand."""
    posterior = cavity.GLM(likelihoods.Probit(), prior_variance=4.0).fit(X, Y, **options)
    record = posterior.loo()
    precision = np.linalg.inv(posterior.covariance)
    for i in range(40):
        left = precision - posterior.sites.rho[i] * np.outer(X[i], X[i])
        mean = np.linalg.solve(left, precision @ posterior.mean - posterior.sites.tau[i] * X[i])
        p = cavity.distributions.MultivariateGaussian(mean, precision=left)
        q = cavity.distributions.MultivariateGaussian(posterior.mean, posterior.covariance)
        assert record.influence[i] == pytest.approx(cavity.kl(p, q), rel=OPTIMUM)
    np.testing.assert_array_equal(record.log_density, posterior.loo_log_density)
    assert record.sum == pytest.approx(posterior.loo_log_density.sum())
    assert record.standard_error == pytest.approx(np.sqrt(40) * np.std(posterior.loo_log_density, ddof=1))


def test_a_row_that_carries_the_fit_is_doubtful_and_a_refit_says_why():
    model = cavity.GLM(likelihoods.Probit(), prior_variance=25.0)
    posterior = model.fit(LONELY, LONELY_Y)
    with pytest.warns(cavity.NumericalWarning, match=r"leave-one-out is doubtful in 1 row \(3; from 0\).*0.5 nats"):
        record = posterior.loo()
    assert np.flatnonzero(record.doubtful).tolist() == [3]
    gaps = np.empty(40)
    for i in range(40):
        rest = np.arange(40) != i
        refit = model.fit(LONELY[rest], LONELY_Y[rest]).log_density(LONELY[[i]], LONELY_Y[[i]])[0]
        gaps[i] = abs(refit - record.log_density[i])
    assert gaps[3] > 0.5
    assert gaps[~record.doubtful].max() < 0.12
    assert "doubtful        3" in repr(record)


def test_gaussian_noise_is_exact_however_far_a_row_lies():
    y = X @ [0.2, 2.0, -1.0] + 100.0 * (np.arange(40) == 3)
    fits = {
        "glm": cavity.GLM(likelihoods.Gaussian(1.0), prior_variance=4.0).fit(X, y),
        "gp": cavity.GaussianProcess(covariances.RBF()).fit(X[:, 1:], y, learn=False),
    }
    for posterior in fits.values():
        assert not posterior.loo().doubtful.any()


@pytest.mark.parametrize("prior", [4.0, [4.0, 1.0, 0.5], np.diag([4.0, 1.0, 0.5]) + 0.1])
def test_rows_are_doubtful_where_many_parameters_react(prior):
    posterior = cavity.GLM(likelihoods.Probit(), prior_variance=prior).fit(LONELY, LONELY_Y)
    shares = posterior.sites.rho * posterior.predict(LONELY)[1]  # of what is known of a row's f, its own
    influence, parameters = posterior._influences()
    assert parameters == pytest.approx(shares.sum())
    truth = (influence > DOUBTFUL_NATS) & (influence * shares.mean() > DOUBTFUL_REACTION)
    np.testing.assert_array_equal(make_record(posterior).doubtful, truth)
    process = cavity.GaussianProcess(covariances.RBF(), likelihoods.Probit()).fit(X[:, 1:], Y, learn=False)
    assert process._influences()[1] == pytest.approx(np.sum(process.sites.rho * process.variance))
    clutter = cavity.Clutter().fit(X)
    prior = cavity.Clutter().prior_variance
    assert clutter._influences()[1] == pytest.approx(3 * (1.0 - clutter.variance / prior))


def test_a_large_table_takes_a_wild_row():
    x = np.column_stack([np.ones(2000), np.random.default_rng(0).normal(size=2000)])
    y = np.where(x[:, 1] + np.random.default_rng(1).normal(size=2000) > 0, 1, -1)
    x[0, 1], y[0] = 6.0, -1
    record = cavity.GLM(likelihoods.Probit(), prior_variance=4.0).fit(x, y).loo()
    assert record.influence.max() > DOUBTFUL_NATS
    assert not record.doubtful.any()


def test_what_is_not_known_is_not_said():
    record = cavity.GLM(likelihoods.Probit(), approximation="diagonal").fit(X, Y, max_iter=500).loo()
    assert record.influence is None
    assert record.doubtful is None
    assert "doubtful        not known" in repr(record)
    assert list(record.to_frame().columns) == ["log_density"]
    with pytest.raises(ValueError, match="leave-one-out densities need a fit by EP"):
        cavity.GLM(likelihoods.Probit()).fit(X, Y, method="adf").loo()


def test_weights_and_rows_left_out():
    weights = np.array([0.0, 2.0, 0.5, *np.ones(37)])
    posterior = cavity.GLM(likelihoods.Probit(), prior_variance=4.0).fit(X, Y, sample_weight=weights)
    twice = np.r_[1, 1:40]
    same = cavity.GLM(likelihoods.Probit(), prior_variance=4.0).fit(
        X[twice], Y[twice], sample_weight=weights[1:][twice - 1].clip(max=1)
    )
    record, repeated = posterior.loo(), same.loo()
    assert record.influence[0] == 0.0
    np.testing.assert_allclose(record.influence[1:], repeated.influence[1:], rtol=SLOPES)


def test_clutter_counts_all_coordinates():
    x = np.random.default_rng(0).normal(2.0, 1.0, (2, 9, 2))
    batch = cavity.Clutter().fit(x)
    record = batch.loo()
    assert record.sum.shape == record.standard_error.shape == (2,)
    one = cavity.Clutter().fit(x[1])
    q, sites = one.posterior, one.sites
    left = 1.0 / (q.rho - sites.rho)
    apart = left[:, None] * (q.tau - sites.tau) - q.mean
    truth = divergence(0.0, q.variance, apart, left[:, None]).sum(axis=1)
    np.testing.assert_allclose(one.loo().influence, truth, rtol=AT_REST)
    np.testing.assert_allclose(record.influence[1], truth, rtol=OPTIMUM)


def test_saved_and_loaded(tmp_path):
    fits = {
        "glm": cavity.GLM(likelihoods.Probit()).fit(X, Y),
        "gp": cavity.GaussianProcess(covariances.RBF(), likelihoods.Probit()).fit(X[:, 1:], Y, learn=False),
    }
    for name, posterior in fits.items():
        posterior.save(tmp_path / name)
        np.testing.assert_array_equal(cavity.load(tmp_path / name).loo().influence, posterior.loo().influence)


def test_records_of_few_rows_and_of_impossible_ones():
    single = LeaveOneOut(np.array([-1.0]), np.zeros(1), np.zeros(1, dtype=bool))
    assert (single.sum, single.standard_error) == (-1.0, np.inf)
    assert "1 row\n" in repr(single)
    impossible = LeaveOneOut(np.array([-1.0, -np.inf]), np.array([0.1, 0.6]), np.array([False, True]))
    assert (impossible.sum, impossible.standard_error) == (-np.inf, np.inf)
    assert impossible.to_frame()["doubtful"].tolist() == [False, True]
    assert make_record(cavity.Clutter().fit([0.1, 2.3])).log_density.shape == (2,)


# ------------------------------------------------------------------------------------------ sample weights

WEIGHTS = np.random.default_rng(6).integers(0, 4, 40).astype(float)
COPIES = np.repeat(np.arange(40), WEIGHTS.astype(int))
LATENT = X @ [0.2, 2.0, -1.0]
OBSERVED = {
    "probit": (likelihoods.Probit(), Y),
    "poisson": (likelihoods.Poisson(), np.random.default_rng(7).poisson(np.exp(0.5 * LATENT))),
    "student-t": (likelihoods.StudentT(4.0, 0.5), LATENT + np.random.default_rng(8).standard_t(3, 40)),
    "gaussian": (likelihoods.Gaussian(0.5), LATENT + np.random.default_rng(9).normal(size=40)),
}


def fitted(family, name, rows=slice(None), **options):
    likelihood, y = OBSERVED[name]
    x, y, groups = X[rows], y[rows], {"g": (np.arange(40) % 5)[rows]}
    if family == "gp":
        return cavity.GaussianProcess(covariances.RBF(), likelihood).fit(x[:, 1:], y, learn=False, **options)
    if family == "mixed":
        model = cavity.MixedGLM("g", likelihood, prior_variance=4.0, effect_covariances={"g": 0.5})
        return model.fit(x, y, groups=groups, **options)
    approximation = "diagonal" if family == "diagonal" else "full"
    options |= {"power": 0.5} if family == "power" else {}
    return cavity.GLM(likelihood, prior_variance=4.0, approximation=approximation).fit(x, y, max_iter=2000, **options)


@pytest.mark.parametrize("name", OBSERVED)
@pytest.mark.parametrize("family", ["glm", "power", "diagonal", "gp", "mixed"])
def test_whole_weights_are_rows_written_out(family, name):
    weighted = make_record(fitted(family, name, sample_weight=WEIGHTS))
    written = make_record(fitted(family, name, COPIES))
    used = WEIGHTS > 0
    assert weighted.sum == pytest.approx(written.sum, rel=ROOT_EPS)
    assert weighted.standard_error == pytest.approx(written.standard_error, rel=ROOT_EPS)
    np.testing.assert_allclose(
        weighted.log_density[used], written.log_density[np.searchsorted(COPIES, np.arange(40)[used])], atol=ROOT_EPS
    )
    if weighted.doubtful is not None:
        np.testing.assert_array_equal(weighted.doubtful[COPIES], written.doubtful)
    assert f"40 rows of weight {WEIGHTS.sum():g} in all" in repr(weighted)
    np.testing.assert_array_equal(weighted.to_frame()["weight"], WEIGHTS)


@pytest.mark.parametrize("weight", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("family", ["glm", "gp", "mixed"])
def test_one_unit_of_a_row_is_left_out_or_all_of_it(family, weight):
    """With Gaussian noise exactly what a fit with that much less of the row predicts for it."""
    weights = np.where(np.arange(40) == 3, weight, 1.0)
    fewer = np.where(np.arange(40) == 3, max(weight - 1.0, 0.0), 1.0)
    likelihood, y = OBSERVED["gaussian"]
    record = make_record(fitted(family, "gaussian", sample_weight=weights))
    refit = fitted(family, "gaussian", sample_weight=fewer)
    rows = {"gp": X[3:4, 1:]}.get(family, X[3:4])
    rows = refit.rows(rows, {"g": [3]}) if family == "mixed" else rows
    assert record.log_density[3] == pytest.approx(refit.log_density(rows, y[3:4])[0], rel=AT_REST)
    assert record.sum == pytest.approx(np.sum(weights * record.log_density))


def test_rows_of_weight_zero_count_nothing_even_where_they_are_impossible():
    record = LeaveOneOut(np.array([-1.0, -np.inf, -3.0]), None, None, np.array([2.0, 0.0, 1.0]))
    written = LeaveOneOut(np.array([-1.0, -1.0, -3.0]), None, None)
    assert (record.sum, record.standard_error) == (written.sum, pytest.approx(written.standard_error))
    few = LeaveOneOut(np.array([-1.0, -2.0]), None, None, np.array([0.5, 0.5]))
    assert (few.sum, few.standard_error) == (-1.5, np.inf)


def test_equal_weights_change_no_bit():
    plain, ones = fitted("glm", "probit"), fitted("glm", "probit", sample_weight=np.ones(40))
    assert make_record(ones).weights is None
    assert make_record(ones).sum == make_record(plain).sum


@pytest.mark.parametrize("family", ["glm", "gp", "mixed"])
def test_weights_are_in_files(family, tmp_path):
    posterior = fitted(family, "probit", sample_weight=WEIGHTS)
    posterior.save(tmp_path / "file")
    restored = make_record(cavity.load(tmp_path / "file"))
    np.testing.assert_array_equal(restored.weights, WEIGHTS)
    assert restored.sum == make_record(posterior).sum


def test_groups_left_out_have_the_weights_of_the_fit():
    groups = {"g": np.arange(40) % 5}
    weighted, written = fitted("mixed", "probit", sample_weight=WEIGHTS), fitted("mixed", "probit", COPIES)
    truth = written.leave_group_out("g", X[COPIES], Y[COPIES], groups={"g": groups["g"][COPIES]})
    for options in ({"sample_weight": WEIGHTS}, {}):
        np.testing.assert_allclose(weighted.leave_group_out("g", X, Y, groups=groups, **options), truth, rtol=OPTIMUM)
