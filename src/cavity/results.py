"""What all posteriors share: they are frozen, show themselves in a few lines, and turn into named arrays and back."""

from dataclasses import fields

import numpy as np

from . import persistence


class Posterior:
    """Base of the frozen posterior dataclasses.

    A subclass sets `kind` and gives `to_arrays()` -> (dict of arrays, JSON-able settings) and the inverse class method
    `from_arrays(arrays, settings)`.
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
        for field in fields(self):
            value = getattr(self, field.name)
            for array in value.values() if isinstance(value, dict) else (value,):
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False


def table(title, rows):
    """Return a repr: a title and aligned name/value lines."""
    width = max(len(name) for name, _ in rows)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows)])
