"""Small batches in plain arrays: the bits of the general way in, and its errors."""

from dataclasses import fields

import numpy as np
import pytest

import cavity
from cavity import covariances, likelihoods
from cavity.models.streaming_gp import plain_batches
from cavity.models.streaming_gp import state as states

N, COLUMNS = 300, 2


def start(**settings):
    """A state without rows."""
    rng = np.random.default_rng(1)
    settings = {"inducing": rng.normal(size=(12, COLUMNS))} | settings
    model = cavity.StreamingGP(covariances.RBF(2.0, 1.5), likelihoods.Gaussian(0.3), mean=0.5, **settings)
    return model.fit(np.empty((0, COLUMNS)), np.empty(0), learn=False)


def draw():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, COLUMNS))
    return X, np.sin(X[:, 0]) + rng.normal(size=N)


def assert_equal(state, other):
    """All that two snapshots know is equal, bit by bit."""
    for field in fields(state._now):
        ours, theirs = getattr(state._now, field.name), getattr(other._now, field.name)
        if field.name == "information":
            for name in ("A", "r", "sums", "factor", "c"):
                np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        elif isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, theirs)
        elif field.name == "trace":
            assert ours.keys() == theirs.keys()
        elif field.name not in ("model", "basis", "waiting"):
            assert ours == theirs, field.name


def test_the_bits_of_the_general_way_in(monkeypatch):
    X, y = draw()
    taken = []

    def watch(*arguments):
        taken.append(take(*arguments))
        return taken[-1]

    take = states.take_plain_batch
    monkeypatch.setattr(states, "take_plain_batch", watch)
    state, general, threaded = start(), start(), start()
    for low in range(0, N, 60):
        state.update(X[low : low + 60], y[low : low + 60])
        assert taken[-1]
        general.update(X[low : low + 60].tolist(), y[low : low + 60])
        assert not taken[-1]
        threaded.update(X[low : low + 60].tolist(), y[low : low + 60], n_threads=2)
        assert_equal(state, general)
        assert_equal(state, threaded)
    assert state.n_samples == N


@pytest.mark.parametrize("settings", [{"alpha": 0.5}, {"inducing": None, "n_inducing": 12}])
def test_other_settings_take_the_general_way_in(settings):
    """Batches in arrays and in lists are one."""
    X, y = draw()
    state, general = start(**settings), start(**settings)
    for low in range(0, N, 100):
        state.update(X[low : low + 100], y[low : low + 100])
        general.update(X[low : low + 100].tolist(), y[low : low + 100].tolist())
    assert_equal(state, general)


@pytest.mark.parametrize(("value", "error"), [(np.nan, ValueError), (np.inf, ValueError), (1e308, OverflowError)])
def test_bad_numbers_leave_the_state(value, error):
    X, y = draw()
    state, untouched = start().update(X[:100], y[:100]), start().update(X[:100], y[:100])
    for spoilt in (X, y):
        if spoilt is X and value == 1e308:
            continue
        stored, spoilt[150] = spoilt[150].copy(), value
        with pytest.raises(error):
            state.update(X[100:200], y[100:200])
        spoilt[150] = stored
        assert_equal(state, untouched)


def test_surprising_rows_warn():
    X, y = draw()
    state = start().update(X[:100], y[:100])
    with pytest.warns(cavity.SettingsWarning, match="times as far"):
        state.update(X[100:], y[100:] + 20.0)
    assert state.n_samples == N


def test_threads_change_no_bit():
    """Of a batch that is large enough to be shared."""
    rng = np.random.default_rng(2)
    X, Z = rng.normal(size=(1000, COLUMNS)), rng.uniform(-4.0, 4.0, (150, COLUMNS))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=len(X))
    assert len(X) * len(Z) ** 2 > plain_batches.MIN_SHARED_FLOPS
    one, two = start(inducing=Z), start(inducing=Z)
    for _ in range(2):
        one.update(X, y, n_threads=1)
        two.update(X, y, n_threads=2)
    assert_equal(one, two)
