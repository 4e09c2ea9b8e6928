"""Statistics of observations under what a model predicts of them, and sentences for those that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays, summary
from cavity.base.labels import Labels
from cavity.base.missing_values import missing_mask
from cavity.base.public_objects import FloatArray, Frozen
from cavity.base.results import draw, format_count, freeze_arrays
from cavity.models.formula.columns import FormulaColumns, column_names
from cavity.models.leave_one_out import make_record
from cavity.models.predicted_rows import PredictedRows
from cavity.models.predictive_densities import integrate_log_density

SURPRISING_DEVIATIONS = 3.5  # standard deviations of chance: one in 2,000 statistics of a right model is beyond
SIMULATED_ROWS = 20_000  # at most, at equal distances, whose observations are drawn
N_SIMULATIONS = 200
MIN_ROWS_PER_LEVEL = 3.0  # on average, for a column to be looked at as groups
SKEWNESS_SD = 1.037  # of (q90 + q10 - 2 q50)/(q90 - q10) of n normal numbers, times sqrt(n)
NOISE_ADVICE = {"Gaussian": "try 'student-t'", "Laplace": "try 'student-t'"}


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of observations: its value, what is expected of it, how surprising it is, and what that means."""

    name: str
    value: float
    expected: float
    deviations: float  # from what is expected, in standard deviations of chance
    sentence: str


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class ModelCheck(Frozen):
    """Statistics of observations under the predictions of a model, see `check` of posteriors.

    Parameters
    ----------
    table : Table
        The statistics: value, expected value, and how many standard deviations of chance lie between.
    findings : tuple of str
        A sentence for each statistic that differs by more than 3.5 standard deviations, the most surprising first.
    residuals : ndarray (n,)
        The residuals.
    predicted_mean : ndarray (n,)
        Predicted means; of f where observations have none.
    covariates : dict of str to ndarray (n,)
        Columns of numbers of the table, the most surprising first.
    counts : ndarray (3, k) or None
        For counts the numbers 0, 1, ..., how often they were observed, and how often they are expected.
    """

    table: summary.Table
    findings: tuple[str, ...]
    residuals: FloatArray
    predicted_mean: FloatArray
    covariates: dict[str, FloatArray]
    counts: FloatArray | None = None

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __repr__(self) -> str:
        return "\n".join([repr(self.table), *(f"  {finding}" for finding in self.findings or ("nothing unexpected",))])

    def plot(self, *, ax: Any = None, title: str | None = None) -> Any:
        """Draw quantile residuals by their normal quantiles, by fitted values, and by the most surprising covariate.

        The first panel has counts, observed and expected, where observations are counts; needs the plot extra.

        Parameters
        ----------
        ax : array of matplotlib.axes.Axes, optional
            Where to draw: one for each panel. By default in a new figure of pyplot.
        title : str, optional
            What the data are.

        Returns
        -------
        ndarray of matplotlib.axes.Axes
            The panels; ``ax[0].figure.savefig(path)`` writes them.
        """
        return draw(self, ax=ax, title=title)


def compare_rows(posterior, data, rows, rng):
    """Return the `ModelCheck` of `PredictedRows` of a table."""
    residuals = rows.quantile_residuals(rng)
    notes = ["each row predicted from all others" if rows.are_left_out else "rows predicted by the posterior"]
    if getattr(posterior, "_row_weights", None) is not None:
        notes.append("each row counts once: no weights")
    try:
        fitted = rows.moments()[1]
    except ValueError:  # bounds
        fitted = rows.mean
    except OverflowError as error:
        fitted = rows.mean
        notes.append(f"predicted means are those of f: {error}")
    covariates, groups = split_covariates(posterior, data, len(residuals))
    by_column = [*check_columns(residuals, covariates), *check_groups(residuals, groups)]
    statistics = [*check_counts(rows, rng, notes), *check_shape(rows, residuals, fitted), *by_column]
    if rows.are_left_out:
        statistics += check_influence(posterior)
    surprise = {statistic.name: abs(statistic.deviations) for statistic in statistics}
    order = sorted(covariates, key=lambda name: -max(surprise[f"trend in {name}"], surprise[f"bend in {name}"]))
    columns = {
        name: np.array([getattr(statistic, name) for statistic in statistics])
        for name in ("value", "expected", "deviations")
    }
    return ModelCheck(
        table=summary.Table(
            f"Check of {type(posterior).__name__}: {format_count(len(residuals), 'row')}",
            tuple(statistic.name for statistic in statistics),
            columns,
            {"value": summary.FOUR_FIGURES, "expected": summary.FOUR_FIGURES, "deviations": 1},
            tuple(notes),
        ),
        findings=choose_findings(statistics, rows.are_left_out),
        residuals=residuals,
        predicted_mean=fitted,
        covariates={name: covariates[name] for name in order},
        counts=count_frequencies(rows),
    )


