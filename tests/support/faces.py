"""What the tests of several scikit-learn faces ask of them."""

from numpydoc.validate import validate

NEEDED = {"GL08", "SS03", "SS05", "PR01", "PR02", "PR03", "PR04", "PR10", "RT03"}


def public_members(kind):
    """Return the names of the public methods that a class defines itself."""
    return [name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))]


def docstring_errors(face, members):
    """Return what numpydoc says against the docstrings of a face, by its name, and of some of its members."""
    names = [f"cavity.sklearn.{face}", *(f"cavity.sklearn.{face}.{member}" for member in members)]
    return [(name, *problem) for name in names for problem in validate(name)["errors"] if problem[0] in NEEDED]
