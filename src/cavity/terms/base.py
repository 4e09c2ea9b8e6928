"""The base of structured terms, as settings of a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from cavity.base.arrays import error_of
from cavity.base.public_objects import Frozen
from cavity.terms.contract import BuiltTerm


class StructuredTerm(Frozen):
    """Base of the terms of a mixed model beside plain random effects: smooths, random walks and others.

    A term of one's own has `name`, `variables` and `build`, which returns a `cavity.terms.contract.BuiltTerm`.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The term as formulas have it: "s(age)"."""

    @property
    @abstractmethod
    def variables(self) -> tuple[str | int, ...]:
        """Names of the columns that it reads, or their numbers in X."""

    @property
    def long_name(self) -> str:
        """A name that differs from that of another term of the same `name`."""
        return self.name

    @property
    def binned_variables(self) -> tuple[str | int, ...]:
        """Those of `variables` that the setting ``bins`` of a model rounds."""
        return ()

    @abstractmethod
    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with all that it takes from the columns of a fit.

        Parameters
        ----------
        table : dict of str or int to array_like (N,)
            The columns of `variables`.
        """


def check_column(value, name, optional=False):
    """Raise TypeError unless a setting is the name or number of a column."""
    if not (isinstance(value, str | int) and not isinstance(value, bool)) and not (value is None and optional):
        raise error_of(name, f"must be the name or number of a column, got {value!r}", TypeError)
