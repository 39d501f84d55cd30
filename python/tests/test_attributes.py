"""Attributes: what was given is read, with its epoch; what is no JSON, too large, or damaged is told."""
from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import damaged_copy

import swale
from swale import _described, _schema


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("described") / "run"
    with swale.create(path, schema=[("r", "f8", 3)], key="u64") as out:
        for step in range(3):
            if step != 1:
                out.set_attributes({"units": "metal", "n": np.int32(step), "box": np.arange(3.0),
                                    "ä": "\n\x1b"})
                out.set_attributes({"own": [step, None, True]}, epoch=True)
            out.append_many(np.arange(5, dtype="u8"), np.zeros(5, dtype=[("r", "f8", 3)]))
            out.epoch_end(step)
    return str(path)


def test_they_are_read_with_their_epoch(described: str) -> None:
    with swale.open(described) as d:
        assert d.attributes == {"units": "metal", "n": 2, "box": [0.0, 1.0, 2.0], "ä": "\n\x1b"}
        assert [epoch.attributes for epoch in d.epochs] == [{"own": [0, None, True]}, {},
                                                            {"own": [2, None, True]}]
        assert d._described(1)["n"] == 0 and d._described(2)["own"] == [2, None, True]
        copy = pickle.loads(pickle.dumps(d.epochs[2]))
        assert copy == d.epochs[2] and copy.attributes == {} and copy.step == 2
    with pytest.raises(ValueError, match="closed"):
        d.attributes


def test_a_directory_without_them_has_none(run: str) -> None:
    with swale.open(run) as d:
        assert d.attributes == {} and all(epoch.attributes == {} for epoch in d.epochs)


@pytest.mark.parametrize(("given", "error", "says"), [
    ([1], TypeError, "expected a dict"),
    ({"a": float("nan")}, ValueError, "JSON cannot hold"),
    ({"a": {1, 2}}, TypeError, "set is none of its types"),
    ({"a": "\ud800"}, ValueError, "JSON cannot hold"),
    ({"a": "x" * 65536}, swale.InvalidArgumentError, "at most 65536"),
])
def test_what_cannot_be_kept_is_refused_and_changes_nothing(tmp_path: Path, given: object, error: type,
                                                            says: str) -> None:
    with swale.create(tmp_path / "run") as out:
        out.set_attributes({"a": 1})
        with pytest.raises(error, match=says):
            out.set_attributes(given)
        out.append(b"k", b"v")
        out.epoch_end(0)
        out.set_attributes({})
        out.epoch_end(1)
    with swale.open(tmp_path / "run") as d:
        assert d._described(0) == {"a": 1} and d.attributes == {}


def test_damage_is_told_with_its_place(described: str, tmp_path: Path) -> None:
    copy = damaged_copy(described, tmp_path / "copy", "jobs/0001/attributes.jsonl", 70)
    with swale.open(copy) as d:
        with pytest.raises(swale.CorruptionError, match="attributes.jsonl") as caught:
            d.epochs[0].attributes
        assert caught.value.offset == 0 and str(caught.value.path).endswith("attributes.jsonl")
        assert d.epochs[2].attributes == {"own": [2, None, True]} and len(d[3]) == 3


SCHEMA = _schema.Schema("x:f8;y:f8;z:f8;q:f4x3:km;type:i4;e:f8")


@pytest.mark.parametrize(("attributes", "ask", "says"), [
    ({"position": ["x", "w"]}, "position", "two or three fields"),
    ({"position": ["x"]}, "position", "two or three fields"),
    ({"position": 3}, "position", "two or three fields"),
    ({"box": [1, 2]}, "box", "three lengths"),
    ({"box": "large"}, "box", "three lengths"),
    ({"box": [1, 2, 3], "origin": [1]}, "box", "three numbers"),
    ({"box": [1, True, 3]}, "box", "three lengths"),
    ({"periodic": [True]}, "periodic", "three of them"),
    ({"species": "kind"}, "species", "expected a field"),
    ({"units": 3}, "system", "system of units"),
])
def test_wrong_attributes_are_named(attributes: dict[str, object], ask: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        getattr(_described.Described(SCHEMA, attributes), ask)


def test_units_come_from_the_schema_the_fields_or_the_system() -> None:
    told = _described.Described(SCHEMA, {"units": "metal",
                                         "fields": {"e": {"unit": "eV", "si": 1.6e-19,
                                                          "dimension": [2, 1, -2, 0, 0, 0, 0]}}})
    assert [told.unit(name) for name in ("x", "q", "e", "time", "type")] == ["Å", "km", "eV", "ps", ""]
    assert told.si("x") == (1e-10, (1, 0, 0, 0, 0, 0,
                                    0)) and told.si("e") == (1.6e-19, (2, 1, -2, 0, 0, 0, 0))
    assert told.si("type") is None and told.si("time").factor == 1e-12
    assert [str(each) for each in told.position] == ["x", "y", "z"] and told.velocity == ()
    assert [str(each)
            for each in _described.Described(SCHEMA, {"position": "q"}).position] == ["q[0]", "q[1]", "q[2]"]
    assert _described.Described(SCHEMA, {"fields": {"e": 3}}).document["fields"]["e"] == 3
    with pytest.raises(ValueError, match="expected an object"):
        _described.Described(SCHEMA, {"fields": {"e": 3}}).unit("e")
