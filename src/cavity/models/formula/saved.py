"""What files have of the formula of a posterior."""

import numpy as np

from cavity.base.records import ANY_TEXT, JSON_OBJECT, Made
from cavity.models.formula.design import Coding

CODING_FORM = {
    "formula": ANY_TEXT,
    "numbers": JSON_OBJECT,
    "codes": JSON_OBJECT,
    "labels": JSON_OBJECT,
    "base_levels": JSON_OBJECT,
}


def make_coding(settings):
    """Return a `Coding` of the settings of a file; ValueError for columns of different lengths and unknown codes."""
    numbers = {name: np.array(values, dtype=np.float64) for name, values in settings["numbers"].items()}
    codes = {name: np.array(values, dtype=np.intp) for name, values in settings["codes"].items()}
    labels = {name: tuple(values) for name, values in settings["labels"].items()}
    columns = [*numbers.values(), *codes.values()]
    if any(column.ndim != 1 or len(column) != len(columns[0]) for column in columns) or codes.keys() != labels.keys():
        raise ValueError("columns of a formula must be vectors of one length, with labels for each column of codes")
    if any(np.any((column < 0) | (column >= len(labels[name]))) for name, column in codes.items()):
        raise ValueError("codes of categories must be numbers of their labels")
    return Coding(settings["formula"], numbers, codes, labels, settings["base_levels"])


def describe_coding(coding):
    """Return the settings of a `Coding`, as JSON has them."""
    labels = {name: [to_json_label(label) for label in values] for name, values in coding.labels.items()}
    columns = {name: {key: column.tolist() for key, column in getattr(coding, name).items()} for name in COLUMN_FIELDS}
    return {"formula": coding.formula, **columns, "labels": labels, "base_levels": coding.base_levels}


def to_json_label(label):
    """Return a label as JSON has it."""
    return label.item() if isinstance(label, np.generic) else label


COLUMN_FIELDS = ("numbers", "codes")
CODING_SETTING = Made(make_coding, CODING_FORM, describe_coding)
