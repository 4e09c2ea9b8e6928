"""Fields that many posteriors have, each with its form in files and its description."""

from cavity.base.missing_values import DROPPED_ROWS_SETTING
from cavity.base.observation_digest import DIGEST_SETTING
from cavity.base.records import ANY_TEXT, LOG_DENSITY, TRUTH_VALUE, Made, Nullable, Setting, declare, integer, names

LABEL_TYPES = str | bool | int | float  # in files


def _savable(classes):
    """Return classes as a list."""
    other = next((each for each in classes if not isinstance(each, LABEL_TYPES)), None)
    if other is not None:
        raise TypeError(f"classes must be texts or numbers to be saved, got {other!r} ({type(other).__name__})")
    return list(classes)


def are_labels(value):
    """Return whether a value is a list of labels, as files have them."""
    return isinstance(value, list | tuple) and all(isinstance(each, LABEL_TYPES) for each in value)


def _are_roles(value):
    columns = value.values() if isinstance(value, dict) else [None]
    return all(all(isinstance(name, str) for name in (each if isinstance(each, list) else [each])) for each in columns)


CLASSES_SETTING = Made(tuple, Setting("a list of strings and numbers", are_labels), _savable)
ROLES_SETTING = Made(
    lambda roles: {role: tuple(name) if isinstance(name, list) else name for role, name in roles.items()},
    Setting("an object of names of columns", _are_roles),
    lambda roles: {role: list(name) if isinstance(name, tuple) else name for role, name in roles.items()},
)
COMMON_FIELDS = {  # the arguments of `declare`; form None: that of the class
    "log_evidence": (LOG_DENSITY, "Estimate of the log evidence, all constants included, by which models compare."),
    "converged": (TRUTH_VALUE, "Whether the stopping rule of the fit was met."),
    "n_iter": (integer(), "Passes over the data (sweeps), steps of EP's double loop included."),
    "status": (ANY_TEXT, "Why the iteration ended."),
    "trace": (None, '"change" and "improper" of sweeps, "double_loop" steps; "learning", "seconds" of a search.'),
    "hyperparameters": (None, "Settings that the fit found by maximising the log evidence.", None, "learnt?"),
    "n_samples": (integer(1), "Number of rows, those of later updates included."),
    "columns": (Nullable(names()), "Names of columns, which order those of later data frames; None for arrays.", None),
    "classes": (CLASSES_SETTING, "Values of labels, in order; None for 0 and 1, -1 and 1, numbers of classes.", None),
    "roles": (ROLES_SETTING, "Names of the columns that were arguments of the fit, y for example, by argument.", None),
    "has_offset": (TRUTH_VALUE, "Whether rows came with offsets, which predictions then need as well.", False),
    "chosen": (names(), "The settings that were left to the data, if any, such as 'prior_variance'.", None),
    "dropped": (DROPPED_ROWS_SETTING, "Rows of the fit left out because of missing values, and their columns.", None),
    "observation_digest": (DIGEST_SETTING, "By which `compare` tells that posteriors are of the same rows.", None),
}


def declare_common(name, form=None):
    """Return a field of COMMON_FIELDS for the body of a dataclass, in files of another form if one is given."""
    common_form, *others = COMMON_FIELDS[name]
    return declare(form or common_form, *others)


def kept(axis):
    """Return the settings of a record: the names of so many columns, classes, and columns by what was taken of them."""
    return {"columns?": Nullable(names(axis)), "classes?": Nullable(CLASSES_SETTING), "roles?": ROLES_SETTING}
