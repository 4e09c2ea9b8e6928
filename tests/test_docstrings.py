"""Options that many functions have are described in the same words, in static text that is readable where it stands."""

import ast
import inspect
import re
from collections import defaultdict
from dataclasses import fields, is_dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from numpydoc.docscrape import NumpyDocString
from support.source_trees import walk_definitions

import cavity
import cavity.plot
import cavity.sklearn
from cavity import mean_field

SEED = r"(seed or )?numpy\.random\.Generator(, optional)?"
CORES = "-1 is all cores; by default (as many as the process may use|the environment variable CAVITY_NUM_THREADS)"
WORDS = {  # of an option: what its type is like, and what its description is like from its beginning on
    "accelerate": (r'bool or {"anderson", "squarem"}, default \w+', r"(How|Whether and how) to e|Extrapolate"),
    "callback": (
        "callable, optional",
        r"Called as callback\(event\) with a `cavity.Event` after each .*; a true result stops the fit and keeps what",
    ),
    "checkpoint": (
        "str or path-like, optional",
        "File that keeps how far the fit is: killed, it goes on from there when it is called again with the same data "
        "and options, and ends in the same bits. The file stays when the fit is done.$",
    ),
    "checkpoint_every": (
        "float, default 60.0",
        "Seconds from one writing of it to the next; 0 writes it after each pass or step.$",
    ),
    "damping": (
        r"float in [(\[].*, 1\], default 1\.0",
        r"(The|The largest|Largest) fraction of each site change that is made",
    ),
    "max_iter": (r"int, default \d+", "Most (sweeps|passes)"),
    "missing": (
        r'{"raise", "(drop|nan)"}, default "raise"|bool, default False',
        "What is done about (rows|points)( of one problem)? without a value|Whether nan stands for a number",
    ),
    "n_init": ("int, default 1", "Number of starts, of which the one with the largest ELBO counts"),
    "n_threads": ("int, optional", rf"Threads\b[^.]*\. {CORES}"),
    "exposure": (
        r"(float or )?array_like \([NMnm],\)( or str)?, optional",
        "For counts: what their mean is proportional to",
    ),
    "offset": (r"(float or )?array_like \([NMnm],\)( or str)?, optional", r"Known part of f\b"),
    "progress": (
        "bool, default False",
        "Whether to show progress on stderr: a bar where tqdm is installed, else lines",
    ),
    "power": (r"float in .*, default 1\.0", r"Exponent of power EP; 1 is EP\.|For EP: the exponent alpha of power EP"),
    "rng": (SEED, r"(The source|Source) of randomness|Needed if n_init > 1|For order=|Shuffles the rows"),
    "tol": (r"float, default 1e-\d+", "Stopping rule"),
}
NAMES_OF_OTHERS = {"avg_comparisons", "avg_predictions", "avg_slopes"}  # of the R package marginaleffects
MAX_NAME_LENGTH = 60  # of strings that may be names
WEIGHTS = r"A row of weight w counts as w copies; 0 leaves it out|How often each row counts"
ALWAYS_IN_FITS = {"n_threads": "the result has the same bits for any number", "sample_weight": WEIGHTS}
# Of parameters that mean different things in different functions: the number of texts of their entries, which may only
# fall. All others have the same text wherever there is an entry.
TEXTS_BY_NAME = {
    2: (
        "*column *names approximation ax batch_size bounds centre class_weight classes clutter_variance "
        "clutter_weight combination copy_X_train correction_error covariance_prior covariance_type damping "
        "data degrees_of_freedom_prior draws effect eval_gradient factor fixed forgetting gamma1 gamma2 "
        "graphs inducing init inverse_scale jitter k K_aa K_ab K_fb K_ff_diagonal label levels "
        "mean_precision_prior mean_prior n n_bins n_init normalize_y old_covariance old_mean "
        "old_prior order other parts path reg_covar rho1 rho2 row rows sample_weight share size skewness stop "
        "table target tau tau1 tau2 theta tolerance trials value values variables vector verbose warm_start "
        "weight_concentration_prior"
    ),
    3: (
        "accelerate ard as_frame b by callback column degrees_of_freedom dispersion effects fit_intercept "
        "fitted group groups index integrate K_bb lengthscale means model n_inducing n_threads offset out p period "
        "probability random_state start title Z"
    ),
    4: (
        "a initial_means kernel kind log_density max_iter n_components n_samples noise precision prior_mean "
        "priors return_std term"
    ),
    5: "covariance method power schedule sd",
    6: "**options alpha columns intercept likelihood missing name q rng scale shape",
    7: "learn names tol",
    8: "prior_variance",
    9: "weights",
    10: "posterior",
    11: "mean noise_variance x",
    12: "variance",
    37: "X",
    41: "y",
}
TEXTS_BY_NAME = {name: number for number, names in TEXTS_BY_NAME.items() for name in names.split()}


