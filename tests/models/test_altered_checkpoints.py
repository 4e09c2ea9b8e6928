"""Checkpoints that were altered: whatever fit they are of, they are refused; only what says nothing may change."""

import json
import random
import re
import warnings
from contextlib import suppress

import numpy as np
import pytest

import cavity

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 2)) + RNG.choice([-4.0, 1.0, 5.0], size=(200, 1))
Y = X @ [1.0, -0.5] + RNG.normal(size=200)
UP = Y > 0
GROUPS = [f"group {i % 7}" for i in range(200)]
REFUSED = r"checkpoint {path} .*[Gg](ive another path|o on with that version), or remove the file to start anew"
MIXTURE = cavity.GaussianMixture(3)

FITS = {
    "GLM": lambda **job: cavity.GLM("probit").fit(X, UP, learn="prior_variance", schedule="parallel", **job),
    "GLM, sequential": lambda **job: cavity.GLM("logit", intercept=True).fit(X, UP, schedule="sequential", **job),
    "MixedGLM": lambda **job: cavity.MixedGLM("group", "probit").fit(X, UP, groups={"group": GROUPS}, **job),
    "GaussianMixture": lambda **job: MIXTURE.fit(X, n_init=2, rng=1, moves=True, max_iter=20, **job),
    "GaussianMixture, stochastic": lambda **job: MIXTURE.fit_stochastic(X, batch_size=16, n_epochs=2, **job),
    "UnitMixture": lambda **job: cavity.UnitMixture(3, learn=("weights",)).fit(X[:, 0], max_iter=20, **job),
    "Clutter": lambda **job: cavity.Clutter().fit(X[:, 0], **job),
    "LinearRegression": lambda **job: cavity.LinearRegression(ard=True).fit(X, Y, **job),
    "LogisticRegression": lambda **job: cavity.LogisticRegression().fit(X, UP, **job),
    "select_components": lambda **job: cavity.select_components(MIXTURE, X, (1, 2), max_iter=20, **job).best,
}


class EnoughError(Exception):
    """A callback has failed."""


def value(fit, **job):
    """Return what a fit says of its evidence."""
    with warnings.catch_warnings(action="ignore"):
        posterior = fit(**job)
    return posterior.log_evidence if hasattr(posterior, "log_evidence") else posterior.elbo


def begin(fit, path):
    """Write the checkpoint of a fit that ends three events after the first writing."""
    events = []

    def fail(event):
        events.extend([event] * path.exists())
        if len(events) == 3:
            raise EnoughError

    with suppress(EnoughError):
        value(fit, checkpoint=path, checkpoint_every=0.0, callback=fail)


def leaves(settings, path=()):
    """Yield the way to each number, text and truth value in JSON."""
    if isinstance(settings, dict | list):
        for key, item in settings.items() if isinstance(settings, dict) else enumerate(settings):
            yield from leaves(item, (*path, key))
    elif settings is not None:
        yield path


def alter_settings(content, chance):
    """Change a number, text or truth value of what the stages of the file hold beside arrays."""
    header = json.loads(content["header"].tobytes())
    stages = header["settings"]["stages"]
    *way, last = chance.choice(list(leaves(stages)))
    place = stages
    for key in way:
        place = place[key]
    match place[last]:
        case bool():
            place[last] = not place[last]
        case str():
            place[last] = f"{place[last]}1"
        case number:
            place[last] = chance.choice([item for item in (number + 1, -number, 2 * number, 0, 0.5) if item != number])
    content["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)


def alter_array(content, chance):
    """Change a number, the type, the shape or the layout of an array, or change it with another one."""
    names = [name for name in content if name != "header" and content[name].size]
    name = chance.choice(names)
    array = content[name].copy()
    match chance.choice(["number", "type", "byte order", "axis", "exchange", "shorter"]):
        case "number":
            flat = array.reshape(-1)
            place = chance.randrange(flat.size)
            flat.view(np.uint8)[place * array.itemsize] ^= 1  # a single bit, the last of a number
        case "type":
            array = array.astype({"f": "f4", "U": "U99"}.get(array.dtype.kind, "f8"))
        case "byte order":
            array = array.view(array.dtype.newbyteorder()) if array.itemsize > 1 else array[None]
        case "axis":
            array = array[None]
        case "shorter":
            array = array.reshape(-1)[:-1]
        case "exchange":
            other = chance.choice(names)
            content[other], array = array, content[other]
    content[name] = array


def bits(content):
    """Return all that arrays are."""
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in content.items()}


def check(fit, path, chance, n_alterations):
    """Alter the checkpoint of a fit again and again: each is refused before any work."""
    begin(fit, path)
    with np.load(path) as file:
        full = {name: file[name] for name in file.files}
    for number in range(n_alterations):
        content = dict(full)
        while bits(content) == bits(full):  # an exchange of equal arrays, or twice infinity
            (alter_settings if number % 3 == 0 or len(full) == 1 else alter_array)(content, chance)
        with open(path, "wb") as file:
            np.savez(file, **content)
        with pytest.raises(ValueError, match=REFUSED.format(path=path)):
            value(fit, checkpoint=path, callback=lambda event: 1 / 0)
    with open(path, "wb") as file:
        np.savez(file, **full)
    assert value(fit, checkpoint=path) == value(fit)


@pytest.mark.parametrize("name", ["GLM, sequential", "UnitMixture", "Clutter"])
def test_altered_numbers_are_refused(name, tmp_path):
    check(FITS[name], tmp_path / "fit.npz", random.Random(name), 9)


@pytest.mark.long
@pytest.mark.parametrize("name", FITS)
def test_many_altered_numbers_are_refused(name, tmp_path):
    check(FITS[name], tmp_path / "fit.npz", random.Random(f"many of {name}"), 400)


@pytest.mark.long
@pytest.mark.parametrize("name", FITS)
def test_altered_bytes_are_refused_or_say_nothing(name, tmp_path):
    """As the times in the directory of the archive, of which no checksum is kept."""
    fit, path, chance = FITS[name], tmp_path / "fit.npz", random.Random(name)
    begin(fit, path)
    full, plain, refused = path.read_bytes(), value(fit), 0
    for _ in range(100):
        content = bytearray(full)
        content[chance.randrange(len(full))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        try:
            assert value(fit, checkpoint=path) == plain
        except ValueError as error:
            if not re.fullmatch(REFUSED.format(path=path), str(error)):
                raise
            refused += 1
    assert refused > 50
