"""Many Gaussian responses: evidence, its derivatives and its maximum against dense algebra."""

import numpy as np
from scipy import stats
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL

import cavity
from cavity.models.many.batch import LogNormalPriors
from cavity.models.many.gaussian import GaussianSolver

RNG = np.random.default_rng(3)
N, B = 30, 5
DONOR, PLATE = np.arange(N) % 6, RNG.integers(0, 4, N)
X = np.column_stack([np.ones(N), RNG.normal(size=N)])
FEATURES = np.column_stack([X, DONOR[:, None] == np.arange(6), PLATE[:, None] == np.arange(4)])
GROUPS = [slice(2, 8), slice(8, 12)]
Y = RNG.normal(size=(B, 6))[:, DONOR] + 0.5 * RNG.normal(size=(B, 4))[:, PLATE] + 0.7 * RNG.normal(size=(B, N))
SCALE, BASE = np.exp(RNG.normal(size=(B, 12))), RNG.normal(size=(B, N))
WEIGHTS = RNG.integers(1, 4, N) / 1.0


def make_solver(priors=None, noise=None, weights=WEIGHTS):
    k = (noise is None) + 2
    priors = LogNormalPriors.flat(B, k) if priors is None else priors
    return GaussianSolver(FEATURES, Y, BASE, SCALE.copy(), weights, noise, GROUPS, priors, 100)


def find_log_density(number, free, repeats):
    """The log density of a response whose rows occur so often, by its dense covariance."""
    factors = np.repeat([1.0, *np.exp(free[1:])], [2, 6, 4])
    rows = np.repeat(np.arange(N), repeats)
    F = FEATURES[rows]
    covariance = (F * SCALE[number] ** 2 * factors) @ F.T + np.exp(free[0]) * np.eye(len(rows))
    return stats.multivariate_normal(BASE[number, rows], covariance).logpdf(Y[number, rows])


def test_the_evidence_is_a_dense_density():
    free = RNG.normal(size=(B, 3))
    part = make_solver().evaluate(np.arange(B), free)
    expected = [find_log_density(b, free[b], WEIGHTS.astype(int)) for b in range(B)]
    np.testing.assert_allclose(part.value, expected, rtol=INTEGRAL)


def test_derivatives_are_differences():
    priors = LogNormalPriors(RNG.normal(size=(B, 3)), np.array([0.5, np.inf, 2.0]))
    solver, free, step = make_solver(priors), RNG.normal(size=(B, 3)), 1e-4
    part = solver.evaluate(np.arange(B), free)
    for j in range(3):
        high, low = (solver.evaluate(np.arange(B), free + sign * step * np.eye(3)[j]) for sign in (1.0, -1.0))
        np.testing.assert_allclose((high.value - low.value) / (2 * step), part.slope[:, j], rtol=EXPANSION)
        bends = (high.slope - low.slope) / (2 * step)
        np.testing.assert_allclose(bends, part.hessian[:, j], rtol=EXPANSION, atol=EARLY)


def test_maxima_are_no_lower_than_their_surroundings():
    for noise in (None, 0.6):
        solver = make_solver(noise=noise)
        solution = solver.solve()
        assert solution.solved.all()
        for step in 0.01 * RNG.normal(size=(10, *solution.free.shape)):
            moved = solver.evaluate(np.arange(B), solution.free + step).value
            assert np.all(moved <= solution.log_evidence + EARLY)  # at rest where slopes are below 1e-5


def test_two_terms_and_weights_are_fits_alone():
    table = {"x": X[:, 1], "donor": DONOR, "plate": PLATE}
    effects = "~ x + (1 | donor) + (1 | plate)"
    many = cavity.MixedGLM(effects, "gaussian").fit_many(table, Y.T, sample_weight=WEIGHTS)
    assert many.parameter_names == ("noise_variance", "sd(intercept | donor)", "sd(intercept | plate)")
    for number in (0, 3):
        single = cavity.MixedGLM(f"y {effects}", "gaussian").fit(table | {"y": Y[number]}, sample_weight=WEIGHTS)
        assert many.log_evidence[number] >= single.log_evidence - AT_REST
        np.testing.assert_allclose(many.mean[number, :2], single.mean[:2], rtol=EXPANSION, atol=EXPANSION)
        np.testing.assert_allclose(many.parameters[number, 0], single.model.likelihood.noise_variance, rtol=EXPANSION)
