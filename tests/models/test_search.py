"""The search that all models with EP share."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.tolerances import EXPANSION, OPTIMUM, SOLVES

import cavity
from cavity.ep.options import Options
from cavity.jobs.job import Job
from cavity.models import search


@pytest.mark.parametrize("calls", range(1, 7))
def test_a_search_that_ends_where_ep_fails_does_not_say_that_it_came_to_rest(calls):
    """After some evaluations EP fails everywhere, which counts as a wall that is flat."""
    seen = []

    def objective(x):
        if len(seen) >= calls:
            return 1e3, np.zeros(2)
        curvature = np.array([1.0, 30.0])
        seen.append(0.5 * float(curvature @ (x - 5.0) ** 2))
        return seen[-1], curvature * (x - 5.0)

    value, x, slope = search.climb(objective, np.zeros(2), np.array([[-9.0, 9.0]] * 2))
    assert value == min(seen)
    assert value == 0.5 * float(np.array([1.0, 30.0]) @ (x - 5.0) ** 2)
    assert slope == pytest.approx(np.max(np.abs([1.0, 30.0] * (x - 5.0))), rel=SOLVES)
    assert slope > 0.1


def test_a_callback_hears_of_every_evaluation_and_stops_at_the_best_so_far():
    seen, values = [], []

    def objective(x):
        values.append(float(x @ x))
        return values[-1], 2.0 * x

    def enough(event):
        seen.append((event.n_iter, event.objective))
        return event.n_iter == 3

    job, bounds = Job.checked(enough), np.array([[-9.0, 9.0]] * 2)
    value, x, slope = search.climb(objective, np.array([3.0, -4.0]), bounds, job=job)
    assert seen == [(n, -min(values[:n])) for n in (1, 2, 3)]
    assert len(values) == 3
    assert value == min(values) == x @ x
    assert slope == np.max(np.abs(2.0 * x))
    assert search.climb(objective, np.ones(2), bounds, job=job)[0] == 2.0  # what begins after a stop ends at once
    assert len(values) == 4


class Quadratic:
    """A bowl about a middle, 5 entries, one of them nearly flat; it fails beyond some calls."""

    failures = 0

    def __init__(self, fails_from=np.inf):
        half = np.random.default_rng(0).normal(size=(5, 5)) * [[30.0], [3.0], [1.0], [10.0], [0.01]]
        self.hessian, self.middle, self.calls, self.fails_from = half.T @ half, np.linspace(-1, 1, 5), 0, fails_from

    def __call__(self, x):
        self.calls += 1
        if self.calls >= self.fails_from:
            self.failures += 1
            return 1e3, np.zeros(5)
        apart = x - self.middle
        return 0.5 * float(apart @ self.hessian @ apart), self.hessian @ apart


@pytest.mark.long_cases("0.3")
@pytest.mark.parametrize("high", [9.0, 0.3])
def test_the_root_of_an_inverse_hessian_makes_a_search_newtons(high):
    """Curvatures below one count as one. With the root three evaluations end where thirty do without."""
    bounds, start = np.array([[-9.0, high]] * 5), np.full(5, 0.3)
    root = search.newton_root(Quadratic(), start, bounds)
    values, vectors = np.linalg.eigh(Quadratic().hessian)
    np.testing.assert_allclose(
        root @ root.T, (vectors / np.maximum(values, 1.0)) @ vectors.T, rtol=OPTIMUM, atol=SOLVES
    )
    plain, newton = Quadratic(), Quadratic()
    expected = search.climb(plain, start, bounds)
    value, x, slope = search.climb(newton, start, bounds, root=root)
    assert value == pytest.approx(expected[0], abs=EXPANSION)
    assert slope < 0.1
    if high == 9.0:
        assert newton.calls < 0.3 * plain.calls
        assert slope <= np.max(np.abs(newton.hessian @ (x - newton.middle)))


def test_no_root_where_ep_fails_or_the_callback_stops():
    bounds = np.array([[-9.0, 9.0]] * 5)
    assert search.newton_root(Quadratic(fails_from=4), np.zeros(5), bounds) is None
    assert search.newton_root(Quadratic(), np.zeros(5), bounds, Job.checked(lambda event: True)) is None


@pytest.mark.parametrize("kind", ["glm", "gp", "streaming", "mixed"])
def test_evaluations_and_their_times_are_in_the_trace(kind, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 1)), rng.normal(size=40)
    fits = {
        "glm": lambda: cavity.GLM("gaussian", prior_variance=1.0, intercept=False).fit(X, y),
        "gp": lambda: cavity.GaussianProcess("rbf").fit(X, y),
        "streaming": lambda: cavity.StreamingGP("rbf", n_inducing=8).fit(X, y),
        "mixed": lambda: cavity.MixedGLM("g", "gaussian", prior_variance=1.0, priors="avoid-zero").fit(
            np.ones((40, 1)), y, groups={"g": np.arange(40) % 4}
        ),
    }
    posterior = fits[kind]()
    seconds, values = posterior.trace["seconds"], posterior.trace["learning"]
    assert len(seconds) == len(values) > 1
    assert np.all(np.diff(seconds) > 0)
    posterior.save(tmp_path / "posterior.npz")
    assert "seconds" not in cavity.load(tmp_path / "posterior.npz").trace


class Place:
    """A fixed point of `Few`."""

    converged = True

    def __init__(self, settings):
        self.settings, self.log_evidence = settings, -float(settings @ settings)


class Few:
    """An evidence, and the vector of its settings, that keeps the tolerances it was asked for."""

    def __init__(self):
        self.options, self.tols = Options(tol=1e-8), []

    def at(self, settings, tol, double_loop):
        self.tols.append(tol)
        return Place(settings)

    def unpack(self, x):
        return x

    def log_prior(self, settings):
        return 0.0, np.zeros(len(settings))

    def gradient(self, evidence, point):
        return -2.0 * point.settings


def test_places_met_again_are_evaluated_again_only_for_a_finer_tolerance():
    few = Few()
    objective, far, near = search.Objective(few, few), np.array([3.0, 4.0]), np.array([1e-3, 0.0])
    first = objective(far)
    objective(far)  # its slope is known now, and so is a tolerance
    assert len(few.tols) == len(objective.values) == 2
    objective(near)
    value, slopes = objective(near)  # now to the finest
    assert few.tols[3] == search.SEARCH_TOL < few.tols[2]
    assert len(objective.trace["learning"]) == 4
    second = objective(near)
    assert len(few.tols) == len(objective.trace["learning"]) == 4
    assert (second[0], objective.slope) == (value, 2e-3)
    np.testing.assert_array_equal(second[1], slopes)
    value, slopes = objective(far)  # which was evaluated more roughly
    assert few.tols[4] == search.SEARCH_TOL
    assert value == first[0]
    np.testing.assert_array_equal(slopes, first[1])


class Pit:
    """Two numbers: a parabola in the first, and a pit in the second that nothing shows from afar."""

    options = Options(tol=1e-12)

    def __init__(self, depth):
        self.depth, self.asked = depth, []

    def unpack(self, x):
        return x.copy()

    def at(self, x, **_):
        self.asked.append(x)
        inside = self.depth * np.exp(-0.5 * (x[1] - 9.0) ** 2)
        slope = np.array([-2.0 * (x[0] - 1.0), -inside * (x[1] - 9.0)])
        point = SimpleNamespace(settings=x, slope=slope, log_evidence=inside - (x[0] - 1.0) ** 2, converged=True)
        if x[1] < -6.0:
            raise ArithmeticError("no fixed point")
        return point

    def log_prior(self, settings):
        return 0.0, np.zeros(len(settings))

    def gradient(self, evidence, point):
        return point.slope.copy()


@pytest.mark.parametrize(("depth", "end"), [(4.0, 9.0), (0.0, 0.0)])
def test_a_number_that_made_no_difference_is_tried_far_away(depth, end):
    """Where it makes none anywhere the search stays; a side on which EP fails is left at once."""
    pit, bounds = Pit(depth), np.array([[-20.0, 20.0]] * 2)
    objective = search.Objective(pit, pit)
    best = search.climb(objective, np.array([4.0, 0.0]), bounds)
    assert best[1] == pytest.approx([1.0, 0.0], abs=EXPANSION)
    n = len(pit.asked)
    value, x, slope = search.leave_plateaus(objective, best, bounds)
    assert x == pytest.approx([1.0, end], abs=EXPANSION)
    assert value == pytest.approx(-depth, abs=OPTIMUM)
    assert search.is_flat(slope, value)
    assert sum(item[1] < -6.0 for item in pit.asked[n:]) == 1
    if depth == 0.0:
        step = np.log(100.0)
        assert [entry[1] for entry in pit.asked[n:]] == pytest.approx([-step, -2 * step, *step * np.arange(1, 5), 20.0])


def test_a_search_that_met_slopes_everywhere_costs_no_evaluation_more():
    pit, bounds = Pit(4.0), np.array([[-20.0, 20.0]] * 2)
    objective = search.Objective(pit, pit)
    best = search.climb(objective, np.array([4.0, 7.5]), bounds)
    n = len(pit.asked)
    assert search.leave_plateaus(objective, best, bounds) is best
    assert len(pit.asked) == n


def test_a_search_evaluates_a_bounded_number_of_places():
    """A function of kinks, on which line searches take ten evaluations."""
    scale, places = np.array([1.0, 1e3, 1e6]), []

    def objective(x):
        places.append(x)
        gap = scale * x - 1.0
        worst = np.arange(3) == np.argmax(np.abs(gap))
        return float(np.max(np.abs(gap))), worst * np.sign(gap) * scale

    search.climb(objective, np.full(3, 0.3), np.array([[-9.0, 9.0]] * 3), most=40, rounds=2)
    assert 40 < len(places) <= 1 + 2 * (40 * search.EVALUATIONS_A_STEP + 20)
