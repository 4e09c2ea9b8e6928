"""Priors of hyperparameters, by names: of one, of those of a term, of all of a kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.records import Made, Setting
from cavity.base.scales import FISHER_Z_SCALE, LOG_SCALE, LOGIT_SCALE, REAL_SCALE, SCALES_BY_NAME
from cavity.priors.densities import check_prior, evaluate_log_density, find_scale
from cavity.priors.saved import from_settings, to_settings
from cavity.priors.shares import Beta

AVOID_ZERO_PRIOR = "avoid-zero"
FLAT_SHARE_PRIOR = Beta(1.0, 1.0)
SCALE_DESCRIPTIONS = {
    LOG_SCALE: "a positive parameter",
    LOGIT_SCALE: "a share",
    FISHER_Z_SCALE: "a correlation",
    None: "another parameter",
}
SCALES_OF_DOMAINS = {"scale": LOG_SCALE, "positive": LOG_SCALE, "share": LOGIT_SCALE}  # of parameters of likelihoods


class PriorTarget(NamedTuple):
    """What a prior may be of: a hyperparameter."""

    name: str  # "sd(s(x))", "dispersion"
    part: str  # its name within the term: "sd", "sd(start)"
    scale: str | None  # of its free number
    term: str | None = None

    @property
    def kind(self):
        """The name before the first bracket: "sd", "rho", "thresholds"."""
        return self.name.partition("(")[0].partition("[")[0]


def find_likelihood_scale(name, likelihood):
    """Return the scale of the free number of a parameter of a likelihood, or of one of its values, or None."""
    return SCALES_OF_DOMAINS.get(likelihood.parameters[name.partition("[")[0]])


def _make_likelihood_target(name, likelihood):
    """Return a parameter of a likelihood, or one of its values, as priors may be of it."""
    return PriorTarget(name, name, find_likelihood_scale(name, likelihood))


def check_priors(priors):
    """Return priors by names, checked, or the word for those that keep away from zero, or None."""
    if priors is None or (isinstance(priors, str) and priors == AVOID_ZERO_PRIOR):
        return priors
    if not isinstance(priors, Mapping):
        message = (
            f"must be a dict of priors by names of terms or hyperparameters, or {AVOID_ZERO_PRIOR!r}, got {priors!r}"
        )
        raise error_of("priors", message, TypeError)
    checked_priors = {}
    for key, value in priors.items():
        if isinstance(value, Mapping):
            parts = {part: check_prior(prior, f"priors[{key!r}][{part!r}]") for part, prior in value.items()}
            checked_priors[str(key)] = parts
        else:
            checked_priors[str(key)] = check_prior(value, f"priors[{key!r}]")
    return checked_priors


def match_priors(priors, likelihood, targets, labels=()):
    """Return the prior of each hyperparameter that has one, and its scale, by its name.

    Of keys for the same one that of its name counts before that of its term, and that before the one of its kind.

    Parameters
    ----------
    priors : dict, "avoid-zero" or None
        As `check_priors` returns it.
    likelihood : Likelihood
        Its parameters are hyperparameters, too.
    targets : sequence of PriorTarget
        All others, whether they are learnt or not.
    labels : sequence of str, optional
        Names of values of parameters of the likelihood with several, as "thresholds[0]".

    Raises
    ------
    ValueError
        For a key that belongs to none of them, or a prior of parameters of another kind.
    """
    if priors == AVOID_ZERO_PRIOR and not any(target.term for target in targets):
        message = f"must be a dict where there are no groups and no structured terms, got {AVOID_ZERO_PRIOR!r}"
        raise error_of("priors", message)
    if not priors or priors == AVOID_ZERO_PRIOR:
        return {}
    names = dict.fromkeys([*likelihood.parameters, *labels])
    targets = [*targets, *(_make_likelihood_target(name, likelihood) for name in names)]
    _check_keys(priors, targets)
    assigned = {}
    for target in targets:
        for key in (target.name, target.term, target.kind):
            prior = priors.get(key)
            if isinstance(prior, Mapping):
                prior = prior.get(target.part)
            elif prior is not None and key == target.term and not _is_of_term(prior, target):
                prior = None
            if prior is None:
                continue
            if find_scale(prior) not in (None, target.scale):
                one, other = SCALE_DESCRIPTIONS[target.scale], SCALE_DESCRIPTIONS[find_scale(prior)]
                raise error_of("priors", f"must have for {target.name} a prior of {one}, got one of {other}: {prior!r}")
            assigned[target.name] = prior, target.scale
            break
    return assigned


def _is_of_term(prior, target):
    """Whether the prior of a term is one of a hyperparameter of its: of its standard deviations, not of lengths."""
    is_length = target.scale == LOG_SCALE and target.kind != "sd"
    return find_scale(prior) in (None, target.scale) and not is_length


def _check_keys(priors, targets):
    """Raise ValueError for keys that are not those of a hyperparameter."""
    keys = {key for target in targets for key in (target.name, target.term, target.kind) if key is not None}
    unknown = next((key for key in priors if key not in keys), None)
    if unknown is not None:
        names = ", ".join(sorted(map(repr, keys))) or "none"
        raise error_of("priors", f"must be of hyperparameters or terms, which are {names}, got {unknown!r}")
    for key, value in priors.items():
        parts = {target.part for target in targets if key in (target.name, target.term, target.kind)}
        wrong = [part for part in value if part not in parts] if isinstance(value, Mapping) else []
        if wrong:
            names = ", ".join(sorted(map(repr, parts)))
            raise error_of(f"priors[{key!r}]", f"must be of the parameters {names}, got {wrong[0]!r}")


def evaluate_log_prior(assigned, names, values, jacobian):
    """Return the log density of free numbers under priors of values, and its derivatives in the numbers of a search.

    The free number of a value is its log, logit, or log((1 + x)/(1 - x)), by the scale of the parameter; the density is
    that of the value times the derivative of the value in the free number.

    Parameters
    ----------
    assigned : dict
        Priors and scales by names, as `match_priors` returns them.
    names : sequence of str, n of them
        Those of the values.
    values : sequence of float (n,)
        Where the density is evaluated.
    jacobian : ndarray (n, n)
        Derivatives of the values in the numbers of the search.
    """
    total, slopes = 0.0, np.zeros(len(jacobian))
    for name, value, row in zip(names, values, jacobian, strict=True):
        if name in assigned:
            prior, scale = assigned[name]
            density, slope = evaluate_log_density(prior, value)
            log_derivative, its_slope, by_value = SCALES_BY_NAME[scale or REAL_SCALE].volume(value)
            total += float(density) + log_derivative
            slopes += (float(slope) + its_slope) * by_value * row
    return total, slopes


def find_log_volume(targets, names, values, jacobian):
    """Return log |det du/dx| of the free numbers u of some values in the numbers x of a search.

    Parameters
    ----------
    targets : dict
        Scales by names, in the order of the rows and columns that count.
    names, values, jacobian
        As for `evaluate_log_prior`.
    """
    index = [names.index(name) for name in targets]
    if not index:
        return 0.0
    scales = [SCALES_BY_NAME[scale or REAL_SCALE] for scale in targets.values()]
    scaled = [scale.volume(values[i])[2] for i, scale in zip(index, scales, strict=True)]
    return float(np.linalg.slogdet(np.array(scaled)[:, None] * jacobian[np.ix_(index, index)])[1])


def _make_priors(settings):
    """Return the priors that a file has, see `_describe_priors`; earlier versions have a word for flat ones."""
    if isinstance(settings, str):
        return settings if settings == AVOID_ZERO_PRIOR else None
    return {
        key: from_settings(value) if "kind" in value else {part: from_settings(prior) for part, prior in value.items()}
        for key, value in settings.items()
    }


def _describe_priors(priors):
    """Return priors as JSON has them; TypeError for one of the user's own."""
    if isinstance(priors, str):
        return priors
    return {
        key: {part: to_settings(prior, f"priors[{key!r}][{part!r}]") for part, prior in value.items()}
        if isinstance(value, Mapping)
        else to_settings(value, f"priors[{key!r}]")
        for key, value in priors.items()
    }


def _are_priors(value):
    if isinstance(value, dict):
        return all(isinstance(part, dict) for part in value.values())
    return value in (AVOID_ZERO_PRIOR, "flat")


PRIORS_SETTING = Made(
    _make_priors, Setting(f"an object of objects, or {AVOID_ZERO_PRIOR!r}", _are_priors), _describe_priors
)
