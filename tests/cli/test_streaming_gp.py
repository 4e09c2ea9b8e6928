"""`cavity fit streaming-gp` as users run it: batches, scores of each before it is absorbed, errors, resuming."""

import io
import re
import sys
import warnings
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import integrate, special, stats
from support.commands import write
from support.tolerances import AT_REST, EXPANSION, PRINTED, SLOPES, SOLVES

import cavity
from cavity import covariances, data, likelihoods
from cavity.cli import input_tables, prequential, standard_output, streaming_gp


def batches(source, *sizes):
    """The batches of a table, all at once."""
    return [part for part, _ in input_tables.read_batches(SimpleNamespace(data=str(source)), *sizes)]


COMMAND = ("fit", "streaming-gp")


def table(n=90, seed=0):
    """Two columns in the order of the first, with targets of several kinds, an exposure and a weight."""
    rng = np.random.default_rng(seed)
    a, b = np.sort(rng.uniform(0, 9, n)), rng.uniform(-1, 1, n)
    f = np.sin(a) + b
    return {
        "a": a,
        "b": b,
        "real": 20 + 2 * (f + 0.2 * rng.normal(size=n)),
        "two": np.where(f + 0.3 * rng.normal(size=n) > 0, "yes", "no"),
        "level": np.array(["low", "mid", "top"])[np.digitize(f + 0.3 * rng.normal(size=n), [-0.6, 0.6])],
        "count": rng.poisson(np.exp(1 + f)).astype(float),
        "log_time": rng.normal(size=n),
        "weight": rng.integers(0, 3, n).astype(float),
    }


def scores_of(printed):
    """The rows of the table of scores: {rows: {column: number}}."""
    text = printed.split("before it was absorbed\n")[1]
    lines = re.split(r"\n(?:fit\n|  more)", text)[0].replace("in ", "in_").replace(" %", "")
    header, *rows = (line.replace("log density", "log_density").split() for line in lines.splitlines())
    return {name: dict(zip(header[1:], map(float, cells), strict=True)) for name, *cells in rows}


# ------------------------------------------------------------------------------------------------- the data


