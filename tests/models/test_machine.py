"""Posteriors that take in more rows, through any sequence of updates, merges, files, failed and interrupted calls.

Where the model is conjugate, or its updates go row by row, a twin finds all of it anew from all rows seen.
"""

import copy
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from reference import clutter, gaussian_mixture, gaussian_process
from support import mixtures
from support.examples import examples
from support.interrupts import interrupted
from support.streaming_gps import bits
from support.tolerances import AT_REST, INTEGRAL, ROOT_EPS, SOLVES

import cavity
from cavity import likelihoods
from cavity.covariances import RBF

pytestmark = pytest.mark.filterwarnings("ignore::cavity.SettingsWarning", "ignore::cavity.ConvergenceWarning")

NOISE = 0.4
NEW = np.array([[0.0, 0.0], [1.0, -1.0], [3.0, 2.0]])
CLOSE = {"rtol": 1e-8, "atol": 1e-8}


@dataclass(frozen=True)
class Seen:
    """Rows with all that any of the models may want of them."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    weights: np.ndarray
    offset: np.ndarray

    @classmethod
    def drawn(cls, seed, n):
        """Some rows, now and then copies of each other."""
        rng = np.random.default_rng(seed)
        index = rng.integers(0, n, n)
        X, y = rng.normal(size=(n, 2))[index], 1.5 * rng.normal(size=n)
        return cls(X, y, rng.integers(0, 3, n), rng.choice([0.5, 1.0, 2.0], n), rng.normal(size=n))

    @classmethod
    def joined(cls, parts, factors):
        """All rows of several parts, whose weights count so much."""
        parts = [Seen(p.X, p.y, p.groups, f * p.weights, p.offset) for p, f in zip(parts, factors, strict=True)]
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__annotations__))


# ------------------------------------------------------------------------------------------ what is known of all rows
# from the posterior, all rows, and how many came before the last update, or None where the last step was another


def of_weights(posterior, rows, before):
    """GLM with Gaussian noise."""
    prior = np.diag([2.0, 0.5])
    cross = prior @ rows.X.T
    mean, S, value = gaussian_process.weighted_regression(
        rows.X @ cross, cross, prior, rows.y, rows.weights, NOISE, rows.X @ [0.3, 0.3] + rows.offset, 0.3
    )
    np.testing.assert_allclose(posterior.mean, mean, **CLOSE)
    np.testing.assert_allclose(posterior.covariance, S, **CLOSE)
    assert posterior.log_evidence == pytest.approx(value, rel=ROOT_EPS)


def of_processes(posterior, rows, before):
    """Gaussian process with Gaussian noise, that of the likelihood or of each row."""
    noise = NOISE if posterior.model.likelihood == GAUSSIAN else own_noise(rows)["noise_variance"]
    k = gaussian_process.rbf(1.5, 0.8)
    truth = k(rows.X, rows.X), k(NEW, rows.X), k(NEW, NEW)
    mean, S, value = gaussian_process.weighted_regression(*truth, rows.y, rows.weights, noise, rows.offset)
    actual = posterior.predict_covariance(NEW, offset=0.0)
    np.testing.assert_allclose(actual[0], mean, **CLOSE)
    np.testing.assert_allclose(actual[1], S, **CLOSE)
    assert posterior.log_evidence == pytest.approx(value, rel=ROOT_EPS)


def of_effects(posterior, rows, before):
    """Mixed model with Gaussian noise, whose random intercepts have variance 0.7."""
    A = np.hstack([rows.X, np.eye(3)[rows.groups]])
    prior = np.diag([4.0, 4.0, 0.7, 0.7, 0.7])
    cross = prior @ A.T
    mean, S, value = gaussian_process.weighted_regression(
        A @ cross, cross, prior, rows.y, rows.weights, NOISE, rows.offset
    )
    np.testing.assert_allclose(posterior.mean, mean[:2], **CLOSE)
    np.testing.assert_allclose(posterior.covariance, S[:2, :2], **CLOSE)
    effects, variances = posterior.effect_moments("g")
    np.testing.assert_allclose(effects.ravel(), mean[2:], **CLOSE)
    np.testing.assert_allclose(variances.ravel(), np.diag(S)[2:], **CLOSE)
    assert posterior.log_evidence == pytest.approx(value, rel=ROOT_EPS)


def of_points(posterior, rows, before):
    """ADF of clutter, point by point."""
    mean, variance, value = clutter.adf(rows.X)
    np.testing.assert_allclose(posterior.mean, mean, **CLOSE)
    assert posterior.variance == pytest.approx(variance, rel=ROOT_EPS)
    assert posterior.log_evidence == pytest.approx(value, rel=ROOT_EPS)


def of_one_mean(posterior, rows, before):
    """Unit mixture of one component."""
    precision = 1 / 3.0 + len(rows.y) / NOISE
    np.testing.assert_allclose(posterior.variance, 1 / precision, rtol=INTEGRAL)
    np.testing.assert_allclose(posterior.mean, (0.5 / 3.0 + np.sum(rows.y) / NOISE) / precision, **CLOSE)
    np.testing.assert_allclose(posterior.counts, len(rows.y), rtol=INTEGRAL)
    if before is not None:
        full, old = (log_evidence_of_one_mean(y) for y in (rows.y, rows.y[:before]))
        assert posterior.elbo == pytest.approx(full - old, rel=ROOT_EPS)


def log_evidence_of_one_mean(y):
    """log p(y) where one mean is all that is unknown."""
    return gaussian_process.regression(np.full((len(y), len(y)), 3.0), y, NOISE, 0.5)[2]


def of_one_component(posterior, rows, before):
    """Gaussian mixture of one component."""
    result = mixtures.factors_of(posterior)
    prior = mixtures.prior_of(posterior.model)
    truth = gaussian_mixture.one_component(rows.X, rows.weights, prior)
    for name, value in zip(("mean", "beta", "nu", "V"), truth[:4], strict=True):
        np.testing.assert_allclose(
            np.squeeze(result[name]), np.broadcast_to(value, np.squeeze(result[name]).shape), **CLOSE
        )
    np.testing.assert_allclose(posterior.counts, np.sum(rows.weights), rtol=INTEGRAL)
    if before is not None:
        old = gaussian_mixture.one_component(rows.X[:before], rows.weights[:before], prior)
        assert posterior.elbo == pytest.approx(truth[4] - old[4], rel=ROOT_EPS)


def of_labels(posterior, rows, before):
    """GLM of labels: moments, of weights whose variance grows no more."""
    assert np.all(np.isfinite(posterior.mean))
    assert np.all((posterior.variance > 0) & (posterior.variance <= 1.0 + 1e-9))
    assert posterior.log_evidence < 0


def of_two_components(posterior, rows, before):
    """Gaussian mixture of two components."""
    assert np.sum(posterior.counts) == pytest.approx(np.sum(rows.weights), rel=AT_REST)
    shares = posterior.responsibilities(NEW)
    np.testing.assert_allclose(np.sum(shares, axis=1), 1.0, rtol=SOLVES)


# ------------------------------------------------------------------------------------------ the models


@dataclass(frozen=True)
class Family:
    """A model, what `fit` and `update` are given of rows, what else `fit` is, and the twin of its posterior."""

    model: object
    given: Callable
    check: Callable
    options: dict
    bad: str = "y"  # what is made nan in calls that fail


def with_weights(rows):
    return {"X": rows.X, "y": rows.y, "sample_weight": rows.weights, "offset": rows.offset}


def own_noise(rows):
    return with_weights(rows) | {"noise_variance": 0.2 + 0.3 * rows.groups}


def labelled(rows):
    return {"X": rows.X, "y": np.where(rows.y > 0, 1.0, -1.0), "sample_weight": rows.weights}


def grouped(rows):
    return with_weights(rows) | {"groups": {"g": [*rows.groups]}}


def mixed_rows(rows):
    return {"X": rows.X, "sample_weight": rows.weights}


GAUSSIAN = likelihoods.Gaussian(NOISE)
MIXED = cavity.MixedGLM("g", GAUSSIAN, prior_variance=4.0, effect_covariances={"g": 0.7}, intercept=False)
FAMILIES = {
    "linear regression": Family(
        cavity.GLM(GAUSSIAN, prior_mean=0.3, prior_variance=[2.0, 0.5], intercept=False), with_weights, of_weights, {}
    ),
    "probit": Family(cavity.GLM("probit", prior_variance=1.0, intercept=False), labelled, of_labels, {}),
    "diagonal": Family(
        cavity.GLM("probit", prior_variance=1.0, approximation="diagonal", intercept=False), labelled, of_labels, {}
    ),
    "process": Family(cavity.GaussianProcess(RBF(1.5, 0.8), GAUSSIAN), with_weights, of_processes, {"learn": False}),
    "process of own noise": Family(
        cavity.GaussianProcess(RBF(1.5, 0.8), likelihoods.Gaussian(9.0)), own_noise, of_processes, {"learn": False}
    ),
    "mixed model": Family(MIXED, grouped, of_effects, {}),
    "clutter": Family(cavity.Clutter(), lambda rows: {"x": rows.X}, of_points, {"method": "adf"}, "x"),
    "one mean": Family(
        cavity.UnitMixture(1, prior_mean=0.5, prior_variance=3.0, noise_variance=NOISE),
        lambda rows: {"y": rows.y},
        of_one_mean,
        {},
    ),
    **{
        kind: Family(mixtures.model_of(kind, 1, 2), mixed_rows, of_one_component, {}, "sample_weight")
        for kind in mixtures.COVARIANCES
    },
    "two components": Family(mixtures.model_of("full", 2, 2), mixed_rows, of_two_components, {}, "sample_weight"),
}


class Updates(RuleBasedStateMachine):
    """A posterior, which every update replaces, and earlier ones, which stay as they are."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "posterior.npz")
        self.earlier = []

    def teardown(self):
        self.folder.cleanup()

    @initialize(family=st.sampled_from([*FAMILIES]), seed=st.integers(0, 1000))
    def begin(self, family, seed):
        self.family = FAMILIES[family]
        rows = Seen.drawn(seed, 6)
        rows.groups[:3] = range(3)  # all levels
        self.posterior, self.seen, self.before = self.fitted(rows), [(rows, 1.0)], 0

    def fitted(self, rows):
        return self.family.model.fit(**self.family.given(rows), **self.family.options)

    def become(self, posterior, seen, before=None):
        """Go on with another posterior, and keep this one."""
        self.earlier = [*self.earlier[-3:], (self.posterior, bits(self.posterior))]
        self.posterior, self.seen, self.before = posterior, seen, before

    @rule(seed=st.integers(0, 1000), n=st.integers(1, 4))
    def update(self, seed, n):
        rows = Seen.drawn(seed, n)
        before = sum(len(truth.y) for truth, _ in self.seen)
        self.become(self.posterior.update(**self.family.given(rows)), [*self.seen, (rows, 1.0)], before)

    @precondition(lambda self: hasattr(self.posterior, "forget"))
    @rule(factor=st.sampled_from([0.2, 0.9, 1.0]))
    def forget(self, factor):
        self.become(self.posterior.forget(factor), [(rows, factor * power) for rows, power in self.seen])

    @precondition(lambda self: hasattr(self.posterior, "merge"))
    @rule(seed=st.integers(0, 1000), n=st.integers(2, 5), turned=st.booleans())
    def merge(self, seed, n, turned):
        rows = Seen.drawn(seed, n)
        pair = self.posterior, self.fitted(rows)
        both = pair[0].merge(pair[1]), pair[1].merge(pair[0])
        np.testing.assert_allclose(*(np.sort(item.counts) for item in both), **CLOSE)
        self.become(both[turned], [*self.seen, (rows, 1.0)])

    @rule(how=st.sampled_from(["file", "pickle", "copy"]))
    def copy(self, how):
        before = bits(self.posterior)
        if how == "file":
            self.posterior.save(self.path)
            other = cavity.load(self.path)
        else:
            other = pickle.loads(pickle.dumps(self.posterior)) if how == "pickle" else copy.deepcopy(self.posterior)
        assert bits(other) == before
        self.become(other, self.seen, self.before)

    @rule(seed=st.integers(0, 1000), n=st.integers(1, 3))
    def fail(self, seed, n):
        before, arguments = bits(self.posterior), self.family.given(Seen.drawn(seed, n))
        for name in (self.family.bad, *({"X", "x"} & {*arguments})):
            bad = np.array(arguments[name])
            bad[-1:] = -np.inf
            with pytest.raises(ValueError):
                self.posterior.update(**arguments | {name: bad})
        with pytest.raises(TypeError):
            self.posterior.update(**arguments, unknown=1)
        assert bits(self.posterior) == before

    @rule(seed=st.integers(0, 1000), n=st.integers(1, 4), after=st.one_of(st.integers(0, 100), st.integers(0, 2000)))
    def be_interrupted(self, seed, n, after):
        before, arguments = bits(self.posterior), self.family.given(Seen.drawn(seed, n))
        interrupted(lambda: self.posterior.update(**arguments), after)
        assert bits(self.posterior) == before
        new = self.posterior.update(**arguments)
        interrupted(lambda: bits(new), after // 10)  # what is found when it is asked for
        assert bits(new) == bits(self.posterior.update(**arguments))

    @invariant()
    def all_is_that_of_all_rows(self):
        rows = Seen.joined(*zip(*self.seen, strict=True))
        weighted = isinstance(self.family.model, cavity.GaussianMixture)
        assert self.posterior.n_samples == pytest.approx(np.sum(rows.weights) if weighted else len(rows.y))
        self.family.check(self.posterior, rows, self.before)

    @invariant()
    def earlier_posteriors_stay_as_they_were(self):
        for posterior, truth in self.earlier:
            assert bits(posterior) == truth


TestUpdates = Updates.TestCase
TestUpdates.settings = settings(examples(12), stateful_step_count=12)
