"""Compare posteriors with the reference draws of posteriordb, and print the table of integration.rst.

    git clone https://github.com/stan-dev/posteriordb
    python docs/scripts/posteriordb.py posteriordb > docs/posteriordb_table.inc

The references are 10,000 nearly independent draws by Stan of each posterior, whose own error is .010 standard
deviations of a mean, .7 % of a standard deviation and .027 standard deviations of a quantile. Models with a flat prior
of coefficients get a normal one of a thousand times their scale.
"""

import io
import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

import cavity
from cavity.base.scales import LOG_SCALE
from cavity.priors import Gamma

FOLDER, PROBABILITIES = "posterior_database", [0.025, 0.975]
WIDE = 1e3  # sds of y, by the size of a column
KIDIQ = ("momhs", "momiq", "momhsiq", "interaction")
CENTRED = ("interaction_c", "interaction_c2", "interaction_z", "mom_work")
EARNINGS = ("earn_height", "log10earn_height", "logearn_height", "logearn_height_male", "logearn_interaction")
EARNINGS += ("logearn_interaction_z", "logearn_logheight_male")
MESQUITE = ("mesquite", "logmesquite", "logmesquite_logva", "logmesquite_logvas", "logmesquite_logvash")
MESQUITE += ("logmesquite_logvolume",)
YEARS = range(1972, 2001, 4)


@dataclass(frozen=True)
class PriorOfScale:
    """The prior of a variance v whose root s has the density exp(-s^2/(2 normal^2))/(1 + s^2/cauchy^2)."""

    normal: float = np.inf
    cauchy: float = np.inf
    scale: ClassVar[str] = LOG_SCALE

    def log_density(self, value):
        """The log density, but for a constant."""
        return -0.5 * value / self.normal**2 - np.log1p(value / self.cauchy**2) - 0.5 * np.log(value)

    def slope(self, value):
        """Its derivative in log v."""
        share = value / self.cauchy**2
        return -0.5 * value / self.normal**2 - share / (1.0 + share) - 0.5


@dataclass(frozen=True)
class PriorOfDeviation:
    """A half-Cauchy prior of a standard deviation."""

    size: float
    scale: ClassVar[str] = LOG_SCALE

    def log_density(self, value):
        """The log density, but for a constant."""
        return -np.log1p((value / self.size) ** 2)

    def slope(self, value):
        """Its derivative in the log of the standard deviation."""
        return -2.0 * value**2 / (self.size**2 + value**2)


def read(root, path):
    """Return the JSON of a zipped file of a clone."""
    blob = subprocess.run(
        ["git", "-C", root, "show", f"HEAD:{FOLDER}/{path}.json.zip"], capture_output=True, check=True
    )
    with zipfile.ZipFile(io.BytesIO(blob.stdout)) as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def make_kidiq(model, data):
    """Columns and y of a model of test scores of children."""
    hs, iq = np.array(data["mom_hs"], float), np.array(data["mom_iq"], float)
    if model.endswith("_c"):
        hs, iq = hs - hs.mean(), iq - iq.mean()
    elif model.endswith("_c2"):
        hs, iq = hs - 0.5, iq - 100.0
    elif model.endswith("_z"):
        hs, iq = ((x - x.mean()) / (2.0 * x.std(ddof=1)) for x in (hs, iq))
    columns = {"momhs": [hs], "momiq": [iq], "momhsiq": [hs, iq]}.get(model, [hs, iq, hs * iq])
    if model == "mom_work":
        columns = [np.array(data["mom_work"]) == level for level in (2, 3, 4)]
    return columns, data["kid_score"]


def make_earnings(model, data):
    """Columns and y of a model of earnings."""
    earn, height, male = (np.array(data[name], float) for name in ("earn", "height", "male"))
    if model.endswith("_z"):
        height = (height - height.mean()) / height.std(ddof=1)
    columns = [np.log(height)] if "logheight" in model else [height]
    columns += [male] if "male" in model or "interaction" in model else []
    columns += [height * male] if "interaction" in model else []
    return columns, earn if model.startswith("earn") else np.log10(earn) if "log10" in model else np.log(earn)


