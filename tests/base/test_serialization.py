"""Dataclasses in dataclasses become arrays and settings, and come back; all posteriors do in test_records.py."""

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from cavity.base import records, serialization
from cavity.base.records import Array, Nullable, Part, Record, declare, record_of


@dataclass
class Leaf:
    x: np.ndarray
    y: np.ndarray | None
    word: str = "none"


@dataclass
class Wide:
    x: np.ndarray
    z: np.ndarray


@dataclass
class Tree:
    model: object
    trace: dict
    pair: tuple | None
    names: tuple | None
    _leaf: Leaf | Wide
    _other: Leaf | None


TREE = Record(
    {"m": Array("()"), "leaf_x": Array("N"), "leaf_y?": Array("N"), "other_x?": Array("N")}
    | {"trace_a?": Array("a"), "pair_b?": Array("()"), "pair_c?": Array("()")},
    {
        "names": Nullable(records.names()),
        "gap": Nullable(records.FINITE_REAL, np.inf),
        "leaf?": {"word": records.ANY_TEXT},
    },
    places={"m": "model.m", "gap": "model.gap", "leaf_": "_leaf.", "leaf": "_leaf", "other_": "_other."}
    | {"pair_b": "pair.0", "pair_c": "pair.1"},
)


def model_of(**settings):
    return SimpleNamespace(**settings)


@pytest.mark.parametrize("pair", [None, (1.0, 2.0)])
@pytest.mark.parametrize("leaf", [Leaf(np.ones(2), None, "some"), Leaf(np.ones(2), np.zeros(2))])
@pytest.mark.parametrize("gap", [np.inf, 3.0])
def test_trees_come_back(pair, leaf, gap):
    trace = {"a": np.arange(3.0)} if pair else {}
    tree = Tree(model_of(m=0.5, gap=gap), trace, pair, ("x", "y") if pair else None, leaf, None if pair else leaf)
    arrays, settings = serialization.serialize(TREE, tree)
    assert settings["gap"] == (None if gap == np.inf else gap)
    assert ("leaf_y" in arrays) == (leaf.y is not None)
    arrays, settings = records.check(TREE, arrays, json.loads(json.dumps(settings)))
    restored = serialization.deserialize(TREE, Tree, model_of, arrays, settings)
    assert (restored.model, restored.pair, restored.names) == (tree.model, tree.pair, tree.names)
    assert restored.trace.keys() == trace.keys()
    assert restored._leaf.word == leaf.word
    np.testing.assert_array_equal(restored._leaf.x, leaf.x)
    np.testing.assert_equal(restored._leaf.y, leaf.y)
    assert (restored._other is None) == (pair is not None)


def test_a_part_is_of_the_class_that_has_its_fields():
    arrays = {"m": np.array(0.5), "leaf_x": np.ones(1), "leaf_z": np.zeros(1)}
    restored = serialization.deserialize(TREE, Tree, model_of, arrays, {"names": ["x"], "gap": 1.0})
    assert isinstance(restored._leaf, Wide)
    assert isinstance(restored.model.m, float)
    assert restored.names == ("x",)


@dataclass
class Twig:
    tau: np.ndarray = declare(Array("N"))
    loo: np.ndarray | None = declare(Array("N", "any"), default=None)
    room: np.ndarray | None = None


@dataclass
class Declared:
    model: Any = declare(Part({"mean": Array("()"), "jitter?": records.FINITE_REAL}))
    _twig: Twig = declare(Part(Twig, "state_"))
    trace: dict = declare(Part({"change?": Array("c")}, "trace_"))
    _root: np.ndarray = declare(Array("N N"), name="root")
    count: int = declare(records.integer(), default=0)
    name: str = declare(records.ANY_TEXT, default="", name="name")
    digest: str | None = None

    record: ClassVar[Any] = Record(
        lambda settings: {"extra": Array("N"), **({"state_loo?": None} if settings["name"] == "short" else {})},
        {"digest?": records.ANY_TEXT},
        places={"extra": "_twig.room"},
    )


def test_fields_declare_what_files_have():
    record = record_of(Declared)
    assert [*record.settings] == ["jitter?", "count?", "name", "digest?"]
    names = ["mean", "state_tau", "state_loo?", "trace_change?", "root", "extra"]
    assert [*record.table({"name": "long"})] == names
    assert [*record.table({"name": "short"})] == [name for name in names if name != "state_loo?"]
    places = {"mean": "model.mean", "state_tau": "_twig.tau", "root": "_root", "trace_change": "trace.change"}
    assert {name: ".".join(*record.list_paths(name)) for name in places} == places


@pytest.mark.parametrize("name", ["long", "short"])
def test_what_fields_declare_comes_back(name):
    loo = None if name == "short" else np.array([np.nan, 1.0])
    tree = Declared(model_of(mean=0.5, jitter=0.1), Twig(np.ones(2), loo, np.zeros(2)), {}, np.eye(2), 3, name)
    record = record_of(Declared)
    arrays, settings = serialization.serialize(record, tree)
    assert settings == {"jitter": 0.1, "count": 3, "name": name}
    arrays, settings = records.check(record, arrays, settings)
    restored = serialization.deserialize(record, Declared, model_of, arrays, settings)
    assert (restored.model, restored.trace, restored.count, restored.name) == (tree.model, {}, 3, name)
    np.testing.assert_equal(
        (restored._twig.tau, restored._twig.loo, restored._twig.room), (np.ones(2), loo, np.zeros(2))
    )
    np.testing.assert_array_equal(restored._root, np.eye(2))
