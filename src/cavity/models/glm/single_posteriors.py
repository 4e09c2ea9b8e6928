"""Single posteriors of a fit of many responses."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays
from cavity.ep.weights import WeightRoot
from cavity.models.glm.posterior import GLMPosterior
from cavity.models.hyperparameters import NO_ERRORS_NOTE, Hyperparameters


def make_single_posterior(make_model, many, number):
    """Return the `GLMPosterior` of a response; make_model(**settings) is the model of a posterior."""
    names, values = many.parameter_names, tuple(map(float, many.parameters[number]))
    likelihood = replace(many.likelihood, **dict(zip(names, values, strict=True))) if names else many.likelihood
    covariance, sd = many.covariance(number), many.prior_sd[number]
    root = np.diag(sd) if many.prior_root is None else many.prior_root * sd
    scaling = {"centre": many.centre, "spread": many.spread, "intercept": many.intercept}
    variance = sd**2 if many.prior_root is None else root @ root.T
    settings = {"approximation": "full", "prior_mean": many.prior_mean[number], "prior_variance": variance}
    labels = ("columns", "roles", "has_offset", "coding", "n_samples")
    return GLMPosterior(
        model=make_model(likelihood=likelihood, **settings, **scaling),
        mean=many.mean[number].copy(),
        variance=np.diag(covariance).copy(),
        log_evidence=float(many.log_evidence[number]),
        converged=bool(many.converged[number]),
        n_iter=int(many.n_iter[number]),
        status=str(many.status[number]),
        residual=np.nan,
        method="ep",
        trace={},
        classes=None,
        hyperparameters=Hyperparameters(names, values, (None,) * len(names), NO_ERRORS_NOTE) if names else None,
        dropped=None,
        _covariance=WeightRoot(many._find_root(number)),
        **dict.fromkeys(("_loo", "_tau", "_rho")),
        **{name: getattr(many, name) for name in labels},
        **scaling,
    )


def read_rows(many, X, groups, levels, offset, exposure):
    """Return new rows as weights take them (n, M), the known part of f, and 0.0: there are no levels."""
    for name, is_given in (("groups", groups is not None), ("levels", levels != "known")):
        if is_given:
            raise arrays.error_of(name, "has no meaning for a model without random effects")
    first = int(np.argmax(many.has_posterior))
    return *many.of(first)._linear_rows(X, offset, exposure)[:2], 0.0
