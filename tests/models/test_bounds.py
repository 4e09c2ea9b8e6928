"""What a call may take: memory that there is, or it refuses before work, and passes whose number max_iter bounds."""

import tracemalloc

import numpy as np
import pytest

import cavity
from cavity.ep.options import Options
from cavity.likelihoods import Likelihood, StudentT
from cavity.models.clutter.model import OPTION_LIMITS
from cavity.models.clutter.problem import DataPoints, Points
from cavity.models.clutter.sweeps import Sweeper, Visits
from cavity.runs.executors import Threads
from cavity.sources.npy import NpyFile

N = 1 << 17  # 8 N^2 bytes are 137 GB
MEMORY = 1 << 34  # bytes of the machine, 17 GB
ONES = np.ones(4)


def lazy(*shape):
    """An array of ones that takes no memory."""
    return np.broadcast_to(1.0, shape)


TOO_LARGE = {  # a call, and the bytes that its message says
    "glm": (lambda: cavity.GLM("probit").fit(lazy(N, N), lazy(N)), 6 * 8 * N**2),
    "glm in order": (lambda: cavity.GLM("poisson").fit(lazy(N, N), lazy(N), schedule="sequential"), 6 * 8 * N**2),
    "glm adf": (lambda: cavity.GLM("logit").fit(lazy(N, N), lazy(N), method="adf"), 6 * 8 * N**2),
    "glm of few rows": (lambda: cavity.GLM("probit").fit(lazy(N, 2 * N), lazy(N)), 6 * 8 * N**2),
    "glm of wide rows": (lambda: cavity.GLM("probit").fit(lazy(4, N**2), ONES), 2 * 8 * 4 * N**2),
    "linear": (lambda: cavity.LinearRegression(intercept=False).fit(lazy(4, N), ONES), 8 * N**2),
    "logistic": (lambda: cavity.LogisticRegression(intercept=False).fit(lazy(4, N), [0, 0, 1, 1]), 8 * N**2),
    "gp": (lambda: cavity.GaussianProcess("rbf").fit(lazy(N, 1), lazy(N)), 2 * 8 * N**2),
    "gp classes": (lambda: cavity.GaussianProcess("rbf", "probit").fit(lazy(N, 1), lazy(N)), 2 * 8 * N**2),
    "gp of wide rows": (lambda: cavity.GaussianProcess("rbf").fit(lazy(4, N**2), ONES), 8 * 4 * N**2),
    "stream of wide rows": (lambda: cavity.StreamingGP("rbf").fit(lazy(4, N**2), ONES), 8 * 4 * N**2),
    "stream": (lambda: cavity.StreamingGP("rbf", n_inducing=N).fit(ONES[:, None], ONES), 8 * 8 * N**2),
    "mixture": (lambda: cavity.GaussianMixture(2).fit(lazy(4, N)), 2 * 8 * N**2),
    "mixture tied": (lambda: cavity.GaussianMixture(2, covariance="tied").fit(lazy(4, N)), 8 * N**2),
    "many components": (lambda: cavity.GaussianMixture(N**2).fit(lazy(4, 1)), 16 * 8 * N**2),
    "unit mixture": (lambda: cavity.UnitMixture(N**2).fit(ONES), 16 * 8 * N**2),
    "factorized": (lambda: cavity.FactorizedGaussian(0.0, lazy(N, N)), 8 * N**2),
}


@pytest.mark.long_cases("mixture tied")
@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_does_not_fit_into_memory_is_refused_before_work_with_its_size(name, monkeypatch):
    call, size = TOO_LARGE[name]
    monkeypatch.setattr("cavity.base.arrays._memory", lambda: MEMORY)
    tracemalloc.start()
    try:
        with pytest.raises(MemoryError, match=rf"\) needs {size} bytes, more than there are"):
            call()
        assert tracemalloc.get_traced_memory()[1] < 1e-3 * size  # some vectors at most
    finally:
        tracemalloc.stop()


