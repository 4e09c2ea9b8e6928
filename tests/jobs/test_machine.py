"""Fits that are cut short anywhere, any number of times, and go on: the bits are those of a fit that ran through."""

import shutil
import signal
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support import jobs
from support.damages import damages
from support.examples import examples
from support.jobs import REFUSED, bits
from support.plugs import PLACES, plug

import cavity

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) + RNG.choice([-3.0, 0.0, 4.0], size=(60, 1))
Y = X[:, 0] + RNG.normal(size=60) > 0
GROUPS = {"group": np.arange(60) % 7}
T = cavity.likelihoods.StudentT
LEARNT = ("prior_variance", "weights", "noise_variance")
FITS = {  # of rows with two columns; several kinds of stages within stages
    "unit": lambda X, **k: cavity.UnitMixture(3, learn=LEARNT).fit(_first(X), max_iter=30, **k),
    "mixture": lambda X, **k: cavity.GaussianMixture(4, "diag").fit(X, n_init=2, rng=1, moves=True, max_iter=20, **k),
    "selection": lambda X, **k: cavity.select_components(cavity.GaussianMixture(1), X, (1, 2), max_iter=9, **k).best,
    "minibatches": lambda X, **k: cavity.GaussianMixture(2, "diag").fit_stochastic(X, batch_size=20, n_epochs=2, **k),
    "unit minibatches": lambda X, **k: cavity.UnitMixture(2).fit_stochastic(_first(X), batch_size=20, n_epochs=2, **k),
    "probit": lambda X, **k: cavity.GLM("probit").fit(X, Y, **k),
    "sequential": lambda X, **k: cavity.GLM("logit", prior_mean=1.0).fit(X, Y, schedule="sequential", **k),
    "diagonal": lambda X, **k: cavity.GLM("probit", prior_mean=1.0, approximation="diagonal").fit(X, Y, **k),
    "learnt": lambda X, **k: cavity.GLM(T(3.0, None)).fit(X, 3.0 * Y, learn=True, max_iter=15, **k),
    "mixed": lambda X, **k: cavity.MixedGLM(cavity.RandomEffects("group"), "probit").fit(X, Y, groups=GROUPS, **k),
    "clutter": lambda X, **k: cavity.Clutter().fit(_first(X), schedule="parallel", **k),
    "logistic": lambda X, **k: cavity.LogisticRegression(intercept=False, prior_variance=None, ard=True).fit(X, Y, **k),
    "linear": lambda X, **k: cavity.LinearRegression(intercept=False, prior_variance=None, ard=True).fit(
        X, 3.0 * Y, **k
    ),
}


def _first(X):
    """The first column, where rows lie in memory; files of that fit have no other."""
    return X[:, 0] if isinstance(X, np.ndarray) else X


def written(kind, rows, folder):
    """Rows in a file, or in several."""
    if kind == "npy":
        np.save(folder / "rows.npy", rows)
        return folder / "rows.npy"
    parts = [folder / f"{number}.npy" for number in range(3)]
    for path, part in zip(parts, np.array_split(rows, 3), strict=True):
        np.save(path, part)
    return parts


@cache
def whole(name):
    """The bits of a fit that nobody interrupts, and how often its callback hears of it."""
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        return saved(FITS[name](X, callback=lambda event: reports.append(event)), folder), len(reports)


def saved(posterior, folder):
    """The bits of a posterior."""
    path = Path(folder) / "posterior.npz"
    posterior.save(path)
    result = bits(path)
    path.unlink()
    return result


class Stop(BaseException):
    """Whatever ends a fit."""


def stop(*_):
    raise Stop


RUN = {  # what may differ between one session and the next
    "source": st.sampled_from(["array", "files"]),
    "threads": st.sampled_from([1, 2]),
    "every": st.sampled_from([0.0, 0.0, 1e9]),
}


