"""Draw the pictures of the mixture page: `python docs/pictures.py`."""

from pathlib import Path

import numpy as np

import cavity
from cavity.plot import mixture_figure

HERE = Path(__file__).parent
DPI = 80


def main():
    """Fit Old Faithful, from one start so that the way there can be seen, and for several numbers of components."""
    columns, about = cavity.data.table("faithful")
    X = np.column_stack(list(columns.values()))
    names = [f"{name} [{about['unit']}]" for name in columns]
    posterior = cavity.GaussianMixture(2).fit(X, init="principal")
    mixture_figure(X, posterior, names, about["title"]).savefig(HERE / "faithful.png", dpi=DPI)
    selection = cavity.select_components(cavity.GaussianMixture(1), X, moves=True)
    selection.figure().savefig(HERE / "faithful_selection.png", dpi=DPI)


if __name__ == "__main__":
    main()
