"""Posteriors as JSON has them: how a fit ended, what it is worth, and the table of its summary."""

from dataclasses import fields, is_dataclass

import numpy as np

SAID = ("converged", "status", "n_iter", "log_evidence", "elbo", "log_bound", "n_samples", "n_inducing", "columns")
SAID += ("classes", "roles", "weights", "counts", "mean", "variance", "noise_variance", "prior_variance")


def described(posterior):
    """Return what a posterior says of itself, as JSON has it; numbers that are not finite are null."""
    found = {"posterior": type(posterior).__name__, "settings": plain(settings_of(posterior))}
    found |= {name: plain(getattr(posterior, name)) for name in SAID if getattr(posterior, name, None) is not None}
    if hasattr(posterior, "summary"):
        found["summary"] = as_table(posterior.summary())
    return found


def as_table(table):
    """Return a Table as JSON has it, and the one below it."""
    columns = {name: plain(values) for name, values in table.columns.items()}
    known = {"title": table.title, "rows": list(table.names), "columns": columns, "notes": list(table.notes)}
    return known if table.below is None else known | {"below": as_table(table.below)}


def settings_of(posterior):
    """Return the settings of the model of a posterior, by their names."""
    model = getattr(posterior, "model", None)
    return {field.name: getattr(model, field.name) for field in fields(model)} if is_dataclass(model) else {}


def plain(value):
    """Return a value as JSON has it: what is nothing JSON knows by its repr."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else repr(value)
