"""The bits of a fixed set of fits, one for each model, schedule and option.

    python tests/golden/bits.py [WORD ...]    print a hash of each fit whose name holds one of the words: run it before
                                              and after a change that must not alter results, and compare
    python tests/golden/bits.py --check       compare all with bits.json, on each instruction-set level; status 1 if any
                                              differs
    python tests/golden/bits.py --write       write bits.json anew, after a change of results that CHANGELOG.md explains

A hash is of every number and setting that a posterior would save. Fits without BLAS and without NumPy's transcendental
functions are "everywhere" in the table: they have the same bits as long as the C compiler keeps to IEEE 754. The others
have a record for each combination of NumPy, SciPy, BLAS and its core that was tried.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy

import cavity
from cavity import covariances, likelihoods
from cavity._core import BASELINE_VARIANT, CPU_LEVELS, variants
from cavity.base.build_description import describe_blas

TABLE = Path(__file__).with_name("bits.json")
OTHERS = (  # machines that this one can pretend to be
    {"OPENBLAS_CORETYPE": "Haswell"},
    {"OPENBLAS_CORETYPE": "Prescott"},
    {"NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4"},
)


def problems():
    """Yield (name, function without arguments that returns a posterior), one per model, schedule and option."""
    rng = np.random.default_rng(7)
    X = np.column_stack([np.ones(300), rng.normal(size=(300, 4))])
    f = X @ [0.3, 1.0, -0.5, 0.0, 0.2]
    labels = (f + rng.normal(size=300) > 0).astype(float)
    real, counts = f + 0.3 * rng.standard_t(3, 300), rng.poisson(np.exp(0.5 * f))
    weights = rng.integers(0, 3, 300).astype(float)
    probit = likelihoods.Probit()

    def glm(likelihood, y, rows=slice(None), prior=2.0, approximation="full", **options):
        return lambda: cavity.GLM(likelihood, prior_variance=prior, approximation=approximation, intercept=False).fit(
            X[rows], y[rows], **options
        )

    yield "glm probit parallel", glm(probit, labels)
    yield "glm probit sequential", glm(probit, labels, schedule="sequential")
    yield "glm probit stochastic", glm(probit, labels, schedule="stochastic")
    yield "glm probit adf", glm(probit, labels, method="adf")
    yield "glm probit diagonal", glm(probit, labels, approximation="diagonal")
    yield "glm probit diagonal adf", glm(probit, labels, approximation="diagonal", method="adf")
    yield "glm logit weights", glm(likelihoods.Logit(), labels, sample_weight=weights)
    yield "glm logit damped power", glm(likelihoods.Logit(), labels, damping=0.7, power=0.5)
    yield "glm poisson offset", glm(likelihoods.Poisson(), counts, offset=0.1 * X[:, 1])
    yield "glm negative binomial", glm(likelihoods.NegativeBinomial(2.0), counts)
    yield "glm student-t learn", glm(likelihoods.StudentT(4.0, 0.3), real, learn="prior_variance")
    yield "glm laplace ard", glm(likelihoods.Laplace(0.3), real, prior=np.full(5, 2.0), learn="prior_variance")
    yield "glm clutter", glm(likelihoods.Clutter(0.1, 25.0, 0.1), real)
    yield "glm wide", glm(probit, labels, rows=slice(3))
    yield "glm step double loop", glm(likelihoods.Step(), labels, rows=slice(40))
    yield "glm update", lambda: glm(probit, labels, rows=slice(200))().update(X[200:], labels[200:])

    wide = rng.normal(size=(200, 3))
    for schedule in ("sequential", "parallel"):
        yield f"clutter {schedule}", lambda s=schedule: cavity.Clutter().fit(real, schedule=s)
        yield f"clutter batch {schedule}", lambda s=schedule: cavity.Clutter().fit(wide.T[..., None], schedule=s)
    yield "clutter power", lambda: cavity.Clutter().fit(wide, power=0.5, schedule="parallel")
    yield "clutter adf update", lambda: cavity.Clutter().fit(real[:200], method="adf").update(real[200:])

    rbf = covariances.RBF(1.0, 1.0)

    def process(likelihood, y, n=80, kernel=rbf, **options):
        return lambda: cavity.GaussianProcess(kernel, likelihood, mean="constant").fit(X[:n, 1:3], y[:n], **options)

    composed = covariances.Matern32(1.0, [1.0, 2.0]) + covariances.Linear(0.5)
    yield "gp gaussian", process(likelihoods.Gaussian(0.1), real)
    yield "gp composed", process(likelihoods.Gaussian(0.1), real, kernel=composed, noise_variance=0.01 + weights[:80])
    yield "gp probit", process(probit, labels)
    yield "gp student-t parallel", process(likelihoods.StudentT(4.0, 0.3), real, schedule="parallel", learn=False)
    yield "gp update", lambda: process(likelihoods.Gaussian(0.1), real, n=60)().update(X[60:80, 1:3], real[60:80])

    def stream(likelihood, y, alpha=0.0, n_inducing=20, **options):
        model = cavity.StreamingGP(covariances.RBF(1.0, [1.0, 1.0]), likelihood, n_inducing=n_inducing, alpha=alpha)

        def run():
            state = model.fit(X[:150, 1:3], y[:150], **options)
            state.update(X[150:250, 1:3], y[150:250])
            for row in range(250, 260):
                state.update(X[row : row + 1, 1:3], y[row : row + 1])
            return state

        return run

    yield "stream vfe", stream(likelihoods.Gaussian(0.1), real)
    yield "stream power ep", stream(likelihoods.Gaussian(0.1), real, alpha=0.5, n_inducing=10)
    yield "stream fixed settings", stream(likelihoods.Gaussian(0.1), real, learn=False)
    yield "stream probit", stream(probit, labels, alpha=1.0)

    table = np.vstack([rng.normal(size=(150, 2)), [3.0, 1.0] + rng.normal(size=(150, 2)) @ [[1.0, 0.6], [0.0, 0.5]]])
    for kind in ("full", "tied", "diag", "spherical"):
        yield f"mixture {kind}", lambda k=kind: cavity.GaussianMixture(3, covariance=k).fit(table, n_threads=2)
    sticks = cavity.GaussianMixture(4, weights="stick_breaking")
    yield "mixture sticks moves", lambda: sticks.fit(table, moves=True, sample_weight=weights)
    yield "mixture stochastic", lambda: sticks.fit_stochastic(table, batch_size=50, n_epochs=3)
    yield "mixture update merge", lambda: sticks.fit(table[:200]).update(table[200:250]).forget(0.5)
    yield "mixture selected", lambda: cavity.select_components(sticks, table, range(1, 4)).best
    numbers = table[:, 0]
    yield "unit mixture", lambda: cavity.UnitMixture(3, 4.0).fit(numbers, n_threads=2)
    yield "unit mixture stochastic", lambda: cavity.UnitMixture(3, 4.0).fit_stochastic(numbers, batch_size=50)

    groups = {"g": np.arange(300) % 12, "h": np.arange(300) // 40}
    crossed = cavity.MixedGLM([cavity.RandomEffects("g", [1]), cavity.RandomEffects("h")], "probit")
    yield "mixed crossed", lambda: crossed.fit(X, labels, groups=groups)

    yield "linear regression", lambda: cavity.LinearRegression().fit(X, real)
    yield "logistic regression", lambda: cavity.LogisticRegression().fit(X, labels)
    precision = np.cov(X[:, 1:].T) + np.eye(4)
    yield "factorized", lambda: cavity.FactorizedGaussian(np.zeros(4), precision=precision).fit()


def digest(posterior):
    """Hash every array and setting of a posterior."""
    arrays, settings = posterior.to_arrays()
    total = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()[:16]


def main():
    """Print, check or write hashes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="of the names of fits")
    parser.add_argument("--check", action="store_true", help="compare with the table")
    parser.add_argument("--write", action="store_true", help="replace the table")
    options = parser.parse_args()
    if options.check:
        return check()
    if options.write:
        return write()
    for name, result in hashes(options.words).items():
        print(f"{result}  {name}")
    return 0


