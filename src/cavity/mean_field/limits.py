"""How large and how small numbers may be, so that what mixtures compute of them stays within float64."""

LARGEST_TO_SQUARE = 1e150  # squares of data beyond it overflow
LEAST_TO_SQUARE = 1e-140  # squares of differences below it underflow
LEAST_TO_INVERT, LARGEST_TO_INVERT = 1e-300, 1e300  # of settings that are positive: beyond, inverses are no numbers
