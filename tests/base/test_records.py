"""Files of hostile or damaged posteriors: refused in words that name the file and the part, or right; never a crash."""

import io
import json
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.glms import GLM
from support.saved_files import read_contents

import cavity
from cavity import covariances, distributions, likelihoods
from cavity.base import records
from cavity.base.records import Array, Made, Nullable, Record
from cavity.models.saved import SAVED_KINDS, rebuild

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 2))
Y = X @ [1.0, -1.0] + RNG.normal(size=7)
LABELS = (Y > 0).astype(float)
GROUPS = RNG.normal(size=(20, 2)) + np.where(RNG.random((20, 1)) < 0.5, -3.0, 3.0)


def covariance():
    return 2.0 * covariances.RBF(1.3, [1.0, 0.7]) + covariances.Linear(0.1, columns=[0])


class Factors(cavity.mean_field.Model):
    """A model whose factors are of all families, and stay what they are."""

    n_samples = 3

    def initial(self):
        d = distributions
        return {
            "a": d.Gaussian(0.1, 1.0),
            "b": d.Gamma(2.0, [1.0, 2.0]),
            "c": d.Wishart(3.0, np.eye(2)),
            "d": d.NormalWishart([0.0, 1.0], 1.0, 3.0, np.eye(2)),
            "e": d.Dirichlet([1.0, 2.0]),
            "f": d.Categorical([0.5, 0.5]),
            "g": d.MultivariateGaussian([0.0, 1.0], np.eye(2)),
            "h": d.SphericalGaussian(np.zeros(2), 1.0),
        }

    def update(self, name, q):
        return q[name]

    def expected_log_joint(self, q):
        return -1.0


def mixture(kind, **settings):
    return cavity.GaussianMixture(2, covariance=kind, **settings).fit(GROUPS)


def process(likelihood=None, y=Y, **data):
    model = cavity.GaussianProcess(covariance(), likelihood or likelihoods.Gaussian())
    return model.fit(X, y, learn=False, **data)


def chain(likelihood=None, y=Y, **data):
    model = cavity.GaussianProcess(covariances.Matern32(), likelihood or likelihoods.Gaussian(), method="chain")
    return model.fit(X[:, :1], y, learn=False, **data)


def streaming(**settings):
    return cavity.StreamingGP(covariance(), **settings)


