"""Every size at which the library changes its way, on each side of it, with data in every layout.

Sizes are module constants, which are made small here. On one side of a switch all layouts of the same numbers give the
same bits. What both sides give is compared, too: to rounding where they compute the same thing, to what their stopping
rules leave where they iterate differently, not at all where they choose otherwise (a sample, other inducing points).
"""

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import numpy as np
import pytest
from support.glms import GLM
from support.tolerances import EARLY, ROOT_EPS

import cavity
import cavity.sklearn
from cavity import covariances, likelihoods

N, D = 60, 3
BITS, ROUNDING, RULES, OTHERWISE = 0.0, 1e-9, 1e-5, None  # how close both sides are, relative to the largest number


def numbers():
    """Rows that every dtype holds, and targets."""
    rng = np.random.default_rng(0)
    X = rng.permutation(np.arange(N * D) % 41 - 20.0).reshape(N, D)
    y = np.sin(X[:, 0] / 5) + X[:, 1] / 20 + 0.3 * rng.normal(size=N)
    return X, np.round(64.0 * y) / 64.0


def spread(a, step):
    """Every so many numbers of a larger array; negative steps begin at its end."""
    full = np.full([abs(step) * n for n in a.shape], 99.0)
    view = full[(slice(None, None, step),) * a.ndim]
    view[...] = a
    return view


def mapped(a, folder):
    """A memory map of a file."""
    path = folder / f"{a.shape}.npy"
    np.save(path, a)
    return np.load(path, mmap_mode="r")


def frozen(a):
    """Read-only."""
    return np.broadcast_to(a, a.shape)


def unaligned(a):
    """At an odd address."""
    raw = np.empty(a.nbytes + 1, dtype=np.uint8)[1:].view(a.dtype).reshape(a.shape)
    raw[...] = a
    return raw


LAYOUTS = {
    "fortran": lambda a, _: np.asfortranarray(a),
    "strided": lambda a, _: spread(a, 3),
    "reversed": lambda a, _: spread(a, -2),
    "float32": lambda a, _: a.astype(np.float32),
    "int16": lambda a, _: a.astype(np.int16),
    "swapped": lambda a, _: a.astype(">f8"),
    "unaligned": lambda a, _: unaligned(a),
    "read-only": lambda a, _: frozen(a),
    "map": mapped,
    "map by columns": lambda a, folder: mapped(np.asfortranarray(a), folder),
}


# ---------------------------------------------------------------------------------------------- fits


def floats(*values):
    """All numbers of a result in one vector."""
    return np.concatenate([np.ravel(np.asarray(value, dtype=np.float64)) for value in values])


def labels(y):
    """Classes of real numbers."""
    return np.where(y > 0, 1, -1)


def streaming(likelihood=None, learn=False, batches=1, schedule="auto", alpha=None, tolerance=1e-3, most=N, **options):
    """A streaming Gaussian process with inducing points chosen, and its predictions."""

    def fit(X, y):
        noise = likelihoods.Gaussian(0.1) if likelihood is None else likelihood
        model = cavity.StreamingGP(covariances.RBF(1.0, 8.0), noise, alpha=alpha, n_inducing=12, tolerance=tolerance)
        targets = labels(y) if isinstance(noise, likelihoods.Probit) else y
        parts = [slice(part[0], part[-1] + 1) for part in np.array_split(np.arange(min(N, most)), batches)]
        state = model.fit(X[parts[0]], targets[parts[0]], learn=learn, schedule=schedule, **options)
        for part in parts[1:]:
            state.update(X[part], targets[part])
        return floats(state.log_bound, *state.predict(X), state.predict_covariance(X[:7])[1], state.inducing)

    return fit


def process(likelihood, learn=False, **options):
    """A Gaussian process and its predictions."""

    def fit(X, y):
        targets = labels(y) if isinstance(likelihood, likelihoods.Probit) else y
        model = cavity.GaussianProcess(covariances.RBF(1.0, 8.0) + covariances.Linear(0.01), likelihood)
        done = model.fit(X, targets, learn=learn, **options)
        return floats(done.log_evidence, *done.predict(X), done.loo_log_density, done.log_evidence_gradient)

    return fit


