"""Job logs: one owner, one submission of a number, whatever the log lies in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import Fenced, JobLogError, LaunchError
from airflow_ett.events import Cause, JobKey, Kind
from airflow_ett.launch.adoption import Action
from airflow_ett.launch.joblog import Claim, JobLog
from airflow_ett.launch.opening import OpenJob
from airflow_ett.launch.request import Request
from airflow_ett.launch.root import Root
from airflow_ett.launch.watcher import Watcher

KEY = JobKey("default", "dag", "run", "train")


@pytest.fixture
def open_log(root: Root) -> Callable[[], JobLog]:
    """Open one job's log as another process would."""
    return lambda: root.log(KEY)


def claim(log: JobLog, try_number: int = 1, after: int | None = None) -> Claim:
    return log.claim(try_number=try_number, max_tries=2, mode="task", after=after)


def test_the_newest_claim_owns_the_job(open_log: Callable[[], JobLog]) -> None:
    old, new = open_log(), open_log()
    first = claim(old)
    old.check(first)
    second = claim(new, try_number=2)
    assert (first.epoch, second.epoch, open_log().newest()) == (1, 2, 2)
    new.check(second)
    with pytest.raises(Fenced, match="claim 2, this one is 1"):
        old.check(first)


def test_racing_owners_get_different_epochs(open_log: Callable[[], JobLog]) -> None:
    with ThreadPoolExecutor(5) as threads:
        claims = list(threads.map(lambda _: claim(open_log()), range(5)))
    assert sorted(taken.epoch for taken in claims) == [1, 2, 3, 4, 5]


def test_a_claim_after_an_epoch_fails_when_another_came_first(
    open_log: Callable[[], JobLog],
) -> None:
    first = claim(open_log())
    claim(open_log())
    with pytest.raises(Fenced):
        claim(open_log(), after=first.epoch)
    assert open_log().newest() == 2


def test_a_fenced_owner_cannot_intend(open_log: Callable[[], JobLog]) -> None:
    old, new = open_log(), open_log()
    first = claim(old)
    second = claim(new)
    with pytest.raises(Fenced):
        old.intend(first, 1, {"app": "a"})
    new.intend(second, 1, {"app": "a"})
    with pytest.raises(Fenced, match="being made elsewhere"):
        new.intend(second, 1, {"app": "a"})
    assert open_log().intents() == {1: {"epoch": 2, "app": "a"}}


def test_events_of_all_owners_come_back_in_order(open_log: Callable[[], JobLog]) -> None:
    for number in (1, 2, 3):
        log = open_log()
        claim(log, try_number=number)
        log.append("word", {"n": number})
    events = open_log().launcher_events()
    assert [(e.kind, e.data.get("try", e.data.get("n"))) for e in events] == [
        (kind, number) for number in (1, 2, 3) for kind in (Kind.CLAIMED, "word")
    ]
    assert len({(e.writer, e.seq) for e in events}) == 6


def test_an_unclaimed_log_cannot_be_written(open_log: Callable[[], JobLog]) -> None:
    with pytest.raises(JobLogError, match="not claimed"):
        open_log().append("word")


def test_the_offset_outlives_its_owner(open_log: Callable[[], JobLog]) -> None:
    claim(open_log())
    assert open_log().shown(1) == 0
    open_log().note_shown(1, 42)
    assert (open_log().shown(1), open_log().shown(2)) == (42, 0)


def test_a_whole_life_needs_no_more_than_the_protocol(
    open_log: Callable[[], JobLog], bench: Any, tmp_path: Path
) -> None:
    gateway = bench.gateway

    def watch(try_number: int) -> tuple[Watcher, Action]:
        log = open_log()
        taken = claim(log, try_number)
        request = Request("train", ["--m", "x"], "fake")
        watcher = Watcher(OpenJob(log, str(tmp_path / "c"), None), taken, request, gateway)
        return watcher, watcher.begin()

    gateway.lose_answer = True
    with pytest.raises(KeyboardInterrupt):
        watch(1)
    gateway.lose_answer = False
    watcher, action = watch(2)
    assert action is Action.FIND
    assert watcher.read_log() == "step 1\nstep 2\n"
    (app,) = gateway.submitted
    gateway.states[app] = LaunchError("no route to the scheduler")
    assert watcher.poll() is None
    gateway.states[app] = "SUCCEEDED"
    outcome = watcher.poll()
    assert outcome is not None
    assert outcome.cause is None
    kinds = [event.kind for event in open_log().launcher_events()]
    assert kinds.count(Kind.SUBMIT_INTENDED) == kinds.count(Kind.JOB_ENDED) == 1
    third, action = watch(3)
    assert action is Action.REPORT
    third.cancel(Cause.USER_CANCELLED)
    assert gateway.cancelled == []