def test_sites_of_points_and_factors_of_groups_are_refused_with_their_size(monkeypatch):
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(3000, 2)), {name: rng.integers(0, 200, 3000) for name in "gh"}
    model = cavity.MixedGLM(["g", "h"], "probit", intercept=True)
    monkeypatch.setattr("cavity.base.arrays._memory", lambda: 50_000)
    reports = []
    with pytest.raises(MemoryError, match=r"their sites, of shape \(3000, 3\) needs 72000 bytes"):
        cavity.Clutter().fit(x, callback=reports.append)
    with pytest.raises(MemoryError, match=r"sparse factor of a matrix of 402 rows, .* needs [0-9]{6} bytes"):
        model.fit(x[:, :1], x[:, 1] > 0, groups=groups, callback=reports.append)
    assert reports == []


def test_rows_that_are_left_out_need_no_memory(monkeypatch):
    X, y, weights = np.eye(100), np.ones(100), np.repeat([1.0, 0.0], [4, 96])
    model = cavity.GLM("probit", prior_variance=1.0, intercept=False)
    expected = model.fit(X, y, sample_weight=weights)
    monkeypatch.setattr("cavity.base.arrays._memory", lambda: 10_000)  # of matrices 4 x 4 and two copies 4 x 100
    np.testing.assert_array_equal(model.fit(X, y, sample_weight=weights).mean, expected.mean)
    with pytest.raises(MemoryError, match=r"\(100, 100\) needs 480000 bytes"):
        model.fit(X, y)


# ------------------------------------------------------------------------------------------------------------ passes


class Contradiction(Likelihood):
    """Student's t of one degree of freedom, far narrower than the data are apart; it counts the sites asked for."""

    law = StudentT(1.0, 0.01)

    def __init__(self):
        self.sites = 0

    def log_p(self, y, f):
        return self.law.log_p(y, f)

    def log_tilted(self, y, mean, variance):
        self.sites += len(mean)
        return self.law.log_tilted(y, mean, variance)


ROWS = 24
X = np.random.default_rng(3).normal(size=(ROWS, 3))
Y = np.where(np.arange(ROWS) % 2, 50.0, -50.0) + X[:, 0]
GROUPS = {"g": np.arange(ROWS) % 7}


def glm(likelihood, max_iter, approximation="full", **options):
    return cavity.GLM(likelihood, approximation=approximation, intercept=False).fit(X, Y, max_iter=max_iter, **options)


def process(likelihood, max_iter, **options):
    return cavity.GaussianProcess("rbf", likelihood).fit(X, Y, learn=False, max_iter=max_iter, **options)


def stream(likelihood, max_iter):
    return cavity.StreamingGP("rbf", likelihood, n_inducing=10).fit(X, Y, learn=False, max_iter=max_iter)


def mixed(likelihood, max_iter):
    model = cavity.MixedGLM("g", likelihood, intercept=True, effect_covariances={"g": 1.0})
    return model.fit(X, Y, groups=GROUPS, max_iter=max_iter)


SITES = {  # a fit, and how many times it asks for each site: in a sweep, and besides
    "glm": (glm, 1, 2),  # the first sweep in order, and the evidence
    "glm in order": (lambda *given: glm(*given, schedule="sequential"), 1, 1),
    "glm stochastic": (lambda *given: glm(*given, schedule="stochastic"), 1, 2),
    "glm diagonal": (lambda *given: glm(*given, approximation="diagonal"), 1, 1),
    "gp": (process, 3, 5),
    "gp in order": (lambda *given: process(*given, schedule="sequential"), 2, 2),
    "stream": (stream, 1, 2),
    "mixed": (mixed, 1, 35),  # ten rough sweeps, for which rows have more noise, find the sites to begin with
}


@pytest.mark.parametrize("max_iter", [1, 2, 3])
@pytest.mark.parametrize("name", SITES)
@pytest.mark.filterwarnings("ignore::cavity.errors.ConvergenceWarning", "ignore::cavity.errors.SettingsWarning")
def test_sites_are_asked_for_as_often_as_max_iter_allows(name, max_iter):
    fit, item, besides = SITES[name]
    likelihood = Contradiction()
    posterior = fit(likelihood, max_iter)
    assert posterior.n_iter == max_iter
    assert not posterior.converged
    assert ROWS <= likelihood.sites <= (item * max_iter + besides) * ROWS


@pytest.mark.sample(2)
@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
def test_the_double_loop_has_three_steps_for_each_sweep_of_max_iter(schedule):
    with pytest.warns(cavity.ConvergenceWarning):
        posterior = glm(Contradiction.law, 12, schedule=schedule)
    steps = int(posterior.trace["double_loop"])
    assert 12 < steps <= 36
    assert posterior.n_iter - steps <= 12


