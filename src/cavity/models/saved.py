"""Posteriors read back from files: the kinds there are, and where what each holds is said."""

from importlib import import_module

from cavity.base import persistence, records

KINDS = {  # where each has RECORD, what its files hold, and `rebuilt`, which makes the posterior of that
    "clutter": "models.clutter.saved",
    "factorized": "models.factorized.model",
    "gaussian_mixture": "models.mixture.saved",
    "gaussian_process": "models.gp.saved",
    "glm": "models.glm.saved",
    "linear_regression": "models.regression.linear",
    "logistic_regression": "models.regression.logistic",
    "mean_field": "mean_field.model",
    "streaming_gp": "models.streaming_gp.saved",
    "unit_mixture": "models.unit_mixture.saved",
}
LEFT = {"univariate_gaussian": "0.2.0"}  # kinds that are read no more, and the last version that read them


def load(path):
    """Read a posterior that `save` wrote.

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
    ValueError
        If the file is not one of ours, damaged, from a newer format, or of a kind that is read no more; the message
        names it, and the part of it, or the last version that reads it.
    """
    kind, arrays, settings = persistence.read(path, KINDS, LEFT)
    try:
        return rebuilt(kind, arrays, settings)
    except ValueError as error:
        raise ValueError(f"{path} is damaged, or was not written by cavity: {error}") from error


def rebuilt(kind, arrays, settings):
    """Rebuild what `to_arrays` of a posterior took apart.

    Parameters
    ----------
    kind : str
        One of KINDS.
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
    module = import_module(f"cavity.{KINDS[kind]}")
    arrays, settings = records.check(module.RECORD, arrays, settings)
    with records.refusing():
        return module.rebuilt(arrays, settings)