def glm(likelihood=None, columns=D, approximation="full", **options):
    """A generalised linear model and its predictions."""

    def fit(X, y):
        noise = likelihoods.Probit() if likelihood is None else likelihood
        done = GLM(noise, prior_variance=0.01, approximation=approximation).fit(
            X[:, :columns], labels(y), tol=1e-10, **options
        )
        return floats(done.log_evidence, done.mean, done.variance, *done.predict(X[:, :columns]))

    return fit


def few_rows(X, y):
    """A generalised linear model with more weights than rows."""
    done = GLM(likelihoods.Probit(), prior_variance=0.01).fit(X[:2], labels(y[:2]))
    return floats(done.log_evidence, done.mean, *done.predict(X))


def learnt_scale(X, y):
    """A generalised linear model of which the scale of the noise is learnt."""
    done = GLM(likelihoods.StudentT(4.0, None), prior_variance=0.01).fit(X, y)
    return floats(done.log_evidence, done.mean, done.variance, done.hyperparameters.values)


def regression(X, y):
    done = cavity.LinearRegression(intercept=False).fit(X, y)
    return floats(done.elbo, done.mean, *done.predict(X))


def logistic(X, y):
    done = cavity.LogisticRegression(intercept=False).fit(X, labels(y))
    return floats(done.elbo, done.mean, done.predict_proba(X))


def mixture(covariance="full", weight=False, **options):
    """A Gaussian mixture and its predictions."""

    def fit(X, y):
        w = np.abs(y) if weight else None
        done = cavity.GaussianMixture(2, covariance=covariance).fit(
            X, sample_weight=w, n_init=1, max_iter=30, tol=1e-3, **options
        )
        return floats(done.elbo, done.mean, done.log_density(X), done.responsibilities(X))

    return fit


def unit_mixture(X, y):
    done = cavity.UnitMixture(3, noise_variance=4.0).fit(X[:, 0])
    return floats(done.elbo, done.mean, done.log_density(X[:, 0]), done.responsibilities(X[:, 0]))


def clutter(power=1.0, rows=N, **options):
    """The clutter problem in three dimensions."""

    def fit(X, y):
        model = cavity.Clutter(clutter_weight=0.3, clutter_variance=300.0, noise_variance=30.0, prior_variance=100.0)
        done = model.fit(X[:rows], power=power, **options)
        return floats(done.mean, done.variance, done.log_evidence)

    return fit


