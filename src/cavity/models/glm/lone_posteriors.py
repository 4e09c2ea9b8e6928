"""Single posteriors of a fit of many responses."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays
from cavity.ep.weights import WeightRoot
from cavity.models.glm.posterior import GLMPosterior
from cavity.models.hyperparameters import Hyperparameters

NO_ERRORS_NOTE = "no standard errors of fits of many responses"


def make_lone_posterior(make_model, many, number):
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
        _covariance=WeightRoot(arrays.cholesky(covariance, "covariance")),
        **dict.fromkeys(("_loo", "_tau", "_rho")),
        **{name: getattr(many, name) for name in labels},
        **scaling,
    )
