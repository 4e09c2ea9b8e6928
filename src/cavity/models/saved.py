"""Posteriors read back from files: the kinds there are."""

from __future__ import annotations

from dataclasses import is_dataclass
from importlib import import_module
from os import PathLike
from typing import Any

from cavity.base import persistence, records, serialization
from cavity.base.paths import PARQUET_SUFFIXES, decode_path
from cavity.base.results import POSTERIOR_CLASSES
from cavity.models.many import parquet

MANY_KIND = "many"  # of posteriors that may be Parquet files

MODEL_MAKERS = {  # what makes the model of a posterior, or, where that is no dataclass, the posterior itself
    "clutter": "models.clutter.model.Clutter",
    "factorized": "models.factorized.model.FactorizedGaussian",
    "gaussian_mixture": "models.mixture.model.GaussianMixture",
    "gaussian_process": "models.gp.model.GaussianProcess",
    "gaussian_process_chain": "models.gp.model.GaussianProcess",
    "gaussian_process_end": "models.gp.model.GaussianProcess",
    "glm": "models.glm.model.model_from_settings",
    "linear_regression": "models.regression.linear.LinearRegression",
    "many": "models.glm.model.",
    "mixed": "models.mixed.model.model_from_settings",
    "logistic_regression": "models.regression.logistic.LogisticRegression",
    "unit_mixture": "models.unit_mixture.model.UnitMixture",
    "mean_field": "mean_field.model.",  # models are the user's own, and no part of files
    "streaming_gp": "models.streaming_gp.saved.rebuild",
}
SAVED_KINDS = (*MODEL_MAKERS,)
REFUSED_KINDS = {  # kinds that are not read, and what to do about them
    "univariate_gaussian": "the last version of cavity that reads it is 0.2.0",
    "checkpoint": "give its path as checkpoint to the fit that wrote it, which goes on where it was",
}


def load(path: str | PathLike[str]) -> Any:
    """Read a posterior that `save`, or `ManyPosterior.to_parquet`, wrote.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    posterior
        Of the kind that was saved, equal to it in every bit.

    Raises
    ------
    TypeError
        For what is no path.
    ValueError
        If it is no regular file but a device or a pipe, not one of ours, damaged, from a newer format, or of a kind
        that is read no more; the message names it, and the part of it, or the last version that reads it.
    """
    if decode_path(path).lower().endswith(PARQUET_SUFFIXES):
        import_module(f"cavity.{MODEL_MAKERS[MANY_KIND].rpartition('.')[0]}")
        return parquet.read(POSTERIOR_CLASSES[MANY_KIND], path)
    return rebuild_from_file(path, *persistence.read(path, SAVED_KINDS, REFUSED_KINDS))


def rebuild_from_file(path, kind, arrays, settings):
    """Return the posterior that `persistence.read` found in a file; errors name it."""
    try:
        return rebuild(kind, arrays, settings)
    except ValueError as error:
        raise ValueError(f"{path} is damaged, or was not written by cavity: {error}") from error


def rebuild(kind, arrays, settings):
    """Rebuild what `to_arrays` of a posterior took apart.

    Parameters
    ----------
    kind : str
        One of SAVED_KINDS.
    arrays : dict of ndarray
        The named arrays.
    settings : dict
        The JSON-able settings.

    Returns
    -------
    posterior
        Equal to the original.

    Raises
    ------
    ValueError
        If arrays or settings are missing, not known, or not what they must be, naming the first of them.
    """
    module, _, name = MODEL_MAKERS[kind].rpartition(".")
    make = getattr(import_module(f"cavity.{module}"), name, None)
    cls = POSTERIOR_CLASSES[kind]
    record = records.record_of(cls)
    arrays, settings = records.check(record, arrays, settings)
    with records.refusing():
        return (
            serialization.deserialize(record, cls, make, arrays, settings)
            if is_dataclass(cls)
            else make(arrays, settings)
        )
