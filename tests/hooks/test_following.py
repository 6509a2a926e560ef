"""What is due of a running training, by its log and by what Airflow says of its task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

import airflow_ett.hooks.following as following
from airflow_ett.events import JobKey, RunDir
from airflow_ett.hooks.following import Due, Following, newest_checkpoint
from tests.operators.publishing import TRAINED, Training


@pytest.fixture
def training(
    tmp_path: Path, write_job: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> Training:
    return Training(tmp_path, write_job, monkeypatch)


def test_the_newest_committed_checkpoint_is_found_in_the_log(training: Training) -> None:
    assert newest_checkpoint(TRAINED) == {
        "checkpoint": "file:///c/1000",
        "cursor": 1000,
        "job": TRAINED.id,
        "run_dir": str(training.run.path),
    }
    assert newest_checkpoint(JobKey("default", "dag", "run", "other")) is None


def test_a_look_finds_what_is_newer_and_when_it_is_due(training: Training) -> None:
    now = [0]
    looks = Following(
        asdict(TRAINED), since="file:///c/1000", due_ns=100 * 10**9, clock=lambda: now[0]
    )
    training.commit(1500)
    assert looks.look() is None
    now[0] = 100 * 10**9
    due = looks.look()
    assert due is not None
    assert due.source is not None
    assert (due.source["cursor"], due.over) == (1500, False)


def test_a_log_that_holds_nothing_new_is_not_read_at_each_look(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[JobKey] = []

    def read(key: JobKey) -> dict[str, Any] | None:
        reads.append(key)
        return newest_checkpoint(key)

    monkeypatch.setattr(following, "newest_checkpoint", read)
    now = [0]
    looks = Following(asdict(TRAINED), since="file:///c/1000", due_ns=0, clock=lambda: now[0])
    assert [looks.look(), looks.look()] == [None, None]
    assert len(reads) == 1
    now[0] = 31 * 10**9
    assert looks.look() is None
    assert len(reads) == 2


@pytest.mark.parametrize("state", ["success", "failed", "skipped", "upstream_failed", "removed"])
def test_a_training_that_is_over_is_due_at_once(training: Training, state: str) -> None:
    training.state = state
    look = Following(asdict(TRAINED), since=None, due_ns=2**62).look()
    assert look is not None
    assert look.over
    assert Following(asdict(TRAINED), since="file:///c/1000", due_ns=2**62).look() == Due(
        None, True
    )


@pytest.mark.parametrize("state", ["None", "queued", "deferred", "up_for_retry", "restarting"])
def test_a_training_between_two_tries_is_not_over(training: Training, state: str) -> None:
    training.state = state
    assert Following(asdict(TRAINED), since="file:///c/1000", due_ns=0).look() is None


def test_an_airflow_that_does_not_answer_is_asked_again(training: Training) -> None:
    looks = Following(asdict(TRAINED), since=None, due_ns=0)
    training.state = AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
    assert looks.look() is None
    training.state = "running"
    assert looks.look() is not None
