"""Lines of the repr of a GLM's posterior."""

import numpy as np

from cavity.base.results import shorten_repr
from cavity.models.linear.evidence import PRIOR_VARIANCE


def describe_settings(posterior):
    """Yield the lines of the repr about settings."""
    likelihood = shorten_repr(posterior.model.likelihood)
    mean, variance = posterior.model.prior_mean, posterior.model.prior_variance
    variances = np.broadcast_to(np.diag(variance) if np.ndim(variance) == 2 else variance, posterior.mean.shape)
    chosen = posterior.chosen or ()
    if "likelihood" in chosen:
        likelihood += " (chosen from y)"
    if "()" not in likelihood or "likelihood" in chosen:
        yield "likelihood", likelihood
    columns = variances[posterior.intercept :]
    names = posterior.hyperparameters.names if posterior.hyperparameters else ()
    learnt = any(name.startswith(PRIOR_VARIANCE) for name in names)
    if (learnt or PRIOR_VARIANCE in chosen) and columns.size:
        ends = sorted({f"{columns.min():.4g}", f"{columns.max():.4g}"}, key=float)
        yield "prior", f"variance {' to '.join(ends)} ({'learnt' if learnt else 'scaled to the data'})"
    if posterior.intercept:
        yield "intercept", f"prior mean {np.ravel(mean)[0]:.4g}, variance {variances[0]:.4g}"
    if posterior.centre is not None:
        scaled = np.any(posterior.spread != 1.0)
        yield "columns", "divided by their standard deviations" if scaled else "centred, for the thresholds"
