"""The posterior of a streaming Gaussian process made of what a file holds of it."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays
from cavity.base.observation_digest import ObservationDigest
from cavity.covariances.program import get_program
from cavity.ep.options import Options
from cavity.models.streaming_gp.inducing_basis import InducingBasis, Information
from cavity.models.streaming_gp.inducing_choice import WaitingRows
from cavity.models.streaming_gp.model import StreamingGP
from cavity.models.streaming_gp.predictive_checks import PredictiveCheck
from cavity.models.streaming_gp.record import INFORMATION_ARRAYS
from cavity.models.streaming_gp.snapshot import EMPTY_TRACE, TOTAL_NAMES, History, StreamSnapshot
from cavity.models.streaming_gp.state import wrap_snapshot


def rebuild(stored, settings):
    """Return the posterior of checked arrays and settings."""
    covariance, Z = settings["covariance"], stored["Z"]
    model = StreamingGP(
        covariance,
        settings["likelihood"],
        stored["prior_mean"][()],
        inducing=Z if settings["given"] else None,
        **settings["model"],
    )
    program, jitter = get_program(covariance, Z.shape[1]), model.jitter
    basis = InducingBasis(covariance, Z, jitter, stored["nugget"], np.asfortranarray(stored["triangle"]), program)
    A, r, factor, c = (np.asfortranarray(stored[name]) for name in INFORMATION_ARRAYS)
    information = replace(Information.of(A, r, **settings["information"]), factor=factor, c=c)
    losses = {name: settings["waiting"][name] for name in ("debt", "patience")}
    waiting = WaitingRows(**losses, X=stored["waiting_X"], weight=stored["waiting_weight"])
    parts = {"n_updates": 1 if settings["parts"]["n_samples"] else 0} | settings["parts"]
    parts = {name.lstrip("_"): value for name, value in parts.items()}
    totals = np.array([float(parts.pop(name)) for name in TOTAL_NAMES])
    parts |= {name: settings.get(name) for name in ("columns", "classes", "roles", "dropped", "coding")}
    parts["trace"] = {name: arrays.make_read_only(stored[f"trace_{name}"]) for name in EMPTY_TRACE}
    ids, check = arrays.make_read_only(stored["inducing_ids"]), PredictiveCheck.of(information)
    now = StreamSnapshot(model, basis, information, totals, ids, waiting=waiting, predictive_check=check, **parts)
    history = settings.get("history")
    history = make_unknown_history(now) if history is None else History.from_settings(history)
    digest = settings.get("observation_digest") if now.n_samples else ObservationDigest()
    return wrap_snapshot(replace(now, history=history, digest=digest), Options(**settings["options"]))


def make_unknown_history(now):
    """Return the history of a snapshot from a file without it: settings may have changed."""
    own_log_noise = 0.0 if now.uniform else np.nan
    change = float(np.append(0.0, now.trace["change"])[-1])
    history = History(changed=now.n_samples > 0, own_log_noise=own_log_noise)
    return history.with_end(now.n_updates, now.n_samples, now.status, change)
