"""What files of latent processes hold alike."""

from cavity import covariances
from cavity.base.records import JSON_OBJECT, NONNEGATIVE_REAL, UNIT_SHARE, Made, integer

COVARIANCE_SETTING = Made(covariances.from_settings, JSON_OBJECT, lambda covariance: covariance.to_settings())
EP_OPTIONS = {"damping": UNIT_SHARE, "max_iter": integer(1), "tol": NONNEGATIVE_REAL}  # of EP