def choose_findings(statistics, are_left_out):
    """Return the sentences of surprising statistics, without those that may be consequences of others.

    Counts that vary too much have skewed residuals; what bends, or is skewed, has heavy tails. Rows of a fit that are
    predicted by its posterior vary less than predicted.
    """
    surprising = [statistic for statistic in statistics if abs(statistic.deviations) > SURPRISING_DEVIATIONS]
    if not are_left_out:
        low = {statistic.name for statistic in statistics if statistic.value < statistic.expected}
        surprising = [statistic for statistic in surprising if statistic.name not in low & {"variance", "dispersion"}]
    names = {statistic.name for statistic in surprising}
    consequences = {"skewness", "spread"} if names & {"dispersion", "zeros"} else set()
    if names - consequences - {"kurtosis", "variance", "doubtful rows"}:
        consequences |= {"kurtosis", "variance"}
    surprising.sort(key=lambda statistic: (statistic.name == "doubtful rows", -abs(statistic.deviations)))
    return tuple(statistic.sentence for statistic in surprising if statistic.name not in consequences)


def split_covariates(posterior, data, n):
    """Return the columns of numbers of a table by their names, and those of labels as codes.

    Columns of observations, with missing values, or with one value only are left out.
    """
    data = getattr(data, "X", data) if hasattr(data, "levels") else data
    names = column_names(data)
    if names is None:
        X = arrays.check_real_array(data, "X").reshape(n, -1)
        columns = {f"x{j + 1}": X[:, j] for j in range(X.shape[1])}
    else:
        columns = FormulaColumns(data, "X").to_dict()
    numbers, groups, partitions = {}, {}, set()
    observed, coding = list_observed_columns(posterior), getattr(posterior, "_coding", None)
    group_columns = getattr(getattr(posterior, "_reader", None), "group_columns", ())
    names = [name for name in columns if name not in observed]
    for name in sorted(
        names, key=lambda name: coding is not None and name in coding.numbers
    ):  # those without an effect
        if missing_mask(columns[name]).any():
            continue
        labels = Labels.of(columns[name], name)
        values = labels.codes(labels.kinds) if labels.kinds is not None else np.asarray(labels.values, dtype=float)
        if values.shape != (n,) or not np.isfinite(values).all() or np.ptp(values) == 0:
            continue
        _, codes = np.unique(values, return_inverse=True)
        if labels.kinds is None and name not in group_columns:
            numbers[name] = values
        first = np.unique(codes, return_index=True)[1]
        partition = np.argsort(np.argsort(first))[codes].tobytes()  # levels in the order of their first rows
        are_levels = np.array_equal(values, np.floor(values)) and 2 < codes.max() + 1 <= n / MIN_ROWS_PER_LEVEL
        if are_levels and partition not in partitions:
            partitions.add(partition)
            groups[name] = codes
    return {name: numbers[name] for name in columns if name in numbers}, groups


