"""Messages for keyword arguments that a function does not have: the name that it has, of other libraries' and of typos.

They are composed after a call has failed, from the signature of the function, so that calls that succeed are unchanged.
"""

from functools import wraps
from inspect import isfunction, signature
from typing import Any

EXPLAINED_METHODS = ("__init__", "fit", "fit_stochastic", "update", "predict", "predict_proba", "expected", "quantile")
EXPLAINED_METHODS += ("sample", "sample_y", "summary", "effects", "interval", "log_density", "variance_components")
MIN_NAME_SIMILARITY = 0.7  # of difflib: "logti" has 0.8 with "logit", "possion" 0.86 with "poisson"

# Names in other libraries, and the arguments that have that meaning here, of which the first that there is counts.
ARGUMENT_SYNONYMS = {
    **dict.fromkeys(("family", "link", "distribution", "noise_model"), ("likelihood",)),
    **dict.fromkeys(("weights", "weight", "freq_weights", "var_weights", "case_weights"), ("sample_weight",)),
    **dict.fromkeys(("kernel", "kern", "covariance_type", "covariance_function"), ("covariance",)),
    **dict.fromkeys(("n_clusters", "k", "K", "num_components"), ("n_components",)),
    **dict.fromkeys(("random_state", "seed", "random_seed"), ("rng",)),
    **dict.fromkeys(("data", "newdata", "new_data", "exog", "x", "X_new", "Xnew", "X_test"), ("X", "x", "y")),
    **dict.fromkeys(("endog", "target", "labels", "Y"), ("y",)),
    **dict.fromkeys(("fit_intercept", "add_constant"), ("intercept",)),
    **dict.fromkeys(("normalize", "scale", "standardise"), ("standardize",)),
    **dict.fromkeys(("group", "subject", "clusters"), ("groups",)),
    **dict.fromkeys(("formula", "random", "re_formula"), ("effects", "formula")),
    **dict.fromkeys(("C", "penalty", "l2", "prior", "priors", "prior_scale"), ("prior_variance",)),
    "alpha": ("level", "prior_variance", "noise_variance", "weight_concentration_prior"),
    "reg_covar": ("covariance_prior",),
    "mean_function": ("mean",),
    **dict.fromkeys(("df", "nu", "dof"), ("degrees_of_freedom",)),
    "num_inducing": ("n_inducing",),
    **dict.fromkeys(("Z", "inducing_points", "inducing_variable"), ("inducing",)),
    **dict.fromkeys(("n_jobs", "num_threads", "cores"), ("n_threads",)),
    **dict.fromkeys(("verbose", "disp"), ("progress",)),
    **dict.fromkeys(("maxiter", "n_iter", "max_iters", "num_iters", "epochs"), ("max_iter", "n_epochs")),
    **dict.fromkeys(("tolerance", "eps", "ftol", "gtol", "xtol"), ("tol",)),
    **dict.fromkeys(("na_action", "nan_policy", "dropna"), ("missing",)),
    **dict.fromkeys(("conf_level", "conf_int", "credible_mass", "hdi_prob", "ci_prob", "prob"), ("level",)),
    **dict.fromkeys(("size", "num_samples", "n_samples", "draws", "ndraws"), ("n",)),
    **dict.fromkeys(("n_restarts", "n_restarts_optimizer"), ("n_starts", "n_init")),
}
# What to do instead, where no argument has the meaning.
ADVICE_BY_NAME = {
    **dict.fromkeys(("REML", "reml"), "fixed effects are integrated out as by REML, there is nothing to choose"),
    **dict.fromkeys(("groups", "group"), "cavity.MixedGLM has groups, as has a formula with (1 | group)"),
    **dict.fromkeys(("formula", "family", "link"), "cavity.GLM and cavity.MixedGLM have formulas and likelihoods"),
    "data": "a formula is given to the model and the data to its fit",
    "integrate": "only GLM, MixedGLM and GaussianProcess integrate over hyperparameters",
    "trials": "trials are in the second column of y, (N, 2), or y=('successes', 'trials') names two columns, "
    "a formula has p(successes, trials) before the ~, and fit_many has the argument trials",
    "type": "predict returns moments of f, expected those of y, predict_proba probabilities",
    **dict.fromkeys(("return_std", "return_var", "se_fit"), "predict returns mean and variance"),
}
RELATIONS_TO_PENALTIES = {
    ("C", "prior_variance"): " = C, the variance for which the posterior mode is the penalised estimate",
    ("alpha", "prior_variance"): " = 1/alpha, times the noise variance where there is noise",
    ("alpha", "level"): " = 1 - alpha",
}


