"""Count how often intervals of mixed models with few groups hold the truth: the table of integration.rst.

    python docs/scripts/coverage.py fit GROUPS [N]    # N data sets, by default 2,000; repeated, it goes on
    python docs/scripts/coverage.py lme4 GROUPS [N]   # the same by Rscript and lme4, from the last fit on
    python docs/scripts/coverage.py > docs/coverage_table.inc

Two crossed groups of GROUPS levels, logit, an intercept and a slope N(0, 1), standard deviations from PC(1): truths are
drawn from these priors, by a seed for each data set; those with all y equal are drawn again. There are three rows a
cell of 6 x 6, one of 12 x 12, and 400 of the cells of 40 x 40. Fits are plug-in and with integrate="grid"; intervals of
lme4 are those of Wald for fixed effects, and by profiles for the standard deviations of the first data sets. Results
are stored in build/coverage.
"""

import csv
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

import cavity
from cavity.priors import PC

STORE = Path(__file__).parents[2] / "build" / "coverage"
SIZES, N_DATASETS, N_NEW = (6, 12, 40), 2000, 5
N_PROFILES = {6: 100, 12: 100, 40: 36}  # data sets with profiles of lme4, which take minutes each for 40 groups
METHODS = {"plug-in": False, "integrated": "grid"}
PRIOR = PC(1.0)
LME4_COLUMNS = "set,b0,s0,b1,s1,la,ua,lb,ub,singular\n"
LME4 = """
suppressMessages(library(lme4)); paths <- commandArgs(TRUE)
d <- read.csv(paths[1]); out <- file(paths[2], "a"); profiles <- as.integer(paths[3])
for (s in unique(d$set)) {
  e <- d[d$set == s,]; e$a <- factor(e$a); e$b <- factor(e$b)
  quiet <- function(x) suppressMessages(suppressWarnings(x))
  m <- tryCatch(quiet(glmer(y ~ x + (1|a) + (1|b), e, family=binomial)), error=function(x) NULL)
  if (is.null(m)) next
  co <- summary(m)$coefficients; ci <- matrix(NA, 2, 2)
  if (s < profiles) ci <- tryCatch(quiet(confint(m, parm="theta_", quiet=TRUE)), error=function(x) ci)
  cat(s, co[1,1], co[1,2], co[2,1], co[2,2], ci[1,1], ci[1,2], ci[2,1], ci[2,2], isSingular(m), sep=",", file=out)
  cat("\\n", file=out); flush(out)
}
"""


def simulate(size, number):
    """Return (truths, X, y, groups, new rows) of a data set."""
    rng = np.random.default_rng([size, number])
    while True:
        sds, beta = rng.exponential(1.0 / PRIOR.rate, 2), rng.normal(size=2)
        cells = np.repeat(np.arange(size * size), 3 if size == 6 else 1)
        if size == 40:
            cells = np.sort(rng.choice(cells, 400, replace=False))
        a, b = cells // size, cells % size
        X = np.column_stack([np.ones(len(a)), rng.normal(size=len(a))])
        ua, ub = sds[:, None] * rng.normal(size=(2, size))
        y = (rng.random(len(a)) < 1.0 / (1.0 + np.exp(-(X @ beta + ua[a] + ub[b])))).astype(int)
        if 0 < y.sum() < len(y):
            break
    new_a, new_b = rng.choice(np.unique(a), N_NEW), rng.choice(np.unique(b), N_NEW)
    new_X = np.column_stack([np.ones(N_NEW), rng.normal(size=N_NEW)])
    f = new_X @ beta + ua[new_a] + ub[new_b]
    return (
        {"sds": sds, "beta": beta, "a": ua, "b": ub, "f": f},
        X,
        y,
        {"a": a, "b": b},
        (new_X, {"a": new_a, "b": new_b}),
    )


def hold(ends, truth):
    """Whether intervals (n, 2) hold truths (n,), a list; those without ends hold nothing."""
    return ((ends[:, 0] < truth) & (truth < ends[:, 1])).tolist()


