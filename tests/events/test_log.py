"""The append-only log: torn lines wait, bad lines are told apart, writers go on after a restart."""

import os
import threading
from pathlib import Path

import pytest

from airflow_ett.events import AttemptId, LogWriter, read_log


def writer(path: Path, name: str = "w") -> LogWriter:
    return LogWriter(path, job="j", writer=name, attempt=AttemptId(1), rank=0)


def test_a_torn_last_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    log = writer(path)
    log.append("one")
    log.append("two")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    chunk = read_log(path)
    assert [event.kind for event in chunk.events] == ["one"]
    assert chunk.bad == ()
    path.write_bytes(whole)
    rest = read_log(path, chunk.offset)
    assert [event.kind for event in rest.events] == ["two"]
    assert rest.offset == len(whole)


def test_a_corrupt_line_is_named_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    log = writer(path)
    first = log.append("one")
    with path.open("ab") as file:
        file.write(b"garbage\n")
    log.append("two")
    chunk = read_log(path)
    assert [event.kind for event in chunk.events] == ["one", "two"]
    (bad,) = chunk.bad
    assert bad.line == b"garbage\n"
    assert path.read_bytes()[bad.offset :].startswith(b"garbage")
    assert chunk.events[0] == first


def test_a_writer_that_starts_again_goes_on_counting(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    log = writer(path)
    log.append("one")
    log.close()
    log.close()
    assert writer(path).append("two").seq == 1


def test_a_copied_event_keeps_its_writer(tmp_path: Path) -> None:
    trainer = writer(tmp_path / "t.jsonl", "trainer")
    agent = writer(tmp_path / "a.jsonl", "agent")
    event = trainer.append("interval", {"from": 1})
    agent.copy(event)
    assert read_log(agent.path).events == (event,)
    assert agent.append("next").seq == 0


def test_threads_do_not_tear_lines(tmp_path: Path) -> None:
    log = writer(tmp_path / "a.jsonl")

    def write() -> None:
        for _ in range(200):
            log.append("x", {"text": "y" * 300})

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chunk = read_log(log.path)
    assert chunk.bad == ()
    assert [event.seq for event in chunk.events] == list(range(800))


def test_a_short_write_is_an_error_and_its_torn_line_is_ended_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path / "a.jsonl")
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: real(handle, line[:10]))
    with pytest.raises(OSError, match="10 of"):  # a nearly full disk: nothing is lost unsaid
        log.append("lost")
    monkeypatch.setattr(os, "write", real)
    assert log.append("kept").seq == 0
    chunk = read_log(log.path)
    assert [event.kind for event in chunk.events] == ["kept"]
    assert len(chunk.bad) == 1


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x\n")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match=r"symbolic|Too many"):
        read_log(tmp_path / "a.jsonl")
