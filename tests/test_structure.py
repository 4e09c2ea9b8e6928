"""The structure of the package in numbers, which may fall; a commit that raises one says why."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from support.source_trees import walk_definitions
from test_package import MODULES, imports_of, package_of, path_of

import cavity

SOURCE = Path(cavity.__file__).parent
BEHIND_THE_ENTRY = ("models", "ep", "plot", "sklearn", "cli")  # where data have been opened
MAX_QUESTIONS = 5  # of what kind data are
MAX_FIT_LINES = 25  # code of a model's fit without signature and docstring
MAX_SIBLING_IMPORTS = 1  # between families of models
QUESTIONS = {"is_collection", "is_stored", "is_unopened", "is_elsewhere", "is_sliced", "is_file_name", "is_table"}
SOURCES = {"Source", "StoredRows", "SparseRows"}
DATA = {"X", "x", "y", "data", "rows", "sample_weight", "frame", "table"}  # names of data in calls of hasattr
WORDS_OF_QUESTIONS = re.compile("|".join([*QUESTIONS, *SOURCES, "hasattr", "is_remote"]))
ENTRIES = {"fit", "fit_stochastic", "update", "merge", "forget"}
SHARED = {"linear", "process", "formula", "many"}  # what families share
MAX_FUNCTION_LINES = 50  # without the docstring
MAX_FILE_LINES = 450
MAX_ARGUMENTS = 12
MAX_FUNCTIONS_OF_MORE_ARGUMENTS = 13  # fits and updates: arguments of rows and settings of iterations
NAMES_OF_KERNELS = (  # the operations and kinds of sites that the compiled kernels number
    "CONSTANT WHITE LINEAR RBF MATERN12 MATERN32 MATERN52 MATERN PERIODIC ADD MULTIPLY PROBIT LOGIT POISSON BINOMIAL "
    "GAUSSIAN LAPLACE CLUTTER INTERVAL GAMMA WEIBULL TWEEDIE BETA HURDLE CLOGLOG"
)
ONE_WORD_CONSTANTS = {"LOGGER", *NAMES_OF_KERNELS.split()}
PUBLIC_CLASS_NAMES_TWICE = {
    "Beta",
    "Gamma",
    "LogNormal",
    "Clutter",
    "Gaussian",
    "GaussianMixture",
}  # a model, a distribution, a prior or an estimator each


def questions(tree):
    """The lines of a module that ask what kind data are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            first, others = node.args[:1], node.args[1:2]
            kinds = {getattr(item, "id", "") for other in others for item in ast.walk(other)}
            thing = ast.unparse(first[0]).rpartition(".")[2].partition("[")[0] if first else ""
            asks = (name == "isinstance" and kinds & SOURCES) or (name == "hasattr" and thing in DATA)
            if asks or name in QUESTIONS:
                yield node.lineno
        elif isinstance(node, ast.Attribute) and node.attr == "is_remote":
            yield node.lineno


def test_data_are_opened_once():
    lines = [f"{path}:{line}" for path, line, *_ in read_definitions()["question"]]
    assert len(lines) <= MAX_QUESTIONS, lines


@pytest.mark.parametrize(
    ("code", "count"),
    [("is_stored(X)", 1), ("isinstance(X, Source | np.memmap)", 1), ("hasattr(X, 'tocsr')", 1), ("hasattr(p, 'a')", 0)],
)
def test_questions_are_counted(code, count):
    assert len([*questions(ast.parse(code))]) == count


def count_code_lines(body, lines):
    """Count the lines of statements that are not blank and no comments."""
    span = range(body[0].lineno - 1, body[-1].end_lineno) if body else ()
    return sum(bool(lines[i].strip()) and not lines[i].lstrip().startswith("#") for i in span)


def test_fits_fit_on_a_screen():
    entries = {f"{path}: {name}": lines for path, name, lines, _ in read_definitions()["entry"]}
    assert len(entries) > 10
    assert {name: lines for name, lines in entries.items() if lines > MAX_FIT_LINES} == {}


def test_families_do_not_import_each_other():
    results = []
    for module in MODULES:
        own = package_of(module)
        if path_of(module).exists() and own.startswith("cavity.models."):
            for target in imports_of(module):
                other = package_of(target)
                is_family = other.startswith("cavity.models.") and path_of(other).name == "__init__.py"
                if is_family and other != own and other.rpartition(".")[2] not in SHARED:
                    results.append(f"{module} imports {target}")
    results = [item for item in results if not item.startswith("cavity.models.saved ")]
    assert len(results) <= MAX_SIBLING_IMPORTS, results


@cache
def read_definitions():
    """Return by kind the path, the name, the lines of code and the number of arguments of what the package defines.

    Trees are dropped one by one: held together, they slow down all that collects garbage.
    """
    definitions = {kind: [] for kind in ("constant", "class", "function", "entry", "question")}
    for path in sorted(SOURCE.rglob("*.py")):
        text, name = path.read_text(), str(path.relative_to(SOURCE))
        tree, lines = ast.parse(text), text.splitlines()
        definitions["constant"] += [(name, constant, 0, 0) for constant in list_constants(tree)]
        if name.split("/")[0] in BEHIND_THE_ENTRY and WORDS_OF_QUESTIONS.search(text):
            definitions["question"] += [(name, line, 0, 0) for line in questions(tree)]
        for node in walk_definitions(tree):
            if isinstance(node, ast.ClassDef):
                definitions["class"].append((name, node.name, 0, 0))
            elif isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                span = node.end_lineno - body[0].lineno + 1 if body else 0
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                definitions["function"].append((name, node.name, span, len(arguments)))
                if name.startswith("models/") and node.name in ENTRIES:
                    definitions["entry"].append((name, node.name, count_code_lines(body, lines), len(arguments)))
    return definitions


def list_constants(tree):
    """Return the names in capitals that a module assigns at its top level."""
    names = []
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return [name for name in names if re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name)]


def has_one_word(name):
    return "_" not in name.strip("_") and name.strip("_") not in ONE_WORD_CONSTANTS


def test_constants_are_noun_phrases():
    constants = read_definitions()["constant"]
    assert len(constants) > 100
    one_word = [f"{path}: {name}" for path, name, *_ in constants if has_one_word(name)]
    assert one_word == []


@pytest.mark.parametrize(
    ("code", "names"),
    [("_FAR = 2", ["_FAR"]), ("A, MAX_B = 1, 2", ["A"]), ("RBF: int = 1", []), ("class C: FAR = 1", [])],
)
def test_constants_are_counted(code, names):
    assert [name for name in list_constants(ast.parse(code)) if has_one_word(name)] == names


def test_private_class_names_exist_once():
    counts = Counter(name for _, name, *_ in read_definitions()["class"])
    names = {name for name, count in counts.items() if count > 1} - PUBLIC_CLASS_NAMES_TWICE
    assert names == set()


def test_functions_are_short():
    functions = read_definitions()["function"]
    assert len(functions) > 1000
    assert [f"{path}: {name}" for path, name, lines, _ in functions if lines > MAX_FUNCTION_LINES] == []


def test_functions_have_few_arguments():
    names = [f"{path}: {name}" for path, name, _, count in read_definitions()["function"] if count > MAX_ARGUMENTS]
    assert len(names) <= MAX_FUNCTIONS_OF_MORE_ARGUMENTS, names


def test_files_are_short():
    longer = [path for path in sorted(SOURCE.rglob("*.py")) if len(path.read_text().splitlines()) > MAX_FILE_LINES]
    assert longer == []
