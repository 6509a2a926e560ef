"""A job that was closed while its app was still ending: the next generation waits for the app."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.errors import LaunchError
from airflow_ett.events import JobKey, JobState
from airflow_ett.launch.former import PATIENCE_S, Former

KEY = JobKey("default", "dag", "run", "train")


def await_end(former: Former, bench: Any, pause: Any) -> None:
    former.await_end(bench.gateway, KEY, pause, clock_s=lambda: bench.now_ns / 1e9)


def test_a_users_cancel_leaves_the_app_that_is_still_saving_to_be_awaited(bench: Any) -> None:
    watcher = bench.watch()
    watcher.user_cancel(wait_s=3, sleep=bench.tick)
    assert bench.job_state() is JobState.CANCELLED
    following = bench.open()
    assert following.log.key.generation == 2
    paused: list[str] = []

    def pause() -> None:
        paused.append("")
        bench.tick(1)
        if len(paused) == 20:
            bench.ends("CANCELLED")

    assert following.former is not None
    await_end(following.former, bench, pause)
    assert len(paused) == 20
    assert len(bench.gateway.submitted) == 1


def test_an_app_whose_end_was_seen_is_not_waited_for(bench: Any) -> None:
    watcher = bench.watch()
    watcher.user_cancel(wait_s=3, sleep=lambda _: bench.ends("CANCELLED"))
    assert bench.open().former is None


def test_it_is_told_to_end_once_more_in_case_it_never_heard(bench: Any) -> None:
    bench.gateway.states["app"] = LaunchError("connection refused")
    states = [LaunchError("connection refused"), "RUNNING", "RUNNING", "CANCELLED"]

    def pause() -> None:
        bench.gateway.states["app"] = states.pop(0)

    await_end(Former("app", "fake://app", "fake"), bench, pause)
    assert states == []
    assert bench.gateway.cancelled == ["app"]


@pytest.mark.parametrize("handle", [None, "fake://app"])
def test_an_app_that_the_scheduler_does_not_know_is_over(bench: Any, handle: str | None) -> None:
    await_end(Former("app", handle, "fake"), bench, lambda: pytest.fail("waited"))


def test_an_app_without_a_handle_is_found_by_its_name(bench: Any) -> None:
    bench.gateway.states["app"] = "RUNNING"

    def pause() -> None:
        bench.gateway.states["app"] = "CANCELLED"

    await_end(Former("app", None, "fake"), bench, pause)
    assert bench.gateway.cancelled == ["app"]


def test_one_that_does_not_end_is_named(bench: Any) -> None:
    bench.gateway.states["app"] = "RUNNING"
    begin_ns = bench.now_ns
    with pytest.raises(LaunchError, match=r"app app .* at its scheduler \(fake\)"):
        await_end(Former("app", None, "fake"), bench, lambda: bench.tick(1))
    assert (bench.now_ns - begin_ns) / 1e9 == PATIENCE_S
