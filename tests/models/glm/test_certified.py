"""Linear regressions of the Statistical Reference Datasets of NIST, https://www.itl.nist.gov/div898/strd/lls/lls.shtml.

Columns are standardised and the noise is the certified one, so that coefficients under a prior variance of 1e12 and
their standard deviations are those of least squares.
"""

import numpy as np
import pytest
from support.tolerances import OPTIMUM

import cavity
from cavity import likelihoods

NORRIS = """
    0.1 0.2  338.8 337.4  118.1 118.2  888.0 884.6  9.2 10.1  228.1 226.5  668.5 666.3  998.5 996.3  449.1 448.6
    778.9 777.0  559.2 558.2  0.3 0.4  0.1 0.6  778.1 775.5  668.8 666.9  339.3 338.0  448.9 447.5  10.8 11.6
    557.7 556.0  228.3 228.1  998.0 995.8  888.8 887.6  119.6 120.2  0.3 0.3  0.6 0.3  557.6 556.8  339.3 339.1
    888.0 887.2  998.5 999.0  778.9 779.0  10.2 11.1  117.6 118.3  228.9 229.2  668.4 669.1  449.2 448.9  0.2 0.5"""
LONGLEY = """
    60323 83.0 234289 2356 1590 107608 1947  61122 88.5 259426 2325 1456 108632 1948
    60171 88.2 258054 3682 1616 109773 1949  61187 89.5 284599 3351 1650 110929 1950
    63221 96.2 328975 2099 3099 112075 1951  63639 98.1 346999 1932 3594 113270 1952
    64989 99.0 365385 1870 3547 115094 1953  63761 100.0 363112 3578 3350 116219 1954
    66019 101.2 397469 2904 3048 117388 1955  67857 104.6 419180 2822 2857 118734 1956
    68169 108.4 442769 2936 2798 120445 1957  66513 110.8 444546 4681 2637 121950 1958
    68655 112.6 482704 3813 2552 123366 1959  69564 114.2 502601 3931 2514 125368 1960
    69331 115.7 518173 4806 2572 127852 1961  70551 116.9 554894 4007 2827 130081 1962"""
CERTIFIED = {  # the table, then intercept and slopes, their standard errors, and the residual standard deviation
    "Norris": (
        NORRIS,
        [-0.262323073774029, 1.00211681802045],
        [0.232818234301152, 0.429796848199937e-3],
        0.884796396144373,
    ),
    "Longley": (
        LONGLEY,
        [
            -3482258.63459582,
            15.0618722713733,
            -0.0358191792925910,
            -2.02022980381683,
            -1.03322686717359,
            -0.0511041056535807,
            1829.15146461355,
        ],
        [
            890420.383607373,
            84.9149257747669,
            0.0334910077722432,
            0.488399681651699,
            0.214274163161675,
            0.226073200069370,
            455.478499142212,
        ],
        304.854073561965,
    ),
}


@pytest.mark.parametrize("name", CERTIFIED)
def test_certified_coefficients(name):
    text, coefficients, errors, residual_sd = CERTIFIED[name]
    table = np.array(text.split(), dtype=float).reshape(-1, len(coefficients))
    y, X = table[:, 0], table[:, 1:]
    centre, unit = X.mean(axis=0), X.std(axis=0)
    design = np.column_stack([np.ones(len(y)), (X - centre) / unit])
    model = cavity.GLM(likelihoods.Gaussian((residual_sd / y.std()) ** 2), prior_variance=1e12, intercept=False)
    posterior = model.fit(design, (y - y.mean()) / y.std())
    # of (y - mean)/sd in standardised columns to y in the columns themselves
    back = np.diag(np.append(1.0, 1.0 / unit)) * y.std()
    back[0, 1:] = -y.std() * centre / unit
    mean, covariance = back @ posterior.mean, back @ posterior.covariance @ back.T
    np.testing.assert_allclose(mean + y.mean() * np.eye(len(mean))[0], coefficients, rtol=OPTIMUM)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), errors, rtol=OPTIMUM)
