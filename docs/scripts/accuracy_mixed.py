"""Compare mixed models with the exact posterior and with what lme4 prints: the tables of mixed.rst.

    python docs/scripts/accuracy_mixed.py > docs/accuracy_mixed_table.inc

The truth is tests/golden/mixed.json: importance sampling around the posterior, effects of single rows integrated by
quadrature. Needs formulae and pandas.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas

import cavity
from cavity import data

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path.insert(0, str(TESTS))
from support import mixed  # noqa: E402

TITLES = {
    "cbpp": "cbpp, binomial",
    "contraception": "contraception, logit, ``(1 | district)``",
    "contraception, places": "``(1 | district:urban)``",
    "contraception, slopes": "``(urban | district)``",
    "grouseticks": "grouseticks, Poisson, three groups",
}
COLUMNS = "use ~ age + I(age**2) + I(livch != '0') + urban"
PRINTED = (  # data, formula, likelihood, where lme4 prints, standard deviations, fixed effects
    (
        *("cbpp", "p(incidence, size) ~ period + (1 | herd)", "binomial", "``?glmer``, Laplace"),
        *([0.6421], [-1.3983, -0.9919, -1.1282, -1.5797]),
    ),
    (
        *("cbpp", "p(incidence, size) ~ period + (1 | herd)", "binomial", "``?glmer``, 9 points of quadrature"),
        *([0.6475], [-1.3992, -0.9914, -1.1278, -1.5795]),
    ),
    (
        *("sleepstudy", "Reaction ~ Days + (Days | Subject)", "gaussian", "``?lmer``, REML"),
        *([24.741, 5.922], [251.405, 10.467]),
    ),
    (
        *("grouseticks", "TICKS ~ YEAR + HEIGHT + (1 | BROOD) + (1 | INDEX) + (1 | LOCATION)", "poisson"),
        *("``tests/elston.R``, Laplace", [0.750, 0.542, 0.529], [11.356, 1.180, -0.979, -0.0238]),
    ),
    (
        *("contraception", f"{COLUMNS} + (1 | district)", "logit", "lme4pureR's ``tests/Contraception.R``, Laplace"),
        *([0.474], [-1.006, 0.00626, -0.00464, 0.860, 0.693]),
    ),
    (
        *("contraception", f"{COLUMNS} + (1 | district:urban)", "logit", "the same"),
        *([0.572], [-1.033, 0.00586, -0.00453, 0.873, 0.767]),
    ),
)


def against_the_truth():
    """Yield rows of the first table."""
    golden = json.loads((TESTS / "golden" / "mixed.json").read_text())
    for name, title in TITLES.items():
        case, truth = mixed.GIVEN[name](), golden[name]["truth"]
        names = [term.name for term in case.terms]
        covariances = dict(zip(names, case.known["covariances"], strict=True))
        settings = {"prior_variance": case.known["fixed_variance"], "effect_covariances": covariances}
        model = cavity.MixedGLM(list(case.effects), case.likelihood, **settings)
        posterior = model.fit(pandas.DataFrame(case.X, columns=case.names), case.y, groups=case.groups)
        sd = np.array(truth["fixed_sd"])
        yield (
            title,
            f"{posterior.n_samples}; {sum(int(np.prod(term.shape)) for term in case.terms)}",
            f"{truth['log_evidence']:.3f} ± {truth['error']:.3f}",
            f"{posterior.log_evidence - truth['log_evidence']:+.3f}",
            f"{np.max(np.abs(posterior.mean - truth['fixed']) / sd):.3f}",
            f"{np.max(np.abs(posterior.sd / sd - 1)):.3f}",
            f"{100 * truth['effective']:.0f} %",
        )


def beside_lme4():
    """Yield rows of the second table."""
    for name, formula, likelihood, source, sds, fixed in PRINTED:
        posterior = cavity.MixedGLM(formula, likelihood).fit(data.table(name, as_frame=True)[0])
        covariances = posterior.model.effect_covariances
        result = np.concatenate([np.sqrt(np.diagonal(covariances[term])) for term in posterior.terms])
        yield f"{name}: {source}", "lme4", numbers(sds), numbers(fixed)
        yield f"``{formula.partition('~')[2].strip()}``", "`MixedGLM`", numbers(result), numbers(posterior.mean)


def numbers(values):
    """Some numbers as text."""
    return ", ".join(f"{value:.4g}" for value in values)


def table(title, header, rows):
    """Print a list table."""
    print(f".. list-table:: {title}\n   :header-rows: 1\n")
    for row in (header, *rows):
        for k, cell in enumerate(row):
            print(f"   {'* -' if k == 0 else '  -'} {cell}".rstrip())
    print()


if __name__ == "__main__":
    print(".. Written by docs/scripts/accuracy_mixed.py.\n")
    print(f"Measured with cavity {cavity.__version__}.\n")
    header = ("data", "rows; random effects", "log evidence", "error of EP's", "of a mean / sd", "of an sd / sd")
    table("EP against importance sampling, variances given", (*header, "draws that count"), against_the_truth())
    print(".. The second table.\n")
    header = ("data, source; formula", "", "sd of the random effects", "fixed effects")
    table("Variances learnt, beside what lme4 prints", header, beside_lme4())