def hashes(message=()):
    """Return the hashes of the fits whose names hold one of the words, of all without any."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: digest(fit()) for name, fit in problems() if not message or any(word in name for word in message)}


def elsewhere(**settings):
    """Return the hashes of all fits in another process with environment variables of its own."""
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=True)
    return {line[18:]: line[:16] for line in done.stdout.splitlines()}


def here():
    """Words for what the bits of linear algebra depend on."""
    return f"NumPy {np.__version__}, SciPy {scipy.__version__}, {describe_blas()}"


def check():
    """Compare the levels of this machine with each other and with the table; 1 if a bit differs."""
    result, table = hashes(), json.loads(TABLE.read_text(encoding="utf-8"))
    expected = table["everywhere"] | table["with"].get(here(), {})
    wrong = {f"{name}, which the table has otherwise" for name in expected if result.get(name) != expected[name]}
    levels = [level for level in (BASELINE_VARIANT, *CPU_LEVELS) if level in variants("dense")]
    for level in levels:
        other = elsewhere(CAVITY_LEVEL=level)
        wrong |= {f"{name} at level {level}" for name in result if other[name] != result[name]}
    print(f"{len(result)} fits at levels {', '.join(levels)}; {len(expected)} of them in the table for {here()}")
    print(*(f"other bits: {item}" for item in sorted(wrong)), sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


def write():
    """Write the table: what is the same on all machines that this one can pretend to be, and the rest."""
    result, others = hashes(), [elsewhere(**settings) for settings in OTHERS]
    same = {name for name in result if all(other[name] == result[name] for other in others)}
    table = {
        "everywhere": {name: result[name] for name in result if name in same},
        "with": {here(): {name: result[name] for name in result if name not in same}},
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
