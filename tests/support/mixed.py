"""Cases of mixed models whose numbers are known, for the dense twin and the model."""

from dataclasses import dataclass, field

import numpy as np
from scipy import special

from cavity import data
from cavity.likelihoods import Binomial, Gaussian, Logit, Poisson
from cavity.models.mixed.terms import RandomEffects, make_terms

ALL = slice(None)


@dataclass
class Case:
    """Rows, effects, prior and what is known of the result."""

    X: np.ndarray
    names: tuple
    y: np.ndarray
    groups: dict
    effects: tuple
    likelihood: object
    formula: str
    known: dict = field(default_factory=dict)

    @property
    def terms(self):
        return make_terms(self.effects, self.X, self.names, self.groups)


def cbpp():
    """Cases of a lung disease, 15 herds; known: at prior N(0, 100) of the four fixed effects.

    The first numbers are for variance 0.4123 of the herds, then come the largest evidence and where that is.
    """
    columns, _ = data.table("cbpp")
    dummies = [columns["period"] == period for period in ("2", "3", "4")]
    X = np.column_stack([np.ones(56), *dummies]).astype(float)
    return Case(
        X,
        ("intercept", "period[2]", "period[3]", "period[4]"),
        np.column_stack([columns["incidence"], columns["size"]]),
        {"herd": columns["herd"]},
        (RandomEffects("herd"),),
        Binomial(),
        "p(incidence, size) ~ period + (1 | herd)",
        {
            "fixed_variance": np.full(4, 100.0),
            "variance": 0.4123,
            "covariances": [0.4123],
            "log_evidence": -106.06125909337922,
            "truth": (-106.030, 0.002),  # by importance sampling, with its standard error
            "fixed": [-1.40279595, -1.00902062, -1.15126113, -1.63483511],
            "fixed_sd": [0.22914776, 0.30733756, 0.32776433, 0.43016704],
            "best_variance": 0.4714921412,
            "best_log_evidence": -106.03242208541111,
        },
    )


def sleepstudy():
    """Reaction times of 18 people, intercept and slope correlated; known: REML and ML, whose optimum is a closed form.

    The residual sd is the same for both. lme4 prints the same numbers, to the digits that it prints.
    """
    columns, _ = data.table("sleepstudy")
    X = np.column_stack([np.ones(180), columns["Days"]])
    return Case(
        X,
        ("intercept", "Days"),
        columns["Reaction"],
        {"Subject": columns["Subject"]},
        (RandomEffects("Subject", "Days"),),
        Gaussian(),
        "Reaction ~ Days + (1 + Days | Subject)",
        {
            "reml": -871.814135979245,
            "sd": [24.74045146, 5.9221331],
            "correlation": 0.06555131965497,
            "residual_sd": 25.59181562672525,
            "ml": -875.9696722315989,
            "ml_sd": [23.780567, 5.71683454],
            "ml_correlation": 0.081320075361984,
            "fixed": [251.40510485, 10.46728596],
            "fixed_sd": [6.82455653, 1.5457889],
        },
    )


def contraception(kind="districts"):
    """Who uses contraceptives, with a logit link: districts, towns and country of each, or effects of towns.

    lme4 at maximum likelihood: sd 0.474 of districts, 0.572 of towns and country of districts.
    """
    columns, _ = data.table("contraception")
    age, urban = columns["age"], columns["urban"] == "Y"
    X = np.column_stack([np.ones(1934), age, age**2, columns["livch"] != "0", urban]).astype(float)
    effects, covariance = {
        "districts": (RandomEffects("district"), 0.225),
        "places": (RandomEffects(("district", "urban")), 0.327),
        "slopes": (RandomEffects("district", "urban[Y]"), covariance_of([0.62, 0.81], -0.79)),
    }[kind]
    return Case(
        X,
        ("intercept", "age", "I(age ** 2)", "I(livch != '0')", "urban[Y]"),
        (columns["use"] == "Y").astype(float),
        {name: columns[name] for name in ("district", "urban")},
        (effects,),
        Logit(),
        "use ~ age + I(age**2) + I(livch != '0') + urban + "
        + {"districts": "(1 | district)", "places": "(1 | district:urban)", "slopes": "(urban | district)"}[kind],
        {"fixed_variance": np.array([100.0, 1.0, 0.01, 100.0, 100.0]), "covariances": [covariance]},
    )


def grouseticks():
    """Ticks on chicks in broods at places, each chick with an effect of its own, which is one row a level."""
    columns, _ = data.table("grouseticks")
    years = [columns["YEAR"] == item for item in ("96", "97")]
    X = np.column_stack([np.ones(403), *years, columns["HEIGHT"] - columns["HEIGHT"].mean()]).astype(float)
    return Case(
        X,
        ("intercept", "YEAR[96]", "YEAR[97]", "center(HEIGHT)"),
        columns["TICKS"],
        {name: columns[name] for name in ("BROOD", "INDEX", "LOCATION")},
        tuple(map(RandomEffects, ("BROOD", "INDEX", "LOCATION"))),
        Poisson(),
        "TICKS ~ YEAR + center(HEIGHT) + (1 | BROOD) + (1 | INDEX) + (1 | LOCATION)",
        {"fixed_variance": np.array([100.0, 100.0, 100.0, 0.01]), "covariances": [0.5625, 0.2932, 0.2796]},
    )


GIVEN = {  # cases of golden/mixed.json
    "cbpp": cbpp,
    "contraception": contraception,
    "contraception, places": lambda: contraception("places"),
    "contraception, slopes": lambda: contraception("slopes"),
    "grouseticks": grouseticks,
}


def covariance_of(sd, correlation):
    """The covariance matrix of two effects."""
    return np.outer(sd, sd) * np.array([[1.0, correlation], [correlation, 1.0]])


# Likelihoods as functions of values f (n, any) of the rows i.


def binomial(y):
    """Of (successes, trials), with logit link."""
    k, n = (column[:, None] for column in np.asarray(y, dtype=float).T)
    constant = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return lambda f, i=ALL: constant[i] + k[i] * special.log_expit(f) + (n - k)[i] * special.log_expit(-f)


def poisson(y):
    """Of counts, with log link."""
    y = np.asarray(y, dtype=float)[:, None]
    return lambda f, i=ALL: y[i] * f - np.exp(f) - special.gammaln(y[i] + 1)


def probit(y):
    """Of 0 and 1."""
    sign = np.where(np.asarray(y) > 0, 1.0, -1.0)[:, None]
    return lambda f, i=ALL: special.log_ndtr(sign[i] * f)


def logit(y):
    """Of 0 and 1."""
    sign = np.where(np.asarray(y) > 0, 1.0, -1.0)[:, None]
    return lambda f, i=ALL: special.log_expit(sign[i] * f)


def gaussian(y, variance):
    """Of real numbers."""
    y = np.asarray(y, dtype=float)[:, None]
    return lambda f, i=ALL: -0.5 * (y[i] - f) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)


LOG_P = {"Binomial": binomial, "Poisson": poisson, "Probit": probit, "Logit": logit}


def integrated(log_p, variance, nodes=40):
    """The likelihood of f of one of f + e, e ~ N(0, variance): an effect of each row need not be drawn."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    shifts, log_w = np.sqrt(variance) * z, np.log(w / w.sum())

    def log_sum(f, i=ALL):
        return special.logsumexp([log_p(f + e, i) + c for e, c in zip(shifts, log_w, strict=True)], axis=0)

    return log_sum
