"""An object store as a place: chunks, conditional puts, answers that get lost, and outages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from airflow_ett.errors import ConfigurationError
from airflow_ett.events import Event, encode
from airflow_ett.storage import Storage, objects, open_readable, open_storage
from airflow_ett.storage.objects import ObjectStorage

Opened = Callable[[], Storage]
JOB = "0123456789abcdef0123"
LOG = "nodes/t.jsonl"
CLAIM = "launcher/claims/00000001.json"


def event(seq: int) -> Event:
    return Event(JOB, "t", seq, 1_000, "noted")


@pytest.fixture
def s3(on_s3: Opened) -> ObjectStorage:
    place = on_s3()
    assert isinstance(place, ObjectStorage)
    return place


@pytest.fixture
def memory(in_memory: Opened) -> ObjectStorage:
    place = in_memory()
    assert isinstance(place, ObjectStorage)
    return place


def test_a_log_is_chunks_that_are_read_on_by_number(s3: ObjectStorage) -> None:
    events = [event(seq) for seq in range(150)]
    for each in events[:100]:
        s3.append(LOG, [each])
    first = s3.read_log(LOG)
    assert (first.events, first.offset) == (tuple(events[:100]), 100)
    assert s3.read_log(LOG, 100) == type(first)((), (), 100)
    s3.append(LOG, events[100:])
    again = s3.read_log(LOG, 100)
    assert (again.events, again.offset) == (tuple(events[100:]), 101)
    assert s3.logs() == [LOG]
    assert s3._fs.cat_file(f"{s3._root}/{LOG}/00000100") == b"".join(map(encode, events[100:]))


def test_two_processes_that_share_a_log_overwrite_nothing(
    memory: ObjectStorage, in_memory: Opened
) -> None:
    other = in_memory()
    for seq in range(0, 6, 2):
        memory.append(LOG, [event(seq)])
        other.append(LOG, [event(seq + 1)])
    assert [e.seq for e in memory.events("nodes")] == [0, 1, 2, 3, 4, 5]


def test_a_place_that_was_emptied_is_read_from_its_begin(memory: ObjectStorage) -> None:
    for seq in range(3):
        memory.append(LOG, [event(seq)])
    memory._fs.rm(memory._root, recursive=True)
    anew = open_readable(memory.place)
    anew.append(LOG, [event(9)])
    assert anew.read_log(LOG, 3) == type(anew.read_log(LOG))((event(9),), (), 1)


def test_what_is_no_event_is_told_with_chunk_and_byte(memory: ObjectStorage) -> None:
    good = encode(event(0))
    memory.append(LOG, [event(1)])
    chunk = f"{memory._root}/{LOG}/00000001"
    memory._fs.pipe_file(chunk, b"[1]\n" + good + b"no json\n" + good[:30])
    found = memory.read_log(LOG)
    assert (found.events, found.offset) == ((event(1), event(0)), 2)
    at = 4 + len(good)
    assert [(bad.path.as_posix(), bad.offset) for bad in found.bad] == [
        (f"{LOG}/00000001", offset) for offset in (0, at, at + 8)
    ]


def _lose(monkeypatch: pytest.MonkeyPatch, place: ObjectStorage, error: Exception) -> None:
    """Have the next put done, and its answer be an error."""
    put = place._fs.pipe_file

    def once(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(place._fs, "pipe_file", put)
        put(*arguments, **options)
        raise error

    monkeypatch.setattr(place._fs, "pipe_file", once)


def test_a_put_whose_answer_got_lost_is_ones_own(
    s3: ObjectStorage, on_s3: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.create("launcher/claims/00000000.json", b"proves that the store is fit")
    _lose(monkeypatch, s3, OSError("connection reset"))
    assert s3.create(CLAIM, b"mine")
    assert not on_s3().create(CLAIM, b"theirs")
    s3.append(LOG, [event(0)])
    _lose(monkeypatch, s3, OSError("connection reset"))
    s3.append(LOG, [event(1)])
    s3.append(LOG, [event(2)])
    assert [e.seq for e in s3.events("nodes")] == [0, 1, 2]


def test_a_store_that_says_only_that_a_condition_failed_is_understood(
    s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every S3 server names the condition as Amazon's does."""
    put = s3._fs.pipe_file

    def terse(*arguments: Any, **options: Any) -> None:
        try:
            put(*arguments, **options)
        except FileExistsError:
            answer = {"Error": {"Code": "PreconditionFailed"}}
            raise OSError("failed") from ClientError(answer, "PutObject")

    monkeypatch.setattr(s3._fs, "pipe_file", terse)
    assert s3.create(CLAIM, b"mine")
    assert not s3.create(CLAIM, b"theirs")