EFFECTS_OF = {"g": ["a", "b", "a", "b", "c", "a", "b"], "h": [1, 2, 2, 1, 2, 1, 1]}
EFFECT_COVARIANCES = {"1 + x1 | g": [[1.0, 0.3], [0.3, 0.5]], "h": 0.5}
MIXED = {"intercept": True, "prior_variance": 1.0, "effect_covariances": EFFECT_COVARIANCES}
POSTERIORS = {
    "clutter": lambda: cavity.Clutter().fit(X[:, 0]),
    "clutter, points": lambda: cavity.Clutter(prior_mean=[0.1, 0.2]).fit(X),
    "clutter, batch": lambda: cavity.Clutter().fit(RNG.normal(size=(3, 4, 1))),
    "clutter, power": lambda: cavity.Clutter().fit(X[:, 0], power=0.5),
    "clutter, updated": lambda: cavity.Clutter().fit(X).update(X[:3]),
    "clutter, updated batch": lambda: (
        cavity.Clutter().fit(RNG.normal(size=(3, 4, 1))).update(RNG.normal(size=(3, 2, 1)))
    ),
    "factorized": lambda: cavity.FactorizedGaussian([0.0, 1.0, 2.0], np.eye(3) + 0.1, [[0, 2], [1]]).fit(),
    "gaussian_mixture": lambda: mixture("full"),
    "gaussian_mixture, tied": lambda: mixture("tied", weights="stick_breaking"),
    "gaussian_mixture, diag": lambda: mixture("diag"),
    "gaussian_mixture, spherical": lambda: mixture("spherical").forget(0.5),
    "gaussian_process": process,
    "gaussian_process, noise": lambda: process(noise_variance=np.ones(7), sample_weight=[2.0, 0, 1, 1, 1, 1, 1]),
    "gaussian_process, negative": lambda: process(likelihoods.StudentT(3.0, 0.1), 10.0 * Y),
    "gaussian_process, bounds": lambda: process(likelihoods.Interval(0.1), np.column_stack([Y, Y + 1.0])),
    "gaussian_process, labels": lambda: process(likelihoods.Probit(), LABELS),
    "gaussian_process_chain": lambda: chain(likelihoods.StudentT(0.1, 3.0), 10.0 * Y),
    "gaussian_process_chain, noise": lambda: chain(noise_variance=np.ones(7), sample_weight=[2.0, 0, 1, 1, 1, 1, 1]),
    "gaussian_process_end": lambda: chain(likelihoods.StudentT(0.1, 3.0), 10.0 * Y).keep_end(),
    "glm": lambda: GLM(likelihoods.Probit()).fit(X, LABELS),
    "glm, wide": lambda: GLM(likelihoods.Probit(), prior_mean=np.ones(9)).fit(RNG.normal(size=(4, 9)), [1, 0, 1, 0]),
    "glm, matrix": lambda: GLM(likelihoods.Gaussian(0.3), prior_variance=np.eye(2) + 0.1).fit(X, Y),
    "glm, updated": lambda: GLM(likelihoods.Probit()).fit(X, LABELS).update(X, LABELS),
    "glm, diagonal": lambda: GLM(likelihoods.Probit(), approximation="diagonal").fit(X, LABELS),
    "linear_regression": lambda: cavity.LinearRegression(intercept=False, ard=True).fit(X, Y),
    "linear_regression, known": lambda: cavity.LinearRegression(
        intercept=False, prior_variance=[1.0, 2.0], noise_variance=1.0
    ).fit(X, Y),
    "logistic_regression": lambda: cavity.LogisticRegression(intercept=False).fit(X, LABELS),
    "many": lambda: cavity.GLM("gaussian", intercept=True, standardize=True).fit_many(X, np.column_stack([Y, Y[::-1]])),
    "many, mixed": lambda: cavity.MixedGLM("g", "probit", **MIXED | {"effect_covariances": None}).fit_many(
        X, np.column_stack([LABELS, LABELS[::-1]]), groups={"g": EFFECTS_OF["g"]}
    ),
    "mixed": lambda: cavity.MixedGLM([cavity.RandomEffects("g", 0), "h"], "probit", **MIXED).fit(
        X, LABELS, groups=EFFECTS_OF
    ),
    "streaming_gp": lambda: streaming().fit(X, Y, learn=False),
    "streaming_gp, given": lambda: streaming(inducing=X[:3]).fit(X, Y, learn=False),
    "streaming_gp, labels": lambda: streaming(likelihood=likelihoods.Probit()).fit(X, LABELS, learn=False),
    "streaming_gp, empty": lambda: streaming().fit(X[:0], Y[:0]),
    "mean_field": lambda: cavity.mean_field.fit(Factors(), max_iter=2),
    "unit_mixture": lambda: cavity.UnitMixture(2).fit(Y),
    "unit_mixture, unequal": lambda: cavity.UnitMixture(
        2, prior_variance=[1.0, 2.0], prior_mean=[0.0, 1.0], weights=[0.3, 0.7]
    ).fit(Y),
}


