"""What a file of a unit mixture holds."""

from cavity.base.records import NUMBERS, POSITIVE, Array, Nullable, Record, integer, names
from cavity.base.results import OUTCOME, TRACE

ARRAYS = {
    "mean": Array("K"),
    "variance": Array("K", "positive"),
    "weights": Array("K", "shares"),
    "counts": Array("K"),
    "prior_variance": Array("() | K", "positive"),
    **TRACE,
}
MODEL = {
    "n_components": integer(1, "K"),
    "prior_variance": NUMBERS,
    "prior_mean": NUMBERS,
    "noise_variance": POSITIVE,
    "weights": Nullable(NUMBERS),
    "learn": names(),
}


RECORD = Record(
    ARRAYS,
    OUTCOME | {"noise_variance": POSITIVE, "n_samples": integer(1), "columns?": Nullable(names())} | {"model": MODEL},
)
