"""Descriptions of the fields of posteriors: the Attributes of their docstrings, and the table of `cavity info`."""

import re
from inspect import cleandoc, get_annotations
from textwrap import fill

import numpy as np

from cavity.base.records import Array

DOCSTRING_WIDTH = 116  # characters
NUMBER_TYPES = {"f": "float", "i": "int", "b": "bool", "U": "str"}  # by the kinds of arrays
TYPE_LABELS = {"dict[str, Any]": "dict", "tuple[str, ...]": "tuple of str", "tuple[Any, ...]": "tuple"}
TYPE_LABELS |= {"[float, float]": " of float", "FloatArray": "ndarray", "| Any": "| None", " | ": " or "}


def list_described_fields(cls):
    """Return {name: (annotation, metadata)} of the fields of a dataclass that have descriptions, its own ones first."""
    described = {}
    for base in cls.__mro__:
        declared = vars(base).get("__dataclass_fields__", vars(base))
        for name, annotation in get_annotations(base).items():
            metadata = getattr(declared.get(name), "metadata", {})
            if metadata.get("description"):
                described.setdefault(name, (annotation, metadata))
    return described


def describe_type(annotation, form):
    """Return the type of a field as docstrings have it, "ndarray (N, D)": of arrays by their axes."""
    if not isinstance(form, Array):
        for code, text in TYPE_LABELS.items():
            annotation = annotation.replace(code, text)
        return annotation
    options = [re.sub(r"\S+\?", "", form.axes), form.axes.replace("?", "")]  # without optional axes and with them
    shapes = [", ".join(axes.replace("()", "").split()) for option in options for axes in option.split("|")]
    tuples = [f"({axes})" if "," in axes else f"({axes},)" for axes in dict.fromkeys(shapes) if axes]
    numbers = [] if all(shapes) else [NUMBER_TYPES[form.kind[0]]]
    return " or ".join([*numbers, "ndarray " + " or ".join(tuples), *["None"] * annotation.endswith("| None")])


def document_fields(cls):
    """Add the fields that have descriptions to the docstring of a class that is being made a dataclass."""
    described = list_described_fields(cls)
    if cls.__doc__ is None or not described or "__dataclass_fields__" in vars(cls):  # slots: the class is made twice
        return
    lines = ["\n\nAttributes", "----------"]
    for name, (annotation, metadata) in described.items():
        lines.append(f"{name} : {describe_type(annotation, metadata['saved'])}")
        lines.append(fill(metadata["description"], DOCSTRING_WIDTH, initial_indent="    ", subsequent_indent="    "))
    summary, *sections = re.split(r"(?=\n\n\w+\n---)", cleandoc(cls.__doc__), maxsplit=1)
    cls.__doc__ = "".join([summary, "\n".join(lines), *sections])


def describe_fields(posterior):
    """Yield (name, shape, description) of the described fields that are not None; only arrays have a shape."""
    for name, (_, metadata) in list_described_fields(type(posterior)).items():
        value = getattr(posterior, name)
        if value is not None:
            yield name, value.shape if isinstance(value, np.ndarray) else None, metadata["description"]
