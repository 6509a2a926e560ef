"""The job log at any place: answers that get lost, orders that differ, and places that are away."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import Fenced, JobLogError
from airflow_ett.events import CursorFile, Event, JobKey, Kind
from airflow_ett.launch.joblog import Claim
from airflow_ett.launch.root import Root
from airflow_ett.launch.storagelog import StorageLog
from airflow_ett.storage import FolderStorage

KEY = JobKey("default", "dag", "run", "train")


class Losing(FolderStorage):
    """A place whose answers get lost: what was asked for is done, and nobody hears of it."""

    lost = 0

    def create(self, name: str, content: bytes) -> bool:
        return self._lose(super().create(name, content))

    def append(self, log: str, events: Sequence[Event]) -> None:
        self._lose(super().append(log, events))

    def _lose(self, answer: Any) -> Any:
        if self.lost:
            self.lost -= 1
            raise OSError("the connection was reset")
        return answer


def claim(log: StorageLog) -> Claim:
    return log.claim(try_number=1, max_tries=2, mode="task")


def test_a_claim_whose_answer_was_lost_is_made_again_and_owns_the_job(tmp_path: Path) -> None:
    storage = Losing(tmp_path / "job")
    log = StorageLog(storage, KEY)
    storage.lost = 1
    with pytest.raises(JobLogError):
        claim(log)
    taken = claim(log)
    log.check(taken)
    assert taken.epoch == log.newest() == 2


def test_a_number_is_never_used_twice(tmp_path: Path) -> None:
    storage = Losing(tmp_path / "job")
    log = StorageLog(storage, KEY)
    claim(log)
    storage.lost = 1
    with pytest.raises(JobLogError):
        log.append("lost", {"n": 1})
    log.append("word", {"n": 2})
    told = [(e.kind, e.seq) for e in log.launcher_events()]
    assert told == [(Kind.CLAIMED, 0), ("lost", 1), ("word", 2)]


def test_an_intent_whose_answer_was_lost_is_made_again_by_its_claim(tmp_path: Path) -> None:
    storage = Losing(tmp_path / "job")
    log = StorageLog(storage, KEY)
    taken = claim(log)
    storage.lost = 1
    with pytest.raises(JobLogError):
        log.intend(taken, 1, {"app": "a"})
    log.intend(taken, 1, {"app": "a"})
    with pytest.raises(Fenced, match="being made elsewhere"):
        log.intend(taken, 1, {"app": "a"})


def test_two_claims_that_say_the_same_are_two(tmp_path: Path) -> None:
    logs = [StorageLog(FolderStorage(tmp_path / "job"), KEY) for _ in range(2)]
    assert [claim(log).epoch for log in logs] == [1, 2]
    contents = [path.read_text() for path in sorted((tmp_path / "job/launcher/claims").iterdir())]
    assert len({json.loads(text)["id"] for text in contents}) == 2


class Shuffled(FolderStorage):
    """A place that lists logs as texts are ordered and tells an event twice."""

    def events(self, folder: str) -> list[Event]:
        found = sorted(super().events(folder), key=lambda event: (event.writer, event.seq))
        return [*found, *found]


def test_events_come_in_order_of_epochs_and_once(tmp_path: Path) -> None:
    for _ in range(12):
        log = StorageLog(Shuffled(tmp_path / "job"), KEY)
        claim(log)
    assert [event.data["epoch"] for event in log.launcher_events()] == list(range(1, 13))


def test_a_link_in_place_of_the_cursor_is_no_cursor(tmp_path: Path) -> None:
    log = StorageLog(FolderStorage(tmp_path / "job"), KEY)
    claim(log)
    assert log.cursor() is None
    CursorFile(tmp_path / "cursor").write(1, 0, 0, 0, 9, 0, 40, 77, *[0] * 7, 1)
    (tmp_path / "job" / "cursor").symlink_to(tmp_path / "cursor")
    assert log.cursor() is None
    (tmp_path / "job" / "cursor").unlink()
    (tmp_path / "cursor").rename(tmp_path / "job" / "cursor")
    record = log.cursor()
    assert record is not None
    assert record.cursor == 40


def test_a_cursor_that_cannot_be_read_now_is_not_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(storage: FolderStorage, name: str) -> bytes:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(FolderStorage, "read", away)
    with pytest.raises(JobLogError, match="Stale file handle"):
        StorageLog(FolderStorage(tmp_path), KEY).cursor()


class Ahead(FolderStorage):
    """A place whose clock is an hour ahead."""

    def now_ns(self) -> int:
        return super().now_ns() + 3600 * 10**9


def test_a_heartbeat_counts_by_the_readers_clock(tmp_path: Path) -> None:
    beat = tmp_path / "job" / "nodes" / "heartbeat-1.0-n0"
    beat.parent.mkdir(parents=True)
    beat.touch()
    told = StorageLog(FolderStorage(tmp_path / "job"), KEY).heartbeat_ns()
    ahead = StorageLog(Ahead(tmp_path / "job"), KEY).heartbeat_ns()
    assert told is not None
    assert ahead is not None
    assert abs(told - beat.stat().st_mtime_ns) < 10**9
    assert abs(told - 3600 * 10**9 - ahead) < 10**9


def test_generations_are_told_by_every_root(root: Root) -> None:
    assert root.newest_generation(KEY) == 0
    for number in (1, 2, 3, 10):
        claim(root.log(replace(KEY, generation=number)))
    assert root.newest_generation(replace(KEY, generation=7)) == 10
    assert root.newest_generation(replace(KEY, task_id="other")) == 0