def functions():
    """Return the public functions and methods of the library that have documented parameters, by their names."""
    public = [getattr(cavity, name) for name in cavity.__all__]
    results = {}
    for place in [cavity, *filter(inspect.ismodule, public)]:
        for name in getattr(place, "__all__", ()):
            value = getattr(place, name)
            for inner, item in vars(value).items() if inspect.isclass(value) else [("", value)]:
                item = getattr(item, "__func__", item)
                if inspect.isfunction(item) and not inner.startswith("_") and "Parameters\n" in (item.__doc__ or ""):
                    results[f"{place.__name__}.{name}.{inner}".rstrip(".")] = item
    return results


def test_options_are_described_in_the_same_words():
    truth = functions()
    assert {"cavity.GLM.fit", "cavity.mean_field.fit", "cavity.StreamingGPState.update"} <= truth.keys()
    for name, function in truth.items():
        for entry in NumpyDocString(inspect.getdoc(function))["Parameters"]:
            message, label = " ".join(entry.desc), f"{name}({entry.name})"
            if entry.name in WORDS:
                kind, opening = WORDS[entry.name]
                assert re.fullmatch(kind, entry.type), (label, entry.type)
                assert re.match(opening, message), (label, message)
            if name.endswith(".fit") and entry.name in ALWAYS_IN_FITS:
                assert re.search(ALWAYS_IN_FITS[entry.name], message), (label, message)


def test_attributes_of_posteriors_are_their_fields():
    """The section is made of the declarations of fields: type of the annotation, axes of the array, description."""
    classes = [value for name, value in vars(mean_field).items() if name == "MeanFieldPosterior"]
    classes += [getattr(cavity, name) for name in cavity.__all__ if name.endswith("Posterior")]
    sections = {cls.__name__: NumpyDocString(inspect.getdoc(cls))["Attributes"] for cls in classes if is_dataclass(cls)}
    assert len(sections) == 13
    for cls in filter(is_dataclass, classes):
        names = [field.name for field in fields(cls) if not field.name.startswith("_")]
        assert sorted(entry.name for entry in sections[cls.__name__]) == sorted(names)
        assert all("".join(entry.desc).endswith(".") for entry in sections[cls.__name__])
    types = {name: {entry.name: entry.type for entry in entries} for name, entries in sections.items()}
    assert types["ClutterPosterior"]["mean"] == "float or ndarray (D,) or (B, D)"
    assert types["ClutterPosterior"]["converged"] == "bool or ndarray (B,)"
    assert types["UnitMixturePosterior"]["prior_variance"] == "float or ndarray (K,)"
    assert types["GLMPosterior"]["spread"] == "ndarray (C,) or None"
    assert types["GLMPosterior"]["columns"] == "tuple of str or None"
    assert types["LinearRegressionPosterior"]["alpha"] == "Gamma or None"


