"""The package as a whole: import time, one-way imports, docstrings that run and say what they must."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from numpydoc.validate import validate
from support.source_trees import walk_statements

import cavity
from cavity.base.public_objects import Public
from cavity.models import saved

SOURCE = Path(cavity.__file__).parent
LAYERS = (  # each row may import from those below it; folders in one row know nothing of each other
    ("cli",),
    ("sklearn", "plot"),
    ("models",),
    ("ep", "mean_field", "covariances"),
    ("priors",),
    ("likelihoods", "distributions", "terms"),
    ("sources", "linalg"),
    ("jobs",),
    ("runs",),
    ("base", "data"),
    ("_core",),
)
DOOR = ("cavity.base.results", "cavity.plot.posterior_figures")  # the `plot` method of results asks when it is called
BY_NAME = {"cavity", "cavity._core", "cavity.cli", "cavity.models.saved"}  # tables of names
ROOT = {"cavity", "cavity.__main__", "cavity.errors", "cavity.factorized", "cavity.online_bound"}  # names, no code
MODULES = sorted(["cavity", *(package.name for package in pkgutil.walk_packages(cavity.__path__, "cavity."))])


def path_of(module):
    """The file of a module, if it is written in Python."""
    path = SOURCE.parent / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


PYTHON = [module for module in MODULES if path_of(module).exists()]


def package_of(module):
    """The folder a module counts for: those of the model families count one by one."""
    parts = module.split(".")
    if parts[1:2] == ["models"] and len(parts) > 2:
        return ".".join(parts[:3])
    return ".".join(parts[:2])


@cache
def imports_of(module):
    """Every module of cavity that a module imports, by an import or `import_module`, at its top or in a function.

    What only type checkers read is not imported.
    """
    package = module if path_of(module).name == "__init__.py" else module.rpartition(".")[0]
    text = path_of(module).read_text()
    tree = ast.parse(text)
    results = []
    for node in walk_statements(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree) if "import_module" in text else walk_statements(tree):
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*start, *([node.module] if node.module else [])])
            names = [(source, alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in (getattr(node.func, key, "") for key in ("id", "attr")):
            literal = node.args and isinstance(node.args[0], ast.Constant)
            assert literal or module in BY_NAME, f"{module}: import_module of a name that no test can see"
            names = [(node.args[0].value, "")] if literal else []
        else:
            continue
        for source, name in names:
            if source.partition(".")[0] == "cavity":
                full = f"{source}.{name}"
                results.append(full if full in MODULES else source)
    return results


def test_import_is_fast_and_light():
    code = (
        "import sys, time; t = time.perf_counter(); import cavity; print(time.perf_counter() - t, "
        "sorted({'scipy', 'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    assert min(float(run.split()[0]) for run in runs) < 0.3
    assert runs[0].strip().endswith("[]")


def test_a_first_model_loads_no_more_than_it_needs():
    """Numpy takes a third of the time of a first fit of few columns; what else takes long waits until it is needed."""
    code = """
import sys, numpy
needed = set(sys.modules)  # NumPy 2.0 loads typing
import cavity
assert "typing" in needed or "typing" not in sys.modules
X, y = [[1.0, 2.0], [1.0, 1.0], [1.0, 0.0], [1.0, 3.0]], [0, 1, 1, 0]
cavity.GLM(cavity.likelihoods.Probit()).fit(X, y)
cavity.GLM("logit", intercept=True).fit([[1.0, 2.0], [2.0, 0.0], [1.5, 1.0], [3.0, 1.0]], y, n_threads=2)
cavity.Clutter().fit(X)
here = {name for name in sys.modules if name in ("scipy", "numpy.ma") or name.startswith("scipy.")}
assert not here, here
import scipy.linalg
needed = set(sys.modules)  # SciPy 1.13 loads scipy.sparse with it
cavity.GaussianProcess(cavity.covariances.RBF()).fit(X, [1.0, 2.0, 3.0, 5.0], learn=False)
heavy = {"scipy.special", "scipy.optimize", "scipy.stats", "scipy.sparse", "matplotlib", "pandas", "sklearn"}
heavy &= set(sys.modules) - needed
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"], check=True)


