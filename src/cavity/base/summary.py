"""Tables of results: rows with names, columns of numbers, shown with the digits that their uncertainty leaves."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.frames import make_data_frame
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import FloatArray, Frozen

SD_FIGURES_SHOWN = 3  # of a standard deviation that are shown: the third one is already noise
MAX_DIGITS_SHOWN, MAX_DECIMALS_SHOWN = 9, 7  # beyond which numbers are shown with an exponent
MAX_ROWS_SHOWN = 60  # most rows of a table that are shown; to_frame has all
PROBABILITY_FORMAT = "probability"  # format of a column: between 0 and 1, which it never quite is
FOUR_FIGURES = "four figures"  # format of a column of ratios, whose digits do not depend on a standard deviation


def escape_control_characters(name):
    """Return a name with line breaks, tabs and other control characters as escapes, as tables and messages show it."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)


@dataclass(frozen=True, eq=False, repr=False)
class Table(Frozen):
    """A table of results: it shows itself as text and in notebooks, and turns into a pandas data frame.

    Parameters
    ----------
    title : str
        What it is a table of.
    names : tuple of str
        Of the rows.
    columns : dict
        Columns by their names, each with one entry for every row: numbers, nan where there is none, or text.
    formats : dict, default {}
        How columns are shown: a number of decimals, "probability", "four figures", or the name of the column of
        standard deviations from which the number of digits follows; by default six figures.
    notes : tuple of str, default ()
        Lines below the rows.
    below : Table, optional
        A second table, of other things.

    Examples
    --------
    >>> import cavity
    >>> model = cavity.LinearRegression(noise_variance=1.0, prior_variance=10.0, intercept=False)
    >>> posterior = model.fit([[1.0], [2.0]], [1.1, 1.9])
    >>> table = posterior.summary(level=0.9)
    >>> list(table.columns), table.columns["mean"].round(3).tolist()
    (['mean', 'sd', '5%', '95%', 'P(>0)'], [0.961])
    """

    title: str
    names: tuple[str, ...]
    columns: dict[str, Any]
    formats: Mapping[str, str | int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    below: Table | None = None

    def to_frame(self) -> Any:
        """Return the rows as a pandas data frame, their names as its index; `notes` and `below` are not in it.

        Returns
        -------
        pandas.DataFrame
            The numbers with all their digits.

        Raises
        ------
        ImportError
            If pandas is not installed, with the command that installs it.
        """
        return make_data_frame(self.columns, list(self.names))

    def _cells(self):
        """The text of the header and of the rows, each of which begins with its name; of very many some are missing."""
        n, half = len(self.names), MAX_ROWS_SHOWN // 2
        shown = range(n) if n <= MAX_ROWS_SHOWN else [*range(half), *range(n - half, n)]
        rows = [
            [escape_control_characters(self.names[i]), *(self._cell(name, i) for name in self.columns)] for i in shown
        ]
        if n > MAX_ROWS_SHOWN:
            rows.insert(half, [f"... {n - MAX_ROWS_SHOWN} rows more ...", *[""] * len(self.columns)])
        return [["", *map(escape_control_characters, self.columns)], *rows]

    def _cell(self, name, i):
        """The text of one cell."""
        value, form = self.columns[name][i], self.formats.get(name)
        if value is None or value != value:
            return ""
        if isinstance(value, str):
            return value
        if form == PROBABILITY_FORMAT:
            return "<0.001" if value < 5e-4 else ">0.999" if value > 1 - 5e-4 else f"{value:.3f}"
        if form == FOUR_FIGURES:
            return format_number(value, 0.1 * abs(value))
        if isinstance(form, int):
            return f"{value:z.{form}f}"
        return f"{value:.6g}" if form is None else format_number(value, self.columns[form][i])

    def __repr__(self) -> str:
        rows = self._cells()
        widths = [max(_width(row[j]) for row in rows) for j in range(len(rows[0]))]
        lines = [self.title]
        for row in rows:
            cells = (f"{' ' * (w - _width(cell))}{cell}" for w, cell in zip(widths[1:], row[1:], strict=True))
            lines.append("  ".join(["", row[0] + " " * (widths[0] - _width(row[0])), *cells]).rstrip())
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines if self.below is None else [*lines, repr(self.below)])

    def _repr_html_(self) -> str:
        header, *rows = self._cells()
        lines = [f"<table><caption>{html.escape(self.title)}</caption><thead><tr>"]
        lines += [f"<th>{html.escape(cell)}</th>" for cell in header]
        lines.append("</tr></thead><tbody>")
        for name, *cells in rows:
            values = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            lines.append(f"<tr><th>{html.escape(name)}</th>{values}</tr>")
        lines.append("</tbody></table>")
        lines += [f"<p>{html.escape(note)}</p>" for note in self.notes]
        return "".join(lines if self.below is None else [*lines, self.below._repr_html_()])