def test_a_store_without_conditional_puts_is_refused(
    s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two launchers could hold one job there: as an S3 server that skips a header it knows not."""
    put = s3._fs.pipe_file
    with monkeypatch.context() as deaf:
        deaf.setattr(s3._fs, "pipe_file", lambda path, content, mode="": put(path, content))
        with pytest.raises(ConfigurationError, match="no conditional put"):
            s3.create(CLAIM, b"mine")
    assert s3.read(CLAIM) is None
    on_disk = open_storage(f"file://{tmp_path_factory.mktemp('disk')}")
    with pytest.raises(ConfigurationError, match="no conditional put"):
        on_disk.create(CLAIM, b"mine")
    assert on_disk.entries("") == []


def test_a_bucket_that_is_not_there_is_no_empty_place(on_s3: Opened) -> None:
    place = ObjectStorage("s3://no-such-bucket/ett/g1")
    for use in (
        lambda: place.read("cursor"),
        lambda: place.entries("replies"),
        lambda: place.events("nodes"),
        lambda: place.logs(),
        lambda: place.read_log(LOG),
        lambda: place.create(CLAIM, b""),
        lambda: place.append(LOG, [event(0)]),
        lambda: place.now_ns(),
    ):
        with pytest.raises(OSError, match=r"no-such-bucket|bucket does not exist") as caught:
            use()
        assert not isinstance(caught.value, FileNotFoundError)
        assert "Check the address, and the credentials" in str(caught.value)


def test_a_refusal_is_told_as_one(s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.append(LOG, [event(0)])

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("Access Denied")

    for name in ("pipe_file", "cat_file", "ls", "rm_file"):
        monkeypatch.setattr(s3._fs, name, refuse)
    for use in (
        lambda: s3.read("cursor"),
        lambda: s3.write("cursor", b""),
        lambda: s3.entries("replies"),
        lambda: s3.create(CLAIM, b""),
    ):
        with pytest.raises(PermissionError, match="credentials"):
            use()


def test_whatever_a_file_system_raises_is_an_os_error(
    s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("This class is not fork-safe")

    for name in ("cat", "cat_file", "ls"):
        monkeypatch.setattr(s3._fs, name, fail)
    for use in (lambda: s3.read("cursor"), lambda: s3.read_log(LOG), lambda: s3.logs()):
        with pytest.raises(OSError, match="not fork-safe"):
            use()


def test_an_address_that_cannot_be_used_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigurationError, match="password") as caught:
        open_storage("ftp://user:hunter2@host/x")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="nowhere"):
        open_storage("nowhere://bucket/x")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ConfigurationError, match="needs fsspec"):
        open_storage("s3://bucket/x")


def test_a_heartbeat_is_told_by_this_computers_clock(
    memory: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.write("nodes/heartbeat-1.0-n0", b"")
    assert (memory.heartbeat_ns(), memory.logged_ns()) == (pytest.approx(_now(), abs=5e9), None)
    minute = 60 * 10**9
    times = memory._time_ns
    monkeypatch.setattr(memory, "_time_ns", lambda info: times(info) - minute)
    assert memory.heartbeat_ns() == pytest.approx(_now(), abs=5e9)
    memory.append(LOG, [event(0)])
    assert memory.logged_ns() == pytest.approx(_now() - minute, abs=5e9)

    def refuse() -> int:
        raise PermissionError("read only")

    monkeypatch.setattr(memory, "now_ns", refuse)
    assert memory.heartbeat_ns() == pytest.approx(_now() - minute, abs=5e9)


def _now() -> int:
    import time

    return time.time_ns()


def test_a_file_is_swapped_only_for_what_it_was(s3: ObjectStorage, on_s3: Opened) -> None:
    assert s3.swaps()
    none = s3.tag("latest")
    assert not s3.swap("latest", b"v1", none), "that is create's part"
    assert s3.read("latest") is None
    s3.write("latest", b"v1")
    first = s3.tag("latest")
    assert s3.swap("latest", b"v2", first)
    other = on_s3()
    assert isinstance(other, ObjectStorage)
    assert not other.swap("latest", b"v3", first)
    assert not other.swap("latest", b"v3", none)
    assert s3.read("latest") == b"v2"
    assert other.swap("latest", b"v2", first), "an answer that got lost is asked for again"


def test_only_s3_swaps(memory: ObjectStorage) -> None:
    assert not memory.swaps()


def test_a_large_file_goes_and_comes_in_pieces(
    s3: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 10
    (tmp_path / "file").write_bytes(content)
    s3.upload("v1/file", tmp_path / "file")
    monkeypatch.setattr(objects, "_PIECE", 1000)
    assert [len(piece) for piece in s3.pieces("v1/file")] == [1000, 1000, 560]
    assert b"".join(s3.pieces("v1/file")) == s3.read("v1/file") == content
    (tmp_path / "file").write_bytes(b"")
    s3.upload("v1/file", tmp_path / "file")
    assert list(s3.pieces("v1/file")) == []
    with pytest.raises(FileNotFoundError):
        list(s3.pieces("v1/none"))
