"""Fits of every kind tell how far they are, and a stop or an interrupt leaves nothing half done."""

import numpy as np
import pytest

import cavity
from cavity import covariances, likelihoods

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X[:, 0] + 0.5 * RNG.normal(size=60)
RBF = covariances.RBF(1.0, [1.0, 1.0])


class Half(cavity.mean_field.Model):
    """A posterior whose one factor goes half of the way to where it belongs."""

    def initial(self):
        return {"f": cavity.Gaussian(mean=1.0, variance=1.0)}

    def update(self, name, q):
        return cavity.Gaussian(mean=0.5 * q[name].mean, variance=1.0)

    def expected_log_joint(self, q):
        return -0.5 * (q["f"].mean ** 2 + q["f"].variance)

    def minibatch(self, rows):
        return self


def glm(likelihood, *values, **options):
    """A fit of a generalised linear model, and how it is called."""
    model = cavity.GLM(
        likelihood, prior_variance=1.0, intercept=False, approximation=options.pop("approximation", "full")
    )
    return lambda **more: model.fit(X, *values, **options, **more)


def gp(likelihood, y, **options):
    """A fit of a Gaussian process."""
    return lambda **more: cavity.GaussianProcess(RBF, likelihood).fit(X, y, **options, **more)


PROBIT, NORMAL = likelihoods.Probit(), likelihoods.Gaussian(0.25)
LOOSE = likelihoods.Gaussian(None)
FITS = {
    "glm": glm(PROBIT, Y > 0),
    "glm sequential": glm(PROBIT, Y > 0, schedule="sequential"),
    "glm stochastic": glm(PROBIT, Y > 0, schedule="stochastic"),
    "glm adf": glm(PROBIT, Y > 0, method="adf"),
    "glm diagonal": glm(PROBIT, Y > 0, approximation="diagonal"),
    "glm diagonal adf": glm(PROBIT, Y > 0, approximation="diagonal", method="adf"),
    "glm learn": glm(LOOSE, Y),
    "gp": gp(NORMAL, Y),
    "gp probit": gp(PROBIT, Y > 0, learn=False),
    "stream": lambda **more: cavity.StreamingGP(RBF, NORMAL).fit(X, Y, **more),
    "stream fixed": lambda **more: cavity.StreamingGP(RBF, NORMAL).fit(X, Y, learn=False, **more),
    "stream probit": lambda **more: cavity.StreamingGP(RBF, PROBIT).fit(X, Y > 0, learn=False, **more),
    "clutter": lambda **more: cavity.Clutter().fit(X, **more),
    "clutter parallel": lambda **more: cavity.Clutter().fit(X, schedule="parallel", **more),
    "clutter adf": lambda **more: cavity.Clutter().fit(X, method="adf", **more),
    "clutter batch": lambda **more: cavity.Clutter().fit(X.reshape(3, 20, 2), n_threads=2, **more),
    "mixture": lambda **more: cavity.GaussianMixture(3).fit(X, moves=True, **more),
    "mixture stochastic": lambda **more: cavity.GaussianMixture(2).fit_stochastic(X, batch_size=20, **more),
    "mixtures": lambda **more: cavity.select_components(cavity.GaussianMixture(1), X, (1, 2), **more),
    "unit mixture": lambda **more: cavity.UnitMixture(3).fit(Y, n_init=2, rng=0, **more),
    "unit mixture stochastic": lambda **more: cavity.UnitMixture(2).fit_stochastic(Y, batch_size=20, **more),
    "linear": lambda **more: cavity.LinearRegression(intercept=False, ard=True).fit(X, Y, **more),
    "logistic": lambda **more: cavity.LogisticRegression(intercept=False).fit(X, Y > 0, **more),
    "factorized": lambda **more: cavity.FactorizedGaussian(0.0, [[1.0, 0.9], [0.9, 1.0]]).fit(**more),
    "own model": lambda **more: cavity.mean_field.fit(Half(), max_iter=5, **more),
    "own model stochastic": lambda **more: cavity.mean_field.fit_stochastic(Half(), batch_size=1, n_epochs=4, **more),
}
pytestmark = pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning", "ignore::cavity.NumericalWarning")


@pytest.mark.parametrize("name", FITS)
def test_every_fit_tells_how_far_it_is_and_ends_when_it_is_told_to(name, capsys):
    events = []
    FITS[name](callback=events.append, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith(f"{events[-1].stage}: {events[-1].n_iter}")
    assert all(event.stage and event.n_iter >= 1 for event in events)
    for field in ("objective", "change", "rows_per_second", "passes_left"):
        assert all(value is None or (type(value) is float and value == value) for value in vars_of(events, field))
    assert all(left is None or left >= 0.0 for left in vars_of(events, "passes_left"))
    reports = []
    FITS[name](callback=lambda event: reports.append(event) or True)
    assert len(reports) == 1
    with pytest.raises(KeyboardInterrupt):
        FITS[name](callback=interrupt)


def vars_of(events, field):
    """The values of a field of events."""
    return [getattr(event, field) for event in events]


def interrupt(event):
    """What Ctrl-C does."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("likelihood", [NORMAL, PROBIT], ids=["gaussian", "probit"])
def test_an_interrupted_update_leaves_a_stream_as_it_was(likelihood):
    y = Y if likelihood is NORMAL else Y > 0
    state = cavity.StreamingGP(RBF, likelihood).fit(X[:30], y[:30], learn=False)
    before = state.copy()
    for learn in (True, False):
        with pytest.raises(KeyboardInterrupt):
            state.update(X[30:], y[30:], learn=learn, callback=interrupt)
        assert state.n_samples == 30
        np.testing.assert_array_equal(state.predict(X), before.predict(X))
    assert state.update(X[30:], y[30:]).n_samples == 60
