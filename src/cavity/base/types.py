"""What arguments and results are, for type checkers and editors."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

ArrayLike = npt.ArrayLike
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
FloatOrArray = Any  # a float for one, an array for several: callers know what they asked for
Seed = int | Sequence[int] | np.random.SeedSequence | np.random.BitGenerator | np.random.Generator


class RowCollection(Protocol):
    """What has rows: frames, sparse matrices, stored arrays of other libraries."""

    @property
    def shape(self) -> Any:
        """Numbers of rows and of columns."""


Path = str | PathLike[str]
Data = npt.ArrayLike | RowCollection | PathLike[str] | Sequence[Path]
