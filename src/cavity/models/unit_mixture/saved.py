"""What a file of a unit mixture holds, and the posterior made of it again."""

from cavity.base.records import NUMBERS, POSITIVE, Array, Made, Nullable, Record, integer, names
from cavity.base.results import OUTCOME, TRACE, VariationalPosterior, to_tuple
from cavity.models.unit_mixture.model import UnitMixture
from cavity.models.unit_mixture.posterior import UnitMixturePosterior

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
    OUTCOME
    | {"noise_variance": POSITIVE, "n_samples": integer(1), "columns?": Nullable(names())}
    | {"model": Made(lambda given: UnitMixture(**given), MODEL)},
)


def rebuilt(arrays, settings):
    """Return the posterior of checked arrays and settings."""
    prior = arrays["prior_variance"]
    return UnitMixturePosterior(
        **{name: arrays[name] for name in ("mean", "variance", "weights", "counts")},
        **{name: settings[name] for name in ("model", "noise_variance", "n_samples")},
        prior_variance=prior if prior.ndim else float(prior),
        columns=to_tuple(settings.get("columns")),
        **VariationalPosterior.outcome_from_arrays(arrays, settings),
    )
