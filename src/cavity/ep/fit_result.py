"""What a fit by EP leaves behind, whatever the schedule and the geometry."""

from dataclasses import dataclass

import numpy as np

from cavity.base.loop import CONVERGED_STATUS, Outcome, warn_unconverged


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult(Outcome):
    """How a fit by EP ended, and where.

    Attributes
    ----------
    belief : object
        The posterior, in the terms of the geometry.
    tau, rho : ndarray or None
        Sites; None where none are kept.
    log_evidence : float
        Estimate of log p(y), all constants included.
    loo : ndarray (N,) or None
        Leave-one-out log densities; None where there are none.
    influence : ndarray (N,) or None
        How far the belief is from that without a row, see `evidence.influence`.
    residual : float
        How far the sites are from their fixed point, see `evidence.distance`.
    loo_moments : ndarray (2, N) or None
        Means and variances of f without a row, where these are not the posterior less the site of the row.
    """

    belief: object
    log_evidence: float
    residual: float
    tau: np.ndarray | None = None
    rho: np.ndarray | None = None
    loo: np.ndarray | None = None
    influence: np.ndarray | None = None
    loo_moments: np.ndarray | None = None

    @classmethod
    def of_one_pass(cls, **fields):
        """Return the fit of a pass that leaves nothing to do: ADF, or the exact posterior."""
        return cls(**{"status": CONVERGED_STATUS, "n_iter": 1, "residual": 0.0, "trace": {}} | fields)

    def warn(self, options):
        """Issue a ConvergenceWarning if the stopping rule was not met."""
        change = self.trace.get("change", ())
        last = change[-1] if len(change) else np.inf
        warn_unconverged(self.status, last, options.tol, options.max_iter)

    def outcome(self, search_status=CONVERGED_STATUS, before=None):
        """Return how the fit ended, by the names of a posterior's fields.

        Parameters
        ----------
        search_status : str
            The status of the search for settings that the fit is the last of.
        before : posterior, optional
            Of the rows before an update, whose status stays if there was nothing to search for.
        """
        status = (self if before is None else before).status
        status = status if search_status == CONVERGED_STATUS or not self.converged else search_status
        return {
            "converged": status == CONVERGED_STATUS,
            "status": status,
            "n_iter": self.n_iter,
            "residual": self.residual,
        }
