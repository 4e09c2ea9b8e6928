"""Likelihoods in files: names and parameters."""

from dataclasses import fields, is_dataclass

from cavity import likelihoods
from cavity.base import records
from cavity.base.records import ANY_TEXT, JSON_OBJECT, REAL_LISTS, Made, Nullable
from cavity.likelihoods.parameters import check_closed

HOW_TO_SAVE = (
    "save dataclasses.replace(posterior, model=dataclasses.replace(posterior.model, likelihood=Gaussian())), and put "
    "yours in its place in the same way after loading; its parameters are those of posterior.model.likelihood"
)


def _make_likelihood(settings):
    """Return the likelihood that `likelihood_settings` took apart."""
    name, parameters = settings
    kind = getattr(likelihoods, name, None)
    if not (isinstance(kind, type) and issubclass(kind, likelihoods.Likelihood) and is_dataclass(kind)):
        raise ValueError(f"there is no likelihood {name!r}")
    settings_of_fields = {f.name: ANY_TEXT if f.type in (str, "str") else REAL_LISTS for f in fields(kind)}
    forms = {name: Nullable(form) if name in kind.parameters else form for name, form in settings_of_fields.items()}
    return kind(**records.check_settings(forms, parameters))


def _make_closed_likelihood(settings):
    """Return a likelihood of a name and its parameters, none of them open."""
    likelihood = _make_likelihood(settings)
    check_closed(likelihood)
    return likelihood


def take_likelihood_apart(likelihood):
    """Return a likelihood as JSON has it, its name and parameters; TypeError for one of the user's own."""
    name = type(likelihood).__name__
    if getattr(likelihoods, name, None) is not type(likelihood):
        raise TypeError(f"only models with a likelihood of cavity.likelihoods can be saved, not {name}: {HOW_TO_SAVE}")
    return [name, {f.name: getattr(likelihood, f.name) for f in fields(likelihood)}]


LIKELIHOOD_SETTING = Made(_make_closed_likelihood, [ANY_TEXT, JSON_OBJECT], take_likelihood_apart)
OPEN_LIKELIHOOD_SETTING = Made(_make_likelihood, [ANY_TEXT, JSON_OBJECT], take_likelihood_apart)
