"""Whose submission is adopted: what a run made again, or an edited DAG, does to a live training."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from airflow_ett.events import AttemptId, Cause, Layer
from airflow_ett.launch.adoption import Action


def edit(bench: Any) -> None:
    """Ask for something else from now on."""
    bench.request = replace(bench.request, component_args=["--m", "y"])


def causes(bench: Any) -> list[str | None]:
    return [event.data["cause"] for event in bench.events("attempt_ended")]


def layers(bench: Any) -> list[str]:
    return [event.data["layer"] for event in bench.events("submitted")]


def test_a_run_made_again_adopts_what_it_would_have_submitted(bench: Any) -> None:
    bench.watch()
    again = bench.watch()
    bench.ends("SUCCEEDED")
    assert again.poll().cause is None
    assert len(bench.gateway.submitted) == 1


def test_a_run_made_again_with_another_request_replaces_the_live_submission(bench: Any) -> None:
    bench.watch()
    bench.watch(mode="trigger")
    edit(bench)
    again = bench.watch()
    assert again.poll() is None
    assert bench.gateway.cancelled == [bench.app()]
    assert len(bench.gateway.submitted) == 1
    bench.ends("CANCELLED")
    assert again.poll() is None
    assert len(bench.gateway.submitted) == 2
    assert causes(bench) == [Cause.USER_RESTART]
    assert layers(bench) == [Layer.FIRST, Layer.AIRFLOW]
    digests = [event.data["digest"] for event in bench.events("submitted")]
    assert digests[1] == bench.request.digest() != digests[0]
    bench.ends("SUCCEEDED")
    assert again.poll().cause is None


@pytest.mark.parametrize("end", ["CANCELLED", "SUCCEEDED"])
def test_its_trigger_goes_on_with_the_replacement_whatever_the_old_one_came_to(
    bench: Any, end: str
) -> None:
    bench.watch()
    edit(bench)
    bench.watch()
    trigger = bench.watch(mode="trigger")
    bench.ends(end)
    assert trigger.poll() is None
    assert len(bench.gateway.submitted) == 2
    third = bench.watch(mode="trigger")
    assert third.poll() is None
    assert len(bench.gateway.cancelled) == 2  # told by the task and, to be sure, by its trigger
    assert set(bench.gateway.cancelled) == {bench.app(0)}


def test_a_run_made_again_while_the_deleted_ones_cancel_is_under_way_begins_after_it(
    bench: Any,
) -> None:
    bench.watch().cancel(Cause.USER_CANCELLED)
    bench.watch()
    trigger = bench.watch(mode="trigger")
    bench.ends("CANCELLED")
    assert trigger.poll() is None
    assert layers(bench) == [Layer.FIRST, Layer.AIRFLOW]
    assert causes(bench) == [Cause.USER_CANCELLED]


def test_a_run_made_again_does_not_report_the_deleted_ones_failure(bench: Any) -> None:
    watcher = bench.watch()
    bench.reply(AttemptId(1), exit_code=1)
    bench.ends("FAILED")
    assert watcher.poll().cause is Cause.APPLICATION
    assert bench.watch().poll() is None
    assert layers(bench) == [Layer.FIRST, Layer.AIRFLOW]


def test_a_retry_with_an_edited_dag_adopts_and_says_so(bench: Any, caplog: Any) -> None:
    bench.watch()
    edit(bench)
    with caplog.at_level(logging.WARNING):
        later = bench.watch(try_number=2)
    assert "Clear the task to restart it" in caplog.text
    assert bench.gateway.cancelled == []
    bench.reply(AttemptId(1), signal=9)
    bench.ends("FAILED")
    assert later.poll() is None
    digests = [event.data["digest"] for event in bench.events("submitted")]
    assert digests[1] == bench.request.digest() != digests[0]


def test_a_clear_after_an_edit_submits_the_new_request(bench: Any) -> None:
    bench.watch()
    edit(bench)
    later = bench.watch(try_number=2, max_tries=4)
    bench.ends("SUCCEEDED")  # too late for the cancel, and not what is asked for now
    assert later.poll() is None
    assert len(bench.gateway.submitted) == 2


def test_an_intent_that_is_handed_over_by_another_run_bears_that_ones_digest(bench: Any) -> None:
    bench.gateway.lose_answer = True
    with pytest.raises(KeyboardInterrupt):
        bench.watch()
    bench.gateway.lose_answer = False
    bench.gateway.states.clear()
    edit(bench)
    bench.watch()
    assert [event.data["digest"] for event in bench.events("submitted")] == [bench.request.digest()]
    assert bench.watch().begin() is Action.ADOPT
    assert bench.gateway.cancelled == []
