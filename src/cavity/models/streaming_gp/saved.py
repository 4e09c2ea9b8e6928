"""What a file of a streaming Gaussian process holds, and the posterior made of it again."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays
from cavity.base.kept import kept
from cavity.base.observation_digest import DIGEST_FIELD, ObservationDigest
from cavity.base.records import FLAG, NONNEGATIVE, NUMBER, TEXT, Array, Nullable, Record, integer, one_of
from cavity.covariances.program import program_of
from cavity.ep.options import Options
from cavity.models.latent import OPEN_LIKELIHOOD
from cavity.models.process.model import check_columns
from cavity.models.process.saved import COVARIANCE, OPTIONS
from cavity.models.streaming_gp.basis import Basis
from cavity.models.streaming_gp.history import History, Watch
from cavity.models.streaming_gp.inducing import Waiting
from cavity.models.streaming_gp.information import Information
from cavity.models.streaming_gp.model import StreamingGP
from cavity.models.streaming_gp.snapshot import EMPTY, FACTOR, TOTALS, Snapshot
from cavity.models.streaming_gp.state import made

ARRAYS = {  # m and w may be 0
    "Z": Array("m D"),
    "nugget": Array("m", "nonnegative"),
    "triangle": Array("m m", "triangle"),
    "inducing_ids": Array("m", "nonnegative", "i"),
    "A": Array("m m"),
    "r": Array("m"),
    "factor": Array("m m", "triangle"),
    "c": Array("m"),
    "waiting_X": Array("w D"),
    "waiting_weight": Array("w", "nonnegative"),
    "prior_mean": Array("() | P"),
    **{f"trace_{name}": Array(f"{name[0]}", "any") for name in EMPTY},
}
SETTINGS = {
    "information": {"constant": NUMBER, "n": NONNEGATIVE, "squares": NONNEGATIVE, "gap": NUMBER},
    "n_features": integer(1, "D"),
    "options": OPTIONS | {"schedule": one_of("auto", "sequential", "parallel")},
    "parts": {
        "_next_id": integer(),
        "n_samples": integer(),
        "_log_bound": NUMBER,
        "last_increment": NUMBER,
        "information_lost": NUMBER,
        "last_information_lost": NUMBER,
        "status": TEXT,
        "n_iter": integer(),
        "_uniform": FLAG,
        "has_offset": FLAG,
        "n_updates?": integer(),
    },
    "waiting": {"patience": NUMBER, "debt": NUMBER, "count": integer()},
    "history?": {
        "changed": FLAG,
        "own_weight": NONNEGATIVE,
        "own_log_noise": Nullable(NUMBER, np.nan),
        "worst": Nullable(
            {"update": integer(), "n_samples": integer(), "status": TEXT, "change": Nullable(NONNEGATIVE, np.inf)}
        ),
    },
    **kept("D"),
    "covariance": COVARIANCE,
    "likelihood": OPEN_LIKELIHOOD,
    "model": {"n_inducing": integer(1), "tolerance": NONNEGATIVE, "jitter": NONNEGATIVE, "alpha": NONNEGATIVE},
    "given": FLAG,
    "observation_digest?": DIGEST_FIELD,
}


def _fits(stored, settings, sizes):
    """Whether model, inducing points and what is known of them fit together, as a rule of the record."""
    check_columns(settings["covariance"], stored["prior_mean"], sizes["D"])
    for name, rows in (("Z", stored["Z"]), ("inducing_ids", stored["inducing_ids"][:, None])):
        if len(np.unique(rows, axis=0)) < len(rows):
            return f"array {name!r} must not say anything twice"
    if np.any(stored["inducing_ids"] >= settings["parts"]["_next_id"]):
        return "setting 'parts._next_id' must be above all of 'inducing_ids'"
    return None


RECORD = Record(ARRAYS, SETTINGS, (_fits,))


def rebuilt(stored, settings):
    """Return the posterior of checked arrays and settings."""
    covariance, Z = settings["covariance"], stored["Z"]
    model = StreamingGP(
        covariance,
        settings["likelihood"],
        stored["prior_mean"][()],
        inducing=Z if settings["given"] else None,
        **settings["model"],
    )
    program, jitter = program_of(covariance, Z.shape[1]), model.jitter
    basis = Basis(covariance, Z, jitter, stored["nugget"], np.asfortranarray(stored["triangle"]), program)
    A, r, factor, c = (np.asfortranarray(stored[name]) for name in FACTOR)
    information = replace(Information.of(A, r, **settings["information"]), factor=factor, c=c)
    waiting = Waiting(**settings["waiting"], X=stored["waiting_X"], weight=stored["waiting_weight"])
    parts = {"n_updates": 1 if settings["parts"]["n_samples"] else 0} | settings["parts"]
    parts = {name.lstrip("_"): value for name, value in parts.items()}
    totals = np.array([float(parts.pop(name)) for name in TOTALS])
    parts |= {name: settings.get(name) for name in ("columns", "classes", "roles")}
    parts["trace"] = {name: arrays.read_only(stored[f"trace_{name}"]) for name in EMPTY}
    ids, watch = arrays.read_only(stored["inducing_ids"]), Watch.of(information)
    now = Snapshot(model, basis, information, totals, ids, waiting=waiting, watch=watch, **parts)
    history = settings.get("history")
    history = _unknown_history(now) if history is None else History.from_settings(history)
    digest = settings.get("observation_digest") if now.n_samples else ObservationDigest()
    return made(replace(now, history=history, digest=digest), Options(**settings["options"]))


def _unknown_history(now):
    """Return the history of a snapshot from a file that says nothing about it: settings may have changed."""
    own_log_noise = 0.0 if now.uniform else np.nan
    change = float(np.append(0.0, now.trace["change"])[-1])
    history = History(changed=now.n_samples > 0, own_log_noise=own_log_noise)
    return history.with_end(now.n_updates, now.n_samples, now.status, change)