def face(name, *arguments, classes=False, batches=False, **settings):
    """An estimator of `cavity.sklearn`."""

    def fit(X, y):
        estimator, targets = getattr(cavity.sklearn, name)(*arguments, **settings), labels(y) if classes else y
        if batches:
            more = {"classes": [-1, 1]} if classes else {}
            estimator.partial_fit(X[: N // 2], targets[: N // 2], **more).partial_fit(X[N // 2 :], targets[N // 2 :])
        else:
            estimator.fit(X, targets)
        return floats(estimator.predict(X))

    return fit


def own_likelihood(power=1.0):
    """A process whose likelihood is integrated by quadrature."""

    class Plain(likelihoods.Likelihood):
        def check(self, y):
            return np.asarray(y, dtype=np.float64)

        def log_p(self, y, f):
            return -np.logaddexp(0.0, -y * f)

    def fit(X, y):
        done = cavity.GaussianProcess(covariances.RBF(1.0, 8.0), Plain()).fit(
            X[:20], labels(y[:20]), learn=False, power=power
        )
        return floats(done.log_evidence, done.mean, done.variance)

    return fit


def gram(X, y):
    k = covariances.RBF(1.0, 8.0) + covariances.Linear(0.1) * covariances.Matern12(1.0, 3.0)
    weights = np.outer(y, y)
    return floats(k.gram(X), k.cross(X, X[:7]), k.diagonal(X), k.gradient(X, weights), k.input_gradient(X, weights))


# ---------------------------------------------------------------------------------------------- switches


FEW = ("float32", "map by columns")  # for fits that take a while


@dataclass(frozen=True)
class Switch:
    """Module constants, the values they get on each side, a fit, and how close both sides are."""

    names: str  # "module.NAME ..."
    sides: tuple
    fit: object
    close: float | None = BITS
    label: str = ""
    few: bool = False  # whether to try few layouts

    def __str__(self):
        return f"{self.names.split()[0]}{self.label}"


probit, counts = likelihoods.Probit(), likelihoods.Poisson()
student, gaussian = likelihoods.StudentT(4.0, 0.3), likelihoods.Gaussian(0.1)
CANDIDATE_NUMBERS = "models.streaming_gp.inducing_choice.CANDIDATE_NUMBERS"
CANDIDATES = "models.streaming_gp.update.MAX_CANDIDATE_ROWS"
WAITING_ROWS = "models.streaming_gp.inducing_choice.MAX_WAITING_ROWS"
BLOCKS = "models.mixture.e_step.MAX_BLOCK_ROWS models.mixture.e_step.MIN_BLOCK_ROWS"
REGRESSION = "sklearn.gp.regression.BLOCK_ROWS"
SEARCHED_ROWS = "models.linear.evidence_search.MIN_SAMPLED_ROWS models.linear.evidence_search.SAMPLE_ROWS"
BLOCKS_OF_FILES = "sources.blocks.BLOCK_NUMBERS sources.blocks.LEAST_BLOCK_ROWS"
BLOCKS_OF_GRAM = "covariances.program.MIN_GRAM_ROWS covariances.program.MIN_GRAM_NUMBERS"
JOINT_SITES = "ep.latent.JOINT_SITES ep.latent.MAX_COMPILED_ROWS"
SPARSE_FILES = ("inducing_basis", "rows", "new_data_factor", "bound_increment")
SPARSE_BLOCK = " ".join(f"models.streaming_gp.{name}.ROWS_PER_BLOCK" for name in SPARSE_FILES)
HUGE = 1 << 40
SWITCHES = [
    Switch(CANDIDATES, (N, N - 1), streaming(), OTHERWISE),
    Switch(CANDIDATES, (N, 7), streaming(batches=3), OTHERWISE, "-batches"),
    Switch(CANDIDATES, (N, 7), streaming(learn=True), OTHERWISE, "-learn", few=True),
    Switch(CANDIDATES, (N, 7), streaming(probit), OTHERWISE, "-probit"),
    Switch("models.streaming_gp.search.MAX_FIRST_ROWS", (N, N - 1, 9), streaming(learn=True), OTHERWISE, few=True),
    Switch(
        "models.streaming_gp.search.MAX_FIRST_ROWS",
        (24, 9),
        streaming(student, learn="covariance", most=24),
        OTHERWISE,
        "-student",
        few=True,
    ),
    Switch("models.streaming_gp.rows.MAX_KEPT_NUMBERS", (HUGE, 0), streaming(batches=2)),
    Switch("models.streaming_gp.rows.MAX_KEPT_NUMBERS", (HUGE, 0), streaming(probit, batches=2), BITS, "-probit"),
    Switch("models.streaming_gp.bound_increment.MAX_KEPT_NUMBERS", (HUGE, 0), streaming(learn=True), few=True),
    Switch(SPARSE_BLOCK, (N, 7), streaming(batches=2), ROUNDING),
    Switch("models.streaming_gp.inducing_basis.ROWS_PER_TASK", (N, 7), streaming(batches=2), ROUNDING),
    Switch(SPARSE_BLOCK, (N, 7), streaming(learn=True), RULES, "-learn", few=True),
    Switch(SPARSE_BLOCK, (N, 7), streaming(probit, batches=2), RULES, "-probit"),
    Switch(CANDIDATE_NUMBERS, (12 * N, 12 * N - 1, 12 * 9), streaming(batches=2), OTHERWISE),
    Switch(WAITING_ROWS, (HUGE, 3), streaming(batches=12, tolerance=1e-6), OTHERWISE),
    Switch("models.process.predictions.ROWS_PER_TASK", (N, 7), streaming()),
    Switch("ep.latent.MATCHED_ROWS", (N, 7), process(probit, schedule="parallel"), ROUNDING),
    Switch("ep.latent.MAX_COMPILED_ROWS", (N, N - 1), process(probit, schedule="sequential"), RULES),
    Switch("ep.latent.MAX_COMPILED_ROWS", (N, N - 1), process(student), RULES, "-student"),
    Switch(JOINT_SITES, ((64, 0), (7, 0)), process(probit, schedule="sequential"), RULES),
    Switch(JOINT_SITES, ((64, 0), (7, 0)), process(student), RULES, "-student"),
    Switch("ep.latent.SWEEPS_PER_REBUILD", (HUGE, 1), process(probit, schedule="sequential"), RULES),
    Switch("linalg.tiled.MIN_TILED_ROWS", (N + 1, N), process(student), ROUNDING),
    Switch("linalg.tiled.MIN_TILED_ROWS", (N + 1, 2), glm(schedule="sequential"), RULES, "-glm"),
    Switch("linalg.tiled.FEW_FLOPS", (np.inf, 0.0), process(student), BITS),
    Switch("linalg.tiled.MOST_FLOPS", (np.inf, 1.0), process(student), BITS),
    Switch("linalg.tiled.ENTRIES_PER_TASK", (N * N + 1, 100), process(student), BITS),
    Switch("ep.latent_solver.COLUMNS_PER_TASK", (N, 7), process(student), RULES),
    Switch(BLOCKS_OF_GRAM, ((128, 1 << 16), (7, 1)), gram, ROUNDING),
    Switch("models.process.predictions.ROWS_PER_TASK", (N, 7), process(gaussian), ROUNDING),
    Switch("ep.engine.FIRST_SWEEP_ROWS", (N, N - 1, 7), process(probit, schedule="parallel"), RULES),
    Switch("ep.engine.MAX_RETREAT_ROWS", (N, N - 1), process(probit, schedule="parallel")),
    Switch("ep.engine.FIRST_SWEEP_ROWS", (N, N - 1, 7), glm(), RULES, "-glm"),
    Switch("ep.engine.MAX_RETREAT_ROWS", (N, N - 1), glm(), BITS, "-glm"),
    Switch("ep.dense.SWEEP_ROWS", (N, 7), glm(schedule="sequential"), RULES),
    Switch("ep.dense.MAX_RANK_ONE_COLUMNS", (D, D - 1), glm(schedule="sequential"), RULES),
    Switch("ep.dense.MAX_RANK_ONE_COLUMNS", (D, D - 1), glm(method="adf"), RULES, "-adf"),
    Switch("ep.dense.ROW_GROUPS", (16, 1), glm(schedule="stochastic"), RULES),
    Switch("ep.dense.MAX_TILED_COLUMNS", (D, D - 1), glm(schedule="parallel"), RULES),
    Switch("ep.dense.MAX_LOOP_COLUMNS", (D, D - 1), glm(schedule="parallel"), ROUNDING),
    Switch("sources.features.ROWS_PER_BLOCK models.glm.problem.ROWS_PER_BLOCK", (N, 7), glm()),
    Switch("sources.features.ROWS_PER_BLOCK models.glm.problem.ROWS_PER_BLOCK", (N, 7), few_rows, BITS, "-few"),
    Switch(SEARCHED_ROWS, ((HUGE, N), (N, N // 2)), learnt_scale, RULES),
    Switch("models.glm.sparse_rows.KERNEL_ROWS", (N, 7), glm(approximation="diagonal"), RULES),
    Switch("models.glm.sparse_rows.KERNEL_ROWS", (N, 7), glm(approximation="diagonal", method="adf"), BITS, "-adf"),
    Switch("models.glm.sparse_rows.CHUNK_NUMBERS", (N * D, 7), glm(approximation="diagonal"), BITS),
    Switch("base.column_statistics.MAX_NARROW_COLUMNS", (D, D - 1), glm()),
    Switch("models.regression.linear.ROWS_OF_QR", (N, 7), regression, ROUNDING),
    Switch("models.regression.linear.MIN_WIDE_COLUMNS", (D + 1, D), regression, BITS),
    Switch("models.regression.posterior.PREDICT_ROWS", (N, 7), regression),
    Switch("models.regression.logistic.LEAST_ROWS models.regression.logistic.MOST_ROWS", (N, 7), logistic, ROUNDING),
    Switch(
        "models.regression.logistic.MOST_NUMBERS models.regression.logistic.BLOCK_NUMBERS",
        (N * D, 8),
        logistic,
        ROUNDING,
    ),
    Switch(BLOCKS, ((N, N), (8, 8)), mixture(), RULES, few=True),
    Switch(
        "models.mixture.e_step.BLOCK_WORK models.mixture.e_step.MIN_BLOCK_ROWS",
        ((HUGE, 1), (1, 4)),
        mixture(),
        RULES,
        few=True,
    ),
    Switch("models.mixture.start.DISTANCE_ROWS", (N, 7), mixture(weight=True), few=True),
    Switch("sources.sources.SAMPLE_ROWS", (N, N - 1, 13), mixture(weight=True), OTHERWISE, few=True),
    Switch("sources.sources.SAMPLE_ROWS", (N, N - 1, 13), unit_mixture, OTHERWISE, "-unit"),
    Switch("runs.merge.ROWS_PER_CALL", (N, 7), unit_mixture, RULES),
    Switch(BLOCKS_OF_FILES, ((HUGE, 8), (D * 8, 8)), mixture(), RULES, few=True),
    Switch("sources.column_summary.FOLDED_ROWS", (N, 7), mixture(covariance="diag"), RULES, few=True),
    Switch("models.clutter.problem.MEDIAN_POINTS", (N, 7), clutter(), RULES),
    Switch("models.clutter.power_ep.SITES_AT_ONCE", (6, 4), clutter(power=0.5, rows=6), RULES, few=True),
    Switch("likelihoods.quadrature.SITES_PER_CHUNK", (N, 7), own_likelihood(), ROUNDING, few=True),
    Switch("likelihoods.quadrature.PANELS_PER_CHUNK", (HUGE, 7), own_likelihood(0.5), ROUNDING, few=True),
    Switch("base.arrays.NUMBERS_PER_FINITE_CHECK", (HUGE, 7), regression),
    Switch("base.arrays.SYMMETRY_TILE_ROWS", (N, 7), gram),
    Switch("sklearn.linear.BLOCK_ROWS", (N, 7), face("LogitClassifier", classes=True), BITS, few=True),
    Switch(
        "sklearn.mixture.maximum_likelihood.BLOCK_ROWS", (N, 7), face("GaussianMixture", 2, random_state=0), few=True
    ),
    Switch(
        "sklearn.mixture.responsibilities.MAX_VALUES_DRAWN",
        (HUGE, 7),
        face("GaussianMixture", 2, init_params="random", random_state=0),
        few=True,
    ),
    Switch(REGRESSION, (N, 7), face("GaussianProcessRegressor", alpha=0.1), ROUNDING, few=True),
    Switch(
        CANDIDATES, (N, 7), face("StreamingGPRegressor", learn=False, batches=True), OTHERWISE, "-regressor", few=True
    ),
    Switch(
        CANDIDATES,
        (N, 7),
        face("StreamingGPClassifier", classes=True, learn=False, batches=True),
        OTHERWISE,
        "-classifier",
        few=True,
    ),
]


@contextmanager
def set_to(switch, side):
    """Within it the constants of a switch have the values of a side."""
    names = switch.names.split()
    values = side if isinstance(side, tuple) else (side,) * len(names)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(names, values, strict=True):
            module, _, constant = name.rpartition(".")
            patch.setattr(import_module(f"cavity.{module}"), constant, value)
        yield


@pytest.mark.long_cases(
    "models.streaming_gp.search.MAX_FIRST_ROWS-student-few",
    "models.streaming_gp.inducing_basis.ROWS_PER_BLOCK-learn-few",
    "models.streaming_gp.update.MAX_CANDIDATE_ROWS-learn-few",
)
@pytest.mark.filterwarnings("ignore::cavity.SettingsWarning", "ignore::cavity.ConvergenceWarning")
@pytest.mark.parametrize("layouts", [FEW, pytest.param(tuple(LAYOUTS), marks=pytest.mark.long)], ids=["few", "all"])
@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_layouts_on_each_side(switch, layouts, tmp_path):
    X, y = numbers()
    first = switch.fit(X, y)
    assert np.all(np.isfinite(first))
    for i, side in enumerate(switch.sides):
        with set_to(switch, side):
            ordinary = switch.fit(X, y)
            for name in (FEW[i % 2],) if layouts is FEW else FEW if switch.few else layouts:
                laid = LAYOUTS[name](X, tmp_path)
                np.testing.assert_array_equal(switch.fit(laid, y), ordinary, err_msg=f"{name}, {side}")
        if switch.close is not None:
            np.testing.assert_allclose(ordinary, first, rtol=0, atol=switch.close * np.max(np.abs(first)))


# ---------------------------------------------------------------------------------------------- other arguments


def by_vectors(X, y, w, offset):
    """Fits that take vectors: targets, weights, offsets, noise variances."""
    yield cavity.LinearRegression(intercept=False).fit(X, y).mean
    yield GLM(gaussian).fit(X, y, sample_weight=w, offset=offset).mean
    yield GLM(gaussian, approximation="diagonal").fit(X, y, sample_weight=w, offset=offset).mean
    for model in (
        cavity.GaussianProcess(covariances.RBF(1.0, 8.0)),
        cavity.StreamingGP(covariances.RBF(1.0, 8.0), n_inducing=9),
    ):
        done = model.fit(X, y, sample_weight=w, offset=offset, noise_variance=w, learn=False)
        yield floats(*done.predict(X, offset=offset))
        more = done.update(X[:9], y[:9], sample_weight=w[:9], offset=offset[:9], noise_variance=w[:9])
        yield floats(*more.predict(X, offset=offset))
    yield (
        cavity.StreamingGP(covariances.RBF(1.0, 8.0), student, n_inducing=9).fit(X, y, offset=offset, learn=False).mean
    )
    yield cavity.GaussianMixture(2).fit(X, sample_weight=w, n_init=1, tol=1e-3).mean
    yield cavity.UnitMixture(2).fit(y).mean
    yield cavity.Clutter(noise_variance=1.0).fit(y).mean


@pytest.mark.sample(4)
@pytest.mark.filterwarnings("ignore::cavity.SettingsWarning")
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("int16", "map by columns")])
@pytest.mark.parametrize("candidates", [HUGE, 7])
def test_layouts_of_vectors(layout, candidates, monkeypatch, tmp_path):
    monkeypatch.setattr("cavity.models.streaming_gp.update.MAX_CANDIDATE_ROWS", candidates)
    X, y = numbers()
    w, offset = 0.5 + np.arange(N) % 3, np.arange(N) % 5 / 4.0
    folders = [tmp_path / str(i) for i in range(3)]
    for folder in folders:
        folder.mkdir()
    laid = (LAYOUTS[layout](a, folder) for a, folder in zip((y, w, offset), folders, strict=True))
    for actual, expected in zip(by_vectors(X, *laid), by_vectors(X, y, w, offset), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("name", "sides"), [("PANEL_ROWS", (30, 7)), ("MAX_SIZE_FOR_ALL_EIGENVALUES", (30, 29))])
def test_layouts_of_a_precision_matrix(name, sides, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    root = rng.integers(-2, 3, (30, 30)).astype(np.float64)
    matrix, mean, result = root @ root.T + 40.0 * np.eye(30), np.arange(30.0), []
    for side in sides:
        monkeypatch.setattr(f"cavity.models.factorized.target.{name}", side)

        def fit(mean, matrix):
            done = cavity.FactorizedGaussian(mean, matrix).fit()
            return floats(done.mean, done.variance, done.kl, done.theoretical_contraction)

        result.append(fit(mean, matrix))
        for layout, lay in LAYOUTS.items():
            np.testing.assert_array_equal(fit(lay(mean, tmp_path), lay(matrix, tmp_path)), result[-1], err_msg=layout)
    np.testing.assert_allclose(*result, rtol=ROOT_EPS)


@pytest.mark.parametrize("approximation", ["full", "diagonal"])
def test_copies_of_rows(approximation, monkeypatch):
    X, y = numbers()
    weights = 1.0 + np.arange(N) % 3
    model = GLM(probit, approximation=approximation)
    most = np.sum(weights - 1.0)
    monkeypatch.setattr("cavity.models.glm.solution.MAX_ROW_COPIES", most)
    model.fit(X, labels(y), sample_weight=weights, method="adf")
    monkeypatch.setattr("cavity.models.glm.solution.MAX_ROW_COPIES", most - 1)
    with pytest.raises(ValueError, match="copies of rows, more than .*: use method='ep'"):
        model.fit(X, labels(y), sample_weight=weights, method="adf")


# ---------------------------------------------------------------------------------------------- sizes in kernels


@cache
def fitted(name):
    """Posteriors that rows are judged by."""
    if name == "sparse":
        model = cavity.StreamingGP(covariances.RBF(), inducing=np.arange(5.0)[:, None])
        return model.fit([[0.0], [3.0]], [1.0, -1.0], learn=False)
    if name == "mixture":
        return cavity.UnitMixture(3).fit([-5.0, -4.0, 0.0, 1.0, 6.0, 7.0])
    return cavity.GaussianMixture(2).fit(numbers()[0][:, :1], n_init=1, tol=1e-3)


def streamed(X):
    """Predictions of a state of few inducing points."""
    return np.column_stack(fitted("sparse").predict(X[:, None]))


def mixed(X):
    """Responsibilities and densities under a mixture."""
    return np.column_stack([fitted("mixture").responsibilities(X), fitted("mixture").log_density(X)])


def mixed_in_columns(X):
    """The same under a mixture of columns."""
    done = fitted("gaussian mixture")
    return np.column_stack([done.responsibilities(X[:, None]), done.log_density(X[:, None])])


ALONE = {  # functions of rows, each for itself, and the sizes at which their kernels go on otherwise
    "sites": (lambda X: np.column_stack(probit.log_tilted(np.sign(X + 0.5), X, 1.0 + X * X)), (16, 128)),
    "quadrature": (
        lambda X: np.column_stack(likelihoods.Poisson().log_tilted(np.abs(X), X / 16, 1.0 + 0 * X)),
        (16, 128),
    ),
    "covariance": (lambda X: covariances.RBF().cross(X[:, None], np.arange(5.0)[:, None]), (8, 128)),
    "sparse": (streamed, (512,)),
    "mixture": (mixed, (32, 8192)),
    "gaussian mixture": (mixed_in_columns, (1024,)),
    "products": (
        lambda X: (cavity.Gaussian(X, 1.0 + X * X) * cavity.Gaussian(2 * X, 3.0 + X * X)).log_scale,
        (128, 512),
    ),
}


@pytest.mark.parametrize(("name", "size"), [(name, size) for name, (_, sizes) in ALONE.items() for size in sizes])
def test_rows_alone_and_together(name, size, tmp_path):
    """However many rows there are, and however they lie in memory, each gets the same bits."""
    function = ALONE[name][0]
    X = np.arange(size + 1) % 37 - 18.0
    full = function(X)
    few = [0, 1, size // 2, size - 2, size - 1, size]
    for i in few:
        np.testing.assert_array_equal(function(X[i : i + 1]), full[i : i + 1])
    for n in (size - 1, size):
        np.testing.assert_array_equal(function(X[:n]), full[:n])
    for layout in ("strided", "reversed", "float32", "int16", "unaligned", "map"):
        np.testing.assert_array_equal(function(LAYOUTS[layout](X, tmp_path)), full, err_msg=layout)


@pytest.mark.parametrize("n", [8191, 8192, 8193])
@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
def test_chunks_of_the_clutter_problem(n, schedule, tmp_path):
    """Halves of the data, in any layout: sums over chunks are those of twice the weight of one half, to rounding."""
    x = np.arange(n) % 41 - 20.0
    model = cavity.Clutter(clutter_weight=0.3, clutter_variance=300.0, noise_variance=30.0)
    ordinary = model.fit(x, schedule=schedule)
    for layout in ("strided", "float32", "int16", "map"):
        laid = model.fit(LAYOUTS[layout](x, tmp_path), schedule=schedule, n_threads=2)
        np.testing.assert_array_equal([laid.mean, laid.variance], [ordinary.mean, ordinary.variance])
    turned = model.fit(x[::-1], schedule=schedule)
    assert turned.log_evidence == pytest.approx(ordinary.log_evidence, rel=EARLY)


@pytest.mark.parametrize("n", [1023, 1024, 1025])
def test_large_matrices_are_written_past_the_caches(n):
    X = (np.arange(n) % 211 / 16.0)[:, None]
    k = covariances.RBF()
    full, some = k.gram(X), [0, 7, n - 1]
    np.testing.assert_array_equal(full[some], k.cross(X[some], X))
    np.testing.assert_array_equal(full, full.T)


@pytest.mark.parametrize("n", [(1 << 17) - 1, 1 << 17, (1 << 20) - 1, 1 << 20])
def test_large_products_on_threads_and_past_the_caches(n):
    tau = np.arange(n) % 41 - 20.0
    a, b = (tau, 1.0 + tau * tau, 0.0 * tau), (0.5 * tau, 2.0 + 0.0 * tau, tau)
    one, two = (cavity.multiply(*a, *b, n_threads=n_threads) for n_threads in (1, 2))
    few = slice(n - 300, n)
    end = cavity.multiply(*(v[few] for v in a), *(v[few] for v in b))
    for x, y, z in zip(one, two, end, strict=True):
        np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(x[few], z)


def many_rows():
    """One more row than there may be candidates."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, ((1 << 16) + 1, 2))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=len(X))


def test_more_rows_than_candidates():
    """With the switch where it is."""
    X, y = many_rows()
    k = covariances.RBF(1.0, [3.0, 30.0])
    state = cavity.StreamingGP(k, gaussian, n_inducing=8).fit(X[:5], y[:5], learn=False).update(X, y)
    assert (state.n_samples, state.n_inducing) == (len(y) + 5, 8)
    regressor = cavity.sklearn.StreamingGPRegressor(k, alpha=0.1, n_inducing=8, learn=False)
    assert regressor.partial_fit(X[:5], y[:5]).partial_fit(X, y).n_samples_seen_ == len(y) + 5


@pytest.mark.long
def test_learning_from_more_rows_than_candidates():
    X, y = many_rows()
    state = cavity.StreamingGP(covariances.RBF(1.0, [1.0, 1.0]), gaussian, n_inducing=20).fit(X, y)
    assert state.model.likelihood.noise_variance == pytest.approx(0.09, rel=0.05)
    assert np.max(np.abs(state.predict(X[:100])[0] - np.sin(X[:100, 0]))) < 0.1
