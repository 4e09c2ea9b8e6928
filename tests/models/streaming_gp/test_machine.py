"""Streaming Gaussian processes through any sequence of calls, failed and interrupted ones among them.

With Gaussian noise and inducing points that were given, all rows seen are one Gaussian factor, and a twin finds it from
all of them anew after every step. Of other noise, and points that are chosen, what must always hold is checked.
"""

import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from reference import streaming_gp as reference
from support.examples import examples
from support.interrupts import interrupted
from support.streaming_gps import assert_same_bits, bits
from support.tolerances import AT_REST, INTEGRAL

import cavity
from cavity import likelihoods
from cavity.covariances import RBF

pytestmark = pytest.mark.filterwarnings(
    "ignore::cavity.SettingsWarning", "ignore::cavity.ConvergenceWarning", "ignore::cavity.NumericalWarning"
)

NEW = np.linspace(-5, 5, 6)[:, None]
OUTSIDE = [  # arguments that calls refuse, before and after they have begun to work
    ("update", {"X": np.array([[np.nan]]), "y": np.array([0.0])}, ValueError),
    ("update", {"X": np.array([[0.5]]), "y": np.array([np.inf])}, ValueError),
    ("update", {"X": [[0.0], [np.nan], [1.0]], "y": [0.0, 1.0, 1.0]}, ValueError),
    ("update", {"X": [[0.0], [1.0]], "y": [0.0, np.nan]}, ValueError),
    ("update", {"X": [[0.0], [1.0]], "y": [0.0]}, ValueError),
    ("update", {"X": [[0.0, 1.0]], "y": [1.0]}, ValueError),
    ("update", {"X": [[0.0]], "y": [1.0], "sample_weight": [-1.0]}, ValueError),
    ("update", {"X": [[0.0], [1.0]], "y": [1.0, 0.0], "offset": [0.0, np.inf]}, ValueError),
    ("update", {"X": [[0.0]], "y": [1.0], "noise_variance": [0.0]}, ValueError),
    ("update", {"X": np.array([[0.0]]), "y": np.array([1.0]), "learn": "all"}, ValueError),
    ("update", {"X": [[0.0]], "y": [1.0], "n_threads": 0}, ValueError),
    ("update", {"X": [[0.0]], "y": [1.0], "callback": 3}, TypeError),
    ("update", {"X": pd.DataFrame({"dose": [0.0, np.nan]}), "y": [0.0, 1.0]}, ValueError),
    ("update", {"X": pd.DataFrame({"dose": [0.0], "y": [np.nan]}), "y": "y"}, ValueError),
    ("forget", {"factor": 1.5}, ValueError),
    ("forget", {"factor": np.nan}, ValueError),
    ("merge", {"other": 3}, TypeError),
    ("learn", {"noise": "yes"}, (TypeError, ValueError)),
    ("predict", {"X": [[0.0, 1.0]]}, ValueError),
    ("save", {"path": "no folder/state.npz"}, OSError),
]
OBSERVED = {  # likelihoods, and what they see where y is a multiple of 1/4
    likelihoods.Gaussian(0.1): lambda y: y,
    likelihoods.Probit(): lambda y: np.where(y > 0, "yes", "no"),
    likelihoods.Poisson(): lambda y: np.floor(np.abs(y)),
    likelihoods.StudentT(3.0, 0.2): lambda y: y,
}


@st.composite
def batches(draw, most=5):
    """Arguments of an update: rows, often some at one place or among the inducing points, and what they may have."""
    n = draw(st.integers(0, most))
    column = st.lists(st.integers(-16, 16), min_size=n, max_size=n)
    X, y = (np.array(draw(column)) / 4.0 for _ in range(2))
    out = {"X": X[:, None], "y": y}
    if draw(st.booleans()):
        out["sample_weight"] = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5]), min_size=n, max_size=n)))
    if draw(st.booleans()):
        out["offset"] = np.array(draw(column)) / 4.0
    return out


def own_noise(batch):
    """The batch, every row with a noise variance of its own."""
    return batch | {"noise_variance": 0.1 + 0.1 * np.arange(len(batch["y"]))}


def weights_of(batch):
    """The weights of the rows of a batch."""
    return batch.get("sample_weight", np.ones(len(batch["y"])))


def pickled(state):
    """A state made again from its pickle."""
    return pickle.loads(pickle.dumps(state))


