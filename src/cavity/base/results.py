"""What all posteriors share: they are frozen, show themselves in a few lines, and turn into named arrays and back."""

from dataclasses import dataclass, fields

import numpy as np

from cavity.base import persistence, records
from cavity.base.frozen import Frozen
from cavity.base.records import FLAG, NUMBER, TEXT, Array, Nullable, integer

OUTCOME = {  # settings of variational posteriors; what is not finite is null
    "elbo": Nullable(NUMBER),
    "converged": FLAG,
    "status": TEXT,
    "n_iter": integer(),
    "contraction": Nullable(NUMBER),
    "predicted_gap": Nullable(NUMBER),
}
TRACE = {f"trace_{name}?": Array(name, "any") for name in ("elbo", "change", "contraction")}
TRACE |= {"trace_step?": Array("step")}


def freeze(record):
    """Clear the writeable flag of the arrays in the fields of a dataclass, those in dictionaries too."""
    for field in fields(record):
        value = getattr(record, field.name)
        for array in value.values() if isinstance(value, dict) else (value,):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False


def to_list(names):
    """Return names as JSON has them, None if there are none."""
    return None if names is None else list(names)


def to_tuple(names):
    """Return names as `to_list` took them apart, None of a file from before there were any."""
    return None if names is None else tuple(names)


class Posterior(Frozen):
    """Base of the frozen posterior dataclasses.

    A subclass sets `kind` and gives `to_arrays()` -> (dict of arrays, JSON-able settings). What a file of that kind
    must hold, and how a posterior is made of it again, stands in its module of `cavity.models.saved.KINDS`.
    """

    __slots__ = ()
    kind = None

    def save(self, path):
        """Write the posterior to `path` as a pickle-free .npz with a JSON header; the file appears whole or not at all.

        Parameters
        ----------
        path : str or path-like
            The file, written under exactly this name; an existing file is replaced in one step.
        """
        arrays, settings = self.to_arrays()
        persistence.write(path, self.kind, arrays, settings)

    def _freeze(self):
        """Clear the writeable flag of every array field (for __post_init__)."""
        freeze(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class VariationalPosterior(Posterior):
    """Base of the posteriors that coordinate ascent finds: what `cavity.mean_field.engine` says about every fit.

    `elbo` and `contraction` are None where nothing measured them, never nan.
    """

    elbo: float | None
    converged: bool
    status: str
    n_iter: int
    trace: dict
    contraction: float | None
    predicted_gap: float

    def __post_init__(self):
        self._freeze()

    def _freeze(self):
        for name in ("elbo", "contraction"):
            value = getattr(self, name)
            if value is not None and np.isnan(value):
                object.__setattr__(self, name, None)
        Posterior._freeze(self)

    def outcome_to_arrays(self):
        """Return these fields as (arrays, settings); an infinite gap becomes None, which JSON has a word for."""
        plain = {f.name: getattr(self, f.name) for f in fields(VariationalPosterior) if f.name != "trace"}
        settings = {k: None if k == "predicted_gap" and not np.isfinite(v) else v for k, v in plain.items()}
        return {f"trace_{name}": value for name, value in self.trace.items()}, settings

    @staticmethod
    def outcome_from_arrays(arrays, settings):
        """Return the keyword arguments that `outcome_to_arrays` took apart.

        Parameters
        ----------
        arrays : dict of ndarray
            The arrays, others among them.
        settings : dict
            The settings.

        Returns
        -------
        dict
            By the names of the fields.
        """
        unknown = {"predicted_gap": np.inf}
        trace = records.part(arrays, "trace_")
        names = [field.name for field in fields(VariationalPosterior) if field.name != "trace"]
        return {name: unknown.get(name) if settings[name] is None else settings[name] for name in names} | {
            "trace": trace
        }

    def outcome_rows(self):
        """Return the last lines of a repr."""
        known = [] if self.converged else [self.status]
        known.append(f"{self.n_iter} pass{'es' if self.n_iter != 1 else ''}")
        if np.isfinite(self.predicted_gap):
            known.append(f"predicted gap {self.predicted_gap:.2g} nats")
        elbo = "not known: no pass over all data at the end" if self.elbo is None else f"{self.elbo:.6f}"
        return [("elbo", elbo), ("converged", f"{self.converged} ({', '.join(known)})")]


def table(title, rows):
    """Return a repr: a title and aligned name/value lines."""
    width = max(len(name) for name, _ in rows)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows)])


def drawn(name, *results):
    """Return the figure that a function of `cavity.plot` draws of results: the one door from here to there.

    Raises
    ------
    ImportError
        If the plot extra is not installed, with the command that installs it.
    """
    from cavity import plot

    return getattr(plot, name)(*results)
