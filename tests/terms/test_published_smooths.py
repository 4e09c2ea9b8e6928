"""Smooths of 203 cars beside the numbers of mgcv that statsmodels ships for its own tests, where it is installed.

mgcv: gam(city.mpg ~ fuel + drive + s(weight, bs = "bs", k = 12) + s(hp, bs = "bs", k = 10)), knots at quantiles,
Gaussian and Poisson. Not comparable: its amounts of smoothing, as they minimise GCV and UBRE and not an evidence, so
that they are given here; its coefficients, of other bases; its penalty of hp, of which only the scale is there, to
seven digits; and under Poisson noise its posterior, a normal at the mode where ours has moments.
"""

from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import BSpline
from support.tolerances import EARLY, EXPANSION, INTEGRAL, ROOT_EPS

import cavity
from cavity import likelihoods
from cavity.terms import splines

pd = pytest.importorskip("pandas")
gaussian = pytest.importorskip("statsmodels.gam.tests.results.results_mpg_bs")
poisson = pytest.importorskip("statsmodels.gam.tests.results.results_mpg_bs_poisson")

SCALES = {"weight": gaussian.mpg_bs.smooth0.S_scale, "hp": 0.007945455}  # of mgcv's penalties
KNOTS = {
    "weight": gaussian.mpg_bs.smooth0.knots[3:-3],
    "hp": np.array([48.0, 68.0, 73.0, 88.0, 101.0, 116.0, 152.28571428571428, 288.0]),
}


@pytest.fixture(scope="module")
def cars():
    table = pd.read_csv(Path(gaussian.__file__).parent / "autos.csv")
    return table[["city_mpg", "fuel", "drive", "weight", "hp"]].dropna()


def fit_with(cars, likelihood, results):
    """The model with mgcv's amounts of smoothing: its penalty sp / scale of the squared second derivative."""
    terms, values = [], {}
    for (name, scale), sp in zip(SCALES.items(), results.sp, strict=True):
        breaks = KNOTS[name]
        terms.append(f"s({name}, knots=({', '.join(map(repr, map(float, breaks)))}))")
        v = results.scale * scale / sp
        values[f"s({name})"] = {"sd": np.sqrt(v * (breaks[-1] - breaks[0]) ** 3 / 420.0)}
    formula = "city_mpg ~ fuel + drive + " + " + ".join(terms)
    return cavity.MixedGLM(formula, likelihood, prior_variance=1e12, effect_covariances=values).fit(cars)


def test_gaussian_fits_and_errors(cars):
    results = gaussian.mpg_bs
    posterior = fit_with(cars, likelihoods.Gaussian(results.scale), results)
    mean, variance = posterior.predict(cars)
    np.testing.assert_allclose(mean, results.fitted_values, rtol=ROOT_EPS)
    np.testing.assert_allclose(np.sqrt(variance), np.sqrt(results.hat * results.scale), rtol=EARLY)
    lines = 1.0  # of which mgcv counts one a term
    np.testing.assert_allclose(posterior.term_summary().columns["edf"], results.edf - lines, rtol=EARLY)


def test_poisson_fits_are_near_the_mode(cars):
    results = poisson.mpg_bs_poisson
    posterior = fit_with(cars, likelihoods.Poisson(), results)
    mean, variance = posterior.predict(cars)
    errors = np.sqrt(results.hat / results.weights)
    assert np.max(np.abs(mean - results.linear_predictors) / errors) < 0.1
    np.testing.assert_allclose(np.sqrt(variance), errors, rtol=EXPANSION)
    np.testing.assert_allclose(posterior.term_summary().columns["edf"], results.edf - 1.0, rtol=EXPANSION)


def test_the_penalty_of_weight(cars):
    """In mgcv's basis: splines with repeated knots at the ends, and means over the rows of zero by a reflection."""
    knots, breaks = gaussian.mpg_bs.smooth0.knots, KNOTS["weight"]
    length = breaks[-1] - breaks[0]
    t = np.linspace(0.0, 1.0, 200)
    ours = splines.extend_knots((breaks - breaks[0]) / length)
    theirs = BSpline.design_matrix(breaks[0] + t * length, knots, 3).toarray()
    change = np.linalg.lstsq(splines.evaluate(t, ours).toarray(), theirs, rcond=None)[0]
    means = BSpline.design_matrix(cars["weight"].to_numpy(float), knots, 3).toarray().mean(axis=0)
    free = np.linalg.qr(means[:, None], mode="complete")[0][:, 1:]
    basis = change @ free
    S = basis.T @ splines.roughness(ours) @ basis / length**3
    np.testing.assert_allclose(S, gaussian.mpg_bs.smooth0.S * SCALES["weight"], rtol=INTEGRAL)
