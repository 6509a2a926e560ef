"""The publishing task: what it runs, what it hands on, what it says when that fails."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.events import JobKey, Kind, RunDir, read_log
from airflow_ett.operators import ModelPublishOperator
from airflow_ett.store import upgrade
from tests.api.server import SECRET, serving

RESULT = {"version": "2000-ab", "uri": "/r/m/2000-ab", "digest": "d", "begin_ns": 5, "end_ns": 9}


@pytest.fixture
def publisher(tmp_path: Path) -> Callable[[str], str]:
    """Make an executable that stands for the interpreter of the publisher."""

    def make(script: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def execute(python: str, checkpoint: Any, task_id: str = "publish") -> dict[str, Any]:
    operator = ModelPublishOperator(
        task_id=task_id, checkpoint=checkpoint, model="m:build", registry="/r", python=python
    )
    context: Any = {"ti": SimpleNamespace(task_id=task_id, try_number=1)}
    return operator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]


def test_it_hands_on_the_result_and_tells_the_trainings_log(
    publisher: Callable[[str], str],
    tmp_path: Path,
    write_job: Callable[..., RunDir],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/none.db")
    run = write_job(tmp_path / "runs")
    job = read_log(next(iter(run.logs()))).events[0].job
    python = publisher(f"echo \"$@\" > {tmp_path}/argv; echo working; echo '{json.dumps(RESULT)}'")
    output = {"checkpoint": "/c/2000", "run_dir": str(run.path), "job": job}
    assert execute(python, output) == {n: RESULT[n] for n in ("version", "uri", "digest")}
    argv = (tmp_path / "argv").read_text()
    assert "-m airflow_ett.publish --checkpoint /c/2000 --model m:build --registry /r" in argv
    events = [event for path in run.logs() for event in read_log(path).events]
    (published,) = [event for event in events if event.kind == Kind.PUBLISHED]
    assert published.job == job
    assert published.data["checkpoint"] == "/c/2000"
    assert (published.data["begin"], published.data["end"]) == (5, 9)


@pytest.mark.parametrize("task_id", ["publish", "veröffentlichen", "p" * 250])
def test_a_training_at_the_api_is_told_whatever_the_task_is_called(
    publisher: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_id: str
) -> None:
    url = f"sqlite:///{tmp_path}/ett.db"
    upgrade(url)
    monkeypatch.setenv("AIRFLOW__ETT__API_SECRET", SECRET)
    with serving(url) as api:
        monkeypatch.setenv("AIRFLOW__ETT__API_URL", api.url)
        job = JobKey("default", "dag", "run", "train").id
        output = {"checkpoint": "/c/2000", "run_dir": api.place(job), "job": job}
        execute(publisher(f"echo '{json.dumps(RESULT)}'"), output, task_id)
        (published,) = api.storage(job).events("launcher")
    assert (published.kind, published.data["version"]) == (Kind.PUBLISHED, "2000-ab")


def test_a_plain_uri_is_enough(publisher: Callable[[str], str]) -> None:
    assert (
        execute(publisher(f"echo '{json.dumps(RESULT)}'; echo bye"), "/c")["version"] == "2000-ab"
    )


def test_a_publisher_that_fails_is_quoted(publisher: Callable[[str], str]) -> None:
    python = publisher("echo 'not published: shard 3 is damaged' >&2; exit 1")
    with pytest.raises(PublishError, match=r"exit code 1.*shard 3 is damaged"):
        execute(python, "/c")


def test_a_publisher_that_dies_without_a_result_is_no_success(
    publisher: Callable[[str], str],
) -> None:
    with pytest.raises(PublishError, match="told no result"):
        execute(publisher("echo working"), "/c")


@pytest.mark.parametrize("checkpoint", ["", {}, {"checkpoint": None}])
def test_no_checkpoint_is_named(checkpoint: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        execute(os.devnull, checkpoint)
    assert caught.value.parameter == "checkpoint"
