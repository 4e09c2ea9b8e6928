"""What tests of the clutter model share."""

import numpy as np

from cavity import Clutter
from cavity.ep.options import Options
from cavity.models.clutter.problem import DataPoints, Points
from cavity.models.clutter.sweeps import Sweeper, Visits
from cavity.runs.executors import Threads


def draw(shape, seed=0, theta=2.0, w=0.5, c=10.0):
    """Minka's setting: clutter N(0, 10) with probability w, else signal N(theta, 1); shape (..., N, d) or (N,)."""
    rng = np.random.default_rng(seed)
    rows = shape if len(shape) == 1 else (*shape[:-1], 1)
    return np.where(rng.random(rows) < w, np.sqrt(c) * rng.normal(size=shape), theta + rng.normal(size=shape))


FIELDS = ("mean", "variance", "log_evidence", "converged", "n_iter", "loo_log_density")


def bits(posterior, index=()):
    """All numbers of a posterior, or of one problem of a batch."""
    return [np.asarray(getattr(posterior, name))[index] for name in FIELDS] + [
        posterior.sites.tau[index],
        posterior.sites.rho[index],
    ]


def assert_same_bits(a, b):
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


def finite(posterior):
    values = [
        posterior.mean,
        posterior.variance,
        posterior.log_evidence,
        posterior.loo_log_density,
        posterior.sites.tau,
        posterior.sites.rho,
        posterior.sites.log_scale,
    ]
    return all(np.isfinite(v).all() for v in values) and posterior.converged


def points_of(x):
    """Data in the working units of Minka's setting."""
    return Points.of(DataPoints(x), Clutter())


def sweeper_of(points, kind=Sweeper, **options):
    """A sweeper of one problem on one thread, sequential unless told."""
    options = {"schedule": "sequential", "max_iter": 100, "tol": 1e-10} | options
    return kind(points, Options(**options), Visits(), Threads(1))
