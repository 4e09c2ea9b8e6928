"""Priors in files: kinds and parameters."""

from dataclasses import fields

from cavity import priors


def to_settings(prior, name):
    """Return a prior as a JSON-able dictionary."""
    kind = type(prior)
    if getattr(priors, kind.__name__, None) is not kind:
        raise TypeError(f"{name} is a prior of your own ({kind.__name__}), which cannot be saved")
    return {"kind": kind.__name__} | {field.name: getattr(prior, field.name) for field in fields(kind)}


def from_settings(settings):
    """Return the prior that `to_settings` took apart."""
    rest = dict(settings)
    kind = rest.pop("kind", None)
    if kind not in priors.__all__:
        raise ValueError(f"a prior must be one of {', '.join(priors.__all__)}, got {kind!r}")
    return getattr(priors, kind)(**rest)
