"""The files of jobs whose logs the API holds, on both databases."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import select, update

from airflow_ett.storage import Entry
from airflow_ett.store import Store, files, tables

JOB, OTHER = "0123456789abcdef0123", "f" * 20


def test_a_file_belongs_to_its_job_and_its_name(store: Store) -> None:
    content = bytes(range(256))
    assert files.create(store, JOB, "nodes/a", content)
    assert files.create(store, JOB, "nodes/a", content)
    assert not files.create(store, JOB, "nodes/a", b"")
    assert files.create(store, OTHER, "nodes/a", b"")
    files.write(store, JOB, "nodes/b", b"1")
    files.write(store, JOB, "nodes/b", b"2")
    assert [files.read(store, JOB, name) for name in ("nodes/a", "nodes/b", "nodes/A")] == [
        *(content, b"2", None)
    ]
    files.remove(store, JOB, "nodes/a")
    files.remove(store, JOB, "nodes/a")
    assert [entry.name for entry in files.entries(store, JOB, "nodes")] == ["b"]
    assert files.read(store, OTHER, "nodes/a") == b""


def test_a_rewritten_file_has_a_new_time(store: Store) -> None:
    before = files.now_ns(store)
    files.write(store, JOB, "cursor", b"1")
    (first,) = files.entries(store, JOB, "")
    files.write(store, JOB, "cursor", b"1")
    (second,) = files.entries(store, JOB, "")
    assert before <= first.time_ns < second.time_ns <= files.now_ns(store)
    # A file that is there already was made when it was made.
    files.create(store, JOB, "cursor", b"1")
    assert files.entries(store, JOB, "") == [second]


def test_times_are_the_databases_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """API servers' clocks differ, and heartbeats of one job may arrive at any of them."""
    now = files.now_ns(store)
    assert abs(now - time.time_ns()) < 60 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    files.write(store, JOB, "cursor", b"")
    (entry,) = files.entries(store, JOB, "")
    if store.is_sqlite:  # a file on this very host
        assert entry == Entry("cursor", 1)
    else:
        assert entry.time_ns >= now


def test_what_begins_alike_is_told_to_the_letter(store: Store) -> None:
    for name in ("nodes/heartbeat-1.0-n0", "nodes/Heartbeat-1.0-n1", "nodes/heartbeat_x", "n/x"):
        files.write(store, JOB, name, b"")
    new = tables.file.c
    late = update(tables.file).where(new.name != "nodes/heartbeat-1.0-n0").values(time_ns=2**62)
    store.write(lambda connection: connection.execute(late))
    with store.read() as connection:
        newest = files.newest_ns(connection, JOB, "nodes/heartbeat-")
        assert newest == connection.scalar(
            select(new.time_ns).where(new.name == "nodes/heartbeat-1.0-n0")
        )
        assert files.newest_ns(connection, OTHER, "nodes/heartbeat-") is None
    assert len(files.entries(store, JOB, "nodes")) == 3
    assert files.entries(store, JOB, "node") == []
