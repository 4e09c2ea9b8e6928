"""`cavity fit linear-regression`: coefficients with learnt noise and prior variances, and which columns matter."""

from cavity.cli import readers, regressions
from cavity.cli.options import POSITIVE, Number

HELP = "linear regression whose prior and noise are learnt, by mean field"
DATA = readers.DATA.format("motorcycle")
DRAWN = "coefficients"
NOISE = Number("--noise-variance", POSITIVE, "V", "of the target around the line (default learnt)")


def add_options(command):
    """Add the options to the command."""
    regressions.add_options(command, NOISE)


def fit(options):
    """Fit a linear regression by mean field: its noise and the prior variance of its coefficients are learnt.

    The table is read once.
    """
    from cavity.models.regression.linear import LinearRegression

    return regressions.fitted(options, LinearRegression, "gaussian", [NOISE])