def collect_entries():
    """Return the descriptions of parameters of public functions, methods and classes, by the names of parameters."""
    texts = defaultdict(lambda: defaultdict(list))
    modules = [value for value in (getattr(cavity, name) for name in cavity.__all__) if inspect.ismodule(value)]
    for place in dict.fromkeys([cavity, cavity.plot, cavity.sklearn, *modules]):
        for value in [getattr(place, name) for name in getattr(place, "__all__", ())]:
            names = [name for name in dir(value) if not name.startswith("_")] if inspect.isclass(value) else []
            own = [] if place is cavity.plot else [value]  # fields of Displays are what is drawn
            for member in [*own, *(inspect.getattr_static(value, name) for name in names)]:
                member = getattr(member, "__func__", member)
                docstring = inspect.getdoc(member) or ""
                is_ours = (getattr(member, "__module__", None) or "").startswith("cavity.")
                if is_ours and callable(member) and "Parameters\n---" in docstring:
                    for entry in NumpyDocString(docstring)["Parameters"]:
                        for name in entry.name.split(", "):
                            texts[name][" ".join(entry.desc)].append(member.__qualname__)
    return texts


def test_entries_of_one_name_are_equal():
    texts = collect_entries()
    assert len(texts) > 200
    assert {"n_threads", "callback", "level"} <= texts.keys()
    different = {name: dict(t) for name, t in texts.items() if len(t) > TEXTS_BY_NAME.get(name, 1)}
    assert different == {}


def test_public_names_are_in_the_reference():
    docs = Path(__file__).parents[1] / "docs"
    text = "\n".join(path.read_text() for path in [docs / "api.rst", *(docs / "reference").glob("*.rst")])
    documented = set(re.findall(r"^\.\. auto\w+:: (?:\w+\.)*(\w+)", text, re.MULTILINE))
    modules = (cavity, cavity.likelihoods, cavity.covariances, cavity.distributions, cavity.sklearn, cavity.plot)
    public = {name for module in modules for name in module.__all__ if callable(getattr(module, name))}
    assert not public - documented


def collect_names(code):
    """All names of compiled code: of variables, attributes, arguments, functions and classes, and in short strings."""
    constants = [code.co_consts]
    for values in constants:  # which grows: names of arguments in calls are tuples
        for value in values:
            if isinstance(value, CodeType):
                yield from collect_names(value)
            elif isinstance(value, tuple | frozenset):
                constants.append(value)
            elif isinstance(value, str) and len(value) < MAX_NAME_LENGTH:
                yield from re.findall(r"\w+", value)
    yield from (*code.co_names, *code.co_varnames, *code.co_freevars, code.co_name)


def test_names_in_docstrings_exist():
    """Names in backticks somewhere in the package, documented parameters among the arguments: renaming forgets them."""
    source = Path(cavity.__file__).parent
    paths = [*source.rglob("*.py")]
    codes = (SourceFileLoader(path.stem, str(path)).get_code(path.stem) for path in paths)
    names = {name for code in codes for name in collect_names(code)} | {path.stem for path in paths}
    names |= NAMES_OF_OTHERS
    for path in (Path(__file__).parents[1] / "cython_core").rglob("*.p*"):
        names.update(re.findall(r"\w+", path.read_text()))
    wrong = []
    for path in paths:
        for node in walk_definitions(ast.parse(path.read_text())):
            docstring = ast.get_docstring(node) or ""
            quoted = set(re.findall(r"(?<!`)`([a-z_][a-z_0-9]*)`(?!`)", docstring)) - names
            if isinstance(node, ast.FunctionDef) and "Parameters\n---" in docstring:
                entries = NumpyDocString(docstring)["Parameters"]
                quoted |= {name.lstrip("*") for entry in entries for name in entry.name.split(", ")} - {
                    argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)
                }
            wrong += [f"{path.relative_to(source)}: {name}" for name in sorted(quoted)]
    assert wrong == []
