"""Cases of mixed models whose numbers are known, for the dense twin and the model."""

from dataclasses import dataclass, field

import numpy as np
from scipy import special

from cavity import data
from cavity.likelihoods import Binomial, Gaussian, Logit, Poisson
from cavity.models.mixed.terms import RandomEffects, terms_of


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
        return terms_of(self.effects, self.X, self.names, self.groups)


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
            "fixed_variance": 100.0,
            "variance": 0.4123,
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


def contraception(slopes=False):
    """Who uses contraceptives in 60 districts, with a logit link; of towns there may be an effect by district."""
    columns, _ = data.table("contraception")
    children = [columns["livch"] == each for each in ("1", "2", "3+")]
    X = np.column_stack([np.ones(1934), columns["urban"] == "Y", columns["age"], *children]).astype(float)
    covariance = covariance_of([0.62, 0.81], -0.79) if slopes else np.array([[0.2124]])
    return Case(
        X,
        ("intercept", "urban[Y]", "age", "livch[1]", "livch[2]", "livch[3+]"),
        (columns["use"] == "Y").astype(float),
        {"district": columns["district"]},
        (RandomEffects("district", "urban[Y]" if slopes else ()),),
        Logit(),
        f"use ~ urban + age + livch + ({'urban' if slopes else '1'} | district)",
        {"fixed_variance": np.full(6, 100.0), "covariances": [covariance]},
    )


def grouseticks():
    """Ticks on chicks in broods at places, each chick with an effect of its own, which is one row a level."""
    columns, _ = data.table("grouseticks")
    years = [columns["YEAR"] == each for each in ("96", "97")]
    X = np.column_stack([np.ones(403), *years, columns["HEIGHT"] - columns["HEIGHT"].mean()]).astype(float)
    return Case(
        X,
        ("intercept", "YEAR[96]", "YEAR[97]", "center(HEIGHT)"),
        columns["TICKS"],
        {name: columns[name] for name in ("BROOD", "INDEX", "LOCATION")},
        tuple(map(RandomEffects, ("BROOD", "INDEX", "LOCATION"))),
        Poisson(),
        "TICKS ~ YEAR + center(HEIGHT) + (1 | BROOD) + (1 | INDEX) + (1 | LOCATION)",
        {"fixed_variance": np.full(4, 100.0), "covariances": [0.5625, 0.2932, 0.2796]},
    )


GIVEN = {  # cases of golden/mixed.json
    "contraception": contraception,
    "contraception, slopes": lambda: contraception(slopes=True),
    "grouseticks": grouseticks,
}


def covariance_of(sd, correlation):
    """The covariance matrix of two effects."""
    return np.outer(sd, sd) * np.array([[1.0, correlation], [correlation, 1.0]])


def binomial(y):
    """log p of (successes, trials) with logit link as a function of f (N, n)."""
    k, n = (column[:, None] for column in np.asarray(y, dtype=float).T)
    constant = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return lambda f: constant + k * special.log_expit(f) + (n - k) * special.log_expit(-f)


def poisson(y):
    """log p of counts with log link as a function of f (N, n)."""
    y = np.asarray(y, dtype=float)[:, None]
    return lambda f: y * f - np.exp(f) - special.gammaln(y + 1)


def probit(y):
    """log p of 0 and 1 as a function of f (N, n)."""
    sign = np.where(np.asarray(y) > 0, 1.0, -1.0)[:, None]
    return lambda f: special.log_ndtr(sign * f)


def logit(y):
    """log p of 0 and 1 with logit link as a function of f (N, n)."""
    sign = np.where(np.asarray(y) > 0, 1.0, -1.0)[:, None]
    return lambda f: special.log_expit(sign * f)


def gaussian(y, variance):
    """log p of real numbers as a function of f (N, n)."""
    y = np.asarray(y, dtype=float)[:, None]
    return lambda f: -0.5 * (y - f) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)


LOG_P = {"Binomial": binomial, "Poisson": poisson, "Probit": probit, "Logit": logit}