def make_mesquite(model, data):
    """Columns and y of a model of the weight of bushes."""
    names = ("diam1", "diam2", "canopy_height", "total_height", "density", "group", "weight")
    a, b, canopy, total, density, group, weight = (np.array(data[name], float) for name in names)
    if model == "mesquite":
        return [a, b, canopy, total, density, group], weight
    columns = [np.log(a * b * canopy), np.log(a * b), np.log(a / b), np.log(total), np.log(density), group]
    chosen = {"logva": [0, 1, 5], "logvas": range(6), "logvash": [0, 1, 2, 3, 5], "logvolume": [0]}
    if model == "logmesquite":
        columns[:3] = [np.log(a), np.log(b), np.log(canopy)]
        return columns, np.log(weight)
    return [columns[i] for i in chosen[model.partition("_")[2]]], np.log(weight)


def make_nes(_, data):
    """Columns and y of a model of party identification."""
    age, names = np.array(data["age_discrete"]), ("educ1", "gender", "income")
    columns = [data["real_ideo"], data["race_adj"], *(age == level for level in (2, 3, 4))]
    return [*columns, *(data[name] for name in names)], data["partyid7"]


def fit_linear(columns, y, variance=None, prior=PriorOfScale()):
    """Return (means, sds, quantiles) of coefficients and of the noise sd of a linear model."""
    X, y = np.column_stack(columns).astype(float), np.asarray(y, float)
    variance = (WIDE * np.std(y)) ** 2 / np.mean(X**2, axis=0) if variance is None else variance
    settings = {"prior_variance": variance, "priors": {"noise_variance": prior}, "intercept": False}
    posterior = cavity.GLM("gaussian", integrate="grid", **settings).fit(X, y)
    integration = posterior.integration
    s = np.sqrt(integration.values[:, 0])
    mean = integration.weights @ s
    sd = np.sqrt(integration.weights @ (s - mean) ** 2)
    ends = np.sqrt(integration.marginal("noise_variance").quantile(PROBABILITIES))
    sds, intervals = np.sqrt(posterior.variance), posterior.interval()
    return np.append(posterior.mean, mean), np.append(sds, sd), np.vstack([intervals, ends])


def fit_schools(data):
    """The effects of eight schools, whose quantiles are not looked at, their mean, and their sd."""
    frame = pd.DataFrame({"x": 1.0 / np.array(data["sigma"], float), "school": range(data["J"])})
    frame["y"] = np.array(data["y"]) * frame["x"]  # rows divided by the sds of their noise
    noise, priors = cavity.likelihoods.Gaussian(1.0), {"sd": PriorOfDeviation(5.0)}
    formula, settings = "y ~ 0 + x + (0 + x | school)", {"prior_variance": 25.0, "priors": priors}
    posterior = cavity.MixedGLM(formula, noise, integrate="grid", **settings).fit(frame)
    mean, variance = posterior.predict(frame.assign(x=1.0))
    marginal = posterior.integration.marginal(posterior.integration.names[0])
    means, sds = np.append(posterior.mean, marginal.mean), np.append(np.sqrt(posterior.variance), marginal.sd)
    ends = np.vstack([np.full((len(mean), 2), np.nan), posterior.interval(), marginal.quantile(PROBABILITIES)])
    return np.append(mean, means), np.append(np.sqrt(variance), sds), ends