READ = np.random.default_rng(4).standard_t(2, size=(3000, 2))
PASSES = {  # a fit of a file, and how many times it is read: in a pass, and besides
    "linear": (lambda path, **most: cavity.LinearRegression(intercept=False).fit(path, READ[:, 0], **most), 0, 1),
    "logistic": (
        lambda path, **most: cavity.LogisticRegression(intercept=False).fit(path, READ[:, 0] > 0, **most),
        1,
        1,
    ),
    # besides: 4,096 rows, which are all of these, are read twice before the first pass, for their scale and one by one
    "glm": (lambda path, **most: cavity.GLM(Contradiction.law, intercept=False).fit(path, READ[:, 0], **most), 1, 9),
    "mixture": (lambda path, **most: cavity.GaussianMixture(4).fit(path, **most), 3, 1),
    "mixture, starts": (lambda path, **most: cavity.GaussianMixture(4).fit(path, n_init=3, rng=0, **most), 5, 1),
    "mixture, moves": (lambda path, **most: cavity.GaussianMixture(4).fit(path, moves=True, **most), 3, 1),
    "numbers": (lambda path, **most: cavity.UnitMixture(4).fit(path.with_name("numbers.npy"), **most), 1, 2),
    "numbers, starts": (
        lambda path, **most: cavity.UnitMixture(4).fit(path.with_name("numbers.npy"), n_init=3, rng=0, **most),
        *(3, 2),
    ),
    "clutter": (lambda path, **most: cavity.Clutter().fit(path, **most), 1, 4),
    "clutter at once": (lambda path, **most: cavity.Clutter().fit(path, schedule="parallel", **most), 1, 5),
}


@pytest.mark.parametrize("max_iter", [1, 2, 3])
@pytest.mark.parametrize("name", PASSES)
@pytest.mark.filterwarnings("ignore::cavity.errors.ConvergenceWarning", "ignore::cavity.errors.SettingsWarning")
def test_files_are_read_as_often_as_max_iter_allows(name, max_iter, tmp_path, monkeypatch):
    fit, item, besides = PASSES[name]
    np.save(tmp_path / "rows.npy", READ)
    np.save(tmp_path / "numbers.npy", READ[:, 0])
    read, fill = [], NpyFile.fill

    def counted(part, out, start, desk):
        read.append(len(out))
        fill(part, out, start, desk)

    monkeypatch.setattr(NpyFile, "fill", counted)
    assert fit(tmp_path / "rows.npy", max_iter=max_iter).n_iter <= max_iter
    assert len(READ) <= sum(read) <= (item * max_iter + besides) * len(READ) + 100  # a sample


# ------------------------------------------------------------------------------------------- loops that once had no end


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_sites_of_points_that_are_no_numbers_end_the_fit(lost):
    x = np.random.default_rng(0).normal(size=(20, 1))
    points = Points.of(DataPoints(x), cavity.Clutter())
    options = Options.checked(**OPTION_LIMITS, schedule="parallel", damping=1.0, power=1.0, max_iter=5, tol=1e-8)
    with Threads(1) as threads:
        sweeper = Sweeper(points, options, Visits(), threads)
        sweeper.sites.site_rho[3] = lost
        with pytest.raises(OverflowError, match="leave the range of float64"), np.errstate(invalid="ignore"):
            sweeper.make_proper()


def test_cavities_of_independent_weights_that_stay_improper_end_the_fit(set_sizes):
    X = [[-6.7, -67.1, 9.9], [212.0, -42.6, 217.9], [131.9, -116.6, -183.5], [44.3, 82.0, -28.5]]
    model = cavity.GLM(StudentT(1.63, 0.04), approximation="diagonal", intercept=False)
    fit = lambda: model.fit(X, [-2.6, 0.0, -3.8, -99.7], max_iter=2)  # noqa: E731
    with pytest.warns(cavity.ConvergenceWarning):
        assert np.isfinite(fit().log_evidence)  # after seven halvings
    set_sizes(MOST_HALVINGS=3)
    with pytest.raises(ArithmeticError, match="the cavity of row . is lost to rounding"):
        fit()
