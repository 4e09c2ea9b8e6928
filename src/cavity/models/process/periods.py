"""First periods for `Periodic` covariances, from the periodogram of the observations along each column."""

import numpy as np

FREQUENCIES_PER_CYCLE = 8  # frequencies for each multiple of 1/range: neighbouring ones are in phase over the rows
CELLS_PER_VALUE = 4  # of the grid that the values of a column are rounded to
MIN_CYCLES = 2  # in the range of a column: less cannot be told from a trend


def find_strongest_periods(X, f, otherwise):
    """Return the period of the largest peak of the periodogram of f along each column of X.

    Values of f are taken from a straight line and summed up in cells of a fine grid, whose fast Fourier transform gives
    the powers; so rows need not be at equal distances, and the cost is N log N.

    Parameters
    ----------
    X : ndarray (N, D)
        The rows.
    f : ndarray (N,)
        Rough values of f.
    otherwise : ndarray (D,)
        What to return for columns without a peak.

    Returns
    -------
    ndarray (D,)
        Periods between twice the distance of neighbouring values of a column and half its range.
    """
    return np.array([_find_strongest_period(x, f, value) for x, value in zip(X.T, otherwise, strict=True)])


def _find_strongest_period(x, f, otherwise):
    values = np.unique(x)
    width = values[-1] - values[0]
    if len(values) < 2 * MIN_CYCLES + 1 or not 0.0 < width < np.inf:
        return otherwise
    t = (x - values[0]) / width
    line = np.column_stack([np.ones(len(t)), t])
    rest = f - line @ np.linalg.lstsq(line, f)[0]
    cells = CELLS_PER_VALUE * len(values)
    sums = np.bincount(np.rint(t * cells).astype(np.intp), rest / (np.max(np.abs(rest)) or 1.0), cells + 1)
    power = np.abs(np.fft.rfft(sums, FREQUENCIES_PER_CYCLE * cells)) ** 2
    most_cycles = min(0.5 * width / np.median(np.diff(values)), 0.5 * len(values))
    power = power[: int(FREQUENCIES_PER_CYCLE * most_cycles) + 2]  # of k/FREQUENCIES_PER_CYCLE cycles in the range
    peaks = 1 + np.flatnonzero((power[1:-1] > power[:-2]) & (power[1:-1] >= power[2:]))
    peaks = peaks[peaks >= FREQUENCIES_PER_CYCLE * MIN_CYCLES]
    return FREQUENCIES_PER_CYCLE * width / peaks[np.argmax(power[peaks])] if len(peaks) else otherwise