def fit(size, number):
    """Return what intervals of a data set hold, by method and kind."""
    truths, X, y, groups, new = simulate(size, number)
    result = {}
    for name, setting in METHODS.items():
        model = cavity.MixedGLM(["a", "b"], "logit", prior_variance=1.0, priors={"sd": PRIOR}, integrate=setting)
        posterior = model.fit(X, y, groups=groups)
        is_integrated = posterior.integration is not None and len(posterior.integration.names) == 2
        table = posterior.integration.table() if is_integrated else posterior.variance_components()
        mean, variance = posterior.predict(posterior.rows(*new))
        ends = mean[:, None] + 1.959964 * np.sqrt(variance)[:, None] * [-1.0, 1.0]
        holds = {"sds": hold(np.column_stack([table.columns[key] for key in ("2.5%", "97.5%")]), truths["sds"])}
        holds |= {"beta": hold(posterior.interval(), truths["beta"]), "f": hold(ends, truths["f"]), "levels": []}
        for group in "ab":
            effects = posterior.effects(group)
            ends = np.column_stack([effects.columns[key] for key in ("2.5%", "97.5%")])
            holds["levels"] += hold(ends, truths[group][np.array(effects.names, dtype=int)])
        result[name] = holds | {"is_integrated": is_integrated}
    return result


def fit_all(size, count):
    """Append the results of data sets that are not in the store."""
    STORE.mkdir(parents=True, exist_ok=True)
    path = STORE / f"{size}.jsonl"
    first = len(path.read_text().splitlines()) if path.exists() else 0
    with path.open("a") as out:
        for number in range(first, count):
            out.write(json.dumps(fit(size, number)) + "\n")
            out.flush()


def fit_lme4(size, count):
    """Write the data sets after the last one of the store and let R fit them."""
    STORE.mkdir(parents=True, exist_ok=True)
    data, script, path = STORE / f"{size}_data.csv", STORE / "lme4.R", STORE / f"{size}_lme4.csv"
    script.write_text(LME4)
    if not path.exists():
        path.write_text(LME4_COLUMNS)
    last = path.read_text().splitlines()[-1].partition(",")[0]
    with data.open("w") as out:
        out.write("set,a,b,x,y\n")
        for number in range(int(last) + 1 if last.isdecimal() else 0, count):
            _, X, y, groups, _ = simulate(size, number)
            for row in zip(groups["a"], groups["b"], X[:, 1], y, strict=True):
                out.write(",".join(map(str, (number, *row))) + "\n")
    subprocess.run(["Rscript", script, data, path, str(N_PROFILES[size])], check=True)


def count_lme4(size):
    """Return what lme4's intervals hold, by kind, and how many fits are singular."""
    holds, singular = {"sds": [], "beta": []}, []
    with (STORE / f"{size}_lme4.csv").open() as lines:
        for row in csv.DictReader(lines):
            if None in row.values():
                continue  # a line that is being written
            truths, text = simulate(size, int(row["set"]))[0], {key: row[key].replace("NA", "nan") for key in row}
            value = {key: float(text[key]) for key in text if key != "singular"}
            ends = [[value[f"b{j}"] + side * 1.959964 * value[f"s{j}"] for side in (-1, 1)] for j in (0, 1)]
            holds["beta"].append(hold(np.array(ends), truths["beta"]))
            ends = np.array([[value["la"], value["ua"]], [value["lb"], value["ub"]]])
            has = np.isfinite(ends).all(axis=1)
            holds["sds"].append(hold(ends[has], truths["sds"][has]))
            singular.append(row["singular"] == "TRUE")
    return holds, singular


def format_share(holds):
    """A share in per cent with its standard error, from lists of the data sets: numbers of one depend on each other."""
    hits, counts = np.array([[sum(of_set), len(of_set)] for of_set in holds]).T
    share = np.sum(hits) / np.sum(counts)
    return f"{100 * share:.1f} ({100 * np.sqrt(np.sum((hits - share * counts) ** 2)) / np.sum(counts):.1f})"


def main():
    """Print the table."""
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(".. list-table::\n   :header-rows: 1\n")
    kinds = {"sds": "standard deviations", "beta": "fixed effects", "f": "f of rows", "levels": "effects of levels"}
    cells = [["groups", "data sets", "of", *METHODS, "lme4"]]
    for size in SIZES:
        rows = [json.loads(line) for line in (STORE / f"{size}.jsonl").read_text().splitlines()]
        holds, singular = count_lme4(size)
        for kind, words in kinds.items():
            shares = [format_share([row[name][kind] for row in rows]) for name in METHODS]
            theirs = format_share(holds[kind]) if kind in holds else ""
            notes = {
                "sds": f", {sum(map(len, holds['sds']))} intervals",
                "beta": f", {len(singular):,} fits, {np.mean(singular):.0%} singular",
            }
            theirs += notes.get(kind, "")
            cells.append([str(size), f"{len(rows):,}", words, *shares, theirs])
    for row in cells:
        print("\n".join(f"   {'* -' if number == 0 else '  -'} {cell}".rstrip() for number, cell in enumerate(row)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if len(sys.argv) == 1:
        main()
    else:
        run = {"fit": fit_all, "lme4": fit_lme4}[sys.argv[1]]
        run(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else N_DATASETS)
