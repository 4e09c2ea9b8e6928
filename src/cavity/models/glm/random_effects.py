"""Formulas of a GLM that have random effects: fitted as a mixed model."""

from cavity.base import arrays

MIXED_SETTINGS = (  # that mean the same in both models
    *("likelihood", "prior_mean", "prior_variance", "centre", "priors", "graphs", "integrate", "bins"),
)


def fit_mixed(model, X, columns, missing, options, method, learn, prior_groups):
    """Return the posterior of the `MixedGLM` of a formula; `options` are those of the iteration and of the run.

    Raises
    ------
    ValueError
        Naming a setting or an option that a mixed model does not have.
    """
    from cavity.models.mixed.model import MixedGLM  # takes a while to load

    without = {"approximation": model.approximation != "full", "standardize": model.standardize}
    without |= {"intercept": model.intercept is not None, "method": method != "ep", "learn": learn not in (None, False)}
    without |= {"schedule": options["schedule"] != "parallel", "prior_groups": prior_groups is not None}
    for name, is_given in without.items():
        if is_given:
            message = "has no meaning for a formula with random effects, which is fitted as MixedGLM; leave it out"
            raise arrays.error_of(name, message)
    options = {name: value for name, value in options.items() if name != "schedule"}
    mixed = MixedGLM(model.formula, **{name: getattr(model, name) for name in MIXED_SETTINGS})
    return mixed.fit(X, **columns, missing=missing, **options)
