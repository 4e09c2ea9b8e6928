"""Points that are too far from all that a model expects: settings of other data, in other units."""

import numpy as np

from cavity.base.errors import SettingsWarning, warn

BEYOND_SD = 5.0  # beyond the norm of most points of a spherical normal, sqrt(d): one in a million lies there
MOST_FAR_POINTS = 4  # that any data may have


def far_sd(d):
    """Return how many standard deviations from its centre a point in d dimensions is far."""
    return np.sqrt(d) + BEYOND_SD


def are_many(far, n, share):
    """Return whether so many of n points far away are more than a share of them, and than any data may have."""
    return (far > MOST_FAR_POINTS) & (far > share * n)


def warn_of_far_points(far, points, d, what, remedy):
    """Warn that so many of the `points`, in words, are far from what the settings, in words, expect."""
    warn(
        f"{far} of {points} lie more than {far_sd(d):.3g} standard deviations from {what}: the settings are not those "
        f"of such data; give others, {remedy}",
        SettingsWarning,
    )
