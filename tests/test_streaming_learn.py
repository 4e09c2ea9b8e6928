"""Learning of streaming Gaussian processes: increments and gradients against integrals in 40 digits, and searches."""

import mpmath as mp
import numpy as np
import pytest
from gaussian_processes import COVARIANCES, covariance
from reference import gaussian_process
from reference import streaming_learn as reference

from cavity import StreamingGP, _streaming_increment, likelihoods
from cavity import covariances as c
from cavity._executors import Threads
from cavity._gp_evidence import Settings
from cavity._streaming_increment import Increment, RowSites
from cavity._streaming_rows import Rows
from cavity.errors import NotPositiveDefiniteError

JITTER = 1e-6
THREADS = Threads(1)

# ------------------------------------------------------------------------------------------ increments


def rows_of(n, seed=0, d=2):
    """Rows, what was seen there, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n), rng.uniform(0.4, 2.5, n)


def rows_in(X, y, w=None, noise=None):
    return Rows(X, y, None, w, noise)


def model_of(alpha, **settings):
    return StreamingGP(c.RBF(), alpha=alpha, jitter=JITTER, **settings)


def settings_of(kernel, noise=0.2):
    return Settings(kernel, likelihoods.Gaussian(noise))


def points(which, X):
    """Inducing points of a first batch, and of the second: the same, some of them, or none."""
    first = X[:4].copy()
    second = {
        "same": first,
        "turned": first[::-1],
        "partly": np.vstack([first[[2, 0]], X[4:7]]),
        "others": X[5:9].copy(),
    }[which]
    return first, second


class Case:
    """Two batches, by the library and by the twin; the second may be under another covariance."""

    def __init__(self, which, alpha, row_noise=False, negative=False):
        self.alpha, X, y, w = alpha, *rows_of(12)
        self.noise = np.linspace(0.1, 0.6, 6) if row_noise else None
        self.first, self.second = points(which, X)
        self.old_batch, self.rows = (X[:6], y[:6], w[:6]), (X[6:], y[6:], w[6:])
        self.sites = (np.array([0.3, -0.5, 0.2, 0.1, 0.9, -1.0]), np.array([0.8, -0.05, 0.0, 1.5, -0.1, 0.4]))
        self.sites = self.sites if negative else None

    def library(self, start, kernel, noise=0.2):
        """(increment, its Increment, its Solution)."""
        X, y, w = self.old_batch
        before = Increment(None, self.first, rows_in(X, y, w), model_of(self.alpha), THREADS).at(settings_of(start))
        X, y, w = self.rows
        batch, old = rows_in(X, y, w, self.noise), (before.basis, before.information)
        increment = Increment(old, self.second, batch, model_of(self.alpha), THREADS)
        sites = None
        if self.sites is not None:
            sites = RowSites(*self.sites, self.alpha * np.minimum(1.0, 1.0 / w))
        return increment, increment.at(settings_of(kernel, noise), sites=sites)

    def old(self, k):
        """The state of the twin after the first batch."""
        X, y, w = self.old_batch
        sites, constant = reference.gaussian(y, [mp.mpf(0.2)] * len(y), w)
        state = reference.batch(k, None, self.first, X, sites, w, self.alpha, JITTER)
        return *state[:3], state[3] + constant, state[4] + constant

    def twin(self, old, k, log_noise=None):
        """The increment of the second batch by the twin."""
        X, y, w = self.rows
        log_noise = mp.log(mp.mpf(0.2)) if log_noise is None else log_noise
        noise = [mp.exp(log_noise)] * len(y) if self.noise is None else [mp.mpf(v) for v in self.noise]
        sites, constant = reference.gaussian(y, noise, w)
        if self.sites is not None:
            sites, constant = [[mp.mpf(v) for v in part] for part in self.sites], 0
        return reference.batch(k, old, self.second, X, sites, w, self.alpha, JITTER)[4] + constant - old[4]


@pytest.mark.parametrize(
    ("which", "alpha", "variant"),
    [
        *((which, alpha, {}) for which in ("same", "turned", "partly", "others") for alpha in (0.0, 0.3, 1.0)),
        *(("partly", alpha, {"row_noise": True}) for alpha in (0.0, 1.0)),
        *(("partly", alpha, {"negative": True}) for alpha in (0.0, 0.6)),
    ],
)
def test_increment_and_gradient_agree_with_integrals_in_40_digits(which, alpha, variant):
    case, h = Case(which, alpha, **variant), mp.mpf("1e-12")
    start, kernel = c.RBF(1.0, lengthscale=[1.0, 1.4]), c.RBF(1.3, lengthscale=[0.8, 1.1])
    with mp.workdps(reference.DIGITS):

        def value(log_parameters, log_noise=None):
            parameters = [mp.exp(p) for p in log_parameters]
            return case.twin(old, reference.rbf(parameters[0], parameters[1:]), log_noise)

        old = case.old(reference.rbf(mp.mpf(1), [mp.mpf(1), mp.mpf(1.4)]))
        place = [mp.log(mp.mpf(v)) for v in (1.3, 0.8, 1.1)]
        expected = float(value(place))
        steps = [[h * (i == j) for i in range(3)] for j in range(3)]
        slopes = [
            (value([p + s for p, s in zip(place, step, strict=True)])
             - value([p - s for p, s in zip(place, step, strict=True)])) / (2 * h)
            for step in steps
        ]  # fmt: skip
        log_noise = mp.log(mp.mpf(0.2))
        by_noise = (value(place, log_noise + h) - value(place, log_noise - h)) / (2 * h)
    increment, found = case.library(start, kernel)
    assert found.log_evidence == pytest.approx(expected, rel=1e-11, abs=1e-11)
    by_covariance, by_mean, by_scale = increment.gradient(found)
    size = max(abs(float(s)) for s in slopes)
    np.testing.assert_allclose(by_covariance, [float(s) for s in slopes], rtol=1e-9, atol=1e-9 * size)
    assert by_mean.size == 0
    if not variant:
        np.testing.assert_allclose(by_scale, [float(by_noise)], rtol=1e-9, atol=1e-10)
    elif "row_noise" in variant:
        assert by_scale.size == 0


@pytest.mark.parametrize("name", [name for name in COVARIANCES if name not in ("White", "Constant", "sum")])
def test_gradient_with_every_covariance(name):
    """Where both batches share some inducing points; `sum` has White in it, which has no place here."""
    kernel, twin = covariance(name)
    kernel, twin = kernel + c.RBF(0.5, lengthscale=1.2), gaussian_process.total(twin, gaussian_process.rbf(0.5, 1.2))
    case, h, place = Case("partly", 0.3), 1e-3, kernel.log_parameters

    def value(vector):
        return case.library(kernel, kernel.with_log_parameters(vector))[1].log_evidence

    increment, found = case.library(kernel, kernel)
    k = reference.precise(twin)
    assert found.log_evidence == pytest.approx(float(case.twin(case.old(k), k)), rel=1e-8)
    gradient = increment.gradient(found)[0]
    for j, slope in enumerate(gradient):
        step = h * (np.arange(len(place)) == j)
        low, lower, higher, high = (value(place + k * step) for k in (-2, -1, 1, 2))
        assert slope == pytest.approx((8 * (higher - lower) - (high - low)) / (12 * h), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_blocks_and_threads_change_no_digit(alpha, monkeypatch):
    """Several blocks, kept or not, on one thread or two; and settings that are not the last ones asked for."""
    X, y, w = rows_of(2500)
    settings = settings_of(c.RBF(1.0, lengthscale=1.3)), settings_of(c.RBF(2.0, lengthscale=0.9))

    def found(threads):
        increment = Increment(None, X[:7], rows_in(X, y, w), model_of(alpha), threads)
        first, second = (increment.at(each) for each in settings)
        return [(p.log_evidence, *np.concatenate(increment.gradient(p))) for p in (first, second, first)]

    one = found(THREADS)
    assert one[0] == one[2]
    with Threads(2) as two:
        assert found(two) == one
    monkeypatch.setattr(_streaming_increment, "HELD", 0)
    assert found(THREADS) == one


def test_settings_at_which_the_sites_leave_nothing_are_refused():
    X, y, _ = rows_of(6)
    increment = Increment(None, X[:3], rows_in(X, y), model_of(1.0), THREADS)
    sites = RowSites(np.zeros(6), np.full(6, -1e3), np.ones(1))
    with pytest.raises(NotPositiveDefiniteError, match="take away more"):
        increment.at(settings_of(c.RBF(1.0, lengthscale=0.5)), sites=sites)
