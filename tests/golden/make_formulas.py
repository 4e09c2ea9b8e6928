"""Write formulas.json: coefficients and errors that statsmodels has by formula on the data sets of the package.

Needs statsmodels: ``python tests/golden/make_formulas.py``.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels
import statsmodels.api as sm
import statsmodels.formula.api as smf

DATA = Path(__file__).parents[2] / "src" / "cavity" / "data"
FAMILIES = {
    "gaussian": sm.families.Gaussian(),
    "logit": sm.families.Binomial(),
    "probit": sm.families.Binomial(sm.families.links.Probit()),
    "poisson": sm.families.Poisson(),
}
MODELS = [  # data set, formula of cavity, formula of statsmodels where it differs, likelihood
    ("faithful", "eruptions ~ waiting", None, "gaussian"),
    ("sleepstudy", "Reaction ~ Days + C(Subject)", None, "gaussian"),
    ("motorcycle", "acceleration ~ time + I(time**2) + I(time**3)", None, "gaussian"),
    ("co2", "log(co2) ~ I(year - 1980)", "np.log(co2) ~ I(year - 1980)", "gaussian"),
    ("pima", "type ~ glu + bmi + ped + age", "I((type == 'Yes') * 1.0) ~ glu + bmi + ped + age", "logit"),
    ("pima", "type ~ glu * set + npreg", "I((type == 'Yes') * 1.0) ~ glu * set + npreg", "probit"),
    (
        "contraception",
        "use ~ age + I(age**2) + urban * livch",
        "I((use == 'Y') * 1.0) ~ age + I(age**2) + urban * livch",
        "logit",
    ),
    ("grouseticks", "TICKS ~ YEAR + I(HEIGHT / 100)", None, "poisson"),
    (
        "grouseticks",
        "TICKS ~ YEAR : I(HEIGHT / 100) + offset(log(HEIGHT))",
        "TICKS ~ YEAR : I(HEIGHT / 100)",
        "poisson",
    ),
    ("cbpp", "p(incidence, size) ~ period", "incidence + I(size - incidence) ~ period", "logit"),
]


def fit(name, formula, likelihood):
    """Return the fit of statsmodels."""
    table = pd.read_csv(DATA / f"{name}.csv", dtype={"period": str, "YEAR": str}, comment="#")
    offset = np.log(table["HEIGHT"]) if ":" in formula else None
    return smf.glm(formula, table, family=FAMILIES[likelihood], offset=offset).fit()


def main():
    models = []
    for name, formula, other, likelihood in MODELS:
        result = fit(name, other or formula, likelihood)
        names = [term.replace("T.", "").replace("C(Subject)", "Subject") for term in result.params.index]
        models.append(
            {
                "data": name,
                "formula": formula,
                "likelihood": "binomial" if name == "cbpp" else likelihood,
                "names": ["intercept" if term == "Intercept" else term for term in names],
                "coefficients": result.params.tolist(),
                "standard_errors": result.bse.tolist(),
            }
        )
    text = json.dumps({"source": f"statsmodels {statsmodels.__version__}", "models": models}, indent=1)
    (Path(__file__).parent / "formulas.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