def test_co2_is_keelings():
    columns, about = data.table("co2")
    assert list(columns) == list(about["columns"]) == ["year", about["target"]]
    year, co2 = columns.values()
    # summary(co2) as R prints it
    assert np.quantile(co2, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx([313.2, 323.5, 335.2, 350.3, 366.8], abs=0.05)
    assert co2.mean() == pytest.approx(337.1, abs=0.05)
    assert len(co2) == 468
    np.testing.assert_allclose(year, 1959 + (np.arange(468) + 0.5) / 12, atol=SLOPES)
    # months that were not measured are interpolated
    np.testing.assert_allclose(co2[60:65], np.linspace(co2[60], co2[64], 5), atol=0.005)
    # the season is highest in May, lowest in September or October
    season = (co2.reshape(39, 12) - co2.reshape(39, 12).mean(axis=1, keepdims=True)).mean(axis=0)
    assert (season.argmax(), season.argmin()) == (4, 9)


# ------------------------------------------------------------------------------------------------- batches


def together(parts):
    """Cells and places of batches, one after the other."""
    cells = {name: [cell for part in parts for cell in cells_of(part, name)] for name in parts[0].names}
    return cells, [part.describe_row(row) for part in parts for row in range(len(part))]


def cells_of(part, name):
    """A column, text or numbers."""
    return (part.text(name) if part.is_text(name) else part.numbers(name)).tolist()


@pytest.mark.parametrize(("rows", "skip"), [(1, 0), (7, 0), (7, 3), (90, 0), (1000, 89)])
def test_batches_are_the_rows_of_the_file(tmp_path, rows, skip):
    columns = table()
    numeric = [name for name in columns if columns[name].dtype.kind == "f"]
    path = write(tmp_path / "x.csv", columns)
    path.write_text(path.read_text().replace("\n", "\n\n", 5))  # blank lines are no rows
    full = input_tables.open_table(SimpleNamespace(data=str(path)))
    parts = batches(path, rows, skip)
    assert [len(part) for part in parts[:-1]] == [rows] * (len(parts) - 1)
    cells, places = together(parts)
    everything = together([full])
    assert (cells, places) == ({name: everything[0][name][skip:] for name in cells}, everything[1][skip:])
    np.save(tmp_path / "x.npy", np.column_stack([columns[name] for name in numeric]))
    cells, places = together(batches(tmp_path / "x.npy", rows, skip))
    for j, name in enumerate(numeric):
        np.testing.assert_array_equal(cells[str(j + 1)], columns[name][skip:])
    assert places[0] == f"row {skip + 1}"


def test_the_first_batch_may_be_longer(run, tmp_path):
    path = write(tmp_path / "x.csv", table())
    assert [len(part) for part in batches(path, 20, 5, 31)] == [31, 20, 20, 14]
    assert [len(part) for part in batches("newcomb", 20, 0, 31)] == [31, 20, 15]
    arguments = "--x", "a", "--y", "real", "--covariance", "rbf(2,2)"
    status, printed, _ = run(path, *arguments, "--batch", 1, "--first", 85)
    assert status == 0
    assert "90 rows in 6 batches" in printed
    assert list(scores_of(printed)) == [*(f"{i}-{i}" for i in range(86, 91)), "all"]
    status, _, errors = run(path, *arguments, "--batch", 9)
    assert status == 2
    assert "the first batch has 9 rows, too few to learn from; say --first 200, for example" in errors


PLAIN = "--features", "a,b", "--target", "two"


def test_parquet(run, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = table()
    path = write(tmp_path / "x.csv", columns)
    parquet.write_table(arrow.table(columns), tmp_path / "x.parquet", row_group_size=13)
    sizes = [len(part) for part in batches(tmp_path / "x.parquet", 20, 15)]
    assert sizes == [20, 20, 20, 15]
    sizes = [len(part) for part in batches(tmp_path / "x.parquet", 20, 15, 31)]
    assert sizes == [31, 20, 20, 4]
    arguments = "--x", "a,b", "--y", "real", "--batch", 20, "--skip", 15, "--learn", "never", "--save"
    for suffix in ("csv", "parquet"):
        assert run(path.with_suffix(f".{suffix}"), *arguments, tmp_path / f"{suffix}.npz")[0] == 0
    one, other = (cavity.load(tmp_path / f"{suffix}.npz") for suffix in ("csv", "parquet"))
    np.testing.assert_array_equal(one.mean, other.mean)
    # the other commands read them too
    for command in (("fit", "gp"), ("fit", "glm")):
        done = [run(path.with_suffix(s), *PLAIN, command=command) for s in (".csv", ".parquet")]
        assert done[0][0] == 0
        assert done[0][1].split("\nfit\n")[0].split("\n", 1)[1] == done[1][1].split("\nfit\n")[0].split("\n", 1)[1]
    done = [run(path.with_suffix(s), "--column", "real", command=("fit", "clutter")) for s in (".csv", ".parquet")]
    assert done[0][1].split("\nfit\n")[0].split("\n", 1)[1] == done[1][1].split("\nfit\n")[0].split("\n", 1)[1]
    columns["real"] = [None if i == 50 else value for i, value in enumerate(columns["real"])]
    parquet.write_table(arrow.table(columns), tmp_path / "x.parquet")
    status, _, errors = run(tmp_path / "x.parquet", *arguments[:-1])
    assert status == 2
    assert "missing values in column 'real' in row 51;" in errors
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and what is no table PAR1")
    assert "x.parquet is not a Parquet file that can be read" in run(tmp_path / "x.parquet", *arguments[:-1])[2]


def test_parquet_without_arrow(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").touch()
    assert "pip install 'cavity[arrow]'" in run(tmp_path / "x.parquet")[2]


# ------------------------------------------------------------------------------------------------- scores


def dense_predictions(X, y, cut, gram, noise):
    """Mean and variance of the targets from `cut` on to the next, given those before, by dense formulas."""
    K = gram(X[:, None], X)
    for low, high in zip(cut, [*cut[1:], len(y)], strict=True):
        old, new = slice(0, low), slice(low, high)
        solved = np.linalg.solve(K[old, old] + noise * np.eye(low), K[old, new])
        yield new, solved.T @ y[old], np.diag(K[new, new] - K[new, old] @ solved) + noise


def test_scores_are_those_of_predictions_made_before(run, tmp_path):
    columns = table()
    path = write(tmp_path / "x.csv", columns)
    settings = "--variance", 2, "--lengthscale", 1.5, "--noise-variance", 0.2, "--mean", 20, "--learn", "never"
    sparse = "--inducing", 100, "--tolerance", 0, "--jitter", 1e-10
    status, printed, errors = run(path, "--x", "a", "--y", "real", "--batch", 20, *settings, *sparse)
    assert (status, errors) == (0, "")
    x, y = columns["a"], columns["real"] - 20
    result = dense_predictions(x, y, [20, 40, 60, 80], lambda a, b: 2 * np.exp(-0.5 * ((a - b) / 1.5) ** 2), 0.2)
    scores = scores_of(printed)
    apart, variances = [], []
    for rows, mean, variance in result:
        apart.append(y[rows] - mean)
        variances.append(variance)
        mine = scores[f"{rows.start + 1}-{rows.stop}"]
        assert mine["RMSE"] == pytest.approx(np.sqrt(np.mean(apart[-1] ** 2)), rel=PRINTED)
        density = stats.norm.logpdf(apart[-1], scale=np.sqrt(variance)).mean()
        assert mine["log_density"] == pytest.approx(density, abs=EXPANSION)
    apart, sd = np.concatenate(apart), np.sqrt(np.concatenate(variances))
    for percent, reach in ((50, 0.67449), (90, 1.64485), (95, 1.95996)):
        assert scores["all"][f"in_{percent}"] == pytest.approx(100 * np.mean(np.abs(apart) < reach * sd), abs=0.06)
    assert scores["all"]["RMSE"] == pytest.approx(np.sqrt(np.mean(apart**2)), rel=PRINTED)


SMOOTH = {
    "gaussian": (likelihoods.Gaussian(0.3), lambda e: stats.norm.cdf(e, scale=np.sqrt(0.3))),
    "student-t": (likelihoods.StudentT(3.0, 0.5), lambda e: stats.t.cdf(e / 0.5, 3.0)),
    "laplace": (likelihoods.Laplace(0.5), lambda e: stats.laplace.cdf(e, scale=0.5)),
}


@pytest.mark.long_cases("laplace")
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SMOOTH)
def test_share_below(name):
    likelihood, cdf = SMOOTH[name]
    for mean, variance in ((0.0, 0.5), (1.0, 1e-4), (-2.0, 30.0)):
        for y in (-3.0, 0.2, 1.0, 4.0):
            sd = np.sqrt(variance)
            truth = integrate.quad(lambda z: stats.norm.pdf(z) * cdf(y - mean - sd * z), -9, 9, limit=200)[0]  # noqa: B023
            result = prequential.compute_pit(likelihood, *(np.array([value]) for value in (y, mean, variance)))
            assert result[0] == pytest.approx(truth, abs=3e-3)
    reference = prequential.compute_pit(likelihood, np.array([1.0, 1.5]), np.ones(2), np.zeros(2))
    assert reference == pytest.approx([0.5, float(cdf(0.5))], abs=3e-3)


@pytest.mark.parametrize(
    ("likelihood", "pmf"),
    [
        (likelihoods.Poisson(), lambda k, rate: stats.poisson.pmf(k, rate)),
        (likelihoods.NegativeBinomial(2.0), lambda k, rate: stats.nbinom.pmf(k, 2.0, 2.0 / (2.0 + rate))),
    ],
)
def test_share_below_a_count(likelihood, pmf):
    for y in (0.0, 3.0, 11.0):
        k = np.arange(y + 1)
        parts = np.where(k < y, 1.0, 0.5)
        truth = integrate.quad(lambda z: stats.norm.pdf(z) * (parts @ pmf(k, np.exp(1 + 0.6 * z))), -9, 9)[0]  # noqa: B023
        result = prequential.compute_pit(likelihood, np.array([y]), np.array([1.0]), np.array([0.36]))
        assert result[0] == pytest.approx(truth, abs=3e-3)


@pytest.mark.parametrize("n_batches", [1, 6, 7, 255, 256, 257, 1300])
def test_scores_of_many_batches(n_batches):
    rng = np.random.default_rng(n_batches)
    likelihood = likelihoods.Gaussian(0.5)
    scores, total, weights = prequential.Scores(likelihood), [], []
    for i in range(n_batches):
        y, weight = rng.normal(size=2), np.array([rng.integers(0, 3), 1.0])
        scores.add(2 * i + 1, y, (np.zeros(2), np.full(2, 0.5)), weight, i)
        total.append(y)
        weights.append(weight)
    y, weights = np.concatenate(total), np.concatenate(weights)
    means = scores.means()
    assert means[0] == pytest.approx(np.average(y**2, weights=weights), rel=SOLVES)
    assert means[1] == pytest.approx(np.average(stats.norm.logpdf(y), weights=weights), rel=SOLVES)
    reach = special.ndtri(0.5 + np.array(prequential.INTERVAL_LEVELS) / 2)
    assert means[2:] == pytest.approx([np.average(np.abs(y) <= r, weights=weights) for r in reach], rel=SOLVES)
    *stretches, full = [line.split() for line in scores.report()][1:]
    assert len(stretches) <= prequential.MAX_STRETCHES_SHOWN
    edges = [[int(edge) for edge in line[0].split("-")] for line in stretches]
    if stretches:
        assert (edges[0][0], edges[-1][1]) == (1, 2 * n_batches)
        assert all(a[1] + 1 == b[0] for a, b in pairwise(edges))
        assert full[0] == "all"
    assert int(full[-1]) == n_batches - 1


def test_surprises_are_told(run, tmp_path):
    rng = np.random.default_rng(3)
    jump = np.arange(200) >= 100
    columns = {"a": np.arange(200.0), "y": 5.0 * jump * np.sin(np.arange(200)) + 0.1 * rng.normal(size=200)}
    path = write(tmp_path / "x.csv", columns)
    arguments = "--x", "a", "--y", "y", "--batch", 50, "--learn", "never", "--covariance", "rbf(1,50)"
    for noise, text in ((0.01, True), (30.0, False)):
        printed = run(path, *arguments, "--noise-variance", noise)[1]
        assert (scores_of(printed)["all"]["in_95"] < 85) == text
        assert ("more errors than predicted: the settings do not fit; --learn always" in printed) == text
    scores = prequential.Scores(likelihoods.Probit())
    scores.add(1, np.ones(40), (np.full(40, -3.0), np.ones(40)), None, 1)
    assert not scores.is_surprised()  # 40 rows are too few to say so
    scores.add(41, np.ones(40), (np.full(40, -3.0), np.ones(40)), None, 1)
    assert scores.is_surprised()


def test_classes_are_scored(run, tmp_path):
    columns = table(120)
    path = write(tmp_path / "x.csv", columns)
    arguments = "--x", "a,b", "--y", "two", "--batch", 30, "--learn", "never", "--lengthscale", "1.5"
    status, printed, errors = run(path, *arguments, "--variance", 2, "--save", tmp_path / "s.npz")
    assert (status, errors) == (0, "")
    assert f"class 1          yes, {np.sum(columns['two'] == 'yes')} rows" in printed
    X, y = np.column_stack([columns["a"], columns["b"]]), (columns["two"] == "yes") * 1.0
    model = cavity.StreamingGP(covariances.RBF(2.0, [1.5, 1.5]), likelihoods.Probit())
    state = model.fit(X[:30], y[:30], learn=False)
    wrong, expected, density = [], [], []
    for low in (30, 60, 90):
        rows = slice(low, low + 30)
        mean, variance = state.predict(X[rows])
        p = special.ndtr(mean / np.sqrt(1 + variance))
        wrong.append((p > 0.5) != y[rows])
        expected.append(np.minimum(p, 1 - p))
        density.append(np.log(np.where(y[rows] > 0, p, 1 - p)))
        state.update(X[rows], y[rows])
    scores = scores_of(printed)["all"]
    assert scores["wrong"] == pytest.approx(100 * np.mean(wrong), abs=0.06)
    assert scores["expected"] == pytest.approx(100 * np.mean(expected), abs=0.06)
    assert scores["log_density"] == pytest.approx(np.mean(density), abs=PRINTED)
    saved = cavity.load(tmp_path / "s.npz")
    np.testing.assert_array_equal(saved.mean, state.mean)
    # what is predicted of rows goes with it
    command = "predict", tmp_path / "s.npz"
    assert run(path, "--output", tmp_path / "p.csv", command=command)[0] == 0
    header, *lines = (tmp_path / "p.csv").read_text().splitlines()
    text = np.array([[float(cell) for cell in line.split(",")] for line in lines])
    assert header == "mean,variance,p:no,p:yes"
    np.testing.assert_allclose(text[:, :2], np.column_stack(state.predict(X)), rtol=AT_REST, atol=SOLVES)
    np.testing.assert_allclose(text[:, 2:], state.predict_proba(X), rtol=AT_REST)


def test_classes_that_come_late(run, tmp_path):
    columns = table()
    columns["two"] = np.sort(columns["two"])
    path = write(tmp_path / "x.csv", columns)
    arguments = "--x", "a,b", "--y", "two", "--batch", 10, "--learn", "never"
    status, _, errors = run(path, *arguments, "--likelihood", "probit")
    assert status == 2
    assert "has one class only in the first batch, no; list the classes, as in --classes=no,yes" in errors
    status, printed, _ = run(path, *arguments, "--classes", "no,yes")
    assert status == 0
    assert f"class 0          no, {np.sum(columns['two'] == 'no')} rows" in printed
    status, _, errors = run(path, *arguments, "--classes", "no,maybe")
    first = int(np.argmax(columns["two"] == "yes"))
    assert f"x.csv, line {first + 2}: column 'two' is yes, not one of no, maybe" in errors


@pytest.mark.parametrize(
    ("zeros", "one", "options", "names"),
    [
        (("0", "-0"), "1", (), ("0", "1")),
        (("-0", "0.0"), "1e0", ("--classes", "0.0,1.0"), ("0", "1")),
        (("1234567", "1234567"), "1234568", (), ("1234567", "1234568")),
    ],
)
def test_classes_that_are_numbers(run, tmp_path, zeros, one, options, names):
    """0, -0 and 0.0 are one class whatever batch they are in; numbers of seven digits are not rounded."""
    columns = table()
    is_zero, is_late = columns["two"] == "no", np.arange(90) >= 45
    columns["two"] = np.where(is_zero, np.where(is_late, zeros[1], zeros[0]), one)
    path = write(tmp_path / "x.csv", columns)
    status, printed, errors = run(path, "--x", "a,b", "--y", "two", "--batch", 45, "--learn", "never", *options)
    assert (status, errors) == (0, "")
    for k, n in enumerate((is_zero.sum(), (~is_zero).sum())):
        assert f"class {k}          {names[k]}, {n} rows" in printed


@pytest.mark.long_cases("real-student-t-RMSE")
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("target", "name", "column"),
    [
        ("level", "ordered-probit", "wrong"),
        ("count", "poisson", "RMSE"),
        ("real", "student-t", "RMSE"),
        pytest.param("count", "negative-binomial", "RMSE", marks=pytest.mark.long),
        pytest.param("real", "laplace", "RMSE", marks=pytest.mark.long),
    ],
)
def test_every_likelihood(run, tmp_path, target, name, column):
    path = write(tmp_path / "x.csv", table(150))
    arguments = "--x", "a,b", "--y", target, "--likelihood", name, "--batch", 50, "--learn", "never"
    status, printed, errors = run(path, *arguments, "--plot", tmp_path / "x.png")
    assert (status, errors) == (0, "")
    scores = scores_of(printed)["all"]
    assert scores[column] > 0
    if column == "RMSE":  # far from the truth, but not absurd: 100 rows
        assert abs(scores["in_90"] - 90) < 12
    assert (tmp_path / "x.png").stat().st_size > 5000


# ------------------------------------------------------------------------------------------------- the state


def test_settings_reach_the_library(run, tmp_path):
    columns = table()
    path = write(tmp_path / "x.csv", columns)
    arguments = "--x", "b,a", "--y", "real", "--offset", "log_time", "--weights", "weight", "--batch", 40
    settings = "--covariance", "matern32+linear", "--variance", 3, "--lengthscale", "2,5", "--noise-variance", 0.5
    sparse = "--inducing", 12, "--tolerance", 0.01, "--jitter", 1e-6, "--alpha", 0.5, "--mean", "20,0.1,0.2"
    done = run(path, *arguments, *settings, *sparse, "--learn", "never", "--forget", 0.9, "--save", tmp_path / "s.npz")
    assert done[0] == 0
    assert "learnt" not in done[1]
    X, y = np.column_stack([columns["b"], columns["a"]]), columns["real"]
    covariance = covariances.Matern32(1.5, [2, 5]) + covariances.Linear(1.5 / X[:40].var(axis=0))
    model = cavity.StreamingGP(
        covariance,
        likelihoods.Gaussian(0.5),
        mean=[20, 0.1, 0.2],
        n_inducing=12,
        tolerance=0.01,
        jitter=1e-6,
        alpha=0.5,
    )
    state = None
    for low in (0, 40, 80):
        rows = slice(low, low + 40)
        more = dict(offset=columns["log_time"][rows], sample_weight=columns["weight"][rows])
        if state is None:
            state = model.fit(X[rows], y[rows], learn=False, **more)
        else:
            state = state.forget(0.9).update(X[rows], y[rows], **more)
    saved = cavity.load(tmp_path / "s.npz")
    assert saved.columns == ("b", "a")
    assert (saved.model.jitter, saved.model.alpha, saved.model.tolerance) == (1e-6, 0.5, 0.01)
    np.testing.assert_allclose(saved.inducing, state.inducing, rtol=0)
    np.testing.assert_allclose(saved.mean, state.mean, rtol=AT_REST)
    assert saved.log_bound == pytest.approx(state.log_bound, rel=SOLVES)


def test_batches_that_speak_against_the_settings_are_counted(run, tmp_path, monkeypatch):
    path = write(tmp_path / "x.csv", table())
    update, seen = cavity.StreamingGPState.update, []

    def warned(state, X, y, **more):
        seen.append(len(y))
        if len(seen) != 2:
            warnings.warn("no", cavity.SettingsWarning, stacklevel=2)
        return update(state, X, y, **more)

    monkeypatch.setattr(cavity.StreamingGPState, "update", warned)
    status, printed, errors = run(path, "--x", "a", "--y", "real", "--batch", 20, "--learn", "never")
    assert (status, errors, len(seen)) == (0, "", 4)
    assert "settings         3 batches contradicted the settings that older rows fix" in printed


@pytest.mark.filterwarnings("ignore:the last:cavity.SettingsWarning")  # settings that are not those of the rows
@pytest.mark.parametrize(("learn", "noise"), [("first", None), ("always", None), ("always", 0.3), ("never", None)])
def test_what_is_learnt(run, tmp_path, learn, noise):
    columns = table(120)
    path = write(tmp_path / "x.csv", columns)
    values = () if noise is None else ("--noise-variance", noise)
    arguments = "--x", "a", "--y", "real", "--batch", 60, "--covariance", "rbf(2,2)", "--mean", 20, "--learn", learn
    status, printed, errors = run(path, *arguments, *values, "--save", tmp_path / "s.npz")
    assert (status, errors) == (0, "")
    X, y = columns["a"][:, None], columns["real"]
    spread = 1.4826 * np.median(np.abs(y[:60] - np.median(y[:60])))
    model = cavity.StreamingGP(covariances.RBF(2.0, [2.0]), likelihoods.Gaussian(noise or 0.1 * spread**2), mean=20.0)
    label = True if noise is None else "covariance"
    state = model.fit(X[:60], y[:60], learn=False if learn == "never" else label)
    state.update(X[60:], y[60:], learn=label if learn == "always" else False)
    saved = cavity.load(tmp_path / "s.npz")
    assert saved.model.likelihood.noise_variance == pytest.approx(state.model.likelihood.noise_variance, rel=EXPANSION)
    for name, value in state.model.covariance.parameters.items():
        np.testing.assert_allclose(saved.model.covariance.parameters[name], value, rtol=EXPANSION)
    assert saved.log_bound == pytest.approx(state.log_bound, abs=PRINTED)
    assert ("covariance (learnt)" in printed) == (learn != "never")
    assert ("(learnt)\n  mean" in printed) == (learn != "never" and noise is None)


@pytest.mark.parametrize(
    ("mean", "target", "truth"),
    [
        (None, "real", lambda t: np.average(t["real"] - t["log_time"], weights=t["weight"])),
        ("zero", "real", lambda t: 0.0),
        ("7", "real", lambda t: 7.0),
        (
            None,
            "count",
            lambda t: np.log(t["weight"][:30] @ t["count"][:30] / (t["weight"] * np.exp(t["log_time"]))[:30].sum()),
        ),
        ("linear", "real", None),
    ],
)
def test_means(run, tmp_path, mean, target, truth):
    columns = table(30)
    path = write(tmp_path / "x.csv", columns)
    arguments = "--x", "a,b", "--y", target, "--offset", "log_time", "--weights", "weight", "--learn", "never"
    kind = () if target == "real" else ("--likelihood", "poisson")
    values = () if mean is None else ("--mean", mean)
    assert run(path, *arguments, *kind, *values, "--save", tmp_path / "s.npz")[0] == 0
    result = cavity.load(tmp_path / "s.npz").model.mean
    if truth is not None:
        assert result == pytest.approx(truth(columns), rel=SOLVES)
        return
    design = np.column_stack([np.ones(30), columns["a"], columns["b"]])
    weight = columns["weight"]
    normal = design.T @ (weight[:, None] * design)
    rest = design.T @ (weight * (columns["real"] - columns["log_time"]))
    np.testing.assert_allclose(result, np.linalg.solve(normal, rest), rtol=AT_REST)


def test_an_error_loses_one_batch(run, tmp_path):
    columns = table()
    full = write(tmp_path / "whole.csv", columns)
    spoilt = tmp_path / "spoilt.csv"
    lines = full.read_text().splitlines()
    lines[55] = lines[55].replace(lines[55].split(",")[1], "broken", 1)
    spoilt.write_text("\n".join(lines) + "\n")
    arguments = "--x", "a,b", "--y", "real", "--batch", 20, "--learn", "never", "--save"
    assert run(full, *arguments, tmp_path / "whole.npz")[0] == 0
    target = tmp_path / "s.npz"
    status, printed, errors = run(spoilt, *arguments, target)
    assert (status, printed) == (2, "")
    assert "spoilt.csv, line 56: column 'b' is 'broken', not a finite number" in errors
    assert f"--resume {target} --skip 40" in errors
    assert cavity.load(target).n_samples == 40
    before = target.read_bytes()
    second = "--x", "a,b", "--y", "real", "--batch", 20, "--resume", target, "--save", target, "--skip", 40
    assert run(spoilt, *second)[0] == 2
    assert target.read_bytes() == before  # nothing was absorbed: it is as it was
    status, printed, _ = run(full, *second)
    assert status == 0
    assert "rows             90 in all" in printed
    assert next(iter(scores_of(printed))) == "41-60"
    one, other = cavity.load(target), cavity.load(tmp_path / "whole.npz")
    np.testing.assert_array_equal(one.mean, other.mean)
    assert one.log_bound == other.log_bound


@pytest.mark.parametrize("late", [False, True])
def test_states_are_saved_on_the_way(run, tmp_path, monkeypatch, late):
    """Ctrl-C before a batch is taken in, or just after, when its rows have not been counted."""
    path, target = write(tmp_path / "x.csv", table()), tmp_path / "s.npz"
    monkeypatch.setattr(streaming_gp, "SECONDS_BETWEEN_SAVES", 0.0)
    update, seen = cavity.StreamingGPState.update, []

    def interrupted(state, X, y, **more):
        seen.append(cavity.load(target).n_samples)
        if len(seen) == 3 and late:
            update(state, X, y, **more)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return update(state, X, y, **more)

    monkeypatch.setattr(cavity.StreamingGPState, "update", interrupted)
    status, printed, errors = run(path, "--x", "a", "--y", "real", "--batch", 20, "--learn", "never", "--save", target)
    assert (status, printed, seen) == (130, "", [20, 40, 60])
    assert f"--resume {target} --skip 60" in errors
    assert cavity.load(target).n_samples == 60


def test_two_rows_of_numbers_are_no_classes(run, tmp_path):
    path = write(tmp_path / "x.csv", {name: cells[:12] for name, cells in table().items()})
    status, printed, _ = run(path, "--x", "a", "--y", "real", "--batch", 2, "--learn", "never")
    assert status == 0
    assert "gaussian, noise_variance" in printed


def test_what_an_earlier_run_left_inside_is_told(run, tmp_path):
    """Sites that did not converge; and what settings that changed may have cost."""
    columns = table(120)
    path, target = write(tmp_path / "x.csv", columns), tmp_path / "s.npz"
    columns["kind"] = np.where(columns["real"] > np.median(columns["real"]), 1, -1)
    model = cavity.StreamingGP(covariances.RBF(2.0, [2.0]), likelihoods.Probit())
    with pytest.warns(cavity.ConvergenceWarning):
        state = model.fit(columns["a"][:60, None], columns["kind"][:60], learn=False, max_iter=1)
    state._options = replace(state._options, max_iter=200)
    state.save(target)
    path = write(tmp_path / "kind.csv", columns)
    arguments = "--x", "a", "--y", "kind", "--batch", 60, "--resume", target, "--skip", 60, "--learn", "never"
    status, printed, errors = run(path, *arguments)
    assert (status, errors) == (1, "")
    assert "before           NOT CONVERGED: update 1, to row 60: max_iter reached, last change" in printed
    assert "EP               converged" in printed
    path = write(tmp_path / "x.csv", table(120))
    status, printed, errors = run(path, "--x", "a", "--y", "real", "--batch", 60, "--learn", "always")
    assert (status, errors) == (0, "")
    assert re.search(r"information lost \S+ nats, with changed settings \S+ at most\n", printed)


def test_resuming_wants_what_was_saved(run, tmp_path):
    path = write(tmp_path / "x.csv", table())
    state, posterior = tmp_path / "s.npz", tmp_path / "p.npz"
    assert run(path, "--x", "a", "--y", "real", "--learn", "never", "--save", state)[0] == 0
    command = "fit", "gp"
    assert run(path, "--x", "a", "--y", "real", "--no-learn", "--save", posterior, command=command)[0] == 0
    for more, message in (
        (["--resume", posterior], "holds a GaussianProcessPosterior, not a state of cavity fit streaming-gp"),
        (["--resume", state, "--variance", 2], "continues the saved model; leave out --variance"),
        (["--resume", state, "--x", "a,b"], "is of 1 column, got 2 (a, b); choose with --features"),
    ):
        status, _, errors = run(path, "--y", "real", *more)
        assert status == 2
        assert message in errors


def test_resuming_knows_columns_and_classes(run, tmp_path):
    """Classes in the order of the first batch, columns by name: a later batch may begin with one class only."""
    columns = table(90)
    order = np.argsort(columns["two"] == "no", kind="stable")  # all of one class first
    columns = {name: np.asarray(values)[order] for name, values in columns.items()}
    first, full = {name: values[::2] for name, values in columns.items()}, tmp_path / "s.npz"
    rest = {name: values[1::2] for name, values in reversed(columns.items())}
    options = "--y", "two", "--learn", "never", "--save", full
    assert run(write(tmp_path / "a.csv", first), "--x", "a,b", "--classes", "yes,no", *options)[0] == 0
    assert cavity.load(full).classes == ("yes", "no")
    more = "--resume", full, "--batch", 20
    assert run(write(tmp_path / "b.csv", rest), *more, *options, "--x", "b,a")[0] == 0
    state, X = cavity.load(full), [np.column_stack([part["a"], part["b"]]) for part in (first, rest)]
    labels = [part["two"] == "no" for part in (first, rest)]
    assert (state.columns, state.classes) == (("a", "b"), ("yes", "no"))
    expected = state.model.fit(X[0], labels[0], learn=False)
    for low in range(0, len(X[1]), 20):
        expected.update(X[1][low : low + 20], labels[1][low : low + 20])
    np.testing.assert_allclose(state.predict(X[1])[0], expected.predict(X[1])[0], atol=0.2)  # other inducing points
    assert np.corrcoef(state.predict(X[1])[0], expected.predict(X[1])[0])[0, 1] > 0.99
    status, _, errors = run(tmp_path / "b.csv", *more, *options, "--classes", "no,yes")
    assert status == 2
    assert "--classes: " in errors
    assert "has yes, no, in this order, got no, yes" in errors


def test_times_have_the_mean_of_their_logs(run, tmp_path):
    columns = table()
    path, options = write(tmp_path / "x.csv", columns), ("--x", "a", "--y", "real", "--learn", "never", "--first", 60)
    status, printed, _ = run(path, *options, "--likelihood", "weibull", "--shape", 8)
    assert status == 0
    assert f"constant {np.mean(np.log(columns['real'][:60])):.6g} (of the first batch)" in printed


BAD = {
    "batch": (["--batch", 0], "--batch must be at least 1, got 0"),
    "first": (["--first", 0], "--first must be at least 1, got 0"),
    "skip": (["--skip", -1], "--skip must be a whole number from 0, got -1"),
    "all skipped": (["--skip", 90], "there are no rows after the first 90"),
    "forget": (["--forget", 1.5], "--forget must be between 0 and 1, got 1.5"),
    "noise": (["--noise-variance", 0], "--noise-variance must be positive, got 0"),
    "white": (["--covariance", "rbf+white"], "--covariance must not have a White part"),
    "mean": (["--mean", "steep"], "argument --mean: invalid zero, constant, linear or numbers"),
    "mean of classes": (["--y", "two", "--mean", "linear"], "--mean linear has no meaning for --likelihood probit"),
    "inducing": (["--inducing", 0], "--inducing must be at least 1, got 0"),
    "jitter": (["--jitter", 1], "--jitter must be at least 0 and below 1, got 1"),
    "alpha": (["--alpha", 0, "--likelihood", "laplace"], "--alpha must be at least 1e-6 for the likelihood Laplace"),
    "no column": (["--x", "z"], "no column 'z'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options(run, tmp_path, case):
    arguments, message = BAD[case]
    path = write(tmp_path / "x.csv", table())
    values = ["--x", "a", "--y", "real", "--learn", "never", *arguments]
    status, printed, errors = run(path, *values)
    assert (status, printed) == (2, "")
    assert message in " ".join(errors.split())


def test_one_batch_has_nothing_to_score(run):
    status, printed, _ = run("co2", "--learn", "never", "--lengthscale", 1)
    assert status == 0
    assert "none: there was one batch; --batch makes them smaller" in printed


# ------------------------------------------------------------------------------------------------- the way


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


def test_progress_in_a_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setenv("COLUMNS", "30")
    with standard_output.show_progress(SimpleNamespace(quiet=False)) as show:
        show(0.25, "a long line that tells more than fits")
        show(1.0, "done")
    assert sys.stderr.getvalue() == "\r 25 % a long line that tells \r100 % done                   \n"


def test_progress_bar(monkeypatch):
    class Bar:
        def __init__(self, total, bar_format):
            self.total, self.said = total, []

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.closed = True

        def set_postfix_str(self, message):
            self.said.append((self.n, message))

    made = []
    fake = type(sys)("tqdm")
    fake.tqdm = lambda **settings: made.append(Bar(**settings)) or made[0]
    monkeypatch.setitem(sys.modules, "tqdm", fake)
    monkeypatch.setattr(sys, "stderr", Screen())
    with standard_output.show_progress(SimpleNamespace(quiet=False)) as show:
        show(0.5, "half")
    assert (made[0].total, made[0].said, made[0].closed) == (1.0, [(0.5, "half")], True)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with standard_output.show_progress(SimpleNamespace(quiet=False)) as show:
        show(0.5, "half")
    assert (sys.stderr.getvalue(), len(made)) == ("", 1)


def test_predictions_have_the_offsets_of_the_fit(run, tmp_path):
    rng = np.random.default_rng(0)
    path, saved = tmp_path / "t.csv", tmp_path / "p.npz"
    lines = [f"{x},{rng.poisson(3)},{0.1 * k}" for k, x in enumerate(rng.normal(size=20))]
    path.write_text("\n".join(["a,count,exposure", *lines]) + "\n")
    options = ("--y", "count", "--x", "a", "--offset", "exposure", "--likelihood", "poisson", "--learn", "never")
    assert run(path, *options, "--save", saved)[0] == 0
    assert run(saved, path, "--output", tmp_path / "out.npy", command=("predict",))[0] == 0
    rows = input_tables.open_table(SimpleNamespace(data=str(path)))
    moments = cavity.load(saved).predict(rows.matrix(["a"]), offset=rows.numbers("exposure"))
    np.testing.assert_allclose(np.load(tmp_path / "out.npy")[:, :2], np.column_stack(moments), rtol=SOLVES)
    status, _, error = run(saved, "co2", "--columns", 1, "--output", tmp_path / "no.npy", command=("predict",))
    assert status == 2
    assert "no column 'exposure'; there is year, co2" in error


def test_states_with_numbers_for_classes_go_on(run, tmp_path):
    """As Python saves them; cells of a table are their names."""
    columns = table()
    y = np.where(columns["two"] == "yes", 2, 1)
    X = np.column_stack([columns["a"], columns["b"]])
    model = cavity.StreamingGP(covariances.RBF(), likelihoods.Probit())
    state = model.fit(X[:40], y[:40], learn=False)
    expected = state.copy().update(X[40:], y[40:])
    state.save(tmp_path / "s.npz")
    path = write(tmp_path / "x.csv", {"x1": columns["a"][40:], "x2": columns["b"][40:], "y": y[40:]})
    arguments = "--y", "y", "--resume", tmp_path / "s.npz", "--save", tmp_path / "t.npz", "--batch", 50
    status, _, errors = run(path, *arguments, "--learn", "never")
    assert (status, errors) == (0, "")
    restored = cavity.load(tmp_path / "t.npz")
    assert restored.classes == ("1", "2")
    np.testing.assert_allclose(restored.predict(X)[0], expected.predict(X)[0], rtol=AT_REST, atol=SOLVES)
