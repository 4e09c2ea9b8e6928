"""Several classes from models of two: each class against the rest, probabilities normalised."""

import numpy as np
from scipy.special import logsumexp


def one_vs_rest(y, classes):
    """Labels -1.0 and 1.0 of each binary problem; of two classes there is one, the second."""
    return [np.where(y == label, 1.0, -1.0) for label in (classes[1:] if classes.size == 2 else classes)]


def normalised(inside):
    """Log probabilities of K classes from those of each against the rest, (n, K)."""
    return inside - logsumexp(inside, axis=1, keepdims=True)


def log_probabilities(posteriors, X):
    """Log probabilities of the classes, (n, K), from the model of two or those of each against the rest."""
    ones = np.ones(X.shape[0])
    inside = [posterior.log_density(X, ones) for posterior in posteriors]
    if len(posteriors) > 1:
        return normalised(np.stack(inside, axis=1))
    return np.stack([posteriors[0].log_density(X, -ones), *inside], axis=1)


def known_classes(y, classes, known=None):
    """Return the classes of a stream, sorted: those of earlier batches or, in the first, those that were announced.

    Raises ValueError if there are none or one, if they change, or if y holds another one.
    """
    if known is None and classes is None:
        raise ValueError("classes must be given in the first call of partial_fit, where later classes are unknown")
    given = known if classes is None else np.unique(classes)
    if given.size < 2:
        raise ValueError(f"classes holds one class ({given.tolist()[0]!r}); two are needed")
    if known is not None and not np.array_equal(given, known):
        raise ValueError(f"classes must be those of the first call, {known.tolist()}, got {given.tolist()}")
    strangers = np.setdiff1d(y, given)
    if strangers.size:
        raise ValueError(f"y holds {strangers.tolist()[0]!r}, which is not among the classes {given.tolist()}")
    return given


def classes_in(y):
    """Return the classes of all data, sorted; raise ValueError if there is but one."""
    classes = np.unique(y)
    if classes.size < 2:
        raise ValueError(f"y holds one class ({classes.tolist()[0]!r}) in {y.size} row(s); two are needed")
    return classes


def loo_log_density(posteriors, labels):
    """Log probability that all other rows give to each row's own class, (N,); labels are the numbers of the classes."""
    loo = np.stack([posterior.loo_log_density for posterior in posteriors], axis=1)  # of "is it" or "is it not"
    if len(posteriors) == 1:
        return loo[:, 0]
    own = np.arange(len(posteriors)) == labels[:, None]
    with np.errstate(divide="ignore"):
        is_it = np.where(own, loo, np.log(-np.expm1(np.minimum(loo, 0.0))))  # rounding may lift a log of 1 above 0
    return normalised(is_it)[own]
