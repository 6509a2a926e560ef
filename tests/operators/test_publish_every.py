"""Publishing a running training's checkpoints: by its log, from beside, until it is over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_ett.errors import PublishError
from airflow_ett.events import RunDir
from airflow_ett.hooks.following import Due
from airflow_ett.triggers.publishing import FollowTrigger
from tests.operators.publishing import (
    RESULT,
    Training,
    context,
    execute,
    published_events,
    resume,
    says,
    script,
    task,
)


@pytest.fixture
def training(
    tmp_path: Path, write_job: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> Training:
    monkeypatch.setattr("airflow_ett.triggers.training.SOONEST_S", 0.0)
    return Training(tmp_path, write_job, monkeypatch)


def follower(python: str, **more: Any) -> Any:
    return task(
        checkpoint=None,
        publish_every=600,
        poll_interval=0.01,
        python=python,
        **more,
    )


def echoing(folder: Path, **other: Any) -> str:
    """A publisher that notes each checkpoint and says that it is published."""
    return script(folder, f'echo "$@" | grep -o "checkpoint=[^ ]*" >> {folder}/seen', says(**other))


def seen(folder: Path) -> list[str]:
    lines = (folder / "seen").read_text().splitlines()
    return [line.rpartition("/")[2] for line in lines]


def fire(deferred: TaskDeferred) -> dict[str, Any]:
    """Run the trigger, rebuilt from what is stored of it; return its event."""
    _, kwargs = deferred.trigger.serialize()

    async def first() -> dict[str, Any]:
        async for event in FollowTrigger(**json.loads(json.dumps(kwargs))).run():
            payload: dict[str, Any] = event.payload
            return payload
        raise AssertionError("no event")

    return asyncio.run(asyncio.wait_for(first(), 30))


@pytest.mark.parametrize("deferrable", [False, True])
def test_checkpoints_are_published_until_the_training_is_over(
    training: Training, tmp_path: Path, deferrable: bool
) -> None:
    operator, given = follower(echoing(tmp_path), deferrable=deferrable), context()
    operator.publish_every = 0.001
    if deferrable:
        with pytest.raises(TaskDeferred) as first:
            execute(operator, given)
        with pytest.raises(TaskDeferred) as second:
            resume(operator, first.value, fire(first.value))
        training.commit(1500)
        with pytest.raises(TaskDeferred) as third:
            resume(operator, second.value, fire(second.value))
        training.commit(2000)
        training.state = "success"
        output = resume(operator, third.value, fire(third.value))
        assert seen(tmp_path) == ["1000", "1500", "2000"]
    else:
        training.state = "success"
        output = execute(operator, given)
        assert seen(tmp_path) == ["1000"]
    assert output["version"] == "2000-ab"
    events = published_events(training.run)
    assert [event.data["checkpoint"].rpartition("/")[2] for event in events] == seen(tmp_path)
    assert {key["task_id"] for key in training.asked} == {"train"}


def test_once_it_has_worked_a_checkpoint_that_cannot_be_published_costs_a_warning(
    training: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = follower(echoing(tmp_path))
    with pytest.raises(TaskDeferred) as first:
        execute(operator)
    with pytest.raises(TaskDeferred) as second:
        resume(operator, first.value, fire(first.value))
    second.value.trigger.due_ns = 0
    training.commit(1500)
    script(tmp_path, "echo 'not published: NaN'; exit 1")
    with pytest.raises(TaskDeferred) as third:
        resume(operator, second.value, fire(second.value))
    assert "NaN The next checkpoint is tried." in capsys.readouterr().out
    trigger = third.value.trigger
    assert (trigger.since, trigger.due_ns > 0) == ("file:///c/1000", True)
    training.state = "success"
    with pytest.raises(PublishError, match="NaN"):
        resume(operator, third.value, fire(third.value))


def test_what_never_worked_is_said_at_once(training: Training, tmp_path: Path) -> None:
    operator = follower(script(tmp_path, "echo 'not published: no such model'; exit 1"))
    with pytest.raises(TaskDeferred) as deferred:
        execute(operator)
    with pytest.raises(PublishError, match="no such model"):
        resume(operator, deferred.value, fire(deferred.value))


def test_the_trainer_does_not_remove_what_is_being_published(
    training: Training, tmp_path: Path
) -> None:
    folder = tmp_path / "c" / "1500"
    folder.mkdir(parents=True)
    (folder / "COMMITTED").touch()
    training.commit(1500, str(folder))
    held = 'ls -A "${3#--checkpoint=}" >> '
    operator = follower(script(tmp_path, f"{held}{tmp_path}/held", says()))
    with pytest.raises(TaskDeferred) as first:
        execute(operator)
    with pytest.raises(TaskDeferred):
        resume(operator, first.value, fire(first.value))
    assert ".held-" in (tmp_path / "held").read_text()
    assert [path.name for path in folder.iterdir()] == ["COMMITTED"]


def test_what_was_found_a_while_ago_may_have_gone_by_now(
    training: Training, tmp_path: Path
) -> None:
    operator = follower(echoing(tmp_path))
    with pytest.raises(TaskDeferred) as first:
        execute(operator)
    event = fire(first.value)
    training.commit(1500)
    with pytest.raises(TaskDeferred):
        resume(operator, first.value, event)
    assert seen(tmp_path) == ["1500"]


def test_one_process_publishes_any_number_of_checkpoints(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = follower("", deferrable=False)
    numbers = iter(range(1000))

    def due(*_: Any) -> Due:
        number = next(numbers)
        return Due({"checkpoint": f"/c/{number}"}, over=number == 999)

    monkeypatch.setattr("airflow_ett.operators.publish.hold_newest", lambda key, source, by: source)
    monkeypatch.setattr(type(operator), "_next", due)
    monkeypatch.setattr(type(operator), "_run", lambda *_: RESULT)
    assert execute(operator)["version"] == RESULT["version"]
    assert list(numbers) == []


def test_a_training_that_ends_without_a_checkpoint_publishes_nothing(
    training: Training, tmp_path: Path
) -> None:
    operator = follower(echoing(tmp_path), training="other")
    training.state = "upstream_failed"
    with pytest.raises(TaskDeferred) as deferred:
        execute(operator)
    with pytest.raises(PublishError, match="other is over and has committed no checkpoint"):
        resume(operator, deferred.value, fire(deferred.value))


def test_when_nothing_newer_comes_the_last_one_is_the_result(
    training: Training, tmp_path: Path
) -> None:
    operator = follower(echoing(tmp_path))
    with pytest.raises(TaskDeferred) as first:
        execute(operator)
    with pytest.raises(TaskDeferred) as second:
        resume(operator, first.value, fire(first.value))
    training.state = "failed"
    assert resume(operator, second.value, fire(second.value))["uri"] == "/r/m/2000-ab"
    assert seen(tmp_path) == ["1000"]


def test_it_ends_at_the_tasks_deadline(training: Training, tmp_path: Path) -> None:
    operator = follower(echoing(tmp_path))
    with pytest.raises(TaskDeferred) as deferred:
        execute(operator)
    deferred.value.trigger.deadline_ns = 1
    event = fire(deferred.value)
    with pytest.raises(PublishError, match="still runs at the execution_timeout"):
        getattr(operator, deferred.value.method_name)(context(), event)
