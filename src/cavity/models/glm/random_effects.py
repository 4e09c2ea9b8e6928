"""Formulas of a GLM that have random effects: fitted as a mixed model."""

from functools import partial

from cavity.base import arrays
from cavity.models.many.posterior import POSTERIOR_MAKERS

MIXED_SETTINGS = (  # that mean the same in both models
    *("likelihood", "prior_mean", "prior_variance", "centre", "priors", "graphs", "integrate", "bins"),
)


def _load_mixed():
    from cavity.models.mixed.model import MixedGLM  # takes a while to load

    return MixedGLM


def fit_mixed(model, X, columns, missing, options, method, learn, prior_groups):
    """Return the posterior of the `MixedGLM` of a formula; `options` are those of the iteration and of the run.

    Raises
    ------
    ValueError
        Naming a setting or an option that a mixed model does not have.
    """
    without = {"approximation": model.approximation != "full", "standardize": model.standardize}
    without |= {"intercept": model.intercept is not None, "method": method != "ep", "learn": learn not in (None, False)}
    without |= {"schedule": options["schedule"] != "parallel", "prior_groups": prior_groups is not None}
    for name, is_given in without.items():
        if is_given:
            message = "has no meaning for a formula with random effects, which is fitted as MixedGLM; leave it out"
            raise arrays.error_of(name, message)
    options = {name: value for name, value in options.items() if name != "schedule"}
    mixed = _load_mixed()(model.formula, **{name: getattr(model, name) for name in MIXED_SETTINGS})
    return mixed.fit(X, **columns, missing=missing, **options)


def _call_maker(i, *arguments):
    """Call an entry of `POSTERIOR_MAKERS` of mixed models, which are there when they are loaded."""
    _load_mixed()
    return POSTERIOR_MAKERS["mixed"][i](*arguments)


POSTERIOR_MAKERS.setdefault("mixed", (partial(_call_maker, 0), partial(_call_maker, 1)))