def fit_process(data):
    """The lengthscale, the sd of f, and f of counts."""
    covariance = cavity.covariances.RBF(priors={"lengthscale": Gamma(25.0, 4.0), "variance": PriorOfScale(normal=2.0)})
    process = cavity.GaussianProcess(covariance, "poisson", mean=0.0, integrate="grid")
    posterior = process.fit(np.array(data["x"], float)[:, None], np.array(data["k"]))
    rows, integration = [], posterior.integration
    for name, power in (("rbf.lengthscale", 1.0), ("rbf.variance", 0.5)):
        values = integration.values[:, integration.names.index(name)] ** power
        mean = integration.weights @ values
        sd = np.sqrt(integration.weights @ (values - mean) ** 2)
        rows.append([mean, sd, *integration.marginal(name).quantile(PROBABILITIES) ** power])
    for number in range(len(data["x"])):
        marginal = posterior.marginal(number)
        rows.append([marginal.mean, marginal.sd, *marginal.quantile(PROBABILITIES)])
    rows = np.array(rows)
    return rows[:, 0], rows[:, 1], rows[:, 2:]


def compare(reference, moments):
    """Return the largest differences of means and quantiles, in sds, and of sds, in percent."""
    mean, sd, ends = moments
    draws = np.column_stack([np.concatenate([chain[name] for chain in reference]) for name in reference[0]])
    draws = draws[:, : len(mean)]
    sds = draws.std(axis=0, ddof=1)
    apart = np.abs(mean - draws.mean(axis=0)) / sds
    quantiles = np.abs(ends.T - np.quantile(draws, PROBABILITIES, axis=0)) / sds
    return len(mean), apart.max(), 100.0 * np.abs(sd / sds - 1.0).max(), np.nanmax(quantiles)


def fit_all(root):
    """Yield the name of each posterior and its moments."""
    cases = [(f"kidiq-kidscore_{name}", "kidiq", make_kidiq, name) for name in KIDIQ]
    cases += [(f"kidiq_with_mom_work-kidscore_{name}", "kidiq_with_mom_work", make_kidiq, name) for name in CENTRED]
    cases += [(f"earnings-{name}", "earnings", make_earnings, name) for name in EARNINGS]
    cases += [(f"mesquite-{name}", "mesquite", make_mesquite, name) for name in MESQUITE]
    cases += [(f"nes{year}-nes", f"nes{year}", make_nes, "") for year in YEARS]
    for name, data, make, model in cases:
        columns, y = make(model, read(root, f"data/data/{data}"))
        prior = PriorOfScale(cauchy=2.5) if data == "kidiq" else PriorOfScale()
        yield name, fit_linear([np.ones(len(y)), *columns], y, prior=prior)
    for name in ("sblrc", "sblri"):
        data = read(root, f"data/data/{name}")
        yield f"{name}-blr", fit_linear(np.array(data["X"]).T, data["y"], 100.0, PriorOfScale(normal=10.0))
    data = read(root, "data/data/arK")
    y, K = np.array(data["y"], float), data["K"]
    columns = [np.ones(len(y) - K), *(y[K - k : len(y) - k] for k in range(1, K + 1))]
    yield "arK-arK", fit_linear(columns, y[K:], 100.0, PriorOfScale(cauchy=2.5))
    yield "eight_schools-eight_schools_noncentered", fit_schools(read(root, "data/data/eight_schools"))
    yield "gp_pois_regr-gp_pois_regr", fit_process(read(root, "data/data/gp_pois_regr"))


def main():
    """Print the table."""
    root = sys.argv[1]
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(".. list-table::\n   :header-rows: 1\n")
    cells = [["posterior", "numbers", "means", "sds", "quantiles"]]
    for name, moments in fit_all(root):
        reference = read(root, f"reference_posteriors/draws/draws/{name}")
        n, means, sds, quantiles = compare(reference, moments)
        cells.append([name, str(n), f"{means:.3f}", f"{sds:.1f} %", f"{quantiles:.3f}"])
        print(cells[-1], file=sys.stderr)
    for row in cells:
        print("\n".join(f"   {'* -' if number == 0 else '  -'} {cell}" for number, cell in enumerate(row)))


if __name__ == "__main__":
    main()
