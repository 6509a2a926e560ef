"""A scheduler away for longer than it is waited for: never two trainers, never an orphan."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.events import Cause, JobState
from airflow_ett.launch.ender import Ender
from airflow_ett.launch.former import PATIENCE_S
from airflow_ett.launch.limits import UNKNOWN_GRACE_S, Limits
from airflow_ett.launch.request import Request
from airflow_ett.launch.watcher import Watcher

AWAY = LaunchError("slurmctld is restarting.")


class Outage:
    """A scheduler that does not answer until it is over."""

    def __init__(self, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bench = bench
        self._cancel = bench.gateway.cancel
        self._patch = monkeypatch
        bench.ends(AWAY)
        monkeypatch.setattr(bench.gateway, "cancel", self._refuse)

    def _refuse(self, handle: str) -> None:
        raise AWAY

    def over(self, state: str | None = "RUNNING") -> None:
        self._patch.setattr(self._bench.gateway, "cancel", self._cancel)
        self._bench.ends(state)


def vanishes(bench: Any, watcher: Any) -> Any:
    """Poll until the scheduler's silence is taken for the end; return the outcome."""
    assert watcher.poll() is None
    bench.tick(UNKNOWN_GRACE_S + 1)
    outcome = watcher.poll()
    assert outcome.cause is Cause.VANISHED
    return outcome


def ender(bench: Any) -> Ender:
    job = bench.open()
    claim = job.log.claim(try_number=1, max_tries=2, mode="again")
    request = Request("train", [], "fake", max_relaunches=0)
    return Ender(job, claim, request, bench.gateway, now_ns=lambda: bench.now_ns)


