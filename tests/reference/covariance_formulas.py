"""Covariances by their formulas, pair by pair in 50 digits, from their settings; derivatives by differences.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", chapter 4.
"""

from collections import Counter
from copy import deepcopy

from mpmath import MPContext

mp = MPContext()
mp.dps = 50
mpf = mp.mpf
STEP = mpf("1e-16")
NAMES = {"RBF": "rbf", "RationalQuadratic": "rational_quadratic", "Matern12": "matern12", "Matern32": "matern32"}
NAMES |= {"Matern52": "matern52", "Matern": "matern"}
NAMES |= {"Periodic": "periodic", "Linear": "linear", "Constant": "constant", "White": "white"}
PARAMETERS = ("variance", "shape", "lengthscale", "period")


def leaf_value(leaf, x, z, same):
    """k(x, z) of a covariance that is not composed; `same` if both are the same row."""
    kind, v = leaf["kind"], leaf["variance"]
    if kind == "Constant":
        return v
    if kind == "White":
        return v if same else mpf(0)
    columns = leaf.get("columns", range(len(x)))
    pairs = [(mpf(x[d]), mpf(z[d])) for d in columns]
    item = {n: leaf[n] if isinstance(leaf[n], list) else [leaf[n]] * len(pairs) for n in PARAMETERS if n in leaf}
    if kind == "Linear":
        return sum(variance * a * b for variance, (a, b) in zip(item["variance"], pairs, strict=True))
    if kind == "Periodic":
        terms = zip(item["lengthscale"], item["period"], pairs, strict=True)
        return v * mp.exp(
            -2 * sum((mp.sin(mp.pi * (a - b) / period) / length) ** 2 for length, period, (a, b) in terms)
        )
    r2 = sum(((a - b) / length) ** 2 for length, (a, b) in zip(item["lengthscale"], pairs, strict=True))
    if kind == "RBF":
        return v * mp.exp(-r2 / 2)
    if kind == "RationalQuadratic":
        return v * (1 + r2 / (2 * leaf["shape"])) ** (-leaf["shape"])
    r = mp.sqrt(r2)
    if kind == "Matern":  # a distance of 0 has no such formula, but a limit
        s = mp.sqrt(2 * mpf(leaf["nu"])) * r
        return v if r == 0 else v * 2 * (s / 2) ** leaf["nu"] * mp.besselk(leaf["nu"], s) / mp.gamma(leaf["nu"])
    if kind == "Matern12":
        return v * mp.exp(-r)
    if kind == "Matern32":
        return v * (1 + mp.sqrt(3) * r) * mp.exp(-mp.sqrt(3) * r)
    return v * (1 + mp.sqrt(5) * r + 5 * r2 / 3) * mp.exp(-mp.sqrt(5) * r)


def value(settings, x, z, same=False):
    """k(x, z), for settings whose parameters may be numbers of mpmath."""
    if "parts" not in settings:
        return leaf_value(settings, x, z, same)
    values = [value(part, x, z, same) for part in settings["parts"]]
    return mp.fsum(values) if settings["kind"] == "Sum" else mp.fprod(values)


def exact(settings):
    """The settings with the parameters as numbers of mpmath."""
    settings = deepcopy(settings)
    for leaf in leaves(settings):
        for name in PARAMETERS:
            if name in leaf:
                v = leaf[name]
                leaf[name] = [mpf(item) for item in v] if isinstance(v, list) else mpf(v)
    return settings


def leaves(settings):
    """The covariances that are not composed, from left to right."""
    if "parts" not in settings:
        return [settings]
    return [leaf for part in settings["parts"] for leaf in leaves(part)]


def matrix(settings, X, Z=None):
    """The matrix of covariances as a list of lists; of the rows X with themselves without Z."""
    settings, other = exact(settings), X if Z is None else Z
    return [[value(settings, x, z, Z is None and i == j) for j, z in enumerate(other)] for i, x in enumerate(X)]


def contraction(settings, X, weights, Z=None):
    """sum_ij weights_ij k(x_i, z_j), for settings with numbers of mpmath."""
    other = X if Z is None else Z
    pairs = [(i, j) for i in range(len(X)) for j in range(len(other)) if weights[i][j] != 0]
    return mp.fsum(mpf(float(weights[i][j])) * value(settings, X[i], other[j], Z is None and i == j) for i, j in pairs)


def gradient(settings, X, weights, Z=None):
    """Derivatives of the contraction in the logs of the free parameters, by their names."""
    kinds, seen, out = Counter(leaf["kind"] for leaf in leaves(settings)), Counter(), {}
    for index, leaf in enumerate(leaves(settings)):
        kind = leaf["kind"]
        seen[kind] += 1
        label = NAMES[kind] + (f"_{seen[kind]}" if kinds[kind] > 1 else "")
        for name in PARAMETERS:
            if name not in leaf or name in leaf.get("fixed", ()):
                continue
            for entry in range(len(leaf[name])) if isinstance(leaf[name], list) else [None]:
                moved = []
                for step in (STEP, -STEP):
                    other = exact(settings)
                    scale(leaves(other)[index], name, entry, mp.exp(step))
                    moved.append(contraction(other, X, weights, Z))
                suffix = "" if entry is None else f"[{entry}]"
                out[f"{label}.{name}{suffix}"] = float((moved[0] - moved[1]) / (2 * STEP))
    return out


def scale(leaf, name, entry, factor):
    """Multiply a parameter, or an entry of it, by a factor."""
    if entry is None:
        leaf[name] *= factor
    else:
        leaf[name][entry] *= factor


def input_gradient(settings, X, weights, Z=None):
    """Derivatives of the contraction in every number of X, which is both arguments without Z; list of lists."""
    settings, rows = exact(settings), [[mpf(float(v)) for v in row] for row in X]
    out = [[0.0] * len(rows[0]) for _ in rows]
    for i in range(len(rows)):
        for d in range(len(rows[0])):
            moved = []
            for step in (STEP, -STEP):
                other = [list(row) for row in rows]
                other[i][d] += step
                moved.append(contraction(settings, other, weights, Z))
            out[i][d] = float((moved[0] - moved[1]) / (2 * STEP))
    return out
