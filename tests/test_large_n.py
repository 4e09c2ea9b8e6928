"""Fits have the same bits whatever their rows come from, and whoever works on them."""

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
        "weight": rng.integers(1, 3, n).astype(float),
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

    def run(self, X, given, n_threads=None):
        """Return what a posterior would save, as bytes and settings."""
        options = {"n_threads": n_threads} if self.threads else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cavity.ConvergenceWarning)
            posterior = self.fit(X, **given, **options)
        arrays, settings = posterior.to_arrays()
        for name in ("columns", "roles"):
            settings.pop(name, None)
        return {name: array.tobytes() for name, array in arrays.items()} | {"settings": str(settings)}


def model(kind, *settings, **named):
    """Return a fit of a model with options."""
    options = {name: named.pop(name) for name in ("schedule", "method", "max_iter", "tol", "learn") if name in named}

    def fit(X, y=None, **given):
        made = kind(*settings, **named)
        return made.fit(X, **given, **options) if y is None else made.fit(X, y, **given, **options)

    return fit


def stochastic(X, **given):
    return cavity.GaussianMixture(2).fit_stochastic(X, batch_size=700, n_epochs=2, **given)


def selected(X, **given):
    return cavity.select_components(cavity.GaussianMixture(1), X, (1, 2), max_iter=3, **given).best


def first_column(fit):
    def fit_numbers(X, **given):
        return fit(X[:, 0] if isinstance(X, np.ndarray) else cavity.source(X, columns=0), **given)

    return fit_numbers


RARE = {"max_iter": 3, "tol": 1.0}
SIGNAL = {"prior_variance": 50.0}
MIXTURE, DIAGONAL = model(cavity.GaussianMixture, 2, max_iter=4), {"approximation": "diagonal"}
CASES = {
    "linear": Case(model(cavity.LinearRegression), {"y": "real"}),
    "logistic": Case(model(cavity.LogisticRegression, **RARE), {"y": "label"}),
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
    X, given = case.array()
    np.save(folder / "mapped.npy", np.asfortranarray(X))
    return np.load(folder / "mapped.npy", mmap_mode="r"), given


def files(case, folder):
    """Files that end within blocks, of other orders; what else is given is in memory."""
    X, given = case.array()
    third = len(X) // 3
    parts = X[:third], np.asfortranarray(X[third : third + 1]), np.asfortranarray(X[third + 1 :].astype(">f8"))
    for i, part in enumerate(parts):
        np.save(folder / f"{i}.npy", part)
    return [folder / "0.npy", str(folder / "1.npy"), folder / "2.npy"], given


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


@pytest.mark.parametrize("kind", [mapped, files, parquet, folder_of_parquet, frame], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", CASES)
def test_sources_and_threads_change_no_bit(name, kind, tmp_path, wanted):
    case = CASES[name]
    X, given = kind(case, tmp_path)
    threads = 2 if kind is not frame and case.threads else None
    assert case.run(X, given, threads) == wanted(name)


@pytest.fixture(scope="module")
def wanted():
    """Fits of arrays by one thread, each done once."""
    found = {}

    def of(name):
        if name not in found:
            found[name] = CASES[name].run(*CASES[name].array())
        return found[name]

    return of
