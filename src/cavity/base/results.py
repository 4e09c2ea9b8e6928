"""What all posteriors share: they are frozen, show themselves in a few lines, and turn into named arrays and back.

Fields that many of them have are here with their forms in files and their descriptions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from cavity.base import persistence, records, serialization
from cavity.base.field_descriptions import document_fields
from cavity.base.frames import LEVELS_ROLE, join_names
from cavity.base.missing_values import DROPPED_ROWS_SETTING
from cavity.base.observation_digest import DIGEST_SETTING, ObservationDigest
from cavity.base.public_objects import Frozen, Public, list_field_names, set_fields
from cavity.base.records import FINITE_REAL, LOG_DENSITY, Array, Made, Nullable, Setting, declare, integer, names
from cavity.base.summary import Table, tabulate_marginals

LABEL_TYPES = str | bool | int | float  # in files


def _savable(classes):
    """Return classes as a list."""
    other = next((label for label in classes if not isinstance(label, LABEL_TYPES)), None)
    if other is not None:
        raise TypeError(f"classes must be texts or numbers to be saved, got {other!r} ({type(other).__name__})")
    return list(classes)


def are_labels(value):
    """Return whether a value is a list of labels, as files have them."""
    return isinstance(value, list | tuple) and all(isinstance(label, LABEL_TYPES) for label in value)


def _are_roles(value):
    columns = value.values() if isinstance(value, dict) else [None]
    names_by_role = (column if isinstance(column, list) else [column] for column in columns)
    return all(isinstance(name, str) for column_names in names_by_role for name in column_names)


CLASSES_SETTING = Made(tuple, Setting("a list of strings and numbers", are_labels), _savable)
ROLES_SETTING = Made(
    lambda roles: {role: tuple(name) if isinstance(name, list) else name for role, name in roles.items()},
    Setting("an object of names of columns", _are_roles),
    lambda roles: {role: list(name) if isinstance(name, tuple) else name for role, name in roles.items()},
)
COMMON_FIELDS = {  # the arguments of `declare`; form None: that of the class
    "log_evidence": (LOG_DENSITY, "Estimate of the log evidence, all constants included, by which models compare."),
    "converged": (records.TRUTH_VALUE, "Whether the stopping rule of the fit was met."),
    "n_iter": (integer(), "Passes over the data (sweeps), steps of EP's double loop included."),
    "status": (records.ANY_TEXT, "Why the iteration ended."),
    "trace": (None, '"change" and "improper" of sweeps, "double_loop" steps; "learning", "seconds" of a search.'),
    "hyperparameters": (None, "Settings that the fit found by maximising the log evidence.", None, "learnt?"),
    "n_samples": (integer(1), "Number of rows, those of later updates included."),
    "columns": (Nullable(names()), "Names of columns, which order those of later data frames; None for arrays.", None),
    "classes": (CLASSES_SETTING, "Values of labels, in order; None for 0 and 1, -1 and 1, numbers of classes.", None),
    "roles": (ROLES_SETTING, "Names of the columns that were arguments of the fit, y for example, by argument.", None),
    "has_offset": (records.TRUTH_VALUE, "Whether rows came with offsets, which predictions then need as well.", False),
    "chosen": (names(), "The settings that were left to the data, if any, such as 'prior_variance'.", None),
    "dropped": (DROPPED_ROWS_SETTING, "Rows of the fit left out because of missing values, and their columns.", None),
    "observation_digest": (DIGEST_SETTING, "By which `compare` finds that posteriors are of the same rows.", None),
}


def declare_common(name, form=None):
    """Return a field of COMMON_FIELDS for the body of a dataclass, in files of another form if one is given."""
    common_form, *others = COMMON_FIELDS[name]
    return declare(form or common_form, *others)


def column_settings(axis):
    """Return the settings of a record: the names of so many columns, classes, and columns by what was taken of them."""
    return {"columns?": Nullable(names(axis)), "classes?": Nullable(CLASSES_SETTING), "roles?": ROLES_SETTING}


VARIATIONAL_TRACE_ARRAYS = {f"{name}?": Array(name, "any") for name in ("elbo", "change", "contraction")}
VARIATIONAL_TRACE_ARRAYS |= {"step?": Array("step")}
VARIATIONAL_TRACE_DESCRIPTION = '"elbo" of each pass, its "change" (nats), "contraction"; "step"s of stochastic fits.'
POSTERIOR_CLASSES = {}  # by kinds, of the files that were imported


def freeze_arrays(record, *later):
    """Clear the writeable flag of the arrays in the fields of a dataclass, but for some, in dictionaries too."""
    for name in list_field_names(type(record)):
        if name in later:
            continue
        value = getattr(record, name)
        for array in value.values() if isinstance(value, dict) else (value,):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False


class Posterior(Frozen):
    """Base of the frozen posterior dataclasses.

    A subclass sets `kind`, its name in files, and declares what a file of that kind holds: with its fields, and
    in `record` what these do not declare.
    """

    __slots__ = ()
    __eq__: ClassVar[Any] = object.__eq__
    __hash__: ClassVar[Any] = object.__hash__
    kind: ClassVar[Any] = None
    record: ClassVar[Any] = records.Record()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        document_fields(cls)
        if "kind" in vars(cls):
            POSTERIOR_CLASSES[cls.kind] = cls

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (dict of arrays, JSON-able settings) that hold all of the posterior."""
        return serialization.serialize(records.record_of(type(self)), self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the posterior to `path` as a pickle-free .npz with a JSON header; the file appears whole or not at all.

        Parameters
        ----------
        path : str or path-like
            The file, written under exactly this name; an existing file is replaced in one step, and where symbolic
            links lead to one, that one. Its suffix is ``.npz``, or any that tables do not have.

        Raises
        ------
        TypeError
            For what is no path.
        ValueError
            If it is a device, a pipe or a socket, or has the suffix of a table, such as ``.csv`` or ``.parquet``.
        OSError
            If it is a folder or cannot be written.
        """
        arrays, settings = self.to_arrays()
        persistence.write(path, self.kind, arrays, settings)

    def plot(self, X: Any = None, y: Any = None, *, ax: Any = None, title: str | None = None, **options: Any) -> Any:
        """Draw the posterior, with rows beside it if they are given; needs the plot extra.

        Drawn are coefficients and effects with their intervals, the curves and maps of processes, the components of
        mixtures, densities and outliers: the page on plotting shows them all, and the Displays they are made of.

        Parameters
        ----------
        X : array_like (n, D), data frame, or what else the fit takes, optional
            Rows to draw. A Gaussian process has those of its fit; other posteriors keep none.
        y : array_like (n,) or str, optional
            Their observations, as the fit had them, or the name of their column of X. With them coefficients have a
            panel beside them that shows how rows are predicted.
        ax : matplotlib.axes.Axes, or array of them, optional
            Where to draw: one for each panel. By default in a new figure of pyplot.
        title : str, optional
            What the data are.
        **options
            ``column="dose"`` draws the effect of one column of X, ``columns=("dose", "age")`` a map over two,
            ``term="s(age)"`` one term of a mixed model, or several. Others go to the Displays that draw, for example
            ``names`` (of the columns, with units), ``target`` and ``level``.

        Returns
        -------
        matplotlib.axes.Axes, or ndarray of them
            One where the picture has one panel; ``ax.figure.savefig(path)`` writes it.

        Raises
        ------
        ImportError
            If matplotlib is not installed, with the command that installs it.
        ValueError, TypeError
            For rows, columns, Axes and options that do not fit.
        """
        return draw(self, X, y, ax=ax, title=title, **options)

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class VariationalPosterior(Posterior):
    """Base of the posteriors that coordinate ascent finds: what `cavity.mean_field.engine` returns of every fit.

    `elbo` and `contraction` are None where nothing measured them, never nan; `observation_digest` is that of the
    observations that `elbo` is of.
    """

    elbo: float | Any = declare(Nullable(FINITE_REAL), "The evidence lower bound, in nats, with all constants.")
    converged: bool = declare_common("converged")
    status: str = declare_common("status")
    n_iter: int = declare_common("n_iter")
    trace: dict[str, Any] = declare(records.Part(VARIATIONAL_TRACE_ARRAYS, "trace_"), VARIATIONAL_TRACE_DESCRIPTION)
    contraction: float | Any = declare(Nullable(FINITE_REAL), "The measured rate at which errors shrink per sweep.")
    predicted_gap: float = declare(Nullable(FINITE_REAL, np.inf), "Estimated nats from the ELBO to its local optimum.")
    observation_digest: ObservationDigest | None = declare_common("observation_digest")

    def __post_init__(self) -> None:
        measured = {name: getattr(self, name) for name in ("elbo", "contraction")}
        set_fields(self, **{name: None for name, value in measured.items() if value is not None and np.isnan(value)})
        Posterior.__post_init__(self)

    def _described(self, title, **values):
        """Return a repr with these values, arrays or texts, the names of columns and classes, and how the fit ended."""
        with np.printoptions(precision=6, threshold=6, edgeitems=2):
            rows = [(name, part if isinstance(part, str) else np.array2string(part)) for name, part in values.items()]
        return format_table(title, [*list_name_rows(self), *rows, *self.outcome_rows()])

    def outcome_rows(self) -> Any:
        """Return the last lines of a repr."""
        parts = [] if self.converged else [self.status]
        parts.append(format_count(self.n_iter, "pass"))
        if np.isfinite(self.predicted_gap):
            parts.append(f"predicted gap {self.predicted_gap:.2g} nats")
        elbo = "not known: no pass over all data at the end" if self.elbo is None else f"{self.elbo:.6f}"
        return [("elbo", elbo), ("converged", f"{self.converged} ({', '.join(parts)})")]


def format_table(title, rows):
    """Return a repr: a title and aligned name/value lines."""
    width = max(len(name) for name, _ in rows)
    below = "\n" + " " * (width + 4)
    return "\n".join([title, *(f"  {name:<{width}}  {value}".replace("\n", below) for name, value in rows)])


def format_count(count, noun):
    """Return a number of things in words: "1 pass", "3 passes"."""
    several = f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    return f"{count} {noun if count == 1 else several}"


def title_of(posterior):
    """Return the first line of a repr, without its end."""
    return repr(posterior).partition("\n")[0]


def evidence_of(posterior):
    """Return how a posterior calls what it is worth, and the number of nats, None where that is not known."""
    name = next(name for name in ("log_evidence", "elbo", "log_bound") if hasattr(posterior, name))
    return name, getattr(posterior, name)


def get_named_classes(posterior):
    """Return the classes that labels stand for; () where there are none, and for truth values, whose order is known."""
    classes = getattr(posterior, "classes", None) or ()
    return () if classes and isinstance(classes[0], bool) else classes


def list_name_rows(posterior):
    """Return the lines of a repr about rows: what columns are called and labels stand for, and what was left out."""
    columns, classes = posterior.columns, get_named_classes(posterior)
    weights = getattr(posterior, "coefficient_names", None)
    lines = [] if columns is None else [("weights of" if weights else "columns of X", join_names(weights or columns))]
    if classes:
        lines.append(("classes", f"{join_names(classes)}; larger values favour the last"))
    dropped = getattr(posterior, "dropped", None)
    return lines if dropped is None else [*lines, ("missing", str(dropped))]


def find_base_levels(posterior):
    """Return the base levels by columns of categories, which a formula or the command line has coded."""
    roles = getattr(posterior, "roles", None) or {}
    coded = {role.removeprefix(LEVELS_ROLE): names for role, names in roles.items() if role.startswith(LEVELS_ROLE)}
    levels = {column: names[0][len(column) + 1 : -1] for column, names in coded.items()}
    return levels | getattr(getattr(posterior, "_coding", None), "base_levels", {})


def list_notes(posterior):
    """Return the lines below a table: for which class larger values speak, what the fit is worth, how it ended."""
    name, value = evidence_of(posterior)
    worth = () if value is None or np.ndim(value) else (f"{name} {value:z.3f}",)
    base_levels = find_base_levels(posterior)
    if base_levels:
        worth = ("base levels: " + ", ".join(f"{column} {level}" for column, level in base_levels.items()), *worth)
    if getattr(posterior, "dropped", None) is not None:
        worth = (*worth, str(posterior.dropped))
    classes = get_named_classes(posterior)
    if len(classes) == 2:
        worth = (f"larger values favour {classes[1]!r}", *worth)
    bins = getattr(posterior.model, "bins", None) if hasattr(posterior, "model") else None
    if bins is not None and posterior.n_sites is not None:
        sites = f"{posterior.n_samples} rows at {posterior.n_sites} sites"
        worth = (*worth, f"covariates of smooths in {bins} bins: {sites}")
    integration = getattr(posterior, "integration", None)
    worth = worth if integration is None else (*worth, integration.describe())
    centre = getattr(posterior, "centre", None)
    if centre is not None and np.any(centre) and not getattr(posterior, "intercept", False):
        worth = ("columns are measured from `centre`, as a rule their means", *worth)
    return worth if np.all(getattr(posterior, "converged", True)) else (*worth, f"NOT CONVERGED: {posterior.status}")


class SummaryMixin(Public):
    """Base of posteriors of numbers of interest: a subclass has ``_marginals()``, one `Marginals` or a list of them."""

    __slots__ = ()

    def summary(self, level: float = 0.95) -> Table:
        """Return a table of the parameters: mean, sd, interval and, where they have a sign, the probability P(>0).

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.

        Returns
        -------
        Table
            It shows itself, and has `to_frame` for pandas. What else was learnt is in a table below.
        """
        return tabulate_marginals(
            title_of(self), self._marginals(), level, notes=list_notes(self), below=self._below(level)
        )

    def _below(self, level):
        """The table of what was learnt beside the posterior, None for nothing."""
        return None


def shorten_repr(settings):
    """A repr with six digits of every number, and without the bounds of a search."""
    text = re.sub(r", bounds=\{[^}]*\}", "", repr(settings))
    return re.sub(r"\d+\.\d+(e[-+]?\d+)?", lambda number: f"{float(number[0]):.6g}", text)


def draw(result, *rows, **options):
    """Return the Axes of the picture of a result: the one import of `cavity.plot` from here.

    Raises
    ------
    ImportError
        If the plot extra is not installed, with the command that installs it.
    """
    from cavity.plot import posterior_figures

    return posterior_figures.draw(result, *rows, **options)
