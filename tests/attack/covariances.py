"""Random composed covariances, against NumPy pair by pair and against their formulas in many digits."""

import json

import numpy as np
from attack.rule import near, sure
from reference import covariance_formulas as reference

from cavity import covariances

LEAVES = ("RBF", "Matern12", "Matern32", "Matern52", "Matern", "RationalQuadratic", "Periodic", "Linear")
LEAVES += ("Constant", "White")


def parameters(rng, name, d):
    """Parameters of a leaf on d columns, some of which it may leave out."""

    def scales(n):
        values = 10 ** rng.uniform(-2, 2, n)
        return values.tolist() if rng.random() < 0.5 and n > 1 else float(values[0])

    if name in ("Constant", "White"):
        return {"variance": scales(1)}
    chosen = sorted(rng.choice(d, rng.integers(1, d + 1), replace=False).tolist())
    truth = {"columns": chosen} if rng.random() < 0.5 else {}
    n = len(chosen) if truth else d
    if name == "Linear":
        return truth | {"variance": scales(n)}
    truth |= {"variance": scales(1), "lengthscale": scales(n)}
    if name == "Matern":
        truth["nu"] = float(rng.choice([0.5, 1.5, 2.5, 3.5, 5.5]))
    if name == "RationalQuadratic":
        truth["shape"] = scales(1)
    return truth | ({"period": scales(n)} if name == "Periodic" else {})


def composed(rng, d, leaves=None):
    """A random covariance of d columns: leaves, added and multiplied."""
    leaves = int(rng.integers(1, 6)) if leaves is None else leaves
    if leaves == 1:
        name = str(rng.choice(LEAVES))
        return getattr(covariances, name)(**parameters(rng, name, d))
    left = int(rng.integers(1, leaves))
    one, other = composed(rng, d, left), composed(rng, d, leaves - left)
    return one + other if rng.random() < 0.5 else one * other


def table(rng, n, d):
    """Rows near and far, of which some are equal."""
    X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-3, 3, d) + rng.choice([0.0, 0.0, 1e3]) * rng.normal(size=d)
    X[rng.integers(0, n, n // 3)] = X[0]
    return X


def sizes(settings, x, z):
    """What a value is a sum of, in absolute values: |a'b| for a linear part, and the product or the sum of parts."""
    if "parts" in settings:
        parts = [sizes(part, x, z) for part in settings["parts"]]
        return sum(parts) if settings["kind"] == "Sum" else np.prod(parts)
    if settings["kind"] == "Linear":
        return float(reference.leaf_value(settings, np.abs(x), np.abs(z), False))
    size = float(settings["variance"])
    if settings["kind"] == "Periodic":  # the phase has the error of a quotient
        columns = settings.get("columns", range(len(x)))
        size *= 1 + np.sum(np.abs(x - z)[list(columns)] / settings["period"] / np.square(settings["lengthscale"]))
    return size


def formulas(rng):
    """Matrices, diagonals and gradients against the formulas in 50 digits."""
    d, n = int(rng.integers(1, 4)), 4
    covariance, X, Z = composed(rng, d), table(rng, n, d), table(rng, 3, d)
    settings = json.loads(json.dumps(covariance.to_settings()))
    size = np.array([[sizes(settings, x, z) for z in X] for x in X])
    near("gram", sure(covariance.gram, X), reference.matrix(settings, X), 1e-12 * size)
    wide = np.array([[sizes(settings, x, z) for z in Z] for x in X])
    near("cross", sure(covariance.cross, X, Z), reference.matrix(settings, X, Z), 1e-12 * wide)
    near(
        "diagonal",
        covariance.diagonal(X),
        np.diag(np.array(reference.matrix(settings, X), dtype=float)),
        1e-12 * np.diag(size),
    )
    W = rng.normal(size=(n, n))
    W = W + W.T
    expected = reference.gradient(settings, X, W)
    result = covariance.gradient(X, W)
    near("gradient", result, [expected[name] for name in covariance.parameter_names], 1e-8 * np.sum(np.abs(W) * size))


ATTACKS = (formulas,)
