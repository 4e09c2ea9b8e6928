"""The one place that decides where EP with dependent weights is done: in this process, or where remote rows are."""

from cavity.ep.dense import Dense
from cavity.ep.engine import Engine
from cavity.ep.remote import RemoteDense, RemoteEngine
from cavity.ep.stochastic import Stochastic
from cavity.sources.dataset import ON_WORKERS
from cavity.sources.features import kind_of


def make_geometry(X, *settings):
    """Return the geometry of rows X, a `Dense` or a `RemoteDense` with these arguments."""
    return (RemoteDense if kind_of(X) == ON_WORKERS else Dense)(X, *settings)


def make_engine(geometry, sites, options, start):
    """Return the engine of a schedule for a geometry of any kind; `start` are sites to start from, or None."""
    if options.schedule == "stochastic":
        return Stochastic(geometry, sites, options)
    return (RemoteEngine if isinstance(geometry, RemoteDense) else Engine)(geometry, sites, options, start)
