"""Leave-one-out predictions are those of refits; calibration and PIT count how often rows are as predicted."""

import numpy as np
import pytest
from scipy import stats
from support.plots import RNG, TWO, X, Y, glm, process
from support.tolerances import AT_REST, EARLY

import cavity
from cavity import covariances, likelihoods, plot


def test_left_out_rows_are_refits():
    """What a process without a row predicts for it, and which rows that does not hold."""
    posterior = process(1)
    mean, variance = plot.calibration.compute_loo_moments(posterior, posterior._rows.y)
    model = cavity.GaussianProcess(posterior.model.covariance, posterior.model.likelihood)
    outside = []
    for i in range(0, 60, 7):
        rest = model.fit(np.delete(X[:, :1], i, axis=0), np.delete(Y, i), learn=False)
        moments = rest.predict(X[[i], :1])
        np.testing.assert_allclose([mean[i], variance[i]], np.ravel(moments), rtol=EARLY)
        low, high = rest.quantile(X[[i], :1], [0.025, 0.975])[0]
        outside.append(not low < Y[i] < high)
    display = plot.EffectDisplay.from_posterior(posterior)
    assert display.surprising[::7].tolist() == outside
    rings = next(line for line in display.ax_.lines if line.get_label().startswith("outside"))
    np.testing.assert_array_equal(rings.get_xdata(), X[display.surprising, 0])


def test_weighted_rows_have_no_rings():
    model = cavity.GaussianProcess(covariances.RBF(4.0), likelihoods.Gaussian(0.1))
    posterior = model.fit(X[:, :1], Y, sample_weight=np.repeat([1.0, 3.0], 30), learn=False)
    assert plot.EffectDisplay.from_posterior(posterior).surprising is None
    with pytest.raises(ValueError, match="leave-one-out predictions are drawn for the rows as they were fitted"):
        plot.PITDisplay.from_posterior(posterior)


def test_calibration_counts_rows():
    y, probability = RNG.random(500) < 0.3, RNG.random(500)
    display = plot.CalibrationDisplay.from_predictions(y, np.append(probability[1:], np.nan), n_bins=5)
    y, probability = y[:-1], probability[1:]
    for k in range(5):
        inside = (probability >= k / 5) & (probability < (k + 1) / 5)
        truth = display.count[k], display.share[k], display.probability[k]
        assert truth == pytest.approx((inside.sum(), y[inside].mean(), probability[inside].mean()))
    loo = glm("probit", TWO)
    display = plot.CalibrationDisplay.from_posterior(loo, y=TWO)
    probability = np.where(TWO == "yes", np.exp(loo.loo_log_density), -np.expm1(loo.loo_log_density))
    count = np.histogram(probability, 10, (0, 1))[0]
    np.testing.assert_array_equal(display.count, count[count > 0])
    assert display.ax_.get_xlabel() == "leave-one-out probability of y = yes"


@pytest.mark.sample(2)
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_pit_is_uniform_where_the_model_is_right(likelihood):
    rng = np.random.default_rng(1)
    new = rng.normal(size=(4000, 1))
    f = 0.5 + 0.7 * new[:, 0]
    y = rng.poisson(np.exp(f)) if likelihood == "poisson" else f + 0.5 * rng.normal(size=4000)
    posterior = cavity.GLM(likelihood, prior_variance=9.0, intercept=True).fit(new[:1000], y[:1000])
    display = plot.PITDisplay.from_posterior(posterior, new[1000:], y[1000:])
    np.testing.assert_allclose(display.density, 1.0, atol=0.15)
    assert display.density.sum() == pytest.approx(10.0)
    off = plot.PITDisplay.from_posterior(posterior, new[1000:], y[1000:] + 2)
    assert off.density[-1] > 2.0
    left = plot.PITDisplay.from_posterior(posterior, new[:1000], y[:1000], loo=True)
    assert left.ax_.get_xlabel().startswith("leave-one-out")


def test_pit_of_numbers_is_their_distribution_function():
    posterior = glm()
    mean, variance = posterior.predict(X, noise=True)
    truth = plot.PITDisplay.from_predictions(stats.norm.cdf((Y - mean) / np.sqrt(variance)), n_bins=4)
    display = plot.PITDisplay.from_posterior(posterior, X, Y, n_bins=4)
    np.testing.assert_allclose(display.density, truth.density)


@pytest.mark.long_cases("glu ~ bmi + (1 | type)")
@pytest.mark.parametrize("formula", ["type ~ glu + bmi", "glu ~ bmi + type", "glu ~ bmi + (1 | type)"])
def test_tables_of_formulas_are_drawn_as_predicted_rows(formula):
    """The last panel has the rows, predicted from all others."""
    pytest.importorskip("formulae")
    table, _ = cavity.data.table("pima", as_frame=True)
    posterior = cavity.GLM(formula).fit(table)
    *_, panel = posterior.plot(table)
    y = "type = Yes" if posterior.classes else "glu"
    assert y in panel.get_xlabel()
    if not posterior.classes:
        predicted = table["glu"] - posterior.residuals(table, kind="response")
        np.testing.assert_allclose(panel.collections[0].get_offsets()[:, 0], predicted, rtol=AT_REST)