def list_observed_columns(posterior):
    """Return the names of the columns that a fit took its observations from."""
    from cavity.models.formula.design import observation_variables  # formulas have extras

    role = (posterior.roles or {}).get("y", ())
    coding = getattr(posterior, "_coding", None)
    return {role} if isinstance(role, str) else {*role, *(observation_variables(coding.parts.y) if coding else ())}


# ------------------------------------------------------------------------------------------ statistics


def check_counts(rows, rng, notes):
    """Return the statistics of counts: their variation, or a note why there is none, and how many are 0."""
    if not rows.likelihood.discrete or rows.likelihood.n_classes is not None:
        return []
    try:
        statistics = [check_dispersion(rows, rng)]
    except OverflowError as error:
        statistics = []
        notes.append(f"without dispersion, as {error}")
    return statistics if rows.trials else [*statistics, check_zeros(rows)]


def check_dispersion(rows, rng):
    """Return the statistic of the variation of counts."""
    name = type(rows.likelihood).__name__
    step = -(-len(rows.mean) // SIMULATED_ROWS)
    part = PredictedRows(rows.likelihood, rows.y[::step], rows.mean[::step], rows.variance[::step], rows.are_left_out)
    value, mean, variance = part.moments()
    f = part.mean + np.sqrt(part.variance) * rng.standard_normal((N_SIMULATIONS, len(mean)))
    draws = np.asarray(rows.likelihood.draw(f, rng, **part.trials), dtype=np.float64)
    simulated = np.mean((draws - mean) ** 2 / variance, axis=1)
    observed, expected = np.mean((value - mean) ** 2 / variance), np.mean(simulated)
    if not expected > 0.0 or np.ptp(simulated) == 0.0:
        raise OverflowError("simulated counts are all equally far from their means")
    ratio = observed / expected
    advice = "its standard errors are too wide"
    if ratio > 1.0:
        advice = {"Poisson": "try 'negative-binomial'", "Binomial": "try an effect of each row, (1 | row)"}.get(
            name, "a covariate or a group may be missing"
        )
    sentence = f"counts vary {ratio:.2g} times as much as {name} allows: {advice}"
    return Statistic("dispersion", ratio, 1.0, (observed - expected) / np.std(simulated), sentence)


def check_zeros(rows):
    """Return the statistic of how many counts are 0."""
    zeros, probability = np.sum(rows.y == 0), count_probabilities(rows, 0)
    expected, sd = np.sum(probability), np.sqrt(np.sum(probability * (1.0 - probability)))
    more = "try 'negative-binomial', or model whether there is a count at all apart"
    advice = more if type(rows.likelihood).__name__ == "Poisson" else "model whether there is a count at all apart"
    sentence = f"{zeros} counts are 0 where {expected:.3g} are expected"
    sentence += f": {advice}" if zeros > expected else ""
    return Statistic("zeros", zeros, expected, (zeros - expected) / max(sd, 1e-12), sentence)


def count_probabilities(rows, count):
    """Return the predicted probabilities that observations are a number, (n,)."""
    y = rows.likelihood.check(np.full(len(rows.mean), float(count)))
    return np.exp(integrate_log_density(rows.likelihood, y, rows.mean, rows.variance))


def count_frequencies(rows, largest=30):
    """Return the numbers 0, 1, ..., how often each was observed, and how often it is expected; None but for counts."""
    if not rows.likelihood.discrete or rows.trials or rows.likelihood.n_classes is not None:
        return None
    numbers = np.arange(min(int(np.quantile(rows.y, 0.99)) + 2, largest))
    expected = [np.sum(count_probabilities(rows, number)) for number in numbers]
    return np.stack([numbers, [np.sum(rows.y == number) for number in numbers], expected])


def check_shape(rows, residuals, fitted):
    """Return the statistics of the distribution of residuals; classes have only the first."""
    n, name = len(residuals), type(rows.likelihood).__name__
    centred = residuals - residuals.mean()
    variance = np.mean(centred**2)
    rank = np.argsort(np.argsort(fitted))
    spread = np.corrcoef(np.argsort(np.argsort(np.abs(residuals))), rank)[0, 1] if np.ptp(fitted) else 0.0
    statistics = []
    if rows.likelihood.n_classes is None and n > 1 and variance > 0:
        low, middle, high = np.quantile(residuals, [0.1, 0.5, 0.9])
        skewness, kurtosis = (high + low - 2.0 * middle) / (high - low), np.mean(centred**4) / variance**2
        more = "more" if variance > 1 else "less"
        sentences = {
            "variance": f"residuals vary {variance:.2g} times as predicted, {more} than the likelihood allows",
            "skewness": f"residuals are skewed ({skewness:.2g}): try log(y), or a likelihood of skewed observations",
            "kurtosis": f"residuals have heavy tails (kurtosis {kurtosis:.2g} for 3): "
            + NOISE_ADVICE.get(name, "another likelihood, or a missing group"),
            "spread": f"residuals vary {'more' if spread > 0 else 'less'} where fitted values are larger: "
            "try log(y), or a likelihood of counts or positive numbers",
        }
        values = {"variance": (variance, 1.0, np.sqrt(2.0 / n)), "skewness": (skewness, 0.0, SKEWNESS_SD / np.sqrt(n))}
        values |= {"kurtosis": (kurtosis, 3.0, np.sqrt(24.0 / n)), "spread": (spread, 0.0, 1.0 / np.sqrt(n - 1.0))}
        if kurtosis < 3.0:
            sentences["kurtosis"] = f"residuals have light tails (kurtosis {kurtosis:.2g} for 3)"
        statistics = [
            Statistic(key, value, expected, (value - expected) / sd, sentences[key])
            for key, (value, expected, sd) in values.items()
        ]
    return statistics


def check_columns(residuals, covariates):
    """Return the statistics of residuals along columns of numbers: their correlation with x, and with its square."""
    n, scaled = len(residuals), (residuals - residuals.mean()) / (residuals.std() or 1.0)
    statistics = []
    for name, column in covariates.items():
        x = (column - column.mean()) / column.std()
        square = x**2 - 1.0 - x * np.mean(x**3)
        size = np.sqrt(np.mean(square**2))
        trend, bend = np.mean(scaled * x), np.mean(scaled * square) / size if size > 1e-6 else 0.0
        statistics += [
            Statistic(
                f"trend in {name}",
                trend,
                0.0,
                trend * np.sqrt(n),
                f"residuals have a trend in {name}: add it, unless it is a result of y",
            ),
            Statistic(
                f"bend in {name}",
                bend,
                0.0,
                bend * np.sqrt(n),
                f"residuals bend along {name}: try I({name}**2) or bs({name}, df=5)",
            ),
        ]
    return statistics


def check_groups(residuals, groups):
    """Return the statistics of the means of residuals by the levels of columns: sums of squares, about chi-square."""
    scaled, statistics = (residuals - residuals.mean()) / (residuals.std() or 1.0), []
    for name, codes in groups.items():
        counts, sums = np.bincount(codes), np.bincount(codes, scaled)
        degrees = len(counts) - 1.0
        ratio = np.sum(sums**2 / counts) / degrees
        # Wilson and Hilferty (1931): the cube root of a chi-square is about normal
        deviations = (np.cbrt(ratio) - (1.0 - 2.0 / (9.0 * degrees))) / np.sqrt(2.0 / (9.0 * degrees))
        sentence = f"residuals differ between the levels of {name}: try C({name}), or effects (1 | {name})"
        statistics.append(Statistic(f"levels of {name}", ratio, 1.0, max(deviations, 0.0), sentence))
    return statistics


def check_influence(posterior):
    """Return the statistic of rows whose leave-one-out density is doubtful."""
    doubtful = make_record(posterior).doubtful
    if doubtful is None:
        return []
    count = int(doubtful.sum())
    sentence = f"the fit rests on {count} row{'s' if count > 1 else ''}: look at loo().to_frame()"
    return [Statistic("doubtful rows", count, 0.0, np.inf if count else 0.0, sentence)]