def format_number(value, sd):
    """Return a number as text, with the digits that its standard deviation leaves; six figures if that is unknown."""
    if not (sd > 0 and np.isfinite(sd) and np.isfinite(value)):
        return f"{value:z.6g}"
    decimals = SD_FIGURES_SHOWN - 1 - int(np.floor(np.log10(sd)))
    if max(abs(value), sd) < 10.0**MAX_DIGITS_SHOWN and decimals <= MAX_DECIMALS_SHOWN:
        return f"{value:z.{max(decimals, 0)}f}"
    if value == 0:
        return "0"
    order = int(np.floor(np.log10(abs(value))))
    return f"{value:.{min(max(order + decimals, 0), 16)}e}"


def _width(text):
    """How many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


# ------------------------------------------------------------------------------------------ marginals


@dataclass(frozen=True, slots=True, eq=False)
class MarginalTable:
    """What is known of some numbers, one by one.

    Attributes
    ----------
    names : tuple of str
        Theirs.
    mean, sd : ndarray (n,)
        Moments; nan where there are none.
    quantile : callable
        quantile(p) are the p-quantiles (n,).
    positive : ndarray (n,) or None
        Probabilities that they are above 0; None where they cannot be anything else.
    """

    names: tuple[str, ...]
    mean: FloatArray
    sd: FloatArray
    quantile: Callable
    positive: FloatArray | None = None

    def interval(self, level):
        """Return the central intervals of that probability, (n, 2)."""
        level = arrays.check_number(level, "level", low=0, high=1)
        return np.column_stack([self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)])


def make_gaussian_marginals(names, mean, sd):
    """Return normal marginals; an sd of 0 is a known number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(sd > 0, mean / sd, np.sign(mean) * np.inf)
    positive = np.where(np.isnan(score), 0.0, special.ndtr(score))
    return MarginalTable(names, mean, sd, lambda p: mean + sd * special.ndtri(p), positive)


def make_student_marginals(names, mean, scale, degrees):
    """Return marginals of Student's t; the sd is not known with two degrees of freedom or fewer."""
    with np.errstate(divide="ignore", invalid="ignore"):
        sd = np.where(degrees > 2.0, scale * np.sqrt(degrees / (degrees - 2.0)), np.nan)
    positive = special.stdtr(degrees, mean / scale)
    return MarginalTable(names, mean, sd, lambda p: mean + scale * special.stdtrit(degrees, p), positive)


def make_beta_marginals(names, mean, variance):
    """Return Beta marginals with these moments, of numbers between 0 and 1; a variance of 0 is a known number."""
    fixed = variance <= 0
    total = np.where(fixed, np.inf, mean * (1.0 - mean) / np.where(fixed, 1.0, variance)) - 1.0
    a, b = (np.where(fixed, 1.0, part * np.where(fixed, 1.0, total)) for part in (mean, 1.0 - mean))
    return MarginalTable(names, mean, np.sqrt(variance), lambda p: np.where(fixed, mean, special.betaincinv(a, b, p)))


