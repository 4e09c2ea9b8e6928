"""What posteriors keep of tables, and how files have it: names of columns, classes, and what a column was taken for."""

from cavity.base.records import Made, Nullable, Setting, names

LABEL_TYPES = str | bool | int | float  # in files


def _savable(classes):
    """Return classes as a list."""
    other = next((each for each in classes if not isinstance(each, LABEL_TYPES)), None)
    if other is not None:
        raise TypeError(f"classes must be texts or numbers to be saved, got {other!r} ({type(other).__name__})")
    return list(classes)


def _are_classes(value):
    return isinstance(value, list | tuple) and all(isinstance(each, LABEL_TYPES) for each in value)


def _are_roles(value):
    columns = value.values() if isinstance(value, dict) else [None]
    return all(all(isinstance(name, str) for name in (each if isinstance(each, list) else [each])) for each in columns)


CLASSES_SETTING = Made(tuple, Setting("a list of strings and numbers", _are_classes), _savable)
ROLES_SETTING = Made(
    lambda roles: {role: tuple(name) if isinstance(name, list) else name for role, name in roles.items()},
    Setting("an object of names of columns", _are_roles),
    lambda roles: {role: list(name) if isinstance(name, tuple) else name for role, name in roles.items()},
)


def kept(axis):
    """Return the settings of a record: the names of so many columns, classes, and columns by what was taken of them."""
    return {"columns?": Nullable(names(axis)), "classes?": Nullable(CLASSES_SETTING), "roles?": ROLES_SETTING}
