"""What a file of a unit mixture holds."""

from cavity.base.records import NUMBERS, POSITIVE, Array, Nullable, Record, integer, names
from cavity.base.results import VARIATIONAL, VARIATIONAL_TRACE

ARRAYS = {
    "mean": Array("K"),
    "variance": Array("K", "positive"),
    "weights": Array("K", "shares"),
    "counts": Array("K"),
    "prior_variance": Array("() | K", "positive"),
    **VARIATIONAL_TRACE,
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
    VARIATIONAL
    | {"noise_variance": POSITIVE, "n_samples": integer(1), "columns?": Nullable(names())}
    | {"model": MODEL},
)
