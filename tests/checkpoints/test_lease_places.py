"""The lease at a place that is no file system: the same rules, without removing anything."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.checkpoints.holder import SILENT_AFTER_S
from airflow_ett.checkpoints.lease import Lease
from airflow_ett.checkpoints.leasefiles import PlacedFiles
from airflow_ett.storage import FolderStorage, Storage
from tests.trainer.places import Fault, MemoryPlace

ROOT = Path("/bucket/job")


@pytest.fixture(params=["memory", "folder"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return MemoryPlace() if request.param == "memory" else FolderStorage(tmp_path)


@pytest.fixture
def place() -> MemoryPlace:
    return MemoryPlace()


def lease(there: Storage, holder: Any) -> Lease:
    return Lease(ROOT, holder, PlacedFiles(there))


def leases(there: Storage) -> list[str]:
    return [entry.name for entry in there.entries(".lease") if entry.name.endswith(".json")]


def test_a_later_attempt_takes_over_at_once_and_the_older_one_finds_out(
    there: Storage, holder: Any
) -> None:
    old, new = lease(there, holder(1)), lease(there, holder(2))
    for _ in range(2):
        assert old.hold() is None
    assert leases(there) == ["00000001.json"]
    assert new.hold() is None
    for _ in range(2):
        lost = old.hold()
        assert lost is not None
        assert lost.superseded
        assert f"the checkpoints in {ROOT} were taken over by attempt 2.0.0" in lost.reason
        assert new.hold() is None
    late = lease(there, holder(1, 5)).hold()
    assert late is not None
    assert late.superseded
    assert leases(there) == ["00000001.json", "00000002.json"]


def test_of_two_processes_of_one_attempt_the_later_goes_on(there: Storage, holder: Any) -> None:
    one, two = lease(there, holder(1)), lease(there, holder(1))
    assert one.hold() is None
    assert two.hold() is None  # they look alike, but for the mark in the file
    lost = one.hold()
    assert lost is not None
    assert lost.superseded
    assert two.hold() is None


def test_another_jobs_lease_refuses_whether_its_holder_lives_or_not(
    place: MemoryPlace, holder: Any
) -> None:
    other, mine = lease(place, holder(3, job="other")), lease(place, holder(9))
    assert other.hold() is None
    refusal = mine.hold()
    assert refusal is not None
    assert not refusal.superseded
    told = "stop that training and remove memory://place/.lease/00000001.json"
    assert told in refusal.reason
    place.clock_ns += int(SILENT_AFTER_S * 2e9)
    refusal = mine.hold()
    assert refusal is not None
    assert "if that training is over, remove" in refusal.reason
    assert other.hold() is None  # its heartbeat
    refusal = mine.hold()
    assert refusal is not None
    assert "last sign of life 0 s ago" in refusal.reason
    del place.files[".lease/00000001.json"]  # as advised
    assert mine.hold() is None


def test_a_heartbeat_brings_no_lease_back(place: MemoryPlace, holder: Any) -> None:
    mine = lease(place, holder(1))
    assert mine.hold() is None
    del place.files[".lease/00000001.json"]
    assert mine.hold() is None
    assert leases(place) == ["00000002.json"]


def test_a_lease_that_cannot_be_read_is_respected_while_it_beats(
    place: MemoryPlace, holder: Any
) -> None:
    place.write(".lease/00000004.json", b"\0")
    mine = lease(place, holder(1))
    refusal = mine.hold()
    assert refusal is not None
    assert not refusal.superseded
    place.clock_ns += int(SILENT_AFTER_S * 1e9)
    place.write(".lease/00000004.beat", b"")
    assert mine.hold() is not None
    place.clock_ns += int(SILENT_AFTER_S * 1e9)
    assert mine.hold() is None
    assert leases(place)[-1] == "00000005.json"


def test_a_lost_answer_to_its_taking_is_found_out(place: MemoryPlace, holder: Any) -> None:
    mine = lease(place, holder(1))
    place.fault = lambda method: "lost" if method == "create" else ""
    with pytest.raises(Fault):
        mine.hold()
    place.fault = lambda method: ""
    assert mine.hold() is None
    assert lease(place, holder(2)).hold() is None
    lost = mine.hold()
    assert lost is not None
    assert lost.superseded


@pytest.mark.parametrize("submissions", [[1, 2, 3, 4], [1, 1, 1, 1]], ids=["launches", "one"])
def test_of_those_that_contend_one_is_left(
    place: MemoryPlace, holder: Any, submissions: list[int]
) -> None:
    held = [lease(place, holder(number)) for number in submissions]
    answers: dict[int, Any] = {}
    start = threading.Barrier(len(held))

    def contend(number: int) -> None:
        start.wait()
        refusals = (held[number].hold() for _ in range(50))
        answers[number] = next((refusal for refusal in refusals if refusal), None)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(len(held))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = [number for number, one in enumerate(held) if one.hold() is None]
    assert len(last) == 1
    assert submissions[last[0]] == max(submissions)
    assert all(answer is None or answer.superseded for answer in answers.values())
