"""What posteriors of latent values share: predictions of observations from the moments of f."""

from dataclasses import fields, is_dataclass, replace

import numpy as np

from cavity import likelihoods
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
    names,
)
from cavity.base.results import Posterior
from cavity.base.rows import observations
from cavity.ep.sites import tilted
from cavity.likelihoods.base import ONE, has_kernel_of
from cavity.likelihoods.parameters import check_closed

AUTO = "auto"  # the schedule that is left to us
KNOWN_VARIANCE = 1e-300  # of f, below which it is known: x = 0, or beyond rounding


def scheduled(options, likelihood, exponent):
    """Return options with a schedule of the engine in place of "auto": sequential where kernels know the powers."""
    if options.schedule != AUTO:
        return options
    return replace(options, schedule="sequential" if has_kernel_of(likelihood, exponent) else "parallel")


def log_density(likelihood, y, mean, variance):
    """log of the integral of p(y|f) N(f; mean, variance) for checked vectors; a variance may be zero."""
    out = np.empty(len(mean))
    sure = variance < KNOWN_VARIANCE
    if sure.any():
        out[sure] = likelihood.log_p(y[sure], mean[sure])
    if not sure.all():
        out[~sure] = tilted(likelihood, y[~sure], ONE, mean[~sure], variance[~sure])[0]
    return out


def probabilities(likelihood, predict):
    """Probabilities (n, n_classes) of the classes of a likelihood; predict() gives the means and variances of f."""
    classes = likelihood.n_classes
    if classes is None:
        name = type(likelihood).__name__
        raise ValueError(f"predict_proba needs a likelihood of classes, got {name}; see log_density and expected")
    mean, variance = predict()
    labels = (0, 1) if classes == 2 else range(classes)
    checked = (likelihood.check(np.full(len(mean), float(k))) for k in labels)
    return np.exp(np.column_stack([log_density(likelihood, y, mean, variance) for y in checked]))


def _likelihood(settings):
    """Return the likelihood that `likelihood_settings` took apart."""
    name, parameters = settings
    kind = getattr(likelihoods, name, None)
    if not (isinstance(kind, type) and issubclass(kind, likelihoods.Likelihood) and is_dataclass(kind)):
        raise ValueError(f"there is no likelihood {name!r}")
    forms = {f.name: Nullable(NUMBERS) if f.name in kind.parameters else NUMBERS for f in fields(kind)}
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
    "columns?": Nullable(names("C")),
    "classes?": Nullable(names()),
}
EP_TRACE = {
    "trace_change?": Array("c", "any"),
    "trace_improper?": Array("i", "nonnegative", "if"),
    "trace_double_loop?": Array("()", "nonnegative", "i"),
}


class LatentPosterior(Posterior):
    """Base of posteriors whose `model` has a likelihood; `predict(X, offset=)` gives means and variances of f."""

    __slots__ = ()

    def predict_proba(self, X, offset=None):
        """Class probabilities, integrated over the posterior.

        Parameters
        ----------
        X : array_like (n, D)
            Rows, as `predict` takes them.
        offset : array_like (n,), optional
            Known part of f.

        Returns
        -------
        ndarray (n, n_classes)
            For binary labels: of class -1 (or 0), then of class 1; for OrderedProbit of 0, 1, ...
        """
        return probabilities(self.model.likelihood, lambda: self.predict(X, offset=offset))

    def log_density(self, X, y, offset=None):
        """Log predictive density of new observations, integrated over the posterior.

        Parameters
        ----------
        X : array_like (n, D)
            Rows, as `predict` takes them.
        y : array_like (n,)
            Observations.
        offset : array_like (n,), optional
            Known part of f.

        Returns
        -------
        ndarray (n,)
            log p(y | x, data).
        """
        mean, variance = self.predict(X, offset=offset)
        return log_density(self.model.likelihood, observations(self.model.likelihood, y, len(mean)), mean, variance)

    def expected(self, X, offset=None):
        """Mean of a new observation, integrated over the posterior.

        Parameters
        ----------
        X : array_like (n, D)
            Rows, as `predict` takes them.
        offset : array_like (n,), optional
            Known part of f.

        Returns
        -------
        ndarray (n,)
            E[y | x, data].
        """
        return self.model.likelihood.expected(*self.predict(X, offset=offset))

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
