"""Fits have the same bits whatever their rows come from, and whoever works on them."""

import subprocess
import sys
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

import cavity
from cavity import covariances, likelihoods

N = 20_000


def table(n=N):
    """Return columns by name: three features, real and counted observations, labels, weights, offsets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) + np.where(rng.random((n, 1)) < 0.3, 3.0, -0.5)
    f = X @ [1.0, -0.5, 0.2]
    return {f"x{j}": X[:, j].copy() for j in range(3)} | {
        "real": f + rng.normal(0.0, 0.3, n),
        "count": rng.poisson(np.exp(0.2 * f)).astype(float),
        "label": np.where(f + rng.normal(size=n) > 0, "yes", "no"),
        "weight": rng.integers(0, 3, n).astype(float),
        "known": 0.1 * rng.normal(size=n),
    }


COLUMNS = table()
FEATURES = ("x0", "x1", "x2")
RBF = covariances.RBF(1.0, [2.0, 2.0, 2.0])


@dataclass(frozen=True)
class Case:
    """A fit of a table: which columns it needs beside the features, and of how many rows."""

    fit: object  # (X, names or arrays by argument, n_threads) -> posterior
    given: dict  # names of columns by argument
    n: int = N
    threads: bool = True

    def array(self):
        """Return the features as one array, and the other columns by argument."""
        X = np.column_stack([COLUMNS[name][: self.n] for name in FEATURES])
        return X, {argument: COLUMNS[name][: self.n] for argument, name in self.given.items()}

    def run(self, X, values, n_threads=None):
        """Return what a posterior would save, as bytes and settings."""
        options = {"n_threads": n_threads} if self.threads else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cavity.ConvergenceWarning)
            posterior = self.fit(X, **values, **options)
        arrays, settings = posterior.to_arrays()
        for name in ("columns", "roles"):
            settings.pop(name, None)
        return {name: array.tobytes() for name, array in arrays.items()} | {"settings": str(settings)}


def model(kind, *settings, **named):
    """Return a fit of a model with options."""
    options = {name: named.pop(name) for name in ("schedule", "method", "max_iter", "tol", "learn") if name in named}

    def fit(X, y=None, **values):
        made = kind(*settings, **named)
        return made.fit(X, **values, **options) if y is None else made.fit(X, y, **values, **options)

    return fit


def stochastic(X, **values):
    return cavity.GaussianMixture(2).fit_stochastic(X, batch_size=700, n_epochs=2, **values)


def selected(X, **values):
    return cavity.select_components(cavity.GaussianMixture(1), X, (1, 2), max_iter=3, **values).best


def first_column(fit):
    def fit_numbers(X, **values):
        return fit(X[:, 0] if isinstance(X, np.ndarray) else cavity.source(X, columns=0), **values)

    return fit_numbers


RARE = {"max_iter": 3, "tol": 1.0}
SIGNAL = {"prior_variance": 50.0}
MIXTURE, DIAGONAL = model(cavity.GaussianMixture, 2, max_iter=4), {"approximation": "diagonal"}
CASES = {
    "linear": Case(model(cavity.LinearRegression, intercept=False), {"y": "real"}),
    "logistic": Case(model(cavity.LogisticRegression, intercept=False, **RARE), {"y": "label"}),
    "clutter": Case(model(cavity.Clutter, **SIGNAL, schedule="parallel"), {}),
    "clutter in turn": Case(model(cavity.Clutter, **SIGNAL, max_iter=2), {}),
    "clutter adf": Case(model(cavity.Clutter, **SIGNAL, method="adf"), {}),
    "clutter numbers": Case(first_column(model(cavity.Clutter, **SIGNAL, schedule="parallel")), {}),
    "stream": Case(
        model(cavity.StreamingGP, RBF, likelihoods.Gaussian(0.1), n_inducing=15, learn=False),
        {"y": "real", "sample_weight": "weight", "offset": "known"},
        3000,
    ),
    "stream learnt": Case(model(cavity.StreamingGP, RBF, n_inducing=8, learn="covariance"), {"y": "real"}, 1500),
    "stream labels": Case(
        model(cavity.StreamingGP, RBF, "probit", n_inducing=8, learn=False), {"y": "label", "offset": "known"}, 2500
    ),
    "process": Case(model(cavity.GaussianProcess, RBF, "gaussian", learn=False), {"y": "real", "offset": "known"}, 60),
    "mixture": Case(MIXTURE, {"sample_weight": "weight"}),
    "mixture stochastic": Case(stochastic, {}),
    "mixture selected": Case(selected, {"sample_weight": "weight"}, 5000),
    "unit mixture": Case(first_column(model(cavity.UnitMixture, 2, 9.0, max_iter=5)), {}),
    "glm": Case(
        model(cavity.GLM, "probit", intercept=True, **RARE),
        {"y": "label", "offset": "known", "sample_weight": "weight"},
    ),
    "glm counts": Case(model(cavity.GLM, "poisson", intercept=False, **RARE), {"y": "count", "offset": "known"}),
}


def mapped(case, folder):
    """A memory map, in the order of columns."""
    X, values = case.array()
    np.save(folder / "mapped.npy", np.asfortranarray(X))
    return np.load(folder / "mapped.npy", mmap_mode="r"), values


def files(case, folder):
    """Files that end within blocks, of other orders; what else is given is in memory."""
    X, values = case.array()
    third = len(X) // 3
    parts = X[:third], np.asfortranarray(X[third : third + 1]), np.asfortranarray(X[third + 1 :].astype(">f8"))
    for i, part in enumerate(parts):
        np.save(folder / f"{i}.npy", part)
    return [folder / "0.npy", str(folder / "1.npy"), folder / "2.npy"], values


def arrow(case):
    """An Arrow table of the columns that a fit needs, features not first."""
    pa = pytest.importorskip("pyarrow")
    names = [*dict.fromkeys(case.given.values()), *FEATURES]
    return pa.table({name: COLUMNS[name][: case.n] for name in names})


def parquet(case, folder):
    """A Parquet file whose row groups are no blocks, all columns by name."""
    written = arrow(case)
    pytest.importorskip("pyarrow.parquet").write_table(written, folder / "rows.parquet", row_group_size=777)
    return folder / "rows.parquet", case.given


def folder_of_parquet(case, folder):
    """Two files of Parquet in a folder, opened by hand."""
    written, half, inside = arrow(case), case.n // 2, folder / "both"
    inside.mkdir()
    write = pytest.importorskip("pyarrow.parquet").write_table
    write(written[:half], inside / "a.parquet")
    write(written[half:], inside / "b.parquet")
    return cavity.source(inside), case.given


def frame(case, folder):
    """A data frame."""
    pytest.importorskip("pandas")
    return arrow(case).to_pandas(), case.given


def text(case, folder):
    """A packed text file, whose digits say every bit."""
    frame(case, folder)[0].to_csv(folder / "rows.csv.gz", index=False)
    return folder / "rows.csv.gz", case.given


def kinds():
    """Return the kinds of sources; most are for long runs."""
    often, seldom = (files, parquet), (mapped, folder_of_parquet, frame, text)
    return [
        pytest.param(item, marks=[pytest.mark.long] * (item in seldom), id=item.__name__) for item in often + seldom
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("name", CASES)
def test_sources_and_threads_change_no_bit(name, kind, tmp_path, wanted):
    case = CASES[name]
    X, values = kind(case, tmp_path)
    threads = 2 if kind is not frame and case.threads else None
    assert case.run(X, values, threads) == wanted(name)


@pytest.fixture(scope="module")
def wanted():
    """Fits of arrays by one thread, each done once."""
    results = {}

    def of(name):
        if name not in results:
            results[name] = CASES[name].run(*CASES[name].array())
        return results[name]

    return of


SUMS = ("linear", "logistic", "clutter", "clutter adf", "stream", "stream labels", "process", "mixture", "glm")


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_sparse_rows_are_those_of_an_array(name):
    sparse = pytest.importorskip("scipy.sparse")
    case = CASES[name]
    X, values = case.array()
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    assert case.run(sparse.csr_matrix(X), values, 2) == case.run(X, values)
    wide = sparse.csr_matrix((10, 10_000_000))
    with pytest.raises(MemoryError, match=r"the weights, which is dense, of shape .* takes many columns"):
        case.run(wide, {"y": values["y"][:10]})


@pytest.mark.parametrize("kind", ["Clutter", "GaussianProcess", "LinearRegression", "StreamingGP"])
def test_iterators_are_refused(kind):
    y = [] if kind == "Clutter" else [[1.0]]
    with pytest.raises(TypeError, match="needs several passes over the data, but . is a one-shot iterator"):
        getattr(cavity, kind)().fit(iter([[1.0]]), *y)


def test_rows_that_are_taken_in_together_have_to_fit_into_memory(monkeypatch, tmp_path):
    case = CASES["stream labels"]
    X, values = files(case, tmp_path)
    monkeypatch.setattr("cavity.base.arrays._memory", lambda: 300_000)
    with pytest.raises(MemoryError, match=r"Probit, .* \(2500, 8\) needs 320000 bytes, .* batches, .* Source.batches"):
        case.run(X, values)


@pytest.mark.parametrize("name", SUMS)
def test_a_bad_number_is_named_by_file_row_and_column(name, tmp_path):
    case = CASES[name]
    X, values = case.array()
    third = len(X) // 3
    X[third + 7, 1] = np.nan
    np.save(tmp_path / "good.npy", X[:third])
    np.save(tmp_path / "bad.npy", X[third:])
    with pytest.raises(ValueError, match=r"(?s)nan in row 7, column 1 .*of .*bad\.npy"):
        case.run([tmp_path / "good.npy", tmp_path / "bad.npy"], values, 2)
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {feature: X[:, j] for j, feature in enumerate(FEATURES)} | {
        case.given[key]: values[key] for key in values
    }
    parquet.write_table(pa.table(columns), tmp_path / "bad.parquet", row_group_size=500)
    with pytest.raises(ValueError, match=rf"nan in row {third + 7}, column 'x1' of .*bad\.parquet"):
        case.run(tmp_path / "bad.parquet", case.given, 2)


@pytest.mark.parametrize("name", [name for name in SUMS if "y" in CASES[name].given])
def test_observations_of_another_length_and_unknown_columns_are_refused(name, tmp_path):
    case = CASES[name]
    X, values = files(case, tmp_path)
    with pytest.raises(ValueError, match="y must have one entry per row"):
        case.run(X, values | {"y": values["y"][:-1]})
    with pytest.raises(ValueError, match="'nothing'"):
        case.run(X, values | {"y": "nothing"})
    X, values = parquet(case, tmp_path)
    with pytest.raises(ValueError, match="X has no column 'nothing'; it has "):
        case.run(X, values | {"y": "nothing"})


@pytest.mark.parametrize("name", ["linear", "logistic", "glm", "stream", "process", "mixture"])
def test_tables_without_columns_for_rows_are_refused(name, tmp_path):
    case, pa, parquet = CASES[name], pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    argument, column = next(iter(case.given.items()))
    table = pa.table({column: COLUMNS[column]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    for X in (table, tmp_path / "rows.parquet"):
        with pytest.raises(ValueError, match=f"X must have columns beside '{column}', which other arguments take"):
            case.run(X, {argument: column})


@pytest.mark.parametrize("name", ["linear", "clutter", "stream", "process", "mixture"])
def test_text_among_the_features_is_refused(name, tmp_path):
    case = CASES[name]
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {item: COLUMNS[item] for item in [*FEATURES, *case.given.values()]}
    parquet.write_table(pa.table(columns | {"town": np.repeat(["here", "there"], N // 2)}), tmp_path / "rows.parquet")
    with pytest.raises(TypeError, match=r"(?s)must hold real numbers, got text in column 'town'"):
        case.run(tmp_path / "rows.parquet", case.given)


@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning")
@pytest.mark.parametrize("name", ["linear", "logistic", "stream", "process", "glm", "mixture"])
def test_predictions_of_files_are_those_of_arrays(name, tmp_path):
    case = CASES[name]
    X, values = case.array()
    posterior = case.fit(X, **values)
    new, _ = files(Case(None, {}, 6000), tmp_path)
    rows, truth = cavity.source(new).rows(), {"offset": 0.5} if "offset" in case.given else {}
    methods = {"logistic": ["predict_proba", "predict"], "mixture": ["predict", "log_density"]}.get(name, ["predict"])
    for method in methods:
        result, expected = (getattr(posterior, method)(item, **truth) for item in (new, rows))
        assert np.asarray(result).tobytes() == np.asarray(expected).tobytes()
    rows[4321, 2] = np.inf
    np.save(tmp_path / "bad.npy", rows)
    with pytest.raises(ValueError, match=r"inf in row 4321, column 2 .*of .*bad\.npy"):
        getattr(posterior, methods[0])(tmp_path / "bad.npy", **truth)


def test_batches_of_a_file_are_those_of_an_array(tmp_path):
    case = CASES["stream labels"]
    path, _ = parquet(case, tmp_path)
    X, values = case.array()
    spans = [slice(start, start + 1000) for start in (0, 1000, 2000)]
    of_array = ((X[span], values["y"][span], values["offset"][span]) for span in spans)
    states = []
    for batches in (of_array, cavity.source(path).batches(1000, "label", "known")):
        state = cavity.StreamingGP(RBF, "probit", n_inducing=8).fit(np.empty((0, 3)), np.empty(0))
        for rows, y, offset in batches:
            state.update(rows, y, offset=offset)
        states.append(state)
    assert states[1].columns == FEATURES
    assert states[1].n_samples == 2500
    (expected, _), (result, _) = (state.to_arrays() for state in states)
    assert {name: array.tobytes() for name, array in result.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
    with pytest.raises(ValueError, match="no column 'nothing'"):
        next(cavity.source(path).batches(10, "nothing"))
    X[1234, 1] = np.nan
    np.save(tmp_path / "bad.npy", X)
    _, second, _ = cavity.source(tmp_path / "bad.npy").batches(1000)
    with pytest.raises(ValueError, match=r"nan in row 1234, column 1 .*bad\.npy"):
        states[1].update(second, values["y"][1000:2000], offset=0.0 * values["offset"][1000:2000])


def of_holes(path, n, d):
    """Write a file of zeros that takes no room on most disks."""
    header = np.lib.format.header_data_from_array_1_0(np.empty((0, d)))
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header | {"shape": (n, d)})
        file.truncate(file.tell() + 8 * n * d)
    return path


def test_processes_of_too_many_rows_are_refused_unread(tmp_path):
    path = of_holes(tmp_path / "holes.npy", 3_000_000, 2)
    with pytest.raises(MemoryError, match=r"of shape \(3000000, 3000000\) needs .* there is cavity.StreamingGP"):
        cavity.GaussianProcess(RBF, "gaussian").fit(path, np.zeros(3_000_000))


PEAK = """
import resource, sys, warnings
import numpy as np, cavity
from cavity import covariances, likelihoods
warnings.simplefilter("ignore")
path, n = sys.argv[1], int(sys.argv[2])
y = np.tile([0.0, 1.0], n // 2)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
for first in (True, False):  # what comes with the first fit of all is no memory of rows
    X, given = (np.eye(20), y[:20]) if first else (path, y)
    before = peak()
    FIT
print(peak() - before)
"""
LARGE = {
    "linear": "cavity.LinearRegression(intercept=False).fit(X, given)",
    "logistic": "cavity.LogisticRegression(intercept=False).fit(X, given, max_iter=2, n_threads=2)",
    "stream": "cavity.StreamingGP(covariances.RBF(), likelihoods.Gaussian(0.1)).fit(X, given, learn=False)",
    "prediction": "cavity.LinearRegression(intercept=False).fit(np.eye(20), y[:20]).predict(X)",
}


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_memory_does_not_grow_with_the_file(name, tmp_path):
    n = 4_000_000
    path = of_holes(tmp_path / "holes.npy", n, 20)
    code = PEAK.replace("FIT", LARGE[name])
    done = subprocess.run([sys.executable, "-c", code, path, str(n)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300e6  # of 640 MB; some numbers of y are in memory, and 64 MB that are read ahead
