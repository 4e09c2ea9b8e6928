"""Tolerances of the tests, each named for the largest error that it allows for; relative, or of numbers of size one."""

LAST_BIT = 1e-15  # one or two roundings
ROUNDING = 1e-14  # some tens of roundings, or the same formula in another order
SUMS = 1e-13  # sums of hundreds of terms in another order, functions of the C library
SOLVES = 1e-12  # factorisations and solves of a condition below some thousand
LOSSES = 1e-11  # differences of numbers some thousand times larger
INTEGRAL = 1e-10  # integrals by quadrature, products of many factors
AT_REST = 1e-9  # iterations that have converged to the default tol by different paths
ROOT_EPS = 1e-8  # the argument of a maximum that is found by its values
EARLY = 1e-7  # iterations that stop before the default tol, adaptive integrals of SciPy
OPTIMUM = 1e-6  # hyperparameters and bounds where a search has stopped
SLOPES = 1e-5  # gradients by differences of rounded values
PRINTED = 1e-4  # published and printed numbers
EXPANSION = 1e-3  # the same of three digits, and limits by the first terms of an expansion
