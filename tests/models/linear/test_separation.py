"""Columns that separate the observations: against linear programming, and what a fit says of them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

import cavity
from cavity import GLM, NumericalWarning, likelihoods
from cavity.base.rows import Rows
from cavity.models.linear.separation import separating_columns

OPEN = likelihoods.OrderedProbit()


def limits(likelihood, y):
    """Return the lowest and highest change of f, -inf, 0 or inf, that never makes a row less likely."""
    if isinstance(likelihood, likelihoods.Binomial):
        return -np.inf if y[0] == 0 else 0.0, np.inf if y[1] == y[0] else 0.0
    if isinstance(likelihood, likelihoods.Interval):
        return -np.inf if y[0] == -np.inf else 0.0, np.inf if y[1] == np.inf else 0.0
    if isinstance(likelihood, likelihoods.Poisson):
        return -np.inf if y == 0 else 0.0, 0.0
    top = 1 if isinstance(likelihood, likelihoods.Probit) else len(likelihood.thresholds)
    return -np.inf if y <= 0 else 0.0, np.inf if y >= top else 0.0


def separates(likelihood, x, y, has_intercept):
    """Whether some move of the weight of x, and of the intercept or thresholds, makes rows likelier without end.

    By linear programming over moves in [-1, 1], the sum of what the rows gain for its objective.
    """
    equal, below = [], []
    if likelihood is OPEN:  # moves of the thresholds come first: t_(y - 1) <= x w <= t_y
        n_moves = int(y.max())
        for xi, yi in zip(x, y.astype(int), strict=True):
            for k, sign in ((yi - 1, 1.0), (yi, -1.0)):
                if 0 <= k < n_moves:
                    below.append(np.append(sign * np.eye(n_moves)[k], -sign * xi))
    else:
        n_moves = int(has_intercept)
        for xi, yi in zip(x, y, strict=True):
            row = np.append(np.ones(n_moves), xi)
            low, high = limits(likelihood, yi)
            if low == high == 0.0:
                equal.append(row)
            elif low == 0.0:
                below.append(-row)
            elif high == 0.0:
                below.append(row)
    gain = np.sum(below, axis=0) if below else np.zeros(n_moves + 1)
    options = dict(A_ub=below or None, b_ub=np.zeros(len(below)) if below else None)
    options |= dict(A_eq=equal or None, b_eq=np.zeros(len(equal)) if equal else None)
    if linprog(gain, **options, bounds=[(-1, 1)] * (n_moves + 1)).fun >= -1e-9:  # an intercept alone is no column's
        return False
    return linprog(gain, **options, bounds=[(-1, 1)] * n_moves + [(0, 0)]).fun > -1e-9


def draw(rng, likelihood, n):
    if isinstance(likelihood, likelihoods.Binomial):
        trials = rng.integers(1, 3, n)
        return np.column_stack([rng.binomial(trials, 0.5), trials]).astype(float)
    if isinstance(likelihood, likelihoods.Interval):
        ends = np.column_stack([rng.normal(size=n), 3.0 + rng.normal(size=n)])
        ends[rng.random(n) < 0.6, 1] = np.inf
        ends[rng.random(n) < 0.3, 0] = -np.inf
        ends[np.isinf(ends).all(axis=1)] = [0.0, np.inf]
        return ends
    if isinstance(likelihood, likelihoods.Poisson):
        return rng.poisson(0.3, n).astype(float)
    if isinstance(likelihood, likelihoods.Probit):
        return rng.choice([-1.0, 1.0], n)
    return np.append(np.arange(3.0), rng.integers(0, 3, n - 3))


@pytest.mark.sample(5)
@pytest.mark.parametrize("n_problems", [6, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("has_intercept", [True, False])
@pytest.mark.parametrize(
    "likelihood",
    [
        likelihoods.Probit(),
        likelihoods.Poisson(),
        likelihoods.Binomial(),
        likelihoods.Interval(),
        likelihoods.OrderedProbit([0.0, 1.0]),
        OPEN,
    ],
)
def test_columns_are_those_of_linear_programming(likelihood, has_intercept, n_problems):
    rng = np.random.default_rng(7)
    counts = [0, 0]
    for _ in range(n_problems):
        n = int(rng.integers(4, 9))
        y = draw(rng, likelihood, n)
        X = np.column_stack([rng.integers(-1, 2, (n, 3)), rng.random((n, 3)) < 0.25, rng.normal(size=n)]).astype(float)
        expected = [j for j in range(7) if separates(likelihood, X[:, j], y, has_intercept)]
        assert separating_columns(likelihood, Rows(X, y), has_intercept).tolist() == expected
        weights = np.append(np.ones(n), 0.0)  # a last row that would mix the classes does not count
        more = Rows(np.vstack([X, 5.0 * X[:1]]), np.concatenate([y, y[-1:]]), weights=weights)
        assert separating_columns(likelihood, more, has_intercept).tolist() == expected
        counts[0] += len(expected)
        counts[1] += 7 - len(expected)
    assert min(counts) >= 5


def test_nothing_is_said_of_numbers_and_of_likelihoods_of_the_users_own():
    class Own(likelihoods.Likelihood):
        n_classes = 2

    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([-1.0, 1.0, 1.0])
    for likelihood in (likelihoods.Gaussian(), likelihoods.StudentT(), likelihoods.Step(), Own()):
        assert separating_columns(likelihood, Rows(X, y), True).size == 0


N = 600
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"x": RNG.normal(size=N), "rare": np.isin(np.arange(N), [5, 100, 400])})
Y = (RNG.random(N) < 0.5) & ~FRAME["rare"].to_numpy()
SAID = "y is separated by column 'rare': the data bound such a coefficient on one side only"


def test_a_fit_names_the_column(tmp_path):
    model = GLM("logit", intercept=True)
    with pytest.warns(NumericalWarning, match=SAID):
        posterior = model.fit(FRAME, Y)
    assert posterior.converged
    with pytest.warns(NumericalWarning, match=SAID):
        GLM("probit").fit(FRAME.assign(one=1.0), Y)
    with pytest.warns(NumericalWarning, match=SAID):
        GLM("poisson", intercept=True).fit(FRAME, np.where(Y, 2, np.where(FRAME["rare"], 0, 1)))
    with pytest.warns(NumericalWarning, match="column 'x1' and by column 'x2' .* and by column 'x5' and by others: th"):
        model.fit(np.repeat(Y[:, None], 6, axis=1) + 0.0, Y)
    FRAME.astype(float).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.warns(NumericalWarning, match=SAID):
        model.fit(tmp_path / "rows.csv", Y)
    mixed = cavity.MixedGLM("y ~ x + rare + (1 | g)", "probit", effect_covariances={"g": 1.0})
    with pytest.warns(NumericalWarning, match=r"y is separated by column 'rare"):
        mixed.fit(FRAME.assign(y=Y, g=np.arange(N) % 20, rare=FRAME["rare"] + 0.0))


def test_a_given_prior_and_a_stream_are_not_searched():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GLM("logit", prior_variance=1.0, intercept=True).fit(FRAME, Y)
        GLM("logit", intercept=True).fit(FRAME, Y, method="adf")
        GLM("logit", intercept=True).fit(FRAME, Y ^ (np.arange(N) == 5))


def test_a_single_class_is_named_in_place_of_columns():
    with pytest.warns(NumericalWarning, match="^y holds one class in all 600 rows"):
        GLM("logit", intercept=True).fit(FRAME, np.ones(N))


@pytest.mark.parametrize(
    ("formula", "likelihood", "held"),
    [
        ("zero ~ x", "poisson", "no value above 0"),
        ("one ~ x", likelihoods.HurdlePoisson(0.5), "no value above 1"),
        ("surv(one, zero) ~ 1", "exponential", "no event"),
        ("p(zero, one) ~ x", None, "one outcome"),
    ],
)
def test_rows_without_a_maximum_in_the_intercept_are_named(formula, likelihood, held):
    table = {"x": np.random.default_rng(6).normal(size=30), "zero": np.zeros(30), "one": np.ones(30)}
    with pytest.warns(NumericalWarning, match=f"^y holds {held} in all 30 rows, whose weights are bounded"):
        GLM(formula, likelihood).fit(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GLM("one ~ x", "poisson").fit(table)


def test_a_rare_column_shrinks():
    with pytest.warns(NumericalWarning, match=SAID):
        posterior = GLM("logit", intercept=True).fit(FRAME, Y)
    assert np.sqrt(posterior.model.prior_variance[2]) == 5.0
    assert -7.0 < posterior.mean[2] < -3.0


def test_rows_without_information_separate_nothing():
    """Zero trials, and bounds that hold for any f: no value of their column is likelier than another."""
    rng = np.random.default_rng(4)
    x, marked = rng.normal(size=40), np.arange(40) < 5
    X = np.column_stack([x, marked])
    with warnings.catch_warnings():
        warnings.simplefilter("error", NumericalWarning)
        GLM("binomial", intercept=True).fit(
            X, np.column_stack([np.where(marked, 0, rng.integers(1, 3, 40)), np.where(marked, 0, 3)])
        )
        ends = np.where(marked[:, None], [[-np.inf, np.inf]], np.column_stack([x - 1.0, x + 1.0]))
        GLM(likelihoods.Interval(1.0), intercept=True).fit(X, ends)
