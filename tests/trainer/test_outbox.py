"""What a node sends: every line, in order, whatever fails; nothing before what explains it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.events import (
    AttemptId,
    CursorFile,
    Event,
    JobContext,
    JobKey,
    LogWriter,
    agent_writer,
    decode_cursor,
    encode,
)
from airflow_ett.trainer import outbox as outbox_module
from airflow_ett.trainer.outbox import MOST_BYTES, MOST_EVENTS, Outbox, size_of
from airflow_ett.trainer.place import Place
from tests.trainer.places import Fault, MemoryPlace

A1 = AttemptId(1)
KEY = JobKey("test", "dag", "run", "train")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Where an agent of one node stands, whose log lies elsewhere."""
    return stand(tmp_path / "run")


def stand(run: Path, node: int = 0) -> Place:
    context = JobContext(KEY, 1, str(run), str(run / "c"), 1, log=MemoryPlace.place)
    return Place(context, A1, node, 0, 1, node)


def writer(place: Place, pid: int = 1) -> LogWriter:
    name = agent_writer(place.attempt, place.node, pid)
    return LogWriter(place.run_dir.nodes / f"{name}.jsonl", job=KEY.id, writer=name)


def told(place: Place, **options: Any) -> tuple[Outbox, list[str]]:
    said: list[str] = []
    heartbeat = place.run_dir.heartbeat(place.attempt, place.node)
    return Outbox(place, heartbeat, said.append), said


def reply(place: Place, node: int = 0) -> Path:
    path = place.run_dir.reply(place.attempt, node)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"node": node}))
    return path


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("line"), st.integers(0, 2)),
        st.tuples(st.just("torn"), st.integers(0, 2)),
        st.tuples(st.just("bad"), st.integers(0, 2)),
        st.tuples(st.just("ship"), st.lists(st.sampled_from(["", "away", "lost"]), max_size=6)),
        st.tuples(st.sampled_from(["restart", "forget", "garble", "reply"]), st.just(0)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(ACTIONS)
def test_every_line_arrives_at_least_once_and_in_order_whatever_fails(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, Any]]
) -> None:
    place = stand(tmp_path_factory.mktemp("run"))
    logs = [writer(place, pid) for pid in range(3)]
    there, (box, _) = MemoryPlace(), told(place)
    ledger = place.run_dir.path / ".sent"
    replied = False
    for action, detail in actions:
        if action == "line":
            logs[detail].append("step", {"pad": "x" * 50})
        elif action == "torn":
            with logs[detail].path.open("ab") as file:
                file.write(b'{"v": 1')
            logs[detail]._torn = True
        elif action == "bad":
            with logs[detail].path.open("ab") as file:
                file.write(b"\nno event\n" + encode(Event("of another job", "w", 0, 1, "step")))
        elif action == "ship":
            faults = iter(detail)
            there.fault = lambda method, faults=faults: next(faults, "")
            with contextlib.suppress(Fault):
                box.ship(there)
            there.fault = lambda method: ""
        elif action == "restart":
            box, _ = told(place)
        elif action == "forget":
            ledger.unlink(missing_ok=True)
        elif action == "garble" and ledger.exists():
            ledger.write_bytes(ledger.read_bytes()[:-5])
        elif action == "reply" and not replied:
            replied = True
            there.written = explained(there, written(logs))
            reply(place)
    box.ship(there)
    assert there.numbers() == written(logs)
    for log in logs:
        log.close()


def written(logs: list[LogWriter]) -> dict[str, list[int]]:
    return {log.writer: list(range(log.next_seq)) for log in logs if log.next_seq}


def explained(there: MemoryPlace, before: dict[str, list[int]]) -> Callable[[str], None]:
    """Who reads a reply finds all events that were written before it."""

    def check(name: str) -> None:
        if name.startswith("replies/"):
            now = there.numbers()
            assert all(now.get(who, [])[: len(seqs)] == seqs for who, seqs in before.items())

    return check


def test_what_goes_at_once_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    log, there = writer(place), MemoryPlace()
    for _ in range(2 * MOST_EVENTS + 10):
        log.append("step")
    box, _ = told(place)
    box.ship(there)
    assert there.batches == [MOST_EVENTS, MOST_EVENTS, 10]
    box.ship(there)
    assert there.batches[3:] == []
    monkeypatch.setattr(outbox_module, "MOST_BYTES", 1000)
    for _ in range(20):
        log.append("step", {"pad": "x" * 200})
    box.ship(there)
    assert max(there.batches[3:]) <= 3
    assert len(there.numbers()[log.writer]) == log.next_seq