def find_close_names(name, names):
    """Return those of some names to which another is closest, upper and lower case the same; () if none is close."""
    from difflib import SequenceMatcher  # for messages only

    scores = {other: SequenceMatcher(None, name.lower(), other.lower()).ratio() for other in names}
    best = max(scores.values(), default=0.0)
    return tuple(other for other, score in scores.items() if score == best >= MIN_NAME_SIMILARITY)


def suggest_names(name, names):
    """Return the end of a message, "; did you mean 'poisson'?"; "" if no name is close."""
    close = find_close_names(name, names) if isinstance(name, str) else ()
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def explain_arguments(cls):
    """Replace methods of a new class, its constructor included, by ones whose errors name the argument that is meant.

    A dataclass with slots is made twice, and has its constructor the second time.
    """
    for name in EXPLAINED_METHODS:
        method = vars(cls).get(name)
        if isfunction(method) and not hasattr(method, "has_explained_arguments"):
            setattr(cls, name, _explained(method))


def _explained(method):
    @wraps(method)
    def call(self: Any, /, *values: Any, **arguments: Any) -> Any:
        try:
            return method(self, *values, **arguments)
        except TypeError:
            message = _describe_unknown(type(self), method, arguments)
            if message is None:  # the arguments fit: the error is of another call
                raise
        raise TypeError(message)

    call.has_explained_arguments = True  # type: ignore[attr-defined]
    return call


def _names_of(function):
    """Return the names of the parameters of a method, without self; None if it takes any."""
    parameters = list(signature(function).parameters.values())[1:]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return None if takes_any else [parameter.name for parameter in parameters]


def _describe_unknown(cls, method, arguments):
    """Return the message about the first argument that a method does not have, None if it has all."""
    names = _names_of(method)
    unknown = [] if names is None else [name for name in arguments if name not in names]
    if not unknown:
        return None
    is_constructor = method.__name__ == "__init__"
    title = f"{cls.__name__}()" if is_constructor else f"{cls.__name__}.{method.__name__}()"
    message = f"{title} got an unexpected keyword argument {unknown[0]!r}"
    return message + describe_way_out(unknown[0], names, _names_of_other(cls, is_constructor))


def _names_of_other(cls, is_constructor):
    """Return the other of constructor and fit of a model, as messages have it, and the names of its parameters."""
    if not hasattr(cls, "fit"):
        return "", ()
    return ("fit", _names_of(cls.fit) or ()) if is_constructor else (f"{cls.__name__}()", _names_of(cls.__init__) or ())


def describe_way_out(name, names, other=("", ())):
    """Return the end of a message about an argument: what has its meaning, what is spelled alike, or what there is."""
    owner, names_there = other
    match = next((synonym for synonym in ARGUMENT_SYNONYMS.get(name, ()) if synonym in names), None)
    if match is not None:
        return f"; the argument for that is {match}{RELATIONS_TO_PENALTIES.get((name, match), '')}"
    if name in names_there:
        return f"; it is an argument of {owner}"
    match = next((synonym for synonym in ARGUMENT_SYNONYMS.get(name, ()) if synonym in names_there), None)
    if match is not None:
        return f"; the argument for that is {match} of {owner}{RELATIONS_TO_PENALTIES.get((name, match), '')}"
    if name in ADVICE_BY_NAME:
        return f"; {ADVICE_BY_NAME[name]}"
    return suggest_names(name, names) or suggest_names(name, names_there) or f"; there are {', '.join(names)}"
