"""The event codec: what it keeps, what it refuses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.errors import EventLogError
from airflow_ett.events import AttemptId, Event, decode, encode

whole = st.integers(min_value=0, max_value=2**62)
words = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=20)
json_data = st.dictionaries(
    words, st.recursive(st.none() | st.booleans() | whole | st.text(), st.lists, max_leaves=4)
)
events = st.builds(
    Event,
    job=words,
    writer=words,
    seq=whole,
    time_ns=whole,
    kind=words,
    attempt=st.none() | st.builds(AttemptId, whole, whole, whole),
    rank=st.none() | whole,
    data=json_data,
)


@given(events)
def test_an_event_comes_back_as_it_went_on_one_line(event: Event) -> None:
    line = encode(event)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == event


def test_unknown_fields_and_kinds_are_kept() -> None:
    line = b'{"v":1,"job":"j","writer":"w","seq":0,"time":1,"event":"new_kind","colour":"red"}'
    event = decode(line)
    assert event.kind == "new_kind"
    assert event.extra == {"colour": "red"}
    assert json.loads(encode(event))["colour"] == "red"


def test_the_version_of_another_schema_is_kept() -> None:
    """Also by whoever stores an event's fields, ``extra`` among them, and nothing else."""
    line = b'{"v":9,"job":"j","writer":"w","seq":0,"time":1,"event":"e"}'
    event = decode(line)
    assert event.version == 9
    assert encode(event) == line + b"\n"
    assert decode(line.replace(b'"v":9,', b"")).version == 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"job": ""}, "job"),
        ({"job": "a\0b"}, "job"),
        ({"writer": 3}, "writer"),
        ({"seq": -1}, "seq"),
        ({"seq": True}, "seq"),
        ({"time": 1.5}, "time"),
        ({"event": None}, "event"),
        ({"attempt": [1, 2]}, "attempt"),
        ({"attempt": [1, 2, "3"]}, "attempt"),
        ({"data": []}, "data"),
        ({"rank": "0"}, "rank"),
        ({"v": "2"}, "v"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, object], word: str) -> None:
    fields = {"job": "j", "writer": "w", "seq": 0, "time": 1, "event": "e", **change}
    with pytest.raises(EventLogError, match=f"^{word} "):
        decode(json.dumps(fields))


@pytest.mark.parametrize("place", ['"data":{"a":[NUMBER]}', '"colour":NUMBER', '"rank":NUMBER'])
@pytest.mark.parametrize("number", ["1e999", "-1e999", "Infinity", "NaN"])
def test_a_number_that_is_not_finite_is_refused(place: str, number: str) -> None:
    line = '{"job":"j","writer":"w","seq":0,"time":1,"event":"e",PLACE}'.replace("PLACE", place)
    with pytest.raises(EventLogError, match=f"not a line of JSON: {number} is"):
        decode(line.replace("NUMBER", number))


def test_floats_in_data_are_kept() -> None:
    line = '{"job":"j","writer":"w","seq":0,"time":1,"event":"e","data":{"a":1.5e308,"b":1e-999}}'
    assert decode(line).data == {"a": 1.5e308, "b": 0.0}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-32-be", "utf-8-sig"])
def test_bytes_are_utf_8(encoding: str) -> None:
    line = '{"job":"é","writer":"w","seq":0,"time":1,"event":"e"}'
    assert decode(line.encode()).job == "é"
    with pytest.raises(EventLogError, match="not a line of JSON: "):
        decode(line.encode(encoding))


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"3", b"\xff\xfe"])
def test_what_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(EventLogError):
        decode(line)


def test_a_number_that_json_has_no_word_for_becomes_null() -> None:
    data = {"loss": float("nan"), "parts": [1.5, float("inf")], "ok": 2}
    event = Event("j", "w", 0, 1, "of_the_future", data=data)
    assert decode(encode(event)).data == {"loss": None, "parts": [1.5, None], "ok": 2}
