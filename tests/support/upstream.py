"""scikit-learn's own tests, as they are installed, with estimators of ours put in place of its classes."""

import importlib.util
import inspect

import pytest
import sklearn
from sklearn.utils.fixes import parse_version


def before(version):
    """Whether scikit-learn is older than a version."""
    return parse_version(sklearn.__version__) < parse_version(version)


routed_scores = pytest.mark.skipif(before("1.8"), reason="this scikit-learn routes nothing to the score of pipelines")


def load(package, name, label, classes):
    """Import a copy of an installed test module with classes of ours in it."""
    origin = importlib.util.find_spec(f"{package.__name__}.{name}").origin
    spec = importlib.util.spec_from_file_location(f"{name}_{label}", origin)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for truth, ours in classes.items():
        assert hasattr(module, truth)
        setattr(module, truth, ours)
    return module


def functions_of(module, left_out):
    """Its test functions by name, without those left out."""
    result = inspect.getmembers(module, inspect.isfunction)
    return {name: test for name, test in result if name.startswith("test_") and name not in left_out}


def take_over(namespace, package, taken, left_out, slow=()):
    """Put the test functions of modules into a namespace; `taken` maps labels to a module's name and our classes.

    Those named by `slow`, and every second case of the others, run with `-m long`.
    """
    for label, (name, classes) in taken.items():
        for test_name, test in functions_of(load(package, name, label, classes), left_out).items():
            test = pytest.mark.long(test) if test_name in slow else pytest.mark.sample(2)(test)
            namespace[test_name.replace("test_", f"test_{label}_", 1)] = test


def counts(namespace, labels):
    """Return how many test functions there are of each label."""
    return [sum(name.startswith(f"test_{label}_") for name in namespace) for label in labels]
