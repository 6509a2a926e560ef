"""``docs/event-log.schema.json`` beside the codec, the vocabulary and the page that explains it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.errors import EventLogError
from airflow_ett.events import Cause, JobState, Kind, Layer, decode, encode

LINE = {"v": 1, "job": "j", "writer": "w", "seq": 0, "time": 1, "event": "note"}
JUNK: list[Any] = [None, True, -1, 0, 2**63 - 1, 2**63, 1.0, 1.5, "", "x", "a\0b", [], {}]
JUNK += [[1, 2], [1, 0, 0], [1, 0, -1], [1, 0, "0"], [1, 0, True], {"any": [None, 1.5]}]
ENVELOPE = ("v", "job", "writer", "seq", "time", "event", "attempt", "rank", "data", "colour")
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) ?\|$", re.MULTILINE)
FIELD = re.compile(r"`(\w+)(\??)`(?: \{(.*?)\}| \((`.*?`)\))?")


def reads(fields: dict[str, Any]) -> bool:
    try:
        decode(json.dumps(fields))
    except EventLogError:
        return False
    return True


def kinds(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Kind -> what the schema adds to a line of it."""
    return {
        rule["if"]["properties"]["event"]["const"]: rule["then"]["properties"]["data"]
        | {"carries": rule["then"].get("required", [])}
        for rule in schema["allOf"]
    }


def resolved(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """What ``part`` of the schema refers to in the end."""
    while "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    return part


def values(part: dict[str, Any], schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that ``part`` of the schema allows."""
    part = resolved(part, schema)
    if "anyOf" in part:
        return st.one_of([values(choice, schema) for choice in part["anyOf"]])
    if "enum" in part:
        return st.sampled_from(part["enum"])
    types = part["type"] if isinstance(part["type"], list) else [part["type"]]
    fields = {name: values(p, schema) for name, p in part.get("properties", {}).items()}
    owed = {name: fields.pop(name) for name in part.get("required", [])}
    of = {
        "null": st.none(),
        "boolean": st.booleans(),
        "integer": st.integers(part.get("minimum"), part.get("maximum")),
        "string": st.text(min_size=part.get("minLength", 0)),
        "array": st.lists(st.text(), max_size=2),
        "object": st.fixed_dictionaries(owed, optional=fields),
    }
    return st.one_of([of[name] for name in types])


def test_the_kinds_are_the_vocabularys(schema: dict[str, Any]) -> None:
    assert list(kinds(schema)) == [kind.value for kind in Kind]


def test_the_words_are_the_vocabularys(schema: dict[str, Any]) -> None:
    """Requeues and elastic restarts are no submissions, so no line names their layers."""
    words = {name: part["enum"] for name, part in schema["$defs"].items() if "enum" in part}
    assert words["cause"] == [cause.value for cause in Cause]
    assert words["endState"] == [state.value for state in JobState if state != JobState.RUNNING]
    restarts = (Layer.SCHEDULER, Layer.ELASTIC)
    assert words["layer"] == [layer.value for layer in Layer if layer not in restarts]


@pytest.mark.parametrize("kind", list(Kind))
@settings(max_examples=20)
@given(draw=st.data())
def test_what_a_writer_may_write_is_read_and_kept(
    schema: dict[str, Any], validator: Any, kind: Kind, draw: st.DataObject
) -> None:
    data = draw.draw(values({"type": "object", **kinds(schema)[kind]}, schema))
    line = {**LINE, "event": kind.value, "attempt": [1, 0, 0], "data": data}
    validator.validate(line)
    event = decode(json.dumps(line))
    assert event.data == data
    assert decode(encode(event)) == event
    validator.validate(json.loads(encode(event)))


@pytest.mark.parametrize("kind", list(Kind))
@settings(max_examples=20)
@given(draw=st.data())
def test_a_field_that_is_owed_is_missed_and_the_line_still_read(
    schema: dict[str, Any], validator: Any, kind: Kind, draw: st.DataObject
) -> None:
    rule = kinds(schema)[kind]
    data = draw.draw(values({"type": "object", **rule}, schema))
    line = {**LINE, "event": kind.value, "attempt": [1, 0, 0], "data": data}
    for name in rule.get("required", []):
        broken = {**line, "data": {n: value for n, value in data.items() if n != name}}
        assert not validator.is_valid(broken)
        assert reads(broken)
        assert not validator.is_valid({**line, "data": {**data, name: None}})
    if "attempt" in rule["carries"]:
        assert not validator.is_valid({**line, "attempt": None})


@given(
    st.dictionaries(st.sampled_from(ENVELOPE), st.sampled_from(JUNK), max_size=3),
    st.sets(st.sampled_from(ENVELOPE), max_size=1),
)
def test_codec_and_schema_insist_on_the_same_envelope(
    validator: Any, changes: dict[str, Any], absent: set[str]
) -> None:
    fields = {n: value for n, value in {**LINE, **changes}.items() if n not in absent}
    assert validator.is_valid(fields) == reads(fields)


@given(st.recursive(st.sampled_from(JUNK), st.lists, max_leaves=3))
def test_what_is_no_object_is_no_line(validator: Any, value: Any) -> None:
    if not isinstance(value, dict):
        assert not validator.is_valid(value)
        assert not reads(value)


def test_unknown_kinds_fields_and_versions_are_lines(validator: Any) -> None:
    line = {**LINE, "v": 2, "event": "of_the_future", "colour": "red", "data": {"more": [1]}}
    validator.validate(line)
    validator.validate({**LINE, "event": "phase_end", "attempt": [1, 0, 0], "data": {"span": 1}})
    known = {**LINE, "event": "user_restart", "data": {"try": 1, "why": {}}}
    validator.validate(known)
    assert json.loads(encode(decode(json.dumps(line)))) == line


def test_the_page_names_the_same_kinds_and_fields(schema: dict[str, Any], repo: Path) -> None:
    """A field with ``?`` may be absent or null; words in parentheses are all there are."""
    page = (repo / "docs" / "event-log.md").read_text()
    rows = {kind: data for kind, data, _ in ROW.findall(page) if kind in list(Kind)}
    assert list(rows) == [kind.value for kind in Kind]
    for kind, cell in rows.items():
        assert _told(cell) == _ruled(kinds(schema)[kind], schema), kind
    causes = re.search(r"^A cause is one of (.*?)\.$", page, re.MULTILINE | re.DOTALL)
    assert causes is not None
    assert re.findall(r"`(\w+)`", causes[1]) == schema["$defs"]["cause"]["enum"]


def _told(cell: str) -> dict[str, Any]:
    return {
        name: (mark == "", _told(inner) or re.findall(r"`(\w+)`", words))
        for name, mark, inner, words in FIELD.findall(cell)
    }


def _ruled(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, rule in part.get("properties", {}).items():
        rule = resolved(rule, schema)
        words = [word for word in rule.get("enum", []) if word is not None]
        words = [] if words == schema["$defs"]["cause"]["enum"] else words
        owed = name in part.get("required", [])
        choices = [resolved(choice, schema) for choice in rule.get("anyOf", [rule])]
        assert owed != any(_takes_null(choice) for choice in choices), name
        found[name] = (owed, _ruled(rule, schema) or words)
    return found


def _takes_null(rule: dict[str, Any]) -> bool:
    return None in rule["enum"] if "enum" in rule else "null" in rule["type"]
