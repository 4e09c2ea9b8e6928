"""Numbers that formulas share; no SciPy is loaded for them."""

from math import log, pi

LOG_2 = log(2.0)
LOG_PI = log(pi)
LOG_2PI = log(2.0 * pi)
HALF_LOG_2PI = 0.5 * LOG_2PI
MAD_TO_SD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
SMALLEST_REACH, LARGEST_REACH = 1e-150, 1e150  # of a row times the prior sd: squares stay in the range of float64