def make_inverse_gamma_marginals(names, shape, rate):
    """Return the marginals of 1/x, x ~ Gamma(shape, rate): variances, of precisions; not all have moments."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(shape > 1.0, rate / (shape - 1.0), np.nan)
        sd = np.where(shape > 2.0, mean / np.sqrt(shape - 2.0), np.nan)
    return MarginalTable(names, mean, sd, lambda p: rate / special.gammainccinv(shape, p))


NORMAL_SCALES = {  # on which estimates are about normal: to that scale, back, and the derivative of the way back
    "log": (np.log, np.exp, lambda value: value),
    "logit": (lambda value: special.logit(value), lambda free: special.expit(free), lambda value: value * (1 - value)),
    "Fisher z": (np.arctanh, np.tanh, lambda value: 1 - value**2),
    "as it is": (np.positive, np.positive, np.ones_like),
}


def estimate_interval(value, error, scale, level):
    """Return the interval (low, high) of an estimate: normal on one of the NORMAL_SCALES, and taken back from there.

    With a standard error s of the value v it is ``back(to(v) -+ z s / back'(to(v)))``; (nan, nan) where s is nan, or v
    at an end of what it may be.
    """
    level = arrays.check_number(level, "level", low=0, high=1)
    to, back, slope = NORMAL_SCALES[scale]
    value, derivative = np.float64(value), slope(np.float64(value))
    if not (error >= 0 and derivative > 0):
        return np.nan, np.nan
    half = special.ndtri(0.5 + 0.5 * level) * error / derivative
    return float(back(to(value) - half)), float(back(to(value) + half))


def tabulate_estimates(title, names, values, errors=None, notes=(), *, scales=None, level=0.95):
    """Return a table of estimates, with standard errors on the scale of the values and intervals where there are some.

    `scales` are the scales, of NORMAL_SCALES, on which each estimate is about normal; they are needed with `errors`.
    """
    columns = {"value": np.asarray(values, dtype=np.float64)}
    if errors is None or all(error is None for error in errors):
        return Table(title, tuple(names), columns, notes=notes)
    columns["standard error"] = np.array([np.nan if error is None else error for error in errors], dtype=np.float64)
    estimates = zip(columns["value"], columns["standard error"], scales, strict=True)
    ends = np.array([estimate_interval(*estimate, level) for estimate in estimates])
    columns |= dict(zip(interval_names(level), ends.T, strict=True))
    return Table(title, tuple(names), columns, dict.fromkeys(columns, "standard error"), notes)


def interval_names(level):
    """Return what the ends of intervals of a probability are called: "2.5%" and "97.5%" for 0.95."""
    return tuple(f"{50 + side * 50 * level:.10g}%" for side in (-1, 1))


def summarise_draws(draws, level):
    """Return columns of a table of draws (..., n): their means, standard deviations and the ends of intervals."""
    low, high = np.quantile(draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=-1)
    moments = {"mean": draws.mean(axis=-1), "sd": draws.std(axis=-1, ddof=1)}
    return moments | dict(zip(interval_names(level), (low, high), strict=True))


def tabulate_marginals(title, marginals, level, *, notes=(), below=None):
    """Return the table of some marginals: mean, sd, interval and, where numbers have a sign, P(>0)."""
    parts = marginals if isinstance(marginals, list) else [marginals]
    bounds = np.concatenate([part.interval(level) for part in parts])
    low, high = interval_names(level)
    columns = {
        "mean": np.concatenate([part.mean for part in parts]),
        "sd": np.concatenate([part.sd for part in parts]),
        low: bounds[:, 0],
        high: bounds[:, 1],
    }
    formats = dict.fromkeys(columns, "sd")
    if any(part.positive is not None for part in parts):
        unknown = [np.full(len(p.names), np.nan) if p.positive is None else p.positive for p in parts]
        columns["P(>0)"] = np.concatenate(unknown)
        formats["P(>0)"] = PROBABILITY_FORMAT
    names = tuple(name for part in parts for name in part.names)
    return Table(title, names, columns, formats, notes, below)


def tabulate_ratios(title, marginals, level, *, notes=(), below=None):
    """Return the table of exp of some marginals, log ratios: medians, intervals, and the probability P(>1)."""
    low, high = interval_names(level)
    with np.errstate(over="ignore"):
        ends = np.exp(marginals.interval(level))
        columns = {"median": np.exp(marginals.quantile(0.5)), low: ends[:, 0], high: ends[:, 1]}
    formats = dict.fromkeys(columns, FOUR_FIGURES) | {"P(>1)": PROBABILITY_FORMAT}
    return Table(title, marginals.names, columns | {"P(>1)": marginals.positive}, formats, notes, below)