class Stream(RuleBasedStateMachine):
    """A state, the one that was read from its file, which does all it does, and earlier ones, which do nothing."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "state.npz")
        self.loaded, self.memory, self.earlier = None, None, []

    def teardown(self):
        self.folder.cleanup()

    def begin(self, model, *y):
        """Begin with a few rows, or none."""
        self.first = self.observed({"X": np.arange(len(y))[:, None] / 1.0, "y": np.array(y)})
        self.state = model.fit(**self.first, learn=False)
        self.n_samples, self.n_updates, self.has_offset = len(y), int(len(y) > 0), False

    def observed(self, batch):
        """The batch with values of y that the likelihood takes."""
        return batch

    def fitted(self, batch):
        """A state of the same settings after the first rows and a batch, and all it has seen, where that is known."""
        return self.state.model.fit(**self.first, learn=False).update(**batch), None

    def do(self, name, others=None, **arguments):
        """Call a method of the state, and of the loaded one, and remember what it did; `others` are rows it brings."""
        before = bits(self.state)
        try:
            getattr(self.state, name)(**arguments)
        except cavity.NotPositiveDefiniteError:
            assert self.may_be_improper
            assert bits(self.state) == before
        else:
            self.remember(name, arguments, others)

    @property
    def may_be_improper(self):
        """Whether sites may have negative precisions, of which two states together may have too much."""
        return isinstance(self.state.model.likelihood, likelihoods.StudentT)

    def remember(self, name, arguments, others):
        """Take a call that went through into account."""
        if self.loaded is not None:
            getattr(self.loaded, name)(**arguments)
            assert_same_bits(self.loaded, self.state)
        if name == "update" and np.any(weights_of(arguments)):
            self.n_samples += np.count_nonzero(weights_of(arguments))
            self.n_updates += 1
            self.has_offset |= bool(np.any(weights_of(arguments) * arguments.get("offset", 0.0)))
        if name == "merge":
            self.n_samples += arguments["other"].n_samples
            self.n_updates += 1
            self.has_offset |= arguments["other"].has_offset

    # ------------------------------------------------------------------------------------------ calls that go through

    @rule(batch=batches())
    def update(self, batch):
        self.do("update", **self.observed(batch))

    @rule(place=st.integers(-16, 16), value=st.integers(-16, 16), n=st.integers(1, 4))
    def update_by_single_rows(self, place, value, n):
        for i in range(n):
            X, y = np.array([[(place + i) / 4.0]]), np.array([value / 4.0])
            self.do("update", **self.observed({"X": X, "y": y}))

    @rule(factor=st.sampled_from([0.0, 0.4, 0.9, 1.0]))
    def forget(self, factor):
        self.do("forget", factor=factor)

    @rule(batch=batches())
    def merge_new_rows(self, batch):
        other, others = self.fitted(self.observed(batch))
        self.do("merge", other=other, others=others)

    @rule(how=st.sampled_from([cavity.StreamingGPState.copy, copy.deepcopy, pickled]), stay=st.booleans())
    def copy(self, how, stay):
        before, other = self.state, how(self.state)
        assert_same_bits(other, before)
        self.state, other = (before, other) if stay else (other, before)
        self.earlier = [*self.earlier[-2:], (other, bits(other), self.memory and self.memory.copy())]

    @rule(which=st.integers(0, 2))
    def merge_an_earlier_state(self, which):
        if which >= len(self.earlier):
            return
        other, _, others = self.earlier[which]
        if all(getattr(other.model, name) == getattr(self.state.model, name) for name in ("covariance", "likelihood")):
            self.do("merge", other=other, others=others)
            return
        before = bits(self.state)
        with pytest.raises(ValueError, match="other must have the same"):
            self.state.merge(other)
        assert bits(self.state) == before

    @rule()
    def save_and_load(self):
        self.state.save(self.path)
        self.loaded = cavity.load(self.path)
        assert_same_bits(self.loaded, self.state)

    # ------------------------------------------------------------------------------------------ calls that do not

    @rule(call=st.sampled_from(OUTSIDE))
    def fail(self, call):
        name, arguments, error = call
        before = bits(self.state)
        with pytest.raises(error):
            getattr(self.state, name)(**arguments)
        assert bits(self.state) == before

    @rule(batch=batches(), learn=st.booleans())
    def be_interrupted_by_a_callback(self, batch, learn):
        def callback(event):
            raise KeyboardInterrupt

        before, batch = bits(self.state), self.observed(batch)
        try:
            self.state.update(**batch, learn=learn, callback=callback)
        except KeyboardInterrupt:
            assert bits(self.state) == before
        else:  # there was no pass to hear of
            assert np.count_nonzero(weights_of(batch)) < 2
            self.remember("update", batch, None)

    @rule(
        name=st.sampled_from(["update", "update", "row", "row", "forget", "merge", "copy", "save", "predict"]),
        batch=batches(),
        after=st.one_of(st.integers(0, 60), st.integers(0, 1500)),
    )
    def be_interrupted(self, name, batch, after):
        batch = self.observed(batch)
        arguments = {"update": batch, "row": batch, "forget": {"factor": 0.7}, "merge": {"other": pickled(self.state)}}
        arguments |= {"copy": {}, "save": {"path": self.path}, "predict": {"X": NEW, "offset": 0.0}}
        arguments = arguments[name]
        if name == "row":
            name, arguments = "update", {key: batch[key][:1] for key in ("X", "y")}
        before, full = bits(self.state), pickled(self.state)
        try:
            getattr(full, name)(**arguments)
        except cavity.NotPositiveDefiniteError:
            assert self.may_be_improper
            return
        stopped = interrupted(lambda: getattr(self.state, name)(**arguments), after)
        if self.path.exists():  # whole, whenever it was written
            cavity.load(self.path)
        if stopped and bits(self.state) == before:
            return
        assert_same_bits(self.state, full)
        self.remember(name, arguments, self.memory and self.memory.copy())

    # ------------------------------------------------------------------------------------------ what always holds

    @invariant()
    def rows_are_counted(self):
        state = self.state
        assert (state.n_samples, state.n_updates, state.has_offset) == (self.n_samples, self.n_updates, self.has_offset)
        assert len(set(state.inducing_ids.tolist())) == state.n_inducing == len(state.inducing)

    @invariant()
    def predictions_are_moments(self):
        mean, variance = self.state.predict(NEW, offset=0.0)
        assert np.all(np.isfinite(mean))
        assert np.all(variance >= 0)
        if not self.may_be_improper:
            assert np.all(variance <= self.state.model.covariance.variance * (1 + 1e-9))
        assert np.isfinite(self.state.log_bound)

    @invariant()
    def earlier_states_stay_as_they_were(self):
        for state, truth, _ in self.earlier:
            assert bits(state) == truth


class GaussianStream(Stream):
    """Gaussian noise and given inducing points: all that is predicted, and the log bound, are those of all rows."""

    @initialize(
        alpha=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
        jitter=st.sampled_from([1e-2, 1e-4, 1e-6]),
        noise=st.sampled_from([0.05, 0.5]),
        own_noise=st.booleans(),
    )
    def begin_with_given_points(self, alpha, jitter, noise, own_noise):
        Z = np.linspace(-3.0, 3.0, 5)[:, None]
        covariance = RBF(1.0, lengthscale=1.0, bounds={"variance": (0.1, 10.0), "lengthscale": (0.5, 2.0)})
        self.begin(cavity.StreamingGP(covariance, likelihoods.Gaussian(noise), inducing=Z, alpha=alpha, jitter=jitter))
        self.memory = reference.Memory(Z, alpha=alpha, jitter=jitter)
        self.known, self.own_noise = self.parameters, own_noise

    @property
    def parameters(self):
        """Kernel (variance, lengthscale) and noise variance, as they are now."""
        covariance, noise = self.state.model.covariance, self.state.model.likelihood.noise_variance
        return (covariance.variance, covariance.lengthscale), noise

    def fitted(self, batch):
        memory = self.memory.copy()
        memory.seen = self.seen(**batch)
        return super().fitted(batch)[0], memory

    def remember(self, name, arguments, others):
        super().remember(name, arguments, others)
        (kernel, noise), self.known = self.known, self.parameters
        if name == "update":
            if arguments.get("learn") and not (self.memory.alpha == 0 and self.memory.uniform):
                self.memory.keep_noise(noise)
            self.memory.seen += self.seen(**arguments)
        elif name == "forget":
            self.memory.forget(arguments["factor"])
        elif name == "learn":
            self.memory.scale(self.known[0][0] / kernel[0])
        elif name == "merge":
            self.memory.seen += others.copy().seen

    def seen(self, X, y, sample_weight=None, offset=0.0, noise_variance=None, learn=False):
        """The rows of a batch, as the memory has them."""
        weights = np.ones(len(y)) if sample_weight is None else sample_weight
        rows = weights > 0
        own = None if noise_variance is None else noise_variance[rows]
        return [reference.SeenRows(X[rows], (y - offset)[rows], weights[rows], own, self.known[0])] if any(rows) else []

    @precondition(lambda self: self.own_noise)
    @rule(batch=batches(), merge=st.booleans())
    def take_rows_of_noise_of_their_own(self, batch, merge):
        if merge:
            other, others = self.fitted(own_noise(batch))
            self.do("merge", other=other, others=others)
        else:
            self.do("update", **own_noise(batch))

    @rule(batch=batches(), learn=st.sampled_from([True, "covariance"]))
    def update_and_learn(self, batch, learn):
        self.do("update", **batch, learn=learn)

    @precondition(lambda self: self.memory.alpha == 0)
    @rule(noise=st.booleans(), amplitude=st.booleans())
    def learn(self, noise, amplitude):
        if self.memory.uniform or not noise:
            self.do("learn", noise=noise, amplitude=amplitude)
            return
        before = bits(self.state)
        with pytest.raises(ValueError, match="some had their own"):
            self.state.learn(noise=noise, amplitude=amplitude)
        assert bits(self.state) == before

    @invariant()
    def all_is_that_of_all_rows(self):
        state = self.state
        mean, S, value = self.memory.posterior(*self.parameters)
        k = reference.rbf(*self.parameters[0])
        predicted, spread = reference.predict(k, self.memory.Z, (mean, S), NEW, self.memory.jitter)
        actual = state.predict_covariance(NEW, offset=0.0)
        np.testing.assert_allclose(actual[0], predicted, rtol=0, atol=INTEGRAL)
        np.testing.assert_allclose(actual[1], spread, rtol=0, atol=INTEGRAL)
        assert state.log_bound == pytest.approx(value, rel=INTEGRAL, abs=INTEGRAL)

    @invariant()
    def rows_of_noise_of_their_own_are_noted(self):
        assert self.memory.alpha > 0 or self.state._now.uniform == self.memory.uniform
        own = [rows for rows in self.memory.seen if rows.own_noise is not None]
        weight = sum(rows.power * np.sum(rows.weights) for rows in own)
        log_noise = sum(rows.power * rows.weights @ np.log(rows.own_noise) for rows in own)
        history = self.state._now.history
        np.testing.assert_allclose((history.own_weight, history.own_log_noise), (weight, log_noise), atol=AT_REST)

    @invariant()
    def no_fit_of_all_rows_has_a_larger_bound(self):
        second = self.memory.posterior(*self.parameters, second=True)[2]
        assert second <= self.state.log_bound + self.state.information_lost_bound + 1e-8 * (1 + abs(second))


class AnyStream(Stream):
    """Any noise, and inducing points that are given, or chosen and given up for others."""

    @initialize(
        likelihood=st.sampled_from([*OBSERVED]),
        alpha=st.sampled_from([0.5, 1.0, 1.0]),
        chosen=st.sampled_from([0, 3, 6]),
    )
    def begin_with_any_points(self, likelihood, alpha, chosen):
        points = {"n_inducing": chosen} if chosen else {"inducing": np.linspace(-3.0, 3.0, 5)[:, None]}
        covariance = RBF(1.0, lengthscale=1.0, bounds={"variance": (0.1, 10.0), "lengthscale": (0.5, 2.0)})
        alpha = 0.0 if isinstance(likelihood, likelihoods.Gaussian) else alpha
        self.values = OBSERVED[likelihood]
        model = cavity.StreamingGP(covariance, likelihood, alpha=alpha, tolerance=1e-2, **points)
        self.begin(model, -1.0, 1.0)

    def observed(self, batch):
        return batch | {"y": self.values(batch["y"])}

    @rule(batch=batches(), learn=st.sampled_from([False, True]), passes=st.integers(1, 3))
    def update_and_stop(self, batch, learn, passes):
        reports = []

        def callback(event):
            reports.append(event)
            return len(reports) % passes == 0

        self.do("update", **self.observed(batch), learn=learn, callback=callback)


@pytest.mark.long_cases("likelihood1")
@pytest.mark.parametrize("likelihood", [likelihoods.Gaussian(0.1), likelihoods.Probit()])
def test_a_batch_interrupted_anywhere_is_taken_in_whole_or_not_at_all(likelihood):
    X = np.linspace(-3.0, 3.0, 12)[:, None]
    y = OBSERVED[likelihood](np.sin(3.0 * X[:, 0]))
    state = cavity.StreamingGP(RBF(), likelihood, n_inducing=4).fit(X, y, learn=False)
    before, full, after = bits(state), bits(pickled(state).update(X, y)), 0
    while interrupted(lambda: state.update(X, y), after) and bits(state) == before:
        after += 29
    assert bits(state) == full
    assert after > 500


for machine in (GaussianStream, AnyStream):
    machine.TestCase.settings = settings(examples(6), stateful_step_count=30)
TestGaussianStream, TestAnyStream = pytest.mark.long(GaussianStream.TestCase), AnyStream.TestCase
