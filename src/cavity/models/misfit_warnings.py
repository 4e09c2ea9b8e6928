"""Warnings of settings that do not fit the data: points too far from a model, more components than rows."""

import numpy as np

from cavity.base.errors import SettingsWarning, warn

BEYOND_SD = 5.0  # beyond the norm of most points of a spherical normal, sqrt(d): one in a million lies there
MOST_FAR_POINTS = 4  # that any data may have


def choose_far_sd(d):
    """Return how many standard deviations from its centre a point in d dimensions is far."""
    return np.sqrt(d) + BEYOND_SD


def are_many(far, n, share):
    """Return whether far points are more than MOST_FAR_POINTS and than a share of n."""
    return (far > MOST_FAR_POINTS) & (far > share * n)


def warn_of_far_points(far, points, d, name, remedy):
    """Warn that `far` of `points` are far from `name`, with a `remedy`: both end the message."""
    warn(
        f"{far} of {points} lie more than {choose_far_sd(d):.3g} standard deviations from {name}: the settings are not "
        f"those of such data; give others, {remedy}",
        SettingsWarning,
    )


def warn_of_few_rows(n_components, n_rows):
    """Warn where a mixture has more components than there are rows."""
    if n_components > n_rows:
        warn(f"n_components should be at most the {n_rows} rows, got {n_components}: some stay empty", SettingsWarning)