@cache
def saved(name):
    """Return the bytes of the file of a posterior, its arrays, and its header."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.npz"
        POSTERIORS[name]().save(path)
        header, arrays = read_contents(path)
        return path.read_bytes(), arrays, header


def coded(header):
    return np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)


def uses(posterior):
    """Return functions that ask a posterior for numbers, as those who use it do."""
    kind, X_new, y_new, p = posterior.kind, X[:2] + 0.1, Y[:2], posterior
    draws = [lambda: p.sample(2, 0)]
    if kind == "clutter":
        shape = p._sites.site_tau.shape
        x = y_new if isinstance(p.mean, float) else np.ones((*shape[:-2], 2, shape[-1]))
        return [lambda: p.log_density(x), lambda: p.clutter_probability(x, fitted=False)]
    if kind == "factorized":
        far = -np.finfo(float).max  # of nothing the log is -inf
        rows = [lambda: np.maximum(p.log_density(np.ones((2, 3))), far)]
        return [*rows, lambda: p.entropy(), lambda: p.variance, *draws]
    if kind == "gaussian_mixture":
        rows = [lambda: p.log_density(X_new), lambda: p.responsibilities(X_new)]
        return [*rows, lambda: p.weights, lambda: p.covariance, lambda: p.component_covariances(), *draws]
    if kind == "mixed":
        groups = {name: column[:2] for name, column in EFFECTS_OF.items()}
        moments = [lambda: p.predict(X_new, groups=groups), lambda: p.effects("h").columns["mean"]]
        return [*moments, lambda: p.summary().columns["mean"], lambda: p.joint([("h", 1)])[1], *draws]
    if kind == "many":  # nan stands for a response without a fit
        name = p.coefficient_names[-1]
        return [lambda: np.nan_to_num(p.table(name).columns["mean"]), lambda: p.of(0).mean, lambda: p.covariance(0)[:0]]
    if kind in ("gaussian_process", "streaming_gp"):
        moments = [lambda: p.predict(X_new), lambda: [item.ravel() for item in p.predict_covariance(X_new)]]
        return [*moments, lambda: p.mean, lambda: p.covariance, lambda: p.sample(X_new, 1, 0)]
    if kind == "gaussian_process_chain":
        X_new = X_new[:, :1]
        return [lambda: p.predict(X_new), lambda: p.mean, lambda: p.sample(X_new, 1, 0)]
    if kind == "gaussian_process_end":
        X_new = p.time + np.abs(X_new[:, :1])
        return [lambda: p.predict(X_new), lambda: p.state_mean, lambda: p.sample(X_new, 1, 0)]
    if kind == "glm":
        X_new = np.ones((2, len(p.mean)))
        matrix = [lambda: p.covariance] if p.model.approximation == "full" else []
        return [lambda: p.predict(X_new), *matrix, *draws]
    if kind == "linear_regression":
        return [lambda: p.predict(X_new), lambda: p.variance, lambda: p.covariance, *draws]
    if kind == "logistic_regression":
        return [lambda: p.predict_proba(X_new), lambda: p.variance, lambda: p.covariance, *draws]
    if kind == "mean_field":
        return [factor.entropy for factor in p.factors.values()]
    return [lambda: p.log_density(y_new), lambda: p.responsibilities(y_new), *draws]


def attempt(read):
    """Return (what is read, None), or (None, the words of the ValueError)."""
    try:
        return read(), None
    except ValueError as error:
        return None, str(error)


def outcome(read, arrays, header):
    """Return "refused" or "taken"; what is refused has to be refused in words, what is taken has to be of use."""
    posterior, message = attempt(lambda: read(arrays, header))
    if posterior is None:
        settings = header["settings"] if isinstance(header["settings"], dict) else {}
        parts = (*arrays, *settings, "array", "setting", "header")
        assert any(part.split(".")[-1] in message for part in parts), message
        assert "pickle" not in message
        return "refused"
    repr(posterior)
    for use in uses(posterior):
        try:
            with np.errstate(all="ignore"):
                numbers = use()
        except (ValueError, OverflowError):  # numbers that nobody fitted may say nothing, in words
            continue
        assert all(np.all(np.isfinite(part)) for part in (numbers if isinstance(numbers, tuple | list) else [numbers]))
    return "taken"


ABSURD = (1e300, -1e300, 1e150, 1e-150, 1e-300)


def changed_arrays(array):
    """Yield what could be in a file in place of an array, with a word for it."""
    yield "empty", array[:0] if array.ndim else np.zeros(0, dtype=array.dtype)
    yield "no columns", array[..., :0] if array.ndim else np.zeros((0, 0), dtype=array.dtype)
    yield "tiled", np.tile(array, (400,) + (1,) * max(array.ndim - 1, 0))
    yield "tiled columns", np.tile(array, 3)
    yield "cut", array[: len(array) - 1] if array.ndim else array
    yield "flat", array.reshape(-1)
    yield "deeper", array[None]
    yield "deeper inside", array[..., None]
    yield "turned", np.ascontiguousarray(array.T)
    yield "by columns", np.asfortranarray(array)
    for dtype in ("float32", "int64", "bool", "complex128", "uint8", "U3", ">f8", "datetime64[s]", "S3"):
        with np.errstate(all="ignore"):
            try:
                yield dtype, array.astype(dtype)
            except (ValueError, TypeError):
                yield dtype, np.zeros(array.shape, dtype=dtype)
    if array.dtype.kind in "fi":
        yield "negative", -array
        yield "zeros", np.zeros_like(array)
    if array.dtype.kind == "f":
        for value in (np.nan, np.inf, -np.inf):
            yield str(value), np.full_like(array, value)
        for value in ABSURD:
            yield f"all {value}", np.full_like(array, value)
            other = array.copy()
            other.reshape(-1)[:1] = value
            yield f"one {value}", other
    if array.dtype.kind == "i":
        yield "huge", np.full_like(array, 2**62)


DEEP = json.loads("[" * 900 + "]" * 900)
WRONG = [
    "text",
    "",
    [],
    [1.0],
    {},
    {"kind": 1},
    None,
    True,
    float("nan"),
    float("inf"),
    -1,
    0,
    10**400,
    1.5,
    [["x"]],
    DEEP,
]


def changed_settings(value):
    """Yield what could be in a file in place of an object, one entry of it changed or missing."""
    yield from WRONG
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, old in list(entries):
        rest = value.copy()
        del rest[key]
        yield rest
        for new in changed_settings(old):
            other = value.copy()
            other[key] = new
            yield other
    if isinstance(value, dict):
        yield value | {"unheard-of": 1}


def from_memory(arrays, header):
    """Return the posterior of these arrays and this header, without a file."""
    return rebuild(header["kind"], arrays, header["settings"])


def through(path):
    """Return a function that does the same by way of a file; what it refuses, it refuses naming the file."""

    def read(arrays, header):
        np.savez(path, header=coded(header | {"arrays": [*arrays]}), **arrays)
        posterior, message = attempt(lambda: cavity.load(path))
        if posterior is None:
            assert path.name in message
            raise ValueError(message)
        return posterior

    return read


@pytest.mark.parametrize("name", POSTERIORS)
def test_what_was_saved_comes_back(name, tmp_path):
    _, arrays, header = saved(name)
    path = tmp_path / "file.npz"
    first = {key: header[key] for key in ("kind", "cavity", "settings")} | {"format": 1}  # that had these arrays, too
    for item in (first, header):
        np.savez(path, header=coded(item), **arrays)
        posterior = cavity.load(path)
        restored, settings = posterior.to_arrays()
        assert restored.keys() == arrays.keys()
        for key, array in arrays.items():
            assert np.asarray(restored[key]).dtype == array.dtype
            assert np.asarray(restored[key]).tobytes() == array.tobytes(), key
        assert json.loads(json.dumps(settings)) == header["settings"]


def attack_arrays(name, read):
    """Read a posterior with each array changed in each way."""
    _, arrays, header = saved(name)
    free = {"_loo", "state_loo", "status", "converged", "rows_idle", "rows_spare"}  # any text or flags; densities of 0
    free |= {"mean"} if name in ("clutter", "clutter, power") else set()  # of numbers, or of points in one dimension
    if name.startswith("many"):  # nan, and any text
        free |= {"mean", "covariance", "prior_mean", "prior_sd", "parameters", "log_evidence", "names"}
    free |= {"factor_e.concentration", "factor_h.tau"}  # which alone say how long they are
    shapes = ("tiled", "deeper", "deeper inside", "float32", "bool")
    for key, array in arrays.items():
        for word, other in (("gone", None), *changed_arrays(array)):
            if other is not None and other.dtype == array.dtype and np.array_equal(other, array):
                continue
            rest = {other_key: value for other_key, value in arrays.items() if other_key != key}
            taken = outcome(read, rest if other is None else rest | {key: other}, header) == "taken"
            needed = not key.startswith("trace_") and key not in free
            assert not (taken and needed and word in shapes), (key, word)
            assert not (taken and needed and word == "nan" and key not in ("_tau", "_rho")), key
    with pytest.raises(ValueError, match="array 'more' is not known"):
        read(arrays | {"more": np.zeros(3)}, header)


def attack_settings(name, read):
    """Read a posterior with each setting changed in each way."""
    _, arrays, header = saved(name)
    for changed in changed_settings(header["settings"]):
        if changed != header["settings"]:
            outcome(read, arrays, header | {"settings": changed})


EACH = [pytest.param(name, marks=pytest.mark.long if "," in name else ()) for name in POSTERIORS]  # one a kind, or all


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", EACH)
def test_every_array_and_setting_is_checked(name, one_blas_thread):
    attack_arrays(name, from_memory)
    attack_settings(name, from_memory)


@pytest.mark.long
@pytest.mark.parametrize("name", POSTERIORS)
def test_files_are_checked_like_what_is_in_them(name, tmp_path, one_blas_thread):
    attack_arrays(name, through(tmp_path / "changed.npz"))
    attack_settings(name, through(tmp_path / "changed.npz"))


ONE_OF_EACH = [name for name in POSTERIORS if "," not in name]


def same(posterior, name):
    """Whether a posterior is the one that was saved, bit by bit."""
    restored, settings = posterior.to_arrays()
    _, arrays, header = saved(name)
    alike = restored.keys() == arrays.keys() and json.loads(json.dumps(settings)) == header["settings"]
    return alike and all(np.asarray(restored[key]).tobytes() == array.tobytes() for key, array in arrays.items())


def attack_bytes(name, path, versions):
    """Load files with other bytes: each is refused, naming the file, or the same posterior."""
    for data in versions:
        path.write_bytes(data)
        posterior, message = attempt(lambda: cavity.load(path))
        if posterior is None:
            assert path.name in message
            assert "pickle" not in message
        else:
            assert same(posterior, name)


def flipped(data, places, mask):
    for place in places:
        yield data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]


def test_persistence_knows_each_kind_that_is_tested():
    assert set(ONE_OF_EACH) == set(SAVED_KINDS)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_damaged_files(name, tmp_path):
    data = saved(name)[0]
    directory = data.rindex(b"PK\x05\x06")
    places = [*range(len(name), len(data), 89), *range(directory, len(data), 2)]
    attack_bytes(name, tmp_path / "file.npz", flipped(data, places, 0xFF))
    attack_bytes(name, tmp_path / "file.npz", (data[:size] for size in range(0, len(data), 331)))


@pytest.mark.long
@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("mask", [0x01, 0x08, 0x80, 0xFF])
def test_every_damaged_byte(name, mask, tmp_path):
    data = saved(name)[0]
    attack_bytes(name, tmp_path / "file.npz", flipped(data, range(len(data)), mask))


@pytest.mark.long
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_truncation(name, tmp_path):
    data = saved(name)[0]
    attack_bytes(name, tmp_path / "file.npz", (data[:size] for size in range(len(data))))


def member(header, data=b"", *, magic=b"\x93NUMPY\x01\x00"):
    """Return the bytes of a .npy file with that header."""
    return magic + len(header).to_bytes(2, "little") + header + data


def archive(path, parts, **options):
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, data in parts:
            file.writestr(name, data)


def plain(name="glm"):
    """Return the members of a good file."""
    with zipfile.ZipFile(io.BytesIO(saved(name)[0])) as file:
        return {item: file.read(item) for item in file.namelist()}


def spoilt(**changes):
    """Return the members of a good file, some of them changed."""
    return [*(plain() | {f"{name}.npy": data for name, data in changes.items()}).items()]


FLOATS = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }"


@pytest.mark.parametrize(
    "data",
    [
        member(FLOATS.replace(b"(2,)", b"(1000000000000,)") + b"\n"),
        member(FLOATS.replace(b"(2,)", b"(1000000000000, 0)") + b"\n"),
        member(FLOATS.replace(b"(2,)", b"(99999999999999999999, 0)") + b"\n"),
        member(FLOATS.replace(b"(2,)", b"(-1,)") + b"\n", bytes(16)),
        member(FLOATS.replace(b"(2,)", b"(1 + 1,)") + b"\n", bytes(16)),
        member(FLOATS.replace(b"<f8", b"|O") + b"\n", bytes(16)),
        member(FLOATS.replace(b"<f8", b"<f3") + b"\n", bytes(6)),
        member(FLOATS.replace(b"<f8", b"<U0") + b"\n"),
        member(FLOATS.replace(b"<f8", b"<U4000000000") + b"\n"),
        member(FLOATS.replace(b"<f8", b"<U1") + b"\n", b"\xff" * 8),
        member(FLOATS.replace(b"<f8", b"|b1") + b"\n", b"\x01\x02"),
        member(FLOATS[:30], bytes(16)),
        member(b"(" * 60_000, bytes(16)),
        member(FLOATS + b"\n", bytes(15)),
        member(FLOATS + b"\n", bytes(17)),
        member(FLOATS + b"\n", bytes(16), magic=b"\x93NUMPY\x02\x00"),
        b"",
        b"\x93NUMPY",
    ],
)
def test_absurd_arrays_are_refused_by_name(data, tmp_path):
    path = tmp_path / "file.npz"
    archive(path, spoilt(mean=data))
    with pytest.raises(ValueError, match=r"file.npz .*array 'mean'"):
        cavity.load(path)


def test_archives_of_other_makes_are_refused(tmp_path):
    path, parts = tmp_path / "file.npz", plain()
    archive(path, parts.items(), compression=zipfile.ZIP_DEFLATED)  # a small file could become a huge one
    with pytest.raises(ValueError, match=r"file.npz .*compressed"):
        cavity.load(path)
    with pytest.warns(UserWarning, match="Duplicate"):
        archive(path, [*parts.items(), ("mean.npy", parts["mean.npy"])])
    with pytest.raises(ValueError, match="array 'mean' is there twice"):
        cavity.load(path)
    archive(path, [(name, data) for name, data in parts.items() if name != "header.npy"])
    with pytest.raises(ValueError, match="no header"):
        cavity.load(path)
    archive(path, [(name, data) for name, data in parts.items() if name != "trace_change.npy"])
    with pytest.raises(ValueError, match="do not have the same arrays: 'trace_change'"):
        cavity.load(path)
    data = bytearray(saved("glm")[0])
    entry = data.index(b"PK\x01\x02")
    data[entry + 20 : entry + 28] = (2**31).to_bytes(4, "little") * 2  # sizes in the directory
    path.write_bytes(data)
    with pytest.raises(ValueError, match="larger than it is"):
        cavity.load(path)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"kind": ' * 900 + "1" + "}" * 900,
        "9" * 10_000,
        "null",
        "[]",
        "{}",
        '{"kind": "\\ud800", "format": 2, "cavity": "0", "settings": {}}',
        '{"kind": ["glm"], "format": 2, "cavity": "0", "settings": {}}',
        '{"kind": "glm", "format": true, "cavity": "0", "settings": {}}',
        '{"kind": "glm", "format": "2", "cavity": "0", "settings": {}}',
        '{"kind": "glm", "format": 0, "cavity": "0", "settings": {}}',
        '{"kind": "glm", "format": 2, "cavity": "0", "settings": []}',
        '{"kind": "glm", "format": 2, "cavity": "0", "settings": {}, "more": 1}',
        '{"kind": "unheard-of", "format": 2, "cavity": "0", "settings": {}}',
        '{"kind": "glm", "format": 2, "cavity": "0", "settings": {}}',
        '{"kind": {}, "format": 3}',
    ],
)
def test_absurd_headers_are_refused(text, tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, header=np.frombuffer(text.encode(), dtype=np.uint8), **saved("glm")[1])
    with pytest.raises(ValueError, match=r"file.npz"):
        cavity.load(path)


def test_a_header_of_another_dtype_is_refused(tmp_path):
    for header in (np.zeros(3), np.array("{}"), np.zeros((2, 2), dtype=np.uint8)):
        np.savez(tmp_path / "file.npz", header=header, **saved("glm")[1])
        with pytest.raises(ValueError, match="file.npz .*damaged"):
            cavity.load(tmp_path / "file.npz")


def test_a_missing_file_is_not_a_damaged_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        cavity.load(tmp_path / "nothing.npz")
    with pytest.raises(IsADirectoryError):
        cavity.load(tmp_path)


# ------------------------------------------------------------------------------------------ fields of later versions


def test_fields_that_are_allowed():
    latent = ("glm", "gaussian_process", "streaming_gp")
    for name in (*latent, "linear_regression", "logistic_regression", "gaussian_mixture"):
        _, arrays, header = saved(name)
        more = {"columns": ["x", "z"]}
        if name in latent:
            more["classes"] = ["no", "yes"]
        assert outcome(from_memory, arrays, header | {"settings": header["settings"] | more}) == "taken"
        for wrong in (["x"], ["x", 1], "xz", {"x": 1}):
            other = header | {"settings": header["settings"] | {"columns": wrong}}
            assert outcome(from_memory, arrays, other) == "refused", (name, wrong)
    _, arrays, header = saved("glm")
    arrays = arrays | {"centre": np.zeros(1), "spread": np.ones(1)}
    settings = header["settings"] | {"intercept": True, "columns": ["x"], "classes": None}
    assert outcome(from_memory, arrays, header | {"settings": settings}) == "taken"
    assert outcome(from_memory, arrays, header | {"settings": settings | {"intercept": False}}) == "refused"
    assert outcome(from_memory, arrays | {"spread": np.zeros(1)}, header | {"settings": settings}) == "refused"
    del arrays["spread"]
    assert outcome(from_memory, arrays, header | {"settings": settings}) == "refused"


# ------------------------------------------------------------------------------------------ the language itself


def made(axes, *shapes, **options):
    """Check arrays a, b, ... of these shapes against axes, one string each; return the sizes."""
    table = {chr(97 + i): Array(item, **options) for i, item in enumerate(axes)}
    seen = {}
    record = Record(table, {}, (lambda arrays, settings, sizes: seen.update(sizes),))
    records.check(record, {chr(97 + i): np.ones(shape) for i, shape in enumerate(shapes)}, {})
    return seen


def test_axes():
    assert made(["N D", "N", "5", "()"], (3, 2), (3,), (5,), ()) == {"N": 3, "D": 2}
    assert made(["K D", "K-1 2"], (1, 2), (0, 2)) == {"K": 1, "D": 2}
    assert made(["B? N", "B?", "N B?"], (4, 3), (4,), (3, 4)) == {"B?": (4,), "N": 3}
    assert made(["B? N", "B?", "N B?"], (3,), (), (3,)) == {"B?": (), "N": 3}
    assert made(["S* K", "S*"], (5, 4, 3), (5, 4)) == {"S*": (5, 4), "K": 3}
    assert made(["K", "K 1 | K D"], (2,), (2, 3)) == {"K": 2, "D": 3}
    assert made(["m D"], (0, 3)) == {"m": 0, "D": 3}
    for axes, shapes in (
        (["N", "N"], [(3,), (4,)]),
        (["N"], [(0,)]),
        (["N"], [()]),
        (["()"], [(1,)]),
        (["K", "K-1 2"], [(3,), (3, 2)]),
        (["B? N", "B?"], [(4, 3), ()]),
        (["B? N", "B?"], [(3,), (4,)]),
        (["B? N"], [(5, 4, 3)]),
        (["S* K", "S*"], [(5, 3), (4,)]),
        (["K 1 | K D", "D"], [(2, 3), (1,)]),
    ):
        with pytest.raises(ValueError, match=r"array '[ab]' must have axes"):
            made(axes, *shapes)


@pytest.mark.parametrize(
    ("domain", "good", "bad"),
    [
        ("finite", [1.0, -1.0], [1.0, np.inf]),
        ("known", [np.inf, 0.0], [np.nan, 0.0]),
        ("nonnegative", [0.0, 1.0], [-1e-300, 1.0]),
        ("positive", [1e-300, 1.0], [0.0, 1.0]),
        ("shares", [0.25, 0.75], [0.5, 0.6]),
        ("shares", [0.0, 1.0], [-0.5, 1.5]),
        ("log shares", [-np.inf, 0.0], [0.0, 0.0]),
        ("triangle", [[1.0, 0.0], [5.0, 2.0]], [[1.0, 0.0], [5.0, 0.0]]),
        ("symmetric", [[2.0, 1.0], [1.0, 2.0]], [[2.0, 1.0], [0.9, 2.0]]),
        ("symmetric", [[2.0, 1.0], [1.0, 2.0]], [[2.0, np.nan], [np.nan, 2.0]]),
    ],
)
def test_domains(domain, good, bad):
    record = Record({"a": Array("S*", domain)}, {})
    records.check(record, {"a": np.array(good)}, {})
    with pytest.raises(ValueError, match="array 'a' must be"):
        records.check(record, {"a": np.array(bad)}, {})


def test_settings():
    form = {
        "n": records.integer(1, "N"),
        "x?": Nullable(records.POSITIVE_REAL),
        "pair": [records.FINITE_REAL, records.one_of("a", "b")],
        "inner": Made(lambda given: SimpleNamespace(**given), {"flag": records.TRUTH_VALUE}, vars),
    }
    record = Record({"a": Array("N")}, form)
    good = {"n": 2, "x": 1, "pair": [1, "a"], "inner": {"flag": True}}
    _, result = records.check(record, {"a": np.ones(2)}, good)
    assert result["x"] == 1.0
    assert isinstance(result["x"], float)
    assert result["inner"].flag is True
    for change, message in (
        ({"n": 3}, "'n' must be of size N = 2 like the arrays, got 3"),
        ({"n": 2.0}, "'n' must be an integer, at least 1, got 2.0"),
        ({"n": True}, "'n' must be an integer"),
        ({"x": 0}, "'x' must be a finite number above 0, got 0"),
        ({"x": 10**400}, "'x' must be a finite number"),
        ({"pair": [1]}, "'pair' must be a list of 2"),
        ({"pair": [1, "c"]}, r"'pair\[1\]' must be one of 'a', 'b', got 'c'"),
        ({"inner": {"flag": 1}}, "'inner.flag' must be true or false, got 1"),
        ({"inner": {}}, "'inner.flag' is missing"),
        ({"inner": {"flag": True, "other": 1}}, "'inner.other' is not known"),
    ):
        with pytest.raises(ValueError, match=f"setting {message}"):
            records.check(record, {"a": np.ones(2)}, good | change)
    with pytest.raises(ValueError, match="array 'a' is missing"):
        records.check(record, {}, good)
    with pytest.raises(ValueError, match="array 'a' must hold float64, got int64"):
        records.check(record, {"a": np.ones(2, dtype=np.int64)}, good)
