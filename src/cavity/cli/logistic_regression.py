"""`cavity fit logistic-regression`: coefficients for two classes, their prior variances learnt."""

from cavity.cli import readers, regressions

HELP = "logistic regression whose prior is learnt, by mean field"
DATA = readers.DATA.format("pima")
DRAWN = "coefficients"


def add_options(command):
    """Add the options to the command."""
    regressions.add_options(command)


def fit(options):
    """Fit a logistic regression by mean field: the prior variance of its coefficients is learnt."""
    from cavity.models.regression.logistic import LogisticRegression

    return regressions.fitted(options, LogisticRegression, "logit")