def test_a_line_beyond_all_bounds_is_told_and_passed_over(place: Place) -> None:
    log, there = writer(place), MemoryPlace()
    log.append("step", {"pad": "x" * (MOST_BYTES + 5)})
    log.append("step")
    box, said = told(place)
    box.ship(there)
    box.ship(there)
    assert there.numbers() == {log.writer: [1]}
    assert len(said) == 1
    assert f"the line at byte 0 of {log.path} is not sent" in said[0]


def test_what_the_place_refuses_is_told_once_and_not_sent_again(place: Place) -> None:
    log, there = writer(place), MemoryPlace()
    there.refuses = lambda event: event.seq in (1, 2)
    for _ in range(4):
        log.append("step")
    box, said = told(place)
    for _ in range(2):
        box.ship(there)
    assert there.numbers() == {log.writer: [0, 3]}
    assert there.batches == [4]
    assert len(said) == 1
    assert "2 are none" in said[0]


def test_a_former_attempts_lines_go_first_and_nothing_goes_twice(place: Place) -> None:
    old = writer(place, 1)
    old.append("step")
    there = MemoryPlace()
    told(place)[0].ship(there)
    old.append("step")
    later = place._replace(attempt=AttemptId(2))
    log = writer(later, 2)
    log.append("step")
    told(later)[0].ship(there)
    assert there.numbers() == {old.writer: [0, 1], log.writer: [0]}
    assert there.batches == [1, 1, 1]


def test_agents_that_share_a_host_and_a_folder_do_not_send_twice(tmp_path: Path) -> None:
    one, two, there = stand(tmp_path), stand(tmp_path, node=1), MemoryPlace()
    for place in (one, two):
        writer(place).append("step")
    boxes = [told(place)[0] for place in (one, two)]
    for _ in range(2):
        for box in boxes:
            box.ship(there)
    assert there.batches == [1, 1]


def test_a_heartbeat_is_passed_on_when_it_is_new_and_only_while_it_is(place: Place) -> None:
    there, (box, _) = MemoryPlace(), told(place)
    heartbeat = place.run_dir.heartbeat(A1, 0)
    name = f"nodes/{heartbeat.name}"
    box.ship(there)
    assert name not in there.files
    heartbeat.parent.mkdir(parents=True, exist_ok=True)
    heartbeat.touch()
    box.ship(there)
    first = there.files[name][1]
    box.ship(there)
    assert there.files[name][1] == first
    now = time.time()
    os.utime(heartbeat, (now - 60, now - 60))  # as after an outage in which the agent has died
    box.ship(there)
    assert there.files[name][1] == first
    heartbeat.touch()
    box.ship(there)
    assert there.files[name][1] > first


def test_heartbeats_go_on_while_a_long_backlog_is_sent(place: Place) -> None:
    log, there = writer(place), MemoryPlace()
    for _ in range(2 * MOST_EVENTS):
        log.append("step")
    heartbeat = place.run_dir.heartbeat(A1, 0)
    heartbeat.touch()
    beats: list[str] = []

    def fault(method: str) -> str:
        if method == "append":
            now = time.time() + len(there.batches) / 100
            os.utime(heartbeat, (now, now))
        beats.append(method)
        return ""

    there.fault = fault
    told(place)[0].ship(there)
    assert beats == ["write", "append", "write", "append"]


def test_the_cursor_is_this_attempts_and_is_sent_when_it_changed(place: Place) -> None:
    path = place.run_dir.cursor
    there, (box, _) = MemoryPlace(), told(place)
    file = CursorFile(path)
    file.write(1, 0, 0, 0, 7, 3, 50, 60, 100, 200, 0, 5, 100, 0, 0, 0)
    box.ship(there)
    sent = decode_cursor(there.files["cursor"][0])
    assert sent is not None
    assert (sent.cursor, sent.hwm) == (50, 60)
    before = there.requests["write"]
    box.ship(there)
    assert there.requests["write"] == before
    file.step(70, 300, 7, 150, 0)
    box.ship(there)
    sent = decode_cursor(there.files["cursor"][0])
    assert sent is not None
    assert sent.cursor == 70
    there.files.clear()
    for other in (place._replace(attempt=AttemptId(2)), stand(place.run_dir.path, node=1)):
        told(other)[0].ship(there)
        assert "cursor" not in there.files
    file.close()


