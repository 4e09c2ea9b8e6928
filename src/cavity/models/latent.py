"""What models of latent values with EP share: schedules, likelihoods in files, leave-one-out densities."""

from dataclasses import fields, is_dataclass, replace

import numpy as np

from cavity import likelihoods
from cavity.base.kept import kept
from cavity.base.records import (
    ANY_NUMBER,
    FLAG,
    LOG_DENSITY,
    NUMBERS,
    TABLE,
    TEXT,
    Array,
    Made,
    Nullable,
    check_settings,
    integer,
)
from cavity.base.results import Posterior
from cavity.likelihoods.base import has_kernel_of
from cavity.likelihoods.parameters import check_closed
from cavity.models.predictions import Predictions

AUTO = "auto"  # the schedule that is left to us


def scheduled(options, likelihood, exponent):
    """Return options with a schedule of the engine in place of "auto": sequential where kernels know the powers."""
    if options.schedule != AUTO:
        return options
    return replace(options, schedule="sequential" if has_kernel_of(likelihood, exponent) else "parallel")


def _likelihood(settings):
    """Return the likelihood that `likelihood_settings` took apart."""
    name, parameters = settings
    kind = getattr(likelihoods, name, None)
    if not (isinstance(kind, type) and issubclass(kind, likelihoods.Likelihood) and is_dataclass(kind)):
        raise ValueError(f"there is no likelihood {name!r}")
    given = {f.name: TEXT if f.type in (str, "str") else NUMBERS for f in fields(kind)}
    forms = {name: Nullable(form) if name in kind.parameters else form for name, form in given.items()}
    return kind(**check_settings(forms, parameters))


def _closed_likelihood(settings):
    """Return one without open parameters."""
    likelihood = _likelihood(settings)
    check_closed(likelihood)
    return likelihood


def likelihood_settings(likelihood):
    """Return a likelihood as JSON has it, its name and parameters; TypeError for one of the user's own."""
    name = type(likelihood).__name__
    if getattr(likelihoods, name, None) is not type(likelihood):
        raise TypeError(f"only models with a likelihood of cavity.likelihoods can be saved, not {name}")
    return [name, {f.name: getattr(likelihood, f.name) for f in fields(likelihood)}]


LIKELIHOOD = Made(_closed_likelihood, [TEXT, TABLE], likelihood_settings)
OPEN_LIKELIHOOD = Made(_likelihood, [TEXT, TABLE], likelihood_settings)  # of models that have seen nothing yet
FITTED = {  # settings of every posterior of latent values
    "log_evidence": LOG_DENSITY,  # of data that are impossible where f is known it is -inf
    "converged": FLAG,
    "n_iter": integer(),
    "status": TEXT,
    "residual": ANY_NUMBER,
    "n_samples": integer(1),
    "likelihood": LIKELIHOOD,
    **kept("C"),
}
EP_TRACE = {
    "trace_change?": Array("c", "any"),
    "trace_improper?": Array("i", "nonnegative", "if"),
    "trace_double_loop?": Array("()", "nonnegative", "i"),
}


class LatentPosterior(Predictions, Posterior):
    """Base of posteriors whose `model` has a likelihood."""

    __slots__ = ()

    def _proper_loo(self):
        """The leave-one-out log densities; ValueError naming the first row without one."""
        if np.any(np.isnan(self._loo)):
            row = int(np.argmax(np.isnan(self._loo)))
            raise ValueError(f"row {row} has no leave-one-out density: without it the approximation is improper")
        return self._loo


def check_kind(value, name, kind, module):
    """Raise TypeError unless a setting of a model is of a kind of cavity's."""
    if not isinstance(value, kind):
        hint = " (did you forget the brackets?)" if isinstance(value, type) else ""
        if type(value).__module__.startswith("sklearn."):
            hint = " of scikit-learn; the faces in cavity.sklearn take its kernels"
        raise TypeError(f"{name} must be an instance of cavity.{module}.{kind.__name__}, got {value!r}{hint}")
