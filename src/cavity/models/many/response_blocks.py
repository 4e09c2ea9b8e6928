"""Blocks of responses: observations, trials and known parts of f from blocks of their matrices, and missing entries."""

import numpy as np

from cavity.base import arrays
from cavity.sources.response_matrix import convert_block


def combine_blocks(names, blocks, offset):
    """Return blocks of matrices as observations, (B, N) or (B, N, 2), and known parts of f, (B, N).

    `offset` (N,), or None, is that of all responses.
    """
    blocks = {name: convert_block(block, name) for name, block in blocks.items()}
    raw = blocks.pop("Y")
    total = np.tile(np.zeros(raw.shape[1]) if offset is None else offset, (len(raw), 1))
    if "trials" in blocks:
        raw = np.stack([raw, blocks.pop("trials")], axis=2)
    for name, values in blocks.items():
        is_exposure = name == "exposure"
        good = np.isfinite(values) & ((values > 0) | (not is_exposure))
        if not good.all():
            number, row = np.argwhere(~good)[0]
            message = f"must be {'positive' if is_exposure else 'finite'}, got {float(values[number, row])!r}"
            raise arrays.error_of(name, f"{message} in row {row} of response {names[number]!r}")
        total += np.log(values) if is_exposure else values
    return raw, total


def fill_missing(raw):
    """Return responses with the first value of each in place of missing ones, and which entries have one, (B, N)."""
    observed = ~np.isnan(raw).reshape(*raw.shape[:2], -1).any(axis=2)
    if observed.all():
        return raw, observed
    filled = raw.copy()
    for b in np.flatnonzero(~observed.all(axis=1)):
        filled[b, ~observed[b]] = raw[b, np.argmax(observed[b])]
    return filled, observed


def find_first_response(likelihood, matrices, drops_missing):
    """Return the first response that a likelihood takes; ValueError naming the first one if there is none."""
    first, parts, names = None, [matrices[name] for name in ("Y", "trials") if name in matrices], matrices["Y"].names
    for number, name in enumerate(names):
        y = np.stack([part.read(number, number + 1) for part in parts], axis=2)
        y = y if len(parts) > 1 else y[..., 0]
        y, observed = fill_missing(y) if drops_missing else (y, np.array(True))
        if not observed.any():
            continue
        try:
            likelihood.check(y[0])
        except (ValueError, TypeError) as error:
            first = first or f"{name!r}: {error}"
            continue
        return y[0]
    if first is None:
        raise arrays.error_of("Y", "must have a value in some row of some response, got missing values only")
    raise arrays.error_of("Y", f"must have a response that {type(likelihood).__name__} takes; {first}")