def test_silence_is_not_told_of_as_forgetting(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = bench.watch()
    Outage(bench, monkeypatch)
    message = vanishes(bench, watcher).message
    assert "did not tell what became of the app" in message
    assert "slurmctld is restarting." in message
    assert "no longer knows" not in message


def test_the_next_try_ends_the_app_that_was_given_up_before_it_submits(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = bench.watch()
    outage = Outage(bench, monkeypatch)
    vanishes(bench, watcher)
    following = bench.watch(try_number=2)
    for _ in range(5):
        bench.tick(1)
        assert following.poll() is None
    assert len(bench.gateway.submitted) == 1  # silence says nothing
    outage.over()
    for _ in range(5):
        bench.tick(1)
        assert following.poll() is None
    assert bench.gateway.cancelled == [bench.app()]
    assert len(bench.gateway.submitted) == 1
    bench.ends("CANCELLED")
    assert following.poll() is None
    assert len(bench.gateway.submitted) == 2
    bench.ends("SUCCEEDED")
    assert following.poll().cause is None
    assert bench.gateway.cancelled == [bench.app(0)]


@pytest.mark.parametrize("state", [None, "CANCELLED"])
def test_an_app_that_is_known_to_be_over_is_not_waited_for(
    bench: Any, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    watcher = bench.watch()
    outage = Outage(bench, monkeypatch)
    vanishes(bench, watcher)
    outage.over(state)
    bench.watch(try_number=2)
    assert len(bench.gateway.submitted) == 2
    assert bench.gateway.cancelled == []


def test_an_app_that_the_scheduler_forgot_is_over(bench: Any) -> None:
    watcher = bench.watch()
    bench.ends(None)
    vanishes(bench, watcher)
    bench.watch(try_number=2)
    assert len(bench.gateway.submitted) == 2


def test_whoever_watches_next_goes_on_waiting(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = bench.watch()
    outage = Outage(bench, monkeypatch)
    vanishes(bench, watcher)
    bench.watch(try_number=2)
    again = bench.watch(try_number=2, mode="trigger")
    outage.over()
    assert again.poll() is None
    assert len(bench.gateway.submitted) == 1
    bench.ends("CANCELLED")
    again.poll()
    assert len(bench.gateway.submitted) == 2


def test_the_wait_ends_at_the_deadline(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = bench.watch()
    Outage(bench, monkeypatch)
    vanishes(bench, watcher)
    following = bench.watch(try_number=2, limits=Limits(bench.now_ns + 5_000_000_000))
    assert following.poll() is None
    bench.tick(6)
    assert following.poll().cause is Cause.TIMEOUT
    assert len(bench.gateway.submitted) == 1


def test_the_wait_ends_when_it_takes_too_long(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = bench.watch()
    Outage(bench, monkeypatch)
    vanishes(bench, watcher)
    following = bench.watch(try_number=2)
    bench.tick(PATIENCE_S - 1)
    assert following.poll() is None
    bench.tick(1)
    with pytest.raises(LaunchError, match="End it at its scheduler"):
        following.poll()
    assert len(bench.gateway.submitted) == 1


def test_a_closed_jobs_next_generation_waits_too(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = bench.watch()
    Outage(bench, monkeypatch)
    vanishes(bench, watcher)
    watcher.close_job(JobState.FAILED, Cause.VANISHED)
    former = bench.open().former
    assert former is not None
    assert former.app == bench.app()


def test_a_task_that_fails_for_good_leaves_an_app_that_was_not_told_to_the_reaper(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = bench.watch()
    outage = Outage(bench, monkeypatch)
    vanishes(bench, watcher)
    assert "may still run" in ender(bench).give_up(Cause.VANISHED, "It failed.", 2, bench.tick)
    assert bench.job_state() is None
    with pytest.raises(LaunchError):
        ender(bench).end(Cause.UNKNOWN, "Nobody watches it.", bench.tick)
    outage.over()
    done = ender(bench).end(Cause.UNKNOWN, "Nobody watches it.", bench.tick)
    assert done == "closed as failed, cause vanished"
    assert bench.gateway.cancelled == [bench.app()]


def test_a_user_who_ends_the_task_while_it_waits_ends_the_app(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = bench.watch()
    outage = Outage(bench, monkeypatch)
    vanishes(bench, watcher)
    following = bench.watch(try_number=2)
    with pytest.raises(LaunchError):
        following.user_cancel(wait_s=3, sleep=bench.tick)
    assert not following.close_if_told(JobState.CANCELLED, Cause.USER_CANCELLED)
    assert bench.job_state() is None
    outage.over()
    following.user_cancel(wait_s=3, sleep=bench.tick)
    assert bench.gateway.cancelled == [bench.app()]
    assert bench.job_state() is JobState.CANCELLED
    assert bench.open().former is not None


def test_an_app_that_may_yet_reach_its_scheduler_keeps_the_job_open(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submit that hangs while a user ends the task."""
    bench.gateway.lose_answer = True
    with pytest.raises(KeyboardInterrupt):
        bench.watch()
    app, asked = bench.app(), []
    bench.gateway.states.clear()
    real = bench.gateway.status
    monkeypatch.setattr(bench.gateway, "status", lambda h: asked.append(h) or real(h))
    job = bench.open()
    killer = Watcher(
        job,
        job.log.claim(try_number=1, max_tries=2, mode="trigger"),
        bench.request,
        bench.gateway,
        now_ns=lambda: bench.now_ns,
    )
    killer.recall()
    killer.user_cancel(wait_s=2, sleep=bench.tick)
    assert (asked, bench.job_state()) == ([], None)
    bench.gateway.states[app] = "RUNNING"
    killer.user_cancel(wait_s=2, sleep=bench.tick)
    assert bench.gateway.cancelled == [app]
    assert bench.job_state() is JobState.CANCELLED


def test_an_intent_that_its_scheduler_never_had_ends_as_vanished(bench: Any) -> None:
    bench.gateway.lose_answer = True
    with pytest.raises(KeyboardInterrupt):
        bench.watch()
    bench.gateway.states.clear()
    job = bench.open()
    claim = job.log.claim(try_number=1, max_tries=2, mode="trigger")
    watcher = Watcher(job, claim, bench.request, bench.gateway, now_ns=lambda: bench.now_ns)
    watcher.recall()
    message = vanishes(bench, watcher).message
    assert f"It has not had {bench.app()} so far." in message