def test_public_names_resolve():
    assert set(cavity.__all__) <= set(dir(cavity))
    for name in cavity.__all__:
        assert getattr(cavity, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        cavity.nonsense  # noqa: B018


def test_checkers_see_the_names_that_are_lazy():
    """The imports that only type checkers read are those of the table, each from the same module."""
    tree = ast.parse(path_of("cavity").read_text())
    block = next(node.body for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: (node.module, alias.asname) for node in block for alias in node.names}
    lazy = {name: (f"cavity.{module}", name) for name, module in cavity._PUBLIC_NAMES.items()}
    assert typed == lazy | {name: ("cavity", name) for name in (*cavity._PUBLIC_MODULES, *cavity._OPTIONAL_MODULES)}


def test_dir_shows_public_names_only():
    """Completion of notebooks asks `dir`."""
    assert {"plot", "sklearn", *cavity.__all__} == set(dir(cavity))
    modules = [getattr(cavity, name) for name in dir(cavity) if inspect.ismodule(getattr(cavity, name))]
    assert len(modules) == 10
    for module in modules:
        assert dir(module) == sorted(module.__all__)
    for module in (cavity, *modules):
        for thing in (getattr(module, name) for name in module.__all__):
            if inspect.isclass(thing) and issubclass(thing, Public):
                shown = dir(thing.__new__(thing, *([1.0, 1.0] if thing is cavity.Gaussian else [])))
                assert shown
                assert not [name for name in shown if name.startswith("_")], thing


def test_what_users_hold_is_public():
    things = [
        getattr(module, name) for module in (cavity, cavity.covariances, cavity.likelihoods) for name in module.__all__
    ]
    held = [thing for thing in things if inspect.isclass(thing) and not issubclass(thing, Exception | Warning)]
    assert [thing for thing in held if not issubclass(thing, Public)] == []


@pytest.mark.parametrize(("name", "needs"), [("plot", "matplotlib"), ("sklearn", "sklearn")])
def test_faces_without_their_extra_name_the_command(name, needs):
    code = f"import sys; sys.modules[{needs!r}] = None; import cavity; cavity.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: " in done.stderr
    assert f"cavity[{name}]" in done.stderr


def test_imports_go_one_way():
    level = {f"cavity.{name}": i for i, names in enumerate(LAYERS) for name in names}
    for module in PYTHON:
        if module in ROOT:
            continue
        own = ".".join(module.split(".")[:2])
        assert own in level, f"{module}: in no layer"
        for target in imports_of(module):
            other = ".".join(target.split(".")[:2])
            if target in ROOT:
                assert target == "cavity", f"{module} imports the public name {target}"
                assert own in ("cavity.base", "cavity.cli"), f"{module} imports from the top: {target}"
            elif other != own and (module, target) != DOOR:
                assert level[other] > level[own], f"{module} imports {target}, which is not below it"


def test_kinds_of_files_are_read_above_the_models():
    """`cavity.models.saved` imports by name what it has in a table: every model, so only faces may import it."""
    modules = [path.rpartition(".")[0] for path in saved.MODEL_MAKERS.values()]
    assert all(f"cavity.{module}" in PYTHON for module in modules)
    users = {module for module in PYTHON if "cavity.models.saved" in set(imports_of(module))}
    assert users <= {module for module in PYTHON if module.startswith(("cavity.cli", "cavity.sklearn", "cavity.plot"))}


@pytest.mark.parametrize("unit", ["files", "folders"])
def test_no_circles(unit):
    name = package_of if unit == "folders" else (lambda module: module)
    graph = {}
    for module in PYTHON:
        if module in ROOT:
            continue
        for target in imports_of(module):
            if target not in ROOT and name(module) != name(target) and (module, target) != DOOR:
                graph.setdefault(name(module), set()).add(name(target))
    done, way = set(), []

    def visit(place):
        assert place not in way, f"a circle: {' -> '.join([*way[way.index(place) :], place])}"
        if place not in done:
            way.append(place)
            for target in sorted(graph.get(place, ())):
                visit(target)
            done.add(way.pop())

    for place in sorted(graph):
        visit(place)


def has_examples(module):
    """Whether a docstring of a module has an example."""
    return re.search(r"^ *>>> ", path_of(module).read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", [*filter(has_examples, PYTHON)])
def test_examples_in_docstrings_run(name):
    results = doctest.testmod(importlib.import_module(name))
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    assert results.attempted > 0
    assert results.failed == 0


@cache
def public_objects():
    """Return the names of public classes and functions, each with those of its public methods and properties."""
    names = {}
    modules = (cavity, cavity.distributions, cavity.covariances, cavity.online_bound, cavity.plot, cavity.sklearn)
    for thing in (getattr(module, name) for module in modules for name in module.__all__ if name[0] != "_"):
        if inspect.isclass(thing) or inspect.isfunction(thing):
            full = f"{thing.__module__}.{thing.__name__}"
            has_members = inspect.isclass(thing) and not issubclass(thing, Exception)
            members = inspect.getmembers(thing) if has_members else []
            names[full] = [full, *(f"{full}.{member}" for member, value in members if is_documented(member, value))]
    return names


def is_documented(member, value):
    """Whether a member of a class is public and written here."""
    is_ours = (getattr(value, "__module__", None) or "cavity").startswith(("cavity", "functools"))  # of cached ones
    return member[0] != "_" and (isinstance(value, property) or (is_ours and inspect.isroutine(value)))


NEEDED = {"GL08", "SS03", "SS05", "PR01", "PR02", "PR03", "PR04", "PR10", "RT03"}


@pytest.mark.parametrize("name", sorted(public_objects()))
def test_docstrings_follow_numpydoc(name):
    for member in public_objects()[name]:
        problems = [(code, text) for code, text in validate(member)["errors"] if code in NEEDED]
        if member.endswith(("Posterior", "Selection")):  # made by fits, not by users: fields are attributes
            problems = [problem for problem in problems if problem[0] != "PR01"]
        assert problems == [], member


CHECKOUT = Path(__file__).parent.parent


@pytest.mark.parametrize("folder", ["docs", "benchmarks"])
def test_scripts_import_what_there_is(folder):
    scripts = sorted((CHECKOUT / folder).rglob("*.py"))
    assert scripts
    for script in scripts:
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "cavity":
                module = importlib.import_module(node.module)
                for alias in node.names:
                    part = f"{node.module}.{alias.name}"
                    other = hasattr(module, alias.name) or (
                        hasattr(module, "__path__") and importlib.util.find_spec(part)
                    )
                    assert other, f"{script.name}: {node.module} has no {alias.name}"


def test_warnings_find_the_line_that_called():
    """By the one helper of `errors`: levels counted by hand are wrong after the next move."""
    users = [name for name in PYTHON if "stacklevel" in path_of(name).read_text()]
    assert users == ["cavity.base.errors"]