@pytest.mark.parametrize("later", [AttemptId(2), AttemptId(1, 1)])
def test_a_stopped_agent_that_wakes_up_does_not_replace_a_later_launchs_cursor(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: AttemptId
) -> None:
    there, (box, _) = MemoryPlace(), told(place)
    successor = stand(tmp_path / "elsewhere")._replace(attempt=later)
    for at, attempt, cursor in ((place, A1, 50), (successor, later, 70)):
        file = CursorFile(at.run_dir.cursor)
        numbers = (attempt.submission, attempt.scheduler_restart, 0)
        file.write(*numbers, 0, 7, 3, cursor, cursor, 100, 200, 0, 5, 100, 0, 0, 0)
        file.close()

    def sent() -> int:
        record = decode_cursor(there.files["cursor"][0])
        assert record is not None
        return record.cursor

    box.ship(there)
    assert sent() == 50
    told(successor)[0].ship(there)
    assert sent() == 70
    file = CursorFile(place.run_dir.cursor)
    file.write(1, 0, 0, 0, 7, 3, 60, 60, 100, 200, 0, 5, 100, 0, 0, 0)
    file.close()
    monkeypatch.setattr(outbox_module, "_SURE_S", 0.0)
    box.ship(there)
    assert sent() == 70


def test_a_sender_that_was_stopped_lock_in_hand_is_not_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer(place).append("step")
    ledger = place.run_dir.path / ".sent"
    hold = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print(flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", hold, str(ledger)], **pipes) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        monkeypatch.setattr(outbox_module, "_TURN_S", 0.3)
        there, (box, _) = MemoryPlace(), told(place)
        shipping = threading.Thread(target=box.ship, args=(there,), daemon=True)
        shipping.start()
        shipping.join(10)
        assert there.batches == [1]
        holder.communicate()


def test_stacks_are_sent_as_they_grow_with_their_length(place: Place) -> None:
    stacks, there = place.run_dir.stacks(A1, 0), MemoryPlace()
    stacks.parent.mkdir(parents=True)
    box, said = told(place)
    name = f"nodes/{stacks.name}"
    for text in ("one\n", "one\ntwo\n", "x" * (MOST_BYTES + 9)):
        stacks.write_text(text)
        box.ship(there)
        assert there.files[name][0].decode() == text[-MOST_BYTES:]
        assert int(there.files[size_of(name)][0]) == len(text)
    assert said == []


def test_drafts_links_and_odd_names_are_left_alone(place: Place, tmp_path: Path) -> None:
    log, there = writer(place), MemoryPlace()
    log.append("step")
    reply(place).with_name(".half.json").write_text("{")
    (tmp_path / "secret").write_bytes(encode(Event(KEY.id, "w", 0, 1, "step")))
    (place.run_dir.nodes / "link.jsonl").symlink_to(tmp_path / "secret")
    box, said = told(place)
    box.ship(there)
    assert set(there.logs) == {f"nodes/{log.path.name}"}
    assert [name for name in there.files if "half" in name] == []
    assert len(said) == 1
    assert "link.jsonl" in said[0]


def test_a_job_without_anything_to_send_asks_nothing(place: Place) -> None:
    there = MemoryPlace()
    told(replace_context(place))[0].ship(there)
    assert sum(there.requests.values()) == 0


def replace_context(place: Place) -> Place:
    return place._replace(context=replace(place.context, submission=2))


@pytest.mark.parametrize("why", ["full", "no locks"])
def test_without_a_ledger_everything_is_sent_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A full disk is when the last events matter."""
    writer(place).append("step")
    opened = os.open

    def full(path: Any, flags: int, *mode: int, **where: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opened(path, flags, *mode, **where)

    def unknown(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if why == "full":
        monkeypatch.setattr(os, "open", full)
    else:
        monkeypatch.setattr("fcntl.lockf", unknown)
    there, (box, _) = MemoryPlace(), told(place)
    for _ in range(2):
        box.ship(there)
    assert there.batches == [1]
    assert box.left() == 0
