"""Hyperparameters that a fit has found beside the posterior: they maximise the log evidence; standard errors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from cavity.base.public_objects import Public
from cavity.base.records import ANY_TEXT, FINITE_REAL, REAL_LISTS, Made, Setting, names
from cavity.base.results import format_table
from cavity.base.summary import tabulate_estimates

NO_ERRORS_NOTE = "no standard errors of fits of many responses"
SCALES_OF_TERMS = {"corr": "Fisher z", "rho": "Fisher z", "alpha": "Fisher z", "phi": "logit", "lam": "logit"}


@dataclass(frozen=True, slots=True, repr=False)
class Hyperparameters(Public):
    """Parameters that a fit has found by maximising the log evidence, and the log density of priors if there are any.

    Parameters
    ----------
    names : tuple of str
        What was learnt: parameters of the likelihood by their names, "prior_variance" (numbered, where there are
        several), or "prior_variance factor" for a factor on variances that differ.
    values : tuple of float
        Their values.
    sd : tuple of (float or None)
        Standard errors, from the curvature of the log evidence; None where there is none.
    note : str
        Why there is none, or "".
    log_prior : float, default 0.0
        Log density of the priors at these values, which was maximised together with the log evidence: that of logs of
        positive parameters, logits of shares, and log((1 + r)/(1 - r)) of correlations r.
    """

    names: tuple[str, ...]
    values: tuple[Any, ...]
    sd: tuple[Any, ...]
    note: str = ""
    log_prior: float = 0.0

    def __repr__(self) -> str:
        rows = [
            (name, f"{value:.6g}" + ("" if sd is None else f" (sd {sd:.2g})"))
            for name, value, sd in zip(self.names, self.values, self.sd, strict=True)
        ]
        rows += [("log_prior", f"{self.log_prior:.6g}")] if self.log_prior else []
        return format_table("Hyperparameters", [*rows, *([("note", self.note)] if self.note else [])])


def format_hyperparameters_table(hyperparameters, likelihood, level, classes=None):
    """Return the table of `Hyperparameters`, with intervals of probability `level`; None where there are none."""
    if hyperparameters is None:
        return None
    names, notes = hyperparameters.names, (hyperparameters.note,) if hyperparameters.note else ()
    columns = (label_thresholds(names, classes), hyperparameters.values, hyperparameters.sd, notes)
    scales = [choose_scale(name, likelihood) for name in names]
    return tabulate_estimates("Hyperparameters, with standard errors", *columns, scales=scales, level=level)


def label_thresholds(names, classes):
    """Return names of parameters in which thresholds are called by the classes below and above, as ``Low|Medium``."""
    between = [f"{low}|{high}" for low, high in pairwise(classes or ())]
    labels = {f"thresholds[{k}]": label for k, label in enumerate(between)}
    return [labels.get(name, name) for name in names]


def choose_scale(name, likelihood):
    """Return the scale, of `summary.NORMAL_SCALES`, on which the estimate of what has a name is about normal."""
    domain = likelihood.parameters.get(name.partition("[")[0], "positive")
    by_domain = {"share": "logit", "real": "as it is", "increasing": "as it is"}
    kind, bracket, _ = name.partition("(")
    return SCALES_OF_TERMS.get(kind if bracket else "") or by_domain.get(domain, "log")


def _are_errors(value):
    return isinstance(value, list | tuple) and all(error is None or REAL_LISTS.test(error) for error in value)


def _make_hyperparameters(settings):
    labels, values, errors = settings["names"], settings["values"], settings["sd"]
    if not isinstance(values, list | tuple) or not len(labels) == len(values) == len(errors):
        raise ValueError("names, values and sd must be as many")
    log_prior = settings.get("log_prior", 0.0)
    return Hyperparameters(labels, tuple(map(float, values)), tuple(errors), settings["note"], log_prior)


def _describe_hyperparameters(hyperparameters):
    return {name: value for name, value in asdict(hyperparameters).items() if name != "log_prior" or value}


ERRORS_SETTING = Setting("a list of numbers and nulls", _are_errors)
HYPERPARAMETERS_SETTING = Made(
    _make_hyperparameters,
    {"names": names(), "values": REAL_LISTS, "sd": ERRORS_SETTING, "note": ANY_TEXT, "log_prior?": FINITE_REAL},
    _describe_hyperparameters,
)