class Checkpoints(RuleBasedStateMachine):
    """One fit, and its checkpoint."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.data, self.path = self.folder / "data", self.folder / "kept" / "fit.npz"
        for folder in (self.data, self.path.parent):
            folder.mkdir()

    def teardown(self):
        shutil.rmtree(self.folder)

    @initialize(name=st.sampled_from([*FITS]), kind=st.sampled_from(["npy", "parts"]))
    def begin(self, name, kind):
        """Which fit it is, and where else its rows may come from."""
        self.name = name
        rows = X[:, 0] if name in ("unit", "unit minibatches", "clutter") else X
        self.sources = {"array": X, "files": written(kind, rows, self.data)}
        self.wanted, self.n_events = whole(name)

    def fit(self, source, threads, every, callback=None):
        """Begin, or go on."""
        options = {"n_threads": threads, "checkpoint": self.path, "checkpoint_every": every, "callback": callback}
        return FITS[self.name](self.sources[source], **options)

    def ended(self, *options):
        """The fit without interruption has the right bits."""
        assert saved(self.fit(*options), self.folder) == self.wanted

    @rule(place=st.sampled_from([place for place in PLACES if place != "drop"]), number=st.integers(1, 40), **RUN)
    def break_writing(self, place, number, source, threads, every):
        """Something is raised in a step of writing, if it comes so far."""
        number = 97 * number if place == "byte" else number
        with plug(place, number, stop):
            try:
                posterior = self.fit(source, threads, every)
            except Stop:
                return
        assert saved(posterior, self.folder) == self.wanted

    @rule(share=st.floats(0, 1), asked=st.booleans(), **RUN)
    def break_pass(self, share, asked, source, threads, every):
        """The callback fails, or asks to stop, at a pass."""
        reports, number = [], 1 + int(share * self.n_events)

        def callback(event):
            reports.append(event)
            if len(reports) == number:
                return True if asked else stop()
            return False

        try:
            posterior = self.fit(source, threads, every, callback)
        except Stop:
            assert not asked
            return
        if len(reports) < number:
            assert saved(posterior, self.folder) == self.wanted

    @rule(**RUN)
    def go_on(self, source, threads, every):
        """To the end; the file stays, and the same call does it once more."""
        self.ended(source, threads, every)

    @rule(**RUN)
    def second(self, source, threads, every):
        """While it runs another one is refused, which does not disturb the first."""
        refused = []

        def callback(event):
            if not refused:
                with pytest.raises(ValueError, match=r"fit.npz is in use by process \d+: wait for it") as caught:
                    self.fit(source, threads, every)
                refused.append(caught)

        assert saved(self.fit(source, threads, every, callback), self.folder) == self.wanted

    @precondition(lambda self: self.path.exists())
    @rule(damage=damages(), **RUN)
    def damage(self, damage, source, threads, every):
        """A damaged file is refused by its name and stays as it is, or changes no bit."""
        content = self.path.read_bytes()
        broken = damage(content)
        self.path.write_bytes(broken)
        try:
            posterior = self.fit(source, threads, every)
        except ValueError as error:
            assert f"{self.path} is not a file written by cavity, or it is damaged" in str(error)  # noqa: PT017
            assert self.path.read_bytes() == broken
            self.path.write_bytes(content)
        else:
            assert saved(posterior, self.folder) == self.wanted

    @precondition(lambda self: self.path.exists())
    @rule(name=st.sampled_from([*FITS]))
    def other(self, name):
        """Another fit is refused, and leaves it as it is."""
        content = self.path.read_bytes()
        if name != self.name:
            with pytest.raises(ValueError, match=r"fit.npz is of another fit: .* Give another path"):
                FITS[name](X, checkpoint=self.path)
        assert self.path.read_bytes() == content

    @precondition(lambda self: self.path.exists())
    @rule()
    def remove(self):
        """Start anew."""
        self.path.unlink()

    @invariant()
    def nothing_else(self):
        assert {path.name for path in self.path.parent.iterdir()} <= {"fit.npz"}


# some do not converge in so few passes
TestCheckpoints = pytest.mark.long(pytest.mark.filterwarnings("ignore")(Checkpoints.TestCase))
TestCheckpoints.settings = settings(examples(3), stateful_step_count=8)


# ------------------------------------------------------------------------------------------ processes


@cache
def whole_job(name):
    """The bits of a job that nobody interrupts."""
    with tempfile.TemporaryDirectory() as folder:
        return saved(jobs.FITS[name](), folder)


def check_killed(server, name, place, number, folder):
    """A process that is killed at a place, if it comes so far, and the same call again."""
    path, out = folder / "fit.npz", folder / "out.npz"
    first = server.ended(server.start(name, path, every=0.0, out=out, seconds=0.0, fatal=(place, number)))
    if first == 0:
        assert bits(out) == whole_job(name)
        out.unlink()
    else:
        assert first == -signal.SIGKILL
        assert not out.exists()
    assert server.ended(server.start(name, path, every=0.0, out=out, seconds=0.0)) == 0
    assert bits(out) == whole_job(name)
    assert {item.name for item in folder.iterdir()} == {"fit.npz", "out.npz"}
    return first


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", PLACES)
def test_killed_at_every_place(place, server, tmp_path):
    number = {"byte": 5000, "locked": 1, "drop": 1}.get(place, 3)
    assert check_killed(server, "unit", place, number, tmp_path) == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", jobs.FITS)
def test_killed_at_many_places(name, server, tmp_path):
    rng = np.random.default_rng(0)
    for number in range(60):
        place = PLACES[number % len(PLACES)]
        (tmp_path / f"{number}").mkdir()
        most = {"byte": 200_000, "locked": 1, "drop": 1}.get(place, 40)
        check_killed(server, name, place, int(rng.integers(1, most, endpoint=True)), tmp_path / f"{number}")


@pytest.mark.long
def test_several_processes_begin_at_once(server, tmp_path):
    """One after the other has the checkpoint; those that come meanwhile are refused."""
    for item in range(60):
        path, outs = tmp_path / f"{item}.npz", [tmp_path / f"{item} {number}.npz" for number in range(5)]
        started = [server.start("unit", path, every=0.0, out=out, seconds=0.0) for out in outs]
        ends = [server.ended(process) for process in started]
        assert 0 in ends
        assert {*ends} <= {0, REFUSED}
        for end, out in zip(ends, outs, strict=True):
            if end == 0:
                assert bits(out) == whole_job("unit")
            else:
                assert "is in use by " in out.read_text()
        assert not list(tmp_path.glob("*.lock"))
