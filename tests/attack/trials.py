"""The attacks by name, and one trial of one of them."""

import time
import zlib
from collections import Counter

import numpy as np
from attack import covariances, extremes, latent, mean_field, sites, streams

ATTACKS = {
    attack.__name__: attack
    for module in (sites, covariances, latent, mean_field, streams, extremes)
    for attack in module.ATTACKS
}


def trial(name, seed, k):
    """Make one random problem of an attack; raises what is wrong with its result."""
    ATTACKS[name](np.random.default_rng([seed, zlib.crc32(name.encode()), k]))


def turns(names, seed, minutes, share, shares):
    """Attack for some minutes, every `shares`-th trial from `share`; return counts of trials, and what was wrong."""
    spent, done, wrong = dict.fromkeys(names, 0.0), Counter(), []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        name = min(spent, key=spent.get)
        begun, k = time.monotonic(), share + shares * done[name]
        try:
            trial(name, seed, k)
        except Exception as error:
            wrong.append((name, k, f"{type(error).__name__}: {error}"))
        done[name] += 1
        spent[name] += time.monotonic() - begun
    return done, wrong
