"""Write files/FORMAT/KIND.npz, posteriors in the format of today, which tests/base/test_old_files.py reads for ever.

Run it once for a new format, from the folder tests as python golden/make_files.py. Files that are there stay.
"""

from pathlib import Path

import numpy as np

import cavity
from cavity import distributions
from cavity.base.persistence import FILE_FORMAT_VERSION

FILES = Path(__file__).resolve().parent / "files" / str(FILE_FORMAT_VERSION)
rng = np.random.default_rng(0)
X = rng.normal(size=(12, 2))
Y = X @ [1.0, -1.0] + rng.normal(size=12)
LABELS = (Y > 0).astype(float)
GROUPS = {"g": np.arange(12) % 4, "h": np.arange(12) % 3}


class Normal(cavity.mean_field.Model):
    """Two factors that stay what they are."""

    n_samples = 1

    def initial(self):
        return {"mean": distributions.Gaussian(0.1, 1.0), "precision": distributions.Gamma(2.0, [1.0, 2.0])}

    def update(self, name, q):
        return q[name]

    def expected_log_joint(self, q):
        return -1.0


def mixed():
    model = cavity.MixedGLM(["g", "h"], "probit", intercept=True, effect_covariances={"g": 0.5, "h": 1.0})
    return model.fit(X, LABELS, groups=GROUPS)


POSTERIORS = {
    "clutter": lambda: cavity.Clutter().fit(X),
    "factorized": lambda: cavity.FactorizedGaussian([0.0, 1.0, 2.0], np.eye(3) + 0.1, [[0, 2], [1]]).fit(),
    "gaussian_mixture": lambda: cavity.GaussianMixture(2).fit(X),
    "gaussian_process": lambda: cavity.GaussianProcess("rbf + linear", "student-t").fit(X, Y, learn=False),
    "gaussian_process_chain": lambda: cavity.GaussianProcess("matern32", "student-t", method="chain").fit(
        X[:, :1], Y, learn=False
    ),
    "gaussian_process_end": lambda: (
        cavity.GaussianProcess("matern32", "student-t", method="chain").fit(X[:, :1], Y, learn=False).keep_end()
    ),
    "glm": lambda: cavity.GLM("logit", intercept=True).fit(X, LABELS),
    "linear_regression": lambda: cavity.LinearRegression(ard=True).fit(X, Y),
    "logistic_regression": lambda: cavity.LogisticRegression().fit(X, LABELS),
    "many": lambda: cavity.GLM("logit", intercept=True).fit_many(X, np.column_stack([LABELS, 1.0 - LABELS])),
    "mean_field": lambda: cavity.mean_field.fit(Normal(), max_iter=2),
    "mixed": mixed,
    "streaming_gp": lambda: cavity.StreamingGP("rbf", "probit", n_inducing=4).fit(X, LABELS, learn=False),
    "unit_mixture": lambda: cavity.UnitMixture(2).fit(Y),
}

if __name__ == "__main__":
    FILES.mkdir(parents=True, exist_ok=True)
    for kind, fit in POSTERIORS.items():
        path = FILES / f"{kind}.npz"
        if not path.exists():
            fit().save(path)
