"""Bad data and options that models with a likelihood refuse in the same words: change, error, message."""

import numpy as np

BAD_FITS = [
    (dict(y=[0, 1, 2]), ValueError, "two classes, got 3 different values: 0, 1, 2"),
    (dict(y=[-1, 0, 1]), ValueError, "two classes"),
    (dict(y=["a", "b", "c"]), ValueError, "two classes, got 3 different values: 'a', 'b', 'c'"),
    (dict(y=[0, 1]), ValueError, "y must have one entry per row of X, that is 3"),
    (dict(y=[0, 1, np.nan]), ValueError, "y must hold a label in every row, got nan in row 2"),
    (dict(X=[[1.0], [np.nan], [2.0]]), ValueError, r"X must be finite, got X\[1, 0\] = nan"),
    (dict(X=[1.0, 2.0, 3.0]), ValueError, "X must have 2 dimension"),
    (dict(X=np.empty((0, 2)), y=[]), ValueError, "X must not be empty"),
    (dict(offset=[1.0]), ValueError, "offset must have one entry per row of X"),
    (dict(sample_weight=[1, -1, 1]), ValueError, "sample_weight must not be negative, got -1.0 in row 1"),
    (dict(sample_weight=[0, 0, 0]), ValueError, "sample_weight must be positive in some row"),
    (dict(schedule="fast"), ValueError, "schedule must be one of.*'fast'"),
    (dict(damping=0), ValueError, "damping must be in"),
    (dict(power=1.5), ValueError, "power must be in"),
    (dict(max_iter=0), ValueError, "max_iter must be at least 1"),
    (dict(tol=-1), ValueError, "tol must be in"),
    (dict(n_threads=0), ValueError, "n_threads must be at least 1"),
]
