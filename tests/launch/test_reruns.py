"""How runs ended that the scheduler has followed by others: written once, with the best word."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.events import AttemptId, Cause
from airflow_ett.launch.status import SchedulerStatus
from tests.launch.conftest import Bench

FIRST = SchedulerStatus("RUNNING", raw="RUNNING")


def waits(restart: int = 1, former: str = "") -> SchedulerStatus:
    return SchedulerStatus("PENDING", raw="PENDING", restart=restart, former=former)


def runs(restart: int = 1, former: str = "") -> SchedulerStatus:
    return SchedulerStatus("RUNNING", raw="RUNNING", restart=restart, former=former)


def live(bench: Bench, *answers: SchedulerStatus) -> None:
    """Watch a job whose scheduler says this in turn, each in a process of its own."""
    for answer in answers:
        mode = "trigger" if bench.gateway.submitted else "task"
        watcher = bench.watch(mode=mode)
        bench.gateway.states[bench.app()] = answer
        bench.tick(1)
        watcher.poll()


def ends(bench: Bench) -> list[tuple[Any, Any]]:
    return [(event.attempt, event.data["cause"]) for event in bench.events("attempt_ended")]


def test_the_schedulers_word_decides_and_is_written_once(bench: Bench) -> None:
    live(bench, FIRST, waits(former="NODE_FAIL"), waits(former="NODE_FAIL"), runs())
    assert ends(bench) == [(AttemptId(1, 0), Cause.INFRASTRUCTURE)]
    assert len(bench.gateway.submitted) == 1


def test_a_word_that_it_said_of_the_former_run_itself_will_do(bench: Bench) -> None:
    ended = SchedulerStatus("FAILED", raw="PREEMPTED", may_return=True)
    live(bench, FIRST, ended, waits())
    assert ends(bench) == [(AttemptId(1, 0), Cause.PREEMPTED)]


def test_without_a_word_it_waits_until_the_next_run_and_takes_what_agents_say(
    bench: Bench,
) -> None:
    live(bench, FIRST, waits())
    assert ends(bench) == []
    bench.reply(AttemptId(1, 0), signal=9)
    live(bench, runs())
    assert ends(bench) == [(AttemptId(1, 0), Cause.INFRASTRUCTURE)]


def test_where_nobody_knows_it_says_so(bench: Bench) -> None:
    live(bench, FIRST, runs())
    (end,) = bench.events("attempt_ended")
    assert end.data["cause"] == Cause.UNKNOWN
    assert "started it again, and nobody told why" in end.data["evidence"]["text"]


def test_several_runs_in_between_are_each_written(bench: Bench) -> None:
    live(bench, FIRST, runs(restart=2, former="PREEMPTED"))
    assert ends(bench) == [
        (AttemptId(1, 0), Cause.UNKNOWN),
        (AttemptId(1, 1), Cause.PREEMPTED),
    ]


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        (SchedulerStatus("SUCCEEDED", raw="COMPLETED", restart=1), None),
        (SchedulerStatus("CANCELLED", raw="CANCELLED", restart=1), Cause.USER_CANCELLED),
    ],
)
def test_the_submissions_end_is_its_own(
    bench: Bench, last: SchedulerStatus, cause: Cause | None
) -> None:
    live(bench, FIRST, waits(), last)
    assert ends(bench) == [(AttemptId(1, 0), Cause.UNKNOWN), (AttemptId(1, 1), cause)]


def test_an_answer_that_counts_no_restarts_is_about_the_run_that_is_known(bench: Bench) -> None:
    live(bench, FIRST, waits(former="PREEMPTED"), SchedulerStatus("RUNNING", raw="R", restart=-1))
    live(bench, SchedulerStatus("SUCCEEDED", raw="DONE", restart=-1))
    assert ends(bench) == [(AttemptId(1, 0), Cause.PREEMPTED), (AttemptId(1, 1), None)]
