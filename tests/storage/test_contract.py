"""What every place promises, be it a folder, an object store or the API."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from airflow_ett.events import AttemptId, Event
from airflow_ett.storage import Storage

Opened = Callable[[], Storage]

JOB = "0123456789abcdef0123"


def event(seq: int, writer: str = "launcher-1", **fields: object) -> Event:
    return Event(JOB, writer, seq, 1_000 + seq, "noted", AttemptId(1), data=fields)


def test_one_of_eight_creates_a_file(opened: Opened) -> None:
    """Each with a content of its own, at the same moment, in several rounds."""
    places = [opened() for _ in range(8)]
    for round_ in range(5):
        name = f"launcher/claims/{round_:08d}.json"
        barrier, won = threading.Barrier(8), []

        def make(
            mine: int, name: str = name, barrier: threading.Barrier = barrier, won: list = won
        ) -> None:
            barrier.wait()
            if places[mine].create(name, b"%d" % mine):
                won.append(mine)

        threads = [threading.Thread(target=make, args=(mine,)) for mine in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(won) == 1
        assert {place.read(name) for place in places} == {b"%d" % won[0]}
    assert [e.name for e in opened().entries("launcher/claims")] == [
        f"{round_:08d}.json" for round_ in range(5)
    ]


def test_a_creation_whose_answer_got_lost_is_known_as_ones_own(opened: Opened) -> None:
    assert opened().create("launcher/claims/00000001.json", b"mine")
    assert opened().create("launcher/claims/00000001.json", b"mine")
    assert not opened().create("launcher/claims/00000001.json", b"theirs")
    assert opened().read("launcher/claims/00000001.json") == b"mine"


def test_an_empty_file_is_one_too(opened: Opened) -> None:
    assert opened().create("g1", b"")
    assert opened().read("g1") == b""
    assert [e.name for e in opened().entries("")] == ["g1"]


def test_files_are_written_whole_read_and_removed(opened: Opened) -> None:
    place = opened()
    assert place.read("replies/1.0.0-n0.json") is None
    assert place.entries("replies") == []
    content = bytes(range(256)) * 100
    for each in (b"first", content):
        place.write("replies/1.0.0-n0.json", each)
        assert opened().read("replies/1.0.0-n0.json") == each
    place.write("replies/1.0.0-n1.json", b"x")
    place.write("cursor", b"c")
    assert [e.name for e in opened().entries("replies")] == ["1.0.0-n0.json", "1.0.0-n1.json"]
    assert [e.name for e in opened().entries("")] == ["cursor"]
    for _ in range(2):
        place.remove("replies/1.0.0-n0.json")
    assert [e.name for e in opened().entries("replies")] == ["1.0.0-n1.json"]
    assert place.read("replies/1.0.0-n0.json") is None
    assert place.create("replies/1.0.0-n0.json", b"anew")


def test_a_files_time_is_that_of_the_places_clock(opened: Opened) -> None:
    place = opened()
    before = place.now_ns()
    place.write("nodes/heartbeat-1.0-n0", b"")
    (entry,) = place.entries("nodes")
    assert before <= entry.time_ns <= place.now_ns() + 1


def test_what_is_appended_is_read_in_order_log_by_log(opened: Opened) -> None:
    first, second = "launcher/e00000001.jsonl", "launcher/e00000002.jsonl"
    place = opened()
    assert list(place.events("launcher")) == []
    place.append(first, [event(0), event(1, text="Zürich 漢 \u2028 '\"\\")])
    place.append(second, [event(0, "launcher-2")])
    place.append(first, [])
    opened().append(first, [event(2)])
    place.append(first, [event(3)])
    place.append("nodes/t.jsonl", [event(0, "trainer-1.0.0-r0-p7")])
    assert list(opened().events("launcher")) == [
        event(0),
        event(1, text="Zürich 漢 \u2028 '\"\\"),
        event(2),
        event(3),
        event(0, "launcher-2"),
    ]
    assert list(opened().events("nodes")) == [event(0, "trainer-1.0.0-r0-p7")]
    assert opened().entries("launcher") == []


def test_events_that_arrive_twice_are_one_per_number(opened: Opened) -> None:
    place, agent = opened(), "agent-1.0.0-n0-p1"
    first, second, third = (event(seq, agent) for seq in range(3))
    for _ in range(2):
        place.append("nodes/t.jsonl", [first, second])
    place.append("nodes/t.jsonl", [second, third])
    found = {(e.writer, e.seq): e for e in place.events("nodes")}
    assert list(found.values()) == [first, second, third]


ODD = [
    *("/etc/passwd", "../other/cursor", "launcher/../../x", ".", "replies/..", "a//b", "replies/"),
    *("a\nb", "a\0b", "nodes/é", "nodes/a b", "a\\b", "x" * 300, "a/b/c/d/e/f/g", "draft-x"),
    *("nodes/%2e%2e", "nodes/*", "nodes/?versionId=1", "nodes/<b>"),
]


def test_names_that_lead_elsewhere_are_refused(opened: Opened) -> None:
    place = opened()
    for name in ODD:
        for use in (
            lambda name: place.create(name, b""),
            lambda name: place.write(name, b""),
            lambda name: place.read(name),
            lambda name: place.remove(name),
            lambda name: place.entries(name),
            lambda name: place.append(f"nodes/{name}/.jsonl", [event(0)]),
        ):
            with pytest.raises(ValueError, match=r"is no name|too long"):
                use(name)
    with pytest.raises(ValueError, match="name"):
        place.read("")


def test_logs_and_files_are_kept_apart(opened: Opened) -> None:
    place = opened()
    with pytest.raises(ValueError, match="is the name of a log"):
        place.write("nodes/t.jsonl", b"")
    with pytest.raises(ValueError, match="is no log"):
        place.append("replies/t.jsonl", [event(0)])
