"""UnitMixture: one pass of coordinate ascent over a million points beside NumPy.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_unit_mixture.py`. Every implementation is
compared with another one before it is timed. A pass of ours does what NumPy's does and checks nothing; the data were
checked once.
"""

from functools import lru_cache

import numpy as np
import pytest
from rivals import unit_mixture as reference

from cavity.models.unit_mixture import sweep
from cavity.runs.executors import Threads
from cavity.sources import sources

POINTS, COMPONENTS = 10**6, 10
PRIOR_VARIANCE = 100.0
CASE = "unit mixture pass, N=1e6, K=10"


@lru_cache(maxsize=1)
def problem():
    """Data of overlapping components, and moments of q(theta) on the way to them."""
    rng = np.random.default_rng(0)
    centres = np.linspace(-9.0, 9.0, COMPONENTS)
    y = rng.normal(rng.choice(centres, size=POINTS), 1.0)
    return y, centres + rng.normal(0.0, 0.3, COMPONENTS), np.full(COMPONENTS, 1e-5)


def state(mean, variance):
    """The same as a state of the engine."""
    k = len(mean)
    return sweep.UnitMixtureState(
        mean=mean,
        precision=1.0 / variance,
        prior_mean=np.zeros(k),
        prior_variance=np.full(k, PRIOR_VARIANCE),
        weights=np.full(k, 1.0 / k),
        noise_variance=1.0,
        counts=np.zeros(k),
    )


RIVALS = {
    "naive": lambda: reference.textbook,
    "in_place": lambda: reference.InPlace(POINTS, COMPONENTS),
    "expert": lambda: reference.Blocked(COMPONENTS, POINTS),
    "blocked": lambda: reference.Blocked(COMPONENTS),
}


@pytest.mark.parametrize("name", ["cavity", "cavity, 2 threads", "cavity, learning the noise", *RIVALS])
def test_pass(measure, name):
    """One pass: responsibilities, their sums, the new q(theta) and the ELBO's sum over the points."""
    y, mean, variance = problem()
    expected = reference.Blocked(COMPONENTS)(y, mean, variance, PRIOR_VARIANCE)[:2]
    rival = RIVALS.get(name, lambda: None)()
    with Threads(2 if name.endswith("2 threads") else 1) as threads:
        source = sources.open_source(y, "y")
        learn = ("noise_variance",) if name.endswith("noise") else ()
        sweeps = sweep.UnitMixtureSweeps(POINTS, learn, source, threads)

        def ours():
            new, _ = sweeps.sweep(state(mean, variance))
            return new.mean, 1.0 / new.precision

        def theirs():
            return rival(y, mean, variance, PRIOR_VARIANCE)[:2]

        call = ours if name.startswith("cavity") else theirs
        for actual, target in zip(call(), expected, strict=True):
            np.testing.assert_allclose(actual, target, rtol=1e-10)
        measure(CASE, name, call, POINTS, "point")


def test_exponentials(measure):
    """np.exp of as many numbers as a pass needs, in cache: what no pass in NumPy can be faster than."""
    y, mean, _ = problem()
    arguments = -0.5 * (y[:1024] - mean[:, None]) ** 2
    out = np.empty_like(arguments)
    measure(CASE, "exponentials", lambda: np.exp(arguments, out=out), 1024, "point")
